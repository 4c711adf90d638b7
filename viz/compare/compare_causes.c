/* Why a limit is exceeded: what was set otherwise, the budget first; then the layers, largest change first, in both
 * directions, so that the lines add up to the change. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

/* Lines that name what did it; what is left becomes one more. */
enum { LINES = 5 };

/* A part of a metric's change. `sure`: no measurement that may be chance. */
typedef struct part {
    const char *text; /* "h.0 … h.5.fc ×2" */
    const char *what; /* "keep → recompute"; "" */
    int64_t change;
    bool sure;
} part;

/* Lines in the making. */
typedef struct causes {
    ckpt_comparer *c;
    const ckpt_metric *metric;
    const ckpt_compare_value *value;
    ckpt_because *line;
    int count;
    part *part;
    int parts;
} causes;

static void say(causes *m, const char *text)
{
    m->line[m->count++] = (ckpt_because){.text = text};
}

/* "+33.6 MB", "-0.40 points" */
static const char *more(ckpt_comparer *c, ckpt_compare_unit unit, int64_t change)
{
    char text[CKPT_UNITS_TEXT];
    if (unit == CKPT_UNIT_RATIO) {
        return CKPT_COMPARE_SAY(c, "%+.2f points", (double)change / 1e4);
    }
    return CKPT_COMPARE_SAY(c, "%s%s", change >= 0 ? "+" : "", ckpt_compare_show(unit, change, text));
}

static bool room_for(causes *m, int parts)
{
    m->part = CKPT_COMPARE_NEW(m->c, part, parts);
    return m->part != NULL;
}

static void add(causes *m, const char *text, const char *what, int64_t change, bool sure)
{
    if (change != 0) {
        m->part[m->parts++] = (part){text, what, change, sure};
    }
}

static int by_size(const void *a, const void *b)
{
    const part *const x = a, *const y = b;
    const int64_t own = llabs(x->change), other = llabs(y->change);
    return x->sure != y->sure ? (x->sure ? -1 : 1) : own != other ? (own < other ? 1 : -1) : strcmp(x->text, y->text);
}

/* The largest parts a line each, the others together; and what of the change is none of theirs under the name `rest`. */
static void put_parts(causes *m, const char *rest)
{
    ckpt_comparer *const c = m->c;
    const ckpt_compare_unit unit = m->metric->unit;
    int64_t told = 0, left = 0;
    int sure = 0;
    for (int i = 0; i < m->parts; i++) {
        told = ckpt_plus(told, m->part[i].change);
        sure += m->part[i].sure;
    }
    qsort(m->part, (size_t)m->parts, sizeof *m->part, by_size);
    const int most = m->parts == LINES + 1 && sure == m->parts ? LINES + 1 : LINES, shown = sure < most ? sure : most;
    for (int i = 0; i < m->parts; i++) {
        const part *const p = &m->part[i];
        if (i < shown) {
            const char *const text = CKPT_COMPARE_SAY(c, "%s: %s%s%s", p->text, more(c, unit, p->change),
                                                      p->what[0] != '\0' ? ", " : "", p->what);
            m->line[m->count++] = (ckpt_because){text, true, p->change};
        } else {
            left = ckpt_plus(left, p->change);
        }
    }
    if (m->parts > shown) {
        const char *const text =
            CKPT_COMPARE_SAY(c, "%s%d more%s: %s", shown > 0 ? "and " : "", m->parts - shown,
                             shown == sure ? ", none of them significant alone" : "", more(c, unit, left));
        m->line[m->count++] = (ckpt_because){text, true, left};
    }
    const int64_t apart = ckpt_plus(m->value->fresh - m->value->base, -told);
    if (llabs(apart) > (unit == CKPT_UNIT_RATIO ? m->parts + 2 : 0)) { /* ratios are rounded */
        m->line[m->count++] = (ckpt_because){CKPT_COMPARE_SAY(c, "%s: %s", rest, more(c, unit, apart)), true, apart};
    }
}

/* One line: the budget first, then what else was set. A static block knows no budget. */
static void say_settings(causes *m)
{
    const ckpt_difference *const d = m->c->d;
    const char *words = "";
    for (int i = 0; i < d->setting_count; i++) {
        const ckpt_compare_mismatch *const s = &d->setting[i];
        if (strcmp(m->metric->name, "static") != 0 || strcmp(s->what, "budget") != 0) {
            words = CKPT_COMPARE_SAY(m->c, "%s%s%s: %s → %s", words, words[0] != '\0' ? "; " : "", s->what, s->base,
                                     s->fresh);
        }
    }
    if (words[0] != '\0') {
        say(m, words);
    }
}

static const char *name_of(ckpt_comparer *c, const ckpt_compare_group *g)
{
    const char *const name = ckpt_compare_name(c, g->name);
    return g->count > 1 ? CKPT_COMPARE_SAY(c, "%s ×%d", name, g->count) : name;
}

