/* Softmax cross entropy over rows of contiguous classes, for cross_entropy and linear_cross_entropy. */
#ifndef CKPT_KERNELS_CPU_CLASS_ROWS_H
#define CKPT_KERNELS_CPU_CLASS_ROWS_H

#include <stdint.h>

#include "core/base/status.h"
#include "core/formats/tensor.h"

typedef struct ckpt_class_rows {
    int64_t count, classes;
    const int32_t *target; /* [count]; a class, or `ignore`: the row does not count */
    int64_t ignore;
    double smoothing; /* this share of a row's target is spread over all classes */
    ckpt_dtype dtype; /* of the logits and their gradient */
    int threads;      /* may be used; they change no bit */
} ckpt_class_rows;

/* *counted: rows that are not ignored. Errors: CKPT_BAD_INPUT (a target is neither a class nor ignored; with the row). */
CKPT_MUST_USE ckpt_code ckpt_class_rows_check(const ckpt_class_rows *rows, int64_t *counted, ckpt_err *err);

/* lse[r] = log sum exp of row r. Returns the sum over rows that count of lse[r] - logits[r, target], or with smoothing
 * minus the mean of logits so weighted, in an order that depends on the number of rows alone. Targets were checked. */
double ckpt_class_rows_loss(const ckpt_class_rows *rows, const void *logits, float *lse);

/* grad = scale (softmax - one hot, smoothed), 0 in ignored rows. grad may be logits. */
void ckpt_class_rows_gradient(const ckpt_class_rows *rows, const void *logits, const float *lse, float scale,
                              void *grad);

#endif
