/* The measured trace: what the executor itself counts while it runs, and what the process says about it. Nothing
 * here is taken from the simulator. */
#include <string.h>
#include <sys/resource.h>

#if defined(__linux__)
#include <malloc.h>
#endif

#include "core/cli.h"
#include "executor/executor_impl.h"

ckpt_bytes ckpt_heap_bytes(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 info = mallinfo2();
    return (ckpt_bytes)(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

static ckpt_bytes process_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (ckpt_bytes)usage.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}

ckpt_code ckpt_executor_trace_create(const ckpt_executor *executor, ckpt_arena *out, ckpt_trace **trace, ckpt_err *err)
{
    const ckpt_plan *const plan = executor->plan;
    ckpt_recording *const recording = CKPT_NEW(out, ckpt_recording, 1);
    ckpt_event *const event = CKPT_NEW(out, ckpt_event, plan->step_count);
    if (recording == NULL || event == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d steps", plan->step_count);
    }
    recording->event = event;
    recording->trace = (ckpt_trace){
        .source = plan->source,
        .name = plan->graph_name,
        .plan = plan->solver,
        .measured = true,
        .budget_bytes = plan->budget_bytes,
        .static_bytes = executor->layout.total,
        .arena_bytes = plan->arena_bytes,
        .event = event,
    };
    CKPT_TRY(ckpt_machine_read(executor->device->threads, executor->device->api->libraries(executor->device), 0, NULL,
                               out, &recording->trace.machine, err));
    *trace = &recording->trace;
    return CKPT_OK;
}

void ckpt_recording_start(const ckpt_executor *executor, ckpt_recording *recording)
{
    if (recording != NULL) {
        recording->start_ns = ckpt_clock_ns();
        recording->trace.event_count = 0;
        recording->trace.peak_bytes = executor->layout.total;
        recording->trace.peak_event = 0;
    }
}

static const char *stream_of(ckpt_step_kind kind)
{
    return kind == CKPT_OFFLOAD ? "d2h" : kind == CKPT_FETCH ? "h2d" : "compute";
}

void ckpt_recording_add(const ckpt_executor *executor, ckpt_recording *recording, int step, ckpt_ns start_ns,
                        ckpt_ns end_ns, ckpt_bytes workspace_bytes)
{
    const ckpt_action *const action = &executor->action[step];
    ckpt_event *const event = &recording->event[recording->trace.event_count];
    *event = (ckpt_event){
        .step = step,
        .name = action->name,
        .layer = action->layer,
        .stream = stream_of(action->kind),
        .span = action->span,
        .start_ns = start_ns - recording->start_ns,
        .end_ns = end_ns - recording->start_ns,
    };
    memcpy(event->bytes, executor->live, sizeof event->bytes);
    event->bytes[CKPT_CAT_WORKSPACE] = workspace_bytes;
    const ckpt_bytes outside = ckpt_heap_bytes() - executor->heap_bytes;
    ckpt_bytes total = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        total += event->bytes[c];
    }
    event->bytes[CKPT_CAT_OUTSIDE] = outside > 0 ? outside : 0;
    if (total > recording->trace.peak_bytes || recording->trace.event_count == 0) {
        recording->trace.peak_bytes = total;
        recording->trace.peak_event = recording->trace.event_count;
    }
    recording->trace.event_count++;
}

void ckpt_recording_end(ckpt_recording *recording)
{
    if (recording != NULL) {
        recording->trace.time_ns = ckpt_clock_ns() - recording->start_ns;
        recording->trace.process_peak_bytes = process_peak_bytes();
    }
}

ckpt_bytes ckpt_executor_host_bytes(const ckpt_executor *executor)
{
    return executor->slab_bytes;
}
