/* labels: unit */
/* What waits for what, held against the definition: two steps on different streams that touch the same bytes, one of
 * them writing, must be ordered by streams and waits; and without any one of the waits some such pair is not. The bytes
 * are looked at here one pair of steps at a time, from the plan alone. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "executor/executor_impl.h"
#include "planner/api/planner.h"
#include "tests/support/support_copies.h"

/* Bytes of the arena, or of a buffer in the slab (offsets from HOST on). */
typedef struct access {
    ckpt_bytes from, to;
    bool write;
} access;

enum { ACCESSES = 40 };
#define HOST ((ckpt_bytes)1 << 50)

typedef struct footprint {
    ckpt_stream stream;
    access at[ACCESSES];
    int count;
} footprint;

typedef struct pair {
    int first, second;
} pair;

typedef struct subject {
    const ckpt_executor *executor;
    int steps;
    const ckpt_plan *plan;
    pair *conflict;
    int conflicts;
    uint64_t *before; /* per step, a bit per step: it is finished when this one starts */
    int words;
} subject;

static void touch(footprint *f, ckpt_bytes from, ckpt_bytes bytes, bool write)
{
    if (bytes > 0) {
        assert_true(f->count < ACCESSES);
        f->at[f->count++] = (access){from, from + bytes, write};
    }
}

/* The place of `buffer` in step s; a run in place still reads what lay there the step before. */
static void touch_buffer(const ckpt_plan *plan, footprint *f, int buffer, int s, bool write)
{
    for (int back = 0; back < 2; back++) {
        for (int p = 0; p < plan->allocation_count; p++) {
            const ckpt_allocation *const allocation = &plan->allocation[p];
            if (allocation->buffer == buffer && allocation->from <= s - back && s - back <= allocation->to) {
                touch(f, allocation->offset, allocation->bytes, write);
                return;
            }
        }
    }
    fail_msg("step %d: buffer %d is nowhere", s, buffer);
}

static void touch_room(footprint *f, int buffer, bool write)
{
    touch(f, HOST * (1 + buffer), 1, write);
}

static footprint footprint_of(const ckpt_plan *plan, const ckpt_graph *graph, int s, bool poison)
{
    const ckpt_step *const step = &plan->step[s];
    footprint f = {.stream = CKPT_STREAM_COMPUTE};
    switch (step->kind) {
    case CKPT_RUN: {
        const ckpt_graph_op *const op = ckpt_step_op(graph, step);
        for (int i = 0; i < op->reads.count; i++) {
            touch_buffer(plan, &f, op->reads.at[i], s, false);
        }
        for (int i = 0; i < op->adds.count; i++) {
            touch_buffer(plan, &f, op->adds.at[i], s, true);
        }
        for (int p = 0; p < plan->allocation_count; p++) {
            if (plan->allocation[p].from == s) {
                touch(&f, plan->allocation[p].offset, plan->allocation[p].bytes, true);
            }
        }
        break;
    }
    case CKPT_FREE:
        if (poison) {
            touch_buffer(plan, &f, step->target, s, true);
        }
        break;
    case CKPT_OFFLOAD:
        f.stream = CKPT_STREAM_D2H;
        touch_buffer(plan, &f, step->target, s, false);
        touch_room(&f, step->target, true);
        break;
    case CKPT_FETCH:
        f.stream = CKPT_STREAM_H2D;
        touch_buffer(plan, &f, step->target, s, true);
        touch_room(&f, step->target, false);
        break;
    }
    return f;
}

static bool conflict(const footprint *a, const footprint *b)
{
    for (int i = 0; i < a->count; i++) {
        for (int k = 0; k < b->count; k++) {
            if ((a->at[i].write || b->at[k].write) && a->at[i].from < b->at[k].to && b->at[k].from < a->at[i].to) {
                return true;
            }
        }
    }
    return false;
}

