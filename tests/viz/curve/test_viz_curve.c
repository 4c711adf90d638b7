/* labels: golden */
/* Pictures of time over budget: two that were looked at, and what must hold for every curve. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/draw/draw.h"
#include "viz/viz.h"

enum { POINTS = 6 };

#define MB ((ckpt_bytes)1000000)

static const char *const sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

typedef struct made {
    ckpt_curve_point point[POINTS], sqrt[2], dtr[POINTS], block[1];
    ckpt_curve_baseline baseline[3];
    ckpt_curve curve;
    ckpt_plan plan;
    const ckpt_plan *chosen[1];
} made;

/* keep-all 1000 MB and 100 ms; from 400 MB on there are plans. */
static void make_curve(made *m)
{
    static const ckpt_ns time[POINTS] = {160, 122, 111, 105, 102, 100}, bound[POINTS] = {131, 117, 109, 105, 101, 100};
    *m = (made){.curve = {.graph_name = "golden <&\"\001", .costs = "roofline of h200", .complete = true}};
    for (int i = 0; i < POINTS; i++) {
        const ckpt_bytes budget = (400 + 120 * i) * MB;
        m->point[i] = (ckpt_curve_point){.budget_bytes = budget,
                                         .peak_bytes = budget - MB,
                                         .arena_bytes = budget - 100 * MB,
                                         .time_ns = time[i] * 1000000,
                                         .has_bound = true,
                                         .bound_ns = bound[i] * 1000000,
                                         .bound_how = "groups and knapsack",
                                         .bound_scope = "all",
                                         .strategy = "search"};
        m->dtr[i] = m->point[i];
        m->dtr[i].time_ns += (ckpt_ns)4000000 * (POINTS - i);
    }
    m->sqrt[0] = m->sqrt[1] = m->block[0] = m->point[3];
    m->sqrt[0].time_ns = 130000000;
    m->sqrt[1].budget_bytes = 900 * MB;
    m->sqrt[1].time_ns = 128000000;
    m->block[0].budget_bytes = 810 * MB;
    m->block[0].time_ns = (ckpt_ns)9000000000; /* far off the scale */
    m->baseline[0] = (ckpt_curve_baseline){"sqrt", m->sqrt, 2};
    m->baseline[1] = (ckpt_curve_baseline){"dtr", m->dtr, POINTS};
    m->baseline[2] = (ckpt_curve_baseline){"each-block", m->block, 1};
    memcpy(m->curve.graph_sha256, sha, CKPT_DIGEST_TEXT);
    m->curve.static_bytes = 100 * MB;
    m->curve.keep_all_peak_bytes = 1000 * MB;
    m->curve.keep_all_time_ns = 100000000;
    m->curve.point = m->point;
    m->curve.point_count = POINTS;
    m->curve.baseline = m->baseline;
    m->curve.baseline_count = 3;
    m->plan = (ckpt_plan){.source = "plans/chosen.json",
                          .graph_name = m->curve.graph_name,
                          .verdict = CKPT_FITS,
                          .budget_bytes = 650 * MB,
                          .time_ns = 111000000,
                          .keep_all_time_ns = 100000000};
    memcpy(m->plan.graph_sha256, sha, CKPT_DIGEST_TEXT);
    m->chosen[0] = &m->plan;
}

static void draw(const made *m, int chosen, const char *format, const ckpt_view_options *options, ckpt_text *text)
{
    ckpt_err err = {0};
    ckpt_text_init(text);
    CHECK_OK(ckpt_curve_draw(&m->curve, m->chosen, chosen, format, options, text, &err), err);
}

