/* What is computed from many plans: the curve of time over budget, the largest model that fits, what a plan does to
 * each layer, a comparison of the strategies. Knows ckpt_plan_make, no strategy by name. Each result comes as data
 * first, then as text for people (..._text) or for scripts (..._json, ..._csv). */
#ifndef CKPT_PLANNER_ANALYSIS_ANALYSIS_H
#define CKPT_PLANNER_ANALYSIS_ANALYSIS_H

#include "core/base/text.h"
#include "core/formats/curve.h"
#include "core/json/json_write.h"
#include "planner/api/planner.h"

/* The schedule of a plan, as a start for further planning on `graph`: the plan's own, or one of the same ops and
 * buffers with other sizes and times. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_candidate(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                            ckpt_candidate *candidate, ckpt_err *err);

/* ---- one plan ---- */

/* `limited`: a budget was asked for; `estimated`: the times are no measurements. */
void ckpt_plan_text(const ckpt_plan *plan, bool limited, bool estimated, ckpt_text *text);
/* The members of an open object. */
void ckpt_plan_members(const ckpt_plan *plan, bool estimated, ckpt_json_writer *w);
/* "keep_all": its peak and time. */
void ckpt_keep_all_member(const ckpt_plan *plan, ckpt_json_writer *w);

/* ---- the whole curve ---- */

typedef struct ckpt_sweep {
    /* Rising budgets; all fit, and none is slower than one before it. With one budget, below the minimum, there is one
     * plan, which does not fit. */
    ckpt_plan *const *plan;
    int count;
    bool stopped; /* ended early: points are missing */
} ckpt_sweep;

/* Plans for up to `points` >= 1 budgets from this planner's minimum budget to options->budget_bytes, or to keep-all's
 * peak when that is 0 (one point: only the upper end): both ends, then always halfway between the two neighbours whose
 * differences of budget and time have the largest product, until no neighbours differ in time. Each plan starts from
 * that of the next smaller budget, and a plan is kept where one for a larger budget is slower. A bound also holds for all smaller budgets.
 *
 *   report   called with options->context and the number of plans after each plan; NULL: not called
 *
 * Errors: as ckpt_plan_make. Cost: points + 1 plans. */
CKPT_MUST_USE ckpt_code ckpt_sweep_make(const ckpt_graph *graph, const char *strategy, int points,
                                        const ckpt_plan_options *options,
                                        void (*report)(void *context, int done, int points), ckpt_arena *out,
                                        ckpt_sweep *sweep, ckpt_err *err);

/* The figures of a sweep, without baselines. The curve's strings belong to the plans. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_sweep_curve(const ckpt_sweep *sweep, ckpt_arena *out, ckpt_curve *curve, ckpt_err *err);

/* What each baseline does on the same graph, at its minimum budget and at the budgets of the curve above that (a
 * strategy that does not read the budget: at its minimum alone). A baseline that meets none of them is left out. A
 * baseline's plan is a plan: where it is faster than all that the curve has within its budget, the curve takes it as a
 * point. When `options` end it early, the curve is incomplete. Errors: as ckpt_plan_make. Cost: about as many plans as the curve
 * has points, for each baseline. */
CKPT_MUST_USE ckpt_code ckpt_curve_baselines(ckpt_curve *curve, const ckpt_graph *graph,
                                             const ckpt_plan_options *options,
                                             void (*report)(void *context, int done, int count), ckpt_arena *out,
                                             ckpt_err *err);

/* A line per point; with baselines a last column says which are theirs. */
void ckpt_curve_csv(const ckpt_curve *curve, ckpt_text *text);

/* ---- the largest model ---- */

/* The graph of a model for one value of its variable. `exists` false: the model has none for that value. */
typedef struct ckpt_family {
    ckpt_code (*graph)(void *context, int64_t value, ckpt_arena *out, const ckpt_graph **graph, bool *exists,
                       ckpt_err *err);
    void *context;
    const char *variable;
    int64_t start; /* the model's own value, >= 1 */
} ckpt_family;

typedef struct ckpt_probe {
    int64_t value;
    bool fits, accepted; /* there is a plan; it also keeps to max_overhead */
    bool quick;          /* little effort was enough to know that: the times can be better */
    ckpt_bytes peak_bytes;
    ckpt_bytes min_budget_bytes; /* it does not fit: its minimum budget; 0: the static block alone is too large */
    ckpt_ns time_ns, keep_all_time_ns;
} ckpt_probe;

enum { CKPT_PROBES_MAX = 256 };

typedef struct ckpt_maximum {
    const char *variable;
    bool throughput;
    ckpt_probe probe[CKPT_PROBES_MAX]; /* in the order they were made */
    int probe_count;
    bool found, unbounded, stopped; /* unbounded: every value there is was accepted */
    int64_t value;                  /* the result; for throughput the one with most `value` per time */
    const ckpt_graph *graph;        /* its graph and its plan */
    ckpt_plan *plan;
} ckpt_maximum;

