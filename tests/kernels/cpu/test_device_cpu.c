/* labels: unit */
/* The CPU device: names, memory, binding, staging of added gradients, and errors in data. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/support/support_network.h"

static ckpt_device *open_cpu(int threads)
{
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", threads, &device, &err), err);
    return device;
}

static void names(void **state)
{
    static const struct {
        const char *name;
        int threads;
        ckpt_code code;
        const char *says;
    } wrong[] = {
        {"gpu", 1, CKPT_BAD_INPUT, "\"gpu\""},
        {"", 1, CKPT_BAD_INPUT, "no such device"},
        {"cpu:0", 1, CKPT_BAD_INPUT, "\"cpu:0\""},
        {"cuda:", 1, CKPT_BAD_INPUT, "\"cuda:\""},
        {"cuda:x", 1, CKPT_BAD_INPUT, "\"cuda:x\""},
        {"cuda:1x", 1, CKPT_BAD_INPUT, "\"cuda:1x\""},
        {"cuda:-1", 1, CKPT_BAD_INPUT, "\"cuda:-1\""},
        {"cuda:99999999999999999999", 1, CKPT_BAD_INPUT, "cuda:9999"},
        {"cuda:0", 1, CKPT_DEVICE, "cuda:0"},
        {"cuda", 1, CKPT_DEVICE, "cuda:0"},
        {"cuda:1000", 1, CKPT_DEVICE, "cuda:1000"},
        {"cpu", 0, CKPT_BAD_INPUT, "found 0 threads"},
        {"cpu", -3, CKPT_BAD_INPUT, "found -3 threads"},
        {"cpu", 1 << 20, CKPT_BAD_INPUT, "1048576 threads"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ckpt_device *device = NULL;
        ckpt_err err = {0};
        const ckpt_code code = ckpt_device_open(wrong[i].name, wrong[i].threads, &device, &err);
        CHECK(code == wrong[i].code, "\"%s\": code %d: %s", wrong[i].name, (int)code, err.msg);
        CHECK(strstr(err.msg, wrong[i].says) != NULL, "\"%s\" says: %s", wrong[i].name, err.msg);
        assert_null(device);
    }
    ckpt_device *const device = open_cpu(3);
    assert_int_equal(strncmp(device->api->describe(device), "cpu: ", 5), 0);
    assert_non_null(strstr(device->api->describe(device), ", 3 threads"));
    assert_int_equal(strncmp(device->api->libraries(device), "oneDNN ", 7), 0);
    ckpt_device_close(device);
    ckpt_device_close(NULL);
}

static void memory(void **state)
{
    ckpt_device *const device = open_cpu(1);
    const ckpt_device_api *const api = device->api;
    const ckpt_bytes page = (ckpt_bytes)sysconf(_SC_PAGESIZE);
    const ckpt_bytes sizes[] = {0, 1, 64, page - 1, page, page + 1, 10000000};
    ckpt_err err = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *base = NULL;
        CHECK_OK(api->reserve(device, sizes[i], &base, &err), err);
        assert_int_equal((uintptr_t)base % (uintptr_t)page, 0);
        for (ckpt_bytes b = 0; b < sizes[i]; b++) {
            assert_int_equal(((unsigned char *)base)[b], 0);
        }
        CHECK_OK(api->fill(device, base, 0x7f, sizes[i], &err), err);
        if (sizes[i] >= 16) {
            char back[8] = {0};
            CHECK_OK(api->upload(device, (char *)base + 8, "pattern", 8, &err), err);
            CHECK_OK(api->download(device, back, (char *)base + 8, 8, &err), err);
            assert_string_equal(back, "pattern");
            assert_int_equal(((char *)base)[7], 0x7f);
        }
        api->release(device, base, sizes[i]);
    }
    api->release(device, NULL, 5);
    CHECK_OK(api->finish(device, &err), err);
    ckpt_device_close(device);
}

/* Memory that the system refuses is a clear error: impossible sizes, and a limit of the process. */
static void memory_refused(void **state)
{
    ckpt_device *const device = open_cpu(1);
    const ckpt_bytes sizes[] = {-1, CKPT_BYTES_MAX, CKPT_BYTES_MAX - 1, (ckpt_bytes)1 << 60};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *base = NULL;
        ckpt_err err = {0};
        assert_int_equal(device->api->reserve(device, sizes[i], &base, &err), CKPT_NO_MEMORY);
        CHECK(strstr(err.msg, "cannot reserve") != NULL, "%s", err.msg);
        assert_null(base);
    }
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit tight = before;
    tight.rlim_cur = (rlim_t)2 << 30;
    if (setrlimit(RLIMIT_AS, &tight) == 0) {
        void *base = NULL;
        ckpt_err err = {0};
        const ckpt_code code = device->api->reserve(device, (ckpt_bytes)6000000000, &base, &err);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        assert_int_equal(code, CKPT_NO_MEMORY);
        CHECK(strstr(err.msg, "cannot reserve 6.00 GB") != NULL, "%s", err.msg);
    }
    ckpt_device_close(device);
}

