/* From a strategy's name to a checked plan: candidates, steps, places, bound, summary; and, when nothing fits, the
 * least budget at which something does.
 *
 * Strategies know live bytes; places may need more (fragmentation). So a strategy names several candidates, and the
 * fastest whose places fit is taken; when that is not the fastest of all it is asked again with lower limits. The
 * candidate of least peak is always among those tried, placed the same way at every limit: that makes the least budget,
 * which is what its places take or less, one at which there is a plan. */
#include <string.h>

#include "core/base/clock.h"
#include "planner/api/planner.h"
#include "planner/bound/bound.h"
#include "planner/placement/place.h"
#include "planner/replay/clock.h"
#include "planner/replay/replay.h"
#include "planner/schedule/batches.h"
#include "planner/schedule/schedule.h"

enum {
    ROUNDS = 4,         /* times a strategy may be asked, each with the limit lowered against fragmentation */
    PLACINGS = 5,       /* candidates of one answer whose places are tried */
    LOWERED_OPS = 1000, /* in larger graphs the least budget is not looked for again: every trial is a plan */
    TRIALS = 3,         /* limits at which something less than the least candidate takes is looked for */
};

/* What places of a candidate of least peak took, so that no trial works that out again: at the effort of the plan, and
 * at the one above. */
typedef struct placed_least {
    struct placed_least *next;
    ckpt_sequence sequence;
    ckpt_bytes bytes[2]; /* -1: not tried */
} placed_least;

typedef struct placed_leasts {
    placed_least *first;
    ckpt_arena arena;
} placed_leasts;

typedef struct maker {
    const ckpt_graph *graph;
    const ckpt_strategy *strategy;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    bool trial;               /* only whether something fits: no repair, which could only find more */
    placed_leasts *known;
    ckpt_arena *out;
} maker;

static ckpt_code ask(const maker *m, const ckpt_plan_options *options, ckpt_bytes limit, ckpt_candidates *candidates,
                     ckpt_err *err)
{
    *candidates = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_bytes possible = limit > 0 ? limit : 0; /* a budget below the static block: for the least peak */
    CKPT_TRY_WHILE(err, m->strategy->plan(m->graph, possible, options, m->out, candidates, err), "planning by %s",
                   m->strategy->name);
    return CKPT_OK;
}

