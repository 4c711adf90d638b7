/* labels: unit */
/* Command lines, and the options of a scheme. */
#include "tests/support/support_test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/scheme_options.h"
#include "programs/cli/cli.h"

static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE", "where to"},
    {"budget", 0, "SIZE", "how much"},
    {"verbose", 'v', NULL, "say more"},
    {"sweep", 0, NULL, "a"},
    {"sweep-points", 0, "N", "b"},
    {"set", 0, "VAR=N", "c"},
    {NULL, 0, NULL, NULL},
};

/* What a command line is understood as: "name=value;" or "name;", operands as "=value;". */
static int understand(const char *const *words, char *out, size_t room)
{
    char copy[8][64];
    char *argv[9];
    int argc = 0;
    for (; words[argc] != NULL; argc++) {
        snprintf(copy[argc], sizeof copy[argc], "%s", words[argc]);
        argv[argc] = copy[argc];
    }
    argv[argc] = NULL;
    ckpt_cli cli = {.program = "p", .usage = "p", .about = "a", .option = options, .argc = argc, .argv = argv};
    const char *name = NULL;
    const char *value = NULL;
    size_t length = 0;
    int code = 0;
    out[0] = '\0';
    while ((code = ckpt_cli_next(&cli, &name, &value)) == 1) {
        length += (size_t)snprintf(out + length, room - length, "%s%s%s;", name, value != NULL ? "=" : "",
                                   value != NULL ? value : "");
    }
    return code;
}

static void command_lines(void **state)
{
    char out[256];
    const char *const all[] = {"p", "a", "-ofile", "--budget=6GB", "-v", "--output", "-", "b", NULL};
    assert_int_equal(understand(all, out, sizeof out), 0);
    assert_string_equal(out, "=a;output=file;budget=6GB;verbose;output=-;=b;");
    const char *const ends[] = {"p", "-o", "--", "--", "--budget", "-v", NULL};
    assert_int_equal(understand(ends, out, sizeof out), 0);
    assert_string_equal(out, "output=--;=--budget;=-v;");
    const char *const prefix[] = {"p", "--bud", "1B", "--sweep", "--sweep-p=3", "--set=a=b", "-", NULL};
    assert_int_equal(understand(prefix, out, sizeof out), 0);
    assert_string_equal(out, "budget=1B;sweep;sweep-points=3;set=a=b;=-;");
    const char *const unknown[] = {"p", "--nonsense", NULL};
    assert_int_equal(understand(unknown, out, sizeof out), -2);
    const char *const ambiguous[] = {"p", "--s", NULL};
    assert_int_equal(understand(ambiguous, out, sizeof out), -2);
    const char *const lacks[] = {"p", "--budget", NULL};
    assert_int_equal(understand(lacks, out, sizeof out), -2);
    const char *const too_much[] = {"p", "--verbose=1", NULL};
    assert_int_equal(understand(too_much, out, sizeof out), -2);
    const char *const letter[] = {"p", "-x", NULL};
    assert_int_equal(understand(letter, out, sizeof out), -2);
    const char *const none[] = {"p", NULL};
    assert_int_equal(understand(none, out, sizeof out), 0);
}

typedef struct option_case {
    const char *name, *value;
    const char *wanted; /* part of the complaint; NULL: it is taken */
} option_case;

