/* How the threads of a program that runs kernels wait, and which processors they run on. */
#ifndef CKPT_PROGRAMS_CLI_SETTLE_H
#define CKPT_PROGRAMS_CLI_SETTLE_H

#include <stdbool.h>
#include <stddef.h>

/* Is it already decided where threads run: by the user, or by ckpt_cli_settle_threads before the restart? */
bool ckpt_cli_threads_settled(void);

/* Limits how long a waiting thread spins before it sleeps (GOMP_SPINCOUNT), and binds threads to processors (OMP_PLACES, OMP_PROC_BIND) where they fill the machine. GNU's OpenMP reads the variables only while it is loaded, so the program is restarted once, as the same process with the same arguments. Call it before anything else has been started. Leaves alone what the user has set: GOMP_SPINCOUNT or OMP_WAIT_POLICY; OMP_PLACES, OMP_PROC_BIND or GOMP_CPU_AFFINITY. Returns if nothing is to be set, or if the program cannot be restarted: it is then only slower. Changes no result.
 *
 *   argv          main's
 *   threads       of a rank's kernels; 0: unknown, none is bound
 *   seat, seats   this rank among those of this host, and how many they are; 0 and 1 for a program alone */
void ckpt_cli_settle_threads(char *const *argv, int threads, int seat, int seats);

/* OMP_PLACES of a rank: a place per processor, the rank's own first. True if they are worth binding to: if the threads of all ranks are as many as the cores, or as the processors; with fewer, other programs may have the same idea of which cores are free, and with more, cores would wait.
 *
 *   cpu                that folder of the system: /sys/devices/system/cpu
 *   processor, count   what the process may run on, ascending
 *   text, room         receives the places; false, too, if there is no room */
bool ckpt_cli_places(const char *cpu, const int *processor, int count, int threads, int seat, int seats, char *text,
                     size_t room);

#endif
