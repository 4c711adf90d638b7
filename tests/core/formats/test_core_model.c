/* labels: unit */
/* Models: vars, expressions, blocks, names. What malformed files say is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>

#include "core/formats/model.h"

static const char *const net =
    "{ \"format\": \"ckpt-model/1\", \"name\": \"net\", \"about\": \"ignored\",\n"
    "  \"vars\": { \"batch\": 4, \"hidden\": \"8*batch\", \"blocks\": 2 },\n"
    "  \"inputs\": [ { \"name\": \"ids\", \"shape\": [\"batch\", \"2*hidden-1\"], \"dtype\": \"int32\" },\n"
    "    { \"name\": \"y\", \"shape\": [] } ],\n"
    "  \"layers\": [\n"
    "    { \"name\": \"embed\", \"op\": \"embedding\", \"rows\": 256, \"features\": \"hidden\" },\n"
    "    { \"name\": \"cut\", \"op\": \"split\", \"axis\": -1, \"sizes\": [\"hidden/2\", 3, \"-1\"] },\n"
    "    { \"repeat\": \"blocks\", \"name\": \"h\", \"checkpoint\": true, \"stage\": \"blocks-1\", \"layers\": [\n"
    "      { \"name\": \"a\", \"op\": \"take\", \"in\": [\"cut:#\", \"^\", \"^:1\"] },\n"
    "      { \"repeat\": 2, \"name\": \"inner\", \"offload\": true, \"layers\": [\n"
    "        { \"name\": \"x\", \"op\": \"relu\", \"in\": [\"^\"] },\n"
    "        { \"name\": \"y2\", \"op\": \"add\", \"in\": [\"x\", \"a\", \"h.0.a:2\"], \"stage\": 7, \"checkpoint\": "
    "false } ] },\n"
    "      { \"name\": \"b\", \"op\": \"linear\", \"tie\": \"embed\", \"bias\": false, \"p\": 0.25, \"mode\": \"up\" } "
    "] },\n"
    "    { \"name\": \"head\", \"op\": \"linear\", \"in\": [\"h.1.b\"], \"offload\": false },\n"
    "    { \"name\": \"alone\", \"op\": \"make\", \"in\": [] },\n"
    "    { \"name\": \"loss\", \"op\": \"mse\", \"in\": [\"head\", \"y\"] } ],\n"
    "  \"optimizer\": { \"name\": \"adamw\", \"lr\": 3e-4, \"nesterov\": true } }\n";

static const ckpt_model *read_text(const char *text, const char *const *set, int set_count, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const ckpt_model *model = NULL;
    CHECK_OK(ckpt_model_read(ckpt_test_file("model.json", text, strlen(text)), set, set_count, arena, &model, &err),
             err);
    return model;
}

static const ckpt_layer *layer_of(const ckpt_model *model, const char *name)
{
    for (int i = 0; i < model->layer_count; i++) {
        if (strcmp(model->layer[i].name, name) == 0) {
            return &model->layer[i];
        }
    }
    fail_msg("no layer %s", name);
    return NULL;
}

/* What a layer reads, as "name:output name:output". */
static void check_reads(const ckpt_model *model, const char *name, const char *wanted)
{
    const ckpt_layer *const layer = layer_of(model, name);
    char found[256] = "";
    size_t length = 0;
    for (int k = 0; k < layer->in_count; k++) {
        const ckpt_ref ref = layer->in[k];
        length += (size_t)snprintf(found + length, sizeof found - length, "%s%s:%d", k > 0 ? " " : "",
                                   ref.layer < 0 ? model->input[-1 - ref.layer].name : model->layer[ref.layer].name,
                                   ref.output);
    }
    CHECK(strcmp(found, wanted) == 0, "%s reads \"%s\", wanted \"%s\"", name, found, wanted);
}

