/* Limits held against a difference, and what made those that are exceeded so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/rank_tests.h"

enum { LINES = 5 };

/* The lines that explain a limit; the first failure stays. */
typedef struct lines {
    ckpt_comparer *c;
    const char **at;
    int count, left_out;
    bool failed;
} lines;

static void say(lines *l, const char *text)
{
    l->failed = l->failed || text == NULL;
    if (l->count < LINES && text != NULL) {
        l->at[l->count++] = text;
    } else {
        l->left_out++;
    }
}

/* "+33.6 MB" */
static const char *more(ckpt_compare_unit unit, int64_t change, char *text)
{
    text[0] = '+';
    ckpt_compare_show(unit, change, text + (change >= 0));
    return text;
}

static void say_contributors(lines *l, bool statics_only)
{
    const ckpt_difference *const d = l->c->d;
    for (int i = 0; i < d->contributor_count; i++) {
        const ckpt_contributor *const it = &d->contributor[i];
        const char *const name = ckpt_compare_name(l->c->out, it->name);
        char text[CKPT_UNITS_TEXT];
        if (it->fresh > it->base && (!statics_only || strcmp(it->what, "static") == 0)) {
            say(l, name == NULL ? NULL
                                : ckpt_arena_format(l->c->out, "%s: %s, %s%s%s", name,
                                                    more(CKPT_UNIT_BYTES, it->fresh - it->base, text),
                                                    it->base == 0 ? "not there in BASE" : "larger than in BASE",
                                                    it->reason[0] != '\0' ? "; " : "", it->reason));
        }
    }
    if (!d->contributors_known) {
        say(l, "which buffers did it is not known: a file does not say what it is made of");
    }
}

static void say_decisions(lines *l, bool copies)
{
    const ckpt_difference *const d = l->c->d;
    for (int i = 0; i < d->decision_group_count; i++) {
        const ckpt_decision_group *const g = &d->decision_group[i];
        const int64_t change = copies ? g->copied_bytes : g->again_ns;
        const char *const name = ckpt_compare_name(l->c->out, g->name);
        char text[CKPT_UNITS_TEXT], times[24] = "";
        if (g->count > 1) {
            snprintf(times, sizeof times, " ×%d", g->count);
        }
        if (change > 0) {
            say(l, name == NULL ? NULL
                                : ckpt_arena_format(l->c->out, "%s%s: %s -> %s, %s%s", name, times,
                                                    ckpt_decision_name(g->base), ckpt_decision_name(g->fresh),
                                                    more(copies ? CKPT_UNIT_BYTES : CKPT_UNIT_NS, change, text),
                                                    copies ? " copied to the host" : " in runs again"));
        }
    }
    const ckpt_plan *const base = l->c->base->plan, *const fresh = l->c->fresh->plan;
    if (fresh->keep_all_time_ns > base->keep_all_time_ns && base->keep_all_time_ns > 0 && !copies) {
        char text[CKPT_UNITS_TEXT];
        say(l, ckpt_arena_format(l->c->out, "the ops themselves take %s: they were planned with other times",
                                 more(CKPT_UNIT_NS, fresh->keep_all_time_ns - base->keep_all_time_ns, text)));
    }
}

/* Rows that are worse; of a profile those of one direction, or of all. */
static void say_rows(lines *l, const char *part)
{
    const ckpt_difference *const d = l->c->d;
    for (int i = 0; i < d->row_count; i++) {
        const ckpt_compare_row *const row = &d->row[i];
        const char *const name = ckpt_compare_name(l->c->out, row->name);
        char text[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
        if (row->value.change != CKPT_CHANGE_WORSE || (part != NULL && strcmp(part, row->part) != 0)) {
            continue;
        }
        ckpt_compare_show_change(&row->value, text);
        ckpt_compare_show_percent(&row->value, percent);
        say(l, name == NULL ? NULL
                            : ckpt_arena_format(l->c->out, "%s%s%s%s: %s (%s)", row->budget_bytes > 0 ? "at " : "",
                                                name, row->part[0] != '\0' ? " " : "", row->part, text, percent));
    }
}

/* Time by layer (by name where there is none), of both traces. */
typedef struct spent {
    const char *name;
    ckpt_ns base, fresh;
} spent;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const spent *)a)->name, ((const spent *)b)->name);
}

