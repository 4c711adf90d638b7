/* labels: unit */
/* The page's bytes: its data read back by Jansson is the trace, its live ranges and their reasons; no name can end the block
 * it stands in; nothing is asked from anywhere; no memory, no trace. What a browser shows: cli_html.sh. */
#include "tests/support/support_test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/replay/replay.h"
#include "tests/support/support_sequence.h"
#include "viz/timeline/live_ranges.h"
#include "viz/timeline/view.h"

static const char data_begins[] = "<script type=\"application/json\" id=\"data\">";

typedef struct page {
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err;
    const ckpt_trace *trace[2];
    int count;
} page;

/* A random plan's trace with its allocations. */
static ckpt_trace *trace_of(ckpt_arena *arena, uint64_t seed)
{
    ckpt_err err = {0};
    char what[40];
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
    const ckpt_graph *const step = ckpt_test_step(arena, seed, 3 + (int)(seed % 14));
    const ckpt_graph *const graph =
        ckpt_test_variant(step, arena, seed, seed % 2 == 0, seed % 3 == 0 ? 0 : 33000000000, 20000000000);
    const ckpt_sequence sequence = ckpt_test_sequence(graph, arena, seed);
    ckpt_plan *const plan = ckpt_test_plan(graph, &sequence, arena, what);
    plan->graph_name = graph->name;
    const ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_plan_simulate(plan, graph, arena, &trace, &err), err);
    ckpt_trace *const own = CKPT_NEW(arena, ckpt_trace, 1);
    assert_non_null(own);
    *own = *trace;
    return own;
}

static void begin(page *p)
{
    *p = (page){.count = 1};
    ckpt_arena_init(&p->arena);
    ckpt_text_init(&p->text);
}

static void end(page *p)
{
    ckpt_text_fini(&p->text);
    ckpt_arena_fini(&p->arena);
}

/* The page's data as JSON; the caller gives it back. */
static json_t *draw(page *p)
{
    CHECK_OK(ckpt_view_html(p->trace, p->count, NULL, &p->text, &p->err), p->err);
    const char *const from = strstr(p->text.bytes, data_begins);
    assert_non_null(from);
    const char *const first = from + sizeof data_begins - 1, *const last = strstr(first, "</script>");
    json_error_t error;
    json_t *const data = json_loadb(first, (size_t)(last - first), JSON_REJECT_DUPLICATES, &error);
    CHECK(data != NULL, "the data is no JSON: line %d: %s", error.line, error.text);
    return data;
}

/* A column as plain numbers; checks that there are `count`. */
static int64_t *column(const json_t *object, const char *name, int count)
{
    const json_t *const list = json_object_get(object, name);
    CHECK(json_is_array(list), "no column %s", name);
    int64_t *const out = test_calloc((size_t)count + 1, sizeof *out), value = 0;
    int filled = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        const bool run = json_is_array(item);
        const int64_t difference = json_integer_value(run ? json_array_get(item, 0) : item);
        for (json_int_t n = run ? json_integer_value(json_array_get(item, 1)) : 1; n > 0; n--) {
            CHECK(filled < count, "column %s has more than %d numbers", name, count);
            value += difference;
            out[filled++] = value;
        }
    }
    CHECK(filled == count, "column %s has %d numbers, wanted %d", name, filled, count);
    return out;
}

static const char *text_at(const json_t *data, const char *list, int64_t number)
{
    const char *const text = json_string_value(json_array_get(json_object_get(data, list), (size_t)number));
    CHECK(text != NULL, "no %s[%lld]", list, (long long)number);
    return text;
}

static void same_numbers(const json_t *object, const char *name, const ckpt_event *event, int count, size_t offset)
{
    int64_t *const got = column(object, name, count);
    for (int i = 0; i < count; i++) {
        const int64_t wanted = *(const int64_t *)(const void *)((const char *)&event[i] + offset);
        CHECK(got[i] == wanted, "%s of event %d is %lld, wanted %lld", name, i, (long long)got[i], (long long)wanted);
    }
    test_free(got);
}

