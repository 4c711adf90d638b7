/* The command line of ckpt-plan. */
#ifndef CKPT_PROGRAMS_PLAN_PLAN_REQUEST_IMPL_H
#define CKPT_PROGRAMS_PLAN_PLAN_REQUEST_IMPL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/formats/scheme.h"
#include "libckpt/scheme_options.h"
#include "planner/directives/choose.h"
#include "programs/cli/cli.h"

enum { CKPT_SETS_MAX = 64, CKPT_RULES_MAX = 64 };

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
    const char *input, *budget, *reserve, *output, *strategy, *start, *profile, *device, *dtype, *trace, *link,
        *host_memory, *pack, *capacity, *check;
    const char *variable;               /* of CKPT_ASK_MAXIMUM */
    const char *set[CKPT_SETS_MAX + 1]; /* one more than --set may give: for a value of `variable` */
    int set_count;
    ckpt_rule rule[CKPT_RULES_MAX]; /* in the order given */
    int rule_count;
    ckpt_question question;
    bool baselines; /* of CKPT_ASK_SWEEP */
    bool throughput;
    bool json;
    bool ignore_flags; /* the model's checkpoint flags */
    int points, effort;
    int threads;         /* 0: default */
    double time_limit;   /* seconds; 0: none */
    double max_overhead; /* share of the time; < 0: none */
    ckpt_scheme scheme;  /* first_layer is not chosen here */
    bool stage_given;
    const char *scheme_option; /* the first of its options that was given; NULL: none */
} ckpt_request;

extern const ckpt_cli_option ckpt_request_options[];

/* -1: `request` is filled and its options go together; else the exit code, and what was wrong is on standard error. */
int ckpt_request_read(ckpt_cli *cli, ckpt_request *request);

/* The options and the input of a request that decide what plan comes out, as words for a command line: those of
 * ckpt_request_options, by long name, and the file last. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_request_words(const ckpt_request *request, ckpt_arena *out, const char *const **words,
                                           int *count, ckpt_err *err);

/* All pipeline stages are meant, one plan for each. */
bool ckpt_request_is_staged(const ckpt_request *request);

/* The numbers of the scheme make sense, and what is for one graph is asked of one. Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_request_check_scheme(const ckpt_request *request, ckpt_err *err);

bool ckpt_on_stdout(const char *path); /* "-"; NULL is not */
bool ckpt_ends_with(const char *text, const char *end);

#endif
