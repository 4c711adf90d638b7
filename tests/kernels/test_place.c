/* labels: unit; not under sanitizers */
/* Where threads run, asked of the system: those that compute each on a processor of its own, also after OpenMP has ended
 * and started them anew; those that read data anywhere; ranks of one machine not on each other's. And who touches memory
 * first. The processors of this machine are enough for what they show: that places on two nodes are no other case, and
 * that memory is then close, is what the system promises. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, RUSAGE_THREAD */
#endif
#include "tests/support/support_test.h"

#include <dirent.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/data/loader.h"
#include "kernels/place.h"
#include "programs/cli/settle.h"
#include "tests/support/support_train.h"

enum { FAILED = 1, NOT_BOUND = 7, MOST = 64 };

static char *own_path;

static cpu_set_t mask_of(pid_t thread)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(thread, sizeof set, &set);
    return set;
}

static int processors(void)
{
    const cpu_set_t set = mask_of(0);
    return CPU_COUNT(&set);
}

#define WANT(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: ", __LINE__);                                                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            exit(FAILED);                                                                                              \
        }                                                                                                              \
    } while (0)

/* Every thread of a team is on one processor, and no two on one if there are enough; gives the first thread's. */
static int check_team(int threads, bool apart)
{
    static cpu_set_t mask[MOST];
    int team = 0;
#pragma omp parallel num_threads(threads)
    {
        mask[omp_get_thread_num()] = mask_of(0);
#pragma omp single
        team = omp_get_num_threads();
    }
    WANT(team == threads, "a team of %d, wanted %d", team, threads);
    int first = -1;
    for (int t = 0; t < threads; t++) {
        WANT(CPU_COUNT(&mask[t]) == 1, "thread %d of %d on %d processors", t, threads, CPU_COUNT(&mask[t]));
        for (int u = 0; apart && u < t; u++) {
            WANT(!CPU_EQUAL(&mask[t], &mask[u]), "threads %d and %d of %d on one processor", t, u, threads);
        }
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        first = CPU_ISSET((size_t)i, &mask[0]) ? i : first;
    }
    return first;
}

/* Threads of this process that may run on all of `whole`. */
static int count_free(const cpu_set_t *whole)
{
    int count = 0;
    DIR *const folder = opendir("/proc/self/task");
    for (const struct dirent *entry = NULL; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            const cpu_set_t set = mask_of((pid_t)atoi(entry->d_name));
            count += CPU_EQUAL(&set, whole) ? 1 : 0;
        }
    }
    closedir(folder);
    return count;
}

static void check_loader(const cpu_set_t *whole)
{
    static const int64_t limit[2];
    const ckpt_tensor tensor = {.name = "x", .dtype = CKPT_FLOAT32, .shape = {2, {4, 4}}};
    const ckpt_model model = {.input = &tensor, .input_count = 1};
    float x[16];
    void *const input[] = {x};
    const uint64_t number[] = {0};
    ckpt_data *data = NULL;
    ckpt_loader *loader = NULL;
    ckpt_err err = {0};
    WANT(ckpt_data_open("synthetic", &model, limit, 1, &data, &err) == CKPT_OK, "%s", err.msg);
    WANT(count_free(whole) == 0, "a thread that computes is not bound");
    WANT(ckpt_loader_create(data, &model, input, number, 1, 1, 2, &loader, &err) == CKPT_OK, "%s", err.msg);
    for (int batch = 0; batch < 4; batch++) { /* both workers have begun when as many batches as slots are made */
        WANT(ckpt_loader_take(loader, input, &err) == CKPT_OK, "%s", err.msg);
    }
    for (int tries = 0; count_free(whole) != 2 && tries < 1000; tries++) {
        usleep(10000);
    }
    WANT(count_free(whole) == 2, "%d threads are free, wanted the two workers", count_free(whole));
    ckpt_loader_destroy(loader);
    ckpt_data_close(data);
}

