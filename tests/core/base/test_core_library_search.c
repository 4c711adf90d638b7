/* Where ckpt_library_open finds a library: folders as the CUDA toolkit and wheels make them, with copies of a library
 * that is at hand in them, under names that no machine has. Each case is a process of its own, which has nothing of
 * NVIDIA's loaded but what the case says. */
#define _GNU_SOURCE /* dladdr, dlinfo, mkdtemp */
#include "core/base/library_search.h"

#include <dlfcn.h>
#include <jansson.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support_test.h"

static const ckpt_library wanted = {.name = (const char *const[]){"libckpt_wanted.so.13", "libckpt_wanted.so.12", NULL},
                                    .package = "wanted_package"};

enum { FILES = 4, ROOM = 4 * PATH_MAX };

/* Files are below a folder of the case's own; found: NULL when nothing is to be. */
static const struct {
    const char *what;
    const char *loaded; /* by this process, before it looks */
    const char *there[FILES];
    const char *variable, *value; /* of the environment: a folder */
    const char *found;
} cases[] = {
    {"nothing", NULL, {NULL}, NULL, NULL, NULL},
    {"a toolkit",
     "cuda/lib64/libcudart.so.13",
     {"cuda/extras/CUPTI/lib64/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "cuda/extras/CUPTI/lib64/libckpt_wanted.so.13"},
    {"a toolkit of several targets",
     "cuda/targets/x86_64-linux/lib/libcublasLt.so.13",
     {"cuda/extras/CUPTI/lib64/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "cuda/extras/CUPTI/lib64/libckpt_wanted.so.13"},
    {"beside the other, of an older version",
     "cuda/lib64/libcudart.so.12",
     {"cuda/lib64/libckpt_wanted.so.12"},
     NULL,
     NULL,
     "cuda/lib64/libckpt_wanted.so.12"},
    {"wheels of CUDA 13",
     "nvidia/cu13/lib/libcudart.so.13",
     {"nvidia/cu13/lib/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "nvidia/cu13/lib/libckpt_wanted.so.13"},
    {"wheels of CUDA 13, a package of its own",
     "nvidia/cu13/lib/libcublasLt.so.13",
     {"nvidia/wanted_package/lib/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "nvidia/wanted_package/lib/libckpt_wanted.so.13"},
    {"only cuDNN's wheel is loaded",
     "nvidia/cudnn/lib/libcudnn.so.9",
     {"nvidia/cu13/lib/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "nvidia/cu13/lib/libckpt_wanted.so.13"},
    {"wheels of CUDA 12",
     "nvidia/cublas/lib/libcublasLt.so.12",
     {"nvidia/wanted_package/lib/libckpt_wanted.so.12"},
     NULL,
     NULL,
     "nvidia/wanted_package/lib/libckpt_wanted.so.12"},
    {"both versions",
     "nvidia/cudnn/lib/libcudnn.so.9",
     {"nvidia/wanted_package/lib/libckpt_wanted.so.12", "nvidia/cu13/lib/libckpt_wanted.so.13"},
     NULL,
     NULL,
     "nvidia/cu13/lib/libckpt_wanted.so.13"},
    {"another library is loaded",
     "nvidia/other/lib/libother.so.13",
     {"nvidia/other/lib/libckpt_wanted.so.13"},
     NULL,
     NULL,
     NULL},
    {"CUDA_HOME",
     NULL,
     {"home/extras/CUPTI/lib64/libckpt_wanted.so.13"},
     "CUDA_HOME",
     "home",
     "home/extras/CUPTI/lib64/libckpt_wanted.so.13"},
    {"CUDA_PATH", NULL, {"home/lib/libckpt_wanted.so.12"}, "CUDA_PATH", "home", "home/lib/libckpt_wanted.so.12"},
    {"an environment of Python",
     NULL,
     {"env/lib/python3.14/site-packages/nvidia/cu13/lib/libckpt_wanted.so.13"},
     "VIRTUAL_ENV",
     "env",
     "env/lib/python3.14/site-packages/nvidia/cu13/lib/libckpt_wanted.so.13"},
    {"an environment with older wheels",
     NULL,
     {"env/lib/python3.9/site-packages/nvidia/wanted_package/lib/libckpt_wanted.so.12"},
     "VIRTUAL_ENV",
     "env",
     "env/lib/python3.9/site-packages/nvidia/wanted_package/lib/libckpt_wanted.so.12"},
    {"what is loaded goes before the environment",
     "nvidia/cu13/lib/libcudart.so.13",
     {"nvidia/cu13/lib/libckpt_wanted.so.12", "home/lib64/libckpt_wanted.so.13"},
     "CUDA_HOME",
     "home",
     "nvidia/cu13/lib/libckpt_wanted.so.12"},
    {"a file that is no library",
     "nvidia/cu13/lib/libcudart.so.13",
     {"nvidia/cu13/lib/libckpt_wanted.so.13/folder"},
     NULL,
     NULL,
     NULL},
    {"empty variables", NULL, {"lib64/libckpt_wanted.so.13"}, "CUDA_HOME", "", NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A copy of libjansson, with the folders above it. False: it cannot be made. */
static bool allocation(const char *root, const char *name)
{
    char path[ROOM], bytes[1 << 16];
    Dl_info info;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    FILE *const from = dladdr((void *)(uintptr_t)&json_loads, &info) != 0 ? fopen(info.dli_fname, "rb") : NULL;
    FILE *const to = fopen(path, "wb");
    bool good = from != NULL && to != NULL;
    for (size_t n = 1; good && n > 0;) {
        n = fread(bytes, 1, sizeof bytes, from);
        good = fwrite(bytes, 1, n, to) == n;
    }
    good = from != NULL && fclose(from) == 0 && good;
    return to != NULL && fclose(to) == 0 && good;
}

/* In a process of its own: 0 when the case is as it should be. */
static int look(int i, const char *root)
{
    char path[ROOM];
    (void)unsetenv("CUDA_HOME");
    (void)unsetenv("CUDA_PATH");
    (void)unsetenv("VIRTUAL_ENV");
    for (int k = 0; k < FILES && cases[i].there[k] != NULL; k++) {
        if (!allocation(root, cases[i].there[k])) {
            return 2;
        }
    }
    if (cases[i].loaded != NULL) {
        snprintf(path, sizeof path, "%s/%s", root, cases[i].loaded);
        if (!allocation(root, cases[i].loaded) || dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
            return 2;
        }
    }
    if (cases[i].variable != NULL) {
        snprintf(path, sizeof path, "%s/%s", root, cases[i].value);
        (void)setenv(cases[i].variable, cases[i].value[0] != '\0' ? path : "", 1);
    }
    void *const handle = ckpt_library_open(&wanted), *const recomputed = ckpt_library_open(&wanted);
    struct link_map *map = NULL;
    char found[PATH_MAX] = "";
    if (handle != NULL && (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || realpath(map->l_name, found) == NULL)) {
        return 2;
    }
    snprintf(path, sizeof path, "%s/%s", root, cases[i].found != NULL ? cases[i].found : "");
    const bool right = strcmp(found, cases[i].found != NULL ? path : "") == 0 && recomputed == handle;
    if (!right) {
        fprintf(stderr, "%s: found \"%s\", wanted \"%s\"\n", cases[i].what, found,
                cases[i].found != NULL ? path : "nothing");
    }
    return right ? 0 : 1;
}

static void remove_all(const char *root)
{
    const pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-r", root, (char *)NULL);
        _exit(1);
    }
    (void)waitpid(child, NULL, 0);
}

static void allocations(void **state)
{
    const char *const given = getenv("TMPDIR");
    int wrong = 0;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char root[PATH_MAX];
        snprintf(root, sizeof root, "%s/ckpt_library_XXXXXX", given != NULL ? given : "/tmp");
        assert_non_null(mkdtemp(root));
        const pid_t child = fork();
        if (child == 0) {
            _exit(look(i, root));
        }
        int code = -1;
        assert_true(child > 0 && waitpid(child, &code, 0) == child);
        remove_all(root);
        if (code != 0) {
            print_error("case \"%s\": code %d\n", cases[i].what, code);
            wrong++;
        }
    }
    CHECK(wrong == 0, "%d of %d cases, listed above", wrong, (int)CASES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
