/* labels: cuda; on a GPU: 80 s, alone */
/* Tests that need a GPU, on cuda:0: free memory does not change after set-up; a replayed step has the bits of one that
 * is started kernel by kernel; nothing depends on the arena's address; products, convolutions and attention in the
 * shapes of real networks are right compared with the CPU. Exit code 77 without a device. With CKPT_TEST_EMULATED=1 it
 * runs on the emulated device, in small shapes, which tests this file, not the GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/executor.h"
#include "ops/device_model.h"
#include "planner/api/planner.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_data.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

enum { SEED = 20261120, STEPS = 4, INPUTS = 8, SECTIONS = 4, NO_DEVICE = 77 };

static ckpt_device *gpu, *cpu;
static bool emulated;

/* --- training --- */

typedef struct fixture {
    ckpt_arena arena;
    const ckpt_model *model;
    const ckpt_lowered *lowered;
    int64_t limit[INPUTS];
} fixture;

static void fixture_open(fixture *f, const char *file, const char *const *set, int set_count, const char *dtype)
{
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    const ckpt_device_model *roofline = NULL;
    ckpt_arena_init(&f->arena);
    const char *const path = ckpt_arena_format(&f->arena, "%s/%s", ckpt_source_dir(), file);
    CHECK_OK(ckpt_model_read(path, set, set_count, &f->arena, &f->model, &err), err);
    CHECK_OK(ckpt_model_with_dtype(f->model, dtype, &f->arena, &f->model, &err), err);
    CHECK_OK(ckpt_network_infer(f->model, CKPT_ON_GPU, &f->arena, &network, &err), err);
    CHECK_OK(ckpt_device_model_find("h200", &f->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, roofline, &f->arena, &f->lowered, &err), err);
    assert_true(f->model->input_count <= INPUTS);
    ckpt_data_class_limits(network, f->limit);
}

static ckpt_plan *plan_for(fixture *f, const char *strategy, ckpt_bytes budget)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.budget_bytes = budget, .effort = CKPT_EFFORT_LOW};
    CHECK_OK(ckpt_plan_make(f->lowered->graph, strategy, &options, &f->arena, &plan, &err), err);
    return plan;
}

/* The results of a run, for comparison with another. */
typedef struct record {
    float loss[STEPS];
    char digest[SECTIONS][CKPT_DIGEST_TEXT];
} record;

static ckpt_bytes free_bytes(void)
{
    ckpt_err err = {0};
    ckpt_device_memory memory = {0};
    CHECK_OK(gpu->api->memory(gpu, &memory, &err), err);
    return memory.free;
}

