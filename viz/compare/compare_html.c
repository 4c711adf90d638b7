/* A comparison as one page: tables, no script. What changed most stands first, long tables are folded. */
#include <stdio.h>
#include <string.h>

#include "viz/compare/compare_tables.h"
#include "viz/draw/words.h"
#include "viz/html/html_hash.h"

static const char style[] =
    ":root{color-scheme:light dark;--line:#8886;--worse:#b34700;--better:#00734f}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--worse:#ff9d5c;--better:#4fd6a8}}\n"
    "body{font:15px/1.5 'DejaVu Sans',Verdana,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}\n"
    "h1{font-size:1.5em}h2{font-size:1.2em;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:.5em 0 1.5em}\n"
    "th,td{padding:.25em .7em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\n"
    "td{white-space:pre-line}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "\ncode{overflow-wrap:anywhere}\n"
    "@media(max-width:600px){body{margin:1em auto;padding:0 .5em}table{font-size:12px}th,td{padding:.2em .3em}\n"
    "td.number,th.number{white-space:normal}.many{font-size:11px}.many td,.many th{padding:.2em}td "
    "code{overflow-wrap:break-word}\n"
    ".long tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--line)}.long td,.long th{border:0;"
    "box-sizing:border-box;flex:1 0 4.2em}"
    "\n.long :first-child{flex-basis:7em}.long :last-child{flex-basis:100%}}\n"
    ".worse{color:var(--worse);font-weight:bold}.better{color:var(--better)}\n"
    "summary{cursor:pointer;font-weight:bold}p.verdict{font-size:1.1em}\n";

/* <tag>words</tag>; `class` may be "", `code` shows the words letter by letter. */
static void put(ckpt_text *text, const char *tag, const char *class, bool code, const char *words)
{
    ckpt_text_add(text, class[0] != '\0' ? "<%s class=\"%s\">" : "<%s>", tag, class);
    code = code && words[0] != '\0';
    ckpt_text_add(text, "%s", code ? "<code>" : "");
    ckpt_words_xml(text, words);
    ckpt_text_add(text, "%s</%s>", code ? "</code>" : "", tag);
}

/* A number and its unit stay on one line; a narrow page breaks between others. */
static void put_number(ckpt_text *text, const char *tag, const char *class, const char *words)
{
    ckpt_text_add(text, "<%s class=\"%s\">", tag, class);
    for (size_t length; *words != '\0'; words += length) {
        char piece[64];
        length = strcspn(words, " ");
        snprintf(piece, sizeof piece, "%.*s", (int)length, words);
        ckpt_words_xml(text, piece);
        if (words[length] == ' ') {
            const bool digit = length > 0 && words[length - 1] >= '0' && words[length - 1] <= '9';
            length++;
            ckpt_text_add(text, digit && words[length] != '(' ? "&#160;" : " ");
        }
    }
    ckpt_text_add(text, "</%s>", tag);
}

static void put_row(const ckpt_table *table, const char *tag, const char *const *cell, ckpt_compare_change tone,
                    ckpt_text *text)
{
    static const char *const classes[2][3] = {{"", "worse", "better"}, {"number", "number worse", "number better"}};
    const int toned = tone == CKPT_CHANGE_WORSE ? 1 : tone == CKPT_CHANGE_BETTER ? 2 : 0;
    ckpt_text_add(text, "<tr>");
    for (int c = 0; c < table->columns; c++) {
        const bool name = (table->names >> c & 1) != 0;
        const char *const class = classes[table->numbers >> c & 1][name ? 0 : toned];
        if ((table->empty >> c & 1) != 0) {
            continue;
        }
        if ((table->numbers >> c & 1) != 0) {
            put_number(text, tag, class, cell[c]);
        } else {
            put(text, tag, class, name && tag[1] == 'd', cell[c]);
        }
    }
    ckpt_text_add(text, "</tr>\n");
}

/* For a narrow page. "long": words behind many columns go below them; "many": as many, but numbers behind. */
static const char *class_of(const ckpt_table *table)
{
    enum { MANY = 6 };
    int shown = 0, last = 0;
    for (int c = 0; c < table->columns; c++) {
        const bool empty = (table->empty >> c & 1) != 0;
        shown += !empty;
        last = empty ? last : c;
    }
    return shown < MANY ? "" : (table->numbers >> last & 1) != 0 ? " class=\"many\"" : " class=\"long\"";
}

static void put_table(const ckpt_table *table, bool open, ckpt_text *text)
{
    ckpt_text_add(text, "<details%s><summary>", open ? " open" : "");
    ckpt_words_xml(text, table->title);
    ckpt_text_add(text, table->whole ? "</summary>\n" : " (%d)</summary>\n", table->row_count);
    ckpt_text_add(text, "<div class=\"wide\"><table%s>\n", class_of(table));
    put_row(table, "th", table->header, CKPT_CHANGE_SAME, text);
    for (int r = 0; r < table->row_count; r++) {
        put_row(table, "td", table->row[r].cell, table->row[r].tone, text);
    }
    if (table->sums && table->row_count > 1) {
        put_row(table, "th", table->sum.cell, table->sum.tone, text);
    }
    ckpt_text_add(text, "</table></div>");
    if (table->note[0] != '\0') {
        put(text, "p", "", false, table->note);
    }
    ckpt_text_add(text, "</details>\n");
}

static void put_difference(const ckpt_difference *d, ckpt_arena *arena, ckpt_text *text)
{
    enum { OPEN_ROWS = 30 };
    ckpt_page page;
    if (!ckpt_page_make(d, arena, &page)) {
        text->failed = true;
        return;
    }
    ckpt_text_add(text, "<h2>");
    put(text, "code", "", false, d->base->source);
    ckpt_text_add(text, " → ");
    put(text, "code", "", false, d->fresh->source);
    ckpt_text_add(text, "</h2>\n");
    if (d->mismatch_count > 0) {
        ckpt_text_add(text, "<p class=\"worse\">not comparable%s</p>\n<ul>\n",
                      d->compared ? ", compared by force" : "");
        for (int i = 0; i < d->mismatch_count; i++) {
            ckpt_text_add(text, "<li>");
            put(text, "span", "", false, d->mismatch[i].what);
            ckpt_text_add(text, ": ");
            put(text, "code", "", false, d->mismatch[i].base);
            ckpt_text_add(text, " and ");
            put(text, "code", "", false, d->mismatch[i].fresh);
            ckpt_text_add(text, "</li>\n");
        }
        ckpt_text_add(text, "</ul>\n");
    }
    if (!d->compared) {
        return;
    }
    put(text, "p", d->exceeded ? "verdict worse" : "verdict", false, page.verdict);
    for (int i = 0; i < page.note_count; i++) {
        put(text, "p", "", false, page.note[i]);
    }
    for (int i = 0; i < page.table_count; i++) {
        put_table(&page.table[i], i == 0 || page.table[i].row_count <= OPEN_ROWS, text);
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
