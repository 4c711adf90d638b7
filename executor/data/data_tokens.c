/* Files of tokens, as language models are trained from: rows of the model's length, one behind the other, whose targets
 * are the tokens that follow.
 *
 * Source: llm.c, dev/data/data_common.py and llmc/dataloader.h (256 int32: magic 20240520, version 1, number of tokens,
 * then uint16 tokens; of Llama 3 magic 20240801, version 7, uint32 tokens); nanoGPT, data/openwebtext/prepare.py (uint16
 * tokens, no header). */
#include <limits.h>
#include <string.h>

#include "executor/data/data_impl.h"

enum { HEADER_BYTES = 1024, MAGIC_SHORT = 20240520, MAGIC_LONG = 20240801, VERSION_SHORT = 1, VERSION_LONG = 7 };

static uint32_t word_at(const unsigned char *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static uint32_t token_at(const ckpt_tokens *tokens, const unsigned char *first, int64_t i)
{
    const unsigned char *const at = first + i * tokens->width;
    return tokens->width == 4 ? word_at(at) : (uint32_t)at[1] << 8 | at[0];
}

static int64_t row_length(const ckpt_data *data)
{
    const ckpt_shape *const shape = &data->model->input[data->first].shape;
    return shape->dim[shape->rank - 1];
}

static ckpt_code put_row(const ckpt_data *data, int64_t record, int64_t row, void *const *input, ckpt_err *err)
{
    const int64_t length = row_length(data);
    int file = 0;
    while (record >= data->tokens.rows[file]) {
        record -= data->tokens.rows[file++];
    }
    for (int role = 0; role < 2; role++) {
        const int i = role == 0 ? data->first : data->second;
        if (i < 0 || input[i] == NULL) {
            continue;
        }
        const int64_t limit = data->class_limit[i] > 0 ? data->class_limit[i] : INT_MAX;
        int32_t *const to = (int32_t *)input[i] + row * length;
        for (int64_t t = 0; t < length; t++) {
            const int64_t at = record * length + t + role;
            const uint32_t token = token_at(&data->tokens, data->tokens.first[file], at);
            if (token >= limit) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: token %lld is %u, but input %s takes values below %lld",
                                 data->file[file].path, (long long)at, token, data->model->input[i].name,
                                 (long long)limit);
            }
            to[t] = (int32_t)token;
        }
    }
    return CKPT_OK;
}

/* The tokens behind the header, if there is one. */
static ckpt_code look_at(const ckpt_mapped *file, int *width, const unsigned char **first, int64_t *count,
                         ckpt_err *err)
{
    const uint32_t magic = file->length >= 4 ? word_at(file->bytes) : 0;
    *first = file->bytes;
    *width = 2;
    *count = (int64_t)(file->length / 2);
    if (magic != MAGIC_SHORT && magic != MAGIC_LONG) {
        return file->length % 2 == 0
                   ? CKPT_OK
                   : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes and no header of llm.c, wanted tokens of two bytes",
                               file->path, file->length);
    }
    *width = magic == MAGIC_LONG ? 4 : 2;
    const uint32_t wanted = magic == MAGIC_LONG ? VERSION_LONG : VERSION_SHORT;
    if (file->length < HEADER_BYTES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes, which is less than a header of llm.c", file->path,
                         file->length);
    }
    if (word_at(file->bytes + 4) != wanted) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: header of llm.c with version %u, wanted %u", file->path,
                         word_at(file->bytes + 4), wanted);
    }
    *count = word_at(file->bytes + 8);
    *first = file->bytes + HEADER_BYTES;
    if (file->length - HEADER_BYTES != (size_t)*count * (size_t)*width) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes behind the header, which says %lld tokens of %d bytes",
                         file->path, file->length - HEADER_BYTES, (long long)*count, *width);
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_open_tokens(ckpt_data *data, char *list, ckpt_err *err)
{
    CKPT_TRY(ckpt_data_find_tokens(data, "tokens", err));
    const int64_t length = row_length(data);
    int64_t rows = 0;
    for (char *path = list, *next = NULL; path != NULL; path = next) {
        next = ckpt_data_next_name(path);
        const int f = data->file_count;
        if (f == CKPT_DATA_FILES_MAX) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "at most %d files of tokens are read", CKPT_DATA_FILES_MAX);
        }
        const ckpt_mapped *file = NULL;
        int width = 0;
        int64_t count = 0;
        CKPT_TRY(ckpt_data_map(data, path, &file, err));
        CKPT_TRY(look_at(file, &width, &data->tokens.first[f], &count, err));
        if (f > 0 && width != data->tokens.width) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: tokens of %d bytes, and %s has tokens of %d", path, width,
                             data->file[0].path, data->tokens.width);
        }
        data->tokens.width = width;
        data->tokens.rows[f] = count > 0 ? (count - 1) / length : 0;
        if (data->tokens.rows[f] == 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%s: %lld tokens, wanted at least %lld (one row and the token after it)", path,
                             (long long)count, (long long)length + 1);
        }
        rows += data->tokens.rows[f];
    }
    ckpt_data_take_records(data, rows, ckpt_shape_count(&data->model->input[data->first].shape) / length, put_row);
    return CKPT_OK;
}
