/* Traces as series: positions on the axis, peaks, and what differs between two of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "viz/timeline/variants.h"
#include "viz/timeline/view.h"

const ckpt_band_look ckpt_band_looks[CKPT_BAND_COUNT] = {
    [CKPT_BAND_WEIGHTS] = {"weights", CKPT_ROLE_WEIGHTS},
    [CKPT_BAND_OPTIMIZER] = {"optimizer", CKPT_ROLE_OPTIMIZER},
    [CKPT_BAND_WEIGHT_GRADIENTS] = {"weight gradients", CKPT_ROLE_PARAMETER_GRADIENTS},
    [CKPT_BAND_INPUTS] = {"inputs", CKPT_ROLE_INPUTS},
    [CKPT_BAND_ACTIVATIONS] = {"activations", CKPT_ROLE_ACTIVATIONS},
    [CKPT_BAND_SAVED] = {"saved", CKPT_ROLE_SAVED},
    [CKPT_BAND_RECOMPUTED] = {"recomputed", CKPT_ROLE_RECOMPUTE},
    [CKPT_BAND_OFFLOADED] = {"offloaded", CKPT_ROLE_OFFLOADED},
    [CKPT_BAND_GRADIENTS] = {"gradients", CKPT_ROLE_GRADIENTS},
    [CKPT_BAND_WORKSPACE] = {"workspace", CKPT_ROLE_WORKSPACE},
    [CKPT_BAND_STAGING] = {"copies", CKPT_ROLE_STAGING},
    [CKPT_BAND_OTHER] = {"other", CKPT_ROLE_OTHER},
    [CKPT_BAND_OUTSIDE] = {"outside the arena", CKPT_ROLE_OUTSIDE},
};

enum { NO_CATEGORY = -1 }; /* live ranges know it */

static const int category_of[CKPT_BAND_COUNT] = {
    [CKPT_BAND_WEIGHTS] = CKPT_CAT_WEIGHTS,
    [CKPT_BAND_OPTIMIZER] = CKPT_CAT_OPTIMIZER,
    [CKPT_BAND_WEIGHT_GRADIENTS] = CKPT_CAT_GRADIENTS,
    [CKPT_BAND_INPUTS] = CKPT_CAT_INPUTS,
    [CKPT_BAND_ACTIVATIONS] = CKPT_CAT_ACTIVATIONS,
    [CKPT_BAND_SAVED] = CKPT_CAT_SAVED,
    [CKPT_BAND_RECOMPUTED] = NO_CATEGORY,
    [CKPT_BAND_OFFLOADED] = NO_CATEGORY,
    [CKPT_BAND_GRADIENTS] = CKPT_CAT_GRADIENTS,
    [CKPT_BAND_WORKSPACE] = CKPT_CAT_WORKSPACE,
    [CKPT_BAND_STAGING] = CKPT_CAT_STAGING,
    [CKPT_BAND_OTHER] = CKPT_CAT_OTHER,
    [CKPT_BAND_OUTSIDE] = CKPT_CAT_OUTSIDE,
};

bool ckpt_trace_follows_no_plan(const ckpt_trace *trace)
{
    return (trace->plan == NULL || trace->plan[0] == '\0') && trace->static_bytes == 0 && trace->arena_bytes == 0;
}

static ckpt_bytes plus(ckpt_bytes a, ckpt_bytes b)
{
    ckpt_bytes sum = CKPT_BYTES_MAX;
    return ckpt_sum(a, b, &sum) ? sum : CKPT_BYTES_MAX;
}

void ckpt_event_bands(const ckpt_trace *trace, const ckpt_event *event, ckpt_bands *bands)
{
    bands->planned = 0;
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        const ckpt_bytes bytes = category_of[b] != NO_CATEGORY ? event->bytes[category_of[b]] : 0;
        bands->bytes[b] = bytes > 0 ? bytes : 0;
    }
    /* static_bytes = weights + optimizer + inputs + static gradients */
    ckpt_bytes fixed = trace->static_bytes;
    fixed -= bands->bytes[CKPT_BAND_WEIGHTS] < fixed ? bands->bytes[CKPT_BAND_WEIGHTS] : fixed;
    fixed -= bands->bytes[CKPT_BAND_OPTIMIZER] < fixed ? bands->bytes[CKPT_BAND_OPTIMIZER] : fixed;
    fixed -= bands->bytes[CKPT_BAND_INPUTS] < fixed ? bands->bytes[CKPT_BAND_INPUTS] : fixed;
    const ckpt_bytes gradients = bands->bytes[CKPT_BAND_GRADIENTS];
    bands->bytes[CKPT_BAND_WEIGHT_GRADIENTS] = fixed < gradients ? fixed : gradients;
    bands->bytes[CKPT_BAND_GRADIENTS] = gradients - bands->bytes[CKPT_BAND_WEIGHT_GRADIENTS];
    for (int b = 0; b < CKPT_BAND_OUTSIDE; b++) {
        bands->planned = plus(bands->planned, bands->bytes[b]);
    }
}

