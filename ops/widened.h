/* A bfloat16 layer on the CPU whose kernels are float32: it runs on widened copies of its tensors, which lie in the
 * workspace (kernels/cpu/widened.c). Here is what they take, so that a plan counts them. */
#ifndef CKPT_OPS_WIDENED_H
#define CKPT_OPS_WIDENED_H

#include "ops/op.h"

/* Elements that a thread widens at a time where a node is `by_element`: a multiple of 32, the elements of a mask's word. */
enum { CKPT_WIDENED_PIECE = 16384 };

/* Which tensors of a run have a widened copy, as bits. */
typedef struct ckpt_widened {
    uint64_t in, out, saved;    /* read, or of forward written */
    uint64_t grad_out, grad_in; /* of backward */
    uint64_t param;             /* products read the bfloat16 copy of a parameter, not the parameter */
} ckpt_widened;

/* Does the layer run on widened copies? */
bool ckpt_node_widens(const ckpt_node *node);

/* Does it run in pieces, one a thread at a time? Smaller tensors are copied whole. */
bool ckpt_widened_in_pieces(const ckpt_node *node);

/* The copies of a run in this way (NULL: the own one), and the bytes of all of them, each a multiple of CKPT_ALIGN. */
ckpt_widened ckpt_widened_of(const ckpt_node *node, bool backward, const ckpt_way *way);
ckpt_bytes ckpt_widened_bytes(const ckpt_node *node, const ckpt_widened *widened);
/* The most of all ways of a direction that take the own way's workspace. */
ckpt_bytes ckpt_widened_most(const ckpt_node *node, bool backward);

/* Adds them to what infer has allowed, behind the kernel's own workspace rounded up to CKPT_ALIGN. */
void ckpt_widened_allow(ckpt_node *node);

#endif
