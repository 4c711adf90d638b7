/* A file is written under a temporary name beside its own and renamed after it has reached the disk. A pipe or device is written directly, because a rename would replace it. A link remains; its target is replaced.
 *
 * The temporary file is locked as long as it is written, which the system ends with the process: who finds one without a lock knows that its writer was killed, on whatever host, and removes it. */
/* realpath is an option of POSIX 2008; flock is in every Unix. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/pipes.h"

static const char *shown(const char *path, const char *dash)
{
    return strcmp(path, "-") == 0 ? dash : path;
}

static ckpt_code no_room(const char *name, size_t bytes, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to read %zu bytes", name, bytes);
}

static ckpt_code unreadable(const char *name, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_IO, "%.200s: %s", name, strerror(errno));
}

/* A file whose size is known goes straight into the arena. What is appended to it meanwhile is not read. */
static ckpt_code read_sized(FILE *file, const char *name, uintmax_t size, ckpt_arena *arena, const char **bytes,
                            size_t *length, ckpt_err *err)
{
    if (size > CKPT_FILE_MAX) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: %" PRIuMAX " bytes, and at most %zu are read", name, size,
                         CKPT_FILE_MAX);
    }
    char *const all = ckpt_arena_take(arena, (size_t)size + 1, 1);
    if (all == NULL) {
        return no_room(name, (size_t)size + 1, err);
    }
    *length = fread(all, 1, (size_t)size, file);
    *bytes = all;
    return ferror(file) ? unreadable(name, err) : CKPT_OK;
}

/* Of a pipe or device nobody knows how much there is. */
static ckpt_code read_stream(FILE *file, const char *name, char **block, size_t *length, ckpt_err *err)
{
    for (size_t room = 1 << 16;; room *= 2) {
        char *const grown = ckpt_memory_resize(*block, room);
        if (grown == NULL) {
            return no_room(name, room, err);
        }
        *block = grown;
        *length += fread(grown + *length, 1, room - *length, file);
        if (ferror(file)) {
            return unreadable(name, err);
        }
        if (*length > CKPT_FILE_MAX) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: more than the %zu bytes that are read", name, CKPT_FILE_MAX);
        }
        if (*length < room) {
            return CKPT_OK;
        }
    }
}

static ckpt_code copy_block(const char *name, const char *block, size_t length, ckpt_arena *arena, const char **bytes,
                            ckpt_err *err)
{
    char *const copy = ckpt_arena_take(arena, length + 1, 1);
    if (copy == NULL) {
        return no_room(name, length + 1, err);
    }
    *bytes = length > 0 ? memcpy(copy, block, length) : copy;
    return CKPT_OK;
}

ckpt_code ckpt_file_read(const char *path, ckpt_arena *arena, const char **bytes, size_t *length, ckpt_err *err)
{
    const bool standard = strcmp(path, "-") == 0;
    const char *const name = shown(path, "standard input");
    char *block = NULL;
    size_t count = 0;
    bool kept = ckpt_pipe_find(path, &block, &count);
    ckpt_code code = CKPT_OK;
    if (!kept) {
        struct stat status;
        FILE *const file = standard ? stdin : fopen(path, "rb");
        if (file == NULL) {
            return unreadable(name, err);
        }
        const bool known = fstat(fileno(file), &status) == 0;
        if (!standard && known && S_ISREG(status.st_mode) && status.st_size > 0) {
            code = read_sized(file, name, (uintmax_t)status.st_size, arena, bytes, length, err);
            fclose(file);
            return code;
        }
        code = read_stream(file, name, &block, &count, err);
        if (!standard) {
            fclose(file);
        }
        kept =
            code == CKPT_OK && (standard || (known && S_ISFIFO(status.st_mode))) && ckpt_pipe_keep(path, block, count);
    }
    if (code == CKPT_OK) {
        code = copy_block(name, block, count, arena, bytes, err);
        *length = count;
    }
    if (!kept) {
        ckpt_memory_put(block);
    }
    return code;
}

