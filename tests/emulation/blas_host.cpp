/* Matrix products by plain loops, behind the header that cuBLASLt is behind (kernels/cuda/blas.c): work of the compute
 * stream, captured like a kernel. Products are summed in double and rounded once. Every product claims workspace up to
 * what it is allowed and fills it with NaN, so that somebody who keeps a tensor there, or gives less, is found out. */
#include <stdio.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_runtime.h"

extern "C" {
#include "kernels/cuda/blas.h"
}

struct ckpt_blas_product {
    ckpt_blas_shape shape;
    ckpt_bytes claim;
    cudaStream_t stream;
};

namespace
{

enum : ckpt_bytes { CLAIM_MOST = 64 * 1024 };

float read_value(const void *from, ckpt_dtype dtype, int64_t at)
{
    return dtype == CKPT_BFLOAT16 ? __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[at])
                                  : static_cast<const float *>(from)[at];
}

void write_value(void *to, ckpt_dtype dtype, int64_t at, float value)
{
    if (dtype == CKPT_BFLOAT16) {
        static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(value);
    } else {
        static_cast<float *>(to)[at] = value;
    }
}

/* A matrix as [rows x columns] of doubles, whichever way it lies. */
std::vector<double> unpack(const void *from, ckpt_dtype dtype, int64_t rows, int64_t columns, bool turned,
                           int64_t stride)
{
    std::vector<double> all((size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            all[(size_t)(r * columns + c)] = (double)read_value(from, dtype, turned ? c * stride + r : r * stride + c);
        }
    }
    return all;
}

void multiply(const ckpt_blas_shape &s, const void *x, const void *w, void *y, const void *bias)
{
    const std::vector<double> left = unpack(x, s.in, s.rows, s.inner, s.x_turned, s.x_stride);
    const std::vector<double> right = unpack(w, s.in, s.inner, s.columns, s.w_turned, s.w_stride);
    std::vector<double> sum((size_t)s.columns);
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t c = 0; c < s.columns; c++) {
            const double before = s.adds ? (double)read_value(y, s.out, r * s.y_stride + c) : 0;
            sum[(size_t)c] = before + (s.bias ? (double)read_value(bias, s.out, c) : 0);
        }
        for (int64_t k = 0; k < s.inner; k++) {
            const double factor = left[(size_t)(r * s.inner + k)];
            const double *const row = &right[(size_t)(k * s.columns)];
            for (int64_t c = 0; c < s.columns; c++) {
                sum[(size_t)c] += factor * row[c];
            }
        }
        for (int64_t c = 0; c < s.columns; c++) {
            write_value(y, s.out, r * s.y_stride + c, (float)sum[(size_t)c]);
        }
    }
}

void spoil(void *workspace, ckpt_bytes bytes)
{
    if (bytes > 0) {
        memset(workspace, 0xff, (size_t)bytes);
    }
}

bool aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

} // namespace

extern "C" ckpt_code ckpt_blas_open(ckpt_cuda *cuda, ckpt_err *err)
{
    (void)err;
    cuda->blas = cuda;
    return CKPT_OK;
}

extern "C" void ckpt_blas_close(ckpt_cuda *cuda)
{
    cuda->blas = nullptr;
}

extern "C" void ckpt_blas_version(char *text, size_t room)
{
    snprintf(text, room, "products by plain loops");
}

extern "C" ckpt_code ckpt_blas_product_create(ckpt_cuda *cuda, const ckpt_blas_shape *shape, ckpt_bytes limit,
                                              ckpt_blas_product **product, ckpt_err *err)
{
    const ckpt_blas_shape &s = *shape;
    if (s.rows < 1 || s.columns < 1 || s.inner < 1 || s.x_stride < (s.x_turned ? s.rows : s.inner) ||
        s.w_stride < (s.w_turned ? s.inner : s.columns) || s.y_stride < s.columns) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product [%lld x %lld] [%lld x %lld]: impossible strides %lld, %lld, %lld",
                         (long long)s.rows, (long long)s.inner, (long long)s.inner, (long long)s.columns,
                         (long long)s.x_stride, (long long)s.w_stride, (long long)s.y_stride);
    }
    if (cuda->blas == nullptr || (s.out == CKPT_BFLOAT16 && s.in != CKPT_BFLOAT16)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product of %s into %s: no handle, or no such product",
                         ckpt_dtype_name(s.in), ckpt_dtype_name(s.out));
    }
    ckpt_blas_product *const made = new (std::nothrow) ckpt_blas_product{};
    if (made == nullptr) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a matrix product");
    }
    made->shape = s;
    made->claim = limit < 0 ? (ckpt_bytes)CLAIM_MOST : std::min<ckpt_bytes>(limit, CLAIM_MOST);
    made->stream = cuda->stream[CKPT_STREAM_COMPUTE];
    *product = made;
    return CKPT_OK;
}

extern "C" void ckpt_blas_product_destroy(ckpt_blas_product *product)
{
    delete product;
}

extern "C" ckpt_bytes ckpt_blas_product_workspace(const ckpt_blas_product *product)
{
    return product->claim;
}

extern "C" ckpt_code ckpt_blas_product_run(const ckpt_blas_product *product, const void *x, const void *w, void *y,
                                           const void *bias, void *workspace, ckpt_err *err)
{
    const ckpt_blas_shape s = product->shape;
    const ckpt_bytes claim = product->claim;
    if (x == nullptr || w == nullptr || y == nullptr || (s.bias != (bias != nullptr)) ||
        (claim > 0 && workspace == nullptr) || !aligned(x) || !aligned(w) || !aligned(y) || !aligned(bias) ||
        !aligned(workspace)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product: x %p, w %p, y %p, bias %p, workspace %p: missing or not aligned",
                         x, w, y, bias, workspace);
    }
    return ckpt_cuda_check(ckpt_emulated_start(product->stream,
                                               [s, claim, x, w, y, bias, workspace] {
                                                   spoil(workspace, claim);
                                                   multiply(s, x, w, y, bias);
                                                   spoil(workspace, claim);
                                               }),
                           "product", err);
}
