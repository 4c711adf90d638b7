/* labels: unit */
/* The optional members of plans, traces and profiles: random contents go to a file and come back, and files without
 * them are read as before. What malformed ones say is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>

#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "core/formats/trace.h"

enum { MOST = 12 };

/* Names of every kind that a file may bring: control characters, quotes, markup, other scripts, long ones. */
static const char *draw_name(ckpt_arena *arena, int number)
{
    static const char *const form[] = {"h.%d.attn", "a \"b\"\\%d", "</script>\x01%d", "\xe5\xb1\xa4-%d", "%d\n\ttab"};
    if (ckpt_test_draw(8) > 0) {
        const uint64_t which = ckpt_test_draw(sizeof form / sizeof form[0]);
        char text[80];
        snprintf(text, sizeof text, form[which], number);
        return ckpt_arena_text(arena, text);
    }
    char *const name = CKPT_NEW(arena, char, 10001);
    memset(name, 'x', 10000);
    const int digits = snprintf(name, 10001, "%d", number);
    name[digits] = 'x';
    return name;
}

static int64_t draw_size(void)
{
    return (int64_t)(ckpt_test_draw(2) == 0 ? ckpt_test_draw(1000) : ckpt_test_draw((uint64_t)1 << 52));
}

static int draw_count(void)
{
    return (int)ckpt_test_draw(MOST);
}

/* A graph with what an outline shows of it, and nothing else. */
static const ckpt_graph *draw_graph(ckpt_arena *arena)
{
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_static *const statics = CKPT_NEW(arena, ckpt_static, MOST);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, MOST + 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, MOST + 1);
    *graph = (ckpt_graph){.name = draw_name(arena, -1),
                          .statics = statics,
                          .static_count = draw_count(),
                          .buffer = buffer,
                          .buffer_count = 1 + draw_count(),
                          .op = op,
                          .op_count = 1 + draw_count()};
    for (int i = 0; i < graph->static_count; i++) {
        statics[i] = (ckpt_static){draw_name(arena, i), draw_size()};
        graph->static_bytes += statics[i].bytes;
    }
    for (int i = 0; i < graph->buffer_count; i++) {
        buffer[i] = (ckpt_buffer){draw_name(arena, i), draw_size(), (ckpt_kind)ckpt_test_draw(3)};
    }
    for (int i = 0; i < graph->op_count; i++) {
        op[i].name = draw_name(arena, i);
        op[i].layer = ckpt_test_draw(3) == 0 ? "" : draw_name(arena, i / 2);
        op[i].phase = (ckpt_phase)ckpt_test_draw(4);
        op[i].time_ns = draw_size();
    }
    return graph;
}

/* What follows from the steps and places, computed the long way. */
static void fill_summary(ckpt_plan *plan, const ckpt_graph *graph)
{
    bool on_host[MOST] = {false};
    for (int i = 0; i < plan->step_count; i++) {
        ckpt_bytes live = plan->static_bytes;
        for (int k = 0; k < plan->allocation_count; k++) {
            const ckpt_allocation *const a = &plan->allocation[k];
            live += a->from <= i && i <= a->to ? a->bytes : 0;
        }
        plan->peak_bytes = live > plan->peak_bytes ? live : plan->peak_bytes;
        for (int o = 0; o < graph->op_count && plan->step[i].kind == CKPT_RUN; o++) {
            plan->time_ns += strcmp(graph->op[o].name, plan->step[i].name) == 0 ? graph->op[o].time_ns : 0;
        }
        for (int b = 0; b < graph->buffer_count && plan->step[i].kind == CKPT_OFFLOAD; b++) {
            if (strcmp(graph->buffer[b].name, plan->step[i].name) == 0) {
                plan->offload_bytes += graph->buffer[b].bytes;
                plan->host_bytes += on_host[b] ? 0 : graph->buffer[b].bytes;
                on_host[b] = true;
            }
        }
    }
}

