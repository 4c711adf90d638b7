/* The chart's grid and axes, and the lines that cross it: budget, capacity, peak. */
#include <math.h>
#include <string.h>

#include "viz/timeline/view_draw.h"

double ckpt_view_y(const ckpt_view *view, double bytes)
{
    const double floor_y = view->bottom - view->fold_height;
    if (bytes <= view->fold) {
        return view->fold > 0 ? view->bottom - bytes / view->fold * view->fold_height : view->bottom;
    }
    return floor_y - (bytes - view->fold) / (view->y_end - view->fold) * (floor_y - view->top);
}

static void draw_tick(ckpt_view *view, double bytes, const char *text)
{
    const ckpt_font font = {view->small, false, CKPT_ROLE_GREY, 1};
    const bool cells = view->canvas.renderer->cells;
    /* In a terminal the row above a height is the first that holds it. */
    const double y = ckpt_view_y(view, bytes) - (cells ? view->canvas.cell_height / 2 : 0);
    ckpt_view_words(view, view->left - 8, y, font, view->gutter, text);
    if (bytes > view->fold) {
        const double sharp = cells ? y : floor(y) + 0.5;
        ckpt_view_line(view, view->left, sharp, view->right, sharp, (ckpt_pen){CKPT_ROLE_FAINT, 1, 0});
    }
}

void ckpt_view_draw_grid(ckpt_view *view)
{
    const double height = view->bottom - view->fold_height - view->top;
    const double row = view->canvas.renderer->cells ? view->canvas.cell_height : 0;
    const int parts = (int)fmax(2, fmin(8, height / (1.8 * view->line)));
    const double step = ckpt_tick_step(view->y_end - view->fold, parts, 1);
    const double lowest = ckpt_view_y(view, view->fold) - (view->fold > 0 ? view->line : 0);
    char text[CKPT_UNITS_TEXT];
    draw_tick(view, 0, "0");
    if (view->fold > 0) {
        draw_tick(view, view->fold, ckpt_bytes_show((ckpt_bytes)view->fold, text));
    }
    const double first = ceil(view->fold / step) * step;
    for (int i = 0; i <= parts; i++) { /* counted: beside a large fold a step may be less than a double can tell */
        const double tick = first + i * step, y = ckpt_view_y(view, tick);
        if (tick > 0 && tick <= view->y_end && y <= lowest && y >= view->top + row - 0.01) {
            draw_tick(view, tick, ckpt_tick_bytes(tick, step, view->y_end, text));
        }
    }
}

/* The mark of an axis that is not to scale below it. */
void ckpt_view_draw_fold(ckpt_view *view)
{
    if (view->fold > 0) {
        const bool cells = view->canvas.renderer->cells;
        const double x = view->left - view->canvas.cell_width / 2;
        const double y = ckpt_view_y(view, view->fold) + view->fold_height * (cells ? 0.5 : 0.12);
        for (int i = 0; i < 2 && !cells; i++) {
            ckpt_view_line(view, x - 5, y + 4 + 4 * i, x + 5, y - 1 + 4 * i, (ckpt_pen){CKPT_ROLE_PAPER, 3, 0});
            ckpt_view_line(view, x - 5, y + 4 + 4 * i, x + 5, y - 1 + 4 * i, (ckpt_pen){CKPT_ROLE_BLACK, 1.2, 0});
        }
        const ckpt_font font = {view->small, false, CKPT_ROLE_BLACK, 1};
        ckpt_view_words(view, view->right - view->canvas.cell_width * (cells ? 0 : 6),
                        ckpt_view_y(view, view->fold) + view->fold_height / 2, font, CKPT_ANY_WIDTH / 2,
                        cells ? " static block, not to scale " : "static block, not to scale");
        if (cells) {
            ckpt_view_words(view, x, y, (ckpt_font){view->small, true, CKPT_ROLE_BLACK, 0}, CKPT_ANY_WIDTH / 2, "≈");
        }
    }
}