/* Every op and optimizer has a kernel: adding one without fails here. */
static void kernels_for_everything(void **state)
{
    ckpt_device *const device = open_cpu(1);
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        const bool wanted = !(*op)->planned_only && !(*op)->view;
        CHECK((ckpt_device_find(device, (*op)->name) != NULL) == wanted, "op %s", (*op)->name);
    }
    assert_null(ckpt_device_find(device, "no such op"));
    for (const ckpt_optimizer *const *optimizer = ckpt_optimizer_table; *optimizer != NULL; optimizer++) {
        const double hyper[CKPT_HYPER_MAX] = {0.1, 0.5, 0.5, 0.1, 1, 0, 0.1, 0.5, 0.5, 1e-8};
        const ckpt_numbers numbers = ckpt_numbers_plain(*optimizer, hyper, 1);
        float param[1] = {1.0f}, slot0[1] = {0}, slot1[1] = {0};
        const float grad[1] = {1.0f};
        float *const slot[2] = {slot0, slot1};
        ckpt_err err = {0};
        CHECK_OK(ckpt_device_update(device, *optimizer, &numbers,
                                    &(ckpt_update_args){.hyper = hyper,
                                                        .decay = true,
                                                        .count = 1,
                                                        .matrix = {1, 1, 1, false},
                                                        .param = param,
                                                        .grad = grad,
                                                        .slot = slot},
                                    1, &err),
                 err);
        CHECK(param[0] < 1.0f && param[0] > 0.0f, "%s: %g", (*optimizer)->name, (double)param[0]);
    }
    const ckpt_optimizer unknown = {.name = "unknown"};
    ckpt_err err = {0};
    assert_int_equal(ckpt_device_update(device, &unknown, &(ckpt_numbers){0}, &(ckpt_update_args){0}, 1, &err),
                     CKPT_DEVICE);
    assert_non_null(strstr(err.msg, "unknown"));
    ckpt_device_close(device);
}

static const ckpt_node *last_node(test_model *m)
{
    const ckpt_network *const network = test_infer(m);
    return &network->node[network->node_count - 1];
}

static void binding(void **state)
{
    ckpt_device *const device = open_cpu(1);
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){5, 8});
    test_layer(&m, "cell", "lstm_cell", "x", "features=9");
    const ckpt_node *const node = last_node(&m);
    ckpt_bound_kernel bound = {0}, none = {0};
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, node, -1, -1, NULL, &bound, &err), err);
    assert_ptr_equal(bound.node, node);
    assert_true(bound.backward_workspace_bytes >= 5 * 4 * 9 * 4);
    ckpt_device_unbind(&bound);
    assert_null(bound.kernel);
    ckpt_device_unbind(&bound); /* twice is fine */

    /* The op's workspace is enough for its kernel. */
    CHECK_OK(ckpt_device_bind(device, node, node->forward_workspace_bytes, node->backward_workspace_bytes, NULL, &bound,
                              &err),
             err);
    assert_true(bound.forward_workspace_bytes <= node->forward_workspace_bytes);
    assert_true(bound.backward_workspace_bytes <= node->backward_workspace_bytes);
    ckpt_device_unbind(&bound);

    assert_int_equal(ckpt_device_bind(device, node, 0, 16, NULL, &none, &err), CKPT_DEVICE);
    CHECK(strstr(err.msg, "cell") != NULL && strstr(err.msg, "16") != NULL, "%s", err.msg);
    assert_null(none.kernel);
    test_model_fini(&m);

    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){5, 8});
    test_layer(&m, "secret", "opaque", "x", "shape=[4,4]");
    assert_int_equal(ckpt_device_bind(device, last_node(&m), -1, -1, NULL, &none, &err), CKPT_DEVICE);
    CHECK(strstr(err.msg, "secret") != NULL && strstr(err.msg, "opaque") != NULL, "%s", err.msg);
    test_model_fini(&m);
    ckpt_device_close(device);
}

