/* Shared by the attention kernels: sizes and addresses of a call, and products of tiles. The products exist for
 * bfloat16 (tensor cores) and for float32 (multiply-adds). Both give the C fragment of mma.m16n8k16 (tile.cuh), so that
 * the kernels have one source for both types.
 *
 * A tile in shared memory has D elements per row, D rounded up to a size the kernels have, and 16 more bytes per row. 8
 * rows of a 16-byte column are then in 8 different groups of banks, and loads of fragments have no bank conflicts. */
#ifndef CKPT_KERNELS_CUDA_ATTENTION_CUH
#define CKPT_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/tile.cuh"

enum { ATTENTION_STREAM = 1 }; /* of Philox: attention dropout */

/* The argument of every attention kernel. Head h of sequence b is bh = b heads + h; its head of keys and values is
 * bh / group among those of all sequences. Rows of q and dq are `q_row` elements apart, those of k, v and their gradients
 * `kv_row`, those of o and dO C. */
struct attention_call {
    int64_t B, T, S, C, heads, group, D, q_row, kv_row, window; /* T queries, S keys */
    bool causal, drops;
    float scale, log2_scale; /* of the scores; times log2(e), so that exp is exp2 */
    float keep;              /* 1 / (1 - dropout) */
    uint32_t threshold;      /* see ckpt_philox_threshold */
    uint32_t layer;
    const ckpt_cuda_counters *counters;
    const void *q, *k, *v, *dO;
    void *o, *dq, *dk, *dv; /* gradients: NULL where not wanted; backward reads o */
    float *lse, *delta;     /* [B, heads, T] */
    /* The plain kernels' alone. */
    const void *bias;    /* [heads, T, S]; NULL: none */
    void *dbias;         /* NULL where not wanted */
    const int32_t *mask; /* NULL: none; see ckpt_attention_sizes */
    int64_t mask_count, mask_step, mask_row;
};

/* Kernels with D in registers need D % (16 bytes) == 0 and D <= 128, and neither bias nor mask. They return false, and
 * start nothing, if the device's shared memory is too small. The plain kernels take everything. */
bool ckpt_attention_forward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call);
bool ckpt_attention_key_gradients(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call);
bool ckpt_attention_query_gradients(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call);
void ckpt_attention_plain_forward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call);
void ckpt_attention_plain_backward(const ckpt_cuda *cuda, ckpt_dtype dtype, const attention_call *call);

/* ------------------------------------------------------------------------------------------- addresses */

/* The first element of row `row` in q, of head `bh`; in k and v, of head `bk` of keys; then in o, dO. */
__device__ inline int64_t attention_q_at(const attention_call &c, int64_t bh, int64_t row)
{
    return (bh / c.heads * c.T + row) * c.q_row + bh % c.heads * c.D;
}
__device__ inline int64_t attention_kv_at(const attention_call &c, int64_t bk, int64_t row)
{
    const int64_t heads = c.heads / c.group;
    return (bk / heads * c.S + row) * c.kv_row + bk % heads * c.D;
}
__device__ inline int64_t attention_out_at(const attention_call &c, int64_t bh, int64_t row)
{
    return (bh / c.heads * c.T + row) * c.C + bh % c.heads * c.D;
}

/* Elements from one row of a tile to the next. */
template <typename E, int D> constexpr int tile_row = D + pack<E>::count;

/* Starts the copy of ROWS rows from `first` on of a matrix [count x D] whose rows are `stride` apart, by all THREADS
 * threads; zeros beyond count and D. */
