/* Names allocations by their stack frames: the innermost frame of the user's own Python, else autograd's backward
 * function (its threads have no Python frames), else the innermost Python frame of a library. */
#include <stdio.h>
#include <string.h>

#include "imports/snapshot_impl.h"

/* Thousands of entries may share a stack, so these bound the walk: frames from the inside and bytes of a text that are
 * read, and bytes of names that are kept. */
enum { FRAMES_MAX = 256, TEXT_MAX_BYTES = 1024, PART_MAX_BYTES = 60, LAYER_MAX_BYTES = 100 };

typedef struct text {
    const char *bytes;
    int length;
} text;

typedef struct frame {
    text file, name;
    int64_t line;
} frame;

static text text_of(const ckpt_pickle_value *value)
{
    return value->type == CKPT_PICKLE_TEXT ? (text){value->as.bytes, value->count} : (text){"", 0};
}

static bool contains(text in, const char *what)
{
    const int length = (int)strlen(what);
    for (int i = 0; i + length <= in.length; i++) {
        if (memcmp(in.bytes + i, what, (size_t)length) == 0) {
            return true;
        }
    }
    return false;
}

static bool ends_with(text in, const char *what)
{
    const int length = (int)strlen(what);
    return in.length >= length && memcmp(in.bytes + in.length - length, what, (size_t)length) == 0;
}

/* The profiler's frames have file and line in the name: "net/layers.py(130): forward". */
static frame split(frame from)
{
    const char *const open = memchr(from.name.bytes, '(', (size_t)from.name.length);
    const char *const end = from.name.bytes + from.name.length;
    if (open == NULL || !ends_with((text){from.name.bytes, (int)(open - from.name.bytes)}, ".py")) {
        return from;
    }
    frame made = {.file = {from.name.bytes, (int)(open - from.name.bytes)}};
    const char *at = open + 1;
    while (at < end && *at >= '0' && *at <= '9' && made.line < INT32_MAX) {
        made.line = 10 * made.line + (*at++ - '0');
    }
    if (end - at < 3 || memcmp(at, "): ", 3) != 0) {
        return from;
    }
    made.name = (text){at + 3, (int)(end - at - 3)};
    return made;
}

/* Keeps the end of a long path and the start of a long name. */
static frame frame_of(const ckpt_pickle_value *value)
{
    const ckpt_pickle_value line = ckpt_pickle_find(value, "line");
    const ckpt_pickle_value its_file = ckpt_pickle_find(value, "filename");
    const ckpt_pickle_value its_name = ckpt_pickle_find(value, "name");
    text file = text_of(&its_file);
    text name = text_of(&its_name);
    const int before = file.length > TEXT_MAX_BYTES ? file.length - TEXT_MAX_BYTES : 0;
    file = (text){file.bytes + before, file.length - before};
    name.length = name.length < TEXT_MAX_BYTES ? name.length : TEXT_MAX_BYTES;
    const frame made = {file, name, line.type == CKPT_PICKLE_INT ? line.as.integer : 0};
    return made.line == 0 ? split(made) : made;
}

static bool is_python(const frame *f)
{
    return ends_with(f->file, ".py") || (contains(f->file, "<ipython-input") || contains(f->file, "<stdin>"));
}

static bool is_library(const frame *f)
{
    return contains(f->file, "/site-packages/") || contains(f->file, "/dist-packages/") ||
           contains(f->file, "/lib/python") || contains(f->file, "/torch/") ||
           (f->file.length >= 6 && memcmp(f->file.bytes, "torch/", 6) == 0);
}

static int cut(text from, int most)
{
    return (int)ckpt_import_cut(from.bytes, (size_t)from.length, (size_t)most);
}

/* All that is kept comes through here: as far as a zero byte. */
static ckpt_code keep(const ckpt_snapshot *s, const char *made, const char **kept)
{
    CKPT_TRY_WHILE(s->err, ckpt_timeline_keep(s->timeline, made, kept, s->err), "importing %.200s", s->path);
    return CKPT_OK;
}

static ckpt_code keep_cut(const ckpt_snapshot *s, text from, int most, const char **kept)
{
    char made[CKPT_SNAPSHOT_TEXT];
    snprintf(made, sizeof made, "%.*s", cut(from, most), from.bytes);
    return keep(s, made, kept);
}

