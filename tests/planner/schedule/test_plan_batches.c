/* labels: unit */
/* Micro-batches in the names of a graph: what is set for a layer is set in all of them, and in none otherwise. And what
 * planning may cost where what is set cannot be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/directives/choose.h"
#include "planner/placement/allocate.h"
#include "planner/schedule/batches.h"
#include "planner/schedule/schedule.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { BATCHES = 3, LAYERS = 4, OPS = 2 * LAYERS };

/* A step of `BATCHES` micro-batches of one graph, one behind the other as in 1F1B of one stage, which shares nothing
 * but its names with what lowers models. */
static const ckpt_graph *repeat(const ckpt_graph *one, int batches, ckpt_arena *arena)
{
    ckpt_graph *const made = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, batches * one->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, batches * one->buffer_count);
    *made = *one;
    made->op = op;
    made->buffer = buffer;
    made->op_count = batches * one->op_count;
    made->buffer_count = batches * one->buffer_count;
    made->outputs = (ckpt_list){0};
    for (int j = 0; j < batches; j++) {
        for (int b = 0; b < one->buffer_count; b++) {
            ckpt_buffer *const to = &buffer[j * one->buffer_count + b];
            *to = one->buffer[b];
            to->name = ckpt_arena_format(arena, "%s@%d", to->name, j);
        }
        for (int o = 0; o < one->op_count; o++) {
            ckpt_graph_op *const to = &op[j * one->op_count + o];
            *to = one->op[o];
            ckpt_list *const list[] = {&to->reads, &to->writes, &to->adds};
            for (int l = 0; l < 3; l++) {
                int *const at = CKPT_NEW(arena, int, list[l]->count);
                for (int i = 0; i < list[l]->count; i++) {
                    at[i] = j * one->buffer_count + list[l]->at[i];
                }
                list[l]->at = at;
            }
            to->inplace_count = 0;
            to->layer = ckpt_arena_format(arena, "%s@%d", one->op[o].layer, j);
            to->name = ckpt_arena_format(arena, "%s/%s", to->layer, ckpt_phase_name(to->phase));
        }
    }
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(made, arena, &err), err);
    return made;
}

/* A chain whose ops are of layers h.0.a, h.0.b, h.1.a, h.1.b. */
static const ckpt_graph *chain(ckpt_arena *arena)
{
    static const char *const layer[LAYERS] = {"h.0.a", "h.0.b", "h.1.a", "h.1.b"};
    ckpt_graph *const graph = ckpt_test_chain(arena, 5, LAYERS, 9, 100, 9);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, graph->op_count);
    for (int o = 0; o < graph->op_count; o++) {
        const int l = o < LAYERS ? o : 2 * LAYERS - 1 - o;
        op[o] = graph->op[o];
        op[o].layer = l >= 0 ? layer[l] : "rest";
        op[o].name = ckpt_arena_format(arena, "%s/%s", op[o].layer, ckpt_phase_name(op[o].phase));
    }
    CHECK(graph->op_count == OPS, "a chain of %d ops", graph->op_count);
    graph->op = op;
    return graph;
}

