/* Runs a program with libckpt_inject.so inside and writes what it recorded as traces. */
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

/* Runs the command to its end and writes what its processes did on GPUs. The process that did most goes to the output,
 * any other to "<output without .json>.<process>.json"; without a recording there is no file. The command has its own
 * input, output and signals, and nothing is printed while it runs.
 *
 *   note       called with one line for each thing the user should know ("no process used CUDA: nothing was recorded")
 *   ran        did the command run? Then *exit_code is valid even after an error: a failed recording does not hide how
 *              the program ended
 *   exit_code  0 to 255, or -N if signal N ended the command
 *
 * Errors: CKPT_BAD_INPUT (no such program), CKPT_IO, CKPT_INTERRUPTED, CKPT_DEVICE (this build has no CUPTI),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_command_record(const ckpt_command *command, void (*note)(const char *line), bool *ran,
                                            int *exit_code, ckpt_err *err);

#endif
