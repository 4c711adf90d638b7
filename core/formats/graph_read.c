/* ckpt-graph/1 from a file. Names become indices through hash tables; the rules are graph.c's. */
#include <string.h>

#include "core/base/names.h"
#include "core/formats/graph_impl.h"
#include "core/json/json_member.h"

typedef struct reader {
    ckpt_arena *out;
    ckpt_names buffers;
    ckpt_graph *graph;
    ckpt_err *err;
} reader;

static ckpt_code no_memory(const reader *r, const char *what, int count)
{
    return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d %s", r->graph->source, count, what);
}

ckpt_code ckpt_statics_read(const ckpt_item *object, bool needed, ckpt_arena *out, const ckpt_static **statics,
                            int *count, ckpt_err *err)
{
    ckpt_item array;
    CKPT_TRY(needed ? ckpt_need_array(object, "static", &array, count, err)
                    : ckpt_member_array(object, "static", &array, count, err));
    ckpt_static *const made = CKPT_NEW(out, ckpt_static, *count);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %d statics", ckpt_json_source(object->json),
                         *count);
    }
    for (int i = 0; i < *count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_need_text(&item, "name", out, &made[i].name, err));
        CKPT_TRY(ckpt_need_int(&item, "bytes", 0, INT64_MAX, &made[i].bytes, err));
    }
    *statics = made;
    return CKPT_OK;
}

static ckpt_code read_kind(const ckpt_item *buffer, ckpt_arena *out, ckpt_kind *kind, ckpt_err *err)
{
    ckpt_item item;
    const char *text = "";
    *kind = CKPT_ACTIVATION;
    if (!ckpt_item_find(buffer, "kind", &item)) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(out);
    CKPT_TRY(ckpt_item_text(&item, out, &text, err));
    for (int k = CKPT_ACTIVATION; k <= CKPT_GRADIENT; k++) {
        if (strcmp(text, ckpt_kind_name((ckpt_kind)k)) == 0) {
            *kind = (ckpt_kind)k;
            ckpt_arena_rewind(out, mark);
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&item, err, "found kind \"%.40s\", wanted activation, saved or gradient", text);
}

ckpt_code ckpt_buffers_read(const ckpt_item *object, ckpt_arena *out, const ckpt_buffer **buffer, int *count,
                            ckpt_err *err)
{
    ckpt_item array;
    CKPT_TRY(ckpt_need_array(object, "buffers", &array, count, err));
    ckpt_buffer *const made = CKPT_NEW(out, ckpt_buffer, *count);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %d buffers", ckpt_json_source(object->json),
                         *count);
    }
    for (int i = 0; i < *count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_need_text(&item, "name", out, &made[i].name, err));
        CKPT_TRY(ckpt_need_int(&item, "bytes", 0, INT64_MAX, &made[i].bytes, err));
        CKPT_TRY(read_kind(&item, out, &made[i].kind, err));
    }
    *buffer = made;
    return CKPT_OK;
}

static ckpt_code read_buffers(reader *r, const ckpt_item *root)
{
    ckpt_graph *const graph = r->graph;
    CKPT_TRY(ckpt_buffers_read(root, r->out, &graph->buffer, &graph->buffer_count, r->err));
    CKPT_TRY(ckpt_names_init(&r->buffers, graph->buffer_count, r->out, r->err));
    for (int i = 0; i < graph->buffer_count; i++) {
        ckpt_names_add(&r->buffers, graph->buffer[i].name, i); /* a second one of that name is the check's to report */
    }
    return CKPT_OK;
}

static ckpt_code read_buffer_name(const reader *r, const ckpt_item *item, int *index)
{
    const ckpt_mark mark = ckpt_arena_mark(r->out);
    const char *name = "";
    CKPT_TRY(ckpt_item_text(item, r->out, &name, r->err));
    *index = ckpt_names_find(&r->buffers, name);
    if (*index < 0) {
        return ckpt_item_fail(item, r->err, "found \"%.80s\", wanted the name of one of the %d buffers", name,
                              r->graph->buffer_count);
    }
    ckpt_arena_rewind(r->out, mark);
    return CKPT_OK;
}

static ckpt_code read_list(const reader *r, const ckpt_item *object, const char *key, ckpt_list *list)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(object, key, &array, &count, r->err));
    int *const at = CKPT_NEW(r->out, int, count);
    if (at == NULL) {
        return no_memory(r, key, count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_buffer_name(r, &item, &at[i]));
    }
    *list = (ckpt_list){at, count};
    return CKPT_OK;
}

