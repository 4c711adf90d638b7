/* Reading a node: its inputs, attributes and constants. */
#include <math.h>
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"

bool onnx_has_input(const onnx_importer *m, int k)
{
    return (size_t)k < m->node->n_input && m->node->input[k][0] != '\0';
}

ckpt_code onnx_input(onnx_importer *m, int k, onnx_value **value)
{
    if (!onnx_has_input(m, k)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d is missing", k);
    }
    *value = onnx_find(m, m->node->input[k]);
    return *value != NULL ? CKPT_OK
                          : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d is \"%.100s\", which nothing before it makes",
                                      k, m->node->input[k]);
}

const Onnx__AttributeProto *onnx_attr(const onnx_importer *m, const char *name)
{
    for (size_t i = 0; i < m->node->n_attribute; i++) {
        const Onnx__AttributeProto *const attr = m->node->attribute[i];
        if (attr->name != NULL && strcmp(attr->name, name) == 0) {
            return attr;
        }
    }
    return NULL;
}

ckpt_code onnx_attr_int(onnx_importer *m, const char *name, int64_t otherwise, int64_t *value)
{
    const Onnx__AttributeProto *const attr = onnx_attr(m, name);
    *value = attr == NULL ? otherwise : attr->i;
    return attr == NULL || attr->has_i ? CKPT_OK : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%s\" is no whole number", name);
}

double onnx_attr_real(const onnx_importer *m, const char *name, double otherwise)
{
    const Onnx__AttributeProto *const attr = onnx_attr(m, name);
    return attr == NULL ? otherwise : attr->has_f ? (double)attr->f : (double)NAN;
}

static bool is_word(const Onnx__AttributeProto *attr, const char *word, size_t length)
{
    return attr->has_s && attr->s.len == length && memcmp(attr->s.data, word, length) == 0;
}

bool onnx_attr_is(const onnx_importer *m, const char *name, const char *word)
{
    const Onnx__AttributeProto *const attr = onnx_attr(m, name);
    return attr != NULL && is_word(attr, word, strlen(word));
}

ckpt_code onnx_attr_words(onnx_importer *m, const char *name, const char *words)
{
    const Onnx__AttributeProto *const attr = onnx_attr(m, name);
    for (const char *at = words; attr != NULL; at++) {
        const size_t length = strcspn(at, "|");
        if (is_word(attr, at, length)) {
            return CKPT_OK;
        }
        at += length;
        if (*at == '\0') {
            const int shown = attr->has_s && attr->s.len < 60 ? (int)attr->s.len : 0;
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%s\" is \"%.*s\", wanted %s", name, shown,
                             shown > 0 ? (const char *)attr->s.data : "", words);
        }
    }
    return CKPT_OK;
}

static int64_t whole(double number)
{
    return number >= 9e18 ? INT64_MAX : number > -9e18 ? (int64_t)number : INT64_MIN;
}

ckpt_code onnx_ints(onnx_importer *m, const char *name, int k, int64_t *list, int room, int *count)
{
    const Onnx__AttributeProto *const attr = name != NULL ? onnx_attr(m, name) : NULL;
    *count = -1;
    if (k >= 0 && onnx_has_input(m, k)) {
        onnx_value *value = NULL;
        CKPT_TRY(onnx_input(m, k, &value));
        CKPT_TRY(onnx_numbers(m, value));
        const int64_t found = onnx_count(value);
        if (value->shape.rank > 1 || found > room) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d has %lld numbers, wanted at most %d", k,
                             (long long)found, room);
        }
        *count = (int)found;
        for (int i = 0; i < *count; i++) {
            list[i] = whole(value->number[i]);
        }
    } else if (attr != NULL) {
        if (attr->has_i || attr->n_floats > 0 || attr->n_ints > (size_t)room) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%s\" has %zu whole numbers, wanted a list of at most %d", name,
                             attr->n_ints, room);
        }
        *count = (int)attr->n_ints;
        for (int i = 0; i < *count; i++) {
            list[i] = attr->ints[i];
        }
    }
    return CKPT_OK;
}

