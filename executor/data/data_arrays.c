/* Arrays, one for each input of the model, by the input's name: NumPy's, or tensors of a safetensors file. A record is a row
 * along their first dim. Source: numpy.lib.format, "NPY format", versions 1.0 to 3.0. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/formats/safetensors.h"
#include "executor/data/data_impl.h"

typedef enum ckpt_element_kind { ELEMENT_UNSIGNED, ELEMENT_SIGNED, ELEMENT_FLOAT, ELEMENT_BFLOAT } ckpt_element_kind;

struct ckpt_element {
    const char *npy,
        *safetensors; /* its names; that of NumPy without the sign of its byte order; NULL: unknown there */
    ckpt_element_kind kind;
    int bytes;
};

static const struct ckpt_element element[] = {
    {"b1", "BOOL", ELEMENT_UNSIGNED, 1}, {"u1", "U8", ELEMENT_UNSIGNED, 1},  {"u2", "U16", ELEMENT_UNSIGNED, 2},
    {"u4", "U32", ELEMENT_UNSIGNED, 4},  {"u8", "U64", ELEMENT_UNSIGNED, 8}, {"i1", "I8", ELEMENT_SIGNED, 1},
    {"i2", "I16", ELEMENT_SIGNED, 2},    {"i4", "I32", ELEMENT_SIGNED, 4},   {"i8", "I64", ELEMENT_SIGNED, 8},
    {"f2", "F16", ELEMENT_FLOAT, 2},     {"f4", "F32", ELEMENT_FLOAT, 4},    {"f8", "F64", ELEMENT_FLOAT, 8},
    {NULL, "BF16", ELEMENT_BFLOAT, 2},
};

/* What a file says of an array. */
typedef struct stored {
    const struct ckpt_element *element;
    ckpt_shape shape;
    const unsigned char *bytes;
} stored;

static uint64_t little_endian(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | at[i];
    }
    return value;
}

static double float_at(const struct ckpt_element *e, const unsigned char *at)
{
    const uint64_t bits = little_endian(at, e->bytes);
    if (e->kind == ELEMENT_BFLOAT) {
        return (double)ckpt_bfloat16_value((uint16_t)bits);
    }
    if (e->kind == ELEMENT_FLOAT && e->bytes == 2) {
        return (double)ckpt_float16_value((uint16_t)bits);
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
    const bool ignored = data->ignored[i] != 0 && value == (double)data->ignored[i];
    if (!ignored && !(value >= least && value < limit)) {
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
static ckpt_code read_header(const char *path, const char *header, stored *array, ckpt_err *err)
{
    const char *const type = value_of(header, "'descr':"), *const order = value_of(header, "'fortran_order':");
    array->element = NULL;
    for (size_t i = 0; type != NULL && i < sizeof element / sizeof element[0]; i++) {
        const bool little = type[0] == '\'' && (type[1] == '<' || (type[1] == '|' && element[i].bytes == 1));
        if (little && element[i].npy != NULL && strncmp(type + 2, element[i].npy, 2) == 0 && type[4] == '\'') {
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

static ckpt_code open_npy(ckpt_data *data, const char *path, stored *array, ckpt_err *err)
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

/* A row of the array must be a row of the input. */
static ckpt_code check_rows(const ckpt_tensor *input, const char *path, const stored *array, ckpt_err *err)
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
    if (input->dtype == CKPT_INT32 && array->element->kind >= ELEMENT_FLOAT) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: an array of floats; input %s is int32", path, input->name);
    }
    return CKPT_OK;
}

static ckpt_code open_list(ckpt_data *data, ckpt_array **arrays, ckpt_err *err)
{
    *arrays = CKPT_NEW(&data->arena, ckpt_array, data->model->input_count);
    data->array = *arrays;
    return *arrays != NULL ? CKPT_OK
                           : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d arrays", data->model->input_count);
}

/* The array of input i; all have as many rows. */
static ckpt_code add_array(const ckpt_data *data, ckpt_array *arrays, int i, const char *path, const stored *array,
                           int64_t *records, ckpt_err *err)
{
    const char *const name = data->model->input[i].name;
    if (arrays[i].bytes != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a second array for input %s", path, name);
    }
    CKPT_TRY(check_rows(&data->model->input[i], path, array, err));
    if (*records >= 0 && array->shape.dim[0] != *records) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld rows for input %s, and the array before it has %lld", path,
                         (long long)array->shape.dim[0], name, (long long)*records);
    }
    *records = array->shape.dim[0];
    arrays[i] = (ckpt_array){.bytes = array->bytes, .element = array->element};
    return CKPT_OK;
}

/* Files in the order of the inputs that they fill, in whatever order they were named. */
static void order_files(ckpt_data *data, const ckpt_array *arrays)
{
    for (int i = 0; i < data->file_count; i++) {
        for (int f = i; f < data->file_count; f++) {
            const ckpt_mapped file = data->file[f];
            if (arrays[i].bytes > file.bytes && arrays[i].bytes <= file.bytes + file.length) {
                data->file[f] = data->file[i];
                data->file[i] = file;
            }
        }
    }
}

/* Every input has its array, and as many rows in a batch. */
static ckpt_code take(ckpt_data *data, const char *what, const ckpt_array *arrays, int64_t records, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    for (int i = 0; i < model->input_count; i++) {
        const ckpt_tensor *const input = &model->input[i];
        if (arrays[i].bytes == NULL || input->shape.dim[0] != model->input[0].shape.dim[0]) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: input %s %s", what, input->name,
                             arrays[i].bytes == NULL ? "has no array"
                                                     : "has another number of rows than the first input");
        }
    }
    order_files(data, arrays);
    ckpt_data_take_records(data, records, model->input[0].shape.dim[0], put_row);
    return CKPT_OK;
}

