/* Linear and cross entropy unit by unit (ops/defs/linear_cross_entropy.c): oneDNN's products as in linear.c around the
 * rows of class_rows.h. The way "kept" has the logits of all units in a saved tensor. The products of a whole unit and
 * of the rows that are left are prepared apart. */
#include "core/formats/tensor.h"
#include "kernels/cpu/class_rows.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

/* Of so many rows. Index of the arrays: 1 if the product adds. NULL: not needed. */
typedef struct products {
    int64_t rows;
    ckpt_dnn *forward, *input[2], *weight[2];
} products;

enum { WHOLE, REST, SIZES };

typedef struct head {
    products size[SIZES];
    ckpt_bytes logits_bytes;
} head;

static ckpt_code make(products *p, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward, ckpt_err *err)
{
    const int64_t out = node->param[0].tensor.shape.dim[0], in = node->param[0].tensor.shape.dim[1], rows = p->rows;
    const ckpt_dtype type = node->dtype;
    const ckpt_dnn_matrix x = ckpt_dnn_plain(rows, in, type), y = ckpt_dnn_plain(rows, out, type),
                          w = ckpt_dnn_plain(out, in, type), w_turned = ckpt_dnn_turned(out, in, type),
                          y_turned = ckpt_dnn_turned(rows, out, type), dw = ckpt_dnn_plain(out, in, CKPT_FLOAT32);
    /* backward makes the logits again, in its own workspace */
    CKPT_TRY(ckpt_dnn_matmul(&x, &w_turned, &y, node->param_count > 1, false, node->threads,
                             forward < backward ? forward : backward, &p->forward, err));
    for (int adds = 0; adds < 2; adds++) {
        CKPT_TRY(ckpt_dnn_matmul(&y_turned, &x, &dw, false, adds == 1, node->threads, backward, &p->weight[adds], err));
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(ckpt_dnn_matmul(&y, &w, &x, false, adds == 1, node->threads, backward, &p->input[adds], err));
        }
    }
    return CKPT_OK;
}

/* What is left for products. */
static ckpt_bytes rest_of(ckpt_bytes given, ckpt_bytes allowance, ckpt_bytes own)
{
    const ckpt_bytes all = given < 0 ? allowance : given;
    return all > own ? all - own : 0;
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    head *const h = state;
    (void)choice; /* none on a CPU */
    (void)context;
    h->logits_bytes = ckpt_unit_bytes(node);
    h->size[WHOLE].rows = ckpt_unit_rows(node);
    h->size[REST].rows = ckpt_shape_count(&node->in[1].shape) % h->size[WHOLE].rows;
    for (int k = 0; k < SIZES && h->size[k].rows > 0; k++) {
        /* The allowance is enough for every shape; a few would use much more and gain little. */
        CKPT_TRY(make(&h->size[k], node, rest_of(forward, node->forward_workspace_bytes, h->logits_bytes),
                      rest_of(backward, node->backward_workspace_bytes, h->logits_bytes), err));
    }
    return CKPT_OK;
}

static void release(void *state)
{
    head *const h = state;
    for (int k = 0; k < SIZES; k++) {
        ckpt_dnn_destroy(h->size[k].forward);
        for (int adds = 0; adds < 2; adds++) {
            ckpt_dnn_destroy(h->size[k].input[adds]);
            ckpt_dnn_destroy(h->size[k].weight[adds]);
        }
    }
}

static ckpt_bytes most(ckpt_bytes bytes, const ckpt_dnn *product)
{
    const ckpt_bytes used = product == NULL ? 0 : ckpt_dnn_workspace(product);
    return used > bytes ? used : bytes;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const head *const h = state;
    *forward = *backward = 0;
    for (int k = 0; k < SIZES; k++) {
        *forward = most(*forward, h->size[k].forward);
        *backward = most(*backward, h->size[k].forward);
        for (int adds = 0; adds < 2; adds++) {
            *backward = most(most(*backward, h->size[k].weight[adds]), h->size[k].input[adds]);
        }
    }
    *forward += h->logits_bytes;
    *backward += h->logits_bytes;
}

/* A unit: its rows, what is prepared for so many, and its part of every tensor. */
typedef struct unit {
    ckpt_class_rows rows;
    const products *products;
    int64_t first;
    const void *x;
    float *lse;
    void *logits, *grad; /* logits: in the workspace, unless they are kept; their gradient: in the workspace */
    void *scratch;
} unit;

