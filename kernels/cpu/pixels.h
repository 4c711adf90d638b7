/* Which pixels of x and y a tap of a convolution joins (ops/convolution.h). */
#ifndef CKPT_KERNELS_CPU_PIXELS_H
#define CKPT_KERNELS_CPU_PIXELS_H

#include "ops/convolution.h"

typedef struct ckpt_place {
    int64_t at[3]; /* depth, height, width */
} ckpt_place;

/* Item number `index` of an image of `size`, its image left out. */
static inline ckpt_place ckpt_place_of(int64_t index, const int64_t size[3])
{
    return (ckpt_place){{index / size[2] / size[1] % size[0], index / size[2] % size[1], index % size[2]}};
}

/* The pixel of x that pixel `row` of y sees through a tap; -1: it is padding. */
static inline int64_t ckpt_pixel_seen(const ckpt_convolution *s, int64_t row, const ckpt_place *tap)
{
    const ckpt_place y = ckpt_place_of(row, s->out);
    int64_t pixel = row / (s->out[0] * s->out[1] * s->out[2]);
    for (int d = 0; d < 3; d++) {
        const int64_t a = y.at[d] * s->stride[d] + tap->at[d] * s->dilation[d] - s->padding[d];
        if (a < 0 || a >= s->in[d]) {
            return -1;
        }
        pixel = pixel * s->in[d] + a;
    }
    return pixel;
}

/* The pixel of y that sees pixel `row` of x through a tap; -1: none does. */
static inline int64_t ckpt_pixel_seeing(const ckpt_convolution *s, int64_t row, const ckpt_place *tap)
{
    const ckpt_place x = ckpt_place_of(row, s->in);
    int64_t pixel = row / (s->in[0] * s->in[1] * s->in[2]);
    for (int d = 0; d < 3; d++) {
        const int64_t a = x.at[d] + s->padding[d] - tap->at[d] * s->dilation[d];
        if (a < 0 || a % s->stride[d] != 0 || a / s->stride[d] >= s->out[d]) {
            return -1;
        }
        pixel = pixel * s->out[d] + a / s->stride[d];
    }
    return pixel;
}

#endif
