/* Whole files in, whole files out. "-" is standard input or output. */
#ifndef CKPT_CORE_FILE_H
#define CKPT_CORE_FILE_H

#include <stddef.h>

#include "core/memory.h"
#include "core/status.h"

/* The largest text file that is read: a graph of 10^6 operations is about 200 MB. */
#define CKPT_FILE_MAX ((size_t)1 << 30)

/* The file's bytes, with a terminating 0 after them that `length` does not count. Standard input may be asked for
 * again, so that a program can look at a file's kind first: its bytes are kept for the life of the process.
 * Errors: CKPT_IO (the message names the file and the reason), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_read(const char *path, ckpt_arena *arena, const char **bytes, size_t *length,
                                       ckpt_err *err);

/* Write to a temporary file beside `path` and rename it over `path`, so that a reader sees the old file or the
 * new one, never half. Errors: CKPT_IO, and `path` is as it was. */
CKPT_MUST_USE ckpt_code ckpt_file_write(const char *path, const void *bytes, size_t length, ckpt_err *err);

#endif
