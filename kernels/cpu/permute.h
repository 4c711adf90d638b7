/* Copies elements into another order, for transpose and for reshape between rank 4 and other ranks. */
#ifndef CKPT_KERNELS_CPU_PERMUTE_H
#define CKPT_KERNELS_CPU_PERMUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/formats/tensor.h"

/* An index space and the strides of its elements on both sides. */
typedef struct ckpt_permutation {
    int rank;
    int64_t dim[CKPT_RANK_MAX], from_stride[CKPT_RANK_MAX], to_stride[CKPT_RANK_MAX];
} ckpt_permutation;

/* The same copy with the two sides exchanged. */
void ckpt_permutation_invert(ckpt_permutation *permutation);

/* to[index] = from[index], or += with `adds`, for every index. Both sides are dense. Elements are 4 bytes; without
 * `adds` their bits are copied. */
void ckpt_permute(const ckpt_permutation *permutation, const float *from, bool adds, float *to, int threads);

#endif
