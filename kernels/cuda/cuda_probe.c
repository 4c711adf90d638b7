/* Asks the CUDA runtime for its devices through the C API. The convention that would surprise: without a driver
 * cudaGetDeviceCount fails and leaves its output untouched, so the count starts at 0 and the code decides. */
#include "kernels/cuda/cuda_probe.h"

#include <cuda_runtime_api.h>

ckpt_code ckpt_cuda_probe(int index, ckpt_err *err)
{
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || count == 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: no CUDA device found (%s)", index,
                         found != cudaSuccess ? cudaGetErrorString(found) : "the driver reports none");
    }
    if (index >= count) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: found %d CUDA device%s, cuda:0 to cuda:%d", index, count,
                         count == 1 ? "" : "s", count - 1);
    }
    struct cudaDeviceProp properties;
    const cudaError_t read = cudaGetDeviceProperties(&properties, index);
    return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: %s found, but the CUDA kernels are not part of this version",
                     index, read == cudaSuccess ? properties.name : "a CUDA device");
}
