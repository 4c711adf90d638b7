/* The curve of a sweep as CSV, JSON and SVG.
 *
 * Between two points the plan of the smaller budget is still one, and the bound of the larger budget still holds: so
 * both are drawn as stairs, and the truth lies in the band between them. */
#include <math.h>
#include <string.h>

#include "planner/answers.h"

static double gap(const ckpt_plan *plan)
{
    return plan->has_bound ? ckpt_excess(plan->time_ns, plan->bound_ns) : 0;
}

void ckpt_sweep_csv(const ckpt_sweep *sweep, ckpt_text *text)
{
    ckpt_text_add(text, "budget_bytes,peak_bytes,time_ns,overhead,bound_ns,gap,strategy\n");
    for (int i = 0; i < sweep->count && sweep->plan[i]->verdict == CKPT_FITS; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        ckpt_text_add(text, "%lld,%lld,%lld,%.6f,", (long long)plan->budget_bytes, (long long)plan->peak_bytes,
                      (long long)plan->time_ns, ckpt_excess(plan->time_ns, plan->keep_all_time_ns));
        if (plan->has_bound) {
            ckpt_text_add(text, "%lld,%.6f", (long long)plan->bound_ns, gap(plan));
        } else {
            ckpt_text_add(text, ",");
        }
        ckpt_text_add(text, ",%s\n", plan->solver);
    }
}

