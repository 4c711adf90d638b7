/* labels: unit */
/* Data from the files people have: tokens, NumPy arrays, folders of pictures; workers ahead of the step; damaged files. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

#include "executor/data/loader.h"
#include "executor/data/picture.h"
#include "tests/support/support_data.h"
#include "tests/support/support_network.h"

static void write_all(const char *path, const void *bytes, size_t length)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(bytes, 1, length, file) == length);
    fclose(file);
}

static const char *path_of(const char *name)
{
    static char path[8][512];
    static int next;
    char *const mine = path[next++ % 8];
    snprintf(mine, sizeof path[0], "%s/%s", ckpt_work_dir(), name);
    return mine;
}

static const char *spec(const char *format, const char *a, const char *b)
{
    static char text[4][1200];
    static int next;
    char *const mine = text[next++ % 4];
    snprintf(mine, sizeof text[0], format, a, b);
    return mine;
}

static ckpt_data *open_ok(const char *what, const ckpt_model *model, const int64_t *limit)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    CHECK_OK(ckpt_data_open(what, model, limit, 7, &data, &err), err);
    return data;
}

static void refuse(const char *what, const ckpt_model *model, const int64_t *limit, const char *reason)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    const int64_t live = ckpt_memory_live();
    const ckpt_code code = ckpt_data_open(what, model, limit, 7, &data, &err);
    CHECK(code != CKPT_OK && strstr(err.msg, reason) != NULL, "%s: code %d \"%s\"; wanted \"%s\"", what, (int)code,
          err.msg, reason);
    assert_true(ckpt_memory_live() == live);
}

static void refuse_batch(const char *what, const ckpt_model *model, const int64_t *limit, void *const *input,
                         const char *reason)
{
    ckpt_err err = {0};
    ckpt_data *const data = open_ok(what, model, limit);
    ckpt_code code = CKPT_OK;
    for (uint64_t batch = 0; batch < 8 && code == CKPT_OK; batch++) {
        code = ckpt_data_fill(data, batch, input, &err);
    }
    CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, reason) != NULL, "%s: code %d \"%s\"; wanted \"%s\"", what,
          (int)code, err.msg, reason);
    ckpt_data_close(data);
}

/* ---- tokens ---- */

enum { HEADER = 1024 };

static void put_word(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> 8 * i);
    }
}

/* Token i is i % 97. `magic` 0: without a header. */
static size_t make_tokens(unsigned char *bytes, uint32_t magic, uint32_t version, int count, int width)
{
    size_t at = 0;
    if (magic != 0) {
        memset(bytes, 0, HEADER);
        put_word(bytes, magic);
        put_word(bytes + 4, version);
        put_word(bytes + 8, (uint32_t)count);
        at = HEADER;
    }
    for (int i = 0; i < count; i++, at += (size_t)width) {
        unsigned char word[4];
        put_word(word, (uint32_t)(i % 97));
        memcpy(bytes + at, word, (size_t)width);
    }
    return at;
}

static void language_model(test_model *m)
{
    test_model_init(m);
    test_input(m, "ids", CKPT_INT32, 2, (int64_t[]){3, 8});
    test_input(m, "targets", CKPT_INT32, 2, (int64_t[]){3, 8});
}

/* Every row of every file once in an epoch, and the epochs in different orders. */
static void check_rows(const char *what, const ckpt_model *model, const int64_t *limit, int rows)
{
    int32_t ids[24], targets[24], first[64] = {0}, start[64];
    void *const input[] = {ids, targets};
    ckpt_data *const data = open_ok(what, model, limit);
    int differs = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        int count[97] = {0};
        for (int b = 0; b < rows / 3; b++) {
            ckpt_test_fill(data, (uint64_t)(epoch * (rows / 3) + b), input);
            for (int i = 0; i < 24; i++) {
                assert_int_equal(targets[i], (ids[i] + 1) % 97);
                assert_true(i % 8 == 0 || ids[i] == (ids[i - 1] + 1) % 97);
            }
            for (int r = 0; r < 3; r++) {
                count[ids[8 * r]]++;
                start[3 * b + r] = ids[8 * r];
            }
        }
        for (int r = 0; r < rows; r++) {
            differs += epoch == 1 && first[r] != start[r];
            first[r] = start[r];
        }
        int seen = 0;
        for (int t = 0; t < 97; t++) {
            seen += count[t] > 0;
        }
        assert_int_equal(seen, rows < 97 ? rows : 97); /* 8 and 97 have no common divisor: all starts differ */
    }
    assert_true(differs > rows / 2);
    assert_int_equal(ckpt_data_batches(data), rows / 3);
    ckpt_data_close(data);
}

