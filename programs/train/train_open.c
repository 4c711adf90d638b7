/* Opens what a training needs before its first step: device, executor, state, data, trace, log. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "ops/import/onnx/onnx.h"
#include "programs/train/train_impl.h"

static ckpt_code take_inputs(ckpt_training *training, ckpt_err *err)
{
    const ckpt_network *const network = training->lowered->network;
    const int count = network->scheme.micro_batches * network->model->input_count;
    training->input = CKPT_NEW(&training->arena, void *, count);
    if (training->input == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the inputs");
    }
    for (int i = 0; i < count; i++) {
        training->input[i] = ckpt_executor_input(training->executor, i);
    }
    return CKPT_OK;
}

static bool trains(const ckpt_training *training)
{
    return training->options.evaluate == 0 && training->options.generate == 0;
}

static void show_hashing(ckpt_bytes done, ckpt_bytes all)
{
    ckpt_cli_progress("hashing the data, MB", done / 1000000, all / 1000000, 0);
}

/* The digest of the data's contents, for a state that will be written or that is continued: that of the state as long as
 * nobody has touched the files since. One rank of each host makes it. */
static ckpt_code digest_data(const ckpt_training *training, const ckpt_data_identity *before, ckpt_data_identity *now,
                             ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_data_watch watch = {.progress = training->rank == 0 ? show_hashing : NULL,
                                   .stopped = ckpt_train_stop_wanted};
    const bool wanted = options->save != NULL || options->save_best != NULL || before->digest[0] != '\0';
    const bool mine = training->ranks == NULL || ckpt_ranks_local(training->ranks) == 0;
    if (!wanted || !mine || options->no_digest) {
        return CKPT_OK;
    }
    if (strcmp(before->about, now->about) == 0 && strcmp(before->stamp, now->stamp) == 0) {
        memcpy(now->digest, before->digest, sizeof now->digest);
    }
    if (now->digest[0] != '\0') {
        return CKPT_OK;
    }
    const int threads = options->gpu ? ckpt_machine_threads() : (int)options->threads;
    const ckpt_code code = ckpt_data_digest(training->data, threads, &watch, now->digest, err);
    if (training->rank == 0) {
        ckpt_cli_progress_clear();
    }
    return code;
}

/* Training goes on in the data that the state was trained on. An evaluation takes any, from their first batch where kind or
 * size are others. */
static ckpt_code check_data(const ckpt_training *training, ckpt_data_identity *now, bool *others, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_data_identity none = {.about = ""};
    const ckpt_data_identity *const before = options->resume != NULL ? ckpt_executor_data(training->executor) : &none;
    *others = options->resume != NULL && strcmp(before->about, now->about) != 0;
    if (*others && trains(training)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the state was trained on other data (%s) than these (%s)",
                         options->resume, before->about, now->about);
    }
    CKPT_TRY(trains(training) ? digest_data(training, before, now, err) : CKPT_OK);
    if (before->digest[0] != '\0' && now->digest[0] != '\0' && strcmp(before->digest, now->digest) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: the state was trained on other data: as many bytes of the same kind (%s), but SHA-256 "
                         "%.16s..., and these have %.16s...",
                         options->resume, now->about, before->digest, now->digest);
    }
    return CKPT_OK;
}

static ckpt_code open_data(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_network *const network = training->lowered->network;
    const ckpt_scheme *const scheme = &network->scheme;
    const uint64_t seed = ckpt_executor_seed(training->executor);
    int64_t *const limit = CKPT_NEW(&training->arena, int64_t, network->model->input_count);
    bool others = false;
    if (limit == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the inputs");
    }
    CKPT_TRY(take_inputs(training, err));
    ckpt_data_class_limits(network, limit);
    CKPT_TRY(ckpt_data_open(options->data, network->model, limit, seed, &training->data, err));
    ckpt_data_allow_ignored(training->data, network);
    if (options->validate != NULL) {
        CKPT_TRY_WHILE(err, ckpt_data_open(options->validate, network->model, limit, seed, &training->validation, err),
                       "reading --validate");
        ckpt_data_allow_ignored(training->validation, network);
    }
    ckpt_train_watch_data(training->data, training->validation);
    ckpt_data_identity now = *ckpt_data_identify(training->data);
    CKPT_TRY(check_data(training, &now, &others, err));
    training->first_batch =
        others ? 0
               : ckpt_executor_steps(training->executor) * (uint64_t)scheme->micro_batches * (uint64_t)scheme->replicas;
    *ckpt_executor_data(training->executor) = now;
    return CKPT_OK;
}

