/* Attention on a GPU: who computes it, cuDNN or own kernels; which of these; and delta = rowsum(dO o), which backward
 * needs first (2 tensors read for 2 flop an element: bound by memory). Own kernels make no T x T matrix; their
 * workspace is delta, float32 [B, heads, T].
 *
 * Forward and backward of a layer are the same side's. Without a choice that was measured (ckpt-profile) it is cuDNN on
 * compute capability 9.0, where its kernels use warp-group products and these do not, and own kernels elsewhere: on 8.x
 * and, for the reproducible backward, on 10.0 cuDNN's heuristics have kernels of the same kind as these (mma.sync,
 * sm_80 in their names), and dS in memory on top. CKPT_ATTENTION=own or cudnn says otherwise. */
#include "kernels/cuda/attention.cuh"

#include <cstdlib>

extern "C" {
#include "kernels/cuda/cudnn_attention.h"
}

namespace
{

enum { THREADS = 256, GROUP = 8 /* lanes per row of a head */ };

template <typename E> __global__ void attention_delta(attention_call c)
{
    const int64_t item = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / GROUP; /* (b T + i) heads + h */
    const int lane = (int)threadIdx.x % GROUP;
    const int64_t row = item / c.heads, h = item % c.heads, at = row * c.C + h * c.D;
    const bool inside = row < c.B * c.T;
    const E *const o = (const E *)c.o + at, *const dO = (const E *)c.dO + at;
    float sum = 0;
    if (inside && c.D % pack<E>::count == 0) {
        for (int64_t d = lane * pack<E>::count; d < c.D; d += GROUP * pack<E>::count) {
            const pack<E> a = load16(o + d), b = load16(dO + d);
            for (int i = 0; i < pack<E>::count; i++) {
                sum += to_float(a.at[i]) * to_float(b.at[i]);
            }
        }
    } else if (inside) {
        for (int64_t d = lane; d < c.D; d += GROUP) {
            sum += to_float(o[d]) * to_float(dO[d]);
        }
    }
    for (int step = GROUP / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    if (inside && lane == 0) {
        c.delta[(row / c.T * c.heads + h) * c.T + row % c.T] = sum;
    }
}

template <typename E> void start_delta(const ckpt_cuda *cuda, const attention_call *call)
{
    const int64_t blocks = (call->B * call->T * call->heads * GROUP + THREADS - 1) / THREADS;
    CKPT_LAUNCH(cuda, attention_delta<E>, (unsigned)blocks, THREADS, 0, *call);
}

/* The three side by side in one tensor, or each in its own. */
void *third(void *fused, void *own, const ckpt_node *node, int number)
{
    const int64_t C = node->out[0].shape.dim[2];
    if (node->in_count == 3 || fused == NULL) {
        return own;
    }
    return (unsigned char *)fused + number * C * ckpt_dtype_bytes(node->in[0].dtype);
}

attention_call open_call(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    const ckpt_shape *const y = &node->out[0].shape;
    const bool fused = node->in_count == 1;
    const double drop = args->evaluating ? 0 : ckpt_node_float(node, "dropout");
    attention_call c = {};
    c.B = y->dim[0];
    c.T = y->dim[1];
    c.C = y->dim[2];
    c.heads = ckpt_node_int(node, "heads");
    c.D = c.C / c.heads;
    c.in_row = fused ? 3 * c.C : c.C;
    c.causal = ckpt_node_bool(node, "causal");
    c.drops = drop > 0;
    c.scale = (float)(1 / sqrt((double)c.D));
    c.log2_scale = (float)(1.4426950408889634 / sqrt((double)c.D));
    c.keep = (float)(1 / (1 - drop));
    c.threshold = drop > 0 ? (uint32_t)ckpt_philox_threshold(drop) : 0;
    c.layer = (uint32_t)node->index;
    c.counters = ((const ckpt_cuda *)args->context)->counters;
    c.q = args->in[0];
    c.k = third((void *)args->in[0], fused ? NULL : (void *)args->in[1], node, 1);
    c.v = third((void *)args->in[0], fused ? NULL : (void *)args->in[2], node, 2);
    c.o = args->out[0];
    c.lse = (float *)args->saved[0];
    return c;
}

/* Do rows come in 16 bytes, and does a head fit the registers? */
bool is_tiled(const attention_call *call, ckpt_dtype dtype)
{
    return call->D <= 128 && call->D * ckpt_dtype_bytes(dtype) % 16 == 0;
}

/* ------------------------------------------------------------------------------------------------- cuDNN */

struct attention_state {
    const ckpt_cudnn_attention *forward, *backward; /* NULL: own kernels; backward also where no gradient is wanted */
    int64_t at_once;                                /* heads of batch * heads that backward takes at once */
    char choice[160];
    char remark[sizeof(((ckpt_err *)0)->msg)];
};

ckpt_bytes delta_bytes(int64_t queries)
{
    return ckpt_round_up(4 * queries, 256);
}

ckpt_bytes library_bytes(const attention_state *state, int64_t tokens)
{
    return state->backward == NULL
               ? 0
               : delta_bytes(state->at_once * tokens) + ckpt_cudnn_attention_workspace(state->backward);
}

ckpt_code get_library(attention_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_err *err)
{
    const ckpt_shape *const y = &node->out[0].shape;
    ckpt_cudnn_attention_shape s = {};
    s.batch = y->dim[0];
    s.heads = ckpt_node_int(node, "heads");
    s.tokens = y->dim[1];
    s.size = y->dim[2] / s.heads;
    s.in_row = node->in[0].shape.dim[2];
    s.out_row = y->dim[2];
    s.causal = ckpt_node_bool(node, "causal");
    CKPT_TRY(ckpt_cudnn_attention_get(cuda, &s, &state->forward, err));
    state->at_once = ckpt_gpu_attention_heads(s.batch, s.heads, s.tokens);
    s.batch = state->at_once > s.heads ? state->at_once / s.heads : 1;
    s.heads = state->at_once > s.heads ? s.heads : state->at_once;
    s.backward = true;
    return node->grad_in == 0 ? CKPT_OK : ckpt_cudnn_attention_get(cuda, &s, &state->backward, err);
}

/* cuDNN writes all three gradients. */
bool wants_all_or_none(const ckpt_node *node)
{
    const uint64_t all = ((uint64_t)1 << node->in_count) - 1;
    return node->grad_in == 0 || node->grad_in == all;
}

/* CKPT_DEVICE: cuDNN cannot, or not in so much workspace; `err` says why. */
ckpt_code try_library(attention_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                      ckpt_bytes backward, ckpt_err *err)
{
    if (!ckpt_gpu_attention_library(node) || !wants_all_or_none(node)) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "cuDNN is for bfloat16 without dropout, heads of 8, 16, ... 128, and all "
                         "gradients wanted or none");
    }
    CKPT_TRY(get_library(state, cuda, node, err));
    const ckpt_bytes first = ckpt_cudnn_attention_workspace(state->forward);
    const ckpt_bytes second = library_bytes(state, node->out[0].shape.dim[1]);
    if ((forward >= 0 && first > forward) || (backward >= 0 && second > backward)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "cuDNN wants %lld and %lld bytes of workspace, %lld and %lld are planned",
                         (long long)first, (long long)second, (long long)forward, (long long)backward);
    }
    snprintf(
        state->choice, sizeof state->choice, "cudnn %s, %s, %lld heads", ckpt_cudnn_attention_engine(state->forward),
        state->backward != NULL ? ckpt_cudnn_attention_engine(state->backward) : "none", (long long)state->at_once);
    return CKPT_OK;
}

