/* Constants that are computed from constants: what exporters write around shapes. Whole numbers are exact below 2^53. */
#include <math.h>
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"

/* A new constant with room for its elements. */
static ckpt_code start(onnx_importer *m, const ckpt_shape *shape, ckpt_dtype dtype, double **number)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] < 0 || shape->dim[d] > ONNX_FOLD_MAX || (count *= shape->dim[d]) > ONNX_FOLD_MAX) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "computes a constant of more than %d elements", ONNX_FOLD_MAX);
        }
    }
    *number = CKPT_NEW(m->out, double, count);
    if (*number == NULL) {
        return onnx_no_memory(m);
    }
    const onnx_value made = {.name = "", .shape = *shape, .dtype = dtype, .constant = true, .number = *number};
    return onnx_name(m, 0, &made);
}

static int64_t whole(double number)
{
    return number >= 9e15 ? (int64_t)9e15 : number > -9e15 ? (int64_t)number : (int64_t)-9e15;
}

/* The element of x that place `i` of a tensor of `shape` reads, stretched as numpy does. */
static int64_t stretched(const onnx_value *x, const ckpt_shape *shape, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = 1; d <= x->shape.rank; d++) {
        const int64_t n = x->shape.dim[x->shape.rank - d], all = shape->dim[shape->rank - d];
        at += n == 1 ? 0 : i % all * step;
        i /= all;
        step *= n;
    }
    return at;
}

/* The shape that a and b are stretched to. */
static ckpt_code stretch(onnx_importer *m, const ckpt_shape *a, const ckpt_shape *b, ckpt_shape *y)
{
    const ckpt_shape x = *a;
    y->rank = x.rank > b->rank ? x.rank : b->rank;
    for (int d = 1; d <= y->rank; d++) {
        const int64_t p = d <= x.rank ? x.dim[x.rank - d] : 1, q = d <= b->rank ? b->dim[b->rank - d] : 1;
        if (p != q && p != 1 && q != 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "constants of different shapes");
        }
        y->dim[y->rank - d] = p == 1 ? q : p;
    }
    return CKPT_OK;
}

/* ---- element by element ---- */

static const struct {
    const char *op;
    int inputs;
} computed[] = {
    {"Add", 2},  {"Sub", 2},     {"Mul", 2},  {"Div", 2},   {"Pow", 2}, {"Mod", 2},  {"Equal", 2},
    {"Less", 2}, {"Greater", 2}, {"And", 2},  {"Neg", 1},   {"Abs", 1}, {"Sqrt", 1}, {"Floor", 1},
    {"Ceil", 1}, {"Not", 1},     {"Cast", 1}, {"Where", 3}, {"Min", 2}, {"Max", 2},
};

/* How many inputs the operator has; -1: it is not computed. */
static int inputs_of(const char *op)
{
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++) {
        if (strcmp(computed[i].op, op) == 0) {
            return computed[i].inputs;
        }
    }
    return -1;
}

/* `signed_rest`: Mod has the sign of a, not of b. */
static double compute(const char *op, bool whole_numbers, bool signed_rest, double a, double b, double c)
{
    if (strcmp(op, "Add") == 0) {
        return a + b;
    }
    if (strcmp(op, "Sub") == 0) {
        return a - b;
    }
    if (strcmp(op, "Mul") == 0) {
        return a * b;
    }
    if (strcmp(op, "Div") == 0) {
        return whole_numbers ? (b == 0 ? 0 : trunc(a / b)) : a / b;
    }
    if (strcmp(op, "Pow") == 0) {
        return pow(a, b);
    }
    if (strcmp(op, "Mod") == 0) {
        return b == 0 ? 0 : signed_rest ? fmod(a, b) : a - b * floor(a / b);
    }
    if (strcmp(op, "Equal") == 0) {
        return a == b;
    }
    if (strcmp(op, "Less") == 0) {
        return a < b;
    }
    if (strcmp(op, "Greater") == 0) {
        return a > b;
    }
    if (strcmp(op, "And") == 0) {
        return a != 0 && b != 0;
    }
    if (strcmp(op, "Min") == 0) {
        return b < a ? b : a;
    }
    if (strcmp(op, "Max") == 0) {
        return b > a ? b : a;
    }
    if (strcmp(op, "Where") == 0) {
        return a != 0 ? b : c;
    }
    return strcmp(op, "Neg") == 0     ? -a
           : strcmp(op, "Abs") == 0   ? fabs(a)
           : strcmp(op, "Sqrt") == 0  ? sqrt(a)
           : strcmp(op, "Floor") == 0 ? floor(a)
           : strcmp(op, "Ceil") == 0  ? ceil(a)
           : strcmp(op, "Not") == 0   ? a == 0
           : whole_numbers            ? trunc(a)
                                      : a; /* Cast */
}

