/* From a strategy's name to a checked plan: sequence, steps, places, summary; and, when nothing fits, the least budget
 * at which something does.
 *
 * Strategies know live bytes; places may need more (fragmentation). When they do, the strategy is asked again with the
 * limit lowered by what was missing. */
#include <stdlib.h>
#include <string.h>

#include "core/cli.h"
#include "planner/place.h"
#include "planner/planner_impl.h"
#include "planner/replay.h"

enum {
    TRIES = 5,         /* times a strategy may lower its limit against fragmentation */
    HALVINGS = 12,     /* of the limit, looking for the least */
    COARSE_SLOTS = 80, /* resolution while looking */
    RAISES = 12,       /* of the least budget, until the planner's own answer at it fits */
    STRATEGIES_MAX = 64,
};

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
    ckpt_bytes peak;    /* live, static not counted */
    ckpt_ns time;
    bool fits;
    ckpt_plan plan;   /* when it fits: steps and places */
    ckpt_bytes least; /* smallest static + arena that placing has come to; CKPT_BYTES_MAX: none */
} attempt;

typedef struct maker {
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    ckpt_arena *out;
} maker;

static ckpt_code ask(const maker *m, const ckpt_strategy *strategy, ckpt_bytes limit, const ckpt_plan_options *options,
                     ckpt_answer *answer, ckpt_bytes *peak, ckpt_ns *time, ckpt_err *err)
{
    *answer = (ckpt_answer){0};
    CKPT_TRY_WHILE(err, strategy->plan(m->graph, limit, options, m->out, answer, err), "planning by %s",
                   strategy->name);
    return answer->found ? ckpt_sequence_measure(m->graph, &answer->sequence, m->out, peak, time, err) : CKPT_OK;
}

/* The strategy's first answer. */
static ckpt_code attempt_start(const maker *m, const ckpt_strategy *strategy, attempt *a, ckpt_err *err)
{
    *a = (attempt){.strategy = strategy, .least = CKPT_BYTES_MAX};
    if (m->limit < 0) {
        return CKPT_OK;
    }
    return ask(m, strategy, m->limit, m->options, &a->answer, &a->peak, &a->time, err);
}

static ckpt_code place_sequence(const maker *m, const ckpt_sequence *sequence, ckpt_bytes enough, ckpt_plan *plan,
                                ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_bytes arena = 0;
    ckpt_code code = ckpt_sequence_steps(m->graph, sequence, m->out, plan, err);
    if (code == CKPT_OK) {
        ckpt_place *const place = (ckpt_place *)plan->place; /* made by the line above, not yet shown to anyone */
        code = ckpt_places_pack(place, plan->place_count, enough, &scratch, &arena, err);
    }
    ckpt_arena_fini(&scratch);
    plan->arena_bytes = arena;
    if (code == CKPT_OK && !ckpt_sum(arena, m->graph->static_bytes, &arena)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "static block and arena of more than 2^63 bytes");
    }
    return code;
}

/* Steps and places within the budget, lowering the limit when placing needs more than what is live. */
static ckpt_code attempt_place(const maker *m, attempt *a, ckpt_err *err)
{
    ckpt_answer answer = a->answer;
    ckpt_bytes peak = a->peak;
    ckpt_ns time = a->time;
    ckpt_bytes limit = m->limit;
    ckpt_plan_options quick = *m->options;
    quick.no_bound = true;
    for (int tries = 0; tries < TRIES && answer.found && !a->fits; tries++) {
        ckpt_bytes arena = peak; /* at least */
        const ckpt_mark mark = ckpt_arena_mark(m->out);
        if (peak <= m->limit) {
            CKPT_TRY(place_sequence(m, &answer.sequence, m->limit < CKPT_BYTES_MAX ? m->limit : 0, &a->plan, err));
            arena = a->plan.arena_bytes;
            a->fits = arena <= m->limit;
            a->least = arena + m->graph->static_bytes < a->least ? arena + m->graph->static_bytes : a->least;
        }
        if (!a->fits) {
            ckpt_arena_rewind(m->out, mark);
            /* what was missing, and more each time: a smaller step may come to the same sequence again */
            const ckpt_bytes missing = arena - m->limit;
            limit = peak < limit ? peak : limit;
            if (!a->strategy->budgeted || missing >= (limit >> tries) || tries + 1 == TRIES) {
                break;
            }
            limit -= missing << tries;
            CKPT_TRY(ask(m, a->strategy, limit, &quick, &answer, &peak, &time, err));
        }
    }
    return CKPT_OK;
}

