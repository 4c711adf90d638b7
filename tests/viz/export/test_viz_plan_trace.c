/* labels: unit */
/* Plans as traces, against the simulator, which knows the graph: random steps, and models through files; plans that say
 * too little or what cannot be. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "planner/replay/replay.h"
#include "tests/support/support_sequence.h"
#include "tests/support/support_train.h"
#include "viz/timeline/live_ranges.h"

typedef struct made {
    ckpt_arena arena;
    const ckpt_graph *graph;
    ckpt_plan *plan;
    const ckpt_trace *simulated, *shown; /* the plan by the simulator, and by itself */
} made;

static void make(made *m, uint64_t seed)
{
    ckpt_err err = {0};
    char what[40];
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
    ckpt_arena_init(&m->arena);
    const ckpt_graph *const step = ckpt_test_step(&m->arena, seed, 3 + (int)(seed % 14));
    m->graph = ckpt_test_variant(step, &m->arena, seed, seed % 2 == 0, seed % 3 == 0 ? 0 : 33000000000, 20000000000);
    for (int i = 0; i < m->graph->op_count; i++) { /* in memory that this test made */
        ckpt_graph_op *const op = (ckpt_graph_op *)&m->graph->op[i];
        op->phase = op->phase == CKPT_UPDATE && seed % 5 == 0 ? CKPT_REDUCE : op->phase;
    }
    const ckpt_sequence sequence = ckpt_test_sequence(m->graph, &m->arena, seed);
    m->plan = ckpt_test_plan(m->graph, &sequence, &m->arena, what);
    m->plan->graph_name = m->graph->name;
    CHECK_OK(ckpt_plan_outline(m->graph, &m->arena, &m->plan->outline, &err), err);
    CHECK_OK(ckpt_plan_simulate(m->plan, m->graph, &m->arena, &m->simulated, &err), err);
    CHECK_OK(ckpt_plan_as_trace(m->plan, &m->arena, &m->shown, &err), err);
}

static void same_text(const char *a, const char *b, const char *what, int at)
{
    CHECK(strcmp(a, b) == 0, "%s of event %d: \"%s\" and \"%s\"", what, at, a, b);
}

/* All but the times, and that a free which waits for a copy is a wait. */
static void same_trace(const ckpt_trace *a, const ckpt_trace *b)
{
    assert_int_equal(a->event_count, b->event_count);
    same_text(a->name, b->name, "name", -1);
    same_text(a->plan, b->plan, "plan", -1);
    same_text(a->machine.device, b->machine.device, "costs", -1);
    assert_int_equal(a->budget_bytes, b->budget_bytes);
    assert_int_equal(a->static_bytes, b->static_bytes);
    assert_int_equal(a->arena_bytes, b->arena_bytes);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->peak_event, b->peak_event);
    for (int i = 0; i < a->event_count; i++) {
        const ckpt_event *const x = &a->event[i], *const y = &b->event[i];
        assert_int_equal(x->step, y->step);
        same_text(x->name, y->name, "name", i);
        same_text(x->layer, y->layer, "layer", i);
        same_text(x->stream, y->stream, "stream", i);
        same_text(ckpt_span_name(x->span == CKPT_SPAN_WAIT ? CKPT_SPAN_FREE : x->span), ckpt_span_name(y->span),
                  "phase", i);
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            CHECK(x->bytes[c] == y->bytes[c], "event %d (%s): %lld and %lld bytes of %s", i, x->name,
                  (long long)x->bytes[c], (long long)y->bytes[c], ckpt_category_name((ckpt_category)c));
        }
    }
    assert_int_equal(a->allocation_count, b->allocation_count);
    for (int i = 0; i < a->allocation_count; i++) {
        const ckpt_trace_allocation *const x = &a->allocation[i], *const y = &b->allocation[i];
        same_text(x->name, y->name, "place", i);
        assert_true(x->category == y->category && x->from == y->from && x->to == y->to && x->offset == y->offset &&
                    x->bytes == y->bytes);
    }
}

static void plans_are_the_traces_they_predict(void **state)
{
    int copied = 0, recomputed = 0, inplace = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        made m;
        make(&m, seed);
        same_trace(m.simulated, m.shown);
        assert_int_equal(m.shown->time_ns, m.plan->time_ns);
        for (int i = 0; i < m.plan->step_count; i++) {
            copied += m.plan->step[i].kind == CKPT_OFFLOAD;
            recomputed += m.plan->step[i].recomputed;
            inplace += m.plan->step[i].inplace;
        }
        ckpt_arena_fini(&m.arena);
    }
    CHECK(copied > 80 && recomputed > 80 && inplace > 80, "%d copies, %d runs again, %d in place", copied, recomputed,
          inplace);
}

