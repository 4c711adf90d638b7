/* Gradients of depthwise filters, channels last: vectors are channels. */
#include "kernels/cpu/depthwise.h"

#include <string.h>

#include "kernels/cpu/lanes.h"

enum { HEIGHT = 1, WIDTH = 2 };

bool ckpt_depthwise_is(const ckpt_convolution *s)
{
    bool large = false;
    for (int d = HEIGHT; d <= WIDTH; d++) {
        large = large || s->kernel[d] > 3 || s->dilation[d] > 1;
    }
    return large && s->dtype == CKPT_FLOAT32 && s->groups > 1 && s->groups == s->in_channels &&
           s->groups == s->out_channels && !s->volume;
}

/* Elements of a thread's sums, [taps, channels]: whole cache lines. */
static int64_t sum_count(const ckpt_convolution *s)
{
    return (s->groups * ckpt_convolution_taps(s) + 15) / 16 * 16;
}

ckpt_bytes ckpt_depthwise_workspace(const ckpt_convolution *s, int threads)
{
    return sum_count(s) * threads * (ckpt_bytes)sizeof(float);
}

/* Numbers first .. end - 1 of a row. */
typedef struct span {
    int64_t first, end;
} span;

/* Those of `count` numbers j with 0 <= at + j step < length. */
static span within(int64_t at, int64_t step, int64_t length, int64_t count)
{
    const int64_t first = at < 0 ? (-at + step - 1) / step : 0;
    const int64_t end = at < length ? (length - 1 - at) / step + 1 : 0;
    return (span){first, end < count ? end : count};
}

static span both(span a, span b)
{
    return (span){a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

/* total[t] += sum over `pixels` of dy x for `taps` taps, `apart` from each other in x; x goes on by x_step. The sum of a
 * line begins at 0, which keeps it exact. The first three are constants here, so that the sums are registers. Not
 * `whole`: of one vector, with `count` channels. */
static inline __attribute__((always_inline)) void line_sums(int taps, int vectors, bool whole, int64_t count,
                                                            int64_t pixels, const float *x, int64_t x_step,
                                                            int64_t apart, const float *dy, int64_t channels,
                                                            float *total)
{
    const int64_t width = whole ? CKPT_LANES : count;
    ckpt_lanes sum[4][2];
#pragma GCC unroll 4
    for (int t = 0; t < taps; t++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sum[t][v] = ckpt_all(0);
        }
    }
    for (int64_t j = 0; j < pixels; j++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const ckpt_lanes by = ckpt_load_some(width, dy + j * channels + v * CKPT_LANES);
#pragma GCC unroll 4
            for (int t = 0; t < taps; t++) {
                const float *const at = x + j * x_step + t * apart + v * CKPT_LANES;
                sum[t][v] = ckpt_fused(ckpt_load_some(width, at), by, sum[t][v]);
            }
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < taps; t++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *const at = total + t * channels + v * CKPT_LANES;
            ckpt_store_some(width, ckpt_load_some(width, at) + sum[t][v], at);
        }
    }
}

static inline __attribute__((always_inline)) void all_sums(int taps, int64_t pixels, const float *x, int64_t x_step,
                                                           int64_t apart, const float *dy, int64_t channels,
                                                           float *total)
{
    int64_t c = 0;
    for (; c + 2 * CKPT_LANES <= channels; c += 2 * CKPT_LANES) {
        line_sums(taps, 2, true, 0, pixels, x + c, x_step, apart, dy + c, channels, total + c);
    }
    for (; c < channels; c += CKPT_LANES) {
        if (channels - c >= CKPT_LANES) {
            line_sums(taps, 1, true, 0, pixels, x + c, x_step, apart, dy + c, channels, total + c);
        } else {
            line_sums(taps, 1, false, channels - c, pixels, x + c, x_step, apart, dy + c, channels, total + c);
        }
    }
}

/* Taps k .. k + taps - 1 of a row of them, over pixels `of` of a line of dy. */
static void add_taps(const ckpt_convolution *s, int taps, int64_t k, span of, const float *x, const float *dy,
                     float *total)
{
    const int64_t C = s->groups, apart = s->dilation[WIDTH] * C, step = s->stride[WIDTH] * C;
    const int64_t pixels = of.end - of.first;
    if (pixels <= 0) {
        return;
    }
    const float *const from = x + of.first * step + k * apart - s->padding[WIDTH] * C;
    dy += of.first * C;
    total += k * C;
    switch (taps) {
    case 1: all_sums(1, pixels, from, step, apart, dy, C, total); break;
    case 2: all_sums(2, pixels, from, step, apart, dy, C, total); break;
    case 3: all_sums(3, pixels, from, step, apart, dy, C, total); break;
    default: all_sums(4, pixels, from, step, apart, dy, C, total); break;
    }
}

/* A row of taps: the pixels that all of a group see, then those that some do. */
static void add_row(const ckpt_convolution *s, const float *x, const float *dy, float *total)
{
    const int64_t taps = s->kernel[WIDTH], count = s->out[WIDTH];
    for (int64_t k = 0; k < taps; k += 4) {
        const int group = taps - k < 4 ? (int)(taps - k) : 4;
        span of[4], inner = {0, count};
        for (int t = 0; t < group; t++) {
            const int64_t at = (k + t) * s->dilation[WIDTH] - s->padding[WIDTH];
            of[t] = within(at, s->stride[WIDTH], s->in[WIDTH], count);
            inner = both(inner, of[t]);
        }
        if (inner.end < inner.first) {
            inner.end = inner.first;
        }
        add_taps(s, group, k, inner, x, dy, total);
        for (int t = 0; t < group; t++) {
            add_taps(s, 1, k + t, both(of[t], (span){0, inner.first}), x, dy, total);
            add_taps(s, 1, k + t, both(of[t], (span){inner.end, count}), x, dy, total);
        }
    }
}

void ckpt_depthwise_weights(const ckpt_convolution *s, const float *x, const float *dy, float *dw, void *workspace,
                            int threads)
{
    const int64_t C = s->groups, taps = ckpt_convolution_taps(s), count = s->batch * s->out[HEIGHT];
    float *const sums = workspace;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        float *const mine = sums + t * sum_count(s);
        memset(mine, 0, (size_t)(C * taps) * sizeof *mine);
        for (int64_t l = count * t / threads; l < count * (t + 1) / threads; l++) {
            const float *const image = x + l / s->out[HEIGHT] * s->in[HEIGHT] * s->in[WIDTH] * C;
            for (int64_t h = 0; h < s->kernel[HEIGHT]; h++) {
                const int64_t place =
                    l % s->out[HEIGHT] * s->stride[HEIGHT] + h * s->dilation[HEIGHT] - s->padding[HEIGHT];
                if (place >= 0 && place < s->in[HEIGHT]) {
                    add_row(s, image + place * s->in[WIDTH] * C, dy + l * s->out[WIDTH] * C,
                            mine + h * s->kernel[WIDTH] * C);
                }
            }
        }
    }
    for (int64_t c = 0; c < C; c++) {
        for (int64_t k = 0; k < taps; k++) {
            float sum = sums[k * C + c];
            for (int t = 1; t < threads; t++) {
                sum += sums[t * sum_count(s) + k * C + c];
            }
            dw[c * taps + k] = sum;
        }
    }
}
