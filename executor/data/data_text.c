/* A text file as bytes: every byte is a token, and the target of a token is the byte after it. */
#include <string.h>

#include "executor/data/data_impl.h"

enum { USE_OFFSET = 0xF0 };

static int64_t row_length(const ckpt_data *data)
{
    const ckpt_shape *const shape = &data->model->input[data->first].shape;
    return shape->dim[shape->rank - 1];
}

static ckpt_code fill_text(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err)
{
    (void)err;
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
    return CKPT_OK;
}

ckpt_code ckpt_data_open_text(ckpt_data *data, char *list, ckpt_err *err)
{
    CKPT_TRY(ckpt_data_find_tokens(data, "text", err));
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
