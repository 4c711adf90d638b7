/* The axes of a gather. */
#include "ops/gather.h"

#include <stddef.h>

#include "ops/axes.h"

static void add_axis(ckpt_gather_axis *axis, int *count, size_t key, const ckpt_gather_axis *more)
{
    ckpt_axes_insert(axis, count, sizeof *axis, key, more);
}

ckpt_gather ckpt_gather_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const ids = &node->in[1].shape, *const y = &node->out[0].shape;
    const int64_t given = ckpt_node_int(node, "axis");
    const int axis = (int)(given < 0 ? given + x->rank : given);
    int64_t x_stride[CKPT_RANK_MAX], id_stride[CKPT_RANK_MAX], y_stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, x_stride);
    ckpt_shape_strides(ids, id_stride);
    ckpt_shape_strides(y, y_stride);
    ckpt_gather g = {.rows = x->dim[axis], .row = x_stride[axis], .count = ckpt_shape_count(ids)};
    for (int d = 0; d < y->rank; d++) {
        const bool inside = d >= axis && d < axis + ids->rank;
        const int from = d < axis ? d : d - ids->rank + 1;
        const ckpt_gather_axis a = {.dim = y->dim[d],
                                    .x = inside ? 0 : x_stride[from],
                                    .y = y_stride[d],
                                    .id = inside ? id_stride[d - axis] : 0};
        add_axis(g.out, &g.out_count, offsetof(ckpt_gather_axis, y), &a);
        if (inside) {
            add_axis(g.ids, &g.id_count, offsetof(ckpt_gather_axis, id), &a);
        } else {
            add_axis(g.kept, &g.kept_count, offsetof(ckpt_gather_axis, x), &a);
        }
    }
    ckpt_axes_merge(g.out, &g.out_count, sizeof *g.out);
    ckpt_axes_merge(g.kept, &g.kept_count, sizeof *g.kept);
    ckpt_axes_merge(g.ids, &g.id_count, sizeof *g.ids);
    return g;
}
