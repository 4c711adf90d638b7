/* Writes a spool: records gather in a block of memory, which is appended to the file when it is full or on request. A
 * name's number is its hash. The table has one slot for each number: a name that finds its slot used by another
 * replaces it and is written to the file once more, so the table never grows. */
#include "cupti/spool_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 256 << 10, FILES_MAX = 100000, LAST_WORDS = 2048 };

struct ckpt_spool {
    ckpt_arena arena; /* of the path */
    const char *path;
    dev_t device; /* with `number`: which file that is */
    ino_t number;
    int64_t written, limit, reserve;
    bool stopped;
    char *name[CKPT_SPOOL_NAMES]; /* NULL: the number is free */
    uint64_t last_start;
    size_t used;
    unsigned char block[BLOCK];
};

static void put_number(ckpt_spool *spool, uint64_t number)
{
    while (number >= 0x80) {
        spool->block[spool->used++] = (unsigned char)(number | 0x80);
        number >>= 7;
    }
    spool->block[spool->used++] = (unsigned char)number;
}

static void put_bytes(ckpt_spool *spool, const void *bytes, size_t length)
{
    memcpy(spool->block + spool->used, bytes, length);
    spool->used += length;
}

/* The length of a text, at most CKPT_SPOOL_TEXT_MAX, without half of a UTF-8 character at its end. */
static size_t text_length(const char *text)
{
    size_t length = strlen(text);
    if (length > CKPT_SPOOL_TEXT_MAX) {
        length = CKPT_SPOOL_TEXT_MAX;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) {
            length--;
        }
    }
    return length;
}

/* Why the file cannot grow by `more` bytes; NULL: it can. The process's limit is checked first, because writing beyond
 * it raises SIGXFSZ. */
static const char *no_room(const ckpt_spool *spool, int fd, int64_t more)
{
    struct rlimit allowed;
    struct statvfs disk;
    if (spool->written + more > spool->limit) {
        return "its file reached the limit";
    }
    if (getrlimit(RLIMIT_FSIZE, &allowed) == 0 && allowed.rlim_cur != RLIM_INFINITY &&
        (uint64_t)(spool->written + more) > allowed.rlim_cur) {
        return "the process may not write files that long (RLIMIT_FSIZE)";
    }
    if (fstatvfs(fd, &disk) == 0 &&
        (uint64_t)(spool->reserve + more) / (disk.f_frsize > 0 ? disk.f_frsize : 1) >= disk.f_bavail) {
        return "the disk is nearly full";
    }
    return NULL;
}

/* Appends all of `length` bytes, or none. NULL: done, else why not. */
static const char *append(ckpt_spool *spool, const unsigned char *bytes, size_t length)
{
    struct stat status;
    const int fd = open(spool->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return "its file is gone or closed to it";
    }
    const char *why = NULL;
    if (fstat(fd, &status) != 0 || status.st_dev != spool->device || status.st_ino != spool->number ||
        (int64_t)status.st_size != spool->written) {
        why = "its file was changed by another";
    } else {
        why = no_room(spool, fd, (int64_t)length);
    }
    size_t done = 0;
    while (why == NULL && done < length) {
        const ssize_t count = write(fd, bytes + done, length - done);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            why = "the disk is full";
            if (ftruncate(fd, (off_t)spool->written) != 0) {
                spool->limit = 0; /* half a record is left at the end: nothing may follow it */
            }
            break;
        }
        done += (size_t)count;
    }
    spool->written += why == NULL ? (int64_t)length : 0;
    close(fd);
    return why;
}

static void put_word(ckpt_spool *spool, ckpt_spool_word word, const char *text)
{
    const size_t length = text_length(text);
    put_number(spool, length + 1);
    spool->block[spool->used++] = (unsigned char)(CKPT_SPOOL_KIND_WORD + word);
    put_bytes(spool, text, length);
}

/* Writes the block to the file. When it stops, LAST_WORDS bytes beyond the limit are left to say why. */
static void write_block(ckpt_spool *spool)
{
    if (spool->stopped || spool->used == 0) {
        return;
    }
    const int kept = errno;
    const char *const why = append(spool, spool->block, spool->used);
    spool->used = 0;
    if (why != NULL) {
        spool->stopped = true;
        spool->limit += spool->limit > 0 ? LAST_WORDS : 0;
        spool->reserve = 0;
        put_word(spool, CKPT_SPOOL_STOPPED, why);
        const char *const unsaid = append(spool, spool->block, spool->used);
        (void)unsaid;
        spool->used = 0;
    }
    errno = kept;
}

static void make_room(ckpt_spool *spool)
{
    if (spool->used + 2 * CKPT_SPOOL_RECORD_MAX > BLOCK) {
        write_block(spool);
    }
}

