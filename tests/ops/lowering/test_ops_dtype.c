/* labels: unit */
/* Networks in bfloat16 and networks for a GPU: what becomes narrow and what does not, whose workspaces count, and
 * gradients that overwrite inputs. */
#include "tests/support/support_test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support_network.h"

/* ---- every model file, in both types ---- */

static const ckpt_lowered *lower_file(const char *file, const char *dtype, int threads, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    const ckpt_lowered *lowered = NULL;
    char path[400];
    (void)snprintf(path, sizeof path, "%s/models/%s", ckpt_source_dir(), file);
    CHECK_OK(ckpt_model_read(path, NULL, 0, arena, &model, &err), err);
    CHECK_OK(ckpt_model_with_dtype(model, dtype, arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, threads, arena, &network, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, NULL, arena, &lowered, &err), err);
    return lowered;
}

static const ckpt_tensor *tensor_of(const ckpt_lowered *lowered, int b)
{
    const ckpt_buffer_role role = lowered->buffer_role[b];
    return role.holds == CKPT_HOLDS_SAVED ? &lowered->network->node[role.node].saved[role.saved]
                                          : &lowered->network->value[role.value].tensor;
}

/* What has the same type in a bfloat16 network: losses and other scalars, moments, probabilities of routers, and positions;
 * all else that a layer hands on or saves is an activation. */
static bool keeps_type(const ckpt_lowered *lowered, int b)
{
    static const char *const kept[] = {"mean", "rstd", "lse", "count", "indices", "mask", "probabilities"};
    const ckpt_buffer_role role = lowered->buffer_role[b];
    const ckpt_network *const n = lowered->network;
    const ckpt_tensor *const tensor = tensor_of(lowered, b);
    if (role.holds != CKPT_HOLDS_SAVED || tensor->dtype == CKPT_INT32) {
        return tensor->dtype == CKPT_INT32 || tensor->shape.rank == 0;
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (strcmp(n->node[role.node].saved[role.saved].name, kept[i]) == 0) {
            return true;
        }
    }
    return false;
}

static ckpt_bytes bytes_of(const ckpt_lowered *lowered, int b, ckpt_bytes each)
{
    return (each * ckpt_tensor_room(tensor_of(lowered, b)) + 63) / 64 * 64;
}

/* One float32 copy of all parameters, with what the network's pitches put behind them. */
static ckpt_bytes param_bytes(const ckpt_network *network)
{
    ckpt_bytes bytes = 0;
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < network->node[n].param_count; k++) {
            const ckpt_param *const param = &network->node[n].param[k];
            const int64_t count = ckpt_shape_count(&param->tensor.shape) + param->padding;
            bytes += param->tied < 0 ? (4 * count + 63) / 64 * 64 : 0;
        }
    }
    return bytes;
}

static void compare_statics(const char *file, const ckpt_lowered *wide, const ckpt_lowered *narrow, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_static_layout w, n;
    CHECK_OK(ckpt_network_statics(wide->network, arena, &w, &err), err);
    CHECK_OK(ckpt_network_statics(narrow->network, arena, &n, &err), err);
    const int scales = wide->network->clip_norm > 0 ? 1 : 0; /* a block more */
    CHECK(w.weights16 == w.scales && wide->graph->static_count == 5 + scales, "%s: float32 has a copy of its weights",
          file);
    CHECK(narrow->graph->static_count == 6 + scales && strcmp(narrow->graph->statics[5].name, "weights16") == 0 &&
              narrow->graph->statics[5].bytes == n.scales - n.weights16,
          "%s: no weights16 in the graph", file);
    const int copies = 2 + wide->network->optimizer->slots(wide->network->hyper);
    CHECK(w.weight_bytes == param_bytes(wide->network) && w.statistics == copies * w.weight_bytes &&
              n.weight_bytes == param_bytes(narrow->network) && n.statistics == copies * n.weight_bytes &&
              n.inputs - n.statistics == w.inputs - w.statistics,
          "%s: what is float32 has another size", file);
    CHECK(n.scales - n.weights16 == (n.weight_bytes + 127) / 128 * 64, "%s: %lld bytes of weights16", file,
          (long long)(n.scales - n.weights16));
    CHECK(narrow->graph->static_bytes == n.total, "%s: %lld static bytes", file,
          (long long)narrow->graph->static_bytes);
    ckpt_bytes inputs = 0;
    for (int i = 0; i < wide->network->model->input_count; i++) {
        const ckpt_tensor *const input = &wide->network->model->input[i];
        const int64_t each = input->dtype == CKPT_INT32 ? 4 : 2;
        CHECK(n.input[i] == inputs, "%s: input %d lies at %lld", file, i, (long long)n.input[i]);
        inputs += (ckpt_shape_count(&input->shape) * each + 63) / 64 * 64;
        CHECK(narrow->network->model->input[i].dtype == input->dtype, "%s: the file's input is another", file);
    }
    CHECK(n.weights16 - n.inputs == inputs, "%s: %lld bytes of inputs", file, (long long)(n.weights16 - n.inputs));
}

