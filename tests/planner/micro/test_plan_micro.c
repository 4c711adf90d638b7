/* labels: unit */
/* Graphs of several micro-batches, made by hand and by lowering: plans and bounds of tiny ones against all schedules
 * there are, the strategy for them against planning without it. `test_plan_micro FIRST COUNT`: other seeds. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/lowering/partition.h"
#include "planner/api/planner.h"
#include "planner/bound/bound.h"
#include "planner/ilp/ilp.h"
#include "planner/ilp/solver.h"
#include "planner/micro/micro_impl.h"
#include "planner/replay/replay.h"
#include "planner/schedule/ways.h"
#include "tests/support/support_brute.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_network.h"

enum { SEEDS = 12, LIMITS = 3 };

static uint64_t first_seed = 1, seeds;

/* ---- copies of a small graph ---- */

typedef struct copies {
    ckpt_arena *arena;
    const ckpt_graph *base;
    int m, forward; /* forward ops of the base */
    ckpt_graph_op *op;
    int op_count;
    int shared; /* a gradient of a parameter, that every micro-batch adds to; -1: none */
} copies;

static ckpt_list shift(const copies *c, ckpt_list from, int j)
{
    int *const at = CKPT_NEW(c->arena, int, from.count + 1);
    assert_non_null(at);
    for (int i = 0; i < from.count; i++) {
        at[i] = from.at[i] + j * c->base->buffer_count;
    }
    return (ckpt_list){at, from.count};
}

static void append_to(ckpt_list *list, int buffer)
{
    ((int *)list->at)[list->count++] = buffer; /* there is room for one more */
}

static void add_ops(copies *c, int from, int to, int j)
{
    for (int o = from; o < to; o++) {
        ckpt_graph_op *const op = &c->op[c->op_count++];
        *op = c->base->op[o];
        op->layer = ckpt_arena_format(c->arena, "n%d@%d", o, j);
        op->name = ckpt_arena_format(c->arena, "n%d@%d/%s", o, j, ckpt_phase_name(op->phase));
        if (op->segment != NULL &&
            c->base->op_count % 2 == 0) { /* else a unit has ops of several, some behind the first backward */
            op->segment = ckpt_arena_format(c->arena, "%s@%d", op->segment, j);
        }
        op->reads = shift(c, op->reads, j);
        op->writes = shift(c, op->writes, j);
        op->adds = shift(c, op->adds, j);
        ckpt_inplace *const pair = CKPT_NEW(c->arena, ckpt_inplace, op->inplace_count);
        for (int p = 0; p < op->inplace_count; p++) {
            pair[p] = (ckpt_inplace){op->inplace[p].out + j * c->base->buffer_count,
                                     op->inplace[p].in + j * c->base->buffer_count};
        }
        op->inplace = pair;
        if (o == c->base->op_count - 1 && c->shared >= 0) {
            append_to(j == 0 ? &op->writes : &op->adds, c->shared);
        }
    }
}

/* 1F1B with `w` micro-batches begun before the first backward. */
static ckpt_graph *copy(ckpt_arena *arena, const ckpt_graph *base, int m, int w, int shared_bytes)
{
    copies c = {.arena = arena, .base = base, .m = m, .shared = shared_bytes > 0 ? m * base->buffer_count : -1};
    const int buffers = m * base->buffer_count + (shared_bytes > 0);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, buffers);
    c.op = CKPT_NEW(arena, ckpt_graph_op, m * base->op_count + 1);
    while (c.forward < base->op_count && base->op[c.forward].phase == CKPT_FORWARD) {
        c.forward++;
    }
    for (int b = 0; b < m * base->buffer_count; b++) {
        buffer[b] = base->buffer[b % base->buffer_count];
        buffer[b].name = ckpt_arena_format(arena, "b%d@%d", b % base->buffer_count, b / base->buffer_count);
    }
    for (int j = 0; j < m + w; j++) {
        add_ops(&c, 0, j < m ? c.forward : 0, j);
        add_ops(&c, c.forward, j >= w ? base->op_count : 0, j - w);
    }
    if (c.shared >= 0) {
        buffer[c.shared] = (ckpt_buffer){"shared", shared_bytes, CKPT_GRADIENT};
        int *const reads = CKPT_NEW(arena, int, 1);
        reads[0] = c.shared;
        c.op[c.op_count++] = (ckpt_graph_op){
            .name = "n0/update", .layer = "n0", .phase = CKPT_UPDATE, .reads = {reads, 1}, .time_ns = 3};
    }
    ckpt_graph *const made = CKPT_NEW(arena, ckpt_graph, 1);
    *made = (ckpt_graph){.source = "test",
                         .name = "copies",
                         .buffer = buffer,
                         .buffer_count = buffers,
                         .op = c.op,
                         .op_count = c.op_count};
    ckpt_err err;
    CHECK_OK(ckpt_graph_check(made, arena, &err), err);
    return made;
}

