/* Layers with parameters, pooling, and products. ONNX has channels in dim 1; our sequences and volumes have them last. */
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"

/* ---- windows ---- */

typedef struct window {
    int dims;
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
} window;

static ckpt_code read_list(onnx_importer *m, const char *name, int dims, int64_t otherwise, int64_t *list)
{
    int count = 0;
    CKPT_TRY(onnx_ints(m, name, -1, list, 6, &count));
    for (int d = 0; count < 0 && d < dims; d++) {
        list[d] = otherwise;
    }
    return count < 0 || count == dims
               ? CKPT_OK
               : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%s\" has %d numbers, wanted %d", name, count, dims);
}

static ckpt_code read_window(onnx_importer *m, int dims, const int64_t *kernel, window *w)
{
    int64_t list[6], pads[6];
    w->dims = dims;
    CKPT_TRY(onnx_attr_words(m, "auto_pad", "NOTSET|VALID"));
    CKPT_TRY(read_list(m, "kernel_shape", dims, -1, list));
    for (int d = 0; d < dims; d++) {
        w->kernel[d] = kernel != NULL ? kernel[d] : list[d];
        if (list[d] != w->kernel[d] && (kernel == NULL || list[d] != -1)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"kernel_shape\" is %lld, the weight's dim %lld",
                             (long long)list[d], (long long)w->kernel[d]);
        }
    }
    CKPT_TRY(read_list(m, "strides", dims, 1, list));
    memcpy(w->stride, list, (size_t)dims * sizeof *list);
    CKPT_TRY(read_list(m, "dilations", dims, 1, list));
    memcpy(w->dilation, list, (size_t)dims * sizeof *list);
    CKPT_TRY(read_list(m, "pads", 2 * dims, 0, pads));
    memcpy(w->before, pads, (size_t)dims * sizeof *list);
    memcpy(w->after, pads + dims, (size_t)dims * sizeof *list);
    return CKPT_OK;
}

static bool is_even(const window *w)
{
    bool even = true;
    for (int d = 0; d < w->dims; d++) {
        even = even && w->before[d] == w->after[d];
    }
    return even;
}

/* Channels last for ranks other than 4, or back. */
static ckpt_code turn(onnx_importer *m, const onnx_value *x, bool back, onnx_value *y)
{
    int perm[CKPT_RANK_MAX] = {0};
    const int rank = x->shape.rank;
    for (int d = 1; d < rank; d++) {
        perm[d] = back ? (d == 1 ? rank - 1 : d - 1) : (d == rank - 1 ? 1 : d + 1);
    }
    *y = *x;
    return rank == 4 || rank < 3 ? CKPT_OK : onnx_transpose(m, x, perm, y);
}

/* `value` around x, which is as our layer wants it, where a layer's padding cannot say it. */
static ckpt_code pad_apart(onnx_importer *m, window *w, double value, onnx_value *x)
{
    int64_t before[CKPT_RANK_MAX] = {0}, after[CKPT_RANK_MAX] = {0};
    onnx_call call = {.op = "pad", .in = {*x}, .in_count = 1};
    for (int d = 0; d < w->dims; d++) {
        const int at = x->shape.rank == 4 ? d + 2 : d + 1;
        before[at] = w->before[d];
        after[at] = w->after[d];
        w->before[d] = w->after[d] = 0;
    }
    CKPT_TRY(onnx_call_ints(m, &call, "before", before, x->shape.rank));
    CKPT_TRY(onnx_call_ints(m, &call, "after", after, x->shape.rank));
    onnx_call_real(&call, "value", value);
    return onnx_add(m, &call, x);
}

static ckpt_code put_window(onnx_importer *m, onnx_call *call, const window *w, bool dilates)
{
    CKPT_TRY(onnx_call_ints(m, call, "kernel_size", w->kernel, w->dims));
    CKPT_TRY(onnx_call_ints(m, call, "stride", w->stride, w->dims));
    CKPT_TRY(onnx_call_ints(m, call, "padding", w->before, w->dims));
    return dilates ? onnx_call_ints(m, call, "dilation", w->dilation, w->dims) : CKPT_OK;
}

