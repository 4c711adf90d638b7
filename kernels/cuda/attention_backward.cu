/* Attention backward, from the saved logarithms of the row sums and delta = rowsum(dO o):
 *   P = exp(s - lse), dP = dropout(dO v^T), dS = P (dP - delta), dV = dropout(P)^T dO, dK = dS^T q, dQ = dS k
 * Two kernels, so that every sum stays in one warp's registers, in order, without atomics. In the first a block owns
 * keys and goes through the queries of all heads that see them, in order: it makes S^T and dP^T, whose registers are left
 * factors as they are. In the second a block owns queries and goes through the keys. This takes 8 D and 6 D FLOP per pair
 * instead of 10 D in one kernel with atomics: at best 5/7 of its speed, but the same bits in every run and no float32 copy of dQ. Source: Dao 2023,
 * arXiv:2307.08691, algorithm 2. Departure: a separate kernel for dQ.
 *
 * Memory: the rows of q, k, v, dO once for the owner and once more per block for those gone through, out of the L2
 * cache: 128 rows for 4 D bytes of bfloat16, 256 (192) flop a byte, so that tensor cores and shared memory are the
 * bound. For D <= 64 a warp owns 32 rows. Per 32 x 32 pairs with D = 64 the key kernel does 128 mma (1024 cycles of an
 * A100's tensor core) for 48 loads of 512 bytes, four warps 768 cycles of shared memory: 75 %. The query kernel, whose
 * q and dO stay in registers, 96 mma (768 cycles) for 24 loads (384 cycles): 50 %. Above, a warp owns 16 rows, since
 * two sums of 32 x 128 do not fit: 80 loads (1280 cycles) for 128 mma (1024), bound by shared memory, and 48 (768) for
 * 96 (768). exp2, masks and dropout as in attention_forward.cu, once in each kernel. */
#include "kernels/cuda/attention.cuh"

namespace
{

enum { WARPS = 4, THREADS = 32 * WARPS };

/* M: 16 M rows per warp. N: rows of a tile of the other side, of which a warp takes PART at a time. */
template <typename E, int D> struct backward_shape;
template <int D> struct backward_shape<bf16, D> {
    enum { M = D <= 64 ? 2 : 1, N = D <= 64 ? 64 : 32, PART = 32 };
    typedef left_rows<bf16, D, M> key_left;
    typedef left_held<bf16, D, M> query_left;
};
template <int D> struct backward_shape<float, D> {
    enum { M = 1, N = D <= 64 ? 32 : 16, PART = N };
    typedef left_rows<float, D, M> key_left;
    typedef left_rows<float, D, M> query_left;
};

constexpr float LOG2_E = 1.44269504f;

/* P and dS of one pair from its score and dP; `kept` false: dropped. Returns dS and leaves the dropped P, without the
 * factor 1 / (1 - dropout), in s. A masked score is -infinity, and its P zero. */
template <bool DROPS>
__device__ inline float pair_gradient(float &s, float dp, bool kept, float lse2, float delta, const attention_call &c)
{
    const float p = exp2_approx(s * c.log2_scale - lse2);
    s = !DROPS || kept ? p : 0;
    return p * ((DROPS ? kept ? dp * c.keep : 0 : dp) - delta);
}

template <int M> __device__ inline void fill_factor(float (&factor)[M][2], float value)
{
    CKPT_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        factor[i / 2][i % 2] = value;
    }
}

/* ------------------------------------------------------------------------------------------- dK, dV */

/* Rows are keys, columns are queries: `lse` and `delta` are those of the columns. */
template <bool DROPS, int M, int N>
__device__ inline void gradients_by_key(float (&s)[M][N][4], float (&dp)[M][N][4], const attention_call &c,
                                        const uint32_t (&kept)[M], int key, int query, const float *lse,
                                        const float *delta)
{
    const int lane = (int)threadIdx.x % 32;
    if (c.causal && query < key + 16 * M - 1) {
        mask_by_key(s, query, key);
    }
    if (c.window > 0 && query + 8 * N > key + (int)c.window) {
        mask_window_by_key(s, c, query, key);
    }
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            const int column = 8 * n + lane % 4 * 2;
            need_aligned(lse + column, sizeof(float2));
            need_aligned(delta + column, sizeof(float2));
            const float2 l = *reinterpret_cast<const float2 *>(lse + column);
            const float2 e = *reinterpret_cast<const float2 *>(delta + column);
            CKPT_UNROLL
            for (int i = 0; i < 4; i++) {
                dp[m][n][i] = pair_gradient<DROPS>(s[m][n][i], dp[m][n][i], (kept[m] >> (4 * n + i) & 1) != 0,
                                                   (i % 2 == 0 ? l.x : l.y) * LOG2_E, i % 2 == 0 ? e.x : e.y, c);
            }
        }
    }
}

