/* Makes a trace of PyTorch's memory snapshot. The file holds the last entries of a ring buffer and the final state.
 * Both tell what was allocated before the first entry: blocks that are freed without an allocation, and blocks of the
 * final state whose addresses no entry touches. The trace begins with these.
 *
 * Bytes that the allocator holds and nobody uses are `outside`: reserved minus allocated. */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/units.h"
#include "core/formats/timeline.h"
#include "imports/import.h"
#include "imports/snapshot_impl.h"

#define ALLOCATOR_STREAM "allocator" /* for events of the allocator itself */
static const char before_recording[] = "before the recording";

typedef struct range {
    int64_t first, end;
} range;

typedef struct importer {
    ckpt_snapshot *s;
    ckpt_timeline *timeline;
    int *previous;  /* of each entry, then each block: the allocation or free before it at its address; -1 */
    range *touched; /* addresses that entries allocate or free; disjoint and ascending after merge */
    int touched_count;
    const char **name; /* of each entry; NULL: left out */
    ckpt_bytes *delta; /* of reserved bytes, per event on the allocator's stream */
    int delta_count;
    ckpt_bytes before_bytes;
    int before_count, late_count, lost_count;
} importer;

static ckpt_code no_memory(const ckpt_snapshot *s)
{
    return CKPT_FAIL(s->err, CKPT_NO_MEMORY, "%.200s: no memory for a trace of %d entries", s->path, s->entry_count);
}

static bool moves_memory(const ckpt_snapshot_entry *entry)
{
    return entry->action == CKPT_SNAPSHOT_ALLOC || entry->action == CKPT_SNAPSHOT_FREE;
}

static ckpt_code prepare(importer *im)
{
    const ckpt_snapshot *const s = im->s;
    const int64_t count = (int64_t)s->entry_count + s->block_count; /* both below 2^29: a file has 2^30 bytes */
    int64_t *const address = CKPT_NEW(s->work, int64_t, count);
    im->touched = CKPT_NEW(s->work, range, s->entry_count);
    im->name = CKPT_NEW(s->work, const char *, s->entry_count);
    im->delta = CKPT_NEW(s->work, ckpt_bytes, s->entry_count);
    if (address == NULL || im->touched == NULL || im->name == NULL || im->delta == NULL) {
        return no_memory(s);
    }
    for (int i = 0; i < s->entry_count; i++) {
        address[i] = moves_memory(&s->entry[i]) ? s->entry[i].address : -1;
    }
    for (int i = 0; i < s->block_count; i++) {
        address[s->entry_count + i] = s->block[i].address;
    }
    CKPT_TRY_WHILE(s->err, ckpt_timeline_previous(address, (int)count, s->work, &im->previous, s->err),
                   "importing %.200s", s->path);
    return CKPT_OK;
}

static ckpt_code add_memory(importer *im, ckpt_span span, const char *name, const ckpt_pickle_value *value,
                            const ckpt_snapshot_entry *entry)
{
    const ckpt_snapshot *const s = im->s;
    const char *const layer = value != NULL ? ckpt_snapshot_layer(s, value) : "";
    const char *const stream = ckpt_arena_format(s->work, "stream %lld", (long long)entry->stream);
    if (name == NULL || layer == NULL || stream == NULL) {
        return no_memory(s);
    }
    const ckpt_event event = {.name = name,
                              .layer = layer,
                              .stream = stream,
                              .span = span,
                              .start_ns = entry->time_ns,
                              .end_ns = entry->time_ns,
                              .address = entry->address,
                              .size_bytes = entry->size_bytes};
    const ckpt_category category = value != NULL ? ckpt_snapshot_category(value) : CKPT_CAT_OTHER;
    CKPT_TRY_WHILE(s->err, ckpt_timeline_add(im->timeline, &event, category, s->err), "importing %.200s", s->path);
    return CKPT_OK;
}

static ckpt_ns first_time(const ckpt_snapshot *s)
{
    return s->entry_count > 0 ? s->entry[0].time_ns : 0;
}