static void scheme_options(void **state)
{
    const option_case cases[] = {
        {"micro-batches", "4", NULL},
        {"micro-batches", "0", "--micro-batches takes a number from 1 to 4096, found \"0\""},
        {"micro-batches", "4x", "found \"4x\""},
        {"micro-batches", "", "found \"\""},
        {"micro-batches", "99999999999999999999", "found \"99999999999999999999\""},
        {"replicas", "2", NULL},
        {"replicas", "-1", "found \"-1\""},
        {"pipeline-stages", "3", NULL},
        {"stage", "2", NULL},
        {"stage", "-1", "from 0"},
        {"gradients", "fused", NULL},
        {"gradients", "Fused", "--gradients takes static or fused, found \"Fused\""},
        {"tied", "apart", NULL},
        {"tied", "both", "--tied takes together or apart, found \"both\""},
        {"shard", "optimizer", NULL},
        {"shard", "weights", "--shard takes optimizer, found \"weights\""},
        {"overlap", NULL, NULL},
        {"bucket", "1MiB", NULL},
        {"bucket", "0", "--bucket"},
        {"network", "25GB/s", NULL},
        {"network", "25GB", "--network"},
    };
    ckpt_scheme all = ckpt_scheme_alone;
    bool stage_given = false;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_scheme one = ckpt_scheme_alone;
        ckpt_err err = {0};
        bool taken = false;
        const ckpt_code code = ckpt_scheme_take(cases[i].wanted != NULL ? &one : &all, cases[i].name, cases[i].value,
                                                &taken, &stage_given, &err);
        assert_true(taken);
        if (cases[i].wanted == NULL) {
            CHECK_OK(code, err);
        } else {
            assert_int_equal(code, CKPT_BAD_INPUT);
            assert_non_null(strstr(err.msg, cases[i].wanted));
        }
    }
    assert_int_equal(all.micro_batches, 4);
    assert_int_equal(all.replicas, 2);
    assert_int_equal(all.stages, 3);
    assert_int_equal(all.stage, 2);
    assert_true(stage_given && all.fused && all.apart && all.shard_optimizer && all.overlap);
    assert_int_equal(all.bucket_bytes, 1 << 20);
    assert_int_equal(all.network_bytes_per_s, 25000000000);
    bool taken = true;
    ckpt_err err = {0};
    CHECK_OK(ckpt_scheme_take(&all, "budget", "1GB", &taken, NULL, &err), err);
    assert_false(taken);
}

/* A work that ends its process: by the signal, or 0: by exit code 7. */
static ckpt_code end_process(const void *signal_number, ckpt_text *text, ckpt_err *err)
{
    const int number = *(const int *)signal_number;
    ckpt_text_add(text, "half");
    if (number != 0) {
        raise(number);
    }
    _exit(7);
    return CKPT_FAIL(err, CKPT_IO, "still there");
}

/* "no memory for drawing" was said of any end of the process that draws, also where nothing limits memory. */
static void a_crash_is_no_lack_of_memory(void **state)
{
    static const struct {
        int signal_number;
        rlim_t limit;
        ckpt_code code;
        const char *said;
    } rows[] = {
        {0, RLIM_INFINITY, CKPT_IO,
         "drawing: the libraries that draw ended (exit code 7), and nothing limits their memory"},
        {SIGTERM, RLIM_INFINITY, CKPT_IO,
         "drawing: the libraries that draw ended (signal 15, Terminated), and nothing limits their memory"},
        {SIGKILL, RLIM_INFINITY, CKPT_NO_MEMORY,
         "drawing: the process that draws was killed (signal 9, Killed), as the system does when memory runs out"},
        {SIGTERM, (rlim_t)1 << 46, CKPT_NO_MEMORY,
         "no memory for drawing within 70368744177664 bytes: the libraries that draw ended (signal 15, Terminated)"},
        {0, (rlim_t)1 << 46, CKPT_NO_MEMORY,
         "no memory for drawing within 70368744177664 bytes: the libraries that draw ended (exit code 7)"},
    };
    const int which[] = {RLIMIT_AS, RLIMIT_DATA};
    struct rlimit before[2];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(getrlimit(which[k], &before[k]), 0);
        if (before[k].rlim_cur != RLIM_INFINITY) {
            skip(); /* somebody limits the tests' memory */
        }
    }
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        ckpt_err err = {0};
        ckpt_text text;
        struct rlimit limit = before[i % 2];
        limit.rlim_cur = rows[i / 2].limit;
        assert_int_equal(setrlimit(which[i % 2], &limit), 0);
        ckpt_text_init(&text);
        const ckpt_code code = ckpt_cli_apart("drawing", end_process, &rows[i / 2].signal_number, &text, &err);
        assert_int_equal(setrlimit(which[i % 2], &before[i % 2]), 0);
        CHECK(code == rows[i / 2].code && strcmp(err.msg, rows[i / 2].said) == 0, "row %zu: code %d: %s", i / 2,
              (int)code, err.msg);
        assert_int_equal(text.length, 0);
        ckpt_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines),
        cmocka_unit_test(scheme_options),
        cmocka_unit_test(a_crash_is_no_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
