/* labels: contract */
/* Tiny networks of Hugging Face's families, from config.json and model.safetensors alone, against transformers: losses of
 * three training steps, every gradient of the first, and weights that go out as they came in. The files are made by
 * tests/families/make_fixtures.py; here a keep-all plan and a recomputing one train them. */
#include "tests/support/support_core.h"
#include "tests/support/support_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "core/formats/safetensors.h"
#include "ops/import/model_file.h"
#include "ops/import/weights.h"

/* `logits`: the loss of a language model has them all at once. */
static void open_family(test_fixture *f, const char *name, bool logits)
{
    const bool tokens = strcmp(name, "vit") != 0;
    const char *const set[] = {"batch=2", "lr=0.01", "tokens=6", logits ? "whole_logits=1" : "whole_logits=0"};
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    test_fixture_open(f, "families", name);
    CHECK_OK(ckpt_model_file_read(test_fixture_file(f, "config.json"), set, tokens ? 4 : 2, &f->arena, &model, &err),
             err);
    test_fixture_lower(f, model);
}

static ckpt_weights *weights_of(const test_fixture *f, const char *file)
{
    ckpt_weights *weights = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_weights_open(f->network, test_fixture_file(f, file), &weights, &err), err);
    return weights;
}

static void compare_gradients(const test_fixture *f, ckpt_executor *executor)
{
    ckpt_weights *const reference = weights_of(f, "gradients.safetensors");
    ckpt_err err = {0};
    for (int n = 0; n < f->network->node_count; n++) {
        const ckpt_node *const node = &f->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            float *const wanted = ckpt_memory_get((size_t)ckpt_tensor_bytes(&node->param[k].tensor));
            assert_non_null(wanted);
            CHECK_OK(ckpt_weights_param(reference, n, k, wanted, &err), err);
            test_fixture_check_gradient(f, executor, n, k, wanted);
            ckpt_memory_put(wanted);
        }
    }
    ckpt_weights_close(reference);
}

/* Every tensor of `a` is in `b`, bit for bit. */
static void check_same_tensors(const test_fixture *f, const ckpt_safetensors *a, const ckpt_safetensors *b)
{
    assert_int_equal(ckpt_safetensors_count(a), ckpt_safetensors_count(b));
    for (int i = 0; i < ckpt_safetensors_count(a); i++) {
        const ckpt_safetensor *const one = ckpt_safetensors_at(a, i);
        const int at = ckpt_safetensors_find(b, one->name);
        CHECK(at >= 0, "%s: %s was not written", f->name, one->name);
        const ckpt_safetensor *const other = ckpt_safetensors_at(b, at);
        char x[CKPT_SHAPE_TEXT], y[CKPT_SHAPE_TEXT];
        assert_string_equal(ckpt_safetensor_shape(one, x), ckpt_safetensor_shape(other, y));
        assert_string_equal(one->type, other->type);
        unsigned char *const bytes = ckpt_memory_get(2 * (size_t)one->bytes);
        ckpt_err err = {0};
        assert_non_null(bytes);
        CHECK_OK(ckpt_safetensors_bytes(a, i, 0, one->bytes, bytes, &err), err);
        CHECK_OK(ckpt_safetensors_bytes(b, at, 0, one->bytes, bytes + one->bytes, &err), err);
        CHECK(memcmp(bytes, bytes + one->bytes, (size_t)one->bytes) == 0, "%s: %s has other bytes", f->name, one->name);
        ckpt_memory_put(bytes);
    }
}

/* Weights go out as they came in; in bfloat16 they come back as the nearest there are. */
static void check_export(const test_fixture *f, ckpt_executor *executor)
{
    ckpt_safetensors *in = NULL, *out = NULL;
    ckpt_weights *narrow = NULL;
    ckpt_err err = {0};
    const char *const path = ckpt_work_file("out.safetensors");
    CHECK_OK(ckpt_executor_weights_write(executor, path, CKPT_FLOAT32, &err), err);
    CHECK_OK(ckpt_safetensors_open(test_fixture_file(f, "model.safetensors"), &in, &err), err);
    CHECK_OK(ckpt_safetensors_open(path, &out, &err), err);
    check_same_tensors(f, in, out);
    ckpt_safetensors_close(in);
    ckpt_safetensors_close(out);
    CHECK_OK(ckpt_executor_weights_write(executor, path, CKPT_BFLOAT16, &err), err);
    CHECK_OK(ckpt_weights_open(f->network, path, &narrow, &err), err);
    int n = f->network->node_count - 1;
    while (f->network->node[n].param_count == 0) {
        n--;
    }
    const int64_t count = ckpt_shape_count(&f->network->node[n].param[0].tensor.shape);
    float *const wide = ckpt_memory_get((size_t)count * sizeof *wide);
    float *const half = ckpt_memory_get((size_t)count * sizeof *half);
    assert_true(wide != NULL && half != NULL);
    CHECK_OK(ckpt_weights_param(narrow, n, 0, half, &err), err);
    CHECK_OK(ckpt_executor_param(executor, n, 0, wide, &err), err);
    for (int64_t i = 0; i < count; i++) {
        assert_true(half[i] == ckpt_bfloat16_value(ckpt_bfloat16_of(wide[i])));
    }
    ckpt_memory_put(wide);
    ckpt_memory_put(half);
    ckpt_weights_close(narrow);
}

