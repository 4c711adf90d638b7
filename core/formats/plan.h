/* ckpt-plan/1: what to do, step by step, and where every buffer lies. */
#ifndef CKPT_CORE_FORMATS_PLAN_H
#define CKPT_CORE_FORMATS_PLAN_H

#include <stdbool.h>

#include "core/formats/outline.h"
#include "core/formats/scheme.h"

typedef enum ckpt_verdict { CKPT_FITS, CKPT_INFEASIBLE } ckpt_verdict;
typedef enum ckpt_step_kind { CKPT_RUN, CKPT_FREE, CKPT_OFFLOAD, CKPT_FETCH } ckpt_step_kind;
typedef enum ckpt_decision { CKPT_KEEP, CKPT_RECOMPUTE, CKPT_OFFLOADED } ckpt_decision;

typedef struct ckpt_step {
    ckpt_step_kind kind;
    const char *name;    /* of the op (run) or the buffer */
    int target;          /* its index in the graph; -1 until ckpt_plan_bind */
    bool recomputed;     /* run: not the first run of this op */
    bool inplace;        /* run: outputs take the memory of the inputs that the op names for it */
    const char *variant; /* run: how, where that is not the op's own way; else NULL */
    bool inexact;        /* run: what it writes has other bits than by the op's own way */
    int way;             /* run: 0, or the number of that variant among its op's, from 1; set by ckpt_plan_bind */
} ckpt_step;

/* What a run does: the op's own fields or those of its variant. */
static inline const ckpt_graph_op *ckpt_step_op(const ckpt_graph *graph, const ckpt_step *step)
{
    const ckpt_graph_op *const op = &graph->op[step->target];
    return step->way == 0 ? op : &graph->op[op->first_variant + step->way - 1];
}

/* The step that is run `run` of a graph (ckpt_graph). */
static inline ckpt_step ckpt_step_run(const ckpt_graph *graph, int run)
{
    const int op = ckpt_run_base(graph, run);
    const int way = run == op ? 0 : run - graph->op[op].first_variant + 1;
    return (ckpt_step){.kind = CKPT_RUN,
                       .name = graph->op[op].name,
                       .target = op,
                       .variant = way > 0 ? graph->op[run].variant : NULL,
                       .inexact = graph->op[run].inexact,
                       .way = way};
}

/* Bytes [offset, offset + bytes) of the arena during steps from..to, both included. */
typedef struct ckpt_allocation {
    const char *name; /* buffer, or "workspace" */
    int buffer;       /* index in the graph; -1: workspace of step `from` (= `to`); set by ckpt_plan_bind */
    int from, to;
    ckpt_bytes offset, bytes;
} ckpt_allocation;

typedef struct ckpt_layer_decision {
    const char *layer;
    ckpt_decision decision;
} ckpt_layer_decision;

/* The algorithms that a layer's kernels were profiled with, as the device names them (ckpt_device_choice). */
typedef struct ckpt_layer_algorithms {
    const char *layer, *algorithms;
} ckpt_layer_algorithms;

typedef struct ckpt_plan {
    const char *source; /* file name, for messages */
    const char *graph_name;
    char graph_sha256[CKPT_DIGEST_TEXT];
    ckpt_outline outline;
    const char *const *option; /* of ckpt-plan, as given: they made the plan, and --check makes it again with them */
    int option_count;
    ckpt_bytes budget_bytes;  /* static block and arena together */
    ckpt_bytes reserve_bytes; /* kept free in addition for a GPU's context and libraries */
    ckpt_verdict verdict;
    ckpt_bytes min_budget_bytes;        /* infeasible: a budget at which this planner finds a plan; else 0 */
    ckpt_bytes no_schedule_below_bytes; /* infeasible: it is proved that no plan needs less; 0: unknown */

    /* peak = static + the most that is live in any step; static + arena <= budget when it fits */
    ckpt_bytes peak_bytes, static_bytes, arena_bytes;
    ckpt_ns time_ns, recompute_ns;
    ckpt_bytes offload_bytes, host_bytes;
    ckpt_bytes keep_all_peak_bytes;
    ckpt_ns keep_all_time_ns;

    bool reordered; /* ops may run for the first time in another order than the graph's (ckpt_op_may_move) */

    bool has_bound;
    ckpt_ns bound_ns; /* no schedule in `bound_scope` under this budget is faster */
    const char *bound_how, *bound_scope;
    const char *solver; /* strategy that made it */
    double solver_seconds;
    const char *costs;  /* where times come from: "profile p.json" or "roofline of h200"; "": unknown */
    bool gpu;           /* the workspaces are for a GPU's kernels */
    int threads;        /* of the CPU's kernels that they are for; 0: unknown, or a GPU */
    ckpt_scheme scheme; /* of the graph's step */

    const ckpt_layer_decision *layer;
    int layer_count;
    const ckpt_layer_algorithms *algorithms; /* of the layers that have a choice and were profiled on a GPU */
    int algorithms_count;
    const ckpt_step *step;
    int step_count;
    const ckpt_allocation *allocation;
    int allocation_count;
} ckpt_plan;

/* Errors as ckpt_graph_read. The form is checked here, and that the plan agrees with itself; ckpt_plan_bind resolves names,
 * ckpt_plan_check (in planner/) replays it. */
CKPT_MUST_USE ckpt_code ckpt_plan_read(const char *path, ckpt_arena *out, ckpt_plan **plan, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_plan_item(const ckpt_item *root, ckpt_arena *out, ckpt_plan **plan, ckpt_err *err);
void ckpt_plan_write(const ckpt_plan *plan, ckpt_text *text);

/* Fill `target` and `buffer` from names. Refuses a plan of another graph with the reason: other name, another
 * size of a buffer (another batch?), a name the graph does not have, or another structure (digest). */
CKPT_MUST_USE ckpt_code ckpt_plan_bind(ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err);

/* The static block and the most that lies in the arena in any step. Errors: CKPT_NO_MEMORY. Cost: O(steps + allocations). */
CKPT_MUST_USE ckpt_code ckpt_plan_peak(const ckpt_plan *plan, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err);

const char *ckpt_step_kind_name(ckpt_step_kind kind);
const char *ckpt_decision_name(ckpt_decision decision);

#endif
