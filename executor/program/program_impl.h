/* A training step as set-up leaves it: every address, wait and message of every step of the plan. setup/ writes a
 * program once; run/ and state/ read it through const pointers. A program knows what to do where, and neither the seed
 * nor how many steps are done. */
#ifndef CKPT_EXECUTOR_PROGRAM_PROGRAM_IMPL_H
#define CKPT_EXECUTOR_PROGRAM_PROGRAM_IMPL_H

#include "core/formats/trace.h"
#include "kernels/device.h"
#include "ops/lowering/network.h"
#include "ranks/ranks.h"

/* Host memory through which weights are initialised, hashed, saved and restored, piece by piece. */
#define CKPT_CHUNK_BYTES ((ckpt_bytes)1 << 20)

/* Between two ranks the messages of a tag arrive in the order in which they are sent. */
enum { CKPT_TAG_VALUE = 1, CKPT_TAG_GRADIENT, CKPT_TAG_REDUCE_SCATTER, CKPT_TAG_SUMS, CKPT_TAG_WEIGHTS, CKPT_TAG_TIED };

/* Memory that set-up has reserved. */
typedef struct ckpt_reserved {
    unsigned char *at; /* NULL: none */
    ckpt_bytes bytes;
} ckpt_reserved;

/* All memory of a training but the arena of host structures. */
typedef struct ckpt_blocks {
    ckpt_reserved statics, arena;   /* on the device: layout.total and plan->arena_bytes */
    ckpt_reserved slab, feed, post; /* page-locked: offloaded buffers; the model's inputs; messages */
    unsigned char *chunk;           /* 2 * CKPT_CHUNK_BYTES: what is copied, and what a digest hashes meanwhile */
} ckpt_blocks;

/* A value, or its gradient, on its way between two stages. */
typedef struct ckpt_transfer {
    const void *from; /* a send: what is copied into `message`; else NULL */
    void *message;    /* on the device: what is sent, or where it arrives */
    void *staging;    /* page-locked, where messages of a GPU go through the host; else NULL */
    ckpt_bytes bytes;
    int rank, tag, slot;
} ckpt_transfer;

/* A bucket as its rank sees it. Replica r sums up piece[first[r]] .. piece[first[r + 1] - 1]. */
typedef struct ckpt_exchange {
    const ckpt_bucket *bucket;
    const ckpt_piece *piece;
    const int *first;
    int slot, slot_count; /* its first slot; the reduce-scatter and the all-gather of the sums use the same slots */
    float *mirror;        /* page-locked, the elements of the bucket; NULL: messages go from and to the device */
    float *incoming;      /* page-locked, what the other replicas send of the own chunk; NULL with mirror */
} ckpt_exchange;

/* The gradients of a tied parameter that several stages hold, in the order of its holders. */
typedef struct ckpt_tied_gradients {
    int64_t count;
    int holders;
    const int *stage; /* per holder */
    float *const *at; /* per holder: this stage's gradient, or where another's arrives */
    int slot;         /* the first of them */
    float *staging;   /* page-locked, `holders` times `count`; NULL: messages go from and to the device */
} ckpt_tied_gradients;

/* A buffer that a step is given otherwise than by ckpt_kernel_args, and where. */
typedef struct ckpt_touch {
    int buffer;
    const void *address;
} ckpt_touch;

/* Consecutive parameters of a node: their gradients as numbers whose squares are summed. */
typedef struct ckpt_square {
    int node, replica; /* whose sum it belongs to; replica 0 where there is one */
    const float *from;
    int64_t count;
} ckpt_square;