static void test_blocks_are_unrolled_and_names_found(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const m = read_text(net, NULL, 0, &arena);
    static const char *const order[] = {
        "embed", "cut",   "h.0.a",         "h.0.inner.0.x",  "h.0.inner.0.y2", "h.0.inner.1.x",  "h.0.inner.1.y2",
        "h.0.b", "h.1.a", "h.1.inner.0.x", "h.1.inner.0.y2", "h.1.inner.1.x",  "h.1.inner.1.y2", "h.1.b",
        "head",  "alone", "loss"};
    assert_int_equal(m->layer_count, sizeof order / sizeof order[0]);
    for (int i = 0; i < m->layer_count; i++) {
        assert_string_equal(m->layer[i].name, order[i]);
    }
    check_reads(m, "embed", "ids:0"); /* the first input by default */
    check_reads(m, "cut", "embed:0"); /* the layer before by default */
    check_reads(m, "h.0.a", "cut:0 cut:0 cut:1");
    check_reads(m, "h.1.a", "cut:1 h.0.b:0 h.0.b:1"); /* ^: the last of the copy before */
    check_reads(m, "h.0.inner.0.x", "h.0.a:0");
    check_reads(m, "h.1.inner.1.x", "h.1.inner.0.y2:0");
    check_reads(m, "h.1.inner.0.y2", "h.1.inner.0.x:0 h.1.a:0 h.0.a:2"); /* own copy, outwards, absolute */
    check_reads(m, "h.1.b", "h.1.inner.1.y2:0");
    check_reads(m, "head", "h.1.b:0");
    check_reads(m, "alone", "");
    check_reads(m, "loss", "head:0 y:0");
    assert_int_equal(layer_of(m, "h.1.b")->tie, 0);
    assert_int_equal(layer_of(m, "head")->tie, -1);
}

static void test_flags_are_inherited(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const m = read_text(net, NULL, 0, &arena);
    const ckpt_layer *const a = layer_of(m, "h.1.a");
    assert_int_equal(a->checkpoint, CKPT_YES);
    assert_string_equal(a->segment, "h.1");
    assert_int_equal(a->offload, CKPT_UNSET);
    assert_int_equal(a->stage, 1);
    const ckpt_layer *const x = layer_of(m, "h.0.inner.1.x");
    assert_int_equal(x->checkpoint, CKPT_YES);
    assert_string_equal(x->segment, "h.0"); /* of the flagged block, not the one inside */
    assert_int_equal(x->offload, CKPT_YES);
    assert_int_equal(x->stage, 1);
    const ckpt_layer *const y = layer_of(m, "h.0.inner.1.y2");
    assert_int_equal(y->checkpoint, CKPT_NO);
    assert_string_equal(y->segment, "h.0/h.0.inner.1.y2"); /* kept, in a unit */
    assert_int_equal(y->stage, 7);
    const ckpt_layer *const head = layer_of(m, "head");
    assert_int_equal(head->checkpoint, CKPT_UNSET);
    assert_null(head->segment);
    assert_int_equal(head->offload, CKPT_NO);
    assert_int_equal(head->stage, -1);
}

