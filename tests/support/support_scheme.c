/* Random networks and random stages. */
#include "tests/support/support_scheme.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_test.h"

enum { VALUES_MAX = 1024, STAGES_MAX = 16 };

/* Values of one shape that later layers may read. */
typedef struct pool {
    const char *name[VALUES_MAX];
    int count;
} pool;

/* Mostly one of the latest, often any. */
static const char *any(const pool *from)
{
    const int latest = from->count < 3 ? from->count : 3;
    return ckpt_test_draw(2) == 0 ? from->name[ckpt_test_draw((uint64_t)from->count)]
                                  : from->name[from->count - 1 - (int)ckpt_test_draw((uint64_t)latest)];
}

static void keep(test_model *m, pool *to, const char *layer, int output)
{
    to->name[to->count++] = output == 0 ? layer : ckpt_arena_format(&m->arena, "%s:%d", layer, output);
}

static const char *fresh(test_model *m)
{
    return ckpt_arena_format(&m->arena, "n%d", m->model.layer_count);
}

static const char *two(test_model *m, const pool *from)
{
    return ckpt_arena_format(&m->arena, "%s %s", any(from), any(from));
}

/* Something of 8 x 8 weights, sometimes those of a layer before or behind. */
static void add_linear(test_model *m, pool *wide)
{
    const char *const name = fresh(m);
    ckpt_layer *const layer =
        test_layer(m, name, "linear", any(wide), ckpt_test_draw(2) == 0 ? "features=8" : "features=8 bias=false");
    const int other = (int)ckpt_test_draw((uint64_t)m->model.layer_count);
    if (ckpt_test_draw(2) == 0 && &m->layer[other] != layer && strcmp(m->layer[other].op, "linear") == 0) {
        layer->tie = other;
        if (m->layer[other].tie < 0 && ckpt_test_draw(2) == 0) {
            layer->tie = -1;
            m->layer[other].tie = (int)(layer - m->layer);
        }
    }
    layer->checkpoint = ckpt_test_draw(3) == 0 ? CKPT_YES : CKPT_UNSET;
    layer->segment = layer->checkpoint == CKPT_YES ? ckpt_arena_format(&m->arena, "block/%s", name) : NULL;
    keep(m, wide, name, 0);
}

static void add_view(test_model *m, pool *wide)
{
    static const char *const simple[] = {"gelu", "relu", "tanh", "sigmoid", "dropout"};
    const char *const view = fresh(m);
    test_layer(m, view, "reshape", any(wide), "shape=[4,12]");
    const char *const inside = fresh(m);
    test_layer(m, inside, simple[ckpt_test_draw(5)], view, "");
    const char *const back = fresh(m);
    test_layer(m, back, "reshape", ckpt_test_draw(2) == 0 ? view : inside, "shape=[6,8]");
    keep(m, wide, back, 0);
}

static void add_split(test_model *m, pool *wide, pool *half)
{
    const char *const name = fresh(m);
    test_layer(m, name, "split", any(wide), "parts=2");
    keep(m, half, name, 0);
    keep(m, half, name, 1);
    const char *const joined = fresh(m);
    test_layer(m, joined, "concat", two(m, half), "");
    keep(m, wide, joined, 0);
}

static void add_some_layer(test_model *m, pool *wide, pool *half)
{
    static const char *const simple[] = {"gelu", "relu", "tanh", "sigmoid", "dropout", "layernorm", "batchnorm"};
    const char *const name = fresh(m);
    switch (ckpt_test_draw(10)) {
    case 0:
    case 1:
    case 2: add_linear(m, wide); return;
    case 3:
    case 4: test_layer(m, name, simple[ckpt_test_draw(7)], any(wide), ""); break;
    case 5: test_layer(m, name, "add", ckpt_arena_format(&m->arena, "%s %s", two(m, wide), two(m, wide)), ""); break;
    case 6: test_layer(m, name, "mul", two(m, wide), ""); break;
    case 7: add_view(m, wide); return;
    case 8: add_split(m, wide, half); return;
    default:
        test_layer(m, name, "lstm_cell", ckpt_arena_format(&m->arena, "%s %s", any(wide), two(m, wide)), "features=8");
        keep(m, wide, name, 1);
        break;
    }
    keep(m, wide, name, 0);
}

