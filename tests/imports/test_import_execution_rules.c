/* labels: unit */
/* The rules of importing ExecutionTraces, on traces made by hand: what is a buffer, what is static, what may run
 * again. */
#include "tests/support/support_execution.h"

#include <stdio.h>
#include <string.h>

static const char step_graph[] =
    "weights 4000\n"
    "inputs 4000\n"
    "aten::mul#10 forward again (aten::mul#10) reads writes aten::mul#10:activation:4000\n"
    "aten::relu_#20 forward again (aten::relu_#20) reads aten::mul#10 writes aten::relu_#20:activation:4000 "
    "inplace aten::relu_#20<aten::mul#10\n"
    "aten::dropout#40/state forward once (drop) reads writes drop/aten::dropout#40/state:activation:16\n"
    "aten::dropout#40 forward again (drop) reads aten::relu_#20 drop/aten::dropout#40/state "
    "writes drop/aten::dropout#40/saved:saved:4000 drop/aten::dropout#40:activation:4000 workspace 200\n"
    "aten::sum#50 forward again (aten::sum#50) reads drop/aten::dropout#40 writes aten::sum#50:activation:4\n"
    "aten::ones_like#60 backward once () reads aten::sum#50 writes aten::ones_like#60:gradient:4\n"
    "aten::repeat#72 backward once (aten::sum#50) reads aten::ones_like#60 "
    "writes aten::sum#50/aten::repeat#72:gradient:4000\n"
    "aten::mul#82 backward once (drop) reads aten::sum#50/aten::repeat#72 drop/aten::dropout#40/saved "
    "writes drop/aten::mul#82:gradient:4000\n"
    "aten::threshold_backward#92 backward once (aten::relu_#20) reads drop/aten::mul#82 aten::relu_#20 "
    "writes aten::relu_#20/aten::threshold_backward#92:gradient:4000\n"
    "aten::mul#102 backward once (aten::mul#10) reads aten::relu_#20/aten::threshold_backward#92 "
    "writes aten::mul#10/aten::mul#102:gradient:4000\n"
    "aten::add_#103 backward once (aten::mul#10) reads aten::relu_#20/aten::threshold_backward#92 "
    "adds aten::mul#10/aten::mul#102 writes\n"
    "aten::add_#121 update once (optimizer) reads aten::mul#10/aten::mul#102 writes\n"
    "outputs aten::sum#50 aten::mul#10/aten::mul#102\n";

static void list_buffers(const ckpt_graph *g, const char *what, const ckpt_list *list, bool full, ckpt_text *out)
{
    ckpt_text_add(out, " %s", what);
    for (int k = 0; k < list->count; k++) {
        const ckpt_buffer *const b = &g->buffer[list->at[k]];
        ckpt_text_add(out, " %s", b->name);
        if (full) {
            ckpt_text_add(out, ":%s:%lld", ckpt_kind_name(b->kind), (long long)b->bytes);
        }
    }
}

static void describe(const ckpt_graph *g, ckpt_text *out)
{
    for (int i = 0; i < g->static_count; i++) {
        ckpt_text_add(out, "%s %lld\n", g->statics[i].name, (long long)g->statics[i].bytes);
    }
    for (int i = 0; i < g->op_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        ckpt_text_add(out, "%s %s %s (%s)", op->name, ckpt_phase_name(op->phase), op->recompute ? "again" : "once",
                      op->layer);
        list_buffers(g, "reads", &op->reads, false, out);
        if (op->adds.count > 0) {
            list_buffers(g, "adds", &op->adds, false, out);
        }
        list_buffers(g, "writes", &op->writes, true, out);
        for (int k = 0; k < op->inplace_count; k++) {
            ckpt_text_add(out, " inplace %s<%s", g->buffer[op->inplace[k].out].name, g->buffer[op->inplace[k].in].name);
        }
        if (op->workspace_bytes > 0) {
            ckpt_text_add(out, " workspace %lld", (long long)op->workspace_bytes);
        }
        ckpt_text_add(out, "\n");
    }
    ckpt_text_add(out, "outputs");
    for (int k = 0; k < g->outputs.count; k++) {
        ckpt_text_add(out, " %s", g->buffer[g->outputs.at[k]].name);
    }
    ckpt_text_add(out, "\n");
}