/* Trains STEPS steps. spacer: bytes reserved before the executor's blocks, so that their addresses differ. */
static void run(const fixture *f, const ckpt_plan *plan, const ckpt_executor_options *options, ckpt_bytes spacer,
                record *r)
{
    ckpt_err err = {0};
    void *space = NULL, *input[INPUTS];
    ckpt_executor *executor = NULL;
    ckpt_data *data = NULL;
    memset(r, 0, sizeof *r);
    if (spacer > 0) {
        CHECK_OK(gpu->api->reserve(gpu, spacer, &space, &err), err);
    }
    CHECK_OK(ckpt_executor_create(gpu, f->lowered, plan, options, &executor, &err), err);
    CHECK_OK(ckpt_data_open("synthetic", f->model, f->limit, options->seed, &data, &err), err);
    for (int i = 0; i < f->model->input_count; i++) {
        input[i] = ckpt_executor_input(executor, i);
    }
    const ckpt_bytes after_setup = free_bytes();
    const int64_t reservations = ckpt_emulated_reservations();
    for (int s = 0; s < STEPS; s++) {
        ckpt_test_fill(data, (uint64_t)s, input);
        CHECK_OK(ckpt_executor_step(executor, &r->loss[s], NULL, &err), err);
        const ckpt_bytes left = free_bytes();
        CHECK(ckpt_gpu_same_memory(gpu, "free after a step", left, after_setup),
              "step %d took %lld bytes of the device", s + 1, (long long)(after_setup - left));
    }
    CHECK(ckpt_emulated_reservations() == reservations, "%s: something was reserved by a step", f->model->name);
    CHECK(ckpt_executor_peak(executor) == plan->peak_bytes, "%s, %s: peak %lld, planned %lld", f->model->name,
          plan->solver, (long long)ckpt_executor_peak(executor), (long long)plan->peak_bytes);
    for (int i = 0; i < SECTIONS; i++) {
        CHECK_OK(ckpt_executor_digest(executor, (ckpt_section)i, r->digest[i], &err), err);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    gpu->api->release(gpu, space, spacer);
}

static void same(const record *wanted, const record *found, const char *what)
{
    static const char *const section[SECTIONS] = {"weights", "gradients", "optimizer state", "statistics"};
    for (int s = 0; s < STEPS; s++) {
        CHECK(memcmp(&wanted->loss[s], &found->loss[s], sizeof found->loss[s]) == 0,
              "%s: loss of step %d is %a, wanted %a", what, s + 1, (double)found->loss[s], (double)wanted->loss[s]);
    }
    for (int i = 0; i < SECTIONS; i++) {
        CHECK(strcmp(wanted->digest[i], found->digest[i]) == 0, "%s: %s differ", what, section[i]);
    }
}

/* Every plan, replayed or not, with NaN in freed memory or not, at other addresses or not, gives one result. */
static void train_every_way(const char *file, const char *const *set, int set_count, const char *dtype)
{
    static const struct {
        const char *what;
        ckpt_executor_options options;
        ckpt_bytes spacer;
    } way[] = {
        {"step by step", {.seed = SEED}, 0},
        {"replayed", {.seed = SEED, .record = true}, 0},
        {"NaN in freed memory", {.seed = SEED, .poison = true}, 0},
        {"replayed, NaN in freed memory", {.seed = SEED, .record = true, .poison = true}, 0},
        {"replayed, at another address", {.seed = SEED, .record = true}, (3 << 20) + 4096},
    };
    fixture f;
    fixture_open(&f, file, set, set_count, dtype);
    const ckpt_plan *const all = plan_for(&f, "keep-all", 0);
    const ckpt_bytes half = all->static_bytes + all->arena_bytes / 2;
    const char *const strategy[] = {"keep-all", "recompute-only", "offload-only", "auto"};
    record wanted = {0}, found;
    bool first = true;
    for (size_t i = 0; i < sizeof strategy / sizeof *strategy; i += emulated ? 2 : 1) {
        const ckpt_plan *plan = plan_for(&f, strategy[i], i == 0 ? 0 : half);
        if (plan->verdict != CKPT_FITS) {
            plan = plan_for(&f, strategy[i], plan->min_budget_bytes);
        }
        assert_int_equal(plan->verdict, CKPT_FITS);
        /* on a GPU all combinations for two of the plans and the first two for the others: set-up of a real network
         * takes a second */
        const size_t ways = emulated || i % 3 == 0 ? sizeof way / sizeof *way : 2;
        for (size_t w = 0; w < ways; w++) {
            char what[160];
            snprintf(what, sizeof what, "%s, %s, %s, %s", file, dtype, strategy[i], way[w].what);
            run(&f, plan, &way[w].options, way[w].spacer, first ? &wanted : &found);
            if (!first) {
                same(&wanted, &found, what);
            }
            first = false;
        }
    }
    for (int s = 1; s < STEPS; s++) {
        CHECK(wanted.loss[s] != wanted.loss[0], "%s: the loss of step %d is that of step 1", file, s + 1);
    }
    ckpt_arena_fini(&f.arena);
}

static void gpt(void **state)
{
    static const char *const small[] = {"batch=2", "tokens=16", "hidden=32", "blocks=2", "heads=2", "vocabulary=64"};
    static const char *const large[] = {"batch=8", "tokens=256", "hidden=384", "blocks=4", "heads=6"};
    for (int i = 0; i < 2; i++) {
        train_every_way("models/byte-gpt.json", emulated ? small : large, emulated ? 6 : 5,
                        i == 0 ? "float32" : "bfloat16");
    }
}

static void resnet(void **state)
{
    static const char *const large[] = {"batch=8", "size=64"};
    for (int i = 0; i < 2; i++) {
        train_every_way(emulated ? "tests/models/resnet-small.json" : "models/resnet50.json", large, emulated ? 0 : 2,
                        i == 0 ? "float32" : "bfloat16");
    }
}

/* --- ops in the shapes of real networks --- */

#define F(...)                                                                                                         \
    {                                                                                                                  \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ }                             \
    }