static void tokens_of_llm_c_and_nanogpt(void **state)
{
    unsigned char bytes[4096];
    const char *const file = path_of("tokens.bin"), *const other = path_of("more.bin");
    const int64_t limit[] = {97, 97}, small[] = {97, 90};
    int32_t ids[24], targets[24];
    void *const input[] = {ids, targets};
    test_model m;
    language_model(&m);
    const char *const one = spec("tokens:%s", file, "");
    write_all(file, bytes, make_tokens(bytes, 0, 0, 12 * 8 + 1, 2));
    check_rows(one, &m.model, limit, 12);
    write_all(file, bytes, make_tokens(bytes, 20240520, 1, 12 * 8 + 8, 2)); /* the last 7 begin no whole row */
    check_rows(one, &m.model, limit, 12);
    refuse_batch(one, &m.model, small, input, "tokens.bin: token 90 is 90, but input targets takes values below 90");
    write_all(file, bytes, make_tokens(bytes, 20240801, 7, 12 * 8 + 1, 4));
    check_rows(one, &m.model, limit, 12);

    write_all(other, bytes, make_tokens(bytes, 20240520, 1, 9, 2));
    refuse(spec("tokens:%s,%s", file, other), &m.model, limit, "tokens of 2 bytes, and");
    write_all(file, bytes, make_tokens(bytes, 20240520, 1, 41, 2));
    ckpt_data *const both = open_ok(spec("tokens:%s,%s", file, other), &m.model, limit);
    assert_int_equal(ckpt_data_batches(both), 2); /* 5 rows and 1 */
    ckpt_data_close(both);

    write_all(file, bytes, make_tokens(bytes, 20240520, 2, 41, 2));
    refuse(one, &m.model, limit, "version 2, wanted 1");
    write_all(file, bytes, make_tokens(bytes, 20240520, 1, 41, 2) - 2);
    refuse(one, &m.model, limit, "which says 41 tokens");
    write_all(file, bytes, 100);
    refuse(one, &m.model, limit, "less than a header");
    write_all(file, bytes, make_tokens(bytes, 0, 0, 8, 2));
    refuse(one, &m.model, limit, "8 tokens, wanted at least 9");
    write_all(file, bytes, 33);
    put_word(bytes, 1);
    write_all(file, bytes, 33);
    refuse(one, &m.model, limit, "33 bytes and no header");
    m.input[0].dtype = CKPT_FLOAT32;
    refuse(one, &m.model, limit, "tokens fills one or two int32 inputs");
    remove(file);
    remove(other);
    test_model_fini(&m);
}

/* ---- arrays ---- */

static size_t make_npy(unsigned char *bytes, const char *descr, const char *order, const char *shape,
                       const void *values, size_t length)
{
    char header[256];
    const int text =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr, order, shape);
    const size_t padded = ((size_t)text + 10 + 1 + 63) / 64 * 64 - 10;
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (unsigned char)(padded & 255);
    bytes[9] = (unsigned char)(padded >> 8);
    memset(bytes + 10, ' ', padded);
    memcpy(bytes + 10, header, (size_t)text);
    bytes[10 + padded - 1] = '\n';
    memcpy(bytes + 10 + padded, values, length);
    return 10 + padded + length;
}

