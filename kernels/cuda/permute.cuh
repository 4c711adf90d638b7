/* Copies elements into another order, for transpose and for reshape between rank 4 and other ranks. As on the CPU,
 * dimensions are sorted by the order of the destination, and neighbours that stay neighbours are merged. Then
 *   - if the last dimension is the last on both sides, rows are copied, 16 bytes per access if all rows allow;
 *   - if two long dimensions change places, square tiles go through shared memory, so that both sides are accessed in
 *     runs of 32 elements; a row of a tile has an odd number of banks, so that its columns are in different banks;
 *   - if one of the two is short (channels of an image), a thread copies one element, in the order of the destination.
 *     Lines of the source are then read several times in short succession, from the caches.
 * The tensor is read once (twice if it adds) and written once, without arithmetic: bound by memory. */
#ifndef CKPT_KERNELS_CUDA_PERMUTE_CUH
#define CKPT_KERNELS_CUDA_PERMUTE_CUH

#include "kernels/cuda/wide.cuh"

enum { PERMUTE_THREADS = 256, PERMUTE_TILE = 64, PERMUTE_SHORT = 8 };

/* An index space and the strides of its elements on both sides; both sides are dense. */
struct permute_axis {
    int64_t dim, from, to;
};
struct permute_axes {
    int count;
    permute_axis at[CKPT_RANK_MAX];
};

/* Offset in the source of the number-th index, last axis fastest; in the destination the offset is `number`. */
__device__ static inline int64_t permute_source(const permute_axes &axes, int64_t number)
{
    int64_t from = 0;
    for (int i = axes.count - 1; i > 0; i--) {
        const quotient q = divide(number, axes.at[i].dim);
        from += q.rest * axes.at[i].from;
        number = q.whole;
    }
    return from + number * axes.at[0].from;
}

/* `axes` count accesses of N elements, strides count elements of the source. */
template <typename T, int N>
__global__ void permute_gather(int64_t items, permute_axes axes, bool adds, const T *from, T *to)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        wide<T, N> value = load_wide<N>(from + permute_source(axes, item));
        if (adds) {
            const wide<T, N> before = load_wide<N>(to + item * N);
            for (int j = 0; j < N; j++) {
                value.at[j] = from_float<T>(to_float(before.at[j]) + to_float(value.at[j]));
            }
        }
        store_wide<N>(to + item * N, value);
    }
}

/* `across` is dense in the source, `along` in the destination; `outer` are the others, in the destination's order. */
struct permute_tiles {
    permute_axis across, along;
    int outer_count;
    permute_axis outer[CKPT_RANK_MAX];
    int64_t tiles, tiles_across, tiles_along; /* tiles: of all outer indices */
};

template <typename T> __global__ void permute_transpose(permute_tiles work, bool adds, const T *from, T *to)
{
    enum { ROWS = PERMUTE_THREADS / 32 };
    __shared__ T tile[PERMUTE_TILE][PERMUTE_TILE + 4 / sizeof(T)]; /* [along][across] */
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32;
    for (int64_t number = blockIdx.x; number < work.tiles; number += gridDim.x) {
        const quotient along = divide(number, work.tiles_along), across = divide(along.whole, work.tiles_across);
        const int64_t i0 = across.rest * PERMUTE_TILE, j0 = along.rest * PERMUTE_TILE;
        int64_t source = i0 + j0 * work.along.from, target = i0 * work.across.to + j0, rest = across.whole;
        for (int d = work.outer_count - 1; d >= 0; d--) {
            const quotient q = divide(rest, work.outer[d].dim);
            source += q.rest * work.outer[d].from;
            target += q.rest * work.outer[d].to;
            rest = q.whole;
        }
        const int64_t n_across = work.across.dim - i0, n_along = work.along.dim - j0;
        /* Fixed trip counts, so that the compiler can start all loads before the first store. */
        for (int r = 0; r < PERMUTE_TILE; r += ROWS) {
            for (int c = 0; c < PERMUTE_TILE; c += 32) {
                if (row + r < n_along && lane + c < n_across) {
                    tile[row + r][lane + c] = from[source + (row + r) * work.along.from + lane + c];
                }
            }
        }
        __syncthreads();
        for (int r = 0; r < PERMUTE_TILE; r += ROWS) {
            for (int c = 0; c < PERMUTE_TILE; c += 32) {
                if (row + r < n_across && lane + c < n_along) {
                    T *const place = to + target + (row + r) * work.across.to + lane + c;
                    const T value = tile[lane + c][row + r];
                    *place = adds ? from_float<T>(to_float(*place) + to_float(value)) : value;
                }
            }
        }
        __syncthreads();
    }
}

