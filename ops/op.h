/* What a layer is: attributes, shapes, what its backward reads, what it costs. One constant per op, in one file of
 * ops/defs; the build writes the table of all of them. ops/ does not know how a layer is computed (kernels/), nor
 * plans. */
#ifndef CKPT_OPS_OP_H
#define CKPT_OPS_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/units.h"
#include "core/formats/model.h"
#include "core/formats/tensor.h"

enum {
    CKPT_IN_MAX = 64,  /* inputs of one layer: backward_in is a 64-bit mask */
    CKPT_OUT_MAX = 32, /* outputs of one layer */
    CKPT_SAVED_MAX = 4,
    CKPT_PARAM_MAX = 8,
    CKPT_STAT_MAX = 4,
    CKPT_WAY_MAX = 8, /* other ways of a layer, forward and backward together */
};

typedef struct ckpt_op ckpt_op;

/* node->threads of a network for a GPU. */
enum { CKPT_ON_GPU = 0 };

/* An attribute an op knows. `kind` CKPT_INT, CKPT_FLOAT and CKPT_BOOL also take an expression, CKPT_INTS one number for
 * all elements. A CKPT_INTS that the file does not give has int_count 0 in the node. */
typedef struct ckpt_attr_spec {
    const char *name; /* NULL ends the list */
    ckpt_attr_kind kind;
    bool required;
    int64_t integer;    /* default of CKPT_INT, CKPT_BOOL; of every element of CKPT_INTS */
    double real;        /* default of CKPT_FLOAT */
    const char *string; /* default of CKPT_STRING: the first of `words` when there are words */
    const char *words;  /* CKPT_STRING: allowed words, separated by '|'; NULL: any */
    const char *help;
} ckpt_attr_spec;

/* How a parameter starts: deterministic from seed, parameter and element (Philox), independent of layout. */
typedef enum ckpt_init { CKPT_INIT_ZERO, CKPT_INIT_ONE, CKPT_INIT_NORMAL, CKPT_INIT_UNIFORM } ckpt_init;

typedef struct ckpt_param {
    ckpt_tensor tensor;
    ckpt_init init;
    double scale;    /* standard deviation of NORMAL, half width of UNIFORM */
    bool decay;      /* weight decay applies: matrices and filters yes, biases and norms no */
    int64_t stack;   /* its first dimension counts matrices that lie one behind the other; 0: it is one matrix */
    bool table;      /* rows that are picked, no matrix that multiplies */
    bool hidden;     /* the weight of a hidden layer, which some optimizers treat as a matrix (ops/lowering/groups.c) */
    int group;       /* of ckpt_network.group */
    int64_t padding; /* elements of zeros behind it, and behind its gradient, wherever they lie (ckpt_node_pitch) */
    int tied;        /* node whose parameter of the same number this is; -1: its own */
    int copy_of;     /* a copy of this node's of the same number (ckpt_tied_group); -1: of none */
} ckpt_param;

/* A statistic a layer carries from step to step (batch norm's running mean); starts filled with `initial`. */
typedef struct ckpt_stat {
    ckpt_tensor tensor;
    double initial;
} ckpt_stat;

/* Another way to run a layer's forward or backward, besides the one that the node's own fields describe: a variant of
 * its op in the graph. A forward way gives all outputs. A backward way gives the same gradients and has the same
 * staging. What a backward way reads beside gradients and parameters is in its masks, and nothing else is given to it. */
typedef struct ckpt_way {
    const char *name; /* unique among those of its direction; kernels know ways by it */
    bool backward;
    bool inexact; /* other bits than those of the node's own way */
    /* Chosen only where a profile has measured it: not every device has it, and the kernel alone knows its workspace. */
    bool measured;
    uint64_t in, out;           /* backward: inputs and outputs it reads */
    uint64_t saved;             /* forward: saved tensors it writes; backward: those it reads */
    ckpt_flop flop;             /* 0 from infer: as the own way */
    ckpt_bytes moved_bytes;     /* 0 from infer: one pass over everything it touches */
    ckpt_bytes workspace_bytes; /* -1 from infer: as the own way, whatever a profile says of that */
} ckpt_way;