/* "--child threads seat seats": what the programs do. Exit code: 100 + the processor of the first thread. */
static int child(char **argv)
{
    const int threads = atoi(argv[2]), seat = atoi(argv[3]), seats = atoi(argv[4]);
    ckpt_place_leave();
    const cpu_set_t whole = mask_of(0);
    ckpt_cli_settle_threads(argv, threads, seat, seats);
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    WANT(ckpt_device_open("cpu", threads, &device, &err) == CKPT_OK, "%s", err.msg);
    if (omp_get_proc_bind() == omp_proc_bind_false) {
        const cpu_set_t now = mask_of(0);
        WANT(CPU_EQUAL(&now, &whole), "OpenMP binds no thread, but the first one is bound");
        return NOT_BOUND;
    }
    const bool apart = threads <= CPU_COUNT(&whole);
    const int first = check_team(threads, apart);
    for (int fewer = threads - 1; fewer >= 1; fewer--) { /* OpenMP ends threads here, and starts others after it */
        WANT(check_team(fewer, apart) == first, "the first thread has moved");
        WANT(check_team(threads, apart) == first, "the first thread has moved");
    }
    check_loader(&whole);
    ckpt_device_close(device);
    const cpu_set_t after = mask_of(0);
    WANT(CPU_EQUAL(&after, &whole), "still bound after the device is closed");
    return 100 + first;
}

static int run_child(int threads, int seat, int seats, const char *bind, const char *places)
{
    const pid_t id = fork();
    if (id == 0) {
        char flag[] = "--child", number[3][16];
        snprintf(number[0], sizeof number[0], "%d", threads);
        snprintf(number[1], sizeof number[1], "%d", seat);
        snprintf(number[2], sizeof number[2], "%d", seats);
        unsetenv("OMP_PLACES");
        unsetenv("GOMP_CPU_AFFINITY");
        unsetenv("OMP_PROC_BIND");
        if (bind != NULL) {
            setenv("OMP_PROC_BIND", bind, 1);
        }
        if (places != NULL) {
            setenv("OMP_PLACES", places, 1);
        }
        char *const argv[] = {own_path, flag, number[0], number[1], number[2], NULL};
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(id, &status, 0), id);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != FAILED, "the child's line says why");
    return WEXITSTATUS(status);
}

static void one_thread_to_a_processor(void **state)
{
    const int here = processors();
    if (here < 2 || here > MOST) {
        skip();
    }
    assert_true(run_child(here, 0, 1, "true", NULL) >= 100);
    assert_true(run_child(here - 1, 0, 1, "close", NULL) >= 100);
    assert_int_equal(run_child(here + 1, 0, 1, NULL, NULL), NOT_BOUND);
    assert_int_equal(run_child(1, 0, 1, NULL, NULL), NOT_BOUND);
    assert_int_equal(run_child(here, 0, 1, "false", NULL), NOT_BOUND);
    if (access("/sys/devices/system/node/node1", F_OK) != 0) { /* one node: nothing to gain */
        assert_int_equal(run_child(here, 0, 1, NULL, NULL), NOT_BOUND);
    }
}

static void ranks_share_processors(void **state)
{
    const int here = processors();
    int first[MOST];
    if (here < 2 || here > MOST) {
        skip();
    }
    for (int rank = 0; rank < here; rank++) {
        first[rank] = run_child(1, rank, here, "true", NULL);
        assert_true(first[rank] >= 100);
        for (int other = 0; other < rank; other++) {
            CHECK(first[rank] != first[other], "ranks %d and %d on processor %d", rank, other, first[rank] - 100);
        }
        assert_int_equal(run_child(1, rank, here + 1, NULL, NULL), NOT_BOUND);
    }
}

