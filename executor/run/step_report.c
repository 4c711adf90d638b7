/* Comparing a measured step with its prediction. */
#include "executor/run/step_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which people think of a step. */
static const ckpt_span shown[] = {CKPT_SPAN_FORWARD, CKPT_SPAN_RECOMPUTE, CKPT_SPAN_BACKWARD, CKPT_SPAN_UPDATE};
enum { SHOWN = sizeof shown / sizeof shown[0] };

static ckpt_ns apart(const ckpt_step_part *part)
{
    const ckpt_ns more = part->measured_ns - part->predicted_ns;
    return more < 0 ? -more : more;
}

static bool add(ckpt_step_part *to, const ckpt_step_part *more)
{
    to->runs += more->runs;
    return ckpt_sum(to->predicted_ns, more->predicted_ns, &to->predicted_ns) &&
           ckpt_sum(to->measured_ns, more->measured_ns, &to->measured_ns);
}

static int by_layer(const void *a, const void *b)
{
    const ckpt_step_layer *const x = a, *const y = b;
    const int order = strcmp(x->layer, y->layer);
    return order != 0 ? order : (x->span > y->span) - (x->span < y->span);
}

/* Farthest first; the name decides between equals, so that the answer does not depend on the sort. */
static int by_distance(const void *a, const void *b)
{
    const ckpt_step_layer *const x = a, *const y = b;
    const ckpt_ns p = apart(&x->part), q = apart(&y->part);
    return p != q ? (p < q ? 1 : -1) : by_layer(a, b);
}

static bool is_layer(ckpt_span span)
{
    return span == CKPT_SPAN_FORWARD || span == CKPT_SPAN_RECOMPUTE || span == CKPT_SPAN_BACKWARD ||
           span == CKPT_SPAN_UPDATE;
}

/* The planner takes whatever is exchanged for a copy; the executor knows where it waits, and that the length of all
 * gradients is computed. */
static bool is_same(ckpt_span predicted, ckpt_span measured)
{
    return predicted == measured ||
           (predicted == CKPT_SPAN_COPY && (measured == CKPT_SPAN_UPDATE || measured == CKPT_SPAN_WAIT));
}

/* The runs of the step, one entry each; gives their number. A wait of one side may be a free on the other. */
static ckpt_code collect(const ckpt_trace *predicted, const ckpt_ns *more_ns, const ckpt_trace *measured,
                         ckpt_step_layer *layer, int *count, ckpt_step_report *report, ckpt_err *err)
{
    ckpt_ns busy = 0;
    bool fits = true;
    for (int i = 0; i < measured->event_count && fits; i++) {
        const ckpt_event *const p = &predicted->event[i], *const m = &measured->event[i];
        const bool runs = is_layer(m->span) || m->span == CKPT_SPAN_COPY;
        const bool ran = is_layer(p->span) || p->span == CKPT_SPAN_COPY;
        if (strcmp(p->name, m->name) != 0 || ((runs || ran) && !is_same(p->span, m->span))) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "step %d is %s of %.80s as predicted and %s of %.80s as measured", i,
                             ckpt_span_name(p->span), p->name, ckpt_span_name(m->span), m->name);
        }
        if (!runs) {
            continue;
        }
        const ckpt_ns foreseen = p->end_ns - p->start_ns - (more_ns != NULL ? more_ns[i] : 0);
        const ckpt_step_layer one = {m->layer, m->span, {foreseen, m->end_ns - m->start_ns, 1}};
        fits = add(&report->part[m->span], &one.part);
        if (is_layer(m->span)) {
            fits = fits && add(&report->layers, &one.part) &&
                   ckpt_sum(busy, m->launches > 0 ? m->kernel_ns : one.part.measured_ns, &busy);
            layer[(*count)++] = one;
        }
    }
    report->step = (ckpt_step_part){predicted->time_ns, measured->time_ns, measured->event_count};
    report->idle_ns = measured->time_ns > busy ? measured->time_ns - busy : 0;
    return fits ? CKPT_OK : CKPT_FAIL(err, CKPT_OVERFLOW, "the times of a step's layers do not fit 63 bits of ns");
}

/* One entry per layer and phase, in place. */
static int merge(ckpt_step_layer *layer, int count)
{
    int merged = 0;
    qsort(layer, (size_t)count, sizeof *layer, by_layer);
    for (int i = 0; i < count; i++) {
        if (merged > 0 && by_layer(&layer[merged - 1], &layer[i]) == 0) {
            (void)add(&layer[merged - 1].part, &layer[i].part); /* the sum of all of them fits */
        } else {
            layer[merged++] = layer[i];
        }
    }
    return merged;
}

