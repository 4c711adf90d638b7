/* lstm and gru over sequences. One product by cuBLASLt makes what the inputs contribute to the gates at all times, where
 * the gates are saved; then a time step is one product of the state before, in float32, and one pass over the gates that
 * adds both biases. That product reads the state from a matrix of its own, whose rows have no gaps and whose address is
 * aligned. Backward goes the other way and leaves the gradients of the gates and the states before at all times in
 * workspace: the products of inputs, weights and biases are made once.
 *
 * Forward: 2 B T G (C + H) FLOP of products; backward: twice that. A pass moves, for each of the B x H cells, the gates
 * twice and about 4 values of state: bound by memory, and where B is small by the launch.
 *
 * `CELL` is a type from the op's own file: the number of its gates, `apart` (the gradients of what inputs and state
 * contribute differ), and forward and backward of one cell. */
#ifndef CKPT_KERNELS_CUDA_RECURRENT_CUH
#define CKPT_KERNELS_CUDA_RECURRENT_CUH

#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
enum { X_GATES, H_GATES, DX, DH, DW_X, DW_H, CALLS };
const char *const recurrent_key[CALLS] = {"x", "h", "dx", "dh", "dwx", "dwh"};

struct recurrent_state {
    ckpt_cuda *cuda;
    ckpt_blas_product *call[CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;
    char choice[CKPT_CHOICE_TEXT];
};

/* Places in the workspace: forward hidden (float [B, G]) and h [B, H]; backward dgates and dhidden [B, T, G], one place
 * unless they differ, before [B, T, H], step [B, G], dh and dc (float [B, H]). The products' is behind `own`. */
struct recurrent_shape {
    int64_t B, T, C, H, G;
    bool given, bias, reverse; /* given: h0, and of lstm c0 */
    ckpt_dtype dtype;
    ckpt_bytes hidden, h, forward_own;
    ckpt_bytes dgates, dhidden, before, step, dh, dc, backward_own;
};

ckpt_bytes recurrent_take(ckpt_bytes *own, int64_t count, ckpt_dtype dtype)
{
    const ckpt_bytes at = *own;
    *own += ckpt_round_up(count * ckpt_dtype_bytes(dtype), CKPT_ALIGN);
    return at;
}

recurrent_shape recurrent_describe(const ckpt_node *node)
{
    recurrent_shape q = {};
    q.B = node->in[0].shape.dim[0];
    q.T = node->in[0].shape.dim[1];
    q.C = node->in[0].shape.dim[2];
    q.G = node->param[1].tensor.shape.dim[0];
    q.H = node->param[1].tensor.shape.dim[1];
    q.given = node->in_count > 1;
    q.bias = node->param_count > 2;
    q.reverse = ckpt_node_bool(node, "reverse");
    q.dtype = node->dtype;
    q.hidden = recurrent_take(&q.forward_own, q.B * q.G, CKPT_FLOAT32);
    q.h = recurrent_take(&q.forward_own, q.B * q.H, q.dtype);
    q.dgates = recurrent_take(&q.backward_own, q.B * q.T * q.G, q.dtype);
    q.dhidden = node->out_count == 3 ? q.dgates : recurrent_take(&q.backward_own, q.B * q.T * q.G, q.dtype);
    q.before = recurrent_take(&q.backward_own, q.B * q.T * q.H, q.dtype);
    q.step = recurrent_take(&q.backward_own, q.B * q.G, q.dtype);
    q.dh = recurrent_take(&q.backward_own, q.B * q.H, CKPT_FLOAT32);
    q.dc = recurrent_take(&q.backward_own, q.B * q.H, CKPT_FLOAT32);
    return q;
}

/* The position of step s. */
int64_t recurrent_time(const recurrent_shape &q, int64_t s)
{
    return q.reverse ? q.T - 1 - s : s;
}

void *recurrent_at(const ckpt_kernel_args *args, ckpt_bytes offset)
{
    return (char *)args->workspace + offset;
}

/* ---- products ---- */

ckpt_code recurrent_make(recurrent_state *state, int which, const ckpt_blas_shape &shape, ckpt_bytes limit,
                         const char *choice, ckpt_err *err)
{
    char piece[CKPT_PIECE_TEXT];
    return ckpt_blas_product_create(state->cuda, &shape, limit, ckpt_choice_get(choice, recurrent_key[which], piece),
                                    &state->call[which], err);
}

/* To be called after algorithms have changed: adds up what they use and names them. */
void recurrent_look(recurrent_state *state)
{
    state->forward_bytes = state->backward_bytes = 0;
    state->choice[0] = '\0';
    for (int k = 0; k < CALLS; k++) {
        ckpt_bytes *const most = k <= H_GATES ? &state->forward_bytes : &state->backward_bytes;
        *most = blas_most(*most, state->call[k]);
        if (state->call[k] != NULL) {
            ckpt_choice_add(state->choice, recurrent_key[k], ckpt_blas_product_choice(state->call[k]));
        }
    }
}

ckpt_code recurrent_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                            const char *choice, ckpt_err *err)
{
    recurrent_state *const state = (recurrent_state *)memory;
    const recurrent_shape q = recurrent_describe(node);
    const int64_t B = q.B, C = q.C, H = q.H, G = q.G, rows = q.B * q.T;
    const ckpt_dtype own = q.dtype, wide = CKPT_FLOAT32;
    const ckpt_bytes ahead = blas_rest(forward, q.forward_own), back = blas_rest(backward, q.backward_own);
    const ckpt_blas_shape shape[CALLS] = {blas_of(rows, G, C, false, true, own, own, false, false),
                                          blas_of(B, G, H, false, true, own, wide, false, false),
                                          blas_of(rows, C, G, false, false, own, own, false, false),
                                          blas_of(B, H, G, false, false, own, wide, false, true),
                                          blas_of(G, C, rows, true, false, own, wide, false, false),
                                          blas_of(G, H, rows, true, false, own, wide, false, false)};
    state->cuda = (ckpt_cuda *)context;
    for (int k = 0; k < CALLS; k++) {
        if (k != DX || (node->grad_in & 1) != 0) {
            CKPT_TRY(recurrent_make(state, k, shape[k], k <= H_GATES ? ahead : back, choice, err));
        }
    }
    recurrent_look(state);
    return CKPT_OK;
}

