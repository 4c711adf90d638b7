/* labels: unit */
/* Stays in memory, against the simulator and plain loops over random plans: bytes at every event, addresses, what they
 * were kept for, and what is said about that. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/formats/timeline.h"
#include "planner/replay/replay.h"
#include "tests/support/support_sequence.h"
#include "viz/timeline/live_ranges.h"

enum { LIVES_MAX = 1024 };

typedef struct made {
    ckpt_arena arena;
    const ckpt_graph *graph;
    ckpt_plan *plan;
    const ckpt_trace *simulated, *shown; /* the plan by the simulator, and by itself */
    ckpt_live_ranges ranges;
} made;

static void make(made *m, uint64_t seed)
{
    ckpt_err err = {0};
    char what[40];
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
    ckpt_arena_init(&m->arena);
    const ckpt_graph *const step = ckpt_test_step(&m->arena, seed, 3 + (int)(seed % 14));
    m->graph = ckpt_test_variant(step, &m->arena, seed, seed % 2 == 0, seed % 3 == 0 ? 0 : 33000000000, 20000000000);
    const ckpt_sequence sequence = ckpt_test_sequence(m->graph, &m->arena, seed);
    m->plan = ckpt_test_plan(m->graph, &sequence, &m->arena, what);
    m->plan->graph_name = m->graph->name;
    CHECK_OK(ckpt_plan_outline(m->graph, &m->arena, &m->plan->outline, &err), err);
    CHECK_OK(ckpt_plan_simulate(m->plan, m->graph, &m->arena, &m->simulated, &err), err);
    CHECK_OK(ckpt_plan_as_trace(m->plan, &m->arena, &m->shown, &err), err);
    CHECK_OK(ckpt_live_ranges_make(m->shown, &m->arena, &m->ranges, &err), err);
}

/* What a live range is of, by its name alone. */
static ckpt_category category_of(const made *m, const ckpt_live_range *range)
{
    if (range->kind == CKPT_LIVE_WORKSPACE) {
        return CKPT_CAT_WORKSPACE;
    }
    const int b = ckpt_graph_find_buffer(m->graph, range->name);
    CHECK(b >= 0, "a live range of \"%s\", which is no buffer", range->name);
    return ckpt_kind_category(m->graph->buffer[b].kind);
}

/* In memory after event `at`: what that event frees no longer is. */
static bool is_after(const ckpt_live_ranges *ranges, const ckpt_live_range *range, int at)
{
    const ckpt_event *const event = &ranges->trace->event[at];
    const bool frees = event->span == CKPT_SPAN_FREE || event->span == CKPT_SPAN_WAIT;
    const bool its_own =
        ranges->trace->allocation_count > 0 ? strcmp(event->name, range->name) == 0 : event->address == range->address;
    const bool freed = range->to == at && frees && its_own;
    return range->from <= at && at <= range->to && !freed;
}

static void no_two_overlap(const ckpt_live_ranges *ranges)
{
    for (int i = 0; i < ranges->count; i++) {
        const ckpt_live_range *const a = &ranges->range[i];
        assert_true(a->offset >= 0 && a->offset + a->bytes <= ranges->top);
        for (int k = i + 1; k < ranges->count; k++) {
            const ckpt_live_range *const b = &ranges->range[k];
            assert_true(a->from < b->from || (a->from == b->from && a->offset <= b->offset));
            CHECK(a->to < b->from || b->to < a->from || a->offset + a->bytes <= b->offset ||
                      b->offset + b->bytes <= a->offset,
                  "%s and %s are at the same place at the same time", a->name, b->name);
        }
    }
}

/* Largest first, of equal ones the first: by choosing the largest that is left. */
static void check_at(const ckpt_live_ranges *ranges, int at, int room)
{
    static bool taken[LIVES_MAX];
    static int which[LIVES_MAX];
    int count = -1, there = 0;
    ckpt_bytes bytes = -1, sum = 0;
    ckpt_live_ranges_at(ranges, at, which, room, &count, &bytes);
    assert_true(ranges->count <= LIVES_MAX);
    for (int i = 0; i < ranges->count; i++) {
        taken[i] = !(ranges->range[i].from <= at && at <= ranges->range[i].to);
        there += !taken[i];
        sum += taken[i] ? 0 : ranges->range[i].bytes;
    }
    assert_int_equal(count, there);
    assert_int_equal(bytes, sum);
    for (int k = 0; k < there && k < room; k++) {
        int largest = -1;
        for (int i = 0; i < ranges->count; i++) {
            if (!taken[i] && (largest < 0 || ranges->range[i].bytes > ranges->range[largest].bytes)) {
                largest = i;
            }
        }
        taken[largest] = true;
        CHECK(which[k] == largest, "event %d, number %d of %d: %d, wanted %d", at, k, there, which[k], largest);
    }
}

