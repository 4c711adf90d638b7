/* Common to the sources of data. A source gives records (an image with its label, a row of tokens), and data.c takes them
 * in an order of its own for every epoch; or it fills whole batches by itself. */
#ifndef CKPT_EXECUTOR_DATA_DATA_IMPL_H
#define CKPT_EXECUTOR_DATA_DATA_IMPL_H

#include <sys/stat.h>

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
    float value[CKPT_DATA_CHANNELS_MAX][256];        /* what a byte becomes */
} ckpt_images;

/* Tokens of 2 or 4 bytes, little endian, in mapped files. */
typedef struct ckpt_tokens {
    const unsigned char *first[CKPT_DATA_FILES_MAX];
    int64_t rows[CKPT_DATA_FILES_MAX]; /* whole rows of each file that have a token behind them */
    int width;                         /* bytes of a token */
} ckpt_tokens;

/* One array for each input of the model, a record a row along its first dim. */
typedef struct ckpt_array {
    const unsigned char *bytes;
    const struct ckpt_element *element;
} ckpt_array;

/* A folder of pictures, one folder inside it for each class. */
typedef struct ckpt_folder {
    const char *const *path; /* of every picture, by class, then by name */
    const int32_t *label;
    int class_count;
    ckpt_bytes bytes; /* of all files */
} ckpt_folder;

struct ckpt_data {
    ckpt_arena arena;
    const ckpt_model *model;
    const int64_t *class_limit; /* per input */
    int64_t *ignored;           /* per input: a target that is allowed beside those below the limit; 0: none */
    uint64_t seed;
    ckpt_code (*fill)(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err);
    /* Puts a record into row `row` of every input that is not NULL. */
    ckpt_code (*record)(const ckpt_data *data, int64_t record, int64_t row, void *const *input, ckpt_err *err);
    int64_t records, rows; /* in all; in a batch */
    bool decodes;          /* a record takes long: worth a worker of its own */
    ckpt_mapped file[2 * CKPT_DATA_FILES_MAX];
    int file_count;
    ckpt_data_identity identity; /* `digest` is not set */
    ckpt_digest *stamping;       /* of the stamp, while files are opened */
    int first, second;           /* text, tokens: tokens, targets (-1: none); images: images, labels */
    ckpt_images images;
    ckpt_tokens tokens;
    const ckpt_array *array; /* per input */
    ckpt_folder folder;
};

/* Map `path` (kept until close). Errors: CKPT_IO; CKPT_BAD_INPUT when it is empty or no regular file. */
ckpt_code ckpt_data_map(ckpt_data *data, const char *path, const ckpt_mapped **mapped, ckpt_err *err);

/* Adds a file's size and times to the stamp; for every file, in the same order each time. */
void ckpt_data_add_stamp(ckpt_data *data, const struct stat *file);

/* Random words of data: apart from those of weights and dropout by counter word 3. */
void ckpt_data_words(const ckpt_data *data, uint32_t use, uint64_t a, uint32_t b, uint32_t word[4]);

/* The source's `fill`, of `records` that `record` gives: each once in an epoch, in an order that seed and epoch say. */
void ckpt_data_take_records(ckpt_data *data, int64_t records, int64_t rows,
                            ckpt_code (*record)(const ckpt_data *, int64_t, int64_t, void *const *, ckpt_err *));

/* Sets `first` and `second`: int32 tokens and their targets (`what` gives them), of one shape of rank 1 or more. */
ckpt_code ckpt_data_find_tokens(ckpt_data *data, const char *what, ckpt_err *err);
/* Sets `first` and `second`: the first float32 input takes images, the first int32 input labels; there is no third. */
ckpt_code ckpt_data_find_images(ckpt_data *data, const char *what, ckpt_err *err);

/* "a,b" -> "a", and what follows the comma; NULL: nothing does. */
char *ckpt_data_next_name(char *list);

ckpt_code ckpt_data_open_text(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_tokens(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_cifar10(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_mnist(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_arrays(ckpt_data *data, char *list, ckpt_err *err);
ckpt_code ckpt_data_open_safetensors(ckpt_data *data, char *path, ckpt_err *err);
ckpt_code ckpt_data_open_folder(ckpt_data *data, char *list, ckpt_err *err);

#endif
