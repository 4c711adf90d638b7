/* The one layout of memory over time, for every renderer:
 *
 *     title, peak, verdict
 *     the arena by address: a box for every live range            (view_map.c; not in a terminal)
 *     | stacked bands of the base trace, outlines of the others, budget, capacity, peak
 *     lanes: what ran when
 *     residual: measured less predicted
 *     axis
 *     what is live at the peak and why
 *     what makes the peak by category   facts
 *
 * All panels share the axis; a hairline marks the peak in each. */
#include <math.h>

#include "viz/timeline/view_draw.h"
#include "viz/timeline/view_live_set.h"

ckpt_code ckpt_view_init(ckpt_view *view, const char *format, const ckpt_view_options *options,
                         const ckpt_view_size *size, ckpt_arena *scratch, ckpt_err *err)
{
    static const ckpt_view_options defaults;
    options = options != NULL ? options : &defaults;
    const ckpt_renderer *const renderer = ckpt_renderer_find(format);
    if (renderer == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found format \"%s\", wanted one of %s", format, ckpt_renderer_names());
    }
    if (options->width < 0 || options->height < 0 || options->width > CKPT_VIEW_LARGEST ||
        options->height > CKPT_VIEW_LARGEST) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a picture of %d x %d, wanted at most %d each way", options->width,
                         options->height, CKPT_VIEW_LARGEST);
    }
    const bool cells = renderer->cells;
    *view = (ckpt_view){.canvas = {.renderer = renderer,
                                   .color = options->color,
                                   .ascii = options->ascii,
                                   .scratch = scratch,
                                   .cell_width = cells ? 8 : 1,
                                   .cell_height = cells ? 16 : 1},
                        .line = cells ? 16 : 18,
                        .small = 12,
                        .margin = cells ? 0 : 16,
                        .title = "",
                        .about = ""};
    const int width = options->width > 0 ? options->width : cells ? renderer->width : size->width;
    const int height = options->height > 0 ? options->height : cells ? size->rows : size->height;
    view->canvas.width = fmax(cells ? 40 : size->least_width, width) * view->canvas.cell_width;
    view->canvas.height = fmax(cells ? size->least_rows : size->least_height, height) * view->canvas.cell_height;
    return CKPT_OK;
}

ckpt_code ckpt_view_draw_with(ckpt_view *view, void (*draw)(void *picture), void *picture, ckpt_text *text,
                              ckpt_err *err)
{
    ckpt_canvas *const canvas = &view->canvas;
    const ckpt_font any = {12, false, CKPT_ROLE_BLACK, -1};
    const char *const title = ckpt_view_keep(view, ckpt_canvas_fit(canvas, &any, view->title, CKPT_ANY_WIDTH));
    const char *const about = ckpt_view_keep(view, ckpt_canvas_fit(canvas, &any, view->about, CKPT_ANY_WIDTH));
    CKPT_TRY(canvas->renderer->open(canvas, title, about, err));
    draw(picture);
    const ckpt_code code =
        view->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's points and words") : CKPT_OK;
    const ckpt_code closed = canvas->renderer->close(canvas, code == CKPT_OK ? text : NULL, err);
    return code != CKPT_OK ? code : closed;
}

const char *ckpt_view_keep(ckpt_view *view, const char *text)
{
    view->failed = view->failed || text == NULL;
    return text != NULL ? text : "";
}

void ckpt_view_box(ckpt_view *view, double x, double y, double width, double height, ckpt_colour_role role)
{
    const ckpt_point corner[4] = {{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}};
    view->canvas.renderer->area(&view->canvas, corner, 4, role);
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

/* A thick line, because areas may be hatched. */
void ckpt_view_words_on(ckpt_view *view, double x, double y, ckpt_font font, double width, const char *text,
                        ckpt_colour_role back)
{
    text = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &font, text, width));
    if (!view->canvas.renderer->cells && text[0] != '\0') {
        const double wide = ckpt_view_measure(view, font, text), from = x - (font.align + 1) / 2.0 * wide;
        ckpt_view_line(view, from - 2, y, from + wide + 2, y, (ckpt_pen){back, font.size + 1, 0});
    }
    view->canvas.renderer->text(&view->canvas, x, y, &font, text);
}

/* Names come as they are in files, and Cairo refuses what is no UTF-8. */
double ckpt_view_measure(const ckpt_view *view, ckpt_font font, const char *text)
{
    const char *end = text;
    for (int bytes = 1; bytes > 0 && *end != '\0'; end += bytes) {
        bytes = ckpt_utf8_length(end);
    }
    if (*end != '\0') {
        text = ckpt_canvas_fit(&view->canvas, &font, text, CKPT_ANY_WIDTH);
        text = text != NULL ? text : "";
    }
    return view->canvas.renderer->measure(&view->canvas, &font, text);
}

double ckpt_view_x(const ckpt_view *view, double at)
{
    return view->left + at / view->x_end * (view->right - view->left);
}

const ckpt_series *ckpt_view_other(const ckpt_view *view)
{
    return view->count > 1 ? &view->series[view->base == 0 ? 1 : 0] : NULL;
}

static bool fill_columns(ckpt_view *view)
{
    view->columns = (int)((view->right - view->left) / view->canvas.cell_width);
    ckpt_bytes *const most = CKPT_NEW(view->canvas.scratch, ckpt_bytes, view->columns);
    for (int s = 0; s < view->count && most != NULL; s++) {
        view->event[s] = CKPT_NEW(view->canvas.scratch, int, view->columns);
        if (view->event[s] == NULL) {
            return false;
        }
        ckpt_series_columns(&view->series[s], view->x_end, view->columns, view->event[s], most);
    }
    return most != NULL;
}

