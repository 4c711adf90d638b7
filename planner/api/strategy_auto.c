/* The best of all parts: constructors on any graph, then local search from what they found, then integer programs where
 * a solver is at hand, then what is for tiny graphs or for copies. Every part starts from the candidates before it and
 * adds its own, so none makes them worse. Only a bound over all schedules ends it early. What each part is worth:
 * docs/explanation/planner-ablation.md. */
#include <string.h>

#include "planner/bound/bound.h"
#include "planner/ilp/ilp.h"
#include "planner/offload/offload.h"
#include "planner/schedule/batches.h"
#include "planner/schedule/schedule.h"
#include "planner/search/search.h"
#include "planner/variants/variants.h"

/* What each effort pays for: moves of the local search; work on programs of neighbourhoods; (op, stage) pairs of a
 * program that is solved whole, and its branchings. */
static const struct {
    int64_t moves, work;
    int pairs;
    int64_t nodes;
} paid_for[] = {{20000, 0, 0, 0}, {2000000, 0, 0, 0}, {20000000, 30000, 400, 10000}, {150000000, 800000, 6000, 50000}};

enum {
    LARGE_OPS = 1500, /* from here on prices find what fits before anything dearer is tried */
    SWEPT_OPS = 3000, /* of larger graphs sweeps with as many labels as they can pay for lose to prices */
};

/* Each effort: ops up to which the search pays for itself. Of larger graphs a move takes so long that it finds little
 * that prices have not found. */
static const int searched_ops[] = {3000, 5000, 20000, 100000};

/* A step of several micro-batches of so many ops is made of schedules of one: others come out slower and take long. */
enum { BATCHED_OPS = 1200 };

typedef struct job {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    int effort;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    ckpt_low_memo low; /* what constructors found, whatever the limit */
    bool infeasible;   /* proved, or nothing within the limit is wanted */
    bool variants;     /* there is a choice of variants, or of optional ops */
    bool batched;      /* several micro-batches, so many ops that only schedules of one are tried */
} job;

/* The part leaves its name on the candidates it added. */
static void sign(ckpt_candidates *candidates, const char *by)
{
    for (int i = 0; i < candidates->count; i++) {
        ckpt_candidate *const candidate = &candidates->candidate[i];
        candidate->by = candidate->by != NULL ? candidate->by : by;
    }
    for (int i = 0; i < candidates->fallback_count; i++) {
        candidates->fallback[i].by = candidates->fallback[i].by != NULL ? candidates->fallback[i].by : by;
    }
    candidates->min_peak.by = candidates->min_peak.by != NULL ? candidates->min_peak.by : by;
    for (int i = 0; i < candidates->low_count; i++) {
        candidates->low[i].by = candidates->low[i].by != NULL ? candidates->low[i].by : by;
    }
}

/* Else there is one sequence without copies: keep-all. */
static bool may_recompute(const job *j)
{
    bool any = false;
    for (int o = 0; o < j->graph->op_count; o++) {
        any = any || j->graph->op[o].recompute;
    }
    return any;
}

/* Proved: nothing is faster than the first candidate. */
static bool is_done(const job *j)
{
    const ckpt_candidates *const candidates = j->candidates;
    ckpt_ns bound = ckpt_least_time(j->graph, j->options);
    if (candidates->has_bound && candidates->bound_ns > bound && strcmp(candidates->bound_scope, "all") == 0) {
        bound = candidates->bound_ns;
    }
    return candidates->count > 0 && candidates->candidate[0].time <= bound;
}

/* ---- constructors ---- */

static bool is_any(const job *j)
{
    (void)j;
    return true;
}

static bool has_batches(const job *j)
{
    return ckpt_batch_count(j->graph) > 1 && may_recompute(j);
}

static bool is_searched(const job *j)
{
    return j->graph->op_count <= searched_ops[j->effort] && may_recompute(j);
}

static bool is_large(const job *j)
{
    return j->graph->op_count > LARGE_OPS && may_recompute(j);
}

static bool is_swept(const job *j)
{
    return j->graph->op_count <= SWEPT_OPS && may_recompute(j);
}

/* Another strategy on the same graph, with the incumbents that the job has, or with its candidates as incumbents. */
static ckpt_code ask(job *j, const char *name, bool from_candidates, ckpt_candidates *part, ckpt_err *err)
{
    const ckpt_strategy *const strategy = ckpt_strategy_find(name);
    ckpt_plan_options options = *j->options;
    if (from_candidates) {
        options.incumbent = j->candidates->candidate;
        options.incumbent_count = j->candidates->count;
    }
    *part = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_candidates_progress(j->candidates, name, j->limit, j->options);
    CKPT_TRY_WHILE(err, ckpt_variants_ask(strategy, j->graph, j->limit, &options, j->out, part, err), "planning by %s",
                   name);
    sign(part, name);
    ckpt_candidates_merge(j->candidates, part);
    return CKPT_OK;
}

