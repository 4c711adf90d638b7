/* A Chrome trace as a ckpt-trace/1: the memory of one device and what ran on it, or on the CPU's threads.
 *
 * What was allocated before the recording began is known twice: by "Total Allocated" of the first event, and by the
 * frees of blocks that nobody allocated. Each such block becomes an allocation at the start, and what is left of the
 * total one more, so that the sum over time is the recorder's own. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timeline.h"
#include "imports/chrome_impl.h"
#include "imports/import.h"

enum { DEVICE_CPU = 0 };

typedef struct device {
    int64_t type, number;
} device;

typedef struct importer {
    ckpt_chrome *chrome;
    ckpt_timeline *timeline;
    void (*note)(const char *line);
    ckpt_err *err;
    ckpt_arena scratch;         /* texts until the timeline has copied them */
    ckpt_mark empty;            /* of scratch, with its first block */
    ckpt_chrome_memory *memory; /* of the device that was chosen, by time */
    int memory_count;
    device memory_of; /* valid when memory_count > 0 */
    int64_t work_of;  /* the GPU whose work is taken */
    bool backward;    /* the trace shows one */
    ckpt_ns first_ns; /* of all that is taken */
} importer;

static void say(const importer *in, const char *format, ...) CKPT_PRINTF(2, 3);

static void say(const importer *in, const char *format, ...)
{
    char line[400];
    va_list args;
    if (in->note == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    in->note(line);
}

static const char *device_name(device d, char text[64])
{
    if (d.type == DEVICE_CPU) {
        snprintf(text, 64, "the CPU");
    } else if (d.type == 1) {
        snprintf(text, 64, "CUDA device %" PRId64, d.number);
    } else {
        snprintf(text, 64, "device %" PRId64 " of type %" PRId64, d.number, d.type);
    }
    return text;
}

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_device_and_time(const void *a, const void *b)
{
    const ckpt_chrome_memory *const x = a, *const y = b;
    const int64_t keys[][2] = {
        {x->device_type, y->device_type}, {x->device, y->device}, {x->at_ns, y->at_ns}, {x->order, y->order}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1]) {
            return compare(keys[i][0], keys[i][1]);
        }
    }
    return 0;
}

static int by_gpu_and_order(const void *a, const void *b)
{
    const ckpt_chrome_work *const x = a, *const y = b;
    return x->device != y->device ? compare(x->device, y->device) : compare(x->order, y->order);
}

/* The most bytes a device ever held, by its own totals or the running sum. Sums wrap rather than overflow: they only
 * choose; the timeline checks. */
static uint64_t most_bytes(const ckpt_chrome_memory *memory, int count)
{
    uint64_t sum = 0;
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        sum += (uint64_t)memory[i].bytes;
        const uint64_t held = memory[i].total >= 0 ? (uint64_t)memory[i].total : sum;
        most = held > most && held <= INT64_MAX ? held : most;
    }
    return most;
}

/* One device's memory: of the GPU with the most bytes, else of the CPU. */
static void choose_memory(importer *in)
{
    ckpt_chrome_memory *const all = in->chrome->memories.at;
    const int count = in->chrome->memories.count;
    uint64_t most = 0;
    int others = 0;
    if (count == 0) {
        return;
    }
    qsort(all, (size_t)count, sizeof *all, by_device_and_time);
    for (int begin = 0, end = 0; begin < count; begin = end) {
        while (end < count && all[end].device_type == all[begin].device_type && all[end].device == all[begin].device) {
            end++;
        }
        const uint64_t held = most_bytes(&all[begin], end - begin);
        const bool gpu = all[begin].device_type != DEVICE_CPU;
        const bool have_gpu = in->memory_count > 0 && in->memory_of.type != DEVICE_CPU;
        if (in->memory_count == 0 || (gpu && !have_gpu) || (gpu == have_gpu && held > most)) {
            most = held;
            in->memory = &all[begin];
            in->memory_count = end - begin;
            in->memory_of = (device){all[begin].device_type, all[begin].device};
        }
    }
    others = count - in->memory_count;
    if (others > 0) {
        char name[64];
        say(in, "%d memory events of other devices are left out: the trace has the memory of %s", others,
            device_name(in->memory_of, name));
    }
}

/* The GPU whose memory it is, else the one with the most work. */
static void choose_works(importer *in)
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
        const bool gpu_memory = in->memory_count > 0 && in->memory_of.type != DEVICE_CPU;
        if (gpu_memory ? work[begin].device == in->work_of : end - begin > most) {
            most = taken = end - begin;
            in->work_of = work[begin].device;
        }
    }
    if (taken < count) {
        say(in, "%d kernels, copies and fills of other GPUs are left out: the trace is of GPU %" PRId64, count - taken,
            in->work_of);
    }
}

