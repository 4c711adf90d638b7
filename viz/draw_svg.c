/* SVG 1.1, written by hand so that the same picture is the same bytes on every machine. */
#include <math.h>
#include <stdlib.h>

#include "viz/draw_impl.h"

typedef struct svg {
    ckpt_text body;
} svg;

/* Tenths of a pixel, as an integer, so that no float formatting can differ. */
static long tenths(double v)
{
    return lround(v * 10);
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

/* Relative horizontal and vertical moves: a staircase of 1000 steps stays small. */
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

static void svg_area(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_ink ink)
{
    svg *const own = canvas->own;
    path(&own->body, point, count);
    ckpt_text_add(&own->body, "z\" fill=\"%s\"/>\n", ckpt_ink_looks[ink].rgb);
}

static void svg_line(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen)
{
    svg *const own = canvas->own;
    path(&own->body, point, count);
    ckpt_text_add(&own->body, "\" fill=\"none\" stroke=\"%s\"", ckpt_ink_looks[pen->ink].rgb);
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
    ckpt_text_add(t, " fill=\"%s\"", ckpt_ink_looks[font->ink].rgb);
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

static ckpt_code svg_close(ckpt_canvas *canvas, ckpt_text *text, ckpt_err *err)
{
    svg *const own = canvas->own;
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
    .line = svg_line,
    .text = svg_text,
    .close = svg_close,
};
