/* A model with every layer's op found and every shape inferred, and its lowering to a graph. */
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

/* A parameter that several layers have copies of, because they are in different stages: one layer of each stage, others
 * of the stage being tied to that. Every copy has its gradient, and before the updates all get the sum, in the order of
 * `holder`: the last layer's first, as backward comes to them. So they stay equal, and their optimizer states too. */
typedef struct ckpt_shared {
    int owner, param;  /* whose it was before, and what files and the norm of all gradients have it as */
    const int *holder; /* nodes, the last first; the owner is one of them */
    int holder_count;  /* 2 or more */
} ckpt_shared;

typedef struct ckpt_network {
    const ckpt_model *model;
    const ckpt_node *node; /* in layer order */
    int node_count;
    const ckpt_value *value; /* inputs first, then outputs in node order */
    int value_count;
    int loss_node; /* the last node, when its op is a loss; -1: cannot be trained */
    const ckpt_optimizer *optimizer;
    double hyper[CKPT_HYPER_MAX];
    int threads;       /* CKPT_ON_GPU: for a GPU */
    double clip_norm;  /* gradients longer than this, all of them as one vector, are shortened to it; 0: never */
    double loss_scale; /* the loss's gradient starts with this and is divided out again before the update; 1: plain */
    ckpt_scheme scheme;
    const int *stage_of; /* per node: its pipeline stage; all 0 when there is one */
    const ckpt_shared *shared;
    int shared_count;
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
 * gradient comes to, where stages share parameters; "clip_norm" with fused gradients: the norm is of all gradients, the
 * first of which would be gone), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_network_spread(const ckpt_network *network, const ckpt_scheme *scheme, ckpt_arena *out,
                                            const ckpt_network **spread, ckpt_err *err);

/* What the executor does for an op of the lowered graph. */
typedef enum ckpt_task {
    CKPT_TASK_LAYER,   /* the node's kernel, by `phase`; of an update: its parameters' */
    CKPT_TASK_SEND,    /* copy the value (or its gradient) to the buffer it writes, and start sending that to `peer` */
    CKPT_TASK_SENT,    /* wait until it has gone */
    CKPT_TASK_RECEIVE, /* wait for it from `peer`, in the buffer it writes */
    CKPT_TASK_BUCKET,  /* start to exchange the gradients of `bucket` into the buffer it writes (only with overlap) */
    CKPT_TASK_REDUCE,  /* wait for that (without overlap: start it too, in workspace), sum up the own chunk in the order
                          of replicas, and without sharding start to spread the sums (without overlap: and wait) */
    CKPT_TASK_SUMMED,  /* wait until all sums of `bucket` have come (only with overlap and without sharding) */
    CKPT_TASK_GATHER,  /* sharded optimizer: spread the updated parameters of `bucket`, and wait */
    CKPT_TASK_SHARED,  /* give all copies of `shared` the sum of their gradients, workspace: the copies that come from
                          others */
    CKPT_TASK_NORM,    /* the length of all gradients, and from it the scale of the updates (only with clip_norm) */
} ckpt_task;

/* What an op of the lowered graph is. */
typedef struct ckpt_op_role {
    ckpt_task task;
    int node;      /* LAYER; SEND, SENT, RECEIVE: the producer of the value; else -1 */
    int batch;     /* micro-batch; -1: of none (update, reduce) */
    int value;     /* SEND, SENT, RECEIVE: storage value id; else -1 */
    bool gradient; /* of them: its gradient */
    int peer;      /* of them: the other stage; else -1 */
    int bucket;    /* BUCKET .. GATHER, and an update's when there are buckets; else -1 */
    int shared;    /* SHARED: of network->shared; else -1 */
    ckpt_phase phase;
    /* backward: bit k of grad_in_adds = the gradient of input k is added to what is there, not written;
     * grad_param_adds likewise for parameters (a tied one is written by the first backward op that reaches it) */
    uint64_t grad_in_adds;
    uint64_t grad_param_adds;
    ckpt_flop flop; /* what its roofline is made of, staging included */
    ckpt_bytes moved_bytes;
} ckpt_op_role;

