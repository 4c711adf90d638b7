/* The training state file:
 *
 *     one line of JSON | weights | optimizer | statistics | SHA-256 of all before it, in hexadecimal, and a newline
 *
 * One file for all ranks. The sections are those of one rank with the whole network and an unsharded optimizer
 * (sections_impl.h), so a state can be read by any scheme with as many batches in a step ("batches" in the line, where
 * there is more than one). Rank 0 writes; every rank reads what is its own.
 *
 * The sections are the bytes of the static block (float32, little endian), so that no value passes through text. The
 * bfloat16 copy of the weights is left out: it is made from the weights.
 *
 * A state written on the CPU can be read on a GPU and the other way round ("threads" 0 is a GPU); training goes on with
 * the bits of the device it is on. Another number of CPU threads is refused, because there the promise is the bits of
 * never stopping. Another dtype or batch is another training, and is refused. The data order is a function of seed and
 * step; the line has both, and what the data were.
 *
 * A file is read twice: whole, to see that it is sound, and only then into the static block. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "executor/state/sections_impl.h"

enum { HEADER_MAX = 1 << 16, TAIL = CKPT_DIGEST_TEXT }; /* 64 digits and a newline */

enum { SAVED_SECTIONS = 3 };
static const ckpt_section saved_section[SAVED_SECTIONS] = {CKPT_SECTION_WEIGHTS, CKPT_SECTION_OPTIMIZER,
                                                           CKPT_SECTION_STATISTICS};

static ckpt_bytes smaller(ckpt_bytes a, ckpt_bytes b)
{
    return a < b ? a : b;
}

/* Where the bytes of all saved sections are. */
static ckpt_code find_sections(const ckpt_program *program, ckpt_arena *out, ckpt_whole whole[SAVED_SECTIONS],
                               ckpt_err *err)
{
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        CKPT_TRY(ckpt_whole_section(program, saved_section[i], out, &whole[i], err));
    }
    return CKPT_OK;
}

