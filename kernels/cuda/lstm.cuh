/* The gates of an LSTM, in the order i, f, g, o, for lstm_cell and lstm. */
#ifndef CKPT_KERNELS_CUDA_LSTM_CUH
#define CKPT_KERNELS_CUDA_LSTM_CUH

#include "kernels/cuda/fast.cuh"

namespace
{
struct lstm_gates {
    float i, f, g, o;
};

struct lstm_next {
    float c, tanh_c, h;
};

struct lstm_slopes {
    float i, f, g, o, c; /* c: of the cell state before */
};

/* Applies the nonlinearities to the sums in `gates`, and makes the new state. before: the cell state, if there is one. */
__device__ inline lstm_next lstm_step(lstm_gates &gates, bool has_before, float before)
{
    gates.i = logistic<float>(gates.i);
    gates.f = logistic<float>(gates.f);
    gates.g = tanhf(gates.g);
    gates.o = logistic<float>(gates.o);
    lstm_next next;
    next.c = gates.i * gates.g + (has_before ? gates.f * before : 0.0f);
    next.tanh_c = tanhf(next.c);
    next.h = gates.o * next.tanh_c;
    return next;
}

/* Gradients of those sums and of the cell state before, from those of the new state. */
__device__ inline lstm_slopes lstm_back(const lstm_gates &gates, float tanh_c, float before, float from_h, float from_c)
{
    const float dcell = from_c + from_h * gates.o * (1.0f - tanh_c * tanh_c);
    lstm_slopes slope;
    slope.i = dcell * gates.g * (gates.i * (1.0f - gates.i));
    slope.f = dcell * before * (gates.f * (1.0f - gates.f));
    slope.g = dcell * gates.i * (1.0f - gates.g * gates.g);
    slope.o = from_h * tanh_c * (gates.o * (1.0f - gates.o));
    slope.c = dcell * gates.f;
    return slope;
}
} // namespace

#endif
