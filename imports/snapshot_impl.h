/* A memory snapshot between its pickle and its trace: one device's entries and blocks, checked and flat. */
#ifndef CKPT_IMPORTS_SNAPSHOT_IMPL_H
#define CKPT_IMPORTS_SNAPSHOT_IMPL_H

#include "core/formats/timeline.h"
#include "imports/import_impl.h"
#include "imports/pickle_impl.h"

/* Times are microseconds since 1970; nanoseconds of the latest must fit 63 bits. */
#define CKPT_SNAPSHOT_MOST_US (INT64_MAX / 2000)

typedef enum ckpt_snapshot_action {
    CKPT_SNAPSHOT_ALLOC,
    CKPT_SNAPSHOT_FREE,    /* the one kind of free that counts: completed, or requested where none is completed */
    CKPT_SNAPSHOT_RESERVE, /* the allocator gets a segment, or maps more of one */
    CKPT_SNAPSHOT_RETURN,
    CKPT_SNAPSHOT_OOM,
    CKPT_SNAPSHOT_MARK,   /* a snapshot was taken */
    CKPT_SNAPSHOT_NOTHING /* known and of no interest */
} ckpt_snapshot_action;

typedef struct ckpt_snapshot_entry {
    ckpt_snapshot_action action;
    int64_t address; /* of OOM: the bytes that were free */
    ckpt_bytes size_bytes;
    int64_t stream;
    ckpt_ns time_ns; /* never less than the entry's before it: the file's order is what happened */
    const ckpt_pickle_value *value;
} ckpt_snapshot_entry;

/* A block that the final segments say is in use. */
typedef struct ckpt_snapshot_block {
    int64_t address;
    ckpt_bytes room_bytes;      /* of address space */
    ckpt_bytes requested_bytes; /* what the program asked for */
    int64_t stream;
    const ckpt_pickle_value *value;
} ckpt_snapshot_block;

typedef struct ckpt_snapshot {
    const char *path;
    void (*note)(const char *line);
    ckpt_arena *work; /* all of this lives there, and goes with it */
    ckpt_err *err;
    const ckpt_pickle_value *root;
    int64_t value_count;
    int device;
    bool timed;
    const ckpt_snapshot_entry *entry;
    int entry_count;
    const ckpt_snapshot_block *block;
    int block_count;
    ckpt_bytes reserved_bytes; /* at the end */
    bool knows_reserved;
    int other_segments; /* of other devices */
} ckpt_snapshot;

/* Fill entry, block and what belongs to them from root. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_decode(ckpt_snapshot *snapshot);

/* What an entry's or block's frames say where it was allocated: "train.py:42 forward"; "allocation" when they say
 * nothing. NULL: no memory. */
const char *ckpt_snapshot_name(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value);

/* The program's own word for what it was doing: user_metadata, or "". NULL: no memory. */
const char *ckpt_snapshot_layer(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value);

/* At most `most` bytes of a text, whole characters; NULL: no memory. */
const char *ckpt_snapshot_text(const ckpt_snapshot *snapshot, const ckpt_pickle_value *text, int most);

/* The program's own ranges, cut to the time between first and last entry. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_add_annotations(const ckpt_snapshot *snapshot, ckpt_timeline *timeline);

ckpt_category ckpt_snapshot_category(const ckpt_pickle_value *value);

#endif
