/* Checks a snapshot's pickle: chooses a device, reads its entries in order and the blocks in use at the end.
 * Source: torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/memory.py (_snapshot) and what torch/cuda/_memory_viz.py
 * reads, of PyTorch 2.1 and 2.15. Older files: no time_us, blocks without an address, "real_size" in a "history". */
#include <stdio.h>

#include "core/base/units.h"
#include "imports/snapshot_impl.h"

/* A location in the file: device_traces[0][17], segments[3].blocks[2]; item < 0: the element of the list itself. */
typedef struct location {
    const char *list, *between;
    int index, item;
} location;

static ckpt_code bad(const ckpt_snapshot *s, const location *at, const char *key, const ckpt_pickle_value *found,
                     const char *wanted)
{
    char where[80];
    const int used = snprintf(where, sizeof where, "%s[%d]", at->list, at->index);
    if (at->item >= 0) {
        snprintf(where + used, sizeof where - (size_t)used, "%s[%d]", at->between, at->item);
    }
    if (key == NULL) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: %s: found %s, wanted %s", s->path, where,
                         ckpt_pickle_type_name(found->type), wanted);
    }
    if (found->type == CKPT_PICKLE_ABSENT) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: %s: found no \"%s\", wanted %s", s->path, where, key, wanted);
    }
    if (found->type == CKPT_PICKLE_INT) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: %s: found \"%s\" %lld, wanted %s", s->path, where, key,
                         (long long)found->as.integer, wanted);
    }
    return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: %s: found \"%s\", %s, wanted %s", s->path, where, key,
                     ckpt_pickle_type_name(found->type), wanted);
}

/* An integer of 0 to `most`; `missing` if the dict has none. A negative `missing`: it must be there. */
static ckpt_code member_int(const ckpt_snapshot *s, const location *at, const ckpt_pickle_value *dict, const char *key,
                            int64_t most, int64_t missing, int64_t *number)
{
    const ckpt_pickle_value found = ckpt_pickle_find(dict, key);
    if (found.type == CKPT_PICKLE_ABSENT && missing >= 0) {
        *number = missing;
        return CKPT_OK;
    }
    if (found.type != CKPT_PICKLE_INT || found.as.integer < 0 || found.as.integer > most) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "an integer of 0 to %lld", (long long)most);
        return bad(s, at, key, &found, most == INT64_MAX ? "an integer of 0 or more" : wanted);
    }
    *number = found.as.integer;
    return CKPT_OK;
}

static ckpt_code no_memory(const ckpt_snapshot *s)
{
    return CKPT_FAIL(s->err, CKPT_NO_MEMORY, "%.200s: no memory for its entries", s->path);
}

/* root[key] as a list, or absent, with count 0. */
static ckpt_code root_list(const ckpt_snapshot *s, const char *key, ckpt_pickle_value *list)
{
    const ckpt_pickle_value found = ckpt_pickle_find(&s->root, key);
    if (found.type != CKPT_PICKLE_ABSENT && found.type != CKPT_PICKLE_LIST) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: found \"%s\", %s, wanted a list", s->path, key,
                         ckpt_pickle_type_name(found.type));
    }
    *list = found;
    return CKPT_OK;
}

