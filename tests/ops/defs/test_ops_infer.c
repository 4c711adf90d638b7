/* labels: unit */
/* Inference: shapes of the dense ops, and that every mistake in a model is answered by a message that says where, what
 * was found and what was wanted. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support_network.h"

/* One layer reading inputs a (and b): what it must give, or what the message must contain. */
typedef struct infer_case {
    const char *op, *attrs, *in;
    ckpt_shape a, b;
    const char *message; /* NULL: it must work and give `out` */
    ckpt_shape out;
    bool b_is_int;
} infer_case;

#define S0                                                                                                             \
    {                                                                                                                  \
        0,                                                                                                             \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }
#define S1(a)                                                                                                          \
    {                                                                                                                  \
        1,                                                                                                             \
        {                                                                                                              \
            a                                                                                                          \
        }                                                                                                              \
    }
#define S2(a, b)                                                                                                       \
    {                                                                                                                  \
        2,                                                                                                             \
        {                                                                                                              \
            a, b                                                                                                       \
        }                                                                                                              \
    }
#define S3(a, b, c)                                                                                                    \
    {                                                                                                                  \
        3,                                                                                                             \
        {                                                                                                              \
            a, b, c                                                                                                    \
        }                                                                                                              \
    }
#define S4(a, b, c, d)                                                                                                 \
    {                                                                                                                  \
        4,                                                                                                             \
        {                                                                                                              \
            a, b, c, d                                                                                                 \
        }                                                                                                              \
    }

