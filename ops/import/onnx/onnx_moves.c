/* Elements at other places. Shapes and positions must be constants. */
#include <math.h>
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"

/* Names x, or the constant x, as output 0 under another shape. */
static ckpt_code name_shaped(onnx_importer *m, const onnx_value *x, const ckpt_shape *shape)
{
    onnx_value y = *x;
    if (x->constant) {
        const int64_t count = onnx_count(x);
        y.shape = *shape;
        if (x->turned || onnx_count(&y) != count) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "a constant of %lld elements%s gets a shape of %lld",
                             (long long)count, x->turned ? ", which was transposed," : "", (long long)onnx_count(&y));
        }
        y.made = false;
    } else {
        CKPT_TRY(onnx_reshape(m, x, shape, &y));
    }
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_identity(onnx_importer *m)
{
    onnx_value *x = NULL;
    CKPT_TRY(onnx_input(m, 0, &x));
    return onnx_name(m, 0, x);
}

static ckpt_code lower_cast(onnx_importer *m)
{
    onnx_value *x = NULL;
    int64_t to = 0;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_attr_int(m, "to", 0, &to));
    const bool whole = to == ONNX__TENSOR_PROTO__DATA_TYPE__INT32 || to == ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    if (x->dtype == CKPT_INT32 ? !whole : to != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "casts %s to type %lld, wanted float to float, or whole to whole numbers",
                         x->dtype == CKPT_INT32 ? "whole numbers" : "float", (long long)to);
    }
    return onnx_name(m, 0, x);
}

static ckpt_code lower_dropout(onnx_importer *m)
{
    onnx_value *x = NULL, *setting = NULL, y;
    double ratio = 0.5, training = 0;
    CKPT_TRY(onnx_input(m, 0, &x));
    for (int k = 1; k < 3; k++) {
        if (onnx_has_input(m, k)) {
            CKPT_TRY(onnx_input(m, k, &setting));
            if (!onnx_scalar(m, setting, k == 1 ? &ratio : &training)) {
                return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d is no constant", k);
            }
        }
    }
    if (training == 0 || ratio == 0) {
        return onnx_name(m, 0, x);
    }
    CKPT_TRY(onnx_as_layer(m, x, &y));
    CKPT_TRY(onnx_real(m, "dropout", "p", ratio, &y, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_reshape(onnx_importer *m)
{
    onnx_value *x = NULL;
    ckpt_shape shape = {.rank = 0};
    int64_t known = 1, zeros = 0;
    int free_dim = -1;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_ints(m, NULL, 1, shape.dim, CKPT_RANK_MAX, &shape.rank));
    CKPT_TRY(onnx_attr_int(m, "allowzero", 0, &zeros));
    shape.rank = shape.rank < 0 ? 0 : shape.rank;
    for (int d = 0; d < shape.rank; d++) {
        if (shape.dim[d] == 0 && zeros == 0 && d < x->shape.rank) {
            shape.dim[d] = x->shape.dim[d];
        }
        if (shape.dim[d] == -1 && free_dim < 0) {
            free_dim = d;
        } else if (shape.dim[d] < 1 || shape.dim[d] > ((int64_t)1 << 61) / known) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "dim %d of the new shape is %lld", d, (long long)shape.dim[d]);
        } else {
            known *= shape.dim[d];
        }
    }
    if (free_dim >= 0) {
        shape.dim[free_dim] = onnx_count(x) / known;
        known *= shape.dim[free_dim];
    }
    if (known != onnx_count(x)) {
        char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%s does not fit the new shape %s", ckpt_shape_show(&x->shape, a),
                         ckpt_shape_show(&shape, b));
    }
    return name_shaped(m, x, &shape);
}

