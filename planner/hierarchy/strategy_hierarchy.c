/* What is recomputed is decided op by op from the last to the first, for the whole front of (peak, time) at once: first
 * over all peaks, then again near what turned out to be good at the limit. */
#include "planner/hierarchy/hierarchy_impl.h"

enum {
    WIDTH_MIN = 32,
    MIN_PEAK_WIDTH = 64,
    MIN_PEAK_ROUNDS = 6,
    MOST_WORK = 20000000, /* of one sweep */
};

/* Two judgements to judge labels with open demands: neither is better on all graphs. */
static const struct judgement {
    bool whole;
    int slack; /* a part of the limit */
} judgements[] = {{true, 1000}, {false, 200}};

/* How many labels an effort pays for in each of the sweeps at the limit, from what one sweep over all peaks came to. */
static int find_width(int effort, int64_t min_peak_work)
{
    static const int64_t work[] = {4000000, 15000000, 120000000, 1200000000};
    static const int most[] = {100, 300, 2400, 20000};
    const int64_t sweeps =
        3 * (int64_t)(sizeof judgements / sizeof *judgements); /* the second of each way is twice as wide */
    const int64_t width = work[effort] / (min_peak_work / MIN_PEAK_WIDTH + 1) / sweeps;
    return width < WIDTH_MIN ? WIDTH_MIN : width > most[effort] ? most[effort] : (int)width;
}

/* A wide look at all peaks, then one guided by it. */
static ckpt_code look_twice(const ckpt_graph *graph, ckpt_hierarchy_goal goal, const ckpt_plan_options *options,
                            ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    goal.keep = &scratch;
    goal.seen = CKPT_NEW(&scratch, ckpt_outlook, graph->op_count);
    ckpt_code code = goal.seen != NULL ? ckpt_hierarchy_run(graph, &goal, options, out, candidates, err)
                                       : CKPT_FAIL(err, CKPT_NO_MEMORY, "outlooks from %d ops", graph->op_count);
    if (code == CKPT_OK) {
        goal.outlook = goal.seen;
        goal.seen = NULL;
        goal.width *= 2;
        code = ckpt_hierarchy_run(graph, &goal, options, out, candidates, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* What some op needs for itself: no peak is below. */
static ckpt_bytes find_floor(const ckpt_graph *graph)
{
    ckpt_bytes most = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        ckpt_bytes need = op->workspace_bytes;
        for (int i = 0; i < op->reads.count; i++) {
            need += graph->buffer[op->reads.at[i]].bytes;
        }
        for (int i = 0; i < op->writes.count; i++) {
            need += graph->buffer[op->writes.at[i]].bytes;
        }
        for (int i = 0; i < op->inplace_count; i++) {
            need -= graph->buffer[op->inplace[i].in].bytes;
        }
        most = need > most ? need : most;
    }
    return most;
}

/* The minimum peak, by halving what lies between the floor and the least so far: it does not depend on the user's
 * limit.
 *  */
static ckpt_code find_min_peak(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                               ckpt_arena *out, ckpt_candidates *candidates, int64_t *work, ckpt_err *err)
{
    ckpt_hierarchy_goal goal = {.limit = CKPT_BYTES_MAX,
                                .width = MIN_PEAK_WIDTH,
                                .offer = limit,
                                .min_peak = true,
                                .work = work,
                                .most_work = MOST_WORK};
    CKPT_TRY(ckpt_hierarchy_run(graph, &goal, options, out, candidates, err));
    goal.work = NULL;
    ckpt_bytes low = find_floor(graph);
    const int rounds = options->no_min_peak ? 0 : MIN_PEAK_ROUNDS;
    for (int round = 0; round < rounds && candidates->min_peak.peak > low; round++) {
        goal.limit = low + (candidates->min_peak.peak - low) / 2;
        const ckpt_bytes before = candidates->min_peak.peak;
        CKPT_TRY(ckpt_hierarchy_run(graph, &goal, options, out, candidates, err));
        low = candidates->min_peak.peak < before ? low : goal.limit + 1;
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    const ckpt_code code = ckpt_order_keep_all(graph, limit, out, candidates, err);
    if (code != CKPT_OK || candidates->count > 0) {
        return code; /* everything can be kept */
    }
    int64_t work = 0;
    CKPT_TRY(find_min_peak(graph, limit, options, out, candidates, &work, err));
    if (options->only_min_peak) {
        return CKPT_OK;
    }
    const int width = find_width(ckpt_effort(options), work);
    for (size_t i = 0; i < sizeof judgements / sizeof *judgements; i++) {
        const ckpt_hierarchy_goal goal = {.limit = limit,
                                          .width = width,
                                          .slack = limit / judgements[i].slack,
                                          .whole = judgements[i].whole,
                                          .offer = limit,
                                          .most_work =
                                              options->effort < CKPT_EFFORT_MORE ? MOST_WORK : 20 * (int64_t)MOST_WORK};
        CKPT_TRY(look_twice(graph, goal, options, out, candidates, err));
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