static void pictures(void **state)
{
    made m;
    ckpt_text text;
    make_curve(&m);
    draw(&m, 1, "svg", NULL, &text);
    ckpt_golden_check("curve.svg", text.bytes, text.length);
    ckpt_text_fini(&text);
    draw(&m, 1, "txt", NULL, &text);
    ckpt_golden_check("curve.txt", text.bytes, text.length);
    ckpt_text_fini(&text);
    for (int i = 0; i < 2; i++) {
        draw(&m, 1, i == 0 ? "png" : "pdf", NULL, &text);
        CHECK(memcmp(text.bytes, i == 0 ? "\x89PNG" : "%PDF", 4) == 0, "no picture");
        ckpt_text_fini(&text);
    }
}

/* Every name and what must be said stands in the picture, and only where it is true. */
static void what_is_said(void **state)
{
    made m;
    ckpt_text text;
    make_curve(&m);
    draw(&m, 1, "svg", NULL, &text);
    static const char *const wanted[] = {"golden &lt;&amp;&quot;\xEF\xBF\xBD",
                                         ">sqrt<",
                                         ">dtr<",
                                         ">planned<",
                                         "bound: no schedule is faster",
                                         ">keep-all<",
                                         "chosen.json: 650 MB, +11.00 %",
                                         "400 MB",
                                         "1 point of baselines lies above"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        CHECK(strstr(text.bytes, wanted[i]) != NULL, "lacks %s:\n%s", wanted[i], text.bytes);
    }
    CHECK(strstr(text.bytes, "each-block") == NULL && strstr(text.bytes, "ended early") == NULL, "says too much");
    CHECK(strstr(text.bytes, "nan") == NULL && strstr(text.bytes, "inf") == NULL, "no numbers");
    ckpt_text_fini(&text);
    m.point[2].bound_scope = "stages";
    m.curve.complete = false;
    draw(&m, 0, "svg", NULL, &text);
    CHECK(strstr(text.bytes, "none in its scope") != NULL && strstr(text.bytes, "ended early") != NULL, "%s",
          text.bytes);
    ckpt_text_fini(&text);
    m.point[2].has_bound = false; /* then there is no band to speak of */
    draw(&m, 0, "svg", NULL, &text);
    CHECK(strstr(text.bytes, "bound:") == NULL, "%s", text.bytes);
    ckpt_text_fini(&text);
}

/* Curves that are hardly any: of one point, of none, without time, as large as 63 bits; small and large pictures. */
static void odd_curves(void **state)
{
    static const ckpt_view_options sizes[] = {{.width = 0}, {.width = 1, .height = 1}, {.width = 900, .height = 2000}};
    static const char *const formats[] = {"svg", "txt", "png"};
    for (int which = 0; which < 6; which++) {
        for (int f = 0; f < 3; f++) {
            for (int s = 0; s < (f == 2 ? 1 : 3); s++) {
                made m;
                ckpt_text text;
                make_curve(&m);
                m.curve.point_count = which == 0 ? 0 : which == 1 ? 1 : POINTS;
                m.curve.min_budget_bytes = which == 0 ? 17 * MB : 0;
                m.curve.keep_all_time_ns = which == 2 ? 0 : m.curve.keep_all_time_ns;
                if (which == 3) {
                    m.curve.keep_all_peak_bytes = m.point[POINTS - 1].budget_bytes = INT64_MAX;
                    m.point[0].time_ns = m.dtr[0].time_ns = INT64_MAX;
                }
                if (which == 4) { /* one budget, all of it static */
                    m.curve.point_count = 1;
                    m.curve.baseline_count = 0;
                    m.curve.static_bytes = m.curve.keep_all_peak_bytes = m.point[0].budget_bytes;
                }
                if (which == 5) { /* the scale goes on beyond 63 bits */
                    m.curve.keep_all_time_ns = INT64_MAX / 2;
                    m.point[0].time_ns = INT64_MAX;
                }
                draw(&m, 0, formats[f], &sizes[s], &text);
                CHECK(text.length > 100, "case %d: nothing", which);
                CHECK(f == 2 || (strstr(text.bytes, "nan") == NULL && strstr(text.bytes, "-inf") == NULL),
                      "case %d: %s", which, text.bytes);
                CHECK(f != 1 || strstr(text.bytes, " -") == NULL, "case %d: a time below 0:\n%s", which, text.bytes);
                CHECK(which != 0 || f == 2 || s == 1 || strstr(text.bytes, "17.0 MB") != NULL, "%s", text.bytes);
                ckpt_text_fini(&text);
            }
        }
    }
}

