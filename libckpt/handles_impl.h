/* What stands behind the handles of ckpt.h: the planner's own structs, with the memory they live in. */
#ifndef CKPT_LIBCKPT_HANDLES_IMPL_H
#define CKPT_LIBCKPT_HANDLES_IMPL_H

#include <stdatomic.h>

#include "libckpt/job.h"

/* A ckpt_graph * of the API points to `graph`. */
typedef struct ckpt_owned_graph {
    ckpt_graph graph;
    ckpt_arena arena;
    atomic_int users; /* the caller, and each plan whose names are the graph's */
    bool finished;
    bool named;               /* the text it was read from has a name */
    ckpt_graph_source source; /* of a finished one, before anything is chosen */
    const char *const *word;  /* the options it was lowered by */
    int word_count;
    struct ckpt_build *build; /* while it is built; in the arena */
} ckpt_owned_graph;

/* A ckpt_plan * of the API points to `plan`. */
typedef struct ckpt_owned_plan {
    ckpt_plan plan;
    ckpt_arena arena;
    atomic_int users;        /* the caller, and each explanation and trace whose texts are the plan's */
    ckpt_owned_graph *graph; /* NULL: read from JSON */
    bool ended_early;
    const char *notes;
    ckpt_plan_step *step;
    ckpt_plan_allocation *allocation;
} ckpt_owned_plan;

const ckpt_owned_graph *ckpt_graph_owner(const ckpt_graph *graph);

/* One user more, of what is const to all of them but for their number; ..._destroy is one fewer. */
ckpt_owned_graph *ckpt_graph_hold(const ckpt_graph *graph);
ckpt_owned_plan *ckpt_plan_hold(const ckpt_plan *plan);

/* Memory for a handle of `size` bytes whose arena lies `arena` bytes from its start; NULL when there is none. */
void *ckpt_handle_create(size_t size, size_t arena);

/* Options and graph, checked to go together and ready to plan: `begun` is planning->source chosen, a budget, a start.
 *   options   NULL: `defaults`, which is filled */
CKPT_MUST_USE ckpt_code ckpt_planning_prepare(ckpt_planning *planning, const ckpt_graph *graph,
                                              const ckpt_options *options, ckpt_options *defaults, ckpt_arena *out,
                                              ckpt_err *err);

/* The graph as it was planned: with the link of the plan's options, if that is one of them.
 * Errors: CKPT_BAD_INPUT, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_graph_planned(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                           const ckpt_graph **planned, ckpt_err *err);

/* A copy of the plan in `out`, bound to the graph and replayed on it. `costs`: with its times and workspaces.
 * Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_replayed(const ckpt_plan *plan, const ckpt_graph *graph, bool costs, ckpt_arena *out,
                                           ckpt_plan **copy, ckpt_err *err);

/* `code` for a caller of the API, who gets `error` filled. */
int ckpt_status_of(ckpt_code code, const ckpt_err *err, ckpt_error *error);

/* The text handed to the caller, or NULL and an error; `text` is finished. */
char *ckpt_json_give(ckpt_text *text, size_t *length, ckpt_error *error);

#endif
