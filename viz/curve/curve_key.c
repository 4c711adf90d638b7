/* What lines, marks and areas are, under the axis: inside the picture words would lie on it, and a mark beside a name
 * would read as a point of the curve. */
#include <math.h>
#include <string.h>

#include "viz/curve/curve_impl.h"

enum { SAMPLE = 26, BETWEEN = 20, NAME_MOST = 200 };

struct ckpt_curve_entry {
    const char *words;
    ckpt_pen line;          /* width 0: none */
    ckpt_curve_shape shape; /* size 0: none */
    ckpt_colour_role fill;  /* of the shape; without a shape or a line of a swatch */
    double x;
    int row;
};

static ckpt_font font_of(const ckpt_curve_picture *p)
{
    return (ckpt_font){p->view.small, false, CKPT_ROLE_BLACK, -1};
}

static double sample_of(const ckpt_curve_picture *p)
{
    return p->view.canvas.renderer->cells ? 2 * p->view.canvas.cell_width : SAMPLE;
}

/* Behind the one before where that leaves room for it, else in a row of its own. */
static void add(ckpt_curve_picture *p, ckpt_curve_entry entry)
{
    const ckpt_view *const v = &p->view;
    const double wide = sample_of(p) + ckpt_view_measure(v, font_of(p), entry.words);
    entry.x = p->entry_end;
    if (entry.x + wide > v->canvas.width - v->margin && p->entry_end > v->margin) {
        entry.x = v->margin;
        p->entry_rows++;
    }
    p->entry_end = entry.x + wide + (v->canvas.renderer->cells ? 2 * v->canvas.cell_width : BETWEEN);
    entry.row = p->entry_rows - 1;
    p->entry[p->entry_count++] = entry;
}

static const char *bound_words(const ckpt_curve *curve)
{
    bool all = true;
    for (int i = 0; i < curve->point_count; i++) {
        all = all && strcmp(curve->point[i].bound_scope, "all") == 0;
    }
    return all ? "bound: no schedule is faster" : "bound: none in its scope is faster";
}

static const char *name_of(ckpt_curve_picture *p, const char *name)
{
    const ckpt_font font = font_of(p);
    return ckpt_view_keep(&p->view, ckpt_canvas_fit(&p->view.canvas, &font, name, NAME_MOST));
}

static void add_areas(ckpt_curve_picture *p)
{
    char text[CKPT_UNITS_TEXT];
    ckpt_view *const v = &p->view;
    add(p, (ckpt_curve_entry){
               .words = CKPT_SAY(v, "no plan below %s", ckpt_bytes_show(p->curve->point[0].budget_bytes, text)),
               .fill = CKPT_ROLE_FAINT});
    if (p->curve->static_bytes > p->x_low) {
        add(p,
            (ckpt_curve_entry){.words = CKPT_SAY(v, "static block %s", ckpt_bytes_show(p->curve->static_bytes, text)),
                               .fill = CKPT_ROLE_PARAMETER_GRADIENTS});
    }
}

ckpt_code ckpt_curve_key_make(ckpt_curve_picture *p, ckpt_err *err)
{
    enum { FIXED = 5 };
    const ckpt_curve *const curve = p->curve;
    ckpt_view *const v = &p->view;
    const int baselines = ckpt_curve_baselines_shown(curve);
    p->entry = CKPT_NEW(v->canvas.scratch, ckpt_curve_entry, FIXED + baselines + p->chosen_count);
    if (p->entry == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the key of a curve");
    }
    char text[CKPT_UNITS_TEXT];
    p->entry_end = v->margin;
    p->entry_rows = 1;
    add(p, (ckpt_curve_entry){.words = "planned",
                              .line = ckpt_curve_planned_pen,
                              .shape = ckpt_curve_planned,
                              .fill = CKPT_ROLE_ACTIVATIONS});
    for (int i = 0; i < p->chosen_count; i++) {
        const ckpt_plan *const plan = p->chosen[i];
        add(p, (ckpt_curve_entry){
                   .words = CKPT_SAY(v, "%s: %s, %+.2f %%", name_of(p, ckpt_curve_plan_name(plan)),
                                     ckpt_bytes_show(plan->budget_bytes, text), 100 * ckpt_curve_chosen(plan)),
                   .shape = ckpt_curve_ring,
               });
    }
    if (p->bounds) {
        add(p, (ckpt_curve_entry){.words = bound_words(curve), .line = ckpt_curve_bound_pen});
    }
    for (int b = 0; b < baselines; b++) {
        if (ckpt_curve_shown_points(p, &curve->baseline[b]) > 0) {
            add(p, (ckpt_curve_entry){.words = name_of(p, curve->baseline[b].strategy),
                                      .line = ckpt_curve_baseline_pen(b),
                                      .shape = ckpt_curve_baseline_shape(b)});
        }
    }
    if ((double)curve->keep_all_peak_bytes <= p->x_high) {
        add(p, (ckpt_curve_entry){.words = "keep-all", .shape = ckpt_curve_keep_all, .fill = CKPT_ROLE_BLACK});
    }
    add_areas(p);
    return CKPT_OK;
}

void ckpt_curve_key_draw(ckpt_curve_picture *p, double top)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double sample = sample_of(p), middle = cells ? v->canvas.cell_width / 2 : (sample - 6) / 2;
    for (int i = 0; i < p->entry_count; i++) {
        const ckpt_curve_entry *const entry = &p->entry[i];
        const double x = entry->x, y = top + (entry->row + 0.5) * v->line;
        const bool line = entry->line.width > 0, mark = entry->shape.size > 0;
        if (line && !(cells && mark)) {
            ckpt_view_line(v, x, y, x + (cells ? v->canvas.cell_width : sample - 6), y, entry->line);
        }
        if (mark) {
            ckpt_curve_mark(p, (ckpt_point){x + middle, y}, &entry->shape, entry->fill);
        } else if (!line) {
            ckpt_view_box(v, x, y - (cells ? v->canvas.cell_height / 2 : 6), cells ? v->canvas.cell_width : sample - 6,
                          cells ? v->canvas.cell_height : 12, entry->fill);
        }
        ckpt_view_words(v, x + sample, y, font_of(p), v->canvas.width - v->margin - x - sample, entry->words);
    }
}
