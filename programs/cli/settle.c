/* By default GNU's OpenMP spins for milliseconds at every barrier. If another program shares the processors, a spinning thread takes the time that the thread it waits for needs. Kernels that follow each other closely need only a short spin. */
#include "programs/cli/settle.h"

#include <stdlib.h>
#include <unistd.h>

void ckpt_cli_settle_threads(char *const *argv)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL || argv == NULL || argv[0] == NULL) {
        return;
    }
    /* CKPT_SETTLED tells ckpt-profile, which starts other programs, that the user did not ask for this */
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0 && setenv("CKPT_SETTLED", "1", 1) == 0) {
        execv("/proc/self/exe", argv);
    }
}
