/* labels: contract gpu; long under sanitizers; on a GPU: 60 s, together */
/* The algorithms of products: complete sums, the choice between candidates, names of algorithms. It runs on every GPU
 * present. On the emulated one candidates are made up (tests/emulation/blas_host.cpp): some must not be chosen, and the
 * fastest of the others is known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/formats/tensor.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_network.h"
#include "tests/support/support_test.h"

static bool emulated(const ckpt_gpu *gpu)
{
    return gpu->device->api == &ckpt_device_emulated;
}

/* A linear layer of ones, whose results are whole numbers. */

enum { X, W, BIAS, DY, READ, Y = READ, DX, DW, DBIAS, TENSORS };

typedef struct ones {
    test_model m;
    ckpt_device *device;
    const ckpt_node *node;
    ckpt_bound_kernel bound;
    int64_t count[TENSORS];
    ckpt_dtype dtype[TENSORS];
    void *at[TENSORS], *w16, *bias16, *workspace;
    ckpt_bytes workspace_bytes;
} ones;

static ckpt_bytes bytes_of(const ones *o, int k)
{
    return o->count[k] * ckpt_dtype_bytes(o->dtype[k]);
}

static void reserve(ones *o, ckpt_bytes bytes, void **at)
{
    ckpt_err err = {0};
    CHECK_OK(o->device->api->reserve(o->device, bytes, at, &err), err);
}

static void put_ones(ones *o, void *to, ckpt_dtype dtype, int64_t count)
{
    ckpt_err err = {0};
    const size_t size = (size_t)ckpt_dtype_bytes(dtype);
    unsigned char *const host = ckpt_memory_get((size_t)count * size);
    const float one = 1;
    const uint16_t one16 = ckpt_bfloat16_of(one);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) {
        memcpy(host + (size_t)i * size, dtype == CKPT_BFLOAT16 ? (const void *)&one16 : (const void *)&one, size);
    }
    CHECK_OK(o->device->api->upload(o->device, to, host, count * (ckpt_bytes)size, &err), err);
    ckpt_memory_put(host);
}

static void ones_init(ones *o, ckpt_device *device, ckpt_dtype dtype, int64_t rows, int64_t in, int64_t out)
{
    ckpt_err err = {0};
    char features[2][40];
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    memset(o, 0, sizeof *o);
    o->device = device;
    (void)snprintf(features[0], sizeof features[0], "features=%lld", (long long)in);
    (void)snprintf(features[1], sizeof features[1], "features=%lld", (long long)out);
    test_model_init(&o->m);
    test_input(&o->m, "x", CKPT_FLOAT32, 2, (int64_t[]){rows, 2});
    test_layer(&o->m, "before", "linear", "x", features[0]); /* so that a gradient of the input is wanted */
    test_layer(&o->m, "fc", "linear", "", features[1]);
    CHECK_OK(ckpt_model_with_dtype(&o->m.model, ckpt_dtype_name(dtype), &o->m.arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, CKPT_ON_GPU, &o->m.arena, &network, &err), err);
    o->node = &network->node[1];
    const int64_t count[TENSORS] = {rows * in, in * out, out, rows * out, rows * out, rows * in, in * out, out};
    for (int k = 0; k < TENSORS; k++) {
        o->count[k] = count[k];
        o->dtype[k] = k == W || k == BIAS || k == DW || k == DBIAS ? CKPT_FLOAT32 : dtype;
        reserve(o, bytes_of(o, k), &o->at[k]);
        if (k < READ) {
            put_ones(o, o->at[k], o->dtype[k], count[k]);
        }
    }
    if (dtype == CKPT_BFLOAT16) {
        reserve(o, count[W] * 2, &o->w16);
        reserve(o, count[BIAS] * 2, &o->bias16);
        put_ones(o, o->w16, dtype, count[W]);
        put_ones(o, o->bias16, dtype, count[BIAS]);
    }
    const ckpt_bytes forward = o->node->forward_workspace_bytes, backward = o->node->backward_workspace_bytes;
    o->workspace_bytes = forward > backward ? forward : backward;
    reserve(o, o->workspace_bytes, &o->workspace);
    CHECK_OK(ckpt_device_bind(device, o->node, -1, -1, NULL, &o->bound, &err), err);
}

