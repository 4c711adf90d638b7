/* Opens devices by name and binds nodes to a device's kernels. This file holds what all kinds of device have in common;
 * ckpt_device_api is the rest. */
#include "kernels/device.h"

#ifdef CKPT_HAVE_CUDA
#include <dlfcn.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "core/base/library_search.h"
#include "core/base/memory.h"
#include "ops/lowering/network.h"
#include "ops/widened.h"

/* The index of a CUDA device: "cuda" is 0, "cuda:3" is 3; -1: another name. */
static int cuda_index(const char *name)
{
    if (strcmp(name, "cuda") == 0) {
        return 0;
    }
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9') {
        return -1;
    }
    char *end = NULL;
    const long index = strtol(name + 5, &end, 10);
    return *end == '\0' && index < 1024 ? (int)index : -1;
}

ckpt_code ckpt_device_is_gpu(const char *name, bool *gpu, ckpt_err *err)
{
    *gpu = cuda_index(name) >= 0;
    return *gpu || strcmp(name, "cpu") == 0
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "no such device: found \"%s\", wanted \"cpu\" or \"cuda:0\"", name);
}

#ifdef CKPT_HAVE_CUDA
/* The CUDA device is a library of its own, libckpt_cuda.so, found by the program's run path and loaded at its first
 * use: CUDA's libraries take a gigabyte of address space and 160 MB of memory, which a process on the CPU does not
 * need. It stays loaded, because CUDA's libraries do not work after closing. It needs these, by the names it was linked
 * with: */
static const ckpt_library cuda_needs[] = {
    {.name = (const char *const[]){"libcudart.so.13", NULL}, .package = "cuda_runtime"},
    {.name = (const char *const[]){"libcublasLt.so.13", NULL}, .package = "cublas"},
    {.name = (const char *const[]){"libcudnn.so.9", NULL}, .package = "cudnn"},
};

static ckpt_code load_cuda(int index, const ckpt_device_api **api, ckpt_err *err)
{
    void *library = dlopen("libckpt_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (library ==
        NULL) { /* libraries it needs may be outside the loader's path; once they are loaded, their names are enough */
        for (size_t i = 0; i < sizeof cuda_needs / sizeof cuda_needs[0]; i++) {
            (void)ckpt_library_open(&cuda_needs[i]);
        }
        library = dlopen("libckpt_cuda.so", RTLD_NOW | RTLD_LOCAL);
    }
    const void *const found = library != NULL ? dlsym(library, "ckpt_device_cuda") : NULL;
    if (found == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: cannot load the library of the CUDA device: %s", index,
                         dlerror());
    }
    *api = found;
    return CKPT_OK;
}
#endif

ckpt_code ckpt_device_open(const char *name, int threads, ckpt_device **device, ckpt_err *err)
{
    bool gpu = false;
    if (threads < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "device %s: found %d threads, wanted at least 1", name, threads);
    }
    CKPT_TRY(ckpt_device_is_gpu(name, &gpu, err));
    if (!gpu) {
        return ckpt_device_cpu.open(0, threads, device, err);
    }
    const int index = cuda_index(name);
#ifdef CKPT_HAVE_CUDA
    const ckpt_device_api *api = NULL;
    CKPT_TRY(load_cuda(index, &api, err));
    return api->open(index, threads, device, err);
#else
    return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: this build has no CUDA (configure with CKPT_CUDA=ON)", index);
#endif
}

void ckpt_device_close(ckpt_device *device)
{
    if (device != NULL) {
        device->api->close(device);
    }
}

ckpt_code ckpt_kernel_prepare(const ckpt_kernel *kernel, void *context, const ckpt_node *node,
                              ckpt_bytes forward_workspace, ckpt_bytes backward_workspace, const char *choice,
                              void **state, ckpt_err *err)
{
    *state = NULL;
    if (kernel->state_bytes == 0) {
        return CKPT_OK;
    }
    void *const made = ckpt_memory_get(kernel->state_bytes);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for layer %s", kernel->state_bytes, node->name);
    }
    const ckpt_code code = kernel->prepare(made, context, node, forward_workspace, backward_workspace, choice, err);
    if (code != CKPT_OK) {
        ckpt_kernel_release(kernel, made);
        return code;
    }
    *state = made;
    return CKPT_OK;
}