static int by_growth(const void *a, const void *b)
{
    const spent *const x = a, *const y = b;
    const int64_t own = x->fresh - x->base, other = y->fresh - y->base;
    return own != other ? (own < other ? 1 : -1) : strcmp(x->name, y->name);
}

static const char *const span_metrics[] = {"forward", "backward", "recompute", "copy", "update", "wait"};

/* The span of a metric that is one's sum; -1: all but frees. */
static int span_of(const ckpt_metric *metric)
{
    for (size_t i = 0; i < sizeof span_metrics / sizeof span_metrics[0]; i++) {
        if (strcmp(metric->name, span_metrics[i]) == 0) {
            return (int)i; /* as in ckpt_span */
        }
    }
    return -1;
}

static void say_layers(lines *l, int span)
{
    const ckpt_trace *const trace[2] = {l->c->base->trace, l->c->fresh->trace};
    const size_t most = (size_t)trace[0]->event_count + (size_t)trace[1]->event_count;
    spent *const all = CKPT_NEW(l->c->out, spent, most);
    if (all == NULL) {
        l->failed = true;
        return;
    }
    size_t count = 0, merged = 0;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < trace[k]->event_count; i++) {
            const ckpt_event *const e = &trace[k]->event[i];
            if (span < 0 ? e->span != CKPT_SPAN_FREE : (int)e->span == span) {
                const ckpt_ns time = e->end_ns - e->start_ns;
                all[count++] = (spent){e->layer[0] != '\0' ? e->layer : e->name, k == 0 ? time : 0, k == 0 ? 0 : time};
            }
        }
    }
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 0; i < count; i++) {
        if (merged > 0 && strcmp(all[merged - 1].name, all[i].name) == 0) {
            all[merged - 1].base = ckpt_plus(all[merged - 1].base, all[i].base);
            all[merged - 1].fresh = ckpt_plus(all[merged - 1].fresh, all[i].fresh);
        } else {
            all[merged++] = all[i];
        }
    }
    qsort(all, merged, sizeof *all, by_growth);
    for (size_t i = 0; i < merged && all[i].fresh > all[i].base; i++) {
        char text[CKPT_UNITS_TEXT];
        const char *const name = ckpt_compare_name(l->c->out, all[i].name);
        say(l, name == NULL ? NULL
                            : ckpt_arena_format(l->c->out, "%s: %s", name,
                                                more(CKPT_UNIT_NS, all[i].fresh - all[i].base, text)));
    }
}

static bool is(const ckpt_metric *metric, const char *name)
{
    return strcmp(metric->name, name) == 0;
}

