/* Finds one training step of the trace and its operators.
 *
 * PyTorch numbers nodes of all threads when they begin and writes them when they end. A step is every node that began
 * and ended inside the step's annotation. This includes the backward thread of a GPU run, whose nodes are not children
 * of the annotation. An op is an outermost node with an operator schema; the ops it calls are part of it. */
#include <limits.h>
#include <string.h>

#include "imports/execution_impl.h"

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_user(const ckpt_et_node *node)
{
    return node->scope == CKPT_ET_SCOPE_USER;
}

static bool is_profiler_step(const ckpt_et_node *node)
{
    return is_user(node) && begins(node->name, "ProfilerStep#");
}

static bool is_optimizer(const ckpt_et_node *node, const char *call)
{
    return is_user(node) && begins(node->name, call);
}

static bool is_backward(const ckpt_et_node *node)
{
    return begins(node->name, "autograd::engine::evaluate_function") || node->scope == CKPT_ET_SCOPE_BACKWARD;
}

/* A possible step. Nodes are in the file in the order they ended, and numbered in the order they began. */
typedef struct window {
    const char *name;
    int64_t first_id; /* 0, unless `after` is -1 */
    int after, last;  /* positions in the file: behind `after`, up to `last` */
    bool backward, update;
} window;

/* The last position and the highest number of one kind of node so far. -1: none. */
typedef struct seen {
    int position;
    int64_t id;
} seen;

static bool is_inside(const window *w, const ckpt_et_node *node)
{
    return node->id >= w->first_id && node->position > w->after && node->position <= w->last;
}

static void see(seen *s, const ckpt_et_node *node)
{
    s->position = node->position;
    s->id = node->id > s->id ? node->id : s->id;
}

static bool has(const window *w, const seen *s)
{
    return s->position > w->after && s->id >= w->first_id;
}

/* The last step that has a backward and an update, else the last with a backward. `steps`: the profiler's annotations
 * are steps; else each step of an optimizer ends one. */
static window find_marked(const ckpt_et_trace *trace, const ckpt_et_node *const *in_file, bool steps, int *candidates)
{
    window best = {"the whole trace", 0, -1, INT_MAX, false, false};
    seen backward = {-1, -1};
    seen update = {-1, -1};
    int after = -1;
    for (int i = 0; i < trace->node_count; i++) {
        const ckpt_et_node *const node = in_file[i];
        const bool ends = is_optimizer(node, "Optimizer.step#");
        if (is_backward(node)) {
            see(&backward, node);
        }
        if (ends) {
            see(&update, node);
        }
        if (!(steps ? is_profiler_step(node) : ends)) {
            continue;
        }
        window w = {steps ? node->name : "what ends with the optimizer's step",
                    steps ? node->id : 0,
                    steps ? -1 : after,
                    i,
                    false,
                    false};
        w.backward = has(&w, &backward);
        w.update = has(&w, &update);
        *candidates += w.backward;
        best = w.backward && (!best.backward || w.update || !best.update) ? w : best;
        after = i;
    }
    if (*candidates == 0) {
        best.backward = backward.position >= 0;
    }
    return best;
}

static ckpt_code find_window(const ckpt_et_trace *trace, window *found, int *candidates, ckpt_err *err)
{
    const ckpt_et_node **const in_file = CKPT_NEW(trace->work, const ckpt_et_node *, trace->node_count);
    if (in_file == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for its steps", trace->path);
    }
    for (int i = 0; i < trace->node_count; i++) {
        in_file[trace->node[i].position] = &trace->node[i];
    }
    *found = find_marked(trace, in_file, true, candidates);
    if (*candidates == 0) {
        *found = find_marked(trace, in_file, false, candidates);
    }
    *candidates += *candidates == 0; /* no step is marked: the whole trace is one step */
    return CKPT_OK;
}

/* What a node inherits from the nodes around it. */
typedef struct surroundings {
    int op;              /* -1: none */
    const char *label;   /* the innermost annotation a user gave; NULL */
    int64_t forward_seq; /* backward: the forward op it belongs to; -1 unknown */
    bool backward, update, accumulate;
} surroundings;

/* When an exception leaves an op, as at the end of a recomputation by torch.utils.checkpoint, the op stays on PyTorch's
 * stack and is missing in the file. PyTorch then writes later nodes as if they were inside that op. Nodes that cannot
 * be inside an op are therefore taken out of it. */
