/* labels: unit cuda; long under sanitizers; takes 30 s; on a GPU: 60 s, together */
/* Attention on a GPU (the emulated one, and cuda:0 where there is one) against the CPU's, at sizes around the tiles'
 * and for every path: tensor cores, multiply-adds, plain, and cuDNN where it may be used; causal or not, dropout or
 * not, one input or three, some gradients wanted, fewer heads of keys, other numbers of keys, windows. Backward of both
 * reads the GPU's output and sums.
 *
 * How far they may be apart, with S_i = the largest over j of scale sum_d |q_id k_jd|, P' the dropped P, and f = 2^-24,
 * u = 2^-8 the roundings of float32 and bfloat16 (u = 0 in a float32 model):
 *   A dot product of D terms is off by at most (D + 2) f of the sum of its terms' sizes; so an exponent by (D + 10) f S_i,
 *   and its exponential by that and 2^-21 relatively, once more for every tile whose maximum corrects a row. Forward
 *   divides two such sums; two devices. Together: P is off relatively by no more than
 *     g_i = 4 f ((D + 10) (S_i + 1) + T + 16) + (T / 16 + 8) 2^-21
 *   o     (g_i + u) sum_j P'_ij |v_jd| + u |o|          u: P' rounded for the product; o rounded when stored
 *   lse   g_i + 4 f |lse|
 *   dV    sum_i (g_i + u) P'_ij |dO_id| + u |dV|        likewise
 *   dQ    scale sum_j (g_i P_ij W_ij + u |dS_ij|) |k_jd| + u |dQ|, and dK the same over i with q:
 *         dS = P (dP - delta) is off by g_i P W from what is above and from dP's and delta's own sums, whose terms' sizes
 *         add up to W_ij = sum_d |dO_id v_jd| / (1 - dropout) + |dO_id o_id|, and rounded for the product. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/philox.h"
#include "ops/op.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

static ckpt_gpu gpu[CKPT_GPU_MAX];
static int gpu_count;
static ckpt_device *cpu;

static int open_devices(void **state)
{
    ckpt_err err = {0};
    (void)state;
    gpu_count = ckpt_gpu_open_all(gpu);
    CHECK_OK(ckpt_device_open("cpu", 2, &cpu, &err), err);
    return 0;
}

static int close_devices(void **state)
{
    for (int i = 0; i < gpu_count; i++) {
        ckpt_gpu_close(&gpu[i]);
    }
    ckpt_device_close(cpu);
    return 0;
}

/* ------------------------------------------------------------------------------------------------ a case */

typedef struct sizes {
    int64_t B, T, heads, D;
    bool causal, fused;
    double drop;
    unsigned wanted;          /* gradients of the three inputs, a bit each; 0: of none */
    int64_t S, group, window; /* keys; query heads per head of keys; 0: as many as queries, one, no window */
} sizes;

static int64_t keys_of(const sizes *s)
{
    return s->S == 0 ? s->T : s->S;
}

static int64_t group_of(const sizes *s)
{
    return s->group == 0 ? 1 : s->group;
}

/* Elements of a row of keys. */
static int64_t key_row(const sizes *s)
{
    return s->heads / group_of(s) * s->D;
}

static ckpt_case case_of(const sizes *s)
{
    const int64_t C = s->heads * s->D;
    ckpt_case test = {.op = "attention", .in_count = s->fused ? 1 : 3};
    for (int k = 0; k < test.in_count; k++) {
        const int64_t row = s->fused ? C + 2 * key_row(s) : k == 0 ? C : key_row(s);
        test.in[k] = (ckpt_case_input){.rank = 3, .dim = {s->B, k == 0 ? s->T : keys_of(s), row}};
        test.in[k].fixed = (s->wanted >> k & 1) == 0;
    }
    test.attr[0] = (ckpt_attr){.name = "heads", .kind = CKPT_INT, .integer = s->heads};
    test.attr[1] = (ckpt_attr){.name = "causal", .kind = CKPT_BOOL, .integer = s->causal};
    test.attr[2] = (ckpt_attr){.name = "dropout", .kind = CKPT_FLOAT, .real = s->drop};
    test.attr[3] = (ckpt_attr){.name = "kv_heads", .kind = CKPT_INT, .integer = s->heads / group_of(s)};
    test.attr[4] = (ckpt_attr){.name = "window", .kind = CKPT_INT, .integer = s->window};
    return test;
}