static ckpt_code open_and_bind(void *context, ckpt_err *err)
{
    ckpt_device *device = NULL;
    CKPT_TRY(ckpt_device_open("cpu", 2, &device, err));
    ckpt_bound_kernel bound = {0};
    const ckpt_code code = ckpt_device_bind(device, context, -1, -1, NULL, &bound, err);
    ckpt_device_unbind(&bound);
    ckpt_device_close(device);
    return code;
}

static void starved(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){5, 8});
    test_input(&m, "h", CKPT_FLOAT32, 2, (int64_t[]){5, 9});
    test_layer(&m, "cell", "lstm_cell", "x h h", "features=9");
    ckpt_node node = *last_node(&m);
    assert_true(ckpt_test_starve(open_and_bind, &node) >= 2);
    test_model_fini(&m);
}

/* mul does not add and reads both inputs, which here are one value with one gradient: the first part is written, the
 * second staged and added; then both are staged and added to an older gradient. */
static void staging(void **state)
{
    enum { COUNT = 20003 };
    static float x[COUNT], dy[COUNT], dx[COUNT], room[2 * (COUNT + 64)];
    ckpt_device *const device = open_cpu(2);
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 1, (int64_t[]){COUNT});
    test_layer(&m, "square", "mul", "x x", "");
    const ckpt_node *const node = last_node(&m);
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, node, 0, 0, NULL, &bound, &err), err);
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i % 251) / 16.0f;
        dy[i] = (float)(i % 17) - 8.0f;
    }
    const void *const in[] = {x, x};
    const void *const grad_out[] = {dy};
    void *const grad_in[] = {dx, dx};
    float *const grad_param[] = {NULL};
    for (uint64_t adds = 2; adds <= 3; adds++) {
        const ckpt_bytes bytes = ckpt_staging_bytes(node, adds, 0);
        assert_int_equal(bytes, (ckpt_bytes)(adds - 1) * ckpt_round_up(COUNT * 4, CKPT_ALIGN));
        for (int i = 0; i < COUNT; i++) {
            dx[i] = 1000.0f;
        }
        memset(room, 0xff, sizeof room);
        ckpt_kernel_args args = {.in = in,
                                 .grad_out = grad_out,
                                 .grad_in = grad_in,
                                 .grad_param = grad_param,
                                 .grad_in_adds = adds,
                                 .workspace = room,
                                 .workspace_bytes = bytes - 1};
        assert_int_equal(ckpt_device_backward(device, &bound, &args, &err), CKPT_DEVICE);
        CHECK(strstr(err.msg, "square") != NULL, "%s", err.msg);
        args.workspace_bytes = bytes;
        CHECK_OK(ckpt_device_backward(device, &bound, &args, &err), err);
        for (int i = 0; i < COUNT; i++) { /* small multiples of 1/16: exact */
            const float wanted = 2.0f * x[i] * dy[i] + (adds == 3 ? 1000.0f : 0.0f);
            CHECK(dx[i] == wanted, "element %d: %g, wanted %g", i, (double)dx[i], (double)wanted);
        }
        for (size_t b = (size_t)bytes; b < sizeof room; b++) {
            assert_int_equal(((unsigned char *)room)[b], 0xff);
        }
    }
    ckpt_device_unbind(&bound);
    test_model_fini(&m);
    ckpt_device_close(device);
}

/* Parameters are staged after inputs, and the kernel's own workspace comes last: an LSTM cell that adds all gradients
 * gives the old value plus the gradient. */
