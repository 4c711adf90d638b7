/* The bounds: every op once; what an op must hold; groups of forward ops (bound_impl.h), partition after partition as
 * far as the effort goes. */
#include "planner/bound/bound.h"

#include "planner/bound/bound_impl.h"
#include "planner/variants/variants.h"

/* Sums in the bounds stay below these, or only the plainest bound is given. */
#define SUM_MAX ((int64_t)1 << 58)

enum { PEAK_WORK = 40000000, BUILD_WORK = 128 /* per op, to cut a graph into groups */ };

/* Work that an effort pays for, in steps of about a nanosecond. */
static const int64_t work_of[] = {20000000, 200000000, 2500000000, 50000000000};

/* Partitions, from the cheap to the dear: buffers in a group, crossing buffers told apart. */
static const struct partition {
    int buffers, open, effort;
} partition[] = {{6, 0, 0},  {8, 0, 1},  {11, 0, 1}, {8, 3, 1},  {7, 3, 2},  {10, 0, 2}, {9, 3, 2},
                 {12, 0, 2}, {13, 0, 2}, {11, 3, 2}, {12, 3, 3}, {14, 0, 3}, {14, 3, 3}};

/* Weights of copies that are tried when there is a link; those of offloads take little work. */
static const ckpt_weight weight_of[] = {{0, 8},  {0, 2}, {0, 4}, {0, 6},  {0, 11}, {0, 14}, {8, 0}, {4, 0},
                                        {12, 0}, {2, 0}, {6, 0}, {10, 0}, {14, 0}, {0, 1},  {0, 3}, {0, 5}};
enum { WEIGHTS = sizeof weight_of / sizeof *weight_of, WEIGHTS_NORMAL = 9 };

/* What is being looked for, and what has been found. */
typedef struct finder {
    const ckpt_graph *graph; /* of no choice: planner/variants */
    const ckpt_plan_options *options;
    ckpt_bytes limit;
    ckpt_ns first_runs, upper;
    int forward_end, effort;
    ckpt_ns section_runs; /* first runs of the forward section */
    ckpt_flow_proof flow;
    int64_t work;
    ckpt_bound *bound;
} finder;

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

static int forward_section(const ckpt_graph *graph, ckpt_ns *runs)
{
    int end = 0;
    for (*runs = 0; end < graph->op_count && graph->op[end].phase == CKPT_FORWARD; end++) {
        *runs += graph->op[end].time_ns;
    }
    return end;
}

/* One partition, copies weighed by `weight`, for what is recomputed behind the first run of op `start`; `sooner` is what
 * is recomputed sooner. */
