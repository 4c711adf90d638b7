/* Matrix products by cuBLASLt. The library is column-major: our row-major y[rows x columns] is its [columns x rows],
 * and the operands change places. Its A is our w, its B our x, its m our columns, its n our rows.
 *
 * Reproducible: cuBLAS promises the same bits for cublasLtMatmul with the caller's workspace (cuBLAS documentation,
 * "Results Reproducibility"), on one kind of GPU with one version of the library. If the inner dimension is split
 * (split-K), a separate step must add float32 parts in the workspace (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE). Two
 * other schemes are refused: INPLACE adds parts to the result in the order they finish and rounds y to its type in
 * between (NVIDIA/CUDALibrarySamples issue 243); OUTPUT_TYPE rounds parts to the type of the result. The contents of a
 * workspace do not matter: PyTorch and XLA pass memory that is not cleared. Some kernels of an H200 round a bfloat16
 * product to bfloat16 before they add it to y (cuBLASLt 13.1.0, seen 2026-11-26), as a framework does that adds two
 * gradients.
 *
 * An algorithm's name is the library's version and its own description of the algorithm, 8 words in hexadecimal without
 * trailing zeros. cublasLt.h says that the same version can read it back. Other versions are refused. The library and
 * the conditions above check what is read. */
#include "kernels/cuda/blas.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "kernels/cuda/trial.h"

enum {
    RESULTS = 16, /* asked for; the first CKPT_TRIAL_CANDIDATES suitable ones are candidates */
    WORDS = sizeof((cublasLtMatmulAlgo_t *)0)->data / sizeof(uint64_t),
    WORKSPACE_ALIGN =
        256, /* the alignment that cublasLtMatmul may rely on; our workspaces start at multiples of CKPT_ALIGN */
    SLACK = WORKSPACE_ALIGN - CKPT_ALIGN,
    OPERAND_ALIGN = 16,
};
/* cuBLAS's own default on Hopper (cuBLAS documentation, cublasSetWorkspace). */
static const ckpt_bytes recommended = (ckpt_bytes)32 << 20;

typedef struct candidate {
    cublasLtMatmulAlgo_t algo;
    size_t bytes; /* of workspace */
} candidate;

struct ckpt_blas_product {
    ckpt_cuda *cuda;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t x, w, y;
    ckpt_blas_shape shape;
    candidate used;
    char choice[CKPT_PIECE_TEXT];
};

static ckpt_code check(cublasStatus_t status, const char *what, ckpt_err *err)
{
    if (status == CUBLAS_STATUS_SUCCESS) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, status == CUBLAS_STATUS_ALLOC_FAILED ? CKPT_NO_MEMORY : CKPT_DEVICE, "%s: %s (%s)", what,
                     cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

ckpt_code ckpt_blas_open(ckpt_cuda *cuda, ckpt_err *err)
{
    cublasLtHandle_t handle = NULL;
    CKPT_TRY(check(cublasLtCreate(&handle), "cublasLtCreate", err));
    cuda->blas = handle;
    return CKPT_OK;
}

void ckpt_blas_close(ckpt_cuda *cuda)
{
    if (cuda->blas != NULL) {
        (void)cublasLtDestroy((cublasLtHandle_t)cuda->blas);
        cuda->blas = NULL;
    }
}

void ckpt_blas_version(char *text, size_t room)
{
    int part[3] = {0};
    (void)cublasLtGetProperty(MAJOR_VERSION, &part[0]);
    (void)cublasLtGetProperty(MINOR_VERSION, &part[1]);
    (void)cublasLtGetProperty(PATCH_LEVEL, &part[2]);
    snprintf(text, room, "cuBLASLt %d.%d.%d", part[0], part[1], part[2]);
}

static cudaDataType_t type_of(ckpt_dtype dtype)
{
    return dtype == CKPT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The library's layout of a row-major matrix [rows x columns], stored as [columns x rows] if turned; of a batch, the dense
 * first one. */
static ckpt_code make_layout(cublasLtMatrixLayout_t *layout, ckpt_dtype dtype, int64_t rows, int64_t columns,
                             bool turned, int64_t stride, int64_t batch, ckpt_err *err)
{
    const uint64_t fast = (uint64_t)(turned ? rows : columns), slow = (uint64_t)(turned ? columns : rows);
    const int32_t count = (int32_t)batch;
    const int64_t size = rows * columns;
    CKPT_TRY(check(cublasLtMatrixLayoutCreate(layout, type_of(dtype), fast, slow, stride), "cublasLtMatrixLayoutCreate",
                   err));
    if (batch <= 1) {
        return CKPT_OK;
    }
    CKPT_TRY(check(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                   "cublasLtMatrixLayoutSetAttribute", err));
    return check(
        cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &size, sizeof size),
        "cublasLtMatrixLayoutSetAttribute", err);
}

static ckpt_code set_call(ckpt_blas_product *product, cublasLtMatmulDescAttributes_t attribute, const void *value,
                          size_t bytes, ckpt_err *err)
{
    return check(cublasLtMatmulDescSetAttribute(product->call, attribute, value, bytes),
                 "cublasLtMatmulDescSetAttribute", err);
}

static cublasLtHandle_t handle_of(const ckpt_blas_product *product)
{
    return (cublasLtHandle_t)product->cuda->blas;
}

static ckpt_code set_bias(const ckpt_blas_product *product, const void *bias, ckpt_err *err)
{
    return check(cublasLtMatmulDescSetAttribute(product->call, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void *)&bias,
                                                sizeof bias),
                 "cublasLtMatmulDescSetAttribute", err);
}

