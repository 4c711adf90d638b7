/* labels: unit */
/* Counters of the processor through the code that the profiler uses, with software events instead of cycles,
 * instructions and cache misses: the system counts those on every machine. A page that is mapped, written and unmapped
 * is one page fault, so how much must be counted is known. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS is not in POSIX 2008 */
#endif
#include "tests/support/support_test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "profiler/counters.h"

/* <linux/perf_event.h>: PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK and _PAGE_FAULTS. */
static const ckpt_counter_event faults = {1, 2}, task_clock = {1, 1};
static const ckpt_counter_event refused = {0x7fffffff, 0}; /* no event has that type */

static ckpt_counters *open_for(ckpt_counter_event first, ckpt_counter_event second, ckpt_counter_event third)
{
    const ckpt_counter_event event[3] = {first, second, third};
    ckpt_counters *counters = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_counters_create_for(event, &counters, &err), err);
    return counters;
}

/* Opened, or the test ends as skipped: a container may forbid the whole system call. */
static ckpt_counters *open_or_skip(ckpt_counter_event first, ckpt_counter_event second, ckpt_counter_event third)
{
    ckpt_counters *const counters = open_for(first, second, third);
    if (counters == NULL) {
        puts("this system counts nothing for a process");
        skip();
    }
    return counters;
}

static void touch_pages(int pages)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < pages; i++) {
        volatile char *const page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            abort(); /* also called where cmocka cannot fail a test: on other threads */
        }
        *page = 1;
        munmap((void *)(uintptr_t)page, size);
    }
}

/* `pages` and what else the process touched meanwhile: first calls, stacks and arenas of threads, a sanitizer. */
static void check_faults(int64_t found, int64_t pages)
{
    CHECK(found >= pages && found < pages + 300, "%lld page faults counted, %lld made", (long long)found,
          (long long)pages);
}

static void counts_grow_with_work(void **state)
{
    ckpt_counters *const counters = open_or_skip(faults, task_clock, faults);
    for (int pages = 0; pages <= 4000; pages += 1000) {
        ckpt_counts counts = {-1, -1, -1};
        ckpt_counters_start(counters);
        touch_pages(pages);
        ckpt_counters_stop(counters, &counts);
        check_faults(counts.cycles, pages);
        check_faults(counts.cache_misses, pages);
        CHECK(counts.instructions > 0, "%lld ns of work counted", (long long)counts.instructions);
        touch_pages(1000); /* between stop and start nothing counts */
    }
    ckpt_counters_destroy(counters);
}

static int64_t process_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Two clocks of the same thing: how much of it there was does not matter. */
static void the_task_clock_agrees_with_the_process_clock(void **state)
{
    ckpt_counters *const counters = open_or_skip(task_clock, task_clock, task_clock);
    ckpt_counts counts = {0};
    ckpt_counters_start(counters);
    const int64_t start = process_ns();
    int64_t spent = 0;
    while (spent < 20 * 1000 * 1000) {
        spent = process_ns() - start;
    }
    ckpt_counters_stop(counters, &counts);
    CHECK(counts.cycles > spent / 2 && counts.cycles < spent * 2, "%lld ns counted, %lld spent",
          (long long)counts.cycles, (long long)spent);
    ckpt_counters_destroy(counters);
}

typedef struct ckpt_worker {
    int pages;
    pthread_barrier_t *turn; /* works between the first and the second meeting, ends after the third; NULL: at once */
    pthread_t thread;
} ckpt_worker;

static void *work(void *argument)
{
    ckpt_worker *const worker = argument;
    if (worker->turn != NULL) {
        pthread_barrier_wait(worker->turn);
    }
    touch_pages(worker->pages);
    if (worker->turn != NULL) {
        pthread_barrier_wait(worker->turn);
        pthread_barrier_wait(worker->turn);
    }
    return NULL;
}

static void start_worker(ckpt_worker *worker, int pages, pthread_barrier_t *turn)
{
    *worker = (ckpt_worker){.pages = pages, .turn = turn};
    CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0, "no thread");
}

/* OpenMP's pool is there before counting begins or is made by the first layer, and grows with a larger team. */
static void threads_are_counted_whenever_they_started(void **state)
{
    pthread_barrier_t turn;
    assert_int_equal(pthread_barrier_init(&turn, NULL, 4), 0);
    ckpt_worker early[2], late, brief;
    start_worker(&early[0], 1000, &turn);
    start_worker(&early[1], 2000, &turn);
    ckpt_counters *const counters = open_for(faults, faults, faults);
    start_worker(&late, 4000, &turn);
    ckpt_counts counts = {0};
    ckpt_counters_start(counters);
    pthread_barrier_wait(&turn);
    start_worker(&brief, 8000, NULL); /* ends before counting does */
    CHECK(pthread_join(brief.thread, NULL) == 0, "no end");
    pthread_barrier_wait(&turn);
    ckpt_counters_stop(counters, &counts);
    pthread_barrier_wait(&turn);
    CHECK(pthread_join(early[0].thread, NULL) == 0 && pthread_join(early[1].thread, NULL) == 0 &&
              pthread_join(late.thread, NULL) == 0,
          "no end");
    pthread_barrier_destroy(&turn);
    if (counters == NULL) {
        skip();
    }
    check_faults(counts.cycles, 1000 + 2000 + 4000 + 8000);

    ckpt_counters_start(counters); /* those that ended count no more */
    touch_pages(500);
    ckpt_counters_stop(counters, &counts);
    check_faults(counts.cycles, 500);
    ckpt_counters_destroy(counters);
}