void recurrent_release(void *memory)
{
    for (ckpt_blas_product *const call : ((recurrent_state *)memory)->call) {
        ckpt_blas_product_destroy(call);
    }
}

void recurrent_workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const recurrent_state *const state = (const recurrent_state *)memory;
    const recurrent_shape q = recurrent_describe(node);
    const ckpt_bytes sums = q.bias ? ckpt_gpu_column_sums_workspace(q.B * q.T, q.G) : 0;
    *forward = q.forward_own + state->forward_bytes;
    *backward = q.backward_own + (sums > state->backward_bytes ? sums : state->backward_bytes);
}

const char *recurrent_choice(const void *memory)
{
    return ((const recurrent_state *)memory)->choice;
}

/* What a product reads and writes, of the step that was run last; y NULL: not wanted. */
struct recurrent_operands {
    const void *x, *w;
    void *y;
};

recurrent_operands recurrent_operands_of(const ckpt_kernel_args *args, const recurrent_shape &q, int which)
{
    void *const dgates = recurrent_at(args, q.dgates), *const dhidden = recurrent_at(args, q.dhidden);
    switch (which) {
    case X_GATES: return {args->in[0], ckpt_product_param(args, 0), args->saved[0]};
    case H_GATES: return {recurrent_at(args, q.h), ckpt_product_param(args, 1), recurrent_at(args, q.hidden)};
    case DX: return {dgates, ckpt_product_param(args, 0), args->grad_in[0]};
    case DH: return {recurrent_at(args, q.step), ckpt_product_param(args, 1), recurrent_at(args, q.dh)};
    case DW_X: return {dgates, args->in[0], args->grad_param[0]};
    default: return {dhidden, recurrent_at(args, q.before), args->grad_param[1]};
    }
}

