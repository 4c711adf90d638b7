/* Reads the command line of ckpt-plan. */
#include "programs/plan/plan_request_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/formats/machine.h"
#include "planner/api/planner.h"

enum { POINTS_MAX = 10000 };

const ckpt_cli_option ckpt_request_options[] = {
    {"budget", 'b', "SIZE",
     "all the step may hold on the device: 6GB, 5.5GiB, 80% of keep-all's peak (no limit); of pipeline stages each, or "
     "6GB,5GB,..."},
    {"reserve", 0, "SIZE", "of --budget: kept for what is neither static nor arena, a GPU's context and libraries (0)"},
    {"output", 'o', "FILE",
     "write the plan, or the curve of --sweep as .csv or .json (which ckpt-view draws); - is stdout"},
    {"strategy", 's', "NAME", "one strategy alone, see --list-strategies (auto: the fastest of all that fit)"},
    {"effort", 'e', "0..3", "how hard to look; for 500 ops 1 takes up to a second, 2 ten, 3 a minute (1)"},
    {"time-limit", 0, "SECONDS", "end with the best plan so far, which then depends on the machine's speed"},
    {"checkpoint", 0, "PATTERN",
     "recompute each layer or block of that name as a unit: 'h.*', 'h.[0-5].mlp'; repeatable"},
    {"keep", 0, "PATTERN", "never recompute the layers of that name, or in blocks of that name; repeatable"},
    {"offload", 0, "PATTERN", "take what they keep to the host and back; needs a link; repeatable"},
    {"policy", 0, "OP=WHAT,...",
     "by kind of op: linear=save,*=prefer-recompute; WHAT: [must-|prefer-]save, "
     "[must-|prefer-]recompute, offload"},
    {"ignore-flags", 0, NULL, "forget the checkpoint and offload flags of the model; they are obeyed otherwise"},
    {"start", 0, "FILE", "a plan of the same graph to begin with: where it fits, the answer is no slower"},
    {"profile", 'p', "FILE", "measured times and workspaces, from ckpt-profile"},
    {"device", 'd', "NAME", "device whose roofline gives what no profile does, or its JSON file (cpu)"},
    {"set", 0, "VAR=N", "override a variable of the model; may be repeated"},
    {"dtype", 0, "TYPE", "of the model's activations: float32 or bfloat16 (as the model says)"},
    {"threads", 't', "N", "threads of the CPU's kernels (as in the profile, else all processors; a GPU has none)"},
    CKPT_SCHEME_OPTIONS,
    {"link", 0, "RATE", "offload to the host: 50GB/s, or 50GB/s,25GB/s there and back (as measured)"},
    {"host-memory", 0, "SIZE", "room on the host for what is offloaded (no limit)"},
    {"sweep", 0, "N", "time over N budgets, from the least that can be met to --budget or keep-all's peak"},
    {"baselines", 0, NULL, "of --sweep: what people do without a planner too, at the same budgets"},
    {"check", 0, "FILE", "plan nothing new: whether that plan is what its options, and those given, would make now"},
    {"maximize", 0, "VAR", "the largest value of VAR that fits; throughput[:VAR]: the most VAR (batch) per second"},
    {"max-overhead", 0, "PERCENT", "of --maximize: the step takes at most that much longer than keep-all, e.g. 20%"},
    {"explain", 0, NULL, "per layer: bytes kept, time recomputed; and what more budget would buy"},
    {"compare-strategies", 0, NULL, "all strategies and baselines at the budget, in a table"},
    {"pack", 0, "FILE", "no plan: offsets for the buffers of a CSV file with columns id, lower, upper, size"},
    {"capacity", 0, "SIZE", "of --pack: bytes there are, or a share of the most that is ever live (100%)"},
    {"trace", 0, "FILE", "write the predicted trace; - is stdout"},
    {"json", 0, NULL, "print the answer as JSON"},
    {"list-strategies", 0, NULL, "print the strategies and exit"},
    {NULL, 0, NULL, NULL},
};

