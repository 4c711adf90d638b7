/* A text file as bytes: every byte is a token, and the target of a token is the byte after it. */
#include <string.h>

#include "executor/data/data_impl.h"

enum { USE_OFFSET = 0xF0 };

static int64_t row_length(const ckpt_data *data)
{
    const ckpt_shape *const shape = &data->model->input[data->first].shape;
    return shape->dim[shape->rank - 1];
}

static void fill_text(const ckpt_data *data, uint64_t step, void *const *input)
{
    const ckpt_mapped *const file = &data->file[0];
    const int64_t length = row_length(data);
    const int64_t rows = ckpt_shape_count(&data->model->input[data->first].shape) / length;
    const uint64_t starts = (uint64_t)file->length - (uint64_t)length;
    int32_t *const token = input[data->first];
    int32_t *const target = data->second >= 0 ? input[data->second] : NULL;
    for (int64_t r = 0; r < rows; r++) {
        uint32_t word[4];
        ckpt_data_words(data, USE_OFFSET, step, (uint32_t)r, word);
        const uint64_t start = ((uint64_t)word[0] << 32 | word[1]) % starts;
        const unsigned char *const text = file->bytes + start;
        for (int64_t t = 0; t < length; t++) {
            if (token != NULL) {
                token[r * length + t] = text[t];
            }
            if (target != NULL) {
                target[r * length + t] = text[t + 1];
            }
        }
    }
}

static ckpt_code find_inputs(ckpt_data *data, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    data->first = data->second = -1;
    char first[CKPT_SHAPE_TEXT], second[CKPT_SHAPE_TEXT];
    for (int i = 0; i < model->input_count; i++) {
        const ckpt_tensor *const input = &model->input[i];
        if (input->dtype != CKPT_INT32 || data->second >= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "text fills one or two int32 inputs (tokens, then targets); input %s is %s %s, number %d",
                             input->name, ckpt_dtype_name(input->dtype), ckpt_shape_show(&input->shape, first), i + 1);
        }
        if (data->first < 0) {
            data->first = i;
        } else {
            data->second = i;
        }
    }
    if (data->first < 0 || model->input[data->first].shape.rank < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "text needs an int32 input of tokens; model %s has none", model->name);
    }
    if (data->second >= 0 && !ckpt_shape_equal(&model->input[data->first].shape, &model->input[data->second].shape)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "text gives targets of the tokens' shape %s; input %s is %s",
                         ckpt_shape_show(&model->input[data->first].shape, first), model->input[data->second].name,
                         ckpt_shape_show(&model->input[data->second].shape, second));
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_open_text(ckpt_data *data, char *list, ckpt_err *err)
{
    CKPT_TRY(find_inputs(data, err));
    const ckpt_mapped *file = NULL;
    CKPT_TRY(ckpt_data_map(data, list, &file, err));
    if ((int64_t)file->length <= row_length(data)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes, wanted at least %lld (one row and the byte after it)",
                         list, file->length, (long long)row_length(data) + 1);
    }
    for (int i = 0; i < data->model->input_count; i++) {
        const int64_t limit = data->class_limit[i];
        for (size_t at = 0; limit > 0 && limit < 256 && at < file->length; at++) {
            if (file->bytes[at] >= limit) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: byte %zu is %d, but input %s takes values below %lld", list,
                                 at, file->bytes[at], data->model->input[i].name, (long long)limit);
            }
        }
    }
    data->fill = fill_text;
    return CKPT_OK;
}
