/* Batch normalisation on the CPU. Channels are the fastest dimension, so a batch is a matrix of rows (pixels) and
 * channels, and every statistic is the sum of a column. Each direction takes two passes over memory; oneDNN's takes
 * three.
 *
 * Sums are of x - center, with the first row as center, which keeps the one-pass variance exact enough. Each thread sums
 * its own rows, and the threads' sums are added in order. */
#include <math.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/affine.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/vector.h"

enum { TOGETHER = 4 }; /* rows */

typedef struct sizes {
    int64_t rows, channels;
    bool narrow; /* x, y and their gradients are bfloat16 */
} sizes;

static sizes sizes_of(const ckpt_node *node)
{
    const ckpt_shape *x = &node->in[0].shape;
    return (sizes){ckpt_shape_count(x) / x->dim[1], x->dim[1], node->dtype == CKPT_BFLOAT16};
}

/* Writes both sums of every channel to partial[0..2 channels), which has room for the sums of all threads. */
static void column_sums(sizes s, int threads, const void *x, const void *dy, const float *center, double *partial)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        ckpt_channel_sums(s.narrow, s.rows * t / threads, s.rows * (t + 1) / threads, s.channels, x, dy, center,
                          partial + 2 * s.channels * t);
    }
    for (int t = 1; t < threads; t++) {
        for (int64_t i = 0; i < 2 * s.channels; i++) {
            partial[i] += partial[2 * s.channels * t + i];
        }
    }
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    const ckpt_bytes channels = node->in[0].shape.dim[1];
    if (ckpt_node_bool(node, "frozen")) {
        const ckpt_bytes sums = 2 * channels * node->threads * (ckpt_bytes)sizeof(double);
        *forward = channels * (ckpt_bytes)sizeof(float);
        *backward = *forward + (ckpt_node_bool(node, "learned") ? sums : 0);
        return;
    }
    const ckpt_bytes sums = 2 * channels * node->threads * (ckpt_bytes)sizeof(double);
    *forward = sums + channels * (ckpt_bytes)sizeof(float);
    *backward = sums + 2 * channels * (ckpt_bytes)sizeof(float);
}

/* Computes mean and rstd of the batch, and updates the running statistics unless this is a recomputation. */
static void batch_moments(const ckpt_kernel_args *args, sizes s, float eps)
{
    const ckpt_node *node = args->node;
    float *mean = args->saved[0], *rstd = args->saved[1];
    double *sum = args->workspace;
    float *const first = (float *)(void *)(sum + 2 * s.channels * node->threads);
    for (int64_t c = 0; c < s.channels; c++) {
        first[c] = ckpt_element(s.narrow, args->in[0], c);
    }
    column_sums(s, node->threads, args->in[0], NULL, first, sum);
    const double count = (double)s.rows;
    const double momentum = ckpt_node_float(node, "momentum");
    for (int64_t c = 0; c < s.channels; c++) {
        const double shift = sum[c] / count;
        const double difference = sum[s.channels + c] / count - shift * shift;
        const double var = difference < 0 ? 0 : difference; /* NaN passes */
        const double center = (double)first[c] + shift;
        mean[c] = (float)center;
        rstd[c] = (float)(1 / sqrt(var + (double)eps));
        if (!args->recomputed) {
            const double unbiased = s.rows > 1 ? var * count / (count - 1) : var;
            args->stat[0][c] = (float)((1 - momentum) * (double)args->stat[0][c] + momentum * center);
            args->stat[1][c] = (float)((1 - momentum) * (double)args->stat[1][c] + momentum * unbiased);
        }
    }
}

/* `rows` rows from element `at` on, a constant here: what all rows need of a channel is read once for them. */
static inline __attribute__((always_inline)) void normalise_rows(int rows, bool narrow, int64_t at, int64_t channels,
                                                                 const void *x, const float *mean, const float *slope,
                                                                 const float *b, void *y)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        const float center = mean[c], by = slope[c], shift = b[c];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const float u = ckpt_element(narrow, x, at + r * channels + c) - center;
            ckpt_put_element(narrow, u * by + shift, y, at + r * channels + c);
        }
    }
}

