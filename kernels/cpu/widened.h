/* Any op of a bfloat16 network by its float32 kernel (ops/widened.h). */
#ifndef CKPT_KERNELS_CPU_WIDENED_H
#define CKPT_KERNELS_CPU_WIDENED_H

#include "kernels/kernel.h"

/* In place of the kernel for a node with ckpt_node_widens. Not in the table of kernels. */
extern const ckpt_kernel ckpt_widened_kernel;

#endif
