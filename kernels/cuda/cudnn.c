/* Convolutions by cuDNN 9's graph API, channels last. Each is a graph of one operation. Engines are tried in the order
 * of cuDNN's heuristics, fastest first, then cuDNN's fallback engines.
 *
 * An engine is skipped if cuDNN notes that two runs may differ, that it rounds operands or partial sums further, or
 * that it uses Winograd's or Fourier's algorithm (other rounding, large workspaces). In float32 it is also skipped if
 * it uses tensor cores, which then means TF32. PyTorch selects by the same notes (ATen/native/cudnn/Conv_v8.cpp). The
 * choice depends only on the shape, the workspace, the kind of GPU and the library's version.
 *
 * cuDNN also makes plans for a GPU that is only described to it. tests/kernels/cuda/test_cudnn.c therefore runs everything
 * here without a GPU, except for the handle and the execution of plans. The first layer that needs cuDNN opens it,
 * because it is large and slow to load. */
#include "kernels/cuda/cudnn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "kernels/cuda/cudnn_impl.h"
#include "kernels/cuda/trial.h"

typedef cudnnBackendDescriptor_t descriptor;

enum {
    OPERAND_ALIGN = 16,
    ENGINE_MAX = 64, /* engines tried of each list */
    TENSORS = 3,
};

/* An engine that is ready to run. */
typedef struct candidate {
    descriptor config, plan;
    int64_t bytes; /* of workspace */
    const char *remark;
} candidate;

struct ckpt_cudnn_convolution {
    ckpt_cuda *cuda;
    ckpt_convolution shape;
    ckpt_cudnn_direction direction;
    candidate used;
    char choice[CKPT_PIECE_TEXT];
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
    ckpt_code code = cudnn_check(cudnnCreate(&session->handle), "cudnnCreate", err);
    if (code == CKPT_OK) {
        code = cudnn_check(cudnnSetStream(session->handle, cuda->stream[CKPT_STREAM_COMPUTE]), "cudnnSetStream", err);
    }
    if (code != CKPT_OK) {
        ckpt_cudnn_close(cuda);
    }
    return code;
}

static ckpt_code describe_gpu(cudnn_session *session, const char *json, ckpt_err *err)
{
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &session->gpu),
                         "cudnnBackendCreateDescriptor", err));
    CKPT_TRY(cudnn_set(session->gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json),
                       json, err));
    return cudnn_finalize(session->gpu, err);
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
        cudnn_destroy(session->gpu);
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

/* Dimensions are N, C, H, W, of volumes N, C, D, H, W; the strides make C the innermost. */
static ckpt_code make_tensor(cudnn_owned *owned, const ckpt_convolution *s, int64_t id, descriptor *tensor,
                             ckpt_err *err)
{
    const int64_t front[][2] = {
        [X_ID] = {s->batch, s->in_channels},
        [W_ID] = {s->out_channels, s->in_channels / s->groups},
        [Y_ID] = {s->batch, s->out_channels},
    };
    const int64_t *const size = id == X_ID ? s->in : id == W_ID ? s->kernel : s->out;
    const int first = s->volume ? 0 : 1, rank = 5 - first;
    int64_t dim[5] = {front[id][0], front[id][1]}, stride[5] = {0, 1}, pixels = front[id][1];
    const int64_t alignment = OPERAND_ALIGN;
    for (int d = 2; d >= first; d--) {
        dim[2 + d - first] = size[d];
        stride[2 + d - first] = pixels;
        pixels *= size[d];
    }
    stride[0] = pixels;
    const cudnnDataType_t type = s->dtype == CKPT_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor, err));
    CKPT_TRY(cudnn_set(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, err));
    CKPT_TRY(cudnn_set(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim, err));
    CKPT_TRY(cudnn_set(*tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride, err));
    CKPT_TRY(cudnn_set(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, err));
    CKPT_TRY(cudnn_set(*tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, err));
    return cudnn_finalize(*tensor, err);
}

