/* A chain cut into segments, each recomputed as a whole before its backward. */
#ifndef CKPT_PLANNER_BASELINES_SEGMENTS_IMPL_H
#define CKPT_PLANNER_BASELINES_SEGMENTS_IMPL_H

#include "planner/chain/chain.h"

/* Append a whole step. Between segments only what crosses is kept; the last segment keeps all at once.
 *   end     end[i] = last block of segment i; end[segments - 1] = chain->count */
void ckpt_segments_write(const ckpt_chain *chain, const int *end, int segments, ckpt_order *order);

#endif
