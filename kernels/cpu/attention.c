/* Attention on the CPU. A thread takes one head of one sequence at a time: it packs the head's keys and values, then
 * takes BLOCK queries with a panel of keys at a time, whose probabilities stay in the second-level cache. There is no T x S
 * matrix.
 * Heads are independent, so the assignment to threads changes no bit. Backward takes a head of keys with all heads of
 * queries that see it, in increasing order; and, if there is a bias, of all sequences in order, so that its gradient is
 * summed by one thread.
 *
 * Backward recomputes the probabilities from the saved logarithms of the row sums:
 *   P = exp(s - lse), dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = dS K, dK = dS^T Q, dV = P^T dO
 * Source: Dao et al. 2022, arXiv:2205.14135, algorithms 1 and 4. Departure: a row is divided by its sum at the end. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"
#include "kernels/philox.h"

enum { BLOCK = 32, LINE = 16, PAD = 64, STREAM = 1 };

typedef struct attention {
    int forward_threads, backward_threads;
} attention;

/* Sizes, addresses and dropout of a call. */
typedef struct problem {
    ckpt_attention_sizes z;
    int64_t C, group; /* of y's rows; query heads per head of keys */
    double drop;
    uint32_t threshold; /* see ckpt_philox_threshold */
    float scale, keep;  /* of the scores; 1 / (1 - drop) */
    bool narrow;        /* tensors but the bias and lse are bfloat16; then there is no bias */
    const void *q, *k, *v;
    const float *bias;
    const int32_t *mask;
    void *dq, *dk, *dv;
    float *dbias;
} problem;

/* A head of queries of one sequence: its number among all, and at which elements it starts. */
typedef struct head {
    int64_t b, h, bh, q_at, kv_at, out_at;
} head;

static problem problem_of(const ckpt_node *node)
{
    problem p = {.z = ckpt_attention_sizes_of(node), .C = node->out[0].shape.dim[2]};
    p.group = p.z.heads / p.z.kv_heads;
    p.drop = ckpt_node_float(node, "dropout");
    p.scale = (float)p.z.scale;
    p.narrow = node->dtype == CKPT_BFLOAT16;
    return p;
}

/* Element `at` of a tensor; NULL: there is none. */
static const void *from_at(const problem *p, const void *tensor, int64_t at)
{
    return tensor == NULL ? NULL : (const char *)tensor + at * (p->narrow ? 2 : 4);
}

static void *to_at(const problem *p, void *tensor, int64_t at)
{
    return tensor == NULL ? NULL : (char *)tensor + at * (p->narrow ? 2 : 4);
}

static problem problem_open(const ckpt_kernel_args *args, bool backward)
{
    problem p = problem_of(args->node);
    const ckpt_attention_sizes *const z = &p.z;
    p.drop = args->evaluating ? 0 : p.drop;
    p.threshold = p.drop > 0 ? (uint32_t)ckpt_philox_threshold(p.drop) : 0;
    p.keep = (float)(1 / (1 - p.drop));
    p.q = args->in[0];
    p.k = z->fused ? from_at(&p, p.q, z->k_at) : args->in[1];
    p.v = z->fused ? from_at(&p, p.q, z->v_at) : args->in[2];
    p.bias = z->bias >= 0 ? args->in[z->bias] : NULL;
    p.mask = z->mask >= 0 ? args->in[z->mask] : NULL;
    if (backward) {
        p.dq = args->grad_in[0];
        p.dk = z->fused ? to_at(&p, p.dq, z->k_at) : args->grad_in[1];
        p.dv = z->fused ? to_at(&p, p.dq, z->v_at) : args->grad_in[2];
        p.dbias = z->bias >= 0 ? args->grad_in[z->bias] : NULL;
    }
    return p;
}