static void move(ckpt_bands *bands, ckpt_band from, ckpt_band to, uint64_t most)
{
    const ckpt_bytes bytes = most < (uint64_t)bands->bytes[from] ? (ckpt_bytes)most : bands->bytes[from];
    bands->bytes[from] -= bytes;
    bands->bytes[to] = plus(bands->bytes[to], bytes);
}

void ckpt_series_bands(const ckpt_series *series, int event, ckpt_bands *bands)
{
    ckpt_event_bands(series->trace, &series->trace->event[event], bands);
    for (int saved = 0; saved < 2 && series->split != NULL; saved++) {
        const ckpt_band from = saved ? CKPT_BAND_SAVED : CKPT_BAND_ACTIVATIONS;
        move(bands, from, CKPT_BAND_RECOMPUTED, series->split[event].recomputed[saved]);
        move(bands, from, CKPT_BAND_OFFLOADED, series->split[event].offloaded[saved]);
    }
}

/* What begins and ends at each event, then the sums. */
static ckpt_code split_bands(ckpt_series *series, ckpt_arena *scratch, ckpt_err *err)
{
    const int count = series->trace->event_count;
    ckpt_band_split *const split = CKPT_NEW(scratch, ckpt_band_split, (size_t)count + 1);
    if (split == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the bands of %d events", count);
    }
    for (int i = 0; i < series->ranges.count; i++) {
        const ckpt_live_range *const range = &series->ranges.range[i];
        const bool recomputed = range->kind == CKPT_LIVE_RECOMPUTED;
        if (!recomputed && range->kind != CKPT_LIVE_OFFLOADED) {
            continue;
        }
        ckpt_band_split *const begin = &split[range->from], *const end = &split[range->to + 1];
        const int saved = range->category == CKPT_CAT_SAVED;
        *(recomputed ? &begin->recomputed[saved] : &begin->offloaded[saved]) += (uint64_t)range->bytes;
        *(recomputed ? &end->recomputed[saved] : &end->offloaded[saved]) -= (uint64_t)range->bytes;
    }
    for (int i = 1; i < count; i++) {
        for (int saved = 0; saved < 2; saved++) {
            split[i].recomputed[saved] += split[i - 1].recomputed[saved];
            split[i].offloaded[saved] += split[i - 1].offloaded[saved];
        }
    }
    series->split = split;
    return CKPT_OK;
}

static bool steps_increase(const ckpt_trace *trace)
{
    bool increase = trace->event[0].step >= 0;
    for (int i = 1; i < trace->event_count && increase; i++) {
        increase = trace->event[i].step > trace->event[i - 1].step;
    }
    return increase;
}

static void place_by_step(ckpt_series *series, bool by_step)
{
    const ckpt_trace *const trace = series->trace;
    series->by_step = by_step;
    for (int i = 0; i < trace->event_count; i++) {
        series->from[i] = by_step ? trace->event[i].step : i;
    }
    series->from[trace->event_count] = series->from[trace->event_count - 1] + 1;
}

/* Memory changes when a step is issued. A copy is issued where the compute stream stands, whenever it runs. */
void ckpt_trace_times(const ckpt_trace *trace, double *from)
{
    double now = 0, end = (double)trace->time_ns;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        if (event->span != CKPT_SPAN_COPY) {
            now = fmax(now, (double)event->start_ns);
        }
        end = fmax(end, (double)event->end_ns);
        from[i] = now;
    }
    from[trace->event_count] = fmax(end, now);
}

