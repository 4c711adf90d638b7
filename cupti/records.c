/* Keeps what was recorded until it is collected: activities, each name once, the tags of calls, and ranges whose other
 * half is still missing. CUPTI gives buffers back thread by thread, so nothing here relies on order. */
#include "cupti/activity.h"

#ifdef CKPT_HAVE_CUPTI
#include <stdlib.h>
#include <string.h>

#include "cupti/cupti_impl.h"

typedef struct kept {
    ckpt_activity activity;
    size_t name; /* its number */
} kept;

typedef struct name {
    const char *text; /* in the records' own arena */
    const char *out;  /* in the arena that is collected into; NULL: not copied yet */
    uint64_t hash;
} name;

/* One fact about a call: its tag, or when it began. */
typedef struct link {
    uint32_t correlation;
    bool tag;
    uint64_t value;
} link;

typedef struct half {
    bool used, start;
    uint32_t marker;
    ckpt_activity activity;
} half;

/* The two tables are open hash tables whose size is a power of two, at most half of them in use. */
struct ckpt_records {
    kept *kept;
    link *link;
    name *name;
    size_t *slot; /* number of a name + 1; 0: free */
    half *half;
    size_t kept_count, kept_capacity, link_count, link_capacity, name_count, name_capacity, slot_count;
    size_t half_count, halves;
    ckpt_arena texts;
};

ckpt_records *ckpt_records_create(void)
{
    ckpt_records *const r = ckpt_memory_get(sizeof *r);
    if (r != NULL) {
        ckpt_arena_init(&r->texts);
    }
    return r;
}

static void forget(ckpt_records *r)
{
    ckpt_memory_put(r->kept);
    ckpt_memory_put(r->link);
    r->kept = NULL;
    r->link = NULL;
    r->kept_count = r->kept_capacity = r->link_count = r->link_capacity = 0;
}

void ckpt_records_destroy(ckpt_records *r)
{
    if (r == NULL) {
        return;
    }
    forget(r);
    ckpt_memory_put(r->name);
    ckpt_memory_put(r->slot);
    ckpt_memory_put(r->half);
    ckpt_arena_fini(&r->texts);
    ckpt_memory_put(r);
}

/* `array`, grown if necessary to hold one element more than `count`. NULL: no memory, and the array is unchanged. */
static void *room(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) {
        return array;
    }
    const size_t more = *capacity > 0 ? 2 * *capacity : 64;
    void *const grown = more <= SIZE_MAX / 2 / size ? ckpt_memory_resize(array, more * size) : NULL;
    if (grown != NULL) {
        *capacity = more;
    }
    return grown;
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = 14695981039346656037U; /* FNV-1a */
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        h = (h ^ *c) * 1099511628211U;
    }
    return h;
}

static bool grow_slots(ckpt_records *r)
{
    if (2 * (r->name_count + 1) <= r->slot_count) {
        return true;
    }
    const size_t slots = r->slot_count > 0 ? 2 * r->slot_count : 128;
    size_t *const slot = ckpt_memory_get(slots * sizeof *slot);
    if (slot == NULL) {
        return false;
    }
    for (size_t i = 0; i < r->name_count; i++) {
        size_t at = r->name[i].hash & (slots - 1);
        while (slot[at] != 0) {
            at = (at + 1) & (slots - 1);
        }
        slot[at] = i + 1;
    }
    ckpt_memory_put(r->slot);
    r->slot = slot;
    r->slot_count = slots;
    return true;
}

/* Keeps the name and gives its number. */
static bool keep_name(ckpt_records *r, const char *text, size_t *number)
{
    const uint64_t hash = hash_text(text);
    if (!grow_slots(r)) {
        return false;
    }
    size_t at = hash & (r->slot_count - 1);
    for (; r->slot[at] != 0; at = (at + 1) & (r->slot_count - 1)) {
        const name *const n = &r->name[r->slot[at] - 1];
        if (n->hash == hash && strcmp(n->text, text) == 0) {
            *number = r->slot[at] - 1;
            return true;
        }
    }
    name *const names = room(r->name, r->name_count, &r->name_capacity, sizeof *names);
    if (names == NULL) {
        return false;
    }
    r->name = names;
    const char *const copy = ckpt_arena_text(&r->texts, text);
    if (copy == NULL) {
        return false;
    }
    names[r->name_count] = (name){.text = copy, .hash = hash};
    *number = r->name_count++;
    r->slot[at] = *number + 1;
    return true;
}

static bool keep_activity(ckpt_records *r, const ckpt_activity *activity)
{
    size_t number = 0;
    kept *const k = room(r->kept, r->kept_count, &r->kept_capacity, sizeof *k);
    if (k == NULL) {
        return false;
    }
    r->kept = k;
    if (!keep_name(r, activity->name, &number)) {
        return false;
    }
    k[r->kept_count++] = (kept){*activity, number};
    return true;
}

static bool keep_link(ckpt_records *r, link fact)
{
    link *const l = room(r->link, r->link_count, &r->link_capacity, sizeof *l);
    if (l == NULL) {
        return false;
    }
    r->link = l;
    l[r->link_count++] = fact;
    return true;
}

bool ckpt_records_call(ckpt_records *r, uint32_t correlation, ckpt_ns start_ns)
{
    return keep_link(r, (link){correlation, false, (uint64_t)start_ns});
}

/* Markers have consecutive numbers: any odd factor spreads them. */
static size_t home_of(const ckpt_records *r, uint32_t marker)
{
    return (size_t)(marker * 2654435761U) & (r->halves - 1);
}

