/* What the files that read Chrome traces share. They keep no tree: a cursor walks the text once, what counts is kept as
 * slices of it, and everything is freed with the text. */
#ifndef CKPT_IMPORTS_CHROME_IMPL_H
#define CKPT_IMPORTS_CHROME_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/memory.h"
#include "core/formats/timeline.h"
#include "imports/import_impl.h"

/* A value as it stands in the text, quotes included; at NULL: there is none. */
typedef struct ckpt_slice {
    const char *at;
    size_t length;
} ckpt_slice;

/* A place in the text, walked forward only. */
typedef struct ckpt_scan {
    const char *source; /* path, for messages */
    const char *text, *at, *end;
    bool ended; /* the text ended where more was wanted: what a program that died left behind */
} ckpt_scan;

/* JSON, read as leniently as its readers in browsers and a little more, because tracers write text by hand: any bytes
 * in texts, also control characters and what is no UTF-8; a backslash that escapes nothing stands for itself; NaN and
 * infinities are values; a key that comes twice counts as the last. Errors: CKPT_BAD_INPUT "file:line:column: ..." */
CKPT_MUST_USE ckpt_code ckpt_scan_value(ckpt_scan *scan, ckpt_slice *value, ckpt_err *err);
/* Past the opening bracket of what `open` says ('[' or '{'), which must stand there. */
CKPT_MUST_USE ckpt_code ckpt_scan_open(ckpt_scan *scan, char open, ckpt_err *err);
/* Before the next element or, with `key`, member: *more false and past the bracket when it closes. `first` is true
 * until one was read and is changed here. */
CKPT_MUST_USE ckpt_code ckpt_scan_more(ckpt_scan *scan, char close, bool *first, ckpt_slice *key, bool *more,
                                       ckpt_err *err);
void ckpt_scan_space(ckpt_scan *scan);

/* "file:line:column: <formatted>" on one line; gives CKPT_BAD_INPUT. Cost: O(text). */
ckpt_code ckpt_scan_fail(const ckpt_scan *scan, const char *at, ckpt_err *err, const char *format, ...)
    CKPT_PRINTF(4, 5);
int ckpt_scan_line(const ckpt_scan *scan, const char *at);

bool ckpt_slice_is(ckpt_slice slice, const char *text);     /* it is the text "text" */
bool ckpt_slice_none(ckpt_slice slice);                     /* nothing, or null */
bool ckpt_slice_begins(ckpt_slice slice, const char *with); /* a text that begins so */

/* A number, or a text that holds one, times 10^shift; digits below 1 are cut off. False: it is neither, or is not
 * below 2^62. Exact: time stamps since 1970 in microseconds do not fit a double. */
bool ckpt_slice_number(ckpt_slice slice, int shift, int64_t *value);

/* The text without quotes and escapes, and with a blank for each control character, to CKPT_IMPORT_NAME_MAX bytes; what
 * is no text: as it stands. NULL: no memory. */
char *ckpt_slice_text(ckpt_slice slice, ckpt_arena *arena);

/* What happened on the threads of the CPU. */
typedef enum ckpt_chrome_kind {
    CKPT_CHROME_OP,         /* PyTorch's operators, autograd's nodes */
    CKPT_CHROME_ANNOTATION, /* record_function, Optimizer.step */
    CKPT_CHROME_MODULE,     /* a call of an nn.Module */
    CKPT_CHROME_LAUNCH,     /* a call of the CUDA runtime or driver */
    CKPT_CHROME_ANY,        /* of a category unknown here */
    CKPT_CHROME_MEMORY,     /* an instant */
    CKPT_CHROME_KERNEL,     /* on the GPU, as the next two */
    CKPT_CHROME_COPY,
    CKPT_CHROME_FILL,
    CKPT_CHROME_IGNORED
} ckpt_chrome_kind;

struct ckpt_chrome_span;

/* Where something stands: in which outermost operation, module or annotation. NULL: in none. */
typedef struct ckpt_chrome_place {
    const struct ckpt_chrome_span *op, *layer;
    int64_t sequence; /* of the innermost operation that has one: forward and backward of a node share it; -1: none */
    bool backward, update;
} ckpt_chrome_place;

typedef struct ckpt_chrome_span {
    ckpt_chrome_kind kind;
    int order;       /* in the file */
    uint64_t thread; /* of the process and thread, as one number */
    ckpt_slice name, tid;
    ckpt_ns start_ns, end_ns;
    int64_t sequence, correlation, external; /* -1: none */
    int64_t function;                        /* of PyTorch's record_function; -1: none */
    int memory;                              /* of CKPT_CHROME_MEMORY: its index */
    ckpt_chrome_place allocation;            /* of what it stands in, by ckpt_chrome_nest; op itself when outermost */
} ckpt_chrome_span;