static void stays_are_what_is_in_memory(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        made m;
        make(&m, seed);
        assert_int_equal(m.ranges.count, m.plan->allocation_count);
        no_two_overlap(&m.ranges);
        ckpt_bytes fixed[CKPT_CATEGORY_COUNT] = {0};
        for (int i = 0; i < m.graph->static_count; i++) {
            fixed[ckpt_static_category(m.graph->statics[i].name)] += m.graph->statics[i].bytes;
        }
        for (int e = 0; e < m.shown->event_count; e++) {
            ckpt_bytes sum[CKPT_CATEGORY_COUNT];
            memcpy(sum, fixed, sizeof sum);
            for (int i = 0; i < m.ranges.count; i++) {
                if (is_after(&m.ranges, &m.ranges.range[i], e)) {
                    sum[category_of(&m, &m.ranges.range[i])] += m.ranges.range[i].bytes;
                }
            }
            for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
                CHECK(sum[c] == m.simulated->event[e].bytes[c],
                      "seed %llu, event %d: live ranges of %lld bytes of %s, %lld", (unsigned long long)seed, e,
                      (long long)sum[c], ckpt_category_name((ckpt_category)c),
                      (long long)m.simulated->event[e].bytes[c]);
            }
            check_at(&m.ranges, e, (int)(seed % 5) * 7);
        }
        ckpt_arena_fini(&m.arena);
    }
}

static bool lists(const ckpt_list *list, int buffer)
{
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* The last step of the live range whose op reads, adds to or writes the buffer, the one that writes over it included. */
static int last_use(const made *m, const ckpt_live_range *range, int buffer)
{
    int last = -1;
    for (int s = range->from; s <= range->to + 1 && s < m->plan->step_count; s++) {
        const ckpt_step *const step = &m->plan->step[s];
        const ckpt_graph_op *const op = step->kind == CKPT_RUN ? &m->graph->op[step->target] : NULL;
        bool takes = false;
        for (int p = 0; op != NULL && step->inplace && p < op->inplace_count; p++) {
            takes = takes || op->inplace[p].in == buffer;
        }
        if (op != NULL && (s <= range->to || takes) &&
            (lists(&op->reads, buffer) || lists(&op->adds, buffer) || lists(&op->writes, buffer))) {
            last = s;
        }
    }
    return last;
}

/* Kinds, births, and that what is called the last use is one. */
static void stays_have_true_reasons(void **state)
{
    int count[CKPT_LIVE_KIND_COUNT] = {0}, outputs = 0, taken = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        made m;
        make(&m, seed);
        for (int i = 0; i < m.ranges.count; i++) {
            const ckpt_live_range *const range = &m.ranges.range[i];
            const ckpt_step *const born = &m.plan->step[range->born];
            count[range->kind]++;
            assert_int_equal(range->born, range->from);
            if (range->kind == CKPT_LIVE_WORKSPACE) {
                assert_true(range->last == range->from && range->to == range->from);
                assert_string_equal(range->name, born->name);
                continue;
            }
            const int b = ckpt_graph_find_buffer(m.graph, range->name);
            int copied = -1;
            for (int s = range->to; s >= range->from; s--) {
                copied = m.plan->step[s].kind == CKPT_OFFLOAD && m.plan->step[s].target == b ? s : copied;
            }
            assert_int_equal(range->copied, copied);
            const ckpt_kind kind = m.graph->buffer[b].kind;
            const bool remade = born->recomputed && kind != CKPT_GRADIENT;
            const bool away = born->kind == CKPT_FETCH || (copied >= 0 && !remade);
            CHECK(range->kind == (away                      ? CKPT_LIVE_OFFLOADED
                                  : kind == CKPT_GRADIENT   ? CKPT_LIVE_GRADIENT
                                  : remade                  ? CKPT_LIVE_RECOMPUTED
                                  : kind == CKPT_ACTIVATION ? CKPT_LIVE_ACTIVATION
                                                            : CKPT_LIVE_SAVED),
                  "seed %llu: %s from step %d is called %s", (unsigned long long)seed, range->name, range->from,
                  ckpt_live_range_kind_name(range->kind));
            const ckpt_step *const end = &m.plan->step[range->to];
            const bool stays =
                range->to == m.plan->step_count - 1 && !(end->kind == CKPT_FREE && strcmp(end->name, range->name) == 0);
            outputs += stays;
            taken += range->last > range->to;
            if (stays) {
                assert_int_equal(range->last, -1);
            } else if (copied < 0) {
                CHECK(range->last == last_use(&m, range, b), "seed %llu: %s, steps %d to %d: last run %d, last use %d",
                      (unsigned long long)seed, range->name, range->from, range->to, range->last,
                      last_use(&m, range, b));
            }
        }
        ckpt_arena_fini(&m.arena);
    }
    for (int k = 0; k < CKPT_LIVE_OTHER; k++) {
        CHECK(count[k] > 50, "only %d live ranges are of kind %s", count[k],
              ckpt_live_range_kind_name((ckpt_live_range_kind)k));
    }
    CHECK(outputs > 50 && taken > 50, "%d stay to the end, %d are written over", outputs, taken);
}

