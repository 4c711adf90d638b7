/* labels: unit */
/* Partitions of random small networks against all ways to cut them, with costs worked out here from names of the
 * graph; stages that the model gives; what is refused. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "ops/lowering/partition.h"
#include "tests/support/support_network.h"

enum { LAYERS = 14, ROUNDS = 600, STAGES = 5 };

/* ------------------------------------------------------------ networks */

static const char *any(test_model *m, int among)
{
    const int from = (int)ckpt_test_draw((uint64_t)among + 1);
    return from == among ? "x" : m->layer[from].name;
}

static void add_layer(test_model *m)
{
    const int n = m->model.layer_count;
    const char *const name = ckpt_arena_format(&m->arena, "n%d", n);
    const char *const in = ckpt_test_draw(3) == 0 || n == 0 ? any(m, n) : m->layer[n - 1].name;
    ckpt_layer *layer = NULL;
    switch (ckpt_test_draw(6)) {
    case 0:
    case 1:
        layer = test_layer(m, name, "linear", in, ckpt_test_draw(2) == 0 ? "features=8" : "features=8 bias=false");
        break;
    case 2: test_layer(m, name, "dropout", in, ""); break;
    case 3: test_layer(m, name, "reshape", in, "shape=[6,8]"); break;
    case 4: test_layer(m, name, "add", ckpt_arena_format(&m->arena, "%s %s", in, any(m, n)), ""); break;
    default: test_layer(m, name, "tanh", in, ""); break;
    }
    for (int i = 0; i < n && layer != NULL && layer->tie < 0; i++) {
        if (strcmp(m->layer[i].op, "linear") == 0 && ckpt_test_draw(12) == 0) {
            layer->tie = i;
        }
    }
}

static void build(test_model *m)
{
    test_model_rows(m, 6, 8);
    if (ckpt_test_draw(2) == 0) {
        test_optimizer(m, "adam", "lr=0.1");
    }
    const int count = 2 + (int)ckpt_test_draw(LAYERS - 3);
    for (int i = 0; i < count; i++) {
        add_layer(m);
    }
    test_layer(m, "loss", "mse", ckpt_arena_format(&m->arena, "n%d t", count - 1), "");
}

/* Some other time for every op, so that not all balance alike. */
static const ckpt_lowered *lower(test_model *m)
{
    const ckpt_lowered *const lowered = test_lower(m);
    const ckpt_graph *const g = lowered->graph;
    for (int o = 0; o < g->op_count; o++) {
        ((ckpt_graph_op *)&g->op[o])->time_ns = (ckpt_ns)ckpt_test_draw(4);
    }
    return lowered;
}

/* ------------------------------------------------------------ by hand */

/* Does the name begin with the layer's, and end there or go on with '/' or ':'? */
static bool is_of(const char *name, const char *layer)
{
    const size_t length = strlen(layer);
    return strncmp(name, layer, length) == 0 && (name[length] == '\0' || name[length] == '/' || name[length] == ':');
}

static void layer_figures(const ckpt_lowered *l, int n, int64_t *time, int64_t *stored)
{
    const char *const name = l->network->node[n].name;
    *time = 0;
    *stored = 0;
    for (int o = 0; o < l->graph->op_count; o++) {
        *time += is_of(l->graph->op[o].name, name) ? l->graph->op[o].time_ns : 0;
    }
    for (int b = 0; b < l->graph->buffer_count; b++) {
        const ckpt_buffer *const buffer = &l->graph->buffer[b];
        const bool written = ckpt_list_has(&l->graph->op[l->graph->writer[b]].writes, b); /* not by another way alone */
        *stored += written && is_of(buffer->name, name) && buffer->kind != CKPT_GRADIENT ? buffer->bytes : 0;
    }
}

static int owner_of(const ckpt_network *n, int node, int k)
{
    const int tied = n->node[node].param[k].tied;
    return tied >= 0 ? tied : node;
}