static ckpt_code make_call(cudnn_owned *owned, const ckpt_convolution *s, descriptor *call, ckpt_err *err)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int first = s->volume ? 0 : 1;
    const int64_t dims = 3 - first, *const padding = s->padding + first;
    CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, call, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, s->dilation + first, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, s->stride + first, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, padding, err));
    CKPT_TRY(cudnn_set(*call, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, padding, err));
    return cudnn_finalize(*call, err);
}

/* Groups are implied: w has fewer channels than x. */
static ckpt_code make_graph(cudnn_owned *owned, const cudnn_session *session, const ckpt_convolution *s,
                            const operation_names *names, descriptor *graph, ckpt_err *err)
{
    descriptor x = NULL, w = NULL, y = NULL, call = NULL, one = NULL;
    const float alpha = 1, beta = 0;
    CKPT_TRY(make_tensor(owned, s, X_ID, &x, err));
    CKPT_TRY(make_tensor(owned, s, W_ID, &w, err));
    CKPT_TRY(make_tensor(owned, s, Y_ID, &y, err));
    CKPT_TRY(make_call(owned, s, &call, err));
    CKPT_TRY(cudnn_make(owned, names->type, &one, err));
    CKPT_TRY(cudnn_set(one, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha, err));
    CKPT_TRY(cudnn_set(one, names->beta, CUDNN_TYPE_FLOAT, 1, &beta, err));
    CKPT_TRY(cudnn_set_descriptor(one, names->call, call, err));
    CKPT_TRY(cudnn_set_descriptor(one, names->x, x, err));
    CKPT_TRY(cudnn_set_descriptor(one, names->w, w, err));
    CKPT_TRY(cudnn_set_descriptor(one, names->y, y, err));
    CKPT_TRY(cudnn_finalize(one, err));
    CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph, err));
    CKPT_TRY(cudnn_set_descriptor(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, one, err));
    if (session->handle != NULL) {
        CKPT_TRY(cudnn_set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                           (const void *)&session->handle, err));
    }
    return cudnn_finalize(*graph, err);
}

/* Choosing an engine. */

typedef struct search {
    const cudnn_session *session;
    candidate *found;
    int count, most; /* found, and wanted */
    bool exact;      /* float32 stays float32 */
    int64_t room;
    int offered, allowed;
    int64_t least; /* workspace of an allowed engine, -1: none */
    bool faster;   /* an engine with tensor cores needs more than `room` */
} search;

static bool config_is_allowed(descriptor config, bool exact, bool *tensor_cores)
{
    descriptor engine = NULL;
    if (cudnn_engine(config, &engine, NULL) != CKPT_OK) {
        return false;
    }
    const bool allowed = cudnn_is_allowed(engine, exact, tensor_cores);
    cudnn_destroy(engine);
    return allowed;
}

/* True: the new candidate owns `config`. */
static bool try_config(search *c, descriptor config)
{
    c->offered++;
    bool tensor_cores = false;
    if (!config_is_allowed(config, c->exact, &tensor_cores)) {
        return false;
    }
    int64_t bytes = 0;
    descriptor plan = NULL;
    if (cudnn_plan(c->session, config, &plan, &bytes, NULL) != CKPT_OK) {
        return false; /* this engine has no plan for this shape */
    }
    c->allowed++;
    c->least = c->least < 0 || bytes < c->least ? bytes : c->least;
    if (bytes > c->room) {
        c->faster = c->faster || tensor_cores;
        cudnn_destroy(plan);
        return false;
    }
    const char *const slow = "cuDNN without tensor cores: with them it wants more workspace";
    c->found[c->count++] = (candidate){config, plan, bytes, c->faster && !tensor_cores ? slow : ""};
    return true;
}

