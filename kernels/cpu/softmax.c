/* Softmax and log-softmax along one axis. If the axis is the fastest in memory, a row is computed at once; otherwise a
 * strip of neighbouring rows goes down the axis side by side. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { STRIP = 64 };

/* x[o][a][i]: `inner` elements lie between neighbours along the axis. */
typedef struct axis_view {
    int64_t outer, length, inner, strips, count;
} axis_view;

static axis_view view_axis(const ckpt_node *node)
{
    const ckpt_shape *const shape = &node->in[0].shape;
    const int64_t axis = ckpt_node_int(node, "axis");
    const int64_t d = axis < 0 ? axis + shape->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride);
    axis_view view = {.length = shape->dim[d], .inner = stride[d], .count = ckpt_shape_count(shape)};
    view.outer = view.count / (view.length * view.inner);
    view.strips = (view.inner + STRIP - 1) / STRIP;
    return view;
}

static bool takes_log(const ckpt_node *node)
{
    return strcmp(node->op->name, "log_softmax") == 0;
}

static void forward_row(bool is_log, int64_t n, const float *x, float *y)
{
    const float most = ckpt_vector_max(n, x);
    if (is_log) {
        const float lse = most + logf(ckpt_vector_exp_sum(n, x, most));
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i] - lse;
        }
        return;
    }
    ckpt_vector_exp(n, x, most, 1.0f, y);
    const float factor = 1.0f / ckpt_vector_sum(n, y);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] *= factor;
    }
}

/* n <= STRIP rows, each `length` elements at distance `inner` */
static void forward_strip(bool is_log, int64_t length, int64_t inner, int64_t n, const float *x, float *y)
{
    float most[STRIP], sum[STRIP], power[STRIP];
    for (int64_t i = 0; i < STRIP; i++) {
        most[i] = i < n ? x[i] : 0.0f;
        sum[i] = power[i] = 0.0f;
    }
    for (int64_t a = 1; a < length; a++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            most[i] = x[a * inner + i] > most[i] ? x[a * inner + i] : most[i];
        }
    }
    for (int64_t a = 0; a < length; a++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            power[i] = x[a * inner + i] - most[i];
        }
        ckpt_vector_exp(n, power, 0.0f, 1.0f, power);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            sum[i] += power[i];
            y[a * inner + i] = power[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sum[i] = is_log ? most[i] + logf(sum[i]) : 1.0f / sum[i];
    }
    for (int64_t a = 0; a < length; a++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float shifted = x[a * inner + i] - sum[i], scaled = y[a * inner + i] * sum[i];
            y[a * inner + i] = is_log ? shifted : scaled;
        }
    }
}

static void backward_row(bool is_log, int64_t n, const float *y, const float *dy, float *dx)
{
    if (is_log) {
        const float sum = ckpt_vector_sum(n, dy);
        ckpt_vector_exp(n, y, 0.0f, sum, dx);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] = dy[i] - dx[i];
        }
        return;
    }
    const float dot = ckpt_vector_dot(n, y, dy);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = y[i] * (dy[i] - dot);
    }
}

static void backward_strip(bool is_log, int64_t length, int64_t inner, int64_t n, const float *y, const float *dy,
                           float *dx)
{
    float sum[STRIP] = {0}, power[STRIP] = {0};
    for (int64_t a = 0; a < length; a++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float product = y[a * inner + i] * dy[a * inner + i];
            sum[i] += is_log ? dy[a * inner + i] : product;
        }
    }
    for (int64_t a = 0; a < length; a++) {
        if (is_log) {
            ckpt_vector_exp(n, y + a * inner, 0.0f, 1.0f, power);
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float plain = y[a * inner + i] * (dy[a * inner + i] - sum[i]);
            dx[a * inner + i] = is_log ? dy[a * inner + i] - power[i] * sum[i] : plain;
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const bool is_log = takes_log(args->node);
    const axis_view view = view_axis(args->node);
    const float *const x = args->in[0];
    float *const y = args->out[0];
    const int64_t pieces = view.outer * view.strips;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (view.count > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (view.inner == 1) {
            forward_row(is_log, view.length, x + piece * view.length, y + piece * view.length);
            continue;
        }
        const int64_t i = piece % view.strips * STRIP, n = view.inner - i < STRIP ? view.inner - i : STRIP;
        const int64_t from = piece / view.strips * view.length * view.inner + i;
        forward_strip(is_log, view.length, view.inner, n, x + from, y + from);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const bool is_log = takes_log(args->node);
    const axis_view view = view_axis(args->node);
    const float *const y = args->out[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const int64_t pieces = view.outer * view.strips;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (view.count > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (view.inner == 1) {
            const int64_t from = piece * view.length;
            backward_row(is_log, view.length, y + from, dy + from, dx + from);
            continue;
        }
        const int64_t i = piece % view.strips * STRIP, n = view.inner - i < STRIP ? view.inner - i : STRIP;
        const int64_t from = piece / view.strips * view.length * view.inner + i;
        backward_strip(is_log, view.length, view.inner, n, y + from, dy + from, dx + from);
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_softmax = {
    .op = "softmax",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_log_softmax = {
    .op = "log_softmax",
    .forward = forward,
    .backward = backward,
};
