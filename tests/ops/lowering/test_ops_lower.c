/* labels: unit */
/* Lowering of small models against what a person wrote down: what each op reads, writes and adds to. */
#include "tests/support/support_test.h"

#include <string.h>

#include "tests/support/support_network.h"

/* One line per op: "name: reads > writes + adds", and the bits of gradients that are added, when there are any. */
static const char *show(test_model *m, const ckpt_lowered *lowered)
{
    const ckpt_graph *const g = lowered->graph;
    const char *text = "";
    for (int i = 0; i < g->op_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        const ckpt_op_role *const role = &lowered->op_role[i];
        const char *const adds = test_names(m, g, op->adds);
        text = ckpt_arena_format(&m->arena, "%s%s: %s > %s%s%s", text, op->name, test_names(m, g, op->reads),
                                 test_names(m, g, op->writes), adds[0] != '\0' ? " + " : "", adds);
        if (role->grad_in_adds != 0 || role->grad_param_adds != 0) {
            text = ckpt_arena_format(&m->arena, "%s [%llx %llx]", text, (unsigned long long)role->grad_in_adds,
                                     (unsigned long long)role->grad_param_adds);
        }
        text = ckpt_arena_format(&m->arena, "%s\n", text);
        assert_non_null(text);
    }
    return text;
}

static void expect(test_model *m, const char *wanted)
{
    const char *const found = show(m, test_lower(m));
    CHECK(strcmp(found, wanted) == 0, "found\n%s\nwanted\n%s", found, wanted);
    test_model_fini(m);
}

static void test_chain(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
    test_input(&m, "classes", CKPT_INT32, 1, (int64_t[]){4});
    test_layer(&m, "drop", "dropout", "", "");
    test_layer(&m, "fc1", "linear", "", "features=16");
    test_layer(&m, "act", "relu", "", "");
    test_layer(&m, "norm", "layernorm", "", "");
    test_layer(&m, "fc2", "linear", "", "features=3");
    test_layer(&m, "loss", "cross_entropy", "fc2 classes", "");
    expect(&m, "drop/forward:  > drop\n"
               "fc1/forward: drop > fc1\n"
               "act/forward: fc1 > act\n"
               "norm/forward: act > norm norm/mean norm/rstd\n"
               "fc2/forward: norm > fc2\n"
               "loss/forward: fc2 > loss loss/lse loss/count\n"
               "loss/backward: fc2 loss/lse loss/count > fc2/grad\n"
               "fc2/backward: fc2/grad norm > norm/grad\n"
               "norm/backward: norm/grad act norm/mean norm/rstd > act/grad\n"
               "act/backward: act/grad act > fc1/grad\n"
               "fc1/backward: fc1/grad drop > \n"
               "fc1/update:  > \n"
               "norm/update:  > \n"
               "fc2/update:  > \n");
}

