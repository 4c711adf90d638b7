/* The axes of a gather. */
#include "ops/gather.h"

#include <stddef.h>

/* Inserts by the stride at `key` bytes of the axis, the greatest first. */
static void add_axis(ckpt_gather_axis *axis, int *count, size_t key, const ckpt_gather_axis *more)
{
    if (more->dim == 1) {
        return;
    }
    const int64_t stride = *(const int64_t *)(const void *)((const char *)more + key);
    int at = (*count)++;
    for (; at > 0 && *(const int64_t *)(const void *)((const char *)&axis[at - 1] + key) < stride; at--) {
        axis[at] = axis[at - 1];
    }
    axis[at] = *more;
}

/* Merges neighbours that stay neighbours everywhere; one axis at least is left. */
static void merge(ckpt_gather_axis *axis, int *count)
{
    int merged = 0;
    for (int i = 1; i < *count; i++) {
        ckpt_gather_axis *const last = &axis[merged];
        const ckpt_gather_axis next = axis[i];
        if (last->x == next.dim * next.x && last->y == next.dim * next.y && last->id == next.dim * next.id) {
            *last = (ckpt_gather_axis){last->dim * next.dim, next.x, next.y, next.id};
        } else {
            axis[++merged] = next;
        }
    }
    if (*count == 0) {
        axis[0] = (ckpt_gather_axis){.dim = 1};
    }
    *count = merged + 1;
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
    merge(g.out, &g.out_count);
    merge(g.kept, &g.kept_count);
    merge(g.ids, &g.id_count);
    return g;
}
