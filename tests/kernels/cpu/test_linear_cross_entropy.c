/* labels: unit */
/* linear_cross_entropy against linear and cross_entropy one after the other: the same bits where all rows are one unit,
 * because then the same products run; within rounding where there are several. And what its units are. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/support/support_network.h"

enum { THREADS = 2, SEED = 20261126 };

typedef struct sizes {
    int64_t rows, in, classes;
    int unit;
    bool bias;
    int ignored; /* 0: no row; 1: all; else every so many */
} sizes;

/* Everything a loss and its gradients need, on the heap. */
typedef struct tensors {
    float *x, *weight, *bias, *dx, *dweight, *dbias;
    int32_t *target;
    float loss;
} tensors;

static float *filled(int64_t count, uint64_t *state)
{
    float *const x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)((double)(*state >> 40) / 0x1p23 - 1.0);
    }
    return x;
}

static tensors take(const sizes *s, uint64_t seed)
{
    uint64_t state = seed;
    tensors t = {.x = filled(s->rows * s->in, &state),
                 .weight = filled(s->classes * s->in, &state),
                 .bias = filled(s->classes, &state),
                 .target = calloc((size_t)s->rows, sizeof *t.target),
                 /* filled, so that what is not overwritten shows, and what is added to is not 0 */
                 .dx = filled(s->rows * s->in, &state),
                 .dweight = filled(s->classes * s->in, &state),
                 .dbias = filled(s->classes, &state)};
    assert_non_null(t.target);
    for (int64_t r = 0; r < s->rows; r++) {
        const bool ignored = s->ignored > 0 && r % s->ignored == 0;
        t.target[r] = ignored ? -100 : (int32_t)((7 * r + 3) % s->classes);
    }
    return t;
}

static void put(tensors *t)
{
    float *const all[] = {t->x, t->weight, t->bias, t->dx, t->dweight, t->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    free(t->target);
}

enum { GUARD = 1 << 16, GUARD_BYTE = 0xA5 };

/* Forward or backward of one node in a workspace of exactly the bytes it asks for: nothing behind is written. */
static ckpt_bytes run(ckpt_device *device, const ckpt_node *node, ckpt_kernel_args *args, bool back)
{
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_bind(device, node, -1, -1, NULL, &bound, &err), err);
    const ckpt_bytes bytes = back ? bound.backward_workspace_bytes : bound.forward_workspace_bytes;
    unsigned char *const workspace = aligned_alloc(CKPT_ALIGN, (size_t)ckpt_round_up(bytes + GUARD, CKPT_ALIGN));
    assert_non_null(workspace);
    memset(workspace, 0xFF, (size_t)bytes);
    memset(workspace + bytes, GUARD_BYTE, GUARD);
    args->workspace = workspace;
    args->workspace_bytes = bytes;
    CHECK_OK((back ? ckpt_device_backward : ckpt_device_forward)(device, &bound, args, &err), err);
    for (int i = 0; i < GUARD; i++) {
        CHECK(workspace[bytes + i] == GUARD_BYTE, "%s: writes %d bytes behind a workspace of %lld", node->name, i,
              (long long)bytes);
    }
    free(workspace);
    ckpt_device_unbind(&bound);
    return bytes;
}

static void open_model(test_model *m, const sizes *s)
{
    test_model_init(m);
    test_input(m, "x", CKPT_FLOAT32, 2, (int64_t[]){s->rows, s->in});
    test_input(m, "t", CKPT_INT32, 1, (int64_t[]){s->rows});
}

static const ckpt_node *layers(test_model *m)
{
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_infer(&m->model, THREADS, &m->arena, &network, &err), err);
    return network->node;
}

