/* labels: unit */
/* Lowering of random networks against the rules, worked out here in another way: a node has a backward when it leads
 * to the end and something lies behind it that learns; of all backward ops that give one gradient, the one of the
 * last layer writes and the others add. */
#include "tests/support/support_test.h"

#include <string.h>

#include "tests/support/support_scheme.h"

enum { ROUNDS = 400, LAYERS = 30, VALUES_MAX = 512 };

/* What this test works out for itself. */
typedef struct truth {
    int storage[VALUES_MAX];
    bool learns_behind[VALUES_MAX];
    bool leads_to_end[TEST_LAYERS];
    bool backward[TEST_LAYERS];
} truth;

static void mark_useful(const ckpt_network *n, int node, truth *t)
{
    if (node < 0 || t->leads_to_end[node]) {
        return;
    }
    t->leads_to_end[node] = true;
    for (int k = 0; k < n->node[node].in_count; k++) {
        mark_useful(n, n->value[n->node[node].in_value[k]].node, t);
    }
}

static void work_out(const ckpt_network *n, truth *t)
{
    memset(t, 0, sizeof *t);
    assert_in_range(n->value_count, 1, VALUES_MAX - 1);
    for (int v = 0; v < n->value_count; v++) {
        t->storage[v] = v;
        if (n->value[v].node >= 0) {
            const ckpt_node *const node = &n->node[n->value[v].node];
            t->learns_behind[v] = node->param_count > 0;
            for (int k = 0; k < node->in_count; k++) {
                t->learns_behind[v] = t->learns_behind[v] || t->learns_behind[node->in_value[k]];
            }
            if (strcmp(node->op->name, "reshape") == 0) {
                t->storage[v] = t->storage[node->in_value[0]];
            }
        }
        assert_int_equal(n->value[v].storage, t->storage[v]);
        assert_int_equal(n->value[v].needs_grad, t->learns_behind[v]);
    }
    mark_useful(n, n->node_count - 1, t);
    for (int i = 0; i < n->node_count; i++) {
        t->backward[i] = t->leads_to_end[i] && strcmp(n->node[i].op->name, "reshape") != 0 &&
                         t->learns_behind[n->node[i].out_value[0]];
    }
}