static void test_attributes_stay_as_written(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const m = read_text(net, NULL, 0, &arena);
    const ckpt_layer *const embed = layer_of(m, "embed");
    assert_int_equal(embed->attr_count, 2);
    assert_string_equal(embed->attr[0].name, "rows");
    assert_int_equal(embed->attr[0].kind, CKPT_INT);
    assert_int_equal(embed->attr[0].integer, 256);
    assert_true(embed->attr[0].real == 256.0);
    assert_int_equal(embed->attr[1].kind, CKPT_STRING); /* a word or an expression: the op knows */
    assert_string_equal(embed->attr[1].string, "hidden");
    const ckpt_layer *const cut = layer_of(m, "cut");
    assert_int_equal(cut->attr[0].integer, -1);
    assert_int_equal(cut->attr[1].kind, CKPT_INTS);
    assert_int_equal(cut->attr[1].int_count, 3);
    assert_int_equal(cut->attr[1].ints[0], 16);
    assert_int_equal(cut->attr[1].ints[1], 3);
    assert_int_equal(cut->attr[1].ints[2], -1);
    const ckpt_layer *const b = layer_of(m, "h.0.b");
    assert_int_equal(b->attr_count, 3); /* "tie" is not one */
    assert_int_equal(b->attr[0].kind, CKPT_BOOL);
    assert_int_equal(b->attr[0].integer, 0);
    assert_int_equal(b->attr[1].kind, CKPT_FLOAT);
    assert_true(b->attr[1].real == 0.25);
    assert_string_equal(b->attr[2].string, "up");
    assert_int_equal(b->at.line, 13);
    assert_int_equal(b->at.column, 7);
    assert_int_equal(layer_of(m, "h.1.b")->at.line, 13);
    assert_string_equal(m->optimizer, "adamw");
    assert_int_equal(m->optimizer_attr_count, 2);
    assert_true(m->optimizer_attr[0].real == 3e-4);
    const ckpt_tensor *const ids = &m->input[0];
    assert_int_equal(ids->dtype, CKPT_INT32);
    assert_int_equal(ids->shape.dim[0], 4);
    assert_int_equal(ids->shape.dim[1], 63);
    assert_int_equal(m->input[1].dtype, CKPT_FLOAT32);
    assert_int_equal(m->input[1].shape.rank, 0);
}

/* Innermost copies count, and copies without # share what the file gives. */
static void test_attributes_know_their_copy(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const model = read_text(
        "{ \"format\": \"ckpt-model/1\", \"name\": \"n\", \"inputs\": [ { \"name\": \"x\", \"shape\": [2] } ], "
        "\"layers\": [\n"
        "  { \"repeat\": 2, \"name\": \"h\", \"layers\": [ { \"repeat\": 12, \"name\": \"g\", \"layers\": [\n"
        "    { \"name\": \"a\", \"op\": \"drop_path\", \"p\": \"(3 + #)*#/100\", \"q\": \"as it is\" } ] } ] },\n"
        "  { \"name\": \"outside\", \"op\": \"drop_path\", \"p\": \"#\" } ] }",
        NULL, 0, &arena);
    assert_string_equal(layer_of(model, "h.0.g.0.a")->attr[0].string, "(3 + 0)*0/100");
    assert_string_equal(layer_of(model, "h.1.g.11.a")->attr[0].string, "(3 + 11)*11/100");
    assert_string_equal(layer_of(model, "h.1.g.11.a")->attr[1].string, "as it is");
    assert_string_equal(layer_of(model, "outside")->attr[0].string, "#"); /* refused where it is evaluated */
}

static void test_set_overrides_vars(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    static const char *const set[] = {"batch=3", "blocks=hidden-21", "batch=2+1"};
    const ckpt_model *const m = read_text(net, set, 3, &arena);
    assert_int_equal(m->input[0].shape.dim[0], 3);
    assert_int_equal(m->input[0].shape.dim[1], 47); /* hidden follows batch */
    assert_int_equal(m->var[2].value, 3);
    assert_int_equal(m->layer_count, 2 + 3 * 6 + 3);
    static const struct {
        const char *set, *message;
    } bad[] = {
        {"batsh=3", "--set \"batsh=3\": %s has no such var; it has batch, hidden, blocks"},
        {"batch", "--set \"batch\": wanted var=number"},
        {"=3", "--set \"=3\": wanted var=number"},
        {"batch=", "while setting batch: expression \"\", character 1: wanted a number, a var, - or ("},
        {"batch=hidden",
         "while setting batch: expression \"hidden\", character 1: found \"hidden\", which is no var here"},
        {"batc=1", "--set \"batc=1\": %s has no such var; it has batch, hidden, blocks"},
    };
    const char *const path = ckpt_test_file("model.json", net, strlen(net));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char wanted[700];
        const ckpt_model *unread = NULL;
        const char *const from = strstr(bad[i].message, "%s");
        snprintf(wanted, sizeof wanted, "%.*s%s%s", (int)(from != NULL ? from - bad[i].message : 0), bad[i].message,
                 from != NULL ? path : "", from != NULL ? from + 2 : bad[i].message);
        assert_int_equal(ckpt_model_read(path, &bad[i].set, 1, &arena, &unread, &err), CKPT_BAD_INPUT);
        assert_string_equal(err.msg, wanted);
        assert_null(unread);
    }
}