static void ones_fini(ones *o)
{
    const ckpt_device_api *const api = o->device->api;
    ckpt_device_unbind(&o->bound);
    for (int k = 0; k < TENSORS; k++) {
        api->release(o->device, o->at[k], bytes_of(o, k));
    }
    if (o->w16 != NULL) {
        api->release(o->device, o->w16, o->count[W] * 2);
        api->release(o->device, o->bias16, o->count[BIAS] * 2);
    }
    api->release(o->device, o->workspace, o->workspace_bytes);
    test_model_fini(&o->m);
}

/* `tuning` NULL: runs both directions; else times their candidates. `adds`: adds to parameters' gradients. */
static void ones_do(ones *o, bool adds, ckpt_tuning *tuning)
{
    ckpt_err err = {0};
    const void *const in[] = {o->at[X]}, *const dy[] = {o->at[DY]}, *const param16[] = {o->w16, o->bias16};
    const float *const param[] = {o->at[W], o->at[BIAS]};
    void *const out[] = {o->at[Y]}, *const dx[] = {o->at[DX]};
    float *const grad[] = {o->at[DW], o->at[DBIAS]};
    const ckpt_kernel_args args = {.in = in,
                                   .out = out,
                                   .param = param,
                                   .param16 = param16,
                                   .grad_out = dy,
                                   .grad_in = dx,
                                   .grad_param = grad,
                                   .grad_param_adds = adds ? 3 : 0,
                                   .workspace = o->workspace,
                                   .workspace_bytes = o->workspace_bytes};
    if (tuning == NULL) {
        CHECK_OK(ckpt_device_forward(o->device, &o->bound, &args, &err), err);
        CHECK_OK(ckpt_device_backward(o->device, &o->bound, &args, &err), err);
    } else {
        CHECK_OK(ckpt_device_tune(o->device, &o->bound, &args, false, tuning, &err), err);
        CHECK_OK(ckpt_device_tune(o->device, &o->bound, &args, true, tuning, &err), err);
    }
}

static void check_all(const ones *o, int k, double want, const char *what)
{
    ckpt_err err = {0};
    unsigned char *const host = ckpt_memory_get((size_t)bytes_of(o, k));
    assert_non_null(host);
    CHECK_OK(o->device->api->download(o->device, host, o->at[k], bytes_of(o, k), &err), err);
    for (int64_t i = 0; i < o->count[k]; i++) {
        uint16_t narrow = 0;
        float value = 0;
        memcpy(&narrow, host + 2 * i * (o->dtype[k] == CKPT_BFLOAT16), sizeof narrow);
        memcpy(&value, host + 4 * i * (o->dtype[k] == CKPT_FLOAT32), sizeof value);
        const double found = (double)(o->dtype[k] == CKPT_BFLOAT16 ? ckpt_bfloat16_value(narrow) : value);
        CHECK(found == want, "%s, tensor %d, element %lld: found %.9g, wanted %.9g", what, k, (long long)i, found,
              want);
    }
    ckpt_memory_put(host);
}

/* A sum of ones is their number; the second run adds gradients of parameters. */
static void check_ones(ones *o, int64_t rows, int64_t in, int64_t out, const char *what)
{
    char text[200];
    (void)snprintf(text, sizeof text, "%s, %lld rows, %lld in, %lld out, %s", what, (long long)rows, (long long)in,
                   (long long)out, ckpt_device_choice(&o->bound));
    for (int adds = 0; adds < 2; adds++) {
        ones_do(o, adds == 1, NULL);
        check_all(o, Y, (double)in + 1, text);
        check_all(o, DX, (double)out, text);
        check_all(o, DW, (double)(rows * (1 + adds)), text);
        check_all(o, DBIAS, (double)(rows * (1 + adds)), text);
    }
}

/* Inner dimensions that no tile divides, in products that cuBLASLt likes to split: dropped terms are missing in a sum
 * of ones. With the library's first algorithm, then the fastest, then that one by name. */
static void sums_are_whole(void **state)
{
    static const int64_t size[][3] = {{257, 33, 17},     {1023, 127, 129}, {512, 255, 64},
                                      {8191, 1023, 255}, {33001, 15, 9},   {393 * 128, 64, 24}};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        const ckpt_gpu *const gpu = &ckpt_gpus[g];
        for (size_t k = 0; k < (emulated(gpu) ? 3 : sizeof size / sizeof size[0]); k++) {
            for (int which = 0; which < 4; which++) {
                const ckpt_dtype dtype = which % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16;
                const int64_t rows = size[k][0], in = size[k][1], out = size[k][2];
                ckpt_tuning tuning = {0};
                char name[2048];
                ckpt_err err = {0};
                ones o;
                ckpt_emulated_candidates(which);
                ones_init(&o, gpu->device, dtype, rows, in, out);
                check_ones(&o, rows, in, out, "first");
                ones_do(&o, false, &tuning);
                check_ones(&o, rows, in, out, "fastest");
                (void)snprintf(name, sizeof name, "%s", ckpt_device_choice(&o.bound));
                ckpt_bound_kernel recomputed = {0};
                CHECK_OK(ckpt_device_bind(gpu->device, o.node, o.bound.forward_workspace_bytes,
                                          o.bound.backward_workspace_bytes, name, &recomputed, &err),
                         err);
                ckpt_device_unbind(&o.bound);
                o.bound = recomputed;
                assert_string_equal(ckpt_device_choice(&o.bound), name);
                check_ones(&o, rows, in, out, "named");
                ones_fini(&o);
            }
        }
    }
    ckpt_emulated_candidates(0);
}

