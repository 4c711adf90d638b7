/* Matrix products by cuBLASLt, as prepared calls. A product is created once from its shape. Its algorithm is chosen or
 * named once, fits the given workspace, is the same for all addresses that are multiples of 16 bytes, and is kept, so
 * that a recomputation gives the same bits. Only blas.c includes cuBLASLt. */
#ifndef CKPT_KERNELS_CUDA_BLAS_H
#define CKPT_KERNELS_CUDA_BLAS_H

#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"

typedef struct ckpt_blas_product ckpt_blas_product;

/* y[rows x columns] = (adds ? y : 0) + x[rows x inner] w[inner x columns] + bias[columns].
 * Row-major; a stride is the number of elements from one row to the next in memory. */
typedef struct ckpt_blas_shape {
    int64_t rows, columns, inner;
    bool x_turned; /* x is stored as [inner x rows] */
    bool w_turned; /* w is stored as [columns x inner] */
    int64_t x_stride, w_stride, y_stride;
    ckpt_dtype in;  /* of x and w: CKPT_FLOAT32 (no TF32) or CKPT_BFLOAT16; sums are float32 */
    ckpt_dtype out; /* of y and bias: as `in`, or CKPT_FLOAT32 from bfloat16 (weight gradients) */
    bool bias, adds;
    int64_t batch; /* so many products of dense matrices, one behind the other, without bias and sums; 0: one */
    /* The run reads no bias but writes bias[i], of y's type: the sum of row i of x. If x is the transposed gradient of
     * a layer's output, y is the gradient of the layer's weight and these sums are that of its bias. */
    bool sums;
} ckpt_blas_shape;

/* The inner dimension may be split only if it is a multiple of this, and so of a tile's depth: otherwise cuBLASLt has
 * dropped the remainder on Hopper (github.com/facebookexperimental/triton, pull request 2767). */
enum { CKPT_BLAS_SPLITS = 128 };

/* limit: the most bytes of workspace; -1: the library's recommendation. choice: NULL, or the choice of a product of
 * this shape (ckpt_blas_product_choice). Errors: CKPT_DEVICE (no algorithm fits, with the shape; or not `choice`),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_blas_product_create(ckpt_cuda *cuda, const ckpt_blas_shape *shape, ckpt_bytes limit,
                                                 const char *choice, ckpt_blas_product **product, ckpt_err *err);
void ckpt_blas_product_destroy(ckpt_blas_product *product); /* NULL is fine */
ckpt_bytes ckpt_blas_product_workspace(const ckpt_blas_product *product);
const char *ckpt_blas_product_choice(const ckpt_blas_product *product); /* lives until it is tuned */
/* Starts the product on the compute stream. bias: NULL if the shape has neither bias nor sums. */
CKPT_MUST_USE ckpt_code ckpt_blas_product_run(const ckpt_blas_product *product, const void *x, const void *w, void *y,
                                              void *bias, void *workspace, ckpt_err *err);
/* Times the library's candidates within workspace_bytes and keeps the fastest; *took: see ckpt_trial_run (trial.h). */
CKPT_MUST_USE ckpt_code ckpt_blas_product_tune(ckpt_blas_product *product, const void *x, const void *w, void *y,
                                               void *bias, void *workspace, ckpt_bytes workspace_bytes,
                                               ckpt_tuning *tuning, ckpt_ns *took, ckpt_err *err);

/* Opens the handle cuda->blas. */
CKPT_MUST_USE ckpt_code ckpt_blas_open(ckpt_cuda *cuda, ckpt_err *err);
void ckpt_blas_close(ckpt_cuda *cuda);
void ckpt_blas_version(char *text, size_t room); /* "cuBLASLt 13.0.2" */

#endif
