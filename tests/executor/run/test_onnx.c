/* labels: contract */
/* ONNX files that PyTorch's exporter wrote, against PyTorch in float64: the loss and every gradient, of a keep-all plan and
 * a recomputing one. The files are made by tests/onnx/make_fixtures.py. Then damaged ones, and none without memory. */
#include "tests/support/support_core.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "executor/executor.h"
#include "ops/import/onnx/onnx.h"
#include "planner/api/planner.h"

/* As in test_pytorch.c: float32 against float64. */
static const double LOSS_BOUND = 4e-6, GRADIENT_BOUND = 4e-5;
static const char *const set[] = {"batch=2"};

typedef struct network {
    const char *name;
    char folder[400], model[460];
    ckpt_arena arena;
    const ckpt_network *network;
    const ckpt_lowered *lowered;
    ckpt_device *device;
} network;

static void open_network(network *f, const char *name)
{
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    const ckpt_device_model *costs = NULL;
    f->name = name;
    snprintf(f->folder, sizeof f->folder, "%s/tests/onnx/%s", ckpt_source_dir(), name);
    snprintf(f->model, sizeof f->model, "%s/model.onnx", f->folder);
    ckpt_arena_init(&f->arena);
    CHECK_OK(ckpt_onnx_model(f->model, set, 1, &f->arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, 2, &f->arena, &f->network, &err), err);
    CHECK_OK(ckpt_device_model_find("cpu", &f->arena, &costs, &err), err);
    CHECK_OK(ckpt_network_lower(f->network, NULL, costs, &f->arena, &f->lowered, &err), err);
    CHECK_OK(ckpt_device_open("cpu", 2, &f->device, &err), err);
}

static void close_network(network *f)
{
    ckpt_device_close(f->device);
    ckpt_arena_fini(&f->arena);
}

static ckpt_safetensors *open_tensors(const network *f, const char *name)
{
    char path[500];
    ckpt_safetensors *tensors = NULL;
    ckpt_err err = {0};
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    CHECK_OK(ckpt_safetensors_open(path, &tensors, &err), err);
    return tensors;
}

/* The batch has PyTorch's order; a rank-4 input lies channels last. */
static void fill_inputs(const network *f, ckpt_executor *executor)
{
    ckpt_safetensors *const batch = open_tensors(f, "batch.safetensors");
    ckpt_err err = {0};
    assert_int_equal(ckpt_safetensors_count(batch), f->network->model->input_count);
    for (int i = 0; i < f->network->model->input_count; i++) {
        const ckpt_tensor *const input = &f->network->model->input[i];
        const int at = ckpt_safetensors_find(batch, input->name);
        const int64_t count = ckpt_shape_count(&input->shape);
        CHECK(at >= 0 && ckpt_safetensors_at(batch, at)->bytes == 4 * count, "%s: input %s", f->name, input->name);
        uint32_t *const word = ckpt_memory_get((size_t)count * sizeof *word);
        uint32_t *const to = ckpt_executor_input(executor, i);
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
static void compare_gradient(const network *f, ckpt_executor *executor, const ckpt_safetensors *reference, int n, int k)
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
    float *const found = ckpt_memory_get((size_t)count * sizeof *found);
    assert_true(wanted != NULL && found != NULL);
    CHECK_OK(ckpt_safetensors_floats(reference, at, wanted, &err), err);
    CHECK_OK(ckpt_executor_grad(executor, n, k, found, &err), err);
    double largest = 0.05;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)wanted[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        CHECK(fabs((double)found[i] - (double)wanted[i]) <= GRADIENT_BOUND * largest,
              "%s: gradient %s[%lld]: %.9g, PyTorch %.9g", f->name, name, (long long)i, (double)found[i],
              (double)wanted[i]);
    }
    ckpt_memory_put(wanted);
    ckpt_memory_put(found);
}

static double read_loss(const network *f)
{
    char path[500];
    double loss = 0;
    snprintf(path, sizeof path, "%s/loss.txt", f->folder);
    FILE *const file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lf", &loss), 1);
    fclose(file);
    return loss;
}

static void train(const network *f, const char *strategy)
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
    CHECK_OK(ckpt_onnx_weights(f->network, f->model, set, 1, &arena, &weights, &err), err);
    CHECK_OK(ckpt_executor_weights_set(executor, weights, &err), err);
    ckpt_weights_close(weights);
    fill_inputs(f, executor);
    float loss = 0;
    const double wanted = read_loss(f);
    CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
    CHECK(fabs((double)loss - wanted) <= LOSS_BOUND * fabs(wanted), "%s by %s: loss %.9g, PyTorch %.9g", f->name,
          strategy, (double)loss, wanted);
    ckpt_safetensors *const reference = open_tensors(f, "gradients.safetensors");
    for (int n = 0; n < f->network->node_count; n++) {
        for (int k = 0; k < f->network->node[n].param_count; k++) {
            compare_gradient(f, executor, reference, n, k);
        }
    }
    ckpt_safetensors_close(reference);
    ckpt_executor_destroy(executor);
}

/* Every folder of tests/onnx; CKPT_TEST_ONNX=name for one. */
static void test_networks(void **state)
{
    char path[400];
    int count = 0;
    const char *const only = getenv("CKPT_TEST_ONNX");
    snprintf(path, sizeof path, "%s/tests/onnx", ckpt_source_dir());
    DIR *const folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct stat about;
        char model[700];
        snprintf(model, sizeof model, "%s/%s/model.onnx", path, entry->d_name);
        if (stat(model, &about) != 0 || (only != NULL && strcmp(only, entry->d_name) != 0)) {
            continue;
        }
        network f;
        open_network(&f, entry->d_name);
        train(&f, "keep-all");
        train(&f, "recompute-all");
        close_network(&f);
        count++;
    }
    closedir(folder);
    assert_true(count >= (only != NULL ? 1 : 8));
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
    const network *const f = context;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_onnx_weights(f->network, f->model, set, 1, arena, &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

static void test_without_memory(void **state)
{
    network f;
    open_network(&f, "recurrent");
    ckpt_test_starve_arena(read_model, f.model);
    ckpt_test_starve_arena(open_weights, &f);
    close_network(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_networks), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
