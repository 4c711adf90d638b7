/* The only file that knows oneDNN (C API, 2.x or 3.x). A call is some primitives: a convolution takes its weights in a
 * blocked order that it chooses itself, so it comes with a reordering from or to the plain order, as in PyTorch.
 * Winograd's takes images in blocks of 16 channels too.
 *
 * Memory objects are created without memory and get their addresses at each run. The thread count is set around
 * creation and runs, because oneDNN splits work, and therefore sums, by the current count. */
#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/formats/tensor.h"
#include "kernels/cpu/product16.h"

enum { STEPS_MAX = 4, USES_MAX = 5, BINDINGS_MAX = 11, WORKSPACE = -1, CACHE_STRIDE = 512, PANEL_GAP = 16 };

/* A CPU engine and its stream hold no work and no buffers; the process has one of each. */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_status_t engine_status;

/* oneDNN's code generator crashes where it is refused memory. It is asked for what code may take before there is any. */
enum { LIBRARY_BYTES = 32 << 20, CALL_BYTES = 4 << 20 };

/* Its own sgemm, on which some implementations are built, is code that is made at the first product. */
static dnnl_status_t make_sgemm(void)
{
    const float a = 1, b = 1;
    float c = 0;
    return dnnl_sgemm('N', 'N', 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
}

static void engine_open(void)
{
    engine_status = ckpt_memory_is_room(LIBRARY_BYTES) ? make_sgemm() : dnnl_out_of_memory;
    if (engine_status == dnnl_success) {
        engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
    }
    if (engine_status == dnnl_success) {
        engine_status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    }
}

/* From here to the last #endif: what differs between 2.x and 3.x. A tensor's description is a structure in 2.x and an
 * object in 3.x; implementations are walked through by an iterator in 2.x and by the primitive's description in 3.x. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout;
#define LAYOUT(desc)     (desc)
#define describe_strides dnnl_memory_desc_create_with_strides
#define describe_tag     dnnl_memory_desc_create_with_tag
#define append_sum(post) dnnl_post_ops_append_sum(post, 1.0F, 0, dnnl_data_type_undef)
#define NO_MORE          dnnl_last_impl_reached
#else
typedef const dnnl_memory_desc_t *layout;
#define LAYOUT(desc)     (&(desc))
#define describe_strides dnnl_memory_desc_init_by_strides
#define describe_tag     dnnl_memory_desc_init_by_tag
#define append_sum(post) dnnl_post_ops_append_sum(post, 1.0F)
#define NO_MORE          dnnl_iterator_ends
#endif

/* What is computed. A matrix product has no more than the layouts. */
typedef enum computation { PRODUCT, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } computation;
typedef struct operation {
    computation kind;
    dnnl_alg_kind_t algorithm;
    layout x, w, bias, y; /* bias NULL: none */
    const dnnl_dim_t *stride, *dilation, *padding;
} operation;

/* The implementations in the library's order of preference: `here` is the one that it stands at. */
typedef struct walk {
    dnnl_primitive_desc_t here;
#if DNNL_VERSION_MAJOR < 3
    dnnl_primitive_desc_iterator_t iterator;
    union {
        dnnl_matmul_desc_t product;
        dnnl_convolution_desc_t convolution;
    } what; /* the iterator points to it */
#endif
} walk;

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t walk_start(walk *w, const operation *o, const_dnnl_primitive_attr_t attr,
                                const_dnnl_primitive_desc_t hint)
{
    switch (o->kind) {
    case PRODUCT: return dnnl_matmul_primitive_desc_create(&w->here, engine, o->x, o->w, o->bias, o->y, attr);
    case FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(&w->here, engine, dnnl_forward_training, o->algorithm,
                                                              o->x, o->w, o->bias, o->y, o->stride, o->dilation,
                                                              o->padding, o->padding, attr);
    case INPUT_GRADIENT:
        return dnnl_convolution_backward_data_primitive_desc_create(&w->here, engine, o->algorithm, o->x, o->w, o->y,
                                                                    o->stride, o->dilation, o->padding, o->padding,
                                                                    hint, attr);
    case WEIGHT_GRADIENT: break;
    }
    return dnnl_convolution_backward_weights_primitive_desc_create(&w->here, engine, o->algorithm, o->x, o->w, o->bias,
                                                                   o->y, o->stride, o->dilation, o->padding, o->padding,
                                                                   hint, attr);
}

static dnnl_status_t walk_next(walk *w)
{
    return dnnl_primitive_desc_next_impl(w->here);
}

static void walk_end(walk *w)
{
    dnnl_primitive_desc_destroy(w->here);
}

static void forget(dnnl_memory_desc_t *desc, int count)
{
    for (int i = 0; i < count; i++) {
        dnnl_memory_desc_destroy(desc[i]);
    }
}
#else
static dnnl_status_t walk_fetch(walk *w)
{
    w->here = dnnl_primitive_desc_iterator_fetch(w->iterator);
    return w->here == NULL ? dnnl_out_of_memory : dnnl_success;
}

static dnnl_status_t walk_start(walk *w, const operation *o, const_dnnl_primitive_attr_t attr,
                                const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t *const c = &w->what.convolution;
    dnnl_status_t status = dnnl_success;
    switch (o->kind) {
    case PRODUCT: status = dnnl_matmul_desc_init(&w->what.product, o->x, o->w, o->bias, o->y); break;
    case FORWARD:
        status = dnnl_dilated_convolution_forward_desc_init(c, dnnl_forward_training, o->algorithm, o->x, o->w, o->bias,
                                                            o->y, o->stride, o->dilation, o->padding, o->padding);
        break;
    case INPUT_GRADIENT:
        status = dnnl_dilated_convolution_backward_data_desc_init(c, o->algorithm, o->x, o->w, o->y, o->stride,
                                                                  o->dilation, o->padding, o->padding);
        break;
    case WEIGHT_GRADIENT:
        status = dnnl_dilated_convolution_backward_weights_desc_init(c, o->algorithm, o->x, o->w, o->bias, o->y,
                                                                     o->stride, o->dilation, o->padding, o->padding);
        break;
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_desc_iterator_create(&w->iterator, &w->what, attr, engine, hint);
    }
    return status == dnnl_success ? walk_fetch(w) : status;
}

static dnnl_status_t walk_next(walk *w)
{
    dnnl_primitive_desc_destroy(w->here);
    w->here = NULL;
    const dnnl_status_t status = dnnl_primitive_desc_iterator_next(w->iterator);
    return status == dnnl_success ? walk_fetch(w) : status;
}

static void walk_end(walk *w)
{
    dnnl_primitive_desc_destroy(w->here);
    if (w->iterator != NULL) {
        dnnl_primitive_desc_iterator_destroy(w->iterator);
    }
}

static void forget(dnnl_memory_desc_t *desc, int count)
{
    (void)desc;
    (void)count;
}
#endif

/* A memory object and its address at a run: pointer[k], or `offset` in the workspace. */
typedef struct binding {
    dnnl_memory_t memory;
    int pointer;
    ckpt_bytes offset;
} binding;

typedef struct step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t use[USES_MAX];
    int use_count;
} step;

