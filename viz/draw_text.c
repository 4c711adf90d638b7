/* The terminal: cells of 8 x 16 pixels. Areas are kept in eighths of a cell and come out as block characters in two
 * colours, or, without colours, as the letter of the ink that fills most of the cell. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "viz/draw_impl.h"

enum { CELL_WIDTH = 8, CELL_HEIGHT = 16, EIGHTHS = 8, CROSSINGS = 128 };

typedef struct cell {
    unsigned char ink[EIGHTHS]; /* from the top */
    char glyph[5];              /* a letter or a piece of line over the areas; "" for none */
    unsigned char pen;
    bool bold;
} cell;

typedef struct grid {
    int columns, rows;
    cell *cell;
} grid;

/* How a cell is printed. */
typedef struct look {
    int front, back; /* ANSI colours; -1: the terminal's own */
    bool bold, faint, reverse;
} look;

static ckpt_code txt_open(ckpt_canvas *canvas, const char *title, const char *about, ckpt_err *err)
{
    (void)title;
    (void)about;
    grid *const own = CKPT_NEW(canvas->scratch, grid, 1);
    const int columns = (int)(canvas->width / CELL_WIDTH), rows = (int)(canvas->height / CELL_HEIGHT);
    cell *const cells = CKPT_NEW(canvas->scratch, cell, (size_t)columns * (size_t)rows);
    if (own == NULL || cells == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d x %d characters", columns, rows);
    }
    *own = (grid){columns, rows, cells};
    canvas->own = own;
    return CKPT_OK;
}

static int letters(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return count;
}

static double txt_measure(const ckpt_canvas *canvas, const ckpt_font *font, const char *text)
{
    (void)canvas;
    (void)font;
    return (double)letters(text) * CELL_WIDTH;
}

static cell *at(const grid *own, int column, int row)
{
    const bool inside = column >= 0 && column < own->columns && row >= 0 && row < own->rows;
    return inside ? &own->cell[(size_t)row * (size_t)own->columns + (size_t)column] : NULL;
}

static void fill_column(const grid *own, int column, double top, double bottom, ckpt_ink ink)
{
    const double eighth = (double)CELL_HEIGHT / EIGHTHS;
    const double last = (double)own->rows * EIGHTHS - 1;
    const int from = (int)fmax(0, ceil(top / eighth - 0.5));
    const int to = (int)fmin(last, ceil(bottom / eighth - 0.5) - 1);
    for (int i = from; i <= to; i++) {
        cell *const c = at(own, column, i / EIGHTHS);
        c->ink[i % EIGHTHS] = (unsigned char)ink;
        if (i % EIGHTHS == EIGHTHS / 2) { /* past the middle: what stood there is covered */
            c->glyph[0] = '\0';
        }
    }
}

static void txt_area(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_ink ink)
{
    const grid *const own = canvas->own;
    double low = point[0].x, high = point[0].x;
    for (int i = 1; i < count; i++) {
        low = fmin(low, point[i].x);
        high = fmax(high, point[i].x);
    }
    const int from = (int)fmax(0, floor(low / CELL_WIDTH));
    const int to = (int)fmin(own->columns, ceil(high / CELL_WIDTH));
    for (int column = from; column < to; column++) {
        const double x = (column + 0.5) * CELL_WIDTH;
        double y[CROSSINGS];
        int crossings = 0;
        for (int i = 0; i < count && crossings < CROSSINGS; i++) {
            const ckpt_point a = point[i], b = point[(i + 1) % count];
            if ((a.x <= x) == (b.x <= x)) {
                continue;
            }
            const double at_y = a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
            int k = crossings++;
            for (; k > 0 && y[k - 1] > at_y; k--) {
                y[k] = y[k - 1];
            }
            y[k] = at_y;
        }
        for (int k = 0; k + 1 < crossings; k += 2) {
            fill_column(own, column, y[k], y[k + 1], ink);
        }
    }
}

