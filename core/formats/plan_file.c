/* ckpt-plan/1 to and from a file. Checked are the form and that a plan agrees with itself: whether the
 * steps are legal is ckpt_plan_check's. */
#include <inttypes.h>
#include <string.h>

#include "core/formats/machine.h"
#include "core/formats/outline_impl.h"
#include "core/formats/plan_impl.h"
#include "core/json/json_member.h"
#include "core/json/json_write.h"

typedef struct reader {
    ckpt_arena *out;
    ckpt_plan *plan;
    ckpt_err *err;
} reader;

static ckpt_code no_memory(const reader *r, const char *what, int count)
{
    return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d %s", r->plan->source, count, what);
}

static ckpt_code read_graph(const reader *r, const ckpt_item *root)
{
    ckpt_item graph;
    CKPT_TRY(ckpt_item_need(root, "graph", &graph, r->err));
    CKPT_TRY(ckpt_need_text(&graph, "name", r->out, &r->plan->graph_name, r->err));
    CKPT_TRY(ckpt_need_digest(&graph, "sha256", r->out, r->plan->graph_sha256, r->err));
    return ckpt_outline_read(&graph, r->out, &r->plan->outline, r->err);
}

static ckpt_code read_options(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(root, "options", &array, &count, r->err));
    const char **const option = CKPT_NEW(r->out, const char *, count);
    if (option == NULL) {
        return no_memory(r, "options", count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_item_text(&item, r->out, &option[i], r->err));
    }
    r->plan->option = option;
    r->plan->option_count = count;
    return CKPT_OK;
}

static ckpt_code read_verdict(const reader *r, const ckpt_item *root)
{
    ckpt_item item;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(root, "verdict", &item, r->err));
    CKPT_TRY(ckpt_item_text(&item, r->out, &text, r->err));
    if (strcmp(text, "fits") == 0) {
        r->plan->verdict = CKPT_FITS;
        return CKPT_OK;
    }
    if (strcmp(text, "infeasible") != 0) {
        return ckpt_item_fail(&item, r->err, "found verdict \"%.40s\", wanted fits or infeasible", text);
    }
    r->plan->verdict = CKPT_INFEASIBLE;
    CKPT_TRY(ckpt_need_int(root, "least_budget_bytes", 0, INT64_MAX, &r->plan->min_budget_bytes, r->err));
    return ckpt_member_int(root, "no_schedule_below_bytes", 0, INT64_MAX, 0, &r->plan->no_schedule_below_bytes, r->err);
}

static ckpt_code read_summary(const reader *r, const ckpt_item *root)
{
    ckpt_plan *const plan = r->plan;
    ckpt_bytes taken = 0;
    ckpt_item summary;
    ckpt_item keep_all;
    CKPT_TRY(ckpt_item_need(root, "summary", &summary, r->err));
    CKPT_TRY(ckpt_need_int(&summary, "peak_bytes", 0, INT64_MAX, &plan->peak_bytes, r->err));
    CKPT_TRY(ckpt_need_int(&summary, "static_bytes", 0, INT64_MAX, &plan->static_bytes, r->err));
    CKPT_TRY(ckpt_need_int(&summary, "arena_bytes", 0, INT64_MAX, &plan->arena_bytes, r->err));
    if (!ckpt_sum(plan->static_bytes, plan->arena_bytes, &taken)) {
        const ckpt_code code = CKPT_FAIL(r->err, CKPT_OVERFLOW, "static_bytes and arena_bytes do not fit 63 bits");
        return ckpt_item_blame(&summary, code, r->err);
    }
    CKPT_TRY(ckpt_need_int(&summary, "time_ns", 0, INT64_MAX, &plan->time_ns, r->err));
    CKPT_TRY(ckpt_member_int(&summary, "recompute_ns", 0, INT64_MAX, 0, &plan->recompute_ns, r->err));
    CKPT_TRY(ckpt_member_int(&summary, "offload_bytes", 0, INT64_MAX, 0, &plan->offload_bytes, r->err));
    CKPT_TRY(ckpt_member_int(&summary, "host_bytes", 0, INT64_MAX, 0, &plan->host_bytes, r->err));
    if (!ckpt_item_find(&summary, "keep_all", &keep_all)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_need_int(&keep_all, "peak_bytes", 0, INT64_MAX, &plan->keep_all_peak_bytes, r->err));
    return ckpt_need_int(&keep_all, "time_ns", 0, INT64_MAX, &plan->keep_all_time_ns, r->err);
}

