/* Helpers that all importers use: names from files, lines to the user, an index of numbers. */
#ifndef CKPT_IMPORTS_IMPORT_IMPL_H
#define CKPT_IMPORTS_IMPORT_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* The most bytes of a name that an importer keeps. A file holds a layer's name once, a trace repeats it in every event:
 * without this bound a megabyte of input would make gigabytes of output. */
enum { CKPT_IMPORT_NAME_MAX = 2000 };

/* How many of `length` bytes of UTF-8 to keep, at most `most`, without cutting a character in two. */
size_t ckpt_import_cut(const char *text, size_t length, size_t most);

const char *ckpt_import_shown(const char *path);     /* for messages: "-" is "standard input" */
const char *ckpt_import_base_name(const char *path); /* without folders */

static inline int ckpt_import_compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Finds values by number. Several entries may have one number: the one with the highest rank, then order, counts. */
typedef struct ckpt_import_entry {
    int64_t number, rank, order, value;
} ckpt_import_entry;

typedef struct ckpt_import_index {
    ckpt_import_entry *at; /* room for all entries, from the caller */
    int count;
} ckpt_import_index;

void ckpt_import_index_add(ckpt_import_index *index, ckpt_import_entry entry); /* not if its number is negative */
void ckpt_import_index_sort(ckpt_import_index *index); /* after the last add, before the first find */
int64_t ckpt_import_index_find(const ckpt_import_index *index, int64_t number); /* its value; -1: none. O(log count) */

/* Calls `note` (may be NULL) with one line. Control characters become blanks, because names come from the file. */
void ckpt_import_say(void (*note)(const char *line), const char *format, ...) CKPT_PRINTF(2, 3);

#endif
