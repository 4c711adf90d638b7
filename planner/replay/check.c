/* Checks that a plan can be replayed as it says. Knows no strategy.
 *
 * The rules, in the order in which they are tested:
 *   1 form        the plan is bound; an infeasible one has no steps and a minimum budget above its budget
 *   2 steps       each is legal when it comes (see check_run, check_move); all is done at the end
 *   3 live ranges   every live range and every workspace has exactly one allocation with its from, to and bytes
 *   4 addresses   allocations lie inside the arena, in-place outputs where their inputs lay, none on another
 *   5 budget      static + arena <= budget
 *   6 figures     the summary is what the replay gives; no bound above the plan's own time
 *   7 layers      none, or every one with what the steps do to it
 *
 * "The same bits" is rule 2 too: an op must read a gradient with exactly those additions that stand before it in
 * reference order, and all runs of an op use variants of the same bits. */
#include "planner/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "planner/replay/clock.h"

/* A live range of a buffer, or of a workspace (buffer -1). */
typedef struct live_range {
    int buffer, from, to;
    int taken_buffer, taken_from; /* in-place output: the live range whose allocation it takes; -1: none */
} live_range;

typedef struct replay {
    const ckpt_plan *plan;
    const ckpt_graph *graph;
    int *open;     /* per buffer: its live range while in memory, else -1 */
    int *added;    /* per buffer: additions since it was written */
    int *added_at; /* per buffer: step of the last addition; -1: none */
    int *whole;    /* per buffer: additions in reference order */
    int *host;     /* per buffer: additions in its copy on the host; -1: no copy */
    int *expected; /* additions each read and then each add must find, ops in order and then variants */
    int *first;    /* per op and variant: where its part of `expected` starts */
    int *way;      /* per op: of its first run */
    bool *ran;
    int next; /* op whose first run is due */
    live_range *range;
    int range_count;
    ckpt_bytes offload_bytes, host_bytes;
    ckpt_ns recompute_ns;
    bool *has_workspace; /* per step: an allocation says so; NULL: the graph's workspaces and times hold */
} replay;

#define REFUSE(err, ...) CKPT_FAIL(err, CKPT_BAD_INPUT, __VA_ARGS__)

static ckpt_code check_form(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    if (plan->verdict == CKPT_INFEASIBLE) {
        if (plan->step_count != 0 || plan->allocation_count != 0) {
            return REFUSE(err, "an infeasible plan has no steps and no allocations, this has %d and %d",
                          plan->step_count, plan->allocation_count);
        }
        if (plan->min_budget_bytes <= plan->budget_bytes) {
            return REFUSE(err, "infeasible under %lld bytes, but its minimum budget is %lld",
                          (long long)plan->budget_bytes, (long long)plan->min_budget_bytes);
        }
        if (plan->no_schedule_below_bytes > plan->min_budget_bytes) {
            return REFUSE(err, "a plan for %lld bytes is known, but none is said to exist below %lld",
                          (long long)plan->min_budget_bytes, (long long)plan->no_schedule_below_bytes);
        }
        return CKPT_OK;
    }
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int count = step->kind == CKPT_RUN ? graph->op_count : graph->buffer_count;
        if (step->target < 0 || step->target >= count) {
            return REFUSE(err, "step %d (%s %s) is not bound to the graph", i, ckpt_step_kind_name(step->kind),
                          step->name);
        }
        if (step->way < 0 ||
            (step->way > 0 && (step->kind != CKPT_RUN || step->way > graph->op[step->target].variant_count))) {
            return REFUSE(err, "step %d (%s %s) is not bound to a variant", i, ckpt_step_kind_name(step->kind),
                          step->name);
        }
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        if (plan->allocation[i].buffer < -1 || plan->allocation[i].buffer >= graph->buffer_count) {
            return REFUSE(err, "allocation %d (%s) is not bound to the graph", i, plan->allocation[i].name);
        }
    }
    return CKPT_OK;
}