/* Asks for `count` engines and keeps the first suitable ones, as many as are wanted. */
static ckpt_code try_results(search *c, descriptor heuristic, int64_t count, ckpt_err *err)
{
    const cudnnBackendAttributeType_t type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    descriptor config[ENGINE_MAX] = {0};
    ckpt_code code = CKPT_OK;
    count = count < ENGINE_MAX ? count : ENGINE_MAX;
    for (int64_t k = 0; k < count && code == CKPT_OK; k++) {
        code = cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[k]),
                           "cudnnBackendCreateDescriptor", err);
    }
    int64_t got = 0;
    if (code == CKPT_OK) {
        code = cudnn_check(
            cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, type, count, &got, (void *)config),
            "asking cuDNN for engines", err);
    }
    for (int64_t k = 0; code == CKPT_OK && k < count && k < got && c->count < c->most; k++) {
        if (try_config(c, config[k])) {
            config[k] = NULL;
        }
    }
    for (int64_t k = 0; k < count; k++) {
        cudnn_destroy(config[k]);
    }
    return code;
}

static ckpt_code try_mode(search *c, cudnn_owned *owned, descriptor graph, cudnnBackendHeurMode_t mode, ckpt_err *err)
{
    descriptor heuristic = NULL;
    int64_t count = 0;
    CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic, err));
    CKPT_TRY(cudnn_set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, err));
    CKPT_TRY(cudnn_set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, err));
    if (c->session->gpu != NULL) {
        CKPT_TRY(cudnn_set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->session->gpu, err));
    }
    CKPT_TRY(cudnn_finalize(heuristic, err));
    CKPT_TRY(cudnn_check(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
                         "asking cuDNN for engines", err));
    return try_results(c, heuristic, count, err);
}

static ckpt_code refuse(const search *c, const ckpt_convolution *s, const char *name, ckpt_err *err)
{
    char least[CUDNN_TEXT_MAX] = "";
    if (c->least >= 0) {
        snprintf(least, sizeof least, ", the least of which wants %lld bytes", (long long)c->least);
    }
    return CKPT_FAIL(
        err, CKPT_DEVICE,
        "cuDNN: no reproducible %s of a %s convolution of [%lld, %lld, %lld, %lld, %lld] with %lld filters "
        "of %lld x %lld x %lld in %lld groups in %lld bytes of workspace: %d engines, %d will do%s",
        name, ckpt_dtype_name(s->dtype), (long long)s->batch, (long long)s->in_channels, (long long)s->in[0],
        (long long)s->in[1], (long long)s->in[2], (long long)s->out_channels, (long long)s->kernel[0],
        (long long)s->kernel[1], (long long)s->kernel[2], (long long)s->groups, (long long)c->room, c->offered,
        c->allowed, least);
}

/* The limit without a given one: room for a copy of each operand, which is why some engines need much workspace. */
static int64_t most_bytes(const ckpt_convolution *s)
{
    const int64_t x = ckpt_convolution_in_rows(s) * s->in_channels, y = ckpt_convolution_out_rows(s) * s->out_channels;
    const int64_t w = s->out_channels * (s->in_channels / s->groups) * ckpt_convolution_taps(s);
    return (x + y + w) * ckpt_dtype_bytes(s->dtype) + ((int64_t)64 << 20);
}

static void destroy_candidates(candidate *at, int count)
{
    for (int k = 0; k < count; k++) {
        cudnn_destroy(at[k].plan);
        cudnn_destroy(at[k].config);
        at[k] = (candidate){0};
    }
}

/* Makes *one the candidate in use. */
static ckpt_code use(ckpt_cudnn_convolution *convolution, candidate *one, ckpt_err *err)
{
    CKPT_TRY(cudnn_name(one->config, convolution->choice, err));
    destroy_candidates(&convolution->used, 1);
    convolution->used = *one;
    *one = (candidate){0};
    return CKPT_OK;
}

