/* Training by a plan: a loop over its steps. The executor decides nothing: it knows the lowered network, the plan and
 * the device, and neither a strategy nor a cost.
 *
 *     static block: weights | gradients | optimizer | statistics | inputs | weights16 | scales    (ckpt_static_layout)
 *     arena:        every buffer and workspace at its planned offset                     (arena_bytes, exactly)
 *
 * On a GPU, set-up runs the whole step once on zeros, so that the libraries load what they load at their first use, and
 * then wipes all of it before it draws the weights. Offloads and fetches run beside compute (setup/order.c).
 *
 * After ckpt_executor_create the executor allocates nothing. Two libraries do, a few hundred bytes at a time: oneDNN
 * 2.6 keeps the table of a call's arguments on the C heap during the call, and GNU's OpenMP makes a team when a
 * parallel region has another number of threads than the one before. What is left of that after an op is in the trace,
 * as `outside`. */
#ifndef CKPT_EXECUTOR_EXECUTOR_H
#define CKPT_EXECUTOR_EXECUTOR_H

#include "core/base/text.h"
#include "core/formats/trace.h"
#include "cupti/recorder.h"
#include "executor/data/data.h"
#include "executor/run/predictions.h"
#include "executor/state/section.h"
#include "kernels/device.h"
#include "ops/import/weights.h"
#include "ops/lowering/network.h"
#include "ranks/ranks.h"

typedef struct ckpt_executor ckpt_executor;

typedef struct ckpt_executor_options {
    uint64_t seed;
    ckpt_ranks *ranks; /* for a scheme of several ranks, this process being one of the network's stage; kept until
                          destroy. All ranks must then call what is marked "collective" alike */
    bool poison; /* fill all memory with NaN at the start and what is freed at its free, so that a read of it shows */
    bool record; /* record the step once and replay it, where the device can */
} ckpt_executor_options;

/* `plan` must be bound to lowered->graph and have passed ckpt_plan_check; device, lowered and plan are kept until
 * destroy. Weights are initialised from the seed. Errors: CKPT_BAD_INPUT (the model has no loss or an opaque layer),
 * CKPT_DEVICE (a kernel does not fit its workspace: "profile layer X"), CKPT_NO_MEMORY (static block or arena
 * refused). */
CKPT_MUST_USE ckpt_code ckpt_executor_create(ckpt_device *device, const ckpt_lowered *lowered, const ckpt_plan *plan,
                                             const ckpt_executor_options *options, ckpt_executor **executor,
                                             ckpt_err *err);
void ckpt_executor_destroy(ckpt_executor *executor);

/* Host memory of input `i % input_count` of micro-batch `i / input_count`, which the caller fills before a step:
 * ckpt_tensor_bytes(&model->input[i % input_count]) bytes, in the layout of core/formats/tensor.h. NULL: no layer of
 * this stage reads it. Valid until destroy. */
void *ckpt_executor_input(ckpt_executor *executor, int i);

/* The number of the batch of the data that micro-batch j of the next step is (core/formats/scheme.h). */
uint64_t ckpt_executor_batch(const ckpt_executor *executor, int j);

/* One training step; collective.
 *
 *   loss    the value of the loss node, the same on all ranks. Of several micro-batches and replicas the mean: summed
 *           in double, micro-batches in their order, then replicas in theirs
 *   trace   NULL, or one of ckpt_executor_trace_create, which is overwritten. A traced step is not replayed: its work
 *           is started one by one, with the same bits */
CKPT_MUST_USE ckpt_code ckpt_executor_step(ckpt_executor *executor, float *loss, ckpt_trace *trace, ckpt_err *err);

/* The loss of the micro-batches in the inputs, as in a step, without training: no dropout, statistics in place of batch
 * moments, nothing changed, the step not counted. `watcher` sees the losses over classes; NULL: nobody does. Collective.
 * Runs the forward part of the plan. */
CKPT_MUST_USE ckpt_code ckpt_executor_evaluate(ckpt_executor *executor, const ckpt_watcher *watcher, float *loss,
                                               ckpt_err *err);

/* A trace with room for every step; made before training, so that tracing allocates nothing. Its times, time_ns too,
 * are the device's where it has stamps, else the host's. Its allocations are read from the addresses that the steps are
 * given; capacity_bytes is what the device or the system reports; the caller fills step_ns. */
CKPT_MUST_USE ckpt_code ckpt_executor_trace_create(const ckpt_executor *executor, ckpt_arena *out, ckpt_trace **trace,
                                                   ckpt_err *err);

/* From now on a step that is traced into `trace` on a GPU takes its times from what `recorder` says the device did:
 * kernel_ns and launches of every event, start and end of an event that started anything, and trace->recorder. Such a
 * step allocates in the trace's arena. The recorder is kept until it is replaced; NULL: none, as at the start. When
 * recording fails, training goes on, the trace has the stamps' times, its recorder is "", and ckpt_executor_trace_lost
 * gives the reason in one line (NULL: nothing was lost, or no recorder was given). */
void ckpt_executor_trace_record(ckpt_trace *trace, ckpt_recorder *recorder);
const char *ckpt_executor_trace_lost(const ckpt_trace *trace);

/* How far training has come; ckpt_executor_state_read restores it: steps done, the seed of weights, data order and
 * dropout, and the loss of the latest step (0 before the first). */
uint64_t ckpt_executor_steps(const ckpt_executor *executor);
uint64_t ckpt_executor_seed(const ckpt_executor *executor);
float ckpt_executor_loss(const ckpt_executor *executor);

