/* labels: unit */
/* The cost model against recorded profiles: every network under traces/<machine>/profiles is lowered without a profile,
 * for the device its machine block names, and each op's time is held against what was measured. Prints how far the
 * model is off per kind of op and per network; asserts it for devices whose rates are fitted to those recordings. */
#include "tests/support/support_test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "ops/lowering/network.h"

enum { SAMPLES_MAX = 20000, NAME_MAX_BYTES = 256 };

/* Bounds. The fit makes the median of every kind 1 over the layers that do more than start; those that only start are
 * counted here too, and are why a kind may be off by 2. A network is a weighted sum of kinds: convolutions of one
 * shape reach half again what those of another do. Networks that take less than a millisecond are all starts. */
#define OVERALL_MAX   1.25
#define KIND_MAX      2.0
#define NETWORK_MAX   1.5
#define NETWORK_LEAST ((ckpt_ns)1000 * 1000)

typedef struct ckpt_sample {
    const char *kind; /* op, or "update" */
    ckpt_direction direction;
    double ratio; /* measured by model */
} ckpt_sample;

typedef struct ckpt_samples {
    ckpt_sample *at;
    int count;
    const ckpt_device_model *device; /* of all recordings of the folder */
    char machine[NAME_MAX_BYTES];
} ckpt_samples;

static double off_by(double ratio)
{
    return ratio > 1 ? ratio : 1 / ratio;
}

static int compare_samples(const void *a, const void *b)
{
    const ckpt_sample *const x = a, *const y = b;
    const int kind = strcmp(x->kind, y->kind);
    if (kind != 0) {
        return kind;
    }
    return x->direction != y->direction ? (int)x->direction - (int)y->direction
                                        : (x->ratio > y->ratio) - (x->ratio < y->ratio);
}

static int compare_ratios(const void *a, const void *b)
{
    const double x = ((const ckpt_sample *)a)->ratio, y = ((const ckpt_sample *)b)->ratio;
    return (x > y) - (x < y);
}

static bool has_factor(const ckpt_device_model *device, const char *kind, ckpt_direction direction)
{
    for (const ckpt_op_factor *factor = device->factor; factor != NULL && factor->op != NULL; factor++) {
        if (strcmp(factor->op, kind) == 0 && factor->times[direction] > 0) {
            return true;
        }
    }
    return false;
}

/* The network as the recording had it. */
static const ckpt_lowered *lower(const ckpt_profile *profile, const ckpt_device_model *device, ckpt_arena *arena)
{
    char path[4 * NAME_MAX_BYTES];
    ckpt_err err = {0};
    (void)snprintf(path, sizeof path, "%s/models/%.200s.json", ckpt_source_dir(), profile->model);
    const ckpt_model *model = NULL;
    CHECK_OK(ckpt_model_read(path, NULL, 0, arena, &model, &err), err);
    const bool narrow = strstr(profile->machine.command, "--dtype bfloat16") != NULL;
    CHECK_OK(ckpt_model_with_dtype(model, narrow ? "bfloat16" : NULL, arena, &model, &err), err);
    const ckpt_network *network = NULL;
    const int threads = profile->machine.gpu ? CKPT_ON_GPU : profile->machine.threads;
    CHECK_OK(ckpt_network_infer(model, threads, arena, &network, &err), err);
    const ckpt_lowered *lowered = NULL;
    CHECK_OK(ckpt_network_lower(network, NULL, device, arena, &lowered, &err), err);
    return lowered;
}

static const ckpt_timing *timing_of(const ckpt_profile_row *row, ckpt_phase phase, ckpt_direction *direction)
{
    switch (phase) {
    case CKPT_FORWARD: *direction = CKPT_DIRECTION_FORWARD; return &row->forward;
    case CKPT_BACKWARD: *direction = CKPT_DIRECTION_BACKWARD; return &row->backward;
    case CKPT_UPDATE: *direction = CKPT_DIRECTION_UPDATE; return &row->update;
    default: return NULL;
    }
}

static void compare_network(const ckpt_profile *profile, ckpt_samples *samples, ckpt_arena *arena)
{
    const ckpt_lowered *const lowered = lower(profile, samples->device, arena);
    ckpt_ns measured = 0, modelled = 0;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        const ckpt_node *const node = &lowered->network->node[lowered->op_role[i].node];
        const ckpt_profile_row *const row = ckpt_profile_find(profile, node->name);
        CHECK(row != NULL, "%s has no row for %s: record it anew", profile->source, node->name);
        ckpt_direction direction = CKPT_DIRECTION_FORWARD;
        const ckpt_timing *const timing = timing_of(row, lowered->op_role[i].phase, &direction);
        if (timing == NULL || timing->repeats == 0) {
            continue; /* opaque */
        }
        measured += timing->median_ns;
        modelled += lowered->graph->op[i].time_ns;
        if (row->same_as[0] == '\0' && timing->median_ns > 0) {
            assert_true(samples->count < SAMPLES_MAX);
            samples->at[samples->count++] = (ckpt_sample){
                .kind = direction == CKPT_DIRECTION_UPDATE ? "update" : node->op->name,
                .direction = direction,
                .ratio = (double)timing->median_ns / (double)lowered->graph->op[i].time_ns,
            };
        }
    }
    const double ratio = (double)measured / (double)modelled;
    printf("  %-32s measured %10.3f ms, model %10.3f ms: %5.2f\n", profile->model, (double)measured / 1e6,
           (double)modelled / 1e6, ratio);
    CHECK(samples->device->fitted_to == NULL || measured < NETWORK_LEAST || off_by(ratio) <= NETWORK_MAX,
          "%s: measured by model is %.2f, wanted 1 up to a factor of %.2f: recorded on a busy machine, or fit anew",
          profile->source, ratio, NETWORK_MAX);
}

