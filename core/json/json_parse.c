/* JSON text to an index of it (RFC 8259). One walk checks everything: what the cursor reads later is valid, so it only
 * looks values up. The contents of arrays and objects that are still open are on a stack, and move into the index
 * when the end is found, side by side. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/names.h"
#include "core/base/text.h"
#include "core/json/json_impl.h"

/* Values may be in one another this deep. Objects with up to FEW members are searched for a key that is there twice
 * without a table. Messages show what is up to SHOWN bytes long. */
enum { DEEPEST = 2048, FEW = 16, SHOWN = 20 };

/* Tokens other than { } [ ] : and ,. WORD is true, false or null. */
enum { END = 0, STRING = '"', NUMBER = '0', WORD = 'w', INVALID = '?', FAILED = -1 };

typedef struct entries {
    ckpt_json_entry *at;
    size_t count, room;
} entries;

typedef struct parser {
    ckpt_json *json;
    char *start, *at; /* the token, and what follows it */
    bool escaped;     /* the token is a string with escapes */
    entries open;     /* of arrays and objects that are still open */
    entries index;
    int depth;
    ckpt_code code; /* of the first failure */
    ckpt_err *err;
} parser;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* ---- failures ---- */

/* The place of a failure is the last character of what was read. */
static int fail(parser *p, const char *what)
{
    const size_t length = (size_t)(p->at - p->start);
    ckpt_position place = {1, 1};
    size_t counted = 0;
    char message[160];
    ckpt_json_count(p->json, &counted, &place, (size_t)(p->at - p->json->text));
    place.column -= place.column > 1;
    if (length == 0) {
        snprintf(message, sizeof message, "%s%s", what, *p->at == '\0' ? " near end of file" : "");
    } else if (length > SHOWN) {
        snprintf(message, sizeof message, "%s", what);
    } else {
        const char *const quote = p->at[-1] == '\0' ? "\"" : "";
        snprintf(message, sizeof message, "%s near '%.*s%s'", what, (int)length, p->start, quote);
    }
    p->code = ckpt_json_fail_at(p->json, place, message, p->err);
    return FAILED;
}

static int no_memory(parser *p)
{
    p->code =
        CKPT_FAIL(p->err, CKPT_NO_MEMORY, "%.200s: no memory to parse %zu bytes", p->json->source, p->json->length);
    return FAILED;
}

static int fail_byte(parser *p)
{
    char what[40];
    snprintf(what, sizeof what, "unable to decode byte 0x%x", (unsigned)(unsigned char)*p->at);
    return fail(p, what);
}

/* ---- tokens ---- */

/* Four hexadecimal digits. */
static unsigned hex(const char *digits)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = digits[i];
        value = 16 * value + (unsigned)(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

static bool is_high(unsigned code)
{
    return code >= 0xd800 && code < 0xdc00;
}

static bool is_low(unsigned code)
{
    return code >= 0xdc00 && code < 0xe000;
}

/* The escape at *from as UTF-8; *from is set behind it. Gives the number of bytes. */
static int decode_escape(const char **from, char to[4])
{
    static const char plain[] = "\"\\/bfnrt";
    static const char means[] = "\"\\/\b\f\n\r\t";
    const char *const escape = *from + 1;
    *from += 2;
    if (*escape != 'u') {
        to[0] = means[strchr(plain, *escape) - plain];
        return 1;
    }
    unsigned code = hex(escape + 1);
    *from += 4;
    if (is_high(code)) {
        code = 0x10000 + ((code - 0xd800) << 10) + (hex(escape + 7) - 0xdc00);
        *from += 6;
    }
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6) {
        to[i] = (char)(0x80 | (code & 0x3f));
    }
    to[0] = (char)((length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0) | code);
    return length;
}

/* The string is over: its \u must be characters. */
static int check_unicode(parser *p)
{
    char what[60];
    for (const char *c = p->start + 1; c < p->at - 1; c++) {
        if (*c != '\\') {
            continue;
        }
        c++;
        if (*c != 'u') {
            continue;
        }
        const unsigned code = hex(c + 1);
        c += 4;
        if (is_low(code) || (is_high(code) && !(c[1] == '\\' && c[2] == 'u'))) {
            snprintf(what, sizeof what, "invalid Unicode '\\u%04X'", code);
            return fail(p, what);
        }
        if (is_high(code)) {
            if (!is_low(hex(c + 3))) {
                snprintf(what, sizeof what, "invalid Unicode '\\u%04X\\u%04X'", code, hex(c + 3));
                return fail(p, what);
            }
            c += 6;
        }
    }
    return STRING;
}