ckpt_code prefers_library(const ckpt_cuda *cuda, const ckpt_node *node, bool *library, ckpt_err *err)
{
    const char *const asked = getenv("CKPT_ATTENTION");
    *library = asked != NULL ? strcmp(asked, "cudnn") == 0 : cuda->capability == 90 && ckpt_gpu_attention_library(node);
    if (asked != NULL && !*library && strcmp(asked, "own") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "CKPT_ATTENTION is \"%.40s\", wanted own or cudnn", asked);
    }
    return CKPT_OK;
}

ckpt_code fill_state(attention_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                     ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    ckpt_err refusal = {};
    bool library = choice != NULL && strcmp(choice, "own") != 0;
    if (choice == NULL) {
        CKPT_TRY(prefers_library(cuda, node, &library, err));
    }
    if (library) {
        const ckpt_code code = try_library(state, cuda, node, forward, backward, &refusal);
        if (code == CKPT_OK) {
            return CKPT_OK;
        }
        if (code == CKPT_NO_MEMORY || choice != NULL) {
            return CKPT_FAIL(err, code, "%s", refusal.msg);
        }
        snprintf(state->remark, sizeof state->remark, "own kernels: %.480s", refusal.msg);
    }
    state->forward = state->backward = NULL;
    snprintf(state->choice, sizeof state->choice, "own");
    return CKPT_OK;
}

void release(void *state)
{
    ckpt_memory_put(state);
}

