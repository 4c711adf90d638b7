/* Replays a plan on a clock with two copy engines beside compute. Steps are issued in order. A free waits until no copy
 * uses its buffer, and holds up the steps after it: so does an executor without a second list of pending frees. */
#include "planner/replay/replay.h"

#include "planner/replay/clock.h"

static ckpt_ns longest(ckpt_ns a, ckpt_ns b)
{
    return a > b ? a : b;
}

/* Long division, a digit of the nanoseconds at a time: in doubles 7 bytes at 10^9 per second would take 8 ns. */
bool ckpt_copy_time(ckpt_bytes bytes, int64_t bytes_per_s, ckpt_ns *time)
{
    if (bytes_per_s <= 0) {
        return false;
    }
    const int64_t rate = bytes_per_s < INT64_MAX / 10 ? bytes_per_s : INT64_MAX / 10;
    int64_t done = bytes / rate;
    int64_t left = bytes % rate;
    for (int digit = 0; digit < 9; digit++) {
        left *= 10;
        if (!ckpt_product(done, 10, &done) || !ckpt_sum(done, left / rate, &done)) {
            return false;
        }
        left %= rate;
    }
    return ckpt_sum(done, left > 0, time);
}

ckpt_code ckpt_clock_start(ckpt_clock *clock, const ckpt_graph *graph, ckpt_arena *scratch, ckpt_err *err)
{
    *clock = (ckpt_clock){
        .graph = graph,
        .written_ns = CKPT_NEW(scratch, ckpt_ns, graph->buffer_count),
        .read_ns = CKPT_NEW(scratch, ckpt_ns, graph->buffer_count),
    };
    if (clock->written_ns == NULL || clock->read_ns == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "clock of %d buffers", graph->buffer_count);
    }
    return CKPT_OK;
}

ckpt_ns ckpt_clock_end(const ckpt_clock *clock)
{
    return longest(clock->now, longest(clock->d2h, clock->h2d));
}

static ckpt_ns list_ready(const ckpt_list *list, const ckpt_ns *ready, ckpt_ns start)
{
    for (int i = 0; i < list->count; i++) {
        start = longest(start, ready[list->at[i]]);
    }
    return start;
}

bool ckpt_clock_step(ckpt_clock *clock, const ckpt_step *step, ckpt_moment *moment)
{
    const ckpt_graph *const graph = clock->graph;
    ckpt_ns start = clock->now;
    ckpt_ns end = start;
    ckpt_ns length = 0;
    const int b = step->target;
    switch (step->kind) {
    case CKPT_RUN: {
        const ckpt_graph_op *const op = ckpt_step_op(graph, step);
        start = list_ready(&op->reads, clock->written_ns, start);
        start = list_ready(&op->adds, clock->written_ns, start);
        start = list_ready(&op->adds, clock->read_ns, start); /* or the copy would see half of the sum */
        for (int i = 0; step->inplace && i < op->inplace_count; i++) {
            start = longest(start, clock->read_ns[op->inplace[i].in]);
        }
        if (!ckpt_sum(start, op->time_ns, &end)) {
            return false;
        }
        clock->now = end;
        break;
    }
    case CKPT_FREE:
        end = longest(start, longest(clock->read_ns[b], clock->written_ns[b]));
        clock->now = end;
        break;
    case CKPT_OFFLOAD:
        start = longest(longest(start, clock->d2h), clock->written_ns[b]);
        if (!ckpt_copy_time(graph->buffer[b].bytes, graph->d2h_bytes_per_s, &length) ||
            !ckpt_sum(start, length, &end)) {
            return false;
        }
        clock->d2h = clock->read_ns[b] = end;
        break;
    case CKPT_FETCH:
        start = longest(longest(start, clock->h2d), clock->read_ns[b]);
        if (!ckpt_copy_time(graph->buffer[b].bytes, graph->h2d_bytes_per_s, &length) ||
            !ckpt_sum(start, length, &end)) {
            return false;
        }
        clock->h2d = clock->written_ns[b] = end;
        break;
    }
    *moment = (ckpt_moment){start, end};
    return true;
}

ckpt_code ckpt_plan_clock(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *scratch, ckpt_moment *moment,
                          ckpt_ns *time, ckpt_err *err)
{
    ckpt_clock clock;
    CKPT_TRY(ckpt_clock_start(&clock, graph, scratch, err));
    for (int i = 0; i < plan->step_count; i++) {
        if (!ckpt_clock_step(&clock, &plan->step[i], &moment[i])) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "step %d (%s %s) ends beyond 2^63 ns", i,
                             ckpt_step_kind_name(plan->step[i].kind), plan->step[i].name);
        }
    }
    *time = ckpt_clock_end(&clock);
    return CKPT_OK;
}

static ckpt_span run_span(const ckpt_graph_op *op, bool recomputed)
{
    if (recomputed) {
        return CKPT_SPAN_RECOMPUTE;
    }
    switch (op->phase) {
    case CKPT_FORWARD: return CKPT_SPAN_FORWARD;
    case CKPT_BACKWARD: return CKPT_SPAN_BACKWARD;
    case CKPT_UPDATE: return CKPT_SPAN_UPDATE;
    case CKPT_REDUCE: return CKPT_SPAN_COPY;
    }
    return CKPT_SPAN_FORWARD;
}