static ckpt_class_rows all_rows(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    return (ckpt_class_rows){.count = ckpt_shape_count(&node->in[1].shape),
                             .classes = node->param[0].tensor.shape.dim[0],
                             .target = args->in[1],
                             .ignore = ckpt_node_int(node, "ignore_index"),
                             .smoothing = ckpt_node_float(node, "label_smoothing"),
                             .dtype = node->dtype,
                             .threads = node->threads};
}

/* The unit that starts at row `first` < all->count. */
static unit unit_at(const ckpt_kernel_args *args, const ckpt_class_rows *all, int64_t first)
{
    const head *const h = args->state;
    const int64_t in = args->node->param[0].tensor.shape.dim[1], size = ckpt_dtype_bytes(all->dtype);
    const bool kept = ckpt_way_is(args->way, "kept");
    unit u = {.rows = *all,
              .products = &h->size[all->count - first < h->size[WHOLE].rows ? REST : WHOLE],
              .first = first,
              .x = (const char *)args->in[0] + first * in * size,
              .lse = (float *)args->saved[0] + first,
              .logits = kept ? (char *)args->saved[2] + first * all->classes * size : args->workspace,
              .grad = args->workspace,
              .scratch = (char *)args->workspace + h->logits_bytes};
    u.rows.count = u.products->rows;
    u.rows.target += first;
    return u;
}

static ckpt_code make_logits(const ckpt_kernel_args *args, const unit *u, ckpt_err *err)
{
    const void *const bias = args->node->param_count > 1 ? ckpt_product_param(args, 1) : NULL;
    const void *const pointer[4] = {u->x, ckpt_product_param(args, 0), u->logits, bias};
    return ckpt_dnn_run(u->products->forward, pointer, u->scratch, err);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_class_rows all = all_rows(args);
    int64_t counted = 0;
    double total = 0;
    CKPT_TRY(ckpt_class_rows_check(&all, &counted, err));
    for (int64_t first = 0; first < all.count;) {
        const unit u = unit_at(args, &all, first);
        CKPT_TRY(make_logits(args, &u, err));
        total += ckpt_class_rows_loss(&u.rows, u.logits, u.lse);
        first += u.rows.count;
    }
    *(float *)args->saved[1] = (float)counted;
    *(float *)args->out[0] = (float)(total / (double)counted); /* no row counts: NaN, as in PyTorch */
    return CKPT_OK;
}

/* The gradients from the gradient of a unit's logits. */
static ckpt_code multiply(const ckpt_kernel_args *args, const unit *u, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const bool later = u->first > 0;
    const int weight_adds = later || (args->grad_param_adds & 1) != 0, input_adds = (args->grad_in_adds & 1) != 0;
    CKPT_TRY(ckpt_dnn_run(u->products->weight[weight_adds],
                          (const void *const[4]){u->grad, u->x, args->grad_param[0], NULL}, u->scratch, err));
    if (node->param_count > 1) {
        ckpt_column_sums(node->dtype, u->rows.count, u->rows.classes, u->grad, args->grad_param[1],
                         later || (args->grad_param_adds & 2) != 0, node->threads);
    }
    if (args->grad_in[0] != NULL) {
        const int64_t at = u->first * node->param[0].tensor.shape.dim[1];
        const void *const pointer[4] = {u->grad, ckpt_product_param(args, 0),
                                        (char *)args->grad_in[0] + at * ckpt_dtype_bytes(node->dtype), NULL};
        CKPT_TRY(ckpt_dnn_run(u->products->input[input_adds], pointer, u->scratch, err));
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_class_rows all = all_rows(args);
    int64_t now = 0; /* not used: forward has counted; the check guards writes at targets */
    CKPT_TRY(ckpt_class_rows_check(&all, &now, err));
    const float counted = *(const float *)args->saved[1];
    const float scale = (args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f) / counted;
    for (int64_t first = 0; first < all.count;) {
        const unit u = unit_at(args, &all, first);
        if (!ckpt_way_is(args->way, "kept")) {
            CKPT_TRY(make_logits(args, &u, err));
        }
        ckpt_class_rows_gradient(&u.rows, u.logits, u.lse, scale, u.grad);
        CKPT_TRY(multiply(args, &u, err));
        first += u.rows.count;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_linear_cross_entropy = {
    .op = "linear_cross_entropy",
    .state_bytes = sizeof(head),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
