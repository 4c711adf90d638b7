#include "tests/support/support_paths.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, FILES = 64 };

/* All of this is before the first check of a test: what is wrong ends the program. */
static void stop(const char *what, const char *path)
{
    fprintf(stderr, "tests: %s: %s\n", what, path);
    exit(EXIT_FAILURE);
}

static char *put(char *path, const char *folder, const char *name)
{
    const int length = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_BYTES) {
        stop("this path is too long", folder);
    }
    return path;
}

/* The folder above, in place. */
static bool go_up(char *path)
{
    char *const slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return slash != NULL && slash != path;
}

const char *ckpt_bin_dir(void)
{
    static char found[PATH_BYTES];
    const char *const set = getenv("CKPT_BIN_DIR");
    if (set != NULL || found[0] != '\0') {
        return set != NULL ? set : found;
    }
    const ssize_t length = readlink("/proc/self/exe", found, sizeof found - 1);
    if (length < 0 || !go_up(found)) {
        stop("which program runs is not known", "/proc/self/exe");
    }
    return found;
}

const char *ckpt_source_dir(void)
{
    static char found[PATH_BYTES];
    const char *const set = getenv("CKPT_SOURCE_DIR");
    if (set != NULL || found[0] != '\0') {
        return set != NULL ? set : found;
    }
    char model[PATH_BYTES];
    put(found, ckpt_bin_dir(), ".");
    while (access(put(model, found, "models/byte-gpt.json"), R_OK) != 0) {
        if (!go_up(found)) {
            stop("no folder above this one holds models/byte-gpt.json, and CKPT_SOURCE_DIR is not set", ckpt_bin_dir());
        }
    }
    return found;
}

const char *ckpt_work_dir(void)
{
    static char found[PATH_BYTES];
    const char *const set = getenv("CKPT_WORK_DIR");
    if (set == NULL && found[0] == '\0') {
        put(found, ckpt_bin_dir(), "../scratch");
    }
    const char *const folder = set != NULL ? set : found;
    struct stat status;
    if (mkdir(folder, 0777) != 0 && (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode))) {
        stop("cannot create this folder; CKPT_WORK_DIR may name another", folder);
    }
    return folder;
}

static const char *file_in(const char *folder, const char *name)
{
    static char *file[FILES];
    static char path[FILES][PATH_BYTES];
    char wanted[PATH_BYTES];
    put(wanted, folder, name);
    int i = 0;
    while (i < FILES && file[i] != NULL && strcmp(file[i], wanted) != 0) {
        i++;
    }
    if (i == FILES) {
        stop("more names of files than there is room for", wanted);
    }
    file[i] = memcpy(path[i], wanted, PATH_BYTES);
    return file[i];
}

const char *ckpt_source_file(const char *name)
{
    return file_in(ckpt_source_dir(), name);
}

const char *ckpt_bin_file(const char *name)
{
    return file_in(ckpt_bin_dir(), name);
}

const char *ckpt_work_file(const char *name)
{
    return file_in(ckpt_work_dir(), name);
}