/* Bytes of the parameters of layers from .. to - 1: tied ones once, or, with `apart`, each copy. */
static int64_t params_of(const ckpt_network *n, int from, int to, bool apart)
{
    int64_t bytes = 0;
    for (int i = from; i < to; i++) {
        for (int k = 0; k < n->node[i].param_count; k++) {
            bool had = false;
            for (int other = from; other < i && !apart; other++) {
                had = had || (k < n->node[other].param_count && owner_of(n, other, k) == owner_of(n, i, k));
            }
            bytes += had ? 0 : ckpt_tensor_bytes(&n->node[i].param[k].tensor);
        }
    }
    return bytes;
}

static int copies_of(const ckpt_network *n)
{
    return strcmp(n->model->optimizer, "adam") == 0 ? 4 : 2; /* sgd without momentum */
}

/* What goes over a cut before layer c: every value made before that a later layer reads, itself or as another shape,
 * and its gradient. */
static int64_t sent_at(const ckpt_lowered *l, int c)
{
    const ckpt_network *const n = l->network;
    int64_t sum = 0;
    for (int b = 0; b < l->graph->buffer_count; b++) {
        bool crosses = false;
        const ckpt_buffer_role *const role = &l->buffer_role[b];
        const bool carried = role->holds == CKPT_HOLDS_VALUE || role->holds == CKPT_HOLDS_GRADIENT;
        for (int i = c; i < n->node_count && carried && n->value[role->value].node < c; i++) {
            for (int k = 0; k < n->node[i].in_count; k++) {
                crosses = crosses || n->value[n->node[i].in_value[k]].storage == role->value;
            }
        }
        sum += crosses ? l->graph->buffer[b].bytes : 0;
    }
    return sum;
}

/* May there be a cut before layer c? */
static bool may_cut(const ckpt_network *n, int c)
{
    for (int i = c; i < n->node_count; i++) {
        const int shown = n->value[n->node[i].in_value[0]].storage;
        if (strcmp(n->node[i].op->name, "reshape") == 0 && n->value[shown].node >= 0 && n->value[shown].node < c) {
            return false;
        }
    }
    return true;
}

typedef struct best {
    double cost;
    int64_t sent;
    int stages;
} best;

typedef struct tables {
    int64_t time[LAYERS + 1], stored[LAYERS + 1], sent[LAYERS + 1]; /* sums over the layers before */
    int64_t state[LAYERS + 1][LAYERS + 1];                          /* of the layers from .. to - 1 */
    bool may[LAYERS + 1];
    double weight;
    ckpt_scheme scheme;
} tables;

static void fill(const ckpt_lowered *l, double weight, const ckpt_scheme *scheme, tables *t)
{
    const int count = l->network->node_count;
    memset(t, 0, sizeof *t);
    t->weight = weight;
    t->scheme = *scheme;
    for (int n = 0; n < count; n++) {
        layer_figures(l, n, &t->time[n + 1], &t->stored[n + 1]);
        t->time[n + 1] += t->time[n];
        t->stored[n + 1] += t->stored[n];
        for (int to = n + 1; to <= count; to++) {
            t->state[n][to] = copies_of(l->network) * params_of(l->network, n, to, scheme->apart);
        }
        t->sent[n] = sent_at(l, n);
        t->may[n] = may_cut(l->network, n);
    }
}

/* Micro-batches whose forward stage s has done and whose backward it has not, at the most. */
static int held_by(const tables *t, int s, int stages)
{
    return t->scheme.micro_batches < stages - s ? t->scheme.micro_batches : stages - s;
}

