/* The seed and step that dropout draws from, put on the device by one thread. Moves 16 bytes. */
#include "kernels/cuda/device.cuh"

namespace
{

__global__ void counters_set(ckpt_cuda_counters *counters, uint64_t seed, uint64_t step)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        counters->seed = seed;
        counters->step = step;
    }
}

} // namespace

extern "C" ckpt_code ckpt_cuda_set_counters(ckpt_cuda *cuda, ckpt_cuda_counters *counters, uint64_t seed, uint64_t step,
                                            ckpt_err *err)
{
    CKPT_LAUNCH(cuda, counters_set, 1, 32, 0, counters, seed, step);
    return ckpt_cuda_launched("setting seed and step", err);
}
