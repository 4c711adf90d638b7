/* Softmax and negative log-likelihood in one, over rows of classes, which may have a pitch. Nothing of the size of the
 * logits is made beside the gradient, and that may lie where the logits are: a row is read and written by one team
 * only, pack by pack, so any chunk of rows can be done by itself.
 *
 * Forward reads the logits once (maximum and sum together), 4 FLOP and an exponential an element; backward reads them
 * once and writes the gradient, 3 FLOP and an exponential: bound by memory, in bfloat16 with little to spare forward.
 * A target that is no class makes the loss and its row of the gradient NaN; it is never used as an index. */
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/rows.cuh"

enum { THREADS = 256, FLIGHT = 4 /* packs in flight per thread */ };

namespace
{
struct row_set {
    int64_t count, classes, pitch; /* pitch: from one row to the next */
    const int32_t *target;
    int64_t ignore;
};
} // namespace

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
    cross_entropy_parts(row_set rows, const T *x, const float *lse, loss_part *part)
{
    __shared__ double storage[2 * LOSS_THREADS];
    const int64_t start = (int64_t)blockIdx.x * CKPT_GPU_LOSS_TERMS;
    loss_part own = {0, 0};
    for (int n = 0; n < CKPT_GPU_LOSS_TERMS / LOSS_THREADS; n++) {
        const int64_t r = start + n * LOSS_THREADS + (int)threadIdx.x;
        const int64_t target = r < rows.count ? rows.target[r] : rows.ignore;
        if (target != rows.ignore) {
            const bool is_class = target >= 0 && target < rows.classes;
            own.sum += is_class ? (double)lse[r] - (double)to_float(x[r * rows.pitch + target]) : (double)NAN;
            own.counted += 1;
        }
    }
    const loss_part sum = loss_add(own, (loss_part *)storage);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}

/* dx = (exp(x - lse) - one hot) grad / counted. x and dx may be one buffer. */
template <typename T, int TEAM>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_gradient(row_set rows, const T *x, const float *lse, const float *counted, const float *grad, T *dx)
{
    const int teams = THREADS / TEAM, team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    const float scale = loss_gradient(grad) / *counted;
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
                    const float share = scale * exp_for<T>(to_float(v[f].at[j]) - shift);
                    const float slope = j == own ? share - scale : share;
                    v[f].at[j] = from_float<T>(ignored ? 0.0f : slope);
                }
                place.store(dx, q, v[f]);
            }
        }
    }
}

static row_set find_rows(const ckpt_kernel_args *args)
{
    const ckpt_tensor *const x = &args->node->in[0];
    const int64_t classes = x->shape.rank == 4 ? x->shape.dim[1] : x->shape.dim[x->shape.rank - 1];
    const int64_t count = ckpt_shape_count(&x->shape) / classes;
    return {.count = count,
            .classes = classes,
            .pitch = ckpt_tensor_room(x) / count,
            .target = (const int32_t *)args->in[1],
            .ignore = ckpt_node_int(args->node, "ignore_index")};
}

template <typename T, int TEAM> static void start_rows(const ckpt_kernel_args *args, const row_set &rows)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    CKPT_LAUNCH(cuda, (cross_entropy_rows<T, TEAM>), row_grid(rows.count, THREADS / TEAM), THREADS, 0, rows.count,
                rows.classes, rows.pitch, (const T *)args->in[0], (float *)args->saved[0]);
}

template <typename T, int TEAM> static void start_gradient(const ckpt_kernel_args *args, const row_set &rows)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    CKPT_LAUNCH(cuda, (cross_entropy_gradient<T, TEAM>), row_grid(rows.count, THREADS / TEAM), THREADS, 0, rows,
                (const T *)args->in[0], (const float *)args->saved[0], (const float *)args->saved[1],
                (const float *)args->grad_out[0], (T *)args->grad_in[0]);
}

/* The team for a row: each thread gets a pack or more. A function of the shape only. */
#define BY_TEAM(packs, start, ...)                                                                                     \
    do {                                                                                                               \
        if ((packs) <= 8) {                                                                                            \
            start<T, 4>(__VA_ARGS__);                                                                                  \
        } else if ((packs) <= 256) {                                                                                   \
            start<T, 32>(__VA_ARGS__);                                                                                 \
        } else {                                                                                                       \
            start<T, THREADS>(__VA_ARGS__);                                                                            \
        }                                                                                                              \
    } while (0)

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const row_set rows = find_rows(args);
    BY_TEAM(row_packs<T>(rows.classes), start_rows, args, rows);
    const int64_t parts = (rows.count + CKPT_GPU_LOSS_TERMS - 1) / CKPT_GPU_LOSS_TERMS;
    loss_part *const part = (loss_part *)args->workspace;
    CKPT_LAUNCH(cuda, cross_entropy_parts<T>, (unsigned)parts, LOSS_THREADS, 0, rows, (const T *)args->in[0],
                (const float *)args->saved[0], part);
    CKPT_LAUNCH(cuda, loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, 0.0, (float *)args->out[0],
                (float *)args->saved[1]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const row_set rows = find_rows(args);
    BY_TEAM(row_packs<T>(rows.classes), start_gradient, args, rows);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args);
    return ckpt_cuda_launched("cross_entropy", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args);
    return ckpt_cuda_launched("cross_entropy backward", err);
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = *backward = 0;
    node->op->gpu_workspace(node, forward, backward);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_cross_entropy;
const ckpt_kernel ckpt_cuda_cross_entropy = {
    .op = "cross_entropy",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