/* Layers from .. to - 1 as stage s. */
static double part_cost(const tables *t, int count, int from, int to, int s, int stages)
{
    int held = 0;
    for (int i = 0; i < stages; i++) {
        held += held_by(t, i, stages);
    }
    const double time = (double)t->time[count];
    const double bytes = (double)t->state[0][count] + (double)t->stored[count] * held / stages;
    const int64_t here = t->state[from][to] + held_by(t, s, stages) * (t->stored[to] - t->stored[from]);
    return (time > 0 ? (1 - t->weight) / time : 0) * (double)(t->time[to] - t->time[from]) +
           (bytes > 0 ? t->weight / bytes : 0) * (double)here;
}

/* The cost and traffic of the cuts in `mask` (bit c: before layer c); stages 0: one is not allowed. */
static best judge(const ckpt_lowered *l, const tables *t, unsigned mask)
{
    const int count = l->network->node_count;
    best b = {.stages = 1};
    int from = 0, stages = 1;
    bool runs = false;
    for (int c = 1; c < count; c++) {
        stages += (mask >> c & 1) != 0;
    }
    for (int c = 1; c <= count; c++) {
        runs = runs || strcmp(l->network->node[c - 1].op->name, "reshape") != 0;
        const bool cut = c < count && (mask >> c & 1) != 0;
        if (cut || c == count) {
            const double cost = part_cost(t, count, from, c, b.stages - 1, stages);
            b.cost = cost > b.cost ? cost : b.cost;
            b.sent += cut ? t->sent[c] : 0;
            b.stages += cut;
            if (!runs || (cut && !t->may[c])) {
                return (best){.stages = 0};
            }
            from = c;
            runs = false;
        }
    }
    return b;
}

static unsigned mask_of(const ckpt_network *n, int stages, const char *const *first)
{
    unsigned mask = 0;
    assert_string_equal(first[0], n->node[0].name);
    for (int i = 0, s = 1; s < stages; i++) {
        CHECK(i < n->node_count, "no layer %s behind the stage before", first[s]);
        if (strcmp(n->node[i].name, first[s]) == 0) {
            mask |= 1u << i;
            s++;
        }
    }
    return mask;
}

static void check_parts(test_model *m, const ckpt_lowered *l, const tables *t, const ckpt_scheme *scheme)
{
    const ckpt_network *const n = l->network;
    const char *const *const first = scheme->first_layer;
    const ckpt_part *part = NULL;
    ckpt_err err;
    CHECK_OK(ckpt_partition_describe(n, l, scheme, &m->arena, &part, &err), err);
    int from = 0;
    for (int s = 0; s < scheme->stages; s++) {
        const int to = from + part[s].layers;
        assert_string_equal(part[s].first, first[s]);
        assert_string_equal(part[s].first, n->node[from].name);
        assert_string_equal(part[s].last, n->node[to - 1].name);
        assert_int_equal(part[s].time_ns, t->time[to] - t->time[from]);
        assert_int_equal(part[s].stored_bytes, t->stored[to] - t->stored[from]);
        assert_int_equal(part[s].state_bytes, t->state[from][to]);
        assert_int_equal(part[s].state_bytes, part[s].param_bytes * copies_of(n));
        assert_int_equal(part[s].sent_bytes, to < n->node_count ? t->sent[to] : 0);
        from = to;
    }
    assert_int_equal(from, n->node_count);
}

