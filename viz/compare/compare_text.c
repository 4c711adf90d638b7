/* A comparison for people: one table of numbers, then what made them so. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare.h"
#include "viz/compare/compare_impl.h"
#include "viz/draw/draw.h"

enum { SHOWN = 10, COLUMNS = 5, REASON = 160 };

typedef struct page {
    ckpt_text *text;
    ckpt_arena arena; /* for words that do not outlive a line */
    bool color;
} page;

static int columns_of(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return count;
}

/* `columns` < 0: aligned right. */
static void put(const page *p, const char *text, int columns)
{
    const int width = columns < 0 ? -columns : columns, pad = width - columns_of(text);
    ckpt_text_add(p->text, "%*s%s%*s", columns < 0 && pad > 0 ? pad : 0, "", text, columns > 0 && pad > 0 ? pad : 0,
                  "");
}

/* Red and green for what is worse and better, faint for what is not. */
static void tint(const page *p, ckpt_compare_change change, bool on)
{
    const char *const code = change == CKPT_CHANGE_WORSE    ? "\033[31m"
                             : change == CKPT_CHANGE_BETTER ? "\033[32m"
                                                            : "\033[2m";
    if (p->color && change != CKPT_CHANGE_OTHER && change != CKPT_CHANGE_MISSING) {
        ckpt_text_add(p->text, "%s", on ? code : "\033[0m");
    }
}

static void put_title(const page *p, const char *title)
{
    ckpt_text_add(p->text, p->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", title);
}

/* "?" for what is no letter: names of files and layers may hold anything. */
static const char *clip(page *p, const char *name, int letters)
{
    const char *const text = ckpt_compare_clip(&p->arena, name, letters);
    p->text->failed = p->text->failed || text == NULL;
    return text != NULL ? text : "";
}

static const char *clean(page *p, const char *name)
{
    return clip(p, name, CKPT_COMPARE_LETTERS);
}

/* "worse", "~", "not enough samples (3, wanted 5)", "NEW does not fit its budget". */
static const char *word(page *p, const ckpt_compare_value *value)
{
    const char *text = value->why;
    switch (value->change) {
    case CKPT_CHANGE_SAME: return "=";
    case CKPT_CHANGE_NOISE:
        text = value->tested ? ckpt_arena_format(&p->arena, "~ p=%.2f", value->p)
                             : ckpt_arena_format(&p->arena, "~ %s", value->why);
        break;
    case CKPT_CHANGE_BETTER:
    case CKPT_CHANGE_WORSE:
        text = ckpt_compare_change_name(value->change);
        text = value->tested
                   ? ckpt_arena_format(&p->arena, value->p < 0.001 ? "%s p<0.001" : "%s p=%.3f", text, value->p)
                   : text;
        break;
    case CKPT_CHANGE_OTHER:
    case CKPT_CHANGE_FEW:
    case CKPT_CHANGE_MISSING:
    case CKPT_CHANGE_UNJUDGED: break;
    }
    p->text->failed = p->text->failed || text == NULL;
    return text != NULL ? text : "";
}

/* One line of the table: its cells, made before it is aligned. */
typedef struct line {
    const char *cell[COLUMNS + 1];
    ckpt_compare_change change;
} line;

static const char *keep(page *p, const char *text)
{
    const char *const kept = ckpt_arena_text(&p->arena, text);
    p->text->failed = p->text->failed || kept == NULL;
    return kept != NULL ? kept : "";
}

static line line_of(page *p, const char *name, const ckpt_compare_value *v)
{
    char text[CKPT_UNITS_TEXT];
    const ckpt_compare_unit unit = v->metric->unit;
    line l = {{name, "-", "-", "", "", ""}, v->change};
    l.cell[1] = v->has_base ? keep(p, ckpt_compare_show(unit, v->base, text)) : "-";
    l.cell[2] = v->has_new ? keep(p, ckpt_compare_show(unit, v->fresh, text)) : "-";
    l.cell[3] = keep(p, ckpt_compare_show_change(v, text));
    l.cell[4] = keep(p, ckpt_compare_show_percent(v, text));
    l.cell[5] = word(p, v);
    return l;
}

/* Cells that end a line are not filled up. */
static void trim(ckpt_text *text)
{
    while (text->length > 0 && text->bytes[text->length - 1] == ' ') {
        text->bytes[--text->length] = '\0';
    }
}

static void put_lines(const page *p, const line *l, int count)
{
    int width[COLUMNS] = {0};
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < COLUMNS; k++) {
            const int own = columns_of(l[i].cell[k]);
            width[k] = own > width[k] ? own : width[k];
        }
    }
    for (int i = 0; i < count; i++) {
        ckpt_text_add(p->text, "  ");
        put(p, l[i].cell[0], width[0]);
        tint(p, l[i].change, true);
        for (int k = 1; k < COLUMNS; k++) {
            ckpt_text_add(p->text, "  ");
            put(p, l[i].cell[k], -width[k]);
        }
        ckpt_text_add(p->text, "%s%s", l[i].cell[COLUMNS][0] != '\0' ? "  " : "", l[i].cell[COLUMNS]);
        trim(p->text);
        tint(p, l[i].change, false);
        ckpt_text_add(p->text, "\n");
    }
}

