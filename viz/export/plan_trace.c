/* A plan as the trace it predicts, without its graph: what is in memory follows from its allocations, what things are called
 * from its outline. The same bytes at every step as the simulator gives; of times only that of the whole step. */
#include <string.h>

#include "core/base/names.h"
#include "viz/timeline/live_ranges.h"

typedef struct maker {
    const ckpt_plan *plan;
    const char *source;
    ckpt_arena *out;
    ckpt_err *err;
    ckpt_names ops, buffers; /* of the outline */
    const char **layer;      /* per buffer: of the op that writes it */
    ckpt_event *event;
    ckpt_trace_allocation *allocation;
} maker;

static ckpt_code no_memory(const maker *m)
{
    return CKPT_FAIL(m->err, CKPT_NO_MEMORY, "no memory for a plan of %d steps and %d allocations", m->plan->step_count,
                     m->plan->allocation_count);
}

static ckpt_code find_names(maker *m)
{
    const ckpt_outline *const outline = &m->plan->outline;
    CKPT_TRY(ckpt_names_init(&m->ops, outline->op_count, m->out, m->err));
    CKPT_TRY(ckpt_names_init(&m->buffers, outline->buffer_count, m->out, m->err));
    m->layer = CKPT_NEW(m->out, const char *, outline->buffer_count);
    if (m->layer == NULL) {
        return no_memory(m);
    }
    for (int i = 0; i < outline->op_count; i++) {
        (void)ckpt_names_add(&m->ops, outline->op[i].name, i);
    }
    for (int i = 0; i < outline->buffer_count; i++) {
        (void)ckpt_names_add(&m->buffers, outline->buffer[i].name, i);
        m->layer[i] = "";
    }
    return CKPT_OK;
}

static ckpt_span run_span(ckpt_phase phase, bool recomputed)
{
    if (recomputed) {
        return CKPT_SPAN_RECOMPUTE;
    }
    switch (phase) {
    case CKPT_FORWARD: return CKPT_SPAN_FORWARD;
    case CKPT_BACKWARD: return CKPT_SPAN_BACKWARD;
    case CKPT_UPDATE: return CKPT_SPAN_UPDATE;
    case CKPT_REDUCE: return CKPT_SPAN_COPY;
    }
    return CKPT_SPAN_FORWARD;
}

/* A step as an event; its bytes come later, and the layer of a buffer. */
static ckpt_code name_step(const maker *m, int s)
{
    const ckpt_step *const step = &m->plan->step[s];
    ckpt_event *const event = &m->event[s];
    const bool run = step->kind == CKPT_RUN;
    const int target = ckpt_names_find(run ? &m->ops : &m->buffers, step->name);
    if (target < 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "%.200s: step %d (%s \"%.80s\"): the plan's own \"graph\" has no such %s", m->source, s,
                         ckpt_step_kind_name(step->kind), step->name, run ? "op" : "buffer");
    }
    event->step = s;
    event->stream = step->kind == CKPT_OFFLOAD ? "d2h" : step->kind == CKPT_FETCH ? "h2d" : "compute";
    if (run) {
        const ckpt_outline_op *const op = &m->plan->outline.op[target];
        event->name = op->name;
        event->layer = op->layer != NULL ? op->layer : "";
        event->span = run_span(op->phase, step->recomputed);
        event->variant = step->variant;
        event->inexact = step->inexact;
    } else {
        event->name = m->plan->outline.buffer[target].name;
        event->layer = m->layer[target];
        event->span = step->kind == CKPT_FREE ? CKPT_SPAN_FREE : CKPT_SPAN_COPY;
    }
    return CKPT_OK;
}

/* What an allocation is of, and who wrote it. */
static ckpt_code name_allocation(const maker *m, int p)
{
    const ckpt_allocation *const allocation = &m->plan->allocation[p];
    ckpt_category category = CKPT_CAT_WORKSPACE;
    if (strcmp(allocation->name, "workspace") != 0) {
        const int buffer = ckpt_names_find(&m->buffers, allocation->name);
        if (buffer < 0) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                             "%.200s: allocation %d is of \"%.80s\", and the plan's own \"graph\" has no such buffer",
                             m->source, p, allocation->name);
        }
        const ckpt_step *const step = &m->plan->step[allocation->from];
        const int writer = step->kind == CKPT_RUN ? ckpt_names_find(&m->ops, step->name) : -1;
        if (writer >= 0 && m->plan->outline.op[writer].layer != NULL) {
            m->layer[buffer] = m->plan->outline.op[writer].layer;
        }
        category = ckpt_kind_category(m->plan->outline.buffer[buffer].kind);
    }
    m->allocation[p] = (ckpt_trace_allocation){
        .name = allocation->name,
        .category = category,
        .from = allocation->from,
        .to = allocation->to,
        .offset = allocation->offset,
        .bytes = allocation->bytes,
    };
    return CKPT_OK;
}

