/* Attention on a GPU: which kernels a call goes to, and delta = rowsum(dO o), which backward needs first (2 tensors
 * read for 2 flop an element: bound by memory). No T x T matrix exists; backward's workspace is delta, float32 [B,
 * heads, T]. */
#include "kernels/cuda/attention.cuh"

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

ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_dtype dtype = args->node->in[0].dtype;
    const attention_call call = open_call(args);
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
    (void)state;
    *forward = *backward = 0;
    node->op->gpu_workspace(node, forward, backward);
}

} // namespace

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_attention;
const ckpt_kernel ckpt_cuda_attention = {
    .op = "attention",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
