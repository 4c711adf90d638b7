/* Sums over dims of a tensor: sum, mean and the backward of tile. */
#ifndef CKPT_KERNELS_CPU_REDUCE_H
#define CKPT_KERNELS_CPU_REDUCE_H

#include "ops/reduction.h"

/* y = the sums of x divided by `divisor`, or y += with `adds`. The order of a sum follows from the reduction alone.
 * `workspace`: ckpt_reduction_workspace of floats. */
void ckpt_reduce_sum(const ckpt_reduction *r, const float *x, float divisor, bool adds, float *y, void *workspace,
                     int threads);

#endif
