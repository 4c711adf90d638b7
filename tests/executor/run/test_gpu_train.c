/* labels: unit gpu; on a GPU: 80 s, alone */
/* What training on a GPU has beside the bits: a set-up that takes all there is to take and leaves no trace, states that
 * go from device to device, traces from the device's clock, a budget for the whole process, profiles. On the emulated
 * device, and on a real one where there is one. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "executor/setup/footprint.h"
#include "profiler/profiler.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_copies.h"
#include "tests/support/support_gpu.h"

#define SMALL_GPT "batch=1 tokens=4 hidden=8 blocks=1 heads=2 vocabulary=8"

static ckpt_executor *executor_of(const test_train *t, const ckpt_plan *plan, bool record)
{
    const ckpt_executor_options options = {.seed = 5, .poison = true, .record = record};
    return test_train_executor(t, plan, &options);
}

/* After set-up the weights, gradients, optimizer state and statistics of a GPU that has run a whole step are those of a
 * CPU that has not. */
static void a_rehearsal_leaves_no_trace(void **state)
{
    static const char *const file[] = {"tests/models/fork.json", "tests/models/resnet-small.json"};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int m = 0; m < 2; m++) {
            ckpt_err err = {0};
            test_train cpu, t;
            test_train_open(&cpu, file[m], "");
            test_train_open_on(&t, ckpt_gpus[g].device, file[m], "", NULL);
            ckpt_executor *const wanted = executor_of(&cpu, test_train_hand_plan(&cpu, true, true), false);
            ckpt_executor *const found = executor_of(&t, test_train_hand_plan(&t, true, true), true);
            for (int i = 0; i < TEST_SECTIONS; i++) {
                char a[CKPT_DIGEST_TEXT], b[CKPT_DIGEST_TEXT];
                CHECK_OK(ckpt_executor_digest(wanted, (ckpt_section)i, a, &err), err);
                CHECK_OK(ckpt_executor_digest(found, (ckpt_section)i, b, &err), err);
                CHECK(strcmp(a, b) == 0, "%s on %s: section %d is not as on the CPU", file[m], ckpt_gpus[g].name, i);
            }
            assert_true(ckpt_executor_steps(found) == 0);
            ckpt_executor_destroy(wanted);
            ckpt_executor_destroy(found);
            test_train_close(&t);
            test_train_close(&cpu);
        }
    }
}

/* Five steps of training, dropout included, go as on the CPU: its masks come from seed and step, which a replayed step
 * must be told anew. Float32 sums are taken in another order (some hundred roundings of 2^-24, grown by five steps of a
 * rate of 0.01); bfloat16 rounds every activation by 2^-9, and losses are means. Another mask
 * changes the loss by 1e-3. */
static void trains_as_the_cpu(void **state)
{
    static const struct {
        const char *dtype;
        bool record;
        float bound;
    } way[] = {{"float32", false, 1e-4f}, {"float32", true, 1e-4f}, {"bfloat16", true, 1e-2f}};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        test_train cpu;
        test_record wanted, found;
        test_train_open(&cpu, "tests/models/fork.json", "");
        test_train_run(&cpu, &(test_run){.plan = test_train_hand_plan(&cpu, false, false), .seed = 5}, &wanted);
        for (int w = 0; w < 3; w++) {
            test_train t;
            test_train_open_on(&t, ckpt_gpus[g].device, "tests/models/fork.json", "", way[w].dtype);
            const ckpt_plan *const plan = test_train_hand_plan(&t, true, true);
            test_train_run(&t, &(test_run){.plan = plan, .seed = 5, .record = way[w].record}, &found);
            for (int s = 0; s < TEST_TRAIN_STEPS; s++) {
                const float apart = found.loss[s] - wanted.loss[s];
                CHECK(apart < way[w].bound && apart > -way[w].bound, "%s on %s%s: loss of step %d is %g, on the CPU %g",
                      way[w].dtype, ckpt_gpus[g].name, way[w].record ? ", replayed" : "", s + 1, (double)found.loss[s],
                      (double)wanted.loss[s]);
            }
            test_train_close(&t);
        }
        test_train_close(&cpu);
    }
}

/* No step reserves anything, neither of the device's memory nor page-locked. The emulated device counts; of a real one
 * test_cuda_device looks at the free memory. */
