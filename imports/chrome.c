/* Makes a ckpt-trace/1 of a Chrome trace: the memory of one device and the work on it, or on the CPU's threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "imports/chrome_impl.h"
#include "imports/import.h"

static int by_gpu_and_order(const void *a, const void *b)
{
    const ckpt_chrome_work *const x = a, *const y = b;
    return x->device != y->device ? ckpt_import_compare(x->device, y->device) : ckpt_import_compare(x->order, y->order);
}

/* Chooses the GPU whose memory was chosen, else the one with the most work. */
static void choose_works(ckpt_chrome_import *in)
{
    ckpt_chrome_work *const work = in->chrome->works.at;
    const int count = in->chrome->works.count;
    int most = 0;
    int taken = 0;
    if (count == 0) {
        return;
    }
    qsort(work, (size_t)count, sizeof *work, by_gpu_and_order);
    in->work_of = in->memory_of.number;
    for (int begin = 0, end = 0; begin < count; begin = end) {
        while (end < count && work[end].device == work[begin].device) {
            end++;
        }
        const bool gpu_memory = in->memory_count > 0 && in->memory_of.type != CKPT_CHROME_CPU;
        if (gpu_memory ? work[begin].device == in->work_of : end - begin > most) {
            most = taken = end - begin;
            in->work_of = work[begin].device;
        }
    }
    if (taken < count) {
        ckpt_import_say(in->note,
                        "%d kernels, copies and fills of other GPUs are left out: the trace is of GPU %" PRId64,
                        count - taken, in->work_of);
    }
}

static bool is_run(const ckpt_chrome_import *in, const ckpt_chrome_span *span)
{
    return in->chrome->works.count == 0 && span->place.op == span;
}

/* Finds whether the trace has a backward, and the start of the first event to be taken. */
static void look_over(ckpt_chrome_import *in)
{
    const ckpt_chrome_span *const span = in->chrome->spans.at;
    const ckpt_chrome_work *const work = in->chrome->works.at;
    in->first_ns = in->memory_count > 0 ? in->memory[0].at_ns : INT64_MAX;
    for (int i = 0; i < in->chrome->spans.count; i++) {
        in->backward = in->backward || span[i].place.backward;
        in->first_ns = is_run(in, &span[i]) && span[i].start_ns < in->first_ns ? span[i].start_ns : in->first_ns;
    }
    for (int i = 0; i < in->chrome->works.count; i++) {
        const bool first = work[i].device == in->work_of && work[i].start_ns < in->first_ns;
        in->first_ns = first ? work[i].start_ns : in->first_ns;
    }
}

static const char *thread_text(ckpt_chrome_import *in, const ckpt_chrome_span *span)
{
    const ckpt_slice name = ckpt_chrome_thread_name(in->chrome, span->thread);
    const char *const tid = span->tid.at != NULL ? ckpt_slice_text(span->tid, &in->scratch) : "";
    const char *const said = name.at != NULL ? ckpt_slice_text(name, &in->scratch) : "thread";
    if (tid == NULL || said == NULL) {
        return NULL;
    }
    /* Kineto puts the number into the name; others may give several threads one name. */
    return strstr(said, tid) != NULL ? said : ckpt_arena_format(&in->scratch, "%s %s", said, tid);
}

static ckpt_span phase_of(const ckpt_chrome_import *in, const ckpt_chrome_place *place)
{
    return place == NULL     ? CKPT_SPAN_OTHER
           : place->update   ? CKPT_SPAN_UPDATE
           : place->backward ? CKPT_SPAN_BACKWARD
           : in->backward    ? CKPT_SPAN_FORWARD
                             : CKPT_SPAN_OTHER;
}

static ckpt_code add_works(ckpt_chrome_import *in)
{
    const ckpt_chrome_work *const work = in->chrome->works.at;
    for (int i = 0; i < in->chrome->works.count; i++) {
        const ckpt_chrome_work *const w = &work[i];
        if (w->device != in->work_of) {
            continue;
        }
        const char *const stream = w->stream.at != NULL ? ckpt_slice_text(w->stream, &in->scratch) : "?";
        const ckpt_event event = {
            .name = ckpt_chrome_name(w->name, "", &in->scratch),
            .layer = ckpt_chrome_layer_name(w->place, &in->scratch),
            .stream = stream != NULL ? ckpt_arena_format(&in->scratch, "stream %s", stream) : NULL,
            .span = w->kind == CKPT_CHROME_COPY ? CKPT_SPAN_COPY : phase_of(in, w->place),
            .start_ns = w->start_ns,
            .end_ns = w->end_ns,
            .size_bytes = w->bytes,
        };
        CKPT_TRY(ckpt_chrome_put(in, &event));
    }
    return CKPT_OK;
}

/* Adds the outermost operations of each thread: they do not overlap and cover all time spent in operations. */
static ckpt_code add_ops(ckpt_chrome_import *in, int *taken)
{
    const ckpt_chrome_span *const span = in->chrome->spans.at;
    for (int i = 0; i < in->chrome->spans.count; i++) {
        const ckpt_chrome_span *const s = &span[i];
        if (!is_run(in, s)) {
            continue;
        }
        const ckpt_event event = {
            .name = ckpt_chrome_op_name(s, &in->scratch),
            .layer = ckpt_chrome_layer_name(&s->place, &in->scratch),
            .stream = thread_text(in, s),
            .span = phase_of(in, &s->place),
            .start_ns = s->start_ns,
            .end_ns = s->end_ns,
        };
        CKPT_TRY(ckpt_chrome_put(in, &event));
        ++*taken;
    }
    return CKPT_OK;
}