struct ckpt_file {
    ckpt_arena arena; /* of the names */
    int fd;
    const char *name;   /* for messages */
    const char *beside; /* the temporary file; NULL: written in place */
    const char *target; /* what it is renamed to; NULL: standard output */
    ckpt_err err;       /* the first failure of a text that is written here */
};

static ckpt_code failed(const ckpt_file *file, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s", file->name, strerror(errno));
}

static ckpt_code no_memory(const char *path, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for a file name", path);
}

static const char *temporary_name(ckpt_file *file, int which)
{
    return ckpt_arena_format(&file->arena, "%s.ckpt-%d.part", file->target, which);
}

static bool is_still(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && S_ISREG(opened.st_mode) &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* What a killed program left: a temporary file whose lock nobody has. */
static void remove_left(const char *path)
{
    const int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still(fd, path)) {
            unlink(path);
        }
        close(fd);
    }
}

/* A new file with a lock; -1 and errno: there is none of that name. Another program may take it for left before the lock is there; a file system without locks does without. */
static int create_locked(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && ((flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) || !is_still(fd, path))) {
        close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}

/* `old`: the file that will be replaced, whose permissions the new one gets; NULL: there is none. */
static ckpt_code open_beside(ckpt_file *file, const struct stat *old, ckpt_err *err)
{
    enum { LOOKED_AT = 16, ATTEMPTS = 1000 }; /* several programs may write one file at the same time */
    for (int i = 0; i < LOOKED_AT; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&file->arena);
        const char *const name = temporary_name(file, i);
        if (name == NULL) {
            return no_memory(file->name, err);
        }
        remove_left(name);
        ckpt_arena_rewind(&file->arena, mark);
    }
    for (int i = 0; file->fd < 0 && i < ATTEMPTS; i++) {
        file->beside = temporary_name(file, i);
        if (file->beside == NULL) {
            return no_memory(file->name, err);
        }
        file->fd = create_locked(file->beside);
        if (file->fd < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file->fd < 0) {
        const ckpt_code code = failed(file, err);
        file->beside = NULL;
        return code;
    }
    return old == NULL || fchmod(file->fd, old->st_mode & 07777) == 0 ? CKPT_OK : failed(file, err);
}

static ckpt_code open_in_place(ckpt_file *file, int flags, ckpt_err *err)
{
    file->fd = open(file->target, flags, 0666);
    return file->fd >= 0 ? CKPT_OK : failed(file, err);
}

static ckpt_code open_file(ckpt_file *file, const char *path, ckpt_err *err)
{
    if (strcmp(path, "-") == 0) {
        fflush(stdout);
        file->name = "standard output";
        file->fd = STDOUT_FILENO;
        return CKPT_OK;
    }
    if (path[0] == '\0') {
        return CKPT_FAIL(err, CKPT_IO, "cannot write: the name of the file is empty");
    }
    file->name = file->target = ckpt_arena_text(&file->arena, path);
    if (file->name == NULL) {
        return no_memory(path, err);
    }
    struct stat status;
    if (lstat(path, &status) != 0) {
        return open_beside(file, NULL, err);
    }
    if (S_ISLNK(status.st_mode)) {
        char *const resolved = realpath(path, NULL); /* the C library's malloc */
        if (resolved == NULL) {
            return open_in_place(file, O_WRONLY | O_CREAT | O_TRUNC, err); /* the link's target does not exist yet */
        }
        file->target = ckpt_arena_text(&file->arena, resolved);
        free(resolved);
        if (file->target == NULL) {
            return no_memory(path, err);
        }
        if (stat(file->target, &status) != 0) {
            return failed(file, err);
        }
    }
    return S_ISREG(status.st_mode) ? open_beside(file, &status, err) : open_in_place(file, O_WRONLY, err);
}

