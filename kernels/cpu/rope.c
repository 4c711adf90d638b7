/* Rotary position embedding on the CPU. Sines and cosines of a position are made once for all sequences and heads: at
 * the start of a block of POSITIONS by the library, then from position to position by the sum of angles, in double, so
 * that neither the error (below 1e-14) nor any bit depends on how the threads share the blocks. Of bfloat16 each thread
 * widens a head at a time. */
#include <math.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { POSITIONS = 32 };

static const double two_pi = 6.28318530717958647692;

typedef struct rope {
    int64_t batch, tokens, heads, head, pairs;
    bool interleaved, narrow, adds;
    const double *turns, *step_cos, *step_sin; /* of each pair, from one position to the next */
} rope;

/* Of each pair at one position; and room for two heads. */
typedef struct angles {
    double *cos_now, *sin_now;
    float *cos_used, *sin_used, *room;
} angles;

static rope describe(const ckpt_kernel_args *args, double sign, bool adds)
{
    const ckpt_shape *const x = &args->node->in[0].shape;
    rope r = {.batch = x->dim[0],
              .tokens = x->dim[1],
              .heads = ckpt_node_int(args->node, "heads"),
              .pairs = ckpt_rope_rotary(args->node) / 2,
              .narrow = args->node->dtype == CKPT_BFLOAT16,
              .adds = adds,
              .interleaved = strcmp(ckpt_node_string(args->node, "layout"), "interleaved") == 0};
    double *const turns = args->workspace, *const step_cos = turns + r.pairs, *const step_sin = step_cos + r.pairs;
    for (int64_t i = 0; i < r.pairs; i++) {
        turns[i] = sign * ckpt_rope_turns(args->node, i);
        step_cos[i] = cos(two_pi * turns[i]);
        step_sin[i] = sin(two_pi * turns[i]);
    }
    r.head = x->dim[2] / r.heads;
    r.turns = turns;
    r.step_cos = step_cos;
    r.step_sin = step_sin;
    return r;
}

/* As doubles: two of each pair, two floats of each pair, and of bfloat16 two floats of each of a head's features. */
static int64_t own_count(const rope *r)
{
    return 3 * r->pairs + (r->narrow ? r->head : 0);
}

static angles angles_of(const rope *r, const ckpt_kernel_args *args, int thread)
{
    double *const start = (double *)args->workspace + 3 * r->pairs + own_count(r) * thread;
    float *const used = (float *)(start + 2 * r->pairs);
    return (angles){start, start + r->pairs, used, used + r->pairs, used + 2 * r->pairs};
}

static void angles_start(const rope *r, int64_t position, const angles *a)
{
    for (int64_t i = 0; i < r->pairs; i++) {
        const double turns = (double)position * r->turns[i], part = two_pi * (turns - rint(turns));
        a->cos_now[i] = cos(part);
        a->sin_now[i] = sin(part);
        a->cos_used[i] = (float)a->cos_now[i];
        a->sin_used[i] = (float)a->sin_now[i];
    }
}

static void angles_next(const rope *r, const angles *a)
{
#pragma omp simd
    for (int64_t i = 0; i < r->pairs; i++) {
        const double c = a->cos_now[i], s = a->sin_now[i];
        a->cos_now[i] = c * r->step_cos[i] - s * r->step_sin[i];
        a->sin_now[i] = s * r->step_cos[i] + c * r->step_sin[i];
        a->cos_used[i] = (float)a->cos_now[i];
        a->sin_used[i] = (float)a->sin_now[i];
    }
}

/* y = the turned x, which may be y. The loops are written for each way a pair lies and for adding, to be vector loops. */
static void turn_half(int64_t pairs, const float *x, const float *c, const float *s, bool adds, float *y)
{
    if (adds) {
#pragma omp simd
        for (int64_t i = 0; i < pairs; i++) {
            y[i] += x[i] * c[i] - x[i + pairs] * s[i];
            y[i + pairs] += x[i + pairs] * c[i] + x[i] * s[i];
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        const float a = x[i], b = x[i + pairs];
        y[i] = a * c[i] - b * s[i];
        y[i + pairs] = b * c[i] + a * s[i];
    }
}

static void turn_interleaved(int64_t pairs, const float *x, const float *c, const float *s, bool adds, float *y)
{
    if (adds) {
#pragma omp simd
        for (int64_t i = 0; i < pairs; i++) {
            y[2 * i] += x[2 * i] * c[i] - x[2 * i + 1] * s[i];
            y[2 * i + 1] += x[2 * i + 1] * c[i] + x[2 * i] * s[i];
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i] - b * s[i];
        y[2 * i + 1] = b * c[i] + a * s[i];
    }
}

/* The head from element `at` on. */
static void turn_head(const rope *r, const angles *a, const void *from, int64_t at, void *to)
{
    const int64_t turned = 2 * r->pairs, rest = r->head - turned;
    const float *const x = ckpt_run(r->narrow, from, at, r->head, a->room);
    float *const y = ckpt_open_run(r->narrow, to, at, r->head, r->adds, a->room + r->head);
    if (r->interleaved) {
        turn_interleaved(r->pairs, x, a->cos_used, a->sin_used, r->adds, y);
    } else {
        turn_half(r->pairs, x, a->cos_used, a->sin_used, r->adds, y);
    }
    if (r->adds) {
        ckpt_vector_add(rest, x + turned, y + turned);
    } else if (x != y && rest > 0) {
        memcpy(y + turned, x + turned, (size_t)rest * sizeof *y);
    }
    ckpt_close_run(r->narrow, y, r->head, to, at);
}

/* Items first .. end - 1 of blocks x sequences: the positions of a block, in sequences that follow each other. */
static void turn_items(const rope *r, const angles *a, int64_t first, int64_t end, const void *x, void *y)
{
    const int64_t row = r->heads * r->head;
    while (first < end) {
        const int64_t start = first / r->batch * POSITIONS, b = first % r->batch;
        const int64_t stop = b + end - first < r->batch ? b + end - first : r->batch;
        for (int64_t t = start; t < start + POSITIONS && t < r->tokens; t++) {
            if (t == start) {
                angles_start(r, t, a);
            } else {
                angles_next(r, a);
            }
            for (int64_t n = b; n < stop; n++) {
                for (int64_t h = 0; h < r->heads; h++) {
                    turn_head(r, a, x, (n * r->tokens + t) * row + h * r->head, y);
                }
            }
        }
        first += stop - b;
    }
}

static void turn(const ckpt_kernel_args *args, double sign, const void *x, bool adds, void *y)
{
    const rope r = describe(args, sign, adds);
    const int64_t items = (r.tokens + POSITIONS - 1) / POSITIONS * r.batch,
                  count = r.batch * r.tokens * r.heads * r.head;
    const int threads = args->node->threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int t = 0; t < threads; t++) {
        const angles a = angles_of(&r, args, t);
        turn_items(&r, &a, items * t / threads, items * (t + 1) / threads, x, y);
    }
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    const int64_t pairs = ckpt_rope_rotary(node) / 2, head = node->in[0].shape.dim[2] / ckpt_node_int(node, "heads");
    const int64_t own = own_count(&(rope){.pairs = pairs, .head = head, .narrow = node->dtype == CKPT_BFLOAT16});
    *forward = *backward = (3 * pairs + own * node->threads) * (ckpt_bytes)sizeof(double);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    turn(args, 1, args->in[0], false, args->out[0]);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    turn(args, -1, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_rope = {
    .op = "rope",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
