/* labels: unit */
/* ExecutionTraces from PyTorch (tests/imports/make_execution.py), compared with the results of a separate program on
 * the same JSON (execution_expected.py) and with PyTorch's memory in that run. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "imports/import.h"
#include "planner/api/planner.h"
#include "planner/replay/replay.h"

static const char *const runs[] = {"mlp", "foreach", "batches", "cnn", "transformer"};
enum { RUNS = sizeof runs / sizeof runs[0] };

static const char *path_of(const char *run, const char *suffix)
{
    static char paths[4][512];
    static int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/tests/imports/execution_%s%s.json", ckpt_source_dir(), run, suffix);
    return path;
}

static ckpt_graph *import(const char *run, bool timed, double bytes_per_s, ckpt_arena *arena)
{
    ckpt_graph *graph = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_import_execution(path_of(run, ""), timed ? path_of(run, ".kineto") : NULL, bytes_per_s, NULL, arena,
                                   &graph, &err),
             err);
    return graph;
}

/* The expectations of one run. */
typedef struct expected {
    ckpt_json *json;
    ckpt_item root;
    ckpt_arena arena;
} expected;

static void open_expected(const char *run, expected *e)
{
    ckpt_err err = {0};
    ckpt_arena_init(&e->arena);
    CHECK_OK(ckpt_json_open(path_of(run, ".expected"), NULL, &e->json, &e->root, &err), err);
}

static void close_expected(expected *e)
{
    ckpt_json_close(e->json);
    ckpt_arena_fini(&e->arena);
}

static int64_t number(const ckpt_item *item)
{
    ckpt_err err = {0};
    int64_t value = 0;
    CHECK_OK(ckpt_item_int(item, 0, INT64_MAX, &value, &err), err);
    return value;
}

static int64_t member(const expected *e, const char *key)
{
    ckpt_item item;
    return ckpt_item_find(&e->root, key, &item) ? number(&item) : -1;
}

static int64_t element(const expected *e, const char *key, int index)
{
    ckpt_item list;
    ckpt_item item;
    assert_true(ckpt_item_find(&e->root, key, &list));
    ckpt_item_at(&list, index, &item);
    return number(&item);
}

static const char *text(expected *e, const ckpt_item *item)
{
    const char *found = "";
    ckpt_err err = {0};
    CHECK_OK(ckpt_item_text(item, &e->arena, &found, &err), err);
    return found;
}

static bool lists(expected *e, const char *key, const char *wanted)
{
    ckpt_item list;
    assert_true(ckpt_item_find(&e->root, key, &list));
    for (int i = 0; i < ckpt_item_count(&list); i++) {
        ckpt_item item;
        ckpt_item_at(&list, i, &item);
        if (strcmp(text(e, &item), wanted) == 0) {
            return true;
        }
    }
    return false;
}

/* The peak beside the static block if each buffer is freed after its last use. */
static ckpt_bytes keep_all_bytes(const ckpt_graph *g)
{
    int *const last = calloc((size_t)g->buffer_count + 1, sizeof *last);
    ckpt_bytes most = 0;
    for (int i = 0; i < g->op_count; i++) {
        for (int k = 0; k < g->op[i].reads.count; k++) {
            last[g->op[i].reads.at[k]] = i;
        }
        for (int k = 0; k < g->op[i].adds.count; k++) {
            last[g->op[i].adds.at[k]] = i;
        }
    }
    for (int k = 0; k < g->outputs.count; k++) {
        last[g->outputs.at[k]] = g->op_count;
    }
    for (int i = 0; i < g->op_count; i++) {
        ckpt_bytes live = g->op[i].workspace_bytes;
        for (int b = 0; b < g->buffer_count; b++) {
            live += g->writer[b] == i || (g->writer[b] < i && last[b] >= i) ? g->buffer[b].bytes : 0;
        }
        for (int k = 0; k < g->op[i].inplace_count; k++) {
            live -= last[g->op[i].inplace[k].in] == i ? g->buffer[g->op[i].inplace[k].in].bytes : 0;
        }
        most = live > most ? live : most;
    }
    free(last);
    return most;
}

static void check_ops(const ckpt_graph *g, expected *e, const char *run)
{
    ckpt_item names;
    ckpt_item phases;
    ckpt_item layers;
    assert_true(ckpt_item_find(&e->root, "layers", &layers));
    assert_true(ckpt_item_find(&e->root, "ops", &names));
    assert_true(ckpt_item_find(&e->root, "phases", &phases));
    const char *const phase = text(e, &phases);
    CHECK(g->op_count == ckpt_item_count(&names), "%s: %d ops, wanted %d", run, g->op_count, ckpt_item_count(&names));
    for (int i = 0; i < g->op_count; i++) {
        const ckpt_graph_op *const op = &g->op[i];
        ckpt_item name;
        ckpt_item_at(&names, i, &name);
        assert_string_equal(op->name, text(e, &name));
        CHECK(ckpt_phase_name(op->phase)[0] == phase[i], "%s: %s is %s, wanted %c", run, op->name,
              ckpt_phase_name(op->phase), phase[i]);
        const bool recomputed = op->phase == CKPT_FORWARD && op->adds.count == 0 && !lists(e, "once", op->name);
        CHECK(op->recompute == recomputed, "%s: %s may run again: %d, wanted %d", run, op->name, op->recompute,
              recomputed);
        CHECK(op->time_ns == element(e, "time_ns", i), "%s: %s takes %lld ns", run, op->name, (long long)op->time_ns);
        CHECK(op->workspace_bytes == element(e, "workspace_bytes", i), "%s: %s has a workspace of %lld bytes", run,
              op->name, (long long)op->workspace_bytes);
        ckpt_item layer;
        ckpt_item_at(&layers, i, &layer);
        CHECK(op->phase != CKPT_FORWARD || strcmp(op->layer, text(e, &layer)) == 0,
              "%s: %s is in \"%s\", wanted \"%s\"", run, op->name, op->layer, text(e, &layer));
    }
}

