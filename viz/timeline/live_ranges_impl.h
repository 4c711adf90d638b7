/* What the parts that tell why something is in memory share. */
#ifndef CKPT_VIZ_TIMELINE_LIVE_RANGES_IMPL_H
#define CKPT_VIZ_TIMELINE_LIVE_RANGES_IMPL_H

#include "viz/timeline/live_ranges.h"

/* A clause for several live ranges that have the same ckpt_why; `deep` as below. Of a program without a plan, for one too: it
 * does not repeat who allocated them. */
const char *ckpt_live_range_group_reason(const ckpt_live_ranges *ranges, const int *which, int count, bool deep,
                                         ckpt_arena *out);

/* The name with numbers replaced by "#": those that are a whole part between dots or slashes, "h.#.att/lse", or with
 * `deep` those inside of words too, "down#_conv#". NULL without memory. */
const char *ckpt_name_pattern(const char *name, bool deep, ckpt_arena *out);

/* One name for `count` of one pattern: each number as "0", as "0,3" where there are two, or "0…5". NULL
 * without memory. */
const char *ckpt_name_fold(const char *const *name, int count, bool deep, ckpt_arena *out);

#endif
