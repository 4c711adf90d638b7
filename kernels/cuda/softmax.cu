/* Softmax and log-softmax along one axis. If the axis is the fastest in memory, a team of threads holds a row in
 * registers (up to 1024 packs of 16 bytes; longer rows are read twice): forward moves 2 tensors, backward 3, for an
 * exponential and about 5 FLOP an element. Along another axis a thread goes down a few neighbouring columns, twice:
 * 3 tensors forward, 5 backward, the second time from the cache if that is large enough. Bound by memory. */
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

/* Rows too long for the registers of a block: read once for maximum and sum, once more to write. */
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

/* Along an axis whose neighbours lie `inner` elements apart. Each thread has V neighbouring columns. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    softmax_columns(bool is_log, int64_t outer, int64_t length, int64_t inner, const T *x, T *y)
{
    const int64_t cells = inner / V;
    for (int64_t i = first_item(); i < outer * cells; i += item_step()) {
        const int64_t from = i / cells * length * inner + i % cells * V;
        float most[V], sum[V];
        for (int j = 0; j < V; j++) {
            most[j] = -FLT_MAX;
            sum[j] = 0;
        }
        for (int64_t a = 0; a < length; a += FLIGHT) {
            wide<float, V> v[FLIGHT];
            for (int f = 0; f < FLIGHT; f++) { /* behind the last: the last once more, which is not counted below */
                v[f] = load_floats<V>(x + from + (a + f < length ? a + f : length - 1) * inner);
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
            wide<float, V> v = load_floats<V>(x + from + a * inner);
            for (int j = 0; j < V; j++) {
                v.at[j] = is_log ? v.at[j] - sum[j] : exp_for<T>(v.at[j] - most[j]) * sum[j];
            }
            put_wide<V>(y + from + a * inner, v, false);
        }
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    softmax_column_gradients(bool is_log, int64_t outer, int64_t length, int64_t inner, const T *y, const T *dy, T *dx)
{
    const int64_t cells = inner / V;
    for (int64_t i = first_item(); i < outer * cells; i += item_step()) {
        const int64_t from = i / cells * length * inner + i % cells * V;
        float sum[V] = {0};
#pragma unroll 4
        for (int64_t a = 0; a < length; a++) {
            const wide<float, V> value = load_floats<V>(y + from + a * inner),
                                 slope = load_floats<V>(dy + from + a * inner);
            for (int j = 0; j < V; j++) {
                sum[j] += is_log ? slope.at[j] : value.at[j] * slope.at[j];
            }
        }
        for (int64_t a = 0; a < length; a++) {
            const wide<float, V> value = load_floats<V>(y + from + a * inner);
            wide<float, V> slope = load_floats<V>(dy + from + a * inner);
            for (int j = 0; j < V; j++) {
                const float v = value.at[j], g = slope.at[j];
                slope.at[j] = is_log ? g - exp_for<T>(v) * sum[j] : v * (g - sum[j]);
            }
            put_wide<V>(dx + from + a * inner, slope, false);
        }
    }
}

namespace
{
/* x[o][a][i]: `inner` elements lie between neighbours along the axis. */
struct axis_view {
    int64_t outer, length, inner;
    bool is_log;
};
} // namespace

static axis_view view_axis(const ckpt_node *node)
{
    const ckpt_shape *const shape = &node->in[0].shape;
    const int64_t axis = ckpt_node_int(node, "axis"), d = axis < 0 ? axis + shape->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride);
    return {ckpt_shape_count(shape) / (shape->dim[d] * stride[d]), shape->dim[d], stride[d],
            strcmp(node->op->name, "log_softmax") == 0};
}

/* Rows that a block works on at a time. */
static int teams_for(int64_t packs)
{
    return packs <= 4 ? THREADS / 4 : packs <= 128 ? THREADS / 32 : 1;
}

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const axis_view v = view_axis(args->node);
    const int64_t packs = row_packs<T>(v.length);
    const T *const x = (const T *)args->in[0];
    T *const y = (T *)args->out[0];
    const auto rows = packs <= 4      ? softmax_rows<T, 4, 1>
                      : packs <= 128  ? softmax_rows<T, 32, 4>
                      : packs <= 1024 ? softmax_rows<T, THREADS, 4>
                                      : softmax_long_rows<T>;
    if (v.inner > 1) {
        CKPT_LAUNCH(cuda, (softmax_columns<T, V>), grid_for(cuda, v.outer * (v.inner / V), THREADS), THREADS, 0,
                    v.is_log, v.outer, v.length, v.inner, x, y);
    } else {
        CKPT_LAUNCH(cuda, rows, row_grid(v.outer, teams_for(packs)), THREADS, 0, v.is_log, v.outer, v.length, x, y);
    }
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const axis_view v = view_axis(args->node);
    const int64_t packs = row_packs<T>(v.length);
    const T *const y = (const T *)args->out[0], *const dy = (const T *)args->grad_out[0];
    T *const dx = (T *)args->grad_in[0];
    const auto rows = packs <= 4      ? softmax_row_gradients<T, 4, 1>
                      : packs <= 128  ? softmax_row_gradients<T, 32, 4>
                      : packs <= 1024 ? softmax_row_gradients<T, THREADS, 4>
                                      : softmax_long_gradients<T>;
    if (v.inner > 1) {
        CKPT_LAUNCH(cuda, (softmax_column_gradients<T, V>), grid_for(cuda, v.outer * (v.inner / V), THREADS), THREADS,
                    0, v.is_log, v.outer, v.length, v.inner, y, dy, dx);
    } else {
        CKPT_LAUNCH(cuda, rows, row_grid(v.outer, teams_for(packs)), THREADS, 0, v.is_log, v.outer, v.length, y, dy,
                    dx);
    }
}

static int64_t inner_of(const ckpt_node *node)
{
    return view_axis(node).inner;
}

extern "C" const ckpt_kernel ckpt_cuda_softmax = {
    .op = "softmax",
    .forward = CKPT_WIDE(inner_of, start_forward),
    .backward = CKPT_WIDE(inner_of, start_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_log_softmax = {
    .op = "log_softmax",
    .forward = CKPT_WIDE(inner_of, start_forward),
    .backward = CKPT_WIDE(inner_of, start_backward),
};
