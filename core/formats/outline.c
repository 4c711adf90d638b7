/* The outline of a graph in a plan: made, read, written, and held against the plan that carries it and the graph it is
 * of. Readers of plans without the graph believe it, so what is read here agrees with itself. */
#include <inttypes.h>
#include <string.h>

#include "core/base/names.h"
#include "core/formats/graph_impl.h"
#include "core/formats/plan_impl.h"
#include "core/json/json_member.h"

ckpt_code ckpt_plan_outline(const ckpt_graph *graph, ckpt_arena *out, ckpt_outline *outline, ckpt_err *err)
{
    ckpt_outline_op *const op = CKPT_NEW(out, ckpt_outline_op, graph->op_count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "outline of %d ops", graph->op_count);
    }
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const from = &graph->op[i];
        op[i] = (ckpt_outline_op){from->name, from->layer != NULL ? from->layer : "", from->phase, from->time_ns};
    }
    *outline =
        (ckpt_outline){graph->statics, graph->static_count, graph->buffer, graph->buffer_count, op, graph->op_count};
    return CKPT_OK;
}

static ckpt_code read_ops(const ckpt_item *graph, ckpt_arena *out, ckpt_outline *outline, ckpt_err *err)
{
    ckpt_item array;
    int count = 0;
    int64_t time = 0;
    CKPT_TRY(ckpt_need_array(graph, "ops", &array, &count, err));
    ckpt_outline_op *const op = CKPT_NEW(out, ckpt_outline_op, count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %d ops", ckpt_json_source(graph->json), count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_need_text(&item, "name", out, &op[i].name, err));
        CKPT_TRY(ckpt_phase_read(&item, out, &op[i].phase, err));
        CKPT_TRY(ckpt_member_text(&item, "layer", "", out, &op[i].layer, err));
        CKPT_TRY(ckpt_need_int(&item, "time_ns", 0, INT64_MAX, &op[i].time_ns, err));
        if (!ckpt_sum(time, op[i].time_ns, &time)) {
            const ckpt_code code = CKPT_FAIL(err, CKPT_OVERFLOW, "the sum of times does not fit 63 bits");
            return ckpt_item_blame(&item, code, err);
        }
    }
    outline->op = op;
    outline->op_count = count;
    return CKPT_OK;
}

ckpt_code ckpt_outline_read(const ckpt_item *graph, ckpt_arena *out, ckpt_outline *outline, ckpt_err *err)
{
    ckpt_item any;
    if (!ckpt_item_find(graph, "static", &any) && !ckpt_item_find(graph, "buffers", &any) &&
        !ckpt_item_find(graph, "ops", &any)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_statics_read(graph, true, out, &outline->statics, &outline->static_count, err));
    CKPT_TRY(ckpt_buffers_read(graph, out, &outline->buffer, &outline->buffer_count, err));
    return read_ops(graph, out, outline, err);
}

typedef struct checker {
    const ckpt_plan *plan;
    const ckpt_item *root;
    ckpt_names buffers, ops;
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
    const bool scratch = names == &c->buffers && strcmp(name, "workspace") == 0;
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
    CKPT_TRY(ckpt_names_init(&c->buffers, o->buffer_count, &c->scratch, c->err));
    CKPT_TRY(ckpt_names_init(&c->ops, o->op_count, &c->scratch, c->err));
    for (int i = 0; i < o->static_count; i++) {
        CKPT_TRY(add_name(c, &statics, "static", o->statics[i].name, i));
    }
    for (int i = 0; i < o->buffer_count; i++) {
        CKPT_TRY(add_name(c, &c->buffers, "buffers", o->buffer[i].name, i));
    }
    for (int i = 0; i < o->op_count; i++) {
        CKPT_TRY(add_name(c, &c->ops, "ops", o->op[i].name, i));
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
        const bool run = step->kind == CKPT_RUN;
        if (ckpt_names_find(run ? &c->ops : &c->buffers, step->name) < 0) {
            return blame(c, false, "steps", i,
                         CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                   "step %d: %s \"%.80s\", which is not among the \"%s\" of \"graph\"", i,
                                   ckpt_step_kind_name(step->kind), step->name, run ? "ops" : "buffers"));
        }
    }
    return CKPT_OK;
}

