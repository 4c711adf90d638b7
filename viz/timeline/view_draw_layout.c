/* Where everything goes. Positions are on lines of text and snapped to the renderer's cells. */
#include <math.h>

#include "viz/timeline/view_draw.h"
#include "viz/timeline/view_live_set.h"

/* Ends of both axes. A budget far above everything would flatten the picture: no line; so would the device's memory. */
void ckpt_view_measure_axes(ckpt_view *view, ckpt_bytes capacity)
{
    double most = 1;
    for (int s = 0; s < view->count; s++) {
        const ckpt_series *const series = &view->series[s];
        most = fmax(most, (double)series->at_peak.planned);
        view->x_end = fmax(view->x_end, series->from[series->trace->event_count]);
        capacity = capacity > 0 ? capacity : series->trace->capacity_bytes;
    }
    view->x_end = fmax(view->x_end, 1);
    const ckpt_trace *const base = view->series[view->base].trace;
    view->budget = base->budget_bytes > 0 && (double)base->budget_bytes <= 2 * most ? base->budget_bytes : 0;
    view->y_end = fmax(fmax(most, (double)view->budget), (double)view->series[view->base].most_bytes);
    view->capacity = capacity;
    view->capacity_line = capacity > 0 && (double)capacity <= 1.5 * view->y_end;
    view->y_end = view->capacity_line ? fmax(view->y_end, (double)capacity) : view->y_end;
    const double fixed = (double)base->static_bytes;
    view->fold = fixed > view->y_end / 2 && fixed < most ? fixed : 0;
}

static double snap(double v, double cell)
{
    return round(v / cell) * cell;
}

static void lay_out_sides(ckpt_view *view)
{
    const ckpt_font font = {view->small, false, CKPT_ROLE_GREY, 1};
    view->gutter = ckpt_view_measure(view, font, "from host") + 8;
    view->gutter = fmax(view->gutter, ckpt_view_measure(view, font, "recompute") + 8);
    for (int i = 0; i < view->lane_count; i++) { /* a stream may have a long name: up to twice the room */
        const double wanted = ckpt_view_measure(view, font, view->lane[i].name) + 8;
        view->gutter = wanted > view->gutter ? fmin(wanted, 160) : view->gutter;
    }
    view->left = snap(view->margin + view->gutter, view->canvas.cell_width);
    view->right = snap(view->canvas.width - view->margin, view->canvas.cell_width);
}

/* Lines under the axis, from the bottom up. Gives their height. */
static double lay_out_tables(ckpt_view *view)
{
    const bool cells = view->canvas.renderer->cells;
    const double line = view->line, content = view->canvas.width - 2 * view->margin;
    const double table = ckpt_view_table_width(view);
    view->beside = content >= table + 24 + (cells ? 420 : 360);
    view->facts_x = view->beside ? snap(view->margin + table + 32, view->canvas.cell_width) : view->margin;
    const int rows = ckpt_view_table_rows(view);
    const int below = view->beside ? (rows > view->fact_count ? rows : view->fact_count) : rows + 1 + view->fact_count;
    const int live = view->live_set.row_count > 0 ? ckpt_view_live_set_lines(view, &view->live_set, content) + 1 : 0;
    view->live_set_y = 0;
    view->table_y = live * line;
    view->facts_y = view->table_y + (view->beside ? 0 : (rows + 1) * line);
    return (live + below) * line;
}

/* What the height leaves over goes to the map and the chart. `any_height`: nobody asked for one. */
void ckpt_view_lay_out(ckpt_view *view, bool any_height)
{
    const bool cells = view->canvas.renderer->cells;
    const double line = view->line;
    lay_out_sides(view);
    const double tables = lay_out_tables(view);
    view->lane_height = cells ? line : 13;
    view->axis_drop = cells ? line / 2 : 13;
    const double gap = cells ? 0 : 6, residual = ckpt_view_residual_height(view);
    const double map_head = view->map ? ckpt_view_map_lines(view) * line + 4 : 0;
    const double map_foot = view->map ? 10 : 0, chart_head = view->map ? line : 0;
    const double head = (cells ? 1 : 1.6) * line + view->head_count * line + (cells ? 0 : 0.6 * line);
    const double strips = gap + view->lane_count * view->lane_height + (residual > 0 ? gap + residual : 0);
    const double foot = strips + (cells ? 2 : 2.2) * line + tables;
    const double least_map = view->map ? (any_height ? 14 : 8) * line : 0;
    const double least_chart = (cells && any_height ? 16 : cells || any_height ? 12 : 9) * line;
    const double fixed = 2 * view->margin + head + map_head + map_foot + chart_head + foot;
    const double want = fixed + least_map + least_chart;
    view->canvas.height = fmax(view->canvas.height, cells ? want : ceil(want));
    const double more = view->canvas.height - want;
    view->map_y = view->margin + head;
    view->map_top = view->map_y + map_head;
    view->map_bottom = view->map_top + round(least_map + (view->map ? more / 2 : 0));
    view->chart_y = view->map_bottom + map_foot;
    view->top = view->chart_y + chart_head;
    view->bottom = snap(view->canvas.height - view->margin - foot, view->canvas.cell_height);

    /* Room over the highest bytes for the labels of peak, budget and capacity. */
    const double rows = cells ? 2.01 : view->budget > 0 || view->capacity_line ? 2.3 : 1.9;
    if (view->fold > 0) {
        view->fold_height = snap((view->bottom - view->top) * 0.3, cells ? line : 1);
    }
    const double free_height = view->bottom - view->fold_height - view->top;
    view->y_end = view->fold + (view->y_end - view->fold) * free_height / (free_height - rows * line);
    view->lanes_y = view->bottom + gap;
    view->residual_y = view->lanes_y + view->lane_count * view->lane_height + (residual > 0 ? gap : 0);
    view->residual_bottom = view->residual_y + residual;
    view->axis_y = view->bottom + strips;
    const double tables_y = view->canvas.height - view->margin - tables;
    view->live_set_y += tables_y;
    view->table_y += tables_y;
    view->facts_y += tables_y;
}