static ckpt_code read_target(const reader *r, const ckpt_item *root)
{
    ckpt_plan *const plan = r->plan;
    int64_t threads = 0;
    ckpt_item item;
    CKPT_TRY(ckpt_member_target(root, r->out, &plan->gpu, r->err));
    CKPT_TRY(ckpt_member_int(root, "threads", 0, CKPT_THREADS_MAX, 0, &threads, r->err));
    if (plan->gpu && threads > 0) {
        (void)ckpt_item_find(root, "threads", &item);
        return ckpt_item_fail(&item, r->err, "found threads in a plan for a GPU");
    }
    plan->threads = (int)threads;
    return ckpt_scheme_read(root, r->out, &plan->scheme, r->err);
}

static ckpt_code read_bound_solver(const reader *r, const ckpt_item *root)
{
    ckpt_plan *const plan = r->plan;
    ckpt_item item;
    plan->bound_how = plan->bound_scope = plan->solver = "";
    if (ckpt_item_find(root, "bound", &item)) {
        plan->has_bound = true;
        CKPT_TRY(ckpt_need_int(&item, "time_ns", 0, INT64_MAX, &plan->bound_ns, r->err));
        CKPT_TRY(ckpt_member_text(&item, "how", "", r->out, &plan->bound_how, r->err));
        CKPT_TRY(ckpt_member_text(&item, "scope", "", r->out, &plan->bound_scope, r->err));
    }
    if (ckpt_item_find(root, "solver", &item)) {
        ckpt_item seconds;
        CKPT_TRY(ckpt_need_text(&item, "name", r->out, &plan->solver, r->err));
        if (ckpt_item_find(&item, "seconds", &seconds)) {
            CKPT_TRY(ckpt_item_real(&seconds, &plan->solver_seconds, r->err));
        }
    }
    CKPT_TRY(read_target(r, root));
    return ckpt_member_text(root, "costs", "", r->out, &plan->costs, r->err);
}

static ckpt_code read_layers(const reader *r, const ckpt_item *root)
{
    ckpt_item layers;
    if (!ckpt_item_find(root, "layers", &layers)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_object(&layers, r->err));
    const int count = ckpt_item_count(&layers);
    ckpt_layer_decision *const layer = CKPT_NEW(r->out, ckpt_layer_decision, count);
    if (layer == NULL) {
        return no_memory(r, "layers", count);
    }
    ckpt_item item;
    int k = 0;
    for (int i = 0; ckpt_item_next(&layers, &i, &item); k++) {
        const char *text = "";
        layer[k].layer = ckpt_arena_text(r->out, item.key);
        if (layer[k].layer == NULL) {
            return no_memory(r, "layers", count);
        }
        CKPT_TRY(ckpt_item_text(&item, r->out, &text, r->err));
        int d = CKPT_KEEP;
        while (d <= CKPT_OFFLOADED && strcmp(text, ckpt_decision_name((ckpt_decision)d)) != 0) {
            d++;
        }
        if (d > CKPT_OFFLOADED) {
            return ckpt_item_fail(&item, r->err, "found \"%.40s\", wanted keep, recompute or offload", text);
        }
        layer[k].decision = (ckpt_decision)d;
    }
    r->plan->layer = layer;
    r->plan->layer_count = count;
    return CKPT_OK;
}