/* Inserts an axis, slowest of the destination first; axes of length 1 are left out. */
static inline void permute_add_axis(permute_axes *axes, int64_t dim, int64_t from, int64_t to)
{
    if (dim == 1) {
        return;
    }
    int at = axes->count++;
    for (; at > 0 && axes->at[at - 1].to < to; at--) {
        axes->at[at] = axes->at[at - 1];
    }
    axes->at[at] = {dim, from, to};
}

/* Merges neighbours that stay neighbours; at least one axis is left. */
static inline void permute_merge(permute_axes *axes)
{
    int merged = 0;
    for (int i = 1; i < axes->count; i++) {
        permute_axis *const last = &axes->at[merged];
        const permute_axis next = axes->at[i];
        if (last->from == next.dim * next.from && last->to == next.dim * next.to) {
            *last = {last->dim * next.dim, next.from, next.to};
        } else {
            axes->at[++merged] = next;
        }
    }
    if (axes->count == 0) {
        axes->at[0] = {1, 1, 1};
    }
    axes->count = merged + 1;
}

static inline int64_t permute_count(const permute_axes *axes)
{
    int64_t count = 1;
    for (int i = 0; i < axes->count; i++) {
        count *= axes->at[i].dim;
    }
    return count;
}

/* All copies except the exchange of two long axes. */
template <typename T>
static void permute_start_gather(const ckpt_cuda *cuda, const permute_axes *axes, bool adds, const T *from, T *to)
{
    enum { WIDTH = pack<T>::count };
    permute_axes own = *axes;
    permute_axis *const last = &own.at[own.count - 1];
    bool packs = last->from == 1 && last->dim % WIDTH == 0;
    for (int i = 0; i < own.count - 1; i++) {
        packs = packs && own.at[i].from % WIDTH == 0;
    }
    if (packs) {
        last->dim /= WIDTH;
        last->from = WIDTH;
    }
    const int64_t items = permute_count(&own);
    const int grid = grid_for(cuda, items, PERMUTE_THREADS);
    if (packs) {
        CKPT_LAUNCH(cuda, (permute_gather<T, WIDTH>), grid, PERMUTE_THREADS, 0, items, own, adds, from, to);
    } else {
        CKPT_LAUNCH(cuda, (permute_gather<T, 1>), grid, PERMUTE_THREADS, 0, items, own, adds, from, to);
    }
}

template <typename T>
static void permute_start_tiles(const ckpt_cuda *cuda, const permute_axes *axes, int dense, bool adds, const T *from,
                                T *to)
{
    permute_tiles work = {};
    work.across = axes->at[dense];
    work.along = axes->at[axes->count - 1];
    work.tiles_across = (work.across.dim + PERMUTE_TILE - 1) / PERMUTE_TILE;
    work.tiles_along = (work.along.dim + PERMUTE_TILE - 1) / PERMUTE_TILE;
    work.tiles = work.tiles_across * work.tiles_along;
    for (int i = 0; i < axes->count - 1; i++) {
        if (i != dense) {
            work.tiles *= axes->at[i].dim;
            work.outer[work.outer_count++] = axes->at[i];
        }
    }
    CKPT_LAUNCH(cuda, permute_transpose<T>, grid_for(cuda, work.tiles, 1), PERMUTE_THREADS, 0, work, adds, from, to);
}

/* to[index] = from[index], or += with `adds`, for every index of `rank` dims. Without `adds` bits are copied, so T
 * float serves for all elements of 4 bytes. */
template <typename T>
static void permute_start(const ckpt_cuda *cuda, int rank, const int64_t *dim, const int64_t *from_stride,
                          const int64_t *to_stride, bool adds, const void *from, void *to)
{
    permute_axes axes = {};
    for (int d = 0; d < rank; d++) {
        permute_add_axis(&axes, dim[d], from_stride[d], to_stride[d]);
    }
    permute_merge(&axes);
    int dense = axes.count - 1;
    for (int i = 0; i < axes.count; i++) {
        dense = axes.at[i].from == 1 ? i : dense;
    }
    const int64_t across = axes.at[dense].dim, along = axes.at[axes.count - 1].dim;
    if (dense == axes.count - 1 || across < PERMUTE_SHORT || along < PERMUTE_SHORT) {
        permute_start_gather<T>(cuda, &axes, adds, (const T *)from, (T *)to);
    } else {
        permute_start_tiles<T>(cuda, &axes, dense, adds, (const T *)from, (T *)to);
    }
}

#endif