/* What a buffer of the lowered graph holds. */
typedef enum ckpt_holds {
    CKPT_HOLDS_VALUE,
    CKPT_HOLDS_SAVED,
    CKPT_HOLDS_GRADIENT,
    CKPT_HOLDS_PARAM_GRADIENT, /* with fused gradients */
    CKPT_HOLDS_MESSAGE,        /* a value or gradient on its way to another stage */
    CKPT_HOLDS_BUCKET,         /* what other replicas have sent of a bucket */
} ckpt_holds;
typedef struct ckpt_buffer_role {
    ckpt_holds holds;
    int value;       /* VALUE, GRADIENT, MESSAGE: storage value id */
    int node, saved; /* SAVED; PARAM_GRADIENT: node and number of the parameter */
    int batch;       /* micro-batch; -1: of none */
    int bucket;      /* BUCKET */
} ckpt_buffer_role;

/* Parameters whose gradients are exchanged together: all own (not tied) parameters that a gradient reaches of
 * consecutive nodes in the order in which their gradients are complete, so that a bucket can go while backward goes on;
 * a bucket ends with the node that brings it to scheme.bucket_bytes. Its elements are numbered through: nodes in this
 * order, each node's own parameters in increasing k, no padding. Replica r sums up, and when the optimizer is sharded
 * updates, elements [r * chunk, min((r + 1) * chunk, count)). */
typedef struct ckpt_bucket {
    const int *node;
    int node_count;
    int64_t count;            /* elements, of 4 bytes */
    int64_t chunk;            /* ceil(count / replicas), rounded up to a multiple of 16 */
    ckpt_bytes staging_bytes; /* (replicas - 1) * chunk floats: what the others send of the own chunk, by replica
                                 without the own one */
    ckpt_bytes shard;         /* where its chunk starts in each slot of a sharded optimizer */
    const uint8_t *reached;   /* per node of the network: bit k: parameter k is its own, and a gradient comes to it */
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
    const int *value_buffer;      /* buffer of the value's storage; -1 for model inputs and what this stage has not */
    const int *grad_buffer;       /* buffer of its storage's gradient; -1: none */
    const int *saved_buffer;      /* -1: none */
    const int *param_grad_buffer; /* [node * CKPT_PARAM_MAX + k] of owners; -1: in the static block */
    const ckpt_bucket *bucket;    /* with several replicas */
    int bucket_count;
} ckpt_lowered;

