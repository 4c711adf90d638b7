/* labels: contract gpu; on a GPU: 90 s, together */
/* The real cuDNN without a GPU, for the convolutions and the attention of every network under models/, and for unusual
 * ones: it chooses engines and makes plans for a described GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). The
 * description's keys are cuDNN's own; if a version needs others, this test skips itself. Nothing is computed. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "ops/lowering/network.h"
#include "tests/support/support_test.h"

#ifndef CKPT_HAVE_CUDA
int main(void)
{
    printf("no CUDA in this build\n");
    return 77;
}
#else
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_attention.h"

extern const ckpt_kernel ckpt_cuda_conv2d, ckpt_cuda_attention;

typedef struct described_gpu {
    const char *name;
    int capability, shared_bytes, multiprocessors;
} described_gpu;

static const described_gpu gpus[] = {{"A100", 800, 166912, 108}, {"H100", 900, 232448, 132}};
enum { GPU_COUNT = sizeof gpus / sizeof gpus[0] };

static void describe(const described_gpu *gpu, char *text, size_t room)
{
    snprintf(text, room,
             "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"multiProcessorCount\":%d,\"maxSharedMemoryPerBlockOptin\":%d,"
             "\"driverVer\":13000,\"cudaDeviceId\":0,\"pciDeviceId\":0,\"isTccDriver\":0,\"l2CacheSize\":41943040,"
             "\"maxCtasPerSM\":32,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
             "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"memClockRateKHz\":1500000,\"regsPerBlock\":65536,"
             "\"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":1500000,\"supportCoopLaunch\":1,"
             "\"totalGlobalMem\":85899345920,\"warpSize\":32,\"maxBlockSize\":[1024,1024,64],"
             "\"maxGridSize\":[2147483647,65535,65535]}",
             gpu->name, gpu->capability, gpu->multiprocessors, gpu->shared_bytes);
}

static ckpt_cuda opened[GPU_COUNT];

static ckpt_code open_all(ckpt_err *err)
{
    for (int g = 0; g < GPU_COUNT; g++) {
        char text[1024];
        describe(&gpus[g], text, sizeof text);
        opened[g].capability = gpus[g].capability / 10;
        CKPT_TRY(ckpt_cudnn_open_described(&opened[g], text, err));
    }
    return CKPT_OK;
}

static bool is_convolution(const ckpt_node *node)
{
    return strncmp(node->op->name, "conv", 4) == 0 && node->op->name[4] != 'c' /* concat */;
}

/* An engine's name makes the same engine in exactly its workspace, but not in less; other names are refused. */
static void check_named(int g, const ckpt_convolution *shape, ckpt_cudnn_direction direction,
                        const ckpt_cudnn_convolution *made)
{
    static const char *const other[] = {"", "own", "dnn", "dnn1:2,3=4", "lt130002:1"};
    const char *const name = ckpt_cudnn_convolution_choice(made);
    const ckpt_bytes used = ckpt_cudnn_convolution_workspace(made);
    ckpt_cudnn_convolution *recomputed = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_cudnn_convolution_create(&opened[g], shape, direction, used, name, &recomputed, &err), err);
    CHECK(strcmp(ckpt_cudnn_convolution_choice(recomputed), name) == 0 &&
              ckpt_cudnn_convolution_workspace(recomputed) == used,
          "%s: engine %s with %lld bytes comes back as %s with %lld", gpus[g].name, name, (long long)used,
          ckpt_cudnn_convolution_choice(recomputed), (long long)ckpt_cudnn_convolution_workspace(recomputed));
    ckpt_cudnn_convolution_destroy(recomputed);
    if (used > 0) {
        assert_int_equal(ckpt_cudnn_convolution_create(&opened[g], shape, direction, used - 1, name, &recomputed, &err),
                         CKPT_DEVICE);
    }
    for (size_t k = 0; k < sizeof other / sizeof other[0]; k++) {
        assert_int_equal(ckpt_cudnn_convolution_create(&opened[g], shape, direction, -1, other[k], &recomputed, &err),
                         CKPT_DEVICE);
        assert_non_null(strstr(err.msg, "profile and plan again"));
    }
    char unknown[CKPT_PIECE_TEXT];
    (void)snprintf(unknown, sizeof unknown, "%.*s99999", (int)(strchr(name, ':') + 1 - name), name);
    assert_int_equal(ckpt_cudnn_convolution_create(&opened[g], shape, direction, -1, unknown, &recomputed, &err),
                     CKPT_DEVICE);
}