ckpt_code ckpt_state_bytes(const ckpt_program *program, ckpt_bytes *state, ckpt_bytes *weights, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_whole whole[SAVED_SECTIONS];
    const ckpt_code code = find_sections(program, &scratch, whole, err);
    for (int i = 0; code == CKPT_OK && i < SAVED_SECTIONS; i++) {
        *state = (i > 0 ? *state : TAIL) + whole[i].bytes;
        *weights = saved_section[i] == CKPT_SECTION_WEIGHTS ? whole[i].bytes : *weights;
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* A file that is being written, by rank 0 alone. After a failure nothing more is written, and the other ranks' bytes are
 * taken all the same: they need not know before the end. */
typedef struct writing {
    ckpt_file *file;
    ckpt_digest *digest;
    ckpt_code code;
    ckpt_err err;
} writing;

static ckpt_code put(void *context, const unsigned char *bytes, ckpt_bytes count, ckpt_err *err)
{
    writing *const w = context;
    (void)err;
    if (w->code == CKPT_OK) {
        ckpt_digest_add(w->digest, bytes, (size_t)count);
        w->code = ckpt_file_add(w->file, bytes, (size_t)count, &w->err);
    }
    return CKPT_OK;
}

/* Collective, whether this rank writes (`w`) or not (NULL). */
static ckpt_code put_sections(const ckpt_program *program, const ckpt_whole whole[SAVED_SECTIONS], writing *w,
                              ckpt_err *err)
{
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        CKPT_TRY(ckpt_whole_walk(program, &whole[i], put, w, err));
    }
    return CKPT_OK;
}

static ckpt_code put_header(const ckpt_program *program, const ckpt_progress *progress, const char *path, writing *w)
{
    ckpt_text header;
    ckpt_text_init(&header);
    ckpt_code code = ckpt_state_header_add(program, progress, &header, &w->err);
    if (code == CKPT_OK && header.length >= HEADER_MAX) {
        code = CKPT_FAIL(&w->err, CKPT_BAD_INPUT, "%s: a header of %zu bytes, and at most %d are read back", path,
                         header.length, HEADER_MAX);
    }
    if (code == CKPT_OK) {
        code = put(w, (const unsigned char *)header.bytes, (ckpt_bytes)header.length, NULL);
    }
    ckpt_text_fini(&header);
    return code != CKPT_OK ? code : w->code;
}

static void begin_file(const ckpt_program *program, const ckpt_progress *progress, const char *path, writing *w)
{
    *w = (writing){.digest = ckpt_digest_create()};
    w->code = w->digest != NULL ? ckpt_file_begin(path, &w->file, &w->err)
                                : CKPT_FAIL(&w->err, CKPT_NO_MEMORY, "no memory for a digest");
    if (w->code == CKPT_OK) {
        w->code = put_header(program, progress, path, w);
    }
}

static ckpt_code end_file(writing *w, ckpt_err *err)
{
    char tail[CKPT_DIGEST_TEXT];
    if (w->digest != NULL) {
        ckpt_digest_end(w->digest, tail);
        tail[TAIL - 1] = '\n';
    }
    if (w->code == CKPT_OK) {
        w->code = ckpt_file_add(w->file, tail, TAIL, &w->err);
    }
    if (w->file != NULL) {
        const ckpt_code end = ckpt_file_end(w->file, w->code == CKPT_OK, &w->err);
        w->code = w->code != CKPT_OK ? w->code : end;
    }
    return w->code != CKPT_OK ? CKPT_FAIL(err, w->code, "%s", w->err.msg) : CKPT_OK;
}

/* All ranks know what became of the file, and not before it has its name. */
static ckpt_code share(const ckpt_program *program, const char *path, ckpt_code code, ckpt_err *err)
{
    int32_t outcome = (int32_t)code;
    if (program->ranks == NULL) {
        return code;
    }
    CKPT_TRY(ckpt_ranks_broadcast(program->ranks, 0, &outcome, sizeof outcome, code != CKPT_OK ? NULL : err));
    return program->rank == 0 || outcome == CKPT_OK
               ? code
               : CKPT_FAIL(err, (ckpt_code)outcome, "%s: rank 0 could not write it", path);
}

ckpt_code ckpt_state_write(const ckpt_program *program, const ckpt_progress *progress, const char *path, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_whole whole[SAVED_SECTIONS];
    ckpt_code code = find_sections(program, &scratch, whole, err);
    if (code == CKPT_OK && program->rank == 0) {
        writing w;
        begin_file(program, progress, path, &w);
        code = put_sections(program, whole, &w, err);
        w.code = code != CKPT_OK ? code : w.code;
        const ckpt_code end = end_file(&w, code == CKPT_OK ? err : NULL);
        code = code != CKPT_OK ? code : share(program, path, end, err);
    } else if (code == CKPT_OK) {
        code = put_sections(program, whole, NULL, err);
        code = code == CKPT_OK ? share(program, path, CKPT_OK, err) : code;
    }
    ckpt_arena_fini(&scratch);
    return code;
}

static ckpt_code get(FILE *file, void *bytes, size_t length, const char *path, ckpt_err *err)
{
    if (fread(bytes, 1, length, file) != length) {
        return CKPT_FAIL(err, ferror(file) ? CKPT_IO : CKPT_BAD_INPUT, "%s: %s", path,
                         ferror(file) ? strerror(errno) : "the file ends too early");
    }
    return CKPT_OK;
}

/* The SHA-256 at the end is of everything before it. */
static ckpt_code check_sound(const ckpt_program *program, FILE *file, ckpt_bytes length, const char *path,
                             ckpt_err *err)
{
    char unused[CKPT_DIGEST_TEXT], found[CKPT_DIGEST_TEXT] = {0}, stated[CKPT_DIGEST_TEXT] = {0};
    ckpt_digest *const digest = ckpt_digest_create();
    if (digest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    for (ckpt_bytes done = 0; done < length - TAIL; done += CKPT_CHUNK_BYTES) {
        const size_t now = (size_t)smaller(length - TAIL - done, CKPT_CHUNK_BYTES);
        const ckpt_code code = get(file, program->memory.chunk, now, path, err);
        if (code != CKPT_OK) {
            ckpt_digest_end(digest, unused);
            return code;
        }
        ckpt_digest_add(digest, program->memory.chunk, now);
    }
    ckpt_digest_end(digest, found);
    CKPT_TRY(get(file, stated, TAIL - 1, path, err));
    if (memcmp(found, stated, TAIL - 1) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: damaged, or no training state: its SHA-256 is %.16s..., the last line says %.16s...",
                         path, found, stated);
    }
    return CKPT_OK;
}

/* The parts of a section that this rank has, out of the file, where the section begins at byte `start`. */
static ckpt_code get_section(const ckpt_program *program, const ckpt_whole *whole, FILE *file, ckpt_bytes start,
                             const char *path, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    for (int i = 0; i < whole->part_count; i++) {
        const ckpt_section_part *const part = &whole->part[i];
        if (part->local < 0) {
            continue;
        }
        if (fseeko(file, (off_t)(start + part->at), SEEK_SET) != 0) {
            return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        for (ckpt_bytes done = 0; done < part->bytes; done += CKPT_CHUNK_BYTES) {
            const ckpt_bytes now = smaller(part->bytes - done, CKPT_CHUNK_BYTES);
            CKPT_TRY(get(file, program->memory.chunk, (size_t)now, path, err));
            CKPT_TRY(device->api->upload(device, program->memory.statics.at + part->local + done, program->memory.chunk,
                                         now, err));
        }
    }
    return CKPT_OK;
}

static ckpt_code get_sections(const ckpt_program *program, const ckpt_whole whole[SAVED_SECTIONS], FILE *file,
                              ckpt_bytes header, ckpt_bytes length, const char *path, ckpt_err *err)
{
    ckpt_bytes start[SAVED_SECTIONS + 1] = {header};
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        start[i + 1] = start[i] + whole[i].bytes;
    }
    const ckpt_bytes wanted = start[SAVED_SECTIONS] + TAIL;
    if (wanted != length) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld bytes, wanted %lld for this model", path, (long long)length,
                         (long long)wanted);
    }
    ckpt_program_touch_slots(program);
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        CKPT_TRY(get_section(program, &whole[i], file, start[i], path, err));
    }
    return ckpt_program_narrow(program, err);
}

