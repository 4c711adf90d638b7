/* GRU over sequences (recurrent.cuh), with gates in the order r, z, n. Kept is what the state contributes to n before r. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/recurrent.cuh"

namespace
{
struct gru_rule {
    enum { gates = 3, apart = true };

    /* in: what the input contributes, then the gates; state: what the state before does. */
    static __device__ void forward(float *in, const float *state, float before, float, float &kept, float &h)
    {
        const float r = logistic<float>(in[0] + state[0]), z = logistic<float>(in[1] + state[1]);
        const float n = tanhf(in[2] + r * state[2]);
        in[0] = r;
        in[1] = z;
        in[2] = n;
        kept = state[2];
        h = n + z * (before - n);
    }

    /* x, s: gradients of both contributions. The result goes to the state before past the gates. */
    static __device__ float backward(const float *own, float kept, float before, float, float from_h, float &, float *x,
                                     float *s)
    {
        const float r = own[0], z = own[1], n = own[2];
        const float dn = from_h * (1.0f - z) * (1.0f - n * n);
        x[0] = s[0] = dn * kept * (r * (1.0f - r));
        x[1] = s[1] = from_h * (before - n) * (z * (1.0f - z));
        x[2] = dn;
        s[2] = dn * r;
        return from_h * z;
    }
};
} // namespace

extern "C" const ckpt_kernel ckpt_cuda_gru = {
    .op = "gru",
    .state_bytes = sizeof(recurrent_state),
    .prepare = recurrent_prepare,
    .release = recurrent_release,
    .workspace = recurrent_workspace,
    .choice = recurrent_choice,
    .tune = recurrent_tune<gru_rule>,
    .forward = recurrent_run_forward<gru_rule>,
    .backward = recurrent_run_backward<gru_rule>,
};
