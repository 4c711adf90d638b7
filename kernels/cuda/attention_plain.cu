/* Attention for all other head sizes: above 128, or rows that are no multiple of 16 bytes; and with a bias or a mask. A
 * warp takes one query (backward: one query, then one key) and goes through the other side 32 rows at a time, in order,
 * with one dot product per lane. Sums over rows have 256 columns at a time; larger heads recompute the dot products.
 * Forward takes 4 D FLOP per pair on multiply-adds, backward 14 D, and 4 D for the gradient of a bias. Every row that is
 * read is used once, 4 D bytes of bfloat16 per pair: bound by the L1 and L2 caches. */
#include "kernels/cuda/attention.cuh"

namespace
{

enum { WARPS = 4, SLICE = 256, COLUMNS = SLICE / 32 };

/* Stands for the maximum of no scores: finite, so that keys that are all hidden add nothing. */
constexpr float NO_SCORE = -1e30f;

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
    return kept_one(c, *c.counters, (uint64_t)((bh * c.T + query) * c.S + key)) != 0;
}

/* A query sees none but keys first_seen .. end_seen - 1, of which a mask may hide more. */
__device__ inline int64_t first_seen(const attention_call &c, int64_t query)
{
    return c.window > 0 && query >= c.window ? query - c.window + 1 : 0;
}
__device__ inline int64_t end_seen(const attention_call &c, int64_t query)
{
    return c.causal ? query + 1 : c.S;
}

/* -infinity: the mask hides this key. */
template <typename E>
__device__ inline float plain_score(const attention_call &c, int64_t bh, int64_t query, int64_t key)
{
    const E *const q = (const E *)c.q + attention_q_at(c, bh, query);
    const float s = c.scale * dot(q, (const E *)c.k + attention_kv_at(c, bh / c.group, key), c.D);
    if (c.mask != NULL && c.mask[bh / c.heads % c.mask_count * c.mask_step + query * c.mask_row + key] == 0) {
        return -INFINITY;
    }
    return c.bias == NULL ? s : s + to_float(((const E *)c.bias)[(bh % c.heads * c.T + query) * c.S + key]);
}

template <typename E> __global__ void attention_plain_forward(attention_call c)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, slice = (int64_t)blockIdx.y * SLICE;
    if (item >= c.B * c.heads * c.T) {
        return; /* the whole warp returns; no barrier follows */
    }
    const int64_t bh = item / c.T, query = item % c.T, end = end_seen(c, query);
    const E *const v = (const E *)c.v + attention_kv_at(c, bh / c.group, 0) + slice;
    float sum[COLUMNS] = {}, most = NO_SCORE, total = 0;
    for (int64_t first = first_seen(c, query); first < end; first += 32) {
        const int64_t key = first + lane;
        const float s = key < end ? plain_score<E>(c, bh, query, key) : -INFINITY;
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
        add_rows(sum, p, v + first * c.kv_row, c.kv_row, end - first, c.D - slice);
    }
    const bool none = total == 0; /* it sees no key */
    put_row((E *)c.o + attention_out_at(c, bh, query) + slice, sum, none ? 0 : 1 / total, c.D - slice);
    if (lane == 0 && slice == 0) {
        c.lse[item] = none ? 0 : most + logf(total);
    }
}

/* One pair: dS, and P after dropout. */
template <typename E>
__device__ inline float plain_pair(const attention_call &c, int64_t bh, int64_t query, int64_t key, float *p)
{
    const E *const v = (const E *)c.v + attention_kv_at(c, bh / c.group, key);
    const float s = plain_score<E>(c, bh, query, key);
    const float dp = dot((const E *)c.dO + attention_out_at(c, bh, query), v, c.D);
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
    const int64_t bh = item / c.T, query = item % c.T, end = end_seen(c, query);
    const E *const k = (const E *)c.k + attention_kv_at(c, bh / c.group, 0) + slice;
    float sum[COLUMNS] = {};
    for (int64_t first = first_seen(c, query); first < end; first += 32) {
        const int64_t key = first + threadIdx.x % 32;
        float p = 0;
        const float ds = key < end ? plain_pair<E>(c, bh, query, key, &p) : 0;
        add_rows(sum, ds, k + first * c.kv_row, c.kv_row, end - first, c.D - slice);
    }
    put_row((E *)c.dq + attention_q_at(c, bh, query) + slice, sum, c.scale, c.D - slice);
}