static void same_events(const json_t *data, const ckpt_trace *trace)
{
    const int count = trace->event_count;
    const json_t *const events = json_object_get(data, "events");
    same_numbers(events, "start", trace->event, count, offsetof(ckpt_event, start_ns));
    same_numbers(events, "end", trace->event, count, offsetof(ckpt_event, end_ns));
    int64_t *const name = column(events, "name", count), *const layer = column(events, "layer", count);
    int64_t *const step = column(events, "step", count), *const span = column(events, "span", count);
    for (int i = 0; i < count; i++) {
        const ckpt_event *const event = &trace->event[i];
        assert_string_equal(text_at(data, "texts", name[i]), event->name);
        assert_string_equal(text_at(data, "texts", layer[i]), event->layer);
        assert_int_equal(step[i], event->step);
        const json_t *const words = json_array_get(json_object_get(data, "spans"), (size_t)span[i]);
        assert_string_equal(json_string_value(json_object_get(words, "name")), ckpt_span_name(event->span));
    }
    int64_t *const rows[] = {name, layer, step, span};
    for (int i = 0; i < 4; i++) {
        test_free(rows[i]);
    }
}

/* The bands of the page add up to the event's bytes. */
static void same_bytes(const json_t *data, const ckpt_trace *trace)
{
    const int count = trace->event_count;
    int64_t *const sum = test_calloc((size_t)count, sizeof *sum);
    const json_t *const bands = json_object_get(data, "bands");
    for (size_t b = 0; b < json_array_size(bands); b++) {
        int64_t *const bytes = column(json_array_get(bands, b), "bytes", count);
        for (int i = 0; i < count; i++) {
            sum[i] += bytes[i];
        }
        test_free(bytes);
    }
    for (int i = 0; i < count; i++) {
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            sum[i] -= trace->event[i].bytes[c];
        }
        CHECK(sum[i] == 0, "event %d has %lld bytes too many", i, (long long)sum[i]);
    }
    test_free(sum);
}

/* As reasonOf in viz/html/data.js. */
static void expand(const ckpt_live_ranges *ranges, const ckpt_live_range *range, const char *clause, ckpt_text *out)
{
    const ckpt_event *const event = ranges->trace->event;
    for (const char *c = clause; *c != '\0'; c++) {
        if (*c != '%') {
            ckpt_text_put(out, c, 1);
            continue;
        }
        static const char letters[] = "nyBLblceft";
        const char *const name[] = {range->name, range->layer, range->born >= 0 ? event[range->born].name : "",
                                    range->last >= 0 ? event[range->last].name : ""};
        const int at[] = {range->born, range->last, range->copied, range->to};
        const long letter = strchr(letters, *++c) - letters;
        if (letter < 4) {
            ckpt_text_add(out, "%s%s", letter == 1 && name[1][0] != '\0' ? " in " : "", name[letter]);
        } else {
            ckpt_text_add(out, "%d", letter < 8 ? event[at[letter - 4]].step : letter == 8 ? range->from : range->to);
        }
    }
}

