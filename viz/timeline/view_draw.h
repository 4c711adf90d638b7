/* What the parts of the picture of memory over time share: what is known before it is drawn, and where it goes. */
#ifndef CKPT_VIZ_TIMELINE_VIEW_DRAW_H
#define CKPT_VIZ_TIMELINE_VIEW_DRAW_H

#include "viz/timeline/live_ranges.h"
#include "viz/timeline/view.h"

enum { CKPT_VIEW_FACTS = 32, CKPT_VIEW_HEADS = 2, CKPT_VIEW_LARGEST = 16384, CKPT_VIEW_LANES = 12 };

typedef struct ckpt_fact {
    const char *name, *text;
    int outline; /* number of the line it explains; -1: none */
} ckpt_fact;

/* A strip under the plot that shows when something ran: all runs of one phase, or of one stream. */
typedef struct ckpt_lane {
    const char *name;
    ckpt_ns busy_ns; /* lengths of its events together */
} ckpt_lane;

typedef struct ckpt_view {
    ckpt_canvas canvas;
    ckpt_series series[CKPT_VIEW_TRACES];
    int count, base;
    bool time_axis;
    bool no_time; /* the axis of time was asked for, but not all traces know times */
    bool no_plan; /* the base is of a program that follows none */
    bool failed;  /* a text found no memory */

    ckpt_bytes budget;   /* 0: no line */
    ckpt_bytes capacity; /* of the device; 0: not known */
    bool capacity_line;
    double x_end, y_end;
    double fold; /* the static block, when it would leave no height for the rest: drawn flat, not to scale; else 0 */
    int columns;
    int *event[CKPT_VIEW_TRACES]; /* per column */
    ckpt_lane lane[CKPT_VIEW_LANES];
    int lane_count;
    unsigned char *lane_of; /* per event of the base; CKPT_VIEW_LANES: none */

    ckpt_live_ranges ranges; /* of the base */
    ckpt_live_set live_set;  /* at its peak */
    bool map;                /* live ranges are drawn */
    ckpt_bytes map_end;      /* at the map's upper edge */
    ckpt_residual residual;
    const char *residual_words; /* NULL: nothing to compare with */

    const char *title, *about;
    const char *head[CKPT_VIEW_HEADS];
    int head_count;
    ckpt_fact fact[CKPT_VIEW_FACTS];
    int fact_count;

    /* Pixels. */
    double fold_height;
    double line, small, margin, gutter, left, right;
    double map_y, map_top, map_bottom; /* its heading, its edges */
    double chart_y, top, bottom;
    double lane_height, axis_drop, lanes_y, residual_y, residual_bottom, axis_y;
    double live_set_y, table_y, facts_x, facts_y;
    bool beside; /* facts stand to the right of the table, not below */
} ckpt_view;

/* The size of a picture in pixels, its rows in a terminal, and what it takes at least (40 columns in a terminal). */
typedef struct ckpt_view_size {
    int width, height, rows, least_width, least_height, least_rows;
} ckpt_view_size;

/* An empty view that draws in that format, as large as the options say or else `size`. Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_view_init(ckpt_view *view, const char *format, const ckpt_view_options *options,
                                       const ckpt_view_size *size, ckpt_arena *scratch, ckpt_err *err);

/* Open the renderer, with the view's title and what it is about; draw; close it, with the picture in `text`. */
CKPT_MUST_USE ckpt_code ckpt_view_draw_with(ckpt_view *view, void (*draw)(void *picture), void *picture,
                                            ckpt_text *text, ckpt_err *err);

/* `text`, or "" and the view failed when it is NULL. */
const char *ckpt_view_keep(ckpt_view *view, const char *text);
#define CKPT_SAY(view, ...) ckpt_view_keep((view), ckpt_arena_format((view)->canvas.scratch, __VA_ARGS__))

void ckpt_view_box(ckpt_view *view, double x, double y, double width, double height, ckpt_colour_role role);
void ckpt_view_line(ckpt_view *view, double x0, double y0, double x1, double y1, ckpt_pen pen);
void ckpt_view_words(ckpt_view *view, double x, double y, ckpt_font font, double width, const char *text);
/* The same over something: `back` is painted first, as high and wide as the words. A terminal's letters need none. */
void ckpt_view_words_on(ckpt_view *view, double x, double y, ckpt_font font, double width, const char *text,
                        ckpt_colour_role back);

