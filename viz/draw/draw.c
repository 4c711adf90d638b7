/* What all renderers share: the palette, the widths of letters, the cleaning of names from files. */
#include "viz/draw/draw.h"

#include <math.h>
#include <string.h>

#include "viz/draw/draw_impl.h"

const ckpt_colour_role_look ckpt_colour_role_looks[CKPT_ROLE_COUNT] = {
#define RGB(r, g, b) "#" #r #g #b, 0x##r / 255.0, 0x##g / 255.0, 0x##b / 255.0
    [CKPT_ROLE_PAPER] = {RGB(ff, ff, ff), -1, " ", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_BLACK] = {RGB(1a, 1a, 1a), -1, "#", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_GREY] = {RGB(55, 55, 55), -1, ":", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_FAINT] = {RGB(e2, e2, e2), 240, ".", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_WEIGHTS] = {RGB(8c, 8c, 8c), 245, "W", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_OPTIMIZER] = {RGB(b4, b4, b4), 249, "O", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_PARAMETER_GRADIENTS] = {RGB(d6, d6, d6), 253, "G", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_INPUTS] = {RGB(6e, 6e, 6e), 242, "I", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_ACTIVATIONS] = {RGB(00, 72, b2), 25, "a", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_SAVED] = {RGB(56, b4, e9), 74, "s", CKPT_ROLE_BLACK, CKPT_HATCH_DOTS},
    [CKPT_ROLE_GRADIENTS] = {RGB(00, 9e, 73), 36, "g", CKPT_ROLE_BLACK, CKPT_HATCH_FALLING},
    [CKPT_ROLE_WORKSPACE] = {RGB(f0, e4, 42), 227, "w", CKPT_ROLE_BLACK, CKPT_HATCH_LEVEL},
    [CKPT_ROLE_STAGING] = {RGB(cc, 79, a7), 175, "c", CKPT_ROLE_BLACK, CKPT_HATCH_RISING},
    [CKPT_ROLE_OTHER] = {RGB(e6, 9f, 00), 178, "o", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_OUTSIDE] = {RGB(30, 30, 30), 236, "x", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_BUDGET] = {RGB(d5, 5e, 00), 166, "=", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_RECOMPUTE] = {RGB(e6, 9f, 00), 178, "r", CKPT_ROLE_BLACK, CKPT_HATCH_RISING},
    [CKPT_ROLE_OFFLOADED] = {RGB(cc, 79, a7), 175, "f", CKPT_ROLE_BLACK, CKPT_HATCH_CROSS},
    [CKPT_ROLE_CAPACITY] = {RGB(1a, 1a, 1a), -1, "^", CKPT_ROLE_PAPER, CKPT_HATCH_NONE},
    [CKPT_ROLE_RESIDUAL] = {RGB(d5, 5e, 00), 166, "d", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
    [CKPT_ROLE_OPEN] = {RGB(fa, e3, c8), 223, "?", CKPT_ROLE_BLACK, CKPT_HATCH_NONE},
#undef RGB
};

/* Lines that leave a tile at one edge come in at the opposite one. */
#define TILE CKPT_HATCH_TILE
const ckpt_hatch_look ckpt_hatch_looks[CKPT_HATCH_COUNT] = {
    [CKPT_HATCH_RISING] = {3, {{-1, 1, 1, -1}, {0, TILE, TILE, 0}, {TILE - 1, TILE + 1, TILE + 1, TILE - 1}}, 1},
    [CKPT_HATCH_FALLING] = {3, {{-1, TILE - 1, 1, TILE + 1}, {0, 0, TILE, TILE}, {TILE - 1, -1, TILE + 1, 1}}, 1},
    [CKPT_HATCH_CROSS] = {4,
                          {{0, TILE / 2, TILE / 2, 0},
                           {TILE / 2, 0, TILE, TILE / 2},
                           {TILE, TILE / 2, TILE / 2, TILE},
                           {TILE / 2, TILE, 0, TILE / 2}},
                          0.9},
    [CKPT_HATCH_LEVEL] = {2, {{0, 1.5, TILE, 1.5}, {0, 4.5, TILE, 4.5}}, 0.9},
    [CKPT_HATCH_DOTS] = {2, {{1.5, 1.5, 1.5, 1.5}, {4.5, 4.5, 4.5, 4.5}}, 1.5},
};
#undef TILE

static const double far = 40000;

static double near(double v)
{
    return v >= -far && v <= far ? v : v < 0 ? -far : v > 0 ? far : 0;
}

ckpt_point ckpt_point_fit(ckpt_point point)
{
    return (ckpt_point){near(point.x), near(point.y)};
}

bool ckpt_box_fit(const ckpt_box *box, ckpt_box *shown)
{
    const double minimum = 0.8, hair = 0.5;
    if (!(box->width >= 0 && box->height >= 0 && fabs(box->x) <= far && fabs(box->y) <= far)) {
        return false;
    }
    *shown = *box;
    shown->width = fmin(box->width, far);
    shown->height = fmin(box->height, far);
    if (shown->width < minimum) {
        shown->x -= (minimum - shown->width) / 2;
        shown->width = minimum;
    } else if (shown->width >= 3) {
        shown->width -= hair;
    }
    if (shown->height < minimum) {
        shown->y -= (minimum - shown->height) / 2;
        shown->height = minimum;
    } else if (shown->height >= 3) {
        shown->height -= hair;
    }
    return true;
}

bool ckpt_hatch_shows(ckpt_colour_role role, double width, double height)
{
    return ckpt_colour_role_looks[role].hatch != CKPT_HATCH_NONE && width >= CKPT_HATCH_TILE &&
           height >= CKPT_HATCH_TILE;
}

static const ckpt_renderer *const renderers[] = {
    &ckpt_renderer_svg,
#ifdef CKPT_PICTURES
    &ckpt_renderer_png, &ckpt_renderer_pdf,
#endif
    &ckpt_renderer_txt, NULL,
};

const ckpt_renderer *ckpt_renderer_find(const char *format)
{
    for (int i = 0; renderers[i] != NULL; i++) {
        if (strcmp(renderers[i]->format, format) == 0) {
            return renderers[i];
        }
    }
    return NULL;
}

const char *ckpt_renderer_names(void)
{
#ifdef CKPT_PICTURES
    return "svg, png, pdf, txt";
#else
    return "svg, txt (this build has no Cairo, which draws png and pdf)";
#endif
}

/* Advance of ' ' .. '~' in thousandths of the size: DejaVu Sans and DejaVu Sans Bold 2.37. */
static const short advance[2][95] = {
    {318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361,  318, 337, 636, 636, 636,
     636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
     575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,  611, 732, 684, 989, 685,
     611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,  635, 634, 278, 278, 579,
     278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,  525, 636, 337, 636, 838},
    {348, 456,  521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415,  380, 365, 696, 696,  696,
     696, 696,  696, 696, 696, 696,  696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830,  683,
     683, 821,  837, 372, 372, 775,  637, 995, 837, 850, 733, 850, 770, 720,  682, 812, 774, 1103, 771,
     724, 725,  457, 365, 457, 838,  500, 500, 675, 716, 593, 716, 678, 435,  716, 712, 343, 343,  665,
     343, 1042, 712, 687, 716, 716,  493, 595, 478, 712, 652, 924, 645, 652,  582, 712, 365, 712,  838},
};

double ckpt_text_width(const char *text, double size, bool bold)
{
    int sum = 0;
    for (const char *c = text; *c != '\0'; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (byte >= ' ' && byte <= '~') {
            sum += advance[bold][byte - ' '];
        } else if ((byte & 0xC0) != 0x80) { /* one character of several bytes: as wide as a wide one */
            sum += byte == 0xC2 ? 380 : 838;
        }
    }
    return sum * size / 1000;
}

int ckpt_utf8_length(const char *text)
{
    const unsigned char *const b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        return b[0] >= ' ' && b[0] != 0x7F;
    }
    const int length = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4) {
        return 0;
    }
    for (int i = 1; i < length; i++) {
        if ((b[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    /* Overlong forms, surrogates, beyond U+10FFFF, C1 controls, U+FFFE and U+FFFF (not allowed in XML), and the
     * characters that turn the direction of text. */
    const bool bad = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) || (b[0] == 0xF0 && b[1] < 0x90) ||
                     (b[0] == 0xF4 && b[1] > 0x8F) || (b[0] == 0xC2 && b[1] < 0xA0) ||
                     (b[0] == 0xEF && b[1] == 0xBF && b[2] >= 0xBE) ||
                     (b[0] == 0xE2 && b[1] == 0x80 && b[2] >= 0xA8 && b[2] <= 0xAE) ||
                     (b[0] == 0xE2 && b[1] == 0x81 && b[2] >= 0xA6 && b[2] <= 0xA9);
    return bad ? 0 : length;
}

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* `keep` bytes, or a few less where a letter would be cut: half from the front and half from the back, because names
 * differ at both ends. */
static void shorten(const char *text, size_t length, size_t keep, char *out)
{
    size_t front = (keep + 1) / 2, back = length - keep / 2;
    while (front > 0 && continues(text[front])) {
        front--;
    }
    while (back < length && continues(text[back])) {
        back++;
    }
    memcpy(out, text, front);
    memcpy(out + front, "…", 3);
    memcpy(out + front + 3, text + back, length - back + 1);
}

const char *ckpt_canvas_fit(const ckpt_canvas *canvas, const ckpt_font *font, const char *text, double width)
{
    /* Names of any length come here; of longer ones nobody reads the middle. */
    enum { LONGEST = 600 };
    const size_t whole = strlen(text);
    const bool cut = whole > LONGEST;
    const size_t parts[2][2] = {{0, cut ? LONGEST / 2 : whole}, {cut ? whole - LONGEST / 2 : whole, whole}};
    const size_t room = 3 * (cut ? (size_t)LONGEST : whole) + 8; /* every byte may become three */
    char *const clean = CKPT_NEW(canvas->scratch, char, room);
    char *const out = CKPT_NEW(canvas->scratch, char, room);
    if (clean == NULL || out == NULL) {
        return NULL;
    }
    size_t length = 0;
    for (int p = 0; p < 2; p++) {
        size_t i = parts[p][0];
        while (p > 0 && i < parts[p][1] && continues(text[i])) {
            i++;
        }
        while (i < parts[p][1]) {
            const int n = ckpt_utf8_length(text + i);
            if (n > 0) {
                memcpy(clean + length, text + i, (size_t)n);
                length += (size_t)n;
                i += (size_t)n;
            } else {
                memcpy(clean + length, "\xEF\xBF\xBD", 3);
                length += 3;
                i++;
            }
        }
    }
    clean[length] = '\0';
    if (width >= CKPT_ANY_WIDTH || (!cut && canvas->renderer->measure(canvas, font, clean) <= width)) {
        return clean;
    }
    /* The most letters that fit. */
    size_t low = 0, high = length;
    while (low < high) {
        const size_t keep = (low + high + 1) / 2;
        shorten(clean, length, keep, out);
        if (canvas->renderer->measure(canvas, font, out) <= width) {
            low = keep;
        } else {
            high = keep - 1;
        }
    }
    if (low == 0) {
        return "";
    }
    shorten(clean, length, low, out);
    return out;
}
