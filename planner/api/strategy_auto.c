/* The portfolio: constructors that suit any graph, then local search from what they found, then, where a solver is at
 * hand, integer programs on neighbourhoods. Every part starts from the candidates before it and adds its own, so none
 * makes them worse. */
#include <string.h>

#include "planner/bound/bound.h"
#include "planner/ilp/ilp.h"
#include "planner/offload/offload.h"
#include "planner/schedule/batches.h"
#include "planner/schedule/schedule.h"
#include "planner/search/search.h"

/* What is paid for at each effort: moves of the local search; (op, stage) pairs of programs that are solved whole
 * before and after it, and their branchings; work on programs of neighbourhoods. */
static const struct {
    int64_t moves;
    int pairs_before, pairs_after;
    int64_t nodes, work;
} paid_for[] = {{20000, 400, 0, 400, 0},
                {2000000, 400, 600, 2400, 0},
                {20000000, 400, 0, 10000, 30000},
                {150000000, 400, 6000, 50000, 800000}};

/* Beyond so many ops a single move of the search takes too long: such graphs are constructed only. */
enum { VAST_OPS = 100000, CONSTRUCTORS = 3 };

/* A step of several micro-batches of so many ops is made of schedules of one: others come out slower and take long. */
enum { BATCHED_OPS = 1200 };

static const char *const constructors[CONSTRUCTORS] = {"keep-all", "chain", "hierarchy"};
static const char *const vast_constructors[CONSTRUCTORS] = {"keep-all", "chain", "sqrt"};
static const char *const batch_constructor = "micro"; /* of graphs with several micro-batches, before the others */

/* The last part leaves its name on the candidates it added. */
static void sign(ckpt_candidates *candidates, const char *by)
{
    for (int i = 0; i < candidates->count; i++) {
        ckpt_candidate *const candidate = &candidates->candidate[i];
        candidate->by = candidate->by != NULL ? candidate->by : by;
    }
    candidates->min_peak.by = candidates->min_peak.by != NULL ? candidates->min_peak.by : by;
}

static void merge(ckpt_candidates *candidates, const ckpt_candidates *part)
{
    for (int i = 0; i < part->count; i++) {
        ckpt_candidates_add(candidates, &part->candidate[i]);
    }
    const bool lower =
        part->min_peak.sequence.op != NULL &&
        (candidates->min_peak.sequence.op == NULL || part->min_peak.peak < candidates->min_peak.peak ||
         (part->min_peak.peak == candidates->min_peak.peak && part->min_peak.time < candidates->min_peak.time));
    if (lower) {
        candidates->min_peak = part->min_peak;
    }
}

static bool has_part(const ckpt_plan_options *options, unsigned part)
{
    return (options->without & part) == 0;
}

/* Else there is one sequence without copies: keep-all. */
static bool may_recompute(const ckpt_graph *graph)
{
    bool any = false;
    for (int o = 0; o < graph->op_count; o++) {
        any = any || graph->op[o].recompute;
    }
    return any;
}

static bool is_made_of_one(const ckpt_graph *graph, const ckpt_plan_options *options)
{
    return graph->op_count > BATCHED_OPS && ckpt_effort(options) < CKPT_EFFORT_MORE && ckpt_batch_count(graph) > 1;
}

static ckpt_code construct(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                           ckpt_candidates *candidates, ckpt_err *err)
{
    for (int i = 0; i < options->incumbent_count; i++) {
        if (options->incumbent[i].peak <= limit) {
            ckpt_candidates_add(candidates, &options->incumbent[i]);
        }
    }
    const char *const *const name = graph->op_count > VAST_OPS ? vast_constructors : constructors;
    const int count = may_recompute(graph) ? CONSTRUCTORS : 1;
    const bool batches = count > 1 && ckpt_batch_count(graph) > 1 && has_part(options, CKPT_PART_MICRO);
    for (int i = batches ? -1 : 0; i < count; i++) {
        if ((i == 1 && !has_part(options, CKPT_PART_CHAIN)) || (i == 2 && !has_part(options, CKPT_PART_HIERARCHY))) {
            continue;
        }
        const ckpt_strategy *const strategy = ckpt_strategy_find(i < 0 ? batch_constructor : name[i]);
        ckpt_candidates part = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        ckpt_candidates_progress(candidates, strategy->name, limit, options);
        CKPT_TRY_WHILE(err, strategy->plan(graph, limit, options, out, &part, err), "planning by %s", strategy->name);
        sign(&part, strategy->name);
        if (i < 0 && part.has_bound) {
            ckpt_candidates_bound(candidates, part.bound_ns, part.bound_how, part.bound_scope);
        }
        if (part.count > 0 && candidates->fallback_count < CKPT_FALLBACKS_MAX) {
            candidates->fallback[candidates->fallback_count++] = part.candidate[0];
        }
        merge(candidates, &part);
        if (i < 0 && part.count > 0 && is_made_of_one(graph, options)) {
            break;
        }
    }
    return CKPT_OK;
}

/* Proved: nothing is faster than the first candidate. */
static bool is_done(const ckpt_graph *graph, const ckpt_candidates *candidates)
{
    ckpt_ns least = 0;
    for (int o = 0; o < graph->op_count; o++) {
        least = ckpt_sum(least, graph->op[o].time_ns, &least) ? least : INT64_MAX;
    }
    if (candidates->has_bound && candidates->bound_ns > least && strcmp(candidates->bound_scope, "all") == 0) {
        least = candidates->bound_ns;
    }
    return candidates->count > 0 && candidates->candidate[0].time <= least;
}

