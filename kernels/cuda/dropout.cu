/* Dropout. The mask is drawn from a counter, by the element's position in memory, with the CPU's words, threshold and
 * factor, so it is the CPU's mask. Seed and step come from the device's counters, so a recorded step replays with new
 * ones. The way "mask" keeps it, and backward draws nothing. Moves 2 tensors (3 when backward adds). Four words of Philox take about 80 integer operations, 20 an element:
 * in float32 memory is the bound; in bfloat16, at 4 bytes an element, both take about as long on an H100. */
#include "kernels/cuda/pointwise.cuh"

enum { STREAM = 0 };

namespace
{
struct dropout_rule {
    uint32_t layer, threshold; /* kept iff word >= threshold */
    float scale;
};
} // namespace

/* dropped = the elements of pack i that are kept, times scale, and zero for the others. */
template <typename T>
__device__ inline void dropout_pack(const ckpt_cuda_counters *counters, const dropout_rule &rule, int64_t i,
                                    const pack<T> &x, float dropped[pack<T>::count])
{
    for (int j = 0; j < pack<T>::count; j += 4) {
        const uint64_t block = (uint64_t)(i * pack<T>::count + j) / 4;
        const uint4 words = philox_block(counters, rule.layer, STREAM, block);
        const uint32_t word[4] = {words.x, words.y, words.z, words.w};
        for (int n = 0; n < 4; n++) {
            const float kept = to_float(x.at[j + n]) * rule.scale;
            dropped[j + n] = word[n] >= rule.threshold ? kept : 0.0f;
        }
    }
}

/* Forward makes y from x. Backward makes dx from dy and may add. */
template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS)
    dropout_apply(int64_t packs, const ckpt_cuda_counters *counters, dropout_rule rule, bool adds, const T *x, T *y)
{
    const ckpt_cuda_counters now = *counters;
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> v = load16(x + at), old = adds ? load16(y + at) : pack<T>();
        float dropped[pack<T>::count];
        dropout_pack<T>(&now, rule, i, v, dropped);
        pack<T> result;
        for (int j = 0; j < pack<T>::count; j++) {
            result.at[j] = from_float<T>(adds ? to_float(old.at[j]) + dropped[j] : dropped[j]);
        }
        store16(y + at, result);
    }
}

/* Forward that also keeps the mask: a thread makes a byte of it, of 8 elements. */
template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS) dropout_forward_mask(int64_t bytes, const ckpt_cuda_counters *counters,
                                                                     dropout_rule rule, const T *x, T *y, uint8_t *mask)
{
    const int V = pack<T>::count;
    const ckpt_cuda_counters now = *counters;
    for (int64_t i = first_item(); i < bytes; i += item_step()) {
        const uint4 a = philox_block(&now, rule.layer, STREAM, (uint64_t)(2 * i));
        const uint4 b = philox_block(&now, rule.layer, STREAM, (uint64_t)(2 * i + 1));
        const uint32_t word[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        unsigned int bits = 0;
        for (int j = 0; j < 8; j += V) {
            pack<T> v = load16(x + 8 * i + j);
            for (int n = 0; n < V; n++) {
                const float kept = to_float(v.at[n]) * rule.scale;
                const bool keeps = word[j + n] >= rule.threshold;
                bits |= (keeps ? 1u : 0u) << (j + n);
                v.at[n] = from_float<T>(keeps ? kept : 0.0f);
            }
            store16(y + 8 * i + j, v);
        }
        mask[i] = (uint8_t)bits;
    }
}

template <typename T> __global__ void __launch_bounds__(ITEM_THREADS) dropout_copy(int64_t packs, const T *x, T *y)
{
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        store16(y + i * pack<T>::count, load16(x + i * pack<T>::count));
    }
}

static dropout_rule make_rule(const ckpt_node *node)
{
    const double p = ckpt_node_float(node, "p");
    return {.layer = (uint32_t)node->index,
            .threshold = (uint32_t)ckpt_philox_threshold(p),
            .scale = (float)(1.0 / (1.0 - p))};
}

template <typename T> static void start(const ckpt_kernel_args *args, const void *from, void *to, bool adds)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t packs = packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
    if (!args->evaluating) {
        CKPT_LAUNCH_ITEMS(cuda, dropout_apply<T>, packs, cuda->counters, make_rule(args->node), adds, (const T *)from,
                          (T *)to);
    } else if (from != to) {
        CKPT_LAUNCH_ITEMS(cuda, dropout_copy<T>, packs, (const T *)from, (T *)to);
    }
}

template <typename T> static void start_forward_mask(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    CKPT_LAUNCH_ITEMS(cuda, dropout_forward_mask<T>, mask_bytes(args), cuda->counters, make_rule(args->node),
                      (const T *)args->in[0], (T *)args->out[0], (uint8_t *)args->saved[0]);
}

template <typename T> static void start_backward_mask(const ckpt_kernel_args *args)
{
    start_pointwise_backward_mask<T>(args, make_rule(args->node).scale);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    if (ckpt_way_is(args->way, "mask") && !args->evaluating) {
        CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward_mask, args);
        return ckpt_cuda_launched("dropout", err);
    }
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, args->in[0], args->out[0], false);
    return ckpt_cuda_launched("dropout", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    if (ckpt_way_is(args->way, "mask")) {
        CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward_mask, args);
        return ckpt_cuda_launched("dropout backward", err);
    }
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, args->grad_out[0], args->grad_in[0],
                  (args->grad_in_adds & 1) != 0);
    return ckpt_cuda_launched("dropout backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_dropout = {
    .op = "dropout",
    .forward = forward,
    .backward = backward,
};
