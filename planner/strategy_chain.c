/* Optimal checkpointing of a chain of blocks, by dynamic programming.
 *
 * C(s, t, u): least time to run blocks s..t forward and backward when the input of s is held and `u` slots are used
 * by what was stored before. Three ways:
 *   leaf  s = t: forward for backward, then backward
 *   keep  forward s keeping all, C(s+1, t, u + saved(s)), backward s
 *   drop  forward s..r-1 keeping only what crosses into r, C(r, t, u + crossing(r)), C(s, r-1, u)
 * A block that runs again runs only the ops that somebody still needs. Peaks inside a block were measured by replay
 * and are compared with the true bytes that `u` slots leave, so only what is stored gets rounded to whole slots: down
 * where C(1, n, 0) is to be a lower bound, else to the nearest. What is read back out of the table is measured, at
 * rising u until it truly fits. The least peak needs no slots: the same recurrence over exact bytes, N(s, t), is one
 * number per s and t, and what does not fit its N(1, n) is never given a table.
 *
 * Departure from the paper: sizes down to a slot with a check instead of up; the gradient between blocks and the peak
 * of a recomputed block are measured; the chain may be a general graph's, where several buffers cross a cut. */
#include "planner/chain_impl.h"

/* Elementary steps of one table, and its bytes. */
#define WORK_MAX  ((int64_t)120000000)
#define CELLS_MAX ((int64_t)6000000)
enum { SLOTS_MIN = 40, SLOTS_MAX = 1000, ROUNDS = 3 };
#define NEVER 1e300
#define SURE  9007199254740992.0 /* 2^53: below it sums of whole numbers are exact */

/* What the ways of one chain need. Square tables are [s * (n + 1) + t]. */
typedef struct ways {
    const ckpt_chain *chain;
    int n;
    ckpt_bytes *passing[CKPT_PASSES]; /* [s, r]: most live while s..r-1 run keeping only what crosses into r */
    ckpt_bytes *need;                 /* N(s, t) */
    double *time;                     /* of the way that gives it */
} ways;

static int pass_of(const ways *w, int t)
{
    return t == w->n ? CKPT_FIRST : CKPT_AGAIN;
}

static size_t at(const ways *w, int s, int t)
{
    return (size_t)s * (size_t)(w->n + 1) + (size_t)t;
}

static ckpt_bytes larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* Bytes that cross into r and are not in the input of s. */
static ckpt_bytes crossing(const ways *w, int s, int r)
{
    return w->chain->fresh[at(w, s - 1, r - 1)];
}

/* While the second time over, the gradients for the backward of t are held. */
static ckpt_bytes held_gradient(const ways *w, int t)
{
    return t == w->n ? 0 : w->chain->block[t].gradient_bytes;
}

/* Most live while s runs keeping all, and in its backward. */
static ckpt_bytes keep_need(const ways *w, int s, int t)
{
    const ckpt_block *const block = &w->chain->block[s];
    return larger(block->keep_peak[pass_of(w, t)] + held_gradient(w, t), block->back_peak);
}

static ckpt_bytes drop_need(const ways *w, int s, int t, int r)
{
    return w->passing[pass_of(w, t)][at(w, s, r)] + held_gradient(w, t);
}

static double keep_time(const ways *w, int s, int t)
{
    const ckpt_block *const block = &w->chain->block[s];
    return (double)(block->keep_ns[pass_of(w, t)] + block->back_ns);
}

static double leaf_time(const ways *w, int s)
{
    const ckpt_block *const block = &w->chain->block[s];
    return (double)(block->leaf_ns[pass_of(w, s)] + block->back_ns);
}