/* The fastest allowed candidate is chosen. Made-up candidates that drift, forget or drop take a second, the best of the
 * others 10 (with sums 5 more for odd numbers, 5 less for even ones); one needs more workspace than there is. */
static void the_fastest_right_one(void **state)
{
    if (!emulated(&ckpt_gpus[0])) {
        skip();
    }
    bool seen[3] = {false};
    for (int which = 1; which <= 6; which++) {
        static const char *const wrong[] = {"drifts", "forgets", "large"};
        static const char *const right[] = {"forward=loops:plain", "forward=loops:up", "forward=loops:down"};
        ckpt_tuning tuning = {0};
        ones o;
        ckpt_emulated_candidates(which);
        ones_init(&o, ckpt_gpus[0].device, CKPT_FLOAT32, 257, 40, 24);
        ones_do(&o, false, &tuning);
        const char *const choice = ckpt_device_choice(&o.bound);
        for (int k = 0; k < 3; k++) {
            CHECK(strstr(choice, wrong[k]) == NULL, "chose %s", choice);
            seen[k] = seen[k] || strstr(choice, right[k]) != NULL;
        }
        CHECK(strstr(choice, "splits") == NULL, "257 terms in parts: %s", choice);
        const bool sums = strstr(choice, "weight-sums=") != NULL;
        CHECK(sums == (which % 2 == 0), "candidates %d: %s", which, choice);
        assert_int_equal(tuning.tuned, 6); /* forward; input and weight that overwrite and add; weight with sums */
        assert_int_equal(tuning.candidates, 6 * 5);
        assert_int_equal(tuning.refused, 6 * 2); /* DRIFTS by its bits, FORGETS by its result */
        const ckpt_ns least = (INT64_C(60) + (which % 2 == 1 ? 5 : -5)) * 1000000000;
        CHECK(tuning.fastest_ns >= least && tuning.fastest_ns < least + INT64_C(1000000000),
              "candidates %d: %lld ns, wanted %lld", which, (long long)tuning.fastest_ns, (long long)least);
        CHECK(tuning.first_ns >= tuning.fastest_ns && (tuning.changed > 0) == (tuning.first_ns > tuning.fastest_ns),
              "%d changed, %lld ns instead of %lld", tuning.changed, (long long)tuning.fastest_ns,
              (long long)tuning.first_ns);
        CHECK(strstr(tuning.refusal, "another result") != NULL, "%s", tuning.refusal);
        ones_fini(&o);
    }
    CHECK(seen[0] && seen[1] && seen[2], "the same whatever is fastest: %d %d %d", seen[0], seen[1], seen[2]);
    /* in parts without a remainder */
    ones o;
    ckpt_tuning tuning = {0};
    ckpt_emulated_candidates(1);
    ones_init(&o, ckpt_gpus[0].device, CKPT_BFLOAT16, 256, 40, 24);
    ones_do(&o, false, &tuning);
    CHECK(strstr(ckpt_device_choice(&o.bound), "weight=loops:splits") != NULL, "%s", ckpt_device_choice(&o.bound));
    check_ones(&o, 256, 40, 24, "split");
    ones_fini(&o);
    ckpt_emulated_candidates(0);
}