/* The same graph, of which nobody sees that it has micro-batches. */
static const ckpt_graph *hide(ckpt_arena *arena, const ckpt_graph *graph)
{
    ckpt_graph *const made = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, arena);
    *made = *graph;
    for (int o = 0; o < graph->op_count; o++) {
        op[o].layer = "";
    }
    made->op = op;
    return made;
}

static ckpt_graph *small_copies(ckpt_arena *arena, uint64_t seed, int m, int *w)
{
    ckpt_dice dice = {seed};
    const bool shared = ckpt_dice_roll(&dice, 2) == 0;
    *w = ckpt_dice_roll(&dice, m);
    for (uint64_t recomputed = seed;; recomputed += 1000003) {
        const ckpt_graph *const base = seed % 2 == 0 ? ckpt_test_chain(arena, recomputed, 2, 30, 1, 50)
                                                     : ckpt_test_step(arena, recomputed, 2 + ckpt_dice_roll(&dice, 2));
        ckpt_graph plain = *base; /* a chain or step of its own has no outputs to keep for each */
        plain.outputs.count = 0;
        if (m * base->buffer_count + shared <= CKPT_BRUTE_BUFFERS && m * base->op_count < CKPT_BRUTE_OPS &&
            base->op_count > 0) {
            return copy(arena, &plain, m, *w, shared ? 1 + ckpt_dice_roll(&dice, 30) : 0);
        }
    }
}

/* ---- all schedules ---- */

typedef struct judge {
    const ckpt_graph *graph;
    uint64_t seed;
    ckpt_bytes limit, min_peak;
    ckpt_ns best;
} judge;

static void check_bound(const judge *j, const char *who, ckpt_ns bound, const char *scope)
{
    static const struct {
        const char *name;
        ckpt_brute_class of;
    } scopes[] = {{"all", CKPT_BRUTE_ALL},
                  {CKPT_ILP_SCOPE, CKPT_BRUTE_BACKWARD_STAGES},
                  {CKPT_ILP_SCOPE_ANY, CKPT_BRUTE_STAGES},
                  {CKPT_ILP_SCOPE_TWICE, CKPT_BRUTE_TWICE}};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
        if (strcmp(scope, scopes[i].name) == 0 && bound > j->best) {
            const ckpt_ns best = ckpt_brute_time(j->graph, j->limit, scopes[i].of);
            CHECK(bound <= best, "seed %d, limit %lld: %s says nothing of %s is below %lld, but %lld is", (int)j->seed,
                  (long long)j->limit, who, scope, (long long)bound, (long long)best);
        }
    }
}

static ckpt_ns judge_plan(const judge *j, const char *strategy, const ckpt_graph *graph)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const ckpt_plan_options options = {
        .effort = CKPT_EFFORT_LOW, .solver = &ckpt_solver_glpk, .budget_bytes = graph->static_bytes + j->limit};
    ckpt_plan *plan = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_plan_make(graph, strategy, &options, &arena, &plan, &err), err);
    ckpt_ns time = INT64_MAX;
    if (plan->verdict == CKPT_FITS) {
        time = plan->time_ns;
        ckpt_test_replay(graph, plan, strategy);
        CHECK(time >= j->best, "seed %d, limit %lld: %s plans %lld ns, below the optimum %lld", (int)j->seed,
              (long long)j->limit, strategy, (long long)time, (long long)j->best);
        if (plan->has_bound) {
            check_bound(j, strategy, plan->bound_ns, plan->bound_scope);
        }
    }
    ckpt_arena_fini(&arena);
    return time;
}

