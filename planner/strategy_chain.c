/* Optimal checkpointing of a chain of blocks, by dynamic programming.
 *
 * C(s, t, u): least time to run blocks s..t forward and backward when the input of s is held and `u` slots are used
 * by what was stored before. Three ways:
 *   leaf  s = t: forward for backward, then backward
 *   keep  forward s keeping all, C(s+1, t, u + saved(s)), backward s
 *   drop  forward s..r-1 keeping only what crosses into r, C(r, t, u + crossing(r)), C(s, r-1, u)
 * A block that runs again runs only the ops that somebody still needs. Peaks inside a block were measured by replay
 * and are compared with the true bytes that `u` slots leave, so only what is stored gets rounded to slots: to the
 * nearest for the plan, which is measured and taken only when it truly fits, and down for the bound.
 *
 * Departure from the paper: sizes to the nearest slot with a check instead of up; the gradient between blocks and the
 * peak of a recomputed block are measured; the chain may be a general graph's, where several buffers cross a cut. */
#include <string.h>

#include "planner/chain_impl.h"
#include "planner/replay.h"

/* Elementary steps of one table, and its bytes. */
#define WORK_MAX  ((int64_t)120000000)
#define CELLS_MAX ((int64_t)6000000)
enum { SLOTS_MIN = 40, SLOTS_MAX = 1000 };
#define NEVER 1e300

typedef struct table {
    const ckpt_chain *chain;
    ckpt_bytes limit, slot;
    int slots;     /* u in 0 .. slots - 1 */
    double **cost; /* [s * (n + 1) + t]: NULL or `slots` values, ns */
    int *fresh;    /* chain->fresh in slots */
    int *saved;    /* per block, in slots */
    int *cap;      /* scratch: per split, u must be below it */
} table;

/* How many values of u, from 0, leave at least `need` bytes. */
static int room(const table *d, ckpt_bytes need)
{
    if (need > d->limit) {
        return 0;
    }
    const ckpt_bytes most = (d->limit - need) / d->slot + 1;
    return most < d->slots ? (int)most : d->slots;
}

static double *cell(const table *d, int s, int t)
{
    return d->cost[s * (d->chain->count + 1) + t];
}

/* For a fixed s and t: limit on u of dropping s..r-1, for every r, into d->cap[r]. */
static void find_caps(const table *d, int s, int t, int pass)
{
    const ckpt_chain *const chain = d->chain;
    const int n = chain->count;
    const ckpt_bytes gradient = pass == CKPT_FIRST ? 0 : chain->block[t].gradient_bytes;
    int cap = room(d, gradient + chain->block[s].drop_peak[pass]);
    d->cap[s + 1] = cap;
    for (int r = s + 2; r <= t; r++) {
        const ckpt_block *const passed = &chain->block[r - 1];
        /* either all of its input stays that the base does not hold anyway, or all is counted and goes when read:
         * with one buffer at each cut the second is exact, with several both err upwards */
        const ckpt_bytes fresh = chain->fresh[(size_t)(s - 1) * (size_t)(n + 1) + (size_t)(r - 2)];
        const ckpt_bytes held = passed->drop_peak[pass] + fresh;
        const ckpt_bytes going = passed->pass_peak[pass];
        const int mine = room(d, gradient + (held < going ? held : going));
        cap = mine < cap ? mine : cap;
        d->cap[r] = cap;
    }
}

static int keep_room(const table *d, int s, int t, int pass)
{
    const ckpt_block *const block = &d->chain->block[s];
    const ckpt_bytes forward = block->keep_peak[pass] + (pass == CKPT_FIRST ? 0 : d->chain->block[t].gradient_bytes);
    const int cap = room(d, forward > block->back_peak ? forward : block->back_peak);
    const int fits = d->slots - d->saved[s];
    return fits < cap ? fits : cap;
}

static int crossing_slots(const table *d, int s, int r)
{
    return d->fresh[(s - 1) * (d->chain->count + 1) + (r - 1)];
}

