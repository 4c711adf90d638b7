/* labels: unit */
/* Plans: reading, writing, binding to a graph. What malformed files say is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>

#include "core/formats/plan.h"

static const char *const graph_text =
    "{ \"format\": \"ckpt-graph/1\", \"name\": \"tiny\", \"buffers\": [ { \"name\": \"a0\", \"bytes\": 512 },\n"
    "    { \"name\": \"a1\", \"bytes\": 256 } ],\n"
    "  \"ops\": [ { \"name\": \"f0\", \"phase\": \"forward\", \"writes\": [\"a0\"], \"time_ns\": 1, "
    "\"workspace_bytes\": 64 },\n"
    "    { \"name\": \"f1\", \"phase\": \"forward\", \"reads\": [\"a0\"], \"writes\": [\"a1\"], \"time_ns\": 1 } ] }\n";

/* SHA is filled in by plan_text. */
static const char *const plan_form =
    "{ \"format\": \"ckpt-plan/1\", \"graph\": { \"name\": \"tiny\", \"sha256\": \"SHA\" },\n"
    "  \"budget_bytes\": 5000, \"verdict\": \"fits\",\n"
    "  \"summary\": { \"peak_bytes\": 576, \"static_bytes\": 0, \"arena_bytes\": 1024, \"time_ns\": 150, "
    "\"recompute_ns\": 50,\n"
    "    \"offload_bytes\": 512, \"host_bytes\": 513, \"keep_all\": { \"peak_bytes\": 900, \"time_ns\": 100 } },\n"
    "  \"bound\": { \"time_ns\": 120, \"gap\": 0.25, \"how\": \"lp\", \"scope\": \"all\" },\n"
    "  \"solver\": { \"name\": \"sqrt\", \"seconds\": 0.125 }, \"costs\": \"profile p.json\", \"threads\": 3, "
    "\"unknown\": [],\n"
    "  \"layers\": { \"x\": \"keep\", \"y\": \"recompute\", \"z\": \"offload\" },\n"
    "  \"steps\": [ { \"run\": \"f0\" }, { \"offload\": \"a0\" }, { \"free\": \"a0\" }, { \"fetch\": \"a0\" },\n"
    "    { \"run\": \"f1\", \"inplace\": true }, { \"run\": \"f0\", \"again\": true } ],\n"
    "  \"places\": [ { \"what\": \"a0\", \"from\": 0, \"to\": 2, \"offset\": 0, \"bytes\": 512 },\n"
    "    { \"what\": \"workspace\", \"from\": 0, \"to\": 0, \"offset\": 512, \"bytes\": 64 } ] }\n";

static const ckpt_graph *read_graph(const char *text, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const ckpt_graph *graph = NULL;
    CHECK_OK(ckpt_graph_read(ckpt_test_file("graph.json", text, strlen(text)), arena, &graph, &err), err);
    return graph;
}

static ckpt_plan *read_plan(const char *text, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    CHECK_OK(ckpt_plan_read(ckpt_test_file("plan.json", text, strlen(text)), arena, &plan, &err), err);
    return plan;
}

static const char *plan_text(void)
{
    ckpt_arena arena;
    ckpt_err err = {0};
    char digest[CKPT_DIGEST_TEXT];
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_graph_digest(read_graph(graph_text, &arena), digest, &err), err);
    ckpt_arena_fini(&arena);
    return ckpt_test_replace(plan_form, "SHA", digest);
}

static void check_fields(const ckpt_plan *p)
{
    assert_string_equal(p->graph_name, "tiny");
    assert_int_equal(p->budget_bytes, 5000);
    assert_int_equal(p->verdict, CKPT_FITS);
    assert_int_equal(p->peak_bytes, 576);
    assert_int_equal(p->static_bytes, 0);
    assert_int_equal(p->arena_bytes, 1024);
    assert_int_equal(p->time_ns, 150);
    assert_int_equal(p->recompute_ns, 50);
    assert_int_equal(p->offload_bytes, 512);
    assert_int_equal(p->host_bytes, 513);
    assert_int_equal(p->keep_all_peak_bytes, 900);
    assert_int_equal(p->keep_all_time_ns, 100);
    assert_true(p->has_bound);
    assert_int_equal(p->bound_ns, 120);
    assert_string_equal(p->bound_how, "lp");
    assert_string_equal(p->bound_scope, "all");
    assert_string_equal(p->solver, "sqrt");
    assert_true(p->solver_seconds == 0.125);
    assert_string_equal(p->costs, "profile p.json");
    assert_int_equal(p->threads, 3);
    assert_int_equal(p->layer_count, 3);
    assert_string_equal(p->layer[1].layer, "y");
    assert_int_equal(p->layer[0].decision, CKPT_KEEP);
    assert_int_equal(p->layer[1].decision, CKPT_RECOMPUTE);
    assert_int_equal(p->layer[2].decision, CKPT_OFFLOADED);
    static const ckpt_step_kind kinds[] = {CKPT_RUN, CKPT_OFFLOAD, CKPT_FREE, CKPT_FETCH, CKPT_RUN, CKPT_RUN};
    assert_int_equal(p->step_count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(p->step[i].kind, kinds[i]);
        assert_int_equal(p->step[i].recomputed, i == 5);
        assert_int_equal(p->step[i].inplace, i == 4);
    }
    assert_string_equal(p->step[3].name, "a0");
    assert_int_equal(p->allocation_count, 2);
    assert_int_equal(p->allocation[0].to, 2);
    assert_int_equal(p->allocation[1].offset, 512);
    assert_int_equal(p->allocation[1].bytes, 64);
}

