/* AdamW with moments of 8 bits: a block of threads has a block of values, one each, and is done with it in one pass: 16
 * bytes a parameter, 18 with the bfloat16 copy, about 80 operations. The map and the cells are those of
 * kernels/cpu/adamw8bit.c, with products that are never fused, so that the same moments give the same bytes. */
#include "kernels/cuda/adam.cuh"

extern "C" {
#include "ops/whole_update.h"
}

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, BLOCK = CKPT_EIGHT_BIT_BLOCK };

namespace
{
struct eight_bit_moment {
    uint8_t *byte;
    float *scale;
};

struct eight_bit_piece {
    const ckpt_cuda_counters *counters;
    const float *factor; /* of gradients; NULL: 1 */
    const float *grad;
    float *param;
    bf16 *param16; /* NULL: a float32 model */
    int64_t count;
    int group;
    bool decay;
    eight_bit_moment mean, square;
};
} // namespace

__device__ inline float eight_bit_decade(int e)
{
    const float decade[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1e0f};
    return decade[e];
}

/* ckpt_eight_bit_value */
template <bool SIGNED> __device__ inline float eight_bit_value(int byte)
{
    const int top = SIGNED ? 128 : 255;
    if (byte == 0 || byte == top) {
        return byte == 0 ? 0.0f : 1.0f;
    }
    int cells = SIGNED ? 1 : 2, k = (byte < top ? byte : byte - top) - 1, e = 0;
    for (; k >= cells; cells *= 2, e++) {
        k -= cells;
    }
    const float middle = product_of(0.9f, ((float)k + 0.5f) / (float)cells);
    const float value = product_of(eight_bit_decade(e), 0.1f + middle);
    return byte < top ? value : -value;
}

/* The byte of a share 0 .. 1 of the scale. */
template <bool SIGNED> __device__ inline int eight_bit_of(float share)
{
    const float tenfold[] = {1e6f, 1e5f, 1e4f, 1e3f, 1e2f, 1e1f, 1e0f};
    const int top = SIGNED ? 128 : 255;
    if (!(share >= 1e-7f)) {
        return 0;
    }
    if (share >= (1.0f + eight_bit_value<SIGNED>(top - 1)) / 2) {
        return top;
    }
    int e = 0;
    for (int i = 0; i < 6; i++) {
        e += share >= eight_bit_decade(i);
    }
    const int cells = (SIGNED ? 1 : 2) << e;
    const float at = product_of(product_of(product_of(share, tenfold[e]) - 0.1f, 1.0f / 0.9f), (float)cells);
    const int k = at > 0.0f ? (int)at : 0;
    return 1 + cells - (SIGNED ? 1 : 2) + (k < cells ? k : cells - 1);
}

__global__ void __launch_bounds__(BLOCK) eight_bit_step(eight_bit_piece piece, adam_rule<0, false> rule)
{
    __shared__ float shared[32];
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    const bool active = i < piece.count;
    float state[2] = {0.0f, 0.0f};
    if (active) {
        const float scale = piece.factor != NULL ? *piece.factor : 1.0f;
        float w = piece.param[i];
        state[0] = product_of(eight_bit_value<true>(piece.mean.byte[i]), piece.mean.scale[blockIdx.x]);
        state[1] = product_of(eight_bit_value<false>(piece.square.byte[i]), piece.square.scale[blockIdx.x]);
        rule(piece.counters->numbers.of[piece.group], piece.decay, product_of(piece.grad[i], scale), &w, state);
        piece.param[i] = w;
        if (piece.param16 != NULL) {
            piece.param16[i] = from_float<bf16>(w);
        }
    }
    const float size = fabsf(state[0]);
    const float most_mean = block_max(size, shared), most_square = block_max(state[1], shared);
    if (active) {
        const int byte = eight_bit_of<true>(product_of(size, most_mean > 0.0f ? 1.0f / most_mean : 0.0f));
        piece.mean.byte[i] = (uint8_t)(state[0] < 0.0f && byte > 0 ? (byte < 128 ? byte : 127) + 128 : byte);
        piece.square.byte[i] =
            (uint8_t)eight_bit_of<false>(product_of(state[1], most_square > 0.0f ? 1.0f / most_square : 0.0f));
    }
    if (threadIdx.x == 0) {
        piece.mean.scale[blockIdx.x] = most_mean;
        piece.square.scale[blockIdx.x] = most_square;
    }
}

static eight_bit_moment moment_of(const ckpt_update_args *args, int slot)
{
    uint8_t *const start = (uint8_t *)args->slot[slot];
    return {start, (float *)(void *)(start + ckpt_eight_bit_scale(args->count))};
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    const double *const value = args->hyper;
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const adam_rule<0, false> rule = adam_rule_of<0, false>(value[BETA1], value[BETA2], value[EPS]);
    for (int i = 0; i < count; i++) {
        int few = i; /* a run of parameters that keep floats is one launch */
        while (few < count && !ckpt_eight_bit_takes(args[few].count)) {
            few++;
        }
        if (few > i) {
            update_all(args + i, few - i, rule);
            i = few - 1;
            continue;
        }
        const eight_bit_piece piece = {.counters = cuda->counters,
                                       .factor = args[i].scale,
                                       .grad = args[i].grad,
                                       .param = args[i].param,
                                       .param16 = (bf16 *)args[i].param16,
                                       .count = args[i].count,
                                       .group = args[i].group,
                                       .decay = args[i].decay,
                                       .mean = moment_of(&args[i], 0),
                                       .square = moment_of(&args[i], 1)};
        CKPT_LAUNCH(cuda, eight_bit_step, (unsigned)ckpt_eight_bit_blocks(piece.count), BLOCK, 0, piece, rule);
    }
    return ckpt_cuda_launched("adamw8bit", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adamw8bit = {
    .optimizer = "adamw8bit",
    .update = update,
};