static void steps_reserve_nothing(void **state)
{
    if (ckpt_gpus[0].device->api != &ckpt_device_emulated) {
        return;
    }
    for (int m = 0; m < 2; m++) {
        for (int record = 0; record < 2; record++) {
            ckpt_err err = {0};
            test_train t;
            test_train_open_on(&t, ckpt_gpus[0].device,
                               m == 0 ? "tests/models/fork.json" : "tests/models/resnet-small.json", "",
                               record != 0 ? "bfloat16" : NULL);
            const ckpt_plan *const plan = test_train_hand_plan(&t, true, true);
            const int64_t bytes = ckpt_emulated_device_bytes(), host = ckpt_emulated_host_bytes();
            ckpt_executor *const executor = executor_of(&t, plan, record != 0);
            const int64_t reservations = ckpt_emulated_reservations();
            assert_true(ckpt_emulated_device_bytes() >= bytes + plan->static_bytes + plan->arena_bytes);
            assert_true(ckpt_emulated_host_bytes() >= host + plan->host_bytes);
            float loss = 0;
            for (int s = 0; s < 3; s++) {
                CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
            }
            assert_int_equal(ckpt_emulated_reservations(), reservations);
            ckpt_executor_destroy(executor);
            assert_int_equal(ckpt_emulated_device_bytes(), bytes);
            assert_int_equal(ckpt_emulated_host_bytes(), host);
            test_train_close(&t);
        }
    }
}

/* What a step of a GPT of one block starts, by number, so that a launch too many is seen. 15 are products of the
 * library, one is the update of all 16 parameters; the sums of the residual stream start none in backward, and a norm
 * whose gradient is added there two, as any other. */
static void launches_are_counted(void **state)
{
    enum { OWN = 35, PRODUCTS = 15 }; /* on a GPU a product may be more than one kernel */
    for (int i = 0; i < 2 * ckpt_gpus_count; i++) {
        const ckpt_gpu *const gpu = &ckpt_gpus[i / 2];
        const char *const dtype = i % 2 == 0 ? "float32" : "bfloat16";
        test_train t;
        test_train_open_on(&t, gpu->device, "models/byte-gpt.json", SMALL_GPT, dtype);
        const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
        for (int record = 0; record < 2; record++) {
            ckpt_launches launches = {0};
            bool replayed = false;
            ckpt_executor *const executor =
                test_train_executor(&t, plan, &(ckpt_executor_options){.record = record != 0});
            assert_true(ckpt_executor_launches(executor, &launches, &replayed));
            assert_int_equal(replayed, record != 0);
            const int64_t wanted = record != 0 ? OWN + PRODUCTS : OWN;
            const bool more = record != 0 && gpu->device->api != &ckpt_device_emulated && launches.kernels > wanted;
            CHECK((launches.kernels == wanted || more) && launches.copies == 0,
                  "%s on %s: %lld kernels and %lld copies, wanted %lld and 0", dtype, gpu->name,
                  (long long)launches.kernels, (long long)launches.copies, (long long)wanted);
            ckpt_executor_destroy(executor);
        }
        test_train_close(&t);
    }
}

static ckpt_code read_state(test_train *t, const char *path, char weights[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_executor *const executor = executor_of(t, test_train_hand_plan(t, false, false), true);
    ckpt_code code = ckpt_executor_state_read(executor, path, err);
    if (code == CKPT_OK) {
        code = ckpt_executor_digest(executor, CKPT_SECTION_WEIGHTS, weights, err);
    }
    ckpt_executor_destroy(executor);
    return code;
}

/* From the CPU to a GPU and back; not into another dtype. Resumed, a run in bfloat16 has the bits of one that never
 * stopped, so the copy of the weights is made from them. */
static void states_go_from_device_to_device(void **state)
{
    const char *const path = ckpt_work_file("gpu_train.state");
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_err err = {0};
        char weights[CKPT_DIGEST_TEXT];
        test_train cpu, t, half;
        test_record whole, first, rest;
        test_train_open(&cpu, "models/byte-gpt.json", SMALL_GPT);
        test_train_open_on(&t, ckpt_gpus[g].device, "models/byte-gpt.json", SMALL_GPT, NULL);
        test_train_open_on(&half, ckpt_gpus[g].device, "models/byte-gpt.json", SMALL_GPT, "bfloat16");
        test_train_run(
            &cpu, &(test_run){.plan = test_train_hand_plan(&cpu, false, false), .seed = 5, .state_out = path}, &whole);
        CHECK_OK(read_state(&t, path, weights, &err), err);
        assert_string_equal(weights, whole.digest[TEST_TRAIN_STEPS - 1][CKPT_SECTION_WEIGHTS]);
        assert_int_equal(read_state(&half, path, weights, &err), CKPT_BAD_INPUT);
        assert_non_null(strstr(err.msg, "dtype"));

        test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, false, false), .seed = 5, .state_out = path},
                       &whole);
        CHECK_OK(read_state(&cpu, path, weights, &err), err);
        assert_string_equal(weights, whole.digest[TEST_TRAIN_STEPS - 1][CKPT_SECTION_WEIGHTS]);

        const ckpt_plan *const plan = test_train_hand_plan(&half, true, true);
        test_train_run(&half, &(test_run){.plan = plan, .seed = 5, .record = true}, &whole);
        test_train_run(&half, &(test_run){.plan = plan, .seed = 5, .record = true, .steps = 2, .state_out = path},
                       &first);
        test_train_run(&half, &(test_run){.plan = plan, .record = true, .state_in = path}, &rest);
        test_record_same(&whole, &rest, 2, "resumed in bfloat16");
        test_train_close(&half);
        test_train_close(&t);
        test_train_close(&cpu);
    }
}

