/* slice, pad, roll, forward and backward: copies. How and what they cost: permute.cuh. Integers go as floats: bits. */
#include "kernels/cuda/permute.cuh"

typedef ckpt_walk move_walk(const ckpt_node *node, bool back);

template <typename T, move_walk *WALK> static void start_forward(const ckpt_kernel_args *args)
{
    permute_forward<T>(args, WALK(args->node, false));
}

template <typename T, move_walk *WALK> static void start_backward(const ckpt_kernel_args *args)
{
    permute_backward<T>(args, WALK(args->node, true));
}

#define MOVE(start, walk) run_typed<start<float, walk>, start<bf16, walk>>

extern "C" const ckpt_kernel ckpt_cuda_slice = {
    .op = "slice",
    .forward = MOVE(start_forward, ckpt_walk_slice),
    .backward = MOVE(start_backward, ckpt_walk_slice),
};

extern "C" const ckpt_kernel ckpt_cuda_pad = {
    .op = "pad",
    .forward = MOVE(start_forward, ckpt_walk_pad),
    .backward = MOVE(start_backward, ckpt_walk_pad),
};

extern "C" const ckpt_kernel ckpt_cuda_roll = {
    .op = "roll",
    .forward = MOVE(start_forward, ckpt_walk_roll),
    .backward = MOVE(start_backward, ckpt_walk_roll),
};
