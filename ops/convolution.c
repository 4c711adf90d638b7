/* The common form of all convolutions. */
#include "ops/convolution.h"

#include <string.h>

ckpt_convolution ckpt_convolution_of(const ckpt_node *node)
{
    const bool transposed = strncmp(node->op->name, "conv_transpose", strlen("conv_transpose")) == 0;
    const ckpt_shape *const x = transposed ? &node->out[0].shape : &node->in[0].shape;
    const ckpt_shape *const y = transposed ? &node->in[0].shape : &node->out[0].shape;
    const int missing = 5 - x->rank, channels = x->rank == 4 ? 1 : x->rank - 1, first = x->rank == 4 ? 2 : 1;
    ckpt_convolution c = {.batch = x->dim[0],
                          .in_channels = x->dim[channels],
                          .out_channels = y->dim[channels],
                          .groups = ckpt_node_int(node, "groups"),
                          .dtype = node->in[0].dtype,
                          .volume = missing == 0,
                          .transposed = transposed,
                          .bias = node->param_count > 1 && !transposed};
    for (int d = 0; d < 3; d++) {
        const int k = d - missing;
        c.in[d] = k < 0 ? 1 : x->dim[first + k];
        c.out[d] = k < 0 ? 1 : y->dim[first + k];
        c.kernel[d] = k < 0 ? 1 : ckpt_node_int_at(node, "kernel_size", k);
        c.stride[d] = k < 0 ? 1 : ckpt_node_int_at(node, "stride", k);
        c.padding[d] = k < 0 ? 0 : ckpt_node_int_at(node, "padding", k);
        c.dilation[d] = k < 0 ? 1 : ckpt_node_int_at(node, "dilation", k);
    }
    return c;
}

bool ckpt_convolution_is_product(const ckpt_convolution *c, bool whole)
{
    bool product = c->groups == 1;
    for (int d = 0; d < 3; d++) {
        product = product && c->kernel[d] == 1 && c->padding[d] == 0 && (!whole || c->stride[d] == 1);
    }
    return product;
}

bool ckpt_convolution_is_columns(const ckpt_convolution *c)
{
    bool patches = true, wide = false, strided = false, dilated = false;
    for (int d = 0; d < 3; d++) {
        patches = patches && c->padding[d] == 0 && c->kernel[d] == c->stride[d] &&
                  c->in[d] == c->out[d] * c->stride[d] && (c->dilation[d] == 1 || c->kernel[d] == 1);
        wide = wide || c->stride[d] > 2;
        strided = strided || c->stride[d] > 1;
        dilated = dilated || (c->dilation[d] > 1 && c->kernel[d] > 1);
    }
    return c->groups == 1 && ckpt_convolution_taps(c) > 1 &&
           ((wide && (patches || c->transposed)) || (dilated && (strided || c->volume)));
}
