/* labels: golden */
/* The drawing of a graph: goldens in DOT, hostile names through Graphviz itself, large graphs, starvation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_golden.h"
#include "tests/support/support_test.h"
#include "viz/viz.h"

typedef ckpt_test_fixture fixture;

static void draw_beyond(fixture *f, const ckpt_graph *graph, const ckpt_plan *plan, const char *format, int fold_beyond)
{
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_graph_draw(graph, plan, format, fold_beyond, &f->text, &f->err), f->err);
    CHECK(f->text.length > 100, "%s: only %zu bytes", format, f->text.length);
}

static void draw(fixture *f, const ckpt_graph *graph, const ckpt_plan *plan, const char *format)
{
    draw_beyond(f, graph, plan, format, 0);
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        found++;
    }
    return found;
}

/* The plan that recomputes odd blocks, with its steps: each block runs again in front of its backward. */
static const ckpt_plan *with_steps(fixture *f, const ckpt_graph *graph)
{
    const int layers = graph->op_count / 2;
    ckpt_plan *const plan = CKPT_NEW(&f->arena, ckpt_plan, 1);
    ckpt_step *const step = CKPT_NEW(&f->arena, ckpt_step, 3 * layers);
    *plan = *ckpt_golden_plan(graph, &f->arena);
    int steps = 0;
    for (int i = 0; i < graph->op_count; i++) {
        const int layer = i < layers ? -1 : graph->op_count - 1 - i;
        for (int k = layer - 3; layer % 4 == 3 && k <= layer; k++) {
            if (plan->layer[k].decision == CKPT_RECOMPUTE) {
                step[steps++] = (ckpt_step){.kind = CKPT_RUN, .target = k, .recomputed = true};
            }
        }
        step[steps++] = (ckpt_step){.kind = CKPT_RUN, .target = i};
    }
    plan->step = step;
    plan->step_count = steps;
    plan->time_ns = 1100000;
    plan->keep_all_time_ns = 1000000;
    plan->keep_all_peak_bytes = 90000000;
    return plan;
}

static void golden(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_golden_graph(12, &f->arena);
    draw(f, graph, NULL, "dot");
    ckpt_golden_check("graph.dot", f->text.bytes, f->text.length);
    draw(f, graph, ckpt_golden_plan(graph, &f->arena), "dot");
    ckpt_golden_check("graph_plan.dot", f->text.bytes, f->text.length);
    const ckpt_graph *const longer = ckpt_golden_graph(48, &f->arena);
    draw(f, longer, with_steps(f, longer), "dot");
    ckpt_golden_check("graph_segments.dot", f->text.bytes, f->text.length);
    const ckpt_graph *const large = ckpt_golden_graph(400, &f->arena);
    draw(f, large, ckpt_golden_plan(large, &f->arena), "dot");
    ckpt_golden_check("graph_large.dot", f->text.bytes, f->text.length);
}

/* How many ways there are; which the plan chose; that blocks fold where the same ones are chosen, and there alone. */
static void variants(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_golden_ways(3, &f->arena);
    draw(f, graph, NULL, "dot");
    ckpt_golden_check("graph_variants.dot", f->text.bytes, f->text.length);
    draw(f, graph, ckpt_golden_ways_plan(graph, 2, &f->arena), "dot");
    ckpt_golden_check("graph_variants_plan.dot", f->text.bytes, f->text.length);
    draw(f, graph, ckpt_golden_ways_plan(graph, 2, &f->arena), "svg");
    assert_non_null(strstr(f->text.bytes, "winograd ~ 40.0 us and 16.0 MB of workspace, chosen"));

    const ckpt_graph *const large = ckpt_golden_ways(120, &f->arena);
    const int fast[] = {0, 120, 50};
    for (int i = 0; i < 3; i++) {
        draw(f, large, ckpt_golden_ways_plan(large, fast[i], &f->arena), "dot");
        assert_non_null(strstr(f->text.bytes, i == 2 ? " ×49" : " ×119"));
        assert_int_equal(strstr(f->text.bytes, "by winograd ~") != NULL, fast[i] > 0);
        assert_int_equal(strstr(f->text.bytes, "optional, does not run") != NULL, fast[i] < 120);
    }
    CHECK(strstr(f->text.bytes, "by: 100 ops") != NULL, "%.600s", f->text.bytes);
}