/* Lower one training step.
 *
 * Ops, in order: "<layer>/forward" for every node that is no alias; "<layer>/backward" in reverse for every node that
 * is the last or that a gradient flows into, and that has parameters or an input with needs_grad; "<layer>/update" for
 * every node with parameters of its own that a gradient reaches. Buffers: "<layer>" or
 * "<layer>:k" for outputs, "<layer>/<saved>" for saved tensors, "<layer>/grad" or "<layer>:k/grad". Statics:
 * "weights", "gradients", "optimizer", "statistics", "inputs" (each parameter, statistic and input rounded up to
 * CKPT_ALIGN), and in a bfloat16 model "weights16". Every buffer and workspace is rounded up to CKPT_ALIGN. The loss is
 * in `outputs`; it has no gradient. An op has one in-place pair at most: of several inputs the first that nothing reads
 * afterwards, or the first; a backward op's is a gradient and the input it belongs to (ckpt_op.backward_inplace).
 *
 * The gradient of a value is written by the backward op of its last reader and added to by the others. On a GPU that of
 * a sum may stand for those of its inputs too; a backward op of which nothing is left then is not there (lower_pass.c).
 * When a backward op adds, or several of its inputs share one gradient, and its op does not accumulate, its workspace
 * grows by the staged gradients (ckpt_staging_bytes).
 *
 * By the network's scheme:
 *
 * Micro-batches. Each is lowered as above, with "@j" behind the layer in labels and names ("h.0@1/forward",
 * "h.0@1/grad", segment "h.0@1") where there are several. In 1F1B order (PipeDream, SOSP 2019; Megatron-LM,
 * arXiv:2104.04473): stage s runs the forward of min(m, stages - 1 - s) micro-batches, then forward and backward in
 * turn, then the backwards that are left; with one stage, each forward with its backward. From the second micro-batch
 * on the backward adds to the gradients of parameters.
 *
 * Stages. Only the nodes of the stage. A value that later stages read (layers, not views) goes from its producer's
 * stage to the first of them, from there to the next: "<layer>/send" (reads it, writes the copy "<layer>/message")
 * behind its producer or its receipt, "<layer>/sent" (reads the copy), "<layer>/receive" (writes "<layer>") before the
 * micro-batch's forward. Gradients go the same way back ("<layer>/grad/send" behind the last of the stage that adds,
 * ...
 * "/grad/receive" before the micro-batch's backward), and the stage's own readers add to what came: the sums have the
 * order of the unpartitioned network. Between two stages values go in increasing, gradients in decreasing number of the
 * value. With the forward of micro-batch j at s + 2j and its backward at 2j + 2 stages - 1 - s on a clock, a forward
 * and a backward begin with their receipts and then have the "sent" of all that the other stages have received by then,
 * or it stands at the end, before reductions and updates: so no two stages wait for each other (lower_stage.c says
 * why). Between stages further apart several messages of one value may be under way. None of these may run again.
 *
 * Fused gradients of parameters are buffers "<layer>/<parameter>/grad", written by the first backward op that reaches
 * the parameter, added to by the others, read by "<layer>/update", which stands right behind the last of them (with
 * buckets: behind the bucket's end). The static block has none.
 *
 * Replicas. Per bucket k "@bucket.k/reduce", workspace staging_bytes: at the end of backward, or with fused gradients
 * right behind the backward op that completes it. With overlap: "@bucket.k/start" there, writing the buffer
 * "@bucket.k";
 * "@bucket.k/reduce", reading it, right before the next bucket's start or at the end of backward; "@bucket.k/summed"
 * before the bucket's first update. Sharded: "@bucket.k/gather" behind the bucket's last update. With fused gradients a
 * start reads them, a reduce and a summed add to them.
 *
 * Shared parameters. "@shared.i/reduce", for parameter i of network->shared of which the stage has a copy: behind all
 * else of backward and of reduction, before the first update of a copy; workspace: (holder_count - 1) copies' bytes,
 * each rounded up to CKPT_ALIGN.
 *
 * clip_norm. "@norm" before the first update; copies (param.copy_of >= 0) do not count.
 *
 * Times: a receive and an exchange take bytes / network_bytes_per_s (a bucket's exchange moves (replicas - 1) chunks
 * each way, the spreading of its sums as much again); with overlap what is left of that when backward, in reference
 * order without recomputation, has hidden its part; waiting for another rank is not in the graph.
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
 * optimizer slots, statistics, inputs, weights16. The last is a bfloat16 copy of all parameters, weight_bytes / 2
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
    ckpt_bytes slot_bytes;   /* of one slot of the optimizer */
    ckpt_bytes total;
    const ckpt_bytes *param; /* [node * CKPT_PARAM_MAX + k]: from the section start; -1: of another stage */
    const ckpt_bytes *stat;  /* [node * CKPT_STAT_MAX + k]: from `statistics`; -1: likewise */
    const ckpt_bytes *input; /* [micro-batch * input_count + input]: from `inputs`; -1: read by no node of the stage */
} ckpt_static_layout;
CKPT_MUST_USE ckpt_code ckpt_network_statics(const ckpt_network *network, ckpt_arena *out, ckpt_static_layout *layout,
                                             ckpt_err *err);

#endif
