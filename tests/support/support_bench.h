/* One case of the op contract on the CPU device: its data as the double truth and as device memory, runs of its
 * kernels between guard bytes, and the reference's outputs and gradients. */
#ifndef CKPT_TESTS_SUPPORT_BENCH_H
#define CKPT_TESTS_SUPPORT_BENCH_H

#include "kernels/device.h"
#include "tests/support/support_cases.h"

/* A tensor twice: `truth` in written order, `memory` as the device has it, `bytes` long. Integers are exact in both. */
typedef struct ckpt_twin {
    const ckpt_tensor *tensor;
    bool
        value; /* a value lies as core/formats/tensor.h says; parameters, statistics and saved tensors lie as written */
    int64_t count;
    size_t bytes;
    double *truth;
    unsigned char *memory;
} ckpt_twin;

typedef struct ckpt_bench {
    const ckpt_case *test;
    int number; /* in the table, for messages */
    ckpt_arena arena;
    const ckpt_network *network;
    const ckpt_node *node;
    ckpt_device *device;
    ckpt_bound_kernel bound;
    uint64_t seed, step, random;
    ckpt_twin in[CKPT_IN_MAX], param[CKPT_PARAM_MAX];
    ckpt_twin out[CKPT_OUT_MAX], saved[CKPT_SAVED_MAX], stat[CKPT_STAT_MAX]; /* truth: what the reference says */
    ckpt_twin stat_before[CKPT_STAT_MAX];
    ckpt_twin grad_out[CKPT_OUT_MAX];                           /* of float outputs; a loss has 1 */
    ckpt_twin grad_in[CKPT_IN_MAX], grad_param[CKPT_PARAM_MAX]; /* truth: central differences */
} ckpt_bench;

/* How a run differs from the plain one. */
typedef struct ckpt_run {
    int shift;          /* cache lines by which every address moves */
    int workspace_byte; /* what the workspace holds before */
    int guard_byte;     /* what lies around every buffer; 0xFF is NaN, so that reading outside shows too */
    bool recomputed, evaluating;
    const ckpt_way *way;  /* NULL: the own way */
    int inplace;          /* forward: 1 + the input whose memory output 0 takes; 0: none */
    int grad_inplace;     /* backward: 1 + the input whose memory its gradient takes; 0: none */
    uint64_t no_grad_out; /* backward: outputs that nobody reads */
    uint64_t adds_in, adds_param;
    bool arriving;              /* backward of a loss: its gradient is a quarter, not 1 */
    bool shared;                /* backward: all wanted gradients of inputs are one buffer, the first one's */
    struct ckpt_tuning *tuning; /* not NULL: on a GPU, candidates are timed in the workspace that the op allows */
} ckpt_run;

/* What backward reads in a way; NULL: in the own one. */
typedef struct ckpt_reads {
    uint64_t in, out, saved;
} ckpt_reads;
ckpt_reads test_way_reads(const ckpt_node *node, const ckpt_way *way);
/* Bytes of workspace that a way uses where the own one uses `own`; CKPT_WAY_ABSENT. */
ckpt_bytes test_way_workspace(const ckpt_bound_kernel *bound, const ckpt_way *way, ckpt_bytes own);
/* Runs a layer in the way of `args` with a workspace of just that size, which holds NaN before; fails on an error. */
void test_call(ckpt_device *device, const ckpt_bound_kernel *bound, const ckpt_kernel_args *args, bool backward);

/* Make network, data and binding; the kernel is given the op's stated allowances and must do with them. */
void ckpt_bench_init(ckpt_bench *bench, const ckpt_case *test, int number, int threads, uint64_t seed);
void ckpt_bench_fini(ckpt_bench *bench);

/* Reference outputs, saved tensors and statistics into the twins' truths. */
void ckpt_bench_reference(ckpt_bench *bench, bool evaluating);
/* Central differences of the reference into grad_in and grad_param; of long tensors only a sample, the rest NaN. */
void ckpt_bench_differences(ckpt_bench *bench, uint64_t no_grad_out);

/* Run the kernel between guard bytes; results go into the `memory` of out, saved, stat, or of grad_in, grad_param
 * (with shared: of the first wanted grad_in). Fails the test when anything else was written. Backward reads what
 * the last forward left in `memory`. */
void ckpt_bench_forward(ckpt_bench *bench, const ckpt_run *run);
void ckpt_bench_backward(ckpt_bench *bench, const ckpt_run *run);
/* The same, giving the kernel's code instead of failing the test on an error. */
ckpt_code ckpt_bench_try(ckpt_bench *bench, const ckpt_run *run, ckpt_err *err);
ckpt_code ckpt_bench_try_backward(ckpt_bench *bench, const ckpt_run *run, ckpt_err *err);

/* Fill the gradients' memory with numbers to add to. */
void ckpt_bench_prefill(ckpt_bench *bench);

/* The relative error that float32 may show: 2^-24 times (64 + 8 sqrt(n)), n the elements of the case's largest tensor.
 * No sum has more terms than that; roundings of n terms add up like a random walk, and 8 standard deviations are
 * allowed; 64 covers the handful of library functions and roundings around. */
double ckpt_bench_rounding(const ckpt_bench *bench);

/* Memory against truth, within (rounding + slack) times the largest number of the tensor (at least 1). Where the truth
 * is not known (NaN) any finite number will do. Slack 1e-6 is for central differences. */
void ckpt_bench_compare(const ckpt_bench *bench, const char *what, int k, const ckpt_twin *twin, double slack);

/* Copies of memory, to compare runs bit for bit. */
unsigned char *ckpt_bench_snapshot(ckpt_bench *bench, bool backward, size_t *length);

double ckpt_bench_random(ckpt_bench *bench);            /* -1..1 */
double ckpt_twin_get(const ckpt_twin *twin, int64_t i); /* element in written order, from memory */

/* False without AVX-512, where oneDNN computes products by its sgemm, which packs into memory of its own. */
bool test_products_stay_in_workspace(void);

#endif
