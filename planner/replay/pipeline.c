/* Replays all stages of a pipeline. Each stage runs until it waits for a time that is not known yet; the stages take
 * turns until all are done or none can go on. The order of turns changes no time, because a stage waits only for known
 * times. */
#include "planner/replay/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/replay/clock.h"

typedef enum part { NO_PART, SEND, SENT, RECEIVE } part;

/* An op's other end: of SENT and RECEIVE what they wait for. */
typedef struct message {
    part part;
    int stage, op;
} message;

typedef struct stage {
    const ckpt_plan *plan;
    const ckpt_graph *graph;
    ckpt_named *names;
    message *message;     /* per op */
    ckpt_ns *begun, *end; /* per op, of its first run: come to, ended; -1: not yet */
    const ckpt_trace *alone;
    ckpt_event *event;
    int event_count;
    int step; /* the next */
    int peak_event;
    ckpt_clock clock;
    ckpt_ns busy;
} stage;

static bool ends_with(const char *text, const char *end, size_t *rest)
{
    const size_t length = strlen(text);
    const size_t tail = strlen(end);
    *rest = length > tail ? length - tail : 0;
    return length > tail && strcmp(text + *rest, end) == 0;
}

static part part_of(const char *name, size_t *rest)
{
    return ends_with(name, "/send", rest)      ? SEND
           : ends_with(name, "/sent", rest)    ? SENT
           : ends_with(name, "/receive", rest) ? RECEIVE
                                               : NO_PART;
}

static int find_op(const stage *s, const char *name)
{
    const ckpt_named wanted = {name, -1};
    int low = 0;
    for (int high = s->graph->op_count; low < high;) {
        const int middle = low + (high - low) / 2;
        const bool before = ckpt_named_compare(&s->names[middle], &wanted) < 0;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low < s->graph->op_count && strcmp(s->names[low].name, name) == 0 ? s->names[low].op : -1;
}

static ckpt_code list_names(stage *s, ckpt_arena *out, ckpt_err *err)
{
    const int ops = s->graph->op_count;
    s->names = CKPT_NEW(out, ckpt_named, ops);
    s->message = CKPT_NEW(out, message, ops);
    s->begun = CKPT_NEW(out, ckpt_ns, ops);
    s->end = CKPT_NEW(out, ckpt_ns, ops);
    s->event = CKPT_NEW(out, ckpt_event, 2 * (size_t)s->plan->step_count);
    if (s->names == NULL || s->message == NULL || s->begun == NULL || s->end == NULL || s->event == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "clock of %d ops", ops);
    }
    for (int o = 0; o < ops; o++) {
        s->names[o] = (ckpt_named){s->graph->op[o].name, o};
        s->begun[o] = s->end[o] = -1;
    }
    qsort(s->names, (size_t)ops, sizeof *s->names, ckpt_named_compare);
    CKPT_TRY(ckpt_clock_start(&s->clock, s->graph, out, err));
    return ckpt_plan_simulate(s->plan, s->graph, out, &s->alone, err);
}

/* The op that op o of stage `at` waits for. Values go to later stages, gradients to earlier ones. */
static ckpt_code find_message(stage *all, int stages, int at, int o, ckpt_arena *out, ckpt_err *err)
{
    const char *const name = all[at].graph->op[o].name;
    size_t rest = 0;
    size_t unused = 0;
    message *const m = &all[at].message[o];
    m->part = part_of(name, &rest);
    if (m->part == NO_PART) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(out);
    const char *const stem = ckpt_arena_format(out, "%.*s", (int)rest, name);
    const char *const other =
        ckpt_arena_format(out, "%.*s%s", (int)rest, name, m->part == RECEIVE ? "/send" : "/receive");
    if (stem == NULL || other == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a message");
    }
    const bool backward = ends_with(stem, "/grad", &unused);
    const int way = backward == (m->part == RECEIVE) ? 1 : -1;
    m->op = -1;
    for (int s = at + way; s >= 0 && s < stages && m->op < 0; s += way) {
        m->stage = s;
        m->op = find_op(&all[s], other);
    }
    if (m->op < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "stage %d has %.120s, but no stage %s it has %.120s", at, name,
                         way > 0 ? "behind" : "before", other);
    }
    ckpt_arena_rewind(out, mark);
    return CKPT_OK;
}

/* When the op that the run waits for ends; -1: not known yet. */
static ckpt_ns ready(const stage *all, const message *m)
{
    const stage *const other = &all[m->stage];
    return m->part == RECEIVE ? other->end[m->op] : m->part == SENT ? other->begun[m->op] : 0;
}

static void add_event(stage *s, ckpt_ns start, ckpt_ns end, bool wait)
{
    ckpt_event *const event = &s->event[s->event_count++];
    *event = s->alone->event[s->step];
    event->start_ns = start;
    event->end_ns = end;
    if (wait) { /* nothing is there yet that was not before */
        event->span = CKPT_SPAN_WAIT;
        memset(event->bytes, 0, sizeof event->bytes);
        for (int i = 0; i < s->graph->static_count && s->step == 0; i++) {
            event->bytes[ckpt_static_category(s->graph->statics[i].name)] += s->graph->statics[i].bytes;
        }
        for (int c = 0; c < CKPT_CATEGORY_COUNT && s->step > 0; c++) {
            event->bytes[c] = c == CKPT_CAT_WORKSPACE ? 0 : s->alone->event[s->step - 1].bytes[c];
        }
    } else if (s->step == s->alone->peak_event) {
        s->peak_event = s->event_count - 1;
    }
}

