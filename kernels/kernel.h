/* How a device computes an op: a constant per op and device (kernels/cpu/gelu.c), and its arguments. Kernels know their
 * op's node and the addresses of a call; they know nothing of plans, models or other layers.
 *
 * Rules for every kernel:
 *   - forward overwrites out[] and those of saved[] that its way writes, the others are NULL; backward overwrites grad_in[] and grad_param[], unless the node accumulates
 *     (ckpt_node_accumulates) and the *_adds bit is set: then it adds.
 *   - if it adds, it finishes grad_in[k] in increasing k, because two of them may be one buffer.
 *   - backward gets NULL for every input, output and saved tensor that its way did not declare, and for every grad_in
 *     that is not wanted. grad_out[k] is NULL if nothing reads output k: its gradient is zero, a loss's 1.
 *   - grad_in[k] may be in[k] itself if the op has `backward_inplace`.
 *   - grad_in[k] may be grad_out[0] itself if the op has `passes_gradient`, and is then left alone.
 *   - a tensor with a pitch (ckpt_tensor) has gaps between its rows. Gaps of values hold anything. Gaps of gradients
 *     hold 0, and so do the spare elements of parameters and their gradients (ckpt_param): kernels keep these zeros.
 *   - kernels allocate nothing. Scratch is `workspace`, at least as large as `workspace` said for this state.
 *   - all ways that are not inexact give the same bits, of everything they write.
 *   - the same inputs give the same bits, for all addresses and all contents of the workspace. `recomputed` changes no
 *     result: it only prevents a second update of statistics. */
#ifndef CKPT_KERNELS_KERNEL_H
#define CKPT_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/status.h"
#include "core/base/units.h"
#include "ops/op.h"
#include "ops/optimizer.h"

enum { CKPT_TUNING_TEXT = 256, CKPT_WAY_ABSENT = -2 };

/* Is it that way? `way` NULL: the own way, which has no name here. */
static inline bool ckpt_way_is(const ckpt_way *way, const char *name)
{
    return way != NULL && strcmp(way->name, name) == 0;
}

typedef struct ckpt_kernel_args {
    const ckpt_node *node;
    void *context;       /* ckpt_device.context: the ckpt_cuda of a CUDA device; NULL on the CPU */
    const ckpt_way *way; /* of the node; NULL: its own */
    void *state;         /* from `prepare`; NULL when the kernel has none */
    const void *const *in;
    void *const *out;   /* forward: written; backward: read where declared */
    void *const *saved; /* likewise */
    const float *const *param;
    const void *const *param16;  /* bfloat16 copies of param[], for products; all NULL in a float32 model */
    float *const *stat;          /* backward reads only those that forward never writes */
    const void *const *grad_out; /* backward; of the output's type, a loss's float32 */
    void *const *grad_in;        /* backward; of the input's type; NULL where not wanted */
    float *const *grad_param;    /* backward */
    uint64_t grad_in_adds, grad_param_adds;
    void *workspace; /* CKPT_ALIGN aligned */
    ckpt_bytes workspace_bytes;
    /* With node->index: the Philox key and counter of dropout. On a GPU they are stale when a recorded step is
     * replayed: its kernels read them from the device (ckpt_device_api.begin). */
    uint64_t seed, step;
    int64_t first;   /* of a run on a piece of a tensor: the position of the piece in it; else 0 */
    bool recomputed; /* a recomputation: leave stat[] alone */
    bool evaluating; /* no dropout, statistics instead of batch moments; backward is never called */
} ckpt_kernel_args;

/* Input and results of tuning; results are summed over layers. */
typedef struct ckpt_tuning {
    void *flush; /* on the device: overwritten before each timed run for a cold cache; NULL: the cache stays warm */
    ckpt_bytes flush_bytes;
    int tuned;      /* products, convolutions and directions of attention with a choice */
    int changed;    /* of these: another algorithm than the library's first was chosen */
    int candidates; /* timed in all */
    int refused;    /* of these: other bits in the second run, or another result than the first candidate */
    ckpt_ns first_ns, fastest_ns;   /* of the library's first candidates, and of the chosen ones */
    char refusal[CKPT_TUNING_TEXT]; /* the reason of the last refusal; "": none */
} ckpt_tuning;