ckpt_code ckpt_train_open_device(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const char *name = options->device;
    if (training->ranks != NULL && strcmp(name, "cuda") == 0) { /* the ranks of a host have a GPU each */
        name = ckpt_arena_format(&training->arena, "cuda:%d", ckpt_ranks_local(training->ranks));
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a device's name");
        }
    }
    return ckpt_device_open(name, options->gpu ? 1 : (int)options->threads, &training->device, err);
}

ckpt_code ckpt_train_carry(ckpt_training *training, ckpt_err *err)
{
    if (training->ranks == NULL || !training->options.gpu) {
        return CKPT_OK;
    }
    ckpt_err why = {0};
    const ckpt_code code = ckpt_ranks_carry(training->ranks, ckpt_device_carry, training->device, &why);
    if (code == CKPT_OK || strcmp(ckpt_ranks_library(training->ranks), "none") == 0) {
        return code == CKPT_OK ? CKPT_OK : CKPT_FAIL(err, code, "%s", why.msg);
    }
    if (training->rank == 0) {
        ckpt_cli_note("ckpt-train", "messages between GPUs go through the host, by %s: %s",
                      ckpt_ranks_library(training->ranks), why.msg);
    }
    return CKPT_OK;
}

ckpt_code ckpt_train_check_budget(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_plan *const plan = training->plan;
    CKPT_TRY(ckpt_footprint_read(training->device, plan->static_bytes, plan->arena_bytes, &training->start, err));
    if (options->budget == NULL) {
        return CKPT_OK;
    }
    ckpt_bytes budget = 0, reserve = -1;
    CKPT_TRY_WHILE(err, ckpt_bytes_parse(options->budget, training->start.device.total, &budget, err),
                   "reading --budget");
    if (options->reserve != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(options->reserve, training->start.device.total, &reserve, err),
                       "reading --reserve");
    }
    return ckpt_footprint_check(&training->start, budget, reserve, err);
}

ckpt_code ckpt_train_open_executor(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_executor_options made = {.seed = options->seed < 0 ? 0 : (uint64_t)options->seed,
                                        .ranks = training->ranks,
                                        .poison = options->poison,
                                        .record = !options->no_graph};
    return ckpt_executor_create(training->device, training->lowered, training->plan, &made, &training->executor, err);
}

/* On a GPU only if a trace is wanted: two time stamps for every step of the plan take driver memory. */
static ckpt_code open_trace(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    ckpt_device *const device = training->device;
    const ckpt_train_options *const options = &training->options;
    if (device->api->gpu && training->trace_path == NULL && options->profile == NULL && options->reprofile == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_executor_trace_create(training->executor, &training->arena, &training->trace, err));
    ckpt_machine *const machine = &training->trace->machine;
    CKPT_TRY(ckpt_machine_read(device->threads, device->api->libraries(device), cli->argc, cli->argv, &training->arena,
                               machine, err));
    return device->api->gpu ? ckpt_machine_set_gpu(machine, device->api->describe(device), &training->arena, err)
                            : CKPT_OK;
}

static ckpt_code resume(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    CKPT_TRY(trains(training) ? ckpt_executor_state_read(training->executor, options->resume, err)
                              : ckpt_executor_state_look(training->executor, options->resume, err));
    const uint64_t seed = ckpt_executor_seed(training->executor);
    if (options->seed >= 0 && seed != (uint64_t)options->seed) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the state has seed %" PRIu64 "; --seed %lld cannot change it",
                         options->resume, seed, (long long)options->seed);
    }
    return CKPT_OK;
}