static ckpt_code make_call(ckpt_blas_product *product, const ckpt_blas_shape *shape, ckpt_err *err)
{
    /* COMPUTE_32F: float32 sums, and float32 operands as they are; TF32 would be COMPUTE_32F_FAST_TF32. */
    CKPT_TRY(check(cublasLtMatmulDescCreate(&product->call, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate",
                   err));
    const int32_t turn_w = shape->w_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t turn_x = shape->x_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_TRANSA, &turn_w, sizeof turn_w, err));
    CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_TRANSB, &turn_x, sizeof turn_x, err));
    if (shape->bias || shape->sums) {
        /* BGRADB sums the library's B, our x, over k; D has as many columns as there are sums. */
        const uint32_t epilogue = shape->sums ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BIAS;
        const int32_t type = (int32_t)type_of(shape->out);
        CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err));
        CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, err));
        /* Never read: it tells the heuristic the alignment. */
        CKPT_TRY(set_bias(product, (const void *)(uintptr_t)OPERAND_ALIGN, err));
    }
    CKPT_TRY(make_layout(&product->w, shape->in, shape->inner, shape->columns, shape->w_turned, shape->w_stride,
                         shape->batch, err));
    CKPT_TRY(make_layout(&product->x, shape->in, shape->rows, shape->inner, shape->x_turned, shape->x_stride,
                         shape->batch, err));
    return make_layout(&product->y, shape->out, shape->rows, shape->columns, false, shape->y_stride, shape->batch, err);
}

/* Layouts have the strides, so only the first element's alignment is missing. splits: algorithms may split the inner
 * dimension. */
static ckpt_code fill_preference(cublasLtMatmulPreference_t preference, size_t room, bool splits, ckpt_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    const char *const what = "cublasLtMatmulPreferenceSetAttribute";
    const uint32_t alignment = OPERAND_ALIGN;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | (splits ? (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0);
    const uint64_t bytes = room;
    for (size_t k = 0; k < sizeof aligned / sizeof aligned[0]; k++) {
        CKPT_TRY(check(cublasLtMatmulPreferenceSetAttribute(preference, aligned[k], &alignment, sizeof alignment), what,
                       err));
    }
    CKPT_TRY(check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &schemes, sizeof schemes),
                   what, err));
    return check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                      sizeof bytes),
                 what, err);
}

static ckpt_code refuse(const ckpt_blas_shape *shape, ckpt_bytes limit, ckpt_err *err)
{
    char batch[32] = "";
    if (shape->batch > 1) {
        snprintf(batch, sizeof batch, ", %lld at once,", (long long)shape->batch);
    }
    return CKPT_FAIL(
        err, CKPT_DEVICE,
        "cuBLASLt has no reproducible %s product [%lld x %lld] [%lld x %lld]%s%s in %lld bytes of workspace",
        ckpt_dtype_name(shape->in), (long long)shape->rows, (long long)shape->inner, (long long)shape->inner,
        (long long)shape->columns, shape->sums ? " with sums" : "", batch, (long long)limit);
}

static bool read_config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                        size_t bytes)
{
    size_t written = 0;
    return cublasLtMatmulAlgoConfigGetAttribute(algo, name, value, bytes, &written) == CUBLAS_STATUS_SUCCESS &&
           written == bytes;
}

static bool may_split(const ckpt_blas_shape *shape)
{
    return shape->inner % CKPT_BLAS_SPLITS == 0;
}

