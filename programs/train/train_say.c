/* What ckpt-train prints about a training: lines for people, or one JSON object. */
#include <inttypes.h>
#include <math.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "programs/train/train_impl.h"

/* On a CPU the plan's line already says it. */
static void say_memory(const char *when, const ckpt_footprint *footprint, ckpt_text *text)
{
    if (footprint->device.total > 0) {
        ckpt_text_add(text, "%s: ", when);
        ckpt_footprint_show(footprint, text);
        ckpt_text_add(text, "\n");
    }
}

bool ckpt_train_is_quiet(const ckpt_training *training)
{
    return training->rank > 0 || training->options.json || training->options.generate > 0 ||
           ckpt_train_is_dash(training->options.trace);
}

void ckpt_train_scheme_json(const ckpt_scheme *scheme, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "scheme", CKPT_JSON_TIGHT);
    CKPT_JSON_INTS(w, {"micro_batches", scheme->micro_batches}, {"replicas", scheme->replicas},
                   {"stages", scheme->stages});
    ckpt_json_put_text(w, "gradients", scheme->fused ? "fused" : "static");
    ckpt_json_put_bool(w, "shard_optimizer", scheme->shard_optimizer);
    ckpt_json_put_bool(w, "overlap", scheme->overlap);
    ckpt_json_put_int(w, "bucket_bytes", scheme->bucket_bytes);
    ckpt_json_put_texts(w, "first_layers", scheme->first_layer, scheme->first_layer != NULL ? scheme->stages : 0);
    ckpt_json_end(w);
}

/* mpirun binds each of two ranks to a core of its own, where a second thread only waits for the first. */
static void say_bound(const ckpt_training *training, ckpt_text *text)
{
#ifdef _OPENMP
    const int here = omp_get_num_procs(), threads = (int)training->options.threads;
    if (training->ranks != NULL && !training->options.gpu && here < threads) {
        ckpt_text_add(text, "%d threads of a rank share %d processor%s: mpirun --bind-to none does not bind them\n",
                      threads, here, here == 1 ? "" : "s");
    }
#else
    (void)training, (void)text;
#endif
}

/* "2 replicas of 2 stages, each 4 micro-batches; gradients fused, optimizer sharded; Open MPI 4.1.4" */
static void say_scheme(const ckpt_training *training, ckpt_text *text)
{
    const ckpt_scheme *const scheme = &training->plan->scheme;
    if (ckpt_scheme_is_plain(scheme)) {
        return;
    }
    ckpt_text_add(text, "%d rank%s: %d replica%s of %d stage%s, %d micro-batch%s in each; gradients %s%s%s%s%s\n",
                  training->rank_count, training->rank_count == 1 ? "" : "s", scheme->replicas,
                  scheme->replicas == 1 ? "" : "s", scheme->stages, scheme->stages == 1 ? "" : "s",
                  scheme->micro_batches, scheme->micro_batches == 1 ? "" : "es", scheme->fused ? "fused" : "static",
                  scheme->overlap ? ", summed during backward" : "",
                  scheme->shard_optimizer ? ", optimizer sharded" : "", training->ranks != NULL ? "; " : "",
                  training->ranks != NULL ? ckpt_ranks_library(training->ranks) : "");
}

/* "launches: 412 kernels and 3 copies per step, replayed as one graph" */
static void say_launches(const ckpt_training *training, ckpt_text *text)
{
    ckpt_launches launches = {0};
    bool replayed = false;
    if (!ckpt_executor_launches(training->executor, &launches, &replayed)) {
        return;
    }
    ckpt_text_add(text, "launches: %" PRId64 " kernel%s%s and %" PRId64 " cop%s per step, %s\n", launches.kernels,
                  launches.kernels == 1 ? "" : "s", replayed ? "" : " of our own, those of libraries not counted,",
                  launches.copies, launches.copies == 1 ? "y" : "ies",
                  replayed ? "replayed as one graph" : "each started by the host");
}

