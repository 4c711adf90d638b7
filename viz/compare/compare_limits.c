/* Limits: as people write them, and what became of each. */
#include <stdio.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/rank_tests.h"

/* Names of the metrics of a kind, or of all (-1), for messages. */
static const char *names(int kind, ckpt_arena *out)
{
    const char *all = "";
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL && all != NULL; m++) {
        if (kind < 0 || m->source[kind].has != CKPT_NOT_THERE) {
            all = ckpt_arena_format(out, "%s%s%s", all, all[0] != '\0' ? ", " : "", m->name);
        }
    }
    return all != NULL ? all : "";
}

/* Of an increase of a ratio, a percentage is of the ratio itself: "overhead=1%" allows 21 % where BASE has 20 %. */
static ckpt_code parse_value(const char *text, ckpt_limit *limit, ckpt_err *err)
{
    const size_t length = strlen(text);
    const ckpt_compare_unit unit = limit->metric->unit;
    if (strcmp(text, "0") == 0) {
        limit->value = 0;
        return CKPT_OK;
    }
    limit->relative = limit->increase && unit != CKPT_UNIT_RATIO && length > 0 && text[length - 1] == '%';
    if (limit->relative || unit == CKPT_UNIT_RATIO) {
        return ckpt_percent_parse(text, &limit->value, err);
    }
    if (unit == CKPT_UNIT_COUNT) {
        int count = 0;
        if (!ckpt_int_parse(text, 0, INT32_MAX, &count)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.40s\", wanted a number of runs", text);
        }
        limit->value = count;
        return CKPT_OK;
    }
    return unit == CKPT_UNIT_NS ? ckpt_ns_parse(text, &limit->value, err)
                                : ckpt_bytes_parse(text, 0, &limit->value, err);
}

/* "peak=6GiB", which is cut at its "=" and put together again. */
static ckpt_code parse_limit(char *item, ckpt_limit *limit, ckpt_arena *out, ckpt_err *err)
{
    const char *const option = limit->increase ? "--max-increase" : "--max";
    char *const equals = strchr(item, '=');
    limit->text = ckpt_arena_format(out, "%s %s", option, item);
    if (limit->text == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a limit");
    }
    if (equals != NULL) {
        *equals = '\0';
    }
    limit->metric = ckpt_metric_find(item);
    if (limit->metric == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: unknown metric \"%.40s\"; wanted one of %s", option, item,
                         names(-1, out));
    }
    if (equals == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found \"%.60s\", wanted METRIC=VALUE, such as %s=%s", option, item,
                         item, limit->increase ? "3%" : "6GiB");
    }
    CKPT_TRY_WHILE(err, parse_value(equals + 1, limit, err), "reading %.80s", limit->text);
    return CKPT_OK;
}

ckpt_code ckpt_limits_parse(const char *text, bool increase, ckpt_limit *limit, int room, int *count, ckpt_arena *out,
                            ckpt_err *err)
{
    char *rest = ckpt_arena_text(out, text);
    if (rest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for limits");
    }
    while (rest != NULL) {
        char *const comma = strchr(rest, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (*count == room) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "found more than %d limits", room);
        }
        limit[*count] = (ckpt_limit){.increase = increase};
        CKPT_TRY(parse_limit(rest, &limit[*count], out, err));
        (*count)++;
        rest = comma != NULL ? comma + 1 : NULL;
    }
    return CKPT_OK;
}

ckpt_code ckpt_limits_check(const ckpt_limit *limit, int count, ckpt_compare_kind kind, ckpt_arena *out, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        if (limit[i].metric->source[kind].has == CKPT_NOT_THERE) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a %s has no %s; wanted one of %s", limit[i].text,
                             ckpt_compare_kind_name(kind), limit[i].metric->name, names((int)kind, out));
        }
    }
    return CKPT_OK;
}

/* whole * millionths / 10^6, within 63 bits. */
static int64_t share(int64_t whole, int64_t millionths)
{
    int64_t high = 0, low = 0;
    const bool fits =
        ckpt_product(whole / 1000000, millionths, &high) && ckpt_product(whole % 1000000, millionths, &low);
    return fits ? ckpt_plus(high, low / 1000000) : INT64_MAX;
}

