/* What batch norm and layer norm share: their backward from the output, which undoes y = w xhat + b. */
#ifndef CKPT_KERNELS_CPU_AFFINE_H
#define CKPT_KERNELS_CPU_AFFINE_H

#include "kernels/kernel.h"

/* In the way "output": is no weight 0? The weight is parameter 0, of `count` numbers. Errors: CKPT_BAD_INPUT. */
static inline ckpt_code ckpt_affine_inverts(const ckpt_kernel_args *args, int64_t count, ckpt_err *err)
{
    for (int64_t c = 0; ckpt_way_is(args->way, "output") && c < count; c++) {
        if (args->param[0][c] == 0.0f) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "weight %lld is 0, so backward cannot be computed from the output: plan without inexact "
                             "variants",
                             (long long)c);
        }
    }
    return CKPT_OK;
}

#endif
