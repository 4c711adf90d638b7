/* labels: unit */
/* The profiler: one row per layer that runs, identical layers measured once, workspaces that the executor can use. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "planner/api/planner.h"
#include "profiler/profiler.h"
#include "tests/support/support_train.h"

static ckpt_profile *profile_of(test_train *t, const ckpt_profiler_options *options)
{
    ckpt_profile *profile = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_profile_run(t->device, t->lowered, options, &t->arena, &profile, &err), err);
    return profile;
}

typedef struct calls {
    int count, total;
} calls;

static void count_call(void *context, int done, int total, ckpt_ns elapsed_ns)
{
    calls *const c = context;
    assert_true(elapsed_ns > 0 && done == c->count + 1);
    c->count = done;
    c->total = total;
}

static const ckpt_profile_row *row_of(const ckpt_profile *profile, const char *layer)
{
    for (int i = 0; i < profile->row_count; i++) {
        if (strcmp(profile->row[i].layer, layer) == 0) {
            return &profile->row[i];
        }
    }
    fail_msg("no row for %s", layer);
    return NULL;
}

/* Median and spread are those of the samples. */
static void check_samples(const ckpt_timing *timing)
{
    assert_int_equal(timing->sample_ns == NULL, timing->repeats == 0);
    if (timing->repeats == 0) {
        return;
    }
    int64_t sample[CKPT_PROFILE_REPEATS_MAX], spread = 0;
    memcpy(sample, timing->sample_ns, (size_t)timing->repeats * sizeof sample[0]);
    assert_int_equal(timing->median_ns, ckpt_median(sample, timing->repeats, &spread));
    assert_int_equal(timing->spread_ns, spread);
}

static void distinct_layers_once(void **state)
{
    test_train t;
    test_train_open(&t, "models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=3 heads=2 vocabulary=32");
    calls c = {0};
    const ckpt_profiler_options options = {.repeats = 5, .progress = count_call, .context = &c};
    const ckpt_profile *const profile = profile_of(&t, &options);
    const ckpt_network *const network = t.lowered->network;
    int rows = 0, measured = 0;
    for (int n = 0; n < network->node_count; n++) {
        if (network->node[n].alias) {
            continue;
        }
        const ckpt_profile_row *const row = &profile->row[rows++];
        assert_string_equal(row->layer, network->node[n].name);
        assert_string_equal(row->op, network->node[n].op->name);
        assert_true(row->forward.median_ns > 0 && row->forward.spread_ns >= 0 && row->forward.repeats == 5);
        assert_true(row->output_bytes == ckpt_tensor_bytes(&network->node[n].out[0]));
        measured += row->same_as[0] == '\0';
        if (row->same_as[0] != '\0') {
            const ckpt_profile_row *const original = row_of(profile, row->same_as);
            assert_string_equal(original->same_as, "");
            assert_string_equal(original->op, row->op);
            assert_true(original->forward.median_ns == row->forward.median_ns &&
                        original->backward.median_ns == row->backward.median_ns);
            assert_ptr_equal(original->forward.sample_ns, row->forward.sample_ns);
        }
    }
    assert_int_equal(rows, profile->row_count);
    assert_int_equal(measured, c.count);
    assert_int_equal(measured, c.total);
    assert_string_equal(row_of(profile, "h.1.qkv")->same_as, "h.0.qkv");
    assert_string_equal(row_of(profile, "h.2.fc")->same_as, "h.0.fc");
    assert_string_equal(row_of(profile, "h.0.qkv")->same_as, "");
    /* fc and out are both linear, of other shapes */
    assert_string_equal(row_of(profile, "h.0.out")->same_as, "");
    const ckpt_profile_row *const qkv = row_of(profile, "h.0.qkv");
    assert_true(qkv->parameter_bytes == (48 * 16 + 48) * 4 && qkv->gradient_bytes == qkv->parameter_bytes);
    assert_true(qkv->optimizer_bytes == 2 * qkv->parameter_bytes); /* adamw */
    assert_true(qkv->backward.median_ns > 0 && qkv->update.median_ns > 0);
    assert_true(row_of(profile, "h.0.att")->saved_bytes == 2 * 2 * 8 * 4); /* log-sum-exp: [batch, heads, tokens] */
    assert_true(row_of(profile, "head")->parameter_bytes == 0);            /* tied to embed */
    test_train_close(&t);
}