static void fill_cell(const table *d, int s, int t)
{
    const ckpt_chain *const chain = d->chain;
    const ckpt_block *const block = &chain->block[s];
    const int pass = t == chain->count ? CKPT_FIRST : CKPT_AGAIN;
    double *const restrict best = cell(d, s, t);
    for (int u = 0; u < d->slots; u++) {
        best[u] = NEVER;
    }
    if (s == t) {
        const int cap = room(d, block->leaf_peak[pass]);
        for (int u = 0; u < cap; u++) {
            best[u] = (double)(block->leaf_ns[pass] + block->back_ns);
        }
        return;
    }
    const double *const restrict rest = cell(d, s + 1, t);
    const double kept = (double)(block->keep_ns[pass] + block->back_ns);
    const int keep_cap = keep_room(d, s, t, pass);
    for (int u = 0; u < keep_cap; u++) {
        best[u] = kept + rest[u + d->saved[s]];
    }
    find_caps(d, s, t, pass);
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)chain->block[r - 1].out_ns[pass];
        const int stored = crossing_slots(d, s, r);
        const int fits = d->slots - stored;
        const int cap = d->cap[r] < fits ? d->cap[r] : fits;
        const double *const restrict behind = cell(d, r, t) + (cap > 0 ? stored : 0);
        const double *const restrict before = cell(d, s, r - 1);
        for (int u = 0; u < cap; u++) {
            const double cost = time + behind[u] + before[u];
            best[u] = cost < best[u] ? cost : best[u];
        }
    }
}

static int to_slots(const table *d, ckpt_bytes bytes, bool nearest)
{
    const ckpt_bytes slots = bytes / d->slot + (nearest && bytes % d->slot >= d->slot - d->slot / 2 ? 1 : 0);
    return slots < d->slots ? (int)slots : d->slots;
}

static ckpt_code fill_table(table *d, bool nearest, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_chain *const chain = d->chain;
    const int n = chain->count;
    const size_t square = (size_t)(n + 1) * (size_t)(n + 1);
    d->cost = CKPT_NEW(scratch, double *, square);
    d->fresh = CKPT_NEW(scratch, int, square);
    d->saved = CKPT_NEW(scratch, int, n + 1);
    d->cap = CKPT_NEW(scratch, int, n + 2);
    bool failed = d->cost == NULL || d->fresh == NULL || d->saved == NULL || d->cap == NULL;
    for (int s = 1; s <= n && !failed; s++) {
        for (int t = s; t <= n && !failed; t++) {
            d->cost[s * (n + 1) + t] = CKPT_NEW(scratch, double, d->slots);
            failed = cell(d, s, t) == NULL;
        }
    }
    if (failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "table of %d blocks and %d slots", n, d->slots);
    }
    for (int s = 1; s <= n; s++) {
        d->saved[s] = to_slots(d, chain->block[s].saved_bytes, nearest);
        for (int r = s + 1; r <= n; r++) {
            const size_t at = (size_t)(s - 1) * (size_t)(n + 1) + (size_t)(r - 1);
            d->fresh[at] = to_slots(d, chain->fresh[at], nearest);
        }
    }
    for (int length = 1; length <= n; length++) {
        for (int s = 1; s + length - 1 <= n; s++) {
            fill_cell(d, s, s + length - 1);
        }
    }
    return CKPT_OK;
}

