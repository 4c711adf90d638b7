/* Reads and writes safetensors. Files are read with pread: one that becomes shorter meanwhile gives an error, where a
 * mapped one would give a signal. */
#include "core/formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/names.h"
#include "core/json/json_member.h"
#include "core/json/json_write.h"

enum { LENGTH_BYTES = 8, RANK_MAX = 64 };

typedef struct shard {
    const char *path;
    int file; /* descriptor; -1: none, it is in memory */
    const unsigned char *memory;
    ckpt_bytes begin;  /* of the tensors' bytes in the file */
    ckpt_bytes length; /* of them */
} shard;

struct ckpt_safetensors {
    ckpt_arena arena;
    shard *shard;
    int shard_count;
    ckpt_safetensor *tensor;
    int count;
    ckpt_names names;
};

static const struct {
    const char *name;
    int bytes;
} types[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
    {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}, {"C64", 8},
};

static ckpt_code no_memory(const char *path, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for its header", path);
}

static ckpt_code read_bytes(const shard *s, ckpt_bytes at, void *to, size_t count, ckpt_err *err)
{
    if (s->memory != NULL) {
        memcpy(to, s->memory + at, count);
        return CKPT_OK;
    }
    for (size_t done = 0; done < count;) {
        const ssize_t got = pread(s->file, (char *)to + done, count - done, (off_t)at + (off_t)done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot read: %s", s->path,
                             got < 0 ? strerror(errno) : "the file has become shorter");
        }
        done += (size_t)got;
    }
    return CKPT_OK;
}

/* ---- one tensor of a header ---- */

static ckpt_code read_type(const ckpt_item *object, ckpt_arena *scratch, ckpt_safetensor *tensor, int *bytes,
                           ckpt_err *err)
{
    ckpt_item item;
    const char *name = "";
    CKPT_TRY(ckpt_item_need(object, "dtype", &item, err));
    CKPT_TRY(ckpt_item_text(&item, scratch, &name, err));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) == 0) {
            tensor->type = types[i].name;
            *bytes = types[i].bytes;
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&item, err, "found dtype \"%.40s\", wanted one like F32, F16 or BF16", name);
}

static ckpt_code read_shape(const ckpt_item *object, ckpt_arena *arena, int element_bytes, ckpt_safetensor *tensor,
                            ckpt_err *err)
{
    ckpt_item array;
    CKPT_TRY(ckpt_need_array(object, "shape", &array, &tensor->rank, err));
    if (tensor->rank > RANK_MAX) {
        return ckpt_item_fail(&array, err, "found a shape of %d dimensions, wanted at most %d", tensor->rank, RANK_MAX);
    }
    int64_t *const dim = CKPT_NEW(arena, int64_t, tensor->rank);
    if (dim == NULL) {
        return no_memory(ckpt_json_source(object->json), err);
    }
    int64_t bytes = element_bytes;
    for (int d = 0; d < tensor->rank; d++) {
        ckpt_item item;
        ckpt_item_at(&array, d, &item);
        CKPT_TRY(ckpt_item_int(&item, 0, INT64_MAX, &dim[d], err));
        if (dim[d] > 0 && bytes > INT64_MAX / dim[d]) {
            return ckpt_item_fail(&array, err, "found a shape of more than 2^63 bytes");
        }
        bytes *= dim[d];
    }
    tensor->dim = dim;
    tensor->count = bytes / element_bytes;
    tensor->bytes = bytes;
    return CKPT_OK;
}

static ckpt_code read_offsets(const ckpt_item *object, const shard *s, ckpt_safetensor *tensor, ckpt_err *err)
{
    ckpt_item array;
    int count = 0;
    int64_t offset[2] = {0, 0};
    CKPT_TRY(ckpt_need_array(object, "data_offsets", &array, &count, err));
    if (count != 2) {
        return ckpt_item_fail(&array, err, "found %d offsets, wanted the first byte and the one behind the last",
                              count);
    }
    for (int i = 0; i < 2; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(ckpt_item_int(&item, i == 0 ? 0 : offset[0], s->length, &offset[i], err));
    }
    if (offset[1] - offset[0] != tensor->bytes) {
        char text[CKPT_SHAPE_TEXT];
        return ckpt_item_fail(&array, err, "found %lld bytes, wanted %lld for %s of shape %s",
                              (long long)(offset[1] - offset[0]), (long long)tensor->bytes, tensor->type,
                              ckpt_safetensor_shape(tensor, text));
    }
    tensor->at = offset[0];
    return CKPT_OK;
}

