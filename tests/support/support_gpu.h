/* One case of the table of cases on a GPU and on the CPU: the same numbers for both, runs of the GPU's kernel between
 * guard bytes, and the CPU kernel's answers beside them. Everything reaches the device through its api, so that it is
 * the same test on the emulated device and on a real one. */
#ifndef CKPT_TESTS_SUPPORT_GPU_H
#define CKPT_TESTS_SUPPORT_GPU_H

#include "kernels/device.h"
#include "tests/support/support_bench.h"
#include "tests/support/support_cases.h"

/* A GPU there is: the emulated one always, cuda:0 when this build and this machine have it. test_gpu_ops adds the CPU,
 * whose kernels are compared in bfloat16 with what they say in float32. */
typedef struct ckpt_gpu {
    const char *name;
    ckpt_device *device;
    void *base; /* of a block on the device, as large as the case at hand needs */
    ckpt_bytes bytes;
    unsigned char *sent, *received; /* as long, on the host */
} ckpt_gpu;

enum { CKPT_GPU_MAX = 3 };

/* Cases beside those of support_cases.c, numbered after them (support_gpu_cases.c). */
extern const ckpt_case ckpt_gpu_cases[];
extern const int ckpt_gpu_case_count;

/* Opens them all and gives their number. With CKPT_TEST_DEVICE in the environment cuda:0 alone, which must be there. */
int ckpt_gpu_open_all(ckpt_gpu gpu[CKPT_GPU_MAX]);
void ckpt_gpu_close(ckpt_gpu *gpu);
/* What was reserved for its cases, where the device itself is somebody else's. */
void ckpt_gpu_put(ckpt_gpu *gpu);

/* Set-up and tear-down of a group of tests: all GPUs, and the CPU with one thread to compare with. */
extern ckpt_gpu ckpt_gpus[CKPT_GPU_MAX];
extern int ckpt_gpus_count;
extern ckpt_device *ckpt_gpus_cpu;
int ckpt_gpus_open(void **state);
int ckpt_gpus_close(void **state);

/* Is free memory as it was? It is the device's, so other processes move it, and a runtime may keep a little: on a real
 * GPU CKPT_GPU_OTHERS bytes are allowed, and what there is is printed; on the emulated device none are. A test that
 * asks is to run alone. */
enum { CKPT_GPU_OTHERS = 4 << 20 };
bool ckpt_gpu_same_memory(const ckpt_device *device, const char *what, ckpt_bytes found, ckpt_bytes wanted);

/* A tensor in memory order: `bits` as the GPU has it, gaps and spare elements included, `value` the same numbers as the
 * CPU has them (float32, or int32), `want` what the CPU's kernel says. */
typedef struct ckpt_gpu_tensor {
    const ckpt_tensor *tensor; /* of the GPU's node */
    int64_t count;
    size_t bytes;
    unsigned char *bits;
    float *value, *want;
} ckpt_gpu_tensor;

typedef struct ckpt_gpu_case {
    const ckpt_case *test;
    int number;
    ckpt_dtype dtype;
    ckpt_gpu *gpu;
    ckpt_device *cpu;
    ckpt_arena arena;
    const ckpt_node *node, *cpu_node;
    ckpt_bound_kernel bound, cpu_bound;
    uint64_t seed, step, random;
    ckpt_gpu_tensor in[CKPT_IN_MAX], param[CKPT_PARAM_MAX], out[CKPT_OUT_MAX], saved[CKPT_SAVED_MAX],
        stat[CKPT_STAT_MAX], stat_before[CKPT_STAT_MAX], grad_out[CKPT_OUT_MAX], grad_in[CKPT_IN_MAX],
        grad_param[CKPT_PARAM_MAX];
    bool failed; /* something was reported: the rest of the case is skipped */
} ckpt_gpu_case;

/* Make networks, data and bindings. Parameters and inputs are numbers that the dtype can hold, so that both devices
 * compute from the same. False, and reported, when the GPU has no kernel for the op or refuses its allowance. */
bool ckpt_gpu_case_init(ckpt_gpu_case *c, const ckpt_case *test, int number, ckpt_dtype dtype, ckpt_gpu *gpu,
                        ckpt_device *cpu, uint64_t seed);
void ckpt_gpu_case_fini(ckpt_gpu_case *c);

/* `check` on every case, numbered from `first`, on every GPU in the types of `dtypes` (1: float32, 2: bfloat16), on the CPU
 * in bfloat16. Gives how many failures were reported. */
enum { CKPT_GPU_BOTH = 3 };
int ckpt_gpu_for_all(const ckpt_case *cases, int count, int first, unsigned dtypes, uint64_t seed,
                     void (*check)(ckpt_gpu_case *c));

/* "case 12 (gelu, bfloat16, emulated): <text>" to standard error, and the case has failed. ckpt_gpu_reports: ever. */
void ckpt_gpu_report(ckpt_gpu_case *c, const char *format, ...) CKPT_PRINTF(2, 3);
int ckpt_gpu_reports(void);

/* The GPU's kernel, its results into `bits` and `value`; the CPU's into `want`. Backward on the CPU reads what the last
 * forward of the GPU left, as the GPU's does. run->shared needs equal shapes. */
void ckpt_gpu_forward(ckpt_gpu_case *c, const ckpt_run *run);
void ckpt_gpu_backward(ckpt_gpu_case *c, const ckpt_run *run);
void ckpt_gpu_want_forward(ckpt_gpu_case *c, bool evaluating);
void ckpt_gpu_want_backward(ckpt_gpu_case *c, uint64_t no_grad_out);
void ckpt_gpu_want_backward_by(ckpt_gpu_case *c, const char *way, uint64_t no_grad_out); /* NULL: the own way */

/* Numbers to add to, into bits and value of the wanted gradients. */
void ckpt_gpu_prefill(ckpt_gpu_case *c);

/* How far a GPU may be from the CPU, for an element `want` of a tensor whose largest is `most`:
 *
 *     2 (64 + 8 sqrt(n)) 2^-24 most      both sides' float32, each as ckpt_bench_rounding says (n: the case's largest)
 *   + 2^-8 |want|                        bfloat16 tensors only: one rounding when it is stored
 *   + k 2^-8 most                        bfloat16 models only: k roundings of operands inside the op, a table by op
 *
 * `most` counts as at least 1, but for gradients of a loss, which are small because they are means. */
double ckpt_gpu_bound(const ckpt_gpu_case *c, const ckpt_gpu_tensor *tensor, bool backward, double want, double most);

/* value against want within the bound; whole numbers must be equal. extra: roundings of the bound to add. */
void ckpt_gpu_compare(ckpt_gpu_case *c, const char *what, int k, const ckpt_gpu_tensor *tensor, bool backward,
                      int extra);

/* Bits of everything the last forward or backward wrote, in the case's arena. */
unsigned char *ckpt_gpu_snapshot(ckpt_gpu_case *c, bool backward, size_t *length);

#endif
