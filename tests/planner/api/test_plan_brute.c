/* labels: unit */
/* Every plan and every bound against the true optimum of hundreds of tiny graphs. `test_plan_brute FIRST COUNT` does
 * the same with other seeds. */
#include "tests/support/support_brute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/bound/bound.h"
#include "planner/directives/flags.h"
#include "planner/ilp/ilp.h"
#include "planner/ilp/solver.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { KINDS = 6, GRAPHS = 84 * KINDS, LIMITS = 3, STRATEGIES_MAX = 64 };

static uint64_t first_seed = 1, graphs; /* 0: as many as there is time for */

/* ---- the brute force against a plainer one ---- */

enum { PLAIN_BUFFERS = 9 };

static uint32_t set_of(const ckpt_list *list)
{
    uint32_t made = 0;
    for (int i = 0; i < list->count; i++) {
        made |= (uint32_t)1 << list->at[i];
    }
    return made;
}

static ckpt_bytes bytes_of(const ckpt_graph *graph, uint32_t set)
{
    ckpt_bytes sum = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        sum += (set >> b & 1) != 0 ? graph->buffer[b].bytes : 0;
    }
    return sum;
}

typedef struct plain {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    bool changed;
    ckpt_ns best[CKPT_BRUTE_OPS + 1][1 << PLAIN_BUFFERS];
} plain;

static void arrive(plain *p, int done, uint32_t live, ckpt_ns time)
{
    if (time < p->best[done][live]) {
        p->best[done][live] = time;
        p->changed = true;
    }
}

/* Nothing but the rules: drop any buffer, run any op that may run, until nothing changes. */
static ckpt_ns plain_time(plain *p, const ckpt_graph *graph, ckpt_bytes limit)
{
    const uint32_t sets = (uint32_t)1 << graph->buffer_count;
    p->graph = graph;
    p->limit = limit;
    for (int done = 0; done <= graph->op_count; done++) {
        for (uint32_t s = 0; s < sets; s++) {
            p->best[done][s] = INT64_MAX;
        }
    }
    p->best[0][0] = 0;
    do {
        p->changed = false;
        for (int done = 0; done <= graph->op_count; done++) {
            for (uint32_t s = 0; s < sets; s++) {
                const ckpt_ns now = p->best[done][s];
                for (int b = 0; b < graph->buffer_count && now < INT64_MAX; b++) {
                    arrive(p, done, s & ~((uint32_t)1 << b), now);
                }
                for (int o = 0; o <= done && o < graph->op_count && now < INT64_MAX; o++) {
                    const ckpt_graph_op *const op = &graph->op[o];
                    const uint32_t needs = set_of(&op->reads) | set_of(&op->adds), writes = set_of(&op->writes);
                    if ((needs & ~s) != 0 || (writes & s) != 0 || (o < done && !op->recompute)) {
                        continue;
                    }
                    const int to = o == done ? done + 1 : done;
                    if (bytes_of(graph, s | writes) + op->workspace_bytes <= limit) {
                        arrive(p, to, s | writes, now + op->time_ns);
                    }
                    uint32_t lost = 0;
                    for (int i = 0; i < op->inplace_count; i++) {
                        lost |= (uint32_t)1 << op->inplace[i].in;
                    }
                    if (bytes_of(graph, (s & ~lost) | writes) + op->workspace_bytes <= limit) {
                        arrive(p, to, (s & ~lost) | writes, now + op->time_ns);
                    }
                }
            }
        }
    } while (p->changed);
    ckpt_ns end = INT64_MAX;
    for (uint32_t s = 0; s < sets; s++) {
        const ckpt_ns time = p->best[graph->op_count][s];
        end = (set_of(&graph->outputs) & ~s) == 0 && time < end ? time : end;
    }
    return end;
}

/* A forward op that reads a gradient may only run again while that has as many additions: the plain search does not
 * know this. */