static void explain(lines *l, const ckpt_compare_value *value, const ckpt_metric *metric)
{
    const ckpt_compare_kind kind = l->c->base->kind;
    if (kind == CKPT_COMPARE_PLAN && l->c->fresh->plan->verdict != CKPT_FITS && (value == NULL || !value->has_new)) {
        char budget[CKPT_UNITS_TEXT], least[CKPT_UNITS_TEXT];
        say(l, ckpt_arena_format(l->c->out, "NEW does not fit its budget of %s; a plan is known for %s",
                                 ckpt_bytes_show(l->c->fresh->plan->budget_bytes, budget),
                                 ckpt_bytes_show(l->c->fresh->plan->min_budget_bytes, least)));
    } else if (value != NULL && value->has_base && value->fresh <= value->base && value->has_new) {
        say(l, "it is not more than in BASE");
    } else if (is(metric, "peak") || is(metric, "arena") || is(metric, "static")) {
        say_contributors(l, is(metric, "static"));
    } else if (kind == CKPT_COMPARE_PLAN && (is(metric, "offload") || is(metric, "host"))) {
        say_decisions(l, true);
    } else if (kind == CKPT_COMPARE_PLAN && metric->unit != CKPT_UNIT_BYTES) {
        say_decisions(l, false);
    } else if (kind == CKPT_COMPARE_PROFILE && metric->unit == CKPT_UNIT_NS) {
        say_rows(l, is(metric, "step_time") ? NULL : metric->name);
    } else if (kind == CKPT_COMPARE_SWEEP && (is(metric, "step_time") || is(metric, "mean_time"))) {
        say_rows(l, NULL);
    } else if (kind == CKPT_COMPARE_TRACE && metric->unit == CKPT_UNIT_NS) {
        say_layers(l, span_of(metric));
    }
}

/* whole * millionths / 10^6, within 63 bits. */
static int64_t share(int64_t whole, int64_t millionths)
{
    int64_t high = 0;
    if (!ckpt_product(whole / 1000000, millionths, &high)) {
        return INT64_MAX;
    }
    int64_t low = 0;
    if (!ckpt_product(whole % 1000000, millionths, &low)) {
        return INT64_MAX;
    }
    return ckpt_plus(high, low / 1000000);
}

/* What the samples say of a limit that the number itself exceeds. */
static ckpt_limit_state weigh(ckpt_comparer *c, const ckpt_limit_result *r, const char **why)
{
    const ckpt_compare_value *const v = r->value;
    if (v->nature == CKPT_ONCE && v->metric->unit == CKPT_UNIT_NS) {
        *why = "; it was measured once, which does not fail";
        return CKPT_LIMIT_OPEN;
    }
    if (r->limit->increase && v->change == CKPT_CHANGE_UNJUDGED) {
        *why = ckpt_arena_format(c->out, "; %s", v->why);
        return CKPT_LIMIT_OPEN;
    }
    if (v->nature != CKPT_SAMPLED) {
        return CKPT_LIMIT_EXCEEDED;
    }
    if (!r->limit->increase) {
        if (v->samples < CKPT_COMPARE_SAMPLES) {
            *why = ckpt_arena_format(c->out, "; not enough samples (%d, wanted %d)", v->samples, CKPT_COMPARE_SAMPLES);
            return CKPT_LIMIT_OPEN;
        }
        const double p = ckpt_sign_test(v->sample, v->samples, r->allowed);
        *why = p < c->alpha ? "" : ckpt_arena_format(c->out, "; not significant (p = %.2g)", p);
        return p < c->alpha ? CKPT_LIMIT_EXCEEDED : CKPT_LIMIT_OPEN;
    }
    if (v->change == CKPT_CHANGE_WORSE) {
        return CKPT_LIMIT_EXCEEDED;
    }
    *why = v->why[0] != '\0' ? ckpt_arena_format(c->out, "; %s", v->why)
                             : ckpt_arena_format(c->out, "; not significant (p = %.2g)", v->p);
    return CKPT_LIMIT_OPEN;
}

/* A side that has no such number. */
static void miss(ckpt_comparer *c, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = r->value;
    const bool base = v != NULL && v->has_base;
    r->state = !r->limit->increase || base ? CKPT_LIMIT_EXCEEDED : CKPT_LIMIT_OPEN;
    r->text = ckpt_arena_format(c->out, "%s: %s%s%s", r->limit->metric->label,
                                v == NULL ? "neither file says what it is"
                                : base    ? "NEW has none"
                                          : "BASE has none",
                                v != NULL && v->why[0] != '\0' ? ": " : "", v != NULL ? v->why : "");
}

