/* The length of a gradient and what shortens it (ckpt_device_api.square_sum and .clip_scale). */
#ifndef CKPT_KERNELS_CPU_CLIP_H
#define CKPT_KERNELS_CPU_CLIP_H

#include <stdint.h>

/* The sum of the squares of from[0..count), in double: 64 parts, each over 8 lanes, in an order that depends on `count`
 * alone. 0 for none. */
double ckpt_clip_squares(int64_t count, const float *from, int threads);

/* base * min(1, most / (length + 1e-6)), length = base * sqrt(sum[0] + sum[1] + ...), in double. NaN where the length
 * is. */
float ckpt_clip_scale(const double *sum, int64_t count, double base, double most);

#endif