static bool is_run(const importer *in, const ckpt_chrome_span *span)
{
    return in->chrome->works.count == 0 && span->place.op == span;
}

/* Whether there is a backward, and when the first of all that is taken starts. */
static void look_over(importer *in)
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

static ckpt_code no_memory(const importer *in)
{
    return CKPT_FAIL(in->err, CKPT_NO_MEMORY, "%.200s: no memory for a name", in->chrome->scan.source);
}

/* The name after its prefix, when it has one. NULL: no memory. */
static const char *name_of(importer *in, ckpt_slice name, const char *prefix)
{
    char *const text = name.at != NULL ? ckpt_slice_text(name, &in->scratch) : ckpt_arena_text(&in->scratch, "");
    const size_t length = strlen(prefix);
    return text != NULL && strncmp(text, prefix, length) == 0 && text[length] != '\0' ? text + length : text;
}

static const char *op_name(importer *in, const ckpt_chrome_span *op)
{
    return name_of(in, op->name, "autograd::engine::evaluate_function: ");
}

static const char *layer_name(importer *in, const ckpt_chrome_place *place)
{
    return place != NULL && place->layer != NULL ? name_of(in, place->layer->name, "nn.Module: ") : "";
}

static const char *thread_text(importer *in, const ckpt_chrome_span *span)
{
    const ckpt_slice name = ckpt_chrome_thread_name(in->chrome, span->thread);
    const char *const tid = span->tid.at != NULL ? ckpt_slice_text(span->tid, &in->scratch) : "";
    const char *const said = name.at != NULL ? ckpt_slice_text(name, &in->scratch) : "thread";
    if (tid == NULL || said == NULL) {
        return NULL;
    }
    /* Kineto's names have the number in them; others' may be the same for several threads. */
    return strstr(said, tid) != NULL ? said : ckpt_arena_format(&in->scratch, "%s %s", said, tid);
}

static ckpt_span phase_of(const importer *in, const ckpt_chrome_place *place)
{
    return place == NULL     ? CKPT_SPAN_OTHER
           : place->update   ? CKPT_SPAN_UPDATE
           : place->backward ? CKPT_SPAN_BACKWARD
           : in->backward    ? CKPT_SPAN_FORWARD
                             : CKPT_SPAN_OTHER;
}

/* The timeline does not know the file. */
static ckpt_code in_file(const importer *in, ckpt_code code)
{
    if (code != CKPT_OK && code != CKPT_NO_MEMORY) {
        ckpt_err_at(in->err, "%.200s", in->chrome->scan.source);
    }
    return code;
}

static ckpt_code add(importer *in, const ckpt_event *event)
{
    if (event->name == NULL || event->layer == NULL || event->stream == NULL) {
        return no_memory(in);
    }
    const ckpt_code code = ckpt_timeline_add(in->timeline, event, CKPT_CAT_OTHER, in->err);
    ckpt_arena_rewind(&in->scratch, in->empty);
    return in_file(in, code);
}

static ckpt_code add_works(importer *in)
{
    const ckpt_chrome_work *const work = in->chrome->works.at;
    for (int i = 0; i < in->chrome->works.count; i++) {
        const ckpt_chrome_work *const w = &work[i];
        if (w->device != in->work_of) {
            continue;
        }
        const char *const stream = w->stream.at != NULL ? ckpt_slice_text(w->stream, &in->scratch) : "?";
        const ckpt_event event = {
            .name = name_of(in, w->name, ""),
            .layer = layer_name(in, w->place),
            .stream = stream != NULL ? ckpt_arena_format(&in->scratch, "stream %s", stream) : NULL,
            .span = w->kind == CKPT_CHROME_COPY ? CKPT_SPAN_COPY : phase_of(in, w->place),
            .start_ns = w->start_ns,
            .end_ns = w->end_ns,
            .size_bytes = w->bytes,
        };
        CKPT_TRY(add(in, &event));
    }
    return CKPT_OK;
}

/* The outermost operations of each thread: they do not overlap, and together take all the time operations take. */
static ckpt_code add_ops(importer *in, int *taken)
{
    const ckpt_chrome_span *const span = in->chrome->spans.at;
    for (int i = 0; i < in->chrome->spans.count; i++) {
        const ckpt_chrome_span *const s = &span[i];
        if (!is_run(in, s)) {
            continue;
        }
        const ckpt_event event = {
            .name = op_name(in, s),
            .layer = layer_name(in, &s->place),
            .stream = thread_text(in, s),
            .span = phase_of(in, &s->place),
            .start_ns = s->start_ns,
            .end_ns = s->end_ns,
        };
        CKPT_TRY(add(in, &event));
        ++*taken;
    }
    return CKPT_OK;
}

