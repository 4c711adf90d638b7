/* Time over budget, for every renderer. A plan holds for every budget up to the next point's and a bound for every
 * smaller one, so both are step functions, and the optimum lies in the band between them. Overheads stand on a
 * square-root scale: near keep-all, where plans and baselines lie close together, it shows most. */
#include <math.h>
#include <string.h>

#include "viz/curve/curve_impl.h"

double ckpt_curve_overhead(const ckpt_curve_picture *p, ckpt_ns time)
{
    const double keep_all = (double)p->curve->keep_all_time_ns;
    return keep_all > 0 ? fmax(0, (double)time / keep_all - 1) : 0;
}

double ckpt_curve_chosen(const ckpt_plan *plan)
{
    return plan->keep_all_time_ns > 0 ? fmax(0, (double)plan->time_ns / (double)plan->keep_all_time_ns - 1) : 0;
}

static double x_of(const ckpt_curve_picture *p, double bytes)
{
    const double share = (bytes - p->x_low) / (p->x_high - p->x_low);
    return p->left + fmin(fmax(share, 0), 1) * (p->right - p->left);
}

static double y_of(const ckpt_curve_picture *p, double over)
{
    return p->bottom - sqrt(fmin(over, p->y_high) / p->y_high) * (p->bottom - p->top);
}

ckpt_point ckpt_curve_at(const ckpt_curve_picture *p, const ckpt_curve_point *point)
{
    return (ckpt_point){x_of(p, (double)point->budget_bytes), y_of(p, ckpt_curve_overhead(p, point->time_ns))};
}

/* The budgets and overheads that the axes span. keep-all is shown unless it is far beyond what was swept. */
static void measure_axes(ckpt_curve_picture *p)
{
    const ckpt_curve *const curve = p->curve;
    const double first = (double)curve->point[0].budget_bytes;
    double top = (double)curve->point[curve->point_count - 1].budget_bytes;
    const double keep_all = (double)curve->keep_all_peak_bytes;
    top = keep_all > top && keep_all < 1.5 * top ? keep_all : top;
    for (int i = 0; i < p->chosen_count; i++) {
        top = fmax(top, fmin((double)p->chosen[i]->budget_bytes, fmax(top, keep_all)));
    }
    p->x_low = first > 0.45 * top ? fmax(0, first - 0.25 * (top - first)) : 0;
    p->x_high = top > p->x_low ? p->x_low + 1.02 * (top - p->x_low) : p->x_low + 1;
    p->bounds = true;
    p->y_high = 0;
    for (int i = 0; i < curve->point_count; i++) {
        p->y_high = fmax(p->y_high, ckpt_curve_overhead(p, curve->point[i].time_ns));
        p->bounds = p->bounds && curve->point[i].has_bound;
    }
    for (int i = 0; i < p->chosen_count; i++) {
        p->y_high = fmax(p->y_high, ckpt_curve_chosen(p->chosen[i]));
    }
    const double most = 4 * fmax(p->y_high, 0.05); /* a baseline that thrashes must not flatten the rest */
    for (int b = 0; b < curve->baseline_count; b++) {
        for (int i = 0; i < curve->baseline[b].point_count; i++) {
            const double over = ckpt_curve_overhead(p, curve->baseline[b].point[i].time_ns);
            p->above += over > most;
            p->y_high = over > most ? p->y_high : fmax(p->y_high, over);
        }
    }
    p->y_high = fmax(1.25 * p->y_high, 0.001);
}

static bool is_narrow(const ckpt_curve_picture *p)
{
    return p->view.canvas.width < 480;
}

