/* Attention forward: o = dropout(softmax(scale q k^T, where seen)) v and the logarithms of the row sums, without a T x S
 * matrix. A block takes some queries of one head and goes through the keys, 32 or 64 at a time. A warp keeps output,
 * maxima and sums of its 16 or 32 queries in registers and rescales them when a maximum grows. cp.async loads the next
 * keys and values during the computation. No result depends on the grid: one warp computes a row, with keys in order.
 * Source: Dao 2023, arXiv:2307.08691, algorithm 1. Departure: the sum stays per lane until the end, and keep / sum is
 * one factor of the finished row.
 *
 * 4 D flop a pair of query and key (half the pairs with a causal mask). Memory: 4 B T C elements and the sums; keys and
 * values once more for every block of queries, from the L2 cache: 128 queries for 4 D bytes of bfloat16, 128 flop a
 * byte, so that a multiprocessor is the bound. Per cycle one of an A100 does 2048 flop by mma.sync, 16 exponentials, 64
 * other operations, and loads 128 bytes of shared memory. For D = 64 a pair costs 0.125 cycles of tensor cores, 0.063
 * of exponentials, and 0.07 for a multiply-add, a maximum, two sums or corrections and half a conversion; two blocks of
 * 4 warps on a multiprocessor let them overlap. Every 16 bytes of keys or values serve a warp's 32 rows: 256 bytes per
 * two mma, half of what shared memory gives at full rate for D <= 64 (queries stay in registers), 3/4 above (they are
 * loaded again). Registers hold 32 x D sums and 32 x N scores, up to 255 a thread. Dropout adds ten rounds of Philox
 * for every four pairs, some 18 integer operations a pair, 0.28 cycles: it is the bound then. float32: the same on
 * multiply-adds, 16 rows a warp; per 64 of them a lane loads 10 x 16 bytes of shared memory, most of them the same for
 * many lanes, so that multiply-adds are the bound. */
#include "kernels/cuda/attention.cuh"

namespace
{

enum { WARPS = 4, THREADS = 32 * WARPS };

/* Stands for the maximum of no scores: finite, so that a tile of which a query sees nothing adds nothing. */
constexpr float NO_SCORE = -1e30f;

/* M: 16 M rows per warp. N: keys of a tile. left: queries are kept in registers. */
template <typename E, int D> struct forward_shape;
template <int D> struct forward_shape<bf16, D> {
    enum { M = 2, N = D <= 64 ? 64 : 32 };
    typedef typename std::conditional<D <= 64, left_held<bf16, D, M>, left_rows<bf16, D, M>>::type left;
};
template <int D> struct forward_shape<float, D> {
    enum { M = 1, N = D <= 64 ? 32 : 16 };
    typedef left_rows<float, D, M> left;
};

/* Running maximum and this lane's part of the running sum, per row. */
template <int M> struct softmax_rows {
    float most[M][2], total[M][2];
};

/* Scores become exp(score - maximum); `o` is corrected for new maxima. */
template <int D, int M, int N>
__device__ inline void softmax_tile(float (&s)[M][N][4], float (&o)[M][D / 8][4], softmax_rows<M> &rows, float scale)
{
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int half = 0; half < 2; half++) {
            float most = rows.most[m][half];
            CKPT_UNROLL
            for (int n = 0; n < N; n++) {
                most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            }
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float factor = exp2_approx((rows.most[m][half] - most) * scale), shift = most * scale;
            float total = rows.total[m][half] * factor;
            CKPT_UNROLL
            for (int n = 0; n < N; n++) {
                CKPT_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = exp2_approx(s[m][n][i] * scale - shift);
                    total += s[m][n][i];
                }
            }
            CKPT_UNROLL
            for (int n = 0; n < D / 8; n++) {
                o[m][n][2 * half] *= factor;
                o[m][n][2 * half + 1] *= factor;
            }
            rows.most[m][half] = most;
            rows.total[m][half] = total;
        }
    }
}

template <int M, int N>
__device__ inline void drop_tile(float (&s)[M][N][4], const attention_call &c, const ckpt_cuda_counters &counters,
                                 int64_t row, int64_t column)
{
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        const uint32_t kept = kept_by_query<N>(c, counters, row + 16 * m + (int64_t)(threadIdx.x % 32 / 4), column);
        CKPT_UNROLL
        for (int i = 0; i < 4 * N; i++) {
            s[m][i / 4][i % 4] = (kept >> i & 1) != 0 ? s[m][i / 4][i % 4] : 0;
        }
    }
}

/* Finishes the rows: stores o / total and their log-sum-exp. */
template <typename E, int D, int M>
__device__ inline void finish_rows(const attention_call &c, int64_t bh, int row, const softmax_rows<M> &rows,
                                   const float (&o)[M][D / 8][4], E *tile)
{
    const int lane = (int)threadIdx.x % 32;
    float factor[M][2];
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int half = 0; half < 2; half++) {
            float total = rows.total[m][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            factor[m][half] = (c.drops ? c.keep : 1.0f) / total;
            const int query = row + 16 * m + lane / 4 + 8 * half;
            if (lane % 4 == 0 && query < c.T) {
                c.lse[bh * c.T + query] = rows.most[m][half] * c.scale + logf(total);
            }
        }
    }
    tile_store<E, D, M>(o, factor, tile, (E *)c.o + attention_out_at(c, bh, 0), c.C, row, c.T, c);
}