/* Makes the configuration of a name; ckpt_device_bind compares the name of the result with it. */
static ckpt_code make_config(cudnn_owned *owned, const cudnn_session *session, descriptor graph, const char *name,
                             descriptor *config, ckpt_err *err)
{
    descriptor engine = NULL, knob[CUDNN_KNOB_MAX] = {0};
    char *at = NULL;
    int count = 0;
    const int64_t index = strtoll(name, &at, 10);
    CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, err));
    CKPT_TRY(cudnn_set_descriptor(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph, err));
    CKPT_TRY(cudnn_set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index, err));
    if (session->gpu != NULL) {
        CKPT_TRY(cudnn_set_descriptor(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, session->gpu, err));
    }
    CKPT_TRY(cudnn_finalize(engine, err));
    for (; count < CUDNN_KNOB_MAX && *at == ','; count++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)strtol(at + 1, &at, 10);
        const int64_t value = *at == '=' ? strtoll(at + 1, &at, 10) : 0;
        CKPT_TRY(cudnn_make(owned, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[count], err));
        CKPT_TRY(cudnn_set(knob[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type, err));
        CKPT_TRY(cudnn_set(knob[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value, err));
        CKPT_TRY(cudnn_finalize(knob[count], err));
    }
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config),
                         "cudnnBackendCreateDescriptor", err));
    ckpt_code code = cudnn_set_descriptor(*config, CUDNN_ATTR_ENGINECFG_ENGINE, engine, err);
    if (code == CKPT_OK && count > 0) {
        code = cudnn_set(*config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                         (const void *)knob, err);
    }
    return code == CKPT_OK ? cudnn_finalize(*config, err) : code;
}

static ckpt_code find(search *c, cudnn_owned *owned, descriptor graph, const char *name, ckpt_err *err)
{
    char here[CKPT_PIECE_TEXT];
    descriptor config = NULL;
    ckpt_err why = {0};
    const size_t length = (size_t)snprintf(here, sizeof here, "dnn%zu:", cudnnGetVersion());
    if (strncmp(name, here, length) != 0) {
        return CKPT_FAIL(
            err, CKPT_DEVICE,
            "the plan wants algorithm \"%.60s\", here is cuDNN %zu: profile and plan again with this library", name,
            cudnnGetVersion());
    }
    const ckpt_code code = make_config(owned, c->session, graph, name + length, &config, &why);
    if (code == CKPT_OK && try_config(c, config)) {
        return CKPT_OK;
    }
    cudnn_destroy(config);
    if (code == CKPT_NO_MEMORY) {
        return CKPT_FAIL(err, code, "%s", why.msg);
    }
    return CKPT_FAIL(
        err, CKPT_DEVICE,
        "cuDNN %zu cannot do this convolution by the plan's algorithm \"%.60s\" in %lld bytes of workspace "
        "%.100s: profile and plan again on this GPU",
        cudnnGetVersion(), name, (long long)c->room, why.msg);
}

/* Finds up to `most` candidates in cuDNN's order, or the one with that name. */
static ckpt_code choose(const ckpt_cudnn_convolution *convolution, ckpt_bytes limit, const char *name, candidate *found,
                        int most, int *count, ckpt_err *err)
{
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const ckpt_convolution *const s = &convolution->shape;
    const operation_names *const names = &operation[convolution->direction];
    search c = {.session = convolution->cuda->cudnn,
                .found = found,
                .most = most,
                .exact = s->dtype == CKPT_FLOAT32,
                .least = -1};
    c.room = limit < 0 ? most_bytes(s) : limit > CUDNN_SLACK ? (limit - CUDNN_SLACK) / CKPT_ALIGN * CKPT_ALIGN : 0;
    cudnn_owned owned = {0};
    descriptor graph = NULL;
    ckpt_code code = make_graph(&owned, c.session, s, names, &graph, err);
    if (code == CKPT_OK && name != NULL) {
        code = find(&c, &owned, graph, name, err);
    }
    for (size_t k = 0; code == CKPT_OK && k < sizeof mode / sizeof mode[0] && c.count == 0; k++) {
        code = try_mode(&c, &owned, graph, mode[k], err);
    }
    cudnn_destroy_owned(&owned);
    *count = c.count;
    return code == CKPT_OK && c.count == 0 ? refuse(&c, s, names->name, err) : code;
}

ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_convolution *shape, ckpt_cudnn_direction direction,
                                        ckpt_bytes limit, const char *choice, ckpt_cudnn_convolution **convolution,
                                        ckpt_err *err)
{
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    ckpt_cudnn_convolution *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for a convolution", sizeof *made);
    }
    made->cuda = cuda;
    made->shape = *shape;
    made->direction = direction;
    candidate first = {0};
    int count = 0;
    ckpt_code code = choose(made, limit, choice, &first, 1, &count, err);
    code = code == CKPT_OK ? use(made, &first, err) : code;
    destroy_candidates(&first, 1);
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
        destroy_candidates(&convolution->used, 1);
        ckpt_memory_put(convolution);
    }
}

ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution)
{
    return convolution->used.bytes > 0 ? ckpt_round_up(convolution->used.bytes, CKPT_ALIGN) + CUDNN_SLACK : 0;
}

