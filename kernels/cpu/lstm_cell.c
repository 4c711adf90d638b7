/* One step of an LSTM: matrix products by oneDNN, and one pass over the gates, which are stored as i, f, g, o. With one
 * input the previous state is zero and its products are left out.
 *
 * In a bfloat16 network products read inputs, weights and the gates' gradients as bfloat16; the pass over the gates works on
 * float32 copies, which are small beside the weights. */
#include <string.h>

#include "kernels/cpu/bfloat16.h"
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
    bool narrow;   /* bfloat16 */
    ckpt_dtype dtype;
    int threads;
} cell_shape;

static cell_shape describe(const ckpt_node *node)
{
    cell_shape cell = {.N = node->in[0].shape.dim[0],
                       .I = node->in[0].shape.dim[1],
                       .H = node->out[0].shape.dim[1],
                       .stateful = node->in_count == 3,
                       .narrow = node->dtype == CKPT_BFLOAT16,
                       .dtype = node->dtype,
                       .threads = node->threads};
    return cell;
}

/* Where a direction's own part of the workspace is; offsets of what it does not have are 0. Products' parts lie behind. */
typedef struct room {
    ckpt_bytes gates, tanh_c, c, h, new_c; /* float32 copies; in backward h and new_c are dh and dc */
    ckpt_bytes dgates, dgates16, dc_before;
    ckpt_bytes own;
} room;

static ckpt_bytes take(room *r, int64_t count, ckpt_bytes size)
{
    const ckpt_bytes at = r->own;
    r->own = ckpt_round_up(at + count * size, CKPT_ALIGN);
    return at;
}

static room room_of(const cell_shape *cell, bool backward)
{
    const int64_t state = cell->N * cell->H;
    room r = {.own = 0};
    if (backward) {
        r.dgates = take(&r, 4 * state, sizeof(float));
    }
    if (cell->narrow) {
        r.gates = take(&r, 4 * state, sizeof(float));
        r.tanh_c = take(&r, state, sizeof(float));
        r.c = take(&r, state, sizeof(float));
        r.h = take(&r, state, sizeof(float));
        r.new_c = take(&r, state, sizeof(float));
    }
    if (cell->narrow && backward) {
        r.dgates16 = take(&r, 4 * state, sizeof(uint16_t));
        r.dc_before = take(&r, state, sizeof(float));
    }
    return r;
}

static ckpt_code make_call(lstm_state *state, int which, ckpt_dnn_matrix x, ckpt_dnn_matrix w, ckpt_dnn_matrix y,
                           int threads, ckpt_bytes limit, ckpt_err *err)
{
    const bool gates = which == X_GATES || which == H_GATES;
    const bool bias = gates && x.dtype == CKPT_FLOAT32; /* a product's bias has the weights' type, these are float32 */
    CKPT_TRY(ckpt_dnn_matmul(&x, &w, &y, bias, which == H_GATES, threads, limit, &state->call[which], err));
    const ckpt_bytes used = ckpt_dnn_workspace(state->call[which]);
    ckpt_bytes *const most = gates ? &state->forward_bytes : &state->backward_bytes;
    *most = used > *most ? used : *most;
    return CKPT_OK;
}