/* How many additions each op and variant finds in each buffer that it uses when the graph runs in reference order, every
 * op as it first runs in the plan. */
static void count_additions(replay *r)
{
    const ckpt_graph *const graph = r->graph;
    int at = 0;
    for (int i = r->plan->step_count - 1; i >= 0; i--) {
        const ckpt_step *const step = &r->plan->step[i];
        if (step->kind == CKPT_RUN) {
            r->way[step->target] = step->way;
        }
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        for (int k = 0; k <= op->variant_count; k++) {
            const int run = k == 0 ? o : op->first_variant + k - 1;
            const ckpt_list *const list[] = {&graph->op[run].reads, &graph->op[run].adds};
            r->first[run] = at;
            for (int l = 0; l < 2; l++) {
                for (int i = 0; i < list[l]->count; i++) {
                    r->expected[at++] = r->whole[list[l]->at[i]];
                }
            }
        }
        const ckpt_step as_run = {.target = o, .way = r->way[o]};
        const ckpt_list *const adds = &ckpt_step_op(graph, &as_run)->adds;
        for (int i = 0; i < adds->count; i++) {
            r->whole[adds->at[i]]++;
        }
    }
}

static ckpt_code replay_init(replay *r, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = r->graph;
    size_t uses = 0;
    for (int o = 0; o < graph->op_count + graph->variant_count; o++) {
        uses += (size_t)graph->op[o].reads.count + (size_t)graph->op[o].adds.count;
    }
    size_t ranges = 0;
    for (int i = 0; i < r->plan->step_count; i++) {
        const ckpt_step *const step = &r->plan->step[i];
        ranges += step->kind == CKPT_RUN ? 1 + (size_t)ckpt_step_op(graph, step)->writes.count : 1;
    }
    const size_t buffers = (size_t)graph->buffer_count;
    r->open = CKPT_NEW(scratch, int, buffers);
    r->added = CKPT_NEW(scratch, int, buffers);
    r->added_at = CKPT_NEW(scratch, int, buffers);
    r->whole = CKPT_NEW(scratch, int, buffers);
    r->host = CKPT_NEW(scratch, int, buffers);
    r->expected = CKPT_NEW(scratch, int, uses);
    r->first = CKPT_NEW(scratch, int, (size_t)graph->op_count + (size_t)graph->variant_count);
    r->way = CKPT_NEW(scratch, int, graph->op_count);
    r->ran = CKPT_NEW(scratch, bool, graph->op_count);
    r->range = CKPT_NEW(scratch, live_range, ranges);
    if (r->open == NULL || r->added == NULL || r->added_at == NULL || r->whole == NULL || r->host == NULL ||
        r->expected == NULL || r->first == NULL || r->way == NULL || r->ran == NULL || r->range == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "replay of %d steps", r->plan->step_count);
    }
    count_additions(r);
    for (int b = 0; b < graph->buffer_count; b++) {
        r->open[b] = r->host[b] = r->added_at[b] = -1;
    }
    return CKPT_OK;
}

static void open_range(replay *r, int buffer, int step)
{
    r->open[buffer] = r->range_count;
    r->range[r->range_count++] = (live_range){buffer, step, r->plan->step_count - 1, -1, -1};
}

static void close_range(replay *r, int buffer, int step)
{
    r->range[r->open[buffer]].to = step;
    r->open[buffer] = -1;
}

/* Every buffer of `list` must be in memory, with as many additions as in reference order. */
static ckpt_code check_list(const replay *r, int step, const ckpt_graph_op *op, const ckpt_list *list,
                            const int *expected, const char *verb, ckpt_err *err)
{
    for (int i = 0; i < list->count; i++) {
        const int b = list->at[i];
        const char *const name = r->graph->buffer[b].name;
        if (r->open[b] < 0) {
            return REFUSE(err, "step %d: op %s %s buffer %s, which is not in memory", step, op->name, verb, name);
        }
        if (r->added[b] != expected[i]) {
            return REFUSE(err, "step %d: op %s %s buffer %s after %d additions, in reference order after %d", step,
                          op->name, verb, name, r->added[b], expected[i]);
        }
    }
    return CKPT_OK;
}

