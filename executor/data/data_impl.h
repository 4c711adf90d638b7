/* Common to the sources of data. */
#ifndef CKPT_EXECUTOR_DATA_DATA_IMPL_H
#define CKPT_EXECUTOR_DATA_DATA_IMPL_H

#include "executor/data/data.h"

enum { CKPT_DATA_FILES_MAX = 64, CKPT_DATA_CHANNELS_MAX = 4 };

typedef struct ckpt_mapped {
    const char *path;
    const unsigned char *bytes; /* read only; NULL: not mapped */
    size_t length;
} ckpt_mapped;

/* Images of one size in one or more mapped pieces, planar (channel, row, column) bytes. */
typedef struct ckpt_images {
    int channels, rows, columns;
    int file_count;
    const unsigned char *image[CKPT_DATA_FILES_MAX]; /* first image of each file */
    const unsigned char *label[CKPT_DATA_FILES_MAX]; /* first label */
    int64_t count[CKPT_DATA_FILES_MAX];              /* images in each file */
    size_t image_step, label_step;                   /* bytes from one to the next */
    int64_t total;
    float value[CKPT_DATA_CHANNELS_MAX][256]; /* what a byte becomes */
} ckpt_images;

struct ckpt_data {
    ckpt_arena arena;
    const ckpt_model *model;
    const int64_t *class_limit; /* per input */
    uint64_t seed;
    void (*fill)(const ckpt_data *data, uint64_t step, void *const *input);
    ckpt_mapped file[2 * CKPT_DATA_FILES_MAX];
    int file_count;
    char about[CKPT_DATA_ABOUT];
    int first, second; /* text: tokens, targets (-1: none); images: images, labels */
    ckpt_images images;
};

/* Map `path` (kept until close). Errors: CKPT_IO; CKPT_BAD_INPUT when it is empty or no regular file. */
ckpt_code ckpt_data_map(ckpt_data *data, const char *path, const ckpt_mapped **mapped, ckpt_err *err);

/* Random words of data: apart from those of weights and dropout by counter word 3. */
void ckpt_data_words(const ckpt_data *data, uint32_t use, uint64_t a, uint32_t b, uint32_t word[4]);

ckpt_code ckpt_data_open_text(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_cifar10(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_mnist(ckpt_data *data, char *list, ckpt_err *err);

#endif
