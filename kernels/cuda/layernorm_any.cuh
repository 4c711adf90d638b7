/* Layer norm and RMS norm of rows of any width, for those that the register kernels of layernorm.cu do not take. A team
 * goes over its row once for every sum, in aligned packs. The gradients of weight and bias are summed by columns, which
 * reads x and dy once more. Forward reads x three times (RMS norm twice) and backward x and dy three times (and dx once
 * where it adds), mostly from the cache. */
#ifndef CKPT_KERNELS_CUDA_LAYERNORM_ANY_CUH
#define CKPT_KERNELS_CUDA_LAYERNORM_ANY_CUH

#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{
enum { ANY_THREADS = 256, ANY_COLUMNS = 32, ANY_ROWS = ANY_THREADS / ANY_COLUMNS };

struct norm_call {
    const ckpt_cuda *cuda;
    bool centered; /* layer norm; else RMS norm, which has no mean and no bias */
    int64_t rows, width, group_rows, groups;
    float eps;
    const void *x, *dy; /* backward: x is y where `undo` */
    const float *w, *b;
    void *y, *dx; /* dx: NULL where not wanted */
    bool adds;    /* to what is in dx */
    bool undo;    /* backward: xhat from y; the mean is not read then */
    float *mean, *rstd, *part;
};
} // namespace

/* The normalised input: of the input by mean m and rstd k, or of the output by weight and bias (0 gives NaN). RMS norm's
 * mean and bias are 0. */
template <typename T, bool UNDO>
__device__ inline float norm_hat(float value, float m, float k, float weight, float bias)
{
    return UNDO ? quotient_for<T>(value - bias, weight) : (value - m) * k;
}

template <typename T, int TEAM, bool CENTERED>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_any_forward(int64_t rows, int64_t width, float eps, const T *x, const float *w, const float *b, T *y,
                     float *mean, float *rstd)
{
    __shared__ float shared[32];
    const int V = pack<T>::count, teams = ANY_THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows; row += (int64_t)gridDim.x * teams) {
        const row_place<T> place(row, width);
        float m = 0, squares = 0;
        if constexpr (CENTERED) {
            float sum = 0;
            for (int64_t p = lane; p < place.packs; p += TEAM) {
                const pack<T> v = place.load(x, p, 0.0f);
                float part = 0;
                for (int j = 0; j < V; j++) {
                    part += to_float(v.at[j]);
                }
                sum += part;
            }
            m = team_sum<TEAM>(sum, shared) / (float)width;
        }
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            const pack<T> v = place.load(x, p, 0.0f);
            float part = 0;
            for (int j = 0; j < V; j++) {
                const float u = place.has(p, j) ? to_float(v.at[j]) - m : 0.0f;
                part += u * u;
            }
            squares += part;
        }
        const float k = 1.0f / sqrtf(team_sum<TEAM>(squares, shared) / (float)width + eps);
        if (lane == 0) {
            rstd[row] = k;
            if constexpr (CENTERED) {
                mean[row] = m;
            }
        }
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            pack<T> v = place.load(x, p, 0.0f);
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t column = p * V + j - place.head;
                    const float scaled = (to_float(v.at[j]) - m) * k * w[column];
                    v.at[j] = from_float<T>(CENTERED ? scaled + b[column] : scaled);
                }
            }
            place.store(y, p, v);
        }
    }
}

template <typename T, int TEAM, bool CENTERED, bool UNDO>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_any_backward(int64_t rows, int64_t width, const T *x, const T *dy, const float *w, const float *b,
                      const float *mean, const float *rstd, T *dx, bool adds)
{
    __shared__ float shared[64];
    const int V = pack<T>::count, teams = ANY_THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows; row += (int64_t)gridDim.x * teams) {
        const row_place<T> place(row, width);
        const float m = CENTERED && !UNDO ? mean[row] : 0.0f, k = rstd[row];
        float plain = 0, product = 0;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            const pack<T> value = place.load(x, p, 0.0f), slope = place.load(dy, p, 0.0f);
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t c = p * V + j - place.head;
                    const float g = to_float(slope.at[j]) * w[c], bias = CENTERED && UNDO ? b[c] : 0.0f;
                    plain += CENTERED ? g : 0.0f;
                    product += g * norm_hat<T, UNDO>(to_float(value.at[j]), m, k, w[c], bias);
                }
            }
        }
        const float2 sums = team_sums<TEAM>(plain, product, shared);
        const float g_mean = CENTERED ? sums.x / (float)width : 0.0f, slant = sums.y / (float)width;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            pack<T> value = place.load(x, p, 0.0f);
            const pack<T> slope = place.load(dy, p, 0.0f), base = adds ? place.load(dx, p, 0.0f) : pack<T>();
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t c = p * V + j - place.head;
                    const float g = to_float(slope.at[j]) * w[c], bias = CENTERED && UNDO ? b[c] : 0.0f;
                    const float u = norm_hat<T, UNDO>(to_float(value.at[j]), m, k, w[c], bias);
                    const float own = k * (g - g_mean - u * slant);
                    value.at[j] = from_float<T>(adds ? to_float(base.at[j]) + own : own);
                }
            }
            place.store(dx, p, value);
        }
    }
}

