/* A measured step held against the same step as it was predicted: two traces of one plan, step by step. Times of a part
 * are sums of its steps' lengths, so that "sum of layers" means the same on both sides. */
#ifndef CKPT_EXECUTOR_RUN_STEP_REPORT_H
#define CKPT_EXECUTOR_RUN_STEP_REPORT_H

#include "core/base/memory.h"
#include "core/formats/trace.h"
#include "core/json/json_write.h"

enum { CKPT_STEP_WORST = 5, CKPT_STEP_PARTS = CKPT_SPAN_UPDATE + 1 };

typedef struct ckpt_step_part {
    ckpt_ns predicted_ns, measured_ns;
    int runs;
} ckpt_step_part;

/* What one layer took in one phase, all its runs together. */
typedef struct ckpt_step_layer {
    const char *layer;
    ckpt_span span;
    ckpt_step_part part;
} ckpt_step_layer;

typedef struct ckpt_step_report {
    ckpt_step_part part[CKPT_STEP_PARTS];   /* by ckpt_span: forward, backward, recompute, copy, update */
    ckpt_step_part layers;                  /* all of them but the copies */
    ckpt_step_part step;                    /* from its start to its end; runs: all steps of the plan */
    ckpt_ns idle_ns;                        /* of the measured step: when its layers had nothing running */
    ckpt_ns usual_ns;                       /* median of the steps that were timed as users run them; 0: unknown */
    int64_t usual_count;                    /* how many those were */
    ckpt_step_layer worst[CKPT_STEP_WORST]; /* by how far measured is from predicted, in ns */
    int worst_count;
} ckpt_step_report;

/* `more_ns`: per event, what is taken off its predicted length; NULL: nothing. `scratch` is rewound. Errors: CKPT_BAD_INPUT
 * (not the same steps: the message names the first), CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n). */
CKPT_MUST_USE ckpt_code ckpt_step_compare(const ckpt_trace *predicted, const ckpt_ns *more_ns,
                                          const ckpt_trace *measured, ckpt_arena *scratch, ckpt_step_report *report,
                                          ckpt_err *err);

/* A table of about 15 lines; or the member `key` of a JSON object. */
void ckpt_step_report_show(const ckpt_step_report *report, const char *profile, const char *clock, ckpt_text *text);
void ckpt_step_report_json(const ckpt_step_report *report, const char *profile, const char *recorder, const char *key,
                           ckpt_json_writer *w);

#endif
