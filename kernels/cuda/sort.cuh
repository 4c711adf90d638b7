/* Sorts tokens by id, those of one id in their own order: a stable radix sort of positions. A pass takes 8 bits of the
 * id and three kernels: count the digits of every block, add the counts, move. A thread takes neighbouring tokens and
 * counts in its own column of shared memory, without atomics. A pass reads every id twice and moves 4 bytes per token;
 * a vocabulary of 16 bits takes two passes. Bound by latency up to some 100,000 tokens. */
#ifndef CKPT_KERNELS_CUDA_SORT_CUH
#define CKPT_KERNELS_CUDA_SORT_CUH

#include "kernels/cuda/device.cuh"

/* ops/defs/embedding.c uses SORT_ITEMS and SORT_DIGITS too, for the workspace. */
enum {
    SORT_BITS = 8,
    SORT_DIGITS = 1 << SORT_BITS,
    SORT_THREADS = 64,
    SORT_EACH = 16, /* tokens of a thread */
    SORT_ITEMS = SORT_THREADS * SORT_EACH,
    SORT_COLUMNS = SORT_THREADS + 2, /* rows of an odd number of banks */
    SORT_SCAN_THREADS = 1024
};

/* Tokens in the order of `sorted`; NULL: in their own order. count, rows < 2^31. */
struct sort_tokens {
    const int32_t *ids, *sorted;
    int64_t count, rows;
};
__device__ static inline int32_t sort_token_at(const sort_tokens &tokens, int64_t i)
{
    return tokens.sorted == NULL ? (int32_t)i : tokens.sorted[i];
}
/* All ids outside 0 .. rows - 1 have one key, behind all others. */
__device__ static inline int32_t sort_key_of(const sort_tokens &tokens, int32_t token)
{
    const int32_t id = tokens.ids[token];
    return id >= 0 && id < tokens.rows ? id : (int32_t)tokens.rows;
}
__device__ static inline int32_t sort_key_at(const sort_tokens &tokens, int64_t i)
{
    return sort_key_of(tokens, sort_token_at(tokens, i));
}
__device__ static inline int sort_digit_of(const sort_tokens &tokens, int32_t token, int shift)
{
    return sort_key_of(tokens, token) >> shift & (SORT_DIGITS - 1);
}

/* count[digit][thread] = tokens of that digit in the block before this thread's; `total` gets those of the whole block
 * for the digits threadIdx.x + k * SORT_THREADS. */
__device__ static inline void sort_count(const sort_tokens &tokens, int shift, uint16_t (*count)[SORT_COLUMNS],
                                         int32_t total[SORT_DIGITS / SORT_THREADS])
{
    const int thread = (int)threadIdx.x;
    const int64_t first = ((int64_t)blockIdx.x * SORT_THREADS + thread) * SORT_EACH;
    for (int d = 0; d < SORT_DIGITS; d++) {
        count[d][thread] = 0;
    }
    for (int64_t i = first; i < first + SORT_EACH && i < tokens.count; i++) {
        count[sort_digit_of(tokens, sort_token_at(tokens, i), shift)][thread]++;
    }
    __syncthreads();
    for (int k = 0; k < SORT_DIGITS / SORT_THREADS; k++) {
        uint16_t *const row = count[thread + k * SORT_THREADS];
        int32_t before = 0;
        for (int t = 0; t < SORT_THREADS; t++) {
            const int32_t own = row[t];
            row[t] = (uint16_t)before;
            before += own;
        }
        total[k] = before;
    }
    __syncthreads();
}

/* place[digit * blocks + block] = tokens of that digit in the block. */
static __global__ void sort_histogram(sort_tokens tokens, int shift, int32_t *place)
{
    __shared__ uint16_t count[SORT_DIGITS][SORT_COLUMNS];
    int32_t total[SORT_DIGITS / SORT_THREADS];
    sort_count(tokens, shift, count, total);
    for (int k = 0; k < SORT_DIGITS / SORT_THREADS; k++) {
        place[((int64_t)threadIdx.x + k * SORT_THREADS) * gridDim.x + blockIdx.x] = total[k];
    }
}

/* Every element becomes the sum of those before it. One block: there are 256 for 1,024 tokens. */
static __global__ void sort_scan(int64_t count, int32_t *place)
{
    __shared__ int32_t sum[SORT_SCAN_THREADS];
    const int thread = (int)threadIdx.x;
    const int64_t each = (count + SORT_SCAN_THREADS - 1) / SORT_SCAN_THREADS;
    const int64_t first = thread * each, end = first + each < count ? first + each : count;
    int32_t own = 0;
    for (int64_t i = first; i < end; i++) {
        own += place[i];
    }
    sum[thread] = own;
    __syncthreads();
    for (int step = 1; step < SORT_SCAN_THREADS; step *= 2) {
        const int32_t more = thread >= step ? sum[thread - step] : 0;
        __syncthreads();
        sum[thread] += more;
        __syncthreads();
    }
    int32_t before = sum[thread] - own;
    for (int64_t i = first; i < end; i++) {
        const int32_t here = place[i];
        place[i] = before;
        before += here;
    }
}

static __global__ void sort_move(sort_tokens tokens, int shift, const int32_t *place, int32_t *sorted)
{
    __shared__ uint16_t count[SORT_DIGITS][SORT_COLUMNS];
    int32_t total[SORT_DIGITS / SORT_THREADS];
    sort_count(tokens, shift, count, total);
    const int thread = (int)threadIdx.x;
    const int64_t first = ((int64_t)blockIdx.x * SORT_THREADS + thread) * SORT_EACH;
    for (int64_t i = first; i < first + SORT_EACH && i < tokens.count; i++) {
        const int32_t token = sort_token_at(tokens, i);
        const int digit = sort_digit_of(tokens, token, shift);
        sorted[place[(int64_t)digit * gridDim.x + blockIdx.x] + count[digit][thread]++] = token;
    }
}

/* Sets tokens->sorted. `workspace`: two arrays of positions and the counts, each rounded up to CKPT_ALIGN. Returns
 * their end. */
static inline void *sort_by_id(const ckpt_cuda *cuda, sort_tokens *tokens, void *workspace)
{
    const int blocks = (int)((tokens->count + SORT_ITEMS - 1) / SORT_ITEMS);
    const ckpt_bytes one = ckpt_round_up(tokens->count * 4, CKPT_ALIGN), counts = (ckpt_bytes)SORT_DIGITS * blocks * 4;
    int32_t *const array[2] = {(int32_t *)workspace, (int32_t *)((char *)workspace + one)};
    int32_t *const place = (int32_t *)((char *)workspace + 2 * one);
    int turn = 0;
    for (int shift = 0; tokens->rows >> shift != 0; shift += SORT_BITS) {
        CKPT_LAUNCH(cuda, sort_histogram, blocks, SORT_THREADS, 0, *tokens, shift, place);
        CKPT_LAUNCH(cuda, sort_scan, 1, SORT_SCAN_THREADS, 0, (int64_t)SORT_DIGITS * blocks, place);
        CKPT_LAUNCH(cuda, sort_move, blocks, SORT_THREADS, 0, *tokens, shift, place, array[turn]);
        tokens->sorted = array[turn];
        turn = 1 - turn;
    }
    return (char *)place + ckpt_round_up(counts, CKPT_ALIGN);
}

#endif
