/* Layer norm and RMS norm on the CPU, row by row in the first-level cache; each thread widens its row of bfloat16. Each
 * thread sums parameter gradients over blocks of ROWS rows, then over blocks; the threads' sums are added in order. RMS
 * norm adds to gradients where asked. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/affine.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"

enum { ROWS = 64, LANES = 16 };

typedef struct sizes {
    int64_t rows, width;
    bool narrow; /* x, y and their gradients are bfloat16 */
} sizes;

static sizes sizes_of(const ckpt_node *node)
{
    const ckpt_shape *x = &node->in[0].shape;
    const int64_t width = x->dim[x->rank - 1];
    return (sizes){ckpt_shape_count(x) / width, width, node->dtype == CKPT_BFLOAT16};
}

/* Rows of float32 that a thread holds in backward: the gradients of the parameters, over all its rows and over a block; of
 * bfloat16 x, dy and dx. */
static int64_t held_rows(const ckpt_node *node)
{
    return 2 * (int64_t)node->param_count + (node->dtype == CKPT_BFLOAT16 ? 3 : 0);
}

static float lanes_sum(float lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            lane[j] += lane[j + half];
        }
    }
    return lane[0];
}

/* Sum of (x - center)^2. */
static float square_sum(int64_t n, const float *x, float center)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float u = x[i + j] - center;
            lane[j] += u * u;
        }
    }
    for (int j = 0; i + j < n; j++) {
        const float u = x[i + j] - center;
        lane[j] += u * u;
    }
    return lanes_sum(lane);
}

static ckpt_code layernorm_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const sizes s = sizes_of(args->node);
    const float eps = (float)ckpt_node_float(args->node, "eps");
    const float *w = args->param[0], *b = args->param[1];
    float *mean = args->saved[0], *rstd = args->saved[1];
    const int64_t width = s.width;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.rows * width > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.rows; r++) {
        float *const room = s.narrow ? (float *)args->workspace + width * omp_get_thread_num() : NULL;
        const float *const x_row = ckpt_run(s.narrow, args->in[0], r * width, width, room);
        float *const y_row = ckpt_open_run(s.narrow, args->out[0], r * width, width, false, room);
        const float m = ckpt_vector_sum(width, x_row) / (float)width;
        const float k = 1 / sqrtf(square_sum(width, x_row, m) / (float)width + eps);
        mean[r] = m;
        rstd[r] = k;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            y_row[i] = (x_row[i] - m) * k * w[i] + b[i];
        }
        ckpt_close_run(s.narrow, room, width, args->out[0], r * width);
    }
    return CKPT_OK;
}

static ckpt_code rmsnorm_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const sizes s = sizes_of(args->node);
    const float eps = (float)ckpt_node_float(args->node, "eps");
    const float *w = args->param[0];
    float *rstd = args->saved[0];
    const int64_t width = s.width;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.rows * width > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.rows; r++) {
        float *const room = s.narrow ? (float *)args->workspace + width * omp_get_thread_num() : NULL;
        const float *const x_row = ckpt_run(s.narrow, args->in[0], r * width, width, room);
        float *const y_row = ckpt_open_run(s.narrow, args->out[0], r * width, width, false, room);
        const float k = 1 / sqrtf(square_sum(width, x_row, 0) / (float)width + eps);
        rstd[r] = k;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            y_row[i] = x_row[i] * k * w[i];
        }
        ckpt_close_run(s.narrow, room, width, args->out[0], r * width);
    }
    return CKPT_OK;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    const ckpt_bytes row = sizes_of(node).width * node->threads * (ckpt_bytes)sizeof(float);
    *forward = node->dtype == CKPT_BFLOAT16 ? row : 0;
    *backward = held_rows(node) * row;
}

/* (y - b) / w; b NULL: y / w */
static void undo_affine(int64_t width, const float *y, const float *w, const float *b, float *xhat)
{
    if (b == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            xhat[i] = y[i] / w[i];
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        xhat[i] = (y[i] - b[i]) / w[i];
    }
}

/* One row: the two means in its input gradient, the gradient, and its part of the parameters' gradients.
 * dx = rstd (dy w - mean(dy w) - xhat mean(dy w xhat)), xhat = (x - mean) scale. */
static void row_backward(int64_t width, const float *x, const float *dy, const float *w, float mean, float scale,
                         float rstd, float *dx, float *dw, float *db)
{
    float plain[LANES] = {0}, product[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float g = dy[i + j] * w[i + j], u = (x[i + j] - mean) * scale;
            plain[j] += g;
            product[j] += g * u;
            dw[i + j] += dy[i + j] * u;
            db[i + j] += dy[i + j];
        }
    }
    for (int j = 0; i + j < width; j++) {
        const float g = dy[i + j] * w[i + j], u = (x[i + j] - mean) * scale;
        plain[j] += g;
        product[j] += g * u;
        dw[i + j] += dy[i + j] * u;
        db[i + j] += dy[i + j];
    }
    if (dx == NULL) {
        return;
    }
    const float g_mean = lanes_sum(plain) / (float)width, slope = lanes_sum(product) / (float)width;
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        dx[k] = rstd * (dy[k] * w[k] - g_mean - (x[k] - mean) * scale * slope);
    }
}

