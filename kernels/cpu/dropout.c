/* Dropout. The mask comes from a counter, by the element's position in memory. Backward and a recomputation therefore
 * draw the same mask, and nothing is stored, unless the way "mask" does. An element is kept iff uniform > p, tested on the integer word. */
#include <string.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/philox.h"

enum { STREAM = 0, TILE = 1024 };

typedef struct keep_rule {
    uint32_t threshold; /* kept iff word >= threshold */
    float scale;
} keep_rule;

static keep_rule make_rule(const ckpt_node *node)
{
    const double p = ckpt_node_float(node, "p");
    return (keep_rule){(uint32_t)ckpt_philox_threshold(p), (float)(1.0 / (1.0 - p))};
}

static void draw(const ckpt_kernel_args *args, int64_t first, int64_t n, uint32_t *words)
{
    ckpt_vector_philox(args->seed, args->step, (uint32_t)args->node->index, STREAM, (uint64_t)(args->first + first), n,
                       words);
}

/* A bit for each of n words, at most TILE, that keep their element. */
static void pack(keep_rule rule, int64_t n, const uint32_t *words, uint32_t *mask)
{
    uint8_t keep[TILE];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        keep[i] = words[i] >= rule.threshold;
    }
    ckpt_pack_mask(n, keep, mask);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), tiles = (count + TILE - 1) / TILE;
    const float *const x = args->in[0];
    float *const y = args->out[0];
    const keep_rule rule = make_rule(args->node);
    uint32_t *const mask = ckpt_way_is(args->way, "mask") ? args->saved[0] : NULL;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE, n = count - start < TILE ? count - start : TILE;
        if (args->evaluating) {
            memmove(y + start, x + start, (size_t)n * sizeof *y);
            continue;
        }
        uint32_t words[TILE];
        draw(args, start, n, words);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float kept = x[start + i] * rule.scale;
            y[start + i] = words[i] >= rule.threshold ? kept : 0.0f;
        }
        if (mask != NULL) {
            pack(rule, n, words, mask + start / 32);
        }
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (ckpt_way_is(args->way, "mask")) {
        ckpt_masked_gradient(false, args, args->saved[0], make_rule(args->node).scale);
        return CKPT_OK;
    }
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), tiles = (count + TILE - 1) / TILE;
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
    const keep_rule rule = make_rule(args->node);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE, n = count - start < TILE ? count - start : TILE;
        uint32_t words[TILE];
        draw(args, start, n, words);
        if (adds) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                const float kept = dy[start + i] * rule.scale;
                dx[start + i] += words[i] >= rule.threshold ? kept : 0.0f;
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                const float kept = dy[start + i] * rule.scale;
                dx[start + i] = words[i] >= rule.threshold ? kept : 0.0f;
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_dropout = {
    .op = "dropout",
    .forward = forward,
    .backward = backward,
};
