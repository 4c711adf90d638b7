/* labels: unit */
/* The loss log of a resumed run equals that of the uninterrupted one, also after a killed run; other logs are untouched. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/train/loss_log.h"

static const char *file; /* set by main */

static void put(const char *text)
{
    FILE *const f = fopen(file, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void check_holds(const char *wanted)
{
    char found[1024] = {0};
    FILE *const f = fopen(file, "rb");
    assert_non_null(f);
    found[fread(found, 1, sizeof found - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(found, wanted);
}

#define HEADER "step,loss,loss_hex,validation,accuracy\n"
#define ROWS   "1,2.5,0x1.4p+1,,\n2,0.1,0x1.99999ap-4,0.5,\n"
#define LATER  "3,-0.75,-0x1.8p-1,,\n"

static ckpt_code go_on(uint64_t step, float loss, ckpt_err *err)
{
    static ckpt_loss_log log;
    ckpt_code code = ckpt_loss_log_open(&log, file, true, step, loss, err);
    if (code == CKPT_OK) {
        ckpt_loss_log_add(&log, step + 1, -0.75f, (double)NAN, (double)NAN);
    }
    ckpt_err unused = {0};
    assert_int_equal(ckpt_loss_log_close(&log, &unused), CKPT_OK);
    return code;
}

static void refuse(const char *text, uint64_t step, float loss, const char *reason)
{
    ckpt_err err = {0};
    put(text);
    assert_int_equal(go_on(step, loss, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, reason) != NULL, "found \"%s\", wanted \"%s\"", err.msg, reason);
    check_holds(text);
}

static void a_new_log_replaces_an_old_one(void **state)
{
    static ckpt_loss_log log;
    ckpt_err err = {0};
    put("something old");
    CHECK_OK(ckpt_loss_log_open(&log, file, false, 0, 0, &err), err);
    ckpt_loss_log_add(&log, 1, 2.5f, (double)NAN, (double)NAN);
    check_holds(HEADER "1,2.5,0x1.4p+1,,\n"); /* before close: a killed run keeps its rows */
    ckpt_loss_log_add(&log, 2, 0.1f, (double)NAN, (double)NAN);
    ckpt_loss_log_add(&log, 3, 1, 1.5, 0.25);
    ckpt_loss_log_add(&log, 4, 1, 1.5, (double)NAN);
    CHECK_OK(ckpt_loss_log_close(&log, &err), err);
    check_holds(HEADER "1,2.5,0x1.4p+1,,\n2,0.100000001,0x1.99999ap-4,,\n3,1,0x1p+0,1.5,0.25\n4,1,0x1p+0,1.5,\n");
    CHECK_OK(ckpt_loss_log_close(&log, &err), err); /* a second close is allowed */
}

static void rows_of_a_killed_run_are_written_again(void **state)
{
    ckpt_err err = {0};
    const char *const wanted = HEADER "1,2.5,0x1.4p+1,,\n2,0.100000001,0x1.99999ap-4,,\n" LATER;
    put(HEADER "1,2.5,0x1.4p+1,,\n2,0.100000001,0x1.99999ap-4,,\n3,-0.75,-0x1.8p-1,1.5,0.25\n4,1,0x");
    CHECK_OK(go_on(2, 0.1f, &err), err);
    check_holds(wanted);
    put(HEADER "1,2.5,0x1.4p+1,,\n2,0.100000001,0x1.99999ap-4,,\n");
    CHECK_OK(go_on(2, 0.1f, &err), err);
    check_holds(wanted);
    unlink(file); /* a resumed run without its old log starts a new one */
    CHECK_OK(go_on(2, 0.1f, &err), err);
    check_holds(HEADER LATER);
    put(HEADER); /* stopped before the first step */
    CHECK_OK(go_on(0, 0, &err), err);
    check_holds(HEADER "1,-0.75,-0x1.8p-1,,\n");
}

/* A validation that was interrupted is made again, and belongs to the row that is there. */
static void the_row_of_an_interrupted_validation_is_completed(void **state)
{
    static ckpt_loss_log log;
    ckpt_err err = {0};
    put(HEADER "1,2.5,0x1.4p+1,,\n2,0.5,0x1p-1,,\n");
    CHECK_OK(ckpt_loss_log_open(&log, file, true, 2, 0.5f, &err), err);
    ckpt_loss_log_add(&log, 2, 0.5f, 1.5, 0.25);
    ckpt_loss_log_add(&log, 3, -0.75f, (double)NAN, (double)NAN);
    CHECK_OK(ckpt_loss_log_close(&log, &err), err);
    check_holds(HEADER "1,2.5,0x1.4p+1,,\n2,0.5,0x1p-1,1.5,0.25\n" LATER);
}

static void the_log_of_another_run_is_left_alone(void **state)
{
    refuse(HEADER ROWS, 1, 2.25f, "another run: step 1 is \"1,2.5,0x1.4p+1,,\" there and \"1,2.25,");
    refuse(HEADER ROWS, 3, 2.5f, "no row of step 3");
    refuse(HEADER ROWS, 0, 0, "has rows");
    refuse("a letter\n", 1, 2.5f, "first line is not step,loss,loss_hex,validation,accuracy");
    refuse(HEADER "1,2.5,0x1.4p+1", 1, 2.5f, "another run"); /* a row that is cut off */
}

static void a_full_disk_is_reported(void **state)
{
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    static ckpt_loss_log log;
    ckpt_err err = {0};
    assert_int_equal(ckpt_loss_log_open(&log, "/dev/full", true, 5, 1, &err), CKPT_IO);
    CHECK(strstr(err.msg, "/dev/full: cannot write: No space") != NULL, "%s", err.msg);
    assert_null(log.rows.file);
    assert_int_equal(ckpt_loss_log_open(&log, ckpt_work_file("no/such/folder"), false, 0, 0, &err), CKPT_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_log_replaces_an_old_one),
        cmocka_unit_test(rows_of_a_killed_run_are_written_again),
        cmocka_unit_test(the_row_of_an_interrupted_validation_is_completed),
        cmocka_unit_test(the_log_of_another_run_is_left_alone),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    file = ckpt_work_file("loss_log.csv");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