/* The same without a mean: dx = rstd (dy w - xhat mean(dy w xhat)), xhat = x scale. */
static void rms_row_backward(int64_t width, const float *x, const float *dy, const float *w, float scale, float rstd,
                             float *dx, bool adds, float *dw)
{
    float product[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float g = dy[i + j] * (x[i + j] * scale);
            product[j] += g * w[i + j];
            dw[i + j] += g;
        }
    }
    for (int j = 0; i + j < width; j++) {
        const float g = dy[i + j] * (x[i + j] * scale);
        product[j] += g * w[i + j];
        dw[i + j] += g;
    }
    if (dx == NULL) {
        return;
    }
    const float slope = lanes_sum(product) / (float)width * scale;
    if (adds) {
#pragma omp simd
        for (int64_t k = 0; k < width; k++) {
            dx[k] += rstd * (dy[k] * w[k] - x[k] * slope);
        }
    } else {
#pragma omp simd
        for (int64_t k = 0; k < width; k++) {
            dx[k] = rstd * (dy[k] * w[k] - x[k] * slope);
        }
    }
}

/* A block's row; `room`: of rows of bfloat16 three, and in the way "output" one more for xhat. */
static void block_row(const ckpt_kernel_args *args, int64_t width, int64_t r, float *block, float *room)
{
    const bool centered = args->node->param_count == 2, undo = ckpt_way_is(args->way, "output");
    const bool narrow = args->node->dtype == CKPT_BFLOAT16, adds = (args->grad_in_adds & 1) != 0;
    const int64_t start = r * width;
    const float rstd = ((const float *)args->saved[centered ? 1 : 0])[r];
    const float *const w = args->param[0];
    const float *const x = ckpt_run(narrow, undo ? args->out[0] : args->in[0], start, width, room);
    const float *const dy = ckpt_run(narrow, args->grad_out[0], start, width, room + width);
    float *const room_dx = room + 2 * width, *const xhat = room + (narrow ? 3 * width : 0);
    float *const dx =
        args->grad_in[0] == NULL ? NULL : ckpt_open_run(narrow, args->grad_in[0], start, width, adds, room_dx);
    if (undo) {
        undo_affine(width, x, w, centered ? args->param[1] : NULL, xhat);
    }
    if (!centered) {
        rms_row_backward(width, undo ? xhat : x, dy, w, undo ? 1 : rstd, rstd, dx, adds, block);
    } else if (undo) {
        row_backward(width, xhat, dy, w, 0, 1, rstd, dx, block, block + width);
    } else {
        row_backward(width, x, dy, w, ((const float *)args->saved[0])[r], rstd, rstd, dx, block, block + width);
    }
    if (dx != NULL) {
        ckpt_close_run(narrow, dx, width, args->grad_in[0], start);
    }
}

/* Rows first .. end - 1; the parts of `sums` are total dw, total db, block dw, block db, and the rooms of block_row. RMS norm
 * has no db. */
static void thread_backward(const ckpt_kernel_args *args, int64_t width, int64_t first, int64_t end, float *sums)
{
    const int64_t count = args->node->param_count * width;
    float *total = sums, *block = sums + count;
    memset(total, 0, (size_t)count * sizeof *total);
    for (int64_t start = first; start < end; start += ROWS) {
        const int64_t stop = start + ROWS < end ? start + ROWS : end;
        memset(block, 0, (size_t)count * sizeof *block);
        for (int64_t r = start; r < stop; r++) {
            block_row(args, width, r, block, sums + 2 * count);
        }
        ckpt_vector_add(count, block, total);
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const sizes s = sizes_of(args->node);
    const int threads = args->node->threads, params = args->node->param_count;
    const int64_t parts = (held_rows(args->node) + ckpt_way_is(args->way, "output")) * s.width;
    float *sums = args->workspace;
    CKPT_TRY(ckpt_affine_inverts(args, s.width, err));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        thread_backward(args, s.width, s.rows * t / threads, s.rows * (t + 1) / threads, sums + parts * t);
    }
    for (int t = 1; t < threads; t++) {
        ckpt_vector_add(params * s.width, sums + parts * t, sums);
    }
    for (int k = 0; k < params; k++) {
        const float *const sum = sums + k * s.width;
        if ((args->grad_param_adds >> k & 1) != 0) {
            ckpt_vector_add(s.width, sum, args->grad_param[k]);
        } else {
            memcpy(args->grad_param[k], sum, (size_t)s.width * sizeof *sum);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_layernorm = {
    .op = "layernorm",
    .workspace = workspace,
    .forward = layernorm_forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_rmsnorm = {
    .op = "rmsnorm",
    .workspace = workspace,
    .forward = rmsnorm_forward,
    .backward = backward,
};
