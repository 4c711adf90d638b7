/* Placement: offsets for buffers that live in known ranges of steps. Knows plans and problems of packing, no
 * strategy. */
#ifndef CKPT_PLANNER_PLACEMENT_ALLOCATE_H
#define CKPT_PLANNER_PLACEMENT_ALLOCATE_H

#include "core/formats/plan.h"
#include "planner/schedule/options.h"

/* Give every allocation an offset so that no two that share a step overlap; `arena_bytes` is the highest end. Greedy
 * orders come first. When they take more than the live bound (ckpt_allocations_live), a search looks for a packing
 * that takes no more. When it finds none and more than `enough` bytes are taken, it looks for one within `enough`
 * (0: the live bound). options->effort says how much is searched (options NULL: normal), in comparisons: same input,
 * same result. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n + n gaps), and beyond that a fixed number of
 * comparisons: about 0.1 s, 1 s, 10 s at effort 1, 2, 3. */
CKPT_MUST_USE ckpt_code ckpt_allocations_pack(ckpt_allocation *allocation, int count, ckpt_bytes enough,
                                              const ckpt_plan_options *options, ckpt_arena *scratch,
                                              ckpt_bytes *arena_bytes, ckpt_err *err);

/* Where a packing is above `capacity`: by how much, and the span of steps of all allocations that are. 0 bytes:
 * nowhere. A sequence that holds that much less in those steps can be placed as this one was. */
void ckpt_allocations_overflow(const ckpt_allocation *allocation, int count, ckpt_bytes capacity, int *from, int *to,
                               ckpt_bytes *bytes);

/* The most that is live in any step: no packing can be smaller. */
CKPT_MUST_USE ckpt_code ckpt_allocations_live(const ckpt_allocation *allocation, int count, ckpt_arena *scratch,
                                              ckpt_bytes *most, ckpt_err *err);

/* Offsets for the allocations of ckpt_sequence_steps, and arena_bytes, by ckpt_allocations_pack. An in-place output and
 * its input are one allocation to the packer. */
CKPT_MUST_USE ckpt_code ckpt_sequence_pack(const ckpt_graph *graph, ckpt_plan *plan, ckpt_bytes enough,
                                           const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err);

#endif