static void test_details_of_a_chain(void **state)
{
    test_model m;
    test_model_rows(&m, 3, 5);
    ckpt_layer *const first = test_layer(&m, "fc", "linear", "", "features=5");
    ckpt_layer *const second = test_layer(&m, "act", "relu", "", "");
    test_layer(&m, "loss", "mse", "act t", "");
    first->checkpoint = CKPT_YES;
    first->segment = "block.0";
    second->checkpoint = CKPT_NO;
    second->segment = "act";
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_graph *const g = lowered->graph;
    assert_string_equal(g->name, "test");
    assert_string_equal(test_names(&m, g, g->outputs), "loss");
    for (int b = 0; b < g->buffer_count; b++) {
        assert_int_equal(g->buffer[b].bytes, 64); /* 60 and 4 bytes rounded up */
        assert_int_equal(g->buffer[b].kind, strstr(g->buffer[b].name, "/grad")   ? CKPT_GRADIENT
                                            : strstr(g->buffer[b].name, "/mask") ? CKPT_SAVED
                                                                                 : CKPT_ACTIVATION);
    }
    const ckpt_graph_op *const act = &g->op[ckpt_graph_find_op(g, "act/forward")];
    assert_int_equal(act->inplace_count, 1);
    assert_int_equal(act->inplace[0].out, ckpt_graph_find_buffer(g, "act"));
    assert_int_equal(act->inplace[0].in, ckpt_graph_find_buffer(g, "fc"));
    assert_int_equal(act->checkpoint, CKPT_NO);
    assert_true(act->recompute);
    const ckpt_graph_op *const fc = &g->op[ckpt_graph_find_op(g, "fc/forward")];
    assert_int_equal(fc->inplace_count, 0);
    assert_int_equal(fc->checkpoint, CKPT_YES);
    assert_string_equal(fc->segment, "block.0");
    assert_string_equal(fc->layer, "fc");
    const ckpt_graph_op *const back = &g->op[ckpt_graph_find_op(g, "fc/backward")];
    assert_false(back->recompute);
    assert_int_equal(back->checkpoint, CKPT_UNSET);
    assert_null(back->segment);
    assert_int_equal(back->phase, CKPT_BACKWARD);
    assert_false(g->op[ckpt_graph_find_op(g, "fc/update")].recompute);
    assert_false(g->has_link); /* the default device is the CPU */
    /* Maps from values: x, t, fc, act, loss. */
    assert_int_equal(lowered->value_buffer[0], -1);
    assert_int_equal(lowered->value_buffer[2], ckpt_graph_find_buffer(g, "fc"));
    assert_int_equal(lowered->grad_buffer[2], ckpt_graph_find_buffer(g, "fc/grad"));
    assert_int_equal(lowered->grad_buffer[4], -1);
    assert_int_equal(lowered->buffer_role[lowered->value_buffer[3]].value, 3);
    assert_int_equal(lowered->buffer_role[lowered->grad_buffer[3]].holds, CKPT_HOLDS_GRADIENT);
    test_model_fini(&m);
}

static const ckpt_graph_op *variant_of(const ckpt_graph *g, const char *name, int k)
{
    const ckpt_graph_op *const op = &g->op[ckpt_graph_find_op(g, name)];
    assert_true(k < op->variant_count);
    return &g->op[op->first_variant + k];
}

static void test_ways_are_variants(void **state)
{
    test_model m;
    test_model_rows(&m, 3, 5);
    test_layer(&m, "first", "relu", "", ""); /* no gradient comes to it */
    test_layer(&m, "fc", "linear", "", "features=5");
    test_layer(&m, "act", "relu", "", "");
    test_layer(&m, "loss", "mse", "act t", "");
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_graph *const g = lowered->graph;
    assert_int_equal(g->variant_count, 3);
    assert_int_equal(ckpt_graph_find_buffer(g, "first/mask"), -1);
    const ckpt_graph_op *const forward = variant_of(g, "act/forward", 0);
    assert_string_equal(forward->variant, "mask");
    assert_string_equal(test_names(&m, g, forward->reads), "fc");
    assert_string_equal(test_names(&m, g, forward->writes), "act act/mask");
    assert_int_equal(forward->inplace_count, 1);
    assert_false(forward->inexact);
    const ckpt_graph_op *const input = variant_of(g, "act/backward", 0);
    assert_string_equal(input->variant, "input");
    assert_string_equal(test_names(&m, g, input->reads), "act/grad fc");
    assert_string_equal(test_names(&m, g, input->writes), "fc/grad");
    const ckpt_graph_op *const mask = variant_of(g, "act/backward", 1);
    assert_string_equal(mask->variant, "mask");
    assert_string_equal(test_names(&m, g, mask->reads), "act/grad act/mask");
    const ckpt_graph_op *const own = &g->op[ckpt_graph_find_op(g, "act/backward")];
    assert_string_equal(own->variant, "output");
    assert_true(mask->time_ns <= own->time_ns && input->time_ns == own->time_ns);
    for (int v = 0; v < g->variant_count; v++) { /* each is told apart for the executor */
        const ckpt_graph_op *const variant = &g->op[g->op_count + v];
        assert_string_equal(lowered->way[v]->name, variant->variant);
        assert_int_equal(lowered->way[v]->backward, variant->phase == CKPT_BACKWARD);
    }
    test_model_fini(&m);
}

static void test_residual(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "act", "gelu", "", "");
    test_layer(&m, "sum", "add", "act fc", "");
    test_layer(&m, "loss", "mse", "sum t", "");
    expect(&m, "fc/forward:  > fc\n"
               "act/forward: fc > act\n"
               "sum/forward: act fc > sum\n"
               "loss/forward: sum > loss\n"
               "loss/backward: sum > sum/grad\n"
               "sum/backward: sum/grad > act/grad fc/grad\n"
               "act/backward: act/grad fc >  + fc/grad [1 0]\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
}

