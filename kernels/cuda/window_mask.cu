/* Which tokens of a shifted window may see each other: those of the same part of the image. Four bytes written for some
 * ten operations: bound by memory. */
#include "kernels/cuda/device.cuh"

struct window_shape {
    int64_t size[2], window, shift[2]; /* down and across */
};

/* The part in which a token lies after the roll, of up to three in each direction. */
__device__ inline int window_part(const window_shape &s, int64_t group, int64_t token)
{
    const int64_t across = s.size[1] / s.window, w = s.window;
    const int64_t at[2] = {group / across * w + token / w, group % across * w + token % w};
    int part = 0;
    for (int d = 0; d < 2; d++) {
        part = 3 * part + (at[d] < s.size[d] - w ? 0 : at[d] < s.size[d] - s.shift[d] ? 1 : 2);
    }
    return part;
}

__global__ void window_forward(int64_t items, window_shape s, int32_t *y)
{
    const int64_t tokens = s.window * s.window;
    for (int64_t i = first_item(); i < items; i += item_step()) {
        const int64_t group = i / (tokens * tokens);
        y[i] = window_part(s, group, i / tokens % tokens) == window_part(s, group, i % tokens) ? 1 : 0;
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    window_shape s = {};
    s.size[0] = ckpt_node_int(node, "height");
    s.size[1] = ckpt_node_int(node, "width");
    s.window = ckpt_node_int(node, "window");
    s.shift[0] = ckpt_node_int_at(node, "shift", 0);
    s.shift[1] = ckpt_node_int_at(node, "shift", 1);
    CKPT_LAUNCH_ITEMS(cuda_of(args), window_forward, ckpt_shape_count(&node->out[0].shape), s, (int32_t *)args->out[0]);
    return ckpt_cuda_launched("window_mask", err);
}

extern "C" const ckpt_kernel ckpt_cuda_window_mask = {
    .op = "window_mask",
    .forward = forward,
};