static const infer_case infer_cases[] = {
    {"linear", "features=16", "a", S2(4, 8), S0, NULL, S2(4, 16), false},
    {"linear", "features=16", "a", S1(8), S0, NULL, S1(16), false},
    {"linear", "features=16", "a", S3(2, 4, 8), S0, NULL, S3(2, 4, 16), false},
    {"linear", "features=2*h", "a", S2(4, 8), S0, NULL, S2(4, 14), false},
    {"linear", "features=16", "a", S4(2, 3, 4, 5), S0, "[2, 3, 4, 5]", S0, false},
    {"linear", "features=16", "a", S0, S0, "flatten", S0, false},
    {"linear", "features=0", "a", S2(4, 8), S0, "\"features\" is 0", S0, false},
    {"linear", "", "a", S2(4, 8), S0, "\"features\" is missing", S0, false},
    {"linear", "features=wide", "a", S2(4, 8), S0, "wide", S0, false},
    {"linear", "features=1.5", "a", S2(4, 8), S0, "\"features\" is a number with a fraction", S0, false},
    {"linear", "features=[1,2]", "a", S2(4, 8), S0, "\"features\" is a list", S0, false},
    {"linear", "features=4 bias=1", "a", S2(4, 8), S0, "\"bias\" is an integer, wanted true, false or an expression",
     S0, false},
    {"linear", "features=4 wdith=3", "a", S2(4, 8), S0, "no attribute \"wdith\"; known: features, bias", S0, false},
    {"linear", "features=4", "a b", S2(4, 8), S2(4, 8), "2 inputs, wanted 1", S0, false},
    {"linear", "features=4", "b", S1(1), S2(4, 8), "input 0 is int32 [4, 8], wanted float32", S0, true},
    {"relu", "", "a", S4(2, 3, 4, 5), S0, NULL, S4(2, 3, 4, 5), false},
    {"relu", "slope=0.1", "a", S1(2), S0, "no attribute \"slope\"; known: none", S0, false},
    {"relu6", "", "a", S0, S0, NULL, S0, false},
    {"relu6", "", "b", S1(1), S1(5), "int32 [5]", S0, true},
    {"gelu", "approximate=tanh", "a", S2(3, 3), S0, NULL, S2(3, 3), false},
    {"gelu", "approximate=tan", "a", S2(3, 3), S0, "\"approximate\" is \"tan\", wanted one of none|tanh|sigmoid", S0,
     false},
    {"gelu", "approximate=none|tanh", "a", S2(3, 3), S0, "wanted one of none|tanh", S0, false},
    {"gelu", "approximate=true", "a", S2(3, 3), S0, "\"approximate\" is true or false, wanted a word", S0, false},
    {"tanh", "", "a", S3(1, 2, 3), S0, NULL, S3(1, 2, 3), false},
    {"sigmoid", "", "a", S3(1, 2, 3), S0, NULL, S3(1, 2, 3), false},
    {"sigmoid", "", "b", S1(1), S1(5), "wanted float32", S0, true},
    {"tanh", "", "b", S1(1), S1(5), "wanted float32", S0, true},
    {"silu", "", "a", S2(3, 3), S0, NULL, S2(3, 3), false},
    {"dropout", "p=0", "a", S2(3, 3), S0, NULL, S2(3, 3), false},
    {"dropout", "p=1", "a", S2(3, 3), S0, "\"p\" is 1, wanted at least 0 and less than 1", S0, false},
    {"dropout", "p=-0.5", "a", S2(3, 3), S0, "\"p\" is -0.5", S0, false},
    {"add", "", "a b a", S2(3, 4), S2(3, 4), NULL, S2(3, 4), false},
    {"add", "", "a b", S2(3, 4), S2(4, 3), "input 0 has shape [3, 4] and input 1 [4, 3], wanted dims that are", S0,
     false},
    {"add", "", "a b", S2(3, 4), S1(4), NULL, S2(3, 4), false},
    {"add", "", "a b", S2(3, 1), S3(2, 1, 4), NULL, S3(2, 3, 4), false},
    {"add", "", "a b a", S2(3, 4), S1(4), "input 1 [4], wanted equal shapes of more than two", S0, false},
    {"sub", "", "a b", S0, S4(2, 3, 4, 5), NULL, S4(2, 3, 4, 5), false},
    {"div", "", "a b", S3(3, 1, 1), S4(2, 1, 4, 5), NULL, S4(2, 3, 4, 5), false},
    {"div", "", "a b", S1(3), S4(2, 3, 1, 1), NULL, S4(2, 3, 1, 3), false},
    {"div", "", "a b", S2(3, 4), S1(3), "wanted dims that are equal or 1, counted from the last", S0, false},
    {"sub", "", "a b", S2(3, 4), S2(3, 4), "input 1 is int32", S0, true},
    {"scale", "factor=2 offset=0.5", "a", S2(3, 4), S0, NULL, S2(3, 4), false},
    {"hardswish", "", "a", S4(2, 3, 4, 5), S0, NULL, S4(2, 3, 4, 5), false},
    {"elu", "alpha=-0.5", "a", S1(3), S0, "\"alpha\" is -0.5", S0, false},
    {"leaky_relu", "negative_slope=-0.5", "a", S1(3), S0, "\"negative_slope\" is -0.5", S0, false},
    {"softplus", "beta=0", "a", S1(3), S0, "\"beta\" is 0", S0, false},
    {"exp", "", "b", S1(1), S1(5), "wanted float32", S0, true},
    {"pow", "", "a", S1(3), S0, "\"exponent\" is missing", S0, false},
    {"pow", "exponent=-2", "a", S1(3), S0, NULL, S1(3), false},
    {"drop_path", "p=1", "a", S1(3), S0, "\"p\" is 1, wanted at least 0 and less than 1", S0, false},
    {"drop_path", "", "a", S0, S0, "input 0 is a scalar", S0, false},
    {"parameter", "shape=[3,1]", "-", S0, S0, NULL, S2(3, 1), false},
    {"parameter", "shape=[]", "-", S0, S0, NULL, S0, false},
    {"parameter", "shape=[2,3,1,1]", "-", S0, S0, NULL, S4(2, 3, 1, 1), false},
    {"parameter", "shape=[2,3,4,1]", "-", S0, S0, "\"shape\" is [2, 3, 4, 1], wanted [N, 1, H, W]", S0, false},
    {"parameter", "shape=[1,1,1,1,1,1,1]", "-", S0, S0, "\"shape\" has 7 dims", S0, false},
    {"parameter", "shape=[0]", "-", S0, S0, "dimension 0 is 0", S0, false},
    {"parameter", "shape=2 std=-1", "-", S0, S0, "\"std\" is -1", S0, false},
    {"parameter", "shape=2", "a", S1(2), S0, "1 input, wanted 0", S0, false},
    {"add", "", "a", S2(3, 4), S0, "1 input, wanted 2 to 64", S0, false},
    {"add", "", "a b", S2(3, 4), S2(3, 4), "input 1 is int32", S0, true},
    {"mul", "", "a b", S2(3, 4), S2(3, 4), NULL, S2(3, 4), false},
    {"mul", "", "a b", S4(2, 3, 4, 5), S4(2, 3, 1, 1), NULL, S4(2, 3, 4, 5), false},
    {"mul", "", "a b", S4(2, 3, 4, 5), S4(2, 1, 4, 5), NULL, S4(2, 3, 4, 5), false},
    {"mul", "", "a b", S4(2, 3, 4, 5), S4(2, 2, 4, 5), "[2, 3, 4, 5] and input 1 [2, 2, 4, 5]", S0, false},
    {"layernorm", "", "a", S3(2, 3, 4), S0, NULL, S3(2, 3, 4), false},
    {"layernorm", "eps=-1.5", "a", S3(2, 3, 4), S0, "\"eps\" is -1.5", S0, false},
    {"layernorm", "", "a", S4(2, 3, 4, 5), S0, "[2, 3, 4, 5]", S0, false},
    {"rmsnorm", "", "a", S3(2, 3, 4), S0, NULL, S3(2, 3, 4), false},
    {"rmsnorm", "eps=1", "a", S3(2, 3, 4), S0, "\"eps\" is 1, wanted at least 0 and less than 1", S0, false},
    {"rmsnorm", "", "a", S4(2, 3, 4, 5), S0, "[2, 3, 4, 5], wanted features in the last dim", S0, false},
    {"groupnorm", "groups=2", "a", S4(2, 6, 4, 5), S0, NULL, S4(2, 6, 4, 5), false},
    {"groupnorm", "groups=2", "a", S3(2, 3, 4), S0, NULL, S3(2, 3, 4), false},
    {"groupnorm", "", "a", S3(2, 3, 4), S0, "\"groups\" is missing", S0, false},
    {"groupnorm", "groups=3", "a", S3(2, 3, 4), S0, "groups is 3, input 0 is [2, 3, 4]: wanted a divisor of 4", S0,
     false},
    {"groupnorm", "groups=0", "a", S3(2, 3, 4), S0, "\"groups\" is 0", S0, false},
    {"groupnorm", "groups=1", "a", S1(4), S0, "[4], wanted [N, C]", S0, false},
    {"groupnorm", "groups=4", "a", S2(2, 4), S0, "one value per group", S0, false},
    {"instancenorm", "affine=true", "a", S4(2, 6, 4, 5), S0, NULL, S4(2, 6, 4, 5), false},
    {"instancenorm", "", "a", S4(2, 6, 1, 1), S0, "[2, 6, 1, 1]: one value per group", S0, false},
    {"timestep_embedding", "features=7", "a", S1(5), S0, NULL, S2(5, 7), false},
    {"timestep_embedding", "features=1", "a", S1(5), S0, "\"features\" is 1", S0, false},
    {"timestep_embedding", "features=4 shift=2", "a", S1(5), S0, "\"shift\" is 2", S0, false},
    {"timestep_embedding", "features=4 max_period=0.5", "a", S1(5), S0, "\"max_period\" is 0.5", S0, false},
    {"timestep_embedding", "features=4", "a", S2(5, 1), S0, "[5, 1], wanted [B]", S0, false},
    {"rope", "heads=2", "a", S3(2, 3, 8), S0, NULL, S3(2, 3, 8), false},
    {"rope", "", "a", S3(2, 3, 8), S0, "\"heads\" is missing", S0, false},
    {"rope", "heads=3", "a", S3(2, 3, 8), S0, "heads is 3, input 0 is [2, 3, 8]: wanted a divisor of 8", S0, false},
    {"rope", "heads=2", "a", S2(3, 8), S0, "[3, 8], wanted [B, T, heads * D]", S0, false},
    {"rope", "heads=2", "a", S3(2, 3, 6), S0, "3 of 3 features of a head would turn", S0, false},
    {"rope", "heads=2 rotary=6", "a", S3(2, 3, 8), S0, "6 of 4 features", S0, false},
    {"rope", "heads=1", "a", S3(2, 3, 514), S0, "514 of 514 features", S0, false},
    {"rope", "heads=1 rotary=512", "a", S3(2, 3, 514), S0, NULL, S3(2, 3, 514), false},
    {"rope", "heads=2 base=0.5", "a", S3(2, 3, 8), S0, "\"base\" is 0.5", S0, false},
    {"rope", "heads=2 factor=0", "a", S3(2, 3, 8), S0, "\"factor\" is 0", S0, false},
    {"rope", "heads=2 low_freq_factor=4", "a", S3(2, 3, 8), S0, "low_freq_factor is 4 and high_freq_factor 4", S0,
     false},
    {"rope", "heads=2 original=0", "a", S3(2, 3, 8), S0, "\"original\" is 0", S0, false},
    {"swiglu", "", "a b", S3(2, 3, 4), S3(2, 3, 4), NULL, S3(2, 3, 4), false},
    {"swiglu", "", "a", S3(2, 3, 4), S0, NULL, S3(2, 3, 2), false},
    {"swiglu", "", "a b", S3(2, 3, 4), S3(2, 3, 2), "[2, 3, 4] and input 1 [2, 3, 2], wanted equal shapes", S0, false},
    {"swiglu", "", "a", S3(2, 3, 5), S0, "[2, 3, 5], wanted two halves in the last dim", S0, false},
    {"geglu", "", "a", S4(2, 3, 4, 6), S0, "[2, 3, 4, 6], wanted two halves", S0, false},
    {"geglu", "approximate=sigmoid", "a", S2(2, 4), S0, "wanted one of none|tanh", S0, false},
    {"reshape", "shape=[6,-1]", "a", S3(2, 3, 4), S0, NULL, S2(6, 4), false},
    {"reshape", "shape=24", "a", S3(2, 3, 4), S0, NULL, S1(24), false},
    {"reshape", "shape=4*h-4", "a", S3(2, 3, 4), S0, NULL, S1(24), false},
    {"reshape", "shape=[]", "a", S1(1), S0, NULL, S0, false},
    {"reshape", "shape=[5,-1]", "a", S3(2, 3, 4), S0, "[2, 3, 4] with 24 elements", S0, false},
    {"reshape", "shape=[5,5]", "a", S3(2, 3, 4), S0, "does not fit a \"shape\" with 25", S0, false},
    {"reshape", "shape=[-1,-1]", "a", S3(2, 3, 4), S0, "one -1 at most", S0, false},
    {"reshape", "shape=[0,24]", "a", S3(2, 3, 4), S0, "0 as dim 0", S0, false},
    {"reshape", "shape=[1,1,1,1,1,1,24]", "a", S3(2, 3, 4), S0, "7 dims", S0, false},
    {"reshape", "shape=[4294967296,4294967296,-1]", "a", S3(2, 3, 4), S0, "does not fit", S0, false},
    {"flatten", "", "a", S4(2, 3, 4, 5), S0, NULL, S2(2, 60), false},
    {"flatten", "start_dim=-2", "a", S3(2, 3, 4), S0, NULL, S2(2, 12), false},
    {"flatten", "start_dim=3", "a", S3(2, 3, 4), S0, "\"start_dim\" is 3, wanted -3 to 2 for 3 dims", S0, false},
    {"flatten", "", "a", S0, S0, "scalar", S0, false},
    {"huber", "", "a b", S2(3, 4), S2(3, 4), NULL, S0, false},
    {"huber", "delta=0", "a b", S2(3, 4), S2(3, 4), "\"delta\" is 0, wanted more than 0", S0, false},
    {"l1", "", "a b", S2(3, 4), S2(4, 3), "input 0 has shape [3, 4] and the target [4, 3]", S0, false},
    {"bce", "", "a b", S2(3, 4), S2(3, 4), "input 1 is int32 [3, 4], wanted float32", S0, true},
    {"kl", "", "a b", S0, S0, "input 0 is a scalar", S0, false},
    {"cross_entropy", "label_smoothing=1.5", "a b", S2(3, 4), S1(3), "\"label_smoothing\" is 1.5", S0, true},
    {"total", "", "a b", S0, S0, NULL, S0, false},
    {"total", "", "a b", S0, S1(2), "input 1 has shape [2], wanted a loss", S0, false},
    {"opaque", "shape=[3,5]", "a b", S1(4), S1(4), NULL, S2(3, 5), true},
    {"opaque", "bytes=1001", "a", S1(4), S0, NULL, S1(251), false},
    {"opaque", "", "a", S1(4), S0, "found neither", S0, false},
    {"opaque", "shape=[3] bytes=12", "a", S1(4), S0, "found both", S0, false},
    {"opaque", "bytes=0", "a", S1(4), S0, "\"bytes\" is 0", S0, false},
    {"opaque", "bytes=4 saved_bytes=-1", "a", S1(4), S0, "\"saved_bytes\" is -1", S0, false},
    {"opaque", "bytes=4 forward_ns=-2", "a", S1(4), S0, "\"forward_ns\" is -2", S0, false},
    {"opaque", "bytes=4 needs=all", "a", S1(4), S0, "wanted one of in|out|both|none", S0, false},
    {"opaque", "shape=[0]", "a", S1(4), S0, "[0]", S0, false},
    {"cross_entropy", "", "a b", S2(4, 10), S1(4), NULL, S0, true},
    {"cross_entropy", "", "a b", S3(4, 5, 10), S2(4, 5), NULL, S0, true},
    {"cross_entropy", "ignore_index=-1", "a b", S4(4, 10, 5, 6), S3(4, 5, 6), NULL, S0, true},
    {"cross_entropy", "", "a b", S2(4, 10), S1(5), "[4, 10] and the targets [5], wanted targets [4]", S0, true},
    {"cross_entropy", "", "a b", S1(4), S1(4), "wanted [N, K], [B, T, K] or [N, K, H, W]", S0, true},
    {"cross_entropy", "", "a b", S2(4, 10), S1(4), "input 1 is float32 [4], wanted int32", S0, false},
    {"cross_entropy", "ignore_index=3000000000", "a b", S2(4, 10), S1(4), "\"ignore_index\" is 3000000000", S0, true},
    {"mse", "", "a b", S2(4, 10), S2(4, 10), NULL, S0, false},
    {"mse", "", "a b", S2(4, 10), S2(10, 4), "[4, 10] and the target [10, 4]", S0, false},
    {"mse", "", "a b", S2(4, 10), S2(4, 10), "input 1 is int32", S0, true},
};

