/* Traces: memory to the byte, whoever made them; times where both are predicted, or both measured. */
#include <string.h>

#include "viz/compare/compare_impl.h"

static bool planned(const ckpt_trace *trace)
{
    return trace->plan[0] != '\0' || trace->static_bytes > 0;
}

static ckpt_bytes held(const ckpt_trace *trace, ckpt_category category)
{
    return trace->event_count > 0 ? trace->event[0].bytes[category] : 0;
}

/* Weights or inputs of another size: another model, another batch. */
static ckpt_code match_sizes(ckpt_comparer *c)
{
    static const struct {
        ckpt_category category;
        const char *what;
    } sizes[] = {{CKPT_CAT_WEIGHTS, "graph"}, {CKPT_CAT_INPUTS, "batch"}};
    const ckpt_trace *const base = c->base->trace, *const fresh = c->fresh->trace;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const ckpt_bytes was = held(base, sizes[i].category), is = held(fresh, sizes[i].category);
        if (was != is) {
            const char *const name = ckpt_category_name(sizes[i].category);
            char a[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT];
            return ckpt_compare_mismatched(c, sizes[i].what,
                                           ckpt_arena_format(c->out, "%s of %s", ckpt_bytes_show(was, a), name),
                                           ckpt_arena_format(c->out, "%s of %s", ckpt_bytes_show(is, b), name));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_match_traces(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->base->trace, *const fresh = c->fresh->trace;
    CKPT_TRY(ckpt_match_name(c, planned(base) && planned(fresh) ? "model" : "program", base->name, fresh->name));
    if (c->d->mismatch_count == 0 && planned(base) && planned(fresh)) {
        CKPT_TRY(match_sizes(c));
    }
    c->other_clock = base->measured != fresh->measured;
    if (base->measured && fresh->measured) {
        CKPT_TRY(ckpt_match_machines(c, &base->machine, &fresh->machine));
        return ckpt_note_software(c, &base->machine, &fresh->machine);
    }
    CKPT_TRY(
        ckpt_match_target(c, base->machine.gpu, base->machine.threads, fresh->machine.gpu, fresh->machine.threads));
    /* a predicted trace names as its device where its times come from */
    return c->other_clock ? CKPT_OK : ckpt_match_costs(c, base->machine.device, fresh->machine.device);
}

static void add_spans(ckpt_comparer *c)
{
    static const struct {
        const char *metric;
        ckpt_span span;
    } spans[] = {{"recompute", CKPT_SPAN_RECOMPUTE}, {"forward", CKPT_SPAN_FORWARD}, {"backward", CKPT_SPAN_BACKWARD},
                 {"update", CKPT_SPAN_UPDATE},       {"copy", CKPT_SPAN_COPY},       {"wait", CKPT_SPAN_WAIT}};
    for (size_t s = 0; s < sizeof spans / sizeof spans[0]; s++) {
        ckpt_ns sum[2] = {0, 0};
        for (int k = 0; k < 2; k++) {
            const ckpt_trace *const trace = k == 0 ? c->base->trace : c->fresh->trace;
            for (int i = 0; i < trace->event_count; i++) {
                const ckpt_event *const e = &trace->event[i];
                sum[k] = e->span == spans[s].span ? ckpt_plus(sum[k], e->end_ns - e->start_ns) : sum[k];
            }
        }
        if (sum[0] > 0 || sum[1] > 0) {
            ckpt_compare_value *const value = ckpt_compare_add(c, spans[s].metric, sum[0], sum[1]);
            value->nature = c->fresh->trace->measured ? CKPT_ONCE : CKPT_EXACT;
        }
    }
}

/* Of a measured trace the steps that were not traced, else the one that was. */
static ckpt_code samples_of(ckpt_comparer *c, const ckpt_trace *trace, const ckpt_ns **sample, int *count,
                            ckpt_ns *median)
{
    ckpt_ns *const sorted = CKPT_NEW(c->out, ckpt_ns, trace->step_ns_count);
    if (sorted == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d steps", trace->step_ns_count);
    }
    *sample = trace->step_ns_count > 0 ? trace->step_ns : &trace->time_ns;
    *count = trace->step_ns_count > 0 ? trace->step_ns_count : 1;
    *median = trace->time_ns;
    if (trace->step_ns_count > 0) {
        memcpy(sorted, trace->step_ns, (size_t)trace->step_ns_count * sizeof *sorted);
        *median = ckpt_median(sorted, trace->step_ns_count, NULL);
    }
    return CKPT_OK;
}

static ckpt_code add_step_time(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->base->trace, *const fresh = c->fresh->trace;
    const ckpt_ns *a = NULL, *b = NULL;
    int a_count = 0, b_count = 0;
    ckpt_ns was = base->time_ns, is = fresh->time_ns;
    if (base->measured) {
        CKPT_TRY(samples_of(c, base, &a, &a_count, &was));
    }
    if (fresh->measured) {
        CKPT_TRY(samples_of(c, fresh, &b, &b_count, &is));
    }
    ckpt_compare_value *const value = ckpt_compare_add(c, "step_time", was, is);
    if (base->measured && fresh->measured) {
        return ckpt_compare_samples(c, value, a, a_count, b, b_count);
    }
    value->nature = fresh->measured ? CKPT_SAMPLED : CKPT_EXACT; /* a limit in time is held against NEW alone */
    value->sample = b;
    value->samples = b_count;
    return CKPT_OK;
}

static void add_both(ckpt_comparer *c, const char *metric, int64_t base, int64_t fresh)
{
    if (base > 0 || fresh > 0) {
        ckpt_compare_add(c, metric, base, fresh);
    }
}

static ckpt_code add_categories(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->base->trace, *const fresh = c->fresh->trace;
    ckpt_compare_row *const row = CKPT_NEW(c->out, ckpt_compare_row, CKPT_CATEGORY_COUNT);
    if (row == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
    }
    int count = 0;
    for (int k = 0; k < CKPT_CAT_OUTSIDE && base->event_count > 0 && fresh->event_count > 0; k++) {
        const ckpt_bytes was = base->event[base->peak_event].bytes[k], is = fresh->event[fresh->peak_event].bytes[k];
        if (was > 0 || is > 0) {
            row[count] = (ckpt_compare_row){.name = ckpt_category_name((ckpt_category)k),
                                            .part = "",
                                            .value = ckpt_compare_number("peak", was, is)};
            CKPT_TRY(ckpt_compare_judge(c, &row[count].value));
            count++;
        }
    }
    c->d->row = row;
    c->d->row_count = count;
    c->d->row_title = "category at the peak";
    return CKPT_OK;
}

/* What was measured outside the arena is no part of a plan. */
static const char *at_event(ckpt_comparer *c, int at)
{
    const ckpt_event *const x = &c->base->trace->event[at], *const y = &c->fresh->trace->event[at];
    const char *const was = ckpt_compare_name(c->out, x->name), *const is = ckpt_compare_name(c->out, y->name);
    if (was == NULL || is == NULL) {
        return NULL;
    }
    if (strcmp(x->name, y->name) != 0 || (x->span == CKPT_SPAN_FREE) != (y->span == CKPT_SPAN_FREE)) {
        return ckpt_arena_format(c->out, "differs from step %d on: %s%s, not %s%s", y->step,
                                 y->span == CKPT_SPAN_FREE ? "free of " : "", is,
                                 x->span == CKPT_SPAN_FREE ? "free of " : "", was);
    }
    for (int k = 0; k < CKPT_CAT_OUTSIDE; k++) {
        if (x->bytes[k] != y->bytes[k]) {
            return ckpt_arena_format(c->out, "differs first at step %d (%s): %+lld bytes of %s", y->step, is,
                                     (long long)(y->bytes[k] - x->bytes[k]), ckpt_category_name((ckpt_category)k));
        }
    }
    return "";
}

static ckpt_code find_difference(ckpt_comparer *c)
{
    const ckpt_trace *const a = c->base->trace, *const b = c->fresh->trace;
    const char *text = "";
    for (int i = 0; i < a->event_count && i < b->event_count && text != NULL && text[0] == '\0'; i++) {
        const ckpt_mark mark = ckpt_arena_mark(c->out);
        text = at_event(c, i);
        if (text != NULL && text[0] == '\0') {
            ckpt_arena_rewind(c->out, mark);
        }
    }
    if (text != NULL && text[0] == '\0' && a->event_count != b->event_count) {
        text = ckpt_arena_format(c->out, "has %d steps, not %d", b->event_count, a->event_count);
    }
    c->d->first_difference = text;
    return text != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a comparison");
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

ckpt_code ckpt_compare_traces(ckpt_comparer *c)
{
    const ckpt_trace *const base = c->base->trace, *const fresh = c->fresh->trace;
    ckpt_live_ranges a, b;
    ckpt_static base_static[4], fresh_static[4];
    ckpt_compare_add(c, "peak", base->peak_bytes, fresh->peak_bytes);
    add_both(c, "static", base->static_bytes, fresh->static_bytes);
    add_both(c, "arena", base->arena_bytes, fresh->arena_bytes);
    add_both(c, "budget", base->budget_bytes, fresh->budget_bytes);
    CKPT_TRY(add_step_time(c));
    add_spans(c);
    if (base->process_peak_bytes > 0 || fresh->process_peak_bytes > 0) {
        ckpt_compare_value *const value =
            ckpt_compare_add(c, "process_peak", base->process_peak_bytes, fresh->process_peak_bytes);
        value->nature = CKPT_ONCE;
        value->has_base = base->process_peak_bytes > 0;
        value->has_new = fresh->process_peak_bytes > 0;
    }
    CKPT_TRY(add_categories(c));
    CKPT_TRY(find_difference(c));
    CKPT_TRY_WHILE(c->err, ckpt_live_ranges_make(base, c->out, &a, c->err), "reading %.120s", base->source);
    CKPT_TRY_WHILE(c->err, ckpt_live_ranges_make(fresh, c->out, &b, c->err), "reading %.120s", fresh->source);
    if (a.count == 0 || b.count == 0) {
        return base->peak_bytes == fresh->peak_bytes
                   ? CKPT_OK
                   : ckpt_compare_note(c, ckpt_arena_format(c->out,
                                                            "%s does not say where each buffer was: which of them make "
                                                            "the peak another is not known",
                                                            a.count == 0 ? "BASE" : "NEW"));
    }
    return ckpt_compare_peaks(c, &a, &b, base_static, statics_of(base, base_static), fresh_static,
                              statics_of(fresh, fresh_static));
}
