/* Pictures of training data, and how they are scaled. */
#include "tests/fuzz/fuzz.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "core/base/file.h"
#include "executor/data/picture.h"

enum { ROWS = 9, COLUMNS = 11 };

static unsigned char pixel[ROWS * COLUMNS * 3];

static size_t make_jpeg(uint8_t *bytes, size_t room)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr manager;
    unsigned char *out = bytes;
    unsigned long length = (unsigned long)room;
    info.err = jpeg_std_error(&manager);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &length);
    info.image_width = COLUMNS;
    info.image_height = ROWS;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < ROWS; y++) {
        unsigned char *row = pixel + y * COLUMNS * 3;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return (size_t)length;
}

static size_t make_picture(uint8_t *bytes, size_t room)
{
    static int next;
    for (size_t i = 0; i < sizeof pixel; i++) {
        pixel[i] = (unsigned char)(i * 7);
    }
    if (next++ % 2 == 0) {
        return make_jpeg(bytes, room);
    }
    png_image image = {.version = PNG_IMAGE_VERSION, .width = COLUMNS, .height = ROWS, .format = PNG_FORMAT_RGB};
    png_alloc_size_t length = room;
    FUZZ_CHECK(png_image_write_to_memory(&image, bytes, &length, 0, pixel, 0, NULL) != 0, "no PNG");
    return (size_t)length;
}

static ckpt_code read_picture(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    static const double mean[] = {0.5, 0.5, 0.5}, deviation[] = {0.25, 0.25, 0.25};
    static float to[3 * 4 * 4];
    const char *bytes = NULL;
    size_t length = 0;
    CKPT_TRY(ckpt_file_read(path, arena, &bytes, &length, err));
    const int channels = length % 2 == 0 ? 3 : 1;
    ckpt_picture picture;
    CKPT_TRY(ckpt_picture_read(path, (const unsigned char *)bytes, length, channels, 4, 4, &picture, err));
    FUZZ_CHECK(picture.channels == channels && picture.rows > 0 && picture.columns > 0, "%d x %d x %d",
               picture.channels, picture.rows, picture.columns);
    const ckpt_code code = ckpt_picture_fit(&picture, 4, 4, mean, deviation, (const int64_t[]){16, 4, 1}, to, err);
    ckpt_memory_put(picture.pixel);
    return code;
}

const fuzz_reader fuzz_the_reader = {
    .name = "picture", .split = fuzz_split_text, .read = read_picture, .seed = make_picture};