/* One tile of queries with lse and delta. */
template <typename E, int D> struct query_tile {
    enum { N = backward_shape<E, D>::N };
    E q[N * tile_row<E, D>], dO[N * tile_row<E, D>];
    float lse[N], delta[N];
};

/* Where a head's rows of queries start. */
template <typename E> struct query_rows {
    const E *q, *dO;
    const float *lse, *delta;
};

/* Beyond T everything is zero: P is 1 there, but all its factors are 0. */
template <typename E, int D>
__device__ inline void fetch_queries(query_tile<E, D> &tile, const attention_call &c, const query_rows<E> &from,
                                     int query)
{
    constexpr int N = query_tile<E, D>::N;
    tile_fetch<E, D, N, THREADS>(tile.q, from.q, c.q_row, query, c.T, c);
    tile_fetch<E, D, N, THREADS>(tile.dO, from.dO, c.C, query, c.T, c);
    const int i = (int)threadIdx.x % N, row = query + i;
    if ((int)threadIdx.x < N) {
        async_copy<4>(tile.lse + i, from.lse + row, row < c.T);
    } else if ((int)threadIdx.x < 2 * N) {
        async_copy<4>(tile.delta + i, from.delta + row, row < c.T);
    }
}

template <typename E, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS, 2) attention_key_gradients(attention_call c)
{
    typedef backward_shape<E, D> shape;
    constexpr int M = shape::M, PART = shape::PART, N = PART / 8, ROWS = 16 * M * WARPS;
    static_assert(2 * shape::N <= THREADS);
    const int T = (int)c.T, S = (int)c.S, tiles = (S + ROWS - 1) / ROWS, lane = (int)threadIdx.x % 32;
    const int before = 16 * M * ((int)threadIdx.x / 32);
    const int64_t bk = blockIdx.x / (unsigned)tiles, at = attention_kv_at(c, bk, 0);
    const int first = (int)(blockIdx.x % (unsigned)tiles) * ROWS, mine = first + before;
    CKPT_SHARED(shared);
    E *const tile_k = (E *)shared, *const tile_v = tile_k + ROWS * tile_row<E, D>;
    query_tile<E, D> *const tile = reinterpret_cast<query_tile<E, D> *>(tile_v + ROWS * tile_row<E, D>);
    E *const my_k = tile_k + before * tile_row<E, D>, *const my_v = tile_v + before * tile_row<E, D>;
    const int start = c.causal ? first / shape::N * shape::N : 0; /* queries before see none of these keys */
    const int end = c.window > 0 && first + ROWS + c.window - 1 < T ? first + ROWS + (int)c.window - 1 : T;
    const int my_end = c.window > 0 && mine + 16 * M + c.window - 1 < T ? mine + 16 * M + (int)c.window - 1 : T;

    tile_fetch<E, D, ROWS, THREADS>(tile_k, (const E *)c.k + at, c.kv_row, first, S, c);
    tile_fetch<E, D, ROWS, THREADS>(tile_v, (const E *)c.v + at, c.kv_row, first, S, c);
    int64_t bh = bk * c.group; /* and the next of the group */
    query_rows<E> rows = {(const E *)c.q + attention_q_at(c, bh, 0), (const E *)c.dO + attention_out_at(c, bh, 0),
                          c.lse + bh * T, c.delta + bh * T};
    fetch_queries(tile[0], c, rows, start);
    typename shape::key_left k, v;
    k.open(my_k);
    v.open(my_v);
    const ckpt_cuda_counters counters = DROPS ? *c.counters : ckpt_cuda_counters();

    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    CKPT_ROLLED
    for (int query = start, stage = 0, left = (int)c.group; left > 0; stage = 1 - stage) {
        const bool last = query + shape::N >= end;
        async_wait();
        __syncthreads();
        if (last) {
            rows = {rows.q + c.D, rows.dO + c.D, rows.lse + T, rows.delta + T};
        }
        if (!last || left > 1) {
            fetch_queries(tile[1 - stage], c, rows, last ? start : query + shape::N);
        }
        CKPT_ROLLED
        for (int part = 0; part < shape::N; part += PART) {
            if (mine >= S || query + part >= my_end || (c.causal && query + part + PART <= mine)) {
                continue; /* no queries there, or none sees this warp's keys */
            }
            const E *const q = tile[stage].q + part * tile_row<E, D>;
            const E *const dO = tile[stage].dO + part * tile_row<E, D>;
            uint32_t kept[M] = {};
            CKPT_UNROLL
            for (int m = 0; DROPS && m < M; m++) {
                kept[m] = kept_by_key<N>(c, counters, mine + 16 * m + lane / 4, bh * T + query + part);
            }
            float s[M][N][4], dp[M][N][4];
            tile_rows<D, M, N>(s, k, q);
            tile_rows<D, M, N>(dp, v, dO);
            gradients_by_key<DROPS, M, N>(s, dp, c, kept, mine, query + part, tile[stage].lse + part,
                                          tile[stage].delta + part);
            tile_sum<D, M, N>(dv, s, dO);
            tile_sum<D, M, N>(dk, dp, q);
        }
        query = last ? start : query + shape::N;
        left -= last ? 1 : 0;
        bh += last ? 1 : 0;
    }
    float factor[M][2];
    if (c.dk != NULL) {
        fill_factor<M>(factor, c.scale);
        tile_store<E, D, M>(dk, factor, my_k, (E *)c.dk + at, c.kv_row, mine, S, c);
    }
    if (c.dv != NULL) {
        fill_factor<M>(factor, DROPS ? c.keep : 1.0f);
        tile_store<E, D, M>(dv, factor, my_v, (E *)c.dv + at, c.kv_row, mine, S, c);
    }
}

