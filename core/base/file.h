/* Whole files in, whole files out. "-" is standard input or output. */
#ifndef CKPT_CORE_BASE_FILE_H
#define CKPT_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"

/* The largest text file that is read: a graph of 10^6 operations is about 200 MB. */
#define CKPT_FILE_MAX ((size_t)1 << 30)

/* The file's bytes, with a terminating 0 after them that `length` does not count. Standard input may be asked for
 * again, so that a program can look at a file's kind first: its bytes are kept for the life of the process, and those
 * of the last other pipe until the next one is read.
 * Errors: CKPT_IO (the message names the file and the reason), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_read(const char *path, ckpt_arena *arena, const char **bytes, size_t *length,
                                       ckpt_err *err);

/* Write to a temporary file beside `path` and rename it over `path` once it is on the disk, so that a reader sees the
 * old file or the new one, never half. A link stays and what it points to is replaced. What is no regular file (a pipe,
 * a device) is written in place. Errors: CKPT_IO, and a regular file is as it was; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_write(const char *path, const void *bytes, size_t length, ckpt_err *err);

/* A text that is done, as a file. The text is finished (ckpt_text_fini), whatever comes of it. Errors: those of
 * ckpt_file_write; CKPT_NO_MEMORY for a text that lacks a part. */
CKPT_MUST_USE ckpt_code ckpt_file_write_text(const char *path, ckpt_text *text, ckpt_err *err);

/* The same in pieces: begin, add as often as wanted, end. Whatever add gave, end must be called: it frees the file, and
 * with `keep` false throws away what was written. */
typedef struct ckpt_file ckpt_file;
CKPT_MUST_USE ckpt_code ckpt_file_begin(const char *path, ckpt_file **file, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_file_add(ckpt_file *file, const void *bytes, size_t length, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_file_end(ckpt_file *file, bool keep, ckpt_err *err);

/* Whether a file of that name could be begun, found out now instead of after hours of work. Changes nothing; standard
 * output is always fine. */
CKPT_MUST_USE ckpt_code ckpt_file_probe(const char *path, ckpt_err *err);

#endif
