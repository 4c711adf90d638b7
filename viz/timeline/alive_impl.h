/* What the parts that tell why something is in memory share. */
#ifndef CKPT_VIZ_TIMELINE_ALIVE_IMPL_H
#define CKPT_VIZ_TIMELINE_ALIVE_IMPL_H

#include "viz/timeline/alive.h"

typedef enum ckpt_why {
    CKPT_WHY_SCRATCH, /* of the op that runs */
    CKPT_WHY_COPIED,
    CKPT_WHY_OUTPUT,
    CKPT_WHY_UNREAD, /* the op that wrote it is the last that had to do with it */
    CKPT_WHY_FETCHED,
    CKPT_WHY_FETCHED_TO_REMAKE, /* for a run again of something else; likewise below */
    CKPT_WHY_REMADE,
    CKPT_WHY_REMADE_TO_REMAKE,
    CKPT_WHY_KEPT, /* across the turn from forward to what comes then */
    CKPT_WHY_KEPT_TO_REMAKE,
    CKPT_WHY_PASSED_BACK,
    CKPT_WHY_IN_USE,
    CKPT_WHY_UNKNOWN,
    CKPT_WHY_FREED, /* of a program without a plan; likewise below */
    CKPT_WHY_LOST,  /* its free is not recorded */
    CKPT_WHY_NEVER
} ckpt_why;

ckpt_why ckpt_live_range_why(const ckpt_live_ranges *ranges, int which);

/* A clause for several stays that have the same ckpt_why; `deep` as below. Of a program without a plan, for one too: it
 * does not repeat who allocated them. */
const char *ckpt_live_range_group_reason(const ckpt_live_ranges *ranges, const int *which, int count, bool deep,
                                         ckpt_arena *out);

/* The name with numbers replaced by "#": those that are a whole part between dots or slashes, "h.#.att/lse", or with
 * `deep` those inside of words too, "down#_conv#". NULL without memory. */
const char *ckpt_name_pattern(const char *name, bool deep, ckpt_arena *out);

/* One name for `count` of one pattern: each number as "0", as "0,3" where there are two, or "0…5". NULL without memory.
 */
const char *ckpt_name_fold(const char *const *name, int count, bool deep, ckpt_arena *out);

#endif
