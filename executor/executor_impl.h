/* What the files of the executor share. */
#ifndef CKPT_EXECUTOR_EXECUTOR_IMPL_H
#define CKPT_EXECUTOR_EXECUTOR_IMPL_H

#include "executor/data/data.h"
#include "executor/executor.h"

/* Host memory through which weights are initialised, hashed, saved and restored, piece by piece. */
#define CKPT_CHUNK_BYTES ((ckpt_bytes)1 << 20)

/* Between two ranks the messages of a tag have one order. */
enum { CKPT_TAG_VALUE = 1, CKPT_TAG_GRADIENT, CKPT_TAG_EXCHANGE, CKPT_TAG_SPREAD, CKPT_TAG_GATHER, CKPT_TAG_SHARED };

/* A value, or its gradient, on its way between two stages. */
typedef struct ckpt_transfer {
    const void *from; /* a send: what is copied into `message`; else NULL */
    void *message;    /* on the device: what is sent, or where it arrives */
    void *room; /* page-locked: what messages go through where the device is a GPU and they are the host's; else NULL */
    ckpt_bytes bytes;
    int rank, tag, slot;
} ckpt_transfer;

/* A bucket as its rank sees it. Replica r sums up piece[first[r]] .. piece[first[r + 1] - 1]. */
typedef struct ckpt_exchange {
    const ckpt_bucket *bucket;
    const ckpt_piece *piece;
    const int *first;
    int slot, slot_count; /* the first of its slots; an exchange and the spreading of its sums take the same */
    float *mirror;        /* as `room` of a transfer: the elements of the bucket; NULL: from and to the device */
    float *incoming;      /* and what the others send of the own chunk */
} ckpt_exchange;

/* The gradients of the copies of a shared parameter, in the order of its holders. */
typedef struct ckpt_copies {
    int64_t count;
    int holders;
    const int *stage; /* per holder */
    float *const *at; /* per holder: this stage's gradient, or where another's comes to */
    int slot;         /* the first of them */
    float *room;      /* as that of a transfer: `holders` times `count`; NULL: from and to the device */
} ckpt_copies;

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

/* One step of the plan with every address known. */
typedef struct ckpt_action {
    ckpt_step_kind kind;
    ckpt_stream stream;
    const char *name, *layer; /* for traces and messages */
    ckpt_span span;
    /* order.c: signals it waits for before it starts, and the one that stands behind it; -1: nobody waits for it */
    int wait[CKPT_STREAM_COUNT - 1], wait_count;
    int signal;
    /* run */
    ckpt_task task;
    ckpt_phase phase;
    int batch;    /* micro-batch; -1: of none */
    bool forward; /* of the forward pass: a layer's, or a message of one of its values */
    bool needed;  /* for the losses of that pass, and so for an evaluation */
    const ckpt_bound_kernel *bound;
    ckpt_kernel_args args;    /* seed and step are written when the step runs */
    ckpt_update_args *update; /* one per parameter */
    int update_count;
    /* On a GPU: those of all updates that follow each other, at the first of them; the others have none. */
    ckpt_update_args *joined;
    int joined_count;
    ckpt_transfer transfer;        /* SEND, SENT, RECEIVE */
    const ckpt_exchange *exchange; /* BUCKET .. GATHER */
    float **piece;                 /* of those: where each of its pieces is, gradient or (GATHER) weight */
    float *staging;                /* BUCKET, REDUCE: what the other replicas send of the own chunk */
    ckpt_copies copies;            /* SHARED */
    const ckpt_square *square;     /* NORM */
    int square_count;
    ckpt_touch *touch;
    int touch_count, touch_room;
    /* free, offload, fetch: the place, and the buffer's own room in the host slab */
    void *allocation;
    unsigned char *host;
    ckpt_bytes bytes;
    /* What the step brings into memory and takes from it, by category. A run's workspace is in neither: it is
     * counted while the run lasts. An in-place run takes its input away before it brings its output. */
    ckpt_bytes born[CKPT_CATEGORY_COUNT], died[CKPT_CATEGORY_COUNT];
} ckpt_action;

