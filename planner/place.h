/* Placement: offsets for buffers that live in known spans of steps. */
#ifndef CKPT_PLANNER_PLACE_H
#define CKPT_PLANNER_PLACE_H

#include "core/plan.h"

/* Give every place an offset so that no two that share a step overlap; `arena_bytes` is the highest end.
 * Several orders of first and best fit, then the best order is changed where it hurts, with a fixed seed, until the
 * live bound (ckpt_places_live), `enough` bytes or a bound on the work is reached: same input, same answer, and a
 * larger `enough` only stops earlier. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n + n gaps), and beyond that
 * a fixed number of comparisons, about 20 ms. */
CKPT_MUST_USE ckpt_code ckpt_places_pack(ckpt_place *place, int count, ckpt_bytes enough, ckpt_arena *scratch,
                                         ckpt_bytes *arena_bytes, ckpt_err *err);

/* The most that is live in any step: no packing can be smaller. */
CKPT_MUST_USE ckpt_code ckpt_places_live(const ckpt_place *place, int count, ckpt_arena *scratch, ckpt_bytes *most,
                                         ckpt_err *err);

#endif
