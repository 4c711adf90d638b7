/* Each value writes the separator before itself, so the only state is whether there was a value before. */
#include "core/json/json_write.h"

#include <assert.h>

static void break_line(const ckpt_json_writer *w, int column)
{
    static const char blanks[] = "\n                                                                ";
    assert(column < (int)sizeof blanks - 1);
    ckpt_text_put(w->text, blanks, 1 + (size_t)column);
}

/* Comma, line end, key. */
static void separate(ckpt_json_writer *w, const char *key)
{
    if (w->depth > 0) {
        const bool lines = w->open[w->depth].lines && !w->joined;
        const bool filled = w->open[w->depth].filled;
        const bool array = w->open[w->depth].array;
        assert(array == (key == NULL));
        w->open[w->depth].filled = true;
        if (filled) {
            ckpt_text_put(w->text, ",", 1);
        }
        if (lines || w->column >= 0) {
            break_line(w, w->column >= 0 ? w->column : 2 * w->indent);
        } else if (filled || !(array || w->open[w->depth].tight)) {
            ckpt_text_put(w->text, " ", 1);
        }
        w->column = -1;
        w->joined = false;
    }
    if (key != NULL) {
        ckpt_text_json(w->text, key);
        ckpt_text_put(w->text, ": ", 2);
    }
}

static void begin(ckpt_json_writer *w, const char *key, ckpt_json_layout layout, bool array)
{
    assert(w->depth < CKPT_JSON_DEPTH_MAX);
    separate(w, key);
    ckpt_text_put(w->text, array ? "[" : "{", 1);
    const bool lines =
        layout == CKPT_JSON_ROWS || (layout == CKPT_JSON_LINES && (w->depth == 0 || w->open[w->depth].lines));
    w->depth++;
    w->indent += lines;
    w->open[w->depth].array = array;
    w->open[w->depth].lines = lines;
    w->open[w->depth].tight = layout == CKPT_JSON_TIGHT;
    w->open[w->depth].filled = false;
}

void ckpt_json_begin(ckpt_json_writer *writer, ckpt_text *text)
{
    *writer = (ckpt_json_writer){.text = text, .column = -1};
}

void ckpt_json_begin_object(ckpt_json_writer *writer, const char *key, ckpt_json_layout layout)
{
    begin(writer, key, layout, false);
}

void ckpt_json_begin_array(ckpt_json_writer *writer, const char *key, ckpt_json_layout layout)
{
    begin(writer, key, layout, true);
}

void ckpt_json_end(ckpt_json_writer *writer)
{
    assert(writer->depth > 0);
    const bool lines = writer->open[writer->depth].lines;
    const bool filled = writer->open[writer->depth].filled;
    const bool array = writer->open[writer->depth].array;
    const bool tight = writer->open[writer->depth].tight;
    writer->depth--;
    writer->indent -= lines;
    if (filled && lines) {
        break_line(writer, 2 * writer->indent);
    } else if (filled && !array && !tight) {
        ckpt_text_put(writer->text, " ", 1);
    }
    ckpt_text_put(writer->text, array ? "]" : "}", 1);
    if (writer->depth == 0) {
        ckpt_text_put(writer->text, "\n", 1);
    }
}

void ckpt_json_put_text(ckpt_json_writer *writer, const char *key, const char *value)
{
    separate(writer, key);
    if (value == NULL) {
        ckpt_text_put(writer->text, "null", 4);
    } else {
        ckpt_text_json(writer->text, value);
    }
}

void ckpt_json_put_or_empty(ckpt_json_writer *writer, const char *key, const char *value)
{
    ckpt_json_put_text(writer, key, value != NULL ? value : "");
}

void ckpt_json_put_given(ckpt_json_writer *writer, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        ckpt_json_put_text(writer, key, value);
    }
}

void ckpt_json_put_int(ckpt_json_writer *writer, const char *key, int64_t value)
{
    separate(writer, key);
    ckpt_text_int(writer->text, value);
}

void ckpt_json_put_ints(ckpt_json_writer *writer, const ckpt_json_int *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ckpt_json_put_int(writer, list[i].key, list[i].value);
    }
}

void ckpt_json_put_bool(ckpt_json_writer *writer, const char *key, bool value)
{
    separate(writer, key);
    ckpt_text_put(writer->text, value ? "true" : "false", value ? 4 : 5);
}

void ckpt_json_put_null(ckpt_json_writer *writer, const char *key)
{
    ckpt_json_put_text(writer, key, NULL);
}

void ckpt_json_put_real(ckpt_json_writer *writer, const char *key, double value)
{
    separate(writer, key);
    ckpt_text_real(writer->text, value);
}

void ckpt_json_put_fixed(ckpt_json_writer *writer, const char *key, double value, int decimals)
{
    char number[CKPT_REAL_TEXT];
    separate(writer, key);
    ckpt_text_add(writer->text, "%s", ckpt_real_fixed(value, decimals, number));
}

void ckpt_json_put_texts(ckpt_json_writer *writer, const char *key, const char *const *list, int count)
{
    ckpt_json_begin_array(writer, key, CKPT_JSON_LINE);
    for (int i = 0; i < count; i++) {
        ckpt_json_put_text(writer, NULL, list[i]);
    }
    ckpt_json_end(writer);
}

void ckpt_json_put_int_list(ckpt_json_writer *writer, const char *key, const int64_t *list, int count)
{
    ckpt_json_begin_array(writer, key, CKPT_JSON_LINE);
    for (int i = 0; i < count; i++) {
        ckpt_json_put_int(writer, NULL, list[i]);
    }
    ckpt_json_end(writer);
}

void ckpt_json_break(ckpt_json_writer *writer, int column)
{
    writer->column = column;
}

void ckpt_json_join(ckpt_json_writer *writer)
{
    writer->joined = true;
}

void ckpt_json_put_here(ckpt_json_writer *writer, const char *key)
{
    separate(writer, key);
}