/* A step by hand. */
enum { EVENTS = 16 };
static const ckpt_event by_hand[EVENTS] = {
    {.step = 0, .name = "a/forward", .layer = "a", .stream = "compute", .span = CKPT_SPAN_FORWARD},
    {.step = 1, .name = "b/forward", .layer = "b", .stream = "compute", .span = CKPT_SPAN_FORWARD},
    {.step = 2, .name = "b", .layer = "b", .stream = "d2h", .span = CKPT_SPAN_COPY},
    {.step = 3, .name = "c/forward", .layer = "c", .stream = "compute", .span = CKPT_SPAN_FORWARD},
    {.step = 4, .name = "b", .layer = "b", .stream = "compute", .span = CKPT_SPAN_WAIT},
    {.step = 5, .name = "d/forward", .layer = "d", .stream = "compute", .span = CKPT_SPAN_FORWARD},
    {.step = 6, .name = "c", .layer = "c", .stream = "compute", .span = CKPT_SPAN_FREE},
    {.step = 7, .name = "b", .layer = "b", .stream = "h2d", .span = CKPT_SPAN_COPY},
    {.step = 8, .name = "d/backward", .layer = "d", .stream = "compute", .span = CKPT_SPAN_BACKWARD},
    {.step = 9, .name = "c/forward", .layer = "c", .stream = "compute", .span = CKPT_SPAN_RECOMPUTE},
    {.step = 10, .name = "b", .layer = "b", .stream = "compute", .span = CKPT_SPAN_FREE},
    {.step = 11, .name = "c/backward", .layer = "c", .stream = "compute", .span = CKPT_SPAN_BACKWARD},
    {.step = 12, .name = "c", .layer = "c", .stream = "compute", .span = CKPT_SPAN_FREE},
    {.step = 13, .name = "a/backward", .layer = "a", .stream = "compute", .span = CKPT_SPAN_BACKWARD},
    {.step = 14, .name = "a", .layer = "a", .stream = "compute", .span = CKPT_SPAN_FREE},
    {.step = 15, .name = "g", .layer = "c", .stream = "compute", .span = CKPT_SPAN_FREE},
};
static const ckpt_trace_allocation places_by_hand[] = {
    {"a", CKPT_CAT_SAVED, 0, 14, 0, 64},           {"workspace", CKPT_CAT_WORKSPACE, 1, 1, 512, 8},
    {"b", CKPT_CAT_ACTIVATIONS, 1, 4, 64, 64},     {"c", CKPT_CAT_ACTIVATIONS, 3, 6, 128, 64},
    {"loss", CKPT_CAT_ACTIVATIONS, 5, 15, 256, 4}, {"b", CKPT_CAT_ACTIVATIONS, 7, 10, 64, 64},
    {"f", CKPT_CAT_GRADIENTS, 8, 10, 320, 32},     {"c", CKPT_CAT_ACTIVATIONS, 9, 12, 128, 64},
    {"g", CKPT_CAT_GRADIENTS, 11, 15, 320, 32},    {"e", CKPT_CAT_GRADIENTS, 11, 12, 400, 32},
};
enum { PLACES = sizeof places_by_hand / sizeof places_by_hand[0] };
static const ckpt_trace trace_by_hand = {
    .source = "hand",
    .event = by_hand,
    .event_count = EVENTS,
    .allocation = places_by_hand,
    .allocation_count = PLACES,
};