static ckpt_code lower_conv(onnx_importer *m)
{
    static const char *const ops[2][3] = {{"conv1d", "conv2d", "conv3d"},
                                          {"conv_transpose1d", "conv_transpose2d", NULL}};
    const bool transposed = strcmp(m->node->op_type, "ConvTranspose") == 0;
    onnx_value x, y, *weight = NULL, *bias = NULL;
    window w;
    int64_t group = 1, more[6];
    CKPT_TRY(onnx_operand(m, 0, &x));
    const int dims = x.shape.rank - 2;
    onnx_call call = {
        .op = dims >= 1 && dims <= 3 ? ops[transposed ? 1 : 0][dims - 1] : NULL, .in_count = 1, .owner = true};
    if (call.op == NULL) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %d spatial dims", dims);
    }
    CKPT_TRY(onnx_weight_input(m, 1, x.shape.rank, &weight));
    CKPT_TRY(read_window(m, dims, weight->shape.dim + 2, &w));
    CKPT_TRY(onnx_attr_int(m, "group", 1, &group));
    CKPT_TRY(read_list(m, "output_padding", dims, 0, more));
    if (onnx_attr(m, "output_shape") != NULL) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"output_shape\" is not supported, wanted pads");
    }
    CKPT_TRY(onnx_has_input(m, 2) ? onnx_weight_input(m, 2, 1, &bias) : CKPT_OK);
    CKPT_TRY(turn(m, &x, false, &call.in[0]));
    if (!is_even(&w)) {
        if (transposed) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"pads\" are not the same at both ends");
        }
        CKPT_TRY(pad_apart(m, &w, 0, &call.in[0]));
    }
    if (group < 1 || weight->shape.dim[1] > INT32_MAX / group) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"group\" is %lld", (long long)group);
    }
    onnx_call_int(&call, "out_channels", transposed ? weight->shape.dim[1] * group : weight->shape.dim[0]);
    CKPT_TRY(put_window(m, &call, &w, true));
    onnx_call_int(&call, "groups", group);
    onnx_call_flag(&call, "bias", bias != NULL);
    if (transposed) {
        CKPT_TRY(onnx_call_ints(m, &call, "output_padding", more, dims));
    }
    CKPT_TRY(onnx_add(m, &call, &y));
    CKPT_TRY(onnx_bind(m, &y, "weight", weight));
    CKPT_TRY(bias != NULL ? onnx_bind(m, &y, "bias", bias) : CKPT_OK);
    CKPT_TRY(turn(m, &y, true, &y));
    return onnx_name(m, 0, &y);
}

/* Sizes that can be calculated with, and pads below the kernel. */
static ckpt_code check_pool(onnx_importer *m, const window *w)
{
    for (int d = 0; d < w->dims; d++) {
        if (w->kernel[d] < 1 || w->kernel[d] > INT32_MAX || w->stride[d] < 1 || w->stride[d] > INT32_MAX ||
            w->before[d] < 0 || w->before[d] >= w->kernel[d] || w->after[d] < 0 || w->after[d] >= w->kernel[d] ||
            w->dilation[d] != 1) {
            return CKPT_FAIL(
                m->err, CKPT_BAD_INPUT,
                "kernel %lld, stride %lld, pads %lld and %lld, dilation %lld, wanted pads below the kernel "
                "and dilation 1",
                (long long)w->kernel[d], (long long)w->stride[d], (long long)w->before[d], (long long)w->after[d],
                (long long)w->dilation[d]);
        }
    }
    return CKPT_OK;
}

/* ceil_mode as more padding behind, which no average counts; gives how much. A window that would start behind the image
 * is left out. */
static int64_t round_up(window *w, const int64_t *size)
{
    int64_t more = 0;
    for (int d = 0; d < w->dims; d++) {
        const int64_t room = size[d] + w->before[d] + w->after[d] - w->kernel[d], s = w->stride[d];
        int64_t last = room < 0 ? 0 : (room + s - 1) / s * s;
        last -= last >= size[d] + w->before[d] ? s : 0;
        more += last > room ? last - room : 0;
        w->after[d] += last > room ? last - room : 0;
    }
    return more;
}