void ckpt_kernel_release(const ckpt_kernel *kernel, void *state)
{
    if (state != NULL && kernel->release != NULL) {
        kernel->release(state);
    }
    ckpt_memory_put(state);
}

static ckpt_code check_fit(const ckpt_device *device, const ckpt_node *node, const char *direction, ckpt_bytes given,
                           ckpt_bytes needed, ckpt_err *err)
{
    if (given >= 0 && needed > given) {
        return CKPT_FAIL(err, CKPT_DEVICE, "layer %s (%s): %s on %s needs %lld bytes of workspace, the plan gives %lld",
                         node->name, node->op->name, direction, device->api->kind, (long long)needed, (long long)given);
    }
    return CKPT_OK;
}

/* After `prepare` has found nothing that fits: reports the bytes it uses without limits. */
static ckpt_code explain_misfit(const ckpt_device *device, const ckpt_kernel *kernel, const ckpt_node *node,
                                ckpt_bytes forward, ckpt_bytes backward, ckpt_err *err)
{
    void *state = NULL;
    if ((forward < 0 && backward < 0) ||
        ckpt_kernel_prepare(kernel, device->context, node, -1, -1, NULL, &state, NULL) != CKPT_OK) {
        return CKPT_DEVICE;
    }
    ckpt_bytes forward_used = 0, backward_used = 0;
    if (kernel->workspace != NULL) {
        kernel->workspace(node, state, &forward_used, &backward_used);
    }
    ckpt_kernel_release(kernel, state);
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "layer %s (%s): no algorithm fits the workspace: given %lld bytes forward and %lld backward, the "
                     "fastest use %lld and %lld",
                     node->name, node->op->name, (long long)forward, (long long)backward, (long long)forward_used,
                     (long long)backward_used);
}

ckpt_code ckpt_device_carry(void *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier, void **self,
                            ckpt_err *err)
{
    ckpt_device *const own = device;
    if (own->api->carry == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device %s: messages are in the host's memory", own->api->kind);
    }
    return own->api->carry(own, group, carrier, self, err);
}

const ckpt_kernel *ckpt_kernel_find(const ckpt_kernel *const *table, const char *op)
{
    while (*table != NULL && strcmp((*table)->op, op) != 0) {
        table++;
    }
    return *table;
}

const ckpt_kernel *ckpt_device_find(const ckpt_device *device, const char *op)
{
    return ckpt_kernel_find(device->api->kernels, op);
}

/* A choice from a file is valid if the state that was made from it names the same choice. */
static ckpt_code check_choice(const ckpt_device *device, const ckpt_bound_kernel *bound, const char *choice,
                              ckpt_err *err)
{
    const char *const found = ckpt_device_choice(bound);
    if (choice == NULL || strcmp(choice, found) == 0) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_DEVICE, "wanted algorithms \"%.120s\", device %s with %.60s has \"%.120s\"", choice,
                     device->api->kind, device->api->libraries(device), found);
}

ckpt_code ckpt_device_bind(ckpt_device *device, const ckpt_node *node, ckpt_bytes forward_workspace,
                           ckpt_bytes backward_workspace, const char *choice, ckpt_bound_kernel *bound, ckpt_err *err)
{
    const ckpt_kernel *const own = ckpt_device_find(device, node->op->name);
    const ckpt_kernel *const kernel = own != NULL && ckpt_node_widens(node) ? device->api->widened : own;
    if (kernel == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "layer %s: device %s has no kernel for op \"%s\"", node->name,
                         device->api->kind, node->op->name);
    }
    ckpt_bound_kernel made = {.node = node, .kernel = kernel};
    ckpt_code code = ckpt_kernel_prepare(kernel, device->context, node, forward_workspace, backward_workspace, choice,
                                         &made.state, err);
    if (code != CKPT_OK) {
        ckpt_err_at(err, "layer %s (%s)", node->name, node->op->name);
        return code == CKPT_DEVICE && choice == NULL
                   ? explain_misfit(device, kernel, node, forward_workspace, backward_workspace, err)
                   : code;
    }
    if (kernel->workspace != NULL) {
        kernel->workspace(node, made.state, &made.forward_workspace_bytes, &made.backward_workspace_bytes);
    }
    code = check_choice(device, &made, choice, err);
    if (code != CKPT_OK) {
        ckpt_err_at(err, "layer %s (%s)", node->name, node->op->name);
    } else {
        code = check_fit(device, node, "forward", forward_workspace, made.forward_workspace_bytes, err);
    }
    if (code == CKPT_OK) {
        code = check_fit(device, node, "backward", backward_workspace, made.backward_workspace_bytes, err);
    }
    if (code != CKPT_OK) {
        ckpt_device_unbind(&made);
        return code;
    }
    *bound = made;
    return CKPT_OK;
}