/* Numbers that are 0 on both sides say nothing. */
static void put_values(page *p, const ckpt_difference *d)
{
    line l[CKPT_COMPARE_VALUES + 1] = {{{"", "base", "new", "change", "", ""}, CKPT_CHANGE_OTHER}};
    int count = 1;
    for (int i = 0; i < d->value_count; i++) {
        const ckpt_compare_value *const v = &d->value[i];
        if (v->base != 0 || v->fresh != 0) {
            const char *const name = v->where[0] != '\0'
                                         ? ckpt_arena_format(&p->arena, "%s %s", v->metric->label, v->where)
                                         : v->metric->label;
            l[count++] = line_of(p, name != NULL ? name : "", v);
        }
    }
    put_lines(p, l, count);
}

static void put_left_out(const page *p, int count, const char *what)
{
    if (count > 0) {
        ckpt_text_add(p->text, "  and %d more %s%s; --json has all\n", count, what, count > 1 ? "s" : "");
    }
}

/* "+12.3 ms", "-75.0 MB at the peak" */
static const char *more(page *p, ckpt_compare_unit unit, int64_t change, const char *tail)
{
    char text[CKPT_UNITS_TEXT] = "+";
    ckpt_compare_show(unit, change, text + (change >= 0));
    const char *const all = ckpt_arena_format(&p->arena, "%s%s", text, tail);
    p->text->failed = p->text->failed || all == NULL;
    return all != NULL ? all : "";
}

static void put_decisions(page *p, const ckpt_difference *d)
{
    if (d->decision_count == 0) {
        return;
    }
    put_title(p, "decisions that changed");
    const int count = d->decision_group_count < SHOWN ? d->decision_group_count : SHOWN;
    const char *name[SHOWN];
    int width = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_decision_group *const g = &d->decision_group[i];
        const char *const clear = clean(p, g->name);
        name[i] = g->count == 1 ? clear
                  : g->of > 0   ? ckpt_arena_format(&p->arena, "%s ×%d of %d", clear, g->count, g->of)
                                : ckpt_arena_format(&p->arena, "%s ×%d", clear, g->count);
        p->text->failed = p->text->failed || name[i] == NULL;
        name[i] = name[i] != NULL ? name[i] : "";
        width = columns_of(name[i]) > width ? columns_of(name[i]) : width;
    }
    for (int i = 0; i < count; i++) {
        const ckpt_decision_group *const g = &d->decision_group[i];
        const char *between = ": ";
        ckpt_text_add(p->text, "  ");
        put(p, name[i], width);
        ckpt_text_add(p->text, "  %s -> %s", ckpt_decision_name(g->base), ckpt_decision_name(g->fresh));
        const struct {
            int64_t change;
            ckpt_compare_unit unit;
            const char *tail;
        } parts[] = {{g->again_ns, CKPT_UNIT_NS, ""},
                     {g->peak_bytes, CKPT_UNIT_BYTES, " at the peak"},
                     {g->copied_bytes, CKPT_UNIT_BYTES, " copied to the host"}};
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            if (parts[k].change != 0) {
                ckpt_text_add(p->text, "%s%s", between, more(p, parts[k].unit, parts[k].change, parts[k].tail));
                between = ", ";
            }
        }
        ckpt_text_add(p->text, "\n");
    }
    put_left_out(p, d->decision_group_count - count, "group");
}

static void put_contributors(page *p, const ckpt_difference *d)
{
    if (d->contributor_count == 0) {
        return;
    }
    put_title(p, "what is in memory at the peak and was not, or no longer is");
    ckpt_text_add(p->text, "  base: %s; new: %s\n", d->base_peak, d->peak);
    const int count = d->contributor_count < SHOWN ? d->contributor_count : SHOWN;
    const char *name[SHOWN], *change[SHOWN];
    int width = 0, change_width = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_contributor *const it = &d->contributor[i];
        name[i] = clean(p, it->name);
        change[i] = more(p, CKPT_UNIT_BYTES, it->fresh - it->base, "");
        width = columns_of(name[i]) > width ? columns_of(name[i]) : width;
        change_width = columns_of(change[i]) > change_width ? columns_of(change[i]) : change_width;
    }
    for (int i = 0; i < count; i++) {
        const ckpt_contributor *const it = &d->contributor[i];
        const char *const reason = it->fresh > 0 ? it->reason : it->base_reason;
        ckpt_text_add(p->text, "  ");
        put(p, change[i], -change_width);
        ckpt_text_add(p->text, "  ");
        put(p, name[i], width);
        ckpt_text_add(p->text, "  %s%s%s%s\n", it->what,
                      it->fresh == 0  ? ", only in base"
                      : it->base == 0 ? ", only in new"
                                      : "",
                      reason[0] != '\0' ? ": " : "", reason[0] != '\0' ? clip(p, reason, REASON) : "");
    }
    put_left_out(p, d->contributor_count - count, "buffer");
}

