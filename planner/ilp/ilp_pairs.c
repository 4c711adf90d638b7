/* Which op may be recomputed in which stage, and back from that to an order of runs. */
#include "planner/ilp/ilp_impl.h"

enum {
    WORK_MAX = 20000000 /* ops looked at, in all stages; a graph that takes more is too large for these programs */
};

/* Every op that depends on a gradient stands behind the first one that reads or adds to one. */
static bool needs_gradient(const ckpt_graph *graph, const ckpt_graph_op *op)
{
    bool needs = op->phase == CKPT_BACKWARD;
    for (int i = 0; i < op->reads.count; i++) {
        needs = needs || graph->buffer[op->reads.at[i]].kind == CKPT_GRADIENT;
    }
    return needs || op->adds.count > 0;
}

/* Where backward begins; the first stage when it does not. Ops of phase forward may stand behind that, for what only
 * backward needs: the last of them says nothing. */
static int first_stage(const ckpt_graph *graph)
{
    int first = 0;
    while (first < graph->op_count && !needs_gradient(graph, &graph->op[first])) {
        first++;
    }
    return first > 0 && first < graph->op_count ? first : 1;
}

/* An op that reads what others add to may have to wait for the right number of additions: it is left alone. */
static bool may_recompute(const ckpt_graph *graph, const bool *added, int o)
{
    bool may = graph->op[o].recompute;
    for (int i = 0; i < graph->op[o].reads.count; i++) {
        may = may && !added[graph->op[o].reads.at[i]];
    }
    for (int i = 0; i < graph->op[o].writes.count; i++) {
        may = may && !added[graph->op[o].writes.at[i]];
    }
    return may;
}

typedef struct finder {
    const ckpt_graph *graph;
    bool *may;
    int *seen, *depth; /* per op: the last stage that needed it, and through how many others */
    int *queue;
    int queue_count;
    bool all;     /* also what only later stages need */
    int lowest;   /* of the ops marked last */
    int64_t work; /* so far */
} finder;

static void need(finder *f, const ckpt_list *list, int stage, int depth)
{
    for (int i = 0; i < list->count; i++) {
        const int v = f->graph->writer[list->at[i]];
        if (f->may[v] && f->seen[v] != stage) {
            f->seen[v] = stage;
            f->depth[v] = depth;
            f->queue[f->queue_count++] = v;
        }
    }
}

static void need_all(finder *f, int at, int stage, int depth)
{
    const ckpt_graph *const g = f->graph;
    if (at < g->op_count) {
        need(f, &g->op[at].reads, stage, depth);
        need(f, &g->op[at].adds, stage, depth);
    } else {
        need(f, &g->outputs, stage, depth);
    }
}

/* Mark all that `stage` needs, and what only later ones need as far away. Gives the lowest op. */
static int mark(finder *f, int stage)
{
    const ckpt_graph *const g = f->graph;
    int done = 0;
    f->lowest = stage;
    f->queue_count = 0;
    for (int at = stage; at <= (f->all ? g->op_count : stage); at++) {
        need_all(f, at, stage, at == stage ? 0 : g->op_count);
        f->work++;
        for (; done < f->queue_count; done++) {
            const int v = f->queue[done];
            f->lowest = v < f->lowest ? v : f->lowest;
            need(f, &g->op[v].reads, stage, f->depth[v] + 1);
        }
    }
    f->work += f->queue_count;
    return f->lowest;
}