/* One layer with everything inferred. Kernels get this and nothing more.
 *
 * Equations: every tensor's shape is checked; backward_in has no bit >= in_count, backward_out none >= out_count,
 * backward_saved none >= saved_count; grad_in has bits of floating-point inputs only. */
typedef struct ckpt_node {
    const char *name;
    const ckpt_op *op;
    const ckpt_layer *layer;
    int index;             /* position in the network: the "layer" of the Philox counter */
    int threads;           /* the CPU's kernels may use this many; allowances count on it; CKPT_ON_GPU: for a GPU */
    ckpt_dtype dtype;      /* what activations are: float32 or bfloat16. Parameters, statistics, saved moments and
                              losses are float32 in either case */
    const ckpt_attr *attr; /* in the order of op->attrs, defaults filled in, expressions evaluated, words checked */

    int in_count;
    const int *in_value;   /* value ids */
    const ckpt_tensor *in; /* their types and shapes */
    uint64_t grad_in;      /* inputs whose gradient is wanted */
    bool pitchable;        /* for a GPU, and all readers of output 0 can read it with a pitch; set before op->infer */

    int out_count, saved_count, param_count, stat_count; /* of the lists that follow */
    int *out_value;
    ckpt_tensor *out;
    ckpt_tensor *saved; /* extra results of forward that only backward reads */
    ckpt_param *param;
    ckpt_stat *stat;

    /* Filled by op->infer: */
    uint64_t backward_in, backward_out, backward_saved; /* what backward reads besides output gradients, parameters */
    int64_t id_limit; /* ids, an integer input behind the first, are below it; 0: nothing is said (ckpt_node_limit) */
    bool alias;       /* output 0 is input 0 seen under another shape: same memory, no kernel */
    ckpt_flop forward_flop, backward_flop;
    /* Memory traffic, for the roofline; left 0: one pass over everything the op touches. A bfloat16 network reads its
     * parameters as bfloat16. */
    ckpt_bytes forward_moved_bytes, backward_moved_bytes;
    ckpt_bytes forward_workspace_bytes, backward_workspace_bytes; /* allowance without a profile */
    /* Other ways than what is said above, and the names of that; NULL: no name. */
    ckpt_way *way;
    int way_count;
    const char *forward_way, *backward_way;
    uint64_t way_saved; /* saved tensors that only other ways write */
    bool native16;      /* the CPU's kernels take bfloat16 as it is; else they run on widened copies (ops/widened.h) */
    /* An element of an output or a gradient follows from that element of the other tensors alone, or its bit of a mask: the
     * copies may be of a piece at a time. */
    bool by_element;
    /* An opaque layer states its costs; -1: not stated. */
    ckpt_ns forward_ns, backward_ns;
} ckpt_node;

/* Room for all that op->infer may add to a node. */
typedef struct ckpt_node_room {
    ckpt_tensor out[CKPT_OUT_MAX], saved[CKPT_SAVED_MAX];
    ckpt_param param[CKPT_PARAM_MAX];
    ckpt_stat stat[CKPT_STAT_MAX];
    ckpt_way way[CKPT_WAY_MAX];
} ckpt_node_room;

/* An empty node that infer can fill. */
void ckpt_node_open(ckpt_node *node, ckpt_node_room *room);
/* What the node points to becomes the node's own, in `out`, and as long as counted. Also for a copy of a node. */
CKPT_MUST_USE ckpt_code ckpt_node_own(ckpt_node *node, ckpt_arena *out, ckpt_err *err);

