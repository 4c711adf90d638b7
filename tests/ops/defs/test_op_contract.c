/* labels: contract; takes 100 s */
/* The contract of kernels/kernel.h and of the table of ops, for every op there is on the CPU:
 *
 *   forward       against the float64 reference, training and evaluating; every element written, nothing else touched
 *   backward      against central differences of the reference, seeing only what the op declared; all of it read
 *   bits          the same at other addresses, with other workspace contents, on the second run, in place both ways
 *   accumulation  into what is there, by the kernel or staged by the device; into one buffer for several inputs
 *   ways          every other way: the own way's bits, seeing only what it declares; accumulation too; inexact ones
 *                 against the same differences
 *   workspace     the op's stated allowance is enough; less is refused or done with
 *   wrong data    ids outside their table are an error, and weights of 0 where a way divides by them
 *
 * An op without two cases in support_cases.c, or without a reference, fails. The seed is printed;
 * CKPT_TEST_SEED=<number> sets it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_bench.h"
#include "tests/support/support_test.h"

static uint64_t seed = 20261120;

static const ckpt_run plain_run = {0};
static const ckpt_run moved_run = {.shift = 3, .workspace_byte = 0xFF, .guard_byte = 0xFF};

/* Bits of two snapshots, with the message on difference. */
static void check_bits(const ckpt_bench *bench, const char *what, const unsigned char *a, const unsigned char *b,
                       size_t length)
{
    for (size_t i = 0; i < length; i++) {
        CHECK(a[i] == b[i], "case %d (%s): %s changes bits, first at byte %zu of %zu", bench->number, bench->test->op,
              what, i, length);
    }
}

static void check_forward(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    ckpt_bench_reference(bench, true);
    const ckpt_run evaluating = {.evaluating = true, .workspace_byte = 0x7F};
    ckpt_bench_forward(bench, &evaluating);
    for (int k = 0; k < node->out_count; k++) {
        ckpt_bench_compare(bench, "evaluated output", k, &bench->out[k], 0);
    }

    ckpt_bench_reference(bench, false);
    ckpt_bench_forward(bench, &plain_run);
    for (int k = 0; k < node->out_count; k++) {
        ckpt_bench_compare(bench, "output", k, &bench->out[k], 0);
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((node->way_saved >> k & 1) == 0) {
            ckpt_bench_compare(bench, "saved tensor", k, &bench->saved[k], 0);
        }
    }
    for (int k = 0; k < node->stat_count; k++) {
        ckpt_bench_compare(bench, "statistic", k, &bench->stat[k], 0);
    }

    size_t length;
    const unsigned char *const bits = ckpt_bench_snapshot(bench, false, &length);
    ckpt_bench_forward(bench, &moved_run);
    check_bits(bench, "another address or workspace", bits, ckpt_bench_snapshot(bench, false, &length), length);
    const ckpt_run recomputed = {.shift = 1, .workspace_byte = 0xFF, .guard_byte = 0x7F, .recomputed = true};
    ckpt_bench_forward(bench, &recomputed);
    check_bits(bench, "running again", bits, ckpt_bench_snapshot(bench, false, &length), length);
    for (int k = 0; k < node->in_count; k++) {
        if (!ckpt_node_inplace(node, k)) {
            continue;
        }
        const ckpt_run inplace = {.inplace = 1 + k};
        ckpt_bench_forward(bench, &inplace);
        check_bits(bench, "running in place", bits, ckpt_bench_snapshot(bench, false, &length), length);
    }
}

static void compare_gradients(const ckpt_bench *bench, const char *what)
{
    char text[64];
    for (int k = 0; k < bench->node->in_count; k++) {
        if ((bench->node->grad_in >> k) & 1) {
            (void)snprintf(text, sizeof text, "%sgradient of input", what);
            ckpt_bench_compare(bench, text, k, &bench->grad_in[k], 1e-6);
        }
    }
    for (int k = 0; k < bench->node->param_count; k++) {
        (void)snprintf(text, sizeof text, "%sgradient of parameter", what);
        ckpt_bench_compare(bench, text, k, &bench->grad_param[k], 1e-6);
    }
}