static void compare_file(const char *file, int threads)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_lowered *const wide = lower_file(file, "float32", threads, &arena);
    const ckpt_lowered *const narrow = lower_file(file, "bfloat16", threads, &arena);
    const ckpt_graph *const w = wide->graph, *const n = narrow->graph;
    CHECK(w->op_count == n->op_count && w->buffer_count == n->buffer_count, "%s: another step", file);
    for (int o = 0; o < w->op_count; o++) {
        CHECK(strcmp(w->op[o].name, n->op[o].name) == 0 && w->op[o].reads.count == n->op[o].reads.count &&
                  w->op[o].writes.count == n->op[o].writes.count && w->op[o].inplace_count == n->op[o].inplace_count,
              "%s: op %s is another", file, w->op[o].name);
    }
    for (int b = 0; b < w->buffer_count; b++) {
        const ckpt_bytes each = tensor_of(wide, b)->dtype == CKPT_UINT8 ? 1 : 4; /* positions may be bytes */
        CHECK(strcmp(w->buffer[b].name, n->buffer[b].name) == 0 && w->buffer[b].bytes == bytes_of(wide, b, each),
              "%s: %s has %lld bytes in float32", file, w->buffer[b].name, (long long)w->buffer[b].bytes);
        CHECK(n->buffer[b].bytes == bytes_of(narrow, b, keeps_type(wide, b) ? each : 2), /* pitches are of a type */
              "%s: %s has %lld bytes in bfloat16", file, n->buffer[b].name, (long long)n->buffer[b].bytes);
    }
    compare_statics(file, wide, narrow, &arena);
}

static void each_file(void (*with)(const char *file, int threads), int threads)
{
    DIR *const folder = opendir(ckpt_source_file("models"));
    assert_non_null(folder);
    int found = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            with(entry->d_name, threads);
            found++;
        }
    }
    (void)closedir(folder);
    assert_true(found > 10);
}

static void test_models_in_bfloat16(void **state)
{
    each_file(compare_file, 2);
    each_file(compare_file, CKPT_ON_GPU);
}

/* ---- one model by hand ---- */

static void start_mixed(test_model *m)
{
    test_model_init(m);
    test_input(m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 48});
    test_input(m, "classes", CKPT_INT32, 1, (int64_t[]){4});
    test_layer(m, "fc1", "linear", "x", "features=80");
    test_layer(m, "act", "gelu", "", "");
    test_layer(m, "norm", "layernorm", "", "");
    test_layer(m, "fc2", "linear", "", "features=40 bias=false");
    test_layer(m, "loss", "cross_entropy", "fc2 classes", "");
    m->model.dtype = CKPT_BFLOAT16;
}

