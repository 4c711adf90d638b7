/* ckpt: memory planning for neural-network training, from memory to memory.
 *
 * A graph is one training step as operations and buffers. A plan says, step by step, what to run, recompute, free, move
 * to the host and fetch back so that the step fits a budget in bytes, and where in one block of memory each buffer lies.
 *
 *     ckpt_graph *graph = NULL;
 *     ckpt_options *options = ckpt_options_create();
 *     ckpt_plan *plan = NULL;
 *     ckpt_error error;
 *     if (ckpt_options_set(options, "budget", "80%", &error) == CKPT_SUCCESS &&
 *         ckpt_graph_from_json("model.json", text, length, options, &graph, &error) == CKPT_SUCCESS &&
 *         ckpt_plan_create(graph, options, &plan, &error) == CKPT_SUCCESS) { ... }
 *
 * Errors   A call that can fail returns CKPT_SUCCESS or another ckpt_status and fills `error` (may be NULL). Its outputs
 *          are set on success only. "No plan fits" is an answer, not an error: ckpt_plan_summary.verdict.
 * Memory   What ..._create and ..._from_json give is destroyed by ..._destroy, which takes NULL. Texts and arrays that a
 *          handle gives belong to it and live as long as it does. Arguments are read during the call only; nothing of
 *          the caller's is kept but the callbacks of the options and their context.
 * Threads  There is no global state but a framework's device memory (below): different threads may do anything with different handles, and share a handle that
 *          none of them changes (only functions that take a pointer to non-const change a handle). Eight threads that
 *          plan give the same plans as one.
 * Manners  Nothing is printed, no signal handler installed, no locale or allocator set, the process never ended.
 * ABI      Structs, enumerators and symbols stay as they are within a major version of libckpt.so; what is new comes
 *          with symbols of its own. All text is UTF-8, all sizes are bytes, all times nanoseconds. */
#ifndef CKPT_H
#define CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_VERSION       "0.1.0"
#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 1
#define CKPT_VERSION_PATCH 0

/* The library's version, "0.1.0": semantic versioning, https://semver.org. The text is static. */
const char *ckpt_version(void);

/* ---- errors ---- */

typedef enum ckpt_status {
    CKPT_SUCCESS = 0,
    CKPT_ERROR_INPUT = 1,    /* a text, an option or an argument is wrong; the message says what was found and wanted */
    CKPT_ERROR_OVERFLOW = 2, /* a size, a time or a sum does not fit 63 bits */
    CKPT_ERROR_MEMORY = 3,   /* the host has no more memory */
    CKPT_ERROR_FILE = 4,     /* a file that an option names could not be read */
    CKPT_ERROR_MISSING = 5,  /* a plug-in is not installed */
    CKPT_ERROR_CANCELLED = 6, /* the cancel callback ended planning before any plan was found */
} ckpt_status;

typedef struct ckpt_error {
    int32_t code;         /* ckpt_status */
    int32_t line, column; /* from 1: the place in a JSON text, whose name begins the message; 0: no such place */
    char message[516];    /* one line, terminated */
} ckpt_error;

/* ---- options ---- */

/* What is asked for. A new one asks for what ckpt-plan does without options: no budget, strategy auto, effort 1. */
typedef struct ckpt_options ckpt_options;

/* New options, or NULL when the host has no memory. Destroy them with ckpt_options_destroy. */
ckpt_options *ckpt_options_create(void);
void ckpt_options_destroy(ckpt_options *options);

