/* Sums of the columns of a matrix, for bias gradients. */
#ifndef CKPT_KERNELS_CPU_COLUMN_SUMS_H
#define CKPT_KERNELS_CPU_COLUMN_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/formats/tensor.h"

/* x: float32 or bfloat16. sum[c] = (adds ? sum[c] : 0) + the sum over rows of x[r * columns + c]. Rows are summed in blocks, and blocks in
 * order. The thread count changes no bit: each column belongs to one thread. */
void ckpt_column_sums(ckpt_dtype dtype, int64_t rows, int64_t columns, const void *x, float *sum, bool adds,
                      int threads);

#endif
