/* ckpt-train: trains a model by a plan. Which step runs when, and where every byte lies, was decided by ckpt-plan;
 * this program only checks that the plan is of this model, and follows it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/cli.h"
#include "core/file.h"
#include "executor/train_impl.h"
#include "kernels/threads.h"
#include "planner/replay.h"

/* Model and plan, until the plan is known to be of this model and sound. */
static ckpt_code prepare(ckpt_training *training, ckpt_err *err)
{
    ckpt_train_options *const options = &training->options;
    const ckpt_model *model = NULL;
    CKPT_TRY(ckpt_model_read(options->model, options->set, options->set_count, &training->arena, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, options->dtype, &training->arena, &model, err));
    CKPT_TRY(ckpt_plan_read(options->plan, &training->arena, &training->plan, err));
    CKPT_TRY(ckpt_train_settle(options, training->plan, err));
    const ckpt_network *network = NULL;
    CKPT_TRY(ckpt_network_infer(model, (int)options->threads, &training->arena, &network, err));
    const ckpt_device_model *roofline = NULL;
    CKPT_TRY(ckpt_device_model_find("cpu", &training->arena, &roofline, err)); /* times do not matter here */
    CKPT_TRY(ckpt_network_lower(network, NULL, roofline, &training->arena, &training->lowered, err));
    if (training->plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the plan's verdict is infeasible: there is nothing to follow",
                         options->plan);
    }
    CKPT_TRY(ckpt_plan_bind(training->plan, training->lowered->graph, err));
    CKPT_TRY_WHILE(err, ckpt_plan_check_run(training->plan, training->lowered->graph, err), "replaying %s",
                   options->plan);
    return CKPT_OK;
}

static ckpt_code open_data(ckpt_training *training, ckpt_err *err)
{
    const ckpt_network *const network = training->lowered->network;
    int64_t *const limit = CKPT_NEW(&training->arena, int64_t, network->model->input_count);
    training->input = CKPT_NEW(&training->arena, void *, network->model->input_count);
    if (limit == NULL || training->input == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the inputs");
    }
    for (int i = 0; i < network->model->input_count; i++) {
        training->input[i] = ckpt_executor_input(training->executor, i);
    }
    ckpt_data_class_limits(network, limit);
    CKPT_TRY(ckpt_data_open(training->options.data, network->model, limit, ckpt_executor_seed(training->executor),
                            &training->data, err));
    ckpt_train_watch_data(training->data);
    const char *const before = ckpt_executor_data(training->executor);
    const char *const now = ckpt_data_about(training->data);
    if (training->options.resume != NULL && strcmp(before, now) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the state was trained on other data (%s) than these (%s)",
                         training->options.resume, before, now);
    }
    ckpt_executor_data_set(training->executor, now);
    return CKPT_OK;
}

/* --budget is for all that the process takes on the device. */
static ckpt_code check_budget(ckpt_training *training, ckpt_err *err)
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

/* The step as the profile's times have it: what the measured one is held against. */
static ckpt_code predict(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    ckpt_arena *const arena = &training->arena;
    if (options->profile == NULL) {
        return CKPT_OK;
    }
    const ckpt_profile *profile = NULL;
    CKPT_TRY(ckpt_profile_read(options->profile, arena, &profile, err));
    CKPT_TRY(ckpt_train_check_profile(profile, training->device, err));
    const ckpt_device_model *device = NULL; /* its times are for layers that state none */
    CKPT_TRY(ckpt_device_model_find(options->gpu ? "h200" : "cpu", arena, &device, err));
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(ckpt_network_lower(training->lowered->network, profile, device, arena, &lowered, err));
    ckpt_graph graph = *lowered->graph;
    if (!graph.has_link) { /* a CPU's copies are foretold by nobody */
        graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = INT64_MAX;
    }
    return ckpt_plan_simulate(training->plan, &graph, arena, &training->predicted, err);
}