/* As the other devices, in trains_as_the_cpu. */
static void the_cpu_trains_in_bfloat16(void **state)
{
    test_record wanted, found;
    for (int narrow = 0; narrow < 2; narrow++) {
        test_train t;
        test_train_open_as(&t, "tests/models/fork.json", "", narrow != 0 ? "bfloat16" : "float32");
        const ckpt_plan *const plan = test_train_hand_plan(&t, narrow != 0, false);
        test_train_run(&t, &(test_run){.plan = plan, .seed = 5}, narrow != 0 ? &found : &wanted);
        test_train_close(&t);
    }
    for (int s = 0; s < TEST_TRAIN_STEPS; s++) {
        const float apart = found.loss[s] - wanted.loss[s];
        CHECK(apart != 0 && apart < 1e-2f && apart > -1e-2f, "loss of step %d is %g in bfloat16, %g in float32", s + 1,
              (double)found.loss[s], (double)wanted.loss[s]);
    }
}

/* A parameter that is set reaches the copy that products read: the loss changes. */
static void a_parameter_that_is_set_is_narrowed(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_err err = {0};
        test_train t;
        test_train_open_on(&t, ckpt_gpus[g].device, "tests/models/fork.json", "", "bfloat16");
        const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
        float loss[2], zero[256] = {0}, back[256];
        for (int changed = 0; changed < 2; changed++) {
            ckpt_executor *const executor = executor_of(&t, plan, true);
            if (changed != 0) {
                CHECK_OK(ckpt_executor_param_set(executor, 0, 0, zero, &err), err);
                CHECK_OK(ckpt_executor_param(executor, 0, 0, back, &err), err);
                assert_memory_equal(zero, back, sizeof zero);
            }
            float *const x = ckpt_executor_input(executor, 0);
            for (int i = 0; i < 6 * 16; i++) {
                x[i] = (float)(i % 7) - 3.0f;
            }
            CHECK_OK(ckpt_executor_step(executor, &loss[changed], NULL, &err), err);
            ckpt_executor_destroy(executor);
        }
        assert_memory_not_equal(&loss[0], &loss[1], sizeof loss[0]);
        test_train_close(&t);
    }
}

/* Times come from the device: in the order of the streams, and not before the step began. */
static void traces_have_the_device_s_times(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_err err = {0};
        test_train t;
        test_train_open_on(&t, ckpt_gpus[g].device, "tests/models/fork.json", "", NULL);
        const ckpt_plan *const plan = test_train_hand_plan(&t, true, true);
        ckpt_executor *const executor = executor_of(&t, plan, true);
        ckpt_trace *trace = NULL;
        CHECK_OK(ckpt_executor_trace_create(executor, &t.arena, &trace, &err), err);
        float loss = 0;
        CHECK_OK(ckpt_executor_step(executor, &loss, trace, &err), err);
        assert_int_equal(trace->event_count, plan->step_count);
        assert_true(trace->machine.gpu && trace->peak_bytes == plan->peak_bytes);
        ckpt_device_memory memory;
        CHECK_OK(ckpt_gpus[g].device->api->memory(ckpt_gpus[g].device, &memory, &err), err);
        assert_int_equal(trace->capacity_bytes, memory.total);
        assert_string_equal(trace->machine.device, ckpt_gpus[g].device->api->describe(ckpt_gpus[g].device));
        ckpt_ns last[3] = {0};
        for (int i = 0; i < trace->event_count; i++) {
            const ckpt_event *const event = &trace->event[i];
            ckpt_ns *const before = &last[strcmp(event->stream, "compute") == 0 ? 0 : event->stream[0] == 'd' ? 1 : 2];
            assert_true(event->start_ns >= *before && event->end_ns >= event->start_ns);
            *before = event->end_ns;
        }
        assert_true(last[0] > 0 && last[1] > 0 && last[2] > 0);
        ckpt_executor_destroy(executor);
        test_train_close(&t);
    }
}

