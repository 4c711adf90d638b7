/* Frames in a drawing: segments, which are neighbouring layers that the plan recomputes between the same two first
 * runs, and units that the user marked for recomputation. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_draw_impl.h"

/* A file may claim any number. */
static ckpt_ns sum(ckpt_ns a, ckpt_ns b)
{
    ckpt_ns all = INT64_MAX;
    return ckpt_sum(a, b, &all) ? all : INT64_MAX;
}

/* A layer's group is the number of first runs before its first recomputed run, plus 1; 0: it is never recomputed.
 * Counts the recomputed runs of each box too. */
static void group_runs(ckpt_figure *f, int *group)
{
    const ckpt_plan *const plan = f->plan;
    int first_runs = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        if (step->kind != CKPT_RUN || step->target < 0 || step->target >= f->graph->op_count) {
            continue;
        }
        first_runs += !step->recomputed;
        const int layer = f->layer_of[step->target];
        if (step->recomputed && layer >= 0) {
            ckpt_figure_box *const b = &f->box[layer];
            b->recomputed++;
            b->recomputed_ns = sum(b->recomputed_ns, ckpt_step_op(f->graph, step)->time_ns);
            group[layer] = group[layer] == 0 ? first_runs + 1 : group[layer];
        }
    }
}

/* Bytes of each layer that an op outside the drawn half reads: what keeping the layer would cost. */
static void backward_bytes(const ckpt_figure *f, bool *read, ckpt_bytes *bytes)
{
    const ckpt_graph *const graph = f->graph;
    for (int i = 0; i < graph->op_count; i++) {
        const int run = f->layer_of[i] < 0 ? f->first_run[i] : -1;
        for (int r = 0; run >= 0 && r < graph->op[run].reads.count; r++) {
            read[graph->op[run].reads.at[r]] = true;
        }
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const int layer = f->layer_of[graph->writer[b]];
        if (layer >= 0 && read[b]) {
            bytes[layer] += graph->buffer[b].bytes;
        }
    }
}

static void add_segments(ckpt_figure *f, const int *group, const ckpt_bytes *bytes)
{
    for (int first = 0, next = 0; first < f->layer_count; first = next) {
        ckpt_figure_range range = {.kind = CKPT_RANGE_SEGMENT, .first = first};
        for (next = first; next < f->layer_count && group[next] == group[first]; next++) {
            range.bytes += bytes[next];
            range.time_ns = sum(range.time_ns, f->box[next].recomputed_ns);
        }
        range.last = next - 1;
        range.layers = next - first;
        if (group[first] > 0 && range.last > range.first) {
            f->range[f->range_count++] = range;
        }
    }
}

/* Whether a segment of the plan holds one end of a unit, but not all of it. Then only the segment is drawn. */
static bool crosses(const ckpt_figure *f, const int *group, const ckpt_figure_range *unit)
{
    const bool before = unit->first > 0 && group[unit->first] > 0 && group[unit->first - 1] == group[unit->first];
    const bool after =
        unit->last + 1 < f->layer_count && group[unit->last] > 0 && group[unit->last + 1] == group[unit->last];
    bool same = true;
    for (int i = unit->first; i < unit->last; i++) {
        same = same && group[i] == group[i + 1];
    }
    return (before || after) && !same;
}

static void add_unit(ckpt_figure *f, const int *group, const ckpt_figure_range *unit)
{
    if (unit->name != NULL && unit->last > unit->first && !crosses(f, group, unit)) {
        f->range[f->range_count] = *unit;
        f->range[f->range_count++].layers = unit->last - unit->first + 1;
    }
}

static void add_units(ckpt_figure *f, const int *group)
{
    ckpt_figure_range unit = {.kind = CKPT_RANGE_UNIT};
    for (int i = 0; i < f->graph->op_count; i++) {
        const int layer = f->layer_of[i];
        if (layer < 0) {
            continue;
        }
        const char *const name = f->graph->op[i].segment;
        if (name == NULL || unit.name == NULL || strcmp(name, unit.name) != 0) {
            add_unit(f, group, &unit);
            unit.name = name;
            unit.first = layer;
        }
        unit.last = layer;
    }
    add_unit(f, group, &unit);
}

static int by_place(const void *a, const void *b)
{
    const ckpt_figure_range *const x = a, *const y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    if (x->last != y->last) {
        return x->last > y->last ? -1 : 1;
    }
    return x->layers != y->layers ? (x->layers > y->layers ? -1 : 1) : (int)x->kind - (int)y->kind;
}

ckpt_code ckpt_figure_nest(ckpt_figure *f, ckpt_err *err)
{
    int *const open = CKPT_NEW(f->scratch, int, f->range_count);
    if (open == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d ranges of layers", f->range_count);
    }
    qsort(f->range, (size_t)f->range_count, sizeof *f->range, by_place);
    int depth = 0, count = 0;
    for (int r = 0; r < f->range_count; r++) {
        const ckpt_figure_range range = f->range[r];
        while (depth > 0 && f->range[open[depth - 1]].last < range.first) {
            depth--;
        }
        if (depth == 0 || range.last <= f->range[open[depth - 1]].last) {
            open[depth++] = count;
            f->range[count++] = range;
        }
    }
    f->range_count = count;
    return CKPT_OK;
}

ckpt_code ckpt_figure_segments(ckpt_figure *f, ckpt_err *err)
{
    int *const group = CKPT_NEW(f->scratch, int, f->layer_count);
    ckpt_bytes *const bytes = CKPT_NEW(f->scratch, ckpt_bytes, f->layer_count);
    bool *const read = CKPT_NEW(f->scratch, bool, f->graph->buffer_count);
    f->range = CKPT_NEW(f->scratch, ckpt_figure_range, 2 * (size_t)f->layer_count);
    if (group == NULL || bytes == NULL || read == NULL || f->range == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the segments of %d layers", f->layer_count);
    }
    if (f->plan != NULL) {
        group_runs(f, group);
        backward_bytes(f, read, bytes);
        add_segments(f, group, bytes);
    }
    add_units(f, group);
    return ckpt_figure_nest(f, err);
}
