/* Changes of an input by its pieces: one goes, comes twice, changes places with a neighbour, becomes what another is, or
 * holds another number. The format says only what pieces there are. */
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_MAX = 4, PIECE_MAX = 1 << 12 };

typedef struct mutant {
    uint8_t *bytes;
    size_t size, room;
    uint64_t state; /* of the generator */
} mutant;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(mutant *m, uint64_t limit)
{
    uint64_t z = m->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % limit;
}

int fuzz_piece_add(fuzz_pieces *pieces, fuzz_kind kind, size_t from, size_t to, int parent)
{
    if (pieces->count == FUZZ_PIECES) {
        return -1;
    }
    pieces->at[pieces->count] =
        (fuzz_piece){.from = from, .to = to, .length_width = -1, .parent = parent, .kind = kind};
    return pieces->count++;
}

static void find(fuzz_pieces *pieces, fuzz_split *split, const uint8_t *bytes, size_t size)
{
    pieces->bytes = bytes;
    pieces->count = 0;
    split(pieces, 0, size, -1);
}

/* Bytes [from, to) become others. False, and nothing is changed, when there is no room. */
static bool replace(mutant *m, size_t from, size_t to, const uint8_t *bytes, size_t count)
{
    if (m->size - (to - from) + count > m->room) {
        return false;
    }
    memmove(m->bytes + from + count, m->bytes + to, m->size - to);
    if (count > 0) {
        memcpy(m->bytes + from, bytes, count);
    }
    m->size = m->size - (to - from) + count;
    return true;
}

static size_t put_varint(uint64_t number, uint8_t to[10])
{
    size_t count = 0;
    for (; number >= 0x80; number >>= 7) {
        to[count++] = (uint8_t)(number | 0x80);
    }
    to[count++] = (uint8_t)number;
    return count;
}

static uint64_t get_varint(const uint8_t *from, const uint8_t *to)
{
    uint64_t number = 0;
    for (unsigned shift = 0; from < to && shift < 64; shift += 7) {
        number |= (uint64_t)(*from++ & 0x7f) << shift;
    }
    return number;
}

static void put_little(uint64_t number, uint8_t *to, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        to[i] = (uint8_t)(i < 8 ? number >> 8 * i : 0);
    }
}

static uint64_t get_little(const uint8_t *from, size_t width)
{
    uint64_t number = 0;
    for (size_t i = 0; i < width && i < 8; i++) {
        number |= (uint64_t)from[i] << 8 * i;
    }
    return number;
}

/* The lengths of piece `p` and of all around it, after `more` bytes came into it. */
static void mend_lengths(mutant *m, const fuzz_pieces *pieces, int p, int64_t more)
{
    for (; p >= 0 && more != 0; p = pieces->at[p].parent) {
        const fuzz_piece *const piece = &pieces->at[p];
        const int64_t length = (int64_t)(piece->to - piece->from) + more;
        uint8_t text[10];
        if (piece->length_width > 0) {
            put_little((uint64_t)length, m->bytes + piece->length_at, (size_t)piece->length_width);
        } else if (piece->length_width == 0) {
            const size_t count = put_varint((uint64_t)length, text), before = piece->from - piece->length_at;
            more += replace(m, piece->length_at, piece->from, text, count) ? (int64_t)count - (int64_t)before : 0;
        }
    }
}

/* Bytes [from, to) inside piece `around` become others, and lengths follow but for one time in 16. */
static void change(mutant *m, const fuzz_pieces *pieces, int around, size_t from, size_t to, const uint8_t *bytes,
                   size_t count)
{
    if (replace(m, from, to, bytes, count) && draw(m, 16) > 0) {
        mend_lengths(m, pieces, around, (int64_t)count - (int64_t)(to - from));
    }
}

