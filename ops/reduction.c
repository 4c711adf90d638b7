/* Sums over dims, and in how many parts. */
#include "ops/reduction.h"

#include <stddef.h>

#include "ops/axes.h"
#include "ops/ops_impl.h"

/* A block of threads, or a thread of the CPU, sums this many columns at a time. So many blocks fill a large device; and
 * a part is at least so many elements, or terms of a column on a GPU. */
enum { STRIP = 256, CPU_BLOCKS = 64, CPU_PART = 16384, GPU_BLOCKS = 512, GPU_PART = 2048, GPU_ROWS = 32 };

/* Slowest of the input first. */
static void add_axis(ckpt_reduction_axis *axis, int *count, int64_t dim, int64_t from, int64_t to)
{
    ckpt_axes_insert(axis, count, sizeof *axis, offsetof(ckpt_reduction_axis, from),
                     &(ckpt_reduction_axis){dim, from, to});
}

static int64_t ceiling(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static void choose_parts(ckpt_reduction *r, bool gpu)
{
    const int64_t width = r->columns ? r->kept[r->kept_count - 1].dim : 1;
    const int64_t blocks = r->outputs / width * ceiling(width, STRIP), wanted = gpu ? GPU_BLOCKS : CPU_BLOCKS;
    const int64_t gpu_least = r->columns ? GPU_ROWS : GPU_PART,
                  cpu_least = ceiling(CPU_PART, width < STRIP ? width : STRIP);
    const int64_t least = gpu ? gpu_least : cpu_least, even = ceiling(r->terms, blocks < wanted ? wanted / blocks : 1);
    r->part_terms = ceiling(even > least ? even : least, 32) * 32;
    r->parts = ceiling(r->terms, r->part_terms);
}

static void finish(ckpt_reduction *r, bool gpu)
{
    r->outputs = ckpt_axes_merge(r->kept, &r->kept_count, sizeof *r->kept);
    r->terms = ckpt_axes_merge(r->reduced, &r->reduced_count, sizeof *r->reduced);
    r->columns = r->kept[r->kept_count - 1].from == 1;
    choose_parts(r, gpu);
}

uint64_t ckpt_reduction_axes(const ckpt_node *node)
{
    const int count = ckpt_node_attr(node, "axis")->int_count;
    uint64_t axes = count > 0 ? 0 : UINT64_MAX;
    for (int i = 0; i < count; i++) {
        const int64_t axis = ckpt_node_int_at(node, "axis", i);
        axes |= UINT64_C(1) << (axis < 0 ? axis + node->in[0].shape.rank : axis);
    }
    return axes;
}

ckpt_reduction ckpt_reduction_of_axes(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    const uint64_t axes = ckpt_reduction_axes(node);
    int64_t from[CKPT_RANK_MAX], to[CKPT_RANK_MAX];
    ckpt_shape_strides(x, from);
    ckpt_shape_strides(y, to);
    ckpt_reduction r = {0};
    int at = 0; /* the dim of y */
    for (int d = 0; d < x->rank; d++) {
        if ((axes >> d & 1) != 0) {
            add_axis(r.reduced, &r.reduced_count, x->dim[d], from[d], 0);
            at += ckpt_node_bool(node, "keepdim");
        } else {
            add_axis(r.kept, &r.kept_count, x->dim[d], from[d], to[at++]);
        }
    }
    finish(&r, node->threads == CKPT_ON_GPU);
    return r;
}

ckpt_reduction ckpt_reduction_of_tile(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    int64_t from[CKPT_RANK_MAX], to[CKPT_RANK_MAX];
    ckpt_shape_strides(y, from);
    ckpt_shape_strides(x, to);
    ckpt_reduction r = {0};
    for (int d = 0; d < x->rank; d++) {
        add_axis(r.reduced, &r.reduced_count, y->dim[d] / x->dim[d], from[d] * x->dim[d], 0);
        add_axis(r.kept, &r.kept_count, x->dim[d], from[d], to[d]);
    }
    finish(&r, node->threads == CKPT_ON_GPU);
    return r;
}

ckpt_bytes ckpt_reduction_workspace(const ckpt_reduction *r, ckpt_bytes bytes)
{
    return r->parts > 1 ? ckpt_aligned(ckpt_times(ckpt_times(bytes, r->parts), r->outputs)) : 0;
}