static bool is_float_type(int64_t type)
{
    return type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE ||
           type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
}

static ckpt_code fold_elements(onnx_importer *m, const char *op)
{
    onnx_value *in[3];
    ckpt_shape shape = {.rank = 0};
    int64_t type = 0, rest = 0;
    double *number = NULL;
    const int count = inputs_of(op);
    if (m->node->n_input != (size_t)count) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%zu constants as inputs, wanted %d", m->node->n_input, count);
    }
    for (int k = 0; k < count; k++) {
        CKPT_TRY(onnx_input(m, k, &in[k]));
        CKPT_TRY(onnx_numbers(m, in[k]));
        CKPT_TRY(stretch(m, &shape, &in[k]->shape, &shape));
    }
    CKPT_TRY(onnx_attr_int(m, "to", 0, &type));
    CKPT_TRY(onnx_attr_int(m, "fmod", 0, &rest));
    const ckpt_dtype operand = in[strcmp(op, "Where") == 0 ? 1 : 0]->dtype;
    const bool cast = strcmp(op, "Cast") == 0, truth = cast && type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    const ckpt_dtype dtype = cast ? (is_float_type(type) ? CKPT_FLOAT32 : CKPT_INT32) : operand;
    CKPT_TRY(start(m, &shape, dtype, &number));
    for (int64_t i = 0, all = ckpt_shape_count(&shape); i < all; i++) {
        double x[3] = {0, 0, 0};
        for (int k = 0; k < count; k++) {
            x[k] = in[k]->number[stretched(in[k], &shape, i)];
        }
        number[i] = truth ? x[0] != 0 : compute(op, dtype == CKPT_INT32, rest != 0, x[0], x[1], x[2]);
    }
    return CKPT_OK;
}

/* ---- the others ---- */

static ckpt_code fold_shape(onnx_importer *m)
{
    onnx_value *x = NULL;
    int64_t first = 0, end = 0;
    double *number = NULL;
    CKPT_TRY(onnx_input(m, 0, &x));
    const int rank = x->shape.rank;
    CKPT_TRY(onnx_attr_int(m, "start", 0, &first));
    CKPT_TRY(onnx_attr_int(m, "end", rank, &end));
    first = first < 0 ? first + rank : first;
    end = end < 0 ? end + rank : end > rank ? rank : end;
    const ckpt_shape shape = {.rank = 1, .dim = {first >= 0 && end > first ? end - first : 0}};
    CKPT_TRY(start(m, &shape, CKPT_INT32, &number));
    for (int64_t i = 0; i < shape.dim[0]; i++) {
        number[i] = (double)x->shape.dim[first + i];
    }
    return CKPT_OK;
}

static ckpt_code fold_constant_of_shape(onnx_importer *m)
{
    ckpt_shape shape = {.rank = 0};
    const Onnx__AttributeProto *const attr = onnx_attr(m, "value");
    double *number = NULL, fill = 0;
    onnx_value value = {.dtype = CKPT_FLOAT32};
    CKPT_TRY(onnx_ints(m, NULL, 0, shape.dim, CKPT_RANK_MAX, &shape.rank));
    if (shape.rank < 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "no shape");
    }
    if (attr != NULL && attr->t != NULL) {
        CKPT_TRY(onnx_tensor(m, "value", attr->t, false, &value));
        CKPT_TRY(onnx_numbers(m, &value));
        if (onnx_count(&value) != 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"value\" has %lld numbers, wanted one",
                             (long long)onnx_count(&value));
        }
        fill = value.number[0];
    }
    CKPT_TRY(start(m, &shape, value.dtype, &number));
    for (int64_t i = 0, all = ckpt_shape_count(&shape); i < all; i++) {
        number[i] = fill;
    }
    return CKPT_OK;
}

static ckpt_code fold_range(onnx_importer *m)
{
    double bound[3], *number = NULL;
    onnx_value *in[3];
    for (int k = 0; k < 3; k++) {
        CKPT_TRY(onnx_input(m, k, &in[k]));
        CKPT_TRY(onnx_numbers(m, in[k]));
        if (onnx_count(in[k]) != 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d is not one number", k);
        }
        bound[k] = in[k]->number[0];
    }
    const double length = bound[2] == 0 ? -1 : ceil((bound[1] - bound[0]) / bound[2]);
    const ckpt_shape shape = {.rank = 1, .dim = {!(length > 0) ? 0 : whole(length)}};
    CKPT_TRY(start(m, &shape, in[0]->dtype, &number));
    for (int64_t i = 0; i < shape.dim[0]; i++) {
        number[i] = bound[0] + (double)i * bound[2];
    }
    return CKPT_OK;
}

