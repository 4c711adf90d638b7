/* Common to the parts of lowering: a network becomes a graph op by op, in reference order.
 *
 *     lower.c          the order of a step (1F1B), and the graph at the end
 *     lower_graph.c    ops, buffers and lists of that graph
 *     lower_layer.c    forward, backward and update of one layer
 *     lower_way.c      other ways of a layer
 *     lower_pass.c     gradients that one buffer stands for
 *     lower_stage.c    values and gradients that travel between stages
 *     lower_bucket.c   reductions over ranks, the norm of all gradients, the order of updates
 *     lower_time.c     how long an op takes */
#ifndef CKPT_OPS_LOWERING_LOWER_IMPL_H
#define CKPT_OPS_LOWERING_LOWER_IMPL_H

#include "ops/lowering/network.h"

enum {
    /* What one op of a layer can read or write: with fused gradients those of its parameters too. */
    CKPT_COLLECTED_MAX = 2 * CKPT_OUT_MAX + CKPT_IN_MAX + CKPT_SAVED_MAX + CKPT_PARAM_MAX,
};

/* A list of buffers that holds each once. */
typedef struct ckpt_collected {
    int at[CKPT_COLLECTED_MAX];
    int count;
} ckpt_collected;

/* A value that this stage receives or sends on, and its gradient, which goes the same way back. */
typedef struct ckpt_route {
    int value;     /* storage value id */
    int from, to;  /* the stage it comes from; the one it goes to; -1: none */
    bool back_in;  /* its gradient comes from `to` */
    bool back_out; /* its gradient goes to `from` */
    int givers;    /* inputs of this stage's backward ops that contribute to its gradient */
    int left;      /* of them, in the micro-batch that is lowered: those still to come */
} ckpt_route;

/* A message that was sent and not yet waited for. */
typedef struct ckpt_pending {
    int route, batch, buffer;
    bool gradient;
    int64_t due; /* when the other stage has received it, see lower_stage.c */
} ckpt_pending;

typedef struct ckpt_bucket_progress {
    int last;                    /* the node whose backward completes it */
    int buffer;                  /* "@bucket.k"; -1: not there */
    int updates;                 /* still to come */
    ckpt_ns scattered, gathered; /* when the reduce-scatter and the all-gather of the sums end */
    bool reduced, summed;
} ckpt_bucket_progress;

typedef struct ckpt_lowering {
    const ckpt_network *network;
    const ckpt_profile *profile;
    const ckpt_device_model *device;
    ckpt_arena *out;
    const ckpt_profile_row **row; /* per node; NULL: none */
    int batch;                    /* the micro-batch that is lowered */
    const char *label;            /* of the layer that is lowered, in that micro-batch */
    ckpt_graph_op *op;
    ckpt_op_role *op_role;
    int op_count, op_capacity;
    ckpt_graph_op *variant; /* of the ops so far */
    const ckpt_way **way;   /* of each */
    int variant_count, variant_capacity;
    ckpt_buffer *buffer;
    ckpt_buffer_role *buffer_role;
    int buffer_count, buffer_capacity;
    int *value_buffer, *grad_buffer, *saved_buffer, *param_grad_buffer; /* as in ckpt_lowered */
    int *pass_end;            /* per buffer: the producer that is the last to read a gradient that stands for several
                                 (lower_pass.c); -1: it stands for one */
    bool *param_written;      /* [node * CKPT_PARAM_MAX + k] of owners: a gradient has reached it */
    const bool *has_backward; /* per node of the whole network: a stage must know what those behind it send back */
    int *completes;    /* per owner: the node whose backward is the last to reach its parameters; -1: none does */
    ckpt_route *route; /* in increasing `value` */
    int route_count;
    int *route_of;         /* per value; -1: it does not travel */
    ckpt_pending *pending; /* in the order in which they were sent */
    size_t pending_count, pending_capacity;
    int back; /* the route whose gradient is the next to be sent back; all above are gone */
    const ckpt_bucket *bucket;
    int bucket_count;
    ckpt_bucket_progress *progress; /* per bucket */
    int *bucket_of;                 /* per node; -1: none */
    int completed;                  /* buckets whose gradients are complete */
    bool *late;                     /* per node: its update waits for a tied group's all-reduce */
    bool has_late;                  /* a node of this stage does */
    ckpt_ns elapsed, network_free;  /* by all ops before `timed`; when the network has nothing left to do */
    int timed;
} ckpt_lowering;

/* Is it a node of the stage that is lowered? */
bool ckpt_lower_here(const ckpt_lowering *l, int node);

/* Lists, ops and buffers. `value` and everything else of a role that is not said is -1; buffers are rounded up to
 * CKPT_ALIGN. */
