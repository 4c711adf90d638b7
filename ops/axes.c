#include "ops/axes.h"

#include <stdbool.h>
#include <string.h>

static int64_t member(const char *axis, size_t at)
{
    int64_t value;
    memcpy(&value, axis + at, sizeof value);
    return value;
}

void ckpt_axes_insert(void *axis, int *count, size_t size, size_t key, const void *more)
{
    char *const list = axis;
    if (member(more, 0) == 1) {
        return;
    }
    int at = *count;
    while (at > 0 && member(list + (size_t)(at - 1) * size, key) < member(more, key)) {
        at--;
    }
    char *const place = list + (size_t)at * size;
    memmove(place + size, place, (size_t)(*count - at) * size);
    memcpy(place, more, size);
    (*count)++;
}

int64_t ckpt_axes_merge(void *axis, int *count, size_t size)
{
    const size_t members = size / sizeof(int64_t);
    int64_t *const list = axis;
    int64_t indices = 1;
    int merged = 0;
    for (int i = 1; i < *count; i++) {
        int64_t *const last = &list[(size_t)merged * members], *const next = &list[(size_t)i * members];
        bool joins = true;
        for (size_t t = 1; t < members; t++) {
            joins = joins && last[t] == next[0] * next[t];
        }
        next[0] *= joins ? last[0] : 1;
        merged += !joins;
        memmove(&list[(size_t)merged * members], next, size);
    }
    if (*count == 0) {
        memset(list, 0, size);
        list[0] = 1;
    }
    *count = merged + 1;
    for (int i = 0; i < *count; i++) {
        indices *= list[(size_t)i * members];
    }
    return indices;
}
