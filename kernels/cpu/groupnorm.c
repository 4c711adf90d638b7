/* Group norm and instance norm on the CPU. An image is a matrix of rows (pixels) and channels, in parts that follow from
 * its shape alone, so that the threads change no bit. Sums of each channel of a part are of x minus the image's first row,
 * which keeps the one-pass variance exact enough; parts and the channels of a group are added in order, in double. Each
 * direction takes two passes over memory. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* The sums of every part of an image lie behind each other, then the factors of every image, in vectors of channels. */
enum { FORWARD_FACTORS = 3, BACKWARD_FACTORS = 4 };

static ckpt_bytes sums_bytes(const ckpt_group_sizes *s)
{
    return s->images * s->parts * 2 * s->channels * (ckpt_bytes)sizeof(double);
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    const ckpt_group_sizes s = ckpt_group_sizes_of(node);
    const ckpt_bytes vector = s.images * s.channels * (ckpt_bytes)sizeof(float);
    *forward = sums_bytes(&s) + FORWARD_FACTORS * vector;
    *backward = sums_bytes(&s) + BACKWARD_FACTORS * vector;
}

/* The sums of all parts of all images, by the first row of each; those of an image are then added into its first. */
static void image_sums(const ckpt_kernel_args *args, const ckpt_group_sizes *s, const float *x, const float *dy)
{
    double *const sums = args->workspace;
    const int64_t pair = 2 * s->channels, image = s->rows * s->channels;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s->images * image > CKPT_PARALLEL)
    for (int64_t p = 0; p < s->images * s->parts; p++) {
        const int64_t n = p / s->parts, first = p % s->parts * s->part_rows;
        const int64_t end = first + s->part_rows < s->rows ? first + s->part_rows : s->rows;
        const float *const from = x + n * image;
        ckpt_channel_sums(false, first, end, s->channels, from, dy == NULL ? NULL : dy + n * image, from,
                          sums + p * pair);
    }
    for (int64_t n = 0; n < s->images; n++) {
        double *const total = sums + n * s->parts * pair;
        for (int64_t p = 1; p < s->parts; p++) {
            for (int64_t i = 0; i < pair; i++) {
                total[i] += total[p * pair + i];
            }
        }
    }
}

/* Mean and rstd of one group, from its channels' sums of x - first and (x - first)^2: all relative to the first row's
 * first channel. */
static void group_moments(const ckpt_group_sizes *s, const float *first, const double *sums, double eps, float *mean,
                          float *rstd)
{
    const int64_t channels = s->channels / s->groups;
    const double rows = (double)s->rows, count = rows * (double)channels, origin = (double)first[0];
    double plain = 0, squares = 0;
    for (int64_t c = 0; c < channels; c++) {
        const double apart = (double)first[c] - origin;
        plain += sums[c] + rows * apart;
        squares += sums[s->channels + c] + 2 * apart * sums[c] + rows * apart * apart;
    }
    const double shift = plain / count, difference = squares / count - shift * shift;
    const double var = difference < 0 ? 0 : difference; /* NaN passes */
    *mean = (float)(origin + shift);
    *rstd = (float)(1 / sqrt(var + eps));
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_group_sizes s = ckpt_group_sizes_of(args->node);
    const double eps = (double)(float)ckpt_node_float(args->node, "eps");
    const bool affine = args->node->param_count > 0;
    const float *const x = args->in[0];
    float *const y = args->out[0], *const mean = args->saved[0], *const rstd = args->saved[1];
    float *const factors = (float *)(void *)((char *)args->workspace + sums_bytes(&s));
    const int64_t C = s.channels, each = C / s.groups;
    image_sums(args, &s, x, NULL);
    for (int64_t n = 0; n < s.images; n++) {
        const double *const sums = (const double *)args->workspace + n * s.parts * 2 * C;
        float *const center = factors + n * FORWARD_FACTORS * C, *const slope = center + C, *const shift = slope + C;
        for (int64_t g = 0; g < s.groups; g++) {
            const int64_t at = n * s.groups + g;
            group_moments(&s, x + n * s.rows * C + g * each, sums + g * each, eps, &mean[at], &rstd[at]);
            for (int64_t c = g * each; c < (g + 1) * each; c++) {
                center[c] = mean[at];
                slope[c] = affine ? rstd[at] * args->param[0][c] : rstd[at];
                shift[c] = affine ? args->param[1][c] : 0.0f;
            }
        }
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.images * s.rows * C > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.images * s.rows; r++) {
        const float *const center = factors + r / s.rows * FORWARD_FACTORS * C, *const x_row = x + r * C;
        float *const y_row = y + r * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            y_row[c] = (x_row[c] - center[c]) * center[C + c] + center[2 * C + c];
        }
    }
    return CKPT_OK;
}

