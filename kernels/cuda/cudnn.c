/* Convolutions by cuDNN 9's graph API, channels last: a graph of one operation each, engines in the order in which
 * cuDNN's heuristics expect them to be fast, then those it calls its fallback.
 *
 * An engine is passed over when cuDNN notes of it that two runs may differ, that it rounds operands or partial sums
 * further, or that it is Winograd's or Fourier's algorithm (other rounding, large workspaces); in float32 also when it
 * uses tensor cores, which there means TF32. PyTorch selects by the same notes (ATen/native/cudnn/Conv_v8.cpp). What is
 * chosen depends on the shape, the workspace, the kind of GPU and the library's version, and on nothing else.
 *
 * tests/test_cudnn.c runs all of this but cudnnCreate and cudnnBackendExecute without a GPU: cuDNN makes plans for a
 * GPU that is only described to it. cuDNN is opened by the first convolution: it is large and slow to load. */
#include "kernels/cuda/cudnn.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/cuda/cudnn_impl.h"

typedef cudnnBackendDescriptor_t descriptor;

enum {
    WORKSPACE_ALIGN = 256, /* what kernels of the library may expect of a workspace */
    SLACK = WORKSPACE_ALIGN - CKPT_ALIGN,
    OPERAND_ALIGN = 16,
    TEXT_MAX = 200,
    OWNED_MAX = 16,  /* descriptors of one graph */
    ENGINE_MAX = 64, /* engines that are looked at, of each list */
    TENSORS = 3,
};

struct ckpt_cudnn_convolution {
    cudnnHandle_t handle;
    descriptor config, plan;
    int64_t bytes;
    int64_t id[TENSORS]; /* of a, b, c of ckpt_cudnn_convolution_run */
    const char *remark;
};

enum { X_ID = 1, W_ID, Y_ID };

typedef struct operation_names {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, call, x, w, y;
    int64_t id[TENSORS];
} operation_names;

static const operation_names operation[] = {
    [CKPT_CUDNN_FORWARD] =
        {
            .name = "forward",
            .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            .call = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            .id = {X_ID, W_ID, Y_ID},
        },
    [CKPT_CUDNN_INPUT_GRADIENT] =
        {
            .name = "input gradient",
            .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            .call = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            .id = {Y_ID, W_ID, X_ID},
        },
    [CKPT_CUDNN_WEIGHT_GRADIENT] =
        {
            .name = "weight gradient",
            .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            .call = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            .id = {X_ID, Y_ID, W_ID},
        },
};

static ckpt_code check(cudnnStatus_t status, const char *what, ckpt_err *err)
{
    if (status == CUDNN_STATUS_SUCCESS) {
        return CKPT_OK;
    }
    char more[TEXT_MAX] = "";
    cudnnGetLastErrorString(more, sizeof more);
    const bool memory = status == CUDNN_STATUS_ALLOC_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return CKPT_FAIL(err, memory ? CKPT_NO_MEMORY : CKPT_DEVICE, "%s: %s%s%s", what, cudnnGetErrorString(status),
                     more[0] == '\0' ? "" : ": ", more);
}

/* Descriptors that are of no use once a plan is made; they hold on to each other themselves. */
typedef struct owned_list {
    descriptor at[OWNED_MAX];
    int count;
} owned_list;

static void destroy(descriptor d)
{
    if (d != NULL) {
        (void)cudnnBackendDestroyDescriptor(d);
    }
}

static void destroy_owned(owned_list *owned)
{
    while (owned->count > 0) {
        destroy(owned->at[--owned->count]);
    }
}

static ckpt_code make(owned_list *owned, cudnnBackendDescriptorType_t type, descriptor *made, ckpt_err *err)
{
    if (owned->count == OWNED_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "more than %d descriptors", OWNED_MAX);
    }
    CKPT_TRY(check(cudnnBackendCreateDescriptor(type, made), "cudnnBackendCreateDescriptor", err));
    owned->at[owned->count++] = *made;
    return CKPT_OK;
}

static ckpt_code set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                     const void *value, ckpt_err *err)
{
    return check(cudnnBackendSetAttribute(d, name, type, count, value), "cudnnBackendSetAttribute", err);
}

static ckpt_code set_descriptor(descriptor d, cudnnBackendAttributeName_t name, descriptor value, ckpt_err *err)
{
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&value, err);
}

static ckpt_code finalize(descriptor d, ckpt_err *err)
{
    return check(cudnnBackendFinalize(d), "cudnnBackendFinalize", err);
}

/* Opening. */

static ckpt_code make_session(ckpt_cuda *cuda, cudnn_session **made, ckpt_err *err)
{
    cudnn_session *const session = ckpt_memory_get(sizeof *session);
    if (session == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for cuDNN", sizeof *session);
    }
    cuda->cudnn = session;
    *made = session;
    return CKPT_OK;
}