/* Of the last constructors, where there are many: the dearer ones come last. */
static void note_low(job *j, const ckpt_candidate *min_peak)
{
    ckpt_low_memo *const low = &j->low;
    if (min_peak->sequence.op != NULL) {
        low->count -= low->count == CKPT_LOW_OF_PARTS;
        low->low[low->count++] = *min_peak;
    }
}

/* Asked for low peaks again, constructors would find the same. */
static bool recall_low(job *j)
{
    const ckpt_low_memo *const memo = j->options->low_memo;
    if (!j->options->only_min_peak || j->variants || memo == NULL || !memo->known) {
        return false;
    }
    for (int i = 0; i < memo->count; i++) {
        ckpt_candidates_merge(j->candidates, &(ckpt_candidates){.min_peak = memo->low[i]});
    }
    j->low = *memo;
    return true;
}

/* Prices and sweeps look for low peaks only where they find nothing else, and micro-batches only where they are to. */
static void memorize_low(const job *j)
{
    ckpt_low_memo *const memo = j->options->low_memo;
    const bool whole = !j->options->no_min_peak && (j->candidates->count == 0 || !is_large(j));
    if (memo != NULL && whole && !j->variants && ckpt_batch_count(j->graph) <= 1 && !ckpt_plan_stopped(j->options)) {
        *memo = j->low;
        memo->known = true;
    }
}

static ckpt_code construct(job *j, ckpt_err *err)
{
    static const struct {
        const char *name;
        unsigned part; /* 0: never left out */
        bool (*is_for)(const job *j);
    } constructors[] = {{"micro", CKPT_PART_MICRO, has_batches},
                        {"keep-all", 0, is_any},
                        {"price", CKPT_PART_PRICE, is_large},
                        {"chain", CKPT_PART_CHAIN, may_recompute},
                        {"hierarchy", CKPT_PART_HIERARCHY, is_swept}};
    ckpt_candidates *const all = j->candidates;
    bool asked_price = false; /* it has a plan for large graphs under any time limit */
    ckpt_candidates_incumbents(all, j->limit, j->options);
    if (recall_low(j)) {
        return CKPT_OK;
    }
    for (size_t i = 0; i < sizeof constructors / sizeof *constructors; i++) {
        if ((j->options->without & constructors[i].part) != 0 || !constructors[i].is_for(j)) {
            continue;
        }
        if (asked_price && ckpt_plan_hurried(j->options, j->graph->op_count)) {
            break;
        }
        asked_price = asked_price || constructors[i].part == CKPT_PART_PRICE;
        ckpt_candidates part;
        CKPT_TRY(ask(j, constructors[i].name, false, &part, err));
        if (i == 0 && part.has_bound) { /* of one micro-batch, which bounds the whole */
            ckpt_candidates_bound(all, part.bound_ns, part.bound_how, part.bound_scope);
        }
        if (part.count > 0 && all->fallback_count < CKPT_FALLBACKS_MAX) {
            all->fallback[all->fallback_count++] = part.candidate[0];
        }
        note_low(j, &part.min_peak);
        if (i == 0 && part.count > 0 && j->batched) {
            break;
        }
    }
    if (!asked_price && may_recompute(j) && ckpt_plan_stopped(j->options) &&
        (j->options->without & CKPT_PART_PRICE) == 0) {
        ckpt_candidates part;
        CKPT_TRY(ask(j, "price", false, &part, err)); /* the quickest that finds anything */
    }
    return CKPT_OK;
}

/* ---- parts that start from candidates ---- */

static ckpt_code bound(job *j, ckpt_err *err)
{
    ckpt_bound found;
    const ckpt_ns upper = j->candidates->count > 0 ? j->candidates->candidate[0].time : INT64_MAX;
    CKPT_TRY(ckpt_bound_find(j->graph, j->limit, upper, j->options, j->out, &found, err));
    ckpt_candidates_bound(j->candidates, found.time_ns, found.how, found.scope);
    j->infeasible = found.infeasible;
    return CKPT_OK;
}

static ckpt_code search(job *j, ckpt_err *err)
{
    if (j->infeasible) {
        return ckpt_search_min_peak(j->graph, j->limit, paid_for[j->effort].moves, j->options, j->out, j->candidates,
                                    err);
    }
    return ckpt_search_improve(j->graph, j->limit, paid_for[j->effort].moves, j->options, j->out, j->candidates, err);
}

