/* labels: unit */
/* The panels of the timeline: the map's boxes against the places, the residual against sums, the capacity, plans
 * without times, and that no two words lie on one another in any width. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/draw/draw.h"
#include "viz/timeline/view.h"
#include "viz/viz.h"

typedef ckpt_test_fixture fixture;

static void draw(fixture *f, const ckpt_trace *const *trace, int count, const char *format,
                 const ckpt_view_options *options)
{
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_view_draw(trace, count, format, options, &f->text, &f->err), f->err);
}

static bool has(const fixture *f, const char *words)
{
    return strstr(f->text.bytes, words) != NULL;
}

static const ckpt_trace *step_of(fixture *f, int layers, int segment, bool measured)
{
    return ckpt_golden_trace(&(ckpt_golden_step){.layers = layers, .segment = segment, .measured = measured},
                             &f->arena);
}

/* The text after `name="` in the tag at `tag` as a number; `otherwise` where the tag has none. */
static double number_of(const char *tag, const char *name, double otherwise)
{
    char attribute[32];
    snprintf(attribute, sizeof attribute, " %s=\"", name);
    const char *const end = strchr(tag, '>'), *const at = strstr(tag, attribute);
    return at != NULL && at < end ? strtod(at + strlen(attribute), NULL) : otherwise;
}

typedef struct word {
    double left, right, top, bottom;
    char text[100];
} word;

/* All words of an SVG as rectangles. */
static int words_of(const char *svg, word *out, int room)
{
    int count = 0;
    for (const char *c = strstr(svg, "<text "); c != NULL; c = strstr(c + 1, "<text ")) {
        const char *const body = strchr(c, '>') + 1, *const end = strstr(body, "</text>");
        CHECK(end != NULL && count < room, "no end of a text, or more than %d", room);
        word *const w = &out[count++];
        snprintf(w->text, sizeof w->text, "%.*s", (int)(end - body), body);
        const double size = number_of(c, "font-size", 0), x = number_of(c, "x", -1), y = number_of(c, "y", -1);
        const char *const close = strchr(c, '>');
        const char *const bold = strstr(c, "font-weight=\"bold\""), *const middle = strstr(c, "=\"middle\""),
                          *const right = strstr(c, "=\"end\"");
        const double width = ckpt_text_width(w->text, size, bold != NULL && bold < close);
        const double share = middle != NULL && middle < close ? 0.5 : right != NULL && right < close ? 1 : 0;
        w->left = x - share * width;
        w->right = w->left + width;
        w->top = y - 0.7 * size;
        w->bottom = y;
    }
    return count;
}

static void check_words(const fixture *f, const char *what)
{
    enum { ROOM = 1000 };
    word *const w = test_calloc(ROOM, sizeof *w);
    const int count = words_of(f->text.bytes, w, ROOM);
    const char *const svg = strstr(f->text.bytes, "<svg ");
    const double width = number_of(svg, "width", 0), height = number_of(svg, "height", 0);
    CHECK(count > 20, "%s: only %d words", what, count);
    for (int i = 0; i < count; i++) {
        CHECK(w[i].left >= 0 && w[i].right <= width + 1 && w[i].top >= 0 && w[i].bottom <= height,
              "%s: \"%s\" leaves the picture of %.0f x %.0f", what, w[i].text, width, height);
        for (int k = i + 1; k < count; k++) {
            const bool apart = w[i].right <= w[k].left + 0.5 || w[k].right <= w[i].left + 0.5 ||
                               w[i].bottom <= w[k].top + 0.5 || w[k].bottom <= w[i].top + 0.5;
            CHECK(apart || strcmp(w[i].text, "▼") == 0 || strcmp(w[k].text, "▼") == 0, "%s: \"%s\" lies on \"%s\"",
                  what, w[i].text, w[k].text);
        }
    }
    test_free(w);
}