/* Chooses the device with the most entries; without entries, that of the first segment. */
static ckpt_code choose_device(ckpt_snapshot *s, const ckpt_pickle_value *traces, const ckpt_pickle_value *segments,
                               ckpt_pickle_value *entries)
{
    int64_t all = 0;
    int with_entries = 0;
    *entries = (ckpt_pickle_value){.type = CKPT_PICKLE_ABSENT};
    for (int i = 0; i < traces->count; i++) {
        const ckpt_pickle_value list = ckpt_pickle_item(traces, i);
        if (list.type != CKPT_PICKLE_LIST) {
            return bad(s, &(location){"device_traces", "", i, -1}, NULL, &list, "a list of entries");
        }
        if (list.count > entries->count) {
            *entries = list;
            s->device = i;
        }
        all += list.count;
        with_entries += list.count > 0;
    }
    if (entries->count == 0 && segments->count > 0) {
        int64_t device = 0;
        const ckpt_pickle_value first = ckpt_pickle_item(segments, 0);
        CKPT_TRY(member_int(s, &(location){"segments", "", 0, -1}, &first, "device", INT32_MAX, 0, &device));
        s->device = (int)device;
    }
    if (with_entries > 1) {
        ckpt_import_say(s->note, "%lld entries of %d other devices are left out; device %d has the most, %d",
                        (long long)(all - entries->count), with_entries - 1, s->device, entries->count);
    }
    return CKPT_OK;
}

typedef struct action_row {
    const char *name;
    ckpt_snapshot_action action;
    bool requested, completed;
} action_row;

