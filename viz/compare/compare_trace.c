/* Traces: memory to the byte, whoever made them; times where both are predicted, or both measured. */
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/timeline/variants.h"

static bool planned(const ckpt_trace *trace)
{
    return trace->plan[0] != '\0' || trace->static_bytes > 0;
}

static ckpt_bytes held(const ckpt_trace *trace, ckpt_category category)
{
    return trace->event_count > 0 ? trace->event[0].bytes[category] : 0;
}

/* The budget, and weights and inputs of another size: another model, another batch. */
static void match_settings(ckpt_comparer *c, const ckpt_trace *base, const ckpt_trace *fresh)
{
    static const ckpt_category sizes[] = {CKPT_CAT_WEIGHTS, CKPT_CAT_INPUTS};
    ckpt_compare_set_bytes(c, "budget", base->budget_bytes, fresh->budget_bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ckpt_compare_set_bytes(c, ckpt_category_name(sizes[i]), held(base, sizes[i]), held(fresh, sizes[i]));
    }
}

void ckpt_match_traces(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->file[0]->trace, *const fresh = c->file[1]->trace;
    const bool both = planned(base) && planned(fresh);
    ckpt_match_name(c, both ? "model" : "program", base->name, fresh->name);
    if (both) {
        match_settings(c, base, fresh);
    }
    c->other_clock = base->measured != fresh->measured;
    if (base->measured && fresh->measured) {
        ckpt_match_machines(c, &base->machine, &fresh->machine);
        return;
    }
    ckpt_match_target(c, base->machine.gpu, base->machine.threads, fresh->machine.gpu, fresh->machine.threads);
    if (!c->other_clock) { /* a predicted trace names as its device where its times come from */
        (void)ckpt_match_costs(c, base->machine.device, fresh->machine.device);
    }
}

void ckpt_trace_span(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    const ckpt_trace *const trace = c->file[side]->trace;
    *number = ckpt_exact(0);
    number->nature = trace->measured ? CKPT_ONCE : CKPT_EXACT;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const e = &trace->event[i];
        number->value = (int)e->span == of ? ckpt_plus(number->value, e->end_ns - e->start_ns) : number->value;
    }
}

/* Of a measured trace the median of the steps that were not traced, else the one that was. */
void ckpt_trace_step_time(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    const ckpt_trace *const trace = c->file[side]->trace;
    ckpt_ns *const sorted = CKPT_COMPARE_NEW(c, ckpt_ns, trace->step_ns_count);
    *number = ckpt_exact(trace->time_ns);
    if (!trace->measured || sorted == NULL) {
        return;
    }
    number->nature = CKPT_SAMPLED;
    number->sample = trace->step_ns_count > 0 ? trace->step_ns : &trace->time_ns;
    number->samples = trace->step_ns_count > 0 ? trace->step_ns_count : 1;
    if (trace->step_ns_count > 0) {
        memcpy(sorted, trace->step_ns, (size_t)trace->step_ns_count * sizeof *sorted);
        number->value = ckpt_median(sorted, trace->step_ns_count, NULL);
    }
}

void ckpt_trace_process(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    *number = ckpt_exact(c->file[side]->trace->process_peak_bytes);
    number->has = number->value > 0;
    number->nature = CKPT_ONCE;
}

static void add_categories(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->file[0]->trace, *const fresh = c->file[1]->trace;
    ckpt_compare_row *const row = CKPT_COMPARE_NEW(c, ckpt_compare_row, CKPT_CATEGORY_COUNT);
    int count = 0;
    for (int k = 0; k < CKPT_CAT_OUTSIDE && base->event_count > 0 && fresh->event_count > 0 && row != NULL; k++) {
        const ckpt_number was = ckpt_exact(base->event[base->peak_event].bytes[k]);
        const ckpt_number is = ckpt_exact(fresh->event[fresh->peak_event].bytes[k]);
        if (was.value > 0 || is.value > 0) {
            row[count] = (ckpt_compare_row){.name = ckpt_category_name((ckpt_category)k),
                                            .part = "",
                                            .value = ckpt_compare_value_of(c, ckpt_metric_find("peak"), &was, &is)};
            ckpt_compare_judge(c, &row[count++].value);
        }
    }
    c->d->row = row;
    c->d->row_count = count;
    c->d->row_title = "category at the peak";
}