/* The right matrix of a product goes through the workspace, so many of its columns at a time, with a gap behind each
 * row; the call is that of one panel. count 0: the call is the whole product. */
typedef struct panels {
    int64_t count, columns, rows, row_stride;
} panels;

struct ckpt_dnn {
    step step[STEPS_MAX];
    int step_count;
    binding binding[BINDINGS_MAX];
    int binding_count;
    panels panels;
    ckpt_bytes blocked_bytes, scratch_bytes; /* of the workspace: what is reordered, then the scratch of all steps */
    int threads;
    const char *algorithm;
    bool plain; /* no primitives, but this */
    ckpt_product16 product;
};

#define DNN_TRY(err, call, what)                                                                                       \
    do {                                                                                                               \
        const dnnl_status_t dnn_try_status = (call);                                                                   \
        if (dnn_try_status != dnnl_success) {                                                                          \
            return dnn_fail((err), dnn_try_status, (what), __LINE__);                                                  \
        }                                                                                                              \
    } while (0)

static ckpt_code dnn_fail(ckpt_err *err, dnnl_status_t status, const char *what, int line)
{
    const ckpt_code code = status == dnnl_out_of_memory ? CKPT_NO_MEMORY : CKPT_DEVICE;
    return ckpt_err_set(err, code, __FILE__, line, "oneDNN refuses %s (%s)", what,
                        status == dnnl_out_of_memory       ? "out of memory"
                        : status == dnnl_invalid_arguments ? "invalid arguments"
                        : status == dnnl_unimplemented     ? "it has no code for this"
                        : status == NO_MORE                ? "nothing fits the workspace"
                        : status == dnnl_runtime_error     ? "runtime error"
                                                           : "other status");
}