/* The graph of nodes as text; lives until the next call. */
static const char *graph_of(const ckpt_test_node *nodes, int count)
{
    static char text[8192];
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_graph *graph = NULL;
    ckpt_text out;
    ckpt_arena_init(&arena);
    ckpt_text_init(&out);
    size_t length = 0;
    const char *const trace = ckpt_test_trace(nodes, count, &length);
    CHECK_OK(ckpt_test_import(trace, length, NULL, &arena, &graph, &err), err);
    describe(graph, &out);
    snprintf(text, sizeof text, "%s", out.bytes);
    ckpt_text_fini(&out);
    ckpt_arena_fini(&arena);
    assert_int_equal(ckpt_memory_live(), 0);
    return text;
}

static ckpt_test_node changed[CKPT_TEST_BY_HAND + 2];

/* The step with a node put in before the one of number `before`. */
static int insert(const ckpt_test_node *fresh, int before)
{
    int count = 0;
    for (int i = 0; i < CKPT_TEST_BY_HAND; i++) {
        if (ckpt_test_by_hand[i].id == before) {
            changed[count++] = *fresh;
        }
        changed[count++] = ckpt_test_by_hand[i];
    }
    return count;
}

static ckpt_test_node *copy_step(int id)
{
    memcpy(changed, ckpt_test_by_hand, sizeof ckpt_test_by_hand);
    for (int i = 0; i < CKPT_TEST_BY_HAND; i++) {
        if (changed[i].id == id) {
            return &changed[i];
        }
    }
    return NULL;
}

static void test_a_step_by_hand(void **state)
{
    assert_string_equal(graph_of(ckpt_test_by_hand, CKPT_TEST_BY_HAND), step_graph);
    ckpt_test_has(ckpt_test_notes, "1 forward ops draw random numbers (aten::dropout): each has a buffer of 16 bytes");
    ckpt_test_has(ckpt_test_notes, "ProfilerStep#0, the last of 1");
    ckpt_test_has(ckpt_test_notes, "2 of 13 ops make views only");
}

static void test_tensors_on_other_devices_are_left_out(void **state)
{
    copy_step(10)->in[0].device = "cpu";
    const char *const graph = graph_of(changed, CKPT_TEST_BY_HAND);
    ckpt_test_has(graph, "weights 4000\ninputs 4000\naten::mul#10"); /* node 102 reads it too, on the GPU */
    ckpt_test_has(ckpt_test_notes, "1 tensors on other devices than cuda:0");
}

static void test_gradients_let_go_after_forward_began_are_static(void **state)
{
    const ckpt_test_node zero = {45, 3, "Optimizer.zero_grad#SGD.zero_grad", 7, -1, "", {{0}}, {{0}}};
    const char *graph = graph_of(changed, insert(&zero, 50));
    ckpt_test_has(graph, "weights 4000\ngradients 4000\ninputs 4000\n");
    ckpt_test_has(
        graph, "aten::add_#103 backward once (aten::mul#10) reads aten::relu_#20/aten::threshold_backward#92 writes\n");
    ckpt_test_has(graph, "outputs aten::sum#50\n");
    const ckpt_test_node early = {5, 3, "Optimizer.zero_grad#SGD.zero_grad", 7, -1, "", {{0}}, {{0}}};
    assert_string_equal(graph_of(changed, insert(&early, 10)), step_graph);
}

