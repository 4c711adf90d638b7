/* For programs, which read their files in one thread. */
#include "core/base/pipes.h"

#include <string.h>

#include "core/base/memory.h"

typedef struct kept {
    char *path, *bytes;
    size_t length;
} kept;

static kept kept_input, kept_pipe;

static kept *slot_of(const char *path)
{
    return strcmp(path, "-") == 0 ? &kept_input : &kept_pipe;
}

bool ckpt_pipe_find(const char *path, char **bytes, size_t *length)
{
    const kept *const k = slot_of(path);
    const bool found = k->path != NULL && strcmp(k->path, path) == 0;
    if (found) {
        *bytes = k->bytes;
        *length = k->length;
    }
    return found;
}

bool ckpt_pipe_keep(const char *path, char *bytes, size_t length)
{
    kept *const k = slot_of(path);
    char *const copy = ckpt_memory_get(strlen(path) + 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, path, strlen(path) + 1);
    ckpt_memory_put(k->path);
    ckpt_memory_put(k->bytes);
    *k = (kept){copy, bytes, length};
    return true;
}