void ckpt_train_say_start(const ckpt_training *training, ckpt_text *text)
{
    const ckpt_plan *const plan = training->plan;
    char peak[CKPT_UNITS_TEXT], statics[CKPT_UNITS_TEXT], arena[CKPT_UNITS_TEXT], all[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%s: ", training->lowered->network->model->name);
    if (training->options.evaluate > 0) {
        ckpt_text_add(text, "batches of steps %" PRIu64 " to %" PRIu64 " without training", training->first_step + 1,
                      training->first_step + (uint64_t)training->options.evaluate);
    } else if (training->first_step < (uint64_t)training->options.steps) {
        ckpt_text_add(text, "steps %" PRIu64 " to %lld", training->first_step + 1, (long long)training->options.steps);
    } else {
        ckpt_text_add(text, "nothing to do (%" PRIu64 " steps are done, --steps says %lld)", training->first_step,
                      (long long)training->options.steps);
    }
    ckpt_text_add(text, ", seed %" PRIu64 ", %s\n", ckpt_executor_seed(training->executor),
                  training->device->api->describe(training->device));
    ckpt_text_add(text, "plan %s: peak %s, static %s + arena %s; keep-all peak %s\n", plan->solver,
                  ckpt_bytes_show(plan->peak_bytes, peak), ckpt_bytes_show(plan->static_bytes, statics),
                  ckpt_bytes_show(plan->arena_bytes, arena), ckpt_bytes_show(plan->keep_all_peak_bytes, all));
    say_scheme(training, text);
    say_bound(training, text);
    say_memory("memory at the start", &training->start, text);
    say_launches(training, text);
    const char *layer = NULL, *why = NULL;
    const int slow = ckpt_executor_remarks(training->executor, &layer, &why);
    if (slow > 0) {
        ckpt_text_add(text, "%d layer%s slower than might be; the first is %s: %s\n", slow,
                      slow == 1 ? " runs" : "s run", layer, why);
    }
    const int attention = ckpt_executor_algorithms(training->executor, "attention", &layer, &why);
    if (attention > 0) {
        ckpt_text_add(text, "attention of %d layer%s, the first (%s) by %s\n", attention, attention == 1 ? "" : "s",
                      layer, why);
    }
}

static int64_t times_kept(const ckpt_training *training)
{
    return training->times < CKPT_TIMES_KEPT ? training->times : CKPT_TIMES_KEPT;
}

static ckpt_ns median_time(ckpt_training *training)
{
    const int64_t count = times_kept(training);
    if (count == 0) { /* all of a GPU's one or two steps were traced */
        return training->done > 0 ? training->trace->time_ns : 0;
    }
    return ckpt_median(training->time, (int)count, NULL);
}

ckpt_bytes ckpt_train_peak(const ckpt_training *training)
{
    return training->done > 0 ? ckpt_executor_peak(training->executor) : 0;
}

/* Compares the traced step with the prediction; *held: both exist. */
static ckpt_code hold_against(ckpt_training *training, ckpt_step_report *report, bool *held, ckpt_err *err)
{
    *held = training->predicted != NULL && training->trace != NULL && training->trace->event_count > 0;
    if (!*held) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_step_compare(training->predicted, training->predicted_more, training->trace, &training->arena, report,
                               err));
    report->usual_ns = training->times > 0 ? median_time(training) : 0;
    report->usual_count = times_kept(training);
    return CKPT_OK;
}

static ckpt_code say_against(ckpt_training *training, ckpt_text *text, ckpt_err *err)
{
    ckpt_step_report report;
    bool held = false;
    CKPT_TRY(hold_against(training, &report, &held, err));
    if (held) {
        const char *const recorder = training->trace->recorder;
        const char *const clock = training->device->api->gpu ? "events around every step" : "the host's clock";
        ckpt_step_report_show(&report, training->options.profile, recorder[0] != '\0' ? recorder : clock, text);
    } else if (training->predicted != NULL) {
        ckpt_text_add(text, "against %s: nothing to compare, the last step was not run\n", training->options.profile);
    }
    return CKPT_OK;
}

