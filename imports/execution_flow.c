/* Finds the values that storages hold.
 *
 * The trace has no frees, and a storage at a reused address has the same number. A value begins where an op has a
 * storage, as an output or inside, that is not among its inputs; within an op likewise where a node has an output that
 * neither its inputs nor the nodes inside it had. It ends at its last use. A value from before the step's first op is
 * static. A write in place makes a new value that replaces the old one. */
#include <string.h>

#include "imports/execution_impl.h"

typedef struct follower {
    const ckpt_et_trace *trace;
    ckpt_et_step *step;
    ckpt_et_flow *flow;
    int *current;      /* per storage: its value; -1: none yet */
    int *tensor_value; /* per tensor number: its last known value */
    int *given_to;     /* per storage: the last op with it as an input */
    int *touched;      /* per storage: the last node with it, of those that began or ended so far */
    int *open;         /* nodes that have begun and not ended, the innermost last */
    int op;
} follower;

static int add_value(follower *f, int op, const ckpt_et_tensor *t, ckpt_bytes bytes)
{
    const int v = f->flow->value_count++;
    f->flow->value[v] = (ckpt_et_value){.op = op,
                                        .storage = t->storage,
                                        .bytes = bytes,
                                        .previous = -1,
                                        .lineage = v,
                                        .buffer = -1,
                                        .last_op = -1,
                                        .last_write = -1};
    f->current[t->storage] = v;
    return v;
}

static ckpt_bytes bytes_of(const ckpt_et_tensor *t)
{
    return t->end >= 0 ? t->end : t->bytes;
}

/* The value of an input. Memory that no op of the step made is from before the step. So is memory that reaches beyond
 * the last value at its address: that value was freed, and something outside the trace replaced it. */
static int find_value(follower *f, const ckpt_et_tensor *t)
{
    const int v = f->current[t->storage];
    if (v >= 0 && f->flow->value[v].op < 0) {
        ckpt_et_value *const value = &f->flow->value[v];
        value->bytes = t->end > value->bytes ? t->end : value->bytes;
        return v;
    }
    return v >= 0 && t->end <= f->flow->value[v].bytes ? v : add_value(f, -1, t, bytes_of(t));
}

/* True for a number that Python wrapped into a tensor, at the address of a larger value that was freed. */
static bool is_wrapped_number(const follower *f, const ckpt_et_tensor *t)
{
    const int v = f->current[t->storage];
    return t->scalar && v >= 0 && f->flow->value[v].op >= 0 && f->flow->value[v].bytes > t->bytes &&
           f->tensor_value[t->number] != v;
}

static void use(follower *f, int v, ckpt_et_use_kind kind)
{
    ckpt_et_value *const value = &f->flow->value[v];
    ckpt_et_op *const op = &f->step->op[f->op];
    if (value->last_op != f->op) {
        value->last_op = f->op;
        value->last_use = f->flow->use_count++;
        f->flow->use[value->last_use] = (ckpt_et_use){v, CKPT_ET_READ, -1};
        op->use_count++;
    }
    ckpt_et_use *const u = &f->flow->use[value->last_use];
    u->kind = kind == CKPT_ET_READ || u->kind == CKPT_ET_STATISTIC ? u->kind : kind;
}

static void use_inputs(follower *f, const ckpt_et_node *root)
{
    for (int i = root->input; i < root->input + root->input_count; i++) {
        const ckpt_et_tensor *const t = &f->trace->tensor[i];
        if (t->storage >= 0) {
            f->given_to[t->storage] = f->op;
            if (!is_wrapped_number(f, t)) {
                const int v = find_value(f, t);
                f->tensor_value[t->number] = v;
                use(f, v, CKPT_ET_READ);
            }
        }
    }
}

/* Makes a value of the op in memory of its own. What it had there is gone: it was scratch. */
static int make_value(follower *f, const ckpt_et_tensor *t)
{
    const int gone = f->current[t->storage];
    const int v = add_value(f, f->op, t, bytes_of(t));
    if (gone >= 0 && f->flow->value[gone].op == f->op) {
        ckpt_et_value *const old = &f->flow->value[gone];
        old->replaced = true;
        f->flow->value[v].earlier = old->bytes > old->earlier ? old->bytes : old->earlier;
    }
    return v;
}

/* Looks at a tensor inside the op, or its output: in the memory of an input, or in memory of its own, which may be
 * `fresh`. */
