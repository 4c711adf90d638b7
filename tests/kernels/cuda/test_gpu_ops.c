/* labels: contract gpu; takes 140 s; on a GPU: 80 s, together */
/* Every op's CUDA kernel, in float32 and bfloat16, on every GPU present (the emulated one always), and the CPU's in
 * bfloat16, compared with the CPU's kernel in float32 on the same numbers, within ckpt_gpu_bound. In addition the rules of kernels/kernel.h:
 *
 *   forward       training, evaluating, in place; a recomputation leaves the statistics alone
 *   backward      gets only what the op declared; gradients overwritten, added, staged, shared, of unread outputs
 *   bits          the same at other addresses, over NaN in the workspace, with another order of the threads, and on
 *                 another number of multiprocessors
 *   workspace     the op's workspace is enough; less is refused or accepted
 *
 * An op without a kernel fails by name; all failures are listed. CKPT_TEST_SEED sets the seed, CKPT_TEST_OP one op. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

static uint64_t seed = 20261120;
static const char *only; /* CKPT_TEST_OP */
static ckpt_gpu other;   /* emulated too, with more multiprocessors */

static const ckpt_run plain_run = {0};
static const ckpt_run moved_run = {.shift = 3, .workspace_byte = 0xFF, .guard_byte = 0xFF};

/* Both tables of cases, or their cases of one op. With few rounds under a sanitizer a case has one of the two types, the
 * next case the other: an op has several, and numbers are the other builds' business. */
static void for_all_cases(void (*check)(ckpt_gpu_case *c))
{
    int failures = 0;
#if defined(__SANITIZE_ADDRESS__)
    const bool both = ckpt_test_rounds(2, 1) == 2;
#else
    const bool both = true;
#endif
    for (int i = 0; i < ckpt_case_count + ckpt_gpu_case_count; i++) {
        const ckpt_case *const test = i < ckpt_case_count ? &ckpt_cases[i] : &ckpt_gpu_cases[i - ckpt_case_count];
        if (only == NULL || strcmp(only, test->op) == 0) {
            const unsigned dtypes = both ? CKPT_GPU_BOTH : 1u << i % 2;
            failures += ckpt_gpu_for_all(test, 1, i, dtypes, seed, check);
        }
    }
    CHECK(failures == 0, "%d failures, listed above", failures);
}

static void check_bits(ckpt_gpu_case *c, const char *what, const unsigned char *bits, size_t length, bool backward)
{
    size_t now = 0;
    if (c->failed) {
        return;
    }
    const unsigned char *const other_bits = ckpt_gpu_snapshot(c, backward, &now);
    assert_int_equal(now, length);
    for (size_t i = 0; i < length; i++) {
        if (bits[i] != other_bits[i]) {
            ckpt_gpu_report(c, "%s: %s changes bits, first at byte %zu of %zu", backward ? "backward" : "forward", what,
                            i, length);
            return;
        }
    }
}

/* The same bits at other addresses, over NaN, with another order of threads; on the emulated device also with another
 * number of multiprocessors and a third order. */
static void check_elsewhere(ckpt_gpu_case *c, const unsigned char *bits, size_t length, bool backward)
{
    ckpt_gpu *const here = c->gpu;
    const ckpt_bound_kernel bound = c->bound;
    void (*const run)(ckpt_gpu_case *, const ckpt_run *) = backward ? ckpt_gpu_backward : ckpt_gpu_forward;
    ckpt_err err = {0};
    ckpt_emulated_schedule(1);
    run(c, &moved_run);
    check_bits(c, "another address, workspace or order of threads", bits, length, backward);
    if (here->device->api == &ckpt_device_emulated && !c->failed) {
        ckpt_emulated_schedule(2);
        c->gpu = &other;
        CHECK_OK(ckpt_device_bind(other.device, c->node, c->node->forward_workspace_bytes,
                                  c->node->backward_workspace_bytes, NULL, &c->bound, &err),
                 err);
        CHECK_OK(other.device->api->begin(other.device, c->seed, c->step, NULL, &err), err);
        run(c, &plain_run);
        check_bits(c, "another number of multiprocessors", bits, length, backward);
        ckpt_device_unbind(&c->bound);
        c->bound = bound;
        c->gpu = here;
    }
    ckpt_emulated_schedule(0);
}

/* ------------------------------------------------------------------------------------------------ forward */

