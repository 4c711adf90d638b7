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

static void add_settings(maker *m)
{
    ckpt_table *const table = begin(
        m, (ckpt_table){.title = "What was changed", .header = {"", "base", "new"}, .names = 6}, m->d->setting_count);
    for (int i = 0; table != NULL && i < m->d->setting_count; i++) {
        const ckpt_compare_mismatch *const s = &m->d->setting[i];
        add(table, (ckpt_table_row){.cell = {s->what, s->base, s->fresh}, .tone = CKPT_CHANGE_OTHER});
    }
}

/* A row for each, and below it one for each line on what exceeded it. */
static void add_limits(maker *m)
{
    static const ckpt_compare_change tones[] = {CKPT_CHANGE_BETTER, CKPT_CHANGE_WORSE, CKPT_CHANGE_OTHER};
    int rows = m->d->limit_count;
    for (int i = 0; i < m->d->limit_count; i++) {
        rows += m->d->limit[i].because_count;
    }
    ckpt_table *const table =
        begin(m, (ckpt_table){.title = "Limits", .header = {"state", "limit"}, .whole = true}, rows);
    for (int i = 0; table != NULL && i < m->d->limit_count; i++) {
        const ckpt_limit_result *const r = &m->d->limit[i];
        add(table, (ckpt_table_row){.cell = {ckpt_limit_state_name(r->state), r->text}, .tone = tones[r->state]});
        for (int k = 0; k < r->because_count; k++) {
            add(table, (ckpt_table_row){.cell = {"", r->because[k].text}, .tone = CKPT_CHANGE_OTHER});
        }
    }
}

/* "+12.3 ms", or "" for nothing. */
static const char *more(maker *m, ckpt_compare_unit unit, int64_t value)
{
    char text[CKPT_UNITS_TEXT];
    return value == 0 ? "" : SAY(m, "%s%s", value > 0 ? "+" : "", ckpt_compare_show(unit, value, text));
}

static ckpt_table_row layer_row(maker *m, const char *name, const char *times, const char *what, const int64_t *by)
{
    return (ckpt_table_row){.cell = {name, times, what, more(m, CKPT_UNIT_NS, by[CKPT_SHARE_TIME]),
                                     more(m, CKPT_UNIT_NS, by[CKPT_SHARE_RECOMPUTED]),
                                     more(m, CKPT_UNIT_BYTES, by[CKPT_SHARE_PEAK]),
                                     more(m, CKPT_UNIT_BYTES, by[CKPT_SHARE_COPIED])},
                            .tone = CKPT_CHANGE_OTHER};
}

/* Of plans. A trace's layers explain its limits; times that were measured once are no table. */
static void add_layers(maker *m)
{
    int64_t rest[CKPT_SHARE_COUNT] = {0}, all[CKPT_SHARE_COUNT] = {0};
    const int most = m->d->fresh->plan != NULL ? m->d->layer_group_count : 0;
    int count = 0;
    for (int i = 0; i < most; i++) {
        count += !m->d->layer_group[i].minor;
    }
    ckpt_table *const table = begin(m,
                                    (ckpt_table){.title = "Layers that changed",
                                                 .header = {"layers", "", "change", "time", "of it recomputed",
                                                            "at the peak", "copied to the host"},
                                                 .numbers = 0x78,
                                                 .names = 1,
                                                 .cut = true},
                                    count);
    for (int i = 0; table != NULL && i < most; i++) {
        const ckpt_compare_group *const g = &m->d->layer_group[i];
        const char *const of = g->of > 0 ? SAY(m, " of %d", g->of) : "";
        for (int s = 0; s < CKPT_SHARE_COUNT; s++) {
            all[s] = ckpt_plus(all[s], g->by[s]);
            rest[s] = ckpt_plus(rest[s], table->row_count >= CKPT_TABLE_SHOWN ? g->by[s] : 0);
        }
        if (!g->minor) {
            add(table, layer_row(m, g->name, g->count > 1 ? SAY(m, "×%d%s", g->count, of) : "", g->what, g->by));
        }
    }
    if (table != NULL) {
        table->sums = true;
        table->rest = layer_row(m, SAY(m, "%d more", count - CKPT_TABLE_SHOWN), "", "", rest);
        table->sum = layer_row(m, "all", "", "", all);
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
    ckpt_bytes rest = 0, all = 0;
    const int count = m->d->contributor_count;
    ckpt_table *const table =
        begin(m,
              (ckpt_table){.title = "What makes the peak another",
                           .header = {"buffer", "kind", "base", "new", "change", "why it is there"},
                           .numbers = 0x1C,
                           .names = 1,
                           .cut = true,
                           .note = SAY(m, "the peaks: %s in base, %s in new", m->d->base_peak, m->d->peak)},
              count);
    for (int i = 0; table != NULL && i < count; i++) {
        const ckpt_contributor *const c = &m->d->contributor[i];
        all = ckpt_plus(all, c->fresh - c->base);
        rest = ckpt_plus(rest, i >= CKPT_TABLE_SHOWN ? c->fresh - c->base : 0);
        add(table, (ckpt_table_row){.cell = {c->name, c->what, number(m, CKPT_UNIT_BYTES, c->base > 0, c->base),
                                             number(m, CKPT_UNIT_BYTES, c->fresh > 0, c->fresh),
                                             more(m, CKPT_UNIT_BYTES, c->fresh - c->base),
                                             c->fresh > 0 ? c->reason : c->base_reason},
                                    .tone = CKPT_CHANGE_OTHER});
    }
    if (table != NULL) {
        table->sums = true;
        table->rest = (ckpt_table_row){
            .cell = {SAY(m, "%d more", count - CKPT_TABLE_SHOWN), "", "", "", more(m, CKPT_UNIT_BYTES, rest), "", ""},
            .tone = CKPT_CHANGE_OTHER};
        table->sum =
            (ckpt_table_row){.cell = {"all", "", "", "", all != 0 ? more(m, CKPT_UNIT_BYTES, all) : "0 B", "", ""},
                             .tone = CKPT_CHANGE_OTHER};
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

static void find_empty(ckpt_table *table)
{
    for (int c = 0; c < table->columns; c++) {
        bool any = false;
        for (int r = 0; r < table->row_count && !any; r++) {
            any = table->row[r].cell[c][0] != '\0';
        }
        table->empty |= any ? 0 : 1U << c;
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
    add_settings(&m);
    add_limits(&m);
    add_layers(&m);
    add_ways(&m);
    add_contributors(&m);
    add_rows(&m);
    for (int i = 0; i < page->table_count; i++) {
        find_empty(&page->table[i]);
    }
    return !m.failed;
}
