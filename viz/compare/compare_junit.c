/* JUnit's XML, which CI servers show beside the tests: a suite per NEW, a case per metric. There is no one standard;
 * this keeps to the elements and attributes that Jenkins' and GitLab's readers name (tests/programs/junit.xsd). */
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/compare_write.h"
#include "viz/draw/words.h"

static void put_attribute(ckpt_text *text, const char *name, const char *value)
{
    ckpt_text_add(text, " %s=\"", name);
    ckpt_words_xml(text, value);
    ckpt_text_add(text, "\"");
}

typedef struct tally {
    int tests, failures, errors, skipped;
} tally;

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

static bool exceeds(const ckpt_limit_result *r, const ckpt_metric *metric)
{
    return r->limit->metric == metric && r->state == CKPT_LIMIT_EXCEEDED;
}

/* A case for each metric that NEW or BASE has, or a limit names. */
static bool has_case(const ckpt_difference *d, const ckpt_metric *metric)
{
    bool has = ckpt_compare_find(d, metric) != NULL;
    for (int i = 0; i < d->limit_count; i++) {
        has = has || d->limit[i].limit->metric == metric;
    }
    return has;
}

/* What the exit code is made of fails; with --warn-only that is nothing, and what is exceeded is skipped. */
static outcome outcome_of(const ckpt_compare_report *report, const ckpt_difference *d, const ckpt_metric *metric)
{
    const ckpt_compare_value *const v = ckpt_compare_find(d, metric);
    bool open = v == NULL || v->change == CKPT_CHANGE_FEW || v->change == CKPT_CHANGE_MISSING ||
                v->change == CKPT_CHANGE_UNJUDGED;
    bool failed = v != NULL && report->options.exit_code && v->change == CKPT_CHANGE_WORSE;
    for (int i = 0; i < d->limit_count; i++) {
        failed = failed || exceeds(&d->limit[i], metric);
        open = open || (d->limit[i].limit->metric == metric && d->limit[i].state == CKPT_LIMIT_OPEN);
    }
    return failed && !report->options.warn_only ? FAILED : failed || open ? SKIPPED : PASSED;
}

/* Whether NEW has a plan that fits; failed only where BASE has one too. */
static outcome fit_of(const ckpt_compare_report *report, const ckpt_difference *d)
{
    const bool fits =
        report->kind == CKPT_COMPARE_PLAN ? d->fresh->plan->verdict == CKPT_FITS : d->fresh->curve->point_count > 0;
    return fits ? PASSED : d->lost && report->options.exit_code && !report->options.warn_only ? FAILED : SKIPPED;
}

static bool has_fit(const ckpt_compare_report *report)
{
    return report->kind == CKPT_COMPARE_PLAN || report->kind == CKPT_COMPARE_SWEEP;
}

static void add(tally *t, outcome o)
{
    t->tests++;
    t->failures += o == FAILED;
    t->skipped += o == SKIPPED;
}

static tally count(const ckpt_compare_report *report, const ckpt_difference *d)
{
    tally t = {0};
    if (!d->compared) {
        return (tally){.tests = 1, .errors = 1};
    }
    if (has_fit(report)) {
        add(&t, fit_of(report, d));
    }
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        if (has_case(d, m)) {
            add(&t, outcome_of(report, d, m));
        }
    }
    return t;
}

static void put_tally(ckpt_text *text, const tally *t)
{
    ckpt_text_add(text, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"0\"", t->tests, t->failures,
                  t->errors, t->skipped);
}

/* "1.23 GB, was 1.20 GB: +30.0 MB, worse" */
static void put_numbers(ckpt_text *text, const ckpt_compare_value *v)
{
    char now[CKPT_UNITS_TEXT], before[CKPT_UNITS_TEXT], change[CKPT_UNITS_TEXT];
    if (v->where[0] != '\0') {
        ckpt_words_xml(text, v->where);
        ckpt_text_add(text, ": ");
    }
    if (v->has_new && v->has_base && v->fresh == v->base) {
        ckpt_text_add(text, "%s, %s", ckpt_compare_show(v->metric->unit, v->fresh, now),
                      ckpt_compare_change_name(v->change));
    } else if (v->has_new && v->has_base) {
        ckpt_text_add(text, "%s, was %s: %s, %s", ckpt_compare_show(v->metric->unit, v->fresh, now),
                      ckpt_compare_show(v->metric->unit, v->base, before), ckpt_compare_show_change(v, change),
                      ckpt_compare_change_name(v->change));
    } else {
        ckpt_text_add(text, "%s", ckpt_compare_change_name(v->change));
    }
    if (v->why[0] != '\0') {
        ckpt_text_add(text, " (");
        ckpt_words_xml(text, v->why);
        ckpt_text_add(text, ")");
    }
}

/* The first limit that is exceeded is what lists show, the others stand with it in the text. */
static const ckpt_limit_result *first_exceeded(const ckpt_difference *d, const ckpt_metric *metric)
{
    for (int i = 0; i < d->limit_count; i++) {
        if (exceeds(&d->limit[i], metric)) {
            return &d->limit[i];
        }
    }
    return NULL;
}

