/* Schedules with copies, from starts without any: sequences made for larger limits, whose excess then leaves by copies.
 *
 * A sequence for a limit between ours and keep-all's peak recomputes what is cheapest to recompute; the rest of the
 * excess is small enough for the link. Which limit is best nobody knows, so a ladder of them is tried. */
#include "planner/offload/offload.h"

#include <string.h>

#include "planner/offload/offload_impl.h"
#include "planner/search/search.h"

enum {
    LOWER = 7,  /* candidates below the limit, in case allocations take more than what is live */
    TINY = 100, /* ops; what is smaller is not searched longer */
    SMALL = 40, /* ops of a graph that is searched in rounds */
    ROUNDS = 8,
    HALVINGS = 24, /* of the limits between which the least with a limit of the host is looked for */
};

typedef struct improver {
    ckpt_offload_search s;
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    ckpt_bytes limit;
    ckpt_arena scratch;
    ckpt_order order;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    int effort;
    int64_t lower_tries, polish;
    ckpt_bytes floor; /* live bytes with everything marked away */
} improver;

static int effort_of(const ckpt_plan_options *options)
{
    const int effort = options->effort;
    return effort < CKPT_EFFORT_LOW ? CKPT_EFFORT_LOW : effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST : effort;
}

int64_t ckpt_offload_tries(const ckpt_graph *graph, const ckpt_plan_options *options)
{
    /* of 500 ops; larger graphs take longer for each */
    static const int64_t tries[] = {100, 600, 8000, 60000};
    const int64_t fair = tries[effort_of(options)] * 500 / (graph->op_count > TINY ? graph->op_count : TINY);
    return fair > 20 ? fair : 20;
}

/* Lay `m` out for `limit`, polish it with so many tries, and offer it. */
static ckpt_code offer(improver *w, const ckpt_marked *m, ckpt_bytes limit, bool any_limit, int64_t polish,
                       ckpt_err *err)
{
    ckpt_offload *const o = &w->s.look;
    o->limit = limit;
    o->order = &w->order;
    w->order.count = 0;
    const bool fine = ckpt_offload_look(o, m) && o->peak <= limit && ckpt_offload_lay(o, m);
    o->order = NULL;
    o->limit = w->limit;
    if (!fine) {
        w->order.count = 0;
        return CKPT_OK;
    }
    if (polish > 0 && !w->order.failed) {
        ckpt_ns time = 0;
        o->limit = limit;
        CKPT_TRY(ckpt_offload_polish(o, w->order.op, w->order.count, polish, w->options, &w->scratch, &time, err));
        o->limit = w->limit;
    }
    return any_limit ? ckpt_order_end(&w->order, w->graph, w->limit, w->out, w->candidates, err)
                     : ckpt_order_offer(&w->order, w->graph, w->limit, w->out, w->candidates, err);
}

/* Reference order, everything marked or nothing. */
static void keep_all(const improver *w, ckpt_marked *m, uint64_t leaves)
{
    m->count = w->graph->op_count;
    m->lead_ns = 0;
    for (int o = 0; o < m->count; o++) {
        m->run[o] = (ckpt_marked_run){o, leaves, 0};
    }
}

/* The lowest limit at which copies alone do: what is live with everything marked away; above that when the host cannot
 * hold it. */
static ckpt_code find_min_peak(improver *w, ckpt_err *err)
{
    ckpt_offload_search *const s = &w->s;
    keep_all(w, &s->tried, 0);
    if (!ckpt_offload_look(&s->look, &s->tried)) {
        return CKPT_OK;
    }
    ckpt_bytes high = s->look.peak;
    keep_all(w, &s->best, UINT64_MAX);
    if (!ckpt_offload_look(&s->look, &s->best)) {
        return CKPT_OK;
    }
    ckpt_bytes low = s->look.peak;
    w->floor = low;
    s->look.limit = low;
    if (!ckpt_offload_lay(&s->look, &s->best)) {
        keep_all(w, &s->best, 0);
        for (int i = 0; i < HALVINGS && low < high; i++) {
            s->look.limit = low + (high - low) / 2;
            keep_all(w, &s->tried, 0);
            if (ckpt_offload_search_fit(s) < INT64_MAX) {
                high = s->look.limit;
                ckpt_marked_copy(&s->best, &s->tried);
            } else {
                low = s->look.limit + 1;
            }
        }
        low = high;
    }
    s->look.limit = w->limit;
    CKPT_TRY(offer(w, &s->best, low, true, 0, err));
    s->best_ns = INT64_MAX;
    return CKPT_OK;
}

