/* labels: contract */
/* Kernels that take bfloat16 as it is or in widened pieces, at sizes of several pieces and blocks: the result is the
 * float32 kernel's on the same numbers, rounded once, bit for bit, with one, two and three threads. */
#include "tests/support/support_test.h"

#include <string.h>

#include "kernels/device.h"
#include "tests/support/support_bench.h"

/* clang-format off */
#define INT(n, v)  {.name = (n), .kind = CKPT_INT, .integer = (v), .real = (v)}
#define REAL(n, v) {.name = (n), .kind = CKPT_FLOAT, .real = (v)}
#define BOOL(n, v) {.name = (n), .kind = CKPT_BOOL, .integer = (v)}
#define WORD(n, v) {.name = (n), .kind = CKPT_STRING, .string = (v)}
#define LIST(n, ...) {.name = (n), .kind = CKPT_INTS, \
    .ints = (const int64_t[]){__VA_ARGS__}, .int_count = LENGTH(__VA_ARGS__)}
#define LENGTH(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define F(...)      {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}}
#define IN(...) .in = {__VA_ARGS__}
#define AT(...) .attr = {__VA_ARGS__}

static const ckpt_case cases[] = {
    {.op = "relu", IN(F(5, 8193))},
    {.op = "relu", IN(F(3, 5))},
    {.op = "relu6", IN(F(3, 7001))},
    {.op = "add", .in_count = 2, IN(F(5, 8193))},
    {.op = "add", .in_count = 4, IN(F(2, 13, 31, 29))},
    {.op = "concat", IN(F(3, 12, 29, 31), F(3, 5, 29, 31), F(3, 70, 29, 31))},
    {.op = "concat", IN(F(3, 200, 33), F(3, 7, 33)), AT(INT("axis", 1))},
    {.op = "split", IN(F(3, 24, 29, 31)), AT(LIST("sizes", 3, 20, 1))},
    {.op = "split", IN(F(2, 3, 9000)), AT(INT("axis", 2), INT("parts", 3))},
    {.op = "batchnorm", IN(F(3, 261, 11, 13))},
    {.op = "batchnorm", IN(F(3, 61, 11, 13)), AT(BOOL("frozen", 1))},
    {.op = "gelu", IN(F(5, 8193))},
    {.op = "dropout", IN(F(5, 8193)), AT(REAL("p", 0.3))},
    {.op = "silu", IN(F(5, 8193))},
    {.op = "sigmoid", IN(F(5, 8193))},
    {.op = "tanh", IN(F(2, 16384))},
    {.op = "mul", .in_count = 2, IN(F(5, 8193))},
    {.op = "sub", .in_count = 2, IN(F(5, 8193))},
    {.op = "div", .in_count = 2, IN(F(5, 8193)), .fill = CKPT_FILL_LARGE},
    {.op = "scale", IN(F(5, 8193)), AT(REAL("factor", 0.7), REAL("offset", 0.1))},
    {.op = "hardswish", IN(F(5, 8193))},
    {.op = "elu", IN(F(5, 8193)), AT(REAL("alpha", 1.5))},
    {.op = "exp", IN(F(5, 8193))},
    {.op = "layernorm", IN(F(3, 41, 261))},
    {.op = "rmsnorm", IN(F(150, 261))},
    {.op = "groupnorm", IN(F(3, 60, 23, 29)), AT(INT("groups", 6))},
    {.op = "instancenorm", IN(F(3, 37, 23, 29)), AT(BOOL("affine", 1))},
    {.op = "instancenorm", IN(F(2, 300, 9, 7))},
    {.op = "softmax", IN(F(3, 41, 261))},
    {.op = "softmax", IN(F(2, 13, 31, 29)), AT(INT("axis", 1))},
    {.op = "softmax", IN(F(2, 13, 31, 29)), AT(INT("axis", 2))},
    {.op = "log_softmax", IN(F(150, 261))},
    {.op = "log_softmax", IN(F(261, 130)), AT(INT("axis", 0))},
    {.op = "rope", IN(F(3, 71, 120)), AT(INT("heads", 5))},
    {.op = "rope", IN(F(3, 71, 120)), AT(INT("heads", 3), INT("rotary", 22), WORD("layout", "interleaved"))},
    {.op = "maxpool2d", IN(F(2, 523, 12, 13)), AT(LIST("kernel_size", 3), LIST("stride", 2), LIST("padding", 1))},
    {.op = "maxpool2d", IN(F(2, 5, 40, 41)), AT(LIST("kernel_size", 17, 16), LIST("stride", 5))},
    {.op = "adaptive_maxpool2d", IN(F(2, 523, 12, 13)), AT(LIST("output_size", 5, 4))},
    {.op = "avgpool2d", IN(F(2, 523, 12, 13)), AT(LIST("kernel_size", 3), LIST("stride", 2), LIST("padding", 1))},
    {.op = "adaptive_avgpool2d", IN(F(2, 523, 12, 13)), AT(LIST("output_size", 5, 4))},
    {.op = "moe", IN(F(130, 19)), AT(INT("experts", 5), INT("hidden", 23))},
    {.op = "moe", IN(F(2, 5, 19)), AT(INT("experts", 16), INT("top", 1), INT("hidden", 7), REAL("capacity", 2))},
    {.op = "global_avgpool", IN(F(3, 523, 11, 13))},
};
/* clang-format on */