static void look_at(follower *f, const ckpt_et_tensor *t, bool fresh, bool output)
{
    int v = t->storage >= 0 ? f->current[t->storage] : -1;
    if (t->storage < 0) {
        return;
    }
    if (f->given_to[t->storage] == f->op) {
        const bool reduced =
            output && f->step->op[f->op].phase == CKPT_REDUCE; /* schemas of collectives do not mark writes */
        if ((t->written || reduced) && f->flow->value[v].last_op == f->op) {
            use(f, v, t->statistic ? CKPT_ET_STATISTIC : CKPT_ET_WRITE);
        }
        return;
    }
    v = v >= 0 && f->flow->value[v].op == f->op && !fresh ? v : make_value(f, t);
    ckpt_et_value *const value = &f->flow->value[v];
    value->bytes = t->end > value->bytes ? t->end : value->bytes;
    value->output = value->output || output;
    f->tensor_value[t->number] = v;
}

static void begin_node(follower *f, int n)
{
    const ckpt_et_node *const node = &f->trace->node[n];
    for (int i = node->input; i < node->input + node->input_count; i++) {
        const ckpt_et_tensor *const t = &f->trace->tensor[i];
        look_at(f, t, false, false);
        if (t->storage >= 0) {
            f->touched[t->storage] = n;
        }
    }
}

static void end_node(follower *f, int n)
{
    const ckpt_et_node *const node = &f->trace->node[n];
    for (int i = node->output; i < node->output + node->output_count; i++) {
        const ckpt_et_tensor *const t = &f->trace->tensor[i];
        if (t->storage >= 0) { /* nodes inside it began after it */
            look_at(f, t, f->touched[t->storage] < n, n == f->step->op[f->op].node);
            f->touched[t->storage] = f->touched[t->storage] > n ? f->touched[t->storage] : n;
        }
    }
}

/* Nodes begin in the order of their numbers; each ends before the first that is not inside it begins. */
static void look_inside(follower *f, const ckpt_et_op *op)
{
    int depth = 0;
    for (int n = op->first_below; n >= 0; n = f->step->below[n]) {
        while (depth > 0 && f->open[depth - 1] != f->trace->node[n].parent) {
            end_node(f, f->open[--depth]);
        }
        begin_node(f, n);
        f->open[depth++] = n;
    }
    while (depth > 0) {
        end_node(f, f->open[--depth]);
    }
}

/* Autograd adds a second gradient of a tensor into the first. */
static bool adds_up(const follower *f, const ckpt_et_op *op, const ckpt_et_value *value)
{
    return op->phase == CKPT_BACKWARD && strcmp(f->trace->node[op->node].name, "aten::add_") == 0 && value->op >= 0 &&
           f->step->op[f->flow->value[value->lineage].op].phase == CKPT_BACKWARD;
}

/* Makes a new value of each value that the op wrote in place. */
static void settle_writes(follower *f, ckpt_et_op *op)
{
    for (int k = op->first_use; k < op->first_use + op->use_count; k++) {
        ckpt_et_use *const u = &f->flow->use[k];
        ckpt_et_value *const old = &f->flow->value[u->value];
        if (u->kind == CKPT_ET_READ) {
            continue;
        }
        if (old->op < 0) {
            op->statistics = op->statistics || u->kind == CKPT_ET_STATISTIC;
            op->once = op->once || u->kind != CKPT_ET_STATISTIC;
            old->last_write = op->phase == CKPT_UPDATE ? old->last_write : f->op;
        } else if (adds_up(f, op, old)) {
            u->kind = CKPT_ET_ADD;
        } else {
            const int v = f->flow->value_count++;
            u->kind = CKPT_ET_WRITE;
            f->flow->value[v] = (ckpt_et_value){.op = f->op,
                                                .storage = old->storage,
                                                .bytes = old->bytes,
                                                .previous = u->value,
                                                .lineage = old->lineage,
                                                .output = true,
                                                .buffer = -1,
                                                .last_op = f->op,
                                                .last_write = -1};
            f->current[old->storage] = v;
            old->superseded = true;
            u->next = v;
        }
    }
}

/* Sets the values of the op's outputs, after its writes. Under AccumulateGrad they are gradients of parameters. */
static void settle_outputs(const follower *f, const ckpt_et_op *op)
{
    const ckpt_et_node *const root = &f->trace->node[op->node];
    for (int i = root->output; i < root->output + root->output_count; i++) {
        const ckpt_et_tensor *const t = &f->trace->tensor[i];
        if (t->storage >= 0) {
            const int v = f->current[t->storage];
            f->tensor_value[t->number] = v;
            ckpt_et_value *const first = &f->flow->value[f->flow->value[v].lineage];
            first->parameter_gradient = first->parameter_gradient || op->accumulates_parameter;
        }
    }
}