static void judge_answer(const judge *j, const ckpt_strategy *strategy)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .solver = &ckpt_solver_glpk};
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_err err;
    CHECK_OK(strategy->plan(j->graph, j->limit, &options, &arena, &candidates, &err), err);
    for (int i = 0; i < candidates.count; i++) {
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        const ckpt_candidate *const c = &candidates.candidate[i];
        CHECK(c->time >= j->best && c->peak >= j->min_peak && c->peak <= j->limit, "seed %d: %s: %lld ns, %lld bytes",
              (int)j->seed, strategy->name, (long long)c->time, (long long)c->peak);
        ckpt_test_measure(j->graph, c->sequence.op, c->sequence.count, &peak, &time);
        CHECK(peak == c->peak && time == c->time, "seed %d: %s says %lld ns, %lld bytes", (int)j->seed, strategy->name,
              (long long)c->time, (long long)c->peak);
    }
    CHECK(candidates.min_peak.peak >= j->min_peak, "seed %d: %s: least peak %lld", (int)j->seed, strategy->name,
          (long long)candidates.min_peak.peak);
    if (candidates.has_bound) {
        check_bound(j, strategy->name, candidates.bound_ns, candidates.bound_scope);
    }
}

static ckpt_bytes keep_all(const ckpt_graph *graph, ckpt_arena *arena)
{
    const ckpt_bytes whole = ckpt_test_keep_all(graph, arena);
    return whole - graph->static_bytes;
}

static void nothing_is_below_the_optimum(void **state)
{
    int cases = 0, equal = 0, answered = 0, better = 0;
    double excess = 0;
    seeds = seeds > 0 ? seeds : ckpt_test_rounds(SEEDS, SEEDS / 5);
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        int w = 0;
        judge j = {.graph = small_copies(&arena, seed, 2, &w), .seed = seed};
        j.min_peak = ckpt_brute_peak(j.graph, CKPT_BRUTE_ALL);
        const ckpt_bytes whole = keep_all(j.graph, &arena);
        if (seeds != SEEDS) {
            printf("seed %d\n", (int)seed);
        }
        for (int which = 0; which < LIMITS; which++) {
            j.limit =
                whole - 1 > j.min_peak ? j.min_peak + (whole - 1 - j.min_peak) * which / (LIMITS - 1) : j.min_peak;
            j.best = ckpt_brute_time(j.graph, j.limit, CKPT_BRUTE_ALL);
            const ckpt_ns with = judge_plan(&j, "auto", j.graph);
            const ckpt_ns without = judge_plan(&j, "auto", hide(&arena, j.graph));
            CHECK(with <= without, "seed %d, limit %lld: %lld ns, but %lld without looking at micro-batches", (int)seed,
                  (long long)j.limit, (long long)with, (long long)without);
            for (int s = 0; ckpt_strategy_table[s] != NULL && which == (int)(seed % LIMITS); s++) {
                if (strcmp(ckpt_strategy_table[s]->name, "auto") != 0) {
                    judge_answer(&j, ckpt_strategy_table[s]);
                }
            }
            (void)judge_plan(&j, "micro", j.graph);
            cases++;
            better += with < without;
            answered += with < INT64_MAX;
            equal += with == j.best;
            excess += with < INT64_MAX ? (double)with / (double)(j.best > 0 ? j.best : 1) - 1 : 0;
        }
    }
    printf("auto: %d of %d limits, %d optimal, %d better than without, excess mean %.3f %%\n", answered, cases, equal,
           better, 100 * excess / (answered > 0 ? answered : 1));
    CHECK(answered * 100 >= cases * 95 && equal * 100 >= answered * 90, "%d of %d, %d optimal", answered, cases, equal);
}

