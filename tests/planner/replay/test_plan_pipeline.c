/* labels: unit */
/* Stages on one clock against a plain simulation that knows nothing but names and times, and against the formula of
 * 1F1B's bubble. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "ops/lowering/partition.h"
#include "planner/api/planner.h"
#include "planner/replay/pipeline.h"
#include "tests/support/support_network.h"

enum { STAGES = 5, OPS = 4096 };

/* ---- stages by hand: one forward and one backward op per micro-batch, and messages ---- */

typedef struct hand {
    ckpt_arena *arena;
    ckpt_graph_op op[OPS];
    int count;
} hand;

static void add(hand *h, const char *layer, int j, const char *what, ckpt_phase phase, ckpt_ns time)
{
    ckpt_graph_op *const op = &h->op[h->count++];
    *op = (ckpt_graph_op){.phase = phase, .time_ns = time};
    op->layer = ckpt_arena_format(h->arena, "%s@%d", layer, j);
    op->name = ckpt_arena_format(h->arena, "%s@%d/%s", layer, j, what);
}

static void forward(hand *h, int s, int stages, int j, ckpt_ns time, ckpt_ns message)
{
    const char *const mine = ckpt_arena_format(h->arena, "x%d", s);
    if (s > 0) {
        add(h, ckpt_arena_format(h->arena, "x%d", s - 1), j, "receive", CKPT_FORWARD, message);
    }
    add(h, mine, j, "forward", CKPT_FORWARD, time);
    if (s + 1 < stages) {
        add(h, mine, j, "send", CKPT_FORWARD, 0);
    }
}

static void backward(hand *h, int s, int stages, int j, ckpt_ns time, ckpt_ns message)
{
    const char *const mine = ckpt_arena_format(h->arena, "x%d", s);
    if (s + 1 < stages) {
        add(h, mine, j, "grad/receive", CKPT_BACKWARD, message);
        add(h, mine, j, "sent", CKPT_FORWARD, 0);
    }
    add(h, mine, j, "backward", CKPT_BACKWARD, time);
    if (s > 0) {
        add(h, ckpt_arena_format(h->arena, "x%d", s - 1), j, "grad/send", CKPT_BACKWARD, 0);
    }
}

static const ckpt_graph *stage_by_hand(ckpt_arena *arena, int s, int stages, int m, ckpt_ns f, ckpt_ns b,
                                       ckpt_ns message)
{
    static hand h;
    h = (hand){.arena = arena};
    const int ahead = stages - 1 - s < m ? stages - 1 - s : m;
    for (int j = 0; j < m + ahead; j++) {
        if (j < m) {
            forward(&h, s, stages, j, f, message);
        }
        if (j >= ahead) {
            backward(&h, s, stages, j - ahead, b, message);
        }
    }
    ckpt_graph *const g = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, h.count);
    memcpy(op, h.op, (size_t)h.count * sizeof *op);
    *g = (ckpt_graph){.source = "test", .name = "hand", .op = op, .op_count = h.count};
    ckpt_err err;
    CHECK_OK(ckpt_graph_check(g, arena, &err), err);
    return g;
}

static const ckpt_plan *plan_of(ckpt_arena *arena, const ckpt_graph *graph, ckpt_bytes budget)
{
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .budget_bytes = budget};
    ckpt_plan *plan = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_plan_make(graph, budget > 0 ? "auto" : "keep-all", &options, arena, &plan, &err), err);
    assert_int_equal(plan->verdict, CKPT_FITS);
    return plan;
}

static void simulate_hand(ckpt_arena *arena, int stages, int m, ckpt_ns f, ckpt_ns b, ckpt_ns message,
                          ckpt_pipeline *made)
{
    const ckpt_graph *graph[STAGES];
    const ckpt_plan *plan[STAGES];
    for (int s = 0; s < stages; s++) {
        graph[s] = stage_by_hand(arena, s, stages, m, f, b, message);
        plan[s] = plan_of(arena, graph[s], 0);
    }
    ckpt_err err;
    CHECK_OK(ckpt_pipeline_simulate(plan, graph, stages, arena, made, &err), err);
}

/* Equal stages and free messages: (stages - 1) / (m + stages - 1) of the time is idle, in every stage. */
static void ideal_bubble(void **state)
{
    for (int stages = 1; stages <= STAGES; stages++) {
        for (int m = stages; m <= 12; m++) { /* with fewer it is not 1F1B that limits */
            CKPT_TEST_ARENA(arena);
            ckpt_pipeline p;
            simulate_hand(&arena, stages, m, 10, 20, 0, &p);
            assert_int_equal(p.time_ns, 30 * (m + stages - 1));
            for (int s = 0; s < stages; s++) {
                assert_int_equal(p.stage[s].busy_ns, 30 * m);
                assert_int_equal(p.stage[s].idle_ns * (m + stages - 1), p.time_ns * (stages - 1));
                assert_true(p.stage[s].bubble == (double)p.stage[s].idle_ns / (double)p.time_ns);
            }
        }
    }
}

