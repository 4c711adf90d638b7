/* Softmax cross entropy over rows of classes, as calls that cross_entropy and linear_cross_entropy make. The kernels are
 * in cross_entropy.cu. */
#ifndef CKPT_KERNELS_CUDA_CLASS_ROWS_CUH
#define CKPT_KERNELS_CUDA_CLASS_ROWS_CUH

#include "kernels/cuda/device.cuh"

struct class_rows {
    int64_t count, classes, pitch; /* pitch: from one row to the next */
    const int32_t *target;         /* [count] */
    int64_t ignore;                /* rows with this target do not count */
    double smoothing;              /* this share of a row's target is spread over all classes */
};

/* Sums that class_rows_loss leaves: 16 bytes each. */
static inline int64_t class_rows_parts(int64_t rows)
{
    return (rows + CKPT_GPU_LOSS_TERMS - 1) / CKPT_GPU_LOSS_TERMS;
}

/* lse[row] = log sum exp; part[0 .. class_rows_parts): sums of the loss. x is of that type. `sums`: a float for each row,
 * used with smoothing alone. */
void class_rows_loss(const ckpt_cuda *cuda, ckpt_dtype dtype, const class_rows &rows, const void *x, float *lse,
                     void *part, void *sums);
/* The mean loss and the rows that count, from so many sums. */
void class_rows_finish(const ckpt_cuda *cuda, int64_t parts, const void *part, float *loss, float *counted);
/* dx = (softmax - one hot, smoothed) grad / counted, 0 in ignored rows and in gaps. x and dx may be one buffer; grad NULL: 1. */
void class_rows_gradient(const ckpt_cuda *cuda, ckpt_dtype dtype, const class_rows &rows, const void *x,
                         const float *lse, const float *counted, const float *grad, void *dx);

#endif
