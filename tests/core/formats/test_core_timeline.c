/* labels: unit */
/* Timelines against a plain recomputation: what is in memory after an event is worked out anew from all events that
 * come before it. The seed is printed; a first argument replaces it. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/formats/timeline.h"

enum { MOST = 160, ADDRESSES = 12 };

typedef struct added {
    ckpt_event event;
    ckpt_category category;
} added;

static ckpt_event allocate_at(int64_t address, ckpt_ns at, ckpt_bytes size)
{
    return (ckpt_event){
        .name = "a", .span = CKPT_SPAN_ALLOCATE, .start_ns = at, .end_ns = at, .size_bytes = size, .address = address};
}

static ckpt_event free_at(int64_t address, ckpt_ns at)
{
    return (ckpt_event){.name = "f", .span = CKPT_SPAN_FREE, .start_ns = at, .end_ns = at, .address = address};
}

static ckpt_event run_at(const char *name, ckpt_ns start, ckpt_ns end)
{
    return (ckpt_event){.name = name, .span = CKPT_SPAN_OTHER, .start_ns = start, .end_ns = end};
}

/* Whether x comes before y; `i` and `j` are their places among the added. */
static bool before(const added *x, int i, const added *y, int j)
{
    return x->event.start_ns < y->event.start_ns || (x->event.start_ns == y->event.start_ns && i < j);
}

/* The last allocate or free of that address before (or, with `self`, at) event k; -1: none. */
static int last_of(const added *all, int count, int64_t address, int k, bool self)
{
    int last = -1;
    for (int i = 0; i < count; i++) {
        const bool memory = all[i].event.span == CKPT_SPAN_ALLOCATE || all[i].event.span == CKPT_SPAN_FREE;
        const bool earlier = before(&all[i], i, &all[k], k) || (self && i == k);
        if (memory && earlier && all[i].event.address == address &&
            (last < 0 || before(&all[last], last, &all[i], i))) {
            last = i;
        }
    }
    return last;
}

/* The bytes of one category after event k: those of the addresses whose last event is an allocate. */
static ckpt_bytes bytes_after(const added *all, int count, int k, ckpt_category category)
{
    ckpt_bytes sum = 0;
    for (int64_t address = 0; address < ADDRESSES; address++) {
        const int last = last_of(all, count, address, k, true);
        if (last >= 0 && all[last].event.span == CKPT_SPAN_ALLOCATE && all[last].category == category) {
            sum += all[last].event.size_bytes;
        }
    }
    return sum;
}