static bool line_has(const char *text, const char *begin, const char *word)
{
    const char *const line = strstr(text, begin);
    const char *const found = line != NULL ? strstr(line, word) : NULL;
    return found != NULL && found < line + strcspn(line, "\n");
}

/* One box for each forward op, and each of its reads as an arrow, or in words where it comes from another column. */
static void every_layer_and_read_is_there(void **state)
{
    fixture *const f = *state;
    for (int layers = 1; layers <= 200; layers += layers < 20 ? 1 : 60) {
        const ckpt_graph *const graph = ckpt_golden_graph(layers, &f->arena);
        int reads = 0, words = 0;
        draw_beyond(f, graph, NULL, "dot", layers);
        assert_int_equal(count(f->text.bytes, "[label=\"h."), layers);
        for (int i = 0; i < layers; i++) {
            for (int r = 0; r < graph->op[i].reads.count; r++) {
                const int from = graph->op[i].reads.at[r];
                char arrow[80], above[80], below[80];
                snprintf(arrow, sizeof arrow, "\"%d %s\" -> \"%d %s\"", from, graph->op[from].layer, i,
                         graph->op[i].layer);
                snprintf(above, sizeof above, "  \"from %d\" [", i);
                snprintf(below, sizeof below, "  \"to %d\" [", from);
                const bool shown = strstr(f->text.bytes, arrow) != NULL;
                const bool said = line_has(f->text.bytes, above, graph->op[from].layer) &&
                                  line_has(f->text.bytes, below, graph->op[i].layer);
                CHECK(shown != said, "%d layers: %s is %s", layers, arrow, shown ? "there twice" : "missing");
                words += said;
                reads++;
            }
        }
        CHECK((words > 0) == (layers > 25), "%d layers: %d reads in words", layers, words);
        draw_beyond(f, graph, NULL, "svg", layers);
        CHECK(count(f->text.bytes, "class=\"node\"") >= layers, "%d layers: too few nodes", layers);
        CHECK(count(f->text.bytes, "class=\"edge\"") >= reads - words, "%d layers: too few edges", layers);
    }
}

static void every_format(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_golden_graph(12, &f->arena);
    const ckpt_plan *const plan = ckpt_golden_plan(graph, &f->arena);
    draw(f, graph, plan, "svg");
    ckpt_text first = f->text;
    ckpt_text_init(&f->text);
    draw(f, graph, plan, "svg");
    CHECK(first.length == f->text.length && memcmp(first.bytes, f->text.bytes, first.length) == 0,
          "the same graph gives another SVG the second time");
    ckpt_text_fini(&first);
    draw(f, graph, plan, "png");
    assert_memory_equal(f->text.bytes, "\x89PNG", 4);
    draw(f, graph, plan, "pdf");
    assert_memory_equal(f->text.bytes, "%PDF", 4);
    assert_int_equal(ckpt_graph_draw(graph, plan, "gif", 0, &f->text, &f->err), CKPT_BAD_INPUT);
}

