/* Shared by the files that read Chrome traces. They build no tree: a cursor walks the text once and keeps slices of it,
 * and everything is freed with the text. In the order they run:
 *   scan    a cursor over JSON
 *   read    text -> lists of spans, GPU work and memory events
 *   nest    the operation and layer that enclose each of them
 *   put     names, and events into the timeline
 *   memory  the memory events of one device
 *   chrome  ckpt_import_chrome */
#ifndef CKPT_IMPORTS_CHROME_IMPL_H
#define CKPT_IMPORTS_CHROME_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/memory.h"
#include "core/formats/timeline.h"
#include "imports/import_impl.h"

/* A value in the text, with its quotes; at NULL: none. */
typedef struct ckpt_slice {
    const char *at;
    size_t length;
} ckpt_slice;

/* A cursor in the text that only moves forward. */
typedef struct ckpt_scan {
    const char *source; /* path, for messages */
    const char *text, *at, *end;
    bool ended; /* the text ended too early, as a program that died leaves it */
} ckpt_scan;

/* Reads JSON a little more leniently than browsers do, because tracers write it by hand. Strings may hold any bytes,
 * also control characters and invalid UTF-8. A backslash that escapes nothing is a backslash. NaN and infinities are
 * values. Of a key that comes twice the last counts. Errors: CKPT_BAD_INPUT "file:line:column: ..." */
CKPT_MUST_USE ckpt_code ckpt_scan_value(ckpt_scan *scan, ckpt_slice *value, ckpt_err *err);
/* Moves past the opening bracket `open`, '[' or '{'; fails if there is none. */
CKPT_MUST_USE ckpt_code ckpt_scan_open(ckpt_scan *scan, char open, ckpt_err *err);
/* Moves to the next element or, with `key`, to the value of the next member. At the closing bracket, *more becomes
 * false and the cursor moves past it. Start with *first true. */
CKPT_MUST_USE ckpt_code ckpt_scan_more(ckpt_scan *scan, char close, bool *first, ckpt_slice *key, bool *more,
                                       ckpt_err *err);
void ckpt_scan_space(ckpt_scan *scan);

/* Fails with CKPT_BAD_INPUT and "file:line:column: <formatted>", on one line. Cost: O(text). */
ckpt_code ckpt_scan_fail(const ckpt_scan *scan, const char *at, ckpt_err *err, const char *format, ...)
    CKPT_PRINTF(4, 5);
int ckpt_scan_line(const ckpt_scan *scan, const char *at);

bool ckpt_slice_is(ckpt_slice slice, const char *text);     /* it is the string "text" */
bool ckpt_slice_none(ckpt_slice slice);                     /* nothing, or null */
bool ckpt_slice_begins(ckpt_slice slice, const char *with); /* a string that begins so */

/* A number, or a string that holds one, times 10^shift, rounded towards 0. False: it is neither, or not below 2^62.
 * Exact, unlike a double, which cannot hold fractions of microseconds since 1970. */
bool ckpt_slice_number(ckpt_slice slice, int shift, int64_t *value);

/* A copy of at most CKPT_IMPORT_NAME_MAX bytes. Of a string: without quotes and escapes, control characters as blanks.
 * Of other values: as in the text. Of nothing: "". NULL: no memory. */
char *ckpt_slice_text(ckpt_slice slice, ckpt_arena *arena);

/* Kinds of events: the first six are on threads of the CPU. */
typedef enum ckpt_chrome_kind {
    CKPT_CHROME_OP,         /* PyTorch's operators, autograd's nodes */
    CKPT_CHROME_ANNOTATION, /* record_function, Optimizer.step */
    CKPT_CHROME_MODULE,     /* a call of an nn.Module */
    CKPT_CHROME_LAUNCH,     /* a call of the CUDA runtime or driver */
    CKPT_CHROME_ANY,        /* of an unknown category */
    CKPT_CHROME_MEMORY,     /* an allocation or free: an instant */
    CKPT_CHROME_KERNEL,     /* this and the next two: on the GPU */
    CKPT_CHROME_COPY,
    CKPT_CHROME_FILL,
    CKPT_CHROME_IGNORED
} ckpt_chrome_kind;

struct ckpt_chrome_span;

/* The outermost operation, and the innermost module or annotation, around an event. NULL: none. */
typedef struct ckpt_chrome_place {
    const struct ckpt_chrome_span *op, *layer;
    int64_t sequence; /* of the innermost operation with one; forward and backward of a node share it; -1: none */
    bool backward, update;
} ckpt_chrome_place;

typedef struct ckpt_chrome_span {
    ckpt_chrome_kind kind;
    int order;       /* in the file */
    uint64_t thread; /* hash of process and thread */
    ckpt_slice name, tid;
    ckpt_ns start_ns, end_ns;
    int64_t sequence, correlation, external; /* -1: none */
    int64_t function;                        /* of PyTorch's record_function; -1: none */
    int memory;                              /* CKPT_CHROME_MEMORY: index into memories */
    ckpt_chrome_place place;                 /* set by ckpt_chrome_nest; op is the span itself if it is outermost */
} ckpt_chrome_span;

