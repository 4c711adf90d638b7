/* SVG 1.1, written by hand so that the same picture is the same bytes on every machine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "viz/draw/draw_impl.h"

typedef struct svg {
    ckpt_text body;
    bool hatched[CKPT_ROLE_COUNT]; /* its pattern is used */
} svg;

/* Tenths of a pixel, as an integer, so that no float formatting can differ. */
static long tenths(double v)
{
    return lround(ckpt_point_fit((ckpt_point){v, 0}).x * 10);
}

static void number(ckpt_text *text, const char *before, long value)
{
    const long whole = labs(value) / 10, rest = labs(value) % 10;
    ckpt_text_add(text, rest != 0 ? "%s%s%ld.%ld" : "%s%s%ld", before, value < 0 ? "-" : "", whole, rest);
}

static void attribute(ckpt_text *text, const char *name, double value)
{
    ckpt_text_add(text, " %s=\"", name);
    number(text, "", tenths(value));
    ckpt_text_add(text, "\"");
}

static ckpt_code svg_open(ckpt_canvas *canvas, const char *title, const char *about, ckpt_err *err)
{
    svg *const own = CKPT_NEW(canvas->scratch, svg, 1);
    if (own == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an SVG");
    }
    canvas->own = own;
    ckpt_text *const t = &own->body;
    ckpt_text_init(t);
    ckpt_text_add(t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    ckpt_text_add(t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "role=\"img\" font-family=\"'DejaVu Sans', Verdana, sans-serif\">\n<title>",
                  (int)canvas->width, (int)canvas->height, (int)canvas->width, (int)canvas->height);
    ckpt_text_xml(t, title);
    ckpt_text_add(t, "</title>\n<desc>");
    ckpt_text_xml(t, about);
    ckpt_text_add(t, "</desc>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    return CKPT_OK;
}

static double svg_measure(const ckpt_canvas *canvas, const ckpt_font *font, const char *text)
{
    (void)canvas;
    return ckpt_text_width(text, font->size, font->bold);
}

/* Relative horizontal and vertical moves: a step function of 1000 steps stays small. */
static void path(ckpt_text *t, const ckpt_point *point, int count)
{
    ckpt_text_add(t, "<path d=\"");
    long x = tenths(point[0].x), y = tenths(point[0].y);
    number(t, "M", x);
    number(t, " ", y);
    for (int i = 1; i < count; i++) {
        const long to_x = tenths(point[i].x), to_y = tenths(point[i].y);
        if (to_x != x && to_y != y) {
            number(t, "l", to_x - x);
            number(t, to_y < y ? "" : " ", to_y - y);
        } else if (to_x != x) {
            number(t, "h", to_x - x);
        } else if (to_y != y) {
            number(t, "v", to_y - y);
        }
        x = to_x;
        y = to_y;
    }
}

static void fill(svg *own, ckpt_colour_role role, bool hatched)
{
    own->hatched[role] = own->hatched[role] || hatched;
    if (hatched) {
        ckpt_text_add(&own->body, " fill=\"url(#ckpt-hatch-%d)\"", (int)role);
    } else {
        ckpt_text_add(&own->body, " fill=\"%s\"", ckpt_colour_role_looks[role].rgb);
    }
}

static void svg_area(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_colour_role role)
{
    svg *const own = canvas->own;
    ckpt_point low = point[0], high = point[0];
    for (int i = 1; i < count; i++) {
        low = (ckpt_point){fmin(low.x, point[i].x), fmin(low.y, point[i].y)};
        high = (ckpt_point){fmax(high.x, point[i].x), fmax(high.y, point[i].y)};
    }
    path(&own->body, point, count);
    ckpt_text_add(&own->body, "z\"");
    fill(own, role, ckpt_hatch_shows(role, high.x - low.x, high.y - low.y));
    ckpt_text_add(&own->body, "/>\n");
}

/* From where the box before it began: a closed path goes on from its first point. */
static void rectangle(ckpt_text *t, const ckpt_box *box, long *x, long *y)
{
    const long to_x = tenths(box->x), to_y = tenths(box->y);
    const long width = tenths(box->x + box->width) - to_x, height = tenths(box->y + box->height) - to_y;
    number(t, "m", to_x - *x);
    number(t, to_y < *y ? "" : " ", to_y - *y);
    number(t, "h", width);
    number(t, "v", height);
    number(t, "h", -width);
    ckpt_text_put(t, "z", 1);
    *x = to_x;
    *y = to_y;
}

/* Any bytes as XML; of a long text the two ends. */
static void tooltip(ckpt_text *t, const char *title)
{
    enum { LONGEST = 400 };
    const size_t length = strlen(title);
    ckpt_text_add(t, "<title>");
    for (size_t i = 0; i < length;) {
        if (length > LONGEST && i >= LONGEST / 2 && i < length - LONGEST / 2) {
            ckpt_text_add(t, "…");
            for (i = length - LONGEST / 2; ((unsigned char)title[i] & 0xC0) == 0x80; i++) {
            }
        }
        const int bytes = ckpt_utf8_length(title + i);
        char letter[5] = "";
        memcpy(letter, bytes > 0 ? title + i : "\xEF\xBF\xBD", bytes > 0 ? (size_t)bytes : 3);
        ckpt_text_xml(t, letter);
        i += bytes > 0 ? (size_t)bytes : 1;
    }
    ckpt_text_add(t, "</title>");
}

/* A pointer finds what has some pixels; of the rest the title would only make the file long. */
static bool titled(const ckpt_box *box)
{
    return box->title != NULL && box->width >= 1.5 && box->height >= 1.5;
}

/* All boxes of a colour role and a fill: one path of those without a title, and one each of the others. */
static void draw_boxes(svg *own, const ckpt_box *box, int count, ckpt_colour_role role, bool hatched)
{
    ckpt_text *const t = &own->body;
    for (int pass = 0; pass < 2; pass++) {
        bool any = false;
        long x = 0, y = 0;
        for (int i = 0; i < count; i++) {
            ckpt_box shown;
            if (box[i].role != role || !ckpt_box_fit(&box[i], &shown) || titled(&shown) != (pass == 1) ||
                ckpt_hatch_shows(role, shown.width, shown.height) != hatched) {
                continue;
            }
            if (!any) {
                ckpt_text_add(t, pass == 0 ? "<path" : "<g");
                fill(own, role, hatched);
                ckpt_text_add(t, pass == 0 ? " d=\"" : ">\n");
                any = true;
            }
            if (pass == 1) {
                ckpt_text_add(t, "<path d=\"");
                x = y = 0;
            }
            rectangle(t, &shown, &x, &y);
            if (pass == 1) {
                ckpt_text_add(t, "\">");
                tooltip(t, shown.title);
                ckpt_text_add(t, "</path>\n");
            }
        }
        if (any) {
            ckpt_text_add(t, pass == 0 ? "\"/>\n" : "</g>\n");
        }
    }
}

static void svg_boxes(ckpt_canvas *canvas, const ckpt_box *box, int count)
{
    bool used[CKPT_ROLE_COUNT] = {false};
    for (int i = 0; i < count; i++) {
        used[box[i].role] = true;
    }
    for (int role = 0; role < CKPT_ROLE_COUNT; role++) {
        for (int hatched = 0; hatched < 2 && used[role]; hatched++) {
            draw_boxes(canvas->own, box, count, (ckpt_colour_role)role, hatched == 1);
        }
    }
}

static void svg_line(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen)
{
    svg *const own = canvas->own;
    path(&own->body, point, count);
    ckpt_text_add(&own->body, "\" fill=\"none\" stroke=\"%s\"", ckpt_colour_role_looks[pen->role].rgb);
    attribute(&own->body, "stroke-width", pen->width);
    if (pen->dash > 0) {
        number(&own->body, " stroke-dasharray=\"", tenths(pen->dash));
        number(&own->body, " ", tenths(pen->dash * 0.6));
        ckpt_text_add(&own->body, "\"");
    }
    ckpt_text_add(&own->body, "/>\n");
}

static void svg_text(ckpt_canvas *canvas, double x, double y, const ckpt_font *font, const char *text)
{
    ckpt_text *const t = &((svg *)canvas->own)->body;
    ckpt_text_add(t, "<text");
    attribute(t, "x", x);
    attribute(t, "y", y + 0.36 * font->size); /* half the height of a capital */
    attribute(t, "font-size", font->size);
    ckpt_text_add(t, " fill=\"%s\"", ckpt_colour_role_looks[font->role].rgb);
    if (font->bold) {
        ckpt_text_add(t, " font-weight=\"bold\"");
    }
    if (font->align >= 0) {
        ckpt_text_add(t, " text-anchor=\"%s\"", font->align == 0 ? "middle" : "end");
    }
    ckpt_text_add(t, ">");
    ckpt_text_xml(t, text);
    ckpt_text_add(t, "</text>\n");
}

static void pattern(ckpt_text *t, ckpt_colour_role role)
{
    const ckpt_hatch_look *const hatch = &ckpt_hatch_looks[ckpt_colour_role_looks[role].hatch];
    const int size = (int)CKPT_HATCH_TILE;
    ckpt_text_add(t,
                  "<pattern id=\"ckpt-hatch-%d\" width=\"%d\" height=\"%d\" patternUnits=\"userSpaceOnUse\">"
                  "<rect width=\"%d\" height=\"%d\" fill=\"%s\"/><path d=\"",
                  (int)role, size, size, size, size, ckpt_colour_role_looks[role].rgb);
    for (int i = 0; i < hatch->count; i++) {
        const double *const line = hatch->line[i];
        number(t, "M", tenths(line[0]));
        number(t, " ", tenths(line[1]));
        number(t, "L", tenths(line[2]));
        number(t, " ", tenths(line[3]));
    }
    ckpt_text_add(t, "\" stroke=\"%s\"", ckpt_colour_role_looks[ckpt_colour_role_looks[role].text].rgb);
    attribute(t, "stroke-width", hatch->width);
    ckpt_text_add(t, " stroke-opacity=\"0.%02d\" stroke-linecap=\"round\"/></pattern>\n",
                  (int)lround(CKPT_HATCH_SHARE * 100));
}

static ckpt_code svg_close(ckpt_canvas *canvas, ckpt_text *text, ckpt_err *err)
{
    svg *const own = canvas->own;
    for (int role = 0; role < CKPT_ROLE_COUNT; role++) {
        if (own->hatched[role]) {
            pattern(&own->body, (ckpt_colour_role)role);
        }
    }
    ckpt_text_add(&own->body, "</svg>\n");
    const ckpt_code code = ckpt_text_end(&own->body, err);
    if (code == CKPT_OK && text != NULL) {
        ckpt_text_put(text, own->body.bytes, own->body.length);
    }
    ckpt_text_fini(&own->body);
    return code;
}

const ckpt_renderer ckpt_renderer_svg = {
    .format = "svg",
    .width = 960,
    .height = 640,
    .open = svg_open,
    .measure = svg_measure,
    .area = svg_area,
    .boxes = svg_boxes,
    .line = svg_line,
    .text = svg_text,
    .close = svg_close,
};
