/* The base of every kernel in this folder: element types, 16-byte accesses, reductions in a fixed order, Philox,
 * launches.
 *
 * A file of kernels is compiled twice: by nvcc for the GPU, and by the host's C++ compiler against tests/emulation,
 * where CKPT_EMULATION is defined and the threads of a block are fibers. A kernel may therefore use what is here, plain
 * C++, __syncthreads, __syncwarp, the __shfl_*_sync family and __shared__; nothing else of CUDA. */
#ifndef CKPT_KERNELS_CUDA_DEVICE_CUH
#define CKPT_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "core/base/memory.h"
#include "core/formats/tensor.h"
#include "kernels/cuda/cuda.h"
#include "kernels/philox.h"
}

static inline const ckpt_cuda *cuda_of(const ckpt_kernel_args *args)
{
    return (const ckpt_cuda *)args->context;
}

/* The stream of a launch. Counts the launch. */
static inline cudaStream_t launch_stream(const ckpt_cuda *cuda)
{
    cuda->launched->kernels++;
    return cuda->stream[CKPT_STREAM_COMPUTE];
}

/* CKPT_LAUNCH(cuda, (name<float, 4>), grid, block, shared_bytes, arguments...) launches on the compute stream and
 * counts the launch. Check once per op: CKPT_TRY(ckpt_cuda_launched("what", err)). CKPT_SHARED declares an `unsigned
 * char *` to the dynamic shared memory, 128-byte aligned. CKPT_ALLOW_SHARED comes before a launch with more than 48 KB
 * of it. */
#ifdef CKPT_EMULATION
#define CKPT_LAUNCH(cuda, kernel, grid, block, shared, ...)                                                            \
    ckpt_emulated_launch(kernel, dim3(grid), dim3(block), (size_t)(shared), launch_stream(cuda), __VA_ARGS__)
#define CKPT_SHARED(name)                unsigned char *const name = ckpt_emulated_shared()
#define CKPT_ALLOW_SHARED(kernel, bytes) ckpt_emulated_allow_shared((const void *)(kernel), (size_t)(bytes))
#else
#define CKPT_LAUNCH(cuda, kernel, grid, block, shared, ...)                                                            \
    (kernel)<<<dim3(grid), dim3(block), (size_t)(shared), launch_stream(cuda)>>>(__VA_ARGS__)
#define CKPT_SHARED(name)                                                                                              \
    extern __shared__ __align__(128) unsigned char ckpt_dynamic_shared[];                                              \
    unsigned char *const name = ckpt_dynamic_shared
#define CKPT_ALLOW_SHARED(kernel, bytes)                                                                               \
    cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
#endif

/* function<float>(...) or function<bf16>(...), by the element type of an activation. */
#define CKPT_BY_DTYPE(dtype, function, ...)                                                                            \
    ((dtype) == CKPT_BFLOAT16 ? function<bf16>(__VA_ARGS__) : function<float>(__VA_ARGS__))

/* function<T, N>(...): N is pack<T>::count if rows of `length` elements all start at 16 bytes, else 1. */
#define CKPT_BY_WIDTH(dtype, length, function, ...)                                                                    \
    ((dtype) == CKPT_BFLOAT16                                                                                          \
         ? ((length) % 8 == 0 ? function<bf16, 8>(__VA_ARGS__) : function<bf16, 1>(__VA_ARGS__))                       \
         : ((length) % 4 == 0 ? function<float, 4>(__VA_ARGS__) : function<float, 1>(__VA_ARGS__)))

typedef __nv_bfloat16 bf16;

/* A direction of a ckpt_kernel. CKPT_TYPED(start): start<T>(args), where T is the type of the layer's first input,
 * or of activations where it has none.
 * CKPT_WIDE(length, start): start<T, N>(args), N as above for rows of length(node) elements. */
typedef void ckpt_start(const ckpt_kernel_args *args);
template <ckpt_start *FLOAT, ckpt_start *BF16> static ckpt_code run_typed(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    ((node->in_count > 0 ? node->in[0].dtype : node->dtype) == CKPT_BFLOAT16 ? BF16 : FLOAT)(args);
    return ckpt_cuda_launched(args->node->op->name, err);
}
template <int64_t (*LENGTH)(const ckpt_node *), ckpt_start *FLOATS, ckpt_start *FLOAT, ckpt_start *BF16S,
          ckpt_start *BF16>
static ckpt_code run_wide(const ckpt_kernel_args *args, ckpt_err *err)
{
    const int64_t length = LENGTH(args->node);
    return length % 8 == 0   ? run_typed<FLOATS, BF16S>(args, err)
           : length % 4 == 0 ? run_typed<FLOATS, BF16>(args, err)
                             : run_typed<FLOAT, BF16>(args, err);
}
#define CKPT_TYPED(start)        run_typed<start<float>, start<bf16>>
#define CKPT_WIDE(length, start) run_wide<length, start<float, 4>, start<float, 1>, start<bf16, 8>, start<bf16, 1>>

