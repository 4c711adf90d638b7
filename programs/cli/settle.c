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
#include <strings.h>
#include <unistd.h>

enum { PROCESSORS_MAX = CPU_SETSIZE, NODES_MAX = 64 };

static bool is_set(const char *variable)
{
    return getenv(variable) != NULL;
}

static bool is_false(const char *variable)
{
    const char *const value = getenv(variable);
    return value != NULL && strcasecmp(value, "false") == 0;
}

bool ckpt_cli_threads_settled(void)
{
    return is_false("OMP_PROC_BIND") || is_set("OMP_PLACES") || is_set("GOMP_CPU_AFFINITY");
}

int ckpt_cli_nodes(const ckpt_cli_processors *processors)
{
    int nodes = 0;
    for (int node = 0; node < NODES_MAX; node++) {
        bool found = false;
        for (int i = 0; i < processors->count && !found; i++) {
            char path[300];
            snprintf(path, sizeof path, "%.200s/cpu%d/node%d", processors->cpu, processors->at[i], node);
            found = access(path, F_OK) == 0;
        }
        nodes += found;
    }
    return nodes > 0 ? nodes : 1;
}

/* The lowest of the processors that share a core with `own`, of those that the process may run on: a list like "0,32" or "0-1". */
static int lowest_sibling(const ckpt_cli_processors *p, int own)
{
    char path[300];
    snprintf(path, sizeof path, "%.200s/cpu%d/topology/thread_siblings_list", p->cpu, own);
    FILE *const file = fopen(path, "r");
    int lowest = own, from = 0, to = 0;
    char then = ',';
    while (file != NULL && then == ',' && fscanf(file, "%d", &from) == 1) {
        to = from;
        if (fscanf(file, "%c", &then) == 1 && then == '-') {
            then = fscanf(file, "%d%c", &to, &then) == 2 ? then : '\n';
        }
        for (int i = 0; i < p->count && p->at[i] <= to; i++) {
            lowest = p->at[i] >= from && p->at[i] < lowest ? p->at[i] : lowest;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return lowest;
}

/* One processor of each core, then the rest; or core by core where `all` are used. Returns the number of cores. */
static int in_order(const ckpt_cli_processors *p, bool all, int *order)
{
    int lowest[PROCESSORS_MAX], cores = 0, placed = 0;
    for (int i = 0; i < p->count; i++) {
        lowest[i] = lowest_sibling(p, p->at[i]);
        cores += lowest[i] == p->at[i];
    }
    for (int i = 0; i < p->count; i++) {
        if (lowest[i] == p->at[i]) {
            order[placed++] = p->at[i];
            for (int k = i + 1; all && k < p->count; k++) {
                if (lowest[k] == p->at[i]) {
                    order[placed++] = p->at[k];
                }
            }
        }
    }
    for (int i = 0; !all && i < p->count; i++) {
        if (lowest[i] != p->at[i]) {
            order[placed++] = p->at[i];
        }
    }
    return cores;
}

bool ckpt_cli_places(const ckpt_cli_processors *processors, int threads, int seat, int seats, bool asked, char *text,
                     size_t room)
{
    int order[PROCESSORS_MAX];
    const int count = processors->count;
    const long long wanted = (long long)threads * seats;
    if (wanted < 1 || wanted > count || count > PROCESSORS_MAX || seat < 0 || seat >= seats) {
        return false;
    }
    const int cores = in_order(processors, wanted == count, order);
    if (!asked && wanted != count && wanted != cores) {
        return false;
    }
    size_t used = 0;
    for (int i = 0; i < count && used < room; i++) {
        used +=
            (size_t)snprintf(text + used, room - used, "%s{%d}", i > 0 ? "," : "", order[(seat * threads + i) % count]);
    }
    return used < room;
}

/* Gives whether something has been set that OpenMP must read. What is not bound is so told, and the restarted program
 * need not think again. */
static bool bind_threads(int threads, int seat, int seats)
{
    static char text[PROCESSORS_MAX * 8];
    int at[PROCESSORS_MAX];
    ckpt_cli_processors mine = {.cpu = "/sys/devices/system/cpu", .at = at};
    cpu_set_t mask;
    if (ckpt_cli_threads_settled()) {
        return false;
    }
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        for (int i = 0; i < PROCESSORS_MAX; i++) {
            if (CPU_ISSET((size_t)i, &mask)) {
                at[mine.count++] = i;
            }
        }
    }
    const bool asked = is_set("OMP_PROC_BIND"),
               bound = (asked || ckpt_cli_nodes(&mine) > 1) &&
                       ckpt_cli_places(&mine, threads, seat, seats, asked, text, sizeof text);
    if (!asked && setenv("OMP_PROC_BIND", bound ? "close" : "false", 1) != 0) {
        return false;
    }
    return bound && setenv("OMP_PLACES", text, 1) == 0;
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