/* The sequences of more candidates, as starts. */
static void offer_starts(improver *w, const ckpt_candidates *candidates)
{
    for (int i = 0; i < candidates->count; i++) {
        ckpt_offload_search_offer(&w->s, &candidates->candidate[i].sequence);
    }
    if (candidates->min_peak.sequence.op != NULL) {
        ckpt_offload_search_offer(&w->s, &candidates->min_peak.sequence);
    }
}

/* Sequences without copies for limits between ours and keep-all's peak. */
static ckpt_code climb(improver *w, ckpt_err *err)
{
    static const int rungs[] = {0, 0, 3, 7};
    static const int64_t moves[] = {4000, 60000, 400000, 2000000};
    const ckpt_strategy *const chain = ckpt_strategy_find("chain");
    const int count = rungs[w->effort];
    const int64_t fair = moves[w->effort] * 500 / (w->graph->op_count > 500 ? w->graph->op_count : 500);
    ckpt_plan_options options = *w->options;
    options.effort = CKPT_EFFORT_LOW;
    keep_all(w, &w->s.tried, 0);
    if (!ckpt_offload_look(&w->s.look, &w->s.tried) || w->s.look.peak <= w->limit) {
        return CKPT_OK;
    }
    const ckpt_bytes span = w->s.look.peak - w->limit;
    for (int r = 0; r < count && !ckpt_plan_stopped(w->options); r++) {
        const ckpt_mark mark = ckpt_arena_mark(&w->scratch);
        ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        const ckpt_bytes limit = w->limit + span / (count + 1) * (r + 1);
        CKPT_TRY(chain->plan(w->graph, limit, &options, &w->scratch, &candidates, err));
        CKPT_TRY(ckpt_search_improve(w->graph, limit, fair, w->options, &w->scratch, &candidates, err));
        offer_starts(w, &candidates);
        ckpt_arena_rewind(&w->scratch, mark);
    }
    return CKPT_OK;
}

/* The best there is, and what becomes of it at lower limits. */
static ckpt_code offer_best(improver *w, ckpt_err *err)
{
    static const int permille[LOWER] = {5, 10, 20, 40, 80, 120, 200};
    ckpt_offload_search *const s = &w->s;
    if (s->best_ns == INT64_MAX) {
        return CKPT_OK;
    }
    CKPT_TRY(offer(w, &s->best, w->limit, false, w->polish, err));
    for (int i = 0; i < LOWER; i++) {
        const ckpt_bytes limit = w->limit - w->limit / 1000 * permille[i];
        ckpt_marked_copy(&s->tried, &s->best);
        s->look.limit = limit;
        s->now_ns = s->best_ns = INT64_MAX;
        s->tries = w->lower_tries;
        ckpt_offload_search_begin(s);
        ckpt_offload_search_run(s, s->tries);
        if (s->best_ns < INT64_MAX) {
            CKPT_TRY(offer(w, &s->best, limit, false, w->polish / 10, err));
        }
        s->look.limit = w->limit;
    }
    return CKPT_OK;
}

/* Small graphs have tries to spare: several searches from the same start, each polished, as the best marks before
 * polishing need not be the best after it. `best` is that of all. */
static ckpt_code search_rounds(improver *w, ckpt_err *err)
{
    ckpt_offload_search *const s = &w->s;
    const int rounds = w->graph->op_count <= SMALL ? ROUNDS : 1;
    const int64_t each = s->tries / rounds;
    ckpt_marked start = {.run = CKPT_NEW(&w->scratch, ckpt_marked_run, s->look.runs_room)};
    ckpt_marked all = {.run = CKPT_NEW(&w->scratch, ckpt_marked_run, s->look.runs_room)};
    if (start.run == NULL || all.run == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "offload search of %d runs", s->look.runs_room);
    }
    if (s->best_ns == INT64_MAX) {
        return CKPT_OK;
    }
    const ckpt_ns start_ns = s->best_ns;
    ckpt_ns all_ns = s->best_ns;
    ckpt_marked_copy(&start, &s->best);
    ckpt_marked_copy(&all, &s->best);
    for (int r = 0; r < rounds; r++) {
        ckpt_marked_copy(&s->now, &start);
        ckpt_marked_copy(&s->best, &start);
        s->now_ns = s->best_ns = start_ns;
        ckpt_offload_search_run(s, each);
        if (s->best_ns < all_ns) {
            all_ns = s->best_ns;
            ckpt_marked_copy(&all, &s->best);
        }
        if (rounds > 1) {
            CKPT_TRY(offer(w, &s->best, w->limit, false, w->polish / rounds, err));
        }
    }
    ckpt_marked_copy(&s->best, &all);
    s->best_ns = all_ns;
    return CKPT_OK;
}

