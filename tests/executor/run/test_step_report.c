/* labels: unit */
/* A measured step against its prediction: sums by phase and layer against a plain recomputation on random traces, what
 * is most different, what is refused. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "executor/run/step_report.h"
#include "kernels/philox.h"

enum { EVENTS = 60, LAYERS = 9 };

static const ckpt_span spans[] = {CKPT_SPAN_FORWARD, CKPT_SPAN_BACKWARD, CKPT_SPAN_RECOMPUTE,
                                  CKPT_SPAN_COPY,    CKPT_SPAN_UPDATE,   CKPT_SPAN_FREE};
static const char *const layers[LAYERS] = {"a", "b", "h.0", "h.1", "h.10", "h.2", "x", "y", "z"};

typedef struct pair {
    ckpt_event predicted[EVENTS], measured[EVENTS];
    ckpt_trace p, m;
} pair;

static uint32_t draw(uint64_t seed, uint64_t at, uint32_t below)
{
    uint32_t word[4];
    ckpt_philox_block(seed, 0, 0, 0, at, word);
    return word[0] % below;
}

static void make(pair *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    ckpt_ns now[2] = {0};
    for (int i = 0; i < EVENTS; i++) {
        const uint64_t at = (uint64_t)i * 16;
        ckpt_event *const both[2] = {&t->predicted[i], &t->measured[i]};
        for (int side = 0; side < 2; side++) {
            ckpt_event *const e = both[side];
            e->step = i;
            e->span = spans[draw(seed, at, 6)];
            e->layer = e->name = layers[draw(seed, at + 1, LAYERS)];
            e->stream = "compute";
            e->start_ns = now[side] + draw(seed, at + 2 + (uint64_t)side, 10);
            e->end_ns = e->start_ns + (e->span == CKPT_SPAN_FREE ? 0 : draw(seed, at + 4 + (uint64_t)side, 1000));
            now[side] = e->end_ns;
        }
        if (t->predicted[i].span == CKPT_SPAN_FREE && draw(seed, at + 6, 2) == 0) {
            t->predicted[i].span = CKPT_SPAN_WAIT; /* for a copy, which the device did not have to */
            t->predicted[i].end_ns += 5;
            now[0] += 5;
        }
        ckpt_event *const m = &t->measured[i];
        m->launches = (int)draw(seed, at + 7, 3);
        m->kernel_ns = m->launches > 0 ? (m->end_ns - m->start_ns) / 2 : 0;
    }
    t->p = (ckpt_trace){.event = t->predicted, .event_count = EVENTS, .time_ns = now[0]};
    t->m = (ckpt_trace){.event = t->measured, .event_count = EVENTS, .time_ns = now[1] + 7};
}

/* What all runs of one layer (NULL: any) in one phase take on one side. */
static ckpt_ns sum_of(const ckpt_trace *trace, ckpt_span span, const char *layer, int *runs)
{
    ckpt_ns sum = 0;
    *runs = 0;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const e = &trace->event[i];
        if (e->span == span && (layer == NULL || strcmp(layer, e->layer) == 0)) {
            sum += e->end_ns - e->start_ns;
            (*runs)++;
        }
    }
    return sum;
}

static void sums_are_those_of_the_events(void **state)
{
    CKPT_TEST_ARENA(arena);
    static pair t;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ckpt_err err = {0};
        ckpt_step_report r;
        make(&t, seed);
        const bool longer = seed % 2 == 0;
        ckpt_ns longer_by[EVENTS] = {0};
        for (int i = 0; longer && i < EVENTS; i++) { /* the plan counts with so much more, which is taken off again */
            longer_by[i] = (ckpt_ns)draw(seed, (uint64_t)i * 16 + 8, 300) - 150;
            t.predicted[i].end_ns += longer_by[i];
        }
        CHECK_OK(ckpt_step_compare(&t.p, longer ? longer_by : NULL, &t.m, &arena, &r, &err), err);
        for (int i = 0; i < EVENTS; i++) {
            t.predicted[i].end_ns -= longer_by[i];
        }
        int runs = 0;
        ckpt_ns all = 0, busy = 0, told = INT64_MAX;
        for (int s = 0; s < 5; s++) {
            assert_true(r.part[spans[s]].predicted_ns == sum_of(&t.p, spans[s], NULL, &runs));
            assert_true(r.part[spans[s]].measured_ns == sum_of(&t.m, spans[s], NULL, &runs));
            assert_int_equal(r.part[spans[s]].runs, runs);
            all += spans[s] != CKPT_SPAN_COPY ? r.part[spans[s]].measured_ns : 0;
        }
        assert_true(r.layers.measured_ns == all);
        for (int i = 0; i < EVENTS; i++) {
            const ckpt_event *const e = &t.measured[i];
            const bool layer = e->span != CKPT_SPAN_COPY && e->span != CKPT_SPAN_FREE;
            busy += !layer ? 0 : e->launches > 0 ? e->kernel_ns : e->end_ns - e->start_ns;
        }
        assert_true(r.idle_ns == t.m.time_ns - busy && r.step.measured_ns == t.m.time_ns);
        assert_true(r.step.predicted_ns == t.p.time_ns);
        /* No layer and phase that is not told is farther off than one that is. */
        for (int w = 0; w < r.worst_count; w++) {
            const ckpt_step_layer *const one = &r.worst[w];
            assert_true(one->part.predicted_ns == sum_of(&t.p, one->span, one->layer, &runs));
            assert_true(one->part.measured_ns == sum_of(&t.m, one->span, one->layer, &runs));
            assert_int_equal(one->part.runs, runs);
            const ckpt_ns more = one->part.measured_ns - one->part.predicted_ns;
            assert_true((more < 0 ? -more : more) <= told);
            told = more < 0 ? -more : more;
        }
        assert_int_equal(r.worst_count, CKPT_STEP_WORST);
        int farther = 0;
        for (int l = 0; l < LAYERS; l++) {
            for (int s = 0; s < 5; s++) {
                const ckpt_ns more =
                    sum_of(&t.m, spans[s], layers[l], &runs) - sum_of(&t.p, spans[s], layers[l], &runs);
                farther += spans[s] != CKPT_SPAN_COPY && (more < 0 ? -more : more) > told;
            }
        }
        CHECK(farther < CKPT_STEP_WORST, "seed %d: %d layers are farther off than the last that is told", (int)seed,
              farther);
    }
}