/* Succeeds if the library supports the algorithm within `room` with the same bits in every run. It may split the inner
 * dimension only if this is a multiple of any tile, and must add the parts as the head of this file says. */
static cublasStatus_t admit(const ckpt_blas_product *product, const cublasLtMatmulAlgo_t *algo, size_t room,
                            candidate *one)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    int32_t parts = 0;
    uint32_t scheme = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_of(product), product->call, product->w, product->x,
                                                          product->y, product->y, algo, &result);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    *one = (candidate){*algo, result.workspaceSize};
    const bool fine = result.workspaceSize <= room &&
                      read_config(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts) &&
                      read_config(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme) &&
                      (parts <= 1 || may_split(&product->shape)) &&
                      (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    return fine ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static size_t room_of(ckpt_bytes limit)
{
    return limit > SLACK ? (size_t)((limit - SLACK) / CKPT_ALIGN * CKPT_ALIGN) : 0;
}

/* Asks the library once, and adds the suitable ones of its answers to the candidates. */
static ckpt_code ask_once(const ckpt_blas_product *product, size_t room, bool splits, candidate *at, int *count,
                          ckpt_err *err)
{
    cublasLtMatmulPreference_t preference = NULL;
    CKPT_TRY(check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", err));
    ckpt_code code = fill_preference(preference, room, splits, err);
    cublasLtMatmulHeuristicResult_t found[RESULTS] = {0};
    int answers = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (code == CKPT_OK) {
        status = cublasLtMatmulAlgoGetHeuristic(handle_of(product), product->call, product->w, product->x, product->y,
                                                product->y, preference, RESULTS, found, &answers);
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    CKPT_TRY(code);
    for (int k = 0; status == CUBLAS_STATUS_SUCCESS && k < answers && *count < CKPT_TRIAL_CANDIDATES; k++) {
        *count += found[k].state == CUBLAS_STATUS_SUCCESS &&
                  admit(product, &found[k].algo, room, &at[*count]) == CUBLAS_STATUS_SUCCESS;
    }
    return CKPT_OK;
}

/* Finds up to CKPT_TRIAL_CANDIDATES suitable algorithms, in the library's order; none is an error. For an H200 and a
 * long inner dimension all 16 answers split it, so for those that must not be split we say so. */
static ckpt_code ask(const ckpt_blas_product *product, ckpt_bytes limit, candidate *at, int *count, ckpt_err *err)
{
    const size_t room = room_of(limit);
    *count = 0;
    if (may_split(&product->shape)) {
        CKPT_TRY(ask_once(product, room, true, at, count, err));
    }
    if (*count == 0) {
        CKPT_TRY(ask_once(product, room, false, at, count, err));
    }
    return *count > 0 ? CKPT_OK : refuse(&product->shape, limit, err);
}

/* Makes it the algorithm in use and writes its name. */
static void use(ckpt_blas_product *product, const candidate *one)
{
    int words = WORDS;
    while (words > 1 && one->algo.data[words - 1] == 0) {
        words--;
    }
    product->used = *one;
    int used = snprintf(product->choice, sizeof product->choice, "lt%zu", cublasLtGetVersion());
    for (int k = 0; k < words; k++) {
        used += snprintf(product->choice + used, sizeof product->choice - (size_t)used, ":%" PRIx64, one->algo.data[k]);
    }
}

/* `choice` is a name that `use` wrote; ckpt_device_bind compares it with the name written now. */
static ckpt_code find(ckpt_blas_product *product, const char *choice, ckpt_bytes limit, ckpt_err *err)
{
    char here[CKPT_PIECE_TEXT];
    cublasLtMatmulAlgo_t words = {0};
    candidate named;
    const size_t length = (size_t)snprintf(here, sizeof here, "lt%zu:", cublasLtGetVersion());
    if (strncmp(choice, here, length) != 0) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "the plan wants algorithm \"%.60s\", here is cuBLASLt %zu: profile and plan "
                         "again with this library",
                         choice, cublasLtGetVersion());
    }
    const char *at = choice + length - 1;
    for (int k = 0; k < WORDS && *at == ':'; k++) {
        char *end = NULL;
        words.data[k] = strtoull(at + 1, &end, 16);
        at = end;
    }
    const cublasStatus_t status = admit(product, &words, room_of(limit), &named);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "cuBLASLt %zu cannot do this product by the plan's algorithm \"%.60s\" in %lld bytes of "
                         "workspace (%s): profile and plan again on this GPU",
                         cublasLtGetVersion(), choice, (long long)limit, cublasLtGetStatusString(status));
    }
    use(product, &named);
    return CKPT_OK;
}

