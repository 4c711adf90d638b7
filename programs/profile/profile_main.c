/* ckpt-profile: measures the layers of a model, one by one and in training steps; or records what a program does on GPUs; or converts what another tool recorded. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "imports/import.h"
#include "kernels/place.h"
#include "ops/import/onnx/onnx.h"
#include "programs/cli/settle.h"
#include "programs/profile/command.h"
#include "programs/profile/profile_request_impl.h"
#include "programs/profile/profile_steps.h"

static void show_progress(void *context, int done, int total, ckpt_ns elapsed_ns)
{
    (void)context;
    ckpt_cli_progress("distinct layers", done, total, elapsed_ns);
}

static void show_plans(int done, int total, ckpt_ns elapsed_ns)
{
    ckpt_cli_progress("plans", done, total, elapsed_ns);
}

static void show_remark(void *context, const char *layer, const char *why)
{
    (void)context;
    ckpt_cli_note("ckpt-profile", "layer %s runs slower than it might: %s", layer, why);
}

static void note(const char *line)
{
    ckpt_cli_note("ckpt-profile", "%s", line);
}

static void show_note(void *context, const char *line)
{
    (void)context;
    note(line);
}

/* ---- layers of a model ---- */

/* The network as this device runs it: a GPU's has no threads. */
static ckpt_code lower_model(const ckpt_profile_request *request, const ckpt_device *device, ckpt_arena *arena,
                             const ckpt_lowered **lowered, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    CKPT_TRY(ckpt_onnx_model(request->model, request->set, request->set_count, arena, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, request->dtype, arena, &model, err));
    CKPT_TRY(ckpt_model_with_optimizer(model, request->optimizer, arena, &model, err));
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

/* The data sheet to compare with: the named one, else this GPU's if it is known. The table's CPU is a fit to recordings and no product, so a CPU's must be named. */
static ckpt_code choose_roofline(const ckpt_profile_request *request, const ckpt_device *device, ckpt_arena *arena,
                                 const ckpt_device_model **roofline, ckpt_err *err)
{
    if (request->roofline != NULL) {
        return ckpt_device_model_find(request->roofline, arena, roofline, err);
    }
    const ckpt_machine machine = {.device = device->api->describe(device), .gpu = true};
    *roofline = device->api->gpu ? ckpt_device_model_of_machine(&machine) : NULL;
    return CKPT_OK;
}

/* Without a recorder, times are taken from the device's events: less exact, but no error. */
static ckpt_code open_recorder(const ckpt_profile_request *request, ckpt_device *device, ckpt_recorder **recorder,
                               ckpt_bytes *device_bytes, ckpt_err *err)
{
    ckpt_err why = {0};
    if (!device->api->gpu) {
        return CKPT_OK;
    }
    const ckpt_code code = request->no_cupti ? CKPT_DEVICE : ckpt_profile_record(device, recorder, device_bytes, &why);
    if (code == CKPT_DEVICE) {
        ckpt_cli_note("ckpt-profile", "no kernels are recorded, times are between events of the device: %s",
                      request->no_cupti ? "--no-cupti" : why.msg);
        return CKPT_OK;
    }
    if (code != CKPT_OK) {
        *err = why;
    }
    return code;
}

static ckpt_code add_recorder_bytes(ckpt_profile *profile, ckpt_bytes device_bytes, ckpt_arena *arena, ckpt_err *err)
{
    char shown[CKPT_UNITS_TEXT];
    if (profile->recorder[0] == '\0' || device_bytes < 0) {
        return CKPT_OK;
    }
    profile->recorder = ckpt_arena_format(arena, "%s; the GPU has %s less free memory since it records",
                                          profile->recorder, ckpt_bytes_show(device_bytes, shown));
    return profile->recorder != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for what was recorded");
}

static ckpt_code say_end(const ckpt_profile *profile, const ckpt_device_model *roofline, ckpt_ns spent_ns,
                         ckpt_arena *arena, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_code code = ckpt_profile_summary(profile, roofline, spent_ns, arena, &text, err);
    code = code != CKPT_OK ? code : ckpt_text_end(&text, err);
    if (code == CKPT_OK) {
        fputs(text.bytes, stderr);
    }
    ckpt_text_fini(&text);
    return code;
}

static ckpt_code measure_steps(const ckpt_profile_request *request, ckpt_device *device, const ckpt_network *network,
                               ckpt_arena *arena, ckpt_profile *profile, ckpt_err *err)
{
    const ckpt_profile_steps_options options = {
        .steps = request->steps, .record = !request->no_cupti, .note = note, .progress = show_plans};
    const ckpt_code code = ckpt_profile_steps(device, network, &options, arena, profile, err);
    ckpt_cli_progress_clear();
    return code;
}

static ckpt_code measure_layers(const ckpt_profile_request *request, ckpt_device *device, const ckpt_cli *cli,
                                ckpt_recorder **recorder, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_profiler_options options = request->profiler;
    const ckpt_lowered *lowered = NULL;
    ckpt_bytes device_bytes = -1;
    CKPT_TRY(lower_model(request, device, arena, &lowered, err));
    CKPT_TRY(choose_roofline(request, device, arena, &options.roofline, err));
    CKPT_TRY(open_recorder(request, device, recorder, &device_bytes, err));
    options.recorder = *recorder;
    ckpt_profile *profile = NULL;
    const ckpt_ns start = ckpt_clock_ns();
    CKPT_TRY(ckpt_profile_run(device, lowered, &options, arena, &profile, err));
    ckpt_recorder_close(*recorder); /* it slows what it does not record, too */
    *recorder = NULL;
    CKPT_TRY(request->isolated ? CKPT_OK : measure_steps(request, device, lowered->network, arena, profile, err));
    const ckpt_ns spent = ckpt_clock_ns() - start;
    CKPT_TRY(describe(device, cli, arena, &profile->machine, err));
    CKPT_TRY(add_recorder_bytes(profile, device_bytes, arena, err));
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_profile_write(profile, &text);
    CKPT_TRY(ckpt_file_write_text(request->output, &text, err));
    return say_end(profile, options.roofline, spent, arena, err);
}

static ckpt_code profile_layers(const ckpt_profile_request *request, const ckpt_cli *cli, ckpt_arena *arena,
                                ckpt_err *err)
{
    const int threads = request->threads > 0 ? request->threads : ckpt_machine_threads();
    ckpt_device *device = NULL;
    ckpt_recorder *recorder = NULL;
    bool gpu = false;
    CKPT_TRY(ckpt_device_is_gpu(request->device, &gpu, err));
    ckpt_cli_settle_threads(cli->argv, gpu ? 0 : threads, 0, 1);
    CKPT_TRY(ckpt_device_open(request->device, threads, &device, err));
    const ckpt_code code =
        device->api->gpu && request->threads > 0
            ? CKPT_FAIL(err, CKPT_BAD_INPUT, "--threads is for the CPU, found --device %s", request->device)
            : measure_layers(request, device, cli, &recorder, arena, err);
    ckpt_recorder_close(recorder);
    ckpt_device_close(device);
    return code;
}

/* ---- recordings of other tools ---- */

/* Remarks on a file, each with a line feed, until it is known that it is taken: a refusal is one line. */
static ckpt_text held;

static void hold(const char *line)
{
    ckpt_text_add(&held, "%s\n", line);
}

static void say_held(void)
{
    for (const char *line = held.bytes; line != NULL && line[0] != '\0'; line += strcspn(line, "\n") + 1) {
        ckpt_cli_note("ckpt-profile", "%.*s", (int)strcspn(line, "\n"), line);
    }
}

static ckpt_code write_trace(const ckpt_profile_request *request, const ckpt_trace *trace, ckpt_err *err)
{
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(request->output, &text, err));
    ckpt_trace_write(trace, &text);
    CKPT_TRY(ckpt_file_end_text(&text, CKPT_OK, err));
    say_held();
    char peak[CKPT_UNITS_TEXT], time[CKPT_UNITS_TEXT];
    ckpt_cli_note(trace->name, "%d events over %s, peak %s", trace->event_count, ckpt_ns_show(trace->time_ns, time),
                  ckpt_bytes_show(trace->peak_bytes, peak));
    return CKPT_OK;
}

