/* The one layout of memory over time, for every renderer:
 *
 *     title, peak, verdict
 *     | stacked bands of the base trace, outlines of the others, budget line, peak
 *     lanes: what ran when
 *     axis
 *     what makes the peak (also the legend)   facts
 *
 * Everything is placed on lines of text and snapped to the renderer's cells, so that characters and pixels agree. */
#include "viz/view_draw_impl.h"

#include <math.h>
#include <string.h>

const char *ckpt_view_keep(ckpt_view *view, const char *text)
{
    view->failed = view->failed || text == NULL;
    return text != NULL ? text : "";
}

static double snap(double v, double cell)
{
    return round(v / cell) * cell;
}

void ckpt_view_box(ckpt_view *view, double x, double y, double width, double height, ckpt_ink ink)
{
    const ckpt_point corner[4] = {{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}};
    view->canvas.renderer->area(&view->canvas, corner, 4, ink);
}

void ckpt_view_line(ckpt_view *view, double x0, double y0, double x1, double y1, ckpt_pen pen)
{
    const ckpt_point end[2] = {{x0, y0}, {x1, y1}};
    view->canvas.renderer->line(&view->canvas, end, 2, &pen);
}

void ckpt_view_words(ckpt_view *view, double x, double y, ckpt_font font, double width, const char *text)
{
    text = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &font, text, width));
    view->canvas.renderer->text(&view->canvas, x, y, &font, text);
}

double ckpt_view_measure(const ckpt_view *view, ckpt_font font, const char *text)
{
    return view->canvas.renderer->measure(&view->canvas, &font, text);
}

static double plot_x(const ckpt_view *view, double at)
{
    return view->left + at / view->x_end * (view->right - view->left);
}

static double plot_y(const ckpt_view *view, double bytes)
{
    const double floor_y = view->bottom - view->fold_height;
    if (bytes <= view->fold) {
        return view->fold > 0 ? view->bottom - bytes / view->fold * view->fold_height : view->bottom;
    }
    return floor_y - (bytes - view->fold) / (view->y_end - view->fold) * (floor_y - view->top);
}

/* The edge above band `b` (b = -1: the floor) in every column, as a staircase from left to right. Gives the number of
 * points: two per stair. */
static int staircase(const ckpt_view *view, const ckpt_series *series, const int *event, int b, ckpt_point *point)
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
            ckpt_event_bands(series->trace, &series->trace->event[event[c]], &bands);
            double sum = 0;
            for (int k = 0; k <= b; k++) {
                sum += (double)bands.bytes[k];
            }
            y = plot_y(view, sum);
        }
        point[count++] = (ckpt_point){view->left + c * width, y};
        point[count++] = (ckpt_point){view->left + (c + 1) * width, y};
    }
    return count;
}

/* The name of a band inside it, where it is thickest over the width of the name: the second cue beside colour. */
static void name_band(ckpt_view *view, int b, const ckpt_point *lower, const ckpt_point *upper, int count)
{
    const ckpt_ink ink = ckpt_ink_looks[ckpt_view_band(view, b)->ink].text;
    const ckpt_font font = {view->small, false, ink, 0};
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
        ckpt_view_words(view, best_x, best_y, font, CKPT_ANY_WIDTH / 2, name);
    }
}

static void draw_stack(ckpt_view *view, ckpt_point *point, ckpt_point *lower)
{
    const ckpt_series *const base = &view->series[view->base];
    int *const event = view->event[view->base];
    /* One edge more than columns: the widths of all edges are the same because the stairs are. */
    int count = staircase(view, base, event, -1, lower);
    /* A hair of paper between bands, where the stairs are wide enough to leave them their colour. */
    const bool hair = view->canvas.cell_width < 2 && count / 2 * 3 < view->columns;
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        ckpt_point *const upper = point;
        staircase(view, base, event, b, upper);
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
        view->canvas.renderer->area(&view->canvas, upper, 2 * count, ckpt_view_band(view, b)->ink);
        if (hair && b != CKPT_BAND_OUTSIDE) {
            view->canvas.renderer->line(&view->canvas, upper, count, &(ckpt_pen){CKPT_INK_PAPER, 0.6, 0});
        }
        memcpy(lower, upper, (size_t)count * sizeof *lower);
    }
    count = staircase(view, base, event, -1, lower);
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        staircase(view, base, event, b, point);
        name_band(view, b, lower, point, count);
        memcpy(lower, point, (size_t)count * sizeof *lower);
    }
}

