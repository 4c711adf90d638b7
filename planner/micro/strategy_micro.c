/* Micro-batches are alike: one is planned, and the schedule of the whole step is made of copies.
 *
 * While a micro-batch runs, `in_flight` others wait between forward and backward, each with what its schedule holds
 * there. So the peak of the whole is about
 *
 *     extra + in_flight * held + peak of one
 *
 * and `held` and the peak of one should both be low. A "hold" op between forward and backward turns that into a limit
 * for an ordinary planner: when it takes workspace W, a schedule within the limit holds at most limit - W there. `held`
 * is searched on a grid, then around the best value. `extra` (gradients that several micro-batches add to, messages) is
 * measured on the whole. The first and the last micro-batches have fewer others beside them, so in the end each one
 * takes the fastest of all schedules met that fits at its position.
 *
 * A schedule of the whole contains one of each micro-batch within the same limit. So a bound on one, times the number
 * of micro-batches, plus what runs once, bounds the whole. */
#include <string.h>

#include "planner/bound/bound.h"
#include "planner/micro/micro_impl.h"
#include "planner/schedule/batches.h"

enum {
    POOL = 48,            /* schedules of one micro-batch that are remembered */
    OFFERED = 6,          /* candidates of one call that are put together and measured */
    CORRECTIONS = 2,      /* of the limit, for one value of `held` */
    REFINED = 2,          /* times the grid is halved around the best */
    PROJECTED = 4,        /* schedules of the whole that are known, of which those of one are taken */
    MIXED_RUNS = 1 << 28, /* entries that mixing measures at most */
};

static const double held_share[] = {1, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1};
static const double low_share[] = {0, 0.35, 0.7, 1};
enum { SHARES = sizeof held_share / sizeof *held_share, LOWS = sizeof low_share / sizeof *low_share };

/* A schedule of one micro-batch. */
typedef struct part {
    ckpt_sequence sequence;
    ckpt_ns time;
    ckpt_bytes peak, held;
} part;

typedef struct micro {
    ckpt_micro *m;
    ckpt_bytes limit, roof; /* roof: more than any schedule of one needs */
    const ckpt_plan_options *options;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    ckpt_order order;
    const ckpt_sequence **chosen; /* per micro-batch */
    int *at;
    part pool[POOL];
    int pool_count;
    const part *best; /* of which all of `candidates`'s fastest is made; NULL: none is within the limit */
    ckpt_ns best_ns;
    ckpt_bytes extra;
} micro;

/* ---- schedules of one ---- */

/* Peak without holds, and what is live at the fullest of them. */
static ckpt_code measure(micro *x, const ckpt_sequence *sequence, part *made, ckpt_err *err)
{
    *made = (part){.sequence = *sequence};
    ckpt_micro_hold(x->m, 0);
    CKPT_TRY(ckpt_sequence_measure(&x->m->one, sequence, x->out, &made->peak, &made->time, err));
    if (x->m->holds > 0) {
        ckpt_micro_hold(x->m, x->roof);
        CKPT_TRY(ckpt_sequence_measure(&x->m->one, sequence, x->out, &made->held, &made->time, err));
        made->held -= x->roof;
    }
    return CKPT_OK;
}

static bool as_good(const part *a, const part *b)
{
    return a->time <= b->time && a->peak <= b->peak && a->held <= b->held;
}

/* Into the pool, unless something there is as good; what it makes needless goes. NULL: not taken. */
static const part *remember(micro *x, const part *made)
{
    int kept = 0;
    for (int i = 0; i < x->pool_count; i++) {
        if (as_good(&x->pool[i], made)) {
            return NULL;
        }
    }
    const bool full = x->pool_count == POOL;
    for (int i = 0; full && i < x->pool_count; i++) { /* only then: `best` points into it */
        if (!as_good(made, &x->pool[i]) || &x->pool[i] == x->best) {
            x->best = &x->pool[i] == x->best ? &x->pool[kept] : x->best;
            x->pool[kept++] = x->pool[i];
        }
    }
    x->pool_count = full ? kept : x->pool_count;
    if (x->pool_count == POOL) {
        return NULL;
    }
    x->pool[x->pool_count] = *made;
    return &x->pool[x->pool_count++];
}

