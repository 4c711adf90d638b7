/* Matrix products by cuBLASLt. The library thinks in columns: a row-major y[rows x columns] is its column-major
 * [columns x rows], so the operands change places: its A is our w, its B our x, its m our columns, its n our rows.
 *
 * Reproducible: cuBLAS promises the same bits for cublasLtMatmul with a workspace of the caller's (cuBLAS
 * documentation, "Results Reproducibility"), on one kind of GPU and one version of the library. An inner dimension cut
 * in parts (split-K) may only be put together from float32 parts in the workspace, by a step of its own
 * (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE). Adding the parts up in the result as they come (INPLACE: what is added
 * first is a matter of counters, and y is rounded to its type between parts; NVIDIA/CUDALibrarySamples issue 243) and
 * parts rounded to the type of the result (OUTPUT_TYPE) are both refused. What a workspace held before does not matter:
 * PyTorch and XLA give the library memory that nobody cleared. None of this has been seen on a GPU yet. */
#include "kernels/cuda/blas.h"

#include <cublasLt.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"

enum {
    RESULTS = 8,
    WORKSPACE_ALIGN = 256, /* what cublasLtMatmul may expect of a workspace; ours start at multiples of CKPT_ALIGN */
    SLACK = WORKSPACE_ALIGN - CKPT_ALIGN,
    OPERAND_ALIGN = 16,
};
/* cuBLAS's own default on Hopper (cuBLAS documentation, cublasSetWorkspace). */
static const ckpt_bytes recommended = (ckpt_bytes)32 << 20;

struct ckpt_blas_product {
    cublasLtHandle_t handle;
    cudaStream_t stream;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t x, w, y;
    cublasLtMatmulAlgo_t algo;
    size_t algo_bytes;
    bool bias, adds;
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

/* A row-major matrix [rows x columns], or [columns x rows] when it lies turned, in the library's eyes. */
static ckpt_code make_layout(cublasLtMatrixLayout_t *layout, ckpt_dtype dtype, int64_t rows, int64_t columns,
                             bool turned, int64_t stride, ckpt_err *err)
{
    const uint64_t fast = (uint64_t)(turned ? rows : columns), slow = (uint64_t)(turned ? columns : rows);
    return check(cublasLtMatrixLayoutCreate(layout, type_of(dtype), fast, slow, stride), "cublasLtMatrixLayoutCreate",
                 err);
}

static ckpt_code set_call(ckpt_blas_product *product, cublasLtMatmulDescAttributes_t attribute, const void *value,
                          size_t bytes, ckpt_err *err)
{
    return check(cublasLtMatmulDescSetAttribute(product->call, attribute, value, bytes),
                 "cublasLtMatmulDescSetAttribute", err);
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
    if (shape->bias) {
        const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const int32_t type = (int32_t)type_of(shape->out);
        CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err));
        CKPT_TRY(set_call(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, err));
        /* Never read: it tells the heuristic which alignment to count on. */
        CKPT_TRY(set_bias(product, (const void *)(uintptr_t)OPERAND_ALIGN, err));
    }
    CKPT_TRY(make_layout(&product->w, shape->in, shape->inner, shape->columns, shape->w_turned, shape->w_stride, err));
    CKPT_TRY(make_layout(&product->x, shape->in, shape->rows, shape->inner, shape->x_turned, shape->x_stride, err));
    return make_layout(&product->y, shape->out, shape->rows, shape->columns, false, shape->y_stride, err);
}

/* Strides are part of the layouts, so only the first element's alignment is left to promise. */
static ckpt_code fill_preference(cublasLtMatmulPreference_t preference, size_t room, ckpt_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    const char *const what = "cublasLtMatmulPreferenceSetAttribute";
    const uint32_t alignment = OPERAND_ALIGN;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
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

static ckpt_code refuse(const ckpt_blas_shape *shape, ckpt_bytes limit, const char *why, ckpt_err *err)
{
    return CKPT_FAIL(
        err, CKPT_DEVICE,
        "cuBLASLt has no reproducible %s product [%lld x %lld] [%lld x %lld] in %lld bytes of workspace%s%s",
        ckpt_dtype_name(shape->in), (long long)shape->rows, (long long)shape->inner, (long long)shape->inner,
        (long long)shape->columns, (long long)limit, why[0] == '\0' ? "" : ": ", why);
}

/* The first of the library's answers that keeps to the limit. */
static ckpt_code choose(ckpt_blas_product *product, const ckpt_blas_shape *shape, ckpt_bytes limit, ckpt_err *err)
{
    const size_t room = limit > SLACK ? (size_t)((limit - SLACK) / CKPT_ALIGN * CKPT_ALIGN) : 0;
    cublasLtMatmulPreference_t preference = NULL;
    CKPT_TRY(check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", err));
    ckpt_code code = fill_preference(preference, room, err);
    cublasLtMatmulHeuristicResult_t found[RESULTS] = {0};
    int count = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (code == CKPT_OK) {
        status = cublasLtMatmulAlgoGetHeuristic(product->handle, product->call, product->w, product->x, product->y,
                                                product->y, preference, RESULTS, found, &count);
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    CKPT_TRY(code);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return refuse(shape, limit, cublasLtGetStatusString(status), err);
    }
    for (int k = 0; k < count; k++) {
        if (found[k].state == CUBLAS_STATUS_SUCCESS && found[k].workspaceSize <= room) {
            product->algo = found[k].algo;
            product->algo_bytes = found[k].workspaceSize;
            return CKPT_OK;
        }
    }
    return refuse(shape, limit, "", err);
}

ckpt_code ckpt_blas_product_create(ckpt_cuda *cuda, const ckpt_blas_shape *shape, ckpt_bytes limit,
                                   ckpt_blas_product **product, ckpt_err *err)
{
    ckpt_blas_product *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for a matrix product", sizeof *made);
    }
    made->handle = (cublasLtHandle_t)cuda->blas;
    made->stream = cuda->stream[CKPT_STREAM_COMPUTE];
    made->bias = shape->bias;
    made->adds = shape->adds;
    ckpt_code code = make_call(made, shape, err);
    code = code != CKPT_OK ? code : choose(made, shape, limit < 0 ? recommended : limit, err);
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
    return product->algo_bytes > 0 ? ckpt_round_up((ckpt_bytes)product->algo_bytes, CKPT_ALIGN) + SLACK : 0;
}

ckpt_code ckpt_blas_product_run(const ckpt_blas_product *product, const void *x, const void *w, void *y,
                                const void *bias, void *workspace, ckpt_err *err)
{
    const float alpha = 1, beta = product->adds ? 1 : 0;
    if (product->bias) {
        CKPT_TRY(set_bias(product, bias, err));
    }
    const uintptr_t up = ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    return check(cublasLtMatmul(product->handle, product->call, &alpha, w, product->w, x, product->x, &beta, y,
                                product->y, y, product->y, &product->algo, product->algo_bytes > 0 ? (void *)up : NULL,
                                product->algo_bytes, product->stream),
                 "cublasLtMatmul", err);
}