/* In place: each named output takes the memory of its input, which is destroyed. */
static ckpt_code check_inplace(const replay *r, int step, const ckpt_graph_op *op, ckpt_err *err)
{
    if (op->inplace_count == 0) {
        return REFUSE(err, "step %d: op %s cannot run in place", step, op->name);
    }
    for (int i = 0; i < op->inplace_count; i++) {
        const ckpt_buffer *const in = &r->graph->buffer[op->inplace[i].in];
        const ckpt_buffer *const out = &r->graph->buffer[op->inplace[i].out];
        if (r->open[op->inplace[i].in] < 0) {
            return REFUSE(err, "step %d: op %s in place of buffer %s, which is not in memory", step, op->name,
                          in->name);
        }
        if (in->bytes != out->bytes) {
            return REFUSE(err, "step %d: op %s in place: %s has %lld bytes, %s has %lld", step, op->name, out->name,
                          (long long)out->bytes, in->name, (long long)in->bytes);
        }
        if (r->added_at[op->inplace[i].in] == step) {
            return REFUSE(err, "step %d: op %s in place destroys %s, to which it adds", step, op->name, in->name);
        }
    }
    return CKPT_OK;
}

/* The plan may run op o for the first time wherever what it reads is there. */
static bool is_free(const replay *r, int o)
{
    return r->plan->reordered && ckpt_op_may_move(r->graph, o);
}

/* Optional ops that stand before op o and have not run never do; those that may move run when they run. */
static void skip_optional(replay *r, int o)
{
    while (r->next < o && (r->graph->op[r->next].optional || is_free(r, r->next))) {
        r->next++;
    }
}

/* An inexact variant has bits of its own; all others have those of the op's own way. */
static ckpt_code check_bits(const replay *r, int i, ckpt_err *err)
{
    const ckpt_step *const step = &r->plan->step[i];
    const ckpt_step first = {.target = step->target, .way = r->way[step->target]};
    const ckpt_graph_op *const now = ckpt_step_op(r->graph, step);
    const ckpt_graph_op *const then = ckpt_step_op(r->graph, &first);
    if (now != then && (now->inexact || then->inexact)) {
        return REFUSE(err, "step %d: op %s runs as %s, whose bits differ from those of its first run%s%s", i, now->name,
                      now->variant != NULL ? now->variant : "itself", then->variant != NULL ? " as " : "",
                      then->variant != NULL ? then->variant : "");
    }
    return CKPT_OK;
}

