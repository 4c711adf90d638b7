/* One step of an LSTM: matrix products by oneDNN, and one pass over the gates, which are stored as i, f, g, o. With one
 * input the previous state is zero and its products are left out. */
#include <string.h>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/lstm_rows.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { X_GATES, H_GATES, DX, DH, DW_X, DW_H, CALLS };

typedef struct lstm_state {
    ckpt_dnn *call[CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;
} lstm_state;

typedef struct cell_shape {
    int64_t N, I, H;
    bool stateful; /* h and c are given */
    ckpt_bytes gate_bytes;
} cell_shape;

static cell_shape describe(const ckpt_node *node)
{
    cell_shape cell = {.N = node->in[0].shape.dim[0],
                       .I = node->in[0].shape.dim[1],
                       .H = node->out[0].shape.dim[1],
                       .stateful = node->in_count == 3};
    cell.gate_bytes = cell.N * 4 * cell.H * (ckpt_bytes)sizeof(float);
    return cell;
}

static ckpt_code make_call(lstm_state *state, int which, ckpt_dnn_matrix x, ckpt_dnn_matrix w, ckpt_dnn_matrix y,
                           int threads, ckpt_bytes limit, ckpt_err *err)
{
    const bool bias = which == X_GATES || which == H_GATES;
    CKPT_TRY(ckpt_dnn_matmul(&x, &w, &y, bias, which == H_GATES, threads, limit, &state->call[which], err));
    const ckpt_bytes used = ckpt_dnn_workspace(state->call[which]);
    ckpt_bytes *const most = bias ? &state->forward_bytes : &state->backward_bytes;
    *most = used > *most ? used : *most;
    return CKPT_OK;
}

static ckpt_code make_calls(lstm_state *state, const ckpt_node *node, ckpt_bytes forward_limit,
                            ckpt_bytes backward_limit, ckpt_err *err)
{
    const cell_shape cell = describe(node);
    const int64_t N = cell.N, G = 4 * cell.H;
    const int threads = node->threads;
    const ckpt_dnn_matrix gates = ckpt_dnn_plain(N, G, CKPT_FLOAT32),
                          turned_gates = ckpt_dnn_turned(N, G, CKPT_FLOAT32);
    CKPT_TRY(make_call(state, X_GATES, ckpt_dnn_plain(N, cell.I, CKPT_FLOAT32),
                       ckpt_dnn_turned(G, cell.I, CKPT_FLOAT32), gates, threads, forward_limit, err));
    CKPT_TRY(make_call(state, DW_X, turned_gates, ckpt_dnn_plain(N, cell.I, CKPT_FLOAT32),
                       ckpt_dnn_plain(G, cell.I, CKPT_FLOAT32), threads, backward_limit, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(make_call(state, DX, gates, ckpt_dnn_plain(G, cell.I, CKPT_FLOAT32),
                           ckpt_dnn_plain(N, cell.I, CKPT_FLOAT32), threads, backward_limit, err));
    }
    if (cell.stateful) {
        CKPT_TRY(make_call(state, H_GATES, ckpt_dnn_plain(N, cell.H, CKPT_FLOAT32),
                           ckpt_dnn_turned(G, cell.H, CKPT_FLOAT32), gates, threads, forward_limit, err));
        CKPT_TRY(make_call(state, DW_H, turned_gates, ckpt_dnn_plain(N, cell.H, CKPT_FLOAT32),
                           ckpt_dnn_plain(G, cell.H, CKPT_FLOAT32), threads, backward_limit, err));
        if ((node->grad_in & 2) != 0) {
            CKPT_TRY(make_call(state, DH, gates, ckpt_dnn_plain(G, cell.H, CKPT_FLOAT32),
                               ckpt_dnn_plain(N, cell.H, CKPT_FLOAT32), threads, backward_limit, err));
        }
    }
    return CKPT_OK;
}

static void release(void *memory)
{
    const lstm_state *const state = memory;
    for (int i = 0; i < CALLS; i++) {
        ckpt_dnn_destroy(state->call[i]);
    }
}

static ckpt_code prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    (void)choice; /* none on a CPU */
    (void)context;
    const ckpt_bytes rest = backward - ckpt_round_up(describe(node).gate_bytes, CKPT_ALIGN);
    return make_calls(memory, node, forward, backward < 0 ? -1 : rest > 0 ? rest : 0, err);
}

/* Backward holds the gradient of the gates before their nonlinearities, then what a product needs. */
static void workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const lstm_state *const state = memory;
    const ckpt_bytes gates = describe(node).gate_bytes;
    *forward = state->forward_bytes;
    *backward = state->backward_bytes > 0 ? ckpt_round_up(gates, CKPT_ALIGN) + state->backward_bytes : gates;
}

