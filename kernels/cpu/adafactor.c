/* Adafactor: moments of rows and columns, then two passes over the gradient, one for the size of the update and one that
 * does it. Rows are cut into tasks of CKPT_ADAFACTOR_TASK columns; sums over tasks are made of PARTS parts in order, so
 * that no bit depends on the threads. The step's numbers: ops/defs/adafactor.c. */
#include <math.h>

#include "kernels/cpu/clip.h"
#include "kernels/cpu/update.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"
#include "ops/whole_update.h"

enum {
    LR,
    BETA2_DECAY,
    EPS1,
    EPS2,
    CLIP,
    WEIGHT_DECAY,
    PARTS = 64,
    LANES = 8,
    STRIP = 256,
    TASK = CKPT_ADAFACTOR_TASK
};

typedef struct job {
    const ckpt_update_args *args;
    int64_t stack, rows, columns;
    float scale, move, floor, least; /* of gradients; of moments; eps1 squared, eps1 */
    bool parallel;
} job;

/* The sum of (scale x)^2. */
static double squares(const float *x, int64_t count, float scale)
{
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            const float g = x[i + lane] * scale;
            sum[lane] += (double)g * (double)g;
        }
    }
    for (int lane = 0; i < count; i++, lane++) {
        const float g = x[i] * scale;
        sum[lane] += (double)g * (double)g;
    }
    double total = 0.0;
    for (int lane = 0; lane < LANES; lane++) {
        total += sum[lane];
    }
    return total;
}

static void move_rows(const job *j)
{
    const int64_t rows = j->stack * j->rows;
    float *const moment = j->args->slot[0];
#pragma omp parallel for schedule(static) num_threads(j->args->threads) if (j->parallel)
    for (int64_t r = 0; r < rows; r++) {
        const float mean = (float)(squares(j->args->grad + r * j->columns, j->columns, j->scale) / (double)j->columns);
        moment[r] = moment[r] + j->move * (mean - moment[r]);
    }
}

/* Columns [first, first + count) of one matrix. */
static void move_strip(const job *j, const float *grad, float *moment, int64_t first, int64_t count)
{
    double sum[STRIP] = {0};
    for (int64_t r = 0; r < j->rows; r++) {
        for (int64_t c = 0; c < count; c++) {
            const float g = grad[r * j->columns + first + c] * j->scale;
            sum[c] += (double)g * (double)g;
        }
    }
    for (int64_t c = 0; c < count; c++) {
        const float mean = (float)(sum[c] / (double)j->rows);
        moment[first + c] = moment[first + c] + j->move * (mean - moment[first + c]);
    }
}

static void move_columns(const job *j)
{
    const int64_t strips = (j->columns + STRIP - 1) / STRIP;
#pragma omp parallel for schedule(static) num_threads(j->args->threads) if (j->parallel)
    for (int64_t t = 0; t < j->stack * strips; t++) {
        const int64_t s = t / strips, first = t % strips * STRIP;
        const int64_t count = j->columns - first < STRIP ? j->columns - first : STRIP;
        move_strip(j, j->args->grad + s * j->rows * j->columns, j->args->slot[1] + s * j->columns, first, count);
    }
}

/* What the moments of columns are multiplied by in a row: its own over the mean of the matrix's rows. */
static float row_factor(const job *j, int64_t row, float mean)
{
    return j->rows > 1 ? j->args->slot[0][row] / (mean > j->least ? mean : j->least) : 1.0f;
}

static float mean_of_rows(const job *j, int64_t matrix)
{
    double sum = 0.0;
    for (int64_t r = 0; r < j->rows && j->rows > 1; r++) {
        sum += (double)j->args->slot[0][matrix * j->rows + r];
    }
    return (float)(sum / (double)j->rows);
}

static inline float update_of(const job *j, float grad, float factor, float moment)
{
    const float v = factor * moment;
    return grad * j->scale / sqrtf(v > j->floor ? v : j->floor);
}

/* Tasks [from, to) of a pass: with `size` NULL the parameter's values move, else *size is the sum of the update's
 * squares. */
static void pass(const job *j, int64_t from, int64_t to, float stay, float rate, double *size)
{
    const int64_t in_row = (j->columns + TASK - 1) / TASK;
    int64_t matrix = -1;
    float mean = 0.0f;
    for (int64_t t = from; t < to; t++) {
        const int64_t row = t / in_row, first = t % in_row * TASK;
        const int64_t count = j->columns - first < TASK ? j->columns - first : TASK;
        if (row / j->rows != matrix) {
            matrix = row / j->rows;
            mean = mean_of_rows(j, matrix);
        }
        const float factor = row_factor(j, row, mean);
        const float *const grad = j->args->grad + row * j->columns + first;
        const float *const moment = j->args->slot[1] + matrix * j->columns + first;
        float *const param = j->args->param + row * j->columns + first;
        if (size != NULL) {
            double sum[LANES] = {0};
            for (int64_t i = 0; i < count; i++) {
                const float u = update_of(j, grad[i], factor, moment[i]);
                sum[i % LANES] += (double)u * (double)u;
            }
            for (int lane = 0; lane < LANES; lane++) {
                *size += sum[lane];
            }
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            param[i] = param[i] * stay - rate * update_of(j, grad[i], factor, moment[i]);
        }
        ckpt_update_copy(j->args, row * j->columns + first, count);
    }
}

static double size_of_update(const job *j)
{
    const int64_t tasks = j->stack * j->rows * ((j->columns + TASK - 1) / TASK);
    double part[PARTS] = {0}, sum = 0.0;
#pragma omp parallel for schedule(static) num_threads(j->args->threads) if (j->parallel)
    for (int p = 0; p < PARTS; p++) {
        pass(j, tasks * p / PARTS, tasks * (p + 1) / PARTS, 0, 0, &part[p]);
    }
    for (int p = 0; p < PARTS; p++) {
        sum += part[p];
    }
    return sum;
}

static void move_values(const job *j, float stay, float rate)
{
    const int64_t tasks = j->stack * j->rows * ((j->columns + TASK - 1) / TASK);
#pragma omp parallel for schedule(static) num_threads(j->args->threads) if (j->parallel)
    for (int p = 0; p < PARTS; p++) {
        pass(j, tasks * p / PARTS, tasks * (p + 1) / PARTS, stay, rate, NULL);
    }
}

static void step_all(const ckpt_update_args *args, const float *number)
{
    const double *const hyper = args->hyper;
    const double count = (double)args->count,
                 size = sqrt(ckpt_clip_squares(args->count, args->param, args->threads) / count);
    const job j = {.args = args,
                   .stack = args->matrix.stack,
                   .rows = args->matrix.rows,
                   .columns = args->matrix.columns,
                   .scale = args->scale != NULL ? *args->scale : 1.0f,
                   .move = number[1],
                   .floor = (float)(hyper[EPS1] * hyper[EPS1]),
                   .least = (float)hyper[EPS1],
                   .parallel = args->count > CKPT_PARALLEL};
    if (j.rows > 1) {
        move_rows(&j);
    }
    move_columns(&j);
    const double large = sqrt(size_of_update(&j) / count) / hyper[CLIP];
    const double rate = (size > hyper[EPS2] ? size : hyper[EPS2]) * (double)number[0] / (large > 1.0 ? large : 1.0);
    move_values(&j, args->decay ? number[2] : 1.0f, (float)rate);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    for (int i = 0; i < count; i++) {
        step_all(&args[i], numbers->of[args[i].group]);
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_adafactor = {
    .optimizer = "adafactor",
    .update = update,
};
