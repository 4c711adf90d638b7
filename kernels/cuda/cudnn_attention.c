/* Attention by cuDNN 9's graph API. The graphs are those that cudnn-frontend makes of its sdpa and sdpa_backward nodes
 * (include/cudnn_frontend/node/scaled_dot_product_flash_attention.h). cuDNN recognises them as one pattern and runs one
 * kernel, in forward without a T x T matrix. [batch, heads, tokens, size] is B, H, S, D in its documentation.
 *
 * Same bits: no engine notes that these graphs are irreproducible, so notes do not help. The graph itself makes
 * backward reproducible, as in cudnn-frontend with set_deterministic_algorithm: dQ is the output of a product, for
 * which cuDNN writes dS, [tokens, tokens] in bfloat16, to its workspace. The other graph adds parts of dQ in float32 in
 * any order. cudnn-frontend's docs/operations/Attention.md lists forward and this backward as deterministic on compute
 * capability 8.x, 9.0 and 10.0, with heads of up to 128.
 *
 * Recording: engines must note that they support CUDA graphs.
 *
 * Stats are max + ln(sum of exponentials), float32, our lse; backward needs them packed (until 9.26). */
#include "kernels/cuda/cudnn_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"
#include "kernels/cuda/cudnn_impl.h"

typedef cudnnBackendDescriptor_t descriptor;

enum {
    LEAST_VERSION = 91002, /* cudnn-frontend refuses 9.10.0 and 9.10.1 for bugs; older versions have finite masks */
    OPERATIONS_MAX = 24,
    ENGINES_MAX = 16,
    OPERAND_ALIGN = 16,
    ROWS_ALIGN = 4, /* of lse and delta, whose pieces may start anywhere */
};

/* Unique ids: tensors of the call, numbers passed by value; from VIRTUAL_ID on, tensors inside the kernel. */
enum { Q_ID = 1, K_ID, V_ID, O_ID, LSE_ID, DO_ID, DQ_ID, DK_ID, DV_ID, DELTA_ID, SCALE_ID, MASKED_ID, ONE_ID, IDS };
enum { VIRTUAL_ID = 100 };

struct ckpt_cudnn_attention {
    struct ckpt_cudnn_attention *next;
    ckpt_cudnn_attention_shape shape;
    cudnnHandle_t handle;
    descriptor config, plan;
    int64_t bytes;
    float scale, masked, one; /* cuDNN reads them when a run starts */
    char engine[CKPT_PIECE_TEXT];
};

/* A graph under construction. After the first failure, later steps do nothing. */
typedef struct graph {
    const ckpt_cudnn_attention_shape *s;
    cudnn_owned owned;
    descriptor operation[OPERATIONS_MAX];
    int operations;
    int64_t next_id;
    ckpt_code code;
    ckpt_err *err;
} graph;

#define STEP(g, call)                                                                                                  \
    do {                                                                                                               \
        if ((g)->code == CKPT_OK) {                                                                                    \
            (g)->code = (call);                                                                                        \
        }                                                                                                              \
    } while (0)

static descriptor make(graph *g, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    STEP(g, cudnn_make(&g->owned, type, &made, g->err));
    return made;
}

static void set(graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *value)
{
    STEP(g, cudnn_set(d, name, type, count, value, g->err));
}

static void join(graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    STEP(g, cudnn_set_descriptor(d, name, value, g->err));
}

static void add_operation(graph *g, descriptor operation)
{
    STEP(g, cudnn_finalize(operation, g->err));
    STEP(g, g->operations < OPERATIONS_MAX ? CKPT_OK : CKPT_FAIL(g->err, CKPT_DEVICE, "too many operations"));
    if (g->code == CKPT_OK) {
        g->operation[g->operations++] = operation;
    }
}

/* Tensors. */

typedef struct layout {
    int64_t dim[4], stride[4];
} layout;

static descriptor tensor(graph *g, int64_t id, cudnnDataType_t type, const layout *l)
{
    const bool virtual = id == 0, by_value = id == SCALE_ID || id == MASKED_ID || id == ONE_ID;
    const int64_t unique = virtual ? g->next_id++ : id,
                  alignment = type == CUDNN_DATA_FLOAT ? ROWS_ALIGN : OPERAND_ALIGN;
    const descriptor t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, l->dim);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, l->stride);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &virtual);
    set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    STEP(g, cudnn_finalize(t, g->err));
    return t;
}

/* [tokens, tokens] of every head; turned: with queries and keys exchanged. */
static descriptor pairs(graph *g, cudnnDataType_t type, bool turned)
{
    const int64_t T = g->s->tokens;
    const layout l = {{g->s->batch, g->s->heads, T, T}, {g->s->heads * T * T, T * T, turned ? 1 : T, turned ? T : 1}};
    return tensor(g, 0, type, &l);
}