static const char *const rule_options[] = {"--checkpoint", "--keep", "--offload", "--policy"}; /* by ckpt_rule_kind */

/* -1: not a rule; 0: it is; else the exit code. */
static int take_rule(const ckpt_cli *cli, ckpt_request *r, const char *name, const char *value)
{
    for (int kind = CKPT_RULE_CHECKPOINT; kind <= CKPT_RULE_POLICY; kind++) {
        if (strcmp(name, rule_options[kind] + 2) == 0) {
            if (r->rule_count == CKPT_RULES_MAX) {
                return ckpt_cli_usage(cli, "found more than %d --checkpoint, --keep, --offload and --policy",
                                      CKPT_RULES_MAX);
            }
            r->rule[r->rule_count++] = (ckpt_rule){(ckpt_rule_kind)kind, value};
            return 0;
        }
    }
    return -1;
}

/* -1: not of the scheme; 0: it is; else the exit code. */
static int take_scheme(const ckpt_cli *cli, ckpt_request *r, const char *name, const char *value)
{
    ckpt_err err = {0};
    bool taken = false;
    if (ckpt_scheme_take(&r->scheme, name, value, &taken, &r->stage_given, &err) != CKPT_OK) {
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    r->scheme_option = taken && r->scheme_option == NULL ? name : r->scheme_option;
    return taken ? 0 : -1;
}

bool ckpt_request_is_staged(const ckpt_request *r)
{
    return r->scheme.stages > 1 && !r->stage_given;
}

/* What is asked of one graph, and that is not said; NULL: nothing. */
static const char *for_one(const ckpt_request *r)
{
    static const char *const question[] = {
        [CKPT_ASK_SWEEP] = "--sweep",         [CKPT_ASK_MAXIMUM] = "--maximize",
        [CKPT_ASK_EXPLANATION] = "--explain", [CKPT_ASK_COMPARISON] = "--compare-strategies",
        [CKPT_ASK_CHECK] = "--check",         [CKPT_ASK_STRATEGIES] = NULL,
    };
    return question[r->question] != NULL ? question[r->question]
           : r->start != NULL            ? "--start"
           : ckpt_on_stdout(r->output)   ? "-o -"
           : ckpt_on_stdout(r->trace)    ? "--trace -"
                                         : NULL;
}

ckpt_code ckpt_request_check_scheme(const ckpt_request *r, ckpt_err *err)
{
    if (r->stage_given && r->scheme.stages == 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--stage is one of --pipeline-stages N, and there are none");
    }
    CKPT_TRY(ckpt_scheme_check(&r->scheme, err));
    if (r->scheme.replicas == 1 && r->scheme.bucket_bytes != ckpt_scheme_alone.bucket_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--bucket is of gradients that data-parallel ranks exchange, and there is one: add "
                         "--replicas N");
    }
    if (ckpt_scheme_ranks(&r->scheme) == 1 && r->scheme.network_bytes_per_s != ckpt_scheme_alone.network_bytes_per_s) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--network is between ranks, and there is one: add --replicas N or --pipeline-stages N");
    }
    const char *const one = ckpt_request_is_staged(r) ? for_one(r) : NULL;
    return one == NULL ? CKPT_OK
                       : CKPT_FAIL(err, CKPT_BAD_INPUT,
                                   "%s is for one graph, and there are %d stages: name one by "
                                   "--stage K",
                                   one, r->scheme.stages);
}

/* Options that only keep their text. */
static void take_text(ckpt_request *r, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **to;
    } text[] = {{"budget", &r->budget},     {"output", &r->output},   {"strategy", &r->strategy},
                {"start", &r->start},       {"profile", &r->profile}, {"device", &r->device},
                {"trace", &r->trace},       {"link", &r->link},       {"host-memory", &r->host_memory},
                {"capacity", &r->capacity}, {"dtype", &r->dtype},     {"reserve", &r->reserve}};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        if (strcmp(name, text[i].name) == 0) {
            *text[i].to = value;
        }
    }
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

