/* Axes are sorted by the order of the destination, and neighbours that stay neighbours are merged: rows become as long
 * as they can. */
#include "kernels/walk.h"

#include <stddef.h>
#include <string.h>

#include "ops/axes.h"
#include "ops/reduction.h"

/* Are all positions of the source read, in order? */
static bool is_plain(const ckpt_walk_axis *a)
{
    return a->first == 0 && a->step == 1 && a->length == a->dim;
}

/* Rows of `inner` follow each other on both sides, whatever rows `outer` reads; or all is one element. */
static bool merges(const ckpt_walk_axis *outer, const ckpt_walk_axis *inner)
{
    if (outer->wraps && outer->length == 1 && inner->wraps && inner->length == 1) {
        return true;
    }
    return is_plain(inner) && outer->step == 1 && (outer->length == 1 || outer->from == inner->dim * inner->from);
}

/* Leaves out what has one position, sorts and merges. */
static void finish(ckpt_walk *walk)
{
    ckpt_walk_axis *const axis = walk->axis;
    int count = 0;
    for (int d = 0; d < walk->count; d++) {
        const ckpt_walk_axis a = axis[d];
        ckpt_axes_insert(axis, &count, sizeof a, offsetof(ckpt_walk_axis, to), &a);
    }
    int merged = 0;
    for (int i = 1; i < count; i++) {
        ckpt_walk_axis *const last = &axis[merged];
        const ckpt_walk_axis next = axis[i];
        if (merges(last, &next)) {
            last->dim *= next.dim;
            last->first *= next.dim;
            last->length *= next.length;
            last->from = next.from;
            last->to = next.to;
        } else {
            axis[++merged] = next;
        }
    }
    if (count == 0) {
        axis[0] = (ckpt_walk_axis){.dim = 1, .to = 1, .length = 1, .from = 1, .step = 1};
    }
    walk->count = merged + 1;
    walk->plain = true;
    for (int i = 0; i < walk->count; i++) {
        walk->plain = walk->plain && is_plain(&axis[i]);
    }
}

/* Two tensors of one rank, index by index as written, before an op says what its axes read. */
static ckpt_walk start(const ckpt_shape *from, const ckpt_shape *to)
{
    ckpt_walk walk = {.count = to->rank, .factor = 1};
    int64_t from_stride[CKPT_RANK_MAX], to_stride[CKPT_RANK_MAX];
    ckpt_shape_strides(from, from_stride);
    ckpt_shape_strides(to, to_stride);
    for (int d = 0; d < to->rank; d++) {
        walk.axis[d] = (ckpt_walk_axis){
            .dim = to->dim[d], .to = to_stride[d], .length = from->dim[d], .from = from_stride[d], .step = 1};
    }
    return walk;
}

static ckpt_walk start_node(const ckpt_node *node, bool back)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    return back ? start(y, x) : start(x, y);
}

ckpt_walk ckpt_walk_strided(int rank, const int64_t *dim, const int64_t *from_stride, const int64_t *to_stride)
{
    ckpt_walk walk = {.count = rank, .factor = 1};
    for (int d = 0; d < rank; d++) {
        walk.axis[d] =
            (ckpt_walk_axis){.dim = dim[d], .to = to_stride[d], .length = dim[d], .from = from_stride[d], .step = 1};
    }
    finish(&walk);
    return walk;
}

ckpt_walk ckpt_walk_transpose(const ckpt_node *node, bool back)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    int64_t x_stride[CKPT_RANK_MAX], y_stride[CKPT_RANK_MAX], turned[CKPT_RANK_MAX];
    ckpt_shape_strides(x, x_stride);
    ckpt_shape_strides(y, y_stride);
    for (int d = 0; d < y->rank; d++) {
        turned[d] = x_stride[ckpt_node_int_at(node, "perm", d)];
    }
    return back ? ckpt_walk_strided(y->rank, y->dim, y_stride, turned)
                : ckpt_walk_strided(y->rank, y->dim, turned, y_stride);
}

ckpt_walk ckpt_walk_slice(const ckpt_node *node, bool back)
{
    ckpt_walk walk = start_node(node, back);
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t axis = ckpt_node_int(node, "axis"), d = axis < 0 ? axis + x->rank : axis;
    const int64_t given = ckpt_node_int(node, "start"), first = given < 0 ? given + x->dim[d] : given;
    ckpt_walk_axis *const a = &walk.axis[d];
    if (back) {
        a->first = first;
        a->step = ckpt_node_int(node, "step");
    } else {
        walk.offset = first * a->from;
        a->from *= ckpt_node_int(node, "step");
        a->length = a->dim;
    }
    finish(&walk);
    return walk;
}

ckpt_walk ckpt_walk_pad(const ckpt_node *node, bool back)
{
    ckpt_walk walk = start_node(node, back);
    const double value = ckpt_node_float(node, "value");
    for (int d = 0; d < walk.count; d++) {
        const int64_t before = ckpt_node_int_at(node, "before", d);
        ckpt_walk_axis *const a = &walk.axis[d];
        if (back) {
            walk.offset += before * a->from;
            a->length = a->dim;
        } else {
            a->first = before;
        }
    }
    if (node->in[0].dtype == CKPT_INT32) {
        const int32_t whole = (int32_t)value;
        memcpy(&walk.fill, &whole, sizeof walk.fill);
    } else if (!back) {
        walk.fill = (float)value;
    }
    finish(&walk);
    return walk;
}

ckpt_walk ckpt_walk_roll(const ckpt_node *node, bool back)
{
    ckpt_walk walk = start_node(node, back);
    for (int i = 0; i < ckpt_node_attr(node, "axes")->int_count; i++) {
        const int64_t axis = ckpt_node_int_at(node, "axes", i);
        ckpt_walk_axis *const a = &walk.axis[axis < 0 ? axis + walk.count : axis];
        const int64_t shift = ckpt_node_int_at(node, "shifts", i) % a->dim;
        a->first = ((back ? -shift : shift) + a->dim) % a->dim;
        a->wraps = true;
    }
    finish(&walk);
    return walk;
}

ckpt_walk ckpt_walk_tile(const ckpt_node *node)
{
    ckpt_walk walk = start_node(node, false);
    for (int d = 0; d < walk.count; d++) {
        walk.axis[d].wraps = true;
    }
    finish(&walk);
    return walk;
}

ckpt_walk ckpt_walk_spread(const ckpt_node *node, bool mean)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    const uint64_t axes = ckpt_reduction_axes(node);
    ckpt_walk walk = start(x, x);
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(y, stride);
    int at = 0; /* the dim of y */
    for (int d = 0; d < x->rank; d++) {
        ckpt_walk_axis *const a = &walk.axis[d];
        if ((axes >> d & 1) != 0) {
            *a = (ckpt_walk_axis){.dim = a->dim, .to = a->to, .length = 1, .from = 0, .step = 1, .wraps = true};
            at += ckpt_node_bool(node, "keepdim");
        } else {
            a->from = stride[at++];
        }
    }
    walk.factor = mean ? 1 / (float)(ckpt_shape_count(x) / ckpt_shape_count(y)) : 1;
    finish(&walk);
    return walk;
}
