/* Broadcast ops. Rows are cut, or put together, so that a thread takes CKPT_BLOCK elements at a time.
 *
 * Sums: a thread sums one part for one strip of a row. It adds the lines of a part one after another, and sums a row, if
 * that is summed too, in 16 lanes. So bits depend on the shape alone. */
#include "kernels/cpu/broadcast.h"

#include <string.h>

#include "kernels/cpu/vector.h"
#include "ops/broadcast.h"

enum { STRIP = 256 };

/* An index of a space, and where it lies in each tensor. */
typedef struct place {
    int64_t at[CKPT_RANK_MAX], offset[3];
} place;

static place seek(const ckpt_broadcast_space *space, int64_t index)
{
    place p = {.offset = {0}};
    for (int d = space->rank - 1; d >= 0; d--) {
        p.at[d] = index % space->dim[d];
        index /= space->dim[d];
        for (int t = 0; t < 3; t++) {
            p.offset[t] += p.at[d] * space->step[t][d];
        }
    }
    return p;
}

static void next(const ckpt_broadcast_space *space, place *p)
{
    for (int d = space->rank - 1; d >= 0; d--) {
        const bool wraps = ++p->at[d] == space->dim[d];
        for (int t = 0; t < 3; t++) {
            p->offset[t] += wraps ? space->step[t][d] * (1 - space->dim[d]) : space->step[t][d];
        }
        if (!wraps) {
            return;
        }
        p->at[d] = 0;
    }
}

/* An op's loop and what it reads. */
typedef struct source {
    ckpt_broadcast_loop *loop; /* NULL: dy as it is */
    const float *x[2], *dy;
} source;

static const float *at(const float *x, int64_t offset)
{
    return x != NULL ? x + offset : NULL;
}

/* Elements start .. start + n - 1 of a row, in `buffer` or where dy has them. `offset`: of the row in each tensor. */
static const float *row_values(const source *s, const ckpt_broadcast *b, const int64_t offset[3], int64_t start,
                               int64_t n, float *buffer)
{
    const float *const dy = at(s->dy, offset[CKPT_BROADCAST_OUT] + start);
    if (s->loop == NULL) {
        return dy;
    }
    s->loop(n, dy, at(s->x[0], offset[0] + start * b->step[0]), b->step[0], at(s->x[1], offset[1] + start * b->step[1]),
            b->step[1], buffer);
    return buffer;
}

static void put(int64_t n, const float *from, float *to, int64_t step, bool adds)
{
    if (step == 1 && adds) {
        ckpt_vector_add(n, from, to);
    } else if (step == 1 && from != to) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else if (step != 1) {
        for (int64_t i = 0; i < n; i++) {
            to[i * step] = adds ? to[i * step] + from[i] : from[i];
        }
    }
}

/* One result for every element of the output, in tensor t: that is `to`. */
static void each_element(const ckpt_kernel_args *args, const ckpt_broadcast *b, const source *s, int t, float *to,
                         bool adds)
{
    const int64_t rows = ckpt_broadcast_count(&b->rows), chunks = CKPT_BLOCKS(b->row);
    const int64_t together = b->row < CKPT_BLOCK ? CKPT_BLOCK / b->row : 1;
    const int64_t pieces = (rows + together - 1) / together * chunks;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (rows * b->row > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t start = piece % chunks * CKPT_BLOCK, n = CKPT_IN_BLOCK(b->row, piece % chunks);
        const int64_t first = piece / chunks * together, end = first + together < rows ? first + together : rows;
        place p = seek(&b->rows, first);
        float buffer[CKPT_BLOCK];
        for (int64_t row = first; row < end; row++) {
            float *const result = to + p.offset[t] + start * b->step[t];
            const bool direct = !adds && b->step[t] == 1;
            const float *const values = row_values(s, b, p.offset, start, n, direct ? result : buffer);
            put(n, values, result, b->step[t], adds);
            next(&b->rows, &p);
        }
    }
}

/* In double: what is summed over whole rows often nearly cancels. */
static double exact_sum(int64_t n, const float *x)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    return sum;
}

/* A part of the sum at one kept place and `n` elements of a row from `start` on, in sum[0..n); where rows are summed, in
 * sum[0]. */
