/* labels: unit */
/* ExecutionTraces that are wrong, damaged at random, or read with too little memory, and times from Kineto traces. A
 * first argument replaces the printed seed. */
#include "tests/support/support_execution.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ckpt_ns time_of(const ckpt_graph *g, const char *op)
{
    const int i = ckpt_graph_find_op(g, op);
    CHECK(i >= 0, "no op %s", op);
    return g->op[i].time_ns;
}

static void test_times_of_kernels_and_of_ops(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_graph *g = NULL;
    size_t length = 0;
    const char *const trace = ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
    CHECK_OK(ckpt_test_import(trace, length, ckpt_test_kernels, &arena, &g, &err), err);
    assert_int_equal(time_of(g, "aten::relu_#20"), 1750);
    assert_int_equal(time_of(g, "aten::dropout#40"), 2125); /* of an op inside it */
    assert_int_equal(time_of(g, "aten::mul#10"), 0);        /* launched nothing */
    const ckpt_graph_op *const relu = &g->op[ckpt_graph_find_op(g, "aten::relu_#20")];
    assert_int_equal(relu->workspace_bytes, 5000);
    assert_string_equal(relu->layer, "ReLU_3");
    assert_string_equal(g->op[ckpt_graph_find_op(g, "aten::threshold_backward#92")].layer, "ReLU_3");
    assert_string_equal(g->buffer[relu->writes.at[0]].name, "ReLU_3/aten::relu_#20");
    ckpt_test_has(ckpt_test_notes, "workspaces are those of the memory events");
    assert_int_equal(g->op[ckpt_graph_find_op(g, "aten::dropout#40")].workspace_bytes, 200); /* it has no event */
    ckpt_test_has(ckpt_test_notes, "9 of 11 ops launched none");
    char cpu[8192];
    snprintf(cpu, sizeof cpu, "%s", ckpt_test_kernels);
    for (char *at = cpu; (at = strstr(at, "\"Device Id\":0")) != NULL; at++) { /* no memory of its device */
        at[12] = '2';
    }
    for (char *at = cpu; (at = strstr(at, "\"cat\":\"")) != NULL; at++) { /* the same without a GPU */
        if (at[7] == 'k' || at[7] == 'g') {
            at[7] = 'x';
        }
    }
    CHECK_OK(ckpt_test_import(trace, length, cpu, &arena, &g, &err), err);
    assert_int_equal(time_of(g, "aten::relu_#20"), 50000);
    assert_int_equal(time_of(g, "aten::dropout#40"),
                     8000); /* bernoulli_ is inside it: not its time, but bytes at 1 GB/s */
    ckpt_test_has(ckpt_test_notes, "10 of 11 are not in");
    ckpt_test_has(ckpt_test_notes, "no memory events");
    assert_int_equal(g->op[ckpt_graph_find_op(g, "aten::relu_#20")].workspace_bytes, 0);
}

/* Bad input: one replacement in the trace or the times, and the message after the file's name. */
typedef struct refusal {
    bool in_times;
    const char *old, *fresh, *wanted;
} refusal;

static ckpt_test_node changed[CKPT_TEST_BY_HAND];