static ckpt_code find(finder *f, int first, int most, ckpt_arena *out, ckpt_ilp_pairs *pairs, ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    for (int pass = 0; pass < 2; pass++) {
        int count = 0;
        for (int s = first * pairs->passes; s < pairs->stages && count <= most; s++) {
            const int t = s / pairs->passes;
            const int from = s % pairs->passes == 0 ? mark(f, t) : f->lowest;
            pairs->from[s] = count;
            f->work += t - from;
            for (int v = from; v < t && count <= most; v++) {
                if (f->seen[v] == t && pass == 1) {
                    pairs->pair[count] = (ckpt_ilp_pair){.stage = s, .op = v, .depth = f->depth[v], .column = -1};
                }
                count += f->seen[v] == t;
            }
            count = f->work > WORK_MAX ? most + 1 : count;
        }
        f->work = 0;
        pairs->from[pairs->stages] = pairs->count = count;
        for (int v = 0; v < g->op_count; v++) {
            f->seen[v] = -1;
        }
        if (count > most) {
            return CKPT_OK;
        }
        pairs->pair = pass == 0 ? CKPT_NEW(out, ckpt_ilp_pair, count) : pairs->pair;
        if (pairs->pair == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d reruns to choose from", count);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_ilp_pairs_find(const ckpt_graph *graph, bool any, int passes, int most, ckpt_arena *out,
                              ckpt_ilp_pairs *pairs, ckpt_err *err)
{
    const int n = graph->op_count;
    *pairs = (ckpt_ilp_pairs){.passes = passes, .stages = (n + 1) * passes};
    pairs->from = CKPT_NEW(out, int, (size_t)pairs->stages + 1);
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    finder f = {.graph = graph,
                .all = any,
                .may = CKPT_NEW(&scratch, bool, n),
                .seen = CKPT_NEW(&scratch, int, n),
                .depth = CKPT_NEW(&scratch, int, n),
                .queue = CKPT_NEW(&scratch, int, n)};
    bool *const added = CKPT_NEW(&scratch, bool, graph->buffer_count);
    ckpt_code code = CKPT_OK;
    if (pairs->from == NULL || f.may == NULL || f.seen == NULL || f.depth == NULL || f.queue == NULL || added == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "reruns of %d ops", n);
    } else {
        for (int o = 0; o < n; o++) {
            for (int i = 0; i < graph->op[o].adds.count; i++) {
                added[graph->op[o].adds.at[i]] = true;
            }
        }
        for (int o = 0; o < n; o++) {
            f.may[o] = may_recompute(graph, added, o);
            f.seen[o] = -1;
        }
        code = find(&f, any ? 1 : first_stage(graph), most, out, pairs, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

static ckpt_ilp_pair *pair_at(const ckpt_ilp_pairs *pairs, int stage, int op)
{
    int low = pairs->from[stage], high = pairs->from[stage + 1];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (pairs->pair[middle].op < op) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < pairs->from[stage + 1] && pairs->pair[low].op == op ? &pairs->pair[low] : NULL;
}

bool ckpt_ilp_pairs_read(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_ilp_pairs *pairs)
{
    for (int p = 0; p < pairs->count; p++) {
        pairs->pair[p].runs = false;
    }
    int next = 0, pass = 0, last = -1; /* op of the last recomputation in this pass */
    for (int i = 0; i < sequence->count; i++) {
        const int o = sequence->op[i];
        if (o == next && next < graph->op_count) {
            next++;
            pass = 0;
            last = -1;
            continue;
        }
        /* an order that only shuffles one pass is the same choice; how good that is gets measured */
        ckpt_ilp_pair *pair = o >= 0 ? pair_at(pairs, next * pairs->passes + pass, o) : NULL;
        if (pair != NULL && pass + 1 < pairs->passes && (pair->runs || o < last)) {
            pass++;
            pair = pair_at(pairs, next * pairs->passes + pass, o);
        }
        if (pair == NULL || pair->runs) {
            return false;
        }
        pair->runs = true;
        last = o;
    }
    return next == graph->op_count;
}

void ckpt_ilp_pairs_write(const ckpt_graph *graph, const ckpt_ilp_pairs *pairs, ckpt_order *order)
{
    for (int s = 0; s < pairs->stages; s++) {
        for (int p = pairs->from[s]; p < pairs->from[s + 1]; p++) {
            if (pairs->pair[p].runs) {
                ckpt_order_add(order, pairs->pair[p].op);
            }
        }
        if (s % pairs->passes == pairs->passes - 1 && s / pairs->passes < graph->op_count) {
            ckpt_order_add(order, s / pairs->passes);
        }
    }
}