/* `known`: the bound of the program that was solved before, if any, for it is not solved again. */
static ckpt_code solve(const ckpt_graph *graph, ckpt_bytes limit, int pairs, int64_t nodes,
                       const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                       ckpt_candidates *known, ckpt_err *err)
{
    if (!has_part(options, CKPT_PART_PROGRAM)) {
        return CKPT_OK;
    }
    ckpt_candidates part = *candidates;
    ckpt_candidates_progress(candidates, "program", limit, options);
    part.has_bound = known->has_bound;
    part.bound_ns = known->bound_ns;
    part.bound_how = known->bound_how;
    part.bound_scope = known->bound_scope;
    CKPT_TRY_WHILE(err, ckpt_ilp_solve(graph, limit, pairs, nodes, options, out, &part, err), "planning by ilp");
    sign(&part, "ilp");
    merge(candidates, &part);
    *known = part;
    if (part.has_bound && !graph->has_link) { /* programs know no copies */
        ckpt_candidates_bound(candidates, part.bound_ns, part.bound_how, part.bound_scope);
    }
    return CKPT_OK;
}

static ckpt_code add_copies(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                            ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    const ckpt_strategy *const joint = ckpt_strategy_find("joint");
    ckpt_plan_options more = *options;
    more.incumbent = candidates->candidate;
    more.incumbent_count = candidates->count;
    ckpt_candidates part = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_candidates_progress(candidates, joint->name, limit, options);
    CKPT_TRY_WHILE(err, joint->plan(graph, limit, &more, out, &part, err), "planning by %s", joint->name);
    sign(&part, joint->name);
    merge(candidates, &part);
    return CKPT_OK;
}

static ckpt_code improve(const ckpt_graph *graph, ckpt_bytes limit, ckpt_candidates *known,
                         const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    const int effort = ckpt_effort(options);
    if (has_part(options, CKPT_PART_SEARCH)) {
        ckpt_candidates_progress(candidates, "search", limit, options);
        CKPT_TRY(ckpt_search_improve(graph, limit, paid_for[effort].moves, options, out, candidates, err));
        sign(candidates, "search");
    }
    if (paid_for[effort].work > 0 && has_part(options, CKPT_PART_NEIGHBOURHOOD) && !is_done(graph, candidates)) {
        ckpt_candidates_progress(candidates, "neighbourhood", limit, options);
        CKPT_TRY(ckpt_ilp_improve(graph, limit, paid_for[effort].work, options, out, candidates, err));
        sign(candidates, "ilp");
    }
    if (paid_for[effort].pairs_after > 0 && !is_done(graph, candidates)) {
        CKPT_TRY(solve(graph, limit, paid_for[effort].pairs_after, paid_for[effort].nodes, options, out, candidates,
                       known, err));
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    const int effort = ckpt_effort(options);
    CKPT_TRY(construct(graph, limit, options, out, candidates, err));
    if (is_done(graph, candidates) || (!may_recompute(graph) && !graph->has_link)) {
        return CKPT_OK;
    }
    ckpt_bound bound = {.infeasible = false}; /* before the search, which ends when it gets there */
    if (has_part(options, CKPT_PART_BOUND)) {
        const ckpt_ns upper = candidates->count > 0 ? candidates->candidate[0].time : INT64_MAX;
        ckpt_candidates_progress(candidates, "bound", limit, options);
        CKPT_TRY(ckpt_bound_find(graph, limit, upper, options, out, &bound, err));
        ckpt_candidates_bound(candidates, bound.time_ns, bound.how, bound.scope);
    }
    if (bound.infeasible && candidates->min_peak.sequence.op != NULL && is_made_of_one(graph, options)) {
        return CKPT_OK;
    }
    if (!is_done(graph, candidates) && may_recompute(graph) && graph->op_count <= VAST_OPS) {
        ckpt_candidates program = {.has_bound = false};
        CKPT_TRY(solve(graph, limit, paid_for[effort].pairs_before, paid_for[effort].nodes, options, out, candidates,
                       &program, err));
        if (!is_done(graph, candidates)) {
            CKPT_TRY(improve(graph, limit, &program, options, out, candidates, err));
        }
    }
    const bool small = graph->buffer_count <= CKPT_EXACT_BUFFERS && graph->op_count <= CKPT_EXACT_OPS;
    if (small && has_part(options, CKPT_PART_EXACT) && !bound.infeasible && !graph->has_link &&
        !is_done(graph, candidates)) { /* the exact search, no tries */
        ckpt_candidates_progress(candidates, "exact", limit, options);
        CKPT_TRY(ckpt_offload_improve(graph, limit, CKPT_OFFLOAD_RECOMPUTE, 0, options, out, candidates, err));
        sign(candidates, "exact search");
    }
    const bool copies = graph->has_link && has_part(options, CKPT_PART_JOINT);
    return copies && !is_done(graph, candidates) ? add_copies(graph, limit, options, out, candidates, err) : CKPT_OK;
}

const ckpt_strategy ckpt_strategy_auto = {
    .name = "auto",
    .help = "the best of chain, hierarchy, local search, integer programs and, with a link, offload",
    .source = "the sources of its parts",
    .budgeted = true,
    .plan = plan,
};
