/* The one table of functions every kind of picture fills: svg, png, pdf, terminal. All share one layout, which
 * draws in pixels from the top left corner; a terminal has cells of 8 x 16 of them. A new renderer is one more
 * `ckpt_renderer` and one line in draw.c. */
#ifndef CKPT_VIZ_DRAW_DRAW_H
#define CKPT_VIZ_DRAW_DRAW_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"

/* Colours by meaning. The palette is Okabe and Ito's, "Color Universal Design" (2008), safe for colour-blind
 * readers; what is static is grey. Neighbours in a stack differ in lightness too, so a grey print keeps them apart. */
typedef enum ckpt_colour_role {
    CKPT_ROLE_PAPER,
    CKPT_ROLE_BLACK,
    CKPT_ROLE_GREY,  /* secondary text */
    CKPT_ROLE_FAINT, /* grid */
    CKPT_ROLE_WEIGHTS,
    CKPT_ROLE_OPTIMIZER,
    CKPT_ROLE_PARAMETER_GRADIENTS,
    CKPT_ROLE_INPUTS,
    CKPT_ROLE_ACTIVATIONS,
    CKPT_ROLE_SAVED,
    CKPT_ROLE_GRADIENTS,
    CKPT_ROLE_WORKSPACE,
    CKPT_ROLE_STAGING,
    CKPT_ROLE_OTHER,
    CKPT_ROLE_OUTSIDE,
    CKPT_ROLE_BUDGET,
    CKPT_ROLE_RECOMPUTE, /* what is recomputed, and what that makes */
    CKPT_ROLE_OFFLOADED, /* what is copied to the host or was fetched from it */
    CKPT_ROLE_CAPACITY,  /* of the device */
    CKPT_ROLE_RESIDUAL,  /* measured less predicted */
    CKPT_ROLE_OPEN,      /* between what was found and what is proved */
    CKPT_ROLE_COUNT
} ckpt_colour_role;

/* The second cue beside colour: thin lines or dots over an area that is large enough to show them. */
typedef enum ckpt_hatch {
    CKPT_HATCH_NONE,
    CKPT_HATCH_RISING,
    CKPT_HATCH_FALLING,
    CKPT_HATCH_CROSS,
    CKPT_HATCH_LEVEL,
    CKPT_HATCH_DOTS,
    CKPT_HATCH_COUNT
} ckpt_hatch;

typedef struct ckpt_colour_role_look {
    const char *rgb;         /* "#rrggbb" */
    double red, green, blue; /* 0..1 */
    int ansi;                /* of the 256 terminal colours; -1: the terminal's own */
    const char *letter;      /* fills areas on a terminal without colours */
    ckpt_colour_role text;   /* for words on top of it, and its hatching */
    ckpt_hatch hatch;        /* of areas and boxes; a terminal has letters instead */
} ckpt_colour_role_look;
extern const ckpt_colour_role_look ckpt_colour_role_looks[CKPT_ROLE_COUNT];

typedef struct ckpt_point {
    double x, y;
} ckpt_point;

typedef struct ckpt_pen {
    ckpt_colour_role role;
    double width;
    double dash; /* length of dashes; 0: solid */
} ckpt_pen;

typedef struct ckpt_font {
    double size;
    bool bold;
    ckpt_colour_role role;
    int align; /* x is the left end (-1), the middle (0) or the right end (1) */
} ckpt_font;

/* Negative sizes and what is no number are not drawn; what is smaller than a pixel is made as large as one can see. A
 * box that is large enough gets a hair of paper around it, so that equal neighbours stay apart. */
typedef struct ckpt_box {
    double x, y, width, height;
    ckpt_colour_role role;
    const char *title; /* svg shows it when the pointer rests on the box; any bytes, may be long; NULL: none */
} ckpt_box;

typedef struct ckpt_renderer ckpt_renderer;

typedef struct ckpt_canvas {
    const ckpt_renderer *renderer;
    double width, height;           /* pixels */
    double cell_width, cell_height; /* nothing smaller can be told apart */
    bool color, ascii;              /* terminal */
    ckpt_arena *scratch;
    void *own; /* the renderer's */
} ckpt_canvas;

struct ckpt_renderer {
    const char *format; /* "svg": also the file extension */
    bool cells;         /* draws characters */
    int width, height;  /* default: pixels, or columns and rows */

    /* `title` and `about` describe the picture to those who cannot see it. */
    ckpt_code (*open)(ckpt_canvas *canvas, const char *title, const char *about, ckpt_err *err);
    double (*measure)(const ckpt_canvas *canvas, const ckpt_font *font, const char *text); /* pixels; before open too */
    void (*area)(ckpt_canvas *canvas, const ckpt_point *point, int count, ckpt_colour_role role); /* a closed polygon */
    /* Many at once. They must not overlap: all of one colour role are drawn together, whatever their order. */
    void (*boxes)(ckpt_canvas *canvas, const ckpt_box *box, int count);
    void (*line)(ckpt_canvas *canvas, const ckpt_point *point, int count, const ckpt_pen *pen);
    void (*text)(ckpt_canvas *canvas, double x, double y, const ckpt_font *font, const char *text); /* y: its middle */
    /* Always called after a successful open; `text` receives the picture, NULL throws it away. */
    ckpt_code (*close)(ckpt_canvas *canvas, ckpt_text *text, ckpt_err *err);
};

/* NULL when there is none of that name. */
const ckpt_renderer *ckpt_renderer_find(const char *format);

/* "svg, png, pdf, txt", as far as this build has them */
const char *ckpt_renderer_names(void);

#define CKPT_ANY_WIDTH 1e9

/* A copy of `text` that every renderer can show: control characters and what is no UTF-8 become U+FFFD; longer
 * than `width` pixels it loses its middle to "...". CKPT_ANY_WIDTH needs no open canvas. NULL without memory. */
const char *ckpt_canvas_fit(const ckpt_canvas *canvas, const ckpt_font *font, const char *text, double width);

/* Advance of `text` in DejaVu Sans (and Verdana, which has the same widths) at this size. */
double ckpt_text_width(const char *text, double size, bool bold);

/* Bytes of the UTF-8 character at `text`; 0 when it is none, or a control character. */
int ckpt_utf8_length(const char *text);

#endif