const char *ckpt_cudnn_convolution_remark(const ckpt_cudnn_convolution *convolution)
{
    return convolution->used.remark;
}

const char *ckpt_cudnn_convolution_choice(const ckpt_cudnn_convolution *convolution)
{
    return convolution->choice;
}

/* Running. */

static ckpt_code run(const ckpt_cudnn_convolution *convolution, const candidate *one, const void *a, const void *b,
                     void *c, void *workspace, ckpt_err *err)
{
    const cudnn_session *const session = convolution->cuda->cudnn;
    return cudnn_execute(session->handle, one->plan, one->bytes, TENSORS, operation[convolution->direction].id,
                         (const void *const[TENSORS]){a, b, c}, workspace, err);
}

ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a, const void *b, void *c,
                                     void *workspace, ckpt_err *err)
{
    return run(convolution, &convolution->used, a, b, c, workspace, err);
}

typedef struct convolution_trial {
    const ckpt_cudnn_convolution *convolution;
    const candidate *at;
    const void *a, *b;
    void *c, *workspace;
} convolution_trial;

static ckpt_code run_candidate(void *self, int k, ckpt_err *err)
{
    const convolution_trial *const t = self;
    return run(t->convolution, &t->at[k], t->a, t->b, t->c, t->workspace, err);
}

/* The number of products that are summed in an element of c. */
static int64_t terms_of(const ckpt_convolution *s, ckpt_cudnn_direction direction)
{
    const int64_t taps = ckpt_convolution_taps(s);
    return direction == CKPT_CUDNN_FORWARD          ? taps * s->in_channels / s->groups
           : direction == CKPT_CUDNN_INPUT_GRADIENT ? taps * s->out_channels / s->groups
                                                    : ckpt_convolution_out_rows(s);
}

static int64_t result_count(const ckpt_convolution *s, ckpt_cudnn_direction direction)
{
    return direction == CKPT_CUDNN_FORWARD ? ckpt_convolution_out_rows(s) * s->out_channels
           : direction == CKPT_CUDNN_INPUT_GRADIENT
               ? ckpt_convolution_in_rows(s) * s->in_channels
               : s->out_channels * s->in_channels / s->groups * ckpt_convolution_taps(s);
}

ckpt_code ckpt_cudnn_convolution_tune(ckpt_cudnn_convolution *convolution, const void *a, const void *b, void *c,
                                      void *workspace, ckpt_bytes workspace_bytes, ckpt_tuning *tuning, ckpt_err *err)
{
    const ckpt_convolution *const s = &convolution->shape;
    const int64_t count = result_count(s, convolution->direction);
    candidate at[CKPT_TRIAL_CANDIDATES] = {0};
    convolution_trial self = {convolution, at, a, b, c, workspace};
    ckpt_trial trial = {.cuda = convolution->cuda,
                        .what = "convolution",
                        .self = &self,
                        .run = run_candidate,
                        .result = {{c, s->dtype, 1, count, count}},
                        .terms = terms_of(s, convolution->direction)};
    int fastest = 0;
    ckpt_ns took = 0;
    ckpt_code code = choose(convolution, workspace_bytes, NULL, at, CKPT_TRIAL_CANDIDATES, &trial.count, err);
    code = code == CKPT_OK ? ckpt_trial_run(&trial, tuning, &fastest, &took, err) : code;
    code = code == CKPT_OK ? use(convolution, &at[fastest], err) : code;
    destroy_candidates(at, CKPT_TRIAL_CANDIDATES);
    return code;
}
