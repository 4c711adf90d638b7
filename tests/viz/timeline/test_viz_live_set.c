/* labels: unit */
/* The table of what is alive and why: names of repeated blocks, rows against plain counts over random steps, words by
 * hand, and the table drawn at many widths. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "planner/replay/replay.h"
#include "tests/support/support_sequence.h"
#include "viz/timeline/live_ranges_impl.h"
#include "viz/timeline/view_live_set.h"

enum { BLOCKS = 6, ROLES = 4, EVENTS = BLOCKS * ROLES + BLOCKS + 2 };

/* Blocks of a network, each of ROLES buffers that live until its backward, and a scratch at the turn. */
typedef struct blocks {
    ckpt_arena arena;
    ckpt_event event[EVENTS];
    ckpt_trace_allocation allocation[BLOCKS * ROLES + 1];
    ckpt_trace trace;
    ckpt_live_ranges ranges;
} blocks;

static void make(blocks *b, const char *format, ckpt_bytes first_bytes)
{
    static const char *const role[ROLES] = {"ln", "att", "fc1", "fc2"};
    ckpt_err err = {0};
    ckpt_arena_init(&b->arena);
    int at = 0, allocations = 0;
    for (int i = 0; i < BLOCKS; i++) {
        for (int r = 0; r < ROLES; r++) {
            char name[40];
            snprintf(name, sizeof name, format, i, role[r]);
            const char *const layer = ckpt_arena_text(&b->arena, name);
            b->allocation[allocations++] = (ckpt_trace_allocation){.name = layer,
                                                                   .category = CKPT_CAT_ACTIVATIONS,
                                                                   .from = at,
                                                                   .to = EVENTS - 2 - i,
                                                                   .offset = at * 1000000,
                                                                   .bytes = first_bytes + r};
            b->event[at] = (ckpt_event){.step = at,
                                        .name = ckpt_arena_format(&b->arena, "%s/forward", name),
                                        .layer = layer,
                                        .stream = "compute",
                                        .span = CKPT_SPAN_FORWARD};
            at++;
        }
    }
    b->allocation[allocations++] = (ckpt_trace_allocation){"workspace", CKPT_CAT_WORKSPACE, at, at, 0, 5 * first_bytes};
    b->event[at] =
        (ckpt_event){.step = at, .name = "loss", .layer = "", .stream = "compute", .span = CKPT_SPAN_FORWARD};
    for (at++; at < EVENTS; at++) {
        char name[40];
        snprintf(name, sizeof name, format, EVENTS - 1 - at, "all");
        b->event[at] = (ckpt_event){.step = at,
                                    .name = ckpt_arena_format(&b->arena, "%s/backward", name),
                                    .layer = "",
                                    .stream = "compute",
                                    .span = CKPT_SPAN_BACKWARD};
    }
    b->trace = (ckpt_trace){.source = "blocks",
                            .event = b->event,
                            .event_count = EVENTS,
                            .allocation = b->allocation,
                            .allocation_count = allocations,
                            .peak_event = BLOCKS * ROLES};
    CHECK_OK(ckpt_live_ranges_make(&b->trace, &b->arena, &b->ranges, &err), err);
}

