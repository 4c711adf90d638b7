/* Sequences as strategies write them, and candidates. What a sequence means is in sequence_steps.c. */
#include <string.h>

#include "planner/schedule/schedule.h"

/* Copies lie below zero: -1 - 4 buffer - kind. */
int ckpt_sequence_copy(ckpt_step_kind kind, int buffer)
{
    return -1 - 4 * buffer - (int)kind;
}

ckpt_step_kind ckpt_sequence_kind(int entry, int *target)
{
    *target = entry >= 0 ? entry : (-1 - entry) / 4;
    return entry >= 0 ? CKPT_RUN : (ckpt_step_kind)((-1 - entry) % 4);
}

void ckpt_order_init(ckpt_order *order)
{
    *order = (ckpt_order){0};
}

void ckpt_order_fini(ckpt_order *order)
{
    ckpt_memory_put(order->op);
    ckpt_order_init(order);
}

void ckpt_order_add(ckpt_order *order, int op)
{
    if (order->count == order->room) {
        const int room = order->room > 0 ? 2 * order->room : 256;
        int *const grown = room < (1 << 28) ? ckpt_memory_resize(order->op, (size_t)room * sizeof *order->op) : NULL;
        if (grown == NULL) {
            order->failed = true;
            return;
        }
        order->op = grown;
        order->room = room;
    }
    order->op[order->count++] = op;
}

void ckpt_order_range(ckpt_order *order, int from, int to)
{
    for (int o = from; o < to; o++) {
        ckpt_order_add(order, o);
    }
}

ckpt_code ckpt_order_measure(const ckpt_order *order, const ckpt_graph *graph, ckpt_arena *scratch,
                             ckpt_candidate *measured, ckpt_err *err)
{
    if (order->failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order->count);
    }
    measured->sequence = (ckpt_sequence){order->op, order->count};
    return ckpt_sequence_measure(graph, &measured->sequence, scratch, &measured->peak, &measured->time, err);
}

/* No slower and no larger. */
static bool as_good(const ckpt_candidate *a, const ckpt_candidate *b)
{
    return a->time <= b->time && a->peak <= b->peak;
}

/* Keep the candidates in the order of their times, without those that another makes needless. The slowest goes when
 * there are too many. */
void ckpt_candidates_add(ckpt_candidates *candidates, const ckpt_candidate *added)
{
    for (int i = 0; i < candidates->count; i++) {
        if (as_good(&candidates->candidate[i], added)) {
            return;
        }
    }
    int kept = 0;
    for (int i = 0; i < candidates->count; i++) {
        if (!as_good(added, &candidates->candidate[i])) {
            candidates->candidate[kept++] = candidates->candidate[i];
        }
    }
    kept = kept == CKPT_CANDIDATES_MAX ? kept - 1 : kept;
    int at = kept;
    for (; at > 0 && candidates->candidate[at - 1].time > added->time; at--) {
        candidates->candidate[at] = candidates->candidate[at - 1];
    }
    candidates->candidate[at] = *added;
    candidates->count = kept + 1;
}

void ckpt_candidates_merge(ckpt_candidates *candidates, const ckpt_candidates *part)
{
    for (int i = 0; i < part->count; i++) {
        ckpt_candidates_add(candidates, &part->candidate[i]);
    }
    const bool lower =
        part->min_peak.sequence.op != NULL &&
        (candidates->min_peak.sequence.op == NULL || part->min_peak.peak < candidates->min_peak.peak ||
         (part->min_peak.peak == candidates->min_peak.peak && part->min_peak.time < candidates->min_peak.time));
    if (lower) {
        candidates->min_peak = part->min_peak;
    }
}

void ckpt_candidates_incumbents(ckpt_candidates *candidates, ckpt_bytes limit, const ckpt_plan_options *options)
{
    for (int i = 0; i < options->incumbent_count; i++) {
        if (options->incumbent[i].peak <= limit) {
            ckpt_candidates_add(candidates, &options->incumbent[i]);
        }
    }
}

void ckpt_candidates_progress(const ckpt_candidates *candidates, const char *part, ckpt_bytes limit,
                              const ckpt_plan_options *options)
{
    if (options->progress != NULL) {
        const ckpt_plan_progress progress = {
            .part = part,
            .best_ns = candidates->count > 0 ? candidates->candidate[0].time : 0,
            .bound_ns = candidates->has_bound ? candidates->bound_ns : 0,
            .limit_bytes = limit,
        };
        options->progress(options->context, &progress);
    }
}

void ckpt_candidates_bound(ckpt_candidates *candidates, ckpt_ns time, const char *how, const char *scope)
{
    const bool all = strcmp(scope, "all") == 0;
    const bool had_all = candidates->has_bound && strcmp(candidates->bound_scope, "all") == 0;
    const double favour = all && !had_all ? 1.001 : had_all && !all ? 0.999 : 1;
    if (!candidates->has_bound || (double)time * favour > (double)candidates->bound_ns) {
        candidates->has_bound = true;
        candidates->bound_ns = time;
        candidates->bound_how = how;
        candidates->bound_scope = scope;
    }
}

const char *ckpt_bound_how(ckpt_ns bound, const char *how, ckpt_ns time)
{
    return bound == time && strcmp(how, CKPT_ILP_HOW) != 0 ? "exact" : how;
}

/* A copy that outlives the order. */
static ckpt_code copy_order(const ckpt_order *order, ckpt_arena *out, ckpt_candidate *copied, ckpt_err *err)
{
    int *const op = CKPT_NEW(out, int, order->count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order->count);
    }
    if (order->count > 0) {
        memcpy(op, order->op, (size_t)order->count * sizeof *op);
    }
    copied->sequence = (ckpt_sequence){op, order->count};
    return CKPT_OK;
}

static ckpt_code end(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, bool any_limit, ckpt_arena *out,
                     ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_candidate added = {0};
    CKPT_TRY(ckpt_order_measure(order, graph, out, &added, err));
    const bool countable = added.time < INT64_MAX;
    bool wanted = countable && added.peak <= limit;
    for (int i = 0; i < candidates->count; i++) {
        wanted = wanted && !as_good(&candidates->candidate[i], &added);
    }
    const ckpt_candidate *const least = &candidates->min_peak;
    const bool is_min_peak = any_limit && countable &&
                             (least->sequence.op == NULL || added.peak < least->peak ||
                              (added.peak == least->peak && added.time < least->time));
    if (wanted || is_min_peak) {
        CKPT_TRY(copy_order(order, out, &added, err));
    }
    if (wanted) {
        ckpt_candidates_add(candidates, &added);
    }
    if (is_min_peak) {
        candidates->min_peak = added;
    }
    order->count = 0;
    return CKPT_OK;
}

ckpt_code ckpt_order_offer(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                           ckpt_candidates *candidates, ckpt_err *err)
{
    return end(order, graph, limit, false, out, candidates, err);
}

ckpt_code ckpt_order_end(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                         ckpt_candidates *candidates, ckpt_err *err)
{
    return end(order, graph, limit, true, out, candidates, err);
}

ckpt_code ckpt_order_keep_all(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out, ckpt_candidates *candidates,
                              ckpt_err *err)
{
    ckpt_order order;
    ckpt_order_init(&order);
    for (int o = 0; o < graph->op_count; o++) {
        if (!graph->op[o].optional) {
            ckpt_order_add(&order, o);
        }
    }
    const ckpt_code code = ckpt_order_end(&order, graph, limit, out, candidates, err);
    ckpt_order_fini(&order);
    return code;
}
