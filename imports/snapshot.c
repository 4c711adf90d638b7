/* Makes a trace of PyTorch's memory snapshot. The file holds the last entries of a ring buffer and the final state.
 * Both tell what was allocated before the first entry: blocks that are freed without an allocation, and blocks of the
 * final state whose addresses no entry touches. The trace begins with these.
 *
 * Bytes that the allocator holds and nobody uses are `outside`: reserved minus allocated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/units.h"
#include "core/formats/timeline.h"
#include "imports/import.h"
#include "imports/snapshot_impl.h"

#define ALLOCATOR_STREAM  "allocator" /* for events of the allocator itself */
#define ANNOTATION_STREAM "annotations"
static const char before_recording[] = "before the recording";
static const char reserves[] = "reserve a segment";
static const char returns[] = "return a segment";

typedef struct range {
    int64_t first, end;
} range;

typedef struct importer {
    ckpt_snapshot *s;
    int *previous;  /* of each entry, then each block: the allocation or free before it at its address; -1 */
    range *touched; /* addresses that entries allocate or free; disjoint and ascending after merge */
    int touched_count;
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
    if (address == NULL || im->touched == NULL) {
        return no_memory(s);
    }
    for (int i = 0; i < s->entry_count; i++) {
        address[i] = moves_memory(&s->entry[i]) ? s->entry[i].address : -1;
    }
    for (int i = 0; i < s->block_count; i++) {
        address[s->entry_count + i] = s->block[i].allocated.address;
    }
    CKPT_TRY_WHILE(s->err, ckpt_timeline_previous(address, (int)count, s->work, &im->previous, s->err),
                   "importing %.200s", s->path);
    return CKPT_OK;
}

static ckpt_code add(const ckpt_snapshot *s, const ckpt_event *event, ckpt_category category)
{
    CKPT_TRY_WHILE(s->err, ckpt_timeline_add(s->timeline, event, category, s->err), "importing %.200s", s->path);
    return CKPT_OK;
}

static ckpt_code add_memory(const ckpt_snapshot *s, const ckpt_snapshot_entry *entry)
{
    const ckpt_event event = {.name = entry->name,
                              .layer = entry->layer,
                              .stream = entry->stream,
                              .span = entry->action == CKPT_SNAPSHOT_ALLOC ? CKPT_SPAN_ALLOCATE : CKPT_SPAN_FREE,
                              .start_ns = entry->time_ns,
                              .end_ns = entry->time_ns,
                              .address = entry->address,
                              .size_bytes = entry->size_bytes};
    return add(s, &event, entry->category);
}

static ckpt_ns first_time(const ckpt_snapshot *s)
{
    return s->entry_count > 0 ? s->entry[0].time_ns : 0;
}

/* Adds an allocation from before the first entry. */
static ckpt_code add_before(importer *im, ckpt_snapshot_entry entry)
{
    entry.action = CKPT_SNAPSHOT_ALLOC;
    entry.time_ns = first_time(im->s);
    entry.name = entry.name != NULL ? entry.name : before_recording;
    if (!ckpt_sum(im->before_bytes, entry.size_bytes, &im->before_bytes)) {
        return CKPT_FAIL(im->s->err, CKPT_OVERFLOW, "%.200s: the sum of all bytes does not fit 63 bits", im->s->path);
    }
    im->before_count++;
    return add_memory(im->s, &entry);
}

/* Records the addresses that entry i allocates or frees; a free is named as its allocation. */
static ckpt_code scan_entry(importer *im, int i)
{
    ckpt_snapshot_entry *const entry = &im->s->entry[i];
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
        return CKPT_OK;
    }
    if (before >= 0 && im->s->entry[before].action == CKPT_SNAPSHOT_ALLOC) {
        entry->name = im->s->entry[before].name;
    } else if (before < 0) { /* its category and label are those of the free alone */
        CKPT_TRY(add_before(im, (ckpt_snapshot_entry){.address = entry->address,
                                                      .size_bytes = entry->size_bytes,
                                                      .stream = entry->stream,
                                                      .category = CKPT_CAT_OTHER}));
        entry->name = before_recording;
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
        const int64_t address = b->allocated.address;
        if (!is_touched(im, address, address + (b->room_bytes > 0 ? b->room_bytes : 1))) {
            CKPT_TRY(add_before(im, b->allocated));
        } else if (s->entry_count > 0) {
            const int before = im->previous[s->entry_count + i];
            const bool there = before >= 0 && before < s->entry_count;
            im->late_count += !there || s->entry[before].action != CKPT_SNAPSHOT_ALLOC;
        }
    }
    return CKPT_OK;
}

/* Adds an event of the allocator itself, without a duration. */
static ckpt_code add_allocator(const ckpt_snapshot *s, const ckpt_snapshot_entry *entry)
{
    char wanted[80];
    const bool changes = entry->action == CKPT_SNAPSHOT_RESERVE || entry->action == CKPT_SNAPSHOT_RETURN;
    snprintf(wanted, sizeof wanted, "out of memory: %lld bytes wanted, %lld free", (long long)entry->size_bytes,
             (long long)entry->address);
    const ckpt_event event = {.name = entry->action == CKPT_SNAPSHOT_RESERVE  ? reserves
                                      : entry->action == CKPT_SNAPSHOT_RETURN ? returns
                                      : entry->action == CKPT_SNAPSHOT_MARK   ? "snapshot"
                                                                              : wanted,
                              .stream = ALLOCATOR_STREAM,
                              .span = CKPT_SPAN_OTHER,
                              .start_ns = entry->time_ns,
                              .end_ns = entry->time_ns,
                              .address = changes ? entry->address : 0,
                              .size_bytes = changes ? entry->size_bytes : 0};
    return add(s, &event, CKPT_CAT_OTHER);
}