const char *ckpt_dnn_version(void)
{
#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

static ckpt_code bind(ckpt_dnn *dnn, layout desc, int pointer, ckpt_bytes offset, int *id, ckpt_err *err)
{
    binding *b = &dnn->binding[dnn->binding_count];
    DNN_TRY(err, dnnl_memory_create(&b->memory, desc, engine, DNNL_MEMORY_NONE), "a memory object");
    b->pointer = pointer;
    b->offset = offset;
    *id = dnn->binding_count++;
    return CKPT_OK;
}

/* Appends a primitive with its arguments: argument kind[i] is binding id[i]. */
static ckpt_code add_step(ckpt_dnn *dnn, const_dnnl_primitive_desc_t desc, const int *kind, const int *id, int count,
                          ckpt_err *err)
{
    step *s = &dnn->step[dnn->step_count];
    DNN_TRY(err, dnnl_primitive_create(&s->primitive, desc), "a primitive");
    dnn->step_count++;
    for (int i = 0; i < count; i++) {
        s->use[s->use_count++] = (dnnl_exec_arg_t){.arg = kind[i], .memory = dnn->binding[id[i]].memory};
    }
    const layout scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    const ckpt_bytes bytes = scratch == NULL ? 0 : (ckpt_bytes)dnnl_memory_desc_get_size(scratch);
    if (bytes > 0) {
        int scratch_id = 0;
        CKPT_TRY(bind(dnn, scratch, WORKSPACE, dnn->blocked_bytes, &scratch_id, err));
        s->use[s->use_count++] =
            (dnnl_exec_arg_t){.arg = DNNL_ARG_SCRATCHPAD, .memory = dnn->binding[scratch_id].memory};
        dnn->scratch_bytes = bytes > dnn->scratch_bytes ? ckpt_round_up(bytes, CKPT_ALIGN) : dnn->scratch_bytes;
    }
    return CKPT_OK;
}

static ckpt_code user_scratch(bool adds, dnnl_primitive_attr_t *attr, ckpt_err *err)
{
    DNN_TRY(err, dnnl_primitive_attr_create(attr), "attributes");
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    dnnl_post_ops_t post = NULL;
    if (status == dnnl_success && adds) {
        status = dnnl_post_ops_create(&post);
        if (status == dnnl_success) {
            status = append_sum(post);
        }
        if (status == dnnl_success) {
            status = dnnl_primitive_attr_set_post_ops(*attr, post);
        }
        dnnl_post_ops_destroy(post);
    }
    if (status != dnnl_success) {
        dnnl_primitive_attr_destroy(*attr);
        return dnn_fail(err, status, "attributes", __LINE__);
    }
    return CKPT_OK;
}

/* Bytes of a tensor if the implementation takes it in another order than it is stored in, else 0. */
static ckpt_bytes reordered_bytes(layout wanted, layout plain)
{
    if (wanted == NULL || plain == NULL || dnnl_memory_desc_equal(wanted, plain)) {
        return 0;
    }
    return ckpt_round_up((ckpt_bytes)dnnl_memory_desc_get_size(wanted), CKPT_ALIGN);
}

/* Implementations on top of the library's own sgemm pack into heap memory outside any scratchpad, and reference
 * implementations are slow: both are used only if there is nothing else. */
static bool is_last_resort(const_dnnl_primitive_desc_t desc)
{
    const char *name = "";
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name);
    return strstr(name, "gemm") != NULL || strncmp(name, "ref", 3) == 0; /* "gemm:jit", "x64:gemm:jit" */
}

/* The properties an implementation must have. */
typedef struct request {
    operation operation;
    const_dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t hint;
    dnnl_query_t weights; /* which descriptor is that of the weights */
    layout plain;         /* how the weights are stored; NULL: as the implementation takes them */
    ckpt_bytes limit;     /* of all temporaries; -1: none */
    bool last_resort;     /* accept those too */
    bool plain_loops;     /* there are loops of our own instead of a last resort */
} request;

static bool fits(const request *r, const_dnnl_primitive_desc_t candidate)
{
    const layout scratch = dnnl_primitive_desc_query_md(candidate, dnnl_query_scratchpad_md, 0);
    const ckpt_bytes bytes =
        ckpt_round_up(scratch == NULL ? 0 : (ckpt_bytes)dnnl_memory_desc_get_size(scratch), CKPT_ALIGN) +
        reordered_bytes(dnnl_primitive_desc_query_md(candidate, r->weights, 0), r->plain);
    return (r->limit < 0 || bytes <= r->limit) && (r->last_resort || !is_last_resort(candidate));
}

/* The first implementation, in the library's order of preference, that meets the request. */
static dnnl_status_t first_fit(const request *r, dnnl_primitive_desc_t *found)
{
    walk w = {0};
    dnnl_status_t status = walk_start(&w, &r->operation, r->attr, r->hint);
    while (status == dnnl_success && !fits(r, w.here)) {
        status = walk_next(&w);
    }
    if (status == dnnl_success) {
        *found = w.here;
        w.here = NULL;
    }
    walk_end(&w);
    return status;
}