static head head_of(const problem *p, int64_t b, int64_t h)
{
    const ckpt_attention_sizes *const z = &p->z;
    return (head){.b = b,
                  .h = h,
                  .bh = b * z->heads + h,
                  .q_at = b * z->T * z->q_row + h * z->D,
                  .kv_at = b * z->S * z->kv_row + h / p->group * z->D,
                  .out_at = b * z->T * p->C + h * z->D};
}

/* Takes pieces of a thread's part of the workspace, each a multiple of PAD elements. */
static float *carve(float **next, int64_t count)
{
    float *piece = *next;
    *next += ckpt_round_up(count, PAD);
    return piece;
}

typedef struct scratch {
    float *k_turned, *v, *q, *P; /* panels of [D x panel], [S x D], [BLOCK x D], [BLOCK x panel] */
    float *k, *v_turned, *dk, *dv, *dO, *dq, *dP;
    float *y;        /* [BLOCK x D] of bfloat16 outputs */
    uint32_t *words; /* panel + 4 */
} scratch;

static void scratch_carve(const problem *p, bool backward, float *base, scratch *s)
{
    const ckpt_attention_sizes *const z = &p->z;
    float *next = base;
    const int64_t whole = z->S * z->D, turned = ckpt_round_up(z->S, p->z.panel) * z->D,
                  rows = BLOCK < z->T ? BLOCK : z->T;
    s->k_turned = carve(&next, turned);
    s->v = carve(&next, backward ? 0 : whole);
    s->y = carve(&next, backward || !p->narrow ? 0 : rows * z->D);
    s->q = carve(&next, rows * z->D);
    s->P = carve(&next, rows * p->z.panel);
    s->words = (uint32_t *)(void *)carve(&next, p->drop > 0 ? p->z.panel + 4 : 0);
    if (backward) {
        s->k = carve(&next, whole);
        s->v_turned = carve(&next, turned);
        s->dk = carve(&next, whole);
        s->dv = carve(&next, whole);
        s->dO = carve(&next, rows * z->D);
        s->dq = carve(&next, rows * z->D);
        s->dP = carve(&next, rows * p->z.panel);
    }
}

/* Elements of scratch that one thread needs: what scratch_carve takes. */
static int64_t scratch_count(const ckpt_node *node, bool backward)
{
    const problem p = problem_of(node);
    const int64_t whole = ckpt_round_up(p.z.S * p.z.D, PAD), rows = BLOCK < p.z.T ? BLOCK : p.z.T;
    const int64_t turned = ckpt_round_up(ckpt_round_up(p.z.S, p.z.panel) * p.z.D, PAD);
    const int64_t small = ckpt_round_up(rows * p.z.D, PAD), wide = ckpt_round_up(rows * p.z.panel, PAD);
    const int64_t words = p.drop > 0 ? ckpt_round_up(p.z.panel + 4, PAD) : 0, y = p.narrow ? small : 0;
    return words + (backward ? 2 * turned + 3 * whole + 3 * small + 2 * wide : turned + whole + small + wide + y);
}

/* What one thread computes at a time in backward: a head of keys, of one sequence or of all. */
static int64_t backward_units(const ckpt_attention_sizes *z)
{
    return z->bias >= 0 ? z->kv_heads : z->B * z->kv_heads;
}