static uint64_t edge(mutant *m, uint64_t now)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     7,
                                     8,
                                     15,
                                     16,
                                     31,
                                     32,
                                     63,
                                     64,
                                     99,
                                     100,
                                     127,
                                     128,
                                     255,
                                     256,
                                     1000,
                                     1024,
                                     4095,
                                     4096,
                                     65535,
                                     65536,
                                     1000000,
                                     (1u << 30),
                                     INT32_MAX,
                                     UINT64_C(1) << 31,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 40,
                                     UINT64_C(1) << 53,
                                     UINT64_C(1) << 62,
                                     INT64_MAX,
                                     UINT64_C(1) << 63};
    switch (draw(m, 8)) {
    case 0: return now + 1;
    case 1: return now - 1;
    case 2: return now * 2;
    case 3: return 0 - now;
    case 4: return draw(m, 20);
    case 5: return 0 - edges[draw(m, sizeof edges / sizeof *edges)];
    default: return edges[draw(m, sizeof edges / sizeof *edges)];
    }
}

static size_t edge_text(mutant *m, const uint8_t *from, size_t length, char *text, size_t room)
{
    static const char *const odd[] = {
        "-0",  "0.5", "1e308", "1e-400", "-1e308", "2.5e-324", "1e999", "9223372036854775808", "-9223372036854775809",
        "0.1", "1.0", "99",    "00"};
    char now[32];
    snprintf(now, sizeof now, "%.*s", (int)length, (const char *)from);
    if (draw(m, 4) == 0) {
        return (size_t)snprintf(text, room, "%s", odd[draw(m, sizeof odd / sizeof *odd)]);
    }
    return (size_t)snprintf(text, room, "%" PRId64, (int64_t)edge(m, strtoull(now, NULL, 10)));
}

/* Other bytes; within quotes mostly such as a text of JSON may have. */
static size_t change_bytes(mutant *m, uint8_t *bytes, size_t length, size_t room)
{
    if (length < 2 || bytes[0] != '"' || bytes[length - 1] != '"' || draw(m, 8) == 0) {
        return LLVMFuzzerMutate(bytes, length, room);
    }
    const size_t inner = LLVMFuzzerMutate(bytes + 1, length - 2, room - 2);
    for (size_t i = 1; i <= inner; i++) {
        const bool plain = bytes[i] >= ' ' && bytes[i] < 0x7f && bytes[i] != '"' && bytes[i] != '\\';
        bytes[i] = plain ? bytes[i] : 'a' + bytes[i] % 26;
    }
    bytes[inner + 1] = '"';
    return inner + 2;
}

/* Another number, of the kind that is there; other bytes where it is none. */
static void change_value(mutant *m, const fuzz_pieces *pieces, int p)
{
    const fuzz_piece *const piece = &pieces->at[p];
    const size_t length = piece->to - piece->from;
    uint8_t value[PIECE_MAX + 64];
    size_t count = 0;
    if (piece->kind == FUZZ_DIGITS) {
        count = edge_text(m, m->bytes + piece->from, length, (char *)value, sizeof value);
    } else if (piece->kind == FUZZ_VARINT) {
        count = put_varint(edge(m, get_varint(m->bytes + piece->from, m->bytes + piece->to)), value);
    } else if (piece->kind == FUZZ_LITTLE && length <= 8) {
        put_little(edge(m, get_little(m->bytes + piece->from, length)), value, length);
        count = length;
    } else if (length <= PIECE_MAX) {
        memcpy(value, m->bytes + piece->from, length);
        count = change_bytes(m, value, length, length + 64);
    } else {
        return;
    }
    change(m, pieces, p, piece->from, piece->to, value, count);
}

/* Where a piece begins, its length counted. */
static size_t start_of(const fuzz_piece *piece)
{
    return piece->length_width < 0 ? piece->from : piece->length_at;
}

/* Some copies of it behind it. */
static void repeat(mutant *m, const fuzz_pieces *pieces, int p)
{
    const fuzz_piece *const piece = &pieces->at[p];
    const size_t from = start_of(piece), length = piece->to - from;
    const size_t times = draw(m, 8) == 0 ? 1 + draw(m, 100) : 1;
    uint8_t *const copies = malloc(length * times + 1);
    for (size_t i = 0; copies != NULL && i < times; i++) {
        memcpy(copies + i * length, m->bytes + from, length);
    }
    if (copies != NULL) {
        change(m, pieces, piece->parent, piece->to, piece->to, copies, length * times);
    }
    free(copies);
}

