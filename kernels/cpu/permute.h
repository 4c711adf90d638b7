/* Copies elements to other places: transpose, reshape between rank 4 and other ranks, slice, pad, roll, tile. */
#ifndef CKPT_KERNELS_CPU_PERMUTE_H
#define CKPT_KERNELS_CPU_PERMUTE_H

#include "kernels/walk.h"

/* to = the walk's elements of `from`, or += with `adds`. Elements are 4 bytes; without `adds` and with a factor of 1
 * their bits are copied. */
void ckpt_permute(const ckpt_walk *walk, const float *from, bool adds, float *to, int threads);

#endif
