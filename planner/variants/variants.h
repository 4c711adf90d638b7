/* Variants for strategies that know none: one way of every op is selected, which makes a graph without variants; what is
 * planned on it is lifted to the graph with variants. */
#ifndef CKPT_PLANNER_VARIANTS_VARIANTS_H
#define CKPT_PLANNER_VARIANTS_VARIANTS_H

#include "planner/schedule/strategy.h"
#include "planner/schedule/ways.h"

typedef struct ckpt_selection {
    const ckpt_graph *graph; /* without variants; buffers that no selected way writes are not there */
    const int *run;          /* per op of it: the run of the whole graph that it stands for */
    const int *buffer;       /* per buffer of it: its index in the whole graph */
} ckpt_selection;

/* The way of every op that is worth most at a price of memory: times, and every buffer's bytes for the share of the
 * step that it lives through, are smallest together. An op is done in a way that fits into `limit` alone, where there
 * is one; optional ops run only where a selected way reads what they write.
 *   price   ns for one byte kept through the whole step
 *   way     written: per op the run selected for it; -1: an optional op that does not run
 * Errors: CKPT_NO_MEMORY. Cost: O(rounds x total reads of all ways). */
CKPT_MUST_USE ckpt_code ckpt_ways_select(const ckpt_graph *graph, ckpt_bytes limit, double price,
                                         const ckpt_plan_options *options, ckpt_arena *scratch, int *way,
                                         ckpt_err *err);

/* Can a schedule within the limit use this run? Else it says nothing in a bound. */
bool ckpt_way_possible(const ckpt_graph *graph, int run, ckpt_bytes limit, const ckpt_plan_options *options);

/* A graph without variants such that no schedule of `graph` within `limit` is faster than all of its own: for bounds. A
 * graph without variants is its own. Errors: CKPT_NO_MEMORY. Cost: O(reads and writes of all ways). */
CKPT_MUST_USE ckpt_code ckpt_variants_relax(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                            ckpt_arena *out, const ckpt_graph **relaxed, ckpt_err *err);

/* The graph of the selected ways. Errors: CKPT_NO_MEMORY, CKPT_BAD_INPUT (a way reads what no selected way writes). */
CKPT_MUST_USE ckpt_code ckpt_selection_make(const ckpt_graph *graph, const int *way, ckpt_arena *out,
                                            ckpt_selection *selection, ckpt_err *err);

/* Ask a strategy that knows no variants: for several selections, whose candidates are put together. A graph without
 * variants is asked about as it is. Baselines and the flags of users know only the own ways of ops. A strategy that knows variants is asked twice: about the graph with all ops in
 * their own ways, and about the whole, from what it then found. Errors: those of the strategy. Cost: the strategy's for
 * each selection. */
CKPT_MUST_USE ckpt_code ckpt_variants_ask(const ckpt_strategy *strategy, const ckpt_graph *graph, ckpt_bytes limit,
                                          const ckpt_plan_options *options, ckpt_arena *out,
                                          ckpt_candidates *candidates, ckpt_err *err);

/* A candidate for the selected graph as one for the whole graph; its figures stay. Errors: CKPT_NO_MEMORY. Cost:
 * O(entries). */
CKPT_MUST_USE ckpt_code ckpt_selection_lift(const ckpt_selection *selection, ckpt_arena *out, ckpt_candidate *candidate,
                                            ckpt_err *err);

#endif