/* memory = what was prefilled + the gradient: to the bit when the device staged it, within rounding otherwise. */
static void check_sum(const ckpt_bench *bench, const char *what, const unsigned char *base, const unsigned char *grad,
                      const unsigned char *sum, size_t length, bool exact)
{
    float largest = 1;
    for (size_t i = 0; i < length; i += 4) {
        float g;
        memcpy(&g, grad + i, 4);
        largest = fmaxf(largest, fabsf(g));
    }
    for (size_t i = 0; i < length; i += 4) {
        float b, g, s;
        memcpy(&b, base + i, 4);
        memcpy(&g, grad + i, 4);
        memcpy(&s, sum + i, 4);
        const float wanted = b + g;
        /* A kernel that accumulates may add its terms one by one: more roundings than one. */
        const float bound = exact ? 0 : (float)ckpt_bench_rounding(bench) * largest;
        CHECK(fabsf(s - wanted) <= bound, "case %d (%s): %s: %.9g + %.9g gives %.9g", bench->number, bench->test->op,
              what, (double)b, (double)g, (double)s);
    }
}

static void check_accumulation(ckpt_bench *bench, const unsigned char *grad, size_t length)
{
    const ckpt_node *const node = bench->node;
    const uint64_t params = (UINT64_C(1) << node->param_count) - 1;
    ckpt_bench_prefill(bench);
    const unsigned char *const base = ckpt_bench_snapshot(bench, true, &length);
    const ckpt_run all = {.workspace_byte = 0xFF, .guard_byte = 0x7F, .adds_in = node->grad_in, .adds_param = params};
    ckpt_bench_backward(bench, &all);
    const unsigned char *const sum = ckpt_bench_snapshot(bench, true, &length);
    check_sum(bench, "accumulation", base, grad, sum, length, !node->op->accumulates);

    /* Parameters only, at another address: inputs are overwritten, bit for bit as before. */
    size_t in_bytes = 0;
    for (int k = 0; k < node->in_count; k++) {
        in_bytes += (node->grad_in >> k) & 1 ? bench->grad_in[k].bytes : 0;
    }
    ckpt_bench_prefill(bench);
    const unsigned char *const base2 = ckpt_bench_snapshot(bench, true, &length);
    const ckpt_run some = {.shift = 2, .adds_param = params};
    ckpt_bench_backward(bench, &some);
    const unsigned char *const sum2 = ckpt_bench_snapshot(bench, true, &length);
    check_bits(bench, "accumulating parameters", grad, sum2, in_bytes);
    check_sum(bench, "accumulation of parameters", base2 + in_bytes, grad + in_bytes, sum2 + in_bytes,
              length - in_bytes, !node->op->accumulates);
}

/* Several inputs may be one value: one gradient buffer takes the sum. */
static void check_shared(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    int first = -1, others = 0;
    for (int k = 0; k < node->in_count; k++) {
        if (((node->grad_in >> k) & 1) == 0) {
            continue;
        }
        if (first >= 0 && !ckpt_shape_equal(&node->in[k].shape, &node->in[first].shape)) {
            return;
        }
        others += first >= 0;
        first = first < 0 ? k : first;
    }
    if (others == 0) {
        return;
    }
    for (int k = first + 1; k < node->in_count; k++) {
        for (int64_t i = 0; ((node->grad_in >> k) & 1) != 0 && i < bench->grad_in[k].count; i++) {
            bench->grad_in[first].truth[i] += bench->grad_in[k].truth[i];
        }
    }
    const ckpt_run shared = {.workspace_byte = 0xFF, .guard_byte = 0x7F, .shared = true};
    ckpt_bench_backward(bench, &shared);
    ckpt_bench_compare(bench, "gradient shared by all inputs, first of them", first, &bench->grad_in[first], 2e-6);
}

/* A loss that another layer reads: a quarter of its gradient is a quarter of all gradients, to the bit, since no number
 * here is near underflow. */
static void check_arriving(ckpt_bench *bench, const unsigned char *bits, size_t length)
{
    ckpt_bench_backward(bench, &(ckpt_run){.arriving = true});
    const unsigned char *const quarter = ckpt_bench_snapshot(bench, true, &length);
    for (size_t i = 0; i < length; i += 4) {
        float whole, part;
        memcpy(&whole, bits + i, 4);
        memcpy(&part, quarter + i, 4);
        CHECK(part == 0.25f * whole, "case %d (%s): a gradient of 1 gives %.9g, one of 1/4 gives %.9g", bench->number,
              bench->test->op, (double)whole, (double)part);
    }
}