static void find_peak(ckpt_series *series)
{
    series->at_peak.planned = -1;
    for (int i = 0; i < series->trace->event_count; i++) {
        const ckpt_event *const event = &series->trace->event[i];
        ckpt_bands bands;
        ckpt_series_bands(series, i, &bands);
        if (bands.planned > series->at_peak.planned) {
            series->at_peak = bands;
            series->peak = i;
        }
        for (int b = 0; b < CKPT_BAND_COUNT; b++) {
            series->used[b] = series->used[b] || bands.bytes[b] > 0;
        }
        const ckpt_bytes all = plus(bands.planned, bands.bytes[CKPT_BAND_OUTSIDE]);
        series->most_bytes = all > series->most_bytes ? all : series->most_bytes;
        if (bands.bytes[CKPT_BAND_OUTSIDE] > series->outside_bytes) {
            series->outside_bytes = bands.bytes[CKPT_BAND_OUTSIDE];
        }
        const ckpt_ns ns = event->end_ns > event->start_ns ? event->end_ns - event->start_ns : 0;
        const bool recomputed = event->span == CKPT_SPAN_RECOMPUTE, run = ckpt_event_runs(event);
        const bool copy = event->span == CKPT_SPAN_COPY && !run;
        series->runs += run;
        series->recomputed += recomputed;
        series->copies += copy;
        series->allocations += event->span == CKPT_SPAN_ALLOCATE;
        series->frees += event->span == CKPT_SPAN_FREE;
        series->recomputed_ns = recomputed ? plus(series->recomputed_ns, ns) : series->recomputed_ns;
        series->copy_ns = copy ? plus(series->copy_ns, ns) : series->copy_ns;
    }
}

enum { GROUPED = 32 };

/* 3000000 as "3,000,000". */
static const char *grouped(ckpt_bytes bytes, char *text)
{
    char digits[GROUPED];
    const int count = snprintf(digits, sizeof digits, "%lld", (long long)bytes);
    int k = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            text[k++] = ',';
        }
        text[k++] = digits[i];
    }
    text[k] = '\0';
    return text;
}

/* What was measured outside the arena is no part of a plan, so it is not compared. */
static const char *compare(const ckpt_series *base, ckpt_series *other, ckpt_arena *scratch)
{
    const ckpt_trace *const a = base->trace, *const b = other->trace;
    const int shared = a->event_count < b->event_count ? a->event_count : b->event_count;
    for (int i = 0; i < shared; i++) {
        const ckpt_event *const x = &a->event[i], *const y = &b->event[i];
        if (!ckpt_event_same_run(x, y)) {
            const char *const is = ckpt_event_called(y, scratch), *const was = ckpt_event_called(x, scratch);
            return is == NULL || was == NULL
                       ? NULL
                       : ckpt_arena_format(scratch, "differs from step %d on: %s, not %s", y->step, is, was);
        }
        for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
            if (x->bytes[c] == y->bytes[c]) {
                continue;
            }
            const bool more = y->bytes[c] > x->bytes[c];
            const ckpt_bytes bytes = more ? y->bytes[c] - x->bytes[c] : x->bytes[c] - y->bytes[c];
            char digits[GROUPED];
            return ckpt_arena_format(scratch, "differs first at step %d (%s): %s byte%s %s of %s than %s", y->step,
                                     y->name, grouped(bytes, digits), bytes == 1 ? "" : "s", more ? "more" : "less",
                                     ckpt_category_name((ckpt_category)c), base->label);
        }
    }
    if (a->event_count != b->event_count) {
        return ckpt_arena_format(scratch, "has %d steps, %s has %d", b->event_count, base->label, a->event_count);
    }
    other->same = true;
    return ckpt_arena_format(scratch, "= %s at every step, to the byte", base->label);
}

/* "measured" when that is clear; else with the plan in parentheses, else with the file. */
static const char *label_of(const ckpt_trace *const *trace, int count, int which, ckpt_arena *scratch)
{
    const ckpt_trace *const own = trace[which];
    const char *const kind = own->measured ? "measured" : "predicted";
    const char *const plan = own->plan != NULL ? own->plan : "";
    int alike = 0, same_plan = 0;
    for (int i = 0; i < count; i++) {
        const bool as_kind = trace[i]->measured == own->measured;
        alike += as_kind;
        same_plan += as_kind && strcmp(trace[i]->plan != NULL ? trace[i]->plan : "", plan) == 0;
    }
    if (alike == 1) {
        return kind;
    }
    const char *const source = own->source != NULL ? own->source : "";
    const char *const slash = strrchr(source, '/');
    return ckpt_arena_format(scratch, "%s (%s)", kind, same_plan == 1 ? plan : slash != NULL ? slash + 1 : source);
}

