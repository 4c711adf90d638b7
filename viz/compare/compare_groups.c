/* Layers and ops of repeated blocks that changed alike, together: names that differ in their numbers alone ("h.0.mlp",
 * "h.1.mlp"). */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

typedef struct member {
    const char *name;
    const char *pattern; /* the name with # for each part that is a number */
    const char *key;     /* how it changed */
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
    const int order = strcmp(x->pattern, y->pattern), keys = strcmp(x->key, y->key);
    return order != 0 ? order : keys != 0 ? keys : x->at - y->at;
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

static bool alike(const member *a, const member *b)
{
    return strcmp(a->pattern, b->pattern) == 0 && strcmp(a->key, b->key) == 0;
}

int ckpt_name_groups(ckpt_comparer *c, const char *const *name, const char *const *key, int count,
                     ckpt_name_group *group, int *group_of)
{
    member *const all = CKPT_COMPARE_NEW(c, member, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        all[i] = (member){name[i], ckpt_compare_keep(c, pattern_of(name[i], c->out)), key[i], i};
    }
    if (c->code != CKPT_OK) {
        return 0;
    }
    qsort(all, (size_t)count, sizeof *all, by_pattern);
    int groups = 0;
    for (int i = 0, end = 0; i < count; i = end) {
        for (; end < count && alike(&all[i], &all[end]); end++) {
            group_of[all[end].at] = groups;
        }
        ckpt_name_group *const g = &group[groups++];
        *g = (ckpt_name_group){.count = end - i, .first = all[i].at};
        g->name = name_group(c, &all[i], end - i, &g->of);
    }
    return groups;
}
