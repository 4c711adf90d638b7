/* Common to the files that turn plan steps into actions. */
#ifndef CKPT_EXECUTOR_SETUP_WIRE_IMPL_H
#define CKPT_EXECUTOR_SETUP_WIRE_IMPL_H

#include "executor/setup/memory_impl.h"

/* The plan's allocations by the step that makes them: by_step[first[step]] .. by_step[first[step + 1] - 1]. */
typedef struct ckpt_allocations {
    const int *first;
    const ckpt_allocation *const *by_step;
} ckpt_allocations;

/* A walk over the plan: the program so far, and what is in memory at the step the walk has come to. */
typedef struct ckpt_wiring {
    ckpt_program *program;
    ckpt_arena *out; /* the program's */
    ckpt_allocations allocations;
    const ckpt_allocation **held; /* per buffer: where it lies now; NULL: not in memory */
    unsigned char **host;         /* per buffer: its bytes in the slab; NULL: never offloaded */
    bool *updated;                /* per node: its parameters have changed in this step */
    int *stale; /* per buffer: 1 + the plan's step that made it, or what it is made of, of changed parameters; else 0 */
    /* With several ranks: */
    ckpt_transfer *transfer; /* per op of the graph that sends or receives */
    ckpt_exchange *exchange; /* per bucket */
    int tied_slot;           /* the first slot for tied parameters */
    float *tied_staging;     /* page-locked memory for them; NULL: none */
} ckpt_wiring;

/* Write the program's actions, and all that they point to. */
ckpt_code ckpt_wire(ckpt_program *program, ckpt_err *err);

/* Slots, pieces and page-locked memory of what goes to other ranks (wire_messages.c). */
ckpt_code ckpt_wire_messages(ckpt_wiring *wiring, ckpt_err *err);

/* The waits and signals of every action (order.c). */
ckpt_code ckpt_wire_order(ckpt_program *program, const ckpt_allocations *allocations, ckpt_err *err);

ckpt_code ckpt_wire_no_memory(ckpt_err *err);

/* Where an allocation lies; NULL: of none. */
void *ckpt_wire_allocation(const ckpt_program *program, const ckpt_allocation *allocation);

/* Where a buffer is at this moment; -1: NULL. */
ckpt_code ckpt_wire_buffer(const ckpt_wiring *wiring, int buffer, int step, void **address, ckpt_err *err);

/* Where value `v` of a micro-batch is at this moment: a model input in the static block, or its storage's buffer in the
 * arena. */
ckpt_code ckpt_wire_value(const ckpt_wiring *wiring, int batch, int v, int step, void **address, ckpt_err *err);

/* Note that the step is given `buffer` at `address`, for the allocations of a trace. */
ckpt_code ckpt_wire_touch(const ckpt_wiring *wiring, ckpt_action *action, int buffer, const void *address,
                          ckpt_err *err);

/* The gradient of a node's parameter at this moment, in the static block or in its buffer (`buffer`; -1: none). */
ckpt_code ckpt_wire_gradient(const ckpt_wiring *wiring, int node, int k, int step, int *buffer, float **address,
                             ckpt_err *err);

/* The way of a layer's run; NULL: its own. */
const ckpt_way *ckpt_wire_way(const ckpt_program *program, const ckpt_step *step);

/* What step `step`, a layer's, is given; and one that is no layer's. */
ckpt_code ckpt_wire_layer(const ckpt_wiring *wiring, int step, const ckpt_op_role *role, ckpt_action *action,
                          ckpt_err *err);
ckpt_code ckpt_wire_exchange(const ckpt_wiring *wiring, int step, const ckpt_op_role *role, ckpt_action *action,
                             ckpt_err *err);

#endif
