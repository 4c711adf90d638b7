/* The pass of an optimizer that works value by value. */
#ifndef CKPT_KERNELS_CPU_UPDATE_H
#define CKPT_KERNELS_CPU_UPDATE_H

#include "kernels/cpu/bfloat16.h"
#include "kernels/kernel.h"

/* Updates values first .. first + n - 1 of a parameter. `rule` is the caller's. */
typedef void ckpt_update_step(const ckpt_update_args *args, const void *rule, int64_t first, int64_t n);

/* Runs `step` on all values, block by block on threads, and writes the bfloat16 copy of each block, if one is wanted, while
 * the block is in the cache. */
void ckpt_update_blocks(const ckpt_update_args *args, const void *rule, ckpt_update_step *step);

/* Writes the bfloat16 copy of such values, if one is wanted. */
static inline void ckpt_update_copy(const ckpt_update_args *args, int64_t first, int64_t n)
{
    if (args->param16 != NULL) {
        ckpt_narrow(n, args->param + first, (uint16_t *)args->param16 + first);
    }
}

#endif
