/* Pooling on the CPU. Channels are the fastest dimension, so every innermost loop runs over the channels of a pixel and
 * vectorises. Backward gathers: each input pixel sums the windows that cover it, in order, so that no two threads write
 * the same element. It all goes CHANNELS channels at a time, which of bfloat16 are widened. */
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { CHANNELS = 512 };

typedef struct window {
    bool narrow; /* x, y and their gradients are bfloat16 */
    int64_t batch, channels, in[2], out[2], kernel[2], stride[2], padding[2];
    bool
        adaptive; /* windows from floor(o in / out) to ceil((o + 1) in / out); positions are those of the whole image */
} window;

static window window_of(const ckpt_node *node)
{
    const ckpt_shape *x = &node->in[0].shape, *y = &node->out[0].shape;
    window w = {.narrow = node->dtype == CKPT_BFLOAT16,
                .batch = x->dim[0],
                .channels = x->dim[1],
                .adaptive = strncmp(node->op->name, "adaptive", strlen("adaptive")) == 0};
    for (int d = 0; d < 2; d++) {
        w.in[d] = x->dim[2 + d];
        w.out[d] = y->dim[2 + d];
        if (w.adaptive) {
            w.kernel[d] = w.in[d];
            continue;
        }
        w.kernel[d] = ckpt_node_int_at(node, "kernel_size", d);
        w.stride[d] = ckpt_node_int_at(node, "stride", d);
        w.stride[d] = w.stride[d] == 0 ? w.kernel[d] : w.stride[d];
        w.padding[d] = ckpt_node_int_at(node, "padding", d);
    }
    return w;
}

typedef struct span {
    int64_t first, end;
} span;

/* The input positions of output position `o` along dim `d`. */
static span covered(const window *w, int d, int64_t o)
{
    if (w->adaptive) {
        return (span){o * w->in[d] / w->out[d], ((o + 1) * w->in[d] - 1) / w->out[d] + 1};
    }
    const int64_t start = o * w->stride[d] - w->padding[d], end = start + w->kernel[d];
    return (span){start < 0 ? 0 : start, end > w->in[d] ? w->in[d] : end};
}

/* The output positions whose window covers input position `i` along dim `d`. */
static span covering(const window *w, int d, int64_t i)
{
    if (w->adaptive) {
        return (span){i * w->out[d] / w->in[d], ((i + 1) * w->out[d] - 1) / w->in[d] + 1};
    }
    const int64_t at = i + w->padding[d]; /* o * stride <= at < o * stride + kernel */
    const int64_t first = at < w->kernel[d] ? 0 : (at - w->kernel[d]) / w->stride[d] + 1;
    const int64_t end = at / w->stride[d] + 1;
    return (span){first, end > w->out[d] ? w->out[d] : end};
}

/* The input position that positions of output position `o` are counted from. */
static int64_t origin(const window *w, int d, int64_t o)
{
    return w->adaptive ? 0 : o * w->stride[d] - w->padding[d];
}

/* Positions of the node's layer are bytes: saved[0] is uint8, not int32. */
static bool byte_positions(const ckpt_node *node)
{
    return node->saved[0].dtype == CKPT_UINT8;
}

/* Channels that are taken together from channel `first` on. */
static int64_t some_channels(const window *w, int64_t first)
{
    return w->channels - first < CHANNELS ? w->channels - first : CHANNELS;
}

/* Some channels of an output pixel of an image whose first of them is element `image` of x, with the numbers of their maxima
 * in the window. */
static inline void max_channels(bool narrow, const window *w, const void *x, int64_t image, span rows, span columns,
                                int64_t top, int64_t left, int64_t n, float *y, int32_t *index)
{
    bool first = true;
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t k = columns.first; k < columns.end; k++) {
            const int64_t pixel = image + (h * w->in[1] + k) * w->channels;
            const int32_t position = (int32_t)((h - top) * w->kernel[1] + k - left);
            if (first) {
                first = false;
                for (int64_t c = 0; c < n; c++) {
                    y[c] = ckpt_element(narrow, x, pixel + c);
                    index[c] = position;
                }
                continue;
            }
#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                const float value = ckpt_element(narrow, x, pixel + c);
                const bool take = value > y[c] || value != value; /* NaN wins, as in PyTorch */
                y[c] = take ? value : y[c];
                index[c] = take ? position : index[c];
            }
        }
    }
}

