/* The words of a comparison's tables, made once for every form that shows them. */
#include "viz/compare/compare_tables.h"

#include <string.h>

typedef struct maker {
    const ckpt_difference *difference;
    ckpt_arena *out;
    ckpt_table *table;
    int count;
    bool failed;
} maker;

static const char *keep(maker *m, const char *text)
{
    m->failed = m->failed || text == NULL;
    return text != NULL ? text : "";
}

/* A new table with room for `rows`; NULL when there are none, or no memory. */
static ckpt_table_row *begin(maker *m, const ckpt_table *head, int rows)
{
    if (rows == 0 || m->failed) {
        return NULL;
    }
    ckpt_table_row *const row = CKPT_NEW(m->out, ckpt_table_row, rows);
    m->failed = row == NULL;
    if (row != NULL) {
        m->table[m->count] = *head;
        m->table[m->count].row = row;
        m->table[m->count++].row_count = rows;
    }
    return row;
}

static const char *number(maker *m, ckpt_compare_unit unit, bool has, int64_t value)
{
    char text[CKPT_UNITS_TEXT];
    return has ? keep(m, ckpt_arena_text(m->out, ckpt_compare_show(unit, value, text))) : "–";
}

static const char *change_of(maker *m, const ckpt_compare_value *value)
{
    char text[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
    if (!value->has_base || !value->has_new) {
        return "";
    }
    ckpt_compare_show_change(value, text);
    ckpt_compare_show_percent(value, percent);
    return percent[0] != '\0' ? keep(m, ckpt_arena_format(m->out, "%s (%s)", text, percent))
                              : keep(m, ckpt_arena_text(m->out, text));
}

/* "worse (p = 0.01)", "~ (p = 0.31)", "too few samples: not enough samples (3, wanted 5)". */
static const char *verdict_of(maker *m, const ckpt_compare_value *value)
{
    const char *const name = value->change == CKPT_CHANGE_NOISE ? "~" : ckpt_compare_change_name(value->change);
    const char *const why = value->why;
    if (value->tested) {
        return keep(m, ckpt_arena_format(m->out, "%s (p = %.3g)", name, value->p));
    }
    return why[0] != '\0' ? keep(m, ckpt_arena_format(m->out, "%s: %s", name, why)) : name;
}

/* A metric that is 0 on both sides says nothing. */
static bool telling(const ckpt_compare_value *v)
{
    return v->base != 0 || v->fresh != 0;
}

static void add_metrics(maker *m)
{
    const ckpt_difference *const d = m->difference;
    int rows = 0, next = 0;
    for (int i = 0; i < d->value_count; i++) {
        rows += telling(&d->value[i]);
    }
    const ckpt_table head = {
        .title = "Metrics", .header = {"metric", "base", "new", "change", "verdict"}, .columns = 5, .numbers = 0xE};
    ckpt_table_row *const row = begin(m, &head, rows);
    for (int i = 0; row != NULL && i < d->value_count; i++) {
        const ckpt_compare_value *const v = &d->value[i];
        if (!telling(v)) {
            continue;
        }
        const char *const label = v->where[0] != '\0'
                                      ? keep(m, ckpt_arena_format(m->out, "%s, %s", v->metric->label, v->where))
                                      : v->metric->label;
        row[next++] = (ckpt_table_row){.cell = {label, number(m, v->metric->unit, v->has_base, v->base),
                                                number(m, v->metric->unit, v->has_new, v->fresh), change_of(m, v),
                                                verdict_of(m, v)},
                                       .tone = v->change};
    }
}

static void add_limits(maker *m)
{
    static const char *const states[] = {"held", "exceeded", "open"};
    const ckpt_difference *const d = m->difference;
    const ckpt_table head = {.title = "Limits", .header = {"limit", "state", "found", "because"}, .columns = 4};
    ckpt_table_row *const row = begin(m, &head, d->limit_count);
    for (int i = 0; row != NULL && i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        const char *because = "";
        for (int k = 0; k < r->because_count; k++) {
            because = keep(m, ckpt_arena_format(m->out, "%s%s%s", because, k > 0 ? "\n" : "", r->because[k]));
        }
        row[i] = (ckpt_table_row){
            .cell = {r->limit->text, states[r->state], r->text, because},
            .tone = r->state == CKPT_LIMIT_EXCEEDED ? CKPT_CHANGE_WORSE : CKPT_CHANGE_SAME,
        };
    }
}

/* "+12.3 ms", or "" for nothing. */
static const char *more(maker *m, ckpt_compare_unit unit, int64_t value)
{
    char text[CKPT_UNITS_TEXT];
    if (value == 0) {
        return "";
    }
    const char *const sign = value > 0 ? "+" : "-";
    return keep(m, ckpt_arena_format(m->out, "%s%s", sign, ckpt_compare_show(unit, value > 0 ? value : -value, text)));
}

static void add_decisions(maker *m)
{
    const ckpt_difference *const d = m->difference;
    const ckpt_table head = {.title = "Decisions that changed",
                             .header = {"layers", "", "decision", "in runs again", "at the peak", "copied to the host"},
                             .columns = 6,
                             .numbers = 0x3A,
                             .names = 1};
    ckpt_table_row *const row = begin(m, &head, d->decision_group_count);
    for (int i = 0; row != NULL && i < d->decision_group_count; i++) {
        const ckpt_decision_group *const g = &d->decision_group[i];
        const char *const of = g->of > 0 ? keep(m, ckpt_arena_format(m->out, " of %d", g->of)) : "";
        const char *const times = g->count > 1 ? keep(m, ckpt_arena_format(m->out, "×%d%s", g->count, of)) : "";
        const char *const decision =
            keep(m, ckpt_arena_format(m->out, "%s → %s", ckpt_decision_name(g->base), ckpt_decision_name(g->fresh)));
        row[i] = (ckpt_table_row){.cell = {g->name, times, decision, more(m, CKPT_UNIT_NS, g->again_ns),
                                           more(m, CKPT_UNIT_BYTES, g->peak_bytes),
                                           more(m, CKPT_UNIT_BYTES, g->copied_bytes)},
                                  .tone = CKPT_CHANGE_SAME};
    }
}

static void add_contributors(maker *m)
{
    const ckpt_difference *const d = m->difference;
    const ckpt_table head = {.title = "What makes the peak another",
                             .header = {"buffer", "kind", "base", "new", "change", "why it is there"},
                             .columns = 6,
                             .numbers = 0x1C,
                             .names = 1};
    ckpt_table_row *const row = begin(m, &head, d->contributor_count);
    for (int i = 0; row != NULL && i < d->contributor_count; i++) {
        const ckpt_contributor *const c = &d->contributor[i];
        row[i] = (ckpt_table_row){
            .cell = {c->name, c->what, number(m, CKPT_UNIT_BYTES, true, c->base),
                     number(m, CKPT_UNIT_BYTES, true, c->fresh), more(m, CKPT_UNIT_BYTES, c->fresh - c->base),
                     c->fresh > 0 ? c->reason : c->base_reason},
            .tone = CKPT_CHANGE_SAME,
        };
    }
}

static void add_rows(maker *m)
{
    const ckpt_difference *const d = m->difference;
    const ckpt_table head = {.title = d->row_title, /* a word that is the first column's too */
                             .header = {d->row_title, "", "base", "new", "change", "verdict"},
                             .columns = 6,
                             .numbers = 0x1C,
                             .names = 1};
    ckpt_table_row *const row = begin(m, &head, d->row_count);
    for (int i = 0; row != NULL && i < d->row_count; i++) {
        const ckpt_compare_value *const v = &d->row[i].value;
        row[i] = (ckpt_table_row){
            .cell = {d->row[i].name, d->row[i].part, number(m, v->metric->unit, v->has_base, v->base),
                     number(m, v->metric->unit, v->has_new, v->fresh), change_of(m, v), verdict_of(m, v)},
            .tone = v->change};
    }
}

ckpt_code ckpt_compare_tables(const ckpt_difference *difference, ckpt_arena *out, ckpt_table table[CKPT_TABLES_MAX],
                              int *count, ckpt_err *err)
{
    maker m = {.difference = difference, .out = out, .table = table};
    add_metrics(&m);
    add_limits(&m);
    add_decisions(&m);
    add_contributors(&m);
    add_rows(&m);
    if (m.failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the tables of a comparison");
    }
    *count = m.count;
    return CKPT_OK;
}