static void reasons_say_what_happens(void **state)
{
    static const char *const wanted[PLACES] = {
        "saved a: kept since step 0 for a/backward (step 13)",
        "offloaded b: copied to the host from step 2 and freed at step 4",
        "workspace b/forward: scratch of b/forward while it runs",
        "activation c: in use until d/forward (step 5)",
        "activation loss: an output: stays to the end",
        "offloaded b: fetched back at step 7 to recompute c/forward (step 9)",
        "gradient f: passed back to c/backward (step 11)",
        "recomputed c: recomputed at step 9 for c/backward (step 11)",
        "gradient g: passed back to a/backward (step 13)",
        "gradient e: passed back to a/backward (step 13)",
    };
    CKPT_TEST_ARENA(arena);
    ckpt_live_ranges ranges;
    ckpt_err err = {0};
    CHECK_OK(ckpt_live_ranges_make(&trace_by_hand, &arena, &ranges, &err), err);
    assert_int_equal(ranges.count, PLACES);
    assert_int_equal(ranges.top, 520);
    for (int i = 0; i < PLACES; i++) {
        char got[200];
        snprintf(got, sizeof got, "%s %s: %s", ckpt_live_range_kind_name(ranges.range[i].kind), ranges.range[i].name,
                 ckpt_live_range_reason(&ranges, i, &arena));
        assert_string_equal(got, wanted[i]);
    }
}

/* One buffer from event `from` to event 3, and what happens between. */
static ckpt_live_range stay_from(int from, const ckpt_event *event, int count)
{
    const ckpt_trace_allocation allocation = {"x", CKPT_CAT_ACTIVATIONS, from, 3, 0, 8};
    const ckpt_trace trace = {
        .source = "hand", .event = event, .event_count = count, .allocation = &allocation, .allocation_count = 1};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_live_ranges ranges;
    ckpt_err err = {0};
    CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
    const ckpt_live_range range = ranges.range[0];
    ckpt_arena_fini(&arena);
    return range;
}

static ckpt_live_range range_of(const ckpt_event *event, int count)
{
    return stay_from(0, event, count);
}

/* What counts as a run, a free and a copy. */
static void ends_of_a_stay(void **state)
{
    ckpt_event event[] = {
        {.step = 0, .name = "a", .stream = "compute", .span = CKPT_SPAN_FORWARD},
        {.step = 1, .name = "b", .stream = "compute", .span = CKPT_SPAN_FORWARD},
        {.step = 2, .name = "c", .stream = "compute", .span = CKPT_SPAN_FREE},
        {.step = 3, .name = "x", .stream = "compute", .span = CKPT_SPAN_FREE},
        {.step = 4, .name = "x", .stream = "d2h", .span = CKPT_SPAN_COPY},
    };
    for (int span = CKPT_SPAN_FORWARD; span <= CKPT_SPAN_OTHER; span++) {
        event[1].span = (ckpt_span)span;
        const bool run = span != CKPT_SPAN_WAIT && span != CKPT_SPAN_FREE && span != CKPT_SPAN_ALLOCATE;
        CHECK(range_of(event, 5).last == (run ? 1 : 0), "%s on the compute stream", ckpt_span_name((ckpt_span)span));
    }
    event[1] = (ckpt_event){.step = 1, .name = "y", .stream = "d2h", .span = CKPT_SPAN_COPY};
    assert_true(range_of(event, 5).last == 0 &&
                range_of(event, 5).copied == -1); /* nor does one that starts when it is gone */
    event[1].name = event[2].name = "x";
    event[2] = event[1];
    event[2].step = 2;
    assert_true(range_of(event, 5).copied == 1 && range_of(event, 5).kind == CKPT_LIVE_OFFLOADED);
    event[1].span = event[2].span = CKPT_SPAN_FREE;
    assert_int_equal(range_of(event, 5).last, 0);
    for (int wait = 0; wait < 2; wait++) { /* as the trace's last event too */
        event[3].span = wait ? CKPT_SPAN_WAIT : CKPT_SPAN_FREE;
        assert_int_equal(range_of(event, 4).last, 0);
    }
    event[3].name = "z";
    assert_int_equal(range_of(event, 4).last, -1);
    event[3].name = "x";
    event[1].stream = "h2d"; /* fetched, and no run after that */
    event[1].span = CKPT_SPAN_COPY;
    const ckpt_live_range fetched = stay_from(1, event, 4);
    assert_true(fetched.last == -1 && fetched.kind == CKPT_LIVE_OFFLOADED && fetched.born == 1);
}