/* N(s, t), and the fastest of the ways that need no more. */
static void find_need(const ways *w, int s, int t)
{
    ckpt_bytes need = w->chain->block[s].leaf_peak[pass_of(w, t)];
    double best = leaf_time(w, s);
    if (s < t) {
        need = larger(keep_need(w, s, t), w->chain->block[s].saved_bytes + w->need[at(w, s + 1, t)]);
        best = keep_time(w, s, t) + w->time[at(w, s + 1, t)];
    }
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)w->chain->block[r - 1].out_ns[pass_of(w, t)];
        const ckpt_bytes inner = larger(crossing(w, s, r) + w->need[at(w, r, t)], w->need[at(w, s, r - 1)]);
        const ckpt_bytes mine = larger(drop_need(w, s, t, r), inner);
        const double whole = time + w->time[at(w, r, t)] + w->time[at(w, s, r - 1)];
        if (mine < need || (mine == need && whole < best)) {
            need = mine;
            best = whole;
        }
    }
    w->need[at(w, s, t)] = need;
    w->time[at(w, s, t)] = best;
}

static ckpt_code ways_init(ways *w, const ckpt_chain *chain, ckpt_arena *scratch, ckpt_err *err)
{
    const int n = chain->count;
    const size_t square = (size_t)(n + 1) * (size_t)(n + 1);
    w->chain = chain;
    w->n = n;
    w->need = CKPT_NEW(scratch, ckpt_bytes, square);
    w->time = CKPT_NEW(scratch, double, square);
    for (int pass = 0; pass < CKPT_PASSES; pass++) {
        w->passing[pass] = CKPT_NEW(scratch, ckpt_bytes, square);
        if (w->need == NULL || w->time == NULL || w->passing[pass] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "needs of %d blocks", n);
        }
        for (int s = 1; s < n; s++) {
            ckpt_bytes most = chain->block[s].drop_peak[pass];
            w->passing[pass][at(w, s, s + 1)] = most;
            for (int r = s + 2; r <= n; r++) {
                /* either all of its input stays that the base does not hold anyway, or all is counted and goes when
                 * read: with one buffer at each cut the second is exact, with several both err upwards */
                const ckpt_block *const passed = &chain->block[r - 1];
                const ckpt_bytes held = passed->drop_peak[pass] + crossing(w, s, r - 1);
                const ckpt_bytes going = passed->pass_peak[pass];
                most = larger(most, held < going ? held : going);
                w->passing[pass][at(w, s, r)] = most;
            }
        }
    }
    for (int length = 1; length <= n; length++) {
        for (int s = 1; s + length - 1 <= n; s++) {
            find_need(w, s, s + length - 1);
        }
    }
    return CKPT_OK;
}

static void write_keep(const ways *w, int s, int t, ckpt_order *order)
{
    ckpt_chain_forward(w->chain, s, pass_of(w, t), CKPT_IN_OUT | CKPT_IN_BACKWARD, order);
}

static void write_leaf(const ways *w, int s, ckpt_order *order)
{
    ckpt_chain_forward(w->chain, s, pass_of(w, s), CKPT_IN_BACKWARD, order);
    ckpt_chain_backward(w->chain, s, order);
}

static void write_drop(const ways *w, int s, int t, int r, ckpt_order *order)
{
    for (int j = s; j < r; j++) {
        ckpt_chain_forward(w->chain, j, pass_of(w, t), CKPT_IN_OUT, order);
    }
}

/* s..t within `left` bytes, which N(s, t) does not exceed: what the least peak of the whole leaves over is used to
 * recompute less, by the times found for the least peaks of the parts. */
