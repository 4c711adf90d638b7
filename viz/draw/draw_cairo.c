/* PNG and PDF through Cairo. Cairo keeps its first error to itself and does nothing after it: asked once, at close. */
#include <cairo-pdf.h>
#include <cairo.h>

#include "viz/draw/draw_impl.h"

typedef struct pages {
    cairo_surface_t *surface;
    cairo_t *cairo;
    ckpt_text bytes;
    bool png;
    cairo_pattern_t *hatch[CKPT_ROLE_COUNT]; /* NULL: not used so far */
} pages;

static cairo_status_t add_bytes(void *closure, const unsigned char *data, unsigned int length)
{
    pages *const own = closure;
    ckpt_text_put(&own->bytes, (const char *)data, length);
    return own->bytes.failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static void set_role(cairo_t *cairo, ckpt_colour_role role)
{
    const ckpt_colour_role_look *const look = &ckpt_colour_role_looks[role];
    cairo_set_source_rgb(cairo, look->red, look->green, look->blue);
}

/* The path's fill: a tile that repeats over the page, so that the lines of neighbours meet. Recorded, not painted: a PDF
 * keeps lines. */
static void set_hatch(pages *own, ckpt_colour_role role)
{
    if (own->hatch[role] == NULL) {
        const ckpt_hatch_look *const look = &ckpt_hatch_looks[ckpt_colour_role_looks[role].hatch];
        const ckpt_colour_role_look *const over = &ckpt_colour_role_looks[ckpt_colour_role_looks[role].text];
        const cairo_rectangle_t tile = {0, 0, CKPT_HATCH_TILE, CKPT_HATCH_TILE};
        cairo_surface_t *const surface = cairo_recording_surface_create(CAIRO_CONTENT_COLOR_ALPHA, &tile);
        cairo_t *const cairo = cairo_create(surface);
        set_role(cairo, role);
        cairo_paint(cairo);
        for (int i = 0; i < look->count; i++) {
            cairo_move_to(cairo, look->line[i][0], look->line[i][1]);
            cairo_line_to(cairo, look->line[i][2], look->line[i][3]);
        }
        cairo_set_line_cap(cairo, CAIRO_LINE_CAP_ROUND);
        cairo_set_line_width(cairo, look->width);
        cairo_set_source_rgba(cairo, over->red, over->green, over->blue, CKPT_HATCH_SHARE);
        cairo_stroke(cairo);
        own->hatch[role] = cairo_pattern_create_for_surface(surface);
        cairo_pattern_set_extend(own->hatch[role], CAIRO_EXTEND_REPEAT);
        cairo_destroy(cairo);
        cairo_surface_destroy(surface);
    }
    if (!own->png) { /* under the tiles: viewers of PDF leave seams between them */
        set_role(own->cairo, role);
        cairo_fill_preserve(own->cairo);
    }
    cairo_set_source(own->cairo, own->hatch[role]);
}

static void fini(pages *own)
{
    for (int i = 0; i < CKPT_ROLE_COUNT; i++) {
        cairo_pattern_destroy(own->hatch[i]);
    }
    cairo_destroy(own->cairo);
    cairo_surface_destroy(own->surface);
    ckpt_text_fini(&own->bytes);
}

/* What fonts take. Refused in between, their library crashes. */
enum { FONT_BYTES = 16 << 20 };

static ckpt_code page_open(ckpt_canvas *canvas, bool png, const char *title, ckpt_err *err)
{
    if (!ckpt_memory_is_room(FONT_BYTES)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for fonts");
    }
    pages *const own = CKPT_NEW(canvas->scratch, pages, 1);
    if (own == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a picture");
    }
    canvas->own = own;
    own->png = png;
    ckpt_text_init(&own->bytes);
    if (png) {
        own->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)canvas->width, (int)canvas->height);
    } else {
        own->surface = cairo_pdf_surface_create_for_stream(add_bytes, own, canvas->width * 0.75, canvas->height * 0.75);
        cairo_pdf_surface_set_metadata(own->surface, CAIRO_PDF_METADATA_TITLE, title);
        cairo_pdf_surface_set_metadata(own->surface, CAIRO_PDF_METADATA_CREATE_DATE, ""); /* the same bytes always */
    }
    own->cairo = cairo_create(own->surface);
    if (cairo_status(own->cairo) != CAIRO_STATUS_SUCCESS) {
        const ckpt_code code = CKPT_FAIL(err, CKPT_NO_MEMORY, "Cairo, %.0f x %.0f pixels: %s", canvas->width,
                                         canvas->height, cairo_status_to_string(cairo_status(own->cairo)));
        fini(own);
        return code;
    }
    if (!png) {
        cairo_scale(own->cairo, 0.75, 0.75); /* 96 pixels to the inch; PDF has 72 points */
    }
    set_role(own->cairo, CKPT_ROLE_PAPER);
    cairo_paint(own->cairo);
    return CKPT_OK;
}

static ckpt_code png_open(ckpt_canvas *canvas, const char *title, const char *about, ckpt_err *err)
{
    (void)about;
    return page_open(canvas, true, title, err);
}

