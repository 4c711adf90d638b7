/* What a sequence means: its peak and time, and the same as steps with frees.
 *
 * A buffer lives from the run that writes it to its last use before its next rewrite, or before the end; what nobody
 * uses goes right after its run. So an op that is recomputed always finds the allocations of its outputs empty, and
 * what a strategy drops is decided by where it recomputes: there is no second list of decisions to contradict it.
 * Copies follow the same rule: a fetch opens a live range as a write does, an offload is a use, and an explicit
 * CKPT_FREE, which stands behind the last use of a live range, ends it in its place, because a free waits for the
 * copy. */
#include <string.h>

#include "planner/replay/clock.h"
#include "planner/schedule/schedule.h"

/* Which buffers go after which entry: dead[from[t]] .. dead[from[t + 1] - 1] after entry t. */
typedef struct deaths {
    int *dead;
    int *from;
    bool copies; /* some entry is a copy */
} deaths;

/* How many buffers the entries use, write or copy: at most so many go. */
static size_t count_uses(const ckpt_graph *graph, const ckpt_sequence *sequence)
{
    size_t uses = 0;
    for (int t = 0; t < sequence->count; t++) {
        if (sequence->op[t] < 0) {
            uses++;
            continue;
        }
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        uses += (size_t)op->reads.count + (size_t)op->adds.count + (size_t)op->writes.count;
    }
    return uses;
}

/* Backwards: the first use that is met is the last one, unless a rewrite, a fetch or an explicit free came after it. */
static ckpt_code find_deaths(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *scratch, deaths *d,
                             ckpt_err *err)
{
    const size_t uses = count_uses(graph, sequence);
    if (uses > (size_t)1 << 30) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a sequence of %d runs uses more than 2^30 buffers", sequence->count);
    }
    *d = (deaths){.dead = CKPT_NEW(scratch, int, uses), .from = CKPT_NEW(scratch, int, sequence->count + 1)};
    bool *const wanted = CKPT_NEW(scratch, bool, graph->buffer_count); /* used or freed later, before any rewrite */
    if (d->dead == NULL || d->from == NULL || wanted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "last uses of %d runs", sequence->count);
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        wanted[graph->outputs.at[i]] = true;
    }
    int at = (int)uses;
    d->from[sequence->count] = at;
    for (int t = sequence->count - 1; t >= 0; t--) {
        if (sequence->op[t] < 0) {
            int b = 0;
            const ckpt_step_kind kind = ckpt_sequence_kind(sequence->op[t], &b);
            if (!wanted[b] && kind != CKPT_FREE) {
                d->dead[--at] = b;
            }
            wanted[b] = kind != CKPT_FETCH;
            d->copies = true;
            d->from[t] = at;
            continue;
        }
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        const ckpt_list *const used[] = {&op->writes, &op->adds, &op->reads};
        for (int l = 0; l < 3; l++) {
            for (int i = 0; i < used[l]->count; i++) {
                const int b = used[l]->at[i];
                if (!wanted[b]) {
                    d->dead[--at] = b;
                }
                wanted[b] = l > 0;
            }
        }
        d->from[t] = at;
    }
    return CKPT_OK;
}

