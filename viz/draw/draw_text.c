/* The terminal: cells of 8 x 16 pixels. Areas are kept in eighths of a cell and come out as block characters in two
 * colours, or, without colours, as the letter of the colour role that fills most of the cell. Lines that are level or upright
 * are box-drawing characters, all others braille dots, 2 x 4 to a cell. Where only ASCII may be printed, letters and
 * what comes nearest stand for all of those. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "viz/draw/draw_impl.h"

enum { CELL_WIDTH = 8, CELL_HEIGHT = 16, EIGHTHS = 8, CROSSINGS = 128 };

typedef struct cell {
    unsigned char role[EIGHTHS]; /* from the top */
    char glyph[5];               /* a letter or a piece of line over the areas; "" for none */
    unsigned char dots;          /* where there is no glyph: of a line, numbered as in U+2800 */
    unsigned char pen;           /* of either */
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

static void fill_column(const grid *own, int column, double top, double bottom, ckpt_colour_role role)
{
    const double eighth = (double)CELL_HEIGHT / EIGHTHS;
    const double last = (double)own->rows * EIGHTHS - 1;
    const int from = (int)fmin(last + 1, fmax(0, ceil(top / eighth - 0.5)));
    const int to = (int)fmin(last, ceil(bottom / eighth - 0.5) - 1);
    for (int i = from; i <= to; i++) {
        cell *const c = at(own, column, i / EIGHTHS);
        c->role[i % EIGHTHS] = (unsigned char)role;
        if (i % EIGHTHS == EIGHTHS / 2) { /* past the middle: what stood there is covered */
            c->glyph[0] = '\0';
            c->dots = 0;
        }
    }
}

static void txt_area(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_colour_role role)
{
    const grid *const own = canvas->own;
    double low = point[0].x, high = point[0].x;
    for (int i = 1; i < count; i++) {
        low = fmin(low, point[i].x);
        high = fmax(high, point[i].x);
    }
    const int from = (int)fmin(own->columns, fmax(0, floor(low / CELL_WIDTH)));
    const int to = (int)fmax(0, fmin(own->columns, ceil(high / CELL_WIDTH)));
    for (int column = from; column < to; column++) {
        const double x = (column + 0.5) * CELL_WIDTH;
        double y[CROSSINGS];
        int crossings = 0;
        for (int i = 0; i < count && crossings < CROSSINGS; i++) {
            const ckpt_point a = ckpt_point_fit(point[i]), b = ckpt_point_fit(point[(i + 1) % count]);
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
            fill_column(own, column, y[k], y[k + 1], role);
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
                fill_column(own, column, top, bottom, box[i].role);
            }
        } while (++column < to);
    }
}

/* The cell a length falls into, whatever was computed. */
static int whole(double cells)
{
    return (int)fmin(fmax(floor(cells), -1e6), 1e6);
}

static void put(const grid *own, int column, int row, const char *glyph, int bytes, ckpt_colour_role role, bool bold)
{
    cell *const c = at(own, column, row);
    if (c != NULL) {
        memcpy(c->glyph, glyph, (size_t)bytes);
        c->glyph[bytes] = '\0';
        c->pen = (unsigned char)role;
        c->bold = bold;
    }
}

/* From left to right; dashes are not told apart. */
static void draw_level(const grid *own, double from, double to, double y, const char *glyph, ckpt_colour_role role)
{
    const int last = (int)fmax(0, fmin(own->columns, ceil(to / CELL_WIDTH - 0.01)));
    for (int column = (int)fmin(last, fmax(0, floor(from / CELL_WIDTH + 0.01))); column < last; column++) {
        put(own, column, whole(y / CELL_HEIGHT), glyph, 3, role, false);
    }
}

static void draw_upright(const grid *own, double x, double from, double to, const char *glyph, ckpt_colour_role role)
{
    const int last = (int)fmax(0, fmin(own->rows, ceil(to / CELL_HEIGHT)));
    for (int row = (int)fmin(last, fmax(0, floor(from / CELL_HEIGHT))); row < last; row++) {
        put(own, whole(x / CELL_WIDTH), row, glyph, 3, role, false);
    }
}

