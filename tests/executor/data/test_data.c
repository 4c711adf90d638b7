/* labels: unit */
/* Data sources, from files written here byte by byte; and every way such a file can be wrong. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support_data.h"
#include "tests/support/support_network.h"

enum { CIFAR_RECORD = 3073 };

static const char *path_of(const char *name)
{
    static char path[8][512];
    static int next;
    char *const mine = path[next++ % 8];
    snprintf(mine, sizeof path[0], "%s/%s", ckpt_work_dir(), name);
    return mine;
}

static void write_all(const char *path, const void *bytes, size_t length)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(bytes, 1, length, file) == length);
    fclose(file);
}

static char *spec(const char *format, const char *a, const char *b)
{
    static char text[4][1200];
    static int next;
    char *const mine = text[next++ % 4];
    snprintf(mine, sizeof text[0], format, a, b);
    return mine;
}

static void refuse(const char *what, const ckpt_model *model, const int64_t *limit, ckpt_code wanted,
                   const char *reason)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    const int64_t live = ckpt_memory_live();
    const ckpt_code code = ckpt_data_open(what, model, limit, 1, &data, &err);
    CHECK(code == wanted && strstr(err.msg, reason) != NULL, "%s: code %d \"%s\"; wanted %d with \"%s\"", what,
          (int)code, err.msg, (int)wanted, reason);
    assert_null(data);
    assert_true(ckpt_memory_live() == live);
}

static ckpt_data *open_ok(const char *what, const ckpt_model *model, const int64_t *limit, uint64_t seed)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    CHECK_OK(ckpt_data_open(what, model, limit, seed, &data, &err), err);
    return data;
}

/* A pipeline stage wants only the inputs that its layers read: each alone has the bytes it has among all. */
static void check_each_alone(const ckpt_data *data, const ckpt_model *model)
{
    enum { MOST = 4 };
    void *whole[MOST], *alone[MOST] = {NULL};
    for (int i = 0; i < model->input_count; i++) {
        whole[i] = calloc(1, (size_t)ckpt_tensor_bytes(&model->input[i]));
        assert_non_null(whole[i]);
    }
    ckpt_test_fill(data, 11, alone); /* none at all */
    ckpt_test_fill(data, 11, whole);
    for (int i = 0; i < model->input_count; i++) {
        const size_t bytes = (size_t)ckpt_tensor_bytes(&model->input[i]);
        alone[i] = calloc(1, bytes);
        assert_non_null(alone[i]);
        ckpt_test_fill(data, 11, alone);
        CHECK(memcmp(alone[i], whole[i], bytes) == 0, "input %s alone has other bytes", model->input[i].name);
        free(alone[i]);
        alone[i] = NULL;
    }
    for (int i = 0; i < model->input_count; i++) {
        free(whole[i]);
    }
}

