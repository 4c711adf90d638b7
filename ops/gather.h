/* Where the elements of a gather lie: its axes in three orders, neighbours merged, each order at least one axis long. */
#ifndef CKPT_OPS_GATHER_H
#define CKPT_OPS_GATHER_H

#include "ops/op.h"

/* Positions, and elements between two of them in x, y and ids; 0: the tensor does not have this axis. */
typedef struct ckpt_gather_axis {
    int64_t dim, x, y, id;
} ckpt_gather_axis;

typedef struct ckpt_gather {
    int64_t rows, row; /* positions along the gathered axis of x, and the elements between two */
    int64_t count;     /* of ids */
    int out_count, kept_count, id_count;
    ckpt_gather_axis out[CKPT_RANK_MAX];  /* of y, slowest in y first */
    ckpt_gather_axis kept[CKPT_RANK_MAX]; /* of x but for the gathered one, slowest in x first */
    ckpt_gather_axis ids[CKPT_RANK_MAX];  /* of ids, slowest in ids first */
} ckpt_gather;

ckpt_gather ckpt_gather_of(const ckpt_node *node);

#endif
