/* labels: unit */
/* The plain loops for bfloat16, which run where oneDNN has no fast code, whatever the processor of this machine: random
 * products and convolutions beside their definitions in double, and the same bits with one and three threads. */
#include "tests/support/support_test.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/product16.h"

enum { ROOM = 40000 };

typedef struct numbers {
    uint16_t narrow[ROOM];
    float wide[ROOM];
} numbers;

static numbers x, w, y, again, bias;

static void fill(numbers *n)
{
    for (int i = 0; i < ROOM; i++) {
        n->narrow[i] = ckpt_bfloat16_of((float)ckpt_test_draw(2001) / 1000.0f - 1.0f);
        n->wide[i] = ckpt_bfloat16_value(n->narrow[i]);
    }
}

static const void *memory(const numbers *n, ckpt_dtype dtype)
{
    return dtype == CKPT_BFLOAT16 ? (const void *)n->narrow : n->wide;
}

static double value(const numbers *n, ckpt_dtype dtype, int64_t at)
{
    return dtype == CKPT_BFLOAT16 ? (double)ckpt_bfloat16_value(n->narrow[at]) : (double)n->wide[at];
}

/* `sum`: what is rounded; `size`: of its terms' absolute values, for the float32 sum's own error. */
static void check(const char *what, const numbers *found, ckpt_dtype dtype, int64_t at, double sum, double size)
{
    const double got = value(found, dtype, at);
    const double unit = dtype == CKPT_BFLOAT16 ? fabs(sum) / 256 : 0;
    CHECK(fabs(got - sum) <= unit + 1e-5 * size + 1e-6, "%s: element %lld: %g, wanted %g", what, (long long)at, got,
          sum);
}

static int64_t draw(int64_t most)
{
    return 1 + (int64_t)ckpt_test_draw((uint64_t)most);
}

static ckpt_dnn_matrix matrix(int64_t rows, int64_t columns, ckpt_dtype dtype)
{
    return ckpt_test_draw(2) == 0 ? ckpt_dnn_plain(rows, columns, dtype) : ckpt_dnn_turned(columns, rows, dtype);
}

static int64_t place(const ckpt_dnn_matrix *m, int64_t row, int64_t column)
{
    return row * m->row_stride + column * m->column_stride;
}

static void run_twice(const ckpt_product16 *p, const void *const pointer[4], int written, ckpt_dtype dtype)
{
    const void *other[4];
    memcpy(other, pointer, sizeof other);
    other[written] = memory(&again, dtype);
    memcpy(&again, &y, sizeof again);
    ckpt_product16_run(p, pointer, 1);
    ckpt_product16_run(p, other, 3);
    CHECK(memcmp(&again, &y, sizeof again) == 0, "one thread and three give other bits");
}

static void try_product(void)
{
    const int64_t M = draw(70), N = draw(100), K = draw(150);
    const ckpt_dtype to = ckpt_test_draw(2) == 0 ? CKPT_BFLOAT16 : CKPT_FLOAT32;
    const ckpt_product16 p = {.x = matrix(M, K, CKPT_BFLOAT16),
                              .w = matrix(K, N, CKPT_BFLOAT16),
                              .y = ckpt_dnn_plain(M, N, to),
                              .bias = ckpt_test_draw(2) == 0,
                              .adds = ckpt_test_draw(2) == 0};
    static numbers before;
    before = y;
    run_twice(&p, (const void *const[4]){x.narrow, w.narrow, memory(&y, to), bias.narrow}, 2, to);
    for (int64_t r = 0; r < M; r++) {
        for (int64_t c = 0; c < N; c++) {
            const int64_t at = place(&p.y, r, c);
            double sum = (p.adds ? value(&before, to, at) : 0) + (p.bias ? (double)bias.wide[c] : 0), size = 2;
            for (int64_t k = 0; k < K; k++) {
                const double term = (double)x.wide[place(&p.x, r, k)] * (double)w.wide[place(&p.w, k, c)];
                sum += term;
                size += fabs(term);
            }
            check("product", &y, to, at, sum, size);
        }
    }
}

static void products(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(400, 60);
    for (uint64_t i = 0; i < rounds; i++) {
        fill(&x), fill(&w), fill(&y), fill(&bias);
        try_product();
    }
}

static ckpt_convolution draw_convolution(void)
{
    const int64_t groups = draw(2);
    ckpt_convolution s = {.batch = draw(2),
                          .groups = groups,
                          .in_channels = groups * draw(5),
                          .out_channels = groups * draw(5),
                          .dtype = CKPT_BFLOAT16,
                          .bias = ckpt_test_draw(2) == 0};
    for (int d = 0; d < 3; d++) {
        s.kernel[d] = d == 0 ? 1 : draw(3);
        s.stride[d] = d == 0 ? 1 : draw(2);
        s.dilation[d] = d == 0 ? 1 : draw(2);
        s.padding[d] = d == 0 ? 0 : (int64_t)ckpt_test_draw(2);
        s.in[d] = d == 0 ? 1 : s.dilation[d] * (s.kernel[d] - 1) + draw(7);
        s.out[d] = (s.in[d] + 2 * s.padding[d] - s.dilation[d] * (s.kernel[d] - 1) - 1) / s.stride[d] + 1;
    }
    return s;
}