/* Where `name` is drawn: its left end and its middle. */
static void find_words(const char *svg, const char *name, double *x, double *y)
{
    char body[80];
    snprintf(body, sizeof body, ">%s</text>", name);
    const char *const words = strstr(svg, body);
    CHECK(words != NULL, "%s is not drawn", name);
    const char *tag = words;
    while (strncmp(tag, "<text ", 6) != 0) {
        tag--;
    }
    const char *const left = strstr(tag, " x=\""), *const top = strstr(tag, " y=\"");
    assert_true(left != NULL && top != NULL && left < words && top < words);
    *x = strtod(left + 4, NULL);
    *y = strtod(top + 4, NULL);
}

/* Baselines that all have one point, in the corner of keep-all: their names lay on each other. */
static void names_of_crowded_baselines_overlap(void **state)
{
    static const char *const name[] = {"each-block", "greedy", "knapsack", "recompute-all", "sqrt", "dtr"};
    enum { NAMES = sizeof name / sizeof *name, SMALL = 12 };
    static const int widths[] = {600, 860, 1200};
    made m;
    make_curve(&m);
    ckpt_curve_baseline baseline[NAMES];
    for (int b = 0; b < NAMES; b++) {
        baseline[b] = (ckpt_curve_baseline){name[b], &m.point[POINTS - 1], 1};
    }
    m.curve.baseline = baseline;
    m.curve.baseline_count = NAMES;
    for (int w = 0; w < 3; w++) {
        ckpt_text text;
        double x[NAMES], y[NAMES];
        draw(&m, 0, "svg", &(ckpt_view_options){.width = widths[w]}, &text);
        for (int b = 0; b < NAMES; b++) {
            find_words(text.bytes, name[b], &x[b], &y[b]);
            for (int a = 0; a < b; a++) {
                const double end_a = x[a] + ckpt_text_width(name[a], SMALL, false);
                const double end_b = x[b] + ckpt_text_width(name[b], SMALL, false);
                CHECK(x[b] >= end_a || x[a] >= end_b || fabs(y[a] - y[b]) >= SMALL, "%d wide: %s lies on %s", widths[w],
                      name[b], name[a]);
            }
        }
        ckpt_text_fini(&text);
    }
}

/* In a terminal each baseline has a letter of its own, which is none of the plans'. */
static void letters_tell_baselines_apart(void **state)
{
    enum { MANY = 16 };
    static const ckpt_view_options wide = {.width = 200, .height = 60};
    ckpt_curve_point point[MANY];
    ckpt_curve_baseline baseline[MANY];
    char name[MANY][8], letters[MANY + 1] = "";
    made m;
    ckpt_text text;
    make_curve(&m);
    for (int i = 0; i < MANY; i++) {
        point[i] = m.point[i % POINTS];
        point[i].budget_bytes = (420 + 35 * i) * MB;
        point[i].time_ns = 180000000 - (ckpt_ns)4000000 * i;
        snprintf(name[i], sizeof name[i], "base%02d", i);
        baseline[i] = (ckpt_curve_baseline){name[i], &point[i], 1};
    }
    m.curve.baseline = baseline;
    m.curve.baseline_count = MANY;
    draw(&m, 0, "txt", &wide, &text);
    for (int i = 0; i < MANY; i++) {
        const char *const found = strstr(text.bytes, name[i]);
        CHECK(found != NULL && found[-1] == ' ', "no %s:\n%s", name[i], text.bytes);
        CHECK(strchr("oK@", found[-2]) == NULL && strchr(letters, found[-2]) == NULL, "%s has the letter %c of another",
              name[i], found[-2]);
        letters[i] = found[-2];
    }
    ckpt_text_fini(&text);
}

