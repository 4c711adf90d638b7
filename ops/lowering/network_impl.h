/* Common to inference and lowering. */
#ifndef CKPT_OPS_LOWERING_NETWORK_IMPL_H
#define CKPT_OPS_LOWERING_NETWORK_IMPL_H

#include "ops/lowering/network.h"

/* The attributes a file gives, in the order of `specs` (NULL: none are known): unknown names refused, words and kinds
 * checked, expressions evaluated, defaults filled in.
 * Errors: CKPT_BAD_INPUT, CKPT_NO_MEMORY, and what ckpt_model_eval gives. */
ckpt_code ckpt_attrs_resolve(const ckpt_model *model, const ckpt_attr_spec *specs, const ckpt_attr *given,
                             int given_count, ckpt_arena *out, const ckpt_attr **attr, ckpt_err *err);

enum { CKPT_NAMES_TEXT = 400 };

/* "; near: linear, ..." or, when nothing is near, "; known: ..." from name(0), name(1), ... up to NULL, into `text`
 * (CKPT_NAMES_TEXT bytes), given back. */
const char *ckpt_names_near(const char *wanted, const char *(*name)(int index), char *text);

/* network->group, and group, hidden and decay of all parameters of `node`, the network's own. Errors: CKPT_BAD_INPUT (too
 * many groups, one that matches nothing), CKPT_NO_MEMORY. */
ckpt_code ckpt_network_group(ckpt_network *network, ckpt_node *node, ckpt_arena *out, ckpt_err *err);

/* Does the layer learn anything, so that gradients flow through it? */
bool ckpt_node_learns(const ckpt_node *node);

/* Per node: does a gradient come to it, so that it has a backward op in the whole network, whatever the stage? */
ckpt_code ckpt_network_reach(const ckpt_network *network, ckpt_arena *out, const bool **backward, ckpt_err *err);

/* Per node, to `completes`: the node whose backward is the last to reach parameters of its own; -1: none does.
 * `backward` as above. */
void ckpt_network_completes(const ckpt_network *network, const bool *backward, int *completes);

#endif
