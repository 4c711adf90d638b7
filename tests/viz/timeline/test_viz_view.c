/* labels: golden */
/* The picture of memory over time: goldens of each form, what the words claim, hostile and empty traces, starvation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/viz.h"

typedef struct fixture {
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err;
    const ckpt_trace *trace[8];
} fixture;

static int setup(void **state)
{
    fixture *const f = test_calloc(1, sizeof *f);
    ckpt_arena_init(&f->arena);
    ckpt_text_init(&f->text);
    const ckpt_golden_step step = {.layers = 24, .segment = 5};
    const ckpt_golden_step measured = {.layers = 24, .segment = 5, .measured = true};
    const ckpt_golden_step all = {.layers = 24};
    f->trace[0] = ckpt_golden_trace(&step, &f->arena);
    f->trace[1] = ckpt_golden_trace(&measured, &f->arena);
    f->trace[2] = ckpt_golden_trace(&all, &f->arena);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *const f = *state;
    ckpt_text_fini(&f->text);
    ckpt_arena_fini(&f->arena);
    test_free(f);
    return 0;
}

/* Draw into the fixture's text, which is emptied first. */
static void draw(fixture *f, int count, const char *format, const ckpt_view_options *options)
{
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_draw(f->trace, count, format, options, &f->text, &f->err), f->err);
    CHECK(f->text.length > 100, "%s: only %zu bytes", format, f->text.length);
}

static bool has(const fixture *f, const char *words)
{
    return f->text.bytes != NULL && strstr(f->text.bytes, words) != NULL;
}

/* What the programs' tests draw is what is drawn here. */
static void the_files_are_these_traces(void **state)
{
    static const char *const names[3] = {"predicted.json", "measured.json", "keep_all.json"};
    fixture *const f = *state;
    for (int i = 0; i < 3; i++) {
        ckpt_text_fini(&f->text);
        ckpt_text_init(&f->text);
        ckpt_trace_write(f->trace[i], &f->text);
        ckpt_golden_check(names[i], f->text.bytes, f->text.length);
    }
}

static void golden(void **state)
{
    fixture *const f = *state;
    draw(f, 2, "svg", NULL);
    ckpt_golden_check("view_two.svg", f->text.bytes, f->text.length);
    draw(f, 2, "txt", NULL);
    ckpt_golden_check("view_two.txt", f->text.bytes, f->text.length);
    draw(f, 1, "txt", &(ckpt_view_options){.width = 140, .color = true});
    ckpt_golden_check("view_one_color.txt", f->text.bytes, f->text.length);
    draw(f, 3, "svg", &(ckpt_view_options){.width = 800, .time_axis = true});
    ckpt_golden_check("view_three_time.svg", f->text.bytes, f->text.length);
    /* A static block larger than all the rest is drawn flat. */
    const ckpt_golden_step small = {.layers = 9, .segment = 3};
    f->trace[0] = ckpt_golden_trace(&small, &f->arena);
    draw(f, 1, "txt", NULL);
    assert_true(has(f, "static block, not to scale"));
    ckpt_golden_check("view_folded.txt", f->text.bytes, f->text.length);
}

/* Well-formed as far as XML goes: tags balance, and no < or & stands free. A full parser reads it in cli_view.sh. */
static void check_xml(const char *xml)
{
    int depth = 0;
    for (const char *c = xml; *c != '\0'; c++) {
        const unsigned char byte = (unsigned char)*c;
        CHECK(byte >= ' ' || byte == '\n', "control character %d in the SVG", byte);
        if (*c == '&') {
            const bool known = strncmp(c, "&amp;", 5) == 0 || strncmp(c, "&lt;", 4) == 0 ||
                               strncmp(c, "&gt;", 4) == 0 || strncmp(c, "&quot;", 6) == 0 ||
                               strncmp(c, "&apos;", 6) == 0 || strncmp(c, "&#39;", 5) == 0;
            CHECK(known, "free & at \"%.20s\"", c);
        }
        if (*c == '<') {
            const char *const end = strchr(c, '>');
            CHECK(end != NULL, "no end of tag at \"%.20s\"", c);
            depth += c[1] == '/' ? -1 : c[1] == '?' || end[-1] == '/' ? 0 : 1;
            c = end;
        }
    }
    CHECK(depth == 0, "tags do not balance: depth %d at the end", depth);
}