/* Like the executor without a profile, then the profiler, then the executor with that profile. */
static void check_node(const char *file, int g, const ckpt_node *node)
{
    const ckpt_kernel *const kernel = &ckpt_cuda_conv2d;
    const ckpt_bytes given[][2] = {{node->forward_workspace_bytes, node->backward_workspace_bytes}, {-1, -1}};
    for (int k = 0; k < 2; k++) {
        ckpt_err err = {0};
        void *state = NULL;
        ckpt_bytes used[2] = {0}, recomputed[2] = {0};
        CHECK_OK(ckpt_kernel_prepare(kernel, &opened[g], node, given[k][0], given[k][1], NULL, &state, &err), err);
        kernel->workspace(node, state, &used[0], &used[1]);
        CHECK(kernel->remark(state)[0] == '\0', "%s, %s, layer %s: %s", file, gpus[g].name, node->name,
              kernel->remark(state));
        CHECK(k == 1 || (used[0] <= given[k][0] && used[1] <= given[k][1]), "%s, %s, layer %s uses %lld and %lld bytes",
              file, gpus[g].name, node->name, (long long)used[0], (long long)used[1]);
        char choice[CKPT_CHOICE_TEXT];
        (void)snprintf(choice, sizeof choice, "%s", kernel->choice(state));
        ckpt_kernel_release(kernel, state);
        CHECK_OK(ckpt_kernel_prepare(kernel, &opened[g], node, used[0], used[1], choice, &state, &err), err);
        assert_string_equal(kernel->choice(state), choice);
        ckpt_kernel_release(kernel, state);
        CHECK_OK(ckpt_kernel_prepare(kernel, &opened[g], node, used[0], used[1], NULL, &state, &err), err);
        kernel->workspace(node, state, &recomputed[0], &recomputed[1]);
        CHECK(recomputed[0] == used[0] && recomputed[1] == used[1] && kernel->remark(state)[0] == '\0',
              "%s, %s, layer %s: %lld and %lld bytes become %lld and %lld when that is the limit: %s", file,
              gpus[g].name, node->name, (long long)used[0], (long long)used[1], (long long)recomputed[0],
              (long long)recomputed[1], kernel->remark(state));
        ckpt_kernel_release(kernel, state);
    }
}

/* Convolutions that are equal for cuDNN are checked once. */
static bool seen_before(const ckpt_network *network, int n)
{
    const ckpt_node *const b = &network->node[n];
    for (int m = 0; m < n; m++) {
        const ckpt_node *const a = &network->node[m];
        bool same = a->op == b->op && a->grad_in == b->grad_in && ckpt_shape_equal(&a->in[0].shape, &b->in[0].shape) &&
                    ckpt_shape_equal(&a->out[0].shape, &b->out[0].shape) &&
                    ckpt_shape_equal(&a->param[0].tensor.shape, &b->param[0].tensor.shape);
        if (same) {
            return true;
        }
    }
    return false;
}

static int check_file(const char *file, ckpt_dtype dtype)
{
    char path[512];
    ckpt_arena arena;
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    int checked = 0;
    (void)snprintf(path, sizeof path, "%s/models/%s", ckpt_source_dir(), file);
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_model_read(path, NULL, 0, &arena, &model, &err), err);
    CHECK_OK(ckpt_model_with_dtype(model, ckpt_dtype_name(dtype), &arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, CKPT_ON_GPU, &arena, &network, &err), err);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        if (is_convolution(node) && !seen_before(network, n)) {
            const ckpt_convolution form = ckpt_convolution_of(node);
            if (ckpt_convolution_is_product(&form, true)) {
                continue;
            }
            for (int g = 0; g < GPU_COUNT; g++) {
                check_node(file, g, node);
            }
            checked++;
        }
    }
    ckpt_arena_fini(&arena);
    return checked;
}