static ckpt_code lower_flatten(onnx_importer *m)
{
    onnx_value *x = NULL;
    int64_t axis = 1;
    ckpt_shape shape = {.rank = 2, .dim = {1, 1}};
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_attr_int(m, "axis", 1, &axis));
    axis += axis < 0 ? x->shape.rank : 0;
    if (axis < 0 || axis > x->shape.rank) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "axis %lld of %d dims", (long long)axis, x->shape.rank);
    }
    for (int d = 0; d < x->shape.rank; d++) {
        shape.dim[d < axis ? 0 : 1] *= x->shape.dim[d];
    }
    return name_shaped(m, x, &shape);
}

/* The dims that a list of axes names, as bits. */
static ckpt_code read_axes(onnx_importer *m, int rank, unsigned *bits, int *count)
{
    int64_t axes[CKPT_RANK_MAX];
    int dim = 0;
    *bits = 0;
    CKPT_TRY(onnx_ints(m, "axes", 1, axes, CKPT_RANK_MAX, count));
    for (int i = 0; i < *count; i++) {
        CKPT_TRY(onnx_axis(m, axes[i], rank, &dim));
        *bits |= 1U << dim;
    }
    return CKPT_OK;
}

static ckpt_code lower_squeeze(onnx_importer *m)
{
    onnx_value *x = NULL;
    unsigned bits = 0;
    int count = 0;
    ckpt_shape shape = {.rank = 0};
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(read_axes(m, x->shape.rank, &bits, &count));
    for (int d = 0; d < x->shape.rank; d++) {
        const bool named = count < 0 ? x->shape.dim[d] == 1 : (bits >> d & 1) != 0;
        if (named && x->shape.dim[d] != 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "dim %d is %lld, wanted 1", d, (long long)x->shape.dim[d]);
        }
        if (!named) {
            shape.dim[shape.rank++] = x->shape.dim[d];
        }
    }
    return name_shaped(m, x, &shape);
}

static ckpt_code lower_unsqueeze(onnx_importer *m)
{
    onnx_value *x = NULL;
    int64_t axes[CKPT_RANK_MAX];
    unsigned bits = 0;
    int count = 0;
    ckpt_shape shape = {.rank = 0};
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_ints(m, "axes", 1, axes, CKPT_RANK_MAX, &count));
    if (count < 0 || x->shape.rank + count > CKPT_RANK_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%d axes more than %d, wanted at most %d", count, x->shape.rank,
                         CKPT_RANK_MAX);
    }
    CKPT_TRY(read_axes(m, x->shape.rank + count, &bits, &count));
    for (int d = 0, from = 0; d < x->shape.rank + count; d++) {
        shape.dim[shape.rank++] = (bits >> d & 1) != 0 || from == x->shape.rank ? 1 : x->shape.dim[from++];
    }
    return name_shaped(m, x, &shape);
}