static void names_of_blocks(void **state)
{
    static const struct {
        const char *name[3], *pattern, *fold, *deep_pattern, *deep_fold;
    } table[] = {
        {{"h.0.att", "h.5.att", "h.3.att"}, "h.#.att", "h.0…5.att", "h.#.att", "h.0…5.att"},
        {{"h.9.ln1/mean", "h.10.ln1/mean", "h.011.ln1/mean"},
         "h.#.ln1/mean",
         "h.9…11.ln1/mean",
         "h.#.ln#/mean",
         "h.9…11.ln1/mean"},
        {{"a.7.b.2", "a.7.b.3", "a.7.b.2"}, "a.#.b.#", "a.7.b.2,3", "a.#.b.#", "a.7.b.2,3"},
        {{"a.3", "a.0", "a.3"}, "a.#", "a.0,3", "a.#", "a.0,3"},
        {{"7", "12", "100"}, "#", "7…100", "#", "7…100"},
        {{"a:12", "a:12", "a:12"}, "a:12", "a:12", "a:12", "a:12"},
        {{"a:1", "a:1", "a:1"}, "a:1", "a:1", "a:1", "a:1"},
        {{"a.0:1", "a.1:1", "a.2:1"}, "a.0:1", NULL, "a.#:1", "a.0…2:1"},
        {{"down0_conv1", "down3_conv2", "down1_conv1"}, "down0_conv1", NULL, "down#_conv#", "down0…3_conv1,2"},
        {{"", "", ""}, "", "", "", ""},
        {{"/1//", "/2//", "/3//"}, "/#//", "/1…3//", "/#//", "/1…3//"},
        {{"x99999999999999999999", "x99999999999999999998", "x3"},
         "x99999999999999999999",
         NULL,
         "x#",
         "x3…99999999999999999999"},
    };
    CKPT_TEST_ARENA(arena);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_string_equal(ckpt_name_pattern(table[i].name[0], false, &arena), table[i].pattern);
        assert_string_equal(ckpt_name_pattern(table[i].name[0], true, &arena), table[i].deep_pattern);
        if (table[i].fold != NULL) {
            assert_string_equal(ckpt_name_fold(table[i].name, 3, false, &arena), table[i].fold);
        }
        assert_string_equal(ckpt_name_fold(table[i].name, 3, true, &arena), table[i].deep_fold);
        assert_string_equal(ckpt_name_fold(table[i].name, 1, true, &arena), table[i].name[0]);
    }
}

static void row_is(const ckpt_live_set_row *row, const char *name, int count, const char *reason)
{
    assert_string_equal(row->name, name);
    assert_int_equal(row->count, count);
    assert_string_equal(row->reason, reason);
}

static void blocks_are_told_together(void **state)
{
    blocks b;
    ckpt_err err = {0};
    ckpt_live_set alive;
    make(&b, "h.%d.%s", 1000);
    /* All have room: each its own, largest first. */
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 25, &b.arena, &alive, &err), err);
    assert_int_equal(alive.row_count, 25);
    row_is(&alive.row[0], "loss", 1, "scratch of loss while it runs");
    row_is(&alive.row[1], "h.0.fc2", 1, "kept since step 3 for h.0.all/backward (step 31)");
    /* They have not: a row for each role. */
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 10, &b.arena, &alive, &err), err);
    assert_int_equal(alive.row_count, 5);
    row_is(&alive.row[0], "h.0…5.fc2", 6, "kept for h.0…5.all/backward, steps 26 to 31");
    row_is(&alive.row[3], "h.0…5.ln", 6, "kept for h.0…5.all/backward, steps 26 to 31");
    row_is(&alive.row[4], "loss", 1, "scratch of loss while it runs");
    assert_int_equal(alive.rest_count, 0);
    /* Layers that differ have no name; what is less than a thousandth has no row. */
    b.event[0].layer = "p";
    b.allocation[BLOCKS * ROLES].bytes = 9;
    CHECK_OK(ckpt_live_ranges_make(&b.trace, &b.arena, &b.ranges, &err), err);
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 10, &b.arena, &alive, &err), err);
    assert_true(alive.row_count == 4 && alive.rest_count == 1 && alive.rest_bytes == 9);
    assert_string_equal(alive.row[3].name, "h.0…5.ln");
    assert_string_equal(alive.row[3].layer, "");
    assert_string_equal(alive.row[2].layer, "h.0…5.att");
    b.event[0].layer = "h.0.ln";
    b.allocation[BLOCKS * ROLES].bytes = 5000;
    CHECK_OK(ckpt_live_ranges_make(&b.trace, &b.arena, &b.ranges, &err), err);
    /* Not even these: all that differs in numbers. fc1 and fc2 are one then. */
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 1, &b.arena, &alive, &err), err);
    assert_int_equal(alive.row_count, 1);
    row_is(&alive.row[0], "h.0…5.fc1,2", 12, "kept for h.0…5.all/backward, steps 26 to 31");
    assert_string_equal(alive.row[0].layer, "h.0…5.fc1,2");
    assert_int_equal(alive.rest_count, 13);
    assert_true(alive.rest_bytes == 6006 + 6000 + 5000);
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 0, &b.arena, &alive, &err), err);
    assert_true(alive.row_count == 0 && alive.rest_count == 25 && alive.rest_bytes == alive.bytes);
    ckpt_arena_fini(&b.arena);
    /* Numbers inside of words count where there are no others. */
    make(&b, "down%d_%s", 1000);
    CHECK_OK(ckpt_live_set_make(&b.ranges, b.trace.peak_event, 5, &b.arena, &alive, &err), err);
    row_is(&alive.row[0], "down0…5_fc1,2", 12, "kept for down0…5_all/backward, steps 26 to 31");
    ckpt_arena_fini(&b.arena);
}

