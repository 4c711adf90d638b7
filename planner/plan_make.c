/* From a strategy's name to a checked plan: candidates, steps, places, summary; and, when nothing fits, the least
 * budget at which something does.
 *
 * Strategies know live bytes; places may need more (fragmentation). So a strategy names several candidates, and the
 * fastest whose places fit is taken. The candidate of least peak is always among those tried: that makes the least
 * budget, which is what its places take, one at which there is a plan. */
#include <stdlib.h>
#include <string.h>

#include "core/cli.h"
#include "planner/planner_impl.h"
#include "planner/replay.h"
#include "planner/replay_impl.h"

enum {
    ROUNDS = 3,    /* times a strategy may be asked, each with the limit lowered against fragmentation */
    PLACINGS = 10, /* candidates of one answer whose places are tried */
    STRATEGIES_MAX = 64,
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

/* One strategy under one budget. */
typedef struct attempt {
    const ckpt_strategy *strategy;
    ckpt_answer answer; /* its first, at the full limit: its bound holds for the budget */
    bool fits;
    ckpt_plan plan; /* when it fits: steps and places */
} attempt;

typedef struct maker {
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    ckpt_arena *out;
} maker;

static ckpt_code ask(const maker *m, const ckpt_strategy *strategy, ckpt_bytes limit, ckpt_answer *answer,
                     ckpt_err *err)
{
    *answer = (ckpt_answer){.least = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_bytes possible = limit > 0 ? limit : 0; /* a budget below the static block: for the least peak */
    CKPT_TRY_WHILE(err, strategy->plan(m->graph, possible, m->options, m->out, answer, err), "planning by %s",
                   strategy->name);
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
    if (code == CKPT_OK && !ckpt_sum(plan->arena_bytes, m->graph->static_bytes, &sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "static block and arena of more than 2^63 bytes");
    }
    return code;
}

/* Try to place a candidate within the budget. `missing`: how many bytes were too few, when it does not fit. */
static ckpt_code try_candidate(const maker *m, attempt *a, const ckpt_candidate *candidate, ckpt_bytes *missing,
                               ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    CKPT_TRY(place_candidate(m, candidate, m->limit < CKPT_BYTES_MAX ? m->limit : 0, &a->plan, err));
    a->fits = a->plan.arena_bytes <= m->limit;
    if (!a->fits) {
        *missing = a->plan.arena_bytes - m->limit;
        ckpt_arena_rewind(m->out, mark);
    }
    return CKPT_OK;
}

/* Steps and places within the budget of the fastest candidate that can be placed and takes less than `before` ns: of
 * the first answer, of answers to lower limits, and last the one of least peak. */
static ckpt_code attempt_place(const maker *m, attempt *a, ckpt_ns before, ckpt_err *err)
{
    ckpt_answer answer = a->answer;
    ckpt_bytes limit = m->limit;
    for (int round = 0; round < ROUNDS; round++) {
        ckpt_bytes missing = 0;
        for (int i = 0; i < answer.count && i < PLACINGS; i++) {
            if (answer.candidate[i].peak <= m->limit && answer.candidate[i].time < before) {
                CKPT_TRY(try_candidate(m, a, &answer.candidate[i], &missing, err));
            }
            if (a->fits) {
                return CKPT_OK;
            }
        }
        /* an answer of several has looked below the limit already */
        if (!a->strategy->budgeted || missing == 0 || answer.count > 1) {
            break;
        }
        limit = missing < limit ? limit - missing : 0;
        limit = limit < answer.candidate[0].peak ? limit : answer.candidate[0].peak - 1;
        CKPT_TRY(ask(m, a->strategy, limit, &answer, err));
    }
    if (answer.least.peak <= m->limit && answer.least.time < before) {
        ckpt_bytes missing = 0;
        return try_candidate(m, a, &answer.least, &missing, err);
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
    plan->bound_how = plan->bound_scope = plan->solver = plan->costs = "";
    CKPT_TRY(ckpt_graph_digest(m->graph, plan->graph_sha256, err));
    return ckpt_keep_all_measure(m->graph, m->out, &plan->keep_all_peak_bytes, &plan->keep_all_time_ns, err);
}

static void fill_bound(const attempt *a, ckpt_plan *plan)
{
    plan->has_bound = true;
    plan->bound_ns = plan->keep_all_time_ns;
    plan->bound_how = plan->time_ns == plan->bound_ns ? "exact" : "every op runs at least once";
    plan->bound_scope = "all";
    if (a->answer.has_bound && a->answer.bound_ns > plan->bound_ns && a->answer.bound_ns <= plan->time_ns) {
        plan->bound_ns = a->answer.bound_ns;
        plan->bound_how = a->answer.bound_how;
        plan->bound_scope = a->answer.bound_scope;
        if (strcmp(plan->bound_how, "exact") == 0 && plan->bound_ns < plan->time_ns) {
            plan->bound_how = "exact before placement"; /* fragmentation made the plan slower */
        }
    }
}

static ckpt_code finish_plan(const maker *m, const attempt *a, ckpt_plan *plan, ckpt_err *err)
{
    *plan = a->plan;
    CKPT_TRY(fill_head(m, plan, err));
    plan->verdict = CKPT_FITS;
    plan->budget_bytes = m->budget == CKPT_BYTES_MAX ? plan->static_bytes + plan->arena_bytes : m->budget;
    plan->solver = a->strategy->name;
    fill_bound(a, plan);
    ckpt_layer_decision *layer = NULL;
    CKPT_TRY(ckpt_layers_decide(plan, m->graph, m->out, &layer, &plan->layer_count, err));
    plan->layer = layer;
    CKPT_TRY_WHILE(err, ckpt_plan_check(plan, m->graph, err), "checking what %s planned", a->strategy->name);
    return CKPT_OK;
}

/* Attempts lie in one array: the order of the strategy table decides between equals, as qsort itself does not. */
static int compare_attempts(const void *a, const void *b)
{
    const attempt *const left = *(const attempt *const *)a, *const right = *(const attempt *const *)b;
    const ckpt_candidate *const x = &left->answer.candidate[0];
    const ckpt_candidate *const y = &right->answer.candidate[0];
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return x->peak != y->peak ? (x->peak < y->peak ? -1 : 1) : (left > right) - (left < right);
}

/* The fastest of `count` attempts that fits, NULL when none does. Placing comes last and only where it can still
 * matter: it takes longer than most strategies. What a strategy comes to does not depend on the others. */
static ckpt_code best_attempt(const maker *m, attempt *all, int count, attempt **best, ckpt_err *err)
{
    attempt *order[STRATEGIES_MAX];
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].answer.count > 0) {
            order[found++] = &all[i];
        }
    }
    qsort(order, (size_t)found, sizeof *order, compare_attempts);
    *best = NULL;
    for (int i = 0; i < found; i++) {
        CKPT_TRY(attempt_place(m, order[i], *best != NULL ? (*best)->plan.time_ns : INT64_MAX, err));
        *best = order[i]->fits ? order[i] : *best;
    }
    return CKPT_OK;
}

