/* Which tensors of the files make which parameter is settled at the opening; values are read when they are asked for. */
#include "ops/import/weights.h"

#include <string.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "ops/import/tensor_names_impl.h"

/* Where one parameter or statistic is. */
typedef struct place {
    const int *piece; /* tensors of the files; NULL: none, it is another layer's */
    ckpt_tensor_names names;
} place;

struct ckpt_weights {
    const ckpt_network *network;
    ckpt_tensor_namer namer;
    ckpt_safetensors *files;
    const char *path;
    place *param, *stat; /* [node * CKPT_PARAM_MAX + k], [node * CKPT_STAT_MAX + k] */
    bool *used;
};

static ckpt_code no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for weights");
}

/* Calls for every parameter, then statistic, of every layer. */
typedef ckpt_code (*visit)(void *context, int node, int k, bool statistic, const ckpt_tensor *tensor, ckpt_err *err);

static ckpt_code walk(const ckpt_network *network, visit call, void *context, ckpt_err *err)
{
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            CKPT_TRY(call(context, n, k, false, &node->param[k].tensor, err));
        }
        for (int k = 0; k < node->stat_count; k++) {
            CKPT_TRY(call(context, n, k, true, &node->stat[k].tensor, err));
        }
    }
    return CKPT_OK;
}

/* Whose parameter k is in files: the node's, or that of the layer it is tied to, or of which its stage has a copy. */
static int owner_of(const ckpt_network *network, int n, int k)
{
    const ckpt_param *const param = &network->node[n].param[k];
    const ckpt_param *const held = param->tied >= 0 ? &network->node[param->tied].param[k] : param;
    return held->copy_of >= 0 ? held->copy_of : param->tied >= 0 ? param->tied : n;
}

/* The shape that each of a tensor's pieces has in the file. */
static ckpt_shape piece_shape(const ckpt_tensor *tensor, const ckpt_tensor_names *names)
{
    ckpt_shape shape = tensor->shape;
    if (names->stacked) {
        shape.rank--;
        memmove(shape.dim, shape.dim + 1, (size_t)shape.rank * sizeof *shape.dim);
    } else if (names->count > 1) {
        shape.dim[0] /= names->count;
    }
    if (names->transposed && shape.rank == 2) {
        const int64_t rows = shape.dim[0];
        shape.dim[0] = shape.dim[1];
        shape.dim[1] = rows;
    }
    return shape;
}

/* ---- opening ---- */

/* *found -1: the files do not have it. */
static ckpt_code find_tensor(ckpt_weights *w, const char *name, int *found, ckpt_err *err)
{
    const char *other = name;
    *found = -1;
    for (int i = 0; *found < 0 && other != NULL; i++) {
        *found = ckpt_safetensors_find(w->files, other);
        CKPT_TRY(*found < 0 ? ckpt_tensor_name_other(&w->namer, name, i, &other, err) : CKPT_OK);
    }
    return CKPT_OK;
}

static ckpt_code check_tensor(const ckpt_weights *w, int i, const ckpt_shape *wanted, const char *layer, ckpt_err *err)
{
    const ckpt_safetensor *const found = ckpt_safetensors_at(w->files, i);
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    bool same = found->rank == wanted->rank;
    for (int d = 0; same && d < wanted->rank; d++) {
        same = found->dim[d] == wanted->dim[d];
    }
    if (!same) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: \"%.80s\" has shape %s, wanted %s for %.80s", w->path,
                         found->name, ckpt_safetensor_shape(found, a), ckpt_shape_show(wanted, b), layer);
    }
    if (strcmp(found->type, "F32") != 0 && strcmp(found->type, "F16") != 0 && strcmp(found->type, "BF16") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: \"%.80s\" has dtype %s, wanted F32, F16 or BF16", w->path,
                         found->name, found->type);
    }
    return CKPT_OK;
}

static ckpt_code find_pieces(ckpt_weights *w, const char *layer, const ckpt_tensor *tensor, bool needed, place *at,
                             ckpt_err *err)
{
    const int64_t rows = tensor->shape.rank > 0 ? tensor->shape.dim[0] : 1;
    CKPT_TRY(ckpt_tensor_names_find(&w->namer, layer, tensor->name, rows, &at->names, err));
    const ckpt_shape shape = piece_shape(tensor, &at->names);
    int *const piece = CKPT_NEW(&w->namer.arena, int, at->names.count);
    if (piece == NULL) {
        return no_memory(err);
    }
    for (int i = 0; i < at->names.count; i++) {
        CKPT_TRY(find_tensor(w, at->names.name[i], &piece[i], err));
        if (piece[i] < 0 && !needed && i == 0) {
            return CKPT_OK;
        }
        if (piece[i] < 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: found no tensor \"%.100s\", wanted for %.80s.%s", w->path,
                             at->names.name[i], layer, tensor->name);
        }
        CKPT_TRY(check_tensor(w, piece[i], &shape, layer, err));
        w->used[piece[i]] = true;
    }
    at->piece = piece;
    return CKPT_OK;
}

