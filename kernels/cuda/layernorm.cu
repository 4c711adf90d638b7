/* Layer norm (CENTERED) and RMS norm over rows. Forward holds a row in the registers of a warp or a block: it reads x and
 * writes y once, 8 FLOP an element (RMS norm 4). Backward reads x and dy and writes dx once, 14 FLOP (10). Where it adds,
 * it reads dx first, so a residual stream's gradient is added here in float32 and rounded once. The same pass sums the
 * gradients of weight and bias over a group of rows (ckpt_gpu_group_rows), and a second kernel adds the groups in order, 8
 * bytes a feature and group (4). All are bound by memory; the weights come from the cache. UNDO: x is y, and
 * xhat = (y - b) / w (layernorm_any.cuh).
 *
 * Rows that are no multiple of 16 bytes, or too long for registers (backward beyond 1024 packs, forward beyond 2048),
 * take the plain kernels of layernorm_any.cuh, which read the row once more for every sum. */
#include "kernels/cuda/layernorm_any.cuh"
#include "kernels/cuda/parts.cuh"

enum { WARPS = 4 };

/* V floats from and to addresses of whole packs. As arrays, which keeps the backward kernel's loops unrolled
 * together. */
template <int V> __device__ inline void load_weights(const float *from, float at[V])
{
    for (int j = 0; j < V; j += 4) {
        const pack<float> four = load16(from + j);
        for (int n = 0; n < 4; n++) {
            at[j + n] = four.at[n];
        }
    }
}
template <int V> __device__ inline void store_floats(float *to, const float at[V])
{
    for (int j = 0; j < V; j += 4) {
        pack<float> four;
        for (int n = 0; n < 4; n++) {
            four.at[n] = at[j + n];
        }
        store16(to + j, four);
    }
}

/* A thread's packs of a row, with zeros behind the row's end. Zeros for rows from `end` on. */
template <typename T, int TEAM, int P>
__device__ inline void norm_load(const T *x, int64_t row, int64_t end, int width, int lane, pack<T> v[P])
{
    for (int p = 0; p < P; p++) {
        const int column = (lane + p * TEAM) * pack<T>::count;
        v[p] = row < end && column < width ? load16(x + row * width + column) : pack<T>();
    }
}

/* A row of at most TEAM * P packs, a multiple of 16 bytes. */
template <typename T, int TEAM, int P, bool CENTERED>
__global__ void __launch_bounds__(TEAM > 32 ? TEAM : 32 * WARPS)
    norm_forward(int64_t rows, int width, float eps, const T *x, const float *w, const float *b, T *y, float *mean,
                 float *rstd)
{
    __shared__ float shared[32];
    constexpr int V = pack<T>::count;
    const int teams = (int)blockDim.x / TEAM, team = (int)threadIdx.x / TEAM;
    const int lane = (int)threadIdx.x % TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows; row += (int64_t)gridDim.x * teams) {
        pack<T> v[P];
        float m = 0, squares = 0;
        norm_load<T, TEAM, P>(x, row, rows, width, lane, v);
        if constexpr (CENTERED) {
            float sum = 0;
            for (int p = 0; p < P; p++) {
                for (int j = 0; j < V; j++) {
                    sum += (lane + p * TEAM) * V < width ? to_float(v[p].at[j]) : 0.0f;
                }
            }
            m = team_sum<TEAM>(sum, shared) / (float)width;
        }
        for (int p = 0; p < P; p++) {
            for (int j = 0; j < V; j++) {
                const float u = to_float(v[p].at[j]) - m;
                squares += (lane + p * TEAM) * V < width ? u * u : 0.0f;
            }
        }
        const float k = 1.0f / sqrtf(team_sum<TEAM>(squares, shared) / (float)width + eps);
        if (lane == 0) {
            rstd[row] = k;
            if constexpr (CENTERED) {
                mean[row] = m;
            }
        }
        for (int p = 0; p < P; p++) {
            const int column = (lane + p * TEAM) * V;
            if (column < width) {
                const wide<float, V> weight = load_wide<V>(w + column);
                wide<float, V> bias = {};
                if constexpr (CENTERED) {
                    bias = load_wide<V>(b + column);
                }
                for (int j = 0; j < V; j++) {
                    const float scaled = (to_float(v[p].at[j]) - m) * k * weight.at[j];
                    v[p].at[j] = from_float<T>(CENTERED ? scaled + bias.at[j] : scaled);
                }
                store16(y + row * width + column, v[p]);
            }
        }
    }
}

/* dx = (adds ? dx : 0) + rstd (dy w - mean(dy w) - xhat mean(dy w xhat)) for the rows of one group, in RMS norm without
 * mean(dy w); part[group][0] and part[group][1] get the group's sums of dy xhat and, where there is a bias, dy. Teams take
 * turns at the rows, and their sums are added in order. A team that is a block waits for its own threads at every row, so
 * it fetches the next row before that. */