static ckpt_code read_tensor(ckpt_safetensors *t, const ckpt_item *item, ckpt_arena *scratch, ckpt_safetensor *tensor,
                             ckpt_err *err)
{
    int element_bytes = 1;
    tensor->file = t->shard_count - 1;
    tensor->name = ckpt_arena_text(&t->arena, item->key);
    if (tensor->name == NULL) {
        return no_memory(ckpt_json_source(item->json), err);
    }
    CKPT_TRY(ckpt_item_object(item, err));
    CKPT_TRY(read_type(item, scratch, tensor, &element_bytes, err));
    CKPT_TRY(read_shape(item, &t->arena, element_bytes, tensor, err));
    return read_offsets(item, &t->shard[tensor->file], tensor, err);
}

static ckpt_code check_metadata(const ckpt_item *item, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_item member;
    const char *text = "";
    CKPT_TRY(ckpt_item_object(item, err));
    for (int i = 0; ckpt_item_next(item, &i, &member);) {
        CKPT_TRY(ckpt_item_text(&member, scratch, &text, err));
    }
    return CKPT_OK;
}

/* ---- a header ---- */

static int by_offset(const void *left, const void *right)
{
    const ckpt_safetensor *const a = left, *const b = right;
    return a->at != b->at ? (a->at < b->at ? -1 : 1) : a->bytes != b->bytes ? (a->bytes < b->bytes ? -1 : 1) : 0;
}

/* Tensor after tensor, from the first byte to the last. */
static ckpt_code check_order(const shard *s, ckpt_safetensor *tensor, int count, ckpt_err *err)
{
    ckpt_bytes end = 0;
    qsort(tensor, (size_t)count, sizeof *tensor, by_offset);
    for (int i = 0; i < count; i++) {
        if (tensor[i].at != end) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%.200s: \"%.80s\" begins at byte %lld of the data, wanted %lld: tensors %s", s->path,
                             tensor[i].name, (long long)tensor[i].at, (long long)end,
                             tensor[i].at < end ? "overlap" : "follow one another without gaps");
        }
        end += tensor[i].bytes;
    }
    return end == s->length
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: the tensors have %lld bytes, and the file has %lld for them",
                           s->path, (long long)end, (long long)s->length);
}

static ckpt_code read_tensors(ckpt_safetensors *t, const ckpt_item *root, ckpt_arena *scratch, ckpt_err *err)
{
    const shard *const s = &t->shard[t->shard_count - 1];
    const int more = ckpt_item_count(root);
    ckpt_safetensor *const tensor = CKPT_NEW(&t->arena, ckpt_safetensor, t->count + more);
    ckpt_item item;
    int count = 0;
    if (tensor == NULL) {
        return no_memory(s->path, err);
    }
    if (t->count > 0) {
        memcpy(tensor, t->tensor, (size_t)t->count * sizeof *tensor);
    }
    for (int i = 0; ckpt_item_next(root, &i, &item);) {
        if (strcmp(item.key, "__metadata__") == 0) {
            CKPT_TRY(check_metadata(&item, scratch, err));
            continue;
        }
        CKPT_TRY(read_tensor(t, &item, scratch, &tensor[t->count + count], err));
        count++;
    }
    CKPT_TRY(check_order(s, tensor + t->count, count, err));
    t->tensor = tensor;
    t->count += count;
    return CKPT_OK;
}

static ckpt_code read_header(ckpt_safetensors *t, const char *text, size_t length, ckpt_err *err)
{
    const shard *const s = &t->shard[t->shard_count - 1];
    ckpt_json *json = NULL;
    ckpt_item root;
    ckpt_arena scratch;
    if (length == 0 || text[0] != '{') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: its header does not begin with {: no safetensors", s->path);
    }
    CKPT_TRY(ckpt_json_open_text(s->path, text, length, NULL, &json, &root, err));
    ckpt_arena_init(&scratch);
    const ckpt_code code = read_tensors(t, &root, &scratch, err);
    ckpt_arena_fini(&scratch);
    ckpt_json_close(json);
    return code;
}

