/* labels: contract gpu; on a GPU: 60 s, together */
/* Rows of logits with a pitch on a GPU, the emulated one always:
 *   - on the emulated one a network with a pitch has the bits of the same network without, for every kind of plan and
 *     scheme: loss, weights, gradients, optimizer state. Its rows start at multiples of 16 bytes in both cases, so that
 *     no sum has another order;
 *   - a network with 4099 classes trains as on the CPU, and as without a pitch; states go from one to the other. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "executor/data/data.h"
#include "ops/device_model.h"
#include "profiler/profiler.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_train.h"

enum { SEED = 5, STEPS = 3 };

/* A head that is tied to the embedding; one with a weight and a bias of its own. */
#define TIED     "models/gpt2-124m.json"
#define TIED_SET "batch=3 tokens=4 positions=4 hidden=8 blocks=1 heads=2 vocabulary=%d"
#define OWN      "tests/models/fork.json"
#define OWN_SET  "batch=6 width=8 classes=%d"

/* ------------------------------------------------------------------------------------------------ bits */

/* A network and its graph with a pitch of the last head, or without; like inference, but for any width. */
static void set_pitch(test_train *t, int64_t pitch)
{
    ckpt_err err = {0};
    ckpt_network *const network = CKPT_NEW(&t->arena, ckpt_network, 1);
    ckpt_node *const node = CKPT_NEW(&t->arena, ckpt_node, t->network->node_count);
    ckpt_value *const value = CKPT_NEW(&t->arena, ckpt_value, t->network->value_count);
    ckpt_tensor *const in = CKPT_NEW(&t->arena, ckpt_tensor, 2);
    *network = *t->network;
    for (int n = 0; n < network->node_count; n++) {
        node[n] = network->node[n];
        CHECK_OK(ckpt_node_own(&node[n], &t->arena, &err), err);
    }
    memcpy(value, network->value, (size_t)network->value_count * sizeof *value);
    ckpt_node *const loss = &node[network->loss_node];
    ckpt_node *const head = &node[value[loss->in_value[0]].node];
    const ckpt_shape *const shape = &head->out[0].shape;
    const int64_t row = shape->dim[shape->rank - 1];
    memcpy(in, loss->in, 2 * sizeof *in);
    head->out[0].pitch = value[loss->in_value[0]].tensor.pitch = in[0].pitch = pitch;
    loss->in = in;
    for (int k = 0; k < head->param_count; k++) {
        ckpt_param *const param = &head->param[k];
        param->padding = pitch > 0 ? ckpt_shape_count(&param->tensor.shape) / row * (pitch - row) : 0;
        if (param->tied >= 0) {
            node[param->tied].param[k].padding = param->padding;
        }
    }
    head->op->gpu_workspace(head, &head->forward_workspace_bytes, &head->backward_workspace_bytes);
    network->node = node;
    network->value = value;
    t->network = network;
    CHECK_OK(ckpt_network_lower(network, NULL, NULL, &t->arena, &t->lowered, &err), err);
}

typedef struct how {
    const char *what, *strategy;
    int micro_batches;
    bool fused, apart, poison, record;
    double clip;
    uint64_t order; /* of the emulated streams; 0: work is done at once */
} how;

static const how hows[] = {
    {.what = "keep-all", .strategy = "keep-all"},
    {.what = "recomputed, poisoned", .strategy = "recompute-only", .poison = true},
    {.what = "offloaded, late copies", .strategy = "joint", .poison = true, .order = 11},
    {.what = "replayed", .strategy = "recompute-only", .record = true},
    {.what = "micro-batches", .strategy = "recompute-only", .micro_batches = 2, .poison = true},
    {.what = "fused", .strategy = "keep-all", .micro_batches = 2, .fused = true, .poison = true},
    {.what = "copies of tied weights", .strategy = "keep-all", .apart = true},
    {.what = "clipped", .strategy = "keep-all", .clip = 0.01},
};

