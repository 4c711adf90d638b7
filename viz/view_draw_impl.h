/* What the layout (view_draw.c) and the words (view_words.c) of one picture share. */
#ifndef CKPT_VIZ_VIEW_DRAW_IMPL_H
#define CKPT_VIZ_VIEW_DRAW_IMPL_H

#include "viz/view_impl.h"

enum { CKPT_VIEW_FACTS = 20, CKPT_VIEW_HEADS = 2, CKPT_VIEW_LARGEST = 16384 };

typedef struct ckpt_fact {
    const char *name, *text;
    int outline; /* number of the line it explains; -1: none */
} ckpt_fact;

typedef struct ckpt_view {
    ckpt_canvas canvas;
    ckpt_series series[CKPT_VIEW_TRACES];
    int count, base;
    bool time_axis;
    bool failed; /* a text found no memory */

    ckpt_bytes budget; /* 0: no line */
    double x_end, y_end;
    double fold; /* the static block, when it would leave no height for the rest: drawn flat, not to scale; else 0 */
    int columns;
    int *event[CKPT_VIEW_TRACES]; /* per column */
    unsigned char *mark;          /* per column */
    bool lane[CKPT_SPAN_FREE];

    const char *title, *about;
    const char *head[CKPT_VIEW_HEADS];
    int head_count;
    ckpt_fact fact[CKPT_VIEW_FACTS];
    int fact_count;

    /* Pixels. */
    double fold_height;
    double line, small, margin, gutter, left, right, top, bottom;
    double lane_height, axis_drop, lanes_y, axis_y, table_y, facts_x, facts_y;
    bool beside; /* facts stand to the right of the table, not below */
} ckpt_view;

/* `text`, or "" and the view failed when it is NULL. */
const char *ckpt_view_keep(ckpt_view *view, const char *text);
#define CKPT_SAY(view, ...) ckpt_view_keep((view), ckpt_arena_format((view)->canvas.scratch, __VA_ARGS__))

void ckpt_view_box(ckpt_view *view, double x, double y, double width, double height, ckpt_ink ink);
void ckpt_view_line(ckpt_view *view, double x0, double y0, double x1, double y1, ckpt_pen pen);
void ckpt_view_words(ckpt_view *view, double x, double y, ckpt_font font, double width, const char *text);
double ckpt_view_measure(const ckpt_view *view, ckpt_font font, const char *text);
const ckpt_pen *ckpt_view_outline(int nth);

/* Title, head lines and facts. */
void ckpt_view_say(ckpt_view *view);

/* What makes the peak: the base, and beside it the first other trace. */
double ckpt_view_table_width(const ckpt_view *view);
int ckpt_view_table_rows(const ckpt_view *view);
void ckpt_view_draw_table(ckpt_view *view);
void ckpt_view_draw_facts(ckpt_view *view);

#endif
