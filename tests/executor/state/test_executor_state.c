/* labels: unit */
/* Stop and resume gives the bits of never stopping; a state that is not this run's is refused with the reason. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/device_model.h"
#include "tests/support/support_train.h"

enum { STATE_MAX = 1 << 22 };

static const char *path_of(const char *name)
{
    static char path[4][512];
    static int next;
    char *const mine = path[next++ % 4];
    snprintf(mine, sizeof path[0], "%s/%s", ckpt_work_dir(), name);
    return mine;
}

static void resume_gives_the_same_bits(void **state)
{
    static const struct {
        const char *file, *set;
    } model[] = {
        {"tests/models/resnet-small.json", ""}, /* momentum, running statistics */
        {"tests/models/unet-small.json", ""},   /* adam, dropout, statistics */
        {"tests/models/fork.json", ""},         /* adamw, a tied matrix, dropout */
    };
    for (size_t m = 0; m < sizeof model / sizeof model[0]; m++) {
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
        const ckpt_plan *const other = test_train_hand_plan(&t, true, true);
        const char *const file = path_of("resume.state");
        test_record wanted, found;
        test_train_run(&t, &(test_run){.plan = plan, .seed = 11}, &wanted);
        test_train_run(&t, &(test_run){.plan = plan, .seed = 11, .steps = 2, .state_out = file}, &found);
        /* the seed comes from the state, and another plan may go on */
        test_train_run(&t, &(test_run){.plan = other, .seed = 99, .state_in = file, .poison = true}, &found);
        test_record_same(&wanted, &found, 2, model[m].file);
        remove(file);
        test_train_close(&t);
    }
}

static void state_knows_its_loss_and_its_data(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
    const char *const file = path_of("about.state");
    ckpt_err err = {0};
    ckpt_executor *const first = test_train_executor(&t, plan, NULL), *const second =
                                                                          test_train_executor(&t, plan, NULL);
    assert_string_equal(ckpt_executor_data(first)->about, "");
    float loss = 0;
    CHECK_OK(ckpt_executor_step(first, &loss, NULL, &err), err); /* on inputs of zeros */
    const ckpt_data_identity data = {"text, 1 file, 35149 bytes", "0123", "4567"};
    *ckpt_executor_data(first) = data;
    CHECK_OK(ckpt_executor_state_write(first, file, &err), err);
    CHECK_OK(ckpt_executor_state_read(second, file, &err), err);
    assert_string_equal(ckpt_executor_data(second)->about, data.about);
    assert_string_equal(ckpt_executor_data(second)->digest, data.digest);
    assert_string_equal(ckpt_executor_data(second)->stamp, data.stamp);
    const float found = ckpt_executor_loss(second);
    assert_true(loss > 0 && memcmp(&found, &loss, sizeof loss) == 0);
    ckpt_executor_destroy(first);
    ckpt_executor_destroy(second);
    remove(file);
    test_train_close(&t);
}

static size_t read_all(const char *path, char *bytes)
{
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t length = fread(bytes, 1, STATE_MAX, file);
    fclose(file);
    assert_true(length > 0 && length < STATE_MAX);
    return length;
}

static void write_all(const char *path, const char *bytes, size_t length)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(bytes, 1, length, file) == length);
    fclose(file);
}

static ckpt_code try_read(test_train *t, const char *path, ckpt_err *err)
{
    ckpt_executor *const executor = test_train_executor(t, test_train_hand_plan(t, false, false), NULL);
    *err = (ckpt_err){0};
    ckpt_err create_err = {0};
    char before[CKPT_DIGEST_TEXT], after[CKPT_DIGEST_TEXT];
    CHECK_OK(ckpt_executor_digest(executor, CKPT_SECTION_WEIGHTS, before, &create_err), create_err);
    const ckpt_code code = ckpt_executor_state_read(executor, path, err);
    CHECK_OK(ckpt_executor_digest(executor, CKPT_SECTION_WEIGHTS, after, &create_err), create_err);
    if (code != CKPT_OK) {
        assert_string_equal(before, after); /* a refused state changes nothing */
        assert_true(ckpt_executor_steps(executor) == 0);
    }
    ckpt_executor_destroy(executor);
    return code;
}

static void save_one(const char *file, const char *set, const char *path)
{
    test_train t;
    test_train_open(&t, file, set);
    test_record record;
    test_train_run(
        &t, &(test_run){.plan = test_train_hand_plan(&t, false, false), .seed = 1, .steps = 1, .state_out = path},
        &record);
    test_train_close(&t);
}

static void refuse(test_train *t, const char *path, ckpt_code code, const char *reason)
{
    ckpt_err err;
    const ckpt_code found = try_read(t, path, &err);
    CHECK(found == code && strstr(err.msg, reason) != NULL, "code %d, \"%s\"; wanted %d with \"%s\"", (int)found,
          err.msg, (int)code, reason);
}