static ckpt_code read_algorithms(const reader *r, const ckpt_item *root)
{
    ckpt_item layers, item;
    if (!ckpt_item_find(root, "algorithms", &layers)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_object(&layers, r->err));
    const int count = ckpt_item_count(&layers);
    ckpt_layer_algorithms *const at = CKPT_NEW(r->out, ckpt_layer_algorithms, count);
    if (at == NULL) {
        return no_memory(r, "algorithms", count);
    }
    int k = 0;
    for (int i = 0; ckpt_item_next(&layers, &i, &item); k++) {
        at[k].layer = ckpt_arena_text(r->out, item.key);
        if (at[k].layer == NULL) {
            return no_memory(r, "algorithms", count);
        }
        CKPT_TRY(ckpt_item_text(&item, r->out, &at[k].algorithms, r->err));
    }
    r->plan->algorithms = at;
    r->plan->algorithms_count = count;
    return CKPT_OK;
}

static ckpt_code read_step(const reader *r, const ckpt_item *item, ckpt_step *step)
{
    int verbs = 0;
    step->target = -1;
    CKPT_TRY(ckpt_item_object(item, r->err));
    for (int k = CKPT_RUN; k <= CKPT_FETCH; k++) {
        ckpt_item name;
        if (ckpt_item_find(item, ckpt_step_kind_name((ckpt_step_kind)k), &name)) {
            step->kind = (ckpt_step_kind)k;
            CKPT_TRY(ckpt_item_text(&name, r->out, &step->name, r->err));
            verbs++;
        }
    }
    if (verbs != 1) {
        return ckpt_item_fail(item, r->err, "found a step with %d of run, free, offload, fetch; wanted exactly one",
                              verbs);
    }
    CKPT_TRY(ckpt_member_bool(item, "again", false, &step->recomputed, r->err));
    CKPT_TRY(ckpt_member_bool(item, "inplace", false, &step->inplace, r->err));
    CKPT_TRY(ckpt_member_text(item, "variant", NULL, r->out, &step->variant, r->err));
    bool exact = true;
    CKPT_TRY(ckpt_member_bool(item, "exact", true, &exact, r->err));
    step->inexact = !exact;
    if (step->kind != CKPT_RUN && (step->recomputed || step->inplace || step->inexact || step->variant != NULL)) {
        return ckpt_item_fail(item, r->err, "found \"%s\" on a step that is no run",
                              step->recomputed        ? "again"
                              : step->inplace         ? "inplace"
                              : step->variant != NULL ? "variant"
                                                      : "exact");
    }
    return CKPT_OK;
}

static ckpt_code read_steps(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(r->plan->verdict == CKPT_FITS ? ckpt_need_array(root, "steps", &array, &count, r->err)
                                           : ckpt_member_array(root, "steps", &array, &count, r->err));
    ckpt_step *const step = CKPT_NEW(r->out, ckpt_step, count);
    if (step == NULL) {
        return no_memory(r, "steps", count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_step(r, &item, &step[i]));
    }
    r->plan->step = step;
    r->plan->step_count = count;
    return CKPT_OK;
}

static ckpt_code read_place(const reader *r, const ckpt_item *item, ckpt_allocation *allocation)
{
    const int64_t last = r->plan->step_count - 1;
    int64_t from = 0;
    int64_t to = 0;
    ckpt_bytes end = 0;
    allocation->buffer = -1;
    CKPT_TRY(ckpt_need_text(item, "what", r->out, &allocation->name, r->err));
    CKPT_TRY(ckpt_need_int(item, "from", 0, last, &from, r->err));
    CKPT_TRY(ckpt_need_int(item, "to", from, last, &to, r->err));
    CKPT_TRY(ckpt_need_int(item, "offset", 0, INT64_MAX, &allocation->offset, r->err));
    CKPT_TRY(ckpt_need_int(item, "bytes", 0, INT64_MAX, &allocation->bytes, r->err));
    if (!ckpt_sum(allocation->offset, allocation->bytes, &end) || end > r->plan->arena_bytes) {
        return ckpt_item_fail(item, r->err,
                              "place of \"%.60s\": offset %" PRId64 " and %" PRId64
                              " bytes end beyond the arena of %" PRId64 " bytes",
                              allocation->name, allocation->offset, allocation->bytes, r->plan->arena_bytes);
    }
    allocation->from = (int)from;
    allocation->to = (int)to;
    return CKPT_OK;
}