ckpt_code ckpt_cudnn_open(ckpt_cuda *cuda, ckpt_err *err)
{
    if (cuda->cudnn != NULL) {
        return CKPT_OK;
    }
    cudnn_session *session = NULL;
    CKPT_TRY(make_session(cuda, &session, err));
    ckpt_code code = check(cudnnCreate(&session->handle), "cudnnCreate", err);
    if (code == CKPT_OK) {
        code = check(cudnnSetStream(session->handle, cuda->stream[CKPT_STREAM_COMPUTE]), "cudnnSetStream", err);
    }
    if (code != CKPT_OK) {
        ckpt_cudnn_close(cuda);
    }
    return code;
}

static ckpt_code describe_gpu(cudnn_session *session, const char *json, ckpt_err *err)
{
    CKPT_TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &session->gpu),
                   "cudnnBackendCreateDescriptor", err));
    CKPT_TRY(set(session->gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json), json,
                 err));
    return finalize(session->gpu, err);
}

ckpt_code ckpt_cudnn_open_described(ckpt_cuda *cuda, const char *json, ckpt_err *err)
{
    cudnn_session *session = NULL;
    CKPT_TRY(make_session(cuda, &session, err));
    const ckpt_code code = describe_gpu(session, json, err);
    if (code != CKPT_OK) {
        ckpt_cudnn_close(cuda);
    }
    return code;
}

void ckpt_cudnn_close(ckpt_cuda *cuda)
{
    cudnn_session *const session = cuda->cudnn;
    if (session != NULL) {
        if (session->handle != NULL) {
            (void)cudnnDestroy(session->handle);
        }
        destroy(session->gpu);
        ckpt_memory_put(session);
        cuda->cudnn = NULL;
    }
}

void ckpt_cudnn_version(char *text, size_t room)
{
    const size_t version = cudnnGetVersion(); /* 91900 is 9.19.0 */
    snprintf(text, room, "cuDNN %zu.%zu.%zu", version / 10000, version % 10000 / 100, version % 100);
}

/* The graph. */

/* Dimensions are named N, C, H, W; the strides say that C is innermost. */
static ckpt_code make_tensor(owned_list *owned, const ckpt_cudnn_shape *s, int64_t id, descriptor *tensor,
                             ckpt_err *err)
{
    const int64_t dim[][4] = {
        [X_ID] = {s->batch, s->in_channels, s->in[0], s->in[1]},
        [W_ID] = {s->out_channels, s->in_channels / s->groups, s->kernel[0], s->kernel[1]},
        [Y_ID] = {s->batch, s->out_channels, s->out[0], s->out[1]},
    };
    const int64_t *const d = dim[id];
    const int64_t stride[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}, alignment = OPERAND_ALIGN;
    const cudnnDataType_t type = s->dtype == CKPT_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    CKPT_TRY(make(owned, CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor, err));
    CKPT_TRY(set(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, err));
    CKPT_TRY(set(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d, err));
    CKPT_TRY(set(*tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride, err));
    CKPT_TRY(set(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, err));
    CKPT_TRY(set(*tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, err));
    return finalize(*tensor, err);
}

static ckpt_code make_call(owned_list *owned, const ckpt_cudnn_shape *s, descriptor *call, ckpt_err *err)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dimensions = 2, dilation[2] = {1, 1};
    CKPT_TRY(make(owned, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, call, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, s->stride, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, s->padding, err));
    CKPT_TRY(set(*call, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, s->padding, err));
    return finalize(*call, err);
}

/* cuDNN sees groups in that w has fewer channels than x. */
static ckpt_code make_graph(owned_list *owned, const cudnn_session *session, const ckpt_cudnn_shape *s,
                            const operation_names *names, descriptor *graph, ckpt_err *err)
{
    descriptor x = NULL, w = NULL, y = NULL, call = NULL, one = NULL;
    const float alpha = 1, beta = 0;
    CKPT_TRY(make_tensor(owned, s, X_ID, &x, err));
    CKPT_TRY(make_tensor(owned, s, W_ID, &w, err));
    CKPT_TRY(make_tensor(owned, s, Y_ID, &y, err));
    CKPT_TRY(make_call(owned, s, &call, err));
    CKPT_TRY(make(owned, names->type, &one, err));
    CKPT_TRY(set(one, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha, err));
    CKPT_TRY(set(one, names->beta, CUDNN_TYPE_FLOAT, 1, &beta, err));
    CKPT_TRY(set_descriptor(one, names->call, call, err));
    CKPT_TRY(set_descriptor(one, names->x, x, err));
    CKPT_TRY(set_descriptor(one, names->w, w, err));
    CKPT_TRY(set_descriptor(one, names->y, y, err));
    CKPT_TRY(finalize(one, err));
    CKPT_TRY(make(owned, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph, err));
    CKPT_TRY(set_descriptor(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, one, err));
    if (session->handle != NULL) {
        CKPT_TRY(
            set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&session->handle, err));
    }
    return finalize(*graph, err);
}