void test_random_model(test_model *m, int layers)
{
    pool wide = {.count = 0};
    pool half = {.count = 0};
    test_model_rows(m, 6, 8);
    test_input(m, "ids", CKPT_INT32, 1, (int64_t[]){6});
    wide.name[wide.count++] = "x";
    if (ckpt_test_draw(2) == 0) {
        test_layer(m, "embed", "embedding", "ids", "rows=9 features=8");
        keep(m, &wide, "embed", 0);
    }
    const int count = 1 + (int)ckpt_test_draw((uint64_t)layers);
    for (int i = 0; i < count; i++) {
        add_some_layer(m, &wide, &half);
    }
    if (ckpt_test_draw(8) != 0) {
        const char *const last = wide.name[wide.count - 1];
        test_layer(m, "loss", "mse",
                   ckpt_test_draw(2) == 0 ? ckpt_arena_format(&m->arena, "%s t", last) : two(m, &wide), "");
    }
    test_optimizer(m, "adam", "");
}

/* `stages` - 1 cuts behind the first layer, in order, each once. */
static void draw_cuts(const ckpt_network *network, int stages, const char **first)
{
    int left = stages - 1, made = 0;
    first[made++] = network->node[0].name;
    for (int n = 1; n < network->node_count; n++) {
        if (left > 0 && (int)ckpt_test_draw((uint64_t)(network->node_count - n)) < left) {
            first[made++] = network->node[n].name;
            left--;
        }
    }
    assert_int_equal(made, stages);
}

const ckpt_network *test_spread(test_model *m, const ckpt_network *network, ckpt_scheme scheme)
{
    enum { TRIES = 8 };
    ckpt_err err = {0};
    const ckpt_network *spread = NULL;
    scheme.stages = scheme.stages > network->node_count ? network->node_count : scheme.stages;
    for (int tries = TRIES; scheme.stages > 1; tries--) {
        const char **const first = CKPT_NEW(&m->arena, const char *, STAGES_MAX);
        assert_non_null(first);
        draw_cuts(network, scheme.stages, first);
        scheme.first_layer = first;
        scheme.stage = 0;
        const ckpt_code code = ckpt_network_spread(network, &scheme, &m->arena, &spread, &err);
        if (code == CKPT_OK) {
            return spread;
        }
        CHECK(strstr(err.msg, "share") != NULL, "%s", err.msg);
        if (tries == 0) {
            scheme.stages--;
            tries = TRIES;
        }
    }
    scheme.first_layer = NULL;
    if (ckpt_network_spread(network, &scheme, &m->arena, &spread, &err) != CKPT_OK) {
        CHECK(scheme.apart && strstr(err.msg, "share") != NULL, "%s", err.msg);
        scheme.apart = false; /* one of the layers that are tied has no gradient */
        CHECK_OK(ckpt_network_spread(network, &scheme, &m->arena, &spread, &err), err);
    }
    return spread;
}

const ckpt_network *test_stage(test_model *m, const ckpt_network *network, ckpt_scheme scheme, int stage)
{
    ckpt_err err = {0};
    const ckpt_network *spread = NULL;
    scheme.stage = stage;
    CHECK_OK(ckpt_network_spread(network, &scheme, &m->arena, &spread, &err), err);
    return spread;
}

const ckpt_lowered *test_lower_network(test_model *m, const ckpt_network *network)
{
    ckpt_err err = {0};
    const ckpt_lowered *lowered = NULL;
    CHECK_OK(ckpt_network_lower(network, NULL, NULL, &m->arena, &lowered, &err), err);
    return lowered;
}

const char *test_plain_name(test_model *m, const char *name, int batch)
{
    char suffix[16];
    const char *plain = "";
    snprintf(suffix, sizeof suffix, "@%d", batch);
    const char *at = name;
    for (const char *hit = strstr(at, suffix); hit != NULL; hit = strstr(at, suffix)) {
        plain = ckpt_arena_format(&m->arena, "%s%.*s", plain, (int)(hit - at), at);
        at = hit + strlen(suffix);
    }
    plain = ckpt_arena_format(&m->arena, "%s%s", plain, at);
    assert_non_null(plain);
    return plain;
}