static void sum_part(const source *s, const ckpt_broadcast *b, const ckpt_broadcast_sum *how, bool across,
                     const int64_t kept[3], int64_t part, int64_t start, int64_t n, float *sum)
{
    const int64_t chunks = across ? (b->row + CKPT_BROADCAST_CHUNK - 1) / CKPT_BROADCAST_CHUNK : 1;
    const int64_t first = part * how->part;
    const int64_t end = first + how->part < how->pieces ? first + how->part : how->pieces;
    place p = seek(&how->lines, first / chunks);
    float buffer[CKPT_BROADCAST_CHUNK];
    double total = 0; /* of rows that are summed */
    memset(sum, 0, (size_t)(across ? 1 : n) * sizeof *sum);
    for (int64_t piece = first; piece < end; piece++) {
        const int64_t offset[3] = {kept[0] + p.offset[0], kept[1] + p.offset[1], kept[2] + p.offset[2]};
        if (across) {
            const int64_t from = piece % chunks * CKPT_BROADCAST_CHUNK, rest = b->row - from;
            const int64_t length = rest < CKPT_BROADCAST_CHUNK ? rest : CKPT_BROADCAST_CHUNK;
            total += exact_sum(length, row_values(s, b, offset, from, length, buffer));
        } else {
            ckpt_vector_add(n, row_values(s, b, offset, start, n, buffer), sum);
        }
        if ((piece + 1) % chunks == 0) {
            next(&how->lines, &p);
        }
    }
    if (across) {
        sum[0] = (float)total;
    }
}

/* to = or += the parts, added in order. */
static void add_parts(const ckpt_kernel_args *args, int64_t parts, int64_t count, const float *part, float *to,
                      bool adds)
{
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (parts * count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        const int64_t start = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        float total[CKPT_BLOCK];
        memcpy(total, part + start, (size_t)n * sizeof *total);
        for (int64_t p = 1; p < parts; p++) {
            ckpt_vector_add(n, part + p * count + start, total);
        }
        put(n, total, to + start, 1, adds);
    }
}

static void sum_gradient(const ckpt_kernel_args *args, const ckpt_broadcast *b, const source *s, int k, float *to,
                         bool adds)
{
    const ckpt_broadcast_sum how = ckpt_broadcast_sum_of(args->node, b, k);
    const bool across = b->step[k] == 0;
    const int64_t strips = across ? 1 : (b->row + STRIP - 1) / STRIP, kept = ckpt_broadcast_count(&how.kept);
    const int64_t count = ckpt_shape_count(&args->node->in[k].shape);
    const int64_t all = ckpt_shape_count(&args->node->out[0].shape);
    float *const workspace = args->workspace;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (all > CKPT_PARALLEL)
    for (int64_t unit = 0; unit < kept * strips * how.parts; unit++) {
        const int64_t part = unit % how.parts, strip = unit / how.parts % strips, start = strip * STRIP;
        const int64_t n = b->row - start < STRIP ? b->row - start : STRIP;
        const place p = seek(&how.kept, unit / how.parts / strips);
        float sum[STRIP];
        sum_part(s, b, &how, across, p.offset, part, start, n, sum);
        float *const result = how.parts > 1 ? workspace + part * count : to;
        put(across ? 1 : n, sum, result + p.offset[k] + start * b->step[k], across ? 1 : b->step[k],
            adds && how.parts == 1);
    }
    if (how.parts > 1) {
        add_parts(args, how.parts, count, workspace, to, adds);
    }
}

void ckpt_broadcast_kernel_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward,
                                     ckpt_bytes *backward)
{
    (void)state;
    ckpt_broadcast_workspace(node, forward, backward);
}

void ckpt_broadcast_forward(const ckpt_kernel_args *args, ckpt_broadcast_loop *value)
{
    const ckpt_broadcast b = ckpt_broadcast_of(args->node);
    const source s = {.loop = value, .x = {args->in[0], args->in[1]}};
    each_element(args, &b, &s, CKPT_BROADCAST_OUT, args->out[0], false);
}

void ckpt_broadcast_backward(const ckpt_kernel_args *args, ckpt_broadcast_loop *const slope[2])
{
    const ckpt_broadcast b = ckpt_broadcast_of(args->node);
    for (int k = 0; k < 2; k++) {
        const source s = {.loop = slope[k], .x = {args->in[0], args->in[1]}, .dy = args->grad_out[0]};
        const bool adds = (args->grad_in_adds >> k & 1) != 0;
        if (args->grad_in[k] != NULL && ckpt_broadcast_sums(args->node, k)) {
            sum_gradient(args, &b, &s, k, args->grad_in[k], adds);
        } else if (args->grad_in[k] != NULL) {
            each_element(args, &b, &s, k, args->grad_in[k], adds);
        }
    }
}
