/* ckpt-train: trains a model by a plan. Which step runs when, and where every byte lies, was decided by ckpt-plan;
 * this program only checks that the plan is of this model, and follows it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli.h"
#include "core/file.h"
#include "executor/data.h"
#include "executor/executor.h"
#include "executor/footprint.h"
#include "executor/loss_log.h"
#include "executor/train_request_impl.h"
#include "kernels/threads.h"
#include "planner/replay.h"

enum { TIMES_KEPT = 1001 };

typedef struct ckpt_training {
    ckpt_train_options options;
    ckpt_arena arena;
    const ckpt_lowered *lowered;
    ckpt_plan *plan;
    ckpt_device *device;
    ckpt_executor *executor;
    ckpt_data *data;
    ckpt_trace *trace;
    ckpt_footprint start, end; /* of the device's memory, when set-up is done and when training is */
    void **input;
    ckpt_loss_log log;
    uint64_t first_step, saved_step;
    bool saved; /* the state of saved_step is in the file */
    float loss;
    ckpt_ns time[TIMES_KEPT]; /* of the latest steps, as a ring */
    int64_t times;
} ckpt_training;

static volatile sig_atomic_t stop_wanted;
static const ckpt_data *volatile mapped_data; /* for data_gone; NULL: none */

static void want_stop(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

static void say_at_once(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(2);
    }
}

/* The data are read through mappings, and a mapped file that another program cuts short raises SIGBUS. */
static void data_gone(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *const path = mapped_data != NULL ? ckpt_data_file_at(mapped_data, info->si_addr) : NULL;
    if (path == NULL) {
        signal(number, SIG_DFL); /* not ours: it comes again, and ends the program */
        return;
    }
    say_at_once("ckpt-train: ");
    say_at_once(path);
    say_at_once(": cannot be read any more: it has become shorter since training began\n");
    _exit(2);
}

/* Whoever stops the training wants its state: an interrupt, a terminal that closes, a reader of the output that left.
 */
static void catch_signals(void)
{
    static const int stopping[] = {SIGINT, SIGTERM, SIGPIPE, SIGHUP};
    struct sigaction action = {.sa_handler = want_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stopping / sizeof stopping[0]; i++) {
        struct sigaction before;
        if (stopping[i] != SIGHUP || (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)) {
            sigaction(stopping[i], &action, NULL); /* nohup ignores SIGHUP: so it stays */
        }
    }
    struct sigaction gone = {.sa_sigaction = data_gone, .sa_flags = SA_SIGINFO};
    sigemptyset(&gone.sa_mask);
    sigaction(SIGBUS, &gone, NULL);
}

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
    mapped_data = training->data;
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