/* Budgets and capacities anywhere around the peak, all widths, one to three traces, both axes. */
static void no_word_lies_on_another(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const made[3] = {step_of(f, 24, 5, false), step_of(f, 24, 5, true), step_of(f, 24, 0, false)};
    const int rounds = (int)ckpt_test_rounds(150, 30);
    for (int round = 0; round < rounds; round++) {
        const double peak = (double)made[0]->peak_bytes;
        const double budget = peak * (0.9 + (double)ckpt_test_draw(500) / 1000);
        const double capacity = peak * (0.9 + (double)ckpt_test_draw(700) / 1000);
        const int width = 560 + (int)ckpt_test_draw(1200);
        const int count = 1 + (int)ckpt_test_draw(3);
        ckpt_trace base = *made[0];
        base.budget_bytes = ckpt_test_draw(5) == 0 ? 0 : (ckpt_bytes)budget;
        const ckpt_trace *const trace[3] = {&base, made[1], made[2]};
        const ckpt_view_options options = {
            .width = width,
            .time_axis = ckpt_test_draw(2) == 0,
            .height = ckpt_test_draw(2) == 0 ? 0 : 700,
            .capacity_bytes = ckpt_test_draw(5) == 0 ? 0 : (ckpt_bytes)capacity,
        };
        char what[160];
        snprintf(what, sizeof what, "round %d: %d traces, %d wide, budget %.0f, capacity %.0f", round, count, width,
                 budget, capacity);
        draw(f, trace, count, "svg", &options);
        check_words(f, what);
    }
}

/* Of a box with a title: the rectangle, and the title's first word, which is the buffer's name. */
typedef struct shown {
    double x, y, width, height;
    char name[64];
} shown;

static int boxes_of(const char *svg, shown *out, int room)
{
    int count = 0;
    for (const char *c = strstr(svg, "<path d=\"m"); c != NULL; c = strstr(c + 1, "<path d=\"m")) {
        shown s = {0};
        char *at = NULL;
        s.x = strtod(c + strlen("<path d=\"m"), &at);
        s.y = strtod(at, &at);
        s.width = *at == 'h' ? strtod(at + 1, &at) : 0;
        s.height = *at == 'v' ? strtod(at + 1, &at) : 0;
        const char *const title = strstr(c, "\"><title>"), *const next = strchr(c, '>');
        if (title == NULL || title + 1 != next) {
            continue;
        }
        snprintf(s.name, sizeof s.name, "%.*s", (int)strcspn(title + 9, ":"), title + 9);
        CHECK(count < room, "more than %d boxes", room);
        out[count++] = s;
    }
    return count;
}

/* Every titled box is a place of its name: x follows the steps, y the addresses, along one straight line each. */
static void boxes_are_the_allocations(void **state)
{
    enum { ROOM = 2000 };
    fixture *const f = *state;
    const ckpt_trace *const trace = step_of(f, 24, 5, false);
    draw(f, &trace, 1, "svg", NULL);
    shown *const box = test_calloc(ROOM, sizeof *box);
    const int count = boxes_of(f->text.bytes, box, ROOM);
    CHECK(count > trace->allocation_count / 2, "%d boxes for %d allocations", count, trace->allocation_count);
    /* The map's edges are those of its frame: the lowest and the highest box, and the axis of 128 steps. */
    double left = 1e9, right = 0, top = 1e9, bottom = 0;
    int first = trace->event_count, last = 0;
    for (int p = 0; p < trace->allocation_count; p++) {
        first = trace->allocation[p].from < first ? trace->allocation[p].from : first;
        last = trace->allocation[p].to > last ? trace->allocation[p].to : last;
    }
    for (int i = 0; i < count; i++) {
        left = fmin(left, box[i].x);
        right = fmax(right, box[i].x + box[i].width);
        top = fmin(top, box[i].y);
        bottom = fmax(bottom, box[i].y + box[i].height);
    }
    const double column = (right - left) / (last + 1 - first);
    const double byte = (bottom - top) / (double)trace->arena_bytes;
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (int p = 0; p < trace->allocation_count && !found; p++) {
            const ckpt_trace_allocation *const allocation = &trace->allocation[p];
            const bool named = strcmp(allocation->name, box[i].name) == 0 || allocation->category == CKPT_CAT_WORKSPACE;
            found = named && fabs(box[i].x - left - column * (allocation->from - first)) < 1 &&
                    fabs(box[i].width - column * (allocation->to + 1 - allocation->from)) < 1.5 &&
                    fabs(box[i].y + box[i].height - bottom + byte * (double)allocation->offset) < 1.5 &&
                    fabs(box[i].height - byte * (double)allocation->bytes) < 1.5;
        }
        CHECK(found, "no place \"%s\" is at %.1f, %.1f, %.1f x %.1f", box[i].name, box[i].x, box[i].y, box[i].width,
              box[i].height);
    }
    test_free(box);
}

