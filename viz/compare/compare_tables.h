/* A comparison as words and tables of words, for the forms that people read: text, Markdown and HTML. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_TABLES_H
#define CKPT_VIZ_COMPARE_COMPARE_TABLES_H

#include "viz/compare/compare_impl.h"

enum { CKPT_TABLE_COLUMNS = 7, CKPT_TABLES_MAX = 7, CKPT_TABLE_SHOWN = 10 };

typedef struct ckpt_table_row {
    const char *cell[CKPT_TABLE_COLUMNS];
    ckpt_compare_change tone; /* CKPT_CHANGE_WORSE and _BETTER stand out */
} ckpt_table_row;

typedef struct ckpt_table {
    const char *title;
    const char *header[CKPT_TABLE_COLUMNS];
    int columns;
    unsigned numbers; /* bit 1 << column: aligned right */
    unsigned names;   /* bit 1 << column: from a file, shown letter by letter */
    unsigned empty;   /* bit 1 << column: nothing stands there, and no form shows it */
    bool whole; /* sentences of ours: none is cut short, and a row with an empty first cell goes with the one above */
    bool cut;   /* where room is short, the first rows that differ will do */
    ckpt_table_row *row;
    int row_count;
    int telling;         /* rows that differ */
    ckpt_table_row rest; /* of a table that adds up, and is cut after CKPT_TABLE_SHOWN rows: the others together */
    ckpt_table_row sum;  /* and all of them */
    bool sums;
    const char *note; /* a line on all of it, or "" */
} ckpt_table;

/* What a form shows of one difference, in this order. */
typedef struct ckpt_page {
    const ckpt_difference *difference;
    const char *verdict;
    const char *note[CKPT_COMPARE_NOTES + 1]; /* and the first difference of two traces */
    int note_count;
    ckpt_table
        table[CKPT_TABLES_MAX]; /* those that there are: metrics, settings, limits, layers, ways, contributors, rows */
    int table_count;
} ckpt_page;

/* False without memory. */
bool ckpt_page_make(const ckpt_difference *difference, ckpt_arena *out, ckpt_page *page);

#endif
