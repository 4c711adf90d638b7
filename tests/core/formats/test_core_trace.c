/* labels: unit */
/* Traces and profiles: reading and writing. What malformed files say is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <string.h>

#include "core/formats/profile.h"
#include "core/formats/trace.h"

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
    {.step = 0,
     .name = "f0",
     .layer = "l0",
     .stream = "compute",
     .span = CKPT_SPAN_FORWARD,
     .end_ns = 9,
     .bytes = {100, 20, 3, 4, 50, 6, 7, 8, 2, 1000000},
     .kernel_ns = 5,
     .launches = 2},
    {.step = 1,
     .name = "a0",
     .layer = "",
     .stream = "d2h",
     .span = CKPT_SPAN_COPY,
     .start_ns = 9,
     .end_ns = 12,
     .bytes = {100, 0, 3, 4, 0, 0, 0, 50, 0, 0},
     .size_bytes = 31},
    {.step = 2,
     .name = "f0",
     .layer = "l0",
     .stream = "compute",
     .span = CKPT_SPAN_RECOMPUTE,
     .start_ns = 12,
     .end_ns = 13,
     .bytes = {100}},
    {.step = 3,
     .name = "b0",
     .layer = "l0",
     .variant = "winograd",
     .inexact = true,
     .stream = "compute",
     .span = CKPT_SPAN_BACKWARD,
     .start_ns = 13,
     .end_ns = 14},
    {.step = 4,
     .name = "u0",
     .layer = "l0",
     .stream = "compute",
     .span = CKPT_SPAN_UPDATE,
     .start_ns = 14,
     .end_ns = 15},
    {.step = 5, .name = "f1", .layer = "l1", .stream = "compute", .span = CKPT_SPAN_WAIT, .start_ns = 15, .end_ns = 15},
    {.step = 6, .name = "a0", .layer = "", .stream = "compute", .span = CKPT_SPAN_FREE, .start_ns = 15, .end_ns = 15},
    {.step = 7,
     .name = "malloc",
     .layer = "",
     .stream = "stream 7",
     .span = CKPT_SPAN_ALLOCATE,
     .start_ns = 15,
     .end_ns = 15,
     .bytes = {[CKPT_CAT_OTHER] = 64},
     .size_bytes = 64,
     .address = INT64_C(0x7f0000001000)},
    {.step = 8, .name = "k", .layer = "", .stream = "stream 7", .span = CKPT_SPAN_OTHER, .start_ns = 15, .end_ns = 15},
};
enum { EVENT_COUNT = sizeof events / sizeof events[0] };

static const ckpt_trace_allocation allocations[] = {
    {"f0", CKPT_CAT_ACTIVATIONS, 0, 5, 0, 64},
    {"workspace", CKPT_CAT_WORKSPACE, 2, 2, 64, 27},
};
static const ckpt_ns step_times[] = {15, 14, 17};

static void test_trace_survives_a_round_trip(void **state)
{
    const ckpt_trace trace = {.name = "tiny",
                              .plan = "sqrt",
                              .measured = true,
                              .budget_bytes = 500,
                              .static_bytes = 107,
                              .arena_bytes = 91,
                              .peak_bytes = 200,
                              .peak_event = 0,
                              .time_ns = 15,
                              .recorder = "CUPTI \"13\"",
                              .process_peak_bytes = 123456,
                              .machine = machine,
                              .event = events,
                              .event_count = EVENT_COUNT,
                              .capacity_bytes = 4096,
                              .step_ns = step_times,
                              .step_ns_count = 3,
                              .allocation = allocations,
                              .allocation_count = 2};
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_err err = {0};
    const ckpt_trace *t = NULL;
    ckpt_text_init(&text);
    ckpt_trace_write(&trace, &text);
    CHECK_OK(ckpt_trace_read(ckpt_test_file("trace.json", text.bytes, text.length), &arena, &t, &err), err);
    assert_string_equal(t->name, "tiny");
    assert_string_equal(t->plan, "sqrt");
    assert_true(t->measured);
    assert_int_equal(t->budget_bytes, 500);
    assert_int_equal(t->static_bytes, 107);
    assert_int_equal(t->arena_bytes, 91);
    assert_int_equal(t->peak_bytes, 200);
    assert_int_equal(t->time_ns, 15);
    assert_int_equal(t->process_peak_bytes, 123456);
    assert_string_equal(t->recorder, "CUPTI \"13\"");
    check_machine(&t->machine);
    assert_int_equal(t->capacity_bytes, 4096);
    assert_int_equal(t->step_ns_count, 3);
    assert_memory_equal(t->step_ns, step_times, sizeof step_times);
    assert_int_equal(t->allocation_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(t->allocation[i].name, allocations[i].name);
        assert_int_equal(t->allocation[i].category, allocations[i].category);
        assert_int_equal(t->allocation[i].from, allocations[i].from);
        assert_int_equal(t->allocation[i].to, allocations[i].to);
        assert_int_equal(t->allocation[i].offset, allocations[i].offset);
        assert_int_equal(t->allocation[i].bytes, allocations[i].bytes);
    }
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
        assert_int_equal(e->size_bytes, events[i].size_bytes);
        assert_int_equal(e->address, events[i].address);
        assert_int_equal(e->kernel_ns, events[i].kernel_ns);
        assert_int_equal(e->launches, events[i].launches);
        assert_int_equal(e->inexact, events[i].inexact);
        assert_true((e->variant == NULL) == (events[i].variant == NULL));
        assert_string_equal(e->variant != NULL ? e->variant : "", events[i].variant != NULL ? events[i].variant : "");
    }
    ckpt_test_round_trip("trace", text.bytes);
    ckpt_test_starve_format("trace", text.bytes);
    ckpt_text_fini(&text);
}

static void test_categories(void **state)
{
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

static const ckpt_profile_kernel kernels[] = {
    {CKPT_DIRECTION_FORWARD, "gemm<1, \"2\">", 2, 7},
    {CKPT_DIRECTION_BACKWARD, "gemm", 1, 0},
    {CKPT_DIRECTION_UPDATE, "adam", 3, 30},
};

static const ckpt_ns samples[] = {10, 11, 9, 10, 30, 8, 20};

static const ckpt_profile_row rows[] = {
    {.layer = "h.0.a",
     .op = "linear",
     .same_as = "",
     .forward = {10, 1, 5, samples, 1000, 2000, 0.625, 8, 2, 4, 300, 400, 17},
     .backward = {20, 2, 6, samples + 1, INT64_MAX, 2001, 1.5, 9, 3, 5, 301, 401, 18, 21},
     .update = {30, 3, 7, NULL, 1002, INT64_MAX, 0.1, 10, 4, INT32_MAX, 302, 402, 19},
     .recompute = {.median_ns = 9, .spread_ns = 1, .repeats = 3, .sample_ns = samples + 2},
     .output_bytes = 64,
     .saved_bytes = 65,
     .forward_workspace_bytes = 66,
     .backward_workspace_bytes = 67,
     .parameter_bytes = 68,
     .gradient_bytes = 69,
     .optimizer_bytes = 70,
     .algorithms = "forward=lt1:2;weight=\"own\"",
     .kernel = kernels,
     .kernel_count = 3},
    {.layer = "h.1.a",
     .op = "linear",
     .same_as = "h.0.a",
     .forward = {.median_ns = 10, .spread_ns = 1, .repeats = 5},
     .backward = {.median_ns = 20, .spread_ns = 2, .repeats = 6},
     .recompute = {.median_ns = 9, .spread_ns = 1, .repeats = 3},
     .output_bytes = 64},
};

static void check_timing(const ckpt_timing *a, const ckpt_timing *b)
{
    assert_int_equal(a->median_ns, b->median_ns);
    assert_int_equal(a->spread_ns, b->spread_ns);
    assert_int_equal(a->repeats, b->repeats);
    for (int i = 0; b->sample_ns != NULL && i < b->repeats; i++) {
        assert_int_equal(a->sample_ns[i], b->sample_ns[i]);
    }
    assert_int_equal(a->flop, b->flop);
    assert_int_equal(a->moved_bytes, b->moved_bytes);
    assert_memory_equal(&a->roofline, &b->roofline, sizeof a->roofline);
    assert_int_equal(a->kernel_ns, b->kernel_ns);
    assert_int_equal(a->gap_ns, b->gap_ns);
    assert_int_equal(a->launches, b->launches);
    assert_int_equal(a->cycles, b->cycles);
    assert_int_equal(a->instructions, b->instructions);
    assert_int_equal(a->cache_misses, b->cache_misses);
    assert_int_equal(a->alone_ns, b->alone_ns);
}

static void test_profile_survives_a_round_trip(void **state)
{
    const ckpt_profile profile = {.model = "net",
                                  .machine = machine,
                                  .recorder = "CUPTI, \"0\" lost",
                                  .flushed = true,
                                  .d2h_bytes_per_s = 11,
                                  .h2d_bytes_per_s = 12,
                                  .d2h_busy_bytes_per_s = 9,
                                  .h2d_busy_bytes_per_s = 10,
                                  .step = {{.median_ns = 99, .repeats = 2, .sample_ns = samples}, 40, "keep-all"},
                                  .row = rows,
                                  .row_count = 2};
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_err err = {0};
    const ckpt_profile *p = NULL;
    ckpt_text_init(&text);
    ckpt_profile_write(&profile, &text);
    CHECK_OK(ckpt_profile_read(ckpt_test_file("profile.json", text.bytes, text.length), &arena, &p, &err), err);
    assert_string_equal(p->model, "net");
    check_machine(&p->machine);
    assert_int_equal(p->d2h_bytes_per_s, 11);
    assert_int_equal(p->h2d_bytes_per_s, 12);
    assert_int_equal(p->d2h_busy_bytes_per_s, 9);
    assert_int_equal(p->h2d_busy_bytes_per_s, 10);
    assert_string_equal(p->recorder, profile.recorder);
    assert_true(p->flushed);
    assert_true(ckpt_profile_is_in_step(p));
    check_timing(&p->step.time, &profile.step.time);
    assert_int_equal(p->step.overhead_ns, 40);
    assert_string_equal(p->step.plan, "keep-all");
    assert_int_equal(p->row_count, 2);
    for (int i = 0; i < 2; i++) {
        const ckpt_profile_row *const a = &p->row[i];
        const ckpt_profile_row *const b = &rows[i];
        assert_string_equal(a->layer, b->layer);
        assert_string_equal(a->op, b->op);
        assert_string_equal(a->same_as, b->same_as);
        assert_string_equal(a->algorithms, rows[0].algorithms); /* a twin's are those of its same_as */
        check_timing(&a->forward, &b->forward);
        check_timing(&a->backward, &b->backward);
        check_timing(&a->update, &b->update);
        check_timing(&a->recompute, &b->recompute);
        assert_int_equal(a->kernel_count, b->kernel_count);
        for (int k = 0; k < b->kernel_count; k++) {
            assert_int_equal(a->kernel[k].direction, b->kernel[k].direction);
            assert_string_equal(a->kernel[k].name, b->kernel[k].name);
            assert_int_equal(a->kernel[k].count, b->kernel[k].count);
            assert_int_equal(a->kernel[k].median_ns, b->kernel[k].median_ns);
        }
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