/* Set an option by its name on ckpt-plan's command line, without the dashes; docs/reference/options.md lists them.
 *
 *   name    planning: "budget" ("6GB", "80%" of keep-all's peak), "reserve", "strategy", "effort" ("0".."3"),
 *           "time-limit" (seconds), "checkpoint", "keep", "offload", "policy", "ignore-flags", "allow-inexact", "reorder",
 *           "start" (a plan's file), "link", "host-memory";
 *           models: "profile", "device", "set" ("batch=8"), "dtype", "optimizer", "threads", "micro-batches", "replicas",
 *           "pipeline-stages", "stage", "gradients", "tied", "shard", "overlap", "bucket", "network";
 *           "solver": "glpk" opens the plug-in libckpt_glpk.so, "none" (as at first) plans without one
 *   value   as on the command line; of a switch ("ignore-flags", "overlap") NULL or ""
 *
 * "set", "checkpoint", "keep", "offload" and "policy" add to what is there; the others replace it.
 *
 * Errors: CKPT_ERROR_INPUT, CKPT_ERROR_MEMORY, CKPT_ERROR_MISSING (no such plug-in, or one of another version). */
int ckpt_options_set(ckpt_options *options, const char *name, const char *value, ckpt_error *error);

/* The same for an option whose value is a JSON file: give the file's text instead.
 *
 *   option      "profile" (ckpt-profile), "device" (a device's figures) or "start" (ckpt-plan)
 *   name        stands for the file's name in messages and in the plan
 *   json        `length` bytes; copied. They are parsed when they are needed.
 *
 * Errors: CKPT_ERROR_INPUT (no such option), CKPT_ERROR_MEMORY. */
int ckpt_options_set_json(ckpt_options *options, const char *option, const char *name, const char *json, size_t length,
                          ckpt_error *error);

/* One option of ckpt_options_set. */
typedef struct ckpt_option_info {
    const char *name;     /* "budget" */
    const char *argument; /* what its value is: "SIZE", "static|fused"; NULL: a switch */
    const char *help;     /* one line, defaults in brackets */
} ckpt_option_info;

/* All of them, for programs that offer them to their users. `count` is set. A static array. */
const ckpt_option_info *ckpt_options_list(int32_t *count);

/* The budget in bytes for everything the step holds on the device, static block included; 0: no limit. */
void ckpt_options_set_budget(ckpt_options *options, int64_t bytes);

/* How hard to look: 0 to 3; what lies outside counts as the nearest. Effort counts work, not time, so plans do not
 * depend on the machine. For 500 ops 1 takes up to a second, 2 ten, 3 a minute. */
void ckpt_options_set_effort(ckpt_options *options, int32_t effort);

/* How far planning has come. */
typedef struct ckpt_progress {
    const char *part;    /* what begins now: "chain", "search", ...; of a sweep also "budgets". Valid during the call */
    int64_t best_ns;     /* time of the fastest schedule so far under the budget being tried; 0: none yet */
    int64_t bound_ns;    /* no schedule under that budget is faster; 0: no bound yet */
    int32_t done, total; /* budgets of a sweep; 0 of 0 for one plan */
} ckpt_progress;

/* Call `progress` whenever a part of planning begins, from the thread that plans; NULL: call nobody.
 *
 *   context   handed to the callback; it and what it points to stay the caller's */
void ckpt_options_set_progress(ckpt_options *options, void (*progress)(void *context, const ckpt_progress *progress),
                               void *context);

/* Ask `cancel` about a thousand times a second, from the thread that plans, whether to end: not 0 ends planning soon,
 * with the best plan so far (ckpt_plan_summary.ended_early). NULL: ask nobody. */
void ckpt_options_set_cancel(ckpt_options *options, int32_t (*cancel)(void *context), void *context);

/* ---- graphs ---- */

/* One training step: static blocks, buffers, and ops in reference order. docs/reference/formats.md says the rules. */
typedef struct ckpt_graph ckpt_graph;

typedef enum ckpt_buffer_kind {
    CKPT_BUFFER_ACTIVATION = 0,
    CKPT_BUFFER_SAVED = 1, /* kept by forward for backward alone */
    CKPT_BUFFER_GRADIENT = 2,
} ckpt_buffer_kind;

typedef enum ckpt_op_phase {
    CKPT_PHASE_FORWARD = 0,
    CKPT_PHASE_BACKWARD = 1,
    CKPT_PHASE_UPDATE = 2,
    CKPT_PHASE_REDUCE = 3,
} ckpt_op_phase;

