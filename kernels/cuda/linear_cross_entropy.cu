/* Linear and cross entropy unit by unit (ops/defs/linear_cross_entropy.c): cuBLASLt's products as in linear.cu around
 * the rows of class_rows.cuh. The products of a whole unit and of the rows that are left are prepared apart. Features
 * that fill the gap between rows of logits count as the layer's own, as in linear.cu.
 * Of all the work only products matter: three times 2 rows in out FLOP backward. Each unit reads the weight, and all but
 * the first read and write its gradient: with units of 300 rows a product takes about as long as that memory. */
#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/class_rows.cuh"

namespace
{
/* The product that overwrites is followed by the one that adds. */
enum { FORWARD, WEIGHT, WEIGHT_ADDS, INPUT, INPUT_ADDS, PRODUCTS };
enum { WHOLE, REST, SIZES };
constexpr int all_products = (int)SIZES * (int)PRODUCTS;
const char *const head_key[SIZES][PRODUCTS] = {
    {"forward", "weight", "weight-adds", "input", "input-adds"},
    {"rest-forward", "rest-weight", "rest-weight-adds", "rest-input", "rest-input-adds"}};

struct head_state {
    int64_t rows[SIZES];
    ckpt_blas_product *product[SIZES][PRODUCTS]; /* NULL: not needed */
    char choice[CKPT_CHOICE_TEXT];
};

/* To be called after algorithms have changed. */
void head_name(head_state *h)
{
    h->choice[0] = '\0';
    for (int k = 0; k < all_products; k++) {
        const ckpt_blas_product *const product = h->product[k / PRODUCTS][k % PRODUCTS];
        if (product != NULL) {
            ckpt_choice_add(h->choice, head_key[k / PRODUCTS][k % PRODUCTS], ckpt_blas_product_choice(product));
        }
    }
}

ckpt_code head_make(head_state *h, ckpt_cuda *cuda, int size, int which, const ckpt_blas_shape &shape, ckpt_bytes limit,
                    const char *choice, ckpt_err *err)
{
    char text[CKPT_PIECE_TEXT];
    return ckpt_blas_product_create(cuda, &shape, limit, ckpt_choice_get(choice, head_key[size][which], text),
                                    &h->product[size][which], err);
}

/* Rows that are left always add to the weight's gradient: a whole unit came before them. */
ckpt_code head_fill(head_state *h, ckpt_cuda *cuda, const ckpt_node *node, int size, ckpt_bytes forward,
                    ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    const int64_t rows = h->rows[size], in = node->param[0].tensor.shape.dim[1], out = ckpt_unit_pitch(node);
    const ckpt_dtype dtype = node->in[0].dtype;
    const ckpt_blas_shape y = blas_of(rows, out, in, false, true, dtype, dtype, node->param_count > 1, false);
    /* backward makes the logits again, in its own workspace */
    CKPT_TRY(head_make(h, cuda, size, FORWARD, y, forward < backward ? forward : backward, choice, err));
    for (int adds = 0; adds < 2; adds++) {
        const ckpt_blas_shape dw = blas_of(out, in, rows, true, false, dtype, CKPT_FLOAT32, false, adds == 1);
        const ckpt_blas_shape dx = blas_of(rows, in, out, false, false, dtype, dtype, false, adds == 1);
        if (size == WHOLE || adds == 1) {
            CKPT_TRY(head_make(h, cuda, size, WEIGHT + adds, dw, backward, choice, err));
        }
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(head_make(h, cuda, size, INPUT + adds, dx, backward, choice, err));
        }
    }
    return CKPT_OK;
}

/* What is left for products of the given bytes; of the allowance without a limit. */
ckpt_bytes head_rest(ckpt_bytes given, ckpt_bytes allowance, ckpt_bytes own)
{
    const ckpt_bytes all = given < 0 ? allowance : given;
    return all > own ? all - own : 0;
}

/* Where the products' workspace begins: forward behind the logits and the parts of the loss, backward behind the logits. */
ckpt_bytes head_before(const ckpt_node *node, bool backward)
{
    return ckpt_unit_bytes(node) + (backward ? 0 : ckpt_gpu_unit_loss_workspace(node));
}