static ckpt_code check_run(replay *r, int i, ckpt_err *err)
{
    const ckpt_step *const step = &r->plan->step[i];
    const int o = step->target;
    const ckpt_graph_op *const op = ckpt_step_op(r->graph, step);
    if (!is_free(r, o)) {
        skip_optional(r, o);
    }
    if (!r->ran[o] && !is_free(r, o) && o != r->next) {
        return o < r->next ? REFUSE(err, "step %d: first run of optional op %s behind the first run of op %s", i,
                                    op->name, r->graph->op[r->next - 1].name)
                           : REFUSE(err, "step %d: first run of op %s before the first run of op %s", i, op->name,
                                    r->graph->op[r->next].name);
    }
    CKPT_TRY(check_bits(r, i, err));
    if (r->ran[o] != step->recomputed) {
        return REFUSE(err, "step %d: op %s %s", i, op->name,
                      r->ran[o] ? "is recomputed without saying so" : "says recomputed, but has not run");
    }
    if (step->recomputed && (!op->recompute || op->adds.count > 0)) {
        return REFUSE(err, "step %d: op %s must not be recomputed", i, op->name);
    }
    const int *const expected = &r->expected[r->first[op - r->graph->op]];
    CKPT_TRY(check_list(r, i, op, &op->reads, expected, "reads", err));
    CKPT_TRY(check_list(r, i, op, &op->adds, expected + op->reads.count, "adds to", err));
    for (int k = 0; k < op->writes.count; k++) {
        if (r->open[op->writes.at[k]] >= 0) {
            return REFUSE(err, "step %d: op %s writes buffer %s, which is in memory", i, op->name,
                          r->graph->buffer[op->writes.at[k]].name);
        }
    }
    for (int k = 0; k < op->adds.count; k++) {
        r->added[op->adds.at[k]]++;
        r->added_at[op->adds.at[k]] = i;
    }
    if (step->inplace) {
        CKPT_TRY(check_inplace(r, i, op, err));
    }
    for (int k = 0; k < op->writes.count; k++) {
        open_range(r, op->writes.at[k], i);
        r->added[op->writes.at[k]] = 0;
    }
    for (int p = 0; step->inplace && p < op->inplace_count; p++) {
        live_range *const made = &r->range[r->open[op->inplace[p].out]];
        made->taken_buffer = op->inplace[p].in;
        made->taken_from = r->range[r->open[op->inplace[p].in]].from;
        close_range(r, op->inplace[p].in, i - 1);
    }
    if (r->has_workspace != NULL ? r->has_workspace[i] : op->workspace_bytes > 0) {
        r->range[r->range_count++] = (live_range){-1, i, i, -1, -1};
    }
    if (step->recomputed && !ckpt_sum(r->recompute_ns, op->time_ns, &r->recompute_ns)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "step %d: recomputation takes more than 2^63 ns", i);
    }
    r->next += !r->ran[o] && o == r->next;
    r->ran[o] = true;
    return CKPT_OK;
}

static ckpt_code check_move(replay *r, int i, ckpt_err *err)
{
    const ckpt_step *const step = &r->plan->step[i];
    const int b = step->target;
    const ckpt_buffer *const buffer = &r->graph->buffer[b];
    if (step->kind == CKPT_FREE) {
        if (r->open[b] < 0) {
            return REFUSE(err, "step %d: free of buffer %s, which is not in memory", i, buffer->name);
        }
        close_range(r, b, i);
        return CKPT_OK;
    }
    if (!r->graph->has_link && r->has_workspace == NULL) {
        return REFUSE(err, "step %d: %s of buffer %s, but the graph has no link to the host", i,
                      ckpt_step_kind_name(step->kind), buffer->name);
    }
    if (step->kind == CKPT_OFFLOAD) {
        if (r->open[b] < 0) {
            return REFUSE(err, "step %d: offload of buffer %s, which is not in memory", i, buffer->name);
        }
        if (r->host[b] < 0 && !ckpt_sum(r->host_bytes, buffer->bytes, &r->host_bytes)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "step %d: more than 2^63 bytes on the host", i);
        }
        if (!ckpt_sum(r->offload_bytes, buffer->bytes, &r->offload_bytes)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "step %d: more than 2^63 bytes offloaded", i);
        }
        r->host[b] = r->added[b];
        return CKPT_OK;
    }
    if (r->host[b] < 0) {
        return REFUSE(err, "step %d: fetch of buffer %s, which was never offloaded", i, buffer->name);
    }
    if (r->open[b] >= 0) {
        return REFUSE(err, "step %d: fetch of buffer %s, which is in memory", i, buffer->name);
    }
    open_range(r, b, i);
    r->added[b] = r->host[b];
    return CKPT_OK;
}

