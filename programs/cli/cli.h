/* What the command lines of all programs share: options, --help, --version, errors, exit codes, colours, progress. Knows no model, no plan and no device. */
#ifndef CKPT_PROGRAMS_CLI_CLI_H
#define CKPT_PROGRAMS_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/base/version.h"

typedef struct ckpt_cli_option {
    const char *name;     /* long name without dashes; NULL ends the table */
    char letter;          /* 0: none */
    const char *argument; /* in --help; NULL: a switch. FILE and FOLDER are completed as such, "a|b|c" are words */
    const char *help;     /* one line */
} ckpt_cli_option;

typedef struct ckpt_cli {
    const char *program;           /* "ckpt-plan" */
    const char *usage;             /* "ckpt-plan --budget SIZE [options] model.json" */
    const char *about;             /* one or more lines under the usage line */
    const ckpt_cli_option *option; /* --help, --version and --color are added */
    const char *const *example;    /* pairs of a command and what it does, NULL at the end; for --help and man pages */
    const char *status;            /* meaning of the exit codes; NULL: those of all programs */
    int argc;
    char *const *argv;
    const char *color;  /* of --color: "auto" (NULL too), "always" or "never" */
    int next;           /* the word that ckpt_cli_next reads next; 0 at the start */
    bool operands_only; /* "--" was seen; false at the start */
} ckpt_cli;

/* The next option or operand, in order, GNU style: "--name=value", "--name value", "-ovalue", "--" ends options.
 *
 * Gives 1 with *name set to the option's long name (or "" for an operand) and *value to its argument; 0 at the
 * end; -1 when --help, --version or --help-as was printed (exit 0); -2 when the usage is wrong or that could not be
 * printed: one line is on stderr (exit 2). */
int ckpt_cli_next(ckpt_cli *cli, const char **name, const char **value);

/* Where the value of an option goes: one of the pointers. */
typedef struct ckpt_cli_field {
    const char *name; /* as in ckpt_cli_option */
    const char **text;
    bool *yes; /* a switch */
    int *count;
    int64_t *number;
    int64_t low, high; /* of `count` and `number` */
} ckpt_cli_field;

/* Keeps the value where the table says. -1: no such row; 0: done; 2: a usage error, and one line is on stderr. */
int ckpt_cli_keep(const ckpt_cli *cli, const ckpt_cli_field *field, size_t count, const char *name, const char *value);

/* A file that the command line names. */
typedef struct ckpt_cli_file {
    const char *option; /* "--plan", "the model": for messages */
    const char *path;   /* NULL: not given; "-": standard input or output */
    bool written;
    bool unprobed;        /* written by another process, or in place: whether it can be written is found out there */
    ckpt_bytes bytes;     /* that will be written; 0: unknown */
    const char *replaces; /* the option whose file it may replace, as a state the one that it continues; NULL: none */
    bool (*reads)(const void *what, const char *path); /* not NULL: an input of several files: is `path` one of them? */
    const void *what;
} ckpt_cli_file;

/* Before anything is written: no output takes the place of what is read or of another output, whatever names and links
 * lead there, and every output can be written. Errors: CKPT_BAD_INPUT, those of ckpt_file_probe. */
CKPT_MUST_USE ckpt_code ckpt_cli_check_files(const ckpt_cli_file *file, int count, ckpt_err *err);

/* The file of a pipeline stage: "plans/a.stage-2.json" of "plans/a.json" and 2. NULL gives NULL. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_cli_stage_file(const char *path, int stage, ckpt_arena *out, const char **name,
                                            ckpt_err *err);

/* Print "program: message" on stderr and give the exit code for it. */
int ckpt_cli_fail(const ckpt_cli *cli, const ckpt_err *err);

/* A line on standard error that is no error, "program: <formatted>". As every line from here it is one line of UTF-8 without
 * control characters, whatever the arguments hold. */
void ckpt_cli_note(const char *program, const char *format, ...) CKPT_PRINTF(2, 3);

/* The last call: what waits for standard output goes there. Gives `exit_code`; if that is 0 and it cannot be written, 2, and one line is on stderr. */
int ckpt_cli_end(const ckpt_cli *cli, int exit_code);

/* Before the first file is written: one that may not grow (ulimit -f) is then an error of writing like a full disk, not the
 * program's end. Programs that this one starts inherit it. */
void ckpt_cli_outlive_limits(void);

/* Does `work` in a process of its own and appends its bytes to `text`: for libraries that end the process where memory is
 * refused. What they print is kept off standard error. Call it before the first thread.
 *   doing   what is being done, for messages: "drawing as svg"
 * Errors: those of `work`; CKPT_NO_MEMORY: the process could not be started, was killed, or ended in the work where its memory is
 * limited; CKPT_IO: it ended where nothing limits it; no pipe. */
typedef ckpt_code (*ckpt_cli_work)(const void *what, ckpt_text *text, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_cli_apart(const char *doing, ckpt_cli_work work, const void *what, ckpt_text *text,
                                       ckpt_err *err);

/* Usage errors found after parsing: prints "program: <formatted>; see --help" and gives 2. */
int ckpt_cli_usage(const ckpt_cli *cli, const char *format, ...) CKPT_PRINTF(2, 3);

/* May `stream` have colours? As --color says; "auto": if it is a terminal and NO_COLOR is unset. */
bool ckpt_cli_color(const ckpt_cli *cli, FILE *stream);

/* "what 12/40, 3 s left" rewritten in place on stderr, only when it is a terminal; done == total ends the line.
 *   elapsed_ns   since the first began; 0: unknown, and nothing is said of what is left */
void ckpt_cli_progress(const char *what, int64_t done, int64_t total, ckpt_ns elapsed_ns);

/* Clear that line, before another one is printed. */
void ckpt_cli_progress_clear(void);

#endif