static void test_by_hand(void **state)
{
    test_model m;
    start_mixed(&m);
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_network *const n = lowered->network;
    const ckpt_graph *const g = lowered->graph;
    static const struct {
        const char *name;
        ckpt_bytes bytes;
    } wanted[] = {{"fc1", 640},       {"act", 640},      {"norm", 640},      {"norm/mean", 64},
                  {"norm/rstd", 64},  {"fc2", 320},      {"loss", 64},       {"loss/lse", 64},
                  {"loss/count", 64}, {"fc2/grad", 320}, {"norm/grad", 640}, {"fc1/grad", 640}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const int b = ckpt_graph_find_buffer(g, wanted[i].name);
        CHECK(b >= 0 && g->buffer[b].bytes == wanted[i].bytes, "%s: %lld bytes", wanted[i].name,
              (long long)(b >= 0 ? g->buffer[b].bytes : -1));
    }
    assert_int_equal(n->value[0].tensor.dtype, CKPT_BFLOAT16);
    assert_int_equal(n->value[1].tensor.dtype, CKPT_INT32);
    assert_int_equal(n->node[0].in[0].dtype, CKPT_BFLOAT16);
    assert_int_equal(n->node[0].param[0].tensor.dtype, CKPT_FLOAT32);
    assert_int_equal(n->node[4].out[0].dtype, CKPT_FLOAT32);
    assert_int_equal(n->node[2].saved[1].dtype, CKPT_FLOAT32);
    assert_true(n->value[2].needs_grad && n->node[4].grad_in == 1 && n->node[1].grad_in == 1);
    assert_false(n->value[0].needs_grad);
    /* x and y in bfloat16, weight and bias read as bfloat16; backward writes their gradients in float32. */
    assert_int_equal(n->node[0].forward_moved_bytes, 2 * (4 * 48 + 4 * 80 + 48 * 80 + 80));
    assert_int_equal(n->node[0].backward_moved_bytes, 2 * (4 * 48 + 4 * 80) + (2 + 4) * (48 * 80 + 80));
    assert_int_equal(n->node[0].forward_flop, 2 * 4 * 48 * 80 + 4 * 80);
    assert_string_equal(g->statics[5].name, "weights16");
    /* 48 x 80, 80, 80 and 80 of the norm, 40 x 80 values, half of their 4 bytes: 14560, rounded up to a line */
    assert_int_equal(g->statics[5].bytes, 14592);
    assert_int_equal(g->statics[4].bytes, 4 * 48 * 2 + 64);
    test_model_fini(&m);
}

static void test_wrong_types(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 2, (int64_t[]){4, 8});
    test_layer(&m, "act", "relu", "ids", "");
    m.model.dtype = CKPT_BFLOAT16;
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    assert_int_equal(ckpt_network_infer(&m.model, 1, &m.arena, &network, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, "input 0 is int32 [4, 8], wanted bfloat16") != NULL, "%s", err.msg);
    test_model_fini(&m);
}

/* Bytes that a file states are bytes in either type. */
static void test_opaque(void **state)
{
    for (int narrow = 0; narrow < 2; narrow++) {
        test_model m;
        test_model_init(&m);
        test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
        test_layer(&m, "a", "opaque", "x", "bytes=100 saved_bytes=300 param_bytes=1000 workspace_bytes=77");
        test_layer(&m, "b", "opaque", "a", "shape=[10,20]");
        test_layer(&m, "c", "relu", "b", "");
        m.model.dtype = narrow ? CKPT_BFLOAT16 : CKPT_FLOAT32;
        ckpt_err err = {0};
        const ckpt_network *n = NULL;
        CHECK_OK(ckpt_network_infer(&m.model, CKPT_ON_GPU, &m.arena, &n, &err), err);
        assert_int_equal(ckpt_tensor_bytes(&n->node[0].out[0]), 100);
        assert_int_equal(n->node[0].out[0].dtype, m.model.dtype);
        assert_int_equal(ckpt_tensor_bytes(&n->node[0].saved[0]), 300);
        assert_int_equal(ckpt_tensor_bytes(&n->node[0].param[0].tensor), 1000);
        assert_int_equal(ckpt_tensor_bytes(&n->node[1].out[0]), narrow ? 400 : 800);
        assert_int_equal(n->node[0].forward_workspace_bytes, 77); /* stated for every device */
        assert_int_equal(n->node[0].backward_workspace_bytes, 77);
        test_model_fini(&m);
    }
}

/* ---- for a GPU ---- */

static void check_gpu_file(const char *file, int threads)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_lowered *const lowered = lower_file(file, NULL, threads, &arena);
    const ckpt_network *const n = lowered->network;
    assert_int_equal(n->threads, CKPT_ON_GPU);
    for (int o = 0; o < lowered->graph->op_count; o++) {
        const ckpt_op_role *const role = &lowered->op_role[o];
        if (role->task != CKPT_TASK_LAYER) {
            continue; /* the norm of all gradients */
        }
        const ckpt_node *const node = &n->node[role->node];
        ckpt_bytes allowed[2] = {0, 0};
        assert_int_equal(node->threads, CKPT_ON_GPU);
        if (node->op->gpu_workspace != NULL) {
            node->op->gpu_workspace(node, &allowed[0], &allowed[1]);
        }
        ckpt_bytes wanted = role->phase == CKPT_UPDATE ? 0 : (allowed[role->phase == CKPT_BACKWARD] + 63) / 64 * 64;
        if (role->phase == CKPT_BACKWARD) {
            wanted += ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds);
        }
        CHECK(lowered->graph->op[o].workspace_bytes == wanted, "%s: %s has %lld bytes of workspace, wanted %lld", file,
              lowered->graph->op[o].name, (long long)lowered->graph->op[o].workspace_bytes, (long long)wanted);
    }
}

