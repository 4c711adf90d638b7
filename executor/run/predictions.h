/* What a network says about classes: the logits that its loss reads, while an evaluation runs. For accuracy, and to
 * generate text. A loss over classes is cross_entropy, nll_loss or linear_cross_entropy. */
#ifndef CKPT_EXECUTOR_RUN_PREDICTIONS_H
#define CKPT_EXECUTOR_RUN_PREDICTIONS_H

#include "kernels/device.h"

/* Sees every loss over classes of an evaluation, before it runs and with all that it reads in memory: `args` are its
 * kernel's, the addresses on the device. */
typedef struct ckpt_watcher {
    ckpt_code (*look)(void *context, ckpt_device *device, const ckpt_kernel_args *args, ckpt_err *err);
    void *context;
} ckpt_watcher;

bool ckpt_predictions_are(const ckpt_node *node);
/* Rows of logits, and how many are in a row. */
int64_t ckpt_predictions_rows(const ckpt_node *node);
int64_t ckpt_predictions_classes(const ckpt_node *node);

/* One row of logits in float32. Cost: of linear_cross_entropy, whose logits are never whole, a product of the row with the
 * whole weight, on the host. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_predictions_row(ckpt_device *device, const ckpt_kernel_args *args, int64_t row,
                                             float *logits, ckpt_err *err);

/* Adds to *counted the rows whose target is not ignored, and to *right those of them whose largest logit is the
 * target's. `held`: the node's logits are in memory, which those of linear_cross_entropy are not: then nothing is counted.
 * Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
bool ckpt_predictions_held(const ckpt_node *node);
CKPT_MUST_USE ckpt_code ckpt_predictions_count(ckpt_device *device, const ckpt_kernel_args *args, int64_t *right,
                                               int64_t *counted, ckpt_err *err);

#endif
