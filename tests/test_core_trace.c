/* labels: unit */
/* Traces and profiles: reading and writing. What malformed files say is test_malformed.c's. */
#include "tests/support_core.h"

#include <string.h>

#include "core/profile.h"
#include "core/trace.h"

static const ckpt_machine machine = {"cpu: \"x\"",           "550.1", "fixed", "oneDNN 2.6", "abc123", "ckpt-train a",
                                     "2026-01-01T00:00:00Z", 2,       true};

static void check_machine(const ckpt_machine *m)
{
    assert_string_equal(m->device, machine.device);
    assert_string_equal(m->driver, machine.driver);
    assert_string_equal(m->clocks, machine.clocks);
    assert_string_equal(m->libraries, machine.libraries);
    assert_string_equal(m->commit, machine.commit);
    assert_string_equal(m->command, machine.command);
    assert_string_equal(m->date, machine.date);
    assert_int_equal(m->threads, machine.threads);
    assert_int_equal(m->gpu, machine.gpu);
}

static const ckpt_event events[] = {
    {0, "f0", "l0", "compute", CKPT_SPAN_FORWARD, 0, 9, {100, 20, 3, 4, 50, 6, 7, 8, 1000000}},
    {1, "a0", "", "d2h", CKPT_SPAN_COPY, 9, 12, {100, 0, 3, 4, 0, 0, 0, 50, 0}},
    {2, "f0", "l0", "compute", CKPT_SPAN_RECOMPUTE, 12, 13, {100}},
    {3, "b0", "l0", "compute", CKPT_SPAN_BACKWARD, 13, 14, {0}},
    {4, "u0", "l0", "compute", CKPT_SPAN_UPDATE, 14, 15, {0}},
    {5, "f1", "l1", "compute", CKPT_SPAN_WAIT, 15, 15, {0}},
    {6, "a0", "", "compute", CKPT_SPAN_FREE, 15, 15, {0}},
};
enum { EVENT_COUNT = sizeof events / sizeof events[0] };

static void test_trace_survives_a_round_trip(void **state)
{
    (void)state;
    const ckpt_trace trace = {.name = "tiny",
                              .plan = "sqrt",
                              .measured = true,
                              .budget_bytes = 500,
                              .static_bytes = 107,
                              .arena_bytes = 91,
                              .peak_bytes = 198,
                              .peak_event = 0,
                              .time_ns = 15,
                              .process_peak_bytes = 123456,
                              .machine = machine,
                              .event = events,
                              .event_count = EVENT_COUNT};
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err = {0};
    const ckpt_trace *t = NULL;
    ckpt_arena_init(&arena);
    ckpt_text_init(&text);
    ckpt_trace_write(&trace, &text);
    CHECK_OK(ckpt_trace_read(ckpt_test_file("trace.json", text.bytes, text.length), &arena, &t, &err), err);
    assert_string_equal(t->name, "tiny");
    assert_string_equal(t->plan, "sqrt");
    assert_true(t->measured);
    assert_int_equal(t->budget_bytes, 500);
    assert_int_equal(t->static_bytes, 107);
    assert_int_equal(t->arena_bytes, 91);
    assert_int_equal(t->peak_bytes, 198);
    assert_int_equal(t->time_ns, 15);
    assert_int_equal(t->process_peak_bytes, 123456);
    check_machine(&t->machine);
    assert_int_equal(t->event_count, EVENT_COUNT);
    for (int i = 0; i < EVENT_COUNT; i++) {
        const ckpt_event *const e = &t->event[i];
        assert_int_equal(e->step, events[i].step);
        assert_string_equal(e->name, events[i].name);
        assert_string_equal(e->layer, events[i].layer);
        assert_string_equal(e->stream, events[i].stream);
        assert_int_equal(e->span, events[i].span);
        assert_int_equal(e->start_ns, events[i].start_ns);
        assert_int_equal(e->end_ns, events[i].end_ns);
        assert_memory_equal(e->bytes, events[i].bytes, sizeof e->bytes);
    }
    ckpt_test_round_trip("trace", text.bytes);
    ckpt_test_starve_format("trace", text.bytes);
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
}