static void staging_of_parameters(void **state)
{
    enum { N = 3, I = 5, H = 7, ROOM = 1 << 16 };
    static float value[8][512], grad[2][8][512];
    static _Alignas(64) unsigned char room[ROOM];
    ckpt_device *const device = open_cpu(1);
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){N, I});
    test_input(&m, "h", CKPT_FLOAT32, 2, (int64_t[]){N, H});
    test_layer(&m, "fc", "linear", "x", "features=5");
    test_layer(&m, "c", "linear", "h", "features=7");
    test_layer(&m, "cell", "lstm_cell", "fc h c", "features=7");
    const ckpt_node *const node = last_node(&m);
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, node, -1, -1, NULL, &bound, &err), err);
    for (int t = 0; t < 8; t++) {
        for (int i = 0; i < 512; i++) {
            value[t][i] = (float)((i * 37 + t * 11) % 101) / 101.0f - 0.4f;
        }
    }
    const void *const in[] = {value[0], value[1], value[2]};
    const float *const param[] = {value[3], value[4], value[5], value[6]};
    void *const saved[] = {value[7], value[2]};
    const void *const grad_out[] = {value[1], NULL};
    const uint64_t in_adds = 5, param_adds = 0xf;
    for (int round = 0; round < 2; round++) {
        for (int t = 0; t < 8; t++) {
            for (int i = 0; i < 512; i++) {
                grad[round][t][i] = 0.25f;
            }
        }
        void *const grad_in[] = {grad[round][0], NULL, grad[round][2]};
        float *const grad_param[] = {grad[round][3], grad[round][4], grad[round][5], grad[round][6]};
        memset(room, 0xff, sizeof room);
        const ckpt_bytes bytes =
            (round == 1 ? ckpt_staging_bytes(node, in_adds, param_adds) : 0) + bound.backward_workspace_bytes;
        assert_true(bytes <= ROOM);
        const ckpt_kernel_args args = {.in = in,
                                       .saved = saved,
                                       .param = param,
                                       .grad_out = grad_out,
                                       .grad_in = grad_in,
                                       .grad_param = grad_param,
                                       .grad_in_adds = round == 1 ? in_adds : 0,
                                       .grad_param_adds = round == 1 ? param_adds : 0,
                                       .workspace = room,
                                       .workspace_bytes = bytes};
        CHECK_OK(ckpt_device_backward(device, &bound, &args, &err), err);
        for (size_t b = (size_t)bytes; b < ROOM; b++) {
            assert_int_equal(room[b], 0xff);
        }
    }
    static const int count[8] = {N * I, 0, N * H, 4 * H * I, 4 * H * H, 4 * H, 4 * H, 0};
    for (int t = 0; t < 8; t++) {
        for (int i = 0; i < 512; i++) {
            const float wanted = i < count[t] ? 0.25f + grad[0][t][i] : 0.25f;
            CHECK(grad[1][t][i] == wanted, "tensor %d, element %d: %g, wanted %g", t, i, (double)grad[1][t][i],
                  (double)wanted);
        }
    }
    ckpt_device_unbind(&bound);
    test_model_fini(&m);
    ckpt_device_close(device);
}

