/* Makes traces of the spools that a command left: one for each process that did something on a GPU. */
#include "programs/profile/command_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "cupti/activity_trace.h"
#include "cupti/spool.h"

typedef struct spool_file {
    char *name; /* in the folder */
    int events; /* of its trace */
} spool_file;

typedef struct traces {
    const ckpt_command *command;
    const char *folder;
    void (*note)(const char *line);
    ckpt_arena *arena;
    spool_file *file;
    int count, room;
    ckpt_err *err;
} traces;

static ckpt_code no_memory(const traces *t)
{
    return CKPT_FAIL(t->err, CKPT_NO_MEMORY, "no memory for the traces of the command");
}

static bool is_spool(const char *name)
{
    const size_t length = strlen(name);
    return length > strlen(".spool") && strcmp(name + length - strlen(".spool"), ".spool") == 0;
}

static ckpt_code add_file(traces *t, const char *name)
{
    if (t->count == t->room) {
        const int room = t->room > 0 ? 2 * t->room : 16;
        spool_file *const grown = CKPT_NEW(t->arena, spool_file, room);
        if (grown == NULL) {
            return no_memory(t);
        }
        for (int i = 0; i < t->count; i++) {
            grown[i] = t->file[i];
        }
        t->file = grown;
        t->room = room;
    }
    char *const kept = ckpt_arena_text(t->arena, name);
    if (kept == NULL) {
        return no_memory(t);
    }
    t->file[t->count++] = (spool_file){kept, 0};
    return CKPT_OK;
}

static ckpt_code list_files(traces *t)
{
    DIR *const folder = opendir(t->folder);
    if (folder == NULL) {
        return CKPT_FAIL(t->err, CKPT_IO, "what was recorded is gone: %.200s: %s", t->folder, strerror(errno));
    }
    ckpt_code code = CKPT_OK;
    for (const struct dirent *entry = readdir(folder); entry != NULL && code == CKPT_OK; entry = readdir(folder)) {
        code = is_spool(entry->d_name) ? add_file(t, entry->d_name) : CKPT_OK;
    }
    closedir(folder);
    return code;
}

static int by_events(const void *a, const void *b)
{
    const spool_file *const x = a, *const y = b;
    return x->events != y->events ? (x->events > y->events ? -1 : 1) : strcmp(x->name, y->name);
}

/* Notes "process 123 (python): ...". */
static ckpt_code tell(const traces *t, const ckpt_spool_content *content, const char *what, const char *more)
{
    const ckpt_mark mark = ckpt_arena_mark(t->arena);
    const bool named = content->program[0] != '\0';
    char *const line = ckpt_arena_format(t->arena, "process %" PRIu32 "%s%.60s%s: %s%s", content->process,
                                         named ? " (" : "", content->program, named ? ")" : "", what, more);
    if (line == NULL) {
        return no_memory(t);
    }
    ckpt_text_flatten(line); /* a program may call itself anything */
    t->note(line);
    ckpt_arena_rewind(t->arena, mark);
    return CKPT_OK;
}

static ckpt_code read_spool(const traces *t, const spool_file *file, ckpt_spool_content *content)
{
    const char *const path = ckpt_arena_format(t->arena, "%s/%s", t->folder, file->name);
    return path != NULL ? ckpt_spool_read(path, t->arena, content, t->err) : no_memory(t);
}

