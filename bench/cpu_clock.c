/* Time of the processor in place of the clock, and cold caches on demand: what a layer and a step take on a machine
 * where others work too. Preloaded, it answers what ckpt_clock_ns asks with the processor time of the process, so one
 * thread. With COLD=BYTES it also overwrites so much memory after every look at the clock, outside of what is counted,
 * so that no run finds anything in a cache. docs/explanation/cost-model.md has figures made with it:
 *
 *     cc -O2 -shared -fPIC -o cpu_clock.so bench/cpu_clock.c
 *     LD_PRELOAD=./cpu_clock.so COLD=64000000 ckpt-profile --threads 1 --repeats 5 ... */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long ask(clockid_t clock)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* What overwriting took is taken off what is told. */
static void overwrite(void)
{
    static volatile char *block;
    static long bytes = -1;
    if (bytes < 0) {
        const char *const wanted = getenv("COLD");
        bytes = wanted != NULL ? atol(wanted) : 0;
        block = bytes > 0 ? malloc((size_t)bytes) : NULL;
    }
    for (long i = 0; block != NULL && i < bytes; i += 64) {
        block[i]++;
    }
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static long long spent;
    if (clock != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, clock, time);
    }
    const long long now = ask(CLOCK_PROCESS_CPUTIME_ID), told = now - spent;
    overwrite();
    spent += ask(CLOCK_PROCESS_CPUTIME_ID) - now;
    *time = (struct timespec){.tv_sec = told / 1000000000, .tv_nsec = told % 1000000000};
    return 0;
}
