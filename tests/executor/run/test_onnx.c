/* labels: contract */
/* ONNX files that PyTorch's exporter wrote, against PyTorch in float64: the loss and every gradient, of a keep-all plan and
 * a recomputing one. The files are made by tests/onnx/make_fixtures.py. Then damaged ones, and none without memory. */
#include "tests/support/support_core.h"
#include "tests/support/support_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "ops/import/onnx/onnx.h"

static const char *const set[] = {"batch=2"};

static void open_network(test_fixture *f, const char *name)
{
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    test_fixture_open(f, "onnx", name);
    CHECK_OK(ckpt_onnx_model(test_fixture_file(f, "model.onnx"), set, 1, &f->arena, &model, &err), err);
    test_fixture_lower(f, model);
}

static void compare_gradient(const test_fixture *f, ckpt_executor *executor, const ckpt_safetensors *reference, int n,
                             int k)
{
    const ckpt_node *const node = &f->network->node[n];
    const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
    char name[300];
    ckpt_err err = {0};
    snprintf(name, sizeof name, "%s.%s", node->name, node->param[k].tensor.name);
    int at = ckpt_safetensors_find(reference, name);
    at = at < 0 ? ckpt_safetensors_find(reference, node->name) : at; /* a parameter that is a layer */
    CHECK(at >= 0 && ckpt_safetensors_at(reference, at)->count == count, "%s: PyTorch has no %s", f->name, name);
    float *const wanted = ckpt_memory_get((size_t)count * sizeof *wanted);
    assert_non_null(wanted);
    CHECK_OK(ckpt_safetensors_floats(reference, at, wanted, &err), err);
    test_fixture_check_gradient(f, executor, n, k, wanted);
    ckpt_memory_put(wanted);
}

static void train(test_fixture *f, const char *strategy)
{
    ckpt_err err = {0};
    ckpt_weights *weights = NULL;
    ckpt_safetensors *reference = NULL;
    CHECK_OK(ckpt_onnx_weights(f->network, test_fixture_file(f, "model.onnx"), set, 1, &f->arena, &weights, &err), err);
    ckpt_executor *const executor = test_fixture_executor(f, strategy, weights);
    FILE *const loss = fopen(test_fixture_file(f, "loss.txt"), "r");
    assert_non_null(loss);
    test_fixture_step(f, executor, loss, 0);
    fclose(loss);
    CHECK_OK(ckpt_safetensors_open(test_fixture_file(f, "gradients.safetensors"), &reference, &err), err);
    for (int n = 0; n < f->network->node_count; n++) {
        for (int k = 0; k < f->network->node[n].param_count; k++) {
            compare_gradient(f, executor, reference, n, k);
        }
    }
    ckpt_safetensors_close(reference);
    ckpt_executor_destroy(executor);
}

static void run_network(const char *name)
{
    test_fixture f;
    open_network(&f, name);
    train(&f, "keep-all");
    train(&f, "recompute-all");
    test_fixture_close(&f);
}

/* Every folder of tests/onnx; CKPT_TEST_ONNX=name for one. */
static void test_networks(void **state)
{
    const char *const only = getenv("CKPT_TEST_ONNX");
    assert_true(test_fixture_each("onnx", "model.onnx", only, run_network) >= (only != NULL ? 1 : 8));
}

/* Bytes changed at random, or cut off: a model or one line, no crash. */
static void test_damage(void **state)
{
    static const char *const names[] = {"mlp", "residual", "encoder", "recurrent", "convnext", "sequence"};
    uint64_t random = 88172645463325252U;
    int refused = 0;
    const int rounds = (int)ckpt_test_rounds(3000, 60);
    for (int round = 0; round < rounds; round++) {
        char path[500];
        const char *bytes = NULL, *text = NULL;
        size_t length = 0, made = 0;
        ckpt_err err = {0};
        CKPT_TEST_ARENA(arena);
        snprintf(path, sizeof path, "%s/tests/onnx/%s/model.onnx", ckpt_source_dir(), names[round % 6]);
        CHECK_OK(ckpt_file_read(path, &arena, &bytes, &length, &err), err);
        unsigned char *const changed = (unsigned char *)ckpt_arena_take(&arena, length, 1);
        assert_non_null(changed);
        memcpy(changed, bytes, length);
        for (int i = 0; i <= round % 3; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            changed[1 + random % (length - 1)] = (unsigned char)(random >> 40);
        }
        length = round % 5 == 0 ? 1 + random % (length - 1) : length;
        const char *const file = ckpt_test_file("damaged.onnx", (const char *)changed, length);
        const ckpt_code code = ckpt_onnx_text(file, set, 1, &arena, &text, &made, &err);
        CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "round %d: %s", round, err.msg);
        CHECK(code == CKPT_OK ? text != NULL : strchr(err.msg, '\n') == NULL && strstr(err.msg, "damaged.onnx") != NULL,
              "round %d: %s", round, err.msg);
        refused += code != CKPT_OK;
    }
    assert_true(refused > 0);
}

static ckpt_code read_model(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    return ckpt_onnx_model(context, set, 1, arena, &model, err);
}

static ckpt_code open_weights(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const test_fixture *const f = context;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_onnx_weights(f->network, test_fixture_file(f, "model.onnx"), set, 1, arena, &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

static void test_without_memory(void **state)
{
    test_fixture f;
    open_network(&f, "recurrent");
    char path[500];
    snprintf(path, sizeof path, "%s", test_fixture_file(&f, "model.onnx"));
    ckpt_test_starve_arena(read_model, path);
    ckpt_test_starve_arena(open_weights, &f);
    test_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_networks), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