static ckpt_code write_graph(const ckpt_profile_request *request, const ckpt_graph *graph, ckpt_err *err)
{
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(request->output, &text, err));
    ckpt_graph_write(graph, &text);
    CKPT_TRY(ckpt_file_end_text(&text, CKPT_OK, err));
    say_held();
    ckpt_ns time = 0;
    ckpt_bytes bytes = 0;
    for (int i = 0; i < graph->op_count; i++) {
        time += graph->op[i].time_ns;
    }
    for (int i = 0; i < graph->buffer_count; i++) {
        bytes += graph->buffer[i].bytes;
    }
    char t[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT];
    ckpt_cli_note(graph->name, "%d ops of %s, %d buffers of %s together; ckpt-plan plans it", graph->op_count,
                  ckpt_ns_show(time, t), graph->buffer_count, ckpt_bytes_show(bytes, b));
    return CKPT_OK;
}

static ckpt_code import_execution(const ckpt_profile_request *request, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_device_model *device = NULL;
    ckpt_graph *graph = NULL;
    CKPT_TRY(ckpt_device_model_find(request->roofline != NULL ? request->roofline : "cpu", arena, &device, err));
    CKPT_TRY(ckpt_import_execution(request->import, request->times, device->bytes_per_s, hold, arena, &graph, err));
    return write_graph(request, graph, err);
}

