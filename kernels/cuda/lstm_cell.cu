/* One step of an LSTM: matrix products by cuBLASLt, the rest in one pass over the gates, in the order i, f, g, o. With
 * one input the previous state is zero and its products are left out. The products write the gates before their
 * nonlinearities: in a float32 model to where the finished gates go, in a bfloat16 model to float32 workspace, so that
 * the sum of both products is rounded once. The pass adds both biases.
 * Forward: 8 N H (I + H) FLOP of products; backward: twice that. The passes move, for each of the N x H cells, 4 gates
 * in and 4 out and about 4 values of state, at some 60 operations: bound by memory. */
#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/lstm.cuh"
#include "kernels/cuda/wide.cuh"

enum { X_GATES, H_GATES, DX, DH, DW_X, DW_H, CALLS };

struct lstm_state {
    ckpt_cuda *cuda;
    ckpt_blas_product *call[CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;
    char choice[CKPT_CHOICE_TEXT];
};
static const char *const call_key[CALLS] = {"x", "h", "dx", "dh", "dwx", "dwh"};

struct lstm_shape {
    int64_t rows, inputs, width; /* N, I, H */
    bool stateful;               /* h and c are given */
    ckpt_dtype dtype;
    ckpt_bytes gates_bytes;  /* of the gates before their nonlinearities, in workspace; 0: in saved[0] */
    ckpt_bytes dgates_bytes; /* of their gradient */
};

static lstm_shape shape_of(const ckpt_node *node)
{
    lstm_shape shape = {};
    shape.rows = node->in[0].shape.dim[0];
    shape.inputs = node->in[0].shape.dim[1];
    shape.width = node->out[0].shape.dim[1];
    shape.stateful = node->in_count == 3;
    shape.dtype = node->saved[0].dtype;
    const int64_t gates = shape.rows * 4 * shape.width;
    shape.gates_bytes = shape.dtype == CKPT_BFLOAT16 ? ckpt_round_up(gates * (int64_t)sizeof(float), CKPT_ALIGN) : 0;
    shape.dgates_bytes = ckpt_round_up(gates * ckpt_dtype_bytes(shape.dtype), CKPT_ALIGN);
    return shape;
}

static ckpt_code make_call(lstm_state *state, int which, int64_t rows, int64_t columns, int64_t inner, ckpt_dtype in,
                           ckpt_dtype out, ckpt_bytes limit, const char *choice, ckpt_err *err)
{
    char piece[CKPT_PIECE_TEXT];
    const bool forward = which == X_GATES || which == H_GATES; /* weights are stored as [out, in] */
    const bool weights = which == DW_X || which == DW_H;       /* x is the gradient of the gates, by its columns */
    const ckpt_blas_shape shape = blas_of(rows, columns, inner, weights, forward, in, out, false, which == H_GATES);
    return ckpt_blas_product_create(state->cuda, &shape, limit, ckpt_choice_get(choice, call_key[which], piece),
                                    &state->call[which], err);
}

/* To be called after algorithms have changed: adds up what they use and names them. */
static void look_at_calls(lstm_state *state)
{
    state->forward_bytes = state->backward_bytes = 0;
    state->choice[0] = '\0';
    for (int k = 0; k < CALLS; k++) {
        ckpt_bytes *const most = k == X_GATES || k == H_GATES ? &state->forward_bytes : &state->backward_bytes;
        *most = blas_most(*most, state->call[k]);
        if (state->call[k] != NULL) {
            ckpt_choice_add(state->choice, call_key[k], ckpt_blas_product_choice(state->call[k]));
        }
    }
}

static ckpt_code make_calls(lstm_state *state, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                            const char *choice, ckpt_err *err)
{
    const lstm_shape shape = shape_of(node);
    const int64_t N = shape.rows, I = shape.inputs, H = shape.width, G = 4 * H;
    const ckpt_dtype own = shape.dtype;
    CKPT_TRY(make_call(state, X_GATES, N, G, I, own, CKPT_FLOAT32, forward, choice, err));
    CKPT_TRY(make_call(state, DW_X, G, I, N, own, CKPT_FLOAT32, backward, choice, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(make_call(state, DX, N, I, G, own, own, backward, choice, err));
    }
    if (shape.stateful) {
        CKPT_TRY(make_call(state, H_GATES, N, G, H, own, CKPT_FLOAT32, forward, choice, err));
        CKPT_TRY(make_call(state, DW_H, G, H, N, own, CKPT_FLOAT32, backward, choice, err));
        if ((node->grad_in & 2) != 0) {
            CKPT_TRY(make_call(state, DH, N, H, G, own, own, backward, choice, err));
        }
    }
    return CKPT_OK;
}

static void release(void *memory)
{
    for (ckpt_blas_product *const call : ((lstm_state *)memory)->call) {
        ckpt_blas_product_destroy(call);
    }
}

static ckpt_code prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    lstm_state *const state = (lstm_state *)memory;
    const lstm_shape shape = shape_of(node);
    state->cuda = (ckpt_cuda *)context;
    CKPT_TRY(make_calls(state, node, blas_rest(forward, shape.gates_bytes), blas_rest(backward, shape.dgates_bytes),
                        choice, err));
    look_at_calls(state);
    return CKPT_OK;
}

/* Behind the gates' gradient, the products and the column sums use the same bytes one after another. */
static void workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const lstm_state *const state = (const lstm_state *)memory;
    const lstm_shape shape = shape_of(node);
    const ckpt_bytes sums = ckpt_gpu_column_sums_workspace(shape.rows, 4 * shape.width);
    *forward = shape.gates_bytes + state->forward_bytes;
    *backward = shape.dgates_bytes + (sums > state->backward_bytes ? sums : state->backward_bytes);
}

