/* Segments of about equal bytes: the square root of the number of blocks when there is no limit, else the number that
 * gives the fastest step within the limit.
 *
 * Departure from the paper: instead of searching over a segment size in bytes, every number of segments is tried and
 * measured by replay; the last segment is not recomputed. */
#include "planner/baselines/segments_impl.h"

/* Close a segment whenever the saved bytes so far pass the next of `segments` equal parts. Gives how many came out. */
static int split(const ckpt_chain *chain, int segments, int *end)
{
    double total = 0;
    for (int k = 1; k <= chain->count; k++) {
        total += (double)chain->block[k].saved_bytes;
    }
    double sum = 0;
    int made = 0;
    for (int k = 1; k < chain->count; k++) {
        sum += (double)chain->block[k].saved_bytes;
        const int left = chain->count - k; /* blocks behind k: each missing segment needs one */
        if (made < segments - 1 && (sum >= total * (made + 1) / segments || left == segments - 1 - made)) {
            end[made++] = k;
        }
    }
    end[made++] = chain->count;
    return made;
}

static int root(int n)
{
    int r = 1;
    while ((r + 1) * (r + 1) <= n) {
        r++;
    }
    return n - r * r > r ? r + 1 : r; /* nearest */
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_chain *chain = NULL;
    ckpt_code code = ckpt_chain_build(graph, false, &scratch, &chain, err);
    const int blocks = code == CKPT_OK ? chain->count : 0;
    const int free_choice = root(blocks);
    ckpt_order order;
    ckpt_order_init(&order);
    for (int segments = 1; segments <= blocks && code == CKPT_OK; segments++) {
        if (limit < CKPT_BYTES_MAX || segments == free_choice) {
            int end[CKPT_CHAIN_MAX];
            ckpt_segments_write(chain, end, split(chain, segments, end), &order);
            code = ckpt_order_end(&order, graph, limit, out, candidates, err);
        }
    }
    ckpt_order_fini(&order);
    ckpt_arena_fini(&scratch);
    return code;
}

const ckpt_strategy ckpt_strategy_sqrt = {
    .name = "sqrt",
    .help = "segments of equal bytes, as many as the budget asks for; without a budget the square root of the blocks",
    .source = "Chen, Xu, Zhang, Guestrin: Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016, "
              "algorithm 3",
    .budgeted = true,
    .baseline = true,
    .plan = plan,
};