static ckpt_code find_one(void *context, int n, int k, bool statistic, const ckpt_tensor *tensor, ckpt_err *err)
{
    ckpt_weights *const w = context;
    place *const at = statistic ? &w->stat[n * CKPT_STAT_MAX + k] : &w->param[n * CKPT_PARAM_MAX + k];
    const bool needed = statistic || owner_of(w->network, n, k) == n;
    return find_pieces(w, w->network->node[n].name, tensor, needed, at, err);
}

/* ---- values ---- */

/* to[c][r] = from[r][c] */
static void transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            to[c * rows + r] = from[r * columns + c];
        }
    }
}

static ckpt_code read_place(const ckpt_weights *w, const place *at, const ckpt_tensor *tensor, float *to, ckpt_err *err)
{
    const ckpt_shape shape = piece_shape(tensor, &at->names);
    const int64_t count = ckpt_shape_count(&shape);
    const bool turned = at->names.transposed && shape.rank == 2;
    float *const read = turned ? ckpt_memory_get((size_t)count * sizeof *read) : NULL;
    if (turned && read == NULL) {
        return no_memory(err);
    }
    ckpt_code code = CKPT_OK;
    for (int i = 0; i < at->names.count && code == CKPT_OK; i++) {
        code = ckpt_safetensors_floats(w->files, at->piece[i], turned ? read : to + i * count, err);
        if (code == CKPT_OK && turned) {
            transpose(read, shape.dim[0], shape.dim[1], to + i * count);
        }
    }
    ckpt_memory_put(read);
    return code;
}

bool ckpt_weights_reads(const ckpt_weights *weights, const char *path)
{
    return ckpt_safetensors_reads(weights->files, path);
}

ckpt_code ckpt_weights_param(const ckpt_weights *weights, int node, int k, float *to, ckpt_err *err)
{
    const int owner = owner_of(weights->network, node, k);
    return read_place(weights, &weights->param[owner * CKPT_PARAM_MAX + k],
                      &weights->network->node[owner].param[k].tensor, to, err);
}

ckpt_code ckpt_weights_statistic(const ckpt_weights *weights, int node, int k, float *to, ckpt_err *err)
{
    return read_place(weights, &weights->stat[node * CKPT_STAT_MAX + k], &weights->network->node[node].stat[k].tensor,
                      to, err);
}

/* Two places, or two tensors of the files, whose values are compared. */
typedef struct pair {
    const ckpt_weights *weights;
    const place *place[2];
    const ckpt_tensor *tensor; /* of a place; NULL: the places are tensors of the files */
    int file[2];
} pair;

static ckpt_code read_half(const pair *p, int half, float *to, ckpt_err *err)
{
    return p->tensor != NULL ? read_place(p->weights, p->place[half], p->tensor, to, err)
                             : ckpt_safetensors_floats(p->weights->files, p->file[half], to, err);
}

static ckpt_code are_equal(const pair *p, int64_t count, bool *equal, ckpt_err *err)
{
    float *const both = ckpt_memory_get(2 * (size_t)count * sizeof *both);
    if (both == NULL) {
        return no_memory(err);
    }
    ckpt_code code = read_half(p, 0, both, err);
    code = code == CKPT_OK ? read_half(p, 1, both + count, err) : code;
    *equal = code == CKPT_OK && memcmp(both, both + count, (size_t)count * sizeof *both) == 0;
    ckpt_memory_put(both);
    return code;
}

/* A tied parameter that the files have too must be the same there. */
static ckpt_code check_tied(void *context, int n, int k, bool statistic, const ckpt_tensor *tensor, ckpt_err *err)
{
    const ckpt_weights *const w = context;
    const place *const at = &w->param[n * CKPT_PARAM_MAX + k];
    const int owner = statistic ? n : owner_of(w->network, n, k);
    bool equal = true;
    if (owner == n || at->piece == NULL) {
        return CKPT_OK;
    }
    const pair p = {.weights = w, .place = {at, &w->param[owner * CKPT_PARAM_MAX + k]}, .tensor = tensor};
    CKPT_TRY(are_equal(&p, ckpt_shape_count(&tensor->shape), &equal, err));
    return equal
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: \"%.100s\" is not what %.80s has, whose weights %.80s shares",
                           w->path, at->names.name[0], w->network->node[owner].name, w->network->node[n].name);
}

