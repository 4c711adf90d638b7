/* The loss log: a line of CSV for every step, on the disk's side before the next step begins.
 *
 *     step,loss,loss_hex,validation,accuracy
 *     1,5.56567287,0x1.6433fcp+2,,
 *     2,5.21345615,0x1.4da942p+2,5.1900243,0.0312
 *
 * The hexadecimal loss has every bit. The last two are of a validation after the step; without one they are empty. A resumed run goes on in the log of the same run: rows after the state's step,
 * which a killed run may have left, are cut off and written again; the log of another run is refused and left alone. */
#ifndef CKPT_PROGRAMS_TRAIN_LOSS_LOG_H
#define CKPT_PROGRAMS_TRAIN_LOSS_LOG_H

#include "programs/train/append.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ckpt_loss_log {
    ckpt_append rows;
    const char *path; /* borrowed until close */
    uint64_t step;    /* of the row where a resumed log goes on */
    int64_t row;      /* and where that row begins */
} ckpt_loss_log;

/* `resumed`: continue after the row of `step` (0: after the header), which must have `loss`; a missing file is created. Else create a new file. Errors: CKPT_IO, CKPT_BAD_INPUT (no loss log, or one of another run). */
CKPT_MUST_USE ckpt_code ckpt_loss_log_open(ckpt_loss_log *log, const char *path, bool resumed, uint64_t step,
                                           float loss, ckpt_err *err);
/* `validation`, `accuracy`: NaN: there is none. The row of the step where a resumed log goes on is written again, longer. */
void ckpt_loss_log_add(ckpt_loss_log *log, uint64_t step, float loss, double validation, double accuracy);

/* CKPT_IO when rows could not be written: those are missing, and the others are whole. */
CKPT_MUST_USE ckpt_code ckpt_loss_log_close(ckpt_loss_log *log, ckpt_err *err);

#endif
