/* Optimizers that update a parameter as a whole: what their definitions and kernels share of the layout of their state
 * and workspace. Offsets are multiples of CKPT_ALIGN. */
#ifndef CKPT_OPS_WHOLE_UPDATE_H
#define CKPT_OPS_WHOLE_UPDATE_H

#include "ops/optimizer.h"

/* Adafactor on a GPU. A task is one row, or CKPT_ADAFACTOR_TASK columns of it; a part is so many rows of a matrix. */
enum { CKPT_ADAFACTOR_TASK = 4096 };

typedef struct ckpt_adafactor_space {
    int64_t tasks, part_rows, parts;
    /* The sum of the parameter's squares (double) and, 8 bytes behind it, the factor of the step (float); a double per
     * task; a float per matrix, the mean of its rows' moments; [stack, parts, columns] floats; for sums of squares. */
    ckpt_bytes head, task, mean, column, square;
    ckpt_bytes bytes;
} ckpt_adafactor_space;
ckpt_adafactor_space ckpt_adafactor_space_of(const ckpt_matrix *matrix);

/* Is it a matrix for Muon, or AdamW's? */
bool ckpt_muon_takes(const ckpt_matrix *matrix);

/* Muon, of one matrix of the stack, which stands upright: [large, small], large >= small. Two such matrices, two of
 * [small, small], on a GPU the sum of squares (double) and what it takes. */
typedef struct ckpt_muon_space {
    int64_t large, small;
    bool turned; /* the parameter has fewer rows than columns */
    ckpt_bytes one, other, gram, product, sum, square;
    ckpt_bytes bytes;
} ckpt_muon_space;
ckpt_muon_space ckpt_muon_space_of(const ckpt_matrix *matrix, bool gpu);

/* AdamW in 8 bits: blocks of so many values have one scale. A parameter of fewer than CKPT_EIGHT_BIT_LEAST values keeps
 * floats. A slot: the bytes, and from `scale` on a float per block. */
enum { CKPT_EIGHT_BIT_BLOCK = 256, CKPT_EIGHT_BIT_LEAST = 4096 };
bool ckpt_eight_bit_takes(int64_t count);
int64_t ckpt_eight_bit_blocks(int64_t count);
ckpt_bytes ckpt_eight_bit_scale(int64_t count);

/* What a byte means, as a share of the block's scale (Dettmers et al., ICLR 2022, section 1.3, dynamic tree quantisation,
 * as bitsandbytes' create_dynamic_map makes it). 0 is 0, and the highest byte that is not negative is 1. Between them
 * byte c has n = 2^e cells (a signed map) or 2^(e + 1) (an unsigned one) in each decade e of seven: with k the cell,
 * 10^(e - 6) (0.1 + 0.9 (k + 1/2) / n). A signed map has the same below 0, from byte 129 on. */
float ckpt_eight_bit_value(int byte, bool is_signed);

#endif
