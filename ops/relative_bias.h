/* Which pairs of query and key share a row of relative_bias's table. */
#ifndef CKPT_OPS_RELATIVE_BIAS_H
#define CKPT_OPS_RELATIVE_BIAS_H

#include "ops/op.h"

#ifdef __CUDACC__
#define CKPT_ON_BOTH __host__ __device__
#else
#define CKPT_ON_BOTH
#endif

enum { CKPT_RELATIVE_BUCKETS = 256 };

typedef struct ckpt_relative {
    int64_t heads, queries, keys;
    int64_t rows;   /* of the table */
    int64_t window; /* swin's; 0: t5 */
    int64_t half;   /* t5: rows of one direction, those for keys after the query follow; one direction alone: all */
    int32_t start[CKPT_RELATIVE_BUCKETS + 1]; /* t5: row r of a direction has distances start[r] .. start[r + 1] - 1 */
} ckpt_relative;

/* Of a node whose attributes are right. */
ckpt_relative ckpt_relative_of(const ckpt_node *node);

/* The keys from .. end - 1 whose pair with `query` has that row of the table. Those of all rows are each key once. */
static inline CKPT_ON_BOTH void ckpt_relative_keys(const ckpt_relative *r, int64_t row, int64_t query, int64_t *from,
                                                   int64_t *end)
{
    if (r->window > 0) {
        const int64_t w = r->window, side = 2 * w - 1;
        const int64_t y = query / w - (row / side - (w - 1)), x = query % w - (row % side - (w - 1));
        const bool is_inside = y >= 0 && y < w && x >= 0 && x < w;
        *from = is_inside ? y * w + x : 0;
        *end = is_inside ? *from + 1 : 0;
        return;
    }
    const bool is_after = row >= r->half;
    const int64_t number = is_after ? row - r->half : row;
    const int64_t near = r->start[number], far = r->start[number + 1];
    int64_t first = query - far + 1, last = query - near + 1;
    if (is_after) {
        first = query + (near > 1 ? near : 1); /* distance 0 is the other direction's */
        last = query + far;
    } else if (number == 0 && r->half == r->rows) {
        last = r->keys; /* one direction: all keys after the query count as at distance 0 */
    }
    last = last < r->keys ? last : r->keys;
    *from = first > 0 ? first : 0;
    *end = last > *from ? last : *from;
}

#endif
