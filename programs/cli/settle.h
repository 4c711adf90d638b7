/* How long a thread that waits for the others keeps its processor. */
#ifndef CKPT_PROGRAMS_CLI_SETTLE_H
#define CKPT_PROGRAMS_CLI_SETTLE_H

/* Call first in the main of a program that runs kernels, with main's argv: restarts the program once, as the same
 * process with the same arguments, with a short spin before a waiting thread sleeps (GOMP_SPINCOUNT), because GNU's
 * OpenMP reads that only while it is loaded. Returns when there is nothing to do: the variable is set, the user chose
 * an OMP_WAIT_POLICY, or the program cannot be restarted (then all is as before, only slower beside other work).
 * Changes no result. */
void ckpt_cli_settle_threads(char *const *argv);

#endif
