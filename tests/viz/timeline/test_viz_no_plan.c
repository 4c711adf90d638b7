/* labels: golden */
/* Pictures of programs that follow no plan: a golden, what the words claim against a plain count, many streams, very
 * many events, starvation. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "core/formats/timeline.h"
#include "kernels/philox.h"
#include "tests/support/support_golden.h"
#include "viz/timeline/view.h"
#include "viz/viz.h"

enum { BLOCKS = 40 };

static uint32_t draw(uint64_t seed, uint64_t at, uint32_t below)
{
    uint32_t word[4];
    ckpt_philox_block(seed, 0, 0, 0, at, word);
    return word[0] % below;
}

typedef struct made {
    ckpt_arena arena;
    ckpt_timeline *timeline;
    ckpt_trace *trace;
} made;

static void add(made *m, ckpt_event event, ckpt_category category)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_timeline_add(m->timeline, &event, category, &err), err);
}

/* `count` things happen: blocks come and go, kernels run on `streams` streams, copies on the last. */
static void make(made *m, uint64_t seed, int count, int streams)
{
    ckpt_err err = {0};
    ckpt_arena_init(&m->arena);
    CHECK_OK(ckpt_timeline_create(&m->arena, &m->timeline, &err), err);
    bool there[BLOCKS] = {false};
    ckpt_ns now = 0;
    for (int i = 0; i < count; i++) {
        const uint64_t at = (uint64_t)i * 8;
        const int block = (int)draw(seed, at, BLOCKS), stream = (int)draw(seed, at + 1, (uint32_t)streams);
        const int64_t address = 0x7f0000000000 + block * (INT64_C(1) << 24);
        now += draw(seed, at + 2, 3000);
        if (draw(seed, at + 3, 3) == 0) {
            add(m,
                (ckpt_event){.name = there[block] ? "cudaFree" : "cudaMalloc",
                             .layer = block % 3 == 0 ? "encoder" : "",
                             .span = there[block] ? CKPT_SPAN_FREE : CKPT_SPAN_ALLOCATE,
                             .start_ns = now,
                             .end_ns = now,
                             .address = address,
                             .size_bytes = there[block] ? 0 : (int64_t)(1 + draw(seed, at + 4, 64)) * 65536},
                block == 7 ? CKPT_CAT_WEIGHTS : CKPT_CAT_OTHER);
            there[block] = !there[block];
        } else {
            char name[32];
            snprintf(name, sizeof name, "stream %d", 7 + stream);
            add(m,
                (ckpt_event){.name = "gemm",
                             .stream = name,
                             .span = streams > 1 && stream == streams - 1 ? CKPT_SPAN_COPY : CKPT_SPAN_OTHER,
                             .start_ns = now,
                             .end_ns = now + 500 + draw(seed, at + 5, 4000)},
                CKPT_CAT_OTHER);
        }
    }
    ckpt_timeline_report report;
    CHECK_OK(ckpt_timeline_finish(m->timeline, "train --fast", &m->trace, &report, &err), err);
    m->trace->machine.device = "some GPU";
    m->trace->recorder = "a recorder";
}

static void picture(const ckpt_trace *trace, const char *format, const ckpt_view_options *options, ckpt_text *text)
{
    ckpt_err err = {0};
    ckpt_text_fini(text);
    ckpt_text_init(text);
    CHECK_OK(ckpt_view_draw(&trace, 1, format, options, text, &err), err);
}

static void golden(void **state)
{
    made m;
    ckpt_text text = {.bytes = NULL};
    make(&m, 1, 160, 3);
    picture(m.trace, "txt", NULL, &text);
    ckpt_golden_check("view_no_plan.txt", text.bytes, text.length);
    picture(m.trace, "svg", NULL, &text);
    ckpt_golden_check("view_no_plan.svg", text.bytes, text.length);
    /* Nothing is said about plans, budgets and recomputation. */
    assert_non_null(strstr(text.bytes, "train --fast: memory of a program that follows no plan"));
    static const char *const never[] = {"budget", "recomputed", "static block", "training step", "unknown origin"};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        CHECK(strstr(text.bytes, never[i]) == NULL, "the picture says \"%s\"", never[i]);
    }
    ckpt_text_fini(&text);
    ckpt_arena_fini(&m.arena);
}

