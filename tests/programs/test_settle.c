/* labels: unit */
/* A program restarts itself once to wait shortly and to bind its threads, keeps its arguments, and leaves a user's own
 * choice alone. Which places threads get, on machines that this one is not. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/cli/settle.h"

static char *own_path;

/* Runs this program as "--child `threads`" in the environment that `prepare` leaves; returns its exit code. */
static int run_child(void (*prepare)(void), int threads)
{
    const pid_t child = fork();
    if (child == 0) {
        static const char *const name[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY",  "OMP_PROC_BIND",
                                           "OMP_PLACES",     "CKPT_TEST_STARTS", "GOMP_CPU_AFFINITY"};
        for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
            unsetenv(name[i]);
        }
        prepare();
        char flag[] = "--child", number[16];
        snprintf(number, sizeof number, "%d", threads);
        char *const argv[] = {own_path, flag, number, NULL};
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is(const char *variable, const char *value)
{
    const char *const found = getenv(variable);
    return found != NULL && strcmp(found, value) == 0;
}

/* Exit code: starts of the program; plus 10 when GOMP_SPINCOUNT is set, plus 20 when it is ours; plus 40 when there are
 * places, plus 80 when nothing is to be bound; 250 when the arguments got lost. */
static int child(int argc, char **argv)
{
    const char *const before = getenv("CKPT_TEST_STARTS");
    const int starts = (before != NULL ? before[0] - '0' : 0) + 1;
    const char digit[2] = {(char)('0' + starts), '\0'};
    if (starts > 5 || argc != 3 || setenv("CKPT_TEST_STARTS", digit, 1) != 0) {
        return 250;
    }
    ckpt_cli_settle_threads(argv, atoi(argv[2]), 0, 1);
    const int spin = !getenv("GOMP_SPINCOUNT") ? 0 : is("GOMP_SPINCOUNT", "2000") ? 30 : 10;
    const int bind = getenv("OMP_PLACES") != NULL                                   ? 40
                     : is("OMP_PROC_BIND", "false") || is("OMP_PROC_BIND", "FALSE") ? 80
                                                                                    : 0;
    return starts + spin + bind;
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

static void bind_set(void)
{
    setenv("OMP_PROC_BIND", "spread", 1);
}

static void no_bind_set(void)
{
    setenv("OMP_PROC_BIND", "FALSE", 1);
}

static void places_set(void)
{
    setenv("OMP_PLACES", "cores", 1);
    policy_set();
}

static void restarts_once(void **state)
{
    assert_int_equal(run_child(nothing_set, 0), 2 + 30 + 80);
    assert_int_equal(run_child(nothing_set, 100000), 2 + 30 + 80);
}

static void binds_where_it_is_asked_to(void **state)
{
    assert_int_equal(run_child(bind_set, 1), 2 + 30 + 40);
    assert_int_equal(run_child(bind_set, 0), 2 + 30);
    assert_int_equal(run_child(bind_set, 100000), 2 + 30);
}

static void leaves_a_choice_alone(void **state)
{
    assert_int_equal(run_child(spin_set, 0), 1 + 10 + 80);
    assert_int_equal(run_child(policy_set, 0), 1 + 80);
    assert_int_equal(run_child(no_bind_set, 1), 2 + 30 + 80);
    assert_int_equal(run_child(places_set, 1), 1 + 40);
}

/* ---- places ---- */

static void write_siblings(const char *cpu, int processor, const char *siblings, int node)
{
    char path[500];
    const char *const parts[] = {"", "/topology"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(path, sizeof path, "%.300s/cpu%d%s", cpu, processor, parts[i]);
        mkdir(path, 0777);
    }
    snprintf(path, sizeof path, "%.300s/cpu%d/node%d", cpu, processor, node);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%.300s/cpu%d/topology/thread_siblings_list", cpu, processor);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", siblings);
    assert_int_equal(fclose(file), 0);
}

/* Four cores of two threads, numbered as Intel's ("0,4") in two nodes, and as others are ("0-1") in one; and a machine
 * that says nothing. */
static void make_machines(const char *folder, char split[400], char pairs[400], char mute[400])
{
    char text[32];
    snprintf(split, 400, "%.300s/split", folder);
    snprintf(pairs, 400, "%.300s/pairs", folder);
    snprintf(mute, 400, "%.300s/mute", folder);
    mkdir(folder, 0777);
    mkdir(split, 0777);
    mkdir(pairs, 0777);
    for (int p = 0; p < 8; p++) {
        snprintf(text, sizeof text, "%d,%d", p % 4, p % 4 + 4);
        write_siblings(split, p, text, p % 4 / 2 * 3);
        snprintf(text, sizeof text, "%d-%d", p / 2 * 2, p / 2 * 2 + 1);
        write_siblings(pairs, p, text, 1);
    }
}

static void places(void **state)
{
    char split[400], pairs[400], mute[400];
    make_machines(ckpt_work_dir(), split, pairs, mute);
    static const int eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, some[] = {1, 2, 5, 6};
    const struct {
        const char *cpu;
        const int *processor;
        int count, threads, seat, seats;
        const char *wanted; /* NULL: none unless asked; "": none */
        const char *asked;  /* NULL: the same */
    } row[] = {
        {split, eight, 8, 4, 0, 1, "{0},{1},{2},{3},{4},{5},{6},{7}", NULL},
        {pairs, eight, 8, 4, 0, 1, "{0},{2},{4},{6},{1},{3},{5},{7}", NULL},
        {split, eight, 8, 8, 0, 1, "{0},{4},{1},{5},{2},{6},{3},{7}", NULL},
        {pairs, eight, 8, 8, 0, 1, "{0},{1},{2},{3},{4},{5},{6},{7}", NULL},
        {mute, eight, 8, 8, 0, 1, "{0},{1},{2},{3},{4},{5},{6},{7}", NULL},
        /* ranks of one machine: each begins where the one before ends */
        {split, eight, 8, 2, 0, 2, "{0},{1},{2},{3},{4},{5},{6},{7}", NULL},
        {split, eight, 8, 2, 1, 2, "{2},{3},{4},{5},{6},{7},{0},{1}", NULL},
        {pairs, eight, 8, 2, 3, 4, "{6},{7},{0},{1},{2},{3},{4},{5}", NULL},
        {split, eight, 8, 1, 3, 4, "{3},{4},{5},{6},{7},{0},{1},{2}", NULL},
        /* the process may use some processors only: 1 and 5 are one core, and so are 2 and 6 */
        {split, some, 4, 2, 0, 1, "{1},{2},{5},{6}", NULL},
        {split, some, 4, 4, 0, 1, "{1},{5},{2},{6}", NULL},
        {pairs, some, 4, 4, 0, 1, "{1},{2},{5},{6}", NULL},
        {split, eight, 1, 1, 0, 1, "{0}", NULL},
        /* fewer threads than cores, or between cores and processors */
        {split, eight, 8, 3, 0, 1, NULL, "{0},{1},{2},{3},{4},{5},{6},{7}"},
        {pairs, eight, 8, 1, 1, 2, NULL, "{2},{4},{6},{1},{3},{5},{7},{0}"},
        {split, eight, 8, 5, 0, 1, NULL, "{0},{1},{2},{3},{4},{5},{6},{7}"},
        /* more than processors, none, no such seat */
        {split, eight, 8, 9, 0, 1, "", NULL},
        {split, eight, 8, 3, 2, 3, "", NULL},
        {split, eight, 1, 1, 0, 2, "", NULL},
        {split, eight, 8, 0, 0, 1, "", NULL},
        {split, eight, 0, 1, 0, 1, "", NULL},
        {split, eight, 8, 4, 2, 2, "", NULL},
        {split, eight, 8, 1 << 30, 0, 1 << 30, "", NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const ckpt_cli_processors here = {row[i].cpu, row[i].processor, row[i].count};
        for (int asked = 0; asked < 2; asked++) {
            char text[200] = "";
            const char *const given = asked != 0 && row[i].asked != NULL ? row[i].asked : row[i].wanted;
            const char *const wanted = given != NULL ? given : "";
            const bool found =
                ckpt_cli_places(&here, row[i].threads, row[i].seat, row[i].seats, asked != 0, text, sizeof text);
            CHECK(found == (wanted[0] != '\0'), "row %zu: found \"%s\"", i, text);
            CHECK(!found || strcmp(text, wanted) == 0, "row %zu: found \"%s\"", i, text);
            for (size_t room = 0; found && room <= strlen(wanted); room++) {
                CHECK(!ckpt_cli_places(&here, row[i].threads, row[i].seat, row[i].seats, asked != 0, text, room),
                      "row %zu: places in %zu bytes", i, room);
            }
        }
    }
    assert_int_equal(ckpt_cli_nodes(&(ckpt_cli_processors){split, eight, 8}), 2);
    assert_int_equal(ckpt_cli_nodes(&(ckpt_cli_processors){split, eight, 2}), 1);
    assert_int_equal(ckpt_cli_nodes(&(ckpt_cli_processors){pairs, eight, 8}), 1);
    assert_int_equal(ckpt_cli_nodes(&(ckpt_cli_processors){mute, eight, 8}), 1);
}

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "--child") == 0) {
        return child(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarts_once),
        cmocka_unit_test(binds_where_it_is_asked_to),
        cmocka_unit_test(leaves_a_choice_alone),
        cmocka_unit_test(places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
