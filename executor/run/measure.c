/* The measured trace: what the executor itself counts while it runs, and what the process says about it. Nothing
 * here is taken from the simulator. */
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <malloc.h>
#endif

#include "core/base/clock.h"
#include "executor/run/run_impl.h"

/* Bytes that malloc has given out and not got back; 0 where the C library does not tell. */
static ckpt_bytes heap_bytes(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 info = mallinfo2();
    return (ckpt_bytes)(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

void ckpt_outside_start(ckpt_run *run)
{
    if (run->heap_bytes < 0) {
        run->heap_bytes = heap_bytes();
    }
}

ckpt_bytes ckpt_outside_look(ckpt_run *run)
{
    const ckpt_bytes more = heap_bytes() - run->heap_bytes;
    const ckpt_bytes outside = more > 0 ? more : 0;
    run->outside_bytes = outside > run->outside_bytes ? outside : run->outside_bytes;
    return outside;
}

/* Of the device's memory; of a CPU's the machine's; 0 where nobody tells. */
static ckpt_code capacity(ckpt_device *device, ckpt_bytes *bytes, ckpt_err *err)
{
    ckpt_device_memory memory;
    CKPT_TRY(device->api->memory(device, &memory, err));
    *bytes = memory.total;
#if defined(_SC_PHYS_PAGES)
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (!device->api->gpu && (pages <= 0 || page <= 0 || !ckpt_product(pages, page, bytes))) {
        *bytes = 0;
    }
#endif
    return CKPT_OK;
}

static bool has_stamps(const ckpt_program *program)
{
    return program->device->api->stamps != NULL;
}

/* Stamp 0 stands before the first step; then one before and one behind each. */
static int stamp_before(int step)
{
    return 1 + 2 * step;
}

static int stamp_behind(int step)
{
    return 2 + 2 * step;
}

ckpt_code ckpt_measured_create(const ckpt_program *program, ckpt_arena *out, ckpt_measured **created, ckpt_err *err)
{
    const ckpt_plan *const plan = program->plan;
    ckpt_device *const device = program->device;
    ckpt_measured *const measured = CKPT_NEW(out, ckpt_measured, 1);
    ckpt_event *const event = CKPT_NEW(out, ckpt_event, plan->step_count);
    if (measured == NULL || event == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d steps", plan->step_count);
    }
    const char *name = NULL;
    CKPT_TRY(ckpt_scheme_title(&plan->scheme, plan->graph_name, out, &name, err));
    measured->event = event;
    measured->out = out;
    measured->trace = (ckpt_trace){
        .source = plan->source,
        .name = name,
        .plan = plan->solver,
        .measured = true,
        .budget_bytes = plan->budget_bytes,
        .static_bytes = program->layout.total,
        .arena_bytes = plan->arena_bytes,
        .recorder = "",
        .event = event,
    };
    CKPT_TRY(
        ckpt_measured_allocations(program, out, &measured->trace.allocation, &measured->trace.allocation_count, err));
    CKPT_TRY(capacity(device, &measured->trace.capacity_bytes, err));
    if (has_stamps(program)) {
        CKPT_TRY(device->api->stamps(device, stamp_before(plan->step_count), err));
    }
    CKPT_TRY(ckpt_machine_read(device->threads, device->api->libraries(device), 0, NULL, out, &measured->trace.machine,
                               err));
    if (device->api->gpu) {
        CKPT_TRY(ckpt_machine_set_gpu(&measured->trace.machine, device->api->describe(device), out, err));
    }
    *created = measured;
    return CKPT_OK;
}

ckpt_code ckpt_measured_start(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err)
{
    if (measured == NULL) {
        return CKPT_OK;
    }
    measured->start_ns = ckpt_clock_ns();
    measured->trace.event_count = 0;
    measured->trace.peak_bytes = program->layout.total;
    measured->trace.peak_event = 0;
    if (!has_stamps(program)) {
        return CKPT_OK;
    }
    ckpt_records_start(measured);
    return program->device->api->stamp(program->device, 0, CKPT_STREAM_COMPUTE, err);
}

ckpt_code ckpt_measured_before(const ckpt_program *program, ckpt_measured *measured, int step, ckpt_err *err)
{
    if (measured == NULL) {
        return CKPT_OK;
    }
    if (has_stamps(program)) {
        ckpt_device *const device = program->device;
        ckpt_records_push(measured, step);
        return device->api->stamp(device, stamp_before(step), program->action[step].stream, err);
    }
    measured->event[step].start_ns = ckpt_clock_ns() - measured->start_ns;
    return CKPT_OK;
}

static const char *stream_name(ckpt_stream stream)
{
    return stream == CKPT_STREAM_D2H ? "d2h" : stream == CKPT_STREAM_H2D ? "h2d" : "compute";
}

/* mallinfo2 walks over every free piece of the heap. Where there are many, a walk after every op takes longer than the
 * ops and evicts what they need from the caches. So looking may take a twentieth of the time; in between, the last
 * number stands. */
static ckpt_bytes look_outside(ckpt_run *run, ckpt_measured *measured)
{
    enum { PART = 20 };
    const ckpt_ns now = ckpt_clock_ns();
    if (now - measured->looked_ns >= PART * measured->look_ns) {
        measured->outside_bytes = ckpt_outside_look(run);
        measured->looked_ns = ckpt_clock_ns();
        measured->look_ns = measured->looked_ns - now;
    }
    return measured->outside_bytes;
}

/* What is in memory is known when a step is started; when it ran is not. */
static void add_event(ckpt_run *run, ckpt_measured *measured, int step)
{
    const ckpt_program *const program = run->program;
    const ckpt_action *const action = &program->action[step];
    ckpt_event *const event = &measured->event[step];
    event->step = step;
    event->name = action->name;
    event->layer = action->layer;
    event->stream = stream_name(action->stream);
    event->span = action->span;
    event->variant = program->plan->step[step].variant;
    event->inexact = program->plan->step[step].inexact;
    event->kernel_ns = 0;
    event->launches = 0;
    memcpy(event->bytes, run->live, sizeof event->bytes);
    event->bytes[CKPT_CAT_WORKSPACE] = action->args.workspace_bytes;
    ckpt_bytes total = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        total += event->bytes[c];
    }
    /* A recorder's buffers would be all there is to see. */
    event->bytes[CKPT_CAT_OUTSIDE] = measured->recorder == NULL ? look_outside(run, measured) : 0;
    if (total > measured->trace.peak_bytes || step == 0) {
        measured->trace.peak_bytes = total;
        measured->trace.peak_event = step;
    }
    measured->trace.event_count = step + 1;
}

ckpt_code ckpt_measured_after(ckpt_run *run, ckpt_measured *measured, int step, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    if (measured == NULL) {
        return CKPT_OK;
    }
    if (has_stamps(program)) {
        ckpt_records_pop(measured);
        CKPT_TRY(device->api->stamp(device, stamp_behind(step), program->action[step].stream, err));
    } else {
        CKPT_TRY(device->api->finish(device, err));
        measured->event[step].end_ns = ckpt_clock_ns() - measured->start_ns;
    }
    const ckpt_ns now = ckpt_clock_ns();
    add_event(run, measured, step);
    measured->start_ns += ckpt_clock_ns() - now; /* the host's clock stands still meanwhile: it is no part of a step */
    return CKPT_OK;
}

static ckpt_code read_stamps(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    for (int s = 0; s < measured->trace.event_count; s++) {
        ckpt_event *const event = &measured->event[s];
        CKPT_TRY(device->api->stamp_ns(device, stamp_before(s), &event->start_ns, err));
        CKPT_TRY(device->api->stamp_ns(device, stamp_behind(s), &event->end_ns, err));
        /* the clock of stamps has steps of half a microsecond or so */
        event->start_ns = event->start_ns > 0 ? event->start_ns : 0;
        event->end_ns = event->end_ns > event->start_ns ? event->end_ns : event->start_ns;
    }
    return CKPT_OK;
}

ckpt_code ckpt_measured_end(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err)
{
    if (measured == NULL) {
        return CKPT_OK;
    }
    measured->trace.time_ns = ckpt_clock_ns() - measured->start_ns;
    if (!has_stamps(program)) {
        return CKPT_OK;
    }
    CKPT_TRY(read_stamps(program, measured, err));
    ckpt_records_end(program, measured);
    measured->trace.time_ns = 0;
    for (int s = 0; s < measured->trace.event_count; s++) {
        const ckpt_ns end = measured->event[s].end_ns;
        measured->trace.time_ns = end > measured->trace.time_ns ? end : measured->trace.time_ns;
    }
    return CKPT_OK;
}