static ckpt_code read_places(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(r->plan->verdict == CKPT_FITS ? ckpt_need_array(root, "places", &array, &count, r->err)
                                           : ckpt_member_array(root, "places", &array, &count, r->err));
    ckpt_allocation *const allocation = CKPT_NEW(r->out, ckpt_allocation, count);
    if (allocation == NULL) {
        return no_memory(r, "places", count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_place(r, &item, &allocation[i]));
    }
    r->plan->allocation = allocation;
    r->plan->allocation_count = count;
    return CKPT_OK;
}

static ckpt_code read_plan(const reader *r, const ckpt_item *root)
{
    ckpt_plan *const plan = r->plan;
    plan->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (plan->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(read_graph(r, root));
    CKPT_TRY(ckpt_need_int(root, "budget_bytes", 0, INT64_MAX, &plan->budget_bytes, r->err));
    CKPT_TRY(ckpt_member_int(root, "reserve_bytes", 0, INT64_MAX, 0, &plan->reserve_bytes, r->err));
    CKPT_TRY(read_verdict(r, root));
    CKPT_TRY(ckpt_member_bool(root, "reordered", false, &plan->reordered, r->err));
    CKPT_TRY(read_summary(r, root));
    CKPT_TRY(read_bound_solver(r, root));
    CKPT_TRY(read_layers(r, root));
    CKPT_TRY(read_algorithms(r, root));
    CKPT_TRY(read_options(r, root));
    CKPT_TRY(read_steps(r, root));
    CKPT_TRY(read_places(r, root));
    return ckpt_plan_check_itself(plan, root, r->err);
}

ckpt_code ckpt_plan_item(const ckpt_item *root, ckpt_arena *out, ckpt_plan **plan, ckpt_err *err)
{
    const reader r = {out, CKPT_NEW(out, ckpt_plan, 1), err};
    if (r.plan == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    }
    CKPT_TRY(read_plan(&r, root));
    *plan = r.plan;
    return CKPT_OK;
}

ckpt_code ckpt_plan_read(const char *path, ckpt_arena *out, ckpt_plan **plan, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-plan", &json, &root, err));
    const ckpt_code code = ckpt_plan_item(&root, out, plan, err);
    ckpt_json_close(json);
    return code;
}

static void write_verdict(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_put_int(w, "budget_bytes", plan->budget_bytes);
    if (plan->reserve_bytes > 0) {
        ckpt_json_put_int(w, "reserve_bytes", plan->reserve_bytes);
    }
    ckpt_json_put_text(w, "verdict", plan->verdict == CKPT_FITS ? "fits" : "infeasible");
    if (plan->verdict == CKPT_INFEASIBLE) {
        ckpt_json_put_int(w, "least_budget_bytes", plan->min_budget_bytes);
        if (plan->no_schedule_below_bytes > 0) {
            ckpt_json_put_int(w, "no_schedule_below_bytes", plan->no_schedule_below_bytes);
        }
    }
    if (plan->reordered) {
        ckpt_json_put_bool(w, "reordered", true);
    }
}

static void write_summary(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "summary", CKPT_JSON_LINE);
    CKPT_JSON_INTS(w, {"peak_bytes", plan->peak_bytes}, {"static_bytes", plan->static_bytes},
                   {"arena_bytes", plan->arena_bytes}, {"time_ns", plan->time_ns},
                   {"recompute_ns", plan->recompute_ns});
    ckpt_json_break(w, 4);
    CKPT_JSON_INTS(w, {"offload_bytes", plan->offload_bytes}, {"host_bytes", plan->host_bytes});
    ckpt_json_begin_object(w, "keep_all", CKPT_JSON_LINE);
    CKPT_JSON_INTS(w, {"peak_bytes", plan->keep_all_peak_bytes}, {"time_ns", plan->keep_all_time_ns});
    ckpt_json_end(w);
    ckpt_json_end(w);
}

