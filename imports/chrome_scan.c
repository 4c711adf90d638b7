/* A cursor over JSON that builds nothing: most of a trace of hundreds of megabytes is members that nobody needs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "imports/chrome_impl.h"

enum { DEEPEST = 64 };

static void find_place(const ckpt_scan *scan, const char *at, int *line, int *column)
{
    const char *start = scan->text;
    *line = 1;
    for (const char *c = scan->text; c < at; c++) {
        if (*c == '\n') {
            ++*line;
            start = c + 1;
        }
    }
    *column = 1;
    for (const char *c = start; c < at; c++) {
        *column += ((unsigned char)*c & 0xc0) != 0x80; /* characters, not bytes */
    }
}

int ckpt_scan_line(const ckpt_scan *scan, const char *at)
{
    int line = 0;
    int column = 0;
    find_place(scan, at, &line, &column);
    return line;
}

ckpt_code ckpt_scan_fail(const ckpt_scan *scan, const char *at, ckpt_err *err, const char *format, ...)
{
    char message[300];
    int line = 0;
    int column = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    find_place(scan, at, &line, &column);
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s:%d:%d: %s", scan->source, line, column, message);
}

/* Fails with "the file ends here", or with the text found. */
static ckpt_code unexpected(ckpt_scan *scan, ckpt_err *err, const char *wanted)
{
    if (scan->at >= scan->end) {
        scan->ended = true;
        return ckpt_scan_fail(scan, scan->end, err, "the file ends here, wanted %s", wanted);
    }
    const size_t left = (size_t)(scan->end - scan->at);
    return ckpt_scan_fail(scan, scan->at, err, "found \"%.*s\", wanted %s", left < 16 ? (int)left : 16, scan->at,
                          wanted);
}

void ckpt_scan_space(ckpt_scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r')) {
        scan->at++;
    }
}

static ckpt_code scan_text(ckpt_scan *scan, ckpt_slice *value, ckpt_err *err)
{
    const char *const start = scan->at;
    for (scan->at++; scan->at < scan->end && *scan->at != '"'; scan->at++) {
        scan->at += *scan->at == '\\';
    }
    if (scan->at >= scan->end) {
        scan->at = scan->end;
        return unexpected(scan, err, "the end of a text");
    }
    scan->at++;
    *value = (ckpt_slice){start, (size_t)(scan->at - start)};
    return CKPT_OK;
}

/* A number or a word. */
static ckpt_code scan_word(ckpt_scan *scan, ckpt_slice *value, ckpt_err *err)
{
    static const char *const words[] = {"true", "false", "null",      "NaN",  "nan",
                                        "-nan", "inf",   "-Infinity", "-inf", "Infinity"};
    const char *const start = scan->at;
    const char *c = start;
    bool number = true;
    while (c < scan->end && strchr(",:]}[{\" \t\r\n", *c) == NULL) { /* strchr finds a 0 byte too */
        number = number && strchr("+-.0123456789eE", *c) != NULL;
        c++;
    }
    const ckpt_slice word = {start, (size_t)(c - start)};
    bool known = number && c > start;
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !known; i++) {
        known = word.length == strlen(words[i]) && memcmp(word.at, words[i], word.length) == 0;
    }
    if (!known) {
        scan->at = c == scan->end ? c : start; /* half a word at the end of the file counts as its end */
        return unexpected(scan, err, "a value");
    }
    scan->at = c;
    *value = word;
    return CKPT_OK;
}

ckpt_code ckpt_scan_open(ckpt_scan *scan, char open, ckpt_err *err)
{
    ckpt_scan_space(scan);
    if (scan->at >= scan->end || *scan->at != open) {
        return unexpected(scan, err, open == '[' ? "an array" : "an object");
    }
    scan->at++;
    return CKPT_OK;
}