static void put_failure(const ckpt_difference *d, const ckpt_metric *metric, ckpt_text *text)
{
    const ckpt_compare_value *const v = ckpt_compare_find(d, metric);
    const ckpt_limit_result *const limit = first_exceeded(d, metric);
    ckpt_text_add(text, "      <failure");
    put_attribute(text, "message", limit != NULL ? limit->text : "worse, and nothing may be");
    put_attribute(text, "type", limit != NULL ? "limit" : "worse");
    ckpt_text_add(text, ">");
    if (v != NULL) {
        put_numbers(text, v);
    }
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        if (!exceeds(r, metric)) {
            continue;
        }
        ckpt_text_add(text, "\n");
        ckpt_words_xml(text, r->text);
        for (int k = 0; k < r->because_count; k++) {
            ckpt_text_add(text, "\n  ");
            ckpt_words_xml(text, r->because[k]);
        }
    }
    ckpt_text_add(text, "</failure>\n");
}

static void put_skipped(const ckpt_difference *d, const ckpt_metric *metric, ckpt_text *text)
{
    const ckpt_compare_value *const v = ckpt_compare_find(d, metric);
    const ckpt_limit_result *const limit = first_exceeded(d, metric);
    ckpt_text_add(text, "      <skipped message=\"");
    if (limit != NULL) {
        ckpt_words_xml(text, limit->text);
    } else if (v != NULL) {
        put_numbers(text, v);
    } else {
        ckpt_text_add(text, "neither file says what it is");
    }
    ckpt_text_add(text, "\"/>\n");
}

/* Names are the metrics' alone: a CI server follows a case from run to run by its name. */
static void begin_case(const char *class, const char *name, ckpt_text *text)
{
    ckpt_text_add(text, "    <testcase classname=\"%s\" name=\"%s\" time=\"0\">\n", class, name);
}

static void put_case(const ckpt_compare_report *report, const ckpt_difference *d, const ckpt_metric *metric,
                     const char *class, ckpt_text *text)
{
    const outcome o = outcome_of(report, d, metric);
    begin_case(class, metric->name, text);
    if (o == FAILED) {
        put_failure(d, metric, text);
    } else if (o == SKIPPED) {
        put_skipped(d, metric, text);
    } else {
        ckpt_text_add(text, "      <system-out>");
        put_numbers(text, ckpt_compare_find(d, metric));
        ckpt_text_add(text, "</system-out>\n");
    }
    ckpt_text_add(text, "    </testcase>\n");
}

static void put_fit(const ckpt_compare_report *report, const ckpt_difference *d, const char *class, ckpt_text *text)
{
    static const char *const words[] = {[PASSED] = "",
                                        [FAILED] =
                                            "      <failure message=\"no longer fits its budget\" type=\"worse\"/>\n",
                                        [SKIPPED] = "      <skipped message=\"does not fit its budget\"/>\n"};
    begin_case(class, "fits", text);
    ckpt_text_add(text, "%s    </testcase>\n", words[fit_of(report, d)]);
}

static void put_refusal(const ckpt_difference *d, const char *class, ckpt_text *text)
{
    begin_case(class, "comparable", text);
    ckpt_text_add(text, "      <error message=\"not comparable\" type=\"mismatch\">");
    for (int i = 0; i < d->mismatch_count; i++) {
        ckpt_words_xml(text, d->mismatch[i].what);
        ckpt_text_add(text, ": ");
        ckpt_words_xml(text, d->mismatch[i].base);
        ckpt_text_add(text, " and ");
        ckpt_words_xml(text, d->mismatch[i].fresh);
        ckpt_text_add(text, "%s", i + 1 < d->mismatch_count ? "\n" : "");
    }
    ckpt_text_add(text, "</error>\n    </testcase>\n");
}

void ckpt_compare_junit(const ckpt_compare_report *report, ckpt_text *text)
{
    tally all = {0};
    for (int i = 0; i < report->count; i++) {
        const tally t = count(report, &report->difference[i]);
        all = (tally){all.tests + t.tests, all.failures + t.failures, all.errors + t.errors, all.skipped + t.skipped};
    }
    ckpt_text_add(text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ckpt-compare\"");
    put_tally(text, &all);
    ckpt_text_add(text, ">\n");
    for (int i = 0; i < report->count; i++) {
        const ckpt_difference *const d = &report->difference[i];
        const tally t = count(report, d);
        ckpt_text_add(text, "  <testsuite");
        put_attribute(text, "name", d->fresh->source);
        put_tally(text, &t);
        ckpt_text_add(text, ">\n    <properties>\n      <property name=\"base\"");
        put_attribute(text, "value", d->base->source);
        ckpt_text_add(text, "/>\n    </properties>\n");
        const char *const class = ckpt_compare_kind_name(report->kind);
        if (!d->compared) {
            put_refusal(d, class, text);
        }
        if (d->compared && has_fit(report)) {
            put_fit(report, d, class, text);
        }
        for (const ckpt_metric *m = ckpt_metrics; d->compared && m->name != NULL; m++) {
            if (has_case(d, m)) {
                put_case(report, d, m, class, text);
            }
        }
        ckpt_text_add(text, "  </testsuite>\n");
    }
    ckpt_text_add(text, "</testsuites>\n");
}