static void test_graphs_hold_what_was_worked_out_of_the_json(void **state)
{
    for (int r = 0; r < RUNS; r++) {
        ckpt_arena arena;
        expected e;
        ckpt_arena_init(&arena);
        open_expected(runs[r], &e);
        const ckpt_graph *const g = import(runs[r], true, 0.0, &arena);
        ckpt_item statics;
        assert_true(ckpt_item_find(&e.root, "static", &statics));
        CHECK(g->static_count == ckpt_item_count(&statics), "%s: %d statics", runs[r], g->static_count);
        for (int i = 0; i < g->static_count; i++) {
            ckpt_item bytes;
            CHECK(ckpt_item_find(&statics, g->statics[i].name, &bytes) && number(&bytes) == g->statics[i].bytes,
                  "%s: static %s of %lld bytes", runs[r], g->statics[i].name, (long long)g->statics[i].bytes);
        }
        check_ops(g, &e, runs[r]);
        const ckpt_bytes arena_bytes = keep_all_bytes(g);
        CHECK(arena_bytes == member(&e, "arena_bytes"), "%s: keep-all %lld bytes, wanted %lld", runs[r],
              (long long)arena_bytes, (long long)member(&e, "arena_bytes"));
        /* The graph does not know what Python still holds. In these runs this was at most the loss of the previous step
         * and, in one of them, 2604 bytes more: less than 1/500. */
        const int64_t real = member(&e, "pytorch_peak_bytes");
        printf("%-12s keep-all %lld bytes, PyTorch had %lld: %.4f\n", runs[r], (long long)arena_bytes, (long long)real,
               (double)arena_bytes / (double)real);
        CHECK(llabs(arena_bytes - real) * 500 <= real, "%s: keep-all %lld bytes, PyTorch had %lld", runs[r],
              (long long)arena_bytes, (long long)real);
        close_expected(&e);
        ckpt_arena_fini(&arena);
        assert_int_equal(ckpt_memory_live(), 0);
    }
}

static void test_without_a_kineto_trace_times_are_bytes_moved(void **state)
{
    for (int r = 0; r < RUNS; r++) {
        CKPT_TEST_ARENA(arena);
        expected e;
        open_expected(runs[r], &e);
        const ckpt_graph *const g = import(runs[r], false, 0.5e9, &arena); /* 2 ns a byte */
        const ckpt_bytes arena_bytes = keep_all_bytes(g);
        CHECK(arena_bytes == member(&e, "arena_bytes_without_events"), "%s: keep-all %lld bytes, wanted %lld", runs[r],
              (long long)arena_bytes, (long long)member(&e, "arena_bytes_without_events"));
        for (int i = 0; i < g->op_count; i++) {
            CHECK(g->op[i].time_ns == 2 * element(&e, "moved_bytes", i), "%s: %s takes %lld ns", runs[r], g->op[i].name,
                  (long long)g->op[i].time_ns);
        }
        close_expected(&e);
    }
}

/* Writing and reading give the same graph; plans of it pass the checker at every feasible budget. */
static void test_graphs_are_written_read_and_planned(void **state)
{
    for (int r = 0; r < RUNS; r++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_text text;
        char file[512];
        char one[CKPT_DIGEST_TEXT];
        char two[CKPT_DIGEST_TEXT];
        const ckpt_graph *recomputed = NULL;
        ckpt_plan *plan = NULL;
        ckpt_text_init(&text);
        const ckpt_graph *const g = import(runs[r], true, 0.0, &arena);
        ckpt_graph_write(g, &text);
        snprintf(file, sizeof file, "%s/import_execution.json", ckpt_work_dir());
        CHECK_OK(ckpt_file_write(file, text.bytes, text.length, &err), err);
        CHECK_OK(ckpt_graph_read(file, &arena, &recomputed, &err), err);
        CHECK_OK(ckpt_graph_digest(g, one, &err), err);
        CHECK_OK(ckpt_graph_digest(recomputed, two, &err), err);
        assert_string_equal(one, two);
        const ckpt_bytes whole = g->static_bytes + keep_all_bytes(g);
        ckpt_bytes budget = whole * 6 / 10;
        for (int attempt = 0; attempt < 2; attempt++) {
            const ckpt_plan_options options = {.budget_bytes = budget, .effort = CKPT_EFFORT_LOW};
            CHECK_OK(ckpt_plan_make(recomputed, "auto", &options, &arena, &plan, &err), err);
            CHECK_OK(ckpt_plan_check(plan, recomputed, &err), err);
            if (plan->verdict == CKPT_FITS) {
                break;
            }
            budget = plan->min_budget_bytes;
        }
        CHECK(plan->verdict == CKPT_FITS, "%s: no plan at the minimum budget", runs[r]);
        printf("%-12s planned at %.0f %% of keep-all\n", runs[r], 100.0 * (double)budget / (double)whole);
        CHECK(budget < whole * 95 / 100, "%s: recomputation frees nothing", runs[r]);
        ckpt_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_hold_what_was_worked_out_of_the_json),
        cmocka_unit_test(test_without_a_kineto_trace_times_are_bytes_moved),
        cmocka_unit_test(test_graphs_are_written_read_and_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
