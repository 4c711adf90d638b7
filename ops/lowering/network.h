/* A model with every layer's op found and every shape inferred, and its lowering to a graph. Lowering knows ops by
 * their contracts alone; it knows no kernel, no plan and no budget. */
#ifndef CKPT_OPS_LOWERING_NETWORK_H
#define CKPT_OPS_LOWERING_NETWORK_H

#include "core/formats/graph.h"
#include "core/formats/model.h"
#include "core/formats/profile.h"
#include "core/formats/scheme.h"
#include "ops/device_model.h"
#include "ops/op.h"
#include "ops/optimizer.h"

/* Something a layer reads: a model input or one output of a layer. */
typedef struct ckpt_value {
    const char *name; /* "h.0.ln1", "split:1", "ids" */
    ckpt_tensor tensor;
    int node, output; /* producer; node -1: model input `output` */
    int storage;      /* value whose memory this is: itself, or what it aliases */
    bool needs_grad;  /* some parameter lies upstream and it is no integer */
} ckpt_value;

/* A tied parameter whose layers are in several stages. One layer of each stage holds a copy; other layers of the stage
 * are tied to that one. Every copy has its own gradient, and an all-reduce before the updates gives each the sum, in
 * the order of `holder`: the last layer's gradient first, as backward reaches it. So the copies and their optimizer
 * states stay equal. */
typedef struct ckpt_tied_group {
    int owner, param;  /* whose it is without stages, in files and in the norm of all gradients */
    const int *holder; /* nodes, the last first; the owner is one of them */
    int holder_count;  /* 2 or more */
} ckpt_tied_group;

/* Parameters that the optimizer treats alike (ckpt_param.group). */
typedef struct ckpt_param_group {
    double rate;                  /* factor of learning rates */
    double hyper[CKPT_HYPER_MAX]; /* the network's, with this group's weight decay */
} ckpt_param_group;

typedef struct ckpt_network {
    const ckpt_model *model;
    const ckpt_node *node; /* in layer order */
    int node_count;
    const ckpt_value *value; /* inputs first, then outputs in node order */
    int value_count;
    int loss_node; /* the last node, when its op is a loss; -1: cannot be trained */
    const ckpt_optimizer *optimizer;
    double hyper[CKPT_HYPER_MAX];
    const ckpt_param_group *group; /* group[0]: what no pattern of the model matches; then the model's */
    int group_count;
    int threads;       /* CKPT_ON_GPU: for a GPU */
    double clip_norm;  /* gradients longer than this, all of them as one vector, are shortened to it; 0: never */
    double loss_scale; /* the loss's gradient starts with this and is divided out again before the update; 1: plain */
    double ema;        /* the average of the weights keeps this share of itself in a step; 0: there is no average */
    ckpt_scheme scheme;
    const int *stage_of;               /* per node: its pipeline stage; all 0 when there is one */
    const ckpt_tied_group *tied_group; /* parameters that stages have copies of */
    int tied_group_count;
} ckpt_network;

/* `threads`: what the CPU's kernels will use, >= 1; CKPT_ON_GPU: workspaces are those of a GPU. With the model's dtype
 * bfloat16, every floating-point input is a bfloat16 value here, whatever the model's input says (float32: what is
 * loaded from files, and narrowed when it goes to the device). Errors: CKPT_BAD_INPUT "model.json:41:9: layer h.0.qkv
 * (linear): ...". */
CKPT_MUST_USE ckpt_code ckpt_network_infer(const ckpt_model *model, int threads, ckpt_arena *out,
                                           const ckpt_network **network, ckpt_err *err);

/* The same network, which must not have been spread before, to be trained by `scheme`, whose first_layer must be chosen
 * when there are several stages. Shares all else. Errors: CKPT_BAD_INPUT (ckpt_scheme_check; a first layer that does
 * not exist, stages out of layer order, a layer that reads from a later stage; a sharded optimizer, or a layer no
 * gradient comes to, where stages share parameters; a sharded optimizer that updates parameters as a whole; "clip_norm"
 * with fused gradients: the norm is of all gradients, the first of which would be gone), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_network_spread(const ckpt_network *network, const ckpt_scheme *scheme, ckpt_arena *out,
                                            const ckpt_network **spread, ckpt_err *err);

/* The numbers of training step `step`, which counts from 1: learning rates by the model's schedule and groups, how far
 * the average moves (in the first step all the way: it starts as the weights), the factor of clip_norm. */
void ckpt_network_numbers(const ckpt_network *network, uint64_t step, ckpt_numbers *numbers);