/* Wrong numbers in the data are an error with position and value, forward and backward: no access is out of bounds. */
static void wrong_numbers(void **state)
{
    static const struct {
        const char *op, *attrs;
        int32_t number;
        int at;
        bool wrong;
    } cases[] = {
        {"embedding", "rows=10 features=4", 10, 3, true},
        {"embedding", "rows=10 features=4", -1, 0, true},
        {"embedding", "rows=10 features=4", INT32_MIN, 5, true},
        {"embedding", "rows=10 features=4", 9, 5, false},
        {"cross_entropy", "", 4, 2, true},
        {"cross_entropy", "", -1, 5, true},
        {"cross_entropy", "", INT32_MAX, 0, true},
        {"cross_entropy", "", -100, 0, false},
        {"cross_entropy", "ignore_index=-1", -100, 1, true},
        {"cross_entropy", "ignore_index=7", 7, 1, false},
        {"nll_loss", "", 4, 1, true},
        {"nll_loss", "", -100, 4, true},
        {"nll_loss", "", 3, 4, false},
    };
    ckpt_device *const device = open_cpu(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool table = strcmp(cases[i].op, "embedding") == 0;
        test_model m;
        test_model_init(&m);
        if (!table) {
            test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){6, 4});
        }
        test_input(&m, "numbers", CKPT_INT32, 1, (int64_t[]){6});
        test_layer(&m, "the.layer", cases[i].op, table ? "numbers" : "x numbers", cases[i].attrs);
        const ckpt_node *const node = last_node(&m);
        ckpt_bound_kernel bound;
        ckpt_err err = {0};
        CHECK_OK(ckpt_device_bind(device, node, -1, -1, NULL, &bound, &err), err);
        int32_t numbers[6] = {0, 1, 2, 3, 2, 1};
        numbers[cases[i].at] = cases[i].number;
        float x[64] = {0}, out[64] = {0}, lse[8] = {0}, counted[1] = {6}, grad[64] = {0};
        const void *const in[] = {table ? (void *)numbers : (void *)x, numbers};
        void *const outs[] = {out}, *const saved[] = {lse, counted};
        const float *const param[] = {x};
        const void *const grad_out[] = {table ? x : NULL};
        float *const grads[] = {grad, NULL};
        const ckpt_kernel_args args = {.in = in,
                                       .out = outs,
                                       .saved = saved,
                                       .param = param,
                                       .grad_out = grad_out,
                                       .grad_in = (void *const[]){grad, NULL},
                                       .grad_param = grads};
        for (int direction = 0; direction < 2; direction++) {
            const ckpt_code code =
                (direction == 0 ? ckpt_device_forward : ckpt_device_backward)(device, &bound, &args, &err);
            CHECK(code == (cases[i].wrong ? CKPT_BAD_INPUT : CKPT_OK), "case %zu: code %d: %s", i, (int)code, err.msg);
            if (cases[i].wrong) {
                char row[32], number[32];
                snprintf(row, sizeof row, " %d:", cases[i].at);
                snprintf(number, sizeof number, "found %ld,", (long)cases[i].number);
                CHECK(strstr(err.msg, row) != NULL && strstr(err.msg, number) != NULL &&
                          strstr(err.msg, "the.layer") != NULL,
                      "case %zu says: %s", i, err.msg);
            }
        }
        ckpt_device_unbind(&bound);
        test_model_fini(&m);
    }
    ckpt_device_close(device);
}

/* If no row counts, the mean is NaN and the gradient is zero, as in PyTorch. */
static void all_rows_ignored(void **state)
{
    ckpt_device *const device = open_cpu(1);
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){2, 3});
    test_input(&m, "t", CKPT_INT32, 1, (int64_t[]){2});
    test_layer(&m, "loss", "cross_entropy", "x t", "");
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, last_node(&m), -1, -1, NULL, &bound, &err), err);
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const int32_t target[2] = {-100, -100};
    float loss[1], lse[2], counted[1], grad[6] = {9, 9, 9, 9, 9, 9};
    const void *const in[] = {x, target};
    void *const out[] = {loss}, *const saved[] = {lse, counted};
    const void *const grad_out[] = {NULL};
    void *const grads[] = {grad, NULL};
    const ckpt_kernel_args args = {.in = in, .out = out, .saved = saved, .grad_out = grad_out, .grad_in = grads};
    CHECK_OK(ckpt_device_forward(device, &bound, &args, &err), err);
    CHECK_OK(ckpt_device_backward(device, &bound, &args, &err), err);
    assert_true(isnan(loss[0]));
    for (int i = 0; i < 6; i++) {
        assert_true(grad[i] == 0.0f);
    }
    ckpt_device_unbind(&bound);
    test_model_fini(&m);
    ckpt_device_close(device);
}

