/* The sum of losses, which are a few numbers: one thread. Backward hands each the gradient of the sum, in increasing
 * order of the inputs, because two of them may be one buffer. */
#include "kernels/cuda/loss.cuh"

namespace
{
/* Passed by value. */
struct total_places {
    int count;
    uint64_t adds;
    float *at[CKPT_IN_MAX]; /* backward: NULL where not wanted */
};
} // namespace

static __global__ void total_forward(total_places x, float *loss)
{
    float sum = 0.0f;
    for (int k = 0; k < x.count; k++) {
        sum += *x.at[k];
    }
    *loss = sum;
}

static __global__ void total_backward(total_places dx, const float *grad)
{
    const float gradient = loss_gradient(grad);
    for (int k = 0; k < dx.count; k++) {
        if (dx.at[k] != NULL) {
            *dx.at[k] = (dx.adds >> k & 1) != 0 ? *dx.at[k] + gradient : gradient;
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    total_places x = {.count = args->node->in_count, .adds = 0, .at = {}};
    for (int k = 0; k < x.count; k++) {
        x.at[k] = (float *)args->in[k];
    }
    CKPT_LAUNCH(cuda_of(args), total_forward, 1, 1, 0, x, (float *)args->out[0]);
    return ckpt_cuda_launched("total", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    total_places dx = {.count = args->node->in_count, .adds = args->grad_in_adds, .at = {}};
    for (int k = 0; k < dx.count; k++) {
        dx.at[k] = (float *)args->grad_in[k];
    }
    CKPT_LAUNCH(cuda_of(args), total_backward, 1, 1, 0, dx, (const float *)args->grad_out[0]);
    return ckpt_cuda_launched("total backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_total = {
    .op = "total",
    .forward = forward,
    .backward = backward,
};
