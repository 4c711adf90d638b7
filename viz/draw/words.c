/* Each letter is looked at once: what ckpt_utf8_length does not take is replaced. */
#include "viz/draw/words.h"

#include <string.h>

#include "viz/draw/draw.h"

static const char replacement[] = "\xEF\xBF\xBD";

void ckpt_words_xml(ckpt_text *text, const char *string)
{
    for (int length = 0; *string != '\0'; string += length > 0 ? length : 1) {
        length = ckpt_utf8_length(string);
        if (length > 1) {
            ckpt_text_put(text, string, (size_t)length);
        } else if (length == 1) {
            const char one[2] = {*string, '\0'};
            ckpt_text_xml(text, one);
        } else if (*string == '\n' || *string == '\t') {
            ckpt_text_add(text, "&#%d;", *string);
        } else {
            ckpt_text_add(text, "%s", replacement);
        }
    }
}

void ckpt_words_csv(ckpt_text *text, const char *string)
{
    ckpt_text_put(text, "\"", 1);
    if (string[0] != '\0' && strchr("=+-@", string[0]) != NULL) {
        ckpt_text_put(text, "'", 1);
    }
    for (int length = 0; *string != '\0'; string += length > 0 ? length : 1) {
        length = ckpt_utf8_length(string);
        ckpt_text_put(text, length > 0 ? string : replacement, length > 0 ? (size_t)length : sizeof replacement - 1);
        if (*string == '"') {
            ckpt_text_put(text, "\"", 1);
        }
    }
    ckpt_text_put(text, "\"", 1);
}

void ckpt_words_base64(ckpt_text *text, const void *bytes, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *const byte = bytes;
    for (size_t i = 0; i < length; i += 3) {
        const unsigned b = i + 1 < length ? byte[i + 1] : 0, c = i + 2 < length ? byte[i + 2] : 0;
        const unsigned all = (unsigned)byte[i] << 16 | b << 8 | c;
        const char four[] = {letters[all >> 18], letters[all >> 12 & 63], i + 1 < length ? letters[all >> 6 & 63] : '=',
                             i + 2 < length ? letters[all & 63] : '='};
        ckpt_text_put(text, four, sizeof four);
    }
}
