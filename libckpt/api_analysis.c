/* What the API says about plans: explanations, predicted traces, sweeps. The planner's own struct comes first in each, and
 * the handle points to it; its texts are those of the plan and the graph, which it holds. */
#include <assert.h>

#include "libckpt/handles_impl.h"
#include "planner/analysis/analysis.h"
#include "planner/replay/replay.h"

static_assert((int)CKPT_FATE_KEPT == (int)CKPT_KEEP && (int)CKPT_FATE_RECOMPUTED == (int)CKPT_RECOMPUTE &&
                  (int)CKPT_FATE_OFFLOADED == (int)CKPT_OFFLOADED,
              "fates of the API are the decisions of core/formats/plan.h");

/* ---- explanations ---- */

typedef struct owned_explanation {
    ckpt_explanation explanation;
    ckpt_arena arena;
    ckpt_owned_graph *graph;
    ckpt_owned_plan *plan;
    ckpt_explanation_layer *layer;
    bool roofline;
} owned_explanation;

static const owned_explanation *explanation_owner(const ckpt_explanation *explanation)
{
    return (const owned_explanation *)(const void *)explanation;
}

void ckpt_explanation_destroy(ckpt_explanation *explanation)
{
    owned_explanation *const own = (owned_explanation *)(void *)explanation;
    if (own != NULL) {
        ckpt_plan_destroy(&own->plan->plan);
        ckpt_graph_destroy(&own->graph->graph);
        ckpt_arena_fini(&own->arena);
        ckpt_memory_put(own);
    }
}

static ckpt_code explain(owned_explanation *own, const ckpt_plan *plan, const ckpt_graph *graph,
                         const ckpt_options *options, ckpt_err *err)
{
    ckpt_planning p;
    ckpt_options defaults;
    ckpt_plan *replayed = NULL;
    if (plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a plan that does not fit its budget, wanted one that does");
    }
    CKPT_TRY(ckpt_planning_prepare(&p, graph, options, &defaults, &own->arena, err));
    CKPT_TRY(ckpt_plan_replayed(plan, graph, true, &own->arena, &replayed, err));
    CKPT_TRY(ckpt_explain(replayed, p.source.graph, p.strategy, &p.options, &own->arena, &own->explanation, err));
    own->roofline = p.source.roofline;
    const int count = own->explanation.layer_count;
    own->layer = CKPT_NEW(&own->arena, ckpt_explanation_layer, count);
    if (own->layer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d layers", count);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_layer_report *const row = &own->explanation.layer[i];
        own->layer[i] = (ckpt_explanation_layer){.fate = (int32_t)row->decision,
                                                 .kept_bytes = row->kept_bytes,
                                                 .host_bytes = row->host_bytes,
                                                 .dropped_bytes = row->dropped_bytes,
                                                 .recompute_ns = row->recompute_ns,
                                                 .layer = row->layer};
    }
    return CKPT_OK;
}