static void test_addresses_come_again(void **state)
{
    /* A Python number where the dropout mask was: that mask is gone since backward. */
    ckpt_test_node scale = {122,
                            120,
                            "aten::mul_",
                            0,
                            -1,
                            "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
                            {T(102, 103, 1000), T(150, 107, 0)},
                            {T(102, 103, 1000)}};
    ckpt_test_has(graph_of(changed, insert(&scale, 121)), "aten::mul_#122 update once (optimizer) reads writes\n");
    /* A tensor longer than the sum that was there: not the sum. It is the optimizer's, as only update reads it. */
    scale.in[1] = (ckpt_test_argument)T(150, 112, 50);
    const char *const graph = graph_of(changed, insert(&scale, 121));
    ckpt_test_has(graph, "aten::mul_#122 update once (optimizer) reads writes\n");
    ckpt_test_has(graph, "weights 4000\noptimizer 200\ninputs 4000\n");
    /* The same tensor as before is no number of Python's, whatever its size. */
    scale.in[1] = (ckpt_test_argument)T(106, 107, 0);
    ckpt_test_has(graph_of(changed, insert(&scale, 121)),
                  "aten::mul_#122 update once (optimizer) reads drop/aten::dropout#40/saved");
}

static void test_steps_without_marks(void **state)
{
    memcpy(changed, ckpt_test_by_hand, sizeof ckpt_test_by_hand);
    changed[0] = (ckpt_test_node){3, 2, "anything", 7, -1, "", {{0}}, {{0}}};
    const char *graph = graph_of(changed, CKPT_TEST_BY_HAND);
    ckpt_test_has(graph, "aten::mul#10 forward again (anything)");
    ckpt_test_has(ckpt_test_notes, "what ends with the optimizer's step, the last of 1");
    changed[CKPT_TEST_BY_HAND] = (ckpt_test_node){130, 2, "Optimizer.step#Adam.step", 7, -1, "", {{0}}, {{0}}};
    ckpt_test_has(graph_of(changed, CKPT_TEST_BY_HAND + 1), "aten::mul#10 forward"); /* no backward since the first */
    changed[CKPT_TEST_BY_HAND - 2].name = "no optimizer";                            /* 120 */
    graph = graph_of(changed, CKPT_TEST_BY_HAND);
    ckpt_test_has(graph, "aten::add_#121 update once (no optimizer)"); /* it is behind the last of backward */
    ckpt_test_has(ckpt_test_notes, "the whole trace");
    ckpt_test_has(ckpt_test_notes, "no optimizer's step");
}

#define MUL_ "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"

static void test_what_is_written_over_is_a_new_buffer(void **state)
{
    /* A parameter's gradient, scaled in place behind backward: the last of it is what stays. */
    const ckpt_test_node clip = {
        115, 3, "aten::mul_", 0, -1, MUL_, {T(125, 122, 1000), T(111, 112, 1)}, {T(125, 122, 1000)}};
    const char *graph = graph_of(changed, insert(&clip, 120));
    ckpt_test_has(graph, "aten::mul_#115 update once (optimizer) reads aten::mul#10/aten::mul#102 aten::sum#50 "
                         "writes optimizer/aten::mul_#115:gradient:4000 "
                         "inplace optimizer/aten::mul_#115<aten::mul#10/aten::mul#102\n");
    ckpt_test_has(graph, "aten::add_#121 update once (optimizer) reads optimizer/aten::mul_#115 writes\n");
    ckpt_test_has(graph, "outputs aten::sum#50 optimizer/aten::mul_#115\n");
    /* Only a sum is an addition: scaling within backward is none. */
    const ckpt_test_node scale = {
        95, 90, "aten::mul_", 0, -1, MUL_, {T(119, 120, 1000), T(113, 114, 1)}, {T(119, 120, 1000)}};
    graph = graph_of(changed, insert(&scale, 101));
    ckpt_test_has(graph, "writes aten::relu_#20/aten::mul_#95:gradient:4000 "
                         "inplace aten::relu_#20/aten::mul_#95<aten::relu_#20/aten::threshold_backward#92\n");
    ckpt_test_has(graph, "aten::mul#102 backward once (aten::mul#10) reads aten::relu_#20/aten::mul_#95 writes");
}

