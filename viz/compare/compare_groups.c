/* Decisions and ways that changed, layers and ops of repeated blocks together: names that differ in their numbers alone ("h.0.mlp",
 * "h.1.mlp") and changed alike. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

typedef struct member {
    const char *name;
    const char *pattern; /* the name with # for each part that is a number */
    ckpt_decision base, fresh;
    const char *base_way, *fresh_way; /* of ways; else "" */
    int at;
} member;

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Letters of the part of a name that begins at `name`, up to the next dot or the end. *number: all are digits. */
static size_t part(const char *name, bool *number)
{
    const size_t length = strcspn(name, ".");
    *number = length > 0;
    for (size_t i = 0; i < length; i++) {
        *number = *number && digit(name[i]);
    }
    return length;
}

static const char *pattern_of(const char *name, ckpt_arena *out)
{
    char *const pattern = ckpt_arena_text(out, name);
    char *to = pattern;
    for (const char *from = name; to != NULL;) {
        bool number = false;
        const size_t length = part(from, &number);
        memmove(to, number ? "#" : from, number ? 1 : length);
        to += number ? 1 : length;
        from += length;
        *to = *from;
        if (*from++ == '\0') {
            break;
        }
        to++;
    }
    return pattern;
}

static int by_pattern(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    const int order = strcmp(x->pattern, y->pattern);
    const int changes = (int)(x->base * 8 + x->fresh) - (int)(y->base * 8 + y->fresh);
    const int was = strcmp(x->base_way, y->base_way), is = strcmp(x->fresh_way, y->fresh_way);
    return order != 0 ? order : changes != 0 ? changes : was != 0 ? was : is != 0 ? is : x->at - y->at;
}

/* The number in the only part of two names of a pattern in which they differ; false: there is not one such part. *end:
 * where the part ends in `name`. */
static bool numbers(const char *name, const char *other, int64_t *own, int64_t *others, size_t *end)
{
    int differ = 0;
    const char *const start = name;
    for (bool more = true; more;) {
        bool number = false, number_too = false;
        const size_t length = part(name, &number), length_too = part(other, &number_too);
        if (length != length_too || strncmp(name, other, length) != 0) {
            differ++;
            *own = length < 18 ? strtoll(name, NULL, 10) : 0;
            *others = length_too < 18 ? strtoll(other, NULL, 10) : 0;
            *end = (size_t)(name - start) + length;
        }
        more = name[length] != '\0' && other[length_too] != '\0';
        name += length + 1;
        other += length_too + 1;
    }
    return differ == 1;
}

/* All members differ from the first in that one part alone. */
static bool one_varies(const member *first, int count, size_t cut)
{
    for (int i = 1; i < count; i++) {
        int64_t own = 0, others = 0;
        size_t end = 0;
        if (!numbers(first[0].name, first[i].name, &own, &others, &end) || end != cut) {
            return false;
        }
    }
    return true;
}

/* "h.0 … h.5.mlp" for members first .. last. */
static const char *name_group(ckpt_comparer *c, const member *first, int count, int *of)
{
    const char *const one = first[0].name, *const end = first[count - 1].name;
    int64_t low = 0, high = 0;
    size_t cut = 0;
    *of = 0;
    if (count > 1 && numbers(one, end, &low, &high, &cut) && one_varies(first, count, cut)) {
        const int64_t span = llabs(high - low) + 1;
        *of = span > count && span <= INT32_MAX ? (int)span : 0;
        return CKPT_COMPARE_SAY(c, "%.*s … %s", (int)cut, one, end);
    }
    return count > 1 ? CKPT_COMPARE_SAY(c, "%s … %s", one, end) : one;
}

typedef struct ordered {
    ckpt_decision_group group;
    int first, nth;
} ordered;

static int by_change(const void *a, const void *b)
{
    const ordered *const x = a, *const y = b;
    const int64_t times[] = {llabs(x->group.recomputed_ns), llabs(y->group.recomputed_ns)};
    const int64_t bytes[] = {llabs(x->group.peak_bytes), llabs(y->group.peak_bytes)};
    return times[0] != times[1]   ? (times[0] < times[1] ? 1 : -1)
           : bytes[0] != bytes[1] ? (bytes[0] < bytes[1] ? 1 : -1)
                                  : x->first - y->first;
}

static bool alike(const member *a, const member *b)
{
    return strcmp(a->pattern, b->pattern) == 0 && a->base == b->base && a->fresh == b->fresh &&
           strcmp(a->base_way, b->base_way) == 0 && strcmp(a->fresh_way, b->fresh_way) == 0;
}