static const action_row *find_action(const ckpt_pickle_value *text)
{
    static const action_row rows[] = {
        {"alloc", CKPT_SNAPSHOT_ALLOC, false, false},
        {"free_requested", CKPT_SNAPSHOT_FREE, true, false},
        {"free_completed", CKPT_SNAPSHOT_FREE, false, true},
        {"free", CKPT_SNAPSHOT_FREE, false, true},
        {"segment_alloc", CKPT_SNAPSHOT_RESERVE, false, false},
        {"segment_map", CKPT_SNAPSHOT_RESERVE, false, false},
        {"segment_free", CKPT_SNAPSHOT_RETURN, false, false},
        {"segment_unmap", CKPT_SNAPSHOT_RETURN, false, false},
        {"oom", CKPT_SNAPSHOT_OOM, false, false},
        {"snapshot", CKPT_SNAPSHOT_MARK, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (ckpt_pickle_is_text(text, rows[i].name)) {
            return &rows[i];
        }
    }
    return NULL;
}

/* True if the entries have completed frees. Then memory is in use until a free completes, because another stream may
 * still read it. A recording may leave completed frees out (skip_actions); then the requested ones count. */
static bool has_completed(const ckpt_pickle_value *entries)
{
    for (int i = 0; i < entries->count; i++) {
        const ckpt_pickle_value entry = ckpt_pickle_item(entries, i);
        const ckpt_pickle_value action = ckpt_pickle_find(&entry, "action");
        const action_row *const row = find_action(&action);
        if (row != NULL && row->completed) {
            return true;
        }
    }
    return false;
}

typedef struct entry_counts {
    int timed, backwards, other;
    ckpt_pickle_value first_other;
} entry_counts;

/* Sets the entry's time: its own, but not before the previous entry's. */
static ckpt_code decode_time(const ckpt_snapshot *s, const location *at, const ckpt_pickle_value *value,
                             ckpt_snapshot_entry *entry, entry_counts *counts)
{
    int64_t time_us = 0;
    const ckpt_ns before = at->item > 0 ? (entry - 1)->time_ns : 0;
    if (ckpt_pickle_find(value, "time_us").type == CKPT_PICKLE_ABSENT) {
        entry->time_ns = before;
        return CKPT_OK;
    }
    CKPT_TRY(member_int(s, at, value, "time_us", CKPT_SNAPSHOT_MOST_US, -1, &time_us));
    counts->timed++;
    counts->backwards += 1000 * time_us < before;
    entry->time_ns = 1000 * time_us < before ? before : 1000 * time_us;
    return CKPT_OK;
}

static ckpt_code decode_entry(const ckpt_snapshot *s, const location *at, const ckpt_pickle_value *value,
                              bool completed, ckpt_snapshot_entry *entry, entry_counts *counts)
{
    const ckpt_pickle_value action = ckpt_pickle_find(value, "action");
    int64_t stream = 0;
    if (value->type != CKPT_PICKLE_DICT) {
        return bad(s, at, NULL, value, "a dict");
    }
    if (action.type != CKPT_PICKLE_TEXT) {
        return bad(s, at, "action", &action, "a text");
    }
    CKPT_TRY(decode_time(s, at, value, entry, counts));
    const action_row *const row = find_action(&action);
    entry->action = row != NULL && (!row->requested || !completed) ? row->action : CKPT_SNAPSHOT_NOTHING;
    if (row == NULL) {
        counts->first_other = counts->other++ == 0 ? action : counts->first_other;
    }
    if (entry->action == CKPT_SNAPSHOT_NOTHING || entry->action == CKPT_SNAPSHOT_MARK) {
        return CKPT_OK;
    }
    const bool oom = entry->action == CKPT_SNAPSHOT_OOM;
    CKPT_TRY(member_int(s, at, value, "size", INT64_MAX, -1, &entry->size_bytes));
    CKPT_TRY(member_int(s, at, value, "stream", INT64_MAX, 0, &stream));
    CKPT_TRY(member_int(s, at, value, oom ? "device_free" : "addr", INT64_MAX, oom ? 0 : -1, &entry->address));
    if (entry->action == CKPT_SNAPSHOT_ALLOC) {
        CKPT_TRY(ckpt_snapshot_name(s, value, &entry->name));
    }
    const bool moves = entry->action == CKPT_SNAPSHOT_ALLOC || entry->action == CKPT_SNAPSHOT_FREE;
    return moves ? ckpt_snapshot_label(s, value, stream, entry) : CKPT_OK;
}

static ckpt_code decode_entries(ckpt_snapshot *s, const ckpt_pickle_value *entries)
{
    const int count = entries->count;
    ckpt_snapshot_entry *const entry = CKPT_NEW(s->work, ckpt_snapshot_entry, count);
    if (entry == NULL) {
        return no_memory(s);
    }
    const bool completed = has_completed(entries);
    entry_counts counts = {0};
    for (int i = 0; i < count; i++) {
        const location at = {"device_traces", "", s->device, i};
        const ckpt_pickle_value value = ckpt_pickle_item(entries, i);
        CKPT_TRY(decode_entry(s, &at, &value, completed, &entry[i], &counts));
    }
    s->timed = counts.timed > 0;
    for (int i = 0; !s->timed && i < count; i++) { /* an old file */
        entry[i].time_ns = 1000 * (ckpt_ns)i;
    }
    if (count > 0 && !s->timed) {
        ckpt_import_say(s->note, "the entries have no times: the trace has one in each microsecond, in their order");
    }
    if (counts.backwards > 0) {
        ckpt_import_say(s->note, "%d entries have a time before that of the entry before them, which is used instead",
                        counts.backwards);
    }
    if (counts.other > 0) {
        ckpt_import_say(s->note, "%d entries are of another kind, the first \"%.*s\": left out", counts.other,
                        counts.first_other.count < 40 ? counts.first_other.count : 40, counts.first_other.as.bytes);
    }
    s->entry = entry;
    s->entry_count = count;
    return CKPT_OK;
}

/* The size that the program asked for, which may be less than the block's `room_bytes`. */
static ckpt_code requested_size(const ckpt_snapshot *s, const location *at, const ckpt_pickle_value *value,
                                ckpt_bytes room_bytes, ckpt_bytes *bytes)
{
    const ckpt_pickle_value history = ckpt_pickle_find(value, "history");
    if (history.type == CKPT_PICKLE_LIST && history.count > 0) {
        const ckpt_pickle_value first = ckpt_pickle_item(&history, 0);
        return member_int(s, at, &first, "real_size", INT64_MAX, room_bytes, bytes);
    }
    return member_int(s, at, value, "requested_size", INT64_MAX, room_bytes, bytes);
}

typedef struct segment {
    const ckpt_pickle_value *value;
    int index;
    int64_t address, stream;
    ckpt_bytes total_bytes;
} segment;

/* Names a block in use, if its frames are known. */
static ckpt_code name_block(const ckpt_snapshot *s, const ckpt_pickle_value *value, int64_t stream,
                            ckpt_snapshot_entry *allocated)
{
    const ckpt_pickle_value frames = ckpt_pickle_find(value, "frames");
    if (frames.type == CKPT_PICKLE_LIST && frames.count > 0) {
        CKPT_TRY(ckpt_snapshot_name(s, value, &allocated->name));
    }
    return ckpt_snapshot_label(s, value, stream, allocated);
}

/* Keeps the blocks in use; *sum: bytes of all blocks. */
static ckpt_code decode_blocks(ckpt_snapshot *s, const segment *in, ckpt_snapshot_block *block, ckpt_bytes *sum)
{
    const ckpt_pickle_value blocks = ckpt_pickle_find(in->value, "blocks");
    int64_t address = in->address;
    *sum = 0;
    for (int i = 0; i < blocks.count; i++) {
        const location at = {"segments", ".blocks", in->index, i};
        const ckpt_pickle_value value = ckpt_pickle_item(&blocks, i);
        ckpt_snapshot_block b = {.allocated.action = CKPT_SNAPSHOT_ALLOC};
        if (value.type != CKPT_PICKLE_DICT) {
            return bad(s, &at, NULL, &value, "a dict");
        }
        const ckpt_pickle_value state = ckpt_pickle_find(&value, "state");
        if (state.type != CKPT_PICKLE_TEXT) {
            return bad(s, &at, "state", &state, "a text");
        }
        CKPT_TRY(member_int(s, &at, &value, "size", INT64_MAX, -1, &b.room_bytes));
        CKPT_TRY(member_int(s, &at, &value, "address", INT64_MAX, address, &b.allocated.address));
        CKPT_TRY(requested_size(s, &at, &value, b.room_bytes, &b.allocated.size_bytes));
        int64_t end = 0;
        if (!ckpt_sum(address, b.room_bytes, &address) || !ckpt_sum(b.allocated.address, b.room_bytes, &end) ||
            !ckpt_sum(*sum, b.room_bytes, sum)) {
            const ckpt_pickle_value size = ckpt_pickle_find(&value, "size");
            return bad(s, &at, "size", &size, "an end within 63 bits");
        }
        if (!ckpt_pickle_is_text(&state, "inactive")) {
            CKPT_TRY(name_block(s, &value, in->stream, &b.allocated));
            block[s->block_count++] = b;
        }
    }
    return CKPT_OK;
}

/* Reads segment i if it belongs to the chosen device. */
static ckpt_code decode_segment(ckpt_snapshot *s, const ckpt_pickle_value *value, int i, ckpt_snapshot_block *block)
{
    const location at = {"segments", "", i, -1};
    segment in = {.value = value, .index = i};
    int64_t device = 0;
    ckpt_bytes sum = 0;
    CKPT_TRY(member_int(s, &at, value, "device", INT32_MAX, s->device, &device));
    if (device != s->device) {
        s->other_segments++;
        return CKPT_OK;
    }
    CKPT_TRY(member_int(s, &at, value, "address", INT64_MAX, -1, &in.address));
    CKPT_TRY(member_int(s, &at, value, "total_size", INT64_MAX, -1, &in.total_bytes));
    CKPT_TRY(member_int(s, &at, value, "stream", INT64_MAX, 0, &in.stream));
    /* segments from torch.profiler only span the addresses it saw; those from the allocator say what is in use */
    s->knows_reserved = s->knows_reserved || ckpt_pickle_find(value, "allocated_size").type != CKPT_PICKLE_ABSENT;
    if (!ckpt_sum(s->reserved_bytes, in.total_bytes, &s->reserved_bytes)) {
        return CKPT_FAIL(s->err, CKPT_OVERFLOW, "%.200s: the sum of all segments does not fit 63 bits", s->path);
    }
    const int before = s->block_count;
    CKPT_TRY(decode_blocks(s, &in, block, &sum));
    if (sum != in.total_bytes) { /* then their addresses are unknown too */
        ckpt_import_say(s->note, "segments[%d] is of %lld bytes, its blocks of %lld: its %d blocks in use are left out",
                        i, (long long)in.total_bytes, (long long)sum, s->block_count - before);
        s->block_count = before;
    }
    return CKPT_OK;
}

/* Each block must be a value of its own. A hostile file in which many segments share one list of blocks has more blocks
 * than values and would need far more memory than its size. */
static ckpt_code count_blocks(const ckpt_snapshot *s, const ckpt_pickle_value *segments, int64_t *count)
{
    *count = 0;
    for (int i = 0; i < segments->count; i++) {
        const location at = {"segments", "", i, -1};
        const ckpt_pickle_value value = ckpt_pickle_item(segments, i);
        if (value.type != CKPT_PICKLE_DICT) {
            return bad(s, &at, NULL, &value, "a dict");
        }
        const ckpt_pickle_value blocks = ckpt_pickle_find(&value, "blocks");
        if (blocks.type != CKPT_PICKLE_ABSENT && blocks.type != CKPT_PICKLE_LIST) {
            return bad(s, &at, "blocks", &blocks, "a list");
        }
        *count += blocks.count;
        if (*count > s->root.in->value_count) {
            return bad(s, &at, "blocks", &blocks, "blocks of its own");
        }
    }
    return CKPT_OK;
}

static ckpt_code decode_segments(ckpt_snapshot *s, const ckpt_pickle_value *segments, int64_t count)
{
    ckpt_snapshot_block *const block = CKPT_NEW(s->work, ckpt_snapshot_block, count);
    if (block == NULL) {
        return no_memory(s);
    }
    for (int i = 0; i < segments->count; i++) {
        const ckpt_pickle_value value = ckpt_pickle_item(segments, i);
        CKPT_TRY(decode_segment(s, &value, i, block));
    }
    if (s->other_segments > 0) {
        ckpt_import_say(s->note, "%d segments of other devices are left out", s->other_segments);
    }
    s->block = block;
    if (s->block_count > 0 && !s->knows_reserved) {
        ckpt_import_say(s->note,
                        "the segments are spans of addresses, not memory that was reserved: nothing is outside");
    }
    return CKPT_OK;
}

ckpt_code ckpt_snapshot_decode(ckpt_snapshot *s)
{
    ckpt_pickle_value traces = {.type = CKPT_PICKLE_ABSENT};
    ckpt_pickle_value segments = traces;
    ckpt_pickle_value entries = traces;
    int64_t count = 0;
    if (s->root.type == CKPT_PICKLE_LIST) { /* memory_snapshot() alone */
        segments = s->root;
    } else if (s->root.type == CKPT_PICKLE_DICT) {
        CKPT_TRY(root_list(s, "device_traces", &traces));
        CKPT_TRY(root_list(s, "segments", &segments));
    }
    if (traces.type == CKPT_PICKLE_ABSENT && segments.type == CKPT_PICKLE_ABSENT) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT,
                         "%.200s: found %s without them, wanted a dict with \"segments\" and \"device_traces\"",
                         s->path, ckpt_pickle_type_name(s->root.type));
    }
    CKPT_TRY(count_blocks(s, &segments, &count));
    CKPT_TRY(choose_device(s, &traces, &segments, &entries));
    CKPT_TRY(decode_entries(s, &entries));
    CKPT_TRY(decode_segments(s, &segments, count));
    const ckpt_pickle_value host = ckpt_pickle_find(&s->root, "host_traces");
    s->has_host = host.type == CKPT_PICKLE_LIST && host.count > 0;
    return ckpt_snapshot_read_annotations(s);
}
