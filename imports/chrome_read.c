/* Reads the text of a trace into lists of the events that count. Sources: "Trace Event Format" (Chromium project), and
 * Kineto's output for PyTorch's profiler (libkineto/src/output_json.cpp): its categories, and the "args" that link a
 * kernel to the call that launched it ("correlation") and to the operator around that call ("External id"). */
#include <string.h>

#include "core/base/file.h"
#include "imports/chrome_impl.h"

/* The members of an event that the importer uses, as slices of the text. */
typedef struct raw_event {
    const char *at;
    ckpt_slice ph, cat, name, ts, dur, pid, tid;
    ckpt_slice arg_name, device_type, device_id, address, bytes, total; /* from here on: members of "args" */
    ckpt_slice sequence, correlation, external, function, device, stream, moved;
} raw_event;

typedef struct raw_device {
    ckpt_slice id, name;
} raw_device;

typedef struct member {
    const char *key;
    size_t offset;
} member;

static const member members[] = {
    {"ph", offsetof(raw_event, ph)},     {"cat", offsetof(raw_event, cat)},
    {"name", offsetof(raw_event, name)}, {"ts", offsetof(raw_event, ts)},
    {"dur", offsetof(raw_event, dur)},   {"pid", offsetof(raw_event, pid)},
    {"tid", offsetof(raw_event, tid)},   {NULL, 0},
};
static const member arguments[] = {
    {"name", offsetof(raw_event, arg_name)},
    {"Device Type", offsetof(raw_event, device_type)},
    {"Device Id", offsetof(raw_event, device_id)},
    {"Addr", offsetof(raw_event, address)},
    {"Bytes", offsetof(raw_event, bytes)},
    {"Total Allocated", offsetof(raw_event, total)},
    {"Sequence number", offsetof(raw_event, sequence)},
    {"correlation", offsetof(raw_event, correlation)},
    {"External id", offsetof(raw_event, external)},
    {"Record function id", offsetof(raw_event, function)},
    {"device", offsetof(raw_event, device)},
    {"stream", offsetof(raw_event, stream)},
    {"bytes", offsetof(raw_event, moved)},
    {NULL, 0},
};

static const member device_members[] = {
    {"id", offsetof(raw_device, id)},
    {"name", offsetof(raw_device, name)},
    {NULL, 0},
};

/* Categories, with the names that PyTorch 1.8 to 1.11 wrote. */
typedef struct category {
    const char *name;
    ckpt_chrome_kind kind;
} category;

static const category categories[] = {
    {"cpu_op", CKPT_CHROME_OP},
    {"Operator", CKPT_CHROME_OP},
    {"user_annotation", CKPT_CHROME_ANNOTATION},
    {"python_function", CKPT_CHROME_MODULE},
    {"cuda_runtime", CKPT_CHROME_LAUNCH},
    {"cuda_driver", CKPT_CHROME_LAUNCH},
    {"Runtime", CKPT_CHROME_LAUNCH},
    {"kernel", CKPT_CHROME_KERNEL},
    {"Kernel", CKPT_CHROME_KERNEL},
    {"gpu_memcpy", CKPT_CHROME_COPY},
    {"Memcpy", CKPT_CHROME_COPY},
    {"gpu_memset", CKPT_CHROME_FILL},
    {"Memset", CKPT_CHROME_FILL},
    {"Trace", CKPT_CHROME_IGNORED},               /* the recording itself */
    {"gpu_user_annotation", CKPT_CHROME_IGNORED}, /* an annotation repeated around its kernels */
    {"overhead", CKPT_CHROME_IGNORED},
    {"cuda_sync", CKPT_CHROME_IGNORED},
    {"ac2g", CKPT_CHROME_IGNORED},
};

ckpt_code ckpt_chrome_add(ckpt_chrome_list *list, size_t size, void **added, ckpt_err *err)
{
    if (list->count == list->room) {
        const int room = list->room == 0 ? 256 : 2 * list->room;
        void *const at = list->room > INT32_MAX / 2 ? NULL : ckpt_memory_resize(list->at, (size_t)room * size);
        if (at == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d events of a trace", room);
        }
        list->at = at;
        list->room = room;
    }
    *added = memset((char *)list->at + (size_t)list->count++ * size, 0, size);
    return CKPT_OK;
}

