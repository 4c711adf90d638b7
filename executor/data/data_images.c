/* Labelled images: CIFAR-10's binary batches and MNIST's IDX files.
 * Source: A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html ("Binary version": 1 label byte, then 1024 red,
 * 1024 green, 1024 blue); Y. LeCun, http://yann.lecun.com/exdb/mnist ("IDX file format": big endian header). */
#include <string.h>

#include "executor/data/data_impl.h"

enum {
    CIFAR_SIDE = 32,
    CIFAR_IMAGE = 3 * CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_CLASSES = 10,
    IDX_IMAGES = 0x803,
    IDX_LABELS = 0x801,
    IDX_IMAGE_HEADER = 16,
    IDX_LABEL_HEADER = 8,
};

static void fill_image(const ckpt_images *images, const unsigned char *from, const int64_t stride[3], float *to)
{
    for (int c = 0; c < images->channels; c++) {
        for (int y = 0; y < images->rows; y++) {
            for (int x = 0; x < images->columns; x++) {
                to[c * stride[0] + y * stride[1] + x * stride[2]] = images->value[c][*from++];
            }
        }
    }
}

static ckpt_code put_image(const ckpt_data *data, int64_t record, int64_t row, void *const *input, ckpt_err *err)
{
    const ckpt_images *const images = &data->images;
    const ckpt_shape *const shape = &data->model->input[data->first].shape;
    int64_t stride[3] = {(int64_t)images->rows * images->columns, images->columns, 1}; /* as in the file */
    (void)err;
    if (shape->rank == 4) {
        int64_t all[CKPT_RANK_MAX];
        ckpt_shape_strides(shape, all);
        memcpy(stride, all + 1, sizeof stride);
    }
    int file = 0;
    while (record >= images->count[file]) {
        record -= images->count[file++];
    }
    if (input[data->first] != NULL) {
        fill_image(images, images->image[file] + (size_t)record * images->image_step, stride,
                   (float *)input[data->first] + row * (ckpt_shape_count(shape) / shape->dim[0]));
    }
    if (data->second >= 0 && input[data->second] != NULL) {
        ((int32_t *)input[data->second])[row] = images->label[file][(size_t)record * images->label_step];
    }
    return CKPT_OK;
}

/* Their channels, rows and columns are known. */
static ckpt_code find_inputs(ckpt_data *data, const char *what, ckpt_err *err)
{
    const ckpt_model *const model = data->model;
    const ckpt_images *const images = &data->images;
    char shape[CKPT_SHAPE_TEXT];
    CKPT_TRY(ckpt_data_find_images(data, what, err));
    const ckpt_shape *const image = &model->input[data->first].shape;
    const int64_t pixels = (int64_t)images->rows * images->columns;
    const bool fits = (image->rank == 4 && image->dim[1] == images->channels && image->dim[2] == images->rows &&
                       image->dim[3] == images->columns) ||
                      (image->rank == 3 && images->channels == 1 && image->dim[1] == images->rows &&
                       image->dim[2] == images->columns) ||
                      (image->rank == 2 && image->dim[1] == images->channels * pixels);
    return fits ? CKPT_OK
                : CKPT_FAIL(err, CKPT_BAD_INPUT, "input %s is %s; %s gives [N, %d, %d, %d] or [N, %lld]",
                            model->input[data->first].name, ckpt_shape_show(image, shape), what, images->channels,
                            images->rows, images->columns, (long long)(images->channels * pixels));
}

static ckpt_code check_labels(const ckpt_data *data, int file, const char *path, ckpt_err *err)
{
    const ckpt_images *const images = &data->images;
    const int64_t model_limit = data->second >= 0 ? data->class_limit[data->second] : 0;
    const int64_t limit = model_limit > 0 && model_limit < CIFAR_CLASSES ? model_limit : CIFAR_CLASSES;
    for (int64_t i = 0; i < images->count[file]; i++) {
        const int label = images->label[file][(size_t)i * images->label_step];
        if (label >= limit) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: image %lld has label %d, wanted one below %lld", path,
                             (long long)i, label, (long long)limit);
        }
    }
    return CKPT_OK;
}

static void make_values(ckpt_images *images, const double *mean, const double *deviation)
{
    for (int c = 0; c < images->channels; c++) {
        for (int byte = 0; byte < 256; byte++) {
            images->value[c][byte] = (float)((byte / 255.0 - mean[c]) / deviation[c]);
        }
    }
}

