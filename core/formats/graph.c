/* The rules a graph keeps. Names are unique within statics, within buffers and within ops. */
#include "core/formats/graph.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/names.h"
#include "core/formats/graph_impl.h"

const char *ckpt_phase_name(ckpt_phase phase)
{
    switch (phase) {
    case CKPT_FORWARD: return "forward";
    case CKPT_BACKWARD: return "backward";
    case CKPT_UPDATE: return "update";
    case CKPT_REDUCE: return "reduce";
    }
    return "unknown";
}

const char *ckpt_kind_name(ckpt_kind kind)
{
    switch (kind) {
    case CKPT_ACTIVATION: return "activation";
    case CKPT_SAVED: return "saved";
    case CKPT_GRADIENT: return "gradient";
    }
    return "unknown";
}

int ckpt_graph_find_buffer(const ckpt_graph *graph, const char *name)
{
    for (int i = 0; i < graph->buffer_count; i++) {
        if (strcmp(graph->buffer[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int ckpt_graph_find_op(const ckpt_graph *graph, const char *name)
{
    for (int i = 0; i < graph->op_count; i++) {
        if (strcmp(graph->op[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

bool ckpt_list_has(const ckpt_list *list, int buffer)
{
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] == buffer) {
            return true;
        }
    }
    return false;
}

ckpt_graph_op *ckpt_graph_copy_ops(const ckpt_graph *graph, ckpt_arena *out)
{
    const size_t runs = (size_t)graph->op_count + (size_t)graph->variant_count;
    ckpt_graph_op *const op = CKPT_NEW(out, ckpt_graph_op, runs);
    if (op != NULL && runs > 0) {
        memcpy(op, graph->op, runs * sizeof *op);
    }
    return op;
}

bool ckpt_op_may_move(const ckpt_graph *graph, int o)
{
    const ckpt_graph_op *const op = &graph->op[o];
    return op->recompute && op->adds.count == 0 && op->inplace_count == 0 && op->variant_count == 0 && !op->optional;
}

bool ckpt_graph_has_variants(const ckpt_graph *graph)
{
    bool any = graph->variant_count > 0;
    for (int o = 0; o < graph->op_count && !any; o++) {
        any = graph->op[o].optional;
    }
    return any;
}

/* One check in progress. */
typedef struct checker {
    ckpt_graph *graph;
    ckpt_graph_where *where;
    ckpt_err *err;
    int *writer;
    int64_t *stamp; /* per buffer: the last list it was seen in, so that a list holds each buffer once */
    int64_t next_stamp;
} checker;

static void look_at(const checker *c, const char *array, int index)
{
    *c->where = (ckpt_graph_where){array, index};
}

static ckpt_code new_name(const checker *c, ckpt_names *names, const char *what, const char *name, int index)
{
    if (name == NULL || name[0] == '\0') {
        return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%s %d has no name", what, index);
    }
    const int first = ckpt_names_add(names, name, index);
    if (first >= 0) {
        return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%ss %d and %d are both named \"%.80s\", wanted unique names", what,
                         first, index, name);
    }
    return CKPT_OK;
}

static ckpt_code check_names(const checker *c, ckpt_arena *scratch)
{
    const ckpt_graph *const g = c->graph;
    ckpt_names names;
    CKPT_TRY(ckpt_names_init(&names, g->static_count, scratch, c->err));
    for (int i = 0; i < g->static_count; i++) {
        look_at(c, "static", i);
        CKPT_TRY(new_name(c, &names, "static", g->statics[i].name, i));
    }
    CKPT_TRY(ckpt_names_init(&names, g->buffer_count, scratch, c->err));
    for (int i = 0; i < g->buffer_count; i++) {
        look_at(c, "buffers", i);
        CKPT_TRY(new_name(c, &names, "buffer", g->buffer[i].name, i));
        if (strcmp(g->buffer[i].name, "workspace") == 0) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                             "buffer %d is named \"workspace\", which in a plan means an op's scratch", i);
        }
    }
    CKPT_TRY(ckpt_names_init(&names, g->op_count, scratch, c->err));
    for (int i = 0; i < g->op_count; i++) {
        look_at(c, "ops", i);
        CKPT_TRY(new_name(c, &names, "op", g->op[i].name, i));
    }
    return CKPT_OK;
}

/* Variants stand together behind the ops, each with a name that its op has once. */
static ckpt_code check_variants(const checker *c)
{
    const ckpt_graph *const g = c->graph;
    int at = g->op_count;
    for (int i = 0; i < g->op_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        look_at(c, "ops", i);
        if (op->variant_count > 0 && op->first_variant != at) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: its variants begin at %d, wanted %d", op->name,
                             op->first_variant, at);
        }
        for (int k = 0; k < op->variant_count; k++, at++) {
            const ckpt_graph_op *const way = &g->op[at];
            bool twice = op->variant != NULL && strcmp(op->variant, way->variant) == 0;
            for (int before = op->first_variant; before < at; before++) {
                twice = twice || strcmp(g->op[before].variant, way->variant) == 0;
            }
            if (twice || way->variant[0] == '\0') {
                return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: %s \"%.80s\"", op->name,
                                 twice ? "two variants are named" : "found a variant named", way->variant);
            }
        }
        if (op->optional && op->adds.count > 0) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: is optional, but it adds", op->name);
        }
    }
    return at == g->op_count + g->variant_count ? CKPT_OK
                                                : CKPT_FAIL(c->err, CKPT_BAD_INPUT, "ops have %d variants, wanted %d",
                                                            at - g->op_count, g->variant_count);
}

