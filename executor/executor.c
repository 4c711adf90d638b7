/* The public face of the executor: set-up (setup/), steps (run/) and training state (state/) of one program. */
#include "executor/executor.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "executor/executor_impl.h"
#include "executor/setup/setup_impl.h"

/* The rehearsal leaves zeros everywhere, so the weights are drawn after it. */
static ckpt_code set_up(ckpt_executor *executor, bool record, ckpt_err *err)
{
    ckpt_program *const program = &executor->program;
    const uint64_t seed = executor->progress.seed;
    CKPT_TRY(ckpt_program_init(program, err));
    CKPT_TRY(ckpt_run_init(program, &program->arena, &executor->run, err));
    CKPT_TRY(ckpt_run_rehearse(&executor->run, seed, record, err));
    CKPT_TRY(ckpt_state_initialise(program, seed, err));
    return program->device->api->finish(program->device, err);
}

ckpt_code ckpt_executor_create(ckpt_device *device, const ckpt_lowered *lowered, const ckpt_plan *plan,
                               const ckpt_executor_options *options, ckpt_executor **executor, ckpt_err *err)
{
    const ckpt_executor_options wanted = options != NULL ? *options : (ckpt_executor_options){0};
    ckpt_executor *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an executor");
    }
    made->progress.seed = wanted.seed;
    made->progress.validated.best = INFINITY;
    made->program = (ckpt_program){
        .device = device, .lowered = lowered, .plan = plan, .ranks = wanted.ranks, .poison = wanted.poison};
    made->run.program = &made->program;
    const ckpt_code code = set_up(made, wanted.record, err);
    if (code != CKPT_OK) {
        ckpt_executor_destroy(made);
        return code;
    }
    *executor = made;
    return CKPT_OK;
}

void ckpt_executor_destroy(ckpt_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    ckpt_run_fini(&executor->run);
    ckpt_program_fini(&executor->program);
    ckpt_memory_put(executor);
}

void *ckpt_executor_input(ckpt_executor *executor, int i)
{
    const ckpt_network *const network = executor->program.lowered->network;
    assert(i >= 0 && i < network->model->input_count * network->scheme.micro_batches);
    (void)network;
    return executor->program.input[i];
}

uint64_t ckpt_executor_batch(const ckpt_executor *executor, int j)
{
    return ckpt_program_batch(&executor->program, executor->progress.steps, j);
}

ckpt_code ckpt_executor_step(ckpt_executor *executor, float *loss, ckpt_trace *trace, ckpt_err *err)
{
    ckpt_progress *const progress = &executor->progress;
    CKPT_TRY(ckpt_run_step(&executor->run, progress->seed, progress->steps, (ckpt_measured *)trace, loss, err));
    if (trace != NULL) {
        trace->process_peak_bytes = ckpt_process_peak_bytes();
    }
    progress->steps++;
    progress->last_loss = *loss;
    return CKPT_OK;
}

ckpt_code ckpt_executor_evaluate(ckpt_executor *executor, const ckpt_watcher *watcher, float *loss, ckpt_err *err)
{
    return ckpt_run_evaluate(&executor->run, executor->progress.seed, executor->progress.steps, watcher, loss, err);
}

ckpt_code ckpt_executor_trace_create(const ckpt_executor *executor, ckpt_arena *out, ckpt_trace **trace, ckpt_err *err)
{
    ckpt_measured *measured = NULL;
    CKPT_TRY(ckpt_measured_create(&executor->program, out, &measured, err));
    *trace = &measured->trace;
    return CKPT_OK;
}

void ckpt_executor_trace_record(ckpt_trace *trace, ckpt_recorder *recorder)
{
    ckpt_measured *const measured = (ckpt_measured *)trace;
    measured->recorder = recorder;
}

const char *ckpt_executor_trace_lost(const ckpt_trace *trace)
{
    const ckpt_measured *const measured = (const ckpt_measured *)trace;
    return measured->lost.msg[0] != '\0' ? measured->lost.msg : NULL;
}

uint64_t ckpt_executor_steps(const ckpt_executor *executor)
{
    return executor->progress.steps;
}

uint64_t ckpt_executor_seed(const ckpt_executor *executor)
{
    return executor->progress.seed;
}

float ckpt_executor_loss(const ckpt_executor *executor)
{
    return executor->progress.last_loss;
}

ckpt_validated *ckpt_executor_validated(ckpt_executor *executor)
{
    return &executor->progress.validated;
}

ckpt_data_identity *ckpt_executor_data(ckpt_executor *executor)
{
    return &executor->progress.data;
}

ckpt_bytes ckpt_executor_peak(const ckpt_executor *executor)
{
    return executor->run.peak_bytes;
}

ckpt_bytes ckpt_executor_outside(const ckpt_executor *executor)
{
    return executor->run.outside_bytes;
}

ckpt_bytes ckpt_executor_host_bytes(const ckpt_executor *executor)
{
    return executor->program.memory.slab.bytes;
}

ckpt_bytes ckpt_process_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (ckpt_bytes)usage.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}

/* How many layers, of `op` or of all (NULL), have something to say; the first of them and what it says. */
static int count_saying(const ckpt_executor *executor, const char *op, const char *(*say)(const ckpt_bound_kernel *),
                        const char **layer, const char **what)
{
    const ckpt_network *const network = executor->program.lowered->network;
    int count = 0;
    for (int n = 0; n < network->node_count; n++) {
        const char *const text = say(&executor->program.bound[n]);
        if (text[0] == '\0' || (op != NULL && strcmp(network->node[n].op->name, op) != 0)) {
            continue;
        }
        if (count++ == 0) {
            *layer = network->node[n].name;
            *what = text;
        }
    }
    return count;
}