/* A plan's file alone gives what its trace's file says. */
static void files_of_models(void **state)
{
    static const struct {
        const char *file, *set, *strategy;
        int percent;
    } table[] = {
        {"models/byte-gpt.json", "batch=2", "keep-all", 100},       {"models/byte-gpt.json", "batch=2", "greedy", 60},
        {"models/unet.json", "batch=1", "hierarchy", 50},           {"models/lstm.json", "", "hierarchy", 70},
        {"models/mobilenetv2.json", "batch=1", "offload-only", 80},
    };
    int copies = 0, recomputed = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        test_train t;
        ckpt_err err = {0};
        ckpt_text text;
        ckpt_bytes whole = 0;
        ckpt_ns once = 0;
        ckpt_plan *read = NULL;
        const ckpt_trace *simulated = NULL, *traced = NULL, *shown = NULL;
        test_train_open(&t, table[i].file, table[i].set);
        CHECK_OK(ckpt_keep_all_measure(t.lowered->graph, &t.arena, &whole, &once, &err), err);
        const ckpt_bytes fixed = t.lowered->graph->static_bytes;
        ckpt_plan *const plan =
            test_train_plan(&t, table[i].strategy, fixed + (whole - fixed) * table[i].percent / 100);
        CHECK(plan->verdict == CKPT_FITS, "%s does not fit %d %% of the arena", table[i].file, table[i].percent);
        CHECK_OK(ckpt_plan_simulate(plan, t.lowered->graph, &t.arena, &simulated, &err), err);
        CHECK_OK(ckpt_plan_outline(t.lowered->graph, &t.arena, &plan->outline, &err), err);
        ckpt_text_init(&text);
        ckpt_plan_write(plan, &text);
        const char *const plan_path = ckpt_work_file("plan_trace.plan.json");
        CHECK_OK(ckpt_file_write(plan_path, text.bytes, text.length, &err), err);
        ckpt_text_fini(&text);
        ckpt_text_init(&text);
        ckpt_trace_write(simulated, &text);
        const char *const trace_path = ckpt_work_file("plan_trace.trace.json");
        CHECK_OK(ckpt_file_write(trace_path, text.bytes, text.length, &err), err);
        ckpt_text_fini(&text);
        CHECK_OK(ckpt_plan_read(plan_path, &t.arena, &read, &err), err);
        CHECK_OK(ckpt_trace_read(trace_path, &t.arena, &traced, &err), err);
        CHECK_OK(ckpt_plan_as_trace(read, &t.arena, &shown, &err), err);
        same_trace(traced, shown);
        assert_true(shown->peak_bytes == read->peak_bytes && shown->static_bytes == read->static_bytes);
        for (int e = 0; e < shown->event_count; e++) {
            copies += shown->event[e].span == CKPT_SPAN_COPY;
            recomputed += shown->event[e].span == CKPT_SPAN_RECOMPUTE;
        }
        test_train_close(&t);
    }
    CHECK(copies > 10 && recomputed > 10, "%d copies, %d runs again", copies, recomputed);
}

static void plan_refused(const ckpt_plan *plan, const char *words)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_trace *trace = NULL;
    ckpt_err err = {0};
    assert_int_equal(ckpt_plan_as_trace(plan, &arena, &trace, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, words) != NULL, "\"%s\" does not say \"%s\"", err.msg, words);
}

static void bad_plans(void **state)
{
    made m;
    make(&m, 4);
    ckpt_plan plan = *m.plan;
    plan.source = "p.json";
    plan.verdict = CKPT_INFEASIBLE;
    plan_refused(&plan, "p.json: the plan does not fit its budget");
    plan.verdict = CKPT_FITS;
    plan.outline.op_count = 0;
    plan_refused(&plan, "p.json: the plan does not say what its graph is made of");
    plan.outline.op_count = 1;
    plan_refused(&plan, "has no such op");
    plan.outline.op_count = m.plan->outline.op_count;
    plan.outline.buffer_count = 0;
    plan_refused(&plan, "has no such buffer");
    plan.outline.buffer_count = m.plan->outline.buffer_count;
    ckpt_allocation *const allocation = CKPT_NEW(&m.arena, ckpt_allocation, plan.allocation_count);
    memcpy(allocation, plan.allocation, (size_t)plan.allocation_count * sizeof *allocation);
    plan.allocation = allocation;
    allocation[1].bytes = CKPT_BYTES_MAX;
    plan_refused(&plan, "more than 2^63 bytes");
    allocation[1].to = plan.step_count;
    plan_refused(&plan, "p.json: allocation 1 is from step ");
    allocation[1].to = allocation[1].from - 1;
    plan_refused(&plan, "p.json: allocation 1 is from step ");
    allocation[1].from = allocation[1].to = -1;
    plan_refused(&plan, "p.json: allocation 1 is from step -1 to step -1");
    allocation[1] = m.plan->allocation[1];
    ckpt_step *const step = CKPT_NEW(&m.arena, ckpt_step, plan.step_count);
    memcpy(step, plan.step, (size_t)plan.step_count * sizeof *step);
    plan.step = step;
    step[0].name = "nobody";
    plan_refused(&plan, "p.json: step 0 (run \"nobody\"): the plan's own \"graph\" has no such op");
    ckpt_arena_fini(&m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_the_traces_they_predict),
        cmocka_unit_test(files_of_models),
        cmocka_unit_test(bad_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