/* Blocks of a program without a plan: how many events, and whether frees may be missing. */
static const ckpt_trace *allocations(ckpt_arena *arena, uint64_t seed, int events, int blocks)
{
    ckpt_err err = {0};
    ckpt_timeline *timeline = NULL;
    ckpt_trace *trace = NULL;
    ckpt_timeline_report report;
    ckpt_dice dice = {seed};
    bool *const there = CKPT_NEW(arena, bool, blocks);
    CHECK_OK(ckpt_timeline_create(arena, &timeline, &err), err);
    for (int i = 0; i < events; i++) {
        const int b = ckpt_dice_roll(&dice, blocks);
        const bool lost = there[b] && ckpt_dice_roll(&dice, 20) == 0;
        const int what = ckpt_dice_roll(&dice, 4);
        there[b] = what == 0 ? there[b] : !there[b] || lost;
        const ckpt_event event = {
            .name = what == 0  ? "kernel"
                    : there[b] ? "malloc"
                               : "free",
            .layer = b % 2 == 0 ? "left" : "",
            .span = what == 0  ? CKPT_SPAN_OTHER
                    : there[b] ? CKPT_SPAN_ALLOCATE
                               : CKPT_SPAN_FREE,
            .start_ns = i,
            .end_ns = i,
            /* far apart, and some that touch */
            .address = what == 0 ? 0 : INT64_C(0x7f0000000000) + (b / 4) * (INT64_C(1) << 32) + (b % 4) * 4096,
            .size_bytes = there[b] ? 1 + ckpt_dice_roll(&dice, 4096) : 0,
        };
        CHECK_OK(ckpt_timeline_add(timeline, &event, CKPT_CAT_OTHER, &err), err);
    }
    CHECK_OK(ckpt_timeline_finish(timeline, "train", &trace, &report, &err), err);
    return trace;
}

static void blocks_without_a_plan(void **state)
{
    int closed = 0, lost = 0, never = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_live_ranges ranges;
        const ckpt_trace *const trace = allocations(&arena, seed, 200, 20);
        CHECK_OK(ckpt_live_ranges_make(trace, &arena, &ranges, &err), err);
        no_two_overlap(&ranges);
        for (int e = 0; e < trace->event_count; e++) {
            ckpt_bytes sum = 0;
            for (int i = 0; i < ranges.count; i++) {
                sum += is_after(&ranges, &ranges.range[i], e) ? ranges.range[i].bytes : 0;
            }
            CHECK(sum == trace->event[e].bytes[CKPT_CAT_OTHER], "seed %llu, event %d: %lld bytes",
                  (unsigned long long)seed, e, (long long)sum);
            check_at(&ranges, e, 5);
        }
        for (int i = 0; i < ranges.count; i++) {
            const ckpt_live_range *const a = &ranges.range[i];
            assert_true(a->kind == CKPT_LIVE_OTHER && a->born == a->from && a->last == -1);
            /* Nothing below an offset is used by nobody: it is the bytes that some block covers below the address. */
            ckpt_bytes below = 0;
            for (int64_t base = 0x7f0000000000; base <= a->address; base += INT64_C(1) << 32) {
                static bool used[4 * 4096];
                memset(used, 0, sizeof used);
                for (int k = 0; k < ranges.count; k++) {
                    const int64_t from = ranges.range[k].address - base;
                    for (int64_t x = from; from >= 0 && x < from + ranges.range[k].bytes && x < 4 * 4096; x++) {
                        used[x] = true;
                    }
                }
                for (int64_t x = 0; x < 4 * 4096 && base + x < a->address; x++) {
                    below += used[x];
                }
            }
            CHECK(a->offset == below, "seed %llu: offset %lld, %lld used below", (unsigned long long)seed,
                  (long long)a->offset, (long long)below);
            const char *const reason = ckpt_live_range_reason(&ranges, i, &arena);
            assert_ptr_equal(
                strstr(reason, a->layer[0] != '\0' ? "allocated by malloc in left, " : "allocated by malloc, "),
                reason);
            const ckpt_event *const end = &trace->event[a->to];
            const bool freed = end->span == CKPT_SPAN_FREE && end->address == a->address;
            closed += freed && strstr(reason, "freed at event ") != NULL && atoi(strstr(reason, "event ") + 6) == a->to;
            never += !freed && a->to == trace->event_count - 1 && strstr(reason, "never freed") != NULL;
            lost += !freed && a->to < trace->event_count - 1 && strstr(reason, "not recorded") != NULL;
        }
        closed -= ranges.count;
    }
    assert_int_equal(closed + lost + never, 0); /* every live range has one of the three */
    CHECK(lost > 20 && never > 100, "%d frees lost, %d blocks stay", lost, never);
}