static void draw_head(ckpt_view *view)
{
    const bool cells = view->canvas.renderer->cells;
    const double content = view->canvas.width - 2 * view->margin;
    double y = view->margin + (cells ? 0.5 : 0.6) * view->line;
    ckpt_view_words(view, view->margin, y, ckpt_view_title_font(view), content, view->title);
    y += (cells ? 1 : 1.4) * view->line;
    for (int i = 0; i < view->head_count; i++) {
        const ckpt_font font = {12.5, false, i == 0 ? CKPT_ROLE_GREY : CKPT_ROLE_BLACK, -1};
        ckpt_view_words(view, view->margin, y, font, content, view->head[i]);
        y += view->line;
    }
}

static void draw(void *picture)
{
    ckpt_view *const view = picture;
    const bool filled = fill_columns(view);
    ckpt_point *const point = CKPT_NEW(view->canvas.scratch, ckpt_point, 4 * view->columns + 4);
    ckpt_point *const lower = CKPT_NEW(view->canvas.scratch, ckpt_point, 2 * view->columns + 4);
    if (!filled || point == NULL || lower == NULL) {
        view->failed = true;
        return;
    }
    draw_head(view);
    if (view->map) {
        ckpt_view_draw_map(view);
    }
    ckpt_view_draw_grid(view);
    ckpt_view_draw_stack(view, point, lower);
    ckpt_view_draw_outlines(view, point);
    ckpt_view_draw_lanes(view, view->lanes_y);
    ckpt_view_draw_hairline(view, view->bottom, fmax(view->bottom, view->axis_y));
    ckpt_view_draw_residual(view);
    ckpt_view_draw_marks(view);
    ckpt_view_draw_axis(view, view->axis_y);
    ckpt_view_draw_fold(view);
    if (view->live_set.row_count > 0) {
        ckpt_view_draw_live_set(view, &view->live_set, view->series[view->base].at_peak.planned, view->margin,
                                view->live_set_y, view->canvas.width - 2 * view->margin);
    }
    ckpt_view_draw_table(view);
    ckpt_view_draw_facts(view);
}

/* Whether all traces are of programs without a plan, and whether all know times: one axis is for all, and a plan without
 * times beside a measured trace would stand on its first moment. */
static void look_at(const ckpt_trace *const *trace, int count, bool *no_plans, bool *timed)
{
    *no_plans = *timed = true;
    for (int i = 0; i < count; i++) {
        bool times = false;
        for (int e = 0; e < trace[i]->event_count && !times; e++) {
            times = trace[i]->event[e].end_ns > 0;
        }
        *no_plans = *no_plans && ckpt_trace_follows_no_plan(trace[i]);
        *timed = *timed && times;
    }
}

/* All that is drawn, before it has a place. */
static ckpt_code prepare(ckpt_view *view, const ckpt_trace *const *trace, ckpt_bytes capacity, ckpt_err *err)
{
    enum { ROWS = 10, TERMINAL_ROWS = 8 };
    ckpt_arena *const scratch = view->canvas.scratch;
    const bool cells = view->canvas.renderer->cells;
    CKPT_TRY(ckpt_series_make(trace, view->count, view->time_axis, scratch, view->series, &view->base, err));
    const ckpt_series *const base = &view->series[view->base];
    view->no_plan = ckpt_trace_follows_no_plan(base->trace);
    ckpt_view_measure_axes(view, capacity);
    view->ranges = base->ranges;
    if (view->ranges.count > 0) {
        CKPT_TRY(
            ckpt_live_set_make(&view->ranges, base->peak, cells ? TERMINAL_ROWS : ROWS, scratch, &view->live_set, err));
        view->map = !cells;
        view->map_end = view->ranges.top > base->trace->arena_bytes ? view->ranges.top : base->trace->arena_bytes;
        view->map_end = view->map_end > 0 ? view->map_end : 1;
    }
    CKPT_TRY(ckpt_view_find_lanes(view, err));
    CKPT_TRY(ckpt_view_find_residual(view, err));
    ckpt_view_say(view);
    return view->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's words") : CKPT_OK;
}

ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                         const ckpt_view_options *options, ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_options defaults;
    static const ckpt_view_size size = {.width = 960, .height = 640, .rows = 46, .least_width = 560};
    options = options != NULL ? options : &defaults;
    ckpt_view view;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    CKPT_TRY(ckpt_view_init(&view, format, options, &size, &scratch, err));
    if (trace_count < 1 || trace_count > CKPT_VIEW_TRACES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d traces, wanted 1 to %d", trace_count, CKPT_VIEW_TRACES);
    }
    bool no_plans, timed;
    look_at(trace, trace_count, &no_plans, &timed);
    const bool time_axis = options->time_axis || (!options->step_axis && no_plans);
    view.count = trace_count;
    view.time_axis = time_axis && timed;
    view.no_time = time_axis && !timed;
    ckpt_code code = prepare(&view, trace, options->capacity_bytes, err);
    if (code == CKPT_OK) {
        ckpt_view_lay_out(&view, options->height == 0);
        code = ckpt_view_draw_with(&view, draw, &view, text, err);
    }
    ckpt_arena_fini(&scratch);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
