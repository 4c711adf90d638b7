/* How numbers of a comparison are written, and its verdict in one line; every form of the report uses these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

const char *ckpt_compare_show(ckpt_compare_unit unit, int64_t value, char *text)
{
    switch (unit) {
    case CKPT_UNIT_BYTES: return ckpt_bytes_show(value, text);
    case CKPT_UNIT_NS: return ckpt_ns_show(value, text);
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

/* "peak +75.0 MB (+1.20 %), step time +12.3 ms (+3.10 %)" of those that changed so. */
static const char *list(const ckpt_difference *d, ckpt_compare_change change, ckpt_arena *out)
{
    const char *all = "";
    for (int i = 0; i < d->value_count && all != NULL; i++) {
        const ckpt_compare_value *const v = &d->value[i];
        char more[CKPT_UNITS_TEXT], percent[CKPT_UNITS_TEXT];
        if (v->change == change) {
            ckpt_compare_show_change(v, more);
            ckpt_compare_show_percent(v, percent);
            all = ckpt_arena_format(out, "%s%s%s %s%s%s%s", all, all[0] != '\0' ? ", " : "", v->metric->label, more,
                                    percent[0] != '\0' ? " (" : "", percent, percent[0] != '\0' ? ")" : "");
        }
    }
    return all;
}

const char *ckpt_compare_another(const char *what)
{
    const size_t length = strlen(what);
    return length > 0 && what[length - 1] == 's' ? "other" : "another"; /* "other threads" */
}

static const char *mismatches(const ckpt_difference *d, ckpt_arena *out)
{
    const char *all = "";
    for (int i = 0; i < d->mismatch_count && all != NULL; i++) {
        const ckpt_compare_mismatch *const m = &d->mismatch[i];
        all = ckpt_arena_format(out, "%s%s%s %s (%s, not %s)", all, i > 0 ? ", " : "", ckpt_compare_another(m->what),
                                m->what, m->fresh, m->base);
    }
    return all;
}

/* Layers of a profile that a test finds different, though the sums over all layers need not be. */
static const char *layers(const ckpt_difference *d, ckpt_arena *out)
{
    int worse = 0, better = 0;
    for (int i = 0; i < d->row_count; i++) {
        worse += d->row[i].value.tested && d->row[i].value.change == CKPT_CHANGE_WORSE;
        better += d->row[i].value.tested && d->row[i].value.change == CKPT_CHANGE_BETTER;
    }
    return worse + better > 0 ? ckpt_arena_format(out, "; by layer and direction %d worse, %d better", worse, better)
                              : "";
}

static bool untouched(const ckpt_difference *d)
{
    bool same = d->decision_count == 0 && d->contributor_count == 0 && d->first_difference[0] == '\0';
    for (int i = 0; i < d->value_count; i++) {
        same = same && d->value[i].change == CKPT_CHANGE_SAME;
    }
    return same;
}

/* Limits in a state: "peak, step time". */
static const char *limits(const ckpt_difference *d, ckpt_limit_state state, int *count, ckpt_arena *out)
{
    const char *all = "";
    *count = 0;
    for (int i = 0; i < d->limit_count && all != NULL; i++) {
        if (d->limit[i].state == state) {
            (*count)++;
            all = ckpt_arena_format(out, "%s%s%s", all, all[0] != '\0' ? ", " : "", d->limit[i].limit->metric->label);
        }
    }
    return all;
}

const char *ckpt_compare_verdict(const ckpt_difference *d, ckpt_arena *out)
{
    if (!d->compared) {
        const char *const why = mismatches(d, out);
        return why != NULL ? ckpt_arena_format(out, "not comparable: %s", why) : NULL;
    }
    int over = 0;
    const char *const exceeded = limits(d, CKPT_LIMIT_EXCEEDED, &over, out);
    const char *const worse = list(d, CKPT_CHANGE_WORSE, out), *const better = list(d, CKPT_CHANGE_BETTER, out);
    const char *const rows = layers(d, out);
    if (exceeded == NULL || worse == NULL || better == NULL || rows == NULL) {
        return NULL;
    }
    const bool none = worse[0] == '\0' && better[0] == '\0';
    const char *const calm = !none || d->lost  ? ""
                             : untouched(d)    ? "the same"
                             : rows[0] != '\0' ? "nothing is better or worse in all"
                                               : "nothing is better or worse";
    char many[48] = "";
    if (over > 0) {
        snprintf(many, sizeof many, "%d limit%s exceeded (", over, over > 1 ? "s" : "");
    } else if (d->limit_count > 0) {
        snprintf(many, sizeof many, "within limits; ");
    }
    return ckpt_arena_format(out, "%s%s%s%s%s%s%s%s%s%s%s", many, exceeded, over > 0 ? "); " : "",
                             d->lost ? "no longer fits its budget" : "", d->lost && !none ? "; " : "",
                             worse[0] != '\0' ? "worse: " : "", worse,
                             worse[0] != '\0' && better[0] != '\0' ? "; " : "", better[0] != '\0' ? "better: " : "",
                             none ? calm : better, rows);
}
