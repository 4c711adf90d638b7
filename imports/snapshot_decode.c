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
    if (found == NULL) {
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
    const ckpt_pickle_value *const found = ckpt_pickle_find(dict, key);
    if (found == NULL && missing >= 0) {
        *number = missing;
        return CKPT_OK;
    }
    if (found == NULL || found->type != CKPT_PICKLE_INT || found->as.integer < 0 || found->as.integer > most) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "an integer of 0 to %lld", (long long)most);
        return bad(s, at, key, found, most == INT64_MAX ? "an integer of 0 or more" : wanted);
    }
    *number = found->as.integer;
    return CKPT_OK;
}

static ckpt_code no_memory(const ckpt_snapshot *s)
{
    return CKPT_FAIL(s->err, CKPT_NO_MEMORY, "%.200s: no memory for its entries", s->path);
}

/* root[key] as a list, or NULL with count 0. */
static ckpt_code root_list(const ckpt_snapshot *s, const char *key, const ckpt_pickle_value **list)
{
    const ckpt_pickle_value *const found = ckpt_pickle_find(s->root, key);
    if (found != NULL && found->type != CKPT_PICKLE_LIST) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT, "%.200s: found \"%s\", %s, wanted a list", s->path, key,
                         ckpt_pickle_type_name(found->type));
    }
    *list = found;
    return CKPT_OK;
}

/* Chooses the device with the most entries; without entries, that of the first segment. */
static ckpt_code choose_device(ckpt_snapshot *s, const ckpt_pickle_value *traces, const ckpt_pickle_value *segments,
                               const ckpt_pickle_value **entries)
{
    *entries = NULL;
    for (int i = 0; traces != NULL && i < traces->count; i++) {
        const ckpt_pickle_value *const list = traces->as.item[i];
        if (list->type != CKPT_PICKLE_LIST) {
            return bad(s, &(location){"device_traces", "", i, -1}, NULL, list, "a list of entries");
        }
        if (list->count > (*entries != NULL ? (*entries)->count : 0)) {
            *entries = list;
            s->device = i;
        }
    }
    if (*entries == NULL && segments != NULL && segments->count > 0) {
        int64_t device = 0;
        CKPT_TRY(
            member_int(s, &(location){"segments", "", 0, -1}, segments->as.item[0], "device", INT32_MAX, 0, &device));
        s->device = (int)device;
    }
    int others = 0;
    int64_t left = 0;
    for (int i = 0; traces != NULL && i < traces->count; i++) {
        const int count = i != s->device ? traces->as.item[i]->count : 0;
        others += count > 0;
        left += count;
    }
    if (others > 0) {
        ckpt_import_say(s->note, "%lld entries of %d other devices are left out; device %d has the most, %d",
                        (long long)left, others, s->device, (*entries)->count);
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
        const ckpt_pickle_value *const action = ckpt_pickle_find(entries->as.item[i], "action");
        const action_row *const row = action != NULL ? find_action(action) : NULL;
        if (row != NULL && row->completed) {
            return true;
        }
    }
    return false;
}

typedef struct entry_counts {
    int timed, backwards, other;
    const ckpt_pickle_value *first_other;
} entry_counts;

/* Sets the entry's time: its own, but not before the previous entry's. */
static ckpt_code decode_time(const ckpt_snapshot *s, const location *at, ckpt_snapshot_entry *entry,
                             entry_counts *counts)
{
    int64_t time_us = 0;
    const ckpt_ns before = at->item > 0 ? (entry - 1)->time_ns : 0;
    if (ckpt_pickle_find(entry->value, "time_us") == NULL) {
        entry->time_ns = before;
        return CKPT_OK;
    }
    CKPT_TRY(member_int(s, at, entry->value, "time_us", CKPT_SNAPSHOT_MOST_US, -1, &time_us));
    counts->timed++;
    counts->backwards += 1000 * time_us < before;
    entry->time_ns = 1000 * time_us < before ? before : 1000 * time_us;
    return CKPT_OK;
}

static ckpt_code decode_entry(const ckpt_snapshot *s, const location *at, bool completed, ckpt_snapshot_entry *entry,
                              entry_counts *counts)
{
    const ckpt_pickle_value *const action = ckpt_pickle_find(entry->value, "action");
    if (entry->value->type != CKPT_PICKLE_DICT) {
        return bad(s, at, NULL, entry->value, "a dict");
    }
    if (action == NULL || action->type != CKPT_PICKLE_TEXT) {
        return bad(s, at, "action", action, "a text");
    }
    CKPT_TRY(decode_time(s, at, entry, counts));
    const action_row *const row = find_action(action);
    entry->action = row != NULL && (!row->requested || !completed) ? row->action : CKPT_SNAPSHOT_NOTHING;
    if (row == NULL) {
        counts->first_other = counts->other++ == 0 ? action : counts->first_other;
    }
    if (entry->action == CKPT_SNAPSHOT_NOTHING || entry->action == CKPT_SNAPSHOT_MARK) {
        return CKPT_OK;
    }
    const bool oom = entry->action == CKPT_SNAPSHOT_OOM;
    CKPT_TRY(member_int(s, at, entry->value, "size", INT64_MAX, -1, &entry->size_bytes));
    CKPT_TRY(member_int(s, at, entry->value, "stream", INT64_MAX, 0, &entry->stream));
    return member_int(s, at, entry->value, oom ? "device_free" : "addr", INT64_MAX, oom ? 0 : -1, &entry->address);
}