static void test_value_read_twice(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "square", "mul", "fc fc", "");
    test_layer(&m, "sum", "add", "square fc fc", "");
    test_layer(&m, "loss", "mse", "sum t", "");
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_graph *const g = lowered->graph;
    const ckpt_graph_op *const square = &g->op[ckpt_graph_find_op(g, "square/backward")];
    /* mul cannot add: both gradients of fc are staged, 128 bytes each. add can. */
    assert_int_equal(square->workspace_bytes, 2 * 128);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "sum/backward")].workspace_bytes, 0);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "square/forward")].inplace_count, 1);
    /* Of square and fc, only square is needed no more. */
    const ckpt_graph_op *const sum = &g->op[ckpt_graph_find_op(g, "sum/forward")];
    assert_int_equal(sum->inplace_count, 1);
    assert_int_equal(sum->inplace[0].in, ckpt_graph_find_buffer(g, "square"));
    expect(&m, "fc/forward:  > fc\n"
               "square/forward: fc > square\n"
               "sum/forward: square fc > sum\n"
               "loss/forward: sum > loss\n"
               "loss/backward: sum > sum/grad\n"
               "sum/backward: sum/grad > square/grad fc/grad [4 0]\n"
               "square/backward: square/grad fc >  + fc/grad [3 0]\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "square", "mul", "fc fc", "");
    test_layer(&m, "loss", "mse", "square t", "");
    const ckpt_graph *const alone = test_lower(&m)->graph;
    assert_int_equal(alone->op[ckpt_graph_find_op(alone, "square/backward")].workspace_bytes, 128);
    assert_int_equal(alone->op[ckpt_graph_find_op(alone, "square/backward")].adds.count, 0);
    test_model_fini(&m);
}

/* [1, 4, 1, 1] and [1, 4, 2, 2] are 64 bytes each after rounding; in the gate's bytes the product of the first pixel
 * overwrote the gate of the others. */
static void test_gate_is_not_overwritten_by_small_image(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 4, (int64_t[]){1, 4, 2, 2});
    test_layer(&m, "act", "relu", "x", "");
    test_layer(&m, "gate", "global_avgpool", "act", "");
    test_layer(&m, "gated", "mul", "act gate", "");
    test_layer(&m, "sum", "add", "gated act", ""); /* the image is still needed, the gate is not */
    const ckpt_graph *const g = test_lower(&m)->graph;
    const ckpt_graph_op *const gated = &g->op[ckpt_graph_find_op(g, "gated/forward")];
    assert_int_equal(gated->inplace_count, 1);
    assert_int_equal(gated->inplace[0].in, ckpt_graph_find_buffer(g, "act"));
    test_model_fini(&m);
}