static void refusals_name_the_reason(void **state)
{
    const char *const good = path_of("good.state"), *const bad = path_of("bad.state");
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    save_one("tests/models/fork.json", "", good);
    ckpt_err err;
    CHECK_OK(try_read(&t, good, &err), err);

    save_one("tests/models/resnet-small.json", "", bad);
    refuse(&t, bad, CKPT_BAD_INPUT, "model \"resnet-small\"");
    save_one("tests/models/fork.json", "width=18", bad);
    refuse(&t, bad, CKPT_BAD_INPUT, "parameters");
    save_one("tests/models/fork.json", "batch=7", bad);
    refuse(&t, bad, CKPT_BAD_INPUT, "batch");
    refuse(&t, path_of("no-such.state"), CKPT_IO, "no-such.state");

    char *const bytes = calloc(1, STATE_MAX);
    assert_non_null(bytes);
    const size_t length = read_all(good, bytes);
    /* one changed bit anywhere: header, weights, optimizer, digest */
    const size_t at[] = {3, length / 3, length - 200, length - 10};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        bytes[at[i]] ^= 4;
        write_all(bad, bytes, length);
        refuse(&t, bad, CKPT_BAD_INPUT, "damaged");
        bytes[at[i]] ^= 4;
    }
    /* cut anywhere */
    const size_t cut[] = {0, 1, 65, 66, length / 2, length - 1};
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        write_all(bad, bytes, cut[i]);
        refuse(&t, bad, CKPT_BAD_INPUT, bad);
    }
    /* another optimizer and another thread count, with a correct digest */
    static const struct {
        const char *from, *to, *reason;
    } edit[] = {
        {"\"optimizer\": \"adamw", "\"optimizer\": \"admaw", "optimizer \"admaw"},
        {"\"threads\": 2", "\"threads\": 7", "threads = 7"},
        {"\"threads\": 2", "\"threads\": x", "bad.state:1:"}, /* no number is not the 0 of a GPU */
        {"\"format\": \"ckpt-state/1", "\"format\": \"ckpt-state/2", "ckpt-state/2"},
        {"\"step\": 1", "\"step\": x", "bad.state:1:"},
        {"\"seed\": ", "\"step\": ", "\"step\""}, /* twice */
        {"\"loss\": \"0x", "\"loss\": \"no", "wanted a number such as"},
        {"\"loss\": \"0x", "\"loss\": 1, \"", "bad.state:1:"},
        {"\"seed\": ", "\"seel\": ", "\"seed\""},
        {"\"loss\": ", "\"lose\": ", "\"loss\""},
        {"\"data\": ", "\"dato\": ", "\"data\""},
    };
    for (size_t i = 0; i < sizeof edit / sizeof edit[0]; i++) {
        char *const copy = malloc(length);
        assert_non_null(copy);
        memcpy(copy, bytes, length);
        char *const where = strstr(copy, edit[i].from);
        CHECK(where != NULL, "the header has no %s", edit[i].from);
        memcpy(where, edit[i].to, strlen(edit[i].to));
        ckpt_digest *const digest = ckpt_digest_create();
        char text[CKPT_DIGEST_TEXT];
        ckpt_digest_add(digest, copy, length - CKPT_DIGEST_TEXT);
        ckpt_digest_end(digest, text);
        memcpy(copy + length - CKPT_DIGEST_TEXT, text, CKPT_DIGEST_TEXT - 1);
        write_all(bad, copy, length);
        refuse(&t, bad, CKPT_BAD_INPUT, edit[i].reason);
        free(copy);
    }
    free(bytes);
    remove(good);
    remove(bad);
    test_train_close(&t);
}

/* ---- schemes ---- */

enum { BATCHES = 4 };

/* The same model, its step made by a scheme of one rank. */
static void open_scheme(test_train *t, const char *file, ckpt_scheme scheme)
{
    test_train_open(t, file, "");
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    const ckpt_device_model *roofline = NULL;
    CHECK_OK(ckpt_device_model_find("h200", &t->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_spread(t->lowered->network, &scheme, &t->arena, &network, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, roofline, &t->arena, &t->lowered, &err), err);
}

static ckpt_scheme scheme_of(bool fused, bool apart)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = BATCHES;
    scheme.fused = fused;
    scheme.apart = apart;
    return scheme;
}

