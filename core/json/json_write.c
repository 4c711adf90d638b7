/* Every value is preceded by what separates it from the one before: that is all the state there is. */
#include "core/json/json_write.h"

#include <assert.h>

static void break_line(const ckpt_json_writer *w)
{
    ckpt_text_add(w->text, "\n%*s", 2 * w->depth, "");
}

/* Comma, line end, key. */
static void separate(ckpt_json_writer *w, const char *key)
{
    if (w->depth > 0) {
        const bool lines = w->open[w->depth].lines;
        const bool filled = w->open[w->depth].filled;
        const bool array = w->open[w->depth].array;
        assert(array == (key == NULL));
        w->open[w->depth].filled = true;
        if (filled) {
            ckpt_text_put(w->text, ",", 1);
        }
        if (lines) {
            break_line(w);
        } else if (filled || !array) {
            ckpt_text_put(w->text, " ", 1);
        }
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
    const bool lines = layout == CKPT_JSON_LINES && (w->depth == 0 || w->open[w->depth].lines);
    w->depth++;
    w->open[w->depth].array = array;
    w->open[w->depth].lines = lines;
    w->open[w->depth].filled = false;
}

void ckpt_json_begin(ckpt_json_writer *writer, ckpt_text *text)
{
    *writer = (ckpt_json_writer){.text = text};
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
    writer->depth--;
    if (filled && lines) {
        break_line(writer);
    } else if (filled && !array) {
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

void ckpt_json_put_int(ckpt_json_writer *writer, const char *key, int64_t value)
{
    separate(writer, key);
    ckpt_text_add(writer->text, "%lld", (long long)value);
}

void ckpt_json_put_bool(ckpt_json_writer *writer, const char *key, bool value)
{
    separate(writer, key);
    ckpt_text_add(writer->text, "%s", value ? "true" : "false");
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
    separate(writer, key);
    ckpt_text_add(writer->text, "%.*f", decimals, value);
}

void ckpt_json_put_here(ckpt_json_writer *writer, const char *key)
{
    separate(writer, key);
}
