/* The training state file:
 *
 *     one line of JSON | weights | optimizer | statistics | SHA-256 of all before it, in hexadecimal, and a newline
 *
 * The sections are the bytes of the static block (float32, little endian), so that no value passes through text. The
 * bfloat16 copy of the weights is not among them: it is made again from the weights. A state is of no device: one
 * written on the CPU is read on a GPU and the other way round, and training goes on with the bits of the device it is
 * on. Another number of CPU threads is refused, because there the promise is the bits of never stopping; so is another
 * dtype or batch, which is another training. "threads" 0 is a GPU. The
 * data order is a function of seed and step, which the line carries with what the data were; nothing else is needed to
 * go on with the same bits. A file is read twice: whole, to see that it is sound, and only then into the executor. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/file.h"
#include "core/text.h"
#include "executor/executor_impl.h"

enum { HEADER_MAX = 1 << 16, TAIL = CKPT_DIGEST_TEXT }; /* 64 digits and a newline */

static const ckpt_section saved_section[] = {CKPT_SECTION_WEIGHTS, CKPT_SECTION_OPTIMIZER, CKPT_SECTION_STATISTICS};
enum { SAVED_SECTIONS = sizeof saved_section / sizeof saved_section[0] };

static ckpt_bytes smaller(ckpt_bytes a, ckpt_bytes b)
{
    return a < b ? a : b;
}

/* What a state must agree on with this executor, as "key": value pairs in this order. */
typedef enum ckpt_state_key {
    KEY_FORMAT,
    KEY_MODEL,
    KEY_PARAMETERS,
    KEY_OPTIMIZER,
    KEY_THREADS,
    KEY_GRAPH,
    KEY_COUNT
} ckpt_state_key;

static const struct {
    const char *key;
    const char *about; /* "the state is of <about> <found>, this run has <wanted>" */
} state_key[KEY_COUNT] = {
    [KEY_FORMAT] = {"format", "format"},
    [KEY_MODEL] = {"model", "model"},
    [KEY_PARAMETERS] = {"parameters", "a model with other parameters or attributes, digest"},
    [KEY_OPTIMIZER] = {"optimizer", "optimizer"},
    [KEY_THREADS] = {"threads", "a run with threads ="},
    [KEY_GRAPH] = {"graph", "the same model with another batch, dtype or other layers, graph digest"},
};

/* Attributes are defaults, numbers and words: every field that a kind does not use is 0. */
static void add_attr(const ckpt_attr_spec *spec, const ckpt_attr *attr, ckpt_text *text)
{
    ckpt_text_add(text, " %s=%" PRId64 " %.17g %s", spec->name, attr->integer, attr->real,
                  attr->string != NULL ? attr->string : "");
    for (int i = 0; i < attr->int_count; i++) {
        ckpt_text_add(text, ",%" PRId64, attr->ints[i]);
    }
}

/* Every layer's attributes, and every parameter's and statistic's name and shape, hashed: two models with the same text
 * share their states. */
static ckpt_code parameters_digest(const ckpt_network *network, char digest_text[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    char shape[CKPT_SHAPE_TEXT];
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        ckpt_text_add(&text, "%s %s", node->name, node->op->name);
        for (int i = 0; node->op->attrs != NULL && node->op->attrs[i].name != NULL; i++) {
            add_attr(&node->op->attrs[i], &node->attr[i], &text);
        }
        ckpt_text_add(&text, "\n");
        for (int k = 0; k < node->param_count; k++) {
            ckpt_text_add(&text, "%s %s %s %d %s\n", node->name, node->op->name, node->param[k].tensor.name,
                          node->param[k].tied, ckpt_shape_show(&node->param[k].tensor.shape, shape));
        }
        for (int k = 0; k < node->stat_count; k++) {
            ckpt_text_add(&text, "%s %s %s %s\n", node->name, node->op->name, node->stat[k].tensor.name,
                          ckpt_shape_show(&node->stat[k].tensor.shape, shape));
        }
    }
    ckpt_code code = ckpt_text_end(&text, err);
    ckpt_digest *const digest = code == CKPT_OK ? ckpt_digest_create() : NULL;
    if (digest != NULL) {
        ckpt_digest_add(digest, text.bytes, text.length);
        ckpt_digest_end(digest, digest_text);
    } else if (code == CKPT_OK) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    ckpt_text_fini(&text);
    return code;
}