ckpt_code ckpt_data_open_cifar10(ckpt_data *data, char *list, ckpt_err *err)
{
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    ckpt_images *const images = &data->images;
    images->channels = 3;
    images->rows = images->columns = CIFAR_SIDE;
    images->image_step = images->label_step = 1 + CIFAR_IMAGE;
    CKPT_TRY(find_inputs(data, "cifar10", err));
    int64_t total = 0;
    for (char *path = list, *next = NULL; path != NULL; path = next) {
        next = ckpt_data_next_name(path);
        if (images->file_count == CKPT_DATA_FILES_MAX) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "at most %d files of images are read", CKPT_DATA_FILES_MAX);
        }
        const ckpt_mapped *file = NULL;
        CKPT_TRY(ckpt_data_map(data, path, &file, err));
        if (file->length % (1 + CIFAR_IMAGE) != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes, wanted a multiple of %d (one label, one image)", path,
                             file->length, 1 + CIFAR_IMAGE);
        }
        const int f = images->file_count++;
        images->label[f] = file->bytes;
        images->image[f] = file->bytes + 1;
        images->count[f] = (int64_t)(file->length / (1 + CIFAR_IMAGE));
        total += images->count[f];
        CKPT_TRY(check_labels(data, f, path, err));
    }
    make_values(images, mean, deviation);
    ckpt_data_take_records(data, total, data->model->input[data->first].shape.dim[0], put_image);
    return CKPT_OK;
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static ckpt_code check_idx(const ckpt_mapped *file, uint32_t magic, size_t header, ckpt_err *err)
{
    if (file->length < header || big_endian(file->bytes) != magic) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: starts with 0x%08x, wanted an IDX file of %s (0x%08x)%s", file->path,
                         file->length >= 4 ? (unsigned)big_endian(file->bytes) : 0u,
                         magic == IDX_IMAGES ? "images" : "labels", (unsigned)magic,
                         file->length > 1 && file->bytes[0] == 0x1f && file->bytes[1] == 0x8b
                             ? "; it is compressed: gunzip it first"
                             : "");
    }
    return CKPT_OK;
}

static ckpt_code check_idx_length(const ckpt_mapped *file, uint64_t wanted, ckpt_err *err)
{
    if (file->length != wanted) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %zu bytes, its header says %llu", file->path, file->length,
                         (unsigned long long)wanted);
    }
    return CKPT_OK;
}

ckpt_code ckpt_data_open_mnist(ckpt_data *data, char *list, ckpt_err *err)
{
    static const double mean[] = {0.1307}, deviation[] = {0.3081};
    enum { SIDE_MAX = 4096 };
    char *const comma = strchr(list, ',');
    if (comma == NULL || strchr(comma + 1, ',') != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "mnist:%s: wanted two files, mnist:IMAGES,LABELS", list);
    }
    *comma = '\0';
    const ckpt_mapped *image = NULL, *label = NULL;
    CKPT_TRY(ckpt_data_map(data, list, &image, err));
    CKPT_TRY(ckpt_data_map(data, comma + 1, &label, err));
    CKPT_TRY(check_idx(image, IDX_IMAGES, IDX_IMAGE_HEADER, err));
    CKPT_TRY(check_idx(label, IDX_LABELS, IDX_LABEL_HEADER, err));
    const uint64_t count = big_endian(image->bytes + 4), labels = big_endian(label->bytes + 4);
    const uint32_t rows = big_endian(image->bytes + 8), columns = big_endian(image->bytes + 12);
    if (count == 0 || count != labels || rows == 0 || rows > SIDE_MAX || columns == 0 || columns > SIDE_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %llu images of %u x %u, and %s: %llu labels", image->path,
                         (unsigned long long)count, (unsigned)rows, (unsigned)columns, label->path,
                         (unsigned long long)labels);
    }
    CKPT_TRY(check_idx_length(image, IDX_IMAGE_HEADER + count * rows * columns, err));
    CKPT_TRY(check_idx_length(label, IDX_LABEL_HEADER + count, err));
    ckpt_images *const images = &data->images;
    images->channels = 1;
    images->rows = (int)rows;
    images->columns = (int)columns;
    images->image_step = (size_t)rows * columns;
    images->label_step = 1;
    images->file_count = 1;
    images->image[0] = image->bytes + IDX_IMAGE_HEADER;
    images->label[0] = label->bytes + IDX_LABEL_HEADER;
    images->count[0] = (int64_t)count;
    CKPT_TRY(find_inputs(data, "mnist", err));
    CKPT_TRY(check_labels(data, 0, label->path, err));
    make_values(images, mean, deviation);
    ckpt_data_take_records(data, (int64_t)count, data->model->input[data->first].shape.dim[0], put_image);
    return CKPT_OK;
}