/* The sum of `check` over the files of models/. */
static int check_models(int (*check)(const char *file))
{
    DIR *const folder = opendir(ckpt_source_file("models"));
    assert_non_null(folder);
    int checked = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *const end = strrchr(entry->d_name, '.');
        if (end != NULL && strcmp(end, ".json") == 0) {
            checked += check(entry->d_name);
        }
    }
    (void)closedir(folder);
    return checked;
}

static int check_both_types(const char *file)
{
    return check_file(file, CKPT_FLOAT32) + check_file(file, CKPT_BFLOAT16);
}

/* Every convolution of every network, at its real size, has a reproducible engine within its workspace. */
static void test_every_model(void **state)
{
    const int checked = check_models(check_both_types);
    CHECK(checked > 100, "only %d convolutions were checked", checked);
}

/* clang-format off */
#define ONES {1, 1, 1}
/* clang-format on */

/* Shapes that no network here has; and no limit is exceeded for smaller and smaller workspaces. */
static void test_strange_shapes(void **state)
{
    static const ckpt_convolution strange[] = {
        {1, 1, 1, 1, {1, 1, 1}, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, ONES, .dtype = CKPT_FLOAT32},
        {2, 3, 5, 1, {1, 9, 8}, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, ONES, .dtype = CKPT_FLOAT32},
        {2, 8, 16, 2, {1, 7, 9}, {1, 3, 4}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}, ONES, .dtype = CKPT_FLOAT32},
        {1, 6, 18, 6, {1, 5, 5}, {1, 3, 3}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, ONES, .dtype = CKPT_FLOAT32},
        {2, 4, 6, 2, {1, 9, 7}, {1, 3, 11}, {1, 2, 5}, {1, 3, 1}, {0, 0, 4}, ONES, .dtype = CKPT_FLOAT32},
        {1, 4, 4, 1, {1, 8, 8}, {1, 4, 4}, {1, 1, 1}, {1, 3, 3}, {0, 2, 2}, ONES, .dtype = CKPT_FLOAT32},
        {3, 17, 31, 1, {1, 20, 21}, {1, 10, 21}, {1, 7, 1}, {1, 2, 1}, {0, 3, 0}, ONES, .dtype = CKPT_FLOAT32},
        {2, 8, 12, 1, {1, 9, 9}, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}, .dtype = CKPT_FLOAT32},
        {1, 16, 16, 1, {1, 1, 300}, {1, 1, 150}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}, ONES, .dtype = CKPT_FLOAT32},
        {1,
         8,
         16,
         1,
         {6, 9, 9},
         {6, 9, 9},
         {3, 3, 3},
         {1, 1, 1},
         {1, 1, 1},
         ONES,
         .dtype = CKPT_FLOAT32,
         .volume = true},
    };
    for (size_t i = 0; i < 2 * sizeof strange / sizeof strange[0]; i++) {
        ckpt_convolution s = strange[i / 2];
        s.dtype = i % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16;
        for (int g = 0; g < GPU_COUNT; g++) {
            for (int direction = 0; direction < 3; direction++) {
                ckpt_bytes limit = -1;
                bool found = true;
                while (found) {
                    ckpt_err err = {0};
                    ckpt_cudnn_convolution *made = NULL;
                    const ckpt_code code = ckpt_cudnn_convolution_create(
                        &opened[g], &s, (ckpt_cudnn_direction)direction, limit, NULL, &made, &err);
                    CHECK(limit >= 0 || code == CKPT_OK, "shape %zu on %s: %s", i / 2, gpus[g].name, err.msg);
                    CHECK(code == CKPT_OK || code == CKPT_DEVICE, "shape %zu on %s: %s", i / 2, gpus[g].name, err.msg);
                    const ckpt_bytes used = code == CKPT_OK ? ckpt_cudnn_convolution_workspace(made) : 0;
                    CHECK(limit < 0 || used <= limit, "shape %zu: %lld bytes of %lld", i / 2, (long long)used,
                          (long long)limit);
                    if (code == CKPT_OK) {
                        check_named(g, &s, (ckpt_cudnn_direction)direction, made);
                    }
                    ckpt_cudnn_convolution_destroy(made);
                    found = code == CKPT_OK && used > 0;
                    limit = used - 1;
                }
            }
        }
    }
}