static void test_unused_output(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
    test_input(&m, "t", CKPT_FLOAT32, 2, (int64_t[]){4, 3});
    test_layer(&m, "fc", "linear", "", "features=9");
    test_layer(&m, "pieces", "split", "", "parts=3");
    test_layer(&m, "dead", "linear", "pieces", "features=3");
    test_layer(&m, "deader", "layernorm", "", "");
    test_layer(&m, "loss", "mse", "pieces:1 t", "");
    expect(&m, "fc/forward:  > fc\n"
               "pieces/forward: fc > pieces pieces:1 pieces:2\n"
               "dead/forward: pieces > dead\n"
               "deader/forward: dead > deader deader/mean deader/rstd\n"
               "loss/forward: pieces:1 > loss\n"
               "loss/backward: pieces:1 > pieces:1/grad\n"
               "pieces/backward: pieces:1/grad > fc/grad\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
}

static void test_alias(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "narrow", "reshape", "", "shape=[8,4]");
    test_layer(&m, "a", "gelu", "", "");
    test_layer(&m, "b", "relu", "fc", "");
    test_layer(&m, "wide", "reshape", "a", "shape=[4,8]");
    test_layer(&m, "sum", "add", "b wide", "");
    test_layer(&m, "loss", "mse", "sum t", "");
    const ckpt_lowered *const lowered = test_lower(&m);
    assert_int_equal(lowered->value_buffer[3], lowered->value_buffer[2]); /* narrow is fc */
    assert_int_equal(lowered->grad_buffer[3], lowered->grad_buffer[2]);
    assert_int_equal(lowered->grad_buffer[6], lowered->grad_buffer[4]); /* wide is a */
    assert_true(lowered->grad_buffer[6] >= 0);
    expect(&m, "fc/forward:  > fc\n"
               "a/forward: fc > a\n"
               "b/forward: fc > b\n"
               "sum/forward: b a > sum\n"
               "loss/forward: sum > loss\n"
               "loss/backward: sum > sum/grad\n"
               "sum/backward: sum/grad > b/grad a/grad\n"
               "b/backward: b/grad b > fc/grad\n"
               "a/backward: a/grad fc >  + fc/grad [1 0]\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
}

/* An alias of a model input is static; one that copies is a layer like any other. */
static void test_alias_of_input(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){2, 1, 4, 4});
    test_input(&m, "t", CKPT_FLOAT32, 2, (int64_t[]){2, 4});
    test_layer(&m, "flat", "flatten", "", "");
    test_layer(&m, "fc", "linear", "", "features=4");
    test_layer(&m, "loss", "mse", "fc t", "");
    expect(&m, "fc/forward:  > fc\n"
               "loss/forward: fc > loss\n"
               "loss/backward: fc > fc/grad\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){2, 3, 4, 4});
    test_layer(&m, "flat", "flatten", "", "");
    test_layer(&m, "fc", "linear", "", "features=4");
    expect(&m, "flat/forward:  > flat\n"
               "fc/forward: flat > fc\n"
               "fc/backward: flat > \n"
               "fc/update:  > \n");
}

static void test_ties(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 1, (int64_t[]){4});
    test_layer(&m, "embed", "embedding", "", "rows=9 features=3");
    test_layer(&m, "head", "linear", "", "features=9")->tie = 0;
    test_layer(&m, "loss", "cross_entropy", "head ids", "");
    test_optimizer(&m, "adam", "");
    const ckpt_graph *const g = test_lower(&m)->graph;
    /* embed's 108 bytes and head's bias of 36, each rounded up to 64 */
    assert_int_equal(g->statics[0].bytes, 128 + 64);
    assert_int_equal(g->statics[1].bytes, 128 + 64);
    assert_int_equal(g->statics[2].bytes, 2 * (128 + 64));
    assert_int_equal(g->statics[3].bytes, 0);
    assert_int_equal(g->statics[4].bytes, 64);
    assert_int_equal(g->static_bytes, 4 * 192 + 64);
    expect(&m, "embed/forward:  > embed\n"
               "head/forward: embed > head\n"
               "loss/forward: head > loss loss/lse loss/count\n"
               "loss/backward: head loss/lse loss/count > head/grad\n"
               "head/backward: head/grad embed > embed/grad\n"
               "embed/backward: embed/grad >  [0 1]\n"
               "embed/update:  > \n"
               "head/update:  > \n");
}

/* A layer norm cannot add into a tied gradient: both parameters are staged. */
static void test_tied_staging(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "one", "layernorm", "", "");
    test_layer(&m, "two", "layernorm", "", "")->tie = 0;
    test_layer(&m, "loss", "mse", "two t", "");
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_graph *const g = lowered->graph;
    const ckpt_node *const one = &lowered->network->node[0];
    const ckpt_node *const two = &lowered->network->node[1];
    const ckpt_bytes own = (one->backward_workspace_bytes + 63) / 64 * 64;
    assert_int_equal(g->op[ckpt_graph_find_op(g, "one/backward")].workspace_bytes, own + 2 * 64);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "two/backward")].workspace_bytes, own);
    assert_int_equal(ckpt_staging_bytes(one, 0, 3), 2 * 64);
    assert_int_equal(ckpt_staging_bytes(two, 1, 1), 128 + 64);
    assert_int_equal(ckpt_staging_bytes(two, 0, 0), 0);
    test_model_fini(&m);
}

