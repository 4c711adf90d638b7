/* What the page (view_html.c) and its data (view_html_data.c) share. */
#ifndef CKPT_VIZ_HTML_VIEW_HTML_IMPL_H
#define CKPT_VIZ_HTML_VIEW_HTML_IMPL_H

#include "viz/timeline/live_ranges.h"
#include "viz/timeline/view_draw.h"

/* The page's parts as they stand in viz/html/, written into the library by the build. Terminated; sizes
 * without that. */
extern const char ckpt_html_page[], ckpt_html_style[], ckpt_html_script[];
extern const unsigned ckpt_html_page_size, ckpt_html_style_size, ckpt_html_script_size;

/* Append what the page's script reads, as JSON. `view` has its series, lanes, words and scratch. */
CKPT_MUST_USE ckpt_code ckpt_html_data(const ckpt_view *view, const ckpt_view_options *options, ckpt_text *json,
                                       ckpt_err *err);

#endif
