/* The report: each NEW against BASE, and what that means for the exit code. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/rank_tests.h"

static const struct {
    const char *article;
    void (*match)(ckpt_comparer *c);
    void (*compare)(ckpt_comparer *c);
} parts[CKPT_COMPARE_KIND_COUNT] = {
    [CKPT_COMPARE_PLAN] = {"a plan", ckpt_match_plans, ckpt_compare_plans},
    [CKPT_COMPARE_PROFILE] = {"a profile", ckpt_match_profiles, ckpt_compare_profiles},
    [CKPT_COMPARE_TRACE] = {"a trace", ckpt_match_traces, ckpt_compare_traces},
    [CKPT_COMPARE_SWEEP] = {"a sweep", ckpt_match_sweeps, ckpt_compare_sweeps},
};

int64_t ckpt_plus(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX - b ? INT64_MAX : b < 0 && a < -INT64_MAX - b ? -INT64_MAX : a + b;
}

bool ckpt_compare_ok(ckpt_comparer *c, ckpt_code code)
{
    c->code = c->code == CKPT_OK ? code : c->code;
    return code == CKPT_OK;
}

static void no_memory(ckpt_comparer *c)
{
    if (c->code == CKPT_OK) {
        c->code = CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
    }
}

void *ckpt_compare_take(ckpt_comparer *c, size_t count, size_t size)
{
    void *const taken = ckpt_arena_take(c->out, count, size);
    if (taken == NULL) {
        no_memory(c);
    }
    return taken;
}

const char *ckpt_compare_keep(ckpt_comparer *c, const char *text)
{
    if (text == NULL) {
        no_memory(c);
    }
    return text != NULL ? text : "";
}

void ckpt_compare_note(ckpt_comparer *c, const char *text)
{
    if (c->d->note_count < CKPT_COMPARE_NOTES) {
        c->note[c->d->note_count++] = text;
    }
}

void ckpt_compare_set(ckpt_comparer *c, const char *what, const char *base, const char *fresh)
{
    if (c->d->setting_count < CKPT_COMPARE_SETTINGS) {
        c->setting[c->d->setting_count++] = (ckpt_compare_mismatch){what, base, fresh};
    }
}

void ckpt_compare_set_bytes(ckpt_comparer *c, const char *what, ckpt_bytes base, ckpt_bytes fresh)
{
    char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT];
    ckpt_bytes_show(base, was);
    ckpt_bytes_show(fresh, is);
    if (base == fresh) {
        return;
    }
    if (strcmp(was, is) == 0) { /* rounded alike */
        ckpt_compare_set(c, what, CKPT_COMPARE_SAY(c, "%lld B", (long long)base),
                         CKPT_COMPARE_SAY(c, "%lld B", (long long)fresh));
    } else {
        ckpt_compare_set(c, what, CKPT_COMPARE_SAY(c, "%s", was), CKPT_COMPARE_SAY(c, "%s", is));
    }
}

void ckpt_compare_mismatched(ckpt_comparer *c, const char *what, const char *base, const char *fresh)
{
    if (c->d->mismatch_count < CKPT_COMPARE_MISMATCHES) {
        c->mismatch[c->d->mismatch_count++] = (ckpt_compare_mismatch){what, base, fresh};
    }
}

const char *ckpt_compare_name(ckpt_comparer *c, const char *name)
{
    return ckpt_compare_keep(c, ckpt_compare_clip(c->out, name, CKPT_COMPARE_LETTERS));
}

