/* What the importers share: lines to the user, and names that are the file's. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "imports/import_impl.h"

size_t ckpt_import_cut(const char *text, size_t length, size_t most)
{
    size_t kept = length < most ? length : most;
    while (kept > 0 && kept < length && ((unsigned char)text[kept] & 0xc0) == 0x80) {
        kept--;
    }
    return kept;
}

const char *ckpt_import_shown(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

const char *ckpt_import_base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void ckpt_import_say(void (*note)(const char *line), const char *format, ...)
{
    char line[512];
    va_list args;
    if (note == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
    }
    note(line);
}
