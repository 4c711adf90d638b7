/* Local search on any graph: which ops are recomputed, and before which op. Knows no copies, no blocks, no other
 * strategy; it starts from candidates, whoever found them. */
#ifndef CKPT_PLANNER_SEARCH_SEARCH_H
#define CKPT_PLANNER_SEARCH_SEARCH_H

#include "planner/schedule/strategy.h"

/* Improve `candidates`: they and min_peak are the starts, or keep-all when there are none. Better ones within `limit`
 * are added; min_peak is lowered when nothing is found within the limit. The search ends at the candidates' bound,
 * where that holds for all schedules.
 *   moves   how much work this may be: about 6 million are a second, for up to 500 ops; larger graphs are given more
 *           for each (2.7 times as much for 3,000, 14 times for 20,000)
 * Options give only the ways to end early, and floor_bytes. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Source: planner/search/search.c. */
CKPT_MUST_USE ckpt_code ckpt_search_improve(const ckpt_graph *graph, ckpt_bytes limit, int64_t moves,
                                            const ckpt_plan_options *options, ckpt_arena *out,
                                            ckpt_candidates *candidates, ckpt_err *err);

/* The part of it that looks for the lowest peak, whatever the limit, with a share of the work: what it finds becomes
 * candidates->min_peak and candidates->low, and a candidate when it is within `limit`. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_search_min_peak(const ckpt_graph *graph, ckpt_bytes limit, int64_t moves,
                                             const ckpt_plan_options *options, ckpt_arena *out,
                                             ckpt_candidates *candidates, ckpt_err *err);

#endif
