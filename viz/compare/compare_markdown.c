/* GitHub-flavoured Markdown: what a pull request shows. Names from files are code spans, so that none of their letters
 * is a command, a link, or the mention of a person. */
#include <string.h>

#include "viz/compare/compare_tables.h"
#include "viz/draw/draw.h"

enum { NAME_BYTES = 400 };

/* Text outside code: every letter that could be Markdown or HTML stands behind a backslash or as an entity. */
static void put_plain(ckpt_text *text, const char *string)
{
    for (int length = 0; *string != '\0'; string += length) {
        length = ckpt_utf8_length(string);
        if (length == 0) {
            ckpt_text_add(text, " ");
            length = 1;
        } else if (*string == '<' || *string == '>' || *string == '&' || *string == '@') {
            ckpt_text_add(text, "&#%d;", *string);
        } else {
            ckpt_text_add(text, "%s%.*s", strchr("\\`*_{}[]|~$", *string) != NULL ? "\\" : "", length, string);
        }
    }
}

/* The longest run of backticks decides the fence; a bar would end the cell even inside code. */
static void put_code(ckpt_text *text, const char *string)
{
    int run = 0, longest = 0, bytes = 0;
    for (const char *c = string; *c != '\0'; c++) {
        run = *c == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    if (*string == '\0') {
        return;
    }
    longest = longest < NAME_BYTES ? longest : NAME_BYTES;
    const char *const space = longest > 0 ? " " : "";
    for (int i = 0; i <= longest; i++) {
        ckpt_text_add(text, "`");
    }
    ckpt_text_add(text, "%s", space);
    for (int length = 0; *string != '\0' && bytes < NAME_BYTES; string += length, bytes += length) {
        length = ckpt_utf8_length(string);
        if (length == 0) {
            ckpt_text_add(text, " ");
            length = 1;
        } else {
            ckpt_text_add(text, "%s%.*s", *string == '|' ? "\\" : "", length, string);
        }
    }
    ckpt_text_add(text, "%s%s", *string != '\0' ? "…" : "", space);
    for (int i = 0; i <= longest; i++) {
        ckpt_text_add(text, "`");
    }
}

static void put_row(const ckpt_table *table, const ckpt_table_row *row, ckpt_text *text)
{
    const bool strong = row->tone == CKPT_CHANGE_WORSE;
    ckpt_text_add(text, "|");
    for (int c = 0; c < table->columns; c++) {
        if ((table->empty >> c & 1) != 0) {
            continue;
        }
        ckpt_text_add(text, " ");
        if ((table->names >> c & 1) != 0) {
            put_code(text, row->cell[c]);
        } else if (row->cell[c][0] != '\0') {
            ckpt_text_add(text, "%s", strong ? "**" : "");
            put_plain(text, row->cell[c]);
            ckpt_text_add(text, "%s", strong ? "**" : "");
        }
        ckpt_text_add(text, " |");
    }
    ckpt_text_add(text, "\n");
}

static void put_table(const ckpt_table *table, bool folded, size_t end, ckpt_text *text)
{
    if (end > 0 && text->length >= end) {
        ckpt_text_add(text, "%s: %d, not shown here\n\n", table->title, table->row_count);
        return;
    }
    if (folded) {
        ckpt_text_add(text, "<details><summary>");
        put_plain(text, table->title);
        ckpt_text_add(text, ": %d</summary>\n\n|", table->row_count);
    } else {
        ckpt_text_add(text, "**%s**\n\n|", table->title);
    }
    for (int c = 0; c < table->columns; c++) {
        if ((table->empty >> c & 1) == 0) {
            ckpt_text_add(text, " ");
            put_plain(text, table->header[c]);
            ckpt_text_add(text, " |");
        }
    }
    ckpt_text_add(text, "\n|");
    for (int c = 0; c < table->columns; c++) {
        if ((table->empty >> c & 1) == 0) {
            ckpt_text_add(text, (table->numbers >> c & 1) != 0 ? "---:|" : "---|");
        }
    }
    ckpt_text_add(text, "\n");
    int shown = 0;
    while (shown < table->row_count && (end == 0 || text->length < end)) {
        put_row(table, &table->row[shown++], text);
    }
    if (shown < table->row_count) {
        ckpt_text_add(text, "\n%d more rows are not shown here.\n", table->row_count - shown);
    }
    if (table->sums && table->row_count > 1 && shown == table->row_count) {
        put_row(table, &table->sum, text);
    }
    if (table->note[0] != '\0') {
        ckpt_text_add(text, "\n");
        put_plain(text, table->note);
        ckpt_text_add(text, "\n");
    }
    ckpt_text_add(text, folded ? "\n</details>\n\n" : "\n");
}

static void put_difference(const ckpt_compare_report *report, const ckpt_difference *d, size_t end, ckpt_arena *arena,
                           ckpt_text *text)
{
    enum { OPEN_ROWS = 12 };
    ckpt_page page;
    if (!ckpt_page_make(d, arena, &page)) {
        text->failed = true;
        return;
    }
    ckpt_text_add(text, "### %s ", ckpt_compare_kind_name(report->kind));
    put_code(text, d->base->source);
    ckpt_text_add(text, " → ");
    put_code(text, d->fresh->source);
    ckpt_text_add(text, "\n\n");
    for (int i = 0; i < d->mismatch_count; i++) {
        ckpt_text_add(text, "- %s%s: ", i > 0 ? "and" : "**not comparable**",
                      i == 0 && d->compared ? ", compared by force" : "");
        put_plain(text, d->mismatch[i].what);
        ckpt_text_add(text, ": ");
        put_code(text, d->mismatch[i].base);
        ckpt_text_add(text, " and ");
        put_code(text, d->mismatch[i].fresh);
        ckpt_text_add(text, "\n");
    }
    ckpt_text_add(text, "%s", d->mismatch_count > 0 ? "\n" : "");
    if (!d->compared) {
        return;
    }
    put_plain(text, page.verdict);
    ckpt_text_add(text, "\n\n");
    for (int i = 0; i < page.note_count; i++) {
        ckpt_text_add(text, "- ");
        put_plain(text, page.note[i]);
        ckpt_text_add(text, "%s", i + 1 < page.note_count ? "\n" : "\n\n");
    }
    for (int i = 0; i < page.table_count; i++) {
        put_table(&page.table[i], i > 0 && page.table[i].row_count > OPEN_ROWS, end, text);
    }
}

void ckpt_compare_markdown(const ckpt_compare_report *report, size_t room, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const size_t begin = text->length;
    for (int i = 0; i < report->count; i++) {
        /* What one difference may take of the room; a row and what ends a table fit into what is left beside it. */
        const size_t share = (room - room / 8) / (size_t)report->count * (size_t)(i + 1);
        put_difference(report, &report->difference[i], room > 0 ? begin + share : 0, &arena, text);
    }
    ckpt_arena_fini(&arena);
}
