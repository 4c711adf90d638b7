/* The picture of a curve: where its parts stand (curve_draw.c), and words that find a free place (curve_labels.c). */
#ifndef CKPT_VIZ_CURVE_IMPL_H
#define CKPT_VIZ_CURVE_IMPL_H

#include "viz/view_draw_impl.h"

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

#endif