template <typename E, int D, int ROWS, int THREADS>
__device__ inline void tile_fetch(E *tile, const E *from, int64_t stride, int64_t first, int64_t count,
                                  const attention_call &c)
{
    constexpr int PACKS = D / pack<E>::count;
    static_assert(ROWS * PACKS % THREADS == 0, "no thread may write behind the tile");
    if constexpr (THREADS % PACKS == 0) { /* a thread stays in its column */
        constexpr int STEP = THREADS / PACKS;
        const int row = (int)threadIdx.x / PACKS, column = (int)threadIdx.x % PACKS * pack<E>::count;
        const int rows = column < c.D ? (int)(count - first) : 0;
        const E *at = from + (first + row) * stride + column;
        E *const to = tile + row * tile_row<E, D> + column;
        CKPT_UNROLL
        for (int start = 0; start < ROWS; start += STEP) {
            async_copy<16>(to + start * tile_row<E, D>, at, row + start < rows);
            at += STEP * stride;
        }
    } else {
        CKPT_UNROLL
        for (int start = 0; start < ROWS * PACKS; start += THREADS) {
            const int row = (start + (int)threadIdx.x) / PACKS;
            const int column = (start + (int)threadIdx.x) % PACKS * pack<E>::count;
            async_copy<16>(tile + row * tile_row<E, D> + column, from + (first + row) * stride + column,
                           first + row < count && column < c.D);
        }
    }
}

/* A lane's first column of fragment n of a sum over rows; the second column follows. For float32 a lane has four
 * neighbours in fragments 2n and 2n + 1, which it can load at once. */
template <typename E> __device__ inline int sum_column(int n, int lane)
{
    return sizeof(E) == 4 ? n / 2 * 16 + lane % 4 * 4 + n % 2 * 2 : n * 8 + lane % 4 * 2;
}

__device__ inline void store_two(float *to, float a, float b)
{
    need_aligned(to, sizeof(float2));
    *reinterpret_cast<float2 *>(to) = make_float2(a, b);
}
__device__ inline void store_two(bf16 *to, float a, float b)
{
    need_aligned(to, sizeof(uint32_t));
    *reinterpret_cast<uint32_t *>(to) = pack_bf16(a, b);
}

/* Stores factor * sum, 16 M rows of this warp, to rows from `first` on of a matrix [count x D] whose rows are
 * `stride` apart. The rows go through `tile`, which no other warp uses, so that each access stores 16 bytes. */
template <typename E, int D, int M>
__device__ inline void tile_store(const float (&sum)[M][D / 8][4], const float (&factor)[M][2], E *tile, E *to,
                                  int64_t stride, int64_t first, int64_t count, const attention_call &c)
{
    const int lane = (int)threadIdx.x % 32;
    __syncwarp();
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int n = 0; n < D / 8; n++) {
            CKPT_UNROLL
            for (int half = 0; half < 2; half++) {
                store_two(tile + (16 * m + lane / 4 + 8 * half) * tile_row<E, D> + sum_column<E>(n, lane),
                          sum[m][n][2 * half] * factor[m][half], sum[m][n][2 * half + 1] * factor[m][half]);
            }
        }
    }
    __syncwarp();
    constexpr int PACKS = D / pack<E>::count;
    CKPT_ROLLED
    for (int i = lane; i < 16 * M * PACKS; i += 32) {
        const int row = i / PACKS, column = i % PACKS * pack<E>::count;
        if (first + row < count && column < c.D) {
            store16(to + (first + row) * stride + column, load16(tile + row * tile_row<E, D> + column));
        }
    }
}

/* ------------------------------------------------------------------------------------------- products of tiles */

/* 16 M rows as the left factor of tile_rows: read from shared memory at each use, or (bfloat16) kept in registers. */
template <typename E, int D, int M> struct left_rows {
    const E *tile;
    __device__ inline void open(const E *from)
    {
        tile = from;
    }
    __device__ inline void fragment(uint32_t (&a)[4], int m, int step) const
    {
        const int lane = (int)threadIdx.x % 32;
        load_matrices(a, tile + (16 * m + lane % 16) * tile_row<E, D> + 16 * step + lane / 16 * 8);
    }
};
template <typename E, int D, int M> struct left_held {
    uint32_t held[M][D / 16][4];
    __device__ inline void open(const E *from)
    {
        left_rows<E, D, M> rows;
        rows.open(from);
        CKPT_UNROLL
        for (int m = 0; m < M; m++) {
            CKPT_UNROLL
            for (int step = 0; step < D / 16; step++) {
                rows.fragment(held[m][step], m, step);
            }
        }
    }
    __device__ inline void fragment(uint32_t (&a)[4], int m, int step) const
    {
        CKPT_UNROLL
        for (int i = 0; i < 4; i++) {
            a[i] = held[m][step][i];
        }
    }
};

