/* labels: contract */
/* The CPU's loop kernels at sizes that are split into blocks for threads; test_op_contract has small shapes. Compares
 * forward with the float64 reference, gradients with its difference along a random direction, and the bits of one, two
 * and three threads. */
#include "tests/support/support_test.h"

#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/support/support_bench.h"
#include "tests/support/support_reference.h"

/* clang-format off */
#define INT(n, v)  {.name = (n), .kind = CKPT_INT, .integer = (v), .real = (v)}
#define REAL(n, v) {.name = (n), .kind = CKPT_FLOAT, .real = (v)}
#define WORD(n, v) {.name = (n), .kind = CKPT_STRING, .string = (v)}
#define LIST(n, ...) {.name = (n), .kind = CKPT_INTS, \
    .ints = (const int64_t[]){__VA_ARGS__}, .int_count = LENGTH(__VA_ARGS__)}
#define LENGTH(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define F(...)      {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}}
#define IDS(l, ...) {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}, .limit = (l)}
#define IN(...) .in = {__VA_ARGS__}
#define AT(...) .attr = {__VA_ARGS__}

static const ckpt_case cases[] = {
    {.op = "relu", IN(F(3, 7001))},
    {.op = "relu6", IN(F(3, 7001))},
    {.op = "gelu", IN(F(5, 8193))},
    {.op = "gelu", IN(F(5, 8193)), AT(WORD("approximate", "tanh"))},
    {.op = "gelu", IN(F(5, 8193)), AT(WORD("approximate", "sigmoid"))},
    {.op = "groupnorm", IN(F(3, 30, 41, 33)), AT(INT("groups", 6))},
    {.op = "groupnorm", IN(F(1, 2100, 44)), AT(INT("groups", 4))},
    {.op = "instancenorm", IN(F(2, 19, 41, 33)), AT({.name = "affine", .kind = CKPT_BOOL, .integer = 1})},
    {.op = "timestep_embedding", IN(F(150)), AT(INT("features", 320))},
    {.op = "rope", IN(F(3, 131, 96)), AT(INT("heads", 3))},
    {.op = "rope", IN(F(1, 300, 102)), AT(INT("heads", 3), INT("rotary", 20), WORD("layout", "interleaved"))},
    {.op = "swiglu", .in_count = 2, IN(F(5, 8193))},
    {.op = "swiglu", IN(F(3, 29, 1034))},
    {.op = "geglu", .in_count = 2, IN(F(5, 8193))},
    {.op = "geglu", IN(F(3, 29, 1034)), AT(WORD("approximate", "tanh"))},
    {.op = "tanh", IN(F(5, 8193))},
    {.op = "sigmoid", IN(F(5, 8193))},
    {.op = "silu", IN(F(5, 8193))},
    {.op = "dropout", IN(F(5, 8193)), AT(REAL("p", 0.3))},
    {.op = "add", .in_count = 2, IN(F(5, 8193))},
    {.op = "add", .in_count = 4, IN(F(2, 13, 31, 29))},
    {.op = "mul", .in_count = 2, IN(F(5, 8193))},
    {.op = "mul", IN(F(3, 77, 13, 15), F(3, 77, 1, 1))},
    {.op = "softmax", IN(F(7, 5003))},
    {.op = "softmax", IN(F(3, 21, 37, 11)), AT(INT("axis", 2))},
    {.op = "log_softmax", IN(F(301, 103))},
    {.op = "log_softmax", IN(F(5, 37, 131)), AT(INT("axis", 1))},
    {.op = "embedding", IN(IDS(97, 3, 200)), AT(INT("rows", 97), INT("features", 203))},
    {.op = "positional_embedding", IN(F(5, 61, 103)), AT(INT("rows", 70))},
    {.op = "concat", IN(F(3, 12, 29, 31), F(3, 5, 29, 31), F(3, 70, 29, 31))},
    {.op = "concat", IN(F(3, 200, 33), F(3, 7, 33)), AT(INT("axis", 1))},
    {.op = "split", IN(F(3, 24, 29, 31)), AT(LIST("sizes", 3, 20, 1))},
    {.op = "split", IN(F(2, 3, 9000)), AT(INT("axis", 2), INT("parts", 3))},
    {.op = "reshape", IN(F(3, 37, 21, 17)), AT(LIST("shape", 3, -1))},
    {.op = "reshape", IN(F(3, 13209)), AT(LIST("shape", 3, 37, 21, 17))},
    {.op = "reshape", IN(F(2, 36, 20, 17)), AT(LIST("shape", 2, 9, 40, 34))},
    {.op = "transpose", IN(F(203, 117)), AT(LIST("perm", 1, 0))},
    {.op = "transpose", IN(F(3, 33, 5, 61)), AT(LIST("perm", 0, 3, 1, 2))},
    {.op = "transpose", IN(F(7, 65, 47)), AT(LIST("perm", 1, 0, 2))},
    {.op = "transpose", IN(F(3, 5, 7, 9, 11, 3)), AT(LIST("perm", 5, 0, 3, 1, 4, 2))},
    {.op = "slice", IN(F(3, 33, 21, 61)), AT(INT("axis", 3), INT("start", 2), INT("step", 3))},
    {.op = "slice", IN(F(3, 50000)), AT(INT("axis", 1), INT("start", 5), INT("end", -7))},
    {.op = "slice", IN(F(3, 50000)), AT(INT("axis", 1), INT("start", 2), INT("step", 7))},
    {.op = "pad", IN(F(3, 33, 21, 17)), AT(LIST("before", 1, 0, 2, 3), LIST("after", 0, 5, 1, 0))},
    {.op = "pad", IN(F(2, 9000)), AT(LIST("before", 0, 9000), LIST("after", 1, 5000))},
    {.op = "roll", IN(F(3, 33, 21, 17)), AT(LIST("shifts", 3, -4, 5), LIST("axes", 0, 2, 3))},
    {.op = "roll", IN(F(2, 30001)), AT(INT("shifts", 10000), INT("axes", 1))},
    {.op = "tile", IN(F(1, 203, 33)), AT(LIST("repeats", 5, 1, 1))},
    {.op = "tile", IN(F(3, 5)), AT(LIST("repeats", 100, 31))},
    {.op = "sum", IN(F(3, 33, 21, 17)), AT(LIST("axis", 0, 3))},
    {.op = "sum", IN(F(70001))},
    {.op = "mean", IN(F(5, 1003, 33)), AT(INT("axis", 1))},
    {.op = "mean", IN(F(301, 103)), AT(INT("axis", 1))},
    {.op = "mean", IN(F(5003, 7)), AT(INT("axis", 0))},
    {.op = "max", IN(F(5, 203, 303)), AT(INT("axis", 1))},
    {.op = "max", IN(F(300007))},
    {.op = "max", IN(F(301, 103)), AT(LIST("axis", 1))},
    {.op = "gather", IN(F(97, 203), IDS(97, 3, 200))},
    {.op = "gather", IN(F(5, 61, 103), IDS(61, 70)), AT(INT("axis", 1))},
    {.op = "gather", IN(F(2, 33, 21, 17), IDS(17, 9)), AT(INT("axis", 3))},
    {.op = "cumsum", IN(F(301, 103)), AT(INT("axis", 1))},
    {.op = "cumsum", IN(F(5, 203, 303)), AT(INT("axis", 1))},
    {.op = "upsample", IN(F(2, 13, 17, 11)), AT(INT("scale", 3))},
    {.op = "upsample", IN(F(2, 13, 17, 11)), AT(INT("scale", 2), WORD("mode", "bilinear"))},
    {.op = "lstm_cell", IN(F(33, 65), F(33, 140), F(33, 140)), AT(INT("features", 140))},
    {.op = "cross_entropy", IN(F(7, 5003), IDS(5003, 7))},
    {.op = "cross_entropy", IN(F(7, 5003), IDS(5003, 7)), AT(REAL("label_smoothing", 0.1))},
    {.op = "huber", .in_count = 2, IN(F(5, 8193)), AT(REAL("delta", 0.5))},
    {.op = "bce", .in_count = 2, IN(F(5, 8193))},
    {.op = "cross_entropy", IN(F(3, 21, 29, 31), IDS(21, 3, 29, 31)), .ignores = true},
    {.op = "nll_loss", IN(F(301, 103), IDS(103, 301))},
    {.op = "mse", .in_count = 2, IN(F(5, 8193))},
    {.op = "mul", IN(F(3, 77, 29, 31), F(1, 77, 1, 1))},
    {.op = "mul", IN(F(3, 77, 29, 31), F(3, 1, 29, 31))},
    {.op = "mul", IN(F(3, 77, 29, 31), F(77, 29, 31))},
    {.op = "add", IN(F(7, 301, 97), F(97))},
    {.op = "add", IN(F(301, 1, 97), F(7, 1))},
    {.op = "sub", IN(F(3, 7001), F(1))},
    {.op = "sub", IN(F(5, 8193), F(5, 1))},
    {.op = "scale", IN(F(5, 8193)), AT(REAL("factor", 0.7), REAL("offset", 0.1))},
    {.op = "hardswish", IN(F(5, 8193))},
    {.op = "elu", IN(F(5, 8193)), AT(REAL("alpha", 1.5))},
    {.op = "leaky_relu", IN(F(5, 8193))},
    {.op = "softplus", IN(F(5, 8193)), AT(REAL("beta", 2))},
    {.op = "exp", IN(F(5, 8193))},
    {.op = "pow", IN(F(5, 8193)), AT(REAL("exponent", 3))},
    {.op = "drop_path", IN(F(5, 8193)), AT(REAL("p", 0.5))},
    {.op = "parameter", .in_count = CKPT_CASE_NONE, AT(LIST("shape", 5, 8193))},
};
/* clang-format on */

