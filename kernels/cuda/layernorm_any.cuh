/* Layer normalisation of rows of any width, for those that the register kernels of layernorm.cu do not take. A team
 * goes over its row once for every sum, in aligned packs. The gradients of weight and bias are summed by columns, which
 * reads x and dy once more. Forward reads x three times and backward x and dy three times (and dx once where it adds),
 * mostly from the cache. */
#ifndef CKPT_KERNELS_CUDA_LAYERNORM_ANY_CUH
#define CKPT_KERNELS_CUDA_LAYERNORM_ANY_CUH

#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{
enum { ANY_THREADS = 256, ANY_COLUMNS = 32, ANY_ROWS = ANY_THREADS / ANY_COLUMNS };

struct layernorm_call {
    const ckpt_cuda *cuda;
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

/* The normalised input: of the input by mean m and rstd k, or of the output by weight and bias (0 gives NaN). */
template <typename T, bool UNDO>
__device__ inline float layernorm_hat(float value, float m, float k, float weight, float bias)
{
    return UNDO ? quotient_for<T>(value - bias, weight) : (value - m) * k;
}

template <typename T, int TEAM>
__global__ void __launch_bounds__(ANY_THREADS)
    layernorm_any_forward(int64_t rows, int64_t width, float eps, const T *x, const float *w, const float *b, T *y,
                          float *mean, float *rstd)
{
    __shared__ float shared[32];
    const int V = pack<T>::count, teams = ANY_THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows; row += (int64_t)gridDim.x * teams) {
        const row_place<T> place(row, width);
        float sum = 0, squares = 0;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            const pack<T> v = place.load(x, p, 0.0f);
            float part = 0;
            for (int j = 0; j < V; j++) {
                part += to_float(v.at[j]);
            }
            sum += part;
        }
        const float m = team_sum<TEAM>(sum, shared) / (float)width;
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
            mean[row] = m;
            rstd[row] = k;
        }
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            pack<T> v = place.load(x, p, 0.0f);
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t column = p * V + j - place.head;
                    v.at[j] = from_float<T>((to_float(v.at[j]) - m) * k * w[column] + b[column]);
                }
            }
            place.store(y, p, v);
        }
    }
}

template <typename T, int TEAM, bool UNDO>
__global__ void __launch_bounds__(ANY_THREADS)
    layernorm_any_backward(int64_t rows, int64_t width, const T *x, const T *dy, const float *w, const float *b,
                           const float *mean, const float *rstd, T *dx, bool adds)
{
    __shared__ float shared[64];
    const int V = pack<T>::count, teams = ANY_THREADS / TEAM;
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int64_t row = (int64_t)blockIdx.x * teams + team; row < rows; row += (int64_t)gridDim.x * teams) {
        const row_place<T> place(row, width);
        const float m = UNDO ? 0.0f : mean[row], k = rstd[row];
        float plain = 0, product = 0;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            const pack<T> value = place.load(x, p, 0.0f), slope = place.load(dy, p, 0.0f);
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t c = p * V + j - place.head;
                    const float g = to_float(slope.at[j]) * w[c], bias = UNDO ? b[c] : 0.0f;
                    plain += g;
                    product += g * layernorm_hat<T, UNDO>(to_float(value.at[j]), m, k, w[c], bias);
                }
            }
        }
        const float2 sums = team_sums<TEAM>(plain, product, shared);
        const float g_mean = sums.x / (float)width, slant = sums.y / (float)width;
        for (int64_t p = lane; p < place.packs; p += TEAM) {
            pack<T> value = place.load(x, p, 0.0f);
            const pack<T> slope = place.load(dy, p, 0.0f), base = adds ? place.load(dx, p, 0.0f) : pack<T>();
            for (int j = 0; j < V; j++) {
                if (place.has(p, j)) {
                    const int64_t c = p * V + j - place.head;
                    const float g = to_float(slope.at[j]) * w[c], bias = UNDO ? b[c] : 0.0f;
                    const float u = layernorm_hat<T, UNDO>(to_float(value.at[j]), m, k, w[c], bias);
                    const float own = k * (g - g_mean - u * slant);
                    value.at[j] = from_float<T>(adds ? to_float(base.at[j]) + own : own);
                }
            }
            place.store(dx, p, value);
        }
    }
}