/* Of sequences as of images of height 1. */
static ckpt_code lower_pool(onnx_importer *m)
{
    const bool average = m->node->op_type[0] == 'A';
    onnx_call call = {.op = average ? "avgpool2d" : "maxpool2d", .in_count = 1};
    onnx_value x, y;
    window w = {.dims = 0};
    int64_t ceiling = 0, counted = 0, wider = 0;
    CKPT_TRY(onnx_operand(m, 0, &x));
    const ckpt_shape *const shape = &x.shape;
    const int dims = shape->rank - 2;
    if (dims != 1 && dims != 2) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %d spatial dims, wanted 1 or 2", dims);
    }
    CKPT_TRY(read_window(m, dims, NULL, &w));
    CKPT_TRY(check_pool(m, &w));
    CKPT_TRY(onnx_attr_int(m, "ceil_mode", 0, &ceiling));
    CKPT_TRY(onnx_attr_int(m, "count_include_pad", 0, &counted));
    if (ceiling != 0) {
        wider = round_up(&w, shape->dim + 2);
    }
    bool padded = wider > 0;
    for (int d = 0; d < dims; d++) {
        padded = padded || w.before[d] != 0 || w.after[d] != 0;
    }
    if ((average && padded && (counted == 0 || wider > 0 || !is_even(&w))) || m->node->n_output > 1) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "has %zu outputs, or pads that do not count, wanted one and none",
                         m->node->n_output);
    }
    const ckpt_shape image = {4, {shape->dim[0], shape->dim[1], 1, shape->dim[2]}};
    call.in[0] = x;
    if (dims == 1) {
        const window flat = w;
        CKPT_TRY(onnx_reshape(m, &x, &image, &call.in[0]));
        w = (window){.dims = 2,
                     .kernel = {1, flat.kernel[0]},
                     .stride = {1, flat.stride[0]},
                     .before = {0, flat.before[0]},
                     .after = {0, flat.after[0]}};
    }
    CKPT_TRY(is_even(&w) ? CKPT_OK : pad_apart(m, &w, -3e38, &call.in[0]));
    CKPT_TRY(put_window(m, &call, &w, false));
    CKPT_TRY(onnx_add(m, &call, &y));
    if (dims == 1) {
        const ckpt_shape sequence = {3, {y.shape.dim[0], y.shape.dim[1], y.shape.dim[3]}};
        CKPT_TRY(onnx_reshape(m, &y, &sequence, &y));
    }
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_global_pool(onnx_importer *m)
{
    const bool average = strcmp(m->node->op_type, "GlobalAveragePool") == 0;
    onnx_call call = {.op = average ? "mean" : "max", .in_count = 1};
    onnx_value y;
    static const int64_t axes[] = {2, 3, 4, 5};
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    const int rank = call.in[0].shape.rank;
    if (rank < 3) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %d dims", rank);
    }
    if (average && rank == 4) {
        CKPT_TRY(onnx_plain(m, "global_avgpool", &call.in[0], &y));
        return onnx_name(m, 0, &y);
    }
    CKPT_TRY(onnx_call_ints(m, &call, "axis", axes, rank - 2));
    onnx_call_flag(&call, "keepdim", true);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

/* ---- norms ---- */

/* Adds it, with weight and bias from inputs 1 and 2. */
static ckpt_code add_norm(onnx_importer *m, onnx_call *call, onnx_value *y)
{
    onnx_value *weight = NULL, *bias = NULL;
    CKPT_TRY(onnx_weight_input(m, 1, 1, &weight));
    CKPT_TRY(onnx_weight_input(m, 2, 1, &bias));
    call->owner = true;
    CKPT_TRY(onnx_add(m, call, y));
    CKPT_TRY(onnx_bind(m, y, "weight", weight));
    return onnx_bind(m, y, "bias", bias);
}

static ckpt_code lower_batchnorm(onnx_importer *m)
{
    onnx_call call = {.op = "batchnorm", .in_count = 1};
    onnx_value x, y, *mean = NULL, *variance = NULL;
    int64_t training = 0;
    CKPT_TRY(onnx_attr_int(m, "training_mode", 0, &training));
    CKPT_TRY(onnx_weight_input(m, 3, 1, &mean));
    CKPT_TRY(onnx_weight_input(m, 4, 1, &variance));
    CKPT_TRY(onnx_operand(m, 0, &x));
    ckpt_shape flat = x.shape;
    CKPT_TRY(turn(m, &x, false, &call.in[0]));
    if (x.shape.rank == 3 || x.shape.rank == 5) { /* rows of channels */
        flat = (ckpt_shape){2, {onnx_count(&x) / x.shape.dim[1], x.shape.dim[1]}};
    }
    const ckpt_shape turned = call.in[0].shape;
    CKPT_TRY(onnx_reshape(m, &call.in[0], &flat, &call.in[0]));
    onnx_call_real(&call, "eps", onnx_attr_real(m, "epsilon", 1e-5));
    onnx_call_real(&call, "momentum", 1 - onnx_attr_real(m, "momentum", 0.9));
    onnx_call_flag(&call, "frozen", training == 0);
    CKPT_TRY(add_norm(m, &call, &y));
    CKPT_TRY(onnx_bind(m, &y, "running_mean", mean));
    CKPT_TRY(onnx_bind(m, &y, "running_var", variance));
    CKPT_TRY(onnx_reshape(m, &y, &turned, &y));
    CKPT_TRY(turn(m, &y, true, &y));
    return onnx_name(m, 0, &y);
}

