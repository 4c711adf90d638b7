/* How long a thread that waits for the others keeps its processor. */
#ifndef CKPT_PROGRAMS_CLI_SETTLE_H
#define CKPT_PROGRAMS_CLI_SETTLE_H

/* Limits how long a waiting thread spins before it sleeps (GOMP_SPINCOUNT). Call it first in the main of a program that runs kernels, with main's argv. GNU's OpenMP reads the variable only while it is loaded, so the program is restarted once, as the same process with the same arguments. Returns if the variable or an OMP_WAIT_POLICY is set, or if the program cannot be restarted: it is then only slower beside other work. Changes no result. */
void ckpt_cli_settle_threads(char *const *argv);

#endif
