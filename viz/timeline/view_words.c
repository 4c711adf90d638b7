/* The words of the picture: title, verdict, what makes the peak, and facts about the step. */
#include <math.h>
#include <string.h>

#include "viz/timeline/variants.h"
#include "viz/timeline/view_draw.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

const char *ckpt_view_bytes(ckpt_view *view, ckpt_bytes bytes)
{
    char text[CKPT_UNITS_TEXT];
    return ckpt_view_keep(view, ckpt_arena_text(view->canvas.scratch, ckpt_bytes_show(bytes, text)));
}

static const char *ns_of(ckpt_view *view, ckpt_ns ns)
{
    char text[CKPT_UNITS_TEXT];
    return ckpt_view_keep(view, ckpt_arena_text(view->canvas.scratch, ckpt_ns_show(ns, text)));
}

double ckpt_view_percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void fact(ckpt_view *view, const char *name, const char *text, int outline)
{
    if (view->fact_count < CKPT_VIEW_FACTS) {
        view->fact[view->fact_count++] = (ckpt_fact){name, text, outline};
    }
}

const char *ckpt_view_unit(const ckpt_view *view)
{
    return view->no_plan ? "event" : "step";
}

const ckpt_band_look *ckpt_view_band(const ckpt_view *view, int band)
{
    static const ckpt_band_look held = {"held, not in use", CKPT_ROLE_PARAMETER_GRADIENTS};
    return view->no_plan && band == CKPT_BAND_OUTSIDE ? &held : &ckpt_band_looks[band];
}

static void say_traces(ckpt_view *view)
{
    int nth = 0;
    for (int s = 0; s < view->count && view->count > 1; s++) {
        const ckpt_series *const series = &view->series[s];
        const bool base = s == view->base;
        const bool hidden = series->same && view->canvas.renderer->cells; /* it would only cover the stack */
        fact(view,
             base     ? "stack"
             : hidden ? "same"
                      : "line",
             CKPT_SAY(view, "%s, peak %s at %s %d", series->label, ckpt_view_bytes(view, series->at_peak.planned),
                      ckpt_view_unit(view), series->trace->event[series->peak].step),
             base || hidden ? -1 : nth);
        nth += !base;
        if (!base && view->count > 2) {
            fact(view, "", series->verdict, -1);
        }
    }
}

/* What ran in a program that follows no plan. */
static void say_runs(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    if (base->runs > 0) {
        fact(view, "ran", CKPT_SAY(view, "%d kernels, ops and the like", base->runs), -1);
    }
    const char *busy = "";
    for (int i = 0; i < view->lane_count && i < 4 && base->trace->time_ns > 0; i++) {
        busy = CKPT_SAY(view, "%s%s%s %.0f %%", busy, i > 0 ? ", " : "", view->lane[i].name,
                        ckpt_view_percent((double)view->lane[i].busy_ns, (double)base->trace->time_ns));
    }
    if (busy[0] != '\0') {
        fact(view, "busy", CKPT_SAY(view, "%s%s", busy, view->lane_count > 4 ? ", ..." : ""), -1);
    }
}

static void say_recomputed(ckpt_view *view, ckpt_ns ns)
{
    const ckpt_series *const base = &view->series[view->base];
    const char *words =
        base->recomputed > 0 ? CKPT_SAY(view, "%d of %d runs", base->recomputed, base->runs) : "nothing";
    if (base->recomputed > 0 && base->recomputed_ns > 0) {
        words = CKPT_SAY(view, "%s, %s (%.1f %%)", words, ns_of(view, base->recomputed_ns),
                         ckpt_view_percent((double)base->recomputed_ns, (double)ns));
    }
    fact(view, "recompute", words, -1);
}

static void say_variants(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const char *line[CKPT_VARIANT_LINES];
    const int lines = ckpt_variants_say(base->trace, base->runs, line, view->canvas.scratch);
    view->failed = view->failed || lines < 0;
    for (int i = 0; i < lines; i++) {
        fact(view, i == 0 ? "variants" : "", line[i], -1);
    }
}