static void labels_are_read(void **state)
{
    static const struct {
        const char *label;
        int batch, length;
    } cases[] = {{"h.0@2", 2, 3}, {"h.0", -1, 3},    {"a@0", 0, 1},   {"a@", -1, 2},           {"@1", -1, 2},
                 {"a@1b", -1, 4}, {"a@1@23", 23, 3}, {"a@01", -1, 4}, {"a@4095", 4095, 1},     {"", -1, 0},
                 {"a@-1", -1, 4}, {"a@+1", -1, 4},   {"a@ 1", -1, 4}, {"a@1234567890", -1, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int length = -7;
        const int batch = ckpt_batch_of(cases[i].label, &length);
        CHECK(batch == cases[i].batch && length == cases[i].length, "%s: %d, %d characters", cases[i].label, batch,
              length);
    }
    CHECK(ckpt_batch_of(NULL, NULL) == -1, "no label is of a micro-batch");
}

/* With rules, with a grouping, with a policy: on each micro-batch what the graph of one says, and units of its own. */
static void what_is_set_holds_in_every_micro_batch(void **state)
{
    static const struct {
        ckpt_rule rule[2];
        int count;
        const char *grouping;
    } cases[] = {{{{CKPT_RULE_CHECKPOINT, "h.*"}, {CKPT_RULE_KEEP, "h.1.b"}}, 2, NULL},
                 {{{CKPT_RULE_CHECKPOINT, "h.0"}, {CKPT_RULE_CHECKPOINT, "h.0.b"}}, 2, NULL},
                 {{{CKPT_RULE_OFFLOAD, "h.1"}}, 1, NULL},
                 {{{0}}, 0, "each"},
                 {{{0}}, 0, "contiguous"},
                 {{{CKPT_RULE_CHECKPOINT, "h.*.*"}, {0}}, 1, "group_3"},
                 {{{CKPT_RULE_CHECKPOINT, "h.*.*"}, {0}}, 1, "segments:2"}};
    int units = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        CKPT_TEST_ARENA(arena);
        ckpt_text notes;
        ckpt_text_init(&notes);
        ckpt_err err = {0};
        const ckpt_graph *const one = chain(&arena);
        const ckpt_graph *const several = repeat(one, BATCHES, &arena);
        const ckpt_graph *set = NULL;
        const ckpt_graph *made = NULL;
        CHECK(ckpt_batch_count(several) == BATCHES && ckpt_batch_count(one) == 0, "micro-batches are not counted");
        CHECK_OK(ckpt_choose(one, cases[c].rule, cases[c].count, false, cases[c].grouping, &arena, &set, &notes, &err),
                 err);
        CHECK_OK(
            ckpt_choose(several, cases[c].rule, cases[c].count, false, cases[c].grouping, &arena, &made, &notes, &err),
            err);
        for (int o = 0; o < made->op_count; o++) {
            const ckpt_graph_op *const found = &made->op[o];
            const ckpt_graph_op *const wanted = &set->op[o % OPS];
            char path[256] = "";
            for (const char *at = wanted->segment; at != NULL && found->phase == CKPT_FORWARD;) {
                const size_t part = strcspn(at, "/");
                snprintf(path + strlen(path), sizeof path - strlen(path), "%s%.*s@%d", path[0] != '\0' ? "/" : "",
                         (int)part, at, o / OPS);
                at = at[part] == '/' ? at + part + 1 : NULL;
                units++;
            }
            CHECK(found->checkpoint == wanted->checkpoint && found->offload == wanted->offload &&
                      found->policy == wanted->policy,
                  "case %d: %s", (int)c, found->name);
            CHECK(strcmp(found->segment != NULL ? found->segment : "", path) == 0, "case %d: %s is in %s, wanted %s",
                  (int)c, found->name, found->segment, path);
        }
        ckpt_text_fini(&notes);
    }
    CHECK(units > 50, "hardly any units");
}

/* A label that only looks like one is left alone; a pattern that names a micro-batch matches nothing. */
static void other_names_are_names(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text notes;
    ckpt_text_init(&notes);
    ckpt_err err = {0};
    const ckpt_graph *const one = chain(&arena);
    const ckpt_graph *const several = repeat(one, 2, &arena);
    const ckpt_graph *made = NULL;
    const ckpt_rule numbered = {CKPT_RULE_CHECKPOINT, "h.0.a@1"};
    CHECK(ckpt_choose(several, &numbered, 1, false, NULL, &arena, &made, &notes, &err) == CKPT_BAD_INPUT &&
              strstr(err.msg, "matches no layer") != NULL,
          "a pattern names a micro-batch: %s", err.msg);
    ckpt_graph_op *const op = CKPT_NEW(&arena, ckpt_graph_op, one->op_count);
    memcpy(op, one->op, (size_t)one->op_count * sizeof *op);
    op[1].layer = "h.0.b@1";
    op[1].name = "h.0.b@1/forward";
    ckpt_graph odd = *one;
    odd.op = op;
    err = (ckpt_err){0};
    CHECK(ckpt_batch_count(&odd) == 0, "one label makes no micro-batches");
    const ckpt_rule literal = {CKPT_RULE_CHECKPOINT, "h.0.b@1"};
    CHECK_OK(ckpt_choose(&odd, &literal, 1, false, NULL, &arena, &made, &notes, &err), err);
    CHECK(made->op[1].checkpoint == CKPT_YES && made->op[0].checkpoint == CKPT_UNSET, "the odd name is not obeyed");
    ckpt_text_fini(&notes);
}