/* Every hostile name comes out of Graphviz as one node whose SVG shows it as it was written. */
static void hostile_names(void **state)
{
    static char longest[10001];
    memset(longest, 'x', sizeof longest - 1);
    static const char *const name[] = {
        "a\\",   "\\N\\G\\n", "\"]; x [label=\"", "<b>&lt;</b>",    "a:b:c", "\033[31m", "\xff", "",
        "-> --", "node",      "<<b>bold</b>>",    "two\nlines\r\t", longest};
    static const char *const shown[] = {">a\\<",
                                        ">\\N\\G\\n<",
                                        ">&quot;]; x [label=&quot;<",
                                        ">&lt;b&gt;&amp;lt;",
                                        ">a:b:c<",
                                        "[31m<",
                                        NULL,
                                        NULL,
                                        "&gt; &#45;&#45;<",
                                        ">node<",
                                        "&lt;&lt;b&gt;bold&lt;/b&gt;&gt;",
                                        NULL,
                                        ">xxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxxxxx<"};
    enum { NAMES = sizeof name / sizeof name[0] };
    fixture *const f = *state;
    const ckpt_graph *const plain = ckpt_golden_graph(NAMES, &f->arena);
    ckpt_graph graph = *plain;
    ckpt_graph_op *const op = CKPT_NEW(&f->arena, ckpt_graph_op, graph.op_count);
    memcpy(op, graph.op, (size_t)graph.op_count * sizeof *op);
    for (int i = 0; i < NAMES; i++) {
        op[i].layer = name[i];
    }
    graph.op = op;
    graph.name = "\"]; } digraph { \\";
    draw(f, &graph, ckpt_golden_plan(&graph, &f->arena), "svg");
    assert_int_equal(count(f->text.bytes, "class=\"node\""), NAMES + 3); /* and the legend's */
    for (int i = 0; i < NAMES; i++) {
        CHECK(shown[i] == NULL || strstr(f->text.bytes, shown[i]) != NULL, "\"%s\" is not shown as %s", name[i],
              shown[i]);
    }
    assert_null(strchr(f->text.bytes, '\033'));
}

/* An arrow to a frame's first box ran through the frame's heading: it ends at the frame. */
static void arrows_ran_through_headings(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_golden_graph(48, &f->arena);
    draw(f, graph, with_steps(f, graph), "dot");
    int frames = 0;
    for (const char *at = f->text.bytes; (at = strstr(at, "subgraph cluster_")) != NULL; at++) {
        if (strncmp(at, "subgraph cluster_legend", 23) == 0) {
            continue;
        }
        const char *const box = strstr(at, "\n    \""); /* the first in it */
        assert_non_null(box);
        const int frame = atoi(at + strlen("subgraph cluster_")), first = atoi(box + 6);
        char into[40], above[40], lhead[40];
        snprintf(into, sizeof into, " -> \"%d ", first);
        snprintf(above, sizeof above, "\"from %d\" -> ", first);
        snprintf(lhead, sizeof lhead, "lhead=cluster_%d]", frame);
        for (const char *arrow = f->text.bytes; (arrow = strstr(arrow, into)) != NULL; arrow++) {
            CHECK(line_has(arrow, into, lhead), "an arrow to the first box of frame %d: %.90s", frame, arrow);
        }
        CHECK(strstr(f->text.bytes, above) == NULL || line_has(f->text.bytes, above, lhead), "words above frame %d",
              frame);
        frames++;
    }
    CHECK(frames >= 5, "only %d frames", frames);
}

/* Where all layers would be too large to read blocks that repeat are one, and where none does neighbours share boxes. */
static void large_graphs(void **state)
{
    fixture *const f = *state;
    ckpt_graph graph = *ckpt_golden_graph(3000, &f->arena);
    draw(f, &graph, ckpt_golden_plan(&graph, &f->arena), "dot");
    assert_non_null(strstr(f->text.bytes, "h.2 to h.3 … h.748 to h.749 ×374"));
    assert_int_equal(count(f->text.bytes, "[label=\"h."), 16);
    draw(f, &graph, NULL, "svg");

    ckpt_buffer *const buffer = CKPT_NEW(&f->arena, ckpt_buffer, graph.buffer_count);
    memcpy(buffer, graph.buffer, (size_t)graph.buffer_count * sizeof *buffer);
    for (int i = 0; i < graph.buffer_count; i++) {
        buffer[i].bytes += i; /* now no two are the same */
        buffer[i].kind = i < 3000 && i % 8 == 2 ? CKPT_SAVED : buffer[i].kind;
    }
    graph.buffer = buffer;
    draw(f, &graph, ckpt_golden_plan(&graph, &f->arena), "dot");
    /* 3,000 layers are 750 blocks of 4: still too many, so each box stands for eight blocks, and the last for six. */
    assert_int_equal(count(f->text.bytes, "(32 layers)"), 93);
    assert_int_equal(count(f->text.bytes, "(24 layers)"), 1);
    const char *const shared = strstr(f->text.bytes, "h.8 to h.15 (32 layers)");
    assert_non_null(shared);
    ckpt_bytes written = 0, saved = 0;
    ckpt_ns forward = 0, backward = 0;
    for (int i = 32; i < 64; i++) {
        *(buffer[i].kind == CKPT_SAVED ? &saved : &written) += buffer[i].bytes;
        forward += graph.op[i].time_ns;
        backward += graph.op[graph.op_count - 1 - i].time_ns;
    }
    char words[200], shown[4][CKPT_UNITS_TEXT];
    snprintf(words, sizeof words, "h.8 to h.15 (32 layers)\\n%s + %s\\n%s + %s\\n16 kept, 16 recomputed\"",
             ckpt_bytes_show(written, shown[0]), ckpt_bytes_show(saved, shown[1]), ckpt_ns_show(forward, shown[2]),
             ckpt_ns_show(backward, shown[3]));
    CHECK(strncmp(shared, words, strlen(words)) == 0, "%.100s, wanted %s", shared, words);
    CHECK(line_has(shared, "h.8", "fillcolor=\"#cfe8f7;0.50:#fbe0a6;0.50\""), "stripes of %.300s", shared);
    draw(f, &graph, NULL, "svg");
    assert_int_equal(count(f->text.bytes, "(32 layers)"), 93);
}

