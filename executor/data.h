/* Training data: batches in an order that depends only on the seed and the step.
 *
 * "text:FILE" bytes as tokens, "cifar10:FILE[,FILE...]" binary batches, "mnist:IMAGES,LABELS" IDX files,
 * "synthetic" (or nothing) noise of the right types. */
#ifndef CKPT_EXECUTOR_DATA_H
#define CKPT_EXECUTOR_DATA_H

#include "core/model.h"

typedef struct ckpt_data ckpt_data;

/* `class_limit[i]`: integer input i takes values below it (rows of the embedding or classes of the loss that reads
 * it). The model's inputs must fit the source (shape and type; message shows both).
 * Errors: CKPT_BAD_INPUT, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_data_open(const char *spec, const ckpt_model *model, const int64_t *class_limit,
                                       uint64_t seed, ckpt_data **data, ckpt_err *err);
void ckpt_data_close(ckpt_data *data);

/* Fill one batch: input[i] is the host memory of model input i. Same seed and step, same bytes. Allocates nothing. */
void ckpt_data_fill(const ckpt_data *data, uint64_t step, void *const *input);

#endif
