/* Marks on the picture of a curve: their shapes, and the baselines with their names. */
#include <math.h>

#include "viz/curve/curve_impl.h"

enum { SHAPES = 8 };

/* The baselines' marks; behind the last they begin anew. */
static const ckpt_curve_shape shapes[SHAPES] = {
    {4, 0.125, 5.2, CKPT_ROLE_GRADIENTS, NULL}, {3, 0.75, 5.6, CKPT_ROLE_STAGING, NULL},
    {4, 0, 5.6, CKPT_ROLE_SAVED, NULL},         {3, 0.25, 5.6, CKPT_ROLE_GREY, NULL},
    {5, 0.75, 5.4, CKPT_ROLE_BUDGET, NULL},     {6, 0, 5.2, CKPT_ROLE_WEIGHTS, NULL},
    {0, 0, 4.4, CKPT_ROLE_BLACK, NULL},         {3, 0, 5.6, CKPT_ROLE_RECOMPUTE, NULL},
};

/* In a terminal letters, without the o of the plans. */
static ckpt_curve_shape shape_of(int number)
{
    static const char *const letter[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                         "i", "j", "k", "l", "m", "n", "p", "q"};
    ckpt_curve_shape shape = shapes[number % SHAPES];
    shape.letter = letter[(size_t)number % (sizeof letter / sizeof *letter)];
    return shape;
}

void ckpt_curve_mark(ckpt_curve_picture *p, ckpt_point centre, const ckpt_curve_shape *shape, ckpt_colour_role fill)
{
    ckpt_view *const v = &p->view;
    const ckpt_pen pen = {shape->role, 1.6, 0};
    const double r = shape->size;
    ckpt_obstacles_box(&p->obstacles, (ckpt_rect){centre.x - r, centre.y - r, centre.x + r, centre.y + r, 8});
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
    for (int i = 0; i <= shape->corners; i++) {
        const double turn = 2 * 3.14159265358979323846 * (shape->turn + (double)i / shape->corners);
        corner[i] = (ckpt_point){centre.x + r * cos(turn), centre.y + r * sin(turn)};
    }
    v->canvas.renderer->area(&v->canvas, corner, shape->corners, fill);
    v->canvas.renderer->line(&v->canvas, corner, shape->corners + 1, &pen);
}

/* Puts the points that are on the scale into p->point. Gives how many. */
static int shown_points(ckpt_curve_picture *p, const ckpt_curve_baseline *baseline)
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
    const ckpt_curve_shape shape = shape_of(number);
    const int count = shown_points(p, &p->curve->baseline[number]);
    for (int i = 0; i + 1 < count; i++) { /* a plan holds for every larger budget: steps */
        const ckpt_point corner = {p->point[i + 1].x, p->point[i].y};
        const ckpt_point *const ends[] = {&p->point[i], &corner, &p->point[i + 1]};
        for (int e = 0; e < 2; e++) {
            if (!p->view.canvas.renderer->cells) {
                ckpt_view_line(&p->view, ends[e]->x, ends[e]->y, ends[e + 1]->x, ends[e + 1]->y,
                               (ckpt_pen){shape.role, 0.8, number < SHAPES ? 0 : 3});
            }
            ckpt_obstacles_line(&p->obstacles, *ends[e], *ends[e + 1]);
        }
    }
    for (int i = 0; i < count; i++) {
        ckpt_curve_mark(p, p->point[i], &shape, CKPT_ROLE_PAPER);
    }
}

void ckpt_curve_label_baseline(ckpt_curve_picture *p, int number)
{
    ckpt_view *const v = &p->view;
    const ckpt_curve_shape shape = shape_of(number);
    const int count = shown_points(p, &p->curve->baseline[number]);
    const bool cells = v->canvas.renderer->cells;
    const ckpt_font font = {v->small, false, CKPT_ROLE_BLACK, -1};
    const char *const name =
        ckpt_view_keep(v, ckpt_canvas_fit(&v->canvas, &font, p->curve->baseline[number].strategy, 160));
    if (count > 0 && cells) {
        (void)ckpt_label_place(&p->obstacles, v, p->point, count, 8, 0, font, CKPT_SAY(v, "%s %s", shape.letter, name));
    } else if (count > 0) { /* its mark again, because others lie close */
        const ckpt_point mark = ckpt_label_place(&p->obstacles, v, p->point, count, 8, 14, font, name);
        ckpt_curve_shape small = shape;
        small.size *= 0.75;
        ckpt_curve_mark(p, (ckpt_point){mark.x, mark.y}, &small, CKPT_ROLE_PAPER);
    }
}