ckpt_code recurrent_product(const ckpt_kernel_args *args, const recurrent_shape &q, int which, const void *x,
                            ckpt_err *err)
{
    const recurrent_operands o = recurrent_operands_of(args, q, which);
    const ckpt_bytes own = which <= H_GATES ? q.forward_own : q.backward_own;
    return o.y == NULL ? CKPT_OK
                       : ckpt_blas_product_run(((const recurrent_state *)args->state)->call[which], x != NULL ? x : o.x,
                                               o.w, o.y, NULL, recurrent_at(args, own), err);
}

/* ---- forward ---- */

/* Of one step; pointers are at its time, `stride` elements from one sequence to the next. NULL stands for zeros. */
template <typename T> struct recurrent_ahead {
    int64_t width, sequence, stride_before;  /* H; T; of h_before and kept_before */
    const float *hidden, *bias_ih, *bias_hh; /* hidden: of the state before, without its bias */
    const T *h_before, *kept_before;
    T *gates, *kept, *y, *h, *last_h, *last_kept; /* the last two: NULL before the last step */
};

/* Of T, or of zeros. */
template <int N, typename T> __device__ inline wide<float, N> recurrent_load(const T *from, int64_t at)
{
    wide<float, N> value = {};
    if (from != NULL) {
        value = load_floats<N>(from + at);
    }
    return value;
}

template <typename CELL, typename T, int N> __global__ void recurrent_forward(int64_t items, recurrent_ahead<T> a)
{
    enum { GATES = CELL::gates };
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient row = divide(item, a.width / N);
        const int64_t k = row.rest * N, cell = row.whole * a.width + k;
        T *const gates = a.gates + row.whole * a.sequence * GATES * a.width + k;
        const int64_t place = row.whole * a.sequence * a.width + k, past = row.whole * a.stride_before + k;
        wide<float, N> x[GATES], s[GATES], kept, h;
        for (int g = 0; g < GATES; g++) {
            x[g] = load_floats<N>(gates + g * a.width);
            s[g] = recurrent_load<N>(a.hidden, row.whole * GATES * a.width + g * a.width + k);
            const wide<float, N> ih = recurrent_load<N>(a.bias_ih, g * a.width + k);
            const wide<float, N> hh = recurrent_load<N>(a.bias_hh, g * a.width + k);
            for (int j = 0; j < N; j++) {
                x[g].at[j] += ih.at[j];
                s[g].at[j] += hh.at[j];
            }
        }
        const wide<float, N> h_before = recurrent_load<N>(a.h_before, past);
        const wide<float, N> kept_before = recurrent_load<N>(a.kept_before, past);
        for (int j = 0; j < N; j++) {
            float in[GATES], state[GATES];
            for (int g = 0; g < GATES; g++) {
                in[g] = x[g].at[j];
                state[g] = s[g].at[j];
            }
            CELL::forward(in, state, h_before.at[j], kept_before.at[j], kept.at[j], h.at[j]);
            for (int g = 0; g < GATES; g++) {
                x[g].at[j] = in[g];
            }
        }
        for (int g = 0; g < GATES; g++) {
            put_wide<N>(gates + g * a.width, x[g], false);
        }
        put_wide<N>(a.kept + place, kept, false);
        put_wide<N>(a.y + place, h, false);
        put_wide<N>(a.h + cell, h, false);
        if (a.last_h != NULL) {
            put_wide<N>(a.last_h + cell, h, false);
        }
        if (a.last_kept != NULL) {
            put_wide<N>(a.last_kept + cell, kept, false);
        }
    }
}