/* The plan's places by the step that opens them: by_step[first[step] .. first[step + 1]). */
typedef struct ckpt_allocations {
    const int *first;
    const ckpt_allocation *const *by_step;
} ckpt_allocations;

struct ckpt_executor {
    ckpt_arena arena; /* host memory of everything below */
    ckpt_device *device;
    const ckpt_lowered *lowered;
    const ckpt_plan *plan;
    ckpt_executor_options options;
    int rank, replica; /* of this process; 0 where there is one */
    uint64_t seed, steps;
    uint64_t begun; /* the step that kernels draw from now (ckpt_device_api.begin) */
    bool apart;     /* each layer's update is started by itself: every step of a trace has its own time */
    float last_loss;
    char data[CKPT_DATA_ABOUT];
    ckpt_static_layout layout;
    unsigned char *statics; /* layout.total bytes on the device; NULL: not reserved */
    unsigned char *block;   /* plan->arena_bytes on the device; NULL: not reserved */
    unsigned char *slab;    /* page-locked: room of every buffer that is ever offloaded; NULL: none is */
    ckpt_bytes slab_bytes;
    unsigned char *feed; /* page-locked: the model's inputs, as the caller fills them and as they are uploaded */
    ckpt_bytes feed_bytes;
    unsigned char *chunk; /* CKPT_CHUNK_BYTES for what is copied, and as many for what a digest hashes */
    void **input;         /* per micro-batch and model input, in `feed`: what the caller fills; NULL: nobody reads it */
    void **upload;        /* likewise: the same, or narrowed to bfloat16 */
    ckpt_bound_kernel *bound; /* per node; kernel NULL: not bound */
    ckpt_action *action;      /* per plan step */
    int signal_count;
    int join[CKPT_STREAM_COUNT - 1], join_count; /* signals that compute waits for at the end of a recording */
    void *recorded;                              /* a step, ready to be replayed; NULL: none is */
    ckpt_launches launches;                      /* of the rehearsal */
    const void **loss;                           /* per micro-batch: on the device, after the last step; NULL: another
                                                    stage has the losses */
    int forward_count;                           /* steps of the plan up to the last that an evaluation needs */
    ckpt_transfer *transfer;                     /* per op of the graph that sends or receives; NULL: one rank */
    ckpt_exchange *exchange;                     /* per bucket */
    int shared_slot;                             /* the first of those for parameters that stages share */
    float *shared_room;                          /* and their room; NULL: none */
    unsigned char *post;                         /* page-locked: what messages go through; NULL: nothing does */
    ckpt_bytes post_bytes;
    double *losses;  /* per rank: of a step, on the host */
    double *squares; /* per rank and node: sums of squares of gradients, on the host; NULL: not needed there */
    ckpt_bytes live[CKPT_CATEGORY_COUNT];
    ckpt_bytes peak_bytes;    /* the most that was in memory in any step */
    ckpt_bytes heap_bytes;    /* what malloc held when the first step began; -1: none has */
    ckpt_bytes outside_bytes; /* the most it held more than that, after a step or a part of one that was looked at */
};

/* Bind every node and fill executor->action. */
ckpt_code ckpt_executor_wire(ckpt_executor *executor, ckpt_err *err);

/* Work out the waits and signals of every action. */
ckpt_code ckpt_executor_order(ckpt_executor *executor, const ckpt_allocations *allocations, ckpt_err *err);

/* Rooms, slots and pieces of what goes to other ranks (exchange_join.c): before the actions are wired. */
ckpt_code ckpt_executor_join(ckpt_executor *executor, ckpt_err *err);

/* Do a step that is no layer's. */
ckpt_code ckpt_executor_exchange(ckpt_executor *executor, ckpt_action *action, ckpt_err *err);
ckpt_code ckpt_executor_norm(ckpt_executor *executor, ckpt_action *action, ckpt_err *err);