static void a_refused_event_is_0_and_no_error(void **state)
{
    ckpt_counts counts = {-1, -1, -1};
    ckpt_counters *const none = open_for(refused, refused, refused);
    assert_null(none);
    ckpt_counters_start(none);
    ckpt_counters_stop(none, &counts);
    CHECK(counts.cycles == 0 && counts.instructions == 0 && counts.cache_misses == 0, "nothing was counted");
    ckpt_counters_destroy(none);

    ckpt_counters *const some = open_or_skip(faults, refused, faults);
    ckpt_counters_start(some);
    touch_pages(1000);
    ckpt_counters_stop(some, &counts);
    check_faults(counts.cycles, 1000);
    assert_int_equal(counts.instructions, 0);
    check_faults(counts.cache_misses, 1000);
    ckpt_counters_destroy(some);
}

/* A sum over some threads would pass for the sum over all: without a descriptor for the second thread's
 * counter, none counts. */
static void an_event_counts_on_all_threads_or_on_none(void **state)
{
    pthread_barrier_t turn;
    assert_int_equal(pthread_barrier_init(&turn, NULL, 2), 0);
    ckpt_worker other;
    start_worker(&other, 1, &turn);
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const int next =
        dup(0); /* the first that is free; the folder of threads takes it, the first counter the one after */
    assert_true(next >= 0);
    close(next);
    const struct rlimit tight = {.rlim_cur = (rlim_t)next + 2, .rlim_max = files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    ckpt_counters *const counters = open_for(faults, faults, faults);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (int i = 0; i < 3; i++) {
        pthread_barrier_wait(&turn);
    }
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    pthread_barrier_destroy(&turn);
    assert_null(counters);
}

/* Files this process has open. */
static int open_files(void)
{
    DIR *const files = opendir("/proc/self/fd");
    int count = 0;
    while (files != NULL && readdir(files) != NULL) {
        count++;
    }
    if (files != NULL) {
        closedir(files);
    }
    return count;
}

static ckpt_code create_and_destroy(void *context, ckpt_err *err)
{
    const ckpt_counter_event *const event = context;
    ckpt_counters *counters = NULL;
    CKPT_TRY(ckpt_counters_create_for(event, &counters, err));
    ckpt_counters_destroy(counters);
    return CKPT_OK;
}

static void without_memory_no_file_stays_open(void **state)
{
    const int before = open_files();
    ckpt_counter_event event[3] = {faults, refused, task_clock};
    ckpt_test_starve(create_and_destroy, event);
    assert_int_equal(open_files(), before);
}

/* What the profiler calls. Where the processor tells, ten times the work is more instructions. */
static void the_processor_counts_or_is_silent(void **state)
{
    ckpt_counters *counters = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_counters_create(&counters, &err), err);
    ckpt_counts counts[2] = {{-1, -1, -1}, {-1, -1, -1}};
    volatile unsigned sum = 0;
    for (int i = 0; i < 2; i++) {
        ckpt_counters_start(counters);
        for (unsigned k = 0; k < (i == 0 ? 1000000u : 10000000u); k++) {
            sum += k;
        }
        ckpt_counters_stop(counters, &counts[i]);
        printf("%lld cycles, %lld instructions, %lld cache misses\n", (long long)counts[i].cycles,
               (long long)counts[i].instructions, (long long)counts[i].cache_misses);
        CHECK(counts[i].cycles >= 0 && counts[i].instructions >= 0 && counts[i].cache_misses >= 0, "below 0");
    }
    CHECK(counts[0].instructions == 0 || counts[1].instructions > 5 * counts[0].instructions,
          "ten times the work is not more instructions");
    ckpt_counters_destroy(counters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_grow_with_work),
        cmocka_unit_test(the_task_clock_agrees_with_the_process_clock),
        cmocka_unit_test(threads_are_counted_whenever_they_started),
        cmocka_unit_test(a_refused_event_is_0_and_no_error),
        cmocka_unit_test(an_event_counts_on_all_threads_or_on_none),
        cmocka_unit_test(without_memory_no_file_stays_open),
        cmocka_unit_test(the_processor_counts_or_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
