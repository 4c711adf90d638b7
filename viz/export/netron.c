/* The graph as the JSON that Netron opens: an ONNX model (onnx.proto, ModelProto) in protobuf's JSON form with the
 * names of onnx.proto, which is what Netron's onnx.JsonReader (source/onnx.js) takes: an object with `graph` and
 * `ir_version`. Its reader wants types of attributes as numbers and texts of attributes in base64, and shows those as
 * Latin-1, so only ASCII stands there; names of layers are metadata. Ops are of the domain "ckpt", since none of them
 * is one of ONNX. */
#include <stdio.h>
#include <string.h>

#include "core/base/version.h"
#include "viz/viz.h"

enum { IR_VERSION = 10, FLOAT = 1, UINT8 = 2, INT32 = 6, BFLOAT16 = 16, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3 };

typedef struct export
{
    const ckpt_graph *graph;
    const ckpt_plan *plan;
    const ckpt_graph_types *types;
    ckpt_text *text;
    int *runs;       /* per op */
    bool *offloaded; /* per buffer */
}
export;

/* RFC 4648. */
static void put_base64(ckpt_text *text, const char *ascii)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t length = strlen(ascii);
    for (size_t i = 0; i < length; i += 3) {
        uint32_t bits = (uint32_t)(unsigned char)ascii[i] << 16;
        bits |= i + 1 < length ? (uint32_t)(unsigned char)ascii[i + 1] << 8 : 0;
        bits |= i + 2 < length ? (uint32_t)(unsigned char)ascii[i + 2] : 0;
        ckpt_text_add(text, "%c%c%c%c", digits[bits >> 18], digits[bits >> 12 & 63],
                      i + 1 < length ? digits[bits >> 6 & 63] : '=', i + 2 < length ? digits[bits & 63] : '=');
    }
}

/* An empty name means "nothing" in ONNX. */
static void put_value(const export *x, int buffer)
{
    if (x->graph->buffer[buffer].name[0] != '\0') {
        ckpt_text_json(x->text, x->graph->buffer[buffer].name);
    } else {
        ckpt_text_add(x->text, "\"(buffer %d)\"", buffer);
    }
}

static void put_values(const export *x, const char *what, const ckpt_list *list, const ckpt_list *more)
{
    ckpt_text_add(x->text, ", \"%s\": [", what);
    for (int i = 0; i < list->count + more->count; i++) {
        ckpt_text_add(x->text, i > 0 ? ", " : "");
        put_value(x, i < list->count ? list->at[i] : more->at[i - list->count]);
    }
    ckpt_text_add(x->text, "]");
}

static void put_number(const export *x, const char *name, int64_t value)
{
    ckpt_text_add(x->text, ", {\"name\": \"%s\", \"type\": %d, \"i\": \"%lld\"}", name, ATTRIBUTE_INT,
                  (long long)value);
}

static void put_word(const export *x, const char *name, const char *word)
{
    ckpt_text_add(x->text, "{\"name\": \"%s\", \"type\": %d, \"s\": \"", name, ATTRIBUTE_STRING);
    put_base64(x->text, word);
    ckpt_text_add(x->text, "\"}");
}

static const char *decision_of(const export *x, const ckpt_graph_op *op)
{
    const char *const layer = op->layer != NULL && op->layer[0] != '\0' ? op->layer : op->name;
    for (int i = 0; op->phase == CKPT_FORWARD && x->plan != NULL && i < x->plan->layer_count; i++) {
        if (strcmp(x->plan->layer[i].layer, layer) == 0) {
            return ckpt_decision_name(x->plan->layer[i].decision);
        }
    }
    return NULL;
}

