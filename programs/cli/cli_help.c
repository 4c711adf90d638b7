/* What a program says of itself, all from its one table: --help, and with --help-as its man page and the completions of
 * three shells, which the build installs (cmake/ckpt_install.cmake), and its part of docs/reference/options.md, which
 * scripts/pages writes. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "programs/cli/cli.h"
#include "programs/cli/cli_impl.h"

static const char *const programs[] = {"ckpt-compare", "ckpt-graph", "ckpt-plan",
                                       "ckpt-profile", "ckpt-train", "ckpt-view"};
enum { PROGRAM_COUNT = sizeof programs / sizeof programs[0] };

static const char usual_status[] =
    "0 ok, 1 the answer is no, 2 bad usage or input, 3 device or memory refused, 130 interrupted";

/* Options of every program. */
static const ckpt_cli_option common[] = {
    {"color", 0, "auto|always|never", "colours in a terminal; auto obeys NO_COLOR (auto)"},
    {"help", 'h', NULL, "print this and exit"},
    {"version", 0, NULL, "print the version and exit"},
    {NULL, 0, NULL, NULL},
};

const ckpt_cli_option *ckpt_cli_option_at(const ckpt_cli *cli, int which)
{
    int own = 0;
    while (own <= which && cli->option[own].name != NULL) {
        own++;
    }
    const ckpt_cli_option *const option = which < own ? &cli->option[which] : &common[which - own];
    return option->name != NULL ? option : NULL;
}

/* ---- for people ---- */

enum { HELP_COLUMN = 31, HELP_WIDTH = 120 };

/* The help stands beside the option, or below a long one. Long help is wrapped. */
static void print_option(const char *left, const char *help)
{
    const size_t room = HELP_WIDTH - HELP_COLUMN;
    if (strlen(left) > HELP_COLUMN - 3) {
        printf("  %s\n%*s", left, HELP_COLUMN, "");
    } else {
        printf("  %-28s ", left);
    }
    while (strlen(help) > room) {
        size_t cut = room;
        while (cut > 0 && help[cut] != ' ') {
            cut--;
        }
        cut = cut > 0 ? cut : room; /* one word longer than a line */
        printf("%.*s\n%*s", (int)cut, help, HELP_COLUMN, "");
        help += cut + (help[cut] == ' ');
    }
    printf("%s\n", help);
}

static void print_help(const ckpt_cli *cli)
{
    printf("usage: %s\n\n%s\n\noptions:\n", cli->usage, cli->about);
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        char left[80];
        const char *const between = o->argument != NULL ? " " : "";
        const char *const argument = o->argument != NULL ? o->argument : "";
        if (o->letter != 0) {
            snprintf(left, sizeof left, "-%c, --%s%s%s", o->letter, o->name, between, argument);
        } else {
            snprintf(left, sizeof left, "    --%s%s%s", o->name, between, argument);
        }
        print_option(left, o->help);
    }
    for (const char *const *e = cli->example; e != NULL && *e != NULL; e += 2) {
        printf("%s  %s\n      %s\n", e == cli->example ? "\nexamples:\n" : "", e[0], e[1]);
    }
    printf("\nexit status: %s\n", cli->status != NULL ? cli->status : usual_status);
}

/* ---- man pages ---- */

/* Text for roff: nothing in it is a command, and a hyphen can be copied into a shell. */
static void print_roff(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if ((c == text || c[-1] == '\n') && (*c == '.' || *c == '\'')) {
            printf("\\&");
        }
        if (*c == '\\') {
            printf("\\e");
        } else if (*c == '-') {
            printf("\\-");
        } else {
            putchar(*c);
        }
    }
}

static void print_upper(const char *text)
{
    for (; *text != '\0'; text++) {
        putchar(toupper((unsigned char)*text));
    }
}

/* The first sentence about the program, without its full stop: `man -k` shows it. */
static void print_summary(const char *about)
{
    char line[256];
    size_t length = strcspn(about, "\n:");
    const char *const stop = strstr(about, ". ");
    length = stop != NULL && (size_t)(stop - about) < length ? (size_t)(stop - about) : length;
    length = length < sizeof line ? length : sizeof line - 1;
    memcpy(line, about, length);
    line[length] = '\0';
    if (length > 0 && line[length - 1] == '.') {
        line[length - 1] = '\0';
    }
    line[0] = (char)tolower((unsigned char)line[0]);
    print_roff(line);
}

static void print_man_option(const ckpt_cli_option *o)
{
    printf(".TP\n");
    if (o->letter != 0) {
        printf("\\fB\\-%c\\fR, ", o->letter);
    }
    printf("\\fB\\-\\-");
    print_roff(o->name);
    printf("\\fR");
    if (o->argument != NULL) {
        printf(" \\fI");
        print_roff(o->argument);
        printf("\\fR");
    }
    putchar('\n');
    print_roff(o->help);
    putchar('\n');
}

static void print_man(const ckpt_cli *cli)
{
    printf(".TH ");
    print_upper(cli->program);
    printf(" 1 \"%s\" \"ckpt %s\" \"User Commands\"\n.SH NAME\n", CKPT_VERSION_DATE, CKPT_VERSION);
    print_roff(cli->program);
    printf(" \\- ");
    print_summary(cli->about);
    printf("\n.SH SYNOPSIS\n.nf\n");
    print_roff(cli->usage);
    printf("\n.fi\n.SH DESCRIPTION\n");
    print_roff(cli->about);
    printf("\n.SH OPTIONS\n");
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        print_man_option(o);
    }
    printf(".SH EXIT STATUS\n");
    print_roff(cli->status != NULL ? cli->status : usual_status);
    printf("\n.SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nwhen set and not empty, no colours (https://no\\-color.org)\n");
    for (const char *const *e = cli->example; e != NULL && *e != NULL; e += 2) {
        printf("%s.TP\n\\fB", e == cli->example ? ".SH EXAMPLES\n" : "");
        print_roff(e[0]);
        printf("\\fR\n");
        print_roff(e[1]);
        putchar('\n');
    }
    printf(".SH SEE ALSO\n");
    const char *between = "";
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        if (strcmp(programs[i], cli->program) != 0) {
            printf("%s.BR ", between);
            print_roff(programs[i]);
            printf(" (1)");
            between = ",\n";
        }
    }
    putchar('\n');
}