static bool whole_number(const char *text, long low, long high, int *number)
{
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    *number = (int)value;
    return end != text && *end == '\0' && value >= low && value <= high;
}

/* A number >= 0 with `unit` behind it. */
static bool real_number(const char *text, const char *unit, double *number)
{
    char *end = NULL;
    *number = strtod(text, &end);
    return end != text && strcmp(end, unit) == 0 && *number >= 0 && *number < 1e9;
}

/* -1: go on; else the exit code. */
static int take_number(const ckpt_cli *cli, ckpt_request *r, const char *name, const char *value)
{
    if (strcmp(name, "threads") == 0 && !whole_number(value, 1, CKPT_THREADS_MAX, &r->threads)) {
        return ckpt_cli_usage(cli, "found --threads '%s', wanted 1 to %d", value, CKPT_THREADS_MAX);
    }
    if (strcmp(name, "effort") == 0 && !whole_number(value, CKPT_EFFORT_LOW, CKPT_EFFORT_MOST, &r->effort)) {
        return ckpt_cli_usage(cli, "found --effort '%s', wanted %d to %d", value, CKPT_EFFORT_LOW, CKPT_EFFORT_MOST);
    }
    if (strcmp(name, "sweep") == 0 && !whole_number(value, 1, POINTS_MAX, &r->points)) {
        return ckpt_cli_usage(cli, "found --sweep '%s', wanted 1 to %d budgets", value, POINTS_MAX);
    }
    if (strcmp(name, "time-limit") == 0 && (!real_number(value, "", &r->time_limit) || r->time_limit <= 0)) {
        return ckpt_cli_usage(cli, "found --time-limit '%s', wanted seconds, more than 0", value);
    }
    if (strcmp(name, "max-overhead") == 0) {
        if (!real_number(value, "%", &r->max_overhead)) {
            return ckpt_cli_usage(cli, "found --max-overhead '%s', wanted a percentage such as 20%%", value);
        }
        r->max_overhead /= 100;
    }
    return -1;
}

enum { WORDS_MAX = 2 * (32 + CKPT_SETS_MAX + CKPT_RULES_MAX) + 2 };

typedef struct words {
    const char **word;
    int count;
    bool failed; /* no memory for one of them */
} words;

/* "--name value"; `value` NULL: not given. */
static void add_words(words *w, const char *name, const char *value)
{
    if (value != NULL) {
        w->word[w->count++] = name;
        w->word[w->count++] = value;
    }
}

static void add_formatted(words *w, const char *name, const char *value)
{
    w->failed = w->failed || value == NULL;
    add_words(w, name, value);
}

static void add_count(words *w, const char *name, int64_t count, int64_t usual, ckpt_arena *out)
{
    if (count != usual) {
        add_formatted(w, name, ckpt_arena_format(out, "%lld", (long long)count));
    }
}

static void add_scheme(words *w, const ckpt_scheme *scheme, ckpt_arena *out)
{
    const ckpt_scheme *const usual = &ckpt_scheme_alone;
    add_count(w, "--micro-batches", scheme->micro_batches, usual->micro_batches, out);
    add_count(w, "--replicas", scheme->replicas, usual->replicas, out);
    add_count(w, "--pipeline-stages", scheme->stages, usual->stages, out);
    add_count(w, "--stage", scheme->stages > 1 ? scheme->stage : -1, -1, out);
    add_words(w, "--gradients", scheme->fused ? "fused" : NULL);
    add_words(w, "--tied", scheme->apart ? "apart" : NULL);
    add_words(w, "--shard", scheme->shard_optimizer ? "optimizer" : NULL);
    if (scheme->overlap) {
        w->word[w->count++] = "--overlap";
    }
    add_count(w, "--bucket", scheme->bucket_bytes, usual->bucket_bytes, out);
    if (scheme->network_bytes_per_s != usual->network_bytes_per_s) {
        add_formatted(w, "--network", ckpt_arena_format(out, "%lldB/s", (long long)scheme->network_bytes_per_s));
    }
}