static void compare_forward(ckpt_gpu_case *c, const char *what, bool with_saved)
{
    char text[64];
    for (int k = 0; k < c->node->out_count; k++) {
        (void)snprintf(text, sizeof text, "%soutput", what);
        ckpt_gpu_compare(c, text, k, &c->out[k], false, 0);
    }
    for (int k = 0; with_saved && k < c->node->saved_count; k++) {
        if ((c->node->way_saved >> k & 1) == 0) {
            ckpt_gpu_compare(c, "saved tensor", k, &c->saved[k], false, 0);
        }
    }
    for (int k = 0; with_saved && k < c->node->stat_count; k++) {
        ckpt_gpu_compare(c, "statistic", k, &c->stat[k], false, 0);
    }
}

/* Dropout and drop_path draw the CPU's mask: zeros in the same places. */
static void check_mask(ckpt_gpu_case *c)
{
    const bool draws = strcmp(c->test->op, "dropout") == 0 || strcmp(c->test->op, "drop_path") == 0;
    for (int64_t i = 0; draws && i < c->out[0].count; i++) {
        if ((c->out[0].value[i] == 0.0f) != (c->out[0].want[i] == 0.0f)) {
            ckpt_gpu_report(c, "element %lld is %g, the CPU's mask gives %g", (long long)i, (double)c->out[0].value[i],
                            (double)c->out[0].want[i]);
            return;
        }
    }
}

static void check_forward(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    size_t length;
    const ckpt_run evaluating = {.evaluating = true, .workspace_byte = 0x7F};
    ckpt_gpu_want_forward(c, true);
    ckpt_gpu_forward(c, &evaluating);
    compare_forward(c, "evaluated ", false);

    ckpt_gpu_want_forward(c, false);
    ckpt_gpu_forward(c, &plain_run);
    compare_forward(c, "", true);
    check_mask(c);

    const unsigned char *const bits = ckpt_gpu_snapshot(c, false, &length);
    const ckpt_run recomputed = {.shift = 1, .workspace_byte = 0xFF, .guard_byte = 0x7F, .recomputed = true};
    ckpt_gpu_forward(c, &recomputed);
    check_bits(c, "running again", bits, length, false);
    for (int k = 0; k < node->in_count; k++) {
        if (ckpt_node_inplace(node, k)) {
            const ckpt_run inplace = {.inplace = 1 + k};
            ckpt_gpu_forward(c, &inplace);
            check_bits(c, "running in place", bits, length, false);
        }
    }
    check_elsewhere(c, bits, length, false);
}

/* ------------------------------------------------------------------------------------------------ backward */

static void compare_gradients(ckpt_gpu_case *c, const char *what, int extra)
{
    char text[64];
    for (int k = 0; k < c->node->in_count; k++) {
        if (c->node->grad_in >> k & 1) {
            (void)snprintf(text, sizeof text, "%sgradient of input", what);
            ckpt_gpu_compare(c, text, k, &c->grad_in[k], true, extra);
        }
    }
    for (int k = 0; k < c->node->param_count; k++) {
        (void)snprintf(text, sizeof text, "%sgradient of parameter", what);
        ckpt_gpu_compare(c, text, k, &c->grad_param[k], true, 0);
    }
}

static void add_to_want(ckpt_gpu_tensor *t, float sign)
{
    for (int64_t i = 0; i < t->count; i++) {
        t->want[i] += sign * t->value[i];
    }
}

/* Adds all gradients to existing values, then only those of parameters. A bfloat16 gradient may be rounded before it is
 * added: a staged one is, and on a card some of cuBLASLt's kernels do it (blas.c). */
static void check_accumulation(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    const uint64_t params = (UINT64_C(1) << node->param_count) - 1;
    const bool on_card = c->gpu->device->api->gpu && c->gpu->device->api != &ckpt_device_emulated;
    const int extra = c->dtype == CKPT_BFLOAT16 && (on_card || !ckpt_node_accumulates(node)) ? 1 : 0;
    for (int only_params = 0; only_params < 2 && !c->failed; only_params++) {
        const ckpt_run run = {.shift = only_params,
                              .workspace_byte = 0xFF,
                              .guard_byte = 0x7F,
                              .adds_in = only_params ? 0 : node->grad_in,
                              .adds_param = params};
        ckpt_gpu_want_backward(c, 0);
        ckpt_gpu_prefill(c);
        for (int k = 0; k < node->in_count; k++) {
            if ((run.adds_in >> k & 1) != 0) {
                add_to_want(&c->grad_in[k], 1);
            }
        }
        for (int k = 0; k < node->param_count; k++) {
            add_to_want(&c->grad_param[k], 1);
        }
        ckpt_gpu_backward(c, &run);
        compare_gradients(c, only_params ? "added (parameters only) " : "added ", extra);
    }
}