static bool grow_halves(ckpt_records *r)
{
    if (2 * (r->half_count + 1) <= r->halves) {
        return true;
    }
    half *const old = r->half;
    const size_t old_halves = r->halves;
    half *const fresh = ckpt_memory_get((old_halves > 0 ? 2 * old_halves : 64) * sizeof *fresh);
    if (fresh == NULL) {
        return false;
    }
    r->half = fresh;
    r->halves = old_halves > 0 ? 2 * old_halves : 64;
    for (size_t i = 0; i < old_halves; i++) {
        size_t at = home_of(r, old[i].marker);
        while (old[i].used && fresh[at].used) {
            at = (at + 1) & (r->halves - 1);
        }
        if (old[i].used) {
            fresh[at] = old[i];
        }
    }
    ckpt_memory_put(old);
    return true;
}

/* Removes the entry at `at` and closes the gap: later entries that could no longer be found move up (Knuth, The Art of
 * Computer Programming 3, 6.4, algorithm R). */
static void remove_half(ckpt_records *r, size_t at)
{
    const size_t mask = r->halves - 1;
    r->half_count--;
    for (size_t next = (at + 1) & mask; r->half[next].used; next = (next + 1) & mask) {
        const size_t home = home_of(r, r->half[next].marker);
        if (((next - home) & mask) >= ((next - at) & mask)) {
            r->half[at] = r->half[next];
            at = next;
        }
    }
    r->half[at].used = false;
}

bool ckpt_records_range(ckpt_records *r, ckpt_cupti_record_kind kind, const ckpt_cupti_record *record,
                        ckpt_activity *whole, bool *complete)
{
    const bool start = kind == CKPT_CUPTI_RANGE_START;
    half fresh = {true, start, record->marker, record->activity};
    size_t number = 0;
    *complete = false;
    if (!grow_halves(r)) {
        return false;
    }
    size_t at = home_of(r, record->marker);
    while (r->half[at].used && (r->half[at].marker != record->marker || r->half[at].start == start)) {
        at = (at + 1) & (r->halves - 1);
    }
    if (r->half[at].used) {
        const ckpt_activity *const first = start ? &record->activity : &r->half[at].activity;
        const ckpt_activity *const last = start ? &r->half[at].activity : &record->activity;
        *whole = *first;
        whole->end_ns = last->end_ns;
        *complete = true;
        remove_half(r, at);
        return true;
    }
    if (!keep_name(r, record->activity.name, &number)) {
        return false;
    }
    fresh.activity.name = r->name[number].text;
    r->half[at] = fresh;
    r->half_count++;
    return true;
}

bool ckpt_records_add(ckpt_records *r, ckpt_cupti_record_kind kind, const ckpt_cupti_record *record)
{
    return kind == CKPT_CUPTI_TAG ? keep_link(r, (link){record->activity.correlation, true, record->activity.tag})
                                  : keep_activity(r, &record->activity);
}

static int compare_links(const void *a, const void *b)
{
    const link *const x = a;
    const link *const y = b;
    return x->correlation != y->correlation ? (x->correlation > y->correlation) - (x->correlation < y->correlation)
                                            : (x->tag > y->tag) - (x->tag < y->tag);
}

/* By start. Activities that start together have a fixed order, whichever thread's buffer came first: a longer one
 * before those that may lie inside it. */
static int compare_kept(const void *a, const void *b)
{
    const ckpt_activity *const x = &((const kept *)a)->activity;
    const ckpt_activity *const y = &((const kept *)b)->activity;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    if (x->end_ns != y->end_ns) {
        return x->end_ns > y->end_ns ? -1 : 1;
    }
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

/* Gives `a` its tag, and measures how long before its call it started. */
static void join(const ckpt_records *r, ckpt_activity *a, ckpt_ns *skew_ns)
{
    size_t low = 0;
    size_t high = a->correlation != 0 ? r->link_count : 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->link[middle].correlation < a->correlation) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < r->link_count && a->correlation != 0 && r->link[low].correlation == a->correlation; low++) {
        const link *const fact = &r->link[low];
        if (fact->tag) {
            a->tag = fact->value;
        } else if ((ckpt_ns)fact->value - a->start_ns > *skew_ns) {
            *skew_ns = (ckpt_ns)fact->value - a->start_ns;
        }
    }
}

static ckpt_code collect(ckpt_records *r, ckpt_arena *out, const ckpt_activity **activity, int *count, ckpt_ns *skew_ns,
                         ckpt_err *err)
{
    if (r->kept_count > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%zu activities at once, wanted at most %d", r->kept_count, INT32_MAX);
    }
    ckpt_activity *const a = CKPT_NEW(out, ckpt_activity, r->kept_count);
    if (a == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu activities", r->kept_count);
    }
    if (r->kept_count > 0) {
        qsort(r->kept, r->kept_count, sizeof *r->kept, compare_kept);
    }
    if (r->link_count > 0) {
        qsort(r->link, r->link_count, sizeof *r->link, compare_links);
    }
    for (size_t i = 0; i < r->kept_count; i++) {
        name *const n = &r->name[r->kept[i].name];
        if (n->out == NULL) {
            n->out = ckpt_arena_text(out, n->text);
        }
        if (n->out == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "names of %zu activities", r->kept_count);
        }
        a[i] = r->kept[i].activity;
        a[i].name = n->out;
        join(r, &a[i], skew_ns);
    }
    *activity = a;
    *count = (int)r->kept_count;
    return CKPT_OK;
}

ckpt_code ckpt_records_collect(ckpt_records *r, ckpt_arena *out, const ckpt_activity **activity, int *count,
                               ckpt_ns *skew_ns, ckpt_err *err)
{
    const ckpt_code code = collect(r, out, activity, count, skew_ns, err);
    for (size_t i = 0; i < r->name_count; i++) {
        r->name[i].out = NULL;
    }
    forget(r);
    return code;
}
#endif