static void test_fields_survive_a_round_trip(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    const ckpt_plan *const plan = read_plan(plan_text(), &arena);
    check_fields(plan);
    assert_int_equal(plan->step[0].target, -1);
    assert_int_equal(plan->allocation[0].buffer, -1);
    ckpt_plan_write(plan, &text);
    check_fields(read_plan(text.bytes, &arena));
    assert_non_null(strstr(text.bytes, "\"gap\": 0.25")); /* computed, never copied */
    ckpt_test_round_trip("plan", text.bytes);
    ckpt_text_fini(&text);
}

/* A plan for a GPU has no threads; what stands beside the budget is kept too. */
static void test_target_and_reserve(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_plan plan = *read_plan(plan_text(), &arena);
    assert_false(plan.gpu);
    assert_int_equal(plan.reserve_bytes, 0);
    for (int gpu = 0; gpu < 2; gpu++) {
        ckpt_text text;
        ckpt_text_init(&text);
        plan.gpu = gpu == 1;
        plan.threads = gpu == 1 ? 0 : 3;
        plan.reserve_bytes = gpu == 1 ? 700 : 0;
        ckpt_plan_write(&plan, &text);
        const ckpt_plan *const back = read_plan(text.bytes, &arena);
        assert_int_equal(back->gpu, plan.gpu);
        assert_int_equal(back->threads, plan.threads);
        assert_int_equal(back->reserve_bytes, plan.reserve_bytes);
        assert_int_equal(back->budget_bytes, 5000);
        CHECK(strstr(text.bytes, gpu == 1 ? "\"target\": \"gpu\"" : "\"target\": \"cpu\", \"threads\": 3") != NULL &&
                  (strstr(text.bytes, "reserve_bytes") != NULL) == (gpu == 1) &&
                  (strstr(text.bytes, "threads") != NULL) == (gpu == 0),
              "%s", text.bytes);
        ckpt_text_fini(&text);
    }
}

static void test_infeasible_plans(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    const ckpt_plan none = {.graph_name = "g",
                            .graph_sha256 = "0000000000000000000000000000000000000000000000000000000000000000",
                            .budget_bytes = 10,
                            .verdict = CKPT_INFEASIBLE,
                            .min_budget_bytes = 99,
                            .no_schedule_below_bytes = 77};
    ckpt_plan_write(&none, &text);
    const ckpt_plan *const recomputed = read_plan(text.bytes, &arena);
    assert_int_equal(recomputed->verdict, CKPT_INFEASIBLE);
    assert_int_equal(recomputed->min_budget_bytes, 99);
    assert_int_equal(recomputed->no_schedule_below_bytes, 77);
    assert_false(recomputed->has_bound);
    assert_int_equal(recomputed->step_count, 0);
    assert_string_equal(recomputed->solver, "");
    ckpt_text_fini(&text);
}

static void test_bind_finds_every_name(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_plan *const plan = read_plan(plan_text(), &arena);
    CHECK_OK(ckpt_plan_bind(plan, read_graph(graph_text, &arena), &err), err);
    static const int targets[] = {0, 0, 0, 0, 1, 0};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(plan->step[i].target, targets[i]);
    }
    assert_int_equal(plan->allocation[0].buffer, 0);
    assert_int_equal(plan->allocation[1].buffer, -1);
}

