/* Whole files in, whole files out. "-" is standard input or output. */
#ifndef CKPT_CORE_BASE_FILE_H
#define CKPT_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/base/units.h"

/* The largest text file that is read: a graph of 10^6 operations is about 200 MB. */
#define CKPT_FILE_MAX ((size_t)1 << 30)

/* The file's bytes, with a terminating 0 that `length` does not count. Programs can read a pipe twice, to look at its kind first: core/base/pipes.h. Errors: CKPT_IO (the message names the file and the reason), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_read(const char *path, ckpt_arena *arena, const char **bytes, size_t *length,
                                       ckpt_err *err);

/* Writes to a temporary file beside `path` and renames it over `path` once it is on the disk: a reader sees the old file or the new one, never half. A link remains and its target is replaced. A pipe or device is written directly. Of several programs that write one file at the same time the last one's is there in the end, whole. What killed ones left is removed: `path`.ckpt-N.part. Errors: CKPT_IO, with a regular file unchanged; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_write(const char *path, const void *bytes, size_t length, ckpt_err *err);

/* Writes a text and frees it (ckpt_text_fini), also on failure. Errors: those of ckpt_file_write; CKPT_NO_MEMORY if an append to the text had failed. */
CKPT_MUST_USE ckpt_code ckpt_file_write_text(const char *path, ckpt_text *text, ckpt_err *err);

/* A text that is written to a file as it grows, so that a large one is never in memory whole. begin initialises it. end
 * frees it, with the `code` of those who made the text: the file is there when both are CKPT_OK, else nothing is left. */
CKPT_MUST_USE ckpt_code ckpt_file_begin_text(const char *path, ckpt_text *text, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_file_end_text(ckpt_text *text, ckpt_code code, ckpt_err *err);

/* Writes a file in pieces: begin, add any number of times, end. Call end even after add failed: it frees the file, and with `keep` false discards what was written. */
typedef struct ckpt_file ckpt_file;
CKPT_MUST_USE ckpt_code ckpt_file_begin(const char *path, ckpt_file **file, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_file_add(ckpt_file *file, const void *bytes, size_t length, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_file_end(ckpt_file *file, bool keep, ckpt_err *err);

/* Can a file of that name and of so many bytes (0: unknown) be written? For a check before hours of work. Changes nothing; standard output always can. Errors: CKPT_IO: the name, the folder, the device, the room on the disk or the limit of a file's size does not allow it; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_file_probe(const char *path, ckpt_bytes bytes, ckpt_err *err);

/* Would writing `a` replace `b`: do both names lead to one regular file or, where neither is there, to one place? NULL and "-" are no files. */
bool ckpt_file_same(const char *a, const char *b);

#endif
