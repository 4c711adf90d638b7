/* A double of libcuda for cuDNN's attention, which is compiled when a plan is made and then handed to the driver: it
 * takes the code and runs nothing. It says that there is no device, as CUDA does where there is no driver. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* found by name; cuda.h would need the toolkit */

enum { SUCCESS = 0, NO_DEVICE = 100 };

static int something; /* what every handle points at */

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return NO_DEVICE;
}

int cuGetErrorString(int code, const char **text)
{
    *text = code == SUCCESS ? "no error" : "no device";
    return SUCCESS;
}

int cuLibraryLoadData(void **library, const void *code, void *options, void **values, unsigned count,
                      void *library_options, void **library_values, unsigned library_count)
{
    (void)code;
    (void)options;
    (void)values;
    (void)count;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    *library = &something;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library;
    (void)name;
    *kernel = &something;
    return SUCCESS;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    (void)attribute;
    (void)value;
    (void)kernel;
    (void)device;
    return SUCCESS;
}

/* What else cuDNN looks for before it compiles anything. */
#define REFUSED(name)                                                                                                  \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return NO_DEVICE;                                                                                              \
    }
REFUSED(cuGetErrorName)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuDriverGetVersion)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuDeviceGet)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuKernelGetAttribute)
REFUSED(cuKernelGetFunction)
REFUSED(cuOccupancyMaxPotentialClusterSize)
