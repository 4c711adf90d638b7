/* The table of strategies, the effort asked for, and when to end early. */
#include "planner/schedule/strategy.h"

#include <string.h>

#include "core/base/clock.h"
#include "planner/schedule/schedule.h"

bool ckpt_plan_stopped(const ckpt_plan_options *options)
{
    return (options->stop != NULL && *options->stop != 0) ||
           (options->deadline_ns > 0 && ckpt_clock_ns() >= options->deadline_ns);
}

const ckpt_strategy *ckpt_strategy_find(const char *name)
{
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        if (strcmp(ckpt_strategy_table[i]->name, name) == 0) {
            return ckpt_strategy_table[i];
        }
    }
    return NULL;
}

int ckpt_effort(const ckpt_plan_options *options)
{
    const int effort = options->effort;
    return effort < CKPT_EFFORT_LOW ? CKPT_EFFORT_LOW : effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST : effort;
}