/* Channel 0 of an output pixel is element `at` of y and of its positions. Numbers are as wide as values until they are
 * stored: loops of two widths are slow. */
static void max_pixel(const window *w, const void *x, int64_t image, span rows, span columns, int64_t top, int64_t left,
                      int64_t at, bool bytes, void *y, void *saved)
{
    int32_t index[CHANNELS];
    float room[CHANNELS];
    for (int64_t first = 0; first < w->channels; first += CHANNELS) {
        const int64_t n = some_channels(w, first);
        float *const most = ckpt_open_run(w->narrow, y, at + first, n, false, room);
        if (w->narrow) {
            max_channels(true, w, x, image + first, rows, columns, top, left, n, most, index);
        } else {
            max_channels(false, w, x, image + first, rows, columns, top, left, n, most, index);
        }
        ckpt_close_run(w->narrow, most, n, y, at + first);
        if (bytes) {
            uint8_t *const to = (uint8_t *)saved + at + first;
            for (int64_t c = 0; c < n; c++) {
                to[c] = (uint8_t)index[c];
            }
        } else {
            memcpy((int32_t *)saved + at + first, index, (size_t)n * sizeof index[0]);
        }
    }
}

static ckpt_code max_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
    const bool bytes = byte_positions(args->node);
#pragma omp parallel for schedule(static) num_threads(args->node->threads)
    for (int64_t row = 0; row < w.batch * w.out[0]; row++) {
        const int64_t n = row / w.out[0], i = row % w.out[0];
        for (int64_t j = 0; j < w.out[1]; j++) {
            max_pixel(&w, args->in[0], n * w.in[0] * w.in[1] * w.channels, covered(&w, 0, i), covered(&w, 1, j),
                      origin(&w, 0, i), origin(&w, 1, j), (row * w.out[1] + j) * w.channels, bytes, args->out[0],
                      args->saved[0]);
        }
    }
    return CKPT_OK;
}

/* dx += dy where the maximum was at `position`. dy is float32: bits, bytes and floats in one loop are no vector loop. */
#define GIVE(type)                                                                                                     \
    static void give_##type(int64_t n, const float *dy, const type *index, type position, float *dx)                   \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++)                                                            \
        {                                                                                                              \
            dx[c] += index[c] == position ? dy[c] : 0.0F;                                                              \
        }                                                                                                              \
    }
GIVE(uint8_t)
GIVE(int32_t)

/* `n` channels of one input pixel (h, k), from element `start` of dx on: the gradient of every window whose maximum it was.
 * `image`: their first element in the image of dy and of the positions. */
static void max_pixel_backward(const window *w, int64_t image, int64_t h, int64_t k, int64_t n, const void *dy,
                               const void *index, bool bytes, bool adds, int64_t start, void *dx)
{
    const span rows = covering(w, 0, h), columns = covering(w, 1, k);
    float room[CHANNELS], own[CHANNELS];
    float *const sum = ckpt_open_run(w->narrow, dx, start, n, adds, own);
    if (!adds) {
        memset(sum, 0, (size_t)n * sizeof *sum);
    }
    for (int64_t i = rows.first; i < rows.end; i++) {
        for (int64_t j = columns.first; j < columns.end; j++) {
            const int64_t u = h - origin(w, 0, i), v = k - origin(w, 1, j);
            const int32_t position = (int32_t)(u * w->kernel[1] + v);
            const int64_t at = image + (i * w->out[1] + j) * w->channels;
            const float *const given = ckpt_run(w->narrow, dy, at, n, room);
            if (bytes) {
                give_uint8_t(n, given, (const uint8_t *)index + at, (uint8_t)position, sum);
            } else {
                give_int32_t(n, given, (const int32_t *)index + at, position, sum);
            }
        }
    }
    ckpt_close_run(w->narrow, sum, n, dx, start);
}