template <typename E, int D, bool DROPS>
__global__ void __launch_bounds__(THREADS, 2) attention_forward(attention_call c)
{
    typedef forward_shape<E, D> shape;
    constexpr int M = shape::M, KEYS = shape::N, N = KEYS / 8, ROWS = 16 * M * WARPS, STAGE = KEYS * tile_row<E, D>;
    const int T = (int)c.T, S = (int)c.S, tiles = (T + ROWS - 1) / ROWS, warp = (int)threadIdx.x / 32;
    const int64_t bh = blockIdx.x / (unsigned)tiles, at = attention_kv_at(c, bh / c.group, 0);
    /* With a causal mask the last queries take longest, so they start first. */
    const int first = (tiles - 1 - (int)(blockIdx.x % (unsigned)tiles)) * ROWS, mine = first + 16 * M * warp;
    const int end = c.causal && first + ROWS < T ? first + ROWS : S; /* of the keys that this block's queries see */
    const int my_end = mine >= T ? 0 : c.causal && mine + 16 * M < T ? mine + 16 * M : S;
    const int my_start = c.window > 0 ? mine - (int)c.window + 1 : 0;
    const int start = c.window > 0 && first >= c.window ? (first - (int)c.window + 1) / KEYS * KEYS : 0;
    const E *const k = (const E *)c.k + at, *const v = (const E *)c.v + at;
    CKPT_SHARED(shared);
    E *const tile_q = (E *)shared, *const tile_k = tile_q + ROWS * tile_row<E, D>, *const tile_v = tile_k + 2 * STAGE;
    E *const my_q = tile_q + 16 * M * warp * tile_row<E, D>;

    tile_fetch<E, D, ROWS, THREADS>(tile_q, (const E *)c.q + attention_q_at(c, bh, 0), c.q_row, first, T, c);
    tile_fetch<E, D, KEYS, THREADS>(tile_k, k, c.kv_row, start, S, c);
    tile_fetch<E, D, KEYS, THREADS>(tile_v, v, c.kv_row, start, S, c);
    async_wait();
    __syncthreads();
    typename shape::left q;
    q.open(my_q);
    const ckpt_cuda_counters counters = DROPS ? *c.counters : ckpt_cuda_counters();

    float o[M][D / 8][4] = {};
    softmax_rows<M> rows;
    CKPT_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        rows.most[i / 2][i % 2] = NO_SCORE;
        rows.total[i / 2][i % 2] = 0;
    }
    CKPT_ROLLED
    for (int key = start, stage = 0; key < end; key += KEYS, stage = 1 - stage) {
        /* This tile has arrived. All warps are done with the previous one, which the next copy overwrites. */
        async_wait();
        __syncthreads();
        if (key + KEYS < end) {
            tile_fetch<E, D, KEYS, THREADS>(tile_k + (1 - stage) * STAGE, k, c.kv_row, key + KEYS, S, c);
            tile_fetch<E, D, KEYS, THREADS>(tile_v + (1 - stage) * STAGE, v, c.kv_row, key + KEYS, S, c);
        }
        if (key < my_end && key + KEYS > my_start) { /* else this warp's queries see none of them */
            float s[M][N][4];
            tile_rows<D, M, N>(s, q, tile_k + stage * STAGE);
            if (key + KEYS > S || (c.causal && key + KEYS > mine + 1)) {
                mask_by_query(s, c, mine, key);
            }
            if (c.window > 0 && key < my_start + 16 * M - 1) {
                mask_window_by_query(s, c, mine, key);
            }
            softmax_tile<D, M, N>(s, o, rows, c.log2_scale);
            if (DROPS) {
                drop_tile(s, c, counters, bh * c.T + mine, key);
            }
            tile_sum<D, M, N>(o, s, tile_v + stage * STAGE);
        }
    }
    finish_rows<E, D, M>(c, bh, mine, rows, o, my_q);
}

template <typename E, int D, bool DROPS> bool start(const ckpt_cuda *cuda, const attention_call *call)
{
    constexpr int rows = 16 * forward_shape<E, D>::M * WARPS, keys = forward_shape<E, D>::N;
    constexpr size_t shared = sizeof(E) * (rows + 4 * keys) * tile_row<E, D>;
    if ((size_t)cuda->shared_bytes < shared) {
        return false;
    }
    (void)CKPT_ALLOW_SHARED((attention_forward<E, D, DROPS>), shared);
    CKPT_LAUNCH(cuda, (attention_forward<E, D, DROPS>), (unsigned)((call->T + rows - 1) / rows * call->B * call->heads),
                THREADS, shared, *call);
    return true;
}

template <typename E, int D> bool by_drops(const ckpt_cuda *cuda, const attention_call *call)
{
    return call->drops ? start<E, D, true>(cuda, call) : start<E, D, false>(cuda, call);
}

} // namespace

bool ckpt_attention_forward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call)
{
    if (dtype == CKPT_BFLOAT16) {
        return call->D <= 32   ? by_drops<bf16, 32>(cuda, call)
               : call->D <= 64 ? by_drops<bf16, 64>(cuda, call)
               : call->D <= 96 ? by_drops<bf16, 96>(cuda, call)
                               : by_drops<bf16, 128>(cuda, call);
    }
    return call->D <= 32   ? by_drops<float, 32>(cuda, call)
           : call->D <= 64 ? by_drops<float, 64>(cuda, call)
                           : by_drops<float, 128>(cuda, call);
}