/* Adds an allocation from before the first entry. `value` NULL: only its later free is known. */
static ckpt_code add_before(importer *im, int64_t address, ckpt_bytes size_bytes, int64_t stream,
                            const ckpt_pickle_value *value)
{
    const ckpt_snapshot_entry entry = {
        .address = address, .size_bytes = size_bytes, .stream = stream, .time_ns = first_time(im->s)};
    const ckpt_pickle_value *const frames = value != NULL ? ckpt_pickle_find(value, "frames") : NULL;
    const bool known = frames != NULL && frames->type == CKPT_PICKLE_LIST && frames->count > 0;
    if (!ckpt_sum(im->before_bytes, size_bytes, &im->before_bytes)) {
        return CKPT_FAIL(im->s->err, CKPT_OVERFLOW, "%.200s: the sum of all bytes does not fit 63 bits", im->s->path);
    }
    im->before_count++;
    return add_memory(im, CKPT_SPAN_ALLOCATE, known ? ckpt_snapshot_name(im->s, value) : before_recording, value,
                      &entry);
}

/* Records the addresses that entry i allocates or frees, and its name. */
static ckpt_code scan_entry(importer *im, int i)
{
    const ckpt_snapshot_entry *const entry = &im->s->entry[i];
    const int before = im->previous[i];
    int64_t end = 0;
    if (!ckpt_sum(entry->address, entry->size_bytes > 0 ? entry->size_bytes : 1, &end)) {
        return CKPT_FAIL(im->s->err, CKPT_OVERFLOW,
                         "%.200s: device_traces[%d][%d]: the end of %lld bytes at address "
                         "%lld does not fit 63 bits",
                         im->s->path, im->s->device, i, (long long)entry->size_bytes, (long long)entry->address);
    }
    im->touched[im->touched_count++] = (range){entry->address, end};
    if (entry->action == CKPT_SNAPSHOT_ALLOC) {
        im->name[i] = ckpt_snapshot_name(im->s, entry->value);
        if (im->name[i] == NULL) {
            return no_memory(im->s);
        }
    } else if (before >= 0 && im->s->entry[before].action == CKPT_SNAPSHOT_ALLOC) {
        im->name[i] = im->name[before];
    } else if (before < 0) {
        im->name[i] = before_recording;
        CKPT_TRY(add_before(im, entry->address, entry->size_bytes, entry->stream, NULL));
    } else { /* freed twice: the allocation in between is not in the file */
        im->lost_count++;
    }
    return CKPT_OK;
}

static int by_first(const void *a, const void *b)
{
    const range *const x = a, *const y = b;
    return ckpt_import_compare(x->first, y->first);
}

static void merge(importer *im)
{
    int kept = 0;
    qsort(im->touched, (size_t)im->touched_count, sizeof *im->touched, by_first);
    for (int i = 0; i < im->touched_count; i++) {
        range *const last = &im->touched[kept > 0 ? kept - 1 : 0];
        if (kept > 0 && im->touched[i].first <= last->end) {
            last->end = im->touched[i].end > last->end ? im->touched[i].end : last->end;
        } else {
            im->touched[kept++] = im->touched[i];
        }
    }
    im->touched_count = kept;
}