static ckpt_code read_shard(ckpt_safetensors *t, shard *s, uint64_t size, ckpt_err *err)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t length = 0;
    if (size < LENGTH_BYTES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: %llu bytes, wanted at least %d: no safetensors", s->path,
                         (unsigned long long)size, LENGTH_BYTES);
    }
    CKPT_TRY(read_bytes(s, 0, bytes, sizeof bytes, err));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | bytes[i];
    }
    const uint64_t room = size - LENGTH_BYTES;
    if (length > CKPT_SAFETENSORS_HEADER_MAX || length > room) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%.200s: found a header of %llu bytes, wanted at most %llu: no safetensors, or cut off",
                         s->path, (unsigned long long)length,
                         (unsigned long long)(room < CKPT_SAFETENSORS_HEADER_MAX ? room : CKPT_SAFETENSORS_HEADER_MAX));
    }
    s->begin = LENGTH_BYTES + (ckpt_bytes)length;
    s->length = (ckpt_bytes)(room - length);
    char *const text = ckpt_memory_get((size_t)length + 1);
    if (text == NULL) {
        return no_memory(s->path, err);
    }
    ckpt_code code = read_bytes(s, LENGTH_BYTES, text, (size_t)length, err);
    code = code == CKPT_OK ? read_header(t, text, (size_t)length, err) : code;
    ckpt_memory_put(text);
    return code;
}

static ckpt_code open_shard(ckpt_safetensors *t, const char *path, ckpt_err *err)
{
    struct stat about;
    shard *const s = &t->shard[t->shard_count];
    *s = (shard){.path = path, .file = open(path, O_RDONLY | O_CLOEXEC)};
    if (s->file < 0) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot read: %s", path, strerror(errno));
    }
    t->shard_count++;
    if (fstat(s->file, &about) != 0 || !S_ISREG(about.st_mode)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: no regular file: no safetensors", path);
    }
    return read_shard(t, s, (uint64_t)about.st_size, err);
}

static ckpt_code add_names(ckpt_safetensors *t, ckpt_err *err)
{
    CKPT_TRY(ckpt_names_init(&t->names, t->count, &t->arena, err));
    for (int i = 0; i < t->count; i++) {
        const int other = ckpt_names_add(&t->names, t->tensor[i].name, i);
        if (other >= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" is in %.180s and in %.180s", t->tensor[i].name,
                             t->shard[t->tensor[other].file].path, t->shard[t->tensor[i].file].path);
        }
    }
    return CKPT_OK;
}

/* ---- an index ---- */

/* The path of a file beside the index; NULL: no memory. */
static char *beside(ckpt_arena *arena, const char *path, const char *name)
{
    const char *const slash = strrchr(path, '/');
    return ckpt_arena_format(arena, "%.*s%s", slash != NULL ? (int)(slash - path) + 1 : 0, path, name);
}

/* The files that the index names, each once, in the order of their first tensors. */
static ckpt_code open_shards(ckpt_safetensors *t, const char *path, const ckpt_item *map, ckpt_err *err)
{
    ckpt_item item;
    for (int i = 0; ckpt_item_next(map, &i, &item);) {
        const char *name = "";
        CKPT_TRY(ckpt_item_text(&item, &t->arena, &name, err));
        if (name[0] == '\0' || strchr(name, '/') != NULL) {
            return ckpt_item_fail(&item, err, "found \"%.80s\", wanted the name of a file beside the index", name);
        }
        const char *const file = beside(&t->arena, path, name);
        if (file == NULL) {
            return no_memory(path, err);
        }
        bool known = false;
        for (int k = 0; k < t->shard_count && !known; k++) {
            known = strcmp(t->shard[k].path, file) == 0;
        }
        CKPT_TRY(known ? CKPT_OK : open_shard(t, file, err));
    }
    return CKPT_OK;
}

