/* Ops on two tensors that may be broadcast (ops/broadcast.h): add, sub, mul, div. `F` is a type from the op's own file:
 * value(a, b), slope(k, dy, a, b) = input k's share of dy, and READS, whether the shares depend on a and b.
 *
 * Forward reads both inputs and writes the output, once each; what is stretched comes from the caches. Backward takes one
 * pass over dy and what its shares depend on: where one input is stretched, the pass that sums its gradient also gives
 * the other's. A few FLOP an element: all are bound by memory.
 *
 * Sums are in parts. A part of lines is summed by a block down the columns of a strip; where rows are summed too, by a
 * team of threads. A second kernel adds the parts (parts.cuh). Bits depend on the shape alone. */
#ifndef CKPT_KERNELS_CUDA_BROADCAST_CUH
#define CKPT_KERNELS_CUDA_BROADCAST_CUH

#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/wide.cuh"

extern "C" {
#include "ops/broadcast.h"
}

enum {
    BROADCAST_THREADS = 256,
    BROADCAST_STRIP = 256,
};

/* Pointers to one place of the three tensors. to[k]: the gradient of input k; NULL: not wanted. */
template <typename T> struct broadcast_tensors {
    const T *x[2], *dy;
    T *to[2];
    uint64_t adds;
};

/* of[k] of two, which an array in registers cannot be asked for. */
template <typename X> __device__ inline X broadcast_pick(const X *of, int k)
{
    const X first = of[0], second = of[1];
    return k == 0 ? first : second;
}

struct space_place {
    int64_t offset[3];
};

__device__ inline space_place space_at(const ckpt_broadcast_space &space, int64_t index)
{
    space_place place = {{0, 0, 0}};
    for (int d = space.rank - 1; d >= 0; d--) {
        const quotient at = d > 0 ? divide(index, space.dim[d]) : quotient{0, index};
        for (int t = 0; t < 3; t++) {
            place.offset[t] += at.rest * space.step[t][d];
        }
        index = at.whole;
    }
    return place;
}

template <int V, typename T> __device__ inline wide<float, V> load_stepped(const T *x, int64_t step)
{
    if (step == 1) {
        return load_floats<V>(x);
    }
    wide<float, V> v;
    for (int j = 0; j < V; j++) {
        v.at[j] = to_float(x[j * step]);
    }
    return v;
}

template <int V, typename T> __device__ inline void put_stepped(T *to, int64_t step, const wide<float, V> &v, bool adds)
{
    if (step == 1) {
        put_wide<V>(to, v, adds);
        return;
    }
    for (int j = 0; j < V; j++) {
        to[j * step] = from_float<T>(adds ? to_float(to[j * step]) + v.at[j] : v.at[j]);
    }
}

/* Across a row are `across` accesses. y may be an input that is not stretched. */
template <typename T, int V, typename F>
__global__ void __launch_bounds__(BROADCAST_THREADS)
    broadcast_forward(int64_t items, int64_t across, ckpt_broadcast b, const T *x0, const T *x1, T *y)
{
    for (int64_t i = first_item(); i < items; i += item_step()) {
        const quotient row = divide(i, across);
        const space_place place = space_at(b.rows, row.whole);
        const int64_t column = row.rest * V;
        wide<float, V> p = load_stepped<V>(x0 + place.offset[0] + column * b.step[0], b.step[0]);
        const wide<float, V> q = load_stepped<V>(x1 + place.offset[1] + column * b.step[1], b.step[1]);
        for (int j = 0; j < V; j++) {
            p.at[j] = F::value(p.at[j], q.at[j]);
        }
        put_wide<V>(y + place.offset[CKPT_BROADCAST_OUT] + column, p, false);
    }
}

/* The shares of V elements of dy at `offset` in each tensor, which include the column. */
template <typename T, int V, typename F>
__device__ inline void broadcast_shares(const ckpt_broadcast &b, const broadcast_tensors<T> &t, const int64_t offset[3],
                                        wide<float, V> share[2])
{
    const wide<float, V> dy = load_floats<V>(t.dy + offset[CKPT_BROADCAST_OUT]);
    wide<float, V> p = {}, q = {};
    if (F::READS != 0) {
        p = load_stepped<V>(t.x[0] + offset[0], b.step[0]);
        q = load_stepped<V>(t.x[1] + offset[1], b.step[1]);
    }
    for (int k = 0; k < 2; k++) {
        for (int j = 0; j < V; j++) {
            share[k].at[j] = F::slope(k, dy.at[j], p.at[j], q.at[j]);
        }
    }
}

