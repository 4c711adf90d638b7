/* The command line of ckpt-plan. */
#ifndef CKPT_PROGRAMS_PLAN_PLAN_REQUEST_IMPL_H
#define CKPT_PROGRAMS_PLAN_PLAN_REQUEST_IMPL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "libckpt/options.h"
#include "programs/cli/cli.h"

typedef enum ckpt_question {
    CKPT_ASK_PLAN,
    CKPT_ASK_SWEEP,
    CKPT_ASK_MAXIMUM,
    CKPT_ASK_EXPLANATION,
    CKPT_ASK_COMPARISON,
    CKPT_ASK_PACKING,
    CKPT_ASK_CHECK,
    CKPT_ASK_STRATEGIES,
} ckpt_question;

typedef struct ckpt_request {
    ckpt_options asked; /* what decides the plan */
    const char *input, *output, *trace, *pack, *capacity, *check;
    const char *variable; /* of CKPT_ASK_MAXIMUM */
    ckpt_question question;
    bool baselines; /* of CKPT_ASK_SWEEP */
    bool throughput;
    bool json;
    int points;
    double max_overhead; /* share of the time; < 0: none */
} ckpt_request;

extern const ckpt_cli_option ckpt_request_options[];

/* -1: `request` is filled and its options go together; else the exit code, and what was wrong is on standard error. */
int ckpt_request_read(ckpt_cli *cli, ckpt_request *request);

/* What is asked goes together, and what is for one graph is asked of one. Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_request_check_asked(const ckpt_request *request, ckpt_err *err);

bool ckpt_on_stdout(const char *path); /* "-"; NULL is not */
bool ckpt_ends_with(const char *text, const char *end);

#endif