static void run(test_train *t, const how *h, test_record *record)
{
    ckpt_err err = {0};
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = h->micro_batches > 0 ? h->micro_batches : 1;
    scheme.fused = h->fused;
    scheme.apart = h->apart;
    test_train_spread(t, &scheme, h->clip, 1);
    const bool least = strcmp(h->strategy, "keep-all") != 0;
    const ckpt_plan *plan = test_train_plan(t, h->strategy, least ? 1 : 0);
    plan = least ? test_train_plan(t, h->strategy, plan->min_budget_bytes) : plan;
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    ckpt_emulated_schedule(h->order);
    test_train_run(t, &(test_run){.plan = plan, .seed = SEED, .steps = STEPS, .poison = h->poison, .record = h->record},
                   record);
    ckpt_emulated_schedule(0);
    CHECK(record->peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", h->what,
          (long long)record->peak_bytes, (long long)plan->peak_bytes);
}

/* As close as training on another device, see test_gpu_train. */
static void near_losses(const test_record *wanted, const test_record *found, const char *dtype, const char *what)
{
    const float bound = strcmp(dtype, "bfloat16") == 0 ? 1e-2f : 1e-4f;
    for (int s = 0; s < STEPS; s++) {
        const float apart = found->loss[s] - wanted->loss[s];
        CHECK(apart < bound && apart > -bound, "%s: loss of step %d is %g, wanted %g", what, s + 1,
              (double)found->loss[s], (double)wanted->loss[s]);
    }
}

/* The logits' buffers and the static block with a pitch and without. */
static void sizes(const test_train *t, ckpt_bytes *logits, ckpt_bytes *statics)
{
    const ckpt_graph *const graph = t->lowered->graph;
    *logits = *statics = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        *logits += strncmp(graph->buffer[b].name, "head", 4) == 0 ? graph->buffer[b].bytes : 0;
    }
    for (int i = 0; i < graph->static_count; i++) {
        *statics += graph->statics[i].bytes;
    }
}

static void check_bits(const ckpt_gpu *on, const char *file, const char *set, const char *dtype)
{
    enum { CLASSES = 24, PITCH = 64 };
    char text[128];
    snprintf(text, sizeof text, set, CLASSES);
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        test_train dense, pitched;
        test_record wanted, found;
        ckpt_bytes logits[2], statics[2];
        char what[128];
        test_train_open_on(&dense, on->device, file, text, dtype);
        test_train_open_on(&pitched, on->device, file, text, dtype);
        set_pitch(&dense, 0);
        set_pitch(&pitched, PITCH);
        sizes(&dense, &logits[0], &statics[0]);
        sizes(&pitched, &logits[1], &statics[1]);
        assert_true(logits[1] >= 2 * logits[0] && statics[1] > statics[0]);
        snprintf(what, sizeof what, "%s on %s in %s, %s", file, on->name, dtype, hows[i].what);
        run(&dense, &hows[i], &wanted);
        run(&pitched, &hows[i], &found);
        if (on->device->api == &ckpt_device_emulated) {
            test_record_same(&wanted, &found, 0, what);
        } else { /* cuBLASLt may sum in another order if a dimension differs */
            near_losses(&wanted, &found, dtype, what);
        }
        CHECK(strcmp(wanted.digest[0][0], wanted.digest[1][0]) != 0, "%s: trains nothing", what);
        test_train_close(&pitched);
        test_train_close(&dense);
    }
}

static void bits_of_dense_rows(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_bits(&ckpt_gpus[g], TIED, TIED_SET, "float32");
        check_bits(&ckpt_gpus[g], TIED, TIED_SET, "bfloat16");
        check_bits(&ckpt_gpus[g], OWN, OWN_SET, "float32");
        check_bits(&ckpt_gpus[g], OWN, OWN_SET, "bfloat16");
    }
}

/* ------------------------------------------------------------------------------------------------ 4099 classes */

/* Without a pitch sums over rows begin at other positions: float32 sums of 4099 exponentials have another order, and
 * some bfloat16 activations round differently. */