static void test_expressions(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const m = read_text(net, NULL, 0, &arena);
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {" 7 ", 7},
        {"hidden", 32},
        {"2+3*4", 14},
        {"(2+3)*4", 20},
        {"2-3-4", -5},
        {"100/10/5", 2},
        {"7/2", 3},
        {"-7/2", -3},
        {"-7%3", -1},
        {"7%-3", 1},
        {"--5", 5},
        {"2*-3", -6},
        {"-(batch+1)*2", -10},
        {"hidden/batch%3", 2},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807-1", INT64_MIN},
        {"(-9223372036854775807-1)/1", INT64_MIN},
        {"3037000499*3037000499", 9223372030926249001},
        {"0*-9223372036854775807", 0},
        {"1<2", 1},
        {"2<=1", 0},
        {"batch==4", 1},
        {"batch != 4", 0},
        {"2>=2", 1},
        {"1>2", 0},
        {"1.5>1", 1},
        {"!batch", 0},
        {"!0+1", 2},
        {"1+1==2", 1},
        {"0||2", 1},
        {"0||0", 0},
        {"3&&2", 1},
        {"1||0&&0", 1},
        {"batch>3?hidden:1", 32},
        {"0?1:0?2:3", 3},
        {"1?0?1:2:3", 2},
        {"0&&1/0", 0}, /* not evaluated */
        {"1||1/0", 1},
        {"1?2:1%0", 2},
        {"0?9223372036854775807+1:2", 2},
        {"0?sqrt(-1):1e307*10>1||0", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ckpt_err err = {0};
        int64_t value = 0;
        CHECK_OK(ckpt_model_eval(m, good[i].text, &value, &err), err);
        CHECK(value == good[i].value, "%s = %lld, wanted %lld", good[i].text, (long long)value,
              (long long)good[i].value);
    }
    static const struct {
        const char *text;
        ckpt_code code;
    } bad[] = {
        {"", CKPT_BAD_INPUT},
        {"1 2", CKPT_BAD_INPUT},
        {"1+", CKPT_BAD_INPUT},
        {"(1", CKPT_BAD_INPUT},
        {"1)", CKPT_BAD_INPUT},
        {"nobody", CKPT_BAD_INPUT},
        {"hid", CKPT_BAD_INPUT},
        {"hiddens", CKPT_BAD_INPUT},
        {"1/0", CKPT_BAD_INPUT},
        {"1%(2-2)", CKPT_BAD_INPUT},
        {"1.5", CKPT_BAD_INPUT},
        {"7%2.0", CKPT_BAD_INPUT},
        {"1/0.0<1", CKPT_BAD_INPUT},
        {"sqrt(4)", CKPT_BAD_INPUT},
        {"sqrt(0-1)<1", CKPT_BAD_INPUT},
        {"sqrt", CKPT_BAD_INPUT},
        {"1e", CKPT_BAD_INPUT},
        {"1?2", CKPT_BAD_INPUT},
        {"1=1", CKPT_BAD_INPUT},
        {"1<2<", CKPT_BAD_INPUT},
        {"1<2<3", CKPT_BAD_INPUT},
        {"1&1", CKPT_BAD_INPUT},
        {"#", CKPT_BAD_INPUT},
        {"1e999<1", CKPT_OVERFLOW},
        {"1e308*1e308<1", CKPT_OVERFLOW},
        {"2^3", CKPT_BAD_INPUT},
        {"+1", CKPT_BAD_INPUT},
        {"9223372036854775808", CKPT_OVERFLOW},
        {"9223372036854775807+1", CKPT_OVERFLOW},
        {"-9223372036854775807-2", CKPT_OVERFLOW},
        {"3037000500*3037000500", CKPT_OVERFLOW},
        {"-3037000500*3037000500", CKPT_OVERFLOW},
        {"(-9223372036854775807-1)*-1", CKPT_OVERFLOW},
        {"(-9223372036854775807-1)/-1", CKPT_OVERFLOW},
        {"-(-9223372036854775807-1)", CKPT_OVERFLOW},
        {"0-(-9223372036854775807-1)", CKPT_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ckpt_err err = {0};
        int64_t value = 5;
        const ckpt_code code = ckpt_model_eval(m, bad[i].text, &value, &err);
        CHECK(code == bad[i].code && value == 5, "%s: code %d: %s", bad[i].text, (int)code, err.msg);
    }
}

static void test_real_expressions(void **state)
{
    CKPT_TEST_ARENA(arena);
    static const char text[] = "{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"vars\": {\"eps\": 1e-5, \"theta\": "
                               "5.0e5, \"flag\": true, \"off\": "
                               "false, \"half\": \"theta/2\", \"n\": \"flag+off+1\", \"kv\": \"0\"}, \"layers\": [ { "
                               "\"name\": \"a\", \"op\": \"o\", "
                               "\"in\": [] } ] }";
    static const char *const set[] = {"eps=2e-6", "kv=4"};
    const ckpt_model *const m = read_text(text, set, 2, &arena);
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"eps", 2e-6},       {"theta", 5e5},          {"half", 250000.0},     {"1/2", 0},
        {"1/2.0", 0.5},      {"1.0/n", 0.5},          {"-eps", -2e-6},        {"2", 2},
        {"kv-1.5", 2.5},     {"sqrt(16)*sqrt(4)", 8}, {"1/sqrt(kv)", 0.5},    {"1e3", 1000},
        {"2*1.25e-1", 0.25}, {"flag?0.1:0", 0.1},     {"0.1+0.2", 0.1 + 0.2},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ckpt_err err = {0};
        double value = 0;
        CHECK_OK(ckpt_model_eval_real(m, good[i].text, &value, &err), err);
        CHECK(value == good[i].value, "%s = %.17g, wanted %.17g", good[i].text, value, good[i].value);
    }
    ckpt_err err = {0};
    int64_t value = 5;
    assert_int_equal(ckpt_model_eval(m, "eps", &value, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "expression \"eps\" is the real number 2e-06, wanted an integer");
    assert_int_equal(value, 5);
    assert_true(m->var[0].is_real && !m->var[2].is_real && m->var[2].value == 1 && m->var[3].value == 0);
}

