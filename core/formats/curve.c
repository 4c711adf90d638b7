/* ckpt-sweep/1 to and from a file, one point a line. Overheads and gaps in it are for people: they are computed when it
 * is written and not believed when it is read. */
#include "core/formats/curve.h"

#include <inttypes.h>

#include "core/json/json_member.h"
#include "core/json/json_write.h"

typedef struct reader {
    ckpt_arena *out;
    ckpt_curve *curve;
    ckpt_err *err;
} reader;

static ckpt_code no_memory(const reader *r, const char *what, int count)
{
    return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d %s", r->curve->source, count, what);
}

static ckpt_code read_graph(const reader *r, const ckpt_item *root)
{
    ckpt_item graph;
    ckpt_item digest;
    CKPT_TRY(ckpt_item_need(root, "graph", &graph, r->err));
    CKPT_TRY(ckpt_need_text(&graph, "name", r->out, &r->curve->graph_name, r->err));
    return !ckpt_item_find(&graph, "sha256", &digest)
               ? CKPT_OK
               : ckpt_need_digest(&graph, "sha256", r->out, r->curve->graph_sha256, r->err);
}

static ckpt_code read_bound(const reader *r, const ckpt_item *item, ckpt_curve_point *point)
{
    ckpt_item bound;
    point->bound_how = point->bound_scope = "";
    if (!ckpt_item_find(item, "bound", &bound)) {
        return CKPT_OK;
    }
    point->has_bound = true;
    CKPT_TRY(ckpt_need_int(&bound, "time_ns", 0, point->time_ns, &point->bound_ns, r->err));
    CKPT_TRY(ckpt_member_text(&bound, "how", "", r->out, &point->bound_how, r->err));
    return ckpt_member_text(&bound, "scope", "", r->out, &point->bound_scope, r->err);
}

/* `before`: the point with the next smaller budget; NULL: this is the first. */
static ckpt_code read_point(const reader *r, const ckpt_item *item, const ckpt_curve_point *before,
                            ckpt_curve_point *point)
{
    const ckpt_bytes least = r->curve->static_bytes;
    CKPT_TRY(ckpt_need_int(item, "budget_bytes", least, INT64_MAX, &point->budget_bytes, r->err));
    CKPT_TRY(ckpt_need_int(item, "peak_bytes", least, point->budget_bytes, &point->peak_bytes, r->err));
    CKPT_TRY(ckpt_need_int(item, "arena_bytes", 0, point->budget_bytes - least, &point->arena_bytes, r->err));
    CKPT_TRY(ckpt_need_int(item, "time_ns", 0, INT64_MAX, &point->time_ns, r->err));
    if (before != NULL && point->budget_bytes <= before->budget_bytes) {
        return ckpt_item_fail(item, r->err, "found a budget of %" PRId64 " after %" PRId64 ", wanted rising budgets",
                              point->budget_bytes, before->budget_bytes);
    }
    CKPT_TRY(read_bound(r, item, point));
    return ckpt_member_text(item, "strategy", "", r->out, &point->strategy, r->err);
}

static ckpt_code read_points(const reader *r, const ckpt_item *parent, const ckpt_curve_point **points, int *count)
{
    ckpt_item array;
    CKPT_TRY(ckpt_need_array(parent, "points", &array, count, r->err));
    ckpt_curve_point *const point = CKPT_NEW(r->out, ckpt_curve_point, *count);
    if (point == NULL) {
        return no_memory(r, "points", *count);
    }
    for (int i = 0; i < *count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_point(r, &item, i > 0 ? &point[i - 1] : NULL, &point[i]));
    }
    *points = point;
    return CKPT_OK;
}

/* A larger budget never gives a slower plan, except from a baseline. */
static ckpt_code read_curve(const reader *r, const ckpt_item *root)
{
    ckpt_curve *const curve = r->curve;
    ckpt_item array;
    CKPT_TRY(read_points(r, root, &curve->point, &curve->point_count));
    for (int i = 1; i < curve->point_count; i++) {
        if (curve->point[i].time_ns > curve->point[i - 1].time_ns) {
            ckpt_item points;
            ckpt_item item;
            (void)ckpt_item_find(root, "points", &points);
            ckpt_item_at(&points, i, &item);
            return ckpt_item_fail(&item, r->err,
                                  "found %" PRId64 " ns after %" PRId64 ", wanted no point slower than one before it",
                                  curve->point[i].time_ns, curve->point[i - 1].time_ns);
        }
    }
    CKPT_TRY(ckpt_member_array(root, "baselines", &array, &curve->baseline_count, r->err));
    ckpt_curve_baseline *const baseline = CKPT_NEW(r->out, ckpt_curve_baseline, curve->baseline_count);
    if (baseline == NULL) {
        return no_memory(r, "baselines", curve->baseline_count);
    }
    for (int i = 0; i < curve->baseline_count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_need_text(&item, "strategy", r->out, &baseline[i].strategy, r->err));
        CKPT_TRY(read_points(r, &item, &baseline[i].point, &baseline[i].point_count));
    }
    curve->baseline = baseline;
    return CKPT_OK;
}

