/* What a strategy is: graph and limit in, sequences out, fastest first. Every strategy only chooses an order of runs;
 * turning that into steps with frees, allocations and a predicted trace is done once, for all of them. */
#ifndef CKPT_PLANNER_SCHEDULE_STRATEGY_H
#define CKPT_PLANNER_SCHEDULE_STRATEGY_H

#include "core/formats/plan.h"
#include "core/formats/trace.h"
#include "planner/schedule/options.h"

/* What happens, in order: entry >= 0 is a run of ckpt_graph.op: of an op in its own way or as a variant (a second run of
 * an op: a recomputation), entry < 0 is a copy, see ckpt_sequence_copy. A buffer lives from the run that writes it to its last use before its next rewrite, or before the
 * end; one that is offloaded and fetched again lives until its CKPT_FREE entry, and again from its CKPT_FETCH entry.
 * A run is done in place when the op has in-place pairs and the live range of each pair's input ends with that run. */
typedef struct ckpt_sequence {
    const int *op;
    int count;
} ckpt_sequence;

/* The entry for CKPT_OFFLOAD, CKPT_FREE (of what has been offloaded) or CKPT_FETCH of a buffer, and back. */
int ckpt_sequence_copy(ckpt_step_kind kind, int buffer);
ckpt_step_kind ckpt_sequence_kind(int entry, int *target);

/* A sequence and its figures. */
typedef struct ckpt_candidate {
    ckpt_sequence sequence;
    ckpt_bytes peak; /* the most that is live in any step: workspaces counted, static not */
    ckpt_ns time;
    const char *by; /* the strategy that found it, where that is another than the one that was asked; else NULL */
} ckpt_candidate;

enum { CKPT_CANDIDATES_MAX = 32, CKPT_FALLBACKS_MAX = 16, CKPT_LOW_MAX = 24, CKPT_LOW_OF_PARTS = 4 };

/* What a strategy knows to do. */
typedef struct ckpt_candidates {
    /* Within the limit, fastest first. The slower ones have lower peaks: they are for when the allocations of those
     * before take more than what is live. */
    ckpt_candidate candidate[CKPT_CANDIDATES_MAX];
    int count; /* 0: this strategy has no schedule within the limit */
    /* The fastest of each part that built from nothing, and of each turn of the search, for when the allocations of all
     * candidates so far take more: where nothing has a lower peak, there is no other candidate. */
    ckpt_candidate fallback[CKPT_FALLBACKS_MAX];
    int fallback_count;
    /* The lowest peak that this strategy knows how to reach within 2^63 ns; no sequence when there is none. Where there
     * is no other candidate, or with options->only_min_peak, it depends on the graph and the effort alone. */
    ckpt_candidate min_peak;
    /* Others of low peak, as independent of the limit: their allocations may take less than those of min_peak. */
    ckpt_candidate low[CKPT_LOW_MAX];
    int low_count;
    bool has_bound;
    ckpt_ns bound_ns; /* nothing in `bound_scope` is faster within the limit */
    const char *bound_how, *bound_scope;
} ckpt_candidates;

/* Schedules of low peak that do not depend on the limit, of one graph with all ops in their own ways. */
typedef struct ckpt_low_memo {
    bool known;
    ckpt_candidate low[CKPT_LOW_OF_PARTS];
    int count;
} ckpt_low_memo;

typedef struct ckpt_strategy {
    const char *name; /* "sqrt" */
    const char *help; /* one line */
    const char *source;
    bool budgeted; /* uses the limit: may give different sequences for different limits */
    bool flags;    /* reads the user's checkpoint flags */
    bool link;     /* is for graphs with a link */
    bool variants; /* plans variants itself; others are asked for selected ways (planner/variants) */
    bool baseline; /* what people do without a planner, for comparison: auto does not ask it */
    /* Sequences whose live bytes never exceed `limit` >= 0 where the strategy can help it; CKPT_BYTES_MAX: no limit.
     * `candidates` comes empty but for the min_peak, where one is known. Strategies write a ckpt_order and hand it over
     * by ckpt_order_end, which measures it.
     * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
    ckpt_code (*plan)(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err);
} ckpt_strategy;

extern const ckpt_strategy *const ckpt_strategy_table[]; /* NULL ends it; written by the build */
const ckpt_strategy *ckpt_strategy_find(const char *name);

/* The most that is live in any step of a sequence, static not counted, and its time; INT64_MAX when 63 bits do not hold
 * that. Errors: CKPT_OVERFLOW (uses more than 2^30 buffers), CKPT_NO_MEMORY. Cost: O(total reads + writes). */
CKPT_MUST_USE ckpt_code ckpt_sequence_measure(const ckpt_graph *graph, const ckpt_sequence *sequence,
                                              ckpt_arena *scratch, ckpt_bytes *peak, ckpt_ns *time, ckpt_err *err);

#endif