static ckpt_bytes count_moved(const follower *f, const ckpt_et_node *root, int *tensors)
{
    double moved = 0.0; /* a sum of sizes that may each be near 2^63 */
    for (int i = 0; i < root->input_count + root->output_count; i++) {
        const bool in = i < root->input_count;
        const ckpt_et_tensor *const t = &f->trace->tensor[in ? root->input + i : root->output + i - root->input_count];
        if (t->storage >= 0) {
            moved += (double)t->bytes;
            *tensors += !in;
        }
    }
    return moved < 9e18 ? (ckpt_bytes)moved : CKPT_BYTES_MAX;
}

/* An op that only makes views is left out: its readers use the viewed value itself. */
static void finish_op(follower *f, ckpt_et_op *op, int first_value)
{
    int outputs = 0;
    settle_writes(f, op);
    settle_outputs(f, op);
    op->moved = count_moved(f, &f->trace->node[op->node], &outputs);
    const bool makes = f->flow->value_count > first_value;
    bool writes = false;
    for (int k = op->first_use; k < op->first_use + op->use_count; k++) {
        writes = writes || f->flow->use[k].kind != CKPT_ET_READ;
        f->flow->value[f->flow->use[k].value].loss |= op->root_gradient;
    }
    op->left_out = !makes && !writes && (outputs > 0 || op->use_count == 0);
}

static void follow_op(follower *f)
{
    ckpt_et_op *const op = &f->step->op[f->op];
    const int first_value = f->flow->value_count;
    op->first_use = f->flow->use_count;
    use_inputs(f, &f->trace->node[op->node]);
    look_inside(f, op);
    finish_op(f, op, first_value);
}

static void mark_uses(ckpt_et_step *step, ckpt_et_flow *flow)
{
    for (int i = 0; i < step->op_count; i++) {
        const ckpt_et_op *const op = &step->op[i];
        for (int k = op->first_use; !op->left_out && k < op->first_use + op->use_count; k++) {
            const ckpt_et_use *const u = &flow->use[k];
            ckpt_et_value *const value = &flow->value[u->value];
            value->used = true;
            value->read[op->phase] = true;
            value->written[op->phase] = value->written[op->phase] || u->kind != CKPT_ET_READ;
            step->op[i].once = op->once || (u->kind == CKPT_ET_READ && value->last_write > i);
        }
    }
}

/* Sums what each op leaves in memory, and its scratch: values made inside it that are neither outputs nor used later,
 * at each address the largest. */
static ckpt_code add_scratch(const ckpt_et_trace *trace, ckpt_et_step *step, const ckpt_et_flow *flow, ckpt_err *err)
{
    for (int v = 0; v < flow->value_count; v++) {
        const ckpt_et_value *const value = &flow->value[v];
        if (value->op < 0 || value->replaced) {
            continue;
        }
        ckpt_et_op *const op = &step->op[value->op];
        const bool stays = value->output || value->used;
        const ckpt_bytes scratch = stays || value->earlier > value->bytes ? value->earlier : value->bytes;
        if (!ckpt_sum(op->workspace, scratch, &op->workspace) ||
            !ckpt_sum(op->made, stays && value->previous < 0 ? value->bytes : 0, &op->made)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "%.200s: what node %lld makes does not fit 63 bits", trace->path,
                             (long long)trace->node[op->node].id);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_et_follow(const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_et_flow *flow, ckpt_err *err)
{
    ckpt_arena *const work = trace->work;
    /* each tensor makes at most one use, and at most two values: one when it begins and one when it is written */
    const int64_t tensors = trace->tensor_count;
    *flow =
        (ckpt_et_flow){CKPT_NEW(work, ckpt_et_value, 2 * tensors + 1), 0, CKPT_NEW(work, ckpt_et_use, tensors + 1), 0};
    follower f = {.trace = trace,
                  .step = step,
                  .flow = flow,
                  .current = CKPT_NEW(work, int, trace->number_count),
                  .tensor_value = CKPT_NEW(work, int, trace->number_count),
                  .given_to = CKPT_NEW(work, int, trace->number_count),
                  .touched = CKPT_NEW(work, int, trace->number_count),
                  .open = CKPT_NEW(work, int, trace->node_count)};
    if (flow->value == NULL || flow->use == NULL || f.current == NULL || f.tensor_value == NULL || f.given_to == NULL ||
        f.touched == NULL || f.open == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for its values", trace->path);
    }
    for (int i = 0; i < trace->number_count; i++) {
        f.current[i] = -1;
        f.tensor_value[i] = -1;
        f.given_to[i] = -1;
        f.touched[i] = -1;
    }
    for (f.op = 0; f.op < step->op_count; f.op++) {
        follow_op(&f);
    }
    mark_uses(step, flow);
    return add_scratch(trace, step, flow, err);
}
