/* Random legal sequences, and a second clock, written as lists of what each step waits for. */
#include "tests/support/support_sequence.h"

#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate.h"
#include "planner/replay/replay.h"
#include "planner/schedule/schedule.h"
#include "tests/support/support_test.h"

ckpt_graph *ckpt_test_variant(const ckpt_graph *graph, ckpt_arena *arena, uint64_t seed, bool inplace, int64_t d2h,
                              int64_t h2d)
{
    ckpt_dice dice = {seed};
    ckpt_graph *const made = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, graph->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, graph->buffer_count);
    memcpy(op, graph->op, (size_t)graph->op_count * sizeof *op);
    memcpy(buffer, graph->buffer, (size_t)graph->buffer_count * sizeof *buffer);
    *made = *graph;
    made->op = op;
    made->buffer = buffer;
    for (int o = 0; o < graph->op_count && inplace; o++) {
        ckpt_inplace *const pair = CKPT_NEW(arena, ckpt_inplace, op[o].writes.count);
        for (int i = 0; i < op[o].writes.count && i < op[o].reads.count; i++) {
            const ckpt_inplace added = {op[o].writes.at[i], op[o].reads.at[op[o].reads.count - 1 - i]};
            bool adds = false;
            for (int k = 0; k < op[o].adds.count; k++) {
                adds = adds || op[o].adds.at[k] == added.in;
            }
            if (!adds && ckpt_dice_roll(&dice, 3) > 0) {
                pair[op[o].inplace_count++] = added;
                buffer[added.out].bytes = buffer[added.in].bytes;
            }
        }
        op[o].inplace = pair;
    }
    /* sizes go on from op to op */
    for (int o = 0; o < graph->op_count; o++) {
        for (int p = 0; p < op[o].inplace_count; p++) {
            buffer[op[o].inplace[p].out].bytes = buffer[op[o].inplace[p].in].bytes;
        }
    }
    made->has_link = d2h > 0;
    made->d2h_bytes_per_s = d2h;
    made->h2d_bytes_per_s = h2d;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(made, arena, &err), err);
    return made;
}

/* An entry and the run behind which it stands; copies of one place in the order offload, free, fetch. */
typedef struct entry {
    int after, rank, entry;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    if (x->after != y->after) {
        return x->after - y->after;
    }
    return x->rank != y->rank ? x->rank - y->rank : y->entry - x->entry;
}

static bool uses(const ckpt_graph_op *op, int buffer)
{
    for (int i = 0; i < op->reads.count + op->adds.count; i++) {
        if ((i < op->reads.count ? op->reads.at[i] : op->adds.at[i - op->reads.count]) == buffer) {
            return true;
        }
    }
    return false;
}

static int random_runs(const ckpt_graph *graph, ckpt_dice *dice, int *run)
{
    int count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        run[count++] = o;
        for (int k = 0; o > 1 && ckpt_dice_roll(dice, 4) == 0 && k < 3; k++) {
            const int recomputed = ckpt_dice_roll(dice, o);
            if (graph->op[recomputed].recompute && graph->op[recomputed].adds.count == 0) {
                run[count++] = recomputed;
            }
        }
    }
    return count;
}