typedef struct ckpt_chrome_work { /* on a GPU */
    ckpt_chrome_kind kind;
    int order;
    int64_t device;
    ckpt_slice name, stream;
    ckpt_ns start_ns, end_ns;
    int64_t correlation, external;       /* of the call that started it; -1: none */
    ckpt_bytes bytes;                    /* copied or filled */
    const ckpt_chrome_place *allocation; /* of that call; NULL: not known */
} ckpt_chrome_work;

typedef struct ckpt_chrome_memory {
    int order;
    int64_t device_type, device;
    ckpt_ns at_ns;
    ckpt_bytes bytes; /* negative: freed */
    int64_t address;
    ckpt_bytes total; /* of the device after it; -1: not said */
    const ckpt_chrome_span *span;
} ckpt_chrome_memory;

typedef struct ckpt_chrome_mark { /* an event that begins or ends alone */
    bool begin;
    ckpt_chrome_span span;
} ckpt_chrome_mark;

typedef struct ckpt_chrome_thread {
    uint64_t thread;
    ckpt_slice name;
} ckpt_chrome_thread;

/* A growing array of one of these; freed by ckpt_chrome_fini. */
typedef struct ckpt_chrome_list {
    void *at;
    int count, room;
} ckpt_chrome_list;

typedef struct ckpt_chrome {
    ckpt_scan scan;
    ckpt_arena arena; /* the text */
    ckpt_chrome_list spans, works, memories, marks, threads, devices;
    int event_count, negative_times, placeless_memories, unfinished, unbegun;
    bool kineto; /* it says "schemaVersion" */
} ckpt_chrome;

typedef struct ckpt_chrome_device { /* of "deviceProperties" */
    int64_t id;
    ckpt_slice name;
} ckpt_chrome_device;

/* One more element of `size` bytes, zeroed. */
CKPT_MUST_USE ckpt_code ckpt_chrome_add(ckpt_chrome_list *list, size_t size, void **added, ckpt_err *err);

/* Read the file into lists; fini also after a failure. */
CKPT_MUST_USE ckpt_code ckpt_chrome_read(ckpt_chrome *chrome, const char *path, ckpt_err *err);
void ckpt_chrome_fini(ckpt_chrome *chrome);

/* Pair marks, sort spans by thread and time and say of each, and of each memory event and work, where it stands. */
CKPT_MUST_USE ckpt_code ckpt_chrome_nest(ckpt_chrome *chrome, ckpt_err *err);

/* The thread's name; at NULL: it has none. Only after ckpt_chrome_nest. */
ckpt_slice ckpt_chrome_thread_name(const ckpt_chrome *chrome, uint64_t thread);

enum { CKPT_CHROME_CPU = 0 }; /* PyTorch's numbers of device types */

typedef struct ckpt_chrome_device_id {
    int64_t type, number;
} ckpt_chrome_device_id;

/* From the lists to the timeline. */
typedef struct ckpt_chrome_import {
    ckpt_chrome *chrome;
    ckpt_timeline *timeline;
    void (*note)(const char *line);
    ckpt_err *err;
    ckpt_arena scratch;         /* texts until the timeline has copied them */
    ckpt_mark empty;            /* of scratch, with its first block */
    ckpt_chrome_memory *memory; /* of the device that was chosen, by time */
    int *before;                /* for each the one of the same address before it; -1: none */
    int memory_count;
    ckpt_chrome_device_id memory_of; /* valid when memory_count > 0 */
    int64_t work_of;                 /* the GPU whose work is taken */
    bool backward;                   /* the trace shows one */
    ckpt_ns first_ns;                /* of all that is taken */
} ckpt_chrome_import;

/* Names in scratch; NULL: no memory. `place` NULL: "". */
const char *ckpt_chrome_op_name(ckpt_chrome_import *in, const ckpt_chrome_span *op);
const char *ckpt_chrome_layer_name(ckpt_chrome_import *in, const ckpt_chrome_place *allocation);

/* Into the timeline; empties scratch. A text that is NULL found no memory. */
CKPT_MUST_USE ckpt_code ckpt_chrome_put(ckpt_chrome_import *in, const ckpt_event *event);

/* One device's memory: of the GPU with the most bytes, else of the CPU. */
void ckpt_chrome_choose_memory(ckpt_chrome_import *in);

/* The blocks of before the recording, at first_ns; then what was allocated and freed in it. */
CKPT_MUST_USE ckpt_code ckpt_chrome_put_before(ckpt_chrome_import *in);
CKPT_MUST_USE ckpt_code ckpt_chrome_put_memory(ckpt_chrome_import *in);

/* How far the sum of what was imported is from the totals the recorder wrote itself. */
void ckpt_chrome_check_totals(const ckpt_chrome_import *in);

#endif
