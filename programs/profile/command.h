/* Running a program with libckpt_inject.so inside, and what it recorded as a trace. */
#ifndef CKPT_PROGRAMS_PROFILE_COMMAND_H
#define CKPT_PROGRAMS_PROFILE_COMMAND_H

#include <stdbool.h>

#include "core/base/status.h"

typedef struct ckpt_command {
    char *const *argv;   /* NULL ends it; argv[0] is looked for on PATH */
    const char *output;  /* ckpt-trace/1; "-" is standard output, after what the command wrote there */
    const char *library; /* libckpt_inject.so; NULL: where the programs or the installation have it */
    int argc_all;        /* the whole command line of ckpt-profile, for the machine block */
    char *const *argv_all;
} ckpt_command;

/* Run it to its end and write what its processes did on GPUs: the one that did most into the output, another one into
 * "<output without .json>.<process>.json"; no file when nothing was recorded. Its input, output and signals are its
 * own; nothing is printed while it runs. *exit_code is 0 to 255, or -N when signal N ended it, and is valid when
 * CKPT_OK is given or `ran` is true: whatever recording could not do never hides how the program ended. `note` is
 * called with one line for each thing the user should know ("no process used CUDA: nothing was recorded"). Errors:
 * CKPT_BAD_INPUT (no such program), CKPT_IO, CKPT_INTERRUPTED, CKPT_DEVICE (this build has no CUPTI), CKPT_NO_MEMORY.
 */
CKPT_MUST_USE ckpt_code ckpt_command_record(const ckpt_command *command, void (*note)(const char *line), bool *ran,
                                            int *exit_code, ckpt_err *err);

#endif
