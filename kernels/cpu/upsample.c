/* Enlarges images by a whole factor. A pixel is a row of channels. Backward gathers: one thread makes a row of input
 * gradients from the output rows that used it, in order, so that threads share nothing. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

typedef struct image_set {
    int64_t N, C, H, W, scale, count; /* of the input; count: elements of the output */
    bool bilinear;
} image_set;

static image_set describe(const ckpt_node *node)
{
    const int64_t *const dim = node->in[0].shape.dim;
    return (image_set){.N = dim[0],
                       .C = dim[1],
                       .H = dim[2],
                       .W = dim[3],
                       .scale = ckpt_node_int(node, "scale"),
                       .count = ckpt_shape_count(&node->out[0].shape),
                       .bilinear = strcmp(ckpt_node_string(node, "mode"), "bilinear") == 0};
}

/* Output row or column `i` of an input of `length` is (1 - part) x[low] + part x[high]. Pixel centres are at half
 * numbers; positions before the first centre count as at that centre. Nearest: low = high. */
typedef struct sample {
    int64_t low, high;
    float part;
} sample;

static sample find_sample(const image_set *set, int64_t i, int64_t length)
{
    if (!set->bilinear) {
        return (sample){i / set->scale, i / set->scale, 0.0f};
    }
    const double position = ((double)i + 0.5) / (double)set->scale - 0.5;
    const double inside = position < 0.0 ? 0.0 : position;
    const int64_t low = (int64_t)inside;
    return (sample){low, low + 1 < length ? low + 1 : low, (float)(inside - (double)low)};
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const image_set set = describe(args->node);
    const int64_t C = set.C, out_rows = set.H * set.scale, out_columns = set.W * set.scale;
    const float *const x = args->in[0];
    float *const out = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (set.count > CKPT_PARALLEL)
    for (int64_t row = 0; row < set.N * out_rows; row++) {
        const sample s = find_sample(&set, row % out_rows, set.H);
        const float *const image = x + row / out_rows * set.H * set.W * C;
        for (int64_t j = 0; j < out_columns; j++) {
            const sample t = find_sample(&set, j, set.W);
            const float *const a = image + (s.low * set.W + t.low) * C, *const b = image + (s.low * set.W + t.high) * C;
            const float *const c = image + (s.high * set.W + t.low) * C;
            const float *const d = image + (s.high * set.W + t.high) * C;
            float *const y = out + (row * out_columns + j) * C;
            if (!set.bilinear) {
                memcpy(y, a, (size_t)C * sizeof *y);
                continue;
            }
#pragma omp simd
            for (int64_t k = 0; k < C; k++) {
                const float upper = (1.0f - t.part) * a[k] + t.part * b[k];
                const float lower = (1.0f - t.part) * c[k] + t.part * d[k];
                y[k] = (1.0f - s.part) * upper + s.part * lower;
            }
        }
    }
    return CKPT_OK;
}

static void add_scaled(int64_t n, float factor, const float *from, float *to)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        to[k] += factor * from[k];
    }
}

/* Adds an output row, times `weight`, to an input row of gradients. */
static void gather_row(const image_set *set, float weight, const float *dy, float *dx)
{
    for (int64_t j = 0; j < set->W * set->scale; j++) {
        const sample t = find_sample(set, j, set->W);
        add_scaled(set->C, weight * (1.0f - t.part), dy + j * set->C, dx + t.low * set->C);
        if (t.part > 0.0f) {
            add_scaled(set->C, weight * t.part, dy + j * set->C, dx + t.high * set->C);
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const image_set set = describe(args->node);
    const int64_t out_rows = set.H * set.scale, out_length = set.W * set.scale * set.C;
    const float *const dy = args->grad_out[0];
    float *const grad = args->grad_in[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (set.count > CKPT_PARALLEL)
    for (int64_t row = 0; row < set.N * set.H; row++) {
        const int64_t n = row / set.H, h = row % set.H;
        float *const dx = grad + row * set.W * set.C;
        memset(dx, 0, (size_t)(set.W * set.C) * sizeof *dx);
        const int64_t first = h > 0 ? (h - 1) * set.scale : 0;
        const int64_t end = h + 2 < set.H ? (h + 2) * set.scale : out_rows;
        for (int64_t i = first; i < end; i++) {
            const sample s = find_sample(&set, i, set.H);
            const float weight = (s.low == h ? 1.0f - s.part : 0.0f) + (s.high == h ? s.part : 0.0f);
            if (weight > 0.0f) {
                gather_row(&set, weight, dy + (n * out_rows + i) * out_length, dx);
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_upsample = {
    .op = "upsample",
    .forward = forward,
    .backward = backward,
};