/* Queries and keys 2.5 times as large: then some weights are large, most are small, and maxima grow on the way. */
static void widen_inputs(ckpt_gpu_case *c, const sizes *s)
{
    const int64_t keys_end = s->heads * s->D + key_row(s), row = keys_end + key_row(s);
    for (int k = 0; k < c->node->in_count; k++) {
        for (int64_t i = 0; i < c->in[k].count; i++) {
            const bool is_value = s->fused ? i % row >= keys_end : k == 2;
            const float x = c->in[k].value[i] * (is_value ? 1.0F : 2.5F);
            const uint16_t half = ckpt_bfloat16_of(x);
            if (c->dtype == CKPT_BFLOAT16) {
                c->in[k].value[i] = ckpt_bfloat16_value(half);
                memcpy(c->in[k].bits + 2 * i, &half, 2);
            } else {
                c->in[k].value[i] = x;
                memcpy(c->in[k].bits + 4 * i, &x, 4);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------ bounds */

enum { Q, K, V };

/* One head of queries: where its rows lie, and the bounds of what belongs to it, [T x D] and [T]; and [S x D], those of
 * its head of keys, summed over the heads before it. */
typedef struct head {
    const ckpt_gpu_case *c;
    sizes s;
    int64_t number;
    double u, *o, *lse, *grad[3];
} head;

/* Row i of q, k or v in one of the tensors of that shape. */
static const float *row_in(const head *h, const ckpt_gpu_tensor *tensor, bool want, int which, int64_t i)
{
    const sizes *const s = &h->s;
    const int64_t C = s->heads * s->D, b = h->number / s->heads, n = h->number % s->heads, own = key_row(s);
    const ckpt_gpu_tensor *const t = &tensor[s->fused ? 0 : which];
    const float *const at = want ? t->want : t->value;
    const int64_t row = s->fused ? C + 2 * own : which == Q ? C : own;
    const int64_t start = !s->fused || which == Q ? 0 : which == K ? C : C + own;
    const int64_t head_at = (which == Q ? n : n / group_of(s)) * s->D;
    return at + (b * (which == Q ? s->T : keys_of(s)) + i) * row + start + head_at;
}

static const float *row_out(const head *h, const float *at, int64_t i)
{
    const int64_t C = h->s.heads * h->s.D, b = h->number / h->s.heads, n = h->number % h->s.heads;
    return at + (b * h->s.T + i) * C + n * h->s.D;
}

static double dot(const float *a, const float *b, int64_t D, double *sizes_sum)
{
    double sum = 0;
    *sizes_sum = 0;
    for (int64_t d = 0; d < D; d++) {
        const double term = (double)a[d] * (double)b[d];
        sum += term;
        *sizes_sum += fabs(term);
    }
    return sum;
}

static double keep_factor(const head *h, int64_t i, int64_t j)
{
    uint32_t word[4];
    const uint64_t element = (uint64_t)((h->number * h->s.T + i) * keys_of(&h->s) + j);
    if (h->s.drop == 0) {
        return 1;
    }
    ckpt_philox_block(h->c->seed, h->c->step, (uint32_t)h->c->node->index, 1, element / 4, word);
    return word[element % 4] >= ckpt_philox_threshold(h->s.drop) ? 1 / (1 - h->s.drop) : 0;
}

/* Adds what query i has to do with, given its probabilities' error g. */
static void bound_pairs(head *h, int64_t i, int64_t from, int64_t keys, const double *P, double g)
{
    const int64_t D = h->s.D;
    const double scale = 1 / sqrt((double)D), keep = 1 / (1 - h->s.drop);
    const float *const q = row_in(h, h->c->in, false, Q, i), *const o = row_out(h, h->c->out[0].value, i);
    const float *const dO = row_out(h, h->c->grad_out[0].value, i);
    double delta_size = 0;
    const double delta = dot(dO, o, D, &delta_size);
    for (int64_t j = from; j < keys; j++) {
        const float *const k = row_in(h, h->c->in, false, K, j), *const v = row_in(h, h->c->in, false, V, j);
        const double factor = keep_factor(h, i, j);
        double size = 0;
        const double dP = factor * dot(dO, v, D, &size), dS = P[j] * (dP - delta);
        const double error = scale * (g * P[j] * (size * keep + delta_size) + h->u * fabs(dS));
        for (int64_t d = 0; d < D; d++) {
            h->o[i * D + d] += (g + h->u) * P[j] * factor * fabs((double)v[d]);
            h->grad[V][j * D + d] += (g + h->u) * P[j] * factor * fabs((double)dO[d]);
            h->grad[Q][i * D + d] += error * fabs((double)k[d]);
            h->grad[K][j * D + d] += error * fabs((double)q[d]);
        }
    }
}

static void bound_head(head *h, double *P)
{
    const int64_t most_terms = h->s.T > keys_of(&h->s) ? h->s.T : keys_of(&h->s);
    const double f = 0x1p-24, scale = 1 / sqrt((double)h->s.D), T = (double)(most_terms * group_of(&h->s));
    memset(h->o, 0, (size_t)(h->s.T * h->s.D) * sizeof *h->o);
    memset(h->grad[Q], 0, (size_t)(h->s.T * h->s.D) * sizeof *h->o);
    for (int w = K; w <= V && h->number % group_of(&h->s) == 0; w++) {
        memset(h->grad[w], 0, (size_t)(keys_of(&h->s) * h->s.D) * sizeof *h->o);
    }
    for (int64_t i = 0; i < h->s.T; i++) {
        const int64_t keys = h->s.causal ? i + 1 : keys_of(&h->s);
        const int64_t from = h->s.window > 0 && i >= h->s.window ? i - h->s.window + 1 : 0;
        double most = -INFINITY, S = 0, sum = 0;
        for (int64_t j = from; j < keys; j++) {
            double size = 0;
            P[j] = scale * dot(row_in(h, h->c->in, false, Q, i), row_in(h, h->c->in, false, K, j), h->s.D, &size);
            most = fmax(most, P[j]);
            S = fmax(S, scale * size);
        }
        for (int64_t j = from; j < keys; j++) {
            P[j] = exp(P[j] - most);
            sum += P[j];
        }
        for (int64_t j = from; j < keys; j++) {
            P[j] /= sum;
        }
        const double g = 4 * f * (((double)h->s.D + 10) * (S + 1) + T + 16) + (floor(T / 16) + 8) * 0x1p-21;
        h->lse[i] = g + 4 * f * fabs(most + log(sum));
        bound_pairs(h, i, from, keys, P, g);
    }
}

/* ------------------------------------------------------------------------------------------------ comparing */

static double worst; /* largest share of a bound that was used, for the record */

static void compare(ckpt_gpu_case *c, const char *what, const head *h, int64_t i, int64_t d, float got, float want,
                    double bound)
{
    const double all = bound + h->u * fabs((double)want) + 1e-30, apart = fabs((double)got - (double)want);
    if (c->failed) {
        return;
    }
    if (!(apart <= all)) {
        ckpt_gpu_report(c, "%s of head %lld, row %lld, column %lld: %.9g, the CPU's %.9g, bound %.2g", what,
                        (long long)h->number, (long long)i, (long long)d, (double)got, (double)want, all);
    }
    worst = fmax(worst, apart / all);
}

static void compare_forward(ckpt_gpu_case *c, const head *h)
{
    for (int64_t i = 0; i < h->s.T; i++) {
        const int64_t at = h->number * h->s.T + i;
        const head exact = {.number = h->number};
        compare(c, "lse", &exact, i, 0, c->saved[0].value[at], c->saved[0].want[at], h->lse[i]);
        for (int64_t d = 0; d < h->s.D; d++) {
            compare(c, "o", h, i, d, row_out(h, c->out[0].value, i)[d], row_out(h, c->out[0].want, i)[d],
                    h->o[i * h->s.D + d]);
        }
    }
}

static void compare_backward(ckpt_gpu_case *c, const head *h)
{
    static const char *const names[3] = {"dQ", "dK", "dV"};
    for (int w = 0; w < 3; w++) {
        const bool is_last = w == Q || (h->number + 1) % group_of(&h->s) == 0; /* of those that are summed */
        if ((c->node->grad_in >> (h->s.fused ? 0 : w) & 1) == 0 || !is_last) {
            continue;
        }
        for (int64_t i = 0; i < (w == Q ? h->s.T : keys_of(&h->s)); i++) {
            for (int64_t d = 0; d < h->s.D; d++) {
                compare(c, names[w], h, i, d, row_in(h, c->grad_in, false, w, i)[d],
                        row_in(h, c->grad_in, true, w, i)[d], h->grad[w][i * h->s.D + d]);
            }
        }
    }
}

/* Again, at other addresses, over another workspace: the same bits. */
static void check_bits(ckpt_gpu_case *c, bool backward)
{
    const ckpt_run other = {.shift = 3, .workspace_byte = 0x00, .guard_byte = 0xFF, .recomputed = true};
    size_t length = 0;
    const unsigned char *const before = ckpt_gpu_snapshot(c, backward, &length);
    if (backward) {
        ckpt_gpu_backward(c, &other);
    } else {
        ckpt_gpu_forward(c, &other);
    }
    const unsigned char *const after = ckpt_gpu_snapshot(c, backward, &length);
    if (!c->failed && memcmp(before, after, length) != 0) {
        ckpt_gpu_report(c, "%s gives other bits at other addresses", backward ? "backward" : "forward");
    }
}

static void check_heads(ckpt_gpu_case *c, const sizes *s, bool backward)
{
    const int64_t longest = s->T > keys_of(s) ? s->T : keys_of(s);
    const size_t count = (size_t)(longest * s->D);
    double *const room = calloc(4 * count + 2 * (size_t)longest, sizeof *room);
    head h = {.c = c, .s = *s, .u = c->dtype == CKPT_BFLOAT16 ? 0x1p-8 : 0};
    assert_non_null(room);
    h.o = room;
    h.grad[Q] = room + count;
    h.grad[K] = room + 2 * count;
    h.grad[V] = room + 3 * count;
    h.lse = room + 4 * count;
    for (h.number = 0; h.number < s->B * s->heads; h.number++) {
        bound_head(&h, h.lse + longest);
        compare_forward(c, &h);
        if (backward) {
            compare_backward(c, &h);
        }
    }
    free(room);
}

static bool library_may(const ckpt_gpu_case *c, const sizes *s)
{
    return ckpt_gpu_attention_library(c->node) && (s->wanted == 0 || s->wanted == 7);
}

/* On one GPU, by own kernels or by cuDNN. */
static void check_on(ckpt_gpu *on, const char *who, const sizes *s, ckpt_dtype dtype, int number, bool twice)
{
    const ckpt_run plain = {.workspace_byte = 0xFF, .guard_byte = 0xFF};
    const ckpt_case test = case_of(s);
    ckpt_gpu_case c;
    (void)setenv("CKPT_ATTENTION", who, 1);
    if (ckpt_gpu_case_init(&c, &test, number, dtype, on, cpu, UINT64_C(0x123456789))) {
        const bool may = library_may(&c, s), library = may && strcmp(who, "own") != 0;
        const char *const wanted = library ? "forward=" : may ? "own" : "";
        if (strncmp(ckpt_device_choice(&c.bound), wanted, library ? 8 : 4) != 0) {
            ckpt_gpu_report(&c, "asked for %s, got %s: %s", who, ckpt_device_choice(&c.bound),
                            ckpt_device_remark(&c.bound));
        }
        widen_inputs(&c, s);
        ckpt_gpu_forward(&c, &plain);
        ckpt_gpu_want_forward(&c, false);
        if (twice) {
            check_bits(&c, false);
        }
        if (s->wanted != 0) {
            ckpt_gpu_backward(&c, &plain);
            ckpt_gpu_want_backward(&c, 0);
            if (twice) {
                check_bits(&c, true);
            }
        }
        check_heads(&c, s, s->wanted != 0);
    }
    if (c.failed) {
        (void)fprintf(stderr,
                      "  %s, B %lld, T %lld, S %lld, heads %lld, group %lld, D %lld, window %lld, %s, %s, dropout %g, "
                      "gradients %u\n",
                      who, (long long)s->B, (long long)s->T, (long long)keys_of(s), (long long)s->heads,
                      (long long)group_of(s), (long long)s->D, (long long)s->window, s->causal ? "causal" : "full",
                      s->fused ? "fused" : "three inputs", s->drop, s->wanted);
    }
    ckpt_gpu_case_fini(&c);
    (void)unsetenv("CKPT_ATTENTION");
}

/* cuDNN compiles half a second for each shape and direction, so on a card it has a third of the sizes. */
static void check(const sizes *s, ckpt_dtype dtype, int number, bool twice)
{
    for (int i = 0; i < gpu_count; i++) {
        const bool all = gpu[i].device->api == &ckpt_device_emulated || number >= 1000;
        check_on(&gpu[i], "own", s, dtype, number, twice);
        if (dtype == CKPT_BFLOAT16 && s->drop == 0 && (all || number % 3 == 0)) {
            check_on(&gpu[i], "cudnn", s, dtype, number, twice);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ tests */

/* Every length with every head size; the rest goes round. */
static void every_size(void **state)
{
    static const int64_t lengths[] = {1, 5, 63, 64, 65, 129}, heads[] = {8, 24, 40, 64, 80, 128, 136, 5};
    const int before = ckpt_gpu_reports();
    int number = 0;
    (void)state;
    for (size_t t = 0; t < sizeof lengths / sizeof lengths[0]; t++) {
        for (size_t d = 0; d < sizeof heads / sizeof heads[0]; d++) {
            for (int dtype = 0; dtype < 2; dtype++, number++) {
                const int turn = number + (int)t; /* 16 numbers a length: with t, none keeps its combination */
                const sizes s = {.B = lengths[t] < 10 ? 2 : 1,
                                 .T = lengths[t],
                                 .heads = lengths[t] < 10 || heads[d] < 16 ? 2 : 1,
                                 .D = heads[d],
                                 .causal = turn % 3 != 0,
                                 .fused = turn % 4 < 2,
                                 .drop = turn % 5 == 0 ? 0.3 : 0,
                                 .wanted = 7};
                check(&s, dtype == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16, number, turn % 7 == 0);
            }
        }
    }
    (void)printf("largest share of a bound: %.3f\n", worst);
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* Every combination at one size per path: 70 is no multiple of 4, so Philox blocks straddle rows; 68 is one. */
static void every_combination(void **state)
{
    static const int64_t head_size[] = {64, 100};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (int number = 0; number < 64; number++) {
        const sizes s = {.B = 1,
                         .T = number & 1 ? 70 : 68,
                         .heads = 1,
                         .D = head_size[number >> 5 & 1],
                         .causal = (number >> 1 & 1) != 0,
                         .fused = (number >> 2 & 1) != 0,
                         .drop = number >> 3 & 1 ? 0.25 : 0,
                         .wanted = 7};
        check(&s, number >> 4 & 1 ? CKPT_BFLOAT16 : CKPT_FLOAT32, 1000 + number, number % 5 == 0);
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* Some gradients wanted, others NULL, on every path. */
static void some_gradients(void **state)
{
    static const int64_t head_size[] = {16, 7};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (unsigned number = 0; number < 32; number++) {
        const sizes s = {.B = 1,
                         .T = 37,
                         .heads = 2,
                         .D = head_size[number >> 3 & 1],
                         .causal = true,
                         .drop = 0.1,
                         .wanted = number & 7};
        check(&s, number >> 4 ? CKPT_BFLOAT16 : CKPT_FLOAT32, 2000 + (int)number, false);
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* More than two tiles of everything, so that the two places of a stream are used again; and a head above 256. */
static void many_tiles(void **state)
{
    static const sizes list[] = {{1, 260, 1, 64, true, true, 0.2, .wanted = 7},
                                 {1, 261, 1, 32, false, true, 0, .wanted = 7},
                                 {1, 140, 1, 128, true, false, 0.2, .wanted = 7},
                                 {1, 9, 1, 300, true, true, 0.2, .wanted = 7}};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (int number = 0; number < 8; number++) {
        check(&list[number / 2], number % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16, 3000 + number, false);
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* Heads of keys that several heads of queries share, fewer or more keys than queries, and windows: less than a tile, as
 * long as one, longer than some, and longer than the sequence. */
static void other_shapes(void **state)
{
    static const sizes list[] = {
        {2, 70, 4, 64, true, true, 0, .wanted = 7, .group = 2},
        {1, 130, 6, 16, true, false, 0.2, .wanted = 7, .group = 3},
        {1, 65, 2, 128, false, true, 0.1, .wanted = 7, .group = 2},
        {1, 33, 3, 7, true, true, 0.1, .wanted = 7, .group = 3},
        {2, 5, 2, 64, false, false, 0, .wanted = 7, .S = 131},
        {1, 131, 2, 32, false, false, 0.3, .wanted = 7, .S = 3},
        {1, 70, 2, 128, false, false, 0.2, .wanted = 7, .S = 68},
        {1, 9, 4, 80, false, false, 0, .wanted = 5, .S = 200, .group = 4},
        {1, 200, 1, 64, true, true, 0, .wanted = 7, .window = 1},
        {1, 270, 2, 64, true, true, 0.2, .wanted = 7, .window = 33},
        {1, 300, 1, 128, true, false, 0, .wanted = 7, .window = 64},
        {1, 260, 4, 32, true, true, 0, .wanted = 7, .group = 2, .window = 130},
        {1, 129, 1, 24, true, true, 0.1, .wanted = 7, .window = 500},
        {1, 90, 2, 5, true, true, 0.1, .wanted = 7, .group = 2, .window = 40},
    };
    const int before = ckpt_gpu_reports();
    const int count = sizeof list / sizeof list[0];
    (void)state;
    for (int number = 0; number < 2 * count; number++) {
        check(&list[number / 2], number % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16, 8000 + number, number % 3 == 0);
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* Evaluating: no dropout. */
static void evaluation(void **state)
{
    const sizes with = {1, 66, 2, 16, true, true, 0.5, .wanted = 0};
    const ckpt_run run = {.workspace_byte = 0xFF, .guard_byte = 0xFF, .evaluating = true};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (int i = 0; i < gpu_count; i++) {
        ckpt_gpu_case c;
        const ckpt_case test = case_of(&with);
        sizes without = with;
        without.drop = 0;
        if (ckpt_gpu_case_init(&c, &test, 4000, CKPT_BFLOAT16, &gpu[i], cpu, 5)) {
            widen_inputs(&c, &with);
            ckpt_gpu_forward(&c, &run);
            ckpt_gpu_want_forward(&c, true);
            check_heads(&c, &without, false);
        }
        ckpt_gpu_case_fini(&c);
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* So long that cuDNN takes some heads at a time in backward: a part of one sequence's, and whole sequences. */
static void pieces(void **state)
{
    static const sizes list[] = {{1, 1600, 14, 8, true, true, 0, .wanted = 7},
                                 {3, 1600, 7, 8, true, false, 0, .wanted = 7}};
    static const int64_t at_once[] = {7, 7};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ckpt_gpu_attention_heads(list[i].B, list[i].heads, list[i].T), at_once[i]);
        for (int g = 0; g < gpu_count; g++) {
            check_on(&gpu[g], "cudnn", &list[i], CKPT_BFLOAT16, 5000 + i, true);
        }
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

/* Whole sequences as far as 64 MiB go, then heads of one, then none; always as many as divide evenly. */
static void heads_at_once(void **state)
{
    static const int64_t list[][4] = {{8, 12, 256, 96}, {32, 12, 1024, 24}, {1, 25, 1024, 25},
                                      {7, 12, 2048, 6}, {2, 16, 5000, 1},   {1, 1, 8192, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        assert_int_equal(ckpt_gpu_attention_heads(list[i][0], list[i][1], list[i][2]), list[i][3]);
    }
}

static bool chooses(const ckpt_gpu_case *c, ckpt_bytes backward, const char *choice, const char *begins, bool remark)
{
    ckpt_bound_kernel bound = {0};
    ckpt_err err = {0};
    if (ckpt_device_bind(c->gpu->device, c->node, c->node->forward_workspace_bytes, backward, choice, &bound, &err) !=
        CKPT_OK) {
        return begins == NULL;
    }
    const bool fine = begins != NULL && strncmp(ckpt_device_choice(&bound), begins, strlen(begins)) == 0 &&
                      (ckpt_device_remark(&bound)[0] != '\0') == remark;
    ckpt_device_unbind(&bound);
    return fine;
}

/* What was chosen comes before what the environment says, and both before the default; too little workspace is left to
 * the own kernels, with a remark, unless cuDNN was chosen; nonsense is refused. */
static void who_computes(void **state)
{
    const sizes s = {2, 70, 3, 16, true, true, 0, .wanted = 7};
    const ckpt_case test = case_of(&s);
    (void)state;
    for (int i = 0; i < gpu_count; i++) {
        ckpt_gpu_case c;
        (void)setenv("CKPT_ATTENTION", "cudnn", 1);
        assert_true(ckpt_gpu_case_init(&c, &test, 6000, CKPT_BFLOAT16, &gpu[i], cpu, 1));
        const ckpt_bytes all = c.node->backward_workspace_bytes, delta = 2048;
        char library[512];
        (void)snprintf(library, sizeof library, "%s", ckpt_device_choice(&c.bound));
        assert_true(chooses(&c, all, NULL, "forward=", false));
        assert_true(chooses(&c, all, "own", "own", false));
        assert_true(chooses(&c, delta, NULL, "own", true));
        (void)setenv("CKPT_ATTENTION", "own", 1);
        assert_true(chooses(&c, all, NULL, "own", false));
        assert_true(chooses(&c, all, library, "forward=", false));
        assert_true(chooses(&c, delta, library, NULL, false));
        assert_true(chooses(&c, all, "forward=dnn1:99", NULL, false));
        (void)setenv("CKPT_ATTENTION", "other", 1);
        assert_true(chooses(&c, all, NULL, NULL, false));
        (void)unsetenv("CKPT_ATTENTION");
        ckpt_gpu_case_fini(&c);
    }
}

/* Both sides are timed and the same one is taken for both directions; what candidates left is right whoever ran last,
 * and so is what is bound then. Where the choice is made already, or there is none, nothing is timed. */
static void timed(void **state)
{
    static const sizes list[] = {{2, 70, 3, 16, true, true, 0, .wanted = 7},
                                 {1, 129, 2, 64, false, false, 0, .wanted = 7},
                                 {2, 33, 2, 16, true, true, 0.1, .wanted = 7},
                                 {1, 40, 1, 12, true, true, 0, .wanted = 7}};
    const ckpt_run plain = {.workspace_byte = 0xFF, .guard_byte = 0xFF};
    const int before = ckpt_gpu_reports();
    (void)state;
    for (int i = 0; i < 4 * gpu_count; i++) {
        const sizes *const s = &list[i % 4];
        const ckpt_case test = case_of(s);
        for (int asked = 0; asked < 2; asked++) {
            ckpt_tuning tuning = {0};
            const ckpt_run tune = {.workspace_byte = 0xFF, .guard_byte = 0xFF, .tuning = &tuning};
            ckpt_gpu_case c;
            if (asked != 0) {
                (void)setenv("CKPT_ATTENTION", "own", 1);
            }
            assert_true(ckpt_gpu_case_init(&c, &test, 7000 + i, CKPT_BFLOAT16, &gpu[i / 4], cpu, 2));
            const bool choice = asked == 0 && library_may(&c, s);
            widen_inputs(&c, s);
            ckpt_gpu_forward(&c, &tune);
            ckpt_gpu_forward(&c, &plain);
            ckpt_gpu_backward(&c, &tune);
            ckpt_gpu_forward(&c, &plain);
            ckpt_gpu_want_forward(&c, false);
            ckpt_gpu_backward(&c, &plain);
            ckpt_gpu_want_backward(&c, 0);
            check_heads(&c, s, true);
            CHECK(tuning.refused == 0, "%s", tuning.refusal);
            assert_int_equal(tuning.tuned, choice ? 2 : 0);
            assert_int_equal(tuning.candidates, choice ? 4 : 0);
            ckpt_gpu_case_fini(&c);
            (void)unsetenv("CKPT_ATTENTION");
        }
    }
    assert_int_equal(ckpt_gpu_reports(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size), cmocka_unit_test(every_combination), cmocka_unit_test(some_gradients),
        cmocka_unit_test(many_tiles), cmocka_unit_test(other_shapes),      cmocka_unit_test(evaluation),
        cmocka_unit_test(pieces),     cmocka_unit_test(heads_at_once),     cmocka_unit_test(who_computes),
        cmocka_unit_test(timed),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
