/* Open addressing with linear probing, at most half full; FNV-1a as the hash. */
#include <stdint.h>
#include <string.h>

#include "core/base/names.h"

static size_t hash(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (const unsigned char *c = (const unsigned char *)key; *c != '\0'; c++) {
        h = (h ^ *c) * 1099511628211u;
    }
    return (size_t)(h ^ (h >> 32));
}

/* The slot that holds `key`, or the free one where it would go. */
static size_t find_slot(const ckpt_names *names, const char *key)
{
    size_t slot = hash(key) & (names->room - 1);
    while (names->key[slot] != NULL && strcmp(names->key[slot], key) != 0) {
        slot = (slot + 1) & (names->room - 1);
    }
    return slot;
}

ckpt_code ckpt_names_init(ckpt_names *names, int count, ckpt_arena *arena, ckpt_err *err)
{
    names->room = 8;
    while (names->room < 2 * (size_t)count) {
        names->room *= 2;
    }
    names->key = CKPT_NEW(arena, const char *, names->room);
    names->index = CKPT_NEW(arena, int, names->room);
    if (names->key == NULL || names->index == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a table of %d names", count);
    }
    return CKPT_OK;
}

int ckpt_names_add(ckpt_names *names, const char *key, int index)
{
    const size_t slot = find_slot(names, key);
    if (names->key[slot] != NULL) {
        return names->index[slot];
    }
    names->key[slot] = key;
    names->index[slot] = index;
    return -1;
}

int ckpt_names_find(const ckpt_names *names, const char *key)
{
    const size_t slot = find_slot(names, key);
    return names->key[slot] != NULL ? names->index[slot] : -1;
}
