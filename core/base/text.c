/* Appends into one block that doubles, or is emptied into a drain. After a failed append all later ones do nothing. */
#include "core/base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"

enum { DRAINED = 1 << 18 }; /* bytes that go into a drain at once, or more */

void ckpt_text_init(ckpt_text *text)
{
    *text = (ckpt_text){.bytes = NULL};
}

void ckpt_text_flush(ckpt_text *text)
{
    if (!text->failed && text->drain != NULL && text->length > 0) {
        text->failed = !text->drain(text->to, text->bytes, text->length);
        text->length = 0;
    }
}

void ckpt_text_fini(ckpt_text *text)
{
    ckpt_memory_put(text->bytes);
    ckpt_text_init(text);
}

/* Room for `more` bytes and the terminating 0. */
static bool reserve(ckpt_text *text, size_t more)
{
    if (text->length >= DRAINED) {
        ckpt_text_flush(text);
    }
    if (text->failed || more > SIZE_MAX / 4 - text->length) {
        text->failed = true;
        return false;
    }
    const size_t wanted = text->length + more + 1;
    if (wanted > text->room) {
        const size_t room = wanted > 2 * text->room ? (wanted < 64 ? 64 : wanted) : 2 * text->room;
        char *const bytes = ckpt_memory_resize(text->bytes, room);
        if (bytes == NULL) {
            text->failed = true;
            return false;
        }
        text->bytes = bytes;
        text->room = room;
    }
    return true;
}

void ckpt_text_put(ckpt_text *text, const char *bytes, size_t length)
{
    if (reserve(text, length)) {
        if (length > 0) {
            memcpy(text->bytes + text->length, bytes, length);
        }
        text->length += length;
        text->bytes[text->length] = '\0';
    }
}

void ckpt_text_int(ckpt_text *text, int64_t value)
{
    char digits[20];
    char *at = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) {
        *--at = '-';
    }
    ckpt_text_put(text, at, (size_t)(digits + sizeof digits - at));
}

void ckpt_text_add(ckpt_text *text, const char *format, ...)
{
    char small[256];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (length < 0) {
        text->failed = true;
    } else if ((size_t)length < sizeof small) {
        ckpt_text_put(text, small, (size_t)length);
    } else if (reserve(text, (size_t)length)) {
        va_start(args, format);
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, args);
        va_end(args);
        text->length += (size_t)length;
    }
}

size_t ckpt_text_utf8(const char *at)
{
    const unsigned char *const c = (const unsigned char *)at;
    const size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool beyond = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || beyond ? 0 : length;
}

void ckpt_text_flatten(char *line)
{
    for (char *c = line; *c != '\0';) {
        const size_t length = ckpt_text_utf8(c);
        const bool second_set = length == 2 && (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0; /* of C1 */
        if (length == 0 || second_set) {
            memset(c, '?', length > 0 ? length : 1);
        } else if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = ' ';
        }
        c += length > 0 ? length : 1;
    }
}

void ckpt_text_json(ckpt_text *text, const char *string)
{
    ckpt_text_put(text, "\"", 1);
    for (const char *from = string; *from != '\0';) {
        size_t plain = 0;
        for (size_t more = 1; more > 0; plain += more) {
            const unsigned char c = (unsigned char)from[plain];
            more = c >= 0x80 ? ckpt_text_utf8(from + plain) : c >= 0x20 && c != '"' && c != '\\';
        }
        ckpt_text_put(text, from, plain);
        from += plain;
        if (*from == '\0') {
            break;
        }
        switch (*from) {
        case '"': ckpt_text_put(text, "\\\"", 2); break;
        case '\\': ckpt_text_put(text, "\\\\", 2); break;
        case '\n': ckpt_text_put(text, "\\n", 2); break;
        case '\t': ckpt_text_put(text, "\\t", 2); break;
        default:
            if ((unsigned char)*from >= 0x80) {
                ckpt_text_put(text, "?", 1);
            } else {
                ckpt_text_add(text, "\\u%04x", (unsigned)(unsigned char)*from);
            }
        }
        from++;
    }
    ckpt_text_put(text, "\"", 1);
}

void ckpt_text_xml(ckpt_text *text, const char *string)
{
    for (const char *c = string; *c != '\0'; c++) {
        switch (*c) {
        case '&': ckpt_text_put(text, "&amp;", 5); break;
        case '<': ckpt_text_put(text, "&lt;", 4); break;
        case '>': ckpt_text_put(text, "&gt;", 4); break;
        case '"': ckpt_text_put(text, "&quot;", 6); break;
        case '\'': ckpt_text_put(text, "&#39;", 5); break;
        default:
            /* XML 1.0 has no way to write most control characters. */
            if ((unsigned char)*c >= 0x20 || *c == '\n' || *c == '\t') {
                ckpt_text_put(text, c, 1);
            } else {
                ckpt_text_put(text, " ", 1);
            }
        }
    }
}

/* Where the locale's point, "," or bytes of UTF-8, stands in a number that printf wrote; length 0: there is none. Not from
 * localeconv, whose answer another thread may be changing. */
static size_t find_point(const char *number, size_t *length)
{
    const size_t at = strspn(number, "+-0123456789");
    *length = strcspn(number + at, "0123456789e");
    return at;
}

static const char *put_point(char *number)
{
    size_t length = 0;
    char *const at = number + find_point(number, &length);
    if (length > 0) {
        *at = '.';
        memmove(at + 1, at + length, strlen(at + length) + 1);
    }
    return number;
}

const char *ckpt_real_fixed(double value, int decimals, char *text)
{
    snprintf(text, CKPT_REAL_TEXT, "%.*f", decimals, value);
    return put_point(text);
}

const char *ckpt_real_general(double value, int digits, char *text)
{
    snprintf(text, CKPT_REAL_TEXT, "%.*g", digits, value);
    return put_point(text);
}

double ckpt_real_parse(const char *text, const char **end)
{
    static const char number[] = " \t+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char half[16];
    char small[64 + sizeof half];
    char *stop = NULL;
    size_t length = 0;
    snprintf(half, sizeof half, "%.1f", 0.5);
    const char *const point = half + find_point(half, &length);
    const size_t before = strspn(text, number);
    const bool real = text[before] == '.';
    const size_t after = real ? strspn(text + before + 1, number) : 0;
    const size_t room = before + length + after + 1;
    char *const copy = room <= sizeof small ? small : ckpt_memory_get(room);
    *end = text;
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, text, before);
    memcpy(copy + before, point, real ? length : 0);
    memcpy(copy + before + (real ? length : 0), text + before + real, after);
    copy[before + (real ? length : 0) + after] = '\0';
    const double value = strtod(copy, &stop);
    const size_t read = (size_t)(stop - copy);
    *end = text + (read > before ? read - length + 1 : read);
    ckpt_memory_put(copy != small ? copy : NULL);
    return value;
}

void ckpt_text_real(ckpt_text *text, double value)
{
    char number[CKPT_REAL_TEXT];
    const char *end = NULL;
    for (int digits = 1; digits <= 17; digits++) {
        if (ckpt_real_parse(ckpt_real_general(value, digits, number), &end) == value) {
            break;
        }
    }
    ckpt_text_add(text, "%s", number);
    if (strpbrk(number, ".e") == NULL) {
        ckpt_text_put(text, ".0", 2); /* so that it reads back as a real */
    }
}

ckpt_code ckpt_text_end(const ckpt_text *text, ckpt_err *err)
{
    return text->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a text of more than %zu bytes", text->length)
                        : CKPT_OK;
}
