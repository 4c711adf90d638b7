/* LSTM over sequences (recurrent.cuh). The cell states are kept; tanh of them is made again. */
#include "kernels/cuda/lstm.cuh"
#include "kernels/cuda/recurrent.cuh"

namespace
{
struct lstm_rule {
    enum { gates = 4, apart = false };

    /* in: what the input contributes, then the gates; state: what the state before does. A cell state that is not there
     * is 0. */
    static __device__ void forward(float *in, const float *state, float, float before, float &kept, float &h)
    {
        lstm_gates gate = {in[0] + state[0], in[1] + state[1], in[2] + state[2], in[3] + state[3]};
        const lstm_next next = lstm_step(gate, true, before);
        in[0] = gate.i;
        in[1] = gate.f;
        in[2] = gate.g;
        in[3] = gate.o;
        kept = next.c;
        h = next.h;
    }

    /* x, s: gradients of both contributions. The result goes to the state before past the gates. */
    static __device__ float backward(const float *own, float kept, float, float before, float from_h, float &dc,
                                     float *x, float *s)
    {
        const lstm_gates gate = {own[0], own[1], own[2], own[3]};
        const lstm_slopes slope = lstm_back(gate, tanhf(kept), before, from_h, dc);
        x[0] = s[0] = slope.i;
        x[1] = s[1] = slope.f;
        x[2] = s[2] = slope.g;
        x[3] = s[3] = slope.o;
        dc = slope.c;
        return 0.0f;
    }
};
} // namespace

extern "C" const ckpt_kernel ckpt_cuda_lstm = {
    .op = "lstm",
    .state_bytes = sizeof(recurrent_state),
    .prepare = recurrent_prepare,
    .release = recurrent_release,
    .workspace = recurrent_workspace,
    .choice = recurrent_choice,
    .tune = recurrent_tune<lstm_rule>,
    .forward = recurrent_run_forward<lstm_rule>,
    .backward = recurrent_run_backward<lstm_rule>,
};