template <typename T, int TEAM, int P, bool CENTERED, bool UNDO>
__global__ void __launch_bounds__(TEAM > 32 ? TEAM : 32 * WARPS, TEAM > 128 ? 1
                                                                 : P > 3    ? 3
                                                                            : 4)
    norm_backward(int64_t rows, int width, int64_t group_rows, const T *x, const T *dy, const float *w, const float *b,
                  const float *mean, const float *rstd, T *dx, bool adds, float *part)
{
    enum { V = pack<T>::count, TEAMS = TEAM > 32 ? 1 : WARPS, SUMS = CENTERED ? 2 : 1 };
    __shared__ float shared[64];
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    const int64_t start = (int64_t)blockIdx.x * group_rows;
    const int64_t end = start + group_rows < rows ? start + group_rows : rows;
    float dw[P][V] = {}, db[P][V] = {};
    pack<T> value[P], slope[P], next_value[P], next_slope[P];
    norm_load<T, TEAM, P>(x, start + team, end, width, lane, value);
    norm_load<T, TEAM, P>(dy, start + team, end, width, lane, slope);
    for (int64_t row = start + team; row < end; row += TEAMS) {
        const float m = CENTERED && !UNDO ? mean[row] : 0.0f, k = rstd[row];
        const int64_t next = row + TEAMS;
        if constexpr (TEAMS == 1) {
            norm_load<T, TEAM, P>(x, next, end, width, lane, next_value);
            norm_load<T, TEAM, P>(dy, next, end, width, lane, next_slope);
        }
        float plain = 0, product = 0;
        for (int p = 0; p < P; p++) {
            const int column = (lane + p * TEAM) * V;
            if (column < width) {
                float weight[V], bias[V] = {};
                load_weights<V>(w + column, weight);
                if constexpr (CENTERED && UNDO) {
                    load_weights<V>(b + column, bias);
                }
                for (int j = 0; j < V; j++) {
                    const float g = to_float(slope[p].at[j]);
                    const float u = norm_hat<T, UNDO>(to_float(value[p].at[j]), m, k, weight[j], bias[j]);
                    plain += CENTERED ? g * weight[j] : 0.0f;
                    product += g * weight[j] * u;
                    dw[p][j] += g * u;
                    db[p][j] += CENTERED ? g : 0.0f;
                }
            }
        }
        float g_mean = 0, slant = 0;
        if constexpr (CENTERED) {
            const float2 sums = team_sums<TEAM>(plain, product, shared);
            g_mean = sums.x / (float)width;
            slant = sums.y / (float)width;
        } else {
            slant = team_sum<TEAM>(product, shared) / (float)width;
        }
        for (int p = 0; p < P; p++) {
            const int column = (lane + p * TEAM) * V;
            if (column < width && dx != NULL) {
                float weight[V], bias[V] = {};
                T *const to = dx + row * width + column;
                const pack<T> base = adds ? load16(to) : pack<T>();
                load_weights<V>(w + column, weight);
                if constexpr (CENTERED && UNDO) {
                    load_weights<V>(b + column, bias);
                }
                for (int j = 0; j < V; j++) {
                    const float g = to_float(slope[p].at[j]) * weight[j];
                    const float u = norm_hat<T, UNDO>(to_float(value[p].at[j]), m, k, weight[j], bias[j]);
                    const float own = k * (g - g_mean - u * slant);
                    value[p].at[j] = from_float<T>(to_float(base.at[j]) + own);
                }
                store16(to, value[p]);
            }
        }
        if constexpr (TEAMS > 1) {
            norm_load<T, TEAM, P>(x, next, end, width, lane, next_value);
            norm_load<T, TEAM, P>(dy, next, end, width, lane, next_slope);
        }
        for (int p = 0; p < P; p++) {
            value[p] = next_value[p];
            slope[p] = next_slope[p];
        }
    }
    float *const to = part + (int64_t)blockIdx.x * SUMS * width;
    if constexpr (TEAMS == 1) {
        for (int p = 0; p < P; p++) {
            const int column = (lane + p * TEAM) * V;
            if (column < width) {
                store_floats<V>(to + column, dw[p]);
                if constexpr (CENTERED) {
                    store_floats<V>(to + width + column, db[p]);
                }
            }
        }
    } else {
        __shared__ __align__(16) float turn[TEAMS][P * TEAM * V];
        for (int which = 0; which < SUMS; which++) {
            for (int p = 0; p < P; p++) {
                store_floats<V>(&turn[team][(lane + p * TEAM) * V], which == 0 ? dw[p] : db[p]);
            }
            __syncthreads();
            for (int column = (int)threadIdx.x; column < width; column += TEAM * TEAMS) {
                float sum = turn[0][column];
                for (int t = 1; t < TEAMS; t++) {
                    sum += turn[t][column];
                }
                to[which * width + column] = sum;
            }
            __syncthreads();
        }
    }
}