/* By hand, for 2 sequences of 8 tokens and 16 channels: what the docs of `linear`, `gelu` and adamw say. */
static void rows_say_what_is_computed(void **state)
{
    test_train t;
    test_train_open(&t, "models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=1 heads=2 vocabulary=32");
    const ckpt_device_model sheet = {.sheet_flop_per_s = 1e9, .sheet_flop_per_s16 = 1e9, .sheet_bytes_per_s = 1e9};
    const ckpt_profile *const profile = profile_of(&t, &(ckpt_profiler_options){.repeats = 3, .roofline = &sheet});
    const ckpt_profile_row *const qkv = row_of(profile, "h.0.qkv");
    const int64_t rows = 16, in = 16, out = 48, weights = in * out + out;
    assert_int_equal(qkv->forward.flop, 2 * rows * in * out + rows * out);
    assert_int_equal(qkv->forward.moved_bytes, 4 * (rows * in + weights + rows * out));
    assert_int_equal(qkv->update.flop, 12 * weights); /* 4 + 4 * 2 moments */
    assert_int_equal(qkv->update.moved_bytes, 4 * 7 * weights);
    for (int i = 0; i < profile->row_count; i++) {
        const ckpt_timing *const timing[] = {&profile->row[i].forward, &profile->row[i].backward,
                                             &profile->row[i].update};
        for (int d = 0; d < 3; d++) {
            const ckpt_timing *const w = timing[d];
            const int64_t most = w->flop > w->moved_bytes ? w->flop : w->moved_bytes;
            const double share = w->median_ns > 0 ? (double)most / (double)w->median_ns : 0;
            assert_true((w->repeats > 0) == (w->moved_bytes > 0));
            check_samples(w);
            assert_true(w->roofline >= share * (1 - 1e-12) && w->roofline <= share * (1 + 1e-12));
            assert_true(w->repeats > 0 || (w->cycles == 0 && w->instructions == 0 && w->cache_misses == 0));
            assert_true(w->kernel_ns == 0 && w->gap_ns == 0 && w->launches == 0);
        }
    }
    assert_false(profile->flushed);
    assert_string_equal(profile->recorder, "");
    test_train_close(&t);
}

static void wanted_gradients_tell_layers_apart(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    const ckpt_profile *const profile = profile_of(&t, &(ckpt_profiler_options){.repeats = 3});
    /* a, b and c are tied, but a wants no input gradient, and b and c meet the tied gradient differently */
    assert_string_equal(row_of(profile, "b")->same_as, "");
    /* one value twice is not two values */
    assert_string_equal(row_of(profile, "mix")->same_as, "");
    test_train_close(&t);
}

/* A plan from a profile runs: workspaces of free choice fit, and the bits are those of any other such plan. */
static void plans_from_a_profile_run(void **state)
{
    static const struct {
        const char *file, *set;
    } model[] = {
        {"tests/models/resnet-small.json", ""},
        {"tests/models/pointwise-small.json", ""},
        {"models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=2 heads=2 vocabulary=32"},
        {"models/lstm.json", "batch=2 hidden=8"},
    };
    for (size_t m = 0; m < sizeof model / sizeof model[0]; m++) {
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        const ckpt_lowered *const plain = t.lowered;
        const ckpt_profile *const profile = profile_of(&t, &(ckpt_profiler_options){.repeats = 3});
        const ckpt_device_model *roofline = NULL;
        const ckpt_lowered *profiled = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_device_model_find("cpu", &t.arena, &roofline, &err), err);
        CHECK_OK(ckpt_network_lower(plain->network, profile, roofline, &t.arena, &profiled, &err), err);
        ckpt_plan *keep_all = NULL, *plan = NULL;
        const ckpt_plan_options all = {0};
        CHECK_OK(ckpt_plan_make(profiled->graph, "keep-all", &all, &t.arena, &keep_all, &err), err);
        CHECK_OK(ckpt_plan_make(profiled->graph, "recompute-all", &all, &t.arena, &plan, &err), err);
        /* the plan is run against the graph without the profile, as ckpt-train does */
        CHECK_OK(ckpt_plan_bind(plan, plain->graph, &err), err);
        CHECK_OK(ckpt_plan_check_run(plan, plain->graph, &err), err);
        test_record wanted, found;
        test_train_run(&t, &(test_run){.plan = keep_all, .seed = 1}, &wanted);
        test_train_run(&t, &(test_run){.plan = plan, .seed = 1, .poison = true}, &found);
        test_record_same(&wanted, &found, 0, model[m].file);
        assert_true(found.peak_bytes == plan->peak_bytes);
        test_train_close(&t);
    }
}

