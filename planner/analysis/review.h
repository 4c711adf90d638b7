/* Compares a saved plan with the plan that would be made now: graph, figures, decisions. Knows plans and outlines of
 * graphs, no strategy. */
#ifndef CKPT_PLANNER_ANALYSIS_REVIEW_H
#define CKPT_PLANNER_ANALYSIS_REVIEW_H

#include "core/base/text.h"
#include "core/formats/plan.h"

typedef enum ckpt_change_kind { CKPT_CAME, CKPT_WENT, CKPT_RESIZED } ckpt_change_kind;

/* An op, a buffer or a static block of the graph. */
typedef struct ckpt_graph_change {
    ckpt_change_kind kind;
    const char *what; /* "op", "buffer", "static block" */
    const char *name;
    ckpt_bytes was, now; /* 0 where it was or is not there, and of ops */
} ckpt_graph_change;

typedef struct ckpt_layer_change {
    const char *layer;
    ckpt_decision was, now;
} ckpt_layer_change;

typedef struct ckpt_plan_changes {
    bool same;        /* nothing differs but seconds, where times come from, and options */
    bool other_graph; /* the digests differ */
    bool same_steps;  /* and allocations: only figures about them differ */
    /* From the outlines, where both plans have one: by what and kind, the largest difference first. When there is none,
     * another graph differs only in reads or writes. */
    const ckpt_graph_change *graph;
    int graph_count;
    int retimed; /* ops that take another time */
    /* Layers that both have. */
    const ckpt_layer_change *layer;
    int layer_count;
} ckpt_plan_changes;

/* The strings belong to the plans. Errors: CKPT_NO_MEMORY. Cost: O(size of the plans), names sorted. */
CKPT_MUST_USE ckpt_code ckpt_plan_compare(const ckpt_plan *was, const ckpt_plan *now, ckpt_arena *out,
                                          ckpt_plan_changes *changes, ckpt_err *err);

/* What --check finds out about a plan. */
typedef struct ckpt_review {
    const ckpt_plan *was;
    const ckpt_plan *now;     /* where it cannot be planned anew: only its graph */
    const char *unrepeatable; /* the option that leaves it to chance or to another file, "--start"; NULL: none does */
    ckpt_plan_changes changes;
    bool fits;       /* its steps can be run on the graph that is now, under the budget that is now */
    const char *why; /* why it does not fit */
    /* The command that writes the plan that fits now, word by word; none (0) where none fits or it cannot be planned
     * anew. */
    const char *const *command;
    int command_count;
} ckpt_review;

/* It fits, and the planner makes the same plan now, as far as that can be told. */
bool ckpt_review_is_good(const ckpt_review *review);

void ckpt_review_text(const ckpt_review *review, ckpt_text *text);
void ckpt_review_json(const ckpt_review *review, ckpt_text *text);

#endif