ckpt_sequence ckpt_test_sequence(const ckpt_graph *graph, ckpt_arena *arena, uint64_t seed)
{
    ckpt_dice dice = {seed};
    int *const run = CKPT_NEW(arena, int, 4 * graph->op_count);
    const int runs = random_runs(graph, &dice, run);
    entry *const list = CKPT_NEW(arena, entry, runs * (3 * graph->buffer_count + 1));
    int count = 0;
    for (int t = 0; t < runs; t++) {
        list[count++] = (entry){t, 0, run[t]};
    }
    for (int b = 0; b < graph->buffer_count && graph->has_link; b++) {
        bool added_to = false;
        for (int o = 0; o < graph->op_count; o++) {
            for (int k = 0; k < graph->op[o].adds.count; k++) {
                added_to = added_to || graph->op[o].adds.at[k] == b;
            }
        }
        int born = -1; /* run that wrote it; what follows is one gap of each life, at most */
        int last = -1;
        for (int t = 0; t < runs && !added_to; t++) {
            const bool used = last >= 0 && uses(&graph->op[run[t]], b);
            if (used && born >= 0 && ckpt_dice_roll(&dice, 2) == 0) {
                const int free_at = last + ckpt_dice_roll(&dice, t - last);
                list[count++] =
                    (entry){born + ckpt_dice_roll(&dice, free_at - born + 1), 1, ckpt_sequence_copy(CKPT_OFFLOAD, b)};
                list[count++] = (entry){free_at, 2, ckpt_sequence_copy(CKPT_FREE, b)};
                list[count++] =
                    (entry){free_at + ckpt_dice_roll(&dice, t - free_at), 3, ckpt_sequence_copy(CKPT_FETCH, b)};
                born = -1;
            }
            last = used ? t : last;
            if (run[t] == graph->writer[b]) {
                born = last = t;
            }
        }
    }
    qsort(list, (size_t)count, sizeof *list, compare_entries);
    int *const op = CKPT_NEW(arena, int, count);
    for (int i = 0; i < count; i++) {
        op[i] = list[i].entry;
    }
    return (ckpt_sequence){op, count};
}

ckpt_plan *ckpt_test_plan(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *arena, const char *what)
{
    ckpt_err err = {0};
    ckpt_plan *const plan = CKPT_NEW(arena, ckpt_plan, 1);
    plan->source = plan->graph_name = plan->solver = plan->costs = plan->bound_how = plan->bound_scope = "";
    CHECK_OK(ckpt_sequence_steps(graph, sequence, arena, plan, &err), err);
    CHECK_OK(ckpt_sequence_pack(graph, plan, 0, &(ckpt_plan_options){0}, arena, &err), err);
    plan->static_bytes = graph->static_bytes;
    plan->budget_bytes = graph->static_bytes + plan->arena_bytes;
    CHECK_OK(ckpt_keep_all_measure(graph, arena, &plan->keep_all_peak_bytes, &plan->keep_all_time_ns, &err), err);
    const ckpt_code code = ckpt_plan_check(plan, graph, &err);
    CHECK(code == CKPT_OK, "%s: %s", what, err.msg);
    ckpt_test_replay(graph, plan, what);
    return plan;
}

static void wait_for(ckpt_ns *start, ckpt_ns end)
{
    *start = *start < end ? end : *start;
}

ckpt_ns ckpt_test_clock(const ckpt_graph *graph, const ckpt_plan *plan)
{
    ckpt_ns *const end = calloc((size_t)plan->step_count + 1, sizeof *end);
    assert_non_null(end);
    ckpt_ns last = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const bool copy = step->kind == CKPT_OFFLOAD || step->kind == CKPT_FETCH;
        const ckpt_graph_op *const op = step->kind == CKPT_RUN ? &graph->op[step->target] : NULL;
        ckpt_ns start = 0;
        ckpt_ns length = op != NULL ? op->time_ns : 0;
        for (int j = 0; j < i; j++) {
            const ckpt_step *const before = &plan->step[j];
            const bool copied = before->kind == CKPT_OFFLOAD || before->kind == CKPT_FETCH;
            bool waits = !copied || (copy && before->kind == step->kind); /* issued in order; one engine each way */
            if (op == NULL) {
                waits = waits || before->target == step->target;
            } else if (copied) {
                const bool read = before->kind == CKPT_FETCH && uses(op, before->target);
                bool destroyed = false;
                for (int p = 0; step->inplace && p < op->inplace_count; p++) {
                    destroyed = destroyed || op->inplace[p].in == before->target;
                }
                for (int p = 0; p < op->adds.count; p++) {
                    destroyed = destroyed || op->adds.at[p] == before->target;
                }
                waits = waits || read || destroyed;
            }
            if (waits) {
                wait_for(&start, end[j]);
            }
        }
        if (copy) {
            const int64_t rate = step->kind == CKPT_OFFLOAD ? graph->d2h_bytes_per_s : graph->h2d_bytes_per_s;
            length = (graph->buffer[step->target].bytes * 1000000000 + rate - 1) / rate;
        }
        end[i] = start + length;
        wait_for(&last, end[i]);
    }
    free(end);
    return last;
}