/* ---- a plain simulation: the time of every step again and again from all others, until nothing changes ---- */

typedef struct plain {
    const ckpt_plan *plan[STAGES];
    const ckpt_graph *graph[STAGES];
    int stages;
    ckpt_ns come[STAGES][OPS], begin[STAGES][OPS], end[STAGES][OPS]; /* per step */
} plain;

static int step_named(const plain *p, int s, const char *name)
{
    for (int i = 0; s >= 0 && s < p->stages && i < p->plan[s]->step_count; i++) {
        const ckpt_step *const step = &p->plan[s]->step[i];
        if (step->kind == CKPT_RUN && !step->recomputed && strcmp(step->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* When what step i of stage s waits for is there. */
static ckpt_ns arrival(const plain *p, int s, int i)
{
    char other[256];
    const ckpt_step *const step = &p->plan[s]->step[i];
    const char *const last = strrchr(step->name, '/');
    const bool receives = strcmp(last, "/receive") == 0;
    if (step->kind != CKPT_RUN || step->recomputed || (!receives && strcmp(last, "/sent") != 0)) {
        return 0;
    }
    (void)snprintf(other, sizeof other, "%.*s%s", (int)(last - step->name), step->name,
                   receives ? "/send" : "/receive");
    const bool gradient = strstr(other, "/grad/") != NULL;
    for (int t = s; t >= 0 && t < p->stages; t += gradient == receives ? 1 : -1) {
        const int k = t != s ? step_named(p, t, other) : -1;
        if (k >= 0) {
            return receives ? p->end[t][k] : p->come[t][k];
        }
    }
    fail_msg("nobody has %s", other);
    return 0;
}

static ckpt_ns settle(plain *p)
{
    ckpt_ns total = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int s = 0; s < p->stages; s++) {
            ckpt_ns now = 0;
            for (int i = 0; i < p->plan[s]->step_count; i++) {
                const ckpt_step *const step = &p->plan[s]->step[i];
                const ckpt_ns there = step->kind == CKPT_RUN ? arrival(p, s, i) : 0;
                const ckpt_ns begin = there > now ? there : now;
                const ckpt_ns end = begin + (step->kind == CKPT_RUN ? p->graph[s]->op[step->target].time_ns : 0);
                changed = changed || end != p->end[s][i] || begin != p->begin[s][i] || now != p->come[s][i];
                p->come[s][i] = now;
                p->begin[s][i] = begin;
                p->end[s][i] = end;
                now = end;
            }
            total = now > total ? now : total;
        }
    }
    return total;
}

static void compare(const plain *p, const ckpt_pipeline *made, ckpt_ns total, const char *what)
{
    CHECK(made->time_ns == total, "%s: %lld ns, wanted %lld", what, (long long)made->time_ns, (long long)total);
    for (int s = 0; s < p->stages; s++) {
        const ckpt_trace *const trace = made->stage[s].trace;
        char name[64];
        (void)snprintf(name, sizeof name, ", stage %d of %d", s, p->stages);
        assert_non_null(strstr(trace->name, name));
        ckpt_ns idle = total - p->end[s][p->plan[s]->step_count - 1];
        int e = 0;
        for (int i = 0; i < p->plan[s]->step_count; i++) {
            const ckpt_ns waits = p->begin[s][i] - p->come[s][i];
            if (waits > 0) {
                const ckpt_event *const wait = &trace->event[e++];
                assert_int_equal(wait->span, CKPT_SPAN_WAIT);
                assert_int_equal(wait->start_ns, p->come[s][i]);
                assert_int_equal(wait->end_ns, p->begin[s][i]);
                assert_int_equal(wait->step, i);
            }
            const ckpt_event *const event = &trace->event[e++];
            assert_string_equal(event->name, p->plan[s]->step[i].name);
            assert_int_equal(event->step, i);
            assert_int_equal(event->start_ns, p->begin[s][i]);
            assert_int_equal(event->end_ns, p->end[s][i]);
            idle += waits;
        }
        assert_int_equal(trace->event_count, e);
        assert_int_equal(made->stage[s].idle_ns, idle);
        ckpt_bytes peak = 0;
        for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
            peak += trace->event[trace->peak_event].bytes[c];
        }
        assert_int_equal(peak, trace->peak_bytes);
    }
}

static void build(test_model *m, int layers)
{
    test_model_rows(m, 256, 32);
    for (int i = 0; i < layers; i++) {
        test_layer(m, ckpt_arena_format(&m->arena, "l%d", i), "linear", i == 0 ? "x" : "", "features=32");
        test_layer(m, ckpt_arena_format(&m->arena, "g%d", i), "gelu", "", "");
    }
    /* a value that goes over several stages */
    test_layer(m, "far", "add", ckpt_arena_format(&m->arena, "g%d l0", layers - 1), "");
    test_layer(m, "loss", "mse", "far t", "");
}

static void lowered_networks(void **state)
{
    static plain p;
    for (int round = 0; round < 24; round++) {
        test_model m;
        ckpt_scheme scheme = ckpt_scheme_alone;
        const ckpt_network *network = NULL, *spread = NULL;
        const ckpt_lowered *whole = NULL, *lowered = NULL;
        ckpt_err err;
        build(&m, 5 + (int)ckpt_test_draw(4));
        scheme.stages = 2 + (int)ckpt_test_draw(STAGES - 1);
        scheme.micro_batches = 1 + (int)ckpt_test_draw(6);
        scheme.fused = ckpt_test_draw(2) == 0;
        scheme.network_bytes_per_s = 1000000 * (1 + (int64_t)ckpt_test_draw(5000));
        network = test_infer(&m);
        CHECK_OK(ckpt_network_lower(network, NULL, NULL, &m.arena, &whole, &err), err);
        CHECK_OK(ckpt_partition_choose(network, whole, &scheme, 0.5, &m.arena, &scheme.first_layer, &err), err);
        memset(&p, 0, sizeof p);
        p.stages = scheme.stages;
        for (int s = 0; s < scheme.stages; s++) {
            scheme.stage = s;
            CHECK_OK(ckpt_network_spread(network, &scheme, &m.arena, &spread, &err), err);
            CHECK_OK(ckpt_network_lower(spread, NULL, NULL, &m.arena, &lowered, &err), err);
            p.graph[s] = lowered->graph;
            const ckpt_plan *const all = plan_of(&m.arena, p.graph[s], 0);
            const ckpt_bytes some = all->peak_bytes - (all->peak_bytes - all->static_bytes) / 8;
            const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .budget_bytes = some};
            ckpt_plan *plan = NULL;
            CHECK_OK(ckpt_plan_make(p.graph[s], "auto", &options, &m.arena, &plan, &err), err);
            p.plan[s] = plan->verdict == CKPT_FITS ? plan : all;
            assert_in_range(p.plan[s]->step_count, 1, OPS - 1);
        }
        ckpt_pipeline made;
        CHECK_OK(ckpt_pipeline_simulate(p.plan, p.graph, p.stages, &m.arena, &made, &err), err);
        char what[64];
        (void)snprintf(what, sizeof what, "round %d, %d stages, %d micro-batches", round, p.stages,
                       scheme.micro_batches);
        compare(&p, &made, settle(&p), what);
        test_model_fini(&m);
    }
}