void ckpt_device_unbind(ckpt_bound_kernel *bound)
{
    if (bound->kernel != NULL) {
        ckpt_kernel_release(bound->kernel, bound->state);
    }
    *bound = (ckpt_bound_kernel){0};
}

const char *ckpt_device_remark(const ckpt_bound_kernel *bound)
{
    return bound->kernel != NULL && bound->kernel->remark != NULL ? bound->kernel->remark(bound->state) : "";
}

const char *ckpt_device_choice(const ckpt_bound_kernel *bound)
{
    return bound->kernel != NULL && bound->kernel->choice != NULL ? bound->kernel->choice(bound->state) : "";
}

static ckpt_kernel_args complete(const ckpt_device *device, const ckpt_bound_kernel *bound,
                                 const ckpt_kernel_args *args)
{
    ckpt_kernel_args own = *args;
    own.context = device->context;
    own.node = bound->node;
    own.state = bound->state;
    return own;
}

/* A plan may be from a profile of another machine. */
static ckpt_code check_measured(const ckpt_bound_kernel *bound, const ckpt_kernel_args *args, ckpt_bytes staging,
                                ckpt_err *err)
{
    if (args->way == NULL || !args->way->measured) {
        return CKPT_OK;
    }
    const ckpt_bytes needed = bound->kernel->way_workspace(bound->node, bound->state, args->way);
    if (needed == CKPT_WAY_ABSENT) {
        return CKPT_FAIL(
            err, CKPT_DEVICE,
            "layer %s (%s): the plan wants the variant \"%s\", which this device lacks: profile and plan again",
            bound->node->name, bound->node->op->name, args->way->name);
    }
    if (args->workspace_bytes < staging + needed) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "layer %s (%s): the variant \"%s\" needs %lld bytes of workspace, the plan gives %lld: "
                         "profile and plan again",
                         bound->node->name, bound->node->op->name, args->way->name, (long long)(staging + needed),
                         (long long)args->workspace_bytes);
    }
    return CKPT_OK;
}

ckpt_code ckpt_device_forward(ckpt_device *device, const ckpt_bound_kernel *bound, const ckpt_kernel_args *args,
                              ckpt_err *err)
{
    const ckpt_kernel_args own = complete(device, bound, args);
    CKPT_TRY(check_measured(bound, args, 0, err));
    CKPT_TRY_WHILE(err, bound->kernel->forward(&own, err), "running layer %s", bound->node->name);
    return CKPT_OK;
}

ckpt_code ckpt_device_tune(ckpt_device *device, ckpt_bound_kernel *bound, const ckpt_kernel_args *args, bool backward,
                           ckpt_tuning *tuning, ckpt_err *err)
{
    if (bound->kernel->tune == NULL) {
        return CKPT_OK;
    }
    const ckpt_kernel_args own = complete(device, bound, args);
    CKPT_TRY_WHILE(err, bound->kernel->tune(&own, backward, tuning, err), "timing algorithms of layer %s",
                   bound->node->name);
    if (bound->kernel->workspace != NULL) {
        bound->kernel->workspace(bound->node, bound->state, &bound->forward_workspace_bytes,
                                 &bound->backward_workspace_bytes);
    }
    return CKPT_OK;
}

/* Takes `bytes` from the start of the rest of the workspace. */
static void *take_workspace(ckpt_kernel_args *args, ckpt_bytes bytes)
{
    const ckpt_bytes step = ckpt_round_up(bytes, CKPT_ALIGN);
    void *const piece = args->workspace;
    args->workspace = (char *)args->workspace + step;
    args->workspace_bytes -= step;
    return piece;
}