/* Reads an object: the slices of `into` that the table names. An event's "args" go into the same struct. */
static ckpt_code read_members(ckpt_scan *scan, const member *table, void *into, ckpt_err *err)
{
    bool first = true;
    CKPT_TRY(ckpt_scan_open(scan, '{', err));
    for (;;) {
        ckpt_slice key;
        ckpt_slice value;
        bool more = false;
        CKPT_TRY(ckpt_scan_more(scan, '}', &first, &key, &more, err));
        if (!more) {
            return CKPT_OK;
        }
        ckpt_scan_space(scan);
        if (table == members && ckpt_slice_is(key, "args") && scan->at < scan->end && *scan->at == '{') {
            CKPT_TRY(read_members(scan, arguments, into, err));
            continue;
        }
        CKPT_TRY(ckpt_scan_value(scan, &value, err));
        for (const member *m = table; m->key != NULL; m++) {
            if (ckpt_slice_is(key, m->key)) {
                memcpy((char *)into + m->offset, &value, sizeof value);
            }
        }
    }
}

/* FNV-1a. A thread's identity is a 64-bit hash of its process and its number or name. */
static uint64_t mix(uint64_t hash, ckpt_slice slice)
{
    for (size_t i = 0; i < slice.length; i++) {
        hash = (hash ^ (unsigned char)slice.at[i]) * 1099511628211u;
    }
    return (hash ^ 0xff) * 1099511628211u;
}

static uint64_t thread_of(const raw_event *raw)
{
    return mix(mix(14695981039346656037u, raw->pid), raw->tid);
}

/* A number that must be there. */
static ckpt_code need_number(const ckpt_scan *scan, const raw_event *raw, const char *key, ckpt_slice slice, int shift,
                             int64_t *value, ckpt_err *err)
{
    if (ckpt_slice_none(slice)) {
        return ckpt_scan_fail(scan, raw->at, err, "an event without \"%s\"", key);
    }
    if (!ckpt_slice_number(slice, shift, value)) {
        return ckpt_scan_fail(scan, slice.at, err, "\"%s\": found %.*s, wanted a number below 2^62%s", key,
                              slice.length < 40 ? (int)slice.length : 40, slice.at, shift > 0 ? " of nanoseconds" : "");
    }
    return CKPT_OK;
}

/* A number, or `missing` if it is missing or null. */
static ckpt_code find_number(const ckpt_scan *scan, const raw_event *raw, const char *key, ckpt_slice slice,
                             int64_t missing, int64_t *value, ckpt_err *err)
{
    *value = missing;
    return ckpt_slice_none(slice) ? CKPT_OK : need_number(scan, raw, key, slice, 0, value, err);
}

static ckpt_chrome_kind kind_of(const raw_event *raw)
{
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
        if (ckpt_slice_is(raw->cat, categories[i].name)) {
            const bool call = categories[i].kind == CKPT_CHROME_MODULE && !ckpt_slice_begins(raw->name, "nn.Module: ");
            return call ? CKPT_CHROME_IGNORED : categories[i].kind; /* a Python function that is no module */
        }
    }
    return CKPT_CHROME_ANY;
}

static ckpt_code read_times(ckpt_chrome *chrome, const raw_event *raw, bool complete, ckpt_ns *start, ckpt_ns *end,
                            ckpt_err *err)
{
    ckpt_ns duration = 0;
    CKPT_TRY(need_number(&chrome->scan, raw, "ts", raw->ts, 3, start, err));
    if (complete) {
        CKPT_TRY(need_number(&chrome->scan, raw, "dur", raw->dur, 3, &duration, err));
    }
    if (duration < 0) {
        chrome->negative_times++;
        duration = 0;
    }
    *end = *start + duration;
    return CKPT_OK;
}

static ckpt_code read_span(ckpt_chrome *chrome, const raw_event *raw, ckpt_chrome_kind kind, ckpt_chrome_span *span,
                           ckpt_err *err)
{
    const ckpt_scan *const scan = &chrome->scan;
    *span = (ckpt_chrome_span){.kind = kind, .order = chrome->event_count, .name = raw->name, .tid = raw->tid};
    span->thread = thread_of(raw);
    CKPT_TRY(find_number(scan, raw, "Sequence number", raw->sequence, -1, &span->sequence, err));
    CKPT_TRY(find_number(scan, raw, "correlation", raw->correlation, -1, &span->correlation, err));
    CKPT_TRY(find_number(scan, raw, "External id", raw->external, -1, &span->external, err));
    CKPT_TRY(find_number(scan, raw, "Record function id", raw->function, -1, &span->function, err));
    return read_times(chrome, raw, raw->dur.at != NULL || ckpt_slice_is(raw->ph, "X"), &span->start_ns, &span->end_ns,
                      err);
}