template <typename CELL, typename T, int N>
void recurrent_start_forward(const ckpt_kernel_args *args, const recurrent_shape &q, int64_t s, bool has_hidden)
{
    const int64_t t = recurrent_time(q, s), past = s > 0 ? recurrent_time(q, s - 1) : 0;
    const bool last = s == q.T - 1;
    recurrent_ahead<T> a = {};
    a.width = q.H;
    a.sequence = q.T;
    a.stride_before = s > 0 ? q.T * q.H : q.H;
    a.hidden = has_hidden ? (const float *)recurrent_at(args, q.hidden) : NULL;
    a.bias_ih = q.bias ? args->param[2] : NULL;
    a.bias_hh = q.bias ? args->param[3] : NULL;
    a.gates = (T *)args->saved[0] + t * q.G;
    a.kept = (T *)args->saved[1] + t * q.H;
    a.y = (T *)args->out[0] + t * q.H;
    a.h = (T *)recurrent_at(args, q.h);
    a.last_h = last ? (T *)args->out[1] : NULL;
    a.last_kept = last && args->node->out_count > 2 ? (T *)args->out[2] : NULL;
    a.h_before = s > 0 ? (const T *)args->out[0] + past * q.H : q.given ? (const T *)args->in[1] : NULL;
    a.kept_before = s > 0                      ? (const T *)args->saved[1] + past * q.H
                    : args->node->in_count > 2 ? (const T *)args->in[2]
                                               : NULL;
    CKPT_LAUNCH_ITEMS(cuda_of(args), (recurrent_forward<CELL, T, N>), q.B * q.H / N, a);
}

template <typename CELL>
void recurrent_forward_step(const ckpt_kernel_args *args, const recurrent_shape &q, int64_t s, bool has_hidden)
{
    if (q.dtype == CKPT_BFLOAT16) {
        q.H % 8 == 0 ? recurrent_start_forward<CELL, bf16, 8>(args, q, s, has_hidden)
                     : recurrent_start_forward<CELL, bf16, 1>(args, q, s, has_hidden);
    } else {
        q.H % 4 == 0 ? recurrent_start_forward<CELL, float, 4>(args, q, s, has_hidden)
                     : recurrent_start_forward<CELL, float, 1>(args, q, s, has_hidden);
    }
}

template <typename CELL> ckpt_code recurrent_run_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const recurrent_shape q = recurrent_describe(args->node);
    CKPT_TRY(recurrent_product(args, q, X_GATES, NULL, err));
    for (int64_t s = 0; s < q.T; s++) {
        const bool has_hidden = s > 0 || q.given;
        if (has_hidden) {
            CKPT_TRY(recurrent_product(args, q, H_GATES, s > 0 ? NULL : args->in[1], err));
        }
        recurrent_forward_step<CELL>(args, q, s, has_hidden);
    }
    return ckpt_cuda_launched(args->node->op->name, err);
}

/* ---- backward ---- */

/* Of one step, as above. dh and dc [B, H] carry the gradient of the state to the step before. */
template <typename T> struct recurrent_behind {
    int64_t width, sequence, stride_before;
    const T *gates, *kept, *h_before, *kept_before, *dy;
    float *dh, *dc;
    T *dgates, *dhidden, *step, *before; /* dhidden NULL: as dgates */
};

