/* Groups a graph into a chain of blocks and measures each block by replaying its ops. */
#include "planner/chain/chain.h"

#include <stdlib.h>
#include <string.h>

/* Facts about buffers and cuts that the steps below share. */
typedef struct builder {
    const ckpt_graph *graph;
    ckpt_chain *chain;
    int forward_end;
    int *forward_read;  /* per buffer: last op of the forward section that reads it; -1: none */
    int *last;          /* per buffer: last op of all that uses it; op_count: an output */
    int *last_backward; /* per buffer: last op behind the forward section that reads it; -1: none */
    int *block_of;      /* per op of the forward section */
    int *use_last;      /* per buffer: last use inside the replay under way */
    bool *saved;        /* per buffer: read by the backward of its own block */
} builder;

static bool in_pass(const ckpt_graph *graph, const unsigned char *use, int o, int pass, int purpose)
{
    return pass == CKPT_DP_FIRST || ((use[o] & purpose) != 0 && graph->op[o].recompute);
}

void ckpt_chain_forward(const ckpt_chain *chain, int k, int pass, int use, ckpt_order *order)
{
    for (int o = chain->block[k].from; o < chain->block[k].to; o++) {
        if (in_pass(chain->graph, chain->use, o, pass, use)) {
            ckpt_order_add(order, o);
        }
    }
}

void ckpt_chain_backward(const ckpt_chain *chain, int k, ckpt_order *order)
{
    ckpt_order_range(order, chain->block[k].back_from, chain->block[k].back_to);
}

static ckpt_code builder_init(builder *b, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = b->graph;
    const size_t buffers = (size_t)graph->buffer_count;
    b->forward_read = CKPT_NEW(scratch, int, buffers);
    b->last = CKPT_NEW(scratch, int, buffers);
    b->last_backward = CKPT_NEW(scratch, int, buffers);
    b->use_last = CKPT_NEW(scratch, int, buffers);
    b->saved = CKPT_NEW(scratch, bool, buffers);
    b->block_of = CKPT_NEW(scratch, int, graph->op_count);
    if (b->forward_read == NULL || b->last == NULL || b->last_backward == NULL || b->use_last == NULL ||
        b->saved == NULL || b->block_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "grouping %d ops", graph->op_count);
    }
    b->forward_end = 0;
    while (b->forward_end < graph->op_count && graph->op[b->forward_end].phase == CKPT_FORWARD) {
        b->forward_end++;
    }
    for (size_t i = 0; i < buffers; i++) {
        b->forward_read[i] = b->last_backward[i] = -1;
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_list *const list[] = {&graph->op[o].writes, &graph->op[o].reads, &graph->op[o].adds};
        for (int l = 0; l < 3; l++) {
            for (int i = 0; i < list[l]->count; i++) {
                const int buffer = list[l]->at[i];
                b->last[buffer] = o;
                if (l > 0 && o < b->forward_end) {
                    b->forward_read[buffer] = o;
                } else if (l > 0) {
                    b->last_backward[buffer] = o;
                }
            }
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        b->last[graph->outputs.at[i]] = graph->op_count;
    }
    return CKPT_OK;
}

/* A place to cut: behind op `op`. */
typedef struct cut {
    int op;
    int crossings; /* buffers */
    ckpt_bytes bytes;
} cut;

static int compare_cuts(const void *a, const void *b)
{
    const cut *const x = a;
    const cut *const y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (x->op > y->op) - (x->op < y->op);
}

static int compare_ops(const void *a, const void *b)
{
    return ((const cut *)a)->op - ((const cut *)b)->op;
}

/* Every position where all that crosses is read by backward; one per set of crossing buffers (neighbouring sets are
 * told apart by the sum of their numbers). */