template <typename E> __global__ void attention_plain_key_gradients(attention_call c)
{
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, slice = (int64_t)blockIdx.y * SLICE;
    if (item >= c.B * c.heads / c.group * c.S) {
        return;
    }
    const int64_t bk = item / c.S, key = item % c.S;
    const int64_t end = c.window > 0 && key + c.window < c.T ? key + c.window : c.T;
    float dk[COLUMNS] = {}, dv[COLUMNS] = {};
    for (int64_t bh = bk * c.group; bh < (bk + 1) * c.group; bh++) {
        const E *const q = (const E *)c.q + attention_q_at(c, bh, 0) + slice;
        const E *const dO = (const E *)c.dO + attention_out_at(c, bh, 0) + slice;
        for (int64_t first = c.causal ? key : 0; first < end; first += 32) {
            const int64_t query = first + threadIdx.x % 32;
            float p = 0;
            const float ds = query < end ? plain_pair<E>(c, bh, query, key, &p) : 0;
            add_rows(dk, ds, q + first * c.q_row, c.q_row, end - first, c.D - slice);
            add_rows(dv, p, dO + first * c.C, c.C, end - first, c.D - slice);
        }
    }
    if (c.dk != NULL) {
        put_row((E *)c.dk + attention_kv_at(c, bk, key) + slice, dk, c.scale, c.D - slice);
    }
    if (c.dv != NULL) {
        put_row((E *)c.dv + attention_kv_at(c, bk, key) + slice, dv, 1, c.D - slice);
    }
}

/* A thread sums dS of one head, query and key over the sequences, in order. */
template <typename E> __global__ void attention_plain_bias_gradient(attention_call c)
{
    const int64_t item = (int64_t)blockIdx.x * (32 * WARPS) + threadIdx.x;
    if (item >= c.heads * c.T * c.S) {
        return;
    }
    const int64_t h = item / (c.T * c.S), query = item / c.S % c.T, key = item % c.S;
    float sum = 0;
    if (key >= first_seen(c, query) && key < end_seen(c, query)) {
        for (int64_t b = 0; b < c.B; b++) {
            float p = 0;
            sum += plain_pair<E>(c, b * c.heads + h, query, key, &p);
        }
    }
    ((E *)c.dbias)[item] = from_float<E>(sum);
}

dim3 grid_of(const attention_call *call, int64_t rows)
{
    return dim3((unsigned)((call->B * rows + WARPS - 1) / WARPS), (unsigned)((call->D + SLICE - 1) / SLICE));
}

template <typename E> void start_forward(const ckpt_cuda *cuda, const attention_call *call)
{
    CKPT_LAUNCH(cuda, attention_plain_forward<E>, grid_of(call, call->heads * call->T), 32 * WARPS, 0, *call);
}

template <typename E> void start_backward(const ckpt_cuda *cuda, const attention_call *call)
{
    if (call->dk != NULL || call->dv != NULL) {
        CKPT_LAUNCH(cuda, attention_plain_key_gradients<E>, grid_of(call, call->heads / call->group * call->S),
                    32 * WARPS, 0, *call);
    }
    if (call->dq != NULL) {
        CKPT_LAUNCH(cuda, attention_plain_query_gradients<E>, grid_of(call, call->heads * call->T), 32 * WARPS, 0,
                    *call);
    }
    if (call->dbias != NULL) {
        const int64_t pairs = call->heads * call->T * call->S;
        CKPT_LAUNCH(cuda, attention_plain_bias_gradient<E>, (unsigned)((pairs + 32 * WARPS - 1) / (32 * WARPS)),
                    32 * WARPS, 0, *call);
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
