/* labels: contract gpu; on a GPU: 60 s, together */
/* Convolutions on a GPU with too little workspace for the library: our own kernels must be used, give the CPU's
 * numbers, and stay within the workspace, down to the smallest accepted limit. On the emulated device a library call
 * always needs workspace, so a forward pass without any must be our own kernel's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

static uint64_t seed = 20261120;
/* clang-format off */
#define INT(n, v)      {.name = (n), .kind = CKPT_INT, .integer = (v), .real = (v)}
#define FLAG(n, v)     {.name = (n), .kind = CKPT_BOOL, .integer = (v)}
#define PAIR(n, v, w)  {.name = (n), .kind = CKPT_INTS, .ints = (const int64_t[]){(v), (w)}, .int_count = 2}
#define IMAGE(...)     .op = "conv2d", .in = {{.rank = 4, .dim = {__VA_ARGS__}}}
#define FILTERS(n, k, ...) .attr = {INT("out_channels", n), INT("kernel_size", k), __VA_ARGS__}

/* One filter, groups that do and do not divide packs of 16 bytes, several filters for each channel of its own, strides
 * beyond the filter, padding beyond the image, more filters than a block of threads takes, parts of many pixels. */
static const ckpt_case cases[] = {
    {IMAGE(1, 1, 1, 1), FILTERS(1, 3, INT("padding", 1))},
    {IMAGE(2, 3, 9, 8), FILTERS(5, 3, INT("padding", 1))},
    {IMAGE(2, 8, 7, 9), FILTERS(16, 3, INT("stride", 2), INT("groups", 2))},
    {IMAGE(1, 6, 5, 5), FILTERS(18, 3, INT("groups", 6), FLAG("bias", 0))},
    {IMAGE(2, 4, 9, 7), .attr = {INT("out_channels", 6), PAIR("kernel_size", 2, 5), PAIR("stride", 3, 1),
                                 PAIR("padding", 0, 4), INT("groups", 2)}},
    {IMAGE(1, 4, 8, 8), FILTERS(4, 1, INT("stride", 3), INT("padding", 2))},
    {IMAGE(1, 2, 4, 4), FILTERS(300, 2, FLAG("bias", 0))},
    {IMAGE(3, 2, 30, 31), FILTERS(3, 3, INT("padding", 1))},
    {IMAGE(2, 16, 12, 11), FILTERS(16, 3, INT("padding", 1), INT("groups", 16))}, /* depthwise with a bias */
    {IMAGE(2, 5, 12, 11), FILTERS(5, 5, INT("stride", 2), INT("padding", 2), INT("groups", 5))},
};
/* clang-format on */

static void compare_all(ckpt_gpu_case *c, const ckpt_run *run, const char *what)
{
    char text[80];
    ckpt_gpu_want_forward(c, false);
    ckpt_gpu_forward(c, run);
    (void)snprintf(text, sizeof text, "%s: output", what);
    ckpt_gpu_compare(c, text, 0, &c->out[0], false, 0);
    ckpt_gpu_want_backward(c, 0);
    ckpt_gpu_backward(c, run);
    (void)snprintf(text, sizeof text, "%s: input gradient", what);
    ckpt_gpu_compare(c, text, 0, &c->grad_in[0], true, 0);
    (void)snprintf(text, sizeof text, "%s: parameter gradient", what);
    for (int k = 0; k < c->node->param_count; k++) {
        ckpt_gpu_compare(c, text, k, &c->grad_param[k], true, 0);
    }
}