/* What is refused is refused before the device is filled, and once more with all that the set-up has brought there. */
static ckpt_code open_executor(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    CKPT_TRY(ckpt_device_open(options->device, options->gpu ? 1 : (int)options->threads, &training->device, err));
    CKPT_TRY(predict(training, err));
    CKPT_TRY(check_budget(training, err));
    const ckpt_executor_options made = {.seed = options->seed < 0 ? 0 : (uint64_t)options->seed,
                                        .poison = options->poison,
                                        .record = !options->no_graph};
    CKPT_TRY(
        ckpt_executor_create(training->device, training->lowered, training->plan, &made, &training->executor, err));
    return check_budget(training, err);
}

/* On a GPU only where a trace is wanted: stamps, two for every step of the plan, take memory of the driver. */
static ckpt_code open_trace(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    ckpt_device *const device = training->device;
    if (device->api->gpu && training->options.trace == NULL && training->options.profile == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_executor_trace_create(training->executor, &training->arena, &training->trace, err));
    ckpt_machine *const machine = &training->trace->machine;
    CKPT_TRY(ckpt_machine_read(device->threads, device->api->libraries(device), cli->argc, cli->argv, &training->arena,
                               machine, err));
    return device->api->gpu ? ckpt_machine_set_gpu(machine, device->api->describe(device), &training->arena, err)
                            : CKPT_OK;
}

static ckpt_code open_all(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    CKPT_TRY(open_executor(training, err));
    if (options->resume != NULL) {
        CKPT_TRY(ckpt_executor_state_read(training->executor, options->resume, err));
        const uint64_t seed = ckpt_executor_seed(training->executor);
        if (options->seed >= 0 && seed != (uint64_t)options->seed) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the state has seed %" PRIu64 "; --seed %lld cannot change it",
                             options->resume, seed, (long long)options->seed);
        }
    }
    training->first_step = ckpt_executor_steps(training->executor);
    CKPT_TRY(open_data(training, err));
    CKPT_TRY(open_trace(training, cli, err));
    if (options->save != NULL) {
        CKPT_TRY(ckpt_file_probe(options->save, err));
    }
    if (options->trace != NULL) {
        CKPT_TRY(ckpt_file_probe(options->trace, err));
    }
    if (options->log != NULL) {
        CKPT_TRY(ckpt_loss_log_open(&training->log, options->log, options->resume != NULL, training->first_step,
                                    ckpt_executor_loss(training->executor), err));
    }
    return CKPT_OK;
}

/* Standard output has the lines for people, or one file. */
static bool is_quiet(const ckpt_train_options *options)
{
    return options->json || ckpt_train_is_dash(options->trace);
}

static ckpt_code print(ckpt_text *text, ckpt_code code, ckpt_err *err)
{
    if (code == CKPT_OK) {
        code = ckpt_text_end(text, err);
    }
    if (code == CKPT_OK) {
        fwrite(text->bytes, 1, text->length, stdout);
    }
    ckpt_text_fini(text);
    return code;
}

static ckpt_code print_start(const ckpt_training *training, ckpt_err *err)
{
    if (is_quiet(&training->options)) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_train_say_start(training, &text);
    return print(&text, CKPT_OK, err);
}

static ckpt_code print_end(ckpt_training *training, const char *weights, ckpt_err *err)
{
    if (is_quiet(&training->options) && !training->options.json) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    return print(&text, ckpt_train_say_end(training, weights, &text, err), err);
}

/* On the CPU every step is traced. A GPU replays its steps, and tracing one costs: there the first is traced, so that
 * there is one whatever happens, and the last. */
static bool wants_trace(const ckpt_training *training, uint64_t step)
{
    const ckpt_train_options *const options = &training->options;
    const bool last = step + 1 == (uint64_t)options->steps;
    const bool first = step == training->first_step && options->trace != NULL;
    return !training->device->api->gpu || (training->trace != NULL && (first || last));
}

static void say_unrecorded(const char *why)
{
    fprintf(stderr, "ckpt-train: no kernels are recorded, times are between events of the device: %s\n", why);
}