const ckpt_pen *ckpt_view_outline(int nth)
{
    static const ckpt_pen pen[] = {{CKPT_INK_BLACK, 1.8, 0}, {CKPT_INK_STAGING, 1.8, 0}, {CKPT_INK_RECOMPUTE, 1.8, 0},
                                   {CKPT_INK_BLACK, 1.8, 5}, {CKPT_INK_STAGING, 1.8, 5}, {CKPT_INK_RECOMPUTE, 1.8, 5},
                                   {CKPT_INK_BLACK, 1.8, 2}};
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
        view->canvas.renderer->line(&view->canvas, point, count, &(ckpt_pen){CKPT_INK_PAPER, pen.width + 1.6, 0});
    }
    view->canvas.renderer->line(&view->canvas, point, count, &pen);
}

static void draw_outlines(ckpt_view *view, ckpt_point *point)
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
        int count = staircase(view, &view->series[s], view->event[s], CKPT_BAND_OUTSIDE - 1, point);
        if (view->event[s][view->columns - 1] < 0 && count > 2) {
            count -= 2; /* it ends before the axis does */
        }
        draw_outline(view, point, count, *pen);
    }
}

static void draw_tick(ckpt_view *view, double bytes, const char *text)
{
    const ckpt_font font = {view->small, false, CKPT_INK_GREY, 1};
    const bool cells = view->canvas.renderer->cells;
    /* In a terminal the row above a height is the first that holds it. */
    const double y = plot_y(view, bytes) - (cells ? view->canvas.cell_height / 2 : 0);
    ckpt_view_words(view, view->left - 8, y, font, view->gutter, text);
    if (bytes > view->fold) {
        const double sharp = cells ? y : floor(y) + 0.5;
        ckpt_view_line(view, view->left, sharp, view->right, sharp, (ckpt_pen){CKPT_INK_FAINT, 1, 0});
    }
}

static void draw_grid(ckpt_view *view)
{
    const double height = view->bottom - view->fold_height - view->top;
    const double row = view->canvas.renderer->cells ? view->canvas.cell_height : 0;
    const int parts = (int)fmax(2, fmin(8, height / (1.8 * view->line)));
    const double step = ckpt_tick_step(view->y_end - view->fold, parts, 1);
    const double lowest = plot_y(view, view->fold) - (view->fold > 0 ? view->line : 0);
    char text[CKPT_UNITS_TEXT];
    draw_tick(view, 0, "0");
    if (view->fold > 0) {
        draw_tick(view, view->fold, ckpt_bytes_show((ckpt_bytes)view->fold, text));
    }
    for (double tick = ceil(view->fold / step) * step; tick <= view->y_end; tick += step) {
        const double y = plot_y(view, tick);
        if (tick > 0 && y <= lowest && y >= view->top + row - 0.01) {
            draw_tick(view, tick, ckpt_tick_bytes(tick, step, view->y_end, text));
        }
    }
}

/* The mark of an axis that is not to scale below it. */
static void draw_fold(ckpt_view *view)
{
    if (view->fold > 0) {
        const bool cells = view->canvas.renderer->cells;
        const double x = view->left - view->canvas.cell_width / 2;
        const double y = plot_y(view, view->fold) + view->fold_height * (cells ? 0.5 : 0.12);
        for (int i = 0; i < 2 && !cells; i++) {
            ckpt_view_line(view, x - 5, y + 4 + 4 * i, x + 5, y - 1 + 4 * i, (ckpt_pen){CKPT_INK_PAPER, 3, 0});
            ckpt_view_line(view, x - 5, y + 4 + 4 * i, x + 5, y - 1 + 4 * i, (ckpt_pen){CKPT_INK_BLACK, 1.2, 0});
        }
        const ckpt_font font = {view->small, false, CKPT_INK_BLACK, 1};
        ckpt_view_words(view, view->right - view->canvas.cell_width * (cells ? 0 : 6),
                        plot_y(view, view->fold) + view->fold_height / 2, font, CKPT_ANY_WIDTH / 2,
                        cells ? " static block, not to scale " : "static block, not to scale");
        if (cells) {
            ckpt_view_words(view, x, y, (ckpt_font){view->small, true, CKPT_INK_BLACK, 0}, CKPT_ANY_WIDTH / 2, "≈");
        }
    }
}