/* `header` has HEADER_MAX bytes. */
static ckpt_code read_file(const ckpt_program *program, const ckpt_whole whole[SAVED_SECTIONS], FILE *file,
                           char *header, const char *path, bool to_train, ckpt_progress *progress, ckpt_err *err)
{
    if (fseek(file, 0, SEEK_END) != 0) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    const off_t length = ftello(file);
    if (length <= TAIL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld bytes are no training state", path, (long long)length);
    }
    rewind(file);
    CKPT_TRY(check_sound(program, file, (ckpt_bytes)length, path, err));
    rewind(file);
    if (fgets(header, HEADER_MAX, file) == NULL || strchr(header, '\n') == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line is no header of a training state", path);
    }
    ckpt_progress found;
    CKPT_TRY(ckpt_state_header_read(program, header, to_train, path, &found, err));
    CKPT_TRY(get_sections(program, whole, file, (ckpt_bytes)strlen(header), (ckpt_bytes)length, path, err));
    *progress = found;
    return CKPT_OK;
}

static ckpt_code open_and_read(const ckpt_program *program, const ckpt_whole whole[SAVED_SECTIONS], char *header,
                               const char *path, bool to_train, ckpt_progress *progress, ckpt_err *err)
{
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    const ckpt_code code = read_file(program, whole, file, header, path, to_train, progress, err);
    fclose(file);
    return code;
}

ckpt_code ckpt_state_read(const ckpt_program *program, const char *path, bool to_train, ckpt_progress *progress,
                          ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_whole whole[SAVED_SECTIONS];
    char *const header = CKPT_NEW(&scratch, char, HEADER_MAX);
    ckpt_code code = header != NULL ? find_sections(program, &scratch, whole, err)
                                    : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a state's header");
    if (code == CKPT_OK) {
        code = open_and_read(program, whole, header, path, to_train, progress, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
