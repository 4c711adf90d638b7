/* Sums and maxima over dims of a tensor (ops/reduction.h), in three ways:
 *   - terms that are neighbours: a team of threads, a warp or a block, has a part of the terms of one output;
 *   - rows of columns: a block has a part of the terms of a strip of columns;
 *   - few terms, or columns for every thread of a device: a thread has its columns' terms, one after another.
 * Partial results of several parts are added in order by a second kernel. x is read once, 16 bytes per access where all
 * rows allow. One operation an element: bound by memory. The order of a sum follows from the shape alone. */
#ifndef CKPT_KERNELS_CUDA_REDUCE_CUH
#define CKPT_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/wide.cuh"

extern "C" {
#include "ops/reduction.h"
}

enum {
    REDUCE_THREADS = 256,
    REDUCE_STRIP = 256,
    REDUCE_FEW = 32,       /* terms of a thread that works alone */
    REDUCE_MANY = 1 << 20, /* outputs that keep a device busy without teams */
    REDUCE_WARP = 1024     /* terms for which a warp is enough */
};

/* What is kept of some terms. Terms come in any order to a thread: the result must not depend on it but by rounding. */
struct reduce_sum {
    float value;
    __device__ void start()
    {
        value = 0;
    }
    __device__ void take(float x, int64_t)
    {
        value += x;
    }
    __device__ void join(const reduce_sum &other)
    {
        value += other.value;
    }
};

/* The greatest term and its number, the lowest of equal ones; NaN wins, as in PyTorch. */
struct reduce_max {
    float value;
    int32_t term; /* -1: none yet */
    __device__ void start()
    {
        value = 0;
        term = -1;
    }
    __device__ void join(const reduce_max &other)
    {
        const bool nan = value != value, other_nan = other.value != other.value;
        const bool equal = nan ? other_nan : value == other.value;
        const bool wins = equal ? other.term < term : other_nan || (!nan && other.value > value);
        if (other.term >= 0 && (term < 0 || wins)) {
            *this = other;
        }
    }
    __device__ void take(float x, int64_t number)
    {
        join({x, (int32_t)number});
    }
};

/* Where results go: `part` [parts][outputs], or y and, for a maximum, its numbers. */
template <typename T, typename S> struct reduce_to {
    S *part; /* NULL: one part */
    T *y;
    int32_t *index;
    float divisor;
    bool adds;
};

/* Offset of the number-th index of `count` axes in the input, or in the result. */
template <bool RESULT>
__device__ static inline int64_t reduce_offset(const ckpt_reduction_axis *axis, int count, int64_t number)
{
    int64_t offset = 0;
    for (int i = count - 1; i >= 0; i--) {
        const quotient q = i > 0 ? divide(number, axis[i].dim) : quotient{0, number};
        offset += q.rest * (RESULT ? axis[i].to : axis[i].from);
        number = q.whole;
    }
    return offset;
}

template <typename T>
__device__ static inline void reduce_give(const ckpt_reduction &r, const reduce_to<T, reduce_sum> &to, int64_t output,
                                          const reduce_sum &sum)
{
    const int64_t at = reduce_offset<true>(r.kept, r.kept_count, output);
    const float value = sum.value / to.divisor;
    to.y[at] = from_float<T>(to.adds ? to_float(to.y[at]) + value : value);
}

template <typename T>
__device__ static inline void reduce_give(const ckpt_reduction &r, const reduce_to<T, reduce_max> &to, int64_t output,
                                          const reduce_max &most)
{
    const int64_t at = reduce_offset<true>(r.kept, r.kept_count, output);
    to.y[at] = from_float<T>(most.value);
    to.index[at] = most.term;
}

template <typename T, typename S>
__device__ static inline void reduce_put(const ckpt_reduction &r, const reduce_to<T, S> &to, int64_t part,
                                         int64_t output, const S &state)
{
    if (to.part != NULL) {
        to.part[part * r.outputs + output] = state;
    } else {
        reduce_give(r, to, output, state);
    }
}

