/* Helpers that all importers use. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
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
    ckpt_text_flatten(line);
    note(line);
}

void ckpt_import_index_add(ckpt_import_index *index, ckpt_import_entry entry)
{
    if (entry.number >= 0) {
        index->at[index->count++] = entry;
    }
}

static int by_number(const void *a, const void *b)
{
    const ckpt_import_entry *const x = a, *const y = b;
    const int number = ckpt_import_compare(x->number, y->number);
    const int rank = number != 0 ? number : ckpt_import_compare(x->rank, y->rank);
    return rank != 0 ? rank : ckpt_import_compare(x->order, y->order);
}

void ckpt_import_index_sort(ckpt_import_index *index)
{
    if (index->count > 0) {
        qsort(index->at, (size_t)index->count, sizeof *index->at, by_number);
    }
}

int64_t ckpt_import_index_find(const ckpt_import_index *index, int64_t number)
{
    int low = 0;
    int high = index->count;
    while (low < high) { /* the first beyond the number */
        const int middle = low + (high - low) / 2;
        if (index->at[middle].number <= number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && index->at[low - 1].number == number ? index->at[low - 1].value : -1;
}
