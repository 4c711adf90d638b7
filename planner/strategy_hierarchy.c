/* What runs again is decided op by op from the last to the first, for the whole front of (peak, time) at once: first
 * over all peaks, then again near what turned out to be good at the limit. */
#include <stdlib.h>

#include "planner/hierarchy_impl.h"

enum {
    WIDTH_MIN = 32,
    LEAST_WIDTH = 64,
    LEAST_ROUNDS = 3, /* each looks below the least peak so far */
};

/* Two ways to judge labels with open demands: neither is better on all graphs. */
static const struct way {
    bool whole;
    int slack; /* a part of the limit */
} ways[] = {{true, 1000}, {false, 200}};

/* Labels times ops that an effort pays for in one sweep; two microseconds each. */
static int find_width(const ckpt_graph *graph, int effort)
{
    static const int work[] = {10000, 40000, 240000, 2000000};
    static const int most[] = {100, 400, 2400, 20000};
    const int level = effort < 0 ? 0 : effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST : effort;
    int ops = 1;
    for (int o = 0; o < graph->op_count; o++) {
        ops += graph->op[o].recompute;
    }
    const int width = work[level] / ops;
    return width < WIDTH_MIN ? WIDTH_MIN : width > most[level] ? most[level] : width;
}

/* A wide look at all peaks, then one guided by it. */
static ckpt_code look_twice(const ckpt_graph *graph, ckpt_sweep_wish wish, const ckpt_plan_options *options,
                            ckpt_arena *out, ckpt_answer *answer, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    wish.keep = &scratch;
    wish.seen = CKPT_NEW(&scratch, ckpt_outlook, graph->op_count);
    ckpt_code code = wish.seen != NULL ? ckpt_sweep_run(graph, &wish, options, out, answer, err)
                                       : CKPT_FAIL(err, CKPT_NO_MEMORY, "outlooks from %d ops", graph->op_count);
    if (code == CKPT_OK) {
        wish.outlook = wish.seen;
        wish.seen = NULL;
        wish.width *= 2;
        code = ckpt_sweep_run(graph, &wish, options, out, answer, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* Its peak does not depend on the limit. */
static ckpt_code find_least(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                            ckpt_arena *out, ckpt_answer *answer, ckpt_err *err)
{
    ckpt_sweep_wish wish = {.limit = CKPT_BYTES_MAX, .width = LEAST_WIDTH, .offer = limit, .least = true};
    for (int round = 0; round < LEAST_ROUNDS; round++) {
        const ckpt_bytes before = round > 0 ? answer->least.peak : CKPT_BYTES_MAX;
        CKPT_TRY(ckpt_sweep_run(graph, &wish, options, out, answer, err));
        if (answer->least.sequence.op == NULL || answer->least.peak >= before || answer->least.peak == 0) {
            break;
        }
        wish.limit = answer->least.peak - 1;
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    ckpt_order all;
    ckpt_order_init(&all);
    ckpt_order_range(&all, 0, graph->op_count);
    const ckpt_code code = ckpt_order_end(&all, graph, limit, out, answer, err);
    ckpt_order_fini(&all);
    if (code != CKPT_OK || answer->count > 0) {
        return code; /* everything can be kept */
    }
    CKPT_TRY(find_least(graph, limit, options, out, answer, err));
    const int width = find_width(graph, options->effort);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const ckpt_sweep_wish wish = {
            .limit = limit, .width = width, .slack = limit / ways[i].slack, .whole = ways[i].whole, .offer = limit};
        CKPT_TRY(look_twice(graph, wish, options, out, answer, err));
    }
    return CKPT_OK;
}

const ckpt_strategy ckpt_strategy_hierarchy = {
    .name = "hierarchy",
    .help = "fronts of peak and time, op by op from the last to the first, merged wherever the graph is narrow",
    .source = "fronts of options as in Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont: Rockmate, ICML 2023; here of "
              "all that is decided so far instead of blocks",
    .budgeted = true,
    .plan = plan,
};
