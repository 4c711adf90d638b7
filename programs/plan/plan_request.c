/* Reads the command line of ckpt-plan. */
#include "programs/plan/plan_request_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "libckpt/scheme_options.h"
#include "planner/api/planner.h"

enum { POINTS_MAX = 10000 };

#define ROW(name, letter, argument, help, take, field) {name, letter, argument, help},
/* clang-format off */
const ckpt_cli_option ckpt_request_options[] = {
    CKPT_BUDGET_OPTIONS(ROW)
    {"output", 'o', "FILE",
     "write the plan, or the curve of --sweep as .csv or .json (for ckpt-view); - is stdout"},
    CKPT_MODEL_OPTIONS(ROW)
    CKPT_SCHEME_OPTIONS(ROW)
    CKPT_LINK_OPTIONS(ROW)
    {"sweep", 0, "N", "plan at N budgets, from the minimum to --budget or keep-all's peak"},
    {"baselines", 0, NULL, "with --sweep: also what people do without a planner, at the same budgets"},
    {"check", 0, "FILE", "check the plan FILE: would its options, and those given, make the same plan now?"},
    {"maximize", 0, "VAR",
     "find the largest value of VAR that fits; throughput[:VAR]: the most VAR (batch) per second"},
    {"max-overhead", 0, "PERCENT", "with --maximize: the step may take that much longer than keep-all, e.g. 20%"},
    {"explain", 0, NULL, "show per layer the bytes kept and the time recomputed, and what more budget would buy"},
    {"compare-strategies", 0, NULL, "show all strategies and baselines at the budget in a table"},
    {"pack", 0, "FILE", "place the buffers of a CSV file with columns id, lower, upper, size; no plan is made"},
    {"capacity", 0, "SIZE", "with --pack: bytes available, or a percentage of the largest live set (100%)"},
    {"trace", 0, "FILE", "write the predicted trace; - is stdout"},
    {"json", 0, NULL, "print the result as JSON"},
    {"list-strategies", 0, NULL, "print the strategies and exit"},
    {NULL, 0, NULL, NULL},
};
/* clang-format on */
#undef ROW

/* The option that works on one graph only; NULL: none was given. */
static const char *for_one(const ckpt_request *r)
{
    static const char *const question[] = {
        [CKPT_ASK_SWEEP] = "--sweep",         [CKPT_ASK_MAXIMUM] = "--maximize",
        [CKPT_ASK_EXPLANATION] = "--explain", [CKPT_ASK_COMPARISON] = "--compare-strategies",
        [CKPT_ASK_CHECK] = "--check",         [CKPT_ASK_STRATEGIES] = NULL,
    };
    return question[r->question] != NULL ? question[r->question]
           : r->asked.start.name != NULL ? "--start"
           : ckpt_on_stdout(r->output)   ? "-o -"
           : ckpt_on_stdout(r->trace)    ? "--trace -"
                                         : NULL;
}

ckpt_code ckpt_request_check_asked(const ckpt_request *r, ckpt_err *err)
{
    CKPT_TRY(ckpt_options_check(&r->asked, err));
    const char *const one = ckpt_options_staged(&r->asked) ? for_one(r) : NULL;
    return one == NULL ? CKPT_OK
                       : CKPT_FAIL(err, CKPT_BAD_INPUT,
                                   "%s is for one graph, and there are %d stages: name one by "
                                   "--stage K",
                                   one, r->asked.scheme.stages);
}

/* -1: not an option that asks a question; 0: it is; else the exit code. */
static int take_question(const ckpt_cli *cli, ckpt_request *r, const char *name, const char *value)
{
    static const struct {
        const char *name;
        ckpt_question question;
    } table[] = {{"sweep", CKPT_ASK_SWEEP},         {"maximize", CKPT_ASK_MAXIMUM},
                 {"explain", CKPT_ASK_EXPLANATION}, {"compare-strategies", CKPT_ASK_COMPARISON},
                 {"pack", CKPT_ASK_PACKING},        {"list-strategies", CKPT_ASK_STRATEGIES},
                 {"check", CKPT_ASK_CHECK}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(name, table[i].name) == 0) {
            if (r->question != CKPT_ASK_PLAN && r->question != table[i].question) {
                return ckpt_cli_usage(cli,
                                      "wanted one of --sweep, --maximize, --explain, --compare-strategies, --check, "
                                      "--pack and --list-strategies");
            }
            r->question = table[i].question;
            r->pack = r->question == CKPT_ASK_PACKING ? value : r->pack;
            r->check = r->question == CKPT_ASK_CHECK ? value : r->check;
            if (r->question == CKPT_ASK_MAXIMUM) {
                r->throughput = strcmp(value, "throughput") == 0 || strncmp(value, "throughput:", 11) == 0;
                r->variable = !r->throughput ? value : value[10] == ':' ? value + 11 : "batch";
                if (r->variable[0] == '\0') {
                    return ckpt_cli_usage(cli, "found --maximize '%s', wanted a variable of the model", value);
                }
            }
            return 0;
        }
    }
    return -1;
}

