/* Softmax and negative log-likelihood in one, over rows of classes, which may have a pitch. The gradient is the only
 * other tensor of the size of the logits, and it may lie where the logits are: one team alone reads and writes a row,
 * pack by pack.
 *
 * Forward reads the logits once (maximum and sum together), 4 FLOP and an exponential an element. Backward reads them
 * once and writes the gradient, 3 FLOP and an exponential. Both are bound by memory, forward in bfloat16 only just. A
 * target that is no class makes the loss and its row of the gradient NaN; it is never used as an index. */
#include "kernels/cuda/class_rows.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/rows.cuh"

enum { THREADS = 256, FLIGHT = 4 /* packs in flight per thread */ };

/* sums[row]: of the row's logits, for label smoothing, which reads them once more. */
template <typename T, int TEAM>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_sums(int64_t rows, int64_t classes, int64_t pitch, const T *x, float *sums)
{
    __shared__ float shared[32];
    const int teams = THREADS / TEAM, team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < rows; base += (int64_t)gridDim.x * teams) {
        const row_place<T> place(base + team < rows ? base + team : rows - 1, classes, pitch);
        float own = 0;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            const pack<T> v = place.load(x, p, 0.0f);
            for (int j = 0; j < pack<T>::count; j++) {
                own += to_float(v.at[j]);
            }
        }
        const float sum = team_sum<TEAM>(own, shared);
        if (lane == 0 && base + team < rows) {
            sums[base + team] = sum;
        }
    }
}

/* lse[row] = log sum exp. */
template <typename T, int TEAM>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(int64_t rows, int64_t classes, int64_t pitch, const T *x, float *lse)
{
    __shared__ float shared[32];
    const int teams = THREADS / TEAM, team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < rows; base += (int64_t)gridDim.x * teams) {
        const row_place<T> place(base + team < rows ? base + team : rows - 1, classes, pitch);
        const row_exps exps = row_exp_sum<T, TEAM>(place, x, lane, shared);
        if (lane == 0 && base + team < rows) {
            lse[base + team] = exps.most + logf(exps.sum);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS)
    cross_entropy_parts(class_rows rows, const T *x, const float *lse, const float *sums, loss_part *part)
{
    __shared__ loss_part shared[LOSS_THREADS];
    const int64_t start = (int64_t)blockIdx.x * CKPT_GPU_LOSS_TERMS;
    loss_part own = {0, 0};
    for (int n = 0; n < CKPT_GPU_LOSS_TERMS / LOSS_THREADS; n++) {
        const int64_t r = start + n * LOSS_THREADS + (int)threadIdx.x;
        const int64_t target = r < rows.count ? rows.target[r] : rows.ignore;
        if (target != rows.ignore) {
            const bool is_class = target >= 0 && target < rows.classes;
            double wanted = is_class ? (double)to_float(x[r * rows.pitch + target]) : (double)NAN;
            if (rows.smoothing > 0) {
                wanted = (1 - rows.smoothing) * wanted + rows.smoothing * ((double)sums[r] / (double)rows.classes);
            }
            own.sum += (double)lse[r] - wanted;
            own.counted += 1;
        }
    }
    const loss_part sum = block_halves<LOSS_THREADS>(own, shared);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}

/* dx = (exp(x - lse) - one hot, smoothed) grad / counted. x and dx may be one buffer. */
template <typename T, int TEAM>
__global__ void __launch_bounds__(THREADS) cross_entropy_gradient(class_rows rows, const T *x, const float *lse,
                                                                  const float *counted, const float *grad, T *dx)
{
    const int teams = THREADS / TEAM, team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    const float scale = loss_gradient(grad) / *counted;
    const float hit = (float)((double)scale * (1 - rows.smoothing));
    const float spread = (float)((double)scale * rows.smoothing / (double)rows.classes);
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows.count; row += (int64_t)gridDim.x * teams) {
        const row_place<T> place(row, rows.classes, rows.pitch);
        const int64_t target = rows.target[row];
        const bool ignored = target == rows.ignore, is_class = target >= 0 && target < rows.classes;
        const float shift = ignored ? 0.0f : is_class ? lse[row] : NAN;
        const int64_t hot = ignored ? -1 : target + place.head; /* counted from the first pack */
        for (int64_t p = lane; p < place.filled; p += FLIGHT * TEAM) {
            pack<T> v[FLIGHT];
            for (int f = 0; f < FLIGHT; f++) {
                v[f] = place.load(x, ignored ? place.packs : p + f * TEAM, 0.0f); /* no pack is no read */
            }
            for (int f = 0; f < FLIGHT; f++) {
                const int64_t q = p + f * TEAM, away = hot - q * pack<T>::count;
                const int own = away >= 0 && away < pack<T>::count ? (int)away : -1;
                for (int j = 0; j < pack<T>::count; j++) {
                    const float weight = scale * exp_for<T>(to_float(v[f].at[j]) - shift);
                    const float slope = (j == own ? weight - hit : weight) - spread;
                    v[f].at[j] = from_float<T>(ignored ? 0.0f : slope);
                }
                place.store(dx, q, v[f]);
            }
        }
    }
}