static const char *choice_of(const void *memory)
{
    return ((const lstm_state *)memory)->choice;
}

static ckpt_code product(const ckpt_kernel_args *args, int which, const void *x, const void *w, void *y,
                         ckpt_bytes offset, ckpt_err *err)
{
    const lstm_state *const state = (const lstm_state *)args->state;
    return ckpt_blas_product_run(state->call[which], x, w, y, NULL, (char *)args->workspace + offset, err);
}

/* The arguments of the forward pass; `before` may be `gates`, c may be NULL. */
template <typename T> struct lstm_forward_args {
    int64_t width;
    const float *before, *bias_ih, *bias_hh;
    const T *c;
    T *gates, *tanh_c, *new_h, *new_c;
};

/* A gate of a row with its biases, before its nonlinearity. */
template <int N, typename T>
__device__ static wide<float, N> lstm_gate(const lstm_forward_args<T> &a, int64_t row, int64_t k, int gate)
{
    const int64_t place = gate * a.width + k;
    wide<float, N> value = load_wide<N>(a.before + row * 4 * a.width + place);
    const wide<float, N> ih = load_wide<N>(a.bias_ih + place), hh = load_wide<N>(a.bias_hh + place);
    for (int j = 0; j < N; j++) {
        value.at[j] += ih.at[j] + hh.at[j];
    }
    return value;
}

template <typename T, int N> __global__ void lstm_forward(int64_t items, lstm_forward_args<T> a)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient row = divide(item, a.width / N);
        const int64_t k = row.rest * N, cell = row.whole * a.width + k;
        wide<float, N> i = lstm_gate<N>(a, row.whole, k, 0), f = lstm_gate<N>(a, row.whole, k, 1);
        wide<float, N> g = lstm_gate<N>(a, row.whole, k, 2), o = lstm_gate<N>(a, row.whole, k, 3);
        wide<T, N> before = {};
        if (a.c != NULL) {
            before = load_wide<N>(a.c + cell);
        }
        wide<float, N> new_c, tanh_c, new_h;
        for (int j = 0; j < N; j++) {
            lstm_gates gate = {i.at[j], f.at[j], g.at[j], o.at[j]};
            const lstm_next next = lstm_step(gate, a.c != NULL, to_float(before.at[j]));
            i.at[j] = gate.i;
            f.at[j] = gate.f;
            g.at[j] = gate.g;
            o.at[j] = gate.o;
            new_c.at[j] = next.c;
            tanh_c.at[j] = next.tanh_c;
            new_h.at[j] = next.h;
        }
        T *const gates = a.gates + row.whole * 4 * a.width + k;
        put_wide<N>(gates, i, false);
        put_wide<N>(gates + a.width, f, false);
        put_wide<N>(gates + 2 * a.width, g, false);
        put_wide<N>(gates + 3 * a.width, o, false);
        put_wide<N>(a.tanh_c + cell, tanh_c, false);
        put_wide<N>(a.new_c + cell, new_c, false);
        put_wide<N>(a.new_h + cell, new_h, false);
    }
}

/* The arguments of the backward pass; dh, dc, c and dc_before may be NULL. */
template <typename T> struct lstm_backward_args {
    int64_t width;
    const T *gates, *tanh_c, *c, *dh, *dc;
    T *dgates, *dc_before;
};