template <typename CELL, typename T, int N> __global__ void recurrent_backward(int64_t items, recurrent_behind<T> a)
{
    enum { GATES = CELL::gates };
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient row = divide(item, a.width / N);
        const int64_t k = row.rest * N, cell = row.whole * a.width + k;
        const int64_t gate = row.whole * a.sequence * GATES * a.width + k;
        const int64_t place = row.whole * a.sequence * a.width + k, past = row.whole * a.stride_before + k;
        wide<float, N> gates[GATES], dx[GATES], ds[GATES];
        for (int g = 0; g < GATES; g++) {
            gates[g] = load_floats<N>(a.gates + gate + g * a.width);
        }
        const wide<float, N> kept = load_floats<N>(a.kept + place), dy = recurrent_load<N>(a.dy, place);
        const wide<float, N> h_before = recurrent_load<N>(a.h_before, past);
        const wide<float, N> kept_before = recurrent_load<N>(a.kept_before, past);
        wide<float, N> dh = load_wide<N>(a.dh + cell), dc = load_wide<N>(a.dc + cell);
        for (int j = 0; j < N; j++) {
            float own[GATES], x[GATES], s[GATES];
            for (int g = 0; g < GATES; g++) {
                own[g] = gates[g].at[j];
            }
            dh.at[j] =
                CELL::backward(own, kept.at[j], h_before.at[j], kept_before.at[j], dh.at[j] + dy.at[j], dc.at[j], x, s);
            for (int g = 0; g < GATES; g++) {
                dx[g].at[j] = x[g];
                ds[g].at[j] = s[g];
            }
        }
        for (int g = 0; g < GATES; g++) {
            put_wide<N>(a.dgates + gate + g * a.width, dx[g], false);
            put_wide<N>(a.step + row.whole * GATES * a.width + g * a.width + k, ds[g], false);
            if (a.dhidden != NULL) {
                put_wide<N>(a.dhidden + gate + g * a.width, ds[g], false);
            }
        }
        put_wide<N>(a.before + place, h_before, false);
        store_wide<N>(a.dh + cell, dh);
        store_wide<N>(a.dc + cell, dc);
    }
}

template <typename CELL, typename T, int N>
void recurrent_start_backward(const ckpt_kernel_args *args, const recurrent_shape &q, int64_t s)
{
    const int64_t t = recurrent_time(q, s), past = s > 0 ? recurrent_time(q, s - 1) : 0;
    recurrent_behind<T> a = {};
    a.width = q.H;
    a.sequence = q.T;
    a.stride_before = s > 0 ? q.T * q.H : q.H;
    a.gates = (const T *)args->saved[0] + t * q.G;
    a.kept = (const T *)args->saved[1] + t * q.H;
    a.dy = args->grad_out[0] != NULL ? (const T *)args->grad_out[0] + t * q.H : NULL;
    a.h_before = s > 0 ? (const T *)args->out[0] + past * q.H : q.given ? (const T *)args->in[1] : NULL;
    a.kept_before = s > 0                      ? (const T *)args->saved[1] + past * q.H
                    : args->node->in_count > 2 ? (const T *)args->in[2]
                                               : NULL;
    a.dh = (float *)recurrent_at(args, q.dh);
    a.dc = (float *)recurrent_at(args, q.dc);
    a.dgates = (T *)recurrent_at(args, q.dgates) + t * q.G;
    a.dhidden = CELL::apart ? (T *)recurrent_at(args, q.dhidden) + t * q.G : NULL;
    a.step = (T *)recurrent_at(args, q.step);
    a.before = (T *)recurrent_at(args, q.before) + t * q.H;
    CKPT_LAUNCH_ITEMS(cuda_of(args), (recurrent_backward<CELL, T, N>), q.B * q.H / N, a);
}

template <typename CELL> void recurrent_backward_step(const ckpt_kernel_args *args, const recurrent_shape &q, int64_t s)
{
    if (q.dtype == CKPT_BFLOAT16) {
        q.H % 8 == 0 ? recurrent_start_backward<CELL, bf16, 8>(args, q, s)
                     : recurrent_start_backward<CELL, bf16, 1>(args, q, s);
    } else {
        q.H % 4 == 0 ? recurrent_start_backward<CELL, float, 4>(args, q, s)
                     : recurrent_start_backward<CELL, float, 1>(args, q, s);
    }
}

/* The carried gradient starts as the output's, NULL: 0, and ends as the input's. */
template <typename T> __global__ void recurrent_begin(int64_t count, const T *from, float *carry)
{
    for (int64_t i = first_item(); i < count; i += item_step()) {
        carry[i] = from != NULL ? to_float(from[i]) : 0.0f;
    }
}
template <typename T> __global__ void recurrent_end(int64_t count, const float *carry, T *to)
{
    for (int64_t i = first_item(); i < count; i += item_step()) {
        to[i] = from_float<T>(carry[i]);
    }
}