/* One step. *moved: it was done. */
static ckpt_code try_step(stage *all, stage *s, bool *moved, ckpt_err *err)
{
    const ckpt_step *const step = &s->plan->step[s->step];
    const bool first = step->kind == CKPT_RUN && !step->recomputed;
    const message none = {.part = NO_PART};
    const message *const m = first ? &s->message[step->target] : &none;
    if (first && s->begun[step->target] < 0) {
        s->begun[step->target] = s->clock.now;
    }
    const ckpt_ns wait = m->part == NO_PART || m->part == SEND ? 0 : ready(all, m);
    *moved = wait >= 0;
    if (!*moved) {
        return CKPT_OK;
    }
    if (wait > s->clock.now) {
        add_event(s, s->clock.now, wait, true);
        s->clock.now = wait;
    }
    ckpt_moment moment;
    if (!ckpt_clock_step(&s->clock, step, &moment)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "step %d (%s) ends beyond 2^63 ns", s->step, step->name);
    }
    s->busy += step->kind == CKPT_RUN ? moment.end_ns - moment.start_ns : 0;
    if (first) {
        s->end[step->target] = moment.end_ns;
    }
    add_event(s, moment.start_ns, moment.end_ns, false);
    s->step++;
    return CKPT_OK;
}

static ckpt_code deadlock(const stage *all, int stages, ckpt_err *err)
{
    char text[300] = "";
    for (int i = 0; i < stages; i++) {
        const size_t length = strlen(text);
        if (all[i].step < all[i].plan->step_count) {
            (void)snprintf(text + length, sizeof text - length, "%s stage %d in %.60s", length > 0 ? "," : "", i,
                           all[i].plan->step[all[i].step].name);
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "stages wait for each other:%s", text);
}

static ckpt_code run_all(stage *all, int stages, ckpt_err *err)
{
    bool any = true;
    while (any) {
        any = false;
        for (int i = 0; i < stages; i++) {
            for (bool moved = true; moved && all[i].step < all[i].plan->step_count;) {
                CKPT_TRY(try_step(all, &all[i], &moved, err));
                any = any || moved;
            }
        }
    }
    bool done = true;
    for (int i = 0; i < stages; i++) {
        done = done && all[i].step == all[i].plan->step_count;
    }
    return done ? CKPT_OK : deadlock(all, stages, err);
}

static ckpt_code finish(const stage *s, int number, int stages, ckpt_ns time, ckpt_arena *out,
                        ckpt_pipeline_stage *made, ckpt_err *err)
{
    ckpt_trace *const trace = CKPT_NEW(out, ckpt_trace, 1);
    const bool named = strstr(s->alone->name, ", stage ") != NULL;
    const char *const name =
        named ? s->alone->name : ckpt_arena_format(out, "%s, stage %d of %d", s->alone->name, number, stages);
    if (trace == NULL || name == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "trace of a stage");
    }
    *trace = *s->alone;
    trace->name = name;
    trace->event = s->event;
    trace->event_count = s->event_count;
    trace->peak_event = s->peak_event;
    trace->time_ns = ckpt_clock_end(&s->clock);
    *made = (ckpt_pipeline_stage){
        .trace = trace,
        .busy_ns = s->busy,
        .idle_ns = time - s->busy,
        .bubble = time > 0 ? (double)(time - s->busy) / (double)time : 0,
    };
    return CKPT_OK;
}

ckpt_code ckpt_pipeline_simulate(const ckpt_plan *const *plan, const ckpt_graph *const *graph, int stages,
                                 ckpt_arena *out, ckpt_pipeline *pipeline, ckpt_err *err)
{
    stage *const all = CKPT_NEW(out, stage, stages);
    ckpt_pipeline_stage *const made = CKPT_NEW(out, ckpt_pipeline_stage, stages);
    if (all == NULL || made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d stages", stages);
    }
    for (int i = 0; i < stages; i++) {
        all[i].plan = plan[i];
        all[i].graph = graph[i];
        CKPT_TRY(list_names(&all[i], out, err));
    }
    for (int i = 0; i < stages; i++) {
        for (int o = 0; o < graph[i]->op_count; o++) {
            CKPT_TRY(find_message(all, stages, i, o, out, err));
        }
    }
    CKPT_TRY(run_all(all, stages, err));
    ckpt_pipeline done = {.stage = made, .stages = stages};
    for (int i = 0; i < stages; i++) {
        const ckpt_ns end = ckpt_clock_end(&all[i].clock);
        done.time_ns = end > done.time_ns ? end : done.time_ns;
    }
    for (int i = 0; i < stages; i++) {
        CKPT_TRY(finish(&all[i], i, stages, done.time_ns, out, &made[i], err));
        done.bubble += made[i].bubble / stages;
    }
    *pipeline = done;
    return CKPT_OK;
}