ckpt_code ckpt_file_begin(const char *path, ckpt_file **file, ckpt_err *err)
{
    ckpt_file *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return no_memory(path, err);
    }
    ckpt_arena_init(&made->arena);
    made->fd = -1;
    const ckpt_code code = open_file(made, path, err);
    if (code != CKPT_OK) {
        const ckpt_code unused = ckpt_file_end(made, false, NULL);
        (void)unused;
        return code;
    }
    *file = made;
    return CKPT_OK;
}

ckpt_code ckpt_file_add(ckpt_file *file, const void *bytes, size_t length, ckpt_err *err)
{
    const char *from = bytes;
    while (length > 0) {
        const ssize_t count = write(file->fd, from, length);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return failed(file, err);
        }
        from += count;
        length -= (size_t)count;
    }
    return CKPT_OK;
}

ckpt_code ckpt_file_end(ckpt_file *file, bool keep, ckpt_err *err)
{
    ckpt_code code = CKPT_OK;
    if (keep && file->beside != NULL && fsync(file->fd) != 0) {
        code = failed(file, err);
    }
    if (file->beside != NULL && keep && code == CKPT_OK && rename(file->beside, file->target) != 0) {
        code = failed(file, err);
    }
    if (file->beside != NULL && (!keep || code != CKPT_OK)) {
        unlink(file->beside);
    }
    if (file->fd >= 0 && file->target != NULL && close(file->fd) != 0 && keep && code == CKPT_OK) { /* ends the lock */
        code = failed(file, err);
    }
    ckpt_arena_fini(&file->arena);
    ckpt_memory_put(file);
    return code;
}

ckpt_code ckpt_file_write(const char *path, const void *bytes, size_t length, ckpt_err *err)
{
    ckpt_file *file = NULL;
    CKPT_TRY(ckpt_file_begin(path, &file, err));
    const ckpt_code code = ckpt_file_add(file, bytes, length, err);
    const ckpt_code end = ckpt_file_end(file, code == CKPT_OK, err);
    return code != CKPT_OK ? code : end;
}

ckpt_code ckpt_file_write_text(const char *path, ckpt_text *text, ckpt_err *err)
{
    ckpt_code code = ckpt_text_end(text, err);
    if (code == CKPT_OK) {
        code = ckpt_file_write(path, text->bytes != NULL ? text->bytes : "", text->length, err);
    }
    ckpt_text_fini(text);
    return code;
}

static bool drain(void *to, const char *bytes, size_t length)
{
    ckpt_file *const file = to;
    return ckpt_file_add(file, bytes, length, &file->err) == CKPT_OK; /* after a failure the text drains no more */
}

ckpt_code ckpt_file_begin_text(const char *path, ckpt_text *text, ckpt_err *err)
{
    ckpt_file *file = NULL;
    CKPT_TRY(ckpt_file_begin(path, &file, err));
    ckpt_text_init(text);
    text->drain = drain;
    text->to = file;
    return CKPT_OK;
}

ckpt_code ckpt_file_end_text(ckpt_text *text, ckpt_code code, ckpt_err *err)
{
    ckpt_file *const file = text->to;
    ckpt_text_flush(text);
    if (file->err.code != CKPT_OK) { /* the reason of what the text's writer may have taken for no memory */
        code = file->err.code;
        if (err != NULL) {
            *err = file->err;
        }
    } else if (code == CKPT_OK) {
        code = ckpt_text_end(text, err);
    }
    ckpt_text_fini(text);
    const ckpt_code end = ckpt_file_end(file, code == CKPT_OK, err);
    return code != CKPT_OK ? code : end;
}

/* Where a file that is not there would be made: its folder, and its name in it. Links are followed to where they lead. */
typedef struct place {
    struct stat folder;
    char path[4096];
    const char *name; /* in `path` */
} place;

