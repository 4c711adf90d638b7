/* What the device itself recorded of a traced step. Every step of the plan carries its number as a tag; what was
 * started under it gives the step its start, its end and its time in kernels, all on one clock. A step that started
 * nothing has no length, and follows the step before it on its stream; where records were lost it keeps its stamps. */
#include <string.h>

#include "executor/run/run_impl.h"

/* Training goes on, and the trace has the stamps' times. */
static void keep_going(ckpt_measured *measured, ckpt_code code)
{
    measured->recording = measured->recording && code == CKPT_OK;
}

/* What was recorded before this step is nobody's. */
void ckpt_records_start(ckpt_measured *measured)
{
    measured->lost = (ckpt_err){0};
    measured->trace.recorder = "";
    if (measured->recorder == NULL) {
        return;
    }
    measured->recording = true;
    const ckpt_mark mark = ckpt_arena_mark(measured->out);
    const ckpt_activity *activity = NULL;
    int count = 0;
    keep_going(measured, ckpt_recorder_collect(measured->recorder, measured->out, &activity, &count, &measured->lost));
    ckpt_arena_rewind(measured->out, mark);
    ckpt_recorder_report report = {0};
    ckpt_recorder_tell(measured->recorder, &report);
    measured->dropped_before = report.dropped + report.odd;
}

void ckpt_records_push(ckpt_measured *measured, int step)
{
    if (measured->recording) {
        keep_going(measured, ckpt_recorder_push(measured->recorder, (uint64_t)step + 1, &measured->lost));
    }
}

void ckpt_records_pop(ckpt_measured *measured)
{
    if (measured->recording) {
        keep_going(measured, ckpt_recorder_pop(measured->recorder, &measured->lost));
    }
}

/* First start and last end of what a step started, on the recorder's clock. */
typedef struct ckpt_stretch {
    ckpt_ns start_ns, end_ns;
} ckpt_stretch;

/* Add up what carries a step's tag, in order of start, and what overlaps once; gives how many activities did. */
static int64_t add_up(ckpt_measured *measured, const ckpt_activity *activity, int count, ckpt_stretch *stretch)
{
    int64_t found = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_activity *const a = &activity[i];
        if (!ckpt_activity_ran(a) || a->tag == 0 || a->tag > (uint64_t)measured->trace.event_count) {
            continue;
        }
        ckpt_event *const event = &measured->event[a->tag - 1];
        ckpt_stretch *const s = &stretch[a->tag - 1];
        if (event->launches == 0) {
            s->start_ns = s->end_ns = a->start_ns;
        }
        if (a->end_ns > s->end_ns) {
            event->kernel_ns += a->end_ns - (a->start_ns > s->end_ns ? a->start_ns : s->end_ns);
            s->end_ns = a->end_ns;
        }
        event->launches++;
        found++;
    }
    return found;
}

/* What to take from the recorder's clock: it and the stamps' are the device's both, and differ by where they begin. The
 * first that ran of all starts with its stamp. */
static ckpt_ns find_origin(const ckpt_measured *measured, const ckpt_stretch *stretch)
{
    int first = -1;
    for (int s = 0; s < measured->trace.event_count; s++) {
        if (measured->event[s].launches > 0 && (first < 0 || stretch[s].start_ns < stretch[first].start_ns)) {
            first = s;
        }
    }
    return stretch[first].start_ns - measured->event[first].start_ns;
}

/* `all`: no record was lost. Steps of one stream run in order; stamps are exact to half a microsecond or so. */
static void put_times(const ckpt_program *program, ckpt_measured *measured, const ckpt_stretch *stretch, bool all)
{
    const ckpt_ns origin = find_origin(measured, stretch);
    ckpt_ns free_from[CKPT_STREAM_COUNT] = {0};
    for (int s = 0; s < measured->trace.event_count; s++) {
        ckpt_event *const event = &measured->event[s];
        ckpt_ns *const from = &free_from[program->action[s].stream];
        if (event->launches > 0) {
            event->start_ns = stretch[s].start_ns - origin;
            event->end_ns = stretch[s].end_ns - origin;
        } else if (all) {
            event->start_ns = event->end_ns = *from;
        }
        event->start_ns = event->start_ns > *from ? event->start_ns : *from;
        event->end_ns = event->end_ns > event->start_ns ? event->end_ns : event->start_ns;
        *from = event->end_ns;
    }
}

static ckpt_code join(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err)
{
    const ckpt_activity *activity = NULL;
    int count = 0;
    CKPT_TRY(ckpt_recorder_collect(measured->recorder, measured->out, &activity, &count, err));
    ckpt_stretch *const stretch = CKPT_NEW(measured->out, ckpt_stretch, measured->trace.event_count);
    if (stretch == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the records of %d steps", measured->trace.event_count);
    }
    if (add_up(measured, activity, count, stretch) == 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "of %d records none belongs to a step", count);
    }
    ckpt_recorder_report report = {0};
    ckpt_recorder_tell(measured->recorder, &report);
    put_times(program, measured, stretch, report.dropped + report.odd == measured->dropped_before);
    return CKPT_OK;
}

void ckpt_records_end(const ckpt_program *program, ckpt_measured *measured)
{
    if (!measured->recording) {
        return;
    }
    measured->recording = false;
    const ckpt_mark mark = ckpt_arena_mark(measured->out);
    const ckpt_code code = join(program, measured, &measured->lost);
    ckpt_arena_rewind(measured->out, mark);
    if (code != CKPT_OK) {
        return;
    }
    const char *const text = ckpt_recorder_describe(measured->recorder, measured->out);
    measured->trace.recorder = text != NULL ? text : "recorded";
}