/* What the trace must say of the random events. */
static void check_against(const added *all, int count, const ckpt_trace *trace, const ckpt_timeline_report *report)
{
    ckpt_bytes peak = 0;
    ckpt_ns first = INT64_MAX, time = 0;
    int allocation = 0, peak_event = 0, unknown = 0, twice = 0, final = -1;
    for (int i = 0; i < count; i++) {
        first = all[i].event.start_ns < first ? all[i].event.start_ns : first;
    }
    for (int i = -1, k = 0; k < count; k++) { /* i: the event after the one before */
        int next = -1;
        for (int j = 0; j < count; j++) {
            if ((i < 0 || before(&all[i], i, &all[j], j)) && (next < 0 || before(&all[j], j, &all[next], next))) {
                next = j;
            }
        }
        i = next;
        const added *const a = &all[i];
        const int last = last_of(all, count, a->event.address, i, false);
        const bool there = last >= 0 && all[last].event.span == CKPT_SPAN_ALLOCATE;
        final = i;
        twice += a->event.span == CKPT_SPAN_ALLOCATE && there;
        if (a->event.span == CKPT_SPAN_FREE && !there) {
            unknown++;
            continue;
        }
        const ckpt_event *const e = &trace->event[allocation];
        CHECK(allocation < trace->event_count, "event %d is missing", allocation);
        assert_int_equal(e->step, allocation);
        assert_string_equal(e->name, a->event.name);
        assert_string_equal(e->layer, a->event.layer != NULL ? a->event.layer : "");
        assert_string_equal(e->stream, a->event.stream != NULL ? a->event.stream : "compute");
        assert_int_equal(e->span, a->event.span);
        assert_int_equal(e->start_ns, a->event.start_ns - first);
        assert_int_equal(e->end_ns, a->event.end_ns - first);
        assert_int_equal(e->address, a->event.address);
        assert_int_equal(e->size_bytes,
                         a->event.span == CKPT_SPAN_FREE ? all[last].event.size_bytes : a->event.size_bytes);
        ckpt_bytes sum = 0;
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            const ckpt_bytes wanted = bytes_after(all, count, i, (ckpt_category)c);
            CHECK(e->bytes[c] == wanted, "event %d: %lld bytes of %s, wanted %lld", allocation, (long long)e->bytes[c],
                  ckpt_category_name((ckpt_category)c), (long long)wanted);
            sum += c == CKPT_CAT_OUTSIDE ? 0 : wanted;
        }
        peak_event = sum > peak ? allocation : peak_event;
        peak = sum > peak ? sum : peak;
        time = e->end_ns > time ? e->end_ns : time;
        allocation++;
    }
    ckpt_bytes left = 0;
    for (int c = 0; count > 0 && c < CKPT_CATEGORY_COUNT; c++) {
        left += bytes_after(all, count, final, (ckpt_category)c);
    }
    assert_int_equal(trace->event_count, allocation);
    assert_int_equal(trace->peak_bytes, peak);
    assert_int_equal(trace->peak_event, peak_event);
    assert_int_equal(trace->time_ns, time);
    assert_int_equal(report->unknown_frees, unknown);
    assert_int_equal(report->double_allocates, twice);
    assert_int_equal(report->left_bytes, left);
}

/* Times are few, so that many are equal; addresses too, so that blocks come back and collide. */
static added random_event(void)
{
    static const char *const layers[] = {NULL, "", "h.0", "h.1"};
    static const char *const streams[] = {NULL, "stream 7", "d2h"};
    const ckpt_ns start = (ckpt_ns)ckpt_test_draw(40) - 20;
    const ckpt_span spans[] = {CKPT_SPAN_ALLOCATE, CKPT_SPAN_ALLOCATE, CKPT_SPAN_FREE, CKPT_SPAN_OTHER, CKPT_SPAN_COPY};
    return (added){{.name = ckpt_test_draw(2) == 0 ? "gemm" : "add",
                    .layer = layers[ckpt_test_draw(4)],
                    .stream = streams[ckpt_test_draw(3)],
                    .span = spans[ckpt_test_draw(5)],
                    .start_ns = start,
                    .end_ns = start + (ckpt_ns)ckpt_test_draw(30),
                    .size_bytes = (ckpt_bytes)ckpt_test_draw(1000),
                    .address = (int64_t)ckpt_test_draw(ADDRESSES)},
                   (ckpt_category)ckpt_test_draw(CKPT_CATEGORY_COUNT)};
}

static void test_random_sequences(void **state)
{
    for (uint64_t k = ckpt_test_rounds(400, 60); k > 0; k--) {
        static added all[MOST];
        const int count = (int)ckpt_test_draw(MOST + 1);
        CKPT_TEST_ARENA(arena);
        ckpt_timeline *timeline = NULL;
        ckpt_trace *trace = NULL;
        ckpt_timeline_report report;
        ckpt_err err = {0};
        CHECK_OK(ckpt_timeline_create(&arena, &timeline, &err), err);
        for (int i = 0; i < count; i++) {
            all[i] = random_event();
            CHECK_OK(ckpt_timeline_add(timeline, &all[i].event, all[i].category, &err), err);
        }
        CHECK_OK(ckpt_timeline_finish(timeline, "random", &trace, &report, &err), err);
        check_against(all, count, trace, &report);
    }
}

/* Adds them and finishes; the arena is the caller's. */
static ckpt_code finish(const ckpt_event *event, int count, ckpt_arena *arena, ckpt_trace **trace,
                        ckpt_timeline_report *report, ckpt_err *err)
{
    ckpt_timeline *timeline = NULL;
    CKPT_TRY(ckpt_timeline_create(arena, &timeline, err));
    for (int i = 0; i < count; i++) {
        CKPT_TRY(ckpt_timeline_add(timeline, &event[i], CKPT_CAT_OTHER, err));
    }
    return ckpt_timeline_finish(timeline, "hand", trace, report, err);
}

