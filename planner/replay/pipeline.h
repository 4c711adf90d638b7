/* Replays all stages of a pipeline on one clock. Knows plans, graphs and the names of messages between stages, no
 * strategy. */
#ifndef CKPT_PLANNER_REPLAY_PIPELINE_H
#define CKPT_PLANNER_REPLAY_PIPELINE_H

#include "planner/replay/replay.h"

typedef struct ckpt_pipeline_stage {
    const ckpt_trace *trace; /* as ckpt_plan_simulate, on the common clock, with a "wait" event in front of every run
                                that waits for another stage; named "<graph>, stage 1 of 4" */
    ckpt_ns busy_ns;         /* runs, the time of messages included */
    ckpt_ns idle_ns;         /* time_ns of all stages less that */
    double bubble;           /* idle / all; 0 when that is 0 */
} ckpt_pipeline_stage;

typedef struct ckpt_pipeline {
    const ckpt_pipeline_stage *stage;
    int stages;
    ckpt_ns time_ns; /* until the last stage is done */
    double bubble;   /* of all stages together */
} ckpt_pipeline;

/* Replay the plans of all stages, in order, at once. A run "x/receive" begins after "x/send" has ended in the nearest
 * earlier stage that has it ("x/grad/receive": in the nearest later stage), and then takes its own time. A run "x/sent"
 * begins after that receive was reached.
 *
 *   plan, graph   [stages]; each plan has passed ckpt_plan_check on its graph
 *
 * Errors: CKPT_BAD_INPUT (a message that nobody sends or receives; stages that wait for each other, with the ops they
 * wait in), CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(steps log ops). */
CKPT_MUST_USE ckpt_code ckpt_pipeline_simulate(const ckpt_plan *const *plan, const ckpt_graph *const *graph, int stages,
                                               ckpt_arena *out, ckpt_pipeline *pipeline, ckpt_err *err);

#endif