/* Choosing an engine. */

typedef struct choice {
    const cudnn_session *session;
    ckpt_cudnn_convolution *made; /* plan NULL: nothing yet */
    bool exact;                   /* float32 stays float32 */
    int64_t room;
    int offered, allowed;
    int64_t least; /* workspace of an allowed engine, -1: none */
    bool faster;   /* an engine with tensor cores wanted more than `room` */
} choice;

static bool is_allowed(descriptor engine, bool exact, bool *tensor_cores)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, note) != CUDNN_STATUS_SUCCESS ||
        count > CUDNN_NUMERICAL_NOTE_TYPE_COUNT) {
        return false; /* what says nothing of itself is not trusted */
    }
    for (int64_t k = 0; k < count; k++) {
        *tensor_cores = *tensor_cores || note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        const bool fine =
            note[k] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP || (note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !exact);
        if (!fine) {
            return false;
        }
    }
    return true;
}

static bool config_is_allowed(descriptor config, bool exact, bool *tensor_cores)
{
    descriptor engine = NULL;
    int64_t count = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    const bool allowed = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                  &count, (void *)&engine) == CUDNN_STATUS_SUCCESS &&
                         count == 1 && is_allowed(engine, exact, tensor_cores);
    destroy(engine);
    return allowed;
}

/* A plan of this engine and the workspace it wants; that an engine has none for this shape is no failure. */
static descriptor plan_of(const cudnn_session *session, descriptor config, int64_t *bytes)
{
    descriptor plan = NULL;
    int64_t count = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS) {
        return NULL;
    }
    ckpt_code code = set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config, NULL);
    if (code == CKPT_OK && session->handle != NULL) {
        code = set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&session->handle, NULL);
    } else if (code == CKPT_OK) {
        code = set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, session->gpu, NULL);
    }
    if (code != CKPT_OK || finalize(plan, NULL) != CKPT_OK ||
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, bytes) !=
            CUDNN_STATUS_SUCCESS ||
        *bytes < 0) {
        destroy(plan);
        return NULL;
    }
    return plan;
}

static bool try_config(choice *c, descriptor config)
{
    c->offered++;
    bool tensor_cores = false;
    if (!config_is_allowed(config, c->exact, &tensor_cores)) {
        return false;
    }
    int64_t bytes = 0;
    const descriptor plan = plan_of(c->session, config, &bytes);
    if (plan == NULL) {
        return false;
    }
    c->allowed++;
    c->least = c->least < 0 || bytes < c->least ? bytes : c->least;
    if (bytes > c->room) {
        c->faster = c->faster || tensor_cores;
        destroy(plan);
        return false;
    }
    c->made->plan = plan;
    c->made->bytes = bytes;
    c->made->remark = c->faster && !tensor_cores ? "cuDNN without tensor cores: with them it wants more workspace" : "";
    return true;
}

/* Asks for `count` engines and keeps the first that will do. */
static ckpt_code try_results(choice *c, descriptor heuristic, int64_t count, ckpt_err *err)
{
    const cudnnBackendAttributeType_t type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    descriptor config[ENGINE_MAX] = {0};
    ckpt_code code = CKPT_OK;
    count = count < ENGINE_MAX ? count : ENGINE_MAX;
    for (int64_t k = 0; k < count && code == CKPT_OK; k++) {
        code = check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[k]),
                     "cudnnBackendCreateDescriptor", err);
    }
    int64_t got = 0;
    if (code == CKPT_OK) {
        code =
            check(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, type, count, &got, (void *)config),
                  "asking cuDNN for engines", err);
    }
    for (int64_t k = 0; code == CKPT_OK && k < count && k < got && c->made->plan == NULL; k++) {
        if (try_config(c, config[k])) {
            c->made->config = config[k];
            config[k] = NULL;
        }
    }
    for (int64_t k = 0; k < count; k++) {
        destroy(config[k]);
    }
    return code;
}

static ckpt_code try_mode(choice *c, owned_list *owned, descriptor graph, cudnnBackendHeurMode_t mode, ckpt_err *err)
{
    descriptor heuristic = NULL;
    int64_t count = 0;
    CKPT_TRY(make(owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic, err));
    CKPT_TRY(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, err));
    CKPT_TRY(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, err));
    if (c->session->gpu != NULL) {
        CKPT_TRY(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->session->gpu, err));
    }
    CKPT_TRY(finalize(heuristic, err));
    CKPT_TRY(check(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                            &count, NULL),
                   "asking cuDNN for engines", err));
    return try_results(c, heuristic, count, err);
}

