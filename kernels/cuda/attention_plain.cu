/* Attention for all other head sizes: above 128, or rows that are no multiple of 16 bytes. A warp takes one query
 * (backward: one query, then one key) and goes through the other side 32 rows at a time, in order, with one dot product
 * per lane. Sums over rows have 256 columns at a time; larger heads recompute the dot products. Forward takes 4 D FLOP
 * per pair on multiply-adds, backward 14 D. Every row that is read is used once, 4 D bytes of bfloat16 per pair: bound
 * by the L1 and L2 caches. */
#include "kernels/cuda/attention.cuh"

namespace
{

enum { WARPS = 4, SLICE = 256, COLUMNS = SLICE / 32 };

template <typename E> __device__ inline float dot(const E *a, const E *b, int64_t count)
{
    float sum = 0;
    for (int64_t d = 0; d < count; d++) {
        sum += to_float(a[d]) * to_float(b[d]);
    }
    return sum;
}

/* sum += weight of lane l times row l of `rows`, for `count` rows and this lane's columns. */
template <typename E>
__device__ inline void add_rows(float (&sum)[COLUMNS], float weight, const E *rows, int64_t stride, int64_t count,
                                int64_t columns)
{
    for (int l = 0; l < 32; l++) {
        const float w = __shfl_sync(0xffffffffu, weight, l);
        if (l < count) {
            for (int i = 0; i < COLUMNS; i++) {
                const int64_t d = threadIdx.x % 32 + 32 * i;
                if (d < columns) {
                    sum[i] += w * to_float(rows[l * stride + d]);
                }
            }
        }
    }
}

template <typename E> __device__ inline void put_row(E *to, const float (&sum)[COLUMNS], float factor, int64_t columns)
{
    for (int i = 0; i < COLUMNS; i++) {
        const int64_t d = threadIdx.x % 32 + 32 * i;
        if (d < columns) {
            to[d] = from_float<E>(sum[i] * factor);
        }
    }
}

__device__ inline bool is_kept(const attention_call &c, int64_t bh, int64_t query, int64_t key)
{
    return kept_one(c, *c.counters, (uint64_t)((bh * c.T + query) * c.T + key)) != 0;
}

template <typename E> __global__ void attention_plain_forward(attention_call c)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, slice = (int64_t)blockIdx.y * SLICE;
    if (item >= c.B * c.heads * c.T) {
        return; /* the whole warp returns; no barrier follows */
    }
    const int64_t bh = item / c.T, query = item % c.T, end = c.causal ? query + 1 : c.T;
    const E *const q = (const E *)c.q + attention_in_at(c, bh, query), *const k =
                                                                           (const E *)c.k + attention_in_at(c, bh, 0);
    const E *const v = (const E *)c.v + attention_in_at(c, bh, 0) + slice;
    float sum[COLUMNS] = {}, most = -INFINITY, total = 0;
    for (int64_t first = 0; first < end; first += 32) {
        const int64_t key = first + lane;
        const float s = key < end ? c.scale * dot(q, k + key * c.in_row, c.D) : -INFINITY;
        const float top = fmaxf(most, warp_max(s)), factor = expf(most - top);
        float p = expf(s - top);
        total = total * factor + warp_sum(p);
        most = top;
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] *= factor;
        }
        if (c.drops && key < end) {
            p = is_kept(c, bh, query, key) ? p * c.keep : 0;
        }
        add_rows(sum, p, v + first * c.in_row, c.in_row, end - first, c.D - slice);
    }
    put_row((E *)c.o + attention_out_at(c, bh, query) + slice, sum, 1 / total, c.D - slice);
    if (lane == 0 && slice == 0) {
        c.lse[item] = most + logf(total);
    }
}