/* A number per query. */
static descriptor column(graph *g, int64_t id)
{
    const int64_t T = g->s->tokens;
    const layout l = {{g->s->batch, g->s->heads, T, 1}, {g->s->heads * T, T, 1, 1}};
    return tensor(g, id, CUDNN_DATA_FLOAT, &l);
}

static descriptor number(graph *g, int64_t id)
{
    const layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(g, id, CUDNN_DATA_FLOAT, &one);
}

/* [tokens, size] of every head, in a tensor whose tokens are `row` elements apart; turned: [size, tokens]. */
static descriptor rows(graph *g, int64_t id, cudnnDataType_t type, int64_t row, bool turned)
{
    const int64_t T = g->s->tokens, D = g->s->size;
    const layout l = {{g->s->batch, g->s->heads, turned ? D : T, turned ? T : D},
                      {T * row, D, turned ? 1 : row, turned ? row : 1}};
    return tensor(g, id, type, &l);
}

static descriptor in_rows(graph *g, int64_t id, bool turned)
{
    return rows(g, id, CUDNN_DATA_BFLOAT16, g->s->in_row, turned);
}

static descriptor out_rows(graph *g, int64_t id)
{
    return rows(g, id, CUDNN_DATA_BFLOAT16, g->s->out_row, false);
}

/* Operations. */