/* ---- what is found, and what is not ---- */

static ckpt_micro *find(ckpt_arena *arena, const ckpt_graph *graph)
{
    ckpt_micro *micro = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_micro_find(graph, arena, &micro, &err), err);
    return micro;
}

/* One micro-batch with nothing run again, in every micro-batch: reference order. */
static void check_reference(ckpt_arena *arena, const ckpt_micro *m)
{
    ckpt_order order, one;
    ckpt_order_init(&order);
    ckpt_order_init(&one);
    ckpt_order_range(&one, 0, m->one.op_count);
    const ckpt_sequence sequence = {one.op, one.count};
    const ckpt_sequence **const chosen = CKPT_NEW(arena, const ckpt_sequence *, m->batches);
    int *const at = CKPT_NEW(arena, int, 2 * m->batches);
    for (int j = 0; j < m->batches; j++) {
        chosen[j] = &sequence;
    }
    ckpt_micro_compose(m, chosen, at, &order);
    assert_int_equal(order.count, m->whole->op_count);
    for (int i = 0; i < order.count; i++) {
        assert_int_equal(order.op[i], i);
    }
    ckpt_order_fini(&order);
    ckpt_order_fini(&one);
}

static void copies_are_found(void **state)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        for (int m = 2; m <= 5; m++) {
            CKPT_TEST_ARENA(arena);
            const ckpt_graph *const base = ckpt_test_step(&arena, seed, 4);
            ckpt_graph plain = *base;
            plain.outputs.count = 0;
            const int w = (int)(seed % (uint64_t)m);
            const ckpt_graph *const graph = copy(&arena, &plain, m, w, seed % 3 == 0 ? 8 : 0);
            const ckpt_micro *const micro = find(&arena, graph);
            assert_non_null(micro);
            assert_int_equal(micro->batches, m);
            assert_int_equal(micro->in_flight, w);
            assert_int_equal(micro->holds, w > 0);
            assert_int_equal(micro->one.op_count, base->op_count + (w > 0));
            check_reference(&arena, micro);
        }
    }
}

/* Anything that makes one micro-batch another than the first. */
static void others_are_not(void **state)
{
    for (int change = 0; change <= 7; change++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const base = ckpt_test_chain(&arena, 7, 4, 30, 1, 50);
        ckpt_graph *const graph = copy(&arena, base, 3, 1, 5);
        ckpt_graph_op *const op = (ckpt_graph_op *)&graph->op[base->op_count / 2 + 1]; /* forward of micro-batch 1 */
        assert_int_equal(op->phase, CKPT_FORWARD);
        assert_true(op->reads.count > 0);
        switch (change) {
        case 1: op->recompute = !op->recompute; break;
        case 2: op->name = ckpt_arena_format(&arena, "%s/more", op->name); break;
        case 3: ((ckpt_buffer *)graph->buffer)[op->writes.at[0]].bytes++; break;
        case 4: op->reads.count--; break;
        case 5: ((int *)op->reads.at)[0] -= base->buffer_count; break; /* what the first has made */
        case 6: op->layer = "n1"; break;
        case 7: op->layer = "n1@7"; break;
        default: break;
        }
        assert_int_equal(find(&arena, graph) != NULL, change == 0);
    }
}

/* ---- lowered networks ---- */

static void build(test_model *m)
{
    test_model_rows(m, 64, 32);
    test_layer(m, "l0", "linear", "x", "features=32");
    for (int i = 1; i <= 5; i++) {
        const char *const before = i == 1 ? "l0" : ckpt_arena_format(&m->arena, "r%d", i - 1);
        test_layer(m, ckpt_arena_format(&m->arena, "n%d", i), "layernorm", before, "");
        test_layer(m, ckpt_arena_format(&m->arena, "g%d", i), "gelu", "", "");
        test_layer(m, ckpt_arena_format(&m->arena, "l%d", i), "linear", "", "features=32");
        test_layer(m, ckpt_arena_format(&m->arena, "r%d", i), "add", ckpt_arena_format(&m->arena, "l%d %s", i, before),
                   "");
    }
    test_layer(m, "loss", "mse", "r5 t", "");
}

