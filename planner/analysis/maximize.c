/* The largest value of a model's variable that a budget allows. Plans are made at one value after another. A larger
 * value may fit where a smaller one does not: sizes are rounded, some values do not exist (heads that do not divide),
 * plans are not optimal. So the search ends with a value that was planned, and the next value above it was refused. It
 * claims nothing about values that it did not try. Each plan is a start for the next larger value where the ops are the
 * same. */
#include <string.h>

#include "planner/analysis/analysis.h"

enum { HOLES_MAX = 64, GRID = 8, FINE = 64 };
static const int64_t VALUE_MAX = (int64_t)1 << 40;

typedef struct maximizer {
    const ckpt_family *family;
    double max_overhead;
    const char *strategy;
    ckpt_plan_options options;
    ckpt_arena *out;
    ckpt_maximum *maximum;
} maximizer;

/* The same ops on the same buffers: only then is a schedule of one a schedule of the other. */
static bool same_shape(const ckpt_graph *a, const ckpt_graph *b)
{
    bool same = a->op_count == b->op_count && a->buffer_count == b->buffer_count;
    for (int o = 0; same && o < a->op_count; o++) {
        const ckpt_list *const x[] = {&a->op[o].reads, &a->op[o].writes, &a->op[o].adds};
        const ckpt_list *const y[] = {&b->op[o].reads, &b->op[o].writes, &b->op[o].adds};
        same = strcmp(a->op[o].name, b->op[o].name) == 0;
        for (int l = 0; same && l < 3; l++) {
            same = x[l]->count == y[l]->count &&
                   (x[l]->count == 0 || memcmp(x[l]->at, y[l]->at, (size_t)x[l]->count * sizeof *x[l]->at) == 0);
        }
    }
    return same;
}

static const ckpt_probe *find_probe(const ckpt_maximum *maximum, int64_t value)
{
    for (int i = 0; i < maximum->probe_count; i++) {
        if (maximum->probe[i].value == value) {
            return &maximum->probe[i];
        }
    }
    return NULL;
}

/* Is this accepted probe the best so far? */
static bool is_better(const ckpt_maximum *maximum, const ckpt_probe *probe)
{
    if (!maximum->found) {
        return true;
    }
    if (maximum->throughput) { /* value / time, compared in long double: products may pass 63 bits */
        return (long double)probe->value * (long double)maximum->plan->time_ns >
               (long double)maximum->value * (long double)probe->time_ns;
    }
    return probe->value > maximum->value;
}

static ckpt_code plan_once(maximizer *m, const ckpt_graph *graph, int effort, const ckpt_plan *start, ckpt_plan **plan,
                           ckpt_err *err)
{
    ckpt_candidate incumbent;
    ckpt_plan_options options = m->options;
    options.effort = effort;
    if (start != NULL) {
        CKPT_TRY(ckpt_plan_candidate(start, graph, m->out, &incumbent, err));
        options.incumbent = &incumbent;
        options.incumbent_count = 1;
    }
    return ckpt_plan_make(graph, m->strategy, &options, m->out, plan, err);
}

static bool is_accepted(const maximizer *m, const ckpt_plan *plan)
{
    return plan->verdict == CKPT_FITS &&
           (m->max_overhead < 0 || ckpt_excess(plan->time_ns, plan->keep_all_time_ns) <= m->max_overhead);
}

/* Proved: more effort cannot make this value an accepted one. */
static bool is_refuted(const maximizer *m, const ckpt_plan *plan)
{
    if (plan->verdict != CKPT_FITS) {
        return plan->no_schedule_below_bytes > m->options.budget_bytes;
    }
    return m->max_overhead >= 0 && plan->has_bound && strcmp(plan->bound_scope, "all") == 0 &&
           ckpt_excess(plan->bound_ns, plan->keep_all_time_ns) > m->max_overhead;
}