/* part[group][0][c] = the group's sum of dy xhat, part[group][1][c] = of dy where there is a bias; a block sums 32
 * columns of one group. */
template <typename T, bool CENTERED, bool UNDO>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_any_columns(int64_t rows, int64_t width, int64_t group_rows, const T *x, const T *dy, const float *w,
                     const float *b, const float *mean, const float *rstd, float *part)
{
    enum { SUMS = CENTERED ? 2 : 1 };
    __shared__ float sums[2][ANY_ROWS][ANY_COLUMNS];
    const int x_at = (int)threadIdx.x % ANY_COLUMNS, y_at = (int)threadIdx.x / ANY_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * ANY_COLUMNS + x_at, start = (int64_t)blockIdx.y * group_rows;
    const int64_t end = start + group_rows < rows ? start + group_rows : rows;
    float dw = 0, db = 0;
    if (column < width) {
        for (int64_t r = start + y_at; r < end; r += ANY_ROWS) {
            const float g = to_float(dy[r * width + column]);
            const float m = CENTERED && !UNDO ? mean[r] : 0.0f, k = UNDO ? 0.0f : rstd[r];
            const float bias = CENTERED && UNDO ? b[column] : 0.0f;
            dw += g * norm_hat<T, UNDO>(to_float(x[r * width + column]), m, k, w[column], bias);
            db += g;
        }
    }
    sums[0][y_at][x_at] = dw;
    sums[1][y_at][x_at] = db;
    __syncthreads();
    if (y_at < SUMS && column < width) {
        float total = 0;
        for (int n = 0; n < ANY_ROWS; n++) {
            total += sums[y_at][n][x_at];
        }
        part[((int64_t)blockIdx.y * SUMS + y_at) * width + column] = total;
    }
}

template <typename T, bool CENTERED> static void start_any_forward_in(const norm_call &call)
{
    const bool warps = row_packs<T>(call.width) <= 128;
    CKPT_LAUNCH(call.cuda, (warps ? norm_any_forward<T, 32, CENTERED> : norm_any_forward<T, ANY_THREADS, CENTERED>),
                row_grid(call.rows, warps ? ANY_THREADS / 32 : 1), ANY_THREADS, 0, call.rows, call.width, call.eps,
                (const T *)call.x, call.w, call.b, (T *)call.y, call.mean, call.rstd);
}

template <typename T, bool CENTERED, bool UNDO> static void start_any_backward_in(const norm_call &call)
{
    const T *const x = (const T *)call.x, *const dy = (const T *)call.dy;
    const float *const mean = call.mean, *const rstd = call.rstd;
    const bool warps = row_packs<T>(call.width) <= 128;
    if (call.dx != NULL) {
        CKPT_LAUNCH(
            call.cuda,
            (warps ? norm_any_backward<T, 32, CENTERED, UNDO> : norm_any_backward<T, ANY_THREADS, CENTERED, UNDO>),
            row_grid(call.rows, warps ? ANY_THREADS / 32 : 1), ANY_THREADS, 0, call.rows, call.width, x, dy, call.w,
            call.b, mean, rstd, (T *)call.dx, call.adds);
    }
    const dim3 grid((unsigned)((call.width + ANY_COLUMNS - 1) / ANY_COLUMNS), (unsigned)call.groups);
    CKPT_LAUNCH(call.cuda, (norm_any_columns<T, CENTERED, UNDO>), grid, ANY_THREADS, 0, call.rows, call.width,
                call.group_rows, x, dy, call.w, call.b, mean, rstd, call.part);
}

template <typename T> static void start_any_forward(const norm_call &call)
{
    (call.centered ? start_any_forward_in<T, true> : start_any_forward_in<T, false>)(call);
}

template <typename T, bool CENTERED> static void start_any_backward_of(const norm_call &call)
{
    (call.undo ? start_any_backward_in<T, CENTERED, true> : start_any_backward_in<T, CENTERED, false>)(call);
}

template <typename T> static void start_any_backward(const norm_call &call)
{
    (call.centered ? start_any_backward_of<T, true> : start_any_backward_of<T, false>)(call);
}

#endif