static ckpt_code place_sequence(const maker *m, const ckpt_sequence *sequence, ckpt_bytes enough, int effort,
                                ckpt_plan *plan, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    options.effort = effort;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_sequence_steps(m->graph, sequence, m->out, plan, err);
    if (code == CKPT_OK) {
        code = ckpt_sequence_pack(m->graph, plan, enough, &options, &scratch, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* Steps and places of a candidate; `enough` bytes of places will do. */
static ckpt_code place_candidate(const maker *m, const ckpt_candidate *candidate, ckpt_bytes enough, int effort,
                                 ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_sequence *const sequence = &candidate->sequence;
    ckpt_sequence moved;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_sequence_reduce_first(m->graph, sequence, &scratch, &moved, err);
    code = code == CKPT_OK ? place_sequence(m, &moved, enough, effort, plan, err) : code;
    const bool same = code != CKPT_OK || moved.op == sequence->op ||
                      memcmp(moved.op, sequence->op, (size_t)moved.count * sizeof *moved.op) == 0;
    ckpt_arena_fini(&scratch);
    if (!same && enough > 0 && plan->arena_bytes > enough) { /* memory first */
        ckpt_plan unmoved = {0};
        code = place_sequence(m, sequence, enough, effort, &unmoved, err);
        *plan = code == CKPT_OK && unmoved.arena_bytes <= enough ? unmoved : *plan;
    }
    ckpt_bytes sum = 0;
    plan->solver = candidate->by != NULL ? candidate->by : m->strategy->name;
    if (code == CKPT_OK && !ckpt_sum(plan->arena_bytes, m->graph->static_bytes, &sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "static block and arena of more than 2^63 bytes");
    }
    return code;
}

/* What has been placed so far. */
typedef struct tries {
    ckpt_plan *plan; /* the fastest that fits, when `fits` */
    bool fits;
    bool better; /* the last answer had one that is now in `plan` */
    ckpt_bytes
        lost; /* the least fragmentation in what did not fit of the last answer, in thousandths; -1: all fitted */
} tries;

/* Place a candidate; it is taken when it fits. */
static ckpt_code try_candidate(const maker *m, const ckpt_candidate *candidate, tries *t, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan placed = {0};
    CKPT_TRY(place_candidate(m, candidate, m->limit < CKPT_BYTES_MAX ? m->limit : 0, m->options->effort, &placed, err));
    if (placed.arena_bytes <= m->limit) {
        *t->plan = placed;
        t->fits = t->better = true;
        return CKPT_OK;
    }
    const ckpt_bytes lost = (placed.arena_bytes - candidate->peak) / (candidate->peak / 1000 + 1);
    t->lost = t->lost < 0 || lost < t->lost ? lost : t->lost;
    ckpt_arena_rewind(m->out, mark);
    return CKPT_OK;
}

/* The fastest candidate of an answer that can be placed, when it is faster than what there is. Candidates that would
 * have to lose much less than those before them are passed over. */
static ckpt_code try_answer(const maker *m, const ckpt_candidates *candidates, tries *t, ckpt_err *err)
{
    t->better = false;
    t->lost = -1;
    for (int i = 0, placed = 0; i < candidates->count && placed < PLACINGS && !t->better; i++) {
        const ckpt_candidate *const candidate = &candidates->candidate[i];
        if (t->fits && candidate->time >= t->plan->time_ns) {
            break;
        }
        if (candidate->peak > m->limit ||
            (t->lost > 0 && m->limit - candidate->peak < candidate->peak / 1000 * (t->lost / 4 * 3))) {
            continue;
        }
        CKPT_TRY(try_candidate(m, candidate, t, err));
        placed++;
    }
    return CKPT_OK;
}

/* What a part built before another improved on it may have places where the better one has none. */
static ckpt_code try_fallbacks(const maker *m, const ckpt_candidates *candidates, tries *t, ckpt_err *err)
{
    const ckpt_bytes lost = t->lost; /* of the best: it says how much lower to ask */
    for (int i = 0; i < candidates->fallback_count; i++) {
        const ckpt_candidate *const fallback = &candidates->fallback[i];
        if (fallback->peak <= m->limit && !(t->fits && fallback->time >= t->plan->time_ns)) {
            CKPT_TRY(try_candidate(m, fallback, t, err));
        }
    }
    t->lost = lost;
    return CKPT_OK;
}

/* Ask again at lower limits: what was lost to fragmentation says how much lower; when that fits, halfway back. */
static ckpt_code repair(const maker *m, const ckpt_candidates *first, tries *t, ckpt_err *err)
{
    ckpt_plan_options again = *m->options;
    ckpt_candidates known = *first;
    /* where something fits already, this can only make it faster: less is paid for that */
    again.effort = again.effort > (t->fits ? CKPT_EFFORT_LOW : CKPT_EFFORT_NORMAL) ? again.effort - 1 : again.effort;
    ckpt_bytes above = m->limit; /* the lowest limit whose answer did not fit */
    ckpt_bytes below = 0;        /* the highest one whose answer did, or that had none */
    ckpt_bytes lowest = 0;
    CKPT_TRY(ckpt_bound_peak(m->graph, m->out, &lowest, err));
    again.no_min_peak = ckpt_batch_count(m->graph) > 1; /* with several micro-batches it takes longer than all else */
    for (int round = 1; round < ROUNDS && above - below > above / 100; round++) {
        const ckpt_bytes held = m->limit / (1000 + t->lost) * 1000; /* by what would lose as little */
        const ckpt_bytes next = above - above / 50;
        const ckpt_bytes limit = below > 0 ? below + (above - below) / 2 : held < next ? held : next;
        if (limit < lowest) {
            break; /* no schedule gets there */
        }
        again.incumbent = known.candidate;
        again.incumbent_count = known.count;
        ckpt_candidates candidates;
        CKPT_TRY(ask(m, &again, limit, &candidates, err));
        CKPT_TRY(try_answer(m, &candidates, t, err));
        for (int i = 0; i < candidates.count; i++) {
            ckpt_candidates_add(&known, &candidates.candidate[i]);
        }
        if (t->better || t->lost < 0) {
            below = limit;
        } else {
            above = limit;
        }
    }
    return CKPT_OK;
}

static ckpt_code know_least(const maker *m, const ckpt_sequence *sequence, placed_least **known, ckpt_err *err)
{
    const size_t size = (size_t)sequence->count * sizeof *sequence->op;
    for (placed_least *k = m->known->first; k != NULL; k = k->next) {
        if (k->sequence.count == sequence->count && memcmp(k->sequence.op, sequence->op, size) == 0) {
            *known = k;
            return CKPT_OK;
        }
    }
    placed_least *const made = CKPT_NEW(&m->known->arena, placed_least, 1);
    int *const op = CKPT_NEW(&m->known->arena, int, sequence->count);
    if (made == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d entries", sequence->count);
    }
    memcpy(op, sequence->op, size);
    *made = (placed_least){.next = m->known->first, .sequence = {op, sequence->count}, .bytes = {-1, -1}};
    m->known->first = made;
    *known = made;
    return CKPT_OK;
}

/* Places of the candidate of least peak, the same whatever the limit: with more effort unless `enough` are enough.
 * `plan` NULL: only the bytes they take are wanted. */
static ckpt_code place_least(const maker *m, const ckpt_candidate *least, ckpt_bytes enough, ckpt_plan *plan,
                             ckpt_bytes *bytes, ckpt_err *err)
{
    placed_least *known = NULL;
    CKPT_TRY(know_least(m, &least->sequence, &known, err));
    for (int harder = 0; harder < 2; harder++) {
        const ckpt_mark mark = ckpt_arena_mark(m->out);
        ckpt_plan placed = {.arena_bytes = known->bytes[harder]};
        if (plan != NULL || known->bytes[harder] < 0) {
            CKPT_TRY(place_candidate(m, least, 0, m->options->effort + harder, &placed, err));
            known->bytes[harder] = placed.arena_bytes;
        }
        if (plan == NULL) {
            ckpt_arena_rewind(m->out, mark);
        } else if (harder == 0 || placed.arena_bytes < *bytes) {
            *plan = placed;
        }
        *bytes = harder == 0 || placed.arena_bytes < *bytes ? placed.arena_bytes : *bytes;
        if (*bytes <= least->peak || *bytes <= enough || m->options->effort >= CKPT_EFFORT_MOST) {
            break;
        }
    }
    return CKPT_OK;
}

/* Steps and places within the budget of the fastest candidate that can be placed: of `first`, the answer at the full
 * limit, of answers to lower limits, and last the one of least peak. */
static ckpt_code place_answer(const maker *m, const ckpt_candidates *first, ckpt_plan *plan, bool *fits, ckpt_err *err)
{
    tries t = {.plan = plan};
    ckpt_candidates_progress(first, "allocation", m->limit, m->options);
    CKPT_TRY(try_answer(m, first, &t, err));
    if (t.lost >= 0) {
        CKPT_TRY(try_fallbacks(m, first, &t, err));
    }
    const bool slower = t.fits && t.plan->time_ns - first->candidate[0].time > first->candidate[0].time / 500;
    if ((!t.fits || slower) && t.lost >= 0 && m->strategy->budgeted && !m->trial) {
        CKPT_TRY(repair(m, first, &t, err));
    }
    if (!t.fits && first->min_peak.sequence.op != NULL && first->min_peak.peak <= m->limit) {
        ckpt_bytes bytes = 0;
        CKPT_TRY(place_least(m, &first->min_peak, m->limit, m->trial ? NULL : plan, &bytes, err));
        t.fits = bytes <= m->limit;
    }
    *fits = t.fits;
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

static ckpt_code fill_bound(const maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    const bool has_all = candidates->has_bound && strcmp(candidates->bound_scope, "all") == 0;
    if (plan->time_ns > plan->keep_all_time_ns && m->limit < CKPT_BYTES_MAX && !m->strategy->baseline && !has_all) {
        const ckpt_ns first = candidates->count > 0 ? candidates->candidate[0].time : INT64_MAX;
        const ckpt_ns upper = first < plan->time_ns ? first : plan->time_ns;
        ckpt_bound found;
        CKPT_TRY_WHILE(err, ckpt_bound_find(m->graph, m->limit, upper, m->options, m->out, &found, err),
                       "bounding the time from below");
        ckpt_candidates_bound(candidates, found.time_ns, found.how, found.scope);
    }
    if (!candidates->has_bound || candidates->bound_ns > plan->time_ns ||
        candidates->bound_ns < plan->keep_all_time_ns) {
        candidates->has_bound = false;
        ckpt_candidates_bound(candidates, plan->keep_all_time_ns, "every op runs at least once", "all");
    }
    plan->has_bound = true;
    plan->bound_ns = candidates->bound_ns;
    plan->bound_how = ckpt_bound_how(plan->bound_ns, candidates->bound_how, plan->time_ns);
    plan->bound_scope = candidates->bound_scope;
    if (strcmp(plan->bound_how, "exact") == 0 && plan->bound_ns < plan->time_ns) {
        plan->bound_how = "exact before placement"; /* fragmentation made the plan slower */
    }
    return CKPT_OK;
}

/* Trying candidates ends where the places fit. The plan that is given out is packed with all the effort pays for: what
 * is left beyond the live bytes is another process's room. Places that come out no lower are not taken: those that
 * there are may have been found with more effort. */
static ckpt_code tighten(const maker *m, ckpt_plan *plan, ckpt_err *err)
{
    if (plan->arena_bytes <= plan->peak_bytes - m->graph->static_bytes) {
        return CKPT_OK;
    }
    ckpt_plan packed = *plan;
    ckpt_allocation *const allocation = CKPT_NEW(m->out, ckpt_allocation, plan->allocation_count);
    if (allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d places", plan->allocation_count);
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        allocation[i] = plan->allocation[i];
    }
    packed.allocation = allocation;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = ckpt_sequence_pack(m->graph, &packed, 0, m->options, &scratch, err);
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK && packed.arena_bytes < plan->arena_bytes) {
        *plan = packed;
    }
    return code;
}

static ckpt_code finish_plan(const maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    CKPT_TRY(tighten(m, plan, err));
    CKPT_TRY(fill_head(m, plan, err));
    plan->verdict = CKPT_FITS;
    plan->budget_bytes = m->budget == CKPT_BYTES_MAX ? plan->static_bytes + plan->arena_bytes : m->budget;
    CKPT_TRY(fill_bound(m, candidates, plan, err));
    ckpt_layer_decision *layer = NULL;
    CKPT_TRY(ckpt_layers_decide(plan, m->graph, m->out, &layer, &plan->layer_count, err));
    plan->layer = layer;
    CKPT_TRY_WHILE(err, ckpt_plan_check(plan, m->graph, err), "checking what %s planned", m->strategy->name);
    return CKPT_OK;
}

static ckpt_code attempt(const maker *m, ckpt_candidates *candidates, ckpt_plan *plan, bool *fits, ckpt_err *err)
{
    *fits = false;
    CKPT_TRY(ask(m, m->options, m->limit, candidates, err));
    return place_answer(m, candidates, plan, fits, err);
}

/* Try limits below `*least`, at which there is a plan, and above `low`, at which there is none: step by step, then
 * halfway. What is found is what the same call finds when it is asked for it. */
static ckpt_code lower_least(const maker *m, ckpt_bytes low, ckpt_bytes *least, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    options.incumbent = NULL; /* whoever asks for the least budget later may not have them */
    options.incumbent_count = 0;
    maker trial = *m;
    trial.options = &options;
    trial.trial = true;
    ckpt_bytes step = *least / 50;
    for (int i = 0; i<TRIALS && * least - low> * least / 100 && !ckpt_plan_stopped(&options); i++) {
        const ckpt_mark mark = ckpt_arena_mark(m->out);
        trial.limit = step > 0 && step < *least - low ? *least - step : low + (*least - low) / 2;
        ckpt_candidates *const candidates = CKPT_NEW(m->out, ckpt_candidates, 1);
        ckpt_plan plan = {0};
        bool fits = false;
        if (candidates == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "looking for the least budget");
        }
        CKPT_TRY(attempt(&trial, candidates, &plan, &fits, err));
        step = fits ? 2 * step : 0;
        *least = fits ? trial.limit : *least;
        low = fits ? low : trial.limit;
        ckpt_arena_rewind(m->out, mark);
    }
    return CKPT_OK;
}

/* Ask at `*least`, what the least candidate of some limit takes: under that limit the strategy may know another one.
 * Then it is asked at what that takes. */
static ckpt_code confirm_least(const maker *m, ckpt_bytes *least, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    options.incumbent = NULL; /* whoever asks for the least budget later may not have them */
    options.incumbent_count = 0;
    maker trial = *m;
    trial.options = &options;
    trial.trial = true;
    bool fits = false;
    for (int i = 0; i < TRIALS && !fits; i++) {
        const ckpt_mark mark = ckpt_arena_mark(m->out);
        ckpt_candidates *const candidates = CKPT_NEW(m->out, ckpt_candidates, 1);
        ckpt_plan plan = {0};
        trial.limit = *least;
        if (candidates == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "looking for the least budget");
        }
        CKPT_TRY(attempt(&trial, candidates, &plan, &fits, err));
        if (!fits && candidates->min_peak.sequence.op != NULL) {
            ckpt_bytes bytes = 0;
            CKPT_TRY(place_least(&trial, &candidates->min_peak, 0, NULL, &bytes, err));
            *least = bytes > *least ? bytes : *least;
        }
        ckpt_arena_rewind(m->out, mark);
    }
    return CKPT_OK;
}

/* What the places of the candidate of least peak take, or less when the strategy does better under a limit. */
static ckpt_code infeasible(const maker *m, const ckpt_candidate *least, ckpt_plan *plan, ckpt_err *err)
{
    if (least->sequence.op == NULL) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "every plan takes more than 2^63 ns or bytes");
    }
    ckpt_bytes lowest = 0;
    ckpt_candidates_progress(&(ckpt_candidates){0}, "minimum budget", m->limit, m->options);
    CKPT_TRY(place_least(m, least, 0, NULL, &lowest, err));
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE, .solver = least->by != NULL ? least->by : m->strategy->name};
    CKPT_TRY(fill_head(m, plan, err));
    ckpt_bytes below = 0;
    CKPT_TRY(ckpt_bound_peak(m->graph, m->out, &below, err));
    if (m->strategy->budgeted) {
        CKPT_TRY(confirm_least(m, &lowest, err));
    }
    if (m->strategy->budgeted && lowest > least->peak && m->graph->op_count <= LOWERED_OPS) { /* it lost something */
        CKPT_TRY(lower_least(m, below > m->limit ? below : m->limit, &lowest, err));
    }
    plan->min_budget_bytes = m->graph->static_bytes + lowest;
    plan->no_schedule_below_bytes = m->graph->static_bytes + below;
    return ckpt_plan_check(plan, m->graph, err);
}