/* x of rank 4 as [N, H * W, C] of what it is as written: [..., C]. */
static ckpt_code as_rows(onnx_importer *m, const onnx_value *x, onnx_value *y)
{
    const ckpt_shape *const s = &x->shape;
    const ckpt_shape rows = {3, {s->dim[0], s->dim[1] * s->dim[2], s->dim[3]}};
    *y = *x;
    return s->rank == 4 ? onnx_reshape(m, x, &rows, y) : CKPT_OK;
}

static ckpt_code lower_layernorm(onnx_importer *m)
{
    onnx_call call = {.op = "layernorm", .in_count = 1};
    onnx_value x, y;
    int64_t axis = -1;
    int dim = 0;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_attr_int(m, "axis", -1, &axis));
    CKPT_TRY(onnx_axis(m, axis, x.shape.rank, &dim));
    if (dim != x.shape.rank - 1) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "from dim %d of %d on, wanted the last", dim, x.shape.rank);
    }
    CKPT_TRY(as_rows(m, &x, &call.in[0]));
    onnx_call_real(&call, "eps", onnx_attr_real(m, "epsilon", 1e-5));
    CKPT_TRY(add_norm(m, &call, &y));
    CKPT_TRY(onnx_reshape(m, &y, &x.shape, &y));
    return onnx_name(m, 0, &y);
}

/* The node of that op with two inputs and one output that alone reads `name`; *at its number. NULL: there is none. */
static const Onnx__NodeProto *next_node(const onnx_importer *m, const Onnx__NodeProto *from, const char *op, int *at)
{
    const Onnx__NodeProto *const node = from != NULL ? onnx_only_reader(m, from->output[0], at) : NULL;
    const size_t inputs = strcmp(op, "Sqrt") == 0 ? 1 : 2;
    const bool fits = node != NULL && strcmp(node->op_type, op) == 0 && node->n_output == 1 &&
                      (node->n_input == inputs || strcmp(op, "ReduceMean") == 0);
    return fits ? node : NULL;
}

/* The other input of a node with two; NULL: nothing that is known. */
static onnx_value *other_input(const onnx_importer *m, const Onnx__NodeProto *node, const Onnx__NodeProto *from)
{
    return onnx_find(m, node->input[strcmp(node->input[0], from->output[0]) == 0 ? 1 : 0]);
}

/* The node reduces over the last dim, and keeps it. */
static ckpt_code is_last_mean(onnx_importer *m, const Onnx__NodeProto *node, int rank, bool *last)
{
    const Onnx__NodeProto *const before = m->node;
    int64_t axis[CKPT_RANK_MAX], keep = 0;
    int count = 0;
    m->node = node;
    ckpt_code code = onnx_ints(m, "axes", 1, axis, CKPT_RANK_MAX, &count);
    code = code == CKPT_OK ? onnx_attr_int(m, "keepdims", 1, &keep) : code;
    m->node = before;
    *last = code == CKPT_OK && count == 1 && keep == 1 && (axis[0] == -1 || axis[0] == rank - 1);
    return code;
}

/* The two nodes that read x - mean: a square, and a quotient by the square root of its mean and a little. */
static const Onnx__NodeProto *find_square(const onnx_importer *m, const Onnx__NodeProto *centred, int at[2])
{
    const char *const op[] = {"Pow", "Div"};
    int readers = 0, found = 0;
    for (size_t n = 0; n < m->graph->n_node; n++) {
        const Onnx__NodeProto *const node = m->graph->node[n];
        for (size_t k = 0; k < node->n_input; k++) {
            readers += strcmp(node->input[k], centred->output[0]) == 0;
        }
        for (int i = 0; i < 2; i++) {
            if (strcmp(node->op_type, op[i]) == 0 && node->n_input == 2 && node->n_output == 1 &&
                strcmp(node->input[0], centred->output[0]) == 0) {
                at[i] = (int)n;
                found |= 1 << i;
            }
        }
    }
    return readers == 2 && found == 3 ? m->graph->node[at[0]] : NULL;
}

enum { MEAN, CENTRED, SQUARE, VARIANCE, PLUS, ROOT, QUOTIENT, TIMES, RESULT, PARTS };

