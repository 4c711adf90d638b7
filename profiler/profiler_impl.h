/* Common to the profiler's files. */
#ifndef CKPT_PROFILER_PROFILER_IMPL_H
#define CKPT_PROFILER_PROFILER_IMPL_H

#include "profiler/counters.h"
#include "profiler/profiler.h"

enum { CKPT_PROFILE_REPEATS_MIN = 3 };

/* What lowering said about a node. */
typedef struct ckpt_node_role {
    bool forward, backward, update;
    uint64_t grad_in_adds, grad_param_adds;
    const ckpt_op_role *op[CKPT_DIRECTION_COUNT]; /* NULL: it has none of that direction */
} ckpt_node_role;

/* What the rows do not show, for one line each at the end. */
typedef struct ckpt_profile_tally {
    int directions;    /* timed in all */
    int lost_runs;     /* not recorded whole, left out */
    int by_stamps;     /* directions with too few whole runs, or no work seen: the stamps' times */
    int apart;         /* directions whose times by stamps and by kernels differ much; the worst of them: */
    const char *layer; /* NULL: none */
    ckpt_direction direction;
    ckpt_ns stamps_ns, span_ns;
} ckpt_profile_tally;

typedef struct ckpt_profiling {
    ckpt_device *device;
    const ckpt_lowered *lowered;
    ckpt_profiler_options options;
    const ckpt_node_role *role; /* per node */
    ckpt_arena *out, *scratch;
    float *chunk;      /* CKPT_BENCH_CHUNK of host memory */
    uint16_t *chunk16; /* and as many bfloat16 */
    ckpt_ns min_ns;    /* spent on warming up and on timed runs at least; 0: as many runs as were asked for */
    int64_t *sample;   /* CKPT_PROFILE_REPEATS_MAX */
    ckpt_counts counts[CKPT_PROFILE_REPEATS_MIN];
    ckpt_counters *counters; /* NULL: a GPU, or nothing can be counted */
    void *flush;             /* on the device; NULL: runs find what the run before left in its cache */
    ckpt_bytes flush_bytes;
    ckpt_ns flush_ns; /* one such fill takes, > 0 */
    ckpt_ns start_ns; /* that the host took to start the last run */
    bool recording;   /* options.recorder works */
    ckpt_profile_tally tally;
    bool tuning_on;
    ckpt_tuning tuning;
} ckpt_profiling;

enum { CKPT_BENCH_CHUNK = 1 << 16 };

/* A line to the caller's options.note; and, when all layers are timed, lines about tuning and the tally. */
void ckpt_profile_note(const ckpt_profiling *profiling, const char *format, ...) CKPT_PRINTF(2, 3);
void ckpt_profile_note_end(const ckpt_profiling *profiling);

/* One layer being measured: every tensor at its own address in one block of device memory. */
typedef struct ckpt_bench {
    ckpt_device *device;
    const ckpt_node *node;
    const ckpt_lowered *lowered;
    ckpt_bound_kernel bound;
    unsigned char *block;
    ckpt_bytes bytes; /* of the block */
    float *chunk;
    uint16_t *chunk16;
    const void *in[CKPT_IN_MAX];
    void *out[CKPT_OUT_MAX], *saved[CKPT_SAVED_MAX];
    const float *param[CKPT_PARAM_MAX];
    const void *param16[CKPT_PARAM_MAX];
    float *stat[CKPT_STAT_MAX];
    const void *grad_out[CKPT_OUT_MAX];
    void *grad_in[CKPT_IN_MAX];
    float *grad_param[CKPT_PARAM_MAX];
    float *slot[CKPT_HYPER_MAX];
    ckpt_bytes forward_bytes,
        backward_bytes; /* workspaces, staging included; until it is tuned, enough for any algorithm */
    ckpt_kernel_args args;
} ckpt_bench;

/* Bind the layer, reserve its tensors and fill what its kernels read. close also takes what open left half done. */
CKPT_MUST_USE ckpt_code ckpt_bench_open(ckpt_bench *bench, const ckpt_profiling *profiling, const ckpt_node *node,
                                        ckpt_err *err);
void ckpt_bench_close(ckpt_bench *bench);
/* Bind the layer to the fastest algorithms that its device's libraries offer, and use the workspaces of those. */
CKPT_MUST_USE ckpt_code ckpt_bench_tune(ckpt_bench *bench, ckpt_profiling *profiling, ckpt_err *err);
/* Bytes of workspace that a way uses, staging not included. */
ckpt_bytes ckpt_bench_way_workspace(const ckpt_bench *bench, const ckpt_way *way);
/* Start one run, in the way of bench->args; the device is not waited for. */
CKPT_MUST_USE ckpt_code ckpt_bench_start(ckpt_bench *bench, ckpt_direction direction, ckpt_err *err);

/* Time each direction the layer has: fills the row's timings and kernels. `index` is the row's. */
CKPT_MUST_USE ckpt_code ckpt_profile_time(ckpt_profiling *profiling, ckpt_bench *bench, int index,
                                          ckpt_profile_row *row, ckpt_err *err);

/* The times and ways of the layer that was measured, in the row of one that is the same. */
void ckpt_profile_repeat(const ckpt_profile_row *from, ckpt_profile_row *row);

/* Medians over the runs of one direction that were recorded whole. */
typedef struct ckpt_joined {
    int launches; /* of one run; 0: nothing was recorded */
    int whole;    /* runs with as many; the others lost some */
    ckpt_ns span_ns, spread_ns, kernel_ns, gap_ns;
    const ckpt_ns *sample_ns;    /* the spans of the whole runs, in order */
    ckpt_profile_kernel *kernel; /* in order of their start */
    int kernel_count;
} ckpt_joined;

/* Join activities, which are in order of their start, to the runs with tags first .. first + repeats - 1. The names are
 * the activities' own. Cost: O(count * distinct names). Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_profile_join(const ckpt_activity *activity, int count, uint64_t first, int repeats,
                                          ckpt_direction direction, ckpt_arena *out, ckpt_joined *joined,
                                          ckpt_err *err);

/* Measure how fast copies go to the host and back; leaves `profile` alone where nothing copies beside compute (the
 * CPU). */
CKPT_MUST_USE ckpt_code ckpt_profile_link(ckpt_device *device, ckpt_profile *profile, ckpt_err *err);

#endif
