/* What the tensors of a parameter are called. */
#ifndef CKPT_OPS_IMPORT_TENSOR_NAMES_IMPL_H
#define CKPT_OPS_IMPORT_TENSOR_NAMES_IMPL_H

#include "core/json/json.h"
#include "ops/lowering/network.h"

typedef struct ckpt_tensor_namer {
    ckpt_json *json; /* of the family; NULL: the model's own names */
    ckpt_item tensors, ignored, renamed, copies;
    bool ignores, renames, copied;
    const char *prefix; /* may be absent from names in files; "": none */
    ckpt_arena arena;   /* of what is asked */
} ckpt_tensor_namer;

/* One parameter's tensors: `count` parts of its first dim, each as long, or with `stacked` each without that dim. */
typedef struct ckpt_tensor_names {
    const char **name;
    int count;
    bool stacked, transposed; /* transposed: the file has [columns, rows] */
} ckpt_tensor_names;

CKPT_MUST_USE ckpt_code ckpt_tensor_namer_init(ckpt_tensor_namer *namer, const ckpt_model *model, ckpt_err *err);
void ckpt_tensor_namer_fini(ckpt_tensor_namer *namer);

/* `rows`: the first dim of `param`, for stacks. Errors: CKPT_BAD_INPUT (the family has no name for it),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_tensor_names_find(ckpt_tensor_namer *namer, const char *layer, const char *param,
                                               int64_t rows, ckpt_tensor_names *names, ckpt_err *err);

/* What else the tensor `name` may be called in a file: without the prefix, or as it once was. `i` from 0; *other NULL: there
 * is no more. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_tensor_name_other(ckpt_tensor_namer *namer, const char *name, int i, const char **other,
                                               ckpt_err *err);

/* The tensor that `name` must be a copy of; NULL: of none. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_tensor_name_original(ckpt_tensor_namer *namer, const char *name, const char **original,
                                                  ckpt_err *err);

/* A tensor that means nothing to us, such as a mask that old versions of a library have saved. */
bool ckpt_tensor_name_ignored(const ckpt_tensor_namer *namer, const char *name);

#endif