/* Which of the layers' groups count. */
typedef enum kept { ALL, STATICS, NO_STATICS } kept;

static void add_layers(causes *m, ckpt_share share, kept of)
{
    const ckpt_difference *const d = m->c->d;
    if (!room_for(m, d->layer_group_count)) {
        return;
    }
    for (int i = 0; i < d->layer_group_count; i++) {
        const ckpt_compare_group *const g = &d->layer_group[i];
        if (of == ALL || (g->fate == CKPT_LAYER_STATIC) == (of == STATICS)) {
            add(m, name_of(m->c, g), g->what, g->by[share], true);
        }
    }
}

/* number / over, in millionths. */
static int64_t ratio(int64_t number, int64_t over)
{
    return over > 0 ? llround(1e6 * (double)number / (double)over) : 0;
}

/* Of a ratio, step time over `over`: what layers add to the time, and what a change of `over` itself makes of it. */
static void add_ratio(causes *m, int64_t base_over, int64_t over, const char *name)
{
    const ckpt_plan *const base = m->c->file[0]->plan;
    const ckpt_difference *const d = m->c->d;
    char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT];
    if (!room_for(m, d->layer_group_count + 1)) {
        return;
    }
    for (int i = 0; i < d->layer_group_count; i++) {
        const ckpt_compare_group *const g = &d->layer_group[i];
        add(m, name_of(m->c, g), g->what, ratio(g->by[CKPT_SHARE_TIME], over), true);
    }
    const char *const moved =
        CKPT_COMPARE_SAY(m->c, "%s %s → %s", name, ckpt_ns_show(base_over, was), ckpt_ns_show(over, is));
    add(m, moved, "", base_over != over ? ratio(base->time_ns, over) - ratio(base->time_ns, base_over) : 0, true);
}

/* How many layers of a profile have the figures of each: itself, and those that repeat them. By numbers of `rows`, all the
 * profile's. */
static int *take_repeats(ckpt_comparer *c, const ckpt_profile *profile, ckpt_names *rows)
{
    int *const repeats = CKPT_COMPARE_NEW(c, int, profile->row_count);
    if (repeats == NULL || !ckpt_compare_ok(c, ckpt_names_init(rows, profile->row_count, c->out, c->err))) {
        return NULL;
    }
    for (int i = 0; i < profile->row_count; i++) {
        (void)ckpt_names_add(rows, profile->row[i].layer, i);
        repeats[i] = 1;
    }
    for (int i = 0; i < profile->row_count; i++) {
        const int of = profile->row[i].same_as[0] != '\0' ? ckpt_names_find(rows, profile->row[i].same_as) : -1;
        if (of >= 0) {
            repeats[of]++;
        }
    }
    return repeats;
}

/* Rows of a profile, of one direction or all (NULL). What no test finds different may be chance. */
static void add_rows(causes *m, const char *direction)
{
    ckpt_comparer *const c = m->c;
    ckpt_names rows[2];
    const int *const repeats[] = {take_repeats(c, c->file[0]->profile, &rows[0]),
                                  take_repeats(c, c->file[1]->profile, &rows[1])};
    if (repeats[0] == NULL || repeats[1] == NULL || !room_for(m, c->d->row_count)) {
        return;
    }
    for (int i = 0; i < c->d->row_count; i++) {
        const ckpt_compare_row *const row = &c->d->row[i];
        const ckpt_compare_value *const v = &row->value;
        const int at[] = {ckpt_names_find(&rows[0], row->name), ckpt_names_find(&rows[1], row->name)};
        const int was = at[0] >= 0 ? repeats[0][at[0]] : 0, is = at[1] >= 0 ? repeats[1][at[1]] : 0;
        char percent[CKPT_UNITS_TEXT];
        if (direction != NULL && strcmp(direction, row->part) != 0) {
            continue;
        }
        const char *const times = is > 1 || was > 1 ? CKPT_COMPARE_SAY(c, " ×%d", is > 0 ? is : was) : "";
        const char *const what = was == 0   ? "added"
                                 : is == 0  ? "removed"
                                 : is > was ? CKPT_COMPARE_SAY(c, "%d more of them", is - was)
                                 : is < was ? CKPT_COMPARE_SAY(c, "%d fewer of them", was - is)
                                            : ckpt_compare_show_percent(v, percent);
        add(m, CKPT_COMPARE_SAY(c, "%s %s%s", ckpt_compare_name(c, row->name), row->part, times),
            ckpt_compare_keep(c, ckpt_arena_text(c->out, what)), ckpt_plus(v->fresh * is, -v->base * was),
            was != is || v->change == CKPT_CHANGE_WORSE || v->change == CKPT_CHANGE_BETTER);
    }
}

