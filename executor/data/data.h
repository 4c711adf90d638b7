/* Training data: batches in an order that depends only on the seed and the step. It knows a model's inputs, and neither
 * plan nor device.
 *
 * "text:FILE" bytes as tokens, "cifar10:FILE[,FILE...]" binary batches, "mnist:IMAGES,LABELS" IDX files,
 * "synthetic" (or nothing) noise of the right types. */
#ifndef CKPT_EXECUTOR_DATA_DATA_H
#define CKPT_EXECUTOR_DATA_DATA_H

#include "core/formats/model.h"
#include "ops/lowering/network.h"

typedef struct ckpt_data ckpt_data;

/* limit[i] = the class_limit of model input i below: rows of the embedding or classes of the loss that reads it, the
 * smallest when there are several; 0 where nothing limits it. */
void ckpt_data_class_limits(const ckpt_network *network, int64_t *limit);

/* `class_limit[i]`: integer input i takes values below it (rows of the embedding or classes of the loss that reads
 * it). The model's inputs must fit the source (shape and type; message shows both).
 * Errors: CKPT_BAD_INPUT, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_data_open(const char *spec, const ckpt_model *model, const int64_t *class_limit,
                                       uint64_t seed, ckpt_data **data, ckpt_err *err);
void ckpt_data_close(ckpt_data *data);

/* Fill one batch: input[i] is the host memory of model input i; NULL: not wanted. Same seed and step, same bytes.
 * Allocates nothing. Images are scaled to [0, 1], less a mean and divided by a deviation per channel: CIFAR-10 0.4914
 * 0.4822 0.4465 and 0.2470 0.2435 0.2616, MNIST 0.1307 and 0.3081 (those of their training sets). Every image comes
 * once per epoch; text starts at a random byte for every row. */
void ckpt_data_fill(const ckpt_data *data, uint64_t step, void *const *input);

/* Bytes of files mapped into the process, outside all planned memory. */
ckpt_bytes ckpt_data_mapped_bytes(const ckpt_data *data);

/* "text, 1 file, 35149 bytes": what must not change between stop and resume, as far as kind and size tell. At most
 * CKPT_DATA_ABOUT bytes, letters, digits, blanks and commas. */
enum { CKPT_DATA_ABOUT = 80 };
const char *ckpt_data_about(const ckpt_data *data);

/* The name of the file that is mapped at `address`; NULL: none. Reading behind the end of a file that has become
 * shorter raises SIGBUS; a handler may call this. */
const char *ckpt_data_file_at(const ckpt_data *data, const void *address);

#endif
