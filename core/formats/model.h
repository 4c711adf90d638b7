/* ckpt-model/1: a network as a person writes it, with variables evaluated, blocks repeated and names resolved.
 *
 * Core does not know what an op is: attributes stay as written, and the op says how many outputs a layer
 * has. Layers are in execution order; a layer reads only layers before it. */
#ifndef CKPT_CORE_FORMATS_MODEL_H
#define CKPT_CORE_FORMATS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/formats/schedule.h"
#include "core/formats/tensor.h"
#include "core/json/json.h"

typedef enum ckpt_choice { CKPT_UNSET = 0, CKPT_NO, CKPT_YES } ckpt_choice;

typedef enum ckpt_attr_kind { CKPT_INT, CKPT_FLOAT, CKPT_BOOL, CKPT_STRING, CKPT_INTS } ckpt_attr_kind;

/* One attribute of a layer as the file gives it. A CKPT_STRING may be a word ("tanh") or an expression
 * ("4*hidden"): whoever knows the op decides, and evaluates with ckpt_model_eval or ckpt_model_eval_real. Elements of a list,
 * expressions or integers, are already evaluated. */
typedef struct ckpt_attr {
    const char *name;
    ckpt_attr_kind kind;
    int64_t integer;     /* CKPT_INT; CKPT_BOOL as 0 or 1 */
    double real;         /* CKPT_FLOAT; CKPT_INT too */
    const char *string;  /* CKPT_STRING */
    const int64_t *ints; /* CKPT_INTS */
    int int_count;
} ckpt_attr;

/* Which value a layer reads: output `output` of layer `layer`, or model input `-1 - layer` when layer < 0. */
typedef struct ckpt_ref {
    int layer, output;
} ckpt_ref;

typedef struct ckpt_layer {
    const char *name; /* unique; "h.0.ln1" inside a repeated block; of [A-Za-z0-9_.-] */
    const char *op;
    const ckpt_ref *in; /* "name" is output 0 of a layer, "name:1" its output 1 */
    int in_count;
    const ckpt_attr *attr; /* all keys that are not listed in this struct, in file order */
    int attr_count;
    int tie;                /* layer whose parameters this layer uses: the k-th is the other's k-th, as far as both
                               have one; -1: its own */
    ckpt_choice checkpoint; /* YES: recompute in backward; NO: keep; from the layer or the block around it */
    const char *segment;    /* with checkpoint set: the name of the flagged block ("h.0") or of the layer; a flagged
                               block inside another: "h.0/h.0.mlp" */
    ckpt_choice offload;
    int stage; /* pipeline partition; -1: unset */
    ckpt_position at;
} ckpt_layer;

typedef struct ckpt_var {
    const char *name;
    int64_t value; /* true is 1, false 0 */
    double real;
    bool is_real; /* `real` is its value, and only float attributes and other real expressions can use it */
} ckpt_var;

/* What the optimizer does otherwise with the parameters that a pattern matches. */
typedef struct ckpt_model_group {
    const char *match;   /* of "layer/parameter", with * ? [] */
    double lr;           /* factor of learning rates; 1: as the others */
    double weight_decay; /* in place of the optimizer's; negative: that */
    ckpt_choice matrix;  /* muon: treat as a hidden layer's weight or not; UNSET: by its own rule */
    ckpt_position at;
} ckpt_model_group;

typedef struct ckpt_model {
    const char *source; /* file name, for messages */
    const char *name;
    const char *family;  /* whose names its weights have in files (ops/import); NULL: its own, "layer.parameter" */
    ckpt_dtype dtype;    /* of activations: float32 or bfloat16 */
    const ckpt_var *var; /* after --set */
    int var_count;
    const ckpt_tensor *input; /* float32 or int32 whatever `dtype` is: data files hold those */
    int input_count;
    const ckpt_layer *layer;
    int layer_count;
    const char *optimizer; /* "sgd" when the file names none */
    const ckpt_attr *optimizer_attr;
    int optimizer_attr_count;
    const ckpt_model_group *group; /* the first that matches a parameter holds */
    int group_count;
    ckpt_schedule schedule;      /* of learning rates */
    ckpt_schedule clip_schedule; /* of clip_norm */
} ckpt_model;

/* Read and check a model file.
 *
 *   set        `set_count` texts "var=expression", each overriding a var of the file (unknown: error)
 *   out        arena that receives the model
 *
 * Errors: CKPT_BAD_INPUT with "file:line:column: found, wanted"; CKPT_OVERFLOW; CKPT_IO; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_model_read(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                                        const ckpt_model **model, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_model_item(const ckpt_item *root, const char *const *set, int set_count, ckpt_arena *out,
                                        const ckpt_model **model, ckpt_err *err);

/* The same model with activations of another type, for --dtype. `name`: "float32" or "bfloat16"; NULL: the file's own.
 * The rest is shared with `model`. Errors: CKPT_BAD_INPUT (another name), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_model_with_dtype(const ckpt_model *model, const char *name, ckpt_arena *out,
                                              const ckpt_model **changed, ckpt_err *err);

/* The same model with another optimizer, for --optimizer. `text`: "lion" or "lion:lr=1e-4,beta2=0.99"; NULL: the file's own.
 * Of the file's hyperparameters those that every optimizer has stay where `text` says nothing: lr, weight_decay, clip_norm,
 * loss_scale, ema. The rest is shared with `model`. Errors: CKPT_BAD_INPUT (no such form), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_model_with_optimizer(const ckpt_model *model, const char *text, ckpt_arena *out,
                                                  const ckpt_model **changed, ckpt_err *err);

/* The same model with another learning rate and another schedule of it, for --lr and --schedule; NULL: the file's own. The
 * rest is shared with `model`. Errors: CKPT_BAD_INPUT (no number, no schedule), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_model_with_rate(const ckpt_model *model, const char *lr, const char *schedule,
                                             ckpt_arena *out, const ckpt_model **changed, ckpt_err *err);

/* Evaluate an expression over the model's vars: C's operators + - * / % < <= > >= == != ! && || ?: ( ), and sqrt(x).
 * Integers are of 64 bits; division by zero and overflow are errors. The first wants an integer. */
CKPT_MUST_USE ckpt_code ckpt_model_eval(const ckpt_model *model, const char *expression, int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_model_eval_real(const ckpt_model *model, const char *expression, double *value,
                                             ckpt_err *err);

#endif