/* Words lay on the curve, a mark beside a name read as a point of it, and in a narrow terminal they covered areas: what
 * everything is stands under the axis. */
static void names_lay_on_the_curve(void **state)
{
    static const char *const name[] = {"planned",
                                       "sqrt",
                                       "dtr",
                                       "keep-all",
                                       "no plan below 400 MB",
                                       "static block 100 MB",
                                       "bound: no schedule is faster",
                                       "chosen.json: 650 MB, +11.00 %"};
    made m;
    ckpt_text text;
    make_curve(&m);
    double x, y, axis;
    draw(&m, 1, "svg", NULL, &text);
    find_words(text.bytes, "budget of the step, static block included", &x, &axis);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        find_words(text.bytes, name[i], &x, &y);
        CHECK(y > axis, "%s stands at %.1f, in the picture, which ends at %.1f", name[i], y, axis);
    }
    ckpt_text_fini(&text);
    draw(&m, 1, "txt", &(ckpt_view_options){.width = 60}, &text);
    const char *const above = strstr(text.bytes, "over keep-all"), *const below =
                                                                       strstr(text.bytes, "budget of the step");
    assert_true(above != NULL && below != NULL);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *const found = strstr(above + strlen("over keep-all"), name[i]);
        CHECK(found > below, "%s is not under the axis:\n%s", name[i], text.bytes);
    }
    ckpt_text_fini(&text);
}

/* Ten thousand points, and nothing is cut. */
static void many_points(void **state)
{
    enum { MANY = 10000 };
    CKPT_TEST_ARENA(arena);
    ckpt_curve_point *const point = CKPT_NEW(&arena, ckpt_curve_point, MANY);
    assert_non_null(point);
    made m;
    ckpt_text text;
    make_curve(&m);
    for (int i = 0; i < MANY; i++) {
        point[i] = m.point[0];
        point[i].budget_bytes = 400 * MB + i * MB / 16;
        point[i].time_ns -= (ckpt_ns)3000 * i;
    }
    m.curve.point = point;
    m.curve.point_count = MANY;
    draw(&m, 1, "svg", NULL, &text);
    CHECK(strstr(text.bytes, ">planned<") != NULL && strstr(text.bytes, ">sqrt<") != NULL, "words are missing");
    ckpt_text_fini(&text);
}

static void what_is_refused(void **state)
{
    made m;
    ckpt_text text;
    ckpt_err err = {0};
    make_curve(&m);
    ckpt_text_init(&text);
    assert_int_equal(ckpt_curve_draw(&m.curve, NULL, 0, "bmp", NULL, &text, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, "svg, png") != NULL, "%s", err.msg);
    m.plan.graph_sha256[3] = 'f';
    err = (ckpt_err){0};
    assert_int_equal(ckpt_curve_draw(&m.curve, m.chosen, 1, "svg", NULL, &text, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, "plans/chosen.json: found a plan of another graph") == err.msg, "%s", err.msg);
    make_curve(&m);
    m.plan.verdict = CKPT_INFEASIBLE;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_curve_draw(&m.curve, m.chosen, 1, "svg", NULL, &text, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, "does not fit") != NULL, "%s", err.msg);
    ckpt_text_fini(&text);
}

static ckpt_code draw_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    const made *const m = context;
    return ckpt_curve_draw(&m->curve, m->chosen, 1, "svg", NULL, text, err);
}

static void no_memory(void **state)
{
    made m;
    make_curve(&m);
    ckpt_test_starve_text(draw_starved, &m);
}

/* Fontconfig, which finds Cairo's fonts, keeps what it has read to the end of the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures),
        cmocka_unit_test(what_is_said),
        cmocka_unit_test(odd_curves),
        cmocka_unit_test(letters_tell_baselines_apart),
        cmocka_unit_test(names_of_crowded_baselines_overlap),
        cmocka_unit_test(names_lay_on_the_curve),
        cmocka_unit_test(many_points),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
