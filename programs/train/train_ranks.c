/* ckpt-train as one of several ranks: who is there, whether all train the same, and how they stop together. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "programs/train/train_impl.h"

ckpt_code ckpt_train_join(ckpt_training *training, ckpt_err *err)
{
    training->rank_count = 1;
    CKPT_TRY(ckpt_ranks_started(&training->rank_count, err));
    training->vote = CKPT_NEW(&training->arena, unsigned char, training->rank_count);
    if (training->vote == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d ranks", training->rank_count);
    }
    if (training->rank_count == 1) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_ranks_open(&training->ranks, err));
    training->rank = ckpt_ranks_rank(training->ranks);
    ckpt_ranks_note(training->ranks, "training had not begun");
    return ckpt_ranks_watch(training->ranks, ckpt_train_lost_rank, NULL, err);
}

ckpt_code ckpt_train_agree(ckpt_training *training, ckpt_code code, ckpt_err *err)
{
    if (training->ranks == NULL || training->agreed) {
        return code;
    }
    const unsigned char mine = (unsigned char)code;
    ckpt_err lost = {0};
    if (ckpt_ranks_allgather(training->ranks, &mine, training->vote, 1, &lost) != CKPT_OK) {
        return code != CKPT_OK ? code : CKPT_FAIL(err, lost.code, "%s", lost.msg);
    }
    for (int r = 0; r < training->rank_count; r++) {
        if (training->vote[r] != CKPT_OK) {
            training->agreed = true;
            training->told = r != training->rank;
            return code != CKPT_OK
                       ? code
                       : CKPT_FAIL(err, (ckpt_code)training->vote[r], "rank %d of %d failed", r, training->rank_count);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_train_find_plan(ckpt_training *training, ckpt_err *err)
{
    const char **const path = &training->options.plan;
    if (access(*path, F_OK) == 0) {
        return CKPT_OK;
    }
    const char *first = NULL;
    CKPT_TRY(ckpt_cli_stage_file(*path, 0, &training->arena, &first, err));
    if (access(first, F_OK) != 0) {
        return CKPT_OK; /* neither file exists: reading --plan reports it */
    }
    ckpt_plan *plan = NULL; /* every stage's file knows the number of stages */
    CKPT_TRY(ckpt_plan_read(first, &training->arena, &plan, err));
    const int stages = plan->scheme.stages > 0 ? plan->scheme.stages : 1;
    return ckpt_cli_stage_file(*path, training->rank % stages, &training->arena, path, err);
}

static ckpt_code refuse_world(const ckpt_training *training, int wanted, const ckpt_cli *cli, ckpt_err *err)
{
    char command[300] = "";
    for (int i = 1; i < cli->argc; i++) {
        const size_t length = strlen(command);
        snprintf(command + length, sizeof command - length, " %s", cli->argv[i]);
    }
    char run[32] = "";
    if (wanted > 1) {
        snprintf(run, sizeof run, "mpirun -n %d ", wanted);
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.80s: the plan is for %d rank%s, found %d: %sckpt-train%s%s",
                     training->options.plan, wanted, wanted == 1 ? "" : "s", training->rank_count, run, command,
                     wanted == 1 ? ", without mpirun" : "");
}

ckpt_code ckpt_train_check_world(const ckpt_training *training, const ckpt_cli *cli, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &training->plan->scheme;
    const int wanted = ckpt_scheme_is_plain(scheme) ? 1 : ckpt_scheme_ranks(scheme);
    if (training->rank_count != wanted) {
        return refuse_world(training, wanted, cli, err);
    }
    if (wanted > 1 && training->rank % scheme->stages != scheme->stage) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s: the plan of stage %d, and rank %d has stage %d of %d: give --plan the name that ckpt-plan "
            "-o was given",
            training->options.plan, scheme->stage, training->rank, training->rank % scheme->stages, scheme->stages);
    }
    return CKPT_OK;
}

/* Start and length of the member that `at` lies in. */
static int member_at(const char *line, size_t at, size_t *start)
{
    *start = 1;
    for (size_t i = 2; i <= at && line[i] != '\0'; i++) {
        *start = line[i] == '"' && line[i - 1] == ' ' && line[i - 2] == ',' ? i : *start;
    }
    const char *const next = strstr(line + *start, ", \"");
    return (int)(next != NULL ? (size_t)(next - line) - *start : strcspn(line + *start, "\n") - 1);
}

static ckpt_code refuse_difference(const ckpt_training *training, const char *mine, const char *first, ckpt_err *err)
{
    size_t at = 0, a = 0, b = 0;
    while (mine[at] != '\0' && mine[at] == first[at]) {
        at++;
    }
    const int mine_length = member_at(mine, at, &a), first_length = member_at(first, at, &b);
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "rank %d of %d has %.*s, and rank 0 has %.*s: all ranks must train the same",
                     training->rank, training->rank_count, mine_length < 160 ? mine_length : 160, mine + a,
                     first_length < 160 ? first_length : 160, first + b);
}

