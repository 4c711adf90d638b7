/* Neighbourhoods of a schedule, each solved as an integer program (large-neighbourhood search: Shaw, Using constraint
 * programming and local search methods to solve vehicle routing problems, CP 1998): the reruns of a few ops that stand
 * together are free, all others stay as they are.
 *
 * An op is free in the stages that use what the free ops write, and in those in which something runs again already: an
 * op that runs again anywhere else would be alone there, and could as well wait. */
#include <string.h>

#include "planner/ilp_impl.h"

enum {
    PAIRS_MAX = 400000, /* that are looked at; larger graphs are left alone */
    FREE_MAX = 160,     /* pairs of one neighbourhood */
    NODES = 40,         /* branchings of one neighbourhood */
    WIDTHS = 3,
};

typedef struct improver {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out, keep, scratch; /* keep: all along; scratch: one neighbourhood */
    ckpt_ilp_pairs pairs;
    bool *stage; /* in which the ops of the neighbourhood are free */
    bool *busy;  /* stages in which something runs again */
    bool *own;   /* per buffer: written by an op of the neighbourhood */
    ckpt_ns grain;
    ckpt_answer *answer;
    int64_t work;
} improver;

static void find_busy(improver *m)
{
    memset(m->busy, 0, ((size_t)m->graph->op_count + 1) * sizeof *m->busy);
    for (int p = 0; p < m->pairs.count; p++) {
        m->busy[m->pairs.pair[p].stage] = m->busy[m->pairs.pair[p].stage] || m->pairs.pair[p].runs;
    }
}

static bool reads_own(const improver *m, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (m->own[list->at[i]]) {
            return true;
        }
    }
    return false;
}

static void find_stages(improver *m, int from, int to)
{
    const ckpt_graph *const g = m->graph;
    memset(m->own, 0, (size_t)g->buffer_count * sizeof *m->own);
    for (int o = from; o < to; o++) {
        for (int i = 0; i < g->op[o].writes.count; i++) {
            m->own[g->op[o].writes.at[i]] = true;
        }
    }
    for (int t = 0; t <= g->op_count; t++) {
        const ckpt_list *const reads = t < g->op_count ? &g->op[t].reads : &g->outputs;
        m->stage[t] = m->busy[t] || reads_own(m, reads);
    }
}

/* Free the pairs of ops from .. to - 1. Gives how many there are; beyond FREE_MAX those of late ops stay. */
static int free_pairs(improver *m, int from, int to)
{
    int count = 0;
    for (int p = 0; p < m->pairs.count; p++) {
        ckpt_ilp_pair *const pair = &m->pairs.pair[p];
        pair->free = pair->op >= from && pair->op < to && (m->stage[pair->stage] || pair->runs) && count < FREE_MAX;
        count += pair->free;
    }
    return count;
}

static ckpt_code take_point(improver *m, bool *better, ckpt_err *err)
{
    const ckpt_ns before = m->answer->candidate[0].time;
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_ilp_pairs_write(m->graph, &m->pairs, &order);
    const ckpt_code code = ckpt_order_offer(&order, m->graph, m->limit, m->out, m->answer, err);
    ckpt_order_fini(&order);
    *better = m->answer->candidate[0].time < before;
    return code;
}

/* Solve with ops from .. to - 1 free. */
static ckpt_code try_ops(improver *m, int from, int to, bool *better, ckpt_err *err)
{
    find_stages(m, from, to);
    *better = false;
    if (free_pairs(m, from, to) == 0) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(&m->scratch);
    ckpt_ilp_model model;
    CKPT_TRY(ckpt_ilp_model_build(m->graph, m->limit, &m->pairs, &m->scratch, &model, err));
    m->work += m->graph->op_count / 10 + model.program.rows / 10;
    bool found = false;
    ckpt_ns bound = 0;
    CKPT_TRY(ckpt_ilp_model_solve(&model, &m->pairs, m->grain, m->answer->candidate[0].time, NODES, m->options, &found,
                                  &bound, &m->work, err));
    if (found) {
        CKPT_TRY(take_point(m, better, err));
        find_busy(m);
    }
    ckpt_arena_rewind(&m->scratch, mark);
    return CKPT_OK;
}

/* What follows a found point that was no better when measured is again the best sequence. */
static bool restart(improver *m)
{
    return ckpt_ilp_pairs_read(m->graph, &m->answer->candidate[0].sequence, &m->pairs);
}

/* Windows of ops, half overlapping, from the last op to the first: of one width until none helps, then wider. */
static ckpt_code sweep(improver *m, int64_t work, ckpt_err *err)
{
    static const int width[WIDTHS] = {8, 16, 30};
    const int n = m->graph->op_count;
    for (int k = 0; k < WIDTHS; k++) {
        bool helped = true;
        while (helped) {
            helped = false;
            for (int from = n - width[k]; from > -width[k]; from -= width[k] / 2) {
                bool better = false;
                if (m->work >= work || ckpt_plan_stopped(m->options)) {
                    return CKPT_OK;
                }
                CKPT_TRY(try_ops(m, from > 0 ? from : 0, from + width[k], &better, err));
                helped = helped || better;
                if (!restart(m)) {
                    return CKPT_OK;
                }
            }
        }
    }
    return CKPT_OK;
}

/* The pairs among which the best candidate is one choice: behind the forward ops if that will do, else anywhere. */
static ckpt_code read_best(improver *m, bool *readable, ckpt_err *err)
{
    const int first = ckpt_ilp_first_stage(m->graph);
    *readable = false;
    for (int pass = 0; pass < 2 && !*readable && (pass == 0 || first > 1); pass++) {
        CKPT_TRY(ckpt_ilp_pairs_find(m->graph, pass == 0 ? first : 1, PAIRS_MAX, &m->keep, &m->pairs, err));
        *readable =
            m->pairs.count <= PAIRS_MAX && ckpt_ilp_pairs_read(m->graph, &m->answer->candidate[0].sequence, &m->pairs);
    }
    return CKPT_OK;
}

static ckpt_code improve(improver *m, int64_t work, ckpt_err *err)
{
    const int n = m->graph->op_count;
    m->stage = CKPT_NEW(&m->keep, bool, n + 1);
    m->busy = CKPT_NEW(&m->keep, bool, n + 1);
    m->own = CKPT_NEW(&m->keep, bool, m->graph->buffer_count);
    if (m->stage == NULL || m->busy == NULL || m->own == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "neighbourhoods of %d ops", n);
    }
    bool readable = false;
    CKPT_TRY(read_best(m, &readable, err));
    if (!readable) {
        return CKPT_OK;
    }
    find_busy(m);
    return sweep(m, work, err);
}

ckpt_code ckpt_ilp_improve(const ckpt_graph *graph, ckpt_bytes limit, int64_t work, const ckpt_plan_options *options,
                           ckpt_arena *out, ckpt_answer *answer, ckpt_err *err)
{
    if (options->solver == NULL || limit == CKPT_BYTES_MAX || answer->count == 0) {
        return CKPT_OK;
    }
    improver m = {.graph = graph,
                  .limit = limit,
                  .options = options,
                  .out = out,
                  .grain = ckpt_ilp_grain(graph),
                  .answer = answer};
    ckpt_arena_init(&m.keep);
    ckpt_arena_init(&m.scratch);
    const ckpt_code code = improve(&m, work, err);
    ckpt_arena_fini(&m.keep);
    ckpt_arena_fini(&m.scratch);
    return code;
}