static const ckpt_var test_var = {.name = "h", .value = 7};

static void start_case(test_model *m, const infer_case *c)
{
    test_model_init(m);
    m->model.var = &test_var;
    m->model.var_count = 1;
    test_input(m, "a", CKPT_FLOAT32, c->a.rank, c->a.dim);
    test_input(m, "b", c->b_is_int ? CKPT_INT32 : CKPT_FLOAT32, c->b.rank, c->b.dim);
    test_layer(m, "the.layer", c->op, c->in, c->attrs);
}

static void test_shapes_and_messages(void **state)
{
    for (size_t i = 0; i < sizeof infer_cases / sizeof infer_cases[0]; i++) {
        const infer_case *const c = &infer_cases[i];
        test_model m;
        start_case(&m, c);
        const ckpt_network *network = NULL;
        ckpt_err err = {0};
        const ckpt_code code = ckpt_network_infer(&m.model, 1, &m.arena, &network, &err);
        if (c->message == NULL) {
            CHECK(code == CKPT_OK, "case %zu, %s %s: %s", i, c->op, c->attrs, err.msg);
            CHECK(ckpt_shape_equal(&network->node[0].out[0].shape, &c->out), "case %zu, %s %s: wrong shape", i, c->op,
                  c->attrs);
            CHECK(network->loss_node == (network->node[0].op->loss ? 0 : -1), "case %zu: loss node", i);
        } else {
            char where[64];
            snprintf(where, sizeof where, "test.json:10:5: layer the.layer (%s): ", c->op);
            CHECK(code == CKPT_BAD_INPUT && network == NULL, "case %zu, %s %s: code %d", i, c->op, c->attrs, (int)code);
            CHECK(strncmp(err.msg, where, strlen(where)) == 0, "case %zu: place in \"%s\"", i, err.msg);
            CHECK(strstr(err.msg + strlen(where), c->message) != NULL, "case %zu: wanted \"%s\" in \"%s\"", i,
                  c->message, err.msg);
        }
        test_model_fini(&m);
    }
}

