/* Devices by name, and nodes bound to a device's kernels. What is common to all kinds of device is here; what a
 * kind does is behind its ckpt_device_api. */
#include "kernels/device.h"

#include <stdlib.h>
#include <string.h>

#ifdef CKPT_HAVE_CUDA
#include "kernels/cuda/cuda_probe.h"
#endif

/* "cuda" is cuda:0, "cuda:3" is 3; -1 when `name` is no CUDA device's name. */
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

ckpt_code ckpt_device_open(const char *name, int threads, ckpt_device **device, ckpt_err *err)
{
    if (threads < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "device %s: found %d threads, wanted at least 1", name, threads);
    }
    if (strcmp(name, "cpu") == 0) {
        return ckpt_device_cpu.open(0, threads, device, err);
    }
    const int index = cuda_index(name);
    if (index < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "no such device: found \"%s\", wanted \"cpu\" or \"cuda:0\"", name);
    }
#ifdef CKPT_HAVE_CUDA
    return ckpt_cuda_probe(index, err);
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

static ckpt_code check_fit(const ckpt_device *device, const ckpt_node *node, const char *direction, ckpt_bytes given,
                           ckpt_bytes needed, ckpt_err *err)
{
    if (given >= 0 && needed > given) {
        return CKPT_FAIL(err, CKPT_DEVICE, "layer %s (%s): %s on %s needs %lld bytes of workspace, the plan gives %lld",
                         node->name, node->op->name, direction, device->api->kind, (long long)needed, (long long)given);
    }
    return CKPT_OK;
}

/* After `prepare` found nothing that fits: if it does without limits, say what it then uses. */
static ckpt_code explain_misfit(const ckpt_kernel *kernel, const ckpt_node *node, ckpt_bytes forward,
                                ckpt_bytes backward, ckpt_err *err)
{
    void *state = NULL;
    if ((forward < 0 && backward < 0) || kernel->prepare(node, -1, -1, &state, NULL) != CKPT_OK) {
        return CKPT_DEVICE;
    }
    ckpt_bytes forward_used = 0, backward_used = 0;
    if (kernel->workspace != NULL) {
        kernel->workspace(node, state, &forward_used, &backward_used);
    }
    if (kernel->release != NULL) {
        kernel->release(state);
    }
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "layer %s (%s): no algorithm fits the workspace: given %lld bytes forward and %lld backward, the "
                     "fastest use %lld and %lld",
                     node->name, node->op->name, (long long)forward, (long long)backward, (long long)forward_used,
                     (long long)backward_used);
}

ckpt_code ckpt_device_bind(ckpt_device *device, const ckpt_node *node, ckpt_bytes forward_workspace,
                           ckpt_bytes backward_workspace, ckpt_bound *bound, ckpt_err *err)
{
    const ckpt_kernel *const kernel = device->api->find(node->op->name);
    if (kernel == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "layer %s: device %s has no kernel for op \"%s\"", node->name,
                         device->api->kind, node->op->name);
    }
    ckpt_bound made = {.node = node, .kernel = kernel};
    if (kernel->prepare != NULL) {
        const ckpt_code code = kernel->prepare(node, forward_workspace, backward_workspace, &made.state, err);
        if (code != CKPT_OK) {
            ckpt_err_at(err, "layer %s (%s)", node->name, node->op->name);
            return code == CKPT_DEVICE ? explain_misfit(kernel, node, forward_workspace, backward_workspace, err)
                                       : code;
        }
    }
    if (kernel->workspace != NULL) {
        kernel->workspace(node, made.state, &made.forward_workspace_bytes, &made.backward_workspace_bytes);
    }
    ckpt_code code = check_fit(device, node, "forward", forward_workspace, made.forward_workspace_bytes, err);
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

void ckpt_device_unbind(ckpt_bound *bound)
{
    if (bound->kernel != NULL && bound->kernel->release != NULL && bound->state != NULL) {
        bound->kernel->release(bound->state);
    }
    *bound = (ckpt_bound){0};
}