static bool find_place(const char *path, place *p)
{
    enum { LINKS_MAX = 40 };
    char target[sizeof p->path];
    const size_t length = strlen(path);
    if (length >= sizeof p->path) {
        return false;
    }
    memcpy(p->path, path, length + 1);
    for (int links = 0; links < LINKS_MAX; links++) {
        const ssize_t count = readlink(p->path, target, sizeof target - 1);
        const char *const slash = strrchr(p->path, '/');
        const size_t kept = count > 0 && target[0] != '/' && slash != NULL ? (size_t)(slash - p->path) + 1 : 0;
        if (count <= 0 || kept + (size_t)count >= sizeof p->path) {
            break;
        }
        memcpy(p->path + kept, target, (size_t)count);
        p->path[kept + (size_t)count] = '\0';
    }
    char *const slash = strrchr(p->path, '/');
    p->name = slash != NULL ? slash + 1 : p->path;
    if (slash == NULL || slash == p->path) {
        return stat(slash == NULL ? "." : "/", &p->folder) == 0;
    }
    *slash = '\0';
    return stat(p->path, &p->folder) == 0;
}

bool ckpt_file_same(const char *a, const char *b)
{
    struct stat one, other;
    place here, there;
    if (a == NULL || b == NULL || strcmp(a, "-") == 0 || strcmp(b, "-") == 0) {
        return false;
    }
    const bool is = stat(a, &one) == 0, other_is = stat(b, &other) == 0;
    if (is || other_is) {
        return is && other_is && S_ISREG(one.st_mode) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
    }
    return find_place(a, &here) && find_place(b, &there) && here.folder.st_dev == there.folder.st_dev &&
           here.folder.st_ino == there.folder.st_ino && strcmp(here.name, there.name) == 0;
}

/* A device takes no bytes at once, or says why it takes none. */
static ckpt_code probe_device(const char *path, ckpt_err *err)
{
    const int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    const bool takes = fd >= 0 && write(fd, "", 0) == 0;
    const int reason = errno;
    if (fd >= 0) {
        close(fd);
    }
    return takes ? CKPT_OK : CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s", path, strerror(reason));
}

/* Do so many bytes find room on the file's disk, beside an older file of that name, and may a file have so many? */
static ckpt_code probe_room(const ckpt_file *file, ckpt_bytes bytes, ckpt_err *err)
{
    struct statvfs disk;
    struct rlimit limit;
    char wanted[CKPT_UNITS_TEXT], there[CKPT_UNITS_TEXT];
    const uintmax_t size = (uintmax_t)bytes;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: it will have %s, and files may have %s (ulimit -f)",
                         file->name, ckpt_bytes_show(bytes, wanted),
                         ckpt_bytes_show((ckpt_bytes)limit.rlim_cur, there));
    }
    if (fstatvfs(file->fd, &disk) == 0 && disk.f_frsize > 0 && size / disk.f_frsize >= disk.f_bavail) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: it will have %s, and the disk has %s left", file->name,
                         ckpt_bytes_show(bytes, wanted),
                         ckpt_bytes_show((ckpt_bytes)(disk.f_bavail * disk.f_frsize), there));
    }
    return CKPT_OK;
}

ckpt_code ckpt_file_probe(const char *path, ckpt_bytes bytes, ckpt_err *err)
{
    struct stat status;
    if (lstat(path, &status) == 0 && (stat(path, &status) != 0 || !S_ISREG(status.st_mode))) {
        if (S_ISDIR(status.st_mode)) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s", path, strerror(EISDIR));
        }
        /* opening a pipe would signal its end to the reader, and a dangling link would create a file */
        return S_ISCHR(status.st_mode) ? probe_device(path, err) : CKPT_OK;
    }
    ckpt_file *file = NULL;
    CKPT_TRY(ckpt_file_begin(path, &file, err));
    const ckpt_code code = bytes > 0 && file->beside != NULL ? probe_room(file, bytes, err) : CKPT_OK;
    const ckpt_code end = ckpt_file_end(file, false, err);
    return code != CKPT_OK ? code : end;
}