enum { TENSORS = 16, GUARD = 64 };

static uint64_t random_state;

static double noise(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 40) / 0x1p23 - 1.0;
}

/* The position in memory of element `number` of the logical order. */
static int64_t place(const ckpt_shape *shape, bool value, int64_t number)
{
    if (shape->rank != 4 || !value) {
        return number;
    }
    int64_t stride[CKPT_RANK_MAX], at = 0;
    ckpt_shape_strides(shape, stride);
    for (int d = 3; d >= 0; d--) {
        at += number % shape->dim[d] * stride[d];
        number /= shape->dim[d];
    }
    return at;
}

/* One tensor: in double in logical order, and in float or int32 in memory order. */
typedef struct both {
    ckpt_tensor tensor;
    bool value;
    int64_t count;
    double *real;
    float *memory;
} both;

static ckpt_arena arena;

static both make(const ckpt_tensor *tensor, bool value)
{
    both made = {.tensor = *tensor, .value = value, .count = ckpt_shape_count(&tensor->shape)};
    made.real = CKPT_NEW(&arena, double, made.count);
    made.memory = CKPT_NEW(&arena, float, made.count + GUARD);
    assert_true(made.real != NULL && made.memory != NULL);
    return made;
}

static void to_memory(both *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = place(&t->tensor.shape, t->value, i);
        if (t->tensor.dtype == CKPT_INT32) {
            ((int32_t *)(void *)t->memory)[at] = (int32_t)t->real[i];
        } else {
            t->memory[at] = (float)t->real[i];
        }
    }
}

