/* JUnit's XML, which CI servers show beside the tests: a suite per NEW, a case per metric. There is no one standard;
 * this keeps to the elements and attributes that Jenkins' and GitLab's readers name (tests/junit.xsd). */
#include <string.h>

#include "viz/compare_write.h"
#include "viz/draw.h"

/* Letters that XML 1.0 does not allow at all become U+FFFD, the rest is escaped. */
static void put_words(ckpt_text *text, const char *string)
{
    for (int length = 0; *string != '\0'; string += length) {
        length = ckpt_utf8_length(string);
        if (length == 0 && (*string == '\n' || *string == '\t')) {
            ckpt_text_add(text, "&#%d;", *string);
            length = 1;
        } else if (length == 0) {
            ckpt_text_add(text, "\xEF\xBF\xBD");
            length = 1;
        } else if (length > 1) {
            ckpt_text_put(text, string, (size_t)length);
        } else {
            const char one[2] = {*string, '\0'};
            ckpt_text_xml(text, one);
        }
    }
}

static void put_attribute(ckpt_text *text, const char *name, const char *value)
{
    ckpt_text_add(text, " %s=\"", name);
    put_words(text, value);
    ckpt_text_add(text, "\"");
}

typedef struct tally {
    int tests, failures, errors, skipped;
} tally;

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

/* A limit on the metric decides; without one a worse number does when the exit code depends on it. */
static outcome outcome_of(const ckpt_compare_report *report, const ckpt_difference *d, const ckpt_compare_value *value)
{
    bool open = value->change == CKPT_CHANGE_FEW || value->change == CKPT_CHANGE_MISSING;
    for (int i = 0; i < d->limit_count; i++) {
        if (d->limit[i].value == value && d->limit[i].state == CKPT_LIMIT_EXCEEDED) {
            return FAILED;
        }
        open = open || (d->limit[i].value == value && d->limit[i].state == CKPT_LIMIT_OPEN);
    }
    const bool worse = report->options.exit_code && value->change == CKPT_CHANGE_WORSE;
    return worse ? FAILED : open ? SKIPPED : PASSED;
}

static tally count(const ckpt_compare_report *report, const ckpt_difference *d)
{
    tally t = {.tests = d->value_count};
    if (!d->compared) {
        return (tally){.tests = 1, .errors = 1};
    }
    for (int i = 0; i < d->value_count; i++) {
        const outcome o = outcome_of(report, d, &d->value[i]);
        t.failures += o == FAILED;
        t.skipped += o == SKIPPED;
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
        put_words(text, v->why);
        ckpt_text_add(text, ")");
    }
}

static void put_failure(const ckpt_difference *d, const ckpt_compare_value *v, ckpt_text *text)
{
    const ckpt_limit_result *limit = NULL;
    for (int i = 0; i < d->limit_count && limit == NULL; i++) {
        limit = d->limit[i].value == v && d->limit[i].state == CKPT_LIMIT_EXCEEDED ? &d->limit[i] : NULL;
    }
    ckpt_text_add(text, "      <failure");
    put_attribute(text, "message", limit != NULL ? limit->text : "worse, and nothing may be");
    put_attribute(text, "type", limit != NULL ? "limit" : "worse");
    ckpt_text_add(text, ">");
    put_numbers(text, v);
    for (int i = 0; limit != NULL && i < limit->because_count; i++) {
        ckpt_text_add(text, "\n");
        put_words(text, limit->because[i]);
    }
    ckpt_text_add(text, "</failure>\n");
}

static void put_case(const ckpt_compare_report *report, const ckpt_difference *d, const ckpt_compare_value *v,
                     const char *class, ckpt_text *text)
{
    const outcome o = outcome_of(report, d, v);
    ckpt_text_add(text, "    <testcase");
    put_attribute(text, "classname", class);
    ckpt_text_add(text, " name=\"");
    put_words(text, v->metric->name);
    if (v->where[0] != '\0') {
        ckpt_text_add(text, " at ");
        put_words(text, v->where);
    }
    ckpt_text_add(text, "\" time=\"0\">\n");
    if (o == FAILED) {
        put_failure(d, v, text);
    } else if (o == SKIPPED) {
        ckpt_text_add(text, "      <skipped message=\"");
        put_numbers(text, v);
        ckpt_text_add(text, "\"/>\n");
    } else {
        ckpt_text_add(text, "      <system-out>");
        put_numbers(text, v);
        ckpt_text_add(text, "</system-out>\n");
    }
    ckpt_text_add(text, "    </testcase>\n");
}

static void put_refusal(const ckpt_difference *d, const char *class, ckpt_text *text)
{
    ckpt_text_add(text, "    <testcase");
    put_attribute(text, "classname", class);
    ckpt_text_add(text, " name=\"comparable\" time=\"0\">\n      <error message=\"not comparable\" type=\"mismatch\">");
    for (int i = 0; i < d->mismatch_count; i++) {
        put_words(text, d->mismatch[i].what);
        ckpt_text_add(text, ": ");
        put_words(text, d->mismatch[i].base);
        ckpt_text_add(text, " and ");
        put_words(text, d->mismatch[i].fresh);
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
        for (int k = 0; d->compared && k < d->value_count; k++) {
            put_case(report, d, &d->value[k], class, text);
        }
        ckpt_text_add(text, "  </testsuite>\n");
    }
    ckpt_text_add(text, "</testsuites>\n");
}
