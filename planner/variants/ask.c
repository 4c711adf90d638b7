/* Strategies that know no variants, on graphs that have some. What a byte of memory is worth depends on the budget and is
 * not known before planning, so there is a selection for each of several prices, and one for each incumbent. */
#include <string.h>

#include "planner/replay/replay.h"
#include "planner/schedule/schedule.h"
#include "planner/variants/variants.h"

enum { PRICES = 4, OF_INCUMBENTS = 2 };

/* In times of the step that all of the peak costs when it is kept through the whole step. */
static const double PRICE[PRICES] = {0, 0.1, 0.5, 2.5};

typedef struct asker {
    const ckpt_strategy *strategy;
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    int *way[PRICES + OF_INCUMBENTS]; /* the selections asked for so far */
    int way_count;
} asker;

/* The ways of a sequence's first runs. */
static void ways_of(const ckpt_graph *graph, const ckpt_sequence *sequence, int *way)
{
    for (int o = 0; o < graph->op_count; o++) {
        way[o] = -1;
    }
    for (int t = sequence->count - 1; t >= 0; t--) {
        if (sequence->op[t] >= 0) {
            way[ckpt_run_base(graph, sequence->op[t])] = sequence->op[t];
        }
    }
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

static ckpt_code ask(asker *a, const int *way, ckpt_err *err)
{
    ckpt_selection selection;
    CKPT_TRY(ckpt_selection_make(a->graph, way, a->out, &selection, err));
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
    if (part->min_peak.sequence.op != NULL) {
        CKPT_TRY(ckpt_selection_lift(&selection, a->out, &part->min_peak, err));
    }
    ckpt_candidates_merge(a->candidates, part);
    for (int i = 0; i < part->fallback_count && a->candidates->fallback_count < CKPT_FALLBACKS_MAX; i++) {
        a->candidates->fallback[a->candidates->fallback_count++] = part->fallback[i];
    }
    return CKPT_OK;
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

ckpt_code ckpt_variants_ask(const ckpt_strategy *strategy, const ckpt_graph *graph, ckpt_bytes limit,
                            const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                            ckpt_err *err)
{
    if (strategy->variants || !ckpt_graph_has_variants(graph)) {
        return strategy->plan(graph, limit, options, out, candidates, err);
    }
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_keep_all_measure(graph, out, &peak, &time, err));
    const ckpt_bytes floor = options->only_min_peak ? options->floor_bytes : 0; /* the same at every limit */
    const ckpt_bytes most = floor > 0 ? floor : limit < peak ? limit : peak;
    asker a = {strategy, graph, limit, options, out, candidates, {NULL}, 0};
    for (int i = 0; i < PRICES + OF_INCUMBENTS && !(i > 0 && ckpt_plan_stopped(options)); i++) {
        if (i >= PRICES && i - PRICES >= options->incumbent_count) {
            break;
        }
        int *const way = CKPT_NEW(out, int, graph->op_count);
        if (way == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "selection of ways for %d ops", graph->op_count);
        }
        if (i < PRICES) {
            const double price = PRICE[i] * (double)time / ((double)most + 1);
            CKPT_TRY(ckpt_ways_select(graph, limit, price, options, out, way, err));
        } else {
            ways_of(graph, &options->incumbent[i - PRICES].sequence, way);
        }
        if (next_way(&a, way) != NULL) {
            CKPT_TRY(ask(&a, way, err));
        }
    }
    return CKPT_OK;
}
