/* Reference: ops that move elements along dims as written, and ops that reduce them. */
#include "tests/support/support_reference.h"

#include <math.h>

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

void ckpt_reference_tile(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        int64_t at[CKPT_RANK_MAX];
        index_of(y, i, at);
        for (int d = 0; d < x->rank; d++) {
            at[d] %= x->dim[d];
        }
        r->out[0][i] = r->in[0][number_of(x, at)];
    }
}

static bool is_reduced(const ckpt_node *node, int d)
{
    const int count = ckpt_node_attr(node, "axis")->int_count;
    bool is = count == 0;
    for (int k = 0; k < count; k++) {
        is = is || axis_of(&node->in[0].shape, ckpt_node_int_at(node, "axis", k)) == d;
    }
    return is;
}

/* The element of the output that element i of the input belongs to; its index. */
static int64_t output_of(const ckpt_node *node, int64_t i, int64_t *out_at)
{
    const ckpt_shape *const x = &node->in[0].shape;
    int64_t at[CKPT_RANK_MAX];
    int rank = 0;
    index_of(x, i, at);
    for (int d = 0; d < x->rank; d++) {
        if (!is_reduced(node, d)) {
            out_at[rank++] = at[d];
        } else if (ckpt_node_bool(node, "keepdim")) {
            out_at[rank++] = 0;
        }
    }
    return number_of(&node->out[0].shape, out_at);
}

void ckpt_reference_sum(const ckpt_reference *r)
{
    int64_t at[CKPT_RANK_MAX];
    for (int64_t o = 0; o < ckpt_shape_count(&r->node->out[0].shape); o++) {
        r->out[0][o] = 0;
    }
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->in[0].shape); i++) {
        r->out[0][output_of(r->node, i, at)] += r->in[0][i];
    }
}

void ckpt_reference_mean(const ckpt_reference *r)
{
    const int64_t outputs = ckpt_shape_count(&r->node->out[0].shape);
    ckpt_reference_sum(r);
    for (int64_t o = 0; o < outputs; o++) {
        r->out[0][o] /= (double)(ckpt_shape_count(&r->node->in[0].shape) / outputs);
    }
}

/* Saved: which of an output's elements, in the order of memory, was the maximum; the outputs in theirs. */
void ckpt_reference_max(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    int64_t stride[CKPT_RANK_MAX], y_stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, stride);
    ckpt_shape_strides(y, y_stride);
    for (int64_t o = 0; o < ckpt_shape_count(y); o++) {
        r->out[0][o] = -INFINITY;
    }
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        int64_t at[CKPT_RANK_MAX], out_at[CKPT_RANK_MAX], place = 0, term = 0;
        const int64_t o = output_of(r->node, i, out_at);
        if (r->in[0][i] <= r->out[0][o]) {
            continue;
        }
        r->out[0][o] = r->in[0][i];
        for (int d = 0; d < y->rank; d++) {
            place += out_at[d] * y_stride[d];
        }
        index_of(x, i, at);
        for (int d = 0; d < x->rank; d++) { /* at[d] steps over all reduced indices that are faster in memory */
            int64_t faster = 1;
            for (int e = 0; e < x->rank; e++) {
                faster *= is_reduced(r->node, e) && stride[e] < stride[d] ? x->dim[e] : 1;
            }
            term += is_reduced(r->node, d) ? at[d] * faster : 0;
        }
        r->saved[0][place] = (double)term;
    }
}

void ckpt_reference_gather(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const ids = &r->node->in[1].shape;
    const ckpt_shape *const y = &r->node->out[0].shape;
    const int axis = axis_of(x, ckpt_node_int(r->node, "axis"));
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        int64_t at[CKPT_RANK_MAX], from[CKPT_RANK_MAX];
        index_of(y, i, at);
        for (int d = 0; d < x->rank; d++) {
            from[d] = at[d < axis ? d : d + ids->rank - 1];
        }
        from[axis] = (int64_t)r->in[1][number_of(ids, at + axis)];
        r->out[0][i] = r->in[0][number_of(x, from)];
    }
}

void ckpt_reference_cumsum(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int axis = axis_of(x, ckpt_node_int(r->node, "axis"));
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        int64_t at[CKPT_RANK_MAX];
        index_of(x, i, at);
        r->out[0][i] = r->in[0][i];
        if (at[axis]-- > 0) {
            r->out[0][i] += r->out[0][number_of(x, at)];
        }
    }
}
