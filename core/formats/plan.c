/* Binding a plan to its graph or to the outline it carries, and the words plans use. Readers of plans without the graph
 * believe the outline, so it must agree with the plan. */
#include "core/formats/plan.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/base/names.h"
#include "core/formats/outline_impl.h"
#include "core/formats/plan_impl.h"
#include "core/json/json_member.h"

const char *ckpt_step_kind_name(ckpt_step_kind kind)
{
    switch (kind) {
    case CKPT_RUN: return "run";
    case CKPT_FREE: return "free";
    case CKPT_OFFLOAD: return "offload";
    case CKPT_FETCH: return "fetch";
    }
    return "unknown";
}

const char *ckpt_decision_name(ckpt_decision decision)
{
    switch (decision) {
    case CKPT_KEEP: return "keep";
    case CKPT_RECOMPUTE: return "recompute";
    case CKPT_OFFLOADED: return "offload";
    }
    return "unknown";
}

/* Names and sizes that a plan may speak of. */
typedef struct known_names {
    ckpt_names ops, buffers;
    const ckpt_buffer *buffer;
} known_names;

static ckpt_code init_names(known_names *n, int ops, const ckpt_buffer *buffer, int buffers, ckpt_arena *scratch,
                            ckpt_err *err)
{
    n->buffer = buffer;
    CKPT_TRY(ckpt_names_init(&n->ops, ops, scratch, err));
    return ckpt_names_init(&n->buffers, buffers, scratch, err);
}

/* Which op or buffer a step is about; -1: none has that name. */
static int step_target(const known_names *n, const ckpt_step *step)
{
    return ckpt_names_find(step->kind == CKPT_RUN ? &n->ops : &n->buffers, step->name);
}

static bool is_workspace(const char *name)
{
    return strcmp(name, "workspace") == 0;
}

/* ---- the outline in the plan's file ---- */

typedef struct checker {
    const ckpt_plan *plan;
    const ckpt_item *root;
    known_names known;
    int *target, *buffer; /* of every step, of every allocation: ckpt_plan_check_figures */
    ckpt_arena scratch;
    ckpt_err *err;
} checker;

/* Entry `index` of an array of the plan, or of its "graph". */
static ckpt_code blame(const checker *c, bool in_graph, const char *array, int index, ckpt_code code)
{
    ckpt_item graph;
    ckpt_item list;
    ckpt_item entry;
    if ((in_graph && !ckpt_item_find(c->root, "graph", &graph)) ||
        !ckpt_item_find(in_graph ? &graph : c->root, array, &list)) {
        return ckpt_item_blame(c->root, code, c->err);
    }
    ckpt_item_at(&list, index, &entry);
    return ckpt_item_blame(&entry, code, c->err);
}

static ckpt_code add_name(checker *c, ckpt_names *names, const char *array, const char *name, int index)
{
    const bool scratch = names == &c->known.buffers && is_workspace(name);
    if (name[0] == '\0' || scratch) {
        return blame(
            c, true, array, index,
            CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%d of \"%s\" %s", index, array,
                      scratch ? "is named \"workspace\", which in a plan means an op's scratch" : "has no name"));
    }
    const int first = ckpt_names_add(names, name, index);
    if (first < 0) {
        return CKPT_OK;
    }
    return blame(
        c, true, array, index,
        CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%d and %d of \"%s\" are both named \"%.80s\"", first, index, array, name));
}

static ckpt_code check_names(checker *c)
{
    const ckpt_outline *const o = &c->plan->outline;
    ckpt_names statics;
    CKPT_TRY(ckpt_names_init(&statics, o->static_count, &c->scratch, c->err));
    CKPT_TRY(init_names(&c->known, o->op_count, o->buffer, o->buffer_count, &c->scratch, c->err));
    for (int i = 0; i < o->static_count; i++) {
        CKPT_TRY(add_name(c, &statics, "static", o->statics[i].name, i));
    }
    for (int i = 0; i < o->buffer_count; i++) {
        CKPT_TRY(add_name(c, &c->known.buffers, "buffers", o->buffer[i].name, i));
    }
    for (int i = 0; i < o->op_count; i++) {
        CKPT_TRY(add_name(c, &c->known.ops, "ops", o->op[i].name, i));
    }
    return CKPT_OK;
}

