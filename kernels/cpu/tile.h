/* Small matrix products inside one thread, for attention. */
#ifndef CKPT_KERNELS_CPU_TILE_H
#define CKPT_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* c[m x n] = (adds ? c : 0) + a[m x k] b[k x n]. Element (i, j) of a is at i * a_row + j * a_column; rows of b and c
 * are b_row and c_row apart. Every element is one chain of additions over k in order (fused where the processor can), so its bits
 * do not depend on its position in the tile. No operand overlaps c. */
void ckpt_tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                       int64_t b_row, float *c, int64_t c_row, bool adds);

#endif