/* Zeros if `from` is NULL. */
template <int N, typename T> __device__ static wide<T, N> lstm_load_or_zero(const T *from, int64_t at)
{
    wide<T, N> value = {};
    if (from != NULL) {
        value = load_wide<N>(from + at);
    }
    return value;
}

template <typename T, int N> __global__ void lstm_backward(int64_t items, lstm_backward_args<T> a)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient row = divide(item, a.width / N);
        const int64_t k = row.rest * N, cell = row.whole * a.width + k, place = row.whole * 4 * a.width + k;
        const wide<T, N> i_pack = load_wide<N>(a.gates + place), f_pack = load_wide<N>(a.gates + place + a.width);
        const wide<T, N> g_pack = load_wide<N>(a.gates + place + 2 * a.width);
        const wide<T, N> o_pack = load_wide<N>(a.gates + place + 3 * a.width);
        const wide<T, N> tanh_pack = load_wide<N>(a.tanh_c + cell), c_pack = lstm_load_or_zero<N>(a.c, cell);
        const wide<T, N> dh_pack = lstm_load_or_zero<N>(a.dh, cell), dc_pack = lstm_load_or_zero<N>(a.dc, cell);
        wide<float, N> di, df, dg, d_o, dc_before;
        for (int j = 0; j < N; j++) {
            const lstm_gates gate = {to_float(i_pack.at[j]), to_float(f_pack.at[j]), to_float(g_pack.at[j]),
                                     to_float(o_pack.at[j])};
            const lstm_slopes slope = lstm_back(gate, to_float(tanh_pack.at[j]), to_float(c_pack.at[j]),
                                                to_float(dh_pack.at[j]), to_float(dc_pack.at[j]));
            di.at[j] = slope.i;
            df.at[j] = slope.f;
            dg.at[j] = slope.g;
            d_o.at[j] = slope.o;
            dc_before.at[j] = slope.c;
        }
        put_wide<N>(a.dgates + place, di, false);
        put_wide<N>(a.dgates + place + a.width, df, false);
        put_wide<N>(a.dgates + place + 2 * a.width, dg, false);
        put_wide<N>(a.dgates + place + 3 * a.width, d_o, false);
        if (a.dc_before != NULL) {
            put_wide<N>(a.dc_before + cell, dc_before, false);
        }
    }
}

template <typename T, int N>
static void start_forward(const ckpt_kernel_args *args, const lstm_shape &shape, float *before)
{
    lstm_forward_args<T> a = {};
    a.width = shape.width;
    a.before = before;
    a.bias_ih = args->param[2];
    a.bias_hh = args->param[3];
    a.c = shape.stateful ? (const T *)args->in[2] : NULL;
    a.gates = (T *)args->saved[0];
    a.tanh_c = (T *)args->saved[1];
    a.new_h = (T *)args->out[0];
    a.new_c = (T *)args->out[1];
    CKPT_LAUNCH_ITEMS(cuda_of(args), (lstm_forward<T, N>), shape.rows * shape.width / N, a);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const lstm_shape shape = shape_of(args->node);
    float *const before = (float *)(shape.gates_bytes > 0 ? args->workspace : args->saved[0]);
    CKPT_TRY(product(args, X_GATES, args->in[0], ckpt_product_param(args, 0), before, shape.gates_bytes, err));
    if (shape.stateful) {
        CKPT_TRY(product(args, H_GATES, args->in[1], ckpt_product_param(args, 1), before, shape.gates_bytes, err));
    }
    CKPT_BY_WIDTH(shape.dtype, shape.width, start_forward, args, shape, before);
    return ckpt_cuda_launched("lstm_cell", err);
}

template <typename T, int N> static void start_backward(const ckpt_kernel_args *args, const lstm_shape &shape)
{
    lstm_backward_args<T> a = {};
    a.width = shape.width;
    a.gates = (const T *)args->saved[0];
    a.tanh_c = (const T *)args->saved[1];
    a.c = shape.stateful ? (const T *)args->in[2] : NULL;
    a.dh = (const T *)args->grad_out[0];
    a.dc = (const T *)args->grad_out[1];
    a.dgates = (T *)args->workspace;
    a.dc_before = shape.stateful ? (T *)args->grad_in[2] : NULL;
    CKPT_LAUNCH_ITEMS(cuda_of(args), (lstm_backward<T, N>), shape.rows * shape.width / N, a);
}