static void fill_real(both *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        const double x = 2.0 * noise();
        t->real[i] = (double)(float)(x < 0 ? x - 0.05 : x + 0.05); /* off relu's kink */
    }
    to_memory(t);
}

typedef struct trial {
    const ckpt_case *which;
    const ckpt_node *node;
    both in[TENSORS], out[TENSORS], saved[CKPT_SAVED_MAX], param[CKPT_PARAM_MAX];
    float *grad_out[TENSORS], *grad_in[TENSORS], *grad_param[CKPT_PARAM_MAX];
} trial;

static void reference(const trial *t)
{
    const double *in[TENSORS], *param[CKPT_PARAM_MAX];
    double *out[TENSORS], *saved[CKPT_SAVED_MAX];
    for (int k = 0; k < TENSORS; k++) {
        in[k] = t->in[k].real;
        out[k] = t->out[k].real;
    }
    for (int k = 0; k < CKPT_PARAM_MAX; k++) {
        param[k] = t->param[k].real;
    }
    for (int k = 0; k < CKPT_SAVED_MAX; k++) {
        saved[k] = t->saved[k].real;
    }
    const ckpt_reference r = {
        .node = t->node, .in = in, .param = param, .out = out, .saved = saved, .seed = 99, .step = 3};
    assert_true(ckpt_reference_forward(&r));
}

