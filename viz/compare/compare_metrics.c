/* The numbers that are compared, by the names that limits use: a row says what a metric is and, for each kind of file
 * that has it, where it comes from. Everything else (limits, every form of the report) follows from the row. */
#include <stddef.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

/* PLAN, TRACE, SWEEP: a field, and when it counts: always; when either file's is not 0; when it is positive; when the
 * plan fits its budget. BY: a function reads the number and says whether there is one. SUM: the same of what adds up, 0
 * where a file has nothing of the kind; it counts when either file's is not 0. */
#define FROM(kind, type, name, when) [CKPT_COMPARE_##kind] = {.has = CKPT_##when, .field = offsetof(type, name)}
#define PLAN(name, when)             FROM(PLAN, ckpt_plan, name, when)
#define TRACE(name, when)            FROM(TRACE, ckpt_trace, name, when)
#define SWEEP(name)                  FROM(SWEEP, ckpt_curve, name, ALWAYS)
#define BY(kind, function, what)     [CKPT_COMPARE_##kind] = {.has = CKPT_ALWAYS, .read = (function), .of = (what)}
#define SUM(kind, function, what)    [CKPT_COMPARE_##kind] = {.has = CKPT_WHEN_EITHER, .read = (function), .of = (what)}

#define OF(...)                                                                                                        \
    (const ckpt_source[CKPT_COMPARE_KIND_COUNT])                                                                       \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

