/* A node's attributes, and what infer functions are made of. They know no op by name. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "ops/ops_impl.h"

const ckpt_attr *ckpt_node_attr(const ckpt_node *node, const char *name)
{
    const ckpt_attr_spec *const specs = node->op->attrs;
    for (int i = 0; specs != NULL && specs[i].name != NULL; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return &node->attr[i];
        }
    }
    assert(!"the op does not know this attribute");
    return NULL;
}

void ckpt_node_open(ckpt_node *node, ckpt_node_room *room)
{
    node->out = room->out;
    node->saved = room->saved;
    node->param = room->param;
    node->stat = room->stat;
    node->way = room->way;
}

static void *copy(ckpt_arena *out, const void *list, int count, size_t size)
{
    void *const own = ckpt_arena_take(out, (size_t)count, size);
    return own != NULL && count > 0 ? memcpy(own, list, (size_t)count * size) : own;
}

ckpt_code ckpt_node_own(ckpt_node *node, ckpt_arena *out, ckpt_err *err)
{
    node->out = copy(out, node->out, node->out_count, sizeof *node->out);
    node->saved = copy(out, node->saved, node->saved_count, sizeof *node->saved);
    node->param = copy(out, node->param, node->param_count, sizeof *node->param);
    node->stat = copy(out, node->stat, node->stat_count, sizeof *node->stat);
    node->way = copy(out, node->way, node->way_count, sizeof *node->way);
    return node->out != NULL && node->saved != NULL && node->param != NULL && node->stat != NULL && node->way != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "tensors of layer %s", node->name);
}

int64_t ckpt_node_int(const ckpt_node *node, const char *name)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    assert(attr->kind == CKPT_INT);
    return attr->integer;
}

bool ckpt_node_bool(const ckpt_node *node, const char *name)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    assert(attr->kind == CKPT_BOOL);
    return attr->integer != 0;
}

double ckpt_node_float(const ckpt_node *node, const char *name)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    assert(attr->kind == CKPT_FLOAT);
    return attr->real;
}

const char *ckpt_node_string(const ckpt_node *node, const char *name)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    assert(attr->kind == CKPT_STRING);
    return attr->string;
}

int64_t ckpt_node_int_at(const ckpt_node *node, const char *name, int i)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    assert(attr->kind == CKPT_INTS);
    if (attr->int_count == 0) {
        return attr->integer;
    }
    assert(attr->int_count == 1 || i < attr->int_count);
    return attr->ints[attr->int_count == 1 ? 0 : i];
}

ckpt_code ckpt_node_add_output(ckpt_node *node, ckpt_dtype dtype, const ckpt_shape *shape, ckpt_err *err)
{
    if (node->out_count == CKPT_OUT_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "more than %d outputs", CKPT_OUT_MAX);
    }
    CKPT_TRY(ckpt_shape_check(shape, dtype, err));
    node->out[node->out_count] = (ckpt_tensor){.dtype = dtype, .shape = *shape};
    node->out_count++;
    return CKPT_OK;
}

ckpt_code ckpt_node_add_saved(ckpt_node *node, const char *name, ckpt_dtype dtype, const ckpt_shape *shape,
                              ckpt_err *err)
{
    assert(node->saved_count < CKPT_SAVED_MAX);
    CKPT_TRY(ckpt_shape_check(shape, dtype, err));
    node->saved[node->saved_count] = (ckpt_tensor){.name = name, .dtype = dtype, .shape = *shape};
    node->saved_count++;
    return CKPT_OK;
}

ckpt_code ckpt_node_add_way_saved(ckpt_node *node, const char *name, ckpt_dtype dtype, const ckpt_shape *shape,
                                  ckpt_err *err)
{
    CKPT_TRY(ckpt_node_add_saved(node, name, dtype, shape, err));
    node->way_saved |= UINT64_C(1) << (node->saved_count - 1);
    return CKPT_OK;
}

ckpt_way *ckpt_node_add_way(ckpt_node *node, const char *name, bool backward)
{
    assert(node->way_count < CKPT_WAY_MAX && ckpt_node_find_way(node, name, backward) == NULL);
    ckpt_way *const way = &node->way[node->way_count++];
    *way = (ckpt_way){.name = name, .backward = backward, .workspace_bytes = -1};
    way->saved = backward ? 0 : ckpt_node_saves(node, NULL);
    return way;
}

const ckpt_way *ckpt_node_find_way(const ckpt_node *node, const char *name, bool backward)
{
    for (int i = 0; i < node->way_count; i++) {
        if (node->way[i].backward == backward && strcmp(node->way[i].name, name) == 0) {
            return &node->way[i];
        }
    }
    return NULL;
}

uint64_t ckpt_node_saves(const ckpt_node *node, const ckpt_way *way)
{
    const uint64_t all = (UINT64_C(1) << node->saved_count) - 1;
    return way != NULL ? way->saved : all & ~node->way_saved;
}

ckpt_code ckpt_node_add_param(ckpt_node *node, const char *name, const ckpt_shape *shape, ckpt_init init, double scale,
                              bool decay, ckpt_err *err)
{
    assert(node->param_count < CKPT_PARAM_MAX);
    CKPT_TRY(ckpt_shape_check(shape, CKPT_FLOAT32, err));
    node->param[node->param_count] = (ckpt_param){.tensor = {.name = name, .dtype = CKPT_FLOAT32, .shape = *shape},
                                                  .init = init,
                                                  .scale = scale,
                                                  .decay = decay,
                                                  .tied = -1,
                                                  .copy_of = -1};
    node->param_count++;
    return CKPT_OK;
}

int64_t ckpt_gpu_pitch(int64_t row, ckpt_dtype dtype)
{
    const int64_t size = ckpt_dtype_bytes(dtype);
    return row < CKPT_PITCH_ROW_MIN || row * size % 16 == 0 ? row : ckpt_round_up(row * size, CKPT_PITCH_BYTES) / size;
}

int64_t ckpt_node_pitch(ckpt_node *node)
{
    ckpt_tensor *const y = &node->out[0];
    const int64_t row = y->shape.dim[y->shape.rank - 1], pitch = ckpt_gpu_pitch(row, y->dtype);
    y->pitch = node->pitchable && pitch > row ? pitch : 0;
    return y->pitch > 0 ? pitch : row;
}

ckpt_bytes ckpt_param_bytes(const ckpt_param *param)
{
    return ckpt_tensor_bytes(&param->tensor) + param->padding * ckpt_dtype_bytes(param->tensor.dtype);
}

ckpt_code ckpt_node_add_stat(ckpt_node *node, const char *name, const ckpt_shape *shape, double initial, ckpt_err *err)
{
    assert(node->stat_count < CKPT_STAT_MAX);
    CKPT_TRY(ckpt_shape_check(shape, CKPT_FLOAT32, err));
    node->stat[node->stat_count] =
        (ckpt_stat){.tensor = {.name = name, .dtype = CKPT_FLOAT32, .shape = *shape}, .initial = initial};
    node->stat_count++;
    return CKPT_OK;
}

int64_t ckpt_times(int64_t a, int64_t b)
{
    int64_t product = INT64_MAX;
    return ckpt_product(a, b, &product) ? product : INT64_MAX;
}

int64_t ckpt_plus(int64_t a, int64_t b)
{
    int64_t sum = INT64_MAX;
    return ckpt_sum(a, b, &sum) ? sum : INT64_MAX;
}

ckpt_bytes ckpt_aligned(ckpt_bytes bytes)
{
    return ckpt_plus(bytes, CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
}

int64_t ckpt_node_in_count(const ckpt_node *node, int k)
{
    return ckpt_shape_count(&node->in[k].shape);
}

int64_t ckpt_node_limit(const ckpt_node *node, int k)
{
    if (node->op->id_limit > 0) {
        return node->op->id_limit;
    }
    if (node->id_limit > 0) {
        return k > 0 ? node->id_limit : 0;
    }
    if (node->param_count > 0 && node->param[0].tensor.shape.rank == 2) {
        return node->param[0].tensor.shape.dim[0];
    }
    if (node->op->loss && k > 0) {
        const ckpt_shape *const logits = &node->in[0].shape;
        return logits->rank == 0 ? 0 : logits->dim[logits->rank == 4 ? 1 : logits->rank - 1];
    }
    return 0;
}

/* What reading a parameter moves: kernels of a bfloat16 network read the copy of that type. */
static ckpt_bytes param_read_bytes(const ckpt_node *node, int k)
{
    return ckpt_times(ckpt_shape_count(&node->param[k].tensor.shape), ckpt_dtype_bytes(node->dtype));
}

