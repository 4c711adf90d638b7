/* The command line of ckpt-profile, and what it says at the end. */
#ifndef CKPT_PROGRAMS_PROFILE_PROFILE_REQUEST_IMPL_H
#define CKPT_PROGRAMS_PROFILE_PROFILE_REQUEST_IMPL_H

#include "core/base/text.h"
#include "profiler/profiler.h"
#include "programs/cli/cli.h"

typedef enum ckpt_profile_job {
    CKPT_PROFILE_LAYERS,  /* measure the layers of a model */
    CKPT_PROFILE_COMMAND, /* -- CMD...: record a program */
    CKPT_PROFILE_IMPORT   /* --import FILE */
} ckpt_profile_job;

typedef struct ckpt_profile_request {
    ckpt_profile_job job;
    const char *model, *output, *dtype, *optimizer, *device, *roofline, *import, *times;
    const char **set;
    int set_count;
    int threads; /* 0: not given */
    bool no_cupti, isolated;
    int steps;            /* 0: not given */
    char *const *command; /* behind "--", NULL ends it; NULL: none */
    ckpt_profiler_options profiler;
    const char *layers_only; /* the first option that only measuring layers has; NULL: none was given */
} ckpt_profile_request;

extern const ckpt_cli_option ckpt_profile_option_table[];

/* `request` comes with the defaults and with room for every --set. 0: go on; else the program's exit code + 1. */
int ckpt_profile_parse(ckpt_cli *cli, ckpt_profile_request *request);

/* Adds some lines for people: the time of a step as the sum of its layers, the most expensive parts and how near they are to `roofline` (NULL: not compared), and what was recorded. */
CKPT_MUST_USE ckpt_code ckpt_profile_summary(const ckpt_profile *profile, const ckpt_device_model *roofline,
                                             ckpt_ns spent_ns, ckpt_arena *scratch, ckpt_text *text, ckpt_err *err);

#endif
