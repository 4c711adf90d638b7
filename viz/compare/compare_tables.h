/* A comparison as tables of words, for the forms that are tables: Markdown and HTML. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_TABLES_H
#define CKPT_VIZ_COMPARE_COMPARE_TABLES_H

#include "viz/compare/compare.h"

enum { CKPT_TABLE_COLUMNS = 6, CKPT_TABLES_MAX = 5 };

typedef struct ckpt_table_row {
    const char *cell[CKPT_TABLE_COLUMNS];
    ckpt_compare_change tone; /* CKPT_CHANGE_WORSE and _BETTER stand out */
} ckpt_table_row;

typedef struct ckpt_table {
    const char *title;
    const char *header[CKPT_TABLE_COLUMNS];
    int columns;
    unsigned numbers;          /* bit 1 << column: aligned right */
    unsigned names;            /* bit 1 << column: from a file, shown letter by letter */
    const ckpt_table_row *row; /* a cell may have line ends */
    int row_count;
} ckpt_table;

/* Metrics, limits, decisions, contributors, rows: those that there are. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_compare_tables(const ckpt_difference *difference, ckpt_arena *out,
                                            ckpt_table table[CKPT_TABLES_MAX], int *count, ckpt_err *err);

#endif
