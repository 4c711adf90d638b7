/* Muon: momentum, five iterations of Newton and Schulz in float32 on an upright copy, and the step. The products are of
 * tiles by ckpt_tile_product, each element one chain of sums, so that no bit depends on the threads. Other parameters
 * take AdamW's step. The step's numbers and the workspace: ops/defs/muon.c, ops/whole_update.h. */
#include <math.h>

#include "kernels/cpu/adam_step.h"
#include "kernels/cpu/clip.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/update.h"
#include "kernels/cpu/vector.h"
#include "ops/whole_update.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY, EPS, MATCH_RMS, ADAMW_LR, BETA1, BETA2, ADAMW_EPS };
enum { ITERATIONS = 5, ROWS = 64, COLUMNS = 128, DEPTH = 256 };

static const float first = 3.4445f, second = -4.7750f, third = 2.0315f;

/* to = times (a b) + d_times d, row by row: [rows, columns] = [rows, inner] [inner, columns]; element (i, k) of a is at i *
 * a_row + k * a_column. `to` is none of the others. */
typedef struct product {
    int64_t rows, columns, inner;
    const float *a;
    int64_t a_row, a_column;
    const float *b, *d;
    float times, d_times;
    float *to;
} product;

static void run_tile(const product *p, int64_t i, int64_t j)
{
    const int64_t rows = p->rows - i < ROWS ? p->rows - i : ROWS;
    const int64_t columns = p->columns - j < COLUMNS ? p->columns - j : COLUMNS;
    float *const to = p->to + i * p->columns + j;
    for (int64_t k = 0; k < p->inner; k += DEPTH) {
        ckpt_tile_product(rows, columns, p->inner - k < DEPTH ? p->inner - k : DEPTH,
                          p->a + i * p->a_row + k * p->a_column, p->a_row, p->a_column, p->b + k * p->columns + j,
                          p->columns, to, p->columns, k > 0);
    }
    for (int64_t r = 0; r < rows && p->d != NULL; r++) {
        const float *const d = p->d + (i + r) * p->columns + j;
        for (int64_t c = 0; c < columns; c++) {
            to[r * p->columns + c] = p->times * to[r * p->columns + c] + p->d_times * d[c];
        }
    }
}

static void run_product(const product *p, int threads)
{
    const int64_t across = (p->columns + COLUMNS - 1) / COLUMNS, tiles = (p->rows + ROWS - 1) / ROWS * across;
#pragma omp parallel for schedule(static) num_threads(threads) if (p->rows * p->columns > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        run_tile(p, t / across * ROWS, t % across * COLUMNS);
    }
}

typedef struct job {
    const ckpt_update_args *args;
    ckpt_muon_space space;
    float *param, *buffer; /* of one matrix */
    const float *grad;
    float *x; /* upright */
} job;

/* Where element (r, c) of the parameter is in the upright copy. */
static inline int64_t upright(const job *j, int64_t r, int64_t c)
{
    return j->space.turned ? c * j->space.small + r : r * j->space.small + c;
}

static void gather(const job *j)
{
    const ckpt_update_args *const args = j->args;
    const int64_t rows = args->matrix.rows, columns = args->matrix.columns;
    const float scale = args->scale != NULL ? *args->scale : 1.0f;
    const float keep = (float)args->hyper[MOMENTUM], rest = (float)(1.0 - args->hyper[MOMENTUM]);
    const bool nesterov = args->hyper[NESTEROV] != 0.0;
#pragma omp parallel for schedule(static) num_threads(args->threads) if (rows * columns > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            const int64_t i = r * columns + c;
            const float g = j->grad[i] * scale;
            const float m = j->buffer[i] + rest * (g - j->buffer[i]);
            j->buffer[i] = m;
            j->x[upright(j, r, c)] = nesterov ? g + keep * (m - g) : m;
        }
    }
}

/* x becomes nearly orthogonal; gives where it is. */
static float *iterate(const job *j)
{
    char *const base = j->args->workspace;
    const ckpt_muon_space *const s = &j->space;
    const int64_t count = s->large * s->small;
    const int threads = j->args->threads;
    float *x = j->x, *other = (float *)(void *)(base + s->other);
    float *const gram = (float *)(void *)(base + s->gram), *const poly = (float *)(void *)(base + s->product);
    const double norm = sqrt(ckpt_clip_squares(count, x, threads)), least = j->args->hyper[EPS];
    const float inverse = (float)(1.0 / (norm > least ? norm : least));
    for (int64_t i = 0; i < count; i++) {
        x[i] *= inverse;
    }
    for (int n = 0; n < ITERATIONS; n++) {
        run_product(&(product){s->small, s->small, s->large, x, 1, s->small, x, NULL, 1, 0, gram}, threads);
        run_product(&(product){s->small, s->small, s->small, gram, s->small, 1, gram, gram, third, second, poly},
                    threads);
        run_product(&(product){s->large, s->small, s->small, x, s->small, 1, poly, x, 1, first, other}, threads);
        float *const made = other;
        other = x;
        x = made;
    }
    return x;
}

static void scatter(const job *j, const float *x, float stay, float rate)
{
    const int64_t rows = j->args->matrix.rows, columns = j->args->matrix.columns;
#pragma omp parallel for schedule(static) num_threads(j->args->threads) if (rows * columns > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            float *const w = &j->param[r * columns + c];
            *w = *w * stay - rate * x[upright(j, r, c)];
        }
        ckpt_update_copy(j->args, j->param - j->args->param + r * columns, columns);
    }
}

static void step_matrices(const ckpt_update_args *args, const float *number)
{
    const ckpt_matrix *const m = &args->matrix;
    const double wide = (double)m->columns, high = (double)m->rows;
    const double factor = args->hyper[MATCH_RMS] != 0.0 ? 0.2 * sqrt(high > wide ? high : wide)
                          : high > wide                 ? sqrt(high / wide)
                                                        : 1.0;
    for (int64_t k = 0; k < m->stack; k++) {
        const int64_t at = k * m->rows * m->columns;
        job j = {.args = args,
                 .space = ckpt_muon_space_of(m, false),
                 .param = args->param + at,
                 .buffer = args->slot[0] + at,
                 .grad = args->grad + at,
                 .x = args->workspace};
        gather(&j);
        scatter(&j, iterate(&j), args->decay ? number[1] : 1.0f, (float)((double)number[0] * factor));
    }
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    for (int i = 0; i < count; i++) {
        const double *const hyper = args[i].hyper;
        const float *const number = numbers->of[args[i].group];
        if (ckpt_muon_takes(&args[i].matrix)) {
            step_matrices(&args[i], number);
            continue;
        }
        const float adamw[] = {number[2], number[3], number[4], 0.0f};
        const ckpt_adam_rule rule =
            ckpt_adam_rule_of(hyper[BETA1], hyper[BETA2], hyper[ADAMW_EPS], adamw, args[i].decay);
        ckpt_adam_step(&args[i], &rule);
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_muon = {
    .optimizer = "muon",
    .update = update,
};