static surroundings surround(const ckpt_et_node *node, const surroundings *outside)
{
    surroundings s = *outside;
    if (is_profiler_step(node) || is_optimizer(node, "Optimizer.")) {
        s = (surroundings){.op = -1, .forward_seq = -1};
    }
    if (begins(node->name, "autograd::engine::evaluate_function")) { /* the label around it says "backward" at best */
        s.label = NULL;
        s.op = -1;
    }
    if (is_user(node)) {
        s.op = -1;
    }
    s.backward = s.backward || is_backward(node);
    s.update = s.update || is_optimizer(node, "Optimizer.");
    s.accumulate = s.accumulate || strcmp(node->name, "torch::autograd::AccumulateGrad") == 0;
    if (node->scope == CKPT_ET_SCOPE_BACKWARD && node->seq_id >= 0) {
        s.forward_seq = node->seq_id;
    }
    if (is_user(node) && !begins(node->name, "ProfilerStep#") && !begins(node->name, "Optimizer.") &&
        !begins(node->name, "[pytorch|")) {
        s.label = node->name;
    }
    return s;
}

static ckpt_phase phase_of(const ckpt_et_node *node, const surroundings *s)
{
    if (begins(node->name, "c10d::")) {
        return CKPT_REDUCE;
    }
    return s->update ? CKPT_UPDATE : s->backward ? CKPT_BACKWARD : CKPT_FORWARD;
}

typedef struct finder {
    const ckpt_et_trace *trace;
    ckpt_et_step *step;
    surroundings *around; /* per node */
    int *below, *top;
    surroundings missing; /* of a node that is not in the file */
    int *last_below;      /* per op */
    window window;
    ckpt_err *err;
} finder;

/* The surroundings of a node. If its parent is not in the file: those of the last node that began before the parent. */
static const surroundings *outside_of(finder *f, const ckpt_et_node *node)
{
    static const surroundings nothing = {.op = -1, .forward_seq = -1};
    if (node->parent >= 0) {
        return &f->around[node->parent];
    }
    int before = -1;
    for (int high = (int)(node - f->trace->node); high - before > 1;) { /* the last that began before the parent */
        const int middle = before + (high - before) / 2;
        if (f->trace->node[middle].id < node->parent_id) {
            before = middle;
        } else {
            high = middle;
        }
    }
    if (before < 0 || node->parent_id == node->id) {
        return &nothing;
    }
    f->missing = f->around[before];
    f->missing.op = -1;
    return &f->missing;
}

static ckpt_code add_node(finder *f, int i)
{
    const ckpt_et_node *const node = &f->trace->node[i];
    ckpt_et_step *const step = f->step;
    surroundings *const s = &f->around[i];
    *s = surround(node, outside_of(f, node));
    f->below[i] = -1;
    if (node->scope == CKPT_ET_SCOPE_BACKWARD && node->seq_id >= 0 && node->parent >= 0) {
        f->around[node->parent].forward_seq =
            node->seq_id; /* autograd's work around the function belongs to the same op */
    }
    if (!is_inside(&f->window, node)) {
        s->op = -1;
    } else if (s->op >= 0) {
        f->below[f->last_below[s->op]] = i;
        f->last_below[s->op] = i;
        step->op[s->op].random = step->op[s->op].random || node->random;
        step->op[s->op].once = step->op[s->op].once || node->own_generator;
    } else if (node->compiled) {
        return CKPT_FAIL(f->err, CKPT_BAD_INPUT,
                         "%.200s: node %lld (%.60s) is code that torch.compile made, and what it reads and writes is "
                         "not in the trace: wanted a trace of the model without torch.compile",
                         f->trace->path, (long long)node->id, node->name);
    } else if (node->schema[0] != '\0') {
        s->op = step->op_count++;
        f->last_below[s->op] = i;
        step->op[s->op] = (ckpt_et_op){.node = i,
                                       .first_below = i,
                                       .phase = phase_of(node, s),
                                       .layer = s->label,
                                       .accumulates_parameter = s->accumulate,
                                       .random = node->random,
                                       .once = node->own_generator};
    }
    f->top[i] = s->op;
    return CKPT_OK;
}