static int find_by_name(const ckpt_model *model, const char *name)
{
    int found = -1;
    for (int i = 0; i < model->input_count; i++) {
        found = strcmp(model->input[i].name, name) == 0 ? i : found;
    }
    return found;
}

ckpt_code ckpt_data_open_arrays(ckpt_data *data, char *list, ckpt_err *err)
{
    ckpt_array *arrays = NULL;
    int64_t records = -1;
    CKPT_TRY(open_list(data, &arrays, err));
    for (char *pair = list, *next = NULL; pair != NULL; pair = next) {
        next = ckpt_data_next_name(pair);
        char *const equals = strchr(pair, '=');
        if (equals == NULL || data->file_count == CKPT_DATA_FILES_MAX) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: \"%s\", wanted INPUT=FILE.npy, at most %d of them", pair,
                             CKPT_DATA_FILES_MAX);
        }
        *equals = '\0';
        const int i = find_by_name(data->model, pair);
        if (i < 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "arrays: model %s has no input %s", data->model->name, pair);
        }
        stored array;
        CKPT_TRY(open_npy(data, equals + 1, &array, err));
        CKPT_TRY(add_array(data, arrays, i, equals + 1, &array, &records, err));
    }
    return take(data, "arrays", arrays, records, err);
}

/* The tensor as an array; `begin`: the first byte of all tensors. */
static ckpt_code look_at(const char *path, const unsigned char *begin, const ckpt_safetensor *tensor, stored *array,
                         ckpt_err *err)
{
    array->element = NULL;
    for (size_t i = 0; i < sizeof element / sizeof element[0]; i++) {
        array->element = strcmp(element[i].safetensors, tensor->type) == 0 ? &element[i] : array->element;
    }
    if (array->element == NULL || tensor->rank > CKPT_RANK_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: tensor %.80s is %s with %d dims, wanted integers, floats or booleans with %d", path,
                         tensor->name, tensor->type, tensor->rank, CKPT_RANK_MAX);
    }
    array->shape.rank = tensor->rank;
    for (int d = 0; d < tensor->rank; d++) {
        array->shape.dim[d] = tensor->dim[d];
    }
    array->bytes = begin + tensor->at;
    return CKPT_OK;
}

static ckpt_code add_tensors(const ckpt_data *data, const char *path, const unsigned char *bytes,
                             const ckpt_safetensors *tensors, ckpt_array *arrays, int64_t *records, ckpt_err *err)
{
    const unsigned char *const begin = bytes + 8 + little_endian(bytes, 8); /* the header has been checked */
    for (int t = 0; t < ckpt_safetensors_count(tensors); t++) {
        const ckpt_safetensor *const tensor = ckpt_safetensors_at(tensors, t);
        const int i = find_by_name(data->model, tensor->name);
        if (i < 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: tensor %.80s, and model %s has no such input", path,
                             tensor->name, data->model->name);
        }
        stored array;
        CKPT_TRY(look_at(path, begin, tensor, &array, err));
        CKPT_TRY(add_array(data, arrays, i, path, &array, records, err));
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_open_safetensors(ckpt_data *data, char *path, ckpt_err *err)
{
    ckpt_array *arrays = NULL;
    ckpt_safetensors *tensors = NULL;
    int64_t records = -1;
    const ckpt_mapped *file = NULL;
    CKPT_TRY(open_list(data, &arrays, err));
    CKPT_TRY(ckpt_data_map(data, path, &file, err));
    CKPT_TRY(ckpt_safetensors_open_bytes(path, file->bytes, file->length, &tensors, err));
    const ckpt_code code = add_tensors(data, path, file->bytes, tensors, arrays, &records, err);
    ckpt_safetensors_close(tensors);
    CKPT_TRY(code);
    return take(data, path, arrays, records, err);
}