ckpt_code ckpt_request_words(const ckpt_request *r, ckpt_arena *out, const char *const **list, int *count,
                             ckpt_err *err)
{
    words w = {.word = CKPT_NEW(out, const char *, WORDS_MAX)};
    if (w.word == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "options of a plan");
    }
    add_words(&w, "--budget", r->budget);
    add_words(&w, "--reserve", r->reserve);
    add_words(&w, "--strategy", r->strategy);
    if (r->effort != CKPT_EFFORT_NORMAL) {
        add_formatted(&w, "--effort", ckpt_arena_format(out, "%d", r->effort));
    }
    if (r->time_limit > 0) {
        add_formatted(&w, "--time-limit", ckpt_arena_format(out, "%.6g", r->time_limit));
    }
    for (int i = 0; i < r->rule_count; i++) {
        add_words(&w, rule_options[r->rule[i].kind], r->rule[i].text);
    }
    if (r->ignore_flags) {
        w.word[w.count++] = "--ignore-flags";
    }
    add_words(&w, "--start", r->start);
    add_words(&w, "--profile", r->profile);
    add_words(&w, "--device", r->device);
    add_words(&w, "--maximize", r->question == CKPT_ASK_MAXIMUM ? r->variable : NULL);
    for (int i = 0; i < r->set_count; i++) {
        add_words(&w, "--set", r->set[i]);
    }
    add_words(&w, "--dtype", r->dtype);
    if (r->threads > 0) {
        add_formatted(&w, "--threads", ckpt_arena_format(out, "%d", r->threads));
    }
    add_scheme(&w, &r->scheme, out);
    add_words(&w, "--link", r->link);
    add_words(&w, "--host-memory", r->host_memory);
    if (r->input != NULL && !ckpt_on_stdout(r->input)) { /* what came through a pipe is gone */
        const char *const input =
            r->input[0] == '-' ? ckpt_arena_format(out, "./%s", r->input) : ckpt_arena_text(out, r->input);
        w.failed = w.failed || input == NULL;
        w.word[w.count++] = input;
    }
    *list = w.word;
    *count = w.count;
    return !w.failed ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "options of a plan");
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
    if (r->budget != NULL || r->strategy != NULL || r->start != NULL || r->profile != NULL || r->device != NULL ||
        r->trace != NULL || r->dtype != NULL || r->reserve != NULL || r->link != NULL || r->host_memory != NULL ||
        r->set_count > 0 || r->rule_count > 0 || r->threads > 0 || r->max_overhead >= 0 || r->json || r->ignore_flags ||
        r->scheme_option != NULL) {
        return ckpt_cli_usage(cli, "with --pack go --capacity, -o, --effort and --time-limit only");
    }
    return -1;
}

/* What would have to share standard output, or would be written nowhere. */
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

/* --check writes nothing, and what it asks for must come out the same every time. */
static int check_check(const ckpt_cli *cli, const ckpt_request *r)
{
    if (r->output != NULL || r->trace != NULL) {
        return ckpt_cli_usage(cli, "--check writes no file: leave -o and --trace out");
    }
    if (r->start != NULL || r->time_limit > 0) {
        return ckpt_cli_usage(cli, "--check wants what comes out the same every time: leave --start and --time-limit "
                                   "out");
    }
    return -1;
}

