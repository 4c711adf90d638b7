/* The steps of a training. */
#include <inttypes.h>
#include <math.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "programs/train/train_impl.h"

/* On the CPU every step is traced. A GPU replays its steps, and tracing costs time: there the first step is traced, so that there is a trace whatever happens, and the last one. */
static bool wants_trace(const ckpt_training *training, uint64_t step)
{
    const ckpt_train_options *const options = &training->options;
    const bool last = step + 1 == (uint64_t)options->steps;
    const bool first = step == training->first_step && training->trace_path != NULL;
    return !training->device->api->gpu || (training->trace != NULL && (first || last));
}

static void say_unrecorded(const char *why)
{
    ckpt_cli_note("ckpt-train", "no kernels are recorded, times are between events of the device: %s", why);
}

/* Only the last step is recorded: recording slows every kernel and takes memory. */
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
    const bool usual = !traced || !training->device->api->gpu;
    const ckpt_ns whole = traced ? training->trace->time_ns : spent;
    if (usual) {
        training->time[training->times++ % CKPT_TIMES_KEPT] = whole;
    }
    ckpt_train_keep_times(training, step, traced, usual ? whole : -1);
    return CKPT_OK;
}

/* About ten lines, however many steps. */
static bool worth_a_line(const ckpt_training *training, uint64_t step)
{
    const uint64_t all = (uint64_t)training->options.steps - training->first_step;
    const uint64_t every = all > 10 ? all / 10 : 1;
    return step == training->first_step + 1 || step % every == 0 || step == (uint64_t)training->options.steps;
}

ckpt_code ckpt_train_outlive(ckpt_training *training, ckpt_code code, ckpt_err *err)
{
    if (code != CKPT_IO) {
        return code;
    }
    if (training->lost.code == CKPT_OK) {
        training->lost = *err;
    }
    return CKPT_OK;
}

ckpt_code ckpt_train_go_on(const ckpt_training *training, bool *failing, ckpt_code code, ckpt_err *err)
{
    if (code != CKPT_IO) {
        *failing = false;
        return code;
    }
    if (!*failing && training->rank == 0) {
        ckpt_cli_note("ckpt-train", "after step %" PRIu64 ": %s; what was there stays, and training goes on",
                      ckpt_executor_steps(training->executor), err->msg);
    }
    *failing = true;
    return CKPT_OK;
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
    ckpt_train_note_state(training, training->options.save, step);
    return CKPT_OK;
}

/* Shows progress a few times a second. */
static void report(const ckpt_training *training, ckpt_ns begun, ckpt_ns *said)
{
    const ckpt_ns now = ckpt_clock_ns();
    const int64_t all = training->options.steps - (int64_t)training->first_step;
    if (training->rank == 0 && now - *said >= 250000000 && (int64_t)training->done < all) {
        ckpt_cli_progress("steps", (int64_t)training->done, all, now - begun);
        *said = now;
    }
}

