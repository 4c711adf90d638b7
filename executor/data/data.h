/* Training data: batches in an order that depends only on the seed and the step. It knows a model's inputs, and neither
 * plan nor device.
 *
 *     text:FILE                    bytes as tokens; rows start anywhere
 *     tokens:FILE[,FILE...]        tokens of llm.c or nanoGPT; whole rows, in a new order every epoch
 *     cifar10:FILE[,FILE...]       binary batches; images, in a new order every epoch, as everything that follows
 *     mnist:IMAGES,LABELS          IDX files
 *     arrays:INPUT=FILE.npy,...    NumPy arrays, one for every input of the model
 *     safetensors:FILE             a tensor for every input of the model
 *     images:FOLDER                JPEG and PNG files in one folder for each class
 *     synthetic                    noise of the right types */
#ifndef CKPT_EXECUTOR_DATA_DATA_H
#define CKPT_EXECUTOR_DATA_DATA_H

#include "core/base/digest.h"
#include "core/formats/model.h"
#include "ops/lowering/network.h"

typedef struct ckpt_data ckpt_data;

/* For messages and help. */
#define CKPT_DATA_SOURCES                                                                                              \
    "text:FILE, tokens:FILE[,FILE...], cifar10:FILE[,FILE...], mnist:IMAGES,LABELS, arrays:INPUT=FILE.npy,..., "       \
    "safetensors:FILE, images:FOLDER or synthetic"

/* limit[i] = the class_limit of model input i below: rows of the embedding or classes of the loss that reads it, the
 * smallest when there are several; 0 where nothing limits it. */
void ckpt_data_class_limits(const ckpt_network *network, int64_t *limit);

/* `class_limit[i]`: integer input i takes values below it (rows of the embedding or classes of the loss that reads
 * it). The model's inputs must fit the source (shape and type; message shows both).
 * Errors: CKPT_BAD_INPUT, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_data_open(const char *spec, const ckpt_model *model, const int64_t *class_limit,
                                       uint64_t seed, ckpt_data **data, ckpt_err *err);
void ckpt_data_close(ckpt_data *data);

/* From now on an integer input that only losses read may also hold the target that these do not count (ignore_index, the
 * same in all of them): arrays have it where a row is padding. */
void ckpt_data_allow_ignored(ckpt_data *data, const ckpt_network *network);

/* Fill one batch: input[i] is the host memory of model input i; NULL: not wanted. Same seed and step, same bytes. Several
 * threads may fill at once. Allocates nothing, but what decoding a picture takes, until it is decoded. Images are scaled
 * to [0, 1], less a mean and divided by a deviation per channel: CIFAR-10 0.4914 0.4822 0.4465 and 0.2470 0.2435 0.2616,
 * MNIST 0.1307 and 0.3081, pictures of a folder 0.485 0.456 0.406 and 0.229 0.224 0.225 (those of the training sets,
 * ImageNet's for folders).
 * Errors: CKPT_BAD_INPUT (a token, label or value that the model cannot take, a damaged picture), CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_data_fill(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err);

/* Does a batch take long to make, so that a worker ahead of the step is worth it (executor/data/loader.h)? */
bool ckpt_data_decodes(const ckpt_data *data);

/* Whole batches in an epoch, 1 at least; 0: the source has no epochs (text, synthetic). */
int64_t ckpt_data_batches(const ckpt_data *data);

/* Bytes of files mapped into the process, outside all planned memory. */
ckpt_bytes ckpt_data_mapped_bytes(const ckpt_data *data);

/* What must not change between stop and resume. */
enum { CKPT_DATA_ABOUT = 80 };
typedef struct ckpt_data_identity {
    char about[CKPT_DATA_ABOUT];   /* "text, 1 file, 35149 bytes": letters, digits, blanks and commas */
    char digest[CKPT_DIGEST_TEXT]; /* ckpt_data_digest; "": not known, or synthetic */
    char stamp
        [CKPT_DIGEST_TEXT]; /* a digest of all files' sizes and times of the last change: while it stays, so do the contents */
} ckpt_data_identity;

/* As far as it is known without reading the files: no digest. Lives as `data`. */
const ckpt_data_identity *ckpt_data_identify(const ckpt_data *data);

/* While a digest is made of many bytes: both may be NULL. stopped: give up? */
typedef struct ckpt_data_watch {
    void (*progress)(ckpt_bytes done, ckpt_bytes all);
    bool (*stopped)(void);
} ckpt_data_watch;

/* A digest of the contents: the SHA-256 of a line for every file, in their order (arrays in that of the model's inputs): 64
 * hexadecimal digits and a newline. Those of a picture are its SHA-256, with a blank and its class before the newline; those
 * of any other file the SHA-256 of its pieces' SHA-256, as ckpt_executor_digest has it. "" of synthetic data. Reads all files
 * once, by `threads` threads. Errors: CKPT_INTERRUPTED (`watch`, which may be NULL, stopped it), CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_data_digest(const ckpt_data *data, int threads, const ckpt_data_watch *watch,
                                         char digest[CKPT_DIGEST_TEXT], ckpt_err *err);

/* Is `path` (NULL: none) one of the files that are read? `data` NULL reads nothing. */
bool ckpt_data_reads(const ckpt_data *data, const char *path);

/* The name of the file that is mapped at `address`; NULL: none. Reading behind the end of a file that has become
 * shorter raises SIGBUS; a handler may call this. */
const char *ckpt_data_file_at(const ckpt_data *data, const void *address);

#endif