static void what_does_not_match_is_refused(void **state)
{
    CKPT_TEST_ARENA(arena);
    static pair t;
    ckpt_err err = {0};
    ckpt_step_report r = {.idle_ns = -1};
    make(&t, 1);
    t.m.event_count--;
    assert_int_equal(ckpt_step_compare(&t.p, NULL, &t.m, &arena, &r, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "60 steps as predicted and 59 as measured"));
    t.m.event_count++;
    t.measured[7].name = "another";
    assert_int_equal(ckpt_step_compare(&t.p, NULL, &t.m, &arena, &r, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "step 7 is"));
    make(&t, 1);
    for (int i = 0; i < EVENTS; i++) {
        t.measured[i].span = t.predicted[i].span = CKPT_SPAN_FORWARD;
        t.measured[i].start_ns = 0;
        t.measured[i].end_ns = INT64_MAX / 2;
    }
    assert_int_equal(ckpt_step_compare(&t.p, NULL, &t.m, &arena, &r, &err), CKPT_OVERFLOW);
    assert_true(r.idle_ns == -1); /* outputs on success only */
}

static ckpt_code compare_anew(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const pair *const t = context;
    ckpt_step_report r;
    return ckpt_step_compare(&t->p, NULL, &t->m, arena, &r, err);
}

static void told_in_words(void **state)
{
    CKPT_TEST_ARENA(arena);
    static pair t;
    ckpt_err err = {0};
    ckpt_step_report r;
    ckpt_text text;
    make(&t, 3);
    ckpt_test_starve_arena(compare_anew, &t);
    CHECK_OK(ckpt_step_compare(&t.p, NULL, &t.m, &arena, &r, &err), err);
    ckpt_text_init(&text);
    ckpt_step_report_show(&r, "p.json", "a sundial", &text);
    assert_non_null(strstr(text.bytes, "against p.json, measured by a sundial\n"));
    assert_non_null(strstr(text.bytes, "sum of layers"));
    assert_null(strstr(text.bytes, "median of"));
    ckpt_text_fini(&text);
    r.usual_ns = 1000;
    r.usual_count = 8;
    ckpt_step_report_show(&r, "p.json", "a sundial", &text);
    assert_non_null(strstr(text.bytes, "median of 8"));
    ckpt_text_fini(&text);
    /* No step at all: nothing is divided by nothing. */
    t.p.event_count = t.m.event_count = 0;
    t.p.time_ns = t.m.time_ns = 0;
    CHECK_OK(ckpt_step_compare(&t.p, NULL, &t.m, &arena, &r, &err), err);
    ckpt_step_report_show(&r, "p.json", "a sundial", &text);
    assert_null(strstr(text.bytes, "nan"));
    ckpt_text_fini(&text);
}

/* A network with clip_norm could not be compared: its plan has the length of all gradients among the exchanges, and the
 * executor computes it. */
static void a_norm_is_an_update_and_an_exchange_may_wait(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_event predicted[] = {
        {.step = 0, .span = CKPT_SPAN_COPY, .name = "@norm", .layer = "@norm", .end_ns = 30},
        {.step = 1, .span = CKPT_SPAN_COPY, .name = "@bucket.0", .start_ns = 30, .end_ns = 50}};
    const ckpt_event measured[] = {
        {.step = 0, .span = CKPT_SPAN_UPDATE, .name = "@norm", .layer = "@norm", .end_ns = 40},
        {.step = 1, .span = CKPT_SPAN_WAIT, .name = "@bucket.0", .start_ns = 40, .end_ns = 55}};
    const ckpt_trace p = {.event = (ckpt_event *)(uintptr_t)predicted, .event_count = 2, .time_ns = 50};
    const ckpt_trace m = {.event = (ckpt_event *)(uintptr_t)measured, .event_count = 2, .time_ns = 55};
    ckpt_step_report r;
    ckpt_err err = {0};
    CHECK_OK(ckpt_step_compare(&p, NULL, &m, &arena, &r, &err), err);
    assert_true(r.part[CKPT_SPAN_UPDATE].predicted_ns == 30 && r.part[CKPT_SPAN_UPDATE].measured_ns == 40);
    assert_true(r.part[CKPT_SPAN_COPY].runs == 0 && r.layers.measured_ns == 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_events),
        cmocka_unit_test(a_norm_is_an_update_and_an_exchange_may_wait),
        cmocka_unit_test(what_does_not_match_is_refused),
        cmocka_unit_test(told_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