ckpt_code onnx_axis(onnx_importer *m, int64_t axis, int rank, int *dim)
{
    if (axis < -rank || axis >= rank) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "axis %lld of %d dims", (long long)axis, rank);
    }
    *dim = (int)(axis < 0 ? axis + rank : axis);
    return CKPT_OK;
}

const Onnx__NodeProto *onnx_only_reader(const onnx_importer *m, const char *name, int *index)
{
    int readers = 0;
    *index = -1; /* the graph's output may be the only reader */
    for (size_t i = 0; i < m->graph->n_output; i++) {
        readers += m->graph->output[i]->name != NULL && strcmp(m->graph->output[i]->name, name) == 0;
    }
    for (size_t n = 0; n < m->graph->n_node; n++) {
        for (size_t k = 0; k < m->graph->node[n]->n_input; k++) {
            if (strcmp(m->graph->node[n]->input[k], name) == 0) {
                readers++;
                *index = (int)n;
            }
        }
    }
    return readers == 1 && *index > m->node_index ? m->graph->node[*index] : NULL;
}

/* ---- constants ---- */

int64_t onnx_count(const onnx_value *value)
{
    return ckpt_shape_count(&value->shape);
}

/* Element i of a tensor whose length onnx_tensor checked. */
static double element(const Onnx__TensorProto *t, int64_t i)
{
    const uint8_t *const raw = t->has_raw_data ? t->raw_data.data : NULL;
    float real = 0;
    double wide = 0;
    int32_t number = 0;
    int64_t large = 0;
    switch (t->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        if (raw == NULL) {
            return (double)t->float_data[i];
        }
        memcpy(&real, raw + 4 * i, sizeof real);
        return (double)real;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        if (raw == NULL) {
            return t->double_data[i];
        }
        memcpy(&wide, raw + 8 * i, sizeof wide);
        return wide;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        if (raw == NULL) {
            return (double)t->int64_data[i];
        }
        memcpy(&large, raw + 8 * i, sizeof large);
        return (double)large;
    case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL: return raw == NULL ? t->int32_data[i] : raw[i];
    default: break;
    }
    if (raw == NULL) {
        return t->int32_data[i];
    }
    memcpy(&number, raw + 4 * i, sizeof number);
    return number;
}

ckpt_code onnx_numbers(onnx_importer *m, onnx_value *value)
{
    if (!value->constant) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" is computed, wanted a constant", value->name);
    }
    if (value->number != NULL) {
        return CKPT_OK;
    }
    const int64_t count = onnx_count(value);
    double *const number = CKPT_NEW(m->out, double, count);
    if (number == NULL) {
        return onnx_no_memory(m);
    }
    const int64_t rows = value->turned ? value->shape.dim[0] : 1, columns = count / (rows > 0 ? rows : 1);
    for (int64_t i = 0; i < count; i++) {
        number[i] = element(value->tensor, value->turned ? i % columns * rows + i / columns : i);
    }
    value->number = number;
    return CKPT_OK;
}

bool onnx_scalar(onnx_importer *m, onnx_value *value, double *number)
{
    if (!value->constant || onnx_count(value) != 1 || (value->learned && value->shape.rank > 0) ||
        onnx_numbers(m, value) != CKPT_OK) {
        return false;
    }
    *number = value->number[0];
    return true;
}

float onnx_float(const onnx_weight *weight, int64_t i)
{
    const onnx_value *const value = weight->value;
    const int64_t at =
        weight->block == 0 ? i : weight->first + weight->order[i / weight->block] * weight->block + i % weight->block;
    if (value->number != NULL) {
        return (float)value->number[at];
    }
    const int64_t rows = value->turned ? value->shape.dim[0] : 1, columns = value->turned ? value->shape.dim[1] : 1;
    return (float)element(value->tensor, value->turned ? at % columns * rows + at / columns : at);
}