/* What does not say where it is has no place in a map. */
static void blocks_without_an_address(void **state)
{
    static const ckpt_event event[] = {
        {.step = 0, .name = "m", .layer = "", .span = CKPT_SPAN_ALLOCATE, .size_bytes = 8},
        {.step = 1, .name = "m", .layer = "", .span = CKPT_SPAN_ALLOCATE, .size_bytes = 9, .address = 64},
        {.step = 2, .name = "f", .layer = "", .span = CKPT_SPAN_FREE},
    };
    const ckpt_trace trace = {.source = "hand", .event = event, .event_count = 3};
    CKPT_TEST_ARENA(arena);
    ckpt_live_ranges ranges;
    ckpt_err err = {0};
    CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
    assert_true(ranges.count == 1 && ranges.range[0].bytes == 9 && ranges.range[0].to == 2 &&
                ranges.range[0].offset == 0);
}

/* Without a plan the kind is that of the category that grew by the block's size, whatever else changed. */
static void kinds_without_a_plan(void **state)
{
    static const ckpt_live_range_kind kind[CKPT_CATEGORY_COUNT] = {
        CKPT_LIVE_OTHER, CKPT_LIVE_GRADIENT,  CKPT_LIVE_OTHER, CKPT_LIVE_OTHER, CKPT_LIVE_ACTIVATION,
        CKPT_LIVE_SAVED, CKPT_LIVE_WORKSPACE, CKPT_LIVE_OTHER, CKPT_LIVE_OTHER, CKPT_LIVE_OTHER,
    };
    ckpt_event event[2 * CKPT_CATEGORY_COUNT];
    ckpt_bytes bytes[CKPT_CATEGORY_COUNT] = {0};
    for (int i = 0; i < 2 * CKPT_CATEGORY_COUNT; i++) {
        const int c = i / 2;
        bytes[c] += 100;
        for (int k = 0; k < CKPT_CATEGORY_COUNT && i % 2 == 1; k++) {
            bytes[k] += k == c ? 0 : k < c ? 7 : 3; /* others grow at the same time */
        }
        event[i] = (ckpt_event){.step = i,
                                .name = "m",
                                .layer = "",
                                .stream = "compute",
                                .span = CKPT_SPAN_ALLOCATE,
                                .size_bytes = 100,
                                .address = 4096 * (i + 1)};
        memcpy(event[i].bytes, bytes, sizeof bytes);
    }
    const ckpt_trace trace = {.source = "kinds", .event = event, .event_count = 2 * CKPT_CATEGORY_COUNT};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_live_ranges ranges;
    CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
    assert_int_equal(ranges.count, 2 * CKPT_CATEGORY_COUNT);
    for (int i = 0; i < ranges.count; i++) {
        CHECK(ranges.range[i].kind == kind[i / 2], "block %d, of %s, is \"%s\"", i,
              ckpt_category_name((ckpt_category)(i / 2)), ckpt_live_range_kind_name(ranges.range[i].kind));
    }
}