ckpt_code head_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                       const char *choice, ckpt_err *err)
{
    head_state *const h = (head_state *)memory;
    h->rows[WHOLE] = ckpt_unit_rows(node);
    h->rows[REST] = ckpt_shape_count(&node->in[1].shape) % h->rows[WHOLE];
    for (int k = 0; k < SIZES && h->rows[k] > 0; k++) {
        CKPT_TRY(head_fill(h, (ckpt_cuda *)context, node, k,
                           head_rest(forward, node->forward_workspace_bytes, head_before(node, false)),
                           head_rest(backward, node->backward_workspace_bytes, head_before(node, true)), choice, err));
    }
    head_name(h);
    return CKPT_OK;
}

void head_release(void *state)
{
    head_state *const h = (head_state *)state;
    for (int k = 0; k < all_products; k++) {
        ckpt_blas_product_destroy(h->product[k / PRODUCTS][k % PRODUCTS]);
    }
}

void head_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const head_state *const h = (const head_state *)state;
    *forward = *backward = 0;
    for (int size = 0; size < SIZES && h->rows[size] > 0; size++) {
        const bool bias = node->param_count > 1;
        const ckpt_bytes sums = bias ? ckpt_gpu_column_sums_workspace(h->rows[size], ckpt_unit_pitch(node)) : 0;
        *forward = blas_most(*forward, h->product[size][FORWARD]);
        *backward = sums > *backward ? sums : *backward;
        for (int k = FORWARD; k < PRODUCTS; k++) {
            *backward = blas_most(*backward, h->product[size][k]);
        }
    }
    *forward += head_before(node, false);
    *backward += head_before(node, true);
}

const char *head_choice(const void *state)
{
    return ((const head_state *)state)->choice;
}

/* A unit: its rows, which products they take, and its part of every tensor. The way "kept" has the logits of all units
 * in a saved tensor, else they are in the workspace, where their gradient is in either case. */
struct head_unit {
    class_rows rows;
    int size;
    int64_t first;
    const void *x;
    void *dx; /* NULL: not wanted */
    float *lse;
    void *logits, *scratch;
};

void *head_row(void *tensor, const ckpt_tensor *type, int64_t row)
{
    const ckpt_bytes bytes = row * type->shape.dim[type->shape.rank - 1] * ckpt_dtype_bytes(type->dtype);
    return tensor == NULL ? NULL : (char *)tensor + bytes;
}

/* The unit that starts at row `first`. */
head_unit head_unit_at(const ckpt_kernel_args *args, bool backward, int64_t first)
{
    const head_state *const h = (const head_state *)args->state;
    const ckpt_node *const node = args->node;
    const int64_t left = ckpt_shape_count(&node->in[1].shape) - first;
    const int size = left < h->rows[WHOLE] ? REST : WHOLE;
    return {.rows = {.count = h->rows[size],
                     .classes = node->param[0].tensor.shape.dim[0],
                     .pitch = ckpt_unit_pitch(node),
                     .target = (const int32_t *)args->in[1] + first,
                     .ignore = ckpt_node_int(node, "ignore_index"),
                     .smoothing = ckpt_node_float(node, "label_smoothing")},
            .size = size,
            .first = first,
            .x = head_row((void *)args->in[0], &node->in[0], first),
            .dx = backward ? head_row(args->grad_in[0], &node->in[0], first) : NULL,
            .lse = (float *)args->saved[0] + first,
            .logits =
                ckpt_way_is(args->way, "kept") ? head_row(args->saved[2], &node->saved[2], first) : args->workspace,
            .scratch = (char *)args->workspace + head_before(node, backward)};
}

ckpt_code head_product(const ckpt_kernel_args *args, const head_unit &u, int which, const void *x, const void *w,
                       void *y, void *bias, ckpt_err *err)
{
    return ckpt_blas_product_run(((const head_state *)args->state)->product[u.size][which], x, w, y, bias, u.scratch,
                                 err);
}

ckpt_code head_logits(const ckpt_kernel_args *args, const head_unit &u, ckpt_err *err)
{
    void *const bias = args->node->param_count > 1 ? (void *)ckpt_product_param(args, 1) : NULL;
    return head_product(args, u, FORWARD, u.x, ckpt_product_param(args, 0), u.logits, bias, err);
}

