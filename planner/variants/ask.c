/* Strategies on graphs with variants. One that knows no variants is asked for selections. What a byte of memory is worth
 * depends on the budget and is not known before planning, so there is a selection for each of several prices, and one for
 * each incumbent. One that knows them is asked without and with. */
#include <string.h>

#include "planner/replay/replay.h"
#include "planner/schedule/schedule.h"
#include "planner/variants/variants.h"

enum { PRICES = 2, OF_INCUMBENTS = 2 };

/* In times of the step that all of the peak costs when it is kept through the whole step. */
static const double PRICE[PRICES] = {0.1, 1};

typedef struct asker {
    const ckpt_strategy *strategy;
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    int *way[1 + PRICES + OF_INCUMBENTS]; /* the selections asked for so far */
    int way_count;
} asker;

static bool writes(const ckpt_graph *graph, int run, int b)
{
    return run >= 0 && ckpt_list_has(&graph->op[run].writes, b);
}

/* A run of the sequence that writes b; -1: there is none. */
static int find_writer(const ckpt_graph *graph, const ckpt_sequence *sequence, int b)
{
    for (int t = 0; t < sequence->count; t++) {
        const int run = sequence->op[t];
        if (run >= 0 && ckpt_run_base(graph, run) == graph->writer[b] && writes(graph, run, b)) {
            return run;
        }
    }
    return -1;
}

/* The ways of a sequence's first runs; of an op whose first run leaves out what the others read, of one that writes it.
 * false: together they are no selection. */
static bool ways_of(const ckpt_graph *graph, const ckpt_sequence *sequence, int *way)
{
    for (int o = 0; o < graph->op_count; o++) {
        way[o] = -1;
    }
    for (int t = sequence->count - 1; t >= 0; t--) {
        if (sequence->op[t] >= 0) {
            way[ckpt_run_base(graph, sequence->op[t])] = sequence->op[t];
        }
    }
    bool whole = true;
    for (int pass = 0; pass < 2; pass++) {
        whole = true;
        for (int o = graph->op_count - 1; o >= 0; o--) {
            for (int i = 0; way[o] >= 0 && i < graph->op[way[o]].reads.count; i++) {
                const int b = graph->op[way[o]].reads.at[i];
                int *const writer = &way[graph->writer[b]];
                if (!writes(graph, *writer, b)) {
                    *writer = pass == 0 ? find_writer(graph, sequence, b) : *writer;
                    whole = false;
                }
            }
        }
    }
    return whole;
}

/* The incumbents that use selected ways only, as candidates for the selected graph. */
static ckpt_code lower(const asker *a, const ckpt_selection *selection, const int *way, ckpt_candidate *lowered,
                       int *count, ckpt_err *err)
{
    const ckpt_graph *const graph = a->graph;
    int *const op = CKPT_NEW(a->out, int, graph->op_count);
    int *const buffer = CKPT_NEW(a->out, int, graph->buffer_count);
    if (op == NULL || buffer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "incumbents for selected ways");
    }
    for (int o = 0; o < selection->graph->op_count; o++) {
        op[ckpt_run_base(graph, selection->run[o])] = o;
    }
    for (int b = 0; b < selection->graph->buffer_count; b++) {
        buffer[selection->buffer[b]] = b;
    }
    *count = 0;
    for (int i = 0; i < a->options->incumbent_count; i++) {
        const ckpt_candidate *const from = &a->options->incumbent[i];
        int *const entry = CKPT_NEW(a->out, int, from->sequence.count);
        if (entry == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "incumbents for selected ways");
        }
        bool same = true;
        for (int t = 0; t < from->sequence.count && same; t++) {
            int target = 0;
            const ckpt_step_kind kind = ckpt_sequence_kind(from->sequence.op[t], &target);
            const int base = kind == CKPT_RUN ? ckpt_run_base(graph, target) : -1;
            same = kind != CKPT_RUN || way[base] == target;
            entry[t] = kind == CKPT_RUN ? op[base] : ckpt_sequence_copy(kind, buffer[target]);
        }
        if (same) {
            lowered[*count] = *from;
            lowered[(*count)++].sequence.op = entry;
        }
    }
    return CKPT_OK;
}

