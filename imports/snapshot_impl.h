/* A memory snapshot between its pickle and its trace: one device's checked entries and blocks. */
#ifndef CKPT_IMPORTS_SNAPSHOT_IMPL_H
#define CKPT_IMPORTS_SNAPSHOT_IMPL_H

#include "core/formats/timeline.h"
#include "imports/import_impl.h"
#include "imports/pickle_impl.h"

/* Times are microseconds since 1970; as nanoseconds they must fit 63 bits. */
#define CKPT_SNAPSHOT_MOST_US (INT64_MAX / 2000)

typedef enum ckpt_snapshot_action {
    CKPT_SNAPSHOT_ALLOC,
    CKPT_SNAPSHOT_FREE,    /* a completed free, or a requested one if the file has no completed ones */
    CKPT_SNAPSHOT_RESERVE, /* the allocator gets a segment or maps more of one */
    CKPT_SNAPSHOT_RETURN,
    CKPT_SNAPSHOT_OOM,
    CKPT_SNAPSHOT_MARK,   /* a snapshot was taken */
    CKPT_SNAPSHOT_NOTHING /* known but not needed */
} ckpt_snapshot_action;

typedef struct ckpt_snapshot_entry {
    ckpt_snapshot_action action;
    int64_t address; /* of OOM: the bytes that were free */
    ckpt_bytes size_bytes;
    int64_t stream;
    ckpt_ns time_ns; /* never before the previous entry's: the file's order counts */
    const ckpt_pickle_value *value;
} ckpt_snapshot_entry;

/* A block in use in the final segments. */
typedef struct ckpt_snapshot_block {
    int64_t address;
    ckpt_bytes room_bytes;      /* of address space */
    ckpt_bytes requested_bytes; /* asked for by the program */
    int64_t stream;
    const ckpt_pickle_value *value;
} ckpt_snapshot_block;

typedef struct ckpt_snapshot {
    const char *path;
    void (*note)(const char *line);
    ckpt_arena *work; /* holds everything here */
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

/* Fills entry, block and their counts from root. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_decode(ckpt_snapshot *snapshot);

/* The code that allocated an entry or block, by its frames: "train.py:42 forward"; "allocation" if unknown. NULL: no
 * memory. */
const char *ckpt_snapshot_name(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value);

/* The program's label, user_metadata, or "". NULL: no memory. */
const char *ckpt_snapshot_layer(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value);

/* At most `most` bytes of a text, in whole characters; NULL: no memory. */
const char *ckpt_snapshot_text(const ckpt_snapshot *snapshot, const ckpt_pickle_value *text, int most);

/* Adds the program's record_function ranges, cut to the time between the first and the last entry. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_add_annotations(const ckpt_snapshot *snapshot, ckpt_timeline *timeline);

ckpt_category ckpt_snapshot_category(const ckpt_pickle_value *value);

#endif