/* A graph of a text.
 *
 *   name      stands for the file's name in messages and in plans; "" or NULL: nameless
 *   json      `length` bytes of ckpt-graph or ckpt-model JSON. A model is lowered: to the device or profile, variables,
 *             threads and scheme of `options`
 *   options   NULL: the defaults
 *   graph     a new one, finished; destroy it with ckpt_graph_destroy
 *
 * Errors: CKPT_ERROR_INPUT with line and column, CKPT_ERROR_OVERFLOW, CKPT_ERROR_MEMORY, CKPT_ERROR_FILE.
 * Cost: O(length). */
int ckpt_graph_from_json(const char *name, const char *json, size_t length, const ckpt_options *options,
                         ckpt_graph **graph, ckpt_error *error);

/* An empty graph to build, or NULL when the host has no memory. Add to it, then call ckpt_graph_finish.
 *
 * None of the calls that add reports an error: the first one is kept for ckpt_graph_finish, and what follows is ignored.
 * The calls that give an index give -1 then, which the others accept. Indices count from 0 in the order of adding. */
ckpt_graph *ckpt_graph_create(const char *name);
void ckpt_graph_destroy(ckpt_graph *graph);

/* Bytes that are on the device during the whole step: "weights", "gradients", "optimizer", "inputs", ... */
void ckpt_graph_add_static(ckpt_graph *graph, const char *name, int64_t bytes);

/* Something an op writes. Its index. `name` is unique among buffers. */
int32_t ckpt_graph_add_buffer(ckpt_graph *graph, const char *name, int64_t bytes, ckpt_buffer_kind kind);

/* The next op in reference order. Its index. `name` is unique among ops; it takes time_ns and, while it runs,
 * workspace_bytes beside its buffers. */
int32_t ckpt_graph_add_op(ckpt_graph *graph, const char *name, ckpt_op_phase phase, int64_t time_ns,
                          int64_t workspace_bytes);

/* What an op does with a buffer: each buffer is written by one op, and read and added to by later ones only. Only
 * gradients are added to. */
void ckpt_op_reads(ckpt_graph *graph, int32_t op, int32_t buffer);
void ckpt_op_writes(ckpt_graph *graph, int32_t op, int32_t buffer);
void ckpt_op_adds(ckpt_graph *graph, int32_t op, int32_t buffer);

/* Buffer `out`, which the op writes, may take the place of `in`, which it reads and destroys. They are equally large. */
void ckpt_op_inplace(ckpt_graph *graph, int32_t op, int32_t out, int32_t in);

/* Another way to do an op, with a name unique among its ways: a kernel with more workspace, or one that reads other
 * buffers. A number that stands for an op's index in ckpt_op_reads, _writes, _adds and _inplace, which say all of what
 * this way does: nothing is taken over from the op. Plans choose a way for every run.
 *
 *   exact   0: what it writes has other bits than by the op's own way; used only with the option "allow-inexact" */
int32_t ckpt_op_variant(ckpt_graph *graph, int32_t op, const char *name, int64_t time_ns, int64_t workspace_bytes,
                        int32_t exact);

/* What the op's own way is called. Without this call it has no name. */
void ckpt_op_own_variant(ckpt_graph *graph, int32_t op, const char *name);

/* Whether the op need not run at all, because only variants read what it writes. Without this call it must. */
void ckpt_op_optional(ckpt_graph *graph, int32_t op, int32_t optional);

/* Whether the op may run more than once. Without this call forward ops may that add to nothing. */
void ckpt_op_recomputable(ckpt_graph *graph, int32_t op, int32_t recomputable);

/* The layer that the op belongs to, "h.0.mlp", and the layer's kind of op, "linear": what the options "checkpoint",
 * "keep", "offload" and "policy" match, and what ckpt_plan_explain sums over. NULL: none. */