static ckpt_code make_calls(lstm_state *state, const ckpt_node *node, ckpt_bytes forward_limit,
                            ckpt_bytes backward_limit, ckpt_err *err)
{
    const cell_shape cell = describe(node);
    const int64_t N = cell.N, G = 4 * cell.H;
    const int threads = node->threads;
    const ckpt_dtype type = cell.dtype;
    const ckpt_dnn_matrix gates = ckpt_dnn_plain(N, G, CKPT_FLOAT32), dgates = ckpt_dnn_plain(N, G, type),
                          turned = ckpt_dnn_turned(N, G, type), x = ckpt_dnn_plain(N, cell.I, type),
                          h = ckpt_dnn_plain(N, cell.H, type);
    CKPT_TRY(make_call(state, X_GATES, x, ckpt_dnn_turned(G, cell.I, type), gates, threads, forward_limit, err));
    CKPT_TRY(make_call(state, DW_X, turned, x, ckpt_dnn_plain(G, cell.I, CKPT_FLOAT32), threads, backward_limit, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(make_call(state, DX, dgates, ckpt_dnn_plain(G, cell.I, type), x, threads, backward_limit, err));
    }
    if (cell.stateful) {
        CKPT_TRY(make_call(state, H_GATES, h, ckpt_dnn_turned(G, cell.H, type), gates, threads, forward_limit, err));
        CKPT_TRY(
            make_call(state, DW_H, turned, h, ckpt_dnn_plain(G, cell.H, CKPT_FLOAT32), threads, backward_limit, err));
        if ((node->grad_in & 2) != 0) {
            CKPT_TRY(make_call(state, DH, dgates, ckpt_dnn_plain(G, cell.H, type), h, threads, backward_limit, err));
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
    const cell_shape cell = describe(node);
    const ckpt_bytes ahead = forward - room_of(&cell, false).own, back = backward - room_of(&cell, true).own;
    return make_calls(memory, node,
                      forward < 0 ? -1
                      : ahead > 0 ? ahead
                                  : 0,
                      backward < 0 ? -1
                      : back > 0   ? back
                                   : 0,
                      err);
}

/* Backward holds the gradient of the gates before their nonlinearities, then what a product needs. */
static void workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const lstm_state *const state = memory;
    const cell_shape cell = describe(node);
    *forward = room_of(&cell, false).own + state->forward_bytes;
    *backward = room_of(&cell, true).own + state->backward_bytes;
}

static ckpt_code product(const lstm_state *state, int which, const void *x, const void *w, void *y, const void *bias,
                         void *scratch, ckpt_err *err)
{
    const void *const pointer[4] = {x, w, y, bias};
    return ckpt_dnn_run(state->call[which], pointer, scratch, err);
}

static float *at(const ckpt_kernel_args *args, ckpt_bytes offset)
{
    return (float *)(void *)((char *)args->workspace + offset);
}

/* A tensor as float32: itself, or a copy at `offset` of the workspace. NULL stays NULL. */
static const float *read(const ckpt_kernel_args *args, const cell_shape *cell, const void *tensor, int64_t count,
                         ckpt_bytes offset)
{
    if (!cell->narrow || tensor == NULL) {
        return tensor;
    }
    ckpt_widen_all(count, tensor, at(args, offset), cell->threads);
    return at(args, offset);
}

/* Where a float32 result goes before `round_to`. */
static float *write_to(const ckpt_kernel_args *args, const cell_shape *cell, void *tensor, ckpt_bytes offset)
{
    return cell->narrow && tensor != NULL ? at(args, offset) : tensor;
}

static void round_to(const cell_shape *cell, int64_t count, const float *from, void *tensor)
{
    if (cell->narrow && tensor != NULL) {
        ckpt_narrow_all(count, from, tensor, cell->threads);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const cell_shape cell = describe(args->node);
    const room r = room_of(&cell, false);
    const lstm_state *const state = args->state;
    const int64_t H = cell.H, count = cell.N * H;
    void *const scratch = (char *)args->workspace + r.own;
    float *const gates = write_to(args, &cell, args->saved[0], r.gates);
    float *const tanh_c = write_to(args, &cell, args->saved[1], r.tanh_c);
    float *const new_h = write_to(args, &cell, args->out[0], r.h), *const new_c =
                                                                       write_to(args, &cell, args->out[1], r.new_c);
    const float *const c = read(args, &cell, cell.stateful ? args->in[2] : NULL, count, r.c);
    const float *const bias_ih = args->param[2], *const bias_hh = args->param[3];
    CKPT_TRY(product(state, X_GATES, args->in[0], ckpt_product_param(args, 0), gates, bias_ih, scratch, err));
    if (cell.stateful) {
        CKPT_TRY(product(state, H_GATES, args->in[1], ckpt_product_param(args, 1), gates, bias_hh, scratch, err));
    }
#pragma omp parallel for schedule(static) num_threads(cell.threads) if (count > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < cell.N; n++) {
        if (cell.narrow) {
            ckpt_vector_add(4 * H, bias_ih, gates + n * 4 * H);
        }
        ckpt_lstm_forward_row(H, cell.stateful && !cell.narrow ? NULL : bias_hh, c != NULL ? c + n * H : NULL,
                              gates + n * 4 * H, tanh_c + n * H, new_h + n * H, new_c + n * H);
    }
    round_to(&cell, 4 * count, gates, args->saved[0]);
    round_to(&cell, count, tanh_c, args->saved[1]);
    round_to(&cell, count, new_h, args->out[0]);
    round_to(&cell, count, new_c, args->out[1]);
    return CKPT_OK;
}

/* The gradient of the gates before their nonlinearities, and of the state before. */
static void gate_gradients(const ckpt_kernel_args *args, const cell_shape *cell, const room *r)
{
    const int64_t H = cell->H, count = cell->N * H;
    const float *const gates = read(args, cell, args->saved[0], 4 * count, r->gates);
    const float *const tanh_c = read(args, cell, args->saved[1], count, r->tanh_c);
    const float *const c = read(args, cell, cell->stateful ? args->in[2] : NULL, count, r->c);
    const float *const dh = read(args, cell, args->grad_out[0], count, r->h);
    const float *const dc = read(args, cell, args->grad_out[1], count, r->new_c);
    void *const before = cell->stateful ? args->grad_in[2] : NULL;
    float *const dgates = at(args, r->dgates), *const dc_before = write_to(args, cell, before, r->dc_before);
#pragma omp parallel for schedule(static) num_threads(cell->threads) if (count > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < cell->N; n++) {
        const ckpt_lstm_back row = {.gates = gates + n * 4 * H,
                                    .tanh_c = tanh_c + n * H,
                                    .c = c != NULL ? c + n * H : NULL,
                                    .dh = dh != NULL ? dh + n * H : NULL,
                                    .dc = dc != NULL ? dc + n * H : NULL,
                                    .dgates = dgates + n * 4 * H,
                                    .dc_before = dc_before != NULL ? dc_before + n * H : NULL};
        ckpt_lstm_backward_row(H, &row);
    }
    round_to(cell, count, dc_before, before);
    round_to(cell, 4 * count, dgates, at(args, r->dgates16));
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const cell_shape cell = describe(args->node);
    const room r = room_of(&cell, true);
    const lstm_state *const state = args->state;
    const int64_t H = cell.H;
    const float *const dgates = at(args, r.dgates);
    const void *const factor = at(args, cell.narrow ? r.dgates16 : r.dgates);
    void *const scratch = (char *)args->workspace + r.own;
    gate_gradients(args, &cell, &r);
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(product(state, DX, factor, ckpt_product_param(args, 0), args->grad_in[0], NULL, scratch, err));
    }
    if (cell.stateful && args->grad_in[1] != NULL) {
        CKPT_TRY(product(state, DH, factor, ckpt_product_param(args, 1), args->grad_in[1], NULL, scratch, err));
    }
    CKPT_TRY(product(state, DW_X, factor, args->in[0], args->grad_param[0], NULL, scratch, err));
    if (cell.stateful) {
        CKPT_TRY(product(state, DW_H, factor, args->in[1], args->grad_param[1], NULL, scratch, err));
    } else {
        memset(args->grad_param[1], 0, (size_t)(4 * H * H) * sizeof(float));
    }
    ckpt_column_sums(CKPT_FLOAT32, cell.N, 4 * H, dgates, args->grad_param[2], false, cell.threads);
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