/* What is finished can be written, read and drawn: the reader checks the rules of a ckpt-trace/1. */
static void test_the_trace_can_be_read_again(void **state)
{
    const ckpt_event events[] = {run_at("k", 5, 9), allocate_at(64, 3, 100), free_at(64, 9), free_at(128, 1),
                                 allocate_at(64, 9, 50)};
    CKPT_TEST_ARENA(arena);
    ckpt_trace *trace = NULL;
    ckpt_timeline_report report;
    ckpt_text text;
    ckpt_err err = {0};
    const ckpt_trace *back = NULL;
    ckpt_text_init(&text);
    CHECK_OK(finish(events, 5, &arena, &trace, &report, &err), err);
    ckpt_trace_write(trace, &text);
    CHECK_OK(ckpt_trace_read(ckpt_test_file("timeline.json", text.bytes, text.length), &arena, &back, &err), err);
    assert_int_equal(back->event_count, 4);
    assert_int_equal(back->peak_bytes, 100);
    assert_int_equal(back->event[0].start_ns, 2); /* from the first start, that of the free that was left out */
    assert_int_equal(back->event[2].span, CKPT_SPAN_FREE);
    assert_int_equal(back->event[2].size_bytes, 100);
    assert_int_equal(back->event[3].bytes[CKPT_CAT_OTHER], 50);
    assert_int_equal(report.unknown_frees, 1);
    assert_int_equal(report.left_bytes, 50);
    ckpt_text_fini(&text);
}

static void test_texts_are_copied(void **state)
{
    char name[] = "gemm", layer[] = "h.0", stream[] = "stream 7";
    ckpt_event event = run_at(name, 0, 1);
    CKPT_TEST_ARENA(arena);
    ckpt_timeline *timeline = NULL;
    ckpt_trace *trace = NULL;
    ckpt_timeline_report report;
    ckpt_err err = {0};
    event.layer = layer;
    event.stream = stream;
    CHECK_OK(ckpt_timeline_create(&arena, &timeline, &err), err);
    CHECK_OK(ckpt_timeline_add(timeline, &event, CKPT_CAT_OTHER, &err), err);
    name[0] = layer[0] = stream[0] = 'x';
    CHECK_OK(ckpt_timeline_add(timeline, &event, CKPT_CAT_OTHER, &err), err);
    CHECK_OK(ckpt_timeline_finish(timeline, "copies", &trace, &report, &err), err);
    assert_string_equal(trace->event[0].name, "gemm");
    assert_string_equal(trace->event[0].layer, "h.0");
    assert_string_equal(trace->event[0].stream, "stream 7");
    assert_string_equal(trace->event[1].name, "xemm");
}

typedef struct refusal {
    const char *why;
    ckpt_event event[2];
    int count;
    ckpt_code code; /* CKPT_OK: the largest that is accepted */
} refusal;

