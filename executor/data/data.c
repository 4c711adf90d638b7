/* Where batches come from. What batch a step sees is a function of seed and step alone, so that nothing about the
 * data has to be saved with the training state. */
#include "executor/data/data.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "executor/data/data_impl.h"
#include "kernels/philox.h"

static void fill_floats(const ckpt_data *data, uint64_t step, int input, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t word[4];
        ckpt_data_words(data, (uint32_t)input, (uint64_t)(i / 4), (uint32_t)step, word);
        for (int64_t j = i; j < count && j < i + 4; j++) {
            to[j] = 2.0f * ckpt_philox_uniform(word[j - i]) - 1.0f;
        }
    }
}

static void fill_integers(const ckpt_data *data, uint64_t step, int input, int64_t count, int32_t *to)
{
    const int64_t limit = data->class_limit[input];
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t word[4];
        ckpt_data_words(data, (uint32_t)input, (uint64_t)(i / 4), (uint32_t)step, word);
        for (int64_t j = i; j < count && j < i + 4; j++) {
            to[j] = limit > 0 ? (int32_t)(word[j - i] % (uint64_t)limit) : 0;
        }
    }
}

static ckpt_code fill_synthetic(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err)
{
    (void)err;
    for (int i = 0; i < data->model->input_count; i++) {
        const int64_t count = ckpt_shape_count(&data->model->input[i].shape);
        if (input[i] == NULL) {
            continue;
        }
        if (data->model->input[i].dtype == CKPT_FLOAT32) {
            fill_floats(data, step, i, count, input[i]);
        } else {
            fill_integers(data, step, i, count, input[i]);
        }
    }
    return CKPT_OK;
}

static ckpt_code open_synthetic(ckpt_data *data, char *list, ckpt_err *err)
{
    if (list[0] != '\0') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "synthetic data take no file, found \"%s\"", list);
    }
    data->fill = fill_synthetic;
    return CKPT_OK;
}

static const struct {
    const char *name;
    ckpt_code (*open)(ckpt_data *data, char *list, ckpt_err *err);
} source[] = {
    {"text", ckpt_data_open_text},     {"tokens", ckpt_data_open_tokens}, {"cifar10", ckpt_data_open_cifar10},
    {"mnist", ckpt_data_open_mnist},   {"arrays", ckpt_data_open_arrays}, {"safetensors", ckpt_data_open_safetensors},
    {"images", ckpt_data_open_folder}, {"synthetic", open_synthetic},
};

static ckpt_code open_source(ckpt_data *data, const char *spec, ckpt_err *err)
{
    const char *const colon = strchr(spec, ':');
    const size_t length = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    char *const list = ckpt_arena_text(&data->arena, colon != NULL ? colon + 1 : "");
    if (list == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the data's file names");
    }
    for (size_t i = 0; i < sizeof source / sizeof source[0]; i++) {
        if (strlen(source[i].name) == length && strncmp(source[i].name, spec, length) == 0) {
            CKPT_TRY_WHILE(err, source[i].open(data, list, err), "opening the data");
            char *const about = data->identity.about;
            if (about[0] == '\0') {
                snprintf(about, CKPT_DATA_ABOUT, "%s, %d file%s, %lld bytes", source[i].name, data->file_count,
                         data->file_count == 1 ? "" : "s", (long long)ckpt_data_mapped_bytes(data));
            }
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "data \"%s\": wanted " CKPT_DATA_SOURCES, spec);
}

ckpt_code ckpt_data_open(const char *spec, const ckpt_model *model, const int64_t *class_limit, uint64_t seed,
                         ckpt_data **data, ckpt_err *err)
{
    ckpt_data *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the data");
    }
    ckpt_arena_init(&made->arena);
    made->model = model;
    made->seed = seed;
    int64_t *const limit = CKPT_NEW(&made->arena, int64_t, model->input_count);
    made->ignored = CKPT_NEW(&made->arena, int64_t, model->input_count);
    made->stamping = ckpt_digest_create();
    ckpt_code code = CKPT_OK;
    if (limit == NULL || made->ignored == NULL || made->stamping == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the data");
    } else {
        for (int i = 0; i < model->input_count; i++) {
            limit[i] = class_limit[i];
            made->ignored[i] = 0;
        }
        made->class_limit = limit;
        code = open_source(made, spec, err);
    }
    if (code != CKPT_OK) {
        ckpt_data_close(made);
        return code;
    }
    ckpt_digest_end(made->stamping, made->identity.stamp);
    made->stamping = NULL;
    if (made->file_count == 0 && made->folder.path == NULL) {
        made->identity.stamp[0] = '\0';
    }
    *data = made;
    return CKPT_OK;
}