static void arrays_fill_inputs_by_name(void **state)
{
    static unsigned char bytes[8192];
    const char *const x = path_of("x.npy"), *const y = path_of("y.npy");
    enum { N = 5, ROW = 2 * 3 * 4 };
    double image[N * ROW];
    int64_t label[N] = {0, 1, 2, 3, 4};
    for (int i = 0; i < N * ROW; i++) {
        image[i] = i + 0.5;
    }
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){2, 2, 3, 4});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){2});
    const int64_t limit[] = {0, 5}, small[] = {0, 4};
    const char *const both = spec("arrays:labels=%s,image=%s", y, x);
    write_all(x, bytes, make_npy(bytes, "<f8", "False", "(5, 2, 3, 4)", image, sizeof image));
    write_all(y, bytes, make_npy(bytes, "<i8", "False", "(5,)", label, sizeof label));
    float to[2 * ROW];
    int32_t found[2];
    void *const input[] = {to, found};
    ckpt_data *data = open_ok(both, &m.model, limit);
    int seen[N] = {0};
    for (uint64_t b = 0; b < 5; b++) { /* two epochs */
        ckpt_test_fill(data, b, input);
        for (int r = 0; r < 2; r++) {
            seen[found[r]]++;
            for (int c = 0; c < 2; c++) {
                for (int i = 0; i < 12; i++) { /* channels last */
                    const double wanted = image[found[r] * ROW + c * 12 + i];
                    assert_true((double)to[r * ROW + i * 2 + c] == wanted);
                }
            }
        }
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(seen[i], 2);
    }
    ckpt_data_close(data);
    refuse_batch(both, &m.model, small, input, "has 4, wanted at least 0 and less than 4");

    const uint16_t half[] = {0x3c00, 0xc100, 0x0001, 0x7bff, 0}; /* 1, -2.5, 2^-24, 65504, 0 */
    const double values[] = {1, -2.5, ldexp(1, -24), 65504, 0};
    test_model v;
    test_model_init(&v);
    test_input(&v, "v", CKPT_FLOAT32, 1, (int64_t[]){5});
    write_all(x, bytes, make_npy(bytes, "<f2", "False", "(5,)", half, sizeof half));
    data = open_ok(spec("arrays:v=%s", x, ""), &v.model, limit);
    ckpt_test_fill(data, 0, input);
    double sum = 0, wanted = 0;
    for (int i = 0; i < 5; i++) {
        sum += (double)to[i];
        wanted += values[i];
    }
    assert_true(sum == wanted);
    ckpt_data_close(data);
    const signed char bytes_of[] = {-1, 2, -128, 127, 0};
    write_all(x, bytes, make_npy(bytes, "|i1", "False", "(5,)", bytes_of, sizeof bytes_of));
    data = open_ok(spec("arrays:v=%s", x, ""), &v.model, limit);
    ckpt_test_fill(data, 0, input);
    sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += fabs((double)to[i]);
    }
    assert_true(sum == 258);
    ckpt_data_close(data);
    test_model_fini(&v);

    write_all(x, bytes, make_npy(bytes, "<f8", "True", "(5, 2, 3, 4)", image, sizeof image));
    refuse(both, &m.model, limit, "Fortran");
    write_all(x, bytes, make_npy(bytes, ">f8", "False", "(5, 2, 3, 4)", image, sizeof image));
    refuse(both, &m.model, limit, "elements of type '>f8'");
    write_all(x, bytes, make_npy(bytes, "<f8", "False", "(5, 2, 3, 5)", image, sizeof image));
    refuse(both, &m.model, limit, "which says [5, 2, 3, 5] of 8 bytes");
    write_all(x, bytes, make_npy(bytes, "<f8", "False", "(5, 2, 4, 3)", image, sizeof image));
    refuse(both, &m.model, limit, "differs in its first dim alone");
    write_all(x, bytes, make_npy(bytes, "<f8", "False", "(4, 2, 3, 4)", image, sizeof image * 4 / 5));
    refuse(both, &m.model, limit, "4 rows for input image, and the array before it has 5");
    write_all(y, bytes, make_npy(bytes, "<f8", "False", "(5,)", image, 40));
    refuse(both, &m.model, limit, "an array of floats; input labels is int32");
    write_all(y, bytes, make_npy(bytes, "<i8", "False", "(9223372036854775807, 4)", label, sizeof label));
    refuse(both, &m.model, limit, "which says");
    write_all(y, "not numpy", 9);
    refuse(both, &m.model, limit, "no NumPy array");
    refuse(spec("arrays:image=%s", x, ""), &m.model, limit, "input labels has no array");
    refuse("arrays:z=x.npy", &m.model, limit, "has no input z");
    refuse("arrays:x.npy", &m.model, limit, "wanted INPUT=FILE.npy");
    remove(x);
    remove(y);
    test_model_fini(&m);
}

