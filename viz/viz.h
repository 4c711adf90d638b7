/* Pictures: memory over time from traces, and the graph with its decisions. */
#ifndef CKPT_VIZ_VIZ_H
#define CKPT_VIZ_VIZ_H

#include "core/graph.h"
#include "core/plan.h"
#include "core/trace.h"

typedef struct ckpt_view_options {
    int width, height; /* pixels, or columns and rows of a terminal; 0: default; too small for the words: grows */
    bool color;        /* terminal */
    /* x is time, or the steps of the plan, on which predicted and measured fall together. Neither: the steps, but time
     * where no trace follows a plan */
    bool time_axis, step_axis;
} ckpt_view_options;

/* Predicted and measured traces on one axis under the budget line, with the breakdown of the peak.
 * 1 to 8 traces; formats by name: "svg", "png", "pdf", "txt".
 * `text` receives the bytes of the picture. Errors: CKPT_BAD_INPUT (no event, unknown format), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                                       const ckpt_view_options *options, ckpt_text *text, ckpt_err *err);

/* The graph through Graphviz: layers with bytes and time; coloured by the plan's decisions when `plan` is given.
 * Formats: "svg", "png", "pdf", "dot". */
CKPT_MUST_USE ckpt_code ckpt_graph_draw(const ckpt_graph *graph, const ckpt_plan *plan, const char *format,
                                        ckpt_text *text, ckpt_err *err);

#endif