/* Gradients of inputs that are not stretched, in increasing k: both may be one buffer. */
template <typename T, int V, typename F>
__global__ void __launch_bounds__(BROADCAST_THREADS, 4)
    broadcast_backward(int64_t items, int64_t across, ckpt_broadcast b, broadcast_tensors<T> t)
{
    for (int64_t i = first_item(); i < items; i += item_step()) {
        const quotient row = divide(i, across);
        const space_place place = space_at(b.rows, row.whole);
        int64_t offset[3];
        for (int n = 0; n < 3; n++) {
            offset[n] = place.offset[n] + row.rest * V * b.step[n];
        }
        wide<float, V> share[2];
        broadcast_shares<T, V, F>(b, t, offset, share);
        for (int k = 0; k < 2; k++) {
            if (t.to[k] != NULL) {
                put_stepped<V>(t.to[k] + offset[k], b.step[k], share[k], (t.adds >> k & 1) != 0);
            }
        }
    }
}

/* What the kernels of a sum need: input k's gradient is summed into t.to[k], or `part` where there are several parts;
 * the other's is written. */
struct broadcast_summing {
    ckpt_broadcast b;
    ckpt_broadcast_sum how;
    int k;
    int64_t kept, count; /* places; elements of input k */
    float *part;
};

template <typename T>
__device__ inline void broadcast_put_sum(const broadcast_summing &s, const broadcast_tensors<T> &t, int64_t at,
                                         float sum)
{
    if (s.part != NULL) {
        s.part[blockIdx.y * s.count + at] = sum;
    } else {
        T *const to = broadcast_pick(t.to, s.k) + at;
        *to = from_float<T>((t.adds >> s.k & 1) != 0 ? to_float(*to) + sum : sum);
    }
}

template <typename T, int V, typename F>
__device__ inline wide<float, V> broadcast_share(const broadcast_summing &s, const broadcast_tensors<T> &t,
                                                 const space_place &kept, int64_t line, int64_t column)
{
    const space_place place = space_at(s.how.lines, line);
    const int other = 1 - s.k;
    int64_t offset[3];
    for (int n = 0; n < 3; n++) {
        offset[n] = kept.offset[n] + place.offset[n] + column * s.b.step[n];
    }
    wide<float, V> share[2];
    broadcast_shares<T, V, F>(s.b, t, offset, share);
    wide<float, V> summed, written;
    for (int j = 0; j < V; j++) {
        summed.at[j] = s.k == 0 ? share[0].at[j] : share[1].at[j];
        written.at[j] = s.k == 0 ? share[1].at[j] : share[0].at[j];
    }
    T *const to = broadcast_pick(t.to, other);
    if (to != NULL) {
        put_stepped<V>(to + broadcast_pick(offset, other), broadcast_pick(s.b.step, other), written,
                       (t.adds >> other & 1) != 0);
    }
    return summed;
}

/* A block is one (kept place and strip of the row, part of the lines). Its threads are `across` cells of V columns times
 * BROADCAST_THREADS / across lines. */
template <typename T, int V, typename F>
__global__ void __launch_bounds__(BROADCAST_THREADS)
    broadcast_sum_columns(broadcast_summing s, int across, broadcast_tensors<T> t)
{
    __shared__ float sums[BROADCAST_THREADS * V];
    const int x_at = (int)threadIdx.x % across, y_at = (int)threadIdx.x / across, high = BROADCAST_THREADS / across;
    const quotient of = divide(blockIdx.x, (s.b.row + BROADCAST_STRIP - 1) / BROADCAST_STRIP);
    const int64_t place = of.whole, strip = of.rest * BROADCAST_STRIP, column = strip + x_at * V;
    const int64_t start = (int64_t)blockIdx.y * s.how.part;
    const int64_t end = start + s.how.part < s.how.pieces ? start + s.how.part : s.how.pieces;
    const space_place kept = space_at(s.how.kept, place);
    float sum[V] = {0};
    if (column < s.b.row) {
#pragma unroll 2
        for (int64_t line = start + y_at; line < end; line += high) {
            const wide<float, V> share = broadcast_share<T, V, F>(s, t, kept, line, column);
            for (int j = 0; j < V; j++) {
                sum[j] += share.at[j];
            }
        }
    }
    for (int j = 0; j < V; j++) {
        sums[(y_at * across + x_at) * V + j] = sum[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (mine < across * V && strip + mine < s.b.row) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y * across * V + mine];
        }
        broadcast_put_sum(s, t, broadcast_pick(kept.offset, s.k) + (strip + mine) * broadcast_pick(s.b.step, s.k),
                          total);
    }
}

/* Rows are summed too. A team, a warp or a whole block, sums a part at one kept place. */
template <typename T, int V, typename F>
__global__ void __launch_bounds__(BROADCAST_THREADS, 4)
    broadcast_sum_rows(broadcast_summing s, int team, broadcast_tensors<T> t)
{
    __shared__ float shared[32];
    const int lane = (int)threadIdx.x % team, teams = BROADCAST_THREADS / team;
    const int64_t place = (int64_t)blockIdx.x * teams + threadIdx.x / team;
    const int64_t start = (int64_t)blockIdx.y * s.how.part;
    const int64_t end = start + s.how.part < s.how.pieces ? start + s.how.part : s.how.pieces;
    const bool is = place < s.kept;
    const space_place kept = space_at(s.how.kept, is ? place : 0);
    float sum = 0;
#pragma unroll 2
    for (int64_t piece = start + lane * V; is && piece < end; piece += team * V) {
        const quotient line = divide(piece, s.b.row);
        const wide<float, V> share = broadcast_share<T, V, F>(s, t, kept, line.whole, line.rest);
        for (int j = 0; j < V; j++) {
            sum += share.at[j];
        }
    }
    sum = team > 32 ? block_sum(sum, shared) : warp_sum(sum);
    if (is && lane == 0) {
        broadcast_put_sum(s, t, broadcast_pick(kept.offset, s.k), sum);
    }
}