/* Read the choices back out of the table: what gives the cell its cost. */
static void write_cell(const table *d, int s, int t, int u, ckpt_order *order)
{
    const ckpt_chain *const chain = d->chain;
    const int pass = t == chain->count ? CKPT_FIRST : CKPT_AGAIN;
    const ckpt_block *const block = &chain->block[s];
    if (s == t) {
        ckpt_chain_forward(chain, s, pass, CKPT_IN_BACKWARD, order);
        ckpt_chain_backward(chain, s, order);
        return;
    }
    double best = NEVER;
    int way = s; /* s: keep; r > s: drop up to r */
    if (u < keep_room(d, s, t, pass)) {
        best = (double)(block->keep_ns[pass] + block->back_ns) + cell(d, s + 1, t)[u + d->saved[s]];
    }
    find_caps(d, s, t, pass);
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)chain->block[r - 1].out_ns[pass];
        const int stored = crossing_slots(d, s, r);
        if (u < d->cap[r] && u + stored < d->slots) {
            const double cost = time + cell(d, r, t)[u + stored] + cell(d, s, r - 1)[u];
            if (cost < best) {
                best = cost;
                way = r;
            }
        }
    }
    if (way == s) {
        ckpt_chain_forward(chain, s, pass, CKPT_IN_OUT | CKPT_IN_BACKWARD, order);
        write_cell(d, s + 1, t, u + d->saved[s], order);
        ckpt_chain_backward(chain, s, order);
        return;
    }
    for (int j = s; j < way; j++) {
        ckpt_chain_forward(chain, j, pass, CKPT_IN_OUT, order);
    }
    write_cell(d, way, t, u + crossing_slots(d, s, way), order);
    write_cell(d, s, way - 1, u, order);
}

