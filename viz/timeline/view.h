/* What the picture of memory over time is made of: traces as series on one axis, and stacks of bands. */
#ifndef CKPT_VIZ_TIMELINE_VIEW_H
#define CKPT_VIZ_TIMELINE_VIEW_H

#include "core/formats/trace.h"
#include "viz/draw/draw.h"
#include "viz/timeline/live_ranges.h"
#include "viz/viz.h"

enum { CKPT_VIEW_TRACES = 8 };

/* From the bottom of the stack to its top: the static block, then what comes and goes. The category "gradients" holds
 * the static gradients of weights and the gradients of activations, and "activations" and "saved" hold what was
 * recomputed and what is offloaded; the picture keeps them apart. */
typedef enum ckpt_band {
    CKPT_BAND_WEIGHTS,
    CKPT_BAND_OPTIMIZER,
    CKPT_BAND_WEIGHT_GRADIENTS,
    CKPT_BAND_INPUTS,
    CKPT_BAND_ACTIVATIONS,
    CKPT_BAND_SAVED,
    CKPT_BAND_RECOMPUTED,
    CKPT_BAND_OFFLOADED,
    CKPT_BAND_GRADIENTS,
    CKPT_BAND_WORKSPACE,
    CKPT_BAND_STAGING,
    CKPT_BAND_OTHER,
    CKPT_BAND_OUTSIDE,
    CKPT_BAND_COUNT
} ckpt_band;

typedef struct ckpt_band_look {
    const char *name;
    ckpt_colour_role role;
} ckpt_band_look;
extern const ckpt_band_look ckpt_band_looks[CKPT_BAND_COUNT];

typedef struct ckpt_bands {
    ckpt_bytes bytes[CKPT_BAND_COUNT];
    ckpt_bytes planned; /* sum without OUTSIDE: what the budget counts */
} ckpt_bands;

/* Bytes of activations [0] and of saved tensors [1] at an event that were recomputed or are offloaded, modulo 2^64. */
typedef struct ckpt_band_split {
    uint64_t recomputed[2], offloaded[2];
} ckpt_band_split;

typedef struct ckpt_series {
    const ckpt_trace *trace;
    ckpt_live_ranges ranges;
    ckpt_band_split *split; /* per event; NULL: a trace of the picture does not know it */
    const char *label;      /* "predicted", "measured", with the file's name when that alone is not clear */
    double *from;           /* event i lasts from[i] .. from[i + 1]; never decreasing */
    int peak;               /* event */
    ckpt_bands at_peak;
    bool used[CKPT_BAND_COUNT]; /* at any event */
    ckpt_bytes outside_bytes;   /* the most of any event */
    ckpt_bytes most_bytes;      /* the most of any event, what is outside included */
    const char *verdict;        /* goes after the label: "= predicted at every step"; "" for the base itself */
    bool same;                  /* the verdict is: no byte differs */
    bool by_step;               /* from[i] is the event's step; else i, or a time */
    int runs, recomputed;       /* runs of ops, of which recomputations */
    int copies, allocations, frees;
    ckpt_ns recomputed_ns, copy_ns;
} ckpt_series;

/* Of a program that follows no plan: its events are numbered, its memory is what it allocated. */
bool ckpt_trace_follows_no_plan(const ckpt_trace *trace);

/* Bytes of an event by band, without those that live ranges alone know: recomputed, offloaded. Sums stop at 63 bits. */
void ckpt_event_bands(const ckpt_trace *trace, const ckpt_event *event, ckpt_bands *bands);

/* Of the event with that number, with them. */
void ckpt_series_bands(const ckpt_series *series, int event, ckpt_bands *bands);

/* Where on the clock each event begins, and where the last one ends: event_count + 1 of them, never decreasing. */
void ckpt_trace_times(const ckpt_trace *trace, double *from);

/* Fill one series per trace. *base: the trace whose stack is filled, the first predicted one, else the first; the
 * verdicts compare with it. Errors: CKPT_BAD_INPUT (a trace without events, or as ckpt_live_ranges_make),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_series_make(const ckpt_trace *const *trace, int count, bool time_axis, ckpt_arena *scratch,
                                         ckpt_series *series, int *base, ckpt_err *err);

/* What a second trace did otherwise than the base: at every step both have, and where it put things. */
typedef struct ckpt_residual {
    bool comparable; /* the same steps in the same order */
    int differing;   /* steps whose bytes are not the base's */
    ckpt_bytes most; /* the other's bytes less the base's where that is farthest from 0 */
    int at;          /* the first event that has it */
    /* Allocations of the base, how many of them the other has not, and of the other's the base; 0: not known
     * of both */
    int allocations, moved, more;
} ckpt_residual;

/* For each of `columns` equal parts of 0 .. end the event with the most bytes that touches it; -1: none does. */
void ckpt_series_columns(const ckpt_series *series, double end, int columns, int *event, ckpt_bytes *most);

/* The smallest of 1, 2, 5 * 10^k that cuts `range` into at most `parts` pieces and is at least `minimum`. */
double ckpt_tick_step(double range, int parts, double minimum);

/* "12 kB", "1.5 GB", "0": a tick label; all labels of an axis share the unit that suits its `end`. */
const char *ckpt_tick_bytes(double value, double step, double end, char *text);
const char *ckpt_tick_ns(double value, double step, double end, char *text);

#endif