static double sum_of[ROOM], size_of[ROOM];

static void add_term(int64_t to, double a, double b)
{
    sum_of[to] += a * b;
    size_of[to] += fabs(a * b);
}

/* Every pair of an output pixel and a tap that sees a pixel, once; at[]: x, w, y by the definition. */
static void add_terms(const ckpt_convolution *s, ckpt_dnn_direction direction, int64_t n, int64_t filter,
                      int64_t channel, const int64_t out[2], const int64_t tap[2])
{
    const int64_t row = out[0] * s->stride[1] + tap[0] * s->dilation[1] - s->padding[1];
    const int64_t column = out[1] * s->stride[2] + tap[1] * s->dilation[2] - s->padding[2];
    if (row < 0 || row >= s->in[1] || column < 0 || column >= s->in[2]) {
        return;
    }
    const int64_t channels = s->in_channels / s->groups, group = filter / (s->out_channels / s->groups);
    const int64_t ax = ((n * s->in[1] + row) * s->in[2] + column) * s->in_channels + group * channels + channel;
    const int64_t aw = ((filter * channels + channel) * s->kernel[1] + tap[0]) * s->kernel[2] + tap[1];
    const int64_t ay = ((n * s->out[1] + out[0]) * s->out[2] + out[1]) * s->out_channels + filter;
    if (direction == CKPT_DNN_FORWARD) {
        add_term(ay, (double)x.wide[ax], (double)w.wide[aw]);
    } else if (direction == CKPT_DNN_INPUT_GRADIENT) {
        add_term(ax, (double)x.wide[ay], (double)w.wide[aw]); /* x stands for dy */
    } else {
        add_term(aw, (double)x.wide[ax], (double)w.wide[ay]); /* w stands for dy */
    }
}

static void define(const ckpt_convolution *s, ckpt_dnn_direction direction)
{
    memset(sum_of, 0, sizeof sum_of);
    memset(size_of, 0, sizeof size_of);
    const int64_t channels = s->in_channels / s->groups, taps = s->kernel[1] * s->kernel[2];
    const int64_t pixels = s->out[1] * s->out[2];
    for (int64_t i = 0; i < s->batch * s->out_channels * channels * pixels * taps; i++) {
        const int64_t tap = i % taps, pixel = i / taps % pixels, channel = i / taps / pixels % channels;
        const int64_t filter = i / taps / pixels / channels % s->out_channels;
        add_terms(s, direction, i / taps / pixels / channels / s->out_channels, filter, channel,
                  (const int64_t[]){pixel / s->out[2], pixel % s->out[2]},
                  (const int64_t[]){tap / s->kernel[2], tap % s->kernel[2]});
    }
}

static void try_convolution(ckpt_dnn_direction direction)
{
    const ckpt_product16 p = {.convolves = true, .shape = draw_convolution(), .direction = direction};
    const ckpt_convolution *const s = &p.shape;
    define(s, direction);
    if (direction == CKPT_DNN_FORWARD) {
        run_twice(&p, (const void *const[4]){x.narrow, w.narrow, y.narrow, bias.wide}, 2, CKPT_BFLOAT16);
        const int64_t count = ckpt_convolution_out_rows(s) * s->out_channels;
        for (int64_t i = 0; i < count; i++) {
            const double more = s->bias ? (double)bias.wide[i % s->out_channels] : 0;
            check("forward", &y, CKPT_BFLOAT16, i, sum_of[i] + more, size_of[i] + 1);
        }
    } else if (direction == CKPT_DNN_INPUT_GRADIENT) {
        run_twice(&p, (const void *const[4]){y.narrow, w.narrow, x.narrow}, 0, CKPT_BFLOAT16);
        for (int64_t i = 0; i < ckpt_convolution_in_rows(s) * s->in_channels; i++) {
            check("input gradient", &y, CKPT_BFLOAT16, i, sum_of[i], size_of[i]);
        }
    } else {
        run_twice(&p, (const void *const[4]){x.narrow, y.wide, w.narrow, bias.wide}, 1, CKPT_FLOAT32);
        const int64_t filters = s->out_channels * (s->in_channels / s->groups) * s->kernel[1] * s->kernel[2];
        for (int64_t i = 0; i < filters; i++) {
            check("weight gradient", &y, CKPT_FLOAT32, i, sum_of[i], size_of[i]);
        }
        for (int64_t c = 0; c < s->out_channels && s->bias; c++) {
            double sum = 0, size = 0;
            for (int64_t r = 0; r < ckpt_convolution_out_rows(s); r++) {
                sum += (double)w.wide[r * s->out_channels + c];
                size += fabs((double)w.wide[r * s->out_channels + c]);
            }
            check("bias gradient", &bias, CKPT_FLOAT32, c, sum, size);
        }
    }
}

static void convolutions(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(1500, 200);
    for (uint64_t i = 0; i < rounds; i++) {
        fill(&x), fill(&w), fill(&y), fill(&bias);
        try_convolution((ckpt_dnn_direction)(i % 3));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(convolutions)};
    ckpt_test_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
