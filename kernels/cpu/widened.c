/* Widens what the float32 kernel reads into the workspace, runs it there, and rounds what it wrote to nearest even: a
 * result is computed in float32 and rounded once, as on a GPU. A gradient that is added to is widened too, so that the
 * sum is rounded once. Copies of a product's parameters are those of `param16`.
 *
 * The float32 kernel sees a node of its own, with float32 in place of bfloat16 and the workspace that infer allowed. Where
 * elements do not depend on each other (ckpt_node.by_element), each thread widens, runs and rounds a piece at a time, which
 * stays in its cache; the node is then one of the piece. */
#include "kernels/cpu/widened.h"

#include <omp.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"
#include "kernels/device.h"
#include "ops/widened.h"

typedef struct own_node {
    ckpt_node node;
    ckpt_tensor in[CKPT_IN_MAX], out[CKPT_OUT_MAX], saved[CKPT_SAVED_MAX];
} own_node;

typedef struct widened {
    own_node wide;
    const ckpt_kernel *kernel;
    void *state;                              /* of the kernel */
    ckpt_bytes forward_bytes, backward_bytes; /* of the copies, at most */
} widened;

/* A copy that can be changed. */
static void copy_node(const ckpt_node *from, own_node *to)
{
    to->node = *from;
    memcpy(to->in, from->in, (size_t)from->in_count * sizeof *to->in);
    memcpy(to->out, from->out, (size_t)from->out_count * sizeof *to->out);
    memcpy(to->saved, from->saved, (size_t)from->saved_count * sizeof *to->saved);
    to->node.in = to->in;
    to->node.out = to->out;
    to->node.saved = to->saved;
}

static void widen_tensors(ckpt_tensor *tensor, int count)
{
    for (int k = 0; k < count; k++) {
        tensor[k].dtype = tensor[k].dtype == CKPT_BFLOAT16 ? CKPT_FLOAT32 : tensor[k].dtype;
    }
}

static void widen_node(own_node *own)
{
    own->node.dtype = CKPT_FLOAT32;
    widen_tensors(own->in, own->node.in_count);
    widen_tensors(own->out, own->node.out_count);
    widen_tensors(own->saved, own->node.saved_count);
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    widened *const w = state;
    w->kernel = ckpt_kernel_find(ckpt_device_cpu.kernels, node->op->name);
    w->forward_bytes = ckpt_widened_most(node, false);
    w->backward_bytes = ckpt_widened_most(node, true);
    copy_node(node, &w->wide);
    widen_node(&w->wide);
    w->wide.node.forward_workspace_bytes -= w->forward_bytes;
    w->wide.node.backward_workspace_bytes -= w->backward_bytes;
    if ((forward >= 0 && forward < w->forward_bytes) || (backward >= 0 && backward < w->backward_bytes)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "float32 copies take %lld and %lld bytes of workspace, given %lld and %lld",
                         (long long)w->forward_bytes, (long long)w->backward_bytes, (long long)forward,
                         (long long)backward);
    }
    return ckpt_kernel_prepare(w->kernel, context, &w->wide.node, forward < 0 ? -1 : forward - w->forward_bytes,
                               backward < 0 ? -1 : backward - w->backward_bytes, choice, &w->state, err);
}

static void release(void *state)
{
    widened *const w = state;
    if (w->kernel != NULL) {
        ckpt_kernel_release(w->kernel, w->state);
    }
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const widened *const w = state;
    *forward = *backward = 0;
    if (w->kernel->workspace != NULL) {
        w->kernel->workspace(&w->wide.node, w->state, forward, backward);
    }
    *forward = ckpt_round_up(*forward, CKPT_ALIGN) + w->forward_bytes;
    *backward = ckpt_round_up(*backward, CKPT_ALIGN) + w->backward_bytes;
}

static ckpt_bytes way_workspace(const ckpt_node *node, const void *state, const ckpt_way *way)
{
    const widened *const w = state;
    const ckpt_bytes own = w->kernel->way_workspace(&w->wide.node, w->state, way);
    const ckpt_widened copies = ckpt_widened_of(node, way->backward, way);
    return own == CKPT_WAY_ABSENT ? own : ckpt_round_up(own, CKPT_ALIGN) + ckpt_widened_bytes(node, &copies);
}

/* The arguments of the float32 kernel, and the lists in them. */
typedef struct call {
    ckpt_kernel_args args;
    const void *in[CKPT_IN_MAX], *grad_out[CKPT_OUT_MAX], *param16[CKPT_PARAM_MAX];
    void *out[CKPT_OUT_MAX], *saved[CKPT_SAVED_MAX], *grad_in[CKPT_IN_MAX];
    const float *param[CKPT_PARAM_MAX];
} call;