/* One row for each live range while that leaves out a fifth or less; then those that differ in numbers that stand alone, and
 * where these explain less than a third, in any. */
static void how_much_rows_explain(void **state)
{
    static const struct {
        int ranges, rows;
        const char *format, *first;
    } table[] = {
        {10, 8, "a.%d", "a.0"},     {9, 7, "a.%d", "a.0…8"},  {40, 32, "a.%d", "a.0"},
        {39, 31, "a.%d", "a.0…38"}, {3, 1, "t%d", "t0"},      {4, 1, "t%d", "t0…3"},
        {30, 10, "t%d", "t0"},      {31, 10, "t%d", "t0…30"}, {40, 31, "t%d", "t0"},
    };
    enum { MOST = 40 };
    const ckpt_event event = {.name = "a", .layer = "", .stream = "compute", .span = CKPT_SPAN_FORWARD};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ckpt_trace_allocation allocation[MOST];
        char name[MOST][16];
        for (int k = 0; k < table[i].ranges; k++) {
            snprintf(name[k], sizeof name[k], table[i].format, k);
            allocation[k] = (ckpt_trace_allocation){
                .name = name[k], .category = CKPT_CAT_ACTIVATIONS, .offset = 700 * k, .bytes = 700};
        }
        const ckpt_trace trace = {
            .event = &event, .event_count = 1, .allocation = allocation, .allocation_count = table[i].ranges};
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_live_ranges ranges;
        ckpt_live_set alive;
        CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
        CHECK_OK(ckpt_live_set_make(&ranges, 0, table[i].rows, &arena, &alive, &err), err);
        CHECK(strcmp(alive.row[0].name, table[i].first) == 0, "%d of %d: \"%s\", wanted \"%s\"", table[i].rows,
              table[i].ranges, alive.row[0].name, table[i].first);
    }
}

/* Without a plan: together when name, layer and size are alike, and where that is not enough, name and layer. */
static void blocks_without_a_plan(void **state)
{
    ckpt_event event[40];
    for (int i = 0; i < 40; i++) {
        event[i] = (ckpt_event){.step = i,
                                .name = "malloc",
                                .layer = i % 4 == 0 ? "a" : "b",
                                .stream = "compute",
                                .span = CKPT_SPAN_ALLOCATE,
                                .size_bytes = i % 4 == 0 ? 1100 : 1000 + i % 4 * 20,
                                .address = 4096 * (i + 1)};
    }
    const ckpt_trace trace = {.source = "hand", .event = event, .event_count = 40, .peak_event = 39};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_live_ranges ranges;
    ckpt_live_set alive;
    CHECK_OK(ckpt_live_ranges_make(&trace, &arena, &ranges, &err), err);
    CHECK_OK(ckpt_live_set_make(&ranges, 39, 3, &arena, &alive, &err), err);
    assert_int_equal(alive.row_count, 3);
    assert_true(alive.row[0].bytes == 11000 && alive.row[1].bytes == 10600 && alive.row[2].bytes == 10400);
    row_is(&alive.row[0], "malloc", 10, "never freed");
    assert_string_equal(alive.row[0].layer, "a");
    CHECK_OK(ckpt_live_set_make(&ranges, 39, 1, &arena, &alive, &err), err);
    assert_true(alive.row_count == 1 && alive.rest_count == 10 && alive.row[0].bytes == 31200);
    row_is(&alive.row[0], "malloc", 30, "never freed");
    assert_string_equal(alive.row[0].layer, "b");
    CHECK_OK(ckpt_live_set_make(&ranges, 1, 2, &arena, &alive, &err), err);
    row_is(&alive.row[0], "malloc", 1, "since event 0, never freed");
}