static ckpt_code add_entries(const ckpt_snapshot *s)
{
    for (int i = 0; i < s->entry_count; i++) {
        const ckpt_snapshot_entry *const entry = &s->entry[i];
        if (moves_memory(entry)) {
            CKPT_TRY(entry->name != NULL ? add_memory(s, entry) : CKPT_OK);
        } else if (entry->action != CKPT_SNAPSHOT_NOTHING) {
            CKPT_TRY(add_allocator(s, entry));
        }
    }
    for (int i = 0; i < s->range_count; i++) {
        const ckpt_event event = {.name = s->range[i].name,
                                  .stream = ANNOTATION_STREAM,
                                  .span = CKPT_SPAN_OTHER,
                                  .start_ns = s->range[i].start_ns,
                                  .end_ns = s->range[i].end_ns};
        CKPT_TRY(add(s, &event, CKPT_CAT_OTHER));
    }
    return CKPT_OK;
}

/* How the event changes the bytes that are reserved. */
static ckpt_bytes change_of(const ckpt_event *event)
{
    if (event->span != CKPT_SPAN_OTHER || strcmp(event->stream, ALLOCATOR_STREAM) != 0) {
        return 0;
    }
    return strcmp(event->name, reserves) == 0 ? event->size_bytes : -event->size_bytes;
}

/* Reserved bytes before the first entry: the final bytes minus all changes. If the two sums here fit 63 bits, every
 * partial sum does. */
static ckpt_code reserved_before(const ckpt_snapshot *s, const ckpt_trace *trace, ckpt_bytes *before)
{
    ckpt_bytes gained = 0;
    ckpt_bytes most = s->reserved_bytes;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_bytes change = change_of(&trace->event[i]);
        if (change >= 0 ? !ckpt_sum(gained, change, &gained) : !ckpt_sum(most, -change, &most)) {
            return CKPT_FAIL(s->err, CKPT_OVERFLOW, "%.200s: the sum of reserved bytes does not fit 63 bits", s->path);
        }
    }
    *before = most - gained;
    return CKPT_OK;
}

/* Fills `outside` of every event. */
static ckpt_code fill_outside(const ckpt_snapshot *s, ckpt_trace *trace)
{
    ckpt_event *const event = (ckpt_event *)trace->event; /* made here, a moment ago */
    ckpt_bytes reserved = 0;
    int short_count = 0;
    CKPT_TRY(reserved_before(s, trace, &reserved));
    for (int i = 0; i < trace->event_count; i++) {
        reserved += change_of(&event[i]);
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
    if (s->has_host) {
        ckpt_import_say(s->note, "\"host_traces\", pinned memory of the host, is left out");
    }
}

/* Reads and decodes the file, of which nothing is in memory any more when this returns. */
static ckpt_code read(ckpt_snapshot *s, const char *path)
{
    ckpt_arena file;
    ckpt_pickle pickle = {0};
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_arena_init(&file);
    ckpt_code code = ckpt_file_read(path, &file, &bytes, &length, s->err);
    code = code != CKPT_OK ? code : ckpt_pickle_read(s->path, bytes, length, &pickle, s->err);
    if (code == CKPT_OK) {
        s->root = ckpt_pickle_root(&pickle);
        code = ckpt_snapshot_decode(s);
        s->root = (ckpt_pickle_value){.type = CKPT_PICKLE_ABSENT};
    }
    ckpt_pickle_fini(&pickle);
    ckpt_arena_fini(&file);
    return code;
}

static ckpt_code fill_timeline(importer *im)
{
    CKPT_TRY(prepare(im));
    CKPT_TRY(find_before(im));
    return add_entries(im->s);
}

static ckpt_code import(ckpt_snapshot *s, const char *path, ckpt_arena *out, ckpt_trace **trace)
{
    importer im = {.s = s};
    ckpt_timeline_report report = {0};
    ckpt_trace *made = NULL;
    CKPT_TRY(ckpt_timeline_create(out, &s->timeline, s->err));
    CKPT_TRY(read(s, path));
    CKPT_TRY(fill_timeline(&im));
    ckpt_arena_fini(s->work); /* the timeline has it all, and needs as much again */
    CKPT_TRY_WHILE(s->err, ckpt_timeline_finish(s->timeline, ckpt_import_base_name(s->path), &made, &report, s->err),
                   "importing %.200s", s->path);
    if (made->event_count == 0) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT,
                         "%.200s: found no allocation, wanted a snapshot taken after _record_memory_history()",
                         s->path);
    }
    CKPT_TRY(fill_outside(s, made));
    made->source = ckpt_arena_text(out, s->path);
    made->recorder = ckpt_arena_format(out, "PyTorch memory snapshot, device %d", s->device);
    if (made->source == NULL || made->recorder == NULL) {
        return no_memory(s);
    }
    notes(&im, &report);
    *trace = made;
    return CKPT_OK;
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
