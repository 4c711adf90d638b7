/* Shared by the parts of the ExecutionTrace importer, in the order they run:
 *   read   JSON -> nodes with their tensors, sorted by id, the order in which they began
 *   step   nodes of one training step -> its outermost ops with phases and layers
 *   flow   tensors -> values: which op makes, reads and overwrites what a storage holds
 *   kineto a Kineto trace of the same run -> time, workspace and module of each op
 *   graph  values and ops -> ckpt_graph */
#ifndef CKPT_IMPORTS_EXECUTION_IMPL_H
#define CKPT_IMPORTS_EXECUTION_IMPL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/formats/graph.h"
#include "core/json/json.h"
#include "imports/import.h"
#include "imports/import_impl.h"

/* Numbers are those of addresses, not objects: memory that is reused has the same number. */
typedef struct ckpt_et_tensor {
    int64_t number;   /* of the tensor: from the file at first; 0..number_count-1 when all are read */
    int64_t storage;  /* likewise of its memory; -1: none (undefined, empty, on another device) */
    ckpt_bytes bytes; /* elements times their size */
    ckpt_bytes end;   /* bytes of its storage up to its last element; -1: no strides in the file */
    int argument;     /* the input or output of its node that it is or belongs to */
    int device;       /* index into the device names */
    bool scalar;      /* no dimensions */
    bool written;     /* an input that the node writes, by its schema */
    bool statistic;   /* likewise, and what the node returns does not depend on it: batch norm's running statistics */
} ckpt_et_tensor;

typedef struct ckpt_et_node {
    int64_t id, parent_id, rf_id, seq_id, scope;
    const char *name, *schema; /* schema "": no operator */
    int parent;                /* -1: none in the file */
    int position;              /* index in the file's "nodes" */
    int input, input_count;    /* tensors */
    int output, output_count;
    bool random;        /* draws numbers, by its schema and arguments */
    bool own_generator; /* of a generator that the program made */
    bool compiled;      /* made by torch.compile: its reads and writes are not in the trace */
} ckpt_et_node;

enum { CKPT_ET_SCOPE_BACKWARD = 1, CKPT_ET_SCOPE_USER = 7 }; /* at::RecordScope */

typedef struct ckpt_et_trace {
    const char *path;
    ckpt_arena *work; /* everything but the graph */
    ckpt_et_node *node;
    int node_count;
    ckpt_et_tensor *tensor;
    int tensor_count, number_count;
    const char **device;
    int device_count, main_device; /* the one that holds most */
    int other_device_count;        /* tensors left out because they are on other devices */
    int sparse_count;              /* tensors without memory of their own */
    int cut_lists;                 /* lists that PyTorch cut off at 4096 elements */
} ckpt_et_trace;

typedef struct ckpt_et_op {
    int node;
    int first_below; /* its first node, itself; ckpt_et_step.below gives the next; -1 ends */
    ckpt_phase phase;
    const char *layer;          /* an annotation around it, or the innermost nn.Module; NULL: none */
    int origin;                 /* backward: the op of forward that it belongs to; -1: unknown */
    bool accumulates_parameter; /* under AccumulateGrad: its outputs are the gradients of parameters */
    bool root_gradient;         /* makes the ones that backward begins with */
    bool random;
    bool statistics; /* updates running statistics */
    bool once;       /* recomputed it would give something else, or change what outlives the step again */
    bool left_out;   /* only makes views, or touches nothing on the device */
    ckpt_bytes moved, workspace;
    ckpt_bytes made; /* by it, and there after it */
    ckpt_ns time_ns;
    bool timed;
    int first_use, use_count;
} ckpt_et_op;

typedef struct ckpt_et_step {
    ckpt_et_op *op;
    int op_count;
    const int *below;    /* per node: the next of the same op */
    const int *top;      /* per node: its op, -1 none */
    const char *name;    /* "ProfilerStep#3", or what else bounds the step */
    int candidates;      /* steps the file has */
    bool late_zero_grad; /* the previous step's gradients are freed after forward has begun */
    int optimizer_steps; /* in the window */
} ckpt_et_step;

/* The content of a storage between two writes. */
typedef struct ckpt_et_value {
    int op; /* that wrote it; -1: from before the step */
    int64_t storage;
    ckpt_bytes bytes;
    int previous;             /* the value that it overwrote; -1 */
    int lineage;              /* the first value of that chain */
    bool output;              /* of the op itself, not of an op inside it */
    bool parameter_gradient;  /* set on a lineage's first value: autograd made it a parameter's gradient */
    bool superseded;          /* another value overwrote it */
    bool loss;                /* backward began from it */
    bool used;                /* by a later op; a value that is neither used nor an output is scratch */
    bool read[4], written[4]; /* by ops of that phase */
    int buffer;               /* in the graph; -1 */
    int last_op;              /* the last op that uses it, and the index of that use */
    int last_use;
    int last_write;     /* from before the step: the last op before the update that writes it; -1 */
    bool replaced;      /* gone within its op: another value came to its address */
    ckpt_bytes earlier; /* the most that such values took at its address */
} ckpt_et_value;

/* STATISTIC: as WRITE, but what the op returns does not depend on it. */
typedef enum ckpt_et_use_kind { CKPT_ET_READ, CKPT_ET_WRITE, CKPT_ET_ADD, CKPT_ET_STATISTIC } ckpt_et_use_kind;

typedef struct ckpt_et_use {
    int value;
    ckpt_et_use_kind kind;
    int next; /* CKPT_ET_WRITE: the value that replaces it; -1 if it is from before the step */
} ckpt_et_use;

typedef struct ckpt_et_flow {
    ckpt_et_value *value;
    int value_count;
    ckpt_et_use *use; /* sorted by op */
    int use_count;
} ckpt_et_flow;

CKPT_MUST_USE ckpt_code ckpt_et_read(const char *path, ckpt_arena *work, ckpt_et_trace *trace, ckpt_err *err);

/* Reads one argument of an operator's schema; false at the end. *at begins at the schema and moves. */
typedef struct ckpt_et_argument {
    const char *type, *name;
    int type_length, name_length;
    bool written; /* "Tensor(a!)" */
} ckpt_et_argument;
bool ckpt_et_next_argument(const char **at, ckpt_et_argument *argument);
bool ckpt_et_argument_is(const ckpt_et_argument *argument, const char *name);

CKPT_MUST_USE ckpt_code ckpt_et_find_step(const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_et_follow(const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_et_flow *flow,
                                       ckpt_err *err);

typedef struct ckpt_et_timing {
    bool kernels; /* times are those of kernels on a GPU */
    bool memory;  /* workspaces are those of memory events */
    int timed, wanted;
} ckpt_et_timing;
CKPT_MUST_USE ckpt_code ckpt_et_kineto(const char *path, const ckpt_et_trace *trace, ckpt_et_step *step,
                                       ckpt_et_timing *timing, ckpt_err *err);

/* A forward op that draws random numbers may be recomputed where the state of the generator before it is kept: a buffer
 * of so many bytes, which an op of its own writes. */
bool ckpt_et_has_state(const ckpt_et_op *op);
ckpt_bytes ckpt_et_state_bytes(const ckpt_et_trace *trace);

CKPT_MUST_USE ckpt_code ckpt_et_graph(const ckpt_et_trace *trace, const ckpt_et_step *step, ckpt_et_flow *flow,
                                      ckpt_arena *out, ckpt_graph **graph, ckpt_err *err);

#endif