/* Layers that nobody knows are not one layer, and numbers alone are no name. */
static void what_is_not_known_is_not_shared(void **state)
{
    static const struct {
        const char *op[2];
        ckpt_span span;
        const char *reason;
    } table[] = {
        {{"a/backward", "a/backward"}, CKPT_SPAN_BACKWARD, "kept for a/backward, steps 2 to 3"},
        {{"a/backward", "b/backward"}, CKPT_SPAN_BACKWARD, "kept for backward, steps 2 to 3"},
        {{"17", "205.3"}, CKPT_SPAN_UPDATE, "kept for steps 2 to 3"},
        {{"17", "205"}, CKPT_SPAN_UPDATE, "kept for steps 2 to 3"},
        {{"17", "205"}, CKPT_SPAN_RECOMPUTE, "kept to recompute others, steps 2 to 3"},
        {{"a17", "a205"}, CKPT_SPAN_RECOMPUTE, "kept to recompute a17,205, steps 2 to 3"},
    };
    const ckpt_trace_allocation any = {.name = ""};
    static const int both[] = {0, 1};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const ckpt_event event[] = {
            {.step = 0, .name = "x", .layer = "", .stream = "compute", .span = CKPT_SPAN_FORWARD},
            {.step = 1, .name = "y", .layer = "", .stream = "compute", .span = CKPT_SPAN_FORWARD},
            {.step = 2, .name = table[i].op[0], .layer = "", .stream = "compute", .span = table[i].span},
            {.step = 3, .name = table[i].op[1], .layer = "", .stream = "compute", .span = table[i].span},
            {.step = 4, .name = "z", .layer = "", .stream = "compute", .span = CKPT_SPAN_UPDATE},
        };
        const ckpt_trace trace = {.event = event, .event_count = 5, .allocation = &any, .allocation_count = 1};
        const ckpt_live_range range[] = {{.layer = "", .to = 2, .last = 2, .copied = -1},
                                         {.layer = "", .from = 1, .to = 3, .born = 1, .last = 3, .copied = -1}};
        const ckpt_live_ranges ranges = {.trace = &trace, .range = range, .count = 2};
        CKPT_TEST_ARENA(arena);
        assert_string_equal(ckpt_live_range_group_reason(&ranges, both, 2, true, &arena), table[i].reason);
    }
}