/* y = mode(x, b), or with t: x where t is true, else b. axis: of GEN_INDEX, else -1. Returns y. */
static descriptor pointwise(graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t sums, int64_t axis, descriptor x,
                            descriptor b, descriptor t, descriptor y)
{
    const descriptor how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    if (axis >= 0) {
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    }
    STEP(g, cudnn_finalize(how, g->err));
    const descriptor operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    join(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    join(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL) {
        join(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    }
    if (t != NULL) {
        join(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    }
    join(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, operation);
    return y;
}

static descriptor combine(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor y)
{
    return pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

static descriptor reduce(graph *g, cudnnReduceTensorOp_t mode, descriptor x, descriptor y)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const descriptor how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    STEP(g, cudnn_finalize(how, g->err));
    const descriptor operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    join(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    join(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    join(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, operation);
    return y;
}

static descriptor product(graph *g, descriptor a, descriptor b, descriptor c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const descriptor how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    STEP(g, cudnn_finalize(how, g->err));
    const descriptor operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    join(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    join(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    join(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    join(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_operation(g, operation);
    return c;
}

/* Transposes the view. */
static descriptor turn(graph *g, descriptor x, descriptor y)
{
    const descriptor operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    join(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    join(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, operation);
    return y;
}

/* Scores of keys behind the query become -infinity. */
static descriptor mask(graph *g, descriptor scores)
{
    const cudnnDataType_t whole = CUDNN_DATA_INT32, truth = CUDNN_DATA_BOOLEAN;
    const descriptor query =
        pointwise(g, CUDNN_POINTWISE_GEN_INDEX, whole, 2, scores, NULL, NULL, pairs(g, whole, false));
    const descriptor key =
        pointwise(g, CUDNN_POINTWISE_GEN_INDEX, whole, 3, scores, NULL, NULL, pairs(g, whole, false));
    const descriptor seen = pointwise(g, CUDNN_POINTWISE_CMP_GE, truth, -1, query, key, NULL, pairs(g, truth, false));
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores, number(g, MASKED_ID), seen,
                     pairs(g, CUDNN_DATA_FLOAT, false));
}

static descriptor floats(graph *g)
{
    return pairs(g, CUDNN_DATA_FLOAT, false);
}

/* S = scale Q K^T masked; lse = max + log(sum exp(S - max)); O = (exp(S - max) / sum) V */
static void forward_graph(graph *g)
{
    const descriptor q = in_rows(g, Q_ID, false), k = in_rows(g, K_ID, true), v = in_rows(g, V_ID, false);
    descriptor s = product(g, q, k, floats(g));
    s = combine(g, CUDNN_POINTWISE_MUL, s, number(g, SCALE_ID), floats(g));
    s = g->s->causal ? mask(g, s) : s;
    const descriptor most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, column(g, 0));
    s = combine(g, CUDNN_POINTWISE_SUB, s, most, floats(g));
    s = combine(g, CUDNN_POINTWISE_EXP, s, NULL, floats(g));
    const descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, column(g, 0));
    const descriptor logarithm = combine(g, CUDNN_POINTWISE_LOG, sum, NULL, column(g, 0));
    (void)combine(g, CUDNN_POINTWISE_ADD, most, logarithm, column(g, LSE_ID));
    const descriptor p = combine(g, CUDNN_POINTWISE_DIV, s, sum, pairs(g, CUDNN_DATA_BFLOAT16, false));
    (void)product(g, p, v, out_rows(g, O_ID));
}

/* delta = rowsum(dO O); P = exp(S - lse); dV = P^T dO; dS = scale P (dO V^T - delta); dK = dS^T Q; dQ = dS K */
static void backward_graph(graph *g)
{
    const descriptor q = in_rows(g, Q_ID, false), kt = in_rows(g, K_ID, true), vt = in_rows(g, V_ID, true);
    const descriptor o = out_rows(g, O_ID), dO = out_rows(g, DO_ID), scale = number(g, SCALE_ID);
    descriptor d = combine(g, CUDNN_POINTWISE_MUL, dO, o, rows(g, 0, CUDNN_DATA_FLOAT, g->s->out_row, false));
    d = reduce(g, CUDNN_REDUCE_TENSOR_ADD, d, column(g, 0));
    const descriptor delta = combine(g, CUDNN_POINTWISE_MUL, d, number(g, ONE_ID), column(g, DELTA_ID));

    descriptor s = product(g, q, kt, floats(g));
    s = combine(g, CUDNN_POINTWISE_MUL, s, scale, floats(g));
    s = combine(g, CUDNN_POINTWISE_SUB, s, column(g, LSE_ID), floats(g));
    s = g->s->causal ? mask(g, s) : s;
    const descriptor p = combine(g, CUDNN_POINTWISE_EXP, s, NULL, floats(g));
    const descriptor pt = turn(g, p, pairs(g, CUDNN_DATA_BFLOAT16, true));
    (void)product(g, pt, dO, in_rows(g, DV_ID, false));

    descriptor ds = product(g, dO, vt, floats(g));
    ds = combine(g, CUDNN_POINTWISE_SUB, ds, delta, floats(g));
    ds = combine(g, CUDNN_POINTWISE_MUL, ds, p, floats(g));
    ds = combine(g, CUDNN_POINTWISE_MUL, ds, scale, pairs(g, CUDNN_DATA_BFLOAT16, false));
    const descriptor dst = turn(g, ds, pairs(g, CUDNN_DATA_BFLOAT16, true));
    (void)product(g, dst, q, in_rows(g, DK_ID, false));
    (void)product(g, ds, turn(g, kt, in_rows(g, 0, false)), in_rows(g, DQ_ID, false));
}

static descriptor finish_graph(graph *g, const cudnn_session *session)
{
    const descriptor made = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
        (const void *)g->operation);
    if (session->handle != NULL) {
        set(g, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&session->handle);
    }
    STEP(g, cudnn_finalize(made, g->err));
    return made;
}

/* Choosing an engine: the first of the heuristics that has a plan and acceptable notes. */

static bool can_be_recorded(descriptor engine)
{
    cudnnBackendBehaviorNote_t note[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, note) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++) {
        if (note[i] == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API) {
            return true;
        }
    }
    return false;
}

/* CKPT_OK with made->plan NULL: the engine does not suit; `err` has the reason. */
static ckpt_code try_config(ckpt_cudnn_attention *made, const cudnn_session *session, descriptor config, ckpt_err *err)
{
    descriptor engine = NULL;
    bool tensor_cores = false;
    ckpt_code code = cudnn_engine(config, &engine, err);
    if (code == CKPT_OK && !(cudnn_is_allowed(engine, false, &tensor_cores) && can_be_recorded(engine))) {
        code = CKPT_FAIL(err, CKPT_DEVICE, "cuDNN's engine rounds further or cannot be recorded");
    }
    if (code == CKPT_OK) {
        code = cudnn_plan(session, config, &made->plan, &made->bytes, err);
    }
    if (code == CKPT_OK) {
        code = cudnn_name(config, made->engine, err);
    }
    if (code != CKPT_OK) {
        cudnn_destroy(made->plan);
        made->plan = NULL;
    }
    cudnn_destroy(engine);
    return code == CKPT_NO_MEMORY ? code : CKPT_OK;
}

static ckpt_code try_engines(ckpt_cudnn_attention *made, const cudnn_session *session, descriptor heuristic,
                             ckpt_err *err)
{
    descriptor config[ENGINES_MAX] = {0};
    int64_t count = 0;
    ckpt_code code = CKPT_OK;
    for (int i = 0; i < ENGINES_MAX && code == CKPT_OK; i++) {
        code = cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]),
                           "cudnnBackendCreateDescriptor", err);
    }
    if (code == CKPT_OK) {
        code = cudnn_check(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES_MAX, &count, (void *)config),
                           "asking cuDNN for engines", err);
    }
    if (code == CKPT_OK && count == 0) {
        (void)CKPT_FAIL(err, CKPT_DEVICE, "cuDNN has no engine for it (attention needs libnvrtc.so.13 beside cuDNN)");
    }
    for (int64_t i = 0; i < count && code == CKPT_OK && made->plan == NULL; i++) {
        code = try_config(made, session, config[i], err);
        if (made->plan != NULL) {
            made->config = config[i];
            config[i] = NULL;
        }
    }
    for (int i = 0; i < ENGINES_MAX; i++) {
        cudnn_destroy(config[i]);
    }
    return code;
}

static ckpt_code choose(ckpt_cudnn_attention *made, const cudnn_session *session, graph *g)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    if (made->shape.backward) {
        backward_graph(g);
    } else {
        forward_graph(g);
    }
    const descriptor whole = finish_graph(g, session), heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    join(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (session->gpu != NULL) {
        join(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, session->gpu);
    }
    STEP(g, cudnn_finalize(heuristic, g->err));
    STEP(g, try_engines(made, session, heuristic, g->err));
    STEP(g, made->plan != NULL ? CKPT_OK : CKPT_DEVICE);
    return g->code;
}

/* The device keeps attentions. */

static bool is_same(const ckpt_cudnn_attention_shape *a, const ckpt_cudnn_attention_shape *b)
{
    return a->batch == b->batch && a->heads == b->heads && a->tokens == b->tokens && a->size == b->size &&
           a->in_row == b->in_row && a->out_row == b->out_row && a->causal == b->causal && a->backward == b->backward;
}

static void destroy(ckpt_cudnn_attention *attention)
{
    cudnn_destroy(attention->plan);
    cudnn_destroy(attention->config);
    ckpt_memory_put(attention);
}

ckpt_code ckpt_cudnn_attention_get(ckpt_cuda *cuda, const ckpt_cudnn_attention_shape *shape,
                                   const ckpt_cudnn_attention **attention, ckpt_err *err)
{
    for (ckpt_cudnn_attention *known = cuda->attention; known != NULL; known = known->next) {
        if (is_same(&known->shape, shape)) {
            *attention = known;
            return CKPT_OK;
        }
    }
    if (cudnnGetVersion() < LEAST_VERSION) {
        return CKPT_FAIL(err, CKPT_DEVICE, "attention needs cuDNN 9.10.2 or newer");
    }
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    const cudnn_session *const session = cuda->cudnn;
    ckpt_cudnn_attention *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for an attention", sizeof *made);
    }
    made->shape = *shape;
    made->handle = session->handle;
    made->scale = (float)(1 / sqrt((double)shape->size));
    made->masked = -INFINITY;
    made->one = 1;
    graph g = {.s = &made->shape, .next_id = VIRTUAL_ID, .err = err};
    const ckpt_code code = choose(made, session, &g);
    cudnn_destroy_owned(&g.owned);
    if (code != CKPT_OK) {
        destroy(made);
        return code;
    }
    made->next = cuda->attention;
    cuda->attention = made;
    *attention = made;
    return CKPT_OK;
}

