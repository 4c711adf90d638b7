/* Files that a command line names: which of them others would replace, and which cannot be written. */
#include <string.h>

#include "core/base/file.h"
#include "programs/cli/cli.h"

static bool is_dash(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Would writing `w` replace `other`? */
static bool replaces(const ckpt_cli_file *w, const ckpt_cli_file *other)
{
    if (other->reads != NULL) {
        return w->path != NULL && other->reads(other->what, w->path);
    }
    return (w->replaces == NULL || strcmp(w->replaces, other->option) != 0) && ckpt_file_same(w->path, other->path);
}

static ckpt_code check_one(const ckpt_cli_file *file, int count, int i, ckpt_err *err)
{
    const ckpt_cli_file *const w = &file[i];
    if (w->path != NULL && w->path[0] == '\0') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: cannot write: the name of the file is empty", w->option);
    }
    for (int k = 0; k < count; k++) {
        const bool before = k < i || !file[k].written; /* of two that are written the second is named first */
        if (before && replaces(w, &file[k])) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: %s would replace the file of %s", w->path, w->option,
                             file[k].option);
        }
        if (k < i && file[k].written && is_dash(w->path) && is_dash(file[k].path)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "only one of %s - and %s - can have standard output", file[k].option,
                             w->option);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_cli_check_files(const ckpt_cli_file *file, int count, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        CKPT_TRY(file[i].written ? check_one(file, count, i, err) : CKPT_OK);
    }
    for (int i = 0; i < count; i++) {
        if (file[i].written && !file[i].unprobed && file[i].path != NULL) {
            CKPT_TRY(ckpt_file_probe(file[i].path, file[i].bytes, err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_cli_stage_file(const char *path, int stage, ckpt_arena *out, const char **name, ckpt_err *err)
{
    if (path == NULL) {
        *name = NULL;
        return CKPT_OK;
    }
    const char *const slash = strrchr(path, '/');
    const char *const base = slash != NULL ? slash + 1 : path;
    const char *const dot = strrchr(base, '.');
    const char *const end = dot != NULL && dot != base ? dot : path + strlen(path);
    const char *const made = ckpt_arena_format(out, "%.*s.stage-%d%s", (int)(end - path), path, stage, end);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the name of a stage's file");
    }
    *name = made;
    return CKPT_OK;
}