int ckpt_executor_remarks(const ckpt_executor *executor, const char **layer, const char **why)
{
    return count_saying(executor, NULL, ckpt_device_remark, layer, why);
}

int ckpt_executor_algorithms(const ckpt_executor *executor, const char *op, const char **layer, const char **which)
{
    return count_saying(executor, op, ckpt_device_choice, layer, which);
}

bool ckpt_executor_launches(const ckpt_executor *executor, ckpt_launches *launches, bool *replayed)
{
    const ckpt_device *const device = executor->program.device;
    const ckpt_run *const run = &executor->run;
    *replayed = run->recorded != NULL;
    *launches = run->launches;
    if (device->api->launches != NULL && *replayed) {
        device->api->launches(device, run->recorded, launches);
    }
    return device->api->launches != NULL;
}

ckpt_code ckpt_executor_digest(ckpt_executor *executor, ckpt_section section, char text[CKPT_DIGEST_TEXT],
                               ckpt_err *err)
{
    return ckpt_state_digest(&executor->program, section, text, err);
}

ckpt_code ckpt_executor_state_write(ckpt_executor *executor, const char *path, ckpt_err *err)
{
    return ckpt_state_write(&executor->program, &executor->progress, path, err);
}

ckpt_code ckpt_executor_state_read(ckpt_executor *executor, const char *path, ckpt_err *err)
{
    return ckpt_state_read(&executor->program, path, true, &executor->progress, err);
}

ckpt_code ckpt_executor_state_look(ckpt_executor *executor, const char *path, ckpt_err *err)
{
    return ckpt_state_read(&executor->program, path, false, &executor->progress, err);
}

ckpt_code ckpt_executor_state_bytes(const ckpt_executor *executor, ckpt_bytes *state, ckpt_bytes *weights,
                                    ckpt_err *err)
{
    return ckpt_state_bytes(&executor->program, state, weights, err);
}

ckpt_code ckpt_executor_state_header(const ckpt_executor *executor, ckpt_text *text, ckpt_err *err)
{
    return ckpt_state_header_add(&executor->program, &executor->progress, text, err);
}

static ckpt_bytes param_bytes(const ckpt_program *program, int node, int k)
{
    const ckpt_network *const network = program->lowered->network;
    assert(node >= 0 && node < network->node_count && k >= 0 && k < network->node[node].param_count);
    return ckpt_tensor_bytes(&network->node[node].param[k].tensor);
}

static ckpt_code download_param(const ckpt_program *program, ckpt_bytes section, int node, int k, float *host,
                                ckpt_err *err)
{
    return program->device->api->download(program->device, host, ckpt_program_param(program, section, node, k),
                                          param_bytes(program, node, k), err);
}

ckpt_code ckpt_executor_param(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    return download_param(&executor->program, executor->program.layout.weights, node, k, host, err);
}

ckpt_code ckpt_executor_param_set(ckpt_executor *executor, int node, int k, const float *host, ckpt_err *err)
{
    const ckpt_program *const program = &executor->program;
    float *const to = ckpt_program_param(program, program->layout.weights, node, k);
    CKPT_TRY(program->device->api->upload(program->device, to, host, param_bytes(program, node, k), err));
    return ckpt_program_narrow(program, err);
}

static ckpt_code swap_floats(const ckpt_program *program, float *a, float *b, int64_t count, ckpt_err *err)
{
    const int64_t most = CKPT_CHUNK_BYTES / (int64_t)sizeof(float);
    ckpt_device *const device = program->device;
    unsigned char *const one = program->memory.chunk, *const other = one + CKPT_CHUNK_BYTES;
    for (int64_t done = 0; done < count; done += most) {
        const ckpt_bytes bytes = (count - done < most ? count - done : most) * (ckpt_bytes)sizeof(float);
        CKPT_TRY(device->api->download(device, one, a + done, bytes, err));
        CKPT_TRY(device->api->download(device, other, b + done, bytes, err));
        CKPT_TRY(device->api->upload(device, a + done, other, bytes, err));
        CKPT_TRY(device->api->upload(device, b + done, one, bytes, err));
    }
    return CKPT_OK;
}

/* The updates know what has an average, and where. */
ckpt_code ckpt_executor_swap_average(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_program *const program = &executor->program;
    const ckpt_network *const network = program->lowered->network;
    if (network->ema <= 0 || network->scheme.shard_optimizer || executor->progress.steps == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %s", network->model->source,
                         network->ema <= 0 ? "the optimizer has no \"ema\": there is no average"
                         : network->scheme.shard_optimizer
                             ? "every rank has a part of the average alone: the optimizer is sharded"
                             : "no step is done, of which the weights' average could be");
    }
    for (int s = 0; s < program->plan->step_count; s++) {
        const ckpt_action *const action = &program->action[s];
        for (int i = 0; i < action->update_count; i++) {
            const ckpt_update_args *const update = &action->update[i];
            CKPT_TRY(swap_floats(program, update->param, update->average, update->count, err));
        }
    }
    return ckpt_program_narrow(program, err);
}

ckpt_code ckpt_executor_grad(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    const ckpt_network *const network = executor->program.lowered->network;
    if (network->scheme.fused) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: gradients are fused with the updates, and gone after a step",
                         network->model->source);
    }
    return download_param(&executor->program, executor->program.layout.gradients, node, k, host, err);
}

ckpt_code ckpt_executor_statistic(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    const ckpt_program *const program = &executor->program;
    const ckpt_network *const network = program->lowered->network;
    assert(node >= 0 && node < network->node_count && k >= 0 && k < network->node[node].stat_count);
    return program->device->api->download(program->device, host, ckpt_program_statistic(program, node, k),
                                          ckpt_tensor_bytes(&network->node[node].stat[k].tensor), err);
}
