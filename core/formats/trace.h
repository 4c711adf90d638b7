/* ckpt-trace/1: what happened, or what the simulator says will. Both have this one type. */
#ifndef CKPT_CORE_FORMATS_TRACE_H
#define CKPT_CORE_FORMATS_TRACE_H

#include <stdbool.h>

#include "core/formats/machine.h"
#include "core/formats/plan.h"

/* Bytes in memory by category. "other" is memory of a program that does not say what for; "gradients" holds the static
 * gradients of parameters and the gradients of activations; "inputs" the input batch and statistics; "outside" what was
 * found outside static block and arena. */
typedef enum ckpt_category {
    CKPT_CAT_WEIGHTS,
    CKPT_CAT_GRADIENTS,
    CKPT_CAT_OPTIMIZER,
    CKPT_CAT_INPUTS,
    CKPT_CAT_ACTIVATIONS,
    CKPT_CAT_SAVED,
    CKPT_CAT_WORKSPACE,
    CKPT_CAT_STAGING,
    CKPT_CAT_OTHER,
    CKPT_CAT_OUTSIDE,
    CKPT_CATEGORY_COUNT
} ckpt_category;

/* what a step was to the clock */
typedef enum ckpt_span {
    CKPT_SPAN_FORWARD,
    CKPT_SPAN_BACKWARD,
    CKPT_SPAN_RECOMPUTE,
    CKPT_SPAN_COPY,
    CKPT_SPAN_UPDATE,
    CKPT_SPAN_WAIT,
    CKPT_SPAN_FREE,
    CKPT_SPAN_ALLOCATE, /* with CKPT_SPAN_FREE of a program that follows no plan */
    CKPT_SPAN_OTHER     /* what ran in one that does not say in which phase */
} ckpt_span;

typedef struct ckpt_event {
    int step;            /* index in the plan */
    const char *name;    /* op or buffer */
    const char *layer;   /* "" for none */
    const char *variant; /* of a run: how, where that is not the op's own way; else NULL */
    bool inexact;        /* of a run: what it writes has other bits than by the op's own way */
    const char *stream;  /* "compute", "d2h", "h2d"; "stream 7" of a program that follows no plan */
    ckpt_span span;
    ckpt_ns start_ns, end_ns;              /* from the start of the training step */
    ckpt_bytes bytes[CKPT_CATEGORY_COUNT]; /* after the step; a run's own workspace still counted */
    ckpt_bytes size_bytes;                 /* allocated, freed or copied, where that is not the plan's; else 0 */
    int64_t address;                       /* of what was allocated or freed; 0: not known */
    ckpt_ns kernel_ns;                     /* what the device itself recorded: time in kernels, copies and fills */
    int launches;                          /* and how many those were; 0: nothing was recorded */
} ckpt_event;

/* Bytes [offset, offset + bytes) of the arena during the steps from..to, both included, as in a plan. */
typedef struct ckpt_trace_allocation {
    const char *name;       /* buffer, or "workspace" */
    ckpt_category category; /* activations, saved, gradients or workspace */
    int from, to;           /* steps of the plan, none after the last event's */
    ckpt_bytes offset, bytes;
} ckpt_trace_allocation;

/* peak_bytes = max over events of the sum of bytes[] without CKPT_CAT_OUTSIDE; what of it was whose: peak_event */
typedef struct ckpt_trace {
    const char *source;
    const char *name; /* of the graph */
    const char *plan; /* strategy that made the plan */
    bool measured;
    ckpt_bytes budget_bytes, static_bytes, arena_bytes, peak_bytes;
    ckpt_ns time_ns;
    int peak_event;
    const char *recorder;          /* what recorded the device ("CUPTI 13.0.1, ..."); "": nothing did */
    ckpt_bytes process_peak_bytes; /* measured: getrusage's maximum resident set; 0: unknown */
    ckpt_bytes capacity_bytes;     /* of the device's memory; 0: unknown */
    const ckpt_ns *step_ns;        /* measured: lengths of all training steps of the run that were not traced */
    int step_ns_count;
    ckpt_machine machine;
    const ckpt_event *event;
    int event_count;
    const ckpt_trace_allocation *allocation; /* where everything in the arena lay; measured: where it really did */
    int allocation_count;                    /* 0: unknown, or no plan */
} ckpt_trace;

CKPT_MUST_USE ckpt_code ckpt_trace_read(const char *path, ckpt_arena *out, const ckpt_trace **trace, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_trace_item(const ckpt_item *root, ckpt_arena *out, const ckpt_trace **trace,
                                        ckpt_err *err);
void ckpt_trace_write(const ckpt_trace *trace, ckpt_text *text);

const char *ckpt_category_name(ckpt_category category);
const char *ckpt_span_name(ckpt_span span);

/* Category of a static block by its name: "weights" (and their bfloat16 copy, "weights16"), "gradients", "optimizer",
 * anything else: inputs; and of a buffer by its kind. */
ckpt_category ckpt_static_category(const char *name);
ckpt_category ckpt_kind_category(ckpt_kind kind);

#endif
