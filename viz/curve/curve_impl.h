/* The picture of a curve: where its parts stand (curve_draw.c), marks and baselines (curve_marks.c), and what they are
 * (curve_key.c). */
#ifndef CKPT_VIZ_CURVE_CURVE_IMPL_H
#define CKPT_VIZ_CURVE_CURVE_IMPL_H

#include "viz/timeline/view_draw.h"

typedef struct ckpt_curve_entry ckpt_curve_entry; /* of the key */

typedef struct ckpt_curve_picture {
    ckpt_view view; /* its canvas, and what draws words and lines on it */
    const ckpt_curve *curve;
    const ckpt_plan *const *chosen;
    int chosen_count;
    double x_low, x_high; /* bytes */
    double y_high;        /* overhead, 0.1 is 10 % */
    double left, right, top, bottom;
    bool bounds;       /* every point has one */
    int above;         /* points of baselines that are off the scale */
    ckpt_point *point; /* room for the longest step function, there and back */
    ckpt_curve_entry *entry;
    int entry_count, entry_rows;
    double entry_end; /* of the last one */
} ckpt_curve_picture;

/* Where a point stands. */
ckpt_point ckpt_curve_at(const ckpt_curve_picture *picture, const ckpt_curve_point *point);
double ckpt_curve_overhead(const ckpt_curve_picture *picture, ckpt_ns time);
double ckpt_curve_chosen(const ckpt_plan *plan); /* its overhead */
const char *ckpt_curve_plan_name(const ckpt_plan *plan);

/* Corners on a circle of radius `size`, the first after `turn` turns; no corners: a cross; in a terminal a letter. */
typedef struct ckpt_curve_shape {
    int corners;
    double turn, size;
    ckpt_colour_role role;
    const char *letter;
    double dot; /* radius of a dot in its middle; 0: none */
} ckpt_curve_shape;
extern const ckpt_curve_shape ckpt_curve_planned, ckpt_curve_ring, ckpt_curve_keep_all;
extern const ckpt_pen ckpt_curve_planned_pen, ckpt_curve_bound_pen;

/* A closed outline over `fill`, so that what lies behind does not show. */
void ckpt_curve_mark(ckpt_curve_picture *picture, ckpt_point centre, const ckpt_curve_shape *shape,
                     ckpt_colour_role fill);

/* How many baselines are drawn; of each its mark, its line and how many of its points are on the scale. */
int ckpt_curve_baselines_shown(const ckpt_curve *curve);
ckpt_curve_shape ckpt_curve_baseline_shape(int number);
ckpt_pen ckpt_curve_baseline_pen(int number);
int ckpt_curve_shown_points(ckpt_curve_picture *picture, const ckpt_curve_baseline *baseline);
void ckpt_curve_draw_baseline(ckpt_curve_picture *picture, int number);

/* What everything is: what it takes to say, when the scales are known; and drawn from `top` down. */
CKPT_MUST_USE ckpt_code ckpt_curve_key_make(ckpt_curve_picture *picture, ckpt_err *err);
void ckpt_curve_key_draw(ckpt_curve_picture *picture, double top);

#endif
