/* The memory of a training. */
#ifndef CKPT_EXECUTOR_SETUP_MEMORY_IMPL_H
#define CKPT_EXECUTOR_SETUP_MEMORY_IMPL_H

#include "executor/program/program_impl.h"

/* Reserve page-locked host memory; `what` is said in messages. Nothing for 0 bytes. */
CKPT_MUST_USE ckpt_code ckpt_reserve_host(ckpt_device *device, ckpt_bytes bytes, const char *what,
                                          ckpt_reserved *reserved, ckpt_err *err);

/* The static block and the arena. */
CKPT_MUST_USE ckpt_code ckpt_reserve_device(ckpt_program *program, ckpt_err *err);

void ckpt_release(ckpt_device *device, const ckpt_blocks *memory);

#endif
