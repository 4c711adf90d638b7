/* The renderers, one per file (Cairo's two share one), and what those that draw pixels share. */
#ifndef CKPT_VIZ_DRAW_DRAW_IMPL_H
#define CKPT_VIZ_DRAW_DRAW_IMPL_H

#include "viz/draw/draw.h"

#define CKPT_HATCH_TILE  6.0  /* pixels */
#define CKPT_HATCH_SHARE 0.35 /* how much of the hatching covers what is under it */

/* One tile of a hatching: lines with round ends; a line of no length is a dot. */
typedef struct ckpt_hatch_look {
    int count;
    double line[4][4]; /* x, y to x, y */
    double width;
} ckpt_hatch_look;
extern const ckpt_hatch_look ckpt_hatch_looks[CKPT_HATCH_COUNT];

/* Whether an area of this colour role is hatched. */
bool ckpt_hatch_shows(ckpt_colour_role role, double width, double height);

/* No picture is larger than 16384 pixels: what lies far outside is brought nearer (Cairo would dash a line of 10^9
 * pixels to its end), and what is no number is 0. */
ckpt_point ckpt_point_fit(ckpt_point point);

/* What of a box is drawn: at least a visible speck, less the hair between neighbours. False: nothing. */
bool ckpt_box_fit(const ckpt_box *box, ckpt_box *shown);

extern const ckpt_renderer ckpt_renderer_svg, ckpt_renderer_png, ckpt_renderer_pdf, ckpt_renderer_txt;

#endif
