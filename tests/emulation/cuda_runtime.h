/* What kernels are written with, for the emulation: qualifiers, vector types, the indices, barriers, shuffles, a few
 * device functions. The threads of a block are fibers (emulated_block.cpp), in another random order between any two
 * barriers, so that a missing barrier gives other bits. */
#ifndef CKPT_EMULATION_CUDA_RUNTIME_H
#define CKPT_EMULATION_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
/* One block runs at a time, so what its threads share may be static: as on a GPU, it starts with what was there. */
#define __shared__ static

/* ------------------------------------------------------------------------------------------- vector types */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define CKPT_EMULATED_VECTOR(type, name)                                                                               \
    struct alignas(2 * sizeof(type)) name##2                                                                           \
    {                                                                                                                  \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4                                              \
    {                                                                                                                  \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    inline name##2 make_##name##2(type x, type y)                                                                      \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                                      \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
CKPT_EMULATED_VECTOR(int, int)
CKPT_EMULATED_VECTOR(unsigned, uint)
CKPT_EMULATED_VECTOR(float, float)
CKPT_EMULATED_VECTOR(unsigned short, ushort)
#undef CKPT_EMULATED_VECTOR

/* ------------------------------------------------------------------------------------------- threads */

/* Of the thread that runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

/* All threads of the block must come here; the launch fails when some have left. */
void __syncthreads();
/* All lanes of the warp must come here; only the full mask is understood. */
void __syncwarp(unsigned mask = 0xffffffffu);

/* Dynamic shared memory: 128-byte aligned, all bytes 0xff (NaN) when a block starts. */
unsigned char *ckpt_emulated_shared();

/* Every lane of the warp gives a value; all get the 32 values, in the order of the lanes. They stay until the lane's
 * next call of this. Shuffles and tensor-core tiles are made of it. T: trivially copyable, at most 256 bytes. */
const void *ckpt_emulated_deposit(const void *mine, size_t bytes);
template <typename T> inline const T *ckpt_emulated_gather(const T &mine)
{
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256, "what lanes can exchange");
    return static_cast<const T *>(ckpt_emulated_deposit(&mine, sizeof(T)));
}
int ckpt_emulated_lane();                    /* of the calling thread, 0..31 */
void ckpt_emulated_need_all(unsigned mask);  /* fails the launch unless the mask names all 32 lanes */
void ckpt_emulated_broken(const char *what); /* fails the launch; does not come back */

template <typename T> inline T __shfl_sync(unsigned mask, T mine, int from, int width = 32)
{
    ckpt_emulated_need_all(mask);
    const int lane = ckpt_emulated_lane(), first = lane & ~(width - 1);
    return ckpt_emulated_gather(mine)[first + (from & (width - 1))];
}
template <typename T> inline T __shfl_xor_sync(unsigned mask, T mine, int with, int width = 32)
{
    ckpt_emulated_need_all(mask);
    const int lane = ckpt_emulated_lane(), other = lane ^ with, end = (lane & ~(width - 1)) + width;
    return ckpt_emulated_gather(mine)[other < end ? other : lane];
}
template <typename T> inline T __shfl_up_sync(unsigned mask, T mine, unsigned by, int width = 32)
{
    ckpt_emulated_need_all(mask);
    const int lane = ckpt_emulated_lane(), other = lane - (int)by;
    return ckpt_emulated_gather(mine)[other >= (lane & ~(width - 1)) ? other : lane];
}
template <typename T> inline T __shfl_down_sync(unsigned mask, T mine, unsigned by, int width = 32)
{
    ckpt_emulated_need_all(mask);
    const int lane = ckpt_emulated_lane(), other = lane + (int)by, end = (lane & ~(width - 1)) + width;
    return ckpt_emulated_gather(mine)[other < end ? other : lane];
}
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    ckpt_emulated_need_all(mask);
    const bool *const all = ckpt_emulated_gather(predicate != 0);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++) {
        bits |= (unsigned)all[lane] << lane;
    }
    return bits;
}
inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == 0xffffffffu;
}

/* ------------------------------------------------------------------------------------------- launches */

/* Something that the device does when `stream` comes to it, and that is captured like a kernel: kernels, and the
 * doubles of the libraries. Refusals are kept for cudaGetLastError and given back. */
cudaError_t ckpt_emulated_start(cudaStream_t stream, std::function<void()> work,
                                enum cudaGraphNodeType type = cudaGraphNodeTypeKernel);
cudaError_t ckpt_emulated_start_grid(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                     std::function<void()> thread);
/* CKPT_ALLOW_SHARED. */
cudaError_t ckpt_emulated_allow_shared(const void *kernel, size_t bytes);
/* Is this an address the device may touch, or NULL? Fails the launch otherwise, as the device would. */
void ckpt_emulated_check_pointer(const void *pointer);

template <typename T> inline void ckpt_emulated_check_argument(const T &value)
{
    if constexpr (std::is_pointer_v<T>) {
        ckpt_emulated_check_pointer((const void *)value);
    } else {
        (void)value;
    }
}

template <typename... P, typename... A>
inline void ckpt_emulated_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                 A... arguments)
{
    const std::tuple<P...> values(static_cast<P>(arguments)...);
    std::apply([](const P &...value) { (ckpt_emulated_check_argument(value), ...); }, values);
    (void)ckpt_emulated_start_grid(reinterpret_cast<const void *>(kernel), grid, block, shared, stream,
                                   [kernel, values] { std::apply(kernel, values); });
}

/* ------------------------------------------------------------------------------------------- device functions */

template <typename T> inline T __ldg(const T *from)
{
    return *from;
}
template <typename T> inline T __ldcs(const T *from)
{
    return *from;
}
template <typename T> inline void __stcs(T *to, T value)
{
    *to = value;
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
/* Never contracted to a multiply-add. */
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline float __fsub_rn(float x, float y)
{
    return x - y;
}
inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline int __float_as_int(float x)
{
    return (int)__float_as_uint(x);
}
inline float __int_as_float(int bits)
{
    return __uint_as_float((unsigned)bits);
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)(((uint64_t)x * y) >> 32);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
#define CKPT_EMULATED_LEAST(type)                                                                                      \
    inline type min(type a, type b)                                                                                    \
    {                                                                                                                  \
        return b < a ? b : a;                                                                                          \
    }                                                                                                                  \
    inline type max(type a, type b)                                                                                    \
    {                                                                                                                  \
        return a < b ? b : a;                                                                                          \
    }
CKPT_EMULATED_LEAST(int)
CKPT_EMULATED_LEAST(unsigned)
CKPT_EMULATED_LEAST(long)
CKPT_EMULATED_LEAST(unsigned long)
CKPT_EMULATED_LEAST(long long)
CKPT_EMULATED_LEAST(unsigned long long)
#undef CKPT_EMULATED_LEAST
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}

/* Threads of the emulation never run at once, so that an atomic addition is an addition. Floats have none: the order
 * of their sums must not be left to chance. */
template <typename T> inline T atomicAdd(T *to, T value)
{
    static_assert(std::is_integral_v<T>, "sums of floats have a fixed order: no atomics");
    const T before = *to;
    *to = before + value;
    return before;
}
inline int atomicMin(int *to, int value)
{
    const int before = *to;
    *to = value < before ? value : before;
    return before;
}
inline int atomicMax(int *to, int value)
{
    const int before = *to;
    *to = value > before ? value : before;
    return before;
}

#endif
