/* What a page with a strict Content-Security-Policy needs: the hash that allows one inline style or script. */
#ifndef CKPT_VIZ_HTML_HTML_HASH_H
#define CKPT_VIZ_HTML_HTML_HASH_H

#include "core/base/text.h"

/* Append 'sha256-...' (CSP Level 3, 2.3.1 hash-source), quotes included, of what stands between a tag's brackets. No
 * memory shows when the text ends. */
void ckpt_html_hash(ckpt_text *text, const char *bytes, size_t length);

#endif