static void draw_axis(ckpt_view *view, double y)
{
    const double half = view->canvas.cell_width / 2;
    ckpt_view_line(view, view->left - half, view->top, view->left - half, view->bottom,
                   (ckpt_pen){CKPT_INK_GREY, 1, 0});
    if (!view->canvas.renderer->cells) {
        ckpt_view_line(view, view->left - half, view->bottom + half, view->right, view->bottom + half,
                       (ckpt_pen){CKPT_INK_GREY, 1, 0});
    }
    const ckpt_font font = {view->small, false, CKPT_INK_GREY, 0};
    const int parts = (int)fmax(2, fmin(12, (view->right - view->left) / 70));
    const double step = ckpt_tick_step(view->x_end, parts, 1);
    double clear = -1;
    for (int i = 0; i * step <= view->x_end * (1 + 1e-9); i++) {
        char text[CKPT_UNITS_TEXT];
        if (view->time_axis) {
            ckpt_tick_ns(i * step, step, view->x_end, text);
        } else {
            ckpt_tick_bytes(i * step, step, 1, text);
            text[strcspn(text, " ")] = '\0'; /* steps have no unit */
        }
        const double x = plot_x(view, i * step), width = ckpt_view_measure(view, font, text);
        const double middle = fmin(x, view->canvas.width - view->margin - width / 2);
        if (middle - width / 2 < clear) {
            continue;
        }
        clear = middle + width / 2 + 6;
        if (view->canvas.cell_width < 2) {
            ckpt_view_line(view, floor(x) + 0.5, y, floor(x) + 0.5, y + 4, (ckpt_pen){CKPT_INK_GREY, 1, 0});
        }
        ckpt_view_words(view, middle, y + view->axis_drop, font, CKPT_ANY_WIDTH / 2, text);
    }
    const ckpt_font name = {view->small, false, CKPT_INK_GREY, 1};
    ckpt_view_words(view, view->left - 8, y + view->axis_drop, name, view->gutter,
                    view->time_axis ? "time" : ckpt_view_unit(view));
}

/* The budget's line with its label, and the peak of the base with its label where neither hides the other. */
static void draw_marks(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const ckpt_font bold = {view->small, true, CKPT_INK_BLACK, 0};
    char bytes[CKPT_UNITS_TEXT];
    const char *const peak = CKPT_SAY(view, "peak %s", ckpt_bytes_show(base->at_peak.planned, bytes));
    const double width = ckpt_view_measure(view, bold, peak);
    /* The middle of the columns that show the peak. */
    int first = -1, last = -1;
    for (int c = 0; c < view->columns; c++) {
        if (view->event[view->base][c] == base->peak) {
            first = first < 0 ? c : first;
            last = c;
        }
    }
    const double column = (view->right - view->left) / view->columns;
    const double x = view->left + (first + last + 1) / 2.0 * column;
    const double y = plot_y(view, (double)base->at_peak.planned);
    const double middle = fmin(fmax(x, view->left + width / 2 + 2), view->right - width / 2 - 2);
    double label_y = y - (view->canvas.cell_height > 1 ? 1.5 : 1.35) * view->line;
    if (view->budget > 0) {
        const double line_y = plot_y(view, (double)view->budget);
        const char *const name = CKPT_SAY(view, "budget %s", ckpt_bytes_show(view->budget, bytes));
        const double name_width = ckpt_view_measure(view, bold, name);
        const double at = view->canvas.cell_height > 1 ? line_y - view->canvas.cell_height / 2 : round(line_y);
        ckpt_view_line(view, view->left, at, view->right, at, (ckpt_pen){CKPT_INK_BUDGET, 1.6, 7});
        label_y = line_y < y + 1 && line_y > label_y - view->line ? at - view->line : label_y;
        const bool right = middle + width / 2 + 12 < view->right - name_width || label_y < at - 1.6 * view->line ||
                           label_y > at + view->line;
        const ckpt_font font = {view->small, true, CKPT_INK_BLACK, right ? 1 : -1};
        ckpt_view_words(view, right ? view->right : view->left + 6, at - 0.62 * view->line, font, CKPT_ANY_WIDTH / 2,
                        name);
    }
    const ckpt_font arrow = {view->small, false, CKPT_INK_BLACK, 0};
    ckpt_view_words(view, x, y - 0.5 * view->line, arrow, CKPT_ANY_WIDTH / 2, "▼");
    ckpt_view_words(view, middle, label_y, bold, CKPT_ANY_WIDTH / 2, peak);
}