/* Slots of the static block's optimizer section: the optimizer's, and then one of the average of the weights. */
int ckpt_network_slots(const ckpt_network *network);
/* Bytes of one of them for parameter k of a node. */
ckpt_bytes ckpt_network_slot_bytes(const ckpt_network *network, int node, int k, int slot);
/* Bytes of workspace of a node's update: the most that one of its parameters takes. */
ckpt_bytes ckpt_network_update_bytes(const ckpt_network *network, const ckpt_node *node);

/* What the executor does for an op of the lowered graph. A bucket is reduced by a reduce-scatter, each replica summing
 * its own chunk in the order of replicas, and an all-gather of the sums. */
typedef enum ckpt_task {
    CKPT_TASK_LAYER,   /* the node's kernel, by `phase`; an update's: of its parameters */
    CKPT_TASK_SEND,    /* copy the value (or its gradient) to the buffer it writes, and start sending that to `peer` */
    CKPT_TASK_SENT,    /* wait until the message has gone */
    CKPT_TASK_RECEIVE, /* wait for the message from `peer`, in the buffer it writes */
    CKPT_TASK_REDUCE_START, /* overlap: start the reduce-scatter of `bucket` into the buffer it writes */
    CKPT_TASK_REDUCE,       /* end the reduce-scatter (without overlap: all of it, in workspace); without sharding start
                               the all-gather of the sums (without overlap: and end it) */
    CKPT_TASK_REDUCE_END,   /* overlap without sharding: end the all-gather of the sums of `bucket` */
    CKPT_TASK_ALL_GATHER,   /* sharded optimizer: all-gather of the updated parameters of `bucket` */
    CKPT_TASK_REDUCE_TIED,  /* all-reduce of the gradients of `tied_group`; workspace: the copies that others send */
    CKPT_TASK_NORM, /* the length of all gradients, and from it the scale of the updates (only with clip_norm) */
} ckpt_task;

/* What an op of the lowered graph is. */
typedef struct ckpt_op_role {
    ckpt_task task;
    int node;       /* LAYER; SEND, SENT, RECEIVE: the producer of the value; else -1 */
    int batch;      /* micro-batch; -1: of none (update, reduce) */
    int value;      /* SEND, SENT, RECEIVE: storage value id; else -1 */
    bool gradient;  /* of them: its gradient */
    int peer;       /* of them: the other stage; else -1 */
    int bucket;     /* REDUCE_START .. ALL_GATHER, and an update's when there are buckets; else -1 */
    int tied_group; /* REDUCE_TIED: of network->tied_group; else -1 */
    ckpt_phase phase;
    /* backward: bit k of grad_in_adds = the gradient of input k is added to what is there, not written;
     * grad_param_adds likewise for parameters (a tied one is written by the first backward op that reaches it) */
    uint64_t grad_in_adds;
    uint64_t grad_param_adds;
    ckpt_flop flop; /* what its roofline is made of, staging included */
    ckpt_bytes moved_bytes;
    /* forward: how much longer a run again takes than the first; the graph op has the time of the former, and the layer's
     * backward op so much less (lower_time.c). Backward: the same below 0. */
    ckpt_ns again_more_ns;
} ckpt_op_role;

/* What a buffer of the lowered graph holds. */
typedef enum ckpt_holds {
    CKPT_HOLDS_VALUE,
    CKPT_HOLDS_SAVED,
    CKPT_HOLDS_GRADIENT,
    CKPT_HOLDS_PARAM_GRADIENT, /* with fused gradients */
    CKPT_HOLDS_MESSAGE,        /* a value or gradient on its way to another stage */
    CKPT_HOLDS_BUCKET,         /* what other replicas have sent of the own chunk of a bucket */
} ckpt_holds;
typedef struct ckpt_buffer_role {
    ckpt_holds holds;
    int value;       /* VALUE, GRADIENT, MESSAGE: storage value id */
    int node, saved; /* SAVED; PARAM_GRADIENT: node and number of the parameter */
    int batch;       /* micro-batch; -1: of none */
    int bucket;      /* BUCKET */
} ckpt_buffer_role;

/* Parameters whose gradients are reduced together: those of consecutive nodes, in the order in which their gradients
 * are complete, so that a bucket is sent while backward goes on. Tied parameters, and those that no gradient reaches,
 * are in none. A bucket ends with the node that brings it to scheme.bucket_bytes. Its elements are numbered: node after
 * node, each node's parameters in increasing k, no padding. Replica r sums up, and with a sharded optimizer updates,
 * elements [r * chunk, min((r + 1) * chunk, count)). */
typedef struct ckpt_bucket {
    const int *node;
    int node_count;
    int64_t count;            /* elements, of 4 bytes */
    int64_t chunk;            /* ceil(count / replicas), rounded up to a multiple of 16 */
    ckpt_bytes staging_bytes; /* (replicas - 1) * chunk floats: what each other replica sends of the own chunk */
    ckpt_bytes shard;         /* offset of its chunk in each slot of a sharded optimizer */
    const uint8_t *reached;   /* per node of the network: bit k: parameter k is its own, and a gradient reaches it */
} ckpt_bucket;