ckpt_code ckpt_series_make(const ckpt_trace *const *trace, int count, bool time_axis, ckpt_arena *scratch,
                           ckpt_series *series, int *base, ckpt_err *err)
{
    bool by_step = true, split = true;
    int first = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (trace[i]->event_count < 1) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found a trace without events, wanted at minimum one",
                             trace[i]->source != NULL ? trace[i]->source : "trace");
        }
        by_step = by_step && steps_increase(trace[i]);
        split = split && trace[i]->allocation_count > 0;
        first = trace[i]->measured ? first : i;
    }
    for (int i = 0; i < count; i++) {
        ckpt_series *const s = &series[i];
        *s = (ckpt_series){.trace = trace[i], .verdict = ""};
        s->label = label_of(trace, count, i, scratch);
        s->from = CKPT_NEW(scratch, double, trace[i]->event_count + 1);
        if (s->label == NULL || s->from == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d events", trace[i]->event_count);
        }
        if (time_axis) {
            ckpt_trace_times(trace[i], s->from);
        } else {
            place_by_step(s, by_step);
        }
        CKPT_TRY(ckpt_live_ranges_make(trace[i], scratch, &s->ranges, err));
        CKPT_TRY(split ? split_bands(s, scratch, err) : CKPT_OK);
        find_peak(s);
    }
    for (int i = 0; i < count; i++) {
        series[i].verdict = i == first ? "" : compare(&series[first], &series[i], scratch);
        if (series[i].verdict == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to compare traces");
        }
    }
    *base = first;
    return CKPT_OK;
}

void ckpt_series_columns(const ckpt_series *series, double end, int columns, int *event, ckpt_bytes *most)
{
    for (int c = 0; c < columns; c++) {
        event[c] = -1;
        most[c] = -1;
    }
    for (int i = 0; i < series->trace->event_count; i++) {
        ckpt_bands bands;
        ckpt_event_bands(series->trace, &series->trace->event[i], &bands);
        /* The thousandth keeps an edge that falls on a column's edge from touching the next column. */
        int from = (int)floor(series->from[i] / end * columns + 1e-3);
        int to = (int)ceil(series->from[i + 1] / end * columns - 1e-3);
        from = from < 0 ? 0 : from > columns - 1 ? columns - 1 : from;
        to = to <= from ? from + 1 : to > columns ? columns : to;
        for (int c = from; c < to; c++) {
            if (bands.planned > most[c]) {
                most[c] = bands.planned;
                event[c] = i;
            }
        }
    }
}

double ckpt_tick_step(double range, int parts, double minimum)
{
    static const double mantissa[] = {1, 2, 5};
    if (!(range > 0)) {
        return minimum;
    }
    for (double power = pow(10, floor(log10(range / parts)));; power *= 10) {
        for (int i = 0; i < 3; i++) {
            if (mantissa[i] * power >= minimum && range / (mantissa[i] * power) <= parts) {
                return mantissa[i] * power;
            }
        }
    }
}

/* As many decimals as tell one step from the next, and the unit of the axis. */
static const char *tick(double value, double step, const char *unit, char *text)
{
    const int decimals = step < 1 ? (int)fmin(9, ceil(-log10(step) - 1e-9)) : 0;
    snprintf(text, CKPT_UNITS_TEXT, "%.*f%s%s", value > 0 ? decimals : 0, value, value > 0 ? " " : "",
             value > 0 ? unit : "");
    return text;
}

const char *ckpt_tick_bytes(double value, double step, double end, char *text)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    int u = 0;
    for (; u < 6 && end >= 1000; u++) {
        end /= 1000;
        step /= 1000;
        value /= 1000;
    }
    return tick(value, step, unit[u], text);
}

const char *ckpt_tick_ns(double value, double step, double end, char *text)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int u = 0;
    for (; u < 3 && end >= 1000; u++) {
        end /= 1000;
        step /= 1000;
        value /= 1000;
    }
    return tick(value, step, unit[u], text);
}