static void test_no_loss(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "l0", "opaque", "",
               "bytes=100 saved_bytes=10 param_bytes=40 forward_ns=700 backward_ns=800 needs=none");
    test_layer(&m, "l1", "opaque", "", "shape=[4,8] forward_ns=900 backward_ns=901 needs=both workspace_bytes=65");
    test_layer(&m, "shown", "reshape", "", "shape=[32]");
    const ckpt_lowered *const lowered = test_lower(&m);
    const ckpt_graph *const g = lowered->graph;
    assert_int_equal(lowered->network->loss_node, -1);
    assert_int_equal(g->outputs.count, 0);
    assert_int_equal(g->op[0].time_ns, 700);
    assert_int_equal(g->op[1].workspace_bytes, 128);
    assert_int_equal(g->op[2].time_ns, 901);
    assert_int_equal(g->op[2].workspace_bytes, 128);
    assert_int_equal(g->op[3].time_ns, 800);
    assert_int_equal(g->buffer[ckpt_graph_find_buffer(g, "l0")].bytes, 128);
    assert_int_equal(g->buffer[ckpt_graph_find_buffer(g, "l0/saved")].kind, CKPT_SAVED);
    expect(&m, "l0/forward:  > l0 l0/saved\n"
               "l1/forward: l0 > l1\n"
               "l1/backward: l0 l1 > l0/grad\n"
               "l0/backward: l0/grad l0/saved > \n"
               "l0/update:  > \n");
}

/* Two losses added up can be planned; a loss that something reads has a gradient like any value. */
static void test_losses_inside(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "shown", "mse", "fc x", "");
    test_layer(&m, "one", "mse", "fc t", "");
    test_layer(&m, "two", "mse", "fc fc", "");
    test_layer(&m, "sum", "add", "one two", "");
    assert_int_equal(test_infer(&m)->loss_node, -1);
    expect(&m, "fc/forward:  > fc\n"
               "shown/forward: fc > shown\n"
               "one/forward: fc > one\n"
               "two/forward: fc > two\n"
               "sum/forward: one two > sum\n"
               "sum/backward:  > one/grad two/grad\n"
               "two/backward: two/grad fc > fc/grad [2 0]\n"
               "one/backward: one/grad fc >  + fc/grad [1 0]\n"
               "fc/backward: fc/grad > \n"
               "fc/update:  > \n");
}

static void test_statics(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 4, (int64_t[]){2, 3, 4, 4});
    test_input(&m, "t", CKPT_INT32, 1, (int64_t[]){2});
    test_layer(&m, "conv", "conv2d", "", "out_channels=5 kernel_size=3 bias=false"); /* 135 values: 540 bytes */
    test_layer(&m, "norm", "batchnorm", "", "");                                     /* 5 values each */
    test_layer(&m, "pool", "global_avgpool", "", "");
    test_layer(&m, "flat", "flatten", "", "");
    test_layer(&m, "fc", "linear", "", "features=7"); /* 35 values: 140 bytes; 7: 28 */
    test_layer(&m, "loss", "cross_entropy", "fc t", "");
    test_optimizer(&m, "sgd", "momentum=0.5");
    ckpt_static_layout s;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_statics(test_infer(&m), &m.arena, &s, &err), err);
    assert_int_equal(s.weight_bytes, 576 + 64 + 64 + 192 + 64);
    assert_int_equal(s.param[0 * CKPT_PARAM_MAX], 0);
    assert_int_equal(s.param[1 * CKPT_PARAM_MAX], 576);
    assert_int_equal(s.param[1 * CKPT_PARAM_MAX + 1], 640);
    assert_int_equal(s.param[4 * CKPT_PARAM_MAX], 704);
    assert_int_equal(s.param[4 * CKPT_PARAM_MAX + 1], 896);
    assert_int_equal(s.weights, 0);
    assert_int_equal(s.gradients, 960);
    assert_int_equal(s.optimizer, 2 * 960);
    assert_int_equal(s.statistics, 3 * 960);
    assert_int_equal(s.stat[1 * CKPT_STAT_MAX + 1], 64);
    assert_int_equal(s.inputs, 3 * 960 + 128);
    assert_int_equal(s.input[1], 384);
    assert_int_equal(s.total, 3 * 960 + 128 + 384 + 64);
    test_model_fini(&m);
}

