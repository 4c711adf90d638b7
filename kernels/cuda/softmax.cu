/* Softmax and log-softmax along one axis. Where the axis is the fastest in memory a team of threads holds a row in
 * registers (up to 1024 packs of 16 bytes; longer ones are read twice): forward moves 2 tensors, backward 3, for an
 * exponential and about 5 FLOP an element. Along another axis a thread goes down a few neighbouring columns, twice:
 * 3 tensors forward, 5 backward, the second time from the cache where it is large enough. Bound by memory. */
#include "kernels/cuda/rows.cuh"

enum { THREADS = 256, FLIGHT = 4 };

/* A row of at most TEAM * P packs. */
template <typename T, int TEAM, int P>
__global__ void __launch_bounds__(THREADS) softmax_rows(bool is_log, int64_t rows, int64_t width, const T *x, T *y)
{
    __shared__ float shared[32];
    const int V = pack<T>::count, teams = THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < rows; base += (int64_t)gridDim.x * teams) {
        const bool mine = base + team < rows;
        const row_place<T> place(mine ? base + team : rows - 1, width);
        float v[P][pack<T>::count], most = -FLT_MAX, sum = 0;
        for (int p = 0; p < P; p++) {
            const pack<T> raw = place.load(x, lane + p * TEAM, -INFINITY);
            for (int j = 0; j < V; j++) {
                v[p][j] = to_float(raw.at[j]);
                most = fmaxf(most, v[p][j]);
            }
        }
        most = team_max<TEAM>(most, shared);
        for (int p = 0; p < P; p++) {
            for (int j = 0; j < V; j++) {
                const float power = exp_for<T>(v[p][j] - most);
                sum += power;
                v[p][j] = is_log ? v[p][j] : power;
            }
        }
        sum = team_sum<TEAM>(sum, shared);
        const float shift = is_log ? most + logf(sum) : 0.0f, factor = is_log ? 1.0f : 1.0f / sum;
        for (int p = 0; p < P; p++) {
            pack<T> result;
            for (int j = 0; j < V; j++) {
                result.at[j] = from_float<T>((v[p][j] - shift) * factor);
            }
            place.store(y, mine ? lane + p * TEAM : place.packs, result);
        }
    }
}

template <typename T, int TEAM, int P>
__global__ void __launch_bounds__(THREADS)
    softmax_row_gradients(bool is_log, int64_t rows, int64_t width, const T *y, const T *dy, T *dx)
{
    __shared__ float shared[32];
    const int V = pack<T>::count, teams = THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < rows; base += (int64_t)gridDim.x * teams) {
        const bool mine = base + team < rows;
        const row_place<T> place(mine ? base + team : rows - 1, width);
        pack<T> value[P], slope[P];
        float sum = 0;
        for (int p = 0; p < P; p++) {
            value[p] = place.load(y, lane + p * TEAM, 0.0f);
            slope[p] = place.load(dy, lane + p * TEAM, 0.0f);
        }
        for (int p = 0; p < P; p++) {
            for (int j = 0; j < V; j++) {
                const float g = to_float(slope[p].at[j]);
                sum += is_log ? g : to_float(value[p].at[j]) * g;
            }
        }
        sum = team_sum<TEAM>(sum, shared);
        for (int p = 0; p < P; p++) {
            for (int j = 0; j < V; j++) {
                const float v = to_float(value[p].at[j]), g = to_float(slope[p].at[j]);
                slope[p].at[j] = from_float<T>(is_log ? g - exp_for<T>(v) * sum : v * (g - sum));
            }
            place.store(dx, mine ? lane + p * TEAM : place.packs, slope[p]);
        }
    }
}

