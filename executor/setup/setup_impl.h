/* What set-up offers. It runs nothing: the rehearsal is the run's, the weights are the state's. */
#ifndef CKPT_EXECUTOR_SETUP_SETUP_IMPL_H
#define CKPT_EXECUTOR_SETUP_SETUP_IMPL_H

#include "executor/program/program_impl.h"

/* Of `program` set before: device, lowered, plan, ranks, poison, all else zero. ckpt_program_fini follows, also after a
 * failure. Errors: as ckpt_executor_create. */
CKPT_MUST_USE ckpt_code ckpt_program_init(ckpt_program *program, ckpt_err *err);
void ckpt_program_fini(ckpt_program *program);

#endif
