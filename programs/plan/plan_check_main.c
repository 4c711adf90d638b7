/* ckpt-plan --check: would the options in a plan file make the same plan now, and does the plan still fit? Writes nothing. In CI it fails, with the reason, for a change that makes a plan worse or leaves an old plan in place. */
#include <stdio.h>
#include <string.h>

#include "planner/analysis/review.h"
#include "planner/replay/replay.h"
#include "programs/plan/plan_job_impl.h"

/* Options that shape a plan, and those that make it depend on chance or on other files. */
static const char *const repeatable[] = {
    "--budget",  "--reserve",   "--strategy",   "--effort", "--ignore-flags",  "--allow-inexact", "--reorder",
    "--profile", "--device",    "--set",        "--dtype",  "--threads",       "--link",          "--host-memory",
    "--keep",    "--offload",   "--checkpoint", "--policy", "--micro-batches", "--replicas",      "--pipeline-stages",
    "--stage",   "--optimizer", "--gradients",  "--shard",  "--tied",          "--overlap",       "--bucket",
    "--network", NULL,
};
static const char *const switches[] = {"--ignore-flags", "--allow-inexact", "--reorder", "--overlap", NULL};
static const char *const by_chance[] = {"--time-limit", "--start", "--maximize", NULL};

static bool is_one_of(const char *const *list, const char *word)
{
    while (*list != NULL && strcmp(*list, word) != 0) {
        list++;
    }
    return *list != NULL;
}

/* A new --policy replaces the old one: within policies the first clause that matches decides, not the last. */
static bool is_replaced(const ckpt_job *j, const char *option)
{
    bool replaced = false;
    for (int i = 0; i < j->request->asked.rule_count && strcmp(option, "--policy") == 0; i++) {
        replaced = replaced || j->request->asked.rule[i].kind == CKPT_RULE_POLICY;
    }
    return replaced;
}

/* The options of the plan that can be used again, then those of the command line, which overrule them. `word` has room for all. */
static ckpt_code merge(const ckpt_job *j, const ckpt_plan *plan, const char **unrepeatable, const char **word,
                       int *count, ckpt_err *err)
{
    const char *input = NULL;
    word[(*count)++] = j->cli->argv[0];
    for (int i = 0; i < plan->option_count;) {
        const char *const option = plan->option[i];
        const bool chance = is_one_of(by_chance, option);
        const bool known = chance || is_one_of(repeatable, option);
        const int words = known && !is_one_of(switches, option) ? 2 : 1;
        const bool file = !known && option[0] != '-' && i == plan->option_count - 1;
        if ((!known && !file) || i + words > plan->option_count) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%.100s: \"options\": found \"%.60s\", wanted options of ckpt-plan that make a plan, "
                             "and last the file it is made of",
                             plan->source, option);
        }
        input = file ? option : input;
        *unrepeatable = chance ? option : *unrepeatable;
        const bool again = !chance && !file && !is_replaced(j, option);
        for (int k = 0; k < words && again; k++) {
            word[(*count)++] = plan->option[i + k];
        }
        i += words;
    }
    input = j->request->input != NULL ? NULL : input;
    if (input == NULL && j->request->input == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.100s does not say what it was made of: name the model or graph too",
                         plan->source);
    }
    for (int i = 1; i < j->cli->argc; i++) {
        word[(*count)++] = j->cli->argv[i];
    }
    if (input != NULL) {
        word[(*count)++] = input;
    }
    return CKPT_OK;
}

/* The command line that makes the plan. */
static ckpt_code read_plan(ckpt_job *j, ckpt_plan **plan, const char **unrepeatable, ckpt_cli *cli, ckpt_err *err)
{
    CKPT_TRY(ckpt_plan_read(j->request->check, j->out, plan, err));
    if ((*plan)->option_count == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%.100s: found no \"options\", with which it was made: have this ckpt-plan write it again",
                         (*plan)->source);
    }
    const char **const word = CKPT_NEW(j->out, const char *, (*plan)->option_count + j->cli->argc + 2);
    if (word == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "options of a plan");
    }
    *cli = *j->cli;
    cli->argc = cli->next = 0;
    cli->operands_only = false;
    CKPT_TRY(merge(j, *plan, unrepeatable, word, &cli->argc, err));
    cli->argv = (char *const *)(uintptr_t)word; /* nobody writes to them */
    return CKPT_OK;
}

