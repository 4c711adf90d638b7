/* Matrix products of bfloat16 by plain loops, for processors and shapes that oneDNN has no fast code for. Only onednn.c
 * calls them. */
#ifndef CKPT_KERNELS_CPU_PRODUCT16_H
#define CKPT_KERNELS_CPU_PRODUCT16_H

#include "kernels/cpu/onednn.h"

typedef struct ckpt_product16 {
    ckpt_dnn_matrix x, w, y; /* as ckpt_dnn_matmul takes them */
    bool bias, adds;
} ckpt_product16;

/* y = or += x w + bias, in float32, rounded once. An element's sum goes in order, whatever the number of threads. */
void ckpt_product16_run(const ckpt_product16 *p, const void *x, const void *w, void *y, const void *bias, int threads);

#endif
