/* Group norm and instance norm on the CPU. An image is a matrix of rows (pixels) and channels, in parts that follow from
 * its shape alone, so that the threads change no bit. Sums of each channel of a part are of x minus the image's first row,
 * which keeps the one-pass variance exact enough; parts and the channels of a group are added in order, in double. Each
 * direction takes two passes over memory. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* The sums of every part of an image lie behind each other, then the factors of every image, in vectors of channels. The
 * last of them holds the image's first row until its factors are known. */
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

static bool is_narrow(const ckpt_kernel_args *args)
{
    return args->node->dtype == CKPT_BFLOAT16;
}

static float *factors_of(const ckpt_kernel_args *args, const ckpt_group_sizes *s)
{
    return (float *)(void *)((char *)args->workspace + sums_bytes(s));
}

/* The sums of all parts of all images, by the first row of each, which goes into the last of its `vectors` of factors;
 * those of an image are then added into its first. `dy` may be NULL. */
static void image_sums(const ckpt_kernel_args *args, const ckpt_group_sizes *s, const void *dy, int vectors)
{
    const void *const x = args->in[0];
    double *const sums = args->workspace;
    float *const firsts = factors_of(args, s) + (vectors - 1) * s->channels;
    const int64_t pair = 2 * s->channels, image = s->rows * s->channels;
    for (int64_t n = 0; n < s->images; n++) {
        for (int64_t c = 0; c < s->channels; c++) {
            firsts[n * vectors * s->channels + c] = ckpt_element(is_narrow(args), x, n * image + c);
        }
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s->images * image > CKPT_PARALLEL)
    for (int64_t p = 0; p < s->images * s->parts; p++) {
        const int64_t n = p / s->parts, first = p % s->parts * s->part_rows;
        const int64_t end = first + s->part_rows < s->rows ? first + s->part_rows : s->rows;
        ckpt_channel_sums(is_narrow(args), n * s->rows + first, n * s->rows + end, s->channels, x, dy,
                          firsts + n * vectors * s->channels, sums + p * pair);
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

static inline void normalise_row(bool narrow, int64_t at, int64_t channels, const void *x, const float *center,
                                 const float *slope, const float *shift, void *y)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        ckpt_put_element(narrow, (ckpt_element(narrow, x, at + c) - center[c]) * slope[c] + shift[c], y, at + c);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_group_sizes s = ckpt_group_sizes_of(args->node);
    const double eps = (double)(float)ckpt_node_float(args->node, "eps");
    const bool affine = args->node->param_count > 0;
    float *const mean = args->saved[0], *const rstd = args->saved[1], *const factors = factors_of(args, &s);
    const int64_t C = s.channels, each = C / s.groups;
    image_sums(args, &s, NULL, FORWARD_FACTORS);
    for (int64_t n = 0; n < s.images; n++) {
        const double *const sums = (const double *)args->workspace + n * s.parts * 2 * C;
        float *const center = factors + n * FORWARD_FACTORS * C, *const slope = center + C, *const shift = slope + C;
        for (int64_t g = 0; g < s.groups; g++) {
            const int64_t at = n * s.groups + g;
            group_moments(&s, shift + g * each, sums + g * each, eps, &mean[at], &rstd[at]);
            for (int64_t c = g * each; c < (g + 1) * each; c++) {
                center[c] = mean[at];
                slope[c] = affine ? rstd[at] * args->param[0][c] : rstd[at];
                shift[c] = affine ? args->param[1][c] : 0.0f;
            }
        }
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.images * s.rows * C > CKPT_PARALLEL)
    for (int64_t r = 0; r < s.images * s.rows; r++) {
        const float *const center = factors + r / s.rows * FORWARD_FACTORS * C, *const slope = center + C;
        if (is_narrow(args)) {
            normalise_row(true, r * C, C, args->in[0], center, slope, slope + C, args->out[0]);
        } else {
            normalise_row(false, r * C, C, args->in[0], center, slope, slope + C, args->out[0]);
        }
    }
    return CKPT_OK;
}

/* From a group's sums of dy and dy (x - first): those of dy and dy xhat take their place, and with w the means of dy w and
 * dy w xhat go into the factors of dx = dy slope - base - (x - center) slant. */
static void group_slopes(const ckpt_group_sizes *s, const float *w, float mean, float rstd, double *sums,
                         float *factors)
{
    const int64_t C = s->channels, channels = C / s->groups;
    const float *const first = factors + (BACKWARD_FACTORS - 1) * C;
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

static inline void gradient_row(bool narrow, int64_t at, int64_t channels, const void *x, const void *dy,
                                const float *center, const float *slope, const float *base, const float *slant,
                                void *dx)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        const float apart = ckpt_element(narrow, x, at + c) - center[c];
        const float value = ckpt_element(narrow, dy, at + c) * slope[c] - base[c] - apart * slant[c];
        ckpt_put_element(narrow, value, dx, at + c);
    }
}

static void input_gradient(const ckpt_kernel_args *args, const ckpt_group_sizes *s, const float *factors)
{
    const void *const x = args->in[0], *const dy = args->grad_out[0];
    void *const dx = args->grad_in[0];
    const int64_t C = s->channels;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s->images * s->rows * C > CKPT_PARALLEL)
    for (int64_t r = 0; r < s->images * s->rows; r++) {
        const float *const center = factors + r / s->rows * BACKWARD_FACTORS * C, *const slope = center + C;
        const float *const base = slope + C, *const slant = base + C;
        if (is_narrow(args)) {
            gradient_row(true, r * C, C, x, dy, center, slope, base, slant, dx);
        } else {
            gradient_row(false, r * C, C, x, dy, center, slope, base, slant, dx);
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_group_sizes s = ckpt_group_sizes_of(args->node);
    const float *const mean = args->saved[0], *const rstd = args->saved[1];
    const float *const w = args->node->param_count > 0 ? args->param[0] : NULL;
    double *const sums = args->workspace;
    float *const factors = factors_of(args, &s);
    const int64_t C = s.channels, each = C / s.groups, image = s.parts * 2 * C;
    image_sums(args, &s, args->grad_out[0], BACKWARD_FACTORS);
    for (int64_t n = 0; n < s.images; n++) {
        for (int64_t g = 0; g < s.groups; g++) {
            const int64_t at = n * s.groups + g, c = g * each;
            group_slopes(&s, w != NULL ? w + c : NULL, mean[at], rstd[at], sums + n * image + c,
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
