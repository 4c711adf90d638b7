/* Writing JSON: commas, quotes, escapes, line ends and indentation are the writer's. Everything of ours that writes JSON
 * writes it through this. */
#ifndef CKPT_CORE_JSON_JSON_WRITE_H
#define CKPT_CORE_JSON_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/text.h"

enum { CKPT_JSON_DEPTH_MAX = 31 };

/* Where the members of an object, or the elements of an array, stand. Inside CKPT_JSON_LINE and _TIGHT everything is
 * on that line. */
typedef enum ckpt_json_layout {
    CKPT_JSON_LINES, /* each on a line of its own, two columns further in */
    CKPT_JSON_LINE,  /* one after another: { "a": 1, "b": [1, 2] } */
    CKPT_JSON_TIGHT, /* CKPT_JSON_LINE without the blanks: {"a": 1, "b": [1, 2]} */
    CKPT_JSON_ROWS,  /* CKPT_JSON_LINES, inside the other two as well */
} ckpt_json_layout;

typedef struct ckpt_json_writer {
    ckpt_text *text; /* borrowed; remembers what failed */
    int depth;       /* objects and arrays that are open */
    int indent;      /* how many of them have a line for each entry */
    int column;      /* indentation asked for by ckpt_json_break; -1: none */
    bool joined;     /* ckpt_json_join was called */
    struct {
        bool array, lines, tight, filled;
    } open[CKPT_JSON_DEPTH_MAX + 1];
} ckpt_json_writer;

/* Start a document at the end of `text`. Its one value follows, with the key NULL. */
void ckpt_json_begin(ckpt_json_writer *writer, ckpt_text *text);

/* In each of these `key` is the member's name inside an object and NULL inside an array. */
void ckpt_json_begin_object(ckpt_json_writer *writer, const char *key, ckpt_json_layout layout);
void ckpt_json_begin_array(ckpt_json_writer *writer, const char *key, ckpt_json_layout layout);
void ckpt_json_end(ckpt_json_writer *writer); /* ends the innermost one; a line end follows the outermost */

void ckpt_json_put_text(ckpt_json_writer *writer, const char *key, const char *value);     /* NULL: null */
void ckpt_json_put_or_empty(ckpt_json_writer *writer, const char *key, const char *value); /* NULL: "" */
void ckpt_json_put_given(ckpt_json_writer *writer, const char *key, const char *value);    /* NULL or "": nothing */
void ckpt_json_put_int(ckpt_json_writer *writer, const char *key, int64_t value);
/* CKPT_JSON_INTS(w, {"key", value}, {"key", value}): several of them, in an object. */
typedef struct ckpt_json_int {
    const char *key;
    int64_t value;
} ckpt_json_int;
#define CKPT_JSON_INTS(writer, ...)                                                                                    \
    ckpt_json_put_ints(writer, (const ckpt_json_int[]){__VA_ARGS__},                                                   \
                       sizeof((const ckpt_json_int[]){__VA_ARGS__}) / sizeof(ckpt_json_int))
void ckpt_json_put_ints(ckpt_json_writer *writer, const ckpt_json_int *list, size_t count);
void ckpt_json_put_bool(ckpt_json_writer *writer, const char *key, bool value);
void ckpt_json_put_null(ckpt_json_writer *writer, const char *key);
/* The shortest decimal that reads back as the same double, or with so many decimals; finite. */
void ckpt_json_put_real(ckpt_json_writer *writer, const char *key, double value);
void ckpt_json_put_fixed(ckpt_json_writer *writer, const char *key, double value, int decimals);

/* Arrays on one line. */
void ckpt_json_put_texts(ckpt_json_writer *writer, const char *key, const char *const *list, int count);
void ckpt_json_put_int_list(ckpt_json_writer *writer, const char *key, const int64_t *list, int count);

/* Overrides the layout for the next value: break puts it on a new line, indented by `column`; join keeps it, among CKPT_JSON_LINES, on the line of the value before. */
void ckpt_json_break(ckpt_json_writer *writer, int column);
void ckpt_json_join(ckpt_json_writer *writer);

/* Writes what precedes a value. The caller then appends exactly one JSON value to `text`. */
void ckpt_json_put_here(ckpt_json_writer *writer, const char *key);

#endif
