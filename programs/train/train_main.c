/* ckpt-train: trains a model by a plan. ckpt-plan decided which step runs when, and where every byte lies. This program checks that the plan is of this model, and follows it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/place.h"
#include "ops/import/onnx/onnx.h"
#include "planner/replay/replay.h"
#include "programs/cli/cli.h"
#include "programs/cli/settle.h"
#include "programs/train/train_impl.h"

/* Reads model and plan and checks that the plan is sound and of this model. */
static ckpt_code prepare(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    ckpt_train_options *const options = &training->options;
    const ckpt_model *model = NULL;
    CKPT_TRY(ckpt_onnx_model(options->model, options->set, options->set_count, &training->arena, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, options->dtype, &training->arena, &model, err));
    CKPT_TRY(ckpt_model_with_optimizer(model, options->optimizer, &training->arena, &model, err));
    CKPT_TRY(ckpt_model_with_rate(model, options->lr, options->schedule, &training->arena, &model, err));
    CKPT_TRY(ckpt_train_find_plan(training, err));
    CKPT_TRY(ckpt_plan_read(options->plan, &training->arena, &training->plan, err));
    CKPT_TRY(ckpt_train_check_world(training, cli, err));
    CKPT_TRY(ckpt_train_settle(options, training->plan, err));
    const ckpt_network *network = NULL;
    CKPT_TRY(ckpt_network_infer(model, (int)options->threads, &training->arena, &network, err));
    if (!ckpt_scheme_is_plain(&training->plan->scheme)) {
        CKPT_TRY(ckpt_network_spread(network, &training->plan->scheme, &training->arena, &network, err));
    }
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

/* A plan counts with one time of an op, that of a run again; the profile knows the first run's too. */
static ckpt_code tell_first_runs(ckpt_training *training, const ckpt_lowered *lowered, ckpt_err *err)
{
    const ckpt_trace *const predicted = training->predicted;
    ckpt_ns *const more = CKPT_NEW(&training->arena, ckpt_ns, predicted->event_count);
    if (more == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d steps of a plan", predicted->event_count);
    }
    for (int i = 0; i < predicted->event_count; i++) {
        const ckpt_step *const step = &training->plan->step[predicted->event[i].step];
        if (step->kind == CKPT_RUN && !step->recomputed && step->variant == NULL) {
            more[i] = lowered->op_role[step->target].again_more_ns;
        }
    }
    training->predicted_more = more;
    return CKPT_OK;
}

/* Predicts the step by the profile's times, to compare the measured one with. */
static ckpt_code predict(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    ckpt_arena *const arena = &training->arena;
    if (options->profile == NULL || training->rank > 0) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_profile_read(options->profile, arena, &training->profile, err));
    CKPT_TRY(ckpt_train_check_profile(training->profile, training->device, err));
    const ckpt_device_model *device = NULL; /* gives the times of layers that the profile lacks */
    CKPT_TRY(ckpt_device_model_find(options->gpu ? "h200" : "cpu", arena, &device, err));
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(ckpt_network_lower(training->lowered->network, training->profile, device, arena, &lowered, err));
    ckpt_graph graph = *lowered->graph;
    if (!graph.has_link) { /* copies of a CPU are not predicted */
        graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = INT64_MAX;
    }
    CKPT_TRY(ckpt_plan_simulate(training->plan, &graph, arena, &training->predicted, err));
    return tell_first_runs(training, lowered, err);
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
    if (ckpt_train_is_quiet(training)) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_train_say_start(training, &text);
    return print(&text, CKPT_OK, err);
}

static ckpt_code print_end(ckpt_training *training, const char *weights, ckpt_err *err)
{
    if (training->rank > 0 || (ckpt_train_is_quiet(training) && !training->options.json)) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    return print(&text, ckpt_train_say_end(training, weights, &text, err), err);
}

static ckpt_code export_weights(ckpt_training *training, ckpt_err *err)
{
    const ckpt_train_options *const options = &training->options;
    if (options->export == NULL || training->stopped) {
        return CKPT_OK;
    }
    return ckpt_executor_weights_write(training->executor, options->export, options->export_dtype, err);
}

static ckpt_code finish(ckpt_training *training, ckpt_err *err)
{
    char digest[CKPT_DIGEST_TEXT];
    const char *const weights = training->options.no_digest || training->options.generate > 0 ? NULL : digest;
    if (weights != NULL) {
        CKPT_TRY(ckpt_executor_digest(training->executor, CKPT_SECTION_WEIGHTS, digest, err));
    }
    CKPT_TRY(ckpt_train_collect_peaks(training, err));
    CKPT_TRY(ckpt_footprint_read(training->device, training->plan->static_bytes, training->plan->arena_bytes,
                                 &training->end, err));
    CKPT_TRY(ckpt_train_outlive(training, export_weights(training, err), err));
    CKPT_TRY(ckpt_train_outlive(training, ckpt_train_write_trace(training, err), err));
    CKPT_TRY(ckpt_train_outlive(training, ckpt_train_write_profile(training, err), err));
    CKPT_TRY(ckpt_train_outlive(training, ckpt_loss_log_close(&training->log, err), err));
    CKPT_TRY(ckpt_train_outlive(training, ckpt_event_log_close(&training->events, err), err));
    CKPT_TRY(print_end(training, weights, err));
    if (training->lost.code != CKPT_OK && err != NULL) {
        *err = training->lost;
    }
    return ckpt_train_agree(training, training->lost.code, err);
}

/* Each rank on its own. The budget is checked before the device is filled, and again after set-up. */
static ckpt_code open_all(ckpt_training *training, ckpt_err *err)
{
    CKPT_TRY(ckpt_train_open_device(training, err));
    CKPT_TRY(predict(training, err));
    return ckpt_train_check_budget(training, err);
}