/* A tensor that no parameter is made of must be a copy of another, or mean nothing. */
static ckpt_code check_unused(ckpt_weights *w, int i, ckpt_err *err)
{
    const ckpt_safetensor *const tensor = ckpt_safetensors_at(w->files, i);
    const char *original = NULL;
    bool equal = false;
    int other = -1;
    if (ckpt_tensor_name_ignored(&w->namer, tensor->name)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_tensor_name_original(&w->namer, tensor->name, &original, err));
    if (original == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: found the tensor \"%.100s\", which %.80s has no use for",
                         w->path, tensor->name, w->network->model->name);
    }
    CKPT_TRY(find_tensor(w, original, &other, err));
    if (other >= 0 && ckpt_safetensors_at(w->files, other)->count == tensor->count) {
        const pair p = {.weights = w, .file = {i, other}};
        CKPT_TRY(are_equal(&p, tensor->count, &equal, err));
    }
    return equal ? CKPT_OK
                 : CKPT_FAIL(err, CKPT_BAD_INPUT, "%.180s: \"%.100s\" is no copy of \"%.100s\"", w->path, tensor->name,
                             original);
}

static ckpt_code check_used(ckpt_weights *w, ckpt_err *err)
{
    for (int i = 0; i < ckpt_safetensors_count(w->files); i++) {
        CKPT_TRY(w->used[i] ? CKPT_OK : check_unused(w, i, err));
    }
    return CKPT_OK;
}

static ckpt_code open_files(ckpt_weights *w, const void *bytes, size_t length, ckpt_err *err)
{
    ckpt_arena *const arena = &w->namer.arena;
    CKPT_TRY(bytes == NULL ? ckpt_safetensors_open(w->path, &w->files, err)
                           : ckpt_safetensors_open_bytes(w->path, bytes, length, &w->files, err));
    w->param = CKPT_NEW(arena, place, w->network->node_count * CKPT_PARAM_MAX);
    w->stat = CKPT_NEW(arena, place, w->network->node_count * CKPT_STAT_MAX);
    w->used = CKPT_NEW(arena, bool, ckpt_safetensors_count(w->files));
    if (w->param == NULL || w->stat == NULL || w->used == NULL) {
        return no_memory(err);
    }
    CKPT_TRY(walk(w->network, find_one, w, err));
    CKPT_TRY(check_used(w, err));
    return walk(w->network, check_tied, w, err);
}

ckpt_code ckpt_weights_open(const ckpt_network *network, const char *path, ckpt_weights **weights, ckpt_err *err)
{
    return ckpt_weights_open_bytes(network, path, NULL, 0, weights, err);
}

ckpt_code ckpt_weights_open_bytes(const ckpt_network *network, const char *path, const void *bytes, size_t length,
                                  ckpt_weights **weights, ckpt_err *err)
{
    ckpt_weights *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return no_memory(err);
    }
    made->network = network;
    made->path = path;
    ckpt_code code = ckpt_tensor_namer_init(&made->namer, network->model, err);
    code = code == CKPT_OK ? open_files(made, bytes, length, err) : code;
    if (code != CKPT_OK) {
        ckpt_weights_close(made);
        return code;
    }
    *weights = made;
    return CKPT_OK;
}

void ckpt_weights_close(ckpt_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    ckpt_safetensors_close(weights->files);
    ckpt_tensor_namer_fini(&weights->namer);
    ckpt_memory_put(weights);
}

/* ---- writing ---- */

typedef struct writer {
    const ckpt_network *network;
    ckpt_tensor_namer namer;
    ckpt_dtype dtype;
    ckpt_weights_fetch fetch;
    void *context;
    ckpt_safetensor *tensor; /* of the file */
    int count, room;
    int64_t most; /* elements of the largest */
    float *values, *turned;
    ckpt_file *file;
} writer;

static bool is_written(const writer *w, int n, int k, bool statistic)
{
    return statistic || owner_of(w->network, n, k) == n;
}

static ckpt_code grow(writer *w, int more, ckpt_err *err)
{
    if (w->count + more > w->room) {
        const int room = 2 * (w->count + more);
        ckpt_safetensor *const larger = ckpt_memory_resize(w->tensor, (size_t)room * sizeof *larger);
        if (larger == NULL) {
            return no_memory(err);
        }
        w->tensor = larger;
        w->room = room;
    }
    return CKPT_OK;
}

