/* NumPy arrays, one for each input of the model, by the input's name. A record is a row along their first dim.
 * Source: numpy.lib.format, "NPY format", versions 1.0 to 3.0. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/data/data_impl.h"

typedef enum ckpt_element_kind { ELEMENT_UNSIGNED, ELEMENT_SIGNED, ELEMENT_FLOAT } ckpt_element_kind;

struct ckpt_element {
    const char *name; /* as NumPy writes it, without the sign of its byte order */
    ckpt_element_kind kind;
    int bytes;
};

static const struct ckpt_element element[] = {
    {"b1", ELEMENT_UNSIGNED, 1}, {"u1", ELEMENT_UNSIGNED, 1}, {"u2", ELEMENT_UNSIGNED, 2}, {"u4", ELEMENT_UNSIGNED, 4},
    {"u8", ELEMENT_UNSIGNED, 8}, {"i1", ELEMENT_SIGNED, 1},   {"i2", ELEMENT_SIGNED, 2},   {"i4", ELEMENT_SIGNED, 4},
    {"i8", ELEMENT_SIGNED, 8},   {"f2", ELEMENT_FLOAT, 2},    {"f4", ELEMENT_FLOAT, 4},    {"f8", ELEMENT_FLOAT, 8},
};

/* What a .npy file says of itself. */
typedef struct npy {
    const struct ckpt_element *element;
    ckpt_shape shape;
    const unsigned char *bytes;
} npy;

static uint64_t little_endian(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | at[i];
    }
    return value;
}

/* IEEE 754 binary16. */
static double half_value(uint64_t bits)
{
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    const double size = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

static double float_at(const struct ckpt_element *e, const unsigned char *at)
{
    const uint64_t bits = little_endian(at, e->bytes);
    if (e->kind == ELEMENT_FLOAT && e->bytes == 2) {
        return half_value(bits);
    }
    if (e->kind == ELEMENT_FLOAT && e->bytes == 4) {
        const uint32_t low = (uint32_t)bits;
        float value;
        memcpy(&value, &low, sizeof value);
        return (double)value;
    }
    double value = (double)bits;
    if (e->kind == ELEMENT_FLOAT) {
        memcpy(&value, &bits, sizeof value);
    } else if (e->kind == ELEMENT_SIGNED) {
        const int unused = 64 - 8 * e->bytes;
        value = (double)((int64_t)(bits << unused) >> unused);
    }
    return value;
}

static ckpt_code put_integer(const ckpt_data *data, int i, double value, int64_t record, int32_t *to, ckpt_err *err)
{
    const double limit = data->class_limit[i] > 0 ? (double)data->class_limit[i] : (double)INT_MAX + 1;
    const double least = data->class_limit[i] > 0 ? 0 : (double)INT_MIN;
    if (!(value >= least && value < limit)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "row %lld of the array of input %s has %.17g, wanted at least %.0f and less than %.0f",
                         (long long)record, data->model->input[i].name, value, least, limit);
    }
    *to = (int32_t)value;
    return CKPT_OK;
}

static ckpt_code put_row(const ckpt_data *data, int64_t record, int64_t row, void *const *input, ckpt_err *err)
{
    for (int i = 0; i < data->model->input_count; i++) {
        const ckpt_tensor *const tensor = &data->model->input[i];
        if (input[i] == NULL) {
            continue;
        }
        const ckpt_shape *const shape = &tensor->shape;
        const struct ckpt_element *const e = data->array[i].element;
        int64_t stride[CKPT_RANK_MAX], at[CKPT_RANK_MAX] = {0};
        ckpt_shape_strides(shape, stride);
        const int64_t count = ckpt_shape_count(shape) / shape->dim[0];
        const unsigned char *from = data->array[i].bytes + record * count * e->bytes;
        for (int64_t n = 0; n < count; n++, from += e->bytes) {
            int64_t to = row * stride[0];
            for (int d = 1; d < shape->rank; d++) {
                to += at[d] * stride[d];
            }
            if (tensor->dtype == CKPT_FLOAT32) {
                ((float *)input[i])[to] = (float)float_at(e, from);
            } else {
                CKPT_TRY(put_integer(data, i, float_at(e, from), record, (int32_t *)input[i] + to, err));
            }
            for (int d = shape->rank - 1; d > 0 && ++at[d] == shape->dim[d]; d--) {
                at[d] = 0;
            }
        }
    }
    return CKPT_OK;
}

/* What stands behind 'key': in the header's dictionary, which ends at `end`; NULL: nothing. */
static const char *value_of(const char *header, const char *key)
{
    const char *const at = strstr(header, key);
    return at != NULL ? at + strlen(key) + strspn(at + strlen(key), " ") : NULL;
}

static ckpt_code read_shape(const char *path, const char *text, ckpt_shape *shape, ckpt_err *err)
{
    shape->rank = 0;
    const char *at = text != NULL && text[0] == '(' ? text + 1 : "";
    while (at[0] >= '0' && at[0] <= '9' && shape->rank < CKPT_RANK_MAX) {
        char *end = NULL;
        const unsigned long long dim = strtoull(at, &end, 10);
        shape->dim[shape->rank++] = dim < INT64_MAX ? (int64_t)dim : INT64_MAX;
        at = end + strspn(end, ", ");
    }
    return at[0] == ')' ? CKPT_OK
                        : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: its header has no \"shape\" of at most %d dims", path,
                                    CKPT_RANK_MAX);
}