typedef struct ckpt_chrome_work { /* on a GPU */
    ckpt_chrome_kind kind;
    int order;
    int64_t device;
    ckpt_slice name, stream;
    ckpt_ns start_ns, end_ns;
    int64_t correlation, external;  /* of the call that launched it; -1: none */
    ckpt_bytes bytes;               /* copied or filled */
    const ckpt_chrome_place *place; /* of that call; NULL: unknown */
} ckpt_chrome_work;

typedef struct ckpt_chrome_memory {
    int order;
    int64_t device_type, device;
    ckpt_ns at_ns;
    ckpt_bytes bytes; /* negative: freed */
    int64_t address;
    ckpt_bytes total; /* held by the device afterwards; -1: not in the file */
    const ckpt_chrome_span *span;
} ckpt_chrome_memory;

typedef struct ckpt_chrome_mark { /* a separate begin or end event */
    bool begin;
    ckpt_chrome_span span;
} ckpt_chrome_mark;

typedef struct ckpt_chrome_thread {
    uint64_t thread;
    ckpt_slice name;
} ckpt_chrome_thread;

/* A growing array of one of the types above; freed by ckpt_chrome_fini. */
typedef struct ckpt_chrome_list {
    void *at;
    int count, room;
} ckpt_chrome_list;

typedef struct ckpt_chrome {
    ckpt_scan scan;
    ckpt_arena arena; /* the text */
    ckpt_chrome_list spans, works, memories, marks, threads, devices;
    int event_count, negative_times, placeless_memories, unfinished, unbegun;
    bool kineto; /* it has a "schemaVersion" */
} ckpt_chrome;

typedef struct ckpt_chrome_device { /* an element of "deviceProperties" */
    int64_t id;
    ckpt_slice name;
} ckpt_chrome_device;

/* Adds a zeroed element of `size` bytes. */
CKPT_MUST_USE ckpt_code ckpt_chrome_add(ckpt_chrome_list *list, size_t size, void **added, ckpt_err *err);

/* Reads the file into lists. Call fini after a failure too. */
CKPT_MUST_USE ckpt_code ckpt_chrome_read(ckpt_chrome *chrome, const char *path, ckpt_err *err);
void ckpt_chrome_fini(ckpt_chrome *chrome);

/* Pairs marks, sorts spans by thread and time, and sets the place of spans, memory events and GPU work. */
CKPT_MUST_USE ckpt_code ckpt_chrome_nest(ckpt_chrome *chrome, ckpt_err *err);

/* The thread's name; at NULL: none. Only after ckpt_chrome_nest. */
ckpt_slice ckpt_chrome_thread_name(const ckpt_chrome *chrome, uint64_t thread);

enum { CKPT_CHROME_CPU = 0 }; /* PyTorch's number of this device type */

typedef struct ckpt_chrome_device_id {
    int64_t type, number;
} ckpt_chrome_device_id;

/* The state of an import, from the lists to the timeline. */
typedef struct ckpt_chrome_import {
    ckpt_chrome *chrome;
    ckpt_timeline *timeline;
    void (*note)(const char *line);
    ckpt_err *err;
    ckpt_arena scratch;         /* names, until the timeline has copied them */
    ckpt_mark empty;            /* scratch without names */
    ckpt_chrome_memory *memory; /* of the chosen device, by time */
    int *before;                /* per memory event: the previous one at its address; -1: none */
    int memory_count;
    ckpt_chrome_device_id memory_of; /* valid when memory_count > 0 */
    int64_t work_of;                 /* the chosen GPU */
    bool backward;                   /* the trace has a backward */
    ckpt_ns first_ns;                /* of all events taken */
} ckpt_chrome_import;

/* Copies of names; NULL: no memory. `prefix` is left out. `place` NULL: "". */
const char *ckpt_chrome_name(ckpt_slice name, const char *prefix, ckpt_arena *arena);
const char *ckpt_chrome_op_name(const ckpt_chrome_span *op, ckpt_arena *arena);
const char *ckpt_chrome_layer_name(const ckpt_chrome_place *place, ckpt_arena *arena);

/* Adds the event to the timeline and empties scratch. A NULL name means no memory. */
CKPT_MUST_USE ckpt_code ckpt_chrome_put(ckpt_chrome_import *in, const ckpt_event *event);
/* Adds the file's name to a timeline's error. */
ckpt_code ckpt_chrome_in_file(const ckpt_chrome_import *in, ckpt_code code);

/* Chooses the GPU with the most bytes, else the CPU. */
void ckpt_chrome_choose_memory(ckpt_chrome_import *in);

/* Adds the blocks from before the recording, at first_ns; then the allocations and frees in it. */
CKPT_MUST_USE ckpt_code ckpt_chrome_put_before(ckpt_chrome_import *in);
CKPT_MUST_USE ckpt_code ckpt_chrome_put_memory(ckpt_chrome_import *in);

/* Notes where the recorder's own totals differ from the sum of the events. */
void ckpt_chrome_check_totals(const ckpt_chrome_import *in);

#endif
