#include "executor/data/picture.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it */
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include "core/base/memory.h"

static ckpt_code check_size(const char *name, uint64_t rows, uint64_t columns, ckpt_err *err)
{
    const uint64_t most = CKPT_PICTURE_SIDE_MAX;
    return rows >= 1 && columns >= 1 && rows <= most && columns <= most
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a picture of %llu x %llu pixels, wanted at most %llu a side", name,
                           (unsigned long long)columns, (unsigned long long)rows, (unsigned long long)most);
}

static ckpt_code take_pixels(const char *name, ckpt_picture *picture, ckpt_err *err)
{
    picture->pixel = ckpt_memory_get((size_t)picture->rows * (size_t)picture->columns * (size_t)picture->channels);
    return picture->pixel != NULL ? CKPT_OK
                                  : CKPT_FAIL(err, CKPT_NO_MEMORY, "%s: no memory for %d x %d pixels", name,
                                              picture->columns, picture->rows);
}

static ckpt_code read_png(const char *name, const unsigned char *bytes, size_t length, ckpt_picture *picture,
                          ckpt_err *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (png_image_begin_read_from_memory(&image, bytes, length) == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: damaged PNG: %s", name, image.message);
    }
    ckpt_code code = check_size(name, image.height, image.width, err);
    if (code == CKPT_OK) {
        picture->rows = (int)image.height;
        picture->columns = (int)image.width;
        code = take_pixels(name, picture, err);
    }
    if (code != CKPT_OK) {
        png_image_free(&image);
        return code;
    }
    image.format = picture->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    const png_color black = {0};
    if (png_image_finish_read(&image, &black, picture->pixel, 0, NULL) == 0 || (image.warning_or_error & 1) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: damaged PNG: %s", name, image.message);
    }
    return CKPT_OK;
}

/* libjpeg leaves an error by its manager, and goes on after a warning, which stands for damaged data here. */
typedef struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr manager;
    jmp_buf back;
    char reason[JMSG_LENGTH_MAX];
} jpeg;

static void leave(j_common_ptr info)
{
    jpeg *const j = info->client_data;
    j->manager.format_message(info, j->reason);
    longjmp(j->back, 1);
}

static void hear(j_common_ptr info, int level)
{
    if (level < 0) { /* a warning: corrupt data */
        leave(info);
    }
}

static ckpt_code read_jpeg(const char *name, const unsigned char *bytes, size_t length, int rows, int columns,
                           ckpt_picture *picture, ckpt_err *err)
{
    jpeg *const j = ckpt_memory_get(sizeof *j);
    if (j == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%s: no memory for a decoder", name);
    }
    volatile ckpt_code code = CKPT_OK;
    j->info.err = jpeg_std_error(&j->manager);
    j->info.client_data = j;
    j->manager.error_exit = leave;
    j->manager.emit_message = hear;
    if (setjmp(j->back) == 0) {
        jpeg_create_decompress(&j->info);
        jpeg_mem_src(&j->info, bytes, (unsigned long)length);
        (void)jpeg_read_header(&j->info, TRUE);
        code = check_size(name, j->info.image_height, j->info.image_width, err);
        j->info.out_color_space = picture->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
        j->info.dct_method = JDCT_ISLOW;
        unsigned int by = 8;
        while (by > 1 && (j->info.image_height / by < (unsigned)rows || j->info.image_width / by < (unsigned)columns)) {
            by /= 2;
        }
        j->info.scale_num = 1;
        j->info.scale_denom = by;
        if (code == CKPT_OK) {
            (void)jpeg_start_decompress(&j->info);
            picture->rows = (int)j->info.output_height;
            picture->columns = (int)j->info.output_width;
            code = take_pixels(name, picture, err);
        }
        while (code == CKPT_OK && j->info.output_scanline < j->info.output_height) {
            unsigned char *row =
                picture->pixel + (size_t)j->info.output_scanline * (size_t)(picture->columns * picture->channels);
            (void)jpeg_read_scanlines(&j->info, &row, 1);
        }
        if (code == CKPT_OK) {
            (void)jpeg_finish_decompress(&j->info);
        }
    } else {
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: JPEG that cannot be read: %s", name, j->reason);
    }
    jpeg_destroy_decompress(&j->info);
    ckpt_memory_put(j);
    return code;
}

