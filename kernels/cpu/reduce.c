/* sum, mean and max over dims. Terms come in runs along the last reduced axis: neighbours where that is the last axis of
 * the input, else rows of columns. A thread has a part of the terms of one output, or of a strip of columns. Sums are
 * made in blocks: rounding grows with the number of blocks and their length, not with their product. */
#include "kernels/cpu/reduce.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/permute.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { STRIP = 256, ROWS = 64 };

/* Offsets in the input and in the result of the number-th index of `count` axes. */
static int64_t offset_of(const ckpt_reduction_axis *axis, int count, int64_t number, bool result)
{
    int64_t offset = 0;
    for (int i = count - 1; i >= 0; i--) {
        offset += number % axis[i].dim * (result ? axis[i].to : axis[i].from);
        number /= axis[i].dim;
    }
    return offset;
}

/* Some columns, or one output, and some of their terms. */
typedef struct piece {
    int64_t first;      /* output */
    int width;          /* outputs, neighbours in the input */
    int64_t part;       /* of the terms */
    const float *start; /* the first output's term 0 */
} piece;

typedef struct pieces {
    int64_t width, strips, count; /* width: columns, or 1 */
} pieces;

static pieces pieces_of(const ckpt_reduction *r)
{
    const int64_t width = r->columns ? r->kept[r->kept_count - 1].dim : 1, strips = (width + STRIP - 1) / STRIP;
    return (pieces){width, strips, r->outputs / width * strips * r->parts};
}

static piece find_piece(const ckpt_reduction *r, const pieces *all, const float *x, int64_t number)
{
    const int64_t strip = number / r->parts % all->strips, row = number / r->parts / all->strips;
    const int64_t rest = all->width - strip * STRIP;
    const int64_t first = row * all->width + strip * STRIP;
    return (piece){.first = first,
                   .width = (int)(rest < STRIP ? rest : STRIP),
                   .part = number % r->parts,
                   .start = x + offset_of(r->kept, r->kept_count, first, false)};
}

/* A run of terms: the next of those before `end`, along the last reduced axis. */
typedef struct run {
    const float *from;
    int64_t count, step;
} run;

static run find_run(const ckpt_reduction *r, const piece *p, int64_t term, int64_t end)
{
    const ckpt_reduction_axis *const last = &r->reduced[r->reduced_count - 1];
    const int64_t inside = term % last->dim, left = last->dim - inside;
    return (run){p->start + offset_of(r->reduced, r->reduced_count, term, false), left < end - term ? left : end - term,
                 last->from};
}

static int64_t part_end(const ckpt_reduction *r, const piece *p)
{
    const int64_t end = (p->part + 1) * r->part_terms;
    return end < r->terms ? end : r->terms;
}

/* part[c] += the rows of the run, at most ROWS. */
static void add_rows(const run *rows, int width, float *part)
{
    int64_t i = 0;
    for (; i + 4 <= rows->count; i += 4) {
        const float *const a = rows->from + i * rows->step, *const b = a + rows->step;
        const float *const c = b + rows->step, *const d = c + rows->step;
#pragma omp simd
        for (int j = 0; j < width; j++) {
            part[j] += (a[j] + b[j]) + (c[j] + d[j]);
        }
    }
    for (; i < rows->count; i++) {
        ckpt_vector_add(width, rows->from + i * rows->step, part);
    }
}

static void sum_columns(const ckpt_reduction *r, const piece *p, float *total)
{
    const int64_t end = part_end(r, p);
    float part[STRIP];
    int64_t in_part = 0;
    memset(total, 0, (size_t)p->width * sizeof *total);
    memset(part, 0, sizeof part);
    for (int64_t term = p->part * r->part_terms; term < end;) {
        const int64_t most = term + ROWS - in_part;
        const run rows = find_run(r, p, term, most < end ? most : end);
        add_rows(&rows, p->width, part);
        term += rows.count;
        in_part += rows.count;
        if (in_part == ROWS || term == end) {
            ckpt_vector_add(p->width, part, total);
            memset(part, 0, (size_t)p->width * sizeof *part);
            in_part = 0;
        }
    }
}

static float sum_row(const ckpt_reduction *r, const piece *p)
{
    const int64_t end = part_end(r, p);
    float total = 0;
    for (int64_t term = p->part * r->part_terms; term < end;) {
        const int64_t most = term + CKPT_BLOCK;
        const run row = find_run(r, p, term, most < end ? most : end);
        total += ckpt_vector_sum(row.count, row.from);
        term += row.count;
    }
    return total;
}

static void give(const ckpt_reduction *r, int64_t output, float sum, float divisor, bool adds, float *y)
{
    float *const to = y + offset_of(r->kept, r->kept_count, output, true);
    *to = adds ? *to + sum / divisor : sum / divisor;
}

void ckpt_reduce_sum(const ckpt_reduction *r, const float *x, float divisor, bool adds, float *y, void *workspace,
                     int threads)
{
    const pieces all = pieces_of(r);
    const ckpt_reduction_axis *const last = &r->kept[r->kept_count - 1];
    float *const parts = workspace; /* [parts][outputs] */
#pragma omp parallel for schedule(static) num_threads(threads) if (r->outputs * r->terms > CKPT_PARALLEL)
    for (int64_t number = 0; number < all.count; number++) {
        const piece p = find_piece(r, &all, x, number);
        float total[STRIP];
        if (r->columns) {
            sum_columns(r, &p, total);
        } else {
            total[0] = sum_row(r, &p);
        }
        if (r->parts > 1) {
            memcpy(parts + p.part * r->outputs + p.first, total, (size_t)p.width * sizeof *total);
            continue;
        }
        float *const to = y + offset_of(r->kept, r->kept_count, p.first, true);
        for (int j = 0; j < p.width; j++) {
            const float value = total[j] / divisor;
            to[j * last->to] = adds ? to[j * last->to] + value : value;
        }
    }
    for (int64_t output = 0; output < r->outputs && r->parts > 1; output++) {
        float sum = 0;
        for (int64_t part = 0; part < r->parts; part++) {
            sum += parts[part * r->outputs + output];
        }
        give(r, output, sum, divisor, adds, y);
    }
}

