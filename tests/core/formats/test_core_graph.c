/* labels: unit */
/* Graphs: reading, rules, writing, digest. What malformed files say is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/formats/graph.h"

static const char *const tiny =
    "{ \"format\": \"ckpt-graph/1\", \"name\": \"tiny\", \"some\": \"unknown key\",\n"
    "  \"static\": [ { \"name\": \"weights\", \"bytes\": 1000 }, { \"name\": \"inputs\", \"bytes\": 64 } ],\n"
    "  \"buffers\": [ { \"name\": \"a0\", \"bytes\": 512 }, { \"name\": \"a1\", \"bytes\": 512 },\n"
    "    { \"name\": \"s1\", \"bytes\": 16, \"kind\": \"saved\" }, { \"name\": \"g1\", \"bytes\": 512, \"kind\": "
    "\"gradient\" },\n"
    "    { \"name\": \"g0\", \"bytes\": 512, \"kind\": \"gradient\" } ],\n"
    "  \"ops\": [\n"
    "    { \"name\": \"f0\", \"phase\": \"forward\", \"layer\": \"l0\", \"writes\": [\"a0\"], \"time_ns\": 700 },\n"
    "    { \"name\": \"f1\", \"phase\": \"forward\", \"reads\": [\"a0\"], \"writes\": [\"a1\", \"s1\"], \"time_ns\": "
    "800,\n"
    "      \"workspace_bytes\": 32, \"inplace\": [[\"a1\", \"a0\"]], \"checkpoint\": true, \"segment\": \"h.0\",\n"
    "      \"op\": \"linear\", \"offload\": true, \"stage\": 3 },\n"
    "    { \"name\": \"b1\", \"phase\": \"backward\", \"reads\": [\"s1\"], \"writes\": [\"g1\", \"g0\"], \"time_ns\": "
    "900 },\n"
    "    { \"name\": \"b0\", \"phase\": \"backward\", \"reads\": [\"g1\", \"a1\"], \"adds\": [\"g0\"], \"time_ns\": "
    "900,\n"
    "      \"checkpoint\": false },\n"
    "    { \"name\": \"u\", \"phase\": \"update\", \"reads\": [\"g0\"], \"time_ns\": 1, \"recompute\": true },\n"
    "    { \"name\": \"r\", \"phase\": \"reduce\", \"time_ns\": 0 } ],\n"
    "  \"outputs\": [\"g0\"], \"link\": { \"d2h_bytes_per_s\": 5, \"h2d_bytes_per_s\": 6 } }\n";

static const ckpt_graph *read_text(const char *text, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const ckpt_graph *graph = NULL;
    CHECK_OK(ckpt_graph_read(ckpt_test_file("graph.json", text, strlen(text)), arena, &graph, &err), err);
    return graph;
}

static void test_fields_are_read(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const g = read_text(tiny, &arena);
    assert_string_equal(g->name, "tiny");
    assert_int_equal(g->static_count, 2);
    assert_int_equal(g->static_bytes, 1064);
    assert_int_equal(g->buffer_count, 5);
    assert_int_equal(g->buffer[0].kind, CKPT_ACTIVATION); /* the default */
    assert_int_equal(g->buffer[2].kind, CKPT_SAVED);
    assert_int_equal(g->op_count, 6);
    const ckpt_graph_op *const f1 = &g->op[1];
    assert_int_equal(f1->reads.count, 1);
    assert_int_equal(f1->writes.at[1], 2);
    assert_int_equal(f1->inplace_count, 1);
    assert_int_equal(f1->inplace[0].out, 1);
    assert_int_equal(f1->inplace[0].in, 0);
    assert_int_equal(f1->workspace_bytes, 32);
    assert_int_equal(f1->checkpoint, CKPT_YES);
    assert_string_equal(f1->segment, "h.0");
    assert_string_equal(f1->kind, "linear");
    assert_int_equal(f1->offload, CKPT_YES);
    assert_int_equal(f1->stage, 4); /* plus one: 0 is none */
    assert_int_equal(g->op[0].stage, 0);
    assert_null(g->op[0].kind);
    assert_string_equal(g->op[0].layer, "l0");
    assert_string_equal(f1->layer, "");
    assert_int_equal(g->op[0].checkpoint, CKPT_UNSET);
    assert_null(g->op[0].segment);
    assert_int_equal(g->op[3].checkpoint, CKPT_NO);
    assert_true(g->op[0].recompute && f1->recompute); /* forward: by default */
    assert_false(g->op[2].recompute || g->op[3].recompute || g->op[5].recompute);
    assert_true(g->op[4].recompute); /* as it says */
    assert_int_equal(g->op[3].adds.at[0], 4);
    assert_int_equal(g->outputs.count, 1);
    assert_true(g->has_link && g->d2h_bytes_per_s == 5 && g->h2d_bytes_per_s == 6);
    const int writer[] = {0, 1, 1, 2, 2};
    for (int b = 0; b < 5; b++) {
        assert_int_equal(g->writer[b], writer[b]);
        assert_int_equal(ckpt_graph_find_buffer(g, g->buffer[b].name), b);
    }
    assert_int_equal(ckpt_graph_find_op(g, "u"), 4);
    assert_int_equal(ckpt_graph_find_op(g, "a0"), -1);
    assert_int_equal(ckpt_graph_find_buffer(g, "u"), -1);
}

