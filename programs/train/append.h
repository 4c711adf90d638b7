/* Rows at the end of a log: each is there whole or not at all, also where the disk is full for a while. */
#ifndef CKPT_PROGRAMS_TRAIN_APPEND_H
#define CKPT_PROGRAMS_TRAIN_APPEND_H

#include <stddef.h>
#include <stdio.h>

#include "core/base/status.h"

typedef struct ckpt_append {
    FILE *file; /* NULL: none is open; without a buffer, so that nothing is left of what could not be written */
    int lost;   /* rows that could not be written */
    int reason; /* errno of the first of them */
} ckpt_append;

/* Takes over an open file. */
void ckpt_append_begin(ckpt_append *log, FILE *file);
/* Puts a row where the file stands. Allocates nothing. */
void ckpt_append_row(ckpt_append *log, const void *bytes, size_t length);
/* Closes it; none open is fine. CKPT_IO: rows of `path` were lost; how many and why. */
CKPT_MUST_USE ckpt_code ckpt_append_end(ckpt_append *log, const char *path, ckpt_err *err);

#endif