#define IDS(most, ...)                                                                                                 \
    {                                                                                                                  \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = {__VA_ARGS__}, .limit = (most)              \
    }
#define INT(n, x)                                                                                                      \
    {                                                                                                                  \
        .name = (n), .kind = CKPT_INT, .integer = (x)                                                                  \
    }
#define FLAG(n, x)                                                                                                     \
    {                                                                                                                  \
        .name = (n), .kind = CKPT_BOOL, .integer = (x)                                                                 \
    }

static const ckpt_case large_cases[] = {
    {.op = "linear", .in = {F(2, 512, 768)}, .attr = {INT("features", 2304)}},
    {.op = "linear", .in = {F(512, 1600)}, .attr = {INT("features", 6400)}},
    {.op = "linear", .in = {F(100, 768)}, .attr = {INT("features", 50257), FLAG("bias", 0)}},
    {.op = "attention", .in = {F(2, 512, 2304)}, .attr = {INT("heads", 12), FLAG("causal", 1)}},
    {.op = "attention", .in = {F(1, 1000, 768)}, .attr = {INT("heads", 4)}},
    {.op = "conv2d",
     .in = {F(8, 64, 56, 56)},
     .attr = {INT("out_channels", 64), INT("kernel_size", 3), INT("padding", 1), FLAG("bias", 0)}},
    {.op = "conv2d",
     .in = {F(4, 3, 224, 224)},
     .attr = {INT("out_channels", 64), INT("kernel_size", 7), INT("stride", 2), INT("padding", 3), FLAG("bias", 0)}},
    {.op = "conv2d",
     .in = {F(8, 1024, 14, 14)},
     .attr = {INT("out_channels", 2048), INT("kernel_size", 1), INT("stride", 2), FLAG("bias", 0)}},
    {.op = "batchnorm", .in = {F(16, 256, 56, 56)}},
    {.op = "layernorm", .in = {F(4, 1024, 1600)}},
    {.op = "cross_entropy", .in = {F(512, 50257), IDS(50257, 512)}, .fill = CKPT_FILL_WIDE},
    {.op = "embedding", .in = {IDS(50257, 8, 1024)}, .attr = {INT("rows", 50257), INT("features", 768)}},
};

static const ckpt_case small_cases[] = {
    {.op = "linear", .in = {F(65, 40)}, .attr = {INT("features", 72)}},
    {.op = "attention", .in = {F(1, 70, 96)}, .attr = {INT("heads", 2), FLAG("causal", 1)}},
};

static void compare_all(ckpt_gpu_case *c, bool backward)
{
    for (int k = 0; k < c->node->out_count && !backward; k++) {
        ckpt_gpu_compare(c, "output", k, &c->out[k], false, 0);
    }
    for (int k = 0; k < c->node->in_count && backward; k++) {
        if ((c->node->grad_in >> k & 1) != 0) {
            ckpt_gpu_compare(c, "gradient of input", k, &c->grad_in[k], true, 0);
        }
    }
    for (int k = 0; k < c->node->param_count && backward; k++) {
        ckpt_gpu_compare(c, "gradient of parameter", k, &c->grad_param[k], true, 0);
    }
}

