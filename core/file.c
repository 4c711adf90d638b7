/* A file is written beside its name and renamed, after it has reached the disk. What is no regular file (a pipe,
 * /dev/null) is written in place, because a rename would replace it. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *shown(const char *path, const char *dash)
{
    return strcmp(path, "-") == 0 ? dash : path;
}

static ckpt_code read_all(FILE *file, const char *name, char **block, size_t *length, ckpt_err *err)
{
    struct stat status;
    size_t room = 1 << 16;
    if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= 0) {
        if ((uintmax_t)status.st_size > CKPT_FILE_MAX) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: %" PRIdMAX " bytes, and at most %zu are read", name,
                             (intmax_t)status.st_size, CKPT_FILE_MAX);
        }
        room = (size_t)status.st_size + 2; /* one more, so that the end of the file is seen without growing */
    }
    for (;;) {
        char *const grown = ckpt_memory_resize(*block, room);
        if (grown == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to read %zu bytes", name, room);
        }
        *block = grown;
        *length += fread(grown + *length, 1, room - 1 - *length, file);
        if (ferror(file)) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: %s", name, strerror(errno));
        }
        if (*length > CKPT_FILE_MAX) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: more than the %zu bytes that are read", name, CKPT_FILE_MAX);
        }
        if (*length < room - 1) {
            grown[*length] = '\0';
            return CKPT_OK;
        }
        room *= 2;
    }
}

/* A pipe gives its bytes once, so those of standard input are kept: its second reader gets them too. */
static struct {
    char *bytes;
    size_t length;
} kept;

ckpt_code ckpt_file_read(const char *path, ckpt_arena *arena, const char **bytes, size_t *length, ckpt_err *err)
{
    const bool standard = strcmp(path, "-") == 0;
    const char *const name = shown(path, "standard input");
    char *block = standard ? kept.bytes : NULL;
    size_t count = standard ? kept.length : 0;
    ckpt_code code = CKPT_OK;
    if (block == NULL) {
        FILE *const file = standard ? stdin : fopen(path, "rb");
        if (file == NULL) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: %s", name, strerror(errno));
        }
        code = read_all(file, name, &block, &count, err);
        if (!standard) {
            fclose(file);
        }
    }
    if (code == CKPT_OK && standard) {
        kept.bytes = block;
        kept.length = count;
    }
    if (code == CKPT_OK) {
        char *const copy = ckpt_arena_take(arena, count + 1, 1);
        if (copy == NULL) {
            code = CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to keep %zu bytes", name, count);
        } else {
            memcpy(copy, block, count);
            *bytes = copy;
            *length = count;
        }
    }
    if (block != kept.bytes) {
        ckpt_memory_put(block);
    }
    return code;
}

static bool write_all(int fd, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length > 0) {
        const ssize_t count = write(fd, from, length);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        from += count;
        length -= (size_t)count;
    }
    return true;
}

static ckpt_code failed(const char *name, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s", name, strerror(errno));
}

static ckpt_code write_in_place(int fd, const char *name, const void *bytes, size_t length, bool close_it,
                                ckpt_err *err)
{
    if (fd < 0) {
        return failed(name, err);
    }
    ckpt_code code = write_all(fd, bytes, length) ? CKPT_OK : failed(name, err);
    if (close_it && close(fd) != 0 && code == CKPT_OK) {
        code = failed(name, err);
    }
    return code;
}

static ckpt_code write_beside(const char *path, const struct stat *old, const void *bytes, size_t length, ckpt_err *err)
{
    const size_t room = strlen(path) + 40;
    char *const beside = ckpt_memory_get(room);
    if (beside == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for a file name", path);
    }
    int fd = -1;
    for (int attempt = 0; fd < 0 && attempt < 100; attempt++) {
        snprintf(beside, room, "%s.%ld-%d.part", path, (long)getpid(), attempt);
        fd = open(beside, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    ckpt_code code = CKPT_OK;
    if (fd < 0) {
        code = failed(path, err);
    } else {
        const bool written =
            write_all(fd, bytes, length) && (old == NULL || fchmod(fd, old->st_mode & 07777) == 0) && fsync(fd) == 0;
        if (!written) {
            code = failed(path, err);
        }
        if (close(fd) != 0 && code == CKPT_OK) {
            code = failed(path, err);
        }
        if (code == CKPT_OK && rename(beside, path) != 0) {
            code = failed(path, err);
        }
        if (code != CKPT_OK) {
            unlink(beside);
        }
    }
    ckpt_memory_put(beside);
    return code;
}

ckpt_code ckpt_file_write(const char *path, const void *bytes, size_t length, ckpt_err *err)
{
    if (strcmp(path, "-") == 0) {
        fflush(stdout);
        return write_in_place(STDOUT_FILENO, "standard output", bytes, length, false, err);
    }
    struct stat status;
    if (lstat(path, &status) != 0) {
        return write_beside(path, NULL, bytes, length, err);
    }
    if (S_ISREG(status.st_mode)) {
        return write_beside(path, &status, bytes, length, err);
    }
    if (S_ISLNK(status.st_mode) && (stat(path, &status) != 0 || S_ISREG(status.st_mode))) {
        return write_in_place(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), path, bytes, length, true, err);
    }
    return write_in_place(open(path, O_WRONLY), path, bytes, length, true, err);
}
