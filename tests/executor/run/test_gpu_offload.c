/* labels: unit gpu; long under sanitizers */
/* Copies beside compute, on an emulated device whose streams run in random order as far as signals allow and whose
 * copies read and write late: the bits are those of doing everything at once, whatever the order, with freed memory
 * full of NaN, started step by step or replayed. And every wait is needed: without any one of them some order gives
 * other bits. (That none is missing in any order at all is test_executor_order's.) */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "planner/api/planner.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_copies.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 10, WAIT_STEP = 5 }; /* a sample of the waits */
#else
enum { SLOWER = 1, WAIT_STEP = 1 };
#endif
enum { ORDERS = 1000 / SLOWER, ATTEMPTS = 4000, SEED = 11 };

static ckpt_device *device;

/* A run that goes on step by step. */
typedef struct session {
    const test_train *t;
    ckpt_executor *executor;
    ckpt_data *data;
} session;

/* Every bit a step leaves. */
typedef struct trail {
    ckpt_code code;
    float loss;
    char digest[TEST_SECTIONS][CKPT_DIGEST_TEXT];
} trail;

static void begin(session *s, const test_train *t, const ckpt_plan *plan, bool record)
{
    const ckpt_executor_options options = {.seed = SEED, .poison = true, .record = record};
    *s = (session){.t = t, .executor = test_train_executor(t, plan, &options), .data = test_train_data(t, SEED)};
}

static void end(session *s)
{
    ckpt_data_close(s->data);
    ckpt_executor_destroy(s->executor);
}

static trail step(session *s)
{
    trail left = {0};
    ckpt_err err = {0};
    test_train_feed(s->t, s->data, s->executor);
    left.code = ckpt_executor_step(s->executor, &left.loss, NULL, &err);
    for (int i = 0; i < TEST_SECTIONS && left.code == CKPT_OK; i++) {
        left.code = ckpt_executor_digest(s->executor, (ckpt_section)i, left.digest[i], &err);
    }
    return left;
}

static bool same(const trail *a, const trail *b)
{
    return a->code == CKPT_OK && b->code == CKPT_OK && memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
           memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

/* Small enough for thousands of steps, with fans, ties, dropout and in-place runs; and a block of a transformer. */
static const struct {
    const char *file, *set, *dtype;
    int orders;
} model[] = {
    {"tests/models/fork.json", "", NULL, ORDERS},
    {"models/byte-gpt.json", "batch=1 tokens=4 hidden=8 blocks=1 heads=2 vocabulary=8", "bfloat16", ORDERS / 4},
};
enum { MODELS = sizeof model / sizeof model[0] };

/* Plans with copies: by hand (in place or not), by the planner, at random. */
enum { PLANS = 5 };
static const ckpt_plan *plan_of(test_train *t, int which)
{
    static const char *const strategy[] = {"offload-only", "joint"};
    if (which < 2) {
        return test_train_hand_plan(t, which == 1, true);
    }
    if (which == 4) {
        return test_copies_plan(t, 4);
    }
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    ckpt_plan_options options = {.budget_bytes = 1};
    CHECK_OK(ckpt_plan_make(t->lowered->graph, strategy[which - 2], &options, &t->arena, &plan, &err), err);
    options.budget_bytes = plan->min_budget_bytes;
    CHECK_OK(ckpt_plan_make(t->lowered->graph, strategy[which - 2], &options, &t->arena, &plan, &err), err);
    CHECK(test_steps_of(plan, CKPT_FETCH) > 0, "%s offloads nothing", strategy[which - 2]);
    return test_copies_needed(t, plan); /* what nobody fetches nobody misses */
}

/* One long training, every step in another order, beside the same training done at once. */
static void check_orders(const test_train *t, const ckpt_plan *plan, bool record, int orders, uint64_t seed)
{
    session at_once, late;
    ckpt_emulated_schedule(0);
    begin(&at_once, t, plan, false);
    begin(&late, t, plan, record);
    for (int k = 0; k < orders; k++) {
        ckpt_emulated_schedule(0);
        const trail wanted = step(&at_once);
        ckpt_emulated_schedule(seed + (uint64_t)k + 1);
        const trail found = step(&late);
        CHECK(same(&wanted, &found), "%s, %s%s: order %d (schedule %llu) gives other bits: loss %a, wanted %a",
              plan->graph_name, plan->solver, record ? ", replayed" : "", k,
              (unsigned long long)seed + (unsigned long long)k + 1, (double)found.loss, (double)wanted.loss);
    }
    CHECK(ckpt_executor_peak(late.executor) == plan->peak_bytes, "%s: measured peak %lld, planned %lld", plan->solver,
          (long long)ckpt_executor_peak(late.executor), (long long)plan->peak_bytes);
    ckpt_emulated_schedule(0);
    end(&at_once);
    end(&late);
}

static void same_bits_in_any_order(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        test_train t;
        test_train_open_on(&t, device, model[m].file, model[m].set, model[m].dtype);
        const int orders = model[m].orders / PLANS;
        for (int p = 0; p < PLANS; p++) {
            const ckpt_plan *const plan = plan_of(&t, p);
            check_orders(&t, plan, false, orders / 2, 1000u * (unsigned)p);
            check_orders(&t, plan, true, orders / 2, 1000u * (unsigned)p + 500);
        }
        print_message("%s: %d orders over %d plans, started and replayed: same bits\n", model[m].file,
                      orders / 2 * 2 * PLANS, PLANS);
        test_train_close(&t);
    }
}