static ckpt_code check_steps(replay *r, ckpt_err *err)
{
    for (int i = 0; i < r->plan->step_count; i++) {
        CKPT_TRY(r->plan->step[i].kind == CKPT_RUN ? check_run(r, i, err) : check_move(r, i, err));
    }
    const ckpt_graph *const graph = r->graph;
    for (int o = 0; o < graph->op_count; o++) {
        if (!r->ran[o] && !graph->op[o].optional) {
            return REFUSE(err, "op %s never runs", graph->op[o].name);
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        const int b = graph->outputs.at[i];
        if (r->open[b] < 0) {
            return REFUSE(err, "output %s is not in memory at the end", graph->buffer[b].name);
        }
        if (r->added[b] != r->whole[b]) {
            return REFUSE(err, "output %s ends with %d of its %d additions", graph->buffer[b].name, r->added[b],
                          r->whole[b]);
        }
    }
    return CKPT_OK;
}

static int compare_numbers(int a, int b)
{
    return (a > b) - (a < b);
}

static int compare_ranges(const void *a, const void *b)
{
    const live_range *const x = a;
    const live_range *const y = b;
    const int order = compare_numbers(x->buffer, y->buffer);
    return order != 0 ? order : compare_numbers(x->from, y->from);
}

/* An allocation and its index in the plan, for messages. */
typedef struct numbered {
    live_range key; /* buffer and from; the rest unused */
    int index;
} numbered;

static int compare_offsets(const void *a, const void *b)
{
    const ckpt_allocation *const x = *(const ckpt_allocation *const *)a;
    const ckpt_allocation *const y = *(const ckpt_allocation *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static const char *range_name(const replay *r, const live_range *range)
{
    return range->buffer < 0 ? "workspace" : r->graph->buffer[range->buffer].name;
}

static ckpt_bytes range_bytes(const replay *r, const live_range *range)
{
    return range->buffer < 0 ? ckpt_step_op(r->graph, &r->plan->step[range->from])->workspace_bytes
                             : r->graph->buffer[range->buffer].bytes;
}

/* Rule 3: sorted by buffer and first step, live ranges and allocations must agree one by one. `sorted` is left
 * sorted. */
static ckpt_code check_live_ranges(replay *r, numbered *sorted, ckpt_err *err)
{
    const ckpt_plan *const plan = r->plan;
    for (int i = 0; i < plan->allocation_count; i++) {
        sorted[i] = (numbered){{plan->allocation[i].buffer, plan->allocation[i].from, 0, -1, -1}, i};
    }
    qsort(sorted, (size_t)plan->allocation_count, sizeof *sorted, compare_ranges);
    qsort(r->range, (size_t)r->range_count, sizeof *r->range, compare_ranges);
    for (int i = 0; i < r->range_count || i < plan->allocation_count; i++) {
        const live_range *const range = i < r->range_count ? &r->range[i] : NULL;
        const numbered *const n = i < plan->allocation_count ? &sorted[i] : NULL;
        const int order = range == NULL ? 1 : n == NULL ? -1 : compare_ranges(range, n);
        if (order < 0) {
            return REFUSE(err, "%s, in memory from step %d to %d, has no allocation", range_name(r, range), range->from,
                          range->to);
        }
        const ckpt_allocation *const allocation = &plan->allocation[n->index];
        if (order > 0) {
            return REFUSE(err, "allocation %d (%s from step %d) belongs to nothing that starts there", n->index,
                          allocation->name, allocation->from);
        }
        if (allocation->to != range->to) {
            return REFUSE(err, "allocation %d (%s from step %d) ends with step %d, its live range with %d", n->index,
                          allocation->name, allocation->from, allocation->to, range->to);
        }
        const bool any_size = range->buffer < 0 && r->has_workspace != NULL;
        if (any_size ? allocation->bytes < 0 : allocation->bytes != range_bytes(r, range)) {
            return REFUSE(err, "allocation %d (%s from step %d) has %lld bytes, needed are %lld", n->index,
                          allocation->name, allocation->from, (long long)allocation->bytes,
                          (long long)range_bytes(r, range));
        }
    }
    return CKPT_OK;
}

/* Skyline over steps: `top` is the allocation that ends highest anywhere below a node, `all` the highest of those that
 * cover the whole node. */
typedef struct skyline {
    const ckpt_allocation **top, **all;
    int leaves; /* power of two */
} skyline;

static const ckpt_allocation *higher(const ckpt_allocation *a, const ckpt_allocation *b)
{
    return a == NULL || (b != NULL && b->offset + b->bytes > a->offset + a->bytes) ? b : a;
}

static const ckpt_allocation *skyline_top(const skyline *s, int node, int low, int high, int from, int to)
{
    if (to < low || high < from) {
        return NULL;
    }
    if (from <= low && high <= to) {
        return s->top[node];
    }
    const int middle = low + (high - low) / 2;
    const ckpt_allocation *const below = higher(skyline_top(s, 2 * node, low, middle, from, to),
                                                skyline_top(s, 2 * node + 1, middle + 1, high, from, to));
    return higher(s->all[node], below);
}

static void skyline_put(const skyline *s, int node, int low, int high, const ckpt_allocation *allocation)
{
    if (allocation->to < low || high < allocation->from) {
        return;
    }
    s->top[node] = higher(s->top[node], allocation);
    if (allocation->from <= low && high <= allocation->to) {
        s->all[node] = higher(s->all[node], allocation);
        return;
    }
    const int middle = low + (high - low) / 2;
    skyline_put(s, 2 * node, low, middle, allocation);
    skyline_put(s, 2 * node + 1, middle + 1, high, allocation);
}

/* Rule 4, second half: put allocations in the order of their offsets on a skyline; each must start above all that share
 * a step with it. O(n log n). */
static ckpt_code check_overlap(const ckpt_plan *plan, ckpt_arena *scratch, ckpt_err *err)
{
    skyline s = {.leaves = 1};
    while (s.leaves < plan->step_count) {
        s.leaves *= 2;
    }
    const size_t nodes = 2 * (size_t)s.leaves;
    s.top = CKPT_NEW(scratch, const ckpt_allocation *, nodes);
    s.all = CKPT_NEW(scratch, const ckpt_allocation *, nodes);
    const ckpt_allocation **const order = CKPT_NEW(scratch, const ckpt_allocation *, plan->allocation_count);
    if (s.top == NULL || s.all == NULL || order == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "overlap check of %d allocations", plan->allocation_count);
    }
    int count = 0;
    for (int i = 0; i < plan->allocation_count; i++) {
        if (plan->allocation[i].bytes > 0) {
            order[count++] = &plan->allocation[i];
        }
    }
    qsort(order, (size_t)count, sizeof *order, compare_offsets);
    for (int i = 0; i < count; i++) {
        const ckpt_allocation *const allocation = order[i];
        const ckpt_allocation *const under = skyline_top(&s, 1, 0, s.leaves - 1, allocation->from, allocation->to);
        if (under != NULL && under->offset + under->bytes > allocation->offset) {
            return REFUSE(err,
                          "allocations %d (%s, steps %d to %d) and %d (%s, steps %d to %d) share a step and byte %lld",
                          (int)(under - plan->allocation), under->name, under->from, under->to,
                          (int)(allocation - plan->allocation), allocation->name, allocation->from, allocation->to,
                          (long long)allocation->offset);
        }
        skyline_put(&s, 1, 0, s.leaves - 1, allocation);
    }
    return CKPT_OK;
}

static ckpt_code check_addresses(const replay *r, const numbered *sorted, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_plan *const plan = r->plan;
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        if (allocation->offset < 0 || allocation->offset > plan->arena_bytes - allocation->bytes) {
            return REFUSE(err, "allocation %d (%s): %lld bytes at offset %lld lie outside the arena of %lld", i,
                          allocation->name, (long long)allocation->bytes, (long long)allocation->offset,
                          (long long)plan->arena_bytes);
        }
    }
    for (int i = 0; i < r->range_count; i++) {
        const live_range *const range = &r->range[i];
        if (range->taken_buffer >= 0) {
            const numbered key = {{range->taken_buffer, range->taken_from, 0, -1, -1}, 0};
            const numbered *const taken =
                bsearch(&key, sorted, (size_t)plan->allocation_count, sizeof *sorted, compare_ranges);
            const ckpt_allocation *const out = &plan->allocation[sorted[i].index];
            if (taken == NULL || plan->allocation[taken->index].offset != out->offset) {
                return REFUSE(err, "allocation %d (%s): an in-place output lies where its input lay", sorted[i].index,
                              out->name);
            }
        }
    }
    return check_overlap(plan, scratch, err);
}

static ckpt_code check_figure(const char *what, int64_t stated, int64_t found, ckpt_err *err)
{
    return stated == found ? CKPT_OK
                           : REFUSE(err, "%s: the summary says %lld, the replay gives %lld", what, (long long)stated,
                                    (long long)found);
}

static ckpt_code check_figures(const replay *r, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_plan *const plan = r->plan;
    const ckpt_graph *const graph = r->graph;
    ckpt_bytes peak = 0;
    CKPT_TRY(check_figure("static_bytes", plan->static_bytes, graph->static_bytes, err));
    CKPT_TRY(ckpt_plan_peak(plan, scratch, &peak, err));
    CKPT_TRY(check_figure("peak_bytes", plan->peak_bytes, peak, err));
    if (r->has_workspace != NULL) {
        return check_figure("host_bytes", plan->host_bytes, r->host_bytes, err);
    }
    ckpt_moment *const moment = CKPT_NEW(scratch, ckpt_moment, plan->step_count);
    if (moment == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "clock of %d steps", plan->step_count);
    }
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_plan_clock(plan, graph, scratch, moment, &time, err));
    ckpt_bytes keep_all_peak = 0;
    ckpt_ns keep_all_time = 0;
    CKPT_TRY(ckpt_keep_all_measure(graph, scratch, &keep_all_peak, &keep_all_time, err));
    CKPT_TRY(check_figure("time_ns", plan->time_ns, time, err));
    CKPT_TRY(check_figure("recompute_ns", plan->recompute_ns, r->recompute_ns, err));
    CKPT_TRY(check_figure("offload_bytes", plan->offload_bytes, r->offload_bytes, err));
    CKPT_TRY(check_figure("host_bytes", plan->host_bytes, r->host_bytes, err));
    CKPT_TRY(check_figure("keep_all.peak_bytes", plan->keep_all_peak_bytes, keep_all_peak, err));
    CKPT_TRY(check_figure("keep_all.time_ns", plan->keep_all_time_ns, keep_all_time, err));
    if (plan->has_bound && plan->bound_ns > plan->time_ns) {
        return REFUSE(err, "the bound of %lld ns is above the plan's own time of %lld", (long long)plan->bound_ns,
                      (long long)plan->time_ns);
    }
    return CKPT_OK;
}