static ckpt_code pdf_open(ckpt_canvas *canvas, const char *title, const char *about, ckpt_err *err)
{
    (void)about;
    return page_open(canvas, false, title, err);
}

static void select_font(cairo_t *cairo, const ckpt_font *font)
{
    cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           font->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, font->size);
}

static double page_measure(const ckpt_canvas *canvas, const ckpt_font *font, const char *text)
{
    pages *const own = canvas->own;
    if (own == NULL) { /* laid out before it is opened */
        return ckpt_text_width(text, font->size, font->bold);
    }
    cairo_text_extents_t extents;
    select_font(own->cairo, font);
    cairo_text_extents(own->cairo, text, &extents);
    return extents.x_advance;
}

static void follow(cairo_t *cairo, const ckpt_point *point, int count)
{
    cairo_new_path(cairo);
    for (int i = 0; i < count; i++) {
        const ckpt_point at = ckpt_point_fit(point[i]);
        cairo_line_to(cairo, at.x, at.y);
    }
}

static void page_area(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_colour_role role)
{
    pages *const own = canvas->own;
    double left = 0, top = 0, right = 0, bottom = 0;
    follow(own->cairo, point, count);
    cairo_close_path(own->cairo);
    cairo_path_extents(own->cairo, &left, &top, &right, &bottom);
    if (ckpt_hatch_shows(role, right - left, bottom - top)) {
        set_hatch(own, role);
    } else {
        set_role(own->cairo, role);
    }
    cairo_fill(own->cairo);
}

static void page_boxes(ckpt_canvas *canvas, const ckpt_box *box, int count)
{
    pages *const own = canvas->own;
    for (int n = 0; n < 2 * CKPT_ROLE_COUNT; n++) {
        const ckpt_colour_role role = (ckpt_colour_role)(n / 2);
        const bool hatched = n % 2 == 1;
        bool any = false;
        cairo_new_path(own->cairo);
        for (int i = 0; i < count; i++) {
            ckpt_box shown;
            if (box[i].role == role && ckpt_box_fit(&box[i], &shown) &&
                ckpt_hatch_shows(role, shown.width, shown.height) == hatched) {
                cairo_rectangle(own->cairo, shown.x, shown.y, shown.width, shown.height);
                any = true;
            }
        }
        if (any && hatched) {
            set_hatch(own, role);
        } else if (any) {
            set_role(own->cairo, role);
        }
        cairo_fill(own->cairo);
    }
}

static void page_line(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen)
{
    cairo_t *const cairo = ((pages *)canvas->own)->cairo;
    follow(cairo, point, count);
    const double dashes[2] = {pen->dash, pen->dash * 0.6};
    cairo_set_dash(cairo, dashes, pen->dash > 0 ? 2 : 0, 0);
    cairo_set_line_width(cairo, pen->width);
    set_role(cairo, pen->role);
    cairo_stroke(cairo);
}

static void page_text(ckpt_canvas *canvas, double x, double y, const ckpt_font *font, const char *text)
{
    cairo_t *const cairo = ((pages *)canvas->own)->cairo;
    const double width = font->align >= 0 ? page_measure(canvas, font, text) : 0;
    const ckpt_point at = ckpt_point_fit((ckpt_point){x, y});
    select_font(cairo, font);
    set_role(cairo, font->role);
    cairo_move_to(cairo, at.x - (font->align + 1) * width / 2, at.y + 0.36 * font->size);
    cairo_show_text(cairo, text);
}

static ckpt_code page_close(ckpt_canvas *canvas, ckpt_text *text, ckpt_err *err)
{
    pages *const own = canvas->own;
    ckpt_code code = CKPT_OK;
    if (text != NULL) {
        cairo_status_t status = cairo_status(own->cairo);
        if (status == CAIRO_STATUS_SUCCESS && own->png) {
            status = cairo_surface_write_to_png_stream(own->surface, add_bytes, own);
        } else if (status == CAIRO_STATUS_SUCCESS) {
            cairo_surface_finish(own->surface);
            status = cairo_surface_status(own->surface);
        }
        code = ckpt_text_end(&own->bytes, err);
        if (code == CKPT_OK && status != CAIRO_STATUS_SUCCESS) {
            code = CKPT_FAIL(err, CKPT_NO_MEMORY, "Cairo: %s", cairo_status_to_string(status));
        }
        if (code == CKPT_OK) {
            ckpt_text_put(text, own->bytes.bytes, own->bytes.length);
        }
    }
    fini(own);
    return code;
}

const ckpt_renderer ckpt_renderer_png = {
    .format = "png",
    .width = 960,
    .height = 640,
    .open = png_open,
    .measure = page_measure,
    .area = page_area,
    .boxes = page_boxes,
    .line = page_line,
    .text = page_text,
    .close = page_close,
};

const ckpt_renderer ckpt_renderer_pdf = {
    .format = "pdf",
    .width = 960,
    .height = 640,
    .open = pdf_open,
    .measure = page_measure,
    .area = page_area,
    .boxes = page_boxes,
    .line = page_line,
    .text = page_text,
    .close = page_close,
};