static ckpt_code add_complete(ckpt_chrome *chrome, const raw_event *raw, ckpt_err *err)
{
    const ckpt_chrome_kind kind = kind_of(raw);
    void *added = NULL;
    if (kind == CKPT_CHROME_IGNORED) {
        return CKPT_OK;
    }
    if (kind < CKPT_CHROME_KERNEL) {
        CKPT_TRY(ckpt_chrome_add(&chrome->spans, sizeof(ckpt_chrome_span), &added, err));
        return read_span(chrome, raw, kind, added, err);
    }
    const ckpt_scan *const scan = &chrome->scan;
    CKPT_TRY(ckpt_chrome_add(&chrome->works, sizeof(ckpt_chrome_work), &added, err));
    ckpt_chrome_work *const work = added;
    *work = (ckpt_chrome_work){.kind = kind, .order = chrome->event_count, .name = raw->name};
    work->stream = ckpt_slice_none(raw->stream) ? raw->tid : raw->stream;
    CKPT_TRY(find_number(scan, raw, "device", raw->device, 0, &work->device, err));
    CKPT_TRY(find_number(scan, raw, "correlation", raw->correlation, -1, &work->correlation, err));
    CKPT_TRY(find_number(scan, raw, "External id", raw->external, -1, &work->external, err));
    CKPT_TRY(find_number(scan, raw, "bytes", raw->moved, 0, &work->bytes, err));
    work->bytes = work->bytes < 0 ? 0 : work->bytes;
    return read_times(chrome, raw, true, &work->start_ns, &work->end_ns, err);
}