static ckpt_code read_all(const reader *r, const ckpt_item *root)
{
    ckpt_curve *const curve = r->curve;
    ckpt_item keep_all;
    curve->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (curve->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(read_graph(r, root));
    CKPT_TRY(ckpt_member_text(root, "costs", "", r->out, &curve->costs, r->err));
    CKPT_TRY(ckpt_need_int(root, "static_bytes", 0, INT64_MAX, &curve->static_bytes, r->err));
    CKPT_TRY(ckpt_item_need(root, "keep_all", &keep_all, r->err));
    CKPT_TRY(
        ckpt_need_int(&keep_all, "peak_bytes", curve->static_bytes, INT64_MAX, &curve->keep_all_peak_bytes, r->err));
    CKPT_TRY(ckpt_need_int(&keep_all, "time_ns", 0, INT64_MAX, &curve->keep_all_time_ns, r->err));
    CKPT_TRY(ckpt_member_int(root, "least_budget_bytes", 0, INT64_MAX, 0, &curve->min_budget_bytes, r->err));
    CKPT_TRY(ckpt_member_bool(root, "complete", true, &curve->complete, r->err));
    return read_curve(r, root);
}

ckpt_code ckpt_curve_item(const ckpt_item *root, ckpt_arena *out, const ckpt_curve **curve, ckpt_err *err)
{
    const reader r = {out, CKPT_NEW(out, ckpt_curve, 1), err};
    if (r.curve == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    }
    CKPT_TRY(read_all(&r, root));
    *curve = r.curve;
    return CKPT_OK;
}

ckpt_code ckpt_curve_read(const char *path, ckpt_arena *out, const ckpt_curve **curve, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-sweep", &json, &root, err));
    const ckpt_code code = ckpt_curve_item(&root, out, curve, err);
    ckpt_json_close(json);
    return code;
}

static void write_points(const ckpt_curve *curve, const ckpt_curve_point *point, int count, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "points", CKPT_JSON_ROWS);
    for (int i = 0; i < count; i++) {
        const ckpt_curve_point *const p = &point[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        CKPT_JSON_INTS(w, {"budget_bytes", p->budget_bytes}, {"peak_bytes", p->peak_bytes},
                       {"arena_bytes", p->arena_bytes}, {"time_ns", p->time_ns});
        ckpt_json_put_real(w, "overhead", ckpt_excess(p->time_ns, curve->keep_all_time_ns));
        if (p->has_bound) {
            ckpt_json_begin_object(w, "bound", CKPT_JSON_LINE);
            ckpt_json_put_int(w, "time_ns", p->bound_ns);
            ckpt_json_put_real(w, "gap", ckpt_excess(p->time_ns, p->bound_ns));
            ckpt_json_put_or_empty(w, "how", p->bound_how);
            ckpt_json_put_or_empty(w, "scope", p->bound_scope);
            ckpt_json_end(w);
        }
        ckpt_json_put_or_empty(w, "strategy", p->strategy);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void write_head(const ckpt_curve *curve, ckpt_json_writer *w)
{
    ckpt_json_put_text(w, "format", "ckpt-sweep/1");
    ckpt_json_begin_object(w, "graph", CKPT_JSON_LINE);
    ckpt_json_put_or_empty(w, "name", curve->graph_name);
    ckpt_json_put_given(w, "sha256", curve->graph_sha256);
    ckpt_json_end(w);
    ckpt_json_put_or_empty(w, "costs", curve->costs);
    ckpt_json_put_int(w, "static_bytes", curve->static_bytes);
    ckpt_json_join(w);
    ckpt_json_begin_object(w, "keep_all", CKPT_JSON_LINE);
    CKPT_JSON_INTS(w, {"peak_bytes", curve->keep_all_peak_bytes}, {"time_ns", curve->keep_all_time_ns});
    ckpt_json_end(w);
    if (curve->min_budget_bytes > 0) {
        ckpt_json_put_int(w, "least_budget_bytes", curve->min_budget_bytes);
        ckpt_json_join(w);
    }
    ckpt_json_put_bool(w, "complete", curve->complete);
}

void ckpt_curve_write(const ckpt_curve *curve, ckpt_text *text)
{
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    write_head(curve, &w);
    write_points(curve, curve->point, curve->point_count, &w);
    if (curve->baseline_count > 0) {
        ckpt_json_begin_array(&w, "baselines", CKPT_JSON_LINES);
        for (int i = 0; i < curve->baseline_count; i++) {
            const ckpt_curve_baseline *const baseline = &curve->baseline[i];
            ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINE);
            ckpt_json_put_or_empty(&w, "strategy", baseline->strategy);
            write_points(curve, baseline->point, baseline->point_count, &w);
            ckpt_json_end(&w);
        }
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
}