void ckpt_cudnn_attention_close(ckpt_cuda *cuda)
{
    while (cuda->attention != NULL) {
        ckpt_cudnn_attention *const first = cuda->attention;
        cuda->attention = first->next;
        destroy(first);
    }
}

ckpt_bytes ckpt_cudnn_attention_workspace(const ckpt_cudnn_attention *attention)
{
    return attention->bytes > 0 ? ckpt_round_up(attention->bytes, CKPT_ALIGN) + CUDNN_SLACK : 0;
}

const char *ckpt_cudnn_attention_engine(const ckpt_cudnn_attention *attention)
{
    return attention->engine;
}

/* Running: an address for each id of the graph. */

typedef struct addresses {
    int64_t id[IDS];
    const void *at[IDS];
    int count;
} addresses;

static void put(addresses *a, int64_t id, const void *at)
{
    a->id[a->count] = id;
    a->at[a->count++] = at;
}

static void put_all(addresses *a, const ckpt_cudnn_attention *attention, const ckpt_cudnn_attention_tensors *t)
{
    put(a, Q_ID, t->q);
    put(a, K_ID, t->k);
    put(a, V_ID, t->v);
    put(a, O_ID, t->o);
    put(a, LSE_ID, t->lse);
    put(a, SCALE_ID, &attention->scale);
    if (attention->shape.causal) {
        put(a, MASKED_ID, &attention->masked);
    }
    if (attention->shape.backward) {
        put(a, DO_ID, t->dO);
        put(a, DQ_ID, t->dq);
        put(a, DK_ID, t->dk);
        put(a, DV_ID, t->dv);
        put(a, DELTA_ID, t->delta);
        put(a, ONE_ID, &attention->one);
    }
}

ckpt_code ckpt_cudnn_attention_run(const ckpt_cudnn_attention *attention, const ckpt_cudnn_attention_tensors *tensors,
                                   void *workspace, ckpt_err *err)
{
    addresses a = {.count = 0};
    put_all(&a, attention, tensors);
    return cudnn_execute(attention->handle, attention->plan, attention->bytes, a.count, a.id, a.at, workspace, err);
}