static void list_conflicts(subject *x, const ckpt_graph *graph, bool poison, ckpt_arena *arena)
{
    footprint *const f = CKPT_NEW(arena, footprint, x->steps);
    x->conflict = CKPT_NEW(arena, pair, (size_t)x->steps * (size_t)x->steps / 2);
    for (int s = 0; s < x->steps; s++) {
        f[s] = footprint_of(x->plan, graph, s, poison);
        assert_int_equal(f[s].stream, x->executor->program.action[s].stream);
        for (int e = 0; e < s; e++) {
            if (f[e].stream != f[s].stream && conflict(&f[e], &f[s])) {
                x->conflict[x->conflicts++] = (pair){e, s};
            }
        }
    }
}

/* `earlier` and all that is finished before it, before `s` too. */
static void follow(const subject *x, int s, int earlier)
{
    uint64_t *const mine = x->before + (size_t)s * (size_t)x->words;
    const uint64_t *const theirs = x->before + (size_t)earlier * (size_t)x->words;
    for (int w = 0; w < x->words; w++) {
        mine[w] |= theirs[w];
    }
    mine[earlier / 64] |= (uint64_t)1 << earlier % 64;
}

/* The order that streams and waits make, without wait number `lost`; -1: none is lost. Gives how many there are. */
static int work_out(const subject *x, int lost)
{
    int behind[4096];
    int last[CKPT_STREAM_COUNT] = {-1, -1, -1}, waits = 0;
    assert_true(x->executor->program.signal_count <= 4096);
    memset(x->before, 0, (size_t)x->steps * (size_t)x->words * sizeof(uint64_t));
    for (int s = 0; s < x->steps; s++) {
        const ckpt_action *const action = &x->executor->program.action[s];
        if (last[action->stream] >= 0) {
            follow(x, s, last[action->stream]);
        }
        for (int w = 0; w < action->wait_count; w++) {
            if (waits++ != lost) {
                follow(x, s, behind[action->wait[w]]);
            }
        }
        if (action->signal >= 0) {
            behind[action->signal] = s;
        }
        last[action->stream] = s;
    }
    return waits;
}

static int unordered(const subject *x)
{
    int count = 0;
    for (int i = 0; i < x->conflicts; i++) {
        const pair *const p = &x->conflict[i];
        count += (x->before[(size_t)p->second * (size_t)x->words + (size_t)p->first / 64] >> p->first % 64 & 1) == 0;
    }
    return count;
}

/* At the end compute must know the last step of every stream: the recording ends there. */
static void check_joins(const subject *x)
{
    bool joined[CKPT_STREAM_COUNT] = {true, true, true};
    int last[CKPT_STREAM_COUNT] = {-1, -1, -1};
    for (int s = 0; s < x->steps; s++) {
        last[x->executor->program.action[s].stream] = s;
    }
    const int end = last[CKPT_STREAM_COMPUTE];
    for (int t = CKPT_STREAM_D2H; t < CKPT_STREAM_COUNT; t++) {
        joined[t] =
            last[t] < 0 || (x->before[(size_t)end * (size_t)x->words + (size_t)last[t] / 64] >> last[t] % 64 & 1);
        for (int i = 0; i < x->executor->program.join_count; i++) {
            for (int s = 0; s < x->steps && last[t] >= 0; s++) {
                const uint64_t *const before = x->before + (size_t)s * (size_t)x->words;
                joined[t] = joined[t] || (x->executor->program.action[s].signal == x->executor->program.join[i] &&
                                          (s == last[t] || (before[last[t] / 64] >> last[t] % 64 & 1)));
            }
        }
        CHECK(joined[t], "stream %d is not joined", t);
    }
}

typedef struct sums {
    int plans, conflicts, waits, copies;
} sums;

