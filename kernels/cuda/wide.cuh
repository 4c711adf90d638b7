/* N neighbouring elements in one access, and division of a number into indices. Rows inside a tensor are not always a
 * multiple of 16 bytes long, so each kernel exists twice: for N = pack<T>::count, where every row starts at 16 bytes,
 * and for N = 1. */
#ifndef CKPT_KERNELS_CUDA_WIDE_CUH
#define CKPT_KERNELS_CUDA_WIDE_CUH

#include "kernels/cuda/device.cuh"

/* Eight floats, the partner of eight bfloat16, take two accesses of 16 bytes. */
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) wide {
    T at[N];
};
template <int N, typename T> __device__ inline wide<T, N> load_wide(const T *from)
{
    need_aligned(from, alignof(wide<T, N>));
    return *reinterpret_cast<const wide<T, N> *>(from);
}
template <int N, typename T> __device__ inline void store_wide(T *to, const wide<T, N> &from)
{
    need_aligned(to, alignof(wide<T, N>));
    *reinterpret_cast<wide<T, N> *>(to) = from;
}

template <int N, typename T> __device__ inline wide<float, N> load_floats(const T *from)
{
    const wide<T, N> v = load_wide<N>(from);
    wide<float, N> result;
    for (int j = 0; j < N; j++) {
        result.at[j] = to_float(v.at[j]);
    }
    return result;
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

/* number = whole * divisor + rest, for 0 <= number < 2^50. A 32-bit division is several times faster and nearly always
 * enough. Larger numbers are divided in double and corrected by one, because a 64-bit division is a call, for whose
 * registers the caller's values go to local memory. */
struct quotient {
    int64_t whole, rest;
};
__device__ inline float divide_start(int64_t divisor)
{
#ifdef CKPT_EMULATION
    return 1.0f / (float)divisor;
#else
    return __fdividef(1.0f, (float)divisor);
#endif
}
__device__ inline quotient divide(int64_t number, int64_t divisor)
{
    if ((uint64_t)(number | divisor) >> 32 == 0) {
        const uint32_t whole = (uint32_t)number / (uint32_t)divisor;
        return {(int64_t)whole, (int64_t)((uint32_t)number - whole * (uint32_t)divisor)};
    }
    double inverse = (double)divide_start(divisor); /* two steps of Newton double its 22 bits */
    inverse += inverse * (1.0 - (double)divisor * inverse);
    inverse += inverse * (1.0 - (double)divisor * inverse);
    const int64_t whole = (int64_t)((double)number * inverse), rest = number - whole * divisor;
    return rest < 0          ? quotient{whole - 1, rest + divisor}
           : rest >= divisor ? quotient{whole + 1, rest - divisor}
                             : quotient{whole, rest};
}

/* Is the address a multiple of `bytes`? NULL is, and so is a tensor's; a piece of a tensor may start at any element. */
static inline bool starts_pack(const void *address, unsigned bytes)
{
    return (uintptr_t)address % bytes == 0;
}

/* Threads across a strip of at most `strip` columns that a block sums, V columns each: the power of two that covers
 * it. */
static inline int strip_threads(int64_t columns, int strip, int V)
{
    const int64_t wanted = ((columns < strip ? columns : (int64_t)strip) + V - 1) / V;
    int across = 1;
    while (across < wanted) {
        across *= 2;
    }
    return across;
}

#endif