/* Plan one micro-batch by auto, from all that is known. */
static ckpt_code plan_one(micro *x, ckpt_bytes limit, ckpt_bytes hold, int effort, ckpt_candidates *candidates,
                          ckpt_err *err)
{
    ckpt_plan_options options = *x->options;
    ckpt_candidate known[POOL];
    ckpt_micro_hold(x->m, hold);
    for (int i = 0; i < x->pool_count; i++) {
        const part *const p = &x->pool[i];
        const ckpt_bytes held = x->m->holds > 0 ? p->held + hold : 0;
        known[i] = (ckpt_candidate){p->sequence, p->peak > held ? p->peak : held, p->time, NULL};
    }
    options.effort = effort;
    options.low_memo = NULL; /* that is of the whole */
    options.no_min_peak = limit > 0;
    options.incumbent = known;
    options.incumbent_count = x->pool_count;
    *candidates = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_strategy *const planner = ckpt_strategy_find("auto");
    CKPT_TRY_WHILE(err, planner->plan(&x->m->one, limit, &options, x->out, candidates, err),
                   "planning one micro-batch");
    return CKPT_OK;
}

/* ---- schedules of the whole ---- */

/* All micro-batches by one schedule. `least`: it does not depend on the limit. */
static ckpt_code offer(micro *x, const part *p, bool least, ckpt_candidate *measured, ckpt_err *err)
{
    for (int j = 0; j < x->m->batches; j++) {
        x->chosen[j] = &p->sequence;
    }
    ckpt_micro_compose(x->m, x->chosen, x->at, &x->order);
    CKPT_TRY(ckpt_order_measure(&x->order, x->m->whole, x->out, measured, err));
    x->extra = measured->peak - p->peak - x->m->in_flight * p->held;
    if (measured->peak <= x->limit && (x->best == NULL || measured->time < x->best_ns)) {
        x->best = p;
        x->best_ns = measured->time;
    }
    return least ? ckpt_order_end(&x->order, x->m->whole, x->limit, x->out, x->candidates, err)
                 : ckpt_order_offer(&x->order, x->m->whole, x->limit, x->out, x->candidates, err);
}

/* Remember and offer candidates of one micro-batch. `over`: by how much the fastest of them was beyond the limit;
 * negative: so much was left. `fastest`: its time, of the whole. */
static ckpt_code offer_candidates(micro *x, const ckpt_candidates *candidates, ckpt_bytes *over, ckpt_ns *fastest,
                                  ckpt_err *err)
{
    for (int i = 0; i < candidates->count && i < OFFERED; i++) {
        part made;
        CKPT_TRY(measure(x, &candidates->candidate[i].sequence, &made, err));
        (void)remember(x, &made);
        ckpt_candidate measured;
        const part *const best = x->best;
        CKPT_TRY(offer(x, &made, false, &measured, err));
        if (x->best == &made) { /* what stays must be in the pool */
            x->best = best;
            for (int k = 0; k < x->pool_count; k++) {
                x->best = as_good(&x->pool[k], &made) ? &x->pool[k] : x->best;
            }
        }
        *over = i == 0 ? measured.peak - x->limit : *over;
        *fastest = i == 0 ? measured.time : *fastest;
    }
    return CKPT_OK;
}

/* Plan with `held` bytes at the holds. Gives the time of the best schedule that was found with it; INT64_MAX: none. */
static ckpt_code try_held(micro *x, ckpt_bytes held, int effort, ckpt_ns *time, ckpt_err *err)
{
    const int w = x->m->in_flight;
    ckpt_candidates *const candidates = CKPT_NEW(x->out, ckpt_candidates, 1);
    if (candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates for a micro-batch");
    }
    ckpt_bytes limit = x->limit - x->extra - w * held;
    *time = INT64_MAX;
    for (int round = 0; round < CORRECTIONS && limit >= held && !ckpt_plan_stopped(x->options); round++) {
        ckpt_bytes over = 0;
        CKPT_TRY(plan_one(x, limit, limit - held, effort, candidates, err));
        ckpt_ns fastest = INT64_MAX;
        CKPT_TRY(offer_candidates(x, candidates, &over, &fastest, err));
        const bool slower = over > 0 && x->best != NULL && fastest >= x->best_ns; /* with less still more so */
        if (candidates->count == 0 || slower || (over <= 0 && -over <= x->limit / 256)) {
            break;
        }
        limit -= over > 0 ? over : over + x->limit / 512;
    }
    *time = x->best != NULL ? x->best_ns : INT64_MAX;
    return CKPT_OK;
}

/* How much can be held when the peak of one is no higher: 1 share. */
static ckpt_bytes held_of(const micro *x, double share)
{
    const ckpt_bytes room = x->limit - x->extra;
    const ckpt_bytes most = room > 0 ? room / (x->m->in_flight + 1) : 0;
    return (ckpt_bytes)((double)most * share);
}