static void compare_kind(const ckpt_samples *samples, const ckpt_sample *first, int count)
{
    static const char *const names[] = {"forward", "backward", ""};
    const double median = first[count / 2].ratio;
    printf("  %-24s %-9s %5d layers: %6.2f (%5.2f to %5.2f)\n", first->kind, names[first->direction], count, median,
           first[count / 4].ratio, first[3 * count / 4].ratio);
    CHECK(samples->device->fitted_to == NULL || !has_factor(samples->device, first->kind, first->direction) ||
              off_by(median) <= KIND_MAX,
          "%s %s: the median of measured by model is %.2f, wanted 1 up to a factor of %.2f", first->kind,
          names[first->direction], median, KIND_MAX);
}

static void compare_kinds(ckpt_samples *samples)
{
    qsort(samples->at, (size_t)samples->count, sizeof samples->at[0], compare_samples);
    for (int i = 0, next = 0; i < samples->count; i = next) {
        next = i + 1;
        while (next < samples->count && strcmp(samples->at[next].kind, samples->at[i].kind) == 0 &&
               samples->at[next].direction == samples->at[i].direction) {
            next++;
        }
        compare_kind(samples, &samples->at[i], next - i);
    }
    qsort(samples->at, (size_t)samples->count, sizeof samples->at[0], compare_ratios);
    const double median = samples->at[samples->count / 2].ratio;
    printf("  %-34s %5d layers: %6.2f\n", "all", samples->count, median);
    CHECK(samples->device->fitted_to == NULL || off_by(median) <= OVERALL_MAX,
          "the median of all is %.2f, wanted 1 up to a factor of %.2f", median, OVERALL_MAX);
}

/* False when the table has no such device: said, and left at that. */
static bool start_machine(const ckpt_profile *profile, ckpt_samples *samples)
{
    if (samples->machine[0] != '\0') {
        CHECK(strcmp(samples->machine, profile->machine.device) == 0, "%s is of \"%s\", those before it of \"%s\"",
              profile->source, profile->machine.device, samples->machine);
        return true;
    }
    (void)snprintf(samples->machine, sizeof samples->machine, "%s", profile->machine.device);
    samples->device = ckpt_device_model_of_machine(&profile->machine);
    if (samples->device == NULL) {
        printf("%s: no device model is fitted to \"%s\" or named so\n", profile->source, profile->machine.device);
        return false;
    }
    printf("%s: device %s, rates %s; measured by model, median (first to third quartile)\n", profile->machine.device,
           samples->device->name, samples->device->fitted_to != NULL ? "fitted to recordings" : "assumed, not fitted");
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_recording(const struct dirent *entry)
{
    const char *const dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".json") == 0;
}

/* Gives how many profiles the folder has: those of a device the table knows are compared. */
static int compare_machine(const char *folder)
{
    struct dirent **entry = NULL;
    const int count = scandir(folder, &entry, is_recording, by_name);
    ckpt_samples samples = {.at = ckpt_memory_get(SAMPLES_MAX * sizeof(ckpt_sample))};
    assert_non_null(samples.at);
    bool known = true;
    for (int i = 0; i < count; i++) {
        char path[4 * NAME_MAX_BYTES];
        (void)snprintf(path, sizeof path, "%.700s/%s", folder, entry[i]->d_name);
        free(entry[i]);
        CKPT_TEST_ARENA(arena);
        const ckpt_profile *profile = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_profile_read(path, &arena, &profile, &err), err);
        known = known && start_machine(profile, &samples);
        if (known) {
            compare_network(profile, &samples, &arena);
        }
    }
    free(entry);
    if (samples.count > 0) {
        compare_kinds(&samples);
    }
    ckpt_memory_put(samples.at);
    return count > 0 ? count : 0;
}

static void recorded_profiles_against_the_model(void **state)
{
    DIR *const machines = opendir(ckpt_source_file("traces"));
    assert_non_null(machines);
    int profiles = 0;
    for (const struct dirent *entry = readdir(machines); entry != NULL; entry = readdir(machines)) {
        if (entry->d_name[0] != '.') {
            char folder[4096];
            (void)snprintf(folder, sizeof folder, "%s/traces/%s/profiles", ckpt_source_dir(), entry->d_name);
            profiles += compare_machine(folder);
        }
    }
    closedir(machines);
    CHECK(profiles >= 10, "%d recorded profiles under traces/*/profiles", profiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_profiles_against_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
