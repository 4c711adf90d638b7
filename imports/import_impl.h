/* What the importers share. */
#ifndef CKPT_IMPORTS_IMPORT_IMPL_H
#define CKPT_IMPORTS_IMPORT_IMPL_H

#include <stddef.h>

#include "core/base/status.h"

/* Bytes of a name that are kept. A file says a layer's name once and a trace says it with every event: without a bound
 * a megabyte of input makes gigabytes of output. */
enum { CKPT_IMPORT_NAME_MAX = 2000 };

/* Of `length` bytes, how many are kept when at most `most` may be: no character is cut in two. */
size_t ckpt_import_cut(const char *text, size_t length, size_t most);

const char *ckpt_import_shown(const char *path);     /* "-" is "standard input" */
const char *ckpt_import_base_name(const char *path); /* without folders */

/* One line to whoever listens (NULL: nobody), with a blank for each control character: names are the file's. */
void ckpt_import_say(void (*note)(const char *line), const char *format, ...) CKPT_PRINTF(2, 3);

#endif