/* Output k's gradient to a carry, and from there to input k's. */
template <typename T> void recurrent_start_carry(const ckpt_kernel_args *args, int64_t count, int k, ckpt_bytes carry)
{
    const T *const from = k < args->node->out_count ? (const T *)args->grad_out[k] : NULL;
    CKPT_LAUNCH_ITEMS(cuda_of(args), recurrent_begin<T>, count, from, (float *)recurrent_at(args, carry));
}
template <typename T> void recurrent_end_carry(const ckpt_kernel_args *args, int64_t count, int k, ckpt_bytes carry)
{
    if (k < args->node->in_count && args->grad_in[k] != NULL) {
        CKPT_LAUNCH_ITEMS(cuda_of(args), recurrent_end<T>, count, (const float *)recurrent_at(args, carry),
                          (T *)args->grad_in[k]);
    }
}

ckpt_code recurrent_sums(const ckpt_kernel_args *args, const recurrent_shape &q, ckpt_bytes from, int k, ckpt_err *err)
{
    return ckpt_cuda_column_sums((ckpt_cuda *)args->context, q.dtype, q.B * q.T, q.G, recurrent_at(args, from),
                                 args->grad_param[k], false, recurrent_at(args, q.backward_own), err);
}

template <typename CELL> ckpt_code recurrent_run_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const recurrent_shape q = recurrent_describe(args->node);
    CKPT_BY_DTYPE(q.dtype, recurrent_start_carry, args, q.B * q.H, 1, q.dh);
    CKPT_BY_DTYPE(q.dtype, recurrent_start_carry, args, q.B * q.H, 2, q.dc);
    for (int64_t s = q.T - 1; s >= 0; s--) {
        recurrent_backward_step<CELL>(args, q, s);
        if (s > 0 || q.given) {
            CKPT_TRY(recurrent_product(args, q, DH, NULL, err));
        }
    }
    CKPT_BY_DTYPE(q.dtype, recurrent_end_carry, args, q.B * q.H, 1, q.dh);
    CKPT_BY_DTYPE(q.dtype, recurrent_end_carry, args, q.B * q.H, 2, q.dc);
    CKPT_TRY(ckpt_cuda_launched(args->node->op->name, err));
    CKPT_TRY(recurrent_product(args, q, DX, NULL, err));
    CKPT_TRY(recurrent_product(args, q, DW_X, NULL, err));
    CKPT_TRY(recurrent_product(args, q, DW_H, NULL, err));
    if (q.bias) {
        CKPT_TRY(recurrent_sums(args, q, q.dgates, 2, err));
        CKPT_TRY(recurrent_sums(args, q, q.dhidden, 3, err));
    }
    return CKPT_OK;
}

/* A whole run comes first, so that products get operands as in a run. */
template <typename CELL>
ckpt_code recurrent_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    recurrent_state *const state = (recurrent_state *)args->state;
    const recurrent_shape q = recurrent_describe(args->node);
    const ckpt_bytes own = backward ? q.backward_own : q.forward_own;
    CKPT_TRY(backward ? recurrent_run_backward<CELL>(args, err) : recurrent_run_forward<CELL>(args, err));
    for (int k = backward ? DX : X_GATES; k < (backward ? CALLS : DX); k++) {
        const recurrent_operands o = recurrent_operands_of(args, q, k);
        ckpt_ns took = 0;
        if (state->call[k] != NULL && o.y != NULL) {
            CKPT_TRY(ckpt_blas_product_tune(state->call[k], o.x, o.w, o.y, NULL, recurrent_at(args, own),
                                            args->workspace_bytes - own, tuning, &took, err));
        }
    }
    recurrent_look(state);
    return CKPT_OK;
}
} // namespace

#endif
