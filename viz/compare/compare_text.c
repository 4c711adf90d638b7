/* A comparison for people: its tables with aligned columns, long ones cut. */
#include <string.h>

#include "viz/compare/compare_tables.h"

enum { LONGEST = 160 };

typedef struct writer {
    ckpt_text *text;
    ckpt_arena arena; /* for words that do not outlive a difference */
    bool color;
} writer;

static int letters_of(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return count;
}

/* Red and green for what is worse and better, faint for what is not. */
static void tint(const writer *w, ckpt_compare_change change, bool on)
{
    const char *const code = change == CKPT_CHANGE_WORSE    ? "\033[31m"
                             : change == CKPT_CHANGE_BETTER ? "\033[32m"
                                                            : "\033[2m";
    if (w->color && change != CKPT_CHANGE_OTHER && change != CKPT_CHANGE_MISSING) {
        ckpt_text_add(w->text, "%s", on ? code : "\033[0m");
    }
}

/* Names of files and layers may hold anything: "?" for what is no letter. */
static const char *clip(writer *w, const char *words, int letters)
{
    const char *const text = ckpt_compare_clip(&w->arena, words, letters);
    w->text->failed = w->text->failed || text == NULL;
    return text != NULL ? text : "";
}

static bool differs(const ckpt_table_row *row)
{
    return row->tone != CKPT_CHANGE_SAME && row->tone != CKPT_CHANGE_NOISE;
}

static void take_line(writer *w, const ckpt_table *table, const ckpt_table_row *row, ckpt_table_row *line)
{
    *line = *row;
    for (int c = 0; c < table->columns && !table->whole; c++) {
        const bool name = (table->names >> c & 1) != 0;
        line->cell[c] = clip(w, line->cell[c], name ? CKPT_COMPARE_LETTERS : LONGEST);
    }
}

/* The lines of a table, the head first. Of one that may be cut, the first few that differ; of one that adds up the others
 * in one, and the sum. Gives how many. */
static int choose_lines(writer *w, const ckpt_table *table, ckpt_table_row *line)
{
    int count = 1;
    memcpy(line[0].cell, table->header, sizeof table->header);
    line[0].tone = CKPT_CHANGE_OTHER;
    for (int r = 0; r < table->row_count; r++) {
        if (!table->cut || (differs(&table->row[r]) && count <= CKPT_TABLE_SHOWN)) {
            take_line(w, table, &table->row[r], &line[count++]);
        }
    }
    if (table->sums && table->row_count > CKPT_TABLE_SHOWN) {
        take_line(w, table, &table->rest, &line[count++]);
    }
    if (table->sums && table->row_count > 1) {
        take_line(w, table, &table->sum, &line[count++]);
    }
    return count;
}

/* Cells that end a line are not filled up. */
static void trim(ckpt_text *text)
{
    while (text->length > 0 && text->bytes[text->length - 1] == ' ') {
        text->bytes[--text->length] = '\0';
    }
}

static void put_cell(const writer *w, const char *cell, int width, bool right)
{
    const int pad = width - letters_of(cell);
    ckpt_text_add(w->text, "  %*s", right && pad > 0 ? pad : 0, "");
    ckpt_text_add(w->text, "%s%*s", cell, !right && pad > 0 ? pad : 0, "");
}

static void put_lines(const writer *w, const ckpt_table *table, const ckpt_table_row *line, int count)
{
    int width[CKPT_TABLE_COLUMNS] = {0};
    for (int c = 0; c < table->columns; c++) {
        for (int i = 1; i < count; i++) {
            const int own = letters_of(line[i].cell[c]);
            width[c] = own > width[c] ? own : width[c];
        }
        const int head = letters_of(table->header[c]);
        width[c] = (table->empty >> c & 1) != 0 ? 0 : head > width[c] ? head : width[c];
    }
    for (int i = 0; i < count; i++) {
        for (int c = 0; c < table->columns; c++) {
            if (width[c] > 0) {
                put_cell(w, line[i].cell[c], width[c], (table->numbers >> c & 1) != 0);
            }
            if (c == 0) {
                tint(w, line[i].tone, true);
            }
        }
        trim(w->text);
        tint(w, line[i].tone, false);
        ckpt_text_add(w->text, "\n");
    }
}

static void put_table(writer *w, const ckpt_table *table, bool first)
{
    ckpt_table_row *const line = CKPT_NEW(&w->arena, ckpt_table_row, table->row_count + 3);
    w->text->failed = w->text->failed || line == NULL;
    if (line == NULL || (table->cut && table->telling == 0 && table->note[0] == '\0')) {
        return;
    }
    if (!first) {
        ckpt_text_add(w->text, w->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", table->title);
    }
    const int count = choose_lines(w, table, line);
    put_lines(w, table, line, count);
    const int left = table->telling - (count - 1), same = table->row_count - table->telling;
    if (table->cut && !table->sums && left > 0) {
        ckpt_text_add(w->text, "  and %d more; --json has all\n", left);
    }
    if (table->cut && same > 0) {
        ckpt_text_add(w->text, "  %d %sthat do not differ\n", same, table->telling > 0 ? "more " : "");
    }
    if (table->note[0] != '\0') {
        ckpt_text_add(w->text, "  %s\n", table->note);
    }
}

static void put_difference(writer *w, const ckpt_compare_report *report, const ckpt_difference *d)
{
    ckpt_page page;
    if (!ckpt_page_make(d, &w->arena, &page)) {
        w->text->failed = true;
        return;
    }
    ckpt_text_add(w->text, w->color ? "\033[1m%s %s against %s\033[0m\n" : "%s %s against %s\n",
                  ckpt_compare_kind_name(report->kind), clip(w, d->fresh->source, CKPT_COMPARE_LETTERS),
                  clip(w, d->base->source, CKPT_COMPARE_LETTERS));
    for (int i = 0; i < d->mismatch_count; i++) {
        const ckpt_compare_mismatch *const m = &d->mismatch[i];
        ckpt_text_add(w->text, "  %s %s: %s, not %s%s\n", ckpt_compare_another(m->what), m->what, m->fresh, m->base,
                      d->compared ? "; compared all the same (--force)" : "");
    }
    for (int i = 0; i < page.table_count; i++) {
        put_table(w, &page.table[i], i == 0);
        for (int k = 0; k < page.note_count && i == 0; k++) {
            ckpt_text_add(w->text, "  note: %s\n", page.note[k]);
        }
    }
    const ckpt_compare_change tone = d->exceeded || d->worse > 0 || d->lost || !d->compared ? CKPT_CHANGE_WORSE
                                     : d->better > 0                                        ? CKPT_CHANGE_BETTER
                                                                                            : CKPT_CHANGE_OTHER;
    ckpt_text_add(w->text, d->compared ? "\n" : "");
    tint(w, tone, true);
    ckpt_text_add(w->text, "%s", page.verdict);
    tint(w, tone, false);
    ckpt_text_add(w->text, "\n");
}

void ckpt_compare_text(const ckpt_compare_report *report, bool color, ckpt_text *text)
{
    writer w = {.text = text, .color = color};
    ckpt_arena_init(&w.arena);
    for (int i = 0; i < report->count; i++) {
        ckpt_text_add(text, "%s", i > 0 ? "\n" : "");
        put_difference(&w, report, &report->difference[i]);
    }
    ckpt_arena_fini(&w.arena);
}