/* Budgets of a sweep at which it is worse: each a change of its own, so there is no sum. */
static void say_budgets(causes *m)
{
    const ckpt_difference *const d = m->c->d;
    int worse = 0;
    for (int i = 0; i < d->row_count; i++) {
        const ckpt_compare_value *const v = &d->row[i].value;
        char text[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
        if (v->change == CKPT_CHANGE_WORSE && worse++ < LINES) {
            say(m, CKPT_COMPARE_SAY(m->c, "at %s: %s (%s)", ckpt_compare_name(m->c, d->row[i].name),
                                    ckpt_compare_show_change(v, text), ckpt_compare_show_percent(v, percent)));
        }
    }
    if (worse > LINES) {
        say(m, CKPT_COMPARE_SAY(m->c, "and %d more", worse - LINES));
    }
}

static bool is(const ckpt_metric *metric, const char *name)
{
    return strcmp(metric->name, name) == 0;
}

static const char rest[] = "what the files do not tell";

/* Which share of the layers a metric is made of; -1: of none. */
static int share_of(const ckpt_metric *metric)
{
    static const struct {
        const char *metric;
        ckpt_share share;
    } shares[] = {{"peak", CKPT_SHARE_PEAK},
                  {"static", CKPT_SHARE_PEAK},
                  {"arena", CKPT_SHARE_PEAK},
                  {"step_time", CKPT_SHARE_TIME},
                  {"recompute", CKPT_SHARE_RECOMPUTED},
                  {"keep_all_time", CKPT_SHARE_KEEP_ALL},
                  {"offload", CKPT_SHARE_COPIED},
                  {"host", CKPT_SHARE_HOST},
                  {"other_ways", CKPT_SHARE_OTHER_WAYS},
                  {"inexact", CKPT_SHARE_INEXACT},
                  {"forward", CKPT_SHARE_FORWARD},
                  {"backward", CKPT_SHARE_BACKWARD},
                  {"update", CKPT_SHARE_UPDATE},
                  {"copy", CKPT_SHARE_COPY},
                  {"wait", CKPT_SHARE_WAIT}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        if (is(metric, shares[i].metric)) {
            return (int)shares[i].share;
        }
    }
    return -1;
}

static void explain_layers(causes *m)
{
    const ckpt_plan *const base = m->c->file[0]->plan, *const fresh = m->c->file[1]->plan;
    const int share = share_of(m->metric);
    if (fresh != NULL && is(m->metric, "overhead")) {
        add_ratio(m, base->keep_all_time_ns, fresh->keep_all_time_ns, "keep-all time");
        put_parts(m, rest);
    } else if (fresh != NULL && is(m->metric, "gap")) {
        add_ratio(m, base->bound_ns, fresh->bound_ns, "bound");
        put_parts(m, rest);
    } else if (share >= 0) {
        const bool arena = is(m->metric, "arena");
        add_layers(m, (ckpt_share)share, is(m->metric, "static") ? STATICS : arena ? NO_STATICS : ALL);
        put_parts(m, arena ? "where buffers are placed" : rest);
    }
}

static void explain(causes *m)
{
    const ckpt_compare_kind kind = m->c->file[0]->kind;
    const ckpt_plan *const plan = m->c->file[1]->plan;
    const ckpt_compare_value *const value = m->value;
    if (kind == CKPT_COMPARE_PLAN && plan->verdict != CKPT_FITS && (value == NULL || !value->has_new)) {
        char budget[CKPT_UNITS_TEXT], known[CKPT_UNITS_TEXT];
        say_settings(m);
        say(m, CKPT_COMPARE_SAY(m->c, "NEW does not fit its budget of %s; a plan is known for %s",
                                ckpt_bytes_show(plan->budget_bytes, budget),
                                ckpt_bytes_show(plan->min_budget_bytes, known)));
    } else if (value != NULL && value->has_base && value->fresh <= value->base && value->has_new) {
        say(m, "it is not more than in BASE");
    } else if (value == NULL || !value->has_base || !value->has_new) {
        say_settings(m);
    } else {
        say_settings(m);
        if (kind == CKPT_COMPARE_PLAN || kind == CKPT_COMPARE_TRACE) {
            explain_layers(m);
        } else if (kind == CKPT_COMPARE_PROFILE && m->metric->unit == CKPT_UNIT_NS) {
            add_rows(m, is(m->metric, "step_time") ? NULL : m->metric->name);
            put_parts(m, rest);
        } else if (kind == CKPT_COMPARE_SWEEP && (is(m->metric, "step_time") || is(m->metric, "mean_time"))) {
            say_budgets(m);
        }
    }
}

void ckpt_compare_causes(ckpt_comparer *c, ckpt_limit_result *result)
{
    causes m = {.c = c,
                .metric = result->limit->metric,
                .value = result->value,
                .line = CKPT_COMPARE_NEW(c, ckpt_because, LINES + 5)};
    if (m.line == NULL) {
        return;
    }
    explain(&m);
    if (m.count == 0) {
        say(&m, "the files do not tell what did it");
    }
    result->because = m.line;
    result->because_count = m.count;
}