void ckpt_op_layer(ckpt_graph *graph, int32_t op, const char *layer, const char *kind);

/* The buffer must be there at the end of the step. */
void ckpt_graph_add_output(ckpt_graph *graph, int32_t buffer);

/* The host can be copied to and from at these rates, both > 0: plans may offload. */
void ckpt_graph_set_link(ckpt_graph *graph, int64_t to_host_bytes_per_s, int64_t from_host_bytes_per_s);

/* Check what was added; the graph is complete and no longer changes.
 *
 * Errors: CKPT_ERROR_INPUT (the first thing that was wrong), CKPT_ERROR_OVERFLOW, CKPT_ERROR_MEMORY.
 * Cost: O(total reads and writes). */
int ckpt_graph_finish(ckpt_graph *graph, ckpt_error *error);

/* How many there are. */
int32_t ckpt_graph_op_count(const ckpt_graph *graph);
int32_t ckpt_graph_buffer_count(const ckpt_graph *graph);

/* The graph as ckpt-graph JSON.
 *
 *   length   set to the bytes before the terminating 0; NULL: not wanted
 *
 * Gives a text to be freed by ckpt_json_free, or NULL after an error. Errors: CKPT_ERROR_INPUT (not finished),
 * CKPT_ERROR_MEMORY. Cost: O(length). */
char *ckpt_graph_json(const ckpt_graph *graph, size_t *length, ckpt_error *error);

/* Free a text that a ..._json function gave; NULL is fine. */
void ckpt_json_free(char *json);

/* ---- plans ---- */

typedef struct ckpt_plan ckpt_plan;

typedef enum ckpt_plan_verdict {
    CKPT_VERDICT_FITS = 0,
    CKPT_VERDICT_INFEASIBLE = 1, /* no plan within the budget was found: see min_budget_bytes */
} ckpt_plan_verdict;

typedef struct ckpt_plan_summary {
    int32_t verdict;     /* ckpt_plan_verdict */
    int32_t ended_early; /* 1: cancelled, or at the time limit: the best plan so far */
    int64_t budget_bytes;
    /* Infeasible, else 0: a budget at which this planner finds a plan; and one below which nobody finds any (0: not
     * known). */
    int64_t min_budget_bytes, no_schedule_below_bytes;
    int64_t peak_bytes;    /* the most that is live in any step, static_bytes included */
    int64_t static_bytes;  /* of all static blocks */
    int64_t arena_bytes;   /* of the block that holds the buffers; static_bytes + arena_bytes <= budget_bytes */
    int64_t time_ns;       /* of the step, as predicted */
    int64_t recompute_ns;  /* of that: ops that run more than once */
    int64_t offload_bytes; /* copied to the host; and the most that is there at once */
    int64_t host_bytes;
    int64_t keep_all_peak_bytes, keep_all_time_ns; /* of the step without any plan */
    int64_t bound_ns; /* no schedule in bound_scope under this budget is faster; 0: no bound */
    double planning_seconds;
    const char *bound_how, *bound_scope; /* "exact", "exact before placement", ...; "all", ... */
    const char *strategy;                /* that made it */
    const char *graph_name;
    const char *graph_sha256; /* of the graph's structure, 64 hexadecimal digits */
    const char *costs;        /* where times come from: "roofline of cpu" */
    const char *notes;        /* lines on options that did nothing or were left out; "" for none */
} ckpt_plan_summary;

typedef enum ckpt_plan_action {
    CKPT_ACTION_RUN = 0,     /* an op */
    CKPT_ACTION_FREE = 1,    /* a buffer */
    CKPT_ACTION_OFFLOAD = 2, /* start to copy a buffer to the host */
    CKPT_ACTION_FETCH = 3,   /* start to copy it back */
} ckpt_plan_action;

