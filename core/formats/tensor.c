/* Shapes are checked once, when they are made; afterwards their products cannot overflow. */
#include "core/formats/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const int64_t BYTES_LIMIT = (int64_t)1 << 62;

const char *ckpt_dtype_name(ckpt_dtype dtype)
{
    switch (dtype) {
    case CKPT_FLOAT32: return "float32";
    case CKPT_INT32: return "int32";
    case CKPT_BFLOAT16: return "bfloat16";
    case CKPT_UINT8: return "uint8";
    }
    return "unknown";
}

ckpt_bytes ckpt_dtype_bytes(ckpt_dtype dtype)
{
    switch (dtype) {
    case CKPT_FLOAT32:
    case CKPT_INT32: return 4;
    case CKPT_BFLOAT16: return 2;
    case CKPT_UINT8: return 1;
    }
    return 0;
}

bool ckpt_dtype_is_float(ckpt_dtype dtype)
{
    return dtype == CKPT_FLOAT32 || dtype == CKPT_BFLOAT16;
}

uint16_t ckpt_bfloat16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) {
        return (uint16_t)(bits >> 16 | 0x40); /* quiet, with its sign */
    }
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* IEEE 754-2008 binary16: subnormals are fractions of 2^-24. */
float ckpt_float16_value(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3FFu;
    uint32_t word = sign;
    float value = 0;
    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    word |= (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &word, sizeof value);
    return value;
}

float ckpt_bfloat16_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

ckpt_code ckpt_shape_check(const ckpt_shape *shape, ckpt_dtype dtype, ckpt_err *err)
{
    if (shape->rank < 0 || shape->rank > CKPT_RANK_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "a shape of %d dimensions; at most %d are known", shape->rank,
                         CKPT_RANK_MAX);
    }
    char text[CKPT_SHAPE_TEXT];
    int64_t bytes = ckpt_dtype_bytes(dtype);
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] < 1) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "shape %s: dimension %d is %" PRId64 ", wanted 1 or more",
                             ckpt_shape_show(shape, text), d, shape->dim[d]);
        }
        if (!ckpt_product(bytes, shape->dim[d], &bytes) || bytes > BYTES_LIMIT) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "shape %s of %s is beyond 2^62 bytes", ckpt_shape_show(shape, text),
                             ckpt_dtype_name(dtype));
        }
    }
    return CKPT_OK;
}

int64_t ckpt_shape_count(const ckpt_shape *shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++) {
        count *= shape->dim[d];
    }
    return count;
}

int64_t ckpt_tensor_room(const ckpt_tensor *tensor)
{
    const int64_t count = ckpt_shape_count(&tensor->shape);
    return tensor->pitch > 0 ? count / tensor->shape.dim[tensor->shape.rank - 1] * tensor->pitch : count;
}

ckpt_bytes ckpt_tensor_bytes(const ckpt_tensor *tensor)
{
    return ckpt_tensor_room(tensor) * ckpt_dtype_bytes(tensor->dtype);
}

bool ckpt_shape_equal(const ckpt_shape *a, const ckpt_shape *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int d = 0; d < a->rank; d++) {
        if (a->dim[d] != b->dim[d]) {
            return false;
        }
    }
    return true;
}

void ckpt_shape_strides(const ckpt_shape *shape, int64_t stride[CKPT_RANK_MAX])
{
    if (shape->rank == 4) { /* [N, C, H, W] lies as N, H, W, C */
        stride[1] = 1;
        stride[3] = shape->dim[1];
        stride[2] = stride[3] * shape->dim[3];
        stride[0] = stride[2] * shape->dim[2];
        return;
    }
    int64_t next = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        stride[d] = next;
        next *= shape->dim[d];
    }
}

const char *ckpt_shape_show(const ckpt_shape *shape, char *text)
{
    assert(shape->rank <= CKPT_RANK_MAX); /* 6 numbers of 20 characters fit */
    size_t length = (size_t)snprintf(text, CKPT_SHAPE_TEXT, "[");
    for (int d = 0; d < shape->rank; d++) {
        length +=
            (size_t)snprintf(text + length, CKPT_SHAPE_TEXT - length, "%s%" PRId64, d > 0 ? ", " : "", shape->dim[d]);
    }
    snprintf(text + length, CKPT_SHAPE_TEXT - length, "]");
    return text;
}