/* The plan that would be made now. If the options leave it to chance: the steps of the file, for the current graph. */
static ckpt_code plan_again(ckpt_job *j, const ckpt_review *review, ckpt_plan **now, ckpt_err *err)
{
    if (review->unrepeatable == NULL) {
        CKPT_TRY(
            ckpt_plan_make(j->planning.source.graph, j->planning.strategy, &j->planning.options, j->out, now, err));
        if (ckpt_plan_stopped(&j->planning.options)) {
            return CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted before all was planned again");
        }
        ckpt_planning_stamp(&j->planning, *now);
    } else {
        *now = CKPT_NEW(j->out, ckpt_plan, 1);
        if (*now == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "plan");
        }
        **now = *review->was;
        (*now)->budget_bytes =
            j->planning.options.budget_bytes > 0 ? j->planning.options.budget_bytes : review->was->budget_bytes;
        CKPT_TRY(ckpt_graph_digest(j->planning.source.graph, (*now)->graph_sha256, err));
    }
    return ckpt_job_record(j, j->request, false, *now, err);
}

/* Checks the steps of the file on the current graph and budget, as ckpt-train does. */
static ckpt_code try_steps(const ckpt_job *j, ckpt_review *review, ckpt_err *err)
{
    ckpt_plan plan = *review->was;
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    if (plan.verdict != CKPT_FITS || review->changes.other_graph) {
        review->why = "it has no steps: no plan was found within its budget";
        return CKPT_OK;
    }
    const ckpt_bytes taken = plan.static_bytes + plan.arena_bytes;
    if (j->planning.options.budget_bytes > 0 && taken > j->planning.options.budget_bytes) {
        review->why = ckpt_arena_format(j->out, "it takes %s, %s more than the budget", ckpt_bytes_show(taken, a),
                                        ckpt_bytes_show(taken - j->planning.options.budget_bytes, b));
        return review->why != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of a check");
    }
    ckpt_err broken = {0};
    ckpt_code code = ckpt_plan_bind(&plan, j->planning.source.graph, &broken);
    code = code == CKPT_OK ? ckpt_plan_check_run(&plan, j->planning.source.graph, &broken) : code;
    review->fits = code == CKPT_OK;
    if (code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW) {
        review->why = ckpt_arena_text(j->out, broken.msg);
        code = review->why != NULL ? CKPT_OK : CKPT_FAIL(&broken, CKPT_NO_MEMORY, "text of a check");
    }
    if (code != CKPT_OK) {
        *err = broken;
    }
    return code;
}

/* The command that writes the new plan. */
static ckpt_code find_command(const ckpt_job *j, ckpt_review *review, ckpt_err *err)
{
    const ckpt_plan *const now = review->now;
    if (review->unrepeatable != NULL || now->verdict != CKPT_FITS || review->changes.same) {
        return CKPT_OK;
    }
    const char **const word = CKPT_NEW(j->out, const char *, now->option_count + 3);
    if (word == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "words of a command");
    }
    word[0] = "ckpt-plan";
    word[1] = "-o";
    word[2] = j->request->check;
    memcpy(&word[3], now->option, (size_t)now->option_count * sizeof *word);
    review->command = word;
    review->command_count = now->option_count + 3;
    return CKPT_OK;
}

ckpt_code ckpt_answer_check(ckpt_job *j, ckpt_err *err)
{
    ckpt_plan *was = NULL;
    ckpt_plan *now = NULL;
    ckpt_cli cli;
    ckpt_request *const request = CKPT_NEW(j->out, ckpt_request, 1);
    ckpt_review review = {.why = ""};
    if (request == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "request");
    }
    CKPT_TRY(read_plan(j, &was, &review.unrepeatable, &cli, err));
    review.was = was;
    j->usage = ckpt_request_read(&cli, request);
    if (j->usage >= 0) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_request_check_asked(request, err));
    j->request = request;
    CKPT_TRY(ckpt_job_options(j, err));
    CKPT_TRY_WHILE(err, ckpt_job_begin(j, err), "making %.80s again", was->source);
    CKPT_TRY(plan_again(j, &review, &now, err));
    review.now = now;
    CKPT_TRY(ckpt_plan_compare(was, now, j->out, &review.changes, err));
    CKPT_TRY(try_steps(j, &review, err));
    CKPT_TRY(find_command(j, &review, err));
    j->found = ckpt_review_is_good(&review);
    (request->json ? ckpt_review_json : ckpt_review_text)(&review, &j->text);
    return CKPT_OK;
}
