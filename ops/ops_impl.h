/* Common to the op contracts. Sums and products of sizes saturate at the largest 63-bit number instead of wrapping: the
 * graph check refuses a shape that large a little later, with a message. */
#ifndef CKPT_OPS_OPS_IMPL_H
#define CKPT_OPS_OPS_IMPL_H

#include "ops/op.h"

/* a * b and a + b for a, b >= 0, at most INT64_MAX. */
int64_t ckpt_times(int64_t a, int64_t b);
int64_t ckpt_plus(int64_t a, int64_t b);
/* `bytes` up to a multiple of CKPT_ALIGN, at most the greatest there is. */
ckpt_bytes ckpt_aligned(ckpt_bytes bytes);

/* Workspace that the CPU's largest product among y = x W^T, dx = dy W, dW = dy^T x takes, x being [rows, in] and y
 * [rows, out]: oneDNN copies panels of its operands for each thread, whole ones when they are small, and more where the
 * product is added (`adds`) to what is there. The figures are what oneDNN 2.6 asks for, checked by
 * linear_allowances in tests/kernels/cpu/test_onednn.c. Where more threads would want more, the kernel takes one thread. */
ckpt_bytes ckpt_product_workspace(const ckpt_node *node, int64_t rows, int64_t in, int64_t out, bool adds);

/* Elements of input k. */
int64_t ckpt_node_in_count(const ckpt_node *node, int k);

/* Complain unless input k is of that type, mostly node->dtype: "input 0 is int32 [8, 256], wanted float32". */
ckpt_code ckpt_node_need(const ckpt_node *node, int k, ckpt_dtype dtype, ckpt_err *err);

/* Complain unless input k has `rank` dims; `shape_text` says what they are: "[N, C, H, W]". */
ckpt_code ckpt_node_need_rank(const ckpt_node *node, int k, int rank, const char *shape_text, ckpt_err *err);

/* An op on one input of the network's type that gives one output of the same shape, element by element: checks the
 * input, adds the output and states so many operations per element. */
ckpt_code ckpt_node_elementwise(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err);

/* The mean of a term of x and its target over two tensors of one shape of the network's type, as a loss: checks both, adds
 * the output and states so many operations per element. The second function is such an op's gpu_workspace. */
ckpt_code ckpt_node_pair_loss(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err);
void ckpt_pair_loss_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward);

/* Complain unless "label_smoothing" is 0 to 1. */
ckpt_code ckpt_check_smoothing(const ckpt_node *node, ckpt_err *err);

/* The ways "mask" of an elementwise op: forward also saves one bit per element of input 0, in memory order, bit i % 32 of
 * word i / 32; backward reads that and nothing else. What a bit says is the kernel's. */
ckpt_code ckpt_node_add_mask(ckpt_node *node, ckpt_err *err);

/* The inexact way "output" of y = xhat weight + bias: backward takes xhat from output 0 and reads no input, but these
 * saved tensors. Returned to be added to. */
ckpt_way *ckpt_node_add_affine_way(ckpt_node *node, uint64_t saved);

/* The `count` elements, one to three, of an attribute that is one number for all or so many ("stride": 2, "stride":
 * [2, 1]), each in min..INT32_MAX. */
ckpt_code ckpt_node_ints(const ckpt_node *node, const char *name, int count, int64_t min, int64_t *value,
                         ckpt_err *err);
/* The same of two. */
ckpt_code ckpt_node_pair(const ckpt_node *node, const char *name, int64_t min, int64_t pair[2], ckpt_err *err);

/* The dim an axis attribute names: -rank..rank-1, negative counts from the end. Input 0 has that rank. */
ckpt_code ckpt_node_axis(const ckpt_node *node, const char *name, int rank, int *axis, ckpt_err *err);

/* The dims that a list of axes names, each once, as bits; a list that is not given names all of them. */
ckpt_code ckpt_node_axes(const ckpt_node *node, const char *name, int rank, uint64_t *axes, ckpt_err *err);

/* An integer attribute in min..max. */
ckpt_code ckpt_node_int_between(const ckpt_node *node, const char *name, int64_t min, int64_t max, int64_t *value,
                                ckpt_err *err);

/* A float attribute that must be min <= value < end. */
ckpt_code ckpt_node_float_between(const ckpt_node *node, const char *name, double min, double end, double *value,
                                  ckpt_err *err);

/* lstm (4 gates, 2 states) and gru (3, 1): attributes, infer and gpu_workspace (ops/recurrent.c). */
extern const ckpt_attr_spec ckpt_recurrent_attrs[];
ckpt_code ckpt_recurrent_infer(ckpt_node *node, int gates, int states, ckpt_err *err);
void ckpt_recurrent_gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward);

/* Set forward_moved_bytes and backward_moved_bytes from what was inferred, where infer left them 0: one pass over
 * everything an op touches. The network does this after infer. */
void ckpt_node_fill_moved(ckpt_node *node);

#endif