/* Every dot a slanting line passes, at most one more than the larger way has dots. */
static void draw_dots(const grid *own, ckpt_point a, ckpt_point b, ckpt_colour_role role)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const double dot = (double)CELL_WIDTH / 2; /* as high as wide */
    const double most = 4.0 * (own->columns + own->rows);
    const double steps = fmin(most * 2, ceil(fmax(fabs(b.x - a.x), fabs(b.y - a.y)) / dot));
    for (double i = 0; i <= steps; i++) {
        const double x = a.x + (b.x - a.x) * i / steps, y = a.y + (b.y - a.y) * i / steps;
        if (!(x >= 0 && y >= 0 && x < own->columns * (double)CELL_WIDTH && y < own->rows * (double)CELL_HEIGHT)) {
            continue;
        }
        const int right = (int)(x / dot), down = (int)(y / dot);
        cell *const c = at(own, right / 2, down / 4);
        if (c->glyph[0] == '\0' || c->pen == CKPT_ROLE_FAINT) { /* a name stays, the grid goes */
            c->glyph[0] = '\0';
            c->dots |= bit[down % 4][right % 2];
            c->pen = (unsigned char)role;
            c->bold = false;
        }
    }
}

static void txt_line(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen)
{
    static const char *const glyphs[3][2] = {{"─", "│"}, {"━", "┃"}, {"┈", "┊"}};
    const grid *const own = canvas->own;
    const int style = pen->role == CKPT_ROLE_FAINT ? 2 : pen->width > 1.6;
    const bool dashed = pen->dash > 0 && style != 2;
    const char *const across = dashed ? (style == 1 ? "╍" : "╌") : glyphs[style][0];
    const char *const down = dashed ? (style == 1 ? "╏" : "╎") : glyphs[style][1];
    for (int i = 0; i + 1 < count; i++) {
        const ckpt_point a = ckpt_point_fit(point[i]), b = ckpt_point_fit(point[i + 1]);
        if (floor(a.y / CELL_HEIGHT) == floor(b.y / CELL_HEIGHT) && fabs(a.y - b.y) < 0.5) {
            draw_level(own, fmin(a.x, b.x), fmax(a.x, b.x), a.y, across, pen->role);
        } else if (fabs(a.x - b.x) < 0.5) {
            draw_upright(own, (a.x + b.x) / 2, fmin(a.y, b.y), fmax(a.y, b.y), down, pen->role);
        } else {
            draw_dots(own, a, b, pen->role);
        }
    }
}

static void txt_text(ckpt_canvas *canvas, double x, double y, const ckpt_font *font, const char *text)
{
    const grid *const own = canvas->own;
    int column = whole(x / CELL_WIDTH - letters(text) * (font->align + 1) / 2.0 + 0.5);
    const int row = whole(y / CELL_HEIGHT);
    while (*text != '\0') {
        const int bytes = ckpt_utf8_length(text);
        put(own, column++, row, bytes > 0 ? text : "?", bytes > 0 ? bytes : 1, font->role, font->bold);
        text += bytes > 0 ? bytes : 1;
    }
}

/* The colour role that fills most of the cell; ties go to the lower one. */
static ckpt_colour_role main_role(const cell *c)
{
    int count[CKPT_ROLE_COUNT] = {0};
    ckpt_colour_role most = (ckpt_colour_role)c->role[EIGHTHS - 1];
    for (int i = EIGHTHS - 1; i >= 0; i--) {
        const ckpt_colour_role role = (ckpt_colour_role)c->role[i];
        count[role]++;
        if (count[role] > count[most]) {
            most = role;
        }
    }
    return most;
}

/* Areas alone: the lower part in one colour, the upper part in another. Gives the character. */
static const char *blocks(const cell *c, look *how)
{
    static const char *const part[9] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const ckpt_colour_role lower = (ckpt_colour_role)c->role[EIGHTHS - 1];
    int height = 1;
    while (height < EIGHTHS && c->role[EIGHTHS - 1 - height] == lower) {
        height++;
    }
    cell rest = *c;
    for (int i = EIGHTHS - height; i < EIGHTHS && height < EIGHTHS; i++) {
        rest.role[i] = c->role[EIGHTHS - 1 - height];
    }
    const ckpt_colour_role upper = main_role(&rest);
    const bool bare = lower == CKPT_ROLE_PAPER;
    if (bare && upper == CKPT_ROLE_PAPER) {
        return " ";
    }
    how->reverse = bare; /* the terminal's own background has no number: swap */
    how->front = ckpt_colour_role_looks[bare ? upper : lower].ansi;
    how->back = bare || upper == CKPT_ROLE_PAPER || upper == lower ? -1 : ckpt_colour_role_looks[upper].ansi;
    return part[upper == lower ? EIGHTHS : height];
}