/* Dropout: the mask depends on seed, step and layer only, is the same backward, and absent when evaluating. */
static void dropout_masks(void **state)
{
    enum { COUNT = 40000 };
    static float x[COUNT], y[4][COUNT], dx[COUNT];
    ckpt_device *const device = open_cpu(2);
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 1, (int64_t[]){COUNT});
    test_layer(&m, "drop", "dropout", "x", "p=0.25");
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, last_node(&m), -1, -1, NULL, &bound, &err), err);
    int kept = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = 3.0f;
    }
    for (int k = 0; k < 4; k++) {
        const void *const in[] = {x};
        void *const out[] = {y[k]};
        const ckpt_kernel_args args = {
            .in = in, .out = out, .seed = k == 1 ? 8 : 7, .step = k == 2 ? 6 : 5, .evaluating = k == 3};
        CHECK_OK(ckpt_device_forward(device, &bound, &args, &err), err);
    }
    const void *const grad_out[] = {x};
    void *const grads[] = {dx};
    const ckpt_kernel_args args = {.grad_out = grad_out, .grad_in = grads, .seed = 7, .step = 5};
    CHECK_OK(ckpt_device_backward(device, &bound, &args, &err), err);
    assert_memory_equal(dx, y[0], sizeof dx);
    assert_memory_not_equal(y[1], y[0], sizeof dx);
    assert_memory_not_equal(y[2], y[0], sizeof dx);
    assert_memory_equal(y[3], x, sizeof dx);
    for (int i = 0; i < COUNT; i++) {
        kept += y[0][i] != 0.0f;
        CHECK(y[0][i] == 0.0f || y[0][i] == 4.0f, "element %d: %g", i, (double)y[0][i]);
    }
    /* 40000 draws at 0.75: standard deviation 87 */
    CHECK(kept > 30000 - 450 && kept < 30000 + 450, "%d kept", kept);
    ckpt_device_unbind(&bound);
    test_model_fini(&m);
    ckpt_device_close(device);
}

/* Keys that a mask hides all at the beginning: what is taken first has no maximum. And NaN is not taken for hidden. */
static void attention_hidden_at_first(void **state)
{
    enum { S = 600, D = 4, SEEN = 500 };
    static float q[2][D], k[S][D], v[S][D];
    static int32_t mask[S];
    float y[2][D], lse[2];
    ckpt_device *const device = open_cpu(1);
    test_model m;
    test_model_init(&m);
    test_input(&m, "q", CKPT_FLOAT32, 3, (int64_t[]){1, 2, D});
    test_input(&m, "k", CKPT_FLOAT32, 3, (int64_t[]){1, S, D});
    test_input(&m, "v", CKPT_FLOAT32, 3, (int64_t[]){1, S, D});
    test_input(&m, "mask", CKPT_INT32, 2, (int64_t[]){1, S});
    test_layer(&m, "att", "attention", "q k v mask", "heads=1 mask=true");
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, last_node(&m), -1, -1, NULL, &bound, &err), err);
    double sum = 0, wanted[D] = {0};
    for (int d = 0; d < D; d++) {
        q[0][d] = (float)(d + 1);
        q[1][d] = NAN;
    }
    for (int j = 0; j < S; j++) {
        double score = 0;
        for (int d = 0; d < D; d++) {
            k[j][d] = (float)((7 * j + 3 * d) % 11) / 11;
            v[j][d] = (float)((5 * j + 2 * d) % 13) / 13;
            score += (double)q[0][d] * (double)k[j][d] / sqrt(D);
        }
        mask[j] = j >= SEEN;
        sum += mask[j] ? exp(score) : 0;
        for (int d = 0; d < D; d++) {
            wanted[d] += mask[j] ? exp(score) * (double)v[j][d] : 0;
        }
    }
    const void *const in[] = {q, k, v, mask};
    void *const out[] = {y}, *const saved[] = {lse};
    void *const workspace = aligned_alloc(CKPT_ALIGN, (size_t)ckpt_round_up(bound.forward_workspace_bytes, CKPT_ALIGN));
    assert_non_null(workspace);
    const ckpt_kernel_args args = {
        .in = in, .out = out, .saved = saved, .workspace = workspace, .workspace_bytes = bound.forward_workspace_bytes};
    CHECK_OK(ckpt_device_forward(device, &bound, &args, &err), err);
    for (int d = 0; d < D; d++) {
        CHECK(fabs((double)y[0][d] - wanted[d] / sum) < 1e-6, "%d: %.9g, wanted %.9g", d, (double)y[0][d],
              wanted[d] / sum);
        assert_true(isnan(y[1][d]));
    }
    CHECK(fabs((double)lse[0] - log(sum)) < 1e-5, "%.9g, wanted %.9g", (double)lse[0], log(sum));
    free(workspace);
    ckpt_device_unbind(&bound);
    test_model_fini(&m);
    ckpt_device_close(device);
}

/* The gradient of a loss with the gradient `arriving`; NULL: none. Inputs: N rows of K numbers, and targets that are
 * classes, or numbers if the op wants numbers; a weight of K x K for an op that has one. */