static void test_random_networks(void **state)
{
    int impossible = 0;
    int bound = 0;
    for (int round = 0; round < ROUNDS; round++) {
        test_model m;
        build(&m);
        const ckpt_lowered *const l = lower(&m);
        const int count = l->network->node_count;
        const double weight = (double)ckpt_test_draw(5) / 4;
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.micro_batches = 1 + (int)ckpt_test_draw(6);
        scheme.apart = ckpt_test_draw(4) == 0;
        tables t;
        best least[LAYERS + 1];
        fill(l, weight, &scheme, &t);
        for (int s = 0; s <= LAYERS; s++) {
            least[s] = (best){.cost = 1e9};
        }
        for (unsigned mask = 0; mask < 1u << count; mask += 2) {
            const best b = judge(l, &t, mask);
            best *const to = &least[b.stages];
            if (b.stages > 0 && (b.cost < to->cost || (b.cost <= to->cost && b.sent < to->sent))) {
                *to = b;
            }
        }
        for (int stages = 1; stages <= STAGES; stages++) {
            ckpt_err err;
            scheme.stages = stages;
            const ckpt_code code =
                ckpt_partition_choose(l->network, l, &scheme, weight, &m.arena, &scheme.first_layer, &err);
            if (least[stages].stages == 0) {
                assert_int_equal(code, CKPT_BAD_INPUT);
                impossible++;
                continue;
            }
            CHECK(code == CKPT_OK, "round %d, %d stages: %s", round, stages, err.msg);
            const best found = judge(l, &t, mask_of(l->network, stages, scheme.first_layer));
            assert_int_equal(found.stages, stages);
            CHECK(found.cost <= least[stages].cost, "round %d, %d stages: cost %.17g, brute force %.17g", round, stages,
                  found.cost, least[stages].cost);
            CHECK(found.sent == least[stages].sent, "round %d, %d stages: %lld bytes sent, brute force %lld", round,
                  stages, (long long)found.sent, (long long)least[stages].sent);
            check_parts(&m, l, &t, &scheme);
        }
        for (int c = 1; c < count; c++) {
            bound += !t.may[c];
        }
        test_model_fini(&m);
    }
    CHECK(impossible > ROUNDS / 20 && bound > ROUNDS, "%d impossible, %d cuts forbidden", impossible, bound);
}

/* ------------------------------------------------------------ refusals, and what the model says */

static void five_layers(test_model *m)
{
    test_model_rows(m, 6, 8);
    test_layer(m, "a", "linear", "x", "features=8");
    test_layer(m, "b", "tanh", "a", "");
    test_layer(m, "c", "reshape", "b", "shape=[12,4]");
    test_layer(m, "d", "reshape", "c", "shape=[6,8]");
    test_layer(m, "e", "linear", "d", "features=8");
    test_layer(m, "loss", "mse", "e t", "");
}

static void refused_choice(test_model *m, int stages, double weight, const char *wanted)
{
    const ckpt_lowered *const l = test_lower(m);
    const char *const *first = NULL;
    ckpt_err err;
    const ckpt_scheme scheme = {.micro_batches = 1, .replicas = 1, .stages = stages};
    assert_int_equal(ckpt_partition_choose(l->network, l, &scheme, weight, &m->arena, &first, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, wanted);
}

static void test_refused(void **state)
{
    test_model m;
    five_layers(&m);
    refused_choice(&m, 0, 0.5,
                   "test.json:13:5: layer d: is another shape of layer b, so both are in one stage: 0 stages, wanted 1 "
                   "to 4");
    refused_choice(&m, 5, 0.5,
                   "test.json:13:5: layer d: is another shape of layer b, so both are in one stage: 5 stages, wanted 1 "
                   "to 4");
    refused_choice(&m, 2, 1.5, "memory weight 1.5, wanted 0 to 1");
    test_model_fini(&m);
}

static void test_tied_layers_may_be_in_two_stages(void **state)
{
    test_model m;
    five_layers(&m);
    m.layer[4].tie = 0;
    const ckpt_lowered *const l = test_lower(&m);
    const char *const *first = NULL;
    ckpt_err err = {0};
    const ckpt_scheme scheme = {.micro_batches = 1, .replicas = 1, .stages = 4};
    CHECK_OK(ckpt_partition_choose(l->network, l, &scheme, 0.5, &m.arena, &first, &err), err);
    assert_string_equal(first[2], "e");
    test_model_fini(&m);
}

static void test_given(void **state)
{
    static const struct {
        int stage[6]; /* of a, b, c, d, e, loss */
        int stages;
        const char *first; /* or the message */
    } cases[] = {
        {{-1, -1, -1, -1, -1, -1}, 0, ""},
        {{0, -1, -1, -1, -1, -1}, 1, "a"},
        {{-1, -1, -1, -1, 1, -1}, 2, "a e"},
        {{0, 1, 1, -1, 2, 3}, 4, "a b e loss"},
        {{1, -1, -1, -1, -1, -1}, -1, "test.json:10:5: layer a: stage 1, wanted 0 in the first layer"},
        {{0, 2, -1, -1, -1, -1}, -1, "test.json:11:5: layer b: stage 2 behind a layer of stage 0, wanted 0 or 1"},
        {{0, 1, -1, 0, -1, -1}, -1, "test.json:13:5: layer d: stage 0 behind a layer of stage 1, wanted 1 or 2"},
        {{0, -1, 1, -1, 2, -1}, -1, "test.json:14:5: layer e: stage 2, but nothing runs in stage 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_model m;
        five_layers(&m);
        for (int n = 0; n < 6; n++) {
            m.layer[n].stage = cases[i].stage[n];
        }
        const ckpt_network *const network = test_infer(&m);
        const char *const *first = NULL;
        int stages = -1;
        ckpt_err err = {.msg = ""};
        const ckpt_code code = ckpt_partition_given(network, &m.arena, &stages, &first, &err);
        assert_int_equal(code, cases[i].stages < 0 ? CKPT_BAD_INPUT : CKPT_OK);
        assert_int_equal(stages, cases[i].stages);
        char text[256] = "";
        for (int s = 0; s < stages; s++) {
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), s > 0 ? " %s" : "%s", first[s]);
        }
        assert_string_equal(stages < 0 ? err.msg : text, cases[i].first);
        assert_int_equal(first == NULL, stages <= 0);
        test_model_fini(&m);
    }
}