static void zero_is_said_in_words(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const trace[2] = {step_of(f, 24, 5, false), step_of(f, 24, 5, true)};
    char words[120];
    snprintf(words, sizeof words, "measured − predicted: 0 bytes at every step; all %d allocations as planned",
             trace[0]->allocation_count);
    draw(f, trace, 2, "svg", NULL);
    CHECK(has(f, words), "\"%s\" is not said", words);
    draw(f, trace, 2, "txt", NULL);
    assert_true(has(f, "residual 0 bytes at every step; all"));
    /* Other steps have no residual, and no strip of nonsense. */
    const ckpt_trace *const other[2] = {trace[0], step_of(f, 24, 0, true)};
    draw(f, other, 2, "svg", NULL);
    assert_true(has(f, "measured − predicted: not the same steps"));
    ckpt_trace later = *trace[1]; /* the same names under other numbers are other steps */
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, later.event_count);
    memcpy(event, later.event, (size_t)later.event_count * sizeof *event);
    event[later.event_count - 1].step++;
    later.event = event;
    later.allocation_count = 0;
    const ckpt_trace *const late[2] = {trace[0], &later};
    draw(f, late, 2, "svg", NULL);
    assert_true(has(f, "measured − predicted: not the same steps"));
}

/* One step more or less, by any number of bytes: said with its step, and a bar of the residual's colour. */
static void a_residual_is_said_and_seen(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *trace[2] = {step_of(f, 24, 5, false), NULL};
    const char *const color = ckpt_colour_role_looks[CKPT_ROLE_RESIDUAL].rgb;
    for (int step = 0; step < trace[0]->event_count; step += 3) {
        const bool less = step % 2 == 1 && trace[0]->event[step].bytes[CKPT_CAT_ACTIVATIONS] >= 2000000;
        const ckpt_bytes wrong = less ? -2000000 : 1;
        trace[1] = ckpt_golden_trace(
            &(ckpt_golden_step){.layers = 24, .segment = 5, .measured = true, .wrong_step = step, .wrong_bytes = wrong},
            &f->arena);
        char words[120], fill[40];
        snprintf(words, sizeof words, "1 of %d steps differ, most by %s at step %d", trace[0]->event_count,
                 wrong > 0 ? "+1 B" : "−2.00 MB", step);
        snprintf(fill, sizeof fill, "fill=\"%s\"", color);
        draw(f, trace, 2, "svg", NULL);
        CHECK(has(f, words) && has(f, fill), "step %d: \"%s\" is not said, or has no bar", step, words);
        draw(f, trace, 2, "txt", NULL);
        CHECK(has(f, words), "step %d: \"%s\" is not said in the terminal", step, words);
    }
}

/* A column of several steps shows the largest of them, whichever comes last. */
static void a_column_shows_its_largest_residual(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const base = step_of(f, 500, 0, false);
    ckpt_trace other = *step_of(f, 500, 0, true);
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, other.event_count);
    CHECK(other.event_count > 3 * 560, "%d steps are too few", other.event_count);
    memcpy(event, other.event, (size_t)other.event_count * sizeof *event);
    for (int i = 900; i < 960; i++) {
        event[i].bytes[CKPT_CAT_ACTIVATIONS] += i == 930 ? 5000000 : 1000;
    }
    other.event = event;
    const ckpt_trace *const trace[2] = {base, &other};
    draw(f, trace, 2, "svg", &(ckpt_view_options){.width = 560});
    assert_true(has(f, ">+5.00 MB<"));
}

static void another_place_is_said(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const base = step_of(f, 24, 5, false);
    ckpt_trace moved = *step_of(f, 24, 5, true);
    ckpt_trace_allocation *const allocation = CKPT_NEW(&f->arena, ckpt_trace_allocation, moved.allocation_count);
    const ckpt_trace *const trace[2] = {base, &moved};
    char words[80];
    memcpy(allocation, moved.allocation, (size_t)moved.allocation_count * sizeof *allocation);
    moved.allocation = allocation;
    for (int many = 1; many <= 3; many++) {
        allocation[7 * many].offset += 512;
        draw(f, trace, 2, "svg", NULL);
        snprintf(words, sizeof words, "; %d allocation%s of %d differ%s<", many, many > 1 ? "s" : "",
                 base->allocation_count, many > 1 ? "" : "s");
        CHECK(has(f, words), "\"%s\" is not said", words);
    }
    /* The order in which they are listed says nothing. */
    draw(f, trace, 2, "txt", NULL);
    assert_true(has(f, "residual 0 bytes at every step; 3 allocations of"));
    const ckpt_trace_allocation swap = allocation[0];
    allocation[0] = allocation[20];
    allocation[20] = swap;
    draw(f, trace, 2, "svg", NULL);
    CHECK(has(f, words), "\"%s\" is not said of another order", words);
}