static ckpt_code refuse(const choice *c, const ckpt_cudnn_shape *s, const char *name, ckpt_err *err)
{
    char least[TEXT_MAX] = "";
    if (c->least >= 0) {
        snprintf(least, sizeof least, ", the least of which wants %lld bytes", (long long)c->least);
    }
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "cuDNN: no reproducible %s of a %s convolution of [%lld, %lld, %lld, %lld] with %lld filters of "
                     "%lld x %lld in %lld groups in %lld bytes of workspace: %d engines, %d will do%s",
                     name, ckpt_dtype_name(s->dtype), (long long)s->batch, (long long)s->in_channels,
                     (long long)s->in[0], (long long)s->in[1], (long long)s->out_channels, (long long)s->kernel[0],
                     (long long)s->kernel[1], (long long)s->groups, (long long)c->room, c->offered, c->allowed, least);
}

/* With free choice: room for one more copy of each operand, which is what engines that want much want it for. */
static int64_t most_bytes(const ckpt_cudnn_shape *s)
{
    const int64_t x = s->batch * s->in_channels * s->in[0] * s->in[1];
    const int64_t y = s->batch * s->out_channels * s->out[0] * s->out[1];
    const int64_t w = s->out_channels * (s->in_channels / s->groups) * s->kernel[0] * s->kernel[1];
    return (x + y + w) * ckpt_dtype_bytes(s->dtype) + ((int64_t)64 << 20);
}

static ckpt_code choose(ckpt_cudnn_convolution *made, const cudnn_session *session, const ckpt_cudnn_shape *s,
                        const operation_names *names, ckpt_bytes limit, owned_list *owned, ckpt_err *err)
{
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    choice c = {.session = session, .made = made, .exact = s->dtype == CKPT_FLOAT32, .least = -1};
    c.room = limit < 0 ? most_bytes(s) : limit > SLACK ? (limit - SLACK) / CKPT_ALIGN * CKPT_ALIGN : 0;
    descriptor graph = NULL;
    CKPT_TRY(make_graph(owned, session, s, names, &graph, err));
    for (size_t k = 0; k < sizeof mode / sizeof mode[0] && made->plan == NULL; k++) {
        CKPT_TRY(try_mode(&c, owned, graph, mode[k], err));
    }
    return made->plan != NULL ? CKPT_OK : refuse(&c, s, names->name, err);
}

ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_cudnn_shape *shape, ckpt_cudnn_direction direction,
                                        ckpt_bytes limit, ckpt_cudnn_convolution **convolution, ckpt_err *err)
{
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    const cudnn_session *const session = cuda->cudnn;
    const operation_names *const names = &operation[direction];
    ckpt_cudnn_convolution *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for a convolution", sizeof *made);
    }
    made->handle = session->handle;
    memcpy(made->id, names->id, sizeof made->id);
    owned_list owned = {0};
    const ckpt_code code = choose(made, session, shape, names, limit, &owned, err);
    destroy_owned(&owned);
    if (code != CKPT_OK) {
        ckpt_cudnn_convolution_destroy(made);
        return code;
    }
    *convolution = made;
    return CKPT_OK;
}

void ckpt_cudnn_convolution_destroy(ckpt_cudnn_convolution *convolution)
{
    if (convolution != NULL) {
        destroy(convolution->plan);
        destroy(convolution->config);
        ckpt_memory_put(convolution);
    }
}

ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution)
{
    return convolution->bytes > 0 ? ckpt_round_up(convolution->bytes, CKPT_ALIGN) + SLACK : 0;
}

const char *ckpt_cudnn_convolution_remark(const ckpt_cudnn_convolution *convolution)
{
    return convolution->remark;
}

/* Running. */

static ckpt_code fill_pack(descriptor pack, const ckpt_cudnn_convolution *convolution, const void *const at[TENSORS],
                           const void *workspace, ckpt_err *err)
{
    CKPT_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, TENSORS, convolution->id, err));
    CKPT_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, TENSORS, (const void *)at, err));
    CKPT_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, (const void *)&workspace, err));
    return finalize(pack, err);
}

/* A pack of addresses cannot be written twice, so each run makes one (host memory, by cuDNN). */
ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a, const void *b, void *c,
                                     void *workspace, ckpt_err *err)
{
    const void *const at[TENSORS] = {a, b, c};
    const uintptr_t up = ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    descriptor pack = NULL;
    CKPT_TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                   "cudnnBackendCreateDescriptor", err));
    ckpt_code code = fill_pack(pack, convolution, at, convolution->bytes > 0 ? (const void *)up : NULL, err);
    if (code == CKPT_OK) {
        code = check(cudnnBackendExecute(convolution->handle, convolution->plan, pack), "cudnnBackendExecute", err);
    }
    destroy(pack);
    return code;
}