static void check_odd(const ckpt_gpu *on, const char *file, const char *set, const char *dtype)
{
    const bool narrow = strcmp(dtype, "bfloat16") == 0;
    test_train cpu, t, dense;
    test_record wanted, found, other;
    char text[128];
    snprintf(text, sizeof text, set, 4099);
    test_train_open(&cpu, file, text);
    test_train_open_on(&t, on->device, file, text, dtype);
    test_train_open_on(&dense, on->device, file, text, dtype);
    set_pitch(&dense, 0);
    assert_true(t.network->node[t.network->loss_node].in[0].pitch == (narrow ? 4160 : 4128));
    run(&cpu, &hows[0], &wanted);
    run(&t, &hows[0], &found);
    near_losses(&wanted, &found, dtype, "beside the CPU");
    run(&dense, &hows[0], &other);
    near_losses(&other, &found, dtype, "beside rows without gaps");
    for (size_t i = 1; i < 4; i++) {
        run(&t, &hows[i], &other);
        test_record_same(&found, &other, 0, hows[i].what);
    }
    test_train_close(&dense);
    test_train_close(&t);
    test_train_close(&cpu);
}

static void odd_rows(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_odd(&ckpt_gpus[g], TIED, TIED_SET, "float32");
        check_odd(&ckpt_gpus[g], TIED, TIED_SET, "bfloat16");
        check_odd(&ckpt_gpus[g], OWN, OWN_SET, "bfloat16");
    }
}

/* Weights and optimizer state of a file, read on the device of `t`, have these digests. */
static void check_state(test_train *t, const char *path, const test_record *written, int step)
{
    static const ckpt_section section[] = {CKPT_SECTION_WEIGHTS, CKPT_SECTION_OPTIMIZER};
    ckpt_err err = {0};
    const ckpt_executor_options options = {.seed = SEED, .poison = true};
    const ckpt_plan *const plan = test_train_hand_plan(t, false, false);
    ckpt_executor *const executor = test_train_executor(t, plan, &options);
    CHECK_OK(ckpt_executor_state_read(executor, path, &err), err);
    for (int i = 0; i < 2; i++) {
        char digest[CKPT_DIGEST_TEXT];
        CHECK_OK(ckpt_executor_digest(executor, section[i], digest, &err), err);
        assert_string_equal(digest, written->digest[step][section[i]]);
    }
    ckpt_executor_destroy(executor);
}

/* A state file has no spare elements: one device reads what the other wrote. A resumed run on a GPU has the bits of an
 * uninterrupted one. */
static void states(void **state)
{
    const char *const path = ckpt_work_file("gpu_pitch.state");
    char text[128];
    snprintf(text, sizeof text, OWN_SET, 4099);
    for (int g = 0; g < ckpt_gpus_count; g++) {
        test_train cpu, t, *at[2] = {&cpu, &t};
        test_train_open(&cpu, OWN, text);
        test_train_open_on(&t, ckpt_gpus[g].device, OWN, text, NULL);
        for (int from = 0; from < 2; from++) {
            test_train *const writer = at[from];
            test_record whole, written, rest;
            const ckpt_plan *const plan = test_train_hand_plan(writer, false, false);
            test_train_run(writer, &(test_run){.plan = plan, .seed = SEED}, &whole);
            test_train_run(writer, &(test_run){.plan = plan, .seed = SEED, .steps = 2, .state_out = path}, &written);
            check_state(at[1 - from], path, &written, 1);
            test_train_run(writer, &(test_run){.plan = plan, .state_in = path}, &rest);
            test_record_same(&whole, &rest, 2, "resumed");
        }
        test_train_close(&t);
        test_train_close(&cpu);
    }
}

/* The profiler measures such layers, and lowering uses the results. */
static void profiles(void **state)
{
    char text[128];
    snprintf(text, sizeof text, OWN_SET, 4099);
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_err err = {0};
        test_train t;
        ckpt_profile *profile = NULL;
        const ckpt_profiler_options options = {.repeats = 2};
        test_train_open_on(&t, ckpt_gpus[g].device, OWN, text, "bfloat16");
        CHECK_OK(ckpt_profile_run(t.device, t.lowered, &options, &t.arena, &profile, &err), err);
        CHECK_OK(ckpt_network_lower(t.network, profile, NULL, &t.arena, &t.lowered, &err), err);
        test_train_close(&t);
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
        cmocka_unit_test(bits_of_dense_rows),
        cmocka_unit_test(odd_rows),
        cmocka_unit_test(states),
        cmocka_unit_test(profiles),
    };
    return cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
}
