/* What the data hold: a digest of their contents, made of pieces that all processors hash, and a stamp of the files' sizes and
 * times, by which a digest that is known need not be made again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "executor/data/data_impl.h"

enum { PIECE = 1 << 16, PIECES = 1024 }; /* bytes that are hashed by themselves, and pieces that are hashed together */

void ckpt_data_add_stamp(ckpt_data *data, const struct stat *file)
{
    char line[160];
    const int length =
        snprintf(line, sizeof line, "%jd %jd.%ld %jd.%ld\n", (intmax_t)file->st_size, (intmax_t)file->st_mtim.tv_sec,
                 file->st_mtim.tv_nsec, (intmax_t)file->st_ctim.tv_sec, file->st_ctim.tv_nsec);
    ckpt_digest_add(data->stamping, line, (size_t)length);
}

/* A digest under way. */
typedef struct hashing {
    const ckpt_data_watch *watch;
    int threads;
    ckpt_bytes done, all;
    char (*text)[CKPT_DIGEST_TEXT]; /* of PIECES pieces */
} hashing;

static ckpt_code note(hashing *h, ckpt_bytes bytes, ckpt_err *err)
{
    h->done += bytes;
    if (h->done >= h->all || h->watch == NULL) {
        return CKPT_OK;
    }
    if (h->watch->progress != NULL) {
        h->watch->progress(h->done, h->all);
    }
    return h->watch->stopped != NULL && h->watch->stopped()
               ? CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted while the data were hashed")
               : CKPT_OK;
}

/* The SHA-256 of the pieces' SHA-256, each as 64 hexadecimal digits and a newline. */
static ckpt_code hash_mapped(hashing *h, const ckpt_mapped *file, char digest[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_digest *const whole = ckpt_digest_create();
    ckpt_code code = whole != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    for (size_t at = 0; at < file->length && code == CKPT_OK; at += (size_t)PIECE * PIECES) {
        const size_t left = file->length - at, now = left < (size_t)PIECE * PIECES ? left : (size_t)PIECE * PIECES;
        const int count = (int)((now + PIECE - 1) / PIECE);
#pragma omp parallel for schedule(static) num_threads(h->threads)
        for (int i = 0; i < count; i++) {
            const size_t from = (size_t)i * PIECE, rest = now - from;
            ckpt_digest_once(file->bytes + at + from, rest < PIECE ? rest : PIECE, h->text[i]);
            h->text[i][CKPT_DIGEST_TEXT - 1] = '\n';
        }
        ckpt_digest_add(whole, h->text, (size_t)count * CKPT_DIGEST_TEXT);
        code = note(h, (ckpt_bytes)now, err);
    }
    if (whole != NULL) {
        ckpt_digest_end(whole, digest);
    }
    return code;
}

/* The pictures from `first` on, PIECES of them or less. */
static ckpt_code hash_pictures(hashing *h, const ckpt_data *data, int64_t first, int count, ckpt_bytes *bytes,
                               ckpt_err *err)
{
    ckpt_err failed = {0};
    ckpt_bytes sum = 0;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads) reduction(+ : sum)
    for (int i = 0; i < count; i++) {
        ckpt_err mine = {0};
        ckpt_arena arena;
        const char *content = NULL;
        size_t length = 0;
        ckpt_arena_init(&arena);
        if (ckpt_file_read(data->folder.path[first + i], &arena, &content, &length, &mine) == CKPT_OK) {
            ckpt_digest_once(content, length, h->text[i]);
            sum += (ckpt_bytes)length;
        } else {
#pragma omp critical
            failed = failed.code == CKPT_OK ? mine : failed;
        }
        ckpt_arena_fini(&arena);
    }
    *bytes = sum;
    return failed.code == CKPT_OK ? CKPT_OK : CKPT_FAIL(err, failed.code, "%s", failed.msg);
}

static ckpt_code hash_folder(hashing *h, const ckpt_data *data, ckpt_digest *all, ckpt_err *err)
{
    char line[CKPT_DIGEST_TEXT + 16];
    for (int64_t at = 0; at < data->records; at += PIECES) {
        const int count = data->records - at < PIECES ? (int)(data->records - at) : PIECES;
        ckpt_bytes bytes = 0;
        CKPT_TRY(hash_pictures(h, data, at, count, &bytes, err));
        for (int i = 0; i < count; i++) {
            const int length =
                snprintf(line, sizeof line, "%.64s %" PRId32 "\n", h->text[i], data->folder.label[at + i]);
            ckpt_digest_add(all, line, (size_t)length);
        }
        CKPT_TRY(note(h, bytes, err));
    }
    return CKPT_OK;
}

static ckpt_code hash_all(hashing *h, const ckpt_data *data, ckpt_digest *all, ckpt_err *err)
{
    char digest[CKPT_DIGEST_TEXT];
    for (int i = 0; i < data->file_count; i++) {
        CKPT_TRY(hash_mapped(h, &data->file[i], digest, err));
        digest[CKPT_DIGEST_TEXT - 1] = '\n';
        ckpt_digest_add(all, digest, CKPT_DIGEST_TEXT);
    }
    return data->folder.path != NULL ? hash_folder(h, data, all, err) : CKPT_OK;
}

ckpt_code ckpt_data_digest(const ckpt_data *data, int threads, const ckpt_data_watch *watch,
                           char digest[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    char found[CKPT_DIGEST_TEXT];
    if (data->file_count == 0 && data->folder.path == NULL) {
        digest[0] = '\0';
        return CKPT_OK;
    }
    hashing h = {.watch = watch,
                 .threads = threads,
                 .all = data->folder.bytes + ckpt_data_mapped_bytes(data),
                 .text = ckpt_memory_get(PIECES * sizeof *h.text)};
    ckpt_digest *const all = ckpt_digest_create();
    ckpt_code code = h.text != NULL && all != NULL
                         ? hash_all(&h, data, all, err)
                         : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest of the data");
    if (all != NULL) {
        ckpt_digest_end(all, found);
    }
    ckpt_memory_put(h.text);
    if (code == CKPT_OK) {
        memcpy(digest, found, sizeof found);
    }
    return code;
}
