/* Keep the set of saved outputs that saves the most recomputation within a share of their bytes.
 *
 * What torch.compile's activation memory budget does: one number between 0 and 1 says how much of the bytes that
 * backward reads may be kept, and a 0/1 knapsack (weights in 10,000 steps) chooses which. The peak plays no part in
 * that: what recomputation holds at once is not seen, so a smaller share may need more memory. A person finds by trial
 * the largest share that fits; here all shares in steps of 0.05 are tried, and those whose true peak is within the
 * limit are offered. Departure: sizes of ops are those of the graph, not of a fused one. */
#include <string.h>

#include "planner/baselines/retain_impl.h"

enum { STEPS = 10000, SHARES = 20, TABLE_MAX = 1 << 28 /* bits of the table: STEPS is lowered for many items */ };

typedef struct knapsack {
    const ckpt_graph *graph;
    ckpt_retained *item;
    int count;
    int steps;
    int *weight;         /* per item, in steps */
    ckpt_ns *value;      /* per capacity: most recomputation saved */
    unsigned char *take; /* bit (item, capacity): the item is kept at that capacity */
} knapsack;

static size_t bit(const knapsack *k, int item, int capacity)
{
    return (size_t)item * (size_t)(k->steps + 1) + (size_t)capacity;
}

static ckpt_code fill(knapsack *k, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_bytes total = 0;
    for (int i = 0; i < k->count; i++) {
        total += k->item[i].bytes;
    }
    k->steps = k->count > TABLE_MAX / STEPS ? TABLE_MAX / k->count : STEPS;
    k->weight = CKPT_NEW(scratch, int, k->count);
    k->value = CKPT_NEW(scratch, ckpt_ns, k->steps + 1);
    k->take = CKPT_NEW(scratch, unsigned char, bit(k, k->count, 0) / 8 + 1);
    if (k->weight == NULL || k->value == NULL || k->take == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "knapsack of %d ops", k->count);
    }
    for (int i = 0; i < k->count; i++) {
        k->weight[i] = (int)((double)k->item[i].bytes / (double)total * k->steps + 0.5);
        for (int c = k->steps; c >= k->weight[i]; c--) {
            const ckpt_ns with = k->value[c - k->weight[i]] + k->item[i].time;
            if (with > k->value[c]) {
                k->value[c] = with;
                k->take[bit(k, i, c) / 8] |= (unsigned char)(1U << bit(k, i, c) % 8);
            }
        }
    }
    return CKPT_OK;
}

static void choose(const knapsack *k, int capacity, bool *drop)
{
    memset(drop, 0, (size_t)k->graph->op_count * sizeof *drop);
    for (int i = k->count - 1; i >= 0; i--) {
        const bool kept = (k->take[bit(k, i, capacity) / 8] >> (bit(k, i, capacity) % 8) & 1) != 0;
        drop[k->item[i].op] = !kept;
        capacity -= kept ? k->weight[i] : 0;
    }
}

static ckpt_code try_shares(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                            ckpt_order *order, ckpt_arena *scratch, ckpt_arena *out, ckpt_candidates *candidates,
                            ckpt_err *err)
{
    (void)options;
    knapsack k = {.graph = graph, .item = CKPT_NEW(scratch, ckpt_retained, graph->op_count)};
    bool *const drop = CKPT_NEW(scratch, bool, graph->op_count);
    if (k.item == NULL || drop == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "knapsack of %d ops", graph->op_count);
    }
    CKPT_TRY(ckpt_retained_find(graph, scratch, k.item, &k.count, err));
    if (k.count == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(fill(&k, scratch, err));
    for (int share = SHARES; share >= 0; share--) {
        choose(&k, (int)((int64_t)k.steps * share / SHARES), drop);
        CKPT_TRY(ckpt_retain_write(graph, drop, scratch, order, err));
        CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    return ckpt_keep_or_drop(graph, limit, options, try_shares, out, candidates, err);
}

const ckpt_strategy ckpt_strategy_knapsack = {
    .name = "knapsack",
    .help = "keep what saves most recomputation within a share of the saved bytes, the best share that happens to fit",
    .source = "PyTorch 2.4 and later: torch._functorch.config.activation_memory_budget with the solver \"dp\"",
    .budgeted = true,
    .baseline = true,
    .plan = plan,
};
