/* Matrix products and convolutions of bfloat16 by plain loops, for processors and shapes that oneDNN has no fast code
 * for. They take no workspace, sum in float32 and round once. Only onednn.c calls them.
 *
 * An element's sum goes in order, whatever the number of threads. */
#ifndef CKPT_KERNELS_CPU_PRODUCT16_H
#define CKPT_KERNELS_CPU_PRODUCT16_H

#include "kernels/cpu/onednn.h"

/* What ckpt_dnn_matmul, or with `convolves` ckpt_dnn_convolution, was given. */
typedef struct ckpt_product16 {
    ckpt_dnn_matrix x, w, y;
    bool bias, adds, convolves;
    ckpt_convolution shape;
    ckpt_dnn_direction direction;
} ckpt_product16;

/* `pointer` as ckpt_dnn_run has it. */
void ckpt_product16_run(const ckpt_product16 *p, const void *const pointer[4], int threads);

#endif
