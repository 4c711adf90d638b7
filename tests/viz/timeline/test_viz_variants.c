/* labels: golden */
/* Runs in another way than their op's own, in every form of the timeline: goldens, and what each form says. */
#include <string.h>

#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/timeline/variants.h"
#include "viz/viz.h"

typedef ckpt_test_fixture fixture;

/* A chain of 8 layers. The run at the peak and two more are by an inexact variant, backward runs of odd layers by "bits",
 * one run by a variant whose name is for no file. */
static ckpt_trace *made(fixture *f)
{
    ckpt_trace *const trace = CKPT_NEW(&f->arena, ckpt_trace, 1);
    *trace = *ckpt_golden_trace(&(ckpt_golden_step){.layers = 8, .segment = 3}, &f->arena);
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, trace->event_count);
    memcpy(event, trace->event, (size_t)trace->event_count * sizeof *event);
    for (int i = 0, backward = 0; i < trace->event_count; i++) {
        if (event[i].span == CKPT_SPAN_BACKWARD && backward++ % 2 == 1) {
            event[i].variant = "bits";
        } else if (event[i].span == CKPT_SPAN_UPDATE && i + 1 == trace->event_count) {
            event[i].variant = "<&\",=\n";
        }
    }
    const int winograd[] = {0, 2, trace->peak_event};
    for (int i = 0; i < 3; i++) {
        event[winograd[i]].variant = "winograd";
        event[winograd[i]].inexact = true;
    }
    trace->event = event;
    return trace;
}

static void draw(fixture *f, const ckpt_trace *trace, const char *format)
{
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_draw(&trace, 1, format, NULL, &f->text, &f->err), f->err);
}

static void has(const fixture *f, const char *words)
{
    CHECK(strstr(f->text.bytes, words) != NULL, "lacks \"%s\": %.3000s", words, f->text.bytes);
}

static void golden(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const trace = made(f);
    draw(f, trace, "txt");
    ckpt_golden_check("view_variants.txt", f->text.bytes, f->text.length);
    draw(f, trace, "svg");
    ckpt_golden_check("view_variants.svg", f->text.bytes, f->text.length);
    has(f, "by winograd (inexact) while it runs</title>");
}

static void page_and_exports(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const trace = made(f);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_html(&trace, 1, NULL, &f->text, &f->err), f->err);
    has(f, "by winograd (inexact)");
    has(f, "in another way, 3 inexact");
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_csv(&trace, 1, &f->text, &f->err), f->err);
    has(f, "outside_bytes,variant,exact\r\n");
    has(f, ",\"winograd\",false\r\n");
    has(f, ",\"bits\",true\r\n");
    has(f, ",\"\",true\r\n");
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_chrome(&trace, 1, &f->text, &f->err), f->err);
    has(f, "\"variant\": \"winograd\", \"exact\": false");
    has(f, "\"variant\": \"bits\"");
}

/* The same steps in another way are not the same steps. */
static void another_way_is_a_difference(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const trace = made(f);
    ckpt_trace other = *trace;
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, trace->event_count);
    memcpy(event, trace->event, (size_t)trace->event_count * sizeof *event);
    event[2].variant = NULL;
    other.event = event;
    const ckpt_trace *const both[] = {trace, &other};
    CHECK_OK(ckpt_view_draw(both, 2, "svg", NULL, &f->text, &f->err), f->err);
    has(f, "differs from step 2 on: ");
    assert_true(ckpt_event_same_run(&trace->event[0], &event[0]));
    assert_false(ckpt_event_same_run(&trace->event[2], &event[2]));
}

/* Ops are called by what the names of repeated blocks share; the most frequent comes first. */
static void kinds_of_ops(void **state)
{
    fixture *const f = *state;
    static const char *const name[] = {"h.0.relu/backward",
                                       "h.11.relu/backward",
                                       "conv3_1/forward",
                                       "conv4_2/forward",
                                       "conv5/forward",
                                       "_gemm.7",
                                       "12",
                                       "a.1.2"};
    enum { COUNT = sizeof name / sizeof name[0] };
    ckpt_event event[COUNT];
    const char *line[CKPT_VARIANT_LINES];
    for (int i = 0; i < COUNT; i++) {
        event[i] = (ckpt_event){.name = name[i], .variant = "v", .inexact = i == 5};
    }
    ckpt_trace trace = {.event = event, .event_count = COUNT};
    assert_int_equal(ckpt_variants_say(&trace, 20, line, &f->arena), 6);
    assert_string_equal(line[0], "8 of 20 runs in another way, 1 inexact");
    assert_string_equal(line[1], "conv/forward 3 × v");
    assert_string_equal(line[2], "relu/backward 2 × v");
    assert_string_equal(line[3], "12 1 × v");
    assert_string_equal(line[4], "_gemm 1 × v (inexact)");
    assert_string_equal(line[5], "a 1 × v");
    event[7].name = "b.relu";
    event[6].name = "c";
    event[4].name = "softmax";
    assert_int_equal(ckpt_variants_say(&trace, 20, line, &f->arena), 6);
    assert_string_equal(line[5], "and 2 in 2 more ways");
    trace.event_count = 0;
    assert_int_equal(ckpt_variants_say(&trace, 0, line, &f->arena), 0);
}

static ckpt_code draw_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    const ckpt_trace *const trace = context;
    CKPT_TRY(ckpt_view_draw(&trace, 1, "svg", NULL, text, err));
    return ckpt_view_html(&trace, 1, NULL, text, err);
}

static void starved(void **state)
{
    fixture *const f = *state;
    CHECK(ckpt_test_starve_text(draw_starved, made(f)) > 2, "too few allocations to mean anything");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(golden, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(page_and_exports, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(another_way_is_a_difference, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(kinds_of_ops, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(starved, ckpt_test_open, ckpt_test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
