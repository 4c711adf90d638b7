/* Weights: files, and every tensor that they have. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "core/formats/safetensors.h"

enum { BYTES_MAX = 1 << 20 };

static void read_all(const ckpt_safetensors *tensors, ckpt_err *err)
{
    for (int i = 0; i < ckpt_safetensors_count(tensors); i++) {
        const ckpt_safetensor *const tensor = ckpt_safetensors_at(tensors, i);
        FUZZ_CHECK(tensor->count >= 0 && tensor->bytes >= 0, "a tensor of less than nothing");
        FUZZ_CHECK(ckpt_safetensors_find(tensors, tensor->name) == i, "%s is not found", tensor->name);
        if (tensor->bytes > BYTES_MAX || tensor->count > BYTES_MAX) {
            continue;
        }
        void *const bytes = malloc((size_t)tensor->bytes + 1);
        float *const value = malloc((size_t)tensor->count * sizeof *value + 1);
        FUZZ_CHECK(bytes != NULL && value != NULL, "no memory");
        ckpt_code code = ckpt_safetensors_bytes(tensors, i, 0, tensor->bytes, bytes, err);
        FUZZ_CHECK(code == CKPT_OK, "bytes of %s: %s", tensor->name, err->msg);
        code = ckpt_safetensors_floats(tensors, i, value, err);
        FUZZ_CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT, "numbers of %s: %s", tensor->name, err->msg);
        free(value);
        free(bytes);
    }
}

static ckpt_code read_safetensors(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_safetensors *tensors = NULL;
    CKPT_TRY(ckpt_safetensors_open(path, &tensors, err));
    read_all(tensors, err);
    ckpt_safetensors_close(tensors);
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {.name = "safetensors", .split = fuzz_split_safetensors, .read = read_safetensors};