/* Rows that do not differ are counted; of times that is what a test says, for all rows together. */
static void put_rows(page *p, const ckpt_difference *d)
{
    line l[SHOWN];
    int count = 0, telling = 0, tested = 0;
    for (int i = 0; i < d->row_count; i++) {
        const ckpt_compare_row *const row = &d->row[i];
        tested += row->value.tested;
        if (row->value.change == CKPT_CHANGE_SAME || row->value.change == CKPT_CHANGE_NOISE) {
            continue;
        }
        if (telling++ < SHOWN) {
            const char *const name =
                ckpt_arena_format(&p->arena, "%s%s%s", clean(p, row->name), row->part[0] != '\0' ? " " : "", row->part);
            l[count++] = line_of(p, name != NULL ? name : "", &row->value);
        }
    }
    if (telling == 0 && tested == 0) {
        return;
    }
    put_title(p, d->row_title);
    put_lines(p, l, count);
    put_left_out(p, telling - count, "row");
    if (telling < d->row_count) {
        ckpt_text_add(p->text, "  %d %sthat do not differ%s\n", d->row_count - telling, telling > 0 ? "more " : "",
                      tested > 0 ? " significantly; p is corrected for all rows together (Holm)" : "");
    }
}

static void put_limits(page *p, const ckpt_difference *d)
{
    static const char *const states[] = {"held", "EXCEEDED", "open"};
    if (d->limit_count > 0) {
        put_title(p, "limits");
    }
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        const ckpt_compare_change change = r->state == CKPT_LIMIT_EXCEEDED ? CKPT_CHANGE_WORSE
                                           : r->state == CKPT_LIMIT_HELD   ? CKPT_CHANGE_BETTER
                                                                           : CKPT_CHANGE_NOISE;
        ckpt_text_add(p->text, "  ");
        tint(p, change, true);
        put(p, states[r->state], 8);
        tint(p, change, false);
        ckpt_text_add(p->text, "  %s\n", r->text);
        for (int k = 0; k < r->because_count; k++) {
            ckpt_text_add(p->text, "            %s\n", r->because[k]);
        }
    }
}

static void put_difference(page *p, const ckpt_compare_report *report, const ckpt_difference *d)
{
    ckpt_text_add(p->text, p->color ? "\033[1m%s %s against %s\033[0m\n" : "%s %s against %s\n",
                  ckpt_compare_kind_name(report->kind), clean(p, d->fresh->source), clean(p, d->base->source));
    for (int i = 0; i < d->mismatch_count; i++) {
        const ckpt_compare_mismatch *const m = &d->mismatch[i];
        ckpt_text_add(p->text, "  %s %s: %s, not %s%s\n", ckpt_compare_another(m->what), m->what, m->fresh, m->base,
                      d->compared ? "; compared all the same (--force)" : "");
    }
    if (d->compared) {
        put_values(p, d);
        for (int i = 0; i < d->note_count; i++) {
            ckpt_text_add(p->text, "  note: %s\n", d->note[i]);
        }
        if (d->first_difference[0] != '\0') {
            ckpt_text_add(p->text, "  %s\n", d->first_difference);
        }
        put_decisions(p, d);
        put_contributors(p, d);
        put_rows(p, d);
        put_limits(p, d);
        ckpt_text_add(p->text, "\n");
    }
    const char *const verdict = ckpt_compare_verdict(d, &p->arena);
    const ckpt_compare_change tone = d->exceeded || d->worse > 0 || d->lost || !d->compared ? CKPT_CHANGE_WORSE
                                     : d->better > 0                                        ? CKPT_CHANGE_BETTER
                                                                                            : CKPT_CHANGE_OTHER;
    p->text->failed = p->text->failed || verdict == NULL;
    tint(p, tone, true);
    ckpt_text_add(p->text, "%s", verdict != NULL ? verdict : "");
    tint(p, tone, false);
    ckpt_text_add(p->text, "\n");
}

void ckpt_compare_text(const ckpt_compare_report *report, bool color, ckpt_text *text)
{
    page p = {.text = text, .color = color};
    ckpt_arena_init(&p.arena);
    for (int i = 0; i < report->count; i++) {
        ckpt_text_add(text, "%s", i > 0 ? "\n" : "");
        put_difference(&p, report, &report->difference[i]);
        const ckpt_mark start = {NULL, 0};
        ckpt_arena_rewind(&p.arena, start);
    }
    ckpt_arena_fini(&p.arena);
}
