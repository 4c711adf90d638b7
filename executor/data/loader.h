/* Batches made ahead of the step by threads of their own, so that the step need not wait for files and decoders. Which
 * batch a step sees does not depend on it. */
#ifndef CKPT_EXECUTOR_DATA_LOADER_H
#define CKPT_EXECUTOR_DATA_LOADER_H

#include "executor/data/data.h"

typedef struct ckpt_loader ckpt_loader;

enum { CKPT_LOADER_WORKERS_MAX = 64 };

/* Batches are asked for in groups of `count`, one for each micro-batch of a step: group g has the batches number[i] + g *
 * stride, and goes to the inputs that wanted[i * input_count + k] says (NULL: not). `workers` threads keep `workers` + 1
 * batches ready; 0: no thread, a batch is made when it is taken. data and model are kept until destroy.
 * Errors: CKPT_NO_MEMORY (buffers, threads). */
CKPT_MUST_USE ckpt_code ckpt_loader_create(const ckpt_data *data, const ckpt_model *model, void *const *wanted,
                                           const uint64_t *number, int count, uint64_t stride, int workers,
                                           ckpt_loader **loader, ckpt_err *err);
void ckpt_loader_destroy(ckpt_loader *loader);

/* Copies the next batch into input[k], which is NULL where `wanted` was. Errors: those of ckpt_data_fill. */
CKPT_MUST_USE ckpt_code ckpt_loader_take(ckpt_loader *loader, void *const *input, ckpt_err *err);

/* How long ckpt_loader_take has waited or, without workers, worked; and what the ready batches take. */
ckpt_ns ckpt_loader_waited_ns(const ckpt_loader *loader);
ckpt_bytes ckpt_loader_bytes(const ckpt_loader *loader);

#endif