static bool plain_can(const ckpt_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].adds.count > 0 && graph->buffer_count > 0) {
            for (int r = 0; r < graph->op_count; r++) {
                if (graph->op[r].recompute && (set_of(&graph->op[r].reads) & set_of(&graph->op[o].adds)) != 0) {
                    return false;
                }
            }
        }
    }
    return graph->buffer_count <= PLAIN_BUFFERS;
}

static void brute_force_is_right(void **state)
{
    static plain p;
    int compared = 0;
    const uint64_t seeds = ckpt_test_rounds(150, 30);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, seed, NULL);
        if (plain_can(graph)) {
            const ckpt_bytes min_peak = ckpt_brute_peak(graph, CKPT_BRUTE_ALL);
            CHECK(plain_time(&p, graph, min_peak - 1) == INT64_MAX, "seed %d: there is a schedule below the least peak",
                  (int)seed);
            for (int part = 0; part < 4; part++) {
                const ckpt_bytes limit = min_peak + min_peak * part / 8;
                const ckpt_ns found = ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL);
                const ckpt_ns wanted = plain_time(&p, graph, limit);
                CHECK(found == wanted && found < INT64_MAX, "seed %d, limit %lld: %lld ns, wanted %lld", (int)seed,
                      (long long)limit, (long long)found, (long long)wanted);
                CHECK(ckpt_brute_time(graph, limit, CKPT_BRUTE_BACKWARD) >= found, "seed %d: a class is faster",
                      (int)seed);
                compared++;
            }
        }
    }
    CHECK(150 * compared > 50 * (int)seeds, "only %d compared", compared);
}

/* ---- strategies, auto and bounds against it ---- */

typedef struct tally {
    int cases, answered, equal;
    double excess, worst;
    uint64_t worst_seed;
} tally;

static void count(tally *t, uint64_t seed, ckpt_ns found, ckpt_ns best)
{
    t->cases++;
    if (found == INT64_MAX) {
        return;
    }
    const double excess = (double)found / (double)(best > 0 ? best : 1) - 1;
    t->answered++;
    t->equal += found == best;
    t->excess += excess;
    if (excess > t->worst) {
        t->worst = excess;
        t->worst_seed = seed;
    }
}

static void print(const char *name, const tally *t)
{
    printf("%-14s %5d of %5d limits, %5d optimal, excess mean %6.3f %%, worst %6.2f %% (seed %d)\n", name, t->answered,
           t->cases, t->equal, t->answered > 0 ? 100 * t->excess / t->answered : 0, 100 * t->worst, (int)t->worst_seed);
}

/* A schedule wherever there is one, on the mean within 0.5 % of the optimum, and never beyond 5 %. */
static void check_near(const char *name, const tally *t)
{
    CHECK(t->answered == t->cases && t->excess <= 0.005 * t->cases && t->worst <= 0.05,
          "%s: %d of %d, mean %.3f %%, worst %.2f %% (seed %d)", name, t->answered, t->cases,
          100 * t->excess / t->cases, 100 * t->worst, (int)t->worst_seed);
}

/* Least + 2 %, between, and just below keep-all. */
static ckpt_bytes limit_of(int which, ckpt_bytes min_peak, ckpt_bytes whole)
{
    const ckpt_bytes low = min_peak + (min_peak + 49) / 50;
    return which == 0 || whole - 1 <= low ? low : low + (whole - 1 - low) * which / (LIMITS - 1);
}

static ckpt_bytes whole_peak(const ckpt_graph *graph, ckpt_arena *arena)
{
    const ckpt_bytes whole = ckpt_test_keep_all(graph, arena);
    return whole - graph->static_bytes;
}

typedef struct judge {
    const ckpt_graph *graph;
    uint64_t seed;
    ckpt_bytes limit, min_peak;
    ckpt_ns best;
} judge;

/* The scopes of bounds, and who knows the best of each. */
static const struct {
    const char *name;
    ckpt_brute_class of;
} scopes[] = {{"all", CKPT_BRUTE_ALL},
              {CKPT_ILP_SCOPE, CKPT_BRUTE_BACKWARD_STAGES},
              {CKPT_ILP_SCOPE_ANY, CKPT_BRUTE_STAGES},
              {CKPT_ILP_SCOPE_TWICE, CKPT_BRUTE_TWICE}};

