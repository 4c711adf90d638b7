#include "kernels/cpu/update.h"

#include "kernels/cpu/vector.h"

void ckpt_update_blocks(const ckpt_update_args *args, const void *rule, ckpt_update_step *step)
{
    const int64_t count = args->count;
#pragma omp parallel for schedule(static) num_threads(args->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        const int64_t first = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        step(args, rule, first, n);
        ckpt_update_copy(args, first, n);
    }
}
