/* The true optimum of tiny graphs, found by trying everything, and the tiny graphs to find it of. Shares no code with
 * the planner: what it says is what every plan and every bound is judged by. */
#ifndef CKPT_TESTS_SUPPORT_BRUTE_H
#define CKPT_TESTS_SUPPORT_BRUTE_H

#include "core/formats/graph.h"

enum { CKPT_BRUTE_BUFFERS = 16, CKPT_BRUTE_OPS = 32 };

/* Which schedules count. */
typedef enum ckpt_brute_class {
    CKPT_BRUTE_ALL,      /* all that docs/reference/formats.md allows, without copies */
    CKPT_BRUTE_BACKWARD, /* an op runs again only after the last forward op */
    CKPT_BRUTE_STAGES,   /* between two first runs ops are recomputed in reference order, each once */
    CKPT_BRUTE_TWICE,    /* twice so */
    /* Stages, only after the last forward op, and what runs again before the first run of an op is an ancestor of what
       that needs. */
    CKPT_BRUTE_BACKWARD_STAGES,
} ckpt_brute_class;

/* Least time to do all ops with live bytes (workspaces counted, static not) never above `limit`; INT64_MAX: there is no
 * schedule. Any op that may run again may do so at any time, any buffer may go at any time, and an op with in-place
 * pairs may use them or not. */
ckpt_ns ckpt_brute_time(const ckpt_graph *graph, ckpt_bytes limit, ckpt_brute_class of);

/* The least limit at which there is a schedule. */
ckpt_bytes ckpt_brute_peak(const ckpt_graph *graph, ckpt_brute_class of);

/* A graph of at most CKPT_BRUTE_BUFFERS buffers. The shape follows from the seed:
 *   chains; chains of small blocks; training steps with skips, saved tensors, several outputs, gradients added to;
 *   training steps of elementwise layers that may run in place; any DAG, several outputs, ops that may not run again.
 *   chain   set when the graph is one of ckpt_test_chain; NULL allowed */
ckpt_graph *ckpt_brute_graph(ckpt_arena *arena, uint64_t seed, bool *chain);

#endif
