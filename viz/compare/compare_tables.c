/* The words of a comparison's tables, made once for every form that shows them. */
#include "viz/compare/compare_tables.h"

#include <string.h>

typedef struct maker {
    const ckpt_difference *d;
    ckpt_arena *out;
    ckpt_page *page;
    bool failed;
} maker;

static const char *keep(maker *m, const char *text)
{
    m->failed = m->failed || text == NULL;
    return text != NULL ? text : "";
}
#define SAY(m, ...) keep((m), ckpt_arena_format((m)->out, __VA_ARGS__))

/* A new table; NULL when it has no rows, or no memory. */
static ckpt_table *begin(maker *m, ckpt_table head, int rows)
{
    head.row = rows > 0 ? CKPT_NEW(m->out, ckpt_table_row, rows) : NULL;
    m->failed = m->failed || (rows > 0 && head.row == NULL);
    if (head.row == NULL) {
        return NULL;
    }
    head.note = head.note != NULL ? head.note : "";
    while (head.columns < CKPT_TABLE_COLUMNS && head.header[head.columns] != NULL) {
        head.columns++;
    }
    m->page->table[m->page->table_count] = head;
    return &m->page->table[m->page->table_count++];
}

static void add(ckpt_table *table, ckpt_table_row row)
{
    table->row[table->row_count++] = row;
    table->telling += row.tone != CKPT_CHANGE_SAME && row.tone != CKPT_CHANGE_NOISE;
}

static const char *number(maker *m, ckpt_compare_unit unit, bool has, int64_t value)
{
    char text[CKPT_UNITS_TEXT];
    return has ? keep(m, ckpt_arena_text(m->out, ckpt_compare_show(unit, value, text))) : "–";
}

