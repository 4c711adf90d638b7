/* labels: unit */
/* Chrome's trace format and CSV: what is there with nothing to write, members that are not set, each allocation
 * failing. What the files say is read back by tests/programs/cli_view_export.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/viz.h"

typedef ckpt_code (*writer)(const ckpt_trace *const *trace, int trace_count, ckpt_text *text, ckpt_err *err);
static const writer writers[] = {ckpt_view_chrome, ckpt_view_csv};
enum { WRITERS = sizeof writers / sizeof writers[0] };

static int lines(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

static void traces_without_events(void **state)
{
    const ckpt_trace empty = {.source = "", .name = "nothing", .plan = "", .recorder = ""};
    const ckpt_trace *const both[2] = {&empty, &empty};
    for (int w = 0; w < WRITERS; w++) {
        for (int count = 0; count <= 2; count++) {
            ckpt_text text;
            ckpt_err err = {0};
            ckpt_text_init(&text);
            CHECK_OK(writers[w](both, count, &text, &err), err);
            CHECK(writers[w] == ckpt_view_csv ? lines(text.bytes) == 1 : strstr(text.bytes, "\"X\"") == NULL,
                  "%d empty traces: %s", count, text.bytes);
            ckpt_text_fini(&text);
        }
    }
}

/* A program that builds traces itself may leave out what has a default. */
static void members_that_are_not_set(void **state)
{
    const ckpt_event event[2] = {{.name = "a", .end_ns = 7}, {.name = "b", .start_ns = 7, .span = CKPT_SPAN_FREE}};
    const ckpt_trace trace = {.name = "n", .event = event, .event_count = 2};
    const ckpt_trace *const given = &trace;
    for (int w = 0; w < WRITERS; w++) {
        ckpt_text text;
        ckpt_err err = {0};
        ckpt_text_init(&text);
        CHECK_OK(writers[w](&given, 1, &text, &err), err);
        CHECK(strstr(text.bytes, "(null)") == NULL, "%s", text.bytes);
        CHECK(writers[w] == ckpt_view_csv || strstr(text.bytes, "\"ts\": 0.000, \"dur\": 0.007") != NULL, "%s",
              text.bytes);
        ckpt_text_fini(&text);
    }
}

static ckpt_code write_in_need(void *context, ckpt_text *text, ckpt_err *err)
{
    const struct {
        const ckpt_trace *trace[2];
        writer write;
    } *const given = context;
    return given->write(given->trace, 2, text, err);
}

static void starved(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_golden_step step = {.layers = 6, .segment = 2};
    const ckpt_golden_step measured = {.layers = 6, .segment = 2, .measured = true};
    struct {
        const ckpt_trace *trace[2];
        writer write;
    } given = {{ckpt_golden_trace(&step, &arena), ckpt_golden_trace(&measured, &arena)}, NULL};
    for (int w = 0; w < WRITERS; w++) {
        given.write = writers[w];
        CHECK(ckpt_test_starve_text(write_in_need, &given) > 0, "writer %d takes no memory", w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_without_events),
        cmocka_unit_test(members_that_are_not_set),
        cmocka_unit_test(starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
