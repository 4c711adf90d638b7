/* The graph as the JSON that Netron opens: an ONNX model (onnx.proto, ModelProto) in protobuf's JSON form with the
 * names of onnx.proto, which is what Netron's onnx.JsonReader (source/onnx.js) takes: an object with `graph` and
 * `ir_version`. Its reader wants types of attributes as numbers and texts of attributes in base64, and shows those as
 * Latin-1, so only ASCII stands there; names of layers are metadata. Ops are of the domain "ckpt", since none of them
 * is one of ONNX. */
#include <stdio.h>
#include <string.h>

#include "core/base/names.h"
#include "core/base/version.h"
#include "core/json/json_write.h"
#include "viz/draw/words.h"
#include "viz/viz.h"

enum { IR_VERSION = 10, FLOAT = 1, UINT8 = 2, INT32 = 6, BFLOAT16 = 16, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3 };

typedef struct exporter {
    const ckpt_graph *graph;
    const ckpt_plan *plan;
    const ckpt_graph_types *types;
    ckpt_json_writer *json;
    int *runs;        /* per op */
    int *way;         /* per op: how the plan does it first, a run of the graph; else its own way */
    bool *offloaded;  /* per buffer */
    ckpt_names layer; /* of the plan's decisions */
} exporter;

static void begin(const exporter *x)
{
    ckpt_json_begin_object(x->json, NULL, CKPT_JSON_LINE);
}

static void end(const exporter *x)
{
    ckpt_json_end(x->json);
}

static bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* An empty name means "nothing" in ONNX. */
static void put_value(const exporter *x, const char *key, int buffer)
{
    const char *const name = x->graph->buffer[buffer].name;
    char number[32];
    snprintf(number, sizeof number, "(buffer %d)", buffer);
    ckpt_json_put_text(x->json, key, name[0] != '\0' ? name : number);
}

static void put_values(const exporter *x, const char *key, const ckpt_list *list, const ckpt_list *more)
{
    ckpt_json_begin_array(x->json, key, CKPT_JSON_LINE);
    for (int i = 0; i < list->count + more->count; i++) {
        put_value(x, NULL, i < list->count ? list->at[i] : more->at[i - list->count]);
    }
    end(x);
}

/* protobuf's JSON writes 64 bits as text. */
static void put_long(const exporter *x, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    ckpt_json_put_text(x->json, key, digits);
}

static void put_number(const exporter *x, const char *name, int64_t value)
{
    begin(x);
    ckpt_json_put_text(x->json, "name", name);
    ckpt_json_put_int(x->json, "type", ATTRIBUTE_INT);
    put_long(x, "i", value);
    end(x);
}

static void put_word(const exporter *x, const char *name, const char *word)
{
    begin(x);
    ckpt_json_put_text(x->json, "name", name);
    ckpt_json_put_int(x->json, "type", ATTRIBUTE_STRING);
    ckpt_json_put_here(x->json, "s");
    ckpt_text_put(x->json->text, "\"", 1);
    ckpt_words_base64(x->json->text, word, strlen(word));
    ckpt_text_put(x->json->text, "\"", 1);
    end(x);
}

static void put_attributes(const exporter *x, int index)
{
    const ckpt_graph_op *const own = &x->graph->op[index], *const op = &x->graph->op[x->way[index]];
    const int decided = op->phase == CKPT_FORWARD && x->plan != NULL
                            ? ckpt_names_find(&x->layer, has_text(op->layer) ? op->layer : op->name)
                            : -1;
    ckpt_bytes bytes = 0;
    for (int w = 0; w < op->writes.count; w++) {
        bytes += x->graph->buffer[op->writes.at[w]].bytes;
    }
    ckpt_json_begin_array(x->json, "attribute", CKPT_JSON_LINE);
    put_word(x, "phase", ckpt_phase_name(op->phase));
    if (decided >= 0) {
        put_word(x, "decision", ckpt_decision_name(x->plan->layer[decided].decision));
    }
    if (x->runs[index] > 0) {
        put_number(x, "runs", x->runs[index]);
    }
    put_number(x, "time_ns", op->time_ns);
    put_number(x, "writes_bytes", bytes);
    if (op->workspace_bytes > 0) {
        put_number(x, "workspace_bytes", op->workspace_bytes);
    }
    if (own->variant_count > 0) {
        put_number(x, "ways", own->variant_count + 1);
    }
    if (own->optional) {
        put_number(x, "optional", 1);
    }
    end(x);
}