/* A run of consecutive elements of one parameter. */
typedef struct ckpt_piece {
    int node, param;
    int64_t first, count; /* elements of the parameter */
    int64_t at;           /* number of its first element in the bucket */
} ckpt_piece;

/* The next piece of `bucket` that lies in elements [from, to), after `piece` (node -1: the first). false: none is left.
 * Cost: O(parameters of the bucket). */
bool ckpt_bucket_next(const ckpt_network *network, const ckpt_bucket *bucket, int64_t from, int64_t to,
                      ckpt_piece *piece);

/* The buckets of a network by its scheme; none with one replica. The same for every profile and device. */
CKPT_MUST_USE ckpt_code ckpt_network_buckets(const ckpt_network *network, ckpt_arena *out, const ckpt_bucket **bucket,
                                             int *count, ckpt_err *err);

typedef struct ckpt_lowered {
    const ckpt_network *network;
    const ckpt_graph *graph;
    const ckpt_op_role *op_role;         /* per graph op */
    const ckpt_buffer_role *buffer_role; /* per graph buffer */
    /* Of micro-batch j: [j * value_count + value] and [j * node_count * CKPT_SAVED_MAX + node * CKPT_SAVED_MAX + k]. */
    const int *value_buffer;      /* buffer of the value's storage; -1: a model input, or of another stage */
    const int *grad_buffer;       /* buffer of its storage's gradient; -1: none */
    const int *saved_buffer;      /* -1: none */
    const int *param_grad_buffer; /* [node * CKPT_PARAM_MAX + k] of owners; -1: in the static block */
    const ckpt_way *const *way;   /* per variant of the graph: the way of its op's node */
    const ckpt_bucket *bucket;    /* with several replicas */
    int bucket_count;
} ckpt_lowered;

/* Lower one training step.
 *
 * Ops, in order: "<layer>/forward" for every node that is no alias; "<layer>/backward" in reverse for every node that
 * is the last or that a gradient flows into, and that has parameters or an input with needs_grad; "<layer>/update" for
 * every node with parameters of its own that a gradient reaches. Buffers: "<layer>" or "<layer>:k" for outputs,
 * "<layer>/<saved>" for saved tensors, "<layer>/grad" or "<layer>:k/grad". Statics: "weights", "gradients",
 * "optimizer", "statistics", "inputs" (each parameter, statistic and input rounded up to CKPT_ALIGN), and in a bfloat16
 * model "weights16". Every buffer and workspace is rounded up to CKPT_ALIGN. The loss is in `outputs`; it has no
 * gradient. Other ways of a layer (ckpt_way) are variants of its forward and backward op, with the same in-place pair,
 * where the layer has a backward op. An op has one in-place pair at most: a forward op's is the first input that nothing reads afterwards, or
 * else the first input; a backward op's is a gradient and the input it belongs to (ckpt_op.backward_inplace).
 *
 * The backward op of a value's last reader writes the value's gradient, the others add to it. On a GPU the gradient of
 * a sum may be that of its inputs too; a backward op that then has nothing to do is left out (lower_pass.c). When a
 * backward op adds, or several of its inputs have one gradient, and its op does not accumulate, its workspace grows by
 * the staged gradients (ckpt_staging_bytes).
 *
 * By the network's scheme:
 *
 * Micro-batches. Each is lowered as above; where there are several, names carry "@j" behind the layer ("h.0@1/forward",
 * "h.0@1/grad", segment "h.0@1"). The order is 1F1B (PipeDream, SOSP 2019; Megatron-LM, arXiv:2104.04473): stage s runs
 * the forward of min(m, stages - 1 - s) micro-batches, then forward and backward in turn, then the backwards that are
 * left; with one stage, each forward with its backward. From the second micro-batch on, backward adds to the gradients
 * of parameters.
 *
 * Stages. Only the nodes of the stage. A value that later stages read (a layer's, not a view) goes from its producer's
 * stage to the first of them, from there to the next: "<layer>/send" (reads the value, writes the copy
 * "<layer>/message") behind its producer or its receipt, "<layer>/sent" (reads the copy), "<layer>/receive" (writes
 * "<layer>") before the micro-batch's forward. Gradients go the same way back: "<layer>/grad/send" behind the last op
 * of the stage that adds, "<layer>/grad/receive" before the micro-batch's backward. The stage's own readers add to the
 * gradient that arrived, so sums have the order of the network without stages. Between two stages values are sent in
 * increasing, gradients in decreasing number of the value. Where "sent" stands is said in lower_stage.c; no two stages
 * wait for each other. Between stages further apart several messages of one value may be under way. None of these ops
 * may be recomputed.
 *
 * Fused gradients of parameters are buffers "<layer>/<parameter>/grad": the first backward op that reaches the
 * parameter writes one, the others add to it, and "<layer>/update", right behind the last of them, reads it (with
 * buckets: behind the bucket's end). The static block has none.
 *
 * Replicas. Per bucket k "@bucket.k/reduce", workspace staging_bytes: at the end of backward, or with fused gradients
 * right behind the backward op that completes it. With overlap: "@bucket.k/start" there, writing the buffer
 * "@bucket.k"; "@bucket.k/reduce", reading it, right before the next bucket's start or at the end of backward;
 * "@bucket.k/summed" before the bucket's first update. Sharded: "@bucket.k/gather" behind the bucket's last update.
 * With fused gradients a start reads them, a reduce and a summed add to them.
 *
 * Tied parameters of several stages. "@shared.i/reduce", for each tied group i of which the stage has a copy: behind
 * backward and the reductions, before the first update of a copy; workspace: (holder_count - 1) copies' bytes, each
 * rounded up to CKPT_ALIGN.
 *
 * clip_norm. "@norm" before the first update; copies (param.copy_of >= 0) do not count.
 *
 * Times. A receive, a reduce-scatter and an all-gather take bytes / network_bytes_per_s; for a bucket each of the two
 * moves (replicas - 1) chunks each way. With overlap the time counts that backward, in reference order without
 * recomputation, has not hidden. Waiting for another rank is not in the graph.
 *
 *   profile    times and workspaces, by layer; NULL: from `device` and the ops' allowances
 *   device     roofline for what the profile does not have (a time of 0 from 0 repeats, no link); NULL: "cpu"
 *
 * Errors: CKPT_BAD_INPUT (a profile of another model: the message names the layer), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_network_lower(const ckpt_network *network, const ckpt_profile *profile,
                                           const ckpt_device_model *device, ckpt_arena *out,
                                           const ckpt_lowered **lowered, ckpt_err *err);

/* Bytes of workspace, each piece rounded up to CKPT_ALIGN, that staging takes for a backward that must add:
 * 0 when its kernels accumulate (ckpt_node_accumulates). The staged pieces lie before the kernel's own workspace,
 * inputs first in increasing k, then parameters. */