enum { TENSORS = 8, PARTS = 64 };

static ckpt_arena arena;

/* Numbers as they lie in memory, and again as float. */
typedef struct array {
    ckpt_dtype dtype;
    int64_t count;
    void *memory;
} array;

static float at(const array *a, int64_t i)
{
    return a->dtype == CKPT_BFLOAT16  ? ckpt_bfloat16_value(((const uint16_t *)a->memory)[i])
           : a->dtype == CKPT_FLOAT32 ? ((const float *)a->memory)[i]
           : a->dtype == CKPT_UINT8   ? (float)((const uint8_t *)a->memory)[i]
                                      : (float)((const int32_t *)a->memory)[i];
}

static void put(const array *a, int64_t i, float value)
{
    if (a->dtype == CKPT_BFLOAT16) {
        ((uint16_t *)a->memory)[i] = ckpt_bfloat16_of(value);
    } else {
        ((float *)a->memory)[i] = value;
    }
}

/* What a run gave, in the same order for both types. */
typedef struct result {
    array part[PARTS];
    int count;
} result;

typedef struct trial {
    const ckpt_case *which;
    ckpt_node node;
    const ckpt_way *forward_way, *backward_way;
    array in[TENSORS], out[TENSORS], saved[CKPT_SAVED_MAX], param[CKPT_PARAM_MAX], param16[CKPT_PARAM_MAX],
        stat[CKPT_STAT_MAX];
    array grad_out[TENSORS], grad_in[TENSORS], grad_param[CKPT_PARAM_MAX];
    uint64_t adds;
} trial;

static array make(const ckpt_tensor *tensor, ckpt_dtype dtype)
{
    const int64_t count = ckpt_shape_count(&tensor->shape);
    array a = {dtype, count, CKPT_NEW(&arena, float, count)};
    assert_non_null(a.memory);
    return a;
}

/* Numbers that bfloat16 has. */
static void fill(const ckpt_case *c, int k, const array *a, uint64_t *generator)
{
    double *const x = CKPT_NEW(&arena, double, a->count);
    assert_non_null(x);
    ckpt_case_fill(c, k, a->count, generator, x);
    for (int64_t i = 0; i < a->count; i++) {
        put(a, i, ckpt_bfloat16_value(ckpt_bfloat16_of((float)x[i])));
    }
}