/* Both biases have the same gradient. Without a previous state the gradient of its weights is zero. */
static ckpt_code bias_gradients(const ckpt_kernel_args *args, const lstm_shape &shape, ckpt_err *err)
{
    ckpt_cuda *const cuda = (ckpt_cuda *)args->context;
    const cudaStream_t compute = cuda->stream[CKPT_STREAM_COMPUTE];
    const size_t bias_bytes = (size_t)(4 * shape.width) * sizeof(float);
    CKPT_TRY(ckpt_cuda_column_sums(cuda, shape.dtype, shape.rows, 4 * shape.width, args->workspace, args->grad_param[2],
                                   false, (char *)args->workspace + shape.dgates_bytes, err));
    CKPT_TRY(ckpt_cuda_check(
        cudaMemcpyAsync(args->grad_param[3], args->grad_param[2], bias_bytes, cudaMemcpyDeviceToDevice, compute),
        "copying the gradient of the biases", err));
    cuda->launched->copies += shape.stateful ? 1 : 2;
    if (!shape.stateful) {
        CKPT_TRY(ckpt_cuda_check(cudaMemsetAsync(args->grad_param[1], 0, bias_bytes * (size_t)shape.width, compute),
                                 "weight_hh", err));
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const lstm_shape shape = shape_of(args->node);
    const ckpt_bytes scratch = shape.dgates_bytes;
    void *const dgates = args->workspace;
    CKPT_BY_WIDTH(shape.dtype, shape.width, start_backward, args, shape);
    CKPT_TRY(ckpt_cuda_launched("lstm_cell backward", err));
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(product(args, DX, dgates, ckpt_product_param(args, 0), args->grad_in[0], scratch, err));
    }
    if (shape.stateful && args->grad_in[1] != NULL) {
        CKPT_TRY(product(args, DH, dgates, ckpt_product_param(args, 1), args->grad_in[1], scratch, err));
    }
    CKPT_TRY(product(args, DW_X, dgates, args->in[0], args->grad_param[0], scratch, err));
    if (shape.stateful) {
        CKPT_TRY(product(args, DW_H, dgates, args->in[1], args->grad_param[1], scratch, err));
    }
    return bias_gradients(args, shape, err);
}

static ckpt_code tune_product(const ckpt_kernel_args *args, int which, const void *x, const void *w, void *y,
                              ckpt_bytes offset, ckpt_tuning *tuning, ckpt_err *err)
{
    lstm_state *const state = (lstm_state *)args->state;
    ckpt_ns took = 0;
    return state->call[which] == NULL || y == NULL
               ? CKPT_OK
               : ckpt_blas_product_tune(state->call[which], x, w, y, NULL, (char *)args->workspace + offset,
                                        args->workspace_bytes - offset, tuning, &took, err);
}

/* The products get their operands as in a run: forward writes the gates before their nonlinearities, backward starts
 * from the gradient of the gates. */
static ckpt_code tune(const ckpt_kernel_args *args, bool is_backward, ckpt_tuning *tuning, ckpt_err *err)
{
    const lstm_shape shape = shape_of(args->node);
    const ckpt_bytes room = is_backward ? shape.dgates_bytes : shape.gates_bytes;
    void *const gates = is_backward || shape.gates_bytes > 0 ? args->workspace : args->saved[0];
    if (is_backward) {
        CKPT_TRY(backward(args, err));
        CKPT_TRY(tune_product(args, DX, gates, ckpt_product_param(args, 0), args->grad_in[0], room, tuning, err));
        CKPT_TRY(tune_product(args, DW_X, gates, args->in[0], args->grad_param[0], room, tuning, err));
    } else {
        CKPT_TRY(tune_product(args, X_GATES, args->in[0], ckpt_product_param(args, 0), gates, room, tuning, err));
    }
    if (shape.stateful && is_backward) {
        CKPT_TRY(tune_product(args, DH, gates, ckpt_product_param(args, 1), args->grad_in[1], room, tuning, err));
        CKPT_TRY(tune_product(args, DW_H, gates, args->in[1], args->grad_param[1], room, tuning, err));
    } else if (shape.stateful) {
        CKPT_TRY(tune_product(args, H_GATES, args->in[1], ckpt_product_param(args, 1), gates, room, tuning, err));
    }
    look_at_calls((lstm_state *)args->state);
    return CKPT_OK;
}

extern "C" const ckpt_kernel ckpt_cuda_lstm_cell = {
    .op = "lstm_cell",
    .state_bytes = sizeof(lstm_state),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .choice = choice_of,
    .tune = tune,
    .forward = forward,
    .backward = backward,
};