static void check_plan(const test_train *t, const ckpt_plan *plan, bool poison, sums *sum)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_executor_options options = {.poison = poison};
    ckpt_executor *const executor = test_train_executor(t, plan, &options);
    subject x = {.executor = executor, .steps = plan->step_count, .plan = plan, .words = (plan->step_count + 63) / 64};
    x.before = CKPT_NEW(&arena, uint64_t, (size_t)x.steps * (size_t)x.words);
    list_conflicts(&x, t->lowered->graph, poison, &arena);
    const int waits = work_out(&x, -1);
    CHECK(unordered(&x) == 0, "%s, %s: %d of %d conflicts are not ordered", plan->graph_name, plan->source,
          unordered(&x), x.conflicts);
    check_joins(&x);
    for (int w = 0; w < waits; w++) {
        work_out(&x, w);
        CHECK(unordered(&x) > 0, "%s, %s: wait %d of %d is for nothing", plan->graph_name, plan->source, w, waits);
    }
    sum->plans++;
    sum->conflicts += x.conflicts;
    sum->waits += waits;
    sum->copies += test_steps_of(plan, CKPT_OFFLOAD) + test_steps_of(plan, CKPT_FETCH);
    CHECK((x.conflicts > 0) == (waits > 0), "%s: %d conflicts, %d waits", plan->source, x.conflicts, waits);
    ckpt_executor_destroy(executor);
}

static const struct {
    const char *file, *set;
} model[] = {
    {"tests/models/fork.json", ""},
    {"tests/models/resnet-small.json", ""},
    {"models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=2 heads=2 vocabulary=32"},
};
enum { MODELS = sizeof model / sizeof model[0], SEEDS = 12 };

static void hand_plans(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        sums sum = {0};
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        for (int variant = 0; variant < 8; variant++) {
            check_plan(&t, test_train_hand_plan(&t, (variant & 1) != 0, (variant & 2) != 0), (variant & 4) != 0, &sum);
        }
        assert_true(sum.waits > 0);
        print_message("%s: %d copies, %d conflicts, %d waits, none missing, none too many\n", model[m].file, sum.copies,
                      sum.conflicts, sum.waits);
        test_train_close(&t);
    }
}

static void random_plans(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        sums sum = {0};
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            test_train t;
            test_train_open(&t, model[m].file, model[m].set);
            check_plan(&t, test_copies_plan(&t, seed), seed % 2 != 0, &sum);
            test_train_close(&t);
        }
        assert_true(sum.waits > 0);
        print_message("%s: seeds 0 to %d, %d copies, %d conflicts, %d waits, none missing, none too many\n",
                      model[m].file, SEEDS - 1, sum.copies, sum.conflicts, sum.waits);
    }
}

static void planned(void **state)
{
    static const char *const strategy[] = {"offload-only", "joint", "auto"};
    for (int m = 0; m < MODELS; m++) {
        sums sum = {0};
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        for (int i = 0; i < 3; i++) {
            ckpt_err err = {0};
            ckpt_plan *plan = NULL;
            ckpt_plan_options options = {.budget_bytes = 1};
            CHECK_OK(ckpt_plan_make(t.lowered->graph, strategy[i], &options, &t.arena, &plan, &err), err);
            options.budget_bytes = plan->min_budget_bytes;
            CHECK_OK(ckpt_plan_make(t.lowered->graph, strategy[i], &options, &t.arena, &plan, &err), err);
            check_plan(&t, plan, false, &sum);
            check_plan(&t, plan, true, &sum);
        }
        assert_true(sum.copies > 0);
        print_message("%s: %d copies, %d conflicts, %d waits, none missing, none too many\n", model[m].file, sum.copies,
                      sum.conflicts, sum.waits);
        test_train_close(&t);
    }
}

/* The copies of a random plan are done in any case: the bits are those of keeping everything. */
static void random_plans_train(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        test_record wanted, found;
        test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, false, false), .seed = 5}, &wanted);
        for (uint64_t seed = 0; seed < 4; seed++) {
            char what[100];
            snprintf(what, sizeof what, "%s, random plan %d", model[m].file, (int)seed);
            const ckpt_plan *const plan = test_copies_plan(&t, seed);
            test_train_run(&t, &(test_run){.plan = plan, .seed = 5, .poison = seed % 2 == 0}, &found);
            test_record_same(&wanted, &found, 0, what);
            CHECK(found.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, planned %lld", what,
                  (long long)found.peak_bytes, (long long)plan->peak_bytes);
        }
        test_train_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_plans),
        cmocka_unit_test(random_plans),
        cmocka_unit_test(planned),
        cmocka_unit_test(random_plans_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
