/* A comparison as one page: tables, no script. What changed most stands first, long tables are folded. */
#include <string.h>

#include "viz/compare/compare_tables.h"
#include "viz/compare/compare_write.h"
#include "viz/draw/words.h"
#include "viz/html/html_hash.h"

static const char style[] =
    ":root{color-scheme:light dark;--line:#8886;--worse:#b34700;--better:#00734f}\n"
    "@media(prefers-color-scheme:dark){:root{--worse:#ff9d5c;--better:#4fd6a8}}\n"
    "body{font:15px/1.5 'DejaVu Sans',Verdana,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}\n"
    "h1{font-size:1.5em}h2{font-size:1.2em;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:.5em 0 1.5em}\n"
    "th,td{padding:.25em .7em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\n"
    "td{white-space:pre-line}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "\n"
    "code{overflow-wrap:anywhere}.worse{color:var(--worse);font-weight:bold}.better{color:var(--better)}\n"
    "summary{cursor:pointer;font-weight:bold}p.verdict{font-size:1.1em}\n";

typedef enum cell_kind { WORDS, NUMBER, NAME } cell_kind;

static void put_cell(cell_kind kind, const char *tag, const char *tone, const char *words, ckpt_text *text)
{
    const bool number = kind == NUMBER, toned = tone[0] != '\0' && kind != NAME;
    const bool code = kind == NAME && words[0] != '\0';
    ckpt_text_add(text, "<%s", tag);
    if (number || toned) {
        ckpt_text_add(text, " class=\"%s%s%s\"", number ? "number" : "", number && toned ? " " : "", toned ? tone : "");
    }
    ckpt_text_add(text, code ? "><code>" : ">");
    ckpt_words_xml(text, words);
    ckpt_text_add(text, "%s</%s>", code ? "</code>" : "", tag);
}

static cell_kind kind_of(const ckpt_table *table, int column)
{
    return (table->numbers >> column & 1) != 0 ? NUMBER : (table->names >> column & 1) != 0 ? NAME : WORDS;
}

static void put_table(const ckpt_table *table, bool open, ckpt_text *text)
{
    ckpt_text_add(text, "<details%s><summary>", open ? " open" : "");
    ckpt_words_xml(text, table->title);
    ckpt_text_add(text, " (%d)</summary>\n<div class=\"wide\"><table>\n<tr>", table->row_count);
    for (int c = 0; c < table->columns; c++) {
        put_cell(kind_of(table, c) == NUMBER ? NUMBER : WORDS, "th", "", table->header[c], text);
    }
    ckpt_text_add(text, "</tr>\n");
    for (int r = 0; r < table->row_count; r++) {
        const ckpt_table_row *const row = &table->row[r];
        const char *const tone = row->tone == CKPT_CHANGE_WORSE    ? "worse"
                                 : row->tone == CKPT_CHANGE_BETTER ? "better"
                                                                   : "";
        ckpt_text_add(text, "<tr>");
        for (int c = 0; c < table->columns; c++) {
            put_cell(kind_of(table, c), "td", tone, row->cell[c], text);
        }
        ckpt_text_add(text, "</tr>\n");
    }
    ckpt_text_add(text, "</table></div></details>\n");
}

static void put_difference(const ckpt_difference *d, ckpt_arena *arena, ckpt_text *text)
{
    ckpt_table table[CKPT_TABLES_MAX];
    int count = 0;
    ckpt_text_add(text, "<h2><code>");
    ckpt_words_xml(text, d->base->source);
    ckpt_text_add(text, "</code> → <code>");
    ckpt_words_xml(text, d->fresh->source);
    ckpt_text_add(text, "</code></h2>\n");
    if (d->mismatch_count > 0) {
        ckpt_text_add(text, "<p class=\"worse\">not comparable%s</p>\n<ul>\n",
                      d->compared ? ", compared by force" : "");
        for (int i = 0; i < d->mismatch_count; i++) {
            ckpt_text_add(text, "<li>");
            ckpt_words_xml(text, d->mismatch[i].what);
            ckpt_text_add(text, ": <code>");
            ckpt_words_xml(text, d->mismatch[i].base);
            ckpt_text_add(text, "</code> and <code>");
            ckpt_words_xml(text, d->mismatch[i].fresh);
            ckpt_text_add(text, "</code></li>\n");
        }
        ckpt_text_add(text, "</ul>\n");
    }
    if (!d->compared) {
        return;
    }
    const char *const verdict = ckpt_compare_verdict(d, arena);
    if (verdict == NULL || ckpt_compare_tables(d, arena, table, &count, NULL) != CKPT_OK) {
        text->failed = true;
        return;
    }
    ckpt_text_add(text, "<p class=\"verdict%s\">", d->exceeded ? " worse" : "");
    ckpt_words_xml(text, verdict);
    ckpt_text_add(text, "</p>\n");
    for (int i = 0; i < d->note_count; i++) {
        ckpt_text_add(text, "<p>");
        ckpt_words_xml(text, d->note[i]);
        ckpt_text_add(text, "</p>\n");
    }
    if (d->first_difference[0] != '\0') {
        ckpt_text_add(text, "<p>");
        ckpt_words_xml(text, d->first_difference);
        ckpt_text_add(text, "</p>\n");
    }
    enum { OPEN_ROWS = 30 };
    for (int i = 0; i < count; i++) {
        put_table(&table[i], i == 0 || table[i].row_count <= OPEN_ROWS, text);
    }
}

void ckpt_compare_html(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_text_add(text, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src ");
    ckpt_html_hash(text, style, sizeof style - 1);
    ckpt_text_add(text,
                  "; base-uri 'none'; form-action 'none'\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<title>ckpt-compare</title>\n<style>%s</style>\n</head>\n<body>\n<h1>ckpt-compare: %s</h1>\n",
                  style, ckpt_compare_kind_name(report->kind));
    for (int i = 0; i < report->count; i++) {
        put_difference(&report->difference[i], &arena, text);
    }
    ckpt_text_add(text, "</body>\n</html>\n");
    ckpt_arena_fini(&arena);
}