typedef struct ckpt_plan_step {
    int32_t action;      /* ckpt_plan_action */
    int32_t index;       /* of the op or buffer in its graph; -1 in a plan that was read from JSON */
    int32_t recomputed;  /* run: 1: the op has run before */
    int32_t inplace;     /* run: 1: outputs take the places of the inputs that the op names for them */
    const char *name;    /* of the op or buffer */
    const char *variant; /* run: how the op is done; NULL: in its own way */
} ckpt_plan_step;

/* Bytes [offset, offset + bytes) of the arena in the steps first_step..last_step, both included. */
typedef struct ckpt_plan_allocation {
    int32_t buffer; /* its index in the graph; -1: workspace, and in a plan that was read from JSON */
    int32_t first_step, last_step;
    int32_t unused;
    int64_t offset, bytes;
    const char *name; /* of the buffer, or "workspace" */
} ckpt_plan_allocation;

/* Plan a graph under a budget. A plan that fits has been replayed by the checker.
 *
 *   graph     finished
 *   options   NULL: the defaults. For a graph of a model its model options must be those it was made with
 *   plan      a new one; destroy it with ckpt_plan_destroy. It does not need the graph
 *
 * Errors: CKPT_ERROR_INPUT, CKPT_ERROR_OVERFLOW, CKPT_ERROR_MEMORY, CKPT_ERROR_FILE, CKPT_ERROR_CANCELLED.
 * Cost: see ckpt_options_set_effort. Source: docs/explanation. */
int ckpt_plan_create(const ckpt_graph *graph, const ckpt_options *options, ckpt_plan **plan, ckpt_error *error);

/* A plan of ckpt-plan JSON, which no one has checked yet: ckpt_plan_verify.
 *
 *   name   stands for the file's name in messages; "" or NULL: nameless
 *
 * Errors: CKPT_ERROR_INPUT with line and column, CKPT_ERROR_OVERFLOW, CKPT_ERROR_MEMORY. Cost: O(length). */
int ckpt_plan_from_json(const char *name, const char *json, size_t length, ckpt_plan **plan, ckpt_error *error);
void ckpt_plan_destroy(ckpt_plan *plan);

/* The plan's figures; its texts are the plan's. */
void ckpt_plan_summarize(const ckpt_plan *plan, ckpt_plan_summary *summary);

/* What to do, in order; and where everything in the arena lies. `count` is set. Arrays of the plan's. */
const ckpt_plan_step *ckpt_plan_steps(const ckpt_plan *plan, int32_t *count);
const ckpt_plan_allocation *ckpt_plan_allocations(const ckpt_plan *plan, int32_t *count);

/* The plan as the JSON that `ckpt-plan -o` writes: as ckpt_graph_json. Errors: CKPT_ERROR_MEMORY. */
char *ckpt_plan_json(const ckpt_plan *plan, size_t *length, ckpt_error *error);

/* Replay a plan on a graph: is every step legal, does every buffer have a place that no other touches, are the figures
 * right, does it keep to its budget? CKPT_SUCCESS means yes.
 *
 *   costs   not 0: the times and workspaces of the graph are those the plan was made with, and are checked too
 *
 * Errors: CKPT_ERROR_INPUT (the first rule that is broken, by its step or buffer; or a plan of another graph),
 * CKPT_ERROR_OVERFLOW, CKPT_ERROR_MEMORY. Cost: O(steps + allocations log allocations). */
int ckpt_plan_verify(const ckpt_plan *plan, const ckpt_graph *graph, int32_t costs, ckpt_error *error);

/* ---- what a plan does to each layer ---- */

typedef struct ckpt_explanation ckpt_explanation;

typedef enum ckpt_layer_fate {
    CKPT_FATE_KEPT = 0,
    CKPT_FATE_RECOMPUTED = 1,
    CKPT_FATE_OFFLOADED = 2,
} ckpt_layer_fate;