/* Steps and places that mean nothing, of ops and buffers that there are. */
static ckpt_plan *draw_plan(const ckpt_graph *graph, ckpt_arena *arena)
{
    ckpt_plan *const plan = CKPT_NEW(arena, ckpt_plan, 1);
    ckpt_step *const step = CKPT_NEW(arena, ckpt_step, MOST + 1);
    ckpt_allocation *const allocation = CKPT_NEW(arena, ckpt_allocation, MOST + 1);
    const char **const option = CKPT_NEW(arena, const char *, MOST);
    plan->graph_name = graph->name;
    memset(plan->graph_sha256, 'a', CKPT_DIGEST_TEXT - 1);
    plan->static_bytes = graph->static_bytes;
    plan->arena_bytes = INT64_MAX - plan->static_bytes; /* together they must fit 63 bits */
    plan->solver = plan->costs = "";
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_outline(graph, arena, &plan->outline, &err), err);
    plan->step_count = 1 + draw_count();
    for (int i = 0; i < plan->step_count; i++) {
        step[i].kind = (ckpt_step_kind)ckpt_test_draw(4);
        step[i].name = step[i].kind == CKPT_RUN ? graph->op[ckpt_test_draw((uint64_t)graph->op_count)].name
                                                : graph->buffer[ckpt_test_draw((uint64_t)graph->buffer_count)].name;
    }
    plan->allocation_count = draw_count();
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_buffer *const b = &graph->buffer[ckpt_test_draw((uint64_t)graph->buffer_count)];
        const bool scratch = ckpt_test_draw(3) == 0;
        const int from = (int)ckpt_test_draw((uint64_t)plan->step_count);
        allocation[i] = (ckpt_allocation){.name = scratch ? "workspace" : b->name,
                                          .from = from,
                                          .to = plan->step_count - 1,
                                          .offset = draw_size(),
                                          .bytes = scratch ? draw_size() : b->bytes};
    }
    plan->option_count = draw_count();
    for (int i = 0; i < plan->option_count; i++) {
        option[i] = draw_name(arena, i);
    }
    ckpt_layer_algorithms *const algorithms = CKPT_NEW(arena, ckpt_layer_algorithms, MOST);
    plan->algorithms_count = draw_count();
    for (int i = 0; i < plan->algorithms_count; i++) {
        algorithms[i] = (ckpt_layer_algorithms){draw_name(arena, i), draw_name(arena, i / 2)};
    }
    plan->step = step;
    plan->allocation = allocation;
    plan->option = option;
    plan->algorithms = algorithms;
    plan->budget_bytes = INT64_MAX;
    fill_summary(plan, graph);
    return plan;
}

static void check_outline(const ckpt_outline *a, const ckpt_graph *b)
{
    assert_int_equal(a->static_count, b->static_count);
    assert_int_equal(a->buffer_count, b->buffer_count);
    assert_int_equal(a->op_count, b->op_count);
    for (int i = 0; i < a->static_count; i++) {
        assert_string_equal(a->statics[i].name, b->statics[i].name);
        assert_int_equal(a->statics[i].bytes, b->statics[i].bytes);
    }
    for (int i = 0; i < a->buffer_count; i++) {
        assert_string_equal(a->buffer[i].name, b->buffer[i].name);
        assert_int_equal(a->buffer[i].bytes, b->buffer[i].bytes);
        assert_int_equal(a->buffer[i].kind, b->buffer[i].kind);
    }
    for (int i = 0; i < a->op_count; i++) {
        assert_string_equal(a->op[i].name, b->op[i].name);
        assert_string_equal(a->op[i].layer, b->op[i].layer);
        assert_int_equal(a->op[i].phase, b->op[i].phase);
        assert_int_equal(a->op[i].time_ns, b->op[i].time_ns);
    }
}

static void test_plans_keep_outline_and_options(void **state)
{
    for (uint64_t round = ckpt_test_rounds(200, 40); round > 0; round--) {
        CKPT_TEST_ARENA(arena);
        ckpt_text text;
        ckpt_err err = {0};
        ckpt_plan *back = NULL;
        ckpt_text_init(&text);
        const ckpt_graph *const graph = draw_graph(&arena);
        const ckpt_plan *const plan = draw_plan(graph, &arena);
        ckpt_plan_write(plan, &text);
        CHECK_OK(ckpt_plan_read(ckpt_test_file("members.json", text.bytes, text.length), &arena, &back, &err), err);
        check_outline(&back->outline, graph);
        assert_int_equal(back->option_count, plan->option_count);
        for (int i = 0; i < plan->option_count; i++) {
            assert_string_equal(back->option[i], plan->option[i]);
        }
        assert_int_equal(back->algorithms_count, plan->algorithms_count);
        for (int i = 0; i < plan->algorithms_count; i++) {
            assert_string_equal(back->algorithms[i].layer, plan->algorithms[i].layer);
            assert_string_equal(back->algorithms[i].algorithms, plan->algorithms[i].algorithms);
        }
        assert_int_equal(back->step_count, plan->step_count);
        assert_int_equal(back->allocation_count, plan->allocation_count);
        ckpt_test_round_trip("plan", text.bytes);
        ckpt_text_fini(&text);
    }
}