/* Indices in range, each once in its list. */
static ckpt_code check_list(checker *c, const ckpt_list *list, const char *owner, const char *what)
{
    c->next_stamp++;
    if (list->count < 0 || (list->count > 0 && list->at == NULL)) {
        return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: its list of %s has %d entries", owner, what, list->count);
    }
    for (int i = 0; i < list->count; i++) {
        const int b = list->at[i];
        if (b < 0 || b >= c->graph->buffer_count) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: %s buffer %d, but there are %d", owner, what, b,
                             c->graph->buffer_count);
        }
        if (c->stamp[b] == c->next_stamp) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: %s \"%.80s\" twice", owner, what,
                             c->graph->buffer[b].name);
        }
        c->stamp[b] = c->next_stamp;
    }
    return CKPT_OK;
}

static ckpt_code check_lists(checker *c)
{
    const ckpt_graph *const g = c->graph;
    for (int i = 0; i < g->op_count + g->variant_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        look_at(c, "ops", ckpt_run_base(g, i));
        CKPT_TRY(check_list(c, &op->reads, op->name, "reads"));
        CKPT_TRY(check_list(c, &op->writes, op->name, "writes"));
        CKPT_TRY(check_list(c, &op->adds, op->name, "adds"));
        for (int k = 0; k < op->inplace_count; k++) {
            if (op->inplace[k].out < 0 || op->inplace[k].out >= g->buffer_count || op->inplace[k].in < 0 ||
                op->inplace[k].in >= g->buffer_count) {
                return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: in-place pair %d names no buffer", op->name, k);
            }
        }
    }
    look_at(c, "outputs", 0);
    return check_list(c, &g->outputs, "outputs", "names");
}

static ckpt_code add_up(const checker *c, const char *what, const char *name, int64_t value, int64_t *sum)
{
    if (value < 0) {
        return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: %s is %" PRId64 ", wanted 0 or more", name, what, value);
    }
    if (!ckpt_sum(*sum, value, sum)) {
        return CKPT_FAIL(c->err, CKPT_OVERFLOW, "%.80s: with its %s of %" PRId64 " the sum does not fit 63 bits", name,
                         what, value);
    }
    return CKPT_OK;
}

static ckpt_code check_sums(const checker *c)
{
    const ckpt_graph *const g = c->graph;
    int64_t bytes = 0;
    for (int i = 0; i < g->static_count; i++) {
        look_at(c, "static", i);
        CKPT_TRY(add_up(c, "bytes", g->statics[i].name, g->statics[i].bytes, &bytes));
    }
    for (int i = 0; i < g->buffer_count; i++) {
        look_at(c, "buffers", i);
        CKPT_TRY(add_up(c, "bytes", g->buffer[i].name, g->buffer[i].bytes, &bytes));
    }
    int64_t time = 0; /* of all ways of all ops: more than any plan runs once */
    for (int i = 0; i < g->op_count + g->variant_count; i++) {
        look_at(c, "ops", ckpt_run_base(g, i));
        int64_t with_workspace = bytes;
        CKPT_TRY(add_up(c, "time_ns", g->op[i].name, g->op[i].time_ns, &time));
        CKPT_TRY(add_up(c, "workspace_bytes", g->op[i].name, g->op[i].workspace_bytes, &with_workspace));
    }
    if (g->has_link && (g->d2h_bytes_per_s < 1 || g->h2d_bytes_per_s < 1)) {
        look_at(c, NULL, 0);
        return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "a link of %" PRId64 " and %" PRId64 " bytes per second",
                         g->d2h_bytes_per_s, g->h2d_bytes_per_s);
    }
    return CKPT_OK;
}