static void text_gives_the_next_byte(void **state)
{
    char text[1000];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i % 97); /* every byte tells what the next one is */
    }
    const char *const file = path_of("data.txt");
    write_all(file, text, sizeof text);
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 2, (int64_t[]){4, 8});
    test_input(&m, "targets", CKPT_INT32, 2, (int64_t[]){4, 8});
    const int64_t limit[] = {97, 97}, small[] = {97, 96};
    int32_t ids[32], targets[32], recomputed[32], later[32];
    void *const input[] = {ids, targets}, *const other[] = {recomputed, targets}, *const next[] = {later, targets};
    ckpt_data *const data = open_ok(spec("text:%s", file, ""), &m.model, limit, 5);
    int starts = 0;
    for (uint64_t step = 0; step < 200; step++) {
        ckpt_test_fill(data, step, input);
        for (int i = 0; i < 32; i++) {
            assert_true(ids[i] >= 0 && ids[i] < 97 && targets[i] == (ids[i] + 1) % 97);
            assert_true(i % 8 == 0 || ids[i] == (ids[i - 1] + 1) % 97);
        }
        starts += ids[0] != ids[8];
    }
    assert_true(starts > 150); /* rows start anywhere */
    ckpt_test_fill(data, 3, input);
    ckpt_test_fill(data, 4, next);
    ckpt_test_fill(data, 3, other);
    assert_memory_equal(ids, recomputed, sizeof ids);
    assert_memory_not_equal(ids, later, sizeof ids);
    assert_true(ckpt_data_mapped_bytes(data) == sizeof text);
    check_each_alone(data, &m.model);
    ckpt_data_close(data);
    ckpt_data *const seeded = open_ok(spec("text:%s", file, ""), &m.model, limit, 6);
    ckpt_test_fill(seeded, 3, other);
    assert_memory_not_equal(ids, recomputed, sizeof ids);
    ckpt_data_close(seeded);

    refuse(spec("text:%s", file, ""), &m.model, small, CKPT_BAD_INPUT, "values below 96");
    refuse("text:", &m.model, limit, CKPT_BAD_INPUT, "name of a file is empty");
    refuse("", &m.model, limit, CKPT_BAD_INPUT, "data \"\": wanted text:FILE"); /* as of a variable that is not set */
    refuse(spec("text:%s", path_of("no-such-file"), ""), &m.model, limit, CKPT_IO, "no-such-file");
    refuse(spec("text:%s", ckpt_work_dir(), ""), &m.model, limit, CKPT_BAD_INPUT, "no regular file");
    write_all(file, text, 8);
    refuse(spec("text:%s", file, ""), &m.model, limit, CKPT_BAD_INPUT, "at least 9");
    write_all(file, text, 0);
    refuse(spec("text:%s", file, ""), &m.model, limit, CKPT_BAD_INPUT, "empty");
    write_all(file, text, 9); /* exactly one row and its target */
    ckpt_data *const least = open_ok(spec("text:%s", file, ""), &m.model, limit, 1);
    ckpt_test_fill(least, 0, input);
    assert_int_equal(targets[31], 8);
    ckpt_data_close(least);

    m.input[1].shape.dim[1] = 7;
    refuse(spec("text:%s", file, ""), &m.model, limit, CKPT_BAD_INPUT, "[4, 7]");
    m.input[1].dtype = CKPT_FLOAT32;
    refuse(spec("text:%s", file, ""), &m.model, limit, CKPT_BAD_INPUT, "float32");
    refuse("txt:x", &m.model, limit, CKPT_BAD_INPUT, "wanted text:FILE");
    refuse("synthetic:x", &m.model, limit, CKPT_BAD_INPUT, "no file");
    remove(file);
    test_model_fini(&m);
}

/* 7 + 5 images in two files: label i % 10; pixel (c, y, x) of image i is (i * 16 + c * 4 + y + x) mod 256. */
static unsigned char pixel(int i, int c, int y, int x)
{
    return (unsigned char)(i * 16 + c * 4 + y + x);
}

static void write_cifar(const char *path, int first, int count)
{
    unsigned char *const bytes = calloc((size_t)count, CIFAR_RECORD);
    assert_non_null(bytes);
    unsigned char *at = bytes;
    for (int i = first; i < first + count; i++) {
        *at++ = (unsigned char)(i % 10);
        for (int c = 0; c < 3; c++) {
            for (int y = 0; y < 32; y++) {
                for (int x = 0; x < 32; x++) {
                    *at++ = pixel(i, c, y, x);
                }
            }
        }
    }
    write_all(path, bytes, (size_t)count * CIFAR_RECORD);
    free(bytes);
}

static void cifar_images_lie_channels_last(void **state)
{
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    const char *const a = path_of("a.bin"), *const b = path_of("b.bin");
    write_cifar(a, 0, 7);
    write_cifar(b, 7, 5);
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){4, 3, 32, 32});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){4});
    const int64_t limit[] = {0, 10};
    float *const image = calloc(4 * 3072, sizeof *image);
    assert_non_null(image);
    int32_t label[4];
    void *const input[] = {image, label};
    ckpt_data *const data = open_ok(spec("cifar10:%s,%s", a, b), &m.model, limit, 9);
    int order[2][12];
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[12] = {false};
        for (int step = 0; step < 3; step++) {
            ckpt_test_fill(data, (uint64_t)(3 * epoch + step), input);
            for (int n = 0; n < 4; n++) {
                /* red of pixel (0, 0) is 16 i + 0: undo the scaling to know which image this is */
                const float *const at = image + n * 3072;
                const int i = (int)lround((at[0] * deviation[0] + mean[0]) * 255.0) / 16;
                assert_true(i >= 0 && i < 12 && !seen[i] && label[n] == i % 10);
                seen[i] = true;
                order[epoch][4 * step + n] = i;
                for (int c = 0; c < 3; c++) {
                    for (int y = 0; y < 32; y++) {
                        for (int x = 0; x < 32; x++) {
                            const double wanted = (pixel(i, c, y, x) / 255.0 - mean[c]) / deviation[c];
                            assert_true(fabs(at[(y * 32 + x) * 3 + c] - wanted) < 1e-5);
                        }
                    }
                }
            }
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]); /* every image once an epoch, in another order */
    check_each_alone(data, &m.model);
    ckpt_data_close(data);

    free(image);
    remove(a);
    remove(b);
    test_model_fini(&m);
}

