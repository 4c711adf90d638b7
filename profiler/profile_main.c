/* ckpt-profile: runs the layers of a model one by one and writes what they cost. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli.h"
#include "core/file.h"
#include "kernels/threads.h"
#include "profiler/profiler.h"

static const ckpt_cli_option option_table[] = {
    {"output", 'o', "FILE", "where the profile goes; - is standard output (default)"},
    {"device", 0, "NAME", "cpu (default) or cuda:0"},
    {"repeats", 'r', "N", "timed runs of each direction, 3 to 1000 (default 15)"},
    {"seconds", 0, "S", "stop repeating one direction of a layer after S seconds (default 0.4)"},
    {"threads", 't', "N", "threads of the CPU's kernels (default: online processors)"},
    {"set", 0, "VAR=N", "override a variable of the model"},
    {"dtype", 0, "NAME", "float32 or bfloat16 in place of the model's dtype; bfloat16 on a GPU"},
    {NULL, 0, NULL, NULL},
};

typedef struct ckpt_profile_options {
    const char *model, *output, *dtype, *device;
    const char **set;
    int set_count;
    int threads; /* 0: not given */
    ckpt_profiler_options profiler;
} ckpt_profile_options;

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

/* 0: go on; else the program's exit code + 1. */
static int parse(ckpt_cli *cli, ckpt_profile_options *options)
{
    const char *name = NULL, *value = NULL;
    for (int got = ckpt_cli_next(cli, &name, &value); got != 0; got = ckpt_cli_next(cli, &name, &value)) {
        if (got < 0) {
            return got == -1 ? 1 : 3;
        }
        double seconds = 0;
        if (strcmp(name, "output") == 0) {
            options->output = value;
        } else if (strcmp(name, "device") == 0) {
            options->device = value;
        } else if (strcmp(name, "dtype") == 0) {
            options->dtype = value;
        } else if (strcmp(name, "set") == 0) {
            options->set[options->set_count++] = value;
        } else if (strcmp(name, "repeats") == 0) {
            if (!parse_count(value, 3, 1000, &options->profiler.repeats)) {
                return 1 + ckpt_cli_usage(cli, "--repeats takes a number from 3 to 1000, found \"%s\"", value);
            }
        } else if (strcmp(name, "threads") == 0) {
            if (!parse_count(value, 1, CKPT_THREADS_MAX, &options->threads)) {
                return 1 + ckpt_cli_usage(cli, "--threads takes a number from 1 to %d, found \"%s\"", CKPT_THREADS_MAX,
                                          value);
            }
        } else if (strcmp(name, "seconds") == 0) {
            if (!parse_number(value, 0.001, 3600, &seconds)) {
                return 1 + ckpt_cli_usage(cli, "--seconds takes a number from 0.001 to 3600, found \"%s\"", value);
            }
            options->profiler.spend_ns = (ckpt_ns)(seconds * 1e9);
        } else if (options->model != NULL) {
            return 1 + ckpt_cli_usage(cli, "one model file is profiled, found a second: %s", value);
        } else {
            options->model = value;
        }
    }
    return options->model != NULL ? 0 : 1 + ckpt_cli_usage(cli, "the model file is missing");
}

static void show_progress(void *context, int done, int total, ckpt_ns elapsed_ns)
{
    (void)context;
    ckpt_cli_progress("distinct layers", done, total, elapsed_ns);
}

static void show_remark(void *context, const char *layer, const char *why)
{
    (void)context;
    fprintf(stderr, "ckpt-profile: layer %s runs slower than it might: %s\n", layer, why);
}

static ckpt_code write_profile(const ckpt_profile *profile, const char *path, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_profile_write(profile, &text);
    ckpt_code code = ckpt_text_end(&text, err);
    if (code == CKPT_OK) {
        code = ckpt_file_write(path, text.bytes, text.length, err);
    }
    ckpt_text_fini(&text);
    return code;
}

