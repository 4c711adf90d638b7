/* The arena by address over time: a box for every live range of a buffer, at its offset. Without a plan
 * the addresses that a program used, less what lies between them. A terminal has no map: it has neither borders nor
 * hatching, so neighbours of one kind run into one another and only the chart's bands would be left of it. */
#include <math.h>

#include "viz/timeline/view_draw.h"
#include "viz/timeline/view_live_set.h"

/* Titles for at most so many boxes, the largest: they are most of an SVG's length. */
enum { TITLES = 1200, SWATCH = 14, SPACE = 16 };

static ckpt_font heading_font(const ckpt_view *view, bool bold)
{
    return (ckpt_font){view->small, bold, CKPT_ROLE_BLACK, -1};
}

static const char *heading(ckpt_view *view)
{
    return view->no_plan ? CKPT_SAY(view, "by address, gaps left out, %d blocks", view->ranges.count)
                         : CKPT_SAY(view, "arena by address, %s", ckpt_view_bytes(view, view->map_end));
}

static void find_kinds(const ckpt_view *view, bool *there)
{
    for (int i = 0; i < view->ranges.count; i++) {
        there[view->ranges.range[i].kind] = true;
    }
}

/* The heading, and after it what colours mean, on as many lines as that takes. Drawn or only counted. */
static int flow_heading(ckpt_view *view, bool draw)
{
    const ckpt_font bold = heading_font(view, true), font = heading_font(view, false);
    const char *const words = heading(view);
    double x = view->left, y = view->map_y + view->line / 2;
    int lines = 1;
    if (draw) {
        ckpt_view_words(view, x, y, bold, view->right - view->left, words);
    }
    x += ckpt_view_measure(view, bold, words) + 2 * SPACE;
    bool there[CKPT_LIVE_KIND_COUNT] = {false};
    find_kinds(view, there);
    for (int k = 0; k < CKPT_LIVE_KIND_COUNT; k++) {
        if (!there[k]) {
            continue;
        }
        const char *const name = ckpt_live_range_kind_name((ckpt_live_range_kind)k);
        const double width = SWATCH + 6 + ckpt_view_measure(view, font, name);
        if (x + width > view->right) {
            x = view->left;
            y += view->line;
            lines++;
        }
        if (draw) {
            ckpt_view_box(view, x, y - 6, SWATCH, 12, ckpt_live_range_role((ckpt_live_range_kind)k));
            ckpt_view_words(view, x + SWATCH + 6, y, font, CKPT_ANY_WIDTH / 2, name);
        }
        x += width + SPACE;
    }
    return lines;
}

int ckpt_view_map_lines(ckpt_view *view)
{
    return flow_heading(view, false);
}

static double map_y(const ckpt_view *view, double bytes)
{
    return view->map_bottom - bytes / (double)view->map_end * (view->map_bottom - view->map_top);
}

static ckpt_box box_of(const ckpt_view *view, int which)
{
    const ckpt_live_range *const range = &view->ranges.range[which];
    const double *const from = view->series[view->base].from;
    const double x = ckpt_view_x(view, from[range->from]),
                 y = map_y(view, (double)range->offset + (double)range->bytes);
    return (ckpt_box){.x = x,
                      .y = y,
                      .width = ckpt_view_x(view, from[range->to + 1]) - x,
                      .height = map_y(view, (double)range->offset) - y,
                      .role = ckpt_live_range_role(range->kind)};
}

static bool is_speck(const ckpt_box *box)
{
    return box->width < 1 || box->height < 1;
}

/* What is thinner than a pixel goes into a raster of pixels, so that any number of specks of a kind that touch are one
 * box. 0: empty; else the colour role plus one. */
typedef struct raster {
    unsigned char *pixel;
    int columns, rows;
} raster;

