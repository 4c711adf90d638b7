/* labels: unit */
/* The picture of a pipeline, read back from SVG: every bar where its run is, numbers, bubbles; what is taken for a
 * pipeline. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/pipeline/pipeline.h"

enum { STAGES = 2, EVENTS = 16 };

/* Two stages, two micro-batches, as it would be drawn on paper:
 *
 *     stage 0   F0 F0 F1 F1 -- -- B0 R0 B0 F.. B1 B1 U
 *     stage 1   -- -- F0 B0 F1 B1 -- ...
 */
typedef struct made {
    ckpt_event event[STAGES][EVENTS];
    ckpt_trace trace[STAGES];
    const ckpt_trace *list[STAGES];
} made;

static void add(made *m, int stage, const char *name, const char *layer, ckpt_span span, ckpt_ns from, ckpt_ns to)
{
    ckpt_trace *const t = &m->trace[stage];
    m->event[stage][t->event_count] = (ckpt_event){.step = t->event_count,
                                                   .name = name,
                                                   .layer = layer,
                                                   .stream = "compute",
                                                   .span = span,
                                                   .start_ns = from,
                                                   .end_ns = to};
    t->event_count++;
    t->time_ns = to > t->time_ns ? to : t->time_ns;
}

static void make(made *m)
{
    *m = (made){
        .trace = {
            {.source = "a.json", .name = "net, stage 0 of 2", .plan = "auto", .budget_bytes = 3000, .peak_bytes = 2500},
            {.source = "b.json", .name = "net, stage 1 of 2", .plan = "auto", .peak_bytes = 7000}}};
    add(m, 0, "a@0/forward", "a@0", CKPT_SPAN_FORWARD, 0, 100);
    add(m, 0, "b@0/forward", "b@0", CKPT_SPAN_FORWARD, 100, 200); /* one bar with the one before */
    add(m, 0, "b@0/send", "b@0", CKPT_SPAN_FORWARD, 200, 220);
    add(m, 0, "a@1/forward", "a@1", CKPT_SPAN_FORWARD, 220, 420);
    add(m, 0, "b@0/grad/receive", "b@0", CKPT_SPAN_WAIT, 420, 600);
    add(m, 0, "b@0/backward", "b@0", CKPT_SPAN_BACKWARD, 600, 700);
    add(m, 0, "a@0/forward", "a@0", CKPT_SPAN_RECOMPUTE, 700, 750);
    add(m, 0, "a@0/backward", "a@0", CKPT_SPAN_BACKWARD, 750, 800);
    add(m, 0, "a@0", "a@0", CKPT_SPAN_FREE, 800, 800);
    add(m, 0, "a@1/backward", "a@1", CKPT_SPAN_BACKWARD, 800, 960);
    add(m, 0, "a/update", "a", CKPT_SPAN_UPDATE, 960, 1000);
    add(m, 1, "b@0/receive", "b@0", CKPT_SPAN_WAIT, 0, 220);
    add(m, 1, "c@0/forward", "c@0", CKPT_SPAN_FORWARD, 220, 420);
    add(m, 1, "c@0/backward", "c@0", CKPT_SPAN_BACKWARD, 420, 600);
    for (int s = 0; s < STAGES; s++) {
        m->trace[s].event = m->event[s];
        m->list[s] = &m->trace[STAGES - 1 - s]; /* the order they are given in does not matter */
    }
}

static char *draw(const made *m, const char *format, const ckpt_view_options *options, ckpt_text *text)
{
    ckpt_err err = {0};
    ckpt_text_init(text);
    CHECK_OK(ckpt_pipeline_draw(m->list, STAGES, format, options, text, &err), err);
    return text->bytes;
}

/* The rectangle whose title begins so: x and width. */
static void find_box(const char *svg, const char *title, double *x, double *width)
{
    const char *const at = strstr(svg, title);
    CHECK(at != NULL, "no box is titled '%s'", title);
    const char *path = at; /* the element around the title */
    while (path > svg && strncmp(path, "<path", 5) != 0) {
        path--;
    }
    const char *const left = strstr(path, "d=\"m");
    const char *const wide = left != NULL ? strchr(left, 'h') : NULL;
    CHECK(wide != NULL && wide < at, "box '%s' has no place: %.200s", title, path);
    *x = strtod(left + 4, NULL);
    *width = strtod(wide + 1, NULL);
}

