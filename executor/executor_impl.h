/* An executor is a program, what runs it, and how far training has come. */
#ifndef CKPT_EXECUTOR_EXECUTOR_IMPL_H
#define CKPT_EXECUTOR_EXECUTOR_IMPL_H

#include "executor/executor.h"
#include "executor/program/program_impl.h"
#include "executor/run/run_impl.h"
#include "executor/state/state_impl.h"

struct ckpt_executor {
    ckpt_program program;   /* written by set-up, then read */
    ckpt_run run;           /* what a step counts */
    ckpt_progress progress; /* what a step advances */
};

#endif
