/* Finds libcupti. Looks for NVIDIA's driver and a device first: without a working driver, any call of CUPTI 13.2
 * crashes the process. A library that the caller names is opened without this check, so that tests need no driver. */
#include "cupti/recorder.h"

#ifdef CKPT_HAVE_CUPTI
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/library_search.h"
#include "cupti/cupti_impl.h"

enum {
    OLDEST = 18,     /* CUDA 11.8: the first version whose records all have the layouts of decode.c */
    LAST_PLAIN = 99, /* versions up to 12.9 are counted from 1; later ones are xxyyzz */
    NEWEST = 13      /* the last major version that is known to add fields only at the end of a record */
};

bool ckpt_cupti_driver(void)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != NULL) {
        dlclose(driver);
    }
    return driver != NULL;
}

/* The device files of Linux, WSL and Tegra. A container image may bring libcuda.so.1 (for forward compatibility)
 * without a device. */
static bool device_is_there(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0 || access("/dev/nvmap", F_OK) == 0;
}

/* A libcupti that is loaded already comes first: a program's own profiler and we must use the same. */
static const ckpt_library cupti_library = {
    .name = (const char *const[]){"libcupti.so.13", "libcupti.so.12", "libcupti.so", NULL}, .package = "cuda_cupti"};

static ckpt_code open_library(const char *library, void **handle, ckpt_err *err)
{
    const char *const named = library != NULL ? library : getenv("CKPT_CUPTI");
    if (named != NULL) {
        if (named[0] == '\0') {
            return CKPT_FAIL(err, CKPT_DEVICE, "CUPTI is turned off (CKPT_CUPTI is empty)");
        }
        *handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        return *handle != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_DEVICE, "no CUPTI: %s", dlerror());
    }
    if (!ckpt_cupti_driver()) {
        return CKPT_FAIL(err, CKPT_DEVICE, "no NVIDIA driver here: libcuda.so.1 is not found");
    }
    if (!device_is_there()) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "no NVIDIA GPU here: none of /dev/nvidiactl, /dev/dxg and /dev/nvmap is there");
    }
    *handle = ckpt_library_open(&cupti_library);
    return *handle != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_DEVICE,
                           "no CUPTI here: neither libcupti.so.13 nor libcupti.so.12 is found; it comes with the CUDA "
                           "toolkit and with PyTorch, and CKPT_CUPTI can name it");
}

static ckpt_code resolve(void *handle, ckpt_cupti *cupti, ckpt_err *err)
{
    /* ISO C cannot convert an object pointer to a function pointer. POSIX can, and recommends this form. */
#define RESOLVE(function)                                                                                              \
    *(void **)&cupti->function = dlsym(handle, #function);                                                             \
    if (cupti->function == NULL) {                                                                                     \
        return CKPT_FAIL(err, CKPT_DEVICE, "this libcupti has no " #function);                                         \
    }
    CKPT_CUPTI_FUNCTIONS(RESOLVE)
#undef RESOLVE
    *(void **)&cupti->cuptiSubscribe_v2 = dlsym(handle, "cuptiSubscribe_v2");
    return CKPT_OK;
}

/* Names the version as the toolkit does: up to 12.9 CUPTI counted its versions (cupti_version.h). */
static void name_version(ckpt_cupti *cupti)
{
    static const char *const counted[] = {"11.8", "12.0", "12.2", "12.3", "12.4",  "12.5",
                                          "12.6", "12.7", "12.8", "12.9", "12.9.1"};
    const unsigned v = cupti->version;
    if (v > LAST_PLAIN) {
        snprintf(cupti->name, sizeof cupti->name, v % 100 != 0 ? "CUPTI %u.%u.%u" : "CUPTI %u.%u", v / 10000,
                 v / 100 % 100, v % 100);
    } else if (v >= OLDEST && v - OLDEST < sizeof counted / sizeof counted[0]) {
        snprintf(cupti->name, sizeof cupti->name, "CUPTI %s", counted[v - OLDEST]);
    } else {
        snprintf(cupti->name, sizeof cupti->name, "CUPTI API %u", v);
    }
}

ckpt_code ckpt_cupti_load(const char *library, ckpt_cupti *cupti, ckpt_err *err)
{
    void *handle = NULL;
    *cupti = (ckpt_cupti){.name = "CUPTI"};
    CKPT_TRY(open_library(library, &handle, err));
    CKPT_TRY(resolve(handle, cupti, err));
    const CUptiResult result = cupti->cuptiGetVersion(&cupti->version);
    if (result != CUPTI_SUCCESS) {
        return ckpt_cupti_fail(cupti, result, "asking for its version", "", err);
    }
    name_version(cupti);
    if (cupti->version < OLDEST) {
        return CKPT_FAIL(err, CKPT_DEVICE, "%s is too old: that of CUDA 11.8 or later is needed", cupti->name);
    }
    if (cupti->version > LAST_PLAIN && cupti->version / 10000 != NEWEST) {
        return CKPT_FAIL(err, CKPT_DEVICE, "%s is not known to this program, which reads records of CUPTI up to %d",
                         cupti->name, NEWEST);
    }
    return CKPT_OK;
}

ckpt_code ckpt_cupti_fail(const ckpt_cupti *cupti, CUptiResult result, const char *what, const char *holder,
                          ckpt_err *err)
{
    const char *text = NULL;
    switch ((int)result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return CKPT_FAIL(err, CKPT_DEVICE, "another tool records this process already%s%s: CUPTI serves one at a time",
                         holder[0] != '\0' ? ": " : "", holder);
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "no permission for %s: the NVIDIA driver leaves profiling to administrators; one sets "
                         "NVreg_RestrictProfilingToAdminUsers=0 for its kernel module, or run as root",
                         what);
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return CKPT_FAIL(err, CKPT_DEVICE, "no permission for %s: the hypervisor of this virtual GPU forbids it", what);
    case CUPTI_ERROR_NOT_INITIALIZED:
    case CUPTI_ERROR_UNKNOWN: /* CUPTI's only error without a driver */
        if (!ckpt_cupti_driver()) {
            return CKPT_FAIL(err, CKPT_DEVICE, "no NVIDIA driver here: libcuda.so.1 is not found (%s, %s)", cupti->name,
                             what);
        }
        if (result == CUPTI_ERROR_NOT_INITIALIZED) {
            return CKPT_FAIL(err, CKPT_DEVICE, "%s: the NVIDIA driver is too old for it, or there is no GPU (%s)",
                             cupti->name, what);
        }
        break;
    default: break;
    }
    if (cupti->cuptiGetResultString == NULL || cupti->cuptiGetResultString(result, &text) != CUPTI_SUCCESS ||
        text == NULL) {
        text = "unknown";
    }
    return CKPT_FAIL(err, CKPT_DEVICE, "%s: %s failed: %s (%d)", cupti->name, what, text, (int)result);
}
#endif
