/* JUnit's XML, which CI servers show beside the tests: a suite per NEW, a case per metric. There is no one standard;
 * this keeps to the elements and attributes that Jenkins' and GitLab's readers name (tests/programs/junit.xsd). */
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/draw/words.h"

typedef enum outcome { PASSED, FAILED, SKIPPED, BROKEN } outcome;

/* Its name is the metric's alone: a CI server follows a case from run to run by its name. */
typedef struct test {
    const char *name;
    outcome outcome;
    const char *type, *message; /* of what did not pass */
    const char *about;          /* further lines */
} test;

enum { TESTS = 64 };

typedef struct suite {
    const ckpt_compare_report *report;
    const ckpt_difference *difference;
    test test[TESTS];
    int count;
    int outcomes[4];
    ckpt_arena *arena;
    bool failed;
} suite;

static const char *keep(suite *s, const char *text)
{
    s->failed = s->failed || text == NULL;
    return text != NULL ? text : "";
}
#define SAY(s, ...) keep((s), ckpt_arena_format((s)->arena, __VA_ARGS__))

static void add(suite *s, const char *name, outcome is, const char *type, const char *message, const char *about)
{
    s->outcomes[is]++;
    s->test[s->count++] = (test){name, is, type, message, about};
}

/* What the exit code is made of fails; with --warn-only that is nothing, and it is skipped. */
static outcome failing(const suite *s)
{
    return s->report->options.warn_only ? SKIPPED : FAILED;
}

/* "1.23 GB, was 1.20 GB: +30.0 MB, worse (why)" */
static const char *numbers(suite *s, const ckpt_compare_value *v)
{
    char now[CKPT_UNITS_TEXT], before[CKPT_UNITS_TEXT], change[CKPT_UNITS_TEXT];
    const char *text = "";
    if (v->has_new && v->has_base) {
        text = SAY(s, "%s, ", ckpt_compare_show(v->metric->unit, v->fresh, now));
    }
    if (v->has_new && v->has_base && v->fresh != v->base) {
        text = SAY(s, "%swas %s: %s, ", text, ckpt_compare_show(v->metric->unit, v->base, before),
                   ckpt_compare_show_change(v, change));
    }
    return SAY(s, "%s%s%s%s%s%s%s", v->where, v->where[0] != '\0' ? ": " : "", text,
               ckpt_compare_change_name(v->change), v->why[0] != '\0' ? " (" : "", v->why,
               v->why[0] != '\0' ? ")" : "");
}

/* A case for each metric that NEW or BASE has, or a limit names. The first limit that is exceeded is what lists show,
 * all of them stand in the text. */
static void add_metric(suite *s, const ckpt_metric *metric)
{
    const ckpt_difference *const d = s->difference;
    const ckpt_compare_value *const v = ckpt_compare_find(d, metric);
    bool named = v != NULL, open = v == NULL || v->change == CKPT_CHANGE_FEW || v->change == CKPT_CHANGE_MISSING ||
                                   v->change == CKPT_CHANGE_UNJUDGED;
    const char *message = NULL, *about = v != NULL ? numbers(s, v) : "";
    const char *const number = v != NULL ? about : "neither file says what it is";
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        named = named || r->limit->metric == metric;
        open = open || (r->limit->metric == metric && r->state == CKPT_LIMIT_OPEN);
        if (r->limit->metric != metric || r->state != CKPT_LIMIT_EXCEEDED) {
            continue;
        }
        message = message != NULL ? message : r->text;
        about = SAY(s, "%s\n%s", about, r->text);
        for (int k = 0; k < r->because_count; k++) {
            about = SAY(s, "%s\n  %s", about, r->because[k].text);
        }
    }
    if (message != NULL) {
        add(s, metric->name, failing(s), "limit", message, about);
    } else if (v != NULL && s->report->options.exit_code && v->change == CKPT_CHANGE_WORSE) {
        add(s, metric->name, failing(s), "worse", failing(s) == FAILED ? "worse, and nothing may be" : number, about);
    } else if (named) {
        add(s, metric->name, open ? SKIPPED : PASSED, "", number, "");
    }
}

/* Whether NEW has a plan that fits; failed only where BASE has one too. */
static void add_fit(suite *s)
{
    const ckpt_compare_file *const fresh = s->difference->fresh;
    const bool fits = fresh->plan != NULL ? fresh->plan->verdict == CKPT_FITS : fresh->curve->point_count > 0;
    const bool lost = s->difference->lost && s->report->options.exit_code && failing(s) == FAILED;
    add(s, "fits",
        fits   ? PASSED
        : lost ? FAILED
               : SKIPPED,
        "worse", lost ? "no longer fits its budget" : "does not fit its budget", "");
}