static const char *called(ckpt_comparer *c, const ckpt_event *event)
{
    return ckpt_compare_name(c, ckpt_compare_keep(c, ckpt_event_called(event, c->out)));
}

/* What was measured outside the arena is no part of a plan. */
static const char *at_event(ckpt_comparer *c, int at)
{
    const ckpt_event *const x = &c->file[0]->trace->event[at], *const y = &c->file[1]->trace->event[at];
    if (!ckpt_event_same_run(x, y)) {
        return CKPT_COMPARE_SAY(c, "differs from step %d on: %s%s, not %s%s", y->step,
                                y->span == CKPT_SPAN_FREE ? "free of " : "", called(c, y),
                                x->span == CKPT_SPAN_FREE ? "free of " : "", called(c, x));
    }
    for (int k = 0; k < CKPT_CAT_OUTSIDE; k++) {
        if (x->bytes[k] != y->bytes[k]) {
            return CKPT_COMPARE_SAY(c, "differs first at step %d (%s): %+lld bytes of %s", y->step,
                                    ckpt_compare_name(c, y->name), (long long)(y->bytes[k] - x->bytes[k]),
                                    ckpt_category_name((ckpt_category)k));
        }
    }
    return "";
}

static const char *find_difference(ckpt_comparer *c)
{
    const ckpt_trace *const a = c->file[0]->trace, *const b = c->file[1]->trace;
    const char *text = "";
    for (int i = 0; i < a->event_count && i < b->event_count && text[0] == '\0'; i++) {
        text = at_event(c, i);
    }
    return text[0] != '\0' || a->event_count == b->event_count
               ? text
               : CKPT_COMPARE_SAY(c, "has %d steps, not %d", b->event_count, a->event_count);
}

/* The static block by category; "gradients" of an event holds gradients of activations too. */
static int statics_of(const ckpt_trace *trace, ckpt_static *statics)
{
    static const ckpt_category categories[] = {CKPT_CAT_WEIGHTS, CKPT_CAT_OPTIMIZER, CKPT_CAT_INPUTS};
    ckpt_bytes left = trace->static_bytes;
    int count = 0;
    for (int i = 0; i < 3 && planned(trace); i++) {
        const ckpt_bytes bytes = held(trace, categories[i]);
        statics[count++] = (ckpt_static){ckpt_category_name(categories[i]), bytes};
        left -= bytes < left ? bytes : left;
    }
    if (left > 0) {
        statics[count++] = (ckpt_static){ckpt_category_name(CKPT_CAT_GRADIENTS), left};
    }
    return count;
}

void ckpt_compare_traces(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->file[0]->trace, *const fresh = c->file[1]->trace;
    ckpt_live_ranges ranges[2];
    ckpt_static statics[2][4];
    add_categories(c);
    c->d->first_difference = find_difference(c);
    if (!ckpt_compare_ranges(c, base, base->source, &ranges[0]) ||
        !ckpt_compare_ranges(c, fresh, fresh->source, &ranges[1])) {
        return;
    }
    const int static_count[] = {statics_of(base, statics[0]), statics_of(fresh, statics[1])};
    const ckpt_static *const blocks[] = {statics[0], statics[1]};
    ckpt_compare_layers(c, ranges, blocks, static_count);
    if (ranges[0].count > 0 && ranges[1].count > 0) {
        ckpt_compare_peaks(c, ranges, blocks, static_count);
    } else if (base->peak_bytes != fresh->peak_bytes) {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c,
                                              "%s does not say where each buffer was: which of them make the peak "
                                              "another is not known",
                                              ranges[0].count == 0 ? "BASE" : "NEW"));
    }
}