static ckpt_code max_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
    const bool bytes = byte_positions(args->node), adds = (args->grad_in_adds & 1) != 0;
    if (args->grad_in[0] == NULL) {
        return CKPT_OK;
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads)
    for (int64_t row = 0; row < w.batch * w.in[0]; row++) {
        const int64_t image = row / w.in[0] * w.out[0] * w.out[1] * w.channels;
        for (int64_t at = 0; at < w.in[1] * w.channels; at += some_channels(&w, at % w.channels)) {
            const int64_t first = at % w.channels;
            max_pixel_backward(&w, image + first, row % w.in[0], at / w.channels, some_channels(&w, first),
                               args->grad_out[0], args->saved[0], bytes, adds, row * w.in[1] * w.channels + at,
                               args->grad_in[0]);
        }
    }
    return CKPT_OK;
}

/* The pixel of `to` whose first channel is element `at`: scale * the sum of the pixels in rows x columns of the image of
 * `from`, `width` wide, whose first element is `image`. */
static void sum_pixels(const window *w, const void *from, int64_t image, int64_t width, span rows, span columns,
                       float scale, void *to, int64_t at)
{
    float room[CHANNELS];
    for (int64_t first = 0; first < w->channels; first += CHANNELS) {
        const int64_t n = some_channels(w, first);
        float *const sum = ckpt_open_run(w->narrow, to, at + first, n, false, room);
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t i = rows.first; i < rows.end; i++) {
            for (int64_t j = columns.first; j < columns.end; j++) {
                const int64_t pixel = image + (i * width + j) * w->channels + first;
                if (w->narrow) {
                    ckpt_widen_add(n, (const uint16_t *)from + pixel, sum);
                } else {
                    ckpt_vector_add(n, (const float *)from + pixel, sum);
                }
            }
        }
        for (int64_t c = 0; c < n; c++) {
            sum[c] *= scale;
        }
        ckpt_close_run(w->narrow, sum, n, to, at + first);
    }
}

/* Forward sums the pixels a window covers; backward sums the windows that cover a pixel. */
static void average(const ckpt_kernel_args *args, const void *from, const int64_t from_size[2], void *to,
                    const int64_t to_size[2], span (*spans)(const window *w, int d, int64_t o))
{
    const window w = window_of(args->node);
    const float scale = 1 / (float)(w.kernel[0] * w.kernel[1]);
#pragma omp parallel for schedule(static) num_threads(args->node->threads)
    for (int64_t row = 0; row < w.batch * to_size[0]; row++) {
        const int64_t image = row / to_size[0] * from_size[0] * from_size[1] * w.channels;
        for (int64_t j = 0; j < to_size[1]; j++) {
            sum_pixels(&w, from, image, from_size[1], spans(&w, 0, row % to_size[0]), spans(&w, 1, j), scale, to,
                       (row * to_size[1] + j) * w.channels);
        }
    }
}

static ckpt_code average_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
    average(args, args->in[0], w.in, args->out[0], w.out, covered);
    return CKPT_OK;
}

static ckpt_code average_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
    if (args->grad_in[0] != NULL) {
        average(args, args->grad_out[0], w.out, args->grad_in[0], w.in, covering);
    }
    return CKPT_OK;
}

/* 1 / the number of pixels that the window of output pixel (i, j) covers. */
static float share_of(const window *w, int64_t i, int64_t j)
{
    const span rows = covered(w, 0, i), columns = covered(w, 1, j);
    return 1 / (float)((rows.end - rows.first) * (columns.end - columns.first));
}

static ckpt_code adaptive_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
#pragma omp parallel for schedule(static) num_threads(args->node->threads)
    for (int64_t row = 0; row < w.batch * w.out[0]; row++) {
        const int64_t n = row / w.out[0], i = row % w.out[0];
        for (int64_t j = 0; j < w.out[1]; j++) {
            sum_pixels(&w, args->in[0], n * w.in[0] * w.in[1] * w.channels, w.in[1], covered(&w, 0, i),
                       covered(&w, 1, j), share_of(&w, i, j), args->out[0], (row * w.out[1] + j) * w.channels);
        }
    }
    return CKPT_OK;
}