static const ckpt_lowered *lower(test_model *m, ckpt_scheme scheme)
{
    const ckpt_network *const network = test_infer(m);
    const ckpt_lowered *whole = NULL, *lowered = NULL;
    const ckpt_network *spread = NULL;
    ckpt_err err;
    if (scheme.stages > 1) {
        CHECK_OK(ckpt_network_lower(network, NULL, NULL, &m->arena, &whole, &err), err);
        ckpt_scheme one = scheme; /* stages alike, though the first holds more micro-batches */
        one.micro_batches = 1;
        CHECK_OK(ckpt_partition_choose(network, whole, &one, 0.5, &m->arena, &scheme.first_layer, &err), err);
    }
    CHECK_OK(ckpt_network_spread(network, &scheme, &m->arena, &spread, &err), err);
    CHECK_OK(ckpt_network_lower(spread, NULL, NULL, &m->arena, &lowered, &err), err);
    return lowered;
}

/* Is the plan legal, and not slower than of one that knows no micro-batches? */
static void check_lowered(const ckpt_graph *graph, const char *what)
{
    CKPT_TEST_ARENA(arena);
    ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .budget_bytes = 1};
    ckpt_plan *min_peak = NULL;
    ckpt_plan *plan = NULL;
    ckpt_plan *other = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_plan_make(graph, "micro", &options, &arena, &min_peak, &err), err);
    assert_int_equal(min_peak->verdict, CKPT_INFEASIBLE);
    for (int part = 0; part <= 2; part += 2) {
        const ckpt_bytes low = min_peak->min_budget_bytes;
        options.budget_bytes = low + (min_peak->keep_all_peak_bytes - low) * part / 3;
        CHECK_OK(ckpt_plan_make(graph, "micro", &options, &arena, &plan, &err), err);
        CHECK(plan->verdict == CKPT_FITS, "%s: no plan within %lld bytes", what, (long long)options.budget_bytes);
        ckpt_test_replay(graph, plan, what);
        CHECK_OK(ckpt_plan_make(hide(&arena, graph), "hierarchy", &options, &arena, &other, &err), err);
        const ckpt_ns slack = other->time_ns / 20; /* few micro-batches, of which each has another place */
        CHECK(other->verdict != CKPT_FITS || plan->time_ns <= other->time_ns + slack || part == 0,
              "%s, part %d: %lld ns, hierarchy %lld", what, part, (long long)plan->time_ns, (long long)other->time_ns);
    }
}

static void lowered_networks(void **state)
{
    for (int stages = 1; stages <= 3; stages++) {
        for (int stage = 0; stage < stages; stage++) {
            for (int kind = stages < 3 ? 0 : 2; kind < (stages < 3 ? 2 : 4); kind++) {
                ckpt_scheme scheme = ckpt_scheme_alone;
                scheme.micro_batches = 2 + stage + kind;
                scheme.stages = stages;
                scheme.stage = stage;
                scheme.fused = kind % 2 == 1;
                scheme.replicas = kind >= 2 ? 2 : 1;
                scheme.overlap = kind == 3;
                test_model m;
                build(&m);
                const ckpt_lowered *const l = lower(&m, scheme);
                char what[80];
                (void)snprintf(what, sizeof what, "stage %d of %d, %d micro-batches, kind %d", stage, stages,
                               scheme.micro_batches, kind);
                const ckpt_graph *plain = NULL; /* it is asked for graphs without variants; these have inexact ones */
                ckpt_err err;
                CHECK_OK(ckpt_ways_allowed(l->graph, &(ckpt_plan_options){0}, &m.arena, &plain, &err), err);
                const ckpt_micro *const micro = find(&m.arena, plain);
                CHECK(micro != NULL, "%s: nothing is alike", what);
                const int ahead = stages - 1 - stage;
                const int most = scheme.micro_batches - 1;
                assert_int_equal(micro->in_flight, ahead < most ? ahead : most);
                check_reference(&m.arena, micro);
                check_lowered(l->graph, what);
                test_model_fini(&m);
            }
        }
    }
}