/* Rows that no block holds: once for maximum and sum, once to write. */
template <typename T>
__global__ void __launch_bounds__(THREADS) softmax_long_rows(bool is_log, int64_t rows, int64_t width, const T *x, T *y)
{
    __shared__ float shared[32];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const row_place<T> place(row, width);
        const row_exps exps = row_exp_sum<T, THREADS>(place, x, (int)threadIdx.x, shared);
        const float lse = exps.most + logf(exps.sum), factor = 1.0f / exps.sum;
#pragma unroll 4
        for (int64_t p = threadIdx.x; p < place.packs; p += THREADS) {
            pack<T> v = place.load(x, p, 0.0f);
            for (int j = 0; j < pack<T>::count; j++) {
                const float own = to_float(v.at[j]);
                v.at[j] = from_float<T>(is_log ? own - lse : exp_for<T>(own - exps.most) * factor);
            }
            place.store(y, p, v);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    softmax_long_gradients(bool is_log, int64_t rows, int64_t width, const T *y, const T *dy, T *dx)
{
    __shared__ float shared[32];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const row_place<T> place(row, width);
        float sum = 0;
#pragma unroll 4
        for (int64_t p = threadIdx.x; p < place.packs; p += THREADS) {
            const pack<T> value = place.load(y, p, 0.0f), slope = place.load(dy, p, 0.0f);
            float part = 0;
            for (int j = 0; j < pack<T>::count; j++) {
                const float g = to_float(slope.at[j]);
                part += is_log ? g : to_float(value.at[j]) * g;
            }
            sum += part;
        }
        sum = block_sum(sum, shared);
        for (int64_t p = threadIdx.x; p < place.packs; p += THREADS) {
            const pack<T> value = place.load(y, p, 0.0f);
            pack<T> slope = place.load(dy, p, 0.0f);
            for (int j = 0; j < pack<T>::count; j++) {
                const float v = to_float(value.at[j]), g = to_float(slope.at[j]);
                slope.at[j] = from_float<T>(is_log ? g - exp_for<T>(v) * sum : v * (g - sum));
            }
            place.store(dx, p, slope);
        }
    }
}

/* Along an axis whose neighbours lie `inner` elements apart; V neighbouring columns for each thread. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    softmax_columns(bool is_log, int64_t outer, int64_t length, int64_t inner, const T *x, T *y)
{
    const int64_t cells = inner / V, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < outer * cells; i += stride) {
        const int64_t from = i / cells * length * inner + i % cells * V;
        float most[V], sum[V];
        for (int j = 0; j < V; j++) {
            most[j] = -FLT_MAX;
            sum[j] = 0;
        }
        for (int64_t a = 0; a < length; a += FLIGHT) {
            cell<T, V> v[FLIGHT];
            for (int f = 0; f < FLIGHT; f++) { /* the last again, where there is none: it counts for nothing below */
                v[f] = load_cell<V>(x + from + (a + f < length ? a + f : length - 1) * inner);
            }
            for (int j = 0; j < V; j++) {
                const float top = fmaxf(most[j], fmaxf(fmaxf(v[0].at[j], v[1].at[j]), fmaxf(v[2].at[j], v[3].at[j])));
                float part = 0;
                for (int f = 0; f < FLIGHT; f++) {
                    part += a + f < length ? exp_for<T>(v[f].at[j] - top) : 0.0f;
                }
                sum[j] = sum[j] * exp_for<T>(most[j] - top) + part;
                most[j] = top;
            }
        }
        for (int j = 0; j < V; j++) {
            sum[j] = is_log ? most[j] + logf(sum[j]) : 1.0f / sum[j];
        }
#pragma unroll 4
        for (int64_t a = 0; a < length; a++) {
            cell<T, V> v = load_cell<V>(x + from + a * inner);
            for (int j = 0; j < V; j++) {
                v.at[j] = is_log ? v.at[j] - sum[j] : exp_for<T>(v.at[j] - most[j]) * sum[j];
            }
            store_cell(y + from + a * inner, v);
        }
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    softmax_column_gradients(bool is_log, int64_t outer, int64_t length, int64_t inner, const T *y, const T *dy, T *dx)
{
    const int64_t cells = inner / V, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < outer * cells; i += stride) {
        const int64_t from = i / cells * length * inner + i % cells * V;
        float sum[V] = {0};
#pragma unroll 4
        for (int64_t a = 0; a < length; a++) {
            const cell<T, V> value = load_cell<V>(y + from + a * inner), slope = load_cell<V>(dy + from + a * inner);
            for (int j = 0; j < V; j++) {
                sum[j] += is_log ? slope.at[j] : value.at[j] * slope.at[j];
            }
        }
        for (int64_t a = 0; a < length; a++) {
            const cell<T, V> value = load_cell<V>(y + from + a * inner);
            cell<T, V> slope = load_cell<V>(dy + from + a * inner);
            for (int j = 0; j < V; j++) {
                const float v = value.at[j], g = slope.at[j];
                slope.at[j] = is_log ? g - exp_for<T>(v) * sum[j] : v * (g - sum[j]);
            }
            store_cell(dx + from + a * inner, slope);
        }
    }
}

namespace
{
/* x[o][a][i]: `inner` elements lie between neighbours along the axis. */
struct axis_view {
    int64_t outer, length, inner;
};
} // namespace

static axis_view view_axis(const ckpt_node *node)
{
    const ckpt_shape *const shape = &node->in[0].shape;
    const int64_t axis = ckpt_node_int(node, "axis"), d = axis < 0 ? axis + shape->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride);
    return {ckpt_shape_count(shape) / (shape->dim[d] * stride[d]), shape->dim[d], stride[d]};
}