static ckpt_code read_inplace(const reader *r, const ckpt_item *object, ckpt_graph_op *op)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(object, "inplace", &array, &count, r->err));
    ckpt_inplace *const inplace = CKPT_NEW(r->out, ckpt_inplace, count);
    if (inplace == NULL) {
        return no_memory(r, "in-place pairs", count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item pair;
        ckpt_item side;
        int sides = 0;
        ckpt_item_at(&array, i, &pair);
        CKPT_TRY(ckpt_item_array(&pair, &sides, r->err));
        if (sides != 2) {
            return ckpt_item_fail(&pair, r->err, "found %d names, wanted two: [\"out\", \"in\"]", sides);
        }
        ckpt_item_at(&pair, 0, &side);
        CKPT_TRY(read_buffer_name(r, &side, &inplace[i].out));
        ckpt_item_at(&pair, 1, &side);
        CKPT_TRY(read_buffer_name(r, &side, &inplace[i].in));
    }
    op->inplace = inplace;
    op->inplace_count = count;
    return CKPT_OK;
}

ckpt_code ckpt_phase_read(const ckpt_item *op, ckpt_arena *out, ckpt_phase *phase, ckpt_err *err)
{
    ckpt_item item;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(op, "phase", &item, err));
    const ckpt_mark mark = ckpt_arena_mark(out);
    CKPT_TRY(ckpt_item_text(&item, out, &text, err));
    for (int k = CKPT_FORWARD; k <= CKPT_REDUCE; k++) {
        if (strcmp(text, ckpt_phase_name((ckpt_phase)k)) == 0) {
            *phase = (ckpt_phase)k;
            ckpt_arena_rewind(out, mark);
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&item, err, "found phase \"%.40s\", wanted forward, backward, update or reduce", text);
}

static ckpt_code read_choice(const ckpt_item *item, const char *key, ckpt_choice *choice, ckpt_err *err)
{
    ckpt_item flag;
    if (ckpt_item_find(item, key, &flag)) {
        bool yes = false;
        CKPT_TRY(ckpt_item_bool(&flag, &yes, err));
        *choice = yes ? CKPT_YES : CKPT_NO;
    }
    return CKPT_OK;
}

/* What an op and a variant say alike. What a variant does not say is as in its op, which `way` already holds. */
static ckpt_code read_way(const reader *r, const ckpt_item *item, ckpt_graph_op *way)
{
    static const char *const key[] = {"reads", "writes", "adds"};
    ckpt_list *const list[] = {&way->reads, &way->writes, &way->adds};
    ckpt_item any;
    for (int l = 0; l < 3; l++) {
        if (ckpt_item_find(item, key[l], &any)) {
            CKPT_TRY(read_list(r, item, key[l], list[l]));
        }
    }
    if (ckpt_item_find(item, "inplace", &any)) {
        CKPT_TRY(read_inplace(r, item, way));
    }
    CKPT_TRY(ckpt_need_int(item, "time_ns", 0, INT64_MAX, &way->time_ns, r->err));
    return ckpt_member_int(item, "workspace_bytes", 0, INT64_MAX, way->workspace_bytes, &way->workspace_bytes, r->err);
}

static ckpt_code read_op(const reader *r, const ckpt_item *item, ckpt_graph_op *op)
{
    ckpt_err *const err = r->err;
    CKPT_TRY(ckpt_need_text(item, "name", r->out, &op->name, err));
    CKPT_TRY(ckpt_phase_read(item, r->out, &op->phase, err));
    CKPT_TRY(ckpt_member_text(item, "layer", "", r->out, &op->layer, err));
    CKPT_TRY(read_way(r, item, op));
    const bool usual = op->phase == CKPT_FORWARD && op->adds.count == 0;
    CKPT_TRY(ckpt_member_bool(item, "recompute", usual, &op->recompute, err));
    CKPT_TRY(ckpt_member_text(item, "segment", NULL, r->out, &op->segment, err));
    CKPT_TRY(ckpt_member_text(item, "op", NULL, r->out, &op->kind, err));
    CKPT_TRY(read_choice(item, "checkpoint", &op->checkpoint, err));
    CKPT_TRY(read_choice(item, "offload", &op->offload, err));
    int64_t stage = -1;
    CKPT_TRY(ckpt_member_int(item, "stage", 0, INT32_MAX - 1, -1, &stage, err));
    op->stage = (int)stage + 1;
    CKPT_TRY(ckpt_member_text(item, "variant", NULL, r->out, &op->variant, err));
    return ckpt_member_bool(item, "optional", false, &op->optional, err);
}

static ckpt_code read_variant(const reader *r, const ckpt_item *item, ckpt_graph_op *way)
{
    bool exact = true;
    way->optional = false;
    way->first_variant = way->variant_count = 0;
    CKPT_TRY(ckpt_need_text(item, "name", r->out, &way->variant, r->err));
    CKPT_TRY(ckpt_member_bool(item, "exact", true, &exact, r->err));
    way->inexact = !exact;
    return read_way(r, item, way);
}

