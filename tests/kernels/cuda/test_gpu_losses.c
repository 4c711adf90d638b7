/* labels: contract gpu; on a GPU: 60 s, together */
/* Losses beyond test_gpu_ops: targets that are no class (the CPU refuses them; a GPU makes the loss and those rows'
 * gradients NaN and reads nothing out of bounds), no row that counts, and a given gradient of the loss. Random logits
 * from a printed seed; on every GPU present, the emulated one always. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

enum { ROWS = 9, CLASSES = 21, SEED = 20261120 };

static const ckpt_case cross_entropy = {
    .op = "cross_entropy", .in = {{.rank = 2, .dim = {ROWS, CLASSES}}, {.rank = 1, .dim = {ROWS}, .limit = CLASSES}}};
static const ckpt_case linear_cross_entropy = {
    .op = "linear_cross_entropy",
    .in = {{.rank = 2, .dim = {ROWS, CLASSES}}, {.rank = 1, .dim = {ROWS}, .limit = CLASSES}},
    .attr = {{.name = "features", .kind = CKPT_INT, .integer = CLASSES, .real = CLASSES}}};
static const ckpt_case nll_loss = {
    .op = "nll_loss", .in = {{.rank = 2, .dim = {ROWS, CLASSES}}, {.rank = 1, .dim = {ROWS}, .limit = CLASSES}}};

static void for_all(const ckpt_case *test, void (*check)(ckpt_gpu_case *c))
{
    assert_int_equal(ckpt_gpu_for_all(test, 1, 0, CKPT_GPU_BOTH, SEED, check), 0);
}

static void set_target(ckpt_gpu_case *c, int row, int32_t target)
{
    memcpy(c->in[1].bits + 4 * row, &target, 4);
}

/* Which rows of the gradient are NaN throughout, as bits; every other row must be finite throughout. */
static unsigned nan_rows(const ckpt_gpu_case *c)
{
    unsigned rows = 0;
    for (int r = 0; r < ROWS; r++) {
        int nans = 0;
        for (int k = 0; k < CLASSES; k++) {
            const float value = c->grad_in[0].value[r * CLASSES + k];
            nans += isnan(value) != 0;
            assert_true(isnan(value) || fabsf(value) <= 1);
        }
        assert_true(nans == 0 || nans == CLASSES);
        rows |= nans > 0 ? 1u << r : 0;
    }
    return rows;
}

static void check_wrong_targets(ckpt_gpu_case *c)
{
    const ckpt_run run = {0};
    ckpt_gpu_forward(c, &run);
    ckpt_gpu_backward(c, &run);
    assert_true(isfinite(c->out[0].value[0]));
    assert_int_equal(nan_rows(c), 0);
    set_target(c, 0, CLASSES);
    set_target(c, 2, -1);
    set_target(c, 5, INT32_MAX);
    set_target(c, 8, INT32_MIN);
    ckpt_gpu_forward(c, &run);
    ckpt_gpu_backward(c, &run);
    assert_true(isnan(c->out[0].value[0]) != 0);
    assert_int_equal(nan_rows(c), 1u << 0 | 1u << 2 | 1u << 5 | 1u << 8);
}

static void test_wrong_targets(void **state)
{
    for_all(&cross_entropy, check_wrong_targets);
    for_all(&linear_cross_entropy, check_wrong_targets);
    for_all(&nll_loss, check_wrong_targets);
}

static void check_nothing_counts(ckpt_gpu_case *c)
{
    const ckpt_run run = {0};
    for (int r = 0; r < ROWS; r++) {
        set_target(c, r, -100);
    }
    ckpt_gpu_forward(c, &run);
    ckpt_gpu_backward(c, &run);
    assert_true(isnan(c->out[0].value[0]) != 0); /* 0 / 0, as on the CPU and in PyTorch */
    assert_true(c->saved[1].value[0] == 0);
    for (int64_t i = 0; i < c->grad_in[0].count; i++) {
        assert_true(c->grad_in[0].value[i] == 0);
    }
}

static void test_nothing_counts(void **state)
{
    for_all(&cross_entropy, check_nothing_counts);
    for_all(&linear_cross_entropy, check_nothing_counts);
}