static ckpt_code try_partition(finder *f, const struct partition *chosen, ckpt_weight weight, int start, ckpt_ns sooner,
                               ckpt_err *err)
{
    f->work -= BUILD_WORK * f->graph->op_count;
    if (f->work <= 0) {
        return CKPT_OK;
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_groups groups = {0};
    ckpt_ns time = 0;
    ckpt_code code = ckpt_groups_build(f->graph, f->forward_end, start, chosen->buffers, chosen->open, weight, &scratch,
                                       &groups, err);
    ckpt_ns before = f->section_runs; /* first runs of the section, or before the instant */
    for (int o = f->forward_end; o < groups.instant; o++) {
        before += f->graph->op[o].time_ns;
    }
    const ckpt_ns base = ckpt_bound_weigh(f->first_runs - before, CKPT_WEIGHTS - weight.fetch) +
                         ckpt_bound_weigh(before, CKPT_WEIGHTS - weight.offload) + sooner;
    const ckpt_ns enough = f->upper - base < CKPT_BOUND_LONG ? f->upper - base : CKPT_BOUND_LONG;
    if (code == CKPT_OK && (groups.slots > 0 || chosen->open == 0)) { /* else it is one that has been */
        code = ckpt_groups_bound(&groups, f->limit, enough, f->options, &f->work, &time, err);
    }
    ckpt_arena_fini(&scratch);
    if (time == CKPT_BOUND_NEVER) {
        f->bound->infeasible = true;
        f->bound->how = "groups and knapsack";
    } else if (base + time > f->bound->time_ns) {
        f->bound->time_ns = base + time;
        f->bound->how = "groups and knapsack";
    }
    return code;
}

static ckpt_code try_partitions(finder *f, ckpt_err *err)
{
    const int weights = !f->graph->has_link ? 1 : f->effort <= CKPT_EFFORT_NORMAL ? WEIGHTS_NORMAL : WEIGHTS;
    for (size_t i = 0; i < sizeof partition / sizeof *partition; i++) {
        for (int w = 0; w < weights; w++) {
            if (f->bound->infeasible || f->bound->time_ns >= f->upper || f->work <= 0) {
                return CKPT_OK;
            }
            const ckpt_weight weight = f->graph->has_link ? weight_of[w] : (ckpt_weight){0};
            if (partition[i].effort <= f->effort && (weight.offload == 0 || partition[i].open == 0)) {
                CKPT_TRY(try_partition(f, &partition[i], weight, f->forward_end, 0, err));
                if (f->flow.split >= f->forward_end && !f->bound->infeasible && f->bound->time_ns < f->upper) {
                    CKPT_TRY(try_partition(f, &partition[i], weight, f->flow.split, f->flow.before, err));
                }
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code try_flow(finder *f, const ckpt_graph *whole, ckpt_err *err)
{
    if (!whole->has_link) {
        CKPT_TRY(ckpt_flow_bound(whole, f->limit, f->options, &f->flow, err));
        f->flow.split = whole == f->graph ? f->flow.split : 0; /* its ops have other numbers */
    }
    if (f->flow.time > 0) {
        f->bound->time_ns = f->first_runs + f->flow.time;
        f->bound->how = "flow over moments";
    }
    return CKPT_OK;
}

ckpt_code ckpt_bound_find(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ns upper, const ckpt_plan_options *options,
                          ckpt_arena *out, ckpt_bound *bound, ckpt_err *err)
{
    *bound = (ckpt_bound){.how = "every op runs at least once", .scope = "all"};
    const ckpt_graph *relaxed = NULL;
    CKPT_TRY(ckpt_variants_relax(graph, limit, options, out, &relaxed, err));
    ckpt_bytes peak = 0;
    CKPT_TRY(ckpt_uses_peak(relaxed, out, &peak, err));
    finder f = {.graph = relaxed, .options = options, .limit = limit, .upper = upper, .bound = bound};
    f.effort = ckpt_effort(options);
    f.work = work_of[f.effort];
    const bool fits = sums_fit(relaxed, &f.first_runs);
    bound->time_ns = f.first_runs;
    f.forward_end = forward_section(relaxed, &f.section_runs);
    if (peak > limit) {
        bound->infeasible = true;
        bound->how = "what one op holds";
    } else if (fits && limit < SUM_MAX) {
        CKPT_TRY(try_flow(&f, graph, err));
        if (f.forward_end > 0) {
            CKPT_TRY(try_partitions(&f, err));
        }
    }
    if (bound->infeasible) {
        bound->time_ns = f.first_runs;
    } else if (bound->time_ns >= upper) {
        bound->time_ns = upper;
        bound->how = "exact";
    }
    return CKPT_OK;
}

/* Raise `peak` until every group, or as many as the work pays for, can come through its window: from one set of
 * comparisons to the next. */
static ckpt_code raise_peak(ckpt_groups *groups, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err)
{
    ckpt_group_room room;
    CKPT_TRY(ckpt_group_room_take(scratch, groups, &room, err));
    int64_t work = PEAK_WORK;
    for (int k = 0; k < groups->count && work > 0; k++) {
        const ckpt_group_table *table = NULL;
        do {
            *peak = table != NULL ? table->high : *peak;
            CKPT_TRY(ckpt_group_find(&groups->group[k], *peak, 0, &room, scratch, &work, &table, err));
        } while (table->front[0].count == 0 && table->high < INT64_MAX && work > 0);
    }
    return CKPT_OK;
}

ckpt_code ckpt_bound_peak(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_ns runs = 0;
    ckpt_groups groups = {0};
    const ckpt_weight weight = {.fetch = graph->has_link ? CKPT_WEIGHTS : 0};
    const int forward_end = forward_section(graph, &runs);
    CKPT_TRY(ckpt_uses_peak(graph, scratch, peak, err));
    if (forward_end > 0 && sums_fit(graph, &runs)) {
        CKPT_TRY(ckpt_groups_build(graph, forward_end, forward_end, 8, 0, weight, scratch, &groups, err));
        CKPT_TRY(raise_peak(&groups, scratch, peak, err));
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}