static int compare_layers(const void *a, const void *b)
{
    return strcmp(((const ckpt_layer_decision *)a)->layer, ((const ckpt_layer_decision *)b)->layer);
}

/* Rule 7: both lists sorted by name must agree one by one. */
static ckpt_code check_layers(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *scratch, ckpt_err *err)
{
    const int stated_count = plan->layer_count;
    if (stated_count == 0) {
        return CKPT_OK;
    }
    ckpt_layer_decision *const stated = CKPT_NEW(scratch, ckpt_layer_decision, stated_count);
    ckpt_layer_decision *found = NULL;
    int found_count = 0;
    if (stated == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "check of %d layers", stated_count);
    }
    CKPT_TRY(ckpt_layers_decide(plan, graph, scratch, &found, &found_count, err));
    memcpy(stated, plan->layer, (size_t)stated_count * sizeof *stated);
    qsort(stated, (size_t)stated_count, sizeof *stated, compare_layers);
    qsort(found, (size_t)found_count, sizeof *found, compare_layers);
    for (int i = 0; i < stated_count || i < found_count; i++) {
        const int order = i == found_count ? -1 : i == stated_count ? 1 : compare_layers(&stated[i], &found[i]);
        if (order != 0) {
            return order < 0 ? REFUSE(err, "layers: %s stands there twice or is no layer of the forward pass",
                                      stated[i].layer)
                             : REFUSE(err, "layers: %s is missing", found[i].layer);
        }
        if (stated[i].decision != found[i].decision) {
            return REFUSE(err, "layers: %s is said to be \"%s\", the steps make it \"%s\"", stated[i].layer,
                          ckpt_decision_name(stated[i].decision), ckpt_decision_name(found[i].decision));
        }
    }
    return CKPT_OK;
}