/* The header ends with a line feed; `length` bytes, copied so that it ends with a zero. */
static ckpt_code read_header(const char *path, const char *header, npy *array, ckpt_err *err)
{
    const char *const type = value_of(header, "'descr':"), *const order = value_of(header, "'fortran_order':");
    array->element = NULL;
    for (size_t i = 0; type != NULL && i < sizeof element / sizeof element[0]; i++) {
        const bool little = type[0] == '\'' && (type[1] == '<' || (type[1] == '|' && element[i].bytes == 1));
        if (little && strncmp(type + 2, element[i].name, 2) == 0 && type[4] == '\'') {
            array->element = &element[i];
        }
    }
    if (array->element == NULL) {
        const int shown = type != NULL ? (int)strcspn(type, ",\n}") : 0;
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: elements of type %.*s, wanted little-endian integers, floats or booleans", path,
                         shown < 40 ? shown : 40, type != NULL ? type : "");
    }
    if (order == NULL || strncmp(order, "False", 5) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: in Fortran's order, wanted numpy.ascontiguousarray", path);
    }
    return read_shape(path, value_of(header, "'shape':"), &array->shape, err);
}

static ckpt_code open_npy(ckpt_data *data, const char *path, npy *array, ckpt_err *err)
{
    static const char magic[] = "\x93NUMPY";
    const ckpt_mapped *file = NULL;
    CKPT_TRY(ckpt_data_map(data, path, &file, err));
    if (file->length < 12 || memcmp(file->bytes, magic, 6) != 0 || file->bytes[6] < 1 || file->bytes[6] > 3) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no NumPy array of version 1 to 3", path);
    }
    const size_t before = file->bytes[6] == 1 ? 10 : 12;
    const uint64_t length = little_endian(file->bytes + 8, (int)before - 8);
    if (length > file->length - before) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a header of %llu bytes in a file of %zu", path,
                         (unsigned long long)length, file->length);
    }
    char *const header = CKPT_NEW(&data->arena, char, length + 1);
    if (header == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the header of %s", path);
    }
    memcpy(header, file->bytes + before, (size_t)length);
    CKPT_TRY(read_header(path, header, array, err));
    array->bytes = file->bytes + before + length;
    uint64_t room = file->length - before - length;
    for (int d = 0; d < array->shape.rank; d++) { /* no product that could overflow */
        room = array->shape.dim[d] == 0 ? 0 : room / (uint64_t)array->shape.dim[d];
    }
    uint64_t wanted = (uint64_t)array->element->bytes;
    if (room == wanted) {
        for (int d = 0; d < array->shape.rank; d++) {
            wanted *= (uint64_t)array->shape.dim[d];
        }
    }
    char text[CKPT_SHAPE_TEXT];
    return wanted == file->length - before - length
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %llu bytes behind the header, which says %s of %d bytes each",
                           path, (unsigned long long)(file->length - before - length),
                           ckpt_shape_show(&array->shape, text), array->element->bytes);
}

/* Takes "input=path" apart and gives the input's number. */
static ckpt_code find_input(const ckpt_data *data, char *pair, int *input, const char **path, ckpt_err *err)
{
    char *const equals = strchr(pair, '=');
    if (equals == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: \"%s\", wanted INPUT=FILE.npy", pair);
    }
    *equals = '\0';
    *path = equals + 1;
    for (int i = 0; i < data->model->input_count; i++) {
        if (strcmp(data->model->input[i].name, pair) == 0) {
            *input = i;
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: model %s has no input %s", data->model->name, pair);
}

/* A row of the array must be a row of the input. */
static ckpt_code check_rows(const ckpt_tensor *input, const char *path, const npy *array, ckpt_err *err)
{
    char shape[CKPT_SHAPE_TEXT], wanted[CKPT_SHAPE_TEXT];
    const ckpt_shape *const a = &array->shape;
    bool same = a->rank == input->shape.rank && a->rank >= 1 && a->dim[0] >= 1;
    for (int d = 1; same && d < a->rank; d++) {
        same = a->dim[d] == input->shape.dim[d];
    }
    if (!same) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: an array %s; input %s is %s, wanted one that differs in its first dim alone", path,
                         ckpt_shape_show(a, shape), input->name, ckpt_shape_show(&input->shape, wanted));
    }
    if (input->dtype == CKPT_INT32 && array->element->kind == ELEMENT_FLOAT) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: an array of floats; input %s is int32", path, input->name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_open_arrays(ckpt_data *data, char *list, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    ckpt_array *const arrays = CKPT_NEW(&data->arena, ckpt_array, model->input_count);
    if (arrays == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d arrays", model->input_count);
    }
    data->array = arrays;
    int64_t records = -1;
    for (char *pair = list, *next = NULL; pair != NULL; pair = next) {
        next = ckpt_data_next_name(pair);
        int i = 0;
        const char *path = NULL;
        npy array;
        CKPT_TRY(find_input(data, pair, &i, &path, err));
        if (arrays[i].bytes != NULL || data->file_count == CKPT_DATA_FILES_MAX) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: a second one for input %s, or more than %d", pair,
                             CKPT_DATA_FILES_MAX);
        }
        CKPT_TRY(open_npy(data, path, &array, err));
        CKPT_TRY(check_rows(&model->input[i], path, &array, err));
        if (records >= 0 && array.shape.dim[0] != records) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld rows, and the array before it has %lld", path,
                             (long long)array.shape.dim[0], (long long)records);
        }
        records = array.shape.dim[0];
        arrays[i] = (ckpt_array){.bytes = array.bytes, .element = array.element};
    }
    for (int i = 0; i < model->input_count; i++) {
        const ckpt_tensor *const input = &model->input[i];
        if (arrays[i].bytes == NULL || input->shape.dim[0] != model->input[0].shape.dim[0]) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: input %s %s", input->name,
                             arrays[i].bytes == NULL ? "has none" : "has another number of rows than the first input");
        }
    }
    ckpt_data_take_records(data, records, model->input[0].shape.dim[0], put_row);
    return CKPT_OK;
}
