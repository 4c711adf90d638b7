/* labels: unit */
/* On a GPU one buffer may stand for the gradients of a sum and of what it sums (ops/lowering/lower_pass.c). Held
 * against the CPU's lowering of the same random network, in which each has its own: whoever reads a gradient, a
 * backward or a message, must find the same terms added in the same order. The order of ops is followed with symbols
 * for numbers: each gradient is the hash of its terms, a copy of a gradient is that gradient. And how much is saved in
 * networks people know. */
#include "tests/support/support_test.h"

#include <string.h>

#include "core/formats/model.h"
#include "tests/support/support_scheme.h"

enum { ROUNDS = 400, LAYERS = 30 };

static uint64_t mix(uint64_t a, uint64_t b)
{
    return (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
}

static uint64_t atom(int what, int batch, int k)
{
    return mix(mix(mix(1, (uint64_t)what), (uint64_t)batch + 77), (uint64_t)k + 7777);
}

/* Follows the step; found[op]: hash of the gradients that the op reads, 0 where it is no backward and no message. */
static uint64_t *follow(test_model *m, const ckpt_lowered *lowered)
{
    const ckpt_network *const n = lowered->network;
    const ckpt_graph *const g = lowered->graph;
    uint64_t *const found = CKPT_NEW(&m->arena, uint64_t, g->op_count);
    uint64_t *const state = CKPT_NEW(&m->arena, uint64_t, g->buffer_count);
    assert_true(found != NULL && state != NULL);
    for (int o = 0; o < g->op_count; o++) {
        const ckpt_op_role *const role = &lowered->op_role[o];
        if (role->batch < 0) {
            continue;
        }
        const int *const grad = &lowered->grad_buffer[role->batch * n->value_count];
        if (role->task == CKPT_TASK_RECEIVE && role->gradient) {
            state[grad[role->value]] = atom(role->value, role->batch, -1);
        } else if (role->task == CKPT_TASK_SEND && role->gradient) {
            found[o] = state[grad[role->value]];
        } else if (role->task == CKPT_TASK_LAYER && role->phase == CKPT_BACKWARD) {
            const ckpt_node *const node = &n->node[role->node];
            const int out = grad[node->out_value[0]];
            const uint64_t slope = out >= 0 ? state[out] : 0;
            found[o] = 1;
            for (int k = 0; k < node->out_count; k++) {
                const int buffer = grad[node->out_value[k]];
                found[o] = mix(found[o], buffer >= 0 ? state[buffer] : 0);
            }
            for (int k = 0; k < node->in_count; k++) {
                const int buffer = grad[node->in_value[k]];
                const uint64_t term = strcmp(node->op->name, "add") == 0 ? slope : atom(node->index, role->batch, k);
                if ((node->grad_in >> k & 1) != 0) {
                    state[buffer] = (role->grad_in_adds >> k & 1) != 0 ? mix(state[buffer], term) : term;
                }
            }
        }
    }
    return found;
}

/* Gives how many buffers fewer the GPU's has. */
static int compare(test_model *m, const ckpt_network *gpu)
{
    ckpt_network cpu = *gpu;
    cpu.threads = 1;
    const ckpt_lowered *const wanted = test_lower_network(m, &cpu), *const found = test_lower_network(m, gpu);
    const uint64_t *const want = follow(m, wanted), *const has = follow(m, found);
    int at = 0;
    for (int o = 0; o < wanted->graph->op_count; o++) {
        const char *const name = wanted->graph->op[o].name;
        const ckpt_op_role *const role = &wanted->op_role[o];
        if (at < found->graph->op_count && strcmp(found->graph->op[at].name, name) == 0) {
            CHECK(has[at] == want[o], "%s reads another gradient", name);
            at++;
            continue;
        }
        CHECK(role->phase == CKPT_BACKWARD && strcmp(gpu->node[role->node].op->name, "add") == 0, "%s is missing",
              name);
    }
    assert_int_equal(at, found->graph->op_count);
    return wanted->graph->buffer_count - found->graph->buffer_count;
}

static void random_networks(void **state)
{
    int saved = 0;
    for (int round = 0; round < ROUNDS; round++) {
        test_model m;
        ckpt_err err = {0};
        const ckpt_network *plain = NULL;
        test_random_model(&m, LAYERS);
        CHECK_OK(ckpt_network_infer(&m.model, CKPT_ON_GPU, &m.arena, &plain, &err), err);
        saved += compare(&m, plain);
        const ckpt_scheme scheme = {.micro_batches = 1 + (int)ckpt_test_draw(2),
                                    .replicas = 1,
                                    .stages = 1 + (int)ckpt_test_draw(3),
                                    .fused = ckpt_test_draw(2) == 0,
                                    .bucket_bytes = 1024,
                                    .network_bytes_per_s = 1000000000};
        const ckpt_network *const spread = test_spread(&m, plain, scheme);
        for (int s = 0; s < spread->scheme.stages; s++) {
            (void)compare(&m, test_stage(&m, plain, spread->scheme, s));
        }
        test_model_fini(&m);
    }
    CHECK(saved > ROUNDS / 4, "only %d buffers saved", saved);
}

static int gradient_of(const ckpt_lowered *lowered, char name)
{
    const char text[2] = {name, '\0'};
    for (int v = 0; v < lowered->network->value_count; v++) {
        if (strcmp(lowered->network->value[v].name, text) == 0) {
            return lowered->grad_buffer[v];
        }
    }
    fail_msg("no value %s", text);
    return -1;
}

/* Every two layers named in `groups` have one gradient when they stand in one group, else two. */
static void check_groups(const ckpt_lowered *lowered, const char *groups)
{
    for (const char *a = groups; *a != '\0'; a++) {
        bool together = true;
        for (const char *b = a + 1; *b != '\0'; b++) {
            together = together && *b != ' ';
            if (*a != ' ' && *b != ' ') {
                CHECK((gradient_of(lowered, *a) == gradient_of(lowered, *b)) == together, "%s: %c and %c", groups, *a,
                      *b);
            }
        }
    }
}

static void sums_by_hand(void **state)
{
    static const struct {
        const char *layers; /* "name op inputs", separated by ';' */
        const char *groups; /* layers whose gradients are one buffer stand together */
        const char *gone;   /* sums of whose backward nothing is left */
    } network[] = {
        /* a residual block: the branch has been read when the norm adds to the stream */
        {"a linear x;n layernorm a;f linear n;s add a f", "saf n", "s"},
        /* g adds to the stream before f's gradient is read: the stream has a copy */
        {"a linear x;f linear a;g relu a;s add a f;m mul s g", "sf a g", ""},
        /* one value twice */
        {"a linear x;s add a a", "s a", ""},
        /* a sum of sums: p is read last and may hand the buffer on; or c is, and p may not */
        {"a linear x;b linear x;p add a b;c linear x;s add p c", "spcab", "sp"},
        {"a linear x;b linear x;c linear x;p add a b;s add p c", "spc a b", "s"},
        /* both inputs of s are added to: one of them may have its buffer */
        {"a linear x;b linear x;c relu a;d relu b;s add a b;e add c d;f add s e", "fsea b c d", "f"},
    };
    for (size_t i = 0; i < sizeof network / sizeof network[0]; i++) {
        test_model m;
        ckpt_err err = {0};
        const ckpt_network *n = NULL;
        test_model_rows(&m, 6, 8);
        char *outer = NULL, *inner = NULL, last = ' ';
        for (char *layer = strtok_r(ckpt_arena_text(&m.arena, network[i].layers), ";", &outer); layer != NULL;
             layer = strtok_r(NULL, ";", &outer)) {
            const char *const name = strtok_r(layer, " ", &inner), *const op = strtok_r(NULL, " ", &inner);
            test_layer(&m, name, op, inner, strcmp(op, "linear") == 0 ? "features=8" : "");
            last = name[0];
        }
        test_layer(&m, "loss", "mse", ckpt_arena_format(&m.arena, "%c t", last), "");
        test_optimizer(&m, "sgd", "");
        CHECK_OK(ckpt_network_infer(&m.model, CKPT_ON_GPU, &m.arena, &n, &err), err);
        (void)compare(&m, n);
        const ckpt_lowered *const lowered = test_lower_network(&m, n);
        check_groups(lowered, network[i].groups);
        for (int k = 0; k < n->node_count; k++) {
            const ckpt_node *const node = &n->node[k];
            const char *const name = ckpt_arena_format(&m.arena, "%s/backward", node->name);
            const bool gone = strchr(network[i].gone, node->name[0]) != NULL && strcmp(node->op->name, "add") == 0;
            CHECK((ckpt_graph_find_op(lowered->graph, name) < 0) == gone, "%s of %s", name, network[i].layers);
        }
        test_model_fini(&m);
    }
}

/* No sum of a transformer's or ResNet's residual stream copies anything. */
static void networks_people_know(void **state)
{
    static const char *const file[] = {"gpt2-124m", "bert-large", "resnet50", "mobilenetv2"};
    for (size_t i = 0; i < sizeof file / sizeof file[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_model *model = NULL;
        const ckpt_network *network = NULL;
        const ckpt_lowered *lowered = NULL;
        const char *const path = ckpt_arena_format(&arena, "%s/models/%s.json", ckpt_source_dir(), file[i]);
        CHECK_OK(ckpt_model_read(path, NULL, 0, &arena, &model, &err), err);
        CHECK_OK(ckpt_network_infer(model, CKPT_ON_GPU, &arena, &network, &err), err);
        CHECK_OK(ckpt_network_lower(network, NULL, NULL, &arena, &lowered, &err), err);
        int sums = 0;
        for (int o = 0; o < lowered->graph->op_count; o++) {
            const ckpt_op_role *const role = &lowered->op_role[o];
            const char *const op = network->node[role->node].op->name;
            sums += role->phase == CKPT_FORWARD && strcmp(op, "add") == 0;
            CHECK(role->phase != CKPT_BACKWARD || strcmp(op, "add") != 0, "%s: %s copies", file[i],
                  lowered->graph->op[o].name);
            CHECK(strcmp(op, "layernorm") != 0 ||
                      ckpt_staging_bytes(&network->node[role->node], role->grad_in_adds, role->grad_param_adds) == 0,
                  "%s: %s stages", file[i], lowered->graph->op[o].name);
        }
        assert_true(sums > 0);
    }
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_networks),
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(networks_people_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
