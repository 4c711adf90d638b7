/* Attention on the CPU. A thread takes one head of one sequence at a time: it packs the head's keys and values, then
 * takes BLOCK queries at a time, with BLOCK x T probabilities in its part of the workspace. There is no T x T matrix.
 * Heads are independent, so the assignment to threads changes no bit.
 *
 * Backward recomputes the probabilities from the saved logarithms of the row sums:
 *   P = exp(s - lse), dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = dS K, dK = dS^T Q, dV = P^T dO
 * Source: Dao et al. 2022, arXiv:2205.14135, algorithm 4. Departure: a whole row of keys at a time, no rescaling. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"
#include "kernels/philox.h"

enum { BLOCK = 32, PAD = 64, STREAM = 1 };

typedef struct attention {
    int forward_threads, backward_threads;
} attention;

/* Sizes, addresses and dropout of a call. Rows of queries, keys and values are `in_row` apart. */
typedef struct problem {
    int64_t B, T, C, heads, D, in_row;
    bool causal;
    double drop;
    uint32_t threshold; /* see ckpt_philox_threshold */
    float scale, keep;  /* 1 / sqrt(D), 1 / (1 - drop) */
    const float *q, *k, *v;
    float *dq, *dk, *dv;
} problem;

static problem problem_of(const ckpt_node *node)
{
    const ckpt_shape *y = &node->out[0].shape;
    problem p = {.B = y->dim[0], .T = y->dim[1], .C = y->dim[2]};
    p.heads = ckpt_node_int(node, "heads");
    p.D = p.C / p.heads;
    p.in_row = node->in_count == 1 ? 3 * p.C : p.C;
    p.causal = ckpt_node_bool(node, "causal");
    p.drop = ckpt_node_float(node, "dropout");
    p.scale = (float)(1 / sqrt((double)p.D));
    return p;
}

static problem problem_open(const ckpt_kernel_args *args, bool backward)
{
    problem p = problem_of(args->node);
    const bool fused = args->node->in_count == 1;
    p.drop = args->evaluating ? 0 : p.drop;
    p.threshold = p.drop > 0 ? (uint32_t)ckpt_philox_threshold(p.drop) : 0;
    p.keep = (float)(1 / (1 - p.drop));
    p.q = args->in[0];
    p.k = fused ? p.q + p.C : args->in[1];
    p.v = fused ? p.q + 2 * p.C : args->in[2];
    if (backward) {
        p.dq = args->grad_in[0];
        p.dk = !fused ? args->grad_in[1] : p.dq == NULL ? NULL : p.dq + p.C;
        p.dv = !fused ? args->grad_in[2] : p.dq == NULL ? NULL : p.dq + 2 * p.C;
    }
    return p;
}

/* Takes pieces of a thread's part of the workspace, each a multiple of PAD elements. */
static float *carve(float **next, int64_t count)
{
    float *piece = *next;
    *next += ckpt_round_up(count, PAD);
    return piece;
}

typedef struct scratch {
    float *k_turned, *v, *q, *P; /* [D x T], [T x D], [BLOCK x D], [BLOCK x T] */
    float *k, *v_turned, *dk, *dv, *dO, *dq, *dP;
    uint32_t *words; /* T + 4 */
} scratch;

static void scratch_carve(const problem *p, bool backward, float *base, scratch *s)
{
    float *next = base;
    const int64_t head = p->T * p->D, rows = BLOCK < p->T ? BLOCK : p->T;
    s->k_turned = carve(&next, head);
    s->v = carve(&next, backward ? 0 : head);
    s->q = carve(&next, rows * p->D);
    s->P = carve(&next, rows * p->T);
    s->words = (uint32_t *)(void *)carve(&next, p->drop > 0 ? p->T + 4 : 0);
    if (backward) {
        s->k = carve(&next, head);
        s->v_turned = carve(&next, head);
        s->dk = carve(&next, head);
        s->dv = carve(&next, head);
        s->dO = carve(&next, rows * p->D);
        s->dq = carve(&next, rows * p->D);
        s->dP = carve(&next, rows * p->T);
    }
}

/* Elements of scratch that one thread needs: what scratch_carve takes. */
static int64_t scratch_count(const ckpt_node *node, bool backward)
{
    const problem p = problem_of(node);
    const int64_t head = ckpt_round_up(p.T * p.D, PAD), rows = BLOCK < p.T ? BLOCK : p.T;
    const int64_t small = ckpt_round_up(rows * p.D, PAD), wide = ckpt_round_up(rows * p.T, PAD);
    const int64_t words = p.drop > 0 ? ckpt_round_up(p.T + 4, PAD) : 0;
    return words + (backward ? 5 * head + 3 * small + 2 * wide : 2 * head + small + wide);
}