static void svg_is_well_formed_with_hostile_names(void **state)
{
    static const char *const names[] = {"</text><script>alert(1)</script>",
                                        "a&b\"c'd",
                                        "\033[31mred\033]0;title\a",
                                        "\xff\xfe broken \xc3",
                                        "\xe2\x80\xae turned",
                                        "",
                                        "]]>",
                                        "%s%n%d"};
    fixture *const f = *state;
    ckpt_trace trace = *f->trace[0];
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
        const char *const name = i < sizeof names / sizeof names[0] ? names[i] : longest;
        trace.name = trace.plan = trace.source = name;
        trace.machine.device = trace.machine.command = name;
        ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, trace.event_count);
        memcpy(event, trace.event, (size_t)trace.event_count * sizeof *event);
        event[trace.peak_event].name = name;
        trace.event = event;
        ckpt_trace other = trace;
        other.measured = true;
        ckpt_event *const changed = CKPT_NEW(&f->arena, ckpt_event, trace.event_count);
        memcpy(changed, event, (size_t)trace.event_count * sizeof *event);
        changed[trace.peak_event].bytes[CKPT_CAT_SAVED]++;
        other.event = changed;
        const ckpt_trace *const kept = f->trace[0], *const kept_too = f->trace[1];
        f->trace[0] = &trace;
        f->trace[1] = &other;
        draw(f, 2, "svg", NULL);
        check_xml(f->text.bytes);
        assert_false(has(f, "<script"));
        draw(f, 2, "txt", &(ckpt_view_options){.width = 100});
        CHECK(strchr(f->text.bytes, '\033') == NULL && strchr(f->text.bytes, '\a') == NULL,
              "an escape reached the terminal");
        draw(f, 2, "png", NULL);
        draw(f, 2, "pdf", NULL);
        f->trace[0] = kept;
        f->trace[1] = kept_too;
    }
}

static void same_bytes_are_said_to_be_the_same(void **state)
{
    fixture *const f = *state;
    draw(f, 2, "txt", NULL);
    assert_true(has(f, "measured = predicted at every step, to the byte"));
}

/* One byte at any step is found and named. */
static void one_byte_is_said(void **state)
{
    fixture *const f = *state;
    for (int step = 0; step < f->trace[0]->event_count; step++) {
        for (int more = 0; more < 2; more++) {
            const ckpt_golden_step wrong = {
                .layers = 24, .segment = 5, .measured = true, .wrong_step = step, .wrong_bytes = more ? 1 : -1};
            f->trace[1] = ckpt_golden_trace(&wrong, &f->arena);
            draw(f, 2, "svg", &(ckpt_view_options){.width = 1400});
            char words[80];
            snprintf(words, sizeof words, "measured differs first at step %d (", step);
            CHECK(has(f, words), "step %d: not said", step);
            CHECK(has(f, more ? "1 byte more of activations" : "1 byte less of activations"), "step %d: not said",
                  step);
        }
    }
}

static void another_plan_is_said(void **state)
{
    fixture *const f = *state;
    f->trace[1] = f->trace[2];
    draw(f, 2, "txt", NULL);
    assert_true(has(f, "differs from step 2 on: h.2/forward, not h.0"));
}

/* The peak that is printed is the maximum over events, added up here once more. */
static void peak_is_the_maximum(void **state)
{
    fixture *const f = *state;
    ckpt_bytes most = 0;
    int step = 0;
    for (int i = 0; i < f->trace[0]->event_count; i++) {
        ckpt_bytes sum = 0;
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            sum += c == CKPT_CAT_OUTSIDE ? 0 : f->trace[0]->event[i].bytes[c];
        }
        step = sum > most ? i : step;
        most = sum > most ? sum : most;
    }
    char words[120], bytes[CKPT_UNITS_TEXT];
    draw(f, 1, "txt", NULL);
    snprintf(words, sizeof words, "peak %s (95.0 %% of the budget) at step %d of %d: %s", ckpt_bytes_show(most, bytes),
             step, f->trace[0]->event_count, f->trace[0]->event[step].name);
    CHECK(has(f, words), "\"%s\" is not there", words);
}

static ckpt_trace one_event(ckpt_event *event)
{
    *event = (ckpt_event){.name = "only", .layer = "", .stream = "compute"};
    return (ckpt_trace){.source = "one.json", .name = "one", .plan = "", .event = event, .event_count = 1};
}