static void several_share_a_reason(void **state)
{
    static const struct {
        ckpt_live_range range[2];
        const char *reason;
    } table[] = {
        {{{.last = 8, .born = 0, .to = 9}, {.last = 11, .born = 1, .to = 12}}, "kept for backward, steps 8 to 11"},
        {{{.last = 8, .born = 0, .to = 9, .layer = "d"}, {.last = 8, .born = 1, .to = 9, .layer = "d"}},
         "kept for their own backward, step 8"},
        {{{.last = 9, .born = 0, .to = 9}, {.last = 9, .born = 1, .to = 10}}, "kept to recompute c/forward, step 9"},
        {{{.last = 11, .born = 9, .to = 12}, {.last = 11, .born = 9, .to = 12}}, "recomputed for c/backward, step 11"},
        {{{.last = 9, .born = 7, .to = 9, .kind = CKPT_LIVE_OFFLOADED},
          {.last = 9, .born = 7, .to = 9, .kind = CKPT_LIVE_OFFLOADED}},
         "fetched back to recompute c/forward, step 9"},
        {{{.last = 3, .born = 0, .to = 3}, {.last = 5, .born = 1, .to = 6}}, "in use until steps 3 to 5"},
        {{{.last = 11, .born = 8, .to = 12, .kind = CKPT_LIVE_GRADIENT},
          {.last = 13, .born = 8, .to = 14, .kind = CKPT_LIVE_GRADIENT}},
         "passed back until steps 11 to 13"},
        {{{.last = -1, .born = 0, .to = 15}, {.last = -1, .born = 0, .to = 15}}, "outputs: stay to the end"},
        {{{.last = -1, .born = 0, .to = 4}, {.last = -1, .born = 0, .to = 6}}, "in memory until steps 4 to 6"},
        {{{.last = 3, .born = 3, .to = 4}, {.last = 1, .born = 1, .to = 2}}, "written and read by nothing"},
        {{{.last = 3, .born = 1, .to = 4, .copied = 2}, {.last = 3, .born = 1, .to = 6, .copied = 2}},
         "copied to the host and freed at steps 4 to 6"},
        {{{.kind = CKPT_LIVE_WORKSPACE}, {.kind = CKPT_LIVE_WORKSPACE}}, "scratch of what runs"},
    };
    static const char *const name[] = {"a/forward",  "b/forward", "b", "c/forward",  "b", "d/forward",  "c", "b",
                                       "d/backward", "c/forward", "b", "c/backward", "c", "a/backward", "a", "g"};
    static const char kind[] = "ffcfwffcbrfbfbff"; /* forward, copy, wait, backward, recompute; frees do not matter */
    ckpt_event event[16];
    const ckpt_trace_allocation any = {.name = ""};
    for (int i = 0; i < 16; i++) {
        event[i] = (ckpt_event){.step = i,
                                .name = name[i],
                                .layer = i == 8 ? "d" : "other",
                                .stream = i == 7   ? "h2d"
                                          : i == 2 ? "d2h"
                                                   : "compute",
                                .span = kind[i] == 'f'   ? CKPT_SPAN_FORWARD
                                        : kind[i] == 'c' ? CKPT_SPAN_COPY
                                        : kind[i] == 'w' ? CKPT_SPAN_WAIT
                                        : kind[i] == 'b' ? CKPT_SPAN_BACKWARD
                                                         : CKPT_SPAN_RECOMPUTE};
    }
    const ckpt_trace trace = {.event = event, .event_count = 16, .allocation = &any, .allocation_count = 1};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_live_range range[2] = {table[i].range[0], table[i].range[1]};
        for (int k = 0; k < 2; k++) {
            range[k].layer = range[k].layer != NULL ? range[k].layer : "";
            range[k].copied = range[k].copied == 0 ? -1 : range[k].copied;
        }
        const ckpt_live_ranges ranges = {.trace = &trace, .range = range, .count = 2};
        static const int both[] = {0, 1};
        assert_string_equal(ckpt_live_range_group_reason(&ranges, both, 2, false, &arena), table[i].reason);
    }
}

/* Every stay at the event is in one row or in none; rows are alike inside, ordered, and explain no less than as many of
 * the largest stays would. */
static void rows_add_up(void **state)
{
    int grouped = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_graph *const graph = ckpt_test_variant(ckpt_test_step(&arena, seed, 4 + (int)(seed % 12)), &arena,
                                                          seed, seed % 2 == 0, 33000000000, 20000000000);
        const ckpt_sequence sequence = ckpt_test_sequence(graph, &arena, seed);
        ckpt_plan *const plan = ckpt_test_plan(graph, &sequence, &arena, "table");
        const ckpt_trace *trace = NULL;
        ckpt_live_ranges ranges;
        CHECK_OK(ckpt_plan_simulate(plan, graph, &arena, &trace, &err), err);
        CHECK_OK(ckpt_live_ranges_make(trace, &arena, &ranges, &err), err);
        int *const seen = CKPT_NEW(&arena, int, ranges.count), *const largest = CKPT_NEW(&arena, int, ranges.count);
        for (int at = 0; at < trace->event_count; at += 5) {
            const int rows = 1 + (int)((seed + (uint64_t)at) % 9);
            ckpt_live_set alive;
            CHECK_OK(ckpt_live_set_make(&ranges, at, rows, &arena, &alive, &err), err);
            int there = 0, listed = 0;
            ckpt_bytes bytes = 0, told = 0, single = 0;
            ckpt_live_ranges_at(&ranges, at, largest, ranges.count, &there, &bytes);
            for (int i = 0; i < rows && i < there; i++) {
                single += ranges.range[largest[i]].bytes;
            }
            memset(seen, 0, (size_t)ranges.count * sizeof *seen);
            assert_true(alive.row_count <= rows && alive.bytes == bytes && alive.at == at);
            for (int r = 0; r < alive.row_count; r++) {
                const ckpt_live_set_row *const row = &alive.row[r];
                ckpt_bytes sum = 0;
                for (int k = 0; k < row->count; k++) {
                    const ckpt_live_range *const range = &ranges.range[row->range[k]];
                    assert_true(range->from <= at && at <= range->to && range->kind == row->kind);
                    assert_true(k == 0 || range->bytes <= ranges.range[row->range[k - 1]].bytes);
                    assert_true(ckpt_live_range_why(&ranges, row->range[k]) ==
                                ckpt_live_range_why(&ranges, row->range[0]));
                    assert_string_equal(ckpt_name_pattern(range->name, true, &arena),
                                        ckpt_name_pattern(ranges.range[row->range[0]].name, true, &arena));
                    assert_int_equal(seen[row->range[k]]++, 0);
                    sum += range->bytes;
                }
                assert_true(sum == row->bytes && (r == 0 || sum <= alive.row[r - 1].bytes));
                listed += row->count;
                told += sum;
                grouped += row->count > 1;
            }
            assert_int_equal(listed + alive.rest_count, there);
            assert_true(told + alive.rest_bytes == bytes);
            assert_true(told >= single - bytes / 1000 * rows);
        }
    }
    CHECK(grouped > 100, "only %d rows of several", grouped);
}

