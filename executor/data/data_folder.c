/* A folder of pictures: one folder inside it for each class, classes in the order of their names' bytes, as torchvision's
 * ImageFolder has them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "executor/data/data_impl.h"
#include "executor/data/picture.h"

static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
static const double grey_mean[] = {0.1307}, grey_deviation[] = {0.3081};

/* Reads one file into an arena of its own, since several threads may be here. */
static ckpt_code put_picture(const ckpt_data *data, int64_t record, int64_t row, void *const *input, ckpt_err *err)
{
    const ckpt_shape *const shape = &data->model->input[data->first].shape;
    const int channels = (int)shape->dim[1], rows = (int)shape->dim[2], columns = (int)shape->dim[3];
    if (data->second >= 0 && input[data->second] != NULL) {
        ((int32_t *)input[data->second])[row] = data->folder.label[record];
    }
    if (input[data->first] == NULL) {
        return CKPT_OK;
    }
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride);
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const char *const path = data->folder.path[record], *bytes = NULL;
    size_t length = 0;
    ckpt_picture picture = {.pixel = NULL};
    ckpt_code code = ckpt_file_read(path, &arena, &bytes, &length, err);
    if (code == CKPT_OK) {
        code = ckpt_picture_read(path, (const unsigned char *)bytes, length, channels, rows, columns, &picture, err);
    }
    if (code == CKPT_OK) {
        code = ckpt_picture_fit(&picture, rows, columns, channels == 3 ? mean : grey_mean,
                                channels == 3 ? deviation : grey_deviation, stride + 1,
                                (float *)input[data->first] + row * stride[0], err);
    }
    ckpt_memory_put(picture.pixel);
    ckpt_arena_fini(&arena);
    return code;
}

/* Names in a folder, in the order of their bytes. */
typedef struct listing {
    const char **name;
    size_t count, room;
} listing;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ckpt_code add_name(listing *list, const char *name, ckpt_arena *arena, ckpt_err *err)
{
    if (list->count == list->room) {
        const size_t room = list->room > 0 ? 2 * list->room : 64;
        const char **const grown = CKPT_NEW(arena, const char *, room);
        if (grown == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the names of %zu files", room);
        }
        if (list->count > 0) {
            memcpy(grown, list->name, list->count * sizeof *grown);
        }
        list->name = grown;
        list->room = room;
    }
    list->name[list->count] = ckpt_arena_text(arena, name);
    return list->name[list->count++] != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file's name");
}

/* What is in a folder, but for names that begin with a dot. */
static ckpt_code list_folder(const char *path, ckpt_arena *arena, listing *list, ckpt_err *err)
{
    DIR *const folder = opendir(path);
    if (folder == NULL) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    ckpt_code code = CKPT_OK;
    for (const struct dirent *entry = readdir(folder); entry != NULL && code == CKPT_OK; entry = readdir(folder)) {
        code = entry->d_name[0] != '.' ? add_name(list, entry->d_name, arena, err) : CKPT_OK;
    }
    closedir(folder);
    if (code == CKPT_OK && list->count > 0) {
        qsort(list->name, list->count, sizeof *list->name, by_bytes);
    }
    return code;
}

static bool is_picture(const char *name)
{
    const char *const dot = strrchr(name, '.');
    return dot != NULL &&
           (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* Adds the pictures of one class; a folder without any is refused, since all classes behind it would move. */
static ckpt_code add_class(ckpt_data *data, const char *path, listing *all, ckpt_err *err)
{
    listing files = {.name = NULL};
    struct stat about;
    const size_t before = all->count;
    CKPT_TRY(list_folder(path, &data->arena, &files, err));
    for (size_t i = 0; i < files.count; i++) {
        const char *const file =
            is_picture(files.name[i]) ? ckpt_arena_format(&data->arena, "%s/%s", path, files.name[i]) : NULL;
        if (!is_picture(files.name[i])) {
            continue;
        }
        if (file == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file's name");
        }
        if (stat(file, &about) == 0 && S_ISREG(about.st_mode)) {
            CKPT_TRY(add_name(all, file, &data->arena, err));
            data->folder.bytes += (ckpt_bytes)about.st_size;
            ckpt_data_add_stamp(data, &about);
        }
    }
    return all->count > before ? CKPT_OK
                               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no .jpg, .jpeg or .png file in it", path);
}

ckpt_code ckpt_data_open_folder(ckpt_data *data, char *list, ckpt_err *err)
{
    char text[CKPT_SHAPE_TEXT];
    listing classes = {.name = NULL}, all = {.name = NULL};
    CKPT_TRY(ckpt_data_find_images(data, "images", err));
    const ckpt_tensor *const image = &data->model->input[data->first];
    if (image->shape.rank != 4 || (image->shape.dim[1] != 1 && image->shape.dim[1] != 3) ||
        image->shape.dim[2] > CKPT_PICTURE_SIDE_MAX || image->shape.dim[3] > CKPT_PICTURE_SIDE_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %s is %s; images gives [N, 3, H, W], or [N, 1, H, W] in grey",
                         image->name, ckpt_shape_show(&image->shape, text));
    }
    CKPT_TRY(list_folder(list, &data->arena, &classes, err));
    size_t *const end = CKPT_NEW(&data->arena, size_t, classes.count + 1);
    if (end == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %zu classes", classes.count);
    }
    for (size_t i = 0; i < classes.count; i++) {
        const char *const path = ckpt_arena_format(&data->arena, "%s/%s", list, classes.name[i]);
        struct stat about;
        if (path == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a folder's name");
        }
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
            CKPT_TRY(add_class(data, path, &all, err));
            end[data->folder.class_count++] = all.count;
        }
    }
    const int64_t limit = data->second >= 0 ? data->class_limit[data->second] : 0;
    if (all.count == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: 0 classes, wanted a folder of pictures for each", list);
    }
    if (limit > 0 && data->folder.class_count > limit) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d classes (a folder of pictures each), wanted at most %lld", list,
                         data->folder.class_count, (long long)limit);
    }
    int32_t *const label = CKPT_NEW(&data->arena, int32_t, all.count);
    if (label == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %zu labels", all.count);
    }
    for (size_t i = 0, class = 0; i < all.count; i++) {
        class += i == end[class];
        label[i] = (int32_t) class;
    }
    data->folder.path = all.name;
    data->folder.label = label;
    data->decodes = true;
    snprintf(data->identity.about, sizeof data->identity.about, "images, %zu files in %d classes, %lld bytes",
             all.count, data->folder.class_count, (long long)data->folder.bytes);
    ckpt_data_take_records(data, (int64_t)all.count, image->shape.dim[0], put_picture);
    return CKPT_OK;
}