/* Finds the forward op of each backward op: the last that began with the sequence number of its autograd node. An op
 * that makes no node leaves the number to the next. */
static ckpt_code find_origins(finder *f)
{
    const ckpt_et_trace *const trace = f->trace;
    ckpt_et_step *const step = f->step;
    ckpt_import_index origins = {CKPT_NEW(trace->work, ckpt_import_entry, trace->node_count), 0};
    if (origins.at == NULL) {
        return CKPT_FAIL(f->err, CKPT_NO_MEMORY, "%.200s: no memory for its layers", trace->path);
    }
    for (int i = 0; i < trace->node_count; i++) {
        const ckpt_et_node *const node = &trace->node[i];
        if (f->top[i] >= 0 && step->op[f->top[i]].phase == CKPT_FORWARD) {
            ckpt_import_index_add(&origins, (ckpt_import_entry){node->seq_id, node->id, 0, f->top[i]});
        }
    }
    ckpt_import_index_sort(&origins);
    for (int i = 0; i < step->op_count; i++) { /* forward ops come before their backward ops */
        ckpt_et_op *const op = &step->op[i];
        const int64_t from = ckpt_import_index_find(&origins, f->around[op->node].forward_seq);
        op->origin = from < i ? (int)from : -1;
    }
    return CKPT_OK;
}

/* Ops after the last backward op are part of the update, such as clipping of gradients. The tensor of ones that
 * backward begins with is part of backward. */
static void settle_phases(finder *f)
{
    ckpt_et_step *const step = f->step;
    int last = -1;
    int first = step->op_count;
    int first_forward = step->op_count;
    for (int i = step->op_count - 1; i >= 0; i--) {
        const ckpt_phase phase = step->op[i].phase;
        last = phase == CKPT_BACKWARD && last < 0 ? i : last;
        first = phase == CKPT_BACKWARD ? i : first;
        first_forward = phase == CKPT_FORWARD ? i : first_forward;
    }
    for (int i = 0; i < step->op_count; i++) {
        ckpt_et_op *const op = &step->op[i];
        const bool root = i + 1 < step->op_count && step->op[i + 1].phase == CKPT_BACKWARD &&
                          strcmp(f->trace->node[op->node].name, "aten::ones_like") == 0;
        if (op->phase == CKPT_FORWARD && (i > last || root)) {
            op->phase = root ? CKPT_BACKWARD : CKPT_UPDATE;
            op->root_gradient = root;
        }
    }
    for (int i = 0; i < f->trace->node_count && first_forward < first; i++) {
        const ckpt_et_node *const node = &f->trace->node[i];
        step->late_zero_grad = step->late_zero_grad || (is_optimizer(node, "Optimizer.zero_grad#") &&
                                                        node->id > f->trace->node[step->op[first_forward].node].id &&
                                                        node->id < f->trace->node[step->op[first].node].id);
        step->optimizer_steps += is_inside(&f->window, node) && is_optimizer(node, "Optimizer.step#");
    }
}

ckpt_code ckpt_et_find_step(const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_err *err)
{
    const int nodes = trace->node_count;
    int candidates = 0;
    window w;
    CKPT_TRY(find_window(trace, &w, &candidates, err));
    if (!w.backward) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%.200s: found no backward among its %d nodes (no autograd::engine::evaluate_function), "
                         "wanted a training step",
                         trace->path, nodes);
    }
    *step = (ckpt_et_step){.op = CKPT_NEW(trace->work, ckpt_et_op, nodes), .name = w.name, .candidates = candidates};
    finder f = {.trace = trace,
                .window = w,
                .step = step,
                .around = CKPT_NEW(trace->work, surroundings, nodes),
                .below = CKPT_NEW(trace->work, int, nodes),
                .top = CKPT_NEW(trace->work, int, nodes),
                .last_below = CKPT_NEW(trace->work, int, nodes),
                .err = err};
    if (step->op == NULL || f.around == NULL || f.below == NULL || f.top == NULL || f.last_below == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for its ops", trace->path);
    }
    step->below = f.below;
    step->top = f.top;
    for (int i = 0; i < nodes; i++) {
        CKPT_TRY(add_node(&f, i));
    }
    settle_phases(&f);
    return find_origins(&f);
}
