/* What a tensor is: an element type, a shape, and where its elements lie.
 *
 * The convention that would surprise: a tensor of rank 4 is written [N, C, H, W] in model files and messages, and
 * lies in memory as N, H, W, C (channels last). Every other rank lies as written, last dimension fastest. */
#ifndef CKPT_CORE_FORMATS_TENSOR_H
#define CKPT_CORE_FORMATS_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/units.h"

enum {
    CKPT_RANK_MAX = 6,
    CKPT_SHAPE_TEXT = 160,
    /* Every buffer of a lowered model is a multiple of this long, so that any packing keeps every tensor aligned
     * for vector loads and a cache line is never shared. */
    CKPT_ALIGN = 64,
};

typedef enum ckpt_dtype { CKPT_FLOAT32 = 0, CKPT_INT32, CKPT_BFLOAT16, CKPT_UINT8 } ckpt_dtype;

/* rank 0 is a scalar: one element. Every dim >= 1. */
typedef struct ckpt_shape {
    int rank;
    int64_t dim[CKPT_RANK_MAX]; /* elements */
} ckpt_shape;

typedef struct ckpt_tensor {
    const char *name;
    ckpt_dtype dtype;
    ckpt_shape shape;
    /* Elements from one row (along the last dim) to the next, more than a row has; 0: rows lie without gaps. Only a
     * value on a GPU has a pitch, and never one of rank 0 or 4 (ckpt_node_pitch in ops/op.h). */
    int64_t pitch;
} ckpt_tensor;

const char *ckpt_dtype_name(ckpt_dtype dtype);
ckpt_bytes ckpt_dtype_bytes(ckpt_dtype dtype);
bool ckpt_dtype_is_float(ckpt_dtype dtype); /* gradients exist */

/* The bfloat16 nearest to x (ties to even; NaN stays NaN), as its 16 bits, and back. */
uint16_t ckpt_bfloat16_of(float x);
float ckpt_bfloat16_value(uint16_t bits);
/* What the 16 bits of an IEEE 754 binary16 stand for. */
float ckpt_float16_value(uint16_t bits);

/* Elements; CKPT_OVERFLOW beyond 2^62 bytes. ckpt_shape_count is for shapes already checked. */
CKPT_MUST_USE ckpt_code ckpt_shape_check(const ckpt_shape *shape, ckpt_dtype dtype, ckpt_err *err);
int64_t ckpt_shape_count(const ckpt_shape *shape);
/* What it takes in memory, gaps between rows included: elements, and bytes (not rounded up). */
int64_t ckpt_tensor_room(const ckpt_tensor *tensor);
ckpt_bytes ckpt_tensor_bytes(const ckpt_tensor *tensor);
bool ckpt_shape_equal(const ckpt_shape *a, const ckpt_shape *b);

/* stride[d] = elements between neighbours along dim d, by the convention above. */
void ckpt_shape_strides(const ckpt_shape *shape, int64_t stride[CKPT_RANK_MAX]);

/* "[8, 256, 384]" into `text` (CKPT_SHAPE_TEXT bytes), given back. */
const char *ckpt_shape_show(const ckpt_shape *shape, char *text);

#endif
