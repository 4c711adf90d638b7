/* Training data: the last byte of an input says what the bytes before it are. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "executor/data/data.h"
#include "tests/support/support_network.h"

typedef enum model_kind { TOKENS, IMAGES, CIFAR } model_kind;

#define NPY(type, shape) "\x93NUMPY\1\0\x3f\0{'descr': '" type "', 'fortran_order': False, 'shape': (" shape "), }\n"
#define BYTES(text)      text, sizeof(text) - 1

/* The first %s is the file, and a second one is `beside`. */
static const struct {
    const char *spec;
    model_kind model;
    const char *good;
    size_t good_size;
    const char *beside;
    size_t beside_size;
} source[] = {
    {"text:%s", TOKENS, BYTES("what is read is as long as it should be"), BYTES("")},
    {"tokens:%s", TOKENS, BYTES("a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0"), BYTES("")},
    {"arrays:x=%s,y=%s", IMAGES, BYTES(NPY("<f4", "2,1,2,2") "0000111122223333444455556666777"),
     BYTES(NPY("<i4", "2,     ") "\1\0\0\0\2\0\0")},
    {"safetensors:%s", IMAGES,
     BYTES("\x74\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[2,1,2,2],\"data_offsets\":[0,32]},"
           "\"y\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[32,40]}}"
           "00001111222233334444555566667777\1\0\0\0\2\0\0"),
     BYTES("")},
    {"mnist:%s,%s", IMAGES, BYTES("\0\0\x8\3\0\0\0\2\0\0\0\2\0\0\0\2aaaabbb"), BYTES("\0\0\x8\1\0\0\0\2\1")},
    {"cifar10:%s", CIFAR, BYTES(""), BYTES("")},
};
enum { SOURCES = sizeof source / sizeof *source, RECORD = 1 + 3 * 32 * 32 };

/* The 0 that ends a literal counts where it is the last byte of a number; elsewhere it does no harm. */
static size_t make_data(uint8_t *bytes, size_t room)
{
    static int next;
    const int k = next++ % SOURCES;
    size_t size = source[k].good_size + 1;
    memcpy(bytes, source[k].good, size);
    if (source[k].model == TOKENS) {
        size--;
    } else if (source[k].model == CIFAR) {
        size = 2 * RECORD;
        memset(bytes, 7, size);
    }
    bytes[size] = (uint8_t)k;
    return size + 1;
}

static ckpt_code fill(const char *spec, const ckpt_model *model, ckpt_err *err)
{
    static int32_t integer[2][RECORD];
    static float real[2 * RECORD];
    static const int64_t limit[] = {256, 256};
    void *const input[] = {model->input[0].dtype == CKPT_INT32 ? (void *)integer[0] : (void *)real, integer[1]};
    ckpt_data *data = NULL;
    CKPT_TRY(ckpt_data_open(spec, model, limit, 1, &data, err));
    ckpt_code code = CKPT_OK;
    for (uint64_t step = 0; step < 3 && code == CKPT_OK; step++) {
        code = ckpt_data_fill(data, step, input, err);
    }
    ckpt_data_close(data);
    return code;
}

static void make_model(test_model *m, model_kind kind)
{
    test_model_init(m);
    if (kind == TOKENS) {
        test_input(m, "x", CKPT_INT32, 2, (int64_t[]){2, 4});
        test_input(m, "y", CKPT_INT32, 2, (int64_t[]){2, 4});
    } else {
        const int64_t side = kind == CIFAR ? 32 : 2;
        test_input(m, "x", CKPT_FLOAT32, 4, (int64_t[]){2, kind == CIFAR ? 3 : 1, side, side});
        test_input(m, "y", CKPT_INT32, 1, (int64_t[]){2});
    }
}

static ckpt_code read_data(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    static test_model m;
    const char *bytes = NULL;
    size_t length = 0;
    char spec[120];
    CKPT_TRY(ckpt_file_read(path, arena, &bytes, &length, err));
    length -= length > 0;
    const int k = (unsigned char)bytes[length] % SOURCES;
    const char *const file = fuzz_file(0, bytes, length);
    snprintf(spec, sizeof spec, source[k].spec, file, fuzz_file(1, source[k].beside, source[k].beside_size + 1));
    make_model(&m, source[k].model);
    const ckpt_code code = fill(spec, &m.model, err);
    test_model_fini(&m);
    return code;
}

const fuzz_reader fuzz_the_reader = {.name = "data", .split = fuzz_split_text, .read = read_data, .seed = make_data};