static void same_ranges(const json_t *data, const ckpt_trace *trace, ckpt_arena *arena)
{
    ckpt_live_ranges ranges;
    ckpt_err err = {0};
    CHECK_OK(ckpt_live_ranges_make(trace, arena, &ranges, &err), err);
    const json_t *const object = json_object_get(data, "ranges");
    assert_int_equal(json_integer_value(json_object_get(object, "count")), ranges.count);
    static const char *const name[] = {"name", "layer", "kind",   "from",  "to",   "born",
                                       "last", "why",   "offset", "bytes", "high", "low"};
    enum { FIELDS = sizeof name / sizeof name[0] };
    int64_t *got[FIELDS];
    for (int f = 0; f < FIELDS; f++) {
        got[f] = column(object, name[f], ranges.count);
    }
    for (int i = 0; i < ranges.count; i++) {
        const ckpt_live_range *const range = &ranges.range[i];
        assert_string_equal(text_at(data, "texts", got[0][i]), range->name);
        assert_string_equal(text_at(data, "texts", got[1][i]), range->layer);
        const int64_t wanted[] = {range->kind, range->from, range->to, range->born, range->last};
        for (int f = 0; f < 5; f++) {
            CHECK(got[2 + f][i] == wanted[f], "%s of live range %d is %lld", name[2 + f], i, (long long)got[2 + f][i]);
        }
        assert_int_equal(got[8][i], range->offset);
        assert_int_equal(got[9][i], range->bytes);
        CHECK((got[10][i] << 32) + got[11][i] == range->address, "address of live range %d", i);
        ckpt_text reason;
        ckpt_text_init(&reason);
        expand(&ranges, range, text_at(data, "reasons", got[7][i]), &reason);
        assert_string_equal(reason.bytes, ckpt_live_range_reason(&ranges, i, arena));
        ckpt_text_fini(&reason);
    }
    for (int f = 0; f < FIELDS; f++) {
        test_free(got[f]);
    }
}

static void data_is_the_trace(void **state)
{
    int ranges = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        page p;
        begin(&p);
        p.trace[0] = trace_of(&p.arena, seed);
        json_t *const data = draw(&p);
        same_events(data, p.trace[0]);
        same_bytes(data, p.trace[0]);
        same_ranges(data, p.trace[0], &p.arena);
        assert_int_equal(json_array_size(json_object_get(data, "reasons")), CKPT_WHY_COUNT);
        ranges += (int)json_integer_value(json_object_get(json_object_get(data, "ranges"), "count"));
        json_decref(data);
        end(&p);
    }
    CHECK(ranges > 300, "only %d live ranges in all", ranges);
}

/* Addresses of 63 bits, which are more than a number of JavaScript holds; and a block that is never freed. */
static void a_program(void **state)
{
    page p;
    begin(&p);
    const int64_t high = INT64_MAX - 4095;
    const ckpt_event event[] = {
        {.step = 0,
         .name = "malloc",
         .layer = "a 12",
         .stream = "",
         .span = CKPT_SPAN_ALLOCATE,
         .end_ns = 5,
         .bytes = {[CKPT_CAT_OTHER] = 4096},
         .size_bytes = 4096,
         .address = high},
        {.step = 1,
         .name = "malloc",
         .layer = "",
         .stream = "",
         .span = CKPT_SPAN_ALLOCATE,
         .start_ns = 7,
         .end_ns = 9,
         .bytes = {[CKPT_CAT_OTHER] = 4608},
         .size_bytes = 512,
         .address = 4096},
        {.step = 2,
         .name = "free",
         .layer = "",
         .stream = "",
         .span = CKPT_SPAN_FREE,
         .start_ns = 11,
         .end_ns = 12,
         .bytes = {[CKPT_CAT_OTHER] = 512},
         .size_bytes = 4096,
         .address = high},
    };
    const ckpt_trace trace = {.source = "x",
                              .name = "x",
                              .plan = "",
                              .measured = true,
                              .peak_bytes = 4608,
                              .time_ns = 12,
                              .peak_event = 1,
                              .recorder = "",
                              .event = event,
                              .event_count = 3};
    p.trace[0] = &trace;
    json_t *const data = draw(&p);
    same_events(data, &trace);
    same_ranges(data, &trace, &p.arena);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(data, "ranges"), "count")), 2);
    assert_string_equal(json_string_value(json_object_get(data, "axis")), "time");
    json_decref(data);
    end(&p);
}

static int occurrences(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        count++;
    }
    return count;
}