/* The gradient of input pixel (h, k), whose first channel is element `start` of dx: a share of every window that covers it. */
static void adaptive_pixel_backward(const window *w, int64_t image, int64_t h, int64_t k, const void *dy, int64_t start,
                                    void *dx)
{
    const span rows = covering(w, 0, h), columns = covering(w, 1, k);
    float room[CHANNELS], own[CHANNELS];
    for (int64_t first = 0; first < w->channels; first += CHANNELS) {
        const int64_t n = some_channels(w, first);
        float *const sum = ckpt_open_run(w->narrow, dx, start + first, n, false, own);
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t i = rows.first; i < rows.end; i++) {
            for (int64_t j = columns.first; j < columns.end; j++) {
                const int64_t at = image + (i * w->out[1] + j) * w->channels + first;
                const float *const given = ckpt_run(w->narrow, dy, at, n, room);
                const float share = share_of(w, i, j);
#pragma omp simd
                for (int64_t c = 0; c < n; c++) {
                    sum[c] += given[c] * share;
                }
            }
        }
        ckpt_close_run(w->narrow, sum, n, dx, start + first);
    }
}

static ckpt_code adaptive_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const window w = window_of(args->node);
    if (args->grad_in[0] == NULL) {
        return CKPT_OK;
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads)
    for (int64_t row = 0; row < w.batch * w.in[0]; row++) {
        const int64_t image = row / w.in[0] * w.out[0] * w.out[1] * w.channels;
        for (int64_t k = 0; k < w.in[1]; k++) {
            adaptive_pixel_backward(&w, image, row % w.in[0], k, args->grad_out[0], (row * w.in[1] + k) * w.channels,
                                    args->grad_in[0]);
        }
    }
    return CKPT_OK;
}

static ckpt_code global_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_tensor *const x = &args->node->in[0];
    const int64_t channels = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
    const bool narrow = x->dtype == CKPT_BFLOAT16;
    for (int64_t n = 0; n < x->shape.dim[0]; n++) {
        const int64_t at = n * channels;
        float *const y = ckpt_open_run(narrow, args->out[0], at, channels, false, args->workspace);
        ckpt_column_sums(x->dtype, pixels, channels,
                         (const char *)args->in[0] + at * pixels * ckpt_dtype_bytes(x->dtype), y, false,
                         args->node->threads);
        for (int64_t c = 0; c < channels; c++) {
            y[c] /= (float)pixels;
        }
        ckpt_close_run(narrow, y, channels, args->out[0], at);
    }
    return CKPT_OK;
}

static void global_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = node->dtype == CKPT_BFLOAT16 ? node->in[0].shape.dim[1] * (ckpt_bytes)sizeof(float) : 0;
    *backward = 0;
}

/* A pixel of dx, its first channel element `to`, from the only pixel of dy. */
static inline void global_pixel_backward(bool narrow, int64_t channels, float count, const void *dy, int64_t from,
                                         void *dx, int64_t to)
{
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
        ckpt_put_element(narrow, ckpt_element(narrow, dy, from + c) / count, dx, to + c);
    }
}

static ckpt_code global_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_shape *x_shape = &args->node->in[0].shape;
    const int64_t channels = x_shape->dim[1], pixels = x_shape->dim[2] * x_shape->dim[3];
    const void *const dy = args->grad_out[0];
    void *const dx = args->grad_in[0];
    if (dx == NULL) {
        return CKPT_OK;
    }
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (pixels * channels > CKPT_PARALLEL)
    for (int64_t row = 0; row < x_shape->dim[0] * pixels; row++) {
        const int64_t from = row / pixels * channels;
        if (args->node->dtype == CKPT_BFLOAT16) {
            global_pixel_backward(true, channels, (float)pixels, dy, from, dx, row * channels);
        } else {
            global_pixel_backward(false, channels, (float)pixels, dy, from, dx, row * channels);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_maxpool2d = {
    .op = "maxpool2d",
    .forward = max_forward,
    .backward = max_backward,
};

const ckpt_kernel ckpt_cpu_avgpool2d = {
    .op = "avgpool2d",
    .forward = average_forward,
    .backward = average_backward,
};

const ckpt_kernel ckpt_cpu_adaptive_maxpool2d = {
    .op = "adaptive_maxpool2d",
    .forward = max_forward,
    .backward = max_backward,
};

const ckpt_kernel ckpt_cpu_adaptive_avgpool2d = {
    .op = "adaptive_avgpool2d",
    .forward = adaptive_forward,
    .backward = adaptive_backward,
};

const ckpt_kernel ckpt_cpu_global_avgpool = {
    .op = "global_avgpool",
    .workspace = global_workspace,
    .forward = global_forward,
    .backward = global_backward,
};