/* Low effort first. A value that is accepted at low effort, or proved to be refused, is not planned at full effort. */
static ckpt_code plan_probe(maximizer *m, const ckpt_graph *graph, ckpt_probe *probe, ckpt_plan **plan, ckpt_err *err)
{
    const ckpt_plan *const start = m->maximum->found && same_shape(graph, m->maximum->graph) ? m->maximum->plan : NULL;
    const bool quick = m->options.effort > CKPT_EFFORT_LOW;
    ckpt_code code = CKPT_OK;
    if (quick) {
        code = plan_once(m, graph, CKPT_EFFORT_LOW, start, plan, err);
    }
    probe->quick = quick && code == CKPT_OK && (is_accepted(m, *plan) || is_refuted(m, *plan));
    if (code == CKPT_OK && !probe->quick) {
        const ckpt_plan *const first = quick && (*plan)->verdict == CKPT_FITS ? *plan : start;
        code = plan_once(m, graph, m->options.effort, first, plan, err);
    }
    CKPT_TRY_WHILE(err, code, "planning %s = %lld", m->family->variable, (long long)probe->value);
    probe->fits = (*plan)->verdict == CKPT_FITS;
    probe->peak_bytes = (*plan)->peak_bytes;
    probe->min_budget_bytes = (*plan)->min_budget_bytes;
    probe->time_ns = (*plan)->time_ns;
    probe->keep_all_time_ns = (*plan)->keep_all_time_ns;
    probe->accepted = is_accepted(m, *plan);
    probe->quick = probe->quick && !(probe->fits && (*plan)->has_bound && (*plan)->bound_ns == (*plan)->time_ns);
    return CKPT_OK;
}

/* Plan at `value`, at most once. The memory of a plan that is not the best so far is given back. `made` is NULL when
 * the model has no such value (`exists` false), planning ended early, or there have been too many probes. */
static ckpt_code probe_at(maximizer *m, int64_t value, const ckpt_probe **made, bool *exists, ckpt_err *err)
{
    ckpt_maximum *const maximum = m->maximum;
    *made = find_probe(maximum, value);
    *exists = true;
    if (*made != NULL) {
        return CKPT_OK;
    }
    maximum->stopped = maximum->stopped || ckpt_plan_stopped(&m->options);
    if (maximum->stopped || maximum->probe_count == CKPT_PROBES_MAX) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_probe probe = {.value = value};
    const ckpt_graph *graph = NULL;
    ckpt_plan *plan = NULL;
    CKPT_TRY(m->family->graph(m->family->context, value, m->out, &graph, exists, err));
    if (*exists && graph->static_bytes < m->options.budget_bytes) {
        CKPT_TRY(plan_probe(m, graph, &probe, &plan, err));
        maximum->stopped = !probe.accepted && ckpt_plan_stopped(&m->options); /* not refused: not finished */
    }
    if (!*exists || maximum->stopped) {
        ckpt_arena_rewind(m->out, mark);
        return CKPT_OK;
    }
    if (probe.accepted && is_better(maximum, &probe)) {
        maximum->found = true;
        maximum->value = value;
        maximum->graph = graph;
        maximum->plan = plan;
    } else {
        ckpt_arena_rewind(m->out, mark);
    }
    maximum->probe[maximum->probe_count] = probe;
    *made = &maximum->probe[maximum->probe_count++];
    return CKPT_OK;
}

/* The first value that exists from `value` on in direction `step`, before `end`. NULL: there is none among the next
 * HOLES_MAX, or the search has ended. */
static ckpt_code probe_near(maximizer *m, int64_t value, int step, int64_t end, const ckpt_probe **made, ckpt_err *err)
{
    *made = NULL;
    bool exists = false;
    for (int i = 0; i < HOLES_MAX && value != end && !exists; i++, value += step) {
        CKPT_TRY(probe_at(m, value, made, &exists, err));
    }
    return CKPT_OK;
}

/* Bisection between an accepted value and a refused one. */
static ckpt_code bisect(maximizer *m, int64_t low, int64_t high, ckpt_err *err)
{
    while (high - low > 1 && !m->maximum->stopped) {
        const int64_t middle = low + (high - low) / 2;
        const ckpt_probe *probe = NULL;
        CKPT_TRY(probe_near(m, middle, -1, low, &probe, err));
        if (probe == NULL && !m->maximum->stopped) {
            CKPT_TRY(probe_near(m, middle + 1, 1, high, &probe, err));
            if (probe == NULL) { /* nothing between them exists */
                return CKPT_OK;
            }
        }
        if (probe != NULL && probe->accepted) {
            low = probe->value;
        } else if (probe != NULL) {
            high = probe->value;
        }
    }
    return CKPT_OK;
}