/* The numbers of the nodes from this ReduceMean on; false: they are no layer norm. */
static ckpt_code find_parts(onnx_importer *m, int rank, int at[PARTS], bool *found)
{
    int pair[2] = {0, 0};
    bool last = false;
    const Onnx__NodeProto *const *const node = (const Onnx__NodeProto *const *)m->graph->node;
    *found = false;
    at[MEAN] = m->node_index;
    CKPT_TRY(is_last_mean(m, m->node, rank, &last));
    const Onnx__NodeProto *const centred = last ? next_node(m, m->node, "Sub", &at[CENTRED]) : NULL;
    const Onnx__NodeProto *const square = centred != NULL ? find_square(m, centred, pair) : NULL;
    const Onnx__NodeProto *const variance = next_node(m, square, "ReduceMean", &at[VARIANCE]);
    if (variance == NULL || strcmp(centred->input[0], m->node->input[0]) != 0) {
        return CKPT_OK;
    }
    CKPT_TRY(is_last_mean(m, variance, rank, &last));
    const Onnx__NodeProto *const plus = last ? next_node(m, variance, "Add", &at[PLUS]) : NULL;
    const Onnx__NodeProto *const root = next_node(m, plus, "Sqrt", &at[ROOT]);
    const Onnx__NodeProto *const quotient = next_node(m, root, "Div", &at[QUOTIENT]);
    const Onnx__NodeProto *const times = next_node(m, quotient, "Mul", &at[TIMES]);
    at[SQUARE] = pair[0];
    *found = times != NULL && next_node(m, times, "Add", &at[RESULT]) != NULL && at[QUOTIENT] == pair[1] &&
             strcmp(node[at[QUOTIENT]]->input[1], root->output[0]) == 0;
    return CKPT_OK;
}

ckpt_code onnx_whole_layernorm(onnx_importer *m, bool *done)
{
    onnx_call call = {.op = "layernorm", .in_count = 1, .owner = true};
    onnx_value x, y, *in = NULL;
    int at[PARTS];
    double two = 0, eps = 0;
    CKPT_TRY(onnx_input(m, 0, &in));
    *done = false;
    if (!in->made || in->shape.rank < 1) {
        return CKPT_OK;
    }
    CKPT_TRY(find_parts(m, in->shape.rank, at, done));
    if (!*done) {
        return CKPT_OK;
    }
    Onnx__NodeProto *const *const node = m->graph->node;
    onnx_value *const power = onnx_find(m, node[at[SQUARE]]->input[1]);
    onnx_value *const little = other_input(m, node[at[PLUS]], node[at[VARIANCE]]);
    onnx_value *const weight = other_input(m, node[at[TIMES]], node[at[QUOTIENT]]);
    onnx_value *const bias = other_input(m, node[at[RESULT]], node[at[TIMES]]);
    *done = power != NULL && onnx_scalar(m, power, &two) && two == 2 && little != NULL &&
            onnx_scalar(m, little, &eps) && eps > 0 && eps < 0.1 && weight != NULL && weight->learned &&
            weight->shape.rank == 1 && bias != NULL && bias->learned && bias->shape.rank == 1 &&
            onnx_count(weight) == in->shape.dim[in->shape.rank - 1] && onnx_count(bias) == onnx_count(weight);
    if (!*done) {
        return CKPT_OK;
    }
    CKPT_TRY(onnx_as_layer(m, in, &x));
    CKPT_TRY(as_rows(m, &x, &call.in[0]));
    onnx_call_real(&call, "eps", eps);
    CKPT_TRY(onnx_add(m, &call, &y));
    CKPT_TRY(onnx_bind(m, &y, "weight", weight));
    CKPT_TRY(onnx_bind(m, &y, "bias", bias));
    CKPT_TRY(onnx_reshape(m, &y, &x.shape, &y));
    for (int i = CENTRED; i < PARTS; i++) {
        m->skipped[at[i]] = true;
    }
    const Onnx__NodeProto *const before = m->node;
    m->node = node[at[RESULT]];
    const ckpt_code code = onnx_name(m, 0, &y);
    m->node = before;
    return code;
}

/* GroupNorm as PyTorch's exporter writes it has constants here, and its own factors behind. */
static ckpt_code are_all(onnx_importer *m, int k, double wanted, bool *all)
{
    onnx_value *value = NULL;
    CKPT_TRY(onnx_input(m, k, &value));
    *all = *all && value->constant && (!value->learned || strncmp(value->name, "onnx::", 6) == 0);
    if (*all) {
        CKPT_TRY(onnx_numbers(m, value));
        for (int64_t i = 0; i < onnx_count(value); i++) {
            *all = *all && value->number[i] == wanted;
        }
    }
    return CKPT_OK;
}

