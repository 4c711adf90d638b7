/* ONNX: the model that is made of a graph, and its weights. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "ops/import/onnx/onnx.h"

enum { LAYERS_MAX = 500 };

static ckpt_code read_onnx(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_onnx_model(path, NULL, 0, arena, &model, err));
    if (model->layer_count > LAYERS_MAX) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_network_infer(model, 1, arena, &network, err));
    CKPT_TRY(ckpt_onnx_weights(network, path, NULL, 0, arena, &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

/* Fields of protobuf behind what `at` points to, which moves on: a number below 128, and bytes. */
static void put_number(uint8_t **at, int field, int number)
{
    *(*at)++ = (uint8_t)(field << 3);
    *(*at)++ = (uint8_t)number;
}

static void put_bytes(uint8_t **at, int field, const void *bytes, size_t size)
{
    *(*at)++ = (uint8_t)(field << 3 | 2);
    if (size >= 0x80) {
        *(*at)++ = (uint8_t)(size | 0x80);
    }
    *(*at)++ = (uint8_t)(size >= 0x80 ? size >> 7 : size);
    memcpy(*at, bytes, size);
    *at += size;
}

static void put_text(uint8_t **at, int field, const char *text)
{
    put_bytes(at, field, text, strlen(text));
}

/* An initializer: a list of numbers, each a float32 or below 128. */
static void put_list(uint8_t **graph, const char *name, bool real, const char *number, size_t count)
{
    uint8_t tensor[100], value[40], *at = tensor, *to = value;
    put_number(&at, 1, (int)count); /* dims */
    put_number(&at, 2, real ? 1 : 7);
    for (size_t i = 0; i < count; i++) {
        memcpy(to, real ? "\0\0\x80\x3f" : &number[i], real ? 4 : 1);
        to += real ? 4 : 1;
    }
    put_bytes(&at, real ? 4 : 7, value, (size_t)(to - value));
    put_text(&at, 8, name);
    put_bytes(graph, 5, tensor, (size_t)(at - tensor));
}

/* What the models of the sources do not have: one node each, of x [2, 4, 3]. */
static const struct {
    const char *op, *input[3], *attribute;
    int value;
} node[] = {
    {"Identity", {"x"}, NULL, 0},     {"Cast", {"x"}, "to", 1},
    {"Dropout", {"x"}, NULL, 0},      {"Expand", {"x", "dims"}, NULL, 0},
    {"Tile", {"x", "ones"}, NULL, 0}, {"Sum", {"x", "x", "x"}, NULL, 0},
    {"HardSigmoid", {"x"}, NULL, 0},  {"Gelu", {"x"}, NULL, 0},
    {"Neg", {"x"}, NULL, 0},          {"GroupNormalization", {"x", "four", "four"}, "num_groups", 2},
};
enum { NODES = sizeof node / sizeof *node };

static size_t make_model(uint8_t *bytes, size_t room)
{
    static int next;
    uint8_t graph[600], one[200], attribute[40], *at = bytes, *g = graph, *n = one, *a = attribute;
    const int k = next++ % NODES;
    for (int i = 0; i < 3 && node[k].input[i] != NULL; i++) {
        put_text(&n, 1, node[k].input[i]);
    }
    put_text(&n, 2, "y");
    put_text(&n, 4, node[k].op);
    if (node[k].attribute != NULL) {
        put_text(&a, 1, node[k].attribute);
        put_number(&a, 3, node[k].value);
        a[0] = (uint8_t)(20 << 3 & 0x7f) | 0x80; /* its type, in a tag of two bytes: an integer */
        a[1] = 20 >> 4;
        a[2] = 2;
        put_bytes(&n, 5, attribute, (size_t)(a + 3 - attribute));
    }
    put_bytes(&g, 1, one, (size_t)(n - one));
    put_text(&g, 2, "g");
    put_list(&g, "dims", false, "\2\4\3", 3);
    put_list(&g, "ones", false, "\1\1\1", 3);
    put_list(&g, "four", true, "", 4);
    put_bytes(&g, 11, "\n\1x\x12\x12\n\x10\b\1\x12\x0c\n\2\b\2\n\2\b\4\n\2\b\3", 23);
    put_text(&g, 12, "\n\1y");
    put_number(&at, 1, 8); /* ir_version */
    put_bytes(&at, 7, graph, (size_t)(g - graph));
    put_bytes(&at, 8, "\x10\x15", 2); /* operator set 21 */
    FUZZ_CHECK((size_t)(at - bytes) <= room, "no room");
    return (size_t)(at - bytes);
}

const fuzz_reader fuzz_the_reader = {
    .name = "onnx", .split = fuzz_split_protobuf, .read = read_onnx, .seed = make_model};