static void check_backward(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    size_t length;
    if (node->grad_in == 0 && node->param_count == 0) {
        return;
    }
    ckpt_bench_differences(bench, 0);
    ckpt_bench_forward(bench, &plain_run);
    ckpt_bench_backward(bench, &plain_run);
    compare_gradients(bench, "");
    const unsigned char *const bits = ckpt_bench_snapshot(bench, true, &length);
    ckpt_bench_backward(bench, &moved_run);
    check_bits(bench, "another address or workspace", bits, ckpt_bench_snapshot(bench, true, &length), length);
    for (int k = 0; k < node->in_count; k++) {
        const uint64_t mine = UINT64_C(1) << k;
        if ((node->op->backward_inplace & mine) != 0 && node->grad_in == mine) {
            assert_true((node->backward_in & mine) != 0);
            const ckpt_run inplace = {.grad_inplace = 1 + k, .workspace_byte = 0xFF, .guard_byte = 0xFF};
            ckpt_bench_backward(bench, &inplace);
            check_bits(bench, "a gradient in place", bits, ckpt_bench_snapshot(bench, true, &length), length);
        }
    }
    check_accumulation(bench, bits, length);
    check_shared(bench);
    if (node->op->loss) {
        check_arriving(bench, bits, length);
    }
    for (int k = 0; k < node->out_count && node->out_count > 1; k++) {
        const ckpt_run unread = {.no_grad_out = UINT64_C(1) << k};
        if (k == 2) {
            break; /* two are enough of 32 pieces */
        }
        ckpt_bench_differences(bench, unread.no_grad_out);
        ckpt_bench_forward(bench, &plain_run);
        ckpt_bench_backward(bench, &unread);
        compare_gradients(bench, "(an output is not read) ");
    }
}

/* ---- other ways ---- */

/* Saved tensor k, that only other ways write, as it is now. */
static unsigned char *copy_saved(ckpt_bench *bench, int k)
{
    unsigned char *const copy = CKPT_NEW(&bench->arena, unsigned char, bench->saved[k].bytes);
    assert_non_null(copy);
    memcpy(copy, bench->saved[k].memory, bench->saved[k].bytes);
    return copy;
}

/* All forward ways: outputs, statistics and what the own way saves, to the bit, in place too; and what they save beside
 * that is the same at another address. */
static void check_forward_ways(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    size_t length;
    ckpt_bench_reference(bench, false);
    ckpt_bench_forward(bench, &plain_run);
    const unsigned char *const bits = ckpt_bench_snapshot(bench, false, &length);
    for (int i = 0; i < node->way_count; i++) {
        const ckpt_way *const way = &node->way[i];
        if (way->backward || test_way_workspace(&bench->bound, way, 0) == CKPT_WAY_ABSENT) {
            continue;
        }
        const unsigned char *wanted = way->inexact ? NULL : bits;
        unsigned char *saved[CKPT_SAVED_MAX] = {NULL};
        assert_int_equal(way->saved & ~node->way_saved, ckpt_node_saves(node, NULL));
        for (int twice = 0; twice < 2; twice++) {
            ckpt_run run = twice ? moved_run : plain_run;
            run.way = way;
            ckpt_bench_forward(bench, &run);
            for (int k = 0; way->inexact && k < node->out_count; k++) {
                ckpt_bench_compare(bench, way->name, k, &bench->out[k], 0);
            }
            const unsigned char *const found = ckpt_bench_snapshot(bench, false, &length);
            wanted = wanted == NULL ? found : wanted;
            check_bits(bench, way->name, wanted, found, length);
            for (int k = 0; k < node->saved_count; k++) {
                if (saved[k] != NULL) {
                    check_bits(bench, "what a way saves, at another address,", saved[k], bench->saved[k].memory,
                               bench->saved[k].bytes);
                }
                saved[k] = (way->saved & node->way_saved) >> k & 1 ? copy_saved(bench, k) : NULL;
            }
        }
        if (node->in_count > 0 && ckpt_node_inplace(node, 0)) {
            ckpt_bench_forward(bench, &(ckpt_run){.inplace = 1, .way = way});
            check_bits(bench, "another way in place", bits, ckpt_bench_snapshot(bench, false, &length), length);
        }
        ckpt_bench_forward(bench, &(ckpt_run){.evaluating = true, .way = way});
    }
}

