/* From a strategy's name to a checked plan: candidates, steps, places, bound, summary; and, when nothing fits, the
 * least budget at which something does.
 *
 * Strategies know live bytes; places may need more (fragmentation). So a strategy names several candidates, and the
 * fastest whose places fit is taken; when none does it is asked again with a lower limit. The candidate of least peak
 * is always among those tried: that makes the least budget, which is what its places take, one at which there is a
 * plan. */
#include <string.h>

#include "core/cli.h"
#include "planner/bound.h"
#include "planner/planner_impl.h"
#include "planner/replay.h"
#include "planner/replay_impl.h"

enum {
    ROUNDS = 4,    /* times a strategy may be asked, each with the limit lowered against fragmentation */
    PLACINGS = 10, /* candidates of one answer whose places are tried */
};

bool ckpt_plan_stopped(const ckpt_plan_options *options)
{
    return (options->stop != NULL && *options->stop != 0) ||
           (options->deadline_ns > 0 && ckpt_clock_ns() >= options->deadline_ns);
}

const ckpt_strategy *ckpt_strategy_find(const char *name)
{
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        if (strcmp(ckpt_strategy_table[i]->name, name) == 0) {
            return ckpt_strategy_table[i];
        }
    }
    return NULL;
}

typedef struct maker {
    const ckpt_graph *graph;
    const ckpt_strategy *strategy;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    ckpt_arena *out;
} maker;