static void train(test_fixture *f, const char *strategy)
{
    ckpt_executor *const executor = test_fixture_executor(f, strategy, weights_of(f, "model.safetensors"));
    check_export(f, executor);
    FILE *const losses = fopen(test_fixture_file(f, "losses.txt"), "r");
    assert_non_null(losses);
    for (int step = 0; step < 3; step++) {
        test_fixture_step(f, executor, losses, step);
        if (step == 0) {
            compare_gradients(f, executor);
        }
    }
    fclose(losses);
    ckpt_executor_destroy(executor);
}

static void run_family(const char *name)
{
    for (int logits = 0; logits < 2; logits++) {
        test_fixture f;
        open_family(&f, name, logits == 1);
        train(&f, "keep-all");
        train(&f, "recompute-all");
        test_fixture_close(&f);
    }
}

/* Every folder of tests/families; CKPT_TEST_FAMILY=name for one. */
static void test_families(void **state)
{
    const char *const only = getenv("CKPT_TEST_FAMILY");
    assert_true(test_fixture_each("families", "config.json", only, run_family) >= (only != NULL ? 1 : 9));
}

/* Configurations as they were published, of what differs from transformers' defaults, and their numbers of parameters. */
static void test_published_sizes(void **state)
{
    static const struct {
        const char *config;
        int64_t parameters;
    } network[] = {
        {"{\"model_type\": \"gpt2\"}", 124439808},
        {"{\"model_type\": \"bert\"}", 109514298},
        {"{\"model_type\": \"vit\", \"num_labels\": 1000}", 86567656},
        {"{\"model_type\": \"t5\"}", 60506624}, /* t5-small */
        {"{\"model_type\": \"llama\"}", 6738415616},
        {"{\"model_type\": \"mistral\", \"max_position_embeddings\": 32768}", 7241732096},
        {"{\"model_type\": \"mixtral\", \"max_position_embeddings\": 32768}", 46702792704},
        {"{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "
         "\"num_key_value_heads\": 2, "
         "\"intermediate_size\": 4864, \"tie_word_embeddings\": true}",
         494032768}, /* Qwen2-0.5B */
        {"{\"model_type\": \"qwen3\", \"hidden_size\": 1024, \"num_hidden_layers\": 28, \"num_attention_heads\": 16, "
         "\"num_key_value_heads\": 8, "
         "\"intermediate_size\": 3072, \"tie_word_embeddings\": true}",
         596049920}, /* Qwen3-0.6B */
    };
    for (size_t i = 0; i < sizeof network / sizeof network[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_model *model = NULL;
        const ckpt_network *made = NULL;
        int64_t parameters = 0;
        const char *const path = ckpt_test_file("config.json", network[i].config, strlen(network[i].config));
        CHECK_OK(ckpt_model_file_read(path, NULL, 0, &arena, &model, &err), err);
        CHECK_OK(ckpt_network_infer(model, 2, &arena, &made, &err), err);
        for (int n = 0; n < made->node_count; n++) {
            for (int k = 0; k < made->node[n].param_count; k++) {
                const ckpt_param *const param = &made->node[n].param[k];
                parameters += param->tied < 0 ? ckpt_shape_count(&param->tensor.shape) : 0;
            }
        }
        CHECK(parameters == network[i].parameters, "%s has %lld parameters, wanted %lld", network[i].config,
              (long long)parameters, (long long)network[i].parameters);
    }
}

static ckpt_code read_config(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    return ckpt_model_file_read(context, NULL, 0, arena, &model, err);
}

static ckpt_code open_weights(void *context, ckpt_err *err)
{
    const test_fixture *const f = context;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_weights_open(f->network, test_fixture_file(f, "model.safetensors"), &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

static void test_without_memory(void **state)
{
    test_fixture f;
    open_family(&f, "gpt2", true);
    char path[500];
    snprintf(path, sizeof path, "%s", test_fixture_file(&f, "config.json"));
    ckpt_test_starve_arena(read_config, path);
    ckpt_test_starve(open_weights, &f);
    test_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_published_sizes),
                                       cmocka_unit_test(test_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
