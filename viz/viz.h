/* Pictures: memory over time from traces, time over budget, and the graph with its decisions. */
#ifndef CKPT_VIZ_VIZ_H
#define CKPT_VIZ_VIZ_H

#include "core/formats/curve.h"
#include "core/formats/graph.h"
#include "core/formats/plan.h"
#include "core/formats/tensor.h"
#include "core/formats/trace.h"

typedef struct ckpt_view_options {
    int width, height; /* pixels, or columns and rows of a terminal; 0: default; too small for the words: grows */
    bool color;        /* terminal */
    bool ascii;        /* terminal: no other characters */
    /* x is time, or the steps of the plan, on which predicted and measured fall together. Neither: the steps, but time
     * where no trace follows a plan */
    bool time_axis, step_axis;
    ckpt_bytes capacity_bytes; /* of the device; 0: what the traces say */
} ckpt_view_options;

/* Predicted and measured traces on one axis under the budget line, with the breakdown of the peak.
 * 1 to 8 traces; formats by name: "svg", "png", "pdf", "txt".
 * `text` receives the bytes of the picture. Errors: CKPT_BAD_INPUT (no event, unknown format), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                                       const ckpt_view_options *options, ckpt_text *text, ckpt_err *err);

/* The same as one HTML page that needs nothing else: canvas, hover, zoom, search (viz/html/). */
CKPT_MUST_USE ckpt_code ckpt_view_html(const ckpt_trace *const *trace, int trace_count,
                                       const ckpt_view_options *options, ckpt_text *text, ckpt_err *err);

/* The same as Chrome's trace event JSON, which Perfetto and chrome://tracing open: a slice per event, counters of bytes
 * by category; and as CSV, one line per event. */
CKPT_MUST_USE ckpt_code ckpt_view_chrome(const ckpt_trace *const *trace, int trace_count, ckpt_text *text,
                                         ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_view_csv(const ckpt_trace *const *trace, int trace_count, ckpt_text *text, ckpt_err *err);

/* Overhead over budget with the bound, the baselines, and the plans that were chosen. Formats as ckpt_view_draw.
 *   chosen   plans of the same graph to mark; may be none */
CKPT_MUST_USE ckpt_code ckpt_curve_draw(const ckpt_curve *curve, const ckpt_plan *const *chosen, int chosen_count,
                                        const char *format, const ckpt_view_options *options, ckpt_text *text,
                                        ckpt_err *err);

/* What a graph does not know and the model it comes from does. */
typedef struct ckpt_graph_types {
    const char *const *op;            /* per op: what it computes ("linear"); NULL: not known */
    const ckpt_tensor *const *buffer; /* per buffer: what it holds; NULL: not known */
} ckpt_graph_types;

/* The graph for Netron: an ONNX model as JSON (what of it is lost is in docs/reference/views.md). Errors: CKPT_NO_MEMORY.
 *   plan    of this graph (ckpt_plan_bind), or NULL
 *   types   or NULL: ops are called by their layers, and buffers are so many bytes */
CKPT_MUST_USE ckpt_code ckpt_graph_netron(const ckpt_graph *graph, const ckpt_plan *plan, const ckpt_graph_types *types,
                                          ckpt_text *text, ckpt_err *err);

/* The graph through Graphviz: layers with bytes and time; coloured by the plan's decisions when `plan` is given, with
 * what it recomputes together in one frame. Formats: "svg", "png", "pdf", "dot".
 *   plan          of this graph (ckpt_plan_bind), or NULL
 *   fold_beyond   with more layers than that, repeated blocks are drawn once; 0: where all would be wider than about 2000
 *                 points or taller than 2400, several micro-batches always */
CKPT_MUST_USE ckpt_code ckpt_graph_draw(const ckpt_graph *graph, const ckpt_plan *plan, const char *format,
                                        int fold_beyond, ckpt_text *text, ckpt_err *err);

#endif