/* The bias's gradient costs no launch if it is overwritten and the library has such a product. */
static void bias_gradient_rides_along(void **state)
{
    if (!emulated(&ckpt_gpus[0])) {
        skip();
    }
    static const struct {
        int candidates;
        bool adds;
        int starts; /* of backward: two products, and the sums of the columns of 257 rows in two steps */
    } test[] = {{0, false, 2}, {0, true, 4}, {CKPT_EMULATED_NO_SUMS, false, 4}, {CKPT_EMULATED_NO_SUMS, true, 4}};
    for (size_t k = 0; k < sizeof test / sizeof test[0]; k++) {
        ones o;
        ckpt_emulated_candidates(test[k].candidates);
        ones_init(&o, ckpt_gpus[0].device, CKPT_BFLOAT16, 257, 40, 24);
        const int64_t before = ckpt_emulated_starts();
        ones_do(&o, test[k].adds, NULL);
        const int64_t starts = ckpt_emulated_starts() - before - 1; /* forward is one */
        CHECK(starts == test[k].starts, "case %zu: %lld launches, wanted %d", k, (long long)starts, test[k].starts);
        check_ones(&o, 257, 40, 24, "sums");
        ones_fini(&o);
    }
    ckpt_emulated_candidates(0);
    ones o;
    assert_int_equal(setenv("CKPT_BIAS_SUMS", "apart", 1), 0);
    ones_init(&o, ckpt_gpus[0].device, CKPT_BFLOAT16, 257, 40, 24);
    assert_null(strstr(ckpt_device_choice(&o.bound), "weight-sums="));
    assert_int_equal(unsetenv("CKPT_BIAS_SUMS"), 0);
    ones_fini(&o);
}

/* A product whose sums are wrong with every algorithm is compared with our own sums, and not used. */
static void sums_that_are_wrong_alike(void **state)
{
    if (!emulated(&ckpt_gpus[0])) {
        skip();
    }
    ones o;
    ckpt_tuning tuning = {0};
    ckpt_emulated_candidates(CKPT_EMULATED_WRONG_SUMS);
    ones_init(&o, ckpt_gpus[0].device, CKPT_BFLOAT16, 257, 40, 24);
    assert_non_null(strstr(ckpt_device_choice(&o.bound), "weight-sums="));
    ones_do(&o, false, &tuning);
    assert_null(strstr(ckpt_device_choice(&o.bound), "weight-sums="));
    assert_non_null(strstr(tuning.refusal, "product with sums: another result"));
    check_ones(&o, 257, 40, 24, "sums apart");
    ones_fini(&o);
    ckpt_emulated_candidates(0);
}

/* Names of nothing, of another layer, and invalid names. */
static void unknown_names(void **state)
{
    static const char *const bad[] = {"",
                                      "forward",
                                      "forward=",
                                      "forward=loops:plain",
                                      "forward=own;weight=own;weight-adds=own;input=own;input-adds=own",
                                      "lt130002:1",
                                      ";;;=;=;",
                                      "x=lt1:2"};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ones o;
        ckpt_err err = {0};
        ones_init(&o, ckpt_gpus[g].device, CKPT_FLOAT32, 6, 40, 24);
        char name[2048], longer[2 * 2048];
        (void)snprintf(name, sizeof name, "%s", ckpt_device_choice(&o.bound));
        ckpt_bound_kernel bound = {0};
        for (size_t k = 0; k < sizeof bad / sizeof bad[0] + 3; k++) {
            const size_t more = sizeof bad / sizeof bad[0];
            (void)snprintf(longer, sizeof longer, k == more ? "%s;input=x" : k == more + 1 ? " %s" : "%sx", name);
            const char *const choice = k < more ? bad[k] : longer;
            const ckpt_code code = ckpt_device_bind(ckpt_gpus[g].device, o.node, -1, -1, choice, &bound, &err);
            CHECK(code == CKPT_DEVICE && strstr(err.msg, "layer fc (linear)") != NULL, "\"%s\" gives %d: %s", choice,
                  (int)code, err.msg);
            assert_null(bound.kernel);
        }
        memset(longer, 'x', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        assert_int_equal(ckpt_device_bind(ckpt_gpus[g].device, o.node, -1, -1, longer, &bound, &err), CKPT_DEVICE);
        ones_fini(&o);
    }
    /* a device that has no choice */
    test_model m;
    ckpt_bound_kernel bound = {0};
    ckpt_err err = {0};
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
    test_layer(&m, "fc", "linear", "x", "features=16");
    const ckpt_network *const network = test_infer(&m);
    assert_int_equal(ckpt_device_bind(ckpt_gpus_cpu, &network->node[0], -1, -1, "forward=x", &bound, &err),
                     CKPT_DEVICE);
    assert_non_null(strstr(err.msg, "layer fc (linear)"));
    test_model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_whole),
        cmocka_unit_test(the_fastest_right_one),
        cmocka_unit_test(bias_gradient_rides_along),
        cmocka_unit_test(sums_that_are_wrong_alike),
        cmocka_unit_test(unknown_names),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