static void say_times(ckpt_view *view, const ckpt_series *base, const ckpt_series *other)
{
    const ckpt_ns ns = base->trace->time_ns, other_ns = other != NULL ? other->trace->time_ns : 0;
    const char *const name = view->no_plan ? "time" : "step time";
    if (ns > 0 && other_ns > 0) {
        fact(view, name,
             CKPT_SAY(view, "%s %s, %s %s (%+.1f %%)", ns_of(view, ns), base->label, ns_of(view, other_ns),
                      other->label, ckpt_view_percent((double)other_ns, (double)ns) - 100),
             -1);
    } else if (ns > 0 || other_ns > 0) {
        fact(view, name, CKPT_SAY(view, "%s, %s", ns_of(view, ns > 0 ? ns : other_ns), (ns > 0 ? base : other)->label),
             -1);
    } else {
        fact(view, name, "not known", -1);
    }
    if (view->no_time) {
        fact(view, "axis", "the order of the program, because not all have times", -1);
    }
}

static void say_time(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const ckpt_ns ns = base->trace->time_ns;
    say_times(view, base, ckpt_view_other(view));
    if (view->no_plan) {
        say_runs(view);
    } else {
        say_recomputed(view, ns);
        say_variants(view);
    }
    if (base->copies > 0) {
        const char *const ns_words = base->copy_ns > 0 ? CKPT_SAY(view, ", %s", ns_of(view, base->copy_ns)) : "";
        const char *const where = view->no_plan ? "" : " between device and host";
        fact(view, "copies", CKPT_SAY(view, "%d%s%s", base->copies, where, ns_words), -1);
    }
}

static void say_machine(ckpt_view *view)
{
    const ckpt_trace *trace = view->series[view->base].trace;
    ckpt_bytes outside = 0;
    for (int s = view->count - 1; s >= 0; s--) {
        trace = view->series[s].trace->measured ? view->series[s].trace : trace;
        outside = view->series[s].outside_bytes > outside ? view->series[s].outside_bytes : outside;
    }
    if (outside > 0) {
        fact(view, "outside",
             CKPT_SAY(view, "at most %s %s", ckpt_view_bytes(view, outside),
                      view->no_plan ? "that the allocator holds and nobody uses" : "outside static block and arena"),
             -1);
    }
    if (trace->process_peak_bytes > 0) {
        fact(view, "process",
             CKPT_SAY(view, "resident set at most %s", ckpt_view_bytes(view, trace->process_peak_bytes)), -1);
    }
    if (text_of(trace->recorder)[0] != '\0') {
        fact(view, "recorder", trace->recorder, -1);
    }
    if (text_of(trace->machine.device)[0] != '\0') {
        fact(view, "machine", trace->machine.device, -1);
    }
    if (text_of(trace->machine.command)[0] != '\0') {
        fact(view, "command", trace->machine.command, -1);
    }
}

/* "33.6 MB at 0x7f0000000000", with the address where it is known. */
static const char *block_of(ckpt_view *view, const ckpt_event *event)
{
    return event->address != 0 ? CKPT_SAY(view, "%s at 0x%llx", ckpt_view_bytes(view, event->size_bytes),
                                          (unsigned long long)event->address)
                               : ckpt_view_bytes(view, event->size_bytes);
}

/* "cudaMalloc", or the layer in which it was called beside it. */
static const char *who_of(ckpt_view *view, const ckpt_event *event)
{
    const char *const layer = text_of(event->layer);
    return layer[0] != '\0' ? CKPT_SAY(view, "%s in %s", text_of(event->name), layer) : text_of(event->name);
}

/* What came and went in all. */
static void say_blocks(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const ckpt_trace *const trace = base->trace;
    ckpt_bands end;
    ckpt_event_bands(trace, &trace->event[trace->event_count - 1], &end);
    fact(view, "memory",
         CKPT_SAY(view, "%d allocation%s, %d free%s, %s left at the end", base->allocations,
                  base->allocations == 1 ? "" : "s", base->frees, base->frees == 1 ? "" : "s",
                  ckpt_view_bytes(view, end.planned)),
         -1);
}