/* It and the next piece that is in the same one change places. */
static void swap(mutant *m, const fuzz_pieces *pieces, int p)
{
    const fuzz_piece *const one = &pieces->at[p];
    for (int q = p + 1; q < pieces->count; q++) {
        const fuzz_piece *const two = &pieces->at[q];
        if (two->parent != one->parent || start_of(two) < one->to || draw(m, 3) == 0) {
            continue;
        }
        const size_t from = start_of(one), length = one->to - from, between = start_of(two) - one->to;
        const size_t second = two->to - start_of(two), all = length + between + second;
        uint8_t *const turned = malloc(all + 1);
        if (turned != NULL) {
            memcpy(turned, m->bytes + start_of(two), second);
            memcpy(turned + second, m->bytes + one->to, between);
            memcpy(turned + second + between, m->bytes + from, length);
            change(m, pieces, one->parent, from, two->to, turned, all);
        }
        free(turned);
        return;
    }
}

/* It becomes what another piece is; of the same kind, mostly. */
static void copy_over(mutant *m, const fuzz_pieces *pieces, int p, const fuzz_pieces *source)
{
    const fuzz_piece *const piece = &pieces->at[p];
    const fuzz_piece *from = &source->at[draw(m, (uint64_t)source->count)];
    for (int tries = 0; tries < 20 && from->kind != piece->kind; tries++) {
        from = &source->at[draw(m, (uint64_t)source->count)];
    }
    const size_t length = from->to - from->from;
    uint8_t *const copy = malloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, source->bytes + from->from, length);
        change(m, pieces, p, piece->from, piece->to, copy, length);
    }
    free(copy);
}

enum { GO, COME, MOVE, BECOME, WAYS = 6 }; /* the rest: another value */

/* Leaves a key that is there twice, or that nobody knows, which is one refusal and hides all others. */
static bool is_dull(fuzz_kind kind, fuzz_kind moved, int way)
{
    return kind == FUZZ_KEY || (moved == FUZZ_MEMBER && way == COME) || (kind == FUZZ_MEMBER && way >= BECOME);
}

static void change_once(mutant *m, fuzz_split *split, fuzz_pieces *pieces, const fuzz_pieces *other)
{
    const fuzz_piece *piece = NULL, *moved = NULL;
    int way = 0;
    find(pieces, split, m->bytes, m->size);
    if (pieces->count == 0 || draw(m, 8) == 0) {
        m->size = LLVMFuzzerMutate(m->bytes, m->size, m->room);
        return;
    }
    do {
        way = (int)draw(m, WAYS);
        piece = moved = &pieces->at[draw(m, (uint64_t)pieces->count)];
        while (moved->part) {
            moved = &pieces->at[moved->parent];
        }
    } while (is_dull(piece->kind, moved->kind, way) && draw(m, 16) > 0);
    const int p = (int)(piece - pieces->at), q = (int)(moved - pieces->at);
    const bool nest = piece->kind == FUZZ_NODE || piece->kind == FUZZ_MEMBER || piece->kind == FUZZ_ELEMENT;
    switch (way) {
    case GO: change(m, pieces, moved->parent, start_of(moved), moved->to, NULL, 0); break;
    case COME: repeat(m, pieces, q); break;
    case MOVE: swap(m, pieces, q); break;
    case BECOME: copy_over(m, pieces, p, other->count > 0 ? other : pieces); break;
    default:
        if (nest && draw(m, 8) > 0) { /* with other bytes it would be none any more */
            copy_over(m, pieces, p, pieces);
        } else {
            change_value(m, pieces, p);
        }
        break;
    }
}

size_t fuzz_mutate(fuzz_split *split, uint8_t *bytes, size_t size, size_t room, const uint8_t *other, size_t other_size,
                   unsigned seed)
{
    static fuzz_pieces pieces, of_other;
    mutant m = {.bytes = bytes, .size = size, .room = room, .state = seed};
    of_other.count = 0;
    if (other != NULL) {
        find(&of_other, split, other, other_size);
    }
    for (uint64_t changes = 1 + draw(&m, CHANGES_MAX); changes > 0; changes--) {
        change_once(&m, split, &pieces, &of_other);
    }
    /* What went or came twice left a comma too many or too few. */
    const bool json = split == fuzz_split_text && m.size > 0 && (bytes[0] == '{' || bytes[0] == '[');
    return json && draw(&m, 16) > 0 ? fuzz_mend_json(bytes, m.size, room) : m.size;
}
