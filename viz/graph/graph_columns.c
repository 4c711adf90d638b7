/* A long chain in several columns, because a picture of 1 : 40 shows nothing at any size. Columns are about as long as
 * each other and end where little is handed on. */
#include <stdlib.h>

#include "viz/graph/graph_draw_impl.h"

enum { ROWS = 20, COLUMNS_MAX = 5 };

/* Boxes one below the other on the longest way through the graph. */
static int longest_way(const ckpt_figure *f, int *depth)
{
    int longest = 0;
    for (int b = 0, e = 0; b < f->box_count; b++) {
        depth[b] = 1;
        for (; e < f->edge_count && f->edge[e].to <= b; e++) {
            const ckpt_figure_edge *const edge = &f->edge[e];
            if (edge->from < b && depth[edge->from] >= depth[b]) {
                depth[b] = depth[edge->from] + 1;
            }
        }
        longest = depth[b] > longest ? depth[b] : longest;
    }
    return longest;
}

/* What it costs to end a column before each box: arrows that go on, and more than those ranges that are cut. */
static void weigh_cuts(const ckpt_figure *f, int *cost)
{
    enum { RANGE = 8 };
    for (int e = 0; e < f->edge_count; e++) {
        if (f->edge[e].from < f->edge[e].to) {
            cost[f->edge[e].from + 1]++;
            cost[f->edge[e].to + 1]--;
        }
    }
    for (int r = 0; r < f->range_count; r++) {
        cost[f->range[r].first + 1] += RANGE;
        cost[f->range[r].last + 1] -= RANGE;
    }
    for (int b = 1; b <= f->box_count; b++) {
        cost[b] += cost[b - 1];
    }
}

/* A cut range is two; the rest of it stands behind. */
static ckpt_code cut_ranges(ckpt_figure *f, ckpt_err *err)
{
    ckpt_figure_range *const range =
        CKPT_NEW(f->scratch, ckpt_figure_range, (size_t)f->range_count * (size_t)f->column_count);
    if (range == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d ranges", f->range_count);
    }
    int count = 0;
    for (int r = 0; r < f->range_count; r++) {
        ckpt_figure_range part = f->range[r];
        const int last = part.last;
        for (int b = part.first + 1; b <= last; b++) {
            if (f->box[b].column != f->box[b - 1].column) {
                part.last = b - 1;
                range[count++] = part;
                part.first = b;
                part.continued = true;
            }
        }
        part.last = last;
        range[count++] = part;
    }
    f->range = range;
    f->range_count = count;
    return ckpt_figure_nest(f, err);
}

ckpt_code ckpt_figure_columns(ckpt_figure *f, ckpt_err *err)
{
    int *const depth = CKPT_NEW(f->scratch, int, f->box_count);
    int *const cost = CKPT_NEW(f->scratch, int, (size_t)f->box_count + 2);
    if (depth == NULL || cost == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the columns of %d boxes", f->box_count);
    }
    const int rows = longest_way(f, depth) + f->range_count / 2; /* a range has a line of its own */
    const int columns = rows <= ROWS + ROWS / 4 ? 1 : (rows + ROWS - 1) / ROWS;
    f->column_count = columns > COLUMNS_MAX ? COLUMNS_MAX : columns;
    weigh_cuts(f, cost);
    const int length = f->box_count / f->column_count;
    int before = 0;
    for (int c = 1; c < f->column_count; c++) {
        const int middle = (int)((int64_t)f->box_count * c / f->column_count);
        int best = middle, minimum = INT32_MAX;
        for (int b = middle - length / 4; b <= middle + length / 4; b++) {
            const int off = 16 * abs(b - middle) / length; /* as much as two arrows, at the most */
            if (b > before && cost[b] + off < minimum) {
                minimum = cost[b] + off;
                best = b;
            }
        }
        for (int b = best; b < f->box_count; b++) {
            f->box[b].column = c;
        }
        before = best;
    }
    return cut_ranges(f, err);
}