static ckpt_code create_file(ckpt_spool *spool, const char *folder, ckpt_err *err)
{
    for (int n = 0; n < FILES_MAX; n++) {
        const ckpt_mark mark = ckpt_arena_mark(&spool->arena);
        spool->path = ckpt_arena_format(&spool->arena, "%s/%ld-%d.spool", folder, (long)getpid(), n);
        if (spool->path == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a spool's name");
        }
        const int fd = open(spool->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat status;
        if (fd >= 0 && fstat(fd, &status) == 0) {
            spool->device = status.st_dev;
            spool->number = status.st_ino;
            close(fd);
            return CKPT_OK;
        }
        const int why = errno;
        if (fd >= 0) {
            close(fd);
        }
        if (fd >= 0 || why != EEXIST) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: %s", spool->path, strerror(why));
        }
        ckpt_arena_rewind(&spool->arena, mark);
    }
    return CKPT_FAIL(err, CKPT_IO, "%.200s: %d spools of one process", folder, (int)FILES_MAX);
}

ckpt_code ckpt_spool_create(const ckpt_spool_options *options, ckpt_spool **spool, ckpt_err *err)
{
    ckpt_spool *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a spool");
    }
    ckpt_arena_init(&made->arena);
    made->limit = options->limit_bytes > 0 ? options->limit_bytes : CKPT_SPOOL_LIMIT;
    made->reserve = options->reserve_bytes > 0 ? options->reserve_bytes : CKPT_SPOOL_RESERVE;
    const ckpt_code code = create_file(made, options->folder, err);
    if (code != CKPT_OK) {
        ckpt_spool_destroy(made);
        return code;
    }
    const size_t length = text_length(options->program);
    put_bytes(made, CKPT_SPOOL_MAGIC, strlen(CKPT_SPOOL_MAGIC));
    put_number(made, CKPT_SPOOL_VERSION);
    put_number(made, (uint64_t)getpid());
    put_number(made, length);
    put_bytes(made, options->program, length);
    const int64_t reserve = made->reserve;
    made->reserve = 0; /* so that a full disk is reported */
    const char *const why = append(made, made->block, made->used);
    if (why != NULL) {
        ckpt_spool_destroy(made);
        return CKPT_FAIL(err, CKPT_IO, "%.200s: nothing can be written: %s", options->folder, why);
    }
    made->reserve = reserve;
    made->used = 0;
    *spool = made;
    return CKPT_OK;
}

void ckpt_spool_destroy(ckpt_spool *spool)
{
    if (spool == NULL) {
        return;
    }
    for (int i = 0; i < CKPT_SPOOL_NAMES; i++) {
        ckpt_memory_put(spool->name[i]);
    }
    ckpt_arena_fini(&spool->arena);
    ckpt_memory_put(spool);
}

/* The number of a name. Writes the name first if the file does not have it. */
static uint64_t name_number(ckpt_spool *spool, const char *name)
{
    const size_t length = text_length(name);
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
    }
    const uint64_t number = (hash ^ hash >> 32) % CKPT_SPOOL_NAMES;
    char *const known = spool->name[number];
    if (known != NULL && strncmp(known, name, length) == 0 && known[length] == '\0') {
        return number;
    }
    unsigned char scratch[CKPT_SPOOL_VARINT_MAX];
    size_t digits = 0;
    for (uint64_t left = number; digits == 0 || left > 0; left >>= 7) {
        scratch[digits++] = (unsigned char)((left & 0x7F) | (left >= 0x80 ? 0x80 : 0));
    }
    put_number(spool, 1 + digits + length);
    spool->block[spool->used++] = CKPT_SPOOL_KIND_NAME;
    put_bytes(spool, scratch, digits);
    put_bytes(spool, name, length);
    ckpt_memory_put(known);
    spool->name[number] = ckpt_memory_get(length + 1); /* without memory it is written once more the next time */
    if (spool->name[number] != NULL) {
        memcpy(spool->name[number], name, length);
    }
    return number;
}

void ckpt_spool_add(ckpt_spool *spool, const ckpt_activity *activity)
{
    if (spool->stopped) {
        return;
    }
    const int kept = errno;
    make_room(spool);
    const uint64_t name = name_number(spool, activity->name);
    const size_t before = spool->used++; /* the length takes one byte: 14 numbers of at most 10 bytes, most of them 5 */
    spool->block[spool->used++] = (unsigned char)activity->kind;
    const uint64_t start = (uint64_t)activity->start_ns;
    const uint64_t number[] = {
        (uint64_t)activity->way,
        name,
        ckpt_spool_zigzag(start - spool->last_start),
        (uint64_t)activity->end_ns - start,
        activity->device,
        activity->context,
        activity->stream,
        activity->correlation,
        activity->tag,
        activity->thread,
        (uint64_t)activity->bytes,
        activity->address,
    };
    spool->last_start = start;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        put_number(spool, number[i]);
    }
    spool->block[before] = (unsigned char)(spool->used - before - 1);
    errno = kept;
}

void ckpt_spool_say(ckpt_spool *spool, ckpt_spool_word word, const char *text)
{
    if (!spool->stopped) {
        make_room(spool);
        put_word(spool, word, text);
    }
}

bool ckpt_spool_stopped(const ckpt_spool *spool)
{
    return spool->stopped;
}

void ckpt_spool_flush(ckpt_spool *spool)
{
    write_block(spool);
}