static ckpt_code make(const maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    bool fits = false;
    CKPT_TRY(attempt(m, candidates, plan, &fits, err));
    return fits ? finish_plan(m, candidates, plan, err) : infeasible(m, &candidates->min_peak, plan, err);
}

ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options, ckpt_arena *out,
                         ckpt_plan **made, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    const bool limited = options->budget_bytes > 0;
    placed_leasts known = {.first = NULL};
    const maker m = {
        .graph = graph,
        .strategy = ckpt_strategy_find(name),
        .options = options,
        .budget = limited ? options->budget_bytes : CKPT_BYTES_MAX,
        .limit = limited ? options->budget_bytes - graph->static_bytes : CKPT_BYTES_MAX,
        .known = &known,
        .out = out,
    };
    if (m.strategy == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", name);
    }
    ckpt_plan *const plan = CKPT_NEW(out, ckpt_plan, 1);
    ckpt_candidates *const candidates = CKPT_NEW(out, ckpt_candidates, 1);
    if (plan == NULL || candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", name);
    }
    ckpt_arena_init(&known.arena);
    const ckpt_code code = make(&m, candidates, plan, err);
    ckpt_arena_fini(&known.arena);
    CKPT_TRY(code);
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    *made = plan;
    return CKPT_OK;
}