typedef struct ckpt_explanation_layer {
    int32_t fate; /* ckpt_layer_fate */
    int32_t unused;
    int64_t kept_bytes;    /* of what its forward wrote: in memory when its last forward op has run */
    int64_t host_bytes;    /* of the rest: on the host, or on its way there */
    int64_t dropped_bytes; /* of the rest: made anew later */
    int64_t recompute_ns;  /* time in ops that have run before */
    const char *layer;     /* an op without a layer stands for itself */
} ckpt_explanation_layer;

/* Explain a plan; and find, by planning anew, what more budget would buy.
 *
 *   plan          fits; of ckpt_plan_create with the same graph and options, or read from such a plan's JSON
 *   explanation   a new one; destroy it with ckpt_explanation_destroy. It needs neither plan nor graph
 *
 * Errors: as ckpt_plan_verify, which comes first, and ckpt_plan_create; CKPT_ERROR_INPUT for a plan that does not fit.
 * Cost: up to two plans. */
int ckpt_explanation_create(const ckpt_plan *plan, const ckpt_graph *graph, const ckpt_options *options,
                            ckpt_explanation **explanation, ckpt_error *error);
void ckpt_explanation_destroy(ckpt_explanation *explanation);

/* In the order of the layers' first ops. `count` is set. An array of the explanation's. */
const ckpt_explanation_layer *ckpt_explanation_layers(const ckpt_explanation *explanation, int32_t *count);

/* What `ckpt-plan --explain --json` prints: as ckpt_graph_json. Errors: CKPT_ERROR_MEMORY. */
char *ckpt_explanation_json(const ckpt_explanation *explanation, size_t *length, ckpt_error *error);

/* ---- the predicted trace ---- */

typedef struct ckpt_trace ckpt_trace;

typedef struct ckpt_trace_event {
    int32_t step; /* of the plan */
    int32_t unused;
    int64_t start_ns, end_ns; /* from the start of the training step */
    int64_t live_bytes;       /* in memory after the step, static blocks included; a run's own workspace still counts */
    const char *name;         /* of the op or buffer */
    const char *stream;       /* "compute", "d2h" (to the host), "h2d" (from it) */
    const char *span;         /* "forward", "backward", "recompute", "copy", "update", "free", ... */
} ckpt_trace_event;

/* Replay a plan on the clock: ops one after another on "compute", copies beside them.
 *
 *   trace   a new one; destroy it with ckpt_trace_destroy. It needs neither plan nor graph
 *
 * Errors: as ckpt_plan_verify, which comes first. Cost: O(steps + allocations log allocations). */
int ckpt_trace_create(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_trace **trace, ckpt_error *error);
void ckpt_trace_destroy(ckpt_trace *trace);

/* One event for each step. `count` is set. An array of the trace's. */
const ckpt_trace_event *ckpt_trace_events(const ckpt_trace *trace, int32_t *count);

/* The trace as ckpt-trace JSON: as ckpt_graph_json. Errors: CKPT_ERROR_MEMORY. */
char *ckpt_trace_json(const ckpt_trace *trace, size_t *length, ckpt_error *error);

/* ---- time over budget ---- */

typedef struct ckpt_sweep ckpt_sweep;

typedef struct ckpt_sweep_point {
    int64_t budget_bytes, peak_bytes, arena_bytes, time_ns;
    int64_t bound_ns; /* as in ckpt_plan_summary */
    const char *strategy;
} ckpt_sweep_point;

/* Plans at up to `points` >= 1 budgets, from the lowest that can be met, closest where time changes most, to the budget of the options, or to keep-all's
 * peak without one. None is slower than one under a lower budget.
 *
 *   sweep   a new one; destroy it with ckpt_sweep_destroy. Without points when nothing fits
 *
 * Errors: as ckpt_plan_create. Cost: points + 1 plans. */
int ckpt_sweep_create(const ckpt_graph *graph, const ckpt_options *options, int32_t points, ckpt_sweep **sweep,
                      ckpt_error *error);
void ckpt_sweep_destroy(ckpt_sweep *sweep);

