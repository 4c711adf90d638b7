/* A model file before its blocks are unrolled: entries are layers and repeated blocks. */
#ifndef CKPT_CORE_FORMATS_MODEL_IMPL_H
#define CKPT_CORE_FORMATS_MODEL_IMPL_H

#include "core/formats/model.h"
#include "core/json/json_member.h"

enum {
    CKPT_LAYERS_MAX = 1000000,    /* unrolled */
    CKPT_NAME_MAX = 255,          /* bytes of a full layer name */
    CKPT_BLOCK_DEPTH_MAX = 16,    /* blocks inside blocks */
    CKPT_OUTPUT_NUMBER_MAX = 999, /* k of "name:k" */
    CKPT_IN_REPEAT_MAX = 1000,    /* inputs that one element of "in" stands for */
};

/* One element of "in". */
typedef struct ckpt_entry_in {
    const char *name;
    const char *when; /* NULL: always */
    int repeat;       /* so many inputs, # their number; -1: one, # the number of the copy */
} ckpt_entry_in;

/* One element of a "layers" array. */
typedef struct ckpt_entry {
    ckpt_item item; /* its parent is kept as long as the entry, for messages */
    ckpt_position at;
    const char *name;
    const char *when; /* an expression; NULL: always */
    ckpt_choice checkpoint, offload;
    int stage; /* -1: unset */

    /* a layer; op NULL: a block */
    const char *op, *tie;
    const ckpt_attr *attr;
    int attr_count;
    const ckpt_entry_in *in; /* NULL: not given */
    int in_count;

    /* a block */
    int64_t repeat;
    const struct ckpt_entry *entry;
    int entry_count;
} ckpt_entry;

/* Unroll `entry` into model->layer. The model already has its inputs and vars. The caller frees `scratch`. */
CKPT_MUST_USE ckpt_code ckpt_model_expand(ckpt_model *model, const ckpt_entry *entry, int entry_count,
                                          ckpt_arena *scratch, ckpt_arena *out, ckpt_err *err);

#endif