/* At least one column and an eighth of a row. */
static void txt_boxes(ckpt_canvas *canvas, const ckpt_box *box, int count)
{
    const grid *const own = canvas->own;
    for (int i = 0; i < count; i++) {
        ckpt_box shown;
        if (!ckpt_box_fit(&box[i], &shown)) {
            continue;
        }
        const double left = box[i].x / CELL_WIDTH, right = left + fmin(box[i].width / CELL_WIDTH, own->columns);
        const int from = (int)fmax(0, floor(left + 0.5)), to = (int)fmin(own->columns, floor(right + 0.5));
        const double eighth = (double)CELL_HEIGHT / EIGHTHS;
        const double top = floor(box[i].y / eighth + 0.5) * eighth;
        const double bottom = fmax(top + eighth, box[i].y + box[i].height);
        int column = from < to ? from : (int)fmax(0, floor(left));
        do {
            if (column < own->columns) {
                fill_column(own, column, top, bottom, box[i].ink);
            }
        } while (++column < to);
    }
}

static void put(const grid *own, int column, int row, const char *glyph, int bytes, ckpt_ink ink, bool bold)
{
    cell *const c = at(own, column, row);
    if (c != NULL) {
        memcpy(c->glyph, glyph, (size_t)bytes);
        c->glyph[bytes] = '\0';
        c->pen = (unsigned char)ink;
        c->bold = bold;
    }
}

static void txt_line(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen)
{
    static const char *const glyphs[3][2] = {{"─", "│"}, {"━", "┃"}, {"┈", "┊"}};
    const grid *const own = canvas->own;
    const int style = pen->ink == CKPT_INK_FAINT ? 2 : pen->width > 1.6;
    const bool dashed = pen->dash > 0 && style != 2;
    const char *const across = dashed ? (style == 1 ? "╍" : "╌") : glyphs[style][0];
    const char *const down = dashed ? (style == 1 ? "╏" : "╎") : glyphs[style][1];
    for (int i = 0; i + 1 < count; i++) {
        ckpt_point a = point[i], b = point[i + 1];
        if (fabs(a.x - b.x) >= fabs(a.y - b.y)) {
            if (a.x > b.x) {
                const ckpt_point swap = a;
                a = b;
                b = swap;
            }
            for (int column = (int)floor(a.x / CELL_WIDTH + 0.01); column < b.x / CELL_WIDTH - 0.01; column++) {
                const double x = (column + 0.5) * CELL_WIDTH;
                const double part = b.x > a.x ? fmin(1, fmax(0, (x - a.x) / (b.x - a.x))) : 0;
                put(own, column, (int)floor((a.y + part * (b.y - a.y)) / CELL_HEIGHT), across, 3, pen->ink, false);
            }
            continue;
        }
        int row = (int)floor(fmin(a.y, b.y) / CELL_HEIGHT);
        const int to = (int)ceil(fmax(a.y, b.y) / CELL_HEIGHT);
        for (; row < to; row++) {
            put(own, (int)floor((a.x + b.x) / 2 / CELL_WIDTH), row, down, 3, pen->ink, false);
        }
    }
}

static void txt_text(ckpt_canvas *canvas, double x, double y, const ckpt_font *font, const char *text)
{
    const grid *const own = canvas->own;
    int column = (int)lround(x / CELL_WIDTH - letters(text) * (font->align + 1) / 2.0);
    const int row = (int)floor(y / CELL_HEIGHT);
    while (*text != '\0') {
        const int bytes = ckpt_utf8_length(text);
        put(own, column++, row, bytes > 0 ? text : "?", bytes > 0 ? bytes : 1, font->ink, font->bold);
        text += bytes > 0 ? bytes : 1;
    }
}

/* The ink that fills most of the cell; ties go to the lower one. */
static ckpt_ink main_ink(const cell *c)
{
    int count[CKPT_INK_COUNT] = {0};
    ckpt_ink most = (ckpt_ink)c->ink[EIGHTHS - 1];
    for (int i = EIGHTHS - 1; i >= 0; i--) {
        const ckpt_ink ink = (ckpt_ink)c->ink[i];
        count[ink]++;
        if (count[ink] > count[most]) {
            most = ink;
        }
    }
    return most;
}

