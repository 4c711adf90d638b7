/* Training state: weights, optimizer and statistics in the program's static block, and how far training has come. It
 * starts, is saved, is restored and has a digest here; nothing here runs a step. */
#ifndef CKPT_EXECUTOR_STATE_STATE_IMPL_H
#define CKPT_EXECUTOR_STATE_STATE_IMPL_H

#include "core/base/text.h"
#include "executor/data/data.h"
#include "executor/program/program_impl.h"
#include "executor/state/section.h"

/* How far training has come, and on what. */
typedef struct ckpt_progress {
    uint64_t seed, steps;
    float last_loss;
    ckpt_validated validated;
    ckpt_data_identity data;
} ckpt_progress;

/* Weights from the seed, statistics from their initial values, the scales that the scheme needs. */
CKPT_MUST_USE ckpt_code ckpt_state_initialise(const ckpt_program *program, uint64_t seed, ckpt_err *err);

/* ckpt_executor_digest, ckpt_executor_state_write and ckpt_executor_state_read. */
CKPT_MUST_USE ckpt_code ckpt_state_digest(const ckpt_program *program, ckpt_section section,
                                          char text[CKPT_DIGEST_TEXT], ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_state_write(const ckpt_program *program, const ckpt_progress *progress, const char *path,
                                         ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_state_read(const ckpt_program *program, const char *path, bool to_train,
                                        ckpt_progress *progress, ckpt_err *err);

/* ckpt_executor_state_bytes. */
CKPT_MUST_USE ckpt_code ckpt_state_bytes(const ckpt_program *program, ckpt_bytes *state, ckpt_bytes *weights,
                                         ckpt_err *err);

/* The first line of a state file, its newline included. Errors: CKPT_NO_MEMORY, CKPT_OVERFLOW. */
CKPT_MUST_USE ckpt_code ckpt_state_header_add(const ckpt_program *program, const ckpt_progress *progress,
                                              ckpt_text *text, ckpt_err *err);
/* `header` is that line of the file `path`. Errors: CKPT_BAD_INPUT, with what the state is of and what this run has. */
CKPT_MUST_USE ckpt_code ckpt_state_header_read(const ckpt_program *program, const char *header, bool to_train,
                                               const char *path, ckpt_progress *progress, ckpt_err *err);

#endif