static ckpt_code check_sums(const checker *c)
{
    const ckpt_outline *const o = &c->plan->outline;
    ckpt_bytes held = 0;
    ckpt_bytes all = 0;
    for (int i = 0; i < o->static_count; i++) {
        if (!ckpt_sum(held, o->statics[i].bytes, &held)) {
            return blame(c, true, "static", i,
                         CKPT_FAIL(c->err, CKPT_OVERFLOW, "the sum of bytes does not fit 63 bits"));
        }
    }
    for (int i = 0; i < o->buffer_count; i++) {
        if (!ckpt_sum(all, o->buffer[i].bytes, &all)) {
            return blame(c, true, "buffers", i,
                         CKPT_FAIL(c->err, CKPT_OVERFLOW, "the sum of bytes does not fit 63 bits"));
        }
    }
    ckpt_item graph;
    if (held != c->plan->static_bytes && ckpt_item_find(c->root, "graph", &graph)) {
        return ckpt_item_fail(&graph, c->err,
                              "the blocks of \"static\" have %" PRId64 " bytes together, but static_bytes is %" PRId64,
                              held, c->plan->static_bytes);
    }
    return CKPT_OK;
}

static ckpt_code check_steps(const checker *c)
{
    for (int i = 0; i < c->plan->step_count; i++) {
        const ckpt_step *const step = &c->plan->step[i];
        c->target[i] = step_target(&c->known, step);
        if (c->target[i] < 0) {
            return blame(
                c, false, "steps", i,
                CKPT_FAIL(c->err, CKPT_BAD_INPUT, "step %d: %s \"%.80s\", which is not among the \"%s\" of \"graph\"",
                          i, ckpt_step_kind_name(step->kind), step->name, step->kind == CKPT_RUN ? "ops" : "buffers"));
        }
    }
    return CKPT_OK;
}

static ckpt_code check_allocations(const checker *c)
{
    for (int i = 0; i < c->plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &c->plan->allocation[i];
        c->buffer[i] = -1;
        if (is_workspace(allocation->name)) {
            continue;
        }
        const int b = c->buffer[i] = ckpt_names_find(&c->known.buffers, allocation->name);
        if (b < 0) {
            return blame(c, false, "places", i,
                         CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                   "allocation %d: \"%.80s\", which is not among the \"buffers\" of \"graph\"", i,
                                   allocation->name));
        }
        if (allocation->bytes != c->known.buffer[b].bytes) {
            return blame(c, false, "places", i,
                         CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                   "allocation %d: \"%.80s\" has %" PRId64 " bytes here and %" PRId64 " in \"graph\"",
                                   i, allocation->name, allocation->bytes, c->known.buffer[b].bytes));
        }
    }
    return CKPT_OK;
}

static ckpt_code check(checker *c)
{
    const ckpt_plan *const plan = c->plan;
    if (plan->outline.op_count > 0) {
        c->target = CKPT_NEW(&c->scratch, int, plan->step_count);
        c->buffer = CKPT_NEW(&c->scratch, int, plan->allocation_count);
        if (c->target == NULL || c->buffer == NULL) {
            return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "check of %d steps", plan->step_count);
        }
        CKPT_TRY(check_names(c));
        CKPT_TRY(check_sums(c));
        CKPT_TRY(check_steps(c));
        CKPT_TRY(check_allocations(c));
    }
    return ckpt_plan_check_figures(plan, c->target, c->buffer, c->root, &c->scratch, c->err);
}

ckpt_code ckpt_plan_check_itself(const ckpt_plan *plan, const ckpt_item *root, ckpt_err *err)
{
    checker c = {.plan = plan, .root = root, .err = err};
    ckpt_arena_init(&c.scratch);
    const ckpt_code code = check(&c);
    ckpt_arena_fini(&c.scratch);
    return code;
}

/* ---- the graph ---- */

typedef struct binder {
    const ckpt_graph *graph;
    known_names known;
    int *target, *way; /* of every step */
    int *buffer;       /* of every allocation */
    ckpt_err *err;
} binder;

static ckpt_code index_graph(binder *b, ckpt_arena *scratch)
{
    const ckpt_graph *const g = b->graph;
    CKPT_TRY(init_names(&b->known, g->op_count, g->buffer, g->buffer_count, scratch, b->err));
    for (int i = 0; i < g->op_count; i++) {
        ckpt_names_add(&b->known.ops, g->op[i].name, i);
    }
    for (int i = 0; i < g->buffer_count; i++) {
        ckpt_names_add(&b->known.buffers, g->buffer[i].name, i);
    }
    return CKPT_OK;
}

