/* labels: unit */
/* Steps of several micro-batches and of fused gradients against the plain step of the same network, and the static
 * block of every scheme. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_scheme.h"

enum { ROUNDS = 300, FEW = 60, LAYERS = 30 };

static bool is_param_gradient(const ckpt_lowered *lowered, int buffer)
{
    return lowered->buffer_role[buffer].holds == CKPT_HOLDS_PARAM_GRADIENT;
}

/* Names of a list without gradients of parameters and without the micro-batch, in order. */
static const char *plain_list(test_model *m, const ckpt_lowered *lowered, ckpt_list list, int batch)
{
    const char *text = "";
    for (int i = 0; i < list.count; i++) {
        if (!is_param_gradient(lowered, list.at[i])) {
            text = ckpt_arena_format(&m->arena, "%s %s", text,
                                     test_plain_name(m, lowered->graph->buffer[list.at[i]].name, batch));
            assert_non_null(text);
        }
    }
    return text;
}

/* Everything of an op that must be the same in each micro-batch. */
static const char *plain_op(test_model *m, const ckpt_lowered *lowered, int i, int batch)
{
    const ckpt_graph_op *const op = &lowered->graph->op[i];
    const ckpt_op_role *const role = &lowered->op_role[i];
    const char *const text = ckpt_arena_format(
        &m->arena, "%s | %s | %s |%s >%s +%s | %d %d %llx %d | %s %s %d", test_plain_name(m, op->name, batch),
        test_plain_name(m, op->layer, batch), ckpt_phase_name(op->phase), plain_list(m, lowered, op->reads, batch),
        plain_list(m, lowered, op->writes, batch), plain_list(m, lowered, op->adds, batch), role->task, role->node,
        (unsigned long long)role->grad_in_adds, op->recompute,
        op->segment != NULL ? test_plain_name(m, op->segment, batch) : "-",
        op->inplace_count > 0 ? test_plain_name(m, lowered->graph->buffer[op->inplace[0].in].name, batch) : "-",
        op->checkpoint);
    assert_non_null(text);
    return text;
}

/* The next op at or behind `i` of that micro-batch (-1: an update). */
static int next_op(const ckpt_lowered *lowered, int i, int batch)
{
    while (i < lowered->graph->op_count && lowered->op_role[i].batch != batch) {
        i++;
    }
    return i;
}

/* A micro-batch alone is the plain step, but for the gradients of parameters, which it adds to. */
static void compare_batch(test_model *m, const ckpt_lowered *plain, const ckpt_lowered *spread, int batch)
{
    int a = 0, b = 0;
    for (;; a++, b++) {
        a = next_op(plain, a, 0);
        b = next_op(spread, b, batch);
        if (a == plain->graph->op_count || b == spread->graph->op_count) {
            break;
        }
        const char *const wanted = plain_op(m, plain, a, -1);
        const char *const found = plain_op(m, spread, b, batch);
        CHECK(strcmp(wanted, found) == 0, "micro-batch %d: found\n%s\nwanted\n%s", batch, found, wanted);
        const ckpt_graph_op *const one = &plain->graph->op[a];
        const ckpt_graph_op *const other = &spread->graph->op[b];
        const ckpt_op_role *const role = &spread->op_role[b];
        const ckpt_node *const node = &plain->network->node[role->node];
        const uint64_t all = ((uint64_t)1 << node->param_count) - 1;
        assert_int_equal(role->grad_param_adds, other->phase != CKPT_BACKWARD ? 0
                                                : batch == 0                  ? plain->op_role[a].grad_param_adds
                                                                              : all);
        const ckpt_bytes more = ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds) -
                                ckpt_staging_bytes(node, role->grad_in_adds, plain->op_role[a].grad_param_adds);
        assert_int_equal(other->workspace_bytes, one->workspace_bytes + more);
        assert_true(more > 0 ? other->time_ns >= one->time_ns : other->time_ns == one->time_ns);
    }
    assert_int_equal(a, plain->graph->op_count);
    assert_int_equal(b, spread->graph->op_count);
}

static int count_updates(const ckpt_lowered *lowered)
{
    int count = 0;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        count += lowered->graph->op[i].phase == CKPT_UPDATE;
    }
    return count;
}