static void a_place_more_is_said(void **state)
{
    fixture *const f = *state;
    const ckpt_trace *const base = step_of(f, 24, 5, false);
    ckpt_trace other = *step_of(f, 24, 5, true);
    ckpt_trace_allocation *const allocation = CKPT_NEW(&f->arena, ckpt_trace_allocation, other.allocation_count + 1);
    memcpy(allocation, other.allocation, (size_t)other.allocation_count * sizeof *allocation);
    allocation[other.allocation_count] = allocation[5];
    allocation[other.allocation_count++].name = "stowaway";
    other.allocation = allocation;
    const ckpt_trace *const trace[2] = {base, &other};
    char words[80];
    snprintf(words, sizeof words, "; all %d allocations and 1 more<", base->allocation_count);
    draw(f, trace, 2, "svg", NULL);
    CHECK(has(f, words), "\"%s\" is not said", words);
}

/* Ticks above a static block of 2^62 bytes are closer than a double can tell: drawing them once never ended. */
static void a_huge_static_block_ends(void **state)
{
    fixture *const f = *state;
    const ckpt_bytes fixed = (ckpt_bytes)1 << 62;
    for (ckpt_bytes moving = 1; moving < fixed; moving *= 5) {
        const ckpt_event event[] = {
            {.step = 0,
             .name = "a",
             .layer = "",
             .stream = "compute",
             .bytes = {[CKPT_CAT_WEIGHTS] = fixed, [CKPT_CAT_ACTIVATIONS] = moving}},
            {.step = INT32_MAX, .name = "b", .layer = "", .stream = "compute", .bytes = {[CKPT_CAT_WEIGHTS] = fixed}},
        };
        const ckpt_trace trace = {.source = "huge",
                                  .name = "huge",
                                  .plan = "p",
                                  .static_bytes = fixed,
                                  .arena_bytes = moving,
                                  .peak_bytes = fixed + moving,
                                  .event = event,
                                  .event_count = 2};
        const ckpt_trace *const only = &trace;
        draw(f, &only, 1, "svg", NULL);
        assert_true(has(f, "static block"));
        assert_true(has(f, "at step 0 of 2147483648: a"));
        assert_null(strstr(f->text.bytes, "nan"));
        assert_null(strstr(f->text.bytes, "inf\""));
    }
}

/* Facts are of what the trace says: a sum across ranks is no copy to the host; what nobody knows of an imported program
 * is not said. */
static void copies_are_counted(void **state)
{
    fixture *const f = *state;
    const ckpt_event event[] = {
        {.step = 0, .name = "a", .layer = "", .stream = "compute", .bytes = {[CKPT_CAT_ACTIVATIONS] = 5}},
        {.step = 1, .name = "b", .layer = "", .stream = "compute", .span = CKPT_SPAN_COPY},
        {.step = 2, .name = "a", .layer = "", .stream = "d2h", .span = CKPT_SPAN_COPY, .end_ns = 70},
        {.step = 3, .name = "a", .layer = "", .stream = "compute", .span = CKPT_SPAN_RECOMPUTE},
    };
    ckpt_trace trace = {.source = "r", .name = "r", .plan = "p", .arena_bytes = 9, .event = event, .event_count = 4};
    const ckpt_trace *const only = &trace;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">1 between device and host, 70 ns<"));
    assert_true(has(f, ">1 of 3 runs<"));
    trace.plan = "";
    trace.arena_bytes = 0;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">1, 70 ns<"));
}

/* Steps that repeat are no axis: events are counted then, and called so. */
static void steps_that_repeat(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 6, 0, false);
    const ckpt_trace *const only = &trace;
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, trace.event_count);
    memcpy(event, trace.event, (size_t)trace.event_count * sizeof *event);
    trace.event = event;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">step<") && !has(f, ">event<"));
    event[7].step = event[6].step;
    trace.allocation_count = 0;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">event<") && !has(f, ">step<"));
}

