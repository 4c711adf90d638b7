/* What cli.c (parsing) and cli_help.c (help, man pages, completions) share. */
#ifndef CKPT_PROGRAMS_CLI_CLI_IMPL_H
#define CKPT_PROGRAMS_CLI_CLI_IMPL_H

#include "programs/cli/cli.h"

/* The program's options and then those of all programs; NULL behind the last. */
const ckpt_cli_option *ckpt_cli_option_at(const ckpt_cli *cli, int which);

/* Print the program's help as "text", "man", "bash", "zsh", "fish" or "markdown"; false: no such form. */
bool ckpt_cli_help(const ckpt_cli *cli, const char *as);

#endif