/* A team of TEAM threads for each output and part; terms are N neighbours at a time. */
template <typename T, typename S, int N, int TEAM>
__global__ void __launch_bounds__(REDUCE_THREADS) reduce_rows(ckpt_reduction r, const T *x, reduce_to<T, S> to)
{
    enum { TEAMS = REDUCE_THREADS / TEAM };
    __shared__ S state[REDUCE_THREADS];
    const int thread = (int)threadIdx.x, lane = thread % TEAM;
    const int64_t items = r.outputs * r.parts;
    for (int64_t first = (int64_t)blockIdx.x * TEAMS; first < items; first += (int64_t)gridDim.x * TEAMS) {
        const int64_t item = first + thread / TEAM;
        const quotient of = divide(item < items ? item : 0, r.parts);
        const int64_t start = of.rest * r.part_terms;
        const int64_t end = start + r.part_terms < r.terms ? start + r.part_terms : r.terms;
        const T *const own = x + reduce_offset<false>(r.kept, r.kept_count, of.whole);
        S mine;
        mine.start();
#pragma unroll 2
        for (int64_t term = start + lane * N; term < end && item < items; term += TEAM * N) {
            const wide<float, N> v = load_floats<N>(own + reduce_offset<false>(r.reduced, r.reduced_count, term));
            for (int j = 0; j < N; j++) {
                mine.take(v.at[j], term + j);
            }
        }
        state[thread] = mine;
        for (int step = TEAM / 2; step > 0; step /= 2) {
            __syncthreads();
            if (lane < step) {
                state[thread].join(state[thread + step]);
            }
        }
        if (lane == 0 && item < items) {
            reduce_put(r, to, of.rest, of.whole, state[thread]);
        }
        __syncthreads();
    }
}

/* A block is one row of columns and strip of it, and one part. Its threads are `across` cells of N columns times
 * REDUCE_THREADS / across terms. */
template <typename T, typename S, int N>
__global__ void __launch_bounds__(REDUCE_THREADS)
    reduce_columns(ckpt_reduction r, int across, const T *x, reduce_to<T, S> to)
{
    __shared__ S state[REDUCE_THREADS * N];
    const int64_t columns = r.kept[r.kept_count - 1].dim, strips = (columns + REDUCE_STRIP - 1) / REDUCE_STRIP;
    const int x_at = (int)threadIdx.x % across, y_at = (int)threadIdx.x / across, high = REDUCE_THREADS / across;
    const quotient of = divide(blockIdx.x, strips);
    const int64_t strip = of.rest * REDUCE_STRIP, column = strip + x_at * N, first = of.whole * columns;
    const int64_t start = (int64_t)blockIdx.y * r.part_terms;
    const int64_t end = start + r.part_terms < r.terms ? start + r.part_terms : r.terms;
    const T *const own = x + reduce_offset<false>(r.kept, r.kept_count, first) + column;
    S mine[N];
    for (int j = 0; j < N; j++) {
        mine[j].start();
    }
#pragma unroll 2
    for (int64_t term = start + y_at; term < end && column < columns; term += high) {
        const wide<float, N> v = load_floats<N>(own + reduce_offset<false>(r.reduced, r.reduced_count, term));
        for (int j = 0; j < N; j++) {
            mine[j].take(v.at[j], term);
        }
    }
    for (int j = 0; j < N; j++) {
        state[(y_at * across + x_at) * N + j] = mine[j];
    }
    __syncthreads();
    const int c = (int)threadIdx.x;
    if (c < across * N && strip + c < columns) {
        S total = state[c];
        for (int y = 1; y < high; y++) {
            total.join(state[y * across * N + c]);
        }
        reduce_put(r, to, blockIdx.y, first + strip + c, total);
    }
}

/* A thread for N neighbouring outputs, columns, and all of their terms. */
template <typename T, typename S, int N>
__global__ void __launch_bounds__(REDUCE_THREADS)
    reduce_alone(int64_t items, ckpt_reduction r, const T *x, reduce_to<T, S> to)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const T *const own = x + reduce_offset<false>(r.kept, r.kept_count, item * N);
        S mine[N];
        for (int j = 0; j < N; j++) {
            mine[j].start();
        }