/* Where a loss alone reads the input, and it says that such a target does not count. */
static void arrays_may_hold_ignored_targets(void **state)
{
    static unsigned char bytes[1024];
    const char *const x = path_of("x.npy"), *const y = path_of("y.npy");
    const int32_t ids[] = {1, 2, 3}, targets[] = {2, -100, 4}, others[] = {2, -7, 4};
    const int64_t limit[] = {9, 5};
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 1, (int64_t[]){3});
    test_input(&m, "targets", CKPT_INT32, 1, (int64_t[]){3});
    test_layer(&m, "embed", "embedding", "ids", "rows=9 features=8");
    test_layer(&m, "head", "linear", "", "features=5");
    test_layer(&m, "loss", "cross_entropy", "head targets", "");
    const ckpt_network *const network = test_infer(&m);
    const char *const both = spec("arrays:ids=%s,targets=%s", x, y);
    int32_t found[2][3];
    void *const input[] = {found[0], found[1]};
    write_all(x, bytes, make_npy(bytes, "<i4", "False", "(3,)", ids, sizeof ids));
    write_all(y, bytes, make_npy(bytes, "<i4", "False", "(3,)", targets, sizeof targets));
    refuse_batch(both, &m.model, limit, input, "has -100, wanted at least 0 and less than 5");
    ckpt_data *data = open_ok(both, &m.model, limit);
    ckpt_data_allow_ignored(data, network);
    ckpt_test_fill(data, 0, input);
    for (int i = 0; i < 3; i++) { /* in whatever order */
        assert_int_equal(found[1][i], targets[found[0][i] - 1]);
    }
    ckpt_data_close(data);
    ckpt_err err = {0};
    write_all(y, bytes, make_npy(bytes, "<i4", "False", "(3,)", others, sizeof others));
    data = open_ok(both, &m.model, limit);
    ckpt_data_allow_ignored(data, network);
    assert_int_equal(ckpt_data_fill(data, 0, input, &err), CKPT_BAD_INPUT);
    ckpt_data_close(data);
    write_all(x, bytes, make_npy(bytes, "<i4", "False", "(3,)", targets, sizeof targets));
    write_all(y, bytes, make_npy(bytes, "<i4", "False", "(3,)", ids, sizeof ids));
    data = open_ok(both, &m.model, limit);
    ckpt_data_allow_ignored(data, network);
    assert_int_equal(ckpt_data_fill(data, 0, input, &err), CKPT_BAD_INPUT); /* an embedding has no row for it */
    ckpt_data_close(data);
    test_model_fini(&m);
}

static void tensors_fill_inputs_by_name(void **state)
{
    const char *const path = path_of("data.safetensors");
    const char *const what = spec("safetensors:%s", path, "");
    const char *const headers[] = {"{\"v\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[0,16]},\"labels\":{"
                                   "\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
                                   "{\"v\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[0,16]},\"other\":{"
                                   "\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
                                   "{\"v\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":[0,16]},\"labels\":{"
                                   "\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
                                   "{\"v\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[0,16]}}"};
    test_model m;
    test_model_init(&m);
    test_input(&m, "v", CKPT_FLOAT32, 2, (int64_t[]){2, 2});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){2});
    const int64_t limit[] = {0, 4};
    unsigned char bytes[512];
    for (int h = 0; h < 4; h++) {
        const size_t length = strlen(headers[h]);
        memset(bytes, 0, sizeof bytes);
        put_word(bytes, (uint32_t)length);
        memcpy(bytes + 8, headers[h], length);
        for (int i = 0; i < 8; i++) {
            const uint16_t value = ckpt_bfloat16_of((float)i * 0.5f);
            bytes[8 + length + 2 * (size_t)i] = (unsigned char)(value & 255);
            bytes[8 + length + 2 * (size_t)i + 1] = (unsigned char)(value >> 8);
        }
        for (int i = 0; i < 4; i++) {
            put_word(bytes + 8 + length + 16 + 4 * i, (uint32_t)i);
        }
        write_all(path, bytes, 8 + length + (h < 3 ? 32 : 16));
        if (h > 0) {
            refuse(what, &m.model, limit,
                   h == 1   ? "has no such input"
                   : h == 2 ? "differs in its first dim alone"
                            : "input labels has no array");
            continue;
        }
        float v[4];
        int32_t label[2];
        void *const input[] = {v, label};
        ckpt_data *const data = open_ok(what, &m.model, limit);
        int seen = 0;
        for (uint64_t b = 0; b < 2; b++) {
            ckpt_test_fill(data, b, input);
            for (int r = 0; r < 2; r++) {
                assert_true((double)v[2 * r] == label[r] && (double)v[2 * r + 1] == label[r] + 0.5);
                seen |= 1 << label[r];
            }
        }
        assert_int_equal(seen, 15);
        ckpt_data_close(data);
    }
    remove(path);
    test_model_fini(&m);
}