/* How many variants the ops have together. */
static ckpt_code count_variants(const reader *r, const ckpt_item *ops, int op_count, int *count)
{
    int64_t sum = 0;
    for (int i = 0; i < op_count; i++) {
        ckpt_item item;
        ckpt_item array;
        int variants = 0;
        ckpt_item_at(ops, i, &item);
        CKPT_TRY(ckpt_member_array(&item, "variants", &array, &variants, r->err));
        sum += variants;
        if (sum > INT32_MAX - op_count) {
            return ckpt_item_fail(&item, r->err, "found more than 2^31 ops and variants");
        }
    }
    *count = (int)sum;
    return CKPT_OK;
}

static ckpt_code read_ops(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    int variants = 0;
    CKPT_TRY(ckpt_need_array(root, "ops", &array, &count, r->err));
    CKPT_TRY(count_variants(r, &array, count, &variants));
    ckpt_graph_op *const op = CKPT_NEW(r->out, ckpt_graph_op, (size_t)count + (size_t)variants);
    if (op == NULL) {
        return no_memory(r, "ops", count + variants);
    }
    int at = count;
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item others;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_op(r, &item, &op[i]));
        CKPT_TRY(ckpt_member_array(&item, "variants", &others, &op[i].variant_count, r->err));
        op[i].first_variant = at;
        for (int k = 0; k < op[i].variant_count; k++, at++) {
            ckpt_item other;
            ckpt_item_at(&others, k, &other);
            op[at] = op[i];
            op[at].base = i;
            CKPT_TRY(read_variant(r, &other, &op[at]));
        }
    }
    r->graph->op = op;
    r->graph->op_count = count;
    r->graph->variant_count = variants;
    return CKPT_OK;
}

static ckpt_code read_link(const reader *r, const ckpt_item *root)
{
    ckpt_item link;
    if (!ckpt_item_find(root, "link", &link)) {
        return CKPT_OK;
    }
    r->graph->has_link = true;
    CKPT_TRY(ckpt_need_int(&link, "d2h_bytes_per_s", 1, INT64_MAX, &r->graph->d2h_bytes_per_s, r->err));
    return ckpt_need_int(&link, "h2d_bytes_per_s", 1, INT64_MAX, &r->graph->h2d_bytes_per_s, r->err);
}

static ckpt_code read_order(const reader *r, const ckpt_item *root)
{
    ckpt_item item;
    const char *text = NULL;
    if (!ckpt_item_find(root, "order", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_text(&item, r->out, &text, r->err));
    r->graph->order_free = strcmp(text, "free") == 0;
    return r->graph->order_free || strcmp(text, "fixed") == 0
               ? CKPT_OK
               : ckpt_item_fail(&item, r->err, "found order \"%.40s\", wanted fixed or free", text);
}

/* The message of a broken rule gets the place of the entry that broke it. */
static ckpt_code check_rules(const reader *r, const ckpt_item *root)
{
    ckpt_graph_where where;
    const ckpt_code code = ckpt_graph_check_at(r->graph, r->out, &where, r->err);
    ckpt_item array;
    if (code == CKPT_OK || code == CKPT_NO_MEMORY) {
        return code;
    }
    if (where.array == NULL || !ckpt_item_find(root, where.array, &array) || where.index >= ckpt_item_count(&array)) {
        return ckpt_item_blame(root, code, r->err);
    }
    ckpt_item item;
    ckpt_item_at(&array, where.index, &item);
    return ckpt_item_blame(&item, code, r->err);
}

static ckpt_code read_graph(reader *r, const ckpt_item *root)
{
    r->graph->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (r->graph->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_need_text(root, "name", r->out, &r->graph->name, r->err));
    CKPT_TRY(ckpt_statics_read(root, false, r->out, &r->graph->statics, &r->graph->static_count, r->err));
    CKPT_TRY(read_buffers(r, root));
    CKPT_TRY(read_ops(r, root));
    CKPT_TRY(read_list(r, root, "outputs", &r->graph->outputs));
    CKPT_TRY(read_link(r, root));
    CKPT_TRY(read_order(r, root));
    return check_rules(r, root);
}

ckpt_code ckpt_graph_item(const ckpt_item *root, ckpt_arena *out, const ckpt_graph **graph, ckpt_err *err)
{
    reader r = {.out = out, .graph = CKPT_NEW(out, ckpt_graph, 1), .err = err};
    if (r.graph == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    }
    CKPT_TRY(read_graph(&r, root));
    *graph = r.graph;
    return CKPT_OK;
}

ckpt_code ckpt_graph_read(const char *path, ckpt_arena *out, const ckpt_graph **graph, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-graph", &json, &root, err));
    const ckpt_code code = ckpt_graph_item(&root, out, graph, err);
    ckpt_json_close(json);
    return code;
}