static void test_refusals(void **state)
{
    const refusal cases[] = {
        {"nothing at all", {{0}}, 0, CKPT_OK},
        {"end before start", {run_at("r", 5, 4)}, 1, CKPT_BAD_INPUT},
        {"a negative size", {allocate_at(1, 0, -1)}, 1, CKPT_BAD_INPUT},
        {"a negative address", {allocate_at(-1, 0, 1)}, 1, CKPT_BAD_INPUT},
        {"the largest size", {allocate_at(INT64_MAX, 0, INT64_MAX)}, 1, CKPT_OK},
        {"the largest at one address twice", {allocate_at(1, 0, INT64_MAX), allocate_at(1, 1, INT64_MAX)}, 2, CKPT_OK},
        {"one byte more", {allocate_at(1, 0, INT64_MAX), allocate_at(2, 1, 1)}, 2, CKPT_OVERFLOW},
        {"the longest time", {run_at("a", -1, -1), run_at("b", 0, INT64_MAX - 1)}, 2, CKPT_OK},
        {"one more", {run_at("a", -1, -1), run_at("b", 0, INT64_MAX)}, 2, CKPT_OVERFLOW},
        {"from the least to the most", {run_at("a", INT64_MIN, INT64_MAX)}, 1, CKPT_OVERFLOW},
        {"two at the ends", {run_at("a", INT64_MAX, INT64_MAX), run_at("b", INT64_MIN, 0)}, 2, CKPT_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_trace *trace = NULL;
        ckpt_timeline_report report = {-1, -1, -1};
        ckpt_err err = {0};
        const ckpt_code code = finish(cases[i].event, cases[i].count, &arena, &trace, &report, &err);
        CHECK(code == cases[i].code, "%s: code %d, wanted %d: %s", cases[i].why, (int)code, (int)cases[i].code,
              err.msg);
        CHECK((code == CKPT_OK) == (trace != NULL) && (code == CKPT_OK) == (report.unknown_frees == 0),
              "%s: outputs set on failure, or not on success", cases[i].why);
    }
}

/* The addresses an allocator gives are multiples of its block: they must not all fall into one slot of the table, or
 * this does not end. Added from the last to the first. */
static void test_a_million_events(void **state)
{
    const int blocks = (int)ckpt_test_rounds(500000, 100000);
    CKPT_TEST_ARENA(arena);
    ckpt_timeline *timeline = NULL;
    ckpt_trace *trace = NULL;
    ckpt_timeline_report report;
    ckpt_err err = {0};
    CHECK_OK(ckpt_timeline_create(&arena, &timeline, &err), err);
    for (int64_t i = blocks - 1; i >= 0; i--) {
        const ckpt_event freed = free_at((i + 1) << 21, blocks + i), made = allocate_at((i + 1) << 21, i, 3);
        CHECK_OK(ckpt_timeline_add(timeline, &freed, CKPT_CAT_OTHER, &err), err);
        CHECK_OK(ckpt_timeline_add(timeline, &made, CKPT_CAT_OTHER, &err), err);
    }
    CHECK_OK(ckpt_timeline_finish(timeline, "many", &trace, &report, &err), err);
    assert_int_equal(trace->event_count, 2 * blocks);
    assert_int_equal(trace->peak_bytes, 3 * blocks);
    assert_int_equal(trace->peak_event, blocks - 1);
    assert_int_equal(report.left_bytes, 0);
}

/* More events and names than the first tables hold. */
static void test_what_was_at_an_address_before(void **state)
{
    static const int64_t address[] = {5, -1, 0, 5, -1, INT64_MAX, 0, 5, INT64_MAX};
    static const int wanted[] = {-1, -1, -1, 0, -1, -1, 2, 3, 5};
    enum { COUNT = sizeof wanted / sizeof wanted[0] };
    int *previous = NULL;
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    CHECK_OK(ckpt_timeline_previous(address, COUNT, &arena, &previous, &err), err);
    assert_memory_equal(previous, wanted, sizeof wanted);
    CHECK_OK(ckpt_timeline_previous(address, 0, &arena, &previous, &err), err);
}

static ckpt_code grown_and_finished(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    ckpt_timeline *timeline = NULL;
    ckpt_trace *trace = NULL;
    ckpt_timeline_report report;
    ckpt_code code = ckpt_timeline_create(arena, &timeline, err);
    for (int i = 0; i < 600 && code == CKPT_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "buffer %d", i);
        ckpt_event event = allocate_at(i, i, 8);
        event.name = name;
        code = ckpt_timeline_add(timeline, &event, CKPT_CAT_OTHER, err);
    }
    if (code == CKPT_OK) {
        code = ckpt_timeline_finish(timeline, "starved", &trace, &report, err);
    }
    return code;
}

static void test_starved(void **state)
{
    CHECK(ckpt_test_starve_arena(grown_and_finished, NULL) > 5, "it takes more than that");
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sequences),
        cmocka_unit_test(test_the_trace_can_be_read_again),
        cmocka_unit_test(test_texts_are_copied),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_million_events),
        cmocka_unit_test(test_starved),
        cmocka_unit_test(test_what_was_at_an_address_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