static void say_peaks(const ckpt_training *training, ckpt_text *text)
{
    const int stages = training->plan->scheme.stages;
    for (int r = 1; r < training->rank_count; r++) {
        const ckpt_rank_peak *const peak = &training->peak[r];
        ckpt_text_add(text, "  of rank %-6d %lld B (%s), replica %d, stage %d\n", r, (long long)peak->measured,
                      peak->measured == peak->planned ? "equal" : "DIFFERENT", r / stages, r % stages);
    }
}

static void json_ranks(const ckpt_training *training, ckpt_json_writer *w)
{
    const ckpt_scheme *const scheme = &training->plan->scheme;
    if (ckpt_scheme_is_plain(scheme)) {
        return;
    }
    ckpt_train_scheme_json(scheme, w);
    ckpt_json_begin_array(w, "ranks", CKPT_JSON_TIGHT);
    for (int r = 0; r < training->rank_count; r++) {
        const ckpt_rank_peak *const peak = &training->peak[r];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
        CKPT_JSON_INTS(w, {"rank", r}, {"replica", r / scheme->stages}, {"stage", r % scheme->stages},
                       {"budget_bytes", peak->budget}, {"planned_peak_bytes", peak->planned},
                       {"measured_peak_bytes", peak->measured});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void json_launches(const ckpt_training *training, ckpt_json_writer *w)
{
    ckpt_launches launches = {0};
    bool replayed = false;
    if (ckpt_executor_launches(training->executor, &launches, &replayed)) {
        ckpt_json_begin_object(w, "launches", CKPT_JSON_TIGHT);
        CKPT_JSON_INTS(w, {"kernels", launches.kernels}, {"copies", launches.copies});
        ckpt_json_put_bool(w, "replayed", replayed);
        ckpt_json_end(w);
    }
}

static void json_count(ckpt_json_writer *w, const char *key, uint64_t count)
{
    ckpt_json_put_here(w, key);
    ckpt_text_add(w->text, "%" PRIu64, count);
}

/* With so many digits; null for NaN and infinity. */
static void json_loss(ckpt_json_writer *w, double loss, int digits)
{
    ckpt_json_put_here(w, "loss");
    if (isfinite(loss)) {
        ckpt_text_add(w->text, "%.*g", digits, loss);
    } else {
        ckpt_text_add(w->text, "null");
    }
}

static void json_evaluation(const ckpt_training *training, ckpt_json_writer *w)
{
    const ckpt_train_score *const score = &training->score;
    if (score->batches == 0) {
        return;
    }
    const bool validation = training->options.evaluate == 0;
    ckpt_json_begin_object(w, validation ? "validation" : "evaluation", CKPT_JSON_TIGHT);
    if (validation) {
        json_count(w, "step", training->scored_step);
    }
    json_count(w, validation ? "batches" : "steps", score->batches);
    json_loss(w, ckpt_train_mean(score), 17);
    if (score->counted > 0) {
        CKPT_JSON_INTS(w, {"right", score->right}, {"counted", score->counted});
    }
    ckpt_json_end(w);
}

static void json_memory(const ckpt_training *training, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "memory", CKPT_JSON_TIGHT);
    ckpt_footprint_json(&training->start, "start", w);
    ckpt_footprint_json(&training->end, "end", w);
    ckpt_json_end(w);
}

static void say_end_text(ckpt_training *training, const char *weights, ckpt_text *text)
{
    char shown[CKPT_UNITS_TEXT];
    const ckpt_plan *const plan = training->plan;
    ckpt_text_add(text, "weights sha256  %s\n", weights != NULL ? weights : "not computed (--no-digest)");
    ckpt_text_add(text, "planned peak    %lld B\n", (long long)plan->peak_bytes);
    if (training->options.evaluate > 0 && training->score.batches > 0) {
        ckpt_text_add(text, "mean loss       %.9g, of %" PRIu64 " step%s\n", ckpt_train_mean(&training->score),
                      training->score.batches, training->score.batches == 1 ? "" : "s");
        ckpt_text_add(text, "evaluation      ");
        ckpt_train_say_score(&training->score, text);
        ckpt_text_add(text, "\n");
    }
    if (training->done == 0) {
        return;
    }
    ckpt_text_add(text, "measured peak   %lld B (%s)\n", (long long)ckpt_train_peak(training),
                  ckpt_train_peak(training) == plan->peak_bytes ? "equal" : "DIFFERENT");
    say_peaks(training, text);
    ckpt_text_add(
        text,
        "outside         %lld B more on the C heap than before the first step, at most, looked at %s (OpenMP, "
        "libraries)\n",
        (long long)ckpt_executor_outside(training->executor),
        training->device->api->gpu ? "after every step" : "between ops");
    ckpt_text_add(text, "process peak    %lld B resident (getrusage), code, libraries and %s of mapped data included\n",
                  (long long)ckpt_process_peak_bytes(), ckpt_bytes_show(ckpt_data_mapped_bytes(training->data), shown));
    say_memory("memory at the end", &training->end, text);
    if (training->loader != NULL) {
        ckpt_text_add(text, "waited for data %s, in %" PRIu64 " steps\n",
                      ckpt_ns_show(ckpt_loader_waited_ns(training->loader), shown), training->done);
    }
    ckpt_text_add(text, "step time       %s, median of %lld\n", ckpt_ns_show(median_time(training), shown),
                  (long long)(training->times > 0 ? times_kept(training) : 1));
}

static ckpt_code say_end_json(ckpt_training *training, const char *weights, ckpt_text *text, ckpt_err *err)
{
    const ckpt_plan *const plan = training->plan;
    ckpt_step_report report;
    ckpt_json_writer w;
    bool held = false;
    CKPT_TRY(hold_against(training, &report, &held, err));
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_json_put_text(&w, "model", training->lowered->network->model->name);
    ckpt_json_put_text(&w, "strategy", plan->solver);
    json_count(&w, "steps", ckpt_executor_steps(training->executor));
    json_count(&w, "seed", ckpt_executor_seed(training->executor));
    ckpt_json_put_int(&w, "threads", training->options.threads);
    json_loss(&w, training->done > 0 ? (double)training->loss : (double)NAN, 9);
    ckpt_json_put_text(&w, "weights_sha256", weights);
    CKPT_JSON_INTS(
        &w, {"planned_peak_bytes", plan->peak_bytes}, {"measured_peak_bytes", ckpt_train_peak(training)},
        {"outside_bytes", ckpt_executor_outside(training->executor)}, {"process_peak_bytes", ckpt_process_peak_bytes()},
        {"offload_host_bytes", ckpt_executor_host_bytes(training->executor)}, {"step_ns", median_time(training)},
        {"waited_ns", training->loader == NULL ? 0 : ckpt_loader_waited_ns(training->loader)});
    json_memory(training, &w);
    json_launches(training, &w);
    json_ranks(training, &w);
    json_evaluation(training, &w);
    ckpt_train_new_plan_json(training, &w);
    if (held) {
        ckpt_step_report_json(&report, training->options.profile, training->trace->recorder, "against", &w);
    }
    ckpt_json_end(&w);
    return CKPT_OK;
}

ckpt_code ckpt_train_say_end(ckpt_training *training, const char *weights, ckpt_text *text, ckpt_err *err)
{
    if (training->options.json) {
        return say_end_json(training, weights, text, err);
    }
    say_end_text(training, weights, text);
    ckpt_train_say_new_plan(training, text);
    return say_against(training, text, err);
}
