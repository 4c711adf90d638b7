/* When nothing fits within the limit: what the schedules of lowest peak take, and so the minimum budget. They do not
 * depend on the limit, nor do their allocations: what is reported as the minimum here is a plan when it is the limit. */
#include "planner/api/plan_make_impl.h"
#include "planner/replay/replay.h"

enum { AGAIN = 4 }; /* schedules that are packed with all that the effort pays for */

/* The strategy's schedules of lowest peak. They are in `candidates` already when it found no others, but for the ways of
 * ops that were selected for the limit. */
static ckpt_code ask_lowest(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    options.incumbent = NULL; /* whoever has the minimum budget may not have them */
    options.incumbent_count = 0;
    options.only_min_peak = true;
    const bool again = m->strategy->budgeted && !m->options->only_min_peak &&
                       (candidates->count > 0 || ckpt_graph_has_variants(m->graph));
    return again ? ckpt_maker_ask(m, &options, 0, candidates, err) : CKPT_OK;
}

/* What has been packed so far. */
typedef struct low_tries {
    const ckpt_maker *m;
    ckpt_plan *plan; /* the fastest within the limit; where none is, the one that takes least */
    const ckpt_candidate *candidate;
    const ckpt_candidate *low[1 + CKPT_LOW_MAX];
    ckpt_bytes arena_bytes[1 + CKPT_LOW_MAX]; /* what they take; 0: not packed yet */
    int count;
} low_tries;

static ckpt_code try_low(low_tries *l, int i, int effort, ckpt_err *err)
{
    const ckpt_candidate *const candidate = l->low[i];
    const ckpt_bytes limit = l->m->limit;
    const bool fits = l->candidate != NULL && l->plan->arena_bytes <= limit;
    const bool useless =
        fits ? candidate->time >= l->plan->time_ns : l->candidate != NULL && candidate->peak >= l->plan->arena_bytes;
    if (useless || l->arena_bytes[i] == candidate->peak || (l->candidate != NULL && ckpt_plan_stopped(l->m->options))) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(l->m->out);
    ckpt_plan packed = {0};
    CKPT_TRY(ckpt_maker_pack(l->m, candidate, 0, effort, &packed, err));
    l->arena_bytes[i] = packed.arena_bytes;
    if (l->candidate == NULL || packed.arena_bytes <= limit || (!fits && packed.arena_bytes < l->plan->arena_bytes)) {
        *l->plan = packed;
        l->candidate = candidate;
    } else {
        ckpt_arena_rewind(l->m->out, mark);
    }
    return CKPT_OK;
}

/* One of the same figures is. */
static bool is_there(const low_tries *l, const ckpt_candidate *candidate)
{
    bool is = false;
    for (int i = 0; i < l->count; i++) {
        is = is || (l->low[i]->time == candidate->time && l->low[i]->peak == candidate->peak);
    }
    return is;
}

/* Those that came out lowest once more. */
static ckpt_code try_lowest(low_tries *l, int most, int effort, ckpt_err *err)
{
    bool tried[1 + CKPT_LOW_MAX] = {false};
    for (int round = 0; round < most && round < l->count; round++) {
        int best = -1;
        for (int i = 0; i < l->count; i++) {
            if (!tried[i] && l->arena_bytes[i] > 0 && (best < 0 || l->arena_bytes[i] < l->arena_bytes[best])) {
                best = i;
            }
        }
        if (best >= 0) {
            tried[best] = true;
            CKPT_TRY(try_low(l, best, effort, err));
        }
    }
    return CKPT_OK;
}

/* All with little effort; then those that come out lowest with more. A try with more effort takes ten times as long. */
ckpt_code ckpt_maker_lowest(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_candidates_progress(&(ckpt_candidates){0}, "minimum budget", m->limit, m->options);
    CKPT_TRY(ask_lowest(m, candidates, err));
    if (candidates->min_peak.sequence.op == NULL) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "every plan takes more than 2^63 ns or bytes");
    }
    low_tries l = {.m = m, .plan = plan, .low = {&candidates->min_peak}, .count = 1};
    for (int i = 0; i < candidates->low_count; i++) {
        l.low[l.count] = &candidates->low[i];
        l.count += !is_there(&l, &candidates->low[i]);
    }
    for (int i = 0; i < l.count; i++) {
        CKPT_TRY(try_low(&l, i, CKPT_EFFORT_LOW, err));
    }
    const int effort = ckpt_effort(m->options);
    if (effort > CKPT_EFFORT_LOW) {
        CKPT_TRY(try_lowest(&l, AGAIN, effort, err));
    }
    return plan->arena_bytes > m->limit && effort < CKPT_EFFORT_MOST ? try_lowest(&l, 1, effort + 1, err) : CKPT_OK;
}

ckpt_code ckpt_maker_refuse(const ckpt_maker *m, const ckpt_plan *lowest, ckpt_plan *plan, ckpt_err *err)
{
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE, .solver = lowest->solver};
    CKPT_TRY(ckpt_maker_head(m, plan, err));
    plan->min_budget_bytes = m->graph->static_bytes + lowest->arena_bytes;
    ckpt_bytes below = m->options->floor_bytes;
    CKPT_TRY(below > 0 ? CKPT_OK : ckpt_maker_floor(m, &below, err));
    plan->no_schedule_below_bytes = m->graph->static_bytes + below;
    return ckpt_plan_check(plan, m->graph, err);
}