ckpt_code prepare(void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward, const char *choice,
                  void **state, ckpt_err *err)
{
    attention_state *const made = (attention_state *)ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for layer %s", sizeof *made, node->name);
    }
    const ckpt_code code = fill_state(made, (ckpt_cuda *)context, node, forward, backward, choice, err);
    if (code != CKPT_OK) {
        release(made);
        return code;
    }
    *state = made;
    return CKPT_OK;
}

const char *remark(const void *state)
{
    return ((const attention_state *)state)->remark;
}

const char *choice(const void *state)
{
    return ((const attention_state *)state)->choice;
}

/* Head h of sequence b and what follows it. */
ckpt_cudnn_attention_tensors tensors_from(const attention_call *c, int64_t b, int64_t h)
{
    const int64_t in = 2 * (b * c->T * c->in_row + h * c->D), out = 2 * (b * c->T * c->C + h * c->D);
    ckpt_cudnn_attention_tensors t = {};
    t.q = (const char *)c->q + in;
    t.k = (const char *)c->k + in;
    t.v = (const char *)c->v + in;
    t.o = (char *)c->o + out;
    t.lse = c->lse + (b * c->heads + h) * c->T;
    if (c->dO != NULL) {
        t.dO = (const char *)c->dO + out;
        t.dq = (char *)c->dq + in;
        t.dk = (char *)c->dk + in;
        t.dv = (char *)c->dv + in;
        t.delta = c->delta;
    }
    return t;
}

ckpt_code library_backward(const attention_state *state, const attention_call *c, void *workspace, ckpt_err *err)
{
    char *const rest = (char *)workspace + delta_bytes(state->at_once * c->T);
    for (int64_t first = 0; first < c->B * c->heads; first += state->at_once) {
        const ckpt_cudnn_attention_tensors t = tensors_from(c, first / c->heads, first % c->heads);
        CKPT_TRY(ckpt_cudnn_attention_run(state->backward, &t, rest, err));
    }
    return CKPT_OK;
}

/* ----------------------------------------------------------------------------------------------- directions */

ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_dtype dtype = args->node->in[0].dtype;
    const attention_call call = open_call(args);
    const attention_state *const state = (const attention_state *)args->state;
    if (state->forward != NULL) {
        const ckpt_cudnn_attention_tensors all = tensors_from(&call, 0, 0);
        return ckpt_cudnn_attention_run(state->forward, &all, args->workspace, err);
    }
    if (!is_tiled(&call, dtype) || !ckpt_attention_forward(cuda, dtype, &call)) {
        ckpt_attention_plain_forward(cuda, dtype, &call);
    }
    return ckpt_cuda_launched("attention", err);
}

ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_node *const node = args->node;
    const ckpt_dtype dtype = node->in[0].dtype;
    const bool fused = node->in_count == 1;
    attention_call call = open_call(args);
    call.dO = args->grad_out[0];
    call.dq = args->grad_in[0];
    call.dk = third(call.dq, fused ? NULL : args->grad_in[1], node, 1);
    call.dv = third(call.dq, fused ? NULL : args->grad_in[2], node, 2);
    call.delta = (float *)args->workspace;
    const attention_state *const state = (const attention_state *)args->state;
    if (state->backward != NULL) {
        return library_backward(state, &call, args->workspace, err);
    }
    CKPT_BY_DTYPE(dtype, start_delta, cuda, &call);

    /* What the tiled kernels do not take is left to the plain ones. */
    const bool tiled = is_tiled(&call, dtype);
    attention_call rest = call;
    if (tiled && (call.dk != NULL || call.dv != NULL) && ckpt_attention_key_gradients(cuda, dtype, &call)) {
        rest.dk = rest.dv = NULL;
    }
    if (tiled && call.dq != NULL && ckpt_attention_query_gradients(cuda, dtype, &call)) {
        rest.dq = NULL;
    }
    ckpt_attention_plain_backward(cuda, dtype, &rest);
    return ckpt_cuda_launched("attention backward", err);
}

void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const attention_state *const made = (const attention_state *)state;
    const ckpt_shape *const y = &node->out[0].shape;
    *forward = made->forward != NULL ? ckpt_cudnn_attention_workspace(made->forward) : 0;
    *backward = made->forward != NULL ? library_bytes(made, y->dim[1])
                                      : delta_bytes(y->dim[0] * ckpt_node_int(node, "heads") * y->dim[1]);
}

} // namespace

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_attention;
const ckpt_kernel ckpt_cuda_attention = {
    .op = "attention",
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .remark = remark,
    .choice = choice,
    .forward = forward,
    .backward = backward,
};