/* "peak 6.08 GB, 75.0 MB more than --max peak=6GB allows" */
static ckpt_code describe(ckpt_comparer *c, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = r->value;
    const ckpt_compare_unit unit = v->metric->unit;
    const bool over = v->fresh > r->allowed;
    const char *why = "";
    char found[CKPT_UNITS_TEXT], apart[CKPT_UNITS_TEXT], change[CKPT_UNITS_TEXT];
    r->state = over ? weigh(c, r, &why) : CKPT_LIMIT_HELD;
    ckpt_compare_show(unit, v->fresh, found);
    ckpt_compare_show(unit, over ? v->fresh - r->allowed : r->allowed - v->fresh, apart);
    ckpt_compare_show_change(v, change);
    const bool moved = v->has_base && change[0] != '\0';
    const char *const verdict =
        v->fresh == r->allowed ? "just what" : ckpt_arena_format(c->out, "%s %s than", apart, over ? "more" : "less");
    r->text = why == NULL || verdict == NULL
                  ? NULL
                  : ckpt_arena_format(c->out, "%s %s%s%s%s%s, %s %s allows%s", v->metric->label, v->where,
                                      v->where[0] != '\0' ? " " : "", found, moved ? ", " : "", moved ? change : "",
                                      verdict, r->limit->text, why);
    return r->text != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a limit");
}

static ckpt_code decide(ckpt_comparer *c, const ckpt_limit *limit, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = ckpt_compare_find(c->d, limit->metric);
    *r = (ckpt_limit_result){.limit = limit, .value = v, .text = "", .because = NULL};
    if (v == NULL || !v->has_new || (limit->increase && !v->has_base)) {
        miss(c, r);
        if (r->text == NULL) {
            return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a limit");
        }
    } else {
        r->allowed = !limit->increase  ? limit->value
                     : limit->relative ? ckpt_plus(v->base, share(v->base, limit->value))
                                       : ckpt_plus(v->base, limit->value);
        CKPT_TRY(describe(c, r));
    }
    if (r->state != CKPT_LIMIT_EXCEEDED) {
        return CKPT_OK;
    }
    lines l = {.c = c, .at = CKPT_NEW(c->out, const char *, LINES + 1)};
    if (l.at == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a limit");
    }
    explain(&l, v, limit->metric);
    if (l.count == 0) {
        say(&l, "the files do not tell what did it");
    }
    if (l.left_out > 0 && !l.failed) {
        l.at[l.count] = ckpt_arena_format(c->out, "and %d more", l.left_out);
        l.failed = l.at[l.count++] == NULL;
    }
    r->because = l.at;
    r->because_count = l.count;
    c->d->exceeded = true;
    return l.failed ? CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a limit") : CKPT_OK;
}

/* What a file need not have is not known without it, and little of a plan that does not fit; every other sum is 0. */
static bool unknown(const ckpt_comparer *c, const ckpt_metric *metric)
{
    static const char *const names[] = {"gap",          "bound",    "overhead", "keep_all_peak", "keep_all_time",
                                        "process_peak", "copy_out", "copy_in",  "mean_time",     "step_time"};
    if (c->base->kind == CKPT_COMPARE_PLAN && c->fresh->plan->verdict != CKPT_FITS) {
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is(metric, names[i])) {
            return true;
        }
    }
    return false;
}

ckpt_code ckpt_compare_limits(ckpt_comparer *c)
{
    const int count = c->options->limit_count;
    ckpt_limit_result *const result = CKPT_NEW(c->out, ckpt_limit_result, count);
    if (result == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d limits", count);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_limit *const limit = &c->options->limit[i];
        if (ckpt_compare_find(c->d, limit->metric) == NULL && !unknown(c, limit->metric)) {
            ckpt_compare_add(c, limit->metric->name, 0, 0);
        }
        CKPT_TRY(decide(c, limit, &result[i]));
    }
    c->d->limit = result;
    c->d->limit_count = count;
    return CKPT_OK;
}