static void run(trial *t, int threads, bool backward, uint64_t adds)
{
    ckpt_node node = *t->node;
    node.threads = threads;
    ckpt_device *device = NULL;
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", threads, &device, &err), err);
    CHECK_OK(ckpt_device_bind(device, &node, -1, -1, NULL, &bound, &err), err);
    const void *in[TENSORS];
    void *out[TENSORS], *saved[CKPT_SAVED_MAX];
    const float *param[CKPT_PARAM_MAX];
    const void *grad_out[TENSORS];
    void *grad_in[TENSORS];
    for (int k = 0; k < TENSORS; k++) {
        in[k] = !backward || (node.backward_in >> k & 1) != 0 ? t->in[k].memory : NULL;
        out[k] = !backward || (node.backward_out >> k & 1) != 0 ? t->out[k].memory : NULL;
        grad_out[k] = t->grad_out[k];
        grad_in[k] = t->grad_in[k];
    }
    for (int k = 0; k < CKPT_PARAM_MAX; k++) {
        param[k] = t->param[k].memory;
    }
    for (int k = 0; k < CKPT_SAVED_MAX; k++) {
        saved[k] = !backward || (node.backward_saved >> k & 1) != 0 ? t->saved[k].memory : NULL;
    }
    const ckpt_kernel_args args = {.in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = t->grad_param,
                                   .grad_in_adds = adds,
                                   .grad_param_adds = adds,
                                   .seed = 99,
                                   .step = 3};
    test_call(device, &bound, &args, backward);
    ckpt_device_unbind(&bound);
    ckpt_device_close(device);
}

static void check_forward(const trial *t, const both *found, int k)
{
    for (int64_t i = 0; i < found->count; i++) {
        const double wanted = found->real[i];
        const int64_t at = place(&found->tensor.shape, found->value, i);
        const bool whole = found->tensor.dtype == CKPT_INT32;
        const double got = whole ? ((const int32_t *)(const void *)found->memory)[at] : (double)found->memory[at];
        CHECK(fabs(got - wanted) <= 1e-5 * (1.0 + fabs(wanted)), "%s: output %d, element %lld: %g, wanted %g",
              t->which->op, k, (long long)i, got, wanted);
    }
}

/* sum of w y over all outputs, by the reference */
static double weighted(const trial *t, both *w)
{
    reference(t);
    double sum = 0.0;
    for (int k = 0; k < t->node->out_count; k++) {
        for (int64_t i = 0; i < t->out[k].count; i++) {
            sum += t->out[k].real[i] * (t->node->op->loss ? 1.0 : w[k].real[i]);
        }
    }
    return sum;
}

/* Compares d(sum w y) along a random direction in `x` with the kernel's gradient times the direction. */
static void check_gradient(const trial *t, both *x, const float *grad, both *w, const char *what, int number)
{
    const double h = 1e-5;
    double product = 0.0, size = 0.0;
    double *const direction = CKPT_NEW(&arena, double, x->count);
    double *const start = CKPT_NEW(&arena, double, x->count);
    assert_true(direction != NULL && start != NULL);
    for (int64_t i = 0; i < x->count; i++) {
        direction[i] = noise();
        start[i] = x->real[i];
        const double term = direction[i] * (double)grad[place(&x->tensor.shape, x->value, i)];
        product += term;
        size += fabs(term);
    }
    double side[2];
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < x->count; i++) {
            x->real[i] = start[i] + (s == 0 ? h : -h) * direction[i];
        }
        side[s] = weighted(t, w);
    }
    memcpy(x->real, start, (size_t)x->count * sizeof *start);
    const double wanted = (side[0] - side[1]) / (2.0 * h);
    /* covers rounding of single terms to float, of either sign; a missing block changes the sum by hundredths */
    CHECK(fabs(product - wanted) <= 5e-7 * size + 1e-7,
          "%s: gradient of %s %d along a direction: %g, wanted %g (size %g)", t->which->op, what, number, product,
          wanted, size);
}

typedef struct result {
    float *piece[2 * TENSORS + 2 * CKPT_PARAM_MAX];
    int64_t count[2 * TENSORS + 2 * CKPT_PARAM_MAX];
    int pieces;
} result;

static void collect(result *r, const float *from, int64_t count)
{
    float *const copy = CKPT_NEW(&arena, float, count);
    assert_non_null(copy);
    memcpy(copy, from, (size_t)count * sizeof *copy);
    r->piece[r->pieces] = copy;
    r->count[r->pieces++] = count;
}

static result collect_all(const trial *t)
{
    result r = {.pieces = 0};
    for (int k = 0; k < t->node->out_count; k++) {
        collect(&r, t->out[k].memory, t->out[k].count);
    }
    for (int k = 0; k < t->node->in_count; k++) {
        if (t->grad_in[k] != NULL) {
            collect(&r, t->grad_in[k], t->in[k].count + GUARD);
        }
    }
    for (int k = 0; k < t->node->param_count; k++) {
        collect(&r, t->grad_param[k], t->param[k].count + GUARD);
    }
    return r;
}