/* Is `text`, a line of JSON, the same on all ranks? The message names the first member that differs. `code`: was the text made? A rank without one, or without memory for that of rank 0, holds nobody up. */
static ckpt_code check_same(ckpt_training *training, const ckpt_text *text, ckpt_code code, ckpt_err *err)
{
    int64_t length = (int64_t)text->length;
    CKPT_TRY(ckpt_train_agree(training, code, err));
    CKPT_TRY(ckpt_ranks_broadcast(training->ranks, 0, &length, sizeof length, err));
    char *const first = ckpt_memory_get((size_t)length + 1);
    if (first == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for what rank 0 says");
    } else if (training->rank == 0) {
        memcpy(first, text->bytes, text->length);
    }
    code = ckpt_train_agree(training, code, err);
    if (code == CKPT_OK) {
        code = ckpt_ranks_broadcast(training->ranks, 0, first, length, err);
    }
    if (code == CKPT_OK && strcmp(text->bytes, first) != 0) {
        code = refuse_difference(training, text->bytes, first, err);
    }
    ckpt_memory_put(first);
    return code;
}

static void add_request(const ckpt_training *training, ckpt_text *text)
{
    const ckpt_train_options *const options = &training->options;
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_json_put_text(&w, "model", training->lowered->network->model->name);
    ckpt_train_scheme_json(&training->plan->scheme, &w);
    CKPT_JSON_INTS(&w, {"steps", options->steps}, {"save_every", options->save_every}, {"evaluate", options->evaluate});
    ckpt_json_put_bool(&w, "save", options->save != NULL);
    ckpt_json_put_bool(&w, "resume", options->resume != NULL);
    ckpt_json_put_bool(&w, "init", options->init != NULL);
    ckpt_json_put_bool(&w, "no_digest", options->no_digest);
    ckpt_json_end(&w);
}

ckpt_code ckpt_train_same_request(ckpt_training *training, ckpt_err *err)
{
    if (training->ranks == NULL) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    add_request(training, &text);
    const ckpt_code code = check_same(training, &text, ckpt_text_end(&text, err), err);
    ckpt_text_fini(&text);
    return code;
}

/* The digest of the data is made by one rank of each host; all have that of rank 0, and its stamp, or other data. */
static ckpt_code share_digest(const ckpt_training *training, ckpt_err *err)
{
    ckpt_data_identity *const mine = ckpt_executor_data(training->executor);
    ckpt_data_identity first = *mine;
    CKPT_TRY(ckpt_ranks_broadcast(training->ranks, 0, &first, sizeof first, err));
    if (mine->digest[0] != '\0' && first.digest[0] != '\0' && strcmp(mine->digest, first.digest) != 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "rank %d of %d has other data than rank 0: as many bytes, but SHA-256 %.16s..., and rank 0 has "
            "%.16s...",
            training->rank, training->rank_count, mine->digest, first.digest);
    }
    memcpy(mine->digest, first.digest, sizeof mine->digest);
    memcpy(mine->stamp, first.stamp, sizeof mine->stamp);
    return CKPT_OK;
}

/* The header a state would have now: model, optimizer, threads, batches, seed, step, data. */
ckpt_code ckpt_train_same_start(ckpt_training *training, ckpt_err *err)
{
    if (training->ranks == NULL) {
        return CKPT_OK;
    }
    ckpt_text text;
    CKPT_TRY(ckpt_train_agree(training, share_digest(training, err), err));
    ckpt_text_init(&text);
    const ckpt_code code = check_same(training, &text, ckpt_executor_state_header(training->executor, &text, err), err);
    ckpt_text_fini(&text);
    return code;
}

ckpt_code ckpt_train_find_trace(ckpt_training *training, ckpt_err *err)
{
    const char *const path = training->options.trace;
    const int stages = training->plan->scheme.stages;
    if (path == NULL || training->rank >= (stages > 1 ? stages : 1)) {
        return CKPT_OK; /* other replicas' traces are alike */
    }
    if (stages > 1 && ckpt_train_is_dash(path)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--trace - is one trace, and there are those of %d stages", stages);
    }
    training->trace_path = path;
    return stages > 1 ? ckpt_cli_stage_file(path, training->rank, &training->arena, &training->trace_path, err)
                      : CKPT_OK;
}

ckpt_code ckpt_train_stop_together(ckpt_training *training, bool *stop, ckpt_err *err)
{
    const unsigned char mine = ckpt_train_stop_wanted();
    if (training->ranks == NULL) {
        *stop = mine != 0;
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_ranks_allgather(training->ranks, &mine, training->vote, 1, err));
    *stop = memchr(training->vote, 1, (size_t)training->rank_count) != NULL;
    return CKPT_OK;
}

void ckpt_train_note_state(const ckpt_training *training, const char *path, uint64_t step)
{
    char note[256] = "no state was saved";
    if (training->ranks == NULL) {
        return;
    }
    if (path != NULL) {
        snprintf(note, sizeof note, "the last state is %.80s, of step %" PRIu64 ": go on with --resume %.80s", path,
                 step, path);
    }
    ckpt_ranks_note(training->ranks, note);
}

ckpt_code ckpt_train_collect_peaks(ckpt_training *training, ckpt_err *err)
{
    const ckpt_rank_peak mine = {training->plan->budget_bytes, training->plan->peak_bytes, ckpt_train_peak(training)};
    ckpt_rank_peak *const all = CKPT_NEW(&training->arena, ckpt_rank_peak, training->rank_count);
    if (all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the peaks of %d ranks", training->rank_count);
    }
    all[0] = mine;
    training->peak = all;
    return training->ranks == NULL ? CKPT_OK : ckpt_ranks_allgather(training->ranks, &mine, all, sizeof mine, err);
}

bool ckpt_train_peaks_hold(const ckpt_training *training)
{
    bool hold = true;
    for (int r = 0; training->done > 0 && r < training->rank_count; r++) {
        hold = hold && training->peak[r].measured == training->peak[r].planned;
    }
    return hold;
}
