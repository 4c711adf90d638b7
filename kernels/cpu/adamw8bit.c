/* AdamW with moments of 8 bits: a block of 256 values is read, updated in float and written with the scales that it has
 * then, so that all is one pass: 16 bytes a parameter. A share of the scale goes to the cell it lies in; the map has 1, but
 * not -1. */
#include <math.h>

#include "kernels/cpu/adam_step.h"
#include "kernels/cpu/update.h"
#include "kernels/cpu/vector.h"
#include "ops/whole_update.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, BLOCK = CKPT_EIGHT_BIT_BLOCK };

/* The byte of a share 0 .. 1 of the scale, without a branch. Its decade e begins at 10^(e - 7). */
static inline int byte_of(float share, int first_cells, int top, float last)
{
    static const float tenfold[] = {1e6f, 1e5f, 1e4f, 1e3f, 1e2f, 1e1f, 1e0f};
    const int e =
        (share >= 1e-6f) + (share >= 1e-5f) + (share >= 1e-4f) + (share >= 1e-3f) + (share >= 1e-2f) + (share >= 1e-1f);
    const int cells = first_cells << e;
    const float most = (float)(cells - 1);
    const float at = (share * tenfold[e] - 0.1f) * (1.0f / 0.9f) * (float)cells;
    const float below = at < most ? at : most, within = below > 0.0f ? below : 0.0f;
    const int byte = 1 + cells - first_cells + (int)within, low = share >= 1e-7f ? byte : 0;
    return share >= last ? top : low;
}

/* Both maps, and from where on a share is 1: half-way from the last cell's middle. */
typedef struct maps {
    float mean[256], square[256], mean_last, square_last;
} maps;

static void fill_maps(maps *m)
{
    for (int i = 0; i < 256; i++) {
        m->mean[i] = ckpt_eight_bit_value(i, true);
        m->square[i] = ckpt_eight_bit_value(i, false);
    }
    m->mean_last = (1.0f + m->mean[127]) / 2;
    m->square_last = (1.0f + m->square[254]) / 2;
}

static void write_mean(const maps *map, const float *from, int count, float scale, uint8_t *to)
{
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f, last = map->mean_last;
#pragma omp simd
    for (int i = 0; i < count; i++) {
        const int byte = byte_of(fabsf(from[i]) * inverse, 1, 128, last);
        const int negative = byte < 128 ? byte + 128 : 255, with_sign = from[i] < 0.0f ? negative : byte;
        to[i] = (uint8_t)(byte == 0 ? 0 : with_sign);
    }
}

static void write_square(const maps *map, const float *from, int count, float scale, uint8_t *to)
{
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f, last = map->square_last;
#pragma omp simd
    for (int i = 0; i < count; i++) {
        to[i] = (uint8_t)byte_of(from[i] * inverse, 2, 255, last);
    }
}

static void step_block(const ckpt_update_args *args, const ckpt_adam_rule *r, const maps *map, int64_t block)
{
    float mean[BLOCK], size[BLOCK], square[BLOCK];
    const int64_t first = block * BLOCK;
    const int count = (int)(args->count - first < BLOCK ? args->count - first : BLOCK);
    const float scale = args->scale != NULL ? *args->scale : 1.0f;
    const float *const grad = args->grad + first;
    float *const param = args->param + first;
    uint8_t *const m = (uint8_t *)args->slot[0] + first, *const v = (uint8_t *)args->slot[1] + first;
    float *const m_scale = args->slot[0] + ckpt_eight_bit_scale(args->count) / 4 + block;
    float *const v_scale = args->slot[1] + ckpt_eight_bit_scale(args->count) / 4 + block;
    const float m_before = *m_scale, v_before = *v_scale;
#pragma omp simd
    for (int i = 0; i < count; i++) {
        const float w = param[i] * r->stay, g = grad[i] * scale;
        const float a = r->beta1 * (map->mean[m[i]] * m_before) + r->rest1 * g;
        const float b = r->beta2 * (map->square[v[i]] * v_before) + r->rest2 * g * g;
        param[i] = w - r->size * a / (sqrtf(b) * r->root + r->eps);
        mean[i] = a;
        size[i] = fabsf(a);
        square[i] = b;
    }
    const float most_mean = ckpt_vector_max(count, size), most_square = ckpt_vector_max(count, square);
    write_mean(map, mean, count, most_mean, m);
    write_square(map, square, count, most_square, v);
    *m_scale = most_mean;
    *v_scale = most_square;
    ckpt_update_copy(args, first, count);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    maps map;
    fill_maps(&map);
    for (int i = 0; i < count; i++) {
        const ckpt_update_args *const own = &args[i];
        const ckpt_adam_rule rule = ckpt_adam_rule_of(own->hyper[BETA1], own->hyper[BETA2], own->hyper[EPS],
                                                      numbers->of[own->group], own->decay);
        if (!ckpt_eight_bit_takes(own->count)) {
            ckpt_adam_step(own, &rule);
            continue;
        }
        const int64_t blocks = ckpt_eight_bit_blocks(own->count);
#pragma omp parallel for schedule(static) num_threads(own->threads) if (own->count > CKPT_PARALLEL)
        for (int64_t b = 0; b < blocks; b++) {
            step_block(own, &rule, &map, b);
        }
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_adamw8bit = {
    .optimizer = "adamw8bit",
    .update = update,
};
