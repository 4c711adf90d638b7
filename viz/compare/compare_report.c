/* The report: each NEW against BASE, and what that means for the exit code. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/rank_tests.h"
#include "viz/draw/draw.h"

static const struct {
    ckpt_code (*match)(ckpt_comparer *c);
    ckpt_code (*compare)(ckpt_comparer *c);
} parts[CKPT_COMPARE_KIND_COUNT] = {
    {ckpt_match_plans, ckpt_compare_plans},
    {ckpt_match_profiles, ckpt_compare_profiles},
    {ckpt_match_traces, ckpt_compare_traces},
    {ckpt_match_sweeps, ckpt_compare_sweeps},
};

int64_t ckpt_plus(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX - b ? INT64_MAX : b < 0 && a < -INT64_MAX - b ? -INT64_MAX : a + b;
}

ckpt_code ckpt_compare_note(ckpt_comparer *c, const char *text)
{
    if (text == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
    }
    if (c->d->note_count < CKPT_COMPARE_NOTES) {
        c->note[c->d->note_count++] = text;
    }
    return CKPT_OK;
}

ckpt_code ckpt_compare_mismatched(ckpt_comparer *c, const char *what, const char *base, const char *fresh)
{
    if (base == NULL || fresh == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
    }
    if (c->d->mismatch_count < CKPT_COMPARE_MISMATCHES) {
        c->mismatch[c->d->mismatch_count++] = (ckpt_compare_mismatch){what, base, fresh};
    }
    return CKPT_OK;
}

const char *ckpt_compare_name(ckpt_arena *out, const char *name)
{
    return ckpt_compare_clip(out, name, CKPT_COMPARE_LETTERS);
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

ckpt_compare_value ckpt_compare_number(const char *metric, int64_t base, int64_t fresh)
{
    const ckpt_metric *m = ckpt_metrics;
    while (strcmp(m->name, metric) != 0) {
        m++;
    }
    return (ckpt_compare_value){
        .metric = m, .where = "", .has_base = true, .has_new = true, .base = base, .fresh = fresh, .p = 1, .why = ""};
}

ckpt_compare_value *ckpt_compare_add(ckpt_comparer *c, const char *metric, int64_t base, int64_t fresh)
{
    ckpt_compare_value *const value = &c->value[c->d->value_count++];
    *value = ckpt_compare_number(metric, base, fresh);
    return value;
}

ckpt_code ckpt_compare_samples(ckpt_comparer *c, ckpt_compare_value *value, const ckpt_ns *base, int base_count,
                               const ckpt_ns *fresh, int fresh_count)
{
    value->nature = CKPT_SAMPLED;
    value->base_samples = base_count;
    value->samples = fresh_count;
    value->sample = fresh;
    if (base_count < CKPT_COMPARE_SAMPLES || fresh_count < CKPT_COMPARE_SAMPLES) {
        return CKPT_OK;
    }
    value->tested = true;
    return ckpt_mann_whitney_test(base, base_count, fresh, fresh_count, c->out, &value->p, c->err);
}

static ckpt_compare_change direction(const ckpt_compare_value *value)
{
    return value->fresh == value->base  ? CKPT_CHANGE_SAME
           : value->metric->neutral     ? CKPT_CHANGE_OTHER
           : value->fresh > value->base ? CKPT_CHANGE_WORSE
                                        : CKPT_CHANGE_BETTER;
}

static const char *too_few(const ckpt_comparer *c, const ckpt_compare_value *value)
{
    const int least = value->samples < value->base_samples ? value->samples : value->base_samples;
    return ckpt_arena_format(c->out, "not enough samples (%d, wanted %d)", least, CKPT_COMPARE_SAMPLES);
}

ckpt_code ckpt_compare_judge(const ckpt_comparer *c, ckpt_compare_value *value)
{
    const bool differs = value->base != value->fresh;
    if (!value->has_base || !value->has_new) {
        value->change = CKPT_CHANGE_MISSING;
    } else if (c->other_clock && value->metric->unit == CKPT_UNIT_NS) {
        value->change = CKPT_CHANGE_UNJUDGED;
        value->why = "one is predicted, the other measured";
    } else if (value->why[0] != '\0') { /* a side's number is only a bound: whoever added it says which */
        value->change = differs ? CKPT_CHANGE_UNJUDGED : CKPT_CHANGE_SAME;
        value->why = differs ? value->why : "";
    } else if (value->nature == CKPT_ONCE) {
        value->change = differs ? CKPT_CHANGE_NOISE : CKPT_CHANGE_SAME;
        value->why = differs ? "measured once" : "";
    } else if (value->nature == CKPT_SAMPLED && !value->tested) {
        value->change = CKPT_CHANGE_FEW;
        value->why = too_few(c, value);
    } else if (value->nature == CKPT_SAMPLED && value->p >= c->alpha) {
        value->change = differs ? CKPT_CHANGE_NOISE : CKPT_CHANGE_SAME;
    } else {
        value->change = direction(value);
    }
    return value->why != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
}