static int threads_for(const ckpt_node *node, ckpt_bytes limit, bool backward)
{
    const problem p = problem_of(node);
    const int64_t units = backward ? backward_units(&p.z) : p.z.B * p.z.heads;
    int64_t threads = units < node->threads ? units : node->threads;
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
static void pack(const problem *p, int64_t rows, const void *from, int64_t row, float scale, float *to)
{
    const int64_t D = p->z.D;
    for (int64_t i = 0; i < rows; i++) {
        const float *line = from_at(p, from, i * row);
        float *const put = to + i * D;
        if (p->narrow) {
            ckpt_widen(D, from_at(p, from, i * row), put);
            line = put;
        }
        for (int64_t d = 0; d < D; d++) {
            put[d] = line[d] * scale;
        }
    }
}

/* to[rows x D], `row` apart = scale * from, which is scaled itself where the result is rounded. */
static void unpack(const problem *p, int64_t rows, float *from, float scale, void *to, int64_t row)
{
    const int64_t D = p->z.D;
    for (int64_t i = 0; i < rows; i++) {
        float *const line = from + i * D;
        float *const put = p->narrow ? line : to_at(p, to, i * row);
        for (int64_t d = 0; d < D; d++) {
            put[d] = line[d] * scale;
        }
        if (p->narrow) {
            ckpt_narrow(D, line, to_at(p, to, i * row));
        }
    }
}

/* Panels of to[D x panel] = from turned. A line of rows at a time: whole cache lines are written. */
static void pack_turned(const problem *p, const void *from, float *to)
{
    const int64_t D = p->z.D, S = p->z.S, row = p->z.kv_row;
    const float *const wide = from;
    const uint16_t *const narrow = from;
    for (int64_t i0 = 0; i0 < S; i0 += LINE) {
        const int64_t end = i0 + LINE < S ? i0 + LINE : S;
        float *const panel = to + i0 / p->z.panel * p->z.panel * D + i0 % p->z.panel;
        for (int64_t d = 0; d < D; d++) {
            float *const line = panel + d * p->z.panel - i0;
            for (int64_t i = i0; i < end; i++) {
                line[i] = p->narrow ? ckpt_bfloat16_value(narrow[i * row + d]) : wide[i * row + d];
            }
        }
    }
}

/* Keys from .. end - 1, none where end <= from. */
typedef struct keys {
    int64_t from, end;
} keys;

/* Those of `all` that query i sees. */
static keys seen(const problem *p, int64_t i, keys all)
{
    const int64_t from = p->z.window > 0 && i >= p->z.window ? i - p->z.window + 1 : 0;
    const int64_t end = p->z.causal ? i + 1 : p->z.S;
    return (keys){from > all.from ? from : all.from, end < all.end ? end : all.end};
}

/* What queries first .. last see of the panel that begins at key `start`. */
static keys panel_keys(const problem *p, int64_t start, int64_t first, int64_t last)
{
    const keys panel = {start, start + p->z.panel};
    return (keys){seen(p, first, panel).from, seen(p, last, panel).end};
}

/* The random words of keys that query i sees: a weight is kept where its word >= p->threshold. */
static const uint32_t *draw_row(const problem *p, const ckpt_kernel_args *args, int64_t bh, int64_t i, keys of,
                                uint32_t *words)
{
    const uint64_t first = (uint64_t)((bh * p->z.T + i) * p->z.S + of.from);
    const uint64_t skip = first & 3; /* words come in fours */
    ckpt_vector_philox(args->seed, args->step, (uint32_t)args->node->index, STREAM, first - skip,
                       of.end - of.from + (int64_t)skip, words);
    return words + skip;
}

/* Adds the bias to query i's scores of `of` and sets those that the mask hides to -infinity. */
static void change_scores(const problem *p, const head *at, int64_t i, keys of, float *score)
{
    const ckpt_attention_sizes *const z = &p->z;
    const int64_t count = of.end - of.from;
    if (p->bias != NULL) {
        const float *const bias = p->bias + (at->h * z->T + i) * z->S + of.from;
#pragma omp simd
        for (int64_t j = 0; j < count; j++) {
            score[j] += bias[j];
        }
    }
    if (p->mask != NULL) {
        const int32_t *const mask = p->mask + at->b % z->mask_count * z->mask_step + i * z->mask_row + of.from;
#pragma omp simd
        for (int64_t j = 0; j < count; j++) {
            score[j] = mask[j] != 0 ? score[j] : -INFINITY;
        }
    }
}

/* The largest score of a row so far, and the sum of exp(score - most). */
typedef struct running {
    float most, sum;
} running;

/* Query i's scores of `of` become exp(score - maximum so far), dropped. Returns by what its earlier ones are too large. */
static float softmax_row(const problem *p, const ckpt_kernel_args *args, const head *at, int64_t i, keys of,
                         uint32_t *words, running *so_far, float *row)
{
    const int64_t count = of.end - of.from;
    change_scores(p, at, i, of, row);
    const float here = ckpt_vector_max(count, row), most = so_far->most > here ? so_far->most : here;
    if (most == -INFINITY) {
        for (int64_t j = 0; j < count; j++) {
            row[j] = isnan(row[j]) ? row[j] : 0; /* a maximum passes over it */
        }
        return 1;
    }
    const float shrink = so_far->most == most ? 1 : expf(so_far->most - most);
    *so_far = (running){most, so_far->sum * shrink + ckpt_vector_powers(count, row, most, row)};
    if (p->drop > 0) {
        const uint32_t *word = draw_row(p, args, at->bh, i, of, words);
#pragma omp simd
        for (int64_t j = 0; j < count; j++) {
            row[j] = word[j] >= p->threshold ? row[j] * p->keep : 0.0F;
        }
    }
    return shrink;
}

/* Zeros beside what a query sees of `all`: row begins at key all.from. */
static void clear_unseen(keys all, keys of, float *row)
{
    if (of.end <= of.from) {
        of = (keys){all.end, all.end};
    }
    memset(row, 0, (size_t)(of.from - all.from) * sizeof *row);
    memset(row + of.end - all.from, 0, (size_t)(all.end - of.end) * sizeof *row);
}

static void scale_row(int64_t D, float by, float *y)
{
    for (int64_t d = 0; d < D; d++) {
        y[d] *= by;
    }
}

/* Queries first .. first + rows - 1 of one head. y: [rows x D], `row_step` apart. */
static void forward_block(const problem *p, const ckpt_kernel_args *args, const head *at, int64_t first, int64_t rows,
                          const scratch *s, float *y, int64_t row_step)
{
    const int64_t D = p->z.D;
    running so_far[BLOCK];
    bool adds = false;
    for (int64_t r = 0; r < rows; r++) {
        so_far[r] = (running){-INFINITY, 0};
    }
    for (int64_t start = 0; start < p->z.S; start += p->z.panel) {
        const keys all = panel_keys(p, start, first, first + rows - 1);
        if (all.end <= all.from) {
            continue;
        }
        ckpt_tile_product(rows, all.end - all.from, D, s->q, D, 1, s->k_turned + start * D + all.from - start,
                          p->z.panel, s->P, p->z.panel, false);
        for (int64_t r = 0; r < rows; r++) {
            const keys of = seen(p, first + r, all);
            float *const row = s->P + r * p->z.panel;
            clear_unseen(all, of, row);
            const float shrink = of.end <= of.from ? 1
                                                   : softmax_row(p, args, at, first + r, of, s->words, &so_far[r],
                                                                 row + of.from - all.from);
            if (adds && shrink != 1) {
                scale_row(D, shrink, y + r * row_step);
            }
        }
        ckpt_tile_product(rows, D, all.end - all.from, s->P, p->z.panel, 1, s->v + all.from * D, D, y, row_step, adds);
        adds = true;
    }
    float *const lse = (float *)args->saved[0] + at->bh * p->z.T + first;
    for (int64_t r = 0; r < rows; r++) {
        const bool any = so_far[r].most > -INFINITY;
        lse[r] = any ? so_far[r].most + logf(so_far[r].sum) : 0;
        scale_row(D, any ? 1 / so_far[r].sum : 0, y + r * row_step);
    }
}

static void forward_head(const problem *p, const ckpt_kernel_args *args, int64_t bh, const scratch *s)
{
    const ckpt_attention_sizes *const z = &p->z;
    const head at = head_of(p, bh / z->heads, bh % z->heads);
    pack_turned(p, from_at(p, p->k, at.kv_at), s->k_turned);
    pack(p, z->S, from_at(p, p->v, at.kv_at), z->kv_row, 1, s->v);
    for (int64_t first = 0; first < z->T; first += BLOCK) {
        const int64_t rows = z->T - first < BLOCK ? z->T - first : BLOCK;
        void *const y = to_at(p, args->out[0], at.out_at + first * p->C);
        pack(p, rows, from_at(p, p->q, at.q_at + first * z->q_row), z->q_row, p->scale, s->q);
        forward_block(p, args, &at, first, rows, s, p->narrow ? s->y : y, p->narrow ? z->D : p->C);
        if (p->narrow) {
            unpack(p, rows, s->y, 1, y, p->C);
        }
    }
}

static ckpt_code check_mask(const problem *p, ckpt_err *err)
{
    const int64_t count = p->mask == NULL ? 0 : p->z.mask_count * p->z.mask_step;
    for (int64_t i = 0; i < count; i++) {
        if (p->mask[i] != 0 && p->mask[i] != 1) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "element %lld of the mask: found %ld, wanted 0 or 1", (long long)i,
                             (long)p->mask[i]);
        }
    }
    return CKPT_OK;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const attention *a = args->state;
    const problem p = problem_open(args, false);
    const int64_t part = scratch_count(args->node, false);
    CKPT_TRY(check_mask(&p, err));
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->forward_threads)
    for (int64_t bh = 0; bh < p.z.B * p.z.heads; bh++) {
        scratch s = {0};
        scratch_carve(&p, false, (float *)args->workspace + omp_get_thread_num() * part, &s);
        forward_head(&p, args, bh, &s);
    }
    return CKPT_OK;
}