/* Each update once, of the same layers; the tables lead to buffers of the right names; all losses come out. */
static void compare_rest(test_model *m, const ckpt_lowered *plain, const ckpt_lowered *spread)
{
    const int batches = spread->network->scheme.micro_batches;
    const ckpt_graph *const g = spread->graph;
    assert_int_equal(count_updates(plain), count_updates(spread));
    for (int i = 0; i < plain->graph->op_count; i++) {
        assert_true(plain->op_role[i].batch >= 0 || ckpt_graph_find_op(g, plain->graph->op[i].name) >= 0);
    }
    assert_int_equal(g->outputs.count, plain->graph->outputs.count * batches);
    for (int j = 0; j < g->outputs.count; j++) {
        assert_int_equal(spread->buffer_role[g->outputs.at[j]].batch, j);
    }
    const int values = plain->network->value_count;
    for (int v = 0; v < batches * values; v++) {
        const int *const wanted[] = {plain->value_buffer, plain->grad_buffer};
        const int found[] = {spread->value_buffer[v], spread->grad_buffer[v]};
        for (int k = 0; k < 2; k++) {
            const int there = wanted[k][v % values];
            assert_int_equal(there < 0, found[k] < 0);
            if (there >= 0) {
                assert_string_equal(plain->graph->buffer[there].name,
                                    test_plain_name(m, g->buffer[found[k]].name, v / values));
                assert_int_equal(spread->buffer_role[found[k]].batch, v / values);
            }
        }
    }
    const int saved = plain->network->node_count * CKPT_SAVED_MAX;
    for (int s = 0; s < batches * saved; s++) {
        const int there = plain->saved_buffer[s % saved];
        assert_int_equal(there < 0, spread->saved_buffer[s] < 0);
        if (there >= 0) {
            assert_string_equal(plain->graph->buffer[there].name,
                                test_plain_name(m, g->buffer[spread->saved_buffer[s]].name, s / saved));
        }
    }
}

static void test_micro_batches_are_plain_steps(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    for (uint64_t round = 0; round < rounds; round++) {
        test_model m;
        test_random_model(&m, LAYERS);
        const ckpt_network *const network = test_infer(&m);
        const ckpt_lowered *const plain = test_lower_network(&m, network);
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.micro_batches = 1 + (int)ckpt_test_draw(5);
        scheme.fused = ckpt_test_draw(2) == 0;
        const ckpt_lowered *const spread = test_lower_network(&m, test_spread(&m, network, scheme));
        for (int j = 0; j < scheme.micro_batches; j++) {
            compare_batch(&m, plain, spread, j);
        }
        compare_rest(&m, plain, spread);
        test_model_fini(&m);
    }
}

