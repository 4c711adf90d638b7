/* labels: contract */
/* Tiny networks of Hugging Face's families, from config.json and model.safetensors alone, against transformers: losses of
 * three training steps, every gradient of the first, and weights that go out as they came in. The files are made by
 * tests/families/make_fixtures.py; here a keep-all plan and a recomputing one train them. */
#include "tests/support/support_core.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/formats/safetensors.h"
#include "executor/executor.h"
#include "ops/import/model_file.h"
#include "ops/import/weights.h"
#include "planner/api/planner.h"
#include "planner/replay/replay.h"

/* As in test_pytorch.c: float32 against float64, with a factor of ten; but the reference has its norms and softmaxes in
 * float32 too. */
static const double LOSS_BOUND = 4e-6, GRADIENT_BOUND = 4e-5;

typedef struct family {
    const char *name;
    char folder[400];
    ckpt_arena arena;
    const ckpt_network *network;
    const ckpt_lowered *lowered;
    ckpt_device *device;
} family;

static const char *file_of(const family *f, const char *name)
{
    static char path[2][500];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", f->folder, name);
    return path[turn];
}

/* `logits`: the loss of a language model has them all at once. */
static void open_family(family *f, const char *name, bool logits)
{
    const bool tokens = strcmp(name, "vit") != 0;
    const char *const set[] = {"batch=2", "lr=0.01", "tokens=6", logits ? "whole_logits=1" : "whole_logits=0"};
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    const ckpt_device_model *costs = NULL;
    f->name = name;
    snprintf(f->folder, sizeof f->folder, "%s/tests/families/%s", ckpt_source_dir(), name);
    ckpt_arena_init(&f->arena);
    CHECK_OK(ckpt_model_file_read(file_of(f, "config.json"), set, tokens ? 4 : 2, &f->arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, 2, &f->arena, &f->network, &err), err);
    CHECK_OK(ckpt_device_model_find("cpu", &f->arena, &costs, &err), err);
    CHECK_OK(ckpt_network_lower(f->network, NULL, costs, &f->arena, &f->lowered, &err), err);
    CHECK_OK(ckpt_device_open("cpu", 2, &f->device, &err), err);
}

static void close_family(family *f)
{
    ckpt_device_close(f->device);
    ckpt_arena_fini(&f->arena);
}

/* The batch has PyTorch's order; a rank-4 input lies channels last. */
static void fill_inputs(const family *f, ckpt_executor *executor)
{
    ckpt_safetensors *batch = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_safetensors_open(file_of(f, "batch.safetensors"), &batch, &err), err);
    assert_int_equal(ckpt_safetensors_count(batch), f->network->model->input_count);
    for (int i = 0; i < f->network->model->input_count; i++) {
        const ckpt_tensor *const input = &f->network->model->input[i];
        const int at = ckpt_safetensors_find(batch, input->name);
        const int64_t count = ckpt_shape_count(&input->shape);
        CHECK(at >= 0 && ckpt_safetensors_at(batch, at)->bytes == 4 * count, "%s: input %s", f->name, input->name);
        uint32_t *const word = ckpt_memory_get((size_t)count * sizeof *word), *const to =
                                                                                  ckpt_executor_input(executor, i);
        assert_true(word != NULL && to != NULL);
        CHECK_OK(ckpt_safetensors_bytes(batch, at, 0, 4 * count, word, &err), err);
        int64_t stride[CKPT_RANK_MAX];
        ckpt_shape_strides(&input->shape, stride);
        for (int64_t k = 0; k < count; k++) {
            int64_t left = k, place = 0;
            for (int d = input->shape.rank - 1; d >= 0; d--) {
                place += left % input->shape.dim[d] * stride[d];
                left /= input->shape.dim[d];
            }
            to[place] = word[k];
        }
        ckpt_memory_put(word);
    }
    ckpt_safetensors_close(batch);
}