/* The layers in the order of their first ops, each recomputed when one of its forward ops runs again. */
typedef struct named {
    const char *layer;
    int op;
} named;

static int compare_named(const void *a, const void *b)
{
    const named *const x = a;
    const named *const y = b;
    const int order = strcmp(x->layer, y->layer);
    return order != 0 ? order : (x->op > y->op) - (x->op < y->op);
}

static int compare_ops(const void *a, const void *b)
{
    return ((const named *)a)->op - ((const named *)b)->op;
}

static ckpt_code fill_layers(const ckpt_graph *graph, ckpt_arena *out, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_layer_decision *const layer = CKPT_NEW(out, ckpt_layer_decision, graph->op_count);
    const ckpt_mark mark = ckpt_arena_mark(out);
    named *const list = CKPT_NEW(out, named, graph->op_count);
    bool *const again = CKPT_NEW(out, bool, graph->op_count);
    if (layer == NULL || list == NULL || again == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d ops", graph->op_count);
    }
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == CKPT_RUN && plan->step[i].again) {
            again[plan->step[i].target] = true;
        }
    }
    int count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].phase == CKPT_FORWARD && graph->op[o].layer != NULL && graph->op[o].layer[0] != '\0') {
            list[count++] = (named){graph->op[o].layer, o};
        }
    }
    qsort(list, (size_t)count, sizeof *list, compare_named);
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        if (distinct > 0 && strcmp(list[distinct - 1].layer, list[i].layer) == 0) {
            again[list[distinct - 1].op] = again[list[distinct - 1].op] || again[list[i].op];
        } else {
            list[distinct++] = list[i];
        }
    }
    qsort(list, (size_t)distinct, sizeof *list, compare_ops);
    for (int i = 0; i < distinct; i++) {
        layer[i] = (ckpt_layer_decision){list[i].layer, again[list[i].op] ? CKPT_RECOMPUTE : CKPT_KEEP};
    }
    ckpt_arena_rewind(out, mark);
    plan->layer = layer;
    plan->layer_count = distinct;
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
    CKPT_TRY(fill_layers(m->graph, m->out, plan, err));
    CKPT_TRY_WHILE(err, ckpt_plan_check(plan, m->graph, err), "checking what %s planned", a->strategy->name);
    return CKPT_OK;
}

static int compare_attempts(const void *a, const void *b)
{
    const attempt *const x = *(const attempt *const *)a;
    const attempt *const y = *(const attempt *const *)b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return (x->peak > y->peak) - (x->peak < y->peak);
}

/* The fastest of `count` attempts that fits, NULL when none does. Placing comes last and only where it can still
 * matter: it takes longer than most strategies. */
static ckpt_code best_attempt(const maker *m, attempt *all, int count, attempt **best, ckpt_err *err)
{
    attempt *order[STRATEGIES_MAX];
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].answer.found) {
            order[found++] = &all[i];
        }
    }
    qsort(order, (size_t)found, sizeof *order, compare_attempts);
    *best = NULL;
    for (int i = 0; i < found && (*best == NULL || order[i]->time < (*best)->plan.time_ns); i++) {
        CKPT_TRY(attempt_place(m, order[i], err));
        if (order[i]->fits && (*best == NULL || order[i]->plan.time_ns < (*best)->plan.time_ns)) {
            *best = order[i];
        }
    }
    return CKPT_OK;
}