static bool lists(ckpt_list list, int buffer)
{
    for (int i = 0; i < list.count; i++) {
        if (list.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* Does the op give to any gradient that `update` reads? */
static bool feeds(const ckpt_graph *g, int op, int update)
{
    bool any = false;
    for (int r = 0; r < g->op[update].reads.count; r++) {
        const int buffer = g->op[update].reads.at[r];
        any = any || lists(g->op[op].adds, buffer) || g->writer[buffer] == op;
    }
    return any;
}

static bool is_backward(const ckpt_lowered *lowered, int op)
{
    return lowered->op_role[op].task == CKPT_TASK_LAYER && lowered->op_role[op].phase == CKPT_BACKWARD;
}

/* A gradient of a parameter is read by one op alone, the update of its layer, behind all that add to it. That stands
 * right behind the last backward that it waits for, messages and another update aside; where stages have copies of a
 * parameter behind all backwards, and behind their sum. */
static void check_param_gradient(const ckpt_lowered *lowered, int buffer)
{
    const ckpt_graph *const g = lowered->graph;
    const ckpt_network *const network = lowered->network;
    int update = -1, last_add = g->writer[buffer], sums = 0;
    for (int i = 0; i < g->op_count; i++) {
        last_add = lists(g->op[i].adds, buffer) ? i : last_add;
        sums += lists(g->op[i].adds, buffer) && lowered->op_role[i].task == CKPT_TASK_REDUCE_TIED;
        if (lists(g->op[i].reads, buffer)) {
            assert_int_equal(update, -1);
            update = i;
        }
    }
    assert_true(update > last_add);
    assert_int_equal(g->op[update].phase, CKPT_UPDATE);
    assert_int_equal(lowered->op_role[update].node, lowered->buffer_role[buffer].node);
    const int node = lowered->buffer_role[buffer].node;
    bool copied = false, late = false;
    for (int i = 0; i < network->tied_group_count; i++) {
        for (int h = 0; h < network->tied_group[i].holder_count; h++) {
            late = late || network->tied_group[i].holder[h] == node;
            copied = copied || (network->tied_group[i].holder[h] == node &&
                                network->tied_group[i].param == lowered->buffer_role[buffer].saved);
        }
    }
    assert_int_equal(sums, copied);
    if (late) {
        for (int i = update + 1; i < g->op_count; i++) {
            assert_false(is_backward(lowered, i));
        }
        return;
    }
    for (int i = update - 1; !feeds(g, i, update); i--) {
        CHECK(!is_backward(lowered, i), "%s does not stand right behind what it waits for", g->op[update].name);
    }
}

/* Would an op behind the update of `owner` ask for something that can only be had by a run with its weights? All that
 * it reads or adds to, what may be recomputed for that, and so on. */
static void check_no_run_again(const ckpt_lowered *lowered, int update, int owner, bool *seen)
{
    const ckpt_graph *const g = lowered->graph;
    memset(seen, 0, (size_t)g->buffer_count);
    for (int i = update + 1; i < g->op_count; i++) {
        for (int k = 0; k < g->op[i].reads.count; k++) {
            seen[g->op[i].reads.at[k]] = true;
        }
    }
    for (int i = g->op_count - 1; i >= 0; i--) {
        bool wanted = false;
        for (int k = 0; k < g->op[i].writes.count; k++) {
            wanted = wanted || seen[g->op[i].writes.at[k]];
        }
        if (!wanted || !g->op[i].recompute) {
            continue;
        }
        const ckpt_node *const node = &lowered->network->node[lowered->op_role[i].node];
        for (int k = 0; k < node->param_count; k++) {
            const int from = node->param[k].tied >= 0 ? node->param[k].tied : node->index;
            CHECK(from != owner, "%s may have to run again behind %s", g->op[i].name, g->op[update].name);
        }
        for (int k = 0; k < g->op[i].reads.count; k++) {
            seen[g->op[i].reads.at[k]] = true;
        }
    }
}

static void test_fused_gradients(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int gradients = 0, shared = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        test_model m;
        test_random_model(&m, LAYERS);
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.micro_batches = 1 + (int)ckpt_test_draw(4);
        scheme.stages = 1 + (int)ckpt_test_draw(3);
        scheme.fused = true;
        const ckpt_network *const alone = test_infer(&m);
        const ckpt_network *const network = test_spread(&m, alone, scheme);
        shared += network->tied_group_count;
        for (int s = 0; s < network->scheme.stages; s++) {
            const ckpt_lowered *const lowered = test_lower_network(&m, test_stage(&m, alone, network->scheme, s));
            bool *const seen = CKPT_NEW(&m.arena, bool, lowered->graph->buffer_count);
            assert_non_null(seen);
            for (int b = 0; b < lowered->graph->buffer_count; b++) {
                if (is_param_gradient(lowered, b)) {
                    check_param_gradient(lowered, b);
                    const ckpt_buffer_role *const role = &lowered->buffer_role[b];
                    assert_int_equal(lowered->param_grad_buffer[role->node * CKPT_PARAM_MAX + role->saved], b);
                    gradients++;
                }
            }
            for (int i = 0; i < lowered->graph->op_count; i++) {
                if (lowered->graph->op[i].phase == CKPT_UPDATE) {
                    check_no_run_again(lowered, i, lowered->op_role[i].node, seen);
                }
            }
            assert_string_equal(lowered->graph->statics[1].name, "gradients");
            assert_int_equal(lowered->graph->statics[1].bytes, 0);
        }
        test_model_fini(&m);
    }
    assert_true(gradients > (int)rounds && shared > 0);
}

/* What a person wrote down. */
static void test_names_by_hand(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
    test_input(&m, "t", CKPT_FLOAT32, 2, (int64_t[]){4, 4});
    ckpt_layer *const first = test_layer(&m, "fc", "linear", "", "features=8");
    first->checkpoint = CKPT_YES;
    first->segment = "h.0/h.0.mlp";
    test_layer(&m, "cut", "split", "", "parts=2");
    test_layer(&m, "loss", "mse", "cut:1 t", "");
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = 2;
    scheme.fused = true;
    const ckpt_lowered *const lowered = test_lower_network(&m, test_spread(&m, test_infer(&m), scheme));
    const ckpt_graph *const g = lowered->graph;
    static const char *const wanted[] = {
        "fc@0/forward",   "cut@0/forward", "loss@0/forward", "loss@0/backward", "cut@0/backward",
        "fc@0/backward",  "fc@1/forward",  "cut@1/forward",  "loss@1/forward",  "loss@1/backward",
        "cut@1/backward", "fc@1/backward", "fc/update",
    };
    assert_int_equal(g->op_count, sizeof wanted / sizeof wanted[0]);
    for (int i = 0; i < g->op_count; i++) {
        assert_string_equal(g->op[i].name, wanted[i]);
    }
    assert_string_equal(g->op[6].layer, "fc@1");
    assert_string_equal(g->op[6].segment, "h.0@1/h.0.mlp@1");
    assert_string_equal(g->op[12].layer, "fc");
    assert_string_equal(test_names(&m, g, g->op[7].writes), "cut@1 cut@1:1");
    assert_string_equal(test_names(&m, g, g->op[9].writes), "cut@1:1/grad");
    assert_string_equal(test_names(&m, g, g->op[5].writes), "fc/weight/grad fc/bias/grad");
    assert_string_equal(test_names(&m, g, g->op[11].adds), "fc/weight/grad fc/bias/grad");
    assert_string_equal(test_names(&m, g, g->op[12].reads), "fc/weight/grad fc/bias/grad");
    assert_string_equal(test_names(&m, g, g->outputs), "loss@0 loss@1");
    assert_int_equal(g->static_count, 6);
    assert_string_equal(g->statics[5].name, "scales");
    assert_int_equal(g->statics[5].bytes, 128); /* two floats in a line, three squares in the next */
    test_model_fini(&m);
}

/* Sections in order, what lies in them apart, and their sum the graph's. */
static void check_layout(test_model *m, const ckpt_network *network)
{
    ckpt_static_layout s;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_statics(network, &m->arena, &s, &err), err);
    const ckpt_scheme *const scheme = &network->scheme;
    const int slots = network->optimizer->slots(network->hyper);
    assert_int_equal(s.weights, 0);
    assert_int_equal(s.gradients, s.weight_bytes);
    assert_int_equal(s.optimizer, s.gradients + (scheme->fused ? 0 : s.weight_bytes));
    assert_int_equal(s.statistics, s.optimizer + slots * s.slot_bytes);
    assert_true(s.inputs >= s.statistics && s.weights16 >= s.inputs && s.scales >= s.weights16 && s.total >= s.scales);
    if (!scheme->shard_optimizer) {
        assert_int_equal(s.slot_bytes, s.weight_bytes);
    }
    const bool scaled =
        scheme->micro_batches > 1 || scheme->replicas > 1 || network->clip_norm > 0 || network->loss_scale != 1;
    assert_int_equal(s.total - s.scales, scaled ? 64 + (8 * network->node_count + 63) / 64 * 64 : 0);
    ckpt_bytes weights = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            const ckpt_bytes at = s.param[n * CKPT_PARAM_MAX + k];
            if (network->stage_of[n] != scheme->stage) {
                assert_int_equal(at, -1);
            } else if (node->param[k].tied < 0) {
                assert_int_equal(at, weights);
                weights += (ckpt_tensor_bytes(&node->param[k].tensor) + 63) / 64 * 64;
            } else {
                assert_int_equal(at, s.param[node->param[k].tied * CKPT_PARAM_MAX + k]);
            }
        }
    }
    assert_int_equal(weights, s.weight_bytes);
    ckpt_bytes stats = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->stat_count; k++) {
            const bool here = network->stage_of[n] == scheme->stage;
            assert_int_equal(s.stat[n * CKPT_STAT_MAX + k], here ? stats : -1);
            stats += here ? (ckpt_tensor_bytes(&node->stat[k].tensor) + 63) / 64 * 64 : 0;
        }
    }
    assert_int_equal(s.inputs - s.statistics, stats);
    ckpt_bytes inputs = 0;
    for (int i = 0; i < network->model->input_count * scheme->micro_batches; i++) {
        const ckpt_tensor *const input = &network->model->input[i % network->model->input_count];
        bool read = scheme->stages == 1;
        for (int n = 0; n < network->node_count; n++) {
            for (int k = 0; k < network->node[n].in_count; k++) {
                const int storage = network->value[network->node[n].in_value[k]].storage;
                read = read || (storage == i % network->model->input_count && !network->node[n].alias &&
                                network->stage_of[n] == scheme->stage);
            }
        }
        assert_int_equal(s.input[i], read ? inputs : -1);
        inputs += read ? (ckpt_tensor_bytes(input) + 63) / 64 * 64 : 0;
    }
    assert_int_equal(s.weights16 - s.inputs, inputs);
    assert_int_equal(test_lower_network(m, network)->graph->static_bytes, s.total);
}

