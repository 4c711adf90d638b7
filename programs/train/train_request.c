/* The command line of ckpt-train, and whether a plan fits it. */
#include "programs/train/train_request_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/formats/machine.h"
#include "executor/data/loader.h"
#include "kernels/device.h"

enum { STEPS_USUAL = 10 };

const ckpt_cli_option ckpt_train_option_table[] = {
    {"plan", 'p', "FILE", "the plan to follow, from ckpt-plan (required); of pipeline stages the name given to its -o"},
    {"data", 'd', "SOURCE", CKPT_DATA_SOURCES " (default)"},
    {"workers", 0, "N", "threads that read data ahead of the step (default 1 for images, else 0)"},
    {"validate", 0, "SOURCE", "data for validations: loss, perplexity, accuracy"},
    {"validate-every", 0, "N", "validate after every N steps, and at the end (default: a tenth of --steps)"},
    {"validate-batches", 0, "N",
     "batches of a validation (default: all whole ones of the data; of text and synthetic 16)"},
    {"save-best", 0, "FILE", "write the training state after every validation with the lowest loss so far"},
    {"patience", 0, "N", "stop after N validations in a row without a lower loss"},
    {"steps", 'n', "N", "stop after N steps in all, those before --resume included (default 10)"},
    {"seed", 0, "N", "seed of weights, data order and dropout (default 0)"},
    {"threads", 't', "N", "threads of the CPU's kernels, as in the plan (default: the plan's, else all processors)"},
    {"set", 0, "VAR=N", "override a variable of the model; as given to ckpt-plan"},
    {"dtype", 0, "float32|bfloat16", "replace the model's dtype; as given to ckpt-plan"},
    {"optimizer", 0, "NAME[:KEY=X,...]", "replace the model's optimizer; as given to ckpt-plan"},
    {"lr", 0, "X", "replace the learning rate of the model's optimizer"},
    {"schedule", 0, "KIND[:KEY=N,...]",
     "replace its schedule: constant, linear, cosine or step, with warmup, steps, min, every, factor as in a model"},
    {"device", 0, "NAME", "cpu (default) or cuda:0; cuda: every rank takes a GPU of its own"},
    {"no-graph", 0, NULL,
     "on a GPU: launch every kernel of every step instead of replaying a recorded step; same bits"},
    {"budget", 0, "SIZE", "refuse to train if the whole process takes more of the device (80%: of its memory)"},
    {"reserve", 0, "SIZE", "with --budget: bytes that libraries and context take, instead of what the device reports"},
    {"trace", 0, "FILE",
     "write the measured trace of the last step; - is standard output, which then has nothing else"},
    {"profile", 0, "FILE",
     "compare the last step with this profile of the model and device: layers, phases, idle time"},
    {"reprofile", 0, "FILE",
     "write a profile with the times of this run, of --profile's layers where there is one, and say what a new plan "
     "saves"},
    {"no-cupti", 0, NULL, "on a GPU: time the traced step by events alone, even where CUPTI could record it"},
    {"log", 0, "FILE",
     "write step, loss, loss as a hexadecimal float, validation and accuracy as CSV; a resumed run continues its log"},
    {"tensorboard", 0, "FOLDER", "write losses and accuracies for TensorBoard"},
    {"save", 'o', "FILE", "write the training state at the end, and when interrupted"},
    {"save-every", 0, "N", "write it after every N steps, too"},
    {"resume", 0, "FILE",
     "continue from a training state with as many batches in a step; the number of ranks may differ"},
    {"init", 0, "FILE",
     "start from these weights instead of random ones: model.safetensors, model.safetensors.index.json of several, or "
     "ONNX"},
    {"export", 0, "FILE", "write the weights at the end as safetensors, under the names that --init takes"},
    {"export-dtype", 0, "float32|bfloat16", "what --export writes (float32)"},
    {"evaluate", 0, "N", "train nothing: print the mean loss of the batches of the next N steps"},
    {"generate", 0, "N",
     "train nothing: print N tokens of a language model; bytes, or numbers with more than 256 classes"},
    {"prompt", 0, "TEXT", "what the generated text begins with; tokens as 12,7,301 with more than 256 classes"},
    {"temperature", 0, "T", "draw tokens by softmax(logits / T) (default 0: always the likeliest)"},
    {"top-k", 0, "K", "with a temperature: among the K likeliest alone (default: all)"},
    {"ema", 0, NULL, "with --evaluate or --generate: use the moving average of the weights, of a model with \"ema\""},
    {"no-digest", 0, NULL, "do not hash the data for --save and --resume, nor the weights at the end"},
    {"poison", 0, NULL, "fill freed memory with NaN, so that a plan that reads it shows at once"},
    {"json", 0, NULL, "print the result as JSON"},
    {NULL, 0, NULL, NULL},
};

