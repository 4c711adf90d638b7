/* How the work of a program is shared among OpenMP's threads, for machines that have more cores than this one. Preloaded,
 * it measures the processor time of each thread in each parallel region, which does not depend on how many cores there
 * are for them, and writes at the end:
 *
 *     serial_ns    of the thread that starts the teams, outside of regions; starting and ending teams is not counted
 *     work_ns      of all threads in all regions
 *     longest_ns   in each region of the thread that takes longest, all regions together
 *
 * With enough cores a step takes serial + longest, if a core is as fast beside others as alone: memory that is too slow
 * for all of them, and barriers, are not in it. A loop with a dynamic schedule gives its parts to whoever asks, so its
 * longest share is that of parts of one length. bench/threads.py uses it:
 *
 *     cc -O2 -fopenmp -shared -fPIC -o thread_shares.so bench/thread_shares.c
 *     OMP_WAIT_POLICY=passive THREAD_SHARES=shares.txt LD_PRELOAD=./thread_shares.so ckpt-train ... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 1024, APART = 16 }; /* numbers of threads are apart by two lines of the cache */

typedef void region(void *);
typedef void run_region(region *fn, void *data, unsigned threads, unsigned flags);
typedef bool start_loop(long start, long end, long step, long part, long *first, long *last);

static long loop_parts; /* of a dynamic schedule in the region that runs; 0: none */
static long long spent[MOST * APART], serial_ns, work_ns, longest_ns, left_ns;
static region *wrapped;
static bool begun;

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void measured(void *data)
{
    const long long start = now();
    wrapped(data);
    spent[omp_get_thread_num() * APART] = now() - start;
}

static void write_all(void)
{
    const char *const path = getenv("THREAD_SHARES");
    FILE *const file = path != NULL && begun ? fopen(path, "w") : NULL;
    if (file != NULL) {
        fprintf(file, "serial_ns %lld\nwork_ns %lld\nlongest_ns %lld\n", serial_ns, work_ns, longest_ns);
        fclose(file);
    }
}

static void enter(region *fn)
{
    if (!begun) {
        begun = true;
        atexit(write_all);
    } else {
        serial_ns += now() - left_ns;
    }
    wrapped = fn;
    loop_parts = 0;
    for (int t = 0; t < MOST; t++) {
        spent[t * APART] = 0;
    }
}

static void leave(int threads)
{
    const long parts = loop_parts;
    long long all = 0, longest = 0;
    for (int t = 0; t < MOST; t++) {
        all += spent[t * APART];
        longest = spent[t * APART] > longest ? spent[t * APART] : longest;
    }
    if (parts > 0) {
        longest = all * ((parts + threads - 1) / threads) / parts;
    }
    work_ns += all;
    longest_ns += longest;
    left_ns = now();
}

static void *next(const char *name)
{
    void *const found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "thread_shares: there is no %s\n", name);
        exit(1);
    }
    return found;
}

void GOMP_parallel(region *fn, void *data, unsigned threads, unsigned flags);
void GOMP_parallel(region *fn, void *data, unsigned threads, unsigned flags)
{
    static run_region *real;
    real = real != NULL ? real : (run_region *)next("GOMP_parallel");
    if (omp_in_parallel()) {
        real(fn, data, threads, flags);
        return;
    }
    enter(fn);
    real(measured, data, threads, flags);
    leave(threads > 0 ? (int)threads : omp_get_max_threads());
}

/* Called by every thread of the team, with the same numbers. */
#define DYNAMIC(name)                                                                                                  \
    start_loop name;                                                                                                   \
    bool name(long start, long end, long step, long part, long *first, long *last)                                     \
    {                                                                                                                  \
        const long count = (end - start + step - (step > 0 ? 1 : -1)) / step;                                          \
        __atomic_store_n(&loop_parts, (count + part - 1) / part, __ATOMIC_RELAXED);                                    \
        return ((start_loop *)next(#name))(start, end, step, part, first, last);                                       \
    }
DYNAMIC(GOMP_loop_dynamic_start)
DYNAMIC(GOMP_loop_nonmonotonic_dynamic_start)
