/* The common form of all convolutions. A sequence [N, L, C] lies in memory as the image [N, C, 1, L] does, an image as a
 * volume of depth 1, and a transposed convolution is the gradient by the input of the convolution that goes from its
 * output to its input (Dumoulin & Visin 2016, arXiv:1603.07285, section 4). So conv1d, conv2d, conv3d and the transposed
 * ones are three computations on x, w and y, whose roles a transposed layer exchanges. */
#ifndef CKPT_OPS_CONVOLUTION_H
#define CKPT_OPS_CONVOLUTION_H

#include "ops/op.h"

/* From x [batch, in, in_channels] to y [batch, out, out_channels] by filters [out_channels, in_channels / groups,
 * kernel], out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded down. */
typedef struct ckpt_convolution {
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3]; /* depth, height, width */
    ckpt_dtype dtype;                                                     /* of x, y and filters */
    bool volume;                                                          /* depth is a dim of the layer, not just 1 */
    bool transposed; /* x is the layer's output and y its input: x and in_channels are named from the other side */
    bool bias;       /* added to y; never in a transposed one, where it is added to x by itself */
} ckpt_convolution;

/* `node` is a layer of one of these ops. */
ckpt_convolution ckpt_convolution_of(const ckpt_node *node);

static inline int64_t ckpt_convolution_taps(const ckpt_convolution *c)
{
    return c->kernel[0] * c->kernel[1] * c->kernel[2];
}

/* Pixels of x and of y. */
static inline int64_t ckpt_convolution_in_rows(const ckpt_convolution *c)
{
    return c->batch * c->in[0] * c->in[1] * c->in[2];
}
static inline int64_t ckpt_convolution_out_rows(const ckpt_convolution *c)
{
    return c->batch * c->out[0] * c->out[1] * c->out[2];
}

/* One filter of one tap on unpadded pixels: a product of matrices over those pixels of x that y sees; `whole`: all. */
bool ckpt_convolution_is_product(const ckpt_convolution *c, bool whole);

/* Done on the CPU as a product over columns, the values of all taps of a window beside each other, because oneDNN has
 * only slow code: patches (windows with a stride beyond 2 that neither overlap nor leave gaps), transposed layers with
 * such a stride, and dilated windows with a stride or of volumes. */
bool ckpt_convolution_is_columns(const ckpt_convolution *c);

#endif
