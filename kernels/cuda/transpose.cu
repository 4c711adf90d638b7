/* Dimensions in another order, as written in the model; the strides of both shapes know where things lie. How and what
 * it costs: permute.cuh. */
#include "kernels/cuda/permute.cuh"

/* `back`: the same copy with the two sides exchanged. */
template <typename T> static void start(const ckpt_kernel_args *args, bool back, bool adds, const void *from, void *to)
{
    const ckpt_shape *const x = &args->node->in[0].shape, *const y = &args->node->out[0].shape;
    int64_t x_stride[CKPT_RANK_MAX], turned[CKPT_RANK_MAX], y_stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, x_stride);
    ckpt_shape_strides(y, y_stride);
    for (int d = 0; d < y->rank; d++) {
        turned[d] = x_stride[ckpt_node_int_at(args->node, "perm", d)];
    }
    permute_start<T>((const ckpt_cuda *)args->context, y->rank, y->dim, back ? y_stride : turned,
                     back ? turned : y_stride, adds, from, to);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, false, false, args->in[0], args->out[0]);
    return ckpt_cuda_launched("transpose", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, true, (args->grad_in_adds & 1) != 0, args->grad_out[0],
                  args->grad_in[0]);
    return ckpt_cuda_launched("transpose backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_transpose = {
    .op = "transpose",
    .forward = forward,
    .backward = backward,
};
