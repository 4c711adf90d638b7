/* One step by hand, and writing it as PyTorch does. */
#include "tests/support/support_execution.h"

#include <stdio.h>
#include <string.h>

#define RELU_      "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
#define VIEW       "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
#define DROPOUT    "aten::dropout(Tensor input, float p, bool train) -> Tensor"
#define BERNOULLI_ "aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)"
#define ADD_       "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
#define DETACH     "aten::detach(Tensor(a) self) -> Tensor(a)"
#define EVALUATE   "autograd::engine::evaluate_function: "

const ckpt_test_node ckpt_test_by_hand[CKPT_TEST_BY_HAND] = {
    {3, 2, "ProfilerStep#0", 7, -1, "", {{0}}, {{0}}},
    {10, 3, "aten::mul", 0, 0, BINARY("mul"), {T(100, 101, 1000), T(102, 103, 1000)}, {T(104, 105, 1000)}},
    {20, 3, "aten::relu_", 0, 1, RELU_, {T(104, 105, 1000)}, {T(104, 105, 1000)}},
    {30, 3, "aten::view", 0, -1, VIEW, {T(104, 105, 1000), J("[10,100]")}, {T(126, 105, 1000)}},
    {38, 3, "drop", 7, -1, "", {{0}}, {{0}}},
    {40, 38, "aten::dropout", 0, 2, DROPOUT, {T(126, 105, 1000), J("0.1"), J("true")}, {T(109, 110, 1000)}},
    {41,
     40,
     "aten::bernoulli_",
     0,
     -1,
     BERNOULLI_,
     {T(106, 107, 1000), J("0.9"), J("\"<None>\"")},
     {T(106, 107, 1000)}},
    {42, 40, "aten::empty", 0, -1, "aten::empty(int[] size) -> Tensor", {J("[50]")}, {T(127, 108, 50)}},
    {43, 40, "aten::mul", 0, 2, BINARY("mul"), {T(126, 105, 1000), T(106, 107, 1000)}, {T(109, 110, 1000)}},
    {50, 3, "aten::sum", 0, 3, UNARY("sum"), {T(109, 110, 1000)}, {T(111, 112, 1)}},
    {60, 3, "aten::ones_like", 0, -1, UNARY("ones_like"), {T(111, 112, 1)}, {T(113, 114, 1)}},
    {70, 4, EVALUATE "SumBackward0", 0, -1, "", {{0}}, {{0}}},
    {71, 70, "SumBackward0", 1, 3, "", {T(113, 114, 1)}, {{0}}},
    {72, 71, "aten::repeat", 0, -1, UNARY("repeat"), {T(113, 114, 1)}, {T(115, 110, 1000)}},
    {80, 4, EVALUATE "MulBackward0", 0, -1, "", {{0}}, {{0}}},
    {81, 80, "MulBackward0", 1, 2, "", {T(115, 110, 1000)}, {{0}}},
    {82, 81, "aten::mul", 0, -1, BINARY("mul"), {T(115, 110, 1000), T(106, 107, 1000)}, {T(116, 117, 1000)}},
    {90, 4, EVALUATE "ReluBackward0", 0, -1, "", {{0}}, {{0}}},
    {91, 90, "ReluBackward0", 1, 1, "", {T(116, 117, 1000)}, {{0}}},
    {92,
     91,
     "aten::threshold_backward",
     0,
     -1,
     BINARY("threshold_backward"),
     {T(116, 117, 1000), T(118, 105, 1000)},
     {T(119, 120, 1000)}},
    {100, 4, EVALUATE "MulBackward0", 0, -1, "", {{0}}, {{0}}},
    {101, 100, "MulBackward0", 1, 0, "", {T(119, 120, 1000)}, {{0}}},
    {102, 101, "aten::mul", 0, -1, BINARY("mul"), {T(119, 120, 1000), T(100, 101, 1000)}, {T(121, 122, 1000)}},
    {103, 100, "aten::add_", 0, -1, ADD_, {T(121, 122, 1000), T(119, 120, 1000), J("1")}, {T(121, 122, 1000)}},
    {110, 4, EVALUATE "torch::autograd::AccumulateGrad", 0, -1, "", {{0}}, {{0}}},
    {111, 110, "torch::autograd::AccumulateGrad", 1, -1, "", {T(121, 122, 1000)}, {{0}}},
    {112, 111, "aten::detach", 0, -1, DETACH, {T(121, 122, 1000)}, {T(125, 122, 1000)}},
    {120, 3, "Optimizer.step#SGD.step", 7, -1, "", {{0}}, {{0}}},
    {121, 120, "aten::add_", 0, -1, ADD_, {T(102, 103, 1000), T(125, 122, 1000), J("-0.1")}, {T(102, 103, 1000)}},
};

#define MEMORY(ts, bytes, type, device)                                                                                \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"ts\":" ts ",\"args\":{\"Bytes\":" bytes                                     \
    ",\"Addr\":4096,\"Device Type\":" type ",\"Device Id\":" device "}},\n"