static ckpt_code lower_instancenorm(onnx_importer *m)
{
    onnx_call call = {.op = "instancenorm", .in_count = 1};
    onnx_value x, y;
    bool plain = true;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(turn(m, &x, false, &call.in[0]));
    CKPT_TRY(are_all(m, 1, 1, &plain));
    CKPT_TRY(are_all(m, 2, 0, &plain));
    onnx_call_real(&call, "eps", onnx_attr_real(m, "epsilon", 1e-5));
    onnx_call_flag(&call, "affine", !plain);
    CKPT_TRY(plain ? onnx_add(m, &call, &y) : add_norm(m, &call, &y));
    CKPT_TRY(turn(m, &y, true, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_groupnorm(onnx_importer *m)
{
    onnx_call call = {.op = "groupnorm", .in_count = 1};
    onnx_value x, y;
    int64_t groups = 0;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_attr_int(m, "num_groups", 0, &groups));
    CKPT_TRY(turn(m, &x, false, &call.in[0]));
    onnx_call_int(&call, "groups", groups);
    onnx_call_real(&call, "eps", onnx_attr_real(m, "epsilon", 1e-5));
    CKPT_TRY(add_norm(m, &call, &y));
    CKPT_TRY(turn(m, &y, true, &y));
    return onnx_name(m, 0, &y);
}

/* ---- products ---- */

/* x [..., K] times a constant [K, N], or with `turned` [N, K], plus a bias; NULL: none. */
static ckpt_code add_linear(onnx_importer *m, const onnx_value *x, onnx_value *weight, bool turned, onnx_value *bias,
                            onnx_value *y)
{
    onnx_call call = {.op = "linear", .in_count = 1, .owner = true};
    onnx_value *const seen = CKPT_NEW(m->out, onnx_value, 1);
    if (seen == NULL) {
        return onnx_no_memory(m);
    }
    *seen = *weight;
    if (!turned) {
        seen->turned = !weight->turned;
        seen->number = NULL;
        seen->shape = (ckpt_shape){2, {weight->shape.dim[1], weight->shape.dim[0]}};
    }
    if (seen->tensor == NULL || x->shape.rank < 1 || x->shape.dim[x->shape.rank - 1] != seen->shape.dim[1]) {
        char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "multiplies %s by \"%.80s\" %s", ckpt_shape_show(&x->shape, a),
                         weight->name, ckpt_shape_show(&weight->shape, b));
    }
    CKPT_TRY(as_rows(m, x, &call.in[0]));
    onnx_call_int(&call, "features", seen->shape.dim[0]);
    onnx_call_flag(&call, "bias", bias != NULL);
    CKPT_TRY(onnx_add(m, &call, y));
    CKPT_TRY(onnx_bind(m, y, "weight", seen));
    CKPT_TRY(bias != NULL ? onnx_bind(m, y, "bias", bias) : CKPT_OK);
    ckpt_shape shape = x->shape;
    shape.dim[shape.rank - 1] = seen->shape.dim[0];
    return onnx_reshape(m, y, &shape, y);
}

static ckpt_code lower_gemm(onnx_importer *m)
{
    onnx_value x, y, *weight = NULL, *bias = NULL;
    int64_t turn_x = 0, turned = 0;
    static const int perm[] = {1, 0};
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_attr_int(m, "transA", 0, &turn_x));
    CKPT_TRY(onnx_attr_int(m, "transB", 0, &turned));
    CKPT_TRY(onnx_weight_input(m, 1, 2, &weight));
    CKPT_TRY(onnx_has_input(m, 2) ? onnx_weight_input(m, 2, 1, &bias) : CKPT_OK);
    if (onnx_attr_real(m, "alpha", 1) != 1 || onnx_attr_real(m, "beta", 1) != 1 || x.shape.rank != 2) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %d dims, or alpha or beta is not 1", x.shape.rank);
    }
    CKPT_TRY(turn_x != 0 ? onnx_transpose(m, &x, perm, &x) : CKPT_OK);
    CKPT_TRY(add_linear(m, &x, weight, turned != 0, bias, &y));
    return onnx_name(m, 0, &y);
}

/* The vector of `features` floats that an Add behind the product adds to it and nobody else reads the product; NULL. */
static onnx_value *find_bias(onnx_importer *m, int64_t features, int *reader)
{
    const Onnx__NodeProto *const add = onnx_only_reader(m, m->node->output[0], reader);
    if (add == NULL || strcmp(add->op_type, "Add") != 0 || add->n_input != 2 || add->n_output != 1) {
        return NULL;
    }
    const int k = strcmp(add->input[0], m->node->output[0]) == 0 ? 1 : 0;
    onnx_value *const bias = onnx_find(m, add->input[k]);
    return bias != NULL && bias->learned && bias->shape.rank == 1 && bias->shape.dim[0] == features ? bias : NULL;
}