#pragma unroll 4
        for (int64_t term = 0; term < r.terms; term++) {
            const wide<float, N> v = load_floats<N>(own + reduce_offset<false>(r.reduced, r.reduced_count, term));
            for (int j = 0; j < N; j++) {
                mine[j].take(v.at[j], term);
            }
        }
        for (int j = 0; j < N; j++) {
            reduce_put(r, to, 0, item * N + j, mine[j]);
        }
    }
}

template <typename T, typename S> __global__ void reduce_parts(int64_t outputs, ckpt_reduction r, reduce_to<T, S> to)
{
    for (int64_t output = first_item(); output < outputs; output += item_step()) {
        S total = to.part[output];
#pragma unroll 8
        for (int64_t part = 1; part < r.parts; part++) {
            total.join(to.part[part * outputs + output]);
        }
        reduce_give(r, to, output, total);
    }
}

template <typename T, typename S, int N>
static void reduce_launch(const ckpt_cuda *cuda, const ckpt_reduction *r, const T *x, const reduce_to<T, S> &to)
{
    if (!r->columns) {
        const bool warp = r->part_terms <= REDUCE_WARP || r->terms <= REDUCE_WARP;
        const auto kernel = warp ? reduce_rows<T, S, N, 32> : reduce_rows<T, S, N, REDUCE_THREADS>;
        CKPT_LAUNCH(cuda, kernel, grid_for(cuda, r->outputs * r->parts, warp ? REDUCE_THREADS / 32 : 1), REDUCE_THREADS,
                    0, *r, x, to);
    } else if (r->parts == 1 && (r->terms <= REDUCE_FEW || r->outputs >= REDUCE_MANY)) {
        CKPT_LAUNCH(cuda, (reduce_alone<T, S, N>), grid_for(cuda, r->outputs / N, REDUCE_THREADS), REDUCE_THREADS, 0,
                    r->outputs / N, *r, x, to);
    } else {
        const int64_t columns = r->kept[r->kept_count - 1].dim, strips = (columns + REDUCE_STRIP - 1) / REDUCE_STRIP;
        const dim3 grid((unsigned)(r->outputs / columns * strips), (unsigned)r->parts);
        CKPT_LAUNCH(cuda, (reduce_columns<T, S, N>), grid, REDUCE_THREADS, 0, *r,
                    strip_threads(columns, REDUCE_STRIP, N), x, to);
    }
    if (r->parts > 1) {
        CKPT_LAUNCH(cuda, (reduce_parts<T, S>), grid_for(cuda, r->outputs, REDUCE_THREADS), REDUCE_THREADS, 0,
                    r->outputs, *r, to);
    }
}

/* May N neighbours be read at once: columns, or terms? */
static inline bool reduce_packs(const ckpt_reduction *r, int64_t width)
{
    const ckpt_reduction_axis *const dense =
        r->columns ? &r->kept[r->kept_count - 1] : &r->reduced[r->reduced_count - 1];
    bool packs = dense->dim % width == 0 && dense->from == 1;
    for (int i = 0; i < r->kept_count; i++) {
        packs = packs && (&r->kept[i] == dense || r->kept[i].from % width == 0);
    }
    for (int i = 0; i < r->reduced_count; i++) {
        packs = packs && (&r->reduced[i] == dense || r->reduced[i].from % width == 0);
    }
    return packs;
}

/* `workspace`: ckpt_reduction_workspace of S. */
template <typename T, typename S>
static void reduce_start(const ckpt_cuda *cuda, const ckpt_reduction *r, const void *x, const void *workspace,
                         reduce_to<T, S> to)
{
    enum { WIDTH = pack<T>::count };
    to.part = r->parts > 1 ? (S *)const_cast<void *>(workspace) : NULL;
    reduce_packs(r, WIDTH) ? reduce_launch<T, S, WIDTH>(cuda, r, (const T *)x, to)
                           : reduce_launch<T, S, 1>(cuda, r, (const T *)x, to);
}

#endif