static void write_least(const ways *w, int s, int t, ckpt_bytes left, ckpt_order *order)
{
    if (s == t) {
        write_leaf(w, s, order);
        return;
    }
    const ckpt_bytes saved = w->chain->block[s].saved_bytes;
    double best = NEVER;
    int way = s; /* s: keep; r > s: drop up to r */
    if (keep_need(w, s, t) <= left && saved + w->need[at(w, s + 1, t)] <= left) {
        best = keep_time(w, s, t) + w->time[at(w, s + 1, t)];
    }
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)w->chain->block[r - 1].out_ns[pass_of(w, t)];
        const double whole = time + w->time[at(w, r, t)] + w->time[at(w, s, r - 1)];
        if (whole < best && drop_need(w, s, t, r) <= left && w->need[at(w, s, r - 1)] <= left &&
            crossing(w, s, r) + w->need[at(w, r, t)] <= left) {
            best = whole;
            way = r;
        }
    }
    if (way == s) {
        write_keep(w, s, t, order);
        write_least(w, s + 1, t, left - saved, order);
        ckpt_chain_backward(w->chain, s, order);
        return;
    }
    write_drop(w, s, t, way, order);
    write_least(w, way, t, left - crossing(w, s, way), order);
    write_least(w, s, way - 1, left, order);
}

typedef struct table {
    const ways *ways;
    ckpt_bytes limit, slot;
    ckpt_bytes round; /* added before sizes are divided: 0 rounds down, half a slot to the nearest */
    int slots;        /* u in 0 .. slots - 1 */
    double **cost;    /* [s, t]: NULL or `slots` values, ns */
} table;

/* How many values of u, from 0, leave at least `need` bytes. */
static int room(const table *d, ckpt_bytes need)
{
    return need > d->limit ? 0 : (int)((d->limit - need) / d->slot) + 1;
}

static double *cell(const table *d, int s, int t)
{
    return d->cost[at(d->ways, s, t)];
}

static int in_slots(const table *d, ckpt_bytes bytes)
{
    const ckpt_bytes slots = bytes / d->slot + (bytes % d->slot >= d->slot - d->round ? 1 : 0);
    return slots < d->slots ? (int)slots : d->slots;
}

/* Values of u, from 0, at which `stored` more slots can be used and `need` bytes are left. */
static int room_beside(const table *d, int stored, ckpt_bytes need)
{
    const int cap = room(d, need);
    return cap < d->slots - stored ? cap : d->slots - stored;
}

static void fill_cell(const table *d, int s, int t)
{
    const ways *const w = d->ways;
    double *const restrict best = cell(d, s, t);
    for (int u = 0; u < d->slots; u++) {
        best[u] = NEVER;
    }
    if (s == t) {
        const int cap = room(d, w->chain->block[s].leaf_peak[pass_of(w, t)]);
        for (int u = 0; u < cap; u++) {
            best[u] = leaf_time(w, s);
        }
        return;
    }
    const int saved = in_slots(d, w->chain->block[s].saved_bytes);
    const int keep_cap = room_beside(d, saved, keep_need(w, s, t));
    const double *const restrict rest = cell(d, s + 1, t) + (keep_cap > 0 ? saved : 0);
    const double kept = keep_time(w, s, t);
    for (int u = 0; u < keep_cap; u++) {
        best[u] = kept + rest[u];
    }
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)w->chain->block[r - 1].out_ns[pass_of(w, t)];
        const int stored = in_slots(d, crossing(w, s, r));
        const int cap = room_beside(d, stored, drop_need(w, s, t, r));
        const double *const restrict behind = cell(d, r, t) + (cap > 0 ? stored : 0);
        const double *const restrict before = cell(d, s, r - 1);
        for (int u = 0; u < cap; u++) {
            const double cost = time + behind[u] + before[u];
            best[u] = cost < best[u] ? cost : best[u];
        }
    }
}

static ckpt_code fill_table(table *d, ckpt_arena *scratch, ckpt_err *err)
{
    const int n = d->ways->n;
    d->cost = CKPT_NEW(scratch, double *, (size_t)(n + 1) * (size_t)(n + 1));
    for (int length = 1; length <= n; length++) {
        for (int s = 1; s + length - 1 <= n; s++) {
            double *const values = d->cost != NULL ? CKPT_NEW(scratch, double, d->slots) : NULL;
            if (values == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "table of %d blocks and %d slots", n, d->slots);
            }
            d->cost[at(d->ways, s, s + length - 1)] = values;
            fill_cell(d, s, s + length - 1);
        }
    }
    return CKPT_OK;
}