/* ---- pictures ---- */

static unsigned char shade(int picture, int y, int x, int c)
{
    return (unsigned char)(picture * 50 + y * 7 + x * 3 + c * 11);
}

static size_t make_png(unsigned char *bytes, size_t room, int picture, int rows, int columns)
{
    unsigned char *const pixel = malloc((size_t)(rows * columns * 3));
    for (int y = 0; y < rows; y++) {
        for (int x = 0; x < columns; x++) {
            for (int c = 0; c < 3; c++) {
                pixel[(y * columns + x) * 3 + c] = shade(picture, y, x, c);
            }
        }
    }
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)columns,
                       .height = (png_uint_32)rows,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t length = room;
    assert_true(png_image_write_to_memory(&image, bytes, &length, 0, pixel, 0, NULL) != 0);
    free(pixel);
    return (size_t)length;
}

/* One colour all over, which a JPEG keeps but for rounding. */
static size_t make_jpeg(unsigned char *bytes, size_t room, int grey, int rows, int columns)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr manager;
    unsigned char *out = bytes;
    unsigned long length = (unsigned long)room;
    info.err = jpeg_std_error(&manager);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &length);
    info.image_width = (unsigned)columns;
    info.image_height = (unsigned)rows;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_start_compress(&info, TRUE);
    unsigned char *const row = malloc((size_t)columns * 3);
    memset(row, grey, (size_t)columns * 3);
    for (int y = 0; y < rows; y++) {
        unsigned char *lines = row;
        jpeg_write_scanlines(&info, &lines, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(row);
    assert_ptr_equal(out, bytes);
    return (size_t)length;
}

/* The mean of the covered pixels by the formula, without separating rows and columns. */
static double plain(int picture, int rows, int columns, double scale, int y, int x, int c, int to_rows, int to_columns)
{
    const double reach = scale > 1 ? scale : 1;
    const double cy = (rows - to_rows * scale) / 2 + (y + 0.5) * scale;
    const double cx = (columns - to_columns * scale) / 2 + (x + 0.5) * scale;
    double sum = 0, weights = 0;
    for (int v = 0; v < rows; v++) {
        for (int u = 0; u < columns; u++) {
            const double a = 1 - fabs(v + 0.5 - cy) / reach, b = 1 - fabs(u + 0.5 - cx) / reach;
            if (a > 0 && b > 0) {
                sum += a * b * shade(picture, v, u, c);
                weights += a * b;
            }
        }
    }
    return sum / weights;
}

static void pictures_are_scaled_and_cut(void **state)
{
    static const struct {
        int rows, columns;
    } size[] = {{6, 8}, {12, 16}, {30, 20}, {7, 31}, {3, 4}, {5, 5}};
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    static unsigned char bytes[65536];
    enum { ROWS = 6, COLUMNS = 8 };
    for (size_t s = 0; s < sizeof size / sizeof size[0]; s++) {
        const int rows = size[s].rows, columns = size[s].columns;
        const size_t length = make_png(bytes, sizeof bytes, (int)s, rows, columns);
        ckpt_picture picture;
        ckpt_err err = {0};
        float to[3 * ROWS * COLUMNS];
        const int64_t stride[] = {1, 3 * COLUMNS, 3};
        CHECK_OK(ckpt_picture_read("a.png", bytes, length, 3, ROWS, COLUMNS, &picture, &err), err);
        assert_true(picture.rows == rows && picture.columns == columns);
        CHECK_OK(ckpt_picture_fit(&picture, ROWS, COLUMNS, mean, deviation, stride, to, &err), err);
        const double tall = (double)rows / ROWS, wide = (double)columns / COLUMNS, scale = tall < wide ? tall : wide;
        for (int i = 0; i < 3 * ROWS * COLUMNS; i++) {
            const int c = i % 3, x = i / 3 % COLUMNS, y = i / 3 / COLUMNS;
            const double value = plain((int)s, rows, columns, scale, y, x, c, ROWS, COLUMNS);
            const double wanted = (value / 255 - mean[c]) / deviation[c];
            /* sums of at most 2 x 14 products of floats, of values up to 4 */
            CHECK(fabs((double)to[i] - wanted) < 1e-5, "%d x %d: element %d is %g, wanted %g", rows, columns, i,
                  (double)to[i], wanted);
        }
        ckpt_memory_put(picture.pixel);
    }
}

static void folder_of_classes(void **state)
{
    static unsigned char bytes[65536];
    char folder[3][512], file[512];
    snprintf(folder[0], sizeof folder[0], "%s", path_of("pictures"));
    const char *const names[] = {"ant", "bee"};
    mkdir(folder[0], 0777);
    for (int class = 0; class < 2; class ++) {
        snprintf(folder[class + 1], sizeof folder[0], "%.400s/%s", folder[0], names[class]);
        mkdir(folder[class + 1], 0777);
        for (int i = 0; i < 3; i++) {
            snprintf(file, sizeof file, "%.480s/%d.%s", folder[class + 1], i, i == 2 ? "PNG" : "jpeg");
            const int grey = 40 + class * 100 + i * 20;
            const size_t length =
                i == 2 ? make_png(bytes, sizeof bytes, class, 6, 8) : make_jpeg(bytes, sizeof bytes, grey, 60, 80);
            write_all(file, bytes, length);
        }
    }
    snprintf(file, sizeof file, "%.400s/README", folder[0]);
    write_all(file, "no picture", 10);
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){2, 3, 6, 8});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){2});
    const int64_t limit[] = {0, 2}, small[] = {0, 1};
    const char *const what = spec("images:%s", folder[0], "");
    float *const to = calloc(2 * 144, sizeof *to);
    int32_t label[2];
    void *const input[] = {to, label};
    ckpt_data *const data = open_ok(what, &m.model, limit);
    assert_true(ckpt_data_decodes(data));
    CHECK(!ckpt_data_reads(data, file) && !ckpt_data_reads(data, path_of("no-such-file")), "what is no picture");
    snprintf(file, sizeof file, "%.480s/../bee/1.jpeg", folder[2]);
    CHECK(ckpt_data_reads(data, file), "a picture that is read");
    const char *const about = ckpt_data_identify(data)->about;
    CHECK(strstr(about, "in 2 classes") != NULL, "%s", about);
    int greys = 0, shades = 0;
    for (uint64_t b = 0; b < 3; b++) {
        ckpt_test_fill(data, b, input);
        for (int r = 0; r < 2; r++) {
            const double red = ((double)to[r * 144] * 0.229 + 0.485) * 255;
            const double last = ((double)to[r * 144 + 141] * 0.229 + 0.485) * 255; /* red of the last pixel */
            if (fabs(last - red) < 2) {
                const int i = (int)lround((red - 40 - label[r] * 100) / 20);
                assert_true(i == 0 || i == 1);
                greys++;
            } else {
                assert_true(fabs(red - shade(label[r], 0, 0, 0)) < 0.01);
                shades++;
            }
        }
    }
    assert_true(greys == 4 && shades == 2);
    ckpt_data_close(data);
    refuse(what, &m.model, small, "2 classes");
    snprintf(file, sizeof file, "%.480s/1.jpeg", folder[2]);
    write_all(file, bytes, 30);
    refuse_batch(what, &m.model, limit, input, "bee/1.jpeg: ");
    write_all(file, "GIF89a", 6);
    refuse_batch(what, &m.model, limit, input, "neither JPEG nor PNG");
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%.480s/%d.%s", folder[2], i, i == 2 ? "PNG" : "jpeg");
        remove(file);
    }
    refuse(what, &m.model, limit, "bee: no .jpg");
    rmdir(folder[2]);
    refuse(spec("images:%s", folder[1], ""), &m.model, limit, "0 classes");
    m.input[0].shape.dim[1] = 4;
    refuse(what, &m.model, limit, "[N, 3, H, W]");
    free(to);
    test_model_fini(&m);
}

