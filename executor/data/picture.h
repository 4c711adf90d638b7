/* Pictures from files: JPEG by libjpeg-turbo, PNG by libpng. */
#ifndef CKPT_EXECUTOR_DATA_PICTURE_H
#define CKPT_EXECUTOR_DATA_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* Bytes in rows, `channels` of a pixel side by side: 3 (red, green, blue) or 1 (grey). */
typedef struct ckpt_picture {
    int rows, columns, channels;
    unsigned char *pixel; /* from ckpt_memory_get; the caller's */
} ckpt_picture;

enum { CKPT_PICTURE_SIDE_MAX = 1 << 14 };

/* Reads the picture in `length` bytes, whose kind their first bytes tell. Transparency is laid over black. A JPEG is
 * decoded at a half, a quarter or an eighth of its size where that still has `rows` and `columns`.
 * Errors: CKPT_BAD_INPUT with the library's reason (neither kind, damaged, a side of more than CKPT_PICTURE_SIDE_MAX,
 * four inks), CKPT_NO_MEMORY. `name` is for messages. */
CKPT_MUST_USE ckpt_code ckpt_picture_read(const char *name, const unsigned char *bytes, size_t length, int channels,
                                          int rows, int columns, ckpt_picture *picture, ckpt_err *err);

/* Scales the picture until its shorter side, measured against rows x columns, fits, and takes the middle. Every pixel of
 * the result is the mean of those it covers, weighted by a triangle (bilinear with antialiasing, as Pillow and
 * torchvision resize). value[channel][byte], interpolated, goes to to[channel * stride[0] + row * stride[1] + column *
 * stride[2]]: value = (byte / 255 - mean[channel]) / deviation[channel].
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_picture_fit(const ckpt_picture *picture, int rows, int columns, const double *mean,
                                         const double *deviation, const int64_t stride[3], float *to, ckpt_err *err);

#endif