/* What is tried where allocations take more than what is live. */
static void add_others(ckpt_candidates *to, const ckpt_candidates *from)
{
    for (int i = 0; i < from->fallback_count && to->fallback_count < CKPT_FALLBACKS_MAX; i++) {
        to->fallback[to->fallback_count++] = from->fallback[i];
    }
    for (int i = 0; i < from->low_count && to->low_count < CKPT_LOW_MAX; i++) {
        to->low[to->low_count++] = from->low[i];
    }
}

static ckpt_code ask_selected(asker *a, const int *way, ckpt_arena *work, ckpt_err *err)
{
    ckpt_selection selection;
    CKPT_TRY(ckpt_selection_make(a->graph, way, work, &selection, err));
    ckpt_candidate *const known = CKPT_NEW(a->out, ckpt_candidate, a->options->incumbent_count);
    ckpt_candidates *const part = CKPT_NEW(a->out, ckpt_candidates, 1);
    if (known == NULL || part == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates for selected ways");
    }
    ckpt_plan_options options = *a->options;
    CKPT_TRY(lower(a, &selection, way, known, &options.incumbent_count, err));
    options.incumbent = known;
    part->min_peak = (ckpt_candidate){.peak = CKPT_BYTES_MAX, .time = INT64_MAX};
    CKPT_TRY(a->strategy->plan(selection.graph, a->limit, &options, a->out, part, err));
    for (int i = 0; i < part->count; i++) {
        CKPT_TRY(ckpt_selection_lift(&selection, a->out, &part->candidate[i], err));
    }
    for (int i = 0; i < part->fallback_count; i++) {
        CKPT_TRY(ckpt_selection_lift(&selection, a->out, &part->fallback[i], err));
    }
    for (int i = 0; i < part->low_count; i++) {
        CKPT_TRY(ckpt_selection_lift(&selection, a->out, &part->low[i], err));
    }
    if (part->min_peak.sequence.op != NULL) {
        CKPT_TRY(ckpt_selection_lift(&selection, a->out, &part->min_peak, err));
    }
    ckpt_candidates_merge(a->candidates, part);
    add_others(a->candidates, part);
    return CKPT_OK;
}

/* The graph of a selection goes once its candidates are lifted: there are several, each as large as the graph. */
static ckpt_code ask(asker *a, const int *way, ckpt_err *err)
{
    ckpt_arena work;
    ckpt_arena_init(&work);
    const ckpt_code code = ask_selected(a, way, &work, err);
    ckpt_arena_fini(&work);
    return code;
}

/* Remember a selection, unless it is one of those before. */
static int *next_way(asker *a, int *way)
{
    for (int i = 0; i < a->way_count; i++) {
        if (memcmp(a->way[i], way, (size_t)a->graph->op_count * sizeof *way) == 0) {
            return NULL;
        }
    }
    a->way[a->way_count++] = way;
    return way;
}

/* As if there were no variants; not again where that is known. */
static ckpt_code ask_own(asker *a, ckpt_err *err)
{
    int *const way = CKPT_NEW(a->out, int, a->graph->op_count);
    if (way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "the ways of %d ops", a->graph->op_count);
    }
    for (int o = 0; o < a->graph->op_count; o++) {
        way[o] = a->graph->op[o].optional ? -1 : o;
    }
    a->way[a->way_count++] = way;
    return a->options->own_ways_known ? CKPT_OK : ask(a, way, err);
}

