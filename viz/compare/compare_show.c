/* How numbers and names of a comparison are written, and its verdict in one line; every form of the report
 * uses these. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/draw/draw.h"

const char *ckpt_compare_change_name(ckpt_compare_change change)
{
    static const char *const names[] = {"same",  "better",          "worse",   "changed",
                                        "noise", "too few samples", "missing", "not judged"};
    return names[change];
}

const char *ckpt_limit_state_name(ckpt_limit_state state)
{
    static const char *const names[] = {"held", "exceeded", "open"};
    return names[state];
}

const char *ckpt_compare_unit_name(ckpt_compare_unit unit)
{
    static const char *const names[] = {"bytes", "ns", "millionths", "count"};
    return names[unit];
}

const char *ckpt_compare_another(const char *what)
{
    const size_t length = strlen(what);
    return length > 0 && what[length - 1] == 's' ? "other" : "another"; /* "other threads" */
}

const char *ckpt_compare_clip(ckpt_arena *out, const char *name, int letters)
{
    enum { MOST = 200 };
    char clean[4 * MOST + 4];
    size_t length = 0;
    for (int i = 0; *name != '\0' && i < letters && i < MOST; i++) {
        const int bytes = ckpt_utf8_length(name);
        memcpy(clean + length, bytes > 0 ? name : "?", bytes > 0 ? (size_t)bytes : 1);
        length += bytes > 0 ? (size_t)bytes : 1;
        name += bytes > 0 ? bytes : 1;
    }
    strcpy(clean + length, *name != '\0' ? "…" : "");
    return ckpt_arena_text(out, clean);
}

const char *ckpt_compare_show(ckpt_compare_unit unit, int64_t value, char *text)
{
    switch (unit) {
    case CKPT_UNIT_BYTES: return ckpt_bytes_show(value, text);
    case CKPT_UNIT_NS: return ckpt_ns_show(value, text);
    case CKPT_UNIT_COUNT: snprintf(text, CKPT_UNITS_TEXT, "%lld", (long long)value); return text;
    case CKPT_UNIT_RATIO: break;
    }
    snprintf(text, CKPT_UNITS_TEXT, "%.2f %%", (double)value / 1e4);
    return text;
}

const char *ckpt_compare_show_change(const ckpt_compare_value *value, char *text)
{
    const int64_t change = value->fresh - value->base;
    text[0] = '\0';
    if (change == 0 || !value->has_base || !value->has_new) {
        return text;
    }
    if (value->metric->unit == CKPT_UNIT_RATIO) { /* of two percentages: in points */
        snprintf(text, CKPT_UNITS_TEXT, "%+.2f points", (double)change / 1e4);
        return text;
    }
    text[0] = '+';
    ckpt_compare_show(value->metric->unit, change, text + (change > 0));
    return text;
}

const char *ckpt_compare_show_percent(const ckpt_compare_value *value, char *text)
{
    text[0] = '\0';
    if (value->base != 0 && value->base != value->fresh && value->has_base && value->has_new &&
        value->metric->unit != CKPT_UNIT_RATIO) {
        snprintf(text, CKPT_UNITS_TEXT, "%+.2f %%",
                 100 * ((double)value->fresh - (double)value->base) / (double)value->base);
    }
    return text;
}

static const char *comma(const ckpt_text *text)
{
    return text->length > 0 ? ", " : "";
}

/* A change of less than a hundredth, or a point, which no exceeded limit names: nothing to say beside a failure. */
static bool trivial(const ckpt_difference *d, const ckpt_compare_value *v)
{
    for (int i = 0; i < d->limit_count; i++) {
        if (d->limit[i].state == CKPT_LIMIT_EXCEEDED && d->limit[i].limit->metric == v->metric) {
            return false;
        }
    }
    const double change = fabs((double)v->fresh - (double)v->base);
    return d->exceeded && change < (v->metric->unit == CKPT_UNIT_RATIO ? 1e4 : 0.01 * fabs((double)v->base));
}