static void test_describe_refused(void **state)
{
    test_model m;
    five_layers(&m);
    const ckpt_lowered *const l = test_lower(&m);
    static const char *const bad[][2] = {{"b", "e"}, {"a", "a"}, {"a", "zz"}};
    for (int i = 0; i < 3; i++) {
        const ckpt_part *part = NULL;
        ckpt_err err;
        const ckpt_scheme scheme = {.micro_batches = 1, .replicas = 1, .stages = 2, .first_layer = bad[i]};
        assert_int_equal(ckpt_partition_describe(l->network, l, &scheme, &m.arena, &part, &err), CKPT_BAD_INPUT);
    }
    test_model_fini(&m);
}

/* The last layers can have nothing that runs only behind an alias: of "x", which any stage has. */
static void test_nothing_runs_at_the_end(void **state)
{
    test_model m;
    five_layers(&m);
    m.model.layer_count = 4;
    m.layer[3].stage = 1;
    const char *const *first = NULL;
    int stages = -1;
    ckpt_err err;
    assert_int_equal(ckpt_partition_given(test_infer(&m), &m.arena, &stages, &first, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "test.json: nothing runs in stage 1, which begins with layer d");
    test_model_fini(&m);
}

static ckpt_code all(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_lowered *const l = context;
    ckpt_scheme scheme = {.micro_batches = 2, .replicas = 1, .stages = 3};
    const ckpt_part *part = NULL;
    int stages = 0;
    ckpt_code code = ckpt_partition_given(l->network, arena, &stages, &scheme.first_layer, err);
    code = code == CKPT_OK ? ckpt_partition_choose(l->network, l, &scheme, 0.5, arena, &scheme.first_layer, err) : code;
    return code == CKPT_OK ? ckpt_partition_describe(l->network, l, &scheme, arena, &part, err) : code;
}

static void test_no_memory(void **state)
{
    test_model m;
    five_layers(&m);
    ckpt_test_starve_arena(all, (void *)test_lower(&m));
    test_model_fini(&m);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_networks),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tied_layers_may_be_in_two_stages),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_nothing_runs_at_the_end),
        cmocka_unit_test(test_describe_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