static const char *change_of(maker *m, const ckpt_compare_value *value)
{
    char text[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
    ckpt_compare_show_change(value, text);
    return ckpt_compare_show_percent(value, percent)[0] != '\0' ? SAY(m, "%s (%s)", text, percent) : SAY(m, "%s", text);
}

/* "worse (p = 0.010)", "~ (p = 0.310)", "not enough samples (3, wanted 5)", "=". */
static const char *verdict_of(maker *m, const ckpt_compare_value *value)
{
    const bool noise = value->change == CKPT_CHANGE_NOISE;
    const char *const name = noise ? "~" : ckpt_compare_change_name(value->change);
    return value->change == CKPT_CHANGE_SAME ? "="
           : value->tested         ? SAY(m, value->p < 0.001 ? "%s (p < 0.001)" : "%s (p = %.3f)", name, value->p)
           : value->why[0] == '\0' ? name
           : noise                 ? SAY(m, "~ %s", value->why)
                                   : value->why;
}

/* A metric that is 0 on both sides says nothing. */
static void add_metrics(maker *m)
{
    ckpt_table *const table = begin(
        m, (ckpt_table){.title = "Metrics", .header = {"metric", "base", "new", "change", "verdict"}, .numbers = 0xE},
        m->d->value_count);
    for (int i = 0; table != NULL && i < m->d->value_count; i++) {
        const ckpt_compare_value *const v = &m->d->value[i];
        const char *const label = v->where[0] != '\0' ? SAY(m, "%s %s", v->metric->label, v->where) : v->metric->label;
        if (v->base != 0 || v->fresh != 0) {
            add(table, (ckpt_table_row){.cell = {label, number(m, v->metric->unit, v->has_base, v->base),
                                                 number(m, v->metric->unit, v->has_new, v->fresh), change_of(m, v),
                                                 verdict_of(m, v)},
                                        .tone = v->change});
        }
    }
}

static void add_limits(maker *m)
{
    static const ckpt_compare_change tones[] = {CKPT_CHANGE_BETTER, CKPT_CHANGE_WORSE, CKPT_CHANGE_OTHER};
    ckpt_table *const table =
        begin(m, (ckpt_table){.title = "Limits", .header = {"state", "limit"}, .lines = true}, m->d->limit_count);
    for (int i = 0; table != NULL && i < m->d->limit_count; i++) {
        const ckpt_limit_result *const r = &m->d->limit[i];
        const char *found = r->text;
        for (int k = 0; k < r->because_count; k++) {
            found = SAY(m, "%s\n%s", found, r->because[k]);
        }
        add(table, (ckpt_table_row){.cell = {ckpt_limit_state_name(r->state), found}, .tone = tones[r->state]});
    }
}

/* "+12.3 ms", or "" for nothing. */
static const char *more(maker *m, ckpt_compare_unit unit, int64_t value)
{
    char text[CKPT_UNITS_TEXT];
    return value == 0 ? "" : SAY(m, "%s%s", value > 0 ? "+" : "", ckpt_compare_show(unit, value, text));
}

static void add_decisions(maker *m)
{
    ckpt_table *const table =
        begin(m,
              (ckpt_table){.title = "Decisions that changed",
                           .header = {"layers", "", "decision", "recomputed", "at the peak", "copied to the host"},
                           .numbers = 0x38,
                           .names = 1,
                           .cut = true},
              m->d->decision_group_count);
    for (int i = 0; table != NULL && i < m->d->decision_group_count; i++) {
        const ckpt_decision_group *const g = &m->d->decision_group[i];
        const char *const of = g->of > 0 ? SAY(m, " of %d", g->of) : "";
        add(table,
            (ckpt_table_row){.cell = {g->name, g->count > 1 ? SAY(m, "×%d%s", g->count, of) : "",
                                      SAY(m, "%s → %s", ckpt_decision_name(g->base), ckpt_decision_name(g->fresh)),
                                      more(m, CKPT_UNIT_NS, g->recomputed_ns), more(m, CKPT_UNIT_BYTES, g->peak_bytes),
                                      more(m, CKPT_UNIT_BYTES, g->copied_bytes)},
                             .tone = CKPT_CHANGE_OTHER});
    }
}

static void add_ways(maker *m)
{
    ckpt_table *const table = begin(m,
                                    (ckpt_table){.title = "Ways that changed",
                                                 .header = {"ops", "", "way", "time", "workspace"},
                                                 .numbers = 0x18,
                                                 .names = 1,
                                                 .cut = true},
                                    m->d->way_group_count);
    for (int i = 0; table != NULL && i < m->d->way_group_count; i++) {
        const ckpt_way_group *const g = &m->d->way_group[i];
        const char *const of = g->of > 0 ? SAY(m, " of %d", g->of) : "";
        add(table, (ckpt_table_row){.cell = {g->name, g->count > 1 ? SAY(m, "×%d%s", g->count, of) : "",
                                             SAY(m, "%s → %s", g->base, g->fresh),
                                             g->timed ? more(m, CKPT_UNIT_NS, g->time_ns) : "–",
                                             more(m, CKPT_UNIT_BYTES, g->workspace_bytes)},
                                    .tone = CKPT_CHANGE_OTHER});
    }
}

static void add_contributors(maker *m)
{
    ckpt_table *const table =
        begin(m,
              (ckpt_table){.title = "What makes the peak another",
                           .header = {"buffer", "kind", "base", "new", "change", "why it is there"},
                           .numbers = 0x1C,
                           .names = 1,
                           .cut = true,
                           .note = SAY(m, "the peaks: %s in base, %s in new", m->d->base_peak, m->d->peak)},
              m->d->contributor_count);
    for (int i = 0; table != NULL && i < m->d->contributor_count; i++) {
        const ckpt_contributor *const c = &m->d->contributor[i];
        add(table, (ckpt_table_row){.cell = {c->name, c->what, number(m, CKPT_UNIT_BYTES, c->base > 0, c->base),
                                             number(m, CKPT_UNIT_BYTES, c->fresh > 0, c->fresh),
                                             more(m, CKPT_UNIT_BYTES, c->fresh - c->base),
                                             c->fresh > 0 ? c->reason : c->base_reason},
                                    .tone = CKPT_CHANGE_OTHER});
    }
}

static void add_rows(maker *m)
{
    ckpt_table *const table = begin(m,
                                    (ckpt_table){.title = m->d->row_title, /* a word that is the first column's too */
                                                 .header = {m->d->row_title, "", "base", "new", "change", "verdict"},
                                                 .numbers = 0x1C,
                                                 .names = 1,
                                                 .cut = true},
                                    m->d->row_count);
    bool tested = false;
    for (int i = 0; table != NULL && i < m->d->row_count; i++) {
        const ckpt_compare_row *const r = &m->d->row[i];
        const ckpt_compare_value *const v = &r->value;
        tested = tested || v->tested;
        add(table, (ckpt_table_row){.cell = {r->name, r->part, number(m, v->metric->unit, v->has_base, v->base),
                                             number(m, v->metric->unit, v->has_new, v->fresh), change_of(m, v),
                                             verdict_of(m, v)},
                                    .tone = v->change});
    }
    if (tested) {
        table->note = "p is corrected for all rows together (Holm)";
    }
}

bool ckpt_page_make(const ckpt_difference *difference, ckpt_arena *out, ckpt_page *page)
{
    *page = (ckpt_page){.difference = difference, .verdict = ckpt_compare_verdict(difference, out)};
    maker m = {.d = difference, .out = out, .page = page, .failed = page->verdict == NULL};
    for (int i = 0; i < difference->note_count; i++) {
        page->note[page->note_count++] = difference->note[i];
    }
    if (difference->first_difference != NULL && difference->first_difference[0] != '\0') {
        page->note[page->note_count++] = difference->first_difference;
    }
    add_metrics(&m);
    add_limits(&m);
    add_decisions(&m);
    add_ways(&m);
    add_contributors(&m);
    add_rows(&m);
    return !m.failed;
}