/* What forward leaves for one backward way: that of the own way, and of a way that saves what is missing. */
static void run_forward_for(ckpt_bench *bench, const ckpt_way *way)
{
    const ckpt_node *const node = bench->node;
    uint64_t missing = way->saved & node->way_saved;
    ckpt_bench_forward(bench, &plain_run);
    for (int i = 0; i < node->way_count && missing != 0; i++) {
        if (!node->way[i].backward && (node->way[i].saved & missing) != 0) {
            ckpt_bench_forward(bench, &(ckpt_run){.way = &node->way[i]});
            missing &= ~node->way[i].saved;
        }
    }
    CHECK(missing == 0, "case %d (%s): no way saves what backward way %s reads", bench->number, bench->test->op,
          way->name);
}

static void check_backward_way(ckpt_bench *bench, const ckpt_way *way, const unsigned char *bits, size_t length)
{
    const ckpt_node *const node = bench->node;
    const uint64_t params = (UINT64_C(1) << node->param_count) - 1;
    ckpt_run run = moved_run;
    run.way = way;
    run_forward_for(bench, way);
    ckpt_bench_backward(bench, &(ckpt_run){.way = way});
    if (way->inexact) {
        compare_gradients(bench, "in another way, ");
        bits = ckpt_bench_snapshot(bench, true, &length);
    } else {
        check_bits(bench, way->name, bits, ckpt_bench_snapshot(bench, true, &length), length);
    }
    ckpt_bench_backward(bench, &run);
    check_bits(bench, way->name, bits, ckpt_bench_snapshot(bench, true, &length), length);
    ckpt_bench_prefill(bench);
    const unsigned char *const base = ckpt_bench_snapshot(bench, true, &length);
    run.adds_in = node->grad_in;
    run.adds_param = params;
    ckpt_bench_backward(bench, &run);
    check_sum(bench, way->name, base, bits, ckpt_bench_snapshot(bench, true, &length), length, !node->op->accumulates);
}

static void check_ways(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    size_t length;
    check_forward_ways(bench);
    if (node->grad_in == 0 && node->param_count == 0) {
        return;
    }
    ckpt_bench_differences(bench, 0);
    ckpt_bench_forward(bench, &plain_run);
    ckpt_bench_backward(bench, &plain_run);
    const unsigned char *const bits = ckpt_bench_snapshot(bench, true, &length);
    for (int i = 0; i < node->way_count; i++) {
        if (node->way[i].backward && test_way_workspace(&bench->bound, &node->way[i], 0) != CKPT_WAY_ABSENT) {
            check_backward_way(bench, &node->way[i], bits, length);
        }
    }
}

/* A workspace one byte short is refused, or a smaller algorithm is found: never used beyond what is given. */
static void check_short_workspace(ckpt_bench *bench)
{
    const ckpt_bytes forward = bench->bound.forward_workspace_bytes, backward = bench->bound.backward_workspace_bytes;
    for (int side = 0; side < 2; side++) {
        const ckpt_bytes given[2] = {forward - (side == 0), backward - (side == 1)};
        if (given[side] < 0) {
            continue;
        }
        ckpt_bound_kernel bound = {0};
        ckpt_err err = {0};
        const ckpt_code code = ckpt_device_bind(bench->device, bench->node, given[0], given[1], NULL, &bound, &err);
        if (code == CKPT_OK) {
            CHECK(bound.forward_workspace_bytes <= given[0] && bound.backward_workspace_bytes <= given[1],
                  "case %d (%s): was given workspaces of %lld and %lld bytes, uses %lld and %lld", bench->number,
                  bench->test->op, (long long)given[0], (long long)given[1], (long long)bound.forward_workspace_bytes,
                  (long long)bound.backward_workspace_bytes);
            ckpt_device_unbind(&bound);
        } else {
            CHECK(code == CKPT_DEVICE && strstr(err.msg, bench->node->name) != NULL,
                  "case %d (%s): a short workspace gives code %d, \"%s\"; wanted CKPT_DEVICE and the layer's name",
                  bench->number, bench->test->op, (int)code, err.msg);
        }
    }
}

/* Does backward give other bits when this tensor holds other numbers? */
static bool is_read(ckpt_bench *bench, const ckpt_way *way, ckpt_twin *twin, const unsigned char *bits)
{
    unsigned char *const right = CKPT_NEW(&bench->arena, unsigned char, twin->bytes);
    size_t length;
    assert_non_null(right);
    memcpy(right, twin->memory, twin->bytes);
    memset(twin->memory, twin->tensor->dtype == CKPT_INT32 ? 0 : 0xFF, twin->bytes); /* a legal id; NaN */
    ckpt_bench_backward(bench, &(ckpt_run){.way = way});
    memcpy(twin->memory, right, twin->bytes);
    const unsigned char *const other = ckpt_bench_snapshot(bench, true, &length);
    return memcmp(bits, other, length) != 0;
}