struct ckpt_op {
    const char *name;            /* "gelu": key in model files; unique */
    const char *formula;         /* one line, for manuals */
    const char *source;          /* where the formula was taken from */
    const ckpt_attr_spec *attrs; /* NULL: none */
    int in_min, in_max;
    /* Kernels of this op can add into grad_in and grad_param instead of overwriting (see kernels/kernel.h). Where
     * false, the device stages the result in extra workspace and adds. */
    bool accumulates;
    bool gpu_accumulates; /* likewise of the GPU's kernels alone */
    /* Backward gives every input of output 0's shape its gradient as it is: on a GPU one buffer may then stand for several
     * gradients, and nothing is copied (ops/lowering/lower_pass.c). */
    bool passes_gradient;
    bool planned_only; /* no kernel exists: opaque */
    bool view;         /* always an alias (ckpt_node): no kernel is needed */
    /* Bit k: output 0 may overwrite input k (read element by element), where ckpt_node_inplace says so. */
    uint64_t inplace;
    /* Bit k: grad_in[k] may overwrite in[k], which backward_in declares, when it is the only gradient of an input that
     * is wanted and it is written, not added (each element or row of in[k] is read before it is written). */
    uint64_t backward_inplace;
    /* Bit k: the CUDA kernels read in[k] with a pitch, whatever its gaps hold, and fill those of grad_in[k] with 0. */
    uint64_t gpu_pitched_in;
    /* Bit k: in a bfloat16 network kernels read parameter k as its bfloat16 copy (ckpt_kernel_args.param16). */
    uint64_t param16;
    /* Output 0 is a float32 scalar whose gradient is 1, where no layer reads it: grad_out[0] is NULL then. */
    bool loss;
    int64_t id_limit; /* integer inputs take values below this; 0: see ckpt_node_limit */

    /* Fill outputs, saved, params, stats and everything under "Filled by op->infer" from in[] and attr[].
     * On entry all of those are zero (forward_ns, backward_ns -1). Messages show the shapes.
     * Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW. */
    ckpt_code (*infer)(ckpt_node *node, ckpt_arena *arena, ckpt_err *err);

    /* The allowances of workspace on a GPU, instead of those that infer filled in; NULL: none. Both are 0 on entry. The
     * CUDA kernels use exactly this or less, which tests check. */
    void (*gpu_workspace)(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward);
};

/* For gpu_workspace functions: what the largest of the products y = x W^T, dx = dy W, dW = dy^T x may take on a GPU,
 * x being [rows, in] and y [rows, out]; and what sums over the rows of [rows, columns] take (kernels/cuda/sum.cu). */
ckpt_bytes ckpt_gpu_product_workspace(int64_t rows, int64_t in, int64_t out);
ckpt_bytes ckpt_gpu_column_sums_workspace(int64_t rows, int64_t columns);
/* Rows that one partial sum covers on a GPU where the rows of `groups` matrices [rows, columns] are summed: enough
 * parts to fill a large one, from the shape alone, so that the sum's order is the same on every device. */
int64_t ckpt_gpu_part_rows(int64_t groups, int64_t rows, int64_t columns);
/* The same where a block of threads goes over whole rows and sums down their columns on the way (layer norm). */
int64_t ckpt_gpu_group_rows(int64_t rows);
/* Sizes of an attention whose inputs are right: B sequences of T queries and S keys, `heads` of queries and `kv_heads` of
 * keys and values, D numbers a head. Rows of queries (and of their gradients) are q_row elements apart, those of keys and
 * values kv_row. In one fused input keys start k_at elements behind the queries, values v_at; else both are 0. Query t
 * sees `window` keys up to its own position; 0: any number. The CPU takes `panel` keys at a time: at most 496, and an odd
 * number of cache lines, so that the rows of a panel do not all meet in one set of the cache. */
typedef struct ckpt_attention_sizes {
    int64_t B, T, S, heads, kv_heads, D, q_row, kv_row, k_at, v_at, window, panel;
    bool fused, causal;
    double scale;
    int bias, mask; /* the inputs' numbers; -1: none */
    /* The mask's row of sequence b and query t starts at element b % mask_count * mask_step + t * mask_row. */
    int64_t mask_count, mask_step, mask_row;
} ckpt_attention_sizes;
ckpt_attention_sizes ckpt_attention_sizes_of(const ckpt_node *node);
/* May cuDNN compute this attention? Yes in bfloat16, without dropout (its generator's mask is not the CPU's), with as
 * many heads of keys as of queries, as many keys as queries, none of window, scale, bias and mask, with
 * heads of a size that its documentation lists for all GPUs and at most 64 MiB of dS per head. The second function
 * gives how many of batch * heads backward hands to cuDNN at once, so that dS stays within 64 MiB: whole sequences, or
 * some heads of one. */
