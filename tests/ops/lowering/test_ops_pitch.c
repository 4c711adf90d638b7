/* labels: unit */
/* Which values have a pitch, and what follows from it for parameters, static block and graph (ckpt_node_pitch). */
#include "tests/support/support_test.h"

#include <string.h>

#include "tests/support/support_network.h"

enum { ROWS = 6, WIDTH = 4 };

/* Layers behind "head" [ROWS, features]; "labels" are its targets. */
typedef struct readers {
    const char *name, *op, *in, *attrs;
} readers;

static const readers plain[] = {{"loss", "cross_entropy", "head labels", ""}, {0}};
static const readers twice[] = {
    {"first", "cross_entropy", "head labels", ""}, {"loss", "cross_entropy", "head labels", ""}, {0}};
static const readers activated[] = {{"act", "gelu", "head", ""}, {"loss", "cross_entropy", "act labels", ""}, {0}};
static const readers shaped[] = {
    {"shape", "reshape", "head", "shape=[6,-1]"}, {"loss", "cross_entropy", "shape labels", ""}, {0}};
static const readers both[] = {{"act", "relu", "head", ""}, {"loss", "cross_entropy", "head labels", ""}, {0}};

/* ids and labels → "embed" → "head", tied to it → the readers. */
static const ckpt_network *infer(test_model *m, int64_t features, ckpt_dtype dtype, int threads, const readers *reader)
{
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    test_model_init(m);
    const char *const rows = ckpt_arena_format(&m->arena, "rows=%d features=%d", (int)features, WIDTH);
    const char *const size = ckpt_arena_format(&m->arena, "features=%d bias=false", (int)features);
    test_input(m, "ids", CKPT_INT32, 1, (int64_t[]){ROWS});
    test_input(m, "labels", CKPT_INT32, 1, (int64_t[]){ROWS});
    test_layer(m, "embed", "embedding", "ids", rows);
    test_layer(m, "head", "linear", "embed", size)->tie = 0;
    for (; reader->name != NULL; reader++) {
        test_layer(m, reader->name, reader->op, reader->in, reader->attrs);
    }
    test_optimizer(m, "adam", "");
    m->model.dtype = dtype;
    CHECK_OK(ckpt_network_infer(&m->model, threads, &m->arena, &network, &err), err);
    return network;
}

static void rule(void **state)
{
    static const struct {
        int64_t features;
        ckpt_dtype dtype;
        int threads;
        const readers *reader;
        int64_t pitch;
    } row[] = {
        {50257, CKPT_BFLOAT16, CKPT_ON_GPU, plain, 50304},
        {50257, CKPT_FLOAT32, CKPT_ON_GPU, plain, 50272},
        {50264, CKPT_BFLOAT16, CKPT_ON_GPU, plain, 0}, /* a multiple of 16 bytes as it is */
        {4095, CKPT_BFLOAT16, CKPT_ON_GPU, plain, 0},  /* too small to pay */
        {4097, CKPT_BFLOAT16, CKPT_ON_GPU, plain, 4160},
        {4098, CKPT_FLOAT32, CKPT_ON_GPU, plain, 4128},
        {50257, CKPT_FLOAT32, 1, plain, 0}, /* never on the CPU */
        {50257, CKPT_BFLOAT16, 1, plain, 0},
        {50257, CKPT_BFLOAT16, CKPT_ON_GPU, twice, 50304},
        {50257, CKPT_BFLOAT16, CKPT_ON_GPU, activated, 0}, /* a reader that knows of no pitch */
        {50257, CKPT_BFLOAT16, CKPT_ON_GPU, shaped, 0},
        {50257, CKPT_BFLOAT16, CKPT_ON_GPU, both, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        test_model m;
        const ckpt_network *const network = infer(&m, row[i].features, row[i].dtype, row[i].threads, row[i].reader);
        const ckpt_node *const embed = &network->node[0], *const head = &network->node[1];
        const int64_t pitch = head->out[0].pitch;
        CHECK(pitch == row[i].pitch, "row %zu: pitch %lld, wanted %lld", i, (long long)pitch, (long long)row[i].pitch);
        assert_int_equal(network->value[head->out_value[0]].tensor.pitch, pitch);
        assert_int_equal(network->node[2].in[0].pitch, pitch);
        assert_int_equal(head->param[0].padding, pitch > 0 ? (pitch - row[i].features) * WIDTH : 0);
        assert_int_equal(embed->param[0].padding, head->param[0].padding);
        test_model_fini(&m);
    }
}

static ckpt_bytes buffer_bytes(const ckpt_graph *graph, const char *name)
{
    for (int b = 0; b < graph->buffer_count; b++) {
        if (strcmp(graph->buffer[b].name, name) == 0) {
            return graph->buffer[b].bytes;
        }
    }
    return -1;
}

/* The graph has what is taken; every section of parameters has the padding, once for both layers. */
static void bytes_taken(void **state)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        test_model m;
        ckpt_err err = {0};
        ckpt_static_layout layout;
        const ckpt_lowered *lowered = NULL;
        ckpt_scheme scheme = ckpt_scheme_alone;
        const bool narrow = dtype == 1;
        const int64_t pitch = narrow ? 4160 : 4128, size = narrow ? 2 : 4, weight = pitch * WIDTH * 4;
        const ckpt_network *const whole = infer(&m, 4099, narrow ? CKPT_BFLOAT16 : CKPT_FLOAT32, CKPT_ON_GPU, plain);
        CHECK_OK(ckpt_network_statics(whole, &m.arena, &layout, &err), err);
        assert_int_equal(layout.weight_bytes, weight);
        assert_int_equal(layout.statistics, weight * 4); /* gradients and two moments have as much */
        assert_int_equal(layout.scales - layout.weights16, narrow ? weight / 2 : 0);
        CHECK_OK(ckpt_network_lower(whole, NULL, NULL, &m.arena, &lowered, &err), err);
        assert_int_equal(buffer_bytes(lowered->graph, "head"), ROWS * pitch * size);
        assert_int_equal(buffer_bytes(lowered->graph, "head/grad"), ROWS * pitch * size);
        scheme.fused = true;
        const ckpt_network *part = NULL;
        CHECK_OK(ckpt_network_spread(whole, &scheme, &m.arena, &part, &err), err);
        CHECK_OK(ckpt_network_lower(part, NULL, NULL, &m.arena, &lowered, &err), err);
        assert_int_equal(buffer_bytes(lowered->graph, "embed/weight/grad"), weight);
        const char *const first[2] = {"embed", "loss"};
        for (scheme.stages = 2, scheme.first_layer = first; scheme.stage < 2; scheme.stage++) {
            CHECK_OK(ckpt_network_spread(whole, &scheme, &m.arena, &part, &err), err);
            CHECK_OK(ckpt_network_lower(part, NULL, NULL, &m.arena, &lowered, &err), err);
            assert_int_equal(buffer_bytes(lowered->graph, "head"), ROWS * pitch * size);
            assert_int_equal(buffer_bytes(lowered->graph, scheme.stage == 0 ? "head/message" : "head/grad/message"),
                             ROWS * pitch * size); /* both ends send gaps too */
        }
        test_model_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rule), cmocka_unit_test(bytes_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