static void draw_title(ckpt_curve_picture *p)
{
    ckpt_view *const v = &p->view;
    const ckpt_curve *const curve = p->curve;
    const bool cells = v->canvas.renderer->cells;
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    double y = v->margin + (cells ? 0.5 : 0.6) * v->line;
    const double width = v->canvas.width - 2 * v->margin;
    ckpt_view_words(v, v->margin, y, (ckpt_font){cells ? v->small : 17, true, CKPT_ROLE_BLACK, -1}, width, v->title);
    y += (cells ? 1 : 1.4) * v->line;
    const ckpt_font grey = {12.5, false, CKPT_ROLE_GREY, -1};
    const bool costs = curve->costs != NULL && curve->costs[0] != '\0';
    const char *const takes = CKPT_SAY(v, "keep-all takes %s in %s%s", ckpt_bytes_show(curve->keep_all_peak_bytes, a),
                                       ckpt_ns_show(curve->keep_all_time_ns, b), costs ? "; " : "");
    const double end = ckpt_view_measure(v, grey, takes);
    ckpt_view_words(v, v->margin, y, grey, width, takes);
    ckpt_view_words(v, v->margin + end, y, grey, fmax(0, width - end), costs ? curve->costs : "");
    y += v->line;
    const char *const more = !curve->complete ? "ended early, points are missing" : "";
    const char *const off =
        p->above > 0 ? CKPT_SAY(v, "%s%d point%s of baselines lie%s above the scale", more[0] != '\0' ? "; " : "",
                                p->above, p->above > 1 ? "s" : "", p->above > 1 ? "" : "s")
                     : "";
    const char *const band = p->bounds && curve->point_count > 0 ? "the optimum lies in the band above the bound" : "";
    ckpt_view_words(
        v, v->margin, y, grey, width,
        CKPT_SAY(v, "%s%s%s%s", band, band[0] != '\0' && (more[0] != '\0' || off[0] != '\0') ? "; " : "", more, off));
}

/* 1, 2 or 5 times powers of ten, in percent, as dense as the scale leaves room. Left as overhead, right as time. */
static void draw_scale(ckpt_curve_picture *p)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double apart = cells ? 2 * v->canvas.cell_height : 28;
    const ckpt_font left = {v->small, false, CKPT_ROLE_BLACK, 1}, right = {v->small, false, CKPT_ROLE_GREY, -1};
    const double keep_all = (double)p->curve->keep_all_time_ns;
    static const double mantissa[] = {1, 2, 5};
    double last = p->bottom + 2 * apart;
    char said[CKPT_UNITS_TEXT] = "";
    for (int k = -1; k < 3 * 12; k++) {
        const double over = k < 0 ? 0 : mantissa[k % 3] * pow(10, k / 3 - 6);
        const double y = y_of(p, over);
        if (over > p->y_high || last - y < apart) {
            continue;
        }
        last = y;
        ckpt_view_line(v, p->left, y, p->right, y, (ckpt_pen){CKPT_ROLE_FAINT, 1, 0});
        const int digits = k >= 0 && over < 0.00999 ? (int)ceil(-log10(100 * over) - 1e-9) : 0;
        ckpt_view_words(v, p->left - 8, y, left, CKPT_ANY_WIDTH,
                        CKPT_SAY(v, "%s%.*f %%", k < 0 ? "" : "+", digits, 100 * over));
        char time[CKPT_UNITS_TEXT] = "";
        if (keep_all > 0) {
            (void)ckpt_ns_show((ckpt_ns)fmin(keep_all * (1 + over), 9.2e18), time);
        }
        if (strcmp(time, said) != 0) { /* ticks can lie closer than the digits tell apart */
            ckpt_view_words(v, p->right + 8, y, right, CKPT_ANY_WIDTH, CKPT_SAY(v, "%s", time));
            memcpy(said, time, sizeof said);
        }
    }
}

