/* The average of the weights behind their update: a = a + share (w - a). The first step's share is 1, so that the
 * average starts as the weights (ckpt_network_numbers). One pass that reads weight and average and writes the average. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    const float share = numbers->average;
    for (int k = 0; k < count; k++) {
        const float *const param = args[k].param;
        float *const average = args[k].average;
#pragma omp parallel for simd schedule(static) num_threads(args[k].threads) if (parallel                               \
                                                                                : args[k].count > CKPT_PARALLEL)
        for (int64_t i = 0; i < args[k].count; i++) {
            average[i] = average[i] + share * (param[i] - average[i]);
        }
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_average = {
    .optimizer = "average",
    .update = update,
};
