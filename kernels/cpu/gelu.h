/* GELU of a tile that stays in the first-level cache, for gelu and geglu. */
#ifndef CKPT_KERNELS_CPU_GELU_H
#define CKPT_KERNELS_CPU_GELU_H

#include "ops/op.h"

enum { CKPT_GELU_TILE = 512 };

typedef enum ckpt_gelu_form { CKPT_GELU_ERF, CKPT_GELU_TANH, CKPT_GELU_SIGMOID } ckpt_gelu_form;

/* By the attribute "approximate". */
ckpt_gelu_form ckpt_gelu_form_of(const ckpt_node *node);

/* y = gelu(x) and slope = dy/dx of n <= CKPT_GELU_TILE numbers. One of them may be NULL, and y may be x then. */
void ckpt_gelu_tile(ckpt_gelu_form form, int64_t n, const float *x, float *y, float *slope);

#endif
