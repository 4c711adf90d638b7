/* Sines and cosines of a diffusion's steps: a few thousand numbers, so that only the launch takes time. Frequencies and
 * whole turns are taken in double. */
#include "kernels/cuda/turns.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
enum { WARPS = 4 };

struct timestep_shape {
    int64_t batch, features, half;
    int64_t sines, cosines; /* the first feature of each */
    double fall;            /* of ln frequency, from one to the next */
};

constexpr double turns_in_radian = 0.15915494309189533577;
} // namespace

template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS) timestep_forward(int64_t items, timestep_shape s, const T *x, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient q = divide(item, s.half);
        const int64_t b = q.whole, i = q.rest;
        const double turns = (double)to_float(x[b]) * exp(-s.fall * (double)i) * turns_in_radian;
        const float2 angle = turned_by(turns);
        y[b * s.features + s.sines + i] = from_float<T>(angle.y);
        y[b * s.features + s.cosines + i] = from_float<T>(angle.x);
        if (i == 0 && s.features > 2 * s.half) {
            y[b * s.features + 2 * s.half] = from_float<T>(0.0f);
        }
    }
}

/* A warp for each step. */
template <typename T>
__global__ void __launch_bounds__(32 * WARPS)
    timestep_backward(timestep_shape s, const T *x, const T *dy, T *dx, bool adds)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int64_t b = (int64_t)blockIdx.x * WARPS + warp; b < s.batch; b += (int64_t)gridDim.x * WARPS) {
        const T *const sines = dy + b * s.features + s.sines, *const cosines = dy + b * s.features + s.cosines;
        float sum = 0;
        for (int64_t i = lane; i < s.half; i += 32) {
            const double frequency = exp(-s.fall * (double)i);
            const float2 angle = turned_by((double)to_float(x[b]) * frequency * turns_in_radian);
            sum += (float)frequency * (angle.x * to_float(sines[i]) - angle.y * to_float(cosines[i]));
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            dx[b] = from_float<T>(adds ? to_float(dx[b]) + sum : sum);
        }
    }
}

static timestep_shape shape_of(const ckpt_node *node)
{
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t half = y->dim[1] / 2;
    const bool flip = ckpt_node_bool(node, "flip");
    return {y->dim[0], y->dim[1], half, flip ? half : 0, flip ? 0 : half, ckpt_timestep_fall(node)};
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const timestep_shape s = shape_of(args->node);
    CKPT_LAUNCH_ITEMS(cuda_of(args), timestep_forward<T>, s.batch * s.half, s, (const T *)args->in[0],
                      (T *)args->out[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const timestep_shape s = shape_of(args->node);
    CKPT_LAUNCH(cuda_of(args), timestep_backward<T>, grid_for(cuda_of(args), s.batch, WARPS), 32 * WARPS, 0, s,
                (const T *)args->in[0], (const T *)args->grad_out[0], (T *)args->grad_in[0],
                (args->grad_in_adds & 1) != 0);
}

extern "C" const ckpt_kernel ckpt_cuda_timestep_embedding = {
    .op = "timestep_embedding",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
