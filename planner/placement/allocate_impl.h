/* What the parts of placement share: greedy orders (allocate_greedy.c) and exact search (allocate_search.c). */
#ifndef CKPT_PLANNER_PLACEMENT_ALLOCATE_IMPL_H
#define CKPT_PLANNER_PLACEMENT_ALLOCATE_IMPL_H

#include "planner/placement/allocate.h"

/* Live bytes of every step into live[0 .. steps - 1]; `live` and `ended` come zeroed. Errors: CKPT_OVERFLOW. */
CKPT_MUST_USE ckpt_code ckpt_allocations_count_live(const ckpt_allocation *allocation, int count, int steps,
                                                    ckpt_bytes *live, uint64_t *ended, ckpt_bytes *most, ckpt_err *err);

/* The last step of any allocation, and one more. */
int ckpt_allocations_steps(const ckpt_allocation *allocation, int count);

/* Greedy walks over the steps, then orders of the skyline, until one takes no more than `bound`, the most that is live
 * in any step; at least the first walk, and of few allocations a skyline, when the options (NULL: none) end it early.
 * Offsets are set. Errors:
 * CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_allocations_greedy(ckpt_allocation *allocation, int count, ckpt_bytes bound,
                                                const ckpt_plan_options *options, ckpt_arena *scratch,
                                                ckpt_bytes *arena_bytes, ckpt_err *err);

/* Free room between blocks 0, 1, ... that are put and removed one at a time. */
typedef struct ckpt_gaps ckpt_gaps;

/* For so many blocks; NULL: no memory. */
ckpt_gaps *ckpt_gaps_take(int blocks, ckpt_arena *scratch);

/* Nothing is put. Blocks go into the gap of the lowest address, or into the smallest that is large enough. */
void ckpt_gaps_clear(ckpt_gaps *gaps, bool tightest);

/* The address of a block of bytes > 0 that is not there; -1: beyond 63 bits. Cost: O(log gaps), expected. */
ckpt_bytes ckpt_gaps_put(ckpt_gaps *gaps, int block, ckpt_bytes bytes);

/* A block that was put with so many bytes goes. Cost: O(log gaps), expected. */
void ckpt_gaps_remove(ckpt_gaps *gaps, int block, ckpt_bytes bytes);

/* Six orders of the skyline, until one takes no more than `enough`. When one takes less than *arena_bytes that is set,
 * and offsets are.
 *   busy   per allocation: the most that is live in any of its steps
 *   work   nodes to look at; none more when the options end it early
 * Errors: CKPT_NO_MEMORY. Cost: about O(n log n) for each order. */
CKPT_MUST_USE ckpt_code ckpt_allocations_skyline(ckpt_allocation *allocation, int count, ckpt_bytes enough,
                                                 const ckpt_bytes *busy, int64_t work, const ckpt_plan_options *options,
                                                 ckpt_arena *scratch, ckpt_bytes *arena_bytes, ckpt_err *err);

/* So many allocations get their first skyline, some 0.1 s, under any time limit. */
enum { CKPT_QUICK_ALLOCATIONS = 50000 };

enum { CKPT_PREORDERS = 6 };

/* Key k = 0, 1, 2 of an allocation in one of the orders, the larger the sooner: how busy its busiest step is, its width
 * in steps, its area, its bytes. */
int64_t ckpt_allocations_preorder(int order, int k, ckpt_bytes bytes, int64_t width, ckpt_bytes busy);

typedef enum ckpt_pack_outcome {
    CKPT_PACK_FOUND, /* offsets are set */
    CKPT_PACK_NONE,  /* proved: there is no packing within the capacity */
    CKPT_PACK_SPENT, /* neither found nor refuted with that much work */
} ckpt_pack_outcome;

/* A packing within `capacity`, or the proof that there is none.
 *   work   elementary comparisons to spend; what was spent is taken off
 * Offsets are written when found only. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_allocations_search(ckpt_allocation *allocation, int count, ckpt_bytes capacity,
                                                int64_t *work, const ckpt_plan_options *options, ckpt_arena *scratch,
                                                ckpt_pack_outcome *outcome, ckpt_err *err);

#endif
