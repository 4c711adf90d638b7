/* Arena blocks double in size up to a limit, so that small users stay small and large ones take few blocks. */
/* MAP_ANONYMOUS is not in POSIX 2008. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "core/base/memory.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 4 << 20 };

struct ckpt_arena_block {
    ckpt_arena_block *older;
    size_t size, used;
    size_t dirty; /* bytes that may hold anything; what follows has never been touched and is zero */
    alignas(max_align_t) unsigned char bytes[];
};

static _Atomic int64_t live_blocks;
static _Atomic int64_t allowed_blocks = -1;
static _Thread_local size_t refused_bytes; /* of this thread, which says so in its message */

static bool allocation_allowed(void)
{
    int64_t left = atomic_load(&allowed_blocks);
    if (left < 0) {
        return true;
    }
    while (left > 0) {
        if (atomic_compare_exchange_weak(&allowed_blocks, &left, left - 1)) {
            return true;
        }
    }
    return false;
}

static void *get(size_t bytes, bool zeroed)
{
    bytes = bytes > 0 ? bytes : 1;
    void *const memory = !allocation_allowed() ? NULL : zeroed ? calloc(1, bytes) : malloc(bytes);
    if (memory != NULL) {
        atomic_fetch_add(&live_blocks, 1);
    } else {
        refused_bytes = bytes;
    }
    return memory;
}

void *ckpt_memory_get(size_t bytes)
{
    return get(bytes, true);
}

bool ckpt_memory_is_room(size_t bytes)
{
    void *const room =
        allocation_allowed() ? mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (room == MAP_FAILED) {
        refused_bytes = bytes;
        return false;
    }
    munmap(room, bytes);
    return true;
}

void *ckpt_memory_resize(void *old, size_t bytes)
{
    if (old == NULL) {
        return ckpt_memory_get(bytes);
    }
    void *const memory = allocation_allowed() ? realloc(old, bytes > 0 ? bytes : 1) : NULL;
    if (memory == NULL) {
        refused_bytes = bytes;
    }
    return memory;
}

size_t ckpt_memory_refused(void)
{
    const size_t bytes = refused_bytes;
    refused_bytes = 0;
    return bytes;
}

void ckpt_memory_put(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub(&live_blocks, 1);
        free(memory);
    }
}

void ckpt_memory_fail_after(int64_t allowed)
{
    atomic_store(&allowed_blocks, allowed < 0 ? -1 : allowed);
}

int64_t ckpt_memory_live(void)
{
    return atomic_load(&live_blocks);
}

void ckpt_arena_init(ckpt_arena *arena)
{
    arena->newest = NULL;
}

void ckpt_arena_fini(ckpt_arena *arena)
{
    ckpt_arena_rewind(arena, (ckpt_mark){NULL, 0});
}

ckpt_mark ckpt_arena_mark(const ckpt_arena *arena)
{
    return (ckpt_mark){arena->newest, arena->newest != NULL ? arena->newest->used : 0};
}

void ckpt_arena_rewind(ckpt_arena *arena, ckpt_mark mark)
{
    while (arena->newest != mark.block) {
        ckpt_arena_block *const gone = arena->newest;
        arena->newest = gone->older;
        ckpt_memory_put(gone);
    }
    ckpt_arena_block *const block = arena->newest;
    if (block != NULL) {
        block->dirty = block->used > block->dirty ? block->used : block->dirty;
        block->used = mark.used;
    }
}

void *ckpt_arena_take(ckpt_arena *arena, size_t count, size_t size)
{
    const size_t step = alignof(max_align_t);
    if (size != 0 && count > (SIZE_MAX / 2 - step) / size) {
        return NULL;
    }
    const size_t bytes = count * size;
    ckpt_arena_block *block = arena->newest;
    size_t from = block == NULL || size == 1 ? 0 : (step - block->used % step) % step; /* texts lie side by side */
    if (block == NULL || block->size - block->used < from || block->size - block->used - from < bytes) {
        size_t block_size = block == NULL ? FIRST_BLOCK : 2 * block->size;
        block_size = block_size > LARGEST_BLOCK ? LARGEST_BLOCK : block_size;
        block_size = block_size < bytes ? bytes : block_size;
        /* A block for many is zeroed as it is taken: one that comes and goes between a mark and its rewind must cost what is
         * taken of it. One for a single taker comes zeroed, often at no cost. */
        const bool zeroed = block_size == bytes;
        ckpt_arena_block *const fresh = get(sizeof *fresh + block_size, zeroed);
        if (fresh == NULL) {
            return NULL;
        }
        *fresh = (ckpt_arena_block){.older = block, .size = block_size, .dirty = zeroed ? 0 : block_size};
        arena->newest = block = fresh;
        from = 0;
    }
    const size_t begin = block->used + from;
    if (begin < block->dirty) {
        memset(block->bytes + begin, 0, bytes < block->dirty - begin ? bytes : block->dirty - begin);
    }
    block->used = begin + bytes;
    return block->bytes + begin;
}

char *ckpt_arena_text(ckpt_arena *arena, const char *text)
{
    const size_t length = strlen(text);
    char *const copy = ckpt_arena_take(arena, length + 1, 1);
    return copy != NULL ? memcpy(copy, text, length) : NULL;
}

char *ckpt_arena_format(ckpt_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *const text = length < 0 ? NULL : ckpt_arena_take(arena, (size_t)length + 1, 1);
    if (text != NULL) {
        va_start(args, format);
        vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}