/* What the state carries of validations, for the caller to read and write: what a validation is, the caller says. */
ckpt_validated *ckpt_executor_validated(ckpt_executor *executor);

/* What the data are, which the state carries so that a resumed run can see whether its data are the same: for the caller to
 * read and write. "" until it is set or a state is read. */
ckpt_data_identity *ckpt_executor_data(ckpt_executor *executor);

/* The most that was in memory in any step, the static block counted: the executor's own count, made when it starts the
 * steps or records them. */
ckpt_bytes ckpt_executor_peak(const ckpt_executor *executor);

/* The most that malloc held beyond what it held before the first step. Looked at after every step, and between the
 * ops of a traced step for a twentieth of its time at most; not in a step with a recorder, whose buffers are on the
 * heap. */
ckpt_bytes ckpt_executor_outside(const ckpt_executor *executor);

/* Host memory that holds offloaded buffers. */
ckpt_bytes ckpt_executor_host_bytes(const ckpt_executor *executor);

/* The largest resident set of this process so far; 0 where the system does not tell. */
ckpt_bytes ckpt_process_peak_bytes(void);

/* How many layers run slower than a user might expect; the first of them and why, when there is one. */
int ckpt_executor_remarks(const ckpt_executor *executor, const char **layer, const char **why);

/* What one step starts on the device, but for the upload of its inputs and the writing of its numbers
 * (ckpt_device_api.begin). *replayed: the step is a recording; only then are kernels of libraries counted. false:
 * nothing is launched (the CPU). */
bool ckpt_executor_launches(const ckpt_executor *executor, ckpt_launches *launches, bool *replayed);

/* How many layers of that op have a choice of algorithms on the device; the first of them and its choice
 * (ckpt_device_choice). */
int ckpt_executor_algorithms(const ckpt_executor *executor, const char *op, const char **layer, const char **which);

/* A digest of a section of the static block, as one rank with the whole network and an unsharded optimizer has it. The
 * section is cut into pieces of CKPT_DIGEST_LEAF bytes, the last one shorter; the digest is the SHA-256 of the pieces'
 * SHA-256, each as 64 hexadecimal digits and a newline:
 *
 *     split -b 64K --filter=sha256sum SECTION | cut -c 1-64 | sha256sum
 *
 * All processors hash. Collective; every rank gets it. Statistics are those of replica 0. Errors: CKPT_BAD_INPUT (fused
 * gradients are gone after a step). */
CKPT_MUST_USE ckpt_code ckpt_executor_digest(ckpt_executor *executor, ckpt_section section, char text[CKPT_DIGEST_TEXT],
                                             ckpt_err *err);

/* Download or upload one parameter, for tests and imports: node's parameter k, host memory in file order. */
CKPT_MUST_USE ckpt_code ckpt_executor_param(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_executor_param_set(ckpt_executor *executor, int node, int k, const float *host,
                                                ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_executor_grad(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_executor_statistic(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err);

/* Exchanges the weights and their moving average (a model with "ema"), so that what is evaluated, hashed or written is the
 * average; a second call undoes it, which training wants before it goes on. Parameters that no gradient reaches have no
 * average and stay. Errors: CKPT_BAD_INPUT (no average, no step done, a sharded optimizer, whose ranks have parts of it). */
CKPT_MUST_USE ckpt_code ckpt_executor_swap_average(ckpt_executor *executor, ckpt_err *err);

/* Sets all parameters and statistics from files that were opened for this network, on every rank those that are there. */
CKPT_MUST_USE ckpt_code ckpt_executor_weights_set(ckpt_executor *executor, const ckpt_weights *weights, ckpt_err *err);
/* Writes them by ckpt_weights_write; rank 0 does, which must have all of them: no pipeline stages. Statistics are those of
 * replica 0. */
CKPT_MUST_USE ckpt_code ckpt_executor_weights_write(ckpt_executor *executor, const char *path, ckpt_dtype dtype,
                                                    ckpt_err *err);

/* Training state: weights, optimizer, statistics (of replica 0), step (from which the data's position follows), seed,
 * what the data are, batches per step. Collective: rank 0 writes one file, of the same form for every scheme, and every
 * rank reads it. A stop and a resume give the bits of never stopping. Reading refuses, with the reason, the state of
 * another model (layers, attributes, shapes, batch, dtype), optimizer, number of threads or number of batches per step,
 * and a damaged file (SHA-256). A state of the CPU can be read on a GPU and the other way round. Written by
 * ckpt_file_begin. */
CKPT_MUST_USE ckpt_code ckpt_executor_state_write(ckpt_executor *executor, const char *path, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_executor_state_read(ckpt_executor *executor, const char *path, ckpt_err *err);

/* The same, for evaluations alone: the batch, the layers without parameters, the number of threads and of batches per
 * step may be others. A step after it would not be the one that follows in that training. */
CKPT_MUST_USE ckpt_code ckpt_executor_state_look(ckpt_executor *executor, const char *path, ckpt_err *err);

/* The bytes of a state file but for its first line, and of the weights in it, each parameter rounded up to 64 bytes. Cost:
 * O(parameters). Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_executor_state_bytes(const ckpt_executor *executor, ckpt_bytes *state, ckpt_bytes *weights,
                                                  ckpt_err *err);

/* The first line that a state file would have now: the same on all ranks that train alike. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_executor_state_header(const ckpt_executor *executor, ckpt_text *text, ckpt_err *err);

#endif
