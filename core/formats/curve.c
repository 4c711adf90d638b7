/* ckpt-sweep/1 to and from a file, one point a line. Overheads and gaps in it are for people: they are computed when it
 * is written and not believed when it is read. */
#include "core/formats/curve.h"

#include <inttypes.h>

#include "core/json/json_member.h"

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

/* A larger budget never gives a slower plan; of baselines nobody says that. */
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

ckpt_code ckpt_curve_read(const char *path, ckpt_arena *out, const ckpt_curve **curve, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-sweep", &json, &root, err));
    const reader r = {out, CKPT_NEW(out, ckpt_curve, 1), err};
    const ckpt_code code =
        r.curve != NULL ? read_all(&r, &root) : CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", path);
    ckpt_json_close(json);
    if (code == CKPT_OK) {
        *curve = r.curve;
    }
    return code;
}

static void write_point(const ckpt_curve *curve, const ckpt_curve_point *point, ckpt_text *text)
{
    ckpt_text_add(text,
                  "{ \"budget_bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 ", \"arena_bytes\": %" PRId64
                  ", \"time_ns\": %" PRId64 ", \"overhead\": ",
                  point->budget_bytes, point->peak_bytes, point->arena_bytes, point->time_ns);
    ckpt_text_real(text, ckpt_excess(point->time_ns, curve->keep_all_time_ns));
    if (point->has_bound) {
        ckpt_text_add(text, ", \"bound\": { \"time_ns\": %" PRId64 ", \"gap\": ", point->bound_ns);
        ckpt_text_real(text, ckpt_excess(point->time_ns, point->bound_ns));
        ckpt_text_member(text, ", \"how\": ", point->bound_how);
        ckpt_text_member(text, ", \"scope\": ", point->bound_scope);
        ckpt_text_add(text, " }");
    }
    ckpt_text_member(text, ", \"strategy\": ", point->strategy);
    ckpt_text_add(text, " }");
}

static void write_points(const ckpt_curve *curve, const ckpt_curve_point *point, int count, const char *indent,
                         ckpt_text *text)
{
    ckpt_text_add(text, "\"points\": [");
    for (int i = 0; i < count; i++) {
        ckpt_text_add(text, "%s%s  ", i > 0 ? "," : "", indent);
        write_point(curve, &point[i], text);
    }
    ckpt_text_add(text, "%s]", count > 0 ? indent : "");
}

void ckpt_curve_write(const ckpt_curve *curve, ckpt_text *text)
{
    ckpt_text_member(text, "{\n  \"format\": \"ckpt-sweep/1\",\n  \"graph\": { \"name\": ", curve->graph_name);
    if (curve->graph_sha256[0] != '\0') {
        ckpt_text_add(text, ", \"sha256\": \"%s\"", curve->graph_sha256);
    }
    ckpt_text_member(text, " },\n  \"costs\": ", curve->costs);
    ckpt_text_add(text,
                  ",\n  \"static_bytes\": %" PRId64 ", \"keep_all\": { \"peak_bytes\": %" PRId64
                  ", \"time_ns\": %" PRId64 " },\n  ",
                  curve->static_bytes, curve->keep_all_peak_bytes, curve->keep_all_time_ns);
    if (curve->min_budget_bytes > 0) {
        ckpt_text_add(text, "\"least_budget_bytes\": %" PRId64 ", ", curve->min_budget_bytes);
    }
    ckpt_text_add(text, "\"complete\": %s,\n  ", curve->complete ? "true" : "false");
    write_points(curve, curve->point, curve->point_count, "\n  ", text);
    for (int i = 0; i < curve->baseline_count; i++) {
        const ckpt_curve_baseline *const baseline = &curve->baseline[i];
        ckpt_text_member(text, i > 0 ? ",\n    { \"strategy\": " : ",\n  \"baselines\": [\n    { \"strategy\": ",
                         baseline->strategy);
        ckpt_text_add(text, ", ");
        write_points(curve, baseline->point, baseline->point_count, "\n    ", text);
        ckpt_text_add(text, " }");
    }
    ckpt_text_add(text, "%s\n}\n", curve->baseline_count > 0 ? "\n  ]" : "");
}