static void paint(const ckpt_view *view, const raster *own, const ckpt_box *box)
{
    const double x = box->x - view->left, y = box->y - view->map_top;
    int c0 = (int)fmin(own->columns - 1, fmax(0, floor(x + 1e-3)));
    int r0 = (int)fmin(own->rows - 1, fmax(0, floor(y + 1e-3)));
    const int c1 = (int)fmax(c0 + 1, fmin(own->columns, ceil(x + box->width - 1e-3)));
    const int r1 = (int)fmax(r0 + 1, fmin(own->rows, ceil(y + box->height - 1e-3)));
    for (int r = r0; r < r1; r++) {
        for (int c = c0; c < c1; c++) {
            own->pixel[(size_t)r * (size_t)own->columns + (size_t)c] = (unsigned char)(box->role + 1);
        }
    }
}

/* Has row `r` exactly this run, no longer and no shorter? */
static bool has_run(const raster *own, int r, int from, int end, unsigned char role)
{
    if (r < 0 || r >= own->rows) {
        return false;
    }
    const unsigned char *const row = own->pixel + (size_t)r * (size_t)own->columns;
    bool has = (from == 0 || row[from - 1] != role) && (end == own->columns || row[end] != role);
    for (int c = from; c < end && has; c++) {
        has = row[c] == role;
    }
    return has;
}

/* One box for equal runs in rows one below the other. Gives how many; `box` NULL: only counts. */
static int trace_raster(const ckpt_view *view, const raster *own, ckpt_box *box)
{
    int count = 0;
    for (int r = 0; r < own->rows; r++) {
        const unsigned char *const row = own->pixel + (size_t)r * (size_t)own->columns;
        for (int c = 0, end; c < own->columns; c = end) {
            for (end = c + 1; end < own->columns && row[end] == row[c]; end++) {
            }
            if (row[c] == 0 || has_run(own, r - 1, c, end, row[c])) {
                continue;
            }
            int below = r + 1;
            while (box != NULL && has_run(own, below, c, end, row[c])) {
                below++;
            }
            if (box != NULL) {
                box[count] = (ckpt_box){.x = view->left + c,
                                        .y = view->map_top + r,
                                        .width = end - c,
                                        .height = below - r,
                                        .role = (ckpt_colour_role)(row[c] - 1)};
            }
            count++;
        }
    }
    return count;
}

static void draw_specks(ckpt_view *view)
{
    ckpt_arena *const scratch = view->canvas.scratch;
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    raster own = {.columns = (int)(view->right - view->left), .rows = (int)(view->map_bottom - view->map_top)};
    own.pixel = CKPT_NEW(scratch, unsigned char, (size_t)own.columns *(size_t)own.rows);
    if (own.pixel == NULL) {
        view->failed = true;
        return;
    }
    for (int i = 0; i < view->ranges.count; i++) {
        const ckpt_box box = box_of(view, i);
        if (is_speck(&box) && view->ranges.range[i].bytes > 0) {
            paint(view, &own, &box);
        }
    }
    const int count = trace_raster(view, &own, NULL);
    ckpt_box *const box = CKPT_NEW(scratch, ckpt_box, count);
    if (box == NULL) {
        view->failed = true;
        return;
    }
    (void)trace_raster(view, &own, box);
    view->canvas.renderer->boxes(&view->canvas, box, count);
    ckpt_arena_rewind(scratch, mark);
}

static const char *title_of(ckpt_view *view, int which)
{
    const ckpt_live_range *const range = &view->ranges.range[which];
    const ckpt_event *const event = view->ranges.trace->event;
    const char *const reason = ckpt_view_keep(view, ckpt_live_range_reason(&view->ranges, which, view->canvas.scratch));
    const bool module = view->no_plan && range->layer[0] != '\0';
    return CKPT_SAY(view, "%s%s%s: %s, %s at %s, %ss %d to %d; %s", range->name, module ? " in " : "",
                    module ? range->layer : "", ckpt_live_range_kind_name(range->kind),
                    ckpt_view_bytes(view, range->bytes),
                    range->address != 0 ? CKPT_SAY(view, "0x%llx", (unsigned long long)range->address)
                                        : ckpt_view_bytes(view, range->offset),
                    ckpt_view_unit(view), event[range->from].step, event[range->to].step, reason);
}

