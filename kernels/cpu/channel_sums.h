/* Two sums per channel over rows of pixels, for batch norm and group norm. */
#ifndef CKPT_KERNELS_CPU_CHANNEL_SUMS_H
#define CKPT_KERNELS_CPU_CHANNEL_SUMS_H

#include <stdbool.h>
#include <stdint.h>

/* Over rows first .. end - 1 of x and dy [rows, channels], float32 or, if narrow, bfloat16: total[c] = sum of v, total[channels + c] = sum of
 * v (x - center[c]), v = dy, or x - center where dy is NULL. In float over blocks of rows, then in double. */
void ckpt_channel_sums(bool narrow, int64_t first, int64_t end, int64_t channels, const void *x, const void *dy,
                       const float *center, double *total);

#endif