static ckpt_code ask(const maker *m, const ckpt_plan_options *options, ckpt_bytes limit, ckpt_answer *answer,
                     ckpt_err *err)
{
    *answer = (ckpt_answer){.least = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_bytes possible = limit > 0 ? limit : 0; /* a budget below the static block: for the least peak */
    CKPT_TRY_WHILE(err, m->strategy->plan(m->graph, possible, options, m->out, answer, err), "planning by %s",
                   m->strategy->name);
    return CKPT_OK;
}

/* Steps and places of a candidate; `enough` bytes of places will do. */
static ckpt_code place_candidate(const maker *m, const ckpt_candidate *candidate, ckpt_bytes enough, ckpt_plan *plan,
                                 ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_sequence_steps(m->graph, &candidate->sequence, m->out, plan, err);
    if (code == CKPT_OK) {
        code = ckpt_sequence_pack(m->graph, plan, enough, m->options, &scratch, err);
    }
    ckpt_arena_fini(&scratch);
    ckpt_bytes sum = 0;
    plan->solver = candidate->by != NULL ? candidate->by : m->strategy->name;
    if (code == CKPT_OK && !ckpt_sum(plan->arena_bytes, m->graph->static_bytes, &sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "static block and arena of more than 2^63 bytes");
    }
    return code;
}

/* Try to place a candidate within the budget. `missing`: how many bytes were too few, when it does not fit. */
static ckpt_code try_candidate(const maker *m, const ckpt_candidate *candidate, ckpt_plan *plan, bool *fits,
                               ckpt_bytes *missing, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    CKPT_TRY(place_candidate(m, candidate, m->limit < CKPT_BYTES_MAX ? m->limit : 0, plan, err));
    *fits = plan->arena_bytes <= m->limit;
    if (!*fits) {
        *missing = plan->arena_bytes - m->limit;
        ckpt_arena_rewind(m->out, mark);
    }
    return CKPT_OK;
}

/* The fastest candidate of an answer that can be placed. `missing` is of the last that cannot. */
static ckpt_code try_answer(const maker *m, const ckpt_answer *answer, ckpt_plan *plan, bool *fits, ckpt_bytes *missing,
                            ckpt_err *err)
{
    *missing = 0;
    for (int i = 0; i < answer->count && i < PLACINGS && !*fits; i++) {
        if (answer->candidate[i].peak <= m->limit) {
            CKPT_TRY(try_candidate(m, &answer->candidate[i], plan, fits, missing, err));
        }
    }
    return CKPT_OK;
}

/* Steps and places within the budget of the fastest candidate that can be placed: of `first`, the answer at the full
 * limit, of answers to lower limits, and last the one of least peak. */
static ckpt_code place_answer(const maker *m, const ckpt_answer *first, ckpt_plan *plan, bool *fits, ckpt_err *err)
{
    ckpt_bytes missing = 0;
    CKPT_TRY(try_answer(m, first, plan, fits, &missing, err));
    ckpt_bytes limit = m->limit;
    ckpt_plan_options again = *m->options;
    again.incumbent = first->candidate;
    again.incumbent_count = first->count;
    again.effort = again.effort > 0 ? again.effort - 1 : 0;
    for (int round = 1; round < ROUNDS && m->strategy->budgeted && missing > 0 && !*fits; round++) {
        ckpt_answer answer;
        limit = missing < limit ? limit - missing : 0;
        CKPT_TRY(ask(m, &again, limit, &answer, err));
        CKPT_TRY(try_answer(m, &answer, plan, fits, &missing, err));
    }
    if (!*fits && first->least.peak <= m->limit) {
        return try_candidate(m, &first->least, plan, fits, &missing, err);
    }
    return CKPT_OK;
}

/* All that does not depend on the strategy. */
static ckpt_code fill_head(const maker *m, ckpt_plan *plan, ckpt_err *err)
{
    plan->source = "";
    plan->graph_name = m->graph->name;
    plan->static_bytes = m->graph->static_bytes;
    plan->budget_bytes = m->budget;
    plan->bound_how = plan->bound_scope = plan->costs = "";
    CKPT_TRY(ckpt_graph_digest(m->graph, plan->graph_sha256, err));
    return ckpt_keep_all_measure(m->graph, m->out, &plan->keep_all_peak_bytes, &plan->keep_all_time_ns, err);
}

static ckpt_code fill_bound(const maker *m, ckpt_answer *answer, ckpt_plan *plan, ckpt_err *err)
{
    const bool has_all = answer->has_bound && strcmp(answer->bound_scope, "all") == 0;
    if (plan->time_ns > plan->keep_all_time_ns && m->limit < CKPT_BYTES_MAX && !m->strategy->baseline && !has_all) {
        const ckpt_ns first = answer->count > 0 ? answer->candidate[0].time : INT64_MAX;
        const ckpt_ns upper = first < plan->time_ns ? first : plan->time_ns;
        ckpt_bound found;
        CKPT_TRY_WHILE(err, ckpt_bound_find(m->graph, m->limit, upper, m->options, m->out, &found, err),
                       "bounding the time from below");
        ckpt_answer_bound(answer, found.time_ns, found.how, found.scope);
    }
    if (!answer->has_bound || answer->bound_ns > plan->time_ns || answer->bound_ns < plan->keep_all_time_ns) {
        answer->has_bound = false;
        ckpt_answer_bound(answer, plan->keep_all_time_ns, "every op runs at least once", "all");
    }
    plan->has_bound = true;
    plan->bound_ns = answer->bound_ns;
    plan->bound_how = ckpt_bound_how(plan->bound_ns, answer->bound_how, plan->time_ns);
    plan->bound_scope = answer->bound_scope;
    if (strcmp(plan->bound_how, "exact") == 0 && plan->bound_ns < plan->time_ns) {
        plan->bound_how = "exact before placement"; /* fragmentation made the plan slower */
    }
    return CKPT_OK;
}

static ckpt_code finish_plan(const maker *m, ckpt_answer *answer, ckpt_plan *plan, ckpt_err *err)
{
    CKPT_TRY(fill_head(m, plan, err));
    plan->verdict = CKPT_FITS;
    plan->budget_bytes = m->budget == CKPT_BYTES_MAX ? plan->static_bytes + plan->arena_bytes : m->budget;
    CKPT_TRY(fill_bound(m, answer, plan, err));
    ckpt_layer_decision *layer = NULL;
    CKPT_TRY(ckpt_layers_decide(plan, m->graph, m->out, &layer, &plan->layer_count, err));
    plan->layer = layer;
    CKPT_TRY_WHILE(err, ckpt_plan_check(plan, m->graph, err), "checking what %s planned", m->strategy->name);
    return CKPT_OK;
}

/* What the places of the candidate of least peak take. */
static ckpt_code infeasible(const maker *m, const ckpt_candidate *least, ckpt_plan *plan, ckpt_err *err)
{
    if (least->sequence.op == NULL) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "every plan takes more than 2^63 ns or bytes");
    }
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan placed = {0};
    CKPT_TRY(place_candidate(m, least, 0, &placed, err));
    ckpt_arena_rewind(m->out, mark);
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE, .solver = placed.solver};
    CKPT_TRY(fill_head(m, plan, err));
    plan->least_budget_bytes = m->graph->static_bytes + placed.arena_bytes;
    ckpt_bytes below = 0;
    CKPT_TRY(ckpt_bound_peak(m->graph, m->out, &below, err));
    plan->no_schedule_below_bytes = m->graph->static_bytes + below;
    return ckpt_plan_check(plan, m->graph, err);
}

ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options, ckpt_arena *out,
                         ckpt_plan **made, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    const bool limited = options->budget_bytes > 0;
    const maker m = {
        .graph = graph,
        .strategy = ckpt_strategy_find(name),
        .options = options,
        .budget = limited ? options->budget_bytes : CKPT_BYTES_MAX,
        .limit = limited ? options->budget_bytes - graph->static_bytes : CKPT_BYTES_MAX,
        .out = out,
    };
    if (m.strategy == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", name);
    }
    ckpt_plan *const plan = CKPT_NEW(out, ckpt_plan, 1);
    ckpt_answer *const answer = CKPT_NEW(out, ckpt_answer, 1);
    if (plan == NULL || answer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", name);
    }
    CKPT_TRY(ask(&m, options, m.limit, answer, err));
    bool fits = false;
    CKPT_TRY(place_answer(&m, answer, plan, &fits, err));
    CKPT_TRY(fits ? finish_plan(&m, answer, plan, err) : infeasible(&m, &answer->least, plan, err));
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    *made = plan;
    return CKPT_OK;
}