/* Sets the thread count with which to make and run the implementation. If a good implementation exists but needs more
 * than the limit, this fails instead of taking a last resort. */
static dnnl_status_t best_fit(request *r, dnnl_primitive_desc_t *found)
{
    dnnl_status_t status = first_fit(r, found);
    if (status != dnnl_success && omp_get_max_threads() > 1) {
        /* Threads that share an output each need a copy of it; one thread needs none. */
        const int threads = omp_get_max_threads();
        omp_set_num_threads(1);
        status = first_fit(r, found);
        omp_set_num_threads(status == dnnl_success ? 1 : threads);
    }
    if (status == dnnl_success) {
        return status;
    }
    dnnl_primitive_desc_t larger = NULL;
    request unlimited = *r;
    unlimited.limit = -1;
    if (first_fit(&unlimited, &larger) == dnnl_success) {
        dnnl_primitive_desc_destroy(larger);
        return status;
    }
    r->last_resort = true;
    return r->plain_loops ? status : first_fit(r, found);
}

/* The library takes sizes as int64_t and uses int inside: larger sizes make it divide by zero. */
static ckpt_code need_int(int64_t size, ckpt_err *err)
{
    if (size > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "oneDNN takes sizes up to %d, found %lld", INT32_MAX, (long long)size);
    }
    return CKPT_OK;
}

static dnnl_data_type_t type_of(ckpt_dtype dtype)
{
    return dtype == CKPT_BFLOAT16 ? dnnl_bf16 : dnnl_f32;
}

static ckpt_code matrix_desc(const ckpt_dnn_matrix *m, dnnl_memory_desc_t *desc, ckpt_err *err)
{
    CKPT_TRY(need_int(m->rows, err));
    CKPT_TRY(need_int(m->columns, err));
    const dnnl_dims_t dims = {m->rows, m->columns};
    const dnnl_dims_t strides = {m->row_stride, m->column_stride};
    DNN_TRY(err, describe_strides(desc, 2, dims, type_of(m->dtype), strides), "a matrix");
    return CKPT_OK;
}