static void add_optimizer(const ckpt_network *network, ckpt_text *text)
{
    ckpt_text about;
    ckpt_text_init(&about);
    ckpt_text_add(&about, "%s", network->optimizer->name);
    for (int i = 0; network->optimizer->attrs != NULL && network->optimizer->attrs[i].name != NULL; i++) {
        ckpt_text_add(&about, " %s=%.17g", network->optimizer->attrs[i].name, network->hyper[i]);
    }
    text->failed = text->failed || about.failed;
    ckpt_text_json(text, about.bytes != NULL ? about.bytes : "");
    ckpt_text_fini(&about);
}

/* The value of `key` as this executor would write it. */
static ckpt_code add_value(const ckpt_executor *executor, ckpt_state_key key, ckpt_text *text, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    char digest[CKPT_DIGEST_TEXT];
    switch (key) {
    case KEY_FORMAT: ckpt_text_json(text, "ckpt-state/1"); break;
    case KEY_MODEL: ckpt_text_json(text, network->model->name); break;
    case KEY_PARAMETERS:
        CKPT_TRY(parameters_digest(network, digest, err));
        ckpt_text_json(text, digest);
        break;
    case KEY_OPTIMIZER: add_optimizer(network, text); break;
    case KEY_THREADS: ckpt_text_add(text, "%d", network->threads); break;
    case KEY_GRAPH:
        CKPT_TRY(ckpt_graph_digest(executor->lowered->graph, digest, err));
        ckpt_text_json(text, digest);
        break;
    case KEY_COUNT: break;
    }
    return CKPT_OK;
}

static ckpt_code add_header(const ckpt_executor *executor, ckpt_text *text, ckpt_err *err)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        ckpt_text_add(text, "%s\"%s\": ", key == 0 ? "{" : ", ", state_key[key].key);
        CKPT_TRY(add_value(executor, (ckpt_state_key)key, text, err));
    }
    ckpt_text_add(text, ", \"seed\": %" PRIu64 ", \"step\": %" PRIu64 ", \"loss\": \"%a\", \"data\": ", executor->seed,
                  executor->steps, (double)executor->last_loss);
    ckpt_text_json(text, executor->data);
    ckpt_text_add(text, "}\n");
    return ckpt_text_end(text, err);
}

static ckpt_code put(ckpt_file *file, ckpt_digest *digest, const void *bytes, size_t length, ckpt_err *err)
{
    ckpt_digest_add(digest, bytes, length);
    return ckpt_file_add(file, bytes, length, err);
}

static ckpt_code put_all(ckpt_executor *executor, ckpt_file *file, ckpt_digest *digest, const ckpt_text *header,
                         ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    CKPT_TRY(put(file, digest, header->bytes, header->length, err));
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        ckpt_bytes start = 0, bytes = 0;
        ckpt_executor_section(executor, saved_section[i], &start, &bytes);
        for (ckpt_bytes done = 0; done < bytes; done += CKPT_CHUNK_BYTES) {
            const ckpt_bytes now = smaller(bytes - done, CKPT_CHUNK_BYTES);
            CKPT_TRY(device->api->download(device, executor->chunk, executor->statics + start + done, now, err));
            CKPT_TRY(put(file, digest, executor->chunk, (size_t)now, err));
        }
    }
    return CKPT_OK;
}

static ckpt_code write_file(ckpt_executor *executor, const char *path, const ckpt_text *header, ckpt_err *err)
{
    ckpt_digest *const digest = ckpt_digest_create();
    if (digest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    char tail[CKPT_DIGEST_TEXT];
    ckpt_file *file = NULL;
    ckpt_code code = ckpt_file_begin(path, &file, err);
    if (code == CKPT_OK) {
        code = put_all(executor, file, digest, header, err);
    }
    ckpt_digest_end(digest, tail);
    tail[TAIL - 1] = '\n';
    if (code == CKPT_OK) {
        code = ckpt_file_add(file, tail, TAIL, err);
    }
    if (file != NULL) {
        const ckpt_code end = ckpt_file_end(file, code == CKPT_OK, err);
        code = code != CKPT_OK ? code : end;
    }
    return code;
}

ckpt_code ckpt_executor_state_write(ckpt_executor *executor, const char *path, ckpt_err *err)
{
    ckpt_text header;
    ckpt_text_init(&header);
    ckpt_code code = add_header(executor, &header, err);
    if (code == CKPT_OK && header.length >= HEADER_MAX) {
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: a header of %zu bytes, and at most %d are read back", path,
                         header.length, HEADER_MAX);
    }
    if (code == CKPT_OK) {
        code = write_file(executor, path, &header, err);
    }
    ckpt_text_fini(&header);
    return code;
}