/* NaN wherever backward must write, and behind that. */
static void spoil(const trial *t)
{
    for (int k = 0; k < t->node->in_count; k++) {
        if (t->grad_in[k] != NULL) {
            memset(t->grad_in[k], 0xff, (size_t)(t->in[k].count + GUARD) * sizeof(float));
        }
    }
    for (int k = 0; k < t->node->param_count; k++) {
        memset(t->grad_param[k], 0xff, (size_t)(t->param[k].count + GUARD) * sizeof(float));
    }
}

/* With `adds` gradients are added to existing values. */
static void check_adds(trial *t, const result *plain)
{
    for (int k = 0; k < t->node->in_count; k++) {
        for (int64_t i = 0; t->grad_in[k] != NULL && i < t->in[k].count; i++) {
            t->grad_in[k][i] = 0.5f;
        }
    }
    for (int k = 0; k < t->node->param_count; k++) {
        for (int64_t i = 0; i < t->param[k].count; i++) {
            t->grad_param[k][i] = 0.5f;
        }
    }
    run(t, 2, true, UINT64_MAX);
    const result added = collect_all(t);
    for (int p = t->node->out_count; p < added.pieces; p++) {
        for (int64_t i = 0; i < added.count[p] - GUARD; i++) {
            const float wanted = 0.5f + plain->piece[p][i];
            CHECK(fabsf(added.piece[p][i] - wanted) <= 1e-5f * (1.0f + fabsf(wanted)),
                  "%s: added gradient %d: %g, wanted %g", t->which->op, p, (double)added.piece[p][i], (double)wanted);
        }
    }
}

static void try_case(const ckpt_case *which)
{
    ckpt_arena_init(&arena);
    trial t = {.which = which};
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_case_network(which, 2, &arena, &network, &t.node, &err), err);
    both w[TENSORS] = {{.count = 0}};
    for (int k = 0; k < t.node->in_count; k++) {
        t.in[k] = make(&t.node->in[k], true);
        fill_real(&t.in[k]);
        const int64_t limit = ckpt_case_in(which, k)->limit;
        for (int64_t i = 0; limit > 0 && i < t.in[k].count; i++) {
            t.in[k].real[i] = which->ignores && i % 3 == 0 ? -100.0 : floor((noise() + 1.0) / 2.0 * (double)limit);
        }
        to_memory(&t.in[k]);
        if ((t.node->grad_in >> k & 1) != 0) {
            t.grad_in[k] = CKPT_NEW(&arena, float, t.in[k].count + GUARD);
        }
    }
    for (int k = 0; k < t.node->param_count; k++) {
        t.param[k] = make(&t.node->param[k].tensor, false);
        fill_real(&t.param[k]);
        t.grad_param[k] = CKPT_NEW(&arena, float, t.param[k].count + GUARD);
    }
    for (int k = 0; k < t.node->saved_count; k++) {
        t.saved[k] = make(&t.node->saved[k], false);
    }
    for (int k = 0; k < t.node->out_count; k++) {
        t.out[k] = make(&t.node->out[k], true);
        w[k] = make(&t.node->out[k], true);
        fill_real(&w[k]);
        t.grad_out[k] = t.node->op->loss ? NULL : w[k].memory;
    }
    reference(&t);
    run(&t, 1, false, 0);
    for (int k = 0; k < t.node->out_count; k++) {
        check_forward(&t, &t.out[k], k);
    }
    for (int k = 0; k < t.node->saved_count; k++) {
        check_forward(&t, &t.saved[k], 100 + k);
    }
    spoil(&t);
    run(&t, 1, true, 0);
    const result one = collect_all(&t);
    for (int threads = 2; threads <= 3 && strcmp(which->op, "lstm_cell") != 0; threads++) {
        run(&t, threads, false, 0);
        spoil(&t);
        run(&t, threads, true, 0);
        const result many = collect_all(&t);
        for (int p = 0; p < one.pieces; p++) {
            CHECK(memcmp(one.piece[p], many.piece[p], (size_t)one.count[p] * sizeof(float)) == 0,
                  "%s: result %d has other bits with %d threads", which->op, p, threads);
        }
    }
    for (int k = 0; k < t.node->in_count; k++) {
        if (t.grad_in[k] != NULL) {
            check_gradient(&t, &t.in[k], t.grad_in[k], w, "input", k);
        }
    }
    for (int k = 0; k < t.node->param_count; k++) {
        check_gradient(&t, &t.param[k], t.grad_param[k], w, "parameter", k);
    }
    if (t.node->op->accumulates) {
        check_adds(&t, &one);
    }
    ckpt_arena_fini(&arena);
}

static void every_case(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        random_state = 1000 + i;
        try_case(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