/* Index and files must agree on every tensor. */
static ckpt_code check_map(const ckpt_safetensors *t, const char *path, const ckpt_item *map, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_item item;
    ckpt_code code = CKPT_OK;
    int count = 0;
    ckpt_arena_init(&scratch);
    for (int i = 0; code == CKPT_OK && ckpt_item_next(map, &i, &item); count++) {
        const char *name = "";
        const int at = ckpt_safetensors_find(t, item.key);
        code = ckpt_item_text(&item, &scratch, &name, err);
        const char *const file = code == CKPT_OK ? beside(&scratch, path, name) : NULL;
        if (code == CKPT_OK && (file == NULL || at < 0 || strcmp(t->shard[t->tensor[at].file].path, file) != 0)) {
            code = file == NULL ? no_memory(path, err)
                                : ckpt_item_fail(&item, err, "\"%.80s\" is not in \"%.80s\"", item.key, name);
        }
    }
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK && count != t->count) {
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: names %d tensors, and its files have %d", path, count, t->count);
    }
    return code;
}

static ckpt_code open_index(ckpt_safetensors *t, const char *path, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root, map;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_code code = ckpt_item_need(&root, "weight_map", &map, err);
    code = code == CKPT_OK ? ckpt_item_object(&map, err) : code;
    if (code == CKPT_OK) {
        t->shard = CKPT_NEW(&t->arena, shard, ckpt_item_count(&map));
        code = t->shard == NULL ? no_memory(path, err) : open_shards(t, path, &map, err);
    }
    code = code == CKPT_OK ? add_names(t, err) : code;
    code = code == CKPT_OK ? check_map(t, path, &map, err) : code;
    ckpt_json_close(json);
    return code;
}

static ckpt_code open_one(ckpt_safetensors *t, const char *path, ckpt_err *err)
{
    const char *const copy = ckpt_arena_text(&t->arena, path);
    t->shard = CKPT_NEW(&t->arena, shard, 1);
    if (t->shard == NULL || copy == NULL) {
        return no_memory(path, err);
    }
    CKPT_TRY(open_shard(t, copy, err));
    return add_names(t, err);
}

static ckpt_code open_bytes(ckpt_safetensors *t, const char *name, const void *bytes, size_t length, ckpt_err *err)
{
    const char *const copy = ckpt_arena_text(&t->arena, name);
    t->shard = CKPT_NEW(&t->arena, shard, 1);
    if (t->shard == NULL || copy == NULL) {
        return no_memory(name, err);
    }
    t->shard[t->shard_count++] = (shard){.path = copy, .file = -1, .memory = bytes};
    CKPT_TRY(read_shard(t, &t->shard[0], length, err));
    return add_names(t, err);
}

static ckpt_code hand_over(ckpt_safetensors *made, ckpt_code code, ckpt_safetensors **tensors)
{
    if (code != CKPT_OK) {
        ckpt_safetensors_close(made);
        return code;
    }
    *tensors = made;
    return CKPT_OK;
}

ckpt_code ckpt_safetensors_open_bytes(const char *name, const void *bytes, size_t length, ckpt_safetensors **tensors,
                                      ckpt_err *err)
{
    ckpt_safetensors *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return no_memory(name, err);
    }
    ckpt_arena_init(&made->arena);
    return hand_over(made, open_bytes(made, name, bytes, length, err), tensors);
}

ckpt_code ckpt_safetensors_open(const char *path, ckpt_safetensors **tensors, ckpt_err *err)
{
    ckpt_safetensors *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return no_memory(path, err);
    }
    ckpt_arena_init(&made->arena);
    const size_t length = strlen(path);
    const bool index = length > 5 && strcmp(path + length - 5, ".json") == 0;
    return hand_over(made, index ? open_index(made, path, err) : open_one(made, path, err), tensors);
}

void ckpt_safetensors_close(ckpt_safetensors *tensors)
{
    if (tensors == NULL) {
        return;
    }
    for (int i = 0; i < tensors->shard_count; i++) {
        if (tensors->shard[i].file >= 0) {
            close(tensors->shard[i].file);
        }
    }
    ckpt_arena_fini(&tensors->arena);
    ckpt_memory_put(tensors);
}

bool ckpt_safetensors_reads(const ckpt_safetensors *tensors, const char *path)
{
    for (int i = 0; i < tensors->shard_count; i++) {
        if (ckpt_file_same(path, tensors->shard[i].path)) {
            return true;
        }
    }
    return false;
}

int ckpt_safetensors_count(const ckpt_safetensors *tensors)
{
    return tensors->count;
}