static void cifar_refusals(void **state)
{
    const char *const a = path_of("c.bin");
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){4, 3, 32, 32});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){4});
    const int64_t limit[] = {0, 10}, small[] = {0, 5};
    unsigned char bytes[2 * CIFAR_RECORD] = {0};
    write_all(a, bytes, CIFAR_RECORD + 1);
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "multiple of 3073");
    bytes[CIFAR_RECORD] = 10;
    write_all(a, bytes, sizeof bytes);
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "image 1 has label 10");
    bytes[CIFAR_RECORD] = 5;
    write_all(a, bytes, sizeof bytes);
    refuse(spec("cifar10:%s", a, ""), &m.model, small, CKPT_BAD_INPUT, "below 5");
    refuse(spec("cifar10:%s,%s", a, path_of("none.bin")), &m.model, limit, CKPT_IO, "none.bin");
    m.input[0].shape.dim[2] = 31;
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "[4, 3, 31, 32]");
    m.input[0].shape.dim[2] = 32;
    m.input[1].shape.dim[0] = 5;
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "one label per image");
    m.input[1].shape.dim[0] = 4;
    m.input[1].dtype = CKPT_FLOAT32;
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "one more");
    m.input[0].dtype = CKPT_INT32;
    m.input[1].dtype = CKPT_INT32;
    refuse(spec("cifar10:%s", a, ""), &m.model, limit, CKPT_BAD_INPUT, "one more");
    remove(a);
    test_model_fini(&m);
}

static size_t idx_images(unsigned char *to, unsigned count, unsigned rows, unsigned columns)
{
    const unsigned char header[16] = {
        0, 0, 8, 3, 0, 0, 0, (unsigned char)count, 0, 0, 0, (unsigned char)rows, 0, 0, 0, (unsigned char)columns};
    memcpy(to, header, sizeof header);
    for (unsigned i = 0; i < count * rows * columns; i++) {
        to[16 + i] = (unsigned char)(i / (rows * columns) * 10 + i % 7);
    }
    return 16 + (size_t)count * rows * columns;
}

static size_t idx_labels(unsigned char *to, unsigned count)
{
    const unsigned char header[8] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)count};
    memcpy(to, header, sizeof header);
    for (unsigned i = 0; i < count; i++) {
        to[8 + i] = (unsigned char)(i % 10);
    }
    return 8 + (size_t)count;
}

static void mnist(void **state)
{
    const char *const images = path_of("images.idx"), *const labels = path_of("labels.idx");
    static unsigned char bytes[16 + 30 * 784], label_bytes[64];
    const size_t length = idx_images(bytes, 3, 28, 28), label_length = idx_labels(label_bytes, 3);
    write_all(images, bytes, length);
    write_all(labels, label_bytes, label_length);
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){3, 1, 28, 28});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){3});
    const int64_t limit[] = {0, 10};
    static float image[3 * 784];
    int32_t label[3];
    void *const input[] = {image, label};
    const char *const both = spec("mnist:%s,%s", images, labels);
    ckpt_data *const data = open_ok(both, &m.model, limit, 2);
    ckpt_test_fill(data, 0, input);
    bool seen[3] = {false};
    for (int n = 0; n < 3; n++) {
        seen[label[n]] = true;
        for (int p = 0; p < 784; p++) {
            const int byte = label[n] * 10 + (label[n] * 784 + p) % 7;
            assert_true(fabs(image[n * 784 + p] - (byte / 255.0 - 0.1307) / 0.3081) < 1e-5);
        }
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    ckpt_data_close(data);

    refuse(spec("mnist:%s", images, ""), &m.model, limit, CKPT_BAD_INPUT, "two files");
    refuse(spec("mnist:%s,%s", labels, images), &m.model, limit, CKPT_BAD_INPUT, "wanted an IDX file of images");
    refuse(spec("mnist:%s,%s", images, images), &m.model, limit, CKPT_BAD_INPUT, "wanted an IDX file of labels");
    write_all(images, bytes, length - 1);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "its header says");
    write_all(images, bytes, 12);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "wanted an IDX file");
    write_all(images, (const unsigned char[]){0x1f, 0x8b, 8, 0}, 4);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "gunzip");
    write_all(images, bytes, length);
    write_all(labels, label_bytes, idx_labels(label_bytes, 2));
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "2 labels");
    idx_labels(label_bytes, 3);
    write_all(labels, label_bytes, label_length - 1);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "its header says");
    label_bytes[9] = 12;
    write_all(labels, label_bytes, label_length);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "label 12");
    memset(bytes + 8, 0, 4); /* no rows */
    write_all(images, bytes, length);
    refuse(both, &m.model, limit, CKPT_BAD_INPUT, "images of 0 x 28");
    remove(images);
    remove(labels);
    test_model_fini(&m);
}

