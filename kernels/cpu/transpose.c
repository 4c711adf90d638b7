/* Permutes dimensions of the logical shape; the strides of both shapes give the positions in memory. */
#include "kernels/cpu/permute.h"
#include "kernels/kernel.h"

static ckpt_permutation describe(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    int64_t x_stride[CKPT_RANK_MAX];
    ckpt_permutation permutation = {.rank = y->rank};
    ckpt_shape_strides(x, x_stride);
    ckpt_shape_strides(y, permutation.to_stride);
    for (int d = 0; d < y->rank; d++) {
        permutation.dim[d] = y->dim[d];
        permutation.from_stride[d] = x_stride[ckpt_node_int_at(node, "perm", d)];
    }
    return permutation;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_permutation permutation = describe(args->node);
    ckpt_permute(&permutation, args->in[0], false, args->out[0], args->node->threads);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_permutation permutation = describe(args->node);
    ckpt_permutation_invert(&permutation);
    ckpt_permute(&permutation, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_transpose = {
    .op = "transpose",
    .forward = forward,
    .backward = backward,
};