static void check_bound(const judge *j, const char *who, ckpt_ns bound, const char *scope)
{
    /* test_plan_chain; nothing_that_obeys_is_below_its_bound */
    bool known = strcmp(scope, "chain-persistent") == 0 || strcmp(scope, "flagged") == 0;
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
        if (strcmp(scope, scopes[i].name) == 0) {
            known = true;
            /* what is no more than the best of all is right for every class */
            const ckpt_ns best = bound <= j->best ? j->best : ckpt_brute_time(j->graph, j->limit, scopes[i].of);
            CHECK(bound <= best, "seed %d, limit %lld: %s says nothing of %s is below %lld, but %lld is", (int)j->seed,
                  (long long)j->limit, who, scope, (long long)bound, (long long)best);
        }
    }
    CHECK(known, "seed %d: %s has a bound of scope '%s'", (int)j->seed, who, scope);
}

static void judge_strategy(const judge *j, const ckpt_strategy *strategy, const ckpt_plan_options *options, tally *t)
{
    CKPT_TEST_ARENA(arena);
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_err err = {0};
    CHECK_OK(strategy->plan(j->graph, j->limit, options, &arena, &candidates, &err), err);
    for (int i = 0; i < candidates.count; i++) {
        const ckpt_candidate *const c = &candidates.candidate[i];
        CHECK(c->time >= j->best, "seed %d, limit %lld: %s takes %lld ns, below the optimum %lld", (int)j->seed,
              (long long)j->limit, strategy->name, (long long)c->time, (long long)j->best);
        CHECK(c->peak >= j->min_peak && c->peak <= j->limit, "seed %d, limit %lld: %s peaks at %lld", (int)j->seed,
              (long long)j->limit, strategy->name, (long long)c->peak);
    }
    CHECK(candidates.min_peak.peak >= j->min_peak, "seed %d: %s has a peak of %lld, below the least, %lld",
          (int)j->seed, strategy->name, (long long)candidates.min_peak.peak, (long long)j->min_peak);
    if (candidates.has_bound) {
        check_bound(j, strategy->name, candidates.bound_ns, candidates.bound_scope);
    }
    count(t, j->seed, candidates.count > 0 ? candidates.candidate[0].time : INT64_MAX, j->best);
}

static ckpt_ns judge_auto(const judge *j, const ckpt_plan_options *options)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_plan_options budgeted = *options;
    budgeted.budget_bytes = j->graph->static_bytes + j->limit;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_make(j->graph, "auto", &budgeted, &arena, &plan, &err), err);
    ckpt_ns time = INT64_MAX;
    if (plan->verdict == CKPT_FITS) {
        time = plan->time_ns;
        CHECK(time >= j->best, "seed %d, limit %lld: %s plans %lld ns, below the optimum %lld", (int)j->seed,
              (long long)j->limit, plan->solver, (long long)time, (long long)j->best);
        if (plan->has_bound) {
            check_bound(j, plan->bound_how, plan->bound_ns, plan->bound_scope);
        }
    } else {
        CHECK(plan->min_budget_bytes >= j->graph->static_bytes + j->min_peak,
              "seed %d: a minimum budget below the minimum peak", (int)j->seed);
    }
    ckpt_arena_fini(&arena);
    return time;
}

static void judge_bounds(const judge *j, const ckpt_plan_options *options)
{
    CKPT_TEST_ARENA(arena);
    ckpt_bound bound = {0};
    ckpt_bytes peak = 0;
    ckpt_err err = {0};
    CHECK_OK(ckpt_bound_find(j->graph, j->limit, INT64_MAX, options, &arena, &bound, &err), err);
    CHECK(!bound.infeasible, "seed %d, limit %lld: said to be infeasible", (int)j->seed, (long long)j->limit);
    check_bound(j, bound.how, bound.time_ns, bound.scope);
    CHECK_OK(ckpt_bound_peak(j->graph, &arena, &peak, &err), err);
    CHECK(peak <= j->min_peak, "seed %d: a peak of at least %lld, but %lld is possible", (int)j->seed, (long long)peak,
          (long long)j->min_peak);
}

