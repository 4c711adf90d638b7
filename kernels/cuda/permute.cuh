/* Copies elements to other places, as a walk says (kernels/walk.h): transpose, reshape between rank 4 and other ranks,
 * slice, pad, roll, tile.
 *   - if the last dimension is the last on both sides, rows are copied, 16 bytes per access if all rows allow;
 *   - if two long dimensions change places, square tiles go through shared memory, so that both sides are accessed in
 *     runs of 32 elements; a row of a tile has an odd number of banks, so that its columns are in different banks;
 *   - if one of the two is short (channels of an image), a thread copies one element, in the order of the destination.
 *     Lines of the source are then read several times in short succession, from the caches.
 * What is read is read once (twice if it adds) and the destination is written once, without arithmetic: bound by
 * memory. */
#ifndef CKPT_KERNELS_CUDA_PERMUTE_CUH
#define CKPT_KERNELS_CUDA_PERMUTE_CUH

#include "kernels/cuda/wide.cuh"

extern "C" {
#include "kernels/walk.h"
}

enum { PERMUTE_THREADS = 256, PERMUTE_TILE = 64, PERMUTE_SHORT = 8 };

/* The position of the source that position `at` of an axis reads; -1: none. */
__device__ static inline int64_t permute_read(const ckpt_walk_axis &axis, int64_t at)
{
    at -= axis.first;
    if (axis.wraps) {
        return divide(at < 0 ? at + axis.length : at, axis.length).rest;
    }
    if (at >= 0 && axis.step > 1) {
        const quotient q = divide(at, axis.step);
        at = q.rest == 0 ? q.whole : -1;
    }
    return at < axis.length ? at : -1;
}

/* Offset in the source of the number-th index, last axis fastest; -1: it reads nothing. In the destination the offset is
 * `number`. */
template <bool PLAIN> __device__ static inline int64_t permute_source(const ckpt_walk &walk, int64_t number)
{
    int64_t from = walk.offset;
    for (int i = walk.count - 1; i >= 0; i--) {
        const quotient q = i > 0 ? divide(number, walk.axis[i].dim) : quotient{0, number};
        const int64_t at = PLAIN ? q.rest : permute_read(walk.axis[i], q.rest);
        if (at < 0) {
            return -1;
        }
        from += at * walk.axis[i].from;
        number = q.whole;
    }
    return from;
}

/* The last axis counts accesses of N elements; strides and `offset` count elements of the source. `spreads`: an access
 * gets N times one element. */
template <typename T, int N, bool PLAIN>
__global__ void permute_gather(int64_t items, ckpt_walk walk, bool spreads, bool adds, const T *from, T *to)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const int64_t source = permute_source<PLAIN>(walk, item);
        wide<T, N> value;
        if (source < 0 && adds) {
            continue;
        }
        if (source >= 0 && !spreads) {
            value = load_wide<N>(from + source);
        } else {
            const T one = source < 0 ? from_float<T>(walk.fill) : from[source];
            for (int j = 0; j < N; j++) {
                value.at[j] = one;
            }
        }
        if (adds || (!PLAIN && walk.factor != 1.0f)) {
            const wide<T, N> before = adds ? load_wide<N>(to + item * N) : wide<T, N>();
            for (int j = 0; j < N; j++) {
                const float own = PLAIN ? to_float(value.at[j]) : product_of(walk.factor, to_float(value.at[j]));
                value.at[j] = from_float<T>(adds ? to_float(before.at[j]) + own : own);
            }
        }
        store_wide<N>(to + item * N, value);
    }
}