static int find_cuts(const builder *b, bool relaxed, cut *cuts, int *count_at, ckpt_bytes *bytes_at, int64_t *id_at,
                     int *useless_at)
{
    const ckpt_graph *const graph = b->graph;
    for (int buffer = 0; buffer < graph->buffer_count; buffer++) {
        const int from = graph->writer[buffer];
        const int to = b->forward_read[buffer];
        if (to > from) { /* crosses the positions from .. to - 1 */
            const int useless = b->last_backward[buffer] < 0;
            const int64_t id = ((int64_t)buffer + 1) * 1000003;
            count_at[from] += 1;
            count_at[to] -= 1;
            bytes_at[from] += graph->buffer[buffer].bytes;
            bytes_at[to] -= graph->buffer[buffer].bytes;
            id_at[from] += id;
            id_at[to] -= id;
            useless_at[from] += useless;
            useless_at[to] -= useless;
        }
    }
    int found = 0;
    int crossings = 0;
    int useless = 0;
    ckpt_bytes bytes = 0;
    int64_t id = 0;
    int64_t cut_id = 0;
    for (int p = 0; p + 1 < b->forward_end; p++) {
        crossings += count_at[p];
        useless += useless_at[p];
        bytes += bytes_at[p];
        id += id_at[p];
        if (crossings > 0 && useless == 0 && id != cut_id && (relaxed || crossings == 1)) {
            cuts[found++] = (cut){p, crossings, bytes};
            cut_id = id;
        }
    }
    return found;
}

/* At most CKPT_CHAIN_MAX - 1 cuts: those crossed by the fewest bytes, but evenly: the forward section is divided
 * into that many stretches of about equal bytes and each gives its cheapest cut. Rising by op. */
static int choose_cuts(const builder *b, cut *cuts, int count)
{
    const int room = CKPT_CHAIN_MAX - 1;
    if (count <= room) {
        return count;
    }
    int singles = 0;
    for (int i = 0; i < count; i++) {
        singles += cuts[i].crossings == 1;
    }
    if (singles <= room) { /* all of the single ones, and the cheapest of the others */
        int kept = 0;
        for (int i = 0; i < count; i++) {
            if (cuts[i].crossings == 1) {
                const cut single = cuts[i];
                memmove(&cuts[kept + 1], &cuts[kept], (size_t)(i - kept) * sizeof *cuts);
                cuts[kept++] = single;
            }
        }
        qsort(&cuts[kept], (size_t)(count - kept), sizeof *cuts, compare_cuts);
        qsort(cuts, (size_t)room, sizeof *cuts, compare_ops);
        return room;
    }
    ckpt_bytes total = 0;
    ckpt_bytes *const weight = b->chain->fresh; /* room borrowed before it is filled: forward_end entries */
    for (int o = 0; o < b->forward_end; o++) {
        const ckpt_list *const writes = &b->graph->op[o].writes;
        for (int i = 0; i < writes->count; i++) {
            total += b->last_backward[writes->at[i]] >= 0 ? b->graph->buffer[writes->at[i]].bytes : 0;
        }
        weight[o] = total;
    }
    int kept = 0;
    int stretch = -1;
    for (int i = 0; i < count; i++) {
        const int mine = total > 0 ? (int)((double)weight[cuts[i].op] / (double)total * (room - 1)) : i * room / count;
        if (mine != stretch) {
            cuts[kept++] = cuts[i];
            stretch = mine;
        } else if (cuts[i].bytes < cuts[kept - 1].bytes) {
            cuts[kept - 1] = cuts[i];
        }
    }
    return kept;
}

/* True when the buffer crosses the cut behind block k. */
static bool crosses(const builder *b, int buffer, int k)
{
    const int writer = b->graph->writer[buffer];
    const int end = b->chain->block[k].to;
    return k > 0 && writer < end && b->forward_read[buffer] >= end;
}

/* Backward ops up to the last one that reads something written in block k or later belong to block k or later. So do
 * those behind it that read no more of the forward section than what crosses the cut before block k, up to the last
 * that reads any of that: the input of block k is in memory anyway then. */
