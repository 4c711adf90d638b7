/* The renderers, one per file (Cairo's two share one). */
#ifndef CKPT_VIZ_DRAW_IMPL_H
#define CKPT_VIZ_DRAW_IMPL_H

#include "viz/draw.h"

extern const ckpt_renderer ckpt_renderer_svg, ckpt_renderer_png, ckpt_renderer_pdf, ckpt_renderer_txt;

#endif