static void smallest_traces(void **state)
{
    static const char *const formats[] = {"svg", "png", "pdf", "txt"};
    fixture *const f = *state;
    ckpt_event event;
    ckpt_trace trace = one_event(&event);
    f->trace[0] = &trace;
    for (int i = 0; i < 4; i++) {
        for (int axis = 0; axis < 2; axis++) {
            draw(f, 1, formats[i], &(ckpt_view_options){.time_axis = axis == 1}); /* no byte, no time */
        }
    }
    /* As many bytes as 63 bits hold, in more categories than they can be added in; steps without order. */
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        event.bytes[c] = INT64_MAX / 2;
    }
    trace.static_bytes = trace.budget_bytes = trace.time_ns = INT64_MAX;
    event.step = INT32_MAX - 1;
    event.end_ns = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        for (int axis = 0; axis < 2; axis++) {
            draw(f, 1, formats[i], &(ckpt_view_options){.time_axis = axis == 1});
        }
    }
    event.end_ns = -5; /* built in memory, not read: still no crash */
    event.step = -7;
    event.bytes[0] = -3;
    draw(f, 1, "svg", NULL);
    draw(f, 1, "txt", &(ckpt_view_options){.width = 1, .height = 1});
}

/* Copies run beside compute: memory changes where they are issued, their lane shows when they run. */
static void copies(void **state)
{
    fixture *const f = *state;
    enum { MB = 1000000 };
    static const ckpt_event event[] = {
        {.step = 0,
         .name = "a",
         .layer = "l0",
         .stream = "compute",
         .span = CKPT_SPAN_FORWARD,
         .start_ns = 0,
         .end_ns = 100,
         .bytes = {5 * MB, 0, 0, 0, 8 * MB, 0, 0, 0, 0}},
        {.step = 1,
         .name = "a",
         .layer = "",
         .stream = "d2h",
         .span = CKPT_SPAN_COPY,
         .start_ns = 100,
         .end_ns = 400,
         .bytes = {5 * MB, 0, 0, 0, 8 * MB, 0, 0, 2 * MB, 0}},
        {.step = 2,
         .name = "b",
         .layer = "l1",
         .stream = "compute",
         .span = CKPT_SPAN_FORWARD,
         .start_ns = 100,
         .end_ns = 200,
         .bytes = {5 * MB, 0, 0, 0, 10 * MB, MB, MB, 2 * MB, 0}},
        {.step = 3,
         .name = "a",
         .layer = "",
         .stream = "compute",
         .span = CKPT_SPAN_WAIT,
         .start_ns = 200,
         .end_ns = 400,
         .bytes = {5 * MB, 0, 0, 0, 10 * MB, MB, 0, 2 * MB, 0}},
        {.step = 4,
         .name = "a",
         .layer = "",
         .stream = "compute",
         .span = CKPT_SPAN_FREE,
         .start_ns = 400,
         .end_ns = 400,
         .bytes = {5 * MB, 0, 0, 0, 2 * MB, MB, 0, 0, 0}},
        {.step = 5,
         .name = "b",
         .layer = "l1",
         .stream = "compute",
         .span = CKPT_SPAN_BACKWARD,
         .start_ns = 400,
         .end_ns = 1000,
         .bytes = {5 * MB, 3 * MB, 0, 0, 2 * MB, MB, 0, 0, 0}},
    };
    const ckpt_trace trace = {.source = "copies.json",
                              .name = "copies",
                              .plan = "by hand",
                              .static_bytes = 5 * MB,
                              .arena_bytes = 14 * MB,
                              .budget_bytes = 100 * MB,
                              .peak_bytes = 19 * MB,
                              .time_ns = 1000,
                              .peak_event = 2,
                              .machine = {"", "", "", "", "", "", "", 1},
                              .event = event,
                              .event_count = 6};
    f->trace[0] = &trace;
    draw(f, 1, "txt", &(ckpt_view_options){.time_axis = true});
    assert_true(has(f, "peak 19.0 MB (19.0 % of the budget) at step 2 of 6: b"));
    assert_true(has(f, "1 between device and host, 300 ns"));
    assert_true(has(f, "100 MB, far above the picture"));
    ckpt_golden_check("view_copies.txt", f->text.bytes, f->text.length);
}

