/* labels: unit */
/* The C API from inside one program: what it builds, plans and says; wrong input; without memory. */
#include <string.h>

#include "tests/libckpt/api_graph.h"
#include "tests/support/support_test.h"

enum { LAYERS = 7 };

#define CHECK_DONE(call, error)                                                                                        \
    do {                                                                                                               \
        const int check_status = (call);                                                                               \
        CHECK(check_status == CKPT_SUCCESS, "status %d: %s", check_status, (error).message);                           \
        assert_int_equal((error).code, CKPT_SUCCESS);                                                                  \
    } while (0)

static ckpt_graph *chain(void)
{
    ckpt_error error;
    ckpt_graph *const graph = ckpt_graph_create("chain");
    assert_non_null(graph);
    build_chain(graph, LAYERS);
    CHECK_DONE(ckpt_graph_finish(graph, &error), error);
    return graph;
}

static ckpt_options *options_of(const char *name, const char *value)
{
    ckpt_error error;
    ckpt_options *const options = ckpt_options_create();
    assert_non_null(options);
    if (name != NULL) {
        CHECK_DONE(ckpt_options_set(options, name, value, &error), error);
    }
    return options;
}

static ckpt_plan *plan_of(const ckpt_graph *graph, const ckpt_options *options)
{
    ckpt_error error;
    ckpt_plan *plan = NULL;
    CHECK_DONE(ckpt_plan_create(graph, options, &plan, &error), error);
    return plan;
}

/* But for the seconds it took. */
static void same_plans(char *a, char *b)
{
    static const char key[] = "\"seconds\": ";
    char *const texts[] = {a, b};
    for (int i = 0; i < 2; i++) {
        char *const at = strstr(texts[i], key);
        assert_non_null(at);
        char *const end = at + strlen(key) + strcspn(at + strlen(key), " }");
        memmove(at, end, strlen(end) + 1);
    }
    assert_string_equal(a, b);
}