static bool goes_after(const deaths *d, int t, int buffer)
{
    for (int i = d->from[t]; i < d->from[t + 1]; i++) {
        if (d->dead[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* In place when the live range of every input in a pair ends with this run; what the run adds to is a result, not
 * destroyed.
 *  */
static bool runs_in_place(const ckpt_graph_op *op, const deaths *d, int t)
{
    for (int p = 0; p < op->inplace_count; p++) {
        if (!goes_after(d, t, op->inplace[p].in)) {
            return false;
        }
        for (int i = 0; i < op->adds.count; i++) {
            if (op->adds.at[i] == op->inplace[p].in) {
                return false;
            }
        }
    }
    return op->inplace_count > 0;
}

/* Bytes that the allocations of a run's in-place inputs give to its outputs. */
static ckpt_bytes taken_bytes(const ckpt_graph *graph, const ckpt_graph_op *op)
{
    ckpt_bytes bytes = 0;
    for (int p = 0; p < op->inplace_count; p++) {
        bytes += graph->buffer[op->inplace[p].in].bytes;
    }
    return bytes;
}

/* Live bytes entry by entry, into each_entry[] unless that is NULL; gives the most. */
static ckpt_bytes measure_peak(const ckpt_graph *graph, const ckpt_sequence *sequence, const deaths *d,
                               ckpt_bytes *each_entry)
{
    ckpt_bytes live = 0;
    ckpt_bytes most = 0;
    for (int t = 0; t < sequence->count; t++) {
        int target = 0;
        ckpt_bytes during = 0; /* only while the entry lasts */
        switch (ckpt_sequence_kind(sequence->op[t], &target)) {
        case CKPT_RUN: {
            const ckpt_graph_op *const op = &graph->op[target];
            for (int i = 0; i < op->writes.count; i++) {
                live += graph->buffer[op->writes.at[i]].bytes;
            }
            during = op->workspace_bytes - (runs_in_place(op, d, t) ? taken_bytes(graph, op) : 0);
            break;
        }
        case CKPT_FETCH: live += graph->buffer[target].bytes; break;
        case CKPT_FREE: live -= graph->buffer[target].bytes; break;
        case CKPT_OFFLOAD: break;
        }
        most = live + during > most ? live + during : most;
        if (each_entry != NULL) {
            each_entry[t] = live + during;
        }
        for (int i = d->from[t]; i < d->from[t + 1]; i++) {
            live -= graph->buffer[d->dead[i]].bytes;
        }
    }
    return most;
}

static ckpt_ns sum_times(const ckpt_graph *graph, const ckpt_sequence *sequence)
{
    ckpt_ns sum = 0;
    for (int t = 0; t < sequence->count; t++) {
        if (!ckpt_sum(sum, graph->op[sequence->op[t]].time_ns, &sum)) {
            return INT64_MAX;
        }
    }
    return sum;
}

/* Step by step as ckpt_plan_clock would; INT64_MAX when 63 bits do not hold it, or when there is no link. */
static ckpt_code simulate(const ckpt_graph *graph, const ckpt_sequence *sequence, const deaths *d, ckpt_arena *scratch,
                          ckpt_ns *time, ckpt_err *err)
{
    ckpt_clock clock;
    CKPT_TRY(ckpt_clock_start(&clock, graph, scratch, err));
    ckpt_moment moment;
    bool counts = graph->has_link;
    for (int t = 0; t < sequence->count && counts; t++) {
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(sequence->op[t], &target);
        const ckpt_graph_op *const op = kind == CKPT_RUN ? &graph->op[target] : NULL;
        ckpt_step step = kind == CKPT_RUN ? ckpt_step_run(graph, target) : (ckpt_step){.kind = kind, .target = target};
        step.inplace = op != NULL && runs_in_place(op, d, t);
        counts = ckpt_clock_step(&clock, &step, &moment);
        for (int i = d->from[t]; i < d->from[t + 1] && counts; i++) {
            bool taken = false;
            for (int p = 0; step.inplace && p < op->inplace_count; p++) {
                taken = taken || op->inplace[p].in == d->dead[i];
            }
            const ckpt_step free = {.kind = CKPT_FREE, .target = d->dead[i]};
            counts = taken || ckpt_clock_step(&clock, &free, &moment);
        }
    }
    *time = counts ? ckpt_clock_end(&clock) : INT64_MAX;
    return CKPT_OK;
}

ckpt_code ckpt_sequence_measure(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *scratch,
                                ckpt_bytes *peak, ckpt_ns *time, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    deaths d;
    ckpt_ns taken = 0;
    CKPT_TRY(find_deaths(graph, sequence, scratch, &d, err));
    if (d.copies) {
        CKPT_TRY(simulate(graph, sequence, &d, scratch, &taken, err));
    } else {
        taken = sum_times(graph, sequence);
    }
    *peak = measure_peak(graph, sequence, &d, NULL);
    *time = taken;
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

ckpt_code ckpt_sequence_profile(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *scratch,
                                ckpt_bytes *each_entry, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    deaths d;
    CKPT_TRY(find_deaths(graph, sequence, scratch, &d, err));
    (void)measure_peak(graph, sequence, &d, each_entry);
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

/* What the loop over entries carries. */
typedef struct writer {
    const ckpt_graph *graph;
    const deaths *d;
    ckpt_step *step;
    ckpt_allocation *allocation;
    int step_count, allocation_count;
    int *open;     /* per buffer: its allocation while in memory, else -1 */
    bool *ran;     /* per op */
    bool *on_host; /* per buffer */
    ckpt_plan *plan;
    ckpt_clock clock;
    ckpt_bytes live, most;
} writer;

static void count_most(writer *w, ckpt_bytes now)
{
    w->most = now > w->most ? now : w->most;
}

static bool add_step(writer *w, ckpt_step step)
{
    ckpt_moment moment;
    w->step[w->step_count++] = step;
    return ckpt_clock_step(&w->clock, &step, &moment);
}

static void open_allocation(writer *w, int b)
{
    const ckpt_buffer *const buffer = &w->graph->buffer[b];
    w->open[b] = w->allocation_count;
    w->allocation[w->allocation_count++] = (ckpt_allocation){
        .name = buffer->name, .buffer = b, .from = w->step_count - 1, .to = -1, .bytes = buffer->bytes};
    w->live += buffer->bytes;
}

static void close_allocation(writer *w, int b, int to)
{
    w->allocation[w->open[b]].to = to;
    w->open[b] = -1;
    w->live -= w->graph->buffer[b].bytes;
}

static bool write_free(writer *w, int b)
{
    if (w->open[b] >= 0) { /* what frees nothing is refused by the checker */
        close_allocation(w, b, w->step_count);
    }
    return add_step(w, (ckpt_step){.kind = CKPT_FREE, .name = w->graph->buffer[b].name, .target = b});
}

static bool write_run(writer *w, int run, int t)
{
    const ckpt_graph_op *const op = &w->graph->op[run];
    const int o = ckpt_run_base(w->graph, run);
    const bool recomputed = w->ran[o];
    const bool inplace = runs_in_place(op, w->d, t);
    ckpt_step step = ckpt_step_run(w->graph, run);
    step.recomputed = recomputed;
    step.inplace = inplace;
    bool fine = add_step(w, step);
    const int now = w->step_count - 1;
    for (int p = 0; inplace && p < op->inplace_count; p++) {
        close_allocation(w, op->inplace[p].in, now - 1);
    }
    for (int i = 0; i < op->writes.count; i++) {
        open_allocation(w, op->writes.at[i]);
    }
    if (op->workspace_bytes > 0) {
        w->allocation[w->allocation_count++] =
            (ckpt_allocation){.name = "workspace", .buffer = -1, .from = now, .to = now, .bytes = op->workspace_bytes};
    }
    count_most(w, w->live + op->workspace_bytes);
    fine = fine && (!recomputed || ckpt_sum(w->plan->recompute_ns, op->time_ns, &w->plan->recompute_ns));
    w->ran[o] = true;
    return fine;
}

static bool write_copy(writer *w, ckpt_step_kind kind, int b)
{
    const ckpt_buffer *const buffer = &w->graph->buffer[b];
    if (kind == CKPT_FREE) {
        return write_free(w, b);
    }
    bool fine = add_step(w, (ckpt_step){.kind = kind, .name = buffer->name, .target = b});
    if (kind == CKPT_FETCH) {
        open_allocation(w, b);
        count_most(w, w->live);
        return fine;
    }
    fine = fine && ckpt_sum(w->plan->offload_bytes, buffer->bytes, &w->plan->offload_bytes);
    fine = fine && (w->on_host[b] || ckpt_sum(w->plan->host_bytes, buffer->bytes, &w->plan->host_bytes));
    w->on_host[b] = true;
    return fine;
}

/* False when a sum does not fit 63 bits. */
static bool write_entry(writer *w, int entry, int t)
{
    int target = 0;
    const ckpt_step_kind kind = ckpt_sequence_kind(entry, &target);
    bool fine = kind == CKPT_RUN ? write_run(w, target, t) : write_copy(w, kind, target);
    for (int i = w->d->from[t]; i < w->d->from[t + 1]; i++) {
        const int b = w->d->dead[i];
        if (w->open[b] >= 0) { /* else an in-place output took its place */
            fine = write_free(w, b) && fine;
        }
    }
    return fine;
}

/* Steps and allocations there will be, at most. */
static size_t count_room(const ckpt_graph *graph, const ckpt_sequence *sequence, size_t *allocations)
{
    size_t opened = 0;
    size_t workspaces = 0;
    for (int t = 0; t < sequence->count; t++) {
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(sequence->op[t], &target);
        opened += kind == CKPT_RUN ? (size_t)graph->op[target].writes.count : kind == CKPT_FETCH;
        workspaces += kind == CKPT_RUN && graph->op[target].workspace_bytes > 0;
    }
    *allocations = opened + workspaces;
    return (size_t)sequence->count + opened;
}

ckpt_code ckpt_sequence_steps(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *out, ckpt_plan *plan,
                              ckpt_err *err)
{
    size_t allocations = 0;
    const size_t steps = count_room(graph, sequence, &allocations);
    if (steps > (size_t)1 << 29) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a sequence of %d runs writes more than 2^29 buffers", sequence->count);
    }
    writer w = {
        .graph = graph,
        .step = CKPT_NEW(out, ckpt_step, steps),
        .allocation = CKPT_NEW(out, ckpt_allocation, allocations),
        .plan = plan,
    };
    const ckpt_mark mark = ckpt_arena_mark(out);
    w.open = CKPT_NEW(out, int, graph->buffer_count);
    w.ran = CKPT_NEW(out, bool, graph->op_count);
    w.on_host = CKPT_NEW(out, bool, graph->buffer_count);
    if (w.step == NULL || w.allocation == NULL || w.open == NULL || w.ran == NULL || w.on_host == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "steps of %d runs", sequence->count);
    }
    memset(w.open, 0xFF, (size_t)graph->buffer_count * sizeof *w.open); /* -1 */
    CKPT_TRY(ckpt_clock_start(&w.clock, graph, out, err));
    deaths d;
    CKPT_TRY(find_deaths(graph, sequence, out, &d, err));
    w.d = &d;
    plan->recompute_ns = 0;
    plan->offload_bytes = plan->host_bytes = 0;
    for (int t = 0; t < sequence->count; t++) {
        if (!write_entry(&w, sequence->op[t], t)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "%d runs and copies take more than 2^63 ns or bytes", sequence->count);
        }
    }
    for (int i = 0; i < w.allocation_count; i++) {
        w.allocation[i].to = w.allocation[i].to < 0 ? w.step_count - 1 : w.allocation[i].to;
    }
    plan->time_ns = ckpt_clock_end(&w.clock);
    ckpt_arena_rewind(out, mark);
    plan->step = w.step;
    plan->step_count = w.step_count;
    plan->allocation = w.allocation;
    plan->allocation_count = w.allocation_count;
    plan->peak_bytes = graph->static_bytes + w.most;
    return CKPT_OK;
}