ckpt_font ckpt_view_title_font(const ckpt_view *view)
{
    return (ckpt_font){view->canvas.renderer->cells ? view->small : 17, true, CKPT_ROLE_BLACK, -1};
}

/* Where the words do not fit, what every such picture shows goes first. */
static const char *title_of_plan(ckpt_view *view, const ckpt_trace *trace)
{
    const bool budget = trace->budget_bytes > 0;
    const char *const plan =
        CKPT_SAY(view, "plan %s, %s%s", text_of(trace->plan)[0] != '\0' ? trace->plan : "of unknown origin",
                 budget ? "budget " : "no budget", budget ? ckpt_view_bytes(view, trace->budget_bytes) : "");
    const char *const title = CKPT_SAY(view, "%s: memory in one training step, %s", text_of(trace->name), plan);
    const bool fits =
        ckpt_view_measure(view, ckpt_view_title_font(view), title) <= view->canvas.width - 2 * view->margin;
    return fits ? title : CKPT_SAY(view, "%s: %s", text_of(trace->name), plan);
}

static void say_title(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const ckpt_trace *const trace = base->trace;
    const ckpt_event *const peak = &trace->event[base->peak];
    const char *const bytes = ckpt_view_bytes(view, base->at_peak.planned);
    const int64_t last = (int64_t)trace->event[trace->event_count - 1].step + 1;
    if (view->no_plan) {
        view->title = CKPT_SAY(view, "%s: memory of a program that follows no plan", text_of(trace->name));
        const char *const what = peak->span == CKPT_SPAN_ALLOCATE
                                     ? CKPT_SAY(view, "%s, %s", block_of(view, peak), who_of(view, peak))
                                     : who_of(view, peak);
        view->head[0] = CKPT_SAY(view, "peak %s after %s, at event %d of %lld: %s", bytes, ns_of(view, peak->start_ns),
                                 peak->step, (long long)last, what);
        return;
    }
    const bool budget = trace->budget_bytes > 0;
    view->title = title_of_plan(view, trace);
    const char *const of_budget =
        budget ? CKPT_SAY(view, " (%.1f %% of the budget)",
                          ckpt_view_percent((double)base->at_peak.planned, (double)trace->budget_bytes))
               : "";
    view->head[0] = CKPT_SAY(view, "peak %s%s at step %d of %lld: %s", bytes, of_budget, peak->step, (long long)last,
                             text_of(ckpt_event_called(peak, view->canvas.scratch)));
}

void ckpt_view_say(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base], *const other = ckpt_view_other(view);
    const ckpt_trace *const trace = base->trace;
    say_title(view);
    view->head_count = 1;
    if (view->count == 2) {
        view->head[view->head_count++] = CKPT_SAY(view, "%s %s", other->label, other->verdict);
    }
    view->about = CKPT_SAY(view, "%s; %s", view->head[0], view->count == 2 ? view->head[1] : base->label);

    say_traces(view);
    if (view->canvas.renderer->cells && view->residual.differing > 0 && view->residual.allocations > 0) {
        fact(view, "placement",
             CKPT_SAY(view, "%d of %d allocations differ", view->residual.moved, view->residual.allocations), -1);
    }
    if (view->no_plan) {
        say_blocks(view);
    } else {
        fact(view, "memory",
             CKPT_SAY(view, "static block %s + arena %s", ckpt_view_bytes(view, trace->static_bytes),
                      ckpt_view_bytes(view, trace->arena_bytes)),
             -1);
    }
    if (trace->budget_bytes > 0 && view->budget == 0) {
        fact(view, "budget", CKPT_SAY(view, "%s, far above the picture", ckpt_view_bytes(view, trace->budget_bytes)),
             -1);
    }
    if (view->capacity > 0) {
        fact(view, "device",
             CKPT_SAY(view, "memory of %s%s", ckpt_view_bytes(view, view->capacity),
                      view->capacity_line ? "" : ", far above the picture"),
             -1);
    }
    say_time(view);
    say_machine(view);
    if (trace->event_count > (int)(view->canvas.width / view->canvas.cell_width * 0.8)) {
        fact(view, "detail", CKPT_SAY(view, "each column shows its highest %s", ckpt_view_unit(view)), -1);
    }
}