static void test_what_is_left_out(void **state)
{
    CKPT_TEST_ARENA(arena);
    static const char text[] =
        "{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"vars\": {\"act\": 1, \"n\": 3},\n"
        "\"inputs\": [ { \"name\": \"x\", \"shape\": [1] }, { \"name\": \"mask\", \"shape\": [1] } ], \"layers\": [\n"
        "{ \"name\": \"first\", \"op\": \"o\", \"when\": \"act == 2\" },\n"
        "{ \"name\": \"act\", \"op\": \"silu\", \"when\": \"act == 1\" },\n"
        "{ \"name\": \"act\", \"op\": \"gelu\", \"when\": \"act != 1\" },\n"
        "{ \"name\": \"h\", \"repeat\": \"n\", \"when\": \"n < 5\", \"layers\": [\n"
        "{ \"name\": \"a\", \"op\": \"plain\", \"when\": \"# < 2\" },\n"
        "{ \"name\": \"a\", \"op\": \"window\", \"when\": \"# >= 2\", \"in\": [\"^\", { \"name\": \"mask\", \"when\": "
        "\"#\" } ] },\n"
        "{ \"name\": \"b\", \"op\": \"o\", \"when\": \"# == 1\", \"in\": [ { \"name\": \"x\" }, { \"name\": \"mask\", "
        "\"when\": false } ] } ] },\n"
        "{ \"name\": \"all\", \"op\": \"concat\", \"in\": [ \"act\", { \"repeat\": \"n\", \"name\": \"h.#.a:1\", "
        "\"when\": \"n < 5\" "
        "}, { \"repeat\": 0, \"name\": \"nobody\" } ] },\n"
        "{ \"name\": \"last\", \"op\": \"o\", \"when\": true } ] }";
    const ckpt_model *const m = read_text(text, NULL, 0, &arena);
    assert_int_equal(m->layer_count, 7);
    assert_string_equal(layer_of(m, "act")->op, "silu");
    check_reads(m, "act", "x:0");
    assert_string_equal(layer_of(m, "h.1.a")->op, "plain");
    assert_string_equal(layer_of(m, "h.2.a")->op, "window");
    check_reads(m, "h.1.a", "h.0.a:0"); /* the layer before is the one that is there */
    check_reads(m, "h.1.b", "x:0");
    check_reads(m, "h.2.a", "h.1.b:0 mask:0");
    check_reads(m, "all", "act:0 h.0.a:1 h.1.a:1 h.2.a:1");
    check_reads(m, "last", "all:0");
    static const char *const set[] = {"act=2", "n=7"};
    const ckpt_model *const other = read_text(text, set, 2, &arena);
    assert_int_equal(other->layer_count, 4);
    assert_string_equal(other->layer[0].name, "first");
    assert_string_equal(layer_of(other, "act")->op, "gelu");
    check_reads(other, "all", "act:0");
    static const char *const none[] = {"n=0"}; /* a block of no copies */
    check_reads(read_text(text, none, 1, &arena), "all", "act:0");
}