static ckpt_code check_all(replay *r, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_plan *const plan = r->plan;
    CKPT_TRY(check_form(plan, r->graph, err));
    if (plan->verdict == CKPT_INFEASIBLE) {
        return CKPT_OK;
    }
    CKPT_TRY(replay_init(r, scratch, err));
    CKPT_TRY(check_steps(r, err));
    numbered *const sorted = CKPT_NEW(scratch, numbered, plan->allocation_count);
    if (sorted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "check of %d allocations", plan->allocation_count);
    }
    CKPT_TRY(check_live_ranges(r, sorted, err));
    CKPT_TRY(check_addresses(r, sorted, scratch, err));
    if (plan->arena_bytes > plan->budget_bytes - r->graph->static_bytes) {
        return REFUSE(err, "static block of %lld bytes and arena of %lld exceed the budget of %lld",
                      (long long)r->graph->static_bytes, (long long)plan->arena_bytes, (long long)plan->budget_bytes);
    }
    CKPT_TRY(check_figures(r, scratch, err));
    /* labels are no part of the digest: who only runs the plan may have others */
    return r->has_workspace != NULL ? CKPT_OK : check_layers(plan, r->graph, scratch, err);
}

ckpt_code ckpt_plan_check(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    replay r = {.plan = plan, .graph = graph};
    const ckpt_code code = check_all(&r, &scratch, err);
    ckpt_arena_fini(&scratch);
    return code;
}