static void digest_of(const char *text, char digest[CKPT_DIGEST_TEXT])
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_digest(read_text(text, &arena), digest, &err), err);
}

/* The canonical text of docs/reference/formats.md, written out by hand. */
static void test_digest_is_of_the_documented_text(void **state)
{
    static const char canonical[] = "ckpt-graph/1 \"tiny\"\n"
                                    "static \"weights\" 1000\n"
                                    "static \"inputs\" 64\n"
                                    "buffer \"a0\" 512 activation\n"
                                    "buffer \"a1\" 512 activation\n"
                                    "buffer \"s1\" 16 saved\n"
                                    "buffer \"g1\" 512 gradient\n"
                                    "buffer \"g0\" 512 gradient\n"
                                    "op \"f0\" forward again\nreads\nwrites \"a0\"\nadds\n"
                                    "op \"f1\" forward again\nreads \"a0\"\nwrites \"a1\" \"s1\"\nadds\n"
                                    "inplace \"a1\" \"a0\"\n"
                                    "op \"b1\" backward once\nreads \"s1\"\nwrites \"g1\" \"g0\"\nadds\n"
                                    "op \"b0\" backward once\nreads \"g1\" \"a1\"\nwrites\nadds \"g0\"\n"
                                    "op \"u\" update again\nreads \"g0\"\nwrites\nadds\n"
                                    "op \"r\" reduce once\nreads\nwrites\nadds\n"
                                    "outputs \"g0\"\n";
    char wanted[CKPT_DIGEST_TEXT];
    char found[CKPT_DIGEST_TEXT];
    ckpt_digest *const digest = ckpt_digest_create();
    ckpt_digest_add(digest, canonical, sizeof canonical - 1);
    ckpt_digest_end(digest, wanted);
    digest_of(tiny, found);
    assert_string_equal(found, wanted);
}