/* One pair: dS, and P after dropout. */
template <typename E>
__device__ inline float plain_pair(const attention_call &c, int64_t bh, int64_t query, int64_t key, float *p)
{
    const int64_t q = attention_in_at(c, bh, query), k = attention_in_at(c, bh, key);
    const float s = c.scale * dot((const E *)c.q + q, (const E *)c.k + k, c.D);
    const float dp = dot((const E *)c.dO + attention_out_at(c, bh, query), (const E *)c.v + k, c.D);
    const float weight = expf(s - c.lse[bh * c.T + query]);
    const float factor = !c.drops ? 1 : is_kept(c, bh, query, key) ? c.keep : 0;
    *p = weight * factor;
    return weight * (dp * factor - c.delta[bh * c.T + query]);
}

template <typename E> __global__ void attention_plain_query_gradients(attention_call c)
{
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, slice = (int64_t)blockIdx.y * SLICE;
    if (item >= c.B * c.heads * c.T) {
        return;
    }
    const int64_t bh = item / c.T, query = item % c.T, end = c.causal ? query + 1 : c.T;
    const E *const k = (const E *)c.k + attention_in_at(c, bh, 0) + slice;
    float sum[COLUMNS] = {};
    for (int64_t first = 0; first < end; first += 32) {
        const int64_t key = first + threadIdx.x % 32;
        float p = 0;
        const float ds = key < end ? plain_pair<E>(c, bh, query, key, &p) : 0;
        add_rows(sum, ds, k + first * c.in_row, c.in_row, end - first, c.D - slice);
    }
    put_row((E *)c.dq + attention_in_at(c, bh, query) + slice, sum, c.scale, c.D - slice);
}

template <typename E> __global__ void attention_plain_key_gradients(attention_call c)
{
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, slice = (int64_t)blockIdx.y * SLICE;
    if (item >= c.B * c.heads * c.T) {
        return;
    }
    const int64_t bh = item / c.T, key = item % c.T;
    const E *const q = (const E *)c.q + attention_in_at(c, bh, 0) + slice;
    const E *const dO = (const E *)c.dO + attention_out_at(c, bh, 0) + slice;
    float dk[COLUMNS] = {}, dv[COLUMNS] = {};
    for (int64_t first = c.causal ? key : 0; first < c.T; first += 32) {
        const int64_t query = first + threadIdx.x % 32;
        float p = 0;
        const float ds = query < c.T ? plain_pair<E>(c, bh, query, key, &p) : 0;
        add_rows(dk, ds, q + first * c.in_row, c.in_row, c.T - first, c.D - slice);
        add_rows(dv, p, dO + first * c.C, c.C, c.T - first, c.D - slice);
    }
    if (c.dk != NULL) {
        put_row((E *)c.dk + attention_in_at(c, bh, key) + slice, dk, c.scale, c.D - slice);
    }
    if (c.dv != NULL) {
        put_row((E *)c.dv + attention_in_at(c, bh, key) + slice, dv, 1, c.D - slice);
    }
}

dim3 grid_of(const attention_call *call)
{
    return dim3((unsigned)((call->B * call->heads * call->T + WARPS - 1) / WARPS),
                (unsigned)((call->D + SLICE - 1) / SLICE));
}

template <typename E> void start_forward(const ckpt_cuda *cuda, const attention_call *call)
{
    CKPT_LAUNCH(cuda, attention_plain_forward<E>, grid_of(call), 32 * WARPS, 0, *call);
}

template <typename E> void start_backward(const ckpt_cuda *cuda, const attention_call *call)
{
    if (call->dk != NULL || call->dv != NULL) {
        CKPT_LAUNCH(cuda, attention_plain_key_gradients<E>, grid_of(call), 32 * WARPS, 0, *call);
    }
    if (call->dq != NULL) {
        CKPT_LAUNCH(cuda, attention_plain_query_gradients<E>, grid_of(call), 32 * WARPS, 0, *call);
    }
}

} // namespace

void ckpt_attention_plain_forward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call)
{
    CKPT_BY_DTYPE(dtype, start_forward, cuda, call);
}

void ckpt_attention_plain_backward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call)
{
    CKPT_BY_DTYPE(dtype, start_backward, cuda, call);
}