/* A block by its address, in memory events of one device in order of time. */
typedef struct owner {
    int64_t address;
    int place;  /* in the events, as they are by time */
    int before; /* the event of the same address before it; -1: none */
} owner;

static int by_address(const void *a, const void *b)
{
    const owner *const x = a, *const y = b;
    return x->address != y->address ? compare(x->address, y->address) : compare(x->place, y->place);
}

static ckpt_code add_before(importer *in, const char *name, int64_t address, ckpt_bytes bytes)
{
    const ckpt_event event = {
        .name = name,
        .layer = "",
        .stream = "compute",
        .span = CKPT_SPAN_ALLOCATE,
        .start_ns = in->first_ns,
        .end_ns = in->first_ns,
        .size_bytes = bytes,
        .address = address,
    };
    return add(in, &event);
}

static const char before_name[] = "before the recording";

/* Blocks of before the recording: those freed without having been allocated, and the rest of the first total. An
 * allocator gives no block at address 0, so that is where the rest lies. */
static ckpt_code add_blocks_before(importer *in, const owner *owners)
{
    ckpt_bytes known = 0;
    int count = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[owners[i].place];
        if (m->bytes < 0 && owners[i].before < 0) {
            CKPT_TRY(add_before(in, before_name, m->address, -m->bytes));
            if (!ckpt_sum(known, -m->bytes, &known)) {
                return CKPT_FAIL(in->err, CKPT_OVERFLOW, "%.200s: the sum of bytes freed does not fit 63 bits",
                                 in->chrome->scan.source);
            }
            count++;
        }
    }
    const ckpt_chrome_memory *const first = &in->memory[0];
    const ckpt_bytes total = first->total >= 0 ? first->total - first->bytes : known;
    if (total > known) {
        CKPT_TRY(add_before(in, before_name, 0, total - known));
    }
    if (total > 0 || known > 0) {
        say(in, "%" PRId64 " bytes were allocated before the recording began; %d of those blocks are freed in it",
            total > known ? total : known, count);
    }
    if (total < known) {
        say(in, "the blocks freed in it are %" PRId64 " bytes more than the total at the first event says",
            known - total);
    }
    return CKPT_OK;
}

/* The name under which a block was allocated: it is freed under the same. */
static const ckpt_chrome_memory *allocation_of(const importer *in, const int *before, int i)
{
    const ckpt_chrome_memory *const m = &in->memory[i];
    return m->bytes > 0 ? m : before[i] >= 0 ? &in->memory[before[i]] : NULL;
}

static ckpt_code add_memory(importer *in, const int *before)
{
    int freed_twice = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[i];
        const ckpt_chrome_memory *const made = allocation_of(in, before, i);
        if (made != NULL && made->bytes < 0) {
            freed_twice++;
            continue;
        }
        const ckpt_chrome_place *const place = made != NULL ? &made->span->place : NULL;
        const ckpt_event event = {
            .name = place == NULL       ? before_name
                    : place->op != NULL ? op_name(in, place->op)
                                        : "[memory]",
            .layer = layer_name(in, place),
            .stream = "compute",
            .span = m->bytes > 0 ? CKPT_SPAN_ALLOCATE : CKPT_SPAN_FREE,
            .start_ns = m->at_ns,
            .end_ns = m->at_ns,
            .size_bytes = m->bytes > 0 ? m->bytes : 0,
            .address = m->address,
        };
        CKPT_TRY(add(in, &event));
    }
    if (freed_twice > 0) {
        say(in, "%d frees of blocks that were freed already are left out", freed_twice);
    }
    return CKPT_OK;
}

static ckpt_code add_memories(importer *in)
{
    if (in->memory_count == 0) {
        return CKPT_OK;
    }
    const size_t count = (size_t)in->memory_count;
    owner *const owners = ckpt_memory_get(count * (sizeof(owner) + sizeof(int)));
    if (owners == NULL) {
        return CKPT_FAIL(in->err, CKPT_NO_MEMORY, "%.200s: no memory for %zu memory events", in->chrome->scan.source,
                         count);
    }
    int *const before = (int *)(owners + count);
    for (int i = 0; i < in->memory_count; i++) {
        owners[i] = (owner){in->memory[i].address, i, -1};
    }
    qsort(owners, count, sizeof *owners, by_address);
    for (size_t i = 0; i < count; i++) {
        owners[i].before = i > 0 && owners[i - 1].address == owners[i].address ? owners[i - 1].place : -1;
        before[owners[i].place] = owners[i].before;
    }
    ckpt_code code = add_blocks_before(in, owners);
    code = code != CKPT_OK ? code : add_memory(in, before);
    ckpt_memory_put(owners);
    return code;
}

