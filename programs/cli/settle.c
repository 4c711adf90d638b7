/* By default GNU's OpenMP spins for milliseconds at every barrier. If another program shares the processors, a spinning thread takes the time that the thread it waits for needs. Kernels that follow each other closely need only a short spin.
 *
 * Binding is left to OpenMP: its runtime ends and starts threads whenever a team is smaller than the one before, so no other code could bind them all. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "programs/cli/settle.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROCESSORS_MAX = CPU_SETSIZE };

static bool is_set(const char *variable)
{
    return getenv(variable) != NULL;
}

bool ckpt_cli_threads_settled(void)
{
    return is_set("OMP_PROC_BIND") || is_set("OMP_PLACES") || is_set("GOMP_CPU_AFFINITY");
}

/* The lowest of the processors that share a core with `own`, of those that the process may run on: a list like "0,32" or "0-1". */
static int lowest_sibling(const char *cpu, int own, const int *processor, int count)
{
    char path[300];
    snprintf(path, sizeof path, "%.200s/cpu%d/topology/thread_siblings_list", cpu, own);
    FILE *const file = fopen(path, "r");
    int lowest = own, from = 0, to = 0;
    char then = ',';
    while (file != NULL && then == ',' && fscanf(file, "%d", &from) == 1) {
        to = from;
        if (fscanf(file, "%c", &then) == 1 && then == '-') {
            then = fscanf(file, "%d%c", &to, &then) == 2 ? then : '\n';
        }
        for (int i = 0; i < count && processor[i] <= to; i++) {
            lowest = processor[i] >= from && processor[i] < lowest ? processor[i] : lowest;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return lowest;
}

/* One processor of each core, then the rest; or core by core where `all` are used. Returns the number of cores. */
static int in_order(const char *cpu, const int *processor, int count, bool all, int *order)
{
    int lowest[PROCESSORS_MAX], cores = 0, placed = 0;
    for (int i = 0; i < count; i++) {
        lowest[i] = lowest_sibling(cpu, processor[i], processor, count);
        cores += lowest[i] == processor[i];
    }
    for (int i = 0; i < count; i++) {
        if (lowest[i] == processor[i]) {
            order[placed++] = processor[i];
            for (int k = i + 1; all && k < count; k++) {
                if (lowest[k] == processor[i]) {
                    order[placed++] = processor[k];
                }
            }
        }
    }
    for (int i = 0; !all && i < count; i++) {
        if (lowest[i] != processor[i]) {
            order[placed++] = processor[i];
        }
    }
    return cores;
}

bool ckpt_cli_places(const char *cpu, const int *processor, int count, int threads, int seat, int seats, char *text,
                     size_t room)
{
    int order[PROCESSORS_MAX];
    const long long wanted = (long long)threads * seats;
    if (wanted < 2 || wanted > count || count > PROCESSORS_MAX || seat < 0 || seat >= seats) {
        return false;
    }
    const bool all = wanted == count;
    const int cores = in_order(cpu, processor, count, all, order);
    if (!all && wanted != cores) {
        return false;
    }
    size_t used = 0;
    for (int i = 0; i < count && used < room; i++) {
        used +=
            (size_t)snprintf(text + used, room - used, "%s{%d}", i > 0 ? "," : "", order[(seat * threads + i) % count]);
    }
    return used < room;
}

/* "false" where nothing is bound, so that the restarted program need not think again. */
static bool bind_threads(int threads, int seat, int seats)
{
    static char text[PROCESSORS_MAX * 8];
    int processor[PROCESSORS_MAX], count = 0;
    cpu_set_t mine;
    if (ckpt_cli_threads_settled()) {
        return false;
    }
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
        for (int i = 0; i < PROCESSORS_MAX; i++) {
            if (CPU_ISSET((size_t)i, &mine)) {
                processor[count++] = i;
            }
        }
    }
    const bool bound =
        ckpt_cli_places("/sys/devices/system/cpu", processor, count, threads, seat, seats, text, sizeof text);
    const bool told = setenv("OMP_PROC_BIND", bound ? "close" : "false", 1) == 0;
    return told && bound && setenv("OMP_PLACES", text, 1) == 0;
}

static bool spin_shortly(void)
{
    return !is_set("GOMP_SPINCOUNT") && !is_set("OMP_WAIT_POLICY") && setenv("GOMP_SPINCOUNT", "2000", 1) == 0;
}

void ckpt_cli_settle_threads(char *const *argv, int threads, int seat, int seats)
{
    const bool bound = bind_threads(threads, seat, seats), spin = spin_shortly();
    if ((bound || spin) && argv != NULL && argv[0] != NULL) {
        execv("/proc/self/exe", argv);
    }
}