static ckpt_code fill_columns(ckpt_view *view, ckpt_err *err)
{
    view->columns = (int)((view->right - view->left) / view->canvas.cell_width);
    ckpt_bytes *const most = CKPT_NEW(view->canvas.scratch, ckpt_bytes, view->columns);
    bool enough = most != NULL;
    for (int s = 0; s < view->count && enough; s++) {
        view->event[s] = CKPT_NEW(view->canvas.scratch, int, view->columns);
        enough = view->event[s] != NULL;
        if (enough) {
            ckpt_series_columns(&view->series[s], view->x_end, view->columns, view->event[s], most);
        }
    }
    return enough ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d columns", view->columns);
}

/* Ends of both axes. A budget far above everything would flatten the picture: no line. */
static void measure_axes(ckpt_view *view)
{
    double most = 1;
    for (int s = 0; s < view->count; s++) {
        const ckpt_series *const series = &view->series[s];
        most = fmax(most, (double)series->at_peak.planned);
        view->x_end = fmax(view->x_end, series->from[series->trace->event_count]);
    }
    view->x_end = fmax(view->x_end, 1);
    const ckpt_trace *const base = view->series[view->base].trace;
    view->budget = base->budget_bytes > 0 && (double)base->budget_bytes <= 2 * most ? base->budget_bytes : 0;
    view->y_end = fmax(fmax(most, (double)view->budget), (double)view->series[view->base].most_bytes);
    const double fixed = (double)base->static_bytes;
    view->fold = fixed > view->y_end / 2 && fixed < most ? fixed : 0;
}

/* Positions from the top; what the height leaves over is the plot's. */
static void lay_out(ckpt_view *view)
{
    const bool cells = view->canvas.renderer->cells;
    const double line = view->line;
    const ckpt_font font = {view->small, false, CKPT_INK_GREY, 1};
    const double content = view->canvas.width - 2 * view->margin;
    view->gutter = ckpt_view_measure(view, font, "recompute") + 8;
    for (int i = 0; i < view->lane_count; i++) { /* a stream may have a long name: up to twice the room */
        const double wanted = ckpt_view_measure(view, font, view->lane[i].name) + 8;
        view->gutter = wanted > view->gutter ? fmin(wanted, 160) : view->gutter;
    }
    view->left = snap(view->margin + view->gutter, view->canvas.cell_width);
    view->right = snap(view->canvas.width - view->margin, view->canvas.cell_width);
    const double table = ckpt_view_table_width(view);
    view->beside = content >= table + 24 + (cells ? 420 : 360);
    view->facts_x = view->beside ? snap(view->margin + table + 32, view->canvas.cell_width) : view->margin;
    const int table_rows = ckpt_view_table_rows(view);
    const int below = view->beside ? (table_rows > view->fact_count ? table_rows : view->fact_count)
                                   : table_rows + 1 + view->fact_count;
    const int lanes = view->lane_count;
    view->lane_height = cells ? line : 13;
    view->axis_drop = cells ? line / 2 : 13;
    const double head = (cells ? 1 : 1.6) * line + view->head_count * line + (cells ? 0 : 0.6 * line);
    const double foot = (cells ? 0 : 6) + lanes * view->lane_height + (cells ? 2 : 2.2) * line + below * line;
    view->top = view->margin + head;
    const double least = (cells ? 12 : 9) * line;
    const double want = view->top + least + foot + view->margin;
    view->canvas.height = fmax(view->canvas.height, cells ? want : ceil(want));
    view->bottom = snap(view->canvas.height - view->margin - foot, view->canvas.cell_height);
    /* Room over the highest bytes for the labels of peak and budget. */
    const double rows = cells ? 2.01 : view->budget > 0 ? 2.3 : 1.9;
    if (view->fold > 0) {
        view->fold_height = snap((view->bottom - view->top) * 0.3, cells ? line : 1);
    }
    const double free_height = view->bottom - view->fold_height - view->top;
    view->y_end = view->fold + (view->y_end - view->fold) * free_height / (free_height - rows * line);
    view->lanes_y = view->bottom + (cells ? 0 : 6);
    view->axis_y = view->lanes_y + lanes * view->lane_height;
    view->table_y = view->canvas.height - view->margin - below * line;
    view->facts_y = view->beside ? view->table_y : view->table_y + (table_rows + 1) * line;
}