/* A tied parameter lies where its owner's does, whether the owner comes before or after. */
static void test_statics_of_ties(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "first", "linear", "", "features=8 bias=false");
    test_layer(&m, "early", "linear", "", "features=8 bias=false")->tie = 3;
    test_layer(&m, "late", "linear", "", "features=8")->tie = 1;
    test_layer(&m, "owner", "linear", "", "features=8");
    ckpt_static_layout s;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_statics(test_infer(&m), &m.arena, &s, &err), err);
    assert_int_equal(s.param[0 * CKPT_PARAM_MAX], 0);
    assert_int_equal(s.param[2 * CKPT_PARAM_MAX + 1], 256 + 256); /* the owner's bias: both have one */
    assert_int_equal(s.param[3 * CKPT_PARAM_MAX], 256);
    assert_int_equal(s.param[1 * CKPT_PARAM_MAX], 256);
    assert_int_equal(s.param[2 * CKPT_PARAM_MAX], 256);
    assert_int_equal(s.param[3 * CKPT_PARAM_MAX + 1], s.param[2 * CKPT_PARAM_MAX + 1]);
    assert_int_equal(s.weight_bytes, 256 + 256 + 64);
    test_model_fini(&m);
}

static void test_too_large(void **state)
{
    test_model m;
    test_model_init(&m);
    const int64_t wide = (int64_t)1 << 40;
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){1 << 19, wide});
    for (int i = 0; i < 8; i++) {
        test_layer(&m, ckpt_arena_format(&m.arena, "r%d", i), "relu", "", "");
    }
    ckpt_err err = {0};
    const ckpt_lowered *lowered = NULL;
    assert_int_equal(ckpt_network_lower(test_infer(&m), NULL, NULL, &m.arena, &lowered, &err), CKPT_OVERFLOW);
    assert_null(lowered);
    test_model_fini(&m);
}

/* Times, workspaces and the link come from the profile; its rows must fit the model. */
static void test_profile(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "view", "flatten", "", "");
    test_layer(&m, "loss", "mse", "view t", "");
    ckpt_profile_row rows[] = {
        {.layer = "loss", .op = "mse", .forward = {.median_ns = 5}, .forward_workspace_bytes = 1},
        {.layer = "fc",
         .op = "linear",
         .forward = {.median_ns = 10, .repeats = 3},
         .backward = {.median_ns = 20, .repeats = 3},
         .update = {.median_ns = 30, .repeats = 3},
         .backward_workspace_bytes = 100},
    };
    ckpt_profile profile = {
        .source = "p.json", .row = rows, .row_count = 2, .d2h_bytes_per_s = 7000, .h2d_bytes_per_s = 8000};
    const ckpt_network *const network = test_infer(&m);
    const ckpt_lowered *lowered = NULL;
    ckpt_err err = {0};
    const ckpt_device_model *h100 = NULL;
    CHECK_OK(ckpt_device_model_find("h100", &m.arena, &h100, &err), err);
    CHECK_OK(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), err);
    const ckpt_graph *const g = lowered->graph;
    assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/forward")].time_ns, 10);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/backward")].time_ns, 20);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/backward")].workspace_bytes, 128);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/update")].time_ns, 30);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "loss/forward")].workspace_bytes, 64);
    assert_int_equal(g->op[ckpt_graph_find_op(g, "loss/forward")].time_ns, 5);
    /* Not measured: from the device. */
    assert_int_equal(g->op[ckpt_graph_find_op(g, "loss/backward")].time_ns, h100->launch_ns);
    assert_true(g->has_link && g->d2h_bytes_per_s == 7000 && g->h2d_bytes_per_s == 8000);
    /* Under load: both rates or neither. */
    profile.d2h_busy_bytes_per_s = 5000;
    CHECK_OK(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), err);
    assert_true(lowered->graph->d2h_bytes_per_s == 7000 && lowered->graph->h2d_bytes_per_s == 8000);
    profile.h2d_busy_bytes_per_s = 6000;
    CHECK_OK(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), err);
    assert_true(lowered->graph->d2h_bytes_per_s == 5000 && lowered->graph->h2d_bytes_per_s == 6000);
    profile.h2d_bytes_per_s = 0;
    CHECK_OK(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), err);
    assert_int_equal(lowered->graph->h2d_bytes_per_s, h100->link_bytes_per_s);

    profile.row_count = 1;
    assert_int_equal(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "p.json has no row for layer fc (linear) of test.json: profile this model");
    profile.row_count = 2;
    rows[1].op = "conv2d";
    assert_int_equal(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "layer fc is \"conv2d\" there and \"linear\" in test.json"));
    rows[1].op = "linear";
    rows[1].output_bytes = 999;
    assert_int_equal(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "layer fc gave 999 B there and gives 128 B in test.json"));
    rows[1].output_bytes = 0;
    rows[1].saved_bytes = 64; /* attention of other heads has outputs of the same size */
    assert_int_equal(ckpt_network_lower(network, &profile, h100, &m.arena, &lowered, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "layer fc saved 64 B there and saves 0 B in test.json"));
    test_model_fini(&m);
}