/* By kind of tensor (input, output, saved), what some case of the op at hand declared, and what was read. */
static uint64_t declared_bits[3], read_bits[3];
static const char *checked_way; /* the backward way at hand; NULL: the own one */

static void check_declared(ckpt_bench *bench)
{
    const ckpt_node *const node = bench->node;
    const ckpt_way *const way = checked_way != NULL ? ckpt_node_find_way(node, checked_way, true) : NULL;
    const ckpt_reads reads = test_way_reads(node, way);
    const uint64_t declared[3] = {reads.in, reads.out, reads.saved};
    ckpt_twin *const twin[3] = {bench->in, bench->out, bench->saved};
    size_t length;
    const bool absent =
        way != NULL && test_way_workspace(&bench->bound, way, 0) == CKPT_WAY_ABSENT; /* on this processor */
    if ((node->grad_in == 0 && node->param_count == 0) || (checked_way != NULL && way == NULL) || absent) {
        return;
    }
    if (way != NULL) {
        run_forward_for(bench, way);
    } else {
        ckpt_bench_forward(bench, &plain_run);
    }
    ckpt_bench_backward(bench, &(ckpt_run){.way = way});
    const unsigned char *const bits = ckpt_bench_snapshot(bench, true, &length);
    for (int kind = 0; kind < 3; kind++) {
        for (int k = 0; k < CKPT_IN_MAX && declared[kind] >> k != 0; k++) {
            const uint64_t bit = UINT64_C(1) << k;
            declared_bits[kind] |= declared[kind] & bit;
            if ((declared[kind] & bit) != 0 && (read_bits[kind] & bit) == 0 &&
                is_read(bench, way, &twin[kind][k], bits)) {
                read_bits[kind] |= bit;
            }
        }
    }
}

static void run_case(int number, int threads, void (*check)(ckpt_bench *bench))
{
    ckpt_bench *const bench = ckpt_memory_get(sizeof *bench);
    assert_non_null(bench);
    ckpt_bench_init(bench, &ckpt_cases[number], number, threads, seed);
    check(bench);
    ckpt_bench_fini(bench);
    ckpt_memory_put(bench);
}

static void test_every_op_has_two_cases(void **state)
{
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        int cases = 0;
        for (int i = 0; i < ckpt_case_count; i++) {
            cases += strcmp(ckpt_cases[i].op, (*op)->name) == 0;
        }
        const bool kernel = !(*op)->planned_only && !(*op)->view;
        CHECK(kernel ? cases >= 2 : cases == 0, "op %s has %d cases in support_cases.c, wanted %s", (*op)->name, cases,
              kernel ? "two or more" : "none");
    }
}

static void test_forward(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 1 + i % 3, check_forward);
    }
}

static void test_backward(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 1 + i % 3, check_backward);
    }
}

static void test_ways(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 1 + i % 3, check_ways);
    }
}

/* Of one backward way of an op; NULL: of its own. */
static void check_way_is_read(const ckpt_op *op, const char *way)
{
    static const char *const kinds[3] = {"input", "output", "saved tensor"};
    memset(declared_bits, 0, sizeof declared_bits);
    memset(read_bits, 0, sizeof read_bits);
    checked_way = way;
    for (int i = 0; i < ckpt_case_count; i++) {
        if (strcmp(ckpt_cases[i].op, op->name) == 0) {
            run_case(i, 2, check_declared);
        }
    }
    for (int kind = 0; kind < 3; kind++) {
        CHECK(declared_bits[kind] == read_bits[kind],
              "op %s (%s) declares %ss for backward that it never reads (declared %llx, read %llx)", op->name,
              way != NULL ? way : "its own way", kinds[kind], (unsigned long long)declared_bits[kind],
              (unsigned long long)read_bits[kind]);
    }
}

static const char *way_name[CKPT_WAY_MAX]; /* backward ways of the op at hand */
static int way_names;

static void collect_ways(ckpt_bench *bench)
{
    for (int i = 0; i < bench->node->way_count; i++) {
        const ckpt_way *const way = &bench->node->way[i];
        bool known = !way->backward;
        for (int k = 0; k < way_names; k++) {
            known = known || strcmp(way_name[k], way->name) == 0;
        }
        if (!known) {
            way_name[way_names++] = way->name; /* a literal of the op's */
        }
    }
}