static void assign_backward(builder *b)
{
    const ckpt_graph *const graph = b->graph;
    ckpt_block *const block = b->chain->block;
    int end = b->forward_end;
    for (int k = b->chain->count; k > 1; k--) {
        block[k].back_from = end;
        for (int o = block[k].from; o < block[k].to; o++) {
            const ckpt_list *const writes = &graph->op[o].writes;
            for (int i = 0; i < writes->count; i++) {
                const int last = b->last_backward[writes->at[i]];
                end = last >= end ? last + 1 : end;
            }
        }
        bool earlier = false;
        for (int o = end; o < graph->op_count && !earlier; o++) {
            const ckpt_list *const reads = &graph->op[o].reads;
            bool boundary = false;
            for (int i = 0; i < reads->count; i++) {
                if (graph->writer[reads->at[i]] < b->forward_end) {
                    const bool crossing = crosses(b, reads->at[i], k - 1);
                    boundary = boundary || crossing;
                    earlier = earlier || !crossing;
                }
            }
            end = boundary && !earlier ? o + 1 : end;
        }
        block[k].back_to = end;
    }
    block[1].back_from = end;
    block[1].back_to = graph->op_count;
}

/* Which ops of a block must be recomputed for what crosses the cut behind it, and for what its backward reads. */
static void mark_uses(builder *b, int k)
{
    const ckpt_graph *const graph = b->graph;
    const ckpt_block *const block = &b->chain->block[k];
    unsigned char *const use = b->chain->use;
    for (int purpose = CKPT_IN_OUT; purpose <= CKPT_IN_BACKWARD; purpose++) {
        for (int o = block->from; o < block->to; o++) {
            const ckpt_list *const writes = &graph->op[o].writes;
            for (int i = 0; i < writes->count; i++) {
                const int buffer = writes->at[i];
                const bool wanted = purpose == CKPT_IN_OUT ? crosses(b, buffer, k) : b->saved[buffer];
                b->use_last[buffer] = wanted;
            }
        }
        for (int o = block->to - 1; o >= block->from; o--) {
            const ckpt_graph_op *const op = &graph->op[o];
            bool wanted = false;
            for (int i = 0; i < op->writes.count; i++) {
                wanted = wanted || b->use_last[op->writes.at[i]] == 1;
            }
            if (wanted && op->recompute) {
                use[o] = (unsigned char)(use[o] | purpose);
                for (int i = 0; i < op->reads.count; i++) {
                    if (graph->writer[op->reads.at[i]] >= block->from) {
                        b->use_last[op->reads.at[i]] = 1;
                    }
                }
            }
        }
    }
}

/* What a replay of a block keeps beyond its last use, and counts. */
typedef struct keeping {
    int pass, purpose;
    bool saved, crossing; /* keep the saved set; keep what crosses */
    bool input;           /* count the input, and let it go after its last reader */
    bool backward;        /* go on with the block's backward */
} keeping;

static bool kept(const builder *b, int k, const keeping *keep, int buffer)
{
    return b->last[buffer] == b->graph->op_count || (keep->saved && b->saved[buffer]) ||
           (keep->crossing && crosses(b, buffer, k));
}

/* Last uses among the ops that run; input that none of them reads is taken off at once. */
static ckpt_bytes find_uses(const builder *b, int k, const keeping *keep)
{
    const ckpt_graph *const graph = b->graph;
    const ckpt_block *const block = &b->chain->block[k];
    ckpt_bytes unused = 0;
    for (int round = 0; round < 3; round++) {
        for (int o = block->from; o < block->to; o++) {
            const ckpt_graph_op *const op = &graph->op[o];
            if (round == 1 && !in_pass(graph, b->chain->use, o, keep->pass, keep->purpose)) {
                continue;
            }
            const ckpt_list *const list[] = {&op->reads, &op->writes, &op->adds};
            for (int l = 0; l < 3; l++) {
                for (int i = 0; i < list[l]->count; i++) {
                    const int buffer = list[l]->at[i];
                    if (round < 2) {
                        b->use_last[buffer] = round == 0 ? -1 : o;
                    } else if (b->use_last[buffer] == -1 && graph->writer[buffer] < block->from &&
                               crosses(b, buffer, k - 1) && !crosses(b, buffer, k)) {
                        unused += graph->buffer[buffer].bytes;
                        b->use_last[buffer] = -2;
                    }
                }
            }
        }
    }
    return unused;
}