/* The smallest accepted backward workspace, by bisection between none and the op's workspace. */
static ckpt_bytes least_backward(ckpt_gpu_case *c, ckpt_bytes most)
{
    ckpt_bytes refused = -CKPT_ALIGN, taken = ckpt_round_up(most, CKPT_ALIGN);
    while (taken - refused > CKPT_ALIGN) {
        const ckpt_bytes middle = (refused + taken) / 2 / CKPT_ALIGN * CKPT_ALIGN;
        ckpt_bound_kernel bound = {0};
        ckpt_err err = {0};
        const ckpt_code code = ckpt_device_bind(c->gpu->device, c->node, 0, middle, NULL, &bound, &err);
        CHECK(code == CKPT_OK || (code == CKPT_DEVICE && strstr(err.msg, c->node->name) != NULL), "code %d: %s",
              (int)code, err.msg);
        *(code == CKPT_OK ? &taken : &refused) = middle;
        ckpt_device_unbind(&bound);
    }
    return taken;
}

/* The choice of our own kernels has a name like the library's, and is kept if there is more workspace. */
static void bind_by_name(ckpt_gpu_case *c)
{
    char name[2048];
    ckpt_err err = {0};
    (void)snprintf(name, sizeof name, "%s", ckpt_device_choice(&c->bound));
    ckpt_device_unbind(&c->bound);
    CHECK_OK(ckpt_device_bind(c->gpu->device, c->node, -1, -1, name[0] != '\0' ? name : NULL, &c->bound, &err), err);
    CHECK(strcmp(ckpt_device_choice(&c->bound), name) == 0, "%s becomes %s", name, ckpt_device_choice(&c->bound));
}

static void check_case(ckpt_gpu_case *c)
{
    static const ckpt_run plain = {0}, moved = {.shift = 3, .workspace_byte = 0xFF, .guard_byte = 0xFF};
    const bool emulated = c->gpu->device->api == &ckpt_device_emulated;
    size_t length = 0, recomputed = 0;
    ckpt_err err = {0};
    compare_all(c, &plain, "allowed workspace");
    const bool library =
        c->bound.forward_workspace_bytes > 0; /* on the emulated device, whose double always needs workspace */
    const char *const remark = ckpt_device_remark(&c->bound);
    CHECK(!emulated || remark[0] == '\0', "with all the workspace allowed: %s", remark);
    if (remark[0] !=
        '\0') { /* cuDNN may have no reproducible engine for an odd shape; then our own kernel computes it */
        print_message("case %d, %s: %s\n", c->number, ckpt_dtype_name(c->dtype), remark);
    }
    ckpt_device_unbind(&c->bound);
    const ckpt_bytes least = least_backward(c, c->node->backward_workspace_bytes);
    CHECK_OK(ckpt_device_bind(c->gpu->device, c->node, 0, least, NULL, &c->bound, &err), err);
    CHECK(c->bound.forward_workspace_bytes == 0 && c->bound.backward_workspace_bytes <= least,
          "given 0 and %lld bytes, uses %lld and %lld", (long long)least, (long long)c->bound.forward_workspace_bytes,
          (long long)c->bound.backward_workspace_bytes);
    CHECK(!emulated || c->bound.backward_workspace_bytes == least, "the least is %lld bytes, used are %lld",
          (long long)least, (long long)c->bound.backward_workspace_bytes);
    CHECK(!emulated || library == (ckpt_device_remark(&c->bound)[0] != '\0'),
          "own kernels %s for the library and the user hears: \"%s\"", library ? "stand in" : "do not stand in",
          ckpt_device_remark(&c->bound));
    bind_by_name(c);
    compare_all(c, &plain, "least workspace");
    const unsigned char *const bits = ckpt_gpu_snapshot(c, true, &length);
    ckpt_gpu_backward(c, &moved);
    const unsigned char *const other = ckpt_gpu_snapshot(c, true, &recomputed);
    CHECK(c->failed || (length == recomputed && memcmp(bits, other, length) == 0),
          "another address or workspace changes bits");
}

static void test_least_workspace(void **state)
{
    const int failures =
        ckpt_gpu_for_all(cases, (int)(sizeof cases / sizeof cases[0]), 0, CKPT_GPU_BOTH, seed, check_case);
    CHECK(failures == 0, "%d failures, listed above", failures);
}

int main(void)
{
    const char *const given = getenv("CKPT_TEST_SEED");
    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_least_workspace)};
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
