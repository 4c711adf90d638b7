/* Pictures: memory over time from traces, and the graph with its decisions. */
#ifndef CKPT_VIZ_VIZ_H
#define CKPT_VIZ_VIZ_H

#include "core/graph.h"
#include "core/plan.h"
#include "core/trace.h"

typedef struct ckpt_view_options {
    int width, height;        /* SVG, PNG: pixels; terminal: columns, rows; 0: default */
    bool color;               /* terminal */
} ckpt_view_options;

/* Predicted and measured traces on one axis under the budget line, with the breakdown of the peak.
 * 1 to 8 traces; formats by name: "svg", "png", "txt".
 * `text` receives the bytes of the picture. Errors: CKPT_BAD_INPUT (no event, unknown format), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                                       const ckpt_view_options *options, ckpt_text *text, ckpt_err *err);

/* The graph through Graphviz: layers with bytes and time; coloured by the plan's decisions when `plan` is given.
 * Formats: "svg", "png", "pdf", "dot". */
CKPT_MUST_USE ckpt_code ckpt_graph_draw(const ckpt_graph *graph, const ckpt_plan *plan, const char *format,
                                        ckpt_text *text, ckpt_err *err);

#endif