/* Ops of c10d give back what they change, and their schemas do not mark it. */
static void test_sums_across_ranks(void **state)
{
    const ckpt_test_node sum = {113,
                                110,
                                "c10d::allreduce_",
                                0,
                                -1,
                                "c10d::allreduce_(Tensor[] tensors) -> (Tensor[], int)",
                                {J("[[125,122,0,1000,4,\"cuda:0\"]]")},
                                {J("[[125,122,0,1000,4,\"cuda:0\"]]"), J("0")}};
    const char *const graph = graph_of(changed, insert(&sum, 120));
    ckpt_test_has(
        graph, "c10d::allreduce_#113 reduce once () reads aten::mul#10/aten::mul#102 "
               "writes c10d::allreduce_#113:gradient:4000 inplace c10d::allreduce_#113<aten::mul#10/aten::mul#102\n");
    ckpt_test_has(graph, "outputs aten::sum#50 c10d::allreduce_#113\n");
}

/* An op that an exception ended is not in the file, and what follows is written as if it were inside it. */
static void test_ops_left_by_an_exception(void **state)
{
    copy_step(120)->parent = 43; /* the optimizer's step inside an op of forward */
    assert_string_equal(graph_of(changed, CKPT_TEST_BY_HAND), step_graph);
    copy_step(100)->parent = 43; /* autograd inside an op of forward */
    assert_string_equal(graph_of(changed, CKPT_TEST_BY_HAND), step_graph);
    copy_step(103)->parent = 99; /* a parent that is not there: where node 92 was, but not inside it */
    ckpt_test_has(graph_of(changed, CKPT_TEST_BY_HAND),
                  "aten::add_#103 backward once (aten::relu_#20) reads aten::relu_#20/aten::threshold_backward#92 "
                  "adds aten::mul#10/aten::mul#102");
}

static void test_a_step_that_did_not_end_is_not_taken(void **state)
{
    static ckpt_test_node two[CKPT_TEST_BY_HAND + 3];
    memcpy(two, ckpt_test_by_hand, sizeof ckpt_test_by_hand);
    two[CKPT_TEST_BY_HAND] = (ckpt_test_node){200, 2, "ProfilerStep#1", 7, -1, "", {{0}}, {{0}}};
    two[CKPT_TEST_BY_HAND + 1] = (ckpt_test_node){
        201, 200, "aten::mul", 0, 4, BINARY("mul"), {T(100, 101, 1000), T(102, 103, 1000)}, {T(104, 105, 1000)}};
    two[CKPT_TEST_BY_HAND + 2] = (ckpt_test_node){202, 200, "MulBackward0", 1, 4, "", {T(104, 105, 1000)}, {{0}}};
    assert_string_equal(graph_of(two, CKPT_TEST_BY_HAND + 3), step_graph);
    ckpt_test_has(ckpt_test_notes, "ProfilerStep#0, the last of 2");
}

static void test_sparse_tensors_are_said(void **state)
{
    const ckpt_test_node n = {15,
                              3,
                              "aten::_sparse_coo_tensor_unsafe",
                              0,
                              4,
                              UNARY("_sparse_coo_tensor_unsafe"),
                              {T(100, 101, 1000)},
                              {{0, 0, 1000, NULL, "[160,0,0,0,0,\"\"]"}, J("[161,0,0,0,0,\"\"]")}};
    graph_of(changed, insert(&n, 20));
    ckpt_test_has(ckpt_test_notes, "1 times a tensor is sparse"); /* the second is undefined: no shape */
}

static void test_notes_are_of_one_line(void **state)
{
    const ckpt_test_node n = {
        15, 3, "aten::rand\\u001b[2J\\n", 0, -1, UNARY("rand"), {T(100, 101, 1000)}, {T(160, 161, 1000)}};
    graph_of(changed, insert(&n, 20));
    ckpt_test_has(ckpt_test_notes, "(aten::rand [2J )");
}