/* From the state in `from` (NULL: from seed 7) to step `steps`, then to the state in `to`. */
static void train_to(test_train *t, const char *from, int steps, const char *to)
{
    ckpt_err err = {0};
    const ckpt_executor_options options = {.seed = 7, .poison = true};
    ckpt_executor *const executor = test_train_executor(t, test_train_hand_plan(t, false, false), &options);
    if (from != NULL) {
        CHECK_OK(ckpt_executor_state_read(executor, from, &err), err);
    }
    ckpt_data *const data = test_train_data(t, ckpt_executor_seed(executor));
    while ((int)ckpt_executor_steps(executor) < steps) {
        (void)test_train_step(t, data, executor);
    }
    CHECK_OK(ckpt_executor_state_write(executor, to, &err), err);
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
}

static void same_files(const char *wanted, const char *found, const char *what)
{
    char *const a = calloc(2, STATE_MAX);
    assert_non_null(a);
    const size_t length = read_all(wanted, a);
    CHECK(read_all(found, a + STATE_MAX) == length && memcmp(a, a + STATE_MAX, length) == 0, "%s: another state", what);
    free(a);
}

/* Where gradients live, and whether tied layers have copies, does not show in the file: it is read and written again by
 * every scheme with as many batches in a step, and training goes on with the bits of never stopping. */
static void a_state_is_of_no_scheme(void **state)
{
    static const char *const model[] = {"tests/models/resnet-small.json", "tests/models/fork.json"};
    const char *const half = path_of("half.state"), *const recomputed = path_of("again.state");
    const char *const wanted = path_of("wanted.state"), *const found = path_of("found.state");
    for (size_t m = 0; m < sizeof model / sizeof model[0]; m++) {
        for (int i = 0; i < 9; i++) { /* static, fused, apart: from each to each */
            if (m == 0 && i != 1 && i != 3) {
                continue; /* nothing is tied there */
            }
            test_train from, to;
            open_scheme(&from, model[m], scheme_of(i / 3 == 1, i / 3 == 2));
            open_scheme(&to, model[m], scheme_of(i % 3 == 1, i % 3 == 2));
            train_to(&from, NULL, 2, half);
            train_to(&to, half, 2, recomputed);
            same_files(half, recomputed, model[m]);
            if (i / 3 == i % 3 || (i / 3 < 2 && i % 3 < 2)) { /* copies' gradients are summed in another order */
                train_to(&from, NULL, 4, wanted);
                train_to(&to, half, 4, found);
                same_files(wanted, found, model[m]);
            }
            test_train_close(&from);
            test_train_close(&to);
        }
    }
    remove(half);
    remove(recomputed);
    remove(wanted);
    remove(found);
}

static void other_batches_in_a_step_are_refused(void **state)
{
    const char *const four = path_of("four.state"), *const one = path_of("one.state");
    test_train plain, micro;
    test_train_open(&plain, "tests/models/fork.json", "");
    open_scheme(&micro, "tests/models/fork.json", scheme_of(true, false));
    save_one("tests/models/fork.json", "", one);
    train_to(&micro, NULL, 1, four);
    refuse(&plain, four, CKPT_BAD_INPUT, "4 batches in a step; this one has 1 (1 micro-batch of 1 replica)");
    refuse(&micro, one, CKPT_BAD_INPUT, "1 batch in a step; this one has 4 (4 micro-batches of 1 replica)");
    ckpt_err err;
    CHECK_OK(try_read(&micro, four, &err), err);
    save_one("tests/models/fork.json", "batch=7", one);
    refuse(&micro, one, CKPT_BAD_INPUT, "another batch");
    test_train_close(&plain);
    test_train_close(&micro);
    remove(four);
    remove(one);
}

typedef struct stored {
    ckpt_executor *executor;
    const char *path;
} stored;

static ckpt_code write_and_read(void *context, ckpt_err *err)
{
    const stored *const s = context;
    CKPT_TRY(ckpt_executor_state_write(s->executor, s->path, err));
    return ckpt_executor_state_read(s->executor, s->path, err);
}

static void every_allocation_may_fail(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    ckpt_err err = {0};
    stored s = {NULL, path_of("starved.state")};
    s.executor = test_train_executor(&t, test_train_hand_plan(&t, false, false), NULL);
    assert_true(ckpt_test_starve(write_and_read, &s) > 0);
    assert_int_equal(ckpt_executor_state_write(s.executor, path_of("no/such/folder/x"), &err), CKPT_IO);
    ckpt_executor_destroy(s.executor);
    test_train_close(&t);
    open_scheme(&t, "tests/models/fork.json", scheme_of(true, true));
    s.executor = test_train_executor(&t, test_train_hand_plan(&t, false, false), NULL);
    assert_true(ckpt_test_starve(write_and_read, &s) > 0);
    ckpt_executor_destroy(s.executor);
    remove(s.path);
    test_train_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_gives_the_same_bits),
        cmocka_unit_test(state_knows_its_loss_and_its_data),
        cmocka_unit_test(refusals_name_the_reason),
        cmocka_unit_test(a_state_is_of_no_scheme),
        cmocka_unit_test(other_batches_in_a_step_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