static ckpt_code add_memory(ckpt_chrome *chrome, const raw_event *raw, ckpt_err *err)
{
    const ckpt_scan *const scan = &chrome->scan;
    ckpt_chrome_memory memory = {.order = chrome->event_count};
    void *added = NULL;
    CKPT_TRY(need_number(scan, raw, "Bytes", raw->bytes, 0, &memory.bytes, err));
    if (memory.bytes == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(find_number(scan, raw, "Addr", raw->address, 0, &memory.address, err));
    if (memory.address == 0) {
        chrome->placeless_memories++;
        return CKPT_OK;
    }
    memory.address &= INT64_MAX; /* some devices' addresses have the sign bit set */
    CKPT_TRY(find_number(scan, raw, "Device Type", raw->device_type, 0, &memory.device_type, err));
    CKPT_TRY(find_number(scan, raw, "Device Id", raw->device_id, 0, &memory.device, err));
    CKPT_TRY(find_number(scan, raw, "Total Allocated", raw->total, -1, &memory.total, err));
    CKPT_TRY(ckpt_chrome_add(&chrome->spans, sizeof(ckpt_chrome_span), &added, err));
    ckpt_chrome_span *const span = added;
    CKPT_TRY(read_span(chrome, raw, CKPT_CHROME_MEMORY, span, err));
    span->end_ns = memory.at_ns = span->start_ns;
    span->memory = chrome->memories.count;
    CKPT_TRY(ckpt_chrome_add(&chrome->memories, sizeof memory, &added, err));
    *(ckpt_chrome_memory *)added = memory;
    return CKPT_OK;
}

static ckpt_code add_mark(ckpt_chrome *chrome, const raw_event *raw, ckpt_err *err)
{
    const ckpt_chrome_kind kind = kind_of(raw);
    void *added = NULL;
    if (kind >= CKPT_CHROME_KERNEL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_chrome_add(&chrome->marks, sizeof(ckpt_chrome_mark), &added, err));
    ckpt_chrome_mark *const mark = added;
    mark->begin = ckpt_slice_is(raw->ph, "B");
    return read_span(chrome, raw, kind, &mark->span, err);
}

/* Reads one element of "traceEvents". Flow, counter, asynchronous and object events are ignored. */
static ckpt_code read_event(ckpt_chrome *chrome, ckpt_err *err)
{
    raw_event raw = {.at = NULL};
    void *added = NULL;
    ckpt_scan_space(&chrome->scan);
    raw.at = chrome->scan.at;
    CKPT_TRY(read_members(&chrome->scan, members, &raw, err));
    if (ckpt_slice_none(raw.ph)) {
        return ckpt_scan_fail(&chrome->scan, raw.at, err, "an event without \"ph\"");
    }
    chrome->event_count++;
    if (ckpt_slice_is(raw.ph, "X")) {
        return add_complete(chrome, &raw, err);
    }
    if (ckpt_slice_is(raw.ph, "B") || ckpt_slice_is(raw.ph, "E")) {
        return add_mark(chrome, &raw, err);
    }
    if ((ckpt_slice_is(raw.ph, "i") || ckpt_slice_is(raw.ph, "I")) && ckpt_slice_is(raw.name, "[memory]")) {
        return add_memory(chrome, &raw, err);
    }
    if (ckpt_slice_is(raw.ph, "M") && ckpt_slice_is(raw.name, "thread_name") && raw.arg_name.at != NULL) {
        CKPT_TRY(ckpt_chrome_add(&chrome->threads, sizeof(ckpt_chrome_thread), &added, err));
        *(ckpt_chrome_thread *)added = (ckpt_chrome_thread){thread_of(&raw), raw.arg_name};
    }
    return CKPT_OK;
}

static ckpt_code read_events(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_scan *const scan = &chrome->scan;
    bool first = true;
    CKPT_TRY(ckpt_scan_open(scan, '[', err));
    for (;;) {
        bool more = false;
        CKPT_TRY(ckpt_scan_more(scan, ']', &first, NULL, &more, err));
        ckpt_scan_space(scan);
        if (more && scan->at < scan->end && *scan->at == ']') { /* after a trailing comma */
            scan->at++;
            more = false;
        }
        if (!more) {
            return CKPT_OK;
        }
        if (scan->at < scan->end && (*scan->at == '[' || (*scan->at >= '0' && *scan->at <= '9'))) {
            return ckpt_scan_fail(scan, scan->at, err,
                                  "found an array of numbers, wanted events: a memory timeline of PyTorch "
                                  "(export_memory_timeline) has no addresses; use export_chrome_trace");
        }
        CKPT_TRY(read_event(chrome, err));
    }
}

/* "deviceProperties": [{"id": 0, "name": "NVIDIA ...", ...}, ...] */
static ckpt_code read_devices(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_scan *const scan = &chrome->scan;
    bool first = true;
    CKPT_TRY(ckpt_scan_open(scan, '[', err));
    for (;;) {
        raw_device raw = {.name.at = NULL};
        bool more = false;
        CKPT_TRY(ckpt_scan_more(scan, ']', &first, NULL, &more, err));
        if (!more) {
            return CKPT_OK;
        }
        CKPT_TRY(read_members(scan, device_members, &raw, err));
        if (raw.name.at != NULL) {
            void *added = NULL;
            ckpt_chrome_device device = {.name = raw.name};
            device.id = raw.id.at != NULL && ckpt_slice_number(raw.id, 0, &device.id) ? device.id : -1;
            CKPT_TRY(ckpt_chrome_add(&chrome->devices, sizeof device, &added, err));
            *(ckpt_chrome_device *)added = device;
        }
    }
}

/* {"traceEvents": [...], ...} */
static ckpt_code read_object(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_scan *const scan = &chrome->scan;
    bool first = true;
    bool found = false;
    CKPT_TRY(ckpt_scan_open(scan, '{', err));
    for (;;) {
        ckpt_slice key;
        ckpt_slice value;
        bool more = false;
        CKPT_TRY(ckpt_scan_more(scan, '}', &first, &key, &more, err));
        if (!more) {
            return found ? CKPT_OK : ckpt_scan_fail(scan, scan->text, err, "found no \"traceEvents\"");
        }
        ckpt_scan_space(scan);
        chrome->kineto = chrome->kineto || ckpt_slice_is(key, "schemaVersion");
        if (ckpt_slice_is(key, "traceEvents") && !found) {
            found = true;
            CKPT_TRY(read_events(chrome, err));
        } else if (ckpt_slice_is(key, "deviceProperties") && scan->at < scan->end && *scan->at == '[') {
            CKPT_TRY(read_devices(chrome, err));
        } else {
            CKPT_TRY(ckpt_scan_value(scan, &value, err));
        }
    }
}

static ckpt_code read_all(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_scan *const scan = &chrome->scan;
    ckpt_scan_space(scan);
    const bool array = scan->at < scan->end && *scan->at == '[';
    const ckpt_code code = array ? read_events(chrome, err) : read_object(chrome, err);
    if (code != CKPT_OK && scan->ended && chrome->event_count > 0) {
        if (err != NULL) {
            *err = (ckpt_err){0}; /* a program that died wrote no end: keep the whole events */
        }
        return CKPT_OK;
    }
    CKPT_TRY(code);
    ckpt_scan_space(scan);
    return scan->at == scan->end ? CKPT_OK : ckpt_scan_fail(scan, scan->at, err, "found more after the end");
}

ckpt_code ckpt_chrome_read(ckpt_chrome *chrome, const char *path, ckpt_err *err)
{
    size_t length = 0;
    *chrome = (ckpt_chrome){.event_count = 0};
    ckpt_arena_init(&chrome->arena);
    chrome->scan.source = ckpt_import_shown(path);
    CKPT_TRY(ckpt_file_read(path, &chrome->arena, &chrome->scan.text, &length, err));
    const bool mark = length >= 3 && memcmp(chrome->scan.text, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    chrome->scan.at = chrome->scan.text + (mark ? 3 : 0);
    chrome->scan.end = chrome->scan.text + length;
    return read_all(chrome, err);
}

void ckpt_chrome_fini(ckpt_chrome *chrome)
{
    ckpt_memory_put(chrome->spans.at);
    ckpt_memory_put(chrome->works.at);
    ckpt_memory_put(chrome->memories.at);
    ckpt_memory_put(chrome->marks.at);
    ckpt_memory_put(chrome->threads.at);
    ckpt_memory_put(chrome->devices.at);
    ckpt_arena_fini(&chrome->arena);
}
