/* Matrix products and convolutions by oneDNN, as prepared calls. Only onednn.c includes oneDNN itself.
 *
 * A call is created once, from shapes, and run any number of times on any addresses. Its temporaries (weights in the
 * library's blocked order, scratchpads) are in a workspace that the caller gives. While a call runs, oneDNN still takes
 * under 4 KB of heap for a table of arguments and frees it before the call returns. For a few calls it only has code on
 * top of its own sgemm (products without AVX-512; padding as wide as the filter, some strides beyond 2, with groups also
 * gradients with dilation and a stride or of dilated volumes), which packs into tens to hundreds of kilobytes of heap. */
#ifndef CKPT_KERNELS_CPU_ONEDNN_H
#define CKPT_KERNELS_CPU_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/units.h"
#include "ops/convolution.h"

typedef struct ckpt_dnn ckpt_dnn;

/* Element (r, c) is at r * row_stride + c * column_stride; one of the strides is 1. */
typedef struct ckpt_dnn_matrix {
    int64_t rows, columns, row_stride, column_stride; /* elements */
    ckpt_dtype dtype;
} ckpt_dnn_matrix;

/* Rows one behind the other, and the transpose of that. */
static inline ckpt_dnn_matrix ckpt_dnn_plain(int64_t rows, int64_t columns, ckpt_dtype dtype)
{
    return (ckpt_dnn_matrix){rows, columns, columns, 1, dtype};
}
static inline ckpt_dnn_matrix ckpt_dnn_turned(int64_t rows, int64_t columns, ckpt_dtype dtype)
{
    return (ckpt_dnn_matrix){columns, rows, 1, columns, dtype};
}

/* Creates y = x w with the pointers x, w, y, bias (of w's type, added to every row; NULL: none). x and w have one type; of
 * bfloat16 ones y is bfloat16, rounded once, or float32. Sums are float32. Products of bfloat16 that the library has no
 * fast code for are plain loops without a workspace ("plain", kernels/cpu/product16.h).
 *
 *   adds      y += x w instead
 *   threads   that will run it; results depend on their number
 *   limit     the most bytes of workspace; -1: no limit
 *
 * Errors: CKPT_DEVICE (the library refuses, or a size is beyond int), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_dnn_matmul(const ckpt_dnn_matrix *x, const ckpt_dnn_matrix *w, const ckpt_dnn_matrix *y,
                                        bool bias, bool adds, int threads, ckpt_bytes limit, ckpt_dnn **dnn,
                                        ckpt_err *err);

/* Pointers of FORWARD: x, w, y, bias. INPUT_GRADIENT: dx, w, dy. WEIGHT_GRADIENT: x, dw, dy, dbias. x and y are channels
 * last, weights [out, in / groups, depth, height, width] as written. */
typedef enum ckpt_dnn_direction {
    CKPT_DNN_FORWARD,
    CKPT_DNN_INPUT_GRADIENT,
    CKPT_DNN_WEIGHT_GRADIENT
} ckpt_dnn_direction;

/* Creates the library's fastest convolution whose temporaries fit `limit` (-1: no limit). Errors: as
 * ckpt_dnn_matmul. */
CKPT_MUST_USE ckpt_code ckpt_dnn_convolution(const ckpt_convolution *shape, ckpt_dnn_direction direction, int threads,
                                             ckpt_bytes limit, ckpt_dnn **dnn, ckpt_err *err);

/* The same by Winograd's minimal filtering F(4x4, 3x3), for 3 x 3 filters without stride and groups and channels that are
 * multiples of 16: 36 multiplications where the definition has 144 (Lavin, Gray, CVPR 2016), other rounding, and the
 * images reordered in the workspace. CKPT_DEVICE: the library has none for this shape or processor. */
CKPT_MUST_USE ckpt_code ckpt_dnn_winograd(const ckpt_convolution *shape, ckpt_dnn_direction direction, int threads,
                                          ckpt_dnn **dnn, ckpt_err *err);

void ckpt_dnn_destroy(ckpt_dnn *dnn); /* NULL is fine */

/* Bytes of workspace of a run; the algorithm's name in oneDNN. */
ckpt_bytes ckpt_dnn_workspace(const ckpt_dnn *dnn);
const char *ckpt_dnn_algorithm(const ckpt_dnn *dnn);

/* Runs the call. `pointer` is in the order given above. `workspace` is CKPT_ALIGN aligned; NULL if none is used. */
CKPT_MUST_USE ckpt_code ckpt_dnn_run(const ckpt_dnn *dnn, const void *const pointer[4], void *workspace, ckpt_err *err);

const char *ckpt_dnn_version(void); /* "oneDNN 2.6.3"; static */

#endif
