/* Host memory: a growing arena, and the one place from which everything is allocated.
 *
 *     ckpt_arena:  block <- block <- block        (newest first; blocks never move, so pointers stay valid)
 *                  [used......|free]
 *
 * Results and what they point to live in an arena the caller gave; nobody frees one piece. Memory taken above a
 * mark goes when the arena is rewound to it. */
#ifndef CKPT_CORE_BASE_MEMORY_H
#define CKPT_CORE_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef struct ckpt_arena_block ckpt_arena_block;

typedef struct ckpt_arena {
    ckpt_arena_block *newest; /* NULL: empty */
} ckpt_arena;

typedef struct ckpt_mark {
    ckpt_arena_block *block;
    size_t used;
} ckpt_mark;

/* An empty arena. Takes no memory until the first take. */
void ckpt_arena_init(ckpt_arena *arena);

/* Frees everything. The arena is empty and can be used again. */
void ckpt_arena_fini(ckpt_arena *arena);

ckpt_mark ckpt_arena_mark(const ckpt_arena *arena);
void ckpt_arena_rewind(ckpt_arena *arena, ckpt_mark mark);

/* `count` elements of `size` bytes, zeroed, aligned for any type unless they are single bytes; NULL when count * size overflows or the host
 * has no more. count 0 gives a valid pointer. Cost: amortised O(bytes) for the zeroing. */
void *ckpt_arena_take(ckpt_arena *arena, size_t count, size_t size);

/* A terminated copy of `text`, or a formatted one; NULL when there is no memory. */
char *ckpt_arena_text(ckpt_arena *arena, const char *text);
char *ckpt_arena_format(ckpt_arena *arena, const char *format, ...) CKPT_PRINTF(2, 3);

#define CKPT_NEW(arena, type, count) ((type *)ckpt_arena_take((arena), (size_t)(count), sizeof(type)))

/* The only calls of malloc and free in this project. Tests make the n-th allocation fail with ckpt_memory_fail_after and find leaks with ckpt_memory_live. */
void *ckpt_memory_get(size_t bytes); /* zeroed; NULL when there is none */
void *ckpt_memory_resize(void *old, size_t bytes);
void ckpt_memory_put(void *memory); /* NULL is fine */

/* Are so many bytes of addresses (1 or more) to be had at this moment? To be asked before a call of a library that crashes
 * where it is refused memory. Nothing is kept or touched. Counts as an allocation for ckpt_memory_fail_after. */
bool ckpt_memory_is_room(size_t bytes);

/* Let `allowed` more allocations succeed and all later ones fail; a negative number ends that. Tests only. */
void ckpt_memory_fail_after(int64_t allowed);

/* The bytes of the latest allocation that this thread was refused since its last such call; 0: none was. */
size_t ckpt_memory_refused(void);

/* Blocks that are allocated now. */
int64_t ckpt_memory_live(void);

#endif
