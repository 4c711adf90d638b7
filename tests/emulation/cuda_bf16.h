/* bfloat16 as kernels use it: 16 bits, rounded to nearest even, everything computed in float. */
#ifndef CKPT_EMULATION_CUDA_BF16_H
#define CKPT_EMULATION_CUDA_BF16_H

#include <stdint.h>
#include <string.h>

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 x)
{
    const uint32_t word = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Adding 0x7fff and the lowest bit that stays rounds to nearest even; a NaN becomes CUDA's canonical one. */
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
        return {0x7fff};
    }
    return {(uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16)};
}

inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}

inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return {__bfloat162float(x.x), __bfloat162float(x.y)};
}

inline float __low2float(__nv_bfloat162 x)
{
    return __bfloat162float(x.x);
}

inline float __high2float(__nv_bfloat162 x)
{
    return __bfloat162float(x.y);
}

#endif