static ckpt_code matmul_steps(ckpt_dnn *dnn, const dnnl_memory_desc_t desc[4], bool bias, dnnl_primitive_desc_t found,
                              ckpt_err *err)
{
    static const int kind[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    int id[4] = {0};
    for (int i = 0; i < (bias ? 4 : 3); i++) {
        CKPT_TRY(bind(dnn, LAYOUT(desc[i]), i, 0, &id[i], err));
    }
    return add_step(dnn, found, kind, id, bias ? 4 : 3, err);
}

typedef struct product {
    const ckpt_dnn_matrix *matrix[3]; /* x, w, y */
    bool bias, adds;
} product;

static ckpt_code matmul_find(ckpt_dnn *dnn, const product *p, dnnl_memory_desc_t desc[4], ckpt_bytes limit,
                             ckpt_err *err)
{
    for (int i = 0; i < 3; i++) {
        CKPT_TRY(matrix_desc(p->matrix[i], &desc[i], err));
    }
    const ckpt_dnn_matrix row = ckpt_dnn_plain(1, p->matrix[2]->columns, p->matrix[1]->dtype);
    const bool narrow = p->matrix[0]->dtype == CKPT_BFLOAT16;
    CKPT_TRY(matrix_desc(&row, &desc[3], err));
    dnnl_primitive_attr_t attr = NULL;
    CKPT_TRY(user_scratch(p->adds, &attr, err));
    dnnl_primitive_desc_t found = NULL;
    request r = {.operation = {.kind = PRODUCT,
                               .x = LAYOUT(desc[0]),
                               .w = LAYOUT(desc[1]),
                               .bias = p->bias ? LAYOUT(desc[3]) : NULL,
                               .y = LAYOUT(desc[2])},
                 .attr = attr,
                 .weights = dnnl_query_weights_md,
                 .limit = limit,
                 .plain_loops = narrow};
    const dnnl_status_t status = best_fit(&r, &found);
    dnnl_primitive_attr_destroy(attr);
    if (narrow && (status == NO_MORE || status == dnnl_unimplemented)) {
        dnn->plain = true;
        dnn->algorithm = "plain";
        dnn->product = (ckpt_product16){
            .x = *p->matrix[0], .w = *p->matrix[1], .y = *p->matrix[2], .bias = p->bias, .adds = p->adds};
        return CKPT_OK;
    }
    DNN_TRY(err, status, "a matrix product");
    dnnl_primitive_desc_query(found, dnnl_query_impl_info_str, 0, (void *)&dnn->algorithm);
    const ckpt_code code = matmul_steps(dnn, desc, p->bias, found, err);
    dnnl_primitive_desc_destroy(found);
    return code;
}

static ckpt_code matmul_make(ckpt_dnn *dnn, const product *p, ckpt_bytes limit, ckpt_err *err)
{
    dnnl_memory_desc_t desc[4] = {0};
    const ckpt_code code = matmul_find(dnn, p, desc, limit, err);
    forget(desc, 4);
    return code;
}

/* Rows of w whose length is a multiple of half a page fall on few sets of the first-level cache. oneDNN copies them
 * elsewhere if the length is a power of two too, and else takes up to twice the time (3,072 columns: GPT-2, BERT, ViT).
 * With few rows of x the copy would cost more than it gains. Panels that leave too little of the limit are not taken. */
static panels matmul_panels(const product *p, ckpt_bytes limit)
{
    enum { LEAST_ROWS = 64, MOST_COLUMNS = 512, LEAST_COLUMNS = 128, SCRATCH = 256 * 1024 };
    const ckpt_dnn_matrix *const w = p->matrix[1];
    if (w->dtype != CKPT_FLOAT32 || w->column_stride != 1 || w->columns % CACHE_STRIDE != 0 ||
        w->row_stride % CACHE_STRIDE != 0 || (w->row_stride & (w->row_stride - 1)) == 0 ||
        p->matrix[0]->rows < LEAST_ROWS || w->rows < LEAST_ROWS) {
        return (panels){0};
    }
    for (int64_t columns = MOST_COLUMNS; columns >= LEAST_COLUMNS; columns /= 2) {
        if (limit < 0 || w->rows * (columns + PANEL_GAP) * (ckpt_bytes)sizeof(float) + SCRATCH <= limit) {
            return (panels){w->columns / columns, columns, w->rows, w->row_stride};
        }
    }
    return (panels){0};
}

static ckpt_code matmul_fill(ckpt_dnn *dnn, const void *what, ckpt_bytes limit, ckpt_err *err)
{
    const product *const p = what;
    const panels cut = matmul_panels(p, limit);
    if (cut.count > 0) {
        const ckpt_dnn_matrix w = {cut.rows, cut.columns, cut.columns + PANEL_GAP, 1, CKPT_FLOAT32};
        ckpt_dnn_matrix y = *p->matrix[2];
        y.columns = cut.columns;
        const product panel = {{p->matrix[0], &w, &y}, p->bias, p->adds};
        dnn->blocked_bytes = ckpt_round_up(w.rows * w.row_stride * (ckpt_bytes)sizeof(float), CKPT_ALIGN);
        const ckpt_code code = matmul_make(dnn, &panel, limit < 0 ? -1 : limit - dnn->blocked_bytes, err);
        if (code != CKPT_DEVICE) {
            dnn->panels = cut;
            return code;
        }
        dnn->blocked_bytes = 0; /* the library wants more than is left */
    }
    return matmul_make(dnn, p, limit, err);
}

/* Makes a call for `threads`: `fill` describes it from `what`. */
static ckpt_code make(ckpt_code (*fill)(ckpt_dnn *dnn, const void *what, ckpt_bytes limit, ckpt_err *err),
                      const void *what, int threads, ckpt_bytes limit, ckpt_dnn **dnn, ckpt_err *err)
{
    pthread_once(&engine_once, engine_open);
    DNN_TRY(err, engine_status, "a CPU engine");
    ckpt_dnn *const made = ckpt_memory_is_room(CALL_BYTES) ? ckpt_memory_get(sizeof *made) : NULL;
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a oneDNN call");
    }
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    const ckpt_code code = fill(made, what, limit, err);
    made->threads = omp_get_max_threads();
    omp_set_num_threads(before);
    if (code != CKPT_OK) {
        ckpt_dnn_destroy(made);
        return code;
    }
    *dnn = made;
    return CKPT_OK;
}

ckpt_code ckpt_dnn_matmul(const ckpt_dnn_matrix *x, const ckpt_dnn_matrix *w, const ckpt_dnn_matrix *y, bool bias,
                          bool adds, int threads, ckpt_bytes limit, ckpt_dnn **dnn, ckpt_err *err)
{
    const product what = {{x, w, y}, bias, adds};
    return make(matmul_fill, &what, threads, limit, dnn, err);
}

/* Descriptions of x, w, y as the library takes them (w in an order that it chooses) and as they are stored, and of the
 * bias. */