/* The table alone on a canvas, `width` pixels wide or characters. */
static ckpt_code draw_table(const ckpt_live_ranges *ranges, const char *format, int width, int rows, ckpt_text *text,
                            ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_live_set alive;
    ckpt_view view = {.canvas = {.renderer = ckpt_renderer_find(format), .scratch = &scratch}, .small = 11.5};
    const bool cells = view.canvas.renderer->cells;
    view.canvas.cell_width = cells ? 8 : 1;
    view.canvas.cell_height = cells ? 16 : 1;
    view.canvas.width = cells ? 8 * width : width;
    view.line = cells ? 16 : 18;
    ckpt_code code = ckpt_live_set_make(ranges, ranges->trace->peak_event, rows, &scratch, &alive, err);
    if (code == CKPT_OK) {
        view.canvas.height = view.line * ckpt_view_live_set_lines(&view, &alive, view.canvas.width);
        code = view.canvas.renderer->open(&view.canvas, "title", "about", err);
    }
    if (code == CKPT_OK) {
        ckpt_view_draw_live_set(&view, &alive, 100000, 0, 0, view.canvas.width);
        code = view.canvas.renderer->close(&view.canvas, view.failed ? NULL : text, err);
        code = view.failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "words") : code;
    }
    ckpt_arena_fini(&scratch);
    return code;
}

