/* The hash of an inline style or script, as a Content-Security-Policy names it. */
#include "viz/html/html_hash.h"

#include <stdio.h>

#include "core/base/digest.h"
#include "viz/draw/words.h"

enum { BYTES = 32 };

void ckpt_html_hash(ckpt_text *text, const char *bytes, size_t length)
{
    char digits[CKPT_DIGEST_TEXT];
    unsigned char digest[BYTES] = {0};
    ckpt_digest *const sum = ckpt_digest_create();
    if (sum == NULL) {
        text->failed = true;
        return;
    }
    ckpt_digest_add(sum, bytes, length);
    ckpt_digest_end(sum, digits);
    for (int i = 0; i < BYTES; i++) {
        unsigned byte = 0;
        (void)sscanf(digits + 2 * i, "%2x", &byte);
        digest[i] = (unsigned char)byte;
    }
    ckpt_text_add(text, "'sha256-");
    ckpt_words_base64(text, digest, BYTES);
    ckpt_text_add(text, "'");
}