static ckpt_code get(FILE *file, void *bytes, size_t length, const char *path, ckpt_err *err)
{
    if (fread(bytes, 1, length, file) != length) {
        return CKPT_FAIL(err, ferror(file) ? CKPT_IO : CKPT_BAD_INPUT, "%s: %s", path,
                         ferror(file) ? strerror(errno) : "the file ends too early");
    }
    return CKPT_OK;
}

/* The SHA-256 at the end is of everything before it. */
static ckpt_code check_sound(ckpt_executor *executor, FILE *file, ckpt_bytes length, const char *path, ckpt_err *err)
{
    char unused[CKPT_DIGEST_TEXT], found[CKPT_DIGEST_TEXT] = {0}, stated[CKPT_DIGEST_TEXT] = {0};
    ckpt_digest *const digest = ckpt_digest_create();
    if (digest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    for (ckpt_bytes done = 0; done < length - TAIL; done += CKPT_CHUNK_BYTES) {
        const size_t now = (size_t)smaller(length - TAIL - done, CKPT_CHUNK_BYTES);
        const ckpt_code code = get(file, executor->chunk, now, path, err);
        if (code != CKPT_OK) {
            ckpt_digest_end(digest, unused);
            return code;
        }
        ckpt_digest_add(digest, executor->chunk, now);
    }
    ckpt_digest_end(digest, found);
    CKPT_TRY(get(file, stated, TAIL - 1, path, err));
    if (memcmp(found, stated, TAIL - 1) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: damaged, or no training state: its SHA-256 is %.16s..., the last line says %.16s...",
                         path, found, stated);
    }
    return CKPT_OK;
}

/* The text of a member's value in the header line, which ends at ", \"" or "}"; NULL when it is not there. */
static const char *find_member(const char *header, const char *key, size_t *length)
{
    const size_t key_length = strlen(key);
    for (const char *at = strchr(header, '"'); at != NULL; at = strchr(at + 1, '"')) {
        if (strncmp(at + 1, key, key_length) == 0 && strncmp(at + 1 + key_length, "\": ", 3) == 0) {
            const char *const value = at + 1 + key_length + 3;
            const char *const next = strstr(value, ", \"");
            const char *const end = next != NULL ? next : strrchr(value, '}');
            *length = end != NULL ? (size_t)(end - value) : strlen(value);
            return value;
        }
    }
    return NULL;
}

static ckpt_code read_count(const char *header, const char *key, const char *path, uint64_t *count, ckpt_err *err)
{
    size_t length = 0;
    const char *const value = find_member(header, key, &length);
    char *end = NULL;
    errno = 0;
    const unsigned long long found = value != NULL ? strtoull(value, &end, 10) : 0;
    if (value == NULL || errno != 0 || end != value + length || value[0] == '-') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line has no \"%s\" that is a count", path, key);
    }
    *count = found;
    return CKPT_OK;
}

/* The text of a member between its quotes, into `room` bytes: one that we wrote has nothing escaped. */
static ckpt_code read_words(const char *header, const char *key, const char *path, char *words, size_t room,
                            ckpt_err *err)
{
    size_t length = 0;
    const char *const value = find_member(header, key, &length);
    if (value == NULL || length < 2 || length - 2 >= room || value[0] != '"' || value[length - 1] != '"') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line has no \"%s\" of at most %zu characters", path, key,
                         room - 1);
    }
    memcpy(words, value + 1, length - 2);
    words[length - 2] = '\0';
    return CKPT_OK;
}

/* From the CPU to a GPU or back: the values go on, the bits of what follows are the other device's. */
static bool goes_over(const ckpt_executor *executor, const char *found)
{
    const bool counted = found != NULL && found[0] >= '0' && found[0] <= '9';
    return counted && (executor->lowered->network->threads == CKPT_ON_GPU) != (strtol(found, NULL, 10) == CKPT_ON_GPU);
}

