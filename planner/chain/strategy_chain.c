/* Optimal checkpointing of a chain of blocks: the graph is grouped into blocks, their figures are measured by replay,
 * and the chain DP (chain_dp.h) finds the fastest persistent schedule of whole blocks within the limit, in exact bytes.
 *
 * Where one buffer crosses each cut, and no backward runs in the place of one, the figures are exact, so the DP's bound
 * holds for the class `chain-persistent`.
 * Where several cross (a second, finer chain, tried when it exists) they err upwards: what a schedule measures less
 * than the limit is added to what the DP is given. */
#include "planner/chain/chain.h"

enum { ROUNDS = 3 };

/* What an effort pays for in all, in units of ckpt_dp_result.work: about 10 to 20 ns each. */
typedef struct pay {
    int64_t work;
    int points;
} pay;

static const pay pays[] = {{3000000, 64}, {20000000, 256}, {150000000, 2048}, {1000000000, 16384}};

typedef struct search {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    ckpt_order order;
    pay left;
} search;

/* The blocks as the DP wants them. */
static ckpt_code describe(const ckpt_chain *chain, ckpt_arena *scratch, ckpt_dp_chain *made, ckpt_err *err)
{
    const int n = chain->count;
    ckpt_dp_block *const block = CKPT_NEW(scratch, ckpt_dp_block, n + 1);
    ckpt_dp_keep *const keep = CKPT_NEW(scratch, ckpt_dp_keep, n + 1);
    ckpt_dp_leaf *const leaf = CKPT_NEW(scratch, ckpt_dp_leaf, n + 1);
    if (block == NULL || keep == NULL || leaf == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "figures of %d blocks", n);
    }
    for (int k = 1; k <= n; k++) {
        const ckpt_block *const from = &chain->block[k];
        keep[k] = (ckpt_dp_keep){.bytes = from->saved_bytes, .back_peak = from->back_peak};
        block[k] = (ckpt_dp_block){
            .keep = &keep[k],
            .leaf = &leaf[k],
            .keep_count = 1,
            .leaf_count = 1,
            .gradient_bytes = from->gradient_bytes,
            .crossing_bytes = from->crossing_bytes,
        };
        for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
            keep[k].time[pass] = from->keep_ns[pass] + from->back_ns;
            keep[k].forward_peak[pass] = from->keep_peak[pass];
            leaf[k].time[pass] = from->leaf_ns[pass] + from->back_ns;
            leaf[k].peak[pass] = from->leaf_peak[pass];
            block[k].drop_time[pass] = from->out_ns[pass];
            block[k].drop_peak[pass] = from->drop_peak[pass];
            block[k].going_peak[pass] = from->pass_peak[pass];
        }
    }
    *made = (ckpt_dp_chain){block, n, chain->single ? NULL : chain->fresh};
    return CKPT_OK;
}

static void write_schedule(const ckpt_chain *chain, const ckpt_dp_schedule *schedule, ckpt_order *order)
{
    order->count = 0;
    for (int i = 0; i < schedule->count; i++) {
        const ckpt_dp_action *const action = &schedule->action[i];
        const int k = action->block;
        switch (action->what) {
        case CKPT_DP_DROP: ckpt_chain_forward(chain, k, action->pass, CKPT_IN_OUT, order); break;
        case CKPT_DP_KEEP: ckpt_chain_forward(chain, k, action->pass, CKPT_IN_OUT | CKPT_IN_BACKWARD, order); break;
        case CKPT_DP_LEAF:
            ckpt_chain_forward(chain, k, action->pass, CKPT_IN_BACKWARD, order);
            ckpt_chain_backward(chain, k, order);
            break;
        case CKPT_DP_BACK: ckpt_chain_backward(chain, k, order); break;
        }
    }
}

/* The DP's best within `aim` bytes, offered as a candidate; `used`: what it measures, 0 when there is none. */
static ckpt_code try_aim(search *f, const ckpt_chain *chain, const ckpt_dp_chain *described, ckpt_bytes aim,
                         ckpt_arena *scratch, ckpt_dp_result *found, ckpt_bytes *used, ckpt_err *err)
{
    const ckpt_dp_effort effort = {.points = f->left.points, .work = f->left.work > 0 ? f->left.work : 1};
    CKPT_TRY(ckpt_dp_solve(described, aim, &effort, f->options, scratch, found, err));
    f->left.work -= found->work;
    *used = 0;
    if (found->schedule.count == 0) {
        return CKPT_OK;
    }
    ckpt_candidate measured;
    write_schedule(chain, &found->schedule, &f->order);
    CKPT_TRY(ckpt_order_measure(&f->order, f->graph, scratch, &measured, err));
    *used = measured.peak;
    return ckpt_order_offer(&f->order, f->graph, f->limit, f->out, f->candidates, err);
}