/* |found - wanted| against the tensor's largest. The floor is for sums that cancel exactly. */
static void compare_gradients(const family *f, ckpt_executor *executor)
{
    ckpt_weights *reference = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_weights_open(f->network, file_of(f, "gradients.safetensors"), &reference, &err), err);
    for (int n = 0; n < f->network->node_count; n++) {
        const ckpt_node *const node = &f->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
            float *const wanted = ckpt_memory_get((size_t)count * sizeof *wanted);
            float *const found = ckpt_memory_get((size_t)count * sizeof *found);
            assert_true(wanted != NULL && found != NULL);
            CHECK_OK(ckpt_weights_param(reference, n, k, wanted, &err), err);
            CHECK_OK(ckpt_executor_grad(executor, n, k, found, &err), err);
            double largest = 0.05;
            for (int64_t i = 0; i < count; i++) {
                largest = fmax(largest, fabs((double)wanted[i]));
            }
            for (int64_t i = 0; i < count; i++) {
                CHECK(fabs((double)found[i] - (double)wanted[i]) <= GRADIENT_BOUND * largest,
                      "%s: gradient %s.%s[%lld]: %.9g, transformers %.9g", f->name, node->name,
                      node->param[k].tensor.name, (long long)i, (double)found[i], (double)wanted[i]);
            }
            ckpt_memory_put(wanted);
            ckpt_memory_put(found);
        }
    }
    ckpt_weights_close(reference);
}

/* Every tensor of `a` is in `b`, bit for bit. */
static void check_same_tensors(const family *f, const ckpt_safetensors *a, const ckpt_safetensors *b)
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
static void check_export(const family *f, ckpt_executor *executor)
{
    ckpt_safetensors *in = NULL, *out = NULL;
    ckpt_weights *narrow = NULL;
    ckpt_err err = {0};
    const char *const path = ckpt_work_file("out.safetensors");
    CHECK_OK(ckpt_executor_weights_write(executor, path, CKPT_FLOAT32, &err), err);
    CHECK_OK(ckpt_safetensors_open(file_of(f, "model.safetensors"), &in, &err), err);
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

static void train(const family *f, const char *strategy)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    ckpt_executor *executor = NULL;
    ckpt_weights *weights = NULL;
    const ckpt_plan_options options = {0};
    const ckpt_executor_options how = {.seed = 1, .poison = true};
    CKPT_TEST_ARENA(arena);
    CHECK_OK(ckpt_plan_make(f->lowered->graph, strategy, &options, &arena, &plan, &err), err);
    assert_int_equal(plan->verdict, CKPT_FITS);
    CHECK_OK(ckpt_executor_create(f->device, f->lowered, plan, &how, &executor, &err), err);
    CHECK_OK(ckpt_weights_open(f->network, file_of(f, "model.safetensors"), &weights, &err), err);
    CHECK_OK(ckpt_executor_weights_set(executor, weights, &err), err);
    ckpt_weights_close(weights);
    check_export(f, executor);
    FILE *const losses = fopen(file_of(f, "losses.txt"), "r");
    assert_non_null(losses);
    for (int step = 0; step < 3; step++) {
        float loss = 0;
        double wanted = 0;
        fill_inputs(f, executor);
        CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
        assert_int_equal(fscanf(losses, "%lf", &wanted), 1);
        CHECK(fabs((double)loss - wanted) <= LOSS_BOUND * (step + 1) * fabs(wanted),
              "%s by %s, step %d: loss %.9g, transformers %.9g", f->name, strategy, step, (double)loss, wanted);
        if (step == 0) {
            compare_gradients(f, executor);
        }
    }
    fclose(losses);
    ckpt_executor_destroy(executor);
}

/* Every folder of tests/families; CKPT_TEST_FAMILY=name for one. */
static void test_families(void **state)
{
    char path[400];
    int count = 0;
    const char *const only = getenv("CKPT_TEST_FAMILY");
    snprintf(path, sizeof path, "%s/tests/families", ckpt_source_dir());
    DIR *const folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct stat about;
        char config[700];
        snprintf(config, sizeof config, "%s/%s/config.json", path, entry->d_name);
        if (stat(config, &about) != 0 || (only != NULL && strcmp(only, entry->d_name) != 0)) {
            continue;
        }
        for (int logits = 0; logits < 2; logits++) {
            family f;
            open_family(&f, entry->d_name, logits == 1);
            train(&f, "keep-all");
            train(&f, "recompute-all");
            close_family(&f);
        }
        count++;
    }
    closedir(folder);
    assert_true(count >= (only != NULL ? 1 : 9));
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
    const family *const f = context;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_weights_open(f->network, file_of(f, "model.safetensors"), &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

static void test_without_memory(void **state)
{
    family f;
    open_family(&f, "gpt2", true);
    char path[500];
    snprintf(path, sizeof path, "%s", file_of(&f, "config.json"));
    ckpt_test_starve_arena(read_config, path);
    ckpt_test_starve(open_weights, &f);
    close_family(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_published_sizes),
                                       cmocka_unit_test(test_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