void ckpt_view_draw_ticks(ckpt_view *view, double y, double apart)
{
    const ckpt_font font = {view->small, false, CKPT_ROLE_GREY, 0};
    const int parts = (int)fmax(2, fmin(12, (view->right - view->left) / apart));
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
        const double x = ckpt_view_x(view, i * step), width = ckpt_view_measure(view, font, text);
        const double middle = fmin(x, view->canvas.width - view->margin - width / 2);
        if (middle - width / 2 < clear) {
            continue;
        }
        clear = middle + width / 2 + 6;
        if (view->canvas.cell_width < 2) {
            ckpt_view_line(view, floor(x) + 0.5, y, floor(x) + 0.5, y + 4, (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
        }
        ckpt_view_words(view, middle, y + view->axis_drop, font, CKPT_ANY_WIDTH / 2, text);
    }
}

void ckpt_view_draw_axis(ckpt_view *view, double y)
{
    const double half = view->canvas.cell_width / 2;
    const ckpt_pen grey = {CKPT_ROLE_GREY, 1, 0};
    ckpt_view_line(view, view->left - half, view->top, view->left - half, view->bottom, grey);
    if (!view->canvas.renderer->cells) {
        ckpt_view_line(view, view->left - half, view->bottom + half, view->right, view->bottom + half, grey);
    }
    ckpt_view_draw_ticks(view, y, 70);
    const ckpt_font name = {view->small, false, CKPT_ROLE_GREY, 1};
    ckpt_view_words(view, view->left - 8, y + view->axis_drop, name, view->gutter,
                    view->time_axis                    ? "time"
                    : view->series[view->base].by_step ? ckpt_view_unit(view)
                                                       : "event");
}

/* The middle of the columns that show the peak of the base. */
static double peak_x(const ckpt_view *view)
{
    int first = -1, last = -1;
    for (int c = 0; c < view->columns; c++) {
        if (view->event[view->base][c] == view->series[view->base].peak) {
            first = first < 0 ? c : first;
            last = c;
        }
    }
    return view->left + (first + last + 1) / 2.0 * (view->right - view->left) / view->columns;
}

/* Black on paper, one pixel wide: wider it would hide a step that is no wider, and that is the peak's. */
void ckpt_view_draw_hairline(ckpt_view *view, double from, double to)
{
    if (!view->canvas.renderer->cells) {
        const double x = floor(peak_x(view)) + 0.5;
        ckpt_view_line(view, x, from, x, to, (ckpt_pen){CKPT_ROLE_PAPER, 1, 0});
        ckpt_view_line(view, x, from, x, to, (ckpt_pen){CKPT_ROLE_BLACK, 1, 4});
    }
}

/* Labels that stand already, and lines over the whole width: the next label looks for a place beside them. */
typedef struct labels {
    double left[6], right[6], y[6];
    int count;
} labels;

static bool is_free(const ckpt_view *view, const labels *there, double left, double right, double y)
{
    const double half = view->canvas.renderer->cells ? view->line / 2 : 0.4 * view->line;
    const double minimum = view->canvas.renderer->cells ? 0.95 * view->line : 0.6 * view->line;
    bool is = y - half >= view->top - 1 && y + half <= view->bottom;
    for (int i = 0; i < there->count; i++) {
        is = is && (right + 8 < there->left[i] || left - 8 > there->right[i] || fabs(y - there->y[i]) >= minimum);
    }
    return is;
}

static void put_label(ckpt_view *view, labels *there, double x, double y, int align, const char *text)
{
    const ckpt_font font = {view->small, true, CKPT_ROLE_BLACK, align};
    const double width = ckpt_view_measure(view, font, text), left = x - (align + 1) / 2.0 * width;
    there->left[there->count] = left;
    there->right[there->count] = left + width;
    there->y[there->count++] = y;
    ckpt_view_words_on(view, x, y, font, CKPT_ANY_WIDTH / 2, text, CKPT_ROLE_PAPER);
}

/* A level line over the whole width: where it is drawn. */
static double draw_level(ckpt_view *view, labels *there, ckpt_bytes bytes, ckpt_pen pen)
{
    const double y = ckpt_view_y(view, (double)bytes);
    const double at = view->canvas.cell_height > 1 ? y - view->canvas.cell_height / 2 : round(y);
    ckpt_view_line(view, view->left, at, view->right, at, pen);
    there->left[there->count] = view->left;
    there->right[there->count] = view->right;
    there->y[there->count++] = at;
    return at;
}

/* Above the line at its right or left end, or below it; where all that is taken, above on the right. */
static void label_level(ckpt_view *view, labels *there, double at, const char *text)
{
    const ckpt_font font = {view->small, true, CKPT_ROLE_BLACK, 1};
    const double width = ckpt_view_measure(view, font, text),
                 far = (view->canvas.renderer->cells ? 1 : 0.62) * view->line;
    for (int i = 0; i < 4; i++) {
        const double y = i < 2 ? at - far : at + far;
        const double left = i % 2 == 0 ? view->right - width : view->left + 6;
        if (is_free(view, there, left, left + width, y)) {
            put_label(view, there, left, y, -1, text);
            return;
        }
    }
    put_label(view, there, view->right, at - far, 1, text);
}

/* Budget and capacity as lines, and the peak of the base, with labels where none hides another. */
void ckpt_view_draw_marks(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base];
    const ckpt_font bold = {view->small, true, CKPT_ROLE_BLACK, 0};
    const char *const peak = CKPT_SAY(view, "peak %s", ckpt_view_bytes(view, base->at_peak.planned));
    const double width = ckpt_view_measure(view, bold, peak), x = peak_x(view);
    const double y = ckpt_view_y(view, (double)base->at_peak.planned);
    const double middle = fmin(fmax(x, view->left + width / 2 + 2), view->right - width / 2 - 2);
    const bool cells = view->canvas.cell_height > 1;
    double level[2] = {0, 0};
    labels there = {.count = 0};
    if (view->capacity_line) {
        level[1] = draw_level(view, &there, view->capacity, (ckpt_pen){CKPT_ROLE_CAPACITY, 1.6, 2});
    }
    if (view->budget > 0) {
        level[0] = draw_level(view, &there, view->budget, (ckpt_pen){CKPT_ROLE_BUDGET, 1.6, 7});
    }
    double label_y = y - (cells ? 1.5 : 1.35) * view->line;
    for (int i = 0; i < 2; i++) { /* above a line that would cross it */
        const bool crosses = level[i] > 0 && level[i] < y + 1 && level[i] > label_y - view->line;
        label_y = crosses ? level[i] - view->line : label_y;
    }
    label_y = fmax(label_y, view->top + (cells ? 0.5 : 0.4) * view->line);
    const ckpt_font arrow = {view->small, false, CKPT_ROLE_BLACK, 0};
    ckpt_view_words(view, x, y - 0.5 * view->line, arrow, CKPT_ANY_WIDTH / 2, "▼");
    put_label(view, &there, middle, label_y, 0, peak);
    if (view->budget > 0) {
        label_level(view, &there, level[0], CKPT_SAY(view, "budget %s", ckpt_view_bytes(view, view->budget)));
    }
    if (view->capacity_line) {
        label_level(view, &there, level[1], CKPT_SAY(view, "device %s", ckpt_view_bytes(view, view->capacity)));
    }
}