static ckpt_bytes common_divisor(ckpt_bytes a, ckpt_bytes b)
{
    while (b != 0) {
        const ckpt_bytes rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Slots so that the table stays small: a common divisor of all that is stored where that is enough. True: nothing
 * has to be rounded. */
static bool choose_slot(table *d, int wanted)
{
    const ckpt_chain *const chain = d->chain;
    const int64_t n = chain->count;
    int64_t most = wanted > 0 ? wanted : SLOTS_MAX;
    most = most > CELLS_MAX * 2 / (n * n) && wanted == 0 ? CELLS_MAX * 2 / (n * n) : most;
    most = most > WORK_MAX * 6 / (n * n * n) && wanted == 0 ? WORK_MAX * 6 / (n * n * n) : most;
    most = most < SLOTS_MIN && wanted == 0 ? SLOTS_MIN : most;
    ckpt_bytes divisor = 0;
    for (int s = 1; s < n; s++) {
        divisor = common_divisor(divisor, chain->block[s].saved_bytes);
        for (int r = s + 1; r <= n; r++) {
            divisor = common_divisor(divisor, chain->fresh[(size_t)(s - 1) * (size_t)(n + 1) + (size_t)(r - 1)]);
        }
    }
    divisor = divisor > 0 ? divisor : 1;
    const ckpt_bytes least = d->limit / most + 1;
    d->slot = divisor >= least ? divisor : least;
    d->slots = (int)(d->limit / d->slot + 1);
    return divisor >= least;
}

/* What the search has found so far. */
typedef struct search {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    ckpt_arena *out;
    ckpt_answer *answer;
    ckpt_ns time;
} search;

/* Write down cell (1, n, u), measure it, and keep it when it fits and is faster. */
static ckpt_code try_cell(search *f, const table *d, int u, ckpt_arena *scratch, bool *fits, ckpt_err *err)
{
    ckpt_order order;
    ckpt_order_init(&order);
    write_cell(d, 1, d->chain->count, u, &order);
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    const ckpt_sequence sequence = ckpt_order_view(&order);
    const ckpt_code code = order.failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order.count)
                                        : ckpt_sequence_measure(f->graph, &sequence, scratch, &peak, &time, err);
    *fits = code == CKPT_OK && peak <= f->limit;
    if (*fits && (!f->answer->found || time < f->time)) {
        f->time = time;
        return ckpt_order_end(&order, f->out, f->answer, err);
    }
    ckpt_order_fini(&order);
    return code;
}

/* The least u whose sequence truly fits. A table that had to round is filled for a little more than the limit, so that
 * rounding may err on either side. Peaks fall with rising u but for rounding: halve, then look around. */
static ckpt_code try_table(search *f, const table *d, ckpt_arena *scratch, ckpt_err *err)
{
    const double *const cost = cell(d, 1, d->chain->count);
    if (cost[0] >= NEVER) {
        return CKPT_OK; /* costs rise with u: nothing is possible at all */
    }
    bool fits = false;
    CKPT_TRY(try_cell(f, d, 0, scratch, &fits, err));
    if (fits) {
        return CKPT_OK;
    }
    int low = 1;
    int high = 0;
    while (high + 1 < d->slots && cost[high + 1] < NEVER) {
        high++;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        CKPT_TRY(try_cell(f, d, middle, scratch, &fits, err));
        if (fits) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const int around = 6;
    for (int u = high - around > 1 ? high - around : 1; u <= high + 1 && u < d->slots; u++) {
        if (cost[u] < NEVER && (!f->answer->found || cost[u] < (double)f->time)) {
            CKPT_TRY(try_cell(f, d, u, scratch, &fits, err));
        }
    }
    return CKPT_OK;
}

/* The bound that a table rounded down gives; 0: none, the chain is not of the kind it is proved for. */
static ckpt_code plan_chain(search *f, const ckpt_chain *chain, const ckpt_plan_options *options, ckpt_ns *bound,
                            ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    table d = {.chain = chain, .limit = f->limit};
    const bool exact = choose_slot(&d, options->slots);
    const bool wanted = chain->single && !options->no_bound;
    *bound = 0;
    if (!exact) {
        d.limit += d.limit / 16;
        d.slots = (int)(d.limit / d.slot + 1);
    }
    CKPT_TRY(fill_table(&d, true, scratch, err));
    CKPT_TRY(try_table(f, &d, scratch, err));
    if (wanted && !exact) {
        ckpt_arena_rewind(scratch, mark);
        d.limit = f->limit;
        d.slots = (int)(d.limit / d.slot + 1);
        CKPT_TRY(fill_table(&d, false, scratch, err));
    }
    const double cost = cell(&d, 1, chain->count)[0];
    *bound = wanted && cost < NEVER ? (ckpt_ns)cost : 0;
    return CKPT_OK;
}

/* The strict chain first, for its bound; then with cuts that several buffers cross, when there are such. */
static ckpt_code plan_both(search *f, const ckpt_plan_options *options, ckpt_ns *bound, ckpt_arena *scratch,
                           ckpt_err *err)
{
    ckpt_chain *chain = NULL;
    ckpt_ns none = 0;
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    CKPT_TRY(ckpt_chain_build(f->graph, false, scratch, &chain, err));
    const int strict_count = chain->count;
    CKPT_TRY(plan_chain(f, chain, options, bound, scratch, err));
    ckpt_arena_rewind(scratch, mark);
    CKPT_TRY(ckpt_chain_build(f->graph, true, scratch, &chain, err));
    return chain->count == strict_count ? CKPT_OK : plan_chain(f, chain, options, &none, scratch, err);
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_keep_all_measure(graph, out, &whole, &time, err));
    whole -= graph->static_bytes;
    search f = {.graph = graph, .limit = limit, .out = out, .answer = answer};
    if (whole <= limit) { /* nothing to save */
        ckpt_order order;
        ckpt_order_init(&order);
        ckpt_order_range(&order, 0, graph->op_count);
        CKPT_TRY(ckpt_order_end(&order, out, answer, err));
        answer->has_bound = true;
        answer->bound_ns = time;
        answer->bound_how = "exact";
        answer->bound_scope = "all";
        return CKPT_OK;
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_ns bound = 0;
    const ckpt_code code = plan_both(&f, options, &bound, &scratch, err);
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK && answer->found && bound > 0 && bound <= f.time) {
        answer->has_bound = true;
        answer->bound_ns = bound;
        answer->bound_how = bound == f.time ? "exact" : "chain dynamic program, stored sizes rounded down";
        answer->bound_scope = "chain-persistent";
    }
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
