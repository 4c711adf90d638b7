/* Convolutions on the CPU by oneDNN, channels last, directly or by Winograd's. All are one of three computations
 * (ops/convolution.h); a transposed layer runs the gradient by the input forward. With filters of one tap and no padding
 * they run as matrix products over pixels, whose weights need no reordering. With a stride, the pixels that count are
 * first gathered into the workspace. Where oneDNN is slow (ckpt_convolution_is_columns) the values of all taps are
 * gathered, tap by tap, and filters are turned into that order. */
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pixels.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { FORWARD = CKPT_DNN_FORWARD, INPUT = CKPT_DNN_INPUT_GRADIENT, WEIGHT = CKPT_DNN_WEIGHT_GRADIENT, DIRECTIONS };

typedef struct convolution {
    ckpt_dnn *call[DIRECTIONS];
    /* NULL: oneDNN has none here. Where it has one of backward's two, the other is the layer's own. */
    ckpt_dnn *winograd[DIRECTIONS];
    bool product;            /* the calls are matrix products */
    bool own_weights;        /* the gradient of the filters is our own loop (depthwise.h), not a call */
    ckpt_bytes gather_bytes; /* of pixels gathered at the start of the workspace; 0: not gathered */
    ckpt_bytes turned_bytes; /* of filters turned behind them; 0: not turned */
} convolution;

/* The direction that computes the layer's output, and the one that computes its input's gradient. */
static ckpt_dnn_direction output_direction(const ckpt_convolution *s)
{
    return s->transposed ? CKPT_DNN_INPUT_GRADIENT : CKPT_DNN_FORWARD;
}

static ckpt_dnn_direction gradient_direction(const ckpt_convolution *s)
{
    return s->transposed ? CKPT_DNN_FORWARD : CKPT_DNN_INPUT_GRADIENT;
}

static bool runs_backward(const ckpt_convolution *s, int direction)
{
    return direction != (int)output_direction(s);
}

static bool is_wanted(const ckpt_node *node, const ckpt_convolution *s, int direction)
{
    return direction != (int)gradient_direction(s) || (node->grad_in & 1) != 0;
}

static ckpt_code fill_product(convolution *state, const ckpt_node *node, const ckpt_convolution *s, ckpt_bytes forward,
                              ckpt_bytes backward, ckpt_err *err)
{
    const int64_t rows = ckpt_convolution_out_rows(s), taps = ckpt_convolution_taps(s);
    const int64_t in = s->in_channels * taps, out = s->out_channels;
    const ckpt_dtype type = node->dtype;
    const ckpt_dnn_matrix x = ckpt_dnn_plain(rows, in, type), y = ckpt_dnn_plain(rows, out, type),
                          w = ckpt_dnn_plain(out, in, type), w_turned = ckpt_dnn_turned(out, in, type),
                          y_turned = ckpt_dnn_turned(rows, out, type), dw = ckpt_dnn_plain(out, in, CKPT_FLOAT32);
    const ckpt_dnn_matrix *const operand[DIRECTIONS][3] = {
        [FORWARD] = {&x, &w_turned, &y}, [INPUT] = {&y, &w, &x}, [WEIGHT] = {&y_turned, &x, &dw}};
    if (!ckpt_convolution_is_product(s, true)) {
        state->gather_bytes = ckpt_round_up(rows * in * ckpt_dtype_bytes(type), CKPT_ALIGN);
        state->turned_bytes = taps > 1 ? ckpt_round_up(in * out * (ckpt_bytes)sizeof(float), CKPT_ALIGN) : 0;
    }
    const ckpt_bytes first = state->gather_bytes + state->turned_bytes;
    /* As in linear.c. */
    forward = (forward < 0 ? node->forward_workspace_bytes : forward) - first;
    backward = (backward < 0 ? node->backward_workspace_bytes : backward) - first;
    if (forward < 0 || backward < 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "%lld and %lld bytes of workspace given, %lld wanted for gathered pixels",
                         (long long)(forward + first), (long long)(backward + first), (long long)first);
    }
    for (int d = 0; d < DIRECTIONS; d++) {
        if (is_wanted(node, s, d)) {
            const ckpt_dnn_matrix *const *const m = operand[d];
            CKPT_TRY(ckpt_dnn_matmul(m[0], m[1], m[2], s->bias && d == FORWARD, false, node->threads,
                                     runs_backward(s, d) ? backward : forward, &state->call[d], err));
        }
    }
    return CKPT_OK;
}