/* y = (x - mean) rstd w + b. `slope`: room for rstd w, a number of each channel; may be rstd. */
static void normalise(const ckpt_kernel_args *args, sizes s, const float *mean, const float *rstd, const float *w,
                      const float *b, float *slope)
{
    const void *const x = args->in[0];
    void *const y = args->out[0];
    const int64_t channels = s.channels;
    for (int64_t c = 0; c < channels; c++) {
        slope[c] = rstd[c] * w[c];
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.rows * channels > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.rows; r += TOGETHER) {
        if (s.rows - r >= TOGETHER && s.narrow) {
            normalise_rows(TOGETHER, true, r * channels, channels, x, mean, slope, b, y);
        } else if (s.rows - r >= TOGETHER) {
            normalise_rows(TOGETHER, false, r * channels, channels, x, mean, slope, b, y);
        }
        for (int64_t last = r; s.rows - r < TOGETHER && last < s.rows; last++) {
            normalise_rows(1, s.narrow, last * channels, channels, x, mean, slope, b, y);
        }
    }
}

static void use_statistics(const ckpt_kernel_args *args, int64_t channels, float *rstd)
{
    const float eps = (float)ckpt_node_float(args->node, "eps");
    for (int64_t c = 0; c < channels; c++) {
        rstd[c] = 1 / sqrtf(args->stat[1][c] + eps);
    }
}

/* Weight and bias: parameters, or statistics if they are frozen. */
static const float *affine(const ckpt_kernel_args *args, int k)
{
    return args->node->param_count > 0 ? args->param[k] : args->stat[2 + k];
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_node *node = args->node;
    const sizes s = sizes_of(node);
    if (ckpt_node_bool(node, "frozen")) {
        float *const rstd = args->workspace;
        use_statistics(args, s.channels, rstd);
        normalise(args, s, args->stat[0], rstd, affine(args, 0), affine(args, 1), rstd);
        return CKPT_OK;
    }
    float *const mean = args->saved[0], *const rstd = args->saved[1];
    if (args->evaluating) {
        memcpy(mean, args->stat[0], (size_t)s.channels * sizeof *mean);
        use_statistics(args, s.channels, rstd);
    } else {
        batch_moments(args, s, (float)ckpt_node_float(node, "eps"));
    }
    float *const slope = (float *)(void *)((double *)args->workspace + 2 * s.channels * node->threads);
    normalise(args, s, mean, rstd, args->param[0], args->param[1], slope);
    return CKPT_OK;
}

/* The normalised input is (value - center) scale, from the input and the moments or, in the way "output", from the output
 * and the affine map: (y - b) / w. */
typedef struct normal {
    const void *value;
    const float *center, *rstd;
    const float *weight; /* NULL: scale is rstd; else 1 / weight */
} normal;

static normal normal_of(const ckpt_kernel_args *args, const float *mean, const float *rstd)
{
    if (ckpt_way_is(args->way, "output")) {
        return (normal){args->out[0], args->param[1], rstd, args->param[0]};
    }
    return (normal){args->in[0], mean, rstd, NULL};
}

static double scale_of(const normal *u, int64_t c)
{
    return u->weight != NULL ? 1 / (double)u->weight[c] : (double)u->rstd[c];
}

static inline void scale_row(bool narrow, int64_t at, int64_t channels, const void *dy, const float *slope, void *dx)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        ckpt_put_element(narrow, ckpt_element(narrow, dy, at + c) * slope[c], dx, at + c);
    }
}