ckpt_code ckpt_step_compare(const ckpt_trace *predicted, const ckpt_ns *more_ns, const ckpt_trace *measured,
                            ckpt_arena *scratch, ckpt_step_report *report, ckpt_err *err)
{
    if (predicted->event_count != measured->event_count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%d steps as predicted and %d as measured", predicted->event_count,
                         measured->event_count);
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_step_layer *const layer = CKPT_NEW(scratch, ckpt_step_layer, measured->event_count);
    if (layer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to compare %d steps", measured->event_count);
    }
    ckpt_step_report made = {0};
    int count = 0;
    CKPT_TRY(collect(predicted, more_ns, measured, layer, &count, &made, err));
    count = merge(layer, count);
    if (count > 0) {
        qsort(layer, (size_t)count, sizeof *layer, by_distance);
    }
    made.worst_count = count < CKPT_STEP_WORST ? count : CKPT_STEP_WORST;
    memcpy(made.worst, layer, (size_t)made.worst_count * sizeof *layer);
    ckpt_arena_rewind(scratch, mark);
    *report = made;
    return CKPT_OK;
}

static double percent(ckpt_ns part, ckpt_ns whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void show_row(ckpt_text *text, const char *name, ckpt_ns predicted, ckpt_ns measured)
{
    char p[CKPT_UNITS_TEXT], m[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "  %-16s %12s %12s", name, ckpt_ns_show(predicted, p), ckpt_ns_show(measured, m));
    if (predicted > 0) {
        ckpt_text_add(text, " %+11.1f %%", percent(measured - predicted, predicted));
    }
    ckpt_text_add(text, "\n");
}

static void show_worst(const ckpt_step_report *report, ckpt_text *text)
{
    for (int i = 0; i < report->worst_count; i++) {
        const ckpt_step_layer *const w = &report->worst[i];
        char p[CKPT_UNITS_TEXT], m[CKPT_UNITS_TEXT];
        ckpt_text_add(text, "%s  %s %s: %s, not %s", i == 0 ? "most different layers\n" : "", w->layer,
                      ckpt_span_name(w->span), ckpt_ns_show(w->part.measured_ns, m),
                      ckpt_ns_show(w->part.predicted_ns, p));
        ckpt_text_add(text, w->part.runs > 1 ? " (%d runs)\n" : "\n", w->part.runs);
    }
}

void ckpt_step_report_show(const ckpt_step_report *report, const char *profile, const char *clock, ckpt_text *text)
{
    ckpt_text_add(text, "against %s, measured by %s\n  %-16s %12s %12s %13s\n", profile, clock, "", "predicted",
                  "measured", "difference");
    for (int i = 0; i < SHOWN; i++) {
        const ckpt_step_part *const part = &report->part[shown[i]];
        if (part->runs > 0) {
            show_row(text, ckpt_span_name(shown[i]), part->predicted_ns, part->measured_ns);
        }
    }
    show_row(text, "sum of layers", report->layers.predicted_ns, report->layers.measured_ns);
    const ckpt_step_part *const copies = &report->part[CKPT_SPAN_COPY];
    if (copies->runs > 0) {
        show_row(text, "copies, beside", copies->predicted_ns, copies->measured_ns);
    }
    show_row(text, "this step", report->step.predicted_ns, report->step.measured_ns);
    if (report->usual_ns > 0) {
        char name[32];
        snprintf(name, sizeof name, "median of %lld", (long long)report->usual_count);
        show_row(text, name, report->step.predicted_ns, report->usual_ns);
    }
    char idle[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "  no layer runs in %s of the step (%.1f %%)\n", ckpt_ns_show(report->idle_ns, idle),
                  percent(report->idle_ns, report->step.measured_ns));
    show_worst(report, text);
}

static void put_part(ckpt_json_writer *w, const ckpt_step_part *part)
{
    CKPT_JSON_INTS(w, {"predicted_ns", part->predicted_ns}, {"measured_ns", part->measured_ns}, {"runs", part->runs});
}

static void json_part(ckpt_json_writer *w, const char *name, const ckpt_step_part *part)
{
    ckpt_json_begin_object(w, name, CKPT_JSON_TIGHT);
    put_part(w, part);
    ckpt_json_end(w);
}

void ckpt_step_report_json(const ckpt_step_report *report, const char *profile, const char *recorder, const char *key,
                           ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, key, CKPT_JSON_TIGHT);
    ckpt_json_put_text(w, "profile", profile);
    ckpt_json_put_text(w, "recorder", recorder);
    for (int i = 0; i < SHOWN; i++) {
        json_part(w, ckpt_span_name(shown[i]), &report->part[shown[i]]);
    }
    json_part(w, "layers", &report->layers);
    json_part(w, "copies", &report->part[CKPT_SPAN_COPY]);
    json_part(w, "step", &report->step);
    CKPT_JSON_INTS(w, {"median_step_ns", report->usual_ns}, {"idle_ns", report->idle_ns});
    ckpt_json_begin_array(w, "most_different", CKPT_JSON_TIGHT);
    for (int i = 0; i < report->worst_count; i++) {
        const ckpt_step_layer *const layer = &report->worst[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_text(w, "layer", layer->layer);
        ckpt_json_put_text(w, "phase", ckpt_span_name(layer->span));
        put_part(w, &layer->part);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
    ckpt_json_end(w);
}