/* What the library refuses is left out; other errors count. */
static ckpt_code add_winograd(const ckpt_node *node, const ckpt_convolution *s, ckpt_dnn_direction direction,
                              ckpt_dnn **made, ckpt_err *err)
{
    ckpt_err refusal = {0};
    const ckpt_code code = ckpt_dnn_winograd(s, direction, node->threads, made, &refusal);
    return code == CKPT_OK || code == CKPT_DEVICE ? CKPT_OK : CKPT_FAIL(err, code, "%s", refusal.msg);
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    convolution *const c = state;
    (void)choice; /* none on a CPU */
    (void)context;
    const ckpt_convolution s = ckpt_convolution_of(node);
    c->product = ckpt_convolution_is_product(&s, false) || ckpt_convolution_is_columns(&s);
    if (c->product) {
        return fill_product(c, node, &s, forward, backward, err);
    }
    c->own_weights = ckpt_depthwise_is(&s) && (backward < 0 || backward >= ckpt_depthwise_workspace(&s, node->threads));
    const bool winograd = ckpt_node_find_way(node, "winograd", false) != NULL;
    for (int d = 0; d < DIRECTIONS; d++) {
        if (is_wanted(node, &s, d) && !(d == WEIGHT && c->own_weights)) {
            CKPT_TRY(ckpt_dnn_convolution(&s, (ckpt_dnn_direction)d, node->threads,
                                          runs_backward(&s, d) ? backward : forward, &c->call[d], err));
            if (winograd) {
                CKPT_TRY(add_winograd(node, &s, (ckpt_dnn_direction)d, &c->winograd[d], err));
            }
        }
    }
    return CKPT_OK;
}

static void release(void *state)
{
    convolution *const c = state;
    for (int d = 0; d < DIRECTIONS; d++) {
        ckpt_dnn_destroy(c->call[d]);
        ckpt_dnn_destroy(c->winograd[d]);
    }
}

/* The call of a direction; winograd: that way's, where there is one. */
static const ckpt_dnn *call_of(const convolution *c, int direction, bool winograd)
{
    return winograd && c->winograd[direction] != NULL ? c->winograd[direction] : c->call[direction];
}

/* Of the directions of a pass. */
static ckpt_bytes pass_bytes(const ckpt_node *node, const convolution *c, bool backward, bool winograd)
{
    const ckpt_convolution s = ckpt_convolution_of(node);
    ckpt_bytes most = backward && c->own_weights ? ckpt_depthwise_workspace(&s, node->threads) : 0;
    for (int d = 0; d < DIRECTIONS; d++) {
        const ckpt_dnn *const call = runs_backward(&s, d) == backward ? call_of(c, d, winograd) : NULL;
        const ckpt_bytes bytes = call == NULL ? 0 : ckpt_dnn_workspace(call);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static ckpt_bytes way_workspace(const ckpt_node *node, const void *state, const ckpt_way *way)
{
    const convolution *const c = state;
    const bool here =
        way->backward ? c->winograd[WEIGHT] != NULL || c->winograd[INPUT] != NULL : c->winograd[FORWARD] != NULL;
    return here ? pass_bytes(node, c, way->backward, true) : CKPT_WAY_ABSENT;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const convolution *const c = state;
    *forward = c->gather_bytes + c->turned_bytes + pass_bytes(node, c, false, false);
    *backward = c->gather_bytes + c->turned_bytes + pass_bytes(node, c, true, false);
}

/* The line of x that line `row` of y sees: lines of all images and depths are numbered through. */
static int64_t line_seen(const ckpt_convolution *s, int64_t row)
{
    const int64_t plane = row / s->out[1], image = plane / s->out[0];
    return (image * s->in[0] + plane % s->out[0] * s->stride[0]) * s->in[1] + row % s->out[1] * s->stride[1];
}

/* Copies the pixel of x of each pixel of y, or back: then all other pixels of x become zero. */
static void move_pixels(const ckpt_node *node, const char *from, char *to, bool back)
{
    const ckpt_convolution s = ckpt_convolution_of(node);
    const int64_t rows = s.batch * s.out[0] * s.out[1], pixel = s.in_channels * ckpt_dtype_bytes(s.dtype);
#pragma omp parallel for schedule(static) num_threads(node->threads)
    for (int64_t row = 0; row < rows; row++) {
        /* This iteration clears the lines of x from this one's to the next one's. */
        const int64_t top = line_seen(&s, row);
        const int64_t below = row + 1 < rows ? line_seen(&s, row + 1) : s.batch * s.in[0] * s.in[1];
        if (back) {
            memset(to + top * s.in[2] * pixel, 0, (size_t)((below - top) * s.in[2] * pixel));
        }
        for (int64_t j = 0; j < s.out[2]; j++) {
            const int64_t large = (top * s.in[2] + j * s.stride[2]) * pixel, small = (row * s.out[2] + j) * pixel;
            memcpy(to + (back ? large : small), from + (back ? small : large), (size_t)pixel);
        }
    }
}

/* columns[pixel of y][tap][C] from x. */
static void gather_columns(const ckpt_convolution *s, const char *x, char *columns, int threads)
{
    const int64_t pixel = s->in_channels * ckpt_dtype_bytes(s->dtype), taps = ckpt_convolution_taps(s),
                  rows = ckpt_convolution_out_rows(s);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t t = 0; t < taps; t++) {
            const ckpt_place tap = ckpt_place_of(t, s->kernel);
            const int64_t from = ckpt_pixel_seen(s, row, &tap);
            char *const to = columns + (row * taps + t) * pixel;
            if (from < 0) {
                memset(to, 0, (size_t)pixel);
            } else {
                memcpy(to, x + from * pixel, (size_t)pixel);
            }
        }
    }
}