/* Counts the events of a spool. Notes a line about a process that has none. */
static ckpt_code look_at(traces *t, spool_file *file)
{
    const ckpt_mark mark = ckpt_arena_mark(t->arena);
    ckpt_spool_content content;
    const ckpt_code code = read_spool(t, file, &content);
    if (code == CKPT_BAD_INPUT || code == CKPT_IO) { /* one bad spool does not stop the others */
        t->note(t->err->msg);
        return CKPT_OK;
    }
    CKPT_TRY(code);
    for (int i = 0; i < content.count; i++) {
        file->events += content.activity[i].kind <= CKPT_ACTIVITY_RELEASE;
    }
    if (content.word[CKPT_SPOOL_REFUSED] != NULL) {
        CKPT_TRY(tell(t, &content, "not recorded: ", content.word[CKPT_SPOOL_REFUSED]));
    } else if (file->events == 0 && content.word[CKPT_SPOOL_STOPPED] != NULL) {
        CKPT_TRY(tell(t, &content, "nothing was recorded: ", content.word[CKPT_SPOOL_STOPPED]));
    } else if (file->events == 0) {
        CKPT_TRY(tell(t, &content, "prepared for CUDA, and nothing it did on a GPU was recorded",
                      content.word[CKPT_SPOOL_ENDED] == NULL ? ": it did not end by exit" : ""));
    }
    ckpt_arena_rewind(t->arena, mark);
    return CKPT_OK;
}

/* The output for the process with most events, "<stem>.<process>.json" for any other. */
static const char *output_of(const traces *t, const spool_file *file)
{
    const char *const output = t->command->output;
    if (file == t->file || strcmp(output, "-") == 0) {
        return file == t->file ? output : "";
    }
    size_t stem = strlen(output);
    if (stem > strlen(".json") && strcmp(output + stem - strlen(".json"), ".json") == 0) {
        stem -= strlen(".json");
    }
    int name = (int)(strlen(file->name) - strlen(".spool")); /* "<process>-<n>", n > 0 after an exec */
    if (name > 2 && memcmp(file->name + name - 2, "-0", 2) == 0) {
        name -= 2;
    }
    return ckpt_arena_format(t->arena, "%.*s.%.*s.json", (int)stem, output, name, file->name);
}

/* The driver's name for the first GPU of this machine. */
static void gpu_name(char *name, size_t room)
{
    snprintf(name, room, "GPU of a name the system does not tell");
    DIR *const gpus = opendir("/proc/driver/nvidia/gpus");
    for (const struct dirent *gpu = gpus != NULL ? readdir(gpus) : NULL; gpu != NULL; gpu = readdir(gpus)) {
        char path[400], line[200];
        snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", gpu->d_name);
        FILE *const file = gpu->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            const char *const value = strncmp(line, "Model:", 6) == 0 ? line + 6 + strspn(line + 6, " \t") : NULL;
            if (value != NULL) {
                snprintf(name, room, "%.*s", (int)strcspn(value, "\r\n"), value);
            }
        }
        if (file != NULL) {
            fclose(file);
            break;
        }
    }
    if (gpus != NULL) {
        closedir(gpus);
    }
}

static ckpt_code fill_machine(const traces *t, const ckpt_spool_content *content, ckpt_trace *trace)
{
    char name[200];
    gpu_name(name, sizeof name);
    trace->recorder = content->word[CKPT_SPOOL_RECORDER] != NULL ? content->word[CKPT_SPOOL_RECORDER] : "CUPTI";
    CKPT_TRY(ckpt_machine_read(0, "", t->command->argc_all, t->command->argv_all, t->arena, &trace->machine, t->err));
    return ckpt_machine_set_gpu(&trace->machine, name, t->arena, t->err);
}

static ckpt_code write_trace(const traces *t, const ckpt_trace *trace, const char *path)
{
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(path, &text, t->err));
    ckpt_trace_write(trace, &text);
    return ckpt_file_end_text(&text, CKPT_OK, t->err);
}