ckpt_bytes ckpt_staging_bytes(const ckpt_node *node, uint64_t grad_in_adds, uint64_t grad_param_adds);

/* Offsets inside the static block. Parameters of all nodes in order, each with its spare elements (ckpt_param) and
 * rounded up to CKPT_ALIGN; a tied one has the offset of what it is tied to. Order of sections: weights, gradients,
 * optimizer slots (one after the other, each with all parameters in order, rounded up likewise; the average of the
 * weights is the last), statistics, inputs, weights16. The last is a bfloat16 copy of all parameters, weight_bytes / 2
 * rounded up to CKPT_ALIGN, each at half its offset (32 bytes aligned); a float32 network has none (weights16 =
 * scales). Inputs lie as the network's values are.
 *
 * By the scheme: nodes of other stages have nothing; fused gradients take no section; a slot of a sharded optimizer is
 * the sum of all buckets' chunks; inputs are there once per micro-batch, those of the first micro-batch first, and
 * with several stages only those that a node of the stage reads have bytes; `scales`, the last section, is there with
 * several micro-batches or replicas, clip_norm or a loss_scale: float [0] is what gradients are multiplied by in the
 * update, float [1] the loss's gradient, and from byte 64 on a double per node of the whole network, the squares of its
 * gradients. */
typedef struct ckpt_static_layout {
    ckpt_bytes weights, gradients, optimizer, statistics, inputs, weights16, scales; /* section starts */
    ckpt_bytes weight_bytes; /* of the weights, and of static gradients and of a slot that is not sharded */
    ckpt_bytes slot_bytes;   /* of one slot of the optimizer, where all have a float per value */
    ckpt_bytes total;
    /* [slot * node_count * CKPT_PARAM_MAX + node * CKPT_PARAM_MAX + k]: from `optimizer`; -1: of another stage; NULL:
     * sharded, see ckpt_bucket.shard */
    const ckpt_bytes *slot;
    const ckpt_bytes *param; /* [node * CKPT_PARAM_MAX + k]: from the section start; -1: of another stage */
    const ckpt_bytes *stat;  /* [node * CKPT_STAT_MAX + k]: from `statistics`; -1: likewise */
    const ckpt_bytes *input; /* [micro-batch * input_count + input]: from `inputs`; -1: read by no node of the stage */
} ckpt_static_layout;
CKPT_MUST_USE ckpt_code ckpt_network_statics(const ckpt_network *network, ckpt_arena *out, ckpt_static_layout *layout,
                                             ckpt_err *err);

#endif
