/* The first line of a state file. */
#ifndef CKPT_EXECUTOR_STATE_STATE_HEADER_H
#define CKPT_EXECUTOR_STATE_STATE_HEADER_H

#include "core/base/text.h"
#include "executor/executor_impl.h"

/* What it says of where the training was. */
typedef struct ckpt_state_header {
    uint64_t seed, steps;
    char loss[40], data[CKPT_DATA_ABOUT];
} ckpt_state_header;

/* The line as this executor writes it, its newline included. Errors: CKPT_NO_MEMORY, CKPT_OVERFLOW. */
CKPT_MUST_USE ckpt_code ckpt_state_header_add(const ckpt_executor *executor, ckpt_text *text, ckpt_err *err);

/* `header` is the line of the file `path`. Errors: CKPT_BAD_INPUT, with what the state is of and what this run has. */
CKPT_MUST_USE ckpt_code ckpt_state_header_read(const ckpt_executor *executor, const char *header, const char *path,
                                               ckpt_state_header *at, ckpt_err *err);

#endif