static int threads_for(const ckpt_node *node, ckpt_bytes limit, bool backward)
{
    const problem p = problem_of(node);
    int64_t threads = node->threads;
    threads = p.B * p.heads < threads ? p.B * p.heads : threads;
    if (limit >= 0) {
        const int64_t fit = limit / (scratch_count(node, backward) * (ckpt_bytes)sizeof(float));
        threads = fit < threads ? fit : threads;
    }
    return (int)(threads < 1 ? 1 : threads);
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    attention *const a = state;
    (void)choice; /* none on a CPU */
    (void)context;
    (void)err;
    a->forward_threads = threads_for(node, forward, false);
    a->backward_threads = threads_for(node, backward, true);
    return CKPT_OK;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const attention *a = state;
    *forward = a->forward_threads * scratch_count(node, false) * (ckpt_bytes)sizeof(float);
    *backward = a->backward_threads * scratch_count(node, true) * (ckpt_bytes)sizeof(float);
}

/* to[rows x D] = scale * from, whose rows are `row` apart. */
static void pack(int64_t rows, int64_t D, const float *from, int64_t row, float scale, float *to)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = 0; d < D; d++) {
            to[i * D + d] = from[i * row + d] * scale;
        }
    }
}

/* to[rows x D], `row` apart = scale * from. */
static void unpack(int64_t rows, int64_t D, const float *from, float scale, float *to, int64_t row)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = 0; d < D; d++) {
            to[i * row + d] = from[i * D + d] * scale;
        }
    }
}

/* to[D x rows] = from turned. Sixteen rows at a time: whole cache lines are written. */
static void pack_turned(int64_t rows, int64_t D, const float *from, int64_t row, float *to)
{
    for (int64_t i0 = 0; i0 < rows; i0 += 16) {
        const int64_t end = i0 + 16 < rows ? i0 + 16 : rows;
        for (int64_t d = 0; d < D; d++) {
            for (int64_t i = i0; i < end; i++) {
                to[d * rows + i] = from[i * row + d];
            }
        }
    }
}

/* Keys that query i sees. */
static int64_t seen(const problem *p, int64_t i)
{
    return p->causal ? i + 1 : p->T;
}

/* The random words of the keys that query i of head `bh` sees: a weight is kept where its word >= p->threshold. */
static const uint32_t *draw_row(const problem *p, const ckpt_kernel_args *args, int64_t bh, int64_t i, uint32_t *words)
{
    const uint64_t first = (uint64_t)((bh * p->T + i) * p->T), skip = first & 3; /* words come in fours */
    ckpt_vector_philox(args->seed, args->step, (uint32_t)args->node->index, STREAM, first - skip,
                       seen(p, i) + (int64_t)skip, words);
    return words + skip;
}

/* Queries first .. first + rows - 1 of one head. y: [rows x D], C apart. */
static void forward_block(const problem *p, const ckpt_kernel_args *args, int64_t bh, int64_t first, int64_t rows,
                          const scratch *s, float *y, float *lse)
{
    const int64_t T = p->T, D = p->D, keys = seen(p, first + rows - 1);
    ckpt_tile_product(rows, keys, D, s->q, D, 1, s->k_turned, T, s->P, T, false);
    float inverse[BLOCK];
    for (int64_t r = 0; r < rows; r++) {
        float *row = s->P + r * T;
        const int64_t count = seen(p, first + r);
        const float most = ckpt_vector_max(count, row);
        ckpt_vector_exp(count, row, most, 1, row);
        const float sum = ckpt_vector_sum(count, row);
        lse[first + r] = most + logf(sum);
        inverse[r] = 1 / sum;
        if (p->drop > 0) {
            const uint32_t *word = draw_row(p, args, bh, first + r, s->words);
#pragma omp simd
            for (int64_t j = 0; j < count; j++) {
                row[j] = word[j] >= p->threshold ? row[j] * p->keep : 0.0F;
            }
        }
        memset(row + count, 0, (size_t)(keys - count) * sizeof *row);
    }
    ckpt_tile_product(rows, D, keys, s->P, T, 1, s->v, D, y, p->C, false);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < D; d++) {
            y[r * p->C + d] *= inverse[r];
        }
    }
}

static void forward_head(const problem *p, const ckpt_kernel_args *args, int64_t bh, const scratch *s)
{
    const int64_t at = bh / p->heads * p->T * p->in_row + bh % p->heads * p->D;
    float *y = (float *)args->out[0] + bh / p->heads * p->T * p->C + bh % p->heads * p->D;
    pack_turned(p->T, p->D, p->k + at, p->in_row, s->k_turned);
    pack(p->T, p->D, p->v + at, p->in_row, 1, s->v);
    for (int64_t first = 0; first < p->T; first += BLOCK) {
        const int64_t rows = p->T - first < BLOCK ? p->T - first : BLOCK;
        pack(rows, p->D, p->q + at + first * p->in_row, p->in_row, p->scale, s->q);
        forward_block(p, args, bh, first, rows, s, y + first * p->C, (float *)args->saved[0] + bh * p->T);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const attention *a = args->state;
    const problem p = problem_open(args, false);
    const int64_t part = scratch_count(args->node, false);
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->forward_threads)
    for (int64_t bh = 0; bh < p.B * p.heads; bh++) {
        scratch s = {0};
        scratch_carve(&p, false, (float *)args->workspace + omp_get_thread_num() * part, &s);
        forward_head(&p, args, bh, &s);
    }
    return CKPT_OK;
}