static void apart(ckpt_device *device, const sizes *s, tensors *t, bool adds)
{
    test_model m;
    char attrs[64];
    float *const logits = calloc((size_t)(s->rows * s->classes), sizeof *logits);
    float *const lse = calloc((size_t)s->rows, sizeof *lse), counted = 0;
    assert_true(logits != NULL && lse != NULL);
    open_model(&m, s);
    snprintf(attrs, sizeof attrs, "features=%lld bias=%s", (long long)s->classes, s->bias ? "true" : "false");
    test_layer(&m, "fc", "linear", "x", attrs);
    test_layer(&m, "loss", "cross_entropy", "fc t", "");
    const ckpt_node *const nodes = layers(&m);
    ckpt_node fc = nodes[0];
    fc.grad_in = 1;
    const void *const x[] = {t->x}, *const pair[] = {logits, t->target}, *const dy[] = {logits}, *const none[] = {NULL};
    const float *const param[] = {t->weight, t->bias};
    float *const grads[] = {t->dweight, t->dbias};
    void *const y[] = {logits}, *const loss[] = {&t->loss}, *const saved[] = {lse, (void *)&counted};
    void *const dlogits[] = {logits, NULL}, *const dx[] = {t->dx};
    ckpt_kernel_args args = {.in = x, .out = y, .param = param};
    run(device, &fc, &args, false);
    args = (ckpt_kernel_args){.in = pair, .out = loss, .saved = saved, .grad_out = none, .grad_in = dlogits};
    run(device, &nodes[1], &args, false);
    run(device, &nodes[1], &args, true);
    args = (ckpt_kernel_args){.in = x, .param = param, .grad_out = dy, .grad_in = dx, .grad_param = grads};
    args.grad_in_adds = adds ? 1 : 0;
    args.grad_param_adds = adds ? 3 : 0;
    run(device, &fc, &args, true);
    test_model_fini(&m);
    free(logits);
    free(lse);
}

/* Returns the larger of the two workspaces. fixed: no gradient of the input is wanted. */
static ckpt_bytes together_as(ckpt_device *device, const sizes *s, tensors *t, bool adds, bool fixed)
{
    test_model m;
    char attrs[96];
    float *const lse = calloc((size_t)s->rows, sizeof *lse), counted = 0;
    assert_non_null(lse);
    open_model(&m, s);
    snprintf(attrs, sizeof attrs, "features=%lld bias=%s unit=%d", (long long)s->classes, s->bias ? "true" : "false",
             s->unit);
    test_layer(&m, "loss", "linear_cross_entropy", "x t", attrs);
    ckpt_node head = layers(&m)[0];
    head.grad_in = fixed ? 0 : 1;
    const void *const in[] = {t->x, t->target}, *const none[] = {NULL};
    const float *const param[] = {t->weight, t->bias};
    float *const grads[] = {t->dweight, t->dbias};
    void *const loss[] = {&t->loss}, *const saved[] = {lse, (void *)&counted},
                *const dx[] = {fixed ? NULL : t->dx, NULL};
    ckpt_kernel_args args = {.in = in,
                             .out = loss,
                             .saved = saved,
                             .param = param,
                             .grad_out = none,
                             .grad_in = dx,
                             .grad_param = grads,
                             .grad_in_adds = adds ? 1 : 0,
                             .grad_param_adds = adds ? 3 : 0};
    const ckpt_bytes forward = run(device, &head, &args, false), backward = run(device, &head, &args, true);
    test_model_fini(&m);
    free(lse);
    return forward > backward ? forward : backward;
}

static ckpt_bytes together(ckpt_device *device, const sizes *s, tensors *t, bool adds)
{
    return together_as(device, s, t, adds, false);
}

static void same(const char *what, const sizes *s, int64_t count, const float *found, const float *wanted, bool bits)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(wanted[i]));
    }
    /* Sums of as many terms as there are rows or classes, in another order: each rounding is 2^-24 of a partial sum. */
    const float bound = bits ? 0 : 4e-6F * fmaxf(most, 1e-3F);
    for (int64_t i = 0; i < count; i++) {
        CHECK(fabsf(found[i] - wanted[i]) <= bound,
              "%lld x %lld, %lld classes, unit %d: %s, element %lld is %.9g, not %.9g", (long long)s->rows,
              (long long)s->in, (long long)s->classes, s->unit, what, (long long)i, (double)found[i],
              (double)wanted[i]);
    }
}