static ckpt_code check_writers(const checker *c)
{
    const ckpt_graph *const g = c->graph;
    for (int b = 0; b < g->buffer_count; b++) {
        c->writer[b] = -1;
    }
    for (int i = 0; i < g->op_count + g->variant_count; i++) {
        const int o = ckpt_run_base(g, i);
        look_at(c, "ops", o);
        for (int k = 0; k < g->op[i].writes.count; k++) {
            const int b = g->op[i].writes.at[k];
            if (c->writer[b] >= 0 && c->writer[b] != o) {
                return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: writes \"%.80s\", which %.80s already writes",
                                 g->op[o].name, g->buffer[b].name, g->op[c->writer[b]].name);
            }
            c->writer[b] = o;
        }
    }
    for (int b = 0; b < g->buffer_count; b++) {
        if (c->writer[b] < 0) {
            look_at(c, "buffers", b);
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "no op writes \"%.80s\"", g->buffer[b].name);
        }
    }
    return CKPT_OK;
}

static ckpt_code check_later(const checker *c, const ckpt_graph_op *op, int index, const ckpt_list *list,
                             const char *what)
{
    for (int k = 0; k < list->count; k++) {
        const int b = list->at[k];
        if (c->writer[b] >= index) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: %s \"%.80s\", which is written only by %s %.80s", op->name,
                             what, c->graph->buffer[b].name, c->writer[b] == index ? "itself," : "the later",
                             c->graph->op[c->writer[b]].name);
        }
    }
    return CKPT_OK;
}

/* Mark the buffers of a list with a stamp of their own. */
static int64_t stamp_list(checker *c, const ckpt_list *list)
{
    c->next_stamp++;
    for (int i = 0; i < list->count; i++) {
        c->stamp[list->at[i]] = c->next_stamp;
    }
    return c->next_stamp;
}

static ckpt_code shared_pair(const checker *c, const ckpt_graph_op *op, int pair)
{
    int first = 0;
    while (op->inplace[first].out != op->inplace[pair].out && op->inplace[first].in != op->inplace[pair].in) {
        first++;
    }
    return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                     "%.80s: in-place pairs %d and %d share a buffer, so a plan could not say which is meant", op->name,
                     first, pair);
}

/* What the op reads and what it writes is known to be distinct, so a buffer needs one stamp only. */
static ckpt_code check_inplace(checker *c, const ckpt_graph_op *op)
{
    const ckpt_buffer *const buffer = c->graph->buffer;
    const int64_t written = stamp_list(c, &op->writes);
    const int64_t read = stamp_list(c, &op->reads);
    const int64_t out_taken = ++c->next_stamp;
    const int64_t in_taken = ++c->next_stamp;
    for (int k = 0; k < op->inplace_count; k++) {
        const ckpt_inplace pair = op->inplace[k];
        const char *const out = buffer[pair.out].name;
        const char *const in = buffer[pair.in].name;
        const int64_t out_stamp = c->stamp[pair.out];
        const int64_t in_stamp = c->stamp[pair.in];
        if ((out_stamp != written && out_stamp != out_taken) || (in_stamp != read && in_stamp != in_taken)) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                             "%.80s: in-place pair [\"%.80s\", \"%.80s\"], wanted [one it writes, one it reads]",
                             op->name, out, in);
        }
        if (buffer[pair.out].bytes != buffer[pair.in].bytes) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                             "%.80s: in-place pair \"%.80s\" of %" PRId64 " bytes and \"%.80s\" of %" PRId64
                             " bytes, wanted equal sizes",
                             op->name, out, buffer[pair.out].bytes, in, buffer[pair.in].bytes);
        }
        if (out_stamp == out_taken || in_stamp == in_taken) {
            return shared_pair(c, op, k);
        }
        c->stamp[pair.out] = out_taken;
        c->stamp[pair.in] = in_taken;
    }
    return CKPT_OK;
}