/* P and dP of a block become the dropped P and dS. `delta` = rowsum(dO O). */
static void backward_rows(const problem *p, const ckpt_kernel_args *args, int64_t bh, int64_t first, int64_t rows,
                          int64_t keys, const scratch *s, const float *y)
{
    const float *lse = (const float *)args->saved[0] + bh * p->T;
    for (int64_t r = 0; r < rows; r++) {
        float *P = s->P + r * p->T, *dP = s->dP + r * p->T;
        const int64_t count = seen(p, first + r);
        const float delta = ckpt_vector_dot(p->D, s->dO + r * p->D, y + r * p->C);
        ckpt_vector_exp(count, P, lse[first + r], 1, P);
        if (p->drop > 0) {
            /* The mask stands between P and V, so dP passes through it and dS sees the P before it. */
            const uint32_t *word = draw_row(p, args, bh, first + r, s->words);
#pragma omp simd
            for (int64_t j = 0; j < count; j++) {
                const float factor = word[j] >= p->threshold ? p->keep : 0.0F;
                dP[j] = P[j] * (dP[j] * factor - delta);
                P[j] *= factor;
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < count; j++) {
                dP[j] = P[j] * (dP[j] - delta);
            }
        }
        memset(P + count, 0, (size_t)(keys - count) * sizeof *P);
        memset(dP + count, 0, (size_t)(keys - count) * sizeof *dP);
    }
}

static void backward_head(const problem *p, const ckpt_kernel_args *args, int64_t bh, const scratch *s)
{
    const int64_t T = p->T, D = p->D;
    const int64_t at = bh / p->heads * T * p->in_row + bh % p->heads * D;
    const int64_t out_at = bh / p->heads * T * p->C + bh % p->heads * D;
    const float *y = (const float *)args->out[0] + out_at, *dy = (const float *)args->grad_out[0] + out_at;
    pack_turned(T, D, p->k + at, p->in_row, s->k_turned);
    pack_turned(T, D, p->v + at, p->in_row, s->v_turned);
    pack(T, D, p->k + at, p->in_row, 1, s->k);
    memset(s->dk, 0, (size_t)(T * D) * sizeof *s->dk);
    memset(s->dv, 0, (size_t)(T * D) * sizeof *s->dv);
    for (int64_t first = 0; first < T; first += BLOCK) {
        const int64_t rows = T - first < BLOCK ? T - first : BLOCK, keys = seen(p, first + rows - 1);
        pack(rows, D, p->q + at + first * p->in_row, p->in_row, p->scale, s->q);
        pack(rows, D, dy + first * p->C, p->C, 1, s->dO);
        ckpt_tile_product(rows, keys, D, s->q, D, 1, s->k_turned, T, s->P, T, false);
        ckpt_tile_product(rows, keys, D, s->dO, D, 1, s->v_turned, T, s->dP, T, false);
        backward_rows(p, args, bh, first, rows, keys, s, y + first * p->C);
        ckpt_tile_product(keys, D, rows, s->P, 1, T, s->dO, D, s->dv, D, true);
        ckpt_tile_product(keys, D, rows, s->dP, 1, T, s->q, D, s->dk, D, true);
        if (p->dq != NULL) {
            ckpt_tile_product(rows, D, keys, s->dP, T, 1, s->k, D, s->dq, D, false);
            unpack(rows, D, s->dq, p->scale, p->dq + at + first * p->in_row, p->in_row);
        }
    }
    if (p->dk != NULL) {
        unpack(T, D, s->dk, 1, p->dk + at, p->in_row);
    }
    if (p->dv != NULL) {
        unpack(T, D, s->dv, 1, p->dv + at, p->in_row);
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const attention *a = args->state;
    const problem p = problem_open(args, true);
    const int64_t part = scratch_count(args->node, true);
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->backward_threads)
    for (int64_t bh = 0; bh < p.B * p.heads; bh++) {
        scratch s = {0};
        scratch_carve(&p, true, (float *)args->workspace + omp_get_thread_num() * part, &s);
        backward_head(&p, args, bh, &s);
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_attention = {
    .op = "attention",
    .state_bytes = sizeof(attention),
    .prepare = prepare,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
