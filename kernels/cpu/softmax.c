/* Softmax and log-softmax along one axis. If the axis is the fastest in memory, a row is computed at once; otherwise a
 * strip of neighbouring rows goes down the axis side by side. Each thread widens its row or strip of bfloat16. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { STRIP = CKPT_SOFTMAX_STRIP };

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

/* A row or strip: `length` neighbours along the axis of `n` elements each, at distance `inner`, from element `at` on. Where
 * the axis is the fastest, it is one of `length` elements. */
typedef struct strip {
    int64_t at, n, lines, distance;
} strip;

static strip strip_at(const axis_view *view, int64_t piece)
{
    if (view->inner == 1) {
        return (strip){piece * view->length, view->length, 1, view->length};
    }
    const int64_t i = piece % view->strips * STRIP, n = view->inner - i < STRIP ? view->inner - i : STRIP;
    return (strip){piece / view->strips * view->length * view->inner + i, n, view->length, view->inner};
}

static const float *widen_strip(const strip *s, const void *x, float *room)
{
    for (int64_t a = 0; a < s->lines; a++) {
        ckpt_widen(s->n, (const uint16_t *)x + s->at + a * s->distance, room + a * s->n);
    }
    return room;
}

static void narrow_strip(const strip *s, const float *room, void *y)
{
    for (int64_t a = 0; a < s->lines; a++) {
        ckpt_narrow(s->n, room + a * s->n, (uint16_t *)y + s->at + a * s->distance);
    }
}

/* Forward from x to y; backward, where dy is given, from y and dy to dx. */
static void run(const ckpt_kernel_args *args, const void *x, const void *dy, void *to)
{
    const ckpt_node *const node = args->node;
    const bool is_log = takes_log(node), narrow = node->dtype == CKPT_BFLOAT16;
    const axis_view view = view_axis(node);
    const int64_t pieces = view.outer * view.strips, room = ckpt_softmax_room(node);
#pragma omp parallel for schedule(static) num_threads(node->threads) if (view.count > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        const strip s = strip_at(&view, piece);
        float *const own = narrow ? (float *)args->workspace + 2 * room * omp_get_thread_num() : NULL;
        const float *const from = narrow ? widen_strip(&s, x, own) : (const float *)x + s.at;
        const float *const grad = dy == NULL ? NULL
                                  : narrow   ? widen_strip(&s, dy, own + room)
                                             : (const float *)dy + s.at;
        float *const result = !narrow ? (float *)to + s.at : dy == NULL ? own + room : own;
        const int64_t inner = narrow ? s.n : s.distance;
        if (view.inner == 1 && grad == NULL) {
            forward_row(is_log, s.n, from, result);
        } else if (view.inner == 1) {
            backward_row(is_log, s.n, from, grad, result);
        } else if (grad == NULL) {
            forward_strip(is_log, view.length, inner, s.n, from, result);
        } else {
            backward_strip(is_log, view.length, inner, s.n, from, grad, result);
        }
        if (narrow) {
            narrow_strip(&s, result, to);
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args, args->in[0], NULL, args->out[0]);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args, args->out[0], args->grad_out[0], args->grad_in[0]);
    return CKPT_OK;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    const ckpt_bytes rooms = 2 * node->threads * ckpt_softmax_room(node) * (ckpt_bytes)sizeof(float);
    *forward = *backward = node->dtype == CKPT_BFLOAT16 ? rooms : 0;
}

const ckpt_kernel ckpt_cpu_softmax = {
    .op = "softmax",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_log_softmax = {
    .op = "log_softmax",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
