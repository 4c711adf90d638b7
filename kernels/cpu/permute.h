/* Copies between two orders of the same elements: what transpose does, and reshape where rank 4 meets other ranks. */
#ifndef CKPT_KERNELS_CPU_PERMUTE_H
#define CKPT_KERNELS_CPU_PERMUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/formats/tensor.h"

/* An index space and where its elements lie on both sides. */
typedef struct ckpt_permutation {
    int rank;
    int64_t dim[CKPT_RANK_MAX], from_stride[CKPT_RANK_MAX], to_stride[CKPT_RANK_MAX];
} ckpt_permutation;

/* The same copy with the two sides exchanged. */
void ckpt_permutation_invert(ckpt_permutation *permutation);

/* to[index] = from[index], or += with `adds`, for every index. Both sides are dense. Elements are 4 bytes and moved
 * as they are when not added. */
void ckpt_permute(const ckpt_permutation *permutation, const float *from, bool adds, float *to, int threads);

#endif