static bool is_touched(const importer *im, int64_t first, int64_t end)
{
    int low = 0;
    int high = im->touched_count;
    while (low < high) { /* the first range that ends behind `first` */
        const int middle = low + (high - low) / 2;
        if (im->touched[middle].end <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < im->touched_count && im->touched[low].first < end;
}

/* Finds all that was allocated before the first entry. */
static ckpt_code find_before(importer *im)
{
    const ckpt_snapshot *const s = im->s;
    for (int i = 0; i < s->entry_count; i++) {
        if (moves_memory(&s->entry[i])) {
            CKPT_TRY(scan_entry(im, i));
        }
    }
    if (im->touched_count > 0) {
        merge(im);
    }
    for (int i = 0; i < s->block_count; i++) {
        const ckpt_snapshot_block *const b = &s->block[i];
        if (!is_touched(im, b->address, b->address + (b->room_bytes > 0 ? b->room_bytes : 1))) {
            CKPT_TRY(add_before(im, b->address, b->requested_bytes, b->stream, b->value));
        } else if (s->entry_count > 0) {
            const int before = im->previous[s->entry_count + i];
            const bool there = before >= 0 && before < s->entry_count;
            im->late_count += !there || s->entry[before].action != CKPT_SNAPSHOT_ALLOC;
        }
    }
    return CKPT_OK;
}

/* Adds an event of the allocator itself, without a duration. */
static ckpt_code add_allocator(importer *im, const ckpt_snapshot_entry *entry)
{
    const ckpt_snapshot *const s = im->s;
    const char *const name = entry->action == CKPT_SNAPSHOT_RESERVE  ? "reserve a segment"
                             : entry->action == CKPT_SNAPSHOT_RETURN ? "return a segment"
                             : entry->action == CKPT_SNAPSHOT_MARK
                                 ? "snapshot"
                                 : ckpt_arena_format(s->work, "out of memory: %lld bytes wanted, %lld free",
                                                     (long long)entry->size_bytes, (long long)entry->address);
    const bool changes = entry->action == CKPT_SNAPSHOT_RESERVE || entry->action == CKPT_SNAPSHOT_RETURN;
    if (name == NULL) {
        return no_memory(s);
    }
    im->delta[im->delta_count++] = !changes                                 ? 0
                                   : entry->action == CKPT_SNAPSHOT_RESERVE ? entry->size_bytes
                                                                            : -entry->size_bytes;
    const ckpt_event event = {.name = name,
                              .stream = ALLOCATOR_STREAM,
                              .span = CKPT_SPAN_OTHER,
                              .start_ns = entry->time_ns,
                              .end_ns = entry->time_ns,
                              .address = changes ? entry->address : 0,
                              .size_bytes = changes ? entry->size_bytes : 0};
    CKPT_TRY_WHILE(s->err, ckpt_timeline_add(im->timeline, &event, CKPT_CAT_OTHER, s->err), "importing %.200s",
                   s->path);
    return CKPT_OK;
}

static ckpt_code add_entries(importer *im)
{
    const ckpt_snapshot *const s = im->s;
    for (int i = 0; i < s->entry_count; i++) {
        const ckpt_snapshot_entry *const entry = &s->entry[i];
        const bool allocates = entry->action == CKPT_SNAPSHOT_ALLOC;
        if (moves_memory(entry)) {
            if (im->name[i] != NULL) {
                CKPT_TRY(
                    add_memory(im, allocates ? CKPT_SPAN_ALLOCATE : CKPT_SPAN_FREE, im->name[i], entry->value, entry));
            }
        } else if (entry->action != CKPT_SNAPSHOT_NOTHING) {
            CKPT_TRY(add_allocator(im, entry));
        }
    }
    return CKPT_OK;
}

/* Reserved bytes before the first entry: the final bytes minus all changes. If the two sums here fit 63 bits, every
 * partial sum does. */
static ckpt_code reserved_before(const importer *im, ckpt_bytes *before)
{
    ckpt_bytes gained = 0;
    ckpt_bytes most = im->s->reserved_bytes;
    for (int i = 0; i < im->delta_count; i++) {
        const ckpt_bytes delta = im->delta[i];
        if (delta >= 0 ? !ckpt_sum(gained, delta, &gained) : !ckpt_sum(most, -delta, &most)) {
            return CKPT_FAIL(im->s->err, CKPT_OVERFLOW, "%.200s: the sum of reserved bytes does not fit 63 bits",
                             im->s->path);
        }
    }
    *before = most - gained;
    return CKPT_OK;
}

/* Fills `outside` of every event. Events of the allocator's stream are in the order they were added. */
static ckpt_code fill_outside(const importer *im, ckpt_trace *trace)
{
    const ckpt_snapshot *const s = im->s;
    ckpt_event *const event = (ckpt_event *)trace->event; /* made here, a moment ago */
    ckpt_bytes reserved = 0;
    int change = 0;
    int short_count = 0;
    CKPT_TRY(reserved_before(im, &reserved));
    for (int i = 0; i < trace->event_count; i++) {
        if (event[i].span == CKPT_SPAN_OTHER && strcmp(event[i].stream, ALLOCATOR_STREAM) == 0) {
            reserved += im->delta[change++];
        }
        ckpt_bytes allocated = 0;
        for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
            allocated += event[i].bytes[c];
        }
        event[i].bytes[CKPT_CAT_OUTSIDE] = s->knows_reserved && reserved > allocated ? reserved - allocated : 0;
        short_count += s->knows_reserved && reserved < allocated;
    }
    if (short_count > 0) {
        ckpt_import_say(s->note,
                        "after %d entries more is allocated than the segments hold: some of what the allocator "
                        "did is not in the file",
                        short_count);
    }
    return CKPT_OK;
}

static void notes(const importer *im, const ckpt_timeline_report *report)
{
    const ckpt_snapshot *const s = im->s;
    if (s->entry_count == 0) {
        ckpt_import_say(s->note,
                        "no history was recorded: the trace has what was allocated when the snapshot was taken");
    } else if (im->before_count > 0) {
        ckpt_import_say(s->note,
                        "%d blocks of %lld bytes were allocated before the first entry: they stand at its time",
                        im->before_count, (long long)im->before_bytes);
    }
    if (im->lost_count > 0) {
        ckpt_import_say(s->note, "%d frees of blocks whose allocation is not in the file are left out", im->lost_count);
    }
    if (report->double_allocates > 0) {
        ckpt_import_say(s->note, "%d blocks were allocated where another was still in use: that one counts as freed",
                        report->double_allocates);
    }
    if (im->late_count > 0) {
        ckpt_import_say(s->note, "%d blocks of the segments were allocated after the last entry and are left out",
                        im->late_count);
    }
    const ckpt_pickle_value *const host = ckpt_pickle_find(s->root, "host_traces");
    if (host != NULL && host->count > 0 && host->type == CKPT_PICKLE_LIST) {
        ckpt_import_say(s->note, "\"host_traces\", pinned memory of the host, is left out");
    }
}

static ckpt_code make_trace(importer *im, ckpt_arena *out, ckpt_trace **trace)
{
    const ckpt_snapshot *const s = im->s;
    ckpt_timeline_report report = {0};
    ckpt_trace *made = NULL;
    CKPT_TRY(ckpt_timeline_create(out, &im->timeline, s->err));
    CKPT_TRY(prepare(im));
    CKPT_TRY(find_before(im));
    CKPT_TRY(add_entries(im));
    CKPT_TRY(ckpt_snapshot_add_annotations(s, im->timeline));
    CKPT_TRY_WHILE(s->err, ckpt_timeline_finish(im->timeline, ckpt_import_base_name(s->path), &made, &report, s->err),
                   "importing %.200s", s->path);
    if (made->event_count == 0) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT,
                         "%.200s: found no allocation, wanted a snapshot taken after _record_memory_history()",
                         s->path);
    }
    CKPT_TRY(fill_outside(im, made));
    made->source = ckpt_arena_text(out, s->path);
    made->recorder = ckpt_arena_format(out, "PyTorch memory snapshot, device %d", s->device);
    if (made->source == NULL || made->recorder == NULL) {
        return no_memory(s);
    }
    notes(im, &report);
    *trace = made;
    return CKPT_OK;
}

static ckpt_code import(ckpt_snapshot *s, const char *path, ckpt_arena *out, ckpt_trace **trace)
{
    const char *bytes = NULL;
    size_t length = 0;
    importer im = {.s = s};
    CKPT_TRY(ckpt_file_read(path, s->work, &bytes, &length, s->err));
    CKPT_TRY(ckpt_pickle_read(s->path, bytes, length, s->work, &s->root, &s->value_count, s->err));
    CKPT_TRY(ckpt_snapshot_decode(s));
    return make_trace(&im, out, trace);
}

ckpt_code ckpt_import_snapshot(const char *path, void (*note)(const char *line), ckpt_arena *out, ckpt_trace **trace,
                               ckpt_err *err)
{
    ckpt_arena work;
    ckpt_arena_init(&work);
    ckpt_snapshot s = {.path = ckpt_import_shown(path), .note = note, .work = &work, .err = err};
    const ckpt_code code = import(&s, path, out, trace);
    ckpt_arena_fini(&work);
    return code;
}