enum { X, X_PLAIN, W_ANY, W_FORWARD, W_PLAIN, Y, Y_PLAIN, BIAS, ROLES };
typedef struct convolution {
    dnnl_memory_desc_t of[ROLES];
    dnnl_dims_t stride, padding, dilation;
    dnnl_alg_kind_t algorithm;
} convolution;

static ckpt_code image_desc(const dnnl_dims_t dims, int rank, dnnl_data_type_t type, dnnl_format_tag_t order,
                            dnnl_memory_desc_t *desc, ckpt_err *err)
{
    for (int d = 0; d < rank; d++) {
        CKPT_TRY(need_int(dims[d], err));
    }
    DNN_TRY(err, describe_tag(desc, rank, dims, type, order), "an image");
    return CKPT_OK;
}

static ckpt_code convolution_descs(const ckpt_convolution *s, ckpt_dnn_direction direction, bool winograd,
                                   convolution *c, ckpt_err *err)
{
    const dnnl_data_type_t type = type_of(s->dtype);
    const dnnl_data_type_t filter_type = direction == CKPT_DNN_WEIGHT_GRADIENT ? dnnl_f32 : type;
    const int first = s->volume ? 0 : 1, rank = 5 - first; /* spatial dims are first .. 2 */
    const bool grouped = s->groups > 1;
    const int front = grouped ? 3 : 2;
    dnnl_dims_t x = {s->batch, s->in_channels}, y = {s->batch, s->out_channels}, w = {s->out_channels, s->in_channels};
    const dnnl_dims_t bias = {s->out_channels};
    CKPT_TRY(need_int(s->out_channels, err));
    CKPT_TRY(need_int(s->in_channels, err));
    if (grouped) {
        w[0] = s->groups;
        w[1] = s->out_channels / s->groups;
        w[2] = s->in_channels / s->groups;
    }
    for (int d = first; d < 3; d++) {
        const int k = d - first;
        x[2 + k] = s->in[d];
        y[2 + k] = s->out[d];
        w[front + k] = s->kernel[d];
        CKPT_TRY(need_int(s->kernel[d], err));
        c->stride[k] = s->stride[d];
        c->padding[k] = s->padding[d];
        c->dilation[k] = s->dilation[d] - 1; /* elements between two taps */
    }
    const dnnl_format_tag_t plain = s->volume ? dnnl_ndhwc : dnnl_nhwc, images = winograd ? dnnl_nChw16c : plain;
    const dnnl_format_tag_t filters =
        s->volume ? (grouped ? dnnl_goidhw : dnnl_oidhw) : (grouped ? dnnl_goihw : dnnl_oihw);
    const int w_rank = rank + front - 2;
    c->algorithm = winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    CKPT_TRY(image_desc(x, rank, type, images, &c->of[X], err));
    CKPT_TRY(image_desc(x, rank, type, plain, &c->of[X_PLAIN], err));
    CKPT_TRY(image_desc(y, rank, type, images, &c->of[Y], err));
    CKPT_TRY(image_desc(y, rank, type, plain, &c->of[Y_PLAIN], err));
    DNN_TRY(err, describe_tag(&c->of[BIAS], 1, bias, dnnl_f32, dnnl_x), "a bias");
    DNN_TRY(err, describe_tag(&c->of[W_ANY], w_rank, w, filter_type, dnnl_format_tag_any), "weights");
    DNN_TRY(err, describe_tag(&c->of[W_FORWARD], w_rank, w, type, dnnl_format_tag_any), "weights");
    DNN_TRY(err, describe_tag(&c->of[W_PLAIN], w_rank, w, filter_type, filters), "weights");
    return CKPT_OK;
}

static dnnl_status_t convolution_find(const ckpt_convolution *s, const convolution *c, ckpt_dnn_direction direction,
                                      const_dnnl_primitive_attr_t attr, ckpt_bytes limit, dnnl_primitive_desc_t *found)
{
    request r = {.operation = {.kind = FORWARD,
                               .algorithm = c->algorithm,
                               .x = LAYOUT(c->of[X]),
                               .w = LAYOUT(c->of[W_FORWARD]),
                               .bias = s->bias ? LAYOUT(c->of[BIAS]) : NULL,
                               .y = LAYOUT(c->of[Y]),
                               .stride = c->stride,
                               .dilation = c->dilation,
                               .padding = c->padding},
                 .attr = attr,
                 .weights = dnnl_query_weights_md,
                 .plain = LAYOUT(c->of[W_PLAIN]),
                 .limit = limit,
                 .plain_loops = s->dtype == CKPT_BFLOAT16};
    if (direction == CKPT_DNN_FORWARD) {
        return best_fit(&r, found);
    }
    walk hint = {0};
    dnnl_status_t status = walk_start(&hint, &r.operation, attr, NULL);
    r.hint = hint.here;
    r.operation.w = LAYOUT(c->of[W_ANY]);
    if (direction == CKPT_DNN_INPUT_GRADIENT) {
        r.operation.kind = INPUT_GRADIENT;
    } else {
        r.operation.kind = WEIGHT_GRADIENT;
        r.weights = dnnl_query_diff_weights_md;
    }
    if (status == dnnl_success) {
        status = best_fit(&r, found);
    }
    walk_end(&hint);
    return status;
}

