/* What the writing of a drawing in DOT (graph_draw.c) and its rendering (graph_render.c) share. */
#ifndef CKPT_VIZ_GRAPH_DRAW_IMPL_H
#define CKPT_VIZ_GRAPH_DRAW_IMPL_H

#include "core/status.h"
#include "core/text.h"

/* Lay out the graph that `dot` describes and append the picture to `text`. Graphviz says nothing on stderr.
 *   format   "svg", "png", "pdf" */
CKPT_MUST_USE ckpt_code ckpt_dot_render(const char *dot, const char *format, ckpt_text *text, ckpt_err *err);

#endif