/* The `workspace` of a ckpt_kernel: what the op states for a GPU. */
static inline void op_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = *backward = 0;
    node->op->gpu_workspace(node, forward, backward);
}

/* Everything is computed in float32. A bfloat16 is rounded to nearest even when it is stored. */
__device__ inline float to_float(float x)
{
    return x;
}
__device__ inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}
template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x)
{
    return x;
}
template <> __device__ inline bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* a b, rounded before anything is added to it: never part of a fused operation. */
__device__ inline float product_of(float a, float b)
{
#ifdef CKPT_EMULATION
    return a * b; /* compiled without contraction */
#else
    return __fmul_rn(a, b);
#endif
}

/* A GPU refuses an access of several bytes at an address that is no multiple of them; a host may not. */
#ifdef CKPT_EMULATION
static inline void need_aligned(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes != 0) {
        ckpt_emulated_broken("an access of several bytes at an address that is not aligned");
    }
}
#else
__device__ inline void need_aligned(const void *, size_t)
{
}
#endif

/* 16 bytes of a tensor: 4 float or 8 bfloat16, loaded and stored in one access. Every buffer starts 64-byte aligned and
 * is a multiple of 64 bytes long (CKPT_ALIGN). So the last pack of a tensor never leaves its buffer, and whoever writes
 * the tensor may write the bytes behind its end. Rows inside a tensor have no such promise. */
template <typename T> struct alignas(16) pack {
    enum { count = 16 / sizeof(T) };
    T at[count];
};
template <typename T> __device__ inline pack<T> load16(const T *from)
{
    need_aligned(from, 16);
    return *reinterpret_cast<const pack<T> *>(from);
}
template <typename T> __device__ inline void store16(T *to, const pack<T> &from)
{
    need_aligned(to, 16);
    *reinterpret_cast<pack<T> *>(to) = from;
}

/* Packs that hold `count` elements. */
template <typename T> static inline int64_t packs_of(int64_t count)
{
    return (count + pack<T>::count - 1) / pack<T>::count;
}

/* Over the 32 lanes of a warp, by the same tree for every lane, so all lanes get the same bits. All lanes must call. */
__device__ inline float warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}
__device__ inline float warp_max(float x)
{
    for (int step = 16; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    }
    return x;
}

/* Over a one-dimensional block of a multiple of 32 threads, at most 1024. Warps are added in order. All threads must
 * call, and all get the result. `shared`: 32 floats that nobody else uses during the call. */
__device__ inline float block_sum(float x, float *shared)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    x = warp_sum(x);
    if (lane == 0) {
        shared[warp] = x;
    }
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < warps; w++) {
        sum += shared[w];
    }
    __syncthreads();
    return sum;
}
__device__ inline float block_max(float x, float *shared)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    x = warp_max(x);
    if (lane == 0) {
        shared[warp] = x;
    }
    __syncthreads();
    float most = shared[0];
    for (int w = 1; w < warps; w++) {
        most = fmaxf(most, shared[w]);
    }
    __syncthreads();
    return most;
}

/* Over a one-dimensional block of THREADS, a power of two, by halves: for doubles. All threads must call, and all get the
 * result. `shared`: one X per thread that nobody else uses during the call. */
template <int THREADS, typename X> __device__ inline X block_halves(const X &own, X *shared)
{
    const int mine = (int)threadIdx.x;
    shared[mine] = own;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (mine < half) {
            shared[mine] += shared[mine + half];
        }
        __syncthreads();
    }
    const X sum = shared[0];
    __syncthreads();
    return sum;
}

/* The four words of ckpt_philox_block (kernels/philox.h), for elements 4 * block .. 4 * block + 3. */
__device__ inline uint4 philox_block(const ckpt_cuda_counters *counters, uint32_t layer, uint32_t stream,
                                     uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)counters->step;
    uint32_t c3 = layer << 8 | stream;
    uint32_t k0 = (uint32_t)counters->seed, k1 = (uint32_t)(counters->seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)CKPT_PHILOX_M0 * c0, p1 = (uint64_t)CKPT_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += CKPT_PHILOX_W0;
        k1 += CKPT_PHILOX_W1;
    }
    return make_uint4(c0, c1, c2, c3);
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

/* Blocks for `items` pieces of work, `per_block` each, for kernels that stride over the grid: enough to fill the
 * device, no more than there is work, at least one. No result may depend on it. */
static inline int grid_for(const ckpt_cuda *cuda, int64_t items, int64_t per_block)
{
    const int64_t wanted = (items + per_block - 1) / per_block, most = (int64_t)cuda->multiprocessors * 16;
    return (int)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

/* CKPT_LAUNCH_ITEMS(cuda, kernel, items, arguments...) launches kernel(items, arguments...), which strides over
 * them. */
enum { ITEM_THREADS = 256 };
#define CKPT_LAUNCH_ITEMS(cuda, kernel, items, ...)                                                                    \
    CKPT_LAUNCH(cuda, kernel, grid_for(cuda, items, ITEM_THREADS), ITEM_THREADS, 0, items, __VA_ARGS__)

#endif