/* Where the title has no room, plan and budget stay. */
static void a_title_that_is_too_long(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 6, 0, false);
    const ckpt_trace *const only = &trace;
    trace.name = "a-network-with-a-long-name";
    trace.plan = "hierarchy";
    draw(f, &only, 1, "svg", &(ckpt_view_options){.width = 1200});
    assert_true(has(f, ">a-network-with-a-long-name: memory in one training step, plan hierarchy, budget"));
    draw(f, &only, 1, "svg", &(ckpt_view_options){.width = 600});
    assert_true(has(f, ">a-network-with-a-long-name: plan hierarchy, budget"));
}

/* A line where it is near what is drawn, else words; what is asked for goes before what the trace says. */
static void capacity(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 24, 5, false);
    const ckpt_trace *const only = &trace;
    draw(f, &only, 1, "svg", NULL);
    assert_false(has(f, ">device"));
    trace.capacity_bytes = 60 * 1000 * 1000;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">device 60.0 MB<"));
    draw(f, &only, 1, "txt", NULL);
    assert_true(has(f, "device 60.0 MB"));
    draw(f, &only, 1, "svg", &(ckpt_view_options){.capacity_bytes = 80 * 1000 * 1000});
    assert_false(has(f, ">device 80.0 MB<"));
    assert_true(has(f, "memory of 80.0 MB, far above the picture"));
}

/* A line up to twice the highest peak, else words. */
static void budget(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 24, 5, false);
    const ckpt_trace *const only = &trace;
    trace.budget_bytes = 2 * trace.peak_bytes;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">budget ") && !has(f, "far above the picture"));
    trace.budget_bytes++;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, "B, far above the picture<"));
    /* Under the table what is left, or what is too much; for both traces. */
    assert_true(has(f, ">left of the budget<") && !has(f, ">over the budget<"));
    trace.budget_bytes = trace.peak_bytes;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">left of the budget<"));
    trace.budget_bytes--;
    draw(f, &only, 1, "svg", NULL);
    assert_true(has(f, ">over the budget<") && has(f, ">1 B<"));
    ckpt_trace other = *step_of(f, 24, 5, true);
    const ckpt_trace *const both[2] = {&trace, &other};
    const struct {
        ckpt_bytes left, others_left;
        const char *name, *figure, *extra;
    } table[] = {
        {7, 7, "left", "7 B", NULL},   {7, 4, "left", "4 B", NULL},    {7, -3, "left", "3 B", "over"},
        {-7, -3, "over", "3 B", NULL}, {-7, 0, "over", "0 B", "left"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char name[40], figure[20], extra[20];
        snprintf(name, sizeof name, ">%s %s budget<", table[i].name, table[i].left < 0 ? "the" : "of the");
        snprintf(figure, sizeof figure, ">%s<", table[i].figure);
        snprintf(extra, sizeof extra, ">%s<", table[i].extra != NULL ? table[i].extra : "");
        trace.budget_bytes = trace.peak_bytes + table[i].left;
        other.budget_bytes = other.peak_bytes + table[i].others_left;
        draw(f, both, 2, "svg", NULL);
        CHECK(has(f, name) && has(f, figure), "%zu: %s %s is not said", i, name, figure);
        CHECK(table[i].extra != NULL ? has(f, extra) : !has(f, ">over<") && !has(f, ">left<"), "%zu: \"%s\"", i, extra);
    }
}

/* What starts before what was issued before it is issued no earlier. */
static void time_never_goes_back(void **state)
{
    fixture *const f = *state;
    const ckpt_event event[] = {
        {.step = 0, .name = "a", .layer = "", .stream = "compute", .start_ns = 500, .end_ns = 600},
        {.step = 1, .name = "b", .layer = "", .stream = "h2d", .span = CKPT_SPAN_COPY, .start_ns = 900, .end_ns = 950},
        {.step = 2, .name = "c", .layer = "", .stream = "compute", .start_ns = 100, .end_ns = 200},
        {.step = 3, .name = "d", .layer = "", .stream = "compute", .start_ns = 700, .end_ns = 800},
    };
    const double wanted[] = {500, 500, 500, 700, 950};
    const ckpt_trace trace = {.source = "t", .event = event, .event_count = 4}, *const only = &trace;
    ckpt_series series[CKPT_VIEW_TRACES];
    int base = 0;
    CHECK_OK(ckpt_series_make(&only, 1, true, &f->arena, series, &base, &f->err), f->err);
    for (int i = 0; i < 5; i++) {
        CHECK(series[0].from[i] == wanted[i], "event %d is at %.0f, not at %.0f", i, series[0].from[i], wanted[i]);
    }
}