/* What was imported may have several forward ops of one layer: all have its decision and names of their own, the legend
 * counts the layer once, and a backward op's time stands in the box whose output it reads, else in the first. */
static void ops_of_one_layer(void **state)
{
    fixture *const f = *state;
    enum { LAYERS = 9 };
    const ckpt_graph *const plain = ckpt_golden_graph(LAYERS, &f->arena);
    ckpt_graph graph = *plain;
    ckpt_graph_op *const op = CKPT_NEW(&f->arena, ckpt_graph_op, graph.op_count);
    memcpy(op, graph.op, (size_t)graph.op_count * sizeof *op);
    const int shared[] = {1, 4, 5, 7};
    for (int i = 0; i < 4; i++) {
        op[shared[i]].layer = "both";
        op[graph.op_count - 1 - shared[i]].layer = "both";
    }
    for (int i = 0; i < graph.op_count; i++) {
        op[i].time_ns = i < LAYERS ? 1000 : 0;
    }
    ckpt_graph_op *const read = &op[graph.op_count - 1 - 5], *const unread = &op[graph.op_count - 1 - 7];
    read->reads = (ckpt_list){op[5].writes.at, 1};
    read->time_ns = 3000;
    unread->reads.count = 0;
    unread->time_ns = 7000;
    graph.op = op;
    const ckpt_layer_decision layer[] = {{"h.0.norm", CKPT_KEEP}, {"both", CKPT_RECOMPUTE}};
    ckpt_plan plan = *ckpt_golden_plan(plain, &f->arena);
    plan.layer = layer;
    plan.layer_count = 2;
    draw(f, &graph, &plan, "dot");
    assert_non_null(strstr(f->text.bytes, "\"recomputed: 1\""));
    for (int i = 0; i < 4; i++) {
        char begin[100];
        snprintf(begin, sizeof begin, "\"%d both.%s\" [label=", shared[i], op[shared[i]].name);
        CHECK(line_has(f->text.bytes, begin, "#fbe0a6"), "%s is not recomputed", begin);
        CHECK(line_has(f->text.bytes, begin, "+ 3.00 us") == (i == 2), "%s: the time of what reads it", begin);
        CHECK(line_has(f->text.bytes, begin, "+ 7.00 us") == (i == 0), "%s: the time of what reads none", begin);
    }
    assert_int_equal(count(f->text.bytes, "#fbe0a6"), 5);
}