/* Takes part in the live bytes of a replayed backward, and ends with op o. */
static bool ends_backward(const builder *b, int k, int buffer, int o)
{
    const ckpt_block *const block = &b->chain->block[k];
    const int writer = b->graph->writer[buffer];
    const bool counted = writer >= b->forward_end || (writer >= block->from && b->saved[buffer]) ||
                         (writer < block->from && crosses(b, buffer, k - 1));
    return counted && b->last[buffer] == o;
}

/* The same for a replayed forward. */
static bool ends_forward(const builder *b, int k, const keeping *keep, int buffer, int o)
{
    const bool inside = b->graph->writer[buffer] >= b->chain->block[k].from;
    const bool counted = inside || (keep->input && crosses(b, buffer, k - 1));
    return counted && b->use_last[buffer] == o && !kept(b, k, keep, buffer);
}

/* Beside buffers: workspace, less what a run in place saves; `keep` NULL in backward. It is done in place as in
 * sequence_steps.c: when all inputs of pairs end with it. Only where a bound is claimed must it be counted: elsewhere
 * figures err upwards anyway (strategy_chain.c), and with the slack the parts of auto that follow have found lower
 * budgets (resnet50: 366 MB, without it 374 MB). */
static ckpt_bytes beside(const builder *b, int k, const keeping *keep, int o)
{
    const ckpt_graph_op *const op = &b->graph->op[o];
    ckpt_bytes taken = 0;
    for (int i = 0; b->chain->single && i < op->inplace_count; i++) {
        const int in = op->inplace[i].in;
        if (!(keep != NULL ? ends_forward(b, k, keep, in, o) : ends_backward(b, k, in, o))) {
            return op->workspace_bytes;
        }
        for (int a = 0; a < op->adds.count; a++) {
            if (op->adds.at[a] == in) {
                return op->workspace_bytes;
            }
        }
        taken += b->graph->buffer[in].bytes;
    }
    return op->workspace_bytes - taken;
}

static ckpt_bytes replay_backward(const builder *b, int k, ckpt_bytes live)
{
    const ckpt_graph *const graph = b->graph;
    const ckpt_block *const block = &b->chain->block[k];
    ckpt_bytes most = live;
    for (int o = block->back_from; o < block->back_to; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        for (int i = 0; i < op->writes.count; i++) {
            live += graph->buffer[op->writes.at[i]].bytes;
        }
        const ckpt_bytes during = live + beside(b, k, NULL, o);
        most = during > most ? during : most;
        const ckpt_list *const list[] = {&op->reads, &op->writes, &op->adds};
        for (int l = 0; l < 3; l++) {
            for (int i = 0; i < list[l]->count; i++) {
                const int buffer = list[l]->at[i];
                if (ends_backward(b, k, buffer, o)) {
                    live -= graph->buffer[buffer].bytes;
                }
            }
        }
    }
    return most;
}

/* Most live bytes of one block under `keep`, its input not counted unless asked. */
static ckpt_bytes replay_block(const builder *b, int k, const keeping *keep)
{
    const ckpt_graph *const graph = b->graph;
    const ckpt_block *const block = &b->chain->block[k];
    const ckpt_bytes unused = find_uses(b, k, keep);
    ckpt_bytes live = keep->backward ? block->gradient_bytes : 0;
    if (keep->input) {
        live += (k > 1 ? b->chain->block[k - 1].crossing_bytes : 0) - unused;
    }
    ckpt_bytes most = live;
    for (int o = block->from; o < block->to; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        if (!in_pass(graph, b->chain->use, o, keep->pass, keep->purpose)) {
            continue;
        }
        for (int i = 0; i < op->writes.count; i++) {
            live += graph->buffer[op->writes.at[i]].bytes;
        }
        const ckpt_bytes during = live + beside(b, k, keep, o);
        most = during > most ? during : most;
        const ckpt_list *const list[] = {&op->reads, &op->writes};
        for (int l = 0; l < 2; l++) {
            for (int i = 0; i < list[l]->count; i++) {
                const int buffer = list[l]->at[i];
                if (ends_forward(b, k, keep, buffer, o)) {
                    live -= graph->buffer[buffer].bytes;
                }
            }
        }
    }
    if (keep->backward) {
        const ckpt_bytes after = replay_backward(b, k, live);
        most = after > most ? after : most;
    }
    return most;
}

