/* A graph as JSON, and as the canonical text whose SHA-256 names it. Both hold one entry a line. */
#include <inttypes.h>

#include "core/formats/graph_impl.h"

static void write_list(const ckpt_graph *graph, const ckpt_list *list, ckpt_text *text)
{
    ckpt_text_add(text, "[");
    for (int i = 0; i < list->count; i++) {
        ckpt_text_add(text, "%s", i > 0 ? ", " : "");
        ckpt_text_json(text, graph->buffer[list->at[i]].name);
    }
    ckpt_text_add(text, "]");
}

static void write_op(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_text *text)
{
    ckpt_text_add(text, "    { \"name\": ");
    ckpt_text_json(text, op->name);
    ckpt_text_add(text, ", \"phase\": \"%s\"", ckpt_phase_name(op->phase));
    if (op->layer != NULL && op->layer[0] != '\0') {
        ckpt_text_add(text, ", \"layer\": ");
        ckpt_text_json(text, op->layer);
    }
    ckpt_text_add(text, ", \"reads\": ");
    write_list(graph, &op->reads, text);
    ckpt_text_add(text, ", \"writes\": ");
    write_list(graph, &op->writes, text);
    if (op->adds.count > 0) {
        ckpt_text_add(text, ", \"adds\": ");
        write_list(graph, &op->adds, text);
    }
    for (int k = 0; k < op->inplace_count; k++) {
        ckpt_text_add(text, "%s[", k == 0 ? ", \"inplace\": [" : ", ");
        ckpt_text_json(text, graph->buffer[op->inplace[k].out].name);
        ckpt_text_add(text, ", ");
        ckpt_text_json(text, graph->buffer[op->inplace[k].in].name);
        ckpt_text_add(text, "]%s", k + 1 == op->inplace_count ? "]" : "");
    }
    ckpt_text_add(text, ", \"time_ns\": %" PRId64, op->time_ns);
    if (op->workspace_bytes > 0) {
        ckpt_text_add(text, ", \"workspace_bytes\": %" PRId64, op->workspace_bytes);
    }
    if (op->recompute != (op->phase == CKPT_FORWARD && op->adds.count == 0)) {
        ckpt_text_add(text, ", \"recompute\": %s", op->recompute ? "true" : "false");
    }
    if (op->checkpoint != CKPT_UNSET) {
        ckpt_text_add(text, ", \"checkpoint\": %s", op->checkpoint == CKPT_YES ? "true" : "false");
    }
    if (op->segment != NULL) {
        ckpt_text_add(text, ", \"segment\": ");
        ckpt_text_json(text, op->segment);
    }
    if (op->kind != NULL) {
        ckpt_text_add(text, ", \"op\": ");
        ckpt_text_json(text, op->kind);
    }
    if (op->offload != CKPT_UNSET) {
        ckpt_text_add(text, ", \"offload\": %s", op->offload == CKPT_YES ? "true" : "false");
    }
    if (op->stage > 0) {
        ckpt_text_add(text, ", \"stage\": %d", op->stage - 1);
    }
    ckpt_text_add(text, " }");
}

/* Between entries of an array, and before its end. */
static const char *after(int i, int count)
{
    return i + 1 < count ? ",\n" : "\n  ";
}

void ckpt_statics_write(const ckpt_static *statics, int count, ckpt_text *text)
{
    ckpt_text_add(text, "[%s", count > 0 ? "\n" : "");
    for (int i = 0; i < count; i++) {
        ckpt_text_add(text, "    { \"name\": ");
        ckpt_text_json(text, statics[i].name);
        ckpt_text_add(text, ", \"bytes\": %" PRId64 " }%s", statics[i].bytes, after(i, count));
    }
    ckpt_text_add(text, "]");
}

void ckpt_buffers_write(const ckpt_buffer *buffer, int count, ckpt_text *text)
{
    ckpt_text_add(text, "[%s", count > 0 ? "\n" : "");
    for (int i = 0; i < count; i++) {
        ckpt_text_add(text, "    { \"name\": ");
        ckpt_text_json(text, buffer[i].name);
        ckpt_text_add(text, ", \"bytes\": %" PRId64 ", \"kind\": \"%s\" }%s", buffer[i].bytes,
                      ckpt_kind_name(buffer[i].kind), after(i, count));
    }
    ckpt_text_add(text, "]");
}

void ckpt_graph_write(const ckpt_graph *graph, ckpt_text *text)
{
    ckpt_text_add(text, "{\n  \"format\": \"ckpt-graph/1\",\n  \"name\": ");
    ckpt_text_json(text, graph->name);
    ckpt_text_add(text, ",\n  \"static\": ");
    ckpt_statics_write(graph->statics, graph->static_count, text);
    ckpt_text_add(text, ",\n  \"buffers\": ");
    ckpt_buffers_write(graph->buffer, graph->buffer_count, text);
    ckpt_text_add(text, ",\n  \"ops\": [%s", graph->op_count > 0 ? "\n" : "");
    for (int i = 0; i < graph->op_count; i++) {
        write_op(graph, &graph->op[i], text);
        ckpt_text_add(text, "%s", after(i, graph->op_count));
    }
    ckpt_text_add(text, "],\n  \"outputs\": ");
    write_list(graph, &graph->outputs, text);
    if (graph->has_link) {
        ckpt_text_add(text, ",\n  \"link\": { \"d2h_bytes_per_s\": %" PRId64 ", \"h2d_bytes_per_s\": %" PRId64 " }",
                      graph->d2h_bytes_per_s, graph->h2d_bytes_per_s);
    }
    ckpt_text_add(text, "\n}\n");
}

static void canonical_list(const ckpt_graph *graph, const char *key, const ckpt_list *list, ckpt_text *text)
{
    ckpt_text_add(text, "%s", key);
    for (int i = 0; i < list->count; i++) {
        ckpt_text_add(text, " ");
        ckpt_text_json(text, graph->buffer[list->at[i]].name);
    }
    ckpt_text_add(text, "\n");
}

static void canonical_op(const ckpt_graph *graph, const ckpt_graph_op *op, ckpt_text *text)
{
    ckpt_text_add(text, "op ");
    ckpt_text_json(text, op->name);
    ckpt_text_add(text, " %s %s\n", ckpt_phase_name(op->phase), op->recompute ? "again" : "once");
    canonical_list(graph, "reads", &op->reads, text);
    canonical_list(graph, "writes", &op->writes, text);
    canonical_list(graph, "adds", &op->adds, text);
    for (int k = 0; k < op->inplace_count; k++) {
        ckpt_text_add(text, "inplace ");
        ckpt_text_json(text, graph->buffer[op->inplace[k].out].name);
        ckpt_text_add(text, " ");
        ckpt_text_json(text, graph->buffer[op->inplace[k].in].name);
        ckpt_text_add(text, "\n");
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

ckpt_code ckpt_graph_digest(const ckpt_graph *graph, char text[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_text canonical;
    ckpt_text_init(&canonical);
    write_canonical(graph, &canonical);
    ckpt_code code = ckpt_text_end(&canonical, err);
    if (code == CKPT_OK) {
        ckpt_digest *const digest = ckpt_digest_create();
        if (digest == NULL) {
            code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
        } else {
            ckpt_digest_add(digest, canonical.bytes, canonical.length);
            ckpt_digest_end(digest, text);
        }
    }
    ckpt_text_fini(&canonical);
    return code;
}