/* Several inputs may be one value, whose gradient buffer gets the sum. */
static void check_shared(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    int first = -1, others = 0;
    for (int k = 0; k < node->in_count; k++) {
        if ((node->grad_in >> k & 1) == 0) {
            continue;
        }
        if (first >= 0 && !ckpt_shape_equal(&node->in[k].shape, &node->in[first].shape)) {
            return;
        }
        others += first >= 0;
        first = first < 0 ? k : first;
    }
    if (others == 0 || c->failed) {
        return;
    }
    ckpt_gpu_want_backward(c, 0);
    for (int k = first + 1; k < node->in_count; k++) {
        for (int64_t i = 0; (node->grad_in >> k & 1) != 0 && i < c->grad_in[k].count; i++) {
            c->grad_in[first].want[i] += c->grad_in[k].want[i];
        }
    }
    const ckpt_run shared = {.workspace_byte = 0xFF, .guard_byte = 0x7F, .shared = true};
    ckpt_gpu_backward(c, &shared);
    /* every further addition rounds, and a staged value was rounded before */
    ckpt_gpu_compare(c, "gradient shared by all inputs, first of them", first, &c->grad_in[first], true,
                     c->dtype == CKPT_BFLOAT16 ? 2 * others : 0);
}

static void check_backward(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    size_t length;
    if (node->grad_in == 0 && node->param_count == 0) {
        return;
    }
    ckpt_gpu_forward(c, &plain_run);
    ckpt_gpu_want_backward(c, 0);
    ckpt_gpu_backward(c, &plain_run);
    compare_gradients(c, "", 0);
    const unsigned char *const bits = ckpt_gpu_snapshot(c, true, &length);
    check_elsewhere(c, bits, length, true);
    for (int k = 0; k < node->in_count; k++) {
        const uint64_t mine = UINT64_C(1) << k;
        if ((node->op->backward_inplace & mine) != 0 && node->grad_in == mine) {
            const ckpt_run inplace = {.grad_inplace = 1 + k, .workspace_byte = 0xFF, .guard_byte = 0xFF};
            ckpt_gpu_backward(c, &inplace);
            check_bits(c, "a gradient in place", bits, length, true);
        }
    }
    check_accumulation(c);
    check_shared(c);
    for (int k = 0; k < node->out_count && node->out_count > 1 && k < 2; k++) { /* two are enough of 32 pieces */
        const ckpt_run unread = {.no_grad_out = UINT64_C(1) << k};
        ckpt_gpu_want_backward(c, unread.no_grad_out);
        ckpt_gpu_backward(c, &unread);
        compare_gradients(c, "(an output is not read) ", 0);
    }
}

/* ------------------------------------------------------------------------------------------------ other ways */

/* Every forward way gives the own way's bits, and every backward way does, from what they save; inexact ones the numbers
 * of the CPU's kernel in that way, which test_op_contract compares with the truth. */
