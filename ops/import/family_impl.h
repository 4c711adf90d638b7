/* A family of networks of other people: one file of families/ says how its configurations become a model and how its
 * tensors are named. README.md there explains its members. */
#ifndef CKPT_OPS_IMPORT_FAMILY_IMPL_H
#define CKPT_OPS_IMPORT_FAMILY_IMPL_H

#include <stddef.h>

#include "core/json/json_member.h"

typedef struct ckpt_family_file {
    const char *name; /* NULL ends the table */
    const char *text;
    size_t length;
} ckpt_family_file;

extern const ckpt_family_file ckpt_family_files[]; /* written by the build */

/* The family that has this "model_type"; messages about it begin with `source`. *json NULL: there is none. The caller
 * closes it. */
CKPT_MUST_USE ckpt_code ckpt_family_open(const char *model_type, const char *source, ckpt_json **json,
                                         ckpt_item *family, ckpt_err *err);

/* The family's member of that type: types[model_type]. */
CKPT_MUST_USE ckpt_code ckpt_family_type(const ckpt_item *family, const char *model_type, ckpt_item *type,
                                         ckpt_err *err);

/* "llama, mistral, ...": all there are, in the order of the table. */
CKPT_MUST_USE ckpt_code ckpt_family_list(ckpt_text *text, ckpt_err *err);

#endif
