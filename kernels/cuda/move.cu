/* slice, pad, roll, tile, forward and backward: copies. How and what they cost: permute.cuh. Integers go as floats: bits.
 * The backward of tile is a sum: reduce.cuh. */
#include "kernels/cuda/permute.cuh"
#include "kernels/cuda/reduce.cuh"

typedef ckpt_walk move_walk(const ckpt_node *node, bool back);

template <typename T, move_walk *WALK> static void start_forward(const ckpt_kernel_args *args)
{
    permute_forward<T>(args, WALK(args->node, false));
}

template <typename T, move_walk *WALK> static void start_backward(const ckpt_kernel_args *args)
{
    permute_backward<T>(args, WALK(args->node, true));
}

template <typename T> static void start_tile(const ckpt_kernel_args *args)
{
    permute_forward<T>(args, ckpt_walk_tile(args->node));
}

template <typename T> static void start_tile_backward(const ckpt_kernel_args *args)
{
    const ckpt_reduction r = ckpt_reduction_of_tile(args->node);
    reduce_to<T, reduce_sum> to = {};
    to.y = (T *)args->grad_in[0];
    to.divisor = 1;
    to.adds = (args->grad_in_adds & 1) != 0;
    reduce_start<T, reduce_sum>(cuda_of(args), &r, args->grad_out[0], args->workspace, to);
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

extern "C" const ckpt_kernel ckpt_cuda_tile = {
    .op = "tile",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_tile),
    .backward = CKPT_TYPED(start_tile_backward),
};