void ckpt_sweep_json(const ckpt_sweep *sweep, ckpt_text *text)
{
    const ckpt_plan *const first = sweep->plan[0];
    ckpt_text_add(text, "{\"graph\": ");
    ckpt_text_json(text, sweep->graph_name);
    ckpt_text_add(text, ", \"static_bytes\": %lld, \"keep_all\": {\"peak_bytes\": %lld, \"time_ns\": %lld},",
                  (long long)first->static_bytes, (long long)first->keep_all_peak_bytes,
                  (long long)first->keep_all_time_ns);
    if (first->verdict == CKPT_INFEASIBLE) {
        ckpt_text_add(text, " \"least_budget_bytes\": %lld,", (long long)first->least_budget_bytes);
    }
    ckpt_text_add(text, " \"costs\": ");
    ckpt_text_json(text, first->costs != NULL ? first->costs : "");
    ckpt_text_add(text, ", \"complete\": %s, \"points\": [", sweep->stopped ? "false" : "true");
    for (int i = 0; i < sweep->count && sweep->plan[i]->verdict == CKPT_FITS; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        ckpt_text_add(text,
                      "%s\n  {\"budget_bytes\": %lld, \"peak_bytes\": %lld, \"arena_bytes\": %lld, \"time_ns\": %lld, "
                      "\"overhead\": %.6f, ",
                      i > 0 ? "," : "", (long long)plan->budget_bytes, (long long)plan->peak_bytes,
                      (long long)plan->arena_bytes, (long long)plan->time_ns,
                      ckpt_excess(plan->time_ns, plan->keep_all_time_ns));
        if (plan->has_bound) {
            ckpt_text_add(text, "\"bound\": {\"time_ns\": %lld, \"gap\": %.6f, \"how\": ", (long long)plan->bound_ns,
                          gap(plan));
            ckpt_text_json(text, plan->bound_how);
            ckpt_text_add(text, ", \"scope\": ");
            ckpt_text_json(text, plan->bound_scope);
            ckpt_text_add(text, "}, ");
        }
        ckpt_text_add(text, "\"strategy\": ");
        ckpt_text_json(text, plan->solver);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(text, "\n]}\n");
}

/* ---- SVG ---- */

enum { WIDTH = 760, HEIGHT = 460, LEFT = 80, RIGHT = 690, TOP = 64, BOTTOM = 392 };

/* A quantity along one side of the picture: divided by `unit` it is what the ticks say. */
typedef struct axis {
    double low, high; /* in units */
    double from, to;  /* in pixels */
    double unit, tick;
    const char *name;
    int digits;
} axis;

static double at(const axis *a, double quantity)
{
    return a->from + (quantity / a->unit - a->low) / (a->high - a->low) * (a->to - a->from);
}

/* The largest unit of which `most` has at least one. */
static void choose_unit(axis *a, double most, const char *const *names, const double *units, int count)
{
    int u = 0;
    while (u + 1 < count && most >= units[u + 1]) {
        u++;
    }
    a->unit = units[u];
    a->name = names[u];
}

/* 1, 2 or 5 times a power of ten, near `step`. */
static double round_step(double step)
{
    const double power = pow(10, floor(log10(step)));
    const double ratio = step / power;
    return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static int digits_of(double step)
{
    return step < 0.9995 ? (int)ceil(-log10(step) - 1e-9) : 0;
}

/* About `wanted` ticks, with which the axis begins and ends. */
static void choose_ticks(axis *a, double low, double high, int wanted)
{
    const double span = high > low ? (high - low) / a->unit : high > 0 ? high / a->unit : 1;
    a->tick = round_step(span / wanted);
    a->low = floor(low / a->unit / a->tick + 1e-9) * a->tick;
    a->high = ceil(high / a->unit / a->tick - 1e-9) * a->tick;
    a->high = a->high > a->low ? a->high : a->low + a->tick;
    a->digits = digits_of(a->tick);
}

static void add_label(ckpt_text *text, double x, double y, const char *anchor, const char *more)
{
    ckpt_text_add(text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more);
}

/* On the right the same axis in percent over keep-all. */
static void add_overheads(ckpt_text *text, const axis *y, ckpt_ns keep_all)
{
    if (keep_all <= 0) {
        return;
    }
    const double low = 100 * (y->low * y->unit / (double)keep_all - 1);
    const double high = 100 * (y->high * y->unit / (double)keep_all - 1);
    const double step = round_step((high - low) / 6);
    for (double k = ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
        const double py = at(y, (double)keep_all * (1 + k * step / 100));
        ckpt_text_add(text, "<path d=\"M%d %.1f h5\" stroke=\"#666\"/>\n", RIGHT, py);
        add_label(text, RIGHT + 8, py + 4, "start", " fill=\"#666\"");
        ckpt_text_add(text, "%+.*f %%</text>\n", digits_of(step), k * step + 0.0);
    }
    add_label(text, RIGHT + 66, TOP - 10, "end", " fill=\"#666\"");
    ckpt_text_add(text, "over keep-all</text>\n");
}

static void add_axes(ckpt_text *text, const axis *x, const axis *y, ckpt_ns keep_all)
{
    for (int i = 0; x->low + i * x->tick <= x->high + x->tick / 2; i++) {
        const double value = x->low + i * x->tick;
        const double px = at(x, value * x->unit);
        ckpt_text_add(text, "<path d=\"M%.1f %d V%d\" stroke=\"#e4e4e4\"/>\n", px, TOP, BOTTOM);
        add_label(text, px, BOTTOM + 18, "middle", "");
        ckpt_text_add(text, "%.*f</text>\n", x->digits, value);
    }
    for (int i = 0; y->low + i * y->tick <= y->high + y->tick / 2; i++) {
        const double value = y->low + i * y->tick;
        const double py = at(y, value * y->unit);
        ckpt_text_add(text, "<path d=\"M%d %.1f H%d\" stroke=\"#e4e4e4\"/>\n", LEFT, py, RIGHT);
        add_label(text, LEFT - 8, py + 4, "end", "");
        ckpt_text_add(text, "%.*f</text>\n", y->digits, value);
    }
    add_overheads(text, y, keep_all);
    ckpt_text_add(text, "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
    add_label(text, (LEFT + RIGHT) / 2.0, BOTTOM + 42, "middle", "");
    ckpt_text_add(text, "budget in %s</text>\n", x->name);
    add_label(text, LEFT, TOP - 10, "end", "");
    ckpt_text_add(text, "step in %s</text>\n", y->name);
}

/* Stairs through all points, from the first to the last: M ... H V H V. `bound`: that of the plans, else their times.
 */
static void add_stairs(ckpt_text *text, const ckpt_sweep *sweep, const axis *x, const axis *y, bool bound)
{
    for (int i = 0; i < sweep->count; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        const double px = at(x, (double)plan->budget_bytes);
        const double py = at(y, (double)(bound ? plan->bound_ns : plan->time_ns));
        if (i == 0) {
            ckpt_text_add(text, "M%.1f %.1f", px, py);
        } else if (bound) {
            ckpt_text_add(text, " V%.1f H%.1f", py, px);
        } else {
            ckpt_text_add(text, " H%.1f V%.1f", px, py);
        }
    }
}

/* The band: along the times, then back along the bounds. */
static void add_band(ckpt_text *text, const ckpt_sweep *sweep, const axis *x, const axis *y)
{
    ckpt_text_add(text, "<path d=\"");
    add_stairs(text, sweep, x, y, false);
    for (int i = sweep->count - 1; i >= 0; i--) {
        ckpt_text_add(text, " V%.1f", at(y, (double)sweep->plan[i]->bound_ns));
        ckpt_text_add(text, " H%.1f", at(x, (double)sweep->plan[i > 0 ? i - 1 : 0]->budget_bytes));
    }
    ckpt_text_add(text, " Z\" fill=\"#d9822b\" fill-opacity=\"0.12\"/>\n");
}

static void add_curves(ckpt_text *text, const ckpt_sweep *sweep, const axis *x, const axis *y, bool bounds)
{
    if (bounds) {
        add_band(text, sweep, x, y);
        ckpt_text_add(text, "<path d=\"");
        add_stairs(text, sweep, x, y, true);
        ckpt_text_add(text, "\" fill=\"none\" stroke=\"#d9822b\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>\n");
    }
    ckpt_text_add(text, "<path d=\"");
    add_stairs(text, sweep, x, y, false);
    ckpt_text_add(text, "\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n");
    for (int i = 0; i < sweep->count; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        char budget[CKPT_UNITS_TEXT];
        char time[CKPT_UNITS_TEXT];
        ckpt_text_add(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#1f5fa8\"><title>%s: %s (%+.2f %%), gap ",
                      at(x, (double)plan->budget_bytes), at(y, (double)plan->time_ns),
                      ckpt_bytes_show(plan->budget_bytes, budget), ckpt_ns_show(plan->time_ns, time),
                      100 * ckpt_excess(plan->time_ns, plan->keep_all_time_ns));
        ckpt_text_add(text, plan->has_bound ? "%.2f %%</title></circle>\n" : "unknown</title></circle>\n",
                      100 * gap(plan));
    }
}

/* `all`: the bounds hold for all schedules. */
static void add_legend(ckpt_text *text, bool bounds, bool all)
{
    const int x = RIGHT - 210;
    ckpt_text_add(text, "<path d=\"M%d %d h24\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n", x, TOP + 14);
    add_label(text, x + 30, TOP + 18, "start", "");
    ckpt_text_add(text, "plan</text>\n");
    if (bounds) {
        ckpt_text_add(text,
                      "<path d=\"M%d %d h24\" stroke=\"#d9822b\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>\n", x,
                      TOP + 34);
        add_label(text, x + 30, TOP + 38, "start", "");
        ckpt_text_add(text, "%s</text>\n", all ? "bound: no schedule is faster" : "bound: none in its scope is faster");
        ckpt_text_add(text,
                      "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"10\" fill=\"#d9822b\" fill-opacity=\"0.12\"/>\n",
                      x, TOP + 49);
        add_label(text, x + 30, TOP + 58, "start", "");
        ckpt_text_add(text, "the optimum lies between</text>\n");
    }
}

void ckpt_sweep_svg(const ckpt_sweep *sweep, ckpt_text *text)
{
    static const char *const bytes_names[] = {"B", "kB", "MB", "GB", "TB"};
    static const double bytes_units[] = {1, 1e3, 1e6, 1e9, 1e12};
    static const char *const ns_names[] = {"ns", "µs", "ms", "s"};
    static const double ns_units[] = {1, 1e3, 1e6, 1e9};
    const int count = sweep->plan[0]->verdict == CKPT_FITS ? sweep->count : 0;
    const ckpt_plan *const first = sweep->plan[0];
    const ckpt_plan *const last = sweep->plan[sweep->count - 1];
    char keep_all[CKPT_UNITS_TEXT];
    char peak[CKPT_UNITS_TEXT];
    bool bounds = count > 0;
    bool all = bounds;
    double lowest = (double)first->keep_all_time_ns;
    for (int i = 0; i < count; i++) {
        bounds = bounds && sweep->plan[i]->has_bound;
        all = all && bounds && strcmp(sweep->plan[i]->bound_scope, "all") == 0;
        lowest = fmin(lowest, (double)sweep->plan[i]->time_ns);
    }
    for (int i = 0; bounds && i < count; i++) {
        lowest = fmin(lowest, (double)sweep->plan[i]->bound_ns);
    }
    ckpt_text_add(text,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    add_label(text, WIDTH / 2.0, 22, "middle", " font-size=\"16\"");
    ckpt_text_xml(text, sweep->graph_name);
    ckpt_text_add(text, ": time of a step over its memory budget</text>\n");
    add_label(text, WIDTH / 2.0, 40, "middle", " fill=\"#666\"");
    ckpt_text_add(text, "keep-all: %s, %s%s</text>\n", ckpt_ns_show(first->keep_all_time_ns, keep_all),
                  ckpt_bytes_show(first->keep_all_peak_bytes, peak),
                  count == 0       ? "; no plan fits"
                  : sweep->stopped ? "; ended early, points are missing"
                                   : "");
    if (count > 0) {
        axis x = {.from = LEFT, .to = RIGHT};
        axis y = {.from = BOTTOM, .to = TOP};
        choose_unit(&x, (double)last->budget_bytes, bytes_names, bytes_units, 5);
        choose_ticks(&x, (double)first->budget_bytes, (double)last->budget_bytes, 7);
        choose_unit(&y, (double)first->time_ns, ns_names, ns_units, 4);
        choose_ticks(&y, lowest, (double)first->time_ns, 6);
        add_axes(text, &x, &y, first->keep_all_time_ns);
        add_curves(text, sweep, &x, &y, bounds);
        add_legend(text, bounds, all);
    }
    ckpt_text_add(text, "</svg>\n");
}
