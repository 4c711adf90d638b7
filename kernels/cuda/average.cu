/* The average of the weights behind their update, as kernels/cpu/average.c: 12 bytes a parameter and 3 operations, bound
 * by memory. To update.cuh the average is the parameter and the weight is the gradient. */
#include "kernels/cuda/update.cuh"

namespace
{
struct average_rule {
    enum { STATES = 0, OF_AVERAGE = 1 };
    const ckpt_cuda_counters *counters;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        (void)number, (void)decay, (void)state;
        *param = *param + counters->numbers.average * (grad - *param);
    }
};
} // namespace

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    average_rule rule = {};
    rule.counters = ((const ckpt_cuda *)args->context)->counters;
    update_all(args, count, rule);
    return ckpt_cuda_launched("average of the weights", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_average = {
    .optimizer = "average",
    .update = update,
};