static ckpt_code choose(ckpt_blas_product *product, const char *choice, ckpt_bytes limit, ckpt_err *err)
{
    candidate at[CKPT_TRIAL_CANDIDATES];
    int count = 0;
    if (choice != NULL) {
        return find(product, choice, limit, err);
    }
    CKPT_TRY(ask(product, limit, at, &count, err));
    use(product, &at[0]);
    return CKPT_OK;
}

ckpt_code ckpt_blas_product_create(ckpt_cuda *cuda, const ckpt_blas_shape *shape, ckpt_bytes limit, const char *choice,
                                   ckpt_blas_product **product, ckpt_err *err)
{
    ckpt_blas_product *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for a matrix product", sizeof *made);
    }
    made->cuda = cuda;
    made->shape = *shape;
    ckpt_code code = make_call(made, shape, err);
    code = code != CKPT_OK ? code : choose(made, choice, limit < 0 ? recommended : limit, err);
    if (code != CKPT_OK) {
        ckpt_blas_product_destroy(made);
        return code;
    }
    *product = made;
    return CKPT_OK;
}

void ckpt_blas_product_destroy(ckpt_blas_product *product)
{
    if (product == NULL) {
        return;
    }
    if (product->call != NULL) {
        (void)cublasLtMatmulDescDestroy(product->call);
    }
    const cublasLtMatrixLayout_t layout[] = {product->x, product->w, product->y};
    for (int k = 0; k < 3; k++) {
        if (layout[k] != NULL) {
            (void)cublasLtMatrixLayoutDestroy(layout[k]);
        }
    }
    ckpt_memory_put(product);
}

ckpt_bytes ckpt_blas_product_workspace(const ckpt_blas_product *product)
{
    return product->used.bytes > 0 ? ckpt_round_up((ckpt_bytes)product->used.bytes, CKPT_ALIGN) + SLACK : 0;
}

const char *ckpt_blas_product_choice(const ckpt_blas_product *product)
{
    return product->choice;
}

static ckpt_code run(const ckpt_blas_product *product, const candidate *one, const void *x, const void *w, void *y,
                     void *bias, void *workspace, ckpt_err *err)
{
    const float alpha = 1, beta = product->shape.adds ? 1 : 0;
    if (product->shape.bias || product->shape.sums) {
        CKPT_TRY(set_bias(product, bias, err));
    }
    const uintptr_t up = ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    return check(cublasLtMatmul(handle_of(product), product->call, &alpha, w, product->w, x, product->x, &beta, y,
                                product->y, y, product->y, &one->algo, one->bytes > 0 ? (void *)up : NULL, one->bytes,
                                product->cuda->stream[CKPT_STREAM_COMPUTE]),
                 "cublasLtMatmul", err);
}

ckpt_code ckpt_blas_product_run(const ckpt_blas_product *product, const void *x, const void *w, void *y, void *bias,
                                void *workspace, ckpt_err *err)
{
    return run(product, &product->used, x, w, y, bias, workspace, err);
}

typedef struct product_trial {
    const ckpt_blas_product *product;
    const candidate *at;
    const void *x, *w;
    void *y, *bias, *workspace;
} product_trial;

static ckpt_code run_candidate(void *self, int k, ckpt_err *err)
{
    const product_trial *const t = self;
    return run(t->product, &t->at[k], t->x, t->w, t->y, t->bias, t->workspace, err);
}

ckpt_code ckpt_blas_product_tune(ckpt_blas_product *product, const void *x, const void *w, void *y, void *bias,
                                 void *workspace, ckpt_bytes workspace_bytes, ckpt_tuning *tuning, ckpt_ns *took,
                                 ckpt_err *err)
{
    const ckpt_blas_shape *const s = &product->shape;
    candidate at[CKPT_TRIAL_CANDIDATES];
    product_trial self = {product, at, x, w, y, bias, workspace};
    ckpt_trial trial = {.cuda = product->cuda,
                        .what = "product",
                        .self = &self,
                        .run = run_candidate,
                        .result = {{y, s->out, s->rows * (s->batch > 1 ? s->batch : 1), s->columns, s->y_stride}},
                        .terms = s->inner};
    if (s->sums) {
        trial.result[1] = (ckpt_trial_result){bias, s->out, 1, s->rows, s->rows};
    }
    int fastest = 0;
    CKPT_TRY(ask(product, workspace_bytes, at, &trial.count, err));
    CKPT_TRY(ckpt_trial_run(&trial, tuning, &fastest, took, err));
    use(product, &at[fastest]);
    return CKPT_OK;
}