template <typename T> static void start_forward(const ckpt_kernel_args *args, bool is_log)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const axis_view view = view_axis(args->node);
    const int64_t rows = view.outer, width = view.length, packs = row_packs<T>(width);
    const T *const x = (const T *)args->in[0];
    T *const y = (T *)args->out[0];
    if (view.inner > 1 && view.inner % pack<T>::count == 0) {
        CKPT_LAUNCH(cuda, (softmax_columns<T, pack<T>::count>),
                    grid_for(cuda, view.outer * packs_of<T>(view.inner), THREADS), THREADS, 0, is_log, view.outer,
                    view.length, view.inner, x, y);
    } else if (view.inner > 1) {
        CKPT_LAUNCH(cuda, (softmax_columns<T, 1>), grid_for(cuda, view.outer * view.inner, THREADS), THREADS, 0, is_log,
                    view.outer, view.length, view.inner, x, y);
    } else if (packs <= 4) {
        CKPT_LAUNCH(cuda, (softmax_rows<T, 4, 1>), row_grid(rows, THREADS / 4), THREADS, 0, is_log, rows, width, x, y);
    } else if (packs <= 128) {
        CKPT_LAUNCH(cuda, (softmax_rows<T, 32, 4>), row_grid(rows, THREADS / 32), THREADS, 0, is_log, rows, width, x,
                    y);
    } else if (packs <= 1024) {
        CKPT_LAUNCH(cuda, (softmax_rows<T, THREADS, 4>), row_grid(rows, 1), THREADS, 0, is_log, rows, width, x, y);
    } else {
        CKPT_LAUNCH(cuda, softmax_long_rows<T>, row_grid(rows, 1), THREADS, 0, is_log, rows, width, x, y);
    }
}

template <typename T> static void start_backward(const ckpt_kernel_args *args, bool is_log)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const axis_view view = view_axis(args->node);
    const int64_t rows = view.outer, width = view.length, packs = row_packs<T>(width);
    const T *const y = (const T *)args->out[0], *const dy = (const T *)args->grad_out[0];
    T *const dx = (T *)args->grad_in[0];
    if (view.inner > 1 && view.inner % pack<T>::count == 0) {
        CKPT_LAUNCH(cuda, (softmax_column_gradients<T, pack<T>::count>),
                    grid_for(cuda, view.outer * packs_of<T>(view.inner), THREADS), THREADS, 0, is_log, view.outer,
                    view.length, view.inner, y, dy, dx);
    } else if (view.inner > 1) {
        CKPT_LAUNCH(cuda, (softmax_column_gradients<T, 1>), grid_for(cuda, view.outer * view.inner, THREADS), THREADS,
                    0, is_log, view.outer, view.length, view.inner, y, dy, dx);
    } else if (packs <= 4) {
        CKPT_LAUNCH(cuda, (softmax_row_gradients<T, 4, 1>), row_grid(rows, THREADS / 4), THREADS, 0, is_log, rows,
                    width, y, dy, dx);
    } else if (packs <= 128) {
        CKPT_LAUNCH(cuda, (softmax_row_gradients<T, 32, 4>), row_grid(rows, THREADS / 32), THREADS, 0, is_log, rows,
                    width, y, dy, dx);
    } else if (packs <= 1024) {
        CKPT_LAUNCH(cuda, (softmax_row_gradients<T, THREADS, 4>), row_grid(rows, 1), THREADS, 0, is_log, rows, width, y,
                    dy, dx);
    } else {
        CKPT_LAUNCH(cuda, softmax_long_gradients<T>, row_grid(rows, 1), THREADS, 0, is_log, rows, width, y, dy, dx);
    }
}

static ckpt_code softmax_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args, false);
    return ckpt_cuda_launched("softmax", err);
}

static ckpt_code softmax_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args, false);
    return ckpt_cuda_launched("softmax backward", err);
}

static ckpt_code log_softmax_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args, true);
    return ckpt_cuda_launched("log_softmax", err);
}

static ckpt_code log_softmax_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args, true);
    return ckpt_cuda_launched("log_softmax backward", err);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_softmax;
const ckpt_kernel ckpt_cuda_softmax = {
    .op = "softmax",
    .forward = softmax_forward,
    .backward = softmax_backward,
};

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_log_softmax;
const ckpt_kernel ckpt_cuda_log_softmax = {
    .op = "log_softmax",
    .forward = log_softmax_forward,
    .backward = log_softmax_backward,
};
