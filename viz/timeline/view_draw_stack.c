/* The chart's inside: the bands of the base stacked, and the outlines of the other traces over them. */
#include <math.h>
#include <string.h>

#include "viz/timeline/view_draw.h"

/* The edge above band `b` (b = -1: the floor) in every column, as a step function from left to right. Gives the number of
 * points: two per step. */
static int step_edge(const ckpt_view *view, const ckpt_series *series, const int *event, int b, ckpt_point *point)
{
    const double width = (view->right - view->left) / view->columns;
    int count = 0;
    for (int c = 0; c < view->columns; c++) {
        double y = view->bottom;
        if (c > 0 && event[c] == event[c - 1]) {
            point[count - 1].x = view->left + (c + 1) * width;
            continue;
        }
        if (event[c] >= 0) {
            ckpt_bands bands;
            ckpt_series_bands(series, event[c], &bands);
            double sum = 0;
            for (int k = 0; k <= b; k++) {
                sum += (double)bands.bytes[k];
            }
            y = ckpt_view_y(view, sum);
        }
        point[count++] = (ckpt_point){view->left + c * width, y};
        point[count++] = (ckpt_point){view->left + (c + 1) * width, y};
    }
    return count;
}

/* The name of a band inside it, where it is thickest over the width of the name: the second cue beside colour. */
static void name_band(ckpt_view *view, int b, const ckpt_point *lower, const ckpt_point *upper, int count)
{
    const ckpt_colour_role role = ckpt_colour_role_looks[ckpt_view_band(view, b)->role].text;
    const ckpt_font font = {view->small, false, role, 0};
    const char *const name =
        ckpt_view_keep(view, ckpt_arena_format(view->canvas.scratch, " %s ", ckpt_view_band(view, b)->name));
    const double width = ckpt_view_measure(view, font, name) + 4;
    double best = view->canvas.cell_height > 1 ? view->canvas.cell_height * 1.2 : view->small + 2;
    double best_x = -1, best_y = 0;
    for (int i = 0; i < count; i += 2) {
        double floor_y = lower[i].y, ceiling_y = upper[i].y;
        int k = i;
        while (k < count && lower[k].x < lower[i].x + width) {
            floor_y = fmin(floor_y, lower[k].y);
            ceiling_y = fmax(ceiling_y, upper[k].y);
            if (floor_y - ceiling_y <= best) {
                break;
            }
            k += 2;
        }
        const double end = k < count ? lower[k].x : lower[count - 1].x;
        if (floor_y - ceiling_y > best + 0.01 && end - lower[i].x >= width) {
            best = floor_y - ceiling_y;
            best_x = (lower[i].x + fmax(end, lower[i].x + width)) / 2;
            best_y = (floor_y + ceiling_y) / 2;
        }
    }
    if (best_x > 0) {
        ckpt_view_words_on(view, best_x, best_y, font, CKPT_ANY_WIDTH / 2, name, ckpt_view_band(view, b)->role);
    }
}

void ckpt_view_draw_stack(ckpt_view *view, ckpt_point *point, ckpt_point *lower)
{
    const ckpt_series *const base = &view->series[view->base];
    int *const event = view->event[view->base];
    /* One edge more than columns: the widths of all edges are the same because the steps are. */
    int count = step_edge(view, base, event, -1, lower);
    /* A hair of paper between bands, where the steps are wide enough to leave them their colour. */
    const bool hair = view->canvas.cell_width < 2 && count / 2 * 3 < view->columns;
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        ckpt_point *const upper = point;
        step_edge(view, base, event, b, upper);
        bool any = false;
        for (int i = 0; i < count && !any; i++) {
            any = lower[i].y - upper[i].y > 1e-9;
        }
        if (!any) {
            continue;
        }
        for (int i = 0; i < count; i++) {
            upper[count + i] = lower[count - 1 - i];
        }
        view->canvas.renderer->area(&view->canvas, upper, 2 * count, ckpt_view_band(view, b)->role);
        if (hair && b != CKPT_BAND_OUTSIDE) {
            view->canvas.renderer->line(&view->canvas, upper, count, &(ckpt_pen){CKPT_ROLE_PAPER, 0.6, 0});
        }
        memcpy(lower, upper, (size_t)count * sizeof *lower);
    }
    ckpt_view_draw_hairline(view, view->top, view->bottom);
    count = step_edge(view, base, event, -1, lower);
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        step_edge(view, base, event, b, point);
        name_band(view, b, lower, point, count);
        memcpy(lower, point, (size_t)count * sizeof *lower);
    }
}

const ckpt_pen *ckpt_view_outline(int nth)
{
    static const ckpt_pen pen[] = {{CKPT_ROLE_BLACK, 1.8, 0},     {CKPT_ROLE_STAGING, 1.8, 0},
                                   {CKPT_ROLE_RECOMPUTE, 1.8, 0}, {CKPT_ROLE_BLACK, 1.8, 5},
                                   {CKPT_ROLE_STAGING, 1.8, 5},   {CKPT_ROLE_RECOMPUTE, 1.8, 5},
                                   {CKPT_ROLE_BLACK, 1.8, 2}};
    return &pen[nth];
}

static void draw_outline(ckpt_view *view, const ckpt_point *point, int count, ckpt_pen pen)
{
    if (view->canvas.renderer->cells) {
        for (int i = 0; i < count; i += 2) { /* level pieces only: upright ones would cover whole columns */
            view->canvas.renderer->line(&view->canvas, point + i, 2, &pen);
        }
        return;
    }
    if (count * 2 > view->columns) { /* dense: a thick line would be all there is to see */
        pen.width = 1;
    } else {
        view->canvas.renderer->line(&view->canvas, point, count, &(ckpt_pen){CKPT_ROLE_PAPER, pen.width + 1.6, 0});
    }
    view->canvas.renderer->line(&view->canvas, point, count, &pen);
}

void ckpt_view_draw_outlines(ckpt_view *view, ckpt_point *point)
{
    int nth = 0;
    for (int s = 0; s < view->count; s++) {
        if (s == view->base) {
            continue;
        }
        const ckpt_pen *const pen = ckpt_view_outline(nth++);
        if (view->series[s].same && view->canvas.renderer->cells) {
            continue; /* it would only cover the stack */
        }
        int count = step_edge(view, &view->series[s], view->event[s], CKPT_BAND_OUTSIDE - 1, point);
        if (view->event[s][view->columns - 1] < 0 && count > 2) {
            count -= 2; /* it ends before the axis does */
        }
        draw_outline(view, point, count, *pen);
    }
}
