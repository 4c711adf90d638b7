/* A growing text, for everything that is written: JSON, SVG, tables.
 *
 * A failed append is remembered and reported once, by ckpt_text_end, so that writers read as a list of lines. */
#ifndef CKPT_CORE_BASE_TEXT_H
#define CKPT_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef struct ckpt_text {
    char *bytes; /* terminated; NULL while empty */
    size_t length, room;
    bool failed; /* an append found no memory, or its drain took nothing */
    bool (*drain)(void *to, const char *bytes, size_t length); /* NULL: all stays here; else it takes the bytes, */
    void *to; /* now and then, and what stays is the end that it has not taken: core/base/file.h makes such texts */
} ckpt_text;

void ckpt_text_init(ckpt_text *text);
void ckpt_text_fini(ckpt_text *text);
void ckpt_text_add(ckpt_text *text, const char *format, ...) CKPT_PRINTF(2, 3);
void ckpt_text_put(ckpt_text *text, const char *bytes, size_t length);
void ckpt_text_int(ckpt_text *text, int64_t value);
void ckpt_text_flush(ckpt_text *text); /* what is left goes into the drain, if there is one */

/* Bytes of the UTF-8 character at `at`; 0: there is none. Source: RFC 3629, section 4. */
size_t ckpt_text_utf8(const char *at);

/* Makes one line for a terminal of it, in place: blanks for control characters, ? for bytes that are no UTF-8, also where a
 * character was cut. */
void ckpt_text_flatten(char *line);

/* `string` as a JSON string, quotes included, with ? for bytes that are no UTF-8 (a file's name may have any); or with
 * & < > " ' escaped for XML. */
void ckpt_text_json(ckpt_text *text, const char *string);
void ckpt_text_xml(ckpt_text *text, const char *string);

/* Numbers have a point in any locale. A finite number as printf's %.*f or %.*g writes it; `text` has CKPT_REAL_TEXT
 * bytes and is given back. */
enum { CKPT_REAL_TEXT = 352 };
const char *ckpt_real_fixed(double value, int decimals, char *text);
const char *ckpt_real_general(double value, int digits, char *text);

/* strtod, with a point in any locale: `end` is set behind the number, and to `text` where there is none, or no memory for
 * one of more than 60 characters. */
double ckpt_real_parse(const char *text, const char **end);

/* The shortest decimal that reads back as the same double; finite. */
void ckpt_text_real(ckpt_text *text, double value);

/* CKPT_NO_MEMORY when an append failed. */
CKPT_MUST_USE ckpt_code ckpt_text_end(const ckpt_text *text, ckpt_err *err);

#endif
