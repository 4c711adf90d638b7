/* Makes a ckpt_graph of values and ops. */
#include <string.h>

#include "imports/execution_impl.h"

enum { WEIGHTS, GRADIENTS, OPTIMIZER, STATISTICS, INPUTS, ROLES };
static const char *const role_name[ROLES] = {"weights", "gradients", "optimizer", "statistics", "inputs"};

typedef struct builder {
    const ckpt_et_trace *trace;
    const ckpt_et_step *step;
    ckpt_et_flow *flow;
    ckpt_arena *out;
    ckpt_graph *graph;
    ckpt_buffer *buffer;
    ckpt_graph_op *op;
    int *of_op;           /* per op of the step: its index in the graph, behind that of its state; -1: left out */
    int *state;           /* per op of the step: the buffer of its state; -1 */
    int *written, *named; /* per op: buffers it writes, and how many of them have a name */
    int *saved;
    ckpt_err *err;
} builder;

static ckpt_code no_memory(const builder *b)
{
    return CKPT_FAIL(b->err, CKPT_NO_MEMORY, "%.200s: no memory for its graph", b->trace->path);
}

bool ckpt_et_has_state(const ckpt_et_op *op)
{
    return op->phase == CKPT_FORWARD && op->random && !op->once && !op->left_out;
}

/* What torch.get_rng_state and torch.cuda.get_rng_state give. */
ckpt_bytes ckpt_et_state_bytes(const ckpt_et_trace *trace)
{
    const bool cpu = trace->device_count > 0 && strcmp(trace->device[trace->main_device], "cpu") == 0;
    return cpu ? 5056 : 16;
}

/* The role of a value from before the step, by the phases that read and write it. */
static int role_of(const ckpt_et_value *value)
{
    const bool computes = value->read[CKPT_FORWARD] || value->read[CKPT_BACKWARD];
    if (value->written[CKPT_BACKWARD] || value->written[CKPT_REDUCE]) {
        return GRADIENTS;
    }
    if (value->written[CKPT_UPDATE] && computes) {
        return WEIGHTS;
    }
    if (value->written[CKPT_FORWARD]) {
        return STATISTICS;
    }
    return computes ? INPUTS : OPTIMIZER;
}

/* Parameters' gradients count as static when the previous step's are freed only after forward has begun. */
static bool is_static_gradient(const builder *b, const ckpt_et_value *value)
{
    return b->step->late_zero_grad && b->flow->value[value->lineage].parameter_gradient;
}

static ckpt_code add_statics(builder *b)
{
    ckpt_bytes bytes[ROLES] = {0};
    ckpt_static *const statics = CKPT_NEW(b->out, ckpt_static, ROLES);
    if (statics == NULL) {
        return no_memory(b);
    }
    for (int v = 0; v < b->flow->value_count; v++) {
        const ckpt_et_value *const value = &b->flow->value[v];
        const bool gradient = value->op >= 0 && value->previous < 0 && is_static_gradient(b, value);
        if ((value->op >= 0 || !value->used) && !gradient) {
            continue;
        }
        const int role = gradient ? GRADIENTS : role_of(value);
        if (!ckpt_sum(bytes[role], value->bytes, &bytes[role])) {
            return CKPT_FAIL(b->err, CKPT_OVERFLOW, "%.200s: its %s do not fit 63 bits", b->trace->path,
                             role_name[role]);
        }
    }
    for (int role = 0; role < ROLES; role++) {
        if (bytes[role] > 0) {
            statics[b->graph->static_count++] = (ckpt_static){role_name[role], bytes[role]};
        }
    }
    b->graph->statics = statics;
    return CKPT_OK;
}

static ckpt_kind kind_of(const builder *b, const ckpt_et_value *value)
{
    if (b->step->op[b->flow->value[value->lineage].op].phase == CKPT_BACKWARD ||
        b->step->op[value->op].phase == CKPT_BACKWARD) {
        return CKPT_GRADIENT;
    }
    const bool forward = b->step->op[value->op].phase == CKPT_FORWARD;
    return forward && !value->loss && value->read[CKPT_BACKWARD] && !value->read[CKPT_FORWARD] &&
                   !value->read[CKPT_UPDATE]
               ? CKPT_SAVED
               : CKPT_ACTIVATION;
}

/* "head/aten::linear#5" is the output of node 5 in the layer "head", "head/aten::linear#5:1" its second output,
 * "head/aten::linear#5/saved" a value made inside it and used later. Names that differ only in what follows the number
 * of the node are of one op. */
