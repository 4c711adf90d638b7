/* What the files of ckpt_command_record share. */
#ifndef CKPT_PROGRAMS_PROFILE_COMMAND_IMPL_H
#define CKPT_PROGRAMS_PROFILE_COMMAND_IMPL_H

#include <signal.h>

#include "core/base/memory.h"
#include "programs/profile/command.h"

/* The variable that names the folder for spools. The injected library records nothing without it. */
#define CKPT_SPOOL_VARIABLE "CKPT_INJECT_SPOOL"

/* The environment for the command, recording into `folder` (NULL: not at all). `library` absolute. */
CKPT_MUST_USE ckpt_code ckpt_command_environment(const char *library, const char *folder, ckpt_arena *arena,
                                                 char ***environment, ckpt_err *err);
/* libckpt_inject.so: `asked`, $CKPT_INJECT_LIBRARY, or where the programs or the installation have it. */
CKPT_MUST_USE ckpt_code ckpt_command_library(const char *asked, ckpt_arena *arena, const char **library, ckpt_err *err);

/* The signals that end programs are handled from before the command starts until its traces are written and its folder
 * is removed. */
typedef struct ckpt_command_signals {
    struct sigaction action[8], ours[4];
    sigset_t mask;
} ckpt_command_signals;

/* Blocks these signals and prepares to pass them on. */
void ckpt_command_take_signals(ckpt_command_signals *before);
/* Restores them. A signal that came after the command's end takes effect now. */
void ckpt_command_return_signals(const ckpt_command_signals *before);
/* Is one of them pending? */
bool ckpt_command_interrupted(void);

/* Starts argv with that environment and waits for its end. *started is false if there is no such program, or no
 * process. Signals that other processes send us meanwhile are passed on to it; those of the terminal reach it
 * anyway. */
CKPT_MUST_USE ckpt_code ckpt_command_run(char *const *argv, char **environment, const ckpt_command_signals *before,
                                         bool *started, int *exit_code, ckpt_err *err);

/* Writes all spools in `folder` as traces, and notes one line for each thing worth knowing. Errors also:
 * CKPT_INTERRUPTED. */
CKPT_MUST_USE ckpt_code ckpt_command_traces(const ckpt_command *command, const char *folder,
                                            void (*note)(const char *line), ckpt_err *err);
/* Removes the folder and what it holds. */
void ckpt_command_clean(const char *folder);

#endif