static void test_categories(void **state)
{
    (void)state;
    assert_int_equal(ckpt_static_category("weights"), CKPT_CAT_WEIGHTS);
    assert_int_equal(ckpt_static_category("gradients"), CKPT_CAT_GRADIENTS);
    assert_int_equal(ckpt_static_category("optimizer"), CKPT_CAT_OPTIMIZER);
    assert_int_equal(ckpt_static_category("inputs"), CKPT_CAT_INPUTS);
    assert_int_equal(ckpt_static_category("statistics"), CKPT_CAT_INPUTS);
    assert_int_equal(ckpt_static_category("saved"), CKPT_CAT_INPUTS); /* a name, not a category */
    assert_int_equal(ckpt_kind_category(CKPT_ACTIVATION), CKPT_CAT_ACTIVATIONS);
    assert_int_equal(ckpt_kind_category(CKPT_SAVED), CKPT_CAT_SAVED);
    assert_int_equal(ckpt_kind_category(CKPT_GRADIENT), CKPT_CAT_GRADIENTS);
    for (int a = 0; a < CKPT_CATEGORY_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(ckpt_category_name((ckpt_category)a), ckpt_category_name((ckpt_category)b));
        }
    }
}

static const ckpt_profile_row rows[] = {
    {"h.0.a", "linear", "", {10, 1, 5}, {20, 2, 6}, {30, 3, 7}, 64, 65, 66, 67, 68, 69, 70, "gemm", "gemm<1,2>, gemm"},
    {"h.1.a", "linear", "h.0.a", {10, 1, 5}, {20, 2, 6}, {0, 0, 0}, 64, 65, 66, 67, 68, 69, 70, "", ""},
};

static void test_profile_survives_a_round_trip(void **state)
{
    (void)state;
    const ckpt_profile profile = {
        .model = "net", .machine = machine, .d2h_bytes_per_s = 11, .h2d_bytes_per_s = 12, .row = rows, .row_count = 2};
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err = {0};
    const ckpt_profile *p = NULL;
    ckpt_arena_init(&arena);
    ckpt_text_init(&text);
    ckpt_profile_write(&profile, &text);
    CHECK_OK(ckpt_profile_read(ckpt_test_file("profile.json", text.bytes, text.length), &arena, &p, &err), err);
    assert_string_equal(p->model, "net");
    check_machine(&p->machine);
    assert_int_equal(p->d2h_bytes_per_s, 11);
    assert_int_equal(p->h2d_bytes_per_s, 12);
    assert_int_equal(p->row_count, 2);
    for (int i = 0; i < 2; i++) {
        const ckpt_profile_row *const a = &p->row[i];
        const ckpt_profile_row *const b = &rows[i];
        assert_string_equal(a->layer, b->layer);
        assert_string_equal(a->op, b->op);
        assert_string_equal(a->same_as, b->same_as);
        assert_memory_equal(&a->forward, &b->forward, sizeof(int64_t) * 2 + sizeof(int));
        assert_memory_equal(&a->backward, &b->backward, sizeof(int64_t) * 2 + sizeof(int));
        assert_memory_equal(&a->update, &b->update, sizeof(int64_t) * 2 + sizeof(int));
        assert_int_equal(a->output_bytes, b->output_bytes);
        assert_int_equal(a->saved_bytes, b->saved_bytes);
        assert_int_equal(a->forward_workspace_bytes, b->forward_workspace_bytes);
        assert_int_equal(a->backward_workspace_bytes, b->backward_workspace_bytes);
        assert_int_equal(a->parameter_bytes, b->parameter_bytes);
        assert_int_equal(a->gradient_bytes, b->gradient_bytes);
        assert_int_equal(a->optimizer_bytes, b->optimizer_bytes);
        assert_ptr_equal(ckpt_profile_find(p, b->layer), a);
    }
    assert_null(ckpt_profile_find(p, "h.2.a"));
    ckpt_test_round_trip("profile", text.bytes);
    ckpt_test_starve_format("profile", text.bytes);
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_survives_a_round_trip),
        cmocka_unit_test(test_categories),
        cmocka_unit_test(test_profile_survives_a_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
