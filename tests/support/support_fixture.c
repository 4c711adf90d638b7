#include "tests/support/support_fixture.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "core/formats/safetensors.h"

static const double LOSS_BOUND = 4e-6, GRADIENT_BOUND = 4e-5;

int test_fixture_each(const char *kind, const char *model, const char *only, void (*run)(const char *name))
{
    char path[400];
    int count = 0;
    snprintf(path, sizeof path, "%s/tests/%s", ckpt_source_dir(), kind);
    DIR *const folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct stat about;
        char file[700];
        snprintf(file, sizeof file, "%s/%s/%s", path, entry->d_name, model);
        if (stat(file, &about) == 0 && (only == NULL || strcmp(only, entry->d_name) == 0)) {
            run(entry->d_name);
            count++;
        }
    }
    closedir(folder);
    return count;
}

void test_fixture_open(test_fixture *f, const char *kind, const char *name)
{
    f->name = name;
    snprintf(f->folder, sizeof f->folder, "%s/tests/%s/%s", ckpt_source_dir(), kind, name);
    ckpt_arena_init(&f->arena);
}

void test_fixture_lower(test_fixture *f, const ckpt_model *model)
{
    ckpt_err err = {0};
    const ckpt_device_model *costs = NULL;
    CHECK_OK(ckpt_network_infer(model, 2, &f->arena, &f->network, &err), err);
    CHECK_OK(ckpt_device_model_find("cpu", &f->arena, &costs, &err), err);
    CHECK_OK(ckpt_network_lower(f->network, NULL, costs, &f->arena, &f->lowered, &err), err);
    CHECK_OK(ckpt_device_open("cpu", 2, &f->device, &err), err);
}

void test_fixture_close(test_fixture *f)
{
    ckpt_device_close(f->device);
    ckpt_arena_fini(&f->arena);
}

const char *test_fixture_file(const test_fixture *f, const char *name)
{
    static char path[2][500];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", f->folder, name);
    return path[turn];
}

ckpt_executor *test_fixture_executor(test_fixture *f, const char *strategy, ckpt_weights *weights)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    ckpt_executor *executor = NULL;
    const ckpt_plan_options options = {0};
    const ckpt_executor_options how = {.seed = 1, .poison = true};
    CHECK_OK(ckpt_plan_make(f->lowered->graph, strategy, &options, &f->arena, &plan, &err), err);
    assert_int_equal(plan->verdict, CKPT_FITS);
    CHECK_OK(ckpt_executor_create(f->device, f->lowered, plan, &how, &executor, &err), err);
    CHECK_OK(ckpt_executor_weights_set(executor, weights, &err), err);
    ckpt_weights_close(weights);
    return executor;
}

/* The batch has PyTorch's order; a rank-4 input lies channels last. */
static void fill_inputs(const test_fixture *f, ckpt_executor *executor)
{
    ckpt_safetensors *batch = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_safetensors_open(test_fixture_file(f, "batch.safetensors"), &batch, &err), err);
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

void test_fixture_step(const test_fixture *f, ckpt_executor *executor, FILE *losses, int step)
{
    ckpt_err err = {0};
    float loss = 0;
    double wanted = 0;
    fill_inputs(f, executor);
    CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
    assert_int_equal(fscanf(losses, "%lf", &wanted), 1);
    CHECK(fabs((double)loss - wanted) <= LOSS_BOUND * (step + 1) * fabs(wanted),
          "%s, step %d: loss %.9g, the reference %.9g", f->name, step, (double)loss, wanted);
}

void test_fixture_check_gradient(const test_fixture *f, ckpt_executor *executor, int n, int k, const float *wanted)
{
    const ckpt_node *const node = &f->network->node[n];
    const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
    float *const found = ckpt_memory_get((size_t)count * sizeof *found);
    ckpt_err err = {0};
    double largest = 0.05; /* the floor is for sums that cancel exactly */
    assert_non_null(found);
    CHECK_OK(ckpt_executor_grad(executor, n, k, found, &err), err);
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)wanted[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        CHECK(fabs((double)found[i] - (double)wanted[i]) <= GRADIENT_BOUND * largest,
              "%s: gradient %s.%s[%lld]: %.9g, the reference %.9g", f->name, node->name, node->param[k].tensor.name,
              (long long)i, (double)found[i], (double)wanted[i]);
    }
    ckpt_memory_put(found);
}