/* A plan that knows nothing of its graph, as older ones, and one without options and algorithms. */
static void test_older_plans(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_err err = {0};
    ckpt_plan *back = NULL;
    ckpt_text_init(&text);
    ckpt_plan *const plan = draw_plan(draw_graph(&arena), &arena);
    plan->outline = (ckpt_outline){0};
    plan->option_count = plan->algorithms_count = 0;
    ckpt_plan_write(plan, &text);
    CHECK(strstr(text.bytes, "\"ops\"") == NULL && strstr(text.bytes, "\"options\"") == NULL &&
              strstr(text.bytes, "\"algorithms\"") == NULL,
          "%s", text.bytes);
    CHECK_OK(ckpt_plan_read(ckpt_test_file("members.json", text.bytes, text.length), &arena, &back, &err), err);
    assert_int_equal(back->outline.op_count, 0);
    assert_int_equal(back->outline.buffer_count, 0);
    assert_int_equal(back->outline.static_count, 0);
    assert_int_equal(back->option_count, 0);
    assert_int_equal(back->algorithms_count, 0);
    ckpt_text_fini(&text);
}

static ckpt_ns *draw_times(ckpt_arena *arena, int count)
{
    ckpt_ns *const time = CKPT_NEW(arena, ckpt_ns, count);
    for (int i = 0; i < count; i++) {
        time[i] = draw_size();
    }
    return time;
}

static ckpt_trace *draw_trace(ckpt_arena *arena)
{
    static const ckpt_category lies[] = {CKPT_CAT_ACTIVATIONS, CKPT_CAT_SAVED, CKPT_CAT_GRADIENTS, CKPT_CAT_WORKSPACE};
    ckpt_trace *const trace = CKPT_NEW(arena, ckpt_trace, 1);
    ckpt_trace_allocation *const allocation = CKPT_NEW(arena, ckpt_trace_allocation, MOST);
    ckpt_event *const event = CKPT_NEW(arena, ckpt_event, 2); /* all that places are held against, in any order */
    const int last = (int)ckpt_test_draw(2);
    event[last] = (ckpt_event){.step = 2000, .name = "last", .end_ns = 1};
    event[1 - last] = (ckpt_event){.step = 3, .name = "first", .end_ns = 1};
    const bool known = ckpt_test_draw(2) == 0;
    *trace = (ckpt_trace){.name = draw_name(arena, 0),
                          .plan = "",
                          .measured = ckpt_test_draw(2) == 0,
                          .arena_bytes = known ? (ckpt_bytes)1 << 54 : 0,
                          .capacity_bytes = ckpt_test_draw(2) == 0 ? 0 : draw_size(),
                          .step_ns_count = draw_count(),
                          .event = event,
                          .event_count = 2,
                          .allocation = allocation,
                          .allocation_count = draw_count()};
    trace->step_ns = draw_times(arena, trace->step_ns_count);
    for (int i = 0; i < trace->allocation_count; i++) {
        const int from = (int)ckpt_test_draw(1000);
        allocation[i] = (ckpt_trace_allocation){.name = draw_name(arena, i),
                                                .category = lies[ckpt_test_draw(4)],
                                                .from = from,
                                                .to = from + (int)ckpt_test_draw(1000),
                                                .offset = draw_size(),
                                                .bytes = draw_size()};
    }
    return trace;
}