/* Every micro-batch's last unit is kept where recomputing it saves nothing, and all others run again once. */
static void last_unit_of_each_micro_batch_is_not_recomputed_for_nothing(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text notes;
    ckpt_text_init(&notes);
    ckpt_err err = {0};
    int runs[2] = {0, 0};
    for (int several = 0; several < 2; several++) {
        const ckpt_graph *graph = chain(&arena);
        graph = several == 1 ? repeat(graph, BATCHES, &arena) : graph;
        const ckpt_rule rule = {CKPT_RULE_CHECKPOINT, "h.?"};
        const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
        ckpt_plan *plan = NULL;
        CHECK_OK(ckpt_choose(graph, &rule, 1, false, NULL, &arena, &graph, &notes, &err), err);
        CHECK_OK(ckpt_plan_make(graph, "flags", &options, &arena, &plan, &err), err);
        ckpt_test_replay(graph, plan, "flags on micro-batches");
        for (int i = 0; i < plan->step_count; i++) {
            runs[several] += plan->step[i].kind == CKPT_RUN && plan->step[i].recomputed;
        }
    }
    CHECK(runs[0] > 0 && runs[1] == BATCHES * runs[0], "%d runs again, with %d micro-batches %d", runs[0], BATCHES,
          runs[1]);
    ckpt_text_fini(&notes);
}

typedef struct starved {
    const ckpt_graph *graph;
} starved;

static ckpt_code choose_all(void *context, ckpt_err *err)
{
    const starved *const s = context;
    static const ckpt_rule rule = {CKPT_RULE_CHECKPOINT, "h.*"};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_text notes;
    ckpt_text_init(&notes);
    const ckpt_graph *chosen = NULL;
    const ckpt_code code = ckpt_choose(s->graph, &rule, 1, false, "group_2", &arena, &chosen, &notes, err);
    ckpt_text_fini(&notes);
    ckpt_arena_fini(&arena);
    return code;
}

static void memory_ends(void **state)
{
    CKPT_TEST_ARENA(arena);
    starved s = {repeat(chain(&arena), 2, &arena)};
    CHECK(ckpt_test_starve(choose_all, &s) > 1, "hardly anything was allocated");
}

/* What is said of a budget that cannot be met needs the allocations of the candidate of minimum peak at two efforts.
 * They were worked out again for every other budget that was tried: half a minute for resnet50 with --policy
 * linear=save. */
static void places_of_what_cannot_fit_are_worked_out_once(void **state)
{
    static const uint64_t seeds[] = {14, 37}; /* in which places are hard to find */
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_graph *const graph = ckpt_test_step(&arena, seeds[i], 30);
        int64_t once = 0, all = 0;
        ckpt_plan_options options = {
            .effort = CKPT_EFFORT_LOW, .budget_bytes = graph->static_bytes + 1, .placing_work = &once};
        ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        ckpt_plan *plan = CKPT_NEW(&arena, ckpt_plan, 1);
        CHECK_OK(ckpt_strategy_find("flags")->plan(graph, 1, &options, &arena, &candidates, &err), err);
        for (; options.effort <= CKPT_EFFORT_NORMAL; options.effort++) {
            CHECK_OK(ckpt_sequence_steps(graph, &candidates.min_peak.sequence, &arena, plan, &err), err);
            CHECK_OK(ckpt_sequence_pack(graph, plan, 0, &options, &arena, &err), err);
        }
        options.effort = CKPT_EFFORT_LOW;
        options.placing_work = &all;
        CHECK_OK(ckpt_plan_make(graph, "flags", &options, &arena, &plan, &err), err);
        CHECK(plan->verdict == CKPT_INFEASIBLE && once > 10000000, "seed %d: places are found at once", (int)seeds[i]);
        CHECK(all > 10000000 && all < 2 * once, "seed %d: %lld comparisons, once takes %lld", (int)seeds[i],
              (long long)all, (long long)once);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_read),
        cmocka_unit_test(what_is_set_holds_in_every_micro_batch),
        cmocka_unit_test(other_names_are_names),
        cmocka_unit_test(last_unit_of_each_micro_batch_is_not_recomputed_for_nothing),
        cmocka_unit_test(memory_ends),
        cmocka_unit_test(places_of_what_cannot_fit_are_worked_out_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