/* All ranks together: before any step at which ranks could wait for a failed one, they agree. */
static ckpt_code set_up(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    CKPT_TRY(ckpt_train_join(training, err));
    CKPT_TRY(ckpt_train_agree(training, prepare(training, cli, err), err));
    CKPT_TRY(ckpt_train_agree(training, ckpt_train_same_request(training, err), err));
    CKPT_TRY(ckpt_train_agree(training, open_all(training, err), err));
    CKPT_TRY(ckpt_train_agree(training, ckpt_train_carry(training, err), err));
    CKPT_TRY(ckpt_train_open_executor(training, err));
    CKPT_TRY(ckpt_train_agree(training, ckpt_train_check_budget(training, err), err));
    CKPT_TRY(ckpt_train_agree(training, ckpt_train_open_files(training, cli, err), err));
    return ckpt_train_agree(training, ckpt_train_same_start(training, err), err);
}

static ckpt_code work(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    CKPT_TRY(set_up(training, cli, err));
    CKPT_TRY(print_start(training, err));
    CKPT_TRY(training->options.generate > 0   ? ckpt_train_generate(training, err)
             : training->options.evaluate > 0 ? ckpt_train_evaluate(training, err)
                                              : ckpt_train_steps(training, err));
    if (training->options.ema) { /* the digest is of the weights */
        CKPT_TRY(ckpt_executor_swap_average(training->executor, err));
    }
    CKPT_TRY(finish(training, err));
    if (!training->stopped) {
        return CKPT_OK;
    }
    training->agreed = true;
    training->told = training->rank > 0;
    return CKPT_FAIL(err, CKPT_INTERRUPTED, "stopped after step %" PRIu64 "%s%s",
                     ckpt_executor_steps(training->executor), training->saved ? "; go on with --resume " : "",
                     training->saved ? training->options.save : "");
}

static void close_all(ckpt_training *training)
{
    const ckpt_code closed[] = {ckpt_loss_log_close(&training->log, NULL),
                                ckpt_event_log_close(&training->events, NULL)};
    (void)closed;                          /* after a failure of which the line is printed */
    ckpt_loader_destroy(training->loader); /* before the data that its workers read */
    ckpt_train_watch_data(NULL, NULL);
    ckpt_data_close(training->data);
    ckpt_data_close(training->validation);
    ckpt_executor_destroy(training->executor);
    ckpt_device_close(training->device);
    ckpt_ranks_close(training->ranks);
    ckpt_arena_fini(&training->arena);
}

/* Prints one line: this rank's error, unless another rank, whose failure stops all, prints its own. */
static int fail(ckpt_training *training, const ckpt_cli *cli, const ckpt_err *err)
{
    const bool alone = training->ranks == NULL || training->agreed;
    if (!alone) {
        ckpt_ranks_give_up(training->ranks, err->msg); /* first, so that the others' lines can have it */
    }
    const int exit_code = training->told ? ckpt_exit_code(err->code) : ckpt_cli_fail(cli, err);
    if (!alone) {
        fflush(NULL);
        _exit(exit_code); /* nobody is waited for */
    }
    return exit_code;
}

/* The plan of any rank knows the threads of all. What is wrong with it is said later. */
static void settle_threads(const ckpt_train_options *options, char *const *argv)
{
    int seat = 0, seats = 1;
    struct stat is;
    ckpt_training peek = {.options = *options};
    ckpt_arena_init(&peek.arena);
    const bool known = !ckpt_cli_threads_settled() && ckpt_train_find_plan(&peek, NULL) == CKPT_OK &&
                       stat(peek.options.plan, &is) == 0 && S_ISREG(is.st_mode) && /* a pipe can be read once only */
                       ckpt_plan_read(peek.options.plan, &peek.arena, &peek.plan, NULL) == CKPT_OK &&
                       ckpt_train_settle(&peek.options, peek.plan, NULL) == CKPT_OK && !peek.options.gpu;
    ckpt_ranks_seat(&seat, &seats);
    ckpt_cli_settle_threads(argv, known ? (int)peek.options.threads : 0, seat, seats);
    ckpt_arena_fini(&peek.arena);
}

int main(int argc, char **argv)
{
    ckpt_place_leave();
    static ckpt_training training;
    ckpt_cli cli = {
        .program = "ckpt-train",
        .usage = "ckpt-train --plan plan.json [options] model.json",
        .about =
            "Train a model by a plan: the same bits as without one, in the memory the plan says. Micro-batches, ranks\n"
            "and pipeline stages are those of the plan; several ranks: mpirun -n RANKS ckpt-train ...",
        .option = ckpt_train_option_table,
        .argc = argc,
        .argv = argv,
    };
    ckpt_err err = {0};
    ckpt_arena_init(&training.arena);
    training.options =
        (ckpt_train_options){.device = "cpu", .data = "synthetic", .steps = -1, .seed = -1, .workers = -1};
    training.options.set = CKPT_NEW(&training.arena, const char *, argc);
    if (training.options.set == NULL) {
        CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for the command line");
        return ckpt_cli_fail(&cli, &err);
    }
    const int stop = ckpt_train_parse(&cli, &training.options);
    int exit_code = stop - 1;
    if (stop == 0) {
        ckpt_cli_outlive_limits();
        settle_threads(&training.options, argv);
        ckpt_train_catch_signals();
        exit_code = work(&training, &cli, &err) == CKPT_OK ? 0 : fail(&training, &cli, &err);
        if (exit_code == 0 && !ckpt_train_peaks_hold(&training)) {
            exit_code = 1;
        }
    }
    close_all(&training);
    return ckpt_cli_end(&cli, exit_code);
}