/* Random expressions whose value is computed beside their text; small enough that nothing overflows. */
static uint64_t random_state = 42;

static uint64_t draw(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (random_state >> 33) % limit;
}

static int64_t write_random(ckpt_text *text, int depth)
{
    if (depth == 0 || draw(4) == 0) {
        const int64_t n = (int64_t)draw(20);
        ckpt_text_add(text, "%lld", (long long)n);
        return n;
    }
    ckpt_text_add(text, "(");
    int64_t a = write_random(text, depth - 1);
    const char sign = "+-*/%"[draw(5)];
    ckpt_text_add(text, "%s%c%s", draw(2) == 0 ? " " : "", sign, draw(2) == 0 ? " " : "");
    if (sign == '/' || sign == '%') {
        const int64_t b = 1 + (int64_t)draw(9);
        ckpt_text_add(text, "%lld", (long long)b);
        a = sign == '/' ? a / b : a % b;
    } else {
        const int64_t b = write_random(text, depth - 1);
        a = sign == '+' ? a + b : sign == '-' ? a - b : a * b;
    }
    ckpt_text_add(text, ")");
    return a;
}

static void test_random_expressions(void **state)
{
    const ckpt_model nothing = {.var = NULL};
    for (int i = 0; i < 2000; i++) {
        ckpt_text text;
        ckpt_err err = {0};
        int64_t value = 0;
        ckpt_text_init(&text);
        const int64_t wanted = write_random(&text, 3);
        CHECK_OK(ckpt_model_eval(&nothing, text.bytes, &value, &err), err);
        CHECK(value == wanted, "%s = %lld, wanted %lld", text.bytes, (long long)value, (long long)wanted);
        ckpt_text_fini(&text);
    }
}

