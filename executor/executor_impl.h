/* What the files of the executor share. */
#ifndef CKPT_EXECUTOR_EXECUTOR_IMPL_H
#define CKPT_EXECUTOR_EXECUTOR_IMPL_H

#include "executor/data.h"
#include "executor/executor.h"

/* Host memory through which weights are initialised, hashed, saved and restored, piece by piece. */
#define CKPT_CHUNK_BYTES ((ckpt_bytes)1 << 20)

/* One step of the plan with every address known. */
typedef struct ckpt_action {
    ckpt_step_kind kind;
    const char *name, *layer; /* for traces and messages */
    ckpt_span span;
    /* run */
    ckpt_phase phase;
    const ckpt_bound *bound;
    ckpt_kernel_args args;    /* seed and step are written when the step runs */
    ckpt_update_args *update; /* one per parameter; step likewise */
    int update_count;
    /* free, offload, fetch: the place, and the buffer's own room in the host slab */
    void *place;
    unsigned char *host;
    ckpt_bytes bytes;
    /* What the step brings into memory and takes from it, by category. A run's workspace is in neither: it is
     * counted while the run lasts. An in-place run takes its input away before it brings its output. */
    ckpt_bytes born[CKPT_CATEGORY_COUNT], died[CKPT_CATEGORY_COUNT];
} ckpt_action;

struct ckpt_executor {
    ckpt_arena arena; /* host memory of everything below */
    ckpt_device *device;
    const ckpt_lowered *lowered;
    const ckpt_plan *plan;
    ckpt_executor_options options;
    uint64_t seed, steps;
    float last_loss;
    char data[CKPT_DATA_ABOUT];
    ckpt_static_layout layout;
    unsigned char *statics; /* layout.total bytes on the device; NULL: not reserved */
    unsigned char *block;   /* plan->arena_bytes on the device; NULL: not reserved */
    unsigned char *slab;    /* host: room of every buffer that is ever offloaded */
    ckpt_bytes slab_bytes;
    unsigned char *chunk; /* CKPT_CHUNK_BYTES */
    void **input;         /* host memory of the model's inputs */
    ckpt_bound *bound;    /* per node; kernel NULL: not bound */
    ckpt_action *action;  /* per plan step */
    const void *loss;     /* on the device, after the last step */
    ckpt_bytes live[CKPT_CATEGORY_COUNT];
    ckpt_bytes heap_bytes; /* what malloc held when the first step began; -1: none has */
};

/* Bind every node and fill executor->action. */
ckpt_code ckpt_executor_wire(ckpt_executor *executor, ckpt_err *err);

/* Weights from the seed, statistics from their initial values, everything else zero. */
ckpt_code ckpt_executor_initialise(ckpt_executor *executor, ckpt_err *err);

/* Address of parameter k of a node in the section that starts at `section`. */
float *ckpt_executor_param_at(const ckpt_executor *executor, ckpt_bytes section, int node, int k);

/* Start and length of a section of the static block, in bytes. */
void ckpt_executor_section(const ckpt_executor *executor, ckpt_section section, ckpt_bytes *start, ckpt_bytes *bytes);

/* Bytes that malloc has given out and not got back; 0 where the C library does not tell. */
ckpt_bytes ckpt_heap_bytes(void);

/* Recording: `recording` may be NULL everywhere. */
typedef struct ckpt_recording {
    ckpt_trace trace; /* first: the caller's ckpt_trace * points here */
    ckpt_event *event;
    ckpt_ns start_ns;
} ckpt_recording;

void ckpt_recording_start(const ckpt_executor *executor, ckpt_recording *recording);
void ckpt_recording_add(const ckpt_executor *executor, ckpt_recording *recording, int step, ckpt_ns start_ns,
                        ckpt_ns end_ns, ckpt_bytes workspace_bytes);
void ckpt_recording_end(ckpt_recording *recording);

#endif