/* What does not go together. */
static int check_request(const ckpt_cli *cli, const ckpt_request *r)
{
    ckpt_err err = {0};
    if (r->question == CKPT_ASK_PACKING) {
        return check_pack(cli, r);
    }
    if (r->question != CKPT_ASK_CHECK && ckpt_request_check_scheme(r, &err) != CKPT_OK) { /* a plan may say the rest */
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    if (r->capacity != NULL) {
        return ckpt_cli_usage(cli, "--capacity is for --pack; a plan has a --budget");
    }
    if (r->input == NULL && r->question != CKPT_ASK_CHECK) { /* a plan may say what it was made of */
        return ckpt_cli_usage(cli, "wanted a model or graph file");
    }
    if (r->ignore_flags && r->rule_count == 0 && r->strategy != NULL && strcmp(r->strategy, "flags") == 0) {
        return ckpt_cli_usage(cli, "found --strategy flags and --ignore-flags, wanted one of them");
    }
    if (r->reserve != NULL && r->budget == NULL && r->question != CKPT_ASK_CHECK) {
        return ckpt_cli_usage(cli, "--reserve is kept of a --budget, and none is given");
    }
    if (r->max_overhead >= 0 && r->question != CKPT_ASK_MAXIMUM) {
        return ckpt_cli_usage(cli, "--max-overhead is for --maximize");
    }
    if (r->baselines && r->question != CKPT_ASK_SWEEP) {
        return ckpt_cli_usage(cli, "--baselines is for --sweep; at one budget they are in --compare-strategies");
    }
    if (r->question == CKPT_ASK_MAXIMUM && r->budget == NULL) {
        return ckpt_cli_usage(cli, "--maximize wants a --budget");
    }
    if (r->question == CKPT_ASK_MAXIMUM && r->profile != NULL) {
        return ckpt_cli_usage(cli, "a profile is of one model, --maximize plans others: leave --profile out");
    }
    if (r->question == CKPT_ASK_COMPARISON && (r->output != NULL || r->strategy != NULL || r->start != NULL)) {
        return ckpt_cli_usage(cli, "--compare-strategies makes many plans: -o, --strategy and --start are for one");
    }
    if ((r->question == CKPT_ASK_COMPARISON || r->question == CKPT_ASK_SWEEP) && r->trace != NULL) {
        return ckpt_cli_usage(cli, "--trace is for one plan");
    }
    if ((r->question == CKPT_ASK_MAXIMUM || r->question == CKPT_ASK_SWEEP) && r->start != NULL) {
        return ckpt_cli_usage(cli, "--start is for one plan of one graph");
    }
    return r->question == CKPT_ASK_CHECK ? check_check(cli, r) : check_output(cli, r);
}

int ckpt_request_read(ckpt_cli *cli, ckpt_request *r)
{
    const char *name = NULL;
    const char *value = NULL;
    int more = 0;
    *r = (ckpt_request){.effort = CKPT_EFFORT_NORMAL, .max_overhead = -1, .scheme = ckpt_scheme_alone};
    while ((more = ckpt_cli_next(cli, &name, &value)) == 1) {
        const int number = take_number(cli, r, name, value);
        const int question = number < 0 ? take_question(cli, r, name, value) : number;
        const int rule = question < 0 ? take_rule(cli, r, name, value) : question;
        const int scheme = rule < 0 ? take_scheme(cli, r, name, value) : rule;
        if (scheme > 0) {
            return scheme;
        }
        if (strcmp(name, "json") == 0) {
            r->json = true;
        } else if (strcmp(name, "ignore-flags") == 0) {
            r->ignore_flags = true;
        } else if (strcmp(name, "baselines") == 0) {
            r->baselines = true;
        } else if (strcmp(name, "set") == 0) {
            if (r->set_count == CKPT_SETS_MAX) {
                return ckpt_cli_usage(cli, "found more than %d --set", CKPT_SETS_MAX);
            }
            r->set[r->set_count++] = value;
        } else if (name[0] == '\0') {
            if (r->input != NULL) {
                return ckpt_cli_usage(cli, "found two files, '%s' and '%s', wanted one", r->input, value);
            }
            r->input = value;
        } else {
            take_text(r, name, value);
        }
    }
    if (more < 0) {
        return more == -1 ? 0 : 2;
    }
    return r->question == CKPT_ASK_STRATEGIES ? -1 : check_request(cli, r);
}