static void synthetic_stays_in_range(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 1, (int64_t[]){1001});
    test_input(&m, "y", CKPT_INT32, 1, (int64_t[]){1001});
    test_input(&m, "free", CKPT_INT32, 1, (int64_t[]){5});
    const int64_t limit[] = {0, 7, 0};
    static float x[1001], other[1001];
    static int32_t y[1001];
    int32_t unlimited[5];
    void *const input[] = {x, y, unlimited}, *const next[] = {other, y, unlimited};
    ckpt_data *const data = open_ok("synthetic", &m.model, limit, 2);
    ckpt_test_fill(data, 1, next);
    ckpt_test_fill(data, 0, input);
    double sum = 0;
    int count[7] = {0};
    for (int i = 0; i < 1001; i++) {
        assert_true(x[i] >= -1 && x[i] <= 1 && y[i] >= 0 && y[i] < 7);
        sum += (double)x[i];
        count[y[i]]++;
    }
    assert_true(fabs(sum / 1001) < 0.1); /* 5 standard deviations of a mean of 1001 uniforms: 0.091 */
    for (int k = 0; k < 7; k++) {
        assert_true(count[k] > 143 - 60 && count[k] < 143 + 60); /* 5 of a binomial: 55 */
    }
    assert_memory_not_equal(x, other, sizeof x);
    assert_int_equal(unlimited[3], 0);
    check_each_alone(data, &m.model);
    ckpt_data_close(data);
    ckpt_data_close(NULL);
    test_model_fini(&m);
}

typedef struct opening {
    const char *what;
    const ckpt_model *model;
} opening;

static ckpt_code open_and_close(void *context, ckpt_err *err)
{
    const opening *const o = context;
    static const int64_t limit[4];
    ckpt_data *data = NULL;
    const ckpt_code code = ckpt_data_open(o->what, o->model, limit, 1, &data, err);
    ckpt_data_close(code == CKPT_OK ? data : NULL);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    const char *const file = path_of("starve.txt");
    write_all(file, "some text for one row", 21);
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 2, (int64_t[]){1, 8});
    opening o = {spec("text:%s", file, ""), &m.model};
    assert_true(ckpt_test_starve(open_and_close, &o) >= 2);
    remove(file);
    test_model_fini(&m);
}

static void limits_come_from_the_readers(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "ids", CKPT_INT32, 2, (int64_t[]){2, 4});
    test_input(&m, "targets", CKPT_INT32, 2, (int64_t[]){2, 4});
    test_layer(&m, "embed", "embedding", "ids", "rows=50 features=8");
    test_layer(&m, "head", "linear", "", "features=30");
    test_layer(&m, "loss", "cross_entropy", "head targets", "");
    int64_t limit[2] = {-1, -1};
    ckpt_data_class_limits(test_infer(&m), limit);
    assert_int_equal(limit[0], 50);
    assert_int_equal(limit[1], 30);
    test_model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_gives_the_next_byte),
        cmocka_unit_test(cifar_images_lie_channels_last),
        cmocka_unit_test(cifar_refusals),
        cmocka_unit_test(mnist),
        cmocka_unit_test(synthetic_stays_in_range),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(limits_come_from_the_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