/* Graphs that are no chain: no op, one op, no forward op, two that do not touch. */
static void small_graphs(void **state)
{
    fixture *const f = *state;
    const ckpt_graph empty = {.name = "empty"};
    draw(f, &empty, NULL, "dot");
    draw(f, &empty, NULL, "svg");
    ckpt_graph graph = *ckpt_golden_graph(1, &f->arena);
    draw(f, &graph, ckpt_golden_plan(&graph, &f->arena), "svg");
    assert_int_equal(count(f->text.bytes, ">h.0.norm<"), 1);
    graph.op++; /* backward alone */
    graph.op_count = 1;
    const int writer[] = {0, 0};
    graph.writer = writer;
    draw(f, &graph, NULL, "dot");
    assert_non_null(strstr(f->text.bytes, "1 backward ops, 1 in all"));
    assert_int_equal(count(f->text.bytes, "[label=\"h."), 1);

    graph = *ckpt_golden_graph(120, &f->arena);
    ckpt_graph_op *const op = CKPT_NEW(&f->arena, ckpt_graph_op, graph.op_count);
    memcpy(op, graph.op, (size_t)graph.op_count * sizeof *op);
    for (int i = 0; i < 120; i++) {
        if (i % 60 == 0) {
            op[i].reads.count = 0;
        } else if (i % 60 < 4) {
            op[i].reads.count = 1;
        }
    }
    graph.op = op;
    draw_beyond(f, &graph, ckpt_golden_plan(&graph, &f->arena), "svg", graph.op_count);
    assert_int_equal(count(f->text.bytes, ">1.00 MB<"), 30);
}

static ckpt_code draw_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    void **const given = context;
    return ckpt_graph_draw(given[0], given[1], given[2], 0, text, err);
}

static void starved(void **state)
{
    fixture *const f = *state;
    ckpt_graph graph = *ckpt_golden_graph(12, &f->arena);
    ckpt_plan plan = *ckpt_golden_plan(&graph, &f->arena);
    static char dot[] = "dot", svg[] = "svg";
    void *context[] = {&graph, &plan, dot};
    CHECK(ckpt_test_starve_text(draw_starved, context) > 2, "too few allocations to mean anything");
    context[2] = svg;
    CHECK(ckpt_test_starve_text(draw_starved, context) > 2, "too few allocations to mean anything");
    ckpt_graph ways = *ckpt_golden_ways(2, &f->arena);
    ckpt_plan chosen = *ckpt_golden_ways_plan(&ways, 1, &f->arena);
    void *variant[] = {&ways, &chosen, dot};
    CHECK(ckpt_test_starve_text(draw_starved, variant) > 2, "too few allocations to mean anything");
}

static ckpt_code netron_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    void **const given = context;
    return ckpt_graph_netron(given[0], given[1], NULL, text, err);
}

/* What is in the file is checked by netron_check.py, from the command line. */
static void netron(void **state)
{
    fixture *const f = *state;
    ckpt_graph graph = *ckpt_golden_graph(12, &f->arena);
    ckpt_plan plan = *with_steps(f, &graph);
    CHECK_OK(ckpt_graph_netron(&graph, &plan, NULL, &f->text, &f->err), f->err);
    assert_int_equal(count(f->text.bytes, "\"op_type\""), graph.op_count);
    const ckpt_graph empty = {.name = ""};
    CHECK_OK(ckpt_graph_netron(&empty, NULL, NULL, &f->text, &f->err), f->err);
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    const ckpt_graph *const ways = ckpt_golden_ways(2, &f->arena);
    CHECK_OK(ckpt_graph_netron(ways, ckpt_golden_ways_plan(ways, 1, &f->arena), NULL, &f->text, &f->err), f->err);
    assert_int_equal(count(f->text.bytes, "\"name\": \"ways\", \"type\""), 4);
    assert_int_equal(count(f->text.bytes, "\"inexact variant\""), 1);
    assert_int_equal(count(f->text.bytes, "\"key\": \"variant\", \"value\": \"bits\""), 1);
    void *context[] = {&graph, &plan};
    CHECK(ckpt_test_starve_text(netron_starved, context) > 2, "too few allocations to mean anything");
}

/* Graphviz and the font libraries under it keep what they read until the process ends. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\nleak:libpango\nleak:libgvc\nleak:libcgraph\nleak:libgvplugin\nleak:libglib\nleak:"
           "libltdl\n";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(golden, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(variants, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(every_layer_and_read_is_there, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(every_format, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(hostile_names, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(large_graphs, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(arrows_ran_through_headings, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(ops_of_one_layer, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(small_graphs, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(starved, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(netron, ckpt_test_open, ckpt_test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
