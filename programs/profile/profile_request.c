/* The command line of ckpt-profile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "programs/profile/profile_request_impl.h"

const ckpt_cli_option ckpt_profile_option_table[] = {
    {"output", 'o', "FILE", "file to write; - is standard output (default: -, and ckpt-trace.json for a COMMAND)"},
    {"device", 0, "NAME", "cpu (default) or cuda:0"},
    {"repeats", 'r', "N", "timed runs of each direction, 3 to 1000 (default 15, and up to 1000 in 5 ms)"},
    {"seconds", 0, "S", "stop repeating a direction of a layer after S seconds (default 0.4)"},
    {"threads", 't', "N", "threads of the CPU's kernels (default: online processors)"},
    {"set", 0, "VAR=N", "override a variable of the model"},
    {"dtype", 0, "float32|bfloat16", "replace the model's dtype; bfloat16 needs a GPU"},
    {"warm", 0, NULL, "do not flush a GPU's cache between runs"},
    {"no-tune", 0, NULL, "take the first algorithm that a GPU's libraries offer, instead of timing all of them"},
    {"no-cupti", 0, NULL, "time a GPU's layers by its events; record no kernels"},
    {"roofline", 0, "NAME", "compare with the data sheet of this device: a name, or its JSON file (default: this GPU)"},
    {"import", 0, "FILE", "make a trace or graph of PyTorch's memory snapshot or ExecutionTrace, or of a Chrome trace"},
    {"times", 0, "FILE", "with --import of an ExecutionTrace: the Kineto trace that has its times"},
    {NULL, 0, NULL, NULL},
};

static bool parse_number(const char *text, double min, double max, double *number)
{
    char *end = NULL;
    errno = 0;
    const double found = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(found >= min && found <= max)) {
        return false;
    }
    *number = found;
    return true;
}

static bool parse_count(const char *text, int min, int max, int *count)
{
    double found = 0;
    if (!parse_number(text, min, max, &found) || found > (double)(int)found) {
        return false;
    }
    *count = (int)found;
    return true;
}

/* Options for measuring layers. False: `name` is none of them. *exit_code 0: the value is good. */
static bool take_measuring(ckpt_cli *cli, const char *name, const char *value, ckpt_profile_request *r, int *exit_code)
{
    double seconds = 0;
    *exit_code = 0;
    if (strcmp(name, "repeats") == 0) {
        if (!parse_count(value, 3, CKPT_PROFILE_REPEATS_MAX, &r->profiler.repeats)) {
            *exit_code = ckpt_cli_usage(cli, "--repeats takes a number from 3 to %d, found \"%s\"",
                                        CKPT_PROFILE_REPEATS_MAX, value);
        }
    } else if (strcmp(name, "threads") == 0) {
        if (!parse_count(value, 1, CKPT_THREADS_MAX, &r->threads)) {
            *exit_code =
                ckpt_cli_usage(cli, "--threads takes a number from 1 to %d, found \"%s\"", CKPT_THREADS_MAX, value);
        }
    } else if (strcmp(name, "seconds") == 0) {
        if (!parse_number(value, 0.001, 3600, &seconds)) {
            *exit_code = ckpt_cli_usage(cli, "--seconds takes a number from 0.001 to 3600, found \"%s\"", value);
        }
        r->profiler.spend_ns = (ckpt_ns)(seconds * 1e9);
    } else if (strcmp(name, "warm") == 0) {
        r->profiler.warm = true;
    } else if (strcmp(name, "no-tune") == 0) {
        r->profiler.no_tune = true;
    } else if (strcmp(name, "no-cupti") == 0) {
        r->no_cupti = true;
    } else if (strcmp(name, "set") == 0) {
        r->set[r->set_count++] = value;
    } else if (strcmp(name, "device") == 0) {
        r->device = value;
    } else if (strcmp(name, "dtype") == 0) {
        r->dtype = value;
    } else {
        return false;
    }
    r->layers_only = r->layers_only != NULL ? r->layers_only : name;
    return true;
}

/* Do the options go together? Gives the exit code. */
static int settle(const ckpt_cli *cli, ckpt_profile_request *r)
{
    r->job = r->command != NULL ? CKPT_PROFILE_COMMAND : r->import != NULL ? CKPT_PROFILE_IMPORT : CKPT_PROFILE_LAYERS;
    if (r->output == NULL) { /* standard output is the command's */
        r->output = r->job == CKPT_PROFILE_COMMAND ? "ckpt-trace.json" : "-";
    }
    if (r->times != NULL && r->import == NULL) {
        return ckpt_cli_usage(cli, "--times belongs to --import of an ExecutionTrace");
    }
    if (r->job == CKPT_PROFILE_LAYERS) {
        if (cli->operands_only && r->model == NULL) {
            return ckpt_cli_usage(cli, "the command behind -- is missing");
        }
        return r->model != NULL ? 0 : ckpt_cli_usage(cli, "the model file is missing");
    }
    const char *const what = r->job == CKPT_PROFILE_COMMAND ? "a command is recorded" : "a file is imported";
    if (r->model != NULL) {
        return ckpt_cli_usage(cli, "%s, and no model is profiled beside it: found %s", what, r->model);
    }
    if (r->job == CKPT_PROFILE_COMMAND && (r->import != NULL || r->roofline != NULL)) {
        return ckpt_cli_usage(cli, "%s: --%s does not belong to it", what, r->import != NULL ? "import" : "roofline");
    }
    return r->layers_only == NULL ? 0 : ckpt_cli_usage(cli, "%s: --%s is for layers of a model", what, r->layers_only);
}

int ckpt_profile_parse(ckpt_cli *cli, ckpt_profile_request *r)
{
    const char *name = NULL, *value = NULL;
    for (int got = ckpt_cli_next(cli, &name, &value); got != 0; got = ckpt_cli_next(cli, &name, &value)) {
        int exit_code = 0;
        if (got < 0) {
            return got == -1 ? 1 : 3;
        }
        if (strcmp(name, "output") == 0) {
            r->output = value;
        } else if (strcmp(name, "roofline") == 0) {
            r->roofline = value;
        } else if (strcmp(name, "import") == 0) {
            r->import = value;
        } else if (strcmp(name, "times") == 0) {
            r->times = value;
        } else if (take_measuring(cli, name, value, r, &exit_code)) {
            if (exit_code != 0) {
                return 1 + exit_code;
            }
        } else if (cli->operands_only) {
            r->command = &cli->argv[cli->next - 1]; /* the rest is the command's own */
            break;
        } else if (r->model != NULL) {
            return 1 + ckpt_cli_usage(cli, "one model file is profiled, found a second: %s", value);
        } else {
            r->model = value;
        }
    }
    const int exit_code = settle(cli, r);
    return exit_code == 0 ? 0 : 1 + exit_code;
}
