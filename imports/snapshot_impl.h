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
    int64_t address; /* of OOM: the bytes that were free */
    ckpt_bytes size_bytes;
    ckpt_ns time_ns; /* never before the previous entry's: the file's order counts */
    /* of ALLOC and FREE; texts are the timeline's. The name is of the code that allocated: "train.py:42 forward",
     * "allocation" if unknown; of a free NULL until its allocation is found. */
    const char *name;
    const char *layer;  /* the program's label, user_metadata, or "" */
    const char *stream; /* "stream 7" */
    ckpt_category category;
    ckpt_snapshot_action action;
} ckpt_snapshot_entry;

/* A block in use in the final segments, as an entry that allocates what the program asked for; name NULL: unknown. */
typedef struct ckpt_snapshot_block {
    ckpt_snapshot_entry allocated;
    ckpt_bytes room_bytes; /* of address space */
} ckpt_snapshot_block;

/* A record_function range, cut to the time between the first and the last entry. */
typedef struct ckpt_snapshot_range {
    const char *name; /* the timeline's */
    ckpt_ns start_ns, end_ns;
} ckpt_snapshot_range;

typedef struct ckpt_snapshot {
    const char *path;
    void (*note)(const char *line);
    ckpt_arena *work; /* holds the arrays here */
    ckpt_err *err;
    ckpt_timeline *timeline;
    ckpt_pickle_value root; /* until all is decoded */
    int device;
    bool timed;
    ckpt_snapshot_entry *entry;
    int entry_count;
    const ckpt_snapshot_block *block;
    int block_count;
    const ckpt_snapshot_range *range;
    int range_count;
    ckpt_bytes reserved_bytes; /* at the end */
    bool knows_reserved;
    bool has_host;      /* pinned memory of the host, which is left out */
    int other_segments; /* of other devices */
} ckpt_snapshot;

/* Fills what stands behind root. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_decode(ckpt_snapshot *snapshot);

/* Names what is allocated by the frames of `value`. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_name(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value,
                                           const char **name);

/* Sets layer, stream and category. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_label(const ckpt_snapshot *snapshot, const ckpt_pickle_value *value,
                                            int64_t stream, ckpt_snapshot_entry *entry);

/* At most `most` bytes of a text, in whole characters; "" if it is none. most < CKPT_SNAPSHOT_TEXT. */
enum { CKPT_SNAPSHOT_TEXT = 256 };
CKPT_MUST_USE ckpt_code ckpt_snapshot_text(const ckpt_snapshot *snapshot, const ckpt_pickle_value *text, int most,
                                           const char **kept);

/* Fills range from the program's record_function ranges. */
CKPT_MUST_USE ckpt_code ckpt_snapshot_read_annotations(ckpt_snapshot *snapshot);

#endif
