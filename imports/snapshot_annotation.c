/* Reads "external_annotations", the begins and ends of the program's record_function ranges, as spans of the trace.
 * Source: torch/csrc/cuda/memory_snapshot.cpp, recorded with _record_memory_history(global_record_annotations=True). */
#include <string.h>

#include "imports/snapshot_impl.h"

/* Ranges nest as deep as the program's calls; an END is matched against at most this many open ranges. */
enum { OPEN_MAX = 64, NAME_MAX_BYTES = 100 };

typedef struct open_range {
    ckpt_pickle_value name;
    ckpt_ns start_ns;
} open_range;

typedef struct annotations {
    const ckpt_snapshot *s;
    ckpt_snapshot_range *range;
    int range_count;
    ckpt_ns first_ns, last_ns; /* of the entries: ranges are cut to this time */
    open_range open[OPEN_MAX];
    int open_count;
    int odd_count; /* left out */
} annotations;

/* Compares only the bytes that are kept. */
static bool same_text(const ckpt_pickle_value *a, const ckpt_pickle_value *b)
{
    const int count = a->count < NAME_MAX_BYTES ? a->count : NAME_MAX_BYTES;
    return a->count == b->count && memcmp(a->as.bytes, b->as.bytes, (size_t)count) == 0;
}

static ckpt_code add_range(annotations *an, const ckpt_pickle_value *name, ckpt_ns start_ns, ckpt_ns end_ns)
{
    start_ns = start_ns > an->first_ns ? start_ns : an->first_ns;
    end_ns = end_ns < an->last_ns ? end_ns : an->last_ns;
    if (end_ns < start_ns) {
        an->odd_count++;
        return CKPT_OK;
    }
    ckpt_snapshot_range *const range = &an->range[an->range_count];
    CKPT_TRY(ckpt_snapshot_text(an->s, name, NAME_MAX_BYTES, &range->name));
    range->start_ns = start_ns;
    range->end_ns = end_ns;
    an->range_count++;
    return CKPT_OK;
}

/* Ends the newest open range of that name. A range that was open before the first entry begins there. */
static ckpt_code end_range(annotations *an, const ckpt_pickle_value *name, ckpt_ns end_ns)
{
    ckpt_ns start_ns = an->first_ns;
    int found = an->open_count - 1;
    while (found >= 0 && !same_text(&an->open[found].name, name)) {
        found--;
    }
    if (found >= 0) {
        start_ns = an->open[found].start_ns;
        an->open_count--;
        memmove(&an->open[found], &an->open[found + 1], (size_t)(an->open_count - found) * sizeof an->open[0]);
    }
    return add_range(an, name, start_ns, end_ns);
}

static ckpt_code add_annotation(annotations *an, const ckpt_pickle_value *value)
{
    const ckpt_pickle_value name = ckpt_pickle_find(value, "name");
    const ckpt_pickle_value stage = ckpt_pickle_find(value, "stage");
    const ckpt_pickle_value time = ckpt_pickle_find(value, "time_us");
    const ckpt_pickle_value device = ckpt_pickle_find(value, "device");
    if (name.type != CKPT_PICKLE_TEXT || stage.type == CKPT_PICKLE_ABSENT || time.type != CKPT_PICKLE_INT ||
        time.as.integer < 0 || time.as.integer > CKPT_SNAPSHOT_MOST_US) {
        an->odd_count++;
        return CKPT_OK;
    }
    if (device.type == CKPT_PICKLE_INT && device.as.integer != an->s->device) {
        return CKPT_OK;
    }
    if (ckpt_pickle_is_text(&stage, "END")) {
        return end_range(an, &name, 1000 * time.as.integer);
    }
    if (ckpt_pickle_is_text(&stage, "START") && an->open_count < OPEN_MAX) {
        an->open[an->open_count++] = (open_range){name, 1000 * time.as.integer};
        return CKPT_OK;
    }
    an->odd_count++;
    return CKPT_OK;
}

ckpt_code ckpt_snapshot_read_annotations(ckpt_snapshot *s)
{
    const ckpt_pickle_value list = ckpt_pickle_find(&s->root, "external_annotations");
    if (list.type != CKPT_PICKLE_LIST || list.count == 0 || !s->timed) {
        return CKPT_OK;
    }
    annotations an = {.s = s,
                      .range =
                          CKPT_NEW(s->work, ckpt_snapshot_range, list.count), /* each annotation ends at most one */
                      .first_ns = s->entry[0].time_ns,
                      .last_ns = s->entry[s->entry_count - 1].time_ns};
    if (an.range == NULL) {
        return CKPT_FAIL(s->err, CKPT_NO_MEMORY, "%.200s: no memory for %d annotations", s->path, list.count);
    }
    for (int i = 0; i < list.count; i++) {
        const ckpt_pickle_value item = ckpt_pickle_item(&list, i);
        CKPT_TRY(add_annotation(&an, &item));
    }
    while (an.open_count > 0) {
        an.open_count--;
        CKPT_TRY(add_range(&an, &an.open[an.open_count].name, an.open[an.open_count].start_ns, an.last_ns));
    }
    if (an.odd_count > 0) {
        ckpt_import_say(s->note,
                        "%d of \"external_annotations\" are outside the entries' time, incomplete or nested "
                        "deeper than %d: left out",
                        an.odd_count, OPEN_MAX);
    }
    s->range = an.range;
    s->range_count = an.range_count;
    return CKPT_OK;
}