/* Micro-batches one after the other, with nothing in common: the best of the whole is the best of one, each time. */
static void one_after_the_other(void **state)
{
    int proved = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const base = ckpt_test_chain(&arena, seed, 6, 30, 1, 50);
        const ckpt_graph *const graph = copy(&arena, base, 5, 0, 0);
        const ckpt_bytes limit = keep_all(base, &arena) * 2 / 3;
        const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
        ckpt_candidates one = {.min_peak = {.peak = CKPT_BYTES_MAX}}, all = one;
        ckpt_err err;
        CHECK_OK(ckpt_strategy_find("auto")->plan(base, limit, &options, &arena, &one, &err), err);
        CHECK_OK(ckpt_strategy_find("micro")->plan(graph, limit, &options, &arena, &all, &err), err);
        assert_int_equal(one.count > 0, all.count > 0);
        if (one.count > 0) {
            assert_int_equal(all.candidate[0].time, 5 * one.candidate[0].time);
            proved += all.has_bound && all.bound_ns == all.candidate[0].time;
        }
        assert_int_equal(all.min_peak.peak, one.min_peak.peak);
    }
    CHECK(proved >= 6, "only %d proved", proved);
}

/* ---- what a user sets ---- */

static void set_layers_are_recomputed(void **state)
{
    test_model m;
    build(&m);
    for (int i = 0; i < m.model.layer_count; i++) {
        if (strchr("ngl", m.layer[i].name[0]) != NULL && m.layer[i].name[1] >= '1' && m.layer[i].name[1] <= '5') {
            m.layer[i].checkpoint = CKPT_YES;
            m.layer[i].segment = ckpt_arena_format(&m.arena, "unit%c", m.layer[i].name[1]);
        }
    }
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = 3;
    const ckpt_graph *const graph = lower(&m, scheme)->graph;
    ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
    ckpt_plan *free_plan = NULL;
    ckpt_plan *tight = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_plan_make(graph, "flags", &options, &m.arena, &free_plan, &err), err);
    options.budget_bytes = 1;
    CHECK_OK(ckpt_plan_make(graph, "flags", &options, &m.arena, &tight, &err), err);
    assert_true(tight->min_budget_bytes < free_plan->peak_bytes);
    options.budget_bytes = (tight->min_budget_bytes + free_plan->peak_bytes) / 2;
    CHECK_OK(ckpt_plan_make(graph, "flags", &options, &m.arena, &tight, &err), err);
    const ckpt_plan *const plans[] = {free_plan, tight};
    for (int p = 0; p < 2; p++) {
        assert_int_equal(plans[p]->verdict, CKPT_FITS);
        ckpt_test_replay(graph, plans[p], "flags");
        int recomputed = 0;
        for (int s = 0; s < plans[p]->step_count; s++) {
            recomputed +=
                plans[p]->step[s].kind == CKPT_RUN && plans[p]->step[s].recomputed && plans[p]->step[s].name[0] == 'g';
        }
        assert_int_equal(recomputed, 3 * 5);
    }
    test_model_fini(&m);
}

/* ---- no memory ---- */

static ckpt_code plan_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *const graph = context;
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX}};
    return ckpt_strategy_find("micro")->plan(graph, 60, &options, arena, &candidates, err);
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const base = ckpt_test_chain(&arena, 3, 3, 20, 1, 50);
    ckpt_test_starve_arena(plan_starved, copy(&arena, base, 3, 1, 4));
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        seeds = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_found),
        cmocka_unit_test(others_are_not),
        cmocka_unit_test(lowered_networks),
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(set_layers_are_recomputed),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(nothing_is_below_the_optimum),
    };
    const struct CMUnitTest last[] = {cmocka_unit_test(nothing_is_below_the_optimum)};
    return argc == 3 ? cmocka_run_group_tests(last, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