static void test_bind_refuses_with_the_reason(void **state)
{
    static const struct {
        const char *old, *fresh, *reason;
    } cases[] = {
        {"\"name\": \"tiny\"", "\"name\": \"other\"", "the plan is of graph \"tiny\", this is \"other\""},
        {"\"bytes\": 512", "\"bytes\": 1024",
         "allocation 0: \"a0\" has 512 bytes in the plan and 1024 in the graph: made for another batch, dtype or other "
         "vars?"},
        {"\"name\": \"f1\"", "\"name\": \"f9\"", "step 4: run \"f1\", which graph \"tiny\" does not have"},
        {"\"bytes\": 256", "\"bytes\": 257", "the plan is of a graph \"tiny\" of another structure"},
        {"\"reads\": [\"a0\"]", "\"reads\": []", "the plan is of a graph \"tiny\" of another structure"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_plan *const plan = read_plan(plan_text(), &arena);
        const ckpt_graph *const graph = read_graph(ckpt_test_replace(graph_text, cases[i].old, cases[i].fresh), &arena);
        assert_int_equal(ckpt_plan_bind(plan, graph, &err), CKPT_BAD_INPUT);
        CHECK(strstr(err.msg, cases[i].reason) != NULL, "\"%s\", wanted \"%s\"", err.msg, cases[i].reason);
        CHECK(strstr(err.msg, "plan.json: ") != NULL, "no file name: %s", err.msg);
        CHECK(plan->step[0].target == -1, "half bound");
    }
}

static void test_a_profile_does_not_make_another_graph(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_plan *const plan = read_plan(plan_text(), &arena);
    const char *const timed =
        ckpt_test_replace(graph_text, "\"time_ns\": 1, \"workspace_bytes\": 64", "\"time_ns\": 77");
    CHECK_OK(ckpt_plan_bind(plan, read_graph(timed, &arena), &err), err);
}

/* The outline is of the graph, whatever its times; one that says otherwise was edited. */
static void test_bind_holds_the_outline_against_the_graph(void **state)
{
    static const struct {
        const char *old, *fresh, *reason;
    } cases[] = {
        {"", "", NULL},
        {"\"f1\", \"phase\": \"forward\", \"time_ns\": 1", "\"f1\", \"phase\": \"forward\", \"time_ns\": 99", NULL},
        {"\"name\": \"a1\", \"bytes\": 256", "\"name\": \"a1\", \"bytes\": 192",
         "buffer 1 in \"graph\", \"a1\", is not what it is in the graph"},
        {"\"name\": \"a1\"", "\"name\": \"a2\"", "buffer 1 in \"graph\", \"a2\", is not what it is in the graph"},
        {"\"kind\": \"activation\"", "\"kind\": \"saved\"",
         "buffer 0 in \"graph\", \"a0\", is not what it is in the graph"},
        {"\"phase\": \"forward\"", "\"phase\": \"update\"",
         "op 0 in \"graph\", \"f0\", is not what it is in the graph"},
        {"\"static\": []", "\"static\": [ { \"name\": \"w\", \"bytes\": 0 } ]",
         "\"graph\" has 1 statics, 2 buffers and 2 ops, the graph 0, 2 and 2"},
    };
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_err err = {0};
    ckpt_text_init(&text);
    const ckpt_graph *const graph = read_graph(graph_text, &arena);
    ckpt_plan with = *read_plan(plan_text(), &arena);
    CHECK_OK(ckpt_plan_outline(graph, &arena, &with.outline, &err), err);
    with.layer_count = 0; /* the figures of the graph's times, and of the steps */
    with.recompute_ns = 1;
    with.host_bytes = 512;
    with.keep_all_time_ns = 2;
    ckpt_plan_write(&with, &text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_plan *const plan = read_plan(ckpt_test_replace(text.bytes, cases[i].old, cases[i].fresh), &arena);
        const ckpt_code code = ckpt_plan_bind(plan, graph, &err);
        CHECK(code == (cases[i].reason == NULL ? CKPT_OK : CKPT_BAD_INPUT), "case %zu: code %d: %s", i, (int)code,
              err.msg);
        CHECK(cases[i].reason == NULL || strstr(err.msg, cases[i].reason) != NULL, "\"%s\", wanted \"%s\"", err.msg,
              cases[i].reason);
    }
    ckpt_text_fini(&text);
}

typedef struct binding {
    ckpt_plan *plan;
    const ckpt_graph *graph;
} binding;

static ckpt_code bind_starved(void *context, ckpt_err *err)
{
    const binding *const b = context;
    return ckpt_plan_bind(b->plan, b->graph, err);
}

static void test_without_memory(void **state)
{
    ckpt_test_starve_format("plan", plan_text());
    CKPT_TEST_ARENA(arena);
    binding b = {read_plan(plan_text(), &arena), read_graph(graph_text, &arena)};
    assert_true(ckpt_test_starve(bind_starved, &b) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_survive_a_round_trip),
        cmocka_unit_test(test_target_and_reserve),
        cmocka_unit_test(test_infeasible_plans),
        cmocka_unit_test(test_bind_finds_every_name),
        cmocka_unit_test(test_bind_refuses_with_the_reason),
        cmocka_unit_test(test_bind_holds_the_outline_against_the_graph),
        cmocka_unit_test(test_a_profile_does_not_make_another_graph),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
