/* Makes a ckpt-graph/1 of PyTorch's ExecutionTrace, and notes what the trace lacks. */
#include <math.h>

#include "imports/execution_impl.h"

typedef void (*listener)(const char *line);

/* Gives ops without a time the time to move their bytes. On a GPU, ops that launched nothing take none. */
static void fill_times(ckpt_et_step *step, bool kernels, double bytes_per_s)
{
    for (int i = 0; i < step->op_count; i++) {
        ckpt_et_op *const op = &step->op[i];
        if (!op->timed && !kernels && bytes_per_s > 0.0) {
            const double ns = (double)op->moved * 1e9 / bytes_per_s;
            op->time_ns = ns < 1e15 ? (ckpt_ns)llround(ns) : (ckpt_ns)1000000000000000;
        }
    }
}

static void tell_times(listener note, const char *times, const ckpt_et_timing *timing, double bytes_per_s)
{
    if (times == NULL) {
        ckpt_import_say(note, "times are bytes moved at %.3g GB/s: there is no Kineto trace of the run (--times)",
                        bytes_per_s / 1e9);
    } else if (timing->kernels) {
        ckpt_import_say(note, "times are those of kernels and copies; %d of %d ops launched none",
                        timing->wanted - timing->timed, timing->wanted);
    } else {
        ckpt_import_say(note,
                        "times are those of the ops on the CPU; %d of %d are not in %.200s and count as bytes moved",
                        timing->wanted - timing->timed, timing->wanted, ckpt_import_shown(times));
    }
    if (times != NULL) {
        ckpt_import_say(note, timing->memory
                                  ? "workspaces are those of the memory events beside the times"
                                  : "workspaces are tensors inside ops: there are no memory events beside the "
                                    "times (profile_memory=True)");
    }
}

static void tell_recomputed(listener note, const ckpt_et_trace *trace, const ckpt_et_step *step)
{
    int random = 0;
    int statistics = 0;
    int once = 0;
    const char *first_random = "";
    const char *first_statistics = "";
    const char *first_once = "";
    for (int i = 0; i < step->op_count; i++) {
        const ckpt_et_op *const op = &step->op[i];
        if (op->phase == CKPT_FORWARD && !op->left_out) {
            const char *const name = trace->node[op->node].name;
            const bool draws = ckpt_et_has_state(op);
            const bool updates = op->statistics && !op->once;
            first_random = draws && random == 0 ? name : first_random;
            first_statistics = updates && statistics == 0 ? name : first_statistics;
            first_once = op->once && once == 0 ? name : first_once;
            random += draws;
            statistics += updates;
            once += op->once;
        }
    }
    if (random > 0) {
        ckpt_import_say(note,
                        "%d forward ops draw random numbers (%.80s): each has a buffer of %lld bytes for the "
                        "generator's state, for a plan that recomputes it",
                        random, first_random, (long long)ckpt_et_state_bytes(trace));
    }
    if (statistics > 0) {
        ckpt_import_say(note,
                        "%d forward ops update running statistics (%.80s): what recomputes them must not update them "
                        "again",
                        statistics, first_statistics);
    }
    if (once > 0) {
        ckpt_import_say(note,
                        "%d forward ops are not recomputed (%.80s): they change what outlives the step, read what is "
                        "changed later in it, or draw from a generator of the program's own",
                        once, first_once);
    }
}

static void tell_all(listener note, const ckpt_et_trace *trace, const ckpt_et_step *step, bool memory)
{
    int views = 0;
    for (int i = 0; i < step->op_count; i++) {
        views += step->op[i].left_out;
    }
    ckpt_import_say(note, "%.80s, the last of %d in the file", step->name, step->candidates);
    ckpt_import_say(note, "%d of %d ops make views only or touch nothing on %.40s, and are left out", views,
                    step->op_count, trace->device_count > 0 ? trace->device[trace->main_device] : "the device");
    tell_recomputed(note, trace, step);
    if (step->optimizer_steps == 0) {
        ckpt_import_say(note, "no optimizer's step is in it: parameters count as inputs");
    } else if (step->optimizer_steps > 1) {
        ckpt_import_say(note, "%d optimizers' steps are in it, and are planned as one", step->optimizer_steps);
    }
    if (trace->other_device_count > 0) {
        ckpt_import_say(note, "%d tensors on other devices than %.40s are left out", trace->other_device_count,
                        trace->device[trace->main_device]);
    }
    if (trace->sparse_count > 0) {
        ckpt_import_say(note, "%d times a tensor is sparse: what it holds is missing, and this graph is a rough one",
                        trace->sparse_count);
    }
    if (trace->cut_lists > 0) {
        ckpt_import_say(note, "%d lists of tensors were cut off by PyTorch: what they held is missing",
                        trace->cut_lists);
    }
    ckpt_import_say(note,
                    "frees are not in the trace: a buffer counts as free after its last use; parameters that are not "
                    "updated count as inputs%s",
                    memory ? "" : "; what libraries allocate for themselves is missing");
}

static ckpt_code import(const char *path, const char *times, double bytes_per_s, listener note, ckpt_arena *work,
                        ckpt_arena *out, ckpt_graph **graph, ckpt_err *err)
{
    ckpt_et_trace trace;
    ckpt_et_step step;
    ckpt_et_flow flow;
    ckpt_et_timing timing = {0};
    CKPT_TRY(ckpt_et_read(path, work, &trace, err));
    CKPT_TRY(ckpt_et_find_step(&trace, &step, err));
    CKPT_TRY(ckpt_et_follow(&trace, &step, &flow, err));
    if (times != NULL) {
        CKPT_TRY(ckpt_et_kineto(times, &trace, &step, &timing, err));
    }
    fill_times(&step, timing.kernels, bytes_per_s);
    CKPT_TRY(ckpt_et_graph(&trace, &step, &flow, out, graph, err));
    tell_all(note, &trace, &step, timing.memory);
    tell_times(note, times, &timing, bytes_per_s);
    return CKPT_OK;
}

ckpt_code ckpt_import_execution(const char *path, const char *times, double bytes_per_s, void (*note)(const char *line),
                                ckpt_arena *out, ckpt_graph **graph, ckpt_err *err)
{
    if (times == NULL && !(bytes_per_s > 0.0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%.200s: found %g bytes per second, wanted more than 0 where there is no "
                         "Kineto trace with times",
                         path, bytes_per_s);
    }
    ckpt_arena work;
    ckpt_arena_init(&work);
    const ckpt_code code = import(path, times, bytes_per_s, note, &work, out, graph, err);
    ckpt_arena_fini(&work);
    return code;
}