/* Rising budgets. `count` is set. An array of the sweep's. */
const ckpt_sweep_point *ckpt_sweep_points(const ckpt_sweep *sweep, int32_t *count);

/* Whether all budgets were planned: 0 when planning was cancelled or the time limit came. */
int32_t ckpt_sweep_complete(const ckpt_sweep *sweep);

/* The lowest budget that can be met, as far as this planner knows; 0: it was ended before it found any. */
int64_t ckpt_sweep_min_budget(const ckpt_sweep *sweep);

/* The sweep as ckpt-sweep JSON, which ckpt-view draws: as ckpt_graph_json. Errors: CKPT_ERROR_MEMORY. */
char *ckpt_sweep_json(const ckpt_sweep *sweep, size_t *length, ckpt_error *error);

/* ---- device memory of a framework ---- */

/* A training step that a framework repeats allocates the same bytes in the same order every time. A step arena records
 * that once, packs what is freed before the step ends into one block, and serves it from there. What outlives the step,
 * is not as recorded, or belongs to another stream comes from the device, as everything outside of steps. Two live
 * allocations never share a byte, whatever the framework does.
 *
 * A framework's allocator passes no handle along. So this part, and this part alone, has global state: one device and one
 * block for the process, used by one step at a time, from any thread. */
typedef struct ckpt_step_arena ckpt_step_arena;

/* Where memory comes from: once, before the first allocation.
 *
 *   take   0: done; cudaMallocAsync is one
 *   give   cudaFreeAsync is one */
void ckpt_gpu_memory_from(int32_t (*take)(void **address, size_t bytes, void *stream),
                          int32_t (*give)(void *address, void *stream));

/* What torch.cuda.memory.CUDAPluggableAllocator takes: `bytes`, or NULL when the device has none (PyTorch does not look);
 * and their end. Addresses and sizes are multiples of 512. Cost: O(log live), and moving up to 24 bytes per live one. */
void *ckpt_gpu_malloc(ptrdiff_t bytes, int32_t device, void *stream);
void ckpt_gpu_free(void *address, ptrdiff_t bytes, int32_t device, void *stream);

typedef struct ckpt_gpu_counts {
    int64_t live_bytes, peak_bytes;        /* allocated now, and the most so far */
    int64_t taken_bytes, taken_peak_bytes; /* of the device, the block included */
    int64_t failed;                        /* allocations that the device refused */
} ckpt_gpu_counts;

/* Now; then, if `reset_peak` is not 0, both peaks are what is there now. */
void ckpt_gpu_memory_counts(ckpt_gpu_counts *counts, int32_t reset_peak);

typedef struct ckpt_step_arena_counts {
    int64_t arena_bytes;          /* of the block that the step needs; 0: it was not recorded yet */
    int64_t served, outlived;     /* allocations of the last step: from the block; recorded as outliving it */
    int64_t missed, missed_bytes; /* those that were not as recorded, or whose place was taken */
} ckpt_step_arena_counts;

/* An arena of a step that was not recorded. Errors: CKPT_ERROR_MEMORY. */
int ckpt_step_arena_create(ckpt_step_arena **arena, ckpt_error *error);
void ckpt_step_arena_destroy(ckpt_step_arena *arena);

/* A step on `stream` begins: recorded if it has not been, else served, for which the block is enlarged if need be. Ends
 * the step before. Errors: CKPT_ERROR_MISSING, and it is recorded: the device has no such block, or something lives in
 * the one that is too small. */
int ckpt_step_arena_begin(ckpt_step_arena *arena, void *stream, ckpt_error *error);

/* It ends. Errors: CKPT_ERROR_MEMORY, CKPT_ERROR_OVERFLOW, after which it is still to be recorded. Cost: of packing. */
int ckpt_step_arena_end(ckpt_step_arena *arena, ckpt_step_arena_counts *counts, ckpt_error *error);

/* The next step is recorded anew. */
void ckpt_step_arena_forget(ckpt_step_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
