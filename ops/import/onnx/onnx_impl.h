/* Common to the parts of the importer. Layers are added one by one, and each is inferred when it is added, so that the
 * shapes of all values are known and messages can name the node. */
#ifndef CKPT_OPS_IMPORT_ONNX_ONNX_IMPL_H
#define CKPT_OPS_IMPORT_ONNX_ONNX_IMPL_H

#include <onnx.pb-c.h>

#include "core/base/names.h"
#include "core/formats/model.h"
#include "ops/op.h"

enum {
    ONNX_IN_MAX = CKPT_IN_MAX,
    ONNX_ATTR_MAX = 12,
    ONNX_FOLD_MAX = 1 << 20, /* elements of a constant that is computed */
};

/* Constants have elements and no layer, until a layer needs them as an input. */
typedef struct onnx_value {
    const char *name;
    ckpt_shape shape;    /* as written; dims of a constant may be 0 */
    ckpt_dtype dtype;    /* CKPT_FLOAT32, or CKPT_INT32 for all whole numbers */
    bool constant, made; /* made: `ref` holds */
    bool learned;        /* an initializer of floats */
    bool turned;         /* a matrix whose transpose `tensor` is */
    const Onnx__TensorProto *tensor;
    const double *number; /* what was computed, or read from `tensor` */
    ckpt_ref ref;
} onnx_value;

/* Where the elements of a parameter come from: element i is element first + order[i / block] * block + i % block of the
 * tensor; block 0: element i. */
typedef struct onnx_weight {
    int layer;
    const char *param;
    ckpt_shape shape;
    const onnx_value *value;
    const int *order;
    int64_t block, first;
} onnx_weight;

typedef struct onnx_layer {
    ckpt_layer layer;
    int out_count;
    ckpt_tensor *out;
    ckpt_node node; /* as inferred */
    bool needed;
} onnx_layer;

typedef struct onnx_importer {
    const char *source;
    ckpt_arena *out;
    ckpt_err *err;
    const Onnx__GraphProto *graph;
    const Onnx__NodeProto *node; /* that is lowered */
    int node_index;
    bool *skipped; /* per node: it is part of another's layer */
    ckpt_names names;
    onnx_value **value;
    int value_count, value_room;
    ckpt_tensor *input;
    int input_count;
    ckpt_var *var;
    int var_count;
    onnx_layer *layer;
    int layer_count, layer_room;
    onnx_weight *weight;
    int weight_count, weight_room;
} onnx_importer;

/* A layer to be added. */
typedef struct onnx_call {
    const char *op;
    onnx_value in[ONNX_IN_MAX];
    int in_count;
    ckpt_attr attr[ONNX_ATTR_MAX];
    int attr_count;
    bool owner; /* has the node's parameters, and so the plain name */
} onnx_call;

/* ---- onnx.c ---- */

ckpt_code onnx_no_memory(const onnx_importer *m);
/* A list in the arena with room for one more; *list may move. */
ckpt_code onnx_grow(onnx_importer *m, void **list, int count, int *room, size_t size);
/* The value of a name; NULL: none. */
onnx_value *onnx_find(const onnx_importer *m, const char *name);
/* *value is the constant `t`, of which all elements are there; `initializer`: floats learn. */
ckpt_code onnx_tensor(onnx_importer *m, const char *name, const Onnx__TensorProto *t, bool initializer,
                      onnx_value *value);
/* Names `value` as output k of the node, if it has that output. */
ckpt_code onnx_name(onnx_importer *m, int k, const onnx_value *value);

/* ---- onnx_node.c: what a node says ---- */

