/* The digest of a section: a tree of two levels, so that all processors can hash. The leaves are cut from the stream of
 * the section's bytes, so neither the number of threads nor where parameters or ranks' pieces begin makes a difference.
 * executor.h says what the digest is. */
#include <string.h>

#include "core/base/digest.h"
#include "executor/state/sections_impl.h"

enum { LEAVES = CKPT_CHUNK_BYTES / CKPT_DIGEST_LEAF };

typedef struct hashing {
    ckpt_digest *root;
    unsigned char *chunk; /* CKPT_CHUNK_BYTES: leaves that wait to be hashed together */
    ckpt_bytes filled;
    int threads;
} hashing;

static void hash_leaves(hashing *h)
{
    char text[LEAVES][CKPT_DIGEST_TEXT];
    const int count = (int)((h->filled + CKPT_DIGEST_LEAF - 1) / CKPT_DIGEST_LEAF);
#pragma omp parallel for schedule(static) num_threads(h->threads)
    for (int i = 0; i < count; i++) {
        const ckpt_bytes at = (ckpt_bytes)i * CKPT_DIGEST_LEAF, left = h->filled - at;
        ckpt_digest_once(h->chunk + at, (size_t)(left < CKPT_DIGEST_LEAF ? left : CKPT_DIGEST_LEAF), text[i]);
        text[i][CKPT_DIGEST_TEXT - 1] = '\n';
    }
    ckpt_digest_add(h->root, text, (size_t)count * CKPT_DIGEST_TEXT);
    h->filled = 0;
}

static ckpt_code hash(void *context, const unsigned char *bytes, ckpt_bytes count, ckpt_err *err)
{
    hashing *const h = context;
    (void)err;
    while (count > 0) {
        const ckpt_bytes room = CKPT_CHUNK_BYTES - h->filled, now = count < room ? count : room;
        memcpy(h->chunk + h->filled, bytes, (size_t)now);
        h->filled += now;
        bytes += now;
        count -= now;
        if (h->filled == CKPT_CHUNK_BYTES) {
            hash_leaves(h);
        }
    }
    return CKPT_OK;
}

static ckpt_code hash_whole(const ckpt_program *program, const ckpt_whole *whole, char text[CKPT_DIGEST_TEXT],
                            ckpt_err *err)
{
    hashing h = {.root = ckpt_digest_create(),
                 .chunk = program->memory.chunk + CKPT_CHUNK_BYTES,
                 .threads = ckpt_program_threads(program)};
    if (h.root == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    char found[CKPT_DIGEST_TEXT];
    ckpt_code code = ckpt_whole_walk(program, whole, hash, &h, err);
    hash_leaves(&h);
    ckpt_digest_end(h.root, found);
    if (code == CKPT_OK && program->ranks != NULL) {
        code = ckpt_ranks_broadcast(program->ranks, 0, found, sizeof found, err);
    }
    if (code == CKPT_OK) {
        memcpy(text, found, sizeof found);
    }
    return code;
}

ckpt_code ckpt_state_digest(const ckpt_program *program, ckpt_section section, char text[CKPT_DIGEST_TEXT],
                            ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_whole whole;
    ckpt_code code = ckpt_whole_section(program, section, &scratch, &whole, err);
    if (code == CKPT_OK) {
        code = hash_whole(program, &whole, text, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
