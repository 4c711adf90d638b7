/* ONNX files: the forward graph as a ckpt-model, and its initializers as weights of that model.
 *
 * docs/reference/onnx.md says which operators are read, what becomes of them and which loss is added. Nothing in a file is
 * believed unchecked. Source: the ONNX specification, "Open Neural Network Exchange Intermediate Representation" and
 * "ONNX Operators". */
#ifndef CKPT_OPS_IMPORT_ONNX_ONNX_H
#define CKPT_OPS_IMPORT_ONNX_ONNX_H

#include "core/formats/model.h"
#include "ops/import/weights.h"

/* A regular file that begins as ONNX's does. */
bool ckpt_onnx_is(const char *path);

/* The ckpt-model/1 of an ONNX file as a text. Another file, or none: *text and *length stay as they are. Sizes that the
 * graph names are vars; `set` gives them values, which are 1 otherwise. Errors: CKPT_BAD_INPUT with the node's name and
 * operator, CKPT_IO, CKPT_NO_MEMORY, CKPT_OVERFLOW. */
CKPT_MUST_USE ckpt_code ckpt_onnx_text(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                                       const char **text, size_t *length, ckpt_err *err);

/* Whatever describes a network: ONNX, or what ckpt_model_file_read reads. */
CKPT_MUST_USE ckpt_code ckpt_onnx_model(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                                        const ckpt_model **model, ckpt_err *err);

/* Weights of ONNX, or what ckpt_weights_open opens. Vars that the graph does not have are left out of `set`. */
CKPT_MUST_USE ckpt_code ckpt_onnx_weights(const ckpt_network *network, const char *path, const char *const *set,
                                          int set_count, ckpt_arena *out, ckpt_weights **weights, ckpt_err *err);

#endif