static void drawn(void **state)
{
    blocks b;
    ckpt_err err = {0};
    ckpt_text text;
    make(&b, "h.%d.%s", 1000);
    ckpt_text_init(&text);
    CHECK_OK(draw_table(&b.ranges, "txt", 100, 4, &text, &err), err);
    assert_string_equal(text.bytes,
                        "live at the peak, step 24     bytes   share  why\n"
                        "aa h.0…5.fc2 ×6             6.02 kB   6.0 %  kept for h.0…5.all/backward, steps 26 to 31\n"
                        "aa h.0…5.fc1 ×6             6.01 kB   6.0 %  kept for h.0…5.all/backward, steps 26 to 31\n"
                        "aa h.0…5.att ×6             6.01 kB   6.0 %  kept for h.0…5.all/backward, steps 26 to 31\n"
                        "aa h.0…5.ln ×6              6.00 kB   6.0 %  kept for h.0…5.all/backward, steps 26 to 31\n"
                        "   and 1 smaller            5.00 kB   5.0 %\n");
    /* Too narrow for names and reasons side by side; the layer that wrote a gradient is no column. */
    b.allocation[3].category = CKPT_CAT_GRADIENTS;
    b.event[3].layer = "writer";
    b.trace.static_bytes = 50000;
    b.event[b.trace.peak_event].bytes[CKPT_CAT_WEIGHTS] = 30000;
    b.event[b.trace.peak_event].bytes[CKPT_CAT_INPUTS] = 20000;
    CHECK_OK(ckpt_live_ranges_make(&b.trace, &b.arena, &b.ranges, &err), err);
    ckpt_text_fini(&text);
    ckpt_text_init(&text);
    CHECK_OK(draw_table(&b.ranges, "txt", 60, 25, &text, &err), err);
    assert_ptr_equal(strstr(text.bytes, "live at the peak, step 24                      bytes   share\n"
                                        "ww loss                                      5.00 kB   5.0 %\n"
                                        "   scratch of loss while it runs\n"
                                        "gg h.0.fc2                                   1.00 kB   1.0 %\n"
                                        "   kept since step 3 for h.0.all/backward (step 31)\n"),
                     text.bytes);
    assert_non_null(strstr(text.bytes, "\nWW static block                              50.0 kB  50.0 %\n"
                                       "   the whole step: weights, inputs\n"));
    /* The rows add up to what the trace counts, also where it does not know all addresses. */
    b.event[b.trace.peak_event].bytes[CKPT_CAT_ACTIVATIONS] = 24 * 1000 + 36 + 5000 + 7000;
    ckpt_text_fini(&text);
    ckpt_text_init(&text);
    CHECK_OK(draw_table(&b.ranges, "txt", 60, 25, &text, &err), err);
    CHECK(strstr(text.bytes, "\n   address not known                         7.00 kB   7.0 %\n") != NULL, "%s",
          text.bytes);
    b.allocation[3].category = CKPT_CAT_SAVED;
    CHECK_OK(ckpt_live_ranges_make(&b.trace, &b.arena, &b.ranges, &err), err);
    ckpt_text_fini(&text);
    ckpt_text_init(&text);
    CHECK_OK(draw_table(&b.ranges, "txt", 120, 25, &text, &err), err);
    CHECK(strstr(text.bytes, "\nss h.0.fc2                 writer    1.00 kB") != NULL, "%s", text.bytes);
    ckpt_arena_fini(&b.arena);
    /* Names from anywhere: nothing leaves its column, whatever the width. */
    static char longest[10001];
    memset(longest, 'W', sizeof longest - 1);
    static const char *const hostile[] = {longest, "</text><script>\"'&", "\x01\x1b[31m\xff\xfe", "", "%s%n"};
    for (int h = 0; h < 5; h++) {
        make(&b, "x%d%s", 77);
        b.allocation[0].name = b.allocation[7].name = hostile[h];
        b.event[1].layer = b.event[30].name = hostile[h];
        b.trace.static_bytes = h % 2 == 0 ? 0 : 640;
        CHECK_OK(ckpt_live_ranges_make(&b.trace, &b.arena, &b.ranges, &err), err);
        for (int width = 30; width < 200; width += 17) {
            ckpt_text_fini(&text);
            ckpt_text_init(&text);
            CHECK_OK(draw_table(&b.ranges, "txt", width, 25, &text, &err), err);
            int column = 0;
            for (const char *c = text.bytes; *c != '\0'; c++) {
                column = *c == '\n' ? 0 : column + ((*c & 0xC0) != 0x80);
                CHECK(column <= width, "a line of more than %d characters:\n%s", width, text.bytes);
            }
            assert_null(strchr(text.bytes, '\x1b'));
            ckpt_text_fini(&text);
            ckpt_text_init(&text);
            CHECK_OK(draw_table(&b.ranges, "svg", 5 * width, 25, &text, &err), err);
            assert_null(strstr(text.bytes, "<script"));
        }
        ckpt_arena_fini(&b.arena);
    }
    ckpt_text_fini(&text);
}

static ckpt_code draw_anew(void *context, ckpt_text *text, ckpt_err *err)
{
    return draw_table(context, "txt", 90, 4, text, err);
}

static void starved(void **state)
{
    blocks b;
    make(&b, "h.%d.%s", 1000);
    assert_true(ckpt_test_starve_text(draw_anew, &b.ranges) > 1);
    ckpt_arena_fini(&b.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_blocks),
        cmocka_unit_test(blocks_are_told_together),
        cmocka_unit_test(several_share_a_reason),
        cmocka_unit_test(what_is_not_known_is_not_shared),
        cmocka_unit_test(how_much_rows_explain),
        cmocka_unit_test(blocks_without_a_plan),
        cmocka_unit_test(rows_add_up),
        cmocka_unit_test(drawn),
        cmocka_unit_test(starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