/* First as if there were no variants; then with them, from what was found, which stays a candidate. */
static ckpt_code ask_twice(asker *a, ckpt_err *err)
{
    ckpt_candidates own = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_candidate *const known = CKPT_NEW(a->out, ckpt_candidate, CKPT_CANDIDATES_MAX + 2);
    if (known == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "incumbents without variants");
    }
    asker first = *a;
    first.candidates = &own;
    CKPT_TRY(ask_own(&first, err));
    ckpt_candidates_incumbents(&own, CKPT_BYTES_MAX, a->options);
    int count = 0;
    for (; count < own.count; count++) {
        known[count] = own.candidate[count];
    }
    if (own.min_peak.sequence.op != NULL) {
        known[count++] = own.min_peak;
    }
    ckpt_plan_options options = *a->options;
    options.incumbent = known;
    options.incumbent_count = count;
    options.own_ways_known = true;
    a->candidates->min_peak = own.min_peak;
    CKPT_TRY(a->strategy->plan(a->graph, a->limit, &options, a->out, a->candidates, err));
    for (int i = 0; i < own.count; i++) {
        if (own.candidate[i].peak <= a->limit) {
            ckpt_candidates_add(a->candidates, &own.candidate[i]);
        }
    }
    add_others(a->candidates, &own);
    return CKPT_OK;
}

/* As if there were no inexact variants: what is found with them is another local optimum, and may be slower. */
static ckpt_code ask_exact(asker *a, ckpt_err *err)
{
    const ckpt_graph *exact = NULL;
    ckpt_plan_options options = *a->options;
    options.allow_inexact = false;
    options.incumbent_count = 0;
    CKPT_TRY(ckpt_ways_allowed(a->graph, &options, a->out, &exact, err));
    if (!a->options->allow_inexact || exact == a->graph) {
        return CKPT_OK;
    }
    ckpt_candidates *const part = CKPT_NEW(a->out, ckpt_candidates, 1);
    if (part == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates of exact variants");
    }
    part->min_peak = (ckpt_candidate){.peak = CKPT_BYTES_MAX, .time = INT64_MAX};
    CKPT_TRY(ckpt_variants_ask(a->strategy, exact, a->limit, &options, a->out, part, err));
    ckpt_candidates_merge(a->candidates, part);
    add_others(a->candidates, part);
    return CKPT_OK;
}

ckpt_code ckpt_variants_ask(const ckpt_strategy *strategy, const ckpt_graph *graph, ckpt_bytes limit,
                            const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                            ckpt_err *err)
{
    asker a = {strategy, graph, limit, options, out, candidates, {NULL}, 0};
    if (!ckpt_graph_has_variants(graph)) {
        return strategy->plan(graph, limit, options, out, candidates, err);
    }
    if (strategy->variants) {
        CKPT_TRY(ask_exact(&a, err));
        return ask_twice(&a, err);
    }
    if (strategy->baseline || strategy->flags) {
        return ask_own(&a, err); /* what people choose by hand */
    }
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ask_own(&a, err));
    CKPT_TRY(ckpt_keep_all_measure(graph, out, &peak, &time, err));
    const ckpt_bytes floor = options->only_min_peak ? options->floor_bytes : 0; /* the same at every limit */
    const ckpt_bytes most = floor > 0 ? floor : limit < peak ? limit : peak;
    for (int i = 0; i < PRICES + OF_INCUMBENTS && !(i > 0 && ckpt_plan_stopped(options)); i++) {
        if (i >= PRICES && i - PRICES >= options->incumbent_count) {
            break;
        }
        int *const way = CKPT_NEW(out, int, graph->op_count);
        if (way == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "selection of ways for %d ops", graph->op_count);
        }
        bool whole = true;
        if (i < PRICES) {
            const double price = PRICE[i] * (double)time / ((double)most + 1);
            CKPT_TRY(ckpt_ways_select(graph, limit, price, options, out, way, err));
        } else {
            whole = ways_of(graph, &options->incumbent[i - PRICES].sequence, way);
        }
        if (whole && next_way(&a, way) != NULL) {
            CKPT_TRY(ask(&a, way, err));
        }
    }
    return CKPT_OK;
}
