/* Python pickles as plain data. The format is a program for a stack machine; this machine knows the instructions that
 * build data and none that names, calls or loads anything. Nothing is executed.
 *
 * What is read is a graph, not a tree: a value that the file refers to twice is there once, and a list may contain
 * itself. Who walks it must bound the walk (value_count is the number of values). */
#ifndef CKPT_IMPORTS_PICKLE_IMPL_H
#define CKPT_IMPORTS_PICKLE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/memory.h"

typedef enum ckpt_pickle_type {
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

typedef struct ckpt_pickle_value ckpt_pickle_value;
struct ckpt_pickle_value {
    ckpt_pickle_type type;
    int count; /* of bytes, items, or pairs of a dict */
    union {
        int64_t integer; /* a bool too */
        double real;
        const char *bytes;              /* inside the file's own bytes: not terminated, may hold zeros */
        const ckpt_pickle_value **item; /* of a dict: key, value, key, value, ... in file order */
    } as;
    int room; /* of item; the reader's own business */
};

/* The pickle of protocol 2 to 5 at `bytes`, which must live as long as the values; `path` is for messages. What follows
 * the pickle's end is not looked at, as Python's own reader does.
 * Errors: CKPT_BAD_INPUT ("path: found ... at byte 17 ..., wanted ..."), CKPT_NO_MEMORY.
 * Cost: O(length) time and at most about 100 bytes of memory per byte. */
CKPT_MUST_USE ckpt_code ckpt_pickle_read(const char *path, const char *bytes, size_t length, ckpt_arena *arena,
                                         const ckpt_pickle_value **root, int64_t *value_count, ckpt_err *err);

/* The value of that key, the last one as in Python; NULL: not a dict, or no such key. Only the last
 * CKPT_PICKLE_KEYS keys are looked at: dicts of records are small, and a large one shared by many is an attack. */
enum { CKPT_PICKLE_KEYS = 64 };
const ckpt_pickle_value *ckpt_pickle_find(const ckpt_pickle_value *dict, const char *key);

bool ckpt_pickle_is_text(const ckpt_pickle_value *value, const char *text);
const char *ckpt_pickle_type_name(ckpt_pickle_type type); /* "a dict" */

/* What an opcode makes the machine do. The last four are the ones that are never done. */
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
    CKPT_DO_MAKE_MARKED, /* of all since the last mark */
    CKPT_DO_ADD,
    CKPT_DO_ADD_MARKED,
    CKPT_DO_OLD,
    CKPT_DO_REFUSE,
    CKPT_DO_REFUSE_NAMED,  /* the name follows in two lines */
    CKPT_DO_REFUSE_STACKED /* the name is the two texts on top of the stack */
} ckpt_opcode_does;

typedef struct ckpt_opcode {
    const char *name; /* as in pickletools; NULL: no such opcode */
    ckpt_opcode_does does;
    int width; /* bytes of the number that follows, or values it takes */
    int makes; /* ckpt_pickle_type of what is made or added to */
} ckpt_opcode;

extern const ckpt_opcode ckpt_opcodes[256];

#endif