/* What was recomputed and what is offloaded had the chart's colour of activations and no number, and colours of their own
 * in the map. An allocation larger than its category says no more than the category. */
static void recomputed_bytes_were_drawn_as_activations(void **state)
{
    fixture *const f = *state;
    enum { EVENTS = 4 };
    ckpt_event event[EVENTS] = {
        {.step = 0, .name = "a", .layer = "a", .stream = "compute"},
        {.step = 1, .name = "b", .layer = "b", .stream = "compute"},
        {.step = 2, .name = "a", .layer = "a", .stream = "compute", .span = CKPT_SPAN_RECOMPUTE},
        {.step = 3, .name = "s", .layer = "s", .stream = "h2d", .span = CKPT_SPAN_COPY},
    };
    static const ckpt_bytes activations[EVENTS] = {100, 130, 200, 200}, saved[EVENTS] = {0, 0, 0, 40};
    for (int i = 0; i < EVENTS; i++) {
        event[i].bytes[CKPT_CAT_ACTIVATIONS] = activations[i];
        event[i].bytes[CKPT_CAT_SAVED] = saved[i];
    }
    ckpt_trace_allocation allocation[] = {
        {.name = "a", .category = CKPT_CAT_ACTIVATIONS, .from = 0, .to = 1, .bytes = 100},
        {.name = "b", .category = CKPT_CAT_ACTIVATIONS, .from = 1, .to = 3, .bytes = 30},
        {.name = "a", .category = CKPT_CAT_ACTIVATIONS, .from = 2, .to = 3, .bytes = 170},
        {.name = "s", .category = CKPT_CAT_SAVED, .from = 3, .to = 3, .bytes = 40},
    };
    const ckpt_trace trace = {.source = "t",
                              .event = event,
                              .event_count = EVENTS,
                              .allocation = allocation,
                              .allocation_count = sizeof allocation / sizeof *allocation},
                     *const only = &trace;
    for (int hostile = 0; hostile < 2; hostile++) {
        static const ckpt_bytes wanted[2][EVENTS] = {{0, 0, 170, 170}, {0, 0, 200, 200}};
        allocation[2].bytes = hostile ? INT64_MAX : allocation[2].bytes;
        ckpt_series series[CKPT_VIEW_TRACES];
        int base = 0;
        CHECK_OK(ckpt_series_make(&only, 1, false, &f->arena, series, &base, &f->err), f->err);
        for (int i = 0; i < EVENTS; i++) {
            ckpt_bands bands;
            ckpt_series_bands(&series[0], i, &bands);
            assert_int_equal(bands.bytes[CKPT_BAND_RECOMPUTED], wanted[hostile][i]);
            assert_int_equal(bands.bytes[CKPT_BAND_ACTIVATIONS], activations[i] - wanted[hostile][i]);
            assert_int_equal(bands.bytes[CKPT_BAND_OFFLOADED], saved[i]);
            assert_int_equal(bands.bytes[CKPT_BAND_SAVED], 0);
            assert_int_equal(bands.planned, activations[i] + saved[i]);
        }
        CHECK(series[0].used[CKPT_BAND_RECOMPUTED] && !series[0].used[CKPT_BAND_WORKSPACE], "bands in use");
    }
}