static void add_tests(suite *s)
{
    const ckpt_difference *const d = s->difference;
    if (!d->compared) {
        const char *about = "";
        for (int i = 0; i < d->mismatch_count; i++) {
            about = SAY(s, "%s%s%s: %s and %s", about, i > 0 ? "\n" : "", d->mismatch[i].what, d->mismatch[i].base,
                        d->mismatch[i].fresh);
        }
        add(s, "comparable", BROKEN, "mismatch", "not comparable", about);
        return;
    }
    if (s->report->kind == CKPT_COMPARE_PLAN || s->report->kind == CKPT_COMPARE_SWEEP) {
        add_fit(s);
    }
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        add_metric(s, m);
    }
}

static void put_attribute(ckpt_text *text, const char *name, const char *value)
{
    ckpt_text_add(text, " %s=\"", name);
    ckpt_words_xml(text, value);
    ckpt_text_put(text, "\"", 1);
}

static void put_test(ckpt_text *text, const char *class, const test *t)
{
    static const char *const element[] = {[FAILED] = "failure", [SKIPPED] = "skipped", [BROKEN] = "error"};
    ckpt_text_add(text, "    <testcase classname=\"%s\" name=\"%s\" time=\"0\">\n", class, t->name);
    if (t->outcome != PASSED) {
        ckpt_text_add(text, "      <%s", element[t->outcome]);
        put_attribute(text, "message", t->message);
    }
    if (t->outcome == SKIPPED) {
        ckpt_text_add(text, "/>\n");
    } else if (t->outcome != PASSED) {
        put_attribute(text, "type", t->type);
        ckpt_text_put(text, ">", 1);
        ckpt_words_xml(text, t->about);
        ckpt_text_add(text, "</%s>\n", element[t->outcome]);
    }
    ckpt_text_add(text, "    </testcase>\n");
}

static void put_tally(ckpt_text *text, int count, const int outcomes[4])
{
    ckpt_text_add(text, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"0\">\n", count,
                  outcomes[FAILED], outcomes[BROKEN], outcomes[SKIPPED]);
}

static void put_suite(ckpt_text *text, const suite *s)
{
    ckpt_text_add(text, "  <testsuite");
    put_attribute(text, "name", s->difference->fresh->source);
    put_tally(text, s->count, s->outcomes);
    ckpt_text_add(text, "    <properties>\n      <property name=\"base\"");
    put_attribute(text, "value", s->difference->base->source);
    ckpt_text_add(text, "/>\n");
    for (int i = 0; i < s->difference->setting_count; i++) {
        const ckpt_compare_mismatch *const set = &s->difference->setting[i];
        ckpt_text_add(text, "      <property");
        put_attribute(text, "name", set->what);
        ckpt_text_add(text, " value=\"");
        ckpt_words_xml(text, set->base);
        ckpt_text_add(text, " → ");
        ckpt_words_xml(text, set->fresh);
        ckpt_text_add(text, "\"/>\n");
    }
    ckpt_text_add(text, "    </properties>\n");
    for (int i = 0; i < s->count; i++) {
        put_test(text, ckpt_compare_kind_name(s->report->kind), &s->test[i]);
    }
    ckpt_text_add(text, "  </testsuite>\n");
}

void ckpt_compare_junit(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    suite *const all = CKPT_NEW(&arena, suite, report->count);
    int count = 0, outcomes[4] = {0};
    text->failed = text->failed || all == NULL;
    for (int i = 0; i < report->count && all != NULL; i++) {
        all[i].report = report;
        all[i].difference = &report->difference[i];
        all[i].arena = &arena;
        add_tests(&all[i]);
        text->failed = text->failed || all[i].failed;
        count += all[i].count;
        for (int k = 0; k < 4; k++) {
            outcomes[k] += all[i].outcomes[k];
        }
    }
    ckpt_text_add(text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ckpt-compare\"");
    put_tally(text, count, outcomes);
    for (int i = 0; i < report->count && all != NULL; i++) {
        put_suite(text, &all[i]);
    }
    ckpt_text_add(text, "</testsuites>\n");
    ckpt_arena_fini(&arena);
}