/* Parameter k as products read it: in a bfloat16 model its copy. */
static inline const void *ckpt_product_param(const ckpt_kernel_args *args, int k)
{
    return args->node->dtype == CKPT_BFLOAT16 ? args->param16[k] : (const void *)args->param[k];
}

typedef struct ckpt_kernel {
    const char *op;     /* name of the ckpt_op */
    size_t state_bytes; /* of a layer's state; 0: none, and prepare and release are NULL */
    /* Fills a zeroed state: chooses algorithms that fit the workspaces and makes what they need (oneDNN primitives).
     * A workspace of -1 has no limit: the fastest algorithm is taken. `choice` NULL: the libraries' first algorithms;
     * else exactly those that `choice` named for a state of the same layer, or CKPT_DEVICE with what is missing. */
    ckpt_code (*prepare)(void *state, void *context, const ckpt_node *node, ckpt_bytes forward_workspace,
                         ckpt_bytes backward_workspace, const char *choice, ckpt_err *err);
    /* Releases what a state holds, also after prepare has failed. NULL: it holds nothing. */
    void (*release)(void *state);
    /* Bytes that the chosen algorithms use. NULL: none. */
    void (*workspace)(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward);
    /* Bytes of a run in this way of the node, which is `measured`; CKPT_WAY_ABSENT: it cannot be run here. NULL: the node
     * has no such way. */
    ckpt_bytes (*way_workspace)(const ckpt_node *node, const void *state, const ckpt_way *way);
    /* Why the layer is slower than a user might expect: one line that lives as long as the state; "": it is not. NULL:
     * never. */
    const char *(*remark)(const void *state);
    /* The algorithms in use: one line that lives until the state is tuned or released; "": no choice. Two states of a
     * layer with the same line compute the same bits. NULL: always "". */
    const char *(*choice)(const void *state);
    /* Times the candidates of one direction on the tensors of `args`, whose outputs it overwrites, within its
     * workspace. Keeps the fastest candidate that gives the same bits twice and, but for rounding, the first
     * candidate's result. For a profiler, never in a step: it allocates and waits. NULL: nothing to tune. */
    ckpt_code (*tune)(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err);
    ckpt_code (*forward)(const ckpt_kernel_args *args, ckpt_err *err);
    ckpt_code (*backward)(const ckpt_kernel_args *args, ckpt_err *err);
} ckpt_kernel;

/* One step of an optimizer on `count` values of a parameter. */
typedef struct ckpt_update_args {
    void *context;
    const double *hyper; /* the same for all groups: learning rates and weight decay are in the numbers */
    int group;           /* whose numbers hold for this parameter */
    bool decay;          /* weight decay applies to this parameter */
    int64_t count;
    ckpt_matrix matrix; /* where an optimizer updates parameters as a whole: count = stack * rows * columns */
    float *param;
    /* Written too, rounded to nearest even, in the update's own pass where that goes value by value. NULL in a float32
     * model. */
    void *param16;
    const float *grad;
    const float *scale; /* on the device: factor of the gradients; NULL: 1 */
    float *const *slot; /* state, zero before the first step; of bytes where the optimizer says so */
    float *average;     /* of the weights, after their update; NULL: none is wanted */
    void *workspace;    /* CKPT_ALIGN aligned; NULL: the optimizer wants none for this parameter */
    int threads;
} ckpt_update_args;

/* `optimizer` "average": what moves args[].average, of whatever optimizer. */
typedef struct ckpt_optimizer_kernel {
    const char *optimizer;
    /* Updates args[0 .. count) of one step, with the same hyper and scale; their grouping changes no bit. A GPU's
     * kernels read the numbers from the device (ckpt_device_api.begin). */
    ckpt_code (*update)(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err);
} ckpt_optimizer_kernel;

#endif
