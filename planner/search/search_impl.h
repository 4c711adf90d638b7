/* The state of the search: which ops are recomputed, and before which op; and what that costs in time and memory.
 *
 *     stage:   0      1      2              k                   n - 1
 *            [ 0 ] [ 1 ] [ 2 ] ... [ v  v'  k ] ... [  ..   n - 1 ]      v < v' < k are recomputed, then op k
 *
 * A moment is (stage, op), written as one number that orders moments by time. Any set of pairs (k, v) is a legal
 * sequence, since everything has run once before; a pair more or less changes the live ranges of what v writes and the
 * ends of the live ranges of what v reads, and nothing else. With variants every run has a way, and a run may read what
 * no run before it writes: such a state counts what is missing, and is no sequence until nothing is. */
#ifndef CKPT_PLANNER_SEARCH_SEARCH_IMPL_H
#define CKPT_PLANNER_SEARCH_SEARCH_IMPL_H

#include "planner/schedule/schedule.h"

typedef int64_t ckpt_instant; /* stage << 32 | op */

#define CKPT_INSTANT(stage, op) ((ckpt_instant)(stage) << 32 | (ckpt_instant)(op))
#define CKPT_INSTANT_STAGE(at)  ((int)((at) >> 32))
#define CKPT_INSTANT_OP(at)     ((int)((at)&INT32_MAX))
#define CKPT_INSTANT_NEVER      INT64_MAX

/* Ascending, each once. */
typedef struct ckpt_instants {
    ckpt_instant *at;
    int count, room;
} ckpt_instants;

/* The runs of one stage, ascending by op; the last is op k itself. */
typedef struct ckpt_stage {
    int *op;
    int *way;          /* the run of ckpt_graph.op: the op itself or a variant; -1: an optional op that does not run */
    ckpt_bytes *bytes; /* live during the run, workspace included, less what was added to the whole stage */
    int *index;        /* into search->recomputed; -1: the first run */
    bool *inplace;     /* done in place: search->saved is taken off bytes */
    int count, room;
} ckpt_stage;

typedef struct ckpt_search {
    const ckpt_graph *graph;
    ckpt_arena *arena;     /* of all below */
    int count;             /* ops */
    int stages;            /* count; one more when there are outputs, for what is recomputed after the last op */
    ckpt_stage *stage;     /* that of the end holds `count`, which stands for an op that reads the outputs */
    ckpt_instants *runs;   /* per op: its runs; (v, v) comes first */
    ckpt_instants *uses;   /* per buffer: the runs that read it or add to it; (count, count) when it is an output */
    ckpt_instants *writes; /* per buffer, with variants: the runs that write it */
    ckpt_bytes *own;       /* per way: what it writes, and its workspace */
    ckpt_bytes *saved;     /* per way: what a run in place saves; 0: there are none */
    bool has_inplace, has_variants;
    int missing; /* buffers that are used before they are written: live from the start until then */

    /* Most live bytes per stage: node i is over 2 i and 2 i + 1, leaf `leaves` + k is stage k; what was added to a
     * node holds for all below it, and is in its own most. most[1] is the peak. */
    ckpt_bytes *most, *added;
    int leaves;
    bool vast; /* more bytes than the tree's sums can take: nothing is recomputed */

    ckpt_instant *recomputed; /* all pairs (k, v), in no order */
    int recomputed_count, recomputed_room;
    ckpt_ns time;
    int64_t work; /* done so far: steps through trees and lists, about 5 ns each */
    bool failed;  /* no memory: a pair was not added */
} ckpt_search;

/* The reference order. Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_search_init(const ckpt_graph *graph, ckpt_arena *arena, ckpt_search *search,
                                         ckpt_err *err);

bool ckpt_search_has(const ckpt_search *search, int k, int v);
/* Recompute v before op k, or no longer. False when that cannot be: v may not be recomputed, v >= k, the time would not
 * fit 63 bits, the graph holds more than 2^56 bytes, or there is no memory (search->failed). Cost: O((reads + writes)
 * (log ops + runs in the stages)). */
bool ckpt_search_toggle(ckpt_search *search, int k, int v);

/* The way of a run, first or recomputed; -1: there is no such run. Cost: O(runs in the stage). */
int ckpt_search_way(const ckpt_search *search, int k, int v);
/* Run v before op k in this way, or with k = v for the first time; -1: no longer. False when that cannot be, as above,
 * or is so already. Cost: as above, for the way before and this one. */