static ckpt_code bind_variant(const binder *b, int i, const ckpt_step *step)
{
    const ckpt_graph_op *const op = &b->graph->op[b->target[i]];
    const bool own = step->variant == NULL || (op->variant != NULL && strcmp(op->variant, step->variant) == 0);
    bool inexact = false;
    b->way[i] = own ? 0 : -1;
    for (int k = 0; k < op->variant_count && b->way[i] < 0; k++) {
        const ckpt_graph_op *const way = &b->graph->op[op->first_variant + k];
        if (strcmp(way->variant, step->variant) == 0) {
            b->way[i] = k + 1;
            inexact = way->inexact;
        }
    }
    if (b->way[i] < 0) {
        return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                         "step %d: run \"%.80s\" as variant \"%.80s\", which the op does not have", i, step->name,
                         step->variant);
    }
    return inexact == step->inexact
               ? CKPT_OK
               : CKPT_FAIL(b->err, CKPT_BAD_INPUT, "step %d: run \"%.80s\" gives %s bits, and the plan says %s", i,
                           step->name, inexact ? "other" : "the same", step->inexact ? "other" : "the same");
}

static ckpt_code bind_steps(const binder *b, const ckpt_plan *plan)
{
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        b->target[i] = step_target(&b->known, step);
        if (b->target[i] < 0) {
            return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                             "step %d: %s \"%.80s\", which graph \"%.60s\" does not have: the plan is of another model",
                             i, ckpt_step_kind_name(step->kind), step->name, b->graph->name);
        }
        b->way[i] = 0;
        if (step->kind == CKPT_RUN) {
            CKPT_TRY(bind_variant(b, i, step));
        }
    }
    return CKPT_OK;
}

static ckpt_code bind_allocations(const binder *b, const ckpt_plan *plan)
{
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        b->buffer[i] = -1;
        if (is_workspace(allocation->name)) {
            continue;
        }
        const int buffer = ckpt_names_find(&b->known.buffers, allocation->name);
        if (buffer < 0) {
            return CKPT_FAIL(
                b->err, CKPT_BAD_INPUT,
                "allocation %d: \"%.80s\", which graph \"%.60s\" does not have: the plan is of another model", i,
                allocation->name, b->graph->name);
        }
        if (allocation->bytes != b->graph->buffer[buffer].bytes) {
            return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                             "allocation %d: \"%.80s\" has %" PRId64 " bytes in the plan and %" PRId64
                             " in the graph: made for another batch, dtype or other vars?",
                             i, allocation->name, allocation->bytes, b->graph->buffer[buffer].bytes);
        }
        b->buffer[i] = buffer;
    }
    return CKPT_OK;
}

static ckpt_code bind(binder *b, ckpt_plan *plan, ckpt_arena *scratch)
{
    char digest[CKPT_DIGEST_TEXT];
    if (strcmp(plan->graph_name, b->graph->name) != 0) {
        return CKPT_FAIL(b->err, CKPT_BAD_INPUT, "the plan is of graph \"%.80s\", this is \"%.80s\"", plan->graph_name,
                         b->graph->name);
    }
    b->target = CKPT_NEW(scratch, int, plan->step_count);
    b->way = CKPT_NEW(scratch, int, plan->step_count);
    b->buffer = CKPT_NEW(scratch, int, plan->allocation_count);
    if (b->target == NULL || b->way == NULL || b->buffer == NULL) {
        return CKPT_FAIL(b->err, CKPT_NO_MEMORY, "no memory to bind a plan of %d steps", plan->step_count);
    }
    CKPT_TRY(index_graph(b, scratch));
    CKPT_TRY(bind_steps(b, plan));
    CKPT_TRY(bind_allocations(b, plan));
    /* Last, because the reasons above say more. */
    CKPT_TRY(ckpt_graph_digest(b->graph, digest, b->err));
    if (strcmp(plan->graph_sha256, digest) != 0) {
        return CKPT_FAIL(
            b->err, CKPT_BAD_INPUT,
            "the plan is of a graph \"%.60s\" of another structure (SHA-256 %.12s..., this one is %.12s...): "
            "other vars, another optimizer, or a changed model?",
            plan->graph_name, plan->graph_sha256, digest);
    }
    return ckpt_outline_compare(&plan->outline, b->graph, b->err);
}

ckpt_code ckpt_plan_bind(ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    binder b = {.graph = graph, .err = err};
    const ckpt_code code = bind(&b, plan, &scratch);
    if (code == CKPT_OK) {
        /* The caller owns the plan and hands it over to be changed; its arrays are const to readers only. */
        ckpt_step *const step = (ckpt_step *)plan->step;
        ckpt_allocation *const allocation = (ckpt_allocation *)plan->allocation;
        for (int i = 0; i < plan->step_count; i++) {
            step[i].target = b.target[i];
            step[i].way = b.way[i];
            step[i].variant = b.way[i] == 0 ? NULL : step[i].variant;
        }
        for (int i = 0; i < plan->allocation_count; i++) {
            allocation[i].buffer = b.buffer[i];
        }
    } else if (code != CKPT_NO_MEMORY && plan->source != NULL && plan->source[0] != '\0') {
        ckpt_err_at(err, "%.200s", plan->source);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
