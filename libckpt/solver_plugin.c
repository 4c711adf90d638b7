#include "libckpt/solver_plugin.h"

#include <dlfcn.h>
#include <string.h>

#include "include/ckpt.h"

ckpt_code ckpt_solver_open(const char *name, const ckpt_solver **solver, void **library, ckpt_err *err)
{
    if (strcmp(name, "glpk") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found solver '%.80s', wanted glpk or none", name);
    }
    void *const opened = dlopen("libckpt_glpk.so", RTLD_NOW | RTLD_LOCAL);
    const ckpt_solver_plugin_entry *const entry = opened != NULL ? dlsym(opened, "ckpt_solver_plugin") : NULL;
    if (entry == NULL || strcmp(entry->version, CKPT_VERSION) != 0) {
        const ckpt_code code =
            entry == NULL ? CKPT_FAIL(err, CKPT_DEVICE, "the solver glpk cannot be loaded: %.300s", dlerror())
                          : CKPT_FAIL(err, CKPT_DEVICE, "found libckpt_glpk.so of version %.40s, wanted " CKPT_VERSION,
                                      entry->version);
        ckpt_solver_close(opened);
        return code;
    }
    *solver = entry->solver;
    *library = opened;
    return CKPT_OK;
}

void ckpt_solver_close(void *library)
{
    if (library != NULL) {
        dlclose(library);
    }
}
