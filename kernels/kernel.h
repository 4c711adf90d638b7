/* How an op is computed: one constant per op and device (kernels/cpu/gelu.c), and what it is given to compute with.
 *
 * The rules every kernel keeps:
 *   - forward overwrites out[] and saved[]; backward overwrites grad_in[] and grad_param[], except where the
 *     node accumulates (ckpt_node_accumulates) and the *_adds bit is set: then it adds.
 *   - where it does, grad_in[k] are finished in increasing k: two of them may be one buffer.
 *   - backward sees NULL for every input, output and saved tensor the op did not declare, and for every grad_in
 *     that is not wanted; grad_out[k] is NULL when nothing reads output k (its gradient is zero).
 *   - grad_in[k] may be in[k] itself where the op's `backward_inplace` says so.
 *   - grad_in[k] may be grad_out[0] itself where the op's `passes_gradient` says so, and is then left alone.
 *   - a tensor with a pitch (ckpt_tensor) has gaps between its rows. Gaps of values hold anything. Gaps of gradients
 *     hold 0, and so do the spare elements of parameters and of their gradients (ckpt_param): a kernel that is given
 *     them reads 0 there and leaves 0.
 *   - nothing is allocated: scratch is `workspace`, at least what `workspace` said for this state.
 *   - the same inputs give the same bits, whatever the addresses and whatever the workspace held before; `again`
 *     changes no result, it only keeps statistics from being updated twice. */
#ifndef CKPT_KERNELS_KERNEL_H
#define CKPT_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/units.h"
#include "ops/op.h"
#include "ops/optimizer.h"

enum { CKPT_TUNING_TEXT = 256 };

typedef struct ckpt_kernel_args {
    const ckpt_node *node;
    void *context; /* what the device gives its kernels (a CUDA device: itself); NULL on the CPU */
    void *state;   /* from `prepare`; NULL when the kernel has none */
    const void *const *in;
    void *const *out;   /* forward: written; backward: read where declared */
    void *const *saved; /* likewise */
    const float *const *param;
    const void *const *param16;  /* bfloat16 copies of param[], for products; all NULL in a float32 model */
    float *const *stat;          /* backward reads them only where forward never writes them */
    const void *const *grad_out; /* backward; of the output's type, a loss's float32 */
    void *const *grad_in;        /* backward; of the input's type; NULL where not wanted */
    float *const *grad_param;    /* backward */
    uint64_t grad_in_adds, grad_param_adds;
    void *workspace; /* CKPT_ALIGN aligned */
    ckpt_bytes workspace_bytes;
    /* With node->index: the Philox key and counter of dropout. On a GPU these are what they were when the step was
     * recorded: its kernels read them from the device (ckpt_device_api.begin). */
    uint64_t seed, step;
    bool recomputed; /* a recomputation: leave stat[] alone */
    bool evaluating; /* no dropout, statistics instead of batch moments; backward is never called */
} ckpt_kernel_args;

/* What tuning is given, and what came of it, added up over layers. */
typedef struct ckpt_tuning {
    void *flush; /* on the device, overwritten before each timed run so that it finds a cold cache; NULL: it does not */
    ckpt_bytes flush_bytes;
    int tuned;      /* products, convolutions and directions of attention with a choice */
    int changed;    /* of these, another than the library's first was taken */
    int candidates; /* timed in all */
    int refused;    /* of these, gave other bits the second time, or another result than the first candidate */
    ckpt_ns first_ns, fastest_ns;   /* by the library's first candidates, and by those that were taken */
    char refusal[CKPT_TUNING_TEXT]; /* the last refusal in words; "": none */
} ckpt_tuning;

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
    /* Bytes the chosen algorithms use. NULL: none. */
    void (*workspace)(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward);
    /* Why the layer runs slower than a user might expect, one line that lives as the state; "": it does not. NULL:
     * never. */
    const char *(*remark)(const void *state);
    /* The algorithms in use, one line that lives as the state until it is tuned; "": there is nothing to choose. Two
     * states of a layer with the same line compute the same bits. NULL: always "". */
    const char *(*choice)(const void *state);
    /* Time the candidates of one direction on the tensors of `args`, whose outputs are overwritten, within its
     * workspace, and keep the fastest of those that give the same bits again and the first one's result but for
     * rounding. For a profiler, never in a step: allocates and waits. NULL: nothing to tune. */
    ckpt_code (*tune)(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err);
    ckpt_code (*forward)(const ckpt_kernel_args *args, ckpt_err *err);
    ckpt_code (*backward)(const ckpt_kernel_args *args, ckpt_err *err);
} ckpt_kernel;

/* One step of an optimizer on `count` values of a parameter. */
typedef struct ckpt_update_args {
    void *context;
    const double *hyper;
    bool decay; /* weight decay applies to this parameter */
    int64_t count;
    float *param;
    void *param16; /* written too, rounded to nearest even; NULL in a float32 model */
    const float *grad;
    const float *scale; /* on the device: what gradients are multiplied by first; NULL: nothing, as if it were 1 */
    float *const *slot; /* state values, zero before the first step */
    int threads;
} ckpt_update_args;

typedef struct ckpt_optimizer_kernel {
    const char *optimizer;
    /* args[0 .. count) of one step, with the same hyper and scale; how they are grouped changes no bit. `number`: the
     * optimizer's for this step; a GPU's kernels read them from the device (ckpt_device_api.begin), as a recorded step
     * is replayed with the arguments of the first. */
    ckpt_code (*update)(const ckpt_update_args *args, int count, const float *number, ckpt_err *err);
} ckpt_optimizer_kernel;

#endif