/* As the user says; and OMP_PROC_BIND=true was once read after the program had bound itself to one processor. */
static void the_users_places(void **state)
{
    const int here = processors();
    if (here < 2 || here > MOST) {
        skip();
    }
    assert_true(run_child(here, 0, 1, "true", "threads") >= 100);
    assert_true(run_child(here, 0, 1, "spread", "threads") >= 100);
    assert_true(run_child(2 * here, 0, 1, "close", "threads") >= 100);
}

/* ---- who touches memory first ---- */

enum { THREADS = 4 };

static long faults(void)
{
    struct rusage use;
    return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_minflt : -1;
}

static void count_faults(int threads, long found[MOST])
{
#pragma omp parallel num_threads(threads)
    found[omp_get_thread_num()] = faults();
}

static void shares_are_touched_by_their_threads(void **state)
{
    const ckpt_bytes page = (ckpt_bytes)sysconf(_SC_PAGESIZE), pages = 4000;
    ckpt_device *device = NULL;
    void *base = NULL;
    ckpt_err err = {0};
    long before[MOST], after[MOST];
    CHECK_OK(ckpt_device_open("cpu", THREADS, &device, &err), err);
    CHECK_OK(device->api->reserve(device, (pages + 2) * page, &base, &err), err);
    unsigned char *const from = (unsigned char *)base + page - 64; /* a tensor begins and ends within pages of others */
    memset(base, 0x55, (size_t)page);
    memset((unsigned char *)base + (pages + 1) * page, 0x55, (size_t)page);
    count_faults(THREADS, before);
    count_faults(THREADS, before);
    device->api->touch(device, from, pages * page + 128);
    count_faults(THREADS, after);
    for (int t = 0; t < THREADS; t++) {
        const long mine = after[t] - before[t], share = (long)pages / THREADS;
        CHECK(mine >= share - 4 && mine <= share + 50, "thread %d touched %ld pages first, wanted %ld", t, mine, share);
    }
    for (ckpt_bytes i = 0; i < page; i++) {
        CHECK(((unsigned char *)base)[i] == 0x55, "byte %lld was lost", (long long)i);
    }
    for (int t = 0; t < 200; t++) { /* nothing to touch within one page, and nothing beyond the end */
        device->api->touch(device, (unsigned char *)base + t, t);
    }
    assert_int_equal(((unsigned char *)base)[0], 0x55);
    assert_int_equal(((unsigned char *)base)[400], 0x55);
    device->api->release(device, base, (pages + 2) * page);
    ckpt_device_close(device);
}

/* 11,000 pages of weights are no longer all touched by the thread that writes them. */
static void weights_are_touched_by_all_threads(void **state)
{
    test_train t;
    long before[MOST], after[MOST];
    test_train_open(&t, "models/byte-gpt.json", "batch=1");
    const ckpt_plan *const plan = test_train_plan(&t, "keep-all", 0);
    count_faults(TEST_TRAIN_THREADS, before);
    count_faults(TEST_TRAIN_THREADS, before);
    ckpt_executor *const executor = test_train_executor(&t, plan, NULL);
    count_faults(TEST_TRAIN_THREADS, after);
    const int64_t values = test_train_get(&t, NULL, NULL, NULL);
    const long share = (long)(values * 4 / sysconf(_SC_PAGESIZE) / TEST_TRAIN_THREADS);
    for (int i = 1; i < TEST_TRAIN_THREADS; i++) {
        CHECK(after[i] - before[i] >= share * 9 / 10, "thread %d touched %ld pages first, wanted %ld", i,
              after[i] - before[i], share);
    }
    ckpt_executor_destroy(executor);
    test_train_close(&t);
}

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc == 5 && strcmp(argv[1], "--child") == 0) {
        return child(argv);
    }
    ckpt_place_leave();
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* pages are counted */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_to_a_processor),
        cmocka_unit_test(ranks_share_processors),
        cmocka_unit_test(the_users_places),
        cmocka_unit_test(shares_are_touched_by_their_threads),
        cmocka_unit_test(weights_are_touched_by_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