/* Channels first .. first + n - 1 of pixel `row` of x: the sum of what stands for it, tap by tap. */
static void sum_pixel(const ckpt_convolution *s, const void *columns, int64_t row, int64_t first, int64_t n, float *sum)
{
    const int64_t C = s->in_channels, taps = ckpt_convolution_taps(s);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t t = 0; t < taps; t++) {
        const ckpt_place tap = ckpt_place_of(t, s->kernel);
        const int64_t from = ckpt_pixel_seeing(s, row, &tap), at = (from * taps + t) * C + first;
        if (from >= 0 && s->dtype == CKPT_BFLOAT16) {
            ckpt_widen_add(n, (const uint16_t *)columns + at, sum);
        } else if (from >= 0) {
            ckpt_vector_add(n, (const float *)columns + at, sum);
        }
    }
}

/* x from columns. */
static void sum_columns(const ckpt_convolution *s, const void *columns, void *x, int threads)
{
    enum { PIECE = 1024 };
    const int64_t C = s->in_channels, rows = ckpt_convolution_in_rows(s);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t first = 0; first < C; first += PIECE) {
            float sum[PIECE];
            const int64_t n = C - first < PIECE ? C - first : PIECE;
            if (s->dtype == CKPT_BFLOAT16) {
                sum_pixel(s, columns, row, first, n, sum);
                ckpt_narrow(n, sum, (uint16_t *)x + row * C + first);
            } else {
                sum_pixel(s, columns, row, first, n, (float *)x + row * C + first);
            }
        }
    }
}

/* Filters [out][C][tap] of the layer's type as columns are, [out][tap][C], or a gradient of float32 back. */
static void turn_filters(const ckpt_convolution *s, const void *from, void *to, bool back, int threads)
{
    const bool narrow = s->dtype == CKPT_BFLOAT16 && !back;
    const int64_t C = s->in_channels, taps = ckpt_convolution_taps(s);
#pragma omp parallel for schedule(static) num_threads(threads) if (s->out_channels * C * taps > CKPT_PARALLEL)
    for (int64_t o = 0; o < s->out_channels; o++) {
        for (int64_t c = 0; c < C; c++) {
            for (int64_t t = 0; t < taps; t++) {
                const int64_t written = (o * C + c) * taps + t, turned = (o * taps + t) * C + c;
                const int64_t at = back ? turned : written, there = back ? written : turned;
                if (narrow) {
                    ((uint16_t *)to)[there] = ((const uint16_t *)from)[at];
                } else {
                    ((float *)to)[there] = ((const float *)from)[at];
                }
            }
        }
    }
}

/* One direction over pixels: y = x W^T, dx = dy W, dW = dy^T x. */
static ckpt_code run_product(const ckpt_kernel_args *args, ckpt_dnn_direction direction, const void *x, const void *w,
                             const void *y, const void *bias, ckpt_err *err)
{
    const convolution *const c = args->state;
    const ckpt_convolution s = ckpt_convolution_of(args->node);
    const int threads = args->node->threads;
    const bool gathers = c->gather_bytes > 0, turns = c->turned_bytes > 0;
    char *const pixels = args->workspace, *const turned = pixels + c->gather_bytes;
    const void *const seen = gathers ? pixels : x, *const filters = turns ? turned : w;
    const void *const pointer[DIRECTIONS][4] = {
        [FORWARD] = {seen, filters, y, bias}, [INPUT] = {y, filters, seen, NULL}, [WEIGHT] = {y, seen, filters, NULL}};
    if (turns && direction != CKPT_DNN_WEIGHT_GRADIENT) {
        turn_filters(&s, w, turned, false, threads);
    }
    if (turns && direction != CKPT_DNN_INPUT_GRADIENT) {
        gather_columns(&s, x, pixels, threads);
    } else if (gathers && direction != CKPT_DNN_INPUT_GRADIENT) {
        move_pixels(args->node, x, pixels, false);
    }
    CKPT_TRY(ckpt_dnn_run(c->call[direction], pointer[direction], turned + c->turned_bytes, err));
    if (turns && direction == CKPT_DNN_WEIGHT_GRADIENT) {
        turn_filters(&s, turned, (void *)w, true, threads);
    } else if (turns && direction == CKPT_DNN_INPUT_GRADIENT) {
        sum_columns(&s, pixels, (void *)x, threads);
    } else if (gathers && direction == CKPT_DNN_INPUT_GRADIENT) {
        move_pixels(args->node, pixels, (void *)x, true);
    }
    return CKPT_OK;
}

