/* The host side of the CUDA device: the device itself, and functions that turn CUDA's error codes into ours. The
 * libraries' handles are opaque, so that only blas.c includes cuBLASLt and only cudnn*.c includes cuDNN. */
#ifndef CKPT_KERNELS_CUDA_CUDA_H
#define CKPT_KERNELS_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/device.h"

/* On the device, written by ckpt_device_api.begin: values that change between replays of a recorded step. */
typedef struct ckpt_cuda_counters {
    uint64_t seed, step; /* of the running step; the first is 0, as in ckpt_kernel_args */
    ckpt_numbers numbers;
} ckpt_cuda_counters;

/* The `context` of every CUDA kernel. */
typedef struct ckpt_cuda {
    ckpt_device device; /* first: a ckpt_device pointer is a ckpt_cuda pointer */
    int index, multiprocessors;
    int shared_bytes; /* the most dynamic shared memory of a block */
    int capability;   /* 90: compute capability 9.0 */
    cudaStream_t stream[CKPT_STREAM_COUNT];
    const ckpt_cuda_counters *counters;
    ckpt_launches *launched;                /* since the device was opened; in host memory */
    void *blas, *cudnn;                     /* handles of the two libraries */
    struct ckpt_cudnn_attention *attention; /* all attentions of cuDNN so far */
} ckpt_cuda;

/* The only name that the library of the CUDA device exports. */
extern const ckpt_device_api ckpt_device_cuda;

/* CKPT_OK, or CKPT_NO_MEMORY / CKPT_DEVICE with "<what>: <CUDA's own text>". */
CKPT_MUST_USE ckpt_code ckpt_cuda_check(cudaError_t code, const char *what, ckpt_err *err);

/* After launches: fails if the runtime refused one. */
CKPT_MUST_USE ckpt_code ckpt_cuda_launched(const char *what, ckpt_err *err);

/* *counters = *now, behind all work on the compute stream so far: ckpt_device_api.begin (counters.cu). */
CKPT_MUST_USE ckpt_code ckpt_cuda_set_counters(ckpt_cuda *cuda, ckpt_cuda_counters *counters,
                                               const ckpt_cuda_counters *now, ckpt_err *err);

/* to[i] += from[i] and to[i] = bfloat16(from[i]), for ckpt_device_api.add and .narrow (sum.cu). */
CKPT_MUST_USE ckpt_code ckpt_cuda_add(ckpt_cuda *cuda, ckpt_dtype dtype, void *to, const void *from, int64_t count,
                                      ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_cuda_narrow(ckpt_cuda *cuda, void *to, const float *from, int64_t count, ckpt_err *err);

/* For ckpt_device_api.square_sum and .clip_scale (clip.cu). */
CKPT_MUST_USE ckpt_code ckpt_cuda_square_sum(ckpt_cuda *cuda, const float *from, int64_t count, double *sum,
                                             void *workspace, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_cuda_clip_scale(ckpt_cuda *cuda, const double *sum, int64_t count, double base,
                                             double most, float *scale, ckpt_err *err);

/* sum[c] = (adds ? sum[c] : 0) + the sum over rows of x[r * columns + c], in a fixed order: bias gradients (sum.cu).
 * x: float32 or bfloat16. `workspace`: ckpt_gpu_column_sums_workspace(rows, columns) bytes (ops/op.h). */
CKPT_MUST_USE ckpt_code ckpt_cuda_column_sums(ckpt_cuda *cuda, ckpt_dtype dtype, int64_t rows, int64_t columns,
                                              const void *x, float *sum, bool adds, void *workspace, ckpt_err *err);

#endif