void ckpt_data_close(ckpt_data *data)
{
    if (data == NULL) {
        return;
    }
    for (int i = 0; i < data->file_count; i++) {
        munmap((void *)(uintptr_t)data->file[i].bytes, data->file[i].length);
    }
    if (data->stamping != NULL) {
        ckpt_digest_end(data->stamping, data->identity.stamp);
    }
    ckpt_arena_fini(&data->arena);
    ckpt_memory_put(data);
}

ckpt_code ckpt_data_fill(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err)
{
    return data->fill(data, step, input, err);
}

bool ckpt_data_decodes(const ckpt_data *data)
{
    return data->decodes;
}

int64_t ckpt_data_batches(const ckpt_data *data)
{
    return data->record == NULL ? 0 : data->records / data->rows > 0 ? data->records / data->rows : 1;
}

ckpt_bytes ckpt_data_mapped_bytes(const ckpt_data *data)
{
    ckpt_bytes total = 0;
    for (int i = 0; i < data->file_count; i++) {
        total += (ckpt_bytes)data->file[i].length;
    }
    return total;
}

const ckpt_data_identity *ckpt_data_identify(const ckpt_data *data)
{
    return &data->identity;
}

bool ckpt_data_reads(const ckpt_data *data, const char *path)
{
    for (int i = 0; data != NULL && i < data->file_count; i++) {
        if (ckpt_file_same(path, data->file[i].path)) {
            return true;
        }
    }
    struct stat is;
    const bool pictures = data != NULL && data->folder.path != NULL && path != NULL && stat(path, &is) == 0;
    for (int64_t i = 0; pictures && i < data->records; i++) {
        if (ckpt_file_same(path, data->folder.path[i])) {
            return true;
        }
    }
    return false;
}

const char *ckpt_data_file_at(const ckpt_data *data, const void *address)
{
    for (int i = 0; i < data->file_count; i++) {
        const uintptr_t first = (uintptr_t)data->file[i].bytes, at = (uintptr_t)address;
        if (at >= first && at - first < data->file[i].length) {
            return data->file[i].path;
        }
    }
    return NULL;
}

void ckpt_data_class_limits(const ckpt_network *network, int64_t *limit)
{
    for (int i = 0; i < network->model->input_count; i++) {
        limit[i] = 0;
    }
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->in_count; k++) {
            const ckpt_value *const value = &network->value[network->value[node->in_value[k]].storage];
            if (value->node >= 0 || node->in[k].dtype != CKPT_INT32) {
                continue;
            }
            const int64_t found = ckpt_node_limit(node, k);
            int64_t *const limit_here = &limit[value->output];
            if (found > 0 && (*limit_here == 0 || found < *limit_here)) {
                *limit_here = found;
            }
        }
    }
}

static bool has_attr(const ckpt_node *node, const char *name)
{
    const ckpt_attr_spec *const specs = node->op->attrs;
    for (int i = 0; specs != NULL && specs[i].name != NULL; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

void ckpt_data_allow_ignored(ckpt_data *data, const ckpt_network *network)
{
    for (int i = 0; i < network->model->input_count; i++) {
        int64_t ignored = 0;
        bool same = true;
        for (int n = 0; n < network->node_count; n++) {
            const ckpt_node *const node = &network->node[n];
            for (int k = 0; k < node->in_count; k++) {
                const ckpt_value *const value = &network->value[network->value[node->in_value[k]].storage];
                if (value->node >= 0 || value->output != i) {
                    continue;
                }
                const bool target = node->op->loss && k > 0 && has_attr(node, "ignore_index");
                const int64_t here = target ? ckpt_node_int(node, "ignore_index") : 0;
                same = same && target && (ignored == 0 || here == ignored);
                ignored = here;
            }
        }
        data->ignored[i] = same ? ignored : 0;
    }
}