int ckpt_explanation_create(const ckpt_plan *plan, const ckpt_graph *graph, const ckpt_options *options,
                            ckpt_explanation **explanation, ckpt_error *error)
{
    ckpt_err err = {0};
    owned_explanation *const own = ckpt_handle_create(sizeof *own, offsetof(owned_explanation, arena));
    if (own == NULL) {
        return ckpt_status_of(CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for an explanation"), &err, error);
    }
    own->graph = ckpt_graph_hold(graph);
    own->plan = ckpt_plan_hold(plan);
    const ckpt_code code = explain(own, plan, graph, options, &err);
    if (code == CKPT_OK) {
        *explanation = &own->explanation;
    } else {
        ckpt_explanation_destroy(&own->explanation);
    }
    return ckpt_status_of(code, &err, error);
}

const ckpt_explanation_layer *ckpt_explanation_layers(const ckpt_explanation *explanation, int32_t *count)
{
    *count = explanation->layer_count;
    return explanation_owner(explanation)->layer;
}

char *ckpt_explanation_json(const ckpt_explanation *explanation, size_t *length, ckpt_error *error)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_json_writer w;
    ckpt_json_begin(&w, &text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_plan_members(explanation->plan, explanation_owner(explanation)->roofline, &w);
    ckpt_explanation_members(explanation, &w);
    ckpt_json_end(&w);
    return ckpt_json_give(&text, length, error);
}

/* ---- traces ---- */

typedef struct owned_trace {
    ckpt_trace trace;
    ckpt_arena arena;
    ckpt_owned_graph *graph;
    ckpt_owned_plan *plan;
    ckpt_trace_event *event;
} owned_trace;

static const owned_trace *trace_owner(const ckpt_trace *trace)
{
    return (const owned_trace *)(const void *)trace;
}

void ckpt_trace_destroy(ckpt_trace *trace)
{
    owned_trace *const own = (owned_trace *)(void *)trace;
    if (own != NULL) {
        ckpt_plan_destroy(&own->plan->plan);
        ckpt_graph_destroy(&own->graph->graph);
        ckpt_arena_fini(&own->arena);
        ckpt_memory_put(own);
    }
}

static ckpt_code simulate(owned_trace *own, const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    const ckpt_graph_source *const source = &ckpt_graph_owner(graph)->source;
    ckpt_plan *replayed = NULL;
    const ckpt_trace *trace = NULL;
    const ckpt_graph *planned = NULL;
    CKPT_TRY(ckpt_plan_replayed(plan, graph, false, &own->arena, &replayed, err));
    CKPT_TRY(ckpt_graph_planned(plan, graph, &own->arena, &planned, err));
    CKPT_TRY(ckpt_plan_simulate(replayed, planned, &own->arena, &trace, err));
    own->trace = *trace;
    CKPT_TRY(ckpt_machine_read(source->threads, "", 0, NULL, &own->arena, &own->trace.machine, err));
    own->trace.machine.gpu = source->gpu;
    own->trace.capacity_bytes = source->capacity;
    own->trace.machine.device = source->costs; /* the clock that was used, not the machine that planned */
    own->event = CKPT_NEW(&own->arena, ckpt_trace_event, trace->event_count);
    if (own->event == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d events", trace->event_count);
    }
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const e = &trace->event[i];
        own->event[i] = (ckpt_trace_event){.step = e->step,
                                           .start_ns = e->start_ns,
                                           .end_ns = e->end_ns,
                                           .name = e->name,
                                           .stream = e->stream,
                                           .span = ckpt_span_name(e->span)};
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            own->event[i].live_bytes += e->bytes[c];
        }
    }
    return CKPT_OK;
}

int ckpt_trace_create(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_trace **trace, ckpt_error *error)
{
    ckpt_err err = {0};
    owned_trace *const own = ckpt_handle_create(sizeof *own, offsetof(owned_trace, arena));
    if (own == NULL) {
        return ckpt_status_of(CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for a trace"), &err, error);
    }
    own->graph = ckpt_graph_hold(graph);
    own->plan = ckpt_plan_hold(plan);
    const ckpt_code code = simulate(own, plan, graph, &err);
    if (code == CKPT_OK) {
        *trace = &own->trace;
    } else {
        ckpt_trace_destroy(&own->trace);
    }
    return ckpt_status_of(code, &err, error);
}

const ckpt_trace_event *ckpt_trace_events(const ckpt_trace *trace, int32_t *count)
{
    *count = trace->event_count;
    return trace_owner(trace)->event;
}

char *ckpt_trace_json(const ckpt_trace *trace, size_t *length, ckpt_error *error)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_trace_write(trace, &text);
    return ckpt_json_give(&text, length, error);
}

/* ---- sweeps ---- */

typedef struct owned_sweep {
    ckpt_sweep sweep;
    ckpt_arena arena;
    ckpt_owned_graph *graph;
    ckpt_curve curve;
    ckpt_sweep_point *point;
} owned_sweep;

