/* Weights by name: parameters and statistics of a network from safetensors files, and back.
 *
 * A model's own names are layer.parameter ("h.0.fc.weight"). A model of a family (ops/import/families) has that family's
 * names and layouts: one parameter may be several tensors side by side, or lie transposed there. */
#ifndef CKPT_OPS_IMPORT_WEIGHTS_H
#define CKPT_OPS_IMPORT_WEIGHTS_H

#include "ops/lowering/network.h"

/* Files of which every tensor is accounted for. */
typedef struct ckpt_weights ckpt_weights;

/* Finds a tensor of the right shape for every parameter and statistic, and something to do for every tensor. A tied
 * parameter may have tensors of its own; they must hold what the owner's hold. `network` is kept until close. Errors:
 * CKPT_BAD_INPUT (a tensor is missing, unexpected, of the wrong shape or no float; the message names it), those of
 * ckpt_safetensors_open. */
CKPT_MUST_USE ckpt_code ckpt_weights_open(const ckpt_network *network, const char *path, ckpt_weights **weights,
                                          ckpt_err *err);
/* The same of a safetensors file in memory, which stays there; `path` stands for it in messages. */
CKPT_MUST_USE ckpt_code ckpt_weights_open_bytes(const ckpt_network *network, const char *path, const void *bytes,
                                                size_t length, ckpt_weights **weights, ckpt_err *err);
void ckpt_weights_close(ckpt_weights *weights); /* NULL is fine */

/* Is `path` one of the files that are read? */
bool ckpt_weights_reads(const ckpt_weights *weights, const char *path);

/* Parameter or statistic k of a node as the network has it: `to` has room for all its elements. */
CKPT_MUST_USE ckpt_code ckpt_weights_param(const ckpt_weights *weights, int node, int k, float *to, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_weights_statistic(const ckpt_weights *weights, int node, int k, float *to, ckpt_err *err);

/* Gives a parameter's or a statistic's values. */
typedef ckpt_code (*ckpt_weights_fetch)(void *context, int node, int k, bool statistic, float *to, ckpt_err *err);

/* A file with all of them under the same names; of tied ones the owner's. The file is there complete or not at all.
 *   dtype   CKPT_FLOAT32, or CKPT_BFLOAT16: rounded to nearest even
 * Errors: CKPT_IO, CKPT_NO_MEMORY, those of `fetch`. */
CKPT_MUST_USE ckpt_code ckpt_weights_write(const ckpt_network *network, const char *path, ckpt_dtype dtype,
                                           ckpt_weights_fetch fetch, void *context, ckpt_err *err);

#endif