static void prepare(trial *t)
{
    const ckpt_node *const n = &t->node;
    uint64_t generator = 7;
    for (int k = 0; k < n->in_count; k++) {
        t->in[k] = make(&n->in[k], n->in[k].dtype);
        t->grad_in[k] = make(&n->in[k], n->in[k].dtype);
        fill(t->which, k, &t->in[k], &generator);
        fill(t->which, k, &t->grad_in[k], &generator);
    }
    for (int k = 0; k < n->out_count; k++) {
        t->out[k] = make(&n->out[k], n->out[k].dtype);
        t->grad_out[k] = make(&n->out[k], n->out[k].dtype);
        fill(t->which, 0, &t->grad_out[k], &generator);
    }
    for (int k = 0; k < n->saved_count; k++) {
        t->saved[k] = make(&n->saved[k], n->saved[k].dtype);
    }
    for (int k = 0; k < n->param_count; k++) {
        t->param[k] = make(&n->param[k].tensor, CKPT_FLOAT32);
        t->param16[k] = make(&n->param[k].tensor, CKPT_BFLOAT16);
        t->grad_param[k] = make(&n->param[k].tensor, CKPT_FLOAT32);
        fill(t->which, 0, &t->param[k], &generator);
        for (int64_t i = 0; i < t->param[k].count; i++) {
            put(&t->param16[k], i, at(&t->param[k], i));
        }
    }
    for (int k = 0; k < n->stat_count; k++) {
        t->stat[k] = make(&n->stat[k].tensor, CKPT_FLOAT32);
        for (int64_t i = 0; i < t->stat[k].count; i++) {
            put(&t->stat[k], i, 1.0f + (float)(i % 7) / 8.0f);
        }
    }
}

static void call(trial *t, ckpt_device *device, const ckpt_bound_kernel *bound, bool backward)
{
    const ckpt_node *const n = &t->node;
    const void *in[TENSORS] = {0}, *grad_out[TENSORS] = {0}, *param16[CKPT_PARAM_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    float *stat[CKPT_STAT_MAX] = {0}, *grad_param[CKPT_PARAM_MAX] = {0};
    void *out[TENSORS] = {0}, *saved[CKPT_SAVED_MAX] = {0}, *grad_in[TENSORS] = {0};
    for (int k = 0; k < n->in_count; k++) {
        in[k] = t->in[k].memory;
        grad_in[k] = (n->grad_in >> k & 1) != 0 ? t->grad_in[k].memory : NULL;
    }
    for (int k = 0; k < n->out_count; k++) {
        out[k] = t->out[k].memory;
        grad_out[k] = t->grad_out[k].memory;
    }
    for (int k = 0; k < n->saved_count; k++) {
        saved[k] = t->saved[k].memory;
    }
    for (int k = 0; k < n->param_count; k++) {
        param[k] = t->param[k].memory;
        param16[k] = n->dtype == CKPT_BFLOAT16 ? t->param16[k].memory : NULL;
        grad_param[k] = t->grad_param[k].memory;
    }
    for (int k = 0; k < n->stat_count; k++) {
        stat[k] = t->stat[k].memory;
    }
    const ckpt_kernel_args args = {.way = backward ? t->backward_way : t->forward_way,
                                   .in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .param16 = param16,
                                   .stat = stat,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = grad_param,
                                   .grad_in_adds = t->adds,
                                   .seed = 99,
                                   .step = 3};
    test_call(device, bound, &args, backward);
}

static void collect(result *r, const array *from, int count)
{
    for (int k = 0; k < count; k++) {
        array *const copy = &r->part[r->count++];
        *copy = from[k];
        copy->memory = CKPT_NEW(&arena, float, from[k].count);
        assert_non_null(copy->memory);
        memcpy(copy->memory, from[k].memory, (size_t)from[k].count * sizeof(float));
    }
}

static const ckpt_way *way_of(const ckpt_node *node, const char *name, bool backward)
{
    for (int i = 0; i < node->way_count; i++) {
        if (name != NULL && node->way[i].backward == backward && strcmp(node->way[i].name, name) == 0) {
            return &node->way[i];
        }
    }
    return NULL;
}

/* To what bfloat16 has. */
static void round_values(const array *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        put(a, i, ckpt_bfloat16_value(ckpt_bfloat16_of(at(a, i))));
    }
}