/* Of a micro-batch, per op and per buffer of the whole: which of `one` it is; -1: none. */
typedef struct twins {
    int *op, *buffer;
} twins;

/* What a schedule of the whole does in a micro-batch, as a schedule of one: a hold stands before the next first run. */
static void project(micro *x, const ckpt_sequence *whole, const twins *twin)
{
    int next = 0; /* the op of `one` whose first run is next */
    x->order.count = 0;
    for (int i = 0; i < whole->count; i++) {
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(whole->op[i], &target);
        const int t = kind == CKPT_RUN ? twin->op[target] : -1;
        while (t >= next && x->m->copy[next] < 0) {
            ckpt_order_add(&x->order, next++);
        }
        next += t == next;
        if (t >= 0) {
            ckpt_order_add(&x->order, t);
        } else if (kind != CKPT_RUN && twin->buffer[target] >= 0) {
            ckpt_order_add(&x->order, ckpt_sequence_copy(kind, twin->buffer[target]));
        }
    }
}

/* What schedules of the whole that are known do in micro-batch j. */
static ckpt_code take_from(micro *x, int j, const twins *twin, ckpt_err *err)
{
    const int ops = x->m->one.op_count;
    const int buffers = x->m->one.buffer_count;
    const int *const copy = &x->m->copy[(size_t)j * (size_t)ops];
    const int *const copy_buffer = &x->m->copy_buffer[(size_t)j * (size_t)buffers];
    memset(twin->op, -1, (size_t)x->m->whole->op_count * sizeof *twin->op);
    memset(twin->buffer, -1, (size_t)x->m->whole->buffer_count * sizeof *twin->buffer);
    for (int t = 0; t < ops; t++) {
        if (copy[t] >= 0) {
            twin->op[copy[t]] = t;
        }
    }
    for (int b = 0; b < buffers; b++) {
        twin->buffer[copy_buffer[b]] = b;
    }
    for (int i = 0; i < x->options->incumbent_count && i < PROJECTED; i++) {
        ckpt_candidates one = {.count = 0};
        project(x, &x->options->incumbent[i].sequence, twin);
        CKPT_TRY(ckpt_order_offer(&x->order, &x->m->one, CKPT_BYTES_MAX, x->out, &one, err));
        ckpt_bytes over = 0;
        ckpt_ns fastest = 0;
        CKPT_TRY(offer_candidates(x, &one, &over, &fastest, err));
    }
    return CKPT_OK;
}

/* Begin with what is known: in the middle, and where there is more room. */
static ckpt_code take_known(micro *x, ckpt_err *err)
{
    const twins twin = {CKPT_NEW(x->out, int, x->m->whole->op_count), CKPT_NEW(x->out, int, x->m->whole->buffer_count)};
    if (twin.op == NULL || twin.buffer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ops of a micro-batch");
    }
    CKPT_TRY(take_from(x, x->m->batches / 2, &twin, err));
    CKPT_TRY(x->options->no_min_peak ? take_from(x, 0, &twin, err) : CKPT_OK);
    return x->options->no_min_peak ? take_from(x, x->m->batches - 1, &twin, err) : CKPT_OK;
}

typedef struct held_search {
    double best; /* share */
    ckpt_ns time;
} held_search;

static ckpt_code try_share(micro *x, double share, int effort, held_search *to, ckpt_err *err)
{
    ckpt_ns time = INT64_MAX;
    CKPT_TRY(share > 0 && share <= 1 ? try_held(x, held_of(x, share), effort, &time, err) : CKPT_OK);
    if (time < to->time) {
        *to = (held_search){share, time};
    }
    return CKPT_OK;
}

/* Along the grid. */
static ckpt_code try_grid(micro *x, int effort, held_search *found, ckpt_err *err)
{
    for (int i = 0; i < SHARES; i++) {
        CKPT_TRY(try_share(x, held_share[i], effort, found, err));
    }
    return CKPT_OK;
}

/* Beside what a known schedule holds, or else along the grid; then between beside the best. Asked again, at a limit
 * that is a little lower, the known one is near enough. */