/* ---- workers ---- */

static void workers_change_nothing(void **state)
{
    enum { BATCHES = 60, MICRO = 2 };
    unsigned char bytes[4096];
    const char *const file = path_of("tokens.bin");
    const int64_t limit[] = {97, 97};
    write_all(file, bytes, make_tokens(bytes, 0, 0, 1001, 2));
    test_model m;
    language_model(&m);
    ckpt_data *const data = open_ok(spec("tokens:%s", file, ""), &m.model, limit);
    int32_t ids[24], targets[24], wanted_ids[24];
    void *const input[] = {ids, targets}, *const plain_input[] = {wanted_ids, NULL};
    void *const wanted[] = {ids, targets, ids, NULL}; /* the second micro-batch needs no targets */
    const uint64_t number[] = {5, 9};
    for (int workers = 0; workers < 5; workers += 1 + workers) {
        ckpt_err err = {0};
        ckpt_loader *loader = NULL;
        CHECK_OK(ckpt_loader_create(data, &m.model, wanted, number, MICRO, 3, workers, &loader, &err), err);
        assert_true(ckpt_loader_bytes(loader) == (workers > 0 ? (workers + 1) * 2 * (ckpt_bytes)sizeof ids : 0));
        for (uint64_t b = 0; b < BATCHES; b++) {
            CHECK_OK(ckpt_loader_take(loader, input, &err), err);
            ckpt_test_fill(data, number[b % MICRO] + b / MICRO * 3, plain_input);
            assert_memory_equal(ids, wanted_ids, sizeof ids);
            assert_int_equal(targets[23], (ids[23] + 1) % 97);
        }
        assert_true(ckpt_loader_waited_ns(loader) > 0);
        ckpt_loader_destroy(loader); /* while workers are at the next batches */
    }
    ckpt_data_close(data);
    const int64_t small[] = {97, 50};
    ckpt_data *const wrong = open_ok(spec("tokens:%s", file, ""), &m.model, small);
    ckpt_loader *loader = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_loader_create(wrong, &m.model, wanted, number, MICRO, 3, 2, &loader, &err), err);
    ckpt_code code = CKPT_OK;
    for (int b = 0; b < 40 && code == CKPT_OK; b++) {
        code = ckpt_loader_take(loader, input, &err);
    }
    assert_int_equal(code, CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "takes values below 50"));
    ckpt_loader_destroy(loader);
    ckpt_data_close(wrong);
    remove(file);
    test_model_fini(&m);
}