static void expect_message(test_model *m, const char *message)
{
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    const ckpt_code code = ckpt_network_infer(&m->model, 1, &m->arena, &network, &err);
    CHECK(code == CKPT_BAD_INPUT, "code %d, wanted \"%s\"", (int)code, message);
    CHECK(strstr(err.msg, message) != NULL, "wanted \"%s\" in \"%s\"", message, err.msg);
    test_model_fini(m);
}

static void start_rows(test_model *m)
{
    test_model_init(m);
    test_input(m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
}

static void test_unknown_names(void **state)
{
    test_model m;
    start_rows(&m);
    test_layer(&m, "fc", "linaer", "", "");
    expect_message(&m, "layer fc (linaer): no such op; near: linear");
    start_rows(&m);
    test_layer(&m, "fc", "norm", "", "");
    expect_message(&m, "near: batchnorm, groupnorm, instancenorm, layernorm, rmsnorm");
    start_rows(&m);
    test_layer(&m, "fc", "zzzzzzzz", "", "");
    expect_message(&m, "no such op; known: adaptive_avgpool2d, ");
    start_rows(&m);
    test_layer(&m, "fc", "relu", "", "");
    test_optimizer(&m, "adma", "");
    expect_message(&m, "test.json: optimizer adma: no such optimizer; near: adam");
}

static void test_references(void **state)
{
    test_model m;
    start_rows(&m);
    test_layer(&m, "fc", "relu", "", "");
    test_layer(&m, "two", "relu", "fc:1", "");
    expect_message(&m, "layer two (relu): reads fc:1, but fc (relu) has 1 output");
    start_rows(&m);
    test_layer(&m, "pieces", "split", "", "parts=2");
    test_layer(&m, "two", "relu", "pieces:2", "");
    expect_message(&m, "pieces (split) has 2 outputs, counted from 0");
    test_model_init(&m);
    expect_message(&m, "0 layers");
}

static void test_optimizers(void **state)
{
    test_model m;
    start_rows(&m);
    test_layer(&m, "fc", "relu", "", "");
    test_optimizer(&m, "sgd", "lr=0.5 momentum=0.9 nesterov=true");
    const ckpt_network *const sgd = test_infer(&m);
    assert_true(sgd->hyper[0] == 0.5 && sgd->hyper[1] == 0.9 && sgd->hyper[2] == 1 && sgd->hyper[3] == 0);
    assert_int_equal(sgd->optimizer->slots(sgd->hyper), 1);
    test_optimizer(&m, "sgd", "");
    const ckpt_network *const plain = test_infer(&m);
    assert_true(plain->hyper[0] == 0.01 && plain->optimizer->slots(plain->hyper) == 0);
    test_optimizer(&m, "adamw", "lr=1");
    const ckpt_network *const adamw = test_infer(&m);
    assert_true(adamw->hyper[0] == 1 && adamw->hyper[1] == 0.9 && adamw->hyper[2] == 0.999 && adamw->hyper[3] == 1e-8 &&
                adamw->hyper[4] == 0.01);
    assert_int_equal(adamw->optimizer->slots(adamw->hyper), 2);
    test_optimizer(&m, "adam", "");
    assert_true(test_infer(&m)->hyper[4] == 0);
    test_model_fini(&m);

    static const char *const wrong[][3] = {
        {"sgd", "nesterov=true", "optimizer sgd: nesterov wants a momentum above 0"},
        {"sgd", "lr=-0.1", "lr -0.1"},
        {"sgd", "beta1=0.5", "no attribute \"beta1\"; known: lr, momentum, nesterov, weight_decay"},
        {"adam", "beta2=1", "beta1 0.9, beta2 1"},
        {"adam", "eps=true", "\"eps\" is true or false, wanted a number"},
        {"adamw", "weight_decay=-1", "weight_decay -1"},
        {"lion", "beta1=1", "beta1 1, beta2 0.99"},
        {"muon", "eps=0", "eps 0: wanted more than 0"},
        {"adafactor", "beta2_decay=0.5", "beta2_decay 0.5, d 1: wanted at most 0, and more than 0"},
        {"adafactor", "eps1=1e-30", "eps1 1e-30: wanted at least 1.08"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        start_rows(&m);
        test_layer(&m, "fc", "relu", "", "");
        test_optimizer(&m, wrong[i][0], wrong[i][1]);
        expect_message(&m, wrong[i][2]);
    }
}

static void test_ties(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 1, (int64_t[]){4});
    test_layer(&m, "embed", "embedding", "", "rows=9 features=3");
    test_layer(&m, "head", "linear", "", "features=9")->tie = 0;
    test_layer(&m, "back", "embedding", "ids", "rows=9 features=3")->tie = 1;
    const ckpt_network *const network = test_infer(&m);
    assert_int_equal(network->node[0].param[0].tied, -1);
    assert_int_equal(network->node[1].param[0].tied, 0);
    assert_int_equal(network->node[1].param[1].tied, -1); /* the embedding has no bias */
    assert_int_equal(network->node[2].param[0].tied, 0);  /* through head to its owner */
    test_model_fini(&m);

    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 1, (int64_t[]){4});
    test_layer(&m, "embed", "embedding", "", "rows=9 features=3");
    test_layer(&m, "head", "linear", "", "features=8")->tie = 0;
    expect_message(&m,
                   "layer head (linear): is tied to embed, but its weight is [8, 3] and that layer's weight is [9, 3]");

    start_rows(&m);
    test_layer(&m, "one", "linear", "", "features=8")->tie = 1;
    test_layer(&m, "two", "linear", "", "features=8")->tie = 0;
    expect_message(&m, "layer one (linear): its tie to two leads back");
    start_rows(&m);
    test_layer(&m, "one", "linear", "", "features=8")->tie = 0;
    expect_message(&m, "leads back");
    start_rows(&m);
    test_layer(&m, "one", "relu", "", "");
    test_layer(&m, "two", "linear", "", "features=8")->tie = 0;
    expect_message(&m, "is tied to one, but that layer has no parameters");
    start_rows(&m);
    test_layer(&m, "one", "linear", "", "features=8");
    test_layer(&m, "two", "relu", "", "")->tie = 0;
    expect_message(&m, "is tied to one, but has no parameters");
}

