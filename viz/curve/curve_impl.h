/* The picture of a curve: where its parts stand (curve_draw.c), marks and baselines (curve_marks.c), and words that
 * find a free place (curve_labels.c). */
#ifndef CKPT_VIZ_CURVE_CURVE_IMPL_H
#define CKPT_VIZ_CURVE_CURVE_IMPL_H

#include "viz/timeline/view_draw.h"

/* Words on words are worse than words on any number of lines and marks. */
enum { CKPT_WEIGHT_WORDS = 10000 };

typedef struct ckpt_rect {
    double x0, y0, x1, y1;
    int weight; /* how bad it is to lie on it */
} ckpt_rect;

/* What words should not lie on: lines, marks, other words. */
typedef struct ckpt_obstacles {
    ckpt_rect *rect;
    int count, room;
    ckpt_rect inside; /* words never leave it */
} ckpt_obstacles;

CKPT_MUST_USE ckpt_code ckpt_obstacles_init(ckpt_obstacles *obstacles, int room, ckpt_rect inside, ckpt_arena *arena,
                                            ckpt_err *err);

/* A line or a mark is in the way. Where there is no room left, what comes last is not. */
void ckpt_obstacles_line(ckpt_obstacles *obstacles, ckpt_point from, ckpt_point to);
void ckpt_obstacles_box(ckpt_obstacles *obstacles, ckpt_rect rect);

/* Words beside one of these points, where they cover least; they are in the way of the next then. Asked for in order of
 * importance: of two places as good as each other the first point's is taken. Gives the middle of the `indent` pixels
 * that stay free before the words. */
ckpt_point ckpt_label_place(ckpt_obstacles *obstacles, ckpt_view *view, const ckpt_point *at, int count, double gap,
                            double indent, ckpt_font font, const char *text);

typedef struct ckpt_curve_picture {
    ckpt_view view; /* its canvas, and what draws words and lines on it */
    const ckpt_curve *curve;
    const ckpt_plan *const *chosen;
    int chosen_count;
    double x_low, x_high; /* bytes */
    double y_high;        /* overhead, 0.1 is 10 % */
    double left, right, top, bottom;
    bool bounds; /* every point has one */
    int above;   /* points of baselines that are off the scale */
    ckpt_obstacles obstacles;
    ckpt_point *point; /* room for the longest step function, there and back */
} ckpt_curve_picture;

/* Where a point stands. */
ckpt_point ckpt_curve_at(const ckpt_curve_picture *picture, const ckpt_curve_point *point);
double ckpt_curve_overhead(const ckpt_curve_picture *picture, ckpt_ns time);

/* Corners on a circle of radius `size`, the first after `turn` turns; no corners: a cross; in a terminal a letter. */
typedef struct ckpt_curve_shape {
    int corners;
    double turn, size;
    ckpt_colour_role role;
    const char *letter;
} ckpt_curve_shape;

/* A closed outline over `fill`, so that what lies behind does not show. */
void ckpt_curve_mark(ckpt_curve_picture *picture, ckpt_point centre, const ckpt_curve_shape *shape,
                     ckpt_colour_role fill);

/* Points of a baseline that are on the scale; its name beside them, when all else has been drawn. */
void ckpt_curve_draw_baseline(ckpt_curve_picture *picture, int number);
void ckpt_curve_label_baseline(ckpt_curve_picture *picture, int number);

#endif