static void say_end(const ckpt_profile *profile, ckpt_ns spent_ns)
{
    ckpt_ns forward = 0, backward = 0, update = 0;
    int measured = 0;
    for (int i = 0; i < profile->row_count; i++) {
        forward += profile->row[i].forward.median_ns;
        backward += profile->row[i].backward.median_ns;
        update += profile->row[i].update.median_ns;
        measured += profile->row[i].same_as[0] == '\0';
    }
    char f[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT], u[CKPT_UNITS_TEXT], s[CKPT_UNITS_TEXT];
    fprintf(stderr,
            "%s: %d layers, %d distinct ones measured in %s on random data, caches not flushed; a step by their sum: "
            "forward %s, backward %s, update %s\n",
            profile->model, profile->row_count, measured, ckpt_ns_show(spent_ns, s), ckpt_ns_show(forward, f),
            ckpt_ns_show(backward, b), ckpt_ns_show(update, u));
}

/* The network as this device runs it: a GPU's has no threads. */
static ckpt_code lower_model(const ckpt_profile_options *options, const ckpt_device *device, ckpt_arena *arena,
                             const ckpt_lowered **lowered, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    CKPT_TRY(ckpt_model_read(options->model, options->set, options->set_count, arena, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, options->dtype, arena, &model, err));
    const ckpt_network *network = NULL;
    CKPT_TRY(ckpt_network_infer(model, device->threads, arena, &network, err));
    const ckpt_device_model *roofline = NULL;
    CKPT_TRY(ckpt_device_model_find("cpu", arena, &roofline, err)); /* its times are not looked at */
    return ckpt_network_lower(network, NULL, roofline, arena, lowered, err);
}

static ckpt_code describe(const ckpt_device *device, const ckpt_cli *cli, ckpt_arena *arena, ckpt_machine *machine,
                          ckpt_err *err)
{
    const char *const name = device->api->describe(device);
    CKPT_TRY(
        ckpt_machine_read(device->threads, device->api->libraries(device), cli->argc, cli->argv, arena, machine, err));
    machine->device = name;
    return device->api->gpu ? ckpt_machine_set_gpu(machine, name, arena, err) : CKPT_OK;
}

static ckpt_code work(const ckpt_profile_options *options, const ckpt_cli *cli, ckpt_device **device, ckpt_arena *arena,
                      ckpt_err *err)
{
    CKPT_TRY(ckpt_device_open(options->device, options->threads > 0 ? options->threads : ckpt_machine_threads(), device,
                              err));
    if ((*device)->api->gpu && options->threads > 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--threads is for the CPU, found --device %s", options->device);
    }
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(lower_model(options, *device, arena, &lowered, err));
    CKPT_TRY(ckpt_file_probe(options->output, err)); /* before minutes of measuring */
    ckpt_profile *profile = NULL;
    const ckpt_ns start = ckpt_clock_ns();
    CKPT_TRY(ckpt_profile_run(*device, lowered, &options->profiler, arena, &profile, err));
    const ckpt_ns spent = ckpt_clock_ns() - start;
    CKPT_TRY(describe(*device, cli, arena, &profile->machine, err));
    CKPT_TRY(write_profile(profile, options->output, err));
    say_end(profile, spent);
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    ckpt_threads_settle(argv);
    ckpt_cli cli = {
        .program = "ckpt-profile",
        .usage = "ckpt-profile [options] model.json",
        .about = "Measure what every distinct layer of a model costs. Random data; caches are not flushed.",
        .option = option_table,
        .argc = argc,
        .argv = argv,
    };
    ckpt_err err = {0};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_profile_options options = {.output = "-", .device = "cpu"};
    options.profiler.progress = show_progress;
    options.profiler.remark = show_remark;
    options.set = CKPT_NEW(&arena, const char *, argc);
    if (options.set == NULL) {
        CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for the command line");
        return ckpt_cli_fail(&cli, &err);
    }
    const int stop = parse(&cli, &options);
    int exit_code = stop - 1;
    if (stop == 0) {
        ckpt_device *device = NULL;
        exit_code = work(&options, &cli, &device, &arena, &err) == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
        ckpt_device_close(device);
    }
    ckpt_arena_fini(&arena);
    return exit_code;
}
