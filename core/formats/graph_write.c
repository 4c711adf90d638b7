/* A graph as JSON, and as the canonical text whose SHA-256 names it. Both hold one entry a line. */
#include <inttypes.h>
#include <string.h>

#include "core/formats/graph_impl.h"

static void write_list(const ckpt_graph *graph, const char *key, const ckpt_list *list, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, key, CKPT_JSON_LINE);
    for (int i = 0; i < list->count; i++) {
        ckpt_json_put_text(w, NULL, graph->buffer[list->at[i]].name);
    }
    ckpt_json_end(w);
}

static void write_inplace(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "inplace", CKPT_JSON_LINE);
    for (int k = 0; k < op->inplace_count; k++) {
        ckpt_json_put_texts(
            w, NULL,
            (const char *const[]){graph->buffer[op->inplace[k].out].name, graph->buffer[op->inplace[k].in].name}, 2);
    }
    ckpt_json_end(w);
}

static bool same_list(const ckpt_list *a, const ckpt_list *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->at, b->at, (size_t)a->count * sizeof *a->at) == 0);
}

static bool same_inplace(const ckpt_graph_op *a, const ckpt_graph_op *b)
{
    return a->inplace_count == b->inplace_count &&
           (a->inplace_count == 0 ||
            memcmp(a->inplace, b->inplace, (size_t)a->inplace_count * sizeof *a->inplace) == 0);
}

/* Only where it differs from its op, but for its time. */
static void write_variant(const ckpt_graph *graph, const ckpt_graph_op *way, ckpt_json_writer *w)
{
    const ckpt_graph_op *const op = &graph->op[way->base];
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(w, "name", way->variant);
    if (!same_list(&way->reads, &op->reads)) {
        write_list(graph, "reads", &way->reads, w);
    }
    if (!same_list(&way->writes, &op->writes)) {
        write_list(graph, "writes", &way->writes, w);
    }
    if (!same_list(&way->adds, &op->adds)) {
        write_list(graph, "adds", &way->adds, w);
    }
    if (!same_inplace(way, op)) {
        write_inplace(graph, way, w);
    }
    ckpt_json_put_int(w, "time_ns", way->time_ns);
    if (way->workspace_bytes != op->workspace_bytes) {
        ckpt_json_put_int(w, "workspace_bytes", way->workspace_bytes);
    }
    if (way->inexact) {
        ckpt_json_put_bool(w, "exact", false);
    }
    ckpt_json_end(w);
}