static ckpt_code add_reorder(ckpt_dnn *dnn, layout from, layout to, int from_id, int to_id,
                             const_dnnl_primitive_attr_t attr, ckpt_err *err)
{
    dnnl_primitive_desc_t desc = NULL;
    DNN_TRY(err, dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr), "a reordering");
    const int kind[2] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    const int id[2] = {from_id, to_id};
    const ckpt_code code = add_step(dnn, desc, kind, id, 2, err);
    dnnl_primitive_desc_destroy(desc);
    return code;
}

static ckpt_code convolution_steps(ckpt_dnn *dnn, const ckpt_convolution *s, const convolution *c,
                                   ckpt_dnn_direction direction, const_dnnl_primitive_desc_t found,
                                   const_dnnl_primitive_attr_t attr, ckpt_err *err)
{
    static const int kinds[3][4] = {
        [CKPT_DNN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        [CKPT_DNN_INPUT_GRADIENT] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
        [CKPT_DNN_WEIGHT_GRADIENT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS},
    };
    static const int written_by[3] = {
        [CKPT_DNN_FORWARD] = 2, [CKPT_DNN_INPUT_GRADIENT] = 0, [CKPT_DNN_WEIGHT_GRADIENT] = 1};
    const int written = written_by[direction];
    const dnnl_query_t weights = written == 1 ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const layout plain[3] = {LAYOUT(c->of[X_PLAIN]), LAYOUT(c->of[W_PLAIN]), LAYOUT(c->of[Y_PLAIN])};
    const layout taken[3] = {LAYOUT(c->of[X]), dnnl_primitive_desc_query_md(found, weights, 0), LAYOUT(c->of[Y])};
    const bool bias = s->bias && direction != CKPT_DNN_INPUT_GRADIENT;
    int id[4] = {0}, plain_id[3] = {0};
    for (int i = 0; i < 3; i++) {
        const ckpt_bytes bytes = reordered_bytes(taken[i], plain[i]);
        CKPT_TRY(bind(dnn, plain[i], i, 0, &plain_id[i], err));
        id[i] = plain_id[i];
        if (bytes > 0) {
            CKPT_TRY(bind(dnn, taken[i], WORKSPACE, dnn->blocked_bytes, &id[i], err));
            dnn->blocked_bytes += bytes;
        }
    }
    if (bias) {
        CKPT_TRY(bind(dnn, LAYOUT(c->of[BIAS]), 3, 0, &id[3], err));
    }
    for (int i = 0; i < 3; i++) {
        if (i != written && id[i] != plain_id[i]) {
            CKPT_TRY(add_reorder(dnn, plain[i], taken[i], plain_id[i], id[i], attr, err));
        }
    }
    CKPT_TRY(add_step(dnn, found, kinds[direction], id, bias ? 4 : 3, err));
    return id[written] == plain_id[written]
               ? CKPT_OK
               : add_reorder(dnn, taken[written], plain[written], id[written], plain_id[written], attr, err);
}

typedef struct convolution_call {
    const ckpt_convolution *shape;
    ckpt_dnn_direction direction;
    bool winograd;
} convolution_call;

static ckpt_code convolution_make(ckpt_dnn *dnn, const convolution_call *call, convolution *c, ckpt_bytes limit,
                                  ckpt_err *err)
{
    const ckpt_convolution *const shape = call->shape;
    CKPT_TRY(convolution_descs(shape, call->direction, call->winograd, c, err));
    dnnl_primitive_attr_t attr = NULL;
    CKPT_TRY(user_scratch(false, &attr, err));
    dnnl_primitive_desc_t found = NULL;
    const dnnl_status_t status = convolution_find(shape, c, call->direction, attr, limit, &found);
    ckpt_code code = CKPT_OK;
    if (shape->dtype == CKPT_BFLOAT16 && (status == NO_MORE || status == dnnl_unimplemented)) {
        dnn->plain = true;
        dnn->algorithm = "plain";
        dnn->product = (ckpt_product16){.convolves = true, .shape = *shape, .direction = call->direction};
    } else if (status != dnnl_success) {
        code = dnn_fail(err, status, "a convolution", __LINE__);
    } else {
        dnnl_primitive_desc_query(found, dnnl_query_impl_info_str, 0, (void *)&dnn->algorithm);
        code = convolution_steps(dnn, shape, c, call->direction, found, attr, err);
        dnnl_primitive_desc_destroy(found);
    }
    dnnl_primitive_attr_destroy(attr);
    return code;
}

static ckpt_code convolution_fill(ckpt_dnn *dnn, const void *what, ckpt_bytes limit, ckpt_err *err)
{
    convolution c = {0};
    const ckpt_code code = convolution_make(dnn, what, &c, limit, err);
    forget(c.of, ROLES);
    return code;
}

ckpt_code ckpt_dnn_convolution(const ckpt_convolution *shape, ckpt_dnn_direction direction, int threads,
                               ckpt_bytes limit, ckpt_dnn **dnn, ckpt_err *err)
{
    const convolution_call what = {shape, direction, false};
    return make(convolution_fill, &what, threads, limit, dnn, err);
}

ckpt_code ckpt_dnn_winograd(const ckpt_convolution *shape, ckpt_dnn_direction direction, int threads, ckpt_dnn **dnn,
                            ckpt_err *err)
{
    const convolution_call what = {shape, direction, true};
    return make(convolution_fill, &what, threads, -1, dnn, err);
}

void ckpt_dnn_destroy(ckpt_dnn *dnn)
{
    if (dnn == NULL) {
        return;
    }
    for (int i = 0; i < dnn->step_count; i++) {
        dnnl_primitive_destroy(dnn->step[i].primitive);
    }
    for (int i = 0; i < dnn->binding_count; i++) {
        dnnl_memory_destroy(dnn->binding[i].memory);
    }
    ckpt_memory_put(dnn);
}

ckpt_bytes ckpt_dnn_workspace(const ckpt_dnn *dnn)
{
    return dnn->blocked_bytes + dnn->scratch_bytes;
}

const char *ckpt_dnn_algorithm(const ckpt_dnn *dnn)
{
    return dnn->algorithm;
}

static dnnl_status_t run_steps(const ckpt_dnn *dnn, const void *const pointer[4], void *workspace)
{
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < dnn->binding_count && status == dnnl_success; i++) {
        const binding *b = &dnn->binding[i];
        void *at = b->pointer == WORKSPACE ? (void *)((char *)workspace + b->offset) : (void *)pointer[b->pointer];
        status = dnnl_memory_set_data_handle(b->memory, at);
    }
    for (int i = 0; i < dnn->step_count && status == dnnl_success; i++) {
        const step *s = &dnn->step[i];
        status = dnnl_primitive_execute(s->primitive, stream, s->use_count, s->use);
    }
    return status == dnnl_success ? dnnl_stream_wait(stream) : status;
}

