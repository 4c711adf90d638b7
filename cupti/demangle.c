/* The C++ library is opened at run time, because nothing else of ours needs it. Without it names stay mangled. Source
 * of the function: Itanium C++ ABI, section 3.4, abi::__cxa_demangle. */
#include "cupti/demangle.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef char *demangle_function(const char *name, char *room, size_t *length, int *status);

static demangle_function *find_function(void)
{
    static demangle_function *function;
    static bool looked;
    if (!looked) {
        void *const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
        if (library != NULL) {
            *(void **)&function = dlsym(library, "__cxa_demangle");
        }
        looked = true;
    }
    return function;
}

const char *ckpt_demangle(const char *name, ckpt_arena *out)
{
    demangle_function *const function = strncmp(name, "_Z", 2) == 0 ? find_function() : NULL;
    int status = -1;
    char *const found = function != NULL ? function(name, NULL, NULL, &status) : NULL; /* the C library's malloc */
    const char *const kept = found != NULL && status == 0 ? ckpt_arena_text(out, found) : name;
    free(found);
    return kept;
}