/* ---- damage ---- */

/* Every damaged file is refused with its name, or is another file that can be read; nothing crashes or leaks. */
static int damage(const char *what, const char *path, const unsigned char *sound, size_t length,
                  const ckpt_model *model, const int64_t *limit, void *const *input, int times)
{
    unsigned char *const bytes = malloc(length);
    int refused = 0;
    for (int i = 0; i < times; i++) {
        size_t left = length;
        memcpy(bytes, sound, length);
        if (i % 2 == 0) {
            left = length * (size_t)(i + 1) / (size_t)(times + 1);
        } else {
            for (int k = 0; k < 4; k++) {
                bytes[(size_t)(i * 7919 + k * 104729) % (k < 2 && length > 128 ? 128 : length)] ^=
                    (unsigned char)(1 + i * 37 + k);
            }
        }
        write_all(path, bytes, left);
        ckpt_err err = {0};
        ckpt_data *data = NULL;
        const int64_t live = ckpt_memory_live();
        ckpt_code code = ckpt_data_open(what, model, limit, 7, &data, &err);
        for (uint64_t b = 0; b < 4 && code == CKPT_OK; b++) {
            code = ckpt_data_fill(data, b, input, &err);
        }
        ckpt_data_close(data);
        refused += code != CKPT_OK;
        CHECK(code == CKPT_OK || (strchr(err.msg, '\n') == NULL && err.msg[0] != '\0'), "%s, damage %d: code %d \"%s\"",
              what, i, (int)code, err.msg);
        assert_true(ckpt_memory_live() == live);
    }
    free(bytes);
    return refused;
}

