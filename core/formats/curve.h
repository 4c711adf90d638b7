/* ckpt-sweep/1: time over budget, as ckpt-plan --sweep finds it. */
#ifndef CKPT_CORE_FORMATS_CURVE_H
#define CKPT_CORE_FORMATS_CURVE_H

#include <stdbool.h>

#include "core/base/digest.h"
#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/json/json.h"

/* A plan under one budget. */
typedef struct ckpt_curve_point {
    ckpt_bytes budget_bytes, peak_bytes, arena_bytes;
    ckpt_ns time_ns;
    bool has_bound;
    ckpt_ns bound_ns; /* no schedule in `bound_scope` under this budget is faster */
    const char *bound_how, *bound_scope;
    const char *strategy;
} ckpt_curve_point;

/* A baseline to compare with, at rising budgets; one point if the budget changes nothing. */
typedef struct ckpt_curve_baseline {
    const char *strategy;
    const ckpt_curve_point *point;
    int point_count;
} ckpt_curve_baseline;

typedef struct ckpt_curve {
    const char *source; /* file name, for messages */
    const char *graph_name;
    char graph_sha256[CKPT_DIGEST_TEXT]; /* "": an older file */
    const char *costs;                   /* where times come from */
    ckpt_bytes static_bytes, keep_all_peak_bytes;
    ckpt_ns keep_all_time_ns;
    ckpt_bytes min_budget_bytes;   /* if no point fits: the minimum budget at which a plan was found; else 0 */
    bool complete;                 /* false: ended early, points are missing */
    const ckpt_curve_point *point; /* rising budgets, no point slower than one before it */
    int point_count;
    const ckpt_curve_baseline *baseline;
    int baseline_count;
} ckpt_curve;

/* Errors: CKPT_BAD_INPUT ("file:line:column: found, wanted"), CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_curve_read(const char *path, ckpt_arena *out, const ckpt_curve **curve, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_curve_item(const ckpt_item *root, ckpt_arena *out, const ckpt_curve **curve,
                                        ckpt_err *err);
void ckpt_curve_write(const ckpt_curve *curve, ckpt_text *text);

#endif