/* Vectors, one behind the other; scalars are refused. */
static ckpt_code fold_concat(onnx_importer *m)
{
    ckpt_shape shape = {.rank = 1};
    double *number = NULL;
    onnx_value *x = NULL;
    for (size_t k = 0; k < m->node->n_input; k++) {
        CKPT_TRY(onnx_input(m, (int)k, &x));
        CKPT_TRY(onnx_numbers(m, x));
        if (x->shape.rank != 1 || shape.dim[0] > ONNX_FOLD_MAX) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "constants that are no vectors");
        }
        shape.dim[0] += x->shape.dim[0];
    }
    CKPT_TRY(start(m, &shape, x != NULL ? x->dtype : CKPT_INT32, &number));
    for (size_t k = 0; k < m->node->n_input; k++) {
        CKPT_TRY(onnx_input(m, (int)k, &x));
        memcpy(number, x->number, (size_t)x->shape.dim[0] * sizeof *number);
        number += x->shape.dim[0];
    }
    return CKPT_OK;
}

/* The place in x of each place of the result: x[..., ids, ...] along `axis`. */
static ckpt_code take(onnx_importer *m, const onnx_value *x, int axis, const int64_t *ids, const ckpt_shape *of_ids)
{
    ckpt_shape shape = {.rank = x->shape.rank - 1 + of_ids->rank};
    int64_t count = 1, inner = 1, outer = 1;
    double *number = NULL;
    if (shape.rank > CKPT_RANK_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "a constant of more than %d dims", CKPT_RANK_MAX);
    }
    for (int d = 0; d < x->shape.rank; d++) {
        if (d < axis) {
            shape.dim[d] = x->shape.dim[d];
            outer *= x->shape.dim[d];
        } else if (d > axis) {
            shape.dim[d - 1 + of_ids->rank] = x->shape.dim[d];
            inner *= x->shape.dim[d];
        }
    }
    for (int d = 0; d < of_ids->rank; d++) {
        shape.dim[axis + d] = of_ids->dim[d];
        count *= of_ids->dim[d];
    }
    CKPT_TRY(start(m, &shape, x->dtype, &number));
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t k = 0; k < count; k++) {
            const int64_t n = x->shape.dim[axis], id = ids[k] < 0 ? ids[k] + n : ids[k];
            if (id < 0 || id >= n) {
                return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "takes element %lld of %lld", (long long)ids[k], (long long)n);
            }
            memcpy(number + (o * count + k) * inner, x->number + (o * n + id) * inner, (size_t)inner * sizeof *number);
        }
    }
    return CKPT_OK;
}

static ckpt_code fold_gather(onnx_importer *m)
{
    onnx_value *x = NULL, *ids = NULL;
    int64_t axis = 0;
    int dim = 0;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_input(m, 1, &ids));
    CKPT_TRY(onnx_numbers(m, x));
    CKPT_TRY(onnx_numbers(m, ids));
    CKPT_TRY(onnx_attr_int(m, "axis", 0, &axis));
    CKPT_TRY(onnx_axis(m, axis, x->shape.rank, &dim));
    const int64_t count = onnx_count(ids);
    int64_t *const list = CKPT_NEW(m->out, int64_t, count);
    if (list == NULL) {
        return onnx_no_memory(m);
    }
    for (int64_t i = 0; i < count; i++) {
        list[i] = whole(ids->number[i]);
    }
    return take(m, x, dim, list, &ids->shape);
}

/* Along one dim, in either direction. */
static ckpt_code fold_slice(onnx_importer *m)
{
    onnx_value *x = NULL;
    int64_t bound[4] = {0, 0, 0, 1}; /* start, end, axis, step */
    int count[4], dim = 0;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_numbers(m, x));
    for (int k = 0; k < 4; k++) {
        CKPT_TRY(onnx_ints(m, NULL, k + 1, &bound[k], 1, &count[k]));
    }
    if (count[0] != 1 || count[1] != 1 || count[2] == 0 || count[3] == 0 || bound[3] == 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "cuts a constant along more dims than one, or by step 0");
    }
    CKPT_TRY(onnx_axis(m, bound[2], x->shape.rank, &dim));
    const int64_t n = x->shape.dim[dim], step = bound[3], low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    int64_t from = bound[0] + (bound[0] < 0 ? n : 0), end = bound[1] + (bound[1] < 0 && bound[1] >= -n ? n : 0);
    from = from < low ? low : from > high ? high : from;
    end = end < low ? low : end > high ? high : end;
    const int64_t far = step > 0 ? end - from : from - end, stride = step > 0            ? step
                                                                     : step == INT64_MIN ? INT64_MAX
                                                                                         : -step;
    const ckpt_shape length = {.rank = 1, .dim = {far <= 0 ? 0 : (far - 1) / stride + 1}};
    int64_t *const ids = CKPT_NEW(m->out, int64_t, length.dim[0]);
    if (ids == NULL) {
        return onnx_no_memory(m);
    }
    for (int64_t i = 0; i < length.dim[0]; i++) {
        ids[i] = from + i * step;
    }
    return take(m, x, dim, ids, &length);
}