bool ckpt_node_inplace(const ckpt_node *node, int k)
{
    const ckpt_tensor *const x = &node->in[k], *const y = &node->out[0];
    return (node->op->inplace >> k & 1) != 0 && ckpt_tensor_bytes(x) == ckpt_tensor_bytes(y) &&
           (x->shape.rank == 4) == (y->shape.rank == 4);
}

bool ckpt_node_accumulates(const ckpt_node *node)
{
    return node->op->accumulates || (node->op->gpu_accumulates && node->threads == CKPT_ON_GPU);
}

/* Of the tensors whose bits are set. */
static ckpt_bytes tensors_bytes(const ckpt_tensor *tensor, int count, uint64_t mask)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < count; k++) {
        bytes = (mask >> k & 1) != 0 ? ckpt_plus(bytes, ckpt_tensor_bytes(&tensor[k])) : bytes;
    }
    return bytes;
}

ckpt_bytes ckpt_node_saved_bytes(const ckpt_node *node)
{
    return tensors_bytes(node->saved, node->saved_count, ckpt_node_saves(node, NULL));
}

/* Forward: everything it is given and gives, once. */
static ckpt_bytes forward_moved(const ckpt_node *node, uint64_t saved)
{
    ckpt_bytes bytes = tensors_bytes(node->in, node->in_count, UINT64_MAX);
    bytes = ckpt_plus(bytes, tensors_bytes(node->out, node->out_count, UINT64_MAX));
    bytes = ckpt_plus(bytes, tensors_bytes(node->saved, node->saved_count, saved));
    for (int k = 0; k < node->param_count; k++) {
        bytes = ckpt_plus(bytes, param_read_bytes(node, k));
    }
    return bytes;
}

