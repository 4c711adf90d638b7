/* Stochastic depth. Each access draws the word of its example: ten rounds of integer products beside one FLOP an element.
 * Forward and backward move 2 tensors (3 when backward adds). Bound by memory. */
#include "kernels/cuda/wide.cuh"

enum { STREAM = 0 };

namespace
{
struct drop_path_rule {
    uint32_t layer, threshold; /* kept iff word >= threshold */
    float scale;
    bool adds, evaluating;
};
} // namespace

/* Across an example are `across` accesses. y may be x. A dropped element is 0, also where x is no number. */
template <typename T, int V>
__global__ void __launch_bounds__(ITEM_THREADS) drop_path_apply(int64_t items, const ckpt_cuda_counters *counters,
                                                                drop_path_rule rule, int64_t across, const T *x, T *y)
{
    const ckpt_cuda_counters now = *counters;
    for (int64_t i = first_item(); i < items; i += item_step()) {
        const int64_t example = divide(i, across).whole;
        const uint4 words = philox_block(&now, rule.layer, STREAM, (uint64_t)(example / 4));
        const uint32_t low = example % 2 == 0 ? words.x : words.y, high = example % 2 == 0 ? words.z : words.w;
        const bool keeps = rule.evaluating || (example % 4 < 2 ? low : high) >= rule.threshold;
        wide<float, V> v = load_floats<V>(x + i * V);
        for (int j = 0; j < V; j++) {
            v.at[j] = keeps ? product_of(v.at[j], rule.scale) : 0.0f;
        }
        put_wide<V>(y + i * V, v, rule.adds);
    }
}

template <typename T, int V> static void start(const ckpt_kernel_args *args, const void *x, bool adds, void *y)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t items = ckpt_shape_count(shape) / V;
    const double p = ckpt_node_float(args->node, "p");
    const drop_path_rule rule = {.layer = (uint32_t)args->node->index,
                                 .threshold = (uint32_t)ckpt_philox_threshold(p),
                                 .scale = args->evaluating ? 1.0f : (float)(1.0 / (1.0 - p)),
                                 .adds = adds,
                                 .evaluating = args->evaluating};
    CKPT_LAUNCH_ITEMS(cuda, (drop_path_apply<T, V>), items, cuda->counters, rule, items / shape->dim[0], (const T *)x,
                      (T *)y);
}

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    start<T, V>(args, args->in[0], false, args->out[0]);
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    start<T, V>(args, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0]);
}

/* Packs belong to one example. */
static int64_t example_of(const ckpt_node *node)
{
    return ckpt_shape_count(&node->in[0].shape) / node->in[0].shape.dim[0];
}

extern "C" const ckpt_kernel ckpt_cuda_drop_path = {
    .op = "drop_path",
    .forward = CKPT_WIDE(example_of, start_forward),
    .backward = CKPT_WIDE(example_of, start_backward),
};