static void say_what_is_left_out(const ckpt_chrome_import *in, int ops)
{
    const ckpt_chrome *const chrome = in->chrome;
    int spans = 0;
    for (int i = 0; i < chrome->spans.count; i++) {
        const ckpt_chrome_kind kind = ((const ckpt_chrome_span *)chrome->spans.at)[i].kind;
        spans += kind == CKPT_CHROME_OP || kind == CKPT_CHROME_ANY;
    }
    if (chrome->scan.ended) {
        ckpt_import_say(in->note, "the file ends in the middle, at line %d: %d whole events were read",
                        ckpt_scan_line(&chrome->scan, chrome->scan.end), chrome->event_count);
    }
    if (chrome->memories.count == 0) {
        ckpt_import_say(in->note, "no memory event has an address: record with profile_memory=True to see memory");
    }
    if (chrome->placeless_memories > 0) {
        ckpt_import_say(in->note, "%d memory events without an address are left out", chrome->placeless_memories);
    }
    if (chrome->works.count > 0 && spans > 0) {
        ckpt_import_say(in->note, "%d operations of the CPU are left out: the trace has what ran on the GPU", spans);
    } else if (spans > ops) {
        ckpt_import_say(in->note, "%d operations inside others are left out", spans - ops);
    }
    if (chrome->negative_times > 0) {
        ckpt_import_say(in->note, "%d durations below 0 count as 0", chrome->negative_times);
    }
    if (chrome->unfinished > 0 || chrome->unbegun > 0) {
        ckpt_import_say(in->note,
                        "%d events that begin and never end last to the end; %d that end and never began are left out",
                        chrome->unfinished, chrome->unbegun);
    }
}

static ckpt_code fill_trace(const ckpt_chrome_import *in, ckpt_arena *out, ckpt_trace *trace)
{
    const ckpt_chrome *const chrome = in->chrome;
    const ckpt_chrome_device *const devices = chrome->devices.at;
    trace->source = ckpt_arena_text(out, chrome->scan.source);
    trace->recorder = chrome->kineto ? "Kineto" : "a Chrome trace";
    const int64_t gpu = chrome->works.count > 0                 ? in->work_of
                        : in->memory_of.type != CKPT_CHROME_CPU ? in->memory_of.number
                                                                : -1;
    trace->machine.gpu = gpu >= 0;
    for (int i = 0; i < chrome->devices.count && gpu >= 0; i++) {
        if (devices[i].id == gpu) {
            trace->machine.device = ckpt_slice_text(devices[i].name, out);
        }
    }
    return trace->source != NULL && trace->machine.device != NULL
               ? CKPT_OK
               : CKPT_FAIL(in->err, CKPT_NO_MEMORY, "%.200s: no memory for a name", chrome->scan.source);
}

static ckpt_code import(ckpt_chrome_import *in, ckpt_arena *out, ckpt_trace **trace)
{
    ckpt_timeline_report report;
    ckpt_trace *made = NULL;
    int ops = 0;
    CKPT_TRY(ckpt_chrome_nest(in->chrome, in->err));
    ckpt_chrome_choose_memory(in);
    choose_works(in);
    look_over(in);
    CKPT_TRY(ckpt_timeline_create(out, &in->timeline, in->err));
    CKPT_TRY(ckpt_chrome_put_before(in));
    CKPT_TRY(add_works(in));
    CKPT_TRY(add_ops(in, &ops));
    CKPT_TRY(ckpt_chrome_put_memory(in)); /* after other events that start at the same moment */
    const char *const name = ckpt_import_base_name(in->chrome->scan.source);
    CKPT_TRY(ckpt_chrome_in_file(in, ckpt_timeline_finish(in->timeline, name, &made, &report, in->err)));
    if (made->event_count == 0) {
        return CKPT_FAIL(in->err, CKPT_BAD_INPUT,
                         "%.200s: found %d events, but no \"[memory]\" with an address, kernel or operation",
                         in->chrome->scan.source, in->chrome->event_count);
    }
    if (report.double_allocates > 0) {
        ckpt_import_say(in->note, "%d blocks were allocated where another still was: its free was not recorded",
                        report.double_allocates);
    }
    ckpt_chrome_check_totals(in);
    say_what_is_left_out(in, ops);
    CKPT_TRY(fill_trace(in, out, made));
    *trace = made;
    return CKPT_OK;
}

ckpt_code ckpt_import_chrome(const char *path, void (*note)(const char *line), ckpt_arena *out, ckpt_trace **trace,
                             ckpt_err *err)
{
    ckpt_chrome chrome;
    ckpt_chrome_import in = {.chrome = &chrome, .note = note, .err = err};
    ckpt_arena_init(&in.scratch);
    ckpt_code code = CKPT_NEW(&in.scratch, char, 1) != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory");
    in.empty = ckpt_arena_mark(&in.scratch);
    chrome = (ckpt_chrome){.event_count = 0};
    code = code != CKPT_OK ? code : ckpt_chrome_read(&chrome, path, err);
    code = code != CKPT_OK ? code : import(&in, out, trace);
    ckpt_arena_fini(&in.scratch);
    ckpt_chrome_fini(&chrome);
    return code;
}