/* What gradients are divided by in the end: micro-batches, replicas and the scale of the loss. */
double ckpt_executor_base_scale(const ckpt_executor *executor);
/* Address of scales[i] in the static block; NULL: the scheme needs none. */
float *ckpt_executor_scale_at(const ckpt_executor *executor, int i);

/* What set-up does with a whole step. Where code and recordings come to the device at their first use, run the step
 * once on zeros and leave everything zero again; then, or at once, record it where that is wanted and possible. */
ckpt_code ckpt_executor_rehearse(ckpt_executor *executor, ckpt_err *err);

/* The bfloat16 copy of the weights, from the weights; nothing in a float32 model. */
ckpt_code ckpt_executor_narrow(ckpt_executor *executor, ckpt_err *err);

/* Weights from the seed, statistics from their initial values, everything else zero. */
ckpt_code ckpt_executor_initialise(ckpt_executor *executor, ckpt_err *err);

/* Address of parameter k of a node of this stage in the section that starts at `section`. */
float *ckpt_executor_param_at(const ckpt_executor *executor, ckpt_bytes section, int node, int k);
/* Of its bfloat16 copy; NULL in a float32 model. */
void *ckpt_executor_param16_at(const ckpt_executor *executor, int node, int k);

/* Before the first step: what malloc has given out so far is not outside. Later calls change nothing. */
void ckpt_executor_outside_start(ckpt_executor *executor);

/* Raise executor->outside_bytes to what is outside now; gives what is. */
ckpt_bytes ckpt_executor_outside_look(ckpt_executor *executor);

/* A trace that is being written; `measured` may be NULL everywhere. */
typedef struct ckpt_measured {
    ckpt_trace trace; /* first: the caller's ckpt_trace * points here */
    ckpt_event *event;
    ckpt_ns start_ns;
    ckpt_arena *out;            /* the trace lies in it */
    ckpt_recorder *recorder;    /* NULL: none */
    bool recording;             /* this step, and nothing has gone wrong so far */
    ckpt_err lost;              /* what went wrong; an empty message: nothing */
    int64_t dropped_before;     /* records that were lost before this step */
    ckpt_ns looked_ns, look_ns; /* at the heap: when that ended last, and what it took */
    ckpt_bytes outside_bytes;   /* what was seen */
} ckpt_measured;

/* Times of steps come from stamps on their streams where the device has them, all at the end, and from its own records
 * where there is a recorder; else from the host's clock, and every step is waited for. */
ckpt_code ckpt_measured_start(const ckpt_executor *executor, ckpt_measured *measured, ckpt_err *err);
ckpt_code ckpt_measured_before(const ckpt_executor *executor, ckpt_measured *measured, int step, ckpt_err *err);
ckpt_code ckpt_measured_after(ckpt_executor *executor, ckpt_measured *measured, int step, ckpt_err *err);
/* After `finish`. */
ckpt_code ckpt_measured_end(const ckpt_executor *executor, ckpt_measured *measured, ckpt_err *err);

/* The recorder's part of that (device_records.c): forget what was recorded so far; tag what is started between push and
 * pop with the step; put what was recorded in place of the stamps' times, which must be there. Nothing fails: what goes
 * wrong is in `lost`, and the stamps' times stay. */
void ckpt_records_start(ckpt_measured *measured);
void ckpt_records_push(ckpt_measured *measured, int step);
void ckpt_records_pop(ckpt_measured *measured);
void ckpt_records_end(const ckpt_executor *executor, ckpt_measured *measured);

/* Where everything in the arena lies, by the addresses that the steps are given (measured_places.c). Errors:
 * CKPT_DEVICE (something lies outside of it), CKPT_NO_MEMORY. */
ckpt_code ckpt_measured_allocations(const ckpt_executor *executor, ckpt_arena *out,
                                    const ckpt_trace_allocation **allocation, int *count, ckpt_err *err);

/* Processors that host loops of this executor may use. */
int ckpt_executor_host_threads(const ckpt_executor *executor);

#endif