static bool has_work(const job *j)
{
    return is_searched(j) && j->effort >= CKPT_EFFORT_SOLVER && j->options->solver != NULL && !j->variants;
}

static ckpt_code neighbourhood(job *j, ckpt_err *err)
{
    return ckpt_ilp_improve(j->graph, j->limit, paid_for[j->effort].work, j->options, j->out, j->candidates, err);
}

static ckpt_code program(job *j, ckpt_err *err)
{
    ckpt_candidates part = *j->candidates;
    part.has_bound = false;
    CKPT_TRY_WHILE(err,
                   ckpt_ilp_solve(j->graph, j->limit, paid_for[j->effort].pairs, paid_for[j->effort].nodes, j->options,
                                  j->out, &part, err),
                   "planning by ilp");
    ckpt_candidates_merge(j->candidates, &part);
    /* programs know no copies, and a class that is beaten already says nothing */
    const bool beaten = j->candidates->count > 0 && j->candidates->candidate[0].time < part.bound_ns;
    if (part.has_bound && !j->graph->has_link && !beaten) {
        ckpt_candidates_bound(j->candidates, part.bound_ns, part.bound_how, part.bound_scope);
    }
    return CKPT_OK;
}

static bool is_tiny(const job *j)
{
    return j->graph->buffer_count <= CKPT_EXACT_BUFFERS && j->graph->op_count <= CKPT_EXACT_OPS && !j->infeasible &&
           !j->graph->has_link && !j->variants;
}

static ckpt_code exact(job *j, ckpt_err *err)
{
    return ckpt_offload_improve(j->graph, j->limit, CKPT_OFFLOAD_RECOMPUTE, 0, j->options, j->out, j->candidates, err);
}

static bool has_link(const job *j)
{
    return j->graph->has_link;
}

static ckpt_code joint(job *j, ckpt_err *err)
{
    ckpt_candidates part;
    return ask(j, "joint", true, &part, err);
}

/* The bound comes first, for the search ends when it gets there. */
static const struct {
    const char *name, *by; /* by: as plans name it */
    unsigned part;
    bool lowers_peak; /* asked when only that is wanted */
    bool (*is_for)(const job *j);
    ckpt_code (*run)(job *j, ckpt_err *err);
} parts[] = {{"bound", NULL, CKPT_PART_BOUND, false, is_any, bound},
             {"search", "search", CKPT_PART_SEARCH, true, is_searched, search},
             {"neighbourhood", "ilp", CKPT_PART_NEIGHBOURHOOD, false, has_work, neighbourhood},
             {"program", "ilp", CKPT_PART_PROGRAM, false, has_work, program},
             {"exact", "exact search", CKPT_PART_EXACT, false, is_tiny, exact},
             {"joint", "joint", CKPT_PART_JOINT, true, has_link, joint}};

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    job j = {.graph = graph,
             .limit = limit,
             .options = options,
             .effort = ckpt_effort(options),
             .out = out,
             .candidates = candidates,
             .infeasible = options->only_min_peak};
    j.variants = ckpt_graph_has_variants(graph);
    j.batched = graph->op_count > BATCHED_OPS && j.effort < CKPT_EFFORT_MORE && ckpt_batch_count(graph) > 1;
    CKPT_TRY(construct(&j, err));
    memorize_low(&j);
    const bool hurried = ckpt_plan_hurried(options, graph->op_count) && is_large(&j);
    const bool fixed = !may_recompute(&j) && !graph->has_link && !j.variants;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !fixed && !hurried && !is_done(&j); i++) {
        if ((options->without & parts[i].part) != 0 || !parts[i].is_for(&j) ||
            (options->only_min_peak && !parts[i].lowers_peak)) {
            continue;
        }
        ckpt_candidates_progress(candidates, parts[i].name, limit, options);
        CKPT_TRY(parts[i].run(&j, err));
        sign(candidates, parts[i].by);
        if (j.infeasible && j.batched && candidates->min_peak.sequence.op != NULL) {
            break;
        }
    }
    for (int i = 0; i < j.low.count && candidates->low_count < CKPT_LOW_MAX; i++) {
        candidates->low[candidates->low_count++] = j.low.low[i];
    }
    return CKPT_OK;
}

const ckpt_strategy ckpt_strategy_auto = {
    .name = "auto",
    .help = "the best of chain, hierarchy, local search, integer programs and, with a link, offload",
    .source = "the sources of its parts",
    .budgeted = true,
    .variants = true,
    .plan = plan,
};