static ckpt_code lower_transpose(onnx_importer *m)
{
    onnx_value x, y;
    int64_t list[CKPT_RANK_MAX];
    int perm[CKPT_RANK_MAX], count = 0;
    unsigned seen = 0;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_ints(m, "perm", -1, list, CKPT_RANK_MAX, &count));
    for (int d = 0; d < x.shape.rank; d++) {
        perm[d] = x.shape.rank - 1 - d;
        if (count >= 0 && (count != x.shape.rank || list[d] < 0 || list[d] >= count || (seen >> list[d] & 1) != 0)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"perm\" is no order of %d dims", x.shape.rank);
        }
        if (count >= 0) {
            perm[d] = (int)list[d];
            seen |= 1U << list[d];
        }
    }
    CKPT_TRY(onnx_transpose(m, &x, perm, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_concat(onnx_importer *m)
{
    onnx_call call = {.op = "concat", .in_count = (int)m->node->n_input};
    onnx_value y;
    int64_t axis = 0;
    if (m->node->n_input < 1 || m->node->n_input > ONNX_IN_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%zu inputs, wanted 1 to %d", m->node->n_input, ONNX_IN_MAX);
    }
    CKPT_TRY(onnx_attr_int(m, "axis", 0, &axis));
    for (int k = 0; k < call.in_count; k++) {
        CKPT_TRY(onnx_operand(m, k, &call.in[k]));
    }
    onnx_call_int(&call, "axis", axis);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_split(onnx_importer *m)
{
    onnx_call call = {.op = "split", .in_count = 1};
    onnx_value y;
    int64_t axis = 0, sizes[CKPT_OUT_MAX];
    int count = 0;
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_attr_int(m, "axis", 0, &axis));
    CKPT_TRY(onnx_ints(m, "split", 1, sizes, CKPT_OUT_MAX, &count));
    onnx_call_int(&call, "axis", axis);
    if (count > 0) {
        CKPT_TRY(onnx_call_ints(m, &call, "sizes", sizes, count));
    } else {
        onnx_call_int(&call, "parts", (int64_t)m->node->n_output);
    }
    if (m->node->n_output == 1) {
        return onnx_name(m, 0, &call.in[0]);
    }
    CKPT_TRY(onnx_add(m, &call, &y));
    for (int k = 0; k < m->layer[y.ref.layer].out_count; k++) {
        const onnx_value part = onnx_output_of(m, &y, k);
        CKPT_TRY(onnx_name(m, k, &part));
    }
    return CKPT_OK;
}

static ckpt_code cut(onnx_importer *m, const onnx_value *x, int64_t axis, int64_t start, int64_t end, int64_t step,
                     onnx_value *y)
{
    onnx_call call = {.op = "slice", .in = {*x}, .in_count = 1};
    onnx_call_int(&call, "axis", axis);
    onnx_call_int(&call, "start", start);
    onnx_call_int(&call, "end", end);
    onnx_call_int(&call, "step", step);
    return onnx_add(m, &call, y);
}

static ckpt_code lower_slice(onnx_importer *m)
{
    int64_t list[4][CKPT_RANK_MAX]; /* start, end, axis, step */
    int count[4];
    onnx_value y;
    CKPT_TRY(onnx_operand(m, 0, &y));
    for (int k = 0; k < 4; k++) {
        CKPT_TRY(onnx_ints(m, NULL, k + 1, list[k], CKPT_RANK_MAX, &count[k]));
        if (count[0] < 0 || (count[k] != count[0] && (k < 2 || count[k] >= 0))) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%d starts, %d of input %d", count[0], count[k], k + 1);
        }
    }
    for (int i = 0; i < count[0]; i++) {
        int dim = 0;
        CKPT_TRY(onnx_axis(m, count[2] < 0 ? i : list[2][i], y.shape.rank, &dim));
        const int64_t n = y.shape.dim[dim], step = count[3] < 0 ? 1 : list[3][i];
        int64_t start = list[0][i], end = list[1][i];
        start = start < -n ? 0 : start < 0 ? start + n : start > n ? n : start;
        end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
        if (step < 1 || start >= end) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "cuts %lld to %lld by %lld from dim %d of %lld", (long long)start,
                             (long long)end, (long long)step, dim, (long long)n);
        }
        if (start > 0 || end < n || step > 1) {
            CKPT_TRY(cut(m, &y, dim, start, end, step, &y));
        }
    }
    return onnx_name(m, 0, &y);
}

