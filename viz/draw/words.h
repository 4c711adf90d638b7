/* Names from files may hold any bytes; these make text of them that no reader takes for anything else. */
#ifndef CKPT_VIZ_DRAW_WORDS_H
#define CKPT_VIZ_DRAW_WORDS_H

#include "core/base/text.h"

/* For XML and HTML: & < > and quotes escaped, line ends as references, what is no text (XML has no way to write
 * it) as U+FFFD. */
void ckpt_words_xml(ckpt_text *text, const char *string);

/* For CSV (RFC 4180): quoted, what is no text as U+FFFD. A spreadsheet takes what begins with one of =+-@ for a
 * formula, so that gets an apostrophe before it. */
void ckpt_words_csv(ckpt_text *text, const char *string);

/* As base64 (RFC 4648, section 4). */
void ckpt_words_base64(ckpt_text *text, const void *bytes, size_t length);

#endif
