/* How the threads of a program that runs kernels wait, and which processors they run on. */
#ifndef CKPT_PROGRAMS_CLI_SETTLE_H
#define CKPT_PROGRAMS_CLI_SETTLE_H

#include <stdbool.h>
#include <stddef.h>

/* Is it already decided where threads run: by the user, or by ckpt_cli_settle_threads before the restart? */
bool ckpt_cli_threads_settled(void);

/* Limits how long a waiting thread spins before it sleeps (GOMP_SPINCOUNT). And binds threads to processors (OMP_PLACES, OMP_PROC_BIND) where the user sets OMP_PROC_BIND without saying where to, and where they fill a machine that has its memory in several nodes: on any other a bound thread gains nothing, and cannot leave a processor that another program takes. GNU's OpenMP reads the variables only while it is loaded, so the program is restarted once, as the same process with the same arguments. Call it before anything else has been started. Leaves alone what the user has set: GOMP_SPINCOUNT or OMP_WAIT_POLICY; OMP_PLACES, GOMP_CPU_AFFINITY or OMP_PROC_BIND=false. Returns if nothing is to be set, or if the program cannot be restarted: it is then only slower. Changes no result.
 *
 *   argv          main's
 *   threads       of a rank's kernels; 0: unknown, none is bound
 *   seat, seats   this rank among those of this host, and how many they are; 0 and 1 for a program alone */
void ckpt_cli_settle_threads(char *const *argv, int threads, int seat, int seats);

/* What the process may run on. */
typedef struct ckpt_cli_processors {
    const char *cpu; /* that folder of the system: /sys/devices/system/cpu */
    const int *at;   /* ascending */
    int count;
} ckpt_cli_processors;

/* In how many nodes of memory they are; 1 if the system does not say. */
int ckpt_cli_nodes(const ckpt_cli_processors *processors);

/* OMP_PLACES of a rank: a place per processor, the rank's own first, one of each core before its neighbours. True if there are as many processors as threads of all ranks; unless `asked` also only if they fill the cores, or the processors: with fewer threads other programs may have the same idea of which cores are free.
 *
 *   text, room   receives the places; false, too, if there is no room */
bool ckpt_cli_places(const ckpt_cli_processors *processors, int threads, int seat, int seats, bool asked, char *text,
                     size_t room);

#endif
