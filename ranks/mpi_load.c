/* Opens the library that calls MPI, when there are several ranks. */
#include "ranks/ranks_impl.h"

#ifdef CKPT_HAVE_MPI
#include <dlfcn.h>
#include <stdlib.h>

/* libckpt_mpi.so is found by the program's run path. Open MPI's components look up names of libmpi, so these must be
 * global ("Dynamically loading libmpi at runtime" in its documentation). Where MPI waits by itself, at its start and
 * end, it must let others compute: there may be more ranks than processors. */
ckpt_code ckpt_mpi_load(const ckpt_mpi_api **api, ckpt_err *err)
{
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    void *const library = dlopen("libckpt_mpi.so", RTLD_NOW | RTLD_GLOBAL);
    const void *const found = library != NULL ? dlsym(library, "ckpt_mpi") : NULL;
    if (found == NULL) {
        return CKPT_FAIL(
            err, CKPT_DEVICE,
            "several ranks need MPI (Debian's package openmpi-bin, and ckpt-mpi), which cannot be loaded: %s",
            dlerror());
    }
    *api = found;
    return CKPT_OK;
}
#else
ckpt_code ckpt_mpi_load(const ckpt_mpi_api **api, ckpt_err *err)
{
    (void)api;
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "several ranks need MPI, and this build has none (Debian's package libopenmpi-dev; configure with "
                     "CKPT_MPI=ON)");
}
#endif