/* A number >= 0 with `unit` behind it. */
static bool real_number(const char *text, const char *unit, double *number)
{
    const char *end = NULL;
    *number = ckpt_real_parse(text, &end);
    return end != text && strcmp(end, unit) == 0 && *number >= 0 && *number < 1e9;
}

/* -1: go on; else the exit code. */
static int take_number(const ckpt_cli *cli, ckpt_request *r, const char *name, const char *value)
{
    if (strcmp(name, "sweep") == 0 && !ckpt_int_parse(value, 1, POINTS_MAX, &r->points)) {
        return ckpt_cli_usage(cli, "found --sweep '%s', wanted 1 to %d budgets", value, POINTS_MAX);
    }
    if (strcmp(name, "max-overhead") == 0) {
        if (!real_number(value, "%", &r->max_overhead)) {
            return ckpt_cli_usage(cli, "found --max-overhead '%s', wanted a percentage such as 20%%", value);
        }
        r->max_overhead /= 100;
    }
    return -1;
}

bool ckpt_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    return length > strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

bool ckpt_on_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* --pack has nothing to do with a model. */
static int check_pack(const ckpt_cli *cli, const ckpt_request *r)
{
    if (r->input != NULL) {
        return ckpt_cli_usage(cli, "found '%s' beside --pack '%s', wanted one file", r->input, r->pack);
    }
    if (r->asked.budget != NULL || r->asked.strategy != NULL || r->asked.start.name != NULL ||
        r->asked.profile.name != NULL || r->asked.device.name != NULL || r->trace != NULL || r->asked.dtype != NULL ||
        r->asked.optimizer != NULL || r->asked.reserve != NULL || r->asked.link != NULL ||
        r->asked.host_memory != NULL || r->asked.set_count > 0 || r->asked.rule_count > 0 || r->asked.threads > 0 ||
        r->max_overhead >= 0 || r->json || r->asked.ignore_flags || r->asked.allow_inexact || r->asked.reorder ||
        r->asked.scheme_option != NULL) {
        return ckpt_cli_usage(cli, "with --pack go --capacity, -o, --effort and --time-limit only");
    }
    return -1;
}

/* Refuses two results on standard output, and results that would be written nowhere. */
static int check_output(const ckpt_cli *cli, const ckpt_request *r)
{
    const bool plan_there = ckpt_on_stdout(r->output) || ckpt_on_stdout(r->trace);
    if (r->question == CKPT_ASK_SWEEP) {
        const bool file = r->output != NULL && !ckpt_on_stdout(r->output);
        if (file && !ckpt_ends_with(r->output, ".csv") && !ckpt_ends_with(r->output, ".json")) {
            return ckpt_cli_usage(cli,
                                  "found -o '%s', wanted a name that ends in .csv or .json; for a picture write "
                                  "sweep.json and draw that: ckpt-view sweep.json -o sweep.svg",
                                  r->output);
        }
        return file && r->json ? ckpt_cli_usage(cli, "found --json and -o '%s', wanted one of them", r->output) : -1;
    }
    if (plan_there && (r->question == CKPT_ASK_EXPLANATION || r->question == CKPT_ASK_MAXIMUM)) {
        return ckpt_cli_usage(cli, "--explain and --maximize answer on standard output: -o and --trace want a file");
    }
    return ckpt_on_stdout(r->output) + ckpt_on_stdout(r->trace) + r->json > 1
               ? ckpt_cli_usage(cli, "only one of -o -, --trace - and --json can have standard output")
               : -1;
}