static void test_a_built_graph_is_that_of_its_json(void **state)
{
    ckpt_error error;
    ckpt_graph *const built = chain();
    ckpt_graph *read = NULL;
    size_t length = 0;
    char *const json = ckpt_graph_json(built, &length, &error);
    assert_non_null(json);
    assert_int_equal(strlen(json), length);
    CHECK_DONE(ckpt_graph_from_json("chain.json", json, length, NULL, &read, &error), error);
    char *const twice = ckpt_graph_json(read, NULL, &error);
    assert_string_equal(json, twice);
    assert_int_equal(ckpt_graph_op_count(read), 2 * LAYERS);
    assert_int_equal(ckpt_graph_buffer_count(built), 2 * LAYERS);
    ckpt_json_free(json);
    ckpt_json_free(twice);
    ckpt_graph_destroy(read);
    ckpt_graph_destroy(built);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* The way of the run of that op; "own", or "not run". */
static const char *way_of(const ckpt_plan *plan, const char *op)
{
    int32_t count = 0;
    const ckpt_plan_step *const step = ckpt_plan_steps(plan, &count);
    for (int32_t i = 0; i < count; i++) {
        if (step[i].action == CKPT_ACTION_RUN && strcmp(step[i].name, op) == 0) {
            return step[i].variant != NULL ? step[i].variant : "own";
        }
    }
    return "not run";
}

/* Variants and optional ops, built call by call: the graph is that of its JSON, and plans choose among them. */
static void test_variants_are_built(void **state)
{
    ckpt_error error;
    ckpt_graph *const graph = ckpt_graph_create("ways");
    ckpt_graph *read = NULL;
    build_ways(graph);
    assert_int_equal(ckpt_graph_op_count(graph), 6);
    CHECK_DONE(ckpt_graph_finish(graph, &error), error);
    assert_int_equal(ckpt_graph_op_count(graph), 6);
    size_t length = 0;
    char *const json = ckpt_graph_json(graph, &length, &error);
    assert_non_null(json);
    assert_non_null(strstr(json, "\"name\": \"winograd\""));
    CHECK_DONE(ckpt_graph_from_json("ways.json", json, length, NULL, &read, &error), error);
    char *const twice = ckpt_graph_json(read, NULL, &error);
    assert_string_equal(json, twice);
    static const struct {
        const char *budget, *inexact, *a, *pack, *relu;
    } wanted[] = {{"5kB", NULL, "own", "not run", "own"},
                  {"5kB", "", "winograd", "not run", "own"},
                  {"1200B", NULL, "own", "own", "bits"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        ckpt_options *const options = options_of("budget", wanted[i].budget);
        if (wanted[i].inexact != NULL) {
            CHECK_DONE(ckpt_options_set(options, "allow-inexact", NULL, &error), error);
        }
        ckpt_plan *const plan = plan_of(graph, options);
        CHECK_DONE(ckpt_plan_verify(plan, read, 1, &error), error);
        assert_string_equal(way_of(plan, "a"), wanted[i].a);
        assert_string_equal(way_of(plan, "pack"), wanted[i].pack);
        assert_string_equal(way_of(plan, "relu/grad"), wanted[i].relu);
        ckpt_plan_destroy(plan);
        ckpt_options_destroy(options);
    }
    ckpt_json_free(json);
    ckpt_json_free(twice);
    ckpt_graph_destroy(read);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_plan_verify_simulate_explain_sweep(void **state)
{
    ckpt_error error;
    ckpt_graph *const graph = chain();
    ckpt_options *const options = options_of("budget", "70%");
    ckpt_plan *const plan = plan_of(graph, options);
    ckpt_plan_summary sum;
    ckpt_plan_summarize(plan, &sum);
    assert_int_equal(sum.verdict, CKPT_VERDICT_FITS);
    assert_true(sum.recompute_ns > 0 && sum.time_ns == sum.keep_all_time_ns + sum.recompute_ns);
    assert_true(sum.static_bytes == 5000 && sum.static_bytes + sum.arena_bytes <= sum.budget_bytes);
    assert_true(sum.budget_bytes == (int64_t)(0.7 * (double)sum.keep_all_peak_bytes));
    assert_true(sum.bound_ns > 0 && sum.bound_ns <= sum.time_ns && sum.ended_early == 0);
    assert_string_equal(sum.graph_name, "chain");
    assert_string_equal(sum.notes, "");
    CHECK_DONE(ckpt_plan_verify(plan, graph, 1, &error), error);

    /* Steps and allocations name what the graph has. */
    int32_t steps = 0;
    int32_t allocations = 0;
    int32_t recomputed = 0;
    const ckpt_plan_step *const step = ckpt_plan_steps(plan, &steps);
    const ckpt_plan_allocation *const allocation = ckpt_plan_allocations(plan, &allocations);
    assert_true(steps > 2 * LAYERS && allocations >= 2 * LAYERS);
    for (int i = 0; i < steps; i++) {
        assert_true(step[i].index >= 0 && step[i].index < 2 * LAYERS);
        recomputed += step[i].action == CKPT_ACTION_RUN && step[i].recomputed;
    }
    assert_true(recomputed > 0);
    for (int i = 0; i < allocations; i++) {
        assert_true(allocation[i].offset >= 0 && allocation[i].offset + allocation[i].bytes <= sum.arena_bytes);
        assert_true(allocation[i].buffer >= 0 || strcmp(allocation[i].name, "workspace") == 0);
    }

    /* A plan's JSON is the plan, and not that of another graph. */
    size_t length = 0;
    ckpt_plan *read = NULL;
    char *const json = ckpt_plan_json(plan, &length, &error);
    CHECK_DONE(ckpt_plan_from_json("plan.json", json, length, &read, &error), error);
    CHECK_DONE(ckpt_plan_verify(read, graph, 1, &error), error);
    char *const twice = ckpt_plan_json(read, NULL, &error);
    assert_string_equal(json, twice);
    ckpt_graph *const other = ckpt_graph_create("other");
    build_chain(other, LAYERS - 1);
    assert_int_equal(ckpt_plan_verify(read, other, 0, &error), CKPT_ERROR_INPUT); /* it is not finished */
    CHECK_DONE(ckpt_graph_finish(other, &error), error);
    assert_int_equal(ckpt_plan_verify(read, other, 0, &error), CKPT_ERROR_INPUT);
    assert_non_null(strstr(error.message, "other"));
    ckpt_json_free(json);
    ckpt_json_free(twice);
    ckpt_graph_destroy(other);

    /* What is said of a plan lives on without it. */
    ckpt_trace *trace = NULL;
    ckpt_explanation *explanation = NULL;
    ckpt_sweep *sweep = NULL;
    CHECK_DONE(ckpt_trace_create(read, graph, &trace, &error), error);
    CHECK_DONE(ckpt_explanation_create(read, graph, options, &explanation, &error), error);
    CHECK_DONE(ckpt_sweep_create(graph, NULL, 5, &sweep, &error), error);
    ckpt_plan_destroy(plan);
    ckpt_plan_destroy(read);
    ckpt_graph_destroy(graph);
    int32_t events = 0;
    int64_t peak = 0;
    const ckpt_trace_event *const event = ckpt_trace_events(trace, &events);
    assert_int_equal(events, steps);
    for (int i = 0; i < events; i++) {
        peak = event[i].live_bytes > peak ? event[i].live_bytes : peak;
    }
    assert_int_equal(peak, sum.peak_bytes);
    assert_int_equal(event[events - 1].end_ns, sum.time_ns);
    assert_string_equal(event[0].name, "layer.0");
    char *text = ckpt_trace_json(trace, NULL, &error);
    assert_non_null(strstr(text, "\"format\": \"ckpt-trace/1\""));
    ckpt_json_free(text);
    int32_t layers = 0;
    int64_t recompute = 0;
    const ckpt_explanation_layer *const layer = ckpt_explanation_layers(explanation, &layers);
    assert_int_equal(layers, LAYERS);
    for (int i = 0; i < layers; i++) {
        recompute += layer[i].recompute_ns;
        assert_int_equal(layer[i].fate == CKPT_FATE_RECOMPUTED, layer[i].recompute_ns > 0);
    }
    assert_int_equal(recompute, sum.recompute_ns);
    text = ckpt_explanation_json(explanation, NULL, &error);
    assert_non_null(strstr(text, "\"layer.3\""));
    ckpt_json_free(text);
    int32_t points = 0;
    const ckpt_sweep_point *const point = ckpt_sweep_points(sweep, &points);
    assert_int_equal(points, 5);
    for (int i = 1; i < points; i++) {
        assert_true(point[i].budget_bytes > point[i - 1].budget_bytes && point[i].time_ns <= point[i - 1].time_ns);
    }
    assert_int_equal(ckpt_sweep_min_budget(sweep), point[0].budget_bytes);
    assert_int_equal(ckpt_sweep_complete(sweep), 1);
    text = ckpt_sweep_json(sweep, NULL, &error);
    assert_non_null(strstr(text, "\"format\": \"ckpt-sweep/1\""));
    ckpt_json_free(text);
    ckpt_trace_destroy(trace);
    ckpt_explanation_destroy(explanation);
    ckpt_sweep_destroy(sweep);
    ckpt_options_destroy(options);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* The rate of copies is an option of the plan: the graph has none, and its trace, check and explanation find it. */
static void test_a_link_of_the_options(void **state)
{
    ckpt_error error;
    ckpt_graph *const graph = chain();
    ckpt_options *const options = options_of("budget", "70%");
    CHECK_DONE(ckpt_options_set(options, "link", "100GB/s", &error), error);
    ckpt_plan *const plan = plan_of(graph, options);
    ckpt_plan_summary sum;
    ckpt_plan_summarize(plan, &sum);
    assert_true(sum.offload_bytes > 0);
    size_t length = 0;
    ckpt_plan *read = NULL;
    char *const json = ckpt_plan_json(plan, &length, &error);
    CHECK_DONE(ckpt_plan_from_json("plan.json", json, length, &read, &error), error);
    CHECK_DONE(ckpt_plan_verify(read, graph, 1, &error), error);
    ckpt_trace *trace = NULL;
    CHECK_DONE(ckpt_trace_create(plan, graph, &trace, &error), error);
    int32_t events = 0;
    int32_t copies = 0;
    int64_t end = 0;
    const ckpt_trace_event *const event = ckpt_trace_events(trace, &events);
    for (int i = 0; i < events; i++) {
        const bool copy = strcmp(event[i].stream, "compute") != 0;
        copies += copy;
        end = event[i].end_ns > end ? event[i].end_ns : end;
        assert_true(!copy || event[i].end_ns > event[i].start_ns);
    }
    assert_true(copies > 0);
    assert_int_equal(end, sum.time_ns);
    ckpt_explanation *explanation = NULL;
    CHECK_DONE(ckpt_explanation_create(plan, graph, options, &explanation, &error), error);
    ckpt_explanation_destroy(explanation);
    ckpt_trace_destroy(trace);
    ckpt_json_free(json);
    ckpt_plan_destroy(read);
    ckpt_plan_destroy(plan);
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_no_plan_is_an_answer(void **state)
{
    ckpt_error error;
    ckpt_graph *const graph = chain();
    ckpt_options *const options = options_of("strategy", "keep-all");
    ckpt_options_set_budget(options, 5100);
    ckpt_plan *const plan = plan_of(graph, options);
    ckpt_plan_summary sum;
    ckpt_plan_summarize(plan, &sum);
    assert_int_equal(sum.verdict, CKPT_VERDICT_INFEASIBLE);
    assert_true(sum.budget_bytes == 5100 && sum.min_budget_bytes > 5100);
    ckpt_explanation *explanation = NULL;
    assert_int_equal(ckpt_explanation_create(plan, graph, options, &explanation, &error), CKPT_ERROR_INPUT);
    ckpt_sweep *sweep = NULL;
    int32_t points = -1;
    CHECK_DONE(ckpt_sweep_create(graph, options, 4, &sweep, &error), error);
    ckpt_sweep_points(sweep, &points);
    assert_int_equal(points, 0);
    assert_int_equal(ckpt_sweep_min_budget(sweep), sum.min_budget_bytes);
    ckpt_sweep_destroy(sweep);
    ckpt_options_set_budget(options, sum.min_budget_bytes);
    ckpt_plan_destroy(plan);
    ckpt_plan *const second = plan_of(graph, options);
    ckpt_plan_summarize(second, &sum);
    assert_int_equal(sum.verdict, CKPT_VERDICT_FITS);
    ckpt_plan_destroy(second);
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- callbacks ---- */

typedef struct told {
    int calls, total, allowed;
    bool search;
} told;

static void note_progress(void *context, const ckpt_progress *progress)
{
    told *const t = context;
    t->calls++;
    t->search = t->search || strcmp(progress->part, "hierarchy") == 0;
    t->total = progress->total > t->total ? progress->total : t->total;
}

static int32_t cancel_after(void *context)
{
    told *const t = context;
    return t->allowed-- <= 0;
}

static void test_progress_and_cancel(void **state)
{
    ckpt_error error;
    told t = {.calls = 0};
    ckpt_graph *const graph = chain();
    ckpt_options *const options = options_of("budget", "70%");
    ckpt_options_set_progress(options, note_progress, &t);
    ckpt_plan_destroy(plan_of(graph, options));
    assert_true(t.calls > 0 && t.search && t.total == 0);
    ckpt_sweep *sweep = NULL;
    CHECK_DONE(ckpt_sweep_create(graph, options, 3, &sweep, &error), error);
    assert_int_equal(t.total, 3);
    ckpt_sweep_destroy(sweep);
    ckpt_options_set_progress(options, NULL, NULL);

    /* Whenever it is cancelled: a plan that keeps to the budget, or the status that says so. */
    ckpt_options_set_cancel(options, cancel_after, &t);
    for (int allowed = 0; allowed < 20; allowed++) {
        ckpt_plan *plan = NULL;
        t.allowed = allowed;
        const int status = ckpt_plan_create(graph, options, &plan, &error);
        assert_true(status == CKPT_SUCCESS || status == CKPT_ERROR_CANCELLED);
        if (status == CKPT_SUCCESS) {
            ckpt_plan_summary sum;
            ckpt_plan_summarize(plan, &sum);
            assert_true(sum.verdict == CKPT_VERDICT_FITS);
            CHECK_DONE(ckpt_plan_verify(plan, graph, 1, &error), error);
        }
        ckpt_plan_destroy(plan);
    }
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- wrong input ---- */

static void test_wrong_texts(void **state)
{
    static const struct {
        const char *text, *message;
        int line, column;
    } wrong[] = {
        {"", "t.json:1:1: ", 1, 1},
        {"{\n \"format\": \"ckpt-graph/1\",\n }", "t.json:3:2: ", 3, 2},
        {"{ \"format\": \"ckpt-plan/1\" }", "t.json:1:13: found \"ckpt-plan/1\"", 1, 13},
        {"{ \"format\": \"ckpt-graph/1\",\n  \"name\": 7 }", "t.json:2:11: ", 2, 11},
        {"{ \"format\": \"ckpt-graph/1\", \"name\": \"n\", \"buffers\": [\n  { \"name\": \"b\", \"bytes\": -1 } ] }",
         "t.json:2:27: ", 2, 27},
        {"{ \"format\": \"ckpt-model/1\" }", "t.json:1:1: ", 1, 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ckpt_error error;
        ckpt_graph *graph = NULL;
        assert_int_equal(ckpt_graph_from_json("t.json", wrong[i].text, strlen(wrong[i].text), NULL, &graph, &error),
                         CKPT_ERROR_INPUT);
        assert_null(graph);
        CHECK(strncmp(error.message, wrong[i].message, strlen(wrong[i].message)) == 0, "%s", error.message);
        CHECK(error.line == wrong[i].line && error.column == wrong[i].column && error.code == CKPT_ERROR_INPUT,
              "%d:%d: %s", (int)error.line, (int)error.column, error.message);
        assert_null(strpbrk(error.message, "\n"));
        ckpt_plan *plan = NULL;
        assert_int_equal(ckpt_plan_from_json("t.json", wrong[i].text, strlen(wrong[i].text), &plan, NULL),
                         CKPT_ERROR_INPUT);
    }
    ckpt_graph *graph = NULL;
    assert_int_equal(ckpt_graph_from_json(NULL, NULL, 5, NULL, &graph, NULL), CKPT_ERROR_INPUT);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_wrong_options(void **state)
{
    static const struct {
        const char *name, *value, *message;
    } at_once[] = {
        {"effort", "4", "found --effort '4', wanted 0 to 3"},
        {"effort", NULL, "found no value for --effort"},
        {"threads", "0", "found --threads '0'"},
        {"time-limit", "soon", "found --time-limit 'soon'"},
        {"tied", "loosely", ""},
        {"output", "plan.json", "found no option 'output'"},
        {NULL, "1", "found no name"},
        {"solver", "gurobi", "found solver 'gurobi', wanted glpk or none"},
    };
    static const struct {
        const char *name, *value, *message;
    } with_a_graph[] = {
        {"budget", "6G", ""},
        {"budget", "0", "size \"0\" is no byte at all"},
        {"reserve", "1MB", "--reserve is kept of a --budget"},
        {"strategy", "magic", "found strategy 'magic'"},
        {"checkpoint", "nothing.*", ""},
        {"host-memory", "1GB", "--host-memory is for offload"},
        {"set", "batch=3", "found option --set, which is of models"},
        {"device", "h100", "found option --device, which is of models"},
        {"stage", "1", "--stage is one of --pipeline-stages"},
        {"start", "no/such/plan.json", "no/such/plan.json: "},
    };
    ckpt_error error;
    ckpt_options *const options = options_of(NULL, NULL);
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        assert_int_equal(ckpt_options_set(options, at_once[i].name, at_once[i].value, &error), CKPT_ERROR_INPUT);
        CHECK(strncmp(error.message, at_once[i].message, strlen(at_once[i].message)) == 0, "%s", error.message);
    }
    assert_int_equal(ckpt_options_set_json(options, "budget", "b", "{}", 2, &error), CKPT_ERROR_INPUT);
    ckpt_options_destroy(options);
    ckpt_graph *const graph = chain();
    for (size_t i = 0; i < sizeof with_a_graph / sizeof *with_a_graph; i++) {
        ckpt_options *const wrong = options_of(with_a_graph[i].name, with_a_graph[i].value);
        ckpt_plan *plan = NULL;
        const int status = ckpt_plan_create(graph, wrong, &plan, &error);
        CHECK(status == CKPT_ERROR_INPUT || status == CKPT_ERROR_FILE, "%s %s: %d", with_a_graph[i].name,
              with_a_graph[i].value, status);
        CHECK(strncmp(error.message, with_a_graph[i].message, strlen(with_a_graph[i].message)) == 0, "%s",
              error.message);
        assert_null(plan);
        ckpt_options_destroy(wrong);
    }
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_what_is_listed_can_be_set(void **state)
{
    int32_t count = 0;
    const ckpt_option_info *const list = ckpt_options_list(&count);
    ckpt_error error;
    assert_int_equal(count, 32);
    for (int32_t i = 0; i < count; i++) {
        ckpt_options *const options = options_of(NULL, NULL);
        const int status = ckpt_options_set(options, list[i].name, NULL, &error);
        CHECK((list[i].argument == NULL) == (status == CKPT_SUCCESS), "%s: %s", list[i].name, error.message);
        (void)ckpt_options_set(options, list[i].name, "?", &error);
        CHECK(strstr(error.message, "found no option") == NULL, "%s: %s", list[i].name, error.message);
        CHECK(strlen(list[i].help) > 10, "%s has no help", list[i].name);
        for (int32_t k = 0; k < i; k++) {
            assert_string_not_equal(list[i].name, list[k].name);
        }
        ckpt_options_destroy(options);
    }
    assert_int_equal(ckpt_memory_live(), 0);
}

static ckpt_graph *graph_with(int fault)
{
    ckpt_graph *const graph = ckpt_graph_create("wrong");
    const int32_t a =
        ckpt_graph_add_buffer(graph, fault == 0 ? NULL : "a", fault == 1 ? -5 : 8, CKPT_BUFFER_ACTIVATION);
    const int32_t op = ckpt_graph_add_op(graph, "op", fault == 2 ? (ckpt_op_phase)9 : CKPT_PHASE_FORWARD, 1, 0);
    ckpt_op_writes(graph, fault == 3 ? 7 : op, fault == 4 ? 99 : a);
    if (fault == 5) {
        ckpt_op_reads(graph, op, a);
    }
    if (fault == 6) {
        ckpt_graph_add_buffer(graph, "a", 8, CKPT_BUFFER_ACTIVATION);
    }
    if (fault == 7) {
        ckpt_op_adds(graph, op, a);
    }
    if (fault == 8) {
        ckpt_graph_set_link(graph, 0, 5);
    }
    if (fault == 9) {
        ckpt_graph_add_output(graph, -1);
    }
    if (fault == 10) {
        ckpt_graph_add_buffer(graph, "b", 8, (ckpt_buffer_kind)-1);
    }
    if (fault == 11 || fault == 12) {
        assert_int_equal(ckpt_op_variant(graph, fault == 11 ? op : 7, fault == 11 ? "" : "fast", 1, 0, 1), -1);
    }
    if (fault == 13) {
        ckpt_op_writes(graph, ckpt_op_variant(graph, op, "fast", 1, 0, 1), a);
        ckpt_op_own_variant(graph, op, "fast");
    }
    if (fault == 14) {
        ckpt_op_reads(graph, ckpt_op_variant(graph, op, "fast", 1, 0, 1) + 1, a);
    }
    if (fault == 15) {
        ckpt_op_own_variant(graph, op, NULL);
    }
    if (fault == 16) {
        ckpt_op_optional(graph, 3, 1);
    }
    if (fault == 17) { /* a buffer that two ops write, one of them in a variant */
        const int32_t other = ckpt_graph_add_op(graph, "other", CKPT_PHASE_FORWARD, 1, 0);
        ckpt_op_writes(graph, ckpt_op_variant(graph, other, "fast", 1, 0, 1), a);
    }
    return graph;
}

static void test_wrong_graphs(void **state)
{
    static const char *const wanted[] = {"buffer 0: found no name",
                                         "bytes is -5",
                                         "found phase 9",
                                         "found op 7",
                                         "writes buffer 99",
                                         "itself",
                                         "\"a\"",
                                         "adds to",
                                         "link",
                                         "buffer -1",
                                         "found kind -1",
                                         "variant 0: found no name",
                                         "found op 7",
                                         "two variants are named \"fast\"",
                                         "found op 1073741825",
                                         "own way of op 0: found no name",
                                         "found op 3",
                                         "\"a\""};
    for (int fault = 0; fault < (int)(sizeof wanted / sizeof *wanted); fault++) {
        ckpt_error error;
        ckpt_plan *plan = NULL;
        ckpt_graph *const graph = graph_with(fault);
        CHECK(ckpt_graph_finish(graph, &error) == CKPT_ERROR_INPUT, "%d: %d", fault, (int)error.code);
        CHECK(strstr(error.message, wanted[fault]) != NULL, "%d: %s", fault, error.message);
        assert_int_equal(ckpt_plan_create(graph, NULL, &plan, &error), CKPT_ERROR_INPUT);
        assert_null(ckpt_graph_json(graph, NULL, &error));
        assert_int_equal(error.code, CKPT_ERROR_INPUT);
        ckpt_graph_destroy(graph);
    }
    ckpt_error error;
    ckpt_graph *const done = chain();
    assert_int_equal(ckpt_graph_add_buffer(done, "late", 1, CKPT_BUFFER_SAVED), -1);
    assert_int_equal(ckpt_graph_finish(done, &error), CKPT_ERROR_INPUT);
    ckpt_graph_destroy(done);
    ckpt_graph_destroy(NULL);
    ckpt_plan_destroy(NULL);
    ckpt_options_destroy(NULL);
    ckpt_trace_destroy(NULL);
    ckpt_explanation_destroy(NULL);
    ckpt_sweep_destroy(NULL);
    ckpt_json_free(NULL);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- models ---- */

static const char model[] = "{ \"format\": \"ckpt-model/1\", \"name\": \"m\", \"vars\": { \"batch\": 4 },\n"
                            "  \"inputs\": [ { \"name\": \"x\", \"shape\": [\"batch\", 16], \"dtype\": \"float32\" },\n"
                            "    { \"name\": \"labels\", \"shape\": [\"batch\"], \"dtype\": \"int32\" } ],\n"
                            "  \"layers\": [ { \"name\": \"a\", \"op\": \"linear\", \"features\": 32 }, { \"name\": "
                            "\"b\", \"op\": \"relu\" },\n"
                            "    { \"name\": \"c\", \"op\": \"linear\", \"features\": 10 },\n"
                            "    { \"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"c\", \"labels\"] } ],\n"
                            "  \"optimizer\": { \"name\": \"sgd\", \"lr\": 0.1 } }\n";

static void test_models_are_lowered_by_their_options(void **state)
{
    ckpt_error error;
    ckpt_options *const options = options_of("set", "batch=8");
    CHECK_DONE(ckpt_options_set(options, "threads", "2", &error), error);
    ckpt_graph *graph = NULL;
    CHECK_DONE(ckpt_graph_from_json("m.json", model, strlen(model), options, &graph, &error), error);
    char *json = NULL;
    ckpt_plan *const plan = plan_of(graph, options);
    json = ckpt_plan_json(plan, NULL, &error);
    CHECK(strstr(json, "\"--set\", \"batch=8\", \"--threads\", \"2\", \"m.json\"") != NULL, "%s", json);
    ckpt_json_free(json);
    ckpt_plan_destroy(plan);
    ckpt_plan *other = NULL;
    CHECK_DONE(ckpt_options_set(options, "dtype", "bfloat16", &error), error);
    assert_int_equal(ckpt_plan_create(graph, options, &other, &error), CKPT_ERROR_INPUT);
    assert_int_equal(ckpt_plan_create(graph, NULL, &other, &error), CKPT_ERROR_INPUT);
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_documents_in_memory(void **state)
{
    static const char device[] = "{ \"name\": \"mine\", \"flop_per_s\": 1000000000, \"bytes_per_s\": 1000000000 }";
    ckpt_error error;
    ckpt_options *const options = options_of(NULL, NULL);
    ckpt_graph *graph = NULL;
    CHECK_DONE(ckpt_options_set_json(options, "device", "mine.json", device, strlen(device), &error), error);
    CHECK_DONE(ckpt_graph_from_json("m.json", model, strlen(model), options, &graph, &error), error);
    ckpt_plan *const plan = plan_of(graph, options);
    ckpt_plan_summary sum;
    ckpt_plan_summarize(plan, &sum);
    assert_string_equal(sum.costs, "roofline of mine");

    /* A plan to begin with: the same comes out. */
    size_t length = 0;
    char *const first = ckpt_plan_json(plan, &length, &error);
    CHECK_DONE(ckpt_options_set_json(options, "start", NULL, first, length, &error), error);
    ckpt_plan *const second = plan_of(graph, options);
    ckpt_plan_summary again;
    ckpt_plan_summarize(second, &again);
    assert_true(again.time_ns == sum.time_ns && again.peak_bytes == sum.peak_bytes);
    CHECK_DONE(ckpt_options_set_json(options, "start", "s.json", "{\n7", 3, &error), error);
    ckpt_plan *third = NULL;
    assert_int_equal(ckpt_plan_create(graph, options, &third, &error), CKPT_ERROR_INPUT);
    CHECK(error.line == 2 && strncmp(error.message, "s.json:2:", 9) == 0, "%s", error.message);
    ckpt_json_free(first);
    ckpt_plan_destroy(plan);
    ckpt_plan_destroy(second);
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- without memory ---- */

typedef ckpt_code starved(ckpt_err *err);

static ckpt_code code_of(int status, const ckpt_error *error, ckpt_err *err)
{
    snprintf(err->msg, sizeof err->msg, "%.500s", error->message);
    assert_int_equal(status, error->code);
    return (ckpt_code)status;
}

static ckpt_code no_handle(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no handle");
}

static ckpt_code starve_graph(void *context, ckpt_err *err)
{
    (void)context;
    ckpt_error error = {0};
    ckpt_graph *const graph = ckpt_graph_create("chain");
    if (graph == NULL) {
        return no_handle(err);
    }
    build_chain(graph, LAYERS);
    build_ways(graph);
    int status = ckpt_graph_finish(graph, &error);
    char *const json = status == CKPT_SUCCESS ? ckpt_graph_json(graph, NULL, &error) : NULL;
    status = json == NULL ? error.code : status;
    ckpt_json_free(json);
    ckpt_graph_destroy(graph);
    return code_of(status, &error, err);
}

static ckpt_code starve_options(void *context, ckpt_err *err)
{
    (void)context;
    ckpt_error error = {0};
    char value[6000];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    ckpt_options *const options = ckpt_options_create();
    if (options == NULL) {
        return no_handle(err);
    }
    int status = ckpt_options_set(options, "keep", value, &error);
    status =
        status == CKPT_SUCCESS ? ckpt_options_set_json(options, "start", "n", value, sizeof value, &error) : status;
    ckpt_options_destroy(options);
    return code_of(status, &error, err);
}

static ckpt_code starve_model(void *context, ckpt_err *err)
{
    (void)context;
    ckpt_error error = {0};
    ckpt_graph *graph = NULL;
    const int status = ckpt_graph_from_json("m.json", model, strlen(model), NULL, &graph, &error);
    ckpt_graph_destroy(graph);
    return code_of(status, &error, err);
}

typedef struct ready {
    ckpt_graph *graph;
    ckpt_options *options;
    ckpt_plan *plan;
    const char *json;
} ready;

static ckpt_code starve_plan(void *context, ckpt_err *err)
{
    const ready *const r = context;
    ckpt_error error = {0};
    ckpt_plan *plan = NULL;
    int status = ckpt_plan_create(r->graph, r->options, &plan, &error);
    char *const json = status == CKPT_SUCCESS ? ckpt_plan_json(plan, NULL, &error) : NULL;
    status = json == NULL ? error.code : status;
    ckpt_json_free(json);
    ckpt_plan_destroy(plan);
    return code_of(status, &error, err);
}

static ckpt_code starve_reading(void *context, ckpt_err *err)
{
    const ready *const r = context;
    ckpt_error error = {0};
    ckpt_plan *plan = NULL;
    int status = ckpt_plan_from_json("p", r->json, strlen(r->json), &plan, &error);
    status = status == CKPT_SUCCESS ? ckpt_plan_verify(plan, r->graph, 1, &error) : status;
    ckpt_plan_destroy(plan);
    return code_of(status, &error, err);
}

static ckpt_code starve_trace(void *context, ckpt_err *err)
{
    const ready *const r = context;
    ckpt_error error = {0};
    ckpt_trace *trace = NULL;
    int status = ckpt_trace_create(r->plan, r->graph, &trace, &error);
    char *const json = status == CKPT_SUCCESS ? ckpt_trace_json(trace, NULL, &error) : NULL;
    status = json == NULL ? error.code : status;
    ckpt_json_free(json);
    ckpt_trace_destroy(trace);
    return code_of(status, &error, err);
}

static ckpt_code starve_explanation(void *context, ckpt_err *err)
{
    const ready *const r = context;
    ckpt_error error = {0};
    ckpt_explanation *explanation = NULL;
    int status = ckpt_explanation_create(r->plan, r->graph, r->options, &explanation, &error);
    char *const json = status == CKPT_SUCCESS ? ckpt_explanation_json(explanation, NULL, &error) : NULL;
    status = json == NULL ? error.code : status;
    ckpt_json_free(json);
    ckpt_explanation_destroy(explanation);
    return code_of(status, &error, err);
}

static ckpt_code starve_sweep(void *context, ckpt_err *err)
{
    const ready *const r = context;
    ckpt_error error = {0};
    ckpt_sweep *sweep = NULL;
    int status = ckpt_sweep_create(r->graph, r->options, 2, &sweep, &error);
    char *const json = status == CKPT_SUCCESS ? ckpt_sweep_json(sweep, NULL, &error) : NULL;
    status = json == NULL ? error.code : status;
    ckpt_json_free(json);
    ckpt_sweep_destroy(sweep);
    return code_of(status, &error, err);
}

/* ckpt_test_starve wants no block live, so what a call needs is made outside and counted off. */
static void test_without_memory(void **state)
{
    assert_true(ckpt_test_starve(starve_graph, NULL) > 3);
    assert_true(ckpt_test_starve(starve_options, NULL) > 2);
    assert_true(ckpt_test_starve(starve_model, NULL) > 5);
    ckpt_error error;
    ready r = {.graph = ckpt_graph_create("chain"), .options = options_of("budget", "90%")};
    build_chain(r.graph, 4);
    CHECK_DONE(ckpt_graph_finish(r.graph, &error), error);
    CHECK_DONE(ckpt_options_set(r.options, "strategy", "chain", &error), error);
    r.plan = plan_of(r.graph, r.options);
    char *const json = ckpt_plan_json(r.plan, NULL, &error);
    r.json = json;
    ckpt_code (*const calls[])(void *, ckpt_err *) = {starve_plan, starve_reading, starve_trace, starve_explanation,
                                                      starve_sweep};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        assert_true(ckpt_test_starve(calls[i], &r) > 3);
    }
    ckpt_json_free(json);
    ckpt_plan_destroy(r.plan);
    ckpt_options_destroy(r.options);
    ckpt_graph_destroy(r.graph);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* The same plan from a graph that was built and from its JSON, but for the words that tell where it came from. */
static void test_the_same_plan_twice(void **state)
{
    ckpt_error error;
    ckpt_graph *const graph = chain();
    ckpt_plan *const a = plan_of(graph, NULL);
    ckpt_plan *const b = plan_of(graph, NULL);
    char *const first = ckpt_plan_json(a, NULL, &error);
    char *const second = ckpt_plan_json(b, NULL, &error);
    same_plans(first, second);
    ckpt_json_free(first);
    ckpt_json_free(second);
    ckpt_plan_destroy(a);
    ckpt_plan_destroy(b);
    ckpt_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_built_graph_is_that_of_its_json),
        cmocka_unit_test(test_variants_are_built),
        cmocka_unit_test(test_plan_verify_simulate_explain_sweep),
        cmocka_unit_test(test_a_link_of_the_options),
        cmocka_unit_test(test_no_plan_is_an_answer),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_wrong_texts),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_what_is_listed_can_be_set),
        cmocka_unit_test(test_wrong_graphs),
        cmocka_unit_test(test_models_are_lowered_by_their_options),
        cmocka_unit_test(test_documents_in_memory),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_the_same_plan_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
