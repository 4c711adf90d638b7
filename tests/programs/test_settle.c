/* labels: unit */
/* A program restarts itself once to wait shortly, keeps its arguments, and leaves a user's own choice alone. */
#include "tests/support/support_test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/cli/settle.h"

static char *own_path;

/* Runs this program as "--child word" in the environment that `prepare` leaves; returns its exit code. */
static int run_child(void (*prepare)(void))
{
    const pid_t child = fork();
    if (child == 0) {
        unsetenv("GOMP_SPINCOUNT");
        unsetenv("OMP_WAIT_POLICY");
        unsetenv("CKPT_TEST_STARTS");
        prepare();
        char flag[] = "--child", word[] = "a word";
        char *const argv[] = {own_path, flag, word, NULL};
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Exit code: starts of the program, plus 10 when GOMP_SPINCOUNT is set, plus 20 when it is ours; 90 when the
 * arguments got lost. */
static int child(int argc, char **argv)
{
    const char *const before = getenv("CKPT_TEST_STARTS");
    const int starts = (before != NULL ? before[0] - '0' : 0) + 1;
    const char digit[2] = {(char)('0' + starts), '\0'};
    if (starts > 5 || argc != 3 || strcmp(argv[2], "a word") != 0 || setenv("CKPT_TEST_STARTS", digit, 1) != 0) {
        return 90;
    }
    ckpt_cli_settle_threads(argv);
    const char *const count = getenv("GOMP_SPINCOUNT");
    return starts + (count == NULL ? 0 : strcmp(count, "2000") == 0 ? 30 : 10);
}

static void nothing_set(void)
{
}

static void spin_set(void)
{
    setenv("GOMP_SPINCOUNT", "7", 1);
}

static void policy_set(void)
{
    setenv("OMP_WAIT_POLICY", "active", 1);
}

static void restarts_once(void **state)
{
    assert_int_equal(run_child(nothing_set), 32);
}

static void leaves_a_choice_alone(void **state)
{
    assert_int_equal(run_child(spin_set), 11);
    assert_int_equal(run_child(policy_set), 1);
}

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "--child") == 0) {
        return child(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarts_once),
        cmocka_unit_test(leaves_a_choice_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