static void bars_are_where_runs_are(void **state)
{
    static const struct {
        const char *title;
        double start, end;
    } wanted[] = {
        {"stage 0: forward of micro-batch 0, 200 ns from 0 ns on", 0, 200},
        {"stage 0: messages of micro-batch 0, 20 ns from 200 ns on", 200, 220},
        {"stage 0: forward of micro-batch 1, 200 ns from 220 ns on", 220, 420},
        {"stage 0: backward of micro-batch 0, 100 ns from 600 ns on", 600, 700},
        {"stage 0: recompute of micro-batch 0, 50 ns from 700 ns on", 700, 750},
        {"stage 0: backward of micro-batch 0, 50 ns from 750 ns on", 750, 800},
        {"stage 0: backward of micro-batch 1, 160 ns from 800 ns on", 800, 960},
        {"stage 0: update, 40 ns from 960 ns on", 960, 1000},
        {"stage 1: forward of micro-batch 0, 200 ns from 220 ns on", 220, 420},
        {"stage 1: backward of micro-batch 0, 180 ns from 420 ns on", 420, 600},
    };
    enum { COUNT = sizeof wanted / sizeof *wanted };
    made m;
    make(&m);
    ckpt_text text;
    const char *const svg = draw(&m, "svg", NULL, &text);
    double origin = 0, end = 0, width = 0;
    find_box(svg, wanted[0].title, &origin, &width);
    find_box(svg, wanted[7].title, &end, &width);
    const double scale = (end + width - origin) / 1000;
    int titles = 0;
    for (const char *at = strstr(svg, "stage "); at != NULL; at = strstr(at + 1, "stage ")) {
        titles += strncmp(at + strlen("stage 1"), ": ", 2) == 0;
    }
    assert_int_equal(titles, COUNT); /* nothing for waits and frees */
    for (int i = 0; i < COUNT; i++) {
        double x = 0, wide = 0;
        find_box(svg, wanted[i].title, &x, &wide);
        /* a hair of paper is around every box */
        CHECK(fabs(x - origin - wanted[i].start * scale) < 1.5 &&
                  fabs(wide - (wanted[i].end - wanted[i].start) * scale) < 2,
              "%s: at %.1f, %.1f wide", wanted[i].title, x, wide);
    }
    assert_non_null(strstr(svg, "net: 2 pipeline stages, 2 micro-batches"));
    assert_non_null(strstr(svg, "18.0 %")); /* stage 0 waits for 180 of 1000 */
    assert_non_null(strstr(svg, "62.0 %")); /* stage 1 runs for 380 of 1000 */
    assert_non_null(strstr(svg, "40.0 % of it bubbles"));
    assert_non_null(strstr(svg, ">2.50 kB of 3.00 kB<")); /* what each stage takes of its budget */
    assert_non_null(strstr(svg, ">7.00 kB<"));
    ckpt_text_fini(&text);
}

static void all_formats_and_sizes(void **state)
{
    static const char *const format[] = {"svg", "png", "pdf", "txt"};
    static const int size[][2] = {{0, 0}, {1, 1}, {500, 300}, {16384, 40}};
    made m;
    make(&m);
    for (int f = 0; f < 4; f++) {
        for (int s = 0; s < 4; s++) {
            const ckpt_view_options options = {
                .width = size[s][0] > 2000 && f == 1 ? 2000 : size[s][0], .height = size[s][1], .color = s == 2};
            ckpt_text text;
            (void)draw(&m, format[f], &options, &text);
            assert_true(text.length > 100);
            ckpt_text_fini(&text);
        }
    }
    ckpt_text text;
    const ckpt_view_options narrow = {.width = 80, .ascii = true};
    const char *const words = draw(&m, "txt", &narrow, &text);
    assert_non_null(strstr(words, "stage 1"));
    assert_non_null(strstr(words, "62.0 %"));
    ckpt_text_fini(&text);
    ckpt_err err;
    assert_int_equal(ckpt_pipeline_draw(m.list, STAGES, "gif", NULL, &text, &err), CKPT_BAD_INPUT);
}

static void what_is_a_pipeline(void **state)
{
    static const struct {
        const char *a, *b;
        bool is;
    } cases[] = {
        {"net, stage 0 of 2", "net, stage 1 of 2", true},
        {"net, stage 3 of 4", "net, stage 0 of 4", true},
        {"net, stage 9, stage 1 of 4", "net, stage 9, stage 2 of 4", true},
        {"net, stage 1 of 2", "net, stage 1 of 2", false},
        {"net, stage 1 of 2", "net, stage 0 of 3", false},
        {"net, stage 1 of 2", "other, stage 0 of 2", false},
        {"net, stage 1 of 2", "net, stage 2 of 2", false},
        {"net, stage -1 of 2", "net, stage 1 of 2", false},
        {"net, stage 1 of 2", "net, stage 0 of 2!", false},
        {"net", "net", false},
        {"", ", stage 1 of 2", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_trace a = {.name = cases[i].a, .time_ns = 1};
        const ckpt_trace b = {.name = cases[i].b, .time_ns = 1};
        const ckpt_trace *const list[] = {&a, &b};
        CHECK(ckpt_pipeline_traces(list, 2) == cases[i].is, "'%s' and '%s'", cases[i].a, cases[i].b);
        assert_false(ckpt_pipeline_traces(list, 1));
    }
    const ckpt_trace without = {.name = "net, stage 0 of 2"};
    const ckpt_trace with = {.name = "net, stage 1 of 2", .time_ns = 5};
    const ckpt_trace *const list[] = {&without, &with};
    assert_false(ckpt_pipeline_traces(list, 2));
}

static ckpt_code starved(void *context, ckpt_text *text, ckpt_err *err)
{
    const made *const m = context;
    return ckpt_pipeline_draw(m->list, STAGES, "svg", NULL, text, err);
}

static void no_memory(void **state)
{
    made m;
    make(&m);
    ckpt_test_starve_text(starved, &m);
}

/* What fontconfig keeps until the process ends. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_are_where_runs_are),
        cmocka_unit_test(all_formats_and_sizes),
        cmocka_unit_test(what_is_a_pipeline),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
