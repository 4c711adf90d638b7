#include "planner/schedule/options.h"

#include "core/base/clock.h"

enum { QUICK_OPS = 10000 }; /* what every plan needs takes some 10 ms for so many */

void ckpt_plan_options_init(ckpt_plan_options *options)
{
    *options = (ckpt_plan_options){.effort = CKPT_EFFORT_NORMAL};
}

int ckpt_effort(const ckpt_plan_options *options)
{
    const int effort = options->effort;
    return effort < CKPT_EFFORT_LOW ? CKPT_EFFORT_LOW : effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST : effort;
}

bool ckpt_plan_stopped(const ckpt_plan_options *options)
{
    return (options->cancelled != NULL && options->cancelled(options->context)) ||
           (options->deadline_ns > 0 && ckpt_clock_ns() >= options->deadline_ns);
}

bool ckpt_plan_hurried(const ckpt_plan_options *options, int ops)
{
    return ops > QUICK_OPS && ckpt_plan_stopped(options);
}

bool ckpt_poll_stopped(ckpt_poll *poll, int64_t work)
{
    poll->left -= work;
    if (poll->left <= 0 && !poll->stopped && poll->options != NULL) {
        poll->left = CKPT_POLL_WORK;
        poll->stopped = ckpt_plan_stopped(poll->options);
    }
    return poll->stopped;
}
