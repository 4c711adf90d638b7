/* slice, pad, roll, tile, forward and backward: copies (kernels/walk.h), but for the backward of tile, a sum. */
#include "kernels/cpu/permute.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_walk walk)
{
    ckpt_permute(&walk, args->in[0], false, args->out[0], args->node->threads);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_walk walk)
{
    ckpt_permute(&walk, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

#define MOVE(name)                                                                                                     \
    static ckpt_code name##_forward(const ckpt_kernel_args *args, ckpt_err *err)                                       \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return forward(args, ckpt_walk_##name(args->node, false));                                                     \
    }                                                                                                                  \
    static ckpt_code name##_backward(const ckpt_kernel_args *args, ckpt_err *err)                                      \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return backward(args, ckpt_walk_##name(args->node, true));                                                     \
    }
MOVE(slice)
MOVE(pad)
MOVE(roll)

static ckpt_code tile_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return forward(args, ckpt_walk_tile(args->node));
}

static ckpt_code tile_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_reduction r = ckpt_reduction_of_tile(args->node);
    ckpt_reduce_sum(&r, args->grad_out[0], 1, (args->grad_in_adds & 1) != 0, args->grad_in[0], args->workspace,
                    args->node->threads);
    return CKPT_OK;
}

static void tile_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward_bytes,
                           ckpt_bytes *backward_bytes)
{
    (void)state;
    *forward_bytes = node->forward_workspace_bytes;
    *backward_bytes = node->backward_workspace_bytes;
}

const ckpt_kernel ckpt_cpu_slice = {
    .op = "slice",
    .forward = slice_forward,
    .backward = slice_backward,
};

const ckpt_kernel ckpt_cpu_pad = {
    .op = "pad",
    .forward = pad_forward,
    .backward = pad_backward,
};

const ckpt_kernel ckpt_cpu_roll = {
    .op = "roll",
    .forward = roll_forward,
    .backward = roll_backward,
};

const ckpt_kernel ckpt_cpu_tile = {
    .op = "tile",
    .workspace = tile_workspace,
    .forward = tile_forward,
    .backward = tile_backward,
};