template <typename T, int V, typename F> static void start_broadcast_forward(const ckpt_kernel_args *args)
{
    const ckpt_broadcast b = ckpt_broadcast_of(args->node);
    const int64_t across = (b.row + V - 1) / V;
    CKPT_LAUNCH_ITEMS(cuda_of(args), (broadcast_forward<T, V, F>), ckpt_broadcast_count(&b.rows) * across, across, b,
                      (const T *)args->in[0], (const T *)args->in[1], (T *)args->out[0]);
}

/* The gradient of input k, which is a sum, and of the other one if `t` has it. */
template <typename T, int V, typename F>
static void start_broadcast_sum(const ckpt_kernel_args *args, const ckpt_broadcast *b, int k,
                                const broadcast_tensors<T> &t)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    broadcast_summing s = {.b = *b, .how = ckpt_broadcast_sum_of(args->node, b, k), .k = k};
    s.kept = ckpt_broadcast_count(&s.how.kept);
    s.count = ckpt_shape_count(&args->node->in[k].shape);
    s.part = s.how.parts > 1 ? (float *)args->workspace : NULL;
    if (b->step[k] != 0) {
        const dim3 grid((unsigned)(s.kept * ((b->row + BROADCAST_STRIP - 1) / BROADCAST_STRIP)), (unsigned)s.how.parts);
        CKPT_LAUNCH(cuda, (broadcast_sum_columns<T, V, F>), grid, BROADCAST_THREADS, 0, s,
                    strip_threads(b->row, BROADCAST_STRIP, V), t);
    } else {
        const int team = s.how.pieces < 8 * 32 * V ? 32 : BROADCAST_THREADS, teams = BROADCAST_THREADS / team;
        const dim3 grid((unsigned)((s.kept + teams - 1) / teams), (unsigned)s.how.parts);
        CKPT_LAUNCH(cuda, (broadcast_sum_rows<T, V, F>), grid, BROADCAST_THREADS, 0, s, team, t);
    }
    if (s.part != NULL) {
        start_parts<T>(cuda, s.how.parts, s.count, s.part, {t.to[k], (t.adds >> k & 1) != 0}, {});
    }
}

template <typename T, int V, typename F> static void start_broadcast_backward(const ckpt_kernel_args *args)
{
    const ckpt_broadcast b = ckpt_broadcast_of(args->node);
    broadcast_tensors<T> t = {.dy = (const T *)args->grad_out[0], .adds = args->grad_in_adds};
    bool sums[2];
    for (int k = 0; k < 2; k++) {
        t.x[k] = (const T *)args->in[k];
        t.to[k] = (T *)args->grad_in[k];
        t.to[k] = t.to[k] == t.dy && (t.adds >> k & 1) == 0 ? NULL : t.to[k]; /* passed on as it is */
        sums[k] = t.to[k] != NULL && ckpt_broadcast_sums(args->node, k);
    }
    for (int k = 0; k < 2; k++) {
        if (sums[k]) {
            broadcast_tensors<T> mine = t;
            mine.to[1 - k] = sums[1 - k] ? NULL : t.to[1 - k];
            start_broadcast_sum<T, V, F>(args, &b, k, mine);
        }
    }
    if (!sums[0] && !sums[1] && (t.to[0] != NULL || t.to[1] != NULL)) {
        const int64_t across = (b.row + V - 1) / V;
        CKPT_LAUNCH_ITEMS(cuda_of(args), (broadcast_backward<T, V, F>), ckpt_broadcast_count(&b.rows) * across, across,
                          b, t);
    }
}

/* For CKPT_WIDE: packs need every row to start at 16 bytes. A single row may end anywhere, unless it is summed or read
 * with larger steps. */
static int64_t broadcast_width(const ckpt_node *node, bool sums)
{
    const ckpt_broadcast b = ckpt_broadcast_of(node);
    return b.rows.rank == 0 && !sums && b.step[0] <= 1 && b.step[1] <= 1 ? 8 : b.row;
}
static int64_t broadcast_forward_width(const ckpt_node *node)
{
    return broadcast_width(node, false);
}
static int64_t broadcast_backward_width(const ckpt_node *node)
{
    return broadcast_width(node, ckpt_broadcast_sums(node, 0) || ckpt_broadcast_sums(node, 1));
}

#endif