static ckpt_code check_header(const ckpt_executor *executor, const char *header, const char *path, ckpt_err *err)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        ckpt_text wanted;
        ckpt_text_init(&wanted);
        ckpt_code code = add_value(executor, (ckpt_state_key)key, &wanted, err);
        if (code == CKPT_OK) {
            code = ckpt_text_end(&wanted, err);
        }
        size_t length = 0;
        const char *const found = find_member(header, state_key[key].key, &length);
        const bool same = code == CKPT_OK && found != NULL && strncmp(found, wanted.bytes, wanted.length) == 0 &&
                          (found[wanted.length] == ',' || found[wanted.length] == '}');
        if (code == CKPT_OK && !same && key == KEY_THREADS && goes_over(executor, found)) {
            ckpt_text_fini(&wanted);
            continue;
        }
        if (code == CKPT_OK && !same) {
            code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the state is of %s %.*s; this run has %s", path,
                             state_key[key].about, (int)(found != NULL && length < 160 ? length : 0),
                             found != NULL ? found : "", wanted.bytes);
        }
        ckpt_text_fini(&wanted);
        CKPT_TRY(code);
    }
    return CKPT_OK;
}

static ckpt_code get_sections(ckpt_executor *executor, FILE *file, const char *path, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        ckpt_bytes start = 0, bytes = 0;
        ckpt_executor_section(executor, saved_section[i], &start, &bytes);
        for (ckpt_bytes done = 0; done < bytes; done += CKPT_CHUNK_BYTES) {
            const ckpt_bytes now = smaller(bytes - done, CKPT_CHUNK_BYTES);
            CKPT_TRY(get(file, executor->chunk, (size_t)now, path, err));
            CKPT_TRY(device->api->upload(device, executor->statics + start + done, executor->chunk, now, err));
        }
    }
    return CKPT_OK;
}

static ckpt_code read_file(ckpt_executor *executor, FILE *file, char *header, const char *path, ckpt_err *err)
{
    if (fseek(file, 0, SEEK_END) != 0) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    const off_t length = ftello(file);
    if (length <= TAIL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld bytes are no training state", path, (long long)length);
    }
    rewind(file);
    CKPT_TRY(check_sound(executor, file, (ckpt_bytes)length, path, err));
    rewind(file);
    if (fgets(header, HEADER_MAX, file) == NULL || strchr(header, '\n') == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line is no header of a training state", path);
    }
    CKPT_TRY(check_header(executor, header, path, err));
    uint64_t seed = 0, steps = 0;
    char loss[40], data[CKPT_DATA_ABOUT];
    CKPT_TRY(read_count(header, "seed", path, &seed, err));
    CKPT_TRY(read_count(header, "step", path, &steps, err));
    CKPT_TRY(read_words(header, "loss", path, loss, sizeof loss, err));
    CKPT_TRY(read_words(header, "data", path, data, sizeof data, err));
    ckpt_bytes wanted = (ckpt_bytes)strlen(header) + TAIL;
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        ckpt_bytes start = 0, bytes = 0;
        ckpt_executor_section(executor, saved_section[i], &start, &bytes);
        wanted += bytes;
    }
    if (wanted != (ckpt_bytes)length) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %lld bytes, wanted %lld for this model", path, (long long)length,
                         (long long)wanted);
    }
    CKPT_TRY(get_sections(executor, file, path, err));
    CKPT_TRY(ckpt_executor_narrow(executor, err));
    executor->seed = seed;
    executor->steps = steps;
    executor->last_loss = strtof(loss, NULL);
    memcpy(executor->data, data, sizeof data);
    return CKPT_OK;
}

ckpt_code ckpt_executor_state_read(ckpt_executor *executor, const char *path, ckpt_err *err)
{
    char *const header = ckpt_memory_get(HEADER_MAX);
    if (header == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a state's header");
    }
    FILE *const file = fopen(path, "rb");
    ckpt_code code = CKPT_OK;
    if (file == NULL) {
        code = CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(errno));
    } else {
        code = read_file(executor, file, header, path, err);
        fclose(file);
    }
    ckpt_memory_put(header);
    return code;
}