static void test_a_long_layer_name_is_cut(void **state)
{
    static char name[3001];
    memset(name, 'x', sizeof name - 1);
    const ckpt_test_node n = {4, 3, name, 7, -1, "", {{0}}, {{0}}};
    ckpt_test_node *const mul = copy_step(10);
    const int count = insert(&n, 10);
    mul[1].parent = 4;
    const char *const layer = strchr(graph_of(changed, count), '(');
    assert_int_equal(strspn(layer + 1, "x"), 2000);
}

/* May an op run again? By name, schema and arguments alone. */
typedef struct rerun {
    const char *name, *schema;
    ckpt_test_argument in[CKPT_TEST_ARGUMENTS];
    bool recomputed, state; /* may be; needs the state of the generator */
} rerun;

#define BATCH_NORM                                                                                                     \
    "aten::native_batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, bool training) -> Tensor"
#define NORMAL         "aten::normal(Tensor self, Generator? generator=None) -> Tensor"
#define SDPA           "aten::scaled_dot_product_attention(Tensor q, float dropout_p=0.0) -> Tensor"
#define NATIVE_DROPOUT "aten::native_dropout(Tensor input, float p, bool? train) -> Tensor"

static const rerun reruns[] = {
    {"aten::gelu", UNARY("gelu"), {T(100, 101, 1000)}, true, false},
    {"aten::rand_like", UNARY("rand_like"), {T(100, 101, 1000)}, true, true},
    {"aten::normal", NORMAL, {T(100, 101, 1000)}, true, true},
    {"aten::normal", NORMAL, {T(100, 101, 1000), J("\"<None>\"")}, true, true},
    {"aten::normal", NORMAL, {T(100, 101, 1000), J("\"<Generator>\"")}, false, false},
    {"aten::native_dropout", NATIVE_DROPOUT, {T(100, 101, 1000), J("0.1"), J("true")}, true, true},
    {"aten::native_dropout", NATIVE_DROPOUT, {T(100, 101, 1000), J("0.1"), J("false")}, true, false},
    {"aten::scaled_dot_product_attention", SDPA, {T(100, 101, 1000), J("0.1")}, true, true},
    {"aten::scaled_dot_product_attention", SDPA, {T(100, 101, 1000), J("0.0")}, true, false},
    {"aten::native_batch_norm",
     BATCH_NORM,
     {T(100, 101, 1000), T(140, 141, 8), T(142, 143, 8), J("true")},
     true,
     false},
    {"aten::native_batch_norm",
     BATCH_NORM,
     {T(100, 101, 1000), T(140, 141, 8), T(142, 143, 8), J("false")},
     true,
     false},
    {"mine::native_batch_norm", /* its result may depend on them */
     BATCH_NORM,
     {T(100, 101, 1000), T(140, 141, 8), T(142, 143, 8), J("true")},
     false,
     false},
    {"aten::quoted",
     "aten::quoted(Tensor self, str a=\\\"!,)\\\", int[2] b=[1, 1], *, Tensor(a!)? out) -> Tensor",
     {T(100, 101, 1000), J("\"\""), J("[1,1]"), T(140, 141, 8)},
     false,
     false},
    {"aten::quoted",
     "aten::quoted(Tensor self, str a=\\\"!,)\\\", int[2] b=[1, 1], *, Tensor(a)? out) -> Tensor",
     {T(100, 101, 1000), J("\"\""), J("[1,1]"), T(140, 141, 8)},
     true,
     false},
    {"aten::_foreach_mul_",
     "aten::_foreach_mul_(Tensor(a!)[] self, float s) -> ()",
     {J("[[140,141,0,8,4,\"cuda:0\"],[142,143,0,8,4,\"cuda:0\"]]"), J("0.1")},
     false,
     false},
};

