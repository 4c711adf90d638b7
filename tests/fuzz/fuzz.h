/* A reader under fuzzing: what reads an input, what its pieces are, and what must hold for every input there is.
 * README.md says how it is run. */
#ifndef CKPT_TESTS_FUZZ_H
#define CKPT_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"

/* Ends the process with a line that says what did not hold, so that the fuzzer keeps the input. */
#define FUZZ_CHECK(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fuzz_fail(__VA_ARGS__);                                                                                    \
        }                                                                                                              \
    } while (0)
_Noreturn void fuzz_fail(const char *format, ...) CKPT_PRINTF(1, 2);

/* The path of a file in memory that holds these bytes until the next call for file k, 0 or 1. */
const char *fuzz_file(int k, const void *bytes, size_t size);

/* ---- pieces ---- */

typedef enum fuzz_kind {
    FUZZ_NODE,   /* has pieces of its own */
    FUZZ_MEMBER, /* of a JSON object: key and value */
    FUZZ_ELEMENT,
    FUZZ_KEY,
    FUZZ_PLAIN,  /* bytes */
    FUZZ_DIGITS, /* a number as text */
    FUZZ_VARINT, /* LEB128 */
    FUZZ_LITTLE  /* a number of 1 to 8 bytes, little endian */
} fuzz_kind;

/* Bytes [from, to) of an input. They may have a length before them, at length_at: a varint, or as many bytes little
 * endian as length_width says. Lengths of all pieces around one that is changed follow it. */
typedef struct fuzz_piece {
    size_t from, to, length_at;
    int length_width; /* 0: a varint; -1: no length */
    int parent;       /* the piece around it, which comes before it in the list; -1: none */
    bool part;        /* goes, comes and moves with its parent only, as a key does with its member */
    fuzz_kind kind;
} fuzz_piece;

enum { FUZZ_PIECES = 1 << 14 };
typedef struct fuzz_pieces {
    const uint8_t *bytes;
    fuzz_piece at[FUZZ_PIECES];
    int count;
} fuzz_pieces;

/* Adds a piece and gives its number; -1: there is no room for more. */
int fuzz_piece_add(fuzz_pieces *pieces, fuzz_kind kind, size_t from, size_t to, int parent);

/* Adds all pieces of bytes[from, to) that are seen, inside `parent`. */
typedef void fuzz_split(fuzz_pieces *pieces, size_t from, size_t to, int parent);
fuzz_split fuzz_split_text;        /* JSON's values and members; of other texts the words, numbers and signs */
fuzz_split fuzz_split_pickle;      /* opcodes and their arguments */
fuzz_split fuzz_split_protobuf;    /* fields, those of messages inside them too */
fuzz_split fuzz_split_safetensors; /* the header's, and the tensors' bytes */
fuzz_split fuzz_split_spool;       /* records and their numbers */

/* JSON with a comma where one value follows another, and nowhere else. Gives the new size; `size`, and nothing is changed,
 * when there is no room. */
size_t fuzz_mend_json(uint8_t *bytes, size_t size, size_t room);

/* One to four changes of pieces and bytes that `seed` says. `other`: of the same kind, to take pieces from; NULL: none.
 * Gives the new size, at most `room`. */
size_t fuzz_mutate(fuzz_split *split, uint8_t *bytes, size_t size, size_t room, const uint8_t *other, size_t other_size,
                   unsigned seed);

/* libFuzzer's, and that of the driver that stands in for it (fuzz_once.c): changes of bytes alone. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room);

/* ---- readers ---- */

enum { FUZZ_ROOM = 1 << 17, FUZZ_SEEDS = 16 };

typedef struct fuzz_reader {
    const char *name;
    fuzz_split *split;
    bool placed;        /* a refusal says file, line and column; else the file alone */
    const char *writes; /* the format (support_core.h) of what it writes; NULL: nothing */
    /* Reads the file `path`, and adds what was read to `written` in that format. Errors: what the reader refuses. */
    ckpt_code (*read)(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err);
    void (*begin)(void); /* before the first input; NULL: nothing */
    /* A good input that no file of the sources holds, the next of at most FUZZ_SEEDS different ones; NULL: files do. Gives its
     * size, at most `room`, which is FUZZ_ROOM. */
    size_t (*seed)(uint8_t *bytes, size_t room);
} fuzz_reader;

/* Each fuzz_<name>.c defines it; a program has one. */
extern const fuzz_reader fuzz_the_reader;

extern int64_t fuzz_accepted;    /* inputs that were read so far */
extern const char *fuzz_refusal; /* the message of the last one that was not */

/* What libFuzzer calls, and the driver. CKPT_FUZZ_SEEDS=FOLDER of the environment: the reader's seeds are written there, and
 * the program ends. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *to,
                                 size_t room, unsigned seed);

#endif
