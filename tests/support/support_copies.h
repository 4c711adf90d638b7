/* Random plans full of copies: what no planner would make, but the rules allow. */
#ifndef CKPT_TESTS_SUPPORT_COPIES_H
#define CKPT_TESTS_SUPPORT_COPIES_H

#include "tests/support/support_train.h"

/* Every op once in reference order; between them, at random: offloads (of valid copies too), frees of what has a copy,
 * fetches long before their use, of what nobody uses any more, runs in place. Places are taken where there is room, so
 * addresses are used again and again. Same seed, same plan. */
ckpt_plan *test_copies_plan(test_train *t, uint64_t seed);

/* The same plan without the offloads whose copy is never fetched (planners make such here and there). */
ckpt_plan *test_copies_needed(test_train *t, const ckpt_plan *plan);

/* Steps of one kind. */
int test_steps_of(const ckpt_plan *plan, ckpt_step_kind kind);

#endif
