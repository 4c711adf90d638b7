/* What sources of records share: the order of an epoch, and which inputs of the model they fill. */
#include <string.h>

#include "executor/data/data_impl.h"

enum { USE_ORDER = 0xF1, ROUNDS = 4 };

/* Position of number `at` in an order of all `count` records: a Feistel network over the next power of four, walked
 * until it lands below `count`. No table, so any epoch's order is there at once.
 * Source: Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002 (cycle walking). */
static uint64_t ordered(const ckpt_data *data, uint64_t epoch, uint64_t at, uint64_t count)
{
    unsigned half = 1;
    while ((uint64_t)1 << 2 * half < count) {
        half++;
    }
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t word[4];
            ckpt_data_words(data, USE_ORDER, epoch << 2 | round, (uint32_t)right, word);
            const uint64_t mixed = left ^ (word[0] & mask);
            left = right;
            right = mixed;
        }
        at = left << half | right;
    } while (at >= count);
    return at;
}

static ckpt_code fill_records(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err)
{
    const uint64_t total = (uint64_t)data->records;
    for (int64_t row = 0; row < data->rows; row++) {
        const uint64_t number = step * (uint64_t)data->rows + (uint64_t)row;
        const int64_t at = (int64_t)ordered(data, number / total, number % total, total);
        CKPT_TRY(data->record(data, at, row, input, err));
    }
    return CKPT_OK;
}

void ckpt_data_take_records(ckpt_data *data, int64_t records, int64_t rows,
                            ckpt_code (*record)(const ckpt_data *, int64_t, int64_t, void *const *, ckpt_err *))
{
    data->records = records;
    data->rows = rows;
    data->record = record;
    data->fill = fill_records;
}

char *ckpt_data_next_name(char *list)
{
    char *const comma = strchr(list, ',');
    if (comma == NULL) {
        return NULL;
    }
    *comma = '\0';
    return comma + 1;
}

ckpt_code ckpt_data_find_tokens(ckpt_data *data, const char *what, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    data->first = data->second = -1;
    char first[CKPT_SHAPE_TEXT], second[CKPT_SHAPE_TEXT];
    for (int i = 0; i < model->input_count; i++) {
        const ckpt_tensor *const input = &model->input[i];
        if (input->dtype != CKPT_INT32 || data->second >= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%s fills one or two int32 inputs (tokens, then targets); input %s is %s %s, number %d",
                             what, input->name, ckpt_dtype_name(input->dtype), ckpt_shape_show(&input->shape, first),
                             i + 1);
        }
        if (data->first < 0) {
            data->first = i;
        } else {
            data->second = i;
        }
    }
    if (data->first < 0 || model->input[data->first].shape.rank < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s needs an int32 input of tokens; model %s has none", what,
                         model->name);
    }
    if (data->second >= 0 && !ckpt_shape_equal(&model->input[data->first].shape, &model->input[data->second].shape)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s gives targets of the tokens' shape %s; input %s is %s", what,
                         ckpt_shape_show(&model->input[data->first].shape, first), model->input[data->second].name,
                         ckpt_shape_show(&model->input[data->second].shape, second));
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_find_images(ckpt_data *data, const char *what, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    char shape[CKPT_SHAPE_TEXT];
    data->first = data->second = -1;
    for (int i = 0; i < model->input_count; i++) {
        int *const role = model->input[i].dtype == CKPT_FLOAT32 ? &data->first : &data->second;
        if (*role >= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s gives float32 images and int32 labels; input %s is one more %s",
                             what, model->input[i].name, ckpt_dtype_name(model->input[i].dtype));
        }
        *role = i;
    }
    if (data->first < 0 || model->input[data->first].shape.rank < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s needs a float32 input for the images; model %s has none", what,
                         model->name);
    }
    const int64_t batch = model->input[data->first].shape.dim[0];
    if (data->second >= 0) {
        const ckpt_shape *const label = &model->input[data->second].shape;
        if (label->rank != 1 || label->dim[0] != batch) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %s is %s; %s gives one label per image, [%lld]",
                             model->input[data->second].name, ckpt_shape_show(label, shape), what, (long long)batch);
        }
    }
    return CKPT_OK;
}