ckpt_code ckpt_scan_more(ckpt_scan *scan, char close, bool *first, ckpt_slice *key, bool *more, ckpt_err *err)
{
    ckpt_scan_space(scan);
    if (scan->at < scan->end && *scan->at == close) {
        scan->at++;
        *more = false;
        return CKPT_OK;
    }
    if (!*first) {
        if (scan->at >= scan->end || *scan->at != ',') {
            return unexpected(scan, err, close == ']' ? "',' or ']'" : "',' or '}'");
        }
        scan->at++;
        ckpt_scan_space(scan);
    }
    *first = false;
    *more = true;
    if (key == NULL) {
        return CKPT_OK;
    }
    if (scan->at >= scan->end || *scan->at != '"') {
        return unexpected(scan, err, "a key");
    }
    CKPT_TRY(scan_text(scan, key, err));
    ckpt_scan_space(scan);
    if (scan->at >= scan->end || *scan->at != ':') {
        return unexpected(scan, err, "':'");
    }
    scan->at++;
    return CKPT_OK;
}

static ckpt_code scan_value(ckpt_scan *scan, int depth, ckpt_slice *value, ckpt_err *err)
{
    ckpt_scan_space(scan);
    const char *const start = scan->at;
    if (start >= scan->end) {
        return unexpected(scan, err, "a value");
    }
    if (*start == '"') {
        return scan_text(scan, value, err);
    }
    if (*start != '{' && *start != '[') {
        return scan_word(scan, value, err);
    }
    if (depth == DEEPEST) {
        return ckpt_scan_fail(scan, start, err, "nested deeper than %d", DEEPEST);
    }
    const bool object = *start == '{';
    bool first = true;
    scan->at++;
    for (;;) {
        ckpt_slice key;
        ckpt_slice inner;
        bool more = false;
        CKPT_TRY(ckpt_scan_more(scan, object ? '}' : ']', &first, object ? &key : NULL, &more, err));
        if (!more) {
            break;
        }
        CKPT_TRY(scan_value(scan, depth + 1, &inner, err));
    }
    *value = (ckpt_slice){start, (size_t)(scan->at - start)};
    return CKPT_OK;
}

ckpt_code ckpt_scan_value(ckpt_scan *scan, ckpt_slice *value, ckpt_err *err)
{
    return scan_value(scan, 0, value, err);
}

/* Without the quotes. */
static ckpt_slice inside(ckpt_slice slice)
{
    return slice.length >= 2 && slice.at[0] == '"' ? (ckpt_slice){slice.at + 1, slice.length - 2} : slice;
}

bool ckpt_slice_is(ckpt_slice slice, const char *text)
{
    const size_t length = strlen(text);
    return slice.at != NULL && slice.length == length + 2 && slice.at[0] == '"' &&
           memcmp(slice.at + 1, text, length) == 0;
}

bool ckpt_slice_begins(ckpt_slice slice, const char *with)
{
    const size_t length = strlen(with);
    return slice.at != NULL && slice.length >= length + 2 && slice.at[0] == '"' &&
           memcmp(slice.at + 1, with, length) == 0;
}

bool ckpt_slice_none(ckpt_slice slice)
{
    return slice.at == NULL || (slice.length == 4 && memcmp(slice.at, "null", 4) == 0);
}

/* Digits of a decimal number and the power of ten of the last of them. */
typedef struct decimal {
    bool negative;
    uint64_t digits;
    int64_t power;
} decimal;

/* [-+]digits[.digits]; gives where it stopped, or NULL when there is no digit. Digits beyond the 19th are cut off. */
static const char *read_digits(const char *c, const char *end, decimal *number)
{
    bool any = false;
    bool fraction = false;
    *number = (decimal){.negative = c < end && *c == '-'};
    for (c += c < end && (*c == '-' || *c == '+'); c < end && ((*c >= '0' && *c <= '9') || (*c == '.' && !fraction));
         c++) {
        if (*c == '.') {
            fraction = true;
            continue;
        }
        any = true;
        if (number->digits < UINT64_C(1000000000000000000)) {
            number->digits = 10 * number->digits + (uint64_t)(*c - '0');
            number->power -= fraction;
        } else {
            number->power += !fraction;
        }
    }
    return any ? c : NULL;
}

