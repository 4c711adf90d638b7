/* Where to look: beside loaded libraries, in folders named by the environment, and in paths relative to both. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "core/base/library_search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From a folder that holds another library of NVIDIA's: that folder; the packages beside it, for wheels; and CUPTI's
 * own folder in a toolkit, seen from lib64 and from targets/x86_64-linux/lib. %s is the package. */
static const char *const beside[] = {
    ".", "../../cu13/lib", "../../%s/lib", "../extras/CUPTI/lib64", "../../../extras/CUPTI/lib64", NULL};
static const char *const in_toolkit[] = {"lib64", "lib", "extras/CUPTI/lib64", NULL};
static const char *const in_wheels[] = {"cu13/lib", "%s/lib", NULL};

static void *open_in(const ckpt_library *library, const char *folder, const char *const *way)
{
    void *handle = NULL;
    for (const char *const *name = library->name; *name != NULL && handle == NULL; name++) {
        for (const char *const *w = way; *w != NULL && handle == NULL; w++) {
            char path[PATH_MAX];
            const char *const package = strstr(*w, "%s");
            const int before = package != NULL ? (int)(package - *w) : (int)strlen(*w);
            const int length =
                snprintf(path, sizeof path, "%s/%.*s%s%s/%s", folder, before, *w,
                         package != NULL ? library->package : "", package != NULL ? package + 2 : "", *name);
            if (length > 0 && (size_t)length < sizeof path) {
                handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            }
        }
    }
    return handle;
}

static void *open_by_name(const ckpt_library *library, int flags)
{
    void *handle = NULL;
    for (const char *const *name = library->name; *name != NULL && handle == NULL; name++) {
        handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL | flags);
    }
    return handle;
}

/* First notes the folders of loaded libraries: nothing may be opened while the loader walks its list. */
typedef struct loaded {
    char folder[4][PATH_MAX];
    int count;
} loaded;

static int note_loaded(struct dl_phdr_info *info, size_t size, void *context)
{
    static const char *const known[] = {"libcudart.so", "libcublasLt.so", "libcudnn.so"};
    loaded *const l = context;
    const char *const slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    for (size_t i = 0; slash != NULL && i < sizeof known / sizeof known[0]; i++) {
        const size_t length = (size_t)(slash - info->dlpi_name);
        const bool fits = length < PATH_MAX && l->count < (int)(sizeof l->folder / sizeof l->folder[0]);
        if (fits && strncmp(slash + 1, known[i], strlen(known[i])) == 0) {
            memcpy(l->folder[l->count], info->dlpi_name, length);
            l->folder[l->count++][length] = '\0';
        }
    }
    return 0;
}

static void *open_beside(const ckpt_library *library)
{
    loaded l = {0};
    void *handle = NULL;
    (void)dl_iterate_phdr(note_loaded, &l);
    for (int i = 0; i < l.count && handle == NULL; i++) {
        handle = open_in(library, l.folder[i], beside);
    }
    return handle;
}

/* $VIRTUAL_ENV/lib/python3.x/site-packages/nvidia, for whatever x there is. */
static void *open_in_environment(const ckpt_library *library, const char *environment)
{
    char path[PATH_MAX];
    void *handle = NULL;
    int length = snprintf(path, sizeof path, "%s/lib", environment);
    DIR *const folder = length > 0 && (size_t)length < sizeof path ? opendir(path) : NULL;
    for (const struct dirent *e = folder != NULL ? readdir(folder) : NULL; e != NULL && handle == NULL;
         e = readdir(folder)) {
        length = snprintf(path, sizeof path, "%s/lib/%s/site-packages/nvidia", environment, e->d_name);
        if (strncmp(e->d_name, "python", 6) == 0 && length > 0 && (size_t)length < sizeof path) {
            handle = open_in(library, path, in_wheels);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return handle;
}

void *ckpt_library_open(const ckpt_library *library)
{
    void *handle = open_by_name(library, RTLD_NOLOAD);
    handle = handle != NULL ? handle : open_beside(library);
    handle = handle != NULL ? handle : open_by_name(library, 0);
    const char *const home[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), getenv("VIRTUAL_ENV"), "/usr/local/cuda"};
    for (int i = 0; i < 4 && handle == NULL; i++) {
        if (home[i] != NULL && home[i][0] != '\0') {
            handle = i == 2 ? open_in_environment(library, home[i]) : open_in(library, home[i], in_toolkit);
        }
    }
    return handle;
}