/* The largest value whose plan fits options->budget_bytes > 0 and takes at most 1 + max_overhead times what keep-all
 * takes at that value (max_overhead < 0: no such limit). Doubling, then bisection: both the result and the next
 * existing value above it are planned. `throughput`: of the values up to that one, the one with most value per time
 * among those probed, to within 1/64. Errors: as ckpt_plan_make and family->graph. Cost: about 2 log2(value) plans. */
CKPT_MUST_USE ckpt_code ckpt_maximize(const ckpt_family *family, bool throughput, double max_overhead,
                                      const char *strategy, const ckpt_plan_options *options, ckpt_arena *out,
                                      ckpt_maximum *maximum, ckpt_err *err);
void ckpt_maximum_text(const ckpt_maximum *maximum, ckpt_text *text);
void ckpt_maximum_members(const ckpt_maximum *maximum, ckpt_json_writer *w);

/* ---- what a plan does to each layer ---- */

typedef struct ckpt_layer_report {
    const char *layer; /* an op without one stands for itself */
    ckpt_decision decision;
    ckpt_bytes kept_bytes;    /* of what its forward wrote, in memory when the last forward op (of its micro-batch) has
                                 run */
    ckpt_bytes host_bytes;    /* of the rest, on the host or on its way there */
    ckpt_bytes dropped_bytes; /* of the rest, recomputed later: what keeping it would take */
    ckpt_ns recompute_ns;     /* in recomputations, of all its forward ops */
} ckpt_layer_report;

/* An op that runs by a variant, or an optional op that runs. Sums are over all its runs. */
typedef struct ckpt_way_report {
    const char *op, *variant; /* variant NULL: its own way, of an optional op */
    int runs;
    bool inexact;
    ckpt_ns saved_ns;           /* against its own way, or not running; below zero: slower */
    ckpt_bytes spared_bytes;    /* of what one run needs to read, less than its own way does */
    ckpt_bytes workspace_bytes; /* of one run, more than its own way takes */
} ckpt_way_report;

typedef struct ckpt_more {
    const char *step; /* "10 %", "1 GiB" */
    ckpt_bytes budget_bytes;
    ckpt_plan *plan; /* under that budget; never slower */
} ckpt_more;

enum { CKPT_MORE_MAX = 2 };

typedef struct ckpt_explanation {
    const ckpt_plan *plan;
    const ckpt_layer_report *layer; /* of all micro-batches together */
    int layer_count;
    int batches;                /* micro-batches; 0: the graph has none */
    const ckpt_way_report *way; /* in the order of first runs */
    int way_count;
    bool fastest; /* every op runs once, in the fastest way that it may: more budget buys nothing */
    ckpt_more more[CKPT_MORE_MAX];
    int more_count;
} ckpt_explanation;

/* For a plan that fits. What more budget buys is found by planning again from this plan, with 10 % and, from 1 GiB on,
 * 1 GiB more; not at all when there is nothing to gain. Errors: as ckpt_plan_make. Cost: up to 2 plans. */
CKPT_MUST_USE ckpt_code ckpt_explain(const ckpt_plan *plan, const ckpt_graph *graph, const char *strategy,
                                     const ckpt_plan_options *options, ckpt_arena *out, ckpt_explanation *explanation,
                                     ckpt_err *err);
void ckpt_explanation_text(const ckpt_explanation *explanation, ckpt_text *text);
void ckpt_explanation_members(const ckpt_explanation *explanation, ckpt_json_writer *w);

/* ---- all strategies at one budget ---- */

enum { CKPT_COMPARED_MAX = 64 };

typedef struct ckpt_comparison {
    ckpt_plan *plan[CKPT_COMPARED_MAX]; /* auto first, then the strategies by name */
    const char *strategy[CKPT_COMPARED_MAX];
    const char *kind[CKPT_COMPARED_MAX]; /* as --list-strategies says */
    int count;
    ckpt_ns bound_ns; /* the best of all bounds whose scope is "all" */
    bool limited;     /* there is a budget */
    bool stopped;     /* ended early: strategies are missing */
} ckpt_comparison;

/* Strategies that read flags are left out when the graph has none. Errors: as ckpt_plan_make. */
CKPT_MUST_USE ckpt_code ckpt_compare(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                                     ckpt_comparison *comparison, ckpt_err *err);
void ckpt_comparison_text(const ckpt_comparison *comparison, ckpt_text *text);
void ckpt_comparison_json(const ckpt_comparison *comparison, ckpt_text *text);

/* "planner", "flags" (follows the user's), "baseline" (for comparison; auto does not ask it). */
const char *ckpt_strategy_kind(const ckpt_strategy *strategy);

#endif