/* The first layer of a ResNet needs copies of its images with more channels. Without memory for them there is a remark,
 * with enough there is none. cuDNN 9.26 needs none on an A100. */
static void test_too_little_for_tensor_cores(void **state)
{
    static const ckpt_convolution stem = {256,       3,         64,        1,    {1, 224, 224},         {1, 112, 112},
                                          {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, ONES, .dtype = CKPT_BFLOAT16};
    for (int g = 0; g < GPU_COUNT; g++) {
        ckpt_bytes wanted = 0;
        for (int little = 0; little < 2; little++) {
            const ckpt_bytes room = (ckpt_bytes)64 << 20;
            ckpt_err err = {0};
            ckpt_cudnn_convolution *made = NULL;
            CHECK_OK(ckpt_cudnn_convolution_create(&opened[g], &stem, CKPT_CUDNN_FORWARD, little != 0 ? room : -1, NULL,
                                                   &made, &err),
                     err);
            if (little == 0) {
                wanted = ckpt_cudnn_convolution_workspace(made);
            }
            const char *const remark = ckpt_cudnn_convolution_remark(made);
            CHECK((remark[0] != '\0') == (little != 0 && wanted > room), "%s, %s: remark \"%s\"", gpus[g].name,
                  little != 0 ? "64 MiB" : "no limit", remark);
            ckpt_cudnn_convolution_destroy(made);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ attention */

/* Beside a real GPU its driver may serve cuDNN instead of the double, and then refuses code for another kind. */
static bool built[GPU_COUNT];
static int kinds_built;

static int ask_for_cudnn(void **state)
{
    for (int g = 0; g < GPU_COUNT; g++) {
        const ckpt_cudnn_attention_shape s = {1, 1, 64, 64, 192, 192, true, false};
        const ckpt_cudnn_attention *made = NULL;
        ckpt_err err = {0};
        built[g] = ckpt_cudnn_attention_get(&opened[g], &s, &made, &err) == CKPT_OK ||
                   strstr(err.msg, "no kernel image is available") == NULL;
        kinds_built += built[g];
        if (!built[g]) {
            print_message("the driver here takes no code for an %s\n", gpus[g].name);
        }
    }
    assert_in_range(kinds_built, 1, GPU_COUNT);
    return setenv("CKPT_ATTENTION", "cudnn", 1);
}

static int forget_choice(void **state)
{
    return unsetenv("CKPT_ATTENTION");
}

typedef struct bound_attention {
    void *state;
    ckpt_bytes forward, backward;
    const char *choice, *remark;
} bound_attention;

static bound_attention bind_attention(int g, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                                      const char *choice)
{
    const ckpt_kernel *const kernel = &ckpt_cuda_attention;
    bound_attention made = {0};
    ckpt_err err = {0};
    CHECK_OK(ckpt_kernel_prepare(kernel, &opened[g], node, forward, backward, choice, &made.state, &err), err);
    kernel->workspace(node, made.state, &made.forward, &made.backward);
    made.choice = kernel->choice(made.state);
    made.remark = kernel->remark(made.state);
    return made;
}

/* Within the workspace, with a free choice, with exactly the chosen workspace, and with the named choice; with one byte
 * less, our own kernels are used. */
static void check_attention(const char *name, int g, const ckpt_node *node)
{
    const ckpt_kernel *const kernel = &ckpt_cuda_attention;
    const bound_attention planned =
        bind_attention(g, node, node->forward_workspace_bytes, node->backward_workspace_bytes, NULL);
    const bound_attention wanted = bind_attention(g, node, -1, -1, NULL);
    const bound_attention same = bind_attention(g, node, planned.forward, planned.backward, planned.choice);
    const bound_attention less = bind_attention(g, node, planned.forward, planned.backward - 1, NULL);
    CHECK(strncmp(planned.choice, "forward=", 8) == 0 && planned.remark[0] == '\0', "%s on %s: %s, %s", name,
          gpus[g].name, planned.choice, planned.remark);
    CHECK(planned.forward <= node->forward_workspace_bytes && planned.backward <= node->backward_workspace_bytes,
          "%s on %s takes %lld and %lld bytes of %lld and %lld", name, gpus[g].name, (long long)planned.forward,
          (long long)planned.backward, (long long)node->forward_workspace_bytes,
          (long long)node->backward_workspace_bytes);
    CHECK(wanted.forward == planned.forward && wanted.backward == planned.backward &&
              strcmp(wanted.choice, planned.choice) == 0 && strcmp(same.choice, planned.choice) == 0,
          "%s on %s: %s, free %s, asked for %s", name, gpus[g].name, planned.choice, wanted.choice, same.choice);
    CHECK(strcmp(less.choice, "own") == 0 && strncmp(less.remark, "own kernels: ", 13) == 0, "%s on %s: %s, %s", name,
          gpus[g].name, less.choice, less.remark);
    (void)printf("%s on %s: %s; %lld and %lld bytes of %lld\n", name, gpus[g].name, planned.choice,
                 (long long)planned.forward, (long long)planned.backward, (long long)node->backward_workspace_bytes);
    ckpt_kernel_release(kernel, planned.state);
    ckpt_kernel_release(kernel, wanted.state);
    ckpt_kernel_release(kernel, same.state);
    ckpt_kernel_release(kernel, less.state);
}

/* Without a choice: cuDNN if it has warp-group products, else our own kernels; those alone where cuDNN may not. */
static void check_default(const char *name, int g, const ckpt_node *node, bool own)
{
    (void)unsetenv("CKPT_ATTENTION");
    const bound_attention made =
        bind_attention(g, node, node->forward_workspace_bytes, node->backward_workspace_bytes, NULL);
    const char *const wanted = own ? "" : gpus[g].capability == 900 ? "forward=" : "own";
    CHECK(strncmp(made.choice, wanted, own ? 1 : strlen(wanted)) == 0 && made.remark[0] == '\0', "%s on %s: %s, %s",
          name, gpus[g].name, made.choice, made.remark);
    ckpt_kernel_release(&ckpt_cuda_attention, made.state);
    (void)setenv("CKPT_ATTENTION", "cudnn", 1);
}

/* The first attention of a network; the others are equal. */
static const ckpt_node *attention_of(const char *file, const char *const *set, int set_count, bool dropout,
                                     ckpt_arena *arena)
{
    char path[512];
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    (void)snprintf(path, sizeof path, "%s/models/%s", ckpt_source_dir(), file);
    CHECK_OK(ckpt_model_read(path, set, set_count, arena, &model, &err), err);
    CHECK_OK(ckpt_model_with_dtype(model, ckpt_dtype_name(CKPT_BFLOAT16), arena, &model, &err), err);
    for (int l = 0; l < model->layer_count && !dropout; l++) {
        for (int a = 0; a < model->layer[l].attr_count; a++) {
            ckpt_attr *const attr = (ckpt_attr *)&model->layer[l].attr[a];
            if (strcmp(model->layer[l].op, "attention") == 0 && strcmp(attr->name, "dropout") == 0) {
                attr->real = 0;
            }
        }
    }
    CHECK_OK(ckpt_network_infer(model, CKPT_ON_GPU, arena, &network, &err), err);
    for (int n = 0; n < network->node_count; n++) {
        if (strcmp(network->node[n].op->name, "attention") == 0) {
            return &network->node[n];
        }
    }
    return NULL;
}

static int check_attention_file(const char *file, const char *const *set, int set_count)
{
    int checked = 0;
    for (int dropout = 0; dropout < 2; dropout++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_node *const node = attention_of(file, set, set_count, dropout != 0, &arena);
        const bool drops = node != NULL && ckpt_node_float(node, "dropout") > 0;
        const bool wanted = node != NULL && drops == (dropout != 0); /* as in the file, and without */
        for (int g = 0; wanted && g < GPU_COUNT; g++) {
            if (!built[g]) {
                continue;
            }
            check_default(file, g, node, !ckpt_gpu_attention_library(node));
            if (ckpt_gpu_attention_library(node)) {
                check_attention(file, g, node);
            }
            checked++;
        }
    }
    return checked;
}

static int check_attention_as_is(const char *file)
{
    return check_attention_file(file, NULL, 0);
}

static void test_every_attention(void **state)
{
    const int checked = check_models(check_attention_as_is);
    CHECK(checked >= kinds_built * 5, "only %d attentions were checked", checked);
}

/* Larger than any network here, so that backward takes some heads at a time: of whole sequences, or of one. */
static void test_attention_in_pieces(void **state)
{
    static const char *const larger[][4] = {{"batch=32", "tokens=1024", "positions=1024", "heads=12"},
                                            {"batch=3", "tokens=2048", "positions=2048", "heads=12"},
                                            {"batch=2", "tokens=4096", "positions=4096", "heads=6"},
                                            {"batch=1", "tokens=777", "positions=777", "heads=32"}};
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
        (void)check_attention_file("gpt2-124m.json", larger[i], 4);
    }
}

/* Lengths around the tiles' 64 and 128, odd head sizes; compared with the workspace formula. */
static void test_strange_attention(void **state)
{
    static const int64_t lengths[] = {2, 37, 64, 129}, sizes[] = {8, 24, 64, 80, 96, 120, 128};
    for (size_t d = 0; d < sizeof sizes / sizeof sizes[0]; d++) {
        const int64_t T = lengths[d % 4], D = sizes[d], in_row = (d % 2 == 0 ? 3 : 1) * 3 * D;
        const int64_t dS = 2 * 6 * ((T + 63) / 64 * 64) * ((T + 127) / 128 * 128);
        for (int k = 0; k < 2 * GPU_COUNT; k++) {
            const int g = k / 2;
            const bool backward = k % 2 != 0;
            if (!built[g]) {
                continue;
            }
            const ckpt_cudnn_attention_shape s = {2, 3, T, D, in_row, 3 * D, d % 3 != 0, backward};
            const ckpt_cudnn_attention *made = NULL, *recomputed = NULL;
            ckpt_err err = {0};
            CHECK_OK(ckpt_cudnn_attention_get(&opened[g], &s, &made, &err), err);
            CHECK_OK(ckpt_cudnn_attention_get(&opened[g], &s, &recomputed, &err), err);
            CHECK(made == recomputed, "compiled twice");
            const ckpt_bytes used = ckpt_cudnn_attention_workspace(made), most = (backward ? dS : 0) + 512;
            CHECK(used <= most, "%lld tokens, heads of %lld on %s: %lld bytes, %lld expected", (long long)T,
                  (long long)D, gpus[g].name, (long long)used, (long long)most);
        }
    }
}

/* cuDNN compiles some engines, among them all of attention's, and gives the code to the driver: here to a double of it
 * (tests/driver_double), because a real one may refuse code for another GPU. */
int main(void)
{
    ckpt_err err = {0};
    if (dlopen(ckpt_bin_file("libdriver_double.so"), RTLD_NOW | RTLD_GLOBAL) == NULL) {
        printf("no double of the driver: %s\n", dlerror());
        return 77;
    }
    if (open_all(&err) != CKPT_OK) {
        printf("this cuDNN takes no such description of a GPU: %s\n", err.msg);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_model),
        cmocka_unit_test(test_strange_shapes),
        cmocka_unit_test(test_too_little_for_tensor_cores),
    };
    const struct CMUnitTest attention[] = {
        cmocka_unit_test(test_every_attention),
        cmocka_unit_test(test_attention_in_pieces),
        cmocka_unit_test(test_strange_attention),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += cmocka_run_group_tests(attention, ask_for_cudnn, forget_choice);
    for (int g = 0; g < GPU_COUNT; g++) {
        ckpt_cudnn_attention_close(&opened[g]);
        ckpt_cudnn_close(&opened[g]);
    }
    return failed;
}
#endif