const char *const ckpt_test_kernels =
    "{\"traceEvents\":["
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::relu_\",\"ts\":1,\"dur\":50,\"args\":{\"External id\":7,"
    "\"Record function id\":20}},\n"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::bernoulli_\",\"ts\":1,\"dur\":9,\"args\":{\"External id\":8,"
    "\"Record function id\":41}},\n"
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"ts\":1,\"dur\":3,\"args\":{\"External "
    "id\":8,"
    "\"correlation\":99}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"dur\":1.5,\"args\":{\"External "
    "id\":7,\"correlation\":98}},\n"
    "{\"ph\":\"X\",\"cat\":\"gpu_memset\",\"name\":\"s\",\"ts\":1,\"dur\":0.25,\"args\":{\"External id\":7}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"b\",\"ts\":1,\"dur\":2.125,\"args\":{\"correlation\":99}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"of nobody\",\"ts\":1,\"dur\":77,\"args\":{\"External id\":1234}},\n"
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Bytes\":64}},\n"
    "{\"ph\":\"X\",\"cat\":\"python_function\",\"name\":\"nn.Module: ReLU_3\",\"ts\":0.5,\"dur\":60},\n" MEMORY(
        "2", "3000", "1", "0") MEMORY("3", "2000", "1", "0") MEMORY("4", "-3000", "1", "0")
        MEMORY("5", "2500", "1", "0") MEMORY("6", "70000", "0", "-1") MEMORY("7", "80000", "1", "1")
            MEMORY("60", "90000", "1", "0") "{\"ph\":\"M\"}]}";

static char trace[CKPT_TEST_TRACE_ROOM];
static size_t length;

static void put(const char *format, ...) CKPT_PRINTF(1, 2);

static void put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    length += (size_t)vsnprintf(trace + length, sizeof trace - length, format, arguments);
    va_end(arguments);
    assert_true(length < sizeof trace);
}

/* Values, shapes or strides of the arguments. */
static void put_list(const char *key, const ckpt_test_argument *list, int count, int what)
{
    put("%s\"%s\":[", what == 0 ? "" : ",", key);
    for (int i = 0; i < count && (list[i].storage != 0 || list[i].json != NULL); i++) {
        const ckpt_test_argument *const a = &list[i];
        put("%s", i == 0 ? "" : ",");
        if (what == 0 && a->json != NULL) {
            put("%s", a->json);
        } else if (what == 0) {
            put("[%d,%d,0,%d,4,\"%s\"]", a->tensor, a->storage, a->elements == 0 ? 1 : a->elements,
                a->device != NULL ? a->device : "cuda:0");
        } else if (a->elements == 0) {
            put("[]");
        } else {
            put("[%d]", what == 1 ? a->elements : 1);
        }
    }
    put("]");
}

static void put_node(const ckpt_test_node *n)
{
    put(",{\"id\":%d,\"name\":\"%s\",\"ctrl_deps\":%d,\"inputs\":{", n->id, n->name, n->parent);
    put_list("values", n->in, CKPT_TEST_ARGUMENTS, 0);
    put_list("shapes", n->in, CKPT_TEST_ARGUMENTS, 1);
    put_list("strides", n->in, CKPT_TEST_ARGUMENTS, 2);
    put("},\"outputs\":{");
    put_list("values", n->out, 2, 0);
    put_list("shapes", n->out, 2, 1);
    put_list("strides", n->out, 2, 2);
    put("},\"attrs\":[{\"name\":\"rf_id\",\"value\":%d},{\"name\":\"seq_id\",\"value\":%d},{\"name\":\"scope\","
        "\"value\":%d},"
        "{\"name\":\"op_schema\",\"value\":\"%s\"}]}",
        n->id, n->seq, n->scope, n->schema);
}

/* In the file a node stands where it ended: a parent behind its children. */
static void put_with_children(const ckpt_test_node *nodes, int count, const ckpt_test_node *node)
{
    for (int i = 0; i < count; i++) {
        if (nodes[i].parent == node->id) {
            put_with_children(nodes, count, &nodes[i]);
        }
    }
    put_node(node);
}

static bool has_parent(const ckpt_test_node *nodes, int count, const ckpt_test_node *node)
{
    for (int i = 0; i < count; i++) {
        if (nodes[i].id == node->parent) {
            return true;
        }
    }
    return false;
}

const char *ckpt_test_trace(const ckpt_test_node *nodes, int count, size_t *count_out)
{
    length = 0;
    put("{\"schema\":\"1.1.1-chakra.0.0.4\",\"nodes\":[");
    put("{\"id\":1,\"name\":\"[pytorch|profiler|execution_trace|process]\",\"ctrl_deps\":1,\"inputs\":{\"values\":[]},"
        "\"outputs\":{\"values\":[]},\"attrs\":[]}");
    for (int pass = 0; pass < 2; pass++) { /* what other threads do for a step ends before it */
        for (int i = 0; i < count; i++) {
            if (!has_parent(nodes, count, &nodes[i]) && (nodes[i].parent == 2) == (pass == 1)) {
                put_with_children(nodes, count, &nodes[i]);
            }
        }
    }
    put("]}\n");
    *count_out = length;
    return trace;
}

ckpt_code ckpt_test_import(const char *bytes, size_t count, const char *times, ckpt_arena *arena, ckpt_graph **graph,
                           ckpt_err *err)
{
    char path[512];
    char times_path[512];
    snprintf(path, sizeof path, "%s", ckpt_test_file("execution_rules.json", bytes, count));
    if (times != NULL) {
        snprintf(times_path, sizeof times_path, "%s", ckpt_test_file("execution_times.json", times, strlen(times)));
    }
    ckpt_test_notes[0] = '\0';
    return ckpt_import_execution(path, times != NULL ? times_path : NULL, 1e9, ckpt_test_take_note, arena, graph, err);
}

void ckpt_test_has(const char *text, const char *part)
{
    CHECK(strstr(text, part) != NULL, "no \"%s\" in\n%s", part, text);
}
