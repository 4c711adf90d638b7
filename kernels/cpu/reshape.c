/* Reshape and flatten that cannot be aliases: a tensor of rank 4 is stored channels last, so its elements must move.
 * The logical order of the elements is the same on both sides. */
#include "kernels/cpu/permute.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* Both sides channels last and of different shapes: computes the position of every element. */
static void copy_between_images(const ckpt_shape *from_shape, const ckpt_shape *to_shape, const float *from, bool adds,
                                float *to, int threads)
{
    const int64_t count = ckpt_shape_count(to_shape);
    int64_t from_stride[CKPT_RANK_MAX], to_stride[CKPT_RANK_MAX];
    ckpt_shape_strides(from_shape, from_stride);
    ckpt_shape_strides(to_shape, to_stride);
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t number = 0; number < count; number++) {
        int64_t source = 0, target = 0, rest = number;
        for (int d = 3; d >= 0; d--) {
            source += rest % from_shape->dim[d] * from_stride[d];
            rest /= from_shape->dim[d];
        }
        rest = number;
        for (int d = 3; d >= 0; d--) {
            target += rest % to_shape->dim[d] * to_stride[d];
            rest /= to_shape->dim[d];
        }
        to[target] = adds ? to[target] + from[source] : from[source];
    }
}

/* One side has rank 4; the other is stored in logical order, which is plain strides over the rank-4 dimensions. */
static void copy_reshaped(const ckpt_shape *from_shape, const ckpt_shape *to_shape, const float *from, bool adds,
                          float *to, int threads)
{
    if (from_shape->rank == 4 && to_shape->rank == 4) {
        copy_between_images(from_shape, to_shape, from, adds, to, threads);
        return;
    }
    const ckpt_shape *const shape = to_shape->rank == 4 ? to_shape : from_shape;
    int64_t plain[CKPT_RANK_MAX], own[CKPT_RANK_MAX], step = 1;
    ckpt_shape_strides(shape, own);
    for (int d = shape->rank - 1; d >= 0; d--) {
        plain[d] = step;
        step *= shape->dim[d];
    }
    const ckpt_walk walk = ckpt_walk_strided(shape->rank, shape->dim, from_shape->rank == 4 ? own : plain,
                                             to_shape->rank == 4 ? own : plain);
    ckpt_permute(&walk, from, adds, to, threads);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_node *const node = args->node;
    copy_reshaped(&node->in[0].shape, &node->out[0].shape, args->in[0], false, args->out[0], node->threads);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_node *const node = args->node;
    copy_reshaped(&node->out[0].shape, &node->in[0].shape, args->grad_out[0], (args->grad_in_adds & 1) != 0,
                  args->grad_in[0], node->threads);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_reshape = {
    .op = "reshape",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_flatten = {
    .op = "flatten",
    .forward = forward,
    .backward = backward,
};