/* What a profile says without measuring: all but times and algorithms, and the workspaces that the plan has. */
static void outlines_have_what_is_not_measured(void **state)
{
    static const char *const file[] = {"tests/models/resnet-small.json", "tests/models/no-library.json"};
    for (size_t m = 0; m < sizeof file / sizeof file[0]; m++) {
        test_train t;
        test_train_open(&t, file[m], "");
        const ckpt_profile *const wanted = profile_of(&t, &(ckpt_profiler_options){.repeats = 3});
        const ckpt_plan *const plan = test_train_plan(&t, "keep-all", 0);
        ckpt_profile *found = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_profile_outline(t.lowered, plan, &t.arena, &found, &err), err);
        assert_string_equal(found->model, wanted->model);
        assert_int_equal(found->row_count, wanted->row_count);
        for (int r = 0; r < wanted->row_count; r++) {
            const ckpt_profile_row *const a = &found->row[r], *const b = &wanted->row[r];
            assert_string_equal(a->layer, b->layer);
            assert_string_equal(a->op, b->op);
            assert_string_equal(a->same_as, b->same_as);
            assert_true(a->output_bytes == b->output_bytes && a->saved_bytes == b->saved_bytes &&
                        a->parameter_bytes == b->parameter_bytes && a->gradient_bytes == b->gradient_bytes &&
                        a->optimizer_bytes == b->optimizer_bytes);
            assert_true(a->forward.repeats == 0 && a->forward.median_ns == 0);
            assert_int_equal(a->way_count, b->way_count);
            for (int k = 0; k < a->way_count; k++) {
                assert_string_equal(a->way[k].name, b->way[k].name);
                assert_int_equal(a->way[k].direction, b->way[k].direction);
            }
        }
        for (int s = 0; s < plan->step_count; s++) {
            const ckpt_op_role *const role =
                plan->step[s].kind == CKPT_RUN ? &t.lowered->op_role[plan->step[s].target] : NULL;
            if (role == NULL || role->phase != CKPT_FORWARD) {
                continue;
            }
            ckpt_bytes has = 0;
            for (int i = 0; i < plan->allocation_count; i++) {
                const ckpt_allocation *const a = &plan->allocation[i];
                has += a->buffer < 0 && a->from == s ? a->bytes : 0;
            }
            assert_int_equal(row_of(found, t.network->node[role->node].name)->forward_workspace_bytes, has);
        }
        test_train_close(&t);
    }
}

typedef struct outlining {
    const test_train *t;
    const ckpt_plan *plan;
} outlining;

static ckpt_code call_outline(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const outlining *const o = context;
    ckpt_profile *profile = NULL;
    return ckpt_profile_outline(o->t->lowered, o->plan, arena, &profile, err);
}

typedef struct profiling {
    test_train *t;
} profiling;

static ckpt_code run_profile(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const profiling *const p = context;
    ckpt_profile *profile = NULL;
    const ckpt_profiler_options options = {.repeats = 3, .spend_ns = 1};
    return ckpt_profile_run(p->t->device, p->t->lowered, &options, arena, &profile, err);
}

static void every_allocation_may_fail(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/no-library.json", "");
    assert_true(ckpt_test_starve_arena(run_profile, &(profiling){&t}) > 0);
    outlining o = {&t, test_train_plan(&t, "keep-all", 0)};
    assert_true(ckpt_test_starve_arena(call_outline, &o) > 0);
    test_train_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distinct_layers_once),
        cmocka_unit_test(rows_say_what_is_computed),
        cmocka_unit_test(wanted_gradients_tell_layers_apart),
        cmocka_unit_test(plans_from_a_profile_run),
        cmocka_unit_test(outlines_have_what_is_not_measured),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
