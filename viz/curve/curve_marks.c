/* Marks on the picture of a curve: their shapes, and the baselines. */
#include <math.h>

#include "viz/curve/curve_impl.h"

enum { SHAPES = 8, BASELINES_SHOWN = 16 };

const ckpt_curve_shape ckpt_curve_planned = {12, 0, 3.4, CKPT_ROLE_ACTIVATIONS, "o", 0},
                       ckpt_curve_ring = {16, 0, 7, CKPT_ROLE_BLACK, "@", 3},
                       ckpt_curve_keep_all = {4, 0.125, 6, CKPT_ROLE_BLACK, "K", 0};
const ckpt_pen ckpt_curve_planned_pen = {CKPT_ROLE_ACTIVATIONS, 2.2, 0},
               ckpt_curve_bound_pen = {CKPT_ROLE_BUDGET, 1.6, 5};

/* The baselines' marks; behind the last they begin anew. */
static const ckpt_curve_shape shapes[SHAPES] = {
    {4, 0.125, 5.2, CKPT_ROLE_GRADIENTS, NULL, 0}, {3, 0.75, 5.6, CKPT_ROLE_STAGING, NULL, 0},
    {4, 0, 5.6, CKPT_ROLE_SAVED, NULL, 0},         {3, 0.25, 5.6, CKPT_ROLE_GREY, NULL, 0},
    {5, 0.75, 5.4, CKPT_ROLE_BUDGET, NULL, 0},     {6, 0, 5.2, CKPT_ROLE_WEIGHTS, NULL, 0},
    {0, 0, 4.4, CKPT_ROLE_BLACK, NULL, 0},         {3, 0, 5.6, CKPT_ROLE_RECOMPUTE, NULL, 0},
};

/* In a terminal letters, without the o of the plans. */
ckpt_curve_shape ckpt_curve_baseline_shape(int number)
{
    static const char *const letter[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                         "i", "j", "k", "l", "m", "n", "p", "q"};
    ckpt_curve_shape shape = shapes[number % SHAPES];
    shape.letter = letter[(size_t)number % (sizeof letter / sizeof *letter)];
    return shape;
}

/* The first one again behind the last. */
static void corners_of(const ckpt_curve_shape *shape, ckpt_point centre, double radius, ckpt_point *corner)
{
    for (int i = 0; i <= shape->corners; i++) {
        const double turn = 2 * 3.14159265358979323846 * (shape->turn + (double)i / shape->corners);
        corner[i] = (ckpt_point){centre.x + radius * cos(turn), centre.y + radius * sin(turn)};
    }
}

void ckpt_curve_mark(ckpt_curve_picture *p, ckpt_point centre, const ckpt_curve_shape *shape, ckpt_colour_role fill)
{
    ckpt_view *const v = &p->view;
    const ckpt_pen pen = {shape->role, 1.6, 0};
    const double r = shape->size;
    if (v->canvas.renderer->cells) {
        v->canvas.renderer->text(&v->canvas, centre.x, centre.y, &(ckpt_font){v->small, true, CKPT_ROLE_BLACK, 0},
                                 shape->letter);
        return;
    }
    if (shape->corners == 0) {
        ckpt_view_line(v, centre.x - r, centre.y - r, centre.x + r, centre.y + r, pen);
        ckpt_view_line(v, centre.x - r, centre.y + r, centre.x + r, centre.y - r, pen);
        return;
    }
    ckpt_point corner[17];
    corners_of(shape, centre, r, corner);
    v->canvas.renderer->area(&v->canvas, corner, shape->corners, fill);
    v->canvas.renderer->line(&v->canvas, corner, shape->corners + 1, &pen);
    if (shape->dot > 0) {
        corners_of(shape, centre, shape->dot, corner);
        v->canvas.renderer->area(&v->canvas, corner, shape->corners, shape->role);
    }
}

int ckpt_curve_baselines_shown(const ckpt_curve *curve)
{
    return curve->baseline_count < BASELINES_SHOWN ? curve->baseline_count : BASELINES_SHOWN;
}

ckpt_pen ckpt_curve_baseline_pen(int number)
{
    return (ckpt_pen){shapes[number % SHAPES].role, 0.8, number < SHAPES ? 0 : 3};
}

/* Puts them into p->point. */
int ckpt_curve_shown_points(ckpt_curve_picture *p, const ckpt_curve_baseline *baseline)
{
    int count = 0;
    for (int i = 0; i < baseline->point_count; i++) {
        const ckpt_curve_point *const point = &baseline->point[i];
        if (ckpt_curve_overhead(p, point->time_ns) <= p->y_high && (double)point->budget_bytes <= p->x_high) {
            p->point[count++] = ckpt_curve_at(p, point);
        }
    }
    return count;
}

void ckpt_curve_draw_baseline(ckpt_curve_picture *p, int number)
{
    const ckpt_curve_shape shape = ckpt_curve_baseline_shape(number);
    const ckpt_pen pen = ckpt_curve_baseline_pen(number);
    const int count = ckpt_curve_shown_points(p, &p->curve->baseline[number]);
    for (int i = 0; i + 1 < count && !p->view.canvas.renderer->cells; i++) { /* it holds for every larger budget */
        const ckpt_point corner[] = {p->point[i], {p->point[i + 1].x, p->point[i].y}, p->point[i + 1]};
        p->view.canvas.renderer->line(&p->view.canvas, corner, 3, &pen);
    }
    for (int i = 0; i < count; i++) {
        ckpt_curve_mark(p, p->point[i], &shape, CKPT_ROLE_PAPER);
    }
}