/* Only the last step is recorded: a recorder makes every kernel dearer and keeps what it hears of. */
static void open_recorder(ckpt_training *training, uint64_t step)
{
    if (!training->device->api->gpu || step + 1 != (uint64_t)training->options.steps) {
        return;
    }
    ckpt_err why = {0};
    const ckpt_recorder_options kernels = {.library = NULL}; /* and copies and fills; nothing else */
    if (training->options.no_cupti) {
        say_unrecorded("--no-cupti");
    } else if (ckpt_recorder_open(&kernels, &training->recorder, &why) != CKPT_OK) {
        say_unrecorded(why.msg);
        training->recorder = NULL;
    }
    ckpt_executor_trace_record(training->trace, training->recorder);
}

static void close_recorder(ckpt_training *training)
{
    if (training->recorder == NULL) {
        return;
    }
    const char *const lost = ckpt_executor_trace_lost(training->trace);
    if (lost != NULL) {
        say_unrecorded(lost);
    }
    ckpt_executor_trace_record(training->trace, NULL);
    ckpt_recorder_close(training->recorder);
    training->recorder = NULL;
}

static ckpt_code do_step(ckpt_training *training, uint64_t step, ckpt_err *err)
{
    const bool traced = wants_trace(training, step);
    if (traced) {
        open_recorder(training, step);
    }
    const ckpt_ns start = ckpt_clock_ns();
    const ckpt_code code =
        ckpt_executor_step(training->executor, &training->loss, traced ? training->trace : NULL, err);
    const ckpt_ns spent = ckpt_clock_ns() - start;
    close_recorder(training);
    CKPT_TRY(code);
    training->done++;
    if (!traced || !training->device->api->gpu) {
        training->time[training->times++ % CKPT_TIMES_KEPT] = traced ? training->trace->time_ns : spent;
    }
    return CKPT_OK;
}

/* About ten lines, however many steps. */
static bool worth_a_line(const ckpt_training *training, uint64_t step)
{
    const uint64_t all = (uint64_t)training->options.steps - training->first_step;
    const uint64_t every = all > 10 ? all / 10 : 1;
    return step == training->first_step + 1 || step % every == 0 || step == (uint64_t)training->options.steps;
}

static ckpt_code save(ckpt_training *training, ckpt_err *err)
{
    const uint64_t step = ckpt_executor_steps(training->executor);
    if (training->options.save == NULL || (training->saved && training->saved_step == step)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_executor_state_write(training->executor, training->options.save, err));
    training->saved = true;
    training->saved_step = step;
    return CKPT_OK;
}

/* What is left, a few times a second. */
static void report(const ckpt_training *training, ckpt_ns begun, ckpt_ns *said)
{
    const ckpt_ns now = ckpt_clock_ns();
    const int64_t all = training->options.steps - (int64_t)training->first_step;
    if (now - *said >= 250000000 && (int64_t)training->done < all) {
        ckpt_cli_progress("steps", (int64_t)training->done, all, now - begun);
        *said = now;
    }
}

static ckpt_code train(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    const ckpt_ns begun = ckpt_clock_ns();
    ckpt_ns said = begun;
    uint64_t step = training->first_step;
    while (step < (uint64_t)options->steps && !ckpt_train_stop_wanted()) {
        ckpt_data_fill(training->data, step, training->input);
        CKPT_TRY(do_step(training, step, err));
        step = ckpt_executor_steps(training->executor);
        ckpt_loss_log_add(&training->log, step, training->loss);
        if (!is_quiet(options) && worth_a_line(training, step)) {
            ckpt_cli_progress_clear();
            printf("step %6" PRIu64 "  loss %.9g\n", step, (double)training->loss);
            fflush(stdout);
        }
        report(training, begun, &said);
        if (options->save_every > 0 && step % (uint64_t)options->save_every == 0) {
            CKPT_TRY(save(training, err));
        }
    }
    ckpt_cli_progress_clear();
    if (ckpt_train_stop_wanted() && step == training->first_step && step < (uint64_t)options->steps) {
        return CKPT_OK; /* stopped before anything was done: nothing that could replace an older state */
    }
    return save(training, err);
}