template <int M, int N> __device__ inline void tile_clear(float (&product)[M][N][4])
{
    CKPT_UNROLL
    for (int m = 0; m < M; m++) {
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            CKPT_UNROLL
            for (int i = 0; i < 4; i++) {
                product[m][n][i] = 0;
            }
        }
    }
}

/* product[r][c] = row r of `left` times row c of `right`, 16 M rows by 8 N. */
template <int D, int M, int N, typename LEFT>
__device__ inline void tile_rows(float (&product)[M][N][4], const LEFT &left, const bf16 *right)
{
    const int lane = (int)threadIdx.x % 32;
    const bf16 *const row = right + (lane / 16 * 8 + lane % 8) * tile_row<bf16, D> + lane / 8 % 2 * 8;
    tile_clear(product);
    CKPT_UNROLL
    for (int step = 0; step < D / 16; step++) {
        uint32_t a[M][4];
        CKPT_UNROLL
        for (int m = 0; m < M; m++) {
            left.fragment(a[m], m, step);
        }
        CKPT_UNROLL
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_matrices(b, row + 8 * n * tile_row<bf16, D> + 16 * step);
            CKPT_UNROLL
            for (int m = 0; m < M; m++) {
                mma_bf16(product[m][n], a[m], b[0], b[1]);
                mma_bf16(product[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <int D, int M, int N, typename LEFT>
__device__ inline void tile_rows(float (&product)[M][N][4], const LEFT &left, const float *right)
{
    const int lane = (int)threadIdx.x % 32;
    const float *const x = left.tile + lane / 4 * tile_row<float, D>;
    const float *const y = right + lane % 4 * 2 * tile_row<float, D>;
    tile_clear(product);
    CKPT_ROLLED
    for (int d = 0; d < D; d += 4) {
        pack<float> a[M][2];
        CKPT_UNROLL
        for (int m = 0; m < M; m++) {
            a[m][0] = load16(x + 16 * m * tile_row<float, D> + d);
            a[m][1] = load16(x + (16 * m + 8) * tile_row<float, D> + d);
        }
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            const pack<float> b[2] = {load16(y + 8 * n * tile_row<float, D> + d),
                                      load16(y + (8 * n + 1) * tile_row<float, D> + d)};
            CKPT_UNROLL
            for (int i = 0; i < 4 * M; i++) {
                CKPT_UNROLL
                for (int k = 0; k < 4; k++) {
                    product[i / 4][n][i % 4] += a[i / 4][i % 4 / 2].at[k] * b[i % 2].at[k];
                }
            }
        }
    }
}

/* sum[r] += the sum over c of weight[r][c] times row c of `right`, 16 M rows by D; weight is a result of tile_rows with
 * 8 N columns, rounded to bfloat16 for tensor cores: two of its fragments are, register by register, the A fragment. */
template <int D, int M, int N>
__device__ inline void tile_sum(float (&sum)[M][D / 8][4], const float (&weight)[M][N][4], const bf16 *right)
{
    const int lane = (int)threadIdx.x % 32;
    const bf16 *const row = right + lane % 16 * tile_row<bf16, D> + lane / 16 * 8;
    CKPT_UNROLL
    for (int step = 0; step < N / 2; step++) {
        uint32_t a[M][4];
        CKPT_UNROLL
        for (int m = 0; m < M; m++) {
            CKPT_UNROLL
            for (int i = 0; i < 4; i++) {
                const float(&two)[4] = weight[m][2 * step + i / 2];
                a[m][i] = pack_bf16(two[i % 2 * 2], two[i % 2 * 2 + 1]);
            }
        }
        CKPT_UNROLL
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_turned(b, row + 16 * step * tile_row<bf16, D> + 8 * n);
            CKPT_UNROLL
            for (int m = 0; m < M; m++) {
                mma_bf16(sum[m][n], a[m], b[0], b[1]);
                mma_bf16(sum[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Four lanes hold the weights of a row and exchange them. */
template <int D, int M, int N>
__device__ inline void tile_sum(float (&sum)[M][D / 8][4], const float (&weight)[M][N][4], const float *right)
{
    const int lane = (int)threadIdx.x % 32;
    const float *const y = right + lane % 4 * 4;
    CKPT_UNROLL
    for (int n = 0; n < N; n++) {
        CKPT_UNROLL
        for (int column = 0; column < 8; column++) {
            float w[M][2];
            CKPT_UNROLL
            for (int m = 0; m < M; m++) {
                CKPT_UNROLL
                for (int half = 0; half < 2; half++) {
                    w[m][half] = __shfl_sync(0xffffffffu, weight[m][n][2 * half + column % 2], column / 2, 4);
                }
            }
            CKPT_UNROLL
            for (int d = 0; d < D / 8; d += 2) {
                const pack<float> b = load16(y + (8 * n + column) * tile_row<float, D> + 8 * d);
                CKPT_UNROLL
                for (int i = 0; i < 8 * M; i++) {
                    sum[i / 8][d + i / 4 % 2][i % 4] += w[i / 8][i / 2 % 2] * b.at[i / 4 % 2 * 2 + i % 2];
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------- masks */

/* Sets the scores of keys that a query does not see, or that do not exist, to -infinity. query, key: of the first
 * element of the warp's fragments. In the first function rows are queries, in the second keys. */
template <int M, int N>
__device__ inline void mask_by_query(float (&s)[M][N][4], const attention_call &c, int query, int key)
{
    const int lane = (int)threadIdx.x % 32, T = (int)c.T, S = (int)c.S;
    CKPT_UNROLL
    for (int i = 0; i < 4 * M; i++) {
        const int row = query + i / 4 * 16 + lane / 4 + i % 4 / 2 * 8, column = key + lane % 4 * 2 + i % 2;
        const int last = c.causal && row < T ? row : S - 1;
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            s[i / 4][n][i % 4] = column + 8 * n > last ? -INFINITY : s[i / 4][n][i % 4];
        }
    }
}
template <int M, int N> __device__ inline void mask_by_key(float (&s)[M][N][4], int query, int key)
{
    const int lane = (int)threadIdx.x % 32;
    CKPT_UNROLL
    for (int i = 0; i < 4 * M; i++) {
        const int row = key + i / 4 * 16 + lane / 4 + i % 4 / 2 * 8, column = query + lane % 4 * 2 + i % 2;
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            s[i / 4][n][i % 4] = column + 8 * n < row ? -INFINITY : s[i / 4][n][i % 4];
        }
    }
}

/* The same for keys before the window of their query. */
template <int M, int N>
__device__ inline void mask_window_by_query(float (&s)[M][N][4], const attention_call &c, int query, int key)
{
    const int lane = (int)threadIdx.x % 32, window = (int)c.window;
    CKPT_UNROLL
    for (int i = 0; i < 4 * M; i++) {
        const int row = query + i / 4 * 16 + lane / 4 + i % 4 / 2 * 8, column = key + lane % 4 * 2 + i % 2;
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            s[i / 4][n][i % 4] = column + 8 * n <= row - window ? -INFINITY : s[i / 4][n][i % 4];
        }
    }
}
template <int M, int N>
__device__ inline void mask_window_by_key(float (&s)[M][N][4], const attention_call &c, int query, int key)
{
    const int lane = (int)threadIdx.x % 32, window = (int)c.window;
    CKPT_UNROLL
    for (int i = 0; i < 4 * M; i++) {
        const int row = key + i / 4 * 16 + lane / 4 + i % 4 / 2 * 8, column = query + lane % 4 * 2 + i % 2;
        CKPT_UNROLL
        for (int n = 0; n < N; n++) {
            s[i / 4][n][i % 4] = column + 8 * n >= row + window ? -INFINITY : s[i / 4][n][i % 4];
        }
    }
}

/* ------------------------------------------------------------------------------------------- dropout */

/* Finds which weights of this lane are kept: bit 4 n + i for element i of fragment n. Weight (i, j) of head bh draws
 * word (bh T + i) S + j of the layer, as on the CPU. A Philox block gives four neighbours. If S is a multiple of four,
 * rows start at a block and lanes share their blocks; otherwise each lane draws for itself, up to four times as many.
 * In the first function rows of the fragments are queries: `row` = bh T + i of this lane's first row, `column` = j of
 * the fragments' first column. In the second rows are keys: `key` of this lane's first row, `query` = bh T + i of the
 * fragments' first column. */
__device__ inline uint32_t kept_four(const attention_call &c, const ckpt_cuda_counters &counters, uint64_t element)
{
    const uint4 w = philox_block(&counters, c.layer, ATTENTION_STREAM, element / 4);
    return (uint32_t)(w.x >= c.threshold) | (uint32_t)(w.y >= c.threshold) << 1 | (uint32_t)(w.z >= c.threshold) << 2 |
           (uint32_t)(w.w >= c.threshold) << 3;
}

__device__ inline uint32_t kept_one(const attention_call &c, const ckpt_cuda_counters &counters, uint64_t element)
{
    return kept_four(c, counters, element) >> element % 4 & 1;
}

template <int N>
__device__ inline uint32_t kept_by_query(const attention_call &c, const ckpt_cuda_counters &counters, int64_t row,
                                         int64_t column)
{
    static_assert(N % 2 == 0 && N <= 8);
    const int lane = (int)threadIdx.x % 32, t = lane % 4;
    uint32_t bits = 0;
    if (c.S % 4 == 0) {
        /* Lanes t and t ^ 1 need the same block of each fragment: each draws one of two, and they exchange halves. */
        CKPT_ROLLED
        for (int half = 0; half < 2; half++) {
            const uint64_t start = (uint64_t)((row + 8 * half) * c.S + column + t / 2 * 4);
            CKPT_ROLLED
            for (int n = 0; n < N; n += 2) {
                const uint32_t mine = kept_four(c, counters, start + (uint64_t)(8 * (n + t % 2)));
                const uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 1);
                const uint32_t low = t % 2 == 0 ? mine & 3 : other >> 2, high = t % 2 == 0 ? other & 3 : mine >> 2;
                bits |= (low | high << 4) << (4 * n + 2 * half);
            }
        }
        return bits;
    }
    CKPT_ROLLED
    for (int i = 0; i < 4 * N; i++) {
        const uint64_t element = (uint64_t)((row + i % 4 / 2 * 8) * c.S + column + i / 4 * 8 + 2 * t + i % 2);
        bits |= kept_one(c, counters, element) << i;
    }
    return bits;
}

template <int N>
__device__ inline uint32_t kept_by_key(const attention_call &c, const ckpt_cuda_counters &counters, int64_t key,
                                       int64_t query)
{
    static_assert(N <= 8);
    const int lane = (int)threadIdx.x % 32, t = lane % 4, place = lane / 4 % 4;
    uint32_t bits = 0;
    if (c.S % 4 == 0) {
        /* Four lanes hold neighbouring keys and need four blocks, one per element of the fragment. Each draws the block
         * of its own number, and they exchange all 16 results. */
        CKPT_ROLLED
        for (int n = 0; n < N; n++) {
            const int64_t i = query + 8 * n + 2 * t + place % 2, j = key - place + place / 2 * 8;
            uint32_t all = kept_four(c, counters, (uint64_t)(i * c.S + j)) << 4 * place;
            all |= __shfl_xor_sync(0xffffffffu, all, 4);
            all |= __shfl_xor_sync(0xffffffffu, all, 8);
            all >>= place;
            bits |= ((all & 1) | (all >> 3 & 2) | (all >> 6 & 4) | (all >> 9 & 8)) << 4 * n;
        }
        return bits;
    }
    CKPT_ROLLED
    for (int i = 0; i < 4 * N; i++) {
        const uint64_t element = (uint64_t)((query + i / 4 * 8 + 2 * t + i % 2) * c.S + key + i % 4 / 2 * 8);
        bits |= kept_one(c, counters, element) << i;
    }
    return bits;
}

#endif