static void put_property(const exporter *x, const char *key, const char *value)
{
    begin(x);
    ckpt_json_put_text(x->json, "key", key);
    ckpt_json_put_text(x->json, "value", value);
    end(x);
}

static void put_op(const exporter *x, int index)
{
    const ckpt_graph_op *const op = &x->graph->op[index];
    const ckpt_list none = {NULL, 0};
    const char *const type = x->types != NULL ? x->types->op[index] : NULL;
    begin(x);
    ckpt_json_put_text(x->json, "name", op->name);
    ckpt_json_put_text(x->json, "domain", "ckpt");
    ckpt_json_put_text(x->json, "op_type", type != NULL ? type : has_text(op->layer) ? op->layer : op->name);
    put_values(x, "input", &op->reads, &op->adds);
    put_values(x, "output", &op->writes, &none);
    put_attributes(x, index);
    ckpt_json_begin_array(x->json, "metadata_props", CKPT_JSON_LINE);
    if (has_text(op->layer)) {
        put_property(x, "layer", op->layer);
    }
    if (op->segment != NULL) {
        put_property(x, "segment", op->segment);
    }
    const ckpt_graph_op *const way = &x->graph->op[x->way[index]];
    if (way != op) {
        put_property(x, way->inexact ? "inexact variant" : "variant", way->variant);
    }
    end(x);
    end(x);
}

static void put_dimension(const exporter *x, int64_t size)
{
    begin(x);
    ckpt_json_put_int(x->json, "dim_value", size);
    end(x);
}

static void put_buffer(const exporter *x, int buffer)
{
    const ckpt_buffer *const b = &x->graph->buffer[buffer];
    const ckpt_tensor *const tensor = x->types != NULL ? x->types->buffer[buffer] : NULL;
    char about[80];
    begin(x);
    put_value(x, "name", buffer);
    ckpt_json_begin_object(x->json, "type", CKPT_JSON_LINE);
    ckpt_json_begin_object(x->json, "tensor_type", CKPT_JSON_LINE);
    ckpt_json_put_int(x->json, "elem_type",
                      tensor == NULL || tensor->dtype == CKPT_UINT8 ? UINT8
                      : tensor->dtype == CKPT_INT32                 ? INT32
                      : tensor->dtype == CKPT_BFLOAT16              ? BFLOAT16
                                                                    : FLOAT);
    ckpt_json_begin_object(x->json, "shape", CKPT_JSON_LINE);
    ckpt_json_begin_array(x->json, "dim", CKPT_JSON_LINE);
    for (int i = 0; tensor != NULL && i < tensor->shape.rank; i++) {
        put_dimension(x, tensor->shape.dim[i]);
    }
    if (tensor == NULL) {
        put_dimension(x, b->bytes);
    }
    for (int i = 0; i < 4; i++) {
        end(x);
    }
    snprintf(about, sizeof about, "%lld bytes, %s%s", (long long)b->bytes, ckpt_kind_name(b->kind),
             x->offloaded[buffer] ? ", offloaded" : "");
    ckpt_json_put_text(x->json, "doc_string", about);
    end(x);
}