/* The kernel overwrites staged copies, which are then added: inputs first, then parameters. */
static ckpt_code backward_staged(ckpt_device *device, const ckpt_bound_kernel *bound, const ckpt_kernel_args *args,
                                 ckpt_bytes staging, ckpt_err *err)
{
    const ckpt_node *const node = bound->node;
    const bool states = args->way != NULL && args->way->workspace_bytes >= 0;
    const bool measured = args->way != NULL && args->way->measured;
    const ckpt_bytes needed = states     ? args->way->workspace_bytes
                              : measured ? 0 /* checked before */
                                         : bound->backward_workspace_bytes;
    if (args->workspace_bytes < staging + needed) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "layer %s (%s): backward needs %lld bytes of workspace, %lld of them to stage "
                         "gradients that are added; found %lld",
                         node->name, node->op->name, (long long)(staging + needed), (long long)staging,
                         (long long)args->workspace_bytes);
    }
    void *grad_in[CKPT_IN_MAX] = {0};
    float *grad_param[CKPT_PARAM_MAX] = {0};
    ckpt_kernel_args own = complete(device, bound, args);
    own.grad_in = grad_in;
    own.grad_param = grad_param;
    own.grad_in_adds = own.grad_param_adds = 0;
    for (int k = 0; k < node->in_count; k++) {
        const bool adds = (args->grad_in_adds >> k & 1) != 0;
        void *const piece = adds ? take_workspace(&own, ckpt_tensor_bytes(&node->in[k])) : NULL;
        grad_in[k] = adds && args->grad_in[k] != NULL ? piece : args->grad_in[k];
    }
    for (int k = 0; k < node->param_count; k++) {
        const bool adds = (args->grad_param_adds >> k & 1) != 0;
        void *const piece = adds ? take_workspace(&own, ckpt_param_bytes(&node->param[k])) : NULL;
        grad_param[k] = adds && args->grad_param[k] != NULL ? piece : args->grad_param[k];
    }
    CKPT_TRY_WHILE(err, bound->kernel->backward(&own, err), "running layer %s backward", node->name);
    for (int k = 0; k < node->in_count; k++) {
        if (grad_in[k] != args->grad_in[k]) {
            CKPT_TRY(device->api->add(device, node->in[k].dtype, args->grad_in[k], grad_in[k],
                                      ckpt_tensor_room(&node->in[k]), err));
        }
    }
    for (int k = 0; k < node->param_count; k++) {
        if (grad_param[k] != args->grad_param[k]) {
            CKPT_TRY(device->api->add(device, CKPT_FLOAT32, args->grad_param[k], grad_param[k],
                                      ckpt_shape_count(&node->param[k].tensor.shape), err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_device_backward(ckpt_device *device, const ckpt_bound_kernel *bound, const ckpt_kernel_args *args,
                               ckpt_err *err)
{
    const ckpt_bytes staging = ckpt_staging_bytes(bound->node, args->grad_in_adds, args->grad_param_adds);
    CKPT_TRY(check_measured(bound, args, staging, err));
    if (staging > 0) {
        return backward_staged(device, bound, args, staging, err);
    }
    const ckpt_kernel_args own = complete(device, bound, args);
    CKPT_TRY_WHILE(err, bound->kernel->backward(&own, err), "running layer %s backward", bound->node->name);
    return CKPT_OK;
}

static const ckpt_optimizer_kernel *find_kernel(const ckpt_device *device, const char *name)
{
    const ckpt_optimizer_kernel *const *kernel = device->api->optimizers;
    while (*kernel != NULL && strcmp((*kernel)->optimizer, name) != 0) {
        kernel++;
    }
    return *kernel;
}

ckpt_code ckpt_device_update(ckpt_device *device, const ckpt_optimizer *optimizer, const ckpt_numbers *numbers,
                             ckpt_update_args *args, int count, ckpt_err *err)
{
    const ckpt_optimizer_kernel *const kernel = find_kernel(device, optimizer->name);
    if (kernel == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device %s has no kernel for optimizer \"%s\"", device->api->kind,
                         optimizer->name);
    }
    for (int i = 0; i < count; i++) {
        args[i].context = device->context;
        args[i].threads = device->threads;
    }
    if (count == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(kernel->update(args, count, numbers, err));
    return args[0].average == NULL ? CKPT_OK : find_kernel(device, "average")->update(args, count, numbers, err);
}