/* dx = w rstd dy; only learned parameters need x. */
static void backward_frozen(const ckpt_kernel_args *args, sizes s)
{
    const ckpt_node *node = args->node;
    const int64_t channels = s.channels;
    const bool learned = node->param_count > 0;
    const void *const dy = args->grad_out[0];
    double *const sum = args->workspace;
    float *const slope = (float *)(void *)(sum + (learned ? 2 * channels * node->threads : 0));
    use_statistics(args, channels, slope);
    if (learned) {
        const normal u = normal_of(args, args->stat[0], slope);
        column_sums(s, node->threads, u.value, dy, u.center, sum);
        for (int64_t c = 0; c < channels; c++) {
            args->grad_param[0][c] = (float)(sum[channels + c] * scale_of(&u, c));
            args->grad_param[1][c] = (float)sum[c];
        }
    }
    void *const dx = args->grad_in[0];
    if (dx == NULL) {
        return;
    }
    for (int64_t c = 0; c < channels; c++) {
        slope[c] *= affine(args, 0)[c];
    }
#pragma omp parallel for schedule(static) num_threads(node->threads) if (s.rows * channels > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.rows; r++) {
        if (s.narrow) {
            scale_row(true, r * channels, channels, dy, slope, dx);
        } else {
            scale_row(false, r * channels, channels, dy, slope, dx);
        }
    }
}

/* dx = (dy - dy_mean - (x - center) slope) scale, of `rows` rows as above. */
static inline __attribute__((always_inline)) void gradient_rows(int rows, bool narrow, int64_t at, int64_t channels,
                                                                const void *x, const void *dy, const float *dy_mean,
                                                                const float *center, const float *slope,
                                                                const float *scale, void *dx)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        const float middle = center[c], mean = dy_mean[c], slant = slope[c], by = scale[c];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const int64_t i = at + r * channels + c;
            const float u = ckpt_element(narrow, x, i) - middle;
            ckpt_put_element(narrow, (ckpt_element(narrow, dy, i) - mean - u * slant) * by, dx, i);
        }
    }
}

/* dx = w rstd (dy - db / n - xhat dw / n). Source: Ioffe & Szegedy 2015, section 3, simplified. */
static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *node = args->node;
    const sizes s = sizes_of(node);
    CKPT_TRY(ckpt_affine_inverts(args, s.channels, err));
    if (ckpt_node_bool(node, "frozen")) {
        backward_frozen(args, s);
        return CKPT_OK;
    }
    const int64_t channels = s.channels;
    const void *const dy = args->grad_out[0];
    const float *const w = args->param[0], *const rstd = args->saved[1];
    const normal u = normal_of(args, args->saved[0], rstd);
    const void *const x = u.value;
    const float *const center = u.center;
    double *sum = args->workspace;
    column_sums(s, node->threads, x, dy, center, sum);
    float *dy_mean = (float *)(void *)(sum + 2 * channels * node->threads), *slope = dy_mean + channels;
    for (int64_t c = 0; c < channels; c++) {
        const double scale = scale_of(&u, c);
        args->grad_param[0][c] = (float)(sum[channels + c] * scale);
        args->grad_param[1][c] = (float)sum[c];
        dy_mean[c] = (float)(sum[c] / (double)s.rows);
        slope[c] = (float)(sum[channels + c] * scale * scale / (double)s.rows);
    }
    void *const dx = args->grad_in[0];
    if (dx == NULL) {
        return CKPT_OK;
    }
    float *const scale = args->workspace; /* where sums were */
    for (int64_t c = 0; c < channels; c++) {
        scale[c] = rstd[c] * w[c];
    }
#pragma omp parallel for schedule(static) num_threads(node->threads) if (s.rows * channels > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.rows; r += TOGETHER) {
        if (s.rows - r >= TOGETHER && s.narrow) {
            gradient_rows(TOGETHER, true, r * channels, channels, x, dy, dy_mean, center, slope, scale, dx);
        } else if (s.rows - r >= TOGETHER) {
            gradient_rows(TOGETHER, false, r * channels, channels, x, dy, dy_mean, center, slope, scale, dx);
        }
        for (int64_t last = r; s.rows - r < TOGETHER && last < s.rows; last++) {
            gradient_rows(1, s.narrow, last * channels, channels, x, dy, dy_mean, center, slope, scale, dx);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_batchnorm = {
    .op = "batchnorm",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