ckpt_code ckpt_plan_check_run(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    replay r = {.plan = plan, .graph = graph, .has_workspace = CKPT_NEW(&scratch, bool, plan->step_count)};
    ckpt_code code = CKPT_OK;
    if (r.has_workspace == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "replay of %d steps", plan->step_count);
    } else {
        for (int i = 0; i < plan->allocation_count; i++) {
            const ckpt_allocation *const allocation = &plan->allocation[i];
            if (allocation->buffer < 0 && allocation->from >= 0 && allocation->from < plan->step_count) {
                r.has_workspace[allocation->from] = true;
            }
        }
        code = check_all(&r, &scratch, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

ckpt_code ckpt_keep_all_measure(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_ns *time,
                                ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    int *const last = CKPT_NEW(scratch, int, graph->buffer_count); /* op after which the buffer goes */
    ckpt_bytes *const gone = CKPT_NEW(scratch, ckpt_bytes, graph->op_count + 1);
    if (last == NULL || gone == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "last uses of %d buffers", graph->buffer_count);
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        last[b] = -1;
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_list *const list[] = {&graph->op[o].reads, &graph->op[o].writes, &graph->op[o].adds};
        for (int l = 0; l < 3 && !graph->op[o].optional; l++) {
            for (int i = 0; i < list[l]->count; i++) {
                last[list[l]->at[i]] = o;
            }
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        last[graph->outputs.at[i]] = graph->op_count;
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        if (last[b] >= 0) { /* else no op that runs writes it */
            gone[last[b]] += graph->buffer[b].bytes;
        }
    }
    ckpt_bytes live = graph->static_bytes;
    ckpt_bytes most = live;
    ckpt_ns sum = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        if (op->optional) {
            continue;
        }
        for (int i = 0; i < op->writes.count; i++) {
            live += graph->buffer[op->writes.at[i]].bytes;
        }
        most = live + op->workspace_bytes > most ? live + op->workspace_bytes : most;
        live -= gone[o];
        sum += op->time_ns; /* sums were checked with the graph */
    }
    ckpt_arena_rewind(scratch, mark);
    *peak = most;
    *time = sum;
    return CKPT_OK;
}