static void check_ways(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    size_t length, back_length;
    const bool backward = node->grad_in != 0 || node->param_count > 0;
    ckpt_gpu_forward(c, &plain_run);
    const unsigned char *const bits = ckpt_gpu_snapshot(c, false, &length);
    if (backward) {
        ckpt_gpu_want_backward(c, 0);
        ckpt_gpu_backward(c, &plain_run);
    }
    const unsigned char *const back = ckpt_gpu_snapshot(c, true, &back_length);
    for (int i = 0; i < node->way_count && !c->failed; i++) {
        if (!node->way[i].backward) {
            ckpt_gpu_forward(c, &(ckpt_run){.way = &node->way[i], .shift = 1, .workspace_byte = 0xFF});
            if (!node->way[i].inexact) {
                check_bits(c, node->way[i].name, bits, length, false);
            }
        }
    }
    for (int i = 0; i < node->way_count && backward && !c->failed; i++) {
        const ckpt_way *const way = &node->way[i];
        if (!way->backward) {
            continue;
        }
        ckpt_gpu_backward(c, &(ckpt_run){.way = way, .shift = 1, .workspace_byte = 0xFF});
        if (way->inexact) {
            ckpt_gpu_want_backward_by(c, way->name, 0);
            compare_gradients(c, "in another way, ", 0);
            size_t now = 0;
            const unsigned char *const once = ckpt_gpu_snapshot(c, true, &now);
            ckpt_emulated_schedule(1);
            ckpt_gpu_backward(c, &(ckpt_run){.way = way, .shift = 3, .guard_byte = 0xFF});
            ckpt_emulated_schedule(0);
            check_bits(c, way->name, once, now, true);
        } else {
            check_bits(c, way->name, back, back_length, true);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ the rest */

static void test_every_op_has_a_kernel(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        int missing = 0;
        for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
            if (!(*op)->planned_only && !(*op)->view && ckpt_device_find(ckpt_gpus[g].device, (*op)->name) == NULL) {
                (void)fprintf(stderr, "op %s has no kernel on %s\n", (*op)->name, ckpt_gpus[g].name);
                missing++;
            }
        }
        CHECK(missing == 0 || only != NULL, "%d ops have no CUDA kernel, listed above", missing);
    }
}

static void test_forward(void **state)
{
    for_all_cases(check_forward);
}

static void test_backward(void **state)
{
    for_all_cases(check_backward);
}

static void test_ways(void **state)
{
    for_all_cases(check_ways);
}

/* CKPT_ALIGN bytes less are refused, or a smaller algorithm is found; the used bytes are within the workspace. */
static void check_workspace(ckpt_gpu_case *c)
{
    const ckpt_bytes forward = c->bound.forward_workspace_bytes, backward = c->bound.backward_workspace_bytes;
    if (forward > c->node->forward_workspace_bytes || backward > c->node->backward_workspace_bytes) {
        ckpt_gpu_report(c, "uses workspaces of %lld and %lld bytes, the op allows %lld and %lld", (long long)forward,
                        (long long)backward, (long long)c->node->forward_workspace_bytes,
                        (long long)c->node->backward_workspace_bytes);
    }
    for (int side = 0; side < 2; side++) {
        const ckpt_bytes given[2] = {forward - (side == 0) * CKPT_ALIGN, backward - (side == 1) * CKPT_ALIGN};
        ckpt_bound_kernel bound = {0};
        ckpt_err err = {0};
        if (given[side] < 0) {
            continue;
        }
        const ckpt_code code = ckpt_device_bind(c->gpu->device, c->node, given[0], given[1], NULL, &bound, &err);
        if (code == CKPT_OK &&
            (bound.forward_workspace_bytes > given[0] || bound.backward_workspace_bytes > given[1])) {
            ckpt_gpu_report(c, "was given workspaces of %lld and %lld bytes, uses %lld and %lld", (long long)given[0],
                            (long long)given[1], (long long)bound.forward_workspace_bytes,
                            (long long)bound.backward_workspace_bytes);
        } else if (code != CKPT_OK && (code != CKPT_DEVICE || strstr(err.msg, c->node->name) == NULL)) {
            ckpt_gpu_report(c, "a short workspace gives code %d, \"%s\"; wanted CKPT_DEVICE and the layer's name",
                            (int)code, err.msg);
        }
        ckpt_device_unbind(&bound);
    }
}

static void test_workspace(void **state)
{
    for_all_cases(check_workspace);
}

static int open_devices(void **state)
{
    ckpt_err err = {0};
    ckpt_emulated_schedule(3);
    other.name = "emulated";
    CHECK_OK(ckpt_device_emulated.open(0, 1, &other.device, &err), err);
    ckpt_emulated_schedule(0);
    const int code = ckpt_gpus_open(state);
    if (getenv("CKPT_TEST_DEVICE") == NULL) {
        CHECK_OK(ckpt_device_open("cpu", 2, &ckpt_gpus[ckpt_gpus_count].device, &err), err);
        ckpt_gpus[ckpt_gpus_count++].name = "cpu";
    }
    return code;
}

static int close_devices(void **state)
{
    ckpt_gpu_close(&other);
    return ckpt_gpus_close(state);
}

int main(void)
{
    const char *const given = getenv("CKPT_TEST_SEED");
    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    }
    only = getenv("CKPT_TEST_OP");
    (void)printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_kernel),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_ways),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
