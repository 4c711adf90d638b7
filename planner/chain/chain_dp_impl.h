/* What the files of the chain DP share: derived figures of a chain, and which intervals of blocks are equal. */
#ifndef CKPT_PLANNER_CHAIN_CHAIN_DP_IMPL_H
#define CKPT_PLANNER_CHAIN_CHAIN_DP_IMPL_H

#include "planner/chain/chain_dp.h"

/* Sums of times stop growing here, which leaves room to add three. */
#define CKPT_DP_FOREVER ((ckpt_ns)1 << 60)

/* Times are counted as excess: over the least that a block takes whatever is done with it. */
typedef struct ckpt_dp_figures {
    const ckpt_dp_chain *chain;
    int n;
    ckpt_ns *base[CKPT_DP_PASSES]; /* [1 .. n] */
    ckpt_ns *drop[CKPT_DP_PASSES]; /* [0 .. n]: excess of dropping blocks 1..k once, then recomputing all of them */
    ckpt_ns base_time;             /* of the whole chain */
} ckpt_dp_figures;

CKPT_MUST_USE ckpt_code ckpt_dp_figures_init(ckpt_dp_figures *f, const ckpt_dp_chain *chain, ckpt_arena *scratch,
                                             ckpt_err *err);

/* Bytes that cross into block r and are not in the input of s. */
static inline ckpt_bytes ckpt_dp_crossing(const ckpt_dp_figures *f, int s, int r)
{
    return f->chain->fresh != NULL ? f->chain->fresh[(size_t)(s - 1) * (size_t)(f->n + 1) + (size_t)(r - 1)]
                                   : f->chain->block[r - 1].crossing_bytes;
}

static inline int ckpt_dp_pass(const ckpt_dp_figures *f, int t)
{
    return t == f->n ? CKPT_DP_FIRST : CKPT_DP_RECOMPUTED;
}

static inline ckpt_bytes ckpt_dp_larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* a + b, CKPT_BYTES_MAX when 63 bits do not hold it. */
static inline ckpt_bytes ckpt_dp_add(ckpt_bytes a, ckpt_bytes b)
{
    return a > CKPT_BYTES_MAX - b ? CKPT_BYTES_MAX : a + b;
}

/* Most live while block k of s..r-1 runs forward keeping only what crosses: either all of its input stays that the
 * input of s does not hold anyway, or all is counted and goes when read: with one buffer at each cut the second is
 * exact, with several both err upwards. */
static inline ckpt_bytes ckpt_dp_dropping(const ckpt_dp_figures *f, int s, int k, int pass)
{
    const ckpt_dp_block *const block = &f->chain->block[k];
    const ckpt_bytes held = k > s ? ckpt_dp_crossing(f, s, k) : 0;
    const ckpt_bytes staying = ckpt_dp_add(block->drop_peak[pass], held);
    return k > s && block->going_peak[pass] < staying ? block->going_peak[pass] : staying;
}

/* Gradients held while blocks up to t are recomputed. */
static inline ckpt_bytes ckpt_dp_gradient(const ckpt_dp_figures *f, int t)
{
    return t == f->n ? 0 : f->chain->block[t].gradient_bytes;
}

/* Bytes that keep `o` of block s needs when blocks up to t follow: in its forward and in its backward. */
static inline ckpt_bytes ckpt_dp_keeping(const ckpt_dp_figures *f, int s, int t, int o)
{
    const ckpt_dp_keep *const keep = &f->chain->block[s].keep[o];
    const ckpt_bytes forward = ckpt_dp_add(keep->forward_peak[ckpt_dp_pass(f, t)], ckpt_dp_gradient(f, t));
    return ckpt_dp_larger(forward, keep->back_peak);
}

/* Equal intervals: all figures are equal that a schedule of the interval, not at the end of the chain, depends on.
 * The lengths are gone through in order; rep[s] is the first interval of the present length that equals s's. */
typedef struct ckpt_dp_classes {
    const ckpt_dp_figures *f;
    int length;
    int *rep;   /* [1 .. n] */
    int *block; /* [1 .. n]: the first block that equals it */
    int *first, *next, *fresh_rep;
} ckpt_dp_classes;

CKPT_MUST_USE ckpt_code ckpt_dp_classes_init(ckpt_dp_classes *c, const ckpt_dp_figures *f, ckpt_arena *scratch,
                                             ckpt_err *err); /* length 1 */
void ckpt_dp_classes_longer(ckpt_dp_classes *c);

/* A relaxation of the whole program: each block for itself gives up bytes at its cheapest ns per byte, over the convex
 * hull of what it offers (keep o, or nothing at all for another forward). */
typedef struct ckpt_dp_offer {
    int block;
    ckpt_bytes bytes;
    ckpt_ns time;
} ckpt_dp_offer;

typedef struct ckpt_dp_relief {
    int count, top;        /* of offers, and the greatest power of two in it */
    ckpt_dp_offer *offer;  /* [1 .. count], cheapest first */
    int *from, *position;  /* offers of block k: position[from[k]] .. position[from[k + 1] - 1] */
    ckpt_bytes *held_of;   /* [k]: held when nothing leaves */
    ckpt_ns *floor_of;     /* [k]: excess in that case */
    ckpt_bytes *bytes_sum; /* Fenwick trees over the offers of the blocks in the set */
    ckpt_ns *time_sum;
    ckpt_bytes held;
    ckpt_ns floor;
    bool usable; /* false: numbers too large, nothing is known */
} ckpt_dp_relief;