/* What ASCII has for a character of ours or of a name. */
static const char *plain(const char *glyph)
{
    static const char *const alike[][2] = {{"─", "-"}, {"━", "="}, {"╌", "-"}, {"╍", "="}, {"┈", "."}, {"│", "|"},
                                           {"┃", "|"}, {"╎", "|"}, {"╏", "|"}, {"┊", "."}, {"▼", "v"}, {"▲", "^"},
                                           {"…", "~"}, {"≈", "~"}, {"×", "x"}, {"–", "-"}, {"·", "."}, {"●", "*"},
                                           {"≤", "<"}, {"≥", ">"}, {"±", "+"}, {"µ", "u"}, {"→", ">"}};
    if ((unsigned char)glyph[0] < 0x80) {
        return glyph;
    }
    for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++) {
        if (strcmp(glyph, alike[i][0]) == 0) {
            return alike[i][1];
        }
    }
    return "?";
}

/* The character over the areas; "" for none. `room` holds a braille one. */
static const char *over(const cell *c, bool ascii, char room[4])
{
    if (c->glyph[0] != '\0') {
        return ascii ? plain(c->glyph) : c->glyph;
    }
    if (c->dots == 0) {
        return "";
    }
    room[0] = (char)0xE2; /* U+2800 and the dots */
    room[1] = (char)(0xA0 | c->dots >> 6);
    room[2] = (char)(0x80 | (c->dots & 0x3F));
    room[3] = '\0';
    return ascii ? "*" : room;
}

/* How a cell is printed: the character and its colours. */
static const char *show(const ckpt_canvas *canvas, const cell *c, look *how, char room[4])
{
    *how = (look){.front = -1, .back = -1};
    const ckpt_colour_role under = main_role(c);
    const char *const glyph = over(c, canvas->ascii, room);
    if (!canvas->color) {
        return glyph[0] != '\0' ? glyph : ckpt_colour_role_looks[under].letter;
    }
    if (glyph[0] == '\0' && !canvas->ascii) {
        return blocks(c, how);
    }
    const ckpt_colour_role_look *const below = &ckpt_colour_role_looks[under];
    if (under != CKPT_ROLE_PAPER) {
        how->back = below->ansi;
        how->front = below->text == CKPT_ROLE_PAPER ? 231 : 16;
    }
    if (glyph[0] == '\0') {
        return below->letter;
    }
    how->bold = c->bold;
    if (under == CKPT_ROLE_PAPER) {
        how->front = ckpt_colour_role_looks[c->pen].ansi;
        how->faint = c->pen == CKPT_ROLE_GREY;
    } else if (c->pen != CKPT_ROLE_BLACK && c->pen != CKPT_ROLE_GREY) {
        how->front = c->pen == CKPT_ROLE_PAPER ? 231 : ckpt_colour_role_looks[c->pen].ansi;
    }
    return glyph;
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
    static const look none = {.front = -1, .back = -1};
    const grid *const own = canvas->own;
    int rows = text != NULL ? own->rows : 0;
    look now, next;
    char room[4];
    /* Empty rows at the end are nothing. */
    for (bool empty = true; rows > 0 && empty; rows -= empty) {
        for (int column = 0; column < own->columns && empty; column++) {
            empty = show(canvas, at(own, column, rows - 1), &next, room)[0] == ' ' && next.back < 0;
        }
    }
    for (int row = 0; row < rows; row++) {
        int columns = own->columns;
        while (columns > 0 && show(canvas, at(own, columns - 1, row), &next, room)[0] == ' ' && next.back < 0) {
            columns--;
        }
        now = none;
        for (int column = 0; column < columns; column++) {
            const char *const glyph = show(canvas, at(own, column, row), &next, room);
            switch_look(text, &now, &next);
            now = next;
            ckpt_text_put(text, glyph, strlen(glyph));
        }
        switch_look(text, &now, &none);
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