static int compare_leasts(const void *a, const void *b)
{
    const attempt *const left = *(const attempt *const *)a, *const right = *(const attempt *const *)b;
    const ckpt_bytes x = left->answer.least.peak, y = right->answer.least.peak;
    return x != y ? (x < y ? -1 : 1) : (left > right) - (left < right);
}

/* What the places of the candidates of least peak take, at best. */
static ckpt_code infeasible(const maker *m, const attempt *all, int count, ckpt_plan *plan, ckpt_err *err)
{
    const attempt *order[STRATEGIES_MAX];
    for (int i = 0; i < count; i++) {
        order[i] = &all[i];
    }
    qsort(order, (size_t)count, sizeof *order, compare_leasts);
    ckpt_bytes least = CKPT_BYTES_MAX;
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE};
    CKPT_TRY(fill_head(m, plan, err));
    for (int i = 0; i < count && order[i]->answer.least.peak < least; i++) {
        const ckpt_mark mark = ckpt_arena_mark(m->out);
        ckpt_plan placed = {0};
        CKPT_TRY(place_candidate(m, &order[i]->answer.least, 0, &placed, err));
        ckpt_arena_rewind(m->out, mark);
        if (placed.arena_bytes < least) {
            least = placed.arena_bytes;
            plan->solver = order[i]->strategy->name;
        }
    }
    if (least == CKPT_BYTES_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "every plan takes more than 2^63 ns or bytes");
    }
    plan->least_budget_bytes = m->graph->static_bytes + least;
    return ckpt_plan_check(plan, m->graph, err);
}

static ckpt_code choose_strategies(const char *name, const ckpt_strategy **chosen, int *count, ckpt_err *err)
{
    const ckpt_strategy *const one = ckpt_strategy_find(name);
    *count = 0;
    if (one != NULL) {
        chosen[(*count)++] = one;
        return CKPT_OK;
    }
    if (strcmp(name, "auto") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted auto or one of --list-strategies", name);
    }
    for (int i = 0; ckpt_strategy_table[i] != NULL && *count < STRATEGIES_MAX; i++) {
        if (!ckpt_strategy_table[i]->baseline) {
            chosen[(*count)++] = ckpt_strategy_table[i];
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options, ckpt_arena *out,
                         ckpt_plan **made, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    const ckpt_strategy *chosen[STRATEGIES_MAX];
    int count = 0;
    CKPT_TRY(choose_strategies(name, chosen, &count, err));
    const bool limited = options->budget_bytes > 0;
    const maker m = {
        .graph = graph,
        .options = options,
        .budget = limited ? options->budget_bytes : CKPT_BYTES_MAX,
        .limit = limited ? options->budget_bytes - graph->static_bytes : CKPT_BYTES_MAX,
        .out = out,
    };
    ckpt_plan *const plan = CKPT_NEW(out, ckpt_plan, 1);
    attempt *const all = CKPT_NEW(out, attempt, count);
    if (plan == NULL || all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "plans of %d strategies", count);
    }
    for (int i = 0; i < count; i++) {
        all[i] = (attempt){.strategy = chosen[i]};
        CKPT_TRY(ask(&m, chosen[i], m.limit, &all[i].answer, err));
    }
    attempt *best = NULL;
    CKPT_TRY(best_attempt(&m, all, count, &best, err));
    CKPT_TRY(best != NULL ? finish_plan(&m, best, plan, err) : infeasible(&m, all, count, plan, err));
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    *made = plan;
    return CKPT_OK;
}