static bool data_reads(const void *data, const char *path)
{
    return ckpt_data_reads(data, path);
}

static bool weights_read(const void *weights, const char *path)
{
    return weights != NULL && ckpt_weights_reads(weights, path);
}

/* Before the training. A state may replace the one that it continues. Rank 0 writes all but traces. `weights`: of --init; NULL:
 * they are not open. */
static ckpt_code check_files(const ckpt_training *training, const ckpt_weights *weights, ckpt_err *err)
{
    const ckpt_train_options *const o = &training->options;
    const bool other = training->rank > 0;
    ckpt_bytes state = 0, exported = 0;
    CKPT_TRY(ckpt_executor_state_bytes(training->executor, &state, &exported, err));
    exported = o->export_dtype == CKPT_BFLOAT16 ? exported / 2 : exported;
    const ckpt_cli_file file[] = {
        {"the model", .path = o->model},
        {"--plan", .path = o->plan},
        {"--profile", .path = o->profile},
        {"--init", .path = o->init},
        {"--init", .reads = weights_read, .what = weights},
        {"--resume", .path = o->resume},
        {"--data", .reads = data_reads, .what = training->data},
        {"--validate", .reads = data_reads, .what = training->validation},
        {"--trace", training->trace_path, .written = true},
        {"--log", o->log, .written = true, .unprobed = true},
        {"--export", o->export, .written = true, .unprobed = other, .bytes = exported},
        {"--reprofile", o->reprofile, .written = true, .unprobed = other},
        {"--save", o->save, .written = true, .unprobed = other, .bytes = state, .replaces = "--resume"},
        {"--save-best", o->save_best, .written = true, .unprobed = other, .bytes = state, .replaces = "--resume"}};
    return ckpt_cli_check_files(file, sizeof file / sizeof *file, err);
}

/* All of the file is looked at before the device's memory is filled from it. */
static ckpt_code init(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    ckpt_arena scratch;
    ckpt_weights *weights = NULL;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_onnx_weights(training->lowered->network, options->init, options->set, options->set_count,
                                       &scratch, &weights, err);
    code = code == CKPT_OK ? check_files(training, weights, err) : code;
    code = code == CKPT_OK ? ckpt_executor_weights_set(training->executor, weights, err) : code;
    ckpt_weights_close(weights);
    ckpt_arena_fini(&scratch);
    return code;
}

/* Logs, which rank 0 writes from here on. */
static ckpt_code open_logs(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    if (options->export != NULL && training->plan->scheme.stages > 1) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "--export: pipeline stages have the weights on several ranks: --save a state and --resume it on one");
    }
    if (training->rank == 0 && options->log != NULL) {
        CKPT_TRY(ckpt_loss_log_open(&training->log, options->log, options->resume != NULL, training->first_step,
                                    ckpt_executor_loss(training->executor), err));
    }
    return training->rank == 0 && options->tensorboard != NULL
               ? ckpt_event_log_open(&training->events, options->tensorboard, err)
               : CKPT_OK;
}

ckpt_code ckpt_train_open_files(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    if (options->resume != NULL) {
        CKPT_TRY(resume(training, err));
    }
    if (options->ema) {
        CKPT_TRY_WHILE(err, ckpt_executor_swap_average(training->executor, err), "--ema");
    }
    if (options->init != NULL) {
        CKPT_TRY(init(training, err));
    }
    training->first_step = ckpt_executor_steps(training->executor);
    ckpt_train_note_state(training, options->resume, training->first_step);
    CKPT_TRY(open_data(training, err));
    CKPT_TRY(ckpt_train_find_trace(training, err));
    CKPT_TRY(open_trace(training, cli, err));
    CKPT_TRY(ckpt_train_open_times(training, err));
    CKPT_TRY(check_files(training, NULL, err));
    return open_logs(training, err);
}