/* x with its last two dims and `batch` matrices of them, stretched where they are fewer. */
static ckpt_code as_batch(onnx_importer *m, const onnx_value *x, const ckpt_shape *leading, onnx_value *y)
{
    const int rank = leading->rank, own = x->shape.rank;
    int64_t times[CKPT_RANK_MAX], batch = 1;
    ckpt_shape wide = {.rank = rank + 2};
    bool same = true;
    for (int d = 0; d < rank + 2; d++) {
        const int at = d - (rank + 2 - own);
        wide.dim[d] = at < 0 ? 1 : x->shape.dim[at];
        times[d] = d < rank && wide.dim[d] == 1 ? leading->dim[d] : 1;
        same = same && times[d] == 1;
        batch *= d < rank ? leading->dim[d] : 1;
    }
    *y = *x;
    if (!same) {
        onnx_call call = {.op = "tile", .in_count = 1};
        CKPT_TRY(onnx_reshape(m, x, &wide, &call.in[0]));
        CKPT_TRY(onnx_call_ints(m, &call, "repeats", times, rank + 2));
        CKPT_TRY(onnx_add(m, &call, y));
    }
    const ckpt_shape flat = {3, {batch, wide.dim[rank], wide.dim[rank + 1]}};
    const ckpt_shape matrix = {2, {flat.dim[1], flat.dim[2]}};
    return onnx_reshape(m, y, rank == 0 ? &matrix : &flat, y);
}

static ckpt_code multiply(onnx_importer *m, const onnx_value *a, const onnx_value *b, onnx_value *y)
{
    onnx_call call = {.op = "matmul", .in_count = 2};
    const int p = a->shape.rank - 2, q = b->shape.rank - 2;
    ckpt_shape leading = {.rank = p > q ? p : q};
    if (p < 0 || q < 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of a vector");
    }
    for (int d = 1; d <= leading.rank; d++) {
        const int64_t i = d <= p ? a->shape.dim[p - d] : 1, k = d <= q ? b->shape.dim[q - d] : 1;
        if (i != k && i != 1 && k != 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %lld and %lld matrices", (long long)i, (long long)k);
        }
        leading.dim[leading.rank - d] = i == 1 ? k : i;
    }
    ckpt_shape shape = leading;
    shape.dim[shape.rank++] = a->shape.dim[p];
    shape.dim[shape.rank++] = b->shape.dim[q + 1];
    CKPT_TRY(as_batch(m, a, &leading, &call.in[0]));
    CKPT_TRY(as_batch(m, b, &leading, &call.in[1]));
    CKPT_TRY(onnx_add(m, &call, y));
    return onnx_reshape(m, y, &shape, y);
}

static ckpt_code lower_matmul(onnx_importer *m)
{
    onnx_value *weight = NULL, x, w, y;
    int reader = 0;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_input(m, 1, &weight));
    if (!weight->learned || weight->shape.rank != 2) {
        CKPT_TRY(onnx_operand(m, 1, &w));
        CKPT_TRY(multiply(m, &x, &w, &y));
        return onnx_name(m, 0, &y);
    }
    onnx_value *const bias = find_bias(m, weight->shape.dim[1], &reader);
    CKPT_TRY(add_linear(m, &x, weight, false, bias, &y));
    if (bias == NULL) {
        return onnx_name(m, 0, &y);
    }
    m->skipped[reader] = true;
    const Onnx__NodeProto *const node = m->node;
    m->node = m->graph->node[reader];
    const ckpt_code code = onnx_name(m, 0, &y);
    m->node = node;
    return code;
}

/* ---- recurrent ---- */

static ckpt_code check_recurrent(onnx_importer *m, bool lstm)
{
    int64_t layout = 0, before = 0, coupled = 0;
    CKPT_TRY(onnx_attr_words(m, "direction", "forward"));
    CKPT_TRY(onnx_attr_int(m, "input_forget", 0, &coupled));
    CKPT_TRY(onnx_attr_int(m, "layout", 0, &layout));
    CKPT_TRY(onnx_attr_int(m, "linear_before_reset", 0, &before));
    const char *const unknown = onnx_attr(m, "activations") != NULL ? "activations"
                                : onnx_attr(m, "clip") != NULL      ? "clip"
                                : layout != 0                       ? "layout 1"
                                : coupled != 0                      ? "input_forget"
                                : !lstm && before == 0              ? "linear_before_reset 0"
                                : onnx_has_input(m, 7)              ? "peepholes"
                                                                    : NULL;
    return unknown == NULL ? CKPT_OK : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%s is not supported", unknown);
}

