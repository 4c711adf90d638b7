/* Adam and AdamW in one pass over parameter, gradient and both moments, which also writes the bfloat16 copy: 28 bytes a
 * parameter, 30 with the copy, and about 15 operations: bound by memory. The formulas and their order are those of
 * kernels/cpu/adam.c; products and sums that follow each other are one fused operation here, rounded once instead of
 * twice, so that results differ in the last places. The step comes from the device's counter, because a recorded step
 * is replayed with the arguments of the first; the corrections for the moments' start at zero are worked out from it in
 * double by one thread of each block. */
#include "kernels/cuda/wide.cuh"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };
enum { THREADS = 256, PACK = 4 };

struct adam_hyper {
    double lr, beta1, beta2;
    float stay, pull; /* what decoupled decay leaves of a parameter; decay that is added to the gradient */
    float part1, part2, rest1, rest2, eps;
};

/* `size` and `root` are of this step: lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t). */
__device__ static void adam_value(const adam_hyper &hyper, float size, float root, float scale, float grad,
                                  float *param, float *mean, float *square)
{
    const float w = *param * hyper.stay;
    const float g = product_of(grad, scale) + hyper.pull * w;
    const float m = hyper.part1 * *mean + hyper.rest1 * g;
    const float v = hyper.part2 * *square + hyper.rest2 * g * g;
    *mean = m;
    *square = v;
    *param = w - size * m / (sqrtf(v) * root + hyper.eps);
}

/* factor: what gradients are multiplied by, NULL for 1. */
template <int N>
__global__ void adam_step(int64_t count, adam_hyper hyper, const ckpt_cuda_counters *counters, const float *factor,
                          const float *grad, float *mean, float *square, float *param, bf16 *param16)
{
    __shared__ float correction[2];
    if (threadIdx.x == 0) {
        const double step = (double)(counters->step + 1);
        correction[0] = (float)(hyper.lr / (1.0 - pow(hyper.beta1, step)));
        correction[1] = (float)(1.0 / sqrt(1.0 - pow(hyper.beta2, step)));
    }
    __syncthreads();
    const float size = correction[0], root = correction[1], scale = factor != NULL ? *factor : 1.0f;
    const int64_t packs = count / N;
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const wide<float, N> g = load_wide<N>(grad + i * N);
        wide<float, N> m = load_wide<N>(mean + i * N), v = load_wide<N>(square + i * N);
        wide<float, N> w = load_wide<N>(param + i * N);
        for (int j = 0; j < N; j++) {
            adam_value(hyper, size, root, scale, g.at[j], &w.at[j], &m.at[j], &v.at[j]);
        }
        store_wide<N>(mean + i * N, m);
        store_wide<N>(square + i * N, v);
        store_wide<N>(param + i * N, w);
        if (param16 != NULL) {
            put_wide<N>(param16 + i * N, w, false);
        }
    }
    /* What is behind the last whole pack: the bytes behind the end are not ours. */
    const int64_t last = packs * N + first_item();
    if (last < count) {
        adam_value(hyper, size, root, scale, grad[last], param + last, mean + last, square + last);
        if (param16 != NULL) {
            param16[last] = from_float<bf16>(param[last]);
        }
    }
}

template <int N> static void start(const ckpt_update_args *args, const adam_hyper &hyper)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    CKPT_LAUNCH(cuda, adam_step<N>, grid_for(cuda, args->count / N, THREADS), THREADS, 0, args->count, hyper,
                cuda->counters, args->scale, args->grad, args->slot[0], args->slot[1], args->param,
                (bf16 *)args->param16);
}

static ckpt_code step_all(const ckpt_update_args *args, double keep, double shrink, ckpt_err *err)
{
    const double *const value = args->hyper;
    adam_hyper hyper = {};
    hyper.lr = value[LR];
    hyper.beta1 = value[BETA1];
    hyper.beta2 = value[BETA2];
    hyper.stay = (float)keep;
    hyper.pull = (float)shrink;
    hyper.part1 = (float)value[BETA1];
    hyper.part2 = (float)value[BETA2];
    hyper.rest1 = (float)(1.0 - value[BETA1]);
    hyper.rest2 = (float)(1.0 - value[BETA2]);
    hyper.eps = (float)value[EPS];
    const bool packs = starts_pack(args->grad, 16) && starts_pack(args->param, 16) && starts_pack(args->param16, 8) &&
                       starts_pack(args->slot[0], 16) && starts_pack(args->slot[1], 16);
    packs ? start<PACK>(args, hyper) : start<1>(args, hyper);
    return ckpt_cuda_launched("adam", err);
}

static ckpt_code adam(const ckpt_update_args *args, ckpt_err *err)
{
    return step_all(args, 1.0, args->decay ? args->hyper[WEIGHT_DECAY] : 0.0, err);
}

static ckpt_code adamw(const ckpt_update_args *args, ckpt_err *err)
{
    return step_all(args, args->decay ? 1.0 - args->hyper[LR] * args->hyper[WEIGHT_DECAY] : 1.0, 0.0, err);
}

CKPT_TABLE_ENTRY const ckpt_optimizer_kernel ckpt_cuda_adam;
const ckpt_optimizer_kernel ckpt_cuda_adam = {
    .optimizer = "adam",
    .update = adam,
};

CKPT_TABLE_ENTRY const ckpt_optimizer_kernel ckpt_cuda_adamw;
const ckpt_optimizer_kernel ckpt_cuda_adamw = {
    .optimizer = "adamw",
    .update = adamw,
};
