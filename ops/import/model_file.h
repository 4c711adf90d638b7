/* Whatever describes a network: a ckpt-model, or a config.json as Hugging Face's transformers writes it. */
#ifndef CKPT_OPS_IMPORT_MODEL_FILE_H
#define CKPT_OPS_IMPORT_MODEL_FILE_H

#include "core/formats/model.h"

/* A configuration: no "format", but a "model_type". */
bool ckpt_config_is(const ckpt_item *root);

/* The model of a configuration's family, its vars filled from the configuration's keys, the absent ones as transformers
 * has them. `set` as for ckpt_model_item, over all vars. Errors: CKPT_BAD_INPUT (an unknown model_type or option, with
 * those that are known), and those of ckpt_model_item. */
CKPT_MUST_USE ckpt_code ckpt_config_item(const ckpt_item *root, const char *const *set, int set_count, ckpt_arena *out,
                                         const ckpt_model **model, ckpt_err *err);

/* A file of either kind. */
CKPT_MUST_USE ckpt_code ckpt_model_file_read(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                                             const ckpt_model **model, ckpt_err *err);

#endif