static ckpt_code check_ops(checker *c)
{
    const ckpt_graph *const g = c->graph;
    for (int i = 0; i < g->op_count + g->variant_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        const int o = ckpt_run_base(g, i);
        look_at(c, "ops", o);
        CKPT_TRY(check_later(c, op, o, &op->reads, "reads"));
        CKPT_TRY(check_later(c, op, o, &op->adds, "adds to"));
        for (int k = 0; k < op->adds.count; k++) {
            const ckpt_buffer *const buffer = &g->buffer[op->adds.at[k]];
            if (buffer->kind != CKPT_GRADIENT) {
                return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "%.80s: adds to \"%.80s\" of kind %s, wanted a gradient",
                                 op->name, buffer->name, ckpt_kind_name(buffer->kind));
            }
        }
        if (op->recompute && op->adds.count > 0) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                             "%.80s: may be recomputed, but it adds, and adding twice gives another sum", op->name);
        }
        if (op->inplace_count > 0) {
            CKPT_TRY(check_inplace(c, op));
        }
    }
    return CKPT_OK;
}

/* Keep-all: every op that must run, in its own way. It is a schedule of every graph. */
static ckpt_code check_keep_all(checker *c)
{
    const ckpt_graph *const g = c->graph;
    const int64_t written = ++c->next_stamp;
    for (int i = 0; i < g->op_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        look_at(c, "ops", i);
        const ckpt_list *const used[] = {&op->reads, &op->adds};
        for (int l = 0; l < 2 && !op->optional; l++) {
            for (int k = 0; k < used[l]->count; k++) {
                if (c->stamp[used[l]->at[k]] != written) {
                    return CKPT_FAIL(c->err, CKPT_BAD_INPUT,
                                     "%.80s: needs \"%.80s\", which only variants or optional ops write", op->name,
                                     g->buffer[used[l]->at[k]].name);
                }
            }
        }
        for (int k = 0; k < op->writes.count && !op->optional; k++) {
            c->stamp[op->writes.at[k]] = written;
        }
    }
    look_at(c, "outputs", 0);
    for (int k = 0; k < g->outputs.count; k++) {
        if (c->stamp[g->outputs.at[k]] != written) {
            return CKPT_FAIL(c->err, CKPT_BAD_INPUT, "outputs: \"%.80s\" is written only by variants or optional ops",
                             g->buffer[g->outputs.at[k]].name);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_graph_check_at(ckpt_graph *graph, ckpt_arena *out, ckpt_graph_where *where, ckpt_err *err)
{
    checker c = {graph, where, err, CKPT_NEW(out, int, graph->buffer_count), NULL, 0};
    look_at(&c, NULL, 0);
    const ckpt_mark mark = ckpt_arena_mark(out); /* all below this line is workspace */
    c.stamp = CKPT_NEW(out, int64_t, graph->buffer_count);
    if (c.writer == NULL || c.stamp == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to check a graph of %d buffers", graph->buffer_count);
    }
    CKPT_TRY(check_names(&c, out));
    CKPT_TRY(check_variants(&c));
    CKPT_TRY(check_lists(&c));
    CKPT_TRY(check_sums(&c));
    CKPT_TRY(check_writers(&c));
    CKPT_TRY(check_ops(&c));
    CKPT_TRY(check_keep_all(&c));
    ckpt_arena_rewind(out, mark);
    graph->writer = c.writer;
    graph->static_bytes = 0;
    for (int i = 0; i < graph->static_count; i++) {
        graph->static_bytes += graph->statics[i].bytes; /* check_sums has shown that it fits */
    }
    return CKPT_OK;
}

ckpt_code ckpt_graph_check(ckpt_graph *graph, ckpt_arena *out, ckpt_err *err)
{
    ckpt_graph_where where;
    const ckpt_code code = ckpt_graph_check_at(graph, out, &where, err);
    if (code != CKPT_OK && code != CKPT_NO_MEMORY) {
        ckpt_err_at(err, "graph %.80s", graph->name);
    }
    return code;
}