/* The area that at most TITLES boxes have. */
static double min_titled_area(const ckpt_box *box, int count)
{
    double minimum = 12;
    for (int above = TITLES + 1; above > TITLES; minimum *= above > TITLES ? 1.5 : 1) {
        above = 0;
        for (int i = 0; i < count; i++) {
            above += box[i].width * box[i].height >= minimum;
        }
    }
    return minimum;
}

/* The name of a range in its box, when there is room for a good part of it; without a plan its module's. */
static void name_box(ckpt_view *view, const ckpt_box *box, const ckpt_live_range *range)
{
    const char *const name = view->no_plan && range->layer[0] != '\0' ? range->layer : range->name;
    enum { PAD = 4, LEAST = 44, SMALLEST = 9, LARGEST = 11 };
    const double size = fmin(LARGEST, box->height - 1.5), room = box->width - 2 * PAD;
    const ckpt_font font = {size, false, ckpt_colour_role_looks[box->role].text, 0};
    if (size < SMALLEST) {
        return;
    }
    const double whole = ckpt_view_measure(view, font, name);
    if (room >= fmin(whole, fmax(LEAST, whole * 2 / 3))) {
        ckpt_view_words_on(view, box->x + box->width / 2, box->y + box->height / 2, font, room, name, box->role);
    }
}

static void draw_ranges(ckpt_view *view)
{
    const ckpt_live_ranges *const ranges = &view->ranges;
    ckpt_box *const box = CKPT_NEW(view->canvas.scratch, ckpt_box, ranges->count);
    int *const which = CKPT_NEW(view->canvas.scratch, int, ranges->count);
    if (box == NULL || which == NULL) {
        view->failed = true;
        return;
    }
    int count = 0;
    for (int i = 0; i < ranges->count; i++) {
        box[count] = box_of(view, i);
        which[count] = i;
        count += !is_speck(&box[count]);
    }
    const double minimum = min_titled_area(box, count);
    for (int i = 0; i < count; i++) {
        box[i].title = box[i].width * box[i].height >= minimum ? title_of(view, which[i]) : NULL;
    }
    view->canvas.renderer->boxes(&view->canvas, box, count);
    ckpt_view_draw_hairline(view, view->map_top, view->map_bottom);
    for (int i = 0; i < count; i++) {
        name_box(view, &box[i], &ranges->range[which[i]]);
    }
}

static void draw_ticks(ckpt_view *view)
{
    const ckpt_font font = {view->small, false, CKPT_ROLE_GREY, 1};
    const double height = view->map_bottom - view->map_top, end = (double)view->map_end;
    const double step = ckpt_tick_step(end, (int)fmax(2, fmin(8, height / (1.8 * view->line))), 1);
    char text[CKPT_UNITS_TEXT];
    for (double tick = 0; tick <= end; tick += step) {
        const double y = map_y(view, tick);
        ckpt_view_words(view, view->left - 8, y, font, view->gutter,
                        tick > 0 ? ckpt_tick_bytes(tick, step, end, text) : "0");
        ckpt_view_line(view, view->left, floor(y) + 0.5, view->right, floor(y) + 0.5,
                       (ckpt_pen){CKPT_ROLE_FAINT, 1, 0});
    }
}

static void draw_frame(ckpt_view *view)
{
    const double left = view->left - 0.5, right = view->right, top = view->map_top - 0.5;
    ckpt_view_line(view, left, top, left, view->map_bottom + 0.5, (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
    ckpt_view_line(view, left, view->map_bottom + 0.5, right, view->map_bottom + 0.5, (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
    ckpt_view_line(view, left, top, right, top, (ckpt_pen){CKPT_ROLE_GREY, 1, 3}); /* the arena's end */
}

void ckpt_view_draw_map(ckpt_view *view)
{
    (void)flow_heading(view, true);
    draw_ticks(view);
    draw_specks(view);
    draw_ranges(view);
    draw_frame(view);
    const ckpt_font font = heading_font(view, true);
    ckpt_view_words(view, view->left, view->chart_y + view->line / 2, font, view->right - view->left,
                    view->no_plan ? "bytes in use" : "bytes by category, static block included");
}
