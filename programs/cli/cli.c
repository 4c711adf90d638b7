/* Command lines, GNU style, without getopt_long (no POSIX function) and without its global state. */
#include "programs/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "programs/cli/cli_impl.h"

/* The option called `name`, or the only one whose name begins with it. *matches: options that `name` may mean. */
static const ckpt_cli_option *find_long(const ckpt_cli *cli, const char *name, size_t length, int *matches)
{
    const ckpt_cli_option *found = NULL;
    const ckpt_cli_option *o = NULL;
    *matches = 0;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        if (strncmp(o->name, name, length) == 0) {
            if (o->name[length] == '\0') {
                *matches = 1;
                return o;
            }
            found = o;
            (*matches)++;
        }
    }
    return *matches == 1 ? found : NULL;
}

static int bad_usage(const ckpt_cli *cli, const char *format, ...) CKPT_PRINTF(2, 3);

/* The program's name stands out where colours are wanted. */
static void complain(const ckpt_cli *cli, const char *line, const char *tail)
{
    const bool color = ckpt_cli_color(cli, stderr);
    fprintf(stderr, "%s%s:%s %s%s\n", color ? "\033[1;31m" : "", cli->program, color ? "\033[0m" : "", line, tail);
}

static void print_line(const ckpt_cli *cli, const char *format, va_list args, const char *tail)
{
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    ckpt_text_flatten(line);
    complain(cli, line, tail);
}

void ckpt_cli_note(const char *program, const char *format, ...)
{
    char line[1024];
    va_list args;
    const int name = snprintf(line, sizeof line / 2, "%s: ", program);
    const size_t at = name < 0 ? 0 : (size_t)name < sizeof line / 2 ? (size_t)name : sizeof line / 2 - 1;
    va_start(args, format);
    vsnprintf(line + at, sizeof line - at, format, args);
    va_end(args);
    ckpt_text_flatten(line);
    ckpt_cli_progress_clear();
    fprintf(stderr, "%s\n", line);
}

static int bad_usage(const ckpt_cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(cli, format, args, "; see --help");
    va_end(args);
    return -2;
}

/* The argument of an option: attached to it, or the next word. */
static int take_value(ckpt_cli *cli, const ckpt_cli_option *option, const char *attached, const char **name,
                      const char **value)
{
    if (attached == NULL) {
        if (cli->next >= cli->argc) {
            return bad_usage(cli, "--%s needs %s", option->name, option->argument);
        }
        attached = cli->argv[cli->next++];
    }
    *name = option->name;
    *value = attached;
    return 1;
}

/* --color is the same in all programs: it is kept here, and the next option is given. */
static int take_color(ckpt_cli *cli, const char **name, const char **value)
{
    if (strcmp(*value, "auto") != 0 && strcmp(*value, "always") != 0 && strcmp(*value, "never") != 0) {
        return bad_usage(cli, "found --color '%s', wanted auto, always or never", *value);
    }
    cli->color = *value;
    return ckpt_cli_next(cli, name, value);
}

/* What ckpt_cli_next gives when something was printed in place of the program's work. */
static int printed(const ckpt_cli *cli)
{
    return ckpt_cli_end(cli, 0) == 0 ? -1 : -2;
}

/* --help and --version print and end. */
static int take_switch(const ckpt_cli *cli, const ckpt_cli_option *option, const char **name, const char **value)
{
    if (strcmp(option->name, "help") == 0) {
        (void)ckpt_cli_help(cli, "text");
        return printed(cli);
    }
    if (strcmp(option->name, "version") == 0) {
        printf("%s %s\n", cli->program, CKPT_VERSION);
        return printed(cli);
    }
    *name = option->name;
    *value = NULL;
    return 1;
}

static int next_long(ckpt_cli *cli, const char *word, const char **name, const char **value)
{
    const size_t length = strcspn(word, "=");
    const char *const attached = word[length] == '=' ? word + length + 1 : NULL;
    if (strncmp(word, "help-as=", 8) == 0) { /* only for the build, so not in the table */
        return ckpt_cli_help(cli, attached) ? printed(cli) : bad_usage(cli, "unknown form %s", attached);
    }
    int matches = 0;
    const ckpt_cli_option *const option = length > 0 ? find_long(cli, word, length, &matches) : NULL;
    if (option == NULL) {
        return bad_usage(cli, "%s option --%.*s", matches > 1 ? "ambiguous" : "unknown", (int)length, word);
    }
    if (option->argument != NULL) {
        const int taken = take_value(cli, option, attached, name, value);
        return taken == 1 && strcmp(option->name, "color") == 0 ? take_color(cli, name, value) : taken;
    }
    if (attached != NULL) {
        return bad_usage(cli, "--%s takes no argument", option->name);
    }
    return take_switch(cli, option, name, value);
}