const ckpt_compare_value *ckpt_compare_find(const ckpt_difference *difference, const ckpt_metric *metric)
{
    for (int i = 0; i < difference->value_count; i++) {
        if (difference->value[i].metric == metric) {
            return &difference->value[i];
        }
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    const ckpt_name_at *const x = a, *const y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

ckpt_code ckpt_name_table_init(ckpt_name_table *table, int room, ckpt_comparer *c)
{
    *table = (ckpt_name_table){.entry = CKPT_NEW(c->out, ckpt_name_at, room)};
    return table->entry != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d names", room);
}

void ckpt_name_table_add(ckpt_name_table *table, const char *name, int at)
{
    table->entry[table->count++] = (ckpt_name_at){name, at};
}

void ckpt_name_table_sort(ckpt_name_table *table)
{
    qsort(table->entry, (size_t)table->count, sizeof *table->entry, by_name);
}

int ckpt_name_table_find(const ckpt_name_table *table, const char *name)
{
    int low = 0, high = table->count;
    while (low < high) { /* the first that is not before it */
        const int middle = low + (high - low) / 2;
        if (strcmp(table->entry[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < table->count && strcmp(table->entry[low].name, name) == 0 ? table->entry[low].at : -1;
}

static ckpt_code compare_one(ckpt_comparer *c)
{
    ckpt_difference *const d = c->d;
    *d = (ckpt_difference){
        .base = c->base, .fresh = c->fresh, .base_peak = "", .peak = "", .row_title = "", .first_difference = ""};
    d->value = c->value = CKPT_NEW(c->out, ckpt_compare_value, CKPT_COMPARE_VALUES);
    d->note = c->note = CKPT_NEW(c->out, const char *, CKPT_COMPARE_NOTES);
    d->mismatch = c->mismatch = CKPT_NEW(c->out, ckpt_compare_mismatch, CKPT_COMPARE_MISMATCHES);
    if (c->value == NULL || c->note == NULL || c->mismatch == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
    }
    CKPT_TRY(parts[c->base->kind].match(c));
    d->compared = d->mismatch_count == 0 || c->options->force;
    if (!d->compared) {
        return CKPT_OK;
    }
    CKPT_TRY(parts[c->base->kind].compare(c));
    for (int i = 0; i < d->value_count; i++) {
        CKPT_TRY(ckpt_compare_judge(c, &c->value[i]));
        d->worse += c->value[i].change == CKPT_CHANGE_WORSE;
        d->better += c->value[i].change == CKPT_CHANGE_BETTER;
    }
    return ckpt_compare_limits(c);
}

static int status_of(const ckpt_compare_report *report)
{
    bool incomparable = false, failed = false;
    for (int i = 0; i < report->count; i++) {
        const ckpt_difference *const d = &report->difference[i];
        incomparable = incomparable || !d->compared;
        failed = failed || d->exceeded || (report->options.exit_code && (d->worse > 0 || d->lost));
    }
    return incomparable ? 3 : failed && !report->options.warn_only ? 1 : 0;
}

ckpt_code ckpt_compare_make(const ckpt_compare_file *base, const ckpt_compare_file *fresh, int count,
                            const ckpt_compare_options *options, ckpt_arena *out, const ckpt_compare_report **report,
                            ckpt_err *err)
{
    static const char *const article[CKPT_COMPARE_KIND_COUNT] = {"a plan", "a profile", "a trace", "a sweep"};
    ckpt_compare_report *const made = CKPT_NEW(out, ckpt_compare_report, 1);
    ckpt_difference *const difference = CKPT_NEW(out, ckpt_difference, count);
    if (made == NULL || difference == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d comparisons", count);
    }
    CKPT_TRY(ckpt_limits_check(options->limit, options->limit_count, base->kind, out, err));
    *made = (ckpt_compare_report){base->kind, *options, difference, count, 0};
    made->options.alpha = options->alpha > 0 ? options->alpha : 0.05;
    for (int i = 0; i < count; i++) {
        if (fresh[i].kind != base->kind) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s is %s, but %.180s is %s; wanted two of a kind",
                             fresh[i].source, article[fresh[i].kind], base->source, article[base->kind]);
        }
        ckpt_comparer c = {.base = base,
                           .fresh = &fresh[i],
                           .options = options,
                           .alpha = made->options.alpha,
                           .d = &difference[i],
                           .out = out,
                           .err = err};
        CKPT_TRY_WHILE(err, compare_one(&c), "comparing %.120s with %.120s", fresh[i].source, base->source);
    }
    made->status = status_of(made);
    *report = made;
    return CKPT_OK;
}