ckpt_code ckpt_train_open_loader(const ckpt_training *training, const ckpt_data *data, uint64_t first,
                                 ckpt_loader **loader, ckpt_err *err)
{
    const ckpt_network *const network = training->lowered->network;
    const ckpt_scheme *const scheme = &network->scheme;
    const int workers = training->options.workers >= 0 ? (int)training->options.workers
                        : ckpt_data_decodes(data)      ? 1
                                                       : 0;
    const uint64_t now =
        ckpt_executor_steps(training->executor) * (uint64_t)scheme->micro_batches * (uint64_t)scheme->replicas;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    uint64_t *const number = CKPT_NEW(&scratch, uint64_t, scheme->micro_batches);
    ckpt_code code = number != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a loader");
    for (int j = 0; code == CKPT_OK && j < scheme->micro_batches; j++) {
        number[j] = ckpt_executor_batch(training->executor, j) - now + first;
    }
    if (code == CKPT_OK) {
        code = ckpt_loader_create(data, network->model, training->input, number, scheme->micro_batches,
                                  (uint64_t)scheme->micro_batches * (uint64_t)scheme->replicas, workers, loader, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

ckpt_code ckpt_train_fill(ckpt_training *training, ckpt_loader *loader, ckpt_err *err)
{
    const ckpt_network *const network = training->lowered->network;
    for (int j = 0; j < network->scheme.micro_batches; j++) {
        CKPT_TRY(ckpt_loader_take(loader, training->input + (size_t)j * (size_t)network->model->input_count, err));
    }
    return CKPT_OK;
}

/* After every --validate-every steps, and at the end. */
static bool validation_is_due(const ckpt_training *training, uint64_t step)
{
    const uint64_t every = (uint64_t)training->options.validate_every, steps = (uint64_t)training->options.steps;
    return training->validation != NULL && (step == steps || step % every == 0);
}

static void log_step(ckpt_training *training, uint64_t step, bool validated)
{
    const ckpt_train_score *const score = &training->score;
    ckpt_loss_log_add(&training->log, step, training->loss, validated ? ckpt_train_mean(score) : (double)NAN,
                      validated ? ckpt_train_accuracy(score) : (double)NAN);
    ckpt_event_log_add(&training->events, step, "loss/train", (double)training->loss);
    if (validated) {
        ckpt_event_log_add(&training->events, step, "loss/validation", ckpt_train_mean(score));
    }
    if (validated && score->counted > 0) {
        ckpt_event_log_add(&training->events, step, "accuracy/validation", ckpt_train_accuracy(score));
    }
}

/* The validation that an interrupt ended, before the training goes on. */
static ckpt_code catch_up(ckpt_training *training, ckpt_err *err)
{
    if (!ckpt_executor_validated(training->executor)->due || training->validation == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_train_validate(training, err));
    if (!training->stopped) {
        log_step(training, training->first_step, true);
    }
    return CKPT_OK;
}

static ckpt_code one_step(ckpt_training *training, uint64_t step, ckpt_err *err)
{
    CKPT_TRY(ckpt_train_fill(training, training->loader, err));
    CKPT_TRY(do_step(training, step, err));
    step++;
    ckpt_executor_validated(training->executor)->due = false;
    if (!ckpt_train_is_quiet(training) && worth_a_line(training, step)) {
        ckpt_cli_progress_clear();
        printf("step %6" PRIu64 "  loss %.9g\n", step, (double)training->loss);
        fflush(stdout);
    }
    const bool due = validation_is_due(training, step);
    CKPT_TRY(due ? ckpt_train_validate(training, err) : CKPT_OK);
    log_step(training, step, due && !training->stopped);
    const int64_t every = training->options.save_every;
    return every > 0 && step % (uint64_t)every == 0
               ? ckpt_train_go_on(training, &training->unsaved, save(training, err), err)
               : CKPT_OK;
}

ckpt_code ckpt_train_steps(ckpt_training *training, ckpt_err *err)
{
    const uint64_t steps = (uint64_t)training->options.steps;
    const ckpt_ns begun = ckpt_clock_ns();
    ckpt_ns said = begun;
    uint64_t step = training->first_step;
    training->loss = ckpt_executor_loss(training->executor);
    CKPT_TRY(catch_up(training, err));
    CKPT_TRY(ckpt_train_open_loader(training, training->data, training->first_batch, &training->loader, err));
    while (step < steps && !training->stopped && !ckpt_train_is_stale(training)) {
        CKPT_TRY(ckpt_train_stop_together(training, &training->stopped, err));
        if (training->stopped) {
            break;
        }
        CKPT_TRY(one_step(training, step, err));
        step = ckpt_executor_steps(training->executor);
        report(training, begun, &said);
    }
    ckpt_cli_progress_clear();
    if (step < steps && !training->stopped && !ckpt_train_is_quiet(training)) {
        printf("step %6" PRIu64 "  no lower validation loss in %lld validations: training ends here\n", step,
               (long long)training->options.patience);
    }
    if (training->stopped && training->done == 0) {
        return CKPT_OK; /* nothing that could replace an older state */
    }
    CKPT_TRY(ckpt_train_outlive(training, save(training, err), err));
    return training->best_lost ? ckpt_train_outlive(training,
                                                    CKPT_FAIL(err, CKPT_IO, "%s: the best state could not be written",
                                                              training->options.save_best),
                                                    err)
                               : CKPT_OK;
}

/* Adds the times of the other steps, oldest first; must run before the ring is sorted. The traced step is the latest in the ring on a CPU, and not in the ring on a GPU. */
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

ckpt_code ckpt_train_write_trace(ckpt_training *training, ckpt_err *err)
{
    if (training->trace_path == NULL || training->done == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(add_step_times(training, err));
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(training->trace_path, &text, err));
    ckpt_trace_write(training->trace, &text);
    return ckpt_file_end_text(&text, CKPT_OK, err);
}