/* Read the choices back out of the table: what gives the cell its cost. */
static void write_cell(const table *d, int s, int t, int u, ckpt_order *order)
{
    const ways *const w = d->ways;
    if (s == t) {
        write_leaf(w, s, order);
        return;
    }
    const int saved = in_slots(d, w->chain->block[s].saved_bytes);
    double best = NEVER;
    int way = s; /* s: keep; r > s: drop up to r */
    if (u < room_beside(d, saved, keep_need(w, s, t))) {
        best = keep_time(w, s, t) + cell(d, s + 1, t)[u + saved];
    }
    double time = 0;
    for (int r = s + 1; r <= t; r++) {
        time += (double)w->chain->block[r - 1].out_ns[pass_of(w, t)];
        const int stored = in_slots(d, crossing(w, s, r));
        if (u < room_beside(d, stored, drop_need(w, s, t, r))) {
            const double cost = time + cell(d, r, t)[u + stored] + cell(d, s, r - 1)[u];
            if (cost < best) {
                best = cost;
                way = r;
            }
        }
    }
    if (way == s) {
        write_keep(w, s, t, order);
        write_cell(d, s + 1, t, u + saved, order);
        ckpt_chain_backward(w->chain, s, order);
        return;
    }
    write_drop(w, s, t, way, order);
    write_cell(d, way, t, u + in_slots(d, crossing(w, s, way)), order);
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

/* Slots so that the table stays small: a common divisor of all that is stored where that is enough, so that nothing
 * has to be rounded. A table that rounds to the nearest is filled for a little more than the limit, because rounding
 * may err on either side. */
static void choose_slot(table *d, int wanted, bool nearest)
{
    const ways *const w = d->ways;
    const int64_t n = w->n;
    int64_t most = wanted > 0 ? wanted : SLOTS_MAX;
    most = most > CELLS_MAX * 2 / (n * n) && wanted == 0 ? CELLS_MAX * 2 / (n * n) : most;
    most = most > WORK_MAX * 6 / (n * n * n) && wanted == 0 ? WORK_MAX * 6 / (n * n * n) : most;
    most = most < SLOTS_MIN && wanted == 0 ? SLOTS_MIN : most;
    ckpt_bytes divisor = 0;
    for (int s = 1; s < n; s++) {
        divisor = common_divisor(divisor, w->chain->block[s].saved_bytes);
        for (int r = s + 1; r <= n; r++) {
            divisor = common_divisor(divisor, crossing(w, s, r));
        }
    }
    divisor = divisor > 0 ? divisor : 1;
    const ckpt_bytes least = d->limit / most + 1;
    d->slot = divisor >= least ? divisor : least;
    if (nearest && divisor < least && d->limit < CKPT_BYTES_MAX / 2) {
        d->round = d->slot / 2;
        d->limit += d->limit / 16;
    }
    d->slots = (int)(d->limit / d->slot) + 1;
}

/* What the search works on. */
typedef struct search {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    ckpt_arena *out;
    ckpt_answer *answer;
    ckpt_order order;
} search;

static ckpt_code measure_cell(search *f, const table *d, int u, ckpt_arena *scratch, ckpt_candidate *measured,
                              ckpt_err *err)
{
    f->order.count = 0;
    write_cell(d, 1, d->ways->n, u, &f->order);
    return ckpt_order_measure(&f->order, f->graph, scratch, measured, err);
}

static ckpt_code take_cell(search *f, const table *d, int u, ckpt_err *err)
{
    f->order.count = 0;
    write_cell(d, 1, d->ways->n, u, &f->order);
    return ckpt_order_offer(&f->order, f->graph, f->limit, f->out, f->answer, err);
}

/* The least u whose sequence truly fits, and some larger ones. `used`: the peak of u = 0. Peaks fall with rising u but
 * for rounding: halve, then look around. */
static ckpt_code take_cells(search *f, const table *d, ckpt_bytes *used, ckpt_arena *scratch, ckpt_err *err)
{
    const double *const cost = cell(d, 1, d->ways->n);
    const int around = 6;
    const int lowered[] = {128, 90, 64, 48, 36, 28, 22, 16, 12, 8, 4}; /* parts of all slots */
    ckpt_candidate measured;
    int low = 0;
    int high = d->slots; /* costs rise with u: behind the last that is possible */
    while (high > 0 && cost[high - 1] >= NEVER) {
        high--;
    }
    const int end = high;
    if (end == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(measure_cell(f, d, 0, scratch, &measured, err));
    *used = measured.peak;
    if (measured.peak <= f->limit) {
        high = 0;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        CKPT_TRY(measure_cell(f, d, middle, scratch, &measured, err));
        if (measured.peak <= f->limit) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    for (int u = high > around ? high - around : 0; u <= high && u < end; u++) {
        CKPT_TRY(take_cell(f, d, u, err));
    }
    for (size_t i = 0; i < sizeof lowered / sizeof *lowered; i++) {
        const int u = high + d->slots / lowered[i];
        if (u < end) {
            CKPT_TRY(take_cell(f, d, u, err));
        }
    }
    return CKPT_OK;
}

/* Least peak, and when that is within the limit a table. `bound`: C(1, n, 0); 0: it proves nothing. */
static ckpt_code plan_chain(search *f, const ckpt_chain *chain, const ckpt_plan_options *options, ckpt_ns *bound,
                            ckpt_arena *scratch, ckpt_err *err)
{
    ways w = {0};
    CKPT_TRY(ways_init(&w, chain, scratch, err));
    const ckpt_bytes need = w.need[at(&w, 1, w.n)];
    *bound = 0;
    f->order.count = 0;
    write_least(&w, 1, w.n, need, &f->order);
    CKPT_TRY(ckpt_order_end(&f->order, f->graph, f->limit, f->out, f->answer, err));
    if (need > f->limit) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_bytes aim = f->limit;
    for (int round = 0; round < ROUNDS; round++) {
        table d = {.ways = &w, .limit = aim};
        ckpt_bytes used = 0;
        choose_slot(&d, options->slots, !chain->single);
        CKPT_TRY(fill_table(&d, scratch, err));
        CKPT_TRY(take_cells(f, &d, &used, scratch, err));
        const double cost = cell(&d, 1, w.n)[0];
        ckpt_arena_rewind(scratch, mark);
        if (chain->single) {
            *bound = cost < SURE ? (ckpt_ns)cost : 0;
            break;
        }
        /* where several buffers cross, needs are stated too high: what was left over is added */
        if (used > f->limit - f->limit / 64 || !ckpt_sum(aim, f->limit - used, &aim)) {
            break;
        }
    }
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
    search f = {.graph = graph, .limit = limit, .out = out, .answer = answer};
    ckpt_order_init(&f.order);
    ckpt_order_range(&f.order, 0, graph->op_count);
    ckpt_code code = ckpt_order_end(&f.order, graph, limit, out, answer, err);
    if (code == CKPT_OK && answer->count > 0) { /* nothing to save */
        answer->has_bound = true;
        answer->bound_ns = answer->candidate[0].time;
        answer->bound_how = "exact";
        answer->bound_scope = "all";
    } else if (code == CKPT_OK) {
        ckpt_arena scratch;
        ckpt_arena_init(&scratch);
        ckpt_ns bound = 0;
        code = plan_both(&f, options, &bound, &scratch, err);
        ckpt_arena_fini(&scratch);
        if (code == CKPT_OK && answer->count > 0 && bound > 0 && bound <= answer->candidate[0].time) {
            answer->has_bound = true;
            answer->bound_ns = bound;
            answer->bound_how =
                bound == answer->candidate[0].time ? "exact" : "chain dynamic program, stored sizes rounded down";
            answer->bound_scope = "chain-persistent";
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