const ckpt_metric ckpt_metrics[] = {
    {"peak", "peak", "the most bytes in memory in any step, static block included", CKPT_UNIT_BYTES, false,
     OF(PLAN(peak_bytes, WHEN_FITS), TRACE(peak_bytes, ALWAYS))},
    {"static", "static block", "bytes in memory for the whole step: weights, optimizer state, ...", CKPT_UNIT_BYTES,
     false, OF(PLAN(static_bytes, ALWAYS), TRACE(static_bytes, WHEN_EITHER), SWEEP(static_bytes))},
    {"arena", "arena", "bytes for what comes and goes, where it was placed", CKPT_UNIT_BYTES, false,
     OF(PLAN(arena_bytes, WHEN_FITS), TRACE(arena_bytes, WHEN_EITHER))},
    {"budget", "budget", "what the step was allowed to hold", CKPT_UNIT_BYTES, true,
     OF(PLAN(budget_bytes, ALWAYS), TRACE(budget_bytes, WHEN_EITHER))},
    {"least_budget", "minimum budget", "a budget that a plan is known to fit", CKPT_UNIT_BYTES, false,
     OF(BY(PLAN, ckpt_plan_min_budget, 0), BY(SWEEP, ckpt_compare_min_budget, 0))},
    {"step_time", "step time",
     "of a training step; of a profile, all layers together; of a sweep, at the budget where it changed for the worse "
     "most",
     CKPT_UNIT_NS, false,
     OF(PLAN(time_ns, WHEN_FITS), BY(PROFILE, ckpt_profile_time, CKPT_ALL_DIRECTIONS),
        BY(TRACE, ckpt_trace_step_time, 0), BY(SWEEP, ckpt_sweep_step_time, 0))},
    {"mean_time", "mean step time", "over all budgets that both sweeps reach", CKPT_UNIT_NS, false,
     OF(BY(SWEEP, ckpt_sweep_mean, 0))},
    {"recompute", "recompute time", "of the step, in recomputed runs", CKPT_UNIT_NS, false,
     OF(PLAN(recompute_ns, WHEN_FITS), SUM(TRACE, ckpt_trace_span, CKPT_SPAN_RECOMPUTE))},
    {"forward", "forward time", "in forward runs", CKPT_UNIT_NS, false,
     OF(SUM(PROFILE, ckpt_profile_time, CKPT_DIRECTION_FORWARD), SUM(TRACE, ckpt_trace_span, CKPT_SPAN_FORWARD))},
    {"backward", "backward time", "in backward runs", CKPT_UNIT_NS, false,
     OF(SUM(PROFILE, ckpt_profile_time, CKPT_DIRECTION_BACKWARD), SUM(TRACE, ckpt_trace_span, CKPT_SPAN_BACKWARD))},
    {"update", "update time", "in the optimizer", CKPT_UNIT_NS, false,
     OF(SUM(PROFILE, ckpt_profile_time, CKPT_DIRECTION_UPDATE), SUM(TRACE, ckpt_trace_span, CKPT_SPAN_UPDATE))},
    {"copy", "copy time", "in copies from and to the host", CKPT_UNIT_NS, false,
     OF(SUM(TRACE, ckpt_trace_span, CKPT_SPAN_COPY))},
    {"wait", "wait time", "in which runs and frees wait for copies", CKPT_UNIT_NS, false,
     OF(SUM(TRACE, ckpt_trace_span, CKPT_SPAN_WAIT))},
    {"overhead", "overhead", "step time over that of keeping everything", CKPT_UNIT_RATIO, false,
     OF(BY(PLAN, ckpt_plan_excess, CKPT_OVER_KEEP_ALL))},
    {"gap", "gap", "step time over the bound, than which no schedule is faster", CKPT_UNIT_RATIO, true,
     OF(BY(PLAN, ckpt_plan_excess, CKPT_OVER_BOUND))},
    {"bound", "bound", "no schedule under this budget is faster", CKPT_UNIT_NS, true, OF(BY(PLAN, ckpt_plan_bound, 0))},
    {"other_ways", "runs in another way", "by a variant other than the op's own", CKPT_UNIT_COUNT, true,
     OF(SUM(PLAN, ckpt_ways_count, CKPT_OTHER_WAYS), SUM(TRACE, ckpt_ways_count, CKPT_OTHER_WAYS))},
    {"inexact", "inexact runs", "by variants that give other bits", CKPT_UNIT_COUNT, true,
     OF(SUM(PLAN, ckpt_ways_count, CKPT_INEXACT_RUNS), SUM(TRACE, ckpt_ways_count, CKPT_INEXACT_RUNS))},
    {"offload", "offloaded", "bytes copied to the host, each copy counted", CKPT_UNIT_BYTES, false,
     OF(PLAN(offload_bytes, WHEN_FITS))},
    {"host", "on the host", "bytes that the host must hold", CKPT_UNIT_BYTES, false, OF(PLAN(host_bytes, WHEN_FITS))},
    {"keep_all_peak", "keep-all peak", "peak when nothing is recomputed or offloaded", CKPT_UNIT_BYTES, false,
     OF(PLAN(keep_all_peak_bytes, WHEN_POSITIVE), SWEEP(keep_all_peak_bytes))},
    {"keep_all_time", "keep-all time", "step time when nothing is recomputed or offloaded", CKPT_UNIT_NS, false,
     OF(PLAN(keep_all_time_ns, WHEN_POSITIVE), SWEEP(keep_all_time_ns))},
    {"process_peak", "process peak", "the most of the whole process, as the system measured it", CKPT_UNIT_BYTES, false,
     OF(BY(TRACE, ckpt_trace_process, 0))},
    {"outputs", "outputs", "bytes that layers hand on", CKPT_UNIT_BYTES, false,
     OF(BY(PROFILE, ckpt_profile_bytes, offsetof(ckpt_profile_row, output_bytes)))},
    {"saved", "saved", "bytes that layers save for backward beside that", CKPT_UNIT_BYTES, false,
     OF(BY(PROFILE, ckpt_profile_bytes, offsetof(ckpt_profile_row, saved_bytes)))},
    {"workspace", "workspace", "the largest workspace of any layer", CKPT_UNIT_BYTES, false,
     OF(BY(PROFILE, ckpt_profile_bytes, offsetof(ckpt_profile_row, forward_workspace_bytes)))},
    {"parameters", "parameters", "bytes of parameters", CKPT_UNIT_BYTES, true,
     OF(BY(PROFILE, ckpt_profile_bytes, offsetof(ckpt_profile_row, parameter_bytes)))},
    {"copy_out", "copy of 1 GB out", "to the host, alone", CKPT_UNIT_NS, false,
     OF(BY(PROFILE, ckpt_profile_copy, offsetof(ckpt_profile, d2h_bytes_per_s)))},
    {"copy_in", "copy of 1 GB in", "from the host, alone", CKPT_UNIT_NS, false,
     OF(BY(PROFILE, ckpt_profile_copy, offsetof(ckpt_profile, h2d_bytes_per_s)))},
    {.name = NULL},
};

