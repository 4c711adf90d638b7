/* Segments of about equal bytes: the square root of the number of blocks when there is no limit, else the number that
 * gives the fastest step within the limit.
 *
 * Departure from the paper: instead of searching over a segment size in bytes, every number of segments is tried and
 * measured by replay; the last segment is not recomputed. */
#include "planner/segments_impl.h"

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

static ckpt_code plan_segments(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *scratch, ckpt_order *order,
                               bool *found, ckpt_err *err)
{
    ckpt_chain *chain = NULL;
    CKPT_TRY(ckpt_chain_build(graph, false, scratch, &chain, err));
    int end[CKPT_CHAIN_MAX];
    int best = limit == CKPT_BYTES_MAX ? root(chain->count) : 0;
    ckpt_ns best_time = INT64_MAX;
    for (int segments = 1; segments <= chain->count && limit < CKPT_BYTES_MAX; segments++) {
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        order->count = 0;
        ckpt_segments_write(chain, end, split(chain, segments, end), order);
        const ckpt_sequence sequence = ckpt_order_view(order);
        if (!order->failed) {
            CKPT_TRY(ckpt_sequence_measure(graph, &sequence, scratch, &peak, &time, err));
            if (peak <= limit && time < best_time) {
                best = segments;
                best_time = time;
            }
        }
    }
    *found = best > 0;
    order->count = 0;
    if (best > 0) {
        ckpt_segments_write(chain, end, split(chain, best, end), order);
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_order order;
    ckpt_order_init(&order);
    bool found = false;
    const ckpt_code code = plan_segments(graph, limit, &scratch, &order, &found, err);
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK && (found || order.failed)) {
        return ckpt_order_end(&order, out, answer, err);
    }
    ckpt_order_fini(&order);
    return code;
}

const ckpt_strategy ckpt_strategy_sqrt = {
    .name = "sqrt",
    .help = "segments of equal bytes, as many as the budget asks for; without a budget the square root of the blocks",
    .source = "Chen, Xu, Zhang, Guestrin: Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016, "
              "algorithm 3",
    .budgeted = true,
    .plan = plan,
};