bool ckpt_gpu_attention_library(const ckpt_node *node);
int64_t ckpt_gpu_attention_heads(int64_t batch, int64_t heads, int64_t tokens);
/* A loss of `terms` is summed on a GPU in parts of CKPT_GPU_LOSS_TERMS, each of which leaves two doubles. */
enum { CKPT_GPU_LOSS_TERMS = 1024 };
ckpt_bytes ckpt_gpu_loss_workspace(int64_t terms);
/* With label_smoothing, the sum of each row's logits lies behind those parts. */
ckpt_bytes ckpt_gpu_smoothing_workspace(const ckpt_node *node, int64_t rows);
/* linear_cross_entropy holds the logits of this many rows at a time (the last unit may have fewer), in a matrix with this
 * pitch that takes so many bytes, rounded up to CKPT_ALIGN; and the parts of its loss on a GPU, each unit's own,
 * with the sums of one unit's rows. */
int64_t ckpt_unit_rows(const ckpt_node *node);
int64_t ckpt_unit_pitch(const ckpt_node *node);
ckpt_bytes ckpt_unit_bytes(const ckpt_node *node);
ckpt_bytes ckpt_gpu_unit_loss_workspace(const ckpt_node *node);
/* rope: features of a head that turn, at most CKPT_ROPE_MAX, and how many full turns (a fraction) pair `pair` of them
 * makes from one position to the next. */
enum { CKPT_ROPE_MAX = 512 };
int64_t ckpt_rope_rotary(const ckpt_node *node);
double ckpt_rope_turns(const ckpt_node *node, int64_t pair);
/* softmax: elements of a row or, where the axis is not the fastest in memory, of the most rows that go down it side by
 * side. */
enum { CKPT_SOFTMAX_STRIP = 64 };
int64_t ckpt_softmax_room(const ckpt_node *node);
/* Group norm's view of its input, once its saved tensors are inferred: images of rows (pixels) and channels, whose sums go
 * part by part of the rows (the last may have fewer), which follows from the shape alone. */
typedef struct ckpt_group_sizes {
    int64_t images, rows, channels, groups, part_rows, parts;
} ckpt_group_sizes;
ckpt_group_sizes ckpt_group_sizes_of(const ckpt_node *node);
/* timestep_embedding: how much the logarithm of the frequency falls from one feature to the next. */
double ckpt_timestep_fall(const ckpt_node *node);
/* A GPU sums the squares of `count` numbers in parts of this many, at most 1024 parts, each of which leaves a double
 * (kernels/cuda/clip.cu). The CPU needs no workspace for it. */
int64_t ckpt_gpu_square_part(int64_t count);
ckpt_bytes ckpt_gpu_square_workspace(int64_t count);

/* How moe lays out its rows. A token and its j-th expert are assignment token * top + j. Those of one expert are rows
 * that follow each other, in increasing assignment; each expert's first row is a multiple of CKPT_MOE_ROWS, and rows
 * between are of no token. An assignment beyond `places` rows of its expert has none. The saved tensor "routes" holds,
 * from the number of that name on: the expert of each assignment (from 0), its row or -1 (slot), the assignment of each
 * row or -1 (source), how many assignments each expert was chosen for (count), and its first row, with the end of the
 * last (first). */
enum { CKPT_MOE_ROWS = 16, CKPT_MOE_CHUNK = 128, CKPT_MOE_EXPERTS = 1024 };
typedef struct ckpt_moe {
    int64_t tokens, width, experts, top, hidden;
    int64_t places, rows; /* the most of an expert; of all experts, those of no token included */
    int64_t slot, source, count, first, numbers;
    bool normalize;
} ckpt_moe;
ckpt_moe ckpt_moe_of(const ckpt_node *node);

/* matmul: `batch` products of [rows, inner] and [inner, columns], or with `turned` [columns, inner]. */
typedef struct ckpt_matmul {
    int64_t batch, rows, inner, columns;
    bool turned;
} ckpt_matmul;
ckpt_matmul ckpt_matmul_of(const ckpt_node *node);

/* Attribute by name, defaults already filled in. The name must be in op->attrs and of that kind (asserted). */
int64_t ckpt_node_int(const ckpt_node *node, const char *name);
bool ckpt_node_bool(const ckpt_node *node, const char *name);
double ckpt_node_float(const ckpt_node *node, const char *name);
const char *ckpt_node_string(const ckpt_node *node, const char *name);
const ckpt_attr *ckpt_node_attr(const ckpt_node *node, const char *name); /* for CKPT_INTS, or to see int_count */
/* Element `i` of a CKPT_INTS attribute; a single number stands for all elements. */
int64_t ckpt_node_int_at(const ckpt_node *node, const char *name, int i);