/* A copy from the workspace; what `from` holds, if it is not NULL. */
static float *copy(call *c, const ckpt_tensor *tensor, const void *from)
{
    const int64_t count = ckpt_shape_count(&tensor->shape), bytes = ckpt_round_up(4 * count, CKPT_ALIGN);
    float *const to = c->args.workspace;
    c->args.workspace = (char *)c->args.workspace + bytes;
    c->args.workspace_bytes -= bytes;
    if (from != NULL) {
        ckpt_widen_all(count, from, to, c->args.node->threads);
    }
    return to;
}

static void round_to(const call *c, const ckpt_tensor *tensor, const void *from, void *to)
{
    ckpt_narrow_all(ckpt_shape_count(&tensor->shape), from, to, c->args.node->threads);
}

static bool bit(uint64_t mask, int k)
{
    return (mask >> k & 1) != 0;
}

/* Inputs, and parameters where products read their bfloat16 copy. `reads`: outputs and saved tensors are read too. */
static void open(call *c, const ckpt_kernel_args *args, const ckpt_node *wide, const ckpt_widened *copies, bool reads)
{
    const ckpt_node *const node = args->node;
    const widened *const w = args->state;
    c->args = *args;
    c->args.node = wide;
    c->args.state = w->state;
    c->args.in = c->in;
    c->args.out = c->out;
    c->args.saved = c->saved;
    c->args.param = c->param;
    c->args.param16 = c->param16;
    for (int k = 0; k < node->in_count; k++) {
        c->in[k] = bit(copies->in, k) ? copy(c, &node->in[k], args->in[k]) : args->in[k];
    }
    for (int k = 0; k < node->out_count; k++) {
        c->out[k] = bit(copies->out, k) ? copy(c, &node->out[k], reads ? args->out[k] : NULL) : args->out[k];
    }
    for (int k = 0; k < node->saved_count; k++) {
        c->saved[k] = bit(copies->saved, k) ? copy(c, &node->saved[k], reads ? args->saved[k] : NULL) : args->saved[k];
    }
    for (int k = 0; k < node->param_count; k++) {
        c->param[k] = bit(copies->param, k) ? copy(c, &node->param[k].tensor, args->param16[k]) : args->param[k];
        c->param16[k] = NULL;
    }
}

