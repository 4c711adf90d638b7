/* safetensors: named tensors in one file, or in several with an index of JSON.
 *
 *     8 bytes: length of the header, little-endian | header, JSON | the tensors' bytes, without gaps, little-endian
 *
 * Nothing in a file is believed unchecked: the header's length, shapes against bytes, offsets that follow one another
 * from the first byte to the last, each name once. Source: the safetensors library's README, "Format". */
#ifndef CKPT_CORE_FORMATS_SAFETENSORS_H
#define CKPT_CORE_FORMATS_SAFETENSORS_H

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/formats/tensor.h"

#define CKPT_SAFETENSORS_HEADER_MAX 100000000 /* bytes; the library's limit */

typedef struct ckpt_safetensor {
    const char *name;
    const char *type; /* "F32"; of those the library knows */
    int rank;
    const int64_t *dim; /* 0 is allowed */
    int64_t count;      /* elements */
    int file;           /* of the set, from 0 */
    ckpt_bytes at, bytes;
} ckpt_safetensor;

/* Open files, whose headers are read; bytes are read where they are asked for. */
typedef struct ckpt_safetensors ckpt_safetensors;

/* A file, or an index (its name ends in .json) and the files beside it that it names. Errors: CKPT_BAD_INPUT with what is
 * wrong where, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_safetensors_open(const char *path, ckpt_safetensors **tensors, ckpt_err *err);
/* A whole file that is in memory, and stays there. `name` stands for it in messages. */
CKPT_MUST_USE ckpt_code ckpt_safetensors_open_bytes(const char *name, const void *bytes, size_t length,
                                                    ckpt_safetensors **tensors, ckpt_err *err);
void ckpt_safetensors_close(ckpt_safetensors *tensors); /* NULL is fine */

int ckpt_safetensors_count(const ckpt_safetensors *tensors);
const ckpt_safetensor *ckpt_safetensors_at(const ckpt_safetensors *tensors, int i); /* by file, and there by offset */
int ckpt_safetensors_find(const ckpt_safetensors *tensors, const char *name);       /* -1: not there */

/* Is `path` one of the files? */
bool ckpt_safetensors_reads(const ckpt_safetensors *tensors, const char *path);

/* "[3, 4]" of a tensor into `text` (CKPT_SHAPE_TEXT bytes), given back. */
const char *ckpt_safetensor_shape(const ckpt_safetensor *tensor, char *text);

/* `count` of a tensor's bytes as they are in the file, from byte `from` on. Errors: CKPT_IO (the file has become shorter). */
CKPT_MUST_USE ckpt_code ckpt_safetensors_bytes(const ckpt_safetensors *tensors, int i, ckpt_bytes from,
                                               ckpt_bytes count, void *to, ckpt_err *err);

/* All elements of an F32, F16 or BF16 tensor as floats, which hold them exactly. Errors: CKPT_BAD_INPUT (another type),
 * CKPT_IO (the file has become shorter). */
CKPT_MUST_USE ckpt_code ckpt_safetensors_floats(const ckpt_safetensors *tensors, int i, float *to, ckpt_err *err);

/* Adds the first bytes of a file, up to the tensors' own, which are to follow in this order. `at` and `file` are not
 * looked at. */
void ckpt_safetensors_header(const ckpt_safetensor *tensor, int count, ckpt_text *text);

#endif