/* The type of activations: from the file or in its place; inputs stay what files hold. */
static void test_dtypes(void **state)
{
    static const char text[] =
        "{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"dtype\": \"bfloat16\", \"inputs\": [ { \"name\": "
        "\"x\", \"shape\": [1] }, { \"name\": \"y\", \"shape\": [1], \"dtype\": \"int32\" }, { \"name\": \"z\", "
        "\"shape\": [1], \"dtype\": \"float32\" } ], \"layers\": [ { \"name\": \"a\", \"op\": \"o\" } ] }";
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_model *const m = read_text(text, NULL, 0, &arena);
    const ckpt_model *changed = NULL;
    assert_int_equal(m->dtype, CKPT_BFLOAT16);
    assert_int_equal(m->input[0].dtype, CKPT_FLOAT32);
    assert_int_equal(m->input[1].dtype, CKPT_INT32);
    assert_int_equal(m->input[2].dtype, CKPT_FLOAT32);
    CHECK_OK(ckpt_model_with_dtype(m, NULL, &arena, &changed, &err), err);
    assert_ptr_equal(changed, m);
    CHECK_OK(ckpt_model_with_dtype(m, "float32", &arena, &changed, &err), err);
    assert_int_equal(changed->dtype, CKPT_FLOAT32);
    assert_int_equal(m->dtype, CKPT_BFLOAT16);
    assert_ptr_equal(changed->layer, m->layer);
    CHECK_OK(ckpt_model_with_dtype(changed, "bfloat16", &arena, &changed, &err), err);
    assert_int_equal(changed->dtype, CKPT_BFLOAT16);
    changed = NULL;
    assert_int_equal(ckpt_model_with_dtype(m, "int32", &arena, &changed, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "found dtype \"int32\", wanted float32 or bfloat16");
    assert_null(changed);
}

static void test_defaults(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_model *const m = read_text("{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"layers\": [ { \"name\": "
                                          "\"a\", \"op\": \"o\", \"in\": [] } ] }",
                                          NULL, 0, &arena);
    assert_string_equal(m->optimizer, "sgd");
    assert_int_equal(m->optimizer_attr_count, 0);
    assert_int_equal(m->var_count, 0);
    assert_int_equal(m->input_count, 0);
    assert_int_equal(m->dtype, CKPT_FLOAT32);
    /* A block that is first: ^ is the first input. */
    const ckpt_model *const b =
        read_text("{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"inputs\": [ { \"name\": \"x\", \"shape\": [1] } ],"
                  "\"layers\": [ { \"name\": \"h\", \"repeat\": 1, \"layers\": [ { \"name\": \"a\", \"op\": \"o\", "
                  "\"in\": [\"^\"] } ] } ] }",
                  NULL, 0, &arena);
    check_reads(b, "h.0.a", "x:0");
}

static void test_a_million_layers_but_not_more(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const char *const deep =
        "{\"format\": \"ckpt-model/1\", \"name\": \"m\", \"vars\": {\"n\": 100}, \"layers\": ["
        "{ \"name\": \"a\", \"op\": \"o\", \"in\": [] }, { \"name\": \"h\", \"repeat\": \"n\", \"layers\": ["
        "{ \"name\": \"i\", \"repeat\": 100, \"layers\": [ { \"name\": \"b\", \"op\": \"o\" } ] } ] } ] }";
    const ckpt_model *m = read_text(deep, NULL, 0, &arena);
    assert_int_equal(m->layer_count, 10001);
    assert_string_equal(m->layer[10000].name, "h.99.i.99.b");
    static const char *const set[] = {"n=10000"};
    assert_int_equal(ckpt_model_read(ckpt_test_file("model.json", deep, strlen(deep)), set, 1, &arena, &m, &err),
                     CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "more than 1000000 layers"));
}

static void test_without_memory(void **state)
{
    ckpt_test_starve_format("model", net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_unrolled_and_names_found),
        cmocka_unit_test(test_flags_are_inherited),
        cmocka_unit_test(test_attributes_stay_as_written),
        cmocka_unit_test(test_attributes_know_their_copy),
        cmocka_unit_test(test_set_overrides_vars),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_random_expressions),
        cmocka_unit_test(test_real_expressions),
        cmocka_unit_test(test_what_is_left_out),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_a_million_layers_but_not_more),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