/* The best persistent schedule of a chain, which strategy chain finds and proves, against the best of all. */
static void judge_persistent(const judge *j, const ckpt_plan_options *options, tally *t)
{
    CKPT_TEST_ARENA(arena);
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_err err = {0};
    CHECK_OK(ckpt_strategy_find("chain")->plan(j->graph, j->limit, options, &arena, &candidates, &err), err);
    CHECK(candidates.count == 0 || (candidates.has_bound && candidates.bound_ns == candidates.candidate[0].time),
          "seed %d, limit %lld: the best of its class is not proved", (int)j->seed, (long long)j->limit);
    count(t, j->seed, candidates.count > 0 ? candidates.candidate[0].time : INT64_MAX, j->best);
}

/* auto and bounds at all limits of every graph; every strategy at one limit of every other graph of each kind. */
static void nothing_is_below_the_optimum(void **state)
{
    static tally strategies[STRATEGIES_MAX];
    tally chains = {0}, others = {0}, persistent = {0};
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .solver = &ckpt_solver_glpk};
    graphs = graphs > 0 ? graphs : ckpt_test_rounds(GRAPHS, GRAPHS / 7);
    for (uint64_t seed = first_seed; seed < first_seed + graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        bool chain = false;
        judge j = {.graph = ckpt_brute_graph(&arena, seed, &chain), .seed = seed};
        j.min_peak = ckpt_brute_peak(j.graph, CKPT_BRUTE_ALL);
        const ckpt_bytes whole = whole_peak(j.graph, &arena);
        for (int which = 0; which < LIMITS; which++) {
            j.limit = limit_of(which, j.min_peak, whole);
            j.best = ckpt_brute_time(j.graph, j.limit, CKPT_BRUTE_ALL);
            const bool asked = seed / KINDS % 2 == 0 && (int)(seed / KINDS / 2 % LIMITS) == which;
            for (int s = 0; ckpt_strategy_table[s] != NULL && asked; s++) {
                assert_true(s < STRATEGIES_MAX);
                if (strcmp(ckpt_strategy_table[s]->name, "auto") != 0) {
                    judge_strategy(&j, ckpt_strategy_table[s], &options, &strategies[s]);
                }
            }
            judge_bounds(&j, &options);
            count(chain ? &chains : &others, seed, judge_auto(&j, &options), j.best);
            if (chain) {
                judge_persistent(&j, &options, &persistent);
            }
        }
    }
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        const char *const name = ckpt_strategy_table[s]->name;
        print(name, &strategies[s]);
        if (strcmp(name, "ilp") == 0) {
            check_near(name, &strategies[s]);
        }
    }
    print("auto, chains", &chains);
    print("persistent", &persistent);
    print("auto, others", &others);
    check_near("auto, others", &others);
    CHECK(chains.equal == chains.cases, "auto: %d of %d limits of chains are optimal", chains.equal, chains.cases);
    /* docs/reference/plan.md says how far the class of persistent schedules is from the optimum */
    CHECK(graphs != GRAPHS || (persistent.answered < persistent.cases && persistent.worst > 0.2),
          "persistent schedules are said to be worse than this: %d of %d, worst %.2f %%", persistent.answered,
          persistent.cases, 100 * persistent.worst);
}

/* What allocations lost was counted in whole thousandths of the bytes: of a hundred bytes that is nothing, no lower limit
 * was asked for, and a slower plan stayed. */