/* The event of a step: its name, and the bytes that it takes or frees. `held`: bytes in memory after the step. */
static void fill_event(const ckpt_graph *graph, const ckpt_step *step, const ckpt_moment *moment,
                       ckpt_bytes held[CKPT_CATEGORY_COUNT], ckpt_event *event)
{
    event->start_ns = moment->start_ns;
    event->end_ns = moment->end_ns;
    event->stream = "compute";
    ckpt_bytes workspace = 0;
    if (step->kind == CKPT_RUN) {
        const ckpt_graph_op *const op = ckpt_step_op(graph, step);
        event->name = op->name;
        event->layer = op->layer;
        event->span = run_span(op, step->recomputed);
        event->variant = step->variant;
        event->inexact = step->inexact;
        for (int i = 0; step->inplace && i < op->inplace_count; i++) {
            const ckpt_buffer *const gone = &graph->buffer[op->inplace[i].in];
            held[ckpt_kind_category(gone->kind)] -= gone->bytes;
        }
        for (int i = 0; i < op->writes.count; i++) {
            const ckpt_buffer *const fresh = &graph->buffer[op->writes.at[i]];
            held[ckpt_kind_category(fresh->kind)] += fresh->bytes;
        }
        workspace = op->workspace_bytes;
    } else {
        const ckpt_buffer *const buffer = &graph->buffer[step->target];
        event->name = buffer->name;
        event->layer = graph->op[graph->writer[step->target]].layer;
        event->span = CKPT_SPAN_COPY;
        if (step->kind == CKPT_FREE) {
            event->span = moment->end_ns > moment->start_ns ? CKPT_SPAN_WAIT : CKPT_SPAN_FREE;
            held[ckpt_kind_category(buffer->kind)] -= buffer->bytes;
        } else if (step->kind == CKPT_FETCH) {
            event->stream = "h2d";
            held[ckpt_kind_category(buffer->kind)] += buffer->bytes;
        } else {
            event->stream = "d2h";
        }
    }
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        event->bytes[c] = held[c];
    }
    event->bytes[CKPT_CAT_WORKSPACE] += workspace;
    event->layer = event->layer != NULL ? event->layer : "";
}

/* The plan's allocations, each with the category of what lies there. */
static ckpt_code copy_allocations(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                  const ckpt_trace_allocation **allocations, ckpt_err *err)
{
    ckpt_trace_allocation *const allocation = CKPT_NEW(out, ckpt_trace_allocation, plan->allocation_count);
    if (allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "trace of %d allocations", plan->allocation_count);
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const from = &plan->allocation[i];
        allocation[i] = (ckpt_trace_allocation){
            .name = from->name,
            .category = from->buffer < 0 ? CKPT_CAT_WORKSPACE : ckpt_kind_category(graph->buffer[from->buffer].kind),
            .from = from->from,
            .to = from->to,
            .offset = from->offset,
            .bytes = from->bytes,
        };
    }
    *allocations = allocation;
    return CKPT_OK;
}

ckpt_code ckpt_plan_simulate(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out, const ckpt_trace **trace,
                             ckpt_err *err)
{
    ckpt_trace *const made = CKPT_NEW(out, ckpt_trace, 1);
    ckpt_event *const event = CKPT_NEW(out, ckpt_event, plan->step_count);
    const ckpt_trace_allocation *allocation = NULL;
    CKPT_TRY(copy_allocations(plan, graph, out, &allocation, err));
    const ckpt_mark mark = ckpt_arena_mark(out);
    ckpt_moment *const moment = CKPT_NEW(out, ckpt_moment, plan->step_count);
    if (made == NULL || event == NULL || moment == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "trace of %d steps", plan->step_count);
    }
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_plan_clock(plan, graph, out, moment, &time, err));
    ckpt_bytes held[CKPT_CATEGORY_COUNT] = {0};
    for (int i = 0; i < graph->static_count; i++) {
        held[ckpt_static_category(graph->statics[i].name)] += graph->statics[i].bytes;
    }
    ckpt_bytes peak = graph->static_bytes;
    int peak_event = 0;
    for (int i = 0; i < plan->step_count; i++) {
        event[i].step = i;
        fill_event(graph, &plan->step[i], &moment[i], held, &event[i]);
        ckpt_bytes sum = 0;
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            sum += c == CKPT_CAT_OUTSIDE ? 0 : event[i].bytes[c];
        }
        if (sum > peak) {
            peak = sum;
            peak_event = i;
        }
    }
    ckpt_arena_rewind(out, mark);
    const char *name = NULL;
    CKPT_TRY(ckpt_scheme_title(&plan->scheme, graph->name, out, &name, err));
    *made = (ckpt_trace){
        .source = "",
        .name = name,
        .plan = plan->solver != NULL ? plan->solver : "",
        .budget_bytes = plan->budget_bytes,
        .static_bytes = graph->static_bytes,
        .arena_bytes = plan->arena_bytes,
        .peak_bytes = peak,
        .time_ns = time,
        .peak_event = peak_event,
        .machine = {.device = plan->costs != NULL ? plan->costs : "",
                    .driver = "",
                    .clocks = "",
                    .libraries = "",
                    .commit = "",
                    .command = "",
                    .date = ""},
        .event = event,
        .event_count = plan->step_count,
        .allocation = allocation,
        .allocation_count = plan->allocation_count,
    };
    *trace = made;
    return CKPT_OK;
}