/* A state before the first step is left out where it is zeros. */
static ckpt_code check_state(onnx_importer *m, int k)
{
    bool zeros = true;
    if (onnx_has_input(m, k)) {
        CKPT_TRY(are_all(m, k, 0, &zeros));
    }
    return zeros ? CKPT_OK : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d, a first state, is not zeros", k);
}

/* ONNX has gates i, o, f, c and z, r, h where PyTorch has i, f, g, o and r, z, n; and [T, B, C]. */
static ckpt_code lower_recurrent(onnx_importer *m)
{
    static const int orders[2][4] = {{1, 0, 2}, {0, 2, 3, 1}}, swap[] = {1, 0, 2};
    const bool lstm = m->node->op_type[0] == 'L';
    const int *const order = orders[lstm ? 1 : 0];
    onnx_call call = {.op = lstm ? "lstm" : "gru", .in_count = 1, .owner = true};
    onnx_value x, y, *w = NULL, *r = NULL, *bias = NULL;
    CKPT_TRY(check_recurrent(m, lstm));
    CKPT_TRY(onnx_weight_input(m, 1, 3, &w));
    CKPT_TRY(onnx_weight_input(m, 2, 3, &r));
    CKPT_TRY(onnx_has_input(m, 3) ? onnx_weight_input(m, 3, 2, &bias) : CKPT_OK);
    CKPT_TRY(check_state(m, 5));
    CKPT_TRY(check_state(m, 6));
    CKPT_TRY(onnx_operand(m, 0, &x));
    const int64_t H = r->shape.dim[2], gates = lstm ? 4 : 3, C = w->shape.dim[2];
    if (x.shape.rank != 3 || onnx_has_input(m, 4) || w->shape.dim[0] != 1 || r->shape.dim[0] != 1 ||
        r->shape.dim[1] != gates * H || w->shape.dim[1] != gates * H || C != x.shape.dim[2] ||
        (bias != NULL && onnx_count(bias) != 2 * gates * H)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "of %d dims, with lengths of sequences, or weights of other sizes",
                         x.shape.rank);
    }
    CKPT_TRY(onnx_transpose(m, &x, swap, &call.in[0]));
    onnx_call_int(&call, "hidden", H);
    onnx_call_flag(&call, "bias", bias != NULL);
    CKPT_TRY(onnx_add(m, &call, &y));
    CKPT_TRY(onnx_bind_blocks(m, &y, "weight_ih", w, order, H * C, 0));
    CKPT_TRY(onnx_bind_blocks(m, &y, "weight_hh", r, order, H * H, 0));
    if (bias != NULL) {
        CKPT_TRY(onnx_bind_blocks(m, &y, "bias_ih", bias, order, H, 0));
        CKPT_TRY(onnx_bind_blocks(m, &y, "bias_hh", bias, order, H, gates * H));
    }
    const int64_t T = x.shape.dim[0], B = x.shape.dim[1];
    const ckpt_shape all = {4, {T, 1, B, H}}, last = {3, {1, B, H}};
    const onnx_value made = y;
    CKPT_TRY(onnx_transpose(m, &y, swap, &y));
    CKPT_TRY(onnx_reshape(m, &y, &all, &y));
    CKPT_TRY(onnx_name(m, 0, &y));
    for (int k = 1; k < (lstm ? 3 : 2); k++) {
        const onnx_value state = onnx_output_of(m, &made, k);
        CKPT_TRY(onnx_reshape(m, &state, &last, &y));
        CKPT_TRY(onnx_name(m, k, &y));
    }
    return CKPT_OK;
}

const onnx_rule onnx_layer_rules[] = {
    {"Conv", lower_conv},
    {"ConvTranspose", lower_conv},
    {"MaxPool", lower_pool},
    {"AveragePool", lower_pool},
    {"GlobalAveragePool", lower_global_pool},
    {"GlobalMaxPool", lower_global_pool},
    {"BatchNormalization", lower_batchnorm},
    {"LayerNormalization", lower_layernorm},
    {"InstanceNormalization", lower_instancenorm},
    {"GroupNormalization", lower_groupnorm},
    {"Gemm", lower_gemm},
    {"MatMul", lower_matmul},
    {"LSTM", lower_recurrent},
    {"GRU", lower_recurrent},
    {0},
};