static ckpt_code import_file(const ckpt_profile_request *request, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_import_kind kind = CKPT_IMPORT_CHROME;
    ckpt_trace *trace = NULL;
    CKPT_TRY(ckpt_import_recognise(request->import, &kind, err));
    if (kind == CKPT_IMPORT_EXECUTION) {
        return import_execution(request, arena, err);
    }
    if (request->times != NULL || request->roofline != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s has times of its own: --%s is for an ExecutionTrace", request->import,
                         request->times != NULL ? "times" : "roofline");
    }
    CKPT_TRY(kind == CKPT_IMPORT_SNAPSHOT ? ckpt_import_snapshot(request->import, hold, arena, &trace, err)
                                          : ckpt_import_chrome(request->import, hold, arena, &trace, err));
    return write_trace(request, trace, err);
}

/* Ends as the command did, by the same signal too: a shell's loop ends at Ctrl-C only if its program dies of it. */
static int end_as(int exit_code)
{
    if (exit_code < 0) {
        const struct rlimit none = {0, 0};
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, -exit_code);
        fflush(NULL);
        setrlimit(RLIMIT_CORE, &none); /* the command's core dump is the one that helps */
        signal(-exit_code, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        raise(-exit_code);
        return 128 - exit_code;
    }
    return exit_code;
}

/* Records a program. This program ends as the recorded one did, whatever became of the recording. */
static int record_command(const ckpt_profile_request *request, const ckpt_cli *cli)
{
    const ckpt_command command = {
        .argv = request->command, .output = request->output, .argc_all = cli->argc, .argv_all = cli->argv};
    ckpt_err err = {0};
    bool ran = false;
    int exit_code = 0;
    const ckpt_code code = ckpt_command_record(&command, note, &ran, &exit_code, &err);
    if (code == CKPT_OK) {
        return end_as(exit_code);
    }
    const int refused = ckpt_cli_fail(cli, &err);
    return ran ? end_as(exit_code) : refused;
}

/* Before minutes of measuring, or hours of a command's work. */
static ckpt_code check_files(const ckpt_profile_request *request, ckpt_err *err)
{
    const ckpt_cli_file file[] = {{"the model", .path = request->model},
                                  {"--import", .path = request->import},
                                  {"--times", .path = request->times},
                                  {"--roofline", .path = request->roofline},
                                  {"-o", request->output, .written = true}};
    return ckpt_cli_check_files(file, sizeof file / sizeof *file, err);
}

static int work(const ckpt_profile_request *request, const ckpt_cli *cli, ckpt_arena *arena)
{
    ckpt_err err = {0};
    if (check_files(request, &err) != CKPT_OK) {
        return ckpt_cli_fail(cli, &err);
    }
    if (request->job == CKPT_PROFILE_COMMAND) {
        return record_command(request, cli);
    }
    ckpt_cli_outlive_limits();
    ckpt_text_init(&held);
    const ckpt_code code = request->job == CKPT_PROFILE_IMPORT ? import_file(request, arena, &err)
                                                               : profile_layers(request, cli, arena, &err);
    ckpt_text_fini(&held);
    return code == CKPT_OK ? 0 : ckpt_cli_fail(cli, &err);
}

int main(int argc, char **argv)
{
    ckpt_place_leave();
    ckpt_cli cli = {
        .program = "ckpt-profile",
        .usage = "ckpt-profile [options] model.json\n"
                 "       ckpt-profile [-o trace.json] -- COMMAND...\n"
                 "       ckpt-profile [-o FILE] --import FILE [--times FILE]",
        .about =
            "Measure what each distinct layer of a model costs, alone and in training steps, on random data.\n"
            "Or run a CUDA program as it is, record what it does on GPUs as a trace, and exit as it does. Or make\n"
            "a trace or graph of what another tool recorded.",
        .option = ckpt_profile_option_table,
        .argc = argc,
        .argv = argv,
    };
    ckpt_err err = {0};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_profile_request request = {.device = "cpu"};
    request.profiler.progress = show_progress;
    request.profiler.remark = show_remark;
    request.profiler.note = show_note;
    request.set = CKPT_NEW(&arena, const char *, argc);
    if (request.set == NULL) {
        CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for the command line");
        return ckpt_cli_fail(&cli, &err);
    }
    const int stop = ckpt_profile_parse(&cli, &request);
    const int exit_code = stop == 0 ? work(&request, &cli, &arena) : stop - 1;
    ckpt_arena_fini(&arena);
    return exit_code;
}