static const owned_sweep *sweep_owner(const ckpt_sweep *sweep)
{
    return (const owned_sweep *)(const void *)sweep;
}

void ckpt_sweep_destroy(ckpt_sweep *sweep)
{
    owned_sweep *const own = (owned_sweep *)(void *)sweep;
    if (own != NULL) {
        ckpt_graph_destroy(&own->graph->graph);
        ckpt_arena_fini(&own->arena);
        ckpt_memory_put(own);
    }
}

static void report(void *context, int done, int total)
{
    ckpt_planning *const p = context;
    p->done = done;
    p->total = total;
    if (p->asked->progress != NULL) {
        const ckpt_progress told = {.part = "budgets", .done = done, .total = total};
        p->asked->progress(p->asked->progress_context, &told);
    }
}

static ckpt_code sweep_budgets(owned_sweep *own, const ckpt_graph *graph, const ckpt_options *options, int points,
                               ckpt_err *err)
{
    ckpt_planning p;
    ckpt_options defaults;
    if (points < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d budgets, wanted 1 or more", points);
    }
    CKPT_TRY(ckpt_planning_prepare(&p, graph, options, &defaults, &own->arena, err));
    CKPT_TRY(ckpt_sweep_make(p.source.graph, p.strategy, points, &p.options, report, &own->arena, &own->sweep, err));
    if (own->sweep.plan[0]->verdict != CKPT_FITS && p.options.cancelled != NULL && p.options.cancelled(&p)) {
        return CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted before any plan was found");
    }
    for (int i = 0; i < own->sweep.count; i++) {
        ckpt_planning_stamp(&p, own->sweep.plan[i]);
    }
    CKPT_TRY(ckpt_sweep_curve(&own->sweep, &own->arena, &own->curve, err));
    own->point = CKPT_NEW(&own->arena, ckpt_sweep_point, own->curve.point_count);
    if (own->point == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d budgets", points);
    }
    for (int i = 0; i < own->curve.point_count; i++) {
        const ckpt_curve_point *const at = &own->curve.point[i];
        own->point[i] = (ckpt_sweep_point){
            at->budget_bytes, at->peak_bytes, at->arena_bytes, at->time_ns, at->has_bound ? at->bound_ns : 0,
            at->strategy};
    }
    return CKPT_OK;
}

int ckpt_sweep_create(const ckpt_graph *graph, const ckpt_options *options, int32_t points, ckpt_sweep **sweep,
                      ckpt_error *error)
{
    ckpt_err err = {0};
    owned_sweep *const own = ckpt_handle_create(sizeof *own, offsetof(owned_sweep, arena));
    if (own == NULL) {
        return ckpt_status_of(CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for a sweep"), &err, error);
    }
    own->graph = ckpt_graph_hold(graph);
    const ckpt_code code = sweep_budgets(own, graph, options, points, &err);
    if (code == CKPT_OK) {
        *sweep = &own->sweep;
    } else {
        ckpt_sweep_destroy(&own->sweep);
    }
    return ckpt_status_of(code, &err, error);
}

const ckpt_sweep_point *ckpt_sweep_points(const ckpt_sweep *sweep, int32_t *count)
{
    const owned_sweep *const own = sweep_owner(sweep);
    *count = own->curve.point_count;
    return own->point;
}

int32_t ckpt_sweep_complete(const ckpt_sweep *sweep)
{
    return sweep_owner(sweep)->curve.complete;
}

int64_t ckpt_sweep_min_budget(const ckpt_sweep *sweep)
{
    const owned_sweep *const own = sweep_owner(sweep);
    return own->curve.point_count > 0 ? own->curve.point[0].budget_bytes : own->curve.min_budget_bytes;
}

char *ckpt_sweep_json(const ckpt_sweep *sweep, size_t *length, ckpt_error *error)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_curve_write(&sweep_owner(sweep)->curve, &text);
    return ckpt_json_give(&text, length, error);
}