/* What backward declares is what a plan keeps in memory: nothing may be declared that no case reads. */
static void test_declared_is_read(void **state)
{
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        check_way_is_read(*op, NULL);
        way_names = 0;
        for (int i = 0; i < ckpt_case_count; i++) {
            if (strcmp(ckpt_cases[i].op, (*op)->name) == 0) {
                run_case(i, 2, collect_ways);
            }
        }
        for (int k = 0; k < way_names; k++) {
            check_way_is_read(*op, way_name[k]);
        }
    }
}

static void test_short_workspace(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 2, check_short_workspace);
    }
}

/* Data can be wrong: an id below 0 or beyond the table is an error that names the layer, never a read outside. */
static void check_wrong_ids(ckpt_bench *bench)
{
    for (int k = 0; k < bench->node->in_count; k++) {
        const int64_t limit = ckpt_case_in(bench->test, k)->limit;
        if (limit == 0 || ckpt_node_limit(bench->node, k) == 0) {
            continue; /* no integers, or any will do */
        }
        const ckpt_attr *const rows = bench->node->op->attrs == NULL ? NULL : &bench->node->attr[0];
        const int64_t beyond = rows != NULL && strcmp(rows->name, "rows") == 0 ? rows->integer : limit;
        const int64_t wrong[] = {beyond, -1, INT32_MAX, INT32_MIN};
        for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
            const int64_t at = (int64_t)w * (bench->in[k].count - 1) / 3; /* first, last and between */
            int32_t right;
            const int32_t id = (int32_t)wrong[w];
            memcpy(&right, bench->in[k].memory + 4 * at, 4);
            memcpy(bench->in[k].memory + 4 * at, &id, 4);
            ckpt_err err = {0};
            const ckpt_code code = ckpt_bench_try(bench, &plain_run, &err);
            CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, bench->node->name) != NULL,
                  "case %d (%s): id %ld gives code %d, \"%s\"; wanted CKPT_BAD_INPUT and the layer's name",
                  bench->number, bench->test->op, (long)id, (int)code, err.msg);
            memcpy(bench->in[k].memory + 4 * at, &right, 4);
        }
    }
}

static void test_wrong_ids(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 2, check_wrong_ids);
    }
}

/* A way that divides by the weight refuses one that is 0; the own way does not. */
static void check_zero_weight(ckpt_bench *bench)
{
    const ckpt_way *const way = ckpt_node_find_way(bench->node, "output", true);
    if (way == NULL || !way->inexact) {
        return;
    }
    ckpt_twin *const weight = &bench->param[0];
    ckpt_err err = {0};
    memset(weight->memory + weight->bytes - 4, 0, 4);
    ckpt_bench_forward(bench, &plain_run);
    ckpt_bench_backward(bench, &plain_run);
    const ckpt_code code = ckpt_bench_try_backward(bench, &(ckpt_run){.way = way}, &err);
    CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, bench->node->name) != NULL && strstr(err.msg, "is 0") != NULL,
          "case %d (%s): a weight of 0 gives code %d, \"%s\"; wanted CKPT_BAD_INPUT and the layer's name",
          bench->number, bench->test->op, (int)code, err.msg);
}

static void test_zero_weight(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        run_case(i, 2, check_zero_weight);
    }
}

static ckpt_code bind_and_unbind(void *context, ckpt_err *err)
{
    ckpt_bench *const bench = context;
    ckpt_bound_kernel bound = {0};
    CKPT_TRY(ckpt_device_bind(bench->device, bench->node, -1, -1, NULL, &bound, err));
    ckpt_device_unbind(&bound);
    return CKPT_OK;
}

static void check_starved_bind(ckpt_bench *bench)
{
    (void)ckpt_test_starve(bind_and_unbind, bench);
}

static void test_bind_without_memory(void **state)
{
    for (int i = 0; i < ckpt_case_count; i++) {
        if (i == 0 || strcmp(ckpt_cases[i].op, ckpt_cases[i - 1].op) != 0) {
            run_case(i, 2, check_starved_bind);
        }
    }
}

int main(void)
{
    const char *const given = getenv("CKPT_TEST_SEED");
    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_two_cases),
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_declared_is_read),
        cmocka_unit_test(test_short_workspace),
        cmocka_unit_test(test_wrong_ids),
        cmocka_unit_test(test_zero_weight),
        cmocka_unit_test(test_bind_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