static const char *const kinds[CKPT_COMPARE_KIND_COUNT] = {"plan", "profile", "trace", "sweep"};

const char *ckpt_compare_kind_name(ckpt_compare_kind kind)
{
    return (size_t)kind < CKPT_COMPARE_KIND_COUNT ? kinds[kind] : "unknown";
}

const ckpt_metric *ckpt_metric_find(const char *name)
{
    const ckpt_metric *m = ckpt_metrics;
    while (m->name != NULL && strcmp(m->name, name) != 0) {
        m++;
    }
    return m->name != NULL ? m : NULL;
}

static const void *content(const ckpt_compare_file *file)
{
    const void *const is[] = {file->plan, file->profile, file->trace, file->curve};
    return is[file->kind];
}

static ckpt_number read_number(ckpt_comparer *c, const ckpt_source *source, int side)
{
    ckpt_number number = {.where = "", .why = ""};
    if (source->read != NULL) {
        source->read(c, side, source->of, &number);
        return number;
    }
    memcpy(&number.value, (const char *)content(c->file[side]) + source->field, sizeof number.value);
    number.has = source->has != CKPT_WHEN_POSITIVE || number.value > 0;
    if (source->has == CKPT_WHEN_FITS && c->file[side]->plan->verdict != CKPT_FITS) {
        number.has = false;
    }
    return number;
}

/* What a side has not is 0, and said to be missing. */
static void add_metric(ckpt_comparer *c, const ckpt_metric *metric, bool limited)
{
    const ckpt_source *const source = &metric->source[c->file[0]->kind];
    if (source->has == CKPT_NOT_THERE) {
        return;
    }
    const ckpt_number base = read_number(c, source, 0), fresh = read_number(c, source, 1);
    const bool nothing = source->has == CKPT_WHEN_EITHER && base.value == 0 && fresh.value == 0;
    if ((!base.has && !fresh.has) || (nothing && !limited)) {
        return;
    }
    ckpt_compare_value *const value = &c->value[c->d->value_count++];
    *value = ckpt_compare_value_of(c, metric, &base, &fresh);
    const ckpt_plan *const a = c->file[0]->plan, *const b = c->file[1]->plan;
    if (a != NULL && a->verdict != b->verdict && base.has != fresh.has) {
        value->why = b->verdict == CKPT_FITS ? "BASE does not fit its budget" : "NEW does not fit its budget";
    }
    ckpt_compare_judge(c, value);
    c->d->worse += value->change == CKPT_CHANGE_WORSE;
    c->d->better += value->change == CKPT_CHANGE_BETTER;
}

void ckpt_compare_metrics(ckpt_comparer *c)
{
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL && c->code == CKPT_OK; m++) {
        bool limited = false;
        for (int i = 0; i < c->options->limit_count; i++) {
            limited = limited || c->options->limit[i].metric == m;
        }
        add_metric(c, m, limited);
    }
}

void ckpt_metrics_text(ckpt_text *text)
{
    int width = 0;
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        width = (int)strlen(m->name) > width ? (int)strlen(m->name) : width;
    }
    ckpt_text_add(text, "%-*s  %-27s %s\n", width, "metric", "of", "what it is");
    for (const ckpt_metric *m = ckpt_metrics; m->name != NULL; m++) {
        char of[40] = "";
        for (int k = 0; k < CKPT_COMPARE_KIND_COUNT; k++) {
            if (m->source[k].has != CKPT_NOT_THERE) {
                strcat(of, of[0] != '\0' ? " " : "");
                strcat(of, kinds[k]);
            }
        }
        ckpt_text_add(text, "%-*s  %-27s %s\n", width, m->name, of, m->about);
    }
}
