/* What tests of the file formats share: the readers under one type, and files made from texts. */
#ifndef CKPT_TESTS_SUPPORT_CORE_H
#define CKPT_TESTS_SUPPORT_CORE_H

#include "tests/support/support_test.h"

#include "core/base/text.h"

typedef struct ckpt_test_format {
    const char *kind; /* "model": also the folder in tests/malformed and the name of the good file there */
    ckpt_code (*read)(const char *path, ckpt_arena *arena, ckpt_err *err);
    /* Read `path` and write it again; NULL: this kind is only read. */
    ckpt_code (*rewrite)(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err);
} ckpt_test_format;

extern const ckpt_test_format ckpt_test_formats[]; /* kind NULL ends it */

/* The format whose kind is the first part of "kind/..."; NULL: none. */
const ckpt_test_format *ckpt_test_format_of(const char *path);

/* Write `length` bytes to `name` in the tests' work folder and give its path (static; overwritten by the next). */
const char *ckpt_test_file(const char *name, const char *bytes, size_t length);

/* Write `text`, read it as `kind` and check the code and that the message, after its "path:", begins with
 * `wanted` (NULL: any). */
void ckpt_test_refused(const char *kind, const char *text, ckpt_code code, const char *wanted);

/* The text with the first `old` in it replaced; fails the test when there is none. 8 results at a time live. */
const char *ckpt_test_replace(const char *text, const char *old, const char *fresh);

/* The notes of an importer since the test emptied them, a line each; a function to hand to it. */
extern char ckpt_test_notes[4096];
void ckpt_test_take_note(const char *line);

/* Reading `text` as `kind` (and writing it again) with too little memory. */
void ckpt_test_starve_format(const char *kind, const char *text);

/* Write what was read, read that, write again: both texts must be equal. */
void ckpt_test_round_trip(const char *kind, const char *text);

#endif