/* Notes "12 kernels, 3 copies, ... in trace.json", and what is missing. */
static ckpt_code tell_trace(const traces *t, const ckpt_spool_content *content, const ckpt_activity_summary *summary,
                            ckpt_ns time_ns, const char *path)
{
    char overhead[CKPT_UNITS_TEXT] = "", shown[CKPT_UNITS_TEXT], what[300];
    snprintf(what, sizeof what, "%d kernels, %d copies, %d fills, %d allocations and %d releases on %d GPU%s%s%s in ",
             summary->kernels, summary->copies, summary->fills, summary->allocations, summary->releases,
             summary->devices, summary->devices == 1 ? "" : "s", summary->overhead_ns > 0 ? "; CUPTI took " : "",
             summary->overhead_ns > 0 ? ckpt_ns_show(summary->overhead_ns, overhead) : "");
    CKPT_TRY(tell(t, content, what, path[0] != '\0' ? path : "no file: with -o FILE each process has its own"));
    if (content->word[CKPT_SPOOL_STOPPED] != NULL) {
        snprintf(what, sizeof what, "only the first %s are recorded: ", ckpt_ns_show(time_ns, shown));
        CKPT_TRY(tell(t, content, what, content->word[CKPT_SPOOL_STOPPED]));
    } else if (content->cut || content->word[CKPT_SPOOL_ENDED] == NULL) {
        CKPT_TRY(tell(t, content, "did not end by exit: its last tenth of a second may be missing", ""));
    }
    if (summary->timeline.unknown_frees > 0 || summary->timeline.double_allocates > 0) {
        snprintf(what, sizeof what,
                 "%d releases of memory that was not seen allocated are left out, %d allocations took the place of one "
                 "that was not seen released",
                 summary->timeline.unknown_frees, summary->timeline.double_allocates);
        CKPT_TRY(tell(t, content, what, ""));
    }
    return CKPT_OK;
}

static ckpt_code make_trace(const traces *t, const spool_file *file)
{
    const ckpt_mark mark = ckpt_arena_mark(t->arena);
    ckpt_spool_content content;
    ckpt_activity_summary summary;
    ckpt_trace *trace = NULL;
    CKPT_TRY(read_spool(t, file, &content));
    CKPT_TRY(ckpt_activity_trace(content.activity, content.count, content.program, t->arena, &trace, &summary, t->err));
    CKPT_TRY(fill_machine(t, &content, trace));
    const char *const path = output_of(t, file);
    if (path == NULL) {
        return no_memory(t);
    }
    if (path[0] != '\0') {
        CKPT_TRY(write_trace(t, trace, path));
    }
    CKPT_TRY(tell_trace(t, &content, &summary, trace->time_ns, path));
    ckpt_arena_rewind(t->arena, mark);
    return CKPT_OK;
}

static ckpt_code go_on(const traces *t)
{
    return ckpt_command_interrupted() ? CKPT_FAIL(t->err, CKPT_INTERRUPTED, "interrupted: not all traces are written")
                                      : CKPT_OK;
}

static ckpt_code make_traces(traces *t)
{
    CKPT_TRY(list_files(t));
    for (int i = 0; i < t->count; i++) {
        CKPT_TRY(look_at(t, &t->file[i]));
        CKPT_TRY(go_on(t));
    }
    if (t->count > 0) {
        qsort(t->file, (size_t)t->count, sizeof *t->file, by_events);
    }
    for (int i = 0; i < t->count && t->file[i].events > 0; i++) {
        CKPT_TRY(make_trace(t, &t->file[i]));
        CKPT_TRY(go_on(t));
    }
    if (t->count == 0) {
        t->note("no process used CUDA: nothing was recorded");
    } else if (t->file[0].events == 0) {
        t->note("nothing was recorded: no trace is written");
    }
    return CKPT_OK;
}

ckpt_code ckpt_command_traces(const ckpt_command *command, const char *folder, void (*note)(const char *line),
                              ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_err own = {0};
    ckpt_arena_init(&arena);
    traces t = {.command = command, .folder = folder, .note = note, .arena = &arena, .err = &own};
    const ckpt_code code = make_traces(&t);
    ckpt_arena_fini(&arena);
    if (code != CKPT_OK && err != NULL) {
        *err = own;
    }
    return code;
}

void ckpt_command_clean(const char *folder)
{
    enum { ATTEMPTS = 5 }; /* a process that outlives the command may be making another spool */
    for (int i = 0; i < ATTEMPTS && rmdir(folder) != 0; i++) {
        DIR *const open = opendir(folder);
        for (const struct dirent *entry = open != NULL ? readdir(open) : NULL; entry != NULL; entry = readdir(open)) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
                unlinkat(dirfd(open), entry->d_name, 0);
            }
        }
        if (open != NULL) {
            closedir(open);
        }
    }
}