/* For infer functions; each checks the shape and the count. */
ckpt_code ckpt_node_add_output(ckpt_node *node, ckpt_dtype dtype, const ckpt_shape *shape, ckpt_err *err);
ckpt_code ckpt_node_add_saved(ckpt_node *node, const char *name, ckpt_dtype dtype, const ckpt_shape *shape,
                              ckpt_err *err);
/* A saved tensor that only other ways write; its number is saved_count - 1 afterwards. */
ckpt_code ckpt_node_add_way_saved(ckpt_node *node, const char *name, ckpt_dtype dtype, const ckpt_shape *shape,
                                  ckpt_err *err);
/* Another way, to be filled in: a forward one that saves what the own way saves, a backward one that reads nothing. */
ckpt_way *ckpt_node_add_way(ckpt_node *node, const char *name, bool backward);
/* The way of that direction and name; NULL: there is none. */
const ckpt_way *ckpt_node_find_way(const ckpt_node *node, const char *name, bool backward);
ckpt_code ckpt_node_add_param(ckpt_node *node, const char *name, const ckpt_shape *shape, ckpt_init init, double scale,
                              bool decay, ckpt_err *err);
ckpt_code ckpt_node_add_stat(ckpt_node *node, const char *name, const ckpt_shape *shape, double initial, ckpt_err *err);
/* For the infer function of an op whose CUDA kernels can write output 0 with a pitch; called after
 * ckpt_node_add_output. Gives output 0 a pitch where that pays and node->pitchable allows it. Returns the elements of a
 * row in memory, the gap included.
 *
 * A pitch pays where the row is no multiple of 16 bytes and has CKPT_PITCH_ROW_MIN elements or more. The fastest
 * kernels of cuBLAS want the leading dimension and the address of a matrix to be multiples of 16 bytes (cuBLAS
 * documentation, "Tensor Core Usage"); NVIDIA's guide "Linear/Fully-Connected Layers" advises multiples of 128 bytes
 * from the A100 on. So rows are rounded up to a multiple of CKPT_PITCH_BYTES: less than 1/64 more memory.
 *
 * A product sees the gap as columns of its own: a layer of 50,257 features is one of 50,304 whose last 47 nobody reads.
 * The result is exact, because the gaps of gradients hold 0, and so do the weight's rows that belong to them: infer
 * gives each parameter that much `padding`, in all sections of the static block, and only zeros are written to it. */
enum { CKPT_PITCH_ROW_MIN = 4096, CKPT_PITCH_BYTES = 128 };
int64_t ckpt_node_pitch(ckpt_node *node);
/* Elements from one row to the next by that rule, of rows of `row` elements. */
int64_t ckpt_gpu_pitch(int64_t row, ckpt_dtype dtype);
/* Bytes of a parameter, of its gradient or of a slot of its optimizer, `padding` included. */
ckpt_bytes ckpt_param_bytes(const ckpt_param *param);
/* Integer input k takes values from 0 to below this: rows of an embedding, classes of a loss, 2 of a mask; 0: anything. */
int64_t ckpt_node_limit(const ckpt_node *node, int k);
/* May output 0 overwrite input k: the op allows it, and both have as many elements, in the same order in memory. */
bool ckpt_node_inplace(const ckpt_node *node, int k);
/* Do this node's kernels add to a gradient by themselves, without staging? */
bool ckpt_node_accumulates(const ckpt_node *node);
/* Saved tensors that forward writes; `way` NULL: in the own way. */
uint64_t ckpt_node_saves(const ckpt_node *node, const ckpt_way *way);
ckpt_bytes ckpt_node_saved_bytes(const ckpt_node *node); /* in the own way */
/* Sum of bytes of in, out, saved, params: what one pass over everything that the own way touches moves. */
ckpt_bytes ckpt_node_touched_bytes(const ckpt_node *node);

/* The table the build writes from the `const ckpt_op` constants in ops/; NULL ends it. */
extern const ckpt_op *const ckpt_op_table[];
const ckpt_op *ckpt_op_find(const char *name); /* NULL: there is none */

#endif