ckpt_code head_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_node *const node = args->node;
    char *const part = (char *)args->workspace + ckpt_unit_bytes(node);
    char *const sums =
        part + ckpt_gpu_unit_loss_workspace(node) - ckpt_gpu_smoothing_workspace(node, ckpt_unit_rows(node));
    int64_t parts = 0;
    for (int64_t first = 0; first < ckpt_shape_count(&node->in[1].shape);) {
        const head_unit u = head_unit_at(args, false, first);
        CKPT_TRY(head_logits(args, u, err));
        class_rows_loss(cuda, node->in[0].dtype, u.rows, u.logits, u.lse, part + 16 * parts, sums);
        parts += class_rows_parts(u.rows.count);
        first += u.rows.count;
    }
    class_rows_finish(cuda, parts, part, (float *)args->out[0], (float *)args->saved[1]);
    return ckpt_cuda_launched(node->op->name, err);
}

/* The gradients from the gradient of a unit's logits. */
ckpt_code head_multiply(const ckpt_kernel_args *args, const head_unit &u, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const bool later = u.first > 0;
    const void *const dy = args->workspace;
    const int weight = later || (args->grad_param_adds & 1) != 0 ? WEIGHT_ADDS : WEIGHT;
    CKPT_TRY(head_product(args, u, weight, dy, u.x, args->grad_param[0], NULL, err));
    if (node->param_count > 1) {
        CKPT_TRY(ckpt_cuda_column_sums((ckpt_cuda *)args->context, node->in[0].dtype, u.rows.count, u.rows.pitch, dy,
                                       args->grad_param[1], later || (args->grad_param_adds & 2) != 0, u.scratch, err));
    }
    const int input = (args->grad_in_adds & 1) != 0 ? INPUT_ADDS : INPUT;
    return u.dx == NULL ? CKPT_OK : head_product(args, u, input, dy, ckpt_product_param(args, 0), u.dx, NULL, err);
}

ckpt_code head_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    for (int64_t first = 0; first < ckpt_shape_count(&node->in[1].shape);) {
        const head_unit u = head_unit_at(args, true, first);
        if (!ckpt_way_is(args->way, "kept")) {
            CKPT_TRY(head_logits(args, u, err));
        }
        class_rows_gradient(cuda_of(args), node->in[0].dtype, u.rows, u.logits, u.lse, (const float *)args->saved[1],
                            (const float *)args->grad_out[0], args->workspace);
        CKPT_TRY(head_multiply(args, u, err));
        first += u.rows.count;
    }
    return ckpt_cuda_launched(node->op->name, err);
}

ckpt_code head_tune_one(const ckpt_kernel_args *args, const head_unit &u, int which, const void *x, const void *w,
                        void *y, void *bias, ckpt_tuning *tuning, ckpt_err *err)
{
    ckpt_blas_product *const product = ((const head_state *)args->state)->product[u.size][which];
    const ckpt_bytes before = (char *)u.scratch - (char *)args->workspace;
    ckpt_ns took = 0;
    return product == NULL || y == NULL ? CKPT_OK
                                        : ckpt_blas_product_tune(product, x, w, y, bias, u.scratch,
                                                                 args->workspace_bytes - before, tuning, &took, err);
}

/* Backward first runs whole, so that the gradient of some unit's logits is where products read one. */
ckpt_code head_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    head_state *const h = (head_state *)args->state;
    void *const logits = args->workspace, *const bias =
                                              args->node->param_count > 1 ? (void *)ckpt_product_param(args, 1) : NULL;
    const int64_t rows = ckpt_shape_count(&args->node->in[1].shape);
    if (backward) {
        CKPT_TRY(head_backward(args, err));
    }
    for (int size = 0; size < SIZES && h->rows[size] > 0; size++) {
        const head_unit u = head_unit_at(args, backward, size == WHOLE ? 0 : rows - h->rows[REST]);
        if (!backward) {
            CKPT_TRY(head_tune_one(args, u, FORWARD, u.x, ckpt_product_param(args, 0), logits, bias, tuning, err));
            continue;
        }
        for (int adds = 0; adds < 2; adds++) {
            CKPT_TRY(head_tune_one(args, u, WEIGHT + adds, logits, u.x, args->grad_param[0], NULL, tuning, err));
            CKPT_TRY(
                head_tune_one(args, u, INPUT + adds, logits, ckpt_product_param(args, 0), u.dx, NULL, tuning, err));
        }
    }
    head_name(h);
    return CKPT_OK;
}
} // namespace

extern "C" const ckpt_kernel ckpt_cuda_linear_cross_entropy = {
    .op = "linear_cross_entropy",
    .state_bytes = sizeof(head_state),
    .prepare = head_prepare,
    .release = head_release,
    .workspace = head_workspace,
    .choice = head_choice,
    .tune = head_tune,
    .forward = head_forward,
    .backward = head_backward,
};