static ckpt_code python_name(const ckpt_snapshot *s, const frame *f, const char **name)
{
    char made[CKPT_SNAPSHOT_TEXT];
    text base = f->file;
    for (int i = 0; i < f->file.length; i++) {
        if (f->file.bytes[i] == '/' || f->file.bytes[i] == '\\') {
            base = (text){f->file.bytes + i + 1, f->file.length - i - 1};
        }
    }
    snprintf(made, sizeof made, "%.*s:%lld %.*s", cut(base, PART_MAX_BYTES), base.bytes, (long long)f->line,
             cut(f->name, PART_MAX_BYTES), f->name.bytes);
    return keep(s, made, name);
}

/* "torch::autograd::generated::AddmmBackward0::apply(...)" is AddmmBackward0. */
static bool backward_of(const frame *f, text *function)
{
    static const char prefix[] = "torch::autograd::generated::";
    const int skip = (int)sizeof prefix - 1;
    if (f->name.length <= skip || memcmp(f->name.bytes, prefix, (size_t)skip) != 0) {
        return false;
    }
    *function = (text){f->name.bytes + skip, 0};
    while (skip + function->length < f->name.length && strchr(":(<", function->bytes[function->length]) == NULL) {
        function->length++;
    }
    return function->length > 0;
}

ckpt_code ckpt_snapshot_name(const ckpt_snapshot *s, const ckpt_pickle_value *value, const char **name)
{
    const ckpt_pickle_value frames = ckpt_pickle_find(value, "frames");
    const int count = frames.type == CKPT_PICKLE_LIST ? frames.count : 0;
    frame library = {.line = -1};
    text backward = {NULL, 0};
    for (int i = 0; i < count && i < FRAMES_MAX; i++) {
        const ckpt_pickle_value its_frame = ckpt_pickle_item(&frames, i);
        const frame f = frame_of(&its_frame);
        if (is_python(&f) && !is_library(&f)) {
            return python_name(s, &f, name);
        }
        library = library.line < 0 && is_python(&f) && f.line >= 0 ? f : library;
        if (backward.bytes == NULL && !backward_of(&f, &backward)) {
            backward = (text){NULL, 0};
        }
    }
    if (backward.bytes != NULL) {
        return keep_cut(s, backward, PART_MAX_BYTES, name);
    }
    return library.line >= 0 ? python_name(s, &library, name) : keep(s, "allocation", name);
}

ckpt_code ckpt_snapshot_text(const ckpt_snapshot *s, const ckpt_pickle_value *value, int most, const char **kept)
{
    return keep_cut(s, text_of(value), most, kept);
}

static ckpt_category category_of(const ckpt_pickle_value *value)
{
    static const struct {
        const char *theirs;
        ckpt_category ours;
    } row[] = {
        {"parameter", CKPT_CAT_WEIGHTS},         {"gradient", CKPT_CAT_GRADIENTS},
        {"optimizer_state", CKPT_CAT_OPTIMIZER}, {"input", CKPT_CAT_INPUTS},
        {"activation", CKPT_CAT_ACTIVATIONS},    {"autograd_detail", CKPT_CAT_SAVED},
        {"temporary", CKPT_CAT_WORKSPACE},
    };
    const ckpt_pickle_value category = ckpt_pickle_find(value, "category");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        if (ckpt_pickle_is_text(&category, row[i].theirs)) {
            return row[i].ours;
        }
    }
    return CKPT_CAT_OTHER;
}

ckpt_code ckpt_snapshot_label(const ckpt_snapshot *s, const ckpt_pickle_value *value, int64_t stream,
                              ckpt_snapshot_entry *entry)
{
    char made[CKPT_SNAPSHOT_TEXT];
    const ckpt_pickle_value label = ckpt_pickle_find(value, "user_metadata");
    entry->category = category_of(value);
    CKPT_TRY(ckpt_snapshot_text(s, &label, LAYER_MAX_BYTES, &entry->layer));
    snprintf(made, sizeof made, "stream %lld", (long long)stream);
    return keep(s, made, &entry->stream);
}