static const refusal refusals[] = {
    {false, "1.1.1-chakra.0.0.4", "2.0.0-chakra.1", "found \"2.0.0-chakra.1\", wanted 1.x-chakra"},
    {false, "1.1.1-chakra.0.0.4", "1.0.1", "found \"1.0.1\", wanted 1.x-chakra"},
    {false, "\"schema\"", "\"scheme\"", "found no \"schema\""},
    {false, "\"nodes\"", "\"node\"", "found no \"nodes\""},
    {false, "autograd::engine::evaluate_function", "something else", NULL},
    {false, "\"ctrl_deps\":3", "\"ctrl_deps\":999", "found node 10 inside node 999"},
    {false, "\"id\":20", "\"id\":10", "found a second node 10"},
    {false, "[100,101,0,1000,4,", "[100,101,0,1000,-4,", "found -4"},
    {false, "[100,101,0,1000,4,", "[100,101,0,9223372036854775807,4,", "found a tensor of more than 2^63 bytes"},
    {false, "[100,101,0,1000,4,", "[100,101,9223372036854775807,1000,4,", "found a tensor that ends beyond 2^63"},
    {false, "[[1000],[1000]],\"strides\":[[1],", "[[1000],[1000]],\"strides\":[[9223372036854775807],",
     "found a tensor that ends beyond 2^63"},
    {false, "{\"name\":\"rf_id\",\"value\":10}", "{\"name\":\"rf_id\",\"value\":-1}", "found -1"},
    {false, "{\"name\":\"rf_id\",\"value\":10}", "{\"name\":\"kernel_backend\",\"value\":\"triton\"}",
     "node 10 (aten::mul) is code that torch.compile made"},
    {false, "\"name\":\"drop\"", "\"name\":\"CompiledFunction\"", "node 38 (CompiledFunction) is code"},
    {true, "\"name\":\"aten::relu_\"", "\"name\":\"aten::relu\"", "found function 20 to be \"aten::relu\", which is"},
    {true, "\"dur\":1.5", "\"dur\":true", "\"dur\": found true, wanted a number"},
    {true, "traceEvents", "events", "found no \"traceEvents\""},
};

static const char *replaced(const char *text, const char *old, const char *fresh)
{
    static char result[CKPT_TEST_TRACE_ROOM];
    const char *const at = strstr(text, old);
    CHECK(at != NULL, "nothing to replace: %s", old);
    snprintf(result, sizeof result, "%.*s%s%s", (int)(at - text), text, fresh, at + strlen(old));
    return result;
}

static void test_what_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *const r = &refusals[i];
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_graph *graph = NULL;
        ckpt_arena_init(&arena);
        memcpy(changed, ckpt_test_by_hand, sizeof ckpt_test_by_hand);
        for (int k = 0; r->wanted == NULL && k < CKPT_TEST_BY_HAND; k++) { /* no backward at all */
            changed[k].scope = changed[k].scope == 1 ? 0 : changed[k].scope;
            changed[k].name = strstr(changed[k].name, "evaluate") != NULL ? "other" : changed[k].name;
        }
        size_t length = 0;
        const char *const trace = ckpt_test_trace(changed, CKPT_TEST_BY_HAND, &length);
        const char *const bad =
            r->wanted == NULL ? trace : replaced(r->in_times ? ckpt_test_kernels : trace, r->old, r->fresh);
        const ckpt_code code = r->in_times ? ckpt_test_import(trace, length, bad, &arena, &graph, &err)
                                           : ckpt_test_import(bad, strlen(bad), NULL, &arena, &graph, &err);
        const char *const wanted = r->wanted != NULL ? r->wanted : "found no backward among its 30 nodes";
        CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, wanted) != NULL, "%s: code %d: %s", wanted, (int)code, err.msg);
        CHECK(strstr(err.msg, r->in_times ? "execution_times.json" : "execution_rules.json") != NULL, "%s", err.msg);
        assert_null(graph);
        ckpt_arena_fini(&arena);
        assert_int_equal(ckpt_memory_live(), 0);
    }
    ckpt_err err = {0};
    ckpt_arena none;
    ckpt_graph *graph = NULL;
    ckpt_arena_init(&none);
    assert_int_equal(ckpt_import_execution("no such file", NULL, 1e9, NULL, &none, &graph, &err), CKPT_IO);
    assert_int_equal(ckpt_import_execution("any", NULL, 0.0, NULL, &none, &graph, &err), CKPT_BAD_INPUT);
    ckpt_arena_fini(&none);
}

/* Damage that mostly leaves valid JSON: a digit, a name, a chunk from elsewhere, a cut end. */
static size_t damage(char *bytes, size_t count)
{
    static const char telling[] = "{}[]\",:0123456789-.#!()e ";
    for (uint64_t k = 1 + ckpt_test_draw(4); k > 0; k--) {
        const size_t at = (size_t)ckpt_test_draw(count);
        const size_t span = 1 + (size_t)ckpt_test_draw(count - at < 30 ? count - at : 30);
        switch (ckpt_test_draw(8)) {
        case 0: bytes[at] = telling[ckpt_test_draw(sizeof telling - 1)]; break;
        case 1: memmove(bytes + at, bytes + (size_t)ckpt_test_draw(count - span + 1), span); break;
        case 2: count = ckpt_test_draw(20) == 0 ? at + 1 : count; break;
        default: { /* digits: other ids, sizes, parents */
            const size_t digit = at + strcspn(bytes + at, "0123456789");
            bytes[digit < count ? digit : at] = (char)('0' + ckpt_test_draw(10));
            break;
        }
        }
    }
    return count;
}

