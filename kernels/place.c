/* The affinity mask of one thread, in OpenMP's places. A mask that the system refuses changes no result. */
/* sched_setaffinity is not in POSIX 2008. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "kernels/place.h"

#include <omp.h>
#include <sched.h>

#include "core/base/memory.h"

static void run_in(int places)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int p = 0; p < places; p++) {
        const int count = omp_get_place_num_procs(p);
        int *const processor = ckpt_memory_get(((size_t)count + 1) * sizeof *processor);
        if (processor == NULL) {
            return;
        }
        omp_get_place_proc_ids(p, processor);
        for (int i = 0; i < count; i++) {
            CPU_SET((size_t)processor[i], &set); /* beyond CPU_SETSIZE: ignored */
        }
        ckpt_memory_put(processor);
    }
    if (CPU_COUNT(&set) > 0) {
        (void)sched_setaffinity(0, sizeof set, &set);
    }
}

static int places(void)
{
    return omp_get_proc_bind() != omp_proc_bind_false ? omp_get_num_places() : 0;
}

void ckpt_place_take(void)
{
    run_in(places() > 0 ? 1 : 0);
}

void ckpt_place_leave(void)
{
    run_in(places());
}