static void names_stay_text(void **state)
{
    static const char *const hostile[] = {"</script><script>alert(1)</script>",
                                          "<!-- <script>",
                                          "a\xE2\x80\xA8z\xE2\x80\xA9",
                                          "\"'\\&amp;",
                                          "@style@ @data@",
                                          "\x01\x02\x08 7",
                                          "]]>"};
    enum { NAMES = sizeof hostile / sizeof hostile[0] };
    page plain, p;
    begin(&plain);
    begin(&p);
    ckpt_trace *const trace = trace_of(&p.arena, 5);
    ckpt_event *const event = CKPT_NEW(&p.arena, ckpt_event, trace->event_count);
    assert_non_null(event);
    memcpy(event, trace->event, (size_t)trace->event_count * sizeof *event);
    for (int i = 0; i < trace->event_count; i++) {
        event[i].name = hostile[i % NAMES];
        event[i].layer = hostile[(i + 1) % NAMES];
    }
    plain.trace[0] = trace_of(&plain.arena, 5);
    json_decref(draw(&plain));
    trace->event = event;
    trace->name = hostile[0];
    p.trace[0] = trace;
    json_t *const data = draw(&p);
    same_events(data, trace);
    for (int i = 0; i < NAMES; i++) {
        CHECK(strpbrk(hostile[i], "<>&\xE2\x01") == NULL || strstr(p.text.bytes, hostile[i]) == NULL,
              "%s stands in the page as it is", hostile[i]);
    }
    assert_int_equal(occurrences(p.text.bytes, "<script"), occurrences(plain.text.bytes, "<script"));
    assert_int_equal(occurrences(p.text.bytes, "</script"), 2);
    const char *const from = strstr(p.text.bytes, data_begins) + sizeof data_begins - 1;
    const size_t length = (size_t)(strstr(from, "</script") - from);
    CHECK(strcspn(from, "<>&") == length, "the data holds < > or &");
    CHECK(strstr(from, "\\u003c/script\\u003e") != NULL && strstr(from, "\\u2028z\\u2029") != NULL, "no escapes");
    json_decref(data);
    end(&p);
    end(&plain);
}

static void asks_for_nothing(void **state)
{
    static const char *const never[] = {
        "://",    "unsafe",         "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
        "fetch(", "XMLHttpRequest", "@policy@",  "@style@",   "@script@",           "@data@"};
    page p;
    begin(&p);
    p.trace[0] = trace_of(&p.arena, 3);
    json_decref(draw(&p));
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        CHECK(strstr(p.text.bytes, never[i]) == NULL, "the page holds %s", never[i]);
    }
    assert_int_equal(occurrences(p.text.bytes, "default-src 'none'; script-src 'sha256-"), 1);
    end(&p);
}

static void refusals(void **state)
{
    page p;
    begin(&p);
    const ckpt_trace *nine[9];
    ckpt_trace *const trace = trace_of(&p.arena, 2);
    for (int i = 0; i < 9; i++) {
        nine[i] = trace;
    }
    assert_int_equal(ckpt_view_html(nine, 9, NULL, &p.text, &p.err), CKPT_BAD_INPUT);
    assert_non_null(strstr(p.err.msg, "found 9 traces"));
    assert_int_equal(ckpt_view_html(nine, 0, NULL, &p.text, &p.err), CKPT_BAD_INPUT);
    trace->event_count = 0;
    assert_int_equal(ckpt_view_html(nine, 1, NULL, &p.text, &p.err), CKPT_BAD_INPUT);
    assert_int_equal(p.text.length, 0);
    end(&p);
}

static ckpt_code draw_once(void *context, ckpt_text *text, ckpt_err *err)
{
    const page *const p = context;
    return ckpt_view_html(p->trace, p->count, NULL, text, err);
}

static void starve(void **state)
{
    page p;
    begin(&p);
    p.trace[0] = trace_of(&p.arena, 7);
    ckpt_trace *const other = trace_of(&p.arena, 7);
    other->measured = true;
    p.trace[1] = other;
    p.count = 2;
    /* ckpt_test_starve wants no block live but ours */
    CHECK(ckpt_test_starve_text(draw_once, &p) > 5, "hardly any allocation");
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_is_the_trace), cmocka_unit_test(a_program), cmocka_unit_test(names_stay_text),
        cmocka_unit_test(asks_for_nothing),  cmocka_unit_test(refusals),  cmocka_unit_test(starve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