bool ckpt_train_is_dash(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Training, --evaluate and --generate have options of their own. 0, or the exit code. */
static int check_kind(const ckpt_cli *cli, ckpt_train_options *options)
{
    const char *const kind = options->generate > 0 ? "generate" : options->evaluate > 0 ? "evaluate" : NULL;
    const struct {
        bool given;
        const char *name;
    } trains[] = {{options->save != NULL, "save"},           {options->log != NULL, "log"},
                  {options->trace != NULL, "trace"},         {options->tensorboard != NULL, "tensorboard"},
                  {options->validate != NULL, "validate"},   {options->export != NULL, "export"},
                  {options->reprofile != NULL, "reprofile"}, {options->steps >= 0, "steps"}},
      validates[] = {{options->validate_every > 0, "validate-every"},
                     {options->validate_batches > 0, "validate-batches"},
                     {options->save_best != NULL, "save-best"},
                     {options->patience > 0, "patience"}},
      generates[] = {{options->prompt != NULL, "prompt"},
                     {options->temperature_text != NULL, "temperature"},
                     {options->top_k > 0, "top-k"}};
    if (options->generate > 0 && options->evaluate > 0) {
        return ckpt_cli_usage(cli, "only one of --evaluate and --generate");
    }
    if (options->generate > 0 && options->json) {
        return ckpt_cli_usage(cli, "--generate prints text, and no --json");
    }
    for (size_t i = 0; kind != NULL && i < sizeof trains / sizeof trains[0]; i++) {
        if (trains[i].given) {
            return ckpt_cli_usage(cli, "--%s trains nothing, so there is nothing for --%s", kind, trains[i].name);
        }
    }
    for (size_t i = 0; options->validate == NULL && i < sizeof validates / sizeof validates[0]; i++) {
        if (validates[i].given) {
            return ckpt_cli_usage(cli, "--%s needs --validate SOURCE", validates[i].name);
        }
    }
    for (size_t i = 0; options->generate == 0 && i < sizeof generates / sizeof generates[0]; i++) {
        if (generates[i].given) {
            return ckpt_cli_usage(cli, "--%s needs --generate N", generates[i].name);
        }
    }
    if (options->top_k > 0 && options->temperature_text == NULL) {
        return ckpt_cli_usage(cli, "--top-k needs --temperature T");
    }
    if (options->temperature_text != NULL) {
        char *end = NULL;
        options->temperature = strtod(options->temperature_text, &end);
        if (end == options->temperature_text || end[0] != '\0' ||
            !(options->temperature >= 0 && options->temperature <= 1000)) {
            return ckpt_cli_usage(cli, "--temperature takes a number from 0 to 1000, found %s",
                                  options->temperature_text);
        }
    }
    return 0;
}

/* 0, or the program's exit code + 1. */
static int settle_weights(const ckpt_cli *cli, ckpt_train_options *options)
{
    const char *const as = options->export_as;
    if (options->init != NULL && options->resume != NULL) {
        return 1 + ckpt_cli_usage(cli, "--resume has weights of its own: --init is for a new training");
    }
    if (as != NULL && options->export == NULL) {
        return 1 + ckpt_cli_usage(cli, "--export-dtype needs --export FILE");
    }
    if (as != NULL && strcmp(as, "float32") != 0 && strcmp(as, "bfloat16") != 0) {
        return 1 + ckpt_cli_usage(cli, "--export-dtype is \"%s\", wanted float32 or bfloat16", as);
    }
    options->export_dtype = as != NULL && strcmp(as, "bfloat16") == 0 ? CKPT_BFLOAT16 : CKPT_FLOAT32;
    if (ckpt_train_is_dash(options->init) || ckpt_train_is_dash(options->export)) {
        return 1 + ckpt_cli_usage(cli, "--%s needs a file, which - is not",
                                  ckpt_train_is_dash(options->init) ? "init" : "export");
    }
    return 0;
}

int ckpt_train_parse(ckpt_cli *cli, ckpt_train_options *options)
{
    const int64_t many = INT64_C(1) << 31;
    const ckpt_cli_field field[] = {
        {"plan", .text = &options->plan},
        {"data", .text = &options->data},
        {"dtype", .text = &options->dtype},
        {"optimizer", .text = &options->optimizer},
        {"lr", .text = &options->lr},
        {"schedule", .text = &options->schedule},
        {"device", .text = &options->device},
        {"budget", .text = &options->budget},
        {"reserve", .text = &options->reserve},
        {"trace", .text = &options->trace},
        {"profile", .text = &options->profile},
        {"reprofile", .text = &options->reprofile},
        {"log", .text = &options->log},
        {"save", .text = &options->save},
        {"resume", .text = &options->resume},
        {"validate", .text = &options->validate},
        {"save-best", .text = &options->save_best},
        {"tensorboard", .text = &options->tensorboard},
        {"prompt", .text = &options->prompt},
        {"temperature", .text = &options->temperature_text},
        {"workers", .number = &options->workers, .high = CKPT_LOADER_WORKERS_MAX},
        {"validate-every", .number = &options->validate_every, .low = 1, .high = many},
        {"validate-batches", .number = &options->validate_batches, .low = 1, .high = many},
        {"patience", .number = &options->patience, .low = 1, .high = many},
        {"generate", .number = &options->generate, .low = 1, .high = 1 << 24},
        {"top-k", .number = &options->top_k, .low = 1, .high = many},
        {"init", .text = &options->init},
        {"export", .text = &options->export},
        {"export-dtype", .text = &options->export_as},
        {"steps", .number = &options->steps, .high = many},
        {"seed", .number = &options->seed, .high = INT64_MAX},
        {"threads", .number = &options->threads, .low = 1, .high = CKPT_THREADS_MAX},
        {"evaluate", .number = &options->evaluate, .low = 1, .high = many},
        {"save-every", .number = &options->save_every, .low = 1, .high = many},
        {"poison", .yes = &options->poison},
        {"json", .yes = &options->json},
        {"no-graph", .yes = &options->no_graph},
        {"no-cupti", .yes = &options->no_cupti},
        {"ema", .yes = &options->ema},
        {"no-digest", .yes = &options->no_digest},
    };
    const char *name = NULL, *value = NULL;
    for (int got = ckpt_cli_next(cli, &name, &value); got != 0; got = ckpt_cli_next(cli, &name, &value)) {
        if (got < 0) {
            return got == -1 ? 1 : 3;
        }
        if (strcmp(name, "set") == 0) {
            options->set[options->set_count++] = value;
        } else if (name[0] == '\0') {
            if (options->model != NULL) {
                return 1 + ckpt_cli_usage(cli, "one model file is trained, found a second: %s", value);
            }
            options->model = value;
        }
        const int kept = ckpt_cli_keep(cli, field, sizeof field / sizeof *field, name, value);
        if (kept > 0) {
            return 1 + kept;
        }
    }
    if (options->model == NULL || options->plan == NULL) {
        return 1 + ckpt_cli_usage(cli, "%s is missing", options->model == NULL ? "the model file" : "--plan FILE");
    }
    const int wrong = check_kind(cli, options);
    if (wrong > 0) {
        return 1 + wrong;
    }
    if (options->ema && ((options->evaluate == 0 && options->generate == 0) || options->resume == NULL)) {
        return 1 + ckpt_cli_usage(cli, "--ema needs --evaluate N or --generate N, and --resume FILE");
    }
    options->steps = options->steps >= 0 ? options->steps : STEPS_USUAL;
    if (options->validate_every == 0) {
        options->validate_every = options->steps >= 20 ? options->steps / 10 : 1;
    }
    if (options->save_every > 0 && options->save == NULL) {
        return 1 + ckpt_cli_usage(cli, "--save-every needs --save FILE");
    }
    if (options->reserve != NULL && options->budget == NULL) {
        return 1 + ckpt_cli_usage(cli, "--reserve needs --budget SIZE");
    }
    const int kept = settle_weights(cli, options);
    if (kept > 0) {
        return kept;
    }
    if (ckpt_train_is_dash(options->save) || ckpt_train_is_dash(options->log) ||
        ckpt_train_is_dash(options->save_best) || ckpt_train_is_dash(options->reprofile)) {
        return 1 + ckpt_cli_usage(cli, "--%s needs a file, which - is not",
                                  ckpt_train_is_dash(options->save)        ? "save"
                                  : ckpt_train_is_dash(options->log)       ? "log"
                                  : ckpt_train_is_dash(options->save_best) ? "save-best"
                                                                           : "reprofile");
    }
    if (ckpt_train_is_dash(options->trace) && options->json) {
        return 1 + ckpt_cli_usage(cli, "only one of --trace - and --json can have standard output");
    }
    return 0;
}

/* A plan's workspaces are for one kind of device. A plan for another kind is refused, with the command for the right one. */
static ckpt_code settle_target(const ckpt_train_options *options, const ckpt_plan *plan, ckpt_err *err)
{
    if (plan->gpu == options->gpu) {
        return CKPT_OK;
    }
    char set[160] = "";
    for (int i = 0; i < options->set_count; i++) {
        const size_t length = strlen(set);
        snprintf(set + length, sizeof set - length, "--set %s ", options->set[i]);
    }
    return CKPT_FAIL(
        err, CKPT_BAD_INPUT,
        "%s: made for %s, and --device is %s; plan again: ckpt-plan --device %s --budget %lld %s%s%s%s%s%s%s-o "
        "%s %s%s",
        options->plan, plan->gpu ? "a GPU" : "the CPU", options->device, plan->gpu ? "cpu" : "h200",
        (long long)plan->budget_bytes, set, options->dtype != NULL ? "--dtype " : "",
        options->dtype != NULL ? options->dtype : "", options->dtype != NULL ? " " : "",
        options->optimizer != NULL ? "--optimizer " : "", options->optimizer != NULL ? options->optimizer : "",
        options->optimizer != NULL ? " " : "", options->plan, options->model,
        plan->gpu ? "" : " (or --profile of that GPU in place of --device)");
}

/* Kernels choose algorithms by threads and workspace: with other threads they may not fit, or give other bits. A GPU's kernels have no threads. */
static ckpt_code settle_threads(ckpt_train_options *options, const ckpt_plan *plan, ckpt_err *err)
{
    if (options->gpu) {
        return options->threads == 0
                   ? CKPT_OK
                   : CKPT_FAIL(err, CKPT_BAD_INPUT, "--threads is for the CPU, found --device %s", options->device);
    }
    if (options->threads > 0 && plan->threads > 0 && options->threads != plan->threads) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: made for %d thread%s, whose workspaces it has; --threads %lld needs a plan of its own",
                         options->plan, plan->threads, plan->threads == 1 ? "" : "s", (long long)options->threads);
    }
    if (options->threads == 0) {
        options->threads = plan->threads > 0 ? plan->threads : ckpt_machine_threads();
    }
    return CKPT_OK;
}

ckpt_code ckpt_train_settle(ckpt_train_options *options, const ckpt_plan *plan, ckpt_err *err)
{
    CKPT_TRY(ckpt_device_is_gpu(options->device, &options->gpu, err));
    CKPT_TRY(settle_target(options, plan, err));
    return settle_threads(options, plan, err);
}

/* "cuda:1: NVIDIA H200, ..." without its number: another of the same kind is as good. */
static const char *without_index(const char *device)
{
    const char *const colon = strstr(device, ": ");
    return colon != NULL ? colon + 2 : device;
}

ckpt_code ckpt_train_check_profile(const ckpt_profile *profile, const ckpt_device *device, ckpt_err *err)
{
    const char *const here = device->api->describe(device), *const there = profile->machine.device;
    const bool same_kind = profile->machine.gpu == device->api->gpu;
    if (same_kind && (there[0] == '\0' || strcmp(without_index(there), without_index(here)) == 0)) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: measured on \"%.120s\", and this is \"%.120s\": profile this device",
                     profile->source, there, here);
}