/* Threads for a row, so that each gets a pack or more: 4, 32 or all of a block. A function of the shape only. */
template <typename T> static int team_for(const class_rows &rows)
{
    const int64_t packs = row_packs<T>(rows.classes);
    return packs <= 8 ? 4 : packs <= 256 ? 32 : THREADS;
}

template <typename T>
static void start_loss(const ckpt_cuda *cuda, const class_rows &rows, const void *x, float *lse, void *part,
                       float *sums)
{
    const int team = team_for<T>(rows);
    const auto exps = team == 4    ? cross_entropy_rows<T, 4>
                      : team == 32 ? cross_entropy_rows<T, 32>
                                   : cross_entropy_rows<T, THREADS>;
    CKPT_LAUNCH(cuda, exps, row_grid(rows.count, THREADS / team), THREADS, 0, rows.count, rows.classes, rows.pitch,
                (const T *)x, lse);
    if (rows.smoothing > 0) {
        const auto row_sums = team == 4    ? cross_entropy_sums<T, 4>
                              : team == 32 ? cross_entropy_sums<T, 32>
                                           : cross_entropy_sums<T, THREADS>;
        CKPT_LAUNCH(cuda, row_sums, row_grid(rows.count, THREADS / team), THREADS, 0, rows.count, rows.classes,
                    rows.pitch, (const T *)x, sums);
    }
    CKPT_LAUNCH(cuda, cross_entropy_parts<T>, (unsigned)class_rows_parts(rows.count), LOSS_THREADS, 0, rows,
                (const T *)x, (const float *)lse, (const float *)sums, (loss_part *)part);
}

template <typename T>
static void start_gradient(const ckpt_cuda *cuda, const class_rows &rows, const void *x, const float *lse,
                           const float *counted, const float *grad, void *dx)
{
    const int team = team_for<T>(rows);
    const auto gradient = team == 4    ? cross_entropy_gradient<T, 4>
                          : team == 32 ? cross_entropy_gradient<T, 32>
                                       : cross_entropy_gradient<T, THREADS>;
    CKPT_LAUNCH(cuda, gradient, row_grid(rows.count, THREADS / team), THREADS, 0, rows, (const T *)x, lse, counted,
                grad, (T *)dx);
}

void class_rows_loss(const ckpt_cuda *cuda, ckpt_dtype dtype, const class_rows &rows, const void *x, float *lse,
                     void *part, void *sums)
{
    CKPT_BY_DTYPE(dtype, start_loss, cuda, rows, x, lse, part, (float *)sums);
}

void class_rows_finish(const ckpt_cuda *cuda, int64_t parts, const void *part, float *loss, float *counted)
{
    CKPT_LAUNCH(cuda, loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, 0.0, loss, counted);
}

void class_rows_gradient(const ckpt_cuda *cuda, ckpt_dtype dtype, const class_rows &rows, const void *x,
                         const float *lse, const float *counted, const float *grad, void *dx)
{
    CKPT_BY_DTYPE(dtype, start_gradient, cuda, rows, x, lse, counted, grad, dx);
}

static class_rows find_rows(const ckpt_kernel_args *args)
{
    const ckpt_tensor *const x = &args->node->in[0];
    const int64_t classes = x->shape.rank == 4 ? x->shape.dim[1] : x->shape.dim[x->shape.rank - 1];
    const int64_t count = ckpt_shape_count(&x->shape) / classes;
    return {.count = count,
            .classes = classes,
            .pitch = ckpt_tensor_room(x) / count,
            .target = (const int32_t *)args->in[1],
            .ignore = ckpt_node_int(args->node, "ignore_index"),
            .smoothing = ckpt_node_float(args->node, "label_smoothing")};
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const class_rows rows = find_rows(args);
    class_rows_loss(cuda, args->node->in[0].dtype, rows, args->in[0], (float *)args->saved[0], args->workspace,
                    (char *)args->workspace + ckpt_gpu_loss_workspace(rows.count));
    class_rows_finish(cuda, class_rows_parts(rows.count), args->workspace, (float *)args->out[0],
                      (float *)args->saved[1]);
    return ckpt_cuda_launched("cross_entropy", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    class_rows_gradient(cuda_of(args), args->node->in[0].dtype, find_rows(args), args->in[0],
                        (const float *)args->saved[0], (const float *)args->saved[1], (const float *)args->grad_out[0],
                        args->grad_in[0]);
    return ckpt_cuda_launched("cross_entropy", err);
}

extern "C" const ckpt_kernel ckpt_cuda_cross_entropy = {
    .op = "cross_entropy",
    .workspace = op_workspace,
    .forward = forward,
    .backward = backward,
};