static void put_attributes(const export *x, int index)
{
    const ckpt_graph_op *const op = &x->graph->op[index];
    const char *const decision = decision_of(x, op);
    ckpt_bytes bytes = 0;
    for (int w = 0; w < op->writes.count; w++) {
        bytes += x->graph->buffer[op->writes.at[w]].bytes;
    }
    ckpt_text_add(x->text, ", \"attribute\": [");
    put_word(x, "phase", ckpt_phase_name(op->phase));
    if (decision != NULL) {
        ckpt_text_add(x->text, ", ");
        put_word(x, "decision", decision);
    }
    if (x->runs[index] > 0) {
        put_number(x, "runs", x->runs[index]);
    }
    put_number(x, "time_ns", op->time_ns);
    put_number(x, "writes_bytes", bytes);
    if (op->workspace_bytes > 0) {
        put_number(x, "workspace_bytes", op->workspace_bytes);
    }
    ckpt_text_add(x->text, "]");
}

static void put_property(const export *x, const char *before, const char *key, const char *value)
{
    ckpt_text_add(x->text, "%s{\"key\": ", before);
    ckpt_text_json(x->text, key);
    ckpt_text_add(x->text, ", \"value\": ");
    ckpt_text_json(x->text, value);
    ckpt_text_add(x->text, "}");
}

static void put_op(const export *x, int index)
{
    const ckpt_graph_op *const op = &x->graph->op[index];
    const ckpt_list none = {NULL, 0};
    const bool has_layer = op->layer != NULL && op->layer[0] != '\0';
    const char *const type = x->types != NULL ? x->types->op[index] : NULL;
    ckpt_text_add(x->text, "%s\n    {\"name\": ", index > 0 ? "," : "");
    ckpt_text_json(x->text, op->name);
    ckpt_text_add(x->text, ", \"domain\": \"ckpt\", \"op_type\": ");
    ckpt_text_json(x->text, type != NULL ? type : has_layer ? op->layer : op->name);
    put_values(x, "input", &op->reads, &op->adds);
    put_values(x, "output", &op->writes, &none);
    put_attributes(x, index);
    ckpt_text_add(x->text, ", \"metadata_props\": [");
    if (has_layer) {
        put_property(x, "", "layer", op->layer);
    }
    if (op->segment != NULL) {
        put_property(x, has_layer ? ", " : "", "segment", op->segment);
    }
    ckpt_text_add(x->text, "]}");
}

static void put_type(const export *x, int buffer)
{
    const ckpt_tensor *const tensor = x->types != NULL ? x->types->buffer[buffer] : NULL;
    const int type = tensor == NULL                   ? UINT8
                     : tensor->dtype == CKPT_INT32    ? INT32
                     : tensor->dtype == CKPT_BFLOAT16 ? BFLOAT16
                                                      : FLOAT;
    ckpt_text_add(x->text, "{\"tensor_type\": {\"elem_type\": %d, \"shape\": {\"dim\": [", type);
    for (int i = 0; tensor != NULL && i < tensor->shape.rank; i++) {
        ckpt_text_add(x->text, "%s{\"dim_value\": %lld}", i > 0 ? ", " : "", (long long)tensor->shape.dim[i]);
    }
    if (tensor == NULL) {
        ckpt_text_add(x->text, "{\"dim_value\": %lld}", (long long)x->graph->buffer[buffer].bytes);
    }
    ckpt_text_add(x->text, "]}}}");
}

static void put_buffer(const export *x, int buffer)
{
    const ckpt_buffer *const b = &x->graph->buffer[buffer];
    ckpt_text_add(x->text, "{\"name\": ");
    put_value(x, buffer);
    ckpt_text_add(x->text, ", \"type\": ");
    put_type(x, buffer);
    ckpt_text_add(x->text, ", \"doc_string\": \"%lld bytes, %s%s\"}", (long long)b->bytes, ckpt_kind_name(b->kind),
                  x->offloaded[buffer] ? ", offloaded" : "");
}