/* A byte that is no UTF-8 follows the token. */
static bool is_spoilt(const parser *p)
{
    return (unsigned char)*p->at >= 0x80 && ckpt_text_utf8(p->at) == 0;
}

static bool scan_escape(parser *p)
{
    p->at++;
    if (*p->at == 'u') {
        p->at++;
        for (int i = 0; i < 4; i++, p->at++) {
            if (!is_hex(*p->at)) {
                return false;
            }
        }
        return true;
    }
    if (*p->at == '\0' || strchr("\"\\/bfnrt", *p->at) == NULL) {
        return false;
    }
    p->at++;
    return true;
}

static int scan_string(parser *p)
{
    p->escaped = false;
    for (p->at = p->start + 1; *p->at != '"';) {
        const unsigned char c = (unsigned char)*p->at;
        if (c >= 0x80) {
            const size_t length = ckpt_text_utf8(p->at);
            if (length == 0) {
                return fail_byte(p);
            }
            p->at += length;
        } else if (c == '\0') {
            return fail(p, "premature end of input");
        } else if (c == '\n') {
            return fail(p, "unexpected newline");
        } else if (c < 0x20) {
            char what[40];
            snprintf(what, sizeof what, "control character 0x%x", (unsigned)c);
            return fail(p, what);
        } else if (c != '\\') {
            p->at++;
        } else {
            p->escaped = true;
            if (!scan_escape(p)) {
                if (is_spoilt(p)) {
                    return fail_byte(p);
                }
                p->at += *p->at != '\0';
                return fail(p, "invalid escape");
            }
        }
    }
    p->at++;
    return p->escaped ? check_unicode(p) : STRING;
}

static void skip_digits(parser *p)
{
    while (is_digit(*p->at)) {
        p->at++;
    }
}

static int fail_number(parser *p, const char *what)
{
    return is_spoilt(p) ? fail_byte(p) : fail(p, what);
}

/* An integer has 63 bits and a sign. */
static int check_integer(parser *p)
{
    const bool negative = *p->start == '-';
    const uint64_t most = (uint64_t)INT64_MAX + negative;
    uint64_t value = 0;
    for (const char *c = p->start + negative; c < p->at; c++) {
        const unsigned digit = (unsigned)(*c - '0');
        if (value > (most - digit) / 10) {
            return fail_number(p, negative ? "too big negative integer" : "too big integer");
        }
        value = 10 * value + digit;
    }
    return NUMBER;
}

static int check_real(parser *p)
{
    const char *end = NULL;
    const double value = ckpt_real_parse(p->start, &end);
    if (end == p->start) {
        return no_memory(p);
    }
    return isfinite(value) ? NUMBER : fail_number(p, "real number overflow");
}

static int scan_number(parser *p)
{
    p->at = p->start + (*p->start == '-');
    if (!is_digit(*p->at) || (*p->at == '0' && is_digit(p->at[1]))) {
        p->at += *p->at == '0';
        return INVALID;
    }
    skip_digits(p);
    if (*p->at != '.' && *p->at != 'e' && *p->at != 'E') {
        return check_integer(p);
    }
    if (*p->at == '.') {
        p->at++;
        if (!is_digit(*p->at)) {
            return INVALID;
        }
        skip_digits(p);
    }
    if (*p->at == 'e' || *p->at == 'E') {
        p->at++;
        p->at += *p->at == '+' || *p->at == '-';
        if (!is_digit(*p->at)) {
            return INVALID;
        }
        skip_digits(p);
    }
    return check_real(p);
}

/* The whole word, for the message. */
static int scan_word(parser *p)
{
    for (p->at = p->start; is_letter(*p->at);) {
        p->at++;
    }
    const size_t length = (size_t)(p->at - p->start);
    const bool known = (length == 4 && (memcmp(p->start, "true", 4) == 0 || memcmp(p->start, "null", 4) == 0)) ||
                       (length == 5 && memcmp(p->start, "false", 5) == 0);
    return known ? WORD : INVALID;
}

