/* Reference: ops that move elements along dims as written. */
#include "tests/support/support_reference.h"

/* The index of element number i of the written order. */
static void index_of(const ckpt_shape *shape, int64_t i, int64_t *at)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        at[d] = i % shape->dim[d];
        i /= shape->dim[d];
    }
}

static int64_t number_of(const ckpt_shape *shape, const int64_t *at)
{
    int64_t number = 0;
    for (int d = 0; d < shape->rank; d++) {
        number = number * shape->dim[d] + at[d];
    }
    return number;
}

static int axis_of(const ckpt_shape *x, int64_t given)
{
    return (int)(given < 0 ? given + x->rank : given);
}

void ckpt_reference_slice(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const int axis = axis_of(x, ckpt_node_int(r->node, "axis"));
    const int64_t start = ckpt_node_int(r->node, "start");
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        int64_t at[CKPT_RANK_MAX];
        index_of(y, i, at);
        at[axis] = at[axis] * ckpt_node_int(r->node, "step") + start + (start < 0 ? x->dim[axis] : 0);
        r->out[0][i] = r->in[0][number_of(x, at)];
    }
}

void ckpt_reference_pad(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        r->out[0][i] = ckpt_node_float(r->node, "value");
    }
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        int64_t at[CKPT_RANK_MAX];
        index_of(x, i, at);
        for (int d = 0; d < x->rank; d++) {
            at[d] += ckpt_node_int_at(r->node, "before", d);
        }
        r->out[0][number_of(y, at)] = r->in[0][i];
    }
}

void ckpt_reference_roll(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        int64_t at[CKPT_RANK_MAX];
        index_of(x, i, at);
        for (int k = 0; k < ckpt_node_attr(r->node, "axes")->int_count; k++) {
            const int axis = axis_of(x, ckpt_node_int_at(r->node, "axes", k));
            const int64_t n = x->dim[axis], moved = (at[axis] + ckpt_node_int_at(r->node, "shifts", k)) % n;
            at[axis] = moved < 0 ? moved + n : moved;
        }
        r->out[0][number_of(x, at)] = r->in[0][i];
    }
}