/* From a group's sums of dy and dy (x - first): those of dy and dy xhat take their place, and with w the means of dy w and
 * dy w xhat go into the factors of dx = dy slope - base - (x - center) slant. */
static void group_slopes(const ckpt_group_sizes *s, const float *first, const float *w, float mean, float rstd,
                         double *sums, float *factors)
{
    const int64_t C = s->channels, channels = C / s->groups;
    const double count = (double)s->rows * (double)channels;
    double plain = 0, product = 0;
    for (int64_t c = 0; c < channels; c++) {
        const double weight = w != NULL ? (double)w[c] : 1;
        sums[C + c] = (sums[C + c] + ((double)first[c] - (double)mean) * sums[c]) * (double)rstd;
        plain += weight * sums[c];
        product += weight * sums[C + c];
    }
    const float base = (float)(plain / count * (double)rstd);
    const float slant = (float)(product / count * (double)rstd * (double)rstd);
    for (int64_t c = 0; c < channels; c++) {
        factors[c] = mean;
        factors[C + c] = w != NULL ? rstd * w[c] : rstd;
        factors[2 * C + c] = base;
        factors[3 * C + c] = slant;
    }
}

static void input_gradient(const ckpt_kernel_args *args, const ckpt_group_sizes *s, const float *factors)
{
    const float *const x = args->in[0], *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const int64_t C = s->channels;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s->images * s->rows * C > CKPT_PARALLEL)
    for (int64_t r = 0; r < s->images * s->rows; r++) {
        const float *const center = factors + r / s->rows * BACKWARD_FACTORS * C, *const slope = center + C;
        const float *const x_row = x + r * C, *const dy_row = dy + r * C;
        float *const dx_row = dx + r * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            dx_row[c] = dy_row[c] * slope[c] - slope[C + c] - (x_row[c] - center[c]) * slope[2 * C + c];
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_group_sizes s = ckpt_group_sizes_of(args->node);
    const float *const x = args->in[0], *const mean = args->saved[0], *const rstd = args->saved[1];
    const float *const w = args->node->param_count > 0 ? args->param[0] : NULL;
    double *const sums = args->workspace;
    float *const factors = (float *)(void *)((char *)args->workspace + sums_bytes(&s));
    const int64_t C = s.channels, each = C / s.groups, image = s.parts * 2 * C;
    image_sums(args, &s, x, args->grad_out[0]);
    for (int64_t n = 0; n < s.images; n++) {
        for (int64_t g = 0; g < s.groups; g++) {
            const int64_t at = n * s.groups + g, c = g * each;
            group_slopes(&s, x + n * s.rows * C + c, w != NULL ? w + c : NULL, mean[at], rstd[at], sums + n * image + c,
                         factors + n * BACKWARD_FACTORS * C + c);
        }
    }
    if (args->grad_in[0] != NULL) {
        input_gradient(args, &s, factors);
    }
    for (int64_t c = 0; w != NULL && c < C; c++) {
        double dw = 0, db = 0;
        for (int64_t n = 0; n < s.images; n++) {
            db += sums[n * image + c];
            dw += sums[n * image + C + c];
        }
        args->grad_param[0][c] = (float)dw;
        args->grad_param[1][c] = (float)db;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_groupnorm = {
    .op = "groupnorm",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_instancenorm = {
    .op = "instancenorm",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