/* ---- a page of the documentation ---- */

static void print_markdown_text(const char *text)
{
    for (; *text != '\0'; text++) {
        printf("%s%c", strchr("*<[", *text) != NULL ? "\\" : "", *text);
    }
}

static void print_markdown(const ckpt_cli *cli)
{
    printf("## %s\n\n```\n%s\n```\n\n", cli->program, cli->usage);
    print_markdown_text(cli->about);
    printf("\n\n");
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        printf("- `");
        if (o->letter != 0) {
            printf("-%c`, `", o->letter);
        }
        printf("--%s%s%s`: ", o->name, o->argument != NULL ? " " : "", o->argument != NULL ? o->argument : "");
        print_markdown_text(o->help);
        putchar('\n');
    }
    for (const char *const *e = cli->example; e != NULL && *e != NULL; e += 2) {
        printf("%s- `%s`: %s\n", e == cli->example ? "\nExamples:\n\n" : "", e[0], e[1]);
    }
    printf("\nExit status: %s.\n", cli->status != NULL ? cli->status : usual_status);
}

/* ---- completions ---- */

static bool is_path(const ckpt_cli_option *o)
{
    return o->argument != NULL && (strcmp(o->argument, "FILE") == 0 || strcmp(o->argument, "FOLDER") == 0);
}

static bool has_words(const ckpt_cli_option *o)
{
    return o->argument != NULL && strchr(o->argument, '|') != NULL;
}

/* "a|b|c" as "a b c". */
static void print_words(const ckpt_cli_option *o)
{
    for (const char *c = o->argument; *c != '\0'; c++) {
        putchar(*c == '|' ? ' ' : *c);
    }
}

/* For single quotes of a shell; also with a backslash before each of `special`. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            printf("'\\''");
        } else {
            printf("%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
        }
    }
}

/* "-o|--output". */
static void print_pattern(const ckpt_cli_option *o)
{
    if (o->letter != 0) {
        printf("-%c|", o->letter);
    }
    printf("--%s", o->name);
}

/* The program's name as a shell function's: underscores for hyphens. */
static void print_function(const char *program)
{
    for (; *program != '\0'; program++) {
        putchar(*program == '-' ? '_' : *program);
    }
}

/* bash cuts words at "=", so the option of "--name=" stands two words back. */
static void print_bash(const ckpt_cli *cli)
{
    printf("_");
    print_function(cli->program);
    printf("()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "    COMPREPLY=()\n    case $prev in\n");
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        if (o->argument == NULL || is_path(o)) {
            continue; /* files are what bash completes by itself */
        }
        printf("        ");
        print_pattern(o);
        if (has_words(o)) {
            printf(") mapfile -t COMPREPLY < <(compgen -W '");
            print_words(o);
            printf("' -- \"$cur\"); return ;;\n");
        } else {
            printf(") compopt +o default; return ;;\n");
        }
    }
    printf("    esac\n    if [[ $cur == -* ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '");
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        printf("%s--%s", i > 0 ? " " : "", o->name);
    }
    printf("' -- \"$cur\")\n    fi\n}\ncomplete -o default -F _");
    print_function(cli->program);
    printf(" %s\n", cli->program);
}

static void print_zsh(const ckpt_cli *cli)
{
    printf("#compdef %s\n_arguments -S", cli->program);
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        const char *const equals = o->argument != NULL ? "=" : "";
        if (o->letter != 0) {
            printf(" \\\n  '*'{-%c%s,--%s%s}'[", o->letter, o->argument != NULL ? "+" : "", o->name, equals);
        } else {
            printf(" \\\n  '*--%s%s[", o->name, equals);
        }
        print_quoted(o->help, "[]\\:");
        putchar(']');
        if (o->argument != NULL) {
            printf(":");
            print_quoted(o->argument, ":[]\\");
            printf(":");
            if (is_path(o)) {
                printf("_files");
            } else if (has_words(o)) {
                printf("(");
                print_words(o);
                printf(")");
            }
        }
        putchar('\'');
    }
    printf(" \\\n  '*:file:_files'\n");
}

static void print_fish(const ckpt_cli *cli)
{
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        printf("complete -c %s -l %s", cli->program, o->name);
        if (o->letter != 0) {
            printf(" -s %c", o->letter);
        }
        if (has_words(o)) {
            printf(" -x -a '");
            print_words(o);
            printf("'");
        } else if (o->argument != NULL) {
            printf("%s", is_path(o) ? " -r -F" : " -x");
        }
        printf(" -d '");
        for (const char *c = o->help; *c != '\0'; c++) { /* fish has \' inside single quotes */
            printf("%s%c", *c == '\'' || *c == '\\' ? "\\" : "", *c);
        }
        printf("'\n");
    }
}

bool ckpt_cli_help(const ckpt_cli *cli, const char *as)
{
    static const struct {
        const char *name;
        void (*print)(const ckpt_cli *cli);
    } forms[] = {{"text", print_help}, {"man", print_man},   {"bash", print_bash},
                 {"zsh", print_zsh},   {"fish", print_fish}, {"markdown", print_markdown}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(as, forms[i].name) == 0) {
            forms[i].print(cli);
            return true;
        }
    }
    return false;
}
