/* The stages of a pipeline under each other on one axis of time. */
#ifndef CKPT_VIZ_PIPELINE_PIPELINE_H
#define CKPT_VIZ_PIPELINE_PIPELINE_H

#include "viz/viz.h"

enum { CKPT_VIEW_STAGES = 64 };

/* True when these are several stages of one pipeline: each called "<graph>, stage 2 of 4" (from 0), all of one graph,
 * no stage twice, and with times. */
bool ckpt_pipeline_traces(const ckpt_trace *const *trace, int count);

/* A row for each stage: what it runs, with the number of the micro-batch where there is room, messages, and in between
 * nothing: the bubbles. Beside it, how much of the time that is, and where there is room its peak and budget. The
 * traces must be those of ckpt_pipeline_traces, on one clock. Errors: CKPT_BAD_INPUT (unknown
 * format), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_pipeline_draw(const ckpt_trace *const *trace, int count, const char *format,
                                           const ckpt_view_options *options, ckpt_text *text, ckpt_err *err);

#endif