ckpt_code ckpt_picture_read(const char *name, const unsigned char *bytes, size_t length, int channels, int rows,
                            int columns, ckpt_picture *picture, ckpt_err *err)
{
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    ckpt_picture made = {.channels = channels};
    ckpt_code code;
    if (length >= sizeof png && memcmp(bytes, png, sizeof png) == 0) {
        code = read_png(name, bytes, length, &made, err);
    } else if (length >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff) {
        code = read_jpeg(name, bytes, length, rows, columns, &made, err);
    } else {
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: neither JPEG nor PNG", name);
    }
    if (code != CKPT_OK) {
        ckpt_memory_put(made.pixel);
        return code;
    }
    *picture = made;
    return CKPT_OK;
}

/* The pixels that one pixel of the result covers along a side: `count` weights from `first` on. */
typedef struct span {
    int first, count;
    float *weight;
} span;

/* Spans of `to` pixels that show the middle of `from` pixels, `scale` of which go into one; each has room for `most`. */
static void make_spans(int from, int to, double scale, int most, float *weights, span *spans)
{
    const double start = (from - to * scale) / 2, reach = scale > 1 ? scale : 1;
    for (int i = 0; i < to; i++) {
        const double centre = start + (i + 0.5) * scale;
        int first = (int)floor(centre - reach + 0.5), end = (int)floor(centre + reach + 0.5);
        first = first < 0 ? 0 : first;
        end = end > from ? from : end;
        first = first < from ? first : from - 1;
        end = end > first ? end : first + 1;
        end = end - first > most ? first + most : end;
        float *const weight = weights + (size_t)i * (size_t)most;
        double sum = 0;
        for (int p = first; p < end; p++) {
            const double far = fabs(p + 0.5 - centre) / reach;
            sum += far < 1 ? 1 - far : 0;
        }
        for (int p = first; p < end; p++) {
            const double far = fabs(p + 0.5 - centre) / reach, share = far < 1 ? 1 - far : 0;
            weight[p - first] = (float)(sum > 0 ? share / sum : 1.0 / (end - first));
        }
        spans[i] = (span){.first = first, .count = end - first, .weight = weight};
    }
}

ckpt_code ckpt_picture_fit(const ckpt_picture *picture, int rows, int columns, const double *mean,
                           const double *deviation, const int64_t stride[3], float *to, ckpt_err *err)
{
    const double tall = (double)picture->rows / rows, wide = (double)picture->columns / columns;
    const double scale = tall < wide ? tall : wide;
    const int most = (int)ceil(scale > 1 ? 2 * scale : 2) + 2, channels = picture->channels;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    span *const down = CKPT_NEW(&arena, span, rows), *const across = CKPT_NEW(&arena, span, columns);
    float *const weights = CKPT_NEW(&arena, float, (size_t)(rows + columns) * (size_t)most);
    /* Every row of the picture, made narrow. */
    float *const narrow = CKPT_NEW(&arena, float, (size_t)picture->rows *(size_t)(columns * channels));
    if (down == NULL || across == NULL || weights == NULL || narrow == NULL) {
        ckpt_arena_fini(&arena);
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to scale a picture of %d x %d pixels", picture->columns,
                         picture->rows);
    }
    make_spans(picture->rows, rows, scale, most, weights, down);
    make_spans(picture->columns, columns, scale, most, weights + (size_t)rows * (size_t)most, across);
    for (int y = down[0].first; y < down[rows - 1].first + down[rows - 1].count; y++) {
        const unsigned char *const row = picture->pixel + (size_t)y * (size_t)(picture->columns * channels);
        for (int x = 0; x < columns; x++) {
            for (int c = 0; c < channels; c++) {
                float sum = 0;
                for (int p = 0; p < across[x].count; p++) {
                    sum += across[x].weight[p] * (float)row[(across[x].first + p) * channels + c];
                }
                narrow[((size_t)y * (size_t)columns + (size_t)x) * (size_t)channels + (size_t)c] = sum;
            }
        }
    }
    for (int c = 0; c < channels; c++) {
        const float factor = (float)(1 / (255 * deviation[c])), offset = (float)(-mean[c] / deviation[c]);
        for (int y = 0; y < rows; y++) {
            for (int x = 0; x < columns; x++) {
                float sum = 0;
                for (int p = 0; p < down[y].count; p++) {
                    const size_t at = (size_t)(down[y].first + p) * (size_t)columns + (size_t)x;
                    sum += down[y].weight[p] * narrow[at * (size_t)channels + (size_t)c];
                }
                to[c * stride[0] + y * stride[1] + x * stride[2]] = sum * factor + offset;
            }
        }
    }
    ckpt_arena_fini(&arena);
    return CKPT_OK;
}