/* As many as there are: the work must not grow as their square, or this takes minutes. */
static void many_events(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_live_ranges ranges;
    ckpt_bytes bytes = 0;
    int count = 0;
    const ckpt_trace *const trace = allocations(&arena, 1, 200000, 50000);
    CHECK_OK(ckpt_live_ranges_make(trace, &arena, &ranges, &err), err);
    int *const which = CKPT_NEW(&arena, int, ranges.count);
    ckpt_live_ranges_at(&ranges, trace->peak_event, which, ranges.count, &count, &bytes);
    assert_true(bytes == trace->peak_bytes);
    for (int i = 1; i < count; i++) {
        assert_true(ranges.range[which[i - 1]].bytes >= ranges.range[which[i]].bytes);
    }
}

static void refused(const ckpt_trace *trace, const char *words)
{
    CKPT_TEST_ARENA(arena);
    ckpt_live_ranges ranges;
    ckpt_err err = {0};
    assert_int_equal(ckpt_live_ranges_make(trace, &arena, &ranges, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, words) != NULL, "\"%s\" does not say \"%s\"", err.msg, words);
}

static void bad_traces(void **state)
{
    ckpt_trace trace = trace_by_hand;
    trace.event_count = 13;
    refused(&trace, "hand: allocation 0 (\"a\") is from step 0 to step 14, and the trace has no such steps");
    ckpt_event event[EVENTS];
    memcpy(event, by_hand, sizeof event);
    trace.event = event;
    trace.event_count = EVENTS;
    event[14].step = 15;
    refused(&trace, "allocation 0 (\"a\") is from step 0 to step 14");
    event[14].step = 3;
    refused(&trace, "hand: event 14 is of step 3, behind one of step 13");
    memcpy(event, by_hand, sizeof event);
    event[0].step = -1;
    refused(&trace, "allocation 0");
    const ckpt_trace_allocation turned = {"a", CKPT_CAT_SAVED, 9, 3, 0, 1};
    trace.event = by_hand;
    trace.allocation = &turned;
    trace.allocation_count = 1;
    refused(&trace, "from step 9 to step 3");
    /* No allocations: nothing is known, and that is no error. */
    CKPT_TEST_ARENA(arena);
    ckpt_live_ranges ranges = {.count = 7};
    ckpt_err err = {0};
    trace.allocation_count = 0;
    CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
    int count = -1;
    ckpt_bytes bytes = -1;
    ckpt_live_ranges_at(&ranges, 0, NULL, 0, &count, &bytes);
    assert_true(ranges.count == 0 && ranges.top == 0 && count == 0 && bytes == 0);
}

static ckpt_code all_anew(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const made *const m = context;
    const ckpt_trace *trace = NULL;
    ckpt_live_ranges ranges;
    ckpt_code code = ckpt_plan_as_trace(m->plan, arena, &trace, err);
    code = code == CKPT_OK ? ckpt_live_ranges_make(trace, arena, &ranges, err) : code;
    for (int i = 0; code == CKPT_OK && i < ranges.count; i++) {
        code = ckpt_live_range_reason(&ranges, i, arena) == NULL ? CKPT_FAIL(err, CKPT_NO_MEMORY, "a reason") : CKPT_OK;
    }
    return code == CKPT_OK ? ckpt_live_ranges_make(m->simulated, arena, &ranges, err) : code;
}

static void starved(void **state)
{
    made m;
    make(&m, 13);
    ckpt_arena blocks;
    ckpt_arena_init(&blocks);
    m.simulated = allocations(&blocks, 3, 5000, 100);
    assert_true(ckpt_test_starve_arena(all_anew, &m) > 1);
    ckpt_arena_fini(&blocks);
    ckpt_arena_fini(&m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_are_what_is_in_memory),
        cmocka_unit_test(stays_have_true_reasons),
        cmocka_unit_test(reasons_say_what_happens),
        cmocka_unit_test(ends_of_a_stay),
        cmocka_unit_test(blocks_without_a_plan),
        cmocka_unit_test(blocks_without_an_address),
        cmocka_unit_test(kinds_without_a_plan),
        cmocka_unit_test(many_events),
        cmocka_unit_test(bad_traces),
        cmocka_unit_test(starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