/* "-v", "-ovalue", "-o value". Switches are not bundled: no program here has two with letters. */
static int next_short(ckpt_cli *cli, const char *word, const char **name, const char **value)
{
    const ckpt_cli_option *o = NULL;
    for (int i = 0; (o = ckpt_cli_option_at(cli, i)) != NULL; i++) {
        if (o->letter != word[1] || o->letter == 0) {
            continue;
        }
        if (o->argument != NULL) {
            return take_value(cli, o, word[2] != '\0' ? word + 2 : NULL, name, value);
        }
        if (word[2] != '\0') {
            return bad_usage(cli, "-%c takes no argument", word[1]);
        }
        return take_switch(cli, o, name, value);
    }
    return bad_usage(cli, "unknown option %s", word);
}

int ckpt_cli_next(ckpt_cli *cli, const char **name, const char **value)
{
    if (cli->next == 0) {
        cli->next = 1; /* argv[0] is the program */
    }
    if (cli->next >= cli->argc) {
        return 0;
    }
    /* After "--" everything is an operand. A "--" that is an option's argument was taken by take_value. */
    const char *const word = cli->argv[cli->next++];
    if (!cli->operands_only) {
        if (strcmp(word, "--") == 0) {
            cli->operands_only = true;
            return ckpt_cli_next(cli, name, value);
        }
        if (word[0] == '-' && word[1] == '-') {
            return next_long(cli, word + 2, name, value);
        }
        if (word[0] == '-' && word[1] != '\0') {
            return next_short(cli, word, name, value);
        }
    }
    *name = "";
    *value = word;
    return 1;
}

int ckpt_cli_fail(const ckpt_cli *cli, const ckpt_err *err)
{
    complain(cli, err->msg, "");
    return ckpt_exit_code(err->code);
}

int ckpt_cli_end(const ckpt_cli *cli, int exit_code)
{
    const bool before = ferror(stdout) != 0;
    errno = 0;
    if ((fflush(stdout) == 0 && !before) || exit_code != 0) {
        return exit_code;
    }
    char line[160];
    snprintf(line, sizeof line, "cannot write to standard output%s%s", errno != 0 ? ": " : "",
             errno != 0 ? strerror(errno) : "");
    complain(cli, line, "");
    return ckpt_exit_code(CKPT_IO);
}

void ckpt_cli_outlive_limits(void)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGXFSZ, &ignored, NULL);
}

int ckpt_cli_usage(const ckpt_cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(cli, format, args, "; see --help");
    va_end(args);
    return 2;
}

int ckpt_cli_keep(const ckpt_cli *cli, const ckpt_cli_field *field, size_t count, const char *name, const char *value)
{
    size_t i = 0;
    while (i < count && strcmp(field[i].name, name) != 0) {
        i++;
    }
    if (i == count) {
        return -1;
    }
    const ckpt_cli_field *const f = &field[i];
    if (f->text != NULL) {
        *f->text = value;
        return 0;
    }
    if (f->yes != NULL) {
        *f->yes = true;
        return 0;
    }
    return (f->count != NULL ? ckpt_int_parse(value, (int)f->low, (int)f->high, f->count)
                             : ckpt_int64_parse(value, f->low, f->high, f->number))
               ? 0
               : ckpt_cli_usage(cli, "--%s takes a number from %lld to %lld, found \"%s\"", name, (long long)f->low,
                                (long long)f->high, value);
}

bool ckpt_cli_color(const ckpt_cli *cli, FILE *stream)
{
    if (cli->color != NULL && strcmp(cli->color, "auto") != 0) {
        return strcmp(cli->color, "always") == 0;
    }
    const char *const off = getenv("NO_COLOR"); /* https://no-color.org: present and not empty */
    return (off == NULL || off[0] == '\0') && isatty(fileno(stream)) == 1;
}

void ckpt_cli_progress(const char *what, int64_t done, int64_t total, ckpt_ns elapsed_ns)
{
    if (isatty(STDERR_FILENO) != 1) {
        return;
    }
    fprintf(stderr, "\r%s %lld/%lld", what, (long long)done, (long long)total);
    if (done > 0 && done < total && elapsed_ns > 0) {
        const double left = (double)elapsed_ns / (double)done * (double)(total - done) / 1e9;
        fprintf(stderr, ", %.0f s left", left);
    }
    fprintf(stderr, "      %s", done >= total ? "\n" : ""); /* blanks cover the tail of a longer line */
    fflush(stderr);
}

void ckpt_cli_progress_clear(void)
{
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "\r%60s\r", "");
        fflush(stderr);
    }
}