static void against_two_layers(void **state)
{
    static const sizes cases[] = {
        {1, 7, 3, 0, true, 0},      {40, 33, 70, 0, true, 3},    {40, 33, 70, 16, true, 3}, {48, 16, 65, 16, false, 0},
        {33, 64, 257, 32, true, 0}, {130, 48, 300, 64, true, 5}, {16, 9, 11, 16, true, 0},  {17, 9, 11, 16, true, 16},
    };
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", THREADS, &device, &err), err);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const sizes *const s = &cases[i / 2];
        const bool adds = i % 2 == 1, one_unit = s->unit == 0 || s->unit >= s->rows;
        tensors a = take(s, SEED + i), b = take(s, SEED + i);
        apart(device, s, &a, adds);
        (void)together(device, s, &b, adds);
        same("loss", s, 1, &b.loss, &a.loss, one_unit);
        same("gradient of x", s, s->rows * s->in, b.dx, a.dx, one_unit);
        same("gradient of the weight", s, s->classes * s->in, b.dweight, a.dweight, one_unit);
        same("gradient of the bias", s, s->classes, b.dbias, a.dbias, one_unit || !s->bias);
        put(&a);
        put(&b);
    }
    ckpt_device_close(device);
}

/* If no row counts, the mean is NaN and the gradients are zero, as those of cross_entropy. */
static void all_rows_ignored(void **state)
{
    const sizes s = {19, 5, 6, 16, true, 1};
    tensors t = take(&s, SEED);
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", THREADS, &device, &err), err);
    (void)together(device, &s, &t, false);
    assert_true(isnan(t.loss) != 0);
    for (int64_t i = 0; i < s.rows * s.in; i++) {
        assert_true(t.dx[i] == 0);
    }
    for (int64_t i = 0; i < s.classes * s.in; i++) {
        assert_true(t.dweight[i] == 0);
    }
    put(&t);
    ckpt_device_close(device);
}

/* A unit follows from rows, classes and type alone: within 32 MiB where that is 128 rows or more, whole where all rows
 * fit, in equal shares, a multiple of 16. */
static void units(void **state)
{
    static const struct {
        int64_t rows, classes, unit;
        const char *asked;
    } cases[] = {
        {1, 50257, 1, ""},        {128, 50257, 128, ""},        {1024, 50257, 160, ""},
        {1000, 50257, 144, ""},   {100000, 256, 25008, ""},     {4096, 256, 4096, ""},
        {5000, 1000000, 128, ""}, {1024, 50257, 64, "unit=64"}, {40, 50257, 40, "unit=64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sizes s = {cases[i].rows, 2, cases[i].classes, 0, true, 0};
        test_model m;
        char attrs[64];
        open_model(&m, &s);
        snprintf(attrs, sizeof attrs, "features=%lld %s", (long long)s.classes, cases[i].asked);
        test_layer(&m, "loss", "linear_cross_entropy", "x t", attrs);
        const ckpt_node *const node = layers(&m);
        CHECK(ckpt_unit_rows(node) == cases[i].unit, "%lld rows of %lld classes: a unit has %lld rows, wanted %lld",
              (long long)s.rows, (long long)s.classes, (long long)ckpt_unit_rows(node), (long long)cases[i].unit);
        ckpt_node gpu = *node;
        gpu.threads = CKPT_ON_GPU;
        assert_int_equal(ckpt_unit_rows(&gpu), cases[i].unit);
        test_model_fini(&m);
    }
}

/* The allowance holds the logits of a unit, not all of them. */
static void workspace(void **state)
{
    const sizes s = {640, 32, 1000, 64, false, 0};
    tensors t = take(&s, SEED);
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", THREADS, &device, &err), err);
    const ckpt_bytes used = together(device, &s, &t, false), all = s.rows * s.classes * 4;
    CHECK(used < all, "%lld bytes of workspace, all logits are %lld", (long long)used, (long long)all);
    put(&t);
    ckpt_device_close(device);
}

/* Without a gradient of the input, the product that makes the logits may need the most workspace, in backward too. */
static void logits_again_within_the_workspace(void **state)
{
    static const sizes cases[] = {{17, 5, 3, 16, true, 0}, {37, 5, 6, 16, true, 0}, {180, 17, 131, 64, false, 0}};
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", THREADS, &device, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors t = take(&cases[i], SEED);
        (void)together_as(device, &cases[i], &t, false, true);
        put(&t);
    }
    ckpt_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_two_layers),
        cmocka_unit_test(all_rows_ignored),
        cmocka_unit_test(units),
        cmocka_unit_test(workspace),
        cmocka_unit_test(logits_again_within_the_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