/* --check writes nothing, and needs a plan that is the same every time. */
static int check_check(const ckpt_cli *cli, const ckpt_request *r)
{
    if (r->output != NULL || r->trace != NULL) {
        return ckpt_cli_usage(cli, "--check writes no file: leave -o and --trace out");
    }
    if (r->asked.start.name != NULL || r->asked.time_limit > 0) {
        return ckpt_cli_usage(cli, "--check wants what comes out the same every time: leave --start and --time-limit "
                                   "out");
    }
    return -1;
}

/* Refuses options that do not go together. */
static int check_request(const ckpt_cli *cli, const ckpt_request *r)
{
    ckpt_err err = {0};
    if (r->question == CKPT_ASK_PACKING) {
        return check_pack(cli, r);
    }
    if (r->question != CKPT_ASK_CHECK &&
        ckpt_request_check_asked(r, &err) != CKPT_OK) { /* the plan's own options may complete it */
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    if (r->capacity != NULL) {
        return ckpt_cli_usage(cli, "--capacity is for --pack; a plan has a --budget");
    }
    if (r->input == NULL && r->question != CKPT_ASK_CHECK) { /* the plan's own options may name it */
        return ckpt_cli_usage(cli, "wanted a model or graph file");
    }
    if (r->max_overhead >= 0 && r->question != CKPT_ASK_MAXIMUM) {
        return ckpt_cli_usage(cli, "--max-overhead is for --maximize");
    }
    if (r->baselines && r->question != CKPT_ASK_SWEEP) {
        return ckpt_cli_usage(cli, "--baselines is for --sweep; at one budget they are in --compare-strategies");
    }
    if (r->question == CKPT_ASK_MAXIMUM && r->asked.budget == NULL) {
        return ckpt_cli_usage(cli, "--maximize wants a --budget");
    }
    if (r->question == CKPT_ASK_MAXIMUM && r->asked.profile.name != NULL) {
        return ckpt_cli_usage(cli, "a profile is of one model, --maximize plans others: leave --profile out");
    }
    if (r->question == CKPT_ASK_COMPARISON &&
        (r->output != NULL || r->asked.strategy != NULL || r->asked.start.name != NULL)) {
        return ckpt_cli_usage(cli, "--compare-strategies makes many plans: -o, --strategy and --start are for one");
    }
    if ((r->question == CKPT_ASK_COMPARISON || r->question == CKPT_ASK_SWEEP) && r->trace != NULL) {
        return ckpt_cli_usage(cli, "--trace is for one plan");
    }
    if ((r->question == CKPT_ASK_MAXIMUM || r->question == CKPT_ASK_SWEEP) && r->asked.start.name != NULL) {
        return ckpt_cli_usage(cli, "--start is for one plan of one graph");
    }
    return r->question == CKPT_ASK_CHECK ? check_check(cli, r) : check_output(cli, r);
}

/* What is neither a plan's option nor a number or a question. */
static void take_rest(ckpt_request *r, const char *name, const char *value)
{
    const char **const text = strcmp(name, "output") == 0     ? &r->output
                              : strcmp(name, "trace") == 0    ? &r->trace
                              : strcmp(name, "capacity") == 0 ? &r->capacity
                                                              : NULL;
    if (text != NULL) {
        *text = value;
    }
    r->json = r->json || strcmp(name, "json") == 0;
    r->baselines = r->baselines || strcmp(name, "baselines") == 0;
}

int ckpt_request_read(ckpt_cli *cli, ckpt_request *r)
{
    const char *name = NULL;
    const char *value = NULL;
    int more = 0;
    *r = (ckpt_request){.max_overhead = -1};
    ckpt_options_init(&r->asked);
    while ((more = ckpt_cli_next(cli, &name, &value)) == 1) {
        ckpt_err err = {0};
        bool taken = false;
        if (name[0] == '\0') {
            if (r->input != NULL) {
                return ckpt_cli_usage(cli, "found two files, '%s' and '%s', wanted one", r->input, value);
            }
            r->input = value;
            continue;
        }
        if (ckpt_options_take(&r->asked, name, value, &taken, &err) != CKPT_OK) {
            return ckpt_cli_usage(cli, "%s", err.msg);
        }
        const int number = taken ? 0 : take_number(cli, r, name, value);
        const int question = number < 0 ? take_question(cli, r, name, value) : number;
        if (question > 0) {
            return question;
        }
        take_rest(r, name, value);
    }
    if (more < 0) {
        return more == -1 ? 0 : 2;
    }
    return r->question == CKPT_ASK_STRATEGIES ? -1 : check_request(cli, r);
}