template <typename T, int TEAM, int P> static void start_forward(const norm_call &call)
{
    const int teams = TEAM > 32 ? 1 : WARPS;
    CKPT_LAUNCH(call.cuda, (call.centered ? norm_forward<T, TEAM, P, true> : norm_forward<T, TEAM, P, false>),
                row_grid(call.rows, teams), TEAM * teams, 0, call.rows, (int)call.width, call.eps, (const T *)call.x,
                call.w, call.b, (T *)call.y, call.mean, call.rstd);
}

template <typename T, int TEAM, int P, bool CENTERED> static void start_backward_in(const norm_call &call)
{
    const int teams = TEAM > 32 ? 1 : WARPS;
    CKPT_LAUNCH(call.cuda,
                (call.undo ? norm_backward<T, TEAM, P, CENTERED, true> : norm_backward<T, TEAM, P, CENTERED, false>),
                (unsigned)call.groups, TEAM * teams, 0, call.rows, (int)call.width, call.group_rows, (const T *)call.x,
                (const T *)call.dy, call.w, call.b, (const float *)call.mean, (const float *)call.rstd, (T *)call.dx,
                call.adds, call.part);
}

template <typename T, int TEAM, int P> static void start_backward(const norm_call &call)
{
    (call.centered ? start_backward_in<T, TEAM, P, true> : start_backward_in<T, TEAM, P, false>)(call);
}

template <typename T> static void choose_forward(const norm_call &call)
{
    const int64_t packs = packs_of<T>(call.width);
    if (call.width % pack<T>::count != 0 || packs > 2048) {
        start_any_forward<T>(call);
    } else if (packs <= 32) {
        start_forward<T, 32, 1>(call);
    } else if (packs <= 64) {
        start_forward<T, 32, 2>(call);
    } else if (packs <= 128) {
        start_forward<T, 32, 4>(call);
    } else if (packs <= 512) {
        start_forward<T, 128, 4>(call);
    } else {
        start_forward<T, 512, 4>(call);
    }
}

template <typename T> static void choose_backward(const norm_call &call)
{
    const int64_t packs = packs_of<T>(call.width);
    if (call.width % pack<T>::count != 0 || packs > 1024) {
        start_any_backward<T>(call);
    } else if (packs <= 32) {
        start_backward<T, 32, 1>(call);
    } else if (packs <= 64) {
        start_backward<T, 32, 2>(call);
    } else if (packs <= 96) {
        start_backward<T, 32, 3>(call);
    } else if (packs <= 128) {
        start_backward<T, 32, 4>(call);
    } else if (packs <= 256) {
        start_backward<T, 128, 2>(call);
    } else if (packs <= 512) {
        start_backward<T, 256, 2>(call);
    } else {
        start_backward<T, 512, 2>(call);
    }
}

/* A layer norm has two parameters and two saved tensors, mean and rstd; an RMS norm one of each, weight and rstd. */
static norm_call make_call(const ckpt_kernel_args *args)
{
    const ckpt_shape *const x = &args->node->in[0].shape;
    const bool centered = args->node->param_count == 2;
    norm_call call = {.cuda = (const ckpt_cuda *)args->context,
                      .centered = centered,
                      .width = x->dim[x->rank - 1],
                      .eps = (float)ckpt_node_float(args->node, "eps"),
                      .x = args->in[0],
                      .w = args->param[0],
                      .b = centered ? args->param[1] : NULL,
                      .mean = centered ? (float *)args->saved[0] : NULL,
                      .rstd = (float *)args->saved[centered ? 1 : 0],
                      .part = (float *)args->workspace};
    call.rows = ckpt_shape_count(x) / call.width;
    call.group_rows = ckpt_gpu_group_rows(call.rows);
    call.groups = (call.rows + call.group_rows - 1) / call.group_rows;
    return call;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    norm_call call = make_call(args);
    call.y = args->out[0];
    CKPT_BY_DTYPE(args->node->in[0].dtype, choose_forward, call);
    return ckpt_cuda_launched(args->node->op->name, err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    norm_call call = make_call(args);
    call.dy = args->grad_out[0];
    call.dx = args->grad_in[0];
    call.undo = ckpt_way_is(args->way, "output");
    call.x = call.undo ? args->out[0] : args->in[0];
    call.adds = (args->grad_in_adds & 1) != 0 && call.dx != NULL;
    CKPT_BY_DTYPE(args->node->in[0].dtype, choose_backward, call);
    start_norm_parts(args, call.groups, call.width, call.part);
    return ckpt_cuda_launched(args->node->op->name, err);
}

extern "C" const ckpt_kernel ckpt_cuda_layernorm = {
    .op = "layernorm",
    .workspace = op_workspace,
    .forward = forward,
    .backward = backward,
};

extern "C" const ckpt_kernel ckpt_cuda_rmsnorm = {
    .op = "rmsnorm",
    .workspace = op_workspace,
    .forward = forward,
    .backward = backward,
};