/* Parts of a table. `y` is the middle of a row, `x` the left end of the table. */
typedef struct ckpt_table_column {
    double x;     /* right of the table's left end: where the words begin, or end (align 1) */
    double width; /* of the words; 0: no such column */
    int align;
} ckpt_table_column;
enum { CKPT_VIEW_COLUMNS = 5 };
/* NULL words and those without a column are not drawn. The font's align is ignored. */
void ckpt_view_row(ckpt_view *view, double x, double y, ckpt_font font, const ckpt_table_column *column,
                   const char *const word[CKPT_VIEW_COLUMNS]);
void ckpt_view_rule(ckpt_view *view, double x, double y, double width); /* not in a terminal */
void ckpt_view_swatch(ckpt_view *view, double x, double y, ckpt_colour_role role);
const char *ckpt_view_share(ckpt_view *view, ckpt_bytes part, ckpt_bytes whole); /* "12.5 %" */

double ckpt_view_measure(const ckpt_view *view, ckpt_font font, const char *text);
const ckpt_pen *ckpt_view_outline(int nth);
double ckpt_view_x(const ckpt_view *view, double at);

/* The trace that is set beside the base; NULL when there is one trace. */
const ckpt_series *ckpt_view_other(const ckpt_view *view);

/* Where everything goes (view_draw_layout.c). */
void ckpt_view_measure_axes(ckpt_view *view, ckpt_bytes capacity);
void ckpt_view_lay_out(ckpt_view *view, bool any_height);

/* The chart: stacked bands of the base, outlines of the others (view_draw_stack.c; `point` and `lower` have room for
 * 4 and 2 points per column, and 4 more); grid, axes, budget, capacity and peak (view_draw_axes.c). */
void ckpt_view_draw_stack(ckpt_view *view, ckpt_point *point, ckpt_point *lower);
void ckpt_view_draw_outlines(ckpt_view *view, ckpt_point *point);
double ckpt_view_y(const ckpt_view *view, double bytes);
void ckpt_view_draw_grid(ckpt_view *view);
void ckpt_view_draw_axis(ckpt_view *view, double y);
/* Times, or steps, below the line at `y`, at least `apart` pixels from each other. */
void ckpt_view_draw_ticks(ckpt_view *view, double y, double apart);
void ckpt_view_draw_fold(ckpt_view *view);
void ckpt_view_draw_hairline(ckpt_view *view, double from, double to); /* at the peak; not in a terminal */
void ckpt_view_draw_marks(ckpt_view *view);

/* The arena by address over time (view_map.c). Lines: of its heading, from view->left to view->right. */
int ckpt_view_map_lines(ckpt_view *view);
void ckpt_view_draw_map(ckpt_view *view);

/* Measured less predicted (view_residual.c): words and, where it is not 0, a strip. */
CKPT_MUST_USE ckpt_code ckpt_view_find_residual(ckpt_view *view, ckpt_err *err);
double ckpt_view_residual_height(const ckpt_view *view);
void ckpt_view_draw_residual(ckpt_view *view);

/* Which lanes there are (view_lanes.c): phases in a step that follows a plan, else streams where there are several. */
CKPT_MUST_USE ckpt_code ckpt_view_find_lanes(ckpt_view *view, ckpt_err *err);
void ckpt_view_draw_lanes(ckpt_view *view, double y);

/* "step" or "event": what is counted along the axis. */
const char *ckpt_view_unit(const ckpt_view *view);
/* What a band is called and drawn with; without a plan OUTSIDE is what an allocator holds. */
const ckpt_band_look *ckpt_view_band(const ckpt_view *view, int band);

/* Title, head lines and facts (view_words.c). */
ckpt_font ckpt_view_title_font(const ckpt_view *view);
void ckpt_view_say(ckpt_view *view);
const char *ckpt_view_bytes(ckpt_view *view, ckpt_bytes bytes); /* "1.5 MB" */
double ckpt_view_percent(double part, double whole);            /* 0 of nothing */

/* What makes the peak by category: the base, and beside it the first other trace (view_table.c). */
double ckpt_view_table_width(const ckpt_view *view);
int ckpt_view_table_rows(const ckpt_view *view);
void ckpt_view_draw_table(ckpt_view *view);
void ckpt_view_draw_facts(ckpt_view *view);

#endif