static void test_what_may_run_again(void **state)
{
    for (size_t i = 0; i < sizeof reruns / sizeof reruns[0]; i++) {
        const rerun *const r = &reruns[i];
        ckpt_test_node n = {15, 3, r->name, 0, -1, r->schema, {{0}}, {T(160, 161, 1000)}};
        char line[200];
        memcpy(n.in, r->in, sizeof n.in);
        snprintf(line, sizeof line, "%s#15 forward %s", r->name, r->recomputed ? "again" : "once");
        const char *const graph = graph_of(changed, insert(&n, 20));
        ckpt_test_has(graph, line);
        snprintf(line, sizeof line, "%s#15/state forward once", r->name);
        CHECK((strstr(graph, line) != NULL) == r->state, "%s has a state: %d", r->schema, !r->state);
    }
}

static void test_what_reads_a_value_that_is_changed_later_runs_once(void **state)
{
    ckpt_test_node n = {15, 3, "aten::mul_", 0, -1, MUL_, {T(100, 101, 1000), T(102, 103, 1000)}, {T(100, 101, 1000)}};
    ckpt_test_has(graph_of(changed, insert(&n, 20)), "aten::mul#10 forward once"); /* by forward */
    ckpt_test_has(ckpt_test_notes, "2 forward ops are not recomputed (aten::mul)");
    n.id = 122;
    n.parent = 120;
    ckpt_test_has(graph_of(changed, insert(&n, 121)), "aten::mul#10 forward again"); /* by the update */
    /* Batch norm's output does not depend on its statistics, but what else reads them gets other values later. */
    const ckpt_test_node norm = {15,
                                 3,
                                 "aten::native_batch_norm",
                                 0,
                                 -1,
                                 BATCH_NORM,
                                 {T(140, 141, 1000), T(100, 101, 1000), T(102, 103, 1000), J("true")},
                                 {T(160, 161, 1000)}};
    const char *const graph = graph_of(changed, insert(&norm, 20));
    ckpt_test_has(graph, "aten::mul#10 forward once");
    ckpt_test_has(graph, "aten::native_batch_norm#15 forward again");
    ckpt_test_has(ckpt_test_notes, "1 forward ops update running statistics (aten::native_batch_norm)");
    /* instance_norm copies its statistics back inside itself. */
    int count = insert(&norm, 20);
    memmove(&changed[3], &changed[2], (size_t)(count - 2) * sizeof changed[0]);
    changed[3] = (ckpt_test_node){16,
                                  15,
                                  "aten::copy_",
                                  0,
                                  -1,
                                  "aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)",
                                  {T(100, 101, 1000), T(162, 163, 1000)},
                                  {T(100, 101, 1000)}};
    ckpt_test_has(graph_of(changed, count + 1), "aten::native_batch_norm#15 forward again");
}

/* Within an op an address comes again, too: what the op returns has the size of the last tensor there. */
static void test_addresses_come_again_within_an_op(void **state)
{
    copy_step(42)->out[0] = (ckpt_test_argument)T(127, 110, 5000);
    ckpt_test_has(graph_of(changed, CKPT_TEST_BY_HAND),
                  "drop/aten::dropout#40/saved:saved:4000 drop/aten::dropout#40:activation:4000 workspace 20000\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_by_hand),
        cmocka_unit_test(test_tensors_on_other_devices_are_left_out),
        cmocka_unit_test(test_gradients_let_go_after_forward_began_are_static),
        cmocka_unit_test(test_addresses_come_again),
        cmocka_unit_test(test_steps_without_marks),
        cmocka_unit_test(test_what_is_written_over_is_a_new_buffer),
        cmocka_unit_test(test_sums_across_ranks),
        cmocka_unit_test(test_ops_left_by_an_exception),
        cmocka_unit_test(test_a_step_that_did_not_end_is_not_taken),
        cmocka_unit_test(test_sparse_tensors_are_said),
        cmocka_unit_test(test_notes_are_of_one_line),
        cmocka_unit_test(test_a_long_layer_name_is_cut),
        cmocka_unit_test(test_what_may_run_again),
        cmocka_unit_test(test_what_reads_a_value_that_is_changed_later_runs_once),
        cmocka_unit_test(test_addresses_come_again_within_an_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