static void loss_gradient(ckpt_device *device, const ckpt_node *node, const float *arriving, float *grad)
{
    enum { N = 37, K = 23 };
    static float x[N * K], other[N * K], weight_gradient[K * K], out[1], lse[N], counted[1];
    static _Alignas(CKPT_ALIGN) unsigned char workspace[1 << 20];
    int32_t target[N];
    for (int i = 0; i < N * K; i++) {
        x[i] = (float)sin(i * 12.9898);
        other[i] = (float)sin(i * 78.233 + 1);
    }
    for (int r = 0; r < N; r++) {
        target[r] = r * 7 % K;
    }
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, node, -1, -1, NULL, &bound, &err), err);
    const void *const in[] = {x, node->in[1].dtype == CKPT_INT32 ? (const void *)target : other};
    void *const outs[] = {out}, *const saved[] = {lse, counted};
    const void *const grad_out[] = {arriving};
    void *const grad_in[] = {grad, NULL};
    const float *const param[] = {other};
    float *const grad_param[] = {weight_gradient};
    const ckpt_kernel_args args = {.in = in,
                                   .out = outs,
                                   .saved = saved,
                                   .param = param,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = grad_param,
                                   .workspace = workspace,
                                   .workspace_bytes = sizeof workspace};
    assert_true(bound.forward_workspace_bytes <= (ckpt_bytes)sizeof workspace);
    assert_true(bound.backward_workspace_bytes <= (ckpt_bytes)sizeof workspace);
    CHECK_OK(ckpt_device_forward(device, &bound, &args, &err), err);
    CHECK_OK(ckpt_device_backward(device, &bound, &args, &err), err);
    ckpt_device_unbind(&bound);
}

/* Every loss multiplies by its own gradient, exactly for a power of two, as the loss scale and the weight of a
 * micro-batch are. Without one it is 1. */
static void losses_honour_what_arrives(void **state)
{
    enum { COUNT = 37 * 23 };
    static const float arriving[] = {1.0f, 0.25f, 1024.0f, 0.0f, -2.0f};
    static float plain[COUNT], grad[COUNT];
    ckpt_device *const device = open_cpu(2);
    int seen = 0;
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        if (!(*op)->loss) {
            continue;
        }
        if ((*op)->in_max == CKPT_IN_MAX) {
            continue; /* total, which gives every loss the gradient that arrives */
        }
        static const char *const pairs[] = {"mse", "bce", "kl", "l1", "huber"};
        bool numbers = false;
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            numbers = numbers || strcmp((*op)->name, pairs[p]) == 0;
        }
        test_model m;
        test_model_init(&m);
        test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){37, 23});
        test_input(&m, "t", numbers ? CKPT_FLOAT32 : CKPT_INT32, numbers ? 2 : 1, (int64_t[]){37, 23});
        const bool weighted = strcmp((*op)->name, "linear_cross_entropy") == 0;
        test_layer(&m, "loss", (*op)->name, "x t", weighted ? "features=23 bias=false unit=16" : "");
        ckpt_node node = *last_node(&m);
        node.grad_in = 1;
        loss_gradient(device, &node, NULL, plain);
        for (size_t k = 0; k < sizeof arriving / sizeof *arriving; k++) {
            memset(grad, 0xff, sizeof grad);
            loss_gradient(device, &node, &arriving[k], grad);
            for (int i = 0; i < COUNT; i++) {
                CHECK(grad[i] == arriving[k] * plain[i], "%s, %g arriving, value %d: %g, without %g", (*op)->name,
                      (double)arriving[k], i, (double)grad[i], (double)plain[i]);
            }
        }
        seen++;
        test_model_fini(&m);
    }
    assert_true(seen >= 3);
    ckpt_device_close(device);
}

/* Compares sums of squares with a plain loop, and the bits for different numbers of threads, at all kinds of lengths.
 * All partial sums are positive, so both results are within count / 2 roundings of the exact sum. */