/* "peak +75.0 MB (+1.20 %), step time +12.3 ms (+3.10 %)" of those that changed so. */
static void put_changed(const ckpt_difference *d, ckpt_compare_change change, ckpt_text *text)
{
    for (int i = 0; i < d->value_count; i++) {
        const ckpt_compare_value *const v = &d->value[i];
        char more[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
        if (v->change == change && !trivial(d, v)) {
            ckpt_text_add(text, "%s%s %s", comma(text), v->metric->label, ckpt_compare_show_change(v, more));
            ckpt_text_add(text, ckpt_compare_show_percent(v, percent)[0] != '\0' ? " (%s)" : "", percent);
        }
    }
}

/* How many layers of a profile a test finds different, though the sums over all layers need not be. */
static int tested_rows(const ckpt_difference *d, ckpt_compare_change change)
{
    int count = 0;
    for (int i = 0; i < d->row_count; i++) {
        count += d->row[i].value.tested && d->row[i].value.change == change;
    }
    return count;
}

static bool untouched(const ckpt_difference *d)
{
    bool same =
        d->layer_count == 0 && d->setting_count == 0 && d->contributor_count == 0 && d->first_difference[0] == '\0';
    for (int i = 0; i < d->value_count; i++) {
        same = same && d->value[i].change == CKPT_CHANGE_SAME;
    }
    return same;
}

/* Labels of the metrics whose limit is exceeded. */
static int put_exceeded(const ckpt_difference *d, ckpt_text *text)
{
    int count = 0;
    for (int i = 0; i < d->limit_count; i++) {
        if (d->limit[i].state == CKPT_LIMIT_EXCEEDED) {
            ckpt_text_add(text, "%s%s", comma(text), d->limit[i].limit->metric->label);
            count++;
        }
    }
    return count;
}

static void put_verdict(const ckpt_difference *d, ckpt_text *text, ckpt_text part[3])
{
    for (int i = 0; i < d->mismatch_count && !d->compared; i++) {
        const ckpt_compare_mismatch *const m = &d->mismatch[i];
        ckpt_text_add(text, "%s%s %s (%s, not %s)", i == 0 ? "not comparable: " : ", ", ckpt_compare_another(m->what),
                      m->what, m->fresh, m->base);
    }
    if (!d->compared) {
        return;
    }
    const int over = put_exceeded(d, &part[0]);
    put_changed(d, CKPT_CHANGE_WORSE, &part[1]);
    put_changed(d, CKPT_CHANGE_BETTER, &part[2]);
    const bool worse = part[1].length > 0, better = part[2].length > 0;
    const int rows_worse = tested_rows(d, CKPT_CHANGE_WORSE), rows_better = tested_rows(d, CKPT_CHANGE_BETTER);
    const bool rows = rows_worse + rows_better > 0;
    if (over > 0) {
        ckpt_text_add(text, "%d limit%s exceeded (%s); ", over, over > 1 ? "s" : "", part[0].bytes);
    } else if (d->limit_count > 0) {
        ckpt_text_add(text, "within limits; ");
    }
    for (int i = 0; i < d->setting_count; i++) {
        const ckpt_compare_mismatch *const s = &d->setting[i];
        if (strcmp(s->what, "budget") == 0 || strcmp(s->what, "model") == 0) {
            ckpt_text_add(text, "%s %s → %s; ", s->what, s->base, s->fresh);
        }
    }
    if (d->lost) {
        ckpt_text_add(text, "no longer fits its budget%s", worse || better ? "; " : "");
    } else if (!worse && !better) {
        ckpt_text_add(text, "%s",
                      untouched(d) ? "the same"
                      : rows       ? "nothing is better or worse in all"
                                   : "nothing is better or worse");
    }
    ckpt_text_add(text, worse ? "worse: %s%s" : "", part[1].bytes, better ? "; " : "");
    ckpt_text_add(text, better ? "better: %s" : "", part[2].bytes);
    if (rows) {
        ckpt_text_add(text, "; by layer and direction %d worse, %d better", rows_worse, rows_better);
    }
}

const char *ckpt_compare_verdict(const ckpt_difference *difference, ckpt_arena *out)
{
    ckpt_text text, part[3];
    ckpt_text_init(&text);
    for (int i = 0; i < 3; i++) {
        ckpt_text_init(&part[i]);
    }
    put_verdict(difference, &text, part);
    bool failed = text.failed;
    for (int i = 0; i < 3; i++) {
        failed = failed || part[i].failed;
        ckpt_text_fini(&part[i]);
    }
    const char *const verdict = failed ? NULL : ckpt_arena_text(out, text.bytes != NULL ? text.bytes : "");
    ckpt_text_fini(&text);
    return verdict;
}