/* One step of the plan. */
typedef struct ckpt_action {
    ckpt_step_kind kind;
    ckpt_stream stream;
    const char *name, *layer; /* for traces and messages */
    ckpt_span span;
    int wait[CKPT_STREAM_COUNT - 1], wait_count; /* signals that it waits for before it starts */
    int signal;                                  /* the signal behind it; -1: nobody waits for it */
    /* run */
    ckpt_task task;
    ckpt_phase phase;
    int batch;    /* micro-batch; -1: of none */
    bool forward; /* of the forward pass: a layer's, or a message of one of its values */
    bool needed;  /* by the losses of that pass, and so by an evaluation */
    const ckpt_bound_kernel *bound;
    ckpt_kernel_args args;    /* without seed and step */
    ckpt_update_args *update; /* one per parameter */
    int update_count;
    /* On a GPU: the first of several updates in a row does all of them; the others have none. */
    ckpt_update_args *joined;
    int joined_count;
    ckpt_transfer transfer;        /* SEND, SENT, RECEIVE */
    const ckpt_exchange *exchange; /* BUCKET .. GATHER */
    float **piece;                 /* of those: where each of its pieces is, gradient or (GATHER) weight */
    float *staging;                /* BUCKET, REDUCE: what the other replicas send of the own chunk */
    ckpt_tied_gradients tied;      /* SHARED */
    const ckpt_square *square;     /* NORM */
    int square_count;
    ckpt_touch *touch;
    int touch_count, touch_capacity;
    /* free, offload, fetch: where the buffer lies in the arena, and its own bytes in the slab */
    void *allocation;
    unsigned char *host;
    ckpt_bytes bytes;
    /* What the step allocates and frees, by category. A run's workspace is in neither: it is counted while the run
     * lasts. An in-place run frees its input before it allocates its output. */
    ckpt_bytes allocated[CKPT_CATEGORY_COUNT], freed[CKPT_CATEGORY_COUNT];
} ckpt_action;

typedef struct ckpt_program {
    ckpt_arena arena; /* host memory of all that follows */
    ckpt_device *device;
    const ckpt_lowered *lowered;
    const ckpt_plan *plan;
    ckpt_ranks *ranks; /* NULL: this process is alone */
    int rank, replica; /* of this process; 0 where it is alone */
    bool poison;       /* fill what is freed with NaN */
    ckpt_static_layout layout;
    ckpt_blocks memory;
    void **input;  /* per micro-batch and model input, in `feed`: what the caller fills; NULL: nobody reads it */
    void **upload; /* likewise: the same, or narrowed to bfloat16 */
    ckpt_bound_kernel *bound; /* per node; kernel NULL: not bound */
    ckpt_action *action;      /* per step of the plan */
    int signal_count;
    int join[CKPT_STREAM_COUNT - 1], join_count; /* signals that compute waits for at the end of a recording */
    const void **loss; /* per micro-batch, on the device; NULL: another stage has the losses */
    int forward_count; /* steps of the plan up to the last that an evaluation needs */
} ckpt_program;

/* Parameter k of a node of this stage, in the section of the static block that starts at `section`. */
float *ckpt_program_param(const ckpt_program *program, ckpt_bytes section, int node, int k);
/* Its bfloat16 copy; NULL in a float32 model. */
void *ckpt_program_param16(const ckpt_program *program, int node, int k);
/* Statistic k of a node of this stage. */
float *ckpt_program_statistic(const ckpt_program *program, int node, int k);
/* scales[i] in the static block; NULL: the scheme needs none. */
float *ckpt_program_scale(const ckpt_program *program, int i);

/* What gradients are divided by in the end: micro-batches, replicas and the scale of the loss. */
double ckpt_program_base_scale(const ckpt_program *program);

/* Before the host writes weights, or slots of the optimizer, for the first time: bring each tensor's memory close to the
 * threads that will update it (ckpt_device_api.touch). Sharded slots stay as they are. What is there is lost. */
void ckpt_program_touch_weights(const ckpt_program *program);
void ckpt_program_touch_slots(const ckpt_program *program);

/* Make the bfloat16 copy of the weights from the weights; nothing in a float32 model. */
ckpt_code ckpt_program_narrow(const ckpt_program *program, ckpt_err *err);

/* The number of the batch of the data that micro-batch j is when `steps` steps are done. */
uint64_t ckpt_program_batch(const ckpt_program *program, uint64_t steps, int j);

/* Processors that host loops may use. */
int ckpt_program_threads(const ckpt_program *program);

#endif