/* Candidates of lower peak, for when the allocations of the first take more than what is live: as long as there is work
 * left for them. */
static ckpt_code try_lower(search *f, const ckpt_chain *chain, const ckpt_dp_chain *described, ckpt_bytes aim,
                           ckpt_bytes need, int64_t work, ckpt_arena *scratch, ckpt_err *err)
{
    static const int parts[] = {200, 100, 50, 30, 20, 14, 10};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && work <= f->left.work; i++) {
        const ckpt_bytes lower = aim - f->limit / parts[i];
        ckpt_dp_result found;
        ckpt_bytes used = 0;
        if (lower < need) {
            break;
        }
        CKPT_TRY(try_aim(f, chain, described, lower, scratch, &found, &used, err));
    }
    return CKPT_OK;
}

/* Minimum peak, and when that is within the limit the best within it. `bound`: 0 when nothing is proved. */
static ckpt_code plan_chain(search *f, const ckpt_chain *chain, ckpt_ns *bound, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_dp_chain described;
    ckpt_dp_schedule least;
    ckpt_bytes need = 0;
    *bound = 0;
    CKPT_TRY(describe(chain, scratch, &described, err));
    CKPT_TRY(ckpt_dp_min_peak(&described, f->options, scratch, &need, &least, err));
    if (least.count > 0) {
        write_schedule(chain, &least, &f->order);
        CKPT_TRY(ckpt_order_end(&f->order, f->graph, f->limit, f->out, f->candidates, err));
    }
    if (least.count == 0 || need > f->limit) {
        return CKPT_OK;
    }
    ckpt_bytes aim = f->limit;
    ckpt_bytes best = aim;
    int64_t work = 0;
    for (int round = 0; round < ROUNDS && work <= f->left.work; round++) {
        ckpt_dp_result found;
        ckpt_bytes used = 0;
        CKPT_TRY(try_aim(f, chain, &described, aim, scratch, &found, &used, err));
        work = found.work;
        if (chain->exact) {
            *bound = found.bound;
            break;
        }
        best = used <= f->limit ? aim : best;
        if (used > f->limit - f->limit / 64 || !ckpt_sum(aim, f->limit - used, &aim)) {
            break;
        }
    }
    return try_lower(f, chain, &described, best, need, work, scratch, err);
}

/* The strict chain first, for its bound; then with cuts that several buffers cross, when there are such. */
static ckpt_code plan_both(search *f, ckpt_ns *bound, ckpt_arena *scratch, ckpt_err *err)
{
    const pay all = pays[ckpt_effort(f->options)];
    ckpt_chain *strict = NULL;
    ckpt_chain *relaxed = NULL;
    ckpt_ns none = 0;
    CKPT_TRY(ckpt_chain_build(f->graph, false, scratch, &strict, err));
    CKPT_TRY(ckpt_chain_build(f->graph, true, scratch, &relaxed, err));
    const bool both = relaxed->count != strict->count;
    f->left = (pay){both ? all.work / 2 : all.work, all.points};
    CKPT_TRY(plan_chain(f, strict, bound, scratch, err));
    f->left.work = all.work / 2;
    return both ? plan_chain(f, relaxed, &none, scratch, err) : CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    search f = {.graph = graph, .limit = limit, .options = options, .out = out, .candidates = candidates};
    ckpt_order_init(&f.order);
    ckpt_code code = ckpt_order_keep_all(graph, limit, out, candidates, err);
    if (code == CKPT_OK && candidates->count > 0) { /* nothing to save */
        candidates->has_bound = true;
        candidates->bound_ns = candidates->candidate[0].time;
        candidates->bound_how = "exact";
        candidates->bound_scope = "all";
    } else if (code == CKPT_OK) {
        ckpt_arena scratch;
        ckpt_arena_init(&scratch);
        ckpt_ns bound = 0;
        code = plan_both(&f, &bound, &scratch, err);
        ckpt_arena_fini(&scratch);
        if (code == CKPT_OK && candidates->count > 0 && bound > 0 && bound <= candidates->candidate[0].time) {
            candidates->has_bound = true;
            candidates->bound_ns = bound;
            candidates->bound_how = bound == candidates->candidate[0].time ? "exact" : "chain dynamic program";
            candidates->bound_scope = "chain-persistent";
        }
    }
    ckpt_order_fini(&f.order);
    return code;
}

const ckpt_strategy ckpt_strategy_chain = {
    .name = "chain",
    .help = "least time for a chain of blocks within the budget, by dynamic programming",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous chains: how to "
        "train deep neural networks with limited memory, hal-02352969, 2019, theorem 1",
    .budgeted = true,
    .plan = plan,
};