static ckpt_code list_one(void *context, int n, int k, bool statistic, const ckpt_tensor *tensor, ckpt_err *err)
{
    writer *const w = context;
    ckpt_tensor_names names;
    if (!is_written(w, n, k, statistic)) {
        return CKPT_OK;
    }
    const int64_t rows = tensor->shape.rank > 0 ? tensor->shape.dim[0] : 1, count = ckpt_shape_count(&tensor->shape);
    CKPT_TRY(ckpt_tensor_names_find(&w->namer, w->network->node[n].name, tensor->name, rows, &names, err));
    CKPT_TRY(grow(w, names.count, err));
    w->most = count > w->most ? count : w->most;
    ckpt_shape *const shape = CKPT_NEW(&w->namer.arena, ckpt_shape, 1);
    if (shape == NULL) {
        return no_memory(err);
    }
    *shape = piece_shape(tensor, &names);
    for (int i = 0; i < names.count; i++) {
        w->tensor[w->count++] = (ckpt_safetensor){.name = names.name[i],
                                                  .type = w->dtype == CKPT_BFLOAT16 ? "BF16" : "F32",
                                                  .rank = shape->rank,
                                                  .dim = shape->dim,
                                                  .count = ckpt_shape_count(shape),
                                                  .bytes = ckpt_shape_count(shape) * ckpt_dtype_bytes(w->dtype)};
    }
    return CKPT_OK;
}

/* Its pieces lie one after the other; w->count is the number of the first. */
static ckpt_code write_one(void *context, int n, int k, bool statistic, const ckpt_tensor *tensor, ckpt_err *err)
{
    writer *const w = context;
    ckpt_tensor_names names;
    if (!is_written(w, n, k, statistic)) {
        return CKPT_OK;
    }
    const int64_t rows = tensor->shape.rank > 0 ? tensor->shape.dim[0] : 1;
    CKPT_TRY(ckpt_tensor_names_find(&w->namer, w->network->node[n].name, tensor->name, rows, &names, err));
    CKPT_TRY(w->fetch(w->context, n, k, statistic, w->values, err));
    const ckpt_shape shape = piece_shape(tensor, &names);
    const int64_t count = ckpt_shape_count(&shape);
    for (int i = 0; i < names.count; i++) {
        const float *from = w->values + i * count;
        if (names.transposed && shape.rank == 2) {
            transpose(from, shape.dim[1], shape.dim[0], w->turned);
            from = w->turned;
        }
        if (w->dtype == CKPT_BFLOAT16) {
            uint16_t *const narrow =
                (uint16_t *)(void *)w->turned; /* element j is written when j and before are read */
            for (int64_t j = 0; j < count; j++) {
                float value = 0;
                memcpy(&value, from + j, sizeof value);
                const uint16_t bits = ckpt_bfloat16_of(value);
                memcpy(narrow + j, &bits, sizeof bits);
            }
            from = w->turned;
        }
        CKPT_TRY(ckpt_file_add(w->file, from, (size_t)(count * ckpt_dtype_bytes(w->dtype)), err));
    }
    return CKPT_OK;
}

static ckpt_code write_file(writer *w, const char *path, ckpt_err *err)
{
    ckpt_text header;
    ckpt_text_init(&header);
    ckpt_safetensors_header(w->tensor, w->count, &header);
    ckpt_code code = ckpt_text_end(&header, err);
    code = code == CKPT_OK ? ckpt_file_begin(path, &w->file, err) : code;
    if (code == CKPT_OK) {
        code = ckpt_file_add(w->file, header.bytes, header.length, err);
        code = code == CKPT_OK ? walk(w->network, write_one, w, err) : code;
        const ckpt_code ended = ckpt_file_end(w->file, code == CKPT_OK, code == CKPT_OK ? err : NULL);
        code = code == CKPT_OK ? ended : code;
    }
    ckpt_text_fini(&header);
    return code;
}

static ckpt_code write_all(writer *w, const char *path, ckpt_err *err)
{
    CKPT_TRY(walk(w->network, list_one, w, err));
    w->values = ckpt_memory_get((size_t)w->most * sizeof *w->values);
    w->turned = ckpt_memory_get((size_t)w->most * sizeof *w->turned);
    return w->values != NULL && w->turned != NULL ? write_file(w, path, err) : no_memory(err);
}

ckpt_code ckpt_weights_write(const ckpt_network *network, const char *path, ckpt_dtype dtype, ckpt_weights_fetch fetch,
                             void *context, ckpt_err *err)
{
    writer w = {.network = network, .dtype = dtype, .fetch = fetch, .context = context, .most = 1};
    CKPT_TRY(ckpt_tensor_namer_init(&w.namer, network->model, err));
    const ckpt_code code = write_all(&w, path, err);
    ckpt_memory_put(w.tensor);
    ckpt_memory_put(w.values);
    ckpt_memory_put(w.turned);
    ckpt_tensor_namer_fini(&w.namer);
    return code;
}