/* 5,000 stays of one step each over the whole arena: no box of its own, but together they fill the map. */
static void what_is_thinner_than_a_pixel_is_there(void **state)
{
    fixture *const f = *state;
    enum { STEPS = 5000 };
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, STEPS);
    ckpt_trace_allocation *const allocation = CKPT_NEW(&f->arena, ckpt_trace_allocation, STEPS);
    for (int i = 0; i < STEPS; i++) {
        event[i] = (ckpt_event){.step = i, .name = "a", .layer = "", .stream = "compute"};
        event[i].bytes[CKPT_CAT_WORKSPACE] = 900;
        allocation[i] =
            (ckpt_trace_allocation){.name = "x", .category = CKPT_CAT_WORKSPACE, .from = i, .to = i, .bytes = 900};
    }
    const ckpt_trace trace = {.source = "thin",
                              .name = "thin",
                              .plan = "p",
                              .arena_bytes = 900,
                              .peak_bytes = 900,
                              .event = event,
                              .event_count = STEPS,
                              .allocation = allocation,
                              .allocation_count = STEPS};
    const ckpt_trace *const only = &trace;
    draw(f, &only, 1, "svg", NULL);
    double widest = 0, highest = 0;
    for (const char *c = strstr(f->text.bytes, " d=\"m"); c != NULL; c = strstr(c + 1, " d=\"m")) {
        char *at = NULL;
        (void)strtod(c + strlen(" d=\"m"), &at);
        (void)strtod(at, &at);
        const double width = *at == 'h' ? strtod(at + 1, &at) : 0, height = *at == 'v' ? strtod(at + 1, &at) : 0;
        highest = width > widest ? height : highest;
        widest = fmax(widest, width);
    }
    CHECK(widest > 800 && highest > 200, "the largest box is %.0f x %.0f", widest, highest);
    for (int i = 0; i < STEPS; i++) { /* of nothing nothing is drawn */
        allocation[i].bytes = 0;
    }
    draw(f, &only, 1, "svg", NULL);
    assert_null(strstr(f->text.bytes, " d=\"m"));
}

/* The order of the program is the axis of what has no times, whatever is asked for, and no time is made up. */
static void without_times(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 24, 5, false);
    ckpt_event *const event = CKPT_NEW(&f->arena, ckpt_event, trace.event_count);
    memcpy(event, trace.event, (size_t)trace.event_count * sizeof *event);
    for (int i = 0; i < trace.event_count; i++) {
        event[i].start_ns = event[i].end_ns = 0;
    }
    trace.event = event;
    const ckpt_trace *const only = &trace;
    draw(f, &only, 1, "svg", &(ckpt_view_options){.time_axis = true});
    assert_true(has(f, ">step<")); /* a plan knows the time of the whole step, but not when what happens */
    assert_false(has(f, "0 ns"));
    trace.time_ns = 0;
    draw(f, &only, 1, "svg", &(ckpt_view_options){.time_axis = true});
    assert_true(has(f, ">step<"));
    assert_true(has(f, "the order of the program, because not all have times"));
    assert_false(has(f, "0 ns"));
    const ckpt_trace *const both[2] = {&trace, step_of(f, 24, 5, true)};
    draw(f, both, 2, "svg", &(ckpt_view_options){.time_axis = true});
    assert_true(has(f, ">step<"));
    assert_true(has(f, "the order of the program, because not all have times"));
    assert_true(has(f, ">596 us, measured<"));
}

/* A place whose steps the trace does not have is refused, in one line that names the file. */
static void bad_allocations(void **state)
{
    fixture *const f = *state;
    ckpt_trace trace = *step_of(f, 24, 5, false);
    ckpt_trace_allocation *const allocation = CKPT_NEW(&f->arena, ckpt_trace_allocation, trace.allocation_count);
    memcpy(allocation, trace.allocation, (size_t)trace.allocation_count * sizeof *allocation);
    allocation[3].from = allocation[3].to = 99999;
    trace.allocation = allocation;
    const ckpt_trace *const only = &trace;
    assert_int_equal(ckpt_view_draw(&only, 1, "svg", NULL, &f->text, &f->err), CKPT_BAD_INPUT);
    assert_non_null(strstr(f->err.msg, "predicted.json"));
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_word_lies_on_another, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(boxes_are_the_allocations, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(zero_is_said_in_words, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(a_residual_is_said_and_seen, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(a_column_shows_its_largest_residual, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(another_place_is_said, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(budget, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(time_never_goes_back, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(recomputed_bytes_were_drawn_as_activations, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(what_is_thinner_than_a_pixel_is_there, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(a_place_more_is_said, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(a_huge_static_block_ends, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(copies_are_counted, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(steps_that_repeat, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(a_title_that_is_too_long, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(capacity, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(without_times, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(bad_allocations, ckpt_test_open, ckpt_test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