/* Ids that are constants must follow one another: a slice, whose dim goes where there is one id without dims. */
static ckpt_code gather_constant(onnx_importer *m, const onnx_value *x, const onnx_value *ids, int dim)
{
    const int64_t count = onnx_count(ids), n = x->shape.dim[dim];
    const double first = count > 0 ? ids->number[0] : 0;
    bool fine = ids->shape.rank <= 1 && count > 0 && fabs(first) < 1e15;
    const int64_t start = !fine ? 0 : first < 0 ? (int64_t)first + n : (int64_t)first;
    onnx_value y = *x;
    for (int64_t i = 1; fine && i < count; i++) {
        fine = ids->number[i] == first + (double)i;
    }
    if (!fine || start < 0 || start + count > n) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "takes constant places, wanted one or neighbours of dim %d of %lld",
                         dim, (long long)n);
    }
    if (count < n) {
        CKPT_TRY(cut(m, x, dim, start, start + count, 1, &y));
    }
    if (ids->shape.rank == 0) {
        ckpt_shape shape = y.shape;
        shape.rank--;
        for (int d = dim; d < shape.rank; d++) {
            shape.dim[d] = shape.dim[d + 1];
        }
        CKPT_TRY(onnx_reshape(m, &y, &shape, &y));
    }
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_gather(onnx_importer *m)
{
    onnx_value *table = NULL, *ids = NULL, x, y;
    int64_t axis = 0;
    int dim = 0;
    CKPT_TRY(onnx_input(m, 0, &table));
    CKPT_TRY(onnx_input(m, 1, &ids));
    CKPT_TRY(onnx_attr_int(m, "axis", 0, &axis));
    CKPT_TRY(onnx_axis(m, axis, table->shape.rank, &dim));
    if (ids->constant) {
        CKPT_TRY(onnx_numbers(m, ids));
        CKPT_TRY(onnx_as_layer(m, table, &x));
        return gather_constant(m, &x, ids, dim);
    }
    if (table->learned && dim == 0 && table->shape.rank == 2) {
        onnx_call call = {.op = "embedding", .in = {*ids}, .in_count = 1, .owner = true};
        onnx_call_int(&call, "rows", table->shape.dim[0]);
        onnx_call_int(&call, "features", table->shape.dim[1]);
        CKPT_TRY(onnx_add(m, &call, &y));
        CKPT_TRY(onnx_bind(m, &y, "weight", table));
        return onnx_name(m, 0, &y);
    }
    CKPT_TRY(onnx_as_layer(m, table, &x));
    onnx_call call = {.op = "gather", .in = {x, *ids}, .in_count = 2};
    onnx_call_int(&call, "axis", dim);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_pad(onnx_importer *m)
{
    onnx_call call = {.op = "pad", .in_count = 1};
    onnx_value y, *value = NULL;
    int64_t pads[2 * CKPT_RANK_MAX];
    int count = 0;
    double fill = 0;
    CKPT_TRY(onnx_attr_words(m, "mode", "constant"));
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_ints(m, "pads", 1, pads, 2 * CKPT_RANK_MAX, &count));
    if (count != 2 * call.in[0].shape.rank || onnx_has_input(m, 3)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%d pads and %s axes, wanted two for each of %d dims", count,
                         onnx_has_input(m, 3) ? "some" : "no", call.in[0].shape.rank);
    }
    if (onnx_has_input(m, 2)) {
        CKPT_TRY(onnx_input(m, 2, &value));
        if (!onnx_scalar(m, value, &fill)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "the value is no constant number");
        }
    }
    CKPT_TRY(onnx_call_ints(m, &call, "before", pads, count / 2));
    CKPT_TRY(onnx_call_ints(m, &call, "after", pads + count / 2, count / 2));
    onnx_call_real(&call, "value", fill);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

/* x as a tensor of `rank` dims, those in front of its own 1, repeated to the shape. */
static ckpt_code expand_to(onnx_importer *m, const onnx_value *x, const ckpt_shape *shape, onnx_value *y)
{
    ckpt_shape wide = {.rank = shape->rank};
    int64_t times[CKPT_RANK_MAX];
    bool same = true;
    for (int d = 0; d < shape->rank; d++) {
        const int own = d - (shape->rank - x->shape.rank);
        wide.dim[d] = own < 0 ? 1 : x->shape.dim[own];
        times[d] = wide.dim[d] == shape->dim[d] || shape->dim[d] == 1 ? 1 : shape->dim[d];
        if (times[d] != 1 && (wide.dim[d] != 1 || times[d] < 1)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "dim %d is %lld and cannot become %lld", d, (long long)wide.dim[d],
                             (long long)shape->dim[d]);
        }
        same = same && times[d] == 1;
    }
    CKPT_TRY(onnx_reshape(m, x, &wide, y));
    if (same) {
        return CKPT_OK;
    }
    onnx_call call = {.op = "tile", .in = {*y}, .in_count = 1};
    CKPT_TRY(onnx_call_ints(m, &call, "repeats", times, shape->rank));
    return onnx_add(m, &call, y);
}