ckpt_bytes ckpt_node_touched_bytes(const ckpt_node *node)
{
    return forward_moved(node, ckpt_node_saves(node, NULL));
}

/* Backward: what it declared to read, the gradients that come in and go out, weights read and their gradients
 * written. */
static ckpt_bytes backward_moved(const ckpt_node *node, uint64_t in, uint64_t out, uint64_t saved)
{
    ckpt_bytes bytes = tensors_bytes(node->in, node->in_count, in);
    bytes = ckpt_plus(bytes, tensors_bytes(node->in, node->in_count, node->grad_in));
    bytes = ckpt_plus(bytes, tensors_bytes(node->out, node->out_count, out));
    for (int k = 0; k < node->out_count; k++) {
        const bool has_gradient = ckpt_dtype_is_float(node->out[k].dtype);
        bytes = has_gradient ? ckpt_plus(bytes, ckpt_tensor_bytes(&node->out[k])) : bytes;
    }
    bytes = ckpt_plus(bytes, tensors_bytes(node->saved, node->saved_count, saved));
    for (int k = 0; k < node->param_count; k++) {
        const ckpt_bytes gradient = ckpt_tensor_bytes(&node->param[k].tensor);
        bytes = ckpt_plus(bytes, ckpt_plus(param_read_bytes(node, k), gradient));
    }
    return bytes;
}

static void fill_way(const ckpt_node *node, ckpt_way *way)
{
    if (way->flop == 0) {
        way->flop = way->backward ? node->backward_flop : node->forward_flop;
    }
    if (way->moved_bytes == 0) {
        way->moved_bytes =
            way->backward ? backward_moved(node, way->in, way->out, way->saved) : forward_moved(node, way->saved);
    }
}

void ckpt_node_fill_moved(ckpt_node *node)
{
    if (node->forward_moved_bytes == 0) {
        node->forward_moved_bytes = ckpt_node_touched_bytes(node);
    }
    if (node->backward_moved_bytes == 0) {
        node->backward_moved_bytes = backward_moved(node, node->backward_in, node->backward_out, node->backward_saved);
    }
    for (int i = 0; i < node->way_count; i++) {
        fill_way(node, &node->way[i]);
    }
}

ckpt_code ckpt_node_need(const ckpt_node *node, int k, ckpt_dtype dtype, ckpt_err *err)
{
    if (node->in[k].dtype != dtype) {
        char text[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %d is %s %s, wanted %s", k, ckpt_dtype_name(node->in[k].dtype),
                         ckpt_shape_show(&node->in[k].shape, text), ckpt_dtype_name(dtype));
    }
    return CKPT_OK;
}

ckpt_code ckpt_node_need_rank(const ckpt_node *node, int k, int rank, const char *shape_text, ckpt_err *err)
{
    if (node->in[k].shape.rank != rank) {
        char text[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %d has shape %s, wanted %s", k,
                         ckpt_shape_show(&node->in[k].shape, text), shape_text);
    }
    return CKPT_OK;
}