static void test_gpu_workspaces(void **state)
{
    each_file(check_gpu_file, CKPT_ON_GPU);
}

/* The roofline takes the rate of the network's type. */
static void test_gpu_times(void **state)
{
    const ckpt_device_model device = {
        .name = "d", .gpu = true, .flop_per_s = 1e9, .flop_per_s16 = 4e9, .bytes_per_s = 1e15, .launch_ns = 0};
    for (int narrow = 0; narrow < 2; narrow++) {
        test_model m;
        start_mixed(&m);
        m.model.dtype = narrow ? CKPT_BFLOAT16 : CKPT_FLOAT32;
        ckpt_err err = {0};
        const ckpt_lowered *lowered = NULL;
        CHECK_OK(ckpt_network_lower(test_infer(&m), NULL, &device, &m.arena, &lowered, &err), err);
        const ckpt_flop flop = lowered->network->node[0].forward_flop;
        assert_int_equal(lowered->graph->op[0].time_ns, narrow ? flop / 4 : flop);
        test_model_fini(&m);
    }
}

/* ---- gradients in place ---- */

/* "fc/grad for fc" of the op, "" when it has no pair. */
static const char *pair_of(test_model *m, const ckpt_graph *g, const char *name)
{
    const int o = ckpt_graph_find_op(g, name);
    CHECK(o >= 0, "no op %s", name);
    if (g->op[o].inplace_count == 0) {
        return "";
    }
    assert_int_equal(g->op[o].inplace_count, 1);
    return ckpt_arena_format(&m->arena, "%s for %s", g->buffer[g->op[o].inplace[0].out].name,
                             g->buffer[g->op[o].inplace[0].in].name);
}

static void test_gradients_in_place(void **state)
{
    test_model m;
    start_mixed(&m);
    const ckpt_graph *g = test_lower(&m)->graph;
    assert_string_equal(pair_of(&m, g, "loss/backward"), "fc2/grad for fc2");
    assert_string_equal(pair_of(&m, g, "act/backward"), "fc1/grad for fc1");
    assert_string_equal(pair_of(&m, g, "norm/backward"), "");
    assert_string_equal(pair_of(&m, g, "fc2/backward"), "");
    test_model_fini(&m);

    /* The second reader met writes, the other adds; a target that learns; both sides of a loss; what another shape
     * shows; an op that may not. */
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 48});
    test_layer(&m, "fc", "linear", "x", "features=48");
    test_layer(&m, "one", "gelu", "fc", "");
    test_layer(&m, "two", "gelu", "fc", "");
    test_layer(&m, "flat", "reshape", "two", "shape=[8,24]");
    test_layer(&m, "act", "gelu", "flat", "");
    test_layer(&m, "back", "reshape", "act", "shape=[4,48]");
    test_layer(&m, "sum", "add", "one back", "");
    test_layer(&m, "loss", "mse", "x sum", "");
    g = test_lower(&m)->graph;
    assert_string_equal(pair_of(&m, g, "loss/backward"), "sum/grad for sum");
    assert_string_equal(pair_of(&m, g, "act/backward"), "two/grad for two");
    assert_string_equal(pair_of(&m, g, "two/backward"), "fc/grad for fc");
    assert_string_equal(pair_of(&m, g, "one/backward"), "");
    assert_string_equal(pair_of(&m, g, "sum/backward"), "");
    test_model_fini(&m);

    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 48});
    test_layer(&m, "a", "linear", "x", "features=48");
    test_layer(&m, "b", "linear", "x", "features=48");
    test_layer(&m, "loss", "mse", "a b", "");
    g = test_lower(&m)->graph;
    assert_string_equal(pair_of(&m, g, "loss/backward"), "");
    test_model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_in_bfloat16), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_wrong_types),        cmocka_unit_test(test_opaque),
        cmocka_unit_test(test_gpu_workspaces),     cmocka_unit_test(test_gpu_times),
        cmocka_unit_test(test_gradients_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
