/* The table of what is in memory and why, as a part of a picture. */
#ifndef CKPT_VIZ_TIMELINE_VIEW_LIVE_SET_H
#define CKPT_VIZ_TIMELINE_VIEW_LIVE_SET_H

#include "viz/timeline/live_ranges.h"
#include "viz/timeline/view_draw.h"

/* The colour role of a live range. */
ckpt_colour_role ckpt_live_range_role(ckpt_live_range_kind kind);

/* Lines (view->line each) that the table takes: a heading, a row each, what is left, what has no known address, and the
 * static block.
 * Where names and reasons do not fit side by side, reasons have lines of their own. */
int ckpt_view_live_set_lines(ckpt_view *view, const ckpt_live_set *live, double width);

/* Swatch, name, bytes, share of `whole` and reason, from (x, y) down. The heading says that it is the peak. */
void ckpt_view_draw_live_set(ckpt_view *view, const ckpt_live_set *live, ckpt_bytes whole, double x, double y,
                             double width);

#endif
