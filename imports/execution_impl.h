/* What the parts of the ExecutionTrace importer share, in the order they run:
 *   read   JSON -> nodes with their tensors, sorted by id (= the order in which they began)
 *   step   one training step of them, its outermost ops, their phases and layers
 *   flow   which storage holds which value when: births, reads, writes in place
 *   graph  values and ops -> ckpt_graph
 *   times  a Kineto trace of the same run -> time of each op */
#ifndef CKPT_IMPORTS_EXECUTION_IMPL_H
#define CKPT_IMPORTS_EXECUTION_IMPL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/formats/graph.h"
#include "core/json/json.h"
#include "imports/import.h"
#include "imports/import_impl.h"

/* The trace numbers addresses, not objects: a number comes again when memory is used again. */
typedef struct ckpt_et_tensor {
    int64_t number;   /* of the tensor; as the file has it until all are read, then 0..number_count-1 */
    int64_t storage;  /* the same of its memory; -1: none that counts (undefined, empty, on another device) */
    ckpt_bytes bytes; /* elements times their size */
    ckpt_bytes end;   /* bytes of its storage up to its last element; -1: the file has no strides */
    int argument;     /* which input or output of its node it is, or is in */
    int device;       /* index into the device names */
    bool scalar;      /* no dimensions */
    bool written;     /* an input the node's schema says it writes */
} ckpt_et_tensor;

typedef struct ckpt_et_node {
    int64_t id, parent_id, rf_id, seq_id, scope;
    const char *name, *schema; /* schema "": no operator */
    int parent;                /* -1: none in the file */
    int allocation;            /* index in the file's "nodes" */
    int input, input_count;    /* tensors */
    int output, output_count;
    bool random;   /* draws numbers, by its schema and arguments */
    bool compiled; /* code that torch.compile made: what it reads and writes is not in the trace */
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
    int other_device_count;        /* tensors left out because they lie elsewhere */
    int sparse_count;              /* tensors without memory of their own */
    int cut_lists;                 /* lists that PyTorch cut off at 4096 elements */
} ckpt_et_trace;

typedef struct ckpt_et_op {
    int node;
    int first_below; /* its nodes in order, itself first: next through ckpt_et_step.below; -1 ends */
    ckpt_phase phase;
    const char *layer;
    bool accumulates_parameter; /* under AccumulateGrad: its outputs are the gradients of parameters */
    bool root_gradient;         /* the ones that backward begins with */
    bool random, writes_static; /* why it may not run again */
    bool left_out;              /* makes views only, or touches nothing of the device */
    ckpt_bytes moved, workspace;
    ckpt_ns time_ns;
    bool timed;
    int first_use, use_count;
} ckpt_et_op;

typedef struct ckpt_et_step {
    ckpt_et_op *op;
    int op_count;
    const int *below;    /* per node: the next of the same op */
    const int *top;      /* per node: its op, -1 none */
    const char *name;    /* "ProfilerStep#3"; what bounds it otherwise */
    int candidates;      /* steps the file has */
    bool late_zero_grad; /* last step's gradients are let go after forward has begun */
    int optimizer_steps; /* in the window */
} ckpt_et_step;

/* What a storage holds between two writes. */
typedef struct ckpt_et_value {
    int op; /* that wrote it; -1: it was there before the step */
    int64_t storage;
    ckpt_bytes bytes;
    int previous;             /* the value it was written over; -1 */
    int lineage;              /* the first of those */
    bool output;              /* of the op itself, not of one inside it */
    bool parameter_gradient;  /* of a lineage's first: what autograd handed over as a parameter's gradient */
    bool superseded;          /* another value was written over it */
    bool loss;                /* what backward began from */
    bool used;                /* by a later op: else it is scratch of its own, when it is no output */
    bool read[4], written[4]; /* by ops of that phase */
    int buffer;               /* in the graph; -1 */
    int last_op;              /* the last op with a use of it, and where that use stands */
    int last_use;
} ckpt_et_value;

typedef enum ckpt_et_use_kind { CKPT_ET_READ, CKPT_ET_WRITE, CKPT_ET_ADD } ckpt_et_use_kind;

typedef struct ckpt_et_use {
    int value;
    ckpt_et_use_kind kind;
    int next; /* CKPT_ET_WRITE: the value that takes its place; -1 when it was there before the step */
} ckpt_et_use;

typedef struct ckpt_et_flow {
    ckpt_et_value *value;
    int value_count;
    ckpt_et_use *use; /* of op after op */
    int use_count;
} ckpt_et_flow;

CKPT_MUST_USE ckpt_code ckpt_et_read(const char *path, ckpt_arena *work, ckpt_et_trace *trace, ckpt_err *err);

/* One argument of an operator's schema; false at the end. *at starts at the schema and is moved on. */
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
    int timed, wanted;
} ckpt_et_timing;
CKPT_MUST_USE ckpt_code ckpt_et_times(const char *path, const ckpt_et_trace *trace, ckpt_et_step *step,
                                      ckpt_et_timing *timing, ckpt_err *err);

CKPT_MUST_USE ckpt_code ckpt_et_graph(const ckpt_et_trace *trace, const ckpt_et_step *step, ckpt_et_flow *flow,
                                      ckpt_arena *out, ckpt_graph **graph, ckpt_err *err);

#endif