/* Small graphs: all schedules, for one that is faster than what is known. */
static ckpt_code search_all(improver *w, ckpt_err *err)
{
    static const int nodes[] = {30000, 60000, 200000, 400000};
    const ckpt_ns below = w->candidates->count > 0 ? w->candidates->candidate[0].time : INT64_MAX;
    w->s.look.limit = w->limit;
    if (below <= w->s.least_ns || ckpt_plan_stopped(w->options)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_offload_exact(&w->s.look, below, nodes[w->effort], &w->scratch, &w->order, err));
    return w->order.count > 0 ? ckpt_order_offer(&w->order, w->graph, w->limit, w->out, w->candidates, err) : CKPT_OK;
}

static ckpt_code improve(improver *w, ckpt_offload_mode mode, int64_t tries, ckpt_err *err)
{
    const ckpt_graph *const graph = w->graph;
    int64_t uses = 0;
    for (int o = 0; o < graph->op_count; o++) {
        uses += (int64_t)graph->op[o].reads.count + graph->op[o].writes.count + graph->op[o].adds.count;
    }
    if (graph->op_count > 1 << 24 || uses > 1 << 26) {
        return CKPT_OK;
    }
    ckpt_offload_search *const s = &w->s;
    CKPT_TRY(ckpt_offload_search_start(s, 4 * graph->op_count + 64, (int)(4 * uses) + 256, &w->scratch, err));
    s->options = w->options;
    s->tries = tries;
    if (mode != CKPT_OFFLOAD_RECOMPUTE) {
        CKPT_TRY(find_min_peak(w, err));
        if (mode == CKPT_OFFLOAD_COPIES && w->floor > w->limit) {
            return CKPT_OK; /* copies alone do not get there */
        }
    }
    keep_all(w, &s->tried, 0);
    ckpt_offload_search_begin(s);
    if (mode == CKPT_OFFLOAD_JOINT) { /* copies alone first: from there it is often not far */
        s->look.mode = CKPT_OFFLOAD_COPIES;
        ckpt_offload_search_run(s, tries / 3);
        s->look.mode = mode;
    }
    if (mode != CKPT_OFFLOAD_COPIES && s->best_ns > s->least_ns) {
        offer_starts(w, w->candidates);
        if (mode == CKPT_OFFLOAD_JOINT) {
            CKPT_TRY(climb(w, err));
        }
    }
    CKPT_TRY(search_rounds(w, err));
    CKPT_TRY(offer_best(w, err));
    return search_all(w, err);
}

ckpt_code ckpt_offload_improve(const ckpt_graph *graph, ckpt_bytes limit, ckpt_offload_mode mode, int64_t tries,
                               const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                               ckpt_err *err)
{
    if (!graph->has_link && mode != CKPT_OFFLOAD_RECOMPUTE) {
        return CKPT_OK;
    }
    improver w = {
        .s = {.look = {.graph = graph,
                       .limit = limit,
                       .host_limit = options->host_bytes > 0 ? options->host_bytes : CKPT_BYTES_MAX,
                       .mode = mode}},
        .graph = graph,
        .options = options,
        .limit = limit,
        .out = out,
        .candidates = candidates,
        .effort = effort_of(options),
        .lower_tries = tries / 10,
        .polish = mode == CKPT_OFFLOAD_RECOMPUTE ? 0 : tries,
    };
    ckpt_arena_init(&w.scratch);
    ckpt_order_init(&w.order);
    const ckpt_code code = improve(&w, mode, tries, err);
    ckpt_order_fini(&w.order);
    ckpt_arena_fini(&w.scratch);
    return code;
}