static void refused(void **state)
{
    fixture *const f = *state;
    ckpt_event event;
    ckpt_trace trace = one_event(&event);
    trace.event_count = 0;
    const ckpt_trace *empty = &trace;
    assert_int_equal(ckpt_view_draw(&empty, 1, "svg", NULL, &f->text, &f->err), CKPT_BAD_INPUT);
    assert_non_null(strstr(f->err.msg, "one.json"));
    assert_int_equal(ckpt_view_draw(f->trace, 1, "gif", NULL, &f->text, &f->err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_view_draw(f->trace, 0, "svg", NULL, &f->text, &f->err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_view_draw(f->trace, 9, "svg", NULL, &f->text, &f->err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_view_draw(f->trace, 1, "png", &(ckpt_view_options){.width = 1 << 20}, &f->text, NULL),
                     CKPT_BAD_INPUT);
    assert_int_equal(f->text.length, 0);
}

/* 20,000 steps and boxes: the picture's size does not grow with them. */
static void many_events(void **state)
{
    fixture *const f = *state;
    const ckpt_golden_step step = {.layers = 4000, .segment = 63};
    const ckpt_golden_step measured = {.layers = 4000, .segment = 63, .measured = true};
    f->trace[0] = ckpt_golden_trace(&step, &f->arena);
    f->trace[1] = ckpt_golden_trace(&measured, &f->arena);
    CHECK(f->trace[0]->event_count >= 20000, "only %d events", f->trace[0]->event_count);
    draw(f, 2, "svg", NULL);
    CHECK(f->text.length < 400000, "%zu bytes", f->text.length);
    check_xml(f->text.bytes);
    draw(f, 2, "txt", NULL);
    assert_true(has(f, "each column shows its highest step"));
    draw(f, 2, "png", NULL);
}

/* No line is wider than asked, in letters; colours change no letter. */
static void terminal_keeps_its_width(void **state)
{
    fixture *const f = *state;
    for (int width = 40; width <= 200; width += 8) {
        draw(f, 1 + width / 8 % 3, "txt", &(ckpt_view_options){.width = width, .color = width % 16 == 0});
        int letters = 0, escape = 0;
        for (const char *c = f->text.bytes; *c != '\0'; c++) {
            if (*c == '\033') {
                escape = 1;
            } else if (escape) {
                escape = *c != 'm';
            } else if (*c == '\n') {
                CHECK(letters <= width, "%d letters in a terminal of %d", letters, width);
                letters = 0;
            } else {
                letters += ((unsigned char)*c & 0xC0) != 0x80;
            }
        }
    }
    /* What has no room is left out, not cut. */
    draw(f, 2, "txt", &(ckpt_view_options){.width = 45});
    assert_false(has(f, "diff"));
    draw(f, 2, "txt", &(ckpt_view_options){.width = 52});
    assert_true(has(f, " difference\n"));
}

static ckpt_code draw_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    void *const *const given = context;
    const fixture *const f = given[0];
    return ckpt_view_draw(f->trace, 3, given[1], NULL, text, err);
}

static void starved(void **state)
{
    fixture *const f = *state;
    draw(f, 3, "png", NULL); /* fonts are loaded once, by others */
    static char svg[] = "svg", png[] = "png", pdf[] = "pdf", txt[] = "txt";
    char *const formats[] = {svg, png, pdf, txt};
    for (int i = 0; i < 4; i++) {
        void *context[] = {f, formats[i]};
        CHECK(ckpt_test_starve_text(draw_starved, context) > 3, "%s: too few allocations to mean anything", formats[i]);
    }
}

/* The committed traces that cli_view.sh draws are what the made-up step is. */
static void committed_traces(void **state)
{
    fixture *const f = *state;
    static const char *const names[] = {"predicted.json", "measured.json", "keep_all.json"};
    for (int i = 0; i < 3; i++) {
        ckpt_text_fini(&f->text);
        ckpt_text_init(&f->text);
        ckpt_trace_write(f->trace[i], &f->text);
        ckpt_golden_check(names[i], f->text.bytes, f->text.length);
    }
}

/* Cairo's font library keeps what it read until the process ends. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_files_are_these_traces, setup, teardown),
        cmocka_unit_test_setup_teardown(golden, setup, teardown),
        cmocka_unit_test_setup_teardown(svg_is_well_formed_with_hostile_names, setup, teardown),
        cmocka_unit_test_setup_teardown(same_bytes_are_said_to_be_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(one_byte_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(another_plan_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(peak_is_the_maximum, setup, teardown),
        cmocka_unit_test_setup_teardown(smallest_traces, setup, teardown),
        cmocka_unit_test_setup_teardown(copies, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
        cmocka_unit_test_setup_teardown(many_events, setup, teardown),
        cmocka_unit_test_setup_teardown(terminal_keeps_its_width, setup, teardown),
        cmocka_unit_test_setup_teardown(starved, setup, teardown),
        cmocka_unit_test_setup_teardown(committed_traces, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