static void check_accepted(const ckpt_graph *graph, uint64_t number)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_text text;
    const ckpt_graph *recomputed = NULL;
    ckpt_text_init(&text);
    ckpt_graph_write(graph, &text);
    const ckpt_code code =
        ckpt_graph_read(ckpt_test_file("execution_graph.json", text.bytes, text.length), &arena, &recomputed, &err);
    CHECK(code == CKPT_OK, "mutant %llu makes a graph that is refused: %s", (unsigned long long)number, err.msg);
    ckpt_text_fini(&text);
}

/* Its name was looked for at NULL, and the message gave line 1. */
static void test_times_of_an_event_without_a_name(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_graph *graph = NULL;
    size_t length = 0;
    const char *const trace = ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
    const char *const times = replaced(ckpt_test_kernels, "\"name\":\"aten::relu_\",", "");
    CHECK(ckpt_test_import(trace, length, times, &arena, &graph, &err) == CKPT_BAD_INPUT, "code %d", (int)err.code);
    ckpt_test_has(err.msg, "execution_times.json: found function 20 without a name, which is \"aten::relu_\" in");
}

static void test_damaged_traces_never_crash(void **state)
{
    static char mutant[CKPT_TEST_TRACE_ROOM];
    static char times[8192];
    const uint64_t rounds = ckpt_test_rounds(2000, 300);
    int accepted = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_graph *graph = NULL;
        ckpt_arena_init(&arena);
        size_t length = 0;
        const char *const trace = ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
        memcpy(mutant, trace, length + 1);
        snprintf(times, sizeof times, "%s", ckpt_test_kernels);
        const bool in_times = i % 4 == 3;
        const size_t count = in_times ? length : damage(mutant, length);
        if (in_times) {
            times[damage(times, strlen(times))] = '\0';
        }
        const ckpt_code code = ckpt_test_import(mutant, count, i % 2 == 1 ? times : NULL, &arena, &graph, &err);
        if (code == CKPT_OK) {
            check_accepted(graph, i);
            accepted++;
        } else {
            CHECK(code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "mutant %llu: code %d: %s", (unsigned long long)i,
                  (int)code, err.msg);
            CHECK(strstr(err.msg, "execution_") != NULL && strpbrk(err.msg, "\n\r") == NULL, "mutant %llu: %s",
                  (unsigned long long)i, err.msg);
        }
        ckpt_arena_fini(&arena);
        CHECK(ckpt_memory_live() == 0, "mutant %llu leaks", (unsigned long long)i);
    }
    printf("%d of %llu mutants accepted\n", accepted, (unsigned long long)rounds);
}

static ckpt_code import_again(void *context, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_graph *graph = NULL;
    const char *const *const path = context;
    return ckpt_import_execution(path[0], path[1], 0.0, NULL, arena, &graph, err);
}

static void test_too_little_memory(void **state)
{
    char path[2][512];
    char *paths[2] = {path[0], path[1]};
    size_t length = 0;
    const char *const trace = ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
    snprintf(path[0], sizeof path[0], "%s", ckpt_test_file("execution_starved.json", trace, length));
    snprintf(path[1], sizeof path[1], "%s",
             ckpt_test_file("execution_starved_times.json", ckpt_test_kernels, strlen(ckpt_test_kernels)));
    printf("%lld allocations\n", (long long)ckpt_test_starve_arena(import_again, paths));
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_of_kernels_and_of_ops),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_times_of_an_event_without_a_name),
        cmocka_unit_test(test_damaged_traces_never_crash),
        cmocka_unit_test(test_too_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