static void test_traces_keep_places_and_step_times(void **state)
{
    for (uint64_t round = ckpt_test_rounds(200, 40); round > 0; round--) {
        CKPT_TEST_ARENA(arena);
        ckpt_text text;
        ckpt_err err = {0};
        const ckpt_trace *back = NULL;
        ckpt_text_init(&text);
        const ckpt_trace *const trace = draw_trace(&arena);
        ckpt_trace_write(trace, &text);
        CHECK_OK(ckpt_trace_read(ckpt_test_file("members.json", text.bytes, text.length), &arena, &back, &err), err);
        assert_int_equal(back->capacity_bytes, trace->capacity_bytes);
        assert_int_equal(back->step_ns_count, trace->step_ns_count);
        for (int i = 0; i < trace->step_ns_count; i++) {
            assert_int_equal(back->step_ns[i], trace->step_ns[i]);
        }
        assert_int_equal(back->allocation_count, trace->allocation_count);
        for (int i = 0; i < trace->allocation_count; i++) {
            const ckpt_trace_allocation *const a = &back->allocation[i];
            const ckpt_trace_allocation *const b = &trace->allocation[i];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->category, b->category);
            assert_int_equal(a->from, b->from);
            assert_int_equal(a->to, b->to);
            assert_int_equal(a->offset, b->offset);
            assert_int_equal(a->bytes, b->bytes);
        }
        ckpt_test_round_trip("trace", text.bytes);
        ckpt_text_fini(&text);
    }
}

static ckpt_timing draw_timing(ckpt_arena *arena)
{
    const int repeats = draw_count();
    const bool older = ckpt_test_draw(3) == 0 || repeats == 0;
    return (ckpt_timing){
        .median_ns = draw_size(), .repeats = repeats, .sample_ns = older ? NULL : draw_times(arena, repeats)};
}

static void check_samples(const ckpt_timing *a, const ckpt_timing *b)
{
    assert_int_equal(a->repeats, b->repeats);
    assert_int_equal(a->sample_ns == NULL, b->sample_ns == NULL);
    for (int i = 0; a->sample_ns != NULL && i < a->repeats; i++) {
        assert_int_equal(a->sample_ns[i], b->sample_ns[i]);
    }
}

/* Row 1 is a twin of row 0: it has its samples, which stand in the file once. Row 2 says so too, but has other times:
 * the samples are not of them. */
static void test_profiles_keep_samples(void **state)
{
    for (uint64_t round = ckpt_test_rounds(200, 40); round > 0; round--) {
        CKPT_TEST_ARENA(arena);
        ckpt_text text;
        ckpt_err err = {0};
        const ckpt_profile *back = NULL;
        ckpt_text_init(&text);
        ckpt_profile_row row[3] = {{.layer = "a", .op = "linear", .same_as = ""}};
        row[0].forward = draw_timing(&arena);
        row[0].backward = draw_timing(&arena);
        row[0].update = draw_timing(&arena);
        row[1] = row[2] = row[0];
        row[1].layer = "b";
        row[2].layer = "c";
        row[1].same_as = row[2].same_as = "a";
        row[2].forward = (ckpt_timing){.median_ns = row[0].forward.median_ns + 1, .repeats = row[0].forward.repeats};
        const ckpt_profile profile = {.model = "m", .row = row, .row_count = 3};
        ckpt_profile_write(&profile, &text);
        CHECK_OK(ckpt_profile_read(ckpt_test_file("members.json", text.bytes, text.length), &arena, &back, &err), err);
        int arrays = 0;
        for (const char *at = strstr(text.bytes, "samples_ns"); at != NULL; at = strstr(at + 1, "samples_ns")) {
            arrays++;
        }
        assert_int_equal(arrays, (row[0].forward.sample_ns != NULL) + (row[0].backward.sample_ns != NULL) +
                                     (row[0].update.sample_ns != NULL));
        for (int i = 0; i < 3; i++) {
            check_samples(&back->row[i].forward, &row[i].forward);
            check_samples(&back->row[i].backward, &row[i].backward);
            check_samples(&back->row[i].update, &row[i].update);
        }
        ckpt_test_round_trip("profile", text.bytes);
        ckpt_text_fini(&text);
    }
}

static void test_without_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_plan_write(draw_plan(draw_graph(&arena), &arena), &text);
    ckpt_test_starve_format("plan", text.bytes);
    ckpt_text_fini(&text);
    ckpt_trace_write(draw_trace(&arena), &text);
    ckpt_test_starve_format("trace", text.bytes);
    ckpt_text_fini(&text);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_keep_outline_and_options),
        cmocka_unit_test(test_older_plans),
        cmocka_unit_test(test_traces_keep_places_and_step_times),
        cmocka_unit_test(test_profiles_keep_samples),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
