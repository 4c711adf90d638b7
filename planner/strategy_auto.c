/* The portfolio: constructors that suit any graph, then local search from what they found, then, where a solver is at
 * hand, integer programs on neighbourhoods. Every part adds candidates to one answer and starts from those before it,
 * so no part can make the answer worse. */
#include <string.h>

#include "planner/bound.h"
#include "planner/planner_impl.h"
#include "planner/search.h"

/* Moves of the local search, per effort. */
static const int64_t moves_of[] = {20000, 2000000, 20000000, 150000000};

static const char *const constructors[] = {"keep-all", "chain", "hierarchy"};

/* The last part leaves its name on the candidates it added. */
static void sign(ckpt_answer *answer, const char *by)
{
    for (int i = 0; i < answer->count; i++) {
        ckpt_candidate *const candidate = &answer->candidate[i];
        candidate->by = candidate->by != NULL ? candidate->by : by;
    }
    answer->least.by = answer->least.by != NULL ? answer->least.by : by;
}

static void merge(ckpt_answer *answer, const ckpt_answer *part)
{
    for (int i = 0; i < part->count; i++) {
        ckpt_answer_add(answer, &part->candidate[i]);
    }
    const bool lower = part->least.sequence.op != NULL &&
                       (answer->least.sequence.op == NULL || part->least.peak < answer->least.peak ||
                        (part->least.peak == answer->least.peak && part->least.time < answer->least.time));
    if (lower) {
        answer->least = part->least;
    }
}

static void take_bound(ckpt_answer *answer, const ckpt_bound *bound)
{
    answer->has_bound = true;
    answer->bound_ns = bound->time_ns;
    answer->bound_how = bound->how;
    answer->bound_scope = bound->scope;
}

static ckpt_code construct(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                           ckpt_answer *answer, ckpt_err *err)
{
    for (int i = 0; i < options->incumbent_count; i++) {
        if (options->incumbent[i].peak <= limit) {
            ckpt_answer_add(answer, &options->incumbent[i]);
        }
    }
    for (size_t i = 0; i < sizeof constructors / sizeof *constructors; i++) {
        const ckpt_strategy *const strategy = ckpt_strategy_find(constructors[i]);
        ckpt_answer part = {.least = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        CKPT_TRY_WHILE(err, strategy->plan(graph, limit, options, out, &part, err), "planning by %s", strategy->name);
        sign(&part, strategy->name);
        merge(answer, &part);
    }
    return CKPT_OK;
}

/* Nothing is faster than keep-all. */
static bool is_done(const ckpt_graph *graph, const ckpt_answer *answer)
{
    ckpt_ns time = 0;
    for (int o = 0; o < graph->op_count; o++) {
        if (!ckpt_sum(time, graph->op[o].time_ns, &time)) {
            return false;
        }
    }
    return answer->count > 0 && answer->candidate[0].time <= time;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    CKPT_TRY(construct(graph, limit, options, out, answer, err));
    if (is_done(graph, answer)) {
        return CKPT_OK;
    }
    ckpt_bound bound;
    const ckpt_ns upper = answer->count > 0 ? answer->candidate[0].time : INT64_MAX;
    CKPT_TRY(ckpt_bound_find(graph, limit, upper, options, out, &bound, err));
    take_bound(answer, &bound); /* before the search, which ends when it gets there */
    CKPT_TRY(ckpt_search_improve(graph, limit, moves_of[options->effort], options, out, answer, err));
    sign(answer, "search");
    const ckpt_strategy *const joint = ckpt_strategy_find("joint");
    if (joint != NULL && graph->has_link && !ckpt_plan_stopped(options)) {
        ckpt_plan_options more = *options;
        more.incumbent = answer->candidate;
        more.incumbent_count = answer->count;
        ckpt_answer part = {.least = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        CKPT_TRY_WHILE(err, joint->plan(graph, limit, &more, out, &part, err), "planning by %s", joint->name);
        sign(&part, joint->name);
        merge(answer, &part);
    }
    return CKPT_OK;
}

const ckpt_strategy ckpt_strategy_auto = {
    .name = "auto",
    .help = "the best of chain, hierarchy, local search, integer programs and, with a link, offload",
    .source = "the sources of its parts",
    .budgeted = true,
    .plan = plan,
};
