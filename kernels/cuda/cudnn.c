/* Convolutions by cuDNN 9's convolution calls, channels last.
 *
 * Reproducible and exact: only the algorithms that form each value as one sum of products are taken, IMPLICIT_GEMM and
 * IMPLICIT_PRECOMP_GEMM forward and ALGO_1 for both gradients, which cuDNN's documentation of its algorithm types calls
 * deterministic (cudnn_ops.h marks BWD_FILTER_ALGO_0, BWD_FILTER_ALGO_3 and BWD_DATA_ALGO_0 as not). Winograd's and
 * Fourier's would round differently and want large workspaces. float32 is FMA_MATH, as DEFAULT_MATH may take TF32.
 * cuDNN is opened by the first convolution: it is large and slow to load, and most models do without. */
#include "kernels/cuda/cudnn.h"

#include <cudnn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"

enum {
    WORKSPACE_ALIGN = 256, /* what kernels of the library may expect of a workspace */
    SLACK = WORKSPACE_ALIGN - CKPT_ALIGN,
    TEXT_MAX = 200,
};

struct ckpt_cudnn_convolution {
    cudnnHandle_t handle;
    ckpt_cudnn_direction direction;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t call;
    int algo; /* of the direction's enum */
    size_t bytes;
};

/* In the order they are tried; -1 ends a list. */
static const int algorithm[][3] = {
    [CKPT_CUDNN_FORWARD] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                            -1},
    [CKPT_CUDNN_INPUT_GRADIENT] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, -1},
    [CKPT_CUDNN_WEIGHT_GRADIENT] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, -1},
};

static const char *const direction_name[] = {
    [CKPT_CUDNN_FORWARD] = "forward",
    [CKPT_CUDNN_INPUT_GRADIENT] = "input gradient",
    [CKPT_CUDNN_WEIGHT_GRADIENT] = "weight gradient",
};

static ckpt_code check(cudnnStatus_t status, const char *what, ckpt_err *err)
{
    if (status == CUDNN_STATUS_SUCCESS) {
        return CKPT_OK;
    }
    char more[TEXT_MAX] = "";
    cudnnGetLastErrorString(more, sizeof more);
    return CKPT_FAIL(err, CKPT_DEVICE, "%s: %s%s%s", what, cudnnGetErrorString(status), more[0] == '\0' ? "" : ": ",
                     more);
}

ckpt_code ckpt_cudnn_open(ckpt_cuda *cuda, ckpt_err *err)
{
    if (cuda->cudnn != NULL) {
        return CKPT_OK;
    }
    cudnnHandle_t handle = NULL;
    CKPT_TRY(check(cudnnCreate(&handle), "cudnnCreate", err));
    const ckpt_code code = check(cudnnSetStream(handle, cuda->stream[CKPT_STREAM_COMPUTE]), "cudnnSetStream", err);
    if (code != CKPT_OK) {
        (void)cudnnDestroy(handle);
        return code;
    }
    cuda->cudnn = handle;
    return CKPT_OK;
}

void ckpt_cudnn_close(ckpt_cuda *cuda)
{
    if (cuda->cudnn != NULL) {
        (void)cudnnDestroy((cudnnHandle_t)cuda->cudnn);
        cuda->cudnn = NULL;
    }
}

void ckpt_cudnn_version(char *text, size_t room)
{
    const size_t version = cudnnGetVersion(); /* 91900 is 9.19.0 */
    snprintf(text, room, "cuDNN %zu.%zu.%zu", version / 10000, version % 10000 / 100, version % 100);
}

static ckpt_code check_sizes(const ckpt_cudnn_shape *s, ckpt_err *err)
{
    const int64_t all[] = {s->batch,     s->in_channels, s->out_channels, s->groups,    s->in[0],
                           s->in[1],     s->out[0],      s->out[1],       s->kernel[0], s->kernel[1],
                           s->stride[0], s->stride[1],   s->padding[0],   s->padding[1]};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        if (all[k] > INT_MAX) {
            return CKPT_FAIL(err, CKPT_DEVICE, "cuDNN counts in 32 bits: found %lld", (long long)all[k]);
        }
    }
    return CKPT_OK;
}

