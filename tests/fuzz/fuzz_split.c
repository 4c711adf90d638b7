/* What pieces inputs have. Bytes that are not what they should be end a list, and are no error. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { DEEPEST = 64 };

/* ---- texts ---- */

static bool is_word(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_.+-", c) != NULL;
}

/* Behind the string, number, word or sign that begins at `at`. */
static size_t token_end(const uint8_t *bytes, size_t at, size_t end)
{
    if (bytes[at] == '"') {
        for (at++; at < end && bytes[at] != '"'; at++) {
            at += bytes[at] == '\\';
        }
        return at < end ? at + 1 : end;
    }
    if (bytes[at] == '\0' || !is_word(bytes[at])) {
        return at + 1;
    }
    while (at < end && bytes[at] != '\0' && is_word(bytes[at])) {
        at++;
    }
    return at;
}

static fuzz_kind token_kind(const uint8_t *token, size_t length)
{
    const bool digits = token[0] >= '0' && token[0] <= '9';
    return digits || (token[0] == '-' && length > 1) ? FUZZ_DIGITS : FUZZ_PLAIN;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* A value in brackets holds its elements or members, each up to its comma; a member holds its key and its value. */
typedef struct nest {
    int value, entry; /* pieces */
    bool object, keyed;
} nest;

static int begin_entry(fuzz_pieces *pieces, nest *in, size_t from, size_t to)
{
    in->keyed = false;
    return fuzz_piece_add(pieces, in->object ? FUZZ_MEMBER : FUZZ_ELEMENT, from, to, in->value);
}

static int add_token(fuzz_pieces *pieces, fuzz_kind kind, size_t from, size_t to, int parent, bool part)
{
    const int piece = fuzz_piece_add(pieces, kind, from, to, parent);
    if (piece >= 0) {
        pieces->at[piece].part = part && parent >= 0;
    }
    return piece;
}

static void end_piece(fuzz_pieces *pieces, int piece, size_t end)
{
    if (piece >= 0) {
        pieces->at[piece].to = end;
    }
}

void fuzz_split_text(fuzz_pieces *pieces, size_t from, size_t to, int parent)
{
    nest open[DEEPEST];
    int depth = 0;
    const uint8_t *const bytes = pieces->bytes;
    for (size_t at = from, end = from; at < to; at = end) {
        const uint8_t c = bytes[at];
        nest *const in = depth > 0 ? &open[depth - 1] : NULL;
        const int around = in != NULL ? in->entry : parent;
        end = token_end(bytes, at, to);
        if (is_space(c) || (in != NULL && c == ':')) {
            continue;
        }
        if ((c == '}' || c == ']') && in != NULL) {
            depth--;
            end_piece(pieces, in->entry, at);
            end_piece(pieces, in->value, end);
        } else if ((c == '{' || c == '[') && depth < DEEPEST) {
            open[depth] = (nest){.value = add_token(pieces, FUZZ_NODE, at, to, around, in != NULL), .object = c == '{'};
            open[depth].entry = begin_entry(pieces, &open[depth], end, to);
            depth++;
        } else if (c == ',' && in != NULL) {
            end_piece(pieces, in->entry, end);
            in->entry = begin_entry(pieces, in, end, to);
        } else {
            const bool key = in != NULL && in->object && !in->keyed;
            add_token(pieces, key ? FUZZ_KEY : token_kind(bytes + at, end - at), at, end, around, in != NULL);
            if (in != NULL) {
                in->keyed = true;
            }
        }
    }
}

size_t fuzz_mend_json(uint8_t *bytes, size_t size, size_t room)
{
    static uint8_t mended[FUZZ_ROOM];
    size_t length = 0;
    bool after_value = false;
    for (size_t at = 0, end = 0; at < size; at = end) {
        const uint8_t c = bytes[at];
        end = token_end(bytes, at, size);
        const bool space = is_space(c), closes = c == '}' || c == ']';
        if (c == ',') {
            continue;
        }
        if (length + 1 + end - at > sizeof mended) {
            return size;
        }
        if (after_value && !space && !closes && c != ':') {
            mended[length++] = ',';
        }
        memcpy(mended + length, bytes + at, end - at);
        length += end - at;
        after_value = space ? after_value : c != '{' && c != '[' && c != ':';
    }
    if (length > room) {
        return size;
    }
    memcpy(bytes, mended, length);
    return length;
}

/* ---- binary formats ---- */

static size_t varint_end(const uint8_t *bytes, size_t at, size_t end)
{
    const size_t last = at + 10 < end ? at + 10 : end;
    while (at < last && bytes[at] >= 0x80) {
        at++;
    }
    return at < last ? at + 1 : end + 1; /* end + 1: it has no end */
}

static uint64_t little(const uint8_t *bytes, size_t width)
{
    uint64_t number = 0;
    for (size_t i = width; i > 0; i--) {
        number = number << 8 | bytes[i - 1];
    }
    return number;
}

static uint64_t varint(const uint8_t *bytes, size_t at, size_t end)
{
    uint64_t number = 0;
    for (unsigned shift = 0; at < end && shift < 64; at++, shift += 7) {
        number |= (uint64_t)(bytes[at] & 0x7f) << shift;
    }
    return number;
}

/* Bytes with their length before them. Gives the piece. */
static int add_counted(fuzz_pieces *pieces, fuzz_kind kind, size_t length_at, int width, size_t from, size_t to,
                       int parent)
{
    const int piece = fuzz_piece_add(pieces, kind, from, to, parent);
    if (piece >= 0) {
        pieces->at[piece].length_at = length_at;
        pieces->at[piece].length_width = width;
    }
    return piece;
}

/* What follows an opcode: so many bytes, or a length of so many bytes (negative) and what it counts. LINE: up to a line
 * end, TWO: up to the second one. */
enum { LINE = 100, TWO = 101 };
static int argument_of(uint8_t opcode)
{
    static const struct {
        const char *opcodes;
        int argument;
    } of[] = {{"Khq\x80\x82", 1}, {"M\x83", 2},         {"Jjr\x84", 4},     {"G\x95", 8}, {"UC\x8a\x8c", -1},
              {"TBX\x8b", -4},    {"\x8d\x8e\x96", -8}, {"FILSVPgp", LINE}, {"ci", TWO}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (opcode != 0 && strchr(of[i].opcodes, opcode) != NULL) {
            return of[i].argument;
        }
    }
    return 0;
}

void fuzz_split_pickle(fuzz_pieces *pieces, size_t from, size_t to, int parent)
{
    const uint8_t *const bytes = pieces->bytes;
    for (size_t at = from, end = from; at < to; at = end) {
        const int argument = argument_of(bytes[at]), width = argument < 0 ? -argument : argument;
        end = at + 1;
        if (argument >= LINE) {
            for (int lines = argument - LINE + 1; lines > 0 && end < to; end++) {
                lines -= bytes[end] == '\n';
            }
            fuzz_piece_add(pieces, FUZZ_PLAIN, at, end, parent);
            continue;
        }
        if (to - end < (size_t)width) {
            return;
        }
        end += (size_t)width;
        const uint64_t count = argument < 0 ? little(bytes + at + 1, (size_t)width) : 0;
        if (count > to - end) {
            return;
        }
        const int opcode = fuzz_piece_add(pieces, FUZZ_NODE, at, end + (size_t)count, parent);
        if (argument > 0) {
            fuzz_piece_add(pieces, FUZZ_LITTLE, at + 1, end, opcode);
        } else if (argument < 0) {
            add_counted(pieces, FUZZ_PLAIN, at + 1, width, end, end + (size_t)count, opcode);
        }
        end += (size_t)count;
    }
}

/* Where a field ends, its tag at `at`; 0: there is none. */
static size_t field_end(const uint8_t *bytes, size_t at, size_t to, size_t *value)
{
    *value = varint_end(bytes, at, to);
    if (*value >= to || varint(bytes, at, *value) < 8) {
        return 0;
    }
    size_t end = 0;
    switch (bytes[at] & 7) {
    case 0: end = varint_end(bytes, *value, to); break;
    case 1: end = *value + 8; break;
    case 5: end = *value + 4; break;
    case 2:
        end = varint_end(bytes, *value, to);
        if (end > to || varint(bytes, *value, end) > to - end) {
            return 0;
        }
        return end + (size_t)varint(bytes, *value, end);
    default: return 0;
    }
    return end <= to ? end : 0;
}

static bool is_message(const uint8_t *bytes, size_t from, size_t to)
{
    size_t value = 0;
    while (from < to) {
        from = field_end(bytes, from, to, &value);
        if (from == 0) {
            return false;
        }
    }
    return true;
}

static void split_message(fuzz_pieces *pieces, size_t from, size_t to, int parent, int depth)
{
    const uint8_t *const bytes = pieces->bytes;
    size_t value = 0;
    for (size_t at = from, end = from; at < to; at = end) {
        end = field_end(bytes, at, to, &value);
        if (end == 0) {
            return;
        }
        const int field = fuzz_piece_add(pieces, FUZZ_NODE, at, end, parent);
        if ((bytes[at] & 7) != 2) {
            fuzz_piece_add(pieces, (bytes[at] & 7) == 0 ? FUZZ_VARINT : FUZZ_LITTLE, value, end, field);
            continue;
        }
        const size_t inner = varint_end(bytes, value, to);
        const bool message = depth < DEEPEST && inner < end && is_message(bytes, inner, end);
        const int content = add_counted(pieces, message ? FUZZ_NODE : FUZZ_PLAIN, value, 0, inner, end, field);
        if (message && content >= 0) {
            split_message(pieces, inner, end, content, depth + 1);
        }
    }
}

void fuzz_split_protobuf(fuzz_pieces *pieces, size_t from, size_t to, int parent)
{
    split_message(pieces, from, to, parent, 0);
}

void fuzz_split_safetensors(fuzz_pieces *pieces, size_t from, size_t to, int parent)
{
    if (to - from < 8 || little(pieces->bytes + from, 8) > to - from - 8) {
        return;
    }
    const size_t header = from + 8, data = header + (size_t)little(pieces->bytes + from, 8);
    fuzz_split_text(pieces, header, data, add_counted(pieces, FUZZ_NODE, from, 8, header, data, parent));
    fuzz_piece_add(pieces, FUZZ_PLAIN, data, to, parent);
}

/* "ckptspol", version, process, the program's name with its length, then records of numbers, each with its length. */
void fuzz_split_spool(fuzz_pieces *pieces, size_t from, size_t to, int parent)
{
    const uint8_t *const bytes = pieces->bytes;
    size_t at = from + 8;
    for (int i = 0; i < 2 && at < to; i++) {
        const size_t end = varint_end(bytes, at, to);
        if (end > to) {
            return;
        }
        fuzz_piece_add(pieces, FUZZ_VARINT, at, end, parent);
        at = end;
    }
    while (at < to) {
        const size_t content = varint_end(bytes, at, to);
        if (content > to || varint(bytes, at, content) > to - content) {
            return;
        }
        const size_t end = content + (size_t)varint(bytes, at, content);
        const int record = add_counted(pieces, FUZZ_NODE, at, 0, content, end, parent);
        for (size_t number = content; number < end && record >= 0;) {
            const size_t next = varint_end(bytes, number, end);
            if (next > end) {
                break;
            }
            fuzz_piece_add(pieces, FUZZ_VARINT, number, next, record);
            number = next;
        }
        at = end;
    }
}