/* A budget at which `a->strategy` has a schedule whose places fit, not yet verified by planning at it. */
static ckpt_code guess_least(const maker *m, const attempt *a, ckpt_bytes *least, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan_options coarse = *m->options;
    coarse.no_bound = true;
    coarse.slots = coarse.slots > 0 ? coarse.slots : COARSE_SLOTS;
    ckpt_answer answer;
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    ckpt_plan plan = {0};
    *least = a->least;
    CKPT_TRY(ask(m, a->strategy, CKPT_BYTES_MAX, &coarse, &answer, &peak, &time, err));
    ckpt_bytes low = 0;
    ckpt_bytes high = peak;
    ckpt_mark found = ckpt_arena_mark(m->out);
    for (int i = 0; i < HALVINGS && a->strategy->budgeted && high - low > high / 512; i++) {
        const ckpt_bytes middle = low + (high - low) / 2;
        ckpt_answer next;
        CKPT_TRY(ask(m, a->strategy, middle, &coarse, &next, &peak, &time, err));
        if (next.found) {
            answer = next;
            found = ckpt_arena_mark(m->out);
            high = peak < middle ? peak : middle;
        } else {
            low = middle;
            ckpt_arena_rewind(m->out, found);
        }
    }
    CKPT_TRY(place_sequence(m, &answer.sequence, 0, &plan, err));
    const ckpt_bytes needed = m->graph->static_bytes + plan.arena_bytes;
    *least = needed < *least ? needed : *least;
    ckpt_arena_rewind(m->out, mark);
    return CKPT_OK;
}

/* What keep-all needs, placed: there every strategy that uses a limit answers keep-all. */
static ckpt_code keep_all_budget(const maker *m, ckpt_bytes *budget, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    int *const order = CKPT_NEW(m->out, int, m->graph->op_count);
    if (order == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "order of %d ops", m->graph->op_count);
    }
    for (int o = 0; o < m->graph->op_count; o++) {
        order[o] = o;
    }
    const ckpt_sequence sequence = {order, m->graph->op_count};
    ckpt_plan plan = {0};
    CKPT_TRY(place_sequence(m, &sequence, 0, &plan, err));
    *budget = m->graph->static_bytes + plan.arena_bytes;
    ckpt_arena_rewind(m->out, mark);
    return CKPT_OK;
}

/* Plan at the guess, and a little above it until that works: a larger limit may choose a sequence that places worse. */
static ckpt_code verify_least(const maker *m, const ckpt_strategy *strategy, ckpt_bytes *least, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan_options quick = *m->options;
    quick.no_bound = true;
    for (int i = 0; i < RAISES; i++) {
        const maker at = {m->graph, &quick, *least, *least - m->graph->static_bytes, m->out};
        attempt a;
        CKPT_TRY(attempt_start(&at, strategy, &a, err));
        CKPT_TRY(attempt_place(&at, &a, err));
        ckpt_arena_rewind(m->out, mark);
        if (a.fits) {
            return CKPT_OK;
        }
        const ckpt_bytes more = (*least - m->graph->static_bytes) >> 7;
        if (!ckpt_sum(*least, more + more * i + 1, least)) {
            break;
        }
        *least = a.least < CKPT_BYTES_MAX && a.least > *least ? a.least : *least;
        if (i + 2 >= RAISES) {
            ckpt_bytes whole = 0;
            CKPT_TRY(keep_all_budget(m, &whole, err));
            *least = whole > *least ? whole : *least;
        }
    }
    return CKPT_FAIL(err, CKPT_OVERFLOW, "%s finds no budget at which its plan can be placed", strategy->name);
}

static ckpt_code infeasible(const maker *m, const attempt *all, int count, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_bytes guess[STRATEGIES_MAX];
    int best = 0;
    for (int i = 0; i < count; i++) {
        CKPT_TRY(guess_least(m, &all[i], &guess[i], err));
        best = guess[i] < guess[best] ? i : best;
    }
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE};
    CKPT_TRY(fill_head(m, plan, err));
    ckpt_bytes least = guess[best] > m->budget ? guess[best] : m->budget + 1;
    CKPT_TRY(verify_least(m, all[best].strategy, &least, err));
    plan->solver = all[best].strategy->name;
    plan->least_budget_bytes = least;
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
        chosen[(*count)++] = ckpt_strategy_table[i];
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
        CKPT_TRY(attempt_start(&m, chosen[i], &all[i], err));
    }
    attempt *best = NULL;
    CKPT_TRY(best_attempt(&m, all, count, &best, err));
    CKPT_TRY(best != NULL ? finish_plan(&m, best, plan, err) : infeasible(&m, all, count, plan, err));
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    *made = plan;
    return CKPT_OK;
}