/* A profile taken in the step: forward has the time of a run again, backward what the first run takes more, the last op
 * what the step takes beside its runs. Any number of runs then adds up to what they took. */
static void test_profile_in_the_step(void **state)
{
    static const struct {
        ckpt_ns again, forward, backward;
    } of[] = {{7, 7, 23}, {10, 10, 20}, {14, 14, 16}, {90, 30, 0}, {0, 10, 20}};
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "drop", "dropout", "", ""); /* no gradient comes to it */
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "loss", "mse", "fc t", "");
    ckpt_profile_row rows[] = {
        {.layer = "drop", .op = "dropout", .forward = {.median_ns = 4}, .recompute = {.median_ns = 9, .repeats = 3}},
        {.layer = "loss", .op = "mse", .forward = {.median_ns = 5}, .backward = {.median_ns = 6}},
        {.layer = "fc",
         .op = "linear",
         .forward = {.median_ns = 10, .repeats = 3},
         .backward = {.median_ns = 20, .repeats = 3},
         .update = {.median_ns = 30, .repeats = 3}},
    };
    const ckpt_profile profile = {
        .source = "p.json",
        .row = rows,
        .row_count = 3,
        .step = {.time = {.median_ns = 100, .repeats = 3}, .overhead_ns = 25, .plan = "keep-all"}};
    const ckpt_network *const network = test_infer(&m);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const ckpt_lowered *lowered = NULL;
        ckpt_err err = {0};
        rows[2].recompute = (ckpt_timing){.median_ns = of[i].again, .repeats = of[i].again > 0 ? 3 : 0};
        CHECK_OK(ckpt_network_lower(network, &profile, NULL, &m.arena, &lowered, &err), err);
        const ckpt_graph *const g = lowered->graph;
        assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/forward")].time_ns, of[i].forward);
        assert_int_equal(g->op[ckpt_graph_find_op(g, "fc/backward")].time_ns, of[i].backward);
        assert_int_equal(g->op[ckpt_graph_find_op(g, "drop/forward")].time_ns, 4);
        const ckpt_op_role *const first = &lowered->op_role[ckpt_graph_find_op(g, "fc/forward")];
        const ckpt_op_role *const back = &lowered->op_role[ckpt_graph_find_op(g, "fc/backward")];
        assert_int_equal(of[i].forward - first->again_more_ns, 10);
        assert_int_equal(of[i].backward - back->again_more_ns, 20);
        assert_string_equal(g->op[g->op_count - 1].name, "fc/update");
        assert_int_equal(g->op[g->op_count - 1].time_ns, 30 + 25);
        ckpt_ns sum = 0;
        for (int o = 0; o < g->op_count; o++) {
            sum += g->op[o].time_ns;
        }
        assert_int_equal(sum, 100);
    }
    test_model_fini(&m);
}

static void test_starved(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "norm", "layernorm", "", "");
    test_layer(&m, "sum", "add", "norm fc", "");
    test_layer(&m, "loss", "mse", "sum t", "");
    const ckpt_network *const network = test_infer(&m);
    test_lower_starved(network);
    test_model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_details_of_a_chain),
        cmocka_unit_test(test_ways_are_variants),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_value_read_twice),
        cmocka_unit_test(test_gate_is_not_overwritten_by_small_image),
        cmocka_unit_test(test_unused_output),
        cmocka_unit_test(test_alias),
        cmocka_unit_test(test_alias_of_input),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_tied_staging),
        cmocka_unit_test(test_no_loss),
        cmocka_unit_test(test_losses_inside),
        cmocka_unit_test(test_statics),
        cmocka_unit_test(test_statics_of_ties),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_profile_in_the_step),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