static bool has(ckpt_list list, int buffer)
{
    for (int i = 0; i < list.count; i++) {
        if (list.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

static const ckpt_graph_op *op_named(test_model *m, const ckpt_graph *g, const char *layer, const char *phase,
                                     int *index)
{
    *index = ckpt_graph_find_op(g, ckpt_arena_format(&m->arena, "%s/%s", layer, phase));
    return *index < 0 ? NULL : &g->op[*index];
}

/* Who gives the gradient of storage value `s`: first the writer, then those who add, in backward order. */
static void check_gradient(test_model *m, const ckpt_lowered *lowered, const truth *t, int s)
{
    const ckpt_network *const n = lowered->network;
    const ckpt_graph *const g = lowered->graph;
    const int grad = lowered->grad_buffer[s];
    bool written = false;
    for (int i = n->node_count - 1; i >= 0; i--) {
        const ckpt_node *const node = &n->node[i];
        int index = -1;
        const ckpt_graph_op *const op = op_named(m, g, node->name, "backward", &index);
        bool own = false; /* this op wrote it for an earlier input */
        for (int k = 0; k < node->in_count && op != NULL; k++) {
            if (t->storage[node->in_value[k]] != s || !t->learns_behind[s]) {
                continue;
            }
            assert_true(grad >= 0);
            const bool adds = (lowered->op_role[index].grad_in_adds >> k & 1) != 0;
            assert_int_equal(adds, written);
            own = own || !written;
            written = true;
            assert_int_equal(has(op->writes, grad), own);
            assert_int_equal(has(op->adds, grad), !own);
        }
        if (op != NULL && grad >= 0) {
            bool gives = false;
            for (int k = 0; k < node->in_count; k++) {
                gives = gives || (t->storage[node->in_value[k]] == s);
            }
            assert_true(gives || (!has(op->writes, grad) && !has(op->adds, grad)));
        }
    }
    assert_int_equal(written, grad >= 0);
}

static void check_reads(const ckpt_lowered *lowered, const truth *t, const ckpt_node *node, const ckpt_graph_op *op,
                        bool backward)
{
    const ckpt_network *const n = lowered->network;
    const ckpt_graph *const g = lowered->graph;
    bool *const wanted = ckpt_memory_get((size_t)g->buffer_count + 1);
    int count = 0;
    assert_non_null(wanted);
    for (int k = 0; k < node->in_count; k++) {
        const int s = t->storage[node->in_value[k]];
        if (n->value[s].node >= 0 && (!backward || (node->backward_in >> k & 1) != 0)) {
            wanted[lowered->value_buffer[s]] = true;
        }
    }
    for (int k = 0; k < node->out_count && backward; k++) {
        if (lowered->grad_buffer[node->out_value[k]] >= 0) {
            wanted[lowered->grad_buffer[node->out_value[k]]] = true;
        }
        if ((node->backward_out >> k & 1) != 0) {
            wanted[lowered->value_buffer[node->out_value[k]]] = true;
        }
    }
    for (int k = 0; k < node->saved_count && backward; k++) {
        if ((node->backward_saved >> k & 1) != 0) {
            wanted[lowered->saved_buffer[node->index * CKPT_SAVED_MAX + k]] = true;
        }
    }
    for (int b = 0; b < g->buffer_count; b++) {
        count += wanted[b];
        CHECK(wanted[b] == has(op->reads, b), "%s and %s", op->name, g->buffer[b].name);
    }
    assert_int_equal(count, op->reads.count);
    ckpt_memory_put(wanted);
}

/* Every owner's parameter: the first backward op that reaches it writes, the others add. */
static void check_params(test_model *m, const ckpt_lowered *lowered, int owner, int k, bool *reached)
{
    const ckpt_network *const n = lowered->network;
    *reached = false;
    for (int i = n->node_count - 1; i >= 0; i--) {
        const ckpt_node *const node = &n->node[i];
        int index = -1;
        if (k < node->param_count && (i == owner || node->param[k].tied == owner) &&
            op_named(m, lowered->graph, node->name, "backward", &index) != NULL) {
            assert_int_equal(lowered->op_role[index].grad_param_adds >> k & 1, *reached);
            *reached = true;
        }
    }
}

static void check(test_model *m, const ckpt_lowered *lowered)
{
    const ckpt_network *const n = lowered->network;
    const ckpt_graph *const g = lowered->graph;
    truth t;
    work_out(n, &t);
    int ops = 0;
    int last_backward = g->op_count;
    for (int i = 0; i < n->node_count; i++) {
        const ckpt_node *const node = &n->node[i];
        int index = -1;
        const ckpt_graph_op *const forward = op_named(m, g, node->name, "forward", &index);
        assert_int_equal(forward == NULL, strcmp(node->op->name, "reshape") == 0);
        if (forward != NULL) {
            check_reads(lowered, &t, node, forward, false);
            assert_int_equal(forward->writes.count,
                             node->out_count + __builtin_popcountll(ckpt_node_saves(node, NULL)));
            ops++;
        }
        const ckpt_graph_op *const backward = op_named(m, g, node->name, "backward", &index);
        CHECK((backward != NULL) == t.backward[i], "backward of %s", node->name);
        if (backward != NULL) {
            check_reads(lowered, &t, node, backward, true);
            assert_true(index < last_backward); /* later layers first */
            last_backward = index;
            const ckpt_op_role *const role = &lowered->op_role[index];
            assert_int_equal(backward->workspace_bytes,
                             ckpt_round_up(node->backward_workspace_bytes, CKPT_ALIGN) +
                                 ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds));
            ops++;
        }
        bool updated = false;
        for (int k = 0; k < node->param_count; k++) {
            bool reached = false;
            if (node->param[k].tied < 0) {
                check_params(m, lowered, i, k, &reached);
            }
            updated = updated || reached;
        }
        const ckpt_graph_op *const update = op_named(m, g, node->name, "update", &index);
        assert_int_equal(update != NULL, updated);
        ops += update != NULL;
    }
    assert_int_equal(g->op_count, ops);
    for (int v = 0; v < n->value_count; v++) {
        if (t.storage[v] == v) {
            check_gradient(m, lowered, &t, v);
        }
        assert_int_equal(lowered->grad_buffer[v], lowered->grad_buffer[t.storage[v]]);
        assert_int_equal(lowered->value_buffer[v], lowered->value_buffer[t.storage[v]]);
    }
}

static void test_random_networks(void **state)
{
    int backward = 0;
    int added = 0;
    for (int round = 0; round < ROUNDS; round++) {
        test_model m;
        test_random_model(&m, LAYERS);
        const ckpt_lowered *const lowered = test_lower(&m);
        check(&m, lowered);
        for (int i = 0; i < lowered->graph->op_count; i++) {
            backward += lowered->graph->op[i].phase == CKPT_BACKWARD;
            added += lowered->graph->op[i].adds.count;
        }
        test_model_fini(&m);
    }
    /* The generator must not degenerate. */
    CHECK(backward > 4 * ROUNDS && added > ROUNDS / 2, "only %d backward ops and %d additions", backward, added);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_networks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