static const char *name_buffer(builder *b, const ckpt_graph_op *op, const char *what, int k)
{
    const bool named = op->layer[0] != '\0' && strcmp(op->layer, op->name) != 0;
    const char *const layer = named ? op->layer : "";
    const char *const slash = named ? "/" : "";
    return k == 0 ? ckpt_arena_format(b->out, "%s%s%s%s", layer, slash, op->name, what)
                  : ckpt_arena_format(b->out, "%s%s%s%s:%d", layer, slash, op->name, what, k);
}

static ckpt_code add_buffers(builder *b)
{
    b->buffer = CKPT_NEW(b->out, ckpt_buffer, b->flow->value_count + b->step->op_count);
    int *const outputs = CKPT_NEW(b->out, int, b->flow->value_count);
    if (b->buffer == NULL || outputs == NULL) {
        return no_memory(b);
    }
    for (int v = 0; v < b->flow->value_count; v++) {
        ckpt_et_value *const value = &b->flow->value[v];
        if (value->op < 0 || (!value->output && !value->used) || is_static_gradient(b, value)) {
            continue;
        }
        value->buffer = b->graph->buffer_count++;
        b->written[value->op]++;
        int *const count = value->output ? &b->named[value->op] : &b->saved[value->op];
        const char *const name = name_buffer(b, &b->op[b->of_op[value->op]], value->output ? "" : "/saved", (*count)++);
        b->buffer[value->buffer] = (ckpt_buffer){name, value->bytes, kind_of(b, value)};
        if (name == NULL) {
            return no_memory(b);
        }
        if (value->loss || (b->flow->value[value->lineage].parameter_gradient && !value->superseded)) {
            outputs[b->graph->outputs.count++] = value->buffer;
        }
    }
    for (int i = 0; i < b->step->op_count; i++) {
        b->state[i] = -1;
        if (ckpt_et_has_state(&b->step->op[i])) {
            const char *const name = name_buffer(b, &b->op[b->of_op[i]], "/state", 0);
            b->state[i] = b->graph->buffer_count++;
            b->buffer[b->state[i]] = (ckpt_buffer){name, ckpt_et_state_bytes(b->trace), CKPT_ACTIVATION};
            if (name == NULL) {
                return no_memory(b);
            }
        }
    }
    b->graph->buffer = b->buffer;
    b->graph->outputs.at = outputs;
    return CKPT_OK;
}

static const char *name_op(builder *b, const ckpt_et_op *op)
{
    const ckpt_et_node *const node = &b->trace->node[op->node];
    return ckpt_arena_format(b->out, "%s#%lld", node->name, (long long)node->id);
}

/* A backward op without a layer takes that of its forward op, a forward op its own name. */
static const char *name_layer(builder *b, const ckpt_et_op *op)
{
    const ckpt_et_op *const named =
        op->layer == NULL && op->phase == CKPT_BACKWARD && op->origin >= 0 ? &b->step->op[op->origin] : op;
    if (named->layer != NULL) {
        return ckpt_arena_text(b->out, named->layer);
    }
    return named->phase == CKPT_FORWARD ? name_op(b, named)
                                        : ckpt_arena_text(b->out, named->phase == CKPT_UPDATE ? "optimizer" : "");
}

/* Ops get their indices before their buffers, which are named after them. The state of the generator that a random op
 * draws from is written by an op before it. */
static ckpt_code name_ops(builder *b)
{
    for (int i = 0; i < b->step->op_count; i++) {
        const ckpt_et_op *const op = &b->step->op[i];
        b->of_op[i] = -1;
        if (op->left_out) {
            continue;
        }
        const char *const name = name_op(b, op);
        const char *const layer = name_layer(b, op);
        if (name == NULL || layer == NULL) {
            return no_memory(b);
        }
        if (ckpt_et_has_state(op)) {
            ckpt_graph_op *const state = &b->op[b->graph->op_count++];
            *state = (ckpt_graph_op){.name = ckpt_arena_format(b->out, "%s/state", name), .layer = layer};
            if (state->name == NULL) {
                return no_memory(b);
            }
        }
        b->of_op[i] = b->graph->op_count++;
        b->op[b->of_op[i]] = (ckpt_graph_op){.name = name,
                                             .layer = layer,
                                             .phase = op->phase,
                                             .time_ns = op->time_ns,
                                             .workspace_bytes = op->workspace,
                                             .recompute = op->phase == CKPT_FORWARD && !op->once};
    }
    return CKPT_OK;
}

