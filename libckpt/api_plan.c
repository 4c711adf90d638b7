/* The plans of the API. */
#include <assert.h>
#include <string.h>

#include "libckpt/handles_impl.h"
#include "planner/replay/replay.h"

static_assert((int)CKPT_ACTION_RUN == (int)CKPT_RUN && (int)CKPT_ACTION_FREE == (int)CKPT_FREE &&
                  (int)CKPT_ACTION_OFFLOAD == (int)CKPT_OFFLOAD && (int)CKPT_ACTION_FETCH == (int)CKPT_FETCH &&
                  (int)CKPT_VERDICT_FITS == (int)CKPT_FITS && (int)CKPT_VERDICT_INFEASIBLE == (int)CKPT_INFEASIBLE,
              "steps and verdicts of the API are those of core/formats/plan.h");

static const ckpt_owned_plan *plan_owner(const ckpt_plan *plan)
{
    return (const ckpt_owned_plan *)(const void *)plan;
}

ckpt_owned_plan *ckpt_plan_hold(const ckpt_plan *plan)
{
    ckpt_owned_plan *const own = (ckpt_owned_plan *)(uintptr_t)plan;
    atomic_fetch_add(&own->users, 1);
    return own;
}

void ckpt_plan_destroy(ckpt_plan *plan)
{
    ckpt_owned_plan *const own = (ckpt_owned_plan *)(void *)plan;
    if (own != NULL && atomic_fetch_sub(&own->users, 1) == 1) {
        ckpt_graph_destroy(own->graph != NULL ? &own->graph->graph : NULL);
        ckpt_arena_fini(&own->arena);
        ckpt_memory_put(own);
    }
}

static ckpt_code show(ckpt_owned_plan *own, ckpt_err *err)
{
    const ckpt_plan *const plan = &own->plan;
    own->step = CKPT_NEW(&own->arena, ckpt_plan_step, plan->step_count);
    own->allocation = CKPT_NEW(&own->arena, ckpt_plan_allocation, plan->allocation_count);
    if (own->step == NULL || own->allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d steps", plan->step_count);
    }
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const s = &plan->step[i];
        own->step[i] = (ckpt_plan_step){(int32_t)s->kind, s->target, s->recomputed, s->inplace, s->name, s->variant};
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const a = &plan->allocation[i];
        own->allocation[i] = (ckpt_plan_allocation){.buffer = own->graph != NULL ? a->buffer : -1,
                                                    .first_step = a->from,
                                                    .last_step = a->to,
                                                    .offset = a->offset,
                                                    .bytes = a->bytes,
                                                    .name = a->name};
    }
    return CKPT_OK;
}

/* What is made, or an error and nothing. */
static int hand_over(ckpt_owned_plan *own, ckpt_code code, const ckpt_err *err, ckpt_plan **plan, ckpt_error *error)
{
    if (code == CKPT_OK) {
        *plan = &own->plan;
    } else {
        ckpt_plan_destroy(&own->plan);
    }
    return ckpt_status_of(code, err, error);
}

static ckpt_owned_plan *create(ckpt_err *err)
{
    ckpt_owned_plan *const own = ckpt_handle_create(sizeof *own, offsetof(ckpt_owned_plan, arena));
    if (own == NULL) {
        CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a plan");
    } else {
        atomic_init(&own->users, 1);
        own->notes = "";
    }
    return own;
}

ckpt_code ckpt_planning_prepare(ckpt_planning *planning, const ckpt_graph *graph, const ckpt_options *options,
                                ckpt_options *defaults, ckpt_arena *out, ckpt_err *err)
{
    const ckpt_owned_graph *const of = ckpt_graph_owner(graph);
    const char *const *word = NULL;
    int count = 0;
    ckpt_options_init(defaults);
    const ckpt_options *const asked = options != NULL ? options : defaults;
    if (!of->finished) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a graph that is being built, wanted a finished one");
    }
    CKPT_TRY(ckpt_options_check(asked, err));
    CKPT_TRY(ckpt_options_model_words(asked, out, &word, &count, err));
    int same = 0;
    while (same < count && same < of->word_count && strcmp(word[same], of->word[same]) == 0) {
        same++;
    }
    if (same < count || same < of->word_count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "found option %.80s, which is of models, not as the graph was made with: make a graph with it",
                         same < count ? word[same] : of->word[same]);
    }
    CKPT_TRY(ckpt_planning_init(planning, asked, out, err));
    planning->source = of->source;
    return ckpt_planning_begin(planning, false, false, err);
}

static ckpt_code make(ckpt_owned_plan *own, const ckpt_graph *graph, const ckpt_options *options, ckpt_err *err)
{
    ckpt_planning p;
    ckpt_options defaults;
    ckpt_plan *plan = NULL;
    CKPT_TRY(ckpt_planning_prepare(&p, graph, options, &defaults, &own->arena, err));
    if (p.asked->start.name != NULL) {
        CKPT_TRY(ckpt_planning_start(&p, &p.asked->start, err));
    }
    CKPT_TRY(ckpt_plan_make(p.source.graph, p.strategy, &p.options, &own->arena, &plan, err));
    own->ended_early = ckpt_plan_stopped(&p.options);
    if (plan->verdict != CKPT_FITS && p.options.cancelled != NULL && p.options.cancelled(&p)) {
        return CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted before any plan was found");
    }
    ckpt_planning_stamp(&p, plan);
    const ckpt_owned_graph *const of = ckpt_graph_owner(graph);
    CKPT_TRY(ckpt_planning_record(&p, p.asked, of->named ? p.source.name : NULL, NULL, own->ended_early, plan, err));
    own->plan = *plan;
    own->notes = p.notes;
    return show(own, err);
}