void ckpt_group_decisions(ckpt_comparer *c)
{
    const int count = c->d->decision_count;
    ckpt_decision_change *const change = (ckpt_decision_change *)c->d->decision;
    member *const all = CKPT_COMPARE_NEW(c, member, count);
    ordered *const found = CKPT_COMPARE_NEW(c, ordered, count);
    ckpt_decision_group *const group = CKPT_COMPARE_NEW(c, ckpt_decision_group, count);
    int *const rank = CKPT_COMPARE_NEW(c, int, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        const char *const pattern = ckpt_compare_keep(c, pattern_of(change[i].layer, c->out));
        all[i] = (member){change[i].layer, pattern, change[i].base, change[i].fresh, "", "", i};
    }
    if (c->code != CKPT_OK) {
        return;
    }
    qsort(all, (size_t)count, sizeof *all, by_pattern);
    int groups = 0;
    for (int i = 0, end = 0; i < count; i = end) {
        ordered *const o = &found[groups];
        *o = (ordered){{.base = all[i].base, .fresh = all[i].fresh}, all[i].at, groups};
        for (; end < count && alike(&all[i], &all[end]); end++) {
            ckpt_decision_change *const d = &change[all[end].at];
            o->group.recomputed_ns = ckpt_plus(o->group.recomputed_ns, d->recomputed_ns);
            o->group.copied_bytes = ckpt_plus(o->group.copied_bytes, d->copied_bytes);
            o->group.peak_bytes = ckpt_plus(o->group.peak_bytes, d->peak_bytes);
            d->group = groups;
        }
        o->group.count = end - i;
        o->group.name = name_group(c, &all[i], end - i, &o->group.of);
        groups++;
    }
    qsort(found, (size_t)groups, sizeof *found, by_change);
    for (int g = 0; g < groups; g++) {
        group[g] = found[g].group;
        rank[found[g].nth] = g;
    }
    for (int i = 0; i < count; i++) {
        change[i].group = rank[change[i].group];
    }
    c->d->decision_group = group;
    c->d->decision_group_count = groups;
}

typedef struct ordered_way {
    ckpt_way_group group;
    int first;
} ordered_way;

static int by_way_change(const void *a, const void *b)
{
    const ordered_way *const x = a, *const y = b;
    const int64_t times[] = {llabs(x->group.time_ns), llabs(y->group.time_ns)};
    const int64_t bytes[] = {llabs(x->group.workspace_bytes), llabs(y->group.workspace_bytes)};
    return times[0] != times[1]   ? (times[0] < times[1] ? 1 : -1)
           : bytes[0] != bytes[1] ? (bytes[0] < bytes[1] ? 1 : -1)
                                  : x->first - y->first;
}

void ckpt_group_ways(ckpt_comparer *c)
{
    const int count = c->d->way_count;
    member *const all = CKPT_COMPARE_NEW(c, member, count);
    ordered_way *const found = CKPT_COMPARE_NEW(c, ordered_way, count);
    ckpt_way_group *const group = CKPT_COMPARE_NEW(c, ckpt_way_group, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        const ckpt_way_change *const w = &c->d->way[i];
        const char *const pattern = ckpt_compare_keep(c, pattern_of(w->op, c->out));
        all[i] = (member){w->op, pattern, CKPT_KEEP, CKPT_KEEP, w->base, w->fresh, i};
    }
    if (c->code != CKPT_OK) {
        return;
    }
    qsort(all, (size_t)count, sizeof *all, by_pattern);
    int groups = 0;
    for (int i = 0, end = 0; i < count; i = end) {
        ordered_way *const o = &found[groups++];
        *o = (ordered_way){{.base = all[i].base_way, .fresh = all[i].fresh_way, .timed = true}, all[i].at};
        for (; end < count && alike(&all[i], &all[end]); end++) {
            const ckpt_way_change *const w = &c->d->way[all[end].at];
            o->group.timed = o->group.timed && w->timed;
            o->group.time_ns = ckpt_plus(o->group.time_ns, w->time_ns);
            if (llabs(w->workspace_bytes) > llabs(o->group.workspace_bytes)) {
                o->group.workspace_bytes = w->workspace_bytes;
            }
        }
        o->group.count = end - i;
        o->group.name = name_group(c, &all[i], end - i, &o->group.of);
    }
    qsort(found, (size_t)groups, sizeof *found, by_way_change);
    for (int g = 0; g < groups; g++) {
        group[g] = found[g].group;
    }
    c->d->way_group = group;
    c->d->way_group_count = groups;
}