static ckpt_code product(const lstm_state *state, int which, const void *x, const void *w, void *y, const void *bias,
                         void *scratch, ckpt_err *err)
{
    const void *const pointer[4] = {x, w, y, bias};
    return ckpt_dnn_run(state->call[which], pointer, scratch, err);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const cell_shape cell = describe(args->node);
    const lstm_state *const state = args->state;
    const int64_t H = cell.H;
    float *const gates = args->saved[0], *const tanh_c = args->saved[1];
    float *const new_h = args->out[0], *const new_c = args->out[1];
    const float *const c = cell.stateful ? args->in[2] : NULL;
    CKPT_TRY(product(state, X_GATES, args->in[0], args->param[0], gates, args->param[2], args->workspace, err));
    if (cell.stateful) {
        CKPT_TRY(product(state, H_GATES, args->in[1], args->param[1], gates, args->param[3], args->workspace, err));
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (cell.N * H > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < cell.N; n++) {
        ckpt_lstm_forward_row(H, cell.stateful ? NULL : args->param[3], c != NULL ? c + n * H : NULL, gates + n * 4 * H,
                              tanh_c + n * H, new_h + n * H, new_c + n * H);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const cell_shape cell = describe(args->node);
    const lstm_state *const state = args->state;
    const int64_t H = cell.H;
    const float *const gates = args->saved[0], *const tanh_c = args->saved[1];
    const float *const c = cell.stateful ? args->in[2] : NULL;
    const float *const dh = args->grad_out[0], *const dc = args->grad_out[1];
    float *const dgates = args->workspace, *const dc_before = cell.stateful ? args->grad_in[2] : NULL;
    void *const scratch = (char *)args->workspace + ckpt_round_up(cell.gate_bytes, CKPT_ALIGN);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (cell.N * H > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < cell.N; n++) {
        const ckpt_lstm_back row = {.gates = gates + n * 4 * H,
                                    .tanh_c = tanh_c + n * H,
                                    .c = c != NULL ? c + n * H : NULL,
                                    .dh = dh != NULL ? dh + n * H : NULL,
                                    .dc = dc != NULL ? dc + n * H : NULL,
                                    .dgates = dgates + n * 4 * H,
                                    .dc_before = dc_before != NULL ? dc_before + n * H : NULL};
        ckpt_lstm_backward_row(H, &row);
    }
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(product(state, DX, dgates, args->param[0], args->grad_in[0], NULL, scratch, err));
    }
    if (cell.stateful && args->grad_in[1] != NULL) {
        CKPT_TRY(product(state, DH, dgates, args->param[1], args->grad_in[1], NULL, scratch, err));
    }
    CKPT_TRY(product(state, DW_X, dgates, args->in[0], args->grad_param[0], NULL, scratch, err));
    if (cell.stateful) {
        CKPT_TRY(product(state, DW_H, dgates, args->in[1], args->grad_param[1], NULL, scratch, err));
    } else {
        memset(args->grad_param[1], 0, (size_t)(4 * H * H) * sizeof(float));
    }
    ckpt_column_sums(CKPT_FLOAT32, cell.N, 4 * H, dgates, args->grad_param[2], false, args->node->threads);
    memcpy(args->grad_param[3], args->grad_param[2], (size_t)(4 * H) * sizeof(float));
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_lstm_cell = {
    .op = "lstm_cell",
    .state_bytes = sizeof(lstm_state),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
