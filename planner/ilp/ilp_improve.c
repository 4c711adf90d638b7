/* Neighbourhoods of a schedule, each solved as an integer program (large-neighbourhood search: Shaw, Using constraint
 * programming and local search methods to solve vehicle routing problems, CP 1998): the recomputations of ops that
 * stand together are free, all others stay as they are.
 *
 * Most recomputations of a good schedule lie close before what needs them. So an op of the neighbourhood is free in the
 * stages whose own reads it is a few recomputations away from, where it runs already, and where it would feed what runs
 * already. The fewer recomputations away, the more ops fit into one neighbourhood: from few ops in every stage to many
 * ops in theirs.
 *  */
#include "planner/ilp/ilp_impl.h"

enum {
    PAIRS_MAX = 400000, /* that are looked at; larger graphs are left alone */
    FREE_MAX = 160,     /* pairs of one neighbourhood, beyond the ops that make it pass that */
    NODES = 40,         /* branchings of one neighbourhood */
};

typedef struct improver {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out, keep, scratch; /* keep: all along; scratch: one neighbourhood */
    ckpt_ilp_pairs pairs;
    bool *near;    /* per pair: free when its op is in the neighbourhood */
    int *near_ops; /* per op: how many of those it has */
    int *feeds;    /* per op: the last stage in which what it writes is read by a recomputation */
    ckpt_ns grain;
    ckpt_candidates *candidates;
    int64_t work;
} improver;

/* Fill `near` for at most `depth` recomputations between. Stages from the last pair to the first, ops falling: what a
 * recomputation reads is written by lower ops. */
static void find_near(improver *m, int depth)
{
    const ckpt_graph *const g = m->graph;
    for (int o = 0; o < g->op_count; o++) {
        m->feeds[o] = -1;
        m->near_ops[o] = 0;
    }
    for (int p = m->pairs.count - 1; p >= 0; p--) {
        const ckpt_ilp_pair *const pair = &m->pairs.pair[p];
        m->near[p] = pair->depth <= depth || pair->runs || m->feeds[pair->op] == pair->stage;
        m->near_ops[pair->op] += m->near[p];
        for (int i = 0; pair->runs && i < g->op[pair->op].reads.count; i++) {
            m->feeds[g->writer[g->op[pair->op].reads.at[i]]] = pair->stage;
        }
    }
}

/* Free the near pairs of ops from .. to - 1. */
static void free_pairs(improver *m, int from, int to)
{
    for (int p = 0; p < m->pairs.count; p++) {
        ckpt_ilp_pair *const pair = &m->pairs.pair[p];
        pair->free = m->near[p] && pair->op >= from && pair->op < to;
    }
}

/* Offer what `runs` says now. When measured it may turn out to be over the limit by what the solver tolerates; then
 * the best sequence is read again. */
static ckpt_code take_point(improver *m, bool *better, ckpt_err *err)
{
    const ckpt_ns before = m->candidates->candidate[0].time;
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_ilp_pairs_write(m->graph, &m->pairs, &order);
    const ckpt_code code = ckpt_order_offer(&order, m->graph, m->limit, m->out, m->candidates, err);
    ckpt_order_fini(&order);
    *better = m->candidates->candidate[0].time < before;
    return code;
}

/* Solve with ops from .. to - 1 free. */
static ckpt_code try_ops(improver *m, int from, int to, bool *better, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(&m->scratch);
    ckpt_ilp_model model;
    *better = false;
    free_pairs(m, from, to);
    CKPT_TRY(ckpt_ilp_model_build(m->graph, m->limit, &m->pairs, &m->scratch, &model, err));
    m->work += m->graph->op_count / 10 + model.program.rows / 10;
    bool found = false;
    ckpt_ns bound = 0;
    CKPT_TRY(ckpt_ilp_model_solve(&model, &m->pairs, m->grain, m->candidates->candidate[0].time, NODES, m->options,
                                  &found, &bound, &m->work, err));
    ckpt_arena_rewind(&m->scratch, mark);
    return found ? take_point(m, better, err) : CKPT_OK;
}

/* Neighbourhoods from the last ops to the first, each reaching halfway into the next. `end`: no more work, or the best
 * sequence is none that pairs can say. */
static ckpt_code sweep(improver *m, int depth, int64_t work, bool *helped, bool *end, ckpt_err *err)
{
    find_near(m, depth);
    *helped = false;
    for (int to = m->graph->op_count; to > 0 && !*end;) {
        int from = to, count = 0, middle = to;
        while (from > 0 && count < FREE_MAX) {
            count += m->near_ops[--from];
            middle = count < FREE_MAX / 2 ? from : middle;
        }
        bool better = false;
        if (count > 0) {
            CKPT_TRY(try_ops(m, from, to, &better, err));
        }
        *end = !ckpt_ilp_pairs_read(m->graph, &m->candidates->candidate[0].sequence, &m->pairs);
        if (better) {
            *helped = true;
            find_near(m, depth);
        }
        *end = *end || m->work >= work || ckpt_plan_stopped(m->options);
        to = from == 0 ? 0 : middle < to ? middle : to - 1;
    }
    return CKPT_OK;
}

static ckpt_code sweep_all(improver *m, int64_t work, ckpt_err *err)
{
    static const int depth[] = {100, 12, 6, 3, 1};
    bool end = false, any = true;
    while (any && !end) {
        any = false;
        for (size_t k = 0; k < sizeof depth / sizeof *depth && !end; k++) {
            bool helped = false;
            CKPT_TRY(sweep(m, depth[k], work, &helped, &end, err));
            any = any || helped;
        }
    }
    return CKPT_OK;
}

/* The pairs among which the best candidate is one choice: where backward has begun if that will do, else anywhere. */
static ckpt_code read_best(improver *m, bool *readable, ckpt_err *err)
{
    *readable = false;
    for (int pass = 0; pass < 2 && !*readable; pass++) {
        CKPT_TRY(ckpt_ilp_pairs_find(m->graph, pass == 1, 1, PAIRS_MAX, &m->keep, &m->pairs, err));
        *readable = m->pairs.count <= PAIRS_MAX &&
                    ckpt_ilp_pairs_read(m->graph, &m->candidates->candidate[0].sequence, &m->pairs);
    }
    return CKPT_OK;
}

static ckpt_code improve(improver *m, int64_t work, ckpt_err *err)
{
    const int n = m->graph->op_count;
    bool readable = false;
    CKPT_TRY(read_best(m, &readable, err));
    if (!readable) {
        return CKPT_OK;
    }
    m->near = CKPT_NEW(&m->keep, bool, m->pairs.count);
    m->near_ops = CKPT_NEW(&m->keep, int, n);
    m->feeds = CKPT_NEW(&m->keep, int, n);
    if (m->near == NULL || m->near_ops == NULL || m->feeds == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "neighbourhoods of %d ops", n);
    }
    return sweep_all(m, work, err);
}

ckpt_code ckpt_ilp_improve(const ckpt_graph *graph, ckpt_bytes limit, int64_t work, const ckpt_plan_options *options,
                           ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    if (options->solver == NULL || limit == CKPT_BYTES_MAX || candidates->count == 0) {
        return CKPT_OK;
    }
    improver m = {.graph = graph,
                  .limit = limit,
                  .options = options,
                  .out = out,
                  .grain = ckpt_ilp_grain(graph),
                  .candidates = candidates};
    ckpt_arena_init(&m.keep);
    ckpt_arena_init(&m.scratch);
    const ckpt_code code = improve(&m, work, err);
    ckpt_arena_fini(&m.keep);
    ckpt_arena_fini(&m.scratch);
    return code;
}