static void write_op(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(w, "name", op->name);
    ckpt_json_put_text(w, "phase", ckpt_phase_name(op->phase));
    ckpt_json_put_given(w, "layer", op->layer);
    write_list(graph, "reads", &op->reads, w);
    write_list(graph, "writes", &op->writes, w);
    if (op->adds.count > 0) {
        write_list(graph, "adds", &op->adds, w);
    }
    if (op->inplace_count > 0) {
        write_inplace(graph, op, w);
    }
    ckpt_json_put_int(w, "time_ns", op->time_ns);
    if (op->workspace_bytes > 0) {
        ckpt_json_put_int(w, "workspace_bytes", op->workspace_bytes);
    }
    if (op->recompute != (op->phase == CKPT_FORWARD && op->adds.count == 0)) {
        ckpt_json_put_bool(w, "recompute", op->recompute);
    }
    if (op->checkpoint != CKPT_UNSET) {
        ckpt_json_put_bool(w, "checkpoint", op->checkpoint == CKPT_YES);
    }
    if (op->segment != NULL) {
        ckpt_json_put_text(w, "segment", op->segment);
    }
    if (op->kind != NULL) {
        ckpt_json_put_text(w, "op", op->kind);
    }
    if (op->offload != CKPT_UNSET) {
        ckpt_json_put_bool(w, "offload", op->offload == CKPT_YES);
    }
    if (op->stage > 0) {
        ckpt_json_put_int(w, "stage", op->stage - 1);
    }
    if (op->optional) {
        ckpt_json_put_bool(w, "optional", true);
    }
    if (op->variant != NULL) {
        ckpt_json_put_text(w, "variant", op->variant);
    }
    if (op->variant_count > 0) {
        ckpt_json_begin_array(w, "variants", CKPT_JSON_LINE);
        for (int k = 0; k < op->variant_count; k++) {
            write_variant(graph, &graph->op[op->first_variant + k], w);
        }
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

void ckpt_statics_write(const ckpt_static *statics, int count, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "static", CKPT_JSON_ROWS);
    for (int i = 0; i < count; i++) {
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "name", statics[i].name);
        ckpt_json_put_int(w, "bytes", statics[i].bytes);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

void ckpt_buffers_write(const ckpt_buffer *buffer, int count, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "buffers", CKPT_JSON_ROWS);
    for (int i = 0; i < count; i++) {
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "name", buffer[i].name);
        ckpt_json_put_int(w, "bytes", buffer[i].bytes);
        ckpt_json_put_text(w, "kind", ckpt_kind_name(buffer[i].kind));
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

void ckpt_graph_write(const ckpt_graph *graph, ckpt_text *text)
{
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&w, "format", "ckpt-graph/1");
    ckpt_json_put_text(&w, "name", graph->name);
    ckpt_statics_write(graph->statics, graph->static_count, &w);
    ckpt_buffers_write(graph->buffer, graph->buffer_count, &w);
    ckpt_json_begin_array(&w, "ops", CKPT_JSON_LINES);
    for (int i = 0; i < graph->op_count; i++) {
        write_op(graph, &graph->op[i], &w);
    }
    ckpt_json_end(&w);
    write_list(graph, "outputs", &graph->outputs, &w);
    if (graph->order_free) {
        ckpt_json_put_text(&w, "order", "free");
    }
    if (graph->has_link) {
        ckpt_json_begin_object(&w, "link", CKPT_JSON_LINE);
        CKPT_JSON_INTS(&w, {"d2h_bytes_per_s", graph->d2h_bytes_per_s}, {"h2d_bytes_per_s", graph->h2d_bytes_per_s});
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
}

static void canonical_list(const ckpt_graph *graph, const char *key, const ckpt_list *list, ckpt_text *text)
{
    ckpt_text_put(text, key, strlen(key));
    for (int i = 0; i < list->count; i++) {
        ckpt_text_put(text, " ", 1);
        ckpt_text_json(text, graph->buffer[list->at[i]].name);
    }
    ckpt_text_put(text, "\n", 1);
}

static void canonical_way(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_text *text)
{
    canonical_list(graph, "reads", &op->reads, text);
    canonical_list(graph, "writes", &op->writes, text);
    canonical_list(graph, "adds", &op->adds, text);
    for (int k = 0; k < op->inplace_count; k++) {
        ckpt_text_add(text, "inplace ");
        ckpt_text_json(text, graph->buffer[op->inplace[k].out].name);
        ckpt_text_put(text, " ", 1);
        ckpt_text_json(text, graph->buffer[op->inplace[k].in].name);
        ckpt_text_add(text, "\n");
    }
}

static void canonical_op(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_text *text)
{
    ckpt_text_add(text, "op ");
    ckpt_text_json(text, op->name);
    ckpt_text_add(text, " %s %s%s", ckpt_phase_name(op->phase), op->recompute ? "again" : "once",
                  op->optional ? " optional" : "");
    if (op->variant != NULL) {
        ckpt_text_add(text, " ");
        ckpt_text_json(text, op->variant);
    }
    ckpt_text_add(text, "\n");
    canonical_way(graph, op, text);
    for (int k = 0; k < op->variant_count; k++) {
        const ckpt_graph_op *const way = &graph->op[op->first_variant + k];
        ckpt_text_add(text, "variant ");
        ckpt_text_json(text, way->variant);
        ckpt_text_add(text, "%s\n", way->inexact ? " inexact" : "");
        canonical_way(graph, way, text);
    }
}

/* docs/reference/formats.md, "The digest of a graph". */
static void write_canonical(const ckpt_graph *graph, ckpt_text *text)
{
    ckpt_text_add(text, "ckpt-graph/1 ");
    ckpt_text_json(text, graph->name);
    ckpt_text_add(text, "\n");
    for (int i = 0; i < graph->static_count; i++) {
        ckpt_text_add(text, "static ");
        ckpt_text_json(text, graph->statics[i].name);
        ckpt_text_add(text, " %" PRId64 "\n", graph->statics[i].bytes);
    }
    for (int i = 0; i < graph->buffer_count; i++) {
        ckpt_text_add(text, "buffer ");
        ckpt_text_json(text, graph->buffer[i].name);
        ckpt_text_add(text, " %" PRId64 " %s\n", graph->buffer[i].bytes, ckpt_kind_name(graph->buffer[i].kind));
    }
    for (int i = 0; i < graph->op_count; i++) {
        canonical_op(graph, &graph->op[i], text);
    }
    canonical_list(graph, "outputs", &graph->outputs, text);
}

static bool add_to_digest(void *digest, const char *bytes, size_t length)
{
    ckpt_digest_add(digest, bytes, length);
    return true;
}

ckpt_code ckpt_graph_digest(const ckpt_graph *graph, char text[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_digest *const digest = ckpt_digest_create();
    if (digest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    ckpt_text canonical;
    ckpt_text_init(&canonical);
    canonical.drain = add_to_digest;
    canonical.to = digest;
    write_canonical(graph, &canonical);
    ckpt_text_flush(&canonical);
    ckpt_digest_end(digest, text);
    const ckpt_code code = ckpt_text_end(&canonical, err);
    ckpt_text_fini(&canonical);
    return code;
}