/* P and dP of query i's keys `of` become the dropped P and dS. `delta` = rowsum(dO O). */
static void backward_row(const problem *p, const ckpt_kernel_args *args, const head *at, int64_t i, keys of,
                         float delta, uint32_t *words, float *P, float *dP)
{
    const float lse = ((const float *)args->saved[0])[at->bh * p->z.T + i];
    const int64_t count = of.end - of.from;
    change_scores(p, at, i, of, P);
    ckpt_vector_exp(count, P, lse, 1, P);
    if (p->drop > 0) {
        /* The mask stands between P and V, so dP passes through it and dS sees the P before it. */
        const uint32_t *word = draw_row(p, args, at->bh, i, of, words);
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
}

/* The bias's gradient of query i: dS of keys `of`, summed over the sequences in order. */
static void bias_gradient(const problem *p, const head *at, int64_t i, keys of, const float *dS)
{
    float *const to = p->dbias + (at->h * p->z.T + i) * p->z.S;
    if (at->b == 0) {
        memcpy(to + of.from, dS, (size_t)(of.end - of.from) * sizeof *to);
    } else {
        ckpt_vector_add(of.end - of.from, dS, to + of.from);
    }
}

/* Queries first .. first + rows - 1 of one head with one panel's keys `all`: what they add to dq, dk and dv. s->q and
 * s->dO are theirs. */
static void backward_panel(const problem *p, const ckpt_kernel_args *args, const head *at, int64_t first, int64_t rows,
                           int64_t start, keys all, const float *delta, const scratch *s)
{
    const int64_t D = p->z.D, count = all.end - all.from, turned = start * D + all.from - start;
    ckpt_tile_product(rows, count, D, s->q, D, 1, s->k_turned + turned, p->z.panel, s->P, p->z.panel, false);
    ckpt_tile_product(rows, count, D, s->dO, D, 1, s->v_turned + turned, p->z.panel, s->dP, p->z.panel, false);
    for (int64_t r = 0; r < rows; r++) {
        const keys of = seen(p, first + r, all);
        float *const P = s->P + r * p->z.panel, *const dP = s->dP + r * p->z.panel;
        if (of.end > of.from) {
            backward_row(p, args, at, first + r, of, delta[r], s->words, P + of.from - all.from,
                         dP + of.from - all.from);
        }
        clear_unseen(all, of, P);
        clear_unseen(all, of, dP);
        if (p->dbias != NULL && of.end > of.from) {
            bias_gradient(p, at, first + r, of, dP + of.from - all.from);
        }
    }
    ckpt_tile_product(count, D, rows, s->P, 1, p->z.panel, s->dO, D, s->dv + all.from * D, D, true);
    ckpt_tile_product(count, D, rows, s->dP, 1, p->z.panel, s->q, D, s->dk + all.from * D, D, true);
    if (p->dq != NULL) {
        ckpt_tile_product(rows, D, count, s->dP, p->z.panel, 1, s->k + all.from * D, D, s->dq, D, true);
    }
}

/* One head of queries: dq, and what it adds to dk and dv. */
static void backward_head(const problem *p, const ckpt_kernel_args *args, const head *at, const scratch *s)
{
    const ckpt_attention_sizes *const z = &p->z;
    const int64_t D = z->D;
    if (p->dbias != NULL && at->b == 0) {
        memset(p->dbias + at->h * z->T * z->S, 0, (size_t)(z->T * z->S) * sizeof *p->dbias);
    }
    for (int64_t first = 0; first < z->T; first += BLOCK) {
        const int64_t rows = z->T - first < BLOCK ? z->T - first : BLOCK;
        float delta[BLOCK];
        const int64_t out = at->out_at + first * p->C, q = at->q_at + first * z->q_row;
        pack(p, rows, from_at(p, p->q, q), z->q_row, p->scale, s->q);
        pack(p, rows, from_at(p, args->grad_out[0], out), p->C, 1, s->dO);
        pack(p, rows, from_at(p, args->out[0], out), p->C, 1, s->dq); /* y, where dq will be */
        for (int64_t r = 0; r < rows; r++) {
            delta[r] = ckpt_vector_dot(D, s->dO + r * D, s->dq + r * D);
        }
        memset(s->dq, 0, (size_t)(rows * D) * sizeof *s->dq);
        for (int64_t start = 0; start < z->S; start += p->z.panel) {
            const keys all = panel_keys(p, start, first, first + rows - 1);
            if (all.end > all.from) {
                backward_panel(p, args, at, first, rows, start, all, delta, s);
            }
        }
        if (p->dq != NULL) {
            unpack(p, rows, s->dq, p->scale, to_at(p, p->dq, q), z->q_row);
        }
    }
}

/* One head of keys of one sequence. */
static void backward_keys(const problem *p, const ckpt_kernel_args *args, int64_t b, int64_t key_head, const scratch *s)
{
    const int64_t S = p->z.S, D = p->z.D, row = p->z.kv_row, first = key_head * p->group;
    const int64_t at = head_of(p, b, first).kv_at;
    pack_turned(p, from_at(p, p->k, at), s->k_turned);
    pack_turned(p, from_at(p, p->v, at), s->v_turned);
    pack(p, S, from_at(p, p->k, at), row, 1, s->k);
    memset(s->dk, 0, (size_t)(S * D) * sizeof *s->dk);
    memset(s->dv, 0, (size_t)(S * D) * sizeof *s->dv);
    for (int64_t h = first; h < first + p->group; h++) {
        const head queries = head_of(p, b, h);
        backward_head(p, args, &queries, s);
    }
    if (p->dk != NULL) {
        unpack(p, S, s->dk, 1, to_at(p, p->dk, at), row);
    }
    if (p->dv != NULL) {
        unpack(p, S, s->dv, 1, to_at(p, p->dv, at), row);
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const attention *a = args->state;
    const problem p = problem_open(args, true);
    const int64_t part = scratch_count(args->node, true), units = backward_units(&p.z);
    const int64_t each = p.z.B * p.z.kv_heads / units; /* heads of keys in a unit */
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->backward_threads)
    for (int64_t unit = 0; unit < units; unit++) {
        scratch s = {0};
        scratch_carve(&p, true, (float *)args->workspace + omp_get_thread_num() * part, &s);
        for (int64_t i = 0; i < each; i++) {
            backward_keys(&p, args, unit / p.z.kv_heads + i, unit % p.z.kv_heads, &s);
        }
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
