/* mpirun, for tests. */
#include "tests/support/support_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support_paths.h"
#include "tests/support/support_test.h"

void ckpt_test_lost_rank(void *program, const char *line)
{
    dprintf(STDERR_FILENO, "%s: %s\n", (const char *)program, line);
    _exit(3);
}

bool ckpt_test_is_rank(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL;
}

int ckpt_test_no_mpirun(void)
{
    const bool built = access(ckpt_bin_file("../lib/libckpt_mpi.so"), F_OK) == 0;
    if (built && system("command -v mpirun >/dev/null") == 0) {
        return 0;
    }
    const char *const ci = getenv("CI");
    const bool must = ci != NULL && strcmp(ci, "true") == 0;
    printf("%s: %s\n", must ? "FAILED" : "skipped",
           built ? "no mpirun here (Debian's package openmpi-bin)" : "programs without MPI");
    return must ? 1 : 77;
}

static void start(const char *program, const char *number, const char *argument, int output)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close(output);
    execlp("timeout", "timeout", "-k", "5", "120", "mpirun", "--oversubscribe", "--bind-to", "none", "-n", number,
           program, argument, (char *)NULL);
    _exit(127);
}

int ckpt_test_mpirun(const char *program, int count, const char *argument, char *output, size_t room)
{
    char number[16], drop[4096];
    int pipes[2], status = 0;
    size_t used = 0;
    ssize_t got = 0;
    snprintf(number, sizeof number, "%d", count);
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipes[0]);
        start(program, number, argument, pipes[1]);
    }
    close(pipes[1]);
    do {
        const bool full = used + 1 >= room;
        got = read(pipes[0], full ? drop : output + used, full ? sizeof drop : room - 1 - used);
        used += full || got < 0 ? 0 : (size_t)got;
    } while (got > 0);
    output[used] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ckpt_test_ranks(const char *program, int count, const char *argument)
{
    char output[16384];
    const int code = ckpt_test_mpirun(program, count, argument, output, sizeof output);
    CHECK(code == 0, "mpirun -n %d %s %s: exit %d:\n%s", count, program, argument == NULL ? "" : argument, code,
          output);
}
