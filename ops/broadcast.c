/* Broadcasting: shapes, and how three tensors that belong together lie in memory. */
#include "ops/broadcast.h"

#include "ops/ops_impl.h"

/* Elements between neighbours of input k along dim d of the output; 0 where it is stretched. */
static int64_t step_of(const ckpt_shape *x, const ckpt_shape *y, int d)
{
    int64_t stride[CKPT_RANK_MAX];
    const int own = d - (y->rank - x->rank);
    ckpt_shape_strides(x, stride);
    return own < 0 || x->dim[own] == 1 ? 0 : stride[own];
}

/* One more dim inside those of `space`, or the last of them made longer. */
static void add_dim(ckpt_broadcast_space *space, int64_t dim, const int64_t step[3])
{
    const int last = space->rank - 1;
    bool joins = last >= 0;
    for (int t = 0; t < 3; t++) {
        joins = joins && space->step[t][last] == step[t] * dim;
    }
    const int at = joins ? last : space->rank++;
    space->dim[at] = joins ? space->dim[at] * dim : dim;
    for (int t = 0; t < 3; t++) {
        space->step[t][at] = step[t];
    }
}

ckpt_broadcast ckpt_broadcast_of(const ckpt_node *node)
{
    static const int channels_last[] = {0, 2, 3, 1}, as_written[] = {0, 1, 2, 3, 4, 5};
    const ckpt_shape *const y = &node->out[0].shape;
    const int *const order = y->rank == 4 ? channels_last : as_written;
    ckpt_broadcast result = {.row = 1, .step = {1, 1, 1}};
    ckpt_broadcast_space *const rows = &result.rows;
    for (int i = 0; i < y->rank; i++) {
        const int d = order[i];
        if (y->dim[d] > 1) {
            const int64_t step[3] = {step_of(&node->in[0].shape, y, d), step_of(&node->in[1].shape, y, d),
                                     step_of(y, y, d)};
            add_dim(rows, y->dim[d], step);
        }
    }
    if (rows->rank > 0) {
        rows->rank--;
        result.row = rows->dim[rows->rank];
        for (int t = 0; t < 3; t++) {
            result.step[t] = rows->step[t][rows->rank];
        }
    }
    return result;
}

int64_t ckpt_broadcast_count(const ckpt_broadcast_space *space)
{
    int64_t count = 1;
    for (int d = 0; d < space->rank; d++) {
        count *= space->dim[d];
    }
    return count;
}

bool ckpt_broadcast_sums(const ckpt_node *node, int k)
{
    return ckpt_node_in_count(node, k) != ckpt_shape_count(&node->out[0].shape);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

ckpt_broadcast_sum ckpt_broadcast_sum_of(const ckpt_node *node, const ckpt_broadcast *broadcast, int k)
{
    const bool gpu = node->threads == CKPT_ON_GPU;
    ckpt_broadcast_sum sum = {.part = 0};
    const ckpt_broadcast_space *const rows = &broadcast->rows;
    for (int d = 0; d < rows->rank; d++) {
        add_dim(rows->step[k][d] != 0 ? &sum.kept : &sum.lines, rows->dim[d],
                (const int64_t[]){rows->step[0][d], rows->step[1][d], rows->step[2][d]});
    }
    const int64_t lines = ckpt_broadcast_count(&sum.lines), kept = ckpt_broadcast_count(&sum.kept),
                  row = broadcast->row;
    if (broadcast->step[k] != 0) {
        sum.pieces = lines;
        sum.part = gpu ? ckpt_gpu_part_rows(kept, lines, row) : 256;
    } else if (gpu) {
        sum.pieces = lines * row;
        sum.part = 64 * ckpt_gpu_part_rows(kept, divide_up(sum.pieces, 64), 1);
    } else {
        const int64_t piece = row < CKPT_BROADCAST_CHUNK ? row : CKPT_BROADCAST_CHUNK;
        sum.pieces = lines * divide_up(row, CKPT_BROADCAST_CHUNK);
        sum.part = piece > 256 ? 65536 / piece : 256;
    }
    sum.parts = divide_up(sum.pieces, sum.part);
    return sum;
}

/* Sums follow each other, so the larger workspace is enough. */
void ckpt_broadcast_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    *forward = *backward = 0;
    for (int k = 0; node->in_count == 2 && k < 2; k++) {
        if (ckpt_broadcast_sums(node, k)) {
            const ckpt_broadcast broadcast = ckpt_broadcast_of(node);
            const int64_t parts = ckpt_broadcast_sum_of(node, &broadcast, k).parts;
            const ckpt_bytes bytes = ckpt_times(ckpt_times(4, parts), ckpt_node_in_count(node, k));
            *backward = parts > 1 && bytes > *backward ? ckpt_aligned(bytes) : *backward;
        }
    }
}

/* The output's shape; false: some dims differ and none of the two is 1. */
static bool stretch(const ckpt_shape *a, const ckpt_shape *b, ckpt_shape *y)
{
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = 1; d <= y->rank; d++) { /* from the last one */
        const int64_t m = d <= a->rank ? a->dim[a->rank - d] : 1, n = d <= b->rank ? b->dim[b->rank - d] : 1;
        if (m != n && m != 1 && n != 1) {
            return false;
        }
        y->dim[y->rank - d] = m > n ? m : n;
    }
    return true;
}

ckpt_code ckpt_node_broadcast(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    const ckpt_shape *const a = &node->in[0].shape, *const b = &node->in[1].shape;
    ckpt_shape y = {.rank = 0};
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, node->dtype, err));
    if (!stretch(a, b, &y)) {
        char first[CKPT_SHAPE_TEXT], second[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s and input 1 %s, wanted dims that are equal or 1, counted from the last",
                         ckpt_shape_show(a, first), ckpt_shape_show(b, second));
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->by_element = ckpt_shape_equal(a, b);
    node->forward_flop = ckpt_times(forward_flop, ckpt_shape_count(&y));
    node->backward_flop = ckpt_times(backward_flop, ckpt_shape_count(&y));
    ckpt_broadcast_workspace(node, &node->forward_workspace_bytes, &node->backward_workspace_bytes);
    return CKPT_OK;
}