/* What enters a block ends with its backward where the block before was dropped, and not where it was kept: a run of
 * that backward in its place is one figure of two. */
static bool takes_input(const builder *b, int k)
{
    const ckpt_block *const block = &b->chain->block[k];
    for (int o = block->back_from; o < block->back_to; o++) {
        const ckpt_graph_op *const op = &b->graph->op[o];
        for (int i = 0; i < op->inplace_count; i++) {
            if (b->graph->writer[op->inplace[i].in] < block->from) {
                return true;
            }
        }
    }
    return false;
}

static void measure_block(builder *b, int k)
{
    const ckpt_graph *const graph = b->graph;
    ckpt_block *const block = &b->chain->block[k];
    for (int o = block->from; o < block->to; o++) {
        const ckpt_list *const writes = &graph->op[o].writes;
        for (int i = 0; i < writes->count; i++) {
            const int buffer = writes->at[i];
            const ckpt_bytes bytes = graph->buffer[buffer].bytes;
            block->saved_bytes += b->saved[buffer] || crosses(b, buffer, k) ? bytes : 0;
        }
        const ckpt_ns time = graph->op[o].time_ns;
        for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
            block->out_ns[pass] += in_pass(graph, b->chain->use, o, pass, CKPT_IN_OUT) ? time : 0;
            block->leaf_ns[pass] += in_pass(graph, b->chain->use, o, pass, CKPT_IN_BACKWARD) ? time : 0;
            block->keep_ns[pass] += in_pass(graph, b->chain->use, o, pass, CKPT_IN_OUT | CKPT_IN_BACKWARD) ? time : 0;
        }
    }
    for (int o = block->back_from; o < block->back_to; o++) {
        block->back_ns += graph->op[o].time_ns;
    }
    for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
        const keeping all = {pass, CKPT_IN_OUT | CKPT_IN_BACKWARD, true, true, false, false};
        const keeping drop = {pass, CKPT_IN_OUT, false, true, false, false};
        const keeping go = {pass, CKPT_IN_OUT, false, true, true, false};
        const keeping leaf = {pass, CKPT_IN_BACKWARD, true, false, false, true};
        block->keep_peak[pass] = replay_block(b, k, &all);
        block->drop_peak[pass] = replay_block(b, k, &drop);
        block->pass_peak[pass] = replay_block(b, k, &go);
        block->leaf_peak[pass] = replay_block(b, k, &leaf);
    }
    ckpt_bytes saved = 0;
    for (int o = block->from; o < block->to; o++) {
        const ckpt_list *const writes = &graph->op[o].writes;
        for (int i = 0; i < writes->count; i++) {
            saved += b->saved[writes->at[i]] ? graph->buffer[writes->at[i]].bytes : 0;
        }
    }
    block->back_peak = replay_backward(b, k, block->gradient_bytes + saved);
}