static void squares(void **state)
{
    enum { MOST = 300007 };
    static const int64_t counts[] = {0, 1, 2, 7, 8, 63, 64, 65, 511, 4096, 16384, 16385, 99999, MOST};
    static float x[MOST + 1];
    ckpt_device *device[4];
    for (int t = 0; t < 4; t++) {
        device[t] = open_cpu(t + 1);
    }
    for (int i = 0; i <= MOST; i++) {
        x[i] = (float)(sin(i * 12.9898) * exp(20 * sin(i * 0.37)));
    }
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        for (int shift = 0; shift < 2; shift++) { /* pieces of parameters start anywhere */
            double want = 0, first = 0;
            for (int64_t i = 0; i < counts[n]; i++) {
                want += (double)x[i + shift] * (double)x[i + shift];
            }
            for (int t = 0; t < 4; t++) {
                const ckpt_device_api *const api = device[t]->api;
                double sum = -1;
                ckpt_err err = {0};
                assert_int_equal(api->square_workspace(counts[n]), 0);
                CHECK_OK(api->square_sum(device[t], x + shift, counts[n], &sum, NULL, &err), err);
                CHECK(fabs(sum - want) <= want * (double)counts[n] * 0x1p-53, "%lld: %.17g, wanted %.17g",
                      (long long)counts[n], sum, want);
                first = t == 0 ? sum : first;
                CHECK(memcmp(&sum, &first, sizeof sum) == 0, "%lld: %d threads give other bits", (long long)counts[n],
                      t + 1);
            }
        }
    }
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        const float before = x[77777];
        double sum = 0;
        ckpt_err err = {0};
        x[77777] = odd[k];
        CHECK_OK(device[1]->api->square_sum(device[1], x, MOST, &sum, NULL, &err), err);
        x[77777] = before;
        CHECK(k == 0  ? isnan(sum)
              : k < 3 ? isinf(sum) && sum > 0
                      : isfinite(sum) && sum > 9e59,
              "%g: %g", (double)odd[k], sum);
    }
    for (int t = 0; t < 4; t++) {
        ckpt_device_close(device[t]);
    }
}

/* torch.nn.utils.clip_grad_norm_: norm = sqrt(sum of squares), coefficient = max_norm / (norm + 1e-6), at most 1. */
static void clipping_scale(void **state)
{
    static const struct {
        double sum[5];
        int count;
        double base, most, length; /* length: the norm of base times the vector */
    } cases[] = {
        {{9, 16}, 2, 1, 1, 5},       {{9, 16}, 2, 1, 5, 5},
        {{9, 16}, 2, 1, 5.1, 5},     {{9, 16}, 2, 0.25, 1, 1.25},
        {{9, 16}, 2, 0.25, 2, 1.25}, {{0}, 0, 1, 1, 0},
        {{0, 0, 0}, 3, 0.5, 1, 0},   {{1, 1, 1, 1, 12}, 5, 2, 1e-3, 8},
        {{1e40}, 1, 1, 1, 1e20},
    };
    ckpt_device *const device = open_cpu(1);
    ckpt_err err = {0};
    float scale = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double share = cases[i].most / (cases[i].length + 1e-6);
        const double want = share < 1 ? cases[i].base * share : cases[i].base;
        CHECK_OK(
            device->api->clip_scale(device, cases[i].sum, cases[i].count, cases[i].base, cases[i].most, &scale, &err),
            err);
        CHECK(fabs((double)scale - want) <= 0x1p-24 * want, "case %zu: %.9g, wanted %.9g", i, (double)scale, want);
    }
    const double nothing[] = {1, (double)NAN, 2}, everything[] = {1, (double)INFINITY};
    CHECK_OK(device->api->clip_scale(device, nothing, 3, 1, 1, &scale, &err), err);
    assert_true(isnan(scale));
    CHECK_OK(device->api->clip_scale(device, everything, 2, 1, 1, &scale, &err), err);
    assert_true(scale == 0.0f); /* as in PyTorch: infinite values become NaN when multiplied by it */
    ckpt_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_refused),
        cmocka_unit_test(kernels_for_everything),
        cmocka_unit_test(binding),
        cmocka_unit_test(starved),
        cmocka_unit_test(staging),
        cmocka_unit_test(staging_of_parameters),
        cmocka_unit_test(wrong_numbers),
        cmocka_unit_test(all_rows_ignored),
        cmocka_unit_test(dropout_masks),
        cmocka_unit_test(losses_honour_what_arrives),
        cmocka_unit_test(squares),
        cmocka_unit_test(clipping_scale),
        cmocka_unit_test(attention_hidden_at_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