static void what_few_bytes_lose_is_repaired(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .solver = &ckpt_solver_glpk};
    judge j = {.seed = 700009};
    j.graph = ckpt_brute_graph(&arena, j.seed, NULL);
    j.min_peak = ckpt_brute_peak(j.graph, CKPT_BRUTE_ALL);
    j.limit = limit_of(0, j.min_peak, whole_peak(j.graph, &arena));
    j.best = ckpt_brute_time(j.graph, j.limit, CKPT_BRUTE_ALL);
    const ckpt_ns found = judge_auto(&j, &options);
    CHECK(found == j.best, "%lld ns, the optimum is %lld", (long long)found, (long long)j.best);
}

/* ---- bounds for schedules that do what is set ---- */

/* Units of one op and of neighbours, ops that are kept. */
static ckpt_graph *set_something(const ckpt_graph *graph, uint64_t seed, ckpt_arena *arena)
{
    static const char *const unit[] = {"a", "b", "c"};
    ckpt_dice dice = {seed * 7919};
    ckpt_graph *const made = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, graph->op_count);
    int current = 0;
    for (int o = 0; o < graph->op_count; o++) {
        op[o] = graph->op[o];
        current += ckpt_dice_roll(&dice, 3) == 0 && current < 2;
        const int roll = ckpt_dice_roll(&dice, 5);
        if (op[o].phase == CKPT_FORWARD && roll < 3) {
            op[o].checkpoint = roll < 2 ? CKPT_YES : CKPT_NO;
            op[o].segment = roll < 2 ? unit[current] : NULL;
        }
    }
    *made = *graph;
    made->op = op;
    return made;
}

/* The best of all schedules that are recomputed what is set, by trying them: those of the graph in which those runs are
 * ops of their own. */
static void nothing_that_obeys_is_below_its_bound(void **state)
{
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .solver = &ckpt_solver_glpk};
    const uint64_t seeds = ckpt_test_rounds(240, 120);
    int bounds = 0, above = 0, tight = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_order order;
        ckpt_order_init(&order);
        ckpt_unrolled unrolled;
        const ckpt_graph *const graph = set_something(ckpt_brute_graph(&arena, seed, NULL), seed, &arena);
        CHECK_OK(ckpt_flags_order(graph, false, &order, &err), err);
        CHECK_OK(ckpt_flags_unroll(graph, &(ckpt_sequence){order.op, order.count}, &arena, &unrolled, &err), err);
        const bool small = unrolled.graph.buffer_count <= CKPT_BRUTE_BUFFERS &&
                           unrolled.graph.op_count <= CKPT_BRUTE_OPS && unrolled.graph.op_count > graph->op_count;
        const ckpt_bytes min_peak = small ? ckpt_brute_peak(&unrolled.graph, CKPT_BRUTE_ALL) : 0;
        for (int which = 0; which < LIMITS && small; which++) {
            ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
            const ckpt_bytes limit = min_peak + min_peak * which / 12;
            CHECK_OK(ckpt_strategy_find("flags")->plan(graph, limit, &options, &arena, &candidates, &err), err);
            if (candidates.has_bound && strcmp(candidates.bound_scope, "flagged") == 0) {
                const ckpt_ns best = ckpt_brute_time(&unrolled.graph, limit, CKPT_BRUTE_ALL);
                CHECK(candidates.bound_ns <= best, "seed %d, limit %lld: nothing flagged is below %lld, but %lld is",
                      (int)seed, (long long)limit, (long long)candidates.bound_ns, (long long)best);
                bounds++;
                tight += candidates.bound_ns == best;
                above += candidates.bound_ns > ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL);
            }
        }
        ckpt_order_fini(&order);
    }
    print_message("%d bounds of scope flagged, %d reached, %d above the best of all schedules\n", bounds, tight, above);
    CHECK(240 * bounds > 40 * (int)seeds && above > 0, "hardly any bounds: %d, %d above all", bounds, above);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        graphs = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force_is_right),
        cmocka_unit_test(nothing_is_below_the_optimum),
        cmocka_unit_test(what_few_bytes_lose_is_repaired),
        cmocka_unit_test(nothing_that_obeys_is_below_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
