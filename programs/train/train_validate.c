/* Evaluations: --evaluate of a state, and validations during a training, on data of their own. */
#include <inttypes.h>
#include <math.h>

#include "programs/train/train_impl.h"

enum { BATCHES_USUAL = 16 };

/* How many predictions were right, of a batch of losses over classes. */
static ckpt_code look(void *context, ckpt_device *device, const ckpt_kernel_args *args, ckpt_err *err)
{
    ckpt_train_score *const score = context;
    return ckpt_predictions_count(device, args, &score->right, &score->counted, err);
}

/* Adds the mean loss of the next batches of every micro-batch, and what is right in them. */
static ckpt_code evaluate_once(ckpt_training *training, ckpt_loader *loader, ckpt_train_score *score, ckpt_err *err)
{
    const ckpt_watcher watcher = {.look = look, .context = score};
    float loss = 0;
    CKPT_TRY(ckpt_train_fill(training, loader, err));
    CKPT_TRY(ckpt_executor_evaluate(training->executor, &watcher, &loss, err));
    score->sum += (double)loss;
    score->batches++;
    return CKPT_OK;
}

/* The predictions of all ranks: each replica has its part of a batch, and of its stages the last one. */
static ckpt_code collect(const ckpt_training *training, ckpt_train_score *score, ckpt_err *err)
{
    if (training->ranks == NULL) {
        return CKPT_OK;
    }
    const int64_t mine[2] = {score->right, score->counted};
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    int64_t *const all = CKPT_NEW(&scratch, int64_t, 2 * training->rank_count);
    const ckpt_code code = all != NULL ? ckpt_ranks_allgather(training->ranks, mine, all, (ckpt_bytes)sizeof mine, err)
                                       : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the predictions of the ranks");
    for (int r = 0; code == CKPT_OK && r < training->rank_count; r++) {
        score->right += r == training->rank ? 0 : all[2 * r];
        score->counted += r == training->rank ? 0 : all[2 * r + 1];
    }
    ckpt_arena_fini(&scratch);
    return code;
}

double ckpt_train_mean(const ckpt_train_score *score)
{
    return score->batches > 0 ? score->sum / (double)score->batches : 0;
}

double ckpt_train_accuracy(const ckpt_train_score *score)
{
    return score->counted > 0 ? (double)score->right / (double)score->counted : (double)NAN;
}

ckpt_code ckpt_train_evaluate(ckpt_training *training, ckpt_err *err)
{
    ckpt_loader *loader = NULL;
    ckpt_code code = ckpt_train_open_loader(training, training->data, training->first_batch, &loader, err);
    for (uint64_t i = 0; code == CKPT_OK && i < (uint64_t)training->options.evaluate; i++) {
        code = ckpt_train_stop_together(training, &training->stopped, err);
        if (code != CKPT_OK || training->stopped) {
            break;
        }
        code = evaluate_once(training, loader, &training->score, err);
    }
    ckpt_loader_destroy(loader);
    return code == CKPT_OK ? collect(training, &training->score, err) : code;
}

/* Once through the data or, where they have no end, some of them. */
static uint64_t batches_of(const ckpt_training *training)
{
    const ckpt_scheme *const scheme = &training->lowered->network->scheme;
    const uint64_t per_step = (uint64_t)scheme->micro_batches * (uint64_t)scheme->replicas;
    if (training->options.validate_batches > 0) {
        return (uint64_t)training->options.validate_batches;
    }
    const uint64_t epoch = (uint64_t)ckpt_data_batches(training->validation);
    const uint64_t steps = epoch / per_step;
    return epoch == 0 ? BATCHES_USUAL : steps > 0 ? steps : 1;
}

/* Keeps the best loss, and the state that has it. */
static ckpt_code judge(ckpt_training *training, double loss, ckpt_err *err)
{
    ckpt_validated *const validated = ckpt_executor_validated(training->executor);
    if (!((float)loss < validated->best)) {
        validated->stale++;
        return CKPT_OK;
    }
    validated->best = (float)loss;
    validated->stale = 0;
    return training->options.save_best != NULL
               ? ckpt_train_go_on(training, &training->best_lost,
                                  ckpt_executor_state_write(training->executor, training->options.save_best, err), err)
               : CKPT_OK;
}

bool ckpt_train_is_stale(const ckpt_training *training)
{
    const int stale = ckpt_executor_validated(training->executor)->stale;
    return training->options.patience > 0 && stale >= training->options.patience;
}

ckpt_code ckpt_train_validate(ckpt_training *training, ckpt_err *err)
{
    const uint64_t batches = batches_of(training), step = ckpt_executor_steps(training->executor);
    ckpt_train_score score = {0};
    ckpt_loader *loader = NULL;
    ckpt_code code = ckpt_train_open_loader(training, training->validation, 0, &loader, err);
    for (uint64_t i = 0; code == CKPT_OK && i < batches; i++) {
        code = ckpt_train_stop_together(training, &training->stopped, err);
        if (code != CKPT_OK || training->stopped) {
            break;
        }
        code = evaluate_once(training, loader, &score, err);
    }
    ckpt_loader_destroy(loader);
    ckpt_executor_validated(training->executor)->due = training->stopped;
    if (code != CKPT_OK || training->stopped) {
        return code;
    }
    CKPT_TRY(collect(training, &score, err));
    training->score = score;
    training->scored_step = step;
    if (!ckpt_train_is_quiet(training)) {
        ckpt_text text;
        ckpt_text_init(&text);
        ckpt_cli_progress_clear();
        printf("step %6" PRIu64 "  validation ", step);
        ckpt_train_say_score(&score, &text);
        code = ckpt_text_end(&text, err);
        if (code == CKPT_OK) {
            printf("%s\n", text.bytes);
            fflush(stdout);
        }
        ckpt_text_fini(&text);
        CKPT_TRY(code);
    }
    return judge(training, ckpt_train_mean(&score), err);
}

void ckpt_train_say_score(const ckpt_train_score *score, ckpt_text *text)
{
    const double loss = ckpt_train_mean(score);
    ckpt_text_add(text, "loss %.9g, perplexity %.6g", loss, exp(loss));
    if (score->counted > 0) {
        ckpt_text_add(text, ", accuracy %.4f (%" PRId64 " of %" PRId64 ")", ckpt_train_accuracy(score), score->right,
                      score->counted);
    }
}