static ckpt_code look_for_held(micro *x, ckpt_err *err)
{
    const int effort = ckpt_effort(x->options);
    const int rough = effort > CKPT_EFFORT_LOW ? effort - 1 : effort;
    held_search found = {.best = 1, .time = INT64_MAX};
    const ckpt_bytes most = held_of(x, 1);
    const bool recomputed = x->options->no_min_peak && x->pool_count > 0;
    const part *const known = x->best != NULL ? x->best : recomputed ? &x->pool[0] : NULL;
    if (known != NULL && most > 0) {
        const double share = (double)known->held / (double)most;
        found = (held_search){share < 1 ? share : 1, x->best != NULL ? x->best_ns : INT64_MAX};
        CKPT_TRY(try_share(x, found.best, rough, &found, err));
    } else {
        CKPT_TRY(try_grid(x, rough, &found, err));
    }
    double step = 0.1;
    for (int i = 0; i < (recomputed ? 1 : REFINED); i++) {
        const double middle = found.best;
        CKPT_TRY(try_share(x, middle - step, rough, &found, err));
        CKPT_TRY(try_share(x, middle + step, rough, &found, err));
        step /= 2;
    }
    CKPT_TRY(recomputed && x->best == NULL ? try_grid(x, rough, &found, err) : CKPT_OK);
    return effort > rough ? try_share(x, found.best, effort, &found, err) : CKPT_OK;
}

/* The lowest peaks, the same whatever the limit is: of one, and of what it holds, and in between. */
static ckpt_code find_min_peak(micro *x, ckpt_err *err)
{
    ckpt_bytes lowest = 0;
    ckpt_candidates *const candidates = CKPT_NEW(x->out, ckpt_candidates, 1);
    if (candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates for a micro-batch");
    }
    x->pool_count = 0;
    for (int i = 0; i < LOWS && (i == 0 || x->m->in_flight > 0); i++) {
        CKPT_TRY(plan_one(x, 0, (ckpt_bytes)((double)lowest * low_share[i]), CKPT_EFFORT_LOW, candidates, err));
        if (candidates->min_peak.sequence.op == NULL) {
            continue;
        }
        part made;
        ckpt_candidate measured;
        CKPT_TRY(measure(x, &candidates->min_peak.sequence, &made, err));
        lowest = i == 0 ? made.peak : lowest;
        const part *const kept = remember(x, &made);
        CKPT_TRY(kept != NULL ? offer(x, kept, true, &measured, err) : CKPT_OK);
    }
    return CKPT_OK;
}

/* ---- each its own ---- */

/* The first and the last have more room: schedules of one that may take up to all of the limit, to mix from. */
static ckpt_code plan_wider(micro *x, ckpt_err *err)
{
    ckpt_candidates *const candidates = CKPT_NEW(x->out, ckpt_candidates, 1);
    if (candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates for a micro-batch");
    }
    for (int quarter = 1; quarter <= 4 && x->best->peak < x->limit && !ckpt_plan_stopped(x->options); quarter++) {
        const ckpt_bytes limit = x->best->peak + (x->limit - x->best->peak) / 4 * quarter;
        CKPT_TRY(plan_one(x, limit, 0, CKPT_EFFORT_LOW, candidates, err));
        for (int i = 0; i < candidates->count && i < OFFERED; i++) {
            part made;
            CKPT_TRY(measure(x, &candidates->candidate[i].sequence, &made, err));
            (void)remember(x, &made);
        }
    }
    return CKPT_OK;
}

/* Of the pool the fastest that leaves the whole within the limit, for micro-batches from .. to - 1. */
static ckpt_code choose_for(micro *x, const part **by_time, int from, int to, ckpt_bytes *left, ckpt_err *err)
{
    const ckpt_sequence *const before = x->chosen[from];
    for (int i = 0; i < x->pool_count && &by_time[i]->sequence != before; i++) {
        for (int j = from; j < to; j++) {
            x->chosen[j] = &by_time[i]->sequence;
        }
        ckpt_candidate measured;
        ckpt_micro_compose(x->m, x->chosen, x->at, &x->order);
        *left -= x->order.count;
        CKPT_TRY(ckpt_order_measure(&x->order, x->m->whole, x->out, &measured, err));
        if (measured.peak <= x->limit || *left < 0) {
            break;
        }
        for (int j = from; j < to; j++) {
            x->chosen[j] = before;
        }
    }
    return CKPT_OK;
}