static int scan(parser *p)
{
    char *c = p->at;
    while (*c == ' ' || *c == '\n' || *c == '\t' || *c == '\r') {
        c++;
    }
    p->start = p->at = c;
    int token = INVALID;
    switch (*c) {
    case '\0': return END;
    case '{':
    case '}':
    case '[':
    case ']':
    case ':':
    case ',': p->at++; return *c;
    case '"': return scan_string(p);
    default: break;
    }
    if (is_digit(*c) || *c == '-') {
        token = scan_number(p);
    } else if (is_letter(*c)) {
        token = scan_word(p);
    } else {
        p->at += ckpt_text_utf8(c);
        return p->at > c ? INVALID : fail_byte(p);
    }
    return token != FAILED && is_spoilt(p) ? fail_byte(p) : token;
}

/* ---- values ---- */

static bool add(parser *p, entries *list, ckpt_json_entry entry)
{
    if (list->count == list->room) {
        const size_t room = list->room > 0 ? 2 * list->room : 64;
        ckpt_json_entry *const at = ckpt_memory_resize(list->at, room * sizeof *at);
        if (at == NULL) {
            no_memory(p);
            return false;
        }
        list->at = at;
        list->room = room;
    }
    list->at[list->count++] = entry;
    return true;
}

/* What was opened since `base` is complete. */
static bool close_list(parser *p, size_t base, ckpt_json_entry *made)
{
    const size_t count = p->open.count - base;
    made->inner = (uint32_t)p->index.count;
    if (!add(p, &p->index, (ckpt_json_entry){(uint32_t)count, 0})) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!add(p, &p->index, p->open.at[base + i])) {
            return false;
        }
    }
    p->open.count = base;
    return true;
}

static bool fail_twice(parser *p, const ckpt_json_entry *member)
{
    p->start = p->json->text + ckpt_json_key_at(p->json, member);
    p->at = p->start + strlen(p->start) + 1;
    return fail(p, "duplicate object key") != FAILED;
}

/* The last of an object's members has a key of its own. Objects with many members are looked at when they end. */
static bool check_key(parser *p, size_t base)
{
    const ckpt_json_entry *const member = p->open.at + base;
    const size_t last = p->open.count - base - 1;
    const char *const key = ckpt_json_key(p->json, &member[last]);
    for (size_t i = 0; i < last && last < FEW; i++) {
        if (strcmp(ckpt_json_key(p->json, &member[i]), key) == 0) {
            return fail_twice(p, &member[last]);
        }
    }
    return true;
}

static bool check_keys_by_table(parser *p, size_t base, ckpt_arena *scratch)
{
    const ckpt_json_entry *const member = p->open.at + base;
    const size_t count = p->open.count - base;
    ckpt_names names;
    p->code = ckpt_names_init(&names, (int)count, scratch, p->err);
    for (size_t i = 0; i < count && p->code == CKPT_OK; i++) {
        if (ckpt_names_add(&names, ckpt_json_key(p->json, &member[i]), (int)i) >= 0) {
            return fail_twice(p, &member[i]);
        }
    }
    return p->code == CKPT_OK;
}

