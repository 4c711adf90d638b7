/* Models in C: a word of text per layer, attribute and reference. */
#include "tests/support/support_network.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support_test.h"

void test_model_init(test_model *m)
{
    memset(m, 0, sizeof *m);
    ckpt_arena_init(&m->arena);
    m->model = (ckpt_model){.source = "test.json",
                            .name = "test",
                            .dtype = CKPT_FLOAT32,
                            .input = m->input,
                            .layer = m->layer,
                            .optimizer = "sgd",
                            .optimizer_attr = m->optimizer_attr};
}

void test_model_fini(test_model *m)
{
    ckpt_arena_fini(&m->arena);
}

void test_input(test_model *m, const char *name, ckpt_dtype dtype, int rank, const int64_t *dim)
{
    assert_in_range(m->model.input_count, 0, TEST_INPUTS - 1);
    ckpt_tensor *const input = &m->input[m->model.input_count++];
    *input = (ckpt_tensor){.name = name, .dtype = dtype, .shape = {.rank = rank}};
    memcpy(input->shape.dim, dim, (size_t)rank * sizeof *dim);
}

/* The next word of `text`, copied; NULL at the end. */
static char *next_word(test_model *m, const char **text)
{
    *text += strspn(*text, " ");
    const size_t length = strcspn(*text, " ");
    if (length == 0) {
        return NULL;
    }
    char *const word = CKPT_NEW(&m->arena, char, length + 1);
    assert_non_null(word);
    memcpy(word, *text, length);
    *text += length;
    return word;
}

static void parse_list(test_model *m, const char *text, ckpt_attr *attr)
{
    int64_t *const ints = CKPT_NEW(&m->arena, int64_t, strlen(text));
    char *end = NULL;
    assert_non_null(ints);
    for (const char *at = text + 1; *at != ']' && *at != '\0'; at = *end == ',' ? end + 1 : end) {
        ints[attr->int_count++] = strtoll(at, &end, 10);
    }
    attr->kind = CKPT_INTS;
    attr->ints = ints;
}

static ckpt_attr parse_attr(test_model *m, char *word)
{
    char *const value = strchr(word, '=');
    assert_non_null(value);
    *value = '\0';
    const char *const text = value + 1;
    ckpt_attr attr = {.name = word, .kind = CKPT_STRING, .string = text};
    char *end = NULL;
    const long long whole = strtoll(text, &end, 10);
    if (text[0] == '[') {
        parse_list(m, text, &attr);
    } else if (*end == '\0' && end != text) {
        attr.kind = CKPT_INT;
        attr.integer = whole;
        attr.real = (double)whole;
    } else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        attr.kind = CKPT_BOOL;
        attr.integer = text[0] == 't';
    } else {
        const double real = strtod(text, &end);
        if (*end == '\0') {
            attr.kind = CKPT_FLOAT;
            attr.real = real;
        }
    }
    return attr;
}

static int parse_attrs(test_model *m, const char *text, ckpt_attr *attr)
{
    int count = 0;
    for (char *word = next_word(m, &text); word != NULL; word = next_word(m, &text)) {
        assert_in_range(count, 0, TEST_ATTRS - 1);
        attr[count++] = parse_attr(m, word);
    }
    return count;
}

static ckpt_ref find_ref(const test_model *m, char *word)
{
    ckpt_ref ref = {0};
    char *const colon = strchr(word, ':');
    if (colon != NULL) {
        *colon = '\0';
        ref.output = atoi(colon + 1);
    }
    for (int i = 0; i < m->model.layer_count; i++) {
        if (strcmp(m->layer[i].name, word) == 0) {
            ref.layer = i;
            return ref;
        }
    }
    for (int i = 0; i < m->model.input_count; i++) {
        if (strcmp(m->input[i].name, word) == 0) {
            ref.layer = -1 - i;
            return ref;
        }
    }
    fail_msg("no layer or input \"%s\"", word);
    return ref;
}

void test_model_rows(test_model *m, int64_t rows, int64_t columns)
{
    test_model_init(m);
    test_input(m, "x", CKPT_FLOAT32, 2, (int64_t[]){rows, columns});
    test_input(m, "t", CKPT_FLOAT32, 2, (int64_t[]){rows, columns});
}

ckpt_layer *test_layer(test_model *m, const char *name, const char *op, const char *in, const char *attrs)
{
    const int index = m->model.layer_count;
    assert_in_range(index, 0, TEST_LAYERS - 1);
    ckpt_ref *const ref = CKPT_NEW(&m->arena, ckpt_ref, TEST_REFS);
    ckpt_attr *const attr = CKPT_NEW(&m->arena, ckpt_attr, TEST_ATTRS);
    assert_non_null(ref);
    assert_non_null(attr);
    ckpt_layer *const layer = &m->layer[index];
    *layer = (ckpt_layer){.name = name,
                          .op = op,
                          .in = ref,
                          .attr = attr,
                          .tie = -1,
                          .stage = -1,
                          .at = {.line = index + 10, .column = 5}};
    const bool none = strcmp(in, "-") == 0;
    for (char *word = none ? NULL : next_word(m, &in); word != NULL; word = next_word(m, &in)) {
        assert_in_range(layer->in_count, 0, TEST_REFS - 1);
        ref[layer->in_count++] = find_ref(m, word);
    }
    if (!none && layer->in_count == 0 && (index > 0 || m->model.input_count > 0)) {
        ref[0].layer = index - 1; /* of layer 0: -1, the first input */
        layer->in_count = 1;
    }
    layer->attr_count = parse_attrs(m, attrs, attr);
    m->model.layer_count++;
    return layer;
}

void test_optimizer(test_model *m, const char *name, const char *attrs)
{
    m->model.optimizer = name;
    m->model.optimizer_attr_count = parse_attrs(m, attrs, m->optimizer_attr);
}

const ckpt_network *test_infer(test_model *m)
{
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_infer(&m->model, 2, &m->arena, &network, &err), err);
    return network;
}

const ckpt_lowered *test_lower(test_model *m)
{
    const ckpt_lowered *lowered = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_lower(test_infer(m), NULL, NULL, &m->arena, &lowered, &err), err);
    return lowered;
}

const char *test_names(test_model *m, const ckpt_graph *graph, ckpt_list list)
{
    const char *text = "";
    for (int i = 0; i < list.count; i++) {
        text = ckpt_arena_format(&m->arena, "%s%s%s", text, i > 0 ? " " : "", graph->buffer[list.at[i]].name);
        assert_non_null(text);
    }
    return text;
}

typedef struct starved {
    const ckpt_network *network;
    size_t pad; /* bytes taken before: moves the place where the arena's first block ends */
} starved;

static ckpt_code lower_all(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    const ckpt_lowered *lowered = NULL;
    return ckpt_arena_take(arena, s->pad, 1) == NULL ? CKPT_FAIL(err, CKPT_NO_MEMORY, "pad")
                                                     : ckpt_network_lower(s->network, NULL, NULL, arena, &lowered, err);
}

void test_lower_starved(const ckpt_network *network)
{
    for (size_t pad = 0; pad < 12000; pad += 16) {
        starved s = {.network = network, .pad = pad};
        assert_true(ckpt_test_starve_arena(lower_all, &s) > 0);
    }
}
