/* What runs again is decided op by op from the last to the first, for the whole front of (peak, time) at once. */
#include "planner/hierarchy_impl.h"

enum {
    LEAST_WIDTH = 100,
    LEAST_ROUNDS = 3, /* each looks below the least peak so far */
    WIDTH_MIN = 48,
};

/* Labels times ops: what an effort pays for; two microseconds each. */
static int find_width(const ckpt_graph *graph, int effort)
{
    static const int work[] = {30000, 120000, 1000000, 6000000};
    const int last = (int)(sizeof work / sizeof *work) - 1;
    int ops = 1;
    for (int o = 0; o < graph->op_count; o++) {
        ops += graph->op[o].recompute;
    }
    const int width = work[effort < 0 ? 0 : effort < last ? effort : last] / ops;
    return width < WIDTH_MIN ? WIDTH_MIN : width;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    const int width = find_width(graph, options->effort);
    const ckpt_sweep_wish wish = {.limit = limit, .width = width, .offer = limit};
    CKPT_TRY(ckpt_sweep_run(graph, &wish, options, out, answer, err));
    ckpt_sweep_wish least = {
        .limit = CKPT_BYTES_MAX, .width = width < LEAST_WIDTH ? width : LEAST_WIDTH, .offer = limit, .least = true};
    for (int round = 0; round < LEAST_ROUNDS; round++) {
        const ckpt_bytes before = round > 0 ? answer->least.peak : CKPT_BYTES_MAX;
        CKPT_TRY(ckpt_sweep_run(graph, &least, options, out, answer, err));
        if (answer->least.sequence.op == NULL || answer->least.peak >= before || answer->least.peak == 0) {
            break;
        }
        least.limit = answer->least.peak - 1;
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