static void test_digest_sees_structure_only(void **state)
{
    static const char *const same[][2] = {
        {"\"time_ns\": 700", "\"time_ns\": 7"},
        {"\"workspace_bytes\": 32", "\"workspace_bytes\": 64"},
        {"\"layer\": \"l0\"", "\"layer\": \"l9\""},
        {", \"link\": { \"d2h_bytes_per_s\": 5, \"h2d_bytes_per_s\": 6 }", ""},
        {"\"checkpoint\": true, ", ""},
        {"\"some\": \"unknown key\"", "\"other\": 1"},
    };
    static const char *const other[][2] = {
        {"\"name\": \"tiny\"", "\"name\": \"tiny2\""},
        {"\"bytes\": 1000", "\"bytes\": 1001"},
        {"\"bytes\": 16", "\"bytes\": 17"},
        {"\"kind\": \"saved\"", "\"kind\": \"activation\""},
        {"\"name\": \"b1\"", "\"name\": \"b2\""},
        {"\"reads\": [\"g1\", \"a1\"]", "\"reads\": [\"a1\", \"g1\"]"},
        {"\"reads\": [\"s1\"]", "\"reads\": []"},
        {"\"adds\": [\"g0\"]", "\"adds\": []"},
        {"\"inplace\": [[\"a1\", \"a0\"]], ", ""},
        {", \"recompute\": true", ""},
        {"\"phase\": \"reduce\"", "\"phase\": \"update\""},
        {"\"outputs\": [\"g0\"]", "\"outputs\": []"},
    };
    char base[CKPT_DIGEST_TEXT];
    char found[CKPT_DIGEST_TEXT];
    digest_of(tiny, base);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        digest_of(ckpt_test_replace(tiny, same[i][0], same[i][1]), found);
        CHECK(strcmp(base, found) == 0, "%s must not change the digest", same[i][0]);
    }
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        digest_of(ckpt_test_replace(tiny, other[i][0], other[i][1]), found);
        CHECK(strcmp(base, found) != 0, "%s must change the digest", other[i][0]);
    }
}

static void test_round_trip(void **state)
{
    ckpt_test_round_trip("graph", tiny);
    ckpt_test_round_trip("graph",
                         "{\"format\": \"ckpt-graph/1\", \"name\": \"\\\"odd\\\" \\n\", \"buffers\": [], \"ops\": []}");
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    char before[CKPT_DIGEST_TEXT];
    char after[CKPT_DIGEST_TEXT];
    ckpt_text_init(&text);
    const ckpt_graph *const g = read_text(tiny, &arena);
    ckpt_graph_write(g, &text);
    digest_of(tiny, before);
    digest_of(text.bytes, after);
    assert_string_equal(before, after);
    const ckpt_graph *const recomputed = read_text(text.bytes, &arena);
    for (int i = 0; i < g->op_count; i++) { /* what the digest leaves out */
        assert_int_equal(recomputed->op[i].time_ns, g->op[i].time_ns);
        assert_int_equal(recomputed->op[i].workspace_bytes, g->op[i].workspace_bytes);
        assert_int_equal(recomputed->op[i].checkpoint, g->op[i].checkpoint);
        assert_string_equal(recomputed->op[i].layer, g->op[i].layer);
        assert_true((recomputed->op[i].segment == NULL) == (g->op[i].segment == NULL));
        assert_true((recomputed->op[i].kind == NULL) == (g->op[i].kind == NULL));
        assert_int_equal(recomputed->op[i].offload, g->op[i].offload);
        assert_int_equal(recomputed->op[i].stage, g->op[i].stage);
    }
    assert_true(recomputed->has_link && recomputed->h2d_bytes_per_s == 6);
    ckpt_text_fini(&text);
}

/* A graph made in memory is checked by the same rules, without a place. */
static void test_check_of_a_graph_made_in_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_graph g = *read_text(tiny, &arena);
    g.static_bytes = -5;
    g.writer = NULL;
    CHECK_OK(ckpt_graph_check(&g, &arena, &err), err);
    assert_int_equal(g.static_bytes, 1064);
    assert_int_equal(g.writer[2], 1);
    ckpt_buffer buffer[5];
    memcpy(buffer, g.buffer, sizeof buffer);
    g.buffer = buffer;
    buffer[3].name = "a0";
    assert_int_equal(ckpt_graph_check(&g, &arena, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "graph tiny: buffers 0 and 3 are both named \"a0\", wanted unique names");
    buffer[3].name = "g1";
    buffer[3].bytes = INT64_MAX;
    assert_int_equal(ckpt_graph_check(&g, &arena, &err), CKPT_OVERFLOW);
    buffer[3].bytes = -1;
    assert_int_equal(ckpt_graph_check(&g, &arena, &err), CKPT_BAD_INPUT);
    buffer[3].bytes = 512;
    const int beyond[] = {5};
    g.outputs = (ckpt_list){beyond, 1};
    assert_int_equal(ckpt_graph_check(&g, &arena, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "buffer 5, but there are 5"));
    g.outputs.count = 0;
    g.h2d_bytes_per_s = 0;
    assert_int_equal(ckpt_graph_check(&g, &arena, &err), CKPT_BAD_INPUT);
}