/* `across` is dense in the source, `along` in the destination; `outer` are the others, in the destination's order. */
struct permute_tiles {
    ckpt_walk_axis across, along;
    int outer_count;
    ckpt_walk_axis outer[CKPT_RANK_MAX];
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

static inline int64_t permute_count(const ckpt_walk *walk)
{
    int64_t count = 1;
    for (int i = 0; i < walk->count; i++) {
        count *= walk->axis[i].dim;
    }
    return count;
}

/* The walk in accesses of `width` elements; false: rows do not allow it. */
static inline bool permute_pack(ckpt_walk *walk, int64_t width, bool *spreads)
{
    ckpt_walk_axis *const last = &walk->axis[walk->count - 1];
    *spreads = last->wraps && last->length == 1;
    bool packs = last->dim % width == 0;
    if (!*spreads) {
        packs = packs && last->from == 1 && last->step == 1 && last->first % width == 0 && last->length % width == 0 &&
                walk->offset % width == 0;
        for (int i = 0; i < walk->count - 1; i++) {
            packs = packs && walk->axis[i].from % width == 0;
        }
    }
    if (packs) {
        last->dim /= width;
        last->first /= width;
        last->length = *spreads ? 1 : last->length / width;
        last->from = width;
    }
    return packs;
}

/* All copies except the exchange of two long axes. */
template <typename T>
static void permute_start_gather(const ckpt_cuda *cuda, const ckpt_walk *walk, bool adds, const T *from, T *to)
{
    enum { WIDTH = pack<T>::count };
    ckpt_walk own = *walk;
    bool spreads = false;
    const bool packs = permute_pack(&own, WIDTH, &spreads);
    const auto kernel = packs ? (own.plain ? permute_gather<T, WIDTH, true> : permute_gather<T, WIDTH, false>)
                              : (own.plain ? permute_gather<T, 1, true> : permute_gather<T, 1, false>);
    const int64_t items = permute_count(&own);
    CKPT_LAUNCH(cuda, kernel, grid_for(cuda, items, PERMUTE_THREADS), PERMUTE_THREADS, 0, items, own, spreads, adds,
                from, to);
}

template <typename T>
static void permute_start_tiles(const ckpt_cuda *cuda, const ckpt_walk *walk, int dense, bool adds, const T *from,
                                T *to)
{
    permute_tiles work = {};
    work.across = walk->axis[dense];
    work.along = walk->axis[walk->count - 1];
    work.tiles_across = (work.across.dim + PERMUTE_TILE - 1) / PERMUTE_TILE;
    work.tiles_along = (work.along.dim + PERMUTE_TILE - 1) / PERMUTE_TILE;
    work.tiles = work.tiles_across * work.tiles_along;
    for (int i = 0; i < walk->count - 1; i++) {
        if (i != dense) {
            work.tiles *= walk->axis[i].dim;
            work.outer[work.outer_count++] = walk->axis[i];
        }
    }
    CKPT_LAUNCH(cuda, permute_transpose<T>, grid_for(cuda, work.tiles, 1), PERMUTE_THREADS, 0, work, adds, from, to);
}

/* to = the walk's elements of `from`, or += with `adds`. Without `adds` and with a factor of 1 bits are copied, so T
 * float serves for all elements of 4 bytes. */
template <typename T>
static void permute_start(const ckpt_cuda *cuda, const ckpt_walk *walk, bool adds, const void *from, void *to)
{
    const int last = walk->count - 1;
    int dense = last;
    for (int i = 0; i < walk->count && walk->plain && walk->factor == 1.0f; i++) {
        dense = walk->axis[i].from == 1 ? i : dense;
    }
    if (dense == last || walk->axis[dense].dim < PERMUTE_SHORT || walk->axis[last].dim < PERMUTE_SHORT) {
        permute_start_gather<T>(cuda, walk, adds, (const T *)from, (T *)to);
    } else {
        permute_start_tiles<T>(cuda, walk, dense, adds, (const T *)from + walk->offset, (T *)to);
    }
}

/* A layer's output from its input, and the gradient of the input from that of the output. */
template <typename T> static void permute_forward(const ckpt_kernel_args *args, const ckpt_walk &walk)
{
    permute_start<T>(cuda_of(args), &walk, false, args->in[0], args->out[0]);
}

template <typename T> static void permute_backward(const ckpt_kernel_args *args, const ckpt_walk &walk)
{
    permute_start<T>(cuda_of(args), &walk, (args->grad_in_adds & 1) != 0, args->grad_out[0], args->grad_in[0]);
}

#endif