/* Backward with the loss's gradient `arriving`; copies the gradient of input 0 to `bits`. Inputs and saved tensors are
 * those of the last forward. */
static void backward_from(ckpt_gpu_case *c, float arriving, unsigned char *bits)
{
    const ckpt_device_api *const api = c->gpu->device->api;
    const ckpt_gpu_tensor *const from[] = {&c->in[0], &c->in[1], &c->saved[0], &c->saved[1]};
    const void *in[CKPT_IN_MAX] = {0}, *grad_out[CKPT_OUT_MAX] = {0};
    void *saved[CKPT_SAVED_MAX] = {0}, *grad_in[CKPT_IN_MAX] = {0}, *base = NULL;
    const ckpt_bytes room = 1 << 16;
    ckpt_err err = {0};
    ckpt_bytes used = 0;
    CHECK_OK(api->reserve(c->gpu->device, room, &base, &err), err);
    for (int k = 0; k < 2 + c->node->saved_count; k++) {
        void *const at = (char *)base + used;
        CHECK_OK(api->upload(c->gpu->device, at, from[k]->bits, (ckpt_bytes)from[k]->bytes, &err), err);
        *(k < 2 ? (void **)&in[k] : &saved[k - 2]) = at;
        used += ckpt_round_up((ckpt_bytes)from[k]->bytes, CKPT_ALIGN);
    }
    CHECK_OK(api->upload(c->gpu->device, (char *)base + used, &arriving, 4, &err), err);
    grad_out[0] = (char *)base + used;
    for (int k = 0; k < 2; k++) {
        used += 4096;
        grad_in[k] = c->node->grad_in >> k & 1 ? (char *)base + used : NULL;
    }
    ckpt_kernel_args args = {.in = in, .saved = saved, .grad_out = grad_out, .grad_in = grad_in};
    args.workspace = (char *)base + used + 4096;
    args.workspace_bytes = c->bound.backward_workspace_bytes;
    assert_true(used + 4096 + args.workspace_bytes <= room);
    CHECK_OK(ckpt_device_backward(c->gpu->device, &c->bound, &args, &err), err);
    CHECK_OK(api->download(c->gpu->device, bits, grad_in[0], (ckpt_bytes)c->grad_in[0].bytes, &err), err);
    api->release(c->gpu->device, base, room);
}

/* A loss gradient of a quarter gives exactly a quarter of the gradient: no number here is near underflow. */
static void check_arriving(ckpt_gpu_case *c)
{
    const ckpt_run run = {0};
    static unsigned char whole[ROWS * CLASSES * 4], quarter[ROWS * CLASSES * 4];
    ckpt_gpu_forward(c, &run);
    ckpt_gpu_backward(c, &run);
    backward_from(c, 1.0f, whole);
    backward_from(c, 0.25f, quarter);
    assert_memory_equal(whole, c->grad_in[0].bits, c->grad_in[0].bytes);
    for (int64_t i = 0; i < c->grad_in[0].count; i++) {
        uint32_t word = 0;
        float value;
        memcpy((char *)&word + (c->dtype == CKPT_BFLOAT16 ? 2 : 0), quarter + i * (c->dtype == CKPT_BFLOAT16 ? 2 : 4),
               c->dtype == CKPT_BFLOAT16 ? 2 : 4);
        memcpy(&value, &word, 4);
        assert_true(value == 0.25f * c->grad_in[0].value[i]);
    }
}

static void test_arriving_gradient(void **state)
{
    for_all(&cross_entropy, check_arriving);
    for_all(&nll_loss, check_arriving);
    const char *const pairs[] = {"mse", "l1", "huber", "bce", "kl"};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const ckpt_case pair = {
            .op = pairs[i], .in_count = 2, .in = {{.rank = 2, .dim = {ROWS, CLASSES}}}, .fill = CKPT_FILL_SHARES};
        for_all(&pair, check_arriving);
    }
}

int main(void)
{
    (void)printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_targets),
        cmocka_unit_test(test_nothing_counts),
        cmocka_unit_test(test_arriving_gradient),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