/* One direction, with the pointers of the common form. */
static ckpt_code run(const ckpt_kernel_args *args, ckpt_dnn_direction direction, const void *x, const void *w,
                     const void *y, const void *bias, ckpt_err *err)
{
    const convolution *const c = args->state;
    if (direction == CKPT_DNN_WEIGHT_GRADIENT && c->own_weights) {
        const ckpt_convolution s = ckpt_convolution_of(args->node);
        ckpt_depthwise_weights(&s, x, y, (float *)w, args->workspace, args->node->threads);
        return CKPT_OK;
    }
    return c->product ? run_product(args, direction, x, w, y, bias, err)
                      : ckpt_dnn_run(call_of(c, direction, args->way != NULL), (const void *const[4]){x, w, y, bias},
                                     args->workspace, err);
}

/* y += bias, pixel by pixel. */
static void add_bias(const ckpt_convolution *s, const float *bias, void *y, int threads)
{
    enum { PIECE = 1024 };
    const int64_t rows = ckpt_convolution_in_rows(s), channels = s->in_channels;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * channels > CKPT_PARALLEL)
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t first = 0; first < channels; first += PIECE) {
            const int64_t n = channels - first < PIECE ? channels - first : PIECE, at = row * channels + first;
            if (s->dtype == CKPT_FLOAT32) {
                ckpt_vector_add(n, bias + first, (float *)y + at);
                continue;
            }
            float sum[PIECE];
            ckpt_widen(n, (const uint16_t *)y + at, sum);
            ckpt_vector_add(n, bias + first, sum);
            ckpt_narrow(n, sum, (uint16_t *)y + at);
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const convolution *const c = args->state;
    const ckpt_convolution s = ckpt_convolution_of(node);
    const float *const bias = node->param_count > 1 ? args->param[1] : NULL;
    const void *const w = ckpt_product_param(args, 0);
    if (!s.transposed) { /* a product's bias is of the filters' type */
        const void *const added = bias != NULL && c->product ? ckpt_product_param(args, 1) : bias;
        return run(args, CKPT_DNN_FORWARD, args->in[0], w, args->out[0], added, err);
    }
    CKPT_TRY(run(args, CKPT_DNN_INPUT_GRADIENT, args->out[0], w, args->in[0], NULL, err));
    if (bias != NULL) {
        add_bias(&s, bias, args->out[0], node->threads);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const ckpt_convolution s = ckpt_convolution_of(node);
    const convolution *const c = args->state;
    const void *const in = args->in[0], *const dy = args->grad_out[0], *const dx = args->grad_in[0];
    float *const bias = node->param_count > 1 ? args->grad_param[1] : NULL;
    const bool by_library = s.bias && !c->product && !c->own_weights;
    CKPT_TRY(run(args, CKPT_DNN_WEIGHT_GRADIENT, s.transposed ? dy : in, args->grad_param[0], s.transposed ? in : dy,
                 by_library ? bias : NULL, err));
    if (bias != NULL && !by_library) {
        const int64_t rows = s.transposed ? ckpt_convolution_in_rows(&s) : ckpt_convolution_out_rows(&s);
        ckpt_column_sums(s.dtype, rows, s.transposed ? s.in_channels : s.out_channels, dy, bias, false, node->threads);
    }
    return dx == NULL ? CKPT_OK
                      : run(args, gradient_direction(&s), s.transposed ? dy : dx, ckpt_product_param(args, 0),
                            s.transposed ? dx : dy, NULL, err);
}

/* clang-format off */
#define CONVOLUTION(name) \
    .op = (name), .state_bytes = sizeof(convolution), .prepare = prepare, .release = release, .workspace = workspace, \
    .way_workspace = way_workspace, .forward = forward, .backward = backward
/* clang-format on */

const ckpt_kernel ckpt_cpu_conv1d = {CONVOLUTION("conv1d")};
const ckpt_kernel ckpt_cpu_conv2d = {CONVOLUTION("conv2d")};
const ckpt_kernel ckpt_cpu_conv3d = {CONVOLUTION("conv3d")};
const ckpt_kernel ckpt_cpu_conv_transpose1d = {CONVOLUTION("conv_transpose1d")};
const ckpt_kernel ckpt_cpu_conv_transpose2d = {CONVOLUTION("conv_transpose2d")};
