/* The command line of ckpt-train. */
#ifndef CKPT_PROGRAMS_TRAIN_TRAIN_REQUEST_IMPL_H
#define CKPT_PROGRAMS_TRAIN_TRAIN_REQUEST_IMPL_H

#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "executor/data/data.h"
#include "kernels/device.h"
#include "programs/cli/cli.h"

typedef struct ckpt_train_options {
    const char *model, *plan, *data, *dtype, *device, *budget, *reserve, *trace, *profile, *reprofile, *log, *save,
        *resume;
    const char *validate, *save_best, *tensorboard, *prompt, *temperature_text, *optimizer, *lr, *schedule;
    const char *init, *export, *export_as;
    ckpt_dtype export_dtype; /* from `export_as` */
    const char **set;
    int set_count;
    int64_t steps, seed, threads, save_every, evaluate; /* steps and seed -1, the others 0: not given */
    int64_t validate_every, validate_batches, patience, generate, top_k; /* 0: not given */
    int64_t workers;                                                     /* -1: not given */
    double temperature;                                                  /* 0: the largest logit */
    bool poison, json, no_graph, no_cupti, no_digest, ema;
    bool gpu; /* from `device`, by ckpt_train_settle */
} ckpt_train_options;

extern const ckpt_cli_option ckpt_train_option_table[];

/* `options` comes with the defaults (steps: none) and with room for every --set. 0: go on; else the program's exit code
 * + 1. */
int ckpt_train_parse(ckpt_cli *cli, ckpt_train_options *options);

/* "-": standard output. */
bool ckpt_train_is_dash(const char *path);

/* Is the plan for this kind of device and these threads? Sets options->gpu, and options->threads if not given. Errors: CKPT_BAD_INPUT (no such device; another device or number of threads, with the command for the right plan). */
CKPT_MUST_USE ckpt_code ckpt_train_settle(ckpt_train_options *options, const ckpt_plan *plan, ckpt_err *err);

/* Was the profile measured on this device (by name, and on a CPU with these threads)? Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_train_check_profile(const ckpt_profile *profile, const ckpt_device *device, ckpt_err *err);

/* After this SIGINT, SIGTERM, SIGPIPE and SIGHUP ask for a stop, and a SIGBUS in the watched data (NULL: none; and validation data) ends the program with a line. */
void ckpt_train_catch_signals(void);
bool ckpt_train_stop_wanted(void);
/* A ckpt_ranks_lost: one line on standard error, and exit code 3. */
void ckpt_train_lost_rank(void *context, const char *line);
void ckpt_train_watch_data(const ckpt_data *data, const ckpt_data *validation);

#endif