static ckpt_code decode_entries(ckpt_snapshot *s, const ckpt_pickle_value *entries)
{
    const int count = entries != NULL ? entries->count : 0;
    ckpt_snapshot_entry *const entry = CKPT_NEW(s->work, ckpt_snapshot_entry, count);
    if (entry == NULL) {
        return no_memory(s);
    }
    const bool completed = count > 0 && has_completed(entries);
    entry_counts counts = {0};
    for (int i = 0; i < count; i++) {
        entry[i].value = entries->as.item[i];
        CKPT_TRY(decode_entry(s, &(location){"device_traces", "", s->device, i}, completed, &entry[i], &counts));
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
                        counts.first_other->count < 40 ? counts.first_other->count : 40, counts.first_other->as.bytes);
    }
    s->entry = entry;
    s->entry_count = count;
    return CKPT_OK;
}

/* The size that the program asked for, which may be less than the block's. */
static ckpt_code requested_size(const ckpt_snapshot *s, const location *at, ckpt_snapshot_block *block)
{
    const ckpt_pickle_value *const history = ckpt_pickle_find(block->value, "history");
    if (history != NULL && history->type == CKPT_PICKLE_LIST && history->count > 0) {
        return member_int(s, at, history->as.item[0], "real_size", INT64_MAX, block->room_bytes,
                          &block->requested_bytes);
    }
    return member_int(s, at, block->value, "requested_size", INT64_MAX, block->room_bytes, &block->requested_bytes);
}

typedef struct segment {
    const ckpt_pickle_value *value;
    int index;
    int64_t address, stream;
    ckpt_bytes total_bytes;
} segment;

/* Keeps the blocks in use; *sum: bytes of all blocks. */
static ckpt_code decode_blocks(ckpt_snapshot *s, const segment *in, ckpt_snapshot_block *block, ckpt_bytes *sum)
{
    const ckpt_pickle_value *const blocks = ckpt_pickle_find(in->value, "blocks");
    int64_t address = in->address;
    *sum = 0;
    for (int i = 0; blocks != NULL && i < blocks->count; i++) {
        const location at = {"segments", ".blocks", in->index, i};
        ckpt_snapshot_block b = {.value = blocks->as.item[i], .stream = in->stream};
        if (b.value->type != CKPT_PICKLE_DICT) {
            return bad(s, &at, NULL, b.value, "a dict");
        }
        const ckpt_pickle_value *const state = ckpt_pickle_find(b.value, "state");
        if (state == NULL || state->type != CKPT_PICKLE_TEXT) {
            return bad(s, &at, "state", state, "a text");
        }
        CKPT_TRY(member_int(s, &at, b.value, "size", INT64_MAX, -1, &b.room_bytes));
        CKPT_TRY(member_int(s, &at, b.value, "address", INT64_MAX, address, &b.address));
        CKPT_TRY(requested_size(s, &at, &b));
        int64_t end = 0;
        if (!ckpt_sum(address, b.room_bytes, &address) || !ckpt_sum(b.address, b.room_bytes, &end) ||
            !ckpt_sum(*sum, b.room_bytes, sum)) {
            return bad(s, &at, "size", ckpt_pickle_find(b.value, "size"), "an end within 63 bits");
        }
        if (!ckpt_pickle_is_text(state, "inactive")) {
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
    s->knows_reserved = s->knows_reserved || ckpt_pickle_find(value, "allocated_size") != NULL;
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
    for (int i = 0; segments != NULL && i < segments->count; i++) {
        const location at = {"segments", "", i, -1};
        if (segments->as.item[i]->type != CKPT_PICKLE_DICT) {
            return bad(s, &at, NULL, segments->as.item[i], "a dict");
        }
        const ckpt_pickle_value *const blocks = ckpt_pickle_find(segments->as.item[i], "blocks");
        if (blocks != NULL && blocks->type != CKPT_PICKLE_LIST) {
            return bad(s, &at, "blocks", blocks, "a list");
        }
        *count += blocks != NULL ? blocks->count : 0;
        if (*count > s->value_count) {
            return bad(s, &at, "blocks", blocks, "blocks of its own");
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_snapshot_decode(ckpt_snapshot *s)
{
    const ckpt_pickle_value *traces = NULL;
    const ckpt_pickle_value *segments = NULL;
    const ckpt_pickle_value *entries = NULL;
    int64_t count = 0;
    if (s->root->type == CKPT_PICKLE_LIST) { /* memory_snapshot() alone */
        segments = s->root;
    } else if (s->root->type == CKPT_PICKLE_DICT) {
        CKPT_TRY(root_list(s, "device_traces", &traces));
        CKPT_TRY(root_list(s, "segments", &segments));
    }
    if (traces == NULL && segments == NULL) {
        return CKPT_FAIL(s->err, CKPT_BAD_INPUT,
                         "%.200s: found %s without them, wanted a dict with \"segments\" and \"device_traces\"",
                         s->path, ckpt_pickle_type_name(s->root->type));
    }
    CKPT_TRY(count_blocks(s, segments, &count));
    CKPT_TRY(choose_device(s, traces, segments, &entries));
    CKPT_TRY(decode_entries(s, entries));
    ckpt_snapshot_block *const block = CKPT_NEW(s->work, ckpt_snapshot_block, count);
    if (block == NULL) {
        return no_memory(s);
    }
    for (int i = 0; segments != NULL && i < segments->count; i++) {
        CKPT_TRY(decode_segment(s, segments->as.item[i], i, block));
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
