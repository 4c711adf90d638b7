/* Labels beside marks: each stands where it covers least of what is drawn already. */
#include <math.h>

#include "viz/curve/curve_impl.h"

enum { WEIGHT_LINE = 1, OUTSIDE = 100 * CKPT_WEIGHT_WORDS, POINTS_TRIED = 500, FAR = 24 };

ckpt_code ckpt_obstacles_init(ckpt_obstacles *obstacles, int room, ckpt_rect inside, ckpt_arena *arena, ckpt_err *err)
{
    *obstacles = (ckpt_obstacles){.rect = CKPT_NEW(arena, ckpt_rect, room), .room = room, .inside = inside};
    return obstacles->rect != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a picture's labels");
}

void ckpt_obstacles_box(ckpt_obstacles *obstacles, ckpt_rect rect)
{
    if (obstacles->count < obstacles->room) {
        obstacles->rect[obstacles->count++] = rect;
    }
}

/* As a string of small boxes. */
void ckpt_obstacles_line(ckpt_obstacles *obstacles, ckpt_point from, ckpt_point to)
{
    const double bead = 8;
    const int beads = (int)fmin(ceil(hypot(to.x - from.x, to.y - from.y) / bead), 400);
    for (int i = 0; i < beads; i++) {
        const double share = (i + 0.5) / beads;
        const double x = from.x + share * (to.x - from.x), y = from.y + share * (to.y - from.y);
        ckpt_obstacles_box(obstacles, (ckpt_rect){x - 2, y - 2, x + 2, y + 2, WEIGHT_LINE});
    }
}

/* What lies under the words, or very much where they would leave the picture. */
static int cost_of(const ckpt_obstacles *obstacles, const ckpt_rect *words)
{
    const ckpt_rect *const in = &obstacles->inside;
    if (words->x0 < in->x0 || words->y0 < in->y0 || words->x1 > in->x1 || words->y1 > in->y1) {
        return OUTSIDE;
    }
    int cost = 0;
    for (int i = 0; i < obstacles->count; i++) {
        const ckpt_rect *const o = &obstacles->rect[i];
        cost += o->x0 < words->x1 && words->x0 < o->x1 && o->y0 < words->y1 && words->y0 < o->y1 ? o->weight : 0;
    }
    return cost;
}

/* Words of that size beside a point, if they cover less there than at the best place so far. */
static void try_place(const ckpt_obstacles *obstacles, ckpt_point at, double dx, double dy, double width, double half,
                      ckpt_rect *best, int *minimum)
{
    const double y = at.y + dy, x = at.x + dx - (dx > 0 ? 0 : dx < 0 ? width : width / 2);
    const ckpt_rect words = {x, y - half, x + width, y + half, CKPT_WEIGHT_WORDS};
    const int cost = cost_of(obstacles, &words);
    if (*minimum < 0 || cost < *minimum) {
        *minimum = cost;
        *best = words;
    }
}

ckpt_point ckpt_label_place(ckpt_obstacles *obstacles, ckpt_view *view, const ckpt_point *at, int count, double gap,
                            double indent, ckpt_font font, const char *text)
{
    static const double side[][2] = {{1, 0},    {1, -1},  {0, -1.5}, {1, 1},   {0, 1.5},   {-1, -1},
                                     {-1, 0},   {-1, 1},  {1, -2},   {1, 2},   {-1, -2},   {-1, 2},
                                     {0, -2.6}, {0, 2.6}, {1, -3.2}, {1, 3.2}, {-1, -3.2}, {-1, 3.2},
                                     {-4, 0},   {-4, -2}, {-4, 2},   {4, 0},   {4, -2},    {4, 2}};
    const double width = indent + ckpt_view_measure(view, font, text);
    const double half = view->canvas.renderer->cells ? view->canvas.cell_height / 2 : font.size * 0.62;
    ckpt_rect best = {0};
    int minimum = -1;
    for (int i = 0; i < count && minimum != 0; i += 1 + count / POINTS_TRIED) {
        for (size_t s = 0; s < sizeof side / sizeof *side && minimum != 0; s++) {
            try_place(obstacles, at[i], side[s][0] * gap, side[s][1] * (half + 0.6 * gap), width, half, &best,
                      &minimum);
        }
    }
    for (int k = 2; k < FAR && minimum >= CKPT_WEIGHT_WORDS; k++) { /* a crowd: farther and farther away */
        for (int i = 0; i < count; i += 1 + count / POINTS_TRIED) {
            for (int s = 0; s < 6; s++) {
                const double dx = (s % 3 - 1) * k * 2 * gap, dy = (s < 3 ? -k : k) * half;
                try_place(obstacles, at[i], dx, dy, width, half, &best, &minimum);
            }
        }
    }
    font.align = -1;
    const double middle = (best.y0 + best.y1) / 2;
    ckpt_view_words(view, best.x0 + indent, middle, font, CKPT_ANY_WIDTH, text);
    ckpt_obstacles_box(obstacles, best);
    return (ckpt_point){best.x0 + indent / 2, middle};
}
