/* The command line of ckpt-profile. */
#include <stdlib.h>
#include <string.h>

#include "programs/profile/profile_request_impl.h"
#include "programs/profile/profile_steps.h"

const ckpt_cli_option ckpt_profile_option_table[] = {
    {"output", 'o', "FILE", "file to write; - is standard output (default: -, and ckpt-trace.json for a COMMAND)"},
    {"device", 0, "NAME", "cpu (default) or cuda:0"},
    {"repeats", 'r', "N", "timed runs of each direction, 3 to 1000 (default 15, and up to 1000 in 5 ms)"},
    {"steps", 0, "N",
     "training steps by each plan that layers are timed in, 3 to 1000 (default 5, up to 50 in 1 s, 3 in 10 s)"},
    {"isolated", 0, NULL, "time each layer alone and warm, and run no training step"},
    {"seconds", 0, "S", "stop repeating a direction of a layer after S seconds (default 0.4)"},
    {"threads", 't', "N", "threads of the CPU's kernels (default: online processors)"},
    {"set", 0, "VAR=N", "override a variable of the model"},
    {"dtype", 0, "float32|bfloat16", "replace the model's dtype"},
    {"optimizer", 0, "NAME[:KEY=X,...]", "replace the model's optimizer"},
    {"warm", 0, NULL, "do not flush a GPU's cache between runs"},
    {"no-tune", 0, NULL, "take the first algorithm that a GPU's libraries offer, instead of timing all of them"},
    {"no-cupti", 0, NULL, "time a GPU's layers by its events; record no kernels"},
    {"roofline", 0, "NAME", "compare with the data sheet of this device: a name, or its JSON file (default: this GPU)"},
    {"import", 0, "FILE", "make a trace or graph of PyTorch's memory snapshot or ExecutionTrace, or of a Chrome trace"},
    {"times", 0, "FILE", "with --import of an ExecutionTrace: the Kineto trace that has its times, memory and modules"},
    {NULL, 0, NULL, NULL},
};

/* Options for measuring layers. -1: `name` is none of them; 0: the value is good; else the exit code. */
static int take_measuring(ckpt_cli *cli, const char *name, const char *value, ckpt_profile_request *r)
{
    const ckpt_cli_field field[] = {
        {"repeats", .count = &r->profiler.repeats, .low = 3, .high = CKPT_PROFILE_REPEATS_MAX},
        {"steps", .count = &r->steps, .low = 3, .high = CKPT_PROFILE_STEPS_MAX},
        {"isolated", .yes = &r->isolated},
        {"threads", .count = &r->threads, .low = 1, .high = CKPT_THREADS_MAX},
        {"warm", .yes = &r->profiler.warm},
        {"no-tune", .yes = &r->profiler.no_tune},
        {"no-cupti", .yes = &r->no_cupti},
        {"device", .text = &r->device},
        {"dtype", .text = &r->dtype},
        {"optimizer", .text = &r->optimizer},
    };
    int kept = ckpt_cli_keep(cli, field, sizeof field / sizeof *field, name, value);
    if (strcmp(name, "seconds") == 0) {
        char *end = NULL;
        const double seconds = strtod(value, &end);
        if (*end != '\0' || !(seconds >= 0.001 && seconds <= 3600)) {
            return ckpt_cli_usage(cli, "--seconds takes a number from 0.001 to 3600, found \"%s\"", value);
        }
        r->profiler.spend_ns = (ckpt_ns)(seconds * 1e9);
        kept = 0;
    } else if (strcmp(name, "set") == 0) {
        r->set[r->set_count++] = value;
        kept = 0;
    }
    r->layers_only = kept == 0 && r->layers_only == NULL ? name : r->layers_only;
    return kept;
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
        if (r->isolated && r->steps > 0) {
            return ckpt_cli_usage(cli, "--isolated runs no training step, so there is nothing for --steps");
        }
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
    const ckpt_cli_field field[] = {
        {"output", .text = &r->output},
        {"roofline", .text = &r->roofline},
        {"import", .text = &r->import},
        {"times", .text = &r->times},
    };
    const char *name = NULL, *value = NULL;
    for (int got = ckpt_cli_next(cli, &name, &value); got != 0; got = ckpt_cli_next(cli, &name, &value)) {
        if (got < 0) {
            return got == -1 ? 1 : 3;
        }
        int kept = ckpt_cli_keep(cli, field, sizeof field / sizeof *field, name, value);
        kept = kept < 0 ? take_measuring(cli, name, value, r) : kept;
        if (kept > 0) {
            return 1 + kept;
        }
        if (kept == 0) {
            continue;
        }
        if (cli->operands_only) {
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