/* ------------------------------------------------------------------------------------------- dQ */

/* Rows are queries, whose `lse` (times log2 e) and `delta` the lane holds; columns are keys. */
template <bool DROPS, int M, int N>
__device__ inline void gradients_by_query(float (&s)[M][N][4], float (&dp)[M][N][4], const attention_call &c,
                                          const uint32_t (&kept)[M], int query, int key, const float (&lse)[M][2],
                                          const float (&delta)[M][2])
{
    if (key + 8 * N > (int)c.S || (c.causal && key + 8 * N > query + 1)) {
        mask_by_query(s, c, query, key);
    }
    if (c.window > 0 && key < query + 16 * M - (int)c.window) {
        mask_window_by_query(s, c, query, key);
    }
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            CKPT_UNROLL
            for (int i = 0; i < 4; i++) {
                dp[m][n][i] = pair_gradient<DROPS>(s[m][n][i], dp[m][n][i], (kept[m] >> (4 * n + i) & 1) != 0,
                                                   lse[m][i / 2], delta[m][i / 2], c);
            }
        }
    }
}

template <typename E, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS, 2) attention_query_gradients(attention_call c)
{
    typedef backward_shape<E, D> shape;
    constexpr int M = shape::M, PART = shape::PART, N = PART / 8, ROWS = 16 * M * WARPS;
    constexpr int STAGE = shape::N * tile_row<E, D>;
    const int T = (int)c.T, S = (int)c.S, tiles = (T + ROWS - 1) / ROWS, lane = (int)threadIdx.x % 32;
    const int64_t bh = blockIdx.x / (unsigned)tiles, at = attention_q_at(c, bh, 0);
    const int64_t kv_at = attention_kv_at(c, bh / c.group, 0), out_at = attention_out_at(c, bh, 0);
    const int first = (tiles - 1 - (int)(blockIdx.x % (unsigned)tiles)) * ROWS;
    const int before = 16 * M * ((int)threadIdx.x / 32), mine = first + before;
    const int end = c.causal && first + ROWS < T ? first + ROWS : S; /* of the keys this block's queries see */
    const int my_end = mine >= T ? 0 : c.causal && mine + 16 * M < T ? mine + 16 * M : S;
    const int my_start = c.window > 0 ? mine - (int)c.window + 1 : 0;
    const int start = c.window > 0 && first >= c.window ? (first - (int)c.window + 1) / shape::N * shape::N : 0;
    const E *const k = (const E *)c.k + kv_at, *const v = (const E *)c.v + kv_at;
    CKPT_SHARED(shared);
    E *const tile_q = (E *)shared, *const tile_dO = tile_q + ROWS * tile_row<E, D>;
    E *const tile_k = tile_dO + ROWS * tile_row<E, D>, *const tile_v = tile_k + 2 * STAGE;

    tile_fetch<E, D, ROWS, THREADS>(tile_q, (const E *)c.q + at, c.q_row, first, T, c);
    tile_fetch<E, D, ROWS, THREADS>(tile_dO, (const E *)c.dO + out_at, c.C, first, T, c);
    tile_fetch<E, D, shape::N, THREADS>(tile_k, k, c.kv_row, start, S, c);
    tile_fetch<E, D, shape::N, THREADS>(tile_v, v, c.kv_row, start, S, c);
    float lse[M][2], delta[M][2];
    CKPT_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int row = mine + i / 2 * 16 + lane / 4 + i % 2 * 8;
        lse[i / 2][i % 2] = row < T ? c.lse[bh * T + row] * LOG2_E : 0;
        delta[i / 2][i % 2] = row < T ? c.delta[bh * T + row] : 0;
    }
    async_wait();
    __syncthreads();
    typename shape::query_left q, dO;
    q.open(tile_q + before * tile_row<E, D>);
    dO.open(tile_dO + before * tile_row<E, D>);
    const ckpt_cuda_counters counters = DROPS ? *c.counters : ckpt_cuda_counters();

    float dq[M][D / 8][4] = {};
    CKPT_ROLLED
    for (int key = start, stage = 0; key < end; key += shape::N, stage = 1 - stage) {
        async_wait();
        __syncthreads();
        if (key + shape::N < end) {
            tile_fetch<E, D, shape::N, THREADS>(tile_k + (1 - stage) * STAGE, k, c.kv_row, key + shape::N, S, c);
            tile_fetch<E, D, shape::N, THREADS>(tile_v + (1 - stage) * STAGE, v, c.kv_row, key + shape::N, S, c);
        }
        CKPT_ROLLED
        for (int part = 0; part < shape::N; part += PART) {
            if (key + part >= my_end) {
                break; /* this warp's queries see none of its keys */
            }
            if (key + part + PART <= my_start) {
                continue;
            }
            const E *const rows = tile_k + stage * STAGE + part * tile_row<E, D>;
            uint32_t kept[M] = {};
            CKPT_UNROLL
            for (int m = 0; DROPS && m < M; m++) {
                kept[m] = kept_by_query<N>(c, counters, bh * T + mine + 16 * m + lane / 4, key + part);
            }
            float s[M][N][4], dp[M][N][4];
            tile_rows<D, M, N>(s, q, rows);
            tile_rows<D, M, N>(dp, dO, tile_v + stage * STAGE + part * tile_row<E, D>);
            gradients_by_query<DROPS, M, N>(s, dp, c, kept, mine, key + part, lse, delta);
            tile_sum<D, M, N>(dq, dp, rows);
        }
    }
    float factor[M][2];
    fill_factor<M>(factor, c.scale);
    tile_store<E, D, M>(dq, factor, tile_q + before * tile_row<E, D>, (E *)c.dq + at, c.q_row, mine, T, c);
}