/* Areas only: the lower part in one ink, the upper part in another. Gives the character. */
static const char *blocks(const cell *c, look *how)
{
    static const char *const part[9] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const ckpt_ink lower = (ckpt_ink)c->ink[EIGHTHS - 1];
    int height = 1;
    while (height < EIGHTHS && c->ink[EIGHTHS - 1 - height] == lower) {
        height++;
    }
    cell rest = *c;
    for (int i = EIGHTHS - height; i < EIGHTHS && height < EIGHTHS; i++) {
        rest.ink[i] = c->ink[EIGHTHS - 1 - height];
    }
    const ckpt_ink upper = main_ink(&rest);
    const bool bare = lower == CKPT_INK_PAPER;
    if (bare && upper == CKPT_INK_PAPER) {
        return " ";
    }
    how->reverse = bare; /* the terminal's own background has no number: swap */
    how->front = ckpt_ink_looks[bare ? upper : lower].ansi;
    how->back = bare || upper == CKPT_INK_PAPER || upper == lower ? -1 : ckpt_ink_looks[upper].ansi;
    return part[upper == lower ? EIGHTHS : height];
}

static const char *show(const cell *c, bool color, look *how)
{
    *how = (look){.front = -1, .back = -1};
    const ckpt_ink under = main_ink(c);
    if (!color) {
        return c->glyph[0] != '\0' ? c->glyph : ckpt_ink_looks[under].letter;
    }
    if (c->glyph[0] == '\0') {
        return blocks(c, how);
    }
    how->bold = c->bold;
    if (under != CKPT_INK_PAPER) {
        how->back = ckpt_ink_looks[under].ansi;
        how->front = c->pen == CKPT_INK_PAPER ? 231
                     : c->pen == CKPT_INK_BLACK || c->pen == CKPT_INK_GREY
                         ? (ckpt_ink_looks[under].text == CKPT_INK_PAPER ? 231 : 16)
                         : ckpt_ink_looks[c->pen].ansi;
    } else {
        how->front = ckpt_ink_looks[c->pen].ansi;
        how->faint = c->pen == CKPT_INK_GREY;
    }
    return c->glyph;
}

static void switch_look(ckpt_text *text, const look *from, const look *to)
{
    if (from->front == to->front && from->back == to->back && from->bold == to->bold && from->faint == to->faint &&
        from->reverse == to->reverse) {
        return;
    }
    ckpt_text_add(text, "\033[0%s%s%s", to->bold ? ";1" : "", to->faint ? ";2" : "", to->reverse ? ";7" : "");
    if (to->front >= 0) {
        ckpt_text_add(text, ";38;5;%d", to->front);
    }
    if (to->back >= 0) {
        ckpt_text_add(text, ";48;5;%d", to->back);
    }
    ckpt_text_add(text, "m");
}

static ckpt_code txt_close(ckpt_canvas *canvas, ckpt_text *text, ckpt_err *err)
{
    static const look plain = {.front = -1, .back = -1};
    const grid *const own = canvas->own;
    int rows = text != NULL ? own->rows : 0;
    look now, next;
    /* Empty rows at the end are nothing. */
    for (bool empty = true; rows > 0 && empty; rows -= empty) {
        for (int column = 0; column < own->columns && empty; column++) {
            empty = show(at(own, column, rows - 1), canvas->color, &next)[0] == ' ' && next.back < 0;
        }
    }
    for (int row = 0; row < rows; row++) {
        int columns = own->columns;
        while (columns > 0 && show(at(own, columns - 1, row), canvas->color, &next)[0] == ' ' && next.back < 0) {
            columns--;
        }
        now = plain;
        for (int column = 0; column < columns; column++) {
            const char *const glyph = show(at(own, column, row), canvas->color, &next);
            switch_look(text, &now, &next);
            now = next;
            ckpt_text_put(text, glyph, strlen(glyph));
        }
        switch_look(text, &now, &plain);
        ckpt_text_put(text, "\n", 1);
    }
    return text != NULL ? ckpt_text_end(text, err) : CKPT_OK;
}

const ckpt_renderer ckpt_renderer_txt = {
    .format = "txt",
    .cells = true,
    .width = 100,
    .height = 46,
    .open = txt_open,
    .measure = txt_measure,
    .area = txt_area,
    .boxes = txt_boxes,
    .line = txt_line,
    .text = txt_text,
    .close = txt_close,
};