/* Forward and backward. Backward of either type finds as bfloat16 has them what `narrow`, the bfloat16 node, has so. */
static void run(const ckpt_case *c, ckpt_dtype dtype, int threads, const char *way, bool adds, result *r)
{
    const ckpt_network *network = NULL;
    const ckpt_node *node = NULL, *narrow = NULL;
    ckpt_device *device = NULL;
    ckpt_bound_kernel bound;
    ckpt_err err = {0};
    CHECK_OK(ckpt_case_network_as(c, CKPT_BFLOAT16, threads, &arena, &network, &narrow, &err), err);
    CHECK_OK(ckpt_case_network_as(c, dtype, threads, &arena, &network, &node, &err), err);
    trial t = {.which = c, .node = *node, .adds = adds && ckpt_node_accumulates(node) ? node->grad_in : 0};
    t.forward_way = way_of(node, way, false);
    t.backward_way = way_of(node, way, true);
    CHECK_OK(ckpt_device_open("cpu", threads, &device, &err), err);
    CHECK_OK(ckpt_device_bind(device, &t.node, -1, -1, NULL, &bound, &err), err);
    prepare(&t);
    call(&t, device, &bound, false);
    collect(r, t.out, node->out_count);
    collect(r, t.saved, t.forward_way != NULL || node->way_saved == 0 ? node->saved_count : 0);
    for (int k = 0; k < node->out_count; k++) {
        round_values(&t.out[k]);
    }
    for (int k = 0; k < node->saved_count; k++) {
        if (narrow->saved[k].dtype == CKPT_BFLOAT16) {
            round_values(&t.saved[k]);
        }
    }
    call(&t, device, &bound, true);
    collect(r, t.grad_in, node->in_count);
    collect(r, t.grad_param, node->param_count);
    ckpt_device_unbind(&bound);
    ckpt_device_close(device);
}

static void compare(const ckpt_case *c, const char *way, int threads, const result *wide, const result *narrow)
{
    assert_int_equal(wide->count, narrow->count);
    for (int p = 0; p < wide->count; p++) {
        const array *const a = &wide->part[p], *const b = &narrow->part[p];
        for (int64_t i = 0; i < a->count; i++) {
            const float own = at(a, i), found = at(b, i);
            const float wanted = b->dtype == CKPT_BFLOAT16 ? ckpt_bfloat16_value(ckpt_bfloat16_of(own)) : own;
            CHECK(memcmp(&wanted, &found, sizeof found) == 0,
                  "%s, way %s, %d threads: tensor %d, element %lld: %a, wanted %a", c->op, way != NULL ? way : "own",
                  threads, p, (long long)i, (double)found, (double)wanted);
        }
    }
}

static void try_case(const ckpt_case *c, const char *way)
{
    for (int threads = 1; threads <= 3; threads++) {
        for (int adds = 0; adds < 2; adds++) {
            result wide = {.count = 0}, narrow = {.count = 0};
            ckpt_arena_init(&arena);
            run(c, CKPT_FLOAT32, threads, way, adds == 1, &wide);
            run(c, CKPT_BFLOAT16, threads, way, adds == 1, &narrow);
            compare(c, way, threads, &wide, &narrow);
            ckpt_arena_fini(&arena);
        }
    }
}

static void every_case(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const ways[] = {NULL, "mask", "input", "output"};
        const ckpt_network *network = NULL;
        const ckpt_node *node = NULL;
        ckpt_err err = {0};
        ckpt_arena own;
        ckpt_arena_init(&own);
        CHECK_OK(ckpt_case_network_as(&cases[i], CKPT_BFLOAT16, 2, &own, &network, &node, &err), err);
        CHECK(node->native16 || node->by_element, "%s has neither", cases[i].op);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (ways[w] == NULL || way_of(node, ways[w], true) != NULL) {
                try_case(&cases[i], ways[w]);
            }
        }
        ckpt_arena_fini(&own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
