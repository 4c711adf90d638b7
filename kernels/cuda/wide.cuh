/* What the kernels that move pieces of tensors share: N neighbouring elements in one access, and the place of a number
 * in a grid. Rows inside a tensor are only sometimes a multiple of 16 bytes long: each kernel comes twice, for
 * N = pack<T>::count, where every row starts on 16 bytes, and for N = 1. */
#ifndef CKPT_KERNELS_CUDA_WIDE_CUH
#define CKPT_KERNELS_CUDA_WIDE_CUH

#include "kernels/cuda/device.cuh"

/* float in eights (beside bfloat16 in eights) takes two accesses of 16 bytes. */
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) wide {
    T at[N];
};
template <int N, typename T> __device__ inline wide<T, N> load_wide(const T *from)
{
    return *reinterpret_cast<const wide<T, N> *>(from);
}
template <int N, typename T> __device__ inline void store_wide(T *to, const wide<T, N> &from)
{
    *reinterpret_cast<wide<T, N> *>(to) = from;
}

/* to[0..N) = value, or += value, rounded to T once. */
template <int N, typename T> __device__ inline void put_wide(T *to, const wide<float, N> &value, bool adds)
{
    wide<T, N> result = {};
    if (adds) {
        result = load_wide<N>(to);
    }
    for (int j = 0; j < N; j++) {
        result.at[j] = from_float<T>(adds ? to_float(result.at[j]) + value.at[j] : value.at[j]);
    }
    store_wide<N>(to, result);
}

/* number = whole * divisor + rest, for number >= 0. A division of 32 bits is several times faster, and nearly always
 * enough. */
struct quotient {
    int64_t whole, rest;
};
__device__ inline quotient divide(int64_t number, int64_t divisor)
{
    if ((uint64_t)(number | divisor) >> 32 == 0) {
        const uint32_t whole = (uint32_t)number / (uint32_t)divisor;
        return {(int64_t)whole, (int64_t)((uint32_t)number - whole * (uint32_t)divisor)};
    }
    const int64_t whole = number / divisor;
    return {whole, number - whole * divisor};
}

/* Is that an address of whole packs of `bytes`? NULL is. A tensor's is, a piece of one may start at any element. */
static inline bool starts_pack(const void *address, unsigned bytes)
{
    return (uintptr_t)address % bytes == 0;
}

/* Threads stride over the grid: for (int64_t i = first_item(); i < count; i += item_step()). */
__device__ inline int64_t first_item()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t item_step()
{
    return (int64_t)gridDim.x * blockDim.x;
}

#endif
