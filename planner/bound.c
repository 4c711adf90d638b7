/* The bounds: every op once; what an op must hold; groups of forward ops (bound_impl.h), partition after partition as
 * far as the effort goes. */
#include "planner/bound.h"

#include "planner/bound_impl.h"

/* Sums in the bounds stay below these, or only the plainest bound is given. */
#define SUM_MAX ((int64_t)1 << 58)

/* Work that an effort pays for, in steps of about a nanosecond. */
static const int64_t work_of[] = {20000000, 200000000, 2500000000, 50000000000};

/* Partitions, from the cheap to the dear: buffers in a group, crossing buffers told apart. */
static const struct partition {
    int buffers, open, effort;
} partition[] = {{6, 0, 0},  {8, 0, 1},  {11, 0, 1}, {8, 3, 1},  {7, 3, 2},  {10, 0, 2}, {9, 3, 2},
                 {12, 0, 2}, {13, 0, 2}, {11, 3, 2}, {12, 3, 3}, {14, 0, 3}, {14, 3, 3}};

static bool sums_fit(const ckpt_graph *graph, ckpt_ns *first_runs)
{
    int64_t bytes = 0;
    *first_runs = 0;
    for (int i = 0; i < graph->buffer_count; i++) {
        if (!ckpt_sum(bytes, graph->buffer[i].bytes, &bytes)) {
            return false;
        }
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (!ckpt_sum(bytes, graph->op[o].workspace_bytes, &bytes)) {
            return false;
        }
        *first_runs += graph->op[o].time_ns; /* ckpt_graph_check has shown that it fits */
    }
    return bytes < SUM_MAX && *first_runs < SUM_MAX;
}

static int find_forward_end(const ckpt_graph *graph)
{
    int end = 0;
    while (end < graph->op_count && graph->op[end].phase == CKPT_FORWARD) {
        end++;
    }
    return end;
}

static ckpt_code try_partitions(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ns enough,
                                const ckpt_plan_options *options, ckpt_ns *repeats, ckpt_err *err)
{
    const int end = find_forward_end(graph);
    const int effort = options->effort < CKPT_EFFORT_LEAST  ? CKPT_EFFORT_LEAST
                       : options->effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST
                                                            : options->effort;
    int64_t work = work_of[effort];
    *repeats = 0;
    for (size_t i = 0; end > 0 && i < sizeof partition / sizeof *partition && *repeats < enough && work > 0; i++) {
        if (partition[i].effort > effort) {
            continue;
        }
        ckpt_arena scratch;
        ckpt_arena_init(&scratch);
        ckpt_groups groups = {0};
        ckpt_ns time = 0;
        ckpt_code code = ckpt_groups_build(graph, end, partition[i].buffers, partition[i].open, &scratch, &groups, err);
        if (code == CKPT_OK && (groups.slots > 0 || partition[i].open == 0)) { /* else it is one that has been */
            code = ckpt_groups_bound(&groups, limit, enough, options, &work, &time, err);
        }
        ckpt_arena_fini(&scratch);
        CKPT_TRY(code);
        *repeats = time > *repeats ? time : *repeats;
    }
    return CKPT_OK;
}

ckpt_code ckpt_bound_find(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ns upper, const ckpt_plan_options *options,
                          ckpt_arena *out, ckpt_bound *bound, ckpt_err *err)
{
    *bound = (ckpt_bound){.how = "every op runs at least once", .scope = "all"};
    ckpt_bytes peak = 0;
    CKPT_TRY(ckpt_bound_peak(graph, out, &peak, err));
    const bool fits = sums_fit(graph, &bound->time_ns);
    const ckpt_ns first_runs = bound->time_ns;
    if (peak > limit && !graph->has_link) {
        bound->infeasible = true;
        bound->how = "what one op holds";
    } else if (fits && limit < SUM_MAX && upper > first_runs && !graph->has_link) {
        ckpt_ns repeats = 0;
        const ckpt_ns enough = upper - first_runs < CKPT_BOUND_LONG ? upper - first_runs : CKPT_BOUND_LONG;
        CKPT_TRY(try_partitions(graph, limit, enough, options, &repeats, err));
        bound->infeasible = repeats == CKPT_BOUND_NEVER;
        bound->time_ns += bound->infeasible ? 0 : repeats;
        bound->how = repeats > 0 ? "groups" : bound->how;
    }
    if (bound->time_ns >= upper) {
        bound->time_ns = upper;
        bound->how = "exact";
    }
    return CKPT_OK;
}
