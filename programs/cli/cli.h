/* What the command lines of all programs share: options, --help, --version, errors, exit codes, colours, progress. Knows no model, no plan and no device. */
#ifndef CKPT_PROGRAMS_CLI_CLI_H
#define CKPT_PROGRAMS_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/status.h"
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
 * end; -1 when --help, --version or --help-as was printed (exit 0); -2 when the usage is wrong: one line is on stderr
 * (exit 2). */
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

/* Print "program: message" on stderr and give the exit code for it. */
int ckpt_cli_fail(const ckpt_cli *cli, const ckpt_err *err);

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