static ckpt_code fold_expand(onnx_importer *m)
{
    onnx_value *x = NULL;
    ckpt_shape shape = {.rank = 0};
    double *number = NULL;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_numbers(m, x));
    CKPT_TRY(onnx_ints(m, NULL, 1, shape.dim, CKPT_RANK_MAX, &shape.rank));
    CKPT_TRY(stretch(m, &shape, &x->shape, &shape));
    CKPT_TRY(start(m, &shape, x->dtype, &number));
    for (int64_t i = 0, all = ckpt_shape_count(&shape); i < all; i++) {
        number[i] = x->number[stretched(x, &shape, i)];
    }
    return CKPT_OK;
}

/* Of a matrix. One that learns stays what it is, seen the other way. */
static ckpt_code fold_transpose(onnx_importer *m, bool *done)
{
    onnx_value *x = NULL;
    int64_t perm[CKPT_RANK_MAX];
    int count = 0;
    double *number = NULL;
    CKPT_TRY(onnx_input(m, 0, &x));
    CKPT_TRY(onnx_ints(m, "perm", -1, perm, CKPT_RANK_MAX, &count));
    *done = x->shape.rank == 2 && (count < 0 || (count == 2 && perm[0] == 1 && perm[1] == 0));
    if (!*done) {
        return CKPT_OK;
    }
    onnx_value turned = *x;
    turned.shape = (ckpt_shape){.rank = 2, .dim = {x->shape.dim[1], x->shape.dim[0]}};
    if (x->learned) {
        turned.turned = !x->turned;
        turned.number = NULL;
        turned.made = false;
        return onnx_name(m, 0, &turned);
    }
    CKPT_TRY(onnx_numbers(m, x));
    CKPT_TRY(start(m, &turned.shape, x->dtype, &number));
    const int64_t rows = x->shape.dim[0], columns = x->shape.dim[1];
    for (int64_t i = 0; i < rows * columns; i++) {
        number[i % columns * rows + i / columns] = x->number[i];
    }
    return CKPT_OK;
}

/* All inputs are constants; none is an initializer that learns, unless `learned`. */
static ckpt_code is_constant(onnx_importer *m, bool learned, bool *constant)
{
    *constant = m->node->n_input > 0;
    for (size_t k = 0; k < m->node->n_input && *constant; k++) {
        onnx_value *value = NULL;
        if (onnx_has_input(m, (int)k)) {
            CKPT_TRY(onnx_input(m, (int)k, &value));
            *constant = value->constant && (learned || !value->learned || value->shape.rank == 0);
        }
    }
    return CKPT_OK;
}

ckpt_code onnx_fold(onnx_importer *m, bool *done)
{
    static const struct {
        const char *op;
        ckpt_code (*fold)(onnx_importer *m);
    } folds[] = {
        {"ConstantOfShape", fold_constant_of_shape},
        {"Range", fold_range},
        {"Concat", fold_concat},
        {"Gather", fold_gather},
        {"Slice", fold_slice},
        {"Expand", fold_expand},
    };
    const char *const op = m->node->op_type;
    *done = strcmp(op, "Shape") == 0;
    if (*done) {
        return fold_shape(m);
    }
    if (strcmp(op, "Transpose") == 0) {
        CKPT_TRY(is_constant(m, true, done));
        return *done ? fold_transpose(m, done) : CKPT_OK;
    }
    CKPT_TRY(is_constant(m, false, done));
    if (!*done) {
        return CKPT_OK;
    }
    for (size_t i = 0; i < sizeof folds / sizeof folds[0]; i++) {
        if (strcmp(folds[i].op, op) == 0) {
            return folds[i].fold(m);
        }
    }
    *done = inputs_of(op) >= 0;
    return *done ? fold_elements(m, op) : CKPT_OK;
}