/* Compares with the CPU; then at other addresses, with NaN in the workspace, the same bits. */
static void check_case(ckpt_gpu_case *c)
{
    static const ckpt_run plain = {0}, moved = {.shift = 3, .workspace_byte = 0xFF, .guard_byte = 0xFF};
    for (int backward = 0; backward < 2 && !c->failed; backward++) {
        size_t length = 0, recomputed = 0;
        if (backward != 0) {
            ckpt_gpu_want_backward(c, 0);
            ckpt_gpu_backward(c, &plain);
        } else {
            ckpt_gpu_want_forward(c, false);
            ckpt_gpu_forward(c, &plain);
        }
        compare_all(c, backward != 0);
        const unsigned char *const bits = ckpt_gpu_snapshot(c, backward != 0, &length);
        (backward != 0 ? ckpt_gpu_backward : ckpt_gpu_forward)(c, &moved);
        const unsigned char *const now = ckpt_gpu_snapshot(c, backward != 0, &recomputed);
        if (!c->failed && (length != recomputed || memcmp(bits, now, length) != 0)) {
            ckpt_gpu_report(c, "%s: other bits at another address", backward != 0 ? "backward" : "forward");
        }
    }
}

static void large_shapes(void **state)
{
    const ckpt_case *const table = emulated ? small_cases : large_cases;
    const int count =
        (int)(emulated ? sizeof small_cases / sizeof *small_cases : sizeof large_cases / sizeof *large_cases);
    ckpt_gpu_case *const c = ckpt_memory_get(sizeof *c);
    ckpt_gpu there = {.name = emulated ? "emulated" : "cuda:0", .device = gpu};
    assert_non_null(c);
    for (int i = 0; i < 2 * count; i++) {
        const ckpt_dtype dtype = i % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16;
        if (ckpt_gpu_case_init(c, &table[i / 2], i / 2, dtype, &there, cpu, SEED)) {
            check_case(c);
        }
        ckpt_gpu_case_fini(c);
    }
    ckpt_gpu_put(&there);
    ckpt_memory_put(c);
    CHECK(ckpt_gpu_reports() == 0, "%d failures, listed above", ckpt_gpu_reports());
}

/* Reported memory adds up: reserving reduces only `free`, releasing restores it. */
static void memory_is_reported(void **state)
{
    enum { BYTES = 64 << 20 };
    ckpt_err err = {0};
    ckpt_device_memory before = {0}, with = {0}, after = {0};
    void *block = NULL;
    CHECK_OK(gpu->api->memory(gpu, &before, &err), err);
    CHECK_OK(gpu->api->reserve(gpu, BYTES, &block, &err), err);
    CHECK_OK(gpu->api->memory(gpu, &with, &err), err);
    gpu->api->release(gpu, block, BYTES);
    CHECK_OK(gpu->api->memory(gpu, &after, &err), err);
    print_message("%s; %s: total %lld, context %lld, libraries %lld\n", gpu->api->describe(gpu),
                  gpu->api->libraries(gpu), (long long)before.total, (long long)before.context,
                  (long long)before.libraries);
    CHECK(ckpt_gpu_same_memory(gpu, "free with a block", with.free, before.free - BYTES), "%d bytes reserved took %lld",
          BYTES, (long long)(before.free - with.free));
    CHECK(with.context == before.context &&
              ckpt_gpu_same_memory(gpu, "libraries with a block", with.libraries, before.libraries),
          "the block counts as libraries");
    CHECK(ckpt_gpu_same_memory(gpu, "free without it", after.free, before.free), "%lld bytes did not come back",
          (long long)(before.free - after.free));
    CHECK(before.context + before.libraries <= before.total - before.free + (emulated ? 0 : CKPT_GPU_OTHERS),
          "more is named than is taken");
}

int main(void)
{
    ckpt_err err = {0};
    const char *const rehearse = getenv("CKPT_TEST_EMULATED");
    emulated = rehearse != NULL && strcmp(rehearse, "1") == 0;
    const ckpt_code code =
        emulated ? ckpt_device_emulated.open(0, 1, &gpu, &err) : ckpt_device_open("cuda:0", 1, &gpu, &err);
    if (code != CKPT_OK) {
        printf("skipped: no device: %s\n", err.msg);
        return NO_DEVICE;
    }
    if (ckpt_device_open("cpu", 2, &cpu, &err) != CKPT_OK) {
        printf("no CPU: %s\n", err.msg);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_reported),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(gpt),
        cmocka_unit_test(resnet),
    };
    const int failed = cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
    ckpt_device_close(cpu);
    ckpt_device_close(gpu);
    return failed;
}
