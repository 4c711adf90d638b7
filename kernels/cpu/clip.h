/* The norm of a gradient and the factor that clips it (ckpt_device_api.square_sum and .clip_scale). */
#ifndef CKPT_KERNELS_CPU_CLIP_H
#define CKPT_KERNELS_CPU_CLIP_H

#include <stdint.h>

/* The sum of the squares of from[0..count), in double: 64 parts of 8 lanes each, in an order that depends only on
 * `count`. count 0: 0. */
double ckpt_clip_squares(int64_t count, const float *from, int threads);

/* base * min(1, most / (norm + 1e-6)), norm = base * sqrt(sum[0] + sum[1] + ...), in double. NaN if the norm is NaN. */
float ckpt_clip_scale(const double *sum, int64_t count, double base, double most);

#endif