/* Bytes that come with a step and go with another, as differences; then as sums. A free takes its bytes away at once,
 * what a run in place destroys and a workspace are gone with the next step. No sum overflows
 * when that of all does not. */
static ckpt_code add_bytes(const maker *m, ckpt_bytes *static_bytes)
{
    const ckpt_plan *const plan = m->plan;
    ckpt_bytes held[CKPT_CATEGORY_COUNT] = {0};
    ckpt_bytes all = 0;
    bool fits = true;
    for (int i = 0; i < plan->outline.static_count; i++) {
        const ckpt_static *const block = &plan->outline.statics[i];
        fits = fits && ckpt_sum(all, block->bytes, &all);
        held[ckpt_static_category(block->name)] += fits ? block->bytes : 0;
    }
    *static_bytes = all;
    for (int p = 0; fits && p < plan->allocation_count; p++) {
        const ckpt_trace_allocation *const allocation = &m->allocation[p];
        const ckpt_step *const last = &plan->step[allocation->to];
        const bool freed = last->kind == CKPT_FREE && strcmp(last->name, allocation->name) == 0;
        const int gone = freed ? allocation->to : allocation->to + 1;
        fits = ckpt_sum(all, allocation->bytes, &all);
        if (fits) {
            m->event[allocation->from].bytes[allocation->category] += allocation->bytes;
        }
        if (fits && gone < plan->step_count) {
            m->event[gone].bytes[allocation->category] -= allocation->bytes;
        }
    }
    if (!fits) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: statics and allocations add up to more than 2^63 bytes",
                         m->source);
    }
    for (int s = 0; s < plan->step_count; s++) {
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            m->event[s].bytes[c] = held[c] += m->event[s].bytes[c];
        }
    }
    return CKPT_OK;
}

static void find_peak(ckpt_trace *trace)
{
    trace->peak_bytes = trace->static_bytes;
    for (int i = 0; i < trace->event_count; i++) {
        ckpt_bytes sum = 0;
        for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
            sum += trace->event[i].bytes[c];
        }
        if (sum > trace->peak_bytes) {
            trace->peak_bytes = sum;
            trace->peak_event = i;
        }
    }
}

static ckpt_code check(const maker *m)
{
    const ckpt_plan *const plan = m->plan;
    if (plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: the plan does not fit its budget: it has no steps to show",
                         m->source);
    }
    if (plan->outline.op_count == 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "%.200s: the plan does not say what its graph is made of (an older ckpt-plan made it): make "
                         "it again, or show its trace (ckpt-plan --trace)",
                         m->source);
    }
    for (int p = 0; p < plan->allocation_count; p++) {
        const ckpt_allocation *const allocation = &plan->allocation[p];
        if (allocation->from < 0 || allocation->to < allocation->from || allocation->to >= plan->step_count) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                             "%.200s: allocation %d is from step %d to step %d, and there are %d steps", m->source, p,
                             allocation->from, allocation->to, plan->step_count);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_plan_as_trace(const ckpt_plan *plan, ckpt_arena *out, const ckpt_trace **trace, ckpt_err *err)
{
    maker m = {.plan = plan, .source = plan->source != NULL ? plan->source : "plan", .out = out, .err = err};
    CKPT_TRY(check(&m));
    ckpt_trace *const made = CKPT_NEW(out, ckpt_trace, 1);
    m.event = CKPT_NEW(out, ckpt_event, plan->step_count);
    m.allocation = CKPT_NEW(out, ckpt_trace_allocation, plan->allocation_count);
    if (made == NULL || m.event == NULL || m.allocation == NULL) {
        return no_memory(&m);
    }
    const ckpt_mark mark = ckpt_arena_mark(out);
    CKPT_TRY(find_names(&m));
    for (int p = 0; p < plan->allocation_count; p++) {
        CKPT_TRY(name_allocation(&m, p));
    }
    for (int s = 0; s < plan->step_count; s++) {
        CKPT_TRY(name_step(&m, s));
    }
    ckpt_arena_rewind(out, mark);
    const char *name = NULL;
    CKPT_TRY(ckpt_scheme_title(&plan->scheme, plan->graph_name != NULL ? plan->graph_name : "", out, &name, err));
    *made = (ckpt_trace){
        .source = plan->source != NULL ? plan->source : "",
        .name = name,
        .plan = plan->solver != NULL ? plan->solver : "",
        .budget_bytes = plan->budget_bytes,
        .arena_bytes = plan->arena_bytes,
        .time_ns = plan->time_ns,
        .recorder = "",
        .machine = {.device = plan->costs != NULL ? plan->costs : "",
                    .driver = "",
                    .clocks = "",
                    .libraries = "",
                    .commit = "",
                    .command = "",
                    .date = ""},
        .event = m.event,
        .event_count = plan->step_count,
        .allocation = m.allocation,
        .allocation_count = plan->allocation_count,
    };
    CKPT_TRY(add_bytes(&m, &made->static_bytes));
    find_peak(made);
    *trace = made;
    return CKPT_OK;
}
