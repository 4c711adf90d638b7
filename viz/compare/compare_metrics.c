/* The numbers that are compared, by the names that limits use; and limits as people write them. */
#include <string.h>

#include "viz/compare/compare_impl.h"

enum {
    PLAN = 1 << CKPT_COMPARE_PLAN,
    PROFILE = 1 << CKPT_COMPARE_PROFILE,
    TRACE = 1 << CKPT_COMPARE_TRACE,
    SWEEP = 1 << CKPT_COMPARE_SWEEP
};

const ckpt_metric ckpt_metrics[] = {
    {"peak", "peak", "the most bytes in memory in any step, static block included", CKPT_UNIT_BYTES, false,
     PLAN | TRACE},
    {"static", "static block", "bytes in memory for the whole step: weights, optimizer state, ...", CKPT_UNIT_BYTES,
     false, PLAN | TRACE | SWEEP},
    {"arena", "arena", "bytes for what comes and goes, where it was placed", CKPT_UNIT_BYTES, false, PLAN | TRACE},
    {"budget", "budget", "what the step was allowed to hold", CKPT_UNIT_BYTES, true, PLAN | TRACE},
    {"least_budget", "least budget", "a budget that a plan is known to fit", CKPT_UNIT_BYTES, false, PLAN | SWEEP},
    {"step_time", "step time",
     "of a training step; of a profile, all layers together; of a sweep, at the budget where it changed for the worse "
     "most",
     CKPT_UNIT_NS, false, PLAN | PROFILE | TRACE | SWEEP},
    {"mean_time", "mean step time", "over all budgets that both sweeps reach", CKPT_UNIT_NS, false, SWEEP},
    {"recompute", "recompute time", "of the step, in runs again", CKPT_UNIT_NS, false, PLAN | TRACE},
    {"forward", "forward time", "in forward runs", CKPT_UNIT_NS, false, PROFILE | TRACE},
    {"backward", "backward time", "in backward runs", CKPT_UNIT_NS, false, PROFILE | TRACE},
    {"update", "update time", "in the optimizer", CKPT_UNIT_NS, false, PROFILE | TRACE},
    {"copy", "copy time", "in copies from and to the host", CKPT_UNIT_NS, false, TRACE},
    {"wait", "wait time", "in which runs and frees wait for copies", CKPT_UNIT_NS, false, TRACE},
    {"overhead", "overhead", "step time over that of keeping everything", CKPT_UNIT_RATIO, false, PLAN},
    {"gap", "gap", "step time over the bound, than which no schedule is faster", CKPT_UNIT_RATIO, false, PLAN},
    {"bound", "bound", "no schedule under this budget is faster", CKPT_UNIT_NS, true, PLAN},
    {"offload", "offloaded", "bytes copied to the host, each copy counted", CKPT_UNIT_BYTES, false, PLAN},
    {"host", "on the host", "bytes that the host must hold", CKPT_UNIT_BYTES, false, PLAN},
    {"keep_all_peak", "keep-all peak", "peak when nothing is recomputed or offloaded", CKPT_UNIT_BYTES, false,
     PLAN | SWEEP},
    {"keep_all_time", "keep-all time", "step time when nothing is recomputed or offloaded", CKPT_UNIT_NS, false,
     PLAN | SWEEP},
    {"process_peak", "process peak", "the most of the whole process, as the system measured it", CKPT_UNIT_BYTES, false,
     TRACE},
    {"outputs", "outputs", "bytes that layers hand on", CKPT_UNIT_BYTES, false, PROFILE},
    {"saved", "saved", "bytes that layers save for backward beside that", CKPT_UNIT_BYTES, false, PROFILE},
    {"workspace", "workspace", "the largest workspace of any layer", CKPT_UNIT_BYTES, false, PROFILE},
    {"parameters", "parameters", "bytes of parameters", CKPT_UNIT_BYTES, true, PROFILE},
    {"copy_out", "copy of 1 GB out", "to the host, alone", CKPT_UNIT_NS, false, PROFILE},
    {"copy_in", "copy of 1 GB in", "from the host, alone", CKPT_UNIT_NS, false, PROFILE},
    {NULL, NULL, NULL, CKPT_UNIT_BYTES, false, 0},
};

static const char *const kinds[CKPT_COMPARE_KIND_COUNT] = {"plan", "profile", "trace", "sweep"};

const char *ckpt_compare_kind_name(ckpt_compare_kind kind)
{
    return (size_t)kind < CKPT_COMPARE_KIND_COUNT ? kinds[kind] : "unknown";
}

const char *ckpt_compare_change_name(ckpt_compare_change change)
{
    static const char *const names[] = {"same",  "better",          "worse",   "changed",
                                        "noise", "too few samples", "missing", "not judged"};
    return (size_t)change < sizeof names / sizeof names[0] ? names[change] : "unknown";
}

void ckpt_metrics_text(ckpt_text *text)
{
    ckpt_text_add(text, "%-14s %-27s %s\n", "metric", "of", "what it is");
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        char of[40] = "";
        for (int k = 0; k < CKPT_COMPARE_KIND_COUNT; k++) {
            if ((m->kinds & 1U << k) != 0) {
                strcat(of, of[0] != '\0' ? " " : "");
                strcat(of, kinds[k]);
            }
        }
        ckpt_text_add(text, "%-14s %-27s %s\n", m->name, of, m->about);
    }
}

/* Names of the metrics that are of any of `of`, for messages. */
static const char *names(unsigned of, ckpt_arena *out)
{
    const char *all = "";
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL && all != NULL; m++) {
        if ((m->kinds & of) != 0) {
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
    return unit == CKPT_UNIT_NS ? ckpt_ns_parse(text, &limit->value, err)
                                : ckpt_bytes_parse(text, 0, &limit->value, err);
}

static ckpt_code parse_limit(const char *item, ckpt_limit *limit, ckpt_arena *out, ckpt_err *err)
{
    const char *const option = limit->increase ? "--max-increase" : "--max";
    const char *const equals = strchr(item, '=');
    const size_t length = equals != NULL ? (size_t)(equals - item) : strlen(item);
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        if (strlen(m->name) == length && memcmp(m->name, item, length) == 0) {
            limit->metric = m;
        }
    }
    if (limit->metric == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: unknown metric \"%.*s\"; wanted one of %s", option,
                         length < 40 ? (int)length : 40, item, names(~0U, out));
    }
    if (equals == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found \"%.60s\", wanted METRIC=VALUE, such as %s=%s", option, item,
                         limit->metric->name, limit->increase ? "3%" : "6GiB");
    }
    limit->text = ckpt_arena_format(out, "%s %s", option, item);
    if (limit->text == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a limit");
    }
    CKPT_TRY_WHILE(err, parse_value(equals + 1, limit, err), "reading %s %.60s", option, item);
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
        if ((limit[i].metric->kinds & 1U << kind) == 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a %s has no %s; wanted one of %s", limit[i].text, kinds[kind],
                             limit[i].metric->name, names(1U << kind, out));
        }
    }
    return CKPT_OK;
}