static bool check_keys(parser *p, size_t base)
{
    if (p->open.count - base <= FEW) {
        return true;
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const bool different = check_keys_by_table(p, base, &scratch);
    ckpt_arena_fini(&scratch);
    return different;
}

/* Replaces the closing quote. Without its escapes the string must not have a 0 byte, which would end it. */
static bool end_string(parser *p, const char *complaint)
{
    for (const char *c = p->start; p->escaped && c < p->at; c += *c == '\\' ? 2 : 1) {
        if (c[0] == '\\' && c[1] == 'u' && hex(c + 2) == 0) {
            return fail(p, complaint) != FAILED;
        }
    }
    p->at[-1] = '\0';
    return true;
}

/* The key that was scanned, as it is without its escapes. */
static bool keep_key(parser *p, ckpt_json_entry *member)
{
    ckpt_json *const json = p->json;
    member->at = (uint32_t)(p->start - json->text);
    member->inner = 0;
    if (!p->escaped) {
        return true;
    }
    const size_t room = (size_t)(p->at - p->start);
    char *const plain = ckpt_arena_take(&json->arena, room, 1);
    ckpt_json_escaped *const escaped = ckpt_memory_resize(json->escaped, (json->escaped_count + 1) * sizeof *escaped);
    if (plain == NULL || escaped == NULL) {
        json->escaped = escaped != NULL ? escaped : json->escaped;
        return no_memory(p) != FAILED;
    }
    ckpt_json_decode(p->start, plain, room);
    json->escaped = escaped;
    escaped[json->escaped_count] = (ckpt_json_escaped){plain, member->at};
    member->at = (uint32_t)(json->length + json->escaped_count++);
    return true;
}

static bool parse_value(parser *p, int token, ckpt_json_entry *made);

static bool parse_member(parser *p, size_t base)
{
    ckpt_json_entry member, value;
    if (!end_string(p, "NUL byte in object key not supported") || !keep_key(p, &member) || !add(p, &p->open, member) ||
        !check_key(p, base)) {
        return false;
    }
    const int colon = scan(p);
    if (colon != ':') {
        return colon != FAILED && fail(p, "':' expected") != FAILED;
    }
    const size_t at = p->open.count - 1;
    if (!parse_value(p, scan(p), &value)) {
        return false;
    }
    p->open.at[at].inner = value.inner;
    return true;
}

static bool parse_object(parser *p, ckpt_json_entry *made)
{
    const size_t base = p->open.count;
    int token = scan(p);
    if (token == '}') {
        return close_list(p, base, made);
    }
    for (;;) {
        if (token != STRING) {
            return token != FAILED && fail(p, "string or '}' expected") != FAILED;
        }
        if (!parse_member(p, base)) {
            return false;
        }
        token = scan(p);
        if (token != ',') {
            break;
        }
        token = scan(p);
    }
    if (token != '}') {
        return token != FAILED && fail(p, "'}' expected") != FAILED;
    }
    return check_keys(p, base) && close_list(p, base, made);
}

static bool parse_array(parser *p, ckpt_json_entry *made)
{
    const size_t base = p->open.count;
    int token = scan(p);
    if (token == ']') {
        return close_list(p, base, made);
    }
    while (token != END && token != FAILED) {
        ckpt_json_entry element;
        if (!parse_value(p, token, &element) || !add(p, &p->open, element)) {
            return false;
        }
        token = scan(p);
        if (token != ',') {
            break;
        }
        token = scan(p);
    }
    if (token != ']') {
        return token != FAILED && fail(p, "']' expected") != FAILED;
    }
    return close_list(p, base, made);
}

/* The value that starts with `token`. */
static bool parse_value(parser *p, int token, ckpt_json_entry *made)
{
    *made = (ckpt_json_entry){(uint32_t)(p->start - p->json->text), 0};
    p->depth++;
    bool parsed = true;
    if (token == FAILED) {
        parsed = false;
    } else if (p->depth > DEEPEST) {
        parsed = fail(p, "maximum parsing depth reached") != FAILED;
    } else if (token == STRING) {
        parsed = end_string(p, "\\u0000 is not allowed");
    } else if (token == '{') {
        parsed = parse_object(p, made);
    } else if (token == '[') {
        parsed = parse_array(p, made);
    } else if (token != NUMBER && token != WORD) {
        parsed = fail(p, token == INVALID ? "invalid token" : "unexpected token") != FAILED;
    }
    p->depth--;
    return parsed;
}

static bool parse_document(parser *p)
{
    const int token = scan(p);
    if (token != '[' && token != '{') {
        return token != FAILED && fail(p, "'[' or '{' expected") != FAILED;
    }
    if (!parse_value(p, token, &p->json->root)) {
        return false;
    }
    const int end = scan(p);
    return end == END || (end != FAILED && fail(p, "end of file expected") != FAILED);
}

ckpt_code ckpt_json_parse(ckpt_json *json, ckpt_err *err)
{
    parser p = {.json = json, .start = json->text, .at = json->text, .err = err};
    const bool parsed = parse_document(&p);
    ckpt_memory_put(p.open.at);
    json->entry = p.index.at;
    return parsed ? CKPT_OK : p.code;
}

/* ---- strings ---- */

void ckpt_json_decode(const char *string, char *to, size_t room)
{
    size_t length = 0;
    for (const char *c = string + 1; *c != '\0' && length + 1 < room;) {
        if (*c != '\\') {
            to[length++] = *c++;
            continue;
        }
        char bytes[4];
        const int count = decode_escape(&c, bytes);
        for (int i = 0; i < count && length + 1 < room; i++) {
            to[length++] = bytes[i];
        }
    }
    to[length] = '\0';
}
