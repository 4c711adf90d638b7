/* Adafactor: moments of rows, moments of columns (parts of rows, then the parts in order), means of the rows' moments, the
 * squares of parameter and update, and the step. Reads the gradient four times and the parameter twice, writes the
 * parameter once: 30 bytes a parameter, bound by memory. Formulas are those of kernels/cpu/adafactor.c; sums within a block
 * are float here, sums over blocks double, all in an order that the shape alone decides. */
#include "kernels/cuda/device.cuh"

extern "C" {
#include "ops/whole_update.h"
}

enum { LR, BETA2_DECAY, EPS1, EPS2, CLIP, WEIGHT_DECAY };

namespace
{
enum { THREADS = 256, STRIP = 32, DOWN = THREADS / STRIP, TASK = CKPT_ADAFACTOR_TASK };

struct factored {
    const ckpt_cuda_counters *counters;
    const float *factor; /* of gradients; NULL: 1 */
    const float *grad;
    float *param;
    bf16 *param16; /* NULL: a float32 model */
    float *row, *column;
    int64_t stack, rows, columns, tasks, parts, part_rows;
    int group;
    bool decay;
    float floor, least; /* eps1 squared, eps1 */
    double eps2, clip;
    double *param_squares, *task_squares;
    float *rate, *mean, *part; /* the step's factor, per matrix, [stack, parts, columns] */
};
} // namespace

__device__ inline float factored_scale(const factored &f)
{
    return f.factor != NULL ? *f.factor : 1.0f;
}

__device__ inline float factored_move(const factored &f, float moment, float mean)
{
    return moment + f.counters->numbers.of[f.group][1] * (mean - moment);
}

/* A block has a row at a time. */
__global__ void __launch_bounds__(THREADS) factored_rows(factored f)
{
    __shared__ float shared[32];
    const float scale = factored_scale(f);
    for (int64_t r = blockIdx.x; r < f.stack * f.rows; r += gridDim.x) {
        float own = 0.0f;
        for (int64_t c = threadIdx.x; c < f.columns; c += THREADS) {
            const float g = product_of(f.grad[r * f.columns + c], scale);
            own += g * g;
        }
        const float sum = block_sum(own, shared);
        if (threadIdx.x == 0) {
            f.row[r] = factored_move(f, f.row[r], sum / (float)f.columns);
        }
    }
}