/* Which values want a gradient, and whose memory an alias is. */
static void test_values(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){2, 3, 4, 4});
    test_layer(&m, "drop", "dropout", "image", "");
    test_layer(&m, "conv", "conv2d", "", "out_channels=5 kernel_size=3");
    test_layer(&m, "pool", "global_avgpool", "", "");
    test_layer(&m, "flat", "flatten", "", "");
    test_layer(&m, "again", "reshape", "", "shape=[5,2]");
    test_layer(&m, "big", "flatten", "conv", "");
    test_layer(&m, "pixels", "tokens", "conv", "");
    test_layer(&m, "back", "image", "pixels", "height=2 width=2");
    const ckpt_network *const n = test_infer(&m);
    assert_int_equal(n->value_count, 9);
    assert_false(n->value[0].needs_grad); /* image */
    assert_false(n->value[1].needs_grad); /* drop: no parameter upstream */
    assert_true(n->value[2].needs_grad);
    assert_int_equal(n->node[0].grad_in, 0);
    assert_int_equal(n->node[1].grad_in, 0);
    assert_int_equal(n->node[2].grad_in, 1);
    assert_true(n->node[3].alias && n->node[4].alias);
    assert_int_equal(n->value[5].storage, 3); /* again -> flat -> pool */
    assert_int_equal(n->value[4].storage, 3);
    assert_false(n->node[5].alias); /* 5 channels of 2 x 2 lie interleaved */
    assert_int_equal(n->value[6].storage, 6);
    assert_string_equal(n->value[6].name, "big");
    assert_true(n->node[6].alias && n->node[7].alias);
    assert_int_equal(n->value[7].storage, 2); /* the pixels of conv, one after another */
    assert_int_equal(n->value[8].storage, 2);
    int64_t image[CKPT_RANK_MAX], tokens[CKPT_RANK_MAX];
    ckpt_shape_strides(&n->value[2].tensor.shape, image);
    ckpt_shape_strides(&n->value[7].tensor.shape, tokens);
    assert_int_equal(image[1], tokens[2]); /* a channel's step, a pixel's and a row's of two pixels */
    assert_int_equal(image[3], tokens[1]);
    assert_int_equal(image[2], 2 * tokens[1]);
    assert_true(ckpt_shape_equal(&n->value[8].tensor.shape, &n->value[2].tensor.shape));
    /* 2 * outputs * filter taps; backward only for the filters: nobody wants the image's gradient */
    assert_int_equal(n->node[1].forward_flop, 2LL * 2 * 5 * 2 * 2 * 27);
    assert_int_equal(n->node[1].backward_flop, n->node[1].forward_flop);
    test_model_fini(&m);
}