static void test_static_block(void **state)
{
    for (int round = 0; round < 200; round++) {
        test_model m;
        test_random_model(&m, LAYERS);
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.micro_batches = 1 + (int)ckpt_test_draw(4);
        scheme.stages = 1 + (int)ckpt_test_draw(4);
        scheme.replicas = 1 + (int)ckpt_test_draw(3);
        scheme.fused = ckpt_test_draw(2) == 0;
        scheme.shard_optimizer = scheme.replicas > 1 && ckpt_test_draw(2) == 0;
        scheme.bucket_bytes = 1 + (ckpt_bytes)ckpt_test_draw(2000);
        ckpt_network network = *test_infer(&m);
        network.loss_scale = ckpt_test_draw(3) == 0 ? 1024 : 1;
        const ckpt_network *const spread = test_spread(&m, &network, scheme);
        for (int s = 0; s < spread->scheme.stages; s++) {
            check_layout(&m, test_stage(&m, &network, spread->scheme, s));
        }
        test_model_fini(&m);
    }
}

/* So many micro-batches that inputs, or the numbers of ops, do not fit. */
static void test_too_many(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){1 << 18, (int64_t)1 << 36});
    test_layer(&m, "act", "relu", "", "");
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = CKPT_MICRO_BATCHES_MAX;
    ckpt_err err = {0};
    const ckpt_lowered *lowered = NULL;
    const ckpt_network *const network = test_spread(&m, test_infer(&m), scheme);
    assert_int_equal(ckpt_network_lower(network, NULL, NULL, &m.arena, &lowered, &err), CKPT_OVERFLOW);
    ckpt_static_layout s;
    assert_int_equal(ckpt_network_statics(network, &m.arena, &s, &err), CKPT_OVERFLOW);
    ckpt_network endless = *network; /* more than any option takes */
    endless.scheme.micro_batches = INT32_MAX;
    assert_int_equal(ckpt_network_lower(&endless, NULL, NULL, &m.arena, &lowered, &err), CKPT_OVERFLOW);
    assert_non_null(strstr(err.msg, "2147483647 micro-batches"));
    test_model_fini(&m);
}