/* The lengths of the other steps, oldest first, before anybody sorts the ring. The step that is in the trace is the
 * latest on a CPU, and on a GPU not in the ring. */
static ckpt_code add_step_times(ckpt_training *training, ckpt_err *err)
{
    enum { MOST = CKPT_TIMES_KEPT - 1 };
    const int64_t others = training->times - (training->device->api->gpu ? 0 : 1);
    const int64_t count = others < MOST ? others : MOST;
    ckpt_ns *const time = CKPT_NEW(&training->arena, ckpt_ns, count);
    if (time == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the times of %lld steps", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        time[i] = training->time[(others - count + i) % CKPT_TIMES_KEPT];
    }
    training->trace->step_ns = time;
    training->trace->step_ns_count = (int)count;
    return CKPT_OK;
}

static ckpt_code write_trace(ckpt_training *training, ckpt_err *err)
{
    if (training->options.trace == NULL || training->done == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(add_step_times(training, err));
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_trace_write(training->trace, &text);
    return ckpt_file_write_text(training->options.trace, &text, err);
}

static ckpt_code finish(ckpt_training *training, ckpt_err *err)
{
    char weights[CKPT_DIGEST_TEXT];
    CKPT_TRY(ckpt_executor_digest(training->executor, CKPT_SECTION_WEIGHTS, weights, err));
    CKPT_TRY(ckpt_footprint_read(training->device, training->plan->static_bytes, training->plan->arena_bytes,
                                 &training->end, err));
    CKPT_TRY(write_trace(training, err));
    CKPT_TRY(ckpt_loss_log_close(&training->log, err));
    return print_end(training, weights, err);
}

static ckpt_code work(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    CKPT_TRY(prepare(training, err));
    CKPT_TRY(open_all(training, cli, err));
    CKPT_TRY(print_start(training, err));
    CKPT_TRY(train(training, err));
    CKPT_TRY(finish(training, err));
    if (ckpt_train_stop_wanted() && ckpt_executor_steps(training->executor) < (uint64_t)training->options.steps) {
        return CKPT_FAIL(err, CKPT_INTERRUPTED, "stopped after step %" PRIu64 "%s%s",
                         ckpt_executor_steps(training->executor), training->saved ? "; go on with --resume " : "",
                         training->saved ? training->options.save : "");
    }
    return CKPT_OK;
}

static void close_all(ckpt_training *training)
{
    if (training->log.file != NULL) {
        fclose(training->log.file);
    }
    ckpt_train_watch_data(NULL);
    ckpt_data_close(training->data);
    ckpt_executor_destroy(training->executor);
    ckpt_device_close(training->device);
    ckpt_arena_fini(&training->arena);
}

int main(int argc, char **argv)
{
    ckpt_threads_settle(argv);
    static ckpt_training training;
    ckpt_cli cli = {
        .program = "ckpt-train",
        .usage = "ckpt-train --plan plan.json [options] model.json",
        .about = "Train a model by a plan: same bits as without one, in the memory the plan says.",
        .option = ckpt_train_option_table,
        .argc = argc,
        .argv = argv,
    };
    ckpt_err err = {0};
    ckpt_arena_init(&training.arena);
    training.options = (ckpt_train_options){.device = "cpu", .data = "synthetic", .steps = 10, .seed = -1};
    training.options.set = CKPT_NEW(&training.arena, const char *, argc);
    if (training.options.set == NULL) {
        CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for the command line");
        return ckpt_cli_fail(&cli, &err);
    }
    const int stop = ckpt_train_parse(&cli, &training.options);
    int exit_code = stop - 1;
    if (stop == 0) {
        ckpt_train_catch_signals();
        exit_code = work(&training, &cli, &err) == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
        if (exit_code == 0 && training.done > 0 && ckpt_train_peak(&training) != training.plan->peak_bytes) {
            exit_code = 1;
        }
    }
    close_all(&training);
    if (fflush(stdout) != 0 && exit_code == 0) {
        fprintf(stderr, "ckpt-train: cannot write to standard output: %s\n", strerror(errno));
        exit_code = 2;
    }
    return exit_code;
}