void ckpt_lower_collect(ckpt_collected *list, int buffer);
ckpt_code ckpt_lower_list(const ckpt_lowering *l, const int *from, int count, ckpt_list *list, ckpt_err *err);
ckpt_code ckpt_lower_keep(const ckpt_lowering *l, const ckpt_collected *from, ckpt_list *list, ckpt_err *err);
/* "<prefix>/<what>" with that label and that phase; `what` NULL: the prefix alone. */
ckpt_code ckpt_lower_op(ckpt_lowering *l, const char *label, const char *prefix, const char *what, ckpt_phase phase,
                        ckpt_graph_op **op, ckpt_op_role **role, ckpt_err *err);
extern const ckpt_buffer_role ckpt_lower_holds_nothing;
ckpt_code ckpt_lower_buffer(ckpt_lowering *l, const char *name, const char *suffix, ckpt_bytes bytes, ckpt_kind kind,
                            ckpt_buffer_role role, int *index, ckpt_err *err);
/* "h.0@1": the name of a layer in the micro-batch that is lowered; NULL: no memory. */
const char *ckpt_lower_label(const ckpt_lowering *l, const char *name);
/* "split@1:1": of a value. */
const char *ckpt_lower_value_name(const ckpt_lowering *l, int value);
/* The buffer of a value's storage, or of its gradient, in the micro-batch that is lowered. */
int *ckpt_lower_value(const ckpt_lowering *l, int value);
int *ckpt_lower_grad(const ckpt_lowering *l, int value);
/* Of saved tensor k of a node. */
int *ckpt_lower_saved(const ckpt_lowering *l, const ckpt_node *node, int k);

/* Layers. */
ckpt_code ckpt_lower_forward(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err);
ckpt_code ckpt_lower_backward(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err);
/* What a backward reads: the gradients that come in, and what the masks say. */
void ckpt_lower_needs(const ckpt_lowering *l, const ckpt_node *node, uint64_t ins, uint64_t outs, uint64_t saveds,
                      ckpt_collected *reads);
/* Whether other ways of the node are lowered: where it has a backward, which reads what they save. */
bool ckpt_lower_has_ways(const ckpt_lowering *l, const ckpt_node *node);
/* The node's ways of that direction, as variants of its op, the last of l->op, which is complete but for in-place
 * pairs. `row`: what was measured; NULL: nothing. */
ckpt_code ckpt_lower_ways(ckpt_lowering *l, const ckpt_node *node, const ckpt_profile_row *row, ckpt_graph_op *op,
                          const ckpt_op_role *role, ckpt_err *err);
/* At the end: the in-place pairs of variants, and the graph's ops with their variants behind them. */
ckpt_code ckpt_lower_join_ways(ckpt_lowering *l, ckpt_graph *graph, ckpt_err *err);
/* Inputs of a backward whose gradients are the buffer of its output's: nothing is to be done for them. */
uint64_t ckpt_lower_pass(ckpt_lowering *l, const ckpt_node *node);
/* Nothing where no gradient reaches parameters of its own. */
ckpt_code ckpt_lower_update(ckpt_lowering *l, const ckpt_node *node, int bucket, ckpt_err *err);

/* Stages: the routes; what stands before a forward and before a backward of a micro-batch, behind a forward and a
 * backward op, and at the end. */
ckpt_code ckpt_lower_routes(ckpt_lowering *l, ckpt_err *err);
ckpt_code ckpt_lower_receive_values(ckpt_lowering *l, ckpt_err *err);
ckpt_code ckpt_lower_send_results(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err);
ckpt_code ckpt_lower_receive_gradients(ckpt_lowering *l, ckpt_err *err);
ckpt_code ckpt_lower_send_gradients(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err);
ckpt_code ckpt_lower_sent_all(ckpt_lowering *l, ckpt_err *err);

/* Buckets: what there are; what stands behind a backward op of the last micro-batch, updates of fused gradients too;
 * and all that is left, with the updates, behind the last. */
ckpt_code ckpt_lower_buckets(ckpt_lowering *l, ckpt_err *err);
ckpt_code ckpt_lower_completed(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err);
ckpt_code ckpt_lower_updates(ckpt_lowering *l, ckpt_err *err);

/* *total: staging, and behind it `bytes` rounded up to CKPT_ALIGN. */
ckpt_code ckpt_lower_workspace(ckpt_bytes staging, ckpt_bytes bytes, ckpt_bytes *total, ckpt_err *err);

/* Times. */
ckpt_ns ckpt_lower_roofline(const ckpt_lowering *l, const ckpt_node *node, ckpt_direction direction,
                            const ckpt_op_role *role);
ckpt_code ckpt_lower_match_profile(ckpt_lowering *l, ckpt_err *err);
ckpt_ns ckpt_lower_time(const ckpt_lowering *l, const ckpt_node *node, ckpt_direction direction,
                        const ckpt_timing *measured, ckpt_ns stated, const ckpt_op_role *role);
/* At the end, of a profile taken in the step: runs again, and the step's overhead. */
ckpt_code ckpt_lower_settle_times(ckpt_lowering *l, ckpt_err *err);
/* From rank to rank. */
ckpt_ns ckpt_lower_network_ns(const ckpt_lowering *l, ckpt_bytes bytes);

#endif
