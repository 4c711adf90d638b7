/* ckpt_command_record: makes a private folder for the spools, runs the command with our library in its environment, and
 * writes the traces after its end. Errors that can be found before the command runs are found then. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* realpath, mkdtemp */
#endif
#include "programs/profile/command_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CKPT_HAVE_CUPTI
extern char **environ;

static bool is_variable(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* Is the variable left out, because it is set here? */
static bool is_dropped(const char *entry, bool record)
{
    return record && (is_variable(entry, "CUDA_INJECTION64_PATH") || is_variable(entry, CKPT_SPOOL_VARIABLE));
}

/* The value of a variable; NULL: not set, or empty. */
static const char *given(const char *name)
{
    const char *const value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

ckpt_code ckpt_command_environment(const char *library, const char *folder, ckpt_arena *arena, char ***environment,
                                   ckpt_err *err)
{
    int count = 0, kept = 0;
    while (environ[count] != NULL) {
        count++;
    }
    const char *const name[] = {"CUDA_INJECTION64_PATH", CKPT_SPOOL_VARIABLE, "NVTX_INJECTION64_PATH"};
    const char *const value[] = {library, folder, library};
    char **const made = CKPT_NEW(arena, char *, count + 4);
    for (int i = 0; made != NULL && i < count; i++) {
        if (!is_dropped(environ[i], folder != NULL)) {
            made[kept++] = environ[i];
        }
    }
    const int added =
        given("NVTX_INJECTION64_PATH") != NULL ? 2 : 3; /* if another tool takes the ranges, leave them to it */
    for (int i = 0; made != NULL && folder != NULL && i < added; i++) {
        char *const text = ckpt_arena_format(arena, "%s=%s", name[i], value[i]);
        if (text == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the command's environment");
        }
        made[kept++] = text;
    }
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the command's environment");
    }
    *environment = made;
    return CKPT_OK;
}

/* The real path of a readable file, in the arena. `what` is for the message if it cannot be read. */
static ckpt_code real_path(const char *path, const char *what, ckpt_arena *arena, const char **real, ckpt_err *err)
{
    char *const found = realpath(path, NULL); /* the C library's malloc */
    if (found == NULL || access(found, R_OK) != 0) {
        const int why = errno;
        free(found);
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: %s; wanted %s", path, strerror(why), what);
    }
    *real = ckpt_arena_text(arena, found);
    free(found);
    return *real != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the path of %s", what);
}

static ckpt_code beside_program(ckpt_arena *arena, const char **library, ckpt_err *err)
{
    static const char *const folders[] = {"lib", CKPT_LIBDIR};
    const char *self = NULL;
    CKPT_TRY(real_path("/proc/self/exe", "this program's own file, or CKPT_INJECT_LIBRARY to name libckpt_inject.so",
                       arena, &self, err));
    const int folder = (int)(strrchr(self, '/') - self);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *const path = ckpt_arena_format(arena, "%.*s/../%s/libckpt_inject.so", folder, self, folders[i]);
        if (path == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the path of libckpt_inject.so");
        }
        const ckpt_code code = real_path(path, "libckpt_inject.so", arena, library, err);
        if (code != CKPT_BAD_INPUT) {
            return code;
        }
    }
    return CKPT_FAIL(err, CKPT_IO,
                     "libckpt_inject.so is not beside the program (../lib, ../" CKPT_LIBDIR
                     "); CKPT_INJECT_LIBRARY can name it");
}

ckpt_code ckpt_command_library(const char *asked, ckpt_arena *arena, const char **library, ckpt_err *err)
{
    const char *const name = asked != NULL ? asked : given("CKPT_INJECT_LIBRARY");
    return name != NULL ? real_path(name, "libckpt_inject.so", arena, library, err)
                        : beside_program(arena, library, err);
}

static ckpt_code make_folder(ckpt_arena *arena, const char **folder, ckpt_err *err)
{
    const char *const where = given("TMPDIR") != NULL ? given("TMPDIR") : "/tmp";
    const char *real = NULL;
    CKPT_TRY(real_path(where, "a folder for the recording (TMPDIR)", arena, &real, err));
    char *const made = ckpt_arena_format(arena, "%s/ckpt-inject-XXXXXX", real);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a folder's name");
    }
    if (mkdtemp(made) == NULL) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: no folder can be made there for the recording: %s", where,
                         strerror(errno));
    }
    *folder = made;
    return CKPT_OK;
}

/* Runs the command without recording, because another tool's library is injected already. */
static ckpt_code run_only(const ckpt_command *command, const char *holder, void (*note)(const char *line), bool *ran,
                          int *exit_code, ckpt_arena *arena, ckpt_err *err)
{
    char **environment = NULL;
    ckpt_command_signals before;
    const char *const line = ckpt_arena_format(
        arena, "CUDA_INJECTION64_PATH is %s already: that tool records, and nothing is recorded here", holder);
    if (line == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a line");
    }
    note(line);
    CKPT_TRY(ckpt_command_environment(NULL, NULL, arena, &environment, err));
    ckpt_command_take_signals(&before);
    const ckpt_code code = ckpt_command_run(command->argv, environment, &before, ran, exit_code, err);
    ckpt_command_return_signals(&before);
    return code;
}

static ckpt_code run_into(const ckpt_command *command, const char *library, const char *folder,
                          const ckpt_command_signals *before, void (*note)(const char *line), bool *ran, int *exit_code,
                          ckpt_arena *arena, ckpt_err *err)
{
    char **environment = NULL;
    CKPT_TRY(ckpt_command_environment(library, folder, arena, &environment, err));
    CKPT_TRY(ckpt_command_run(command->argv, environment, before, ran, exit_code, err));
    return ckpt_command_traces(command, folder, note, err);
}

static ckpt_code record(const ckpt_command *command, void (*note)(const char *line), bool *ran, int *exit_code,
                        ckpt_arena *arena, ckpt_err *err)
{
    const char *library = NULL, *folder = NULL;
    if (given("CUDA_INJECTION64_PATH") != NULL) {
        return run_only(command, given("CUDA_INJECTION64_PATH"), note, ran, exit_code, arena, err);
    }
    CKPT_TRY(ckpt_command_library(command->library, arena, &library, err));
    ckpt_command_signals before;
    ckpt_command_take_signals(&before); /* from here on the folder must be removed */
    ckpt_code code = make_folder(arena, &folder, err);
    if (code == CKPT_OK) {
        code = run_into(command, library, folder, &before, note, ran, exit_code, arena, err);
        ckpt_command_clean(folder);
    }
    ckpt_command_return_signals(&before);
    return code;
}

ckpt_code ckpt_command_record(const ckpt_command *command, void (*note)(const char *line), bool *ran, int *exit_code,
                              ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    *ran = false;
    *exit_code = 0;
    const ckpt_code code = record(command, note, ran, exit_code, &arena, err);
    ckpt_arena_fini(&arena);
    return code;
}

#else

ckpt_code ckpt_command_record(const ckpt_command *command, void (*note)(const char *line), bool *ran, int *exit_code,
                              ckpt_err *err)
{
    (void)command;
    (void)note;
    *ran = false;
    *exit_code = 0;
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "this build has no CUPTI: its headers were not found when ckpt was built (-DCKPT_CUPTI=ON says "
                     "what is missing)");
}
#endif