/* part[group][0][c] = the group's sum of dy xhat, part[group][1][c] = of dy; a block sums 32 columns of one group. */
template <typename T, bool UNDO>
__global__ void __launch_bounds__(ANY_THREADS)
    layernorm_any_columns(int64_t rows, int64_t width, int64_t group_rows, const T *x, const T *dy, const float *w,
                          const float *b, const float *mean, const float *rstd, float *part)
{
    __shared__ float sums[2][ANY_ROWS][ANY_COLUMNS];
    const int x_at = (int)threadIdx.x % ANY_COLUMNS, y_at = (int)threadIdx.x / ANY_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * ANY_COLUMNS + x_at, start = (int64_t)blockIdx.y * group_rows;
    const int64_t end = start + group_rows < rows ? start + group_rows : rows;
    float dw = 0, db = 0;
    if (column < width) {
        for (int64_t r = start + y_at; r < end; r += ANY_ROWS) {
            const float g = to_float(dy[r * width + column]);
            const float m = UNDO ? 0.0f : mean[r], k = UNDO ? 0.0f : rstd[r];
            dw += g * layernorm_hat<T, UNDO>(to_float(x[r * width + column]), m, k, w[column], UNDO ? b[column] : 0.0f);
            db += g;
        }
    }
    sums[0][y_at][x_at] = dw;
    sums[1][y_at][x_at] = db;
    __syncthreads();
    if (y_at < 2 && column < width) {
        float total = 0;
        for (int n = 0; n < ANY_ROWS; n++) {
            total += sums[y_at][n][x_at];
        }
        part[((int64_t)blockIdx.y * 2 + y_at) * width + column] = total;
    }
}

template <typename T> static void start_any_forward(const layernorm_call &call)
{
    const bool warps = row_packs<T>(call.width) <= 128;
    CKPT_LAUNCH(call.cuda, (warps ? layernorm_any_forward<T, 32> : layernorm_any_forward<T, ANY_THREADS>),
                row_grid(call.rows, warps ? ANY_THREADS / 32 : 1), ANY_THREADS, 0, call.rows, call.width, call.eps,
                (const T *)call.x, call.w, call.b, (T *)call.y, call.mean, call.rstd);
}

template <typename T, bool UNDO> static void start_any_backward_in(const layernorm_call &call)
{
    const T *const x = (const T *)call.x, *const dy = (const T *)call.dy;
    const float *const mean = call.mean, *const rstd = call.rstd;
    const bool warps = row_packs<T>(call.width) <= 128;
    if (call.dx != NULL) {
        CKPT_LAUNCH(call.cuda,
                    (warps ? layernorm_any_backward<T, 32, UNDO> : layernorm_any_backward<T, ANY_THREADS, UNDO>),
                    row_grid(call.rows, warps ? ANY_THREADS / 32 : 1), ANY_THREADS, 0, call.rows, call.width, x, dy,
                    call.w, call.b, mean, rstd, (T *)call.dx, call.adds);
    }
    const dim3 grid((unsigned)((call.width + ANY_COLUMNS - 1) / ANY_COLUMNS), (unsigned)call.groups);
    CKPT_LAUNCH(call.cuda, (layernorm_any_columns<T, UNDO>), grid, ANY_THREADS, 0, call.rows, call.width,
                call.group_rows, x, dy, call.w, call.b, mean, rstd, call.part);
}

template <typename T> static void start_any_backward(const layernorm_call &call)
{
    (call.undo ? start_any_backward_in<T, true> : start_any_backward_in<T, false>)(call);
}

#endif
