/* A model with every layer's op found and every shape inferred, and its lowering to a graph. */
#ifndef CKPT_OPS_NETWORK_H
#define CKPT_OPS_NETWORK_H

#include "core/graph.h"
#include "core/model.h"
#include "core/profile.h"
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

typedef struct ckpt_network {
    const ckpt_model *model;
    const ckpt_node *node; /* in layer order */
    int node_count;
    const ckpt_value *value; /* inputs first, then outputs in node order */
    int value_count;
    int loss_node; /* the last node, when its op is a loss; -1: cannot be trained */
    const ckpt_optimizer *optimizer;
    double hyper[CKPT_HYPER_MAX];
    int threads; /* CKPT_ON_GPU: for a GPU */
} ckpt_network;

/* `threads`: what the CPU's kernels will use, >= 1; CKPT_ON_GPU: workspaces are those of a GPU. With the model's dtype
 * bfloat16, every floating-point input is a bfloat16 value here, whatever the model's input says (float32: what is
 * loaded from files, and narrowed when it goes to the device). Errors: CKPT_BAD_INPUT "model.json:41:9: layer h.0.qkv
 * (linear): ...". */
CKPT_MUST_USE ckpt_code ckpt_network_infer(const ckpt_model *model, int threads, ckpt_arena *out,
                                           const ckpt_network **network, ckpt_err *err);

/* What an op of the lowered graph is. */
typedef struct ckpt_op_role {
    int node;
    ckpt_phase phase;
    /* backward: bit k of grad_in_adds = the gradient of input k is added to what is there, not written;
     * grad_param_adds likewise for parameters (a tied one is written by the first backward op that reaches it) */
    uint64_t grad_in_adds;
    uint64_t grad_param_adds;
    ckpt_flop flop; /* what its roofline is made of, staging included */
    ckpt_bytes moved_bytes;
} ckpt_op_role;

/* What a buffer of the lowered graph holds. */
typedef enum ckpt_holds { CKPT_HOLDS_VALUE, CKPT_HOLDS_SAVED, CKPT_HOLDS_GRADIENT } ckpt_holds;
typedef struct ckpt_buffer_role {
    ckpt_holds holds;
    int value;       /* VALUE, GRADIENT: storage value id */
    int node, saved; /* SAVED */
} ckpt_buffer_role;

typedef struct ckpt_lowered {
    const ckpt_network *network;
    const ckpt_graph *graph;
    const ckpt_op_role *op_role;         /* per graph op */
    const ckpt_buffer_role *buffer_role; /* per graph buffer */
    const int *value_buffer;             /* per value: buffer of its storage; -1 for model inputs */
    const int *grad_buffer;              /* per value: buffer of its storage's gradient; -1: none */
    const int *saved_buffer;             /* [node * CKPT_SAVED_MAX + k]; -1: none */
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
 * The gradient of a value is written by the backward op of its last reader and added to by the others. When a
 * backward op adds, or several of its inputs share one gradient, and its op does not accumulate, its workspace grows
 * by the staged gradients (ckpt_staging_bytes).
 *
 *   profile    times and workspaces, by layer; NULL: from `device` and the ops' allowances
 *   device     roofline for what the profile does not have (a time of 0 from 0 repeats, no link); NULL: "cpu"
 *
 * Errors: CKPT_BAD_INPUT (a profile of another model: the message names the layer), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_network_lower(const ckpt_network *network, const ckpt_profile *profile,
                                           const ckpt_device_model *device, ckpt_arena *out,
                                           const ckpt_lowered **lowered, ckpt_err *err);

/* Bytes of workspace, each piece rounded up to CKPT_ALIGN, that staging takes for a backward that must add:
 * 0 when node->op->accumulates. The staged pieces lie before the kernel's own workspace, inputs first in
 * increasing k, then parameters. */
ckpt_bytes ckpt_staging_bytes(const ckpt_node *node, uint64_t grad_in_adds, uint64_t grad_param_adds);

/* Offsets inside the static block. Parameters of all nodes in order, each rounded up to CKPT_ALIGN; a tied one has
 * the offset of what it is tied to. Order of sections: weights, gradients, optimizer slots, statistics, inputs,
 * weights16. The last is a bfloat16 copy of all parameters, weight_bytes / 2 rounded up to CKPT_ALIGN, each at half its
 * offset (32 bytes aligned); a float32 network has none (weights16 = total). Inputs lie as the network's values are. */
typedef struct ckpt_static_layout {
    ckpt_bytes weights, gradients, optimizer, statistics, inputs, weights16; /* section starts */
    ckpt_bytes weight_bytes;                                                 /* of one section of parameter size */
    ckpt_bytes total;
    const ckpt_bytes *param; /* [node * CKPT_PARAM_MAX + k]: from the section start */
    const ckpt_bytes *stat;  /* [node * CKPT_STAT_MAX + k]: from `statistics` */
    const ckpt_bytes *input; /* [input]: from `inputs` */
} ckpt_static_layout;
CKPT_MUST_USE ckpt_code ckpt_network_statics(const ckpt_network *network, ckpt_arena *out, ckpt_static_layout *layout,
                                             ckpt_err *err);

#endif