/* Schedules until wait n is missed; ATTEMPTS: none was. */
static int attempts_until_missed(session *s, const char *state, int64_t n, const trail *wanted)
{
    for (int k = 0; k < ATTEMPTS; k++) {
        ckpt_err err = {0};
        ckpt_emulated_schedule(0);
        CHECK_OK(ckpt_executor_state_read(s->executor, state, &err), err);
        ckpt_emulated_schedule((uint64_t)k + 1);
        ckpt_emulated_lose_wait(n);
        const trail found = step(s);
        if (!same(wanted, &found)) {
            return k + 1;
        }
    }
    return ATTEMPTS;
}

typedef struct tally {
    int waits, attempts, most, unmissed;
} tally;

static void count(tally *sum, int attempts, const char *what, int64_t n)
{
    sum->waits++;
    sum->attempts += attempts;
    sum->most = attempts > sum->most ? attempts : sum->most;
    if (attempts == ATTEMPTS) {
        print_error("%s: nothing shows in %d orders without wait %lld\n", what, ATTEMPTS, (long long)n);
        sum->unmissed++;
    }
}

static void lose_started(const test_train *t, const ckpt_plan *plan, const char *state, tally *sum)
{
    session s;
    ckpt_err err = {0};
    ckpt_emulated_schedule(0);
    begin(&s, t, plan, false);
    (void)step(&s); /* so that what stands in memory is not all zero */
    CHECK_OK(ckpt_executor_state_write(s.executor, state, &err), err);
    ckpt_emulated_schedule(0);
    const trail wanted = step(&s);
    const int64_t waits = ckpt_emulated_waits();
    assert_true(waits > 0);
    for (int64_t n = 0; n < waits; n += WAIT_STEP) {
        count(sum, attempts_until_missed(&s, state, n, &wanted), plan->solver, n);
    }
    ckpt_emulated_schedule(0);
    end(&s);
}

static void every_wait_is_missed(void **state)
{
    const char *const file = ckpt_work_file("gpu_offload.state");
    for (int m = 0; m < MODELS; m++) {
        tally sum = {0};
        test_train t;
        test_train_open_on(&t, device, model[m].file, model[m].set, model[m].dtype);
        for (int p = m; p < 4; p += 1 + m) { /* random plans have copies that nobody needs */
            lose_started(&t, plan_of(&t, p), file, &sum);
        }
        CHECK(sum.unmissed == 0, "%s: %d of %d waits are not missed", model[m].file, sum.unmissed, sum.waits);
        print_message("%s: each of %d waits is missed when it is lost, after %.1f orders on average, %d at most\n",
                      model[m].file, sum.waits, (double)sum.attempts / sum.waits, sum.most);
        test_train_close(&t);
    }
}

/* A wait that is lost while a step is recorded is lost in every replay. */
static void every_wait_is_missed_in_replays(void **state)
{
    tally sum = {0};
    test_train t;
    test_train_open_on(&t, device, model[0].file, model[0].set, NULL);
    const ckpt_plan *const plan = plan_of(&t, 2);
    session s;
    ckpt_emulated_schedule(0);
    begin(&s, &t, plan, false);
    ckpt_emulated_schedule(0);
    const trail wanted = step(&s);
    const int64_t waits = ckpt_emulated_waits();
    end(&s);
    for (int64_t n = 0; n < waits; n += WAIT_STEP) {
        ckpt_emulated_schedule(0);
        ckpt_emulated_lose_wait(waits + n); /* the rehearsal has as many before the recording */
        begin(&s, &t, plan, true);
        ckpt_err err = {0};
        const char *const file = ckpt_work_file("gpu_offload.state");
        CHECK_OK(ckpt_executor_state_write(s.executor, file, &err), err);
        count(&sum, attempts_until_missed(&s, file, -1, &wanted), plan->solver, n);
        end(&s);
    }
    ckpt_emulated_schedule(0);
    CHECK(sum.unmissed == 0, "%d of %d waits are not missed", sum.unmissed, sum.waits);
    print_message(
        "%s, replayed: each of %d waits is missed when it is lost, after %.1f orders on average, %d at most\n",
        model[0].file, sum.waits, (double)sum.attempts / sum.waits, sum.most);
    test_train_close(&t);
}

static int open_device(void **state)
{
    ckpt_err err = {0};
    ckpt_emulated_guard(false);
    return ckpt_device_emulated.open(0, 1, &device, &err) == CKPT_OK ? 0 : -1;
}

static int close_device(void **state)
{
    ckpt_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_in_any_order),
        cmocka_unit_test(every_wait_is_missed),
        cmocka_unit_test(every_wait_is_missed_in_replays),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