static ckpt_code lower_expand(onnx_importer *m)
{
    onnx_value x, y;
    ckpt_shape shape = {.rank = 0};
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_ints(m, NULL, 1, shape.dim, CKPT_RANK_MAX, &shape.rank));
    if (shape.rank < x.shape.rank) { /* ONNX stretches both */
        const ckpt_shape given = shape;
        shape = x.shape;
        for (int d = 0; d < given.rank; d++) {
            shape.dim[x.shape.rank - given.rank + d] = given.dim[d];
        }
    }
    CKPT_TRY(expand_to(m, &x, &shape, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_tile(onnx_importer *m)
{
    onnx_call call = {.op = "tile", .in_count = 1};
    onnx_value y;
    int64_t times[CKPT_RANK_MAX];
    int count = 0;
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_ints(m, NULL, 1, times, CKPT_RANK_MAX, &count));
    CKPT_TRY(onnx_call_ints(m, &call, "repeats", times, count < 0 ? 0 : count));
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_resize(onnx_importer *m)
{
    onnx_call call = {.op = "upsample", .in_count = 1};
    onnx_value y, *scales = NULL;
    int64_t sizes[CKPT_RANK_MAX];
    int count = 0;
    double times[2] = {0, 0};
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_attr_words(m, "mode", "nearest|linear"));
    const bool linear = onnx_attr_is(m, "mode", "linear");
    CKPT_TRY(onnx_attr_words(m, "coordinate_transformation_mode",
                             linear ? "half_pixel|pytorch_half_pixel" : "asymmetric|half_pixel"));
    CKPT_TRY(onnx_attr_words(m, "nearest_mode", "floor|round_prefer_floor"));
    const bool asymmetric = onnx_attr_is(m, "coordinate_transformation_mode", "asymmetric");
    const ckpt_shape *const x = &call.in[0].shape;
    if (!linear && asymmetric != onnx_attr_is(m, "nearest_mode", "floor")) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "nearest is asymmetric with floor, or half_pixel with round_prefer_floor");
    }
    if (onnx_has_input(m, 2)) {
        CKPT_TRY(onnx_input(m, 2, &scales));
        CKPT_TRY(onnx_numbers(m, scales));
        count = (int)onnx_count(scales);
    }
    CKPT_TRY(count == 0 ? onnx_ints(m, NULL, 3, sizes, CKPT_RANK_MAX, &count) : CKPT_OK);
    for (int d = 0; d < 4 && x->rank == 4 && count == 4; d++) {
        const double one =
            scales != NULL && onnx_count(scales) == 4 ? scales->number[d] : (double)sizes[d] / (double)x->dim[d];
        times[d < 2 ? 0 : 1] = d < 2 && one != 1 ? -1 : d == 3 && one != times[1] ? -1 : one;
        count = times[d < 2 ? 0 : 1] < 0 ? 0 : count;
    }
    if (count != 4 || times[1] < 1 || times[1] > 1e6 || times[1] != (double)(int64_t)times[1]) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "wanted height and width of [N, C, H, W] times one whole number");
    }
    onnx_call_int(&call, "scale", (int64_t)times[1]);
    onnx_call_word(&call, "mode", linear ? "bilinear" : "nearest");
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

const onnx_rule onnx_move_rules[] = {
    {"Identity", lower_identity},
    {"Cast", lower_cast},
    {"Dropout", lower_dropout},
    {"Reshape", lower_reshape},
    {"Flatten", lower_flatten},
    {"Squeeze", lower_squeeze},
    {"Unsqueeze", lower_unsqueeze},
    {"Transpose", lower_transpose},
    {"Concat", lower_concat},
    {"Split", lower_split},
    {"Slice", lower_slice},
    {"Gather", lower_gather},
    {"Pad", lower_pad},
    {"Expand", lower_expand},
    {"Tile", lower_tile},
    {"Resize", lower_resize},
    {0},
};