static ckpt_code make_image(cudnnTensorDescriptor_t *image, cudnnDataType_t type, int64_t batch, int64_t channels,
                            const int64_t size[2], ckpt_err *err)
{
    CKPT_TRY(check(cudnnCreateTensorDescriptor(image), "cudnnCreateTensorDescriptor", err));
    return check(cudnnSetTensor4dDescriptor(*image, CUDNN_TENSOR_NHWC, type, (int)batch, (int)channels, (int)size[0],
                                            (int)size[1]),
                 "cudnnSetTensor4dDescriptor", err);
}

static ckpt_code describe(ckpt_cudnn_convolution *made, const ckpt_cudnn_shape *s, ckpt_err *err)
{
    const bool narrow = s->dtype == CKPT_BFLOAT16;
    const cudnnDataType_t type = narrow ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    CKPT_TRY(make_image(&made->x, type, s->batch, s->in_channels, s->in, err));
    CKPT_TRY(make_image(&made->y, type, s->batch, s->out_channels, s->out, err));
    CKPT_TRY(check(cudnnCreateFilterDescriptor(&made->w), "cudnnCreateFilterDescriptor", err));
    CKPT_TRY(check(cudnnSetFilter4dDescriptor(made->w, type, CUDNN_TENSOR_NHWC, (int)s->out_channels,
                                              (int)(s->in_channels / s->groups), (int)s->kernel[0], (int)s->kernel[1]),
                   "cudnnSetFilter4dDescriptor", err));
    CKPT_TRY(check(cudnnCreateConvolutionDescriptor(&made->call), "cudnnCreateConvolutionDescriptor", err));
    CKPT_TRY(
        check(cudnnSetConvolution2dDescriptor(made->call, (int)s->padding[0], (int)s->padding[1], (int)s->stride[0],
                                              (int)s->stride[1], 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              "cudnnSetConvolution2dDescriptor", err));
    CKPT_TRY(check(cudnnSetConvolutionGroupCount(made->call, (int)s->groups), "cudnnSetConvolutionGroupCount", err));
    return check(cudnnSetConvolutionMathType(made->call, narrow ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH),
                 "cudnnSetConvolutionMathType", err);
}

/* What `algo` wants; it is not supported for this shape when this fails. */
static cudnnStatus_t ask_bytes(const ckpt_cudnn_convolution *c, int algo, size_t *bytes)
{
    switch (c->direction) {
    case CKPT_CUDNN_FORWARD:
        return cudnnGetConvolutionForwardWorkspaceSize(c->handle, c->x, c->w, c->call, c->y,
                                                       (cudnnConvolutionFwdAlgo_t)algo, bytes);
    case CKPT_CUDNN_INPUT_GRADIENT:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(c->handle, c->w, c->y, c->call, c->x,
                                                            (cudnnConvolutionBwdDataAlgo_t)algo, bytes);
    case CKPT_CUDNN_WEIGHT_GRADIENT: break;
    }
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(c->handle, c->x, c->y, c->call, c->w,
                                                          (cudnnConvolutionBwdFilterAlgo_t)algo, bytes);
}

static ckpt_code choose(ckpt_cudnn_convolution *made, const ckpt_cudnn_shape *s, ckpt_bytes limit, ckpt_err *err)
{
    const size_t room = limit < 0 ? SIZE_MAX : limit > SLACK ? (size_t)(limit - SLACK) : 0;
    const char *why = "no such algorithm";
    char text[CKPT_UNITS_TEXT + TEXT_MAX];
    for (const int *algo = algorithm[made->direction]; *algo >= 0; algo++) {
        size_t bytes = 0;
        const cudnnStatus_t status = ask_bytes(made, *algo, &bytes);
        if (status == CUDNN_STATUS_SUCCESS && bytes <= room) {
            made->algo = *algo;
            made->bytes = bytes;
            return CKPT_OK;
        }
        if (status == CUDNN_STATUS_SUCCESS) {
            snprintf(text, sizeof text, "it wants %zu bytes", bytes);
            why = text;
        } else {
            why = cudnnGetErrorString(status);
        }
    }
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "cuDNN has no deterministic %s of a %s convolution of [%lld, %lld, %lld, %lld] with %lld filters "
                     "of %lld x %lld in %lld groups in %lld bytes of workspace: %s",
                     direction_name[made->direction], ckpt_dtype_name(s->dtype), (long long)s->batch,
                     (long long)s->in_channels, (long long)s->in[0], (long long)s->in[1], (long long)s->out_channels,
                     (long long)s->kernel[0], (long long)s->kernel[1], (long long)s->groups, (long long)limit, why);
}

ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_cudnn_shape *shape, ckpt_cudnn_direction direction,
                                        ckpt_bytes limit, ckpt_cudnn_convolution **convolution, ckpt_err *err)
{
    CKPT_TRY(check_sizes(shape, err));
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    ckpt_cudnn_convolution *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for a convolution", sizeof *made);
    }
    made->handle = (cudnnHandle_t)cuda->cudnn;
    made->direction = direction;
    ckpt_code code = describe(made, shape, err);
    code = code != CKPT_OK ? code : choose(made, shape, limit, err);
    if (code != CKPT_OK) {
        ckpt_cudnn_convolution_destroy(made);
        return code;
    }
    *convolution = made;
    return CKPT_OK;
}

