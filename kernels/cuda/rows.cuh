/* Rows that follow each other, each worked on by a team of threads: 4 lanes, a warp, or a block of TEAM threads.
 * A row of any width is read in aligned packs of 16 bytes. Its first and last pack may hold elements of its neighbours:
 * these are masked when read, and left out when the row is written. So rows of odd width cost no more than others. */
#ifndef CKPT_KERNELS_CUDA_ROWS_CUH
#define CKPT_KERNELS_CUDA_ROWS_CUH

#include <float.h>

#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/wide.cuh"

/* All threads of the warp (TEAM <= 32) or of the block must call. `shared`: 32 floats, see block_sum. */
template <int TEAM> __device__ inline float team_sum(float x, float *shared)
{
    if constexpr (TEAM > 32) {
        return block_sum(x, shared);
    } else {
        for (int step = TEAM / 2; step > 0; step /= 2) {
            x += __shfl_xor_sync(0xffffffffu, x, step);
        }
        return x;
    }
}
template <int TEAM> __device__ inline float team_max(float x, float *shared)
{
    if constexpr (TEAM > 32) {
        return block_max(x, shared);
    } else {
        for (int step = TEAM / 2; step > 0; step /= 2) {
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
        }
        return x;
    }
}

/* Two sums at once, with half the barriers. `shared`: 64 floats. */
template <int TEAM> __device__ inline float2 team_sums(float x, float y, float *shared)
{
    if constexpr (TEAM > 32) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
        x = warp_sum(x);
        y = warp_sum(y);
        if (lane == 0) {
            shared[warp] = x;
            shared[32 + warp] = y;
        }
        __syncthreads();
        x = y = 0;
        for (int w = 0; w < warps; w++) {
            x += shared[w];
            y += shared[32 + w];
        }
        __syncthreads();
        return make_float2(x, y);
    } else {
        x = team_sum<TEAM>(x, shared);
        y = team_sum<TEAM>(y, shared);
        return make_float2(x, y);
    }
}

/* The position of a row: pack p starts at element `first + p * V` of the tensor and at column `p * V - head`. Rows with
 * a pitch, which is a multiple of V, start at packs: they have no head, and a gap up to the pitch. */
template <typename T> struct row_place {
    enum { V = pack<T>::count };
    int64_t first, width, packs;
    int64_t filled; /* packs with those of the gap */
    int head;       /* elements of the first pack that belong to the row before */
    bool gap;       /* between this row and the next: `store` puts 0 there */

    __device__ row_place(int64_t row, int64_t row_width) : row_place(row, row_width, row_width)
    {
    }
    __device__ row_place(int64_t row, int64_t row_width, int64_t pitch)
    {
        const int64_t start = row * pitch;
        head = (int)(start % V);
        first = start - head;
        width = row_width;
        packs = (head + row_width + V - 1) / V;
        gap = pitch > row_width;
        filled = gap ? pitch / V : packs;
    }
    __device__ bool has(int64_t p, int j) const
    {
        const int64_t column = p * V + j - head;
        return column >= 0 && column < width;
    }
    __device__ bool whole(int64_t p) const
    {
        return p * V >= head && (p + 1) * V <= head + width;
    }
    /* Pack p of the row of `x`, with `outside` where an element is not the row's or there is no pack p. */
    __device__ pack<T> load(const T *x, int64_t p, float outside) const
    {
        pack<T> v;
        if (p < packs) {
            v = load16(x + first + p * V);
        }
        if (p >= packs || !whole(p)) {
            for (int j = 0; j < V; j++) {
                v.at[j] = p < packs && has(p, j) ? v.at[j] : from_float<T>(outside);
            }
        }
        return v;
    }
    __device__ void store(T *y, int64_t p, const pack<T> &v) const
    {
        if (p < packs && whole(p)) {
            store16(y + first + p * V, v);
        } else if (gap && p < filled) {
            pack<T> last;
            for (int j = 0; j < V; j++) {
                last.at[j] = has(p, j) ? v.at[j] : from_float<T>(0.0f);
            }
            store16(y + first + p * V, last);
        } else if (p < packs) {
            for (int j = 0; j < V; j++) {
                if (has(p, j)) {
                    y[first + p * V + j] = v.at[j];
                }
            }
        }
    }
};

/* The largest element of a row and the sum of exp(x - most). */
struct row_exps {
    float most, sum;
};

/* One pass over the row, four packs in flight. A thread keeps the maximum so far and the sum relative to it, and scales
 * the sum down when the maximum grows. The maximum starts at -FLT_MAX, so that logits of -inf add 0. */
template <typename T, int TEAM>
__device__ inline row_exps row_exp_sum(const row_place<T> &place, const T *x, int lane, float *shared)
{
    enum { FLIGHT = 4 };
    float most = -FLT_MAX, sum = 0;
    for (int64_t p = lane; p < place.packs; p += FLIGHT * TEAM) {
        pack<T> v[FLIGHT];
        for (int f = 0; f < FLIGHT; f++) {
            v[f] = place.load(x, p + f * TEAM, -INFINITY);
        }
        float top = most;
        for (int f = 0; f < FLIGHT; f++) {
            for (int j = 0; j < pack<T>::count; j++) {
                top = fmaxf(top, to_float(v[f].at[j]));
            }
        }
        sum *= exp_for<T>(most - top);
        most = top;
        for (int f = 0; f < FLIGHT; f++) {
            float part = 0;
            for (int j = 0; j < pack<T>::count; j++) {
                part += exp_for<T>(to_float(v[f].at[j]) - top);
            }
            sum += part;
        }
    }
    const float all = team_max<TEAM>(most, shared);
    return {all, team_sum<TEAM>(sum * exp_for<T>(most - all), shared)};
}

/* The most packs that a row of `width` may touch: it may start anywhere in a pack. */
template <typename T> static inline int64_t row_packs(int64_t width)
{
    const int64_t V = pack<T>::count;
    return width % V == 0 ? width / V : (width + V - 2) / V + 1;
}

/* A block for every `teams` rows. Kernels stride over rows that a grid cannot hold. */
static inline unsigned row_grid(int64_t rows, int64_t teams)
{
    const int64_t wanted = (rows + teams - 1) / teams, most = (int64_t)1 << 30;
    return (unsigned)(wanted < most ? wanted : most);
}

#endif