static ckpt_code list_uses(builder *b, int i, ckpt_graph_op *made)
{
    const ckpt_et_op *const op = &b->step->op[i];
    int *const reads = CKPT_NEW(b->out, int, op->use_count + 1);
    int *const adds = CKPT_NEW(b->out, int, op->use_count);
    ckpt_inplace *const inplace = CKPT_NEW(b->out, ckpt_inplace, op->use_count);
    if (reads == NULL || adds == NULL || inplace == NULL) {
        return no_memory(b);
    }
    for (int k = op->first_use; k < op->first_use + op->use_count; k++) {
        const ckpt_et_use *const u = &b->flow->use[k];
        const int buffer = b->flow->value[u->value].buffer;
        if (buffer < 0) { /* static */
            continue;
        }
        if (u->kind == CKPT_ET_ADD) {
            adds[made->adds.count++] = buffer;
            continue;
        }
        reads[made->reads.count++] = buffer;
        if (u->kind == CKPT_ET_WRITE) {
            inplace[made->inplace_count++] = (ckpt_inplace){b->flow->value[u->next].buffer, buffer};
        }
    }
    if (b->state[i] >= 0) {
        reads[made->reads.count++] = b->state[i];
        made[-1].writes = (ckpt_list){&reads[made->reads.count - 1], 1};
    }
    made->reads.at = reads;
    made->adds.at = adds;
    made->inplace = inplace;
    made->recompute = made->recompute && made->adds.count == 0;
    return CKPT_OK;
}

static ckpt_code add_ops(builder *b)
{
    for (int i = 0; i < b->step->op_count; i++) {
        if (b->of_op[i] < 0) {
            continue;
        }
        ckpt_graph_op *const made = &b->op[b->of_op[i]];
        int *const writes = CKPT_NEW(b->out, int, b->written[i]);
        if (writes == NULL) {
            return no_memory(b);
        }
        made->writes = (ckpt_list){writes, b->written[i]};
        b->written[i] = 0; /* now: how many of them are listed */
        CKPT_TRY(list_uses(b, i, made));
    }
    for (int v = 0; v < b->flow->value_count; v++) {
        const ckpt_et_value *const value = &b->flow->value[v];
        if (value->buffer >= 0) {
            int *const writes = (int *)b->op[b->of_op[value->op]].writes.at;
            writes[b->written[value->op]++] = value->buffer;
        }
    }
    b->graph->op = b->op;
    return CKPT_OK;
}

/* The file's name without folder and extension. */
static ckpt_code name_graph(builder *b)
{
    const char *const base = ckpt_import_base_name(b->trace->path);
    const char *const dot = strrchr(base, '.');
    const int length = dot != NULL && dot > base ? (int)(dot - base) : (int)strlen(base);
    b->graph->source = ckpt_arena_text(b->out, b->trace->path);
    b->graph->name = ckpt_arena_format(b->out, "%.*s", length, base);
    return b->graph->source != NULL && b->graph->name != NULL ? CKPT_OK : no_memory(b);
}

ckpt_code ckpt_et_graph(const ckpt_et_trace *trace, const ckpt_et_step *step, ckpt_et_flow *flow, ckpt_arena *out,
                        ckpt_graph **graph, ckpt_err *err)
{
    const int ops = step->op_count;
    builder b = {.trace = trace,
                 .step = step,
                 .flow = flow,
                 .out = out,
                 .graph = CKPT_NEW(out, ckpt_graph, 1),
                 .op = CKPT_NEW(out, ckpt_graph_op, 2 * (int64_t)ops),
                 .of_op = CKPT_NEW(trace->work, int, ops),
                 .state = CKPT_NEW(trace->work, int, ops),
                 .written = CKPT_NEW(trace->work, int, ops),
                 .named = CKPT_NEW(trace->work, int, ops),
                 .saved = CKPT_NEW(trace->work, int, ops),
                 .err = err};
    if (b.graph == NULL || b.op == NULL || b.of_op == NULL || b.state == NULL || b.written == NULL || b.named == NULL ||
        b.saved == NULL) {
        return no_memory(&b);
    }
    CKPT_TRY(name_graph(&b));
    CKPT_TRY(add_statics(&b));
    CKPT_TRY(name_ops(&b));
    CKPT_TRY(add_buffers(&b));
    CKPT_TRY(add_ops(&b));
    CKPT_TRY(ckpt_graph_check(b.graph, out, err));
    *graph = b.graph;
    return CKPT_OK;
}
