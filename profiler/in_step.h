/* Times of layers as they run in training steps, from steps that somebody else has run and timed: whoever trains by
 * plans. */
#ifndef CKPT_PROFILER_IN_STEP_H
#define CKPT_PROFILER_IN_STEP_H

#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "core/formats/trace.h"
#include "ops/lowering/network.h"

/* Training steps by one plan. */
typedef struct ckpt_stepped {
    const ckpt_plan *plan; /* bound to the lowered graph */
    int room;              /* for so many training steps; later ones take the place of the oldest */
    ckpt_ns *run_ns;       /* [training step * plan->step_count + step of the plan]: how long it took */
    int timed, next_timed;
    ckpt_ns *whole_ns; /* lengths of whole steps, as users run them: of the same ones, or of others */
    int whole, next_whole;
    int turn;                     /* of the steps that are added next; from 0 on */
    int *timed_turn, *whole_turn; /* likewise, of each that is here */
} ckpt_stepped;

/* Room for so many training steps. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_stepped_init(ckpt_stepped *stepped, const ckpt_plan *plan, int room, ckpt_arena *out,
                                          ckpt_err *err);
/* Take the times of a measured trace of that plan; the length of a step. */
void ckpt_stepped_add(ckpt_stepped *stepped, const ckpt_trace *trace);
void ckpt_stepped_add_whole(ckpt_stepped *stepped, ckpt_ns whole_ns);

/* Put times in the step into a profile of the layers of `lowered` alone, whose times become `alone_ns`.
 *
 *   stepped   the first is the step that the profile tells of; the others are there for runs that it does not have: runs
 *             again, other ways of layers. A time comes from the first plan that has such a run.
 *
 * A sample is the mean over identical layers (same_as) in one training step. Where plans take turns, those of all but the
 * first are divided by the machine's speed in that turn: what the first plan's whole steps took in this turn and the next,
 * over what they took in all. A machine that was slow while other plans ran then makes nothing dearer. The median of a step is more than the sum of
 * its layers' medians, so these are stretched to make that sum right: all rows and the overhead together give the median
 * of the first plan's whole steps. Times of runs again in the second plan are stretched to give that plan's, as far as that
 * is between half and twice as long: they pay for what a backward op no longer finds in the caches. Directions that no plan
 * runs keep their times. Of ways that no plan runs the time is in proportion to the layer's own; those that never had any
 * go.
 *
 * `profile` is changed, its rows are new. Errors: CKPT_NO_MEMORY, CKPT_BAD_INPUT (a layer that the profile does not
 * have). Cost: O(all runs of all steps + samples log samples). */
CKPT_MUST_USE ckpt_code ckpt_profile_in_step(const ckpt_lowered *lowered, const ckpt_stepped *stepped, int count,
                                             ckpt_arena *out, ckpt_profile *profile, ckpt_err *err);

#endif
