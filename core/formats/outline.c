/* The outline of a graph: made, read, written, compared with its graph. */
#include <string.h>

#include "core/formats/graph_impl.h"
#include "core/formats/outline_impl.h"
#include "core/json/json_member.h"

ckpt_code ckpt_plan_outline(const ckpt_graph *graph, ckpt_arena *out, ckpt_outline *outline, ckpt_err *err)
{
    ckpt_outline_op *const op = CKPT_NEW(out, ckpt_outline_op, graph->op_count);
    ckpt_outline_way *const way = CKPT_NEW(out, ckpt_outline_way, graph->variant_count);
    if (op == NULL || way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "outline of %d ops", graph->op_count);
    }
    for (int v = 0; v < graph->variant_count; v++) {
        const ckpt_graph_op *const from = &graph->op[graph->op_count + v];
        way[v] = (ckpt_outline_way){from->variant, from->time_ns};
    }
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const from = &graph->op[i];
        op[i] = (ckpt_outline_op){.name = from->name,
                                  .layer = from->layer != NULL ? from->layer : "",
                                  .phase = from->phase,
                                  .time_ns = from->time_ns,
                                  .variant = from->variant,
                                  .way = from->variant_count > 0 ? &way[from->first_variant - graph->op_count] : NULL,
                                  .way_count = from->variant_count};
    }
    *outline =
        (ckpt_outline){graph->statics, graph->static_count, graph->buffer, graph->buffer_count, op, graph->op_count};
    return CKPT_OK;
}

static ckpt_code read_ways(const ckpt_item *item, ckpt_arena *out, ckpt_outline_op *op, ckpt_err *err)
{
    ckpt_item array;
    CKPT_TRY(ckpt_member_text(item, "variant", NULL, out, &op->variant, err));
    CKPT_TRY(ckpt_member_array(item, "variants", &array, &op->way_count, err));
    if (op->way_count == 0) {
        return CKPT_OK;
    }
    ckpt_outline_way *const way = CKPT_NEW(out, ckpt_outline_way, op->way_count);
    if (way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %d variants", ckpt_json_source(item->json),
                         op->way_count);
    }
    for (int i = 0; i < op->way_count; i++) {
        ckpt_item each;
        ckpt_item_at(&array, i, &each);
        CKPT_TRY(ckpt_need_text(&each, "name", out, &way[i].name, err));
        CKPT_TRY(ckpt_need_int(&each, "time_ns", 0, INT64_MAX, &way[i].time_ns, err));
    }
    op->way = way;
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
        CKPT_TRY(read_ways(&item, out, &op[i], err));
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

void ckpt_outline_write(const ckpt_outline *outline, ckpt_json_writer *w)
{
    ckpt_json_break(w, 2);
    ckpt_statics_write(outline->statics, outline->static_count, w);
    ckpt_json_break(w, 2);
    ckpt_buffers_write(outline->buffer, outline->buffer_count, w);
    ckpt_json_break(w, 2);
    ckpt_json_begin_array(w, "ops", CKPT_JSON_ROWS);
    for (int i = 0; i < outline->op_count; i++) {
        const ckpt_outline_op *const op = &outline->op[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "name", op->name);
        ckpt_json_put_text(w, "phase", ckpt_phase_name(op->phase));
        ckpt_json_put_given(w, "layer", op->layer);
        ckpt_json_put_int(w, "time_ns", op->time_ns);
        ckpt_json_put_given(w, "variant", op->variant);
        if (op->way_count > 0) {
            ckpt_json_begin_array(w, "variants", CKPT_JSON_LINE);
            for (int k = 0; k < op->way_count; k++) {
                ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
                ckpt_json_put_text(w, "name", op->way[k].name);
                ckpt_json_put_int(w, "time_ns", op->way[k].time_ns);
                ckpt_json_end(w);
            }
            ckpt_json_end(w);
        }
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
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
