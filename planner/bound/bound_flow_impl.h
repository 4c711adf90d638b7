/* What the files of the flow bound share: the multipliers at hand and what their cut holds. */
#ifndef CKPT_PLANNER_BOUND_BOUND_FLOW_IMPL_H
#define CKPT_PLANNER_BOUND_BOUND_FLOW_IMPL_H

#include "planner/bound/bound_impl.h"

enum {
    CKPT_FLOW_MOMENTS = 64,
    CKPT_FLOW_LAMBDA_MAX = 1 << 18,
    CKPT_FLOW_GUESS = 1 << 11, /* where the search for the first multiplier begins */
    CKPT_FLOW_PLACES = 40,     /* moments between which intervals are tried */
};

/* What flows is at most this, so that sums of a few stay within 63 bits. */
#define CKPT_FLOW_MAX ((int64_t)1 << 55)

typedef struct ckpt_flow {
    const ckpt_graph *graph;
    int *last;               /* per buffer: the last op whose first run uses it in whatever way; op_count: an output */
    const ckpt_graph_op *op; /* as they are recomputed: the least time of all ways, the reads that all have in common */
    const bool *possible;    /* per op and variant; NULL: there are no variants */
    int *last_wish;          /* per buffer: the last op whose own way uses it */
    ckpt_bytes *left;        /* per op: what is left at its first run beside what is fixed */
    ckpt_bytes *need;        /* per op and variant: reads, writes and workspace beside that */
    ckpt_bytes *capacity;    /* per op: left, less the need of its fastest way */
    int moment[CKPT_FLOW_MOMENTS], moments;
    int begin, end; /* only first runs from here to before there are looked at */
    int64_t lambda[CKPT_FLOW_MOMENTS],
        sum[CKPT_FLOW_MOMENTS + 1]; /* multipliers, in 2^-(scale + shift) ns per byte; sums before */
    int scale, shift;
    /* per buffer */
    unsigned char *until; /* moments at or before its last first use */
    unsigned char *asked; /* an op that is recomputed reads it behind that */
    int64_t *read;        /* the part of `lambda` that it does not pay up to `until`, as the moment's op reads it */
    int64_t *maybe;       /* the part behind that, as some way of the moment's op reads it */
    int64_t *d;
    int64_t *paid, *given; /* by all choices; by the choice at hand */
    /* per op */
    int64_t *c, *room, *in; /* room: what it may take in; behind the flow: what it may still take in */
    int64_t *first;         /* an optional op: what choices may still pay for its first run */
    ckpt_bytes *change;
    bool *again; /* recomputed in the cut at hand */
    ckpt_bytes held[CKPT_FLOW_MOMENTS],
        excess[CKPT_FLOW_MOMENTS]; /* what the cut holds at a moment, beyond the capacity */
    int64_t value, best;           /* of these multipliers, of all so far */
    int64_t work;                  /* left for more than one moment */
    ckpt_poll poll;
} ckpt_flow;

static inline int64_t ckpt_flow_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A flow for the multipliers at hand: value, best, held and excess. Cost: O(total reads of all ways). */
void ckpt_flow_evaluate(ckpt_flow *f);

/* May the op of this run be done in its way within the limit? */
bool ckpt_flow_is_possible(const ckpt_flow *f, int run);

/* Per op: what the cut at hand (at first: everything held) needs at its first run beyond what there is. */
ckpt_bytes *ckpt_flow_find_excess(ckpt_flow *f);

/* Sequences of moments: a better proof than `proof` where there is one. */
void ckpt_flow_chain_intervals(ckpt_flow *f, ckpt_flow_proof *proof);

#endif