/* Greater, or the first NaN: NaN wins, as in PyTorch. */
static bool beats(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

/* Of a part's terms; `where`: their numbers. */
static void max_columns(const ckpt_reduction *r, const piece *p, float *most, int32_t *where)
{
    const int64_t first = p->part * r->part_terms, end = part_end(r, p);
    memcpy(most, find_run(r, p, first, end).from, (size_t)p->width * sizeof *most);
    for (int j = 0; j < p->width; j++) {
        where[j] = (int32_t)first;
    }
    for (int64_t term = first + 1; term < end;) {
        const run rows = find_run(r, p, term, end);
        for (int64_t i = 0; i < rows.count; i++) {
            const float *const row = rows.from + i * rows.step;
            for (int j = 0; j < p->width; j++) {
                const bool take = beats(row[j], most[j]);
                most[j] = take ? row[j] : most[j];
                where[j] = take ? (int32_t)(term + i) : where[j];
            }
        }
        term += rows.count;
    }
}

/* The first of the parts whose maximum no other beats. */
static void join_parts(const ckpt_reduction *r, const float *most, const int32_t *where, float *y, int32_t *index)
{
    for (int64_t output = 0; output < r->outputs; output++) {
        int64_t best = output;
        for (int64_t part = 1; part < r->parts; part++) {
            best = beats(most[part * r->outputs + output], most[best]) ? part * r->outputs + output : best;
        }
        const int64_t to = offset_of(r->kept, r->kept_count, output, true);
        y[to] = most[best];
        index[to] = where[best];
    }
}

static ckpt_code max_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    const pieces all = pieces_of(&r);
    const ckpt_reduction_axis *const last = &r.kept[r.kept_count - 1];
    float *const y = args->out[0], *const parts = args->workspace; /* [parts][outputs], then their numbers */
    int32_t *const index = args->saved[0], *const numbers = (int32_t *)(void *)(parts + r.parts * r.outputs);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (r.outputs * r.terms > CKPT_PARALLEL)
    for (int64_t number = 0; number < all.count; number++) {
        const piece p = find_piece(&r, &all, args->in[0], number);
        const int64_t own = p.part * r.outputs + p.first, to = offset_of(r.kept, r.kept_count, p.first, true);
        float most[STRIP];
        int32_t where[STRIP];
        max_columns(&r, &p, most, where);
        for (int j = 0; j < p.width; j++) {
            if (r.parts > 1) {
                parts[own + j] = most[j];
                numbers[own + j] = where[j];
            } else {
                y[to + j * last->to] = most[j];
                index[to + j * last->to] = where[j];
            }
        }
    }
    if (r.parts > 1) {
        join_parts(&r, parts, numbers, y, index);
    }
    return CKPT_OK;
}

static ckpt_code max_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    const float *const dy = args->grad_out[0];
    const int32_t *const index = args->saved[0];
    float *const dx = args->grad_in[0];
    const int threads = args->node->threads;
    if ((args->grad_in_adds & 1) == 0) {
        const int64_t count = r.outputs * r.terms;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
        for (int64_t part = 0; part < threads; part++) {
            const int64_t from = count * part / threads, to = count * (part + 1) / threads;
            memset(dx + from, 0, (size_t)(to - from) * sizeof *dx);
        }
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (r.outputs > CKPT_PARALLEL)
    for (int64_t output = 0; output < r.outputs; output++) {
        const int64_t at = offset_of(r.kept, r.kept_count, output, true);
        const int64_t start = offset_of(r.kept, r.kept_count, output, false);
        dx[start + offset_of(r.reduced, r.reduced_count, index[at], false)] += dy[at];
    }
    return CKPT_OK;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = node->forward_workspace_bytes;
    *backward = node->backward_workspace_bytes;
}

static ckpt_code sum_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    ckpt_reduce_sum(&r, args->in[0], 1, false, args->out[0], args->workspace, args->node->threads);
    return CKPT_OK;
}

static ckpt_code mean_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    ckpt_reduce_sum(&r, args->in[0], (float)r.terms, false, args->out[0], args->workspace, args->node->threads);
    return CKPT_OK;
}

static ckpt_code sum_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_walk walk = ckpt_walk_spread(args->node, false);
    ckpt_permute(&walk, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

static ckpt_code mean_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_walk walk = ckpt_walk_spread(args->node, true);
    ckpt_permute(&walk, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_sum = {
    .op = "sum",
    .workspace = workspace,
    .forward = sum_forward,
    .backward = sum_backward,
};

const ckpt_kernel ckpt_cpu_mean = {
    .op = "mean",
    .workspace = workspace,
    .forward = mean_forward,
    .backward = mean_backward,
};

const ckpt_kernel ckpt_cpu_max = {
    .op = "max",
    .workspace = workspace,
    .forward = max_forward,
    .backward = max_backward,
};
