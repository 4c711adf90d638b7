/* The hash of an inline style or script, as a Content-Security-Policy names it. */
#include "viz/html/html_hash.h"

#include <stdio.h>

#include "core/base/digest.h"

enum { BYTES = 32 };

/* RFC 4648, section 4. */
static void put_base64(ckpt_text *text, const unsigned char *bytes, int count)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < count; i += 3) {
        const unsigned b = i + 1 < count ? bytes[i + 1] : 0, c = i + 2 < count ? bytes[i + 2] : 0;
        const unsigned all = (unsigned)bytes[i] << 16 | b << 8 | c;
        const char four[] = {letters[all >> 18], letters[all >> 12 & 63], i + 1 < count ? letters[all >> 6 & 63] : '=',
                             i + 2 < count ? letters[all & 63] : '='};
        ckpt_text_put(text, four, sizeof four);
    }
}

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
    put_base64(text, digest, BYTES);
    ckpt_text_add(text, "'");
}