bool ckpt_search_set(ckpt_search *search, int k, int v, int way);

/* The first index whose instant is not before `at`. */
int ckpt_instants_find(const ckpt_instants *list, ckpt_instant at);
/* When b is used next after `at`, before it is written again; -1: not any more. */
ckpt_instant ckpt_search_next_use(const ckpt_search *search, int b, ckpt_instant at);
/* The last write or use of b before `at`. */
ckpt_instant ckpt_search_last_event(const ckpt_search *search, int b, ckpt_instant at);

/* The last write of b before `at`; -1: none. */
ckpt_instant ckpt_search_last_write(const ckpt_search *search, int b, ckpt_instant at);

/* By how much the stages are above `limit`, added up; in large graphs, groups of neighbouring stages, by their most.
 * Where the peak alone were to count, a move that relieves all moments but one would seem to be worth nothing. Cost:
 * O(groups above the limit). */
double ckpt_search_excess(const ckpt_search *search, ckpt_bytes limit);

/* A run at which more than `above` bytes are live, chosen by `dice` where there are several; of its stage, the one with
 * most. The run of the peak when nothing is above. */
ckpt_instant ckpt_search_over(const ckpt_search *search, ckpt_bytes above, uint64_t dice);

/* Make the pairs those of a sequence without copies. What the form cannot say (an op twice in one stage, another order
 * inside a stage) is lost, and what is left when the options (NULL: none) end it early. */
void ckpt_search_load(ckpt_search *search, const ckpt_sequence *sequence, const ckpt_plan_options *options);
/* Make the pairs exactly these.
 *   way   of every pair, then of the first run of every op; NULL: the ops' own, and no optional op runs */
void ckpt_search_assign(ckpt_search *search, const ckpt_instant *pair, const int *way, int count);
void ckpt_search_write(const ckpt_search *search, ckpt_order *order);

/* ---- moves (search_move.c) ---- */

enum {
    CKPT_SEARCH_LOG = 256,
    CKPT_SEARCH_POLL = 1 << 15, /* work between two looks at the clock */
};

/* A search on its way. */
typedef struct ckpt_searcher {
    ckpt_search search;
    ckpt_bytes limit; /* what is above it has a price */
    ckpt_bytes aim;   /* moves look for moments above it */
    bool makes_room;  /* moves also take something out first and then drop what has no room */
    uint64_t dice;
    ckpt_instant log[CKPT_SEARCH_LOG]; /* runs changed by the move in hand */
    int log_way[CKPT_SEARCH_LOG];      /* the ways that they had; -1: did not run */
    int log_count, log_max; /* no more than so many: deep graphs know moves of any size, most of them useless */
    int *live;              /* buffers that lived through live_at unused, when it was listed; room for all */
    int live_count, live_age, live_age_max;
    ckpt_instant live_at;
    const ckpt_plan_options *options;
    int *choice; /* ops that have a choice of ways; NULL: none has */
    int choice_count;
} ckpt_searcher;

int ckpt_search_roll(ckpt_searcher *w, int sides); /* 0 .. sides - 1 */
/* A run changed and logged; false: not. */
bool ckpt_move_set(ckpt_searcher *w, int k, int v, int way);
bool ckpt_move_toggle(ckpt_searcher *w, int k, int v);
/* Is anything that run (k, v), which there is, writes used before it is written again, or an output? */
bool ckpt_move_is_used(const ckpt_searcher *w, int k, int v);
/* Take back what is in the log but for the first `count`. */
void ckpt_move_undo(ckpt_searcher *w, int count);
/* A move of any kind; it may come to nothing. */
void ckpt_move_any(ckpt_searcher *w);
/* Another way for a run of an op that has a choice; it may come to nothing (search_way.c). */
void ckpt_move_way(ckpt_searcher *w);
/* From a state within the limit to one that is faster by changing the way of one run, until no such change is one. */
void ckpt_search_polish_ways(ckpt_searcher *w);

/* From a state within the limit to one that is faster by taking a pair out, or by taking one out and ending another
 * life instead, until none of these makes it faster, or the options end it. */
void ckpt_search_polish(ckpt_searcher *w, int64_t work, const ckpt_plan_options *options);

#endif