static ckpt_code mix(micro *x, ckpt_err *err)
{
    const part *by_time[POOL];
    ckpt_bytes left = MIXED_RUNS;
    for (int i = 0; i < x->pool_count; i++) {
        int k = i;
        for (; k > 0 && by_time[k - 1]->time > x->pool[i].time; k--) {
            by_time[k] = by_time[k - 1];
        }
        by_time[k] = &x->pool[i];
    }
    for (int j = 0; j < x->m->batches; j++) {
        x->chosen[j] = &x->best->sequence;
    }
    /* The last first: nothing follows them. Those in the middle have the same beside them, and are done together. */
    const int edge = x->m->in_flight + 1;
    const int middle = x->m->batches - 2 * edge;
    for (int j = x->m->batches - 1; j >= 0 && left > 0 && !ckpt_plan_stopped(x->options);) {
        const int from = middle > 1 && j == x->m->batches - edge - 1 ? edge : j;
        CKPT_TRY(choose_for(x, by_time, from, j + 1, &left, err));
        j = from - 1;
    }
    ckpt_micro_compose(x->m, x->chosen, x->at, &x->order);
    return ckpt_order_offer(&x->order, x->m->whole, x->limit, x->out, x->candidates, err);
}

/* ---- what none can beat ---- */

/* With the least time and workspace of each op over all micro-batches. A copy of one may lie behind runs of another, so
 * with a link times do not add up. */
static ckpt_code bound(micro *x, ckpt_err *err)
{
    ckpt_micro *const m = x->m;
    ckpt_bound found;
    if (m->whole->has_link) {
        return CKPT_OK;
    }
    ckpt_graph_op *const op = CKPT_NEW(x->out, ckpt_graph_op, m->one.op_count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a micro-batch of %d ops", m->one.op_count);
    }
    ckpt_graph least = m->one;
    memcpy(op, m->op, (size_t)m->one.op_count * sizeof *op);
    for (int t = 0; t < m->one.op_count; t++) {
        op[t].time_ns = m->least_ns[t];
        op[t].workspace_bytes = m->least_workspace[t];
    }
    least.op = op;
    const ckpt_ns upper = x->best != NULL ? x->best->time : INT64_MAX;
    CKPT_TRY(ckpt_bound_find(&least, x->limit, upper, x->options, x->out, &found, err));
    ckpt_ns time = 0;
    if (strcmp(found.scope, "all") == 0 && ckpt_product(found.time_ns, m->batches, &time) &&
        ckpt_sum(time, m->rest_ns, &time)) {
        ckpt_candidates_bound(x->candidates, time, found.how, found.scope);
    }
    return CKPT_OK;
}

/* ---- */

static ckpt_code plan_micro(micro *x, ckpt_err *err)
{
    const ckpt_graph *const one = &x->m->one;
    x->roof = 1;
    for (int b = 0; b < one->buffer_count; b++) {
        x->roof += one->buffer[b].bytes;
    }
    for (int t = 0; t < one->op_count; t++) {
        x->roof += one->op[t].workspace_bytes;
    }
    x->chosen = CKPT_NEW(x->out, const ckpt_sequence *, x->m->batches);
    x->at = CKPT_NEW(x->out, int, 2 * (size_t)x->m->batches);
    if (x->chosen == NULL || x->at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "schedules of %d micro-batches", x->m->batches);
    }
    CKPT_TRY(x->options->no_min_peak ? CKPT_OK : find_min_peak(x, err));
    if (!x->options->no_min_peak && x->limit < x->candidates->min_peak.peak) {
        return bound(x, err);
    }
    CKPT_TRY(take_known(x, err));
    if (x->m->in_flight > 0) {
        CKPT_TRY(look_for_held(x, err));
    } else {
        ckpt_ns time = 0;
        CKPT_TRY(try_held(x, 0, ckpt_effort(x->options), &time, err));
    }
    CKPT_TRY(bound(x, err));
    if (x->best == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(x->options->no_min_peak ? CKPT_OK : plan_wider(x, err)); /* asked again it is known what is faster */
    return mix(x, err);
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    micro *const x = CKPT_NEW(out, micro, 1);
    if (x == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "planning micro-batches");
    }
    *x = (micro){.limit = limit, .options = options, .out = out, .candidates = candidates};
    ckpt_order_init(&x->order);
    ckpt_order_range(&x->order, 0, graph->op_count);
    ckpt_code code = ckpt_order_end(&x->order, graph, limit, out, candidates, err);
    if (code == CKPT_OK && candidates->count == 0) {
        code = ckpt_micro_find(graph, out, &x->m, err);
        code = code == CKPT_OK && x->m != NULL ? plan_micro(x, err) : code;
    }
    ckpt_order_fini(&x->order);
    return code;
}

const ckpt_strategy ckpt_strategy_micro = {
    .name = "micro",
    .help = "one micro-batch is planned, with room for those in flight beside it, and the step is made of copies",
    .source = "own; the order is 1F1B: Narayanan et al.: PipeDream, SOSP 2019",
    .budgeted = true,
    .plan = plan,
};