/* An accepted value and a refused one above it, by doubling or halving from the model's own; then bisection. */
static ckpt_code find_largest(maximizer *m, ckpt_err *err)
{
    const ckpt_maximum *const maximum = m->maximum;
    const ckpt_probe *probe = NULL;
    int64_t low = m->family->start;
    int64_t high = 0;
    CKPT_TRY(probe_near(m, low, -1, 0, &probe, err));
    while (probe != NULL && !probe->accepted) {
        high = probe->value;
        low = high / 2;
        if (low == 0) {
            return CKPT_OK; /* not even the smallest */
        }
        CKPT_TRY(probe_near(m, low, -1, 0, &probe, err));
    }
    low = probe != NULL ? probe->value : 0;
    while (probe != NULL && high == 0) {
        if (low > VALUE_MAX / 2) {
            m->maximum->unbounded = true;
            return CKPT_OK;
        }
        CKPT_TRY(probe_near(m, 2 * low, -1, low, &probe, err));
        if (probe != NULL && probe->accepted) {
            low = probe->value;
        } else if (!maximum->stopped) { /* refused, or nothing exists up to there */
            high = probe != NULL ? probe->value : 2 * low;
        }
    }
    return low > 0 && high > 0 ? bisect(m, low, high, err) : CKPT_OK;
}

/* The result gets the full effort. */
static ckpt_code finish_quick(maximizer *m, ckpt_err *err)
{
    ckpt_maximum *const maximum = m->maximum;
    ckpt_plan *plan = NULL;
    for (int i = 0; maximum->found && !maximum->unbounded && i < maximum->probe_count; i++) {
        ckpt_probe *const probe = &maximum->probe[i];
        if (probe->value == maximum->value && probe->quick) {
            CKPT_TRY(plan_once(m, maximum->graph, m->options.effort, maximum->plan, &plan, err));
            const bool faster = plan->verdict == CKPT_FITS && plan->time_ns <= maximum->plan->time_ns;
            maximum->plan = faster ? plan : maximum->plan;
            probe->quick = false;
            probe->peak_bytes = maximum->plan->peak_bytes;
            probe->time_ns = maximum->plan->time_ns;
        }
    }
    return CKPT_OK;
}

/* The values next to `value` that have been probed; `value` itself where there is none. */
static void find_neighbours(const ckpt_maximum *maximum, int64_t value, int64_t *below, int64_t *above)
{
    *below = *above = value;
    for (int i = 0; i < maximum->probe_count; i++) {
        const int64_t other = maximum->probe[i].value;
        if (other < value && (*below == value || other > *below)) {
            *below = other;
        }
        if (other > value && (*above == value || other < *above)) {
            *above = other;
        }
    }
}

/* An even grid up to the largest value, then halving the distances beside the best, as long as that helps. */
static ckpt_code find_fastest(maximizer *m, int64_t largest, ckpt_err *err)
{
    const ckpt_maximum *const maximum = m->maximum;
    const ckpt_probe *probe = NULL;
    for (int i = 1; i <= GRID; i++) {
        const int64_t value = largest / GRID * i + largest % GRID * i / GRID;
        if (value > 0) {
            CKPT_TRY(probe_near(m, value, -1, 0, &probe, err));
        }
    }
    for (int64_t before = 0; !maximum->stopped && maximum->probe_count < CKPT_PROBES_MAX;) {
        const int64_t best = maximum->value;
        const int64_t fine = best / FINE + 1;
        int64_t below = 0;
        int64_t above = 0;
        find_neighbours(maximum, best, &below, &above);
        const int before_count = maximum->probe_count;
        if (best - below > fine) {
            CKPT_TRY(probe_near(m, below + (best - below) / 2, -1, below, &probe, err));
        }
        if (above - best > fine) {
            CKPT_TRY(probe_near(m, best + (above - best) / 2, 1, above, &probe, err));
        }
        if (maximum->probe_count == before_count && before == best) {
            break;
        }
        before = best;
    }
    return CKPT_OK;
}

