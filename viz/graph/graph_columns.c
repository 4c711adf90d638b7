/* A long chain in several columns, because a picture of 1 : 40 shows nothing at any size. Columns are about as long as
 * each other and end where little is handed on. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_draw_impl.h"

enum { ROWS = 20, COLUMNS_MAX = 5 };

/* Boxes one below the other on the longest way through the graph to each box, and how many have each depth. */
static int longest_way(const ckpt_figure *f, int *depth, int *beside)
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
        beside[depth[b]]++;
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

/* Lines of words in a box (put_label). */
static int lines_of(const ckpt_figure_box *b)
{
    const bool more = b->layers > 1 || b->recomputed > 1;
    return 3 + (b->way != NULL) + (b->backward_way != NULL) + more;
}

/* About what Graphviz makes of it: boxes that read each other stand below each other, all columns in the same rows. */
ckpt_code ckpt_figure_size(const ckpt_figure *f, int *width, int *height, ckpt_err *err)
{
    enum { LINE = 13, GAP = 30, FRAME = 24, WIDE = 115 };
    int *const row = CKPT_NEW(f->scratch, int, f->box_count), *const lines = CKPT_NEW(f->scratch, int, f->box_count);
    int *const beside = CKPT_NEW(f->scratch, int, f->box_count);
    if (row == NULL || lines == NULL || beside == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to measure %d boxes", f->box_count);
    }
    *width = *height = 0;
    int rows = 0;
    for (int b = 0, e = 0, widest = 0, from = 0; b < f->box_count; b++) {
        for (; e < f->edge_count && f->edge[e].to <= b; e++) {
            const ckpt_figure_edge *const edge = &f->edge[e];
            const bool above = edge->from < b && f->box[edge->from].column == f->box[b].column;
            row[b] = above && row[edge->from] >= row[b] ? row[edge->from] + 1 : row[b];
        }
        if (f->box[b].column != f->box[from].column) {
            *width += widest * WIDE;
            widest = 0;
            memset(beside, 0, (size_t)rows * sizeof *beside);
            from = b;
        }
        rows = row[b] >= rows ? row[b] + 1 : rows;
        beside[row[b]]++;
        widest = beside[row[b]] > widest ? beside[row[b]] : widest;
        lines[row[b]] = lines_of(&f->box[b]) > lines[row[b]] ? lines_of(&f->box[b]) : lines[row[b]];
        *width += b + 1 == f->box_count ? widest * WIDE : 0;
    }
    for (int r = 0; r < rows; r++) {
        *height += LINE * lines[r] + GAP;
    }
    *height += FRAME * f->range_count / f->column_count;
    return CKPT_OK;
}

ckpt_code ckpt_figure_columns(ckpt_figure *f, ckpt_err *err)
{
    int *const depth = CKPT_NEW(f->scratch, int, f->box_count);
    int *const cost = CKPT_NEW(f->scratch, int, (size_t)f->box_count + 2);
    int *const beside = CKPT_NEW(f->scratch, int, (size_t)f->box_count + 1);
    if (depth == NULL || cost == NULL || beside == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the columns of %d boxes", f->box_count);
    }
    const int longest = longest_way(f, depth, beside);
    const int rows = longest + f->range_count / 2; /* a range has a line of its own */
    const int columns = rows <= ROWS + ROWS / 4 ? 1 : (rows + ROWS - 1) / ROWS;
    f->column_count = columns > COLUMNS_MAX ? COLUMNS_MAX : columns;
    weigh_cuts(f, cost);
    const int length = f->box_count / f->column_count;
    int before = 0, middle = 0;
    double row = 0; /* of those above the middle: boxes of one depth share one */
    for (int c = 1; c < f->column_count; c++) {
        const double wanted = (double)longest * c / f->column_count + 1e-6;
        for (; middle + 1 < f->box_count && row + 1.0 / beside[depth[middle]] <= wanted; middle++) {
            row += 1.0 / beside[depth[middle]];
        }
        int best = middle, minimum = INT32_MAX;
        for (int b = middle - length / 4; b <= middle + length / 4 && b < f->box_count; b++) {
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