static void a_budget_is_for_the_whole_process(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_err err = {0};
        ckpt_footprint f;
        CHECK_OK(ckpt_footprint_read(ckpt_gpus[g].device, 1000, 500, &f, &err), err);
        assert_true(f.device.total > 0 && f.device.free > 0 && f.device.free < f.device.total);
        const ckpt_bytes beside = f.device.context + f.device.libraries;
        assert_true(beside > 0);
        CHECK_OK(ckpt_footprint_check(&f, 1500 + beside, -1, &err), err);
        assert_int_equal(ckpt_footprint_check(&f, 1499 + beside, -1, &err), CKPT_NO_MEMORY);
        char wanted[64];
        snprintf(wanted, sizeof wanted, "ckpt-plan --budget %d", 1499);
        assert_non_null(strstr(err.msg, wanted));
        CHECK_OK(ckpt_footprint_check(&f, 1500, 0, &err), err);
        CHECK_OK(ckpt_footprint_check(&f, 2000, 500, &err), err);
        assert_int_equal(ckpt_footprint_check(&f, 2000, 501, &err), CKPT_NO_MEMORY);
        assert_int_equal(ckpt_footprint_check(&f, 2000, 2000, &err), CKPT_NO_MEMORY);
        assert_int_equal(ckpt_footprint_check(&f, CKPT_BYTES_MAX, CKPT_BYTES_MAX, &err), CKPT_NO_MEMORY);
    }
}

/* A profile of the device, in both dtypes, and a plan made from it that trains. */
static void profiles(void **state)
{
    static const char *const dtype[] = {"float32", "bfloat16"};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int d = 0; d < 2; d++) {
            ckpt_err err = {0};
            test_train t;
            test_train_open_on(&t, ckpt_gpus[g].device, "models/byte-gpt.json", SMALL_GPT, dtype[d]);
            ckpt_profile *profile = NULL;
            const ckpt_profiler_options options = {.repeats = 3};
            CHECK_OK(ckpt_profile_run(t.device, t.lowered, &options, &t.arena, &profile, &err), err);
            for (int i = 0; i < profile->row_count; i++) {
                assert_true(profile->row[i].forward.median_ns > 0 && profile->row[i].forward.repeats == 3);
            }
            assert_true(profile->d2h_bytes_per_s > 0 && profile->h2d_bytes_per_s > 0);
            CHECK_OK(ckpt_network_lower(t.lowered->network, profile, NULL, &t.arena, &t.lowered, &err), err);
            assert_true(t.lowered->graph->has_link);
            test_record measured, allowed;
            test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, true, false), .steps = 2}, &measured);
            CHECK_OK(ckpt_network_lower(t.lowered->network, NULL, NULL, &t.arena, &t.lowered, &err), err);
            test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, true, false), .steps = 2}, &allowed);
            test_record_same(&allowed, &measured, 0, "workspaces of a profile");
            test_train_close(&t);
        }
    }
}

static int open_devices(void **state)
{
    ckpt_emulated_guard(false);
    return ckpt_gpus_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rehearsal_leaves_no_trace),
        cmocka_unit_test(trains_as_the_cpu),
        cmocka_unit_test(steps_reserve_nothing),
        cmocka_unit_test(launches_are_counted),
        cmocka_unit_test(states_go_from_device_to_device),
        cmocka_unit_test(the_cpu_trains_in_bfloat16),
        cmocka_unit_test(a_parameter_that_is_set_is_narrowed),
        cmocka_unit_test(traces_have_the_device_s_times),
        cmocka_unit_test(a_budget_is_for_the_whole_process),
        cmocka_unit_test(profiles),
    };
    return cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
}