static void damaged_files_are_refused(void **state)
{
    static unsigned char bytes[65536];
    test_model m;
    language_model(&m);
    int32_t ids[24], targets[24];
    void *const tokens[] = {ids, targets};
    const int64_t limit[] = {97, 97};
    const char *path = path_of("tokens.bin");
    size_t length = make_tokens(bytes, 20240520, 1, 200, 2);
    int refused = damage(spec("tokens:%s", path, ""), path, bytes, length, &m.model, limit, tokens, 40);
    assert_true(refused >= 20);
    remove(path);
    test_model_fini(&m);

    test_model v;
    test_model_init(&v);
    test_input(&v, "v", CKPT_FLOAT32, 2, (int64_t[]){2, 10});
    float values[40] = {0}, to[20];
    void *const input[] = {to};
    path = path_of("v.npy");
    length = make_npy(bytes, "<f4", "False", "(4, 10)", values, sizeof values);
    refused = damage(spec("arrays:v=%s", path, ""), path, bytes, length, &v.model, limit, input, 40);
    assert_true(refused >= 20);
    remove(path);
    test_model_fini(&v);

    test_model p;
    test_model_init(&p);
    test_input(&p, "image", CKPT_FLOAT32, 4, (int64_t[]){1, 3, 8, 8});
    float pixel[192];
    void *const image[] = {pixel};
    char folder[512], class[600], file[700];
    snprintf(folder, sizeof folder, "%s", path_of("damaged"));
    snprintf(class, sizeof class, "%s/a", folder);
    mkdir(folder, 0777);
    mkdir(class, 0777);
    for (int kind = 0; kind < 2; kind++) {
        snprintf(file, sizeof file, "%s/1.%s", class, kind == 0 ? "png" : "jpg");
        length = kind == 0 ? make_png(bytes, sizeof bytes, 1, 40, 40) : make_jpeg(bytes, sizeof bytes, 99, 40, 40);
        refused = damage(spec("images:%s", folder, ""), file, bytes, length, &p.model, limit, image, 60);
        assert_true(refused >= 30);
        remove(file);
    }
    test_model_fini(&p);
}

typedef struct reading {
    const char *what;
    const ckpt_model *model;
    void *const *input;
} reading;

static ckpt_code open_and_load(void *context, ckpt_err *err)
{
    static const int64_t limit[2];
    const reading *const r = context;
    const uint64_t number[] = {0};
    ckpt_data *data = NULL;
    ckpt_loader *loader = NULL;
    ckpt_code code = ckpt_data_open(r->what, r->model, limit, 1, &data, err);
    if (code == CKPT_OK) {
        code = ckpt_loader_create(data, r->model, r->input, number, 1, 1, 1, &loader, err);
    }
    if (code == CKPT_OK) {
        code = ckpt_loader_take(loader, r->input, err);
    }
    ckpt_loader_destroy(loader);
    ckpt_data_close(data);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    static unsigned char bytes[65536];
    char folder[512], class[600], file[700];
    snprintf(folder, sizeof folder, "%s", path_of("starved"));
    snprintf(class, sizeof class, "%s/a", folder);
    snprintf(file, sizeof file, "%s/1.png", class);
    mkdir(folder, 0777);
    mkdir(class, 0777);
    write_all(file, bytes, make_png(bytes, sizeof bytes, 1, 9, 9));
    test_model p;
    test_model_init(&p);
    test_input(&p, "image", CKPT_FLOAT32, 4, (int64_t[]){1, 3, 8, 8});
    float pixel[192];
    void *const image[] = {pixel};
    reading r = {spec("images:%s", folder, ""), &p.model, image};
    assert_true(ckpt_test_starve(open_and_load, &r) >= 5);
    const char *const path = path_of("v.npy");
    float values[192] = {0};
    write_all(path, bytes, make_npy(bytes, "<f4", "False", "(1, 3, 8, 8)", values, sizeof values));
    r.what = spec("arrays:image=%s", path, "");
    assert_true(ckpt_test_starve(open_and_load, &r) >= 4);
    remove(path);
    test_model_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_llm_c_and_nanogpt),     cmocka_unit_test(arrays_fill_inputs_by_name),
        cmocka_unit_test(arrays_may_hold_ignored_targets), cmocka_unit_test(tensors_fill_inputs_by_name),
        cmocka_unit_test(pictures_are_scaled_and_cut),     cmocka_unit_test(folder_of_classes),
        cmocka_unit_test(workers_change_nothing),          cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