/* A block has 32 columns of a part of a matrix's rows; a warp goes over every eighth of them. */
__global__ void __launch_bounds__(THREADS) factored_columns(factored f)
{
    __shared__ float shared[DOWN][STRIP];
    const int x = (int)threadIdx.x % STRIP, y = (int)threadIdx.x / STRIP;
    const float scale = factored_scale(f);
    const int64_t strips = (f.columns + STRIP - 1) / STRIP;
    for (int64_t b = blockIdx.x; b < f.stack * f.parts * strips; b += gridDim.x) {
        const int64_t part = b / strips % f.parts, matrix = b / strips / f.parts, c = b % strips * STRIP + x;
        const int64_t first = part * f.part_rows;
        const int64_t end = first + f.part_rows < f.rows ? first + f.part_rows : f.rows;
        float own = 0.0f;
        for (int64_t r = first + y; r < end && c < f.columns; r += DOWN) {
            const float g = product_of(f.grad[(matrix * f.rows + r) * f.columns + c], scale);
            own += g * g;
        }
        shared[y][x] = own;
        __syncthreads();
        if (y == 0 && c < f.columns) {
            float sum = 0.0f;
            for (int k = 0; k < DOWN; k++) {
                sum += shared[k][x];
            }
            f.part[(matrix * f.parts + part) * f.columns + c] = sum;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS) factored_parts(factored f)
{
    for (int64_t i = first_item(); i < f.stack * f.columns; i += item_step()) {
        const int64_t matrix = i / f.columns, c = i % f.columns;
        double sum = 0;
        for (int64_t p = 0; p < f.parts; p++) {
            sum += (double)f.part[(matrix * f.parts + p) * f.columns + c];
        }
        f.column[i] = factored_move(f, f.column[i], (float)(sum / (double)f.rows));
    }
}

/* A block has a matrix at a time. */
__global__ void __launch_bounds__(THREADS) factored_means(factored f)
{
    __shared__ double shared[THREADS];
    for (int64_t m = blockIdx.x; m < f.stack; m += gridDim.x) {
        double own = 0;
        for (int64_t r = threadIdx.x; r < f.rows; r += THREADS) {
            own += (double)f.row[m * f.rows + r];
        }
        const double sum = block_halves<THREADS>(own, shared);
        if (threadIdx.x == 0) {
            f.mean[m] = (float)(sum / (double)f.rows);
        }
    }
}

/* Where a task's columns are, and what the columns' moments are multiplied by in its row. */
struct factored_task {
    int64_t at, moment;
    int count;
    float factor;
};

__device__ inline factored_task factored_task_of(const factored &f, int64_t t)
{
    const int64_t in_row = (f.columns + TASK - 1) / TASK, row = t / in_row, first = t % in_row * TASK;
    const int64_t matrix = row / f.rows, left = f.columns - first;
    const float factor = f.rows > 1 ? f.row[row] / fmaxf(f.mean[matrix], f.least) : 1.0f;
    return {row * f.columns + first, matrix * f.columns + first, left < TASK ? (int)left : (int)TASK, factor};
}

__device__ inline float factored_update(const factored &f, const factored_task &task, int i, float scale)
{
    const float v = product_of(task.factor, f.column[task.moment + i]);
    return product_of(f.grad[task.at + i], scale) / sqrtf(fmaxf(v, f.floor));
}

__global__ void __launch_bounds__(THREADS) factored_size(factored f)
{
    __shared__ double shared[THREADS];
    const float scale = factored_scale(f);
    for (int64_t t = blockIdx.x; t < f.tasks; t += gridDim.x) {
        const factored_task task = factored_task_of(f, t);
        double own = 0;
        for (int i = (int)threadIdx.x; i < task.count; i += THREADS) {
            const double u = (double)factored_update(f, task, i, scale);
            own += u * u;
        }
        const double sum = block_halves<THREADS>(own, shared);
        if (threadIdx.x == 0) {
            f.task_squares[t] = sum;
        }
    }
}

/* One block. */
__global__ void __launch_bounds__(THREADS) factored_rate(factored f)
{
    __shared__ double shared[THREADS];
    double own = 0;
    for (int64_t t = threadIdx.x; t < f.tasks; t += THREADS) {
        own += f.task_squares[t];
    }
    const double sum = block_halves<THREADS>(own, shared);
    if (threadIdx.x == 0) {
        const double count = (double)(f.stack * f.rows * f.columns);
        const double size = sqrt(*f.param_squares / count), large = sqrt(sum / count) / f.clip;
        *f.rate = (float)((size > f.eps2 ? size : f.eps2) * (double)f.counters->numbers.of[f.group][0] /
                          (large > 1.0 ? large : 1.0));
    }
}

__global__ void __launch_bounds__(THREADS) factored_step(factored f)
{
    const float scale = factored_scale(f), rate = *f.rate;
    const float stay = f.decay ? f.counters->numbers.of[f.group][2] : 1.0f;
    for (int64_t t = blockIdx.x; t < f.tasks; t += gridDim.x) {
        const factored_task task = factored_task_of(f, t);
        for (int i = (int)threadIdx.x; i < task.count; i += THREADS) {
            const float w = f.param[task.at + i] * stay - rate * factored_update(f, task, i, scale);
            f.param[task.at + i] = w;
            if (f.param16 != NULL) {
                f.param16[task.at + i] = from_float<bf16>(w);
            }
        }
    }
}

static factored factored_of(const ckpt_update_args *args, const ckpt_adafactor_space *s)
{
    char *const base = (char *)args->workspace;
    const double *const value = args->hyper;
    factored f = {};
    f.counters = ((const ckpt_cuda *)args->context)->counters;
    f.factor = args->scale;
    f.grad = args->grad;
    f.param = args->param;
    f.param16 = (bf16 *)args->param16;
    f.row = args->slot[0];
    f.column = args->slot[1];
    f.stack = args->matrix.stack;
    f.rows = args->matrix.rows;
    f.columns = args->matrix.columns;
    f.tasks = s->tasks;
    f.parts = s->parts;
    f.part_rows = s->part_rows;
    f.group = args->group;
    f.decay = args->decay;
    f.floor = (float)(value[EPS1] * value[EPS1]);
    f.least = (float)value[EPS1];
    f.eps2 = value[EPS2];
    f.clip = value[CLIP];
    f.param_squares = (double *)(void *)(base + s->head);
    f.rate = (float *)(void *)(base + s->head + 8);
    f.task_squares = (double *)(void *)(base + s->task);
    f.mean = (float *)(void *)(base + s->mean);
    f.part = (float *)(void *)(base + s->column);
    return f;
}

static unsigned blocks_of(int64_t work)
{
    return (unsigned)(work < INT32_MAX ? work : INT32_MAX);
}

static ckpt_code step_all(const ckpt_update_args *args, ckpt_err *err)
{
    ckpt_cuda *const cuda = (ckpt_cuda *)args->context;
    const ckpt_adafactor_space s = ckpt_adafactor_space_of(&args->matrix);
    const factored f = factored_of(args, &s);
    const int64_t strips = (f.columns + STRIP - 1) / STRIP;
    if (f.rows > 1) {
        CKPT_LAUNCH(cuda, factored_rows, blocks_of(f.stack * f.rows), THREADS, 0, f);
        CKPT_LAUNCH(cuda, factored_means, blocks_of(f.stack), THREADS, 0, f);
    }
    CKPT_LAUNCH(cuda, factored_columns, blocks_of(f.stack * f.parts * strips), THREADS, 0, f);
    CKPT_LAUNCH(cuda, factored_parts, (unsigned)grid_for(cuda, f.stack * f.columns, THREADS), THREADS, 0, f);
    CKPT_TRY(
        ckpt_cuda_square_sum(cuda, f.param, args->count, f.param_squares, (char *)args->workspace + s.square, err));
    CKPT_LAUNCH(cuda, factored_size, blocks_of(f.tasks), THREADS, 0, f);
    CKPT_LAUNCH(cuda, factored_rate, 1, THREADS, 0, f);
    CKPT_LAUNCH(cuda, factored_step, blocks_of(f.tasks), THREADS, 0, f);
    return ckpt_cuda_launched("adafactor", err);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    for (int i = 0; i < count; i++) {
        CKPT_TRY(step_all(&args[i], err));
    }
    return CKPT_OK;
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adafactor = {
    .optimizer = "adafactor",
    .update = update,
};