static void draw_head(ckpt_view *view)
{
    const bool cells = view->canvas.renderer->cells;
    const double content = view->canvas.width - 2 * view->margin;
    double y = view->margin + (cells ? 0.5 : 0.6) * view->line;
    const ckpt_font title = {cells ? view->small : 17, true, CKPT_INK_BLACK, -1};
    ckpt_view_words(view, view->margin, y, title, content, view->title);
    y += (cells ? 1 : 1.4) * view->line;
    for (int i = 0; i < view->head_count; i++) {
        const ckpt_font font = {12.5, false, i == 0 ? CKPT_INK_GREY : CKPT_INK_BLACK, -1};
        ckpt_view_words(view, view->margin, y, font, content, view->head[i]);
        y += view->line;
    }
}

static ckpt_code draw(ckpt_view *view, ckpt_text *text, ckpt_err *err)
{
    const ckpt_font any = {12, false, CKPT_INK_BLACK, -1};
    const char *const title = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &any, view->title, CKPT_ANY_WIDTH));
    const char *const about = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &any, view->about, CKPT_ANY_WIDTH));
    CKPT_TRY(view->canvas.renderer->open(&view->canvas, title, about, err));
    ckpt_code code = fill_columns(view, err);
    ckpt_point *const point =
        code == CKPT_OK ? CKPT_NEW(view->canvas.scratch, ckpt_point, 4 * view->columns + 4) : NULL;
    ckpt_point *const lower =
        code == CKPT_OK ? CKPT_NEW(view->canvas.scratch, ckpt_point, 2 * view->columns + 4) : NULL;
    if (point != NULL && lower != NULL) {
        draw_head(view);
        draw_grid(view);
        draw_stack(view, point, lower);
        draw_outlines(view, point);
        draw_marks(view);
        ckpt_view_draw_lanes(view, view->lanes_y);
        draw_axis(view, view->axis_y);
        draw_fold(view);
        ckpt_view_draw_table(view);
        ckpt_view_draw_facts(view);
    }
    if (code == CKPT_OK && (point == NULL || lower == NULL || view->failed)) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's points and words");
    }
    const ckpt_code closed = view->canvas.renderer->close(&view->canvas, code == CKPT_OK ? text : NULL, err);
    return code != CKPT_OK ? code : closed;
}

static bool all_without_plan(const ckpt_trace *const *trace, int count)
{
    bool all = true;
    for (int i = 0; i < count; i++) {
        all = all && ckpt_trace_follows_no_plan(trace[i]);
    }
    return all;
}

ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                         const ckpt_view_options *options, ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_options defaults;
    options = options != NULL ? options : &defaults;
    const ckpt_renderer *const renderer = ckpt_renderer_find(format);
    if (renderer == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found format \"%s\", wanted one of %s", format, ckpt_renderer_names());
    }
    if (trace_count < 1 || trace_count > CKPT_VIEW_TRACES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d traces, wanted 1 to %d", trace_count, CKPT_VIEW_TRACES);
    }
    if (options->width < 0 || options->height < 0 || options->width > CKPT_VIEW_LARGEST ||
        options->height > CKPT_VIEW_LARGEST) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a picture of %d x %d, wanted at most %d each way", options->width,
                         options->height, CKPT_VIEW_LARGEST);
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const bool cells = renderer->cells;
    ckpt_view view = {
        .canvas = {.renderer = renderer, .color = options->color, .ascii = options->ascii, .scratch = &scratch},
        .count = trace_count,
        .time_axis = options->time_axis || (!options->step_axis && all_without_plan(trace, trace_count)),
        .line = cells ? 16 : 18,
        .small = 12,
        .margin = cells ? 0 : 16,
    };
    view.canvas.cell_width = cells ? 8 : 1;
    view.canvas.cell_height = cells ? 16 : 1;
    const int width = options->width > 0 ? options->width : renderer->width;
    const int height = options->height > 0 ? options->height : renderer->height;
    view.canvas.width = fmax(cells ? 72 : 560, width) * view.canvas.cell_width;
    view.canvas.height = height * view.canvas.cell_height;
    ckpt_code code = ckpt_series_make(trace, trace_count, view.time_axis, &scratch, view.series, &view.base, err);
    if (code == CKPT_OK) {
        measure_axes(&view);
        view.no_plan = ckpt_trace_follows_no_plan(view.series[view.base].trace);
        code = ckpt_view_find_lanes(&view, err);
    }
    if (code == CKPT_OK) {
        ckpt_view_say(&view);
        code = view.failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's words") : CKPT_OK;
    }
    if (code == CKPT_OK) {
        lay_out(&view);
        code = draw(&view, text, err);
    }
    ckpt_arena_fini(&scratch);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