bool onnx_has_input(const onnx_importer *m, int k);
/* Input k of the node, which must be there. Points to what is known of it. */
ckpt_code onnx_input(onnx_importer *m, int k, onnx_value **value);
const Onnx__AttributeProto *onnx_attr(const onnx_importer *m, const char *name); /* NULL: not given */
ckpt_code onnx_attr_int(onnx_importer *m, const char *name, int64_t otherwise, int64_t *value);
/* NaN, which no layer takes, where the attribute is no float. */
double onnx_attr_real(const onnx_importer *m, const char *name, double otherwise);
/* Complain unless a text attribute is one of the words, "a|b"; absent is fine. */
ckpt_code onnx_attr_words(onnx_importer *m, const char *name, const char *words);
bool onnx_attr_is(const onnx_importer *m, const char *name, const char *word);
/* Whole numbers of an attribute, or of input k where that is not NULL (k >= 0). *count -1: neither is given. */
ckpt_code onnx_ints(onnx_importer *m, const char *name, int k, int64_t *list, int room, int *count);
ckpt_code onnx_axis(onnx_importer *m, int64_t axis, int rank, int *dim);
/* The only node that reads output k of the node `index`, behind it; NULL: none, several, or the graph's output. */
const Onnx__NodeProto *onnx_only_reader(const onnx_importer *m, const char *name, int *index);
/* The elements of a constant. */
ckpt_code onnx_numbers(onnx_importer *m, onnx_value *value);
int64_t onnx_count(const onnx_value *value);
/* A constant of one number. */
bool onnx_scalar(onnx_importer *m, onnx_value *value, double *number);
float onnx_float(const onnx_weight *weight, int64_t i);

/* ---- onnx_layer.c: adding layers ---- */

void onnx_call_int(onnx_call *call, const char *name, int64_t value);
void onnx_call_real(onnx_call *call, const char *name, double value);
void onnx_call_flag(onnx_call *call, const char *name, bool value);
void onnx_call_word(onnx_call *call, const char *name, const char *value);
ckpt_code onnx_call_ints(onnx_importer *m, onnx_call *call, const char *name, const int64_t *value, int count);
/* Adds it; *y is output 0 and may be an input. */
ckpt_code onnx_add(onnx_importer *m, const onnx_call *call, onnx_value *y);
onnx_value onnx_output_of(const onnx_importer *m, const onnx_value *y, int k);
/* An op on x alone without attributes, or with one number. */
ckpt_code onnx_plain(onnx_importer *m, const char *op, const onnx_value *x, onnx_value *y);
ckpt_code onnx_real(onnx_importer *m, const char *op, const char *attr, double value, const onnx_value *x,
                    onnx_value *y);
ckpt_code onnx_scale(onnx_importer *m, double factor, double offset, const onnx_value *x, onnx_value *y);
/* What x, of rank 4, was before it was reshaped to that from another rank. False: it is not of that kind. */
bool onnx_beneath(const onnx_importer *m, const onnx_value *x, onnx_value *source);
/* x itself where nothing changes, and what x was made of where it is a reshape or the opposite transpose. */
ckpt_code onnx_reshape(onnx_importer *m, const onnx_value *x, const ckpt_shape *shape, onnx_value *y);
ckpt_code onnx_transpose(onnx_importer *m, const onnx_value *x, const int *perm, onnx_value *y);
/* Input k as a layer's input: a parameter where it is an initializer. */
ckpt_code onnx_operand(onnx_importer *m, int k, onnx_value *y);
ckpt_code onnx_as_layer(onnx_importer *m, onnx_value *value, onnx_value *y);
/* The parameter or statistic `param` of the layer of y is what `value` holds. Its count is checked. */
ckpt_code onnx_bind(onnx_importer *m, const onnx_value *y, const char *param, onnx_value *value);
ckpt_code onnx_bind_blocks(onnx_importer *m, const onnx_value *y, const char *param, onnx_value *value,
                           const int *order, int64_t block, int64_t first);
/* Input k, which must be an initializer of so many dims, 0: any. */
ckpt_code onnx_weight_input(onnx_importer *m, int k, int rank, onnx_value **value);

/* ---- what lowers ---- */

/* A ReduceMean with which a layer norm in single operators begins becomes that layer. *done false: none begins. */
ckpt_code onnx_whole_layernorm(onnx_importer *m, bool *done);

/* *done false: it is no constant. */
ckpt_code onnx_fold(onnx_importer *m, bool *done);

typedef ckpt_code onnx_lower(onnx_importer *m);
typedef struct onnx_rule {
    const char *op; /* NULL ends the table */
    onnx_lower *lower;
} onnx_rule;
extern const onnx_rule onnx_layer_rules[], onnx_point_rules[], onnx_move_rules[];

#endif