bool ckpt_slice_number(ckpt_slice slice, int shift, int64_t *value)
{
    const ckpt_slice text = inside(slice);
    const char *const end = text.at + text.length;
    decimal number;
    const char *c = slice.at != NULL ? read_digits(text.at, end, &number) : NULL;
    if (c == NULL) {
        return false;
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        decimal exponent;
        c = read_digits(c + 1, end, &exponent);
        if (c == NULL || exponent.power != 0 || exponent.digits > 100000) {
            return false;
        }
        number.power += exponent.negative ? -(int64_t)exponent.digits : (int64_t)exponent.digits;
    }
    if (c != end) {
        return false;
    }
    for (number.power += shift; number.power < 0 && number.digits > 0; number.power++) {
        number.digits /= 10;
    }
    for (; number.power > 0 && number.digits > 0; number.power--) {
        if (number.digits > (UINT64_C(1) << 62) / 10) {
            return false;
        }
        number.digits *= 10;
    }
    if (number.digits >= UINT64_C(1) << 62) {
        return false;
    }
    *value = number.negative ? -(int64_t)number.digits : (int64_t)number.digits;
    return true;
}

/* Four hexadecimal digits; -1: they are not. */
static int read_hex(const char *c, const char *end)
{
    int value = 0;
    for (int i = 0; i < 4; i++, c++) {
        if (c >= end) {
            return -1;
        }
        const int digit = *c >= '0' && *c <= '9'   ? *c - '0'
                          : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
                          : *c >= 'A' && *c <= 'F' ? *c - 'A' + 10
                                                   : -1;
        if (digit < 0) {
            return -1;
        }
        value = 16 * value + digit;
    }
    return value;
}

/* Writes code point `u`; gives how many bytes. Source: RFC 3629, section 3. */
static size_t put_utf8(int u, char *to)
{
    if (u < 0x80) {
        to[0] = (char)u;
        return 1;
    }
    const int more = u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
    to[0] = (char)((0xff00 >> (more + 1)) | (u >> (6 * more)));
    for (int i = 1; i <= more; i++) {
        to[i] = (char)(0x80 | ((u >> (6 * (more - i))) & 0x3f));
    }
    return (size_t)more + 1;
}

/* What the escape at the backslash `*from` stands for, and past it. Gives how many bytes were written. */
static size_t unescape(const char **from, const char *end, char *to)
{
    static const char escapes[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *const c = *from + 1;
    const char *const known = c < end && *c != '\0' ? strchr(escapes, *c) : NULL;
    if (known != NULL) {
        *from = c + 1;
        to[0] = meant[known - escapes];
        return 1;
    }
    int u = c < end && *c == 'u' ? read_hex(c + 1, end) : -1;
    if (u < 0) { /* a backslash that escapes nothing: a path of Windows */
        *from = c;
        to[0] = '\\';
        return 1;
    }
    *from = c + 5;
    const int low = end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u' ? read_hex(*from + 2, end) : -1;
    if (u >= 0xd800 && u < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
        *from += 6;
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_utf8(u >= 0xd800 && u < 0xe000 ? '?' : u, to);
}

char *ckpt_slice_text(ckpt_slice slice, ckpt_arena *arena)
{
    const ckpt_slice text = slice.at != NULL ? inside(slice) : (ckpt_slice){"", 0};
    const char *const end = text.at + text.length;
    const bool quoted = text.at != slice.at;
    /* no escape is shorter than what it stands for, and none stands for more than 4 bytes */
    const size_t room = text.length < CKPT_IMPORT_NAME_MAX ? text.length : CKPT_IMPORT_NAME_MAX + 4;
    char *const copy = ckpt_arena_take(arena, room + 1, 1);
    if (copy == NULL) {
        return NULL;
    }
    char *to = copy;
    for (const char *from = text.at; from < end && to - copy <= CKPT_IMPORT_NAME_MAX;) {
        char *const before = to;
        if (*from == '\\' && quoted) {
            to += unescape(&from, end, to);
        } else {
            *to++ = *from++;
        }
        if (to == before + 1 && ((unsigned char)*before < 0x20 || *before == 0x7f)) {
            *before = ' ';
        }
    }
    copy[ckpt_import_cut(copy, (size_t)(to - copy), CKPT_IMPORT_NAME_MAX)] = '\0';
    return copy;
}
