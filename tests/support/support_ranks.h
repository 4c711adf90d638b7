/* Tests with several ranks: a test program that starts itself under mpirun. */
#ifndef CKPT_TESTS_SUPPORT_RANKS_H
#define CKPT_TESTS_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* A ckpt_ranks_lost: "<program>: <line>" on standard error, and exit code 3. */
void ckpt_test_lost_rank(void *program, const char *line);

/* Is this process one of mpirun's? */
bool ckpt_test_is_rank(void);

/* 0: mpirun is there. 77: it is not, which a line says; the program's exit code then. 1 instead of 77 where CI=true. */
int ckpt_test_no_mpirun(void);

/* Run "mpirun -n count program argument" (NULL: none) with one thread for each rank, at most two minutes. What both
 * streams carried goes to `output`, cut to `room` with its terminator. Gives the exit code, 128 + a signal, or 124
 * after two minutes. */
int ckpt_test_mpirun(const char *program, int count, const char *argument, char *output, size_t room);

/* The same, to be 0: else the test fails with the output. */
void ckpt_test_ranks(const char *program, int count, const char *argument);

#endif