int ckpt_plan_create(const ckpt_graph *graph, const ckpt_options *options, ckpt_plan **plan, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_owned_plan *const own = create(&err);
    if (own == NULL) {
        return ckpt_status_of(CKPT_NO_MEMORY, &err, error);
    }
    own->graph = ckpt_graph_hold(graph);
    return hand_over(own, make(own, graph, options, &err), &err, plan, error);
}

static ckpt_code read_plan(ckpt_owned_plan *own, const ckpt_document *document, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    ckpt_plan *plan = NULL;
    CKPT_TRY(ckpt_document_open(document, "ckpt-plan", &json, &root, err));
    const ckpt_code code = ckpt_plan_item(&root, &own->arena, &plan, err);
    ckpt_json_close(json);
    CKPT_TRY(code);
    own->plan = *plan;
    return show(own, err);
}

int ckpt_plan_from_json(const char *name, const char *json, size_t length, ckpt_plan **plan, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_owned_plan *const own = create(&err);
    if (own == NULL) {
        return ckpt_status_of(CKPT_NO_MEMORY, &err, error);
    }
    const ckpt_document document = {name != NULL && name[0] != '\0' ? name : "plan", json != NULL ? json : "",
                                    json != NULL ? length : 0};
    return hand_over(own, read_plan(own, &document, &err), &err, plan, error);
}

void ckpt_plan_summarize(const ckpt_plan *plan, ckpt_plan_summary *summary)
{
    const ckpt_owned_plan *const own = plan_owner(plan);
    *summary = (ckpt_plan_summary){
        .verdict = (int32_t)plan->verdict,
        .ended_early = own->ended_early,
        .budget_bytes = plan->budget_bytes,
        .min_budget_bytes = plan->min_budget_bytes,
        .no_schedule_below_bytes = plan->no_schedule_below_bytes,
        .peak_bytes = plan->peak_bytes,
        .static_bytes = plan->static_bytes,
        .arena_bytes = plan->arena_bytes,
        .time_ns = plan->time_ns,
        .recompute_ns = plan->recompute_ns,
        .offload_bytes = plan->offload_bytes,
        .host_bytes = plan->host_bytes,
        .keep_all_peak_bytes = plan->keep_all_peak_bytes,
        .keep_all_time_ns = plan->keep_all_time_ns,
        .bound_ns = plan->has_bound ? plan->bound_ns : 0,
        .planning_seconds = plan->solver_seconds,
        .bound_how = plan->has_bound ? plan->bound_how : "",
        .bound_scope = plan->has_bound ? plan->bound_scope : "",
        .strategy = plan->solver,
        .graph_name = plan->graph_name,
        .graph_sha256 = plan->graph_sha256,
        .costs = plan->costs,
        .notes = own->notes,
    };
}

const ckpt_plan_step *ckpt_plan_steps(const ckpt_plan *plan, int32_t *count)
{
    *count = plan->step_count;
    return plan_owner(plan)->step;
}

const ckpt_plan_allocation *ckpt_plan_allocations(const ckpt_plan *plan, int32_t *count)
{
    *count = plan->allocation_count;
    return plan_owner(plan)->allocation;
}

char *ckpt_plan_json(const ckpt_plan *plan, size_t *length, ckpt_error *error)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_plan_write(plan, &text);
    return ckpt_json_give(&text, length, error);
}

ckpt_code ckpt_graph_planned(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                             const ckpt_graph **planned, ckpt_err *err)
{
    *planned = graph;
    for (int i = 0; i + 1 < plan->option_count; i++) {
        if (strcmp(plan->option[i], "--link") == 0) {
            return ckpt_graph_linked(graph, plan->option[i + 1], out, planned, err);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_plan_replayed(const ckpt_plan *plan, const ckpt_graph *graph, bool costs, ckpt_arena *out,
                             ckpt_plan **copy, ckpt_err *err)
{
    ckpt_plan *const made = CKPT_NEW(out, ckpt_plan, 1);
    ckpt_step *const step = CKPT_NEW(out, ckpt_step, plan->step_count);
    ckpt_allocation *const allocation = CKPT_NEW(out, ckpt_allocation, plan->allocation_count);
    if (made == NULL || step == NULL || allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to replay %d steps", plan->step_count);
    }
    if (!ckpt_graph_owner(graph)->finished) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a graph that is being built, wanted a finished one");
    }
    *made = *plan;
    if (plan->step_count > 0) {
        made->step = memcpy(step, plan->step, (size_t)plan->step_count * sizeof *step);
    }
    if (plan->allocation_count > 0) {
        made->allocation = memcpy(allocation, plan->allocation, (size_t)plan->allocation_count * sizeof *allocation);
    }
    const ckpt_graph *planned = NULL;
    CKPT_TRY(ckpt_graph_planned(plan, graph, out, &planned, err));
    CKPT_TRY(ckpt_plan_bind(made, planned, err));
    CKPT_TRY(costs ? ckpt_plan_check(made, planned, err) : ckpt_plan_check_run(made, planned, err));
    *copy = made;
    return CKPT_OK;
}

int ckpt_plan_verify(const ckpt_plan *plan, const ckpt_graph *graph, int32_t costs, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_arena scratch;
    ckpt_plan *copy = NULL;
    ckpt_arena_init(&scratch);
    const ckpt_code code = ckpt_plan_replayed(plan, graph, costs != 0, &scratch, &copy, &err);
    ckpt_arena_fini(&scratch);
    return ckpt_status_of(code, &err, error);
}
