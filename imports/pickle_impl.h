/* Reads Python pickles as plain data. A pickle is a program for a stack machine. This machine has the instructions that
 * build data, and none that names, calls or loads code.
 *
 *     a value:               its place: where its opcode is in the file, whose bytes are looked at again when somebody asks;
 *                            of a container, with the highest bit set, where its words begin
 *     a tuple:               [type and count] [item] [item] ...
 *     a list, a dict, a set: [type and count] [first piece]
 *     a piece:               [next piece; 0: none] [room] [item] [item] ...
 *
 * So memory goes into the items of containers alone, and a container that grows gets a piece more.
 * The result is a graph, not a tree: a value may be referred to twice, and a list may contain itself. A walk over it
 * must be bounded (value_count is the number of values). */
#ifndef CKPT_IMPORTS_PICKLE_IMPL_H
#define CKPT_IMPORTS_PICKLE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/memory.h"

typedef enum ckpt_pickle_type {
    CKPT_PICKLE_ABSENT, /* no value: what a dict without the key gives */
    CKPT_PICKLE_NONE,
    CKPT_PICKLE_BOOL,
    CKPT_PICKLE_INT,
    CKPT_PICKLE_REAL,
    CKPT_PICKLE_TEXT,
    CKPT_PICKLE_BYTES,
    CKPT_PICKLE_LIST,
    CKPT_PICKLE_TUPLE,
    CKPT_PICKLE_DICT,
    CKPT_PICKLE_SET /* a frozenset too */
} ckpt_pickle_type;

typedef struct ckpt_pickle {
    const unsigned char *bytes; /* the file's */
    uint32_t *word;             /* of all containers; the first is not used */
    size_t word_count, word_room;
    uint32_t root;
    int64_t value_count; /* None, False and True are not counted */
} ckpt_pickle;

typedef struct ckpt_pickle_value {
    const ckpt_pickle *in;
    uint32_t place; /* equal: the same value */
    ckpt_pickle_type type;
    int count; /* of bytes, items, or pairs of a dict */
    union {
        int64_t integer; /* a bool too */
        double real;
        const char *bytes; /* points into the file: not terminated, may hold zeros */
    } as;
} ckpt_pickle_value;

/* Reads a pickle of protocol 2 to 5 at `bytes`, which must outlive `pickle`. `path` is for messages. Bytes behind the
 * pickle's end are ignored, as in Python. ckpt_pickle_fini frees what was read; after a failure there is nothing to free.
 * Errors: CKPT_BAD_INPUT ("path: found ... at byte 17 ..., wanted ..."), CKPT_OVERFLOW (2^31 words), CKPT_NO_MEMORY.
 * Cost: O(length) time, and 4 bytes of memory per item of a container, per memo number and per value on the stack, beside
 * 8 (tuple: 4) per container and 8 per piece: at most 40 bytes per byte of a hostile file. */
CKPT_MUST_USE ckpt_code ckpt_pickle_read(const char *path, const char *bytes, size_t length, ckpt_pickle *pickle,
                                         ckpt_err *err);
void ckpt_pickle_fini(ckpt_pickle *pickle);

ckpt_pickle_value ckpt_pickle_root(const ckpt_pickle *pickle);

/* Item `index` of a list, tuple or set; of a dict, in file order: key, value, key, value, ... Cost: O(log index). */
ckpt_pickle_value ckpt_pickle_item(const ckpt_pickle_value *of, int index);

/* The last value of the key, as in Python; absent: not a dict, or no such key. Only the last CKPT_PICKLE_KEYS keys count:
 * dicts of records are small, and a large dict shared by many records is an attack. */
enum { CKPT_PICKLE_KEYS = 64 };
ckpt_pickle_value ckpt_pickle_find(const ckpt_pickle_value *dict, const char *key);

bool ckpt_pickle_is_text(const ckpt_pickle_value *value, const char *text);
const char *ckpt_pickle_type_name(ckpt_pickle_type type); /* "a dict" */

/* The action of an opcode. The last four are refused. */
typedef enum ckpt_opcode_does {
    CKPT_DO_UNKNOWN, /* no such opcode */
    CKPT_DO_PROTO,
    CKPT_DO_FRAME,
    CKPT_DO_MARK,
    CKPT_DO_POP,
    CKPT_DO_POP_MARK,
    CKPT_DO_DUP,
    CKPT_DO_PUT,
    CKPT_DO_MEMOIZE,
    CKPT_DO_GET,
    CKPT_DO_STOP,
    CKPT_DO_NONE,
    CKPT_DO_TRUE,
    CKPT_DO_FALSE,
    CKPT_DO_INT,
    CKPT_DO_LONG,
    CKPT_DO_REAL,
    CKPT_DO_BYTES,
    CKPT_DO_EMPTY,
    CKPT_DO_TUPLE,
    CKPT_DO_MAKE_MARKED, /* of all values since the last mark */
    CKPT_DO_ADD,
    CKPT_DO_ADD_MARKED,
    CKPT_DO_OLD,
    CKPT_DO_REFUSE,
    CKPT_DO_REFUSE_NAMED,  /* the name follows in two lines */
    CKPT_DO_REFUSE_STACKED /* the two texts on top of the stack are the name */
} ckpt_opcode_does;

typedef struct ckpt_opcode {
    const char *name; /* as in pickletools; NULL: no such opcode */
    ckpt_opcode_does does;
    int width; /* bytes of the number that follows, or number of values taken */
    int makes; /* the ckpt_pickle_type made or added to */
} ckpt_opcode;

extern const ckpt_opcode ckpt_opcodes[256];

#endif