/* ---- refused ---- */

static void refused(ckpt_arena *arena, const ckpt_graph *const *graph, int stages, const char *wanted)
{
    const ckpt_plan *plan[STAGES];
    ckpt_pipeline made;
    ckpt_err err;
    for (int s = 0; s < stages; s++) {
        plan[s] = plan_of(arena, graph[s], 0);
    }
    assert_int_equal(ckpt_pipeline_simulate(plan, graph, stages, arena, &made, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, wanted);
}

static void stages_that_wait_for_each_other(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph[] = {stage_by_hand(&arena, 0, 2, 2, 1, 1, 0),
                                       stage_by_hand(&arena, 1, 2, 2, 1, 1, 0)};
    ckpt_graph_op *const op = (ckpt_graph_op *)graph[0]->op;
    const ckpt_graph_op held = op[1]; /* the first is sent only behind the gradient that comes of it */
    memmove(op + 1, op + 2, 3 * sizeof *op);
    op[4] = held;
    refused(&arena, graph, 2, "stages wait for each other: stage 0 in x0@0/grad/receive, stage 1 in x0@0/receive");
    const ckpt_graph *const lone[] = {graph[1], graph[1]};
    refused(&arena, lone, 2, "stage 0 has x0@0/receive, but no stage before it has x0@0/send");
}

static ckpt_code starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const plain *const p = context;
    ckpt_pipeline made;
    return ckpt_pipeline_simulate(p->plan, p->graph, p->stages, arena, &made, err);
}

static void no_memory(void **state)
{
    static plain p;
    CKPT_TEST_ARENA(arena);
    p.stages = 3;
    for (int s = 0; s < 3; s++) {
        p.graph[s] = stage_by_hand(&arena, s, 3, 3, 2, 3, 1);
        p.plan[s] = plan_of(&arena, p.graph[s], 0);
    }
    ckpt_test_starve_arena(starved, &p);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ideal_bubble),
        cmocka_unit_test(lowered_networks),
        cmocka_unit_test(stages_that_wait_for_each_other),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
