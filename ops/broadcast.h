/* Two tensors combined element by element under numpy's rule: shapes are aligned at their last dim, and a dim that is 1
 * or missing is stretched. The rule is about dims as they are written. What follows here is about memory, where rank 4
 * lies channels last and no other rank does. */
#ifndef CKPT_OPS_BROADCAST_H
#define CKPT_OPS_BROADCAST_H

#include "ops/op.h"

enum {
    CKPT_BROADCAST_OUT = 2, /* the output's number among the three tensors; inputs are 0 and 1 */
    CKPT_BROADCAST_CHUNK = 1024,
};

/* An index space: from one index of a dim to the next are step[t][d] elements of tensor t, 0 where it is stretched. */
typedef struct ckpt_broadcast_space {
    int rank;
    int64_t dim[CKPT_RANK_MAX];
    int64_t step[3][CKPT_RANK_MAX];
} ckpt_broadcast_space;

/* The output in the order it lies in memory, as rows. Dims of 1 are left out, and neighbours that every tensor passes
 * like one dim are one: equal shapes are one row, a factor per channel is a row of channels. */
typedef struct ckpt_broadcast {
    ckpt_broadcast_space rows;
    int64_t row;     /* elements */
    int64_t step[3]; /* within a row; the output's is 1 */
} ckpt_broadcast;

ckpt_broadcast ckpt_broadcast_of(const ckpt_node *node);
int64_t ckpt_broadcast_count(const ckpt_broadcast_space *space);

/* Is the gradient of input k a sum? */
bool ckpt_broadcast_sums(const ckpt_node *node, int k);

/* How it is summed: for each place of `kept`, over `lines`. Where step[k] is 0, a row is summed too.
 *
 * The sum is cut into parts of `part` pieces, from the shape alone, and the parts are added in order. On the CPU a piece
 * is a line; of rows that are summed, at most CKPT_BROADCAST_CHUNK elements. On a GPU it is a line, or an element of one
 * (a multiple of 64 of them). Where there is more than one part, the workspace holds parts * (elements of input k)
 * floats. */
typedef struct ckpt_broadcast_sum {
    ckpt_broadcast_space kept, lines;
    int64_t pieces, part, parts;
} ckpt_broadcast_sum;

ckpt_broadcast_sum ckpt_broadcast_sum_of(const ckpt_node *node, const ckpt_broadcast *broadcast, int k);

/* For infer: checks both inputs, adds the output, states so many operations per element of it and the workspace. */
ckpt_code ckpt_node_broadcast(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err);
/* What the kernels of the node's device use; none for more than two inputs, whose shapes are equal. */
void ckpt_broadcast_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward);

#endif