static ckpt_code digest_starved(void *context, ckpt_err *err)
{
    char digest[CKPT_DIGEST_TEXT];
    return ckpt_graph_digest(context, digest, err);
}

static void test_without_memory(void **state)
{
    ckpt_test_starve_format("graph", tiny);
    CKPT_TEST_ARENA(arena);
    ckpt_graph graph = *read_text(tiny, &arena);
    assert_true(ckpt_test_starve(digest_starved, &graph) >= 2);
}

/* 10 MB are read; how long it took is printed, not asserted. */
static void test_a_large_graph_is_read(void **state)
{
    enum { LAYERS = 20000 };
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_text_add(&text, "{\"format\": \"ckpt-graph/1\", \"name\": \"large\", \"buffers\": [");
    for (int i = 0; i < LAYERS; i++) {
        ckpt_text_add(&text, "%s{\"name\": \"block.%d.activation\", \"bytes\": %d, \"kind\": \"activation\"},\n",
                      i > 0 ? "," : "", i, 4096 + i);
        ckpt_text_add(&text, "{\"name\": \"block.%d.gradient\", \"bytes\": %d, \"kind\": \"gradient\"}", i, 4096 + i);
    }
    ckpt_text_add(&text, "], \"ops\": [{\"name\": \"start\", \"phase\": \"forward\", \"writes\": [], \"time_ns\": 1}");
    for (int i = 0; i < LAYERS; i++) {
        ckpt_text_add(
            &text, ",\n{\"name\": \"block.%d/forward\", \"phase\": \"forward\", \"layer\": \"block.%d\", \"reads\": [",
            i, i);
        if (i > 0) {
            ckpt_text_add(&text, "\"block.%d.activation\"", i - 1);
        }
        ckpt_text_add(&text, "], \"writes\": [\"block.%d.activation\"], \"time_ns\": %d, \"workspace_bytes\": 64}", i,
                      i);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        ckpt_text_add(
            &text,
            ",\n{\"name\": \"block.%d/backward\", \"phase\": \"backward\", \"layer\": \"block.%d\", \"reads\": [", i,
            i);
        ckpt_text_add(&text, "\"block.%d.activation\"", i);
        if (i + 1 < LAYERS) {
            ckpt_text_add(&text, ", \"block.%d.gradient\"", i + 1);
        }
        ckpt_text_add(&text, "], \"writes\": [\"block.%d.gradient\"], \"time_ns\": %d}", i, i);
    }
    ckpt_text_add(&text, "]}");
    assert_false(text.failed);
    CHECK(text.length > 10000000, "only %zu bytes", text.length);
    const char *const path = ckpt_test_file("large.json", text.bytes, text.length);
    ckpt_arena arena;
    ckpt_err err = {0};
    const ckpt_graph *graph = NULL;
    ckpt_arena_init(&arena);
    const ckpt_ns start = ckpt_clock_ns();
    CHECK_OK(ckpt_graph_read(path, &arena, &graph, &err), err);
    printf("%zu bytes read in %.0f ms\n", text.length, (double)(ckpt_clock_ns() - start) / 1e6);
    assert_int_equal(graph->op_count, 2 * LAYERS + 1);
    assert_int_equal(graph->writer[2 * (LAYERS - 1)], LAYERS);
    ckpt_arena_fini(&arena);
    ckpt_text_fini(&text);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_read),
        cmocka_unit_test(test_digest_is_of_the_documented_text),
        cmocka_unit_test(test_digest_sees_structure_only),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_check_of_a_graph_made_in_memory),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_a_large_graph_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