ckpt_code ckpt_maximize(const ckpt_family *family, bool throughput, double max_overhead, const char *strategy,
                        const ckpt_plan_options *options, ckpt_arena *out, ckpt_maximum *maximum, ckpt_err *err)
{
    maximizer m = {family, max_overhead, strategy, *options, out, maximum};
    *maximum = (ckpt_maximum){.variable = family->variable, .throughput = throughput};
    CKPT_TRY(find_largest(&m, err));
    CKPT_TRY(finish_quick(&m, err));
    int64_t largest = 0;
    for (int i = 0; i < maximum->probe_count; i++) {
        const ckpt_probe *const probe = &maximum->probe[i];
        largest = probe->accepted && probe->value > largest ? probe->value : largest;
    }
    return throughput && largest > 0 && !maximum->unbounded ? find_fastest(&m, largest, err) : CKPT_OK;
}

static double per_second(int64_t value, ckpt_ns time)
{
    return time > 0 ? (double)value * 1e9 / (double)time : 0;
}

static bool any_fits(const ckpt_maximum *maximum)
{
    bool any = false;
    for (int i = 0; i < maximum->probe_count && !any; i++) {
        any = maximum->probe[i].fits;
    }
    return any;
}

void ckpt_maximum_text(const ckpt_maximum *maximum, ckpt_text *text)
{
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%12s %-9s %10s %10s %10s %12s\n", maximum->variable, "", "peak", "step time", "overhead",
                  "per second");
    for (int i = 0; i < maximum->probe_count; i++) {
        const ckpt_probe *const probe = &maximum->probe[i];
        ckpt_text_add(text, "%12lld ", (long long)probe->value);
        if (!probe->fits) {
            const bool known = probe->min_budget_bytes > 0;
            ckpt_text_add(text, "%-9s %10s %s\n", "too large", known ? ckpt_bytes_show(probe->min_budget_bytes, a) : "",
                          known ? "would do" : "its static block alone is");
        } else {
            ckpt_text_add(text, "%-9s %10s %10s %+8.2f %% %12.4g%s\n", probe->accepted ? "fits" : "too slow",
                          ckpt_bytes_show(probe->peak_bytes, a), ckpt_ns_show(probe->time_ns, b),
                          100 * ckpt_excess(probe->time_ns, probe->keep_all_time_ns),
                          per_second(probe->value, probe->time_ns), probe->quick ? "  quick" : "");
        }
    }
    if (!maximum->found) {
        ckpt_text_add(text, "no value of %s that was tried %s\n", maximum->variable,
                      any_fits(maximum) ? "is fast enough" : "fits");
    } else {
        ckpt_text_add(text, "%s %s = %lld%s\n\n",
                      maximum->throughput ? "most per second:" : "largest:", maximum->variable,
                      (long long)maximum->value, maximum->stopped ? " so far" : "");
    }
}

void ckpt_maximum_members(const ckpt_maximum *maximum, ckpt_json_writer *w)
{
    char number[CKPT_REAL_TEXT];
    ckpt_json_put_text(w, "variable", maximum->variable);
    if (maximum->found) {
        ckpt_json_put_int(w, "value", maximum->value);
    }
    ckpt_json_put_bool(w, "complete", !maximum->stopped);
    ckpt_json_begin_array(w, "probes", CKPT_JSON_ROWS);
    for (int i = 0; i < maximum->probe_count; i++) {
        const ckpt_probe *const probe = &maximum->probe[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_int(w, "value", probe->value);
        ckpt_json_put_bool(w, "accepted", probe->accepted);
        ckpt_json_put_bool(w, "quick", probe->quick);
        if (probe->fits) {
            CKPT_JSON_INTS(w, {"peak_bytes", probe->peak_bytes}, {"time_ns", probe->time_ns});
            ckpt_json_put_fixed(w, "overhead", ckpt_excess(probe->time_ns, probe->keep_all_time_ns), 6);
            ckpt_json_put_here(w, "per_second");
            ckpt_text_add(w->text, "%s", ckpt_real_general(per_second(probe->value, probe->time_ns), 6, number));
        } else if (probe->min_budget_bytes > 0) {
            ckpt_json_put_int(w, "least_budget_bytes", probe->min_budget_bytes);
        }
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}