static ckpt_code check_places(const checker *c)
{
    for (int i = 0; i < c->plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &c->plan->allocation[i];
        if (strcmp(allocation->name, "workspace") == 0) {
            continue;
        }
        const int b = ckpt_names_find(&c->buffers, allocation->name);
        if (b < 0) {
            return blame(c, false, "places", i,
                         CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                   "place %d: \"%.80s\", which is not among the \"buffers\" of \"graph\"", i,
                                   allocation->name));
        }
        if (allocation->bytes != c->plan->outline.buffer[b].bytes) {
            return blame(c, false, "places", i,
                         CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                   "place %d: \"%.80s\" has %" PRId64 " bytes here and %" PRId64 " in \"graph\"", i,
                                   allocation->name, allocation->bytes, c->plan->outline.buffer[b].bytes));
        }
    }
    return CKPT_OK;
}

static ckpt_code check(checker *c)
{
    CKPT_TRY(check_names(c));
    CKPT_TRY(check_sums(c));
    CKPT_TRY(check_steps(c));
    return check_places(c);
}

ckpt_code ckpt_outline_check(const ckpt_plan *plan, const ckpt_item *root, ckpt_err *err)
{
    if (plan->outline.op_count == 0) {
        return CKPT_OK;
    }
    checker c = {.plan = plan, .root = root, .err = err};
    ckpt_arena_init(&c.scratch);
    const ckpt_code code = check(&c);
    ckpt_arena_fini(&c.scratch);
    return code;
}

void ckpt_outline_write(const ckpt_outline *outline, ckpt_text *text)
{
    if (outline->op_count == 0) {
        return;
    }
    ckpt_text_add(text, ",\n  \"static\": ");
    ckpt_statics_write(outline->statics, outline->static_count, text);
    ckpt_text_add(text, ",\n  \"buffers\": ");
    ckpt_buffers_write(outline->buffer, outline->buffer_count, text);
    ckpt_text_add(text, ",\n  \"ops\": [");
    for (int i = 0; i < outline->op_count; i++) {
        const ckpt_outline_op *const op = &outline->op[i];
        ckpt_text_add(text, "%s    { \"name\": ", i > 0 ? ",\n" : "\n");
        ckpt_text_json(text, op->name);
        ckpt_text_add(text, ", \"phase\": \"%s\"", ckpt_phase_name(op->phase));
        if (op->layer != NULL && op->layer[0] != '\0') {
            ckpt_text_add(text, ", \"layer\": ");
            ckpt_text_json(text, op->layer);
        }
        ckpt_text_add(text, ", \"time_ns\": %" PRId64 " }", op->time_ns);
    }
    ckpt_text_add(text, "\n  ]");
}

static ckpt_code differs(ckpt_err *err, const char *what, int index, const char *name)
{
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s %d in \"graph\", \"%.80s\", is not what it is in the graph", what, index,
                     name);
}

ckpt_code ckpt_outline_compare(const ckpt_outline *outline, const ckpt_graph *graph, ckpt_err *err)
{
    const ckpt_outline *const o = outline;
    if (o->op_count == 0) {
        return CKPT_OK;
    }
    if (o->static_count != graph->static_count || o->buffer_count != graph->buffer_count ||
        o->op_count != graph->op_count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "\"graph\" has %d statics, %d buffers and %d ops, the graph %d, %d and %d", o->static_count,
                         o->buffer_count, o->op_count, graph->static_count, graph->buffer_count, graph->op_count);
    }
    for (int i = 0; i < o->static_count; i++) {
        if (strcmp(o->statics[i].name, graph->statics[i].name) != 0 || o->statics[i].bytes != graph->statics[i].bytes) {
            return differs(err, "static", i, o->statics[i].name);
        }
    }
    for (int i = 0; i < o->buffer_count; i++) {
        const ckpt_buffer *const a = &o->buffer[i];
        const ckpt_buffer *const b = &graph->buffer[i];
        if (strcmp(a->name, b->name) != 0 || a->bytes != b->bytes || a->kind != b->kind) {
            return differs(err, "buffer", i, a->name);
        }
    }
    for (int i = 0; i < o->op_count; i++) {
        const ckpt_outline_op *const a = &o->op[i];
        const ckpt_graph_op *const b = &graph->op[i];
        if (strcmp(a->name, b->name) != 0 || a->phase != b->phase) {
            return differs(err, "op", i, a->name);
        }
    }
    return CKPT_OK;
}