/* ------------------------------------------------------------------------------------------- launches */

template <typename E, int D, bool DROPS> bool start(const ckpt_cuda *cuda, const attention_call *call, bool keys)
{
    typedef backward_shape<E, D> shape;
    constexpr int rows = 16 * shape::M * WARPS;
    constexpr size_t owned = sizeof(E) * 2 * rows * tile_row<E, D>;
    const size_t shared = owned + (keys ? 2 * sizeof(query_tile<E, D>) : sizeof(E) * 4 * shape::N * tile_row<E, D>);
    const int64_t tiles = ((keys ? call->S : call->T) + rows - 1) / rows;
    const unsigned blocks = (unsigned)(tiles * call->B * (keys ? call->heads / call->group : call->heads));
    if ((size_t)cuda->shared_bytes < shared) {
        return false;
    }
    if (keys) {
        (void)CKPT_ALLOW_SHARED((attention_key_gradients<E, D, DROPS>), shared);
        CKPT_LAUNCH(cuda, (attention_key_gradients<E, D, DROPS>), blocks, THREADS, shared, *call);
    } else {
        (void)CKPT_ALLOW_SHARED((attention_query_gradients<E, D, DROPS>), shared);
        CKPT_LAUNCH(cuda, (attention_query_gradients<E, D, DROPS>), blocks, THREADS, shared, *call);
    }
    return true;
}

template <typename E, int D> bool by_drops(const ckpt_cuda *cuda, const attention_call *call, bool keys)
{
    return call->drops ? start<E, D, true>(cuda, call, keys) : start<E, D, false>(cuda, call, keys);
}

bool by_size(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call, bool keys)
{
    if (dtype == CKPT_BFLOAT16) {
        return call->D <= 32   ? by_drops<bf16, 32>(cuda, call, keys)
               : call->D <= 64 ? by_drops<bf16, 64>(cuda, call, keys)
               : call->D <= 96 ? by_drops<bf16, 96>(cuda, call, keys)
                               : by_drops<bf16, 128>(cuda, call, keys);
    }
    return call->D <= 32   ? by_drops<float, 32>(cuda, call, keys)
           : call->D <= 64 ? by_drops<float, 64>(cuda, call, keys)
                           : by_drops<float, 128>(cuda, call, keys);
}

} // namespace

bool ckpt_attention_key_gradients(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call)
{
    return by_size(cuda, dtype, call, true);
}

bool ckpt_attention_query_gradients(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call)
{
    return by_size(cuda, dtype, call, false);
}