void ckpt_cudnn_convolution_destroy(ckpt_cudnn_convolution *convolution)
{
    if (convolution == NULL) {
        return;
    }
    if (convolution->x != NULL) {
        (void)cudnnDestroyTensorDescriptor(convolution->x);
    }
    if (convolution->y != NULL) {
        (void)cudnnDestroyTensorDescriptor(convolution->y);
    }
    if (convolution->w != NULL) {
        (void)cudnnDestroyFilterDescriptor(convolution->w);
    }
    if (convolution->call != NULL) {
        (void)cudnnDestroyConvolutionDescriptor(convolution->call);
    }
    ckpt_memory_put(convolution);
}

ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution)
{
    return convolution->bytes > 0 ? ckpt_round_up((ckpt_bytes)convolution->bytes, CKPT_ALIGN) + SLACK : 0;
}

ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a, const void *b, void *c,
                                     void *workspace, ckpt_err *err)
{
    const ckpt_cudnn_convolution *const k = convolution;
    const float one = 1, zero = 0;
    const uintptr_t up = ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    void *const scratch = k->bytes > 0 ? (void *)up : NULL;
    switch (k->direction) {
    case CKPT_CUDNN_FORWARD:
        return check(cudnnConvolutionForward(k->handle, &one, k->x, a, k->w, b, k->call,
                                             (cudnnConvolutionFwdAlgo_t)k->algo, scratch, k->bytes, &zero, k->y, c),
                     "cudnnConvolutionForward", err);
    case CKPT_CUDNN_INPUT_GRADIENT:
        return check(cudnnConvolutionBackwardData(k->handle, &one, k->w, b, k->y, a, k->call,
                                                  (cudnnConvolutionBwdDataAlgo_t)k->algo, scratch, k->bytes, &zero,
                                                  k->x, c),
                     "cudnnConvolutionBackwardData", err);
    case CKPT_CUDNN_WEIGHT_GRADIENT: break;
    }
    return check(cudnnConvolutionBackwardFilter(k->handle, &one, k->x, a, k->y, b, k->call,
                                                (cudnnConvolutionBwdFilterAlgo_t)k->algo, scratch, k->bytes, &zero,
                                                k->w, c),
                 "cudnnConvolutionBackwardFilter", err);
}