/* What is refused is refused before the device is filled, and once more with all that the set-up has brought there. */
static ckpt_code open_executor(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    CKPT_TRY(ckpt_device_open(options->device, options->gpu ? 1 : (int)options->threads, &training->device, err));
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
    if (device->api->gpu && training->options.trace == NULL) {
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

/* A CPU tells nothing that the line of the plan does not. */
static void say_memory(const char *when, const ckpt_footprint *footprint)
{
    if (footprint->device.total > 0) {
        ckpt_text text;
        ckpt_text_init(&text);
        ckpt_footprint_show(footprint, &text);
        printf("%s: %s\n", when, text.bytes != NULL ? text.bytes : "");
        ckpt_text_fini(&text);
    }
}

static void say_start(const ckpt_training *training)
{
    if (is_quiet(&training->options)) {
        return;
    }
    const ckpt_plan *const plan = training->plan;
    char peak[CKPT_UNITS_TEXT], statics[CKPT_UNITS_TEXT], arena[CKPT_UNITS_TEXT], all[CKPT_UNITS_TEXT];
    printf("%s: ", training->lowered->network->model->name);
    if (training->first_step < (uint64_t)training->options.steps) {
        printf("steps %" PRIu64 " to %lld", training->first_step + 1, (long long)training->options.steps);
    } else {
        printf("nothing to do (%" PRIu64 " steps are done, --steps says %lld)", training->first_step,
               (long long)training->options.steps);
    }
    printf(", seed %" PRIu64 ", %s\n", ckpt_executor_seed(training->executor),
           training->device->api->describe(training->device));
    printf("plan %s: peak %s, static %s + arena %s; keep-all peak %s\n", plan->solver,
           ckpt_bytes_show(plan->peak_bytes, peak), ckpt_bytes_show(plan->static_bytes, statics),
           ckpt_bytes_show(plan->arena_bytes, arena), ckpt_bytes_show(plan->keep_all_peak_bytes, all));
    say_memory("memory at the start", &training->start);
    const char *layer = NULL, *why = NULL;
    const int slow = ckpt_executor_remarks(training->executor, &layer, &why);
    if (slow > 0) {
        printf("%d layer%s slower than might be; the first is %s: %s\n", slow, slow == 1 ? " runs" : "s run", layer,
               why);
    }
}

/* On the CPU every step is traced. A GPU replays its steps, and tracing one costs: there the first is traced, so that
 * there is one whatever happens, and the last. */
static bool wants_trace(const ckpt_training *training, uint64_t step)
{
    const ckpt_train_options *const options = &training->options;
    const bool wanted =
        options->trace != NULL && (step == training->first_step || step + 1 == (uint64_t)options->steps);
    return !training->device->api->gpu || wanted;
}

static ckpt_code do_step(ckpt_training *training, uint64_t step, ckpt_err *err)
{
    const bool traced = wants_trace(training, step);
    const ckpt_ns start = ckpt_clock_ns();
    CKPT_TRY(ckpt_executor_step(training->executor, &training->loss, traced ? training->trace : NULL, err));
    const ckpt_ns spent = ckpt_clock_ns() - start;
    training->time[training->times++ % TIMES_KEPT] = traced ? training->trace->time_ns : spent;
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

static ckpt_code train(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    uint64_t step = training->first_step;
    while (step < (uint64_t)options->steps && !stop_wanted) {
        ckpt_data_fill(training->data, step, training->input);
        CKPT_TRY(do_step(training, step, err));
        step = ckpt_executor_steps(training->executor);
        ckpt_loss_log_add(&training->log, step, training->loss);
        if (!is_quiet(options) && worth_a_line(training, step)) {
            printf("step %6" PRIu64 "  loss %.9g\n", step, (double)training->loss);
            fflush(stdout);
        }
        if (options->save_every > 0 && step % (uint64_t)options->save_every == 0) {
            CKPT_TRY(save(training, err));
        }
    }
    if (stop_wanted && step == training->first_step && step < (uint64_t)options->steps) {
        return CKPT_OK; /* stopped before anything was done: nothing that could replace an older state */
    }
    return save(training, err);
}

static int compare_ns(const void *a, const void *b)
{
    const ckpt_ns x = *(const ckpt_ns *)a, y = *(const ckpt_ns *)b;
    return (x > y) - (x < y);
}

static ckpt_ns median_time(ckpt_training *training)
{
    const int64_t count = training->times < TIMES_KEPT ? training->times : TIMES_KEPT;
    if (count == 0) {
        return 0;
    }
    qsort(training->time, (size_t)count, sizeof training->time[0], compare_ns);
    return training->time[count / 2];
}

/* 0 when no step was done. */
static ckpt_bytes measured_peak(const ckpt_training *training)
{
    return training->times > 0 ? ckpt_executor_peak(training->executor) : 0;
}

static void say_end_text(ckpt_training *training, const char *weights)
{
    char text[CKPT_UNITS_TEXT];
    const ckpt_plan *const plan = training->plan;
    printf("weights sha256  %s\n", weights);
    printf("planned peak    %lld B\n", (long long)plan->peak_bytes);
    if (training->times == 0) {
        return;
    }
    printf("measured peak   %lld B (%s)\n", (long long)measured_peak(training),
           measured_peak(training) == plan->peak_bytes ? "equal" : "DIFFERENT");
    printf("outside         %lld B more on the C heap than before the first step, at most, looked at after every %s "
           "(OpenMP, libraries)\n",
           (long long)ckpt_executor_outside(training->executor), training->device->api->gpu ? "step" : "op");
    printf("process peak    %lld B resident (getrusage), code, libraries and %s of mapped data included\n",
           (long long)ckpt_process_peak_bytes(), ckpt_bytes_show(ckpt_data_mapped_bytes(training->data), text));
    say_memory("memory at the end", &training->end);
    printf("step time       %s, median of %lld\n", ckpt_ns_show(median_time(training), text),
           (long long)(training->times < TIMES_KEPT ? training->times : TIMES_KEPT));
}

static ckpt_code say_end_json(ckpt_training *training, const char *weights, ckpt_err *err)
{
    const ckpt_plan *const plan = training->plan;
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_text_add(&text, "{\"model\": ");
    ckpt_text_json(&text, training->lowered->network->model->name);
    ckpt_text_add(&text, ", \"strategy\": ");
    ckpt_text_json(&text, plan->solver);
    ckpt_text_add(&text, ", \"steps\": %" PRIu64 ", \"seed\": %" PRIu64 ", \"threads\": %lld",
                  ckpt_executor_steps(training->executor), ckpt_executor_seed(training->executor),
                  (long long)training->options.threads);
    if (training->times > 0 && isfinite(training->loss)) {
        ckpt_text_add(&text, ", \"loss\": %.9g", (double)training->loss);
    } else {
        ckpt_text_add(&text, ", \"loss\": null");
    }
    ckpt_text_add(&text,
                  ", \"weights_sha256\": \"%s\", \"planned_peak_bytes\": %lld, \"measured_peak_bytes\": %lld, "
                  "\"outside_bytes\": %lld, \"process_peak_bytes\": %lld, \"offload_host_bytes\": %lld, "
                  "\"step_ns\": %lld, \"memory\": {\"start\": {",
                  weights, (long long)plan->peak_bytes, (long long)measured_peak(training),
                  (long long)ckpt_executor_outside(training->executor), (long long)ckpt_process_peak_bytes(),
                  (long long)ckpt_executor_host_bytes(training->executor), (long long)median_time(training));
    ckpt_footprint_json(&training->start, &text);
    ckpt_text_add(&text, "}, \"end\": {");
    ckpt_footprint_json(&training->end, &text);
    ckpt_text_add(&text, "}}}\n");
    const ckpt_code code = ckpt_text_end(&text, err);
    if (code == CKPT_OK) {
        fwrite(text.bytes, 1, text.length, stdout);
    }
    ckpt_text_fini(&text);
    return code;
}

static ckpt_code write_trace(const ckpt_training *training, ckpt_err *err)
{
    if (training->options.trace == NULL || training->times == 0) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_trace_write(training->trace, &text);
    ckpt_code code = ckpt_text_end(&text, err);
    if (code == CKPT_OK) {
        code = ckpt_file_write(training->options.trace, text.bytes, text.length, err);
    }
    ckpt_text_fini(&text);
    return code;
}

static ckpt_code finish(ckpt_training *training, ckpt_err *err)
{
    char weights[CKPT_DIGEST_TEXT];
    CKPT_TRY(ckpt_executor_digest(training->executor, CKPT_SECTION_WEIGHTS, weights, err));
    CKPT_TRY(ckpt_footprint_read(training->device, training->plan->static_bytes, training->plan->arena_bytes,
                                 &training->end, err));
    CKPT_TRY(write_trace(training, err));
    CKPT_TRY(ckpt_loss_log_close(&training->log, err));
    if (training->options.json) {
        return say_end_json(training, weights, err);
    }
    if (!is_quiet(&training->options)) {
        say_end_text(training, weights);
    }
    return CKPT_OK;
}

static ckpt_code work(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    CKPT_TRY(prepare(training, err));
    CKPT_TRY(open_all(training, cli, err));
    say_start(training);
    CKPT_TRY(train(training, err));
    CKPT_TRY(finish(training, err));
    if (stop_wanted && ckpt_executor_steps(training->executor) < (uint64_t)training->options.steps) {
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
    mapped_data = NULL;
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
        catch_signals();
        exit_code = work(&training, &cli, &err) == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
        if (exit_code == 0 && training.times > 0 && measured_peak(&training) != training.plan->peak_bytes) {
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