static void draw_budgets(ckpt_curve_picture *p)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double step = ckpt_tick_step(p->x_high - p->x_low, (int)((p->right - p->left) / (cells ? 96 : 80)), 1);
    for (double at_bytes = ceil(p->x_low / step) * step; at_bytes <= p->x_high; at_bytes += step) {
        char text[CKPT_UNITS_TEXT];
        const double x = x_of(p, at_bytes);
        ckpt_view_line(v, x, p->bottom, x, p->bottom + (cells ? 0 : 4), (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
        ckpt_view_words(v, x, p->bottom + (cells ? 24 : 14), (ckpt_font){v->small, false, CKPT_ROLE_BLACK, 0},
                        CKPT_ANY_WIDTH, CKPT_SAY(v, "%s", ckpt_tick_bytes(at_bytes, step, p->x_high, text)));
    }
    const bool narrow = is_narrow(p);
    ckpt_view_line(v, p->left, p->bottom, p->right, p->bottom, (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
    ckpt_view_words(v, (p->left + p->right) / 2, p->bottom + (cells ? 40 : 34),
                    (ckpt_font){v->small, false, CKPT_ROLE_BLACK, 0}, CKPT_ANY_WIDTH,
                    narrow ? "budget, static block included" : "budget of the step, static block included");
    const double y = p->top - (cells ? 16 : 16);
    ckpt_view_words(v, v->margin, y, (ckpt_font){v->small, false, CKPT_ROLE_BLACK, -1}, CKPT_ANY_WIDTH,
                    narrow ? "over keep-all" : "over keep-all (square-root scale)");
    ckpt_view_words(v, v->canvas.width - v->margin, y, (ckpt_font){v->small, false, CKPT_ROLE_GREY, 1}, CKPT_ANY_WIDTH,
                    "time of a step");
}

/* Below the first point nobody has found a plan, and the static block is never less. */
static void draw_forbidden(ckpt_curve_picture *p)
{
    ckpt_view *const v = &p->view;
    const double minimum = x_of(p, (double)p->curve->point[0].budget_bytes);
    const double block = x_of(p, (double)p->curve->static_bytes);
    ckpt_view_box(v, p->left, p->top, minimum - p->left, p->bottom - p->top, CKPT_ROLE_FAINT);
    if (block > p->left) {
        ckpt_view_box(v, p->left, p->top, block - p->left, p->bottom - p->top, CKPT_ROLE_PARAMETER_GRADIENTS);
    }
    ckpt_view_line(v, minimum, p->top, minimum, p->bottom, (ckpt_pen){CKPT_ROLE_GREY, 1, 0});
}

/* The corners of a step function from the first point to the last. Gives how many. */
static int steps_of(const ckpt_curve_picture *p, bool bound, ckpt_point *point)
{
    int count = 0;
    for (int i = 0; i < p->curve->point_count; i++) {
        const ckpt_curve_point *const from = &p->curve->point[i];
        const ckpt_point to = {x_of(p, (double)from->budget_bytes),
                               y_of(p, ckpt_curve_overhead(p, bound ? from->bound_ns : from->time_ns))};
        if (count > 0) {
            const ckpt_point before = point[count - 1];
            point[count++] = bound ? (ckpt_point){before.x, to.y} : (ckpt_point){to.x, before.y};
        }
        point[count++] = to;
    }
    return count;
}

static void draw_steps(ckpt_curve_picture *p, bool bound, ckpt_pen pen)
{
    const int count = steps_of(p, bound, p->point);
    p->view.canvas.renderer->line(&p->view.canvas, p->point, count, &pen);
}

static void draw_band(ckpt_curve_picture *p)
{
    const int count = steps_of(p, false, p->point);
    ckpt_point *const back = p->point + count;
    const int more = steps_of(p, true, back);
    for (int i = 0; i < more / 2; i++) {
        const ckpt_point swap = back[i];
        back[i] = back[more - 1 - i];
        back[more - 1 - i] = swap;
    }
    if (count > 1) {
        p->view.canvas.renderer->area(&p->view.canvas, p->point, count + more, CKPT_ROLE_OPEN);
    }
}

const char *ckpt_curve_plan_name(const ckpt_plan *plan)
{
    const char *const slash = plan->source != NULL ? strrchr(plan->source, '/') : NULL;
    return plan->source == NULL ? "" : slash != NULL ? slash + 1 : plan->source;
}

/* A ring with a dot, and a line down to its budget. */
static void draw_chosen(ckpt_curve_picture *p, const ckpt_plan *plan)
{
    const ckpt_point centre = {x_of(p, (double)plan->budget_bytes), y_of(p, ckpt_curve_chosen(plan))};
    ckpt_view_line(&p->view, centre.x, centre.y, centre.x, p->bottom, (ckpt_pen){CKPT_ROLE_BLACK, 1, 3});
    ckpt_curve_mark(p, centre, &ckpt_curve_ring, CKPT_ROLE_PAPER);
}

static void draw_keep_all(ckpt_curve_picture *p)
{
    const ckpt_point centre = {x_of(p, (double)p->curve->keep_all_peak_bytes), y_of(p, 0)};
    if ((double)p->curve->keep_all_peak_bytes <= p->x_high) {
        ckpt_view_line(&p->view, centre.x, p->top, centre.x, p->bottom, (ckpt_pen){CKPT_ROLE_WEIGHTS, 1, 4});
        ckpt_curve_mark(p, centre, &ckpt_curve_keep_all, CKPT_ROLE_BLACK);
    }
}

static void draw_curves(ckpt_curve_picture *p)
{
    const ckpt_curve *const curve = p->curve;
    if (p->bounds) {
        draw_band(p);
        draw_steps(p, true, ckpt_curve_bound_pen);
    }
    draw_keep_all(p);
    for (int b = 0; b < ckpt_curve_baselines_shown(curve); b++) {
        ckpt_curve_draw_baseline(p, b);
    }
    draw_steps(p, false, ckpt_curve_planned_pen);
    for (int i = 0; i < curve->point_count; i++) {
        ckpt_curve_mark(p, ckpt_curve_at(p, &curve->point[i]), &ckpt_curve_planned, CKPT_ROLE_ACTIVATIONS);
    }
    for (int i = 0; i < p->chosen_count; i++) {
        draw_chosen(p, p->chosen[i]);
    }
}

static void draw(void *picture)
{
    ckpt_curve_picture *const p = picture;
    ckpt_view *const v = &p->view;
    char text[CKPT_UNITS_TEXT];
    draw_title(p);
    if (p->curve->point_count == 0) {
        ckpt_view_words(v, v->canvas.width / 2, v->canvas.height / 2, (ckpt_font){14, false, CKPT_ROLE_BLACK, 0},
                        v->canvas.width - 2 * v->margin,
                        p->curve->min_budget_bytes > 0 ? CKPT_SAY(v, "no plan fits; one was found for %s",
                                                                  ckpt_bytes_show(p->curve->min_budget_bytes, text))
                                                       : "no plan fits");
        return;
    }
    draw_scale(p);
    draw_forbidden(p);
    draw_curves(p);
    draw_budgets(p);
    ckpt_curve_key_draw(p, v->canvas.height - v->margin - p->entry_rows * v->line);
}

/* Where the axes stand, and what they span. */
static ckpt_code lay_out(ckpt_curve_picture *p, ckpt_err *err)
{
    enum { LEAST_LINES = 12 };
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    p->left = v->margin + (cells ? 72 : 62);
    p->right = v->canvas.width - v->margin - (cells ? 80 : 66);
    p->top = v->margin + (cells ? 5 : 6) * v->line;
    int most = p->curve->point_count;
    for (int b = 0; b < p->curve->baseline_count; b++) {
        most = p->curve->baseline[b].point_count > most ? p->curve->baseline[b].point_count : most;
    }
    p->point = CKPT_NEW(v->canvas.scratch, ckpt_point, 4 * (size_t)most + 4);
    if (p->point == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a curve of %d points", most);
    }
    if (p->curve->point_count > 0) {
        measure_axes(p);
        CKPT_TRY(ckpt_curve_key_make(p, err));
    }
    const double foot = v->margin + (cells ? 48 : 54) + p->entry_rows * v->line;
    v->canvas.height = fmax(v->canvas.height, ceil(p->top + LEAST_LINES * v->line + foot));
    p->bottom = v->canvas.height - foot;
    v->title = CKPT_SAY(v, is_narrow(p) ? "%s: time over budget" : "%s: time of a step over its memory budget",
                        p->curve->graph_name);
    v->about = "Planned times, proved bounds and baselines over the budget";
    return CKPT_OK;
}

/* Plans of another graph, or that hold no schedule, have no place on the curve. */
static ckpt_code check_chosen(const ckpt_curve *curve, const ckpt_plan *const *chosen, int count, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        const bool same = curve->graph_sha256[0] != '\0' ? strcmp(curve->graph_sha256, chosen[i]->graph_sha256) == 0
                                                         : strcmp(curve->graph_name, chosen[i]->graph_name) == 0;
        if (!same || chosen[i]->verdict != CKPT_FITS) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.100s: found a plan %s, wanted one of graph \"%.60s\" that fits",
                             chosen[i]->source, same ? "that does not fit" : "of another graph", curve->graph_name);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_curve_draw(const ckpt_curve *curve, const ckpt_plan *const *chosen, int chosen_count, const char *format,
                          const ckpt_view_options *options, ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_size size = {860, 520, 32, 420, 300, 16};
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_curve_picture p = {.curve = curve, .chosen = chosen, .chosen_count = chosen_count};
    CKPT_TRY(ckpt_view_init(&p.view, format, options, &size, &scratch, err));
    CKPT_TRY(check_chosen(curve, chosen, chosen_count, err));
    ckpt_code code = lay_out(&p, err);
    code = code == CKPT_OK ? ckpt_view_draw_with(&p.view, draw, &p, text, err) : code;
    ckpt_arena_fini(&scratch);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