/* What the samples say of a limit that the number itself exceeds; *why is said behind it. */
static ckpt_limit_state weigh(ckpt_comparer *c, const ckpt_limit_result *r, const char **why)
{
    const ckpt_compare_value *const v = r->value;
    if (v->nature == CKPT_ONCE && v->metric->unit == CKPT_UNIT_NS) {
        *why = "; it was measured once, which does not fail";
    } else if (r->limit->increase && v->change == CKPT_CHANGE_UNJUDGED) {
        *why = CKPT_COMPARE_SAY(c, "; %s", v->why);
    } else if (v->nature != CKPT_SAMPLED || (r->limit->increase && v->change == CKPT_CHANGE_WORSE)) {
        return CKPT_LIMIT_EXCEEDED;
    } else if (r->limit->increase && v->why[0] != '\0') {
        *why = CKPT_COMPARE_SAY(c, "; %s", v->why);
    } else if (!r->limit->increase && v->samples < CKPT_COMPARE_SAMPLES) {
        *why = CKPT_COMPARE_SAY(c, "; not enough samples (%d, wanted %d)", v->samples, CKPT_COMPARE_SAMPLES);
    } else {
        const double p = r->limit->increase ? v->p : ckpt_sign_test(v->sample, v->samples, r->allowed);
        if (!r->limit->increase && p < c->alpha) {
            return CKPT_LIMIT_EXCEEDED;
        }
        *why = CKPT_COMPARE_SAY(c, "; not significant (p = %.2g)", p);
    }
    return CKPT_LIMIT_OPEN;
}

/* A side that has no such number. */
static void miss(ckpt_comparer *c, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = r->value;
    const bool base = v != NULL && v->has_base;
    r->state = !r->limit->increase || base ? CKPT_LIMIT_EXCEEDED : CKPT_LIMIT_OPEN;
    r->text = CKPT_COMPARE_SAY(c, "%s: %s%s%s", r->limit->metric->label,
                               v == NULL ? "neither file says what it is"
                               : base    ? "NEW has none"
                                         : "BASE has none",
                               v != NULL && v->why[0] != '\0' ? ": " : "", v != NULL ? v->why : "");
}

/* "peak 6.08 GB, 75.0 MB more than --max peak=6GB allows" */
static void describe(ckpt_comparer *c, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = r->value;
    const ckpt_compare_unit unit = v->metric->unit;
    const bool over = v->fresh > r->allowed;
    const char *why = "";
    char found[CKPT_UNITS_TEXT], apart[CKPT_UNITS_TEXT], change[CKPT_UNITS_TEXT];
    r->state = over ? weigh(c, r, &why) : CKPT_LIMIT_HELD;
    ckpt_compare_show(unit, v->fresh, found);
    const int64_t distance = over ? v->fresh - r->allowed : r->allowed - v->fresh;
    if (unit == CKPT_UNIT_RATIO) { /* of two percentages: in points */
        snprintf(apart, sizeof apart, "%.2f points", (double)distance / 1e4);
    } else {
        ckpt_compare_show(unit, distance, apart);
    }
    ckpt_compare_show_change(v, change);
    const bool moved = v->has_base && change[0] != '\0';
    const char *const verdict =
        v->fresh == r->allowed ? "just what" : CKPT_COMPARE_SAY(c, "%s %s than", apart, over ? "more" : "less");
    r->text =
        CKPT_COMPARE_SAY(c, "%s %s%s%s%s%s, %s %s allows%s", v->metric->label, v->where, v->where[0] != '\0' ? " " : "",
                         found, moved ? ", " : "", moved ? change : "", verdict, r->limit->text, why);
}

static void decide(ckpt_comparer *c, const ckpt_limit *limit, ckpt_limit_result *r)
{
    const ckpt_compare_value *const v = ckpt_compare_find(c->d, limit->metric);
    *r = (ckpt_limit_result){.limit = limit, .value = v, .text = ""};
    if (v == NULL || !v->has_new || (limit->increase && !v->has_base)) {
        miss(c, r);
    } else {
        r->allowed = !limit->increase  ? limit->value
                     : limit->relative ? ckpt_plus(v->base, share(v->base, limit->value))
                                       : ckpt_plus(v->base, limit->value);
        describe(c, r);
    }
    if (r->state != CKPT_LIMIT_EXCEEDED) {
        return;
    }
    ckpt_compare_causes(c, r);
    c->d->exceeded = true;
}

void ckpt_compare_limits(ckpt_comparer *c)
{
    const int count = c->options->limit_count;
    ckpt_limit_result *const result = CKPT_COMPARE_NEW(c, ckpt_limit_result, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        decide(c, &c->options->limit[i], &result[i]);
    }
    c->d->limit = result;
    c->d->limit_count = c->code == CKPT_OK ? count : 0;
}
