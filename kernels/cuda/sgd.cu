/* SGD in one pass over parameter, gradient and velocity, which also writes the bfloat16 copy: 12 bytes a parameter, 20
 * with momentum, 2 more for the copy, and at most 8 operations: bound by memory. The formulas and their order are those
 * of kernels/cpu/sgd.c; products and sums that follow each other are one fused operation here, so that results differ
 * in the last places. */
#include "kernels/cuda/wide.cuh"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };
enum { THREADS = 256, PACK = 4 };

struct sgd_hyper {
    float lr, momentum, shrink;
    bool nesterov;
};

/* velocity: NULL without momentum. */
__device__ static void sgd_value(const sgd_hyper &hyper, float scale, float grad, float *param, float *velocity)
{
    const float g = product_of(grad, scale) + hyper.shrink * *param;
    float direction = g;
    if (velocity != NULL) {
        const float v = hyper.momentum * *velocity + g;
        *velocity = v;
        direction = hyper.nesterov ? g + hyper.momentum * v : v;
    }
    *param -= hyper.lr * direction;
}

/* factor: what gradients are multiplied by, NULL for 1. */
template <bool MOMENTUM_KEPT, int N>
__global__ void sgd_step(int64_t count, sgd_hyper hyper, const float *factor, const float *grad, float *velocity,
                         float *param, bf16 *param16)
{
    const float scale = factor != NULL ? *factor : 1.0f;
    const int64_t packs = count / N;
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const wide<float, N> g = load_wide<N>(grad + i * N);
        wide<float, N> w = load_wide<N>(param + i * N), v = {};
        if (MOMENTUM_KEPT) {
            v = load_wide<N>(velocity + i * N);
        }
        for (int j = 0; j < N; j++) {
            sgd_value(hyper, scale, g.at[j], &w.at[j], MOMENTUM_KEPT ? &v.at[j] : NULL);
        }
        if (MOMENTUM_KEPT) {
            store_wide<N>(velocity + i * N, v);
        }
        store_wide<N>(param + i * N, w);
        if (param16 != NULL) {
            put_wide<N>(param16 + i * N, w, false);
        }
    }
    /* What is behind the last whole pack: the bytes behind the end are not ours. */
    const int64_t last = packs * N + first_item();
    if (last < count) {
        sgd_value(hyper, scale, grad[last], param + last, MOMENTUM_KEPT ? velocity + last : NULL);
        if (param16 != NULL) {
            param16[last] = from_float<bf16>(param[last]);
        }
    }
}

template <bool MOMENTUM_KEPT, int N> static void start(const ckpt_update_args *args, const sgd_hyper &hyper)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    CKPT_LAUNCH(cuda, (sgd_step<MOMENTUM_KEPT, N>), grid_for(cuda, args->count / N, THREADS), THREADS, 0, args->count,
                hyper, args->scale, args->grad, MOMENTUM_KEPT ? args->slot[0] : (float *)NULL, args->param,
                (bf16 *)args->param16);
}

static ckpt_code update(const ckpt_update_args *args, ckpt_err *err)
{
    const double *const value = args->hyper;
    sgd_hyper hyper = {};
    hyper.lr = (float)value[LR];
    hyper.momentum = (float)value[MOMENTUM];
    hyper.shrink = args->decay ? (float)value[WEIGHT_DECAY] : 0.0f;
    hyper.nesterov = value[NESTEROV] != 0.0;
    const bool keeps = value[MOMENTUM] > 0.0;
    const bool packs = starts_pack(args->grad, 16) && starts_pack(args->param, 16) && starts_pack(args->param16, 8) &&
                       (!keeps || starts_pack(args->slot[0], 16));
    if (keeps) {
        packs ? start<true, PACK>(args, hyper) : start<true, 1>(args, hyper);
    } else {
        packs ? start<false, PACK>(args, hyper) : start<false, 1>(args, hyper);
    }
    return ckpt_cuda_launched("sgd", err);
}

CKPT_TABLE_ENTRY const ckpt_optimizer_kernel ckpt_cuda_sgd;
const ckpt_optimizer_kernel ckpt_cuda_sgd = {
    .optimizer = "sgd",
    .update = update,
};