static bool is_output(const export *x, int buffer)
{
    for (int i = 0; i < x->graph->outputs.count; i++) {
        if (x->graph->outputs.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

static void put_buffers(const export *x)
{
    const char *before = "";
    ckpt_text_add(x->text, "], \"output\": [");
    for (int i = 0; i < x->graph->outputs.count; i++) {
        ckpt_text_add(x->text, "%s\n    ", i > 0 ? "," : "");
        put_buffer(x, x->graph->outputs.at[i]);
    }
    ckpt_text_add(x->text, "], \"value_info\": [");
    for (int b = 0; b < x->graph->buffer_count; b++) {
        if (!is_output(x, b)) {
            ckpt_text_add(x->text, "%s\n    ", before);
            put_buffer(x, b);
            before = ",";
        }
    }
    ckpt_text_add(x->text, "]}");
}

static void put_bytes(const export *x, const char *key, ckpt_bytes bytes)
{
    char value[32];
    snprintf(value, sizeof value, "%lld bytes", (long long)bytes);
    put_property(x, ", ", key, value);
}

static void put_properties(const export *x)
{
    const ckpt_plan *const plan = x->plan;
    char time[CKPT_UNITS_TEXT];
    ckpt_text_add(x->text, ", \"metadata_props\": [");
    put_property(x, "", "format", "a training step of ckpt");
    for (int i = 0; i < x->graph->static_count; i++) {
        put_bytes(x, x->graph->statics[i].name, x->graph->statics[i].bytes);
    }
    if (plan != NULL) {
        put_property(x, ", ", "plan", plan->solver != NULL ? plan->solver : "");
        put_property(x, ", ", "verdict", plan->verdict == CKPT_FITS ? "fits" : "infeasible");
        put_bytes(x, "budget", plan->budget_bytes);
        if (plan->verdict == CKPT_FITS) {
            put_bytes(x, "peak", plan->peak_bytes);
            put_property(x, ", ", "time", ckpt_ns_show(plan->time_ns, time));
            put_property(x, ", ", "recomputed", ckpt_ns_show(plan->recompute_ns, time));
        }
    }
    ckpt_text_add(x->text, "]}\n");
}

static void count_steps(const export *x)
{
    for (int i = 0; x->plan != NULL && i < x->plan->step_count; i++) {
        const ckpt_step *const step = &x->plan->step[i];
        if (step->kind == CKPT_RUN && step->target >= 0 && step->target < x->graph->op_count) {
            x->runs[step->target]++;
        } else if (step->kind == CKPT_OFFLOAD && step->target >= 0 && step->target < x->graph->buffer_count) {
            x->offloaded[step->target] = true;
        }
    }
}

static void put_model(const export *x)
{
    ckpt_text_add(x->text,
                  "{\"ir_version\": %d, \"producer_name\": \"ckpt-graph\", \"producer_version\": \"%s\",\n  "
                  "\"opset_import\": [{\"domain\": \"ckpt\", \"version\": 1}],\n  \"graph\": {\"name\": ",
                  IR_VERSION, CKPT_VERSION);
    ckpt_text_json(x->text, x->graph->name);
    ckpt_text_add(x->text, ", \"node\": [");
    for (int i = 0; i < x->graph->op_count; i++) {
        put_op(x, i);
    }
    put_buffers(x);
    put_properties(x);
}

ckpt_code ckpt_graph_netron(const ckpt_graph *graph, const ckpt_plan *plan, const ckpt_graph_types *types,
                            ckpt_text *text, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const export x = {.graph = graph,
                      .plan = plan,
                      .types = types,
                      .text = text,
                      .runs = CKPT_NEW(&scratch, int, graph->op_count),
                      .offloaded = CKPT_NEW(&scratch, bool, graph->buffer_count)};
    ckpt_code code = CKPT_OK;
    if (x.runs == NULL || x.offloaded == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to write %d ops", graph->op_count);
    } else {
        count_steps(&x);
        put_model(&x);
        code = ckpt_text_end(text, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