static void test_costs(void **state)
{
    test_model m;
    start_rows(&m);
    test_layer(&m, "one", "linear", "", "features=16");
    test_layer(&m, "two", "linear", "", "features=2 bias=false");
    const ckpt_network *const n = test_infer(&m);
    assert_int_equal(n->node[0].forward_flop, 2 * 4 * 8 * 16 + 4 * 16);
    assert_int_equal(n->node[0].backward_flop, 2 * 4 * 8 * 16 + 4 * 16);
    assert_int_equal(n->node[1].backward_flop, 2 * (2 * 4 * 16 * 2));
    assert_int_equal(n->node[1].forward_moved_bytes, 4 * (4 * 16 + 4 * 2 + 2 * 16));
    /* x and its gradient, the incoming gradient, weight and its gradient */
    assert_int_equal(n->node[1].backward_moved_bytes, 4 * (2 * 4 * 16 + 4 * 2 + 2 * 2 * 16));
    assert_true(fabs(n->node[1].param[0].scale - 0.25) < 1e-12 && n->node[1].param[0].decay);
    assert_false(n->node[0].param[1].decay);
    test_model_fini(&m);
}

/* Every op of the table says what it is, and its attributes are well formed. */
static void test_table(void **state)
{
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        CHECK(ckpt_op_find((*op)->name) == *op, "%s is there twice", (*op)->name);
        CHECK((*op)->formula != NULL && (*op)->source != NULL && (*op)->infer != NULL, "%s", (*op)->name);
        CHECK((*op)->in_min <= (*op)->in_max && (*op)->in_max <= CKPT_IN_MAX, "%s", (*op)->name);
        for (const ckpt_attr_spec *spec = (*op)->attrs; spec != NULL && spec->name != NULL; spec++) {
            CHECK(spec->help != NULL, "%s: %s has no help", (*op)->name, spec->name);
            CHECK(spec->words == NULL ||
                      (spec->string != NULL && strncmp(spec->words, spec->string, strlen(spec->string)) == 0),
                  "%s: default of %s is not its first word", (*op)->name, spec->name);
        }
    }
    assert_null(ckpt_op_find("no such op"));
    assert_non_null(ckpt_optimizer_find("adamw"));
    assert_null(ckpt_optimizer_find("adamx"));
}

typedef struct starved {
    const test_model *model;
    size_t pad; /* bytes taken before: moves the end of the arena's first block */
} starved;

static ckpt_code infer_all(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    const ckpt_network *network = NULL;
    return ckpt_arena_take(arena, s->pad, 1) == NULL ? CKPT_FAIL(err, CKPT_NO_MEMORY, "pad")
                                                     : ckpt_network_infer(&s->model->model, 2, arena, &network, err);
}

/* Every allocation is the one that fails, for some pad. */
static void test_starved(void **state)
{
    test_model m;
    start_rows(&m);
    test_layer(&m, "fc", "linear", "", "features=16");
    test_layer(&m, "pieces", "split", "", "parts=2");
    test_layer(&m, "shaped", "reshape", "pieces:1", "shape=32");
    test_layer(&m, "loss", "mse", "shaped shaped", "");
    for (size_t pad = 0; pad < 12000; pad += 16) {
        starved s = {.model = &m, .pad = pad};
        assert_true(ckpt_test_starve_arena(infer_all, &s) > 0);
    }
    test_model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_and_messages),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