/* What was measured is of one micro-batch, and of the update of the whole layer. */
static void test_profile(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "fc", "linear", "", "features=8");
    test_layer(&m, "loss", "mse", "fc t", "");
    const ckpt_profile_row rows[] = {
        {.layer = "fc",
         .op = "linear",
         .forward = {.median_ns = 10, .repeats = 3},
         .backward = {.median_ns = 20, .repeats = 3},
         .update = {.median_ns = 30, .repeats = 3}},
        {.layer = "loss", .op = "mse", .forward = {.median_ns = 5, .repeats = 3}},
    };
    const ckpt_profile profile = {.source = "p.json", .row = rows, .row_count = 2};
    for (int sharded = 0; sharded < 2; sharded++) {
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.micro_batches = 2;
        scheme.replicas = 3;
        scheme.shard_optimizer = sharded == 1;
        const ckpt_lowered *lowered = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_network_lower(test_spread(&m, test_infer(&m), scheme), &profile, NULL, &m.arena, &lowered, &err),
                 err);
        const ckpt_graph *const g = lowered->graph;
        for (int i = 0; i < g->op_count; i++) {
            const ckpt_op_role *const role = &lowered->op_role[i];
            if (role->task == CKPT_TASK_LAYER && role->node == 0) {
                assert_int_equal(g->op[i].time_ns, role->phase == CKPT_FORWARD    ? 10
                                                   : role->phase == CKPT_BACKWARD ? 20
                                                   : sharded                      ? 10
                                                                                  : 30);
            }
        }
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
    m.layer[1].checkpoint = CKPT_YES;
    m.layer[1].segment = "a/b";
    ckpt_network network = *test_infer(&m);
    const char *const first[] = {"fc", "norm", "sum"};
    for (int kind = 0; kind < 4; kind++) {
        ckpt_err err = {0};
        const ckpt_network *spread = NULL;
        const ckpt_scheme scheme = {.micro_batches = 2,
                                    .replicas = 2,
                                    .stages = 3,
                                    .stage = 1,
                                    .first_layer = first,
                                    .fused = kind >= 2,
                                    .shard_optimizer = kind % 2 == 1,
                                    .overlap = kind % 2 == 0,
                                    .bucket_bytes = 1,
                                    .network_bytes_per_s = 1000};
        network.clip_norm = kind < 2 ? 1 : 0;
        CHECK_OK(ckpt_network_spread(&network, &scheme, &m.arena, &spread, &err), err);
        test_lower_starved(spread);
    }
    test_model_fini(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches_are_plain_steps),
        cmocka_unit_test(test_fused_gradients),
        cmocka_unit_test(test_names_by_hand),
        cmocka_unit_test(test_static_block),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_starved),
    };
    ckpt_test_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