/* Saved sets, gradients held between blocks, and bytes that cross. */
static void fill_blocks(builder *b)
{
    const ckpt_graph *const graph = b->graph;
    ckpt_chain *const chain = b->chain;
    const int n = chain->count;
    for (int k = 1; k <= n; k++) {
        const ckpt_block *const block = &chain->block[k];
        for (int o = block->from; o < block->to; o++) {
            b->block_of[o] = k;
        }
        for (int o = block->back_from; o < block->back_to; o++) {
            const ckpt_list *const reads = &graph->op[o].reads;
            for (int i = 0; i < reads->count; i++) {
                const int writer = graph->writer[reads->at[i]];
                if (writer >= block->from && writer < block->to) {
                    b->saved[reads->at[i]] = true;
                }
            }
        }
    }
    for (int buffer = 0; buffer < graph->buffer_count; buffer++) {
        const int writer = graph->writer[buffer];
        const ckpt_bytes bytes = graph->buffer[buffer].bytes;
        if (writer < b->forward_end) {
            const int first = b->block_of[writer];
            const int behind = b->forward_read[buffer] >= 0 ? b->block_of[b->forward_read[buffer]] : first;
            for (int j = first; j < behind; j++) {
                chain->block[j].crossing_bytes += bytes;
                chain->fresh[(size_t)(first - 1) * (size_t)(n + 1) + (size_t)j] += bytes;
                chain->single = chain->single && behind == first + 1;
            }
        } else {
            for (int k = 1; k <= n; k++) {
                const int start = chain->block[k].back_from;
                chain->block[k].gradient_bytes += writer < start && b->last[buffer] >= start ? bytes : 0;
            }
        }
    }
    /* so far fresh[i][j] holds what was written in block i + 1; sum over all blocks behind cut i */
    for (int i = n - 1; i >= 1; i--) {
        for (int j = i; j <= n; j++) {
            chain->fresh[(size_t)(i - 1) * (size_t)(n + 1) + (size_t)j] +=
                chain->fresh[(size_t)i * (size_t)(n + 1) + (size_t)j];
        }
    }
}

ckpt_code ckpt_chain_build(const ckpt_graph *graph, bool relaxed, ckpt_arena *out, ckpt_chain **made, ckpt_err *err)
{
    ckpt_chain *const chain = CKPT_NEW(out, ckpt_chain, 1);
    const size_t square = (size_t)(CKPT_CHAIN_MAX + 1) * (CKPT_CHAIN_MAX + 1);
    const size_t ops = (size_t)graph->op_count;
    builder b = {.graph = graph, .chain = chain};
    if (chain == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "chain of %d ops", graph->op_count);
    }
    chain->graph = graph;
    chain->use = CKPT_NEW(out, unsigned char, ops);
    chain->block = CKPT_NEW(out, ckpt_block, CKPT_CHAIN_MAX + 1);
    chain->fresh = CKPT_NEW(out, ckpt_bytes, ops > square ? ops : square);
    const ckpt_mark mark = ckpt_arena_mark(out);
    cut *const cuts = CKPT_NEW(out, cut, ops + 1);
    int *const count_at = CKPT_NEW(out, int, ops + 1);
    int *const useless_at = CKPT_NEW(out, int, ops + 1);
    ckpt_bytes *const bytes_at = CKPT_NEW(out, ckpt_bytes, ops + 1);
    int64_t *const id_at = CKPT_NEW(out, int64_t, ops + 1);
    if (chain->use == NULL || chain->block == NULL || chain->fresh == NULL || cuts == NULL || count_at == NULL ||
        useless_at == NULL || bytes_at == NULL || id_at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "chain of %d ops", graph->op_count);
    }
    CKPT_TRY(builder_init(&b, out, err));
    chain->forward_end = b.forward_end;
    const int found = find_cuts(&b, relaxed, cuts, count_at, bytes_at, id_at, useless_at);
    const int count = choose_cuts(&b, cuts, found);
    memset(chain->fresh, 0, (ops > square ? ops : square) * sizeof *chain->fresh);
    chain->count = count + 1;
    chain->single = true;
    for (int k = 1; k <= chain->count; k++) {
        chain->block[k].from = k > 1 ? cuts[k - 2].op + 1 : 0;
        chain->block[k].to = k <= count ? cuts[k - 1].op + 1 : b.forward_end;
    }
    assign_backward(&b);
    fill_blocks(&b);
    for (int k = 1; k <= chain->count; k++) {
        mark_uses(&b, k);
    }
    chain->exact = chain->single;
    for (int k = 1; k <= chain->count; k++) {
        chain->exact = chain->exact && !takes_input(&b, k);
        measure_block(&b, k);
    }
    ckpt_arena_rewind(out, mark);
    *made = chain;
    return CKPT_OK;
}