CKPT_MUST_USE ckpt_code ckpt_dp_relief_init(ckpt_dp_relief *relief, const ckpt_dp_figures *f, int pass,
                                            ckpt_arena *scratch, ckpt_err *err);
void ckpt_dp_relief_put(ckpt_dp_relief *relief, int block, int sign); /* 1: into the set, -1: out of it */
/* Least excess within `bytes`; above CKPT_DP_FOREVER: impossible. */
ckpt_ns ckpt_dp_relief_time(const ckpt_dp_relief *relief, ckpt_bytes bytes);
/* Least bytes within `excess`; CKPT_BYTES_MAX: impossible. */
ckpt_bytes ckpt_dp_relief_bytes(const ckpt_dp_relief *relief, ckpt_ns excess);

/* What part of X(s, t, .) a schedule of the whole chain with no more than some excess can use. */
typedef struct ckpt_dp_window {
    ckpt_ns time; /* most excess; below 0: this interval is of no use */
    ckpt_bytes low, high;
    ckpt_ns floor; /* X(s, t, high) is no less */
} ckpt_dp_window;

/* The main line with a price on bytes instead of a limit. */
typedef struct ckpt_dp_price {
    double per_byte;
    double *before, *behind; /* [s]: least excess plus price of what is held, of blocks 1..s-1 and s..n */
    double rebate;           /* price of all bytes that can be held when the last block runs */
} ckpt_dp_price;

/* The windows of the intervals (s, t), s <= t < n. */
typedef struct ckpt_dp_windows {
    ckpt_bytes limit;
    ckpt_ns excess;
    int *row_count;          /* [s]: intervals that start at s */
    ckpt_dp_window **window; /* [s][t - s] */
    ckpt_dp_price price;
    int64_t work;
    ckpt_ns bound; /* no schedule has less excess, as far as those with no more than `excess` go */
} ckpt_dp_windows;

/* `windows` is empty, or what an earlier call for the same chain and limit left. When the options end it early, the
 * windows say nothing. */
CKPT_MUST_USE ckpt_code ckpt_dp_windows_find(ckpt_dp_windows *windows, const ckpt_dp_figures *f, ckpt_bytes limit,
                                             ckpt_ns excess, const ckpt_plan_options *options, ckpt_arena *scratch,
                                             ckpt_err *err);

/* The best price there is, by the windows found so far. */
CKPT_MUST_USE ckpt_code ckpt_dp_price_find(ckpt_dp_windows *windows, const ckpt_dp_figures *f, ckpt_arena *scratch,
                                           ckpt_err *err);
/* A bound on the excess of blocks before s when `m` bytes are left at s; on that of the whole without X(s, t, .) when
 * s..t is dropped from the main line. */
ckpt_ns ckpt_dp_price_before(const ckpt_dp_windows *windows, int s, ckpt_bytes m);
ckpt_ns ckpt_dp_price_around(const ckpt_dp_windows *windows, const ckpt_dp_figures *f, int s, int t);

/* Schedules being written. Appending beyond memory is remembered and reported by ckpt_dp_actions_end. */
typedef struct ckpt_dp_actions {
    ckpt_dp_action *action;
    int count, room;
    bool failed;
    ckpt_ns time; /* CKPT_BYTES_MAX: more than 63 bits hold */
} ckpt_dp_actions;

void ckpt_dp_actions_add(ckpt_dp_actions *actions, const ckpt_dp_figures *f, ckpt_dp_action action);
/* Forward of s..r-1 keeping only what crosses. */
void ckpt_dp_actions_drop(ckpt_dp_actions *actions, const ckpt_dp_figures *f, int s, int r, int pass);
/* A copy in `out`; gives the memory of `actions` back in any case. */
CKPT_MUST_USE ckpt_code ckpt_dp_actions_end(ckpt_dp_actions *actions, ckpt_arena *out, ckpt_dp_schedule *schedule,
                                            ckpt_err *err);

/* N(s, t), the least bytes in which blocks s..t can be run, and the time of a schedule that needs no more. */
typedef struct ckpt_dp_needs {
    const ckpt_dp_figures *f;
    ckpt_bytes **need; /* [s][t - s] */
    ckpt_ns **time;    /* up to CKPT_DP_FOREVER */
} ckpt_dp_needs;

/* Where the options end it early, the whole chain's need is CKPT_BYTES_MAX: no schedule is known. */
CKPT_MUST_USE ckpt_code ckpt_dp_needs_find(ckpt_dp_needs *needs, const ckpt_dp_figures *f,
                                           const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err);
/* s..t within `left` >= N(s, t) bytes: bytes beyond the minimum peak are used to recompute less, by the times that
 * were found for the minimum peaks of the parts. */
void ckpt_dp_needs_write(const ckpt_dp_needs *needs, int s, int t, ckpt_bytes left, ckpt_dp_actions *actions);

#endif