static dnnl_status_t run_panels(const ckpt_dnn *dnn, const void *const pointer[4], void *workspace)
{
    const panels *const p = &dnn->panels;
    dnnl_status_t status = dnnl_success;
    for (int64_t k = 0; k < p->count && status == dnnl_success; k++) {
        const float *const from = (const float *)pointer[1] + k * p->columns;
        float *const to = workspace;
#pragma omp parallel for schedule(static) num_threads(dnn->threads)
        for (int64_t row = 0; row < p->rows; row++) {
            memcpy(to + row * (p->columns + PANEL_GAP), from + row * p->row_stride, (size_t)p->columns * sizeof(float));
        }
        const float *const bias = pointer[3];
        const void *const panel[4] = {pointer[0], to, (const float *)pointer[2] + k * p->columns,
                                      bias == NULL ? NULL : bias + k * p->columns};
        status = run_steps(dnn, panel, workspace);
    }
    return status;
}

ckpt_code ckpt_dnn_run(const ckpt_dnn *dnn, const void *const pointer[4], void *workspace, ckpt_err *err)
{
    if (dnn->plain) {
        ckpt_product16_run(&dnn->product, pointer, dnn->threads);
        return CKPT_OK;
    }
    const int before = omp_get_max_threads();
    omp_set_num_threads(dnn->threads);
    const dnnl_status_t status =
        dnn->panels.count > 0 ? run_panels(dnn, pointer, workspace) : run_steps(dnn, pointer, workspace);
    omp_set_num_threads(before);
    DNN_TRY(err, status, "to run");
    return CKPT_OK;
}