static bool is_output(const exporter *x, int buffer)
{
    for (int i = 0; i < x->graph->outputs.count; i++) {
        if (x->graph->outputs.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

static void put_graph(const exporter *x)
{
    ckpt_json_begin_object(x->json, "graph", CKPT_JSON_LINES);
    ckpt_json_put_text(x->json, "name", x->graph->name);
    ckpt_json_begin_array(x->json, "node", CKPT_JSON_LINES);
    for (int i = 0; i < x->graph->op_count; i++) {
        put_op(x, i);
    }
    end(x);
    ckpt_json_begin_array(x->json, "output", CKPT_JSON_LINES);
    for (int i = 0; i < x->graph->outputs.count; i++) {
        put_buffer(x, x->graph->outputs.at[i]);
    }
    end(x);
    ckpt_json_begin_array(x->json, "value_info", CKPT_JSON_LINES);
    for (int b = 0; b < x->graph->buffer_count; b++) {
        if (!is_output(x, b)) {
            put_buffer(x, b);
        }
    }
    end(x);
    end(x);
}

static void put_bytes(const exporter *x, const char *key, ckpt_bytes bytes)
{
    char value[32];
    snprintf(value, sizeof value, "%lld bytes", (long long)bytes);
    put_property(x, key, value);
}

static void put_properties(const exporter *x)
{
    const ckpt_plan *const plan = x->plan;
    char time[CKPT_UNITS_TEXT];
    ckpt_json_begin_array(x->json, "metadata_props", CKPT_JSON_LINES);
    put_property(x, "format", "a training step of ckpt");
    for (int i = 0; i < x->graph->static_count; i++) {
        put_bytes(x, x->graph->statics[i].name, x->graph->statics[i].bytes);
    }
    if (plan != NULL) {
        put_property(x, "plan", plan->solver != NULL ? plan->solver : "");
        put_property(x, "verdict", plan->verdict == CKPT_FITS ? "fits" : "infeasible");
        put_bytes(x, "budget", plan->budget_bytes);
    }
    if (plan != NULL && plan->verdict == CKPT_FITS) {
        put_bytes(x, "peak", plan->peak_bytes);
        put_property(x, "time", ckpt_ns_show(plan->time_ns, time));
        put_property(x, "recomputed", ckpt_ns_show(plan->recompute_ns, time));
    }
    end(x);
}

static void put_model(const exporter *x)
{
    ckpt_json_begin_object(x->json, NULL, CKPT_JSON_LINES);
    ckpt_json_put_int(x->json, "ir_version", IR_VERSION);
    ckpt_json_put_text(x->json, "producer_name", "ckpt-graph");
    ckpt_json_put_text(x->json, "producer_version", CKPT_VERSION);
    ckpt_json_begin_array(x->json, "opset_import", CKPT_JSON_LINE);
    begin(x);
    ckpt_json_put_text(x->json, "domain", "ckpt");
    ckpt_json_put_int(x->json, "version", 1);
    end(x);
    end(x);
    put_graph(x);
    put_properties(x);
    end(x);
}

static void count_steps(const exporter *x)
{
    for (int i = 0; i < x->graph->op_count; i++) {
        x->way[i] = i;
    }
    for (int i = 0; x->plan != NULL && i < x->plan->step_count; i++) {
        const ckpt_step *const step = &x->plan->step[i];
        if (step->kind == CKPT_RUN && step->target >= 0 && step->target < x->graph->op_count) {
            if (x->runs[step->target]++ == 0) {
                x->way[step->target] = (int)(ckpt_step_op(x->graph, step) - x->graph->op);
            }
        } else if (step->kind == CKPT_OFFLOAD && step->target >= 0 && step->target < x->graph->buffer_count) {
            x->offloaded[step->target] = true;
        }
    }
}

ckpt_code ckpt_graph_netron(const ckpt_graph *graph, const ckpt_plan *plan, const ckpt_graph_types *types,
                            ckpt_text *text, ckpt_err *err)
{
    ckpt_json_writer json;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    exporter x = {.graph = graph,
                  .plan = plan,
                  .types = types,
                  .json = &json,
                  .runs = CKPT_NEW(&scratch, int, graph->op_count),
                  .way = CKPT_NEW(&scratch, int, graph->op_count),
                  .offloaded = CKPT_NEW(&scratch, bool, graph->buffer_count)};
    const int layers = plan != NULL ? plan->layer_count : 0;
    ckpt_code code = x.runs == NULL || x.way == NULL || x.offloaded == NULL
                         ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to write %d ops", graph->op_count)
                         : ckpt_names_init(&x.layer, layers, &scratch, err);
    if (code == CKPT_OK) {
        for (int i = 0; i < layers; i++) {
            (void)ckpt_names_add(&x.layer, plan->layer[i].layer, i);
        }
        count_steps(&x);
        ckpt_json_begin(&json, text);
        put_model(&x);
        code = ckpt_text_end(text, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