ckpt_code ckpt_node_elementwise(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &node->in[0].shape, err));
    node->forward_flop = ckpt_times(forward_flop, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(backward_flop, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

ckpt_code ckpt_check_smoothing(const ckpt_node *node, ckpt_err *err)
{
    const double smoothing = ckpt_node_float(node, "label_smoothing");
    return smoothing >= 0 && smoothing <= 1
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "\"label_smoothing\" is %g, wanted 0 to 1", smoothing);
}

ckpt_code ckpt_node_pair_loss(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, node->dtype, err));
    if (!ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape)) {
        char a[CKPT_SHAPE_TEXT];
        char b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s and the target %s, wanted equal shapes",
                         ckpt_shape_show(&node->in[0].shape, a), ckpt_shape_show(&node->in[1].shape, b));
    }
    const ckpt_shape scalar = {.rank = 0};
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    node->backward_in = 1u << 0 | 1u << 1;
    node->forward_flop = ckpt_times(forward_flop, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(backward_flop, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

ckpt_code ckpt_node_add_mask(ckpt_node *node, ckpt_err *err)
{
    const int64_t count = ckpt_node_in_count(node, 0);
    const ckpt_shape words = {1, {count / 32 + (count % 32 != 0)}};
    CKPT_TRY(ckpt_node_add_way_saved(node, "mask", CKPT_INT32, &words, err));
    const uint64_t mask = UINT64_C(1) << (node->saved_count - 1);
    ckpt_node_add_way(node, "mask", false)->saved |= mask;
    ckpt_node_add_way(node, "mask", true)->saved = mask;
    return CKPT_OK;
}

ckpt_way *ckpt_node_add_affine_way(ckpt_node *node, uint64_t saved)
{
    ckpt_way *const way = ckpt_node_add_way(node, "output", true);
    way->inexact = true;
    way->out = 1;
    way->saved = saved;
    node->backward_way = "input";
    return way;
}

ckpt_code ckpt_node_ints(const ckpt_node *node, const char *name, int count, int64_t min, int64_t *value, ckpt_err *err)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, name);
    if (attr->int_count > 1 && attr->int_count != count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" has %d elements, wanted one number%s", name, attr->int_count,
                         count == 3   ? " or three"
                         : count == 2 ? " or two"
                                      : "");
    }
    for (int i = 0; i < count; i++) {
        value[i] = ckpt_node_int_at(node, name, i);
        if (value[i] < min || value[i] > INT32_MAX) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %lld, wanted %lld to %d", name, (long long)value[i],
                             (long long)min, INT32_MAX);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_node_pair(const ckpt_node *node, const char *name, int64_t min, int64_t pair[2], ckpt_err *err)
{
    return ckpt_node_ints(node, name, 2, min, pair, err);
}

ckpt_code ckpt_node_axis(const ckpt_node *node, const char *name, int rank, int *axis, ckpt_err *err)
{
    const int64_t given = ckpt_node_int(node, name);
    if (rank == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is a scalar, wanted at least one dim");
    }
    if (given < -rank || given >= rank) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %lld, wanted %d to %d for %d dims", name, (long long)given,
                         -rank, rank - 1, rank);
    }
    *axis = (int)(given < 0 ? given + rank : given);
    return CKPT_OK;
}

ckpt_code ckpt_node_axes(const ckpt_node *node, const char *name, int rank, uint64_t *axes, ckpt_err *err)
{
    const int count = ckpt_node_attr(node, name)->int_count;
    uint64_t found = count > 0 ? 0 : (UINT64_C(1) << rank) - 1;
    for (int i = 0; i < count; i++) {
        const int64_t given = ckpt_node_int_at(node, name, i), axis = given < 0 ? given + rank : given;
        if (axis < 0 || axis >= rank || (found >> axis & 1) != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" has %lld, wanted each of %d dims at most once", name,
                             (long long)given, rank);
        }
        found |= UINT64_C(1) << axis;
    }
    *axes = found;
    return CKPT_OK;
}

ckpt_code ckpt_node_int_between(const ckpt_node *node, const char *name, int64_t min, int64_t max, int64_t *value,
                                ckpt_err *err)
{
    const int64_t given = ckpt_node_int(node, name);
    if (given < min || given > max) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %lld, wanted %lld to %lld", name, (long long)given,
                         (long long)min, (long long)max);
    }
    *value = given;
    return CKPT_OK;
}

ckpt_code ckpt_node_float_between(const ckpt_node *node, const char *name, double min, double end, double *value,
                                  ckpt_err *err)
{
    const double given = ckpt_node_float(node, name);
    if (!(given >= min && given < end)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %g, wanted at least %g and less than %g", name, given, min,
                         end);
    }
    *value = given;
    return CKPT_OK;
}