/* The node in `args` as float32: `wide`. */
static ckpt_code forward_of(const ckpt_kernel_args *args, const ckpt_node *wide, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const widened *const w = args->state;
    const ckpt_widened copies = ckpt_widened_of(node, false, args->way);
    call c;
    open(&c, args, wide, &copies, false);
    CKPT_TRY(w->kernel->forward(&c.args, err));
    for (int k = 0; k < node->out_count; k++) {
        if (bit(copies.out, k)) {
            round_to(&c, &node->out[k], c.out[k], args->out[k]);
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if (bit(copies.saved, k)) {
            round_to(&c, &node->saved[k], c.saved[k], args->saved[k]);
        }
    }
    return CKPT_OK;
}

/* The earlier input whose gradient goes to the same buffer; -1: none. */
static int earlier(const ckpt_kernel_args *args, int k)
{
    for (int i = 0; i < k; i++) {
        if (args->grad_in[i] == args->grad_in[k]) {
            return i;
        }
    }
    return -1;
}

static ckpt_code backward_of(const ckpt_kernel_args *args, const ckpt_node *wide, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const widened *const w = args->state;
    const ckpt_widened copies = ckpt_widened_of(node, true, args->way);
    call c;
    open(&c, args, wide, &copies, true);
    c.args.grad_out = c.grad_out;
    c.args.grad_in = c.grad_in;
    for (int k = 0; k < node->out_count; k++) {
        const bool copied = bit(copies.grad_out, k) && args->grad_out[k] != NULL;
        c.grad_out[k] = copied ? copy(&c, &node->out[k], args->grad_out[k]) : args->grad_out[k];
    }
    for (int k = 0; k < node->in_count; k++) {
        c.grad_in[k] = args->grad_in[k];
        if (bit(copies.grad_in, k) && args->grad_in[k] != NULL) {
            const int same = earlier(args, k);
            const bool adds = bit(args->grad_in_adds, k);
            c.grad_in[k] = same >= 0 ? c.grad_in[same] : copy(&c, &node->in[k], adds ? args->grad_in[k] : NULL);
        }
    }
    CKPT_TRY(w->kernel->backward(&c.args, err));
    for (int k = 0; k < node->in_count; k++) {
        if (bit(copies.grad_in, k) && args->grad_in[k] != NULL && earlier(args, k) < 0) {
            round_to(&c, &node->in[k], c.grad_in[k], args->grad_in[k]);
        }
    }
    return CKPT_OK;
}

/* ---- in pieces ---- */

typedef ckpt_code run_of(const ckpt_kernel_args *args, const ckpt_node *wide, ckpt_err *err);

/* What a thread needs for its pieces. */
typedef struct piece {
    own_node narrow, wide;
    ckpt_kernel_args args;
    const void *in[CKPT_IN_MAX], *grad_out[CKPT_OUT_MAX];
    void *out[CKPT_OUT_MAX], *saved[CKPT_SAVED_MAX], *grad_in[CKPT_IN_MAX];
} piece;

/* Bytes of `elements` of a node's elements in one of its tensors: a mask has a bit of each. */
static int64_t bytes_of(const ckpt_tensor *tensor, int64_t elements)
{
    return tensor->dtype == CKPT_INT32 ? (elements + 31) / 32 * 4 : elements * ckpt_dtype_bytes(tensor->dtype);
}

static void shorten(ckpt_tensor *tensor, int count, int64_t elements)
{
    for (int k = 0; k < count; k++) {
        const int64_t own = bytes_of(&tensor[k], elements) / ckpt_dtype_bytes(tensor[k].dtype);
        tensor[k].shape = (ckpt_shape){1, {own}};
    }
}

static void shorten_node(own_node *own, int64_t elements)
{
    shorten(own->in, own->node.in_count, elements);
    shorten(own->out, own->node.out_count, elements);
    shorten(own->saved, own->node.saved_count, elements);
}

/* Tensors of `from` from element `first` on; NULL stays. */
static void advance(const ckpt_tensor *tensor, int count, void *const *from, int64_t first, void **to)
{
    for (int k = 0; k < count; k++) {
        to[k] = from[k] == NULL ? NULL : (char *)from[k] + bytes_of(&tensor[k], first);
    }
}

static void advance_read(const ckpt_tensor *tensor, int count, const void *const *from, int64_t first, const void **to)
{
    for (int k = 0; k < count; k++) {
        to[k] = from[k] == NULL ? NULL : (const char *)from[k] + bytes_of(&tensor[k], first);
    }
}

/* Kernels of such ops have no workspace of their own. */
static void open_pieces(piece *p, const ckpt_kernel_args *args, bool backward)
{
    const widened *const w = args->state;
    copy_node(args->node, &p->narrow);
    copy_node(&w->wide.node, &p->wide);
    p->narrow.node.threads = p->wide.node.threads = 1;
    p->args = *args;
    p->args.node = &p->narrow.node;
    p->args.in = p->in;
    p->args.out = p->out;
    p->args.saved = p->saved;
    p->args.grad_out = p->grad_out;
    p->args.grad_in = p->grad_in;
    p->args.workspace_bytes = (backward ? w->backward_bytes : w->forward_bytes) / args->node->threads;
    p->args.workspace = (char *)args->workspace + p->args.workspace_bytes * omp_get_thread_num();
}

static ckpt_code run_piece(piece *p, const ckpt_kernel_args *args, bool backward, int64_t first, int64_t count,
                           run_of *run, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    shorten_node(&p->narrow, count);
    shorten_node(&p->wide, count);
    p->args.first = first;
    advance_read(node->in, node->in_count, args->in, first, p->in);
    advance(node->out, node->out_count, args->out, first, p->out);
    advance(node->saved, node->saved_count, args->saved, first, p->saved);
    if (backward) {
        advance_read(node->out, node->out_count, args->grad_out, first, p->grad_out);
        advance(node->in, node->in_count, args->grad_in, first, p->grad_in);
    }
    return run(&p->args, &p->wide.node, err);
}

/* The first error of any thread. */
static ckpt_code run_pieces(const ckpt_kernel_args *args, bool backward, run_of *run, ckpt_err *err)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    ckpt_code code = CKPT_OK;
#pragma omp parallel num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    {
        piece p;
        open_pieces(&p, args, backward);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < count; first += CKPT_WIDENED_PIECE) {
            const int64_t rest = count - first;
            ckpt_err why = {0};
            const ckpt_code done =
                run_piece(&p, args, backward, first, rest < CKPT_WIDENED_PIECE ? rest : CKPT_WIDENED_PIECE, run, &why);
            if (done != CKPT_OK) {
#pragma omp critical
                {
                    code = done;
                    *err = why;
                }
            }
        }
    }
    return code;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const widened *const w = args->state;
    return ckpt_widened_in_pieces(args->node) ? run_pieces(args, false, forward_of, err)
                                              : forward_of(args, &w->wide.node, err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const widened *const w = args->state;
    return ckpt_widened_in_pieces(args->node) ? run_pieces(args, true, backward_of, err)
                                              : backward_of(args, &w->wide.node, err);
}

const ckpt_kernel ckpt_widened_kernel = {
    .op = "",
    .state_bytes = sizeof(widened),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .way_workspace = way_workspace,
    .forward = forward,
    .backward = backward,
};
