/* The one layout of memory over time, for every renderer:
 *
 *     title, peak, verdict
 *     the arena by address: a box for every stay                  (view_map.c; not in a terminal)
 *     | stacked bands of the base trace, outlines of the others, budget, capacity, peak
 *     lanes: what ran when
 *     residual: measured less predicted
 *     axis
 *     what is alive at the peak and why
 *     what makes the peak by category   facts
 *
 * All panels share the axis; a hairline marks the peak in each. */
#include <math.h>

#include "viz/timeline/view_alive.h"
#include "viz/timeline/view_draw.h"

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

static void draw_parts(ckpt_view *view, ckpt_point *point, ckpt_point *lower)
{
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
    if (view->alive.row_count > 0) {
        ckpt_view_draw_alive(view, &view->alive, view->series[view->base].at_peak.planned, view->margin, view->alive_y,
                             view->canvas.width - 2 * view->margin);
    }
    ckpt_view_draw_table(view);
    ckpt_view_draw_facts(view);
}

static ckpt_code draw(ckpt_view *view, ckpt_text *text, ckpt_err *err)
{
    const ckpt_font any = {12, false, CKPT_ROLE_BLACK, -1};
    const char *const title = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &any, view->title, CKPT_ANY_WIDTH));
    const char *const about = ckpt_view_keep(view, ckpt_canvas_fit(&view->canvas, &any, view->about, CKPT_ANY_WIDTH));
    CKPT_TRY(view->canvas.renderer->open(&view->canvas, title, about, err));
    ckpt_code code = fill_columns(view, err);
    if (code == CKPT_OK) {
        ckpt_point *const point = CKPT_NEW(view->canvas.scratch, ckpt_point, 4 * view->columns + 4);
        ckpt_point *const lower = CKPT_NEW(view->canvas.scratch, ckpt_point, 2 * view->columns + 4);
        if (point != NULL && lower != NULL) {
            draw_parts(view, point, lower);
        }
        if (point == NULL || lower == NULL || view->failed) {
            code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's points and words");
        }
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

static bool is_timed(const ckpt_trace *trace)
{
    bool timed = false;
    for (int i = 0; i < trace->event_count && !timed; i++) {
        timed = trace->event[i].end_ns > 0;
    }
    return timed;
}

/* One axis for all: a plan without times beside a measured trace would stand on its first moment. */
static bool all_timed(const ckpt_trace *const *trace, int count)
{
    bool all = true;
    for (int i = 0; i < count; i++) {
        all = all && is_timed(trace[i]);
    }
    return all;
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
    CKPT_TRY(ckpt_live_ranges_make(base->trace, scratch, &view->ranges, err));
    if (view->ranges.count > 0) {
        CKPT_TRY(ckpt_alive_make(&view->ranges, base->peak, cells ? TERMINAL_ROWS : ROWS, scratch, &view->alive, err));
        view->map = !cells;
        view->map_end = view->ranges.top > base->trace->arena_bytes ? view->ranges.top : base->trace->arena_bytes;
        view->map_end = view->map_end > 0 ? view->map_end : 1;
    }
    CKPT_TRY(ckpt_view_find_lanes(view, err));
    CKPT_TRY(ckpt_view_find_residual(view, err));
    ckpt_view_say(view);
    return view->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the picture's words") : CKPT_OK;
}

static ckpt_code check(const ckpt_renderer *renderer, int count, const char *format, const ckpt_view_options *options,
                       ckpt_err *err)
{
    if (renderer == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found format \"%s\", wanted one of %s", format, ckpt_renderer_names());
    }
    if (count < 1 || count > CKPT_VIEW_TRACES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d traces, wanted 1 to %d", count, CKPT_VIEW_TRACES);
    }
    if (options->width < 0 || options->height < 0 || options->width > CKPT_VIEW_LARGEST ||
        options->height > CKPT_VIEW_LARGEST) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a picture of %d x %d, wanted at most %d each way", options->width,
                         options->height, CKPT_VIEW_LARGEST);
    }
    return CKPT_OK;
}

ckpt_code ckpt_view_draw(const ckpt_trace *const *trace, int trace_count, const char *format,
                         const ckpt_view_options *options, ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_options defaults;
    options = options != NULL ? options : &defaults;
    const ckpt_renderer *const renderer = ckpt_renderer_find(format);
    CKPT_TRY(check(renderer, trace_count, format, options, err));
    const bool cells = renderer->cells;
    const bool time_axis = options->time_axis || (!options->step_axis && all_without_plan(trace, trace_count));
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_view view = {
        .canvas = {.renderer = renderer, .color = options->color, .ascii = options->ascii, .scratch = &scratch},
        .count = trace_count,
        .time_axis = time_axis && all_timed(trace, trace_count),
        .line = cells ? 16 : 18,
        .small = 12,
        .margin = cells ? 0 : 16,
    };
    view.no_time = time_axis && !view.time_axis;
    view.canvas.cell_width = cells ? 8 : 1;
    view.canvas.cell_height = cells ? 16 : 1;
    const int width = options->width > 0 ? options->width : renderer->width;
    const int height = options->height > 0 ? options->height : renderer->height;
    view.canvas.width = fmax(cells ? 40 : 560, width) * view.canvas.cell_width;
    view.canvas.height = height * view.canvas.cell_height;
    ckpt_code code = prepare(&view, trace, options->capacity_bytes, err);
    if (code == CKPT_OK) {
        ckpt_view_lay_out(&view, options->height == 0);
        code = draw(&view, text, err);
    }
    ckpt_arena_fini(&scratch);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
