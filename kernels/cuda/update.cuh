/* Updates of all optimizers: one launch for many parameters, of one layer or of several. The list of parameters is the
 * kernel's argument, which the GPU keeps in constant memory: no table is on the device, and a recording holds its own
 * list. A block takes CHUNK values of one parameter, which it finds by bisection. Values are independent, so no bit
 * depends on the grouping. Parameters that start at multiples of 16 bytes are updated in packs, other pieces of shards
 * value by value.
 *
 * A rule updates one value (adam.cu, sgd.cu):
 *     enum { STATES, OF_AVERAGE }                          values it keeps per parameter; does it update the average
 *                                                          (average.cu), whose "gradient" is the parameter
 *     operator()(number, decay, grad, &param, state[])     number: of the step and group, ckpt_cuda_counters */
#ifndef CKPT_KERNELS_CUDA_UPDATE_CUH
#define CKPT_KERNELS_CUDA_UPDATE_CUH

#include "kernels/cuda/wide.cuh"

namespace
{
enum {
    UPDATE_THREADS = 256,
    UPDATE_PACK = 4,
    UPDATE_CHUNK = 4 * UPDATE_PACK * UPDATE_THREADS,
    UPDATE_STATES = 2,
    UPDATE_ARGUMENTS = 32764, /* the most bytes of a launch's arguments */
    UPDATE_MANY = 580,        /* the most parameters in them */
    UPDATE_FEW = 32,          /* up to so many use a shorter list, which is faster to send */
};

struct update_piece {
    float *param;
    bf16 *param16; /* NULL: a float32 model */
    const float *grad;
    float *state[UPDATE_STATES];
    int64_t count;
    unsigned first; /* the first of its blocks */
    bool decay, packed;
    unsigned char group;
};

template <int MOST> struct update_list {
    const ckpt_cuda_counters *counters;
    const float *factor; /* factor of gradients; NULL: 1 */
    int count;
    update_piece piece[MOST];
};
} // namespace

/* Values [from, to) of a parameter by the threads of a block; both are multiples of N. */
template <typename RULE, int N>
__device__ inline void update_values(const RULE &rule, const float number[CKPT_STEP_NUMBERS], float scale,
                                     const update_piece &piece, int64_t from, int64_t to)
{
    for (int64_t i = from + (int)threadIdx.x * N; i < to; i += UPDATE_THREADS * N) {
        const wide<float, N> g = load_wide<N>(piece.grad + i);
        wide<float, N> w = load_wide<N>(piece.param + i), state[UPDATE_STATES];
        for (int s = 0; s < RULE::STATES; s++) {
            state[s] = load_wide<N>(piece.state[s] + i);
        }
        for (int j = 0; j < N; j++) {
            float own[UPDATE_STATES];
            for (int s = 0; s < RULE::STATES; s++) {
                own[s] = state[s].at[j];
            }
            rule(number, piece.decay, product_of(g.at[j], scale), &w.at[j], own);
            for (int s = 0; s < RULE::STATES; s++) {
                state[s].at[j] = own[s];
            }
        }
        for (int s = 0; s < RULE::STATES; s++) {
            store_wide<N>(piece.state[s] + i, state[s]);
        }
        store_wide<N>(piece.param + i, w);
        if (piece.param16 != NULL) {
            put_wide<N>(piece.param16 + i, w, false);
        }
    }
}

template <typename RULE, int MOST>
__global__ void __launch_bounds__(UPDATE_THREADS) update_step(const __grid_constant__ update_list<MOST> list, RULE rule)
{
    int low = 0, high = list.count; /* the last parameter whose first block is not behind this one */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (list.piece[middle].first <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const update_piece &piece = list.piece[low];
    const int64_t start = (int64_t)(blockIdx.x - piece.first) * UPDATE_CHUNK;
    const int64_t end = start + UPDATE_CHUNK < piece.count ? start + UPDATE_CHUNK : piece.count;
    /* Values behind the last whole pack go one by one: the bytes behind the end belong to others. */
    const int64_t packs_end = piece.packed ? end - end % UPDATE_PACK : start;
    const float scale = list.factor != NULL ? *list.factor : 1.0f; /* times 1 changes no bit */
    const float *const number = list.counters->numbers.of[piece.group];
    update_values<RULE, UPDATE_PACK>(rule, number, scale, piece, start, packs_end);
    update_values<RULE, 1>(rule, number, scale, piece, packs_end, end);
}

/* Launches the first of args[0 .. count); returns how many one launch took. */
template <typename RULE, int MOST> static int update_some(const ckpt_update_args *args, int count, const RULE &rule)
{
    static_assert(sizeof(update_list<MOST>) + sizeof(RULE) <= UPDATE_ARGUMENTS, "what a launch can take");
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const int64_t most_blocks = INT32_MAX;
    update_list<MOST> list = {};
    list.counters = cuda->counters;
    list.factor = RULE::OF_AVERAGE ? NULL : args->scale;
    int64_t blocks = 0;
    for (; list.count < MOST && list.count < count; list.count++) {
        const ckpt_update_args *const from = &args[list.count];
        const int64_t wanted = (from->count + UPDATE_CHUNK - 1) / UPDATE_CHUNK;
        if (list.count > 0 && blocks + wanted > most_blocks) {
            break;
        }
        update_piece *const piece = &list.piece[list.count];
        piece->param = RULE::OF_AVERAGE ? from->average : from->param;
        piece->param16 = RULE::OF_AVERAGE ? NULL : (bf16 *)from->param16;
        piece->grad = RULE::OF_AVERAGE ? from->param : from->grad;
        piece->count = from->count;
        piece->first = (unsigned)blocks;
        piece->decay = from->decay;
        piece->group = (unsigned char)from->group;
        piece->packed = starts_pack(piece->grad, 16) && starts_pack(piece->param, 16) && starts_pack(piece->param16, 8);
        for (int s = 0; s < RULE::STATES; s++) {
            piece->state[s] = from->slot[s];
            piece->packed = piece->packed && starts_pack(from->slot[s], 16);
        }
        blocks += wanted;
    }
    if (blocks > 0) {
        CKPT_LAUNCH(cuda, (update_step<RULE, MOST>), (unsigned)blocks, UPDATE_THREADS, 0, list, rule);
    }
    return list.count;
}

template <typename RULE> static void update_all(const ckpt_update_args *args, int count, const RULE &rule)
{
    for (int done = 0; done < count;) {
        const int left = count - done;
        done += left > UPDATE_FEW ? update_some<RULE, UPDATE_MANY>(args + done, left, rule)
                                  : update_some<RULE, UPDATE_FEW>(args + done, left, rule);
    }
}

#endif