static void write_bound_solver(const ckpt_plan *plan, ckpt_json_writer *w)
{
    if (plan->has_bound) {
        ckpt_json_begin_object(w, "bound", CKPT_JSON_LINE);
        ckpt_json_put_int(w, "time_ns", plan->bound_ns);
        ckpt_json_put_real(w, "gap",
                           plan->bound_ns > 0 && plan->time_ns > plan->bound_ns
                               ? (double)(plan->time_ns - plan->bound_ns) / (double)plan->bound_ns
                               : 0.0);
        ckpt_json_put_or_empty(w, "how", plan->bound_how);
        ckpt_json_put_or_empty(w, "scope", plan->bound_scope);
        ckpt_json_end(w);
    }
    ckpt_json_begin_object(w, "solver", CKPT_JSON_LINE);
    ckpt_json_put_or_empty(w, "name", plan->solver);
    ckpt_json_put_real(w, "seconds", plan->solver_seconds);
    ckpt_json_end(w);
}

/* What the plan is for, and what made it. */
static void write_origin(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_put_or_empty(w, "costs", plan->costs);
    if (plan->gpu) {
        ckpt_json_put_text(w, "target", "gpu");
    } else if (plan->threads > 0) {
        ckpt_json_put_text(w, "target", "cpu");
        ckpt_json_join(w);
        ckpt_json_put_int(w, "threads", plan->threads);
    }
    ckpt_scheme_write(&plan->scheme, w);
    if (plan->option_count > 0) {
        ckpt_json_put_texts(w, "options", plan->option, plan->option_count);
    }
}

static void write_layers(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "layers", CKPT_JSON_LINES);
    for (int i = 0; i < plan->layer_count; i++) {
        ckpt_json_put_text(w, plan->layer[i].layer, ckpt_decision_name(plan->layer[i].decision));
    }
    ckpt_json_end(w);
    if (plan->algorithms_count > 0) {
        ckpt_json_begin_object(w, "algorithms", CKPT_JSON_LINES);
        for (int i = 0; i < plan->algorithms_count; i++) {
            ckpt_json_put_or_empty(w, plan->algorithms[i].layer, plan->algorithms[i].algorithms);
        }
        ckpt_json_end(w);
    }
}

static void write_steps(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "steps", CKPT_JSON_LINES);
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, ckpt_step_kind_name(step->kind), step->name);
        if (step->recomputed) {
            ckpt_json_put_bool(w, "again", true);
        }
        if (step->inplace) {
            ckpt_json_put_bool(w, "inplace", true);
        }
        if (step->variant != NULL) {
            ckpt_json_put_text(w, "variant", step->variant);
        }
        if (step->inexact) {
            ckpt_json_put_bool(w, "exact", false);
        }
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void write_allocations(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "places", CKPT_JSON_LINES);
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const a = &plan->allocation[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_or_empty(w, "what", a->name);
        CKPT_JSON_INTS(w, {"from", a->from}, {"to", a->to}, {"offset", a->offset}, {"bytes", a->bytes});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

void ckpt_plan_write(const ckpt_plan *plan, ckpt_text *text)
{
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&w, "format", "ckpt-plan/1");
    write_verdict(plan, &w);
    write_summary(plan, &w);
    write_bound_solver(plan, &w);
    write_origin(plan, &w);
    write_layers(plan, &w);
    write_steps(plan, &w);
    write_allocations(plan, &w);
    ckpt_json_begin_object(&w, "graph",
                           CKPT_JSON_LINE); /* last, because it is long and people read the head of a file */
    ckpt_json_put_or_empty(&w, "name", plan->graph_name);
    ckpt_json_put_text(&w, "sha256", plan->graph_sha256);
    if (plan->outline.op_count > 0) {
        ckpt_outline_write(&plan->outline, &w);
    }
    ckpt_json_end(&w);
    ckpt_json_end(&w);
}