ckpt_compare_value ckpt_compare_value_of(ckpt_comparer *c, const ckpt_metric *metric, const ckpt_number *base,
                                         const ckpt_number *fresh)
{
    ckpt_compare_value v = {.metric = metric,
                            .where = fresh->where,
                            .nature = fresh->has ? fresh->nature : base->nature,
                            .has_base = base->has,
                            .has_new = fresh->has,
                            .base = base->has ? base->value : 0,
                            .fresh = fresh->has ? fresh->value : 0,
                            .base_samples = base->samples,
                            .samples = fresh->samples,
                            .p = 1,
                            .why = base->why[0] != '\0' ? base->why : fresh->why,
                            .sample = fresh->sample};
    v.tested = base->nature == CKPT_SAMPLED && fresh->nature == CKPT_SAMPLED && base->samples >= CKPT_COMPARE_SAMPLES &&
               fresh->samples >= CKPT_COMPARE_SAMPLES;
    if (v.tested) {
        (void)ckpt_compare_ok(c, ckpt_mann_whitney_test(base->sample, base->samples, fresh->sample, fresh->samples,
                                                        c->out, &v.p, c->err));
    }
    return v;
}

static ckpt_compare_change direction(const ckpt_compare_value *value)
{
    return value->fresh == value->base  ? CKPT_CHANGE_SAME
           : value->metric->neutral     ? CKPT_CHANGE_OTHER
           : value->fresh > value->base ? CKPT_CHANGE_WORSE
                                        : CKPT_CHANGE_BETTER;
}

void ckpt_compare_judge(ckpt_comparer *c, ckpt_compare_value *value)
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
        const int fewer = value->samples < value->base_samples ? value->samples : value->base_samples;
        value->change = CKPT_CHANGE_FEW;
        value->why = CKPT_COMPARE_SAY(c, "not enough samples (%d, wanted %d)", fewer, CKPT_COMPARE_SAMPLES);
    } else if (value->nature == CKPT_SAMPLED && value->p >= c->alpha) {
        value->change = differs ? CKPT_CHANGE_NOISE : CKPT_CHANGE_SAME;
    } else {
        value->change = direction(value);
    }
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

static void compare_one(ckpt_comparer *c)
{
    ckpt_difference *const d = c->d;
    *d = (ckpt_difference){
        .base = c->file[0], .fresh = c->file[1], .base_peak = "", .peak = "", .row_title = "", .first_difference = ""};
    d->value = c->value = CKPT_COMPARE_NEW(c, ckpt_compare_value, CKPT_COMPARE_VALUES);
    d->note = c->note = CKPT_COMPARE_NEW(c, const char *, CKPT_COMPARE_NOTES);
    d->mismatch = c->mismatch = CKPT_COMPARE_NEW(c, ckpt_compare_mismatch, CKPT_COMPARE_MISMATCHES);
    d->setting = c->setting = CKPT_COMPARE_NEW(c, ckpt_compare_mismatch, CKPT_COMPARE_SETTINGS);
    if (c->code != CKPT_OK) {
        return;
    }
    parts[c->file[0]->kind].match(c);
    d->compared = d->mismatch_count == 0 || c->options->force;
    if (d->compared && c->code == CKPT_OK) {
        parts[c->file[0]->kind].compare(c);
        ckpt_compare_metrics(c);
        ckpt_compare_limits(c);
    }
}

static int status_of(const ckpt_compare_report *report)
{
    bool incomparable = false, failed = false;
    for (int i = 0; i < report->count; i++) {
        const ckpt_difference *const d = &report->difference[i];
        incomparable = incomparable || !d->compared;
        failed = failed || d->exceeded || (report->options.exit_code && (d->worse > 0 || d->lost));
    }
    return incomparable ? 4 : failed && !report->options.warn_only ? 1 : 0;
}

ckpt_code ckpt_compare_make(const ckpt_compare_file *base, const ckpt_compare_file *fresh, int count,
                            const ckpt_compare_options *options, ckpt_arena *out, const ckpt_compare_report **report,
                            ckpt_err *err)
{
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
                             fresh[i].source, parts[fresh[i].kind].article, base->source, parts[base->kind].article);
        }
        ckpt_comparer c = {.file = {base, &fresh[i]},
                           .options = options,
                           .alpha = made->options.alpha,
                           .d = &difference[i],
                           .out = out,
                           .err = err};
        compare_one(&c);
        CKPT_TRY_WHILE(err, c.code, "comparing %.120s with %.120s", fresh[i].source, base->source);
    }
    made->status = status_of(made);
    *report = made;
    return CKPT_OK;
}