/* Lanes: one per stream in the order of their numbers, and of too many one for the rest. */
static void streams_have_lanes(void **state)
{
    static const int streams[] = {2, 11, 12, 100};
    for (int i = 0; i < 4; i++) {
        made m;
        ckpt_text text = {.bytes = NULL};
        make(&m, 5, 1500, streams[i]);
        picture(m.trace, "svg", NULL, &text);
        const char *before = text.bytes;
        int lanes = 0;
        for (int s = 0; s < streams[i]; s++) {
            char name[32];
            snprintf(name, sizeof name, ">stream %d<", 7 + s);
            const char *const at = strstr(text.bytes, name);
            lanes += at != NULL;
            CHECK(at == NULL || at > before, "%s is not below the lane before it", name);
            before = at != NULL ? at : before;
        }
        assert_int_equal(lanes, streams[i] < 12 ? streams[i] : 11);
        assert_true((strstr(text.bytes, ">others<") != NULL) == (streams[i] > 11));
        ckpt_text_fini(&text);
        ckpt_arena_fini(&m.arena);
    }
}

/* Of too many streams those have their own lanes that were busy longest. */
static void busy_streams_have_lanes(void **state)
{
    enum { STREAMS = 14 };
    ckpt_event event[STREAMS];
    char name[STREAMS][16];
    for (int s = 0; s < STREAMS; s++) {
        snprintf(name[s], sizeof name[s], "stream %d", s);
        event[s] = (ckpt_event){.step = s,
                                .name = "gemm",
                                .layer = "",
                                .stream = name[s],
                                .span = CKPT_SPAN_OTHER,
                                .start_ns = 1000 * s,
                                .end_ns = 1000 * s + 100 + (s * 5 % STREAMS) * 10};
    }
    const ckpt_trace trace = {.source = "s", .name = "s", .time_ns = 15000, .event = event, .event_count = STREAMS};
    ckpt_text text = {.bytes = NULL};
    picture(&trace, "svg", NULL, &text);
    for (int s = 0; s < STREAMS; s++) {
        char label[20];
        snprintf(label, sizeof label, ">stream %d<", s);
        CHECK((strstr(text.bytes, label) != NULL) == (s * 5 % STREAMS >= 3), "%s, the %d. in idleness", label,
              s * 5 % STREAMS);
    }
    ckpt_text_fini(&text);
}

/* Time is the axis unless steps are asked for, and of a hundred thousand events no more is drawn than there are pixels
 * for. */
static void many_events(void **state)
{
    size_t length[2];
    for (int k = 0; k < 2; k++) {
        made m;
        ckpt_text text = {.bytes = NULL};
        make(&m, 9, k == 0 ? 3000 : 100000, 4);
        picture(m.trace, "svg", NULL, &text);
        length[k] = text.length;
        assert_non_null(strstr(text.bytes, ">time<"));
        assert_non_null(strstr(text.bytes, "each column shows its highest event"));
        picture(m.trace, "svg", &(ckpt_view_options){.step_axis = true}, &text);
        assert_non_null(strstr(text.bytes, ">event<"));
        picture(m.trace, "png", NULL, &text);
        picture(m.trace, "txt", &(ckpt_view_options){.width = 80}, &text);
        ckpt_text_fini(&text);
        ckpt_arena_fini(&m.arena);
    }
    CHECK(length[1] < 500000, "%zu bytes of SVG for 100000 events, %zu for 3000", length[1], length[0]);
}

/* What an allocator holds beyond what is in use lies inside the plot, under its own name. */
static void what_is_held_is_inside_the_axes(void **state)
{
    made m;
    ckpt_text text = {.bytes = NULL};
    make(&m, 2, 100, 1);
    ckpt_event *const event = CKPT_NEW(&m.arena, ckpt_event, m.trace->event_count);
    memcpy(event, m.trace->event, (size_t)m.trace->event_count * sizeof *event);
    for (int i = 0; i < m.trace->event_count; i++) {
        event[i].bytes[CKPT_CAT_OUTSIDE] = 200 * 1000 * 1000;
    }
    m.trace->event = event;
    picture(m.trace, "svg", NULL, &text);
    assert_non_null(strstr(text.bytes, "held, not in use"));
    assert_non_null(strstr(text.bytes, ">200 MB<"));
    ckpt_text_fini(&text);
    ckpt_arena_fini(&m.arena);
}

static ckpt_code draw_anew(void *context, ckpt_text *text, ckpt_err *err)
{
    const ckpt_trace *const trace = context;
    return ckpt_view_draw(&trace, 1, "svg", NULL, text, err);
}

static void starved(void **state)
{
    made m;
    make(&m, 1, 60, 3);
    ckpt_test_starve_text(draw_anew, m.trace);
    ckpt_arena_fini(&m.arena);
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
        cmocka_unit_test(golden),
        cmocka_unit_test(streams_have_lanes),
        cmocka_unit_test(busy_streams_have_lanes),
        cmocka_unit_test(many_events),
        cmocka_unit_test(what_is_held_is_inside_the_axes),
        cmocka_unit_test(starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