const ckpt_safetensor *ckpt_safetensors_at(const ckpt_safetensors *tensors, int i)
{
    return &tensors->tensor[i];
}

int ckpt_safetensors_find(const ckpt_safetensors *tensors, const char *name)
{
    return ckpt_names_find(&tensors->names, name);
}

const char *ckpt_safetensor_shape(const ckpt_safetensor *tensor, char *text)
{
    size_t length = (size_t)snprintf(text, CKPT_SHAPE_TEXT, "[");
    for (int d = 0; d < tensor->rank && length + 24 < CKPT_SHAPE_TEXT; d++) {
        length += (size_t)snprintf(text + length, CKPT_SHAPE_TEXT - length, "%s%lld", d > 0 ? ", " : "",
                                   (long long)tensor->dim[d]);
    }
    snprintf(text + length, CKPT_SHAPE_TEXT - length, "]");
    return text;
}

/* ---- values ---- */

ckpt_code ckpt_safetensors_bytes(const ckpt_safetensors *tensors, int i, ckpt_bytes from, ckpt_bytes count, void *to,
                                 ckpt_err *err)
{
    const ckpt_safetensor *const tensor = &tensors->tensor[i];
    const shard *const s = &tensors->shard[tensor->file];
    return read_bytes(s, s->begin + tensor->at + from, to, (size_t)count, err);
}

ckpt_code ckpt_safetensors_floats(const ckpt_safetensors *tensors, int i, float *to, ckpt_err *err)
{
    const ckpt_safetensor *const tensor = &tensors->tensor[i];
    const shard *const s = &tensors->shard[tensor->file];
    if (strcmp(tensor->type, "F32") == 0) {
        return read_bytes(s, s->begin + tensor->at, to, (size_t)tensor->bytes, err);
    }
    const bool half = strcmp(tensor->type, "F16") == 0;
    if (!half && strcmp(tensor->type, "BF16") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: \"%.80s\" has dtype %s, wanted F32, F16 or BF16", s->path,
                         tensor->name, tensor->type);
    }
    /* Into the second half of `to`: the float written last is never beyond the 16 bits read next. */
    const uint16_t *const from = (const uint16_t *)(const void *)to + tensor->count;
    CKPT_TRY(read_bytes(s, s->begin + tensor->at, (uint16_t *)(void *)to + tensor->count, (size_t)tensor->bytes, err));
    for (int64_t k = 0; k < tensor->count; k++) {
        const uint16_t bits = from[k];
        const float value = half ? ckpt_float16_value(bits) : ckpt_bfloat16_value(bits);
        memcpy(to + k, &value, sizeof value);
    }
    return CKPT_OK;
}

void ckpt_safetensors_header(const ckpt_safetensor *tensor, int count, ckpt_text *text)
{
    ckpt_text header;
    ckpt_json_writer w;
    ckpt_bytes at = 0;
    ckpt_text_init(&header);
    ckpt_json_begin(&w, &header);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_json_begin_object(&w, "__metadata__", CKPT_JSON_TIGHT);
    ckpt_json_put_text(&w, "format", "pt"); /* as PyTorch's users expect it: transformers asks for it */
    ckpt_json_end(&w);
    for (int i = 0; i < count; i++) {
        const int64_t offset[] = {at, at + tensor[i].bytes};
        ckpt_json_begin_object(&w, tensor[i].name, CKPT_JSON_TIGHT);
        ckpt_json_put_text(&w, "dtype", tensor[i].type);
        ckpt_json_put_int_list(&w, "shape", tensor[i].dim, tensor[i].rank);
        ckpt_json_put_int_list(&w, "data_offsets", offset, 2);
        ckpt_json_end(&w);
        at += tensor[i].bytes;
    }
    ckpt_json_end(&w);
    while (!header.failed && header.length % 8 != 0) {
        ckpt_text_put(&header, " ", 1);
    }
    for (int i = 0; i < LENGTH_BYTES; i++) {
        const char byte = (char)(header.length >> 8 * i & 255u);
        ckpt_text_put(text, &byte, 1);
    }
    ckpt_text_put(text, header.bytes, header.length);
    text->failed = text->failed || header.failed;
    ckpt_text_fini(&header);
}