/* How far the sum of what was imported is from the totals the recorder wrote itself. */
static void check_totals(const importer *in)
{
    int said = 0;
    int wrong = 0;
    uint64_t sum = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[i];
        sum = i == 0 && m->total >= 0 ? (uint64_t)m->total : sum + (uint64_t)m->bytes;
        said += m->total >= 0;
        wrong += m->total >= 0 && (uint64_t)m->total != sum;
    }
    if (wrong > 0) {
        say(in, "the recorder's own totals differ from the sum of its events at %d of %d", wrong, said);
    }
}

static void say_what_is_left_out(const importer *in, int ops)
{
    const ckpt_chrome *const chrome = in->chrome;
    int spans = 0;
    for (int i = 0; i < chrome->spans.count; i++) {
        const ckpt_chrome_kind kind = ((const ckpt_chrome_span *)chrome->spans.at)[i].kind;
        spans += kind == CKPT_CHROME_OP || kind == CKPT_CHROME_ANY;
    }
    if (chrome->scan.ended) {
        say(in, "the file ends in the middle, at line %d: %d whole events were read",
            ckpt_scan_line(&chrome->scan, chrome->scan.end), chrome->event_count);
    }
    if (chrome->memories.count == 0) {
        say(in, "no memory event has an address: record with profile_memory=True to see memory");
    }
    if (chrome->placeless_memories > 0) {
        say(in, "%d memory events without an address are left out", chrome->placeless_memories);
    }
    if (chrome->works.count > 0 && spans > 0) {
        say(in, "%d operations of the CPU are left out: the trace has what ran on the GPU", spans);
    } else if (spans > ops) {
        say(in, "%d operations inside others are left out", spans - ops);
    }
    if (chrome->negative_times > 0) {
        say(in, "%d durations below 0 count as 0", chrome->negative_times);
    }
    if (chrome->unfinished > 0 || chrome->unbegun > 0) {
        say(in, "%d events that begin and never end last to the end; %d that end and never began are left out",
            chrome->unfinished, chrome->unbegun);
    }
}

static ckpt_code fill_trace(const importer *in, ckpt_arena *out, ckpt_trace *trace)
{
    const ckpt_chrome *const chrome = in->chrome;
    const ckpt_chrome_device *const devices = chrome->devices.at;
    trace->source = ckpt_arena_text(out, chrome->scan.source);
    trace->recorder = chrome->kineto ? "Kineto" : "a Chrome trace";
    const int64_t gpu = chrome->works.count > 0            ? in->work_of
                        : in->memory_of.type != DEVICE_CPU ? in->memory_of.number
                                                           : -1;
    trace->machine.gpu = gpu >= 0;
    for (int i = 0; i < chrome->devices.count && gpu >= 0; i++) {
        if (devices[i].id == gpu) {
            trace->machine.device = ckpt_slice_text(devices[i].name, out);
        }
    }
    return trace->source != NULL && trace->machine.device != NULL ? CKPT_OK : no_memory(in);
}

static const char *base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static ckpt_code import(importer *in, ckpt_arena *out, ckpt_trace **trace)
{
    ckpt_timeline_report report;
    ckpt_trace *made = NULL;
    int ops = 0;
    CKPT_TRY(ckpt_chrome_nest(in->chrome, in->err));
    choose_memory(in);
    choose_works(in);
    look_over(in);
    CKPT_TRY(ckpt_timeline_create(out, &in->timeline, in->err));
    CKPT_TRY(add_memories(in));
    CKPT_TRY(add_works(in));
    CKPT_TRY(add_ops(in, &ops));
    const char *const name = base_name(in->chrome->scan.source);
    CKPT_TRY(in_file(in, ckpt_timeline_finish(in->timeline, name, &made, &report, in->err)));
    if (made->event_count == 0) {
        return CKPT_FAIL(in->err, CKPT_BAD_INPUT,
                         "%.200s: found %d events, but no \"[memory]\" with an address, kernel or operation",
                         in->chrome->scan.source, in->chrome->event_count);
    }
    if (report.double_allocates > 0) {
        say(in, "%d blocks were allocated where another still was: its free was not recorded", report.double_allocates);
    }
    check_totals(in);
    say_what_is_left_out(in, ops);
    CKPT_TRY(fill_trace(in, out, made));
    *trace = made;
    return CKPT_OK;
}

ckpt_code ckpt_import_chrome(const char *path, void (*note)(const char *line), ckpt_arena *out, ckpt_trace **trace,
                             ckpt_err *err)
{
    ckpt_chrome chrome;
    importer in = {.chrome = &chrome, .note = note, .err = err};
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
