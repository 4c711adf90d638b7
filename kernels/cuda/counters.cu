/* One thread writes the seed and step of dropout, and the numbers that updates read, to the device: some hundred bytes. */
#include "kernels/cuda/device.cuh"

namespace
{

__global__ void counters_set(ckpt_cuda_counters *counters, ckpt_cuda_counters now)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *counters = now;
    }
}

} // namespace

extern "C" ckpt_code ckpt_cuda_set_counters(ckpt_cuda *cuda, ckpt_cuda_counters *counters,
                                            const ckpt_cuda_counters *now, ckpt_err *err)
{
    CKPT_LAUNCH(cuda, counters_set, 1, 32, 0, counters, *now);
    return ckpt_cuda_launched("setting seed, step and numbers", err);
}
